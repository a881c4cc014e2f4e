/* A step's time: the work that step_work.c counts, over rates drawn from intervals. */
#include "job/step.h"
#include "job/step_int.h"

#include <string.h>

const char *const fo_job_time_name[FO_JOB_TIMES] = { "matmul",    "attention", "memory-bound", "loss",     "recompute",
						     "tensor",    "context",   "expert",       "pipeline", "data",
						     "optimizer", "offload",   "host" };

/* ---- rates ---- */

enum rate {
	R_MATMUL, /* FLOP/s */
	R_FP8,
	R_GROUPED,   /* factor on grouped matmuls' time, at least 1 */
	R_SHAPE,     /* 0: tiles cost nothing, 1: all that they waste */
	R_ATTENTION, /* FLOP/s */
	R_ATTENTION_BACK,
	R_FUSED, /* bytes/s */
	R_STREAM,
	R_PLAIN,     /* 0: all is fused that may be, 1: nothing */
	R_NODE,      /* bytes/s of links within a node */
	R_NET,       /* between nodes */
	R_HIDDEN,    /* share of communication that compute hides where it is overlapped */
	R_ASYNC,     /* the same of tensor parallelism */
	R_CONTEND,   /* compute that hidden communication costs, of its own time */
	R_UNKNOWN,   /* where it is not known whether something overlaps */
	R_LAUNCH,    /* s of the host for a kernel */
	R_GAP,       /* s of the device between two kernels */
	R_STRAGGLER, /* spread of devices */
	R_PCIE,      /* bytes/s to and from the host */
	R_HOST,      /* bytes/s of host memory for one device */
	R_SUMS,      /* share of the time of gradients' sums that matmuls do not hide */
	R_RING,      /* factor on attention where PyTorch's own ring divides the sequence */
	R_SCHEDULE,  /* factor on a pipeline's bubble */
	R_REST,      /* factor for all that is not counted */
	RATES
};

/* low, middle, high of what nobody states; those of devices, NAN here, are cost/device.c's. */
static const struct fo_interval usual[RATES] = {
	[R_MATMUL] = { NAN, NAN, NAN },
	[R_FP8] = { NAN, NAN, NAN },
	/* Grouped matmuls on a B200 reach 0.30 of the peak in the mean, others 0.45 to 0.5 (SimuMax's tables, 2026). */
	[R_GROUPED] = { 1, 1.3, 1.8 },
	[R_SHAPE] = { 0, 0.7, 1 },
	[R_ATTENTION] = { NAN, NAN, NAN },
	[R_ATTENTION_BACK] = { NAN, NAN, NAN },
	[R_FUSED] = { NAN, NAN, NAN },
	[R_STREAM] = { NAN, NAN, NAN },
	[R_PLAIN] = { 0, 0.5, 1 },
	/* Rings: 78 % of NVLink on A100, 82 % on H200, 76 % on B200 at large sizes (stas00/ml-engineering, NVIDIA). */
	[R_NODE] = { 0.65, 0.78, 0.83 },
	/* 46 to 48 of 50 GB/s point to point (nccl-tests #290), 74 % in rings of 32 B200, 73 % on EFA. */
	[R_NET] = { 0.5, 0.74, 0.94 },
	[R_HIDDEN] = { 0.7, 0.9, 1 },
	/* torchtitan, Llama 70B with TP 8, June 2025: async TP saves 4 to 14 % of a step, 8.4 % in bf16, where the
	 * communication is some 18 %: about a half. */
	[R_ASYNC] = { 0.15, 0.45, 0.75 },
	/* NCCL takes 4 to 24 of 132 multiprocessors; calculon charges 15 % on NVLink, 2 % on InfiniBand. */
	[R_CONTEND] = { 0.02, 0.08, 0.18 },
	[R_UNKNOWN] = { 0, 0.5, 1 },
	/* A kernel from Python: 4 to 6 us of the host in a launch alone, up to 10 with autograd's own work. */
	[R_LAUNCH] = { 4e-6, 6e-6, 10e-6 },
	/* cost/device.c has 2.7 to 4.05 us for CUDA graphs' kernels, ends and ramps included; launched ones overlap. */
	[R_GAP] = { 1e-6, 2e-6, 4e-6 },
	/* Identical devices differ by 5 % and more (stas00/ml-engineering): sigma of some 1 %. */
	[R_STRAGGLER] = { 0, 0.005, 0.015 },
	/* PCIe 4 x16 31, PCIe 5 x16 63 GB/s by specification; 88 % are reached (stas00: 55 of 63). */
	[R_PCIE] = { 20e9, 27e9, 55e9 },
	[R_HOST] = { 10e9, 20e9, 40e9 },
	/* cost/device.c: 0.36 to 0.71, by the depth of the product. */
	[R_SUMS] = { 0.36, 0.5, 0.71 },
	/* torchtitan's table 2: with CP 4 and 8 the part that grows with the sequence takes 1.4 to 1.6 times as long as
	 * without. */
	[R_RING] = { 1, 1.2, 1.6 },
	/* Stages and micro-batches that differ, starts that wait for transfers: torchtitan's 405B gains 1.28 from two
	 * chunks, where the bubbles alone say 1.30; Megatron's interleaving gains 10 % where they say 12. */
	[R_SCHEDULE] = { 0.85, 1, 1.2 },
	/* SimuMax has the measured time of every matmul and is still 5.6 % short in the mean of 43 runs, 0 to 13 %. */
	[R_REST] = { 0.92, 1.04, 1.2 },
};

