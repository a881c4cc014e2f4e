/* The list of cases: for each operation a function cases_<id>, called through ops.def. Operands come from its row
 * there; a case says their sizes and what else is special. Shapes leave remainders in every blocking of ours: odd
 * widths, one row, one column, just above powers of two. */
#include "check/engine/num.h"
#include "program/ring.h"

#include <math.h>

struct list {
	struct fo_num_case *out;
	size_t n, cap;
	int kind, dtype;
};

/* Sizes by the letters of ops.def. */
#define DIM(letter, n) [FO_DIM_##letter] = (n)
#define SIZES(...)                                                                                      \
	(const int64_t[FO_DIM_COUNT])                                                                   \
	{                                                                                               \
		DIM(1, 1), DIM(2, 2), DIM(4, FO_FP8_AMAX_COLS), DIM(HYPER, FO_HYPER_COUNT), __VA_ARGS__ \
	}

/* ---- operands ---- */

static int wide(const struct list *l) { return l->dtype == FO_F64 ? FO_F64 : FO_F32; }
/* The type of fp8 numbers. Double precision has none: a cast does not round. */
static int fp8(const struct list *l, int format) { return l->dtype == FO_F64 ? FO_F64 : format; }

static struct fo_num_case *begin(struct list *l)
{
	static struct fo_num_case spare;
	struct fo_num_case *c = l->n < l->cap ? &l->out[l->n] : &spare;
	l->n++;
	fo_num_case_init(c, l->kind);
	return c;
}

static int dtype_of(const struct list *l, int type)
{
	switch (type) {
	case FO_TYPE_I32: return FO_I32;
	case FO_TYPE_F64: return FO_F64;
	case FO_TYPE_WIDE:
	case FO_TYPE_MASTER:
	case FO_TYPE_F32:
	case FO_TYPE_MAX:
	case FO_TYPE_STEP: return wide(l);
	case FO_TYPE_FP8: return fp8(l, FO_E4M3);
	default: return l->dtype;
	}
}

static int access_of(int modes)
{
	static const int order[] = { FO_UPDATE, FO_READ, FO_DEF, FO_ACC, FO_TAKE };
	int i = 0;
	while (!(modes & 1 << order[i]))
		i++;
	return order[i];
}

static int fill_of(const struct fo_op_operand *f, int access)
{
	if (access == FO_DEF || access == FO_ACC)
		return FO_NUM_NAN;
	if (f->cols == FO_DIM_HYPER)
		return FO_NUM_HYPER;
	if (f->type == FO_TYPE_I32)
		return FO_NUM_DOC_START;
	bool positive = f->type == FO_TYPE_F64 || f->type == FO_TYPE_F32 || f->type == FO_TYPE_MAX;
	return positive ? FO_NUM_POSITIVE : FO_NUM_NORMAL;
}

/* Appends the operands of rows `from` to `to` of the operation's table. */
static void put(struct list *l, struct fo_num_case *c, int from, int to, const int64_t *size)
{
	for (int i = from; i <= to; i++) {
		const struct fo_op_operand *f = &fo_op_info(l->kind)->operand[i];
		int access = access_of(f->modes);
		fo_num_case_arg(c, dtype_of(l, f->type), size[f->rows], size[f->cols], access, fill_of(f, access), 1,
				0);
	}
}

/* A case with the operands up to row `to`. */
static struct fo_num_case *upto(struct list *l, int to, const int64_t *size)
{
	struct fo_num_case *c = begin(l);
	put(l, c, 0, to, size);
	return c;
}

/* A case with all operands. */
static struct fo_num_case *all(struct list *l, const int64_t *size)
{
	return upto(l, fo_op_info(l->kind)->max_operands - 1, size);
}

static void fill(struct fo_num_case *c, int arg, int how, double scale, int64_t limit)
{
	c->spec[arg].fill = (uint8_t)how;
	c->spec[arg].scale = scale;
	c->spec[arg].limit = limit;
}

/* ---- matmul ---- */

/* Scales of n lines, as a column or as a row. */
static void scales(struct list *l, struct fo_num_case *c, int64_t n, bool row)
{
	if (row)
		fo_num_case_arg(c, wide(l), 1, n, FO_READ, FO_NUM_POSITIVE, 1, 0);
	else
		fo_num_case_arg(c, wide(l), n, 1, FO_READ, FO_NUM_POSITIVE, 1, 0);
}

/* Scales of all of a factor, or of each line. */
static void matmul_fp8(struct list *l, int64_t m, int64_t n, int64_t k, int t, bool acc)
{
	int ta = t >> 1 & 1, tb = t & 1, lines = t >> 2;
	struct fo_num_case *c = begin(l);
	fo_num_case_factor(c, fp8(l, lines ? FO_E4M3 : FO_E5M2), m, k, ta, 64);
	fo_num_case_factor(c, fp8(l, FO_E4M3), k, n, tb, 64);
	fo_num_case_arg(c, acc ? wide(l) : l->dtype, m, n, FO_DEF, FO_NUM_NAN, 1, 0);
	scales(l, c, lines ? m : 1, ta);
	scales(l, c, lines ? n : 1, !tb);
	c->call.attr.ta = (uint8_t)ta;
	c->call.attr.tb = (uint8_t)tb;
	c->call.first = 1u << FO_MATMUL_C;
	if (acc)
		fo_num_case_sum(c, FO_MATMUL_C, t & 1);
}

