/* flatout predict --what-if: recorded steps again, with other times. */
#include "cli/predict.h"

#include "base/clock.h"
#include "base/fs.h"
#include "sim/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HOLDS = 8, NOT_EXACT_PERCENT = 5 };

struct what_if {
	const struct predict *in;
	struct fo_replay run;
	struct fo_replay_changes change;
	double measured_s, replayed_s, changed_s, least_s,
		most_s; /* medians over the steps; the range of the changed ones */
	/* Of the newest step. */
	struct fo_replay_step before, after;
};

/* ---- what is asked ---- */

static fo_status find_without(struct what_if *w)
{
	const char *text = w->in->without;
	const struct fo_replay *x = &w->run;
	char *end;
	w->change.without = -1;
	if (!*text)
		return FO_OK;
	if (x->ranks < 2 || x->alone >= 0)
		return fo_fail(FO_EARG,
			       "'%s' has the timeline of one rank: there are no others whose times it could take",
			       w->in->what_if);
	if (!strcmp(text, "straggler")) {
		if (x->slow >= 0) {
			w->change.without = x->slow;
			return FO_OK;
		}
		fo_status st = fo_fail(FO_EARG, "no rank of '%s' is slower than all others by more than chance",
				       w->in->what_if);
		if (!x->slow_known)
			fo_hint(st,
				"the ranks have %d stretches of half a second or more to compare, and %d are needed "
				"to tell; --without=N gives rank N the times of the others",
				x->slow_steps, x->slow_needed);
		return st;
	}
	const long rank = strtol(text, &end, 10);
	if (end == text || *end || rank < 0 || rank >= x->ranks)
		return fo_fail(FO_EARG, "--without=%s is neither 'straggler' nor a rank from 0 to %d", text,
			       x->ranks - 1);
	w->change.without = (int)rank;
	return FO_OK;
}

static fo_status run_steps(struct what_if *w)
{
	double old[FO_REPLAY_STEPS], changed[FO_REPLAY_STEPS];
	const int last = w->run.steps - 1;
	for (int k = 0; k <= last; k++) {
		/* The newest step's are kept, where they are made: a step has pointers into itself. */
		struct fo_replay_step older, *before = k == last ? &w->before : &older,
					     *after = k == last ? &w->after : &older;
		FO_TRY(fo_replay_step(before, &w->run, k, NULL));
		old[k] = before->run.step_s;
		if (k < last)
			fo_replay_step_fini(&older);
		FO_TRY(fo_replay_step(after, &w->run, k, &w->change));
		changed[k] = after->run.step_s;
		if (k < last)
			fo_replay_step_fini(&older);
	}
	w->least_s = fo_stats_quantile(changed, (size_t)last + 1, 0);
	w->most_s = fo_stats_quantile(changed, (size_t)last + 1, 1);
	w->measured_s = fo_stats_quantile(w->run.measured_s, (size_t)last + 1, 0.5);
	w->replayed_s = fo_stats_quantile(old, (size_t)last + 1, 0.5);
	w->changed_s = fo_stats_quantile(changed, (size_t)last + 1, 0.5);
	return FO_OK;
}

/* ---- words ---- */

static const char *time_text(struct fo_doc *d, double s) { return fo_doc_num(d, s, FO_DRAW_SECONDS); }

static const char *change_text(const struct what_if *w, struct fo_doc *d)
{
	const struct fo_replay_changes *c = &w->change;
	const char *text = "";
	for (int i = 0; i < c->scales; i++)
		text = fo_doc_join(d, text, fo_doc_printf(d, "%s x %g", c->scale[i].name, c->scale[i].factor));
	if (c->links > 0 && (c->links < 1 || c->links > 1))
		text = fo_doc_join(d, text, fo_doc_printf(d, "links %g times as fast", c->links));
	if (c->without >= 0)
		text = fo_doc_join(d, text,
				   fo_doc_printf(d, "rank %d as fast as the median of the others", c->without));
	return *text ? text : "nothing";
}

static const char *steps_text(const struct what_if *w, struct fo_doc *d)
{
	const struct fo_replay *x = &w->run;
	return x->steps == 1
		       ? fo_doc_printf(d, "step %d", x->step[0] + 1)
		       : fo_doc_printf(d, "%d steps, %d to %d", x->steps, x->step[0] + 1, x->step[x->steps - 1] + 1);
}

static void say_rests_on(const struct what_if *w, struct fo_doc *d)
{
	const struct fo_replay *x = &w->run;
	fo_doc_line(d, "rests on",
		    "the recorded order, waits and pauses: what else would change with it is not in this");
	if (x->alone >= 0 && x->ranks > 1)
		fo_doc_line(d, "only",
			    "rank %d of %d is known: its calls take what they took, waiting for others included",
			    x->alone, x->ranks);
	const double off = w->replayed_s / w->measured_s - 1;
	if (100 * fabs(off) > NOT_EXACT_PERCENT)
		fo_doc_line(d, "not exact",
			    "without a change these steps come out %+.0f %%: take the difference, not the step",
			    100 * off);
}

