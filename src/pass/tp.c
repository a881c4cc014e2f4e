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
 * Embedding and head are not divided by vocabulary: each rank has the weights of all of it, and makes the loss of its
 * own tokens, the head by rows of tokens. So no logits and no statistics of them travel, and the gradients of these two
 * tensors are terms of a sum over the group, which pass ddp adds up with the sum over other rows.
 *
 * The plain program has whole operands. Buffers are cut by the axes that lowering gave them (FO_AXIS_Q, KV, FFN, HEADS;
 * TOKENS x HIDDEN), operands follow, and communication is found by what a matmul sums over; no operation is known here
 * by its place.
 *
 * From: Megatron-LM (Shoeybi et al. 2019); sequence parallel: Korthikanti et al. 2022. */
#include "pass/pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tp {
	struct fo_program *p;
	int32_t ranks, place;
	bool sequence;
	int n;        /* buffers before the pass */
	int *all;     /* by buffer of own tokens: that of all tokens, gathered or a term of a sum; -1: none */
	int *made_by; /* by buffer: the block that gathered `all`; -1: none did */
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
	if (p->run.pass.fp8)
		return fo_hint(fo_fail(FO_EARG, "fp8 scales would be of one rank's part of a tensor"),
			       "pass.fp8=off trains on ranks of a tp group");
	return fo_mesh_tp_legal(&p->model, p->tokens, ranks);
}

/* ---- buffers ---- */

static bool is_divided_axis(int axis)
{
	return axis == FO_AXIS_Q || axis == FO_AXIS_KV || axis == FO_AXIS_FFN || axis == FO_AXIS_HEADS;
}

/* The residual stream, its norms, their statistics, and the gradients of all that. */
static bool is_stream(const struct fo_buffer *b)
{
	return b->home == FO_HOME_ACT && b->row_axis == FO_AXIS_TOKENS && b->dtype != FO_I32 &&
	       (b->col_axis == FO_AXIS_HIDDEN || b->col_axis == FO_AXIS_ONE);
}

