/* tp: ranks of a tp group have the same rows and divide the weights of the layers, and the work on them.
 *
 * Queries, keys, values, gate and up are split by columns of their results (rows of the stored weights): a rank has its
 * own attention heads and its own columns of the feed-forward layer from there to the second matmul, whose weights are
 * split by the columns that it sums over. What that makes is one term of a sum over the ranks; so are, backward, the
 * gradients of what the first matmuls read.
 *
 *   replicated  each rank has the residual stream of all tokens: an all-reduce behind each such sum.
 *   sequence    (sequence parallel) a rank has the residual stream and the norms of its own tokens alone: an all-gather
 *               in front of the first matmuls, a reduce-scatter behind each sum. As many bytes travel, and norms,
 *               additions and what they keep are divided too.
 *
 * Embedding and head are divided by words: a rank looks up its own, and the others' rows are 0 until all are added up;
 * it makes the logits of its own words, of all tokens. The loss then comes in steps (lowering has them), between which
 * ranks join the maximum of each token's logits, then the sum of their exponentials with the target's logit. No logits
 * travel. Words that cannot be shared evenly make parts of one word more or less: there is no padding.
 *
 * Where there are fewer key and value heads than ranks, neighbours (a kv group) have the same ones. Each makes the
 * gradients of its own queries' share in them: terms of a sum over the kv group, which pass ddp adds up.
 *
 * The plain program has whole operands. Buffers are cut by the axes that lowering gave them (FO_AXIS_Q, KV, FFN, HEADS,
 * VOCAB; TOKENS x HIDDEN), operands follow, and communication is found by what a matmul sums over; no operation is
 * known here by its place.
 *
 * From: Megatron-LM (Shoeybi et al. 2019); sequence parallel: Korthikanti et al. 2022. */
#include "pass/pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tp {
	struct fo_program *p;
	int32_t ranks, place, kv; /* kv: so many have the same key and value heads */
	bool sequence;
	int n;    /* buffers before the pass */
	int *all; /* by buffer of own tokens: that of all tokens, gathered or a term of a sum; -1: none */
	/* By buffer: the block that gathered `all`, -1 where none did, and of which layer beside its own. */
	struct {
		int block, dlayer;
	} * made_by;
	bool *loss; /* by buffer: the loss uses it */
};

fo_status fo_pass_tp_legal(const struct fo_program *p)
{
	const int64_t tp = p->run.pass.tp;
	const int32_t ranks = fo_mesh_tp(&p->run.mesh);
	if (tp < 0 || tp >= FO_TP_COUNT)
		return fo_fail(FO_EARG, "tp is 1 (replicated) or 2 (sequence), not %lld", (long long)tp);
	if (ranks < 2)
		return FO_OK;
	if (p->run.mode != FO_MODE_TRAIN && p->run.mode != FO_MODE_EVAL)
		return fo_fail(FO_EARG, "ranks of a tp group train and evaluate together; they do not write text");
	return fo_mesh_tp_legal(&p->model, p->tokens, ranks);
}

/* ---- buffers ---- */

static bool is_divided_axis(int axis)
{
	return axis == FO_AXIS_Q || axis == FO_AXIS_KV || axis == FO_AXIS_FFN || axis == FO_AXIS_HEADS ||
	       axis == FO_AXIS_VOCAB;
}

/* The residual stream, its norms, their statistics, and the gradients of all that. */
static bool is_stream(const struct tp *t, int buf)
{
	const struct fo_buffer *b = &t->p->buf[buf];
	return buf < t->n && !t->loss[buf] && b->home == FO_HOME_ACT && b->row_axis == FO_AXIS_TOKENS &&
	       b->dtype != FO_I32 && (b->col_axis == FO_AXIS_HIDDEN || b->col_axis == FO_AXIS_ONE);
}

static void find_loss(struct tp *t)
{
	for (int b = 0; b < t->p->nblock; b++)
		for (int i = 0; i < t->p->block[b].n; i++) {
			const struct fo_op *o = &t->p->block[b].op[i];
			for (int k = 0; fo_op_family(o->kind) == FO_OPS_LOSS && k < o->n; k++)
				t->loss[o->arg[k].buf] = true;
		}
}

/* How many of n are this rank's, and which is the first. */
static int64_t part_of(const struct tp *t, int64_t n, int64_t *begin)
{
	return fo_mesh_part(n, t->place, t->ranks, begin);
}

/* The same along an axis: ranks of a kv group have the same keys and values. */
static int64_t part_along(const struct tp *t, int axis, int64_t n, int64_t *begin)
{
	if (axis == FO_AXIS_KV || (axis == FO_AXIS_HEADS && n < t->ranks))
		return fo_mesh_part(n, t->place / t->kv, t->ranks / t->kv, begin);
	return part_of(t, n, begin);
}

