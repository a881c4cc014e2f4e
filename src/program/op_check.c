/* Whether the operands of an operation fit together. Most of it is in the columns of ops.def: modes, types, and rows
 * and columns by letters that must agree. What these cannot say is in a check that the row names. */
#include "program/ring.h"

/* Sizes of an operation's letters; -1: not known yet. */
struct sizes {
	int64_t of[FO_DIM_COUNT];
};

/* NULL, or why the operation is wrong. Runs before shapes are compared and may set sizes that attributes decide. */
typedef const char *check_fn(const struct fo_program *p, const struct fo_op *o, struct sizes *s);

static bool same(const struct fo_operand *a, const struct fo_operand *b) { return a->nr == b->nr && a->nc == b->nc; }
static bool is(const struct fo_operand *a, int64_t nr, int64_t nc) { return a->nr == nr && a->nc == nc; }
static int type_of(const struct fo_program *p, const struct fo_operand *a) { return p->buf[a->buf].dtype; }

/* Operations that share a check or a cost have the operands that it looks at in the same places. */
#define SAME_PLACE(a, b) _Static_assert((int)(a) == (int)(b), "operands in the same place")
SAME_PLACE(FO_ATTENTION_Q, FO_ATTENTION_BWD_Q);
SAME_PLACE(FO_ATTENTION_Q, FO_ATTENTION_BWD_ROPE_Q);
SAME_PLACE(FO_ATTENTION_Q, FO_ATTENTION_EAGER_Q);
SAME_PLACE(FO_ATTENTION_Q, FO_ATTENTION_EAGER_BWD_Q);
SAME_PLACE(FO_ATTENTION_Q, FO_ATTENTION_BLOCK_Q);
SAME_PLACE(FO_ATTENTION_Q, FO_ATTENTION_BLOCK_BWD_Q);
SAME_PLACE(FO_ATTENTION_K, FO_ATTENTION_BLOCK_K);
SAME_PLACE(FO_ATTENTION_K, FO_ATTENTION_BLOCK_BWD_K);
SAME_PLACE(FO_ATTENTION_Q, FO_ATTENTION_CACHED_Q);
SAME_PLACE(FO_ATTENTION_K, FO_ATTENTION_BWD_K);
SAME_PLACE(FO_ATTENTION_K, FO_ATTENTION_BWD_ROPE_K);
SAME_PLACE(FO_ATTENTION_K, FO_ATTENTION_EAGER_K);
SAME_PLACE(FO_ATTENTION_K, FO_ATTENTION_EAGER_BWD_K);
SAME_PLACE(FO_ATTENTION_K, FO_ATTENTION_CACHED_K);
SAME_PLACE(FO_RMSNORM_X, FO_RMSNORM_DX_X);
SAME_PLACE(FO_RMSNORM_X, FO_RMSNORM_DG_X);
SAME_PLACE(FO_RMSNORM_X, FO_RMSNORM_BWD_X);
SAME_PLACE(FO_RMSNORM_X, FO_ADD_RMSNORM_A);
SAME_PLACE(FO_RMSNORM_X, FO_RMSNORM_FP8_X);
SAME_PLACE(FO_RMSNORM_X, FO_ADD_RMSNORM_FP8_A);
SAME_PLACE(FO_ADD_BIAS_Y, FO_BIAS_GRAD_DY);
SAME_PLACE(FO_AMAX_X, FO_FP8_CAST_X);
SAME_PLACE(FO_AMAX_AMAX, FO_FP8_CAST_SX);
SAME_PLACE(FO_HEADS_APART_X, FO_HEADS_TOGETHER_X);
SAME_PLACE(FO_HEADS_APART_Y, FO_HEADS_TOGETHER_Y);
SAME_PLACE(FO_OFFLOAD_X, FO_FETCH_X);
SAME_PLACE(FO_OFFLOAD_Y, FO_FETCH_Y);
SAME_PLACE(FO_HOST_IN_A, FO_HOST_OUT_A);
SAME_PLACE(FO_ALL_GATHER_X, FO_REDUCE_SCATTER_X);
SAME_PLACE(FO_ALL_GATHER_Y, FO_REDUCE_SCATTER_Y);
SAME_PLACE(FO_ALL_GATHER_X, FO_ALL_TO_ALL_X);
SAME_PLACE(FO_ALL_GATHER_Y, FO_ALL_TO_ALL_Y);

