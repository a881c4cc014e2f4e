/* flatout diagnose: what several ranks show together, and logs of pipeline schedules. */
#include "cli/cli.h"
#include "cli/diagnose.h"

#include "base/fs.h"
#include "diagnose/straggler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *percent(struct fo_arena *a, double share)
{
	return isnan(share) ? "-" : fo_arena_printf(a, "%.1f %%", 100 * share);
}
static const char *ms(struct fo_arena *a, double ns) { return fo_arena_printf(a, "%.3f", ns / 1e6); }

/* ---- several ranks ---- */

static bool several_devices(const struct fo_diagnosis *d)
{
	for (int i = 1; i < d->waits; i++)
		if (d->wait[i].rank == d->wait[i - 1].rank)
			return true;
	return false;
}

static const char *who(struct fo_arena *a, const struct fo_diagnosis *d, const struct fo_rank_wait *w)
{
	const char *rank = w->rank >= 0 ? fo_arena_printf(a, "%d", w->rank) : "";
	if (!several_devices(d))
		return rank;
	for (int i = 0; i < d->ranks; i++)
		if (d->rank[i].rank == w->rank)
			return fo_arena_printf(a, "%s%sGPU %lld", rank, *rank ? ", " : "",
					       (long long)d->rank[i].trace->device[w->device].id);
	return rank;
}

static void print_waits(FILE *f, const struct fo_diagnosis *d, struct fo_arena *a)
{
	enum { SHOWN = 16 }; /* more lines than that nobody reads; JSON has all */
	struct fo_table t;
	int64_t unmatched = 0, matched = 0, unknown_ns = 0, most_ns = 0;
	fo_table_init(&t, "rrrrrrr");
	fo_table_row(&t, "rank", "waits", "transfer", "uneven end", "last", "waited for", "unknown");
	for (int i = 0; i < d->waits; i++) {
		const struct fo_rank_wait *w = &d->wait[i];
		unmatched += w->unmatched;
		matched += w->matched;
		unknown_ns += w->unmatched_ns;
		most_ns += w->wait_most_ns;
		if (i >= SHOWN && i != d->culprit.at)
			continue;
		if (!w->matched) { /* unknown is not zero */
			fo_table_row(&t, who(a, d, w), "-", "-", "-", "-", "-", ms(a, (double)w->unmatched_ns));
			continue;
		}
		fo_table_row(&t, who(a, d, w), ms(a, (double)w->wait_ns), ms(a, (double)w->transfer_ns),
			     ms(a, (double)w->end_skew_ns), fo_arena_printf(a, "%lld", (long long)w->last),
			     ms(a, (double)w->caused_ns), ms(a, (double)w->unmatched_ns));
	}
	fo_cli_put(f, "", "", "Communication over ranks, whole trace, ms: %lld of %lld kernels matched",
		   (long long)matched, (long long)(matched + unmatched));
	fputc('\n', f);
	fo_table_print(&t, f, "  ", true);
	if (d->waits > SHOWN)
		fprintf(f, "  ... %d ranks in all: --json has each\n", d->waits);
	fo_table_fini(&t);
	fo_cli_put(f, "  ", "  ",
		   "uneven end: of transfer, after the first rank was through; last: how often it arrived last; waited "
		   "for: what the others waited then; unknown: not on all members, point to point, or of unequal "
		   "parts");
	if (unknown_ns > 0)
		fo_cli_put(f, "  ", "  ", "Of the unknown %.3f ms between 0 and %.3f ms are waiting.",
			   (double)unknown_ns / 1e6, (double)most_ns / 1e6);
	int world = d->ranks ? d->rank[0].trace->world_size : 0;
	if (unmatched && world > d->ranks)
		fo_cli_put(f, "  ", "  ", "These are the traces of %d of the job's %d ranks: give the others' too.",
			   d->ranks, world);
}

/* Is part of some rank's exposed communication in its median step neither waiting nor transfer? */
static bool waits_unknown(const struct fo_diagnosis *d)
{
	for (int i = 0; i < d->ranks; i++)
		for (int64_t k = 0; k < d->rank[i].devices; k++)
			if (d->rank[i].device[k].median.l.exposed_comm_unknown_ns > 0)
				return true;
	return false;
}

static void print_culprit(FILE *f, const struct fo_diagnosis *d, struct fo_arena *a)
{
	if (d->culprit.at < 0)
		return;
	const struct fo_rank_wait *w = &d->wait[d->culprit.at];
	const char *name = who(a, d, w);
	fputc('\n', f);
	const char *rank = w->rank >= 0 && !several_devices(d) ? "Rank " : "", *row = d->culprit.row;
	double excess = (double)d->culprit.excess_ns / 1e6;
	const char *why = !row ? "No row of its ledger is longer than the others'."
			  : strcmp(row, "late_begin") == 0
				  ? fo_arena_printf(a, "Its step began %.3f ms after the others' (median).", excess)
				  : fo_arena_printf(
					    a, "Its median step has %.3f ms more of \"%s\" than the others' (median).",
					    excess, fo_row_words(row));
	fo_cli_put(f, "", "", "%s%s is who the others wait for: %.0f %% of all waiting. %s", rank, name,
		   100 * d->culprit.share, why);
}

