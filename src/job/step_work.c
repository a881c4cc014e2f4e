/* What one step computes, moves and sends: counted once for a job, before rates are drawn. */
#include "job/step_int.h"

#include <string.h>

struct count {
	struct fo_job *job;
	const struct fo_cluster *c;
	const struct fo_device_rates *r;
	struct fo_job_work *w;
	enum fo_job_style style;
	double tokens; /* of a micro-batch on a device: sequence divided by CP */
	bool fp8, sp;
	bool fp8_tp; /* what tensor parallelism gathers is fp8, and cast before */
};

/* Rows of 128 bytes fill a tile's lines. BLOOM's search has 120 TFLOP/s with a hidden size of 13,824 and 94 with
 * 14,400, which tensor parallelism divides to 1,800: 1.28 times. */
static double crooked(double n) { return fmod(n, 64) == 0 ? 1 : 1.35; }

static struct fo_job_flop matmul(const struct count *k, double times, double m, double n, double d)
{
	double flop = 2 * m * n * d, shape = fo_device_shape_cost(k->r, m, n, d);
	return (struct fo_job_flop){ times * flop, times * flop * shape * fmax(crooked(n), crooked(d)) };
}
static void add(struct fo_job_flop *sum, struct fo_job_flop x, double times)
{
	sum->flop += times * x.flop;
	sum->shaped += times * x.shaped;
}

/* ---- matmuls ---- */

/* A linear layer of n outputs from d inputs: forward, and its two products of backward. For fp8 each factor is read
 * once more for its largest magnitude (2 bytes) and written as fp8 (1), and once more turned, because the products of
 * backward run along other lines (1); the kernel before it makes the first reading its own where it can. */
#define CAST_BYTES 4.0
static void linear(struct count *k, double times, double n, double d)
{
	struct fo_job_work *w = k->w;
	double t = k->tokens;
	struct fo_job_flop *forward = k->fp8 ? &w->forward.fp8 : &w->forward.bf16;
	struct fo_job_flop *backward = k->fp8 ? &w->backward.fp8 : &w->backward.bf16;
	add(forward, matmul(k, times, t, n, d), 1);
	add(backward, matmul(k, times, t, d, n), 1);
	/* A frozen weight has no gradient: 4 N FLOP a token in place of 6 N (Schulman et al., LoRA Without Regret,
	 * 2025: two thirds of full fine-tuning). */
	if (!fo_job_adapters(k->job))
		add(backward, matmul(k, times, n, d, t), 1);
	if (!k->fp8)
		return;
	double weight = fo_job_is(k->job, FO_JOB_FP8_PRECOMPUTE, 1) ? CAST_BYTES - 2 : CAST_BYTES, each = CAST_BYTES;
	if (k->style == FO_JOB_STYLE_MEGATRON) { /* norms write fp8; weights are cast once a step */
		each -= 2;
		weight /= fmax(1, w->s.micro_batches);
	}
	double input = k->fp8_tp ? each * t * d / w->s.tp : each * t * d;
	w->forward.casts += times * (input + weight * n * d);
	w->backward.casts += times * each * t * n;
}

static void experts(struct count *k, double layers)
{
	const struct fo_job_counts *m = &k->w->m;
	const struct fo_job_shape *s = &k->w->s;
	if (layers == 0)
		return;
	double here = m->experts / s->ep, rows = k->tokens * m->active / here * s->etp / s->tp,
	       width = m->expert_ffn / s->etp;
	double gates = m->matrices - 1;
	struct fo_job_flop *forward = &k->w->forward.grouped, *backward = &k->w->backward.grouped;
	rows = fmax(1, rows);
	add(forward, matmul(k, layers * here * gates, rows, width, m->h), 1);
	add(forward, matmul(k, layers * here, rows, m->h, width), 1);
	add(backward, matmul(k, layers * here * gates, rows, m->h, width), 1);
	add(backward, matmul(k, layers * here, rows, width, m->h), 1);
	if (fo_job_adapters(k->job))
		return;
	add(backward, matmul(k, layers * here * gates, width, m->h, rows), 1);
	add(backward, matmul(k, layers * here, m->h, width, rows), 1);
}