static const struct {
	int m, n, k;
} fp8_shape[] = { { 1, 1, 1 }, { 3, 71, 40 }, { 37, 45, 29 }, { 130, 33, 300 }, { 5, 257, 64 }, { 67, 65, 1040 } };
enum { FP8_SHAPES = sizeof fp8_shape / sizeof *fp8_shape };

static void cases_matmul(struct list *l)
{
	static const struct {
		int m, n, k;
	} shape[] = { { 1, 1, 1 },    { 1, 71, 1040 },  { 2, 33, 40 },  { 3, 18, 300 },  { 4, 7, 131 },
		      { 37, 45, 29 }, { 130, 33, 300 }, { 5, 257, 64 }, { 96, 65, 1040 } };

	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
		for (int t = 0; t < 4; t++)
			fo_num_case_matmul(begin(l), shape[s].m, shape[s].n, shape[s].k, t >> 1, t & 1, l->dtype,
					   l->dtype, FO_DEF, true);
	for (int first = 0; first < 2; first++)
		for (int t = 0; t < 4; t++) {
			fo_num_case_matmul(begin(l), 67, 70, 131, t >> 1, t & 1, l->dtype, wide(l), FO_ACC, first);
			fo_num_case_matmul(begin(l), 64, 48, 32, t >> 1, t & 1, l->dtype, l->dtype, FO_ACC, first);
		}
	for (int s = 0; s < FP8_SHAPES; s++)
		for (int t = 0; t < 8; t++)
			matmul_fp8(l, fp8_shape[s].m, fp8_shape[s].n, fp8_shape[s].k, t, s & 1);
}

/* ---- attention ---- */

struct heads {
	int rows, tokens, heads, kv, dim, window;
};

static void attend(struct fo_num_case *c, const struct heads *h)
{
	c->call.attr.head_dim = h->dim;
	c->call.attr.window = h->window;
	c->call.attr.value = 1 / sqrt(h->dim);
}

static const struct heads attention_shape[] = {
	{ 1, 1, 1, 1, 8, 0 },   { 1, 33, 4, 2, 16, 0 },  { 1, 61, 3, 1, 20, 0 },   { 1, 150, 2, 2, 64, 0 },
	{ 1, 33, 4, 2, 16, 5 }, { 1, 61, 3, 1, 20, 13 }, { 1, 150, 2, 2, 64, 97 },
};
enum { ATTENTION_SHAPES = sizeof attention_shape / sizeof *attention_shape };

static void cases_attention(struct list *l)
{
	for (int s = 0; s < ATTENTION_SHAPES; s++) {
		const struct heads *h = &attention_shape[s];
		attend(all(l, SIZES(DIM(T, h->tokens), DIM(HQ, h->heads * h->dim), DIM(KQ, h->kv * h->dim),
				    DIM(H, h->heads))),
		       h);
	}
}

static void cases_attention_bwd(struct list *l)
{
	for (int s = 0; s < ATTENTION_SHAPES; s++) {
		const struct heads *h = &attention_shape[s];
		/* dq and dk of a lone token are zero: no measure for a relative error */
		int tokens = h->tokens > 1 ? h->tokens : 3;
		struct fo_num_case *c = all(l, SIZES(DIM(T, tokens), DIM(HQ, h->heads * h->dim), DIM(Q, h->dim),
						     DIM(KQ, h->kv * h->dim), DIM(H, h->heads), DIM(POSITIONS, 40)));
		fill(c, FO_ATTENTION_BWD_O, FO_NUM_FORWARD, 0, 0);
		fill(c, FO_ATTENTION_BWD_LSE, FO_NUM_FORWARD, 0, 0);
		if (c->call.n > FO_ATTENTION_BWD_ROPE_TABLE) {
			fill(c, FO_ATTENTION_BWD_ROPE_POSITION, FO_NUM_INDEX, 0, 40);
			fill(c, FO_ATTENTION_BWD_ROPE_TABLE, FO_NUM_ROTATION, 0, 0);
			c->call.attr.sign = -1;
		}
		attend(c, h);
	}
}
static void cases_attention_bwd_rope(struct list *l) { cases_attention_bwd(l); }

/* Own keys, those of a rank before and of one behind; rows, documents, windows. Where most queries see all keys of
 * another rank, no number stands out that a worst error could be measured by, so sets that round probabilities to bf16,
 * which take heads of 16 columns, do not get those here: tests/num/test_ring.c has them. */
