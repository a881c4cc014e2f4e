/* Translates a job and its cluster for src/predict, and the answer back to what an audit says. */
#include "job/worth.h"

#include "job/memory_int.h"
#include "job/predict.h"

#include <string.h>

/* The last error's text, kept by the job. */
static const char *why(struct fo_job *job)
{
	const char *text = fo_arena_strdup(&job->arena, fo_err_text());
	fo_err_clear();
	return text;
}

/* Links that this job uses and that nobody knows the rate of; NULL: none. */
static const char *unknown_link(const struct fo_job_asked *a, const struct fo_cluster *c)
{
	const struct fo_job_shape *s = &a->shape;
	if (s->devices > c->per_node && isnan(c->net_gb_s.low))
		return "the network between nodes";
	if (s->devices > 1 && c->per_node > 1 && isnan(c->node_gb_s.low))
		return "the links between devices of a node";
	return NULL;
}

/* Translates a job; the text says what is missing. */
static const char *ask(struct fo_job *job, const struct fo_cluster *c, struct fo_job_asked *a)
{
	if (!c || !c->device)
		return "the device: give --cluster, for example 8xHGX-H100";
	if (!job->has_model)
		return job->model_missing ? job->model_missing : "the model";
	struct fo_job_shape s;
	fo_job_shape_of(job, c, &s);
	if (s.wrong || s.unknown)
		return s.wrong ? s.wrong : s.unknown;
	if (fo_job_ask_stated(job, c, a) != FO_OK)
		return why(job);
	return unknown_link(a, c);
}

/* Rates of the network that nobody stated: both ends, in place of the one that a prediction takes. */
static int network_ends(const struct fo_cluster *c, double end[2])
{
	if (!c->net_assumed || !fo_range_known(c->net_gb_s) || !(c->devices > c->per_node))
		return 0;
	end[0] = 1e9 * c->net_gb_s.low, end[1] = 1e9 * c->net_gb_s.high;
	return 2;
}

/* One end of a range further away, by the factor that one end of another figure gives. */
static struct fo_range stretched(struct fo_range r, double times)
{
	if (isnan(times)) /* fmin and fmax would leave it out */
		return fo_range(NAN);
	return (struct fo_range){ r.low * fmin(1, times), r.high * fmax(1, times) };
}

static struct fo_range known_range(struct fo_range r)
{
	return isfinite(r.low) && isfinite(r.high) && r.low > 0 ? r : fo_range(NAN);
}

static void mfu(const struct fo_job *job, const struct fo_cluster *c, const struct fo_job_asked *a,
		struct fo_job_step *o)
{
	const struct fo_device *d = c->device;
	double peak = 1e12 * (isnan(d->dense[FO_PREC_BF16]) ? d->dense[FO_PREC_FP16] : d->dense[FO_PREC_BF16]);
	struct fo_flop flop = fo_model_flop_per_token(&job->model, (int64_t)a->shape.seq);
	if (fo_job_adapters(job)) { /* no gradients of frozen weights: 2 FLOP of 6 for each */
		double less = flop.mfu_6n / 3;
		flop.mfu -= less;
		flop.mfu_causal -= less;
	}
	o->mfu = fo_range_scaled(flop.mfu / peak, o->tokens_s);
	o->mfu_causal = fo_range_scaled(flop.mfu_causal / peak, o->tokens_s);
}

