/* tp-async: communication of tp groups, in pieces beside the work on other pieces.
 *
 * With sequence parallel each layer gathers tokens in front of matmuls and adds up and scatters them behind others, and
 * waits for both (pass tp). Here the tokens of a micro-batch are k pieces: a gather or a scatter becomes k, one for each
 * piece, and so do the operations around it that treat each token by itself: the matmuls at both ends, and the norm,
 * SwiGLU or addition between two of them. While one piece travels, another is multiplied. Attention and the gradients
 * of weights, which are sums over tokens, stay whole and wait for all pieces.
 *
 * A rank's own tokens are its part of each piece, no longer one stretch: piece j of the gathered rows is made of piece
 * j of all ranks' own rows, so calls take whole rows that lie together on both sides, and as many bytes travel as
 * before. An operation that meets own tokens and all of them (embedding, loss) is cut where the pieces end.
 *
 * Then each block's operations get a new order: list scheduling (Graham 1969) on one lane that computes and one that
 * communicates. Whatever is ready first goes first; of several, that with the longest way to the end of the block; the
 * gradients of weights, which nothing in backward waits for, come last and so fill the gaps. All ranks of a group make
 * the same order of the same sizes.
 *
 * From: asynchronous tensor parallel of PyTorch (Liang et al. 2024) and of Wang et al. 2023, "Overlap communication
 * with dependent computation via decomposition", which pass blocks around a ring; pieces that go through several
 * operations: Wang et al. 2024, "Domino". */
#include "pass/pass.h"
#include "base/count.h"

#include <stdlib.h>
#include <string.h>

struct async {
	struct fo_program *p;
	int32_t pieces, ranks, place;
	int32_t all, own; /* tokens of a piece, and this rank's part of them */
};

static struct async async_of(const struct fo_program *p)
{
	struct async a = { .p = (struct fo_program *)p, .pieces = (int32_t)fo_tp_pieces(p) };
	a.ranks = fo_mesh_group(&p->run.mesh, FO_GROUP_TP, &a.place, NULL);
	a.all = (int32_t)(p->tokens / a.pieces);
	a.own = a.all / a.ranks;
	return a;
}

/* ---- operands ---- */

static bool has_tokens(const struct async *a, const struct fo_operand *x)
{
	return a->p->buf[x->buf].row_axis == FO_AXIS_TOKENS;
}

static bool is_own(const struct async *a, const struct fo_operand *x)
{
	return has_tokens(a, x) && a->p->buf[x->buf].tp == FO_TP_ROWS;
}

/* All rows of all tokens or of own ones. */
static bool is_whole(const struct async *a, const struct fo_operand *x)
{
	const struct fo_buffer *b = &a->p->buf[x->buf];
	return x->r0 == 0 && x->nr == b->rows && b->rows == (int64_t)a->pieces * (is_own(a, x) ? a->own : a->all);
}

static void take_piece(const struct async *a, struct fo_op *o, int piece)
{
	for (int k = 0; k < o->n; k++) {
		struct fo_operand *x = &o->arg[k];
		if (!has_tokens(a, x))
			continue;
		x->nr = is_own(a, x) ? a->own : a->all;
		x->r0 = piece * x->nr;
		if (piece && x->access == FO_DEF)
			x->access = FO_PART;
	}
}

/* The operation at `at` becomes one for each piece. Returns how many came on top. */
static int cut(struct async *a, int block, int at)
{
	const struct fo_op o = a->p->block[block].op[at];
	for (int j = 1; j < a->pieces; j++)
		take_piece(a, fo_op_clone(a->p, block, at + j, &o), j);
	take_piece(a, &a->p->block[block].op[at], 0);
	return a->pieces - 1;
}

/* ---- what communicates ---- */

/* Own tokens become all tokens, or terms of a sum of all tokens become the sum of own ones. */
static bool is_tp_call(const struct async *a, const struct fo_op *o)
{
	const enum fo_wire wire = fo_op_info(o->kind)->wire;
	return o->group == FO_GROUP_TP && has_tokens(a, &o->arg[0]) &&
	       (wire == FO_WIRE_ALL_GATHER || wire == FO_WIRE_REDUCE_SCATTER);
}