static const struct ring {
	int cp, place, peer, chunk, rows, heads, kv, dim, window;
} ring[] = {
	{ 1, 0, 0, 2, 1, 1, 1, 8, 0 },    { 2, 1, 0, 9, 1, 4, 2, 16, 0 },    { 2, 1, 1, 9, 2, 4, 2, 16, 0 },
	{ 2, 0, 1, 33, 2, 3, 1, 24, 0 },  { 4, 2, 1, 50, 1, 2, 2, 64, 0 },   { 4, 1, 3, 50, 1, 2, 1, 24, 0 },
	{ 3, 1, 0, 30, 2, 4, 2, 16, 11 }, { 3, 2, 1, 30, 2, 4, 2, 16, 40 },  { 3, 0, 2, 70, 1, 2, 1, 128, 150 },
	{ 2, 0, 1, 144, 1, 2, 1, 16, 0 }, { 2, 1, 1, 97, 2, 1, 1, 32, 120 }, { 8, 6, 5, 48, 3, 2, 2, 24, 0 },
	{ 2, 1, 0, 61, 2, 3, 3, 20, 25 }, { 4, 0, 3, 100, 1, 2, 1, 72, 1 },
};
enum { RINGS = sizeof ring / sizeof *ring };

static struct fo_num_case *of_ring(struct list *l, const struct ring *r)
{
	struct fo_num_case *c = all(l, SIZES(DIM(T, 2 * r->chunk * r->rows), DIM(HQ, r->heads * r->dim),
					     DIM(KQ, r->kv * r->dim), DIM(H, r->heads)));
	attend(c, &(struct heads){ .dim = r->dim, .window = r->window });
	return c;
}

static void cases_attention_block(struct list *l)
{
	for (int s = 0; s < RINGS; s++) {
		struct fo_num_case *c = of_ring(l, &ring[s]);
		if (fo_op_family(l->kind) == FO_OPS_ATTENTION_BWD) {
			fill(c, FO_ATTENTION_BLOCK_BWD_O, FO_NUM_FORWARD, 0, 0);
			fill(c, FO_ATTENTION_BLOCK_BWD_LSE, FO_NUM_FORWARD, 0, 0);
			fo_num_case_sum(c, FO_ATTENTION_BLOCK_BWD_DQ, s % 2);
		}
		c->call.attr.cp = ring[s].cp;
		c->call.attr.place = ring[s].place;
		c->call.attr.peer = ring[s].peer;
		c->call.attr.chunk = ring[s].chunk;
	}
}
static void cases_attention_block_bwd(struct list *l) { cases_attention_block(l); }
static void cases_attention_merge(struct list *l)
{
	for (int s = 0; s < RINGS; s++)
		of_ring(l, &ring[s]);
}

/* As many heads as ranks, several of each rank, fewer than ranks; heads that are no whole vectors. */
static void cases_heads_apart(struct list *l)
{
	static const struct {
		int tokens, heads, dim, ranks;
	} shape[] = { { 1, 1, 8, 1 },  { 5, 2, 8, 2 },   { 33, 6, 12, 3 },
		      { 9, 1, 20, 4 }, { 17, 2, 64, 4 }, { 40, 8, 16, 2 } };
	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
		const int64_t heads = shape[s].heads, ranks = shape[s].ranks;
		struct fo_num_case *c = all(l, SIZES(DIM(T, shape[s].tokens), DIM(N, heads * shape[s].dim),
						     DIM(R, shape[s].tokens * ranks),
						     DIM(C, fo_heads_each(heads, ranks) * shape[s].dim)));
		c->call.attr.head_dim = shape[s].dim;
	}
}
static void cases_heads_together(struct list *l) { cases_heads_apart(l); }

/* One row of the batch and several; heads that share keys; documents, windows. */
static void cases_attention_eager(struct list *l)
{
	static const struct heads shape[] = {
		{ 1, 3, 1, 1, 8, 0 }, { 1, 33, 4, 2, 16, 0 }, { 3, 21, 3, 1, 20, 0 },   { 1, 150, 2, 2, 64, 0 },
		{ 2, 9, 2, 1, 5, 4 }, { 2, 33, 4, 2, 16, 5 }, { 1, 401, 2, 1, 32, 97 },
	};
	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
		const struct heads *h = &shape[s];
		struct fo_num_case *c = all(l, SIZES(DIM(T, h->rows * h->tokens), DIM(HQ, h->heads * h->dim),
						     DIM(KQ, h->kv * h->dim), DIM(HS, h->heads * h->tokens)));
		if (fo_op_family(l->kind) == FO_OPS_EAGER_BWD)
			fill(c, FO_ATTENTION_EAGER_BWD_PROB, FO_NUM_FORWARD, 0, 0);
		attend(c, h);
	}
}
static void cases_attention_eager_bwd(struct list *l) { cases_attention_eager(l); }

/* Chunks at the beginning, in the middle, over several blocks of keys, padded, at the end of the cache; one row or
 * many. */
static const struct chunk {
	int tokens, before, count, context, heads, kv, dim, window;
} chunk[] = { { 1, 0, 1, 1, 1, 1, 8, 0 },       { 1, 300, 1, 320, 6, 2, 16, 0 },   { 1, 1023, 1, 1024, 2, 2, 64, 0 },
	      { 5, 0, 3, 40, 3, 1, 24, 0 },     { 20, 250, 20, 300, 4, 2, 32, 0 }, { 33, 7, 30, 60, 2, 1, 20, 9 },
	      { 9, 500, 9, 600, 4, 1, 128, 0 }, { 1, 700, 1, 800, 2, 1, 32, 200 }, { 40, 240, 37, 300, 4, 2, 16, 30 } };
