/* Several ranks in a diagnosis's document: waiting and who causes it, skew, the pipeline; and logs of pipeline
 * schedules. */
#include "report/diagnose_doc.h"

#include "base/count.h"
#include "base/text.h"
#include "draw/doc.h"
#include "report/ledger_parts.h"
#include "report/slots.h"

#include <math.h>
#include <string.h>

const struct fo_device_ledger *fo_slowest_device(const struct fo_diagnosis *d) { return fo_shown_device(d, d->worst); }

const struct fo_ledger *fo_shown_ledger(struct fo_doc *doc, const struct fo_device_ledger *v)
{
	struct fo_subject *s = fo_doc_alloc(doc, sizeof *s);
	fo_shown_step_of(v, s);
	return &s->l;
}

static const char *share(struct fo_doc *doc, double v) { return fo_doc_num(doc, v, FO_DRAW_SHARE); }
static const char *factor(struct fo_doc *doc, double v) { return fo_doc_num(doc, v, FO_DRAW_FACTOR); }

/* ---- several ranks ---- */

static bool several_devices(const struct fo_diagnosis *d)
{
	for (int i = 1; i < d->waits; i++)
		if (d->wait[i].rank == d->wait[i - 1].rank)
			return true;
	return false;
}

/* Returns "3", or "3, GPU 1" where ranks have several. */
static const char *who(struct fo_doc *doc, const struct fo_diagnosis *d, const struct fo_rank_wait *w)
{
	const char *rank = w->rank >= 0 ? fo_doc_count(doc, w->rank) : "";
	if (!several_devices(d))
		return rank;
	for (int i = 0; i < d->ranks; i++)
		if (d->rank[i].rank == w->rank)
			return fo_doc_printf(doc, "%s%sGPU %lld", rank, *rank ? ", " : "",
					     (long long)d->rank[i].trace->device[w->device].id);
	return rank;
}

static void waits(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	enum { SHOWN = 16, ON_PAGE = 128 }; /* more lines than that nobody reads; JSON has all */
	int64_t unmatched = 0, matched = 0, unknown_ns = 0, most_ns = 0;
	for (int i = 0; i < d->waits; i++) {
		unmatched += d->wait[i].unmatched;
		matched += d->wait[i].matched;
		unknown_ns += d->wait[i].unmatched_ns;
		most_ns += d->wait[i].wait_most_ns;
	}
	fo_doc_details(doc, FO_DOC_FOLDED, "Communication over ranks, whole trace, ms: %lld of %lld kernels matched",
		       (long long)matched, (long long)(matched + unmatched));
	fo_doc_table(doc, FO_DRAW_FITTED, NULL, "rrrrrrrR", "rank", "waits", "transfer", "uneven end", "last",
		     "waited for", "unknown", "matched");
	for (int i = 0; i < d->waits; i++) {
		const struct fo_rank_wait *w = &d->wait[i];
		bool culprit = i == d->culprit.at;
		if (i >= ON_PAGE && !culprit)
			continue;
		fo_doc_only(doc, i < SHOWN || culprit ? FO_DOC_BOTH : FO_DOC_PAGE);
		if (!w->matched) { /* unknown is not zero */
			fo_doc_row(doc, who(doc, d, w), "-", "-", "-", "-", "-", fo_doc_ms(doc, w->unmatched_ns), "-");
			continue;
		}
		fo_doc_row(doc, who(doc, d, w), fo_doc_ms(doc, w->wait_ns), fo_doc_ms(doc, w->transfer_ns),
			   fo_doc_ms(doc, w->end_skew_ns), fo_doc_count(doc, w->last), fo_doc_ms(doc, w->caused_ns),
			   fo_doc_ms(doc, w->unmatched_ns),
			   fo_doc_printf(doc, "%lld of %lld", (long long)w->matched,
					 (long long)(w->matched + w->unmatched)));
	}
	fo_doc_only(doc, FO_DOC_BOTH);
	if (d->waits > SHOWN)
		fo_doc_remark(doc, "... %d ranks in all: --json has each", d->waits);
	fo_doc_remark(doc, "uneven end: of transfer, after the first rank was through; last: how often it arrived "
			   "last; waited for: what the others waited then; unknown: not on all members, point to "
			   "point, or of unequal parts");
	if (unknown_ns > 0)
		fo_doc_remark(doc, "Of the unknown %s ms between 0 and %s ms are waiting.", fo_doc_ms(doc, unknown_ns),
			      fo_doc_ms(doc, most_ns));
	int world = d->ranks ? d->rank[0].trace->world_size : 0;
	if (unmatched && world > d->ranks)
		fo_doc_remark(doc, "These are the traces of %d of the job's %d ranks: give the others' too.", d->ranks,
			      world);
	fo_doc_details_end(doc);
}

