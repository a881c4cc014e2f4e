/* Operation matmul on cuBLASLt.
 *
 * bf16 x bf16 gives bf16 or fp32, fp32 x fp32 gives fp32; sums are fp32 in all of them. fp32 factors are multiplied as
 * fp32, not as TF32, because the same program shall give the same losses on the processor and here, and TF32 has the
 * mantissa of fp16.
 *
 * fp8 goes one of two ways. Direct: the library multiplies fp8 and applies the scales. On Hopper and Ada it takes only
 * operands whose summed dimension lies along rows, so one that lies the other way is transposed into the workspace
 * first (product.cu); programs that store both copies need no transposition. Wide: where the library has no algorithm
 * (dimensions that are not multiples of 16, devices without fp8, scales per line elsewhere than on Hopper), both
 * factors become bf16, exactly, their product fp32 in the workspace, and a kernel of ours scales it. That is right and
 * slow. */
#include "kernel/cuda/product.h"

#include <string.h>

enum { ALIGNED = 16, WS_ALIGNED = 256, TURN_TILE = 128 };

/* ---- from the operation to the library's matmul ---- */

/* How a call runs, and the offsets of what lies in the workspace; -1 for what is not there. */
struct route {
	struct fo_cuda_product key;
	bool fp8, wide;
	bool turn[2]; /* operand a, b of the operation */
	/* turned or widened operands, scales side by side, the unscaled product, cuBLASLt's own workspace */
	int64_t copy[2], lines[2], sum, lt, end;
	int64_t copy_ld[2];
};

static int64_t take(struct route *r, int64_t bytes)
{
	int64_t at = r->end;
	r->end += fo_round_up(bytes, WS_ALIGNED);
	return at;
}

/* Only Blackwell's data centre parts take all layouts of fp8 operands. */
static bool tn_only(const struct fo_cuda *c) { return c->info.cc_major != 10; }
static bool has_fp8(const struct fo_cuda *c) { return c->info.cc_major * 10 + c->info.cc_minor >= 89; }

static int64_t depth(const struct fo_call *s)
{
	return s->attr.ta ? s->arg[FO_MATMUL_A].rows : s->arg[FO_MATMUL_A].cols;
}

/* Whether the library may be asked to multiply these fp8 numbers at all. */
static bool may_be_direct(const struct fo_cuda *c, const struct fo_call *s)
{
	const struct fo_tensor *a = &s->arg[FO_MATMUL_A], *b = &s->arg[FO_MATMUL_B], *d = &s->arg[FO_MATMUL_C];
	return has_fp8(c) && !(a->dtype == FO_E5M2 && b->dtype == FO_E5M2) && d->cols % 16 == 0 && depth(s) % 16 == 0 &&
	       a->ld % 16 == 0 && b->ld % 16 == 0 && d->ld * (int64_t)fo_dtype_bytes(d->dtype) % ALIGNED == 0;
}

static void fill_direct(const struct fo_cuda *c, const struct fo_call *s, struct route *r)
{
	const struct fo_tensor *a = &s->arg[FO_MATMUL_A], *b = &s->arg[FO_MATMUL_B];
	struct fo_cuda_product *k = &r->key;
	int64_t depth_of = depth(s);
	r->turn[0] = tn_only(c) && s->attr.ta;
	r->turn[1] = tn_only(c) && !s->attr.tb;
	for (int i = 0; i < 2; i++) {
		int64_t lines = i ? k->m : k->n;
		/* rows of a turned operand begin at multiples of 16 bytes, because its depth is one */
		r->copy_ld[i] = depth_of;
		r->copy[i] = r->turn[i] ? take(r, lines * depth_of) : -1;
	}
	k->type_a = b->dtype;
	k->type_b = a->dtype;
	k->ta = r->turn[1] || s->attr.tb;
	k->tb = !r->turn[0] && s->attr.ta;
	k->lda = r->turn[1] ? depth_of : b->ld;
	k->ldb = r->turn[0] ? depth_of : a->ld;
	k->lines = s->arg[FO_MATMUL_SA].rows * s->arg[FO_MATMUL_SA].cols > 1 ||
		   s->arg[FO_MATMUL_SB].rows * s->arg[FO_MATMUL_SB].cols > 1;
	/* Only in forward: gradients need the longer sums (as TransformerEngine and torchao set it). Forward is y = x
	 * w'. */
	k->fast = a->dtype == FO_E4M3 && b->dtype == FO_E4M3 && !s->attr.ta && s->attr.tb && !k->add;
	/* The room is always there, although contiguous lines of both are used in place: only run sees where they lie.
	 */
	for (int i = 0; k->lines && i < 2; i++)
		r->lines[i] = take(r, (i ? k->m : k->n) * (int64_t)sizeof(float));
}

