/* The comparison of ranks, and a pipeline schedule's diagnosis, as JSON: docs/formats.md, "Diagnosis". */
#include "diagnose/diagnose.h"
#include "diagnose/straggler.h"

#include "base/json.h"

#include <math.h>

static void reals(struct fo_json *j, const char *key, const double *v, int n)
{
	fo_json_array(j, key);
	for (int i = 0; i < n; i++)
		fo_json_real(j, NULL, v[i]);
	fo_json_close(j);
}

/* NaN where unknown, which JSON has as null. */
static double told(int64_t n) { return n > 0 ? (double)n : NAN; }

/* The rank at a place of d->rank: NaN where the trace has no number for it or nothing ran on its devices. */
static double rank_of(const struct fo_diagnosis *d, int at)
{
	return at >= 0 && at < d->ranks && d->rank[at].rank >= 0 && d->rank[at].devices > 0 ? d->rank[at].rank : NAN;
}

/* null where no kernel met its counterparts: nothing is known then, which is not zero. */
static void count(struct fo_json *j, const char *key, const struct fo_rank_wait *w, int64_t n)
{
	if (w->matched)
		fo_json_int(j, key, n);
	else
		fo_json_raw(j, key, "null");
}

static void one_wait(struct fo_json *j, const struct fo_diagnosis *d, const struct fo_rank_wait *w)
{
	const struct fo_trace *t = d->rank[0].trace;
	for (int i = 0; i < d->ranks; i++)
		if (d->rank[i].rank == w->rank)
			t = d->rank[i].trace;
	fo_json_object(j, NULL);
	fo_json_real(j, "rank", w->rank >= 0 ? w->rank : NAN);
	fo_json_int(j, "device", t->device[w->device].id);
	count(j, "wait_ns", w, w->wait_ns);
	count(j, "transfer_ns", w, w->transfer_ns);
	count(j, "common_transfer_ns", w, w->transfer_ns - w->end_skew_ns);
	count(j, "last", w, w->last);
	count(j, "caused_wait_ns", w, w->caused_ns);
	fo_json_int(j, "matched", w->matched);
	fo_json_int(j, "unmatched", w->unmatched);
	fo_json_int(j, "unmatched_ns", w->unmatched_ns);
	fo_json_array(j, "unmatched_wait_ns");
	fo_json_int(j, NULL, 0);
	fo_json_int(j, NULL, w->wait_most_ns);
	fo_json_close(j);
	fo_json_close(j);
}

void fo_diagnosis_ranks_json(struct fo_json *j, const struct fo_diagnosis *d)
{
	fo_json_object(j, "clocks");
	fo_json_real(j, "residual_ns", d->set->residual_ns >= 0 ? (double)d->set->residual_ns : NAN);
	fo_json_close(j);
	fo_json_array(j, "waits");
	for (int i = 0; i < d->waits; i++)
		one_wait(j, d, &d->wait[i]);
	fo_json_close(j);
	fo_json_object(j, "skew");
	fo_json_real(j, "slowest", rank_of(d, d->worst));
	fo_json_real(j, "median", rank_of(d, d->middle));
	fo_json_real(j, "fastest", rank_of(d, d->best));
	fo_json_real(j, "step_skew", d->ranks > 1 ? d->step_skew : NAN);
	fo_json_close(j);
	if (d->waits && d->culprit.at >= 0) {
		const struct fo_rank_wait *w = &d->wait[d->culprit.at];
		fo_json_object(j, "culprit");
		fo_json_real(j, "rank", w->rank >= 0 ? w->rank : NAN);
		fo_json_int(j, "wait", d->culprit.at);
		fo_json_real(j, "share", d->culprit.share);
		fo_json_text(j, "row", d->culprit.row);
		fo_json_int(j, "excess_ns", d->culprit.excess_ns);
		fo_json_close(j);
	} else {
		fo_json_raw(j, "culprit", "null");
	}
	const struct fo_pipeline *p = &d->pipeline;
	if (!p->stages) {
		fo_json_raw(j, "pipeline", "null");
		return;
	}
	fo_json_object(j, "pipeline");
	fo_json_int(j, "stages", p->stages);
	fo_json_real(j, "chunks", told(p->chunks));
	fo_json_real(j, "microbatches", told(p->microbatches));
	reals(j, "bubble", p->bubble, p->stages);
	fo_json_real(j, "ideal", p->ideal);
	fo_json_close(j);
}

/* ---- schedules ---- */

