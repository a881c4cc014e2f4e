/* flatout status: what each rank of a job does at this moment, and where it hangs. */
#include "cli/cli.h"

#include "base/clock.h"
#include "record/rank_where.h"
#include "report/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct status {
	bool follow;
	double bound;
	const char *json;
	bool force;
};

/* Shorter than any time for which a person would call a job hung; a step of a small model is over by then. */
#define WAITED_S 2.0

static const struct fo_opt rows[] = { FO_OPT_BOOL(struct status, follow, "status.follow", "false",
						  "print anew each second until the job ends"),
				      FO_OPT_REAL(struct status, bound, "status.silent-after", "T", "15", 1, 1e6, "s",
						  "a rank without a heartbeat for so long counts as hung"),
				      FO_CLI_OUTPUT_ROWS(struct status, "status", "JSON on standard output") };

/* Ranks that do the same. */
struct group {
	bool *in;
	int ranks;
	enum fo_rank_health health;
	char doing[600];
	double least, most, age; /* seconds that they have done it; oldest heartbeat; NAN */
};

static void add(struct group *g, const struct fo_rank_seen *r)
{
	double s = fo_rank_seconds(r);
	g->in[r->rank] = true;
	g->ranks++;
	g->least = fmin(g->least, s); /* of NAN and a number the number */
	g->most = fmax(g->most, s);
	g->age = fmax(g->age, r->age);
}

static int make_groups(const struct fo_ranks_seen *s, double bound, struct group **out)
{
	int n = 0;
	struct group *g = *out = fo_xmalloc((size_t)(s->ranks + 1) * sizeof *g);
	for (int i = 0; i < s->ranks; i++) {
		const struct fo_rank_seen *r = &s->rank[i];
		enum fo_rank_health h = fo_rank_health(r, bound);
		char doing[600] = "";
		if (r->file == FO_RANK_FILE_WHOLE)
			fo_rank_doing(r, doing, sizeof doing);
		int k = 0;
		while (k < n && (g[k].health != h || strcmp(g[k].doing, doing) != 0))
			k++;
		if (k == n) {
			g[n] = (struct group){ .health = h, .least = NAN, .most = NAN, .age = NAN };
			g[n].in = fo_xmalloc((size_t)s->ranks * sizeof *g->in);
			memcpy(g[n++].doing, doing, sizeof doing);
		}
		add(&g[k], r);
	}
	return n;
}

static const char *span_text(struct fo_doc *d, double least, double most)
{
	if (!(most > 0)) /* of a rank whose file is missing or damaged, or that died as it began something */
		return "-";
	if (most - least < 0.1 * most)
		return fo_doc_num(d, most, FO_DRAW_SECONDS);
	return fo_doc_printf(d, "%s to %s", fo_doc_num(d, least, FO_DRAW_SECONDS),
			     fo_doc_num(d, most, FO_DRAW_SECONDS));
}

static const char *health_text(struct fo_doc *d, const struct group *g)
{
	switch (g->health) {
	case FO_HEALTH_FINE: return fo_doc_printf(d, "%s ago", fo_doc_num(d, g->age, FO_DRAW_SECONDS));
	case FO_HEALTH_SILENT: return fo_doc_printf(d, "none for %s", fo_doc_num(d, g->age, FO_DRAW_SECONDS));
	default: return fo_rank_health_name[g->health];
	}
}

static const char *hosts_text(struct fo_doc *d, const struct fo_ranks_seen *s)
{
	enum { SHOWN = 4 };
	const char *shown[SHOWN];
	int n = 0;
	for (int i = 0; i < s->ranks; i++) {
		int k = 0;
		while (k < n && k < SHOWN && strcmp(shown[k], s->rank[i].host) != 0)
			k++;
		if (!*s->rank[i].host || k < n)
			continue;
		if (n == SHOWN)
			return fo_doc_printf(d, "%s, %s, %s, %s and more", shown[0], shown[1], shown[2], shown[3]);
		shown[n++] = s->rank[i].host;
	}
	const char *text = n ? shown[0] : "not known";
	for (int k = 1; k < n; k++)
		text = fo_doc_printf(d, "%s, %s", text, shown[k]);
	return text;
}