static void cut_buffers(struct tp *t)
{
	for (int i = 0; i < t->n; i++) {
		struct fo_buffer *b = &t->p->buf[i];
		const bool own = b->home == FO_HOME_ACT || t->kv < 2; /* a kv group divides what it makes of keys */
		int64_t begin;
		if (is_divided_axis(b->col_axis)) {
			b->cols = part_along(t, b->col_axis, b->cols, &begin);
			b->tp = !own && b->col_axis == FO_AXIS_KV ? FO_TP_KV_COLS : FO_TP_COLS;
		} else if (is_divided_axis(b->row_axis) || (t->sequence && is_stream(t, i))) {
			b->rows = part_along(t, b->row_axis, b->rows, &begin);
			b->tp = !own && b->row_axis == FO_AXIS_KV ? FO_TP_KV_ROWS : FO_TP_ROWS;
		}
	}
}

static void cut_params(struct tp *t)
{
	for (int i = 0; i < t->p->nparam; i++) {
		struct fo_param *q = &t->p->param[i];
		const struct fo_buffer *b = &t->p->buf[q->weight];
		q->nr = (int32_t)b->rows;
		q->nc = (int32_t)b->cols;
		if (b->tp == FO_TP_ROWS || b->tp == FO_TP_KV_ROWS)
			part_along(t, b->row_axis, q->rows, &q->global_r0);
		if (b->tp == FO_TP_COLS || b->tp == FO_TP_KV_COLS)
			part_along(t, b->col_axis, q->cols, &q->global_c0);
	}
}

/* Operands of the plain program are whole buffers, and stay so. */
static void cut_operands(struct tp *t)
{
	for (int b = 0; b < t->p->nblock; b++)
		for (int i = 0; i < t->p->block[b].n; i++)
			for (int k = 0; k < t->p->block[b].op[i].n; k++) {
				struct fo_operand *a = &t->p->block[b].op[i].arg[k];
				a->nr = (int32_t)t->p->buf[a->buf].rows;
				a->nc = (int32_t)t->p->buf[a->buf].cols;
			}
}

/* ---- matmuls ---- */

static bool is_cols(const struct tp *t, const struct fo_operand *a) { return t->p->buf[a->buf].tp == FO_TP_COLS; }

static bool is_own_tokens(const struct tp *t, const struct fo_operand *a)
{
	return t->sequence && is_stream(t, a->buf);
}

/* Matmuls of the layers: one of the three is a weight, or its gradient, that is divided. */
static bool is_divided_matmul(const struct tp *t, const struct fo_op *o)
{
	bool weight = false;
	if (fo_op_family(o->kind) != FO_OPS_MATMUL)
		return false;
	for (int k = 0; k <= FO_MATMUL_C; k++) {
		const struct fo_buffer *b = &t->p->buf[o->arg[k].buf];
		weight |= b->tp && (b->home == FO_HOME_PARAM || b->home == FO_HOME_GRAD);
	}
	return weight;
}

/* Does it sum over what is divided? Both factors have tokens in rows unless turned; what is divided of them lies in
 * columns of activations, and in either of weights. */
static bool sums_over_divided(const struct tp *t, const struct fo_op *o)
{
	return !o->attr.ta && is_cols(t, &o->arg[FO_MATMUL_A]) &&
	       t->p->buf[o->arg[FO_MATMUL_C].buf].col_axis == FO_AXIS_HIDDEN;
}

static int all_tokens(struct tp *t, int buf)
{
	char name[sizeof t->p->buf->name];
	if (t->all[buf] >= 0)
		return t->all[buf];
	struct fo_buffer like = t->p->buf[buf];
	snprintf(name, sizeof name, "%.18s.all", like.name);
	like.rows *= t->ranks;
	like.tp = FO_TP_WHOLE;
	return t->all[buf] = fo_buffer_like(t->p, name, &like);
}

static struct fo_operand of_all_tokens(struct tp *t, const struct fo_operand *own)
{
	struct fo_operand a = *own;
	a.buf = (int16_t)all_tokens(t, own->buf);
	a.nr = (int32_t)t->p->buf[a.buf].rows;
	return a;
}

/* The operand becomes one of all tokens, gathered in front of the first operation that reads it. Backward reads what
 * forward gathered. Returns how many operations were inserted in front of `at`. */