/* ---- checks ---- */

static const char *check_none(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	(void)p, (void)o, (void)s;
	return NULL;
}

/* Scales of the lines of a and b lie along them: as a column for rows, as a row for columns. */
static const char *check_matmul(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	const struct fo_operand *a = &o->arg[FO_MATMUL_A], *b = &o->arg[FO_MATMUL_B], *sa = &o->arg[FO_MATMUL_SA],
				*sb = &o->arg[FO_MATMUL_SB];
	bool scaled = o->n == FO_MATMUL_SB + 1;
	int64_t m, n, k;
	fo_matmul_dims(o, &m, &n, &k);
	s->of[FO_DIM_M] = m, s->of[FO_DIM_N] = n, s->of[FO_DIM_K] = k;
	if (o->n == FO_MATMUL_SA + 1)
		return "one scale without the other";
	if (fo_dtype_fp8(type_of(p, a)) != scaled || fo_dtype_fp8(type_of(p, b)) != scaled)
		return "both factors are fp8 and have scales, or neither";
	if (!scaled)
		return NULL;
	if (type_of(p, a) == FO_E5M2 && type_of(p, b) == FO_E5M2)
		return "one of two fp8 factors must be e4m3";
	bool a_fits = is(sa, 1, 1) || (o->attr.ta ? is(sa, 1, m) : is(sa, m, 1));
	bool b_fits = is(sb, 1, 1) || (o->attr.tb ? is(sb, n, 1) : is(sb, 1, n));
	return a_fits && b_fits ? NULL : "scales do not lie along the lines of their operands";
}

static const char *check_attention(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	(void)p;
	const struct fo_operand *q = &o->arg[FO_ATTENTION_Q], *k = &o->arg[FO_ATTENTION_K];
	int32_t d = o->attr.head_dim;
	if (o->attr.window < 0)
		return "the window must not be negative";
	if (d <= 0 || q->nc % d || k->nc % d)
		return "columns of q and k must be whole heads";
	if ((q->nc / d) % (k->nc / d))
		return "query heads must be a multiple of kv heads";
	if (q->nr > k->nr)
		return "there are more queries than keys";
	s->of[FO_DIM_Q] = d;
	s->of[FO_DIM_H] = q->nc / d;
	return NULL;
}

/* The rows are this rank's part of its cp group's. */
static const char *check_attention_block(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	const char *why = check_attention(p, o, s);
	const struct fo_attr *a = &o->attr;
	int32_t place, cp = fo_mesh_group(&p->run.mesh, FO_GROUP_CP, &place, NULL);
	if (why)
		return why;
	if (a->cp != cp || a->place != place || 2LL * a->chunk * cp != p->run.seq)
		return "the ring is not the one of this rank's cp group and rows";
	if (a->peer < 0 || a->peer >= cp)
		return "the ring has no such rank";
	return o->arg[FO_ATTENTION_Q].nr % (2 * a->chunk) ? "queries are not a rank's part of whole rows" : NULL;
}

static const char *check_attention_merge(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	const int32_t d = o->attr.head_dim;
	(void)p;
	if (d <= 0 || o->arg[FO_ATTENTION_MERGE_O].nc % d)
		return "columns of o must be whole heads";
	s->of[FO_DIM_H] = o->arg[FO_ATTENTION_MERGE_O].nc / d;
	return NULL;
}