enum { CHUNKS = sizeof chunk / sizeof *chunk };

static struct fo_num_case *of_chunk(struct list *l, const struct chunk *k, int span)
{
	struct fo_num_case *c = all(l, SIZES(DIM(T, k->tokens), DIM(HQ, k->heads * k->dim), DIM(KQ, k->kv * k->dim),
					     DIM(CONTEXT, k->context), DIM(D, k->heads * k->dim)));
	fill(c, span, FO_NUM_SPAN, k->count, k->before);
	return c;
}

static void cases_attention_cached(struct list *l)
{
	for (int s = 0; s < CHUNKS; s++)
		attend(of_chunk(l, &chunk[s], FO_ATTENTION_CACHED_SPAN),
		       &(struct heads){ .dim = chunk[s].dim, .window = chunk[s].window });
}
static void cases_cache_put(struct list *l)
{
	for (int s = 0; s < CHUNKS; s++)
		of_chunk(l, &chunk[s], FO_CACHE_PUT_SPAN);
}
static void cases_last_row(struct list *l)
{
	for (int s = 0; s < CHUNKS; s++)
		of_chunk(l, &chunk[s], FO_LAST_ROW_SPAN);
}

/* ---- rows ---- */

static const struct {
	int rows, cols;
} row_shape[] = { { 1, 1 }, { 13, 37 }, { 7, 600 }, { 40, 64 } };
enum { ROW_SHAPES = sizeof row_shape / sizeof *row_shape, VOCABULARY = 19 };

/* The sizes of operations over rows. */
#define ROWS(s)                                                                                \
	SIZES(DIM(T, row_shape[s].rows), DIM(R, row_shape[s].rows), DIM(D, row_shape[s].cols), \
	      DIM(C, row_shape[s].cols), DIM(N, row_shape[s].cols), DIM(F, row_shape[s].cols), DIM(V, VOCABULARY))

/* All shapes; `arg` is filled with `how`. */
static void rows(struct list *l, int arg, enum fo_num_fill how, double scale, int64_t limit)
{
	for (int s = 0; s < ROW_SHAPES; s++)
		fill(all(l, ROWS(s)), arg, how, scale, limit);
}

/* All shapes; operand `sum` is stored and added to. Operand 0 is filled with `how`. */
static void rows_sum(struct list *l, int sum, enum fo_num_fill how, int64_t limit)
{
	for (int s = 0; s < ROW_SHAPES; s++)
		for (int first = 0; first < 2; first++) {
			struct fo_num_case *c = all(l, ROWS(s));
			fill(c, 0, how, 1, limit);
			fo_num_case_sum(c, sum, first);
		}
}

/* A table of all words, and one of some in the middle. */
static void cases_embed(struct list *l)
{
	rows(l, FO_EMBED_TOKEN, FO_NUM_INDEX, 0, VOCABULARY);
	for (int s = 0; s < ROW_SHAPES; s++) {
		struct fo_num_case *c = all(l, ROWS(s));
		fill(c, FO_EMBED_TOKEN, FO_NUM_INDEX, 0, 2 * VOCABULARY);
		c->call.attr.element = 1 + s;
	}
}
static void cases_embed_bwd(struct list *l)
{
	rows_sum(l, FO_EMBED_BWD_DTABLE, FO_NUM_INDEX, VOCABULARY);
	for (int s = 0; s < 2 * ROW_SHAPES; s++) {
		struct fo_num_case *c = all(l, ROWS(s / 2));
		fill(c, FO_EMBED_BWD_TOKEN, FO_NUM_INDEX, 0, 2 * VOCABULARY);
		fo_num_case_sum(c, FO_EMBED_BWD_DTABLE, s % 2);
		c->call.attr.element = 1 + s;
	}
}
static void cases_add_bias(struct list *l) { rows(l, FO_ADD_BIAS_Y, FO_NUM_NORMAL, 1, 0); }
static void cases_bias_grad(struct list *l) { rows_sum(l, FO_BIAS_GRAD_DB, FO_NUM_NORMAL, 0); }
static void cases_add(struct list *l) { rows(l, FO_ADD_A, FO_NUM_NORMAL, 1, 0); }
static void cases_swiglu(struct list *l) { rows(l, FO_SWIGLU_GATE, FO_NUM_NORMAL, 4, 0); }
static void cases_swiglu_bwd(struct list *l) { rows(l, FO_SWIGLU_BWD_GATE, FO_NUM_NORMAL, 4, 0); }