static void what_if(struct fo_json *j, const struct fo_schedule_diagnosis *d)
{
	const struct fo_whatif *w = &d->whatif;
	const struct fo_schedule_log *s = d->schedule;
	fo_json_object(j, "what_if");
	fo_json_bool(j, "known", w->known);
	if (!w->known) {
		fo_json_text(j, "why", w->why);
		fo_json_close(j);
		return;
	}
	fo_json_real(j, "measured_s", w->measured_s);
	fo_json_real(j, "no_delay_s", w->no_delay_s);
	fo_json_real(j, "ideal_s", w->ideal_s);
	fo_json_real(j, "slowdown", w->slowdown);
	fo_json_real(j, "launch_slowdown", w->launch_slowdown);
	fo_json_real(j, "worst_workers", w->worst_workers);
	fo_json_real(j, "last_stage", w->last_stage);
	fo_json_real(j, "unevenness", w->unevenness);
	fo_json_int(j, "dominant_stage", w->worst_stage);
	fo_json_text(j, "dominant_kind", fo_schedule_kind_name[w->worst_kind]);
	fo_json_object(j, "worst_worker");
	fo_json_int(j, "stage", w->worker_stage);
	fo_json_int(j, "replica", w->worker_replica);
	fo_json_close(j);
	reals(j, "by_stage", w->by_stage, s->stages);
	reals(j, "by_replica", w->by_replica, s->replicas);
	fo_json_object(j, "by_kind");
	for (int i = 0; i < FO_SCHED_COUNT; i++)
		if (w->by_kind[i] > 0)
			fo_json_real(j, fo_schedule_kind_name[i], w->by_kind[i]);
	fo_json_close(j);
	fo_json_close(j);
}

static void steps(struct fo_json *j, const struct fo_schedule_diagnosis *d)
{
	const struct fo_schedule_log *s = d->schedule;
	fo_json_array(j, "steps");
	for (int64_t k = 0; k < s->steps; k++) {
		fo_json_object(j, NULL);
		fo_json_int(j, "number", s->step[k].number);
		fo_json_int(j, "length_ns", s->step[k].length_ns);
		fo_json_bool(j, "warm_up", k < d->warm_up);
		fo_json_real(j, "slowdown", k >= d->warm_up && d->whatif.known ? d->whatif.step_slowdown[k] : NAN);
		reals(j, "bubble", d->step_bubble + k * s->stages, s->stages);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void finding(struct fo_json *j, const struct fo_schedule_finding *f)
{
	fo_json_object(j, NULL);
	fo_json_text(j, "id", f->id);
	fo_json_text(j, "kind", "pipeline");
	fo_json_bool(j, "serious", f->serious);
	fo_json_text(j, "title", f->title);
	fo_json_text(j, "why", f->why);
	fo_json_text(j, "proposal", f->proposal);
	fo_json_real(j, "ceiling", f->ceiling);
	fo_json_close(j);
}

void fo_schedule_diagnosis_json(const struct fo_schedule_diagnosis *d, struct fo_str *out)
{
	static const char *const format[] = { [FO_SCHEDULE_TIMELINE] = "timeline", [FO_SCHEDULE_PRIMUS] = "primus" };
	const struct fo_schedule_log *s = d->schedule;
	struct fo_json j;
	fo_json_begin(&j, out, true);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "schema", 1);
	fo_json_array(&j, "ranks");
	fo_json_close(&j);
	fo_json_object(&j, "schedule");
	fo_json_text(&j, "path", s->path);
	fo_json_text(&j, "format", format[s->format]);
	fo_json_int(&j, "stages", s->stages);
	fo_json_int(&j, "chunks", s->chunks);
	fo_json_int(&j, "microbatches", s->microbatches);
	fo_json_int(&j, "replicas", s->replicas);
	fo_json_int(&j, "operations", s->ops);
	fo_json_int(&j, "left_out", s->left_out);
	fo_json_real(&j, "step_s", d->step_s);
	reals(&j, "bubble", d->bubble, s->stages);
	reals(&j, "bubble_of_step", d->bubble_of_step, s->stages);
	reals(&j, "work_s", d->work_s, s->stages);
	fo_json_real(&j, "ideal", d->ideal_bubble);
	fo_json_real(&j, "ideal_of_step", d->ideal_of_step);
	what_if(&j, d);
	steps(&j, d);
	fo_json_close(&j);
	fo_json_array(&j, "findings");
	for (int i = 0; i < d->findings; i++)
		finding(&j, &d->finding[i]);
	fo_json_close(&j);
	fo_json_bool(&j, "serious", d->serious);
	fo_json_close(&j);
}