static void attention_linears(struct count *k, double layers)
{
	const struct fo_job_counts *m = &k->w->m;
	double tp = k->w->s.tp;
	if (m->mla) {
		if (m->q_lora > 0)
			linear(k, layers, m->q_lora, m->h), linear(k, layers, m->q / tp, m->q_lora);
		else
			linear(k, layers, m->q / tp, m->h);
		linear(k, layers, m->kv_lora + m->rope_dim, m->h);
		linear(k, layers, (m->kv - m->heads * m->rope_dim + m->v) / tp, m->kv_lora);
	} else if (fo_job_or(k->job, FO_JOB_MERGED_QKV, k->style == FO_JOB_STYLE_MEGATRON) != 0)
		linear(k, layers, (m->q + 2 * m->kv) / tp, m->h);
	else {
		linear(k, layers, m->q / tp, m->h);
		linear(k, 2 * layers, m->kv / tp, m->h);
	}
	linear(k, layers, m->h, m->v / tp);
}

static void matmuls(struct count *k, const struct fo_job_stage *stage)
{
	const struct fo_job_counts *m = &k->w->m;
	double tp = k->w->s.tp, gates = m->matrices - 1;
	attention_linears(k, stage->layers);
	if (stage->dense > 0) {
		linear(k, gates * stage->dense, m->ffn / tp, m->h);
		linear(k, stage->dense, m->h, m->ffn / tp);
	}
	if (stage->moe > 0 && m->shared_ffn > 0) {
		linear(k, gates * stage->moe, m->shared_ffn / tp, m->h);
		linear(k, stage->moe, m->h, m->shared_ffn / tp);
	}
	experts(k, stage->moe);
	k->w->head[0] = matmul(k, 1, k->tokens, m->vocab / tp, m->h);
	add(&k->w->head[1], matmul(k, 1, k->tokens, m->h, m->vocab / tp), 1);
	if (!fo_job_adapters(k->job) || k->job->value[FO_JOB_ADAPTER_WHOLE].text)
		add(&k->w->head[1], matmul(k, 1, m->vocab / tp, m->h, k->tokens), 1);
}

/* ---- attention ---- */

static void attention(struct count *k, double layers)
{
	struct fo_job_work *w = k->w;
	double s = w->s.seq, window = (double)k->job->model.sliding_window, keys = s / 2;
	if (window > 0 && window < s)
		keys = window - window * window / (2 * s);
	/* q k' and p v: 2 FLOP for each of (q + v), a key and a query. Backward makes the scores again: 5 for 2. */
	double flop = 2 * k->tokens * keys * (w->m.q + w->m.v) / w->s.tp * layers;
	w->eager_attention = fo_job_scores_stored(k->job);
	w->heads = w->m.heads / w->s.tp;
	w->torch_ring = w->s.cp > 1 && k->style == FO_JOB_STYLE_TORCH;
	if (w->eager_attention) { /* all pairs, no mask saves any; forward writes them (2), softmax
		 * and dropout read and write (9), the second matmul reads (2); backward some 22 */
		double pairs = k->tokens * s * w->m.heads / w->s.tp * layers;
		flop *= s / keys;
		double shape = (fo_device_shape_cost(k->r, s, s, w->m.head_dim) +
				fo_device_shape_cost(k->r, s, w->m.head_dim, s)) /
			       2;
		w->forward.core = (struct fo_job_flop){ flop, shape * flop };
		w->backward.core = (struct fo_job_flop){ 2 * flop, 2 * shape * flop };
		w->forward.scores = 13 * pairs;
		w->backward.scores = 22 * pairs;
		return;
	}
	w->forward.attention = flop * (1 + k->r->keys0[0] / (2 * keys));
	w->backward.attention = 2.5 * flop * (1 + k->r->keys0[1] / (2 * keys));
}

/* ---- what is bound by memory ---- */

static double between(struct fo_range u, bool high, double fused, double plain)
{
	double at = high ? u.high : u.low;
	return fused + at * (plain - fused);
}

/* Bytes of one token in one layer's forward, fused and written out (16-bit values, 2 bytes read or written):
 *   norms     read and write; RMSNorm written out in fp32: 34 bytes an element for 4 (cast, square, mean, scale,
 *             cast, weight); LayerNorm is one kernel in PyTorch, with casts around it where it runs in fp32: 12
 *   residual  read two, write one: 6, one of both inside the norm's kernel where that is fused
 *   rotation  read and write 4; written out in fp32: 20
 *   SwiGLU    6 an element of the feed-forward; written out 10 */