static void cases_rope(struct list *l)
{
	static const struct heads shape[] = {
		{ .tokens = 1, .heads = 1, .dim = 2 },
		{ .tokens = 9, .heads = 3, .dim = 10 },
		{ .tokens = 21, .heads = 2, .dim = 64 },
		{ .tokens = 5, .heads = 1, .dim = 34 },
	};
	for (int s = 0; s < 4; s++) {
		struct fo_num_case *c = all(l, SIZES(DIM(T, shape[s].tokens), DIM(N, shape[s].heads * shape[s].dim),
						     DIM(Q, shape[s].dim), DIM(POSITIONS, 40)));
		fill(c, FO_ROPE_POSITION, FO_NUM_INDEX, 0, 40);
		fill(c, FO_ROPE_TABLE, FO_NUM_ROTATION, 0, 0);
		c->call.attr.head_dim = shape[s].dim;
		c->call.attr.sign = s & 1 ? -1 : 1;
	}
}

static void cases_xent(struct list *l)
{
	for (int s = 0; s < ROW_SHAPES; s++)
		for (int first = 0; first < 2; first++) {
			struct fo_num_case *c = all(l, SIZES(DIM(T, row_shape[s].rows), DIM(V, row_shape[s].cols)));
			int loss = c->call.n - 1;
			fill(c, FO_XENT_LOGITS, FO_NUM_NORMAL, 3, 0);
			fill(c, FO_XENT_TARGET, FO_NUM_TARGET, 0, row_shape[s].cols);
			fo_num_case_sum(c, loss, first);
		}
}
static void cases_xent_fwd(struct list *l) { cases_xent(l); }

/* Columns from an earlier or a later word on: some targets are none of them. sums: the operand of sums of exponentials
 * that is read; -1: none. */
static void columns(struct list *l, int sums)
{
	for (int s = 0; s < 2 * ROW_SHAPES; s++) {
		const int cols = row_shape[s / 2].cols;
		struct fo_num_case *c = all(l, SIZES(DIM(T, row_shape[s / 2].rows), DIM(V, cols)));
		fill(c, FO_XENT_LOGITS, FO_NUM_NORMAL, 3, 0);
		if (fo_op_info(l->kind)->max)
			continue;
		fill(c, FO_XENT_TARGET, FO_NUM_TARGET, 0, 2 * cols);
		c->call.attr.element = s % 2 * cols / 2;
		if (sums >= 0)
			fill(c, sums, FO_NUM_POSITIVE, cols, 0);
	}
}
static void cases_xent_max(struct list *l) { columns(l, -1); }
static void cases_xent_sums(struct list *l) { columns(l, -1); }
static void cases_xent_grad(struct list *l) { columns(l, FO_XENT_GRAD_SUMS); }
static void cases_xent_loss(struct list *l)
{
	for (int s = 0; s < 4 * ROW_SHAPES; s++) {
		const int64_t *size = SIZES(DIM(T, row_shape[s / 4].rows), DIM(ANY, 1 + s % 2));
		struct fo_num_case *c = upto(l, s % 2 ? FO_XENT_LOSS_LOSS : FO_XENT_LOSS_HYPER, size);
		fill(c, FO_XENT_LOSS_SUMS, FO_NUM_POSITIVE, 9, 0);
		fill(c, FO_XENT_LOSS_TARGET, FO_NUM_TARGET, 0, VOCABULARY);
		fo_num_case_sum(c, FO_XENT_LOSS_LOSS, s / 2 % 2);
	}
}

/* ---- norms ---- */

/* Norms of whole rows (heads 0) and of heads, where the weight is as wide as a head and each head has an rstd. */
static const struct norm {
	int rows, heads, dim;
} norm_shape[] = { { 1, 0, 1 }, { 13, 0, 37 }, { 7, 0, 600 }, { 40, 0, 64 },
		   { 1, 2, 2 }, { 13, 3, 10 }, { 40, 4, 64 }, { 7, 2, 600 } };
enum { NORM_SHAPES = sizeof norm_shape / sizeof *norm_shape };

/* A norm with the operands up to row `to`; `rstd` is the number of the one that must be positive. */
static struct fo_num_case *norm(struct list *l, int to, const struct norm *n, int rstd)
{
	int stats = n->heads ? n->heads : 1;
	struct fo_num_case *c = upto(l, to,
				     SIZES(DIM(T, n->rows), DIM(D, stats * n->dim), DIM(H, stats), DIM(Q, n->dim)));
	c->call.attr.head_dim = n->heads ? n->dim : 0;
	if (rstd >= 0)
		fill(c, rstd, FO_NUM_POSITIVE, 1, 0);
	return c;
}

static void cases_rmsnorm(struct list *l)
{
	for (int s = 0; s < NORM_SHAPES; s++)
		norm(l, FO_RMSNORM_RSTD, &norm_shape[s], -1)->call.attr.value = 1e-5;
}

static void cases_rmsnorm_dx(struct list *l)
{
	for (int s = 0; s < NORM_SHAPES; s++)
		for (int dx = FO_RMSNORM_DX_DX; dx <= (norm_shape[s].heads ? FO_RMSNORM_DX_DX : FO_RMSNORM_DX_DRES);
		     dx++)
			norm(l, dx, &norm_shape[s], FO_RMSNORM_DX_RSTD);
}

static void cases_rmsnorm_dg(struct list *l)
{
	for (int s = 0; s < NORM_SHAPES; s++)
		for (int first = 0; first < 2; first++)
			fo_num_case_sum(norm(l, FO_RMSNORM_DG_DG, &norm_shape[s], FO_RMSNORM_DG_RSTD), FO_RMSNORM_DG_DG,
					first);
}