/* Kernels of rates[] that cost/device.c has no family for: AMD's and Google's devices. Shares of peaks as its last row,
 * the best measured matmul where the catalogue has it. */
static bool other_rates(const struct fo_device *d, bool half, struct fo_device_rates *r)
{
	double peak = 1e12 * (half ? d->dense[FO_PREC_FP16] : d->dense[FO_PREC_BF16]),
	       fp8 = 1e12 * d->dense[FO_PREC_FP8], best = 1e12 * d->measured_bf16, memory = 1e12 * d->memory_tb_s;
	if (isnan(peak) || isnan(memory))
		return false;
	*r = (struct fo_device_rates){ .peak_flop_s = peak, .memory_byte_s = memory, .units = d->units };
	best = isnan(best) ? 0.87 * peak : best;
	r->rate[FO_DEVICE_PRODUCT] = (struct fo_interval){ 0.5 * best, 0.75 * best, best };
	r->rate[FO_DEVICE_PRODUCT_FP8] = (struct fo_interval){ 0.40 * fp8, 0.57 * fp8, 0.76 * fp8 };
	r->rate[FO_DEVICE_ATTENTION] = (struct fo_interval){ 0.20 * peak, 0.45 * peak, 0.71 * peak };
	r->rate[FO_DEVICE_ATTENTION_BACKWARD] = (struct fo_interval){ 0.18 * peak, 0.40 * peak, 0.61 * peak };
	r->rate[FO_DEVICE_FUSED] = (struct fo_interval){ 0.65 * memory, 0.79 * memory, 0.90 * memory };
	r->rate[FO_DEVICE_STREAM] = (struct fo_interval){ 0.75 * memory, 0.85 * memory, 0.92 * memory };
	r->keys0[0] = r->keys0[1] = 300;
	return true;
}

/* What is missing of the device; NULL: nothing. */
static const char *device_rates(struct fo_job *job, const struct fo_cluster *c, struct fo_device_rates *r)
{
	if (!c || !c->device)
		return "the device: give --cluster, for example 8xHGX-H100";
	bool half = isnan(c->device->dense[FO_PREC_BF16]);
	fo_status st = fo_device_rates_init(r, c->device);
	if (st == FO_OK)
		return NULL;
	fo_err_clear();
	if (other_rates(c->device, half, r))
		return NULL;
	return fo_arena_printf(&job->arena, "the peak and the memory bandwidth of %s", c->device->name);
}