/* Only of a job that runs, and is well: of one that ended `flatout report` says it. */
static bool slow_of(const struct fo_ranks_seen *s, double bound, struct fo_slow_rank *slow)
{
	bool runs = s->ranks > 1;
	for (int i = 0; i < s->ranks; i++) {
		enum fo_rank_health h = fo_rank_health(&s->rank[i], bound);
		runs &= h == FO_HEALTH_FINE || h == FO_HEALTH_UNKNOWN;
		runs &= s->rank[i].step > 0;
	}
	if (runs)
		fo_ranks_slow(s, true, slow);
	return runs;
}

static void say_slow(struct fo_doc *d, const struct fo_ranks_seen *s, double bound)
{
	struct fo_slow_rank slow;
	if (!slow_of(s, bound, &slow))
		return;
	if (!slow.known)
		fo_doc_remark(d,
			      "Not known yet: whether a rank is slower than all others. The ranks have %d stretches of "
			      "half a second or more in common, and %d are needed.",
			      slow.windows, slow.needed);
	else if (slow.rank >= 0)
		fo_doc_verdict(d, FO_DOC_BAD, "Straggler", "%s",
			       fo_report_slow_text(d, &slow, s->rank[slow.rank].host));
}

/* Says which processors ranks compute on: once if all have the same ones, else of the first ranks and the last. */
static void say_processors(struct fo_doc *d, const struct fo_ranks_seen *s)
{
	enum { SHOWN = 4 };
	const char *text = "";
	int told = 0, threads = 0, unlike = 0, shown = 0;
	const struct fo_rank_seen *first = NULL;
	for (int i = 0; i < s->ranks; i++) {
		const struct fo_rank_seen *r = &s->rank[i];
		if (!r->threads)
			continue;
		first = told++ ? first : r;
		threads = r->threads > threads ? r->threads : threads;
		unlike += strcmp(r->cpus, first->cpus) != 0;
	}
	if (!told)
		return;
	const char *each = fo_doc_printf(d, "%d thread%s each", threads, fo_plural(threads));
	if (!unlike) {
		if (told == 1)
			each = fo_doc_printf(d, "%d thread%s", threads, fo_plural(threads));
		fo_doc_line(d, "Processors", "%s, on %s", each, *first->cpus ? first->cpus : "not known");
		return;
	}
	for (int i = 0, left = told; i < s->ranks; i++) {
		if (!s->rank[i].threads)
			continue;
		left--;
		if (shown++ < SHOWN || !left)
			text = fo_doc_join(
				d, text, fo_doc_printf(d, "%s (rank %d)", *s->rank[i].cpus ? s->rank[i].cpus : "?", i));
		else if (shown == SHOWN + 1)
			text = fo_doc_join(d, text, "...");
	}
	fo_doc_line(d, "Processors", "%s: %s", each, text);
}

static void describe(struct fo_doc *d, const char *dir, const struct fo_ranks_seen *s, double bound)
{
	struct group *g;
	char ranks[400], cause[1400];
	int64_t step = 0, steps = 0, begun = 0;
	for (int i = 0; i < s->ranks; i++) {
		step = s->rank[i].step > step ? s->rank[i].step : step;
		steps = s->rank[i].steps > steps ? s->rank[i].steps : steps;
		begun = s->rank[i].begun_unix_ns > begun ? s->rank[i].begun_unix_ns : begun;
	}
	const char *at_step = steps ? fo_doc_printf(d, "step %lld of %lld", (long long)step, (long long)steps)
				    : "no step so far";
	fo_doc_line(d, "Job", "%s: %d rank%s, %s", dir, s->ranks, fo_plural(s->ranks), at_step);
	fo_doc_line(d, "Hosts", "%s", hosts_text(d, s));
	say_processors(d, s);
	int at = fo_ranks_cause(s, bound, WAITED_S, cause, sizeof cause), n = make_groups(s, bound, &g), unknown = 0;
	if (at >= 0)
		fo_doc_verdict(d, FO_DOC_BAD, "Held up", "rank %d %s", at, cause);
	say_slow(d, s, bound);
	/* Last, the text of what they do is wrapped on a narrow screen. */
	fo_doc_table(d, FO_DRAW_FITTED, NULL, "lrll", "rank", "for", "heartbeat", "does");
	for (int k = 0; k < n; k++) {
		fo_ranks_text(g[k].in, s->ranks, ranks, sizeof ranks);
		const char *doing = *g[k].doing ? fo_doc_printf(d, "%s", g[k].doing) : "-";
		fo_doc_row(d, fo_doc_printf(d, "%s", ranks),
			   g[k].health == FO_HEALTH_ENDED ? "-" : span_text(d, g[k].least, g[k].most),
			   health_text(d, &g[k]), doing);
		unknown += g[k].health == FO_HEALTH_UNKNOWN ? g[k].ranks : 0;
		free(g[k].in);
	}
	free(g);
	if (unknown)
		fo_doc_remark(d, "Not known from this: whether %d rank%s on other hosts still live%s.", unknown,
			      fo_plural(unknown), fo_word(unknown, "s", ""));
	if (s->strangers)
		fo_doc_remark(d, "%d file%s of an earlier job %s left out.", s->strangers, fo_plural(s->strangers),
			      fo_word(s->strangers, "is", "are"));
}

