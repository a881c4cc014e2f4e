/* The operations table and what derives from it: names, operand modes, costs, shape rules. */
#include "program/program.h"

#include <string.h>

const char *const fo_class_name[] = { "tensor", "memory", "comm", "host" };
const char *const fo_category_name[FO_CAT_COUNT] = {
	"matmul", "attention_forward", "attention_backward", "elementwise",
	"loss",   "optimizer",         "communication",      "host",
};
const char *const fo_access_name[] = { "read", "def", "part", "update", "acc", "take" };
const char *const fo_dtype_name[FO_DTYPE_COUNT] = { "f32", "bf16", "f64", "i32", "i16", "e4m3", "e5m2" };
const char *const fo_lane_name[FO_LANE_COUNT] = {
	"compute",      "host",          "copy",          "tp",    "gather", "reduce", "recv_forward",
	"send_forward", "recv_backward", "send_backward", "wgrad",
};
const char *const fo_phase_name[FO_PHASE_COUNT] = { "forward",   "backward", "wgrad", "recompute",
						    "optimizer", "transfer", "derive" };
const char *const fo_port_name[FO_PORT_COUNT] = { "none", "batch", "hyper", "loss", "logits", "chunk" };
const char *const fo_role_name[FO_ROLE_COUNT] = { "forward", "backward", "wgrad", "optimizer",
						  "gather",  "reduce",   "p2p",   "host" };
const char *const fo_unit_name[FO_UNIT_COUNT] = { "embed", "layer", "head", "step" };
const char *const fo_numerics_name[FO_PRECISION_COUNT] = { "fp32", "bf16", "fp64" };
const char *const fo_master_name[FO_MASTER_COUNT] = { "fp32", "split", "none" };
const char *const fo_moments_name[FO_MOMENTS_COUNT] = { "fp32", "bf16" };

/* ---- costs ---- */

typedef struct fo_cost cost_fn(const struct fo_program *p, const struct fo_op *o, double pairs);

static double operand_bytes(const struct fo_program *p, const struct fo_operand *a)
{
	double once = (double)a->nr * a->nc * (double)fo_dtype_bytes(p->buf[a->buf].dtype);
	return a->access == FO_UPDATE || a->access == FO_ACC ? 2 * once : once;
}

static struct fo_cost cost_none(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	(void)p, (void)o, (void)pairs;
	return (struct fo_cost){ 0 };
}

static struct fo_cost cost_bytes(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	(void)pairs;
	struct fo_cost c = { 0 };
	for (int i = 0; i < o->n; i++)
		c.bytes += operand_bytes(p, &o->arg[i]);
	return c;
}

/* Read on one side of the link, written on the other. */
static struct fo_cost cost_transfer(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	struct fo_cost c = cost_bytes(p, o, pairs);
	c.wire = operand_bytes(p, &o->arg[0]);
	return c;
}

/* A look-up touches one table row per token, not the table. */
static struct fo_cost cost_embed(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	(void)pairs;
	const struct fo_operand *table = &o->arg[o->kind == FO_OP_embed ? 1 : 2];
	const struct fo_operand *x = &o->arg[o->kind == FO_OP_embed ? 2 : 1];
	double rows = (double)x->nr * x->nc * (double)fo_dtype_bytes(p->buf[table->buf].dtype);
	return (struct fo_cost){ .bytes = operand_bytes(p, &o->arg[0]) + operand_bytes(p, x) +
					  (table->access == FO_ACC ? 2 : 1) * rows };
}

static void matmul_dims(const struct fo_op *o, int64_t *m, int64_t *n, int64_t *k)
{
	const struct fo_operand *a = &o->arg[0], *b = &o->arg[1];
	*m = o->attr.ta ? a->nc : a->nr;
	*k = o->attr.ta ? a->nr : a->nc;
	*n = o->attr.tb ? b->nr : b->nc;
}

static struct fo_cost cost_matmul(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	int64_t m, n, k;
	matmul_dims(o, &m, &n, &k);
	struct fo_cost c = cost_bytes(p, o, pairs);
	c.model = c.model_causal = c.exec = 2.0 * (double)m * (double)n * (double)k;
	return c;
}

/* By convention a norm's weight counts like any weight: 2 FLOP per parameter and token forward, 4 backward, so that the
 * program's sum equals 6 N_mm + 12 L H Q S. It is also what runs, when only sums are counted: one multiply-add per
 * element in each of the three reductions. */
static struct fo_cost cost_norm(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	struct fo_cost c = cost_bytes(p, o, pairs);
	const struct fo_operand *x = &o->arg[0];
	c.exec = 2.0 * x->nr * x->nc;
	/* The weight of q/k norms is used once per head and counts once. */
	c.model = c.model_causal = 2.0 * x->nr * (o->attr.head_dim ? o->attr.head_dim : x->nc);
	return c;
}

/* Both backward reductions of a norm. */
static struct fo_cost cost_norm_bwd(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	struct fo_cost c = cost_norm(p, o, pairs);
	c.exec *= 2;
	c.model *= 2;
	c.model_causal *= 2;
	return c;
}

/* A bias counts as a weight of its matrix: 2 FLOP per element and token forward, 4 backward. What runs is one addition
 * into a sum each way. */