struct rates {
	struct fo_interval of[RATES];
};

static struct fo_interval times(struct fo_interval x, double by)
{
	return (struct fo_interval){ x.low * by, x.mid * by, x.high * by };
}

static void rates_of(const struct fo_job *job, const struct fo_cluster *c, const struct fo_device_rates *r,
		     struct rates *out)
{
	memcpy(out->of, usual, sizeof usual);
	out->of[R_MATMUL] = r->rate[FO_DEVICE_PRODUCT];
	out->of[R_FP8] = r->rate[FO_DEVICE_PRODUCT_FP8];
	out->of[R_ATTENTION] = r->rate[FO_DEVICE_ATTENTION];
	out->of[R_ATTENTION_BACK] = r->rate[FO_DEVICE_ATTENTION_BACKWARD];
	out->of[R_FUSED] = r->rate[FO_DEVICE_FUSED];
	out->of[R_STREAM] = r->rate[FO_DEVICE_STREAM];
	/* cost/device.c has the rates of cuDNN's kernels on Hopper and Blackwell; FlashAttention 2, which PyTorch
	 * brings, reaches 0.35 of an H100's peak where those reach 0.65 (FlashAttention 3's paper). */
	double kernel = fo_job_number(job, FO_JOB_ATTENTION);
	if (r->peak_flop_s > 400e12 && kernel != FO_JOB_ATTENTION_FUSED) {
		out->of[R_ATTENTION].low *= 0.5;
		out->of[R_ATTENTION].mid *= 0.6;
		out->of[R_ATTENTION_BACK].low *= 0.5;
		out->of[R_ATTENTION_BACK].mid *= 0.6;
	}
	if (fo_job_is(job, FO_JOB_DTYPE, FO_JOB_MATMUL_FP32)) { /* vector units, or tf32 where it is allowed */
		double fp32 = c->device->dense[FO_PREC_FP32] * 1e12, tf32 = c->device->dense[FO_PREC_TF32] * 1e12;
		tf32 = isnan(tf32) ? fp32 : tf32;
		out->of[R_MATMUL] = (struct fo_interval){ 0.6 * fp32, 0.6 * fmax(fp32, tf32), 0.8 * fmax(fp32, tf32) };
	}
	/* One scale for each row costs: torchtitan and torchao measured 1.10 times bf16 where one scale for a tensor
	 * has 1.25 to 1.28. */
	double kind = fo_job_number(job, FO_JOB_FP8);
	if (kind == FO_JOB_FP8_ROWWISE || kind == FO_JOB_FP8_BLOCKWISE)
		out->of[R_FP8] = times(out->of[R_FP8], 0.75);
	if (kind == FO_JOB_FP4_ON) { /* 1.38 times the speed of whole fp8 steps (Megatron-Bridge, GB300) */
		struct fo_interval fp8 = out->of[R_FP8];
		out->of[R_FP8] = (struct fo_interval){ fp8.low, 1.5 * fp8.mid, 2 * fp8.high };
	}
	struct fo_range node = c->node_gb_s, net = c->net_gb_s;
	out->of[R_NODE] = (struct fo_interval){ usual[R_NODE].low * node.low * 1e9,
						usual[R_NODE].mid * fo_range_middle(node) * 1e9,
						usual[R_NODE].high * node.high * 1e9 };
	out->of[R_NET] = (struct fo_interval){ usual[R_NET].low * net.low * 1e9,
					       usual[R_NET].mid * fo_range_middle(net) * 1e9,
					       usual[R_NET].high * net.high * 1e9 };
}

