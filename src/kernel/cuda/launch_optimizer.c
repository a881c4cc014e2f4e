/* Launches of optimizer.cu. */
#include "kernel/cuda/cuda_int.h"

#include <string.h>

enum { THREADS = FO_CUDA_THREADS, THREADS_MOST = 1024 };

/* ---- squared norm ---- */

static const char *sumsq_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	for (int k = 0; k < fo_op_tensors(s->kind, s->n); k++)
		if (!fo_cuda_is_float(&s->arg[fo_op_operand_of(s->kind, k, FO_SUMSQ_G)]))
			return "gradients are neither bf16 nor fp32";
	return NULL;
}

/* Room for a sum of each chunk, whatever gaps the rows will have. */
static fo_status sumsq_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	int64_t chunks = 0;
	for (int k = 0; k < fo_op_tensors(s->kind, s->n); k++) {
		const struct fo_tensor *g = &s->arg[fo_op_operand_of(s->kind, k, FO_SUMSQ_G)];
		chunks += g->rows * (g->cols / FO_CUDA_SUMSQ_CHUNK + 1);
	}
	*ws_bytes = (size_t)chunks * sizeof(double);
	return FO_OK;
}

static fo_status sumsq(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	struct fo_call one = fo_call_one(c, 0);
	struct fo_cuda_sumsq_args args = { .n = fo_op_tensors(c->kind, c->n),
					   .partial = q->ws,
					   .acc = one.arg[FO_SUMSQ_ACC].data,
					   .stored = fo_call_stores(&one, FO_SUMSQ_ACC) };
	for (int k = 0; k < args.n; k++) {
		const struct fo_tensor *g = &c->arg[fo_op_operand_of(c->kind, k, FO_SUMSQ_G)];
		bool whole = g->ld == g->cols;
		struct fo_cuda_sumsq_tensor *t = &args.t[k];
		*t = (struct fo_cuda_sumsq_tensor){ .data = g->data,
						    .rows = g->rows,
						    .cols = g->cols,
						    .ld = g->ld,
						    .dtype = g->dtype,
						    .aligned = fo_cuda_aligned(g, whole),
						    .begin = args.chunks };
		if (whole)
			t->rows = 1, t->cols = g->rows * g->cols;
		t->per_row = (uint32_t)fo_ceil_div(t->cols, FO_CUDA_SUMSQ_CHUNK);
		args.chunks += (uint32_t)t->rows * t->per_row;
	}
	struct fo_cuda_grid sum = { 1, 1, 1, args.chunks > THREADS ? THREADS_MOST : THREADS, 0 };
	FO_TRY(fo_cuda_launch_blocks(q, FO_CUDA_FN_sumsq, fo_cuda_blocks(q->cuda, args.chunks, 1), &args));
	return fo_cuda_launch(q, FO_CUDA_FN_sumsq_sum, sum, &args);
}
const struct fo_cuda_kernel fo_cuda_sumsq = {
	.by = "flatout", .cannot = sumsq_cannot, .prepare = sumsq_prepare, .run = sumsq
};
_Static_assert((int)FO_CUDA_SUMSQ_TENSORS >= (int)FO_MAX_OPERANDS - 1, "room for all tensors of sumsq_many");

/* ---- clipping ---- */

