/* Several ranks in a report: what each computed, what of its communication that hid, and for whom it waited. */
#include "record/rank_where.h"
#include "report/run_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RANKS_ON_SCREEN = 16, RANKS_ON_PAGE = 128, BARS = 64, MISSING_RANKS = 4 };

/* The ranks' own marks tell of the whole run, timelines of the last steps. */
static void look_for_slow(struct fo_report *o)
{
	struct fo_ranks_seen seen;
	struct fo_slow_rank marks = { .rank = -1 }, late = { .rank = -1 };
	if (fo_ranks_seen_read(&seen, o->r->dir, NULL) != FO_OK)
		fo_err_clear();
	const bool own = seen.ranks == o->r->ranks;
	if (own) {
		fo_ranks_slow(&seen, false, &marks);
		fo_ranks_slow(&seen, true, &late);
	}
	if (marks.rank < 0 && late.known && late.rank >= 0) /* it became slow late, after many quick steps */
		marks = late;
	o->slow = marks.known || !o->ranks.slow.known ? marks : o->ranks.slow;
	if (own && o->slow.rank >= 0)
		memcpy(o->slow_host, seen.rank[o->slow.rank].host, sizeof o->slow_host);
	fo_ranks_seen_fini(&seen);
}

static void look_at_timelines(struct fo_report *o)
{
	const struct fo_record *r = o->r;
	int whole = 0;
	for (int i = 0; i < r->ranks; i++)
		whole += r->rank[i].timeline != NULL;
	if (!whole)
		return;
	const struct fo_timeline_file **file = fo_arena_alloc(&o->arena, (size_t)r->ranks * sizeof *file);
	for (int i = 0; i < r->ranks; i++)
		file[i] = r->rank[i].timeline;
	fo_ranks_merge(&o->ranks, file, r->ranks);
}

void fo_report_look_at_ranks(struct fo_report *o)
{
	o->slow.rank = -1;
	if (o->r->ranks < 2)
		return;
	look_at_timelines(o);
	look_for_slow(o);
}

/* Is there something to say of this rank's file that was not said of the run's? */
static bool is_missing(const struct fo_report *o, int rank)
{
	const struct fo_record_rank *x = &o->r->rank[rank];
	if (x->timeline)
		return false;
	if (!rank) /* it may be whole, and yet say nothing of ranks */
		return x->file.state != o->r->file[FO_RECORD_TIMELINE].state;
	/* A run that still trains, or was killed, has none at all. */
	return x->file.state == FO_RECORD_DAMAGED || o->ranks.known > 0;
}

const char *fo_report_missing_rank(const struct fo_report *o, int i, int *at, char *text)
{
	const struct fo_record *r = o->r;
	int told = 0, more = 0;
	for (int k = 0; k < r->ranks; k++) {
		const struct fo_record_file *f = &r->rank[k].file;
		if (!is_missing(o, k))
			continue;
		if (told++ >= MISSING_RANKS) {
			more++;
			continue;
		}
		if ((*at)++ != i)
			continue;
		if (f->state == FO_RECORD_ABSENT)
			snprintf(text, FO_REPORT_MISSING, "there is no %s: what rank %d did, and who waited for it",
				 f->path, k);
		else
			snprintf(text, FO_REPORT_MISSING, "%s", f->why);
		return text;
	}
	if (!more || (*at)++ != i)
		return NULL;
	snprintf(text, FO_REPORT_MISSING, "nor can the timelines of %d more ranks be read", more);
	return text;
}

/* ---- words ---- */

/* Of a rank, those of which all members are known. */
static int64_t calls_of(const struct fo_ranks *k, int rank)
{
	int64_t n = 0;
	for (int64_t i = 0; i < k->groups; i++)
		if (k->group[i].rank == rank)
			n += k->group[i].calls - k->group[i].unmatched;
	return n;
}

/* Mean over the steps, in a column of milliseconds. */
static const char *each(const struct fo_ranks *k, struct fo_doc *d, int64_t ns) { return fo_doc_ms(d, ns / k->steps); }

/* The same of waiting or transfer; "-" where no call says which of the two it was: not known is not zero. */
static const char *told(const struct fo_ranks *k, struct fo_doc *d, int64_t matched, int64_t ns)
{
	return matched ? each(k, d, ns) : "-";
}