/* Which rates does this work need that nobody knows? NULL: none. */
static const char *unknown_rate(const struct fo_job_work *w, const struct rates *r)
{
	struct fo_job_group all = fo_job_group_of(w->s.devices, 1, w->tp.in_node);
	(void)all;
	bool fp8 = w->forward.fp8.flop > 0;
	if (fp8 && isnan(r->of[R_FP8].mid))
		return "how fast this device multiplies in fp8: the catalogue has no such rate";
	bool spans = w->shard.n > w->shard.in_node || w->replicate.n > w->replicate.in_node ||
		     w->tp.n > w->tp.in_node || w->cp.n > w->cp.in_node || w->ep.n > w->ep.in_node ||
		     (w->s.pp > 1 && w->send_across);
	if (spans && isnan(r->of[R_NET].mid))
		return "the network between nodes";
	bool inside = w->s.devices > 1 && (w->shard.in_node > 1 || w->replicate.in_node > 1 || w->tp.in_node > 1 ||
					   w->cp.in_node > 1 || w->ep.in_node > 1 || (w->s.pp > 1 && !w->send_across));
	if (inside && isnan(r->of[R_NODE].mid))
		return "the links between devices of a node";
	return NULL;
}

/* ---- draws ---- */

enum { DRAWS = 64 };

/* A Latin hypercube: of every rate each of the 64 equal parts of its interval is drawn once, in an order that a
 * mixing of six bits gives and that differs from rate to rate. The same for every job, so that two jobs meet the same
 * machine. */
static double point(int draw, int rate)
{
	uint32_t key = (uint32_t)(rate + 1) * 2654435761u, x = (uint32_t)draw;
	for (int round = 0; round < 4; round++) {
		x = (x * ((key & 62) | 1) + (key >> 6)) % DRAWS; /* odd factors lose nothing */
		x ^= x >> 3;
		key = key * 1664525u + 1013904223u;
		key ^= key >> 15;
	}
	return (x + 0.5) / DRAWS;
}

/* Half of the draws below the middle. */
static double drawn(struct fo_interval of, double u)
{
	return u < 0.5 ? of.low + 2 * u * (of.mid - of.low) : of.mid + (2 * u - 1) * (of.high - of.mid);
}

/* ---- one draw ---- */

static double at(struct fo_job_moved m, double u) { return m.low + u * (m.high - m.low); }
static double flop_s(struct fo_job_flop f, double shape, double rate)
{
	return f.flop > 0 ? (f.flop + shape * (f.shaped - f.flop)) / rate : 0;
}

/* Few heads fill a device badly: cuDNN on an H200 gives 6.5 % less with 32 heads than with 64; on a B200 at most 8
 * heads reach a third of what 64 do (SimuMax's tables). */
#define FEW_HEADS 6
struct pass_time {
	double matmul, attention, memory, launches;
};
static struct pass_time pass_time(const struct fo_job_work *w, const struct fo_job_pass *p, const double *r, bool back)
{
	double grouped = w->grouped_fp8 ? r[R_FP8] : r[R_MATMUL];
	struct pass_time t = { .memory = (at(p->memory, r[R_PLAIN]) + p->casts) / r[R_FUSED] };
	t.matmul = flop_s(p->bf16, r[R_SHAPE], r[R_MATMUL]) + flop_s(p->fp8, r[R_SHAPE], r[R_FP8]) +
		   r[R_GROUPED] * flop_s(p->grouped, r[R_SHAPE], grouped);
	double core = flop_s(p->core, r[R_SHAPE], r[R_MATMUL]);
	double few = 1 + r[R_SHAPE] * FEW_HEADS / w->heads, ring = w->torch_ring ? r[R_RING] : 1;
	t.attention = few * ring * p->attention / (back ? r[R_ATTENTION_BACK] : r[R_ATTENTION]) +
		      p->scores / r[R_FUSED] + core;
	t.launches = at(p->launches, r[R_PLAIN]);
	return t;
}
static double sum(struct pass_time t) { return t.matmul + t.attention + t.memory; }

/* What communication costs beside compute: what is left when `overlaps` of it hides behind `compute`, and what its
 * multiprocessors take from compute. */
static double exposed(double comm, double compute, double overlaps, const double *r)
{
	double hidden = overlaps * fmin(comm, r[R_HIDDEN] * compute);
	return comm - hidden + r[R_CONTEND] * hidden;
}