static void print_skew(FILE *f, const struct fo_diagnosis *d, struct fo_arena *a)
{
	const int at[] = { d->worst, d->middle, d->best };
	static const char *const name[] = { "slowest", "median", "fastest" };
	struct fo_table t;
	if (d->ranks < 2)
		return;
	/* Communication of which nothing is known may be waiting: own work is at most that, then. */
	bool at_most = waits_unknown(d);
	fo_cli_put(f, "\n", "", "%s: the slowest takes %.1f %% more than %s",
		   at_most ? "Ranks by their step, communication of unknown kind in it (some may be waiting)"
			   : "Ranks by their own work, without waiting for others",
		   100 * d->step_skew, d->ranks == 2 ? "the other" : "the median");
	fputc('\n', f);
	fo_table_init(&t, "lrrr");
	fo_table_row(&t, "", "rank", at_most ? "own work ms, at most" : "own work ms", "whole step ms");
	for (int i = 0; i < 3; i++) {
		const struct fo_device_ledger *v = fo_shown_device(d, at[i]);
		struct fo_shown_step s;
		if (!v || (d->ranks == 2 && i == 1))
			continue;
		fo_shown_step_of(v, &s);
		int rank = d->rank[at[i]].rank;
		fo_table_row(&t, name[i], rank < 0 ? "-" : fo_arena_printf(a, "%d", rank),
			     ms(a, (double)(s.l.span_ns - s.l.exposed_wait_ns)), ms(a, (double)s.l.span_ns));
	}
	fo_table_print(&t, f, "  ", true);
	fo_table_fini(&t);
	if (d->set->residual_ns >= 0)
		fo_cli_put(f, "", "", "Clocks: the ends of one collective differ by %.1f us (median)",
			   (double)d->set->residual_ns / 1e3);
}

/* Numbers that nobody recorded must not look as if somebody had. */
static void print_order(FILE *f, const struct fo_diagnosis *d)
{
	bool ordered = false;
	for (int i = 0; i < d->ranks; i++)
		ordered |= d->rank[i].trace->rank_from == FO_RANK_ORDER;
	if (ordered)
		fo_cli_put(f, "", "",
			   "\nRanks by the order of the files: neither the traces nor their names say which rank each "
			   "is.");
}

static void print_pipeline(FILE *f, const struct fo_diagnosis *d, struct fo_arena *a)
{
	const struct fo_pipeline *p = &d->pipeline;
	if (!p->stages)
		return;
	fo_cli_put(f, "", "", "\nPipeline: %d stages%s%s", p->stages,
		   p->chunks ? fo_arena_printf(a, ", %d %s", p->chunks, fo_cli_plural(p->chunks, "chunk", "chunks"))
			     : "",
		   p->microbatches ? fo_arena_printf(a, ", %d microbatches", p->microbatches) : "");
	for (int i = 0; i < p->stages && i < 64; i++)
		if (!isnan(p->bubble[i]))
			fprintf(f, "  stage %-3d bubble %s\n", i, percent(a, p->bubble[i]));
	if (!isnan(p->ideal))
		fo_cli_put(f, "", "", "Even stages would leave (p - 1) / (v m) of the work: %s of the step",
			   percent(a, p->ideal / (1 + p->ideal)));
}

void fo_cli_diagnose_ranks(FILE *f, const struct fo_diagnosis *d)
{
	struct fo_arena a = { 0 };
	if (d->waits) {
		fputc('\n', f);
		print_waits(f, d, &a);
		print_culprit(f, d, &a);
	}
	print_order(f, d);
	print_skew(f, d, &a);
	print_pipeline(f, d, &a);
	fo_arena_fini(&a);
}

/* ---- schedules ---- */

static void print_stages(const struct fo_schedule_diagnosis *d, struct fo_arena *a)
{
	const struct fo_schedule_log *s = d->schedule;
	const double *last = d->step_bubble + (s->steps - 1) * s->stages;
	struct fo_table t;
	fo_table_init(&t, "rrrrrr");
	fo_table_row(&t, "stage", "passes ms", "empty", "last step", "whole step", "slows by");
	for (int i = 0; i < s->stages; i++)
		fo_table_row(&t, fo_arena_printf(a, "%d", i), fo_arena_printf(a, "%.1f", 1e3 * d->work_s[i]),
			     percent(a, d->bubble[i]), percent(a, last[i]), percent(a, d->bubble_of_step[i]),
			     d->whatif.known ? fo_arena_printf(a, "x %.3f", d->whatif.by_stage[i]) : "-");
	fo_table_print(&t, stdout, "  ", true);
	fo_table_fini(&t);
	fo_cli_put(stdout, "", "",
		   "Passes: time in forward and backward passes, median step. Empty (the bubble): of the stage's own "
		   "time, from the step's begin to its last pass, the share without a pass; in the median step, and in "
		   "the last one recorded. Whole step: the same as a share of the time until the slowest stage is "
		   "done. Slows by: the step if only this stage were as recorded and all others even, over the step "
		   "with all even.");
	fo_cli_put(stdout, "", "", "Even stages would leave (p - 1) / (v m) = %d / %d of the work: %s of the step",
		   s->stages - 1, s->chunks * s->microbatches, percent(a, d->ideal_of_step));
}