static struct fo_cost cost_bias(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	struct fo_cost c = cost_bytes(p, o, pairs);
	c.exec = 2.0 * o->arg[0].nr * o->arg[0].nc;
	c.model = c.model_causal = (o->kind == FO_OP_bias_grad ? 2 : 1) * c.exec;
	return c;
}

/* S: keys of an unbroken row, or of the cache. */
static double row_keys(const struct fo_program *p)
{
	return (double)(p->run.mode == FO_MODE_DECODE ? p->run.context : p->run.seq);
}

/* Keys that a query sees: all S, or the window; under the causal rule their mean over a row (model.h). */
static double keys_seen(const struct fo_program *p, const struct fo_op *o, bool causal)
{
	double s = row_keys(p), w = (double)o->attr.window;
	if (w <= 0 || w >= s)
		return causal ? s / 2 : s;
	return causal ? w - w * w / (2 * s) : w;
}

/* Of the first n queries of a row: query i (from 0) sees i + 1 keys, or the window. */
static double pairs_before(double n, double window)
{
	double hidden = window > 0 && window < n ? n - window : 0;
	return n * (n + 1) / 2 - hidden * (hidden + 1) / 2;
}

static double visible_pairs(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	double s = row_keys(p), w = (double)o->attr.window;
	return pairs >= 0 ? pairs
			  : (double)p->run.rows * (pairs_before(s, w) - pairs_before(s - (double)p->run.seq, w));
}

/* Two products of T x keys x HQ; what runs is the true number of visible pairs. */
static struct fo_cost cost_attention(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	const struct fo_operand *q = &o->arg[0];
	struct fo_cost c = cost_bytes(p, o, pairs);
	c.model = 4.0 * q->nr * keys_seen(p, o, false) * q->nc;
	c.model_causal = 4.0 * q->nr * keys_seen(p, o, true) * q->nc;
	c.exec = 4.0 * visible_pairs(p, o, pairs) * q->nc;
	return c;
}

/* As cost_attention, over the cache. Only rows that a query sees are read: of T queries without a window the last one
 * sees pairs / T + (T - 1) / 2 keys (with one, for T > 1, a few more rows are read than this says). */
static struct fo_cost cost_attention_cached(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	const struct fo_operand *q = &o->arg[0], *k = &o->arg[1];
	double seen = visible_pairs(p, o, pairs), keys = seen / q->nr + (q->nr - 1) / 2.0;
	double row = (double)k->nc * (double)fo_dtype_bytes(p->buf[k->buf].dtype);
	struct fo_cost c = { .bytes = operand_bytes(p, q) + 2 * keys * row + operand_bytes(p, &o->arg[4]) };
	c.model = 4.0 * q->nr * keys_seen(p, o, false) * q->nc;
	c.model_causal = 4.0 * q->nr * keys_seen(p, o, true) * q->nc;
	c.exec = 4.0 * seen * q->nc;
	return c;
}

/* Rows are copied: read once, written once, whatever the size of the cache. */
static struct fo_cost cost_cache_put(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	(void)pairs;
	return (struct fo_cost){ .bytes = 2 * operand_bytes(p, &o->arg[0]) };
}
static struct fo_cost cost_last_row(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	(void)pairs;
	return (struct fo_cost){ .bytes = 2 * operand_bytes(p, &o->arg[2]) };
}

/* The model needs four products backward; the fifth, the scores again, is recomputation. */
static struct fo_cost cost_attention_bwd(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	const struct fo_operand *q = &o->arg[0];
	struct fo_cost c = cost_bytes(p, o, pairs);
	c.model = 8.0 * q->nr * keys_seen(p, o, false) * q->nc;
	c.model_causal = 8.0 * q->nr * keys_seen(p, o, true) * q->nc;
	c.exec = 10.0 * visible_pairs(p, o, pairs) * q->nc;
	return c;
}

/* What is not seen is computed like the rest: two products of S x S per row and head forward, four backward; the scores
 * are not made again. The model needs what it needs of cost_attention and cost_attention_bwd. */
static struct fo_cost cost_attention_eager(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	const struct fo_operand *q = &o->arg[0];
	double flop = (o->kind == FO_OP_attention_eager ? 4.0 : 8.0) * q->nr * q->nc;
	struct fo_cost c = cost_bytes(p, o, pairs);
	c.model = flop * keys_seen(p, o, false);
	c.model_causal = flop * keys_seen(p, o, true);
	c.exec = flop * (double)p->run.seq;
	return c;
}

/* ---- the table ---- */

enum { OPTIONAL = 1 << 6, EACH = 1 << 7, ACCESS = OPTIONAL - 1 };
/* Modes of operands as ops.def writes them. */
enum {
	MODES_r = 1 << FO_READ,
	MODES_d = 1 << FO_DEF,
	MODES_u = 1 << FO_UPDATE,
	MODES_a = 1 << FO_ACC,
	MODES_t = 1 << FO_TAKE,
	MODES_dp = MODES_d | 1 << FO_PART,
	MODES_dpa = MODES_dp | MODES_a,
	MODES_ud = MODES_u | MODES_d,
	MODES_r_opt = MODES_r | OPTIONAL,
	MODES_d_opt = MODES_d | OPTIONAL,
	MODES_u_opt = MODES_u | OPTIONAL,
	MODES_dp_opt = MODES_dp | OPTIONAL,
	MODES_r_each = MODES_r | EACH,
	MODES_u_each = MODES_u | EACH,
	MODES_t_each = MODES_t | EACH,
	MODES_ud_each = MODES_ud | EACH,
	MODES_dp_each = MODES_dp | EACH,
};