static void data_time(const struct fo_job_work *w, const double *r, struct fo_job_links l, double forward,
		      double backward, double *part)
{
	double m = w->s.micro_batches;
	double ahead = at(w->overlap_gather, r[R_UNKNOWN]), behind = at(w->overlap_reduce, r[R_UNKNOWN]);
	double gather = fo_job_gather_s(w->shard, l, w->gather_bytes),
	       reduce = fo_job_gather_s(w->shard, l, w->reduce_bytes);
	double all = fo_job_all_reduce_s(w->replicate, l, w->sum_bytes);
	if (w->zero == 0)
		gather = reduce = 0;
	/* The first unit's gather and the last one's reduction have nothing to hide behind. */
	double unit = 1 / (w->layers + 1);
	double runs = w->gathers, back = w->gathers_back;
	double steps = fmax(runs, back);
	double hide_forward = w->zero == 3 && runs < m ? forward * m / fmax(1, runs) : forward;
	double t = runs * (unit * gather + exposed((1 - unit) * gather, hide_forward, ahead, r));
	double each = (steps > 0 && back > 0 ? gather : 0) + reduce * w->reduces / fmax(1, fmax(back, w->reduces)) +
		      all * (w->reduces > 0) / fmax(1, fmax(back, w->reduces));
	double times_back = fmax(back, w->reduces);
	t += times_back * (unit * each + exposed((1 - unit) * each, backward, behind, r));
	part[FO_JOB_TIME_DATA] = t + w->copied / r[R_FUSED];
}

static void once_a_step(const struct fo_job_work *w, const double *r, double forward_backward, double *part)
{
	double device = w->elements * at(w->update, r[R_PLAIN]) / r[R_STREAM],
	       host = w->graphs ? 0 : w->update_launches * r[R_LAUNCH];
	part[FO_JOB_TIME_OPTIMIZER] = fmax(device, host);
	double copies = w->to_host / r[R_PCIE] + w->from_host / r[R_PCIE];
	double kept = 2 * w->host_kept * w->s.micro_batches / r[R_PCIE];
	part[FO_JOB_TIME_OFFLOAD] = copies + w->on_host / r[R_HOST] + fmax(0, kept - r[R_HIDDEN] * forward_backward) +
				    r[R_CONTEND] * kept;
}