/* Own rows meet all rows: their rectangles must follow the pieces. */
static bool meets_own(const struct async *a, const struct fo_op *o)
{
	bool own = false, all = false;
	for (int k = 0; k < o->n; k++) {
		own |= is_own(a, &o->arg[k]);
		all |= has_tokens(a, &o->arg[k]) && !is_own(a, &o->arg[k]);
	}
	return own && all && fo_op_info(o->kind)->cls != FO_CLASS_COMM;
}

/* ---- legal ---- */

/* NULL, or why this operation's rows cannot follow the pieces. */
static const char *misfit(const struct async *a, const struct fo_op *o)
{
	for (int k = 0; is_tp_call(a, o) && k < o->n; k++)
		if (!is_whole(a, &o->arg[k]) || o->arg[k].access == FO_TAKE || o->arg[k].access == FO_ACC)
			return "a gather or a scatter is not of all tokens";
	for (int k = 0; meets_own(a, o) && k < o->n; k++) {
		const struct fo_operand *x = &o->arg[k];
		const int32_t begin = a->place * a->own * a->pieces;
		if (has_tokens(a, x) && !is_own(a, x) && (x->r0 < begin || x->r0 + x->nr > begin + a->own * a->pieces))
			return "an operation on own tokens reads others";
	}
	return NULL;
}

fo_status fo_pass_tp_async_legal(const struct fo_program *p)
{
	const int64_t want = p->run.pass.tp_async, tp = fo_mesh_tp(&p->run.mesh);
	if (want < 0 || want > FO_TP_ASYNC_MOST)
		return fo_fail(FO_EARG, "tp-async is a number of pieces up to %d, not %lld", FO_TP_ASYNC_MOST,
			       (long long)want);
	if (tp < 2)
		return FO_OK;
	if (want > FO_TP_ASYNC_AUTO && p->run.pass.tp != FO_TP_SEQUENCE)
		return fo_hint(
			fo_fail(FO_EARG, "only the gathers and scatters of sequence parallel are done in pieces"),
			"use pass.tp-sequence=yes, or pass.tp-async=0");
	const int64_t pieces = fo_tp_pieces(p), of = p->tokens / tp;
	if (pieces < 2)
		return FO_OK;
	if (of % pieces) {
		int64_t below = pieces, above = pieces;
		while (of % below)
			below--;
		while (above < of && of % above)
			above++;
		return fo_hint(fo_fail(FO_EARG, "%lld tokens of a rank cannot be %lld equal pieces", (long long)of,
				       (long long)pieces),
			       "use pass.tp-async=%lld or %lld%s", (long long)(below < 2 ? 0 : below), (long long)above,
			       below < 2 ? " (0: none)" : "");
	}
	const struct async a = async_of(p);
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			const char *why = misfit(&a, &p->block[b].op[i]);
			if (why)
				return fo_fail(FO_EARG, "block '%s', %s: %s", p->block[b].name,
					       fo_op_info(p->block[b].op[i].kind)->name, why);
		}
	return FO_OK;
}

/* ---- own rows of all rows ---- */

/* An operation on own rows [from, from + n), and the same of all rows, is cut where pieces end. */
static int cut_own(struct async *a, int block, int at)
{
	const struct fo_op o = a->p->block[block].op[at];
	int32_t from = 0, n = 0;
	int parts = 0;
	for (int k = 0; k < o.n; k++)
		if (has_tokens(a, &o.arg[k]) && !is_own(a, &o.arg[k])) {
			from = o.arg[k].r0 - a->place * a->own * a->pieces;
			n = o.arg[k].nr;
		}
	for (int32_t x = from, end; x < from + n; x = end, parts++) {
		end = (int32_t)fo_min(from + n, (x / a->own + 1) * a->own);
		struct fo_op *c = parts ? fo_op_clone(a->p, block, at + parts, &o) : &a->p->block[block].op[at];
		for (int k = 0; k < c->n; k++) {
			struct fo_operand *y = &c->arg[k];
			if (!has_tokens(a, y))
				continue;
			y->r0 = is_own(a, y) ? o.arg[k].r0 + x - from
					     : x / a->own * a->all + a->place * a->own + x % a->own;
			y->nr = end - x;
			if (parts && y->access == FO_DEF)
				y->access = FO_PART;
		}
	}
	return parts - 1;
}