static void cases_rmsnorm_bwd(struct list *l)
{
	static const struct norm shape[] = { { 1, 0, 1 },   { 13, 0, 37 },  { 7, 0, 600 },
					     { 40, 0, 64 }, { 150, 0, 40 }, /* groups of rows */
					     { 1, 2, 2 },   { 13, 3, 10 },  { 70, 4, 64 } };
	for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
		for (int k = 0; k < 4; k++) /* with and without a residual, stored and added to */
			fo_num_case_sum(norm(l, k & 1 ? FO_RMSNORM_BWD_DRES : FO_RMSNORM_BWD_DG, &shape[s],
					     FO_RMSNORM_BWD_RSTD),
					FO_RMSNORM_BWD_DG, k >> 1);
}

static void cases_add_rmsnorm(struct list *l)
{
	for (int s = 0; s < ROW_SHAPES; s++)
		all(l, ROWS(s))->call.attr.value = 1e-5;
	all(l, SIZES(DIM(T, 150), DIM(D, 40)))->call.attr.value = 1e-5; /* several groups of rows */
}

/* ---- fp8 ---- */

/* Shape s of fp8 operations with scales of the whole tensor, of its rows, of its columns. */
enum { AXES = 3 };
static int64_t scale_rows(int s, int axis) { return axis == 1 ? fp8_shape[s].m : 1; }
static int64_t scale_cols(int s, int axis) { return axis == 2 ? fp8_shape[s].k : 1; }

static void cases_amax(struct list *l)
{
	for (int s = 0; s < FP8_SHAPES; s++)
		for (int axis = 0; axis < AXES; axis++) {
			struct fo_num_case *c = upto(l, FO_AMAX_X,
						     SIZES(DIM(R, fp8_shape[s].m), DIM(C, fp8_shape[s].k)));
			fill(c, FO_AMAX_X, FO_NUM_NORMAL, 3, 0);
			fo_num_case_arg(c, wide(l), scale_rows(s, axis), scale_cols(s, axis), FO_DEF, FO_NUM_NAN, 0, 0);
		}
}

static void cases_fp8_scale(struct list *l)
{
	for (int s = 0; s < FP8_SHAPES; s++)
		for (int axis = 0; axis < AXES; axis++) {
			struct fo_num_case *c = all(l, SIZES(DIM(R, scale_rows(s, axis)), DIM(C, scale_cols(s, axis))));
			fill(c, FO_FP8_SCALE_AMAX, FO_NUM_POSITIVE, 5, 0);
			c->call.attr.value = FO_E4M3_MAX;
			c->call.attr.sign = s & 1;
		}
}

static void cases_fp8_cast(struct list *l)
{
	for (int s = 0; s < FP8_SHAPES; s++)
		for (int axis = 0; axis < AXES; axis++) {
			int64_t r = fp8_shape[s].m, d = fp8_shape[s].k;
			struct fo_num_case *c = upto(l, FO_FP8_CAST_X, SIZES(DIM(R, r), DIM(C, d)));
			fill(c, FO_FP8_CAST_X, FO_NUM_NORMAL, 3, 0);
			fo_num_case_arg(c, wide(l), scale_rows(s, axis), scale_cols(s, axis), FO_READ, FO_NUM_POSITIVE,
					1, 0);
			fo_num_case_arg(c, fp8(l, s & 1 ? FO_E5M2 : FO_E4M3), r, d, FO_DEF, FO_NUM_NAN, 0, 0);
		}
}

static void cases_fp8_cast_t(struct list *l)
{
	for (int s = 0; s < FP8_SHAPES; s++) {
		int64_t r = fp8_shape[s].m, d = fp8_shape[s].k;
		int format = fp8(l, s & 1 ? FO_E5M2 : FO_E4M3);
		struct fo_num_case *c = upto(l, FO_FP8_CAST_T_SX, SIZES(DIM(R, r), DIM(C, d)));
		fill(c, FO_FP8_CAST_T_X, FO_NUM_NORMAL, 3, 0);
		fo_num_case_arg(c, format, r, d, FO_DEF, FO_NUM_NAN, 0, 0);
		fo_num_case_arg(c, format, d, r, FO_DEF, FO_NUM_NAN, 0, 0);
	}
}

/* The maxima of a cast by the scale of the step. first: the history is empty, so the scale is computed from the maximum
 * of the cast tensor itself. Double precision saturates nothing: the maxima lie beyond all numbers. */
static void step_maxima(struct fo_num_case *c, bool first)
{
	int amax = fo_op_fp8_step(c->call.kind) + 2;
	c->spec[amax].scale = 1000;
	fo_num_case_sum(c, amax, first);
	if (!first)
		c->spec[amax].fill = FO_NUM_POSITIVE;
}