/* Seconds of one step at one draw of rates, by parts. */
static double step_time(const struct fo_job_work *w, const double *r, double *part)
{
	const struct fo_job_shape *s = &w->s;
	struct fo_job_links l = { r[R_NODE], r[R_NET] };
	double m = s->micro_batches;
	struct pass_time f = pass_time(w, &w->forward, r, false), b = pass_time(w, &w->backward, r, true),
			 a = pass_time(w, &w->again, r, false);
	b.matmul += r[R_SUMS] * w->added / r[R_FUSED];
	double slow = 1 + r[R_STRAGGLER] * sqrt(2 * log(fmax(1, s->devices)));
	double head = flop_s(w->head[0], r[R_SHAPE], r[R_MATMUL]) + flop_s(w->head[1], r[R_SHAPE], r[R_MATMUL]);
	double loss = at(w->loss, r[R_PLAIN]) / r[R_STREAM];

	double one = fo_job_gather_s(w->tp, l, w->tp_bytes), left = w->tp_overlap ? 1 - r[R_ASYNC] : 1;
	double tp_forward = left * w->tp_times[0] * one, tp_back = left * w->tp_times[1] * one,
	       tp_again = left * w->tp_times[2] * one;
	/* Megatron reduces the input's gradient while it multiplies the weight's: Korthikanti et al. 2022, table 4,
	 * have 7.7 ms forward and 11.9 backward, twice the forward without its communication. */
	if (w->tp_back_overlap)
		tp_back = exposed(tp_back, b.matmul / 2, 1, r);
	/* A ring of keys and values hides behind the attention of the block before. */
	double cp = exposed(fo_job_gather_s(w->cp, l, w->cp_bytes[0]), f.attention, 1, r) +
		    exposed(fo_job_gather_s(w->cp, l, w->cp_bytes[1]), b.attention, 1, r);
	double send = fo_job_all_to_all_s(w->ep, l, w->ep_bytes);
	double ep = (w->ep_times[0] + w->ep_times[1] + w->ep_times[2]) * send * (w->ep_overlap ? 1 - r[R_ASYNC] : 1);

	double forward = slow * sum(f) + tp_forward + cp / 3 + ep / 2;
	double backward = slow * (sum(b) + sum(a)) + tp_back + tp_again + 2 * cp / 3 + ep / 2;
	double launches = f.launches + b.launches + a.launches;
	double host = w->graphs ? 0 : fmax(0, launches * r[R_LAUNCH] - forward - backward);
	host += launches * r[R_GAP];
	double stage = forward + backward + host, ends = slow * (head + loss), busiest = stage;
	/* The last stage has the head beside its layers, or fewer layers where these do not divide evenly. */
	double of_last = 1 - fmin(1, (s->pp * w->layers - w->m.layers) / w->layers);
	busiest = fmax(stage, of_last * stage + ends);
	double wait = busiest - stage; /* beyond the ordinary stage; all of `ends` without a pipeline */
	double pipeline = r[R_SCHEDULE] * w->bubble * stage;
	if (s->pp > 1) {
		double hop = fo_job_send_s(w->send_across, l, w->send_bytes);
		pipeline += (w->send_overlap ? 0.2 : 1) * 2 * m * s->chunks * hop + 2 * (s->pp - 1) * hop + m * wait;
	}
	part[FO_JOB_TIME_MATMUL] = m * slow * (f.matmul + b.matmul + (s->pp > 1 ? 0 : head));
	part[FO_JOB_TIME_ATTENTION] = m * slow * (f.attention + b.attention);
	part[FO_JOB_TIME_MEMORY] = m * slow * (f.memory + b.memory);
	part[FO_JOB_TIME_LOSS] = s->pp > 1 ? 0 : m * slow * loss;
	part[FO_JOB_TIME_RECOMPUTE] = m * (slow * sum(a) + tp_again);
	part[FO_JOB_TIME_TENSOR] = m * (tp_forward + tp_back);
	part[FO_JOB_TIME_CONTEXT] = m * cp;
	part[FO_JOB_TIME_EXPERT] = m * ep;
	part[FO_JOB_TIME_PIPELINE] = pipeline;
	part[FO_JOB_TIME_HOST] = m * host;
	data_time(w, r, l, forward, backward, part);
	once_a_step(w, r, m * (forward + backward), part);
	double total = 0;
	for (int i = 0; i < FO_JOB_TIMES; i++) {
		part[i] *= r[R_REST];
		total += part[i];
	}
	return total;
}

/* ---- many draws ---- */

struct ready {
	struct fo_device_rates device;
	struct fo_job_work work;
	struct rates rates;
};

static const char *prepare(struct fo_job *job, const struct fo_cluster *c, struct ready *g)
{
	const char *missing = device_rates(job, c, &g->device);
	if (!missing)
		missing = fo_job_work_of(job, c, &g->device, &g->work);
	if (missing)
		return missing;
	rates_of(job, c, &g->device, &g->rates);
	return unknown_rate(&g->work, &g->rates);
}

static void draw(const struct ready *g, int n, double *r)
{
	for (int i = 0; i < RATES; i++)
		r[i] = drawn(g->rates.of[i], point(n, i));
}

/* All but the two draws at each end: 60 of 64. */
static struct fo_range spread(double *v)
{
	enum { TAIL = 2 };
	for (int i = 1; i < DRAWS; i++) {
		double x = v[i];
		int at = i;
		for (; at > 0 && v[at - 1] > x; at--)
			v[at] = v[at - 1];
		v[at] = x;
	}
	return (struct fo_range){ v[TAIL], v[DRAWS - 1 - TAIL] };
}