static void print_what_if(const struct fo_schedule_diagnosis *d)
{
	const struct fo_whatif *w = &d->whatif;
	fputc('\n', stdout);
	if (!w->known) {
		fo_cli_put(stdout, "", "", "Without stragglers: unknown. %s", w->why);
		return;
	}
	printf("Mean step\n");
	printf("  %-34s %10.4f s\n", "as recorded", w->measured_s);
	printf("  %-34s %10.4f s   x %.5f\n", "without delays of launches", w->no_delay_s, w->launch_slowdown);
	printf("  %-34s %10.4f s   x %.5f\n", "without stragglers too", w->ideal_s, w->slowdown);
	if (w->slowdown < 1.000005) /* prints as "x 1.00000": there is no slowdown to divide */
		return;
	printf("Of that slowdown would go\n");
	printf("  %7.2f %%  if the last stage's operations took the mean of all stages\n", 100 * w->last_stage);
	printf("  %7.2f %%  if those of the worst worker (stage %d, replica %d) did\n", 100 * w->worst_workers,
	       w->worker_stage, w->worker_replica);
	printf("  %7.2f %%  if every operation took the mean of its kind on its own stage\n", 100 * w->unevenness);
	if (fmax(w->last_stage, w->worst_workers) > 1)
		fo_cli_put(stdout, "", "",
			   "More than 100 %%: the others, as recorded, are faster than that mean, which counts the "
			   "slow one. Its work has to go to them, so that the findings promise no more than the even "
			   "step.");
	fo_cli_put(stdout, "", "", "Slowed most by one stage: %d (x %.5f); by one kind of operation: %s (x %.5f)",
		   w->worst_stage, w->by_stage[w->worst_stage], fo_schedule_kind_name[w->worst_kind],
		   w->by_kind[w->worst_kind]);
}

static void print_schedule(const struct fo_schedule_diagnosis *d)
{
	const struct fo_schedule_log *s = d->schedule;
	struct fo_arena a = { 0 };
	fo_cli_put(stdout, "Pipeline schedule: ", "  ", "%s", fo_cli_seen(s->path));
	fo_cli_put(stdout, "  ", "  ", "%d stages, %d %s, %d microbatches, %d %s; %lld steps, %.3f ms the median",
		   s->stages, s->chunks, fo_cli_plural(s->chunks, "chunk", "chunks"), s->microbatches, s->replicas,
		   fo_cli_plural(s->replicas, "replica", "replicas"), (long long)s->steps, 1e3 * d->step_s);
	if (d->warm_up)
		printf("  the first %s left out: warm-up\n",
		       d->warm_up == 1 ? "step is" : fo_arena_printf(&a, "%lld steps are", (long long)d->warm_up));
	if (s->also)
		fo_cli_put(stdout, "  left alone: ", "    ", "%s, which a simulation wrote", fo_cli_seen(s->also));
	fputc('\n', stdout);
	print_stages(d, &a);
	print_what_if(d);
	if (!d->findings)
		printf("\nNo finding: the stages are even and the schedule leaves little empty.\n");
	for (int i = 0; i < d->findings; i++) {
		const struct fo_schedule_finding *f = &d->finding[i];
		fo_cli_put(stdout, "\n", "   ", "%d. %s: up to x %.3f", i + 1, f->title, f->ceiling);
		fo_cli_put(stdout, "   ", "   ", "%s", f->why);
		fo_cli_put(stdout, "   do: ", "       ", "%s", f->proposal);
	}
	fo_arena_fini(&a);
}

fo_status fo_cli_diagnose_schedule(const char *path, const char *json, bool *serious)
{
	struct fo_schedule_log *s;
	struct fo_schedule_diagnosis d;
	FO_TRY(fo_schedule_open(&s, path));
	fo_status st = fo_schedule_diagnose(&d, s);
	if (st == FO_OK) {
		*serious = d.serious;
		struct fo_str text = { 0 };
		if (json)
			fo_schedule_diagnosis_json(&d, &text);
		if (json && strcmp(json, "-") == 0)
			fputs(text.data, stdout);
		else
			print_schedule(&d);
		if (json && strcmp(json, "-") != 0)
			st = fo_fs_write_atomic(json, text.data, text.len);
		fo_str_fini(&text);
		fo_schedule_diagnosis_fini(&d);
	}
	fo_schedule_free(s);
	return st;
}
