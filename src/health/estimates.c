/* Answers by the arithmetic of the configuration, where nothing was measured. They are called estimates. */
#include "health/health_int.h"

#include <math.h>

static struct fo_range no_more_than_one(struct fo_range r)
{
	return (struct fo_range){ fmin(r.low, 1), fmin(r.high, 1) };
}

static enum fo_health_answer above(struct fo_range r, double bound)
{
	if (r.low > bound)
		return FO_HEALTH_YES;
	return r.high < bound ? FO_HEALTH_NO : FO_HEALTH_UNDECIDED;
}

/* Exposed communication over the step: c / (c + the rest), whose ends are exact where the parts are independent. */
static struct fo_range exposed(const struct fo_job_step *s)
{
	struct fo_range comm = fo_range(0), rest = fo_range(0);
	for (int i = 0; i < FO_PREDICT_PARTS; i++) {
		bool is = i == FO_PREDICT_TENSOR || i == FO_PREDICT_CONTEXT || i == FO_PREDICT_EXPERT ||
			  i == FO_PREDICT_DATA;
		struct fo_range *sum = is ? &comm : &rest;
		if (fo_range_known(s->part[i]))
			*sum = fo_range_plus(*sum, s->part[i]);
	}
	return (struct fo_range){ comm.low / (comm.low + rest.high), comm.high / (comm.high + rest.low) };
}

void fo_health_estimate_communication(struct fo_health *h, struct fo_health_question *q)
{
	const struct fo_job_step *s = &h->config.step;
	if (!h->configured || s->unknown || !fo_range_known(s->total))
		return;
	struct fo_range share = exposed(s);
	q->estimated = true;
	q->figure = share;
	q->figure_of = "of the step in communication that nothing hides, by arithmetic";
	q->answer = above(share, 0.5);
	q->bad = share.low > 0.5;
	q->because = fo_health_text(h,
				    "%s By the arithmetic of the configuration, exposed communication takes "
				    "%s of a step of %s.",
				    q->because ? q->because : "", fo_health_range(&h->arena, share, FO_DRAW_SHARE),
				    fo_health_range(&h->arena, s->total, FO_DRAW_SECONDS));
	fo_health_evidence(h, q, "the configuration, on %.0f x %s; rates of links and matmuls are intervals",
			   h->cluster.devices, h->cluster.device ? h->cluster.device->name : "an unknown device");
}

/* The same work for each device on eight of them. */
static bool on_eight(struct fo_health *h, struct fo_job *job, struct fo_job_step *step)
{
	const struct fo_job_shape *shape = &h->config.shape;
	double n = h->cluster.devices, inside = shape->tp * shape->pp * shape->cp;
	struct fo_cluster eight;
	if (!(n > 8) || !h->cluster.device || !(inside <= 8) || fmod(8, inside) != 0 || isnan(shape->global_batch))
		return false;
	if (fo_cluster_parse(fo_health_text(h, "8x%s", h->cluster.device->name), &h->catalogue, &eight, &h->arena) !=
	    FO_OK) {
		fo_err_clear();
		return false;
	}
	double dp = 8 / inside;
	fo_job_copy(job, &h->job);
	fo_job_set(job, FO_JOB_DEVICES, 8);
	fo_job_set(job, FO_JOB_NODES, 1);
	fo_job_set(job, FO_JOB_GLOBAL_BATCH, shape->global_batch * 8 / n);
	fo_job_set(job, FO_JOB_DP_SHARD, shape->shard > 1 ? dp : 1);
	fo_job_set(job, FO_JOB_DP_REPLICATE, shape->shard > 1 ? 1 : dp);
	fo_job_step_of(job, &eight, step);
	return !step->unknown && fo_range_known(step->tokens_s);
}

void fo_health_estimate_scaling(struct fo_health *h, struct fo_health_question *q)
{
	struct fo_job job;
	struct fo_job_step eight;
	const struct fo_job_step *now = &h->config.step;
	if (!h->configured || now->unknown || !fo_range_known(now->tokens_s))
		return;
	fo_job_init(&job);
	if (on_eight(h, &job, &eight)) {
		/* The rates of one machine stand on both sides, so the ends meet their like. */
		double low = now->tokens_s.low / eight.tokens_s.low, high = now->tokens_s.high / eight.tokens_s.high;
		q->estimated = true;
		q->figure = no_more_than_one((struct fo_range){ fmin(low, high), fmax(low, high) });
		q->figure_of = fo_health_text(
			h, "of the tokens/s per device on 8 that a device reaches on %.0f, by arithmetic",
			h->cluster.devices);
		q->answer = FO_HEALTH_UNDECIDED;
		q->because = fo_health_text(
			h,
			"%s By the arithmetic of the configuration a device reaches %s of its speed on 8. "
			"Arithmetic knows no stragglers and no shared network, so this is what is left at "
			"best.",
			q->because ? q->because : "", fo_health_range(&h->arena, q->figure, FO_DRAW_SHARE));
		if (q->figure.high < 1 - FO_HEALTH_NOISE) {
			q->answer = FO_HEALTH_YES;
			q->bad = true;
		}
	}
	fo_job_fini(&job);
}
