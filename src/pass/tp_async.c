/* tp-async: communication of tp groups, in pieces beside the work on other pieces.
 *
 * With sequence parallel each layer gathers tokens in front of matmuls and adds up and scatters them behind others, and
 * waits for both (pass tp). Here the tokens of a micro-batch are k pieces: a gather or a scatter becomes k, one for
 * each piece, and so do the operations around it that treat each token by itself: the matmuls at both ends, and the
 * norm, SwiGLU or addition between two of them. While one piece travels, another is multiplied. Attention, and the
 * gradients of weights, which are sums over tokens, stay whole and wait for all pieces.
 *
 * A rank's own tokens are its part of each piece, no longer one stretch: piece j of the gathered rows is made of piece
 * j of all ranks' own rows, so calls take whole rows that lie together on both sides, and as many bytes travel as
 * before.
 *
 * Then each block's operations get a new order: list scheduling (Graham 1969) on one lane that computes and one that
 * communicates. Whatever is ready first goes first, of several that with the longest, or the shortest, way to the end
 * of the block, whichever ends the block sooner; the gradients of weights, which nothing in backward waits for, come
 * last and so fill the gaps. All ranks of a group make the same order of the same sizes.
 *
 * From: asynchronous tensor parallel of PyTorch (Liang et al. 2024) and of Wang et al. 2023, "Overlap communication
 * with dependent computation via decomposition", which pass blocks around a ring; pieces that go through several
 * operations: Wang et al. 2024, "Domino". */
#include "pass/pass.h"
#include "base/count.h"
#include "program/mesh_cost.h"

#include <stdlib.h>
#include <string.h>

struct async {
	struct fo_program *p;
	int32_t pieces;
	int32_t all, own; /* tokens of a piece, and this rank's part of them */
};

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

/* Own rows meet all rows: such an operation would have to be cut where pieces end. */
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
	return meets_own(a, o) ? "an operation meets own tokens and a buffer of all" : NULL;
}

static const char *any_misfit(const struct async *a)
{
	const char *why = NULL;
	for (int b = 0; b < a->p->nblock; b++)
		for (int i = 0; i < a->p->block[b].n && !why; i++)
			why = misfit(a, &a->p->block[b].op[i]);
	return why;
}

static struct async async_of(const struct fo_program *p, int64_t pieces)
{
	struct async a = { .p = (struct fo_program *)p, .pieces = (int32_t)pieces };
	a.all = (int32_t)(p->tokens / pieces);
	a.own = a.all / fo_mesh_tp(&p->run.mesh);
	return a;
}

enum {
	/* 4 pieces gave the shortest step, of 2, 4 and 8 predicted and of 2 and 4 measured; by the prediction pieces of
	 * 256 tokens make a step's work 9 % longer than whole, of 128 34 % (hidden 512, an Emerald Rapids server,
	 * 2026-11-28; bench/results/2026-11-28-tp-async.jsonl). */
	MOST_PIECES = 4,
	LEAST_TOKENS = 256
};

/* pieces 1: none. Evaluation keeps nothing of training's order but weights. */
static struct async pieces_of(const struct fo_program *p)
{
	const int64_t want = p->run.pass.tp_async, tp = fo_mesh_tp(&p->run.mesh);
	int64_t pieces = MOST_PIECES;
	if (tp < 2 || p->run.pass.tp != FO_TP_SEQUENCE || p->run.mode != FO_MODE_TRAIN)
		return async_of(p, 1);
	if (want > FO_TP_ASYNC_AUTO)
		return async_of(p, want);
	while (pieces > 1 && (p->tokens % (pieces * tp) || p->tokens / pieces < LEAST_TOKENS))
		pieces--;
	const struct async a = async_of(p, pieces);
	return any_misfit(&a) ? async_of(p, 1) : a;
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
	const struct async a = pieces_of(p);
	const int64_t pieces = a.pieces, of = p->tokens / tp;
	if (pieces < 2)
		return FO_OK;
	FO_TRY(fo_mesh_pieces_legal(of, pieces));
	const char *why = any_misfit(&a);
	if (why)
		return fo_fail(FO_EARG, "tokens of a tp group cannot travel in pieces: %s", why);
	return FO_OK;
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
			const struct fo_op *x = &b->op[fo_min(i, k)], *y = &b->op[fo_max(i, k)];
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
	for (int i = 0; i < n; i++, at++)
		at += in[i] ? cut(a, block, at) : 0;
	free(in);
}