static int gather_factor(struct tp *t, int block, int at, int factor)
{
	const struct fo_operand own = t->p->block[block].op[at].arg[factor];
	const struct fo_operand all = of_all_tokens(t, &own);
	t->p->block[block].op[at].arg[factor] = all;
	if (t->made_by[own.buf].block >= 0 && t->made_by[own.buf].dlayer == own.dlayer)
		return 0;
	t->made_by[own.buf].block = block;
	t->made_by[own.buf].dlayer = own.dlayer;
	struct fo_op *g = fo_op_insert(t->p, block, at, fo_op_of_wire(FO_WIRE_ALL_GATHER), FO_TRANSFER, FO_LANE_TP);
	g->group = FO_GROUP_TP;
	g->n = 2;
	g->arg[FO_ALL_GATHER_X] = own;
	g->arg[FO_ALL_GATHER_Y] = all;
	g->arg[FO_ALL_GATHER_Y].access = FO_DEF;
	return 1;
}

/* Whether a later operation of the block adds to the same sum. */
static bool is_added_to(const struct fo_block *b, int at, const struct fo_operand *c)
{
	for (int i = at + 1; i < b->n; i++)
		for (int k = 0; k < b->op[i].n; k++)
			if (b->op[i].arg[k].buf == c->buf && b->op[i].arg[k].dlayer == c->dlayer &&
			    b->op[i].arg[k].access == FO_ACC)
				return true;
	return false;
}

/* Behind the last operation that adds to operand `sum` it is added up over the ranks. Returns how many operations came
 * behind. */
static int add_up(struct tp *t, int block, int at, int sum)
{
	const struct fo_operand c = t->p->block[block].op[at].arg[sum];
	const bool last = !is_added_to(&t->p->block[block], at, &c);
	struct fo_operand term = c;
	if (t->sequence) {
		term = of_all_tokens(t, &c);
		t->p->block[block].op[at].arg[sum] = term;
	}
	if (!last)
		return 0;
	struct fo_op *o = fo_op_insert(t->p, block, at + 1,
				       t->sequence ? fo_op_of_wire(FO_WIRE_REDUCE_SCATTER) : fo_op_joining(false),
				       FO_TRANSFER, FO_LANE_TP);
	o->group = FO_GROUP_TP;
	o->arg[o->n++] = term;
	o->arg[0].access = t->sequence ? FO_READ : FO_UPDATE;
	if (t->sequence) {
		o->arg[o->n++] = c;
		o->arg[FO_REDUCE_SCATTER_Y].access = FO_DEF;
	}
	return 1;
}

static int divide_matmul(struct tp *t, int block, int at)
{
	int more = 0;
	for (int k = 0; k < FO_MATMUL_C; k++)
		if (is_own_tokens(t, &t->p->block[block].op[at + more].arg[k]))
			more += gather_factor(t, block, at + more, k);
	if (sums_over_divided(t, &t->p->block[block].op[at + more]))
		more += add_up(t, block, at + more, FO_MATMUL_C);
	return more;
}

/* ---- vocabulary ---- */

static bool is_of_words(const struct tp *t, const struct fo_op *o)
{
	bool words = false;
	for (int k = 0; k < o->n; k++)
		words |= t->p->buf[o->arg[k].buf].col_axis == FO_AXIS_VOCAB ||
			 t->p->buf[o->arg[k].buf].row_axis == FO_AXIS_VOCAB;
	return words && (fo_op_family(o->kind) == FO_OPS_EMBEDDING || fo_op_family(o->kind) == FO_OPS_LOSS);
}

/* What a rank found of its own words of each token is joined. Returns how many operations came behind. */
static int join_words(struct tp *t, int block, int at)
{
	const struct fo_op o = t->p->block[block].op[at];
	int more = 0;
	for (int k = 0; k < o.n; k++) {
		const struct fo_operand *a = &o.arg[k];
		if (a->access != FO_DEF || t->p->buf[a->buf].tp)
			continue;
		struct fo_op *j = fo_op_insert(t->p, block, at + 1 + more++, fo_op_joining(fo_op_info(o.kind)->max),
					       FO_TRANSFER, FO_LANE_TP);
		j->group = FO_GROUP_TP;
		j->n = 1;
		j->arg[FO_ALL_REDUCE_X] = *a;
		j->arg[FO_ALL_REDUCE_X].access = FO_UPDATE;
	}
	return more;
}

static int divide_words(struct tp *t, int block, int at)
{
	struct fo_op *o = &t->p->block[block].op[at];
	part_of(t, t->p->model.vocab, &o->attr.element);
	if (fo_op_family(o->kind) == FO_OPS_LOSS)
		return join_words(t, block, at);
	if (o->phase == FO_FORWARD)
		return add_up(t, block, at, FO_EMBED_X);
	return is_own_tokens(t, &o->arg[FO_EMBED_BWD_DX]) ? gather_factor(t, block, at, FO_EMBED_BWD_DX) : 0;
}