static void fill_wide(const struct fo_call *s, struct route *r)
{
	struct fo_cuda_product *k = &r->key;
	for (int i = 0; i < 2; i++) {
		const struct fo_tensor *t = &s->arg[i];
		r->copy_ld[i] = fo_round_up(t->cols, 8); /* 16 bytes */
		r->copy[i] = take(r, t->rows * r->copy_ld[i] * (int64_t)sizeof(uint16_t));
	}
	r->sum = take(r, k->m * k->n * (int64_t)sizeof(float));
	k->type_a = k->type_b = FO_BF16;
	k->type_d = FO_F32;
	k->ta = s->attr.tb;
	k->tb = s->attr.ta;
	k->lda = r->copy_ld[1];
	k->ldb = r->copy_ld[0];
	k->ldd = k->m;
	k->add = 0;
}

/* The route of a call; wide: fp8 that the library did not take. */
static void route_of(const struct fo_cuda *c, const struct fo_call *s, bool wide, bool loose, struct route *r)
{
	const struct fo_tensor *a = &s->arg[FO_MATMUL_A], *b = &s->arg[FO_MATMUL_B], *d = &s->arg[FO_MATMUL_C];
	memset(r, 0, sizeof *r); /* the key is compared as bytes */
	r->copy[0] = r->copy[1] = r->lines[0] = r->lines[1] = r->sum = -1;
	r->fp8 = fo_dtype_fp8(a->dtype);
	r->wide = r->fp8 && wide;
	r->key = (struct fo_cuda_product){ .m = d->cols,
					   .n = d->rows,
					   .k = depth(s),
					   .lda = b->ld,
					   .ldb = a->ld,
					   .ldd = d->ld,
					   .type_a = b->dtype,
					   .type_b = a->dtype,
					   .type_d = d->dtype,
					   .ta = s->attr.tb,
					   .tb = s->attr.ta,
					   .add = !fo_call_stores(s, FO_MATMUL_C),
					   .loose = loose && !r->wide };
	if (r->wide)
		fill_wide(s, r);
	else if (r->fp8)
		fill_direct(c, s, r);
	r->lt = r->end;
}

/* The plan of a call as run will ask for it, whose operands are aligned (16 bytes) or loose; *r is its route. NULL: it
 * was not prepared. */
static struct fo_cuda_product_plan *planned(const struct fo_cuda *c, const struct fo_call *s, bool loose,
					    struct route *r)
{
	struct fo_cuda_product_plan *p = NULL;
	bool direct = !fo_dtype_fp8(s->arg[FO_MATMUL_A].dtype) || may_be_direct(c, s);
	if (direct) {
		route_of(c, s, false, loose, r);
		p = fo_cuda_product_find(c, &r->key);
	}
	if (direct && (!r->fp8 || (p && p->good)))
		return p;
	route_of(c, s, true, false, r);
	return fo_cuda_product_find(c, &r->key);
}

static bool is_factor(const struct fo_tensor *t)
{
	return t->dtype == FO_BF16 || t->dtype == FO_F32 || fo_dtype_fp8(t->dtype);
}