/* Mean of a part of all known ranks' steps, as a share of them. */
static double share_of(const struct fo_ranks *k, enum fo_rank_comm part)
{
	int64_t sum = 0, all = 0;
	for (int i = 0; i < k->ranks; i++) {
		sum += k->rank[i].exposed_ns[part];
		all += k->rank[i].step_ns;
	}
	return all ? (double)sum / (double)all : NAN;
}

/* The ranks that an array of figures belongs to: "steps 3 to 12 of 4 ranks". */
static const char *what_of(const struct fo_ranks *k, struct fo_doc *d)
{
	const char *ranks = k->known == k->ranks ? fo_doc_printf(d, "%d ranks", k->ranks)
						 : fo_doc_printf(d, "%d of %d ranks", k->known, k->ranks);
	if (k->steps == 1)
		return fo_doc_printf(d, "step %d of %s", k->first_step, ranks);
	return fo_doc_printf(d, "mean of %lld steps (%d to %d) of %s", (long long)k->steps, k->first_step, k->last_step,
			     ranks);
}

const char *fo_report_slow_text(struct fo_doc *d, const struct fo_slow_rank *s, const char *host)
{
	const char *at = *host ? fo_doc_printf(d, " (host %s)", host) : "";
	return fo_doc_printf(d,
			     "rank %d%s works %s of a step, the slowest other rank %s; it was the slowest in %d of %d "
			     "stretches of steps %lld to %lld. What it works longer is %s of a step of %s: about what "
			     "the job would save if it were as fast as the others",
			     s->rank, at, fo_doc_num(d, s->own_s, FO_DRAW_SECONDS),
			     fo_doc_num(d, s->other_s, FO_DRAW_SECONDS), s->slowest, s->windows, (long long)s->first,
			     (long long)s->last, fo_doc_num(d, s->lost_s / s->step_s, FO_DRAW_SHARE),
			     fo_doc_num(d, s->step_s, FO_DRAW_SECONDS));
}

static void say_slow(const struct fo_report *o, struct fo_doc *d)
{
	if (o->r->ranks < 2)
		return;
	if (!o->slow.known)
		fo_doc_verdict(d, FO_DOC_PLAIN, "straggler",
			       "not known from this: the ranks left marks of %d stretches of steps in common, of "
			       "at least %g s, and %d are needed",
			       o->slow.windows, FO_SLOW_RANK_WINDOW_S, o->slow.needed);
	else if (o->slow.rank >= 0)
		fo_doc_verdict(d, FO_DOC_BAD, "straggler", "%s", fo_report_slow_text(d, &o->slow, o->slow_host));
}

void fo_report_say_ranks(const struct fo_report *o, struct fo_doc *d)
{
	const struct fo_ranks *k = &o->ranks;
	say_slow(o, d);
	if (!k->ranks)
		return;
	if (!k->steps) {
		fo_doc_verdict(d, FO_DOC_PLAIN, "ranks",
			       "what they waited for is not known: their timelines have no whole step in common");
		return;
	}
	const char *late = "";
	double unknown = share_of(k, FO_RANK_UNKNOWN);
	if (k->late >= 0) {
		const struct fo_rank_times *t = &k->rank[k->late];
		late = fo_doc_printf(d, "; rank %d is waited for most: %s of all waiting, last in %lld of %lld calls",
				     k->late, fo_doc_share(d, t->caused_ns, k->waited_ns), (long long)t->last,
				     (long long)calls_of(k, k->late));
	}
	if (k->unmatched == k->calls && k->calls) {
		fo_doc_verdict(d, FO_DOC_PLAIN, "ranks",
			       "of a step, while nothing is computed: communication %s; what of it is waiting for a "
			       "late rank is not known from %d of %d timelines",
			       fo_doc_num(d, unknown, FO_DRAW_SHARE), k->known, k->ranks);
		return;
	}
	const char *either = "";
	if (unknown > 0)
		either = fo_doc_printf(d, ", one or the other %s", fo_doc_num(d, unknown, FO_DRAW_SHARE));
	fo_doc_verdict(d, FO_DOC_PLAIN, "ranks",
		       "of a step, while nothing is computed: waiting for a late rank %s, transfer %s%s%s",
		       fo_doc_num(d, share_of(k, FO_RANK_WAIT), FO_DRAW_SHARE),
		       fo_doc_num(d, share_of(k, FO_RANK_TRANSFER), FO_DRAW_SHARE), either, late);
}

/* ---- tables ---- */