#define OPERAND(ID, NAME, text, m, ...) [FO_##ID##_##NAME] = { #text, MODES_##m & ACCESS },
#define IS_THERE(ID, NAME, ...) +1
#define IS_NEEDED(ID, NAME, text, m, ...) +!(MODES_##m & OPTIONAL)
#define IS_COMMON(ID, NAME, text, m, ...) +!(MODES_##m & EACH)
#define IS_EACH(ID, NAME, text, m, ...) +!!(MODES_##m & EACH)
/* Both operations are in one argument: (ADAMW_MANY, ADAMW). */
#define BASE_OPERAND_OF(MANY, ID, NAME) [FO_##ID##_##NAME] = FO_##MANY##_##NAME,
#define BASE_OPERAND_IN(...) BASE_OPERAND_OF(__VA_ARGS__)
#define BASE_OPERAND(both, NAME, ...) BASE_OPERAND_IN(FO_UNPACK both, NAME)
#define COLUMNS(id, ID, c, cat, cost, in, text, ...)                                                             \
	.name = #id, .inplace = in, .doc = text, .cls = FO_CLASS_##c, .category = FO_CAT_##cat,                  \
	.min_operands = FO_EACH(IS_NEEDED, ID, __VA_ARGS__), .max_operands = FO_EACH(IS_THERE, ID, __VA_ARGS__), \
	.common = FO_EACH(IS_COMMON, ID, __VA_ARGS__), .per_tensor = FO_EACH(IS_EACH, ID, __VA_ARGS__),          \
	.operand = { FO_EACH(OPERAND, ID, __VA_ARGS__) }

static const struct fo_op_info info[FO_OP_COUNT] = {
#define FO_OP(id, ID, ...) [FO_OP_##id] = { COLUMNS(id, ID, __VA_ARGS__), .base = FO_OP_##id },
#define FO_OP_MANY(id, ID, b, BASE, c, cat, cost, in, text, ...)                                  \
	[FO_OP_##id] = { COLUMNS(id, ID, c, cat, cost, in, text, __VA_ARGS__), .base = FO_OP_##b, \
			 .base_operand = { FO_EACH(BASE_OPERAND, (ID, BASE), __VA_ARGS__) } },
#include "program/ops.def"
};
static cost_fn *const cost_of[FO_OP_COUNT] = {
#define FO_OP(id, ID, c, cat, cost, ...) [FO_OP_##id] = cost,
#include "program/ops.def"
};

const struct fo_op_info *fo_op_info(enum fo_op_kind kind) { return &info[kind]; }

int fo_op_tensors(enum fo_op_kind kind, int n)
{
	return info[kind].per_tensor ? (n - info[kind].common) / info[kind].per_tensor : 1;
}

int fo_op_operand_of(enum fo_op_kind kind, int k, int i)
{
	const struct fo_op_info *f = &info[kind];
	int row = f->per_tensor ? f->base_operand[i] : i;
	return row < f->common ? row : row + k * f->per_tensor;
}

int fo_op_operand_row(enum fo_op_kind kind, int i)
{
	const struct fo_op_info *f = &info[kind];
	return i < f->common ? i : f->common + (i - f->common) % f->per_tensor;
}

int fo_op_kind_find(const char *name)
{
	for (int k = 0; k < FO_OP_COUNT; k++)
		if (!strcmp(info[k].name, name))
			return k;
	return -1;
}

struct fo_cost fo_op_cost(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	struct fo_cost c = cost_of[o->kind](p, o, pairs);
	if (o->phase == FO_RECOMPUTE)
		c.model = c.model_causal = 0; /* executed work, never model work */
	return c;
}

static void cost_add(struct fo_cost *sum, const struct fo_cost *c, double times)
{
	sum->model += times * c->model;
	sum->model_causal += times * c->model_causal;
	sum->exec += times * c->exec;
	sum->bytes += times * c->bytes;
	sum->wire += times * c->wire;
}

/* category < 0: all */
static struct fo_cost sum_cost(const struct fo_program *p, int category, double pairs)
{
	struct fo_cost sum = { 0 };
	for (int b = 0; b < p->nblock; b++) {
		int64_t slots = 0;
		for (int s = 0; s < p->nslot; s++)
			slots += p->slot[s].block == b;
		for (int i = 0; slots && i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			if (category >= 0 && (int)info[o->kind].category != category)
				continue;
			struct fo_cost c = fo_op_cost(p, o, pairs);
			cost_add(&sum, &c, (double)slots);
		}
	}
	return sum;
}

struct fo_cost fo_program_cost(const struct fo_program *p, double pairs) { return sum_cost(p, -1, pairs); }
struct fo_cost fo_program_category_cost(const struct fo_program *p, enum fo_category c, double pairs)
{
	return sum_cost(p, (int)c, pairs);
}

/* ---- shape rules ---- */

static bool same(const struct fo_operand *a, const struct fo_operand *b) { return a->nr == b->nr && a->nc == b->nc; }
static bool is(const struct fo_operand *a, int64_t nr, int64_t nc) { return a->nr == nr && a->nc == nc; }