static double token_bytes(const struct count *k, bool moe, bool high)
{
	const struct fo_job_counts *m = &k->w->m;
	struct fo_job_fusion f = fo_job_fusion_of(k->job);
	double tp = k->w->s.tp, wide = k->sp ? tp : 1;
	double width = moe ? (m->active * m->expert_ffn + m->shared_ffn) / tp : m->ffn / tp;
	double drops = fo_job_or(k->job, FO_JOB_DROPOUT, 0) > 0 ? 2 * 3 : 0; /* masks and what they are applied to */
	double plain_norm = m->layer_norm ? 12 : 34;
	double act = m->gated ? 6 : 4;
	double plain_act = m->gated ? 10 : 6;
	double norms = (drops + 2 * between(f.norm, high, 4, plain_norm) + between(f.norm, high, 10, 12)) * m->h / wide;
	double ropes = between(f.rope, high, 4, 20) * (m->mla ? m->heads * m->rope_dim : m->q + m->kv) / tp;
	double acts = between(f.activation, high, act, plain_act) * width;
	/* Tokens are sorted to their experts and back, with their weights. */
	double sorted = moe ? m->active * 12 * m->h / wide : 0;
	return norms + ropes + acts + sorted;
}

/* Kernels of one layer's forward: some 12 where all is fused, 45 where nothing is; the experts' sorting adds 20. */
static double kernels(const struct count *k, bool moe, bool high)
{
	struct fo_job_fusion f = fo_job_fusion_of(k->job);
	double parts = between(f.norm, high, 0, 16) + between(f.rope, high, 0, 12) + between(f.activation, high, 0, 2);
	return 13 + parts + (moe ? 20 : 0);
}

static void memory_bound(struct count *k, const struct fo_job_stage *stage)
{
	struct fo_job_work *w = k->w;
	for (int high = 0; high < 2; high++) {
		double bytes = stage->dense * token_bytes(k, false, high) + stage->moe * token_bytes(k, true, high);
		double n = stage->dense * kernels(k, false, high) + stage->moe * kernels(k, true, high);
		double *to[] = { &w->forward.memory.low,    &w->forward.memory.high,   &w->backward.memory.low,
				 &w->backward.memory.high,  &w->forward.launches.low,  &w->forward.launches.high,
				 &w->backward.launches.low, &w->backward.launches.high };
		*to[high] = k->tokens * bytes;
		*to[2 + high] = 2 * k->tokens * bytes;
		*to[4 + high] = n + 4;
		*to[6 + high] = 2 * n + 4;
	}
	/* Loss: bf16 logits read, their gradient written, read twice more where the row does not stay in a cache;
	 * written out: cast, softmax, its logarithm, gradient, cast. */
	struct fo_job_fusion f = fo_job_fusion_of(k->job);
	double logits = k->tokens * w->m.vocab / w->s.tp;
	w->loss = (struct fo_job_moved){ between(f.loss, false, 6, 30) * logits,
					 between(f.loss, true, 8, 36) * logits };
}

/* ---- adapters ---- */

/* Beside a frozen linear layer of n outputs from d inputs, written out: the input is copied by dropout and read (6 d
 * bytes of a token), the product is written, scaled and added (10 n), and backward the same twice; 6 kernels. Their own
 * matmuls are rank / d of the layer's. Frozen weights in 4 or 8 bits are written out in 16 before each use. */
static void adapters(struct count *k, const struct fo_job_stage *stage)
{
	struct fo_job_work *w = k->w;
	const struct fo_job_counts *m = &w->m;
	double tp = w->s.tp, width = stage->moe > 0 ? m->active * m->expert_ffn + m->shared_ffn : m->ffn;
	double in = 4 * m->h + m->q / tp + (m->matrices - 1) * m->h + width / tp;
	double out = (m->q + 2 * m->kv) / tp + 2 * m->h + (m->matrices - 1) * width / tp;
	double most = k->tokens * stage->layers * (6 * in + 10 * out),
	       least = 0.2 * most; /* queries and values alone */
	double kernels = 6 * stage->layers * (4 + m->matrices);
	struct fo_job_pass *pass[] = { &w->forward, &w->backward };
	for (int i = 0; i < 2; i++) {
		pass[i]->memory.low += (i + 1) * least;
		pass[i]->memory.high += (i + 1) * most;
		pass[i]->launches.low += (i + 1) * 0.3 * kernels;
		pass[i]->launches.high += (i + 1) * kernels;
	}
	double base = fo_job_base_bytes(k->job).high, whole = stage->whole + stage->experts - stage->end;
	if (base < 2) {
		w->forward.casts += (base + 2) * fmax(0, whole);
		w->backward.casts += (base + 2) * fmax(0, whole);
	}
}