/* Rows of own tokens on one side, on the other as many for each rank of the cp group, which has whole heads. */
static const char *check_heads(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	const bool apart = fo_op_info(o->kind)->heads == FO_HEADS_APART;
	const struct fo_operand *own = &o->arg[apart ? FO_HEADS_APART_X : FO_HEADS_TOGETHER_Y];
	const struct fo_operand *by_rank = &o->arg[apart ? FO_HEADS_APART_Y : FO_HEADS_TOGETHER_X];
	const int64_t cp = fo_mesh_cp(&p->run.mesh), d = o->attr.head_dim;
	(void)s;
	if (d <= 0 || own->nc % d)
		return "columns must be whole heads";
	const int64_t heads = own->nc / d, each = fo_heads_each(heads, cp);
	if (!each || by_rank->nc != each * d)
		return "the ranks of the cp group do not have so many heads each";
	return by_rank->nr == cp * own->nr ? NULL : "there are not as many rows for each rank of the cp group";
}

static const char *check_attention_rope(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	const char *why = check_attention(p, o, s);
	return !why && o->attr.head_dim % 2 ? "the head dimension must be even" : why;
}

/* Rows are whole rows of the run, so that the keys of a query's row are there for all of its columns. */
static const char *check_eager(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	const char *why = check_attention(p, o, s);
	if (!why && o->arg[FO_ATTENTION_EAGER_Q].nr % p->run.seq)
		return "queries must be whole rows of the run";
	s->of[FO_DIM_HS] = s->of[FO_DIM_H] * p->run.seq;
	return why;
}

/* Own rows of the table, or columns of the logits, where ranks of a tp group divide the vocabulary. */
static const char *check_vocab(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	int64_t begin = 0;
	for (int i = 0; i < o->n; i++) {
		int rows, cols;
		int32_t place, ranks = fo_mesh_group(&p->run.mesh, FO_GROUP_TP, &place, NULL);
		fo_op_dims(o, i, &rows, &cols);
		if ((rows == FO_DIM_V || cols == FO_DIM_V) && p->buf[o->arg[i].buf].tp)
			s->of[FO_DIM_V] = fo_mesh_part(p->model.vocab, place, ranks, &begin);
	}
	return o->attr.element == begin ? NULL : "the first word is not that of this rank's part of the vocabulary";
}

static const char *check_xent_loss(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	(void)p, (void)s;
	const int64_t cols = o->n > FO_XENT_LOSS_HYPER ? 1 : 2;
	return o->arg[FO_XENT_LOSS_LOSS].nc == cols ? NULL : "the loss is (1,1) with hyper, (1,2) without";
}

static const char *check_cache_put(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	(void)p, (void)s;
	return o->arg[FO_CACHE_PUT_X].nr <= o->arg[FO_CACHE_PUT_CACHE].nr ? NULL : "x has more rows than the cache";
}

static const char *check_norm(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	(void)p;
	int64_t columns = o->arg[FO_RMSNORM_X].nc, d = o->attr.head_dim ? o->attr.head_dim : columns;
	if (d < 0 || columns % d)
		return "columns of x must be whole heads";
	s->of[FO_DIM_Q] = d;
	s->of[FO_DIM_H] = columns / d;
	return NULL;
}

static const char *check_row_norm(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	(void)p, (void)s;
	return o->attr.head_dim ? "only whole rows are normed here, not heads" : NULL;
}

static const char *check_rope(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	(void)p;
	int32_t d = o->attr.head_dim;
	if (d <= 0 || d % 2 || o->arg[FO_ROPE_X].nc % d)
		return "columns of x must be whole heads of even size";
	s->of[FO_DIM_Q] = d;
	return NULL;
}