static const char *cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	const struct fo_tensor *a = &s->arg[FO_MATMUL_A], *b = &s->arg[FO_MATMUL_B], *d = &s->arg[FO_MATMUL_C];
	bool fp8 = fo_dtype_fp8(a->dtype);
	if (!is_factor(a) || !is_factor(b) || !fo_cuda_is_float(d))
		return "operands are neither fp8, bf16 nor fp32";
	if (fp8 != fo_dtype_fp8(b->dtype) || (!fp8 && a->dtype != b->dtype))
		return "factors are of different types";
	if (fp8 && a->dtype == FO_E5M2 && b->dtype == FO_E5M2)
		return "both factors are e5m2: one of them must be e4m3";
	if (fp8 && (!fo_call_has(s, FO_MATMUL_SB) || s->arg[FO_MATMUL_SA].dtype != FO_F32 ||
		    s->arg[FO_MATMUL_SB].dtype != FO_F32))
		return "fp8 factors have no fp32 scales";
	return a->dtype == FO_F32 && d->dtype != FO_F32 ? "the product of fp32 factors is not fp32" : NULL;
}

/* Prepares one route and alignment: its plan, and the workspace that it needs. */
static fo_status prepare_one(struct fo_cuda *c, const struct fo_call *s, bool wide, bool loose, size_t *ws_bytes,
			     bool *good)
{
	struct fo_cuda_product_plan *p;
	struct route r;
	route_of(c, s, wide, loose, &r);
	FO_TRY(fo_cuda_product_prepare(c, &r.key, &p));
	*good = p->good;
	if (p->good && (size_t)r.end + p->ws_bytes > *ws_bytes)
		*ws_bytes = (size_t)r.end + p->ws_bytes;
	return FO_OK;
}

static size_t ws_most(const struct fo_cuda *c, const struct fo_call *s)
{
	struct route r;
	route_of(c, s, fo_dtype_fp8(s->arg[FO_MATMUL_A].dtype) && !may_be_direct(c, s), false, &r);
	return (size_t)r.end + fo_cuda_product_ws_most(c);
}

static fo_status prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes)
{
	bool fp8 = fo_dtype_fp8(s->arg[FO_MATMUL_A].dtype), good = false, loose_good = false;
	*ws_bytes = 0;
	if (!fp8 || may_be_direct(c, s))
		FO_TRY(prepare_one(c, s, false, false, ws_bytes, &good));
	if (!fp8)
		FO_TRY(prepare_one(c, s, false, true, ws_bytes, &loose_good));
	if (fp8 && !good)
		FO_TRY(prepare_one(c, s, true, false, ws_bytes, &good));
	if (!good)
		return fo_fail(FO_EUNSUPPORTED,
			       "cuBLASLt has no algorithm for a matmul (%lld,%lld) = (%lld) of %s and %s on '%s'",
			       (long long)s->arg[FO_MATMUL_C].rows, (long long)s->arg[FO_MATMUL_C].cols,
			       (long long)depth(s), fo_dtype_name[s->arg[FO_MATMUL_A].dtype],
			       fo_dtype_name[s->arg[FO_MATMUL_B].dtype], c->info.name);
	return FO_OK;
}

/* ---- run ---- */

static fo_status turn(struct fo_cuda_queue *q, const struct fo_tensor *t, void *to, int64_t ld)
{
	struct fo_cuda_fp8_transpose_args args = {
		.x = t->data, .y = to, .rows = t->rows, .cols = t->cols, .ldx = t->ld, .ldy = ld
	};
	const int64_t tiles = fo_ceil_div(t->rows, TURN_TILE) * fo_ceil_div(t->cols, TURN_TILE);
	args.wide = t->rows % 16 == 0 && t->cols % 16 == 0 && t->ld % 16 == 0 && ld % 16 == 0 &&
		    (uintptr_t)t->data % ALIGNED == 0;
	return fo_cuda_launch_blocks(q, FO_CUDA_FN_fp8_transpose, tiles, &args);
}

static fo_status widen(struct fo_cuda_queue *q, const struct fo_tensor *t, void *to, int64_t ld)
{
	const struct fo_cuda_fp8_widen_args args = { fo_cuda_view_of(t), to, ld };
	return fo_cuda_launch_each(q, FO_CUDA_FN_fp8_widen, t->rows * t->cols, &args);
}

