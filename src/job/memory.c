/* Memory of one device by parts. */
#define _GNU_SOURCE /* strcasestr */
#include "job/memory.h"
#include "job/memory_int.h"

#include <string.h>

const char *const fo_job_part_name[FO_JOB_PARTS] = { "weights", "gradients", "optimizer", "activations",
						     "logits",  "buffers",   "reserve" };

/* A driver shows a little less than the vendor's figure, in GiB: 139.8 of an H200's 141, 79.6 of an H100's 80, 179.1 of
 * a B200's 180 (November 2026). */
static const struct fo_range shown = { 0.985, 0.995 };
/* Outside of the framework's allocator: the context, and NCCL's channels where there is more than one device: some 0.3
 * to 2 GB by the number of communicators (planners' notes and pytorch#147179, August 2026). */
static const struct fo_range context = { 0.5 * (1 << 30), 1.0 * (1 << 30) };
static const struct fo_range nccl = { 0.3e9, 2.0e9 };
/* What an allocator holds beyond what is in use; at least 5 % in the middle (torchtitan's reserved figures). */
static const struct fo_range fragments = { 0.02, 0.10 };
/* Workspaces of matmuls (32 MiB for each stream on Hopper) and of attention, tables of rotations, masks. */
static const struct fo_range workspaces = { 0.03e9, 0.5e9 };
/* Activations as derived, to a few percent: small tensors that no formula lists, alignment. */
static const struct fo_range unlisted = { 0.97, 1.06 };

#define GIB ((double)(1 << 30))

struct fill {
	struct fo_job *job;
	const struct fo_job_counts *m;
	const struct fo_job_shape *s;
	struct fo_job_stage stage;
	enum fo_job_style style;
	double zero;
	struct fo_job_memory *o;
};

static struct fo_range between(double a, double b) { return (struct fo_range){ fmin(a, b), fmax(a, b) }; }

/* ---- states ---- */

/* Bytes of a word of enum FP32, BF16, FP16. */
static double bytes_of(double word) { return word == FO_JOB_FP32 ? 4 : 2; }

/* Bytes of a weight as it is stored for use, of its gradient, and of what the optimizer keeps. */
struct state {
	struct fo_range weight, gradient, optimizer;
	bool apart; /* the optimizer's weights are no copy in use */
};

static struct fo_range gradient_bytes(const struct fill *f, bool apart, double master)
{
	double kept = fo_job_number(f->job, FO_JOB_GRAD_ACCUMULATE);
	bool half = fo_job_is(f->job, FO_JOB_DTYPE, FO_JOB_MATMUL_FP16);
	/* DeepSpeed's BF16_Optimizer keeps bf16 gradients beside their fp32 sums. */
	if (f->style == FO_JOB_STYLE_DEEPSPEED && kept == FO_JOB_FP32)
		return fo_range(6);
	if (!isnan(kept))
		return fo_range(bytes_of(kept));
	if (f->style == FO_JOB_STYLE_TORCH || !apart)
		return fo_range(master); /* of the weight's own type */
	if (f->style == FO_JOB_STYLE_MEGATRON)
		return fo_range(half ? 2 : 4); /* Megatron sums bf16 gradients in fp32 */
	if (f->style == FO_JOB_STYLE_DEEPSPEED && half)
		return fo_range(2);
	return (struct fo_range){ 2, 4 };
}

static struct fo_range moment_bytes(const struct fill *f)
{
	double type = fo_job_number(f->job, FO_JOB_MOMENTS);
	const char *name = f->job->value[FO_JOB_OPTIMIZER].text;
	/* PyTorch's optimizers make moments of the weight's own type. */
	bool bf16 = f->style == FO_JOB_STYLE_TORCH && fo_job_is(f->job, FO_JOB_PARAM_DTYPE, FO_JOB_BF16);
	double each = isnan(type) && bf16 ? 2 : 4;
	if (type == FO_JOB_BF16)
		each = 2;
	if (type == FO_JOB_FP16) /* third word: 8bit, with a scale for each 256 */
		each = 1 + 4 / 256.;
	name = name ? name : "";
	if (strcasestr(name, "8bit"))
		each = 1 + 4 / 256.;
	if (strcasestr(name, "adafactor"))
		return (struct fo_range){ 0, each };
	if (strcasestr(name, "muon")) /* one moment of matrices, two of the rest */
		return (struct fo_range){ each, 1.3 * each };
	if (strcasestr(name, "sgd") || strcasestr(name, "lion"))
		return (struct fo_range){ strcasestr(name, "lion") ? each : 0, each };
	return fo_range(2 * each);
}