/* Seconds of the path of the operations that a share of the other path is of. */
static double same_share(const struct fo_replay_step *s, const struct fo_replay_step *of,
			 const struct fo_fleet_share *x)
{
	double sum = 0;
	for (int32_t i = 0; i < s->path.shares; i++) {
		const struct fo_fleet_share *y = &s->path.share[i];
		if (!strcmp(s->fleet.name[y->name], of->fleet.name[x->name]) && y->lane == x->lane &&
		    y->hold == x->hold)
			sum += y->seconds;
	}
	return sum;
}

static const char *hold_text(struct fo_doc *d, const struct fo_replay_step *s, const struct fo_fleet_share *x)
{
	static const char *const what[] = { [FO_FLEET_HOLD_WORK] = "",
					    [FO_FLEET_HOLD_TRANSFER] = "transfer of ",
					    [FO_FLEET_HOLD_DISPATCH] = "pause before " };
	return fo_doc_printf(d, "%s%s", what[x->hold], s->fleet.name[x->name]);
}

static void say_path(const struct what_if *w, struct fo_doc *d)
{
	fo_doc_table(d, FO_DRAW_FULL, NULL, "llrrr", "holds the step", "lane", "rank", "as it was", "changed");
	for (int32_t i = 0; i < w->before.path.shares && i < HOLDS; i++) {
		const struct fo_fleet_share *x = &w->before.path.share[i];
		const int32_t rank = w->run.alone >= 0 ? w->run.alone : w->before.run.class[x->class].first;
		fo_doc_row(d, hold_text(d, &w->before, x), fo_lane_name[x->lane], fo_doc_count(d, rank),
			   time_text(d, x->seconds), time_text(d, same_share(&w->after, &w->before, x)));
	}
	fo_doc_para(d, "Of the newest step, on its critical path: from its end back to its begin, without a gap.");
}

static void say(const struct what_if *w, struct fo_doc *d)
{
	const double gain = 1 - w->changed_s / w->replayed_s;
	fo_doc_line(d, "what if", "%s: %s of %d rank%s", fo_cli_seen(w->in->what_if), steps_text(w, d), w->run.ranks,
		    fo_plural(w->run.ranks));
	fo_doc_line(d, "change", "%s", change_text(w, d));
	fo_doc_line(d, "measured", "%s a step", time_text(d, w->measured_s));
	fo_doc_line(d, "run again", "%s without the change: %+.2f %%", time_text(d, w->replayed_s),
		    100 * (w->replayed_s / w->measured_s - 1));
	fo_doc_line(d, "changed", "%s (%s to %s): %.1f %% %s", time_text(d, w->changed_s), time_text(d, w->least_s),
		    time_text(d, w->most_s), 100 * fabs(gain), gain < 0 ? "more" : "less");
	say_rests_on(w, d);
	say_path(w, d);
}

static void put(const struct what_if *w, struct fo_json *j)
{
	const struct fo_replay *x = &w->run;
	fo_json_put(j, FO_TEXT("run", w->in->what_if), FO_INT("ranks", x->ranks), FO_INT("known_ranks", x->known),
		    FO_INT("steps", x->steps), FO_INT("first_step", x->step[0] + 1),
		    FO_INT("last_step", x->step[x->steps - 1] + 1), FO_REAL("measured_seconds", w->measured_s),
		    FO_REAL("replayed_seconds", w->replayed_s), FO_REAL("changed_seconds", w->changed_s),
		    FO_REAL("changed_least_seconds", w->least_s), FO_REAL("changed_most_seconds", w->most_s),
		    FO_REAL("links", w->change.links),
		    FO_REAL("without_rank", w->change.without >= 0 ? w->change.without : NAN));
	fo_json_array(j, "scale");
	for (int i = 0; i < w->change.scales; i++)
		fo_json_record(j, NULL, FO_TEXT("name", w->change.scale[i].name),
			       FO_REAL("factor", w->change.scale[i].factor));
	fo_json_close(j);
	fo_json_array(j, "path");
	for (int32_t i = 0; i < w->before.path.shares; i++) {
		const struct fo_fleet_share *s = &w->before.path.share[i];
		static const char *const what[] = { "work", "transfer", "pause" };
		fo_json_record(j, NULL, FO_TEXT("operation", w->before.fleet.name[s->name]),
			       FO_TEXT("what", what[s->hold]), FO_TEXT("lane", fo_lane_name[s->lane]),
			       FO_INT("rank", x->alone >= 0 ? x->alone : w->before.run.class[s->class].first),
			       FO_REAL("seconds", s->seconds),
			       FO_REAL("changed_seconds", same_share(&w->after, &w->before, s)));
	}
	fo_json_close(j);
}

fo_status fo_cli_predict_what_if(const struct fo_cli_call *call)
{
	struct what_if w = { .in = call->in, .change = { .links = ((const struct predict *)call->in)->links } };
	FO_TRY(fo_replay_open(&w.run, w.in->what_if));
	fo_status st = fo_replay_parse(&w.change, &w.run, w.in->scale);
	if (st == FO_OK)
		st = find_without(&w);
	if (st == FO_OK)
		st = run_steps(&w);
	if (st == FO_OK && call->json)
		put(&w, call->json);
	else if (st == FO_OK)
		say(&w, call->doc);
	fo_replay_step_fini(&w.before);
	fo_replay_step_fini(&w.after);
	fo_replay_fini(&w.run);
	return st;
}