static fo_status clip_launch(struct fo_cuda_queue *q, enum fo_cuda_function f, const struct fo_cuda_clip_args *args)
{
	return fo_cuda_launch(q, f, (struct fo_cuda_grid){ 1, 1, 1, 32, 0 }, args);
}
static fo_status clip(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	return clip_launch(
		q, FO_CUDA_FN_clip,
		&(struct fo_cuda_clip_args){ .acc = c->arg[FO_CLIP_ACC].data,
					     .hyper = c->arg[FO_CLIP_HYPER].data,
					     .scale = c->arg[FO_CLIP_SCALE].data,
					     .loss = fo_call_has(c, FO_CLIP_LOSS) ? c->arg[FO_CLIP_LOSS].data : NULL,
					     .last = c->attr.value != 0 });
}
static fo_status clip_ahead(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	return clip_launch(q, FO_CUDA_FN_clip_ahead,
			   &(struct fo_cuda_clip_args){ .hyper = c->arg[FO_CLIP_AHEAD_HYPER].data,
							.scale = c->arg[FO_CLIP_AHEAD_SCALE].data,
							.loss = c->arg[FO_CLIP_AHEAD_LOSS].data });
}
static fo_status global_norm(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	return clip_launch(q, FO_CUDA_FN_global_norm,
			   &(struct fo_cuda_clip_args){ .acc = c->arg[FO_GLOBAL_NORM_ACC].data,
							.scale = c->arg[FO_GLOBAL_NORM_SCALE].data });
}
const struct fo_cuda_kernel fo_cuda_clip = { .by = "flatout", .run = clip };
const struct fo_cuda_kernel fo_cuda_clip_ahead = { .by = "flatout", .run = clip_ahead };
const struct fo_cuda_kernel fo_cuda_global_norm = { .by = "flatout", .run = global_norm };
/* optimizer.cu knows them by the same numbers. */
_Static_assert(FO_HYPER_LR == 0 && FO_HYPER_BETA1 == 1 && FO_HYPER_BETA2 == 2 && FO_HYPER_EPS == 3 &&
		       FO_HYPER_DECAY == 4 && FO_HYPER_CORR1 == 5 && FO_HYPER_CORR2 == 6 && FO_HYPER_CLIP == 7 &&
		       FO_HYPER_INV_TOKENS == 8 && FO_HYPER_LOSS_LIMIT == 9 && FO_HYPER_SEED == 10 &&
		       FO_HYPER_STEP == 11 && FO_HYPER_LAST_NORM == 12 && FO_HYPER_COUNT == 13,
	       "device code knows the columns of the hyper buffer by the same numbers");

/* ---- AdamW ---- */

/* How many of these operands a call has: the master may be absent. */
static const uint8_t adamw_operand[] = { FO_ADAMW_M, FO_ADAMW_V, FO_ADAMW_GRAD, FO_ADAMW_W, FO_ADAMW_MASTER };
static int adamw_operands(const struct fo_call *one) { return fo_call_has(one, FO_ADAMW_MASTER) ? 5 : 4; }

static const char *adamw_one_cannot(const struct fo_call *s)
{
	for (int i = 0; i < 4; i++)
		if (!fo_cuda_is_float(&s->arg[adamw_operand[i]]))
			return "moments, gradients or weights are neither bf16 nor fp32";
	int master = fo_call_has(s, FO_ADAMW_MASTER) ? s->arg[FO_ADAMW_MASTER].dtype : FO_F32;
	if (master != FO_F32 && master != FO_I16)
		return "the master is neither fp32 nor the low half of the weight";
	return s->arg[FO_ADAMW_M].dtype == s->arg[FO_ADAMW_V].dtype ? NULL : "the moments differ in type";
}
static const char *adamw_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	const char *why = NULL;
	for (int k = 0; k < fo_op_tensors(s->kind, s->n) && !why; k++) {
		const struct fo_call one = fo_call_one(s, k);
		why = adamw_one_cannot(&one);
	}
	return why;
}

/* Where all operands lie without gaps they are one long row. */
static bool adamw_whole(const struct fo_call *one)
{
	bool whole = true;
	for (int i = 0; i < adamw_operands(one); i++)
		whole = whole && one->arg[adamw_operand[i]].ld == one->arg[adamw_operand[i]].cols;
	return whole;
}