void fo_job_step_of(struct fo_job *job, const struct fo_cluster *c, struct fo_job_step *o)
{
	struct ready g;
	*o = (struct fo_job_step){
		.total = fo_range(NAN), .tokens_s = fo_range(NAN), .mfu = fo_range(NAN), .mfu_causal = fo_range(NAN)
	};
	for (int i = 0; i < FO_JOB_TIMES; i++)
		o->part[i] = o->share[i] = fo_range(NAN);
	o->unknown = prepare(job, c, &g);
	if (o->unknown)
		return;
	double total[DRAWS], part[FO_JOB_TIMES][DRAWS], share[FO_JOB_TIMES][DRAWS], one[FO_JOB_TIMES], r[RATES];
	for (int n = 0; n < DRAWS; n++) {
		draw(&g, n, r);
		total[n] = step_time(&g.work, r, one);
		for (int i = 0; i < FO_JOB_TIMES; i++) {
			part[i][n] = one[i];
			share[i][n] = one[i] / total[n];
		}
	}
	for (int i = 0; i < FO_JOB_TIMES; i++) {
		o->part[i] = spread(part[i]);
		o->share[i] = spread(share[i]);
	}
	o->total = spread(total);
	if (!isfinite(o->total.high) || !(o->total.low > 0)) {
		o->unknown = "a setting whose value is out of range";
		o->total = fo_range(NAN);
		for (int i = 0; i < FO_JOB_TIMES; i++)
			o->part[i] = o->share[i] = fo_range(NAN);
		return;
	}
	const struct fo_job_shape *s = &g.work.s;
	o->tokens_s = fo_range_over(fo_range(s->tokens / s->devices), o->total);
	struct fo_flop flop = fo_model_flop_per_token(&job->model, (int64_t)s->seq);
	if (fo_job_adapters(job)) { /* no gradients of frozen weights: 2 FLOP of 6 for each */
		double less = flop.mfu_6n / 3;
		flop.mfu -= less;
		flop.mfu_causal -= less;
	}
	o->mfu = fo_range_scaled(flop.mfu / g.device.peak_flop_s, o->tokens_s);
	o->mfu_causal = fo_range_scaled(flop.mfu_causal / g.device.peak_flop_s, o->tokens_s);
}

void fo_job_what_if(struct fo_job *job, const struct fo_cluster *c, const struct fo_job_change *change, int changes,
		    struct fo_job_gain *out)
{
	struct ready before, after;
	struct fo_job to;
	*out = (struct fo_job_gain){ .times = fo_range(NAN) };
	fo_job_copy(&to, job);
	for (int i = 0; i < changes; i++)
		fo_job_set(&to, change[i].setting, change[i].number);
	fo_job_memory_of(&to, c, &out->memory);
	out->unknown = prepare(job, c, &before);
	if (!out->unknown)
		out->unknown = prepare(&to, c, &after);
	if (!out->unknown) {
		double ratio[DRAWS], part[FO_JOB_TIMES], r[RATES];
		double tokens = after.work.s.tokens / after.work.s.devices /
				(before.work.s.tokens / before.work.s.devices);
		for (int n = 0; n < DRAWS; n++) {
			draw(&before, n, r);
			double was = step_time(&before.work, r, part);
			draw(&after, n, r);
			ratio[n] = tokens * was / step_time(&after.work, r, part);
		}
		out->times = spread(ratio);
		if (!isfinite(out->times.high) || !(out->times.low > 0))
			out->unknown = "a setting whose value is out of range";
	}
	if (out->unknown) {
		out->times = fo_range(NAN);
		out->unknown = fo_arena_strdup(&job->arena, out->unknown);
	}
	if (out->memory.unknown)
		out->memory.unknown = fo_arena_strdup(&job->arena, out->memory.unknown);
	fo_job_fini(&to);
}