static void cases_fp8_cast_step(struct list *l)
{
	for (int s = 0; s < FP8_SHAPES; s++)
		for (int both = 0; both < 2; both++) {
			const int64_t *size = SIZES(DIM(R, fp8_shape[s].m), DIM(C, fp8_shape[s].k));
			struct fo_num_case *c = upto(l, FO_FP8_CAST_STEP_AMAX, size);
			fill(c, FO_FP8_CAST_STEP_X, FO_NUM_NORMAL, 3, 0);
			step_maxima(c, s & 1);
			if (both)
				put(l, c, FO_FP8_CAST_STEP_YT, FO_FP8_CAST_STEP_YT, size);
		}
}

/* Norms and SwiGLU that cast what they make, alone, with its transpose, with the numbers themselves. With a history: a
 * scale of their own numbers would be one of rounded numbers, and double precision rounds none
 * (tests/cuda/test_cuda_optimizer.c and tests/step/test_fp8_step.c have these, to the bit). */
static void made_fp8(struct list *l)
{
	int q = fo_op_fp8_step(l->kind) + 1;
	for (int s = 0; s < FP8_SHAPES; s++)
		for (int z = 0; z < 3; z++) {
			int64_t r = fp8_shape[s].m, d = fp8_shape[s].k;
			struct fo_num_case *c = upto(l, q + 1, SIZES(DIM(T, r), DIM(D, d), DIM(F, d), DIM(F2, 2 * d)));
			int64_t cols = c->call.arg[q].cols;
			step_maxima(c, false);
			if (z == 1 && cols != r) /* in double precision the shape alone says that it is the transpose */
				fo_num_case_arg(c, fp8(l, FO_E4M3), cols, r, FO_DEF, FO_NUM_NAN, 0, 0);
			if (z == 2)
				fo_num_case_arg(c, l->dtype, r, cols, FO_DEF, FO_NUM_NAN, 0, 0);
			c->call.attr.value = fo_op_family(l->kind) == FO_OPS_NORM ? 1e-5 : 0;
		}
}
static void cases_rmsnorm_fp8(struct list *l) { made_fp8(l); }
static void cases_add_rmsnorm_fp8(struct list *l) { made_fp8(l); }
static void cases_swiglu_fp8(struct list *l) { made_fp8(l); }
static void cases_swiglu_bwd_fp8(struct list *l) { made_fp8(l); }

/* Histories of one step and of several. */
static void cases_fp8_begin(struct list *l)
{
	fill(all(l, SIZES(DIM(S, 5), DIM(N, 1))), FO_FP8_BEGIN_HISTORY, FO_NUM_POSITIVE, 5, 0);
}
static void cases_fp8_begin_many(struct list *l)
{
	for (int steps = 10; steps < 20; steps += 9) {
		struct fo_num_case *c = begin(l);
		for (int k = 0; k < 3; k++) {
			put(l, c, FO_FP8_BEGIN_MANY_HISTORY, FO_FP8_BEGIN_MANY_AMAX,
			    SIZES(DIM(S, 5 + k), DIM(N, steps)));
			fill(c, fo_op_operand_of(l->kind, k, FO_FP8_BEGIN_HISTORY), FO_NUM_POSITIVE, 5, 0);
		}
	}
}
static void cases_fp8_push(struct list *l)
{
	for (int steps = 1; steps < 20; steps += 9)
		fill(all(l, SIZES(DIM(S, 3), DIM(N, steps))), FO_FP8_PUSH_HISTORY, FO_NUM_POSITIVE, 1, 0);
}

/* ---- optimizer ---- */

static void cases_sumsq(struct list *l) { rows_sum(l, FO_SUMSQ_ACC, FO_NUM_NORMAL, 0); }

static void cases_clip(struct list *l)
{
	for (int s = 0; s < 2; s++)
		fill(upto(l, FO_CLIP_SCALE, SIZES(DIM(ANY, 1))), FO_CLIP_ACC, FO_NUM_POSITIVE, s ? 100 : 1e-3, 0);
}
static void cases_clip_ahead(struct list *l) { all(l, SIZES(DIM(ANY, 1))); }
static void cases_global_norm(struct list *l)
{
	for (int s = 0; s < 2; s++)
		fill(all(l, SIZES(DIM(ANY, 1))), FO_GLOBAL_NORM_ACC, FO_NUM_POSITIVE, s ? 100 : 1e-3, 0);
}

/* master: FO_F32, FO_I16 (low halves), or -1: the weight has none. */
static void adamw(struct list *l, int r, int d, int moments, int master, bool stochastic)
{
	struct fo_num_case *c = begin(l);
	const int64_t *size = SIZES(DIM(R, r), DIM(C, d));
	bool defined = master == FO_F32;
	fo_num_case_arg(c, moments, r, d, FO_UPDATE, FO_NUM_NORMAL, 0.1, 0);
	fo_num_case_arg(c, moments, r, d, FO_UPDATE, FO_NUM_POSITIVE, 0.1, 0);
	put(l, c, FO_ADAMW_GRAD, FO_ADAMW_SCALE, size);
	fo_num_case_arg(c, l->dtype, r, d, defined ? FO_DEF : FO_UPDATE, FO_NUM_NORMAL, 1, 0);
	if (defined)
		fo_num_case_arg(c, FO_F32, r, d, FO_UPDATE, FO_NUM_NORMAL, 1, 0);
	else if (master == FO_I16)
		fo_num_case_arg(c, FO_I16, r, d, FO_UPDATE, FO_NUM_INDEX, 1, 1 << 15);
	c->call.attr.value = d & 1;
	c->call.attr.stochastic = stochastic;
	c->call.attr.element = 1000;
}