static const char *check_attention(const struct fo_op *o)
{
	const struct fo_operand *a = o->arg;
	bool bwd = o->kind != FO_OP_attention;
	int32_t d = o->attr.head_dim;
	const struct fo_operand *out = &a[bwd ? 3 : 4], *lse = &a[bwd ? 4 : 5], *doc = &a[bwd ? 6 : 3];
	if (o->attr.window < 0)
		return "the window must not be negative";
	if (d <= 0 || a[0].nc % d || a[1].nc % d)
		return "columns of q and k must be whole heads";
	if ((a[0].nc / d) % (a[1].nc / d))
		return "query heads must be a multiple of kv heads";
	if (!same(&a[1], &a[2]) || a[0].nr != a[1].nr || !same(&a[0], out) || !is(lse, a[0].nr, a[0].nc / d) ||
	    !is(doc, a[0].nr, 1))
		return "q, k, v, o, lse and doc_start disagree";
	if (bwd && (!same(&a[0], &a[5]) || !same(&a[0], &a[7]) || !same(&a[1], &a[8]) || !same(&a[1], &a[9])))
		return "gradients must have the shapes of their values";
	if (o->kind == FO_OP_attention_bwd_rope && (d % 2 || !is(&a[10], a[0].nr, 1) || a[11].nc != d))
		return "gradients, position, table and head dimension disagree";
	return NULL;
}

/* Rows are those of the run, so that keys of a query's row are there for all of its columns. */
static const char *check_attention_eager(const struct fo_program *p, const struct fo_op *o)
{
	const struct fo_operand *a = o->arg;
	bool bwd = o->kind == FO_OP_attention_eager_bwd;
	int32_t d = o->attr.head_dim;
	const struct fo_operand *prob = &a[bwd ? 3 : 5], *out = &a[4];
	if (o->attr.window < 0)
		return "the window must not be negative";
	if (d <= 0 || a[0].nc % d || a[1].nc % d)
		return "columns of q and k must be whole heads";
	if ((a[0].nc / d) % (a[1].nc / d))
		return "query heads must be a multiple of kv heads";
	if (!same(&a[1], &a[2]) || a[0].nr != a[1].nr || !same(&a[0], out) || (!bwd && !is(&a[3], a[0].nr, 1)))
		return "q, k, v, o and doc_start disagree";
	if (a[0].nr % p->run.seq || !is(prob, a[0].nr, a[0].nc / d * p->run.seq))
		return "prob must have a column for each head and token of a row";
	if (p->buf[prob->buf].dtype != p->buf[a[0].buf].dtype)
		return "prob must have the type of q";
	if (bwd && (!same(&a[0], &a[5]) || !same(&a[1], &a[6]) || !same(&a[1], &a[7])))
		return "gradients must have the shapes of their values";
	return NULL;
}

static const char *check_attention_cached(const struct fo_op *o)
{
	const struct fo_operand *a = o->arg;
	int32_t d = o->attr.head_dim;
	if (d <= 0 || a[0].nc % d || a[1].nc % d)
		return "columns of q and k must be whole heads";
	if ((a[0].nc / d) % (a[1].nc / d))
		return "query heads must be a multiple of kv heads";
	return same(&a[1], &a[2]) && same(&a[0], &a[4]) && is(&a[3], 1, 2) && a[0].nr <= a[1].nr
		       ? NULL
		       : "q, k, v, span and o disagree";
}

static const char *check_norm(const struct fo_op *o)
{
	const struct fo_operand *a = o->arg;
	int64_t d = o->attr.head_dim ? o->attr.head_dim : a[0].nc;
	if (d < 0 || a[0].nc % d)
		return "columns of x must be whole heads";
	int64_t heads = a[0].nc / d;
	if (o->kind == FO_OP_rmsnorm)
		return is(&a[1], 1, d) && same(&a[0], &a[2]) && is(&a[3], a[0].nr, heads) ? NULL
											  : "x, g, y and rstd disagree";
	if (o->kind == FO_OP_add_rmsnorm)
		return heads == 1 && same(&a[0], &a[1]) && is(&a[2], 1, d) && same(&a[0], &a[3]) &&
				       same(&a[0], &a[4]) && is(&a[5], a[0].nr, 1)
			       ? NULL
			       : "a, b, g, c, y and rstd disagree";
	if (o->kind == FO_OP_rmsnorm_bwd)
		return is(&a[1], a[0].nr, heads) && is(&a[2], 1, d) && same(&a[0], &a[3]) && same(&a[0], &a[4]) &&
				       is(&a[5], 1, d) && (o->n < 7 || same(&a[0], &a[6]))
			       ? NULL
			       : "x, rstd, g, dy, dx, dg disagree";
	if (o->kind == FO_OP_rmsnorm_dg)
		return is(&a[1], a[0].nr, heads) && same(&a[0], &a[2]) && is(&a[3], 1, d) ? NULL
											  : "x, rstd, dy, dg disagree";
	return is(&a[1], a[0].nr, heads) && is(&a[2], 1, d) && same(&a[0], &a[3]) && same(&a[0], &a[4]) &&
			       (o->n < 6 || same(&a[0], &a[5]))
		       ? NULL
		       : "x, rstd, g, dy, dx disagree";
}

/* Scales of x: one, or one for each row or column. */
static bool is_scale(const struct fo_operand *s, const struct fo_operand *x)
{
	return is(s, 1, 1) || is(s, x->nr, 1) || is(s, 1, x->nc);
}