/* More lines than that nobody reads. */
static int64_t lines(bool page) { return page ? RANKS_ON_PAGE : RANKS_ON_SCREEN; }

static void rank_table(const struct fo_ranks *k, struct fo_doc *d, bool page)
{
	fo_doc_remark(
		d, "A step is what is computed, what is communicated while nothing is computed, and other things: "
		   "waits: until the last rank of a collective has come; transfer: from then on; unknown: one or the "
		   "other, because not all its ranks left a timeline. hidden: communication behind computation.");
	fo_doc_table(d, FO_DRAW_FITTED, NULL, "lrrrrrrr", "", "step ms", "computes", "waits", "transfer", "unknown",
		     "other", "hidden");
	for (int i = 0; i < k->ranks; i++) {
		const struct fo_rank_times *t = &k->rank[i];
		if (i >= lines(page) && i != k->late) /* whoever is waited for most has a line */
			continue;
		if (t->known)
			fo_doc_row(d, fo_doc_printf(d, "rank %d", i), each(k, d, t->step_ns), each(k, d, t->compute_ns),
				   told(k, d, calls_of(k, i), t->exposed_ns[FO_RANK_WAIT]),
				   told(k, d, calls_of(k, i), t->exposed_ns[FO_RANK_TRANSFER]),
				   each(k, d, t->exposed_ns[FO_RANK_UNKNOWN]), each(k, d, t->other_ns),
				   each(k, d, fo_rank_hidden(t)));
		else
			fo_doc_row(d, fo_doc_printf(d, "rank %d", i), "-", "-", "-", "-", "-", "-", "-");
	}
	if (k->ranks > lines(page))
		fo_doc_remark(d, "... %d ranks in all: --json has each.", k->ranks);
}

/* Mean over ranks and steps, by what travels. */
static void lane_table(const struct fo_ranks *k, struct fo_doc *d)
{
	fo_doc_remark(d, "What travels, mean of the ranks: exposed while nothing is computed, waiting for late ranks "
			 "included, and hidden. Where several lanes are under way, a moment counts for the first.");
	fo_doc_table(d, FO_DRAW_FITTED, NULL, "llrrr", "", "lane", "exposed ms", "hidden ms", "hidden");
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		int64_t exposed = 0, hidden = 0;
		for (int i = 0; i < k->ranks; i++) {
			exposed += k->rank[i].lane_exposed_ns[l];
			hidden += k->rank[i].lane_hidden_ns[l];
		}
		if (fo_lane_carries[l] && exposed + hidden)
			fo_doc_row(d, fo_lane_carries[l], fo_lane_name[l], each(k, d, exposed / k->known),
				   each(k, d, hidden / k->known), fo_doc_share(d, hidden, exposed + hidden));
	}
}

static void group_table(const struct fo_ranks *k, struct fo_doc *d, bool page)
{
	fo_doc_remark(d,
		      "Calls of a step, added up whether something is computed meanwhile or not. last: in how many of "
		      "all calls this rank came last; waited for: what the others of its group waited then.");
	fo_doc_table(d, FO_DRAW_FITTED, NULL, "lrrrrRrr", "group", "calls", "received", "waits ms", "transfer",
		     "unknown", "last", "waited for");
	for (int64_t i = 0; i < k->groups; i++) {
		const struct fo_rank_group *g = &k->group[i];
		if (i >= lines(page) && g->rank != k->late)
			continue;
		const char *name = fo_group_name[g->group];
		/* A group of some ranks alone is one of several. */
		const char *number = g->members == k->ranks ? "" : fo_doc_printf(d, " %d", g->colour);
		fo_doc_row(d, fo_doc_printf(d, "%s%s, rank %d", name, number, g->rank),
			   fo_doc_count(d, g->calls / k->steps), fo_doc_bytes(d, g->bytes / k->steps),
			   told(k, d, g->calls - g->unmatched, g->wait_ns),
			   told(k, d, g->calls - g->unmatched, g->transfer_ns), each(k, d, g->unknown_ns),
			   g->calls > g->unmatched ? fo_doc_count(d, g->last) : "-",
			   told(k, d, g->calls - g->unmatched, g->caused_ns));
	}
	if (k->groups > lines(page))
		fo_doc_remark(d, "... %lld lines in all: --json has each.", (long long)k->groups);
}

/* ---- the picture ---- */