static enum fo_cuda_function adamw_function(const struct fo_call *one)
{
	enum { BF16, F32, COPY, SPLIT } weights;
#define FUNCTIONS(moments, gradients)                                                                                 \
	{                                                                                                             \
		FO_CUDA_FN_adamw_##moments##_bf16_##gradients, FO_CUDA_FN_adamw_##moments##_f32_##gradients,          \
			FO_CUDA_FN_adamw_##moments##_copy_##gradients, FO_CUDA_FN_adamw_##moments##_split_##gradients \
	}
	static const enum fo_cuda_function functions[2][2][4] = { { FUNCTIONS(f32, f32), FUNCTIONS(f32, bf16) },
								  { FUNCTIONS(bf16, f32), FUNCTIONS(bf16, bf16) } };
#undef FUNCTIONS
	const bool master = fo_call_has(one, FO_ADAMW_MASTER), bf16 = one->arg[FO_ADAMW_W].dtype == FO_BF16,
		   whole = adamw_whole(one), bf16_moments = one->arg[FO_ADAMW_M].dtype == FO_BF16,
		   bf16_gradients = one->arg[FO_ADAMW_GRAD].dtype == FO_BF16;
	if (master && !bf16)
		return FO_CUDA_FN_adamw_any; /* an fp32 weight that has a copy all the same */
	for (int i = 0; i < adamw_operands(one); i++)
		if (!fo_cuda_aligned(&one->arg[adamw_operand[i]], whole))
			return FO_CUDA_FN_adamw_any;
	if (master)
		weights = one->arg[FO_ADAMW_MASTER].dtype == FO_I16 ? SPLIT : COPY;
	else
		weights = bf16 ? BF16 : F32;
	return functions[bf16_moments][bf16_gradients][weights];
}

static void adamw_add(struct fo_cuda_adamw_args *args, const struct fo_call *one)
{
	const struct fo_tensor *m = &one->arg[FO_ADAMW_M], *v = &one->arg[FO_ADAMW_V], *g = &one->arg[FO_ADAMW_GRAD],
			       *w = &one->arg[FO_ADAMW_W],
			       *master = fo_call_has(one, FO_ADAMW_MASTER) ? &one->arg[FO_ADAMW_MASTER] : NULL;
	bool whole = adamw_whole(one);
	struct fo_cuda_adamw_tensor *t = &args->t[args->n++];
	*t = (struct fo_cuda_adamw_tensor){
		.m = m->data,
		.v = v->data,
		.w = w->data,
		.g = g->data,
		.rows = w->rows,
		.cols = w->cols,
		.ld_m = m->ld,
		.ld_v = v->ld,
		.ld_w = w->ld,
		.ld_g = g->ld,
		.number = one->attr.element + w->first,
		.layer = w->layer,
		.begin = args->chunks,
		.type_moments = m->dtype,
		.type_g = g->dtype,
		.type_w = w->dtype,
		.type_master = FO_F32,
	};
	if (master)
		t->master = master->data, t->ld_master = master->ld, t->type_master = master->dtype;
	if (whole)
		t->rows = 1, t->cols = w->rows * w->cols;
	t->per_row = (uint32_t)fo_ceil_div(t->cols, FO_CUDA_ADAMW_CHUNK);
	args->chunks += (uint32_t)t->rows * t->per_row;
}

/* Tensors that the same function updates share a launch: all of them, where formats do not differ. */
static fo_status adamw(struct fo_cuda_queue *q, const struct fo_call *c, int64_t variant)
{
	int n = fo_op_tensors(c->kind, c->n);
	uint32_t done = 0;
	for (int k = 0; k < n; k++) {
		if (done >> k & 1)
			continue;
		struct fo_call one = fo_call_one(c, k);
		enum fo_cuda_function f = adamw_function(&one);
		struct fo_cuda_adamw_args args = { .hyper = one.arg[FO_ADAMW_HYPER].data,
						   .scale = one.arg[FO_ADAMW_SCALE].data,
						   .decays = c->attr.value,
						   .stochastic = c->attr.stochastic };
		for (int i = k; i < n; i++) {
			one = fo_call_one(c, i);
			if (adamw_function(&one) != f)
				continue;
			adamw_add(&args, &one);
			done |= 1u << i;
		}
		FO_TRY(fo_cuda_launch_blocks(q, f, fo_cuda_blocks(q->cuda, args.chunks, 1), &args));
	}
	return FO_OK;
}
const struct fo_cuda_kernel fo_cuda_adamw = { .by = "flatout", .cannot = adamw_cannot, .run = adamw };
_Static_assert((int)FO_CUDA_ADAMW_TENSORS >= (int)(FO_MAX_OPERANDS - 2) / 4, "room for all tensors of adamw_many");