static void cut_buffers(struct tp *t)
{
	for (int i = 0; i < t->n; i++) {
		struct fo_buffer *b = &t->p->buf[i];
		if (is_divided_axis(b->col_axis)) {
			b->cols /= t->ranks;
			b->tp = FO_TP_COLS;
		} else if (is_divided_axis(b->row_axis) || (t->sequence && is_stream(b)) ||
			   (b->row_axis == FO_AXIS_TOKENS && b->col_axis == FO_AXIS_VOCAB)) {
			b->rows /= t->ranks;
			b->tp = FO_TP_ROWS;
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
		q->global_r0 = b->tp == FO_TP_ROWS ? t->place * b->rows : 0;
		q->global_c0 = b->tp == FO_TP_COLS ? t->place * b->cols : 0;
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

/* ---- own tokens where a buffer has all ---- */

static void take_own_tokens(struct tp *t, struct fo_op *o)
{
	for (int k = 0; k < o->n; k++) {
		struct fo_operand *a = &o->arg[k];
		const struct fo_buffer *b = &t->p->buf[a->buf];
		if (b->row_axis != FO_AXIS_TOKENS || b->tp)
			continue;
		a->nr = (int32_t)(b->rows / t->ranks);
		a->r0 = t->place * a->nr;
	}
}

/* Whether each rank does this for its own tokens: what touches the logits, and the embedding where its result or the
 * sum over tokens asks for it. */
static bool is_of_own_tokens(const struct tp *t, const struct fo_op *o)
{
	bool logits = false;
	for (int k = 0; k < o->n; k++)
		logits |= t->p->buf[o->arg[k].buf].col_axis == FO_AXIS_VOCAB &&
			  t->p->buf[o->arg[k].buf].row_axis == FO_AXIS_TOKENS;
	return logits || (fo_op_family(o->kind) == FO_OPS_EMBEDDING && (o->phase == FO_WGRAD || t->sequence));
}

/* What an operation on own tokens leaves of a buffer of all tokens is gathered from all ranks. */
static void gather_own(struct tp *t, int block, int at)
{
	const struct fo_op o = t->p->block[block].op[at];
	for (int k = 0; k < o.n; k++) {
		struct fo_operand own = o.arg[k], all = own;
		if (!fo_access_writes(own.access) || own.nr == t->p->buf[own.buf].rows)
			continue;
		struct fo_op *g = fo_op_insert(t->p, block, at + 1, fo_op_of_wire(FO_WIRE_ALL_GATHER), FO_TRANSFER,
					       FO_LANE_TP);
		g->group = FO_GROUP_TP;
		g->n = 2;
		own.access = FO_READ;
		all.access = FO_PART;
		all.r0 = 0;
		all.nr = (int32_t)t->p->buf[all.buf].rows;
		g->arg[FO_ALL_GATHER_X] = own;
		g->arg[FO_ALL_GATHER_Y] = all;
	}
}

/* ---- matmuls ---- */

static bool is_cols(const struct tp *t, const struct fo_operand *a) { return t->p->buf[a->buf].tp == FO_TP_COLS; }

static bool is_own_tokens(const struct tp *t, const struct fo_operand *a)
{
	return t->sequence && a->buf < t->n && is_stream(&t->p->buf[a->buf]);
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
	if (t->made_by[own.buf] >= 0)
		return 0;
	t->made_by[own.buf] = block;
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

/* Behind the last matmul that adds to the sum it is added up over the ranks. Returns how many operations came
 * behind. */
static int add_up(struct tp *t, int block, int at)
{
	const struct fo_operand c = t->p->block[block].op[at].arg[FO_MATMUL_C];
	const bool last = !is_added_to(&t->p->block[block], at, &c);
	struct fo_operand term = c;
	if (t->sequence) {
		term = of_all_tokens(t, &c);
		t->p->block[block].op[at].arg[FO_MATMUL_C] = term;
	}
	if (!last)
		return 0;
	struct fo_op *o = fo_op_insert(t->p, block, at + 1,
				       fo_op_of_wire(t->sequence ? FO_WIRE_REDUCE_SCATTER : FO_WIRE_ALL_REDUCE),
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
		more += add_up(t, block, at + more);
	return more;
}

static void divide_blocks(struct tp *t)
{
	struct fo_program *p = t->p;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			struct fo_op *o = &p->block[b].op[i];
			if (is_of_own_tokens(t, o)) {
				take_own_tokens(t, o);
				gather_own(t, b, i);
			} else if (is_divided_matmul(t, o)) {
				i += divide_matmul(t, b, i);
			}
		}
}

/* ---- sums over the group ---- */

/* A gradient of a whole weight, and the loss, that each rank makes of its own heads or tokens. */
static void mark_terms(struct tp *t)
{
	struct fo_program *p = t->p;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; p->block[b].role != FO_ROLE_OPTIMIZER && i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			bool divided = false, rows, cols;
			for (int k = 0; k < o->n; k++)
				divided |= fo_operand_divided(p, &o->arg[k], &rows, &cols);
			for (int k = 0; divided && k < o->n; k++)
				if (o->arg[k].access == FO_ACC && p->buf[o->arg[k].buf].row_axis != FO_AXIS_TOKENS &&
				    !p->buf[o->arg[k].buf].tp)
					p->buf[o->arg[k].buf].tp = FO_TP_TERM;
		}
}

/* The gradient norm: squares of divided gradients have a sum of their own, which is added up over the group; those of
 * whole ones count once. */
static void divide_norm(struct tp *t)
{
	struct fo_program *p = t->p;
	int sums = -1, own = -1, all = -1, reader = -1;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			struct fo_op *o = &p->block[b].op[i];
			bool rows, cols;
			if (fo_op_family(o->kind) != FO_OPS_CLIP ||
			    p->buf[o->arg[FO_SUMSQ_G].buf].home != FO_HOME_GRAD ||
			    !fo_operand_divided(p, &o->arg[FO_SUMSQ_G], &rows, &cols))
				continue;
			if (own < 0) {
				sums = o->arg[FO_SUMSQ_ACC].buf;
				own = fo_buffer_like(p, "sumsq.tp", &p->buf[sums]);
				all = fo_buffer_like(p, "sumsq.sum", &p->buf[sums]);
			}
			o->arg[FO_SUMSQ_ACC].buf = (int16_t)own;
		}
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			for (int k = 0; k < p->block[b].op[i].n; k++)
				if (p->block[b].op[i].arg[k].buf == sums &&
				    p->block[b].op[i].arg[k].access == FO_READ) {
					p->block[b].op[i].arg[k].buf = (int16_t)all;
					reader = b;
				}
	if (own < 0)
		return; /* evaluation */
	fo_edit_put_before(p, fo_pass_ddp_norm(p, "step.tp", FO_GROUP_TP, own, sums, all), reader);
}

void fo_pass_tp(struct fo_program *p)
{
	struct tp t = { .p = p, .n = p->nbuf, .sequence = p->run.pass.tp == FO_TP_SEQUENCE };
	t.ranks = fo_mesh_group(&p->run.mesh, FO_GROUP_TP, &t.place, NULL);
	if (t.ranks < 2)
		return;
	t.all = fo_xmalloc((size_t)t.n * sizeof *t.all);
	t.made_by = fo_xmalloc((size_t)t.n * sizeof *t.made_by);
	memset(t.all, -1, (size_t)t.n * sizeof *t.all);
	memset(t.made_by, -1, (size_t)t.n * sizeof *t.made_by);
	cut_buffers(&t);
	cut_params(&t);
	cut_operands(&t);
	divide_blocks(&t);
	mark_terms(&t);
	divide_norm(&t);
	free(t.all);
	free(t.made_by);
}