/* ---- operations around calls ---- */

/* Treats each token by itself: all rows of tokens go through it side by side, and what else it writes it adds to. */
static bool is_by_token(const struct async *a, const struct fo_op *o)
{
	const enum fo_op_family f = fo_op_family(o->kind);
	bool tokens = false;
	if (f != FO_OPS_MATMUL && f != FO_OPS_NORM && f != FO_OPS_POINTWISE && f != FO_OPS_ROPE && f != FO_OPS_BIAS &&
	    f != FO_OPS_CAST)
		return false;
	for (int k = 0; k < o->n; k++) {
		const struct fo_operand *x = &o->arg[k];
		if (a->p->buf[x->buf].col_axis == FO_AXIS_TOKENS || x->access == FO_TAKE)
			return false;
		if (!has_tokens(a, x)) {
			if (fo_access_writes(x->access) && x->access != FO_ACC)
				return false;
			continue;
		}
		if (!is_whole(a, x))
			return false;
		tokens = true;
	}
	/* Tokens must be the rows of a matmul's result, not what it sums over. */
	return tokens &&
	       (f != FO_OPS_MATMUL || (!o->attr.ta && has_tokens(a, &o->arg[FO_MATMUL_A]) &&
				       has_tokens(a, &o->arg[FO_MATMUL_C]) && !has_tokens(a, &o->arg[FO_MATMUL_B])));
}

/* Whether y reads, or adds to, rows of tokens that x makes. */
static bool feeds(const struct async *a, const struct fo_op *x, const struct fo_op *y)
{
	for (int i = 0; i < x->n; i++)
		for (int k = 0; k < y->n; k++)
			if (has_tokens(a, &x->arg[i]) && fo_access_writes(x->arg[i].access) &&
			    (fo_access_reads(y->arg[k].access) || y->arg[k].access == FO_ACC) &&
			    fo_operands_overlap(&x->arg[i], &y->arg[k]))
				return true;
	return false;
}

/* An operation beside a call, or between two that are cut, is cut too. Returns whether one was found. */
static bool find_one(const struct async *a, const struct fo_block *b, bool *in)
{
	for (int i = 0; i < b->n; i++) {
		bool before = false, behind = false, beside = false;
		if (in[i] || !is_by_token(a, &b->op[i]))
			continue;
		for (int k = 0; k < b->n; k++) {
			const struct fo_op *x = &b->op[k < i ? k : i], *y = &b->op[k < i ? i : k];
			if (k == i || !in[k] || !feeds(a, x, y))
				continue;
			*(k < i ? &before : &behind) = true;
			beside |= is_tp_call(a, &b->op[k]);
		}
		if (beside || (before && behind))
			return in[i] = true;
	}
	return false;
}

static void cut_block(struct async *a, int block)
{
	struct fo_block *b = &a->p->block[block];
	const int n = b->n;
	bool *in = fo_xmalloc((size_t)(n + 1) * sizeof *in);
	int at = 0;
	for (int i = 0; i < n; i++)
		in[i] = is_tp_call(a, &b->op[i]);
	while (find_one(a, b, in))
		continue;
	for (int i = 0; i < n; i++, at++) {
		if (in[i])
			at += cut(a, block, at);
		else if (meets_own(a, &a->p->block[block].op[at]))
			at += cut_own(a, block, at);
	}
	free(in);
}

/* ---- order ---- */