enum { BEHIND, ALONE, WAITS, TRANSFER, UNKNOWN, OTHER, PARTS };
static const char *const part_name[PARTS] = { "computation with communication behind it",
					      "computation alone",
					      "waiting for a late rank",
					      "transfer",
					      "waiting or transfer",
					      "other" };
static const unsigned char part_tone[PARTS] = { 12, 0, 14, 6, 1, 8 }; /* a ledger's (ledger_parts.h) */

static void picture(const struct fo_ranks *k, struct fo_doc *d)
{
	struct fo_draw_stack *stack = fo_doc_alloc(d, (size_t)k->known * sizeof *stack);
	size_t n = 0;
	for (int i = 0; i < k->ranks && n < BARS; i++) {
		const struct fo_rank_times *t = &k->rank[i];
		double *part = fo_doc_alloc(d, PARTS * sizeof *part), steps = (double)k->steps;
		if (!t->known)
			continue;
		part[BEHIND] = (double)fo_rank_hidden(t) / steps;
		part[ALONE] = (double)(t->compute_ns - fo_rank_hidden(t)) / steps;
		part[WAITS] = (double)t->exposed_ns[FO_RANK_WAIT] / steps;
		part[TRANSFER] = (double)t->exposed_ns[FO_RANK_TRANSFER] / steps;
		part[UNKNOWN] = (double)t->exposed_ns[FO_RANK_UNKNOWN] / steps;
		part[OTHER] = (double)t->other_ns / steps;
		stack[n++] = (struct fo_draw_stack){ fo_doc_printf(d, "rank %d", i),
						     fo_doc_ns(d, t->step_ns / k->steps), part };
	}
	fo_doc_stacks(d, &(struct fo_draw_stacks){ .title = fo_doc_printf(d, "A rank's step: %s", what_of(k, d)),
						   .desc = "Parts sum to the step.",
						   .part_name = part_name,
						   .tone = part_tone,
						   .parts = PARTS,
						   .stack = stack,
						   .stacks = n,
						   .to_scale = true,
						   .dense = true });
	if (k->known > (int)n)
		fo_doc_remark(d, "The first %zu ranks.", n);
}

void fo_report_draw_ranks(const struct fo_report *o, struct fo_doc *d, bool page)
{
	const struct fo_ranks *k = &o->ranks;
	if (!k->ranks || !k->steps)
		return;
	if (page) {
		fo_doc_heading(d, "Ranks");
		picture(k, d);
	} else {
		fo_doc_para(d, "Ranks, milliseconds of a step: %s", what_of(k, d));
	}
	rank_table(k, d, page);
	if (k->groups) {
		lane_table(k, d);
		group_table(k, d, page);
	} else
		fo_doc_para(d, "Their programs have no collectives.");
	fo_report_draw_pipeline(o, d);
}

/* ---- JSON ---- */

static void seconds_json(struct fo_json *j, const char *key, const struct fo_ranks *k, int64_t ns)
{
	fo_json_real(j, key, (double)ns * 1e-9 / (double)k->steps);
}

/* NULL where no call says whether it was waiting or transfer. */
static void told_json(struct fo_json *j, const char *key, const struct fo_ranks *k, int64_t matched, int64_t ns)
{
	if (matched)
		seconds_json(j, key, k, ns);
	else
		fo_json_raw(j, key, "null");
}

static void rank_json(struct fo_json *j, const struct fo_ranks *k, int i)
{
	const struct fo_rank_times *t = &k->rank[i];
	fo_json_object(j, NULL);
	fo_json_int(j, "rank", i);
	fo_json_bool(j, "known", t->known);
	if (t->known) {
		seconds_json(j, "step_seconds", k, t->step_ns);
		seconds_json(j, "compute_seconds", k, t->compute_ns);
		told_json(j, "exposed_wait_seconds", k, calls_of(k, i), t->exposed_ns[FO_RANK_WAIT]);
		told_json(j, "exposed_transfer_seconds", k, calls_of(k, i), t->exposed_ns[FO_RANK_TRANSFER]);
		seconds_json(j, "exposed_unknown_seconds", k, t->exposed_ns[FO_RANK_UNKNOWN]);
		told_json(j, "hidden_wait_seconds", k, calls_of(k, i), t->hidden_ns[FO_RANK_WAIT]);
		told_json(j, "hidden_transfer_seconds", k, calls_of(k, i), t->hidden_ns[FO_RANK_TRANSFER]);
		seconds_json(j, "hidden_unknown_seconds", k, t->hidden_ns[FO_RANK_UNKNOWN]);
		seconds_json(j, "other_seconds", k, t->other_ns);
		fo_json_array(j, "lanes");
		for (int l = 0; l < FO_LANE_COUNT; l++) {
			if (!fo_lane_carries[l] || !(t->lane_exposed_ns[l] || t->lane_hidden_ns[l]))
				continue;
			fo_json_object(j, NULL);
			fo_json_text(j, "lane", fo_lane_name[l]);
			fo_json_text(j, "carries", fo_lane_carries[l]);
			seconds_json(j, "exposed_seconds", k, t->lane_exposed_ns[l]);
			seconds_json(j, "hidden_seconds", k, t->lane_hidden_ns[l]);
			fo_json_close(j);
		}
		fo_json_close(j);
		fo_json_int(j, "last", t->last);
		told_json(j, "waited_for_seconds", k, calls_of(k, i), t->caused_ns);
	}
	fo_json_close(j);
}