static const char *check_matmul(const struct fo_op *o)
{
	const struct fo_operand *a = o->arg;
	int64_t m, n, k;
	matmul_dims(o, &m, &n, &k);
	if ((o->attr.tb ? a[1].nc : a[1].nr) != k || !is(&a[2], m, n))
		return "m, n, k disagree";
	if (o->n < 5)
		return o->n == 3 ? NULL : "one scale without the other";
	bool sa = is(&a[3], 1, 1) || (o->attr.ta ? is(&a[3], 1, m) : is(&a[3], m, 1)),
	     sb = is(&a[4], 1, 1) || (o->attr.tb ? is(&a[4], n, 1) : is(&a[4], 1, n));
	return sa && sb ? NULL : "scales do not lie along the lines of their operands";
}

static bool is_transfer(const struct fo_op *o) { return o->kind == FO_OP_offload || o->kind == FO_OP_fetch; }

/* Host memory is reached by transfers alone: whole rows, which lie end to end on both sides. */
static const char *check_host_memory(const struct fo_program *p, const struct fo_op *o)
{
	int host = o->kind == FO_OP_offload ? 1 : o->kind == FO_OP_fetch ? 0 : -1;
	for (int i = 0; i < o->n; i++)
		if ((p->buf[o->arg[i].buf].home == FO_HOME_HOST) != (i == host))
			return "host memory is what offload writes and fetch reads, no other operand";
	if (host < 0)
		return NULL;
	const struct fo_operand *x = &o->arg[0], *y = &o->arg[1];
	const struct fo_buffer *a = &p->buf[x->buf], *b = &p->buf[y->buf];
	return same(x, y) && a->dtype == b->dtype && x->nc == a->cols && y->nc == b->cols
		       ? NULL
		       : "x and y disagree, or are no whole rows";
}

int fo_op_fp8_step(enum fo_op_kind kind)
{
	switch (kind) {
	case FO_OP_fp8_cast_step: return 1;
	case FO_OP_rmsnorm_fp8: return 3;
	case FO_OP_add_rmsnorm_fp8: return 5;
	case FO_OP_swiglu_fp8: return 2;
	case FO_OP_swiglu_bwd_fp8: return 3;
	default: return -1;
	}
}

/* Operand i is what a cast makes: may be, must be fp8. */
static bool is_cast_result(const struct fo_op *o, int i, bool *must)
{
	int step = fo_op_fp8_step(o->kind);
	bool y = step >= 0 ? i == step + 1 : (o->kind == FO_OP_fp8_cast || o->kind == FO_OP_fp8_cast_t) && i == 2,
	     yt = step >= 0 ? i == step + 3 : o->kind == FO_OP_fp8_cast_t && i == 3;
	*must = y || (yt && (o->kind == FO_OP_fp8_cast_t || o->kind == FO_OP_fp8_cast_step));
	return y || yt;
}

/* fp8 numbers are operands of products, each with its scale, what casts make, and what is moved; scales are f32.
 * Kernels rely on it. */
static const char *check_fp8(const struct fo_program *p, const struct fo_op *o)
{
#define TYPE(i) (p->buf[o->arg[i].buf].dtype)
	bool product = o->kind == FO_OP_matmul, must;
	int made = -1, step = fo_op_fp8_step(o->kind);
	for (int i = 0; i < o->n; i++) {
		bool cast = is_cast_result(o, i, &must);
		if (fo_dtype_fp8(TYPE(i)) && !(product && i < 2) && !cast && !is_transfer(o))
			return "fp8 numbers without their scale";
		if (cast && must && !fo_dtype_fp8(TYPE(i)))
			return "a cast makes fp8 numbers";
		if (cast && made >= 0 && fo_dtype_fp8(TYPE(i)) && TYPE(i) != TYPE(made))
			return "both results of a cast are of one format";
		made = cast ? i : made;
	}
	if (product && (fo_dtype_fp8(TYPE(0)) != (o->n == 5) || fo_dtype_fp8(TYPE(1)) != (o->n == 5)))
		return "both factors are fp8 and have scales, or neither";
	if (product && o->n == 5 && TYPE(0) == FO_E5M2 && TYPE(1) == FO_E5M2)
		return "one of two fp8 factors must be e4m3";
	bool f32 = step < 0 || (TYPE(step) == FO_F32 && TYPE(step + 2) == FO_F32);
	switch ((enum fo_op_kind)o->kind) {
	case FO_OP_matmul: f32 = o->n < 5 || (TYPE(3) == FO_F32 && TYPE(4) == FO_F32); break;
	case FO_OP_amax:
	case FO_OP_fp8_cast:
	case FO_OP_fp8_cast_t: f32 = TYPE(1) == FO_F32; break;
	case FO_OP_fp8_scale:
	case FO_OP_fp8_begin:
	case FO_OP_fp8_push: f32 = TYPE(0) == FO_F32 && TYPE(1) == FO_F32; break;
	default: break;
	}
	return f32 ? NULL : "maxima and scales must be f32";
#undef TYPE
}

/* Of x(R,C): a scale, fp8 numbers, maxima, and perhaps their transpose, or x itself. */
static const char *check_fp8_step(const struct fo_program *p, const struct fo_op *o, int64_t rows, int64_t cols)
{
	const struct fo_operand *a = &o->arg[fo_op_fp8_step(o->kind)];
	if (!is(&a[0], 1, 1) || !is(&a[1], rows, cols) || !is(&a[2], 1, FO_FP8_AMAX_COLS))
		return "x, sx, y and amax disagree";
	if (a + 3 == o->arg + o->n)
		return NULL;
	int type = p->buf[a[3].buf].dtype;
	if (!fo_dtype_fp8(type))
		return is(&a[3], rows, cols) && type == p->buf[o->arg[0].buf].dtype
			       ? NULL
			       : "what is stored beside its cast is not of x's type or shape";
	return is(&a[3], cols, rows) ? NULL : "the transpose disagrees";
}