/* Scales side by side, n of them where there are lines: in place, or a copy. */
static fo_status scales(struct fo_cuda_queue *q, const struct fo_tensor *t, int64_t n, int64_t at, const float **out)
{
	bool whole = t->rows * t->cols == n && (t->rows == 1 || t->ld == 1) && (uintptr_t)t->data % ALIGNED == 0;
	*out = t->data;
	if (at < 0 || whole)
		return FO_OK;
	float *to = (float *)((char *)q->ws + at);
	const struct fo_cuda_product_lines_args args = { fo_cuda_view_of(t), to, n };
	*out = to;
	return fo_cuda_launch_each(q, FO_CUDA_FN_product_lines, n, &args);
}

static bool is_loose(const struct fo_call *call)
{
	for (int i = FO_MATMUL_A; i <= FO_MATMUL_C; i++)
		if ((uintptr_t)call->arg[i].data % ALIGNED)
			return true;
	return false;
}

static fo_status run(struct fo_cuda_queue *q, const struct fo_call *call, int64_t variant)
{
	const struct fo_cuda *c = q->cuda;
	struct route r;
	bool loose = is_loose(call);
	struct fo_cuda_product_plan *p = planned(c, call, loose && !fo_dtype_fp8(call->arg[FO_MATMUL_A].dtype), &r);
	const void *x[2] = { call->arg[FO_MATMUL_A].data, call->arg[FO_MATMUL_B].data };
	const float *s[2] = { NULL, NULL };
	if (!p || (size_t)r.end + p->ws_bytes > q->ws_bytes)
		return fo_fail(FO_EBUG, "a matmul of shape (%lld,%lld) was not prepared",
			       (long long)call->arg[FO_MATMUL_C].rows, (long long)call->arg[FO_MATMUL_C].cols);
	if (!p->good || (r.fp8 && !r.wide && loose))
		return fo_fail(
			FO_EUNSUPPORTED,
			"cuBLASLt has no algorithm for a matmul whose operands do not begin at multiples of 16 bytes");
	for (int i = 0; i < 2; i++) {
		char *copy = r.copy[i] >= 0 ? (char *)q->ws + r.copy[i] : NULL;
		if (r.wide)
			FO_TRY(widen(q, &call->arg[i], copy, r.copy_ld[i]));
		else if (r.turn[i])
			FO_TRY(turn(q, &call->arg[i], copy, r.copy_ld[i]));
		if (copy)
			x[i] = copy;
		if (r.fp8 && !r.wide)
			FO_TRY(scales(q, &call->arg[FO_MATMUL_SA + i], i ? r.key.m : r.key.n, r.lines[i], &s[i]));
	}
	void *d = r.wide ? (char *)q->ws + r.sum : call->arg[FO_MATMUL_C].data;
	cublasStatus_t st = fo_cuda_product_run(c, p, x[1], x[0], d, s[1], s[0], (char *)q->ws + r.lt, q->stream);
	if (st != CUBLAS_STATUS_SUCCESS)
		return fo_fail(FO_EDEVICE, "a matmul of shape (%lld,%lld) did not start: cuBLASLt status %d",
			       (long long)call->arg[FO_MATMUL_C].rows, (long long)call->arg[FO_MATMUL_C].cols, (int)st);
	if (!r.wide)
		return FO_OK;
	const struct fo_cuda_product_scale_args args = { d, fo_cuda_view_of(&call->arg[FO_MATMUL_C]),
							 fo_cuda_view_of(&call->arg[FO_MATMUL_SA]),
							 fo_cuda_view_of(&call->arg[FO_MATMUL_SB]),
							 !fo_call_stores(call, FO_MATMUL_C) };
	return fo_cuda_launch_each(q, FO_CUDA_FN_product_scale, r.key.m * r.key.n, &args);
}

const struct fo_cuda_kernel fo_cuda_matmul = {
	.by = "cuBLASLt", .cannot = cannot, .prepare = prepare, .ws_most = ws_most, .run = run
};