struct job {
	double seconds, way; /* way: the longest one to the end of the block, over operations that follow */
	double ready;
	int before; /* operations that must be done first and are not */
	bool done, last;
};
enum { ORDER_MOST = 1024 }; /* operations of a block: the work grows with their square */

/* Calls take so long that all of a block's take half of what its operations do: where hiding begins to be hard. */
static void weigh(const struct async *a, const struct fo_block *b, struct job *job)
{
	const struct fo_choose_rates *rates = &fo_choose_processor;
	double work = 0, wire = 0;
	for (int i = 0; i < b->n; i++) {
		const bool comm = fo_op_info(b->op[i].kind)->cls == FO_CLASS_COMM;
		job[i].seconds = comm ? fo_op_cost(a->p, &b->op[i], -1).wire : fo_op_seconds(a->p, &b->op[i], rates);
		*(comm ? &wire : &work) += job[i].seconds;
		job[i].last = b->op[i].phase == FO_WGRAD;
	}
	for (int i = 0; i < b->n; i++)
		if (fo_op_info(b->op[i].kind)->cls == FO_CLASS_COMM && wire > 0)
			job[i].seconds *= work / 2 / wire;
}

/* Both lanes that compute are one here. */
static int lane_of(const struct fo_op *o) { return fo_lane_computes(o->lane) ? FO_LANE_COMPUTE : o->lane; }

static bool is_before(const struct job *x, const struct job *y, double x_start, double y_start)
{
	if (x_start < y_start || x_start > y_start)
		return x_start < y_start;
	return x->last != y->last ? y->last : x->way > y->way;
}

static int next_of(const struct fo_block *b, const struct job *job, const double *free_at, double *start)
{
	int best = -1;
	for (int i = 0; i < b->n; i++) {
		const int lane = lane_of(&b->op[i]);
		const double s = job[i].ready > free_at[lane] ? job[i].ready : free_at[lane];
		if (job[i].done || job[i].before || (best >= 0 && !is_before(&job[i], &job[best], s, *start)))
			continue;
		best = i;
		*start = s;
	}
	return best;
}

static void order_block(struct async *a, int block)
{
	struct fo_block *b = &a->p->block[block];
	const int n = b->n;
	bool any = false;
	for (int i = 0; i < n; i++)
		any |= is_tp_call(a, &b->op[i]);
	if (!any || n > ORDER_MOST)
		return;
	struct job *job = fo_xmalloc((size_t)n * sizeof *job);
	struct fo_op *op = fo_xmalloc((size_t)n * sizeof *op);
	bool *follows = fo_xmalloc((size_t)n * (size_t)n * sizeof *follows);
	double free_at[FO_LANE_COUNT] = { 0 };
	weigh(a, b, job);
	for (int i = n - 1; i >= 0; i--) {
		for (int k = i + 1; k < n; k++) {
			follows[i * n + k] = fo_edit_conflict(&b->op[i], &b->op[k]);
			if (!follows[i * n + k])
				continue;
			job[k].before++;
			job[i].way = job[k].way > job[i].way ? job[k].way : job[i].way;
		}
		job[i].way += job[i].seconds;
	}
	for (int at = 0; at < n; at++) {
		double start = 0;
		const int i = next_of(b, job, free_at, &start);
		const int lane = lane_of(&b->op[i]);
		job[i].done = true;
		free_at[lane] = start + job[i].seconds;
		for (int k = i + 1; k < n; k++)
			if (follows[i * n + k]) {
				job[k].before--;
				if (job[k].ready < free_at[lane])
					job[k].ready = free_at[lane];
			}
		op[at] = b->op[i];
	}
	memcpy(b->op, op, (size_t)n * sizeof *op);
	free(job);
	free(op);
	free(follows);
}

void fo_pass_tp_async(struct fo_program *p)
{
	struct async a = async_of(p);
	if (a.pieces < 2)
		return;
	for (int b = 0; b < p->nblock; b++) {
		cut_block(&a, b);
		order_block(&a, b);
	}
}