/* Operations that cast what they make, by what stands before sx. */
static const char *check_made_fp8(const struct fo_program *p, const struct fo_op *o)
{
	const struct fo_operand *a = o->arg;
	bool fits = true, both = o->kind == FO_OP_swiglu_bwd_fp8;
	switch ((enum fo_op_kind)o->kind) {
	case FO_OP_rmsnorm_fp8: fits = !o->attr.head_dim && is(&a[1], 1, a[0].nc) && is(&a[2], a[0].nr, 1); break;
	case FO_OP_add_rmsnorm_fp8:
		fits = !o->attr.head_dim && same(&a[0], &a[1]) && is(&a[2], 1, a[0].nc) && same(&a[0], &a[3]) &&
		       is(&a[4], a[0].nr, 1);
		break;
	default: fits = same(&a[0], &a[1]) && (!both || same(&a[0], &a[2])); break;
	}
	return fits ? check_fp8_step(p, o, a[0].nr, (both ? 2 : 1) * (int64_t)a[0].nc)
		    : "what is cast cannot be made of these shapes";
}

static const char *check_shapes(const struct fo_program *p, const struct fo_op *o)
{
	const struct fo_operand *a = o->arg;
	switch ((enum fo_op_kind)o->kind) {
	case FO_OP_matmul: return check_matmul(o);
	case FO_OP_amax: return is_scale(&a[1], &a[0]) ? NULL : "amax must be (1,1), (R,1) or (1,C)";
	case FO_OP_fp8_scale:
		if (!(o->attr.value > 0))
			return "the largest number of a format is above 0";
		return same(&a[0], &a[1]) ? NULL : "amax and sx disagree";
	case FO_OP_fp8_cast: return is_scale(&a[1], &a[0]) && same(&a[0], &a[2]) ? NULL : "x, sx, y disagree";
	case FO_OP_fp8_cast_t:
		return is(&a[1], 1, 1) && same(&a[0], &a[2]) && is(&a[3], a[0].nc, a[0].nr) ? NULL
											    : "x, sx, y, yt disagree";
	case FO_OP_fp8_begin: return is(&a[1], a[0].nr, FO_FP8_AMAX_COLS) ? NULL : "history and amax disagree";
	case FO_OP_fp8_cast_step: return check_fp8_step(p, o, a[0].nr, a[0].nc);
	case FO_OP_rmsnorm_fp8:
	case FO_OP_add_rmsnorm_fp8:
	case FO_OP_swiglu_fp8:
	case FO_OP_swiglu_bwd_fp8: return check_made_fp8(p, o);
	case FO_OP_fp8_push:
		return is(&a[0], a[1].nr, 1) && is(&a[2], 1, 2) ? NULL : "amax, history and scale disagree";
	case FO_OP_attention:
	case FO_OP_attention_bwd:
	case FO_OP_attention_bwd_rope: return check_attention(o);
	case FO_OP_attention_eager:
	case FO_OP_attention_eager_bwd: return check_attention_eager(p, o);
	case FO_OP_attention_cached: return check_attention_cached(o);
	case FO_OP_cache_put:
		return a[0].nc == a[2].nc && is(&a[1], 1, 2) && a[0].nr <= a[2].nr ? NULL
										   : "x, span and cache disagree";
	case FO_OP_last_row: return is(&a[1], 1, 2) && is(&a[2], 1, a[0].nc) ? NULL : "x, span and y disagree";
	case FO_OP_embed: return is(&a[0], a[2].nr, 1) && a[1].nc == a[2].nc ? NULL : "tokens, table and x disagree";
	case FO_OP_embed_bwd:
		return is(&a[0], a[1].nr, 1) && a[2].nc == a[1].nc ? NULL : "tokens, dx and dtable disagree";
	case FO_OP_rmsnorm:
	case FO_OP_rmsnorm_dx:
	case FO_OP_rmsnorm_dg:
	case FO_OP_add_rmsnorm:
	case FO_OP_rmsnorm_bwd: return check_norm(o);
	case FO_OP_add_bias: return is(&a[1], 1, a[0].nc) ? NULL : "y and b disagree";
	case FO_OP_bias_grad: return is(&a[1], 1, a[0].nc) ? NULL : "dy and db disagree";
	case FO_OP_add:
	case FO_OP_swiglu: return same(&a[0], &a[1]) && same(&a[0], &a[2]) ? NULL : "shapes must be equal";
	case FO_OP_swiglu_bwd:
		for (int i = 1; i < 5; i++)
			if (!same(&a[0], &a[i]))
				return "shapes must be equal";
		return NULL;
	case FO_OP_rope:
		return o->attr.head_dim > 0 && o->attr.head_dim % 2 == 0 && a[0].nc % o->attr.head_dim == 0 &&
				       is(&a[1], a[0].nr, 1) && a[2].nc == o->attr.head_dim
			       ? NULL
			       : "x, position, table and head dimension disagree";
	case FO_OP_xent:
		return is(&a[1], a[0].nr, 1) && is(&a[2], 1, FO_HYPER_COUNT) && is(&a[3], 1, 1)
			       ? NULL
			       : "logits, target, hyper, loss disagree";
	case FO_OP_xent_fwd: return is(&a[1], a[0].nr, 1) && is(&a[2], 1, 2) ? NULL : "logits, target, loss disagree";
	case FO_OP_sumsq: return is(&a[1], 1, 1) ? NULL : "acc must be (1,1)";
	case FO_OP_clip:
		return is(&a[0], 1, 1) && is(&a[1], 1, FO_HYPER_COUNT) && is(&a[2], 1, 2) &&
				       (o->n < 4 || is(&a[3], 1, 1))
			       ? NULL
			       : "acc, hyper, scale, loss disagree";
	case FO_OP_clip_ahead:
		return is(&a[0], 1, FO_HYPER_COUNT) && is(&a[1], 1, 2) && is(&a[2], 1, 1)
			       ? NULL
			       : "hyper, scale, loss disagree";
	case FO_OP_global_norm: return is(&a[0], 1, 1) && is(&a[1], 1, 2) ? NULL : "acc and scale disagree";
	case FO_OP_adamw:
		return same(&a[0], &a[1]) && same(&a[0], &a[2]) && same(&a[0], &a[5]) &&
				       (o->n < 7 || same(&a[0], &a[6])) && is(&a[3], 1, FO_HYPER_COUNT) &&
				       is(&a[4], 1, 2)
			       ? NULL
			       : "m, v, grad, w disagree";
	case FO_OP_sumsq_many:
	case FO_OP_adamw_many:
	case FO_OP_adamw_master_many:
	case FO_OP_fp8_begin_many: return NULL; /* check_many */
	case FO_OP_offload:
	case FO_OP_fetch: return NULL; /* check_host_memory */
	case FO_OP_host_in:
	case FO_OP_host_out: return NULL; /* check_port */
	case FO_OP_COUNT: break;
	}
	return "unknown operation";
}