static struct state state_of(const struct fill *f)
{
	struct state st = { .apart = f->style == FO_JOB_STYLE_MEGATRON || f->style == FO_JOB_STYLE_DEEPSPEED };
	bool full = fo_job_is(f->job, FO_JOB_DTYPE, FO_JOB_MATMUL_FP32);
	double master = bytes_of(fo_job_or(f->job, FO_JOB_PARAM_DTYPE, FO_JOB_FP32));
	if (f->style == FO_JOB_STYLE_UNKNOWN)
		st.apart = f->zero == 1 || f->zero == 2;
	if (full || master == 2)
		st.apart = false;
	st.gradient = gradient_bytes(f, st.apart, master);
	st.optimizer = moment_bytes(f);
	st.weight = fo_range(st.apart ? 2 : master);
	if (st.apart)
		st.optimizer = fo_range_plus(st.optimizer, fo_range(master));
	/* Its fp16 optimizers flatten gradients in fp32, twice where they are clipped. */
	if (f->style == FO_JOB_STYLE_DEEPSPEED && fo_job_is(f->job, FO_JOB_DTYPE, FO_JOB_MATMUL_FP16))
		st.optimizer = fo_range_plus(st.optimizer, (struct fo_range){ 4, 8 });
	/* autocast keeps bf16 copies of fp32 weights while a forward runs; FSDP gathers them instead (buffers). */
	if (!st.apart && !full && master == 4 && f->zero == 0)
		st.weight.high += 2;
	/* Transformer Engine keeps fp8 copies of a weight and of its transpose beside it, or in its place. */
	if (fo_job_small_types(f->job) && f->style == FO_JOB_STYLE_MEGATRON)
		st.weight = fo_job_is(f->job, FO_JOB_FP8_GATHER, 1) ? between(1, 2) : between(3, 4);
	return st;
}

/* A part's bytes over ranks: `at` is the ZeRO stage from which on it is sharded. */
static struct fo_range sharded(const struct fill *f, struct fo_range each, int at)
{
	double by = f->zero >= at ? f->s->shard : 1;
	double experts = f->zero >= at ? fo_job_expert_shard(f->job, f->s) : 1;
	return fo_range_scaled(f->stage.whole / by + f->stage.experts / experts, each);
}

/* Frozen weights, of which only matrices of layers are quantised, and adapters with all their states. */
static void adapter_states(struct fill *f)
{
	struct fo_job_memory *o = f->o;
	const struct fo_job_stage *s = &f->stage;
	struct fo_range trained = fo_job_adapter_weights(f->job, f->m, s, f->s->tp), base = fo_job_base_bytes(f->job);
	double ends = fmin(s->whole, (s->first || s->last) ? s->end * (s->first && s->last && !f->m->tied ? 2 : 1) : 0);
	double by = f->zero >= 3 ? f->s->shard : 1, experts = f->zero >= 3 ? fo_job_expert_shard(f->job, f->s) : 1;
	double matrices = (s->whole - ends) / by + s->experts / experts;
	struct fo_range rest = base.low < 2 ? (struct fo_range){ 2, 4 } : base, moments = moment_bytes(f);
	o->part[FO_JOB_PART_WEIGHTS] = fo_range_plus(fo_range_scaled(matrices, base), fo_range_scaled(ends / by, rest));
	/* An adapter's own weight and its gradient are kept in 16 or in 32 bits, with a master where they are 16. */
	struct fo_range two_or_four = { 2, 4 }, states = { moments.low, moments.high + 4 };
	o->part[FO_JOB_PART_WEIGHTS] = fo_range_plus(o->part[FO_JOB_PART_WEIGHTS],
						     fo_range_times(trained, fo_range_over(two_or_four, fo_range(by))));
	o->part[FO_JOB_PART_GRADIENTS] = fo_range_times(
		trained, fo_range_over(two_or_four, fo_range(f->zero >= 2 ? f->s->shard : 1)));
	o->part[FO_JOB_PART_OPTIMIZER] = fo_range_times(
		trained, fo_range_over(states, fo_range(f->zero >= 1 ? f->s->shard : 1)));
}