/* A low half completes the bf16 weight beside it, and a weight is read unless all of it comes from an fp32 master. */
static const char *check_adamw(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	(void)s;
	const struct fo_operand *w = &o->arg[FO_ADAMW_W];
	bool master = o->n > FO_ADAMW_MASTER, split = master && type_of(p, &o->arg[FO_ADAMW_MASTER]) == FO_I16;
	if (split && type_of(p, w) != FO_BF16)
		return "low halves complete bf16 weights";
	return (w->access == FO_DEF) == (master && !split) ? NULL
							   : "a weight is updated where no fp32 master defines it";
}

/* Maxima or scales of all of x, of each row or of each column. */
static const char *check_scales(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	(void)p, (void)s;
	const struct fo_operand *x = &o->arg[FO_FP8_CAST_X], *sx = &o->arg[FO_FP8_CAST_SX];
	return is(sx, 1, 1) || is(sx, x->nr, 1) || is(sx, 1, x->nc) ? NULL
								    : "maxima and scales are (1,1), (R,1) or (1,C)";
}

static const char *check_fp8_scale(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	(void)p, (void)s;
	return o->attr.value > 0 ? NULL : "the largest number of a format is above 0";
}

/* The last operand, where it is there, is the transpose of the fp8 numbers, or the numbers before the cast. */
static const char *check_made_fp8(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	(void)s;
	const struct fo_operand *q = &o->arg[fo_op_fp8_step(o->kind) + 1], *z = q + 2;
	if (z == o->arg + o->n)
		return NULL;
	if (fo_dtype_fp8(type_of(p, z)))
		return is(z, q->nc, q->nr) ? NULL : "the transpose does not have the shape of one";
	return same(z, q) && type_of(p, z) == type_of(p, o->arg)
		       ? NULL
		       : "what is stored beside its cast is not of x's type or shape";
}

static const char *check_row_norm_fp8(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	const char *why = check_row_norm(p, o, s);
	return why ? why : check_made_fp8(p, o, s);
}

/* Whole rows, which lie end to end on both sides. */
static const char *check_transfer(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	(void)s;
	const struct fo_operand *x = &o->arg[FO_OFFLOAD_X], *y = &o->arg[FO_OFFLOAD_Y];
	return type_of(p, x) == type_of(p, y) && x->nc == p->buf[x->buf].cols && y->nc == p->buf[y->buf].cols
		       ? NULL
		       : "x and y differ in type, or are not whole rows";
}

/* Memory that travels lies end to end: whole rows. One rank alone has nobody to send to. */
static const char *check_comm(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	const enum fo_wire wire = fo_op_info(o->kind)->wire;
	(void)s;
	if (o->attr.narrow &&
	    ((wire != FO_WIRE_ALL_REDUCE && wire != FO_WIRE_REDUCE_SCATTER) || type_of(p, &o->arg[0]) != FO_F32))
		return "only sums of f32 travel as bf16";
	if (o->group <= FO_GROUP_NONE || o->group >= FO_GROUP_COUNT)
		return "communication names no group of ranks";
	for (int i = 0; i < o->n; i++)
		if (o->arg[i].c0 || o->arg[i].nc != p->buf[o->arg[i].buf].cols)
			return "communication takes whole rows";
	return NULL;
}

static const char *check_peer(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	int32_t place, ranks = fo_mesh_group(&p->run.mesh, (enum fo_group)o->group, &place, NULL);
	if (o->attr.peer < 0 || o->attr.peer >= ranks)
		return "the group has no such rank";
	if (fo_op_family(o->kind) == FO_OPS_P2P && o->attr.peer == place)
		return "a rank cannot send to itself";
	return check_comm(p, o, s);
}