static void divide_blocks(struct tp *t)
{
	struct fo_program *p = t->p;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			struct fo_op *o = &p->block[b].op[i];
			if (is_divided_matmul(t, o))
				i += divide_matmul(t, b, i);
			else if (is_of_words(t, o))
				i += divide_words(t, b, i);
		}
}

/* ---- sums over the group ---- */

/* A gradient of a whole weight that each rank makes of its own heads or tokens. */
static void mark_terms(struct tp *t)
{
	struct fo_program *p = t->p;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; p->block[b].role != FO_ROLE_OPTIMIZER && i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			bool divided = false;
			uint8_t rows, cols;
			for (int k = 0; k < o->n; k++)
				divided |= fo_operand_divided(p, &o->arg[k], &rows, &cols);
			for (int k = 0; divided && k < o->n; k++)
				if (o->arg[k].access == FO_ACC && p->buf[o->arg[k].buf].row_axis != FO_AXIS_TOKENS &&
				    !p->buf[o->arg[k].buf].tp)
					p->buf[o->arg[k].buf].tp = FO_TP_TERM;
		}
}

static bool is_sum_of_squares(const struct fo_program *p, const struct fo_op *o)
{
	return fo_op_family(o->kind) == FO_OPS_CLIP && p->buf[o->arg[FO_SUMSQ_G].buf].home == FO_HOME_GRAD;
}

/* Squares of gradients that are divided along `set` get a sum of their own, which is added up over the group before the
 * whole norm is read: those that all ranks have count once. *from: the sum that they were part of, which becomes that
 * of all. */
static void divide_squares(struct fo_program *p, uint8_t set, enum fo_group group, int *from)
{
	const char *of = fo_group_name[group];
	char name[sizeof p->buf->name];
	int own = -1, all = -1, reader = -1;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			struct fo_op *o = &p->block[b].op[i];
			uint8_t rows, cols;
			if (!is_sum_of_squares(p, o) || !fo_operand_divided(p, &o->arg[FO_SUMSQ_G], &rows, &cols) ||
			    (rows | cols) != set)
				continue;
			if (own < 0) {
				*from = *from < 0 ? o->arg[FO_SUMSQ_ACC].buf : *from;
				snprintf(name, sizeof name, "sumsq.%s", of);
				own = fo_buffer_like(p, name, &p->buf[*from]);
				snprintf(name, sizeof name, "sumsq.%s.all", of);
				all = fo_buffer_like(p, name, &p->buf[*from]);
			}
			o->arg[FO_SUMSQ_ACC].buf = (int16_t)own;
		}
	if (own < 0) /* none, or evaluation */
		return;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			for (int k = 0; k < p->block[b].op[i].n; k++)
				if (p->block[b].op[i].arg[k].buf == *from &&
				    p->block[b].op[i].arg[k].access == FO_READ) {
					p->block[b].op[i].arg[k].buf = (int16_t)all;
					reader = b;
				}
	snprintf(name, sizeof name, "step.%s", of);
	fo_edit_put_before(p, fo_pass_ddp_norm(p, name, group, own, *from, all), reader);
	*from = all;
}

static void divide_norm(struct tp *t)
{
	int sums = -1;
	uint8_t heads = t->kv < t->ranks ? FO_ACROSS_HEADS : 0;
	uint8_t kv = t->kv > 1 ? FO_ACROSS_KV : 0;
	divide_squares(t->p, heads | kv, FO_GROUP_TP, &sums);
	if (heads && kv)
		divide_squares(t->p, heads, FO_GROUP_HEADS, &sums);
}

void fo_pass_tp(struct fo_program *p)
{
	struct tp t = { .p = p, .n = p->nbuf, .sequence = p->run.pass.tp == FO_TP_SEQUENCE };
	t.ranks = fo_mesh_group(&p->run.mesh, FO_GROUP_TP, &t.place, NULL);
	if (t.ranks < 2)
		return;
	t.kv = fo_mesh_kv(&p->run.mesh);
	t.all = fo_xmalloc((size_t)t.n * sizeof *t.all);
	t.made_by = fo_xmalloc((size_t)t.n * sizeof *t.made_by);
	t.loss = fo_xmalloc((size_t)t.n * sizeof *t.loss);
	memset(t.all, -1, (size_t)t.n * sizeof *t.all);
	memset(t.made_by, -1, (size_t)t.n * sizeof *t.made_by);
	find_loss(&t);
	cut_buffers(&t);
	cut_params(&t);
	cut_operands(&t);
	divide_blocks(&t);
	mark_terms(&t);
	divide_norm(&t);
	free(t.all);
	free(t.made_by);
	free(t.loss);
}