static void group_json(struct fo_json *j, const struct fo_ranks *k, const struct fo_rank_group *g)
{
	fo_json_object(j, NULL);
	fo_json_text(j, "group", fo_group_name[g->group]);
	fo_json_int(j, "number", g->colour);
	fo_json_int(j, "members", g->members);
	fo_json_int(j, "rank", g->rank);
	fo_json_int(j, "calls", g->calls);
	fo_json_int(j, "unmatched", g->unmatched);
	fo_json_int(j, "received_bytes", g->bytes);
	told_json(j, "wait_seconds", k, g->calls - g->unmatched, g->wait_ns);
	told_json(j, "transfer_seconds", k, g->calls - g->unmatched, g->transfer_ns);
	seconds_json(j, "unknown_seconds", k, g->unknown_ns);
	fo_json_int(j, "last", g->last);
	told_json(j, "waited_for_seconds", k, g->calls - g->unmatched, g->caused_ns);
	fo_json_close(j);
}

static void rank_or_null(struct fo_json *j, const char *key, int rank)
{
	if (rank < 0)
		fo_json_raw(j, key, "null");
	else
		fo_json_int(j, key, rank);
}

void fo_report_slow_json(struct fo_json *j, const struct fo_slow_rank *s)
{
	fo_json_object(j, "straggler");
	fo_json_bool(j, "known", s->known);
	fo_json_int(j, "windows", s->windows);
	fo_json_int(j, "windows_needed", s->needed);
	rank_or_null(j, "rank", s->rank);
	if (s->known && s->windows) {
		fo_json_int(j, "first_step", s->first);
		fo_json_int(j, "last_step", s->last);
		fo_json_int(j, "slowest_windows", s->slowest);
		fo_json_real(j, "own_seconds", s->own_s);
		fo_json_real(j, "other_seconds", s->other_s);
		fo_json_real(j, "step_seconds", s->step_s);
		fo_json_real(j, "lost_seconds", s->lost_s);
	}
	fo_json_close(j);
}

void fo_report_ranks_json(const struct fo_report *o, struct fo_json *j)
{
	const struct fo_ranks *k = &o->ranks;
	if (o->r->ranks > 1)
		fo_report_slow_json(j, &o->slow);
	else
		fo_json_raw(j, "straggler", "null");
	if (!k->ranks) {
		fo_json_raw(j, "ranks", "null");
		return;
	}
	fo_json_object(j, "ranks");
	fo_json_int(j, "ranks", k->ranks);
	fo_json_int(j, "known", k->known);
	fo_json_int(j, "steps", k->steps);
	if (k->steps) {
		fo_json_int(j, "first_step", k->first_step);
		fo_json_int(j, "last_step", k->last_step);
		fo_json_int(j, "calls", k->calls);
		fo_json_int(j, "unmatched", k->unmatched);
		rank_or_null(j, "waited_for_rank", k->late);
		seconds_json(j, "wait_seconds", k, k->waited_ns);
		fo_json_array(j, "rank");
		for (int i = 0; i < k->ranks; i++)
			rank_json(j, k, i);
		fo_json_close(j);
		fo_json_array(j, "group");
		for (int64_t i = 0; i < k->groups; i++)
			group_json(j, k, &k->group[i]);
		fo_json_close(j);
	}
	fo_json_close(j);
}