static void states(struct fill *f, const struct state *st)
{
	struct fo_job_memory *o = f->o;
	o->part[FO_JOB_PART_WEIGHTS] = sharded(f, st->weight, 3);
	o->part[FO_JOB_PART_GRADIENTS] = sharded(f, st->gradient, 2);
	o->part[FO_JOB_PART_OPTIMIZER] = sharded(f, st->optimizer, 1);
	bool adapters = fo_job_adapters(f->job);
	if (adapters)
		adapter_states(f);
	/* A pipeline with FSDP sums gradients whole until its last micro-batch, in the type of their reduction. */
	if (!adapters && f->zero == 3 && f->s->pp > 1 && f->s->shard > 1 && f->style == FO_JOB_STYLE_TORCH) {
		struct fo_range whole = { 2, bytes_of(fo_job_or(f->job, FO_JOB_GRAD_REDUCE, FO_JOB_FP32)) };
		o->part[FO_JOB_PART_GRADIENTS] = fo_range_plus(
			o->part[FO_JOB_PART_GRADIENTS], fo_range_scaled(f->stage.whole + f->stage.experts, whole));
	}
	if (!adapters && fo_job_is(f->job, FO_JOB_OPTIMIZER_IN_BACKWARD, 1)) { /* a layer's gradient at a time */
		double layer = f->stage.layer / fmax(1, f->zero >= 2 ? f->s->shard : 1);
		o->part[FO_JOB_PART_GRADIENTS] = fo_range_scaled(2 * layer, st->gradient);
	}
	if (fo_job_is(f->job, FO_JOB_OFFLOAD_OPTIMIZER, 1)) {
		o->host = fo_range_plus(o->host, o->part[FO_JOB_PART_OPTIMIZER]);
		o->part[FO_JOB_PART_OPTIMIZER] = fo_range(0);
	}
	if (fo_job_is(f->job, FO_JOB_OFFLOAD_PARAMS, 1)) {
		o->host = fo_range_plus(o->host, o->part[FO_JOB_PART_WEIGHTS]);
		o->part[FO_JOB_PART_WEIGHTS] = fo_range(0);
	}
}

/* ---- buffers ---- */

/* Weights that FSDP or ZeRO-3 gathers for use. */
static struct fo_range gathered(const struct fill *f)
{
	double layer = f->stage.layer, end = f->stage.first || f->stage.last ? f->stage.end : 0;
	double two = 2, reduce = bytes_of(fo_job_or(f->job, FO_JOB_GRAD_REDUCE, FO_JOB_FP32));
	bool kept = fo_job_is(f->job, FO_JOB_RESHARD, 0) ||
		    (isnan(fo_job_number(f->job, FO_JOB_RESHARD)) && f->s->pp > 1);
	if (f->style == FO_JOB_STYLE_DEEPSPEED) {
		double live = fo_job_or(f->job, FO_JOB_LIVE_PARAMS, 1e9);
		return between(two * 2 * layer, two * fmax(2 * layer, fmin(live, f->stage.whole) + layer));
	}
	if (kept)
		return fo_range_scaled(two, between(f->stage.whole, f->stage.whole + layer));
	/* The unit in use and the next one, with the gradient of one, and its copy for the reduction. */
	double least = two * 2 * layer, most = two * 2 * layer + (two + reduce) * fmax(layer, end) + two * end;
	return between(least, most);
}

/* Frozen weights have no buckets of gradients: layers that are gathered for use, matrices that are written out of 4 or
 * 8 bits for use (of one layer at most), and the adapters' buckets. */
static struct fo_range adapter_buffers(const struct fill *f)
{
	struct fo_range trained = fo_job_adapter_weights(f->job, f->m, &f->stage, f->s->tp), b = { 0, 0 };
	double layer = f->stage.layer, end = f->stage.first || f->stage.last ? f->stage.end : 0;
	if (f->zero == 3)
		b = between(fo_job_base_bytes(f->job).low * layer, 4 * fmax(2 * layer, layer + end));
	if (fo_job_base_bytes(f->job).low < 2)
		b.high += 2 * layer;
	b.high += 4 * trained.high;
	return b;
}