/* Index operands must be i32 and the rest must not be: kernels rely on it. */
static bool is_index_operand(const struct fo_op *o, int i)
{
	const char *n = info[o->kind].operand[i].name;
	if (o->kind == FO_OP_host_in)
		return o->attr.port == FO_PORT_BATCH || o->attr.port == FO_PORT_CHUNK;
	return !strcmp(n, "span") || !strcmp(n, "token") || !strcmp(n, "target") || !strcmp(n, "position") ||
	       !strcmp(n, "doc_start");
}

/* Numbers that are f64 in every precision; of the others none or all are. */
static bool always_f64(const struct fo_op *o, int i)
{
	const char *n = info[o->kind].operand[i].name;
	return !strcmp(n, "hyper") || !strcmp(n, "acc") || !strcmp(n, "scale") || !strcmp(n, "loss");
}

/* Low halves stand beside the bf16 weight that they complete, and a weight is read unless all of it comes from an fp32
 * master: kernels rely on both. */
static const char *check_state(const struct fo_program *p, const struct fo_op *o)
{
	bool adamw = o->kind == FO_OP_adamw, split = false;
	for (int i = 0; i < o->n; i++) {
		bool low = p->buf[o->arg[i].buf].dtype == FO_I16;
		if (low && !(adamw && i == 6))
			return "only the master of adamw is in low halves";
		split |= low;
	}
	if (o->attr.stochastic && !adamw)
		return "only adamw rounds at random";
	if (!adamw)
		return NULL;
	if (split && p->buf[o->arg[5].buf].dtype != FO_BF16)
		return "low halves complete bf16 weights";
	return (o->arg[5].access == FO_DEF) == (o->n > 6 && !split)
		       ? NULL
		       : "a weight is updated where no fp32 master defines it";
}

/* What the loop's ports copy: they trust these shapes. */
static const char *check_port(const struct fo_program *p, const struct fo_op *o)
{
	const struct fo_operand *a = o->arg;
	bool in = o->kind == FO_OP_host_in, f64 = p->buf[a[0].buf].dtype == FO_F64;
	switch ((enum fo_port)o->attr.port) {
	case FO_PORT_BATCH:
		for (int i = 0; i < o->n; i++)
			if (!is(&a[i], p->tokens, 1) || p->buf[a[i].buf].cols != 1)
				return "a batch's operands must be (T,1)";
		return in ? NULL : "a batch is read, not written";
	case FO_PORT_HYPER:
		return in && o->n == 1 && f64 && is(&a[0], 1, FO_HYPER_COUNT) ? NULL
									      : "the hyper port fills one f64 row";
	case FO_PORT_LOSS:
		return !in && f64 && o->n <= 2 && a[0].nr == 1 && a[0].nc <= 2 &&
				       (o->n < 2 || (is(&a[1], 1, 2) && p->buf[a[1].buf].dtype == FO_F64))
			       ? NULL
			       : "the loss port takes f64 rows (1,1) or (1,2), then scale (1,2)";
	case FO_PORT_LOGITS:
		return !in && o->n == 1 && is(&a[0], p->run.mode == FO_MODE_DECODE ? 1 : p->tokens, p->model.vocab)
			       ? NULL
			       : "the logits port takes (T,V), of a chunk (1,V)";
	case FO_PORT_CHUNK:
		return in && o->n == 3 && is(&a[0], p->tokens, 1) && is(&a[1], p->tokens, 1) && is(&a[2], 1, 2) &&
				       p->buf[a[0].buf].cols == 1 && p->buf[a[1].buf].cols == 1
			       ? NULL
			       : "the chunk port fills token (T,1), position (T,1) and span (1,2)";
	case FO_PORT_NONE:
	case FO_PORT_COUNT: break;
	}
	return "no such port";
}