static const char *check_parts(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	const struct fo_operand *x = &o->arg[FO_ALL_GATHER_X], *y = &o->arg[FO_ALL_GATHER_Y];
	const char *why = check_comm(p, o, s);
	int32_t place, ranks = fo_mesh_group(&p->run.mesh, (enum fo_group)o->group, &place, NULL);
	int64_t begin;
	if (why)
		return why;
	if (fo_op_info(o->kind)->wire == FO_WIRE_ALL_TO_ALL)
		return x->nr % ranks ? "the rows cannot be shared evenly among the ranks of the group" : NULL;
	bool gathers = fo_op_info(o->kind)->wire == FO_WIRE_ALL_GATHER;
	const struct fo_operand *part = gathers ? x : y, *whole = gathers ? y : x;
	if (whole->nr < ranks)
		return "there are fewer rows than ranks";
	if (part->nr != fo_mesh_part(whole->nr, place, ranks, &begin))
		return "the rows are not this rank's part";
	bool beside = part->buf != whole->buf || part->dlayer != whole->dlayer;
	if (!beside && y->access == FO_ACC)
		return "rows of x cannot be added to x";
	return beside || part->r0 == whole->r0 + begin ? NULL : "the rows are another rank's part";
}

static bool is_f64(const struct fo_program *p, const struct fo_operand *a, int64_t cols)
{
	return is(a, 1, cols) && type_of(p, a) == FO_F64;
}
/* A whole column of the batch. */
static bool is_batch(const struct fo_program *p, const struct fo_operand *a)
{
	return is(a, p->tokens, 1) && p->buf[a->buf].cols == 1;
}
/* Documents may be those of all tokens of the rank's cp group. */
static bool is_batch_of_group(const struct fo_program *p, const struct fo_operand *a)
{
	return p->run.pass.cp == FO_CP_HEADS && is(a, p->tokens * fo_mesh_cp(&p->run.mesh), 1) &&
	       p->buf[a->buf].cols == 1;
}

/* The training loop copies what its ports name and trusts these shapes. */
static const char *check_port(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	(void)s;
	const struct fo_operand *a = &o->arg[FO_HOST_IN_A], *scale = &o->arg[FO_PORT_LOSS_SCALE];
	bool in = a->access == FO_DEF, fits;
	switch ((enum fo_port)o->attr.port) {
	case FO_PORT_BATCH:
		for (int i = 0; i < o->n; i++)
			if (!is_batch(p, &o->arg[i]) &&
			    (i != FO_PORT_BATCH_DOC_START || !is_batch_of_group(p, &o->arg[i])))
				return "a batch's operands must be (T,1)";
		return in ? NULL : "a batch is read, not written";
	case FO_PORT_HYPER:
		fits = in && o->n == 1 && is_f64(p, a, FO_HYPER_COUNT);
		return fits ? NULL : "the hyper port fills one f64 row";
	case FO_PORT_LOSS:
		fits = !in && o->n <= 2 && (is_f64(p, a, 1) || is_f64(p, a, 2)) && (o->n < 2 || is_f64(p, scale, 2));
		return fits ? NULL : "the loss port takes f64 rows (1,1) or (1,2), then scale (1,2)";
	case FO_PORT_LOGITS:
		fits = !in && o->n == 1 && is(a, p->run.mode == FO_MODE_DECODE ? 1 : p->tokens, p->model.vocab);
		return fits ? NULL : "the logits port takes (T,V), of a chunk (1,V)";
	case FO_PORT_CHUNK:
		fits = in && o->n == 3 && is_batch(p, a) && is_batch(p, &o->arg[FO_PORT_CHUNK_POSITION]) &&
		       is(&o->arg[FO_PORT_CHUNK_SPAN], 1, 2);
		return fits ? NULL : "the chunk port fills token (T,1), position (T,1) and span (1,2)";
	case FO_PORT_NONE:
	case FO_PORT_COUNT: break;
	}
	return "no such port";
}