/* ---- order ---- */

struct job {
	double seconds, way; /* way: the longest one to the end of the block, over operations that follow */
	double ready;
	int before; /* operations that must be done first and are not */
	bool done, last;
};
struct order {
	const struct fo_block *b;
	struct job *job;
	bool *follows; /* n x n: the order of the two matters */
	int *at;       /* the order that is made */
};
/* When several calls, or several operations that compute, could begin: the one with the longest way to go goes first,
 * or that with the shortest, which takes one piece as far as it can get. The better of the two depends on the block:
 * all four combinations are tried. */
enum { LONGEST_CALL = 1, LONGEST_WORK = 2, RULES = 4 };
enum { ORDER_MOST = 1024 }; /* operations of a block: the work grows with their square */

static bool is_comm(const struct fo_op *o) { return fo_op_info(o->kind)->cls == FO_CLASS_COMM; }

static bool has_calls(const struct async *a, const struct fo_block *b)
{
	bool any = false;
	for (int i = 0; i < b->n; i++)
		any |= is_tp_call(a, &b->op[i]);
	return any && b->n <= ORDER_MOST;
}

/* Ranks may have unlike parts of the vocabulary, and windows hide unlike numbers of keys from the ranks of a ring, but
 * all must make one order: here each has the same part, and the place of the ring's first rank. */
static struct fo_op with_equal_parts(const struct async *a, const struct fo_op *o)
{
	const int32_t part = (int32_t)fo_ceil_div(a->p->model.vocab, fo_mesh_tp(&a->p->run.mesh));
	struct fo_op x = *o;
	x.attr.place = 0;
	for (int k = 0; k < x.n; k++) {
		if (a->p->buf[x.arg[k].buf].row_axis == FO_AXIS_VOCAB)
			x.arg[k].nr = part;
		if (a->p->buf[x.arg[k].buf].col_axis == FO_AXIS_VOCAB)
			x.arg[k].nc = part;
	}
	return x;
}

static double work_of(const struct async *a, const struct fo_op *o)
{
	struct fo_op x = with_equal_parts(a, o);
	x.attr.place = 0; /* ranks of a cp group have other pairs of a block of keys, and the same order */
	return fo_op_seconds(a->p, &x, &fo_choose_processor);
}

/* Bytes of a call's largest tensor: what a rank receives of it may be a row more or less than others do. */
static double wire_of(const struct async *a, const struct fo_op *o)
{
	const struct fo_op x = with_equal_parts(a, o);
	double most = 0;
	for (int k = 0; k < x.n; k++) {
		const double bytes = (double)x.arg[k].nr * x.arg[k].nc *
				     (double)fo_dtype_bytes(a->p->buf[x.arg[k].buf].dtype);
		most = bytes > most ? bytes : most;
	}
	return most;
}

/* Slots of a block in the step's first micro-batch: the order of operations must not depend on how many micro-batches
 * there are. */
static double first_slots(const struct fo_program *p, int block)
{
	int n = 0;
	for (int s = 0; s < p->nslot; s++)
		n += p->slot[s].block == block && !p->slot[s].mb;
	return p->block[block].role == FO_ROLE_OPTIMIZER ? 0 : n;
}

/* Seconds of a byte, so that all calls of a micro-batch take half as long as what the blocks with calls compute: there
 * hiding begins to be hard. */
static double seconds_of_byte(const struct async *a)
{
	double work = 0, wire = 0;
	for (int k = 0; k < a->p->nblock; k++) {
		const struct fo_block *b = &a->p->block[k];
		const bool calls = has_calls(a, b);
		const double slots = calls ? first_slots(a->p, k) : 0;
		for (int i = 0; calls && i < b->n; i++) {
			if (is_comm(&b->op[i]))
				wire += slots * wire_of(a, &b->op[i]);
			else
				work += slots * work_of(a, &b->op[i]);
		}
	}
	return wire > 0 ? work / 2 / wire : 0;
}