/* ---- JSON ---- */

static void lanes_json(struct fo_json *j, const struct fo_rank_seen *r)
{
	fo_json_array(j, "lanes");
	for (int l = 0; l < r->lanes; l++) {
		const struct fo_lane_seen *x = &r->lane[l];
		if (x->does != FO_LANE_RUNS && x->does != FO_LANE_WAITS)
			continue;
		fo_json_record(j, NULL, FO_TEXT("lane", x->name),
			       FO_TEXT("does", x->does == FO_LANE_RUNS ? "runs" : "waits"),
			       FO_TEXT("op", fo_json_some(x->op)), FO_TEXT("block", fo_json_some(x->block)),
			       FO_TEXT("phase", fo_json_some(x->phase)), FO_TEXT("group", fo_json_some(x->group)),
			       FO_INT("instance", x->instance), FO_INT("layer", x->layer), FO_INT("micro_batch", x->mb),
			       FO_REAL("seconds", x->seconds));
	}
	fo_json_close(j);
}

static void rank_json(struct fo_json *j, const struct fo_rank_seen *r, double bound)
{
	char doing[600];
	fo_json_object(j, NULL);
	fo_json_put(j, FO_INT("rank", r->rank), FO_TEXT("health", fo_rank_health_name[fo_rank_health(r, bound)]));
	if (r->file == FO_RANK_FILE_DAMAGED)
		fo_json_text(j, "why", r->why);
	if (r->file == FO_RANK_FILE_WHOLE) {
		fo_rank_doing(r, doing, sizeof doing);
		fo_json_put(
			j, FO_TEXT("host", r->host), FO_INT("process", r->pid),
			FO_TEXT("program", fo_json_some(r->program)), FO_REAL("threads", r->threads ? r->threads : NAN),
			FO_TEXT("processors", fo_json_some(r->cpus)), FO_REAL("began", (double)r->begun_unix_ns * 1e-9),
			FO_TEXT("phase", fo_rank_phase_name[r->phase]), FO_INT("step", r->step),
			FO_INT("steps", r->steps), FO_TEXT("does", doing), FO_REAL("seconds", fo_rank_seconds(r)),
			FO_REAL("heartbeat_age_seconds", r->age), FO_TEXT("error", r->error == FO_OK ? NULL : r->text));
		lanes_json(j, r);
	}
	fo_json_close(j);
}

static void write_json(struct fo_json *j, const struct fo_ranks_seen *s, double bound)
{
	char cause[1400];
	struct fo_slow_rank slow;
	int at = fo_ranks_cause(s, bound, WAITED_S, cause, sizeof cause);
	fo_json_put(j, FO_TEXT("job", s->job), FO_INT("ranks", s->ranks), FO_INT("cause_rank", at),
		    FO_TEXT("cause", at < 0 ? NULL : cause));
	if (slow_of(s, bound, &slow))
		fo_report_slow_json(j, &slow);
	else
		fo_json_raw(j, "straggler", "null");
	fo_json_array(j, "rank");
	for (int i = 0; i < s->ranks; i++)
		rank_json(j, &s->rank[i], bound);
	fo_json_close(j);
}

/* ---- the command ---- */

static void nap(double seconds)
{
	struct timespec t = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
	nanosleep(&t, NULL);
}