/* ---- recomputation ---- */

static void scaled(struct fo_job_pass *to, const struct fo_job_pass *from, double matmuls, double attention,
		   double rest)
{
	add(&to->bf16, from->bf16, matmuls);
	add(&to->fp8, from->fp8, matmuls);
	add(&to->grouped, from->grouped, matmuls);
	add(&to->core, from->core, attention);
	to->attention = attention * from->attention;
	to->scores = attention * from->scores;
	to->memory = (struct fo_job_moved){ rest * from->memory.low, rest * from->memory.high };
	to->casts = matmuls * from->casts;
	to->launches = (struct fo_job_moved){ fmax(matmuls, rest) * from->launches.low,
					      fmax(matmuls, rest) * from->launches.high };
}

/* Shares of a Llama layer's forward: every second matmul (keys, output, up) in torchtitan's "op". */
static double every_second(const struct fo_job_counts *m)
{
	double all = m->h * (m->q + 2 * m->kv + m->v + m->matrices * m->ffn);
	double again = m->h * (m->kv + m->v + (m->gated ? m->ffn : 0));
	return again / all;
}

static void recompute(struct count *k)
{
	struct fo_job_work *w = k->w;
	struct fo_job_recompute r = fo_job_recompute_of(k->job);
	double share = r.share, comm = 0;
	switch (r.mode) {
	case FO_JOB_AGAIN_FULL:
	case FO_JOB_AGAIN_NTH:
		scaled(&w->again, &w->forward, share, share, share);
		comm = share;
		break;
	case FO_JOB_AGAIN_EVERY_OP:
		scaled(&w->again, &w->forward, every_second(&w->m), 0, 1);
		comm = 0.5; /* gathers are repeated, reduce-scatters kept */
		break;
	case FO_JOB_AGAIN_CORE: {
		double ffn = w->m.matrices * w->m.h * w->m.ffn, layer = ffn + w->m.attention;
		/* Of a layer's bytes bound by memory, norms are some 0.3, activations 0.4. */
		double rest = 0.3 * r.norm + 0.4 * (r.ffn || r.activation);
		scaled(&w->again, &w->forward, r.ffn * ffn / layer, r.core, rest);
		if (r.expert)
			w->again.grouped = w->forward.grouped;
		break;
	}
	default: break;
	}
	w->tp_times[2] = comm * w->tp_times[0];
	w->ep_times[2] = comm * w->ep_times[0];
}

/* ---- communication ---- */

static void model_parallel(struct count *k, const struct fo_job_stage *stage)
{
	struct fo_job_work *w = k->w;
	const struct fo_job_shape *s = &w->s;
	double node = k->c->per_node, layers = stage->layers;
	w->tp = fo_job_group_of(s->tp, 1, node);
	w->cp = fo_job_group_of(s->cp, s->tp, node);
	w->ep = fo_job_group_of(s->ep, s->etp, node);
	/* Two blocks of a layer, each a gather and a reduce-scatter (or an all-reduce, which is both). */
	w->tp_bytes = 2 * k->tokens * w->m.h;
	w->tp_times[0] = w->tp_times[1] = 4 * layers;
	if (k->fp8_tp)
		w->tp_times[0] = 3 * layers; /* the gathers are of half the bytes */
	/* Keys and values of the whole sequence pass each rank; backward also their gradients. */
	w->cp_bytes[0] = s->cp > 1 ? 2 * 2 * k->tokens * s->cp * w->m.kv / s->tp * layers : 0;
	w->cp_bytes[1] = 2 * w->cp_bytes[0];
	w->ep_bytes = 2 * k->tokens * w->m.active * w->m.h / (k->sp ? s->tp : 1);
	w->ep_times[0] = w->ep_times[1] = s->ep > 1 ? 2 * stage->moe : 0;
	if (s->pp > 1)
		w->send_bytes = 2 * k->tokens * w->m.h / (k->sp ? s->tp : 1);
	w->send_across = s->tp * s->cp * s->dp >= node;
	w->tp_overlap = fo_job_is(k->job, FO_JOB_TP_OVERLAP, 1);
	w->tp_back_overlap = k->style == FO_JOB_STYLE_MEGATRON;
	w->ep_overlap = fo_job_is(k->job, FO_JOB_EP_OVERLAP, 1);
	/* Interleaved schedules of Megatron overlap their transfers by default; plain 1F1B cannot. */
	w->send_overlap = fo_job_or(k->job, FO_JOB_PP_OVERLAP, s->chunks > 1) != 0;
	double idle = (s->pp - 1) / s->chunks;
	if (fo_job_is(k->job, FO_JOB_PP_SCHEDULE, FO_JOB_SCHEDULE_ZERO_BUBBLE))
		idle = (s->pp - 1) / 3; /* ZB-H1: forward + input gradient - weight gradient, of three equal parts */
	w->bubble = s->pp > 1 ? idle : 0;
}