static struct fo_range buffers(const struct fill *f, const struct state *st)
{
	struct fo_range b = { 0, 0 };
	double whole = f->stage.whole + f->stage.experts, bucket = fo_job_number(f->job, FO_JOB_BUCKET_BYTES);
	bucket = bucket > 0 ? bucket : NAN;
	if (fo_job_adapters(f->job))
		return adapter_buffers(f);
	if (f->s->dp * f->s->cp == 1 && f->zero != 3)
		return b;
	if (f->zero == 3)
		return gathered(f);
	if (f->style == FO_JOB_STYLE_DEEPSPEED) { /* a bucket to reduce and one to gather, twice where they overlap */
		double two = isnan(bucket) ? 2 * 5e8 : bucket;
		return between(fmin(two, 2 * whole), fmin(4 * two, 4 * whole));
	}
	if (f->style == FO_JOB_STYLE_MEGATRON)
		return b; /* gathers and reductions are done in place */
	/* DDP copies gradients into buckets unless these are views of them. */
	b.high = st->gradient.high * whole;
	if (f->zero > 0)
		b.high = isnan(bucket) ? 100e6 : 2 * bucket;
	return b;
}

/* Transformer Engine hands autograd one empty weight gradient of each shape where sums are made inside the matmul. */
static struct fo_range empty_gradients(const struct fill *f)
{
	const struct fo_job_counts *m = f->m;
	struct fo_range none = { 0, 0 };
	double fused = fo_job_number(f->job, FO_JOB_FUSED_GRAD_ACCUMULATION);
	if (f->style != FO_JOB_STYLE_MEGATRON || fused == 0)
		return none;
	double elements = m->attention;
	if (f->stage.dense > 0)
		elements += m->matrices * m->h * m->ffn;
	if (f->stage.moe > 0)
		elements += (m->expert + m->shared) * f->s->tp / f->s->etp;
	if (f->stage.last)
		elements += m->head;
	return between(fused == 1 ? 2 * elements / f->s->tp : 0, 2 * elements / f->s->tp);
}

/* Temporaries of an optimizer that is not one kernel: lists of whole tensors. They are there when activations are
 * not. */
static struct fo_range optimizer_step(const struct fill *f)
{
	double elements = (f->stage.whole + f->stage.experts) / (f->zero >= 1 ? f->s->shard : 1);
	if (fo_job_adapters(f->job))
		elements = fo_job_adapter_weights(f->job, f->m, &f->stage, f->s->tp).high;
	double fused = fo_job_number(f->job, FO_JOB_OPTIMIZER_FUSED);
	if (fused == 1 || f->style == FO_JOB_STYLE_MEGATRON)
		return (struct fo_range){ 0, 0 };
	return (struct fo_range){ 0, 8 * elements };
}

/* ---- activations ---- */

/* Micro-batches of which a stage holds activations, in whole stages. */
static double in_flight(const struct fill *f, double index)
{
	double p = f->s->pp, v = f->s->chunks, m = f->s->micro_batches,
	       schedule = fo_job_number(f->job, FO_JOB_PP_SCHEDULE);
	if (isnan(m))
		m = p;
	if (p == 1)
		return 1;
	if (schedule == FO_JOB_SCHEDULE_GPIPE)
		return m;
	if (v > 1 && schedule != FO_JOB_SCHEDULE_ZERO_BUBBLE)
		return fmin(2 * (p - index - 1) + (v - 1) * p + 1, m * v) / v;
	if (schedule == FO_JOB_SCHEDULE_ZERO_BUBBLE)
		return fmin(p, m);
	return fmin(p - index, m);
}

/* PyTorch's pipeline keeps what a stage gives out until its backward, sharded over sequence parallelism or whole.
 * Megatron frees it once it is sent. */
static struct fo_range stage_outputs(const struct fill *f)
{
	double output = 2 * f->m->h * f->s->micro_batch * f->s->seq / f->s->cp;
	if (f->s->pp == 1 || f->style != FO_JOB_STYLE_TORCH)
		return (struct fo_range){ 0, 0 };
	return (struct fo_range){ output / f->s->tp, output };
}

static void activations(struct fill *f, double index)
{
	struct fo_job_activations a;
	fo_job_activations_of(f->job, f->m, f->s, &f->stage, &a);
	double times = in_flight(f, index) * f->stage.layers;
	struct fo_range kept = fo_range_scaled(times, a.kept), none = { 0, 0 };
	struct fo_range logits = f->stage.last ? a.logits : none;
	/* The loss and a layer's backward do not overlap: the larger of both counts. */
	struct fo_range beyond = { fmax(0, a.working.low - logits.low), 0 };
	beyond.high = fmax(beyond.low, a.working.high - logits.high);
	kept = fo_range_plus(kept, fo_range_scaled(in_flight(f, index), stage_outputs(f)));
	f->o->part[FO_JOB_PART_ACTIVATIONS] = fo_range_times(unlisted, fo_range_plus(kept, beyond));
	f->o->part[FO_JOB_PART_LOGITS] = logits;
	if (fo_job_is(f->job, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_OFFLOAD))
		f->o->host = fo_range_plus(f->o->host, fo_range_scaled(times, a.all));
}