/* Indices come from the batch: tokens and targets lie below the vocabulary, positions below the row's length. */
static const char *check_index_range(const struct fo_program *p, const struct fo_op *o)
{
	const struct fo_operand *a = o->arg;
	if ((o->kind == FO_OP_embed && a[1].nr != p->model.vocab) ||
	    (o->kind == FO_OP_embed_bwd && a[2].nr != p->model.vocab) ||
	    ((o->kind == FO_OP_xent || o->kind == FO_OP_xent_fwd) && a[0].nc != p->model.vocab))
		return "the vocabulary is another than the model's";
	if ((o->kind == FO_OP_attention_cached && a[1].nr != p->run.context) ||
	    (o->kind == FO_OP_cache_put && a[2].nr != p->run.context))
		return "the cache has other rows than the run's context";
	int64_t positions = p->run.mode == FO_MODE_DECODE ? p->run.context : p->run.seq;
	const struct fo_operand *table = o->kind == FO_OP_rope                 ? &a[2]
					 : o->kind == FO_OP_attention_bwd_rope ? &a[11]
									       : NULL;
	return table && table->nr < positions ? "the table has fewer rows than there are positions" : NULL;
}

/* Tensor by tensor as the base operation's; threads work on them at once, so none may write what another uses. */
static const char *check_many(const struct fo_program *p, const struct fo_op *o)
{
	const struct fo_op_info *f = &info[o->kind];
	int n = o->n - f->common;
	if (n < f->per_tensor || n % f->per_tensor || o->n > FO_MAX_OPERANDS)
		return "wrong number of operands";
	for (int k = 0; k < fo_op_tensors(o->kind, o->n); k++) {
		struct fo_op one = { .kind = (uint8_t)f->base,
				     .phase = o->phase,
				     .lane = o->lane,
				     .n = (uint8_t)(f->common + f->per_tensor),
				     .attr = o->attr };
		for (int i = 0; i < one.n; i++)
			one.arg[i] = o->arg[fo_op_operand_of(o->kind, k, i)];
		const char *why = fo_op_check(p, &one);
		if (why)
			return why;
	}
	for (int i = f->common; i < o->n; i++)
		for (int k = i + 1; k < o->n; k++) {
			const struct fo_operand *a = &o->arg[i], *b = &o->arg[k];
			bool writes = fo_access_writes(a->access) || fo_access_writes(b->access);
			if (writes && a->buf == b->buf && a->dlayer == b->dlayer && a->r0 < b->r0 + b->nr &&
			    b->r0 < a->r0 + a->nr && a->c0 < b->c0 + b->nc && b->c0 < a->c0 + a->nc)
				return "tensors of one operation overlap";
		}
	return NULL;
}

const char *fo_op_check(const struct fo_program *p, const struct fo_op *o)
{
	if (o->kind >= FO_OP_COUNT)
		return "unknown operation";
	const struct fo_op_info *f = &info[o->kind];
	if (f->per_tensor)
		return check_many(p, o);
	if (o->n < f->min_operands || o->n > f->max_operands)
		return "wrong number of operands";
	int wide = -1; /* are the numbers f64? */
	for (int i = 0; i < o->n; i++)
		if (o->arg[i].buf < 0 || o->arg[i].buf >= p->nbuf)
			return "operand names no buffer";
	const char *host = check_host_memory(p, o);
	if (host)
		return host;
	for (int i = 0; i < o->n; i++) {
		const struct fo_operand *a = &o->arg[i];
		const struct fo_buffer *b = &p->buf[a->buf];
		if (a->r0 < 0 || a->c0 < 0 || a->nr < 1 || a->nc < 1 || (int64_t)a->r0 + a->nr > b->rows ||
		    (int64_t)a->c0 + a->nc > b->cols)
			return "rectangle lies outside its buffer";
		if (a->access > FO_TAKE || !(f->operand[i].modes & 1 << a->access))
			return "access mode is not one the operation knows";
		if (is_index_operand(o, i) != (b->dtype == FO_I32) ||
		    (f->cls == FO_CLASS_HOST && (b->dtype == FO_I16 || fo_dtype_fp8(b->dtype))))
			return "operand has the wrong data type";
		if (o->phase == FO_DERIVE && (is_index_operand(o, i) || f->cls == FO_CLASS_HOST))
			return "only numbers are made of weights alone";
		if (is_index_operand(o, i) || f->cls == FO_CLASS_HOST)
			continue;
		if (always_f64(o, i) ? b->dtype != FO_F64 : wide >= 0 && wide != (b->dtype == FO_F64))
			return "operands mix f64 with narrower numbers";
		if (!always_f64(o, i))
			wide = b->dtype == FO_F64;
	}
	if (f->cls == FO_CLASS_HOST)
		return check_port(p, o);
	const char *why = check_state(p, o);
	if (!why)
		why = check_fp8(p, o);
	if (!why)
		why = check_index_range(p, o);
	return why ? why : check_shapes(p, o);
}