/* Moments in f32 or bf16, weights with or without an fp32 master, whole or in two halves. */
static void cases_adamw(struct list *l)
{
	bool bf16 = l->dtype == FO_BF16;
	for (int s = 0; s < ROW_SHAPES; s++) {
		int r = row_shape[s].rows, d = row_shape[s].cols;
		adamw(l, r, d, wide(l), bf16 ? FO_F32 : -1, false);
		if (l->dtype == FO_F64)
			continue;
		adamw(l, r, d, FO_BF16, bf16 ? FO_F32 : -1, s & 1);
		if (bf16) {
			adamw(l, r, d, s & 2 ? FO_BF16 : FO_F32, FO_I16, s & 1);
			adamw(l, r, d, s & 2 ? FO_BF16 : FO_F32, -1, s & 1);
		}
	}
}

/* Tensors of all sizes in one operation, so that threads' shares begin and end anywhere. */
static const struct {
	int tensors, rows[6], cols[6];
} set[] = { { 1, { 3 }, { 17 } }, { 6, { 1, 40, 1, 7, 300, 1 }, { 33, 96, 5000, 1, 65, 1 } } };
enum { SETS = sizeof set / sizeof *set };

static void cases_sumsq_many(struct list *l)
{
	for (int s = 0; s < SETS; s++)
		for (int first = 0; first < 2; first++) {
			struct fo_num_case *c = upto(l, FO_SUMSQ_MANY_ACC, SIZES(DIM(ANY, 1)));
			for (int k = 0; k < set[s].tensors; k++)
				put(l, c, FO_SUMSQ_MANY_G, FO_SUMSQ_MANY_G,
				    SIZES(DIM(R, set[s].rows[k]), DIM(C, set[s].cols[k])));
			fo_num_case_sum(c, FO_SUMSQ_MANY_ACC, first);
		}
}

static void cases_adamw_many(struct list *l)
{
	bool master = fo_op_info(l->kind)->per_tensor > FO_ADAMW_MANY_W - FO_ADAMW_MANY_M + 1;
	for (int s = 0; s < SETS; s++) {
		struct fo_num_case *c = upto(l, FO_ADAMW_MANY_SCALE, SIZES(DIM(ANY, 1)));
		for (int k = 0; k < set[s].tensors; k++) {
			int r = set[s].rows[k], d = set[s].cols[k];
			fo_num_case_arg(c, wide(l), r, d, FO_UPDATE, FO_NUM_NORMAL, 0.1, 0);
			fo_num_case_arg(c, wide(l), r, d, FO_UPDATE, FO_NUM_POSITIVE, 0.1, 0);
			fo_num_case_arg(c, wide(l), r, d, FO_TAKE, FO_NUM_NORMAL, 1, 0);
			fo_num_case_arg(c, l->dtype, r, d, master ? FO_DEF : FO_UPDATE, FO_NUM_NORMAL, 1, 0);
			if (master)
				fo_num_case_arg(c, wide(l), r, d, FO_UPDATE, FO_NUM_NORMAL, 1, 0);
		}
		c->call.attr.value = s;
	}
}
static void cases_adamw_master_many(struct list *l) { cases_adamw_many(l); }

/* ---- transfers and ports ---- */

static void cases_offload(struct list *l)
{
	for (int r = 1; r < 40; r += 19)
		all(l, SIZES(DIM(R, r), DIM(C, 37)));
}
static void cases_fetch(struct list *l) { cases_offload(l); }

/* The training loop serves ports, a transport moves what ranks send each other; there is no kernel. */
static void cases_host_in(struct list *l) { (void)l; }
static void cases_host_out(struct list *l) { (void)l; }
static void cases_all_reduce(struct list *l) { (void)l; }
static void cases_all_reduce_many(struct list *l) { (void)l; }
static void cases_all_reduce_max(struct list *l) { (void)l; }
static void cases_reduce_scatter(struct list *l) { (void)l; }
static void cases_all_gather(struct list *l) { (void)l; }
static void cases_all_to_all(struct list *l) { (void)l; }
static void cases_shift(struct list *l) { (void)l; }
static void cases_broadcast(struct list *l) { (void)l; }
static void cases_send(struct list *l) { (void)l; }
static void cases_receive(struct list *l) { (void)l; }

size_t fo_num_case_list(int dtype, struct fo_num_case *out, size_t cap)
{
	static void (*const cases[])(struct list *) = {
#define FO_OP(id, ...) cases_##id,
#include "program/ops.def"
	};
	struct list l = { .out = out, .cap = cap, .dtype = dtype };
	for (l.kind = 0; l.kind < (int)(sizeof cases / sizeof *cases); l.kind++)
		cases[l.kind](&l);
	return l.n;
}