void fo_job_step_of(struct fo_job *job, const struct fo_cluster *c, struct fo_job_step *o)
{
	struct fo_job_asked a;
	struct fo_predict_step s;
	struct fo_predict_certainty sure;
	*o = (struct fo_job_step){ .seconds = NAN,
				   .total = fo_range(NAN),
				   .tokens_s = fo_range(NAN),
				   .mfu = fo_range(NAN),
				   .mfu_causal = fo_range(NAN) };
	for (int i = 0; i < FO_PREDICT_PARTS; i++)
		o->part[i] = o->share[i] = fo_range(NAN);
	o->unknown = ask(job, c, &a);
	if (o->unknown)
		return;
	fo_predict_point(&a.base, &a.layout, &s);
	fo_predict_certainty_of(&a.base, &a.layout, &s, &sure);
	o->total = s.wrong ? fo_range(NAN) : known_range(sure.seconds);
	if (!fo_range_known(o->total)) {
		o->unknown = s.wrong ? s.wrong : "a setting whose value is out of range";
		return;
	}
	o->seconds = s.seconds;
	memcpy(o->part, sure.part, sizeof o->part);
	fo_predict_shares_of(&a.base, &a.layout, o->share);
	double end[2];
	for (int i = 0; i < network_ends(c, end); i++) {
		struct fo_predict_step t;
		struct fo_predict_base b = a.base;
		b.job.machine.net_byte_s = end[i];
		fo_predict_point(&b, &a.layout, &t);
		o->total = stretched(o->total, t.seconds / s.seconds);
		for (int k = 0; k < FO_PREDICT_PARTS; k++) {
			struct fo_range *share = &o->share[k];
			double of = t.part[k] / t.seconds - s.part[k] / s.seconds;
			o->part[k] = s.part[k] > 0 ? stretched(o->part[k], t.part[k] / s.part[k]) : o->part[k];
			share->low = fmax(0, share->low + fmin(0, of));
			share->high = fmin(1, share->high + fmax(0, of));
		}
	}
	if (!fo_range_known(o->total)) {
		o->unknown = "a setting whose value is out of range";
		return;
	}
	o->tokens_s = fo_range_over(fo_range(s.tokens_s * s.seconds), o->total);
	mfu(job, c, &a, o);
}

/* Rates of fp32 products with and without tf32 differ eightfold, and no published run tells which one a step has. */
static bool single(const struct fo_job_asked *a)
{
	return a->job.type == FO_PREDICT_FP32 || a->job.type == FO_PREDICT_TF32;
}

/* A text: why it is not known; NULL. */
static const char *gain_of(struct fo_job *job, const struct fo_cluster *c, const struct fo_job_asked *a,
			   const struct fo_job_asked *b, struct fo_job_gain *out)
{
	struct fo_predict_gain g;
	double end[2];
	if (single(a) != single(b))
		return "how fast products of fp32 run";
	fo_predict_gain_of(&a->base, &a->layout, &b->base, &b->layout, &g);
	if (g.wrong)
		return g.wrong;
	if (g.rests_on_guess)
		return fo_arena_printf(&job->arena, "it rests on a guess: %s", g.guess);
	out->times = g.range, out->middle = g.times;
	for (int i = 0; i < network_ends(c, end); i++) {
		struct fo_predict_base x = a->base, y = b->base;
		struct fo_predict_step s, t;
		x.job.machine.net_byte_s = y.job.machine.net_byte_s = end[i];
		fo_predict_point(&x, &a->layout, &s);
		fo_predict_point(&y, &b->layout, &t);
		out->times = stretched(out->times, t.tokens_s / s.tokens_s / g.times);
	}
	out->times = known_range(out->times);
	return fo_range_known(out->times) ? NULL : "a setting whose value is out of range";
}

void fo_job_what_if(struct fo_job *job, const struct fo_cluster *c, const struct fo_job_change *change, int changes,
		    struct fo_job_gain *out)
{
	struct fo_job_asked before, after;
	struct fo_job to;
	*out = (struct fo_job_gain){ .times = fo_range(NAN), .middle = NAN };
	fo_job_copy(&to, job);
	for (int i = 0; i < changes; i++)
		fo_job_set(&to, change[i].setting, change[i].number);
	fo_job_memory_of(&to, c, &out->memory);
	out->unknown = ask(job, c, &before);
	if (!out->unknown)
		out->unknown = ask(&to, c, &after);
	if (!out->unknown)
		out->unknown = gain_of(job, c, &before, &after, out);
	if (out->unknown) {
		out->times = fo_range(NAN), out->middle = NAN;
		out->unknown = fo_arena_strdup(&job->arena, out->unknown);
	}
	if (out->memory.unknown)
		out->memory.unknown = fo_arena_strdup(&job->arena, out->memory.unknown);
	fo_job_fini(&to);
}