static void culprit(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	const struct fo_culprit *c = &d->culprit;
	if (c->at < 0 || c->at >= d->waits)
		return;
	const struct fo_rank_wait *w = &d->wait[c->at];
	const char *rank = w->rank >= 0 && !several_devices(d) ? "Rank " : "";
	const char *excess = fo_doc_ns(doc, c->excess_ns), *why = "No row of its ledger is longer than the others'.";
	if (c->row && !strcmp(c->row, "late_begin"))
		why = fo_doc_printf(doc, "Its step began %s after the others' (median).", excess);
	else if (c->row)
		why = fo_doc_printf(doc, "Its median step has %s more of \"%s\" than the others' (median).", excess,
				    fo_row_words(c->row));
	fo_doc_para(doc, "%s%s is who the others wait for: %.0f %% of all waiting. %s", rank, who(doc, d, w),
		    100 * c->share, why);
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

static void skew(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	const int at[] = { d->worst, d->middle, d->best };
	static const char *const name[] = { "slowest", "median", "fastest" };
	if (d->ranks < 2)
		return;
	/* Communication of unknown kind may be waiting, so own work is at most the figure then. */
	const char *by = "their own work, without waiting for others", *head = "own work ms";
	if (waits_unknown(d)) {
		by = "their step, communication of unknown kind in it (some may be waiting)";
		head = "own work ms, at most";
	}
	fo_doc_para(doc, "Ranks by %s: the slowest takes %.1f %% more than %s", by, 100 * d->step_skew,
		    d->ranks == 2 ? "the other" : "the median");
	fo_doc_table(doc, FO_DRAW_SLIM, NULL, "lrrr", "", "rank", head, "whole step ms");
	for (int i = 0; i < 3; i++) {
		const struct fo_device_ledger *v = fo_shown_device(d, at[i]);
		if (!v || (d->ranks == 2 && i == 1))
			continue;
		const struct fo_ledger *l = fo_shown_ledger(doc, v);
		int rank = d->rank[at[i]].rank;
		fo_doc_row(doc, name[i], rank < 0 ? "-" : fo_doc_count(doc, rank),
			   fo_doc_ms(doc, l->span_ns - l->exposed_wait_ns), fo_doc_ms(doc, l->span_ns));
	}
	if (d->set && d->set->residual_ns >= 0)
		fo_doc_remark(doc, "Clocks: the ends of one collective differ by %s (median)",
			      fo_doc_ns(doc, d->set->residual_ns));
}

/* Says that ranks are numbered by the order of the files: such numbers must not look recorded. */
static void order(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	for (int i = 0; i < d->ranks; i++)
		if (d->rank[i].trace->rank_from == FO_RANK_ORDER) {
			fo_doc_warning(doc, "Ranks by the order of the files: neither the traces nor their names say "
					    "which rank each is.");
			return;
		}
}

/* Draws the share of each stage's time that is empty. */
static void bubble_bars(struct fo_doc *doc, int stages, const double *bubble, const char *desc)
{
	struct fo_draw_bar_row *row = fo_doc_alloc(doc, (size_t)stages * sizeof *row);
	for (int i = 0; i < stages; i++)
		row[i] = (struct fo_draw_bar_row){ .name = fo_doc_printf(doc, "stage %d", i),
						   .value = isfinite(bubble[i]) ? share(doc, bubble[i])
										: "no trace of it",
						   .bar = { { bubble[i], NAN, NAN }, { NAN, NAN, NAN } } };
	fo_doc_bars(doc, &(struct fo_draw_bars){ .title = "Pipeline bubble by stage, share of the stage's time",
						 .desc = desc,
						 .unit = FO_DRAW_SHARE,
						 .row = row,
						 .rows = (size_t)stages });
}

static void pipeline(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	const struct fo_pipeline *p = &d->pipeline;
	const char *chunks = "", *batches = "";
	if (p->stages <= 0)
		return;
	if (p->chunks)
		chunks = fo_doc_printf(doc, ", %d chunk%s", p->chunks, fo_plural(p->chunks));
	if (p->microbatches)
		batches = fo_doc_printf(doc, ", %d microbatches", p->microbatches);
	fo_doc_para(doc, "Pipeline: %d stages%s%s", p->stages, chunks, batches);
	if (p->bubble)
		bubble_bars(doc, p->stages, p->bubble, NULL);
	if (isfinite(p->ideal))
		fo_doc_remark(doc, "Even stages would leave (p - 1) / (v m) of the work: %s of the step",
			      share(doc, p->ideal / (1 + p->ideal)));
}

/* A step of our own engine's pipeline, slot by slot. */
static void own_pipeline(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	struct fo_draw_slots c;
	struct fo_program p;
	int32_t step;
	const char *why;
	struct fo_slots_bubble bubble;
	if (d->ranks < 2 || d->rank[0].trace->format != FO_TRACE_OWN)
		return;
	const char **path = fo_doc_alloc(doc, (size_t)d->ranks * sizeof *path);
	for (int i = 0; i < d->ranks; i++)
		path[i] = d->rank[i].trace->path;
	if (!fo_slots_of_files(doc, &c, path, d->ranks, &p, &step, &why)) {
		if (why)
			fo_doc_line(doc, "bubble", "not known: %s", why);
		return;
	}
	const struct fo_pp_shape shape = fo_lowering_pipeline(&p.run);
	fo_program_fini(&p);
	fo_slots_draw(doc, &c, &shape, step);
	fo_slots_bubble_of(&bubble, &c, &shape);
	fo_doc_line(doc, "bubble", "%s", fo_slots_bubble_text(doc, &bubble, step));
}

void fo_ranks_section(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	if (d->ranks < 2 && d->waits < 2 && d->pipeline.stages <= 0)
		return;
	fo_doc_heading(doc, "Ranks");
	order(doc, d);
	culprit(doc, d);
	skew(doc, d);
	if (d->wait && d->waits > 1)
		waits(doc, d);
	pipeline(doc, d);
	own_pipeline(doc, d);
}

/* ---- logs of schedules ---- */

/* Draws the last step: a row for each stage of the first replica. */
static void step_slots(struct fo_doc *doc, const struct fo_schedule_log *s)
{
	struct fo_draw_slots c;
	if (!fo_slots_of_log(doc, &c, s, s->steps - 1, 0))
		return;
	c.title = "The last recorded step by stage: gaps are empty";
	c.desc = "Each row is a stage of the first replica; F3: microbatch 3 forward";
	fo_doc_slots(doc, &c);
}

static void stages(struct fo_doc *doc, const struct fo_schedule_diagnosis *d)
{
	const struct fo_schedule_log *s = d->schedule;
	const double *last = d->step_bubble + (s->steps - 1) * s->stages;
	fo_doc_table(doc, FO_DRAW_SLIM, NULL, "rrrrrr", "stage", "passes", "empty", "last step", "of whole step",
		     "slows step");
	for (int i = 0; i < s->stages; i++)
		fo_doc_row(doc, fo_doc_count(doc, i), fo_doc_num(doc, d->work_s[i], FO_DRAW_SECONDS),
			   share(doc, d->bubble[i]), share(doc, last[i]), share(doc, d->bubble_of_step[i]),
			   d->whatif.known ? factor(doc, d->whatif.by_stage[i]) : "-");
	fo_doc_item(doc, "passes: time in forward and backward passes, in the median step");
	fo_doc_item(doc,
		    "empty (the bubble): the share of the stage's own time, from the step's begin to its last pass, "
		    "in which no pass runs: in the median step, and in the last one recorded");
	fo_doc_item(doc, "of whole step: the same as a share of the time until the slowest stage is done");
	fo_doc_item(doc,
		    "slows step: how much longer a step takes if this stage keeps its recorded times and all others "
		    "are even; above 1.00 x it holds the others up");
	fo_doc_para(doc, "Even stages would leave (p - 1) / (v m) = %d / %d of the work: %s of the step", s->stages - 1,
		    s->chunks * s->microbatches, share(doc, d->ideal_of_step));
	fo_doc_only(doc, FO_DOC_PAGE);
	bubble_bars(doc, s->stages, d->bubble, NULL);
	fo_doc_only(doc, FO_DOC_BOTH);
	step_slots(doc, s);
}

static void what_if(struct fo_doc *doc, const struct fo_schedule_diagnosis *d)
{
	const struct fo_whatif *w = &d->whatif;
	fo_doc_heading(doc, "Without stragglers");
	if (!w->known) {
		fo_doc_para(doc, "Without stragglers: unknown. %s", w->why);
		return;
	}
	fo_doc_table(doc, FO_DRAW_SLIM, NULL, "lrr", "mean step", "time", "as recorded it takes");
	fo_doc_row(doc, "as recorded", fo_doc_num(doc, w->measured_s, FO_DRAW_SECONDS), "");
	fo_doc_row(doc, "without delays of launches", fo_doc_num(doc, w->no_delay_s, FO_DRAW_SECONDS),
		   factor(doc, w->launch_slowdown));
	fo_doc_row(doc, "without stragglers too", fo_doc_num(doc, w->ideal_s, FO_DRAW_SECONDS),
		   factor(doc, w->slowdown));
	if (w->slowdown < 1.000005) /* there is no slowdown to divide */
		return;
	fo_doc_table(doc, FO_DRAW_SLIM, NULL, "rl", "of that slowdown", "would go if");
	fo_doc_row(doc, share(doc, w->last_stage), "the last stage's operations took the mean of all stages");
	fo_doc_row(doc, share(doc, w->worst_workers),
		   fo_doc_printf(doc, "those of the worst worker (stage %d, replica %d) did", w->worker_stage,
				 w->worker_replica));
	fo_doc_row(doc, share(doc, w->unevenness), "every operation took the mean of its kind on its own stage");
	if (fmax(w->last_stage, w->worst_workers) > 1)
		fo_doc_remark(doc,
			      "More than 100 %%: the others, as recorded, are faster than that mean, which counts "
			      "the slow one. Its work has to go to them, so that the findings promise no more than "
			      "the even step.");
	fo_doc_remark(doc, "Slowed most by one stage: %d (%s); by one kind of operation: %s (%s)", w->worst_stage,
		      factor(doc, w->by_stage[w->worst_stage]), fo_schedule_kind_name[w->worst_kind],
		      factor(doc, w->by_kind[w->worst_kind]));
}

/* The findings, the greatest ceiling first. */
struct order {
	const struct fo_schedule_finding *v[FO_SCHEDULE_FINDINGS_MAX];
};

static struct order order_of(const struct fo_schedule_diagnosis *d)
{
	struct order o;
	for (int i = 0; i < d->findings; i++) {
		int at = i;
		for (; at > 0 && o.v[at - 1]->ceiling < d->finding[i].ceiling; at--)
			o.v[at] = o.v[at - 1];
		o.v[at] = &d->finding[i];
	}
	return o;
}

static void schedule_verdict(struct fo_doc *doc, const struct fo_schedule_diagnosis *d)
{
	struct order o = order_of(d);
	if (!d->findings) {
		fo_doc_verdict(doc, FO_DOC_GOOD, NULL,
			       "No finding: the stages are even and the schedule leaves little empty.");
		return;
	}
	fo_doc_verdict(doc, o.v[0]->serious ? FO_DOC_BAD : FO_DOC_PLAIN, "Bottleneck", "%s. Worth up to %s",
		       o.v[0]->title, factor(doc, o.v[0]->ceiling));
	fo_doc_verdict(doc, FO_DOC_PLAIN, "Try first", "%s", o.v[0]->proposal);
	if (d->findings > 1)
		fo_doc_verdict(doc, FO_DOC_PLAIN, "Runner-up", "%s. Worth up to %s", o.v[1]->title,
			       factor(doc, o.v[1]->ceiling));
}

static void schedule_findings(struct fo_doc *doc, const struct fo_schedule_diagnosis *d)
{
	static const char *const role[FO_SCHEDULE_FINDINGS_MAX] = { "bottleneck", "runner-up", "further" };
	struct order o = order_of(d);
	if (d->findings)
		fo_doc_heading(doc, "What to change");
	for (int i = 0; i < d->findings; i++) {
		const struct fo_schedule_finding *f = o.v[i];
		fo_doc_card(doc, f->serious ? FO_DOC_BAD : FO_DOC_PLAIN,
			    f->serious ? fo_doc_printf(doc, "%s, serious", role[i]) : role[i], "%s", f->title);
		fo_doc_para(doc, "%s", f->why);
		fo_doc_fact(doc, "worth", fo_doc_printf(doc, "up to %s", factor(doc, f->ceiling)),
			    "a ceiling: step time before over after");
		fo_doc_item(doc, "%s", f->proposal);
		fo_doc_card_end(doc);
	}
}

void fo_schedule_doc(struct fo_doc *doc, const struct fo_schedule_diagnosis *d)
{
	const struct fo_schedule_log *s = d->schedule;
	fo_doc_title(doc, "Diagnosis of %s", fo_text_file_name(s->path));
	fo_doc_lead(doc, "Log of a pipeline schedule.");
	schedule_verdict(doc, d);
	schedule_findings(doc, d);
	fo_doc_heading(doc, "Pipeline schedule: %s", s->path);
	fo_doc_para(doc, "%d stages, %d chunk%s, %d microbatches, %d replica%s; %lld steps, %s the median", s->stages,
		    s->chunks, fo_plural(s->chunks), s->microbatches, s->replicas, fo_plural(s->replicas),
		    (long long)s->steps, fo_doc_num(doc, d->step_s, FO_DRAW_SECONDS));
	if (d->warm_up == 1)
		fo_doc_remark(doc, "the first step is left out: warm-up");
	else if (d->warm_up)
		fo_doc_remark(doc, "the first %lld steps are left out: warm-up", (long long)d->warm_up);
	if (s->also)
		fo_doc_remark(doc, "left alone: %s, which a simulation wrote", s->also);
	stages(doc, d);
	what_if(doc, d);
	fo_doc_footer(doc, "flatout diagnose --html. Figures are defined in docs/metrics.md.");
}