static struct fo_job_moved overlap(const struct count *k, enum fo_job_setting s)
{
	double v = fo_job_number(k->job, s);
	if (!isnan(v))
		return (struct fo_job_moved){ v != 0, v != 0 };
	if (k->style == FO_JOB_STYLE_TORCH) /* DDP and FSDP do */
		return (struct fo_job_moved){ 1, 1 };
	return (struct fo_job_moved){ 0, 1 };
}

static void data_parallel(struct count *k, const struct fo_job_stage *stage)
{
	struct fo_job_work *w = k->w;
	const struct fo_job_shape *s = &w->s;
	double whole = stage->whole + stage->experts, m = s->micro_batches, node = k->c->per_node;
	double reduce = fo_job_number(k->job, FO_JOB_GRAD_REDUCE), kept = fo_job_number(k->job, FO_JOB_GRAD_ACCUMULATE);
	double of_grad = k->style == FO_JOB_STYLE_DEEPSPEED ? 2 : 4;
	if (!isnan(reduce))
		of_grad = reduce == FO_JOB_FP32 ? 4 : 2;
	else if (!isnan(kept))
		of_grad = kept == FO_JOB_FP32 ? 4 : 2;
	w->zero = fo_job_zero(k->job, s);
	w->shard = fo_job_group_of(w->zero > 0 ? s->shard : 1, s->tp, node);
	w->replicate = fo_job_group_of(w->zero > 0 ? s->replicate : s->dp * s->cp, s->tp * fmax(1, s->shard), node);
	/* 16-bit weights; fp8 ones where only those are gathered, the ends stay 16-bit. */
	w->gather_bytes = 2 * whole;
	struct fo_range trained = { whole, whole };
	if (fo_job_adapters(k->job)) { /* frozen weights are gathered as they are kept, and never reduced */
		trained = fo_job_adapter_weights(k->job, &w->m, stage, s->tp);
		w->gather_bytes = fmin(2, fo_job_base_bytes(k->job).low) * whole;
	}
	double reduced = fo_range_middle(trained);
	if (k->fp8 && fo_job_is(k->job, FO_JOB_FP8_GATHER, 1))
		w->gather_bytes = whole + (stage->first || stage->last ? stage->end : 0);
	w->reduce_bytes = of_grad * reduced;
	w->sum_bytes = of_grad * reduced / fmax(1, w->shard.n);
	bool keeps = fo_job_is(k->job, FO_JOB_RESHARD, 0) || (s->pp > 1 && !fo_job_is(k->job, FO_JOB_RESHARD, 1));
	w->gathers = w->reduces = 1;
	if (w->zero == 3) {
		w->gathers = s->pp > 1 && keeps ? 1 : m;
		w->gathers_back = keeps ? 0 : m;
	}
	if (w->zero == 3)
		w->reduces = s->pp > 1 && k->style == FO_JOB_STYLE_TORCH ? 1 : m;
	if (w->zero == 2 && k->style == FO_JOB_STYLE_DEEPSPEED)
		w->reduces = m;
	/* Megatron and DeepSpeed add each micro-batch's gradient to a sum that is read and written. */
	w->added = k->style == FO_JOB_STYLE_TORCH && w->zero == 3 ? 0 : 2 * of_grad * reduced;
	/* FSDP copies what it has gathered out of one buffer (read, written: 4 bytes a weight), and gradients into
	 * another (16-bit, and the type of the reduction). */
	if (w->zero == 3)
		w->copied = (w->gathers + w->gathers_back) * 4 * whole + w->reduces * (2 + of_grad) * reduced;
	w->overlap_reduce = overlap(k, FO_JOB_GRAD_OVERLAP);
	w->overlap_gather = overlap(k, w->zero == 3 ? FO_JOB_PREFETCH : FO_JOB_PARAM_OVERLAP);
	if (w->zero == 3 && !fo_job_known(k->job, FO_JOB_PREFETCH))
		w->overlap_gather = (struct fo_job_moved){ 1, 1 }; /* backward does so in every one */
}