/* ---- together ---- */

static void of_stage(struct fill *f, double index)
{
	struct fo_job_memory *o = f->o;
	*o = (struct fo_job_memory){ .stage = index };
	fo_job_stage_of(f->m, f->s, index, &f->stage);
	struct state st = state_of(f);
	states(f, &st);
	activations(f, index);
	o->part[FO_JOB_PART_BUFFERS] = fo_range_plus(fo_range_plus(buffers(f, &st), empty_gradients(f)), workspaces);
	struct fo_range own = fo_range_plus(fo_range_plus(o->part[FO_JOB_PART_WEIGHTS], o->part[FO_JOB_PART_GRADIENTS]),
					    o->part[FO_JOB_PART_OPTIMIZER]);
	struct fo_range busy = fo_range_plus(o->part[FO_JOB_PART_ACTIVATIONS], o->part[FO_JOB_PART_LOGITS]);
	busy = fo_range_plus(busy, o->part[FO_JOB_PART_BUFFERS]);
	struct fo_range step = optimizer_step(f);
	if (step.high > busy.high)
		o->part[FO_JOB_PART_BUFFERS].high += step.high - busy.high;
	busy.high = fmax(busy.high, step.high);
	own = fo_range_plus(own, busy);
	o->part[FO_JOB_PART_RESERVE] = fo_range_plus(context, fo_range_times(fragments, own));
	if (f->s->devices > 1)
		o->part[FO_JOB_PART_RESERVE] = fo_range_plus(o->part[FO_JOB_PART_RESERVE], nccl);
	o->total = fo_range_plus(own, o->part[FO_JOB_PART_RESERVE]);
}

struct fo_range fo_cluster_usable(const struct fo_cluster *c)
{
	double gib = isnan(c->device->memory_usable_gb) ? c->device->memory_gb : c->device->memory_usable_gb;
	return fo_range_scaled(gib * GIB, shown);
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
	for (int p = 0; p < FO_JOB_PARTS; p++)
		out->part[p] = between(end[0].part[p].low, end[1].part[p].high);
	for (int p = 0; p < FO_JOB_PARTS; p++)
		if (end[0].part[p].high > out->part[p].high)
			out->part[p].high = end[0].part[p].high;
	out->total = (struct fo_range){ end[0].total.low, fmax(end[0].total.high, end[1].total.high) };
	out->host = end[1].host;
	out->stage = end[1].stage;
}

void fo_job_memory_of(struct fo_job *job, const struct fo_cluster *c, struct fo_job_memory *out)
{
	struct fo_job_shape s;
	struct fo_job_counts m;
	fo_job_shape_of(job, c, &s);
	*out = (struct fo_job_memory){ .total = fo_range(NAN), .host = fo_range(NAN), .stage = NAN };
	for (int i = 0; i < FO_JOB_PARTS; i++)
		out->part[i] = fo_range(NAN);
	out->unknown = missing(job, &s);
	if (!out->unknown) {
		fo_job_counts_of(&job->model, &m);
		struct fo_job_memory one;
		struct fill f = { .job = job, .m = &m, .s = &s, .style = fo_job_style_of(job), .o = &one };
		f.zero = fo_job_zero(job, &s);
		const double at[] = { 0, 1, s.pp - 1 };
		for (int i = 0; i < 3; i++) {
			if (at[i] >= s.pp || (i == 2 && s.pp <= 2 && s.pp - 1 < 1))
				continue;
			of_stage(&f, at[i]);
			if (isnan(out->stage) || fo_range_middle(one.total) > fo_range_middle(out->total))
				*out = one;
		}
	}
	if (!out->unknown && !(out->total.low > 0 && isfinite(out->total.high))) {
		out->unknown = "a setting whose value is out of range";
		out->total = out->host = fo_range(NAN);
		for (int i = 0; i < FO_JOB_PARTS; i++)
			out->part[i] = fo_range(NAN);
	}
	if (s.stage_unknown && job->has_model && !s.wrong)
		between_stages(job, c, out);
	fit(c, out);
	if (s.stage_unknown && out->fit != FO_JOB_FITS) /* offloading may be in the file that is missing */
		out->fit = FO_JOB_FIT_UNKNOWN;
}
