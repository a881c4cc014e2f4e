/* Memory of one device of a job: what a file states goes to src/predict/memory.c, and what it does not is both ends. */
#include "job/memory.h"

#include "job/memory_int.h"
#include "job/predict.h"

static struct fo_range both(struct fo_range a, struct fo_range b)
{
	return (struct fo_range){ fmin(a.low, b.low), fmax(a.high, b.high) };
}

static void fit(const struct fo_cluster *c, struct fo_job_memory *o)
{
	o->usable = fo_range(NAN);
	o->fit = FO_JOB_FIT_UNKNOWN;
	if (!c || !c->device) {
		o->unknown = o->unknown ? o->unknown : "the device: give --cluster, for example 8xHGX-H100";
		return;
	}
	o->usable = fo_cluster_usable(c);
	if (!fo_range_known(o->usable) || !fo_range_known(o->total))
		return;
	o->fit = FO_JOB_FIT_UNCERTAIN;
	if (o->total.low > o->usable.high)
		o->fit = FO_JOB_FITS_NOT;
	if (o->total.high <= o->usable.low)
		o->fit = FO_JOB_FITS;
}

/* What is missing to say anything; NULL: nothing. */
static const char *missing(struct fo_job *job, const struct fo_job_shape *s)
{
	if (!job->has_model)
		return job->model_missing ? job->model_missing : "the model";
	if (s->wrong)
		return s->wrong;
	if (s->unknown && (isnan(s->devices) || isnan(s->micro_batch) || isnan(s->seq) || isnan(s->shard)))
		return s->unknown;
	if (isnan(s->micro_batch) || isnan(s->shard) || isnan(s->seq))
		return "how the job is divided";
	return NULL;
}

static void take(struct fo_job_memory *out, const struct fo_memory *m)
{
	for (int i = 0; i < FO_PREDICT_MEMORIES; i++)
		out->part[i] = m->part[i];
	out->total = m->total, out->host = m->host, out->stage = m->stage;
}

static void count(struct fo_job *job, const struct fo_job_shape *s, struct fo_job_memory *out)
{
	struct fo_predict_model model;
	struct fo_memory_ways ways;
	struct fo_memory_base b;
	struct fo_predict_layout l;
	struct fo_memory m;
	const bool unknown = fo_job_recompute_of(job).mode == FO_JOB_AGAIN_UNKNOWN;
	fo_predict_model_of(&job->model, &model);
	fo_job_ways_of(job, &ways);
	fo_memory_prepare(&b, &model, &ways, s->seq);
	fo_job_layout_of(job, s, &l);
	if (unknown)
		l.recompute = 0;
	fo_memory_of(&b, &l, &m);
	take(out, &m);
	if (!unknown)
		return;
	/* Nobody says what is computed again: from everything to nothing. */
	l.recompute = 1;
	fo_memory_of(&b, &l, &m);
	out->total = fo_range(0);
	for (int i = 0; i < FO_PREDICT_MEMORIES; i++) {
		out->part[i] = both(out->part[i], m.part[i]);
		out->total = fo_range_plus(out->total, out->part[i]);
	}
	out->host = both(out->host, m.host);
}

/* Where a launcher decides what is sharded: from everything (ZeRO-3) to nothing. */
static void between_stages(struct fo_job *job, const struct fo_cluster *c, struct fo_job_memory *out)
{
	struct fo_job_memory end[2];
	for (int i = 0; i < 2; i++) {
		struct fo_job copy;
		fo_job_copy(&copy, job);
		fo_job_set(&copy, FO_JOB_ZERO, i ? 0 : 3);
		fo_job_memory_of(&copy, c, &end[i]);
		end[i].unknown = end[i].unknown ? out->unknown : NULL;
		fo_job_fini(&copy);
		if (end[i].unknown)
			return;
	}
	for (int p = 0; p < FO_PREDICT_MEMORIES; p++)
		out->part[p] = both(end[0].part[p], end[1].part[p]);
	out->total = both(end[0].total, end[1].total);
	out->host = end[1].host;
	out->stage = end[1].stage;
}

void fo_job_memory_of(struct fo_job *job, const struct fo_cluster *c, struct fo_job_memory *out)
{
	struct fo_job_shape s;
	fo_job_shape_of(job, c, &s);
	*out = (struct fo_job_memory){ .total = fo_range(NAN), .host = fo_range(NAN), .stage = NAN };
	for (int i = 0; i < FO_PREDICT_MEMORIES; i++)
		out->part[i] = fo_range(NAN);
	out->unknown = missing(job, &s);
	if (!out->unknown)
		count(job, &s, out);
	if (!out->unknown && !(out->total.low > 0 && isfinite(out->total.high))) {
		out->unknown = "a setting whose value is out of range";
		out->total = out->host = fo_range(NAN);
		for (int i = 0; i < FO_PREDICT_MEMORIES; i++)
			out->part[i] = fo_range(NAN);
	}
	if (s.stage_unknown && job->has_model && !s.wrong)
		between_stages(job, c, out);
	fit(c, out);
	if (s.stage_unknown && out->fit != FO_JOB_FITS) /* offloading may be in the file that is missing */
		out->fit = FO_JOB_FIT_UNKNOWN;
}