/* Both lanes that compute are one here. */
static int lane_of(const struct fo_op *o) { return fo_lane_computes(o->lane) ? FO_LANE_COMPUTE : o->lane; }

static bool is_before(const struct job *x, const struct job *y, double x_start, double y_start, bool longest)
{
	if (x_start < y_start || x_start > y_start)
		return x_start < y_start;
	if (x->last != y->last)
		return y->last;
	return longest ? x->way > y->way : x->way < y->way;
}

static int next_of(const struct order *o, int rules, const double *free_at, double *start)
{
	int best = -1;
	for (int i = 0; i < o->b->n; i++) {
		const struct job *x = &o->job[i];
		const int lane = lane_of(&o->b->op[i]);
		const bool longest = rules & (is_comm(&o->b->op[i]) ? LONGEST_CALL : LONGEST_WORK);
		const double s = x->ready > free_at[lane] ? x->ready : free_at[lane];
		if (x->done || x->before || (best >= 0 && !is_before(x, &o->job[best], s, *start, longest)))
			continue;
		best = i;
		*start = s;
	}
	return best;
}

/* Times of operations and what follows what: the same whatever the rules. */
static void weigh(const struct async *a, struct order *o, double byte_s)
{
	const int n = o->b->n;
	for (int i = n - 1; i >= 0; i--) {
		const struct fo_op *x = &o->b->op[i];
		struct job *j = &o->job[i];
		j->seconds = is_comm(x) ? byte_s * wire_of(a, x) : work_of(a, x);
		j->last = x->phase == FO_WGRAD;
		for (int k = i + 1; k < n; k++) {
			o->follows[i * n + k] = fo_edit_conflict(x, &o->b->op[k]);
			if (o->follows[i * n + k] && o->job[k].way > j->way)
				j->way = o->job[k].way;
		}
		j->way += j->seconds;
	}
}

/* Fills in o->at; returns when the last operation ends. */
static double list(struct order *o, int rules)
{
	const int n = o->b->n;
	double free_at[FO_LANE_COUNT] = { 0 }, end = 0;
	for (int k = 0; k < n; k++) {
		o->job[k].done = false;
		o->job[k].ready = 0;
		o->job[k].before = 0;
		for (int i = 0; i < k; i++)
			o->job[k].before += o->follows[i * n + k];
	}
	for (int at = 0; at < n; at++) {
		double start = 0;
		const int i = next_of(o, rules, free_at, &start), lane = lane_of(&o->b->op[i]);
		const double over = start + o->job[i].seconds;
		o->job[i].done = true;
		o->at[at] = i;
		free_at[lane] = over;
		end = over > end ? over : end;
		for (int k = i + 1; k < n; k++) {
			o->job[k].before -= o->follows[i * n + k];
			if (o->follows[i * n + k] && o->job[k].ready < over)
				o->job[k].ready = over;
		}
	}
	return end;
}

static void order_block(struct async *a, int block, double byte_s)
{
	struct fo_block *b = &a->p->block[block];
	const size_t n = (size_t)b->n;
	double least = 0;
	int best = -1;
	struct order o = { .b = b };
	o.job = fo_xmalloc(n * sizeof *o.job);
	o.follows = fo_xmalloc(n * n * sizeof *o.follows);
	o.at = fo_xmalloc(n * sizeof *o.at);
	weigh(a, &o, byte_s);
	for (int rules = 0; rules < RULES; rules++) {
		const double end = list(&o, rules);
		if (best >= 0 && end >= least)
			continue;
		best = rules;
		least = end;
	}
	list(&o, best);
	struct fo_op *op = fo_xmalloc(n * sizeof *op);
	for (size_t i = 0; i < n; i++)
		op[i] = b->op[o.at[i]];
	memcpy(b->op, op, n * sizeof *op);
	free(op);
	free(o.job);
	free(o.follows);
	free(o.at);
}

void fo_pass_tp_async(struct fo_program *p)
{
	struct async a = pieces_of(p);
	if (a.pieces < 2)
		return;
	for (int b = 0; b < p->nblock; b++)
		cut_block(&a, b);
	const double byte_s = seconds_of_byte(&a);
	for (int b = 0; b < p->nblock; b++)
		if (has_calls(&a, &p->block[b]))
			order_block(&a, b, byte_s);
}