/* Is there a rank of which more may come? */
static bool goes_on(const struct fo_ranks_seen *s, double bound)
{
	bool alive = false;
	for (int i = 0; i < s->ranks; i++) {
		enum fo_rank_health h = fo_rank_health(&s->rank[i], bound);
		alive |= h == FO_HEALTH_FINE || h == FO_HEALTH_UNKNOWN || h == FO_HEALTH_STOPPED ||
			 h == FO_HEALTH_SILENT;
	}
	return alive;
}

static bool anything_wrong(const struct fo_ranks_seen *s, double bound)
{
	for (int i = 0; i < s->ranks; i++)
		if (fo_rank_health_is_bad(fo_rank_health(&s->rank[i], bound)))
			return true;
	return false;
}

static fo_status no_ranks(const char *dir)
{
	return fo_hint(fo_fail(FO_EARG, "'%s' has no state of any rank", dir),
		       "a job of this version leaves it in '%s/ranks' while it trains; 'flatout report %s' reads "
		       "what a run left",
		       dir, dir);
}

static fo_status follow(const struct fo_cli_call *call, struct fo_ranks_watch *w, const char *dir, double bound)
{
	const bool live = fo_cli_is_live(stdout);
	for (;;) {
		describe(call->doc, dir, &w->seen, bound);
		if (live)
			fputs("\033[H\033[J", stdout);
		fo_cli_print(stdout, call->doc);
		fo_doc_fini(call->doc);
		*call->doc = (struct fo_doc){ 0 };
		if (!live)
			putchar('\n');
		if (fflush(stdout) || !goes_on(&w->seen, bound)) /* nobody reads any more */
			return FO_OK;
		nap(1);
		FO_TRY(fo_ranks_watch_look(w, dir, NULL));
		if (!w->seen.ranks)
			return no_ranks(dir);
	}
}

static fo_status look(const struct fo_cli_call *call, struct fo_ranks_watch *w)
{
	const struct status *in = call->in;
	const char *dir = call->argv[1];
	FO_TRY(fo_ranks_watch_look(w, dir, NULL));
	if (!w->seen.ranks)
		return no_ranks(dir);
	if (in->follow) {
		FO_TRY(follow(call, w, dir, in->bound));
	} else {
		/* Of ranks on other hosts only time tells whether their hearts beat. */
		if (fo_ranks_need_watch(&w->seen)) {
			nap(10 * (double)FO_RANK_BEAT_NS * 1e-9);
			FO_TRY(fo_ranks_watch_look(w, dir, NULL));
		}
		if (call->json)
			write_json(call->json, &w->seen, in->bound);
		else
			describe(call->doc, dir, &w->seen, in->bound);
	}
	return anything_wrong(&w->seen, in->bound) ? fo_cli_found() : FO_OK;
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct status *in = call->in;
	struct fo_ranks_watch w = { 0 };
	if (call->argc < 2)
		return fo_hint(fo_fail(FO_EARG, "no run directory"), "usage: %s", call->command->usage);
	if (in->follow && call->json)
		return fo_cli_contradict("--follow prints text again and again, --json one object");
	fo_status st = look(call, &w);
	fo_ranks_watch_fini(&w);
	return st;
}

const struct fo_command fo_cmd_status = {
	.name = "status",
	.group = "diagnose",
	.usage = "flatout status RUN [--follow] [--json]",
	.summary = "what each rank of a job does now, and where it hangs",
	.text = "Reads what the ranks keep in RUN/ranks while they train: step, operation, since when, and a "
		"heartbeat. "
		"It asks no rank, so it also answers when the job hangs. Ranks that do the same share a row. The line "
		"'Held up' names the rank for which the others wait: it failed, its process is gone, it is stopped, "
		"its heart does not beat, it never started, or it alone computes. The line 'Straggler' names a rank "
		"that works longer in a step than all others, over the last stretches of half a second or more, and "
		"what that costs; it is not there where chance could explain it, or a step is not 1.1 times as "
		"long for it.\n\n"
		"A rank on another host counts as alive when new heartbeats arrive here within 2.5 s; clocks of two "
		"hosts are not compared.\n\n"
		"Exit code 1: some rank failed, is gone, stopped, silent or missing.\n\n"
		"  flatout status run\n"
		"  flatout status run --follow",
	.opts = rows,
	.act = run,
	.size = sizeof(struct status),
	.most = 1,
};