/* Tensor by tensor as the base operation; threads work on them at once, so none may write what another uses. */
static const char *check_many(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	(void)s;
	const struct fo_op_info *f = fo_op_info(o->kind);
	for (int k = 0; k < fo_op_tensors(o->kind, o->n); k++) {
		struct fo_op one = { .kind = (uint8_t)f->base,
				     .phase = o->phase,
				     .lane = o->lane,
				     .group = o->group,
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
			if ((fo_access_writes(a->access) || fo_access_writes(b->access)) && fo_operands_overlap(a, b))
				return "tensors of one operation overlap";
		}
	return NULL;
}

static check_fn *const check_of[FO_OP_COUNT] = {
#define FO_OP(id, ID, cls, family, cost, check, ...) check,
#include "program/ops.def"
};

/* ---- columns of ops.def ---- */

static const char *check_count(const struct fo_op *o)
{
	const struct fo_op_info *f = fo_op_info(o->kind);
	int each = o->n - f->common;
	bool fits = f->per_tensor ? each >= f->per_tensor && each % f->per_tensor == 0 && o->n <= FO_MAX_OPERANDS
				  : o->n >= f->min_operands && o->n <= f->max_operands;
	return fits ? NULL : "wrong number of operands";
}

static const char *check_rectangle(const struct fo_program *p, const struct fo_operand *a, int modes)
{
	const struct fo_buffer *b = &p->buf[a->buf];
	if (a->r0 < 0 || a->c0 < 0 || a->nr < 1 || a->nc < 1 || (int64_t)a->r0 + a->nr > b->rows ||
	    (int64_t)a->c0 + a->nc > b->cols)
		return "rectangle lies outside its buffer";
	return a->access > FO_TAKE || !(modes & 1 << a->access) ? "access mode is not one the operation knows" : NULL;
}

/* The types that were seen while an operation's operands are visited. */
struct types {
	int wide; /* are the numbers f64? -1: none has been seen */
	int cast; /* type of the fp8 results; -1: none has been seen */
};

static const char *check_number(int dtype, int type, int first, struct types *seen)
{
	bool fp8 = fo_dtype_fp8(dtype), makes = type == FO_TYPE_FP8 || type == FO_TYPE_CAST;
	/* In every precision, as numbers in fp8. */
	if (type == FO_TYPE_MAX || type == FO_TYPE_F32 || type == FO_TYPE_STEP)
		return dtype == FO_F32 ? NULL : "maxima and scales must be f32";
	if (!fp8 && seen->wide >= 0 && seen->wide != (dtype == FO_F64))
		return "operands mix f64 with narrower numbers";
	if (!fp8)
		seen->wide = dtype == FO_F64;
	if (type == FO_TYPE_WIDE && dtype != FO_F32 && dtype != FO_F64)
		return "statistics, gradients of weights and tables are f32 at least";
	if (dtype == FO_I16 && type != FO_TYPE_MASTER)
		return "only the master of adamw is in low halves";
	if (fp8 && !makes && type != FO_TYPE_FACTOR && type != FO_TYPE_MOVED && type != FO_TYPE_HOSTED)
		return "fp8 numbers without their scale";
	if (type == FO_TYPE_FP8 && !fp8)
		return "a cast makes fp8 numbers";
	if (type == FO_TYPE_LIKE && dtype != first)
		return "an operand must have the type of the first";
	if (!makes || !fp8)
		return NULL;
	if (seen->cast >= 0 && seen->cast != dtype)
		return "both results of a cast are of one format";
	seen->cast = dtype;
	return NULL;
}

static const char *check_type(const struct fo_program *p, const struct fo_op *o, int i, struct types *seen)
{
	int type = fo_op_info(o->kind)->operand[fo_op_operand_row(o->kind, i)].type, dtype = type_of(p, &o->arg[i]);
	bool port = type == FO_TYPE_PORT, index = type == FO_TYPE_I32;
	if ((p->buf[o->arg[i].buf].home == FO_HOME_HOST) != (type == FO_TYPE_HOSTED))
		return "host memory is what offload writes and fetch reads, no other operand";
	if (port)
		index = o->attr.port == FO_PORT_BATCH || o->attr.port == FO_PORT_CHUNK;
	if (index != (dtype == FO_I32) || (port && (dtype == FO_I16 || fo_dtype_fp8(dtype))))
		return "operand has the wrong data type";
	if (o->phase == FO_DERIVE && (index || port))
		return "only numbers are made of weights alone";
	if (type == FO_TYPE_F64)
		return dtype == FO_F64 ? NULL : "operands mix f64 with narrower numbers";
	return index || port ? NULL : check_number(dtype, type, type_of(p, o->arg), seen);
}

static bool fits(const struct fo_program *p, struct sizes *s, int dim, int64_t n)
{
	switch (dim) {
	case FO_DIM_ANY: return true;
	case FO_DIM_1: return n == 1;
	case FO_DIM_2: return n == 2;
	case FO_DIM_4: return n == 4;
	case FO_DIM_HYPER: return n == FO_HYPER_COUNT;
	case FO_DIM_V: return n == (s->of[FO_DIM_V] < 0 ? p->model.vocab : s->of[FO_DIM_V]);
	case FO_DIM_CONTEXT: return n == p->run.context;
	case FO_DIM_POSITIONS: return n >= (p->run.mode == FO_MODE_DECODE ? p->run.context : p->run.seq);
	case FO_DIM_F2: return n == 2 * s->of[FO_DIM_F];
	default: break;
	}
	if (s->of[dim] < 0)
		s->of[dim] = n;
	return s->of[dim] == n;
}

void fo_op_dims(const struct fo_op *o, int i, int *rows, int *cols)
{
	const struct fo_op_operand *f = &fo_op_info(o->kind)->operand[fo_op_operand_row(o->kind, i)];
	bool turned = f->type == FO_TYPE_FACTOR && (i == FO_MATMUL_A ? o->attr.ta : o->attr.tb);
	*rows = turned ? f->cols : f->rows;
	*cols = turned ? f->rows : f->cols;
}

static const char *check_shapes(const struct fo_program *p, const struct fo_op *o, struct sizes *s)
{
	for (int i = 0; i < o->n; i++) {
		int rows, cols;
		fo_op_dims(o, i, &rows, &cols);
		if (!fits(p, s, rows, o->arg[i].nr) || !fits(p, s, cols, o->arg[i].nc))
			return fo_op_info(o->kind)->operand[i].misfit;
	}
	return NULL;
}

const char *fo_op_check(const struct fo_program *p, const struct fo_op *o)
{
	if (o->kind >= FO_OP_COUNT)
		return "unknown operation";
	const struct fo_op_info *f = fo_op_info(o->kind);
	struct types types = { -1, -1 };
	struct sizes sizes;
	const char *why = check_count(o);
	if (why || f->per_tensor)
		return why ? why : check_many(p, o, NULL);
	for (int i = 0; i < o->n && !why; i++)
		if (o->arg[i].buf < 0 || o->arg[i].buf >= p->nbuf)
			why = "operand names no buffer";
	for (int i = 0; i < o->n && !why; i++)
		why = check_rectangle(p, &o->arg[i], f->operand[i].modes);
	for (int i = 0; i < o->n && !why; i++)
		why = check_type(p, o, i, &types);
	if (!why && f->cls != FO_CLASS_COMM && o->group)
		why = "only communication has a group of ranks";
	if (!why && f->cls != FO_CLASS_COMM && o->attr.narrow)
		why = "only communication travels as bf16";
	if (!why && o->attr.cp && f->block != (int)o->kind)
		why = "only attention over blocks of keys names a ring of ranks";
	if (!why && o->attr.stochastic && f->family != FO_OPS_UPDATE)
		why = "only adamw rounds at random";
	for (int d = 0; d < FO_DIM_COUNT; d++)
		sizes.of[d] = -1;
	if (!why)
		why = check_of[o->kind](p, o, &sizes);
	return why ? why : check_shapes(p, o, &sizes);
}