/* ---- once a step ---- */

/* AdamW reads the weight, its gradient and two moments and writes three of them back: 28 bytes in fp32. A list of
 * separate operations (foreach, a loop) does some twenty passes over 4 bytes. */
static void update(struct count *k, const struct fo_job_stage *stage)
{
	struct fo_job_work *w = k->w;
	double whole = stage->whole + stage->experts, fused = fo_job_number(k->job, FO_JOB_OPTIMIZER_FUSED);
	bool torch = k->style == FO_JOB_STYLE_TORCH || k->style == FO_JOB_STYLE_UNKNOWN;
	if (fo_job_adapters(k->job))
		whole = fo_range_middle(fo_job_adapter_weights(k->job, &w->m, stage, w->s.tp));
	w->elements = whole / (w->zero >= 1 ? fmax(1, w->shard.n) : 1);
	w->update = (struct fo_job_moved){ 28, 32 };
	w->update_launches = 20;
	if (fused == 0 || (isnan(fused) && torch)) {
		w->update = (struct fo_job_moved){ fused == 0 ? 70 : 28, 90 };
		w->update_launches = fused == 0 ? 12 * 8 * w->layers : 20;
	}
	if (!(fo_job_or(k->job, FO_JOB_CLIP, 1) == 0)) { /* the norm reads, clipping reads and writes */
		w->update.low += 4;
		w->update.high += 12;
	}
	if (fo_job_is(k->job, FO_JOB_OFFLOAD_OPTIMIZER, 1)) {
		w->to_host = 4 * w->elements;
		w->from_host = 2 * w->elements;
		w->on_host = 30 * w->elements;
		w->update = (struct fo_job_moved){ 4, 4 };
	}
	if (fo_job_is(k->job, FO_JOB_OFFLOAD_PARAMS, 1))
		w->from_host += 2 * (w->gathers + w->gathers_back) * w->elements;
}

const char *fo_job_work_of(struct fo_job *job, const struct fo_cluster *c, const struct fo_device_rates *r,
			   struct fo_job_work *w)
{
	*w = (struct fo_job_work){ 0 };
	fo_job_shape_of(job, c, &w->s);
	if (!job->has_model)
		return job->model_missing ? job->model_missing : "the model";
	if (w->s.wrong)
		return w->s.wrong;
	if (w->s.unknown)
		return w->s.unknown;
	fo_job_counts_of(&job->model, &w->m);
	struct count k = { .job = job, .c = c, .r = r, .w = w, .style = fo_job_style_of(job) };
	k.tokens = w->s.micro_batch * w->s.seq / w->s.cp;
	k.fp8 = fo_job_small_types(job);
	k.sp = w->s.tp > 1 && fo_job_or(job, FO_JOB_SEQUENCE_PARALLEL, k.style == FO_JOB_STYLE_TORCH) != 0;
	/* torchtitan does so with one scale for a tensor, not with one for a row. */
	k.fp8_tp = k.sp && k.style == FO_JOB_STYLE_TORCH && fo_job_is(job, FO_JOB_FP8, FO_JOB_FP8_TENSORWISE);
	w->grouped_fp8 = k.fp8;
	w->graphs = fo_job_is(job, FO_JOB_CUDA_GRAPHS, 1);
	struct fo_job_stage stage;
	fo_job_stage_of(&w->m, &w->s, w->s.pp > 2 ? 1 : 0, &stage);
	w->layers = stage.layers;
	matmuls(&k, &stage);
	attention(&k, stage.layers);
	memory_bound(&k, &stage);
	if (fo_job_adapters(job))
		adapters(&k, &stage);
	model_parallel(&k, &stage);
	recompute(&k);
	data_parallel(&k, &stage);
	update(&k, &stage);
	if (fo_job_is(job, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_OFFLOAD)) {
		struct fo_job_activations a;
		fo_job_activations_of(job, &w->m, &w->s, &stage, &a);
		w->host_kept = a.all.high * stage.layers;
	}
	return NULL;
}
