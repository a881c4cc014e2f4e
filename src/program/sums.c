/* Sums over ranks: whether a program adds up over exactly the ranks that it must, and whether all ranks together update
 * every weight once.
 *
 * Each rank has rows of its own. What it makes of rows alone (activations) is its own affair. What it makes by adding
 * up over rows (gradients, the loss) is a part of a sum: it is *pending* over the coordinates of the mesh, until an
 * operation of class COMM has added it up over the ranks that differ there. What a reduce-scatter leaves is *split*:
 * this rank's rows of it, so a sum over its elements (a norm) is pending over that coordinate again. These two sets of
 * coordinates are followed through the instances in issue order, for every rectangle of every buffer without rows of
 * tokens, which is what operands and the operations table say; no operation and no pass is known here by name. Wrong
 * is: to use a pending value, but to move it or to add it to another that is equally pending; to add up over a
 * coordinate that is not pending; to add more to a sum that is not pending alike, or that was read already.
 *
 * Ranks of a tp group have the same rows, and of some buffers only their own rows or columns (fo_buffer.tp). What is
 * made by adding up over those is pending over tp, rows of tokens too: a matmul's result where it sums over them, any
 * other result that has not them.
 *
 * Maxima over rows (operands of type MAX: what fp8 scales are made of) are pending like sums, until a maximum over
 * ranks has joined them; adding them up is wrong. A number may count twice in a maximum, so more may join at any time,
 * and joining over a coordinate twice is waste and no defect. The scale of the step (type STEP) is of maxima that were
 * joined at the end of former steps, or of the rank's own numbers where there are none: every rank's numbers go with
 * the scale that they were cast by, so it is never pending.
 *
 * Ranks of a cp group have the same rows, each its own tokens of them. What a shift hands on around the group is *far*:
 * so many places from its own rank. Attention over a block of keys names the distance of those that it means; anything
 * else that meets tokens of two ranks is wrong, and so is attention over own keys alone. Where ranks exchange tokens
 * for heads, rows are followed as well: an all-to-all takes them sorted by rank, attention of all tokens, all else of
 * own.
 *
 * Stages of a pipeline have gradients of other layers: a sum over elements of gradients is pending over the stages. A
 * gradient that the first and the last stage both have (fo_buffer.stage) is pending over these two. What goes from
 * stage to stage is never pending.
 *
 * Weights are *new* once an optimizer's rectangle or what came from ranks with one has been written. At the end of a
 * step no element that a rank holds may be old. */
#include "program/roles.h"

#include "base/count.h"
#include "base/rng.h"
#include "program/rects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARD = 1, REPLICATE = 2, HEADS = 4, KV = 8, TP = HEADS | KV, STAGES = 16, ENDS = 32 };

struct state {
	uint8_t pending, split; /* sets of coordinates */
	bool max;               /* what is pending is a maximum, not a sum */
	bool fresh;
	bool used;   /* it was read since it was written */
	bool merges; /* attention over a block of keys of others, which must be merged */
	int32_t far; /* rows of tokens: places that they were handed on, or enum far */
	/* Of sums over tokens: how many parts micro-batches made of them, and which (struct flow's batch). */
	int32_t parts;
	uint64_t terms;
};
enum { MIXED = -1 }; /* some elements have other parts than others */
/* Rows that are not one rank's tokens in their order: some are unlike; own tokens of all ranks' heads, sorted by rank;
 * all tokens of own heads. */
enum far { UNLIKE = -1, BY_RANK = -2, ALL_TOKENS = -3 };

struct flow {
	const struct fo_program *p;
	const struct fo_unrolled *u;
	struct fo_rects known; /* of struct state */
	uint8_t all;           /* coordinates with several ranks that have other rows */
	bool tp;               /* there are tp groups: rows of tokens are followed too */
	int32_t cp;            /* ranks of a cp group: then they are, too */
	uint64_t batch;        /* terms of one part of a gradient that every micro-batch made once */
};

/* ---- rectangles ---- */

static void write(struct flow *f, const struct fo_operand *a, struct state is)
{
	is.used = false;
	fo_rects_write(&f->known, a, &is);
}

static struct state *state_at(const struct flow *f, int x) { return fo_rects_value(&f->known, x); }

static void mark_used(struct flow *f, const struct fo_operand *a)
{
	for (int x = fo_rects_first(&f->known, a); x >= 0; x = fo_rects_next(&f->known, x, a))
		state_at(f, x)->used = true;
}

/* Pending and split of anything in the rectangle; fresh where all of it is. *alike: all that is known is pending over
 * the same. */
static struct state read(const struct flow *f, const struct fo_operand *a, bool *alike)
{
	struct state is = { 0 };
	int64_t fresh = 0;
	bool any = false;
	*alike = true;
	for (int x = fo_rects_first(&f->known, a); x >= 0; x = fo_rects_next(&f->known, x, a)) {
		const struct state *e = state_at(f, x);
		*alike &= !any || e->pending == is.pending;
		is.far = !any || e->far == is.far ? e->far : UNLIKE;
		if (!any) {
			is.terms = e->terms;
			is.parts = e->parts;
		} else if (is.terms != e->terms || is.parts != e->parts) {
			is.parts = MIXED;
		}
		any = true;
		is.pending |= e->pending;
		is.split |= e->split;
		is.used |= e->used;
		is.max |= e->max;
		fresh += e->fresh ? fo_rects_shared(&f->known.rect[x], a) : 0;
	}
	is.fresh = fresh == (int64_t)a->nr * a->nc;
	return is;
}

/* ---- operations ---- */

/* Rows of tokens are a rank's own. */
static bool of_tokens(const struct fo_program *p, const struct fo_operand *a)
{
	return p->buf[a->buf].row_axis == FO_AXIS_TOKENS || p->buf[a->buf].col_axis == FO_AXIS_TOKENS;
}

static uint8_t coordinates(const struct fo_program *p, int group)
{
	uint8_t all = 0;
	if (group == FO_GROUP_SHARD || group == FO_GROUP_DATA || group == FO_GROUP_ALL)
		all |= fo_mesh_group(&p->run.mesh, FO_GROUP_SHARD, NULL, NULL) > 1 ? SHARD : 0;
	if (group == FO_GROUP_REPLICATE || group == FO_GROUP_DATA || group == FO_GROUP_ALL)
		all |= p->run.mesh.replicate > 1 ? REPLICATE : 0;
	const int32_t kv_ranks = fo_mesh_kv(&p->run.mesh);
	const bool heads = fo_mesh_tp(&p->run.mesh) > kv_ranks, kv = kv_ranks > 1;
	if (group == FO_GROUP_TP || group == FO_GROUP_ALL || group == FO_GROUP_HEADS)
		all |= heads ? HEADS : 0;
	if (group == FO_GROUP_TP || group == FO_GROUP_ALL || group == FO_GROUP_KV)
		all |= kv ? KV : 0;
	if (group == FO_GROUP_PP && fo_mesh_pp(&p->run.mesh) > 1)
		all |= STAGES;
	if (group == FO_GROUP_ENDS && fo_mesh_group(&p->run.mesh, FO_GROUP_ENDS, NULL, NULL) > 1)
		all |= ENDS;
	return all;
}

static const char *group_of(const struct flow *f, uint8_t set)
{
	static const enum fo_group alone[] = { FO_GROUP_SHARD, FO_GROUP_REPLICATE, FO_GROUP_TP,  FO_GROUP_HEADS,
					       FO_GROUP_KV,    FO_GROUP_PP,        FO_GROUP_ENDS };
	static _Thread_local char text[96]; /* programs of several ranks are checked by a thread each */
	if (set == coordinates(f->p, FO_GROUP_ALL))
		return fo_mesh_pp(&f->p->run.mesh) > 1 ? "all ranks of a stage" : "all ranks";
	if (set == coordinates(f->p, FO_GROUP_DATA))
		return "all ranks with other rows";
	text[0] = 0;
	for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
		const uint8_t one = coordinates(f->p, (int)alone[i]);
		const size_t n = strlen(text);
		if (!one || (set & one) != one)
			continue;
		set &= (uint8_t)~one;
		snprintf(text + n, sizeof text - n, "%s%s", n ? " and " : "group ", fo_group_name[alone[i]]);
	}
	return text[0] ? text : "no group";
}

void fo_roles_where(const struct fo_program *p, const struct fo_unrolled *u, int rank, int instance, const char *buffer,
		    char *out, size_t size)
{
	const struct fo_slot *s = &p->slot[u->slot[instance]];
	const struct fo_op *o = fo_instance_op(p, u, instance);
	snprintf(out, size, "rank %d, block '%s' (layer %d, micro-batch %d): %s of '%s'", rank, p->block[s->block].name,
		 s->layer, s->mb, fo_op_info(o->kind)->name, buffer);
}

static fo_status wrong(const struct flow *f, const struct fo_operand *a, const char *what, uint8_t set)
{
	char where[192];
	const struct fo_slot *s = &f->p->slot[f->u->slot[f->known.id]];
	const struct fo_buffer *b = &f->p->buf[a->buf];
	fo_roles_where(f->p, f->u, f->p->rank, f->known.id, b->name, where, sizeof where);
	return fo_fail(FO_EBUG, "%s of layer %d, rows %d to %d: %s (%s)", where,
		       b->axes & FO_PER_LAYER ? s->layer + a->dlayer : 0, a->r0, a->r0 + a->nr - 1, what,
		       group_of(f, set));
}

/* This rank's part of the rows of a whole gradient: a sum over its elements is not the whole one's. */
static uint8_t part_of(const struct flow *f, const struct fo_operand *a)
{
	static const enum fo_group by[] = { FO_GROUP_SHARD, FO_GROUP_REPLICATE, FO_GROUP_DATA };
	const struct fo_program *p = f->p;
	for (int q = 0; q < p->nparam; q++) {
		const struct fo_param *pr = &p->param[q];
		if (pr->grad != a->buf || a->nr >= pr->nr || a->r0 < pr->r0 || a->r0 + a->nr > pr->r0 + pr->nr)
			continue;
		for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
			int32_t place, ranks = fo_mesh_group(&p->run.mesh, by[i], &place, NULL);
			int64_t begin, n = fo_mesh_part(pr->nr, place, ranks, &begin);
			if (ranks > 1 && pr->r0 + begin == a->r0 && n == a->nr)
				return coordinates(p, (int)by[i]);
		}
	}
	return 0;
}

/* Adding, moving from one place to another, and a maximum of maxima: what is pending stays so. */
static bool keeps_pending(const struct fo_op *o, bool max)
{
	if (max && fo_op_family(o->kind) != FO_OPS_TRANSFER)
		return fo_op_info(o->kind)->max;
	return fo_op_family(o->kind) == FO_OPS_POINTWISE || fo_op_family(o->kind) == FO_OPS_TRANSFER;
}

static fo_status add_up(struct flow *f, const struct fo_op *o, const struct fo_operand *a, struct state *is)
{
	uint8_t over = coordinates(f->p, o->group);
	bool alike;
	*is = read(f, a, &alike);
	if (of_tokens(f->p, a) && (over & ~TP || !over))
		return FO_OK; /* rows of ranks are different rows: no sum that this file knows */
	if (is->pending && is->max != fo_op_info(o->kind)->max)
		return wrong(f, a, is->max ? "maxima are added up" : "a sum's parts are compared", is->pending);
	if (is->max) {
		is->pending &= (uint8_t)~over;
		return FO_OK;
	}
	if (!alike)
		return wrong(f, a, "some of it was added up over ranks already", is->pending);
	if (over & ~is->pending)
		return wrong(f, a, "it is added up over ranks whose rows it has already", over & (uint8_t)~is->pending);
	is->pending &= (uint8_t)~over;
	return FO_OK;
}

/* Stores what was made, or adds it to what is there, which must be the sum over the same ranks so far. */
static fo_status add_or_write(struct flow *f, const struct fo_operand *a, struct state is)
{
	bool alike, known = false;
	if (a->access == FO_ACC && is.max) {
		is.pending |= read(f, a, &alike).pending;
	} else if (a->access == FO_ACC) {
		struct state was = read(f, a, &alike);
		known = fo_rects_first(&f->known, a) >= 0;
		if (known && was.used && !is.max)
			return wrong(f, a, "more is added to it after it was read", 0);
		if (known && (!alike || was.pending != is.pending))
			return wrong(f, a, "more is added to it after it was added up over ranks",
				     was.pending ^ is.pending);
		is.split |= was.split;
		is.parts = is.parts < 0 || was.parts < 0 ? MIXED : is.parts + was.parts;
		is.terms += was.terms;
	}
	write(f, a, is);
	return FO_OK;
}

static bool is_weight(const struct fo_program *p, int buf)
{
	bool is = false;
	for (int q = 0; q < p->nparam; q++)
		is |= p->param[q].weight == buf;
	return is;
}

/* Own tokens become all tokens over the tp group, and nothing else is gathered there. */
static bool gathers_own(const struct fo_program *p, const struct fo_operand *from, const struct fo_operand *to,
			uint8_t over)
{
	uint8_t own, all, cols;
	fo_operand_divided(p, from, &own, &cols);
	fo_operand_divided(p, to, &all, &cols);
	return !of_tokens(p, from) || (own && !all) == (over == coordinates(p, FO_GROUP_TP));
}

static fo_status visit_comm(struct flow *f, const struct fo_op *o)
{
	const enum fo_wire wire = fo_op_info(o->kind)->wire;
	const struct fo_operand *from = &o->arg[0], *to = &o->arg[o->n - 1];
	uint8_t over = coordinates(f->p, o->group);
	struct state is = { 0 };
	bool alike;
	int32_t place;
	switch (wire) {
	case FO_WIRE_ALL_REDUCE:
		for (int k = 0; k < fo_op_tensors(o->kind, o->n); k++) {
			FO_TRY(add_up(f, o, &o->arg[k], &is));
			write(f, &o->arg[k], is);
		}
		return FO_OK;
	case FO_WIRE_REDUCE_SCATTER:
		FO_TRY(add_up(f, o, from, &is));
		if (from->access == FO_TAKE)
			fo_rects_erase(&f->known, from);
		is.split |= of_tokens(f->p, from) ? 0 : over;
		return add_or_write(f, to, is);
	case FO_WIRE_ALL_GATHER:
		is = read(f, from, &alike);
		if (f->tp && !gathers_own(f->p, from, to, over))
			return wrong(f, from, "tokens are gathered over other ranks than those that divide them", over);
		if (is.pending & over)
			return wrong(f, from, "it is gathered before it is added up over ranks", is.pending & over);
		if (is_weight(f->p, from->buf) && fo_home_persists(f->p->buf[to->buf].home) && !is.fresh &&
		    f->p->run.mode == FO_MODE_TRAIN)
			return wrong(f, from, "it is gathered for the next step before it is updated", over);
		is.split &= (uint8_t)~over;
		write(f, to, is);
		return FO_OK;
	case FO_WIRE_BROADCAST:
		is = read(f, from, &alike);
		fo_mesh_group(&f->p->run.mesh, (enum fo_group)o->group, &place, NULL);
		if (is.pending & over && !of_tokens(f->p, from))
			return wrong(f, from, "one rank's part of a sum goes to all", is.pending & over);
		is.fresh |= place != o->attr.peer;
		write(f, from, is);
		return FO_OK;
	case FO_WIRE_RECEIVE:
		is.fresh = true;
		write(f, to, is);
		return FO_OK;
	case FO_WIRE_SHIFT:
		is = read(f, from, &alike);
		if (o->group != FO_GROUP_CP || is.far < 0)
			return wrong(f, from, "it is handed on around other ranks than those of a cp group", over);
		is.far = (is.far + 1) % f->cp;
		write(f, to, is);
		return FO_OK;
	case FO_WIRE_ALL_TO_ALL:
		is = read(f, from, &alike);
		if (f->cp > 1 && of_tokens(f->p, from)) {
			if (o->group != FO_GROUP_CP)
				return wrong(f, from,
					     "tokens are exchanged for heads among other ranks than a cp group's",
					     over);
			if (is.far != BY_RANK && is.far != ALL_TOKENS)
				return wrong(f, from, "its rows are not sorted by the ranks that get them", over);
			is.far = is.far == BY_RANK ? ALL_TOKENS : BY_RANK;
		}
		write(f, to, is);
		return FO_OK;
	case FO_WIRE_SEND:
		is = read(f, from, &alike);
		if (is.pending && f->p->staged)
			return wrong(f, from, "a part of a sum is sent", is.pending);
		return FO_OK;
	case FO_WIRE_NONE: break;
	}
	return FO_OK;
}

/* ---- parts of a tp group ---- */

/* The tensor of an operation on many that operand i belongs to; -1: all. */
static int tensor_of(const struct fo_op *o, int i)
{
	const struct fo_op_info *info = fo_op_info(o->kind);
	return i < info->common || !info->per_tensor ? -1 : (i - info->common) / info->per_tensor;
}

/* Coordinates of a tp group as those of the mesh. */
static uint8_t across(uint8_t set)
{
	const uint8_t heads = set & FO_ACROSS_HEADS ? HEADS : 0;
	return set & FO_ACROSS_KV ? heads | KV : heads;
}

/* The set that a dimension of an operand is divided along; 0 where it has none of this letter. */
static uint8_t divided_along(const struct fo_program *p, const struct fo_op *o, int i, int dim)
{
	int row, col;
	uint8_t rows, cols;
	fo_op_dims(o, i, &row, &col);
	fo_operand_divided(p, &o->arg[i], &rows, &cols);
	const uint8_t along = row == dim ? rows : 0;
	return col == dim ? along | cols : along;
}

/* What it sums over, and lines of the result that more ranks have than made the line it comes from. */
static uint8_t matmul_sums_over(const struct fo_program *p, const struct fo_op *o)
{
	const uint8_t a = divided_along(p, o, FO_MATMUL_A, FO_DIM_K), b = divided_along(p, o, FO_MATMUL_B, FO_DIM_K),
		      m = divided_along(p, o, FO_MATMUL_A, FO_DIM_M), n = divided_along(p, o, FO_MATMUL_B, FO_DIM_N);
	return across(a | b | (m & (uint8_t)~divided_along(p, o, FO_MATMUL_C, FO_DIM_M)) |
		      (n & (uint8_t)~divided_along(p, o, FO_MATMUL_C, FO_DIM_N)));
}

/* The coordinates of a tp group that operand k, which is written, is a sum over: ranks have parts of what is read along
 * them, and not of it. */
static uint8_t sums_over_parts(const struct fo_program *p, const struct fo_op *o, int k)
{
	uint8_t rows, cols, has_rows, has_cols, over = 0;
	int row, col;
	if (fo_op_family(o->kind) == FO_OPS_MATMUL)
		return matmul_sums_over(p, o);
	fo_operand_divided(p, &o->arg[k], &has_rows, &has_cols);
	fo_op_dims(o, k, &row, &col);
	const bool any = row == FO_DIM_ANY && col == FO_DIM_ANY;
	for (int i = 0; i < o->n; i++) {
		if (!fo_access_reads(o->arg[i].access) ||
		    (tensor_of(o, k) >= 0 && tensor_of(o, i) >= 0 && tensor_of(o, i) != tensor_of(o, k)))
			continue;
		fo_operand_divided(p, &o->arg[i], &rows, &cols);
		fo_op_dims(o, i, &row, &col);
		/* A transpose has the same letter the other way round; one without letters, either way. */
		const uint8_t also = any ? has_rows | has_cols : 0;
		over |= across((rows & (uint8_t) ~(has_rows | also | divided_along(p, o, k, row))) |
			       (cols & (uint8_t) ~(has_cols | also | divided_along(p, o, k, col))));
	}
	return over;
}

/* ---- whose tokens ---- */

static bool is_over_block(const struct fo_op *o) { return fo_op_info(o->kind)->block == (int)o->kind && o->kind; }
static bool is_backward(const struct fo_op *o) { return fo_op_family(o->kind) == FO_OPS_ATTENTION_BWD; }

/* Operands of attention over a block that are keys, values or their gradients. */
static bool is_of_block(const struct fo_op *o, int i)
{
	if (i == FO_ATTENTION_BLOCK_K || i == FO_ATTENTION_BLOCK_V)
		return true;
	return is_backward(o) && i >= FO_ATTENTION_BLOCK_BWD_DK;
}

static bool is_attention(const struct fo_op *o)
{
	const enum fo_op_family f = fo_op_family(o->kind);
	return f == FO_OPS_ATTENTION || f == FO_OPS_ATTENTION_BWD || f == FO_OPS_EAGER || f == FO_OPS_EAGER_BWD;
}

/* Tokens that an operation reads lie alike, *far places away, but for the keys of attention over a block. *far becomes
 * where those lie that it makes. */
static fo_status check_far(const struct flow *f, const struct fo_op *o, int32_t *far)
{
	const enum fo_heads heads = fo_op_info(o->kind)->heads;
	const bool attends = is_attention(o) && !is_over_block(o);
	bool any = is_attention(o) || heads != FO_HEADS_NONE;
	*far = attends ? ALL_TOKENS : heads == FO_HEADS_TOGETHER ? BY_RANK : 0;
	if (f->cp < 2)
		return FO_OK;
	if (attends && f->p->run.pass.cp != FO_CP_HEADS)
		return wrong(f, &o->arg[FO_ATTENTION_K], "keys of other ranks of the cp group are left out", 0);
	for (int i = 0; i < o->n; i++) {
		const struct fo_operand *a = &o->arg[i];
		bool alike;
		if (!fo_access_reads(a->access) || !of_tokens(f->p, a))
			continue;
		const int32_t is = read(f, a, &alike).far;
		int32_t want = any ? *far : is;
		if (is_over_block(o))
			want = is_of_block(o, i) ? o->attr.peer : 0;
		if (attends && is != want)
			return wrong(f, a, "attention has not all tokens of its cp group there", 0);
		if (is == UNLIKE || is != want)
			return wrong(f, a, "it has tokens of another rank of the cp group than is meant", 0);
		if (!is_over_block(o))
			*far = is;
		any = true;
	}
	if (heads != FO_HEADS_NONE)
		*far = heads == FO_HEADS_APART ? BY_RANK : 0;
	return FO_OK;
}

/* Where the tokens of an operand lie that is made. The loop brings documents of all tokens, where attention has them.
 */
static int32_t far_of(const struct flow *f, const struct fo_op *o, int i, int32_t far)
{
	if (is_over_block(o) && is_of_block(o, i))
		return o->attr.peer;
	if (fo_op_info(o->kind)->cls == FO_CLASS_HOST && o->arg[i].nr > f->p->tokens)
		return ALL_TOKENS;
	return far;
}

/* Attention over a block comes equally often for each rank of the group. */
static fo_status check_blocks(const struct flow *f)
{
	int64_t *n = fo_xmalloc((size_t)f->cp * 3 * sizeof *n);
	fo_status st = FO_OK;
	for (int32_t i = 0; i < 3 * f->cp; i++)
		n[i] = 0;
	for (int i = 0; i < f->u->n; i++) {
		const struct fo_op *o = fo_instance_op(f->p, f->u, i);
		const int which = is_backward(o) ? 2 : o->phase == FO_RECOMPUTE;
		if (is_over_block(o))
			n[which * f->cp + o->attr.peer]++;
	}
	for (int32_t i = 0; i < 3 * f->cp && st == FO_OK; i++)
		if (n[i] != n[i / f->cp * f->cp])
			st = fo_fail(
				FO_EBUG,
				"rank %d: attention meets the keys of the rank %d places before it %lld times, its own "
				"%lld times",
				f->p->rank, i % f->cp, (long long)n[i], (long long)n[i / f->cp * f->cp]);
	free(n);
	return st;
}

/* ---- parts that micro-batches make ----
 *
 * A sum over tokens must have what each micro-batch makes of it equally often: once, or as often as its tokens are
 * looked at by chunks. Each micro-batch has a random number; those of the parts of a sum are added up as the parts are,
 * so that the sum of all is a multiple of the sum of all numbers where all are there, and else is not but by a chance
 * of 2^-64. */

static uint64_t term_of(int mb) { return fo_rng_u64(0x7465726d, (uint64_t)mb); }

static bool has_all(const struct flow *f, const struct state *is)
{
	const int64_t mbs = f->p->run.micro_batches;
	return is->parts > 0 && is->parts % mbs == 0 && is->terms == f->batch * (uint64_t)(is->parts / mbs);
}

/* What the optimizer reads of gradients, and what it decides by, is of the whole step. */
static fo_status check_parts(const struct flow *f, const struct fo_op *o)
{
	const bool updates = fo_op_family(o->kind) == FO_OPS_UPDATE;
	for (int i = 0; i < o->n && f->p->run.mode == FO_MODE_TRAIN; i++) {
		const struct fo_operand *a = &o->arg[i];
		const bool loss = fo_op_family(o->kind) == FO_OPS_CLIP && f->p->buf[a->buf].home == FO_HOME_ACT,
			   gradient = updates && a->access == FO_TAKE;
		for (int x = fo_rects_first(&f->known, a); x >= 0; x = fo_rects_next(&f->known, x, a)) {
			const struct state *is = state_at(f, x);
			if ((gradient || (loss && is->parts)) && !has_all(f, is))
				return wrong(f, a, "it does not have what each micro-batch makes of it equally often",
					     0);
		}
	}
	return FO_OK;
}

/* ---- places that attributes name ---- */

/* The first word of a part of the vocabulary, and the chunks of rows that attention over a block is told. */
static fo_status check_places(const struct flow *f, const struct fo_op *o)
{
	const struct fo_mesh *m = &f->p->run.mesh;
	const enum fo_op_family family = fo_op_family(o->kind);
	int32_t place, ranks;
	for (int i = 0; i < o->n && (family == FO_OPS_EMBEDDING || family == FO_OPS_LOSS); i++) {
		const struct fo_operand *a = &o->arg[i];
		const struct fo_buffer *b = &f->p->buf[a->buf];
		const bool rows = b->row_axis == FO_AXIS_VOCAB;
		int64_t begin;
		if ((!rows && b->col_axis != FO_AXIS_VOCAB) || !f->tp)
			continue;
		ranks = fo_mesh_group(m, FO_GROUP_TP, &place, NULL);
		if (fo_mesh_part(f->p->model.vocab, place, ranks, &begin) != (rows ? a->nr : a->nc) ||
		    begin != o->attr.element)
			return wrong(f, a, "its words are not this rank's part of the vocabulary", 0);
	}
	if (!is_over_block(o))
		return FO_OK;
	ranks = fo_mesh_group(m, FO_GROUP_CP, &place, NULL);
	if (o->attr.cp != ranks || o->attr.place != place || o->attr.chunk != f->p->run.seq / ranks / 2)
		return wrong(f, &o->arg[FO_ATTENTION_BLOCK_Q],
			     "it is told of another place in the ring, or other chunks", 0);
	return FO_OK;
}

/* What operands that are read say of what is made of them. */
struct inputs {
	bool tokens, max; /* max: what is pending are maxima */
	bool whole;       /* something is no part of a sum */
	uint8_t pending;
	int32_t parts; /* of sums that are added or moved */
	uint64_t terms;
	struct {
		int32_t nr, nc;
		uint8_t split;
	} in[FO_MAX_OPERANDS];
	int n;
};

static fo_status look_at_inputs(struct flow *f, const struct fo_op *o, struct inputs *in)
{
	bool pending = false;
	*in = (struct inputs){ 0 };
	for (int i = 0; i < o->n; i++) {
		const struct fo_operand *a = &o->arg[i];
		bool alike;
		if (!fo_access_reads(a->access))
			continue;
		struct state is = read(f, a, &alike);
		if (of_tokens(f->p, a)) {
			in->tokens = true;
			in->whole |= !is.pending;
			if (!is.pending)
				continue;
		}
		if (is.pending && (!keeps_pending(o, is.max) || (!alike && !is.max)))
			return wrong(f, a,
				     is.max ? "it is used before ranks join their maxima"
					    : "it is used before it is added up over ranks",
				     is.pending);
		in->parts = is.parts < 0 || in->parts < 0 ? MIXED : in->parts + is.parts;
		in->terms += is.terms;
		in->max |= is.pending && is.max;
		if (pending && !in->max && is.pending != in->pending)
			return wrong(f, a, "it and another operand are sums over other ranks", is.pending);
		in->pending |= is.pending;
		pending = in->pending != 0;
		in->whole |= !is.pending;
		in->in[in->n].nr = a->nr;
		in->in[in->n].nc = a->nc;
		in->in[in->n++].split = is.split ? is.split : part_of(f, a);
	}
	if (pending && !in->max && in->whole)
		return wrong(f, &o->arg[0], "a part of a sum over ranks meets what is none", in->pending);
	return FO_OK;
}

static struct state made(const struct flow *f, const struct inputs *in, const struct fo_op *o, int operand)
{
	const struct fo_operand *a = &o->arg[operand];
	const int type = fo_op_info(o->kind)->operand[fo_op_operand_row(o->kind, operand)].type;
	struct state is = { .pending = in->pending | (in->tokens ? f->all : 0), .max = type == FO_TYPE_MAX };
	if (type == FO_TYPE_STEP)
		return (struct state){ 0 };
	if (keeps_pending(o, false)) {
		is.parts = in->parts;
		is.terms = in->terms;
	}
	if (in->tokens && !is.max) {
		is.parts = 1;
		is.terms = term_of(f->p->slot[f->u->slot[f->known.id]].mb);
	}
	if (f->p->buf[a->buf].home == FO_HOME_GRAD && f->p->buf[a->buf].stage == FO_STAGE_ENDS)
		is.pending |= coordinates(f->p, FO_GROUP_ENDS);
	if (fo_op_family(o->kind) == FO_OPS_CLIP &&
	    f->p->buf[o->arg[fo_op_operand_of(o->kind, 0, FO_SUMSQ_G)].buf].home == FO_HOME_GRAD)
		is.pending |= coordinates(f->p, FO_GROUP_PP);
	if (f->tp)
		is.pending |= sums_over_parts(f->p, o, operand);
	if (of_tokens(f->p, a)) {
		is.pending &= TP;
		return is;
	}
	for (int i = 0; i < in->n; i++) {
		bool alike = in->in[i].nr == a->nr && in->in[i].nc == a->nc;
		is.split |= alike ? in->in[i].split : 0;
		/* A sum over elements of which each rank has a part. */
		is.pending |= !alike && (a->access == FO_ACC || is.max) ? in->in[i].split : 0;
	}
	return is;
}

static fo_status visit(struct flow *f, const struct fo_op *o)
{
	struct inputs in;
	const bool updates = fo_op_family(o->kind) == FO_OPS_UPDATE;
	int32_t far;
	FO_TRY(look_at_inputs(f, o, &in));
	FO_TRY(check_far(f, o, &far));
	FO_TRY(check_parts(f, o));
	FO_TRY(check_places(f, o));
	for (int i = 0; i < o->n; i++)
		if (o->arg[i].access == FO_READ)
			mark_used(f, &o->arg[i]);
	for (int i = 0; i < o->n; i++) {
		const struct fo_operand *a = &o->arg[i];
		if (a->access == FO_TAKE)
			fo_rects_erase(&f->known, a);
		if (!fo_access_writes(a->access) || (of_tokens(f->p, a) && !f->tp && f->cp < 2))
			continue;
		struct state is = made(f, &in, o, i);
		is.fresh = updates;
		is.far = far_of(f, o, i, far);
		is.merges = is_over_block(o) && !is_backward(o) && o->attr.peer;
		FO_TRY(add_or_write(f, a, is));
	}
	return FO_OK;
}

/* ---- the whole step ---- */

/* What a rank holds of weights is new at the end. */
static fo_status check_weights(const struct flow *f)
{
	const struct fo_program *p = f->p;
	for (int i = 0; i < p->nbuf; i++) {
		const struct fo_buffer *b = &p->buf[i];
		bool layers = b->axes & FO_PER_LAYER;
		for (int l = layers ? p->layer_begin : 0; l < (layers ? p->layer_end : 1) && is_weight(p, i); l++) {
			int64_t fresh = 0;
			if (!fo_program_has(p, b, l))
				continue;
			for (int x = fo_rects_of(&f->known, i, l); x >= 0; x = f->known.rect[x].next) {
				const struct fo_rect *e = &f->known.rect[x];
				fresh += state_at(f, x)->fresh ? (int64_t)(e->r1 - e->r0) * (e->c1 - e->c0) : 0;
			}
			if (fresh != b->rows * b->cols)
				return fo_fail(
					FO_EBUG,
					"rank %d: of weights '%s' of layer %d, %lld of %lld elements are new at the "
					"end of the step: neither an optimizer operation of this rank nor "
					"communication writes the others",
					p->rank, b->name, l, (long long)fresh, (long long)(b->rows * b->cols));
		}
	}
	return FO_OK;
}

/* What persists beside weights and their state is made again by whoever reads it: a copy of weights that nobody makes
 * again is that of the step before. */
static fo_status check_read(struct flow *f, const struct fo_op *o)
{
	for (int k = 0; k < o->n; k++) {
		const struct fo_operand *a = &o->arg[k];
		bool state = f->p->buf[a->buf].home == FO_HOME_STATE && a->access == FO_READ;
		for (int q = 0; state && q < f->p->nparam; q++)
			for (int i = 0; i < FO_PARAM_BUFFERS; i++)
				state &= f->p->param[q].buf[i] != a->buf;
		if (state && fo_rects_first(&f->known, a) < 0)
			return wrong(f, a, "it persists, and nothing makes it again in the step", f->all);
	}
	return FO_OK;
}

/* A generation ends: what attention found on the keys of another rank was merged. */
static fo_status check_merged(const struct flow *f, const struct fo_operand *a)
{
	for (int x = fo_rects_first(&f->known, a); x >= 0 && f->cp > 1; x = fo_rects_next(&f->known, x, a))
		if (state_at(f, x)->merges && !state_at(f, x)->used)
			return wrong(f, a, "what it found on the keys of another rank is not merged", 0);
	return FO_OK;
}

static fo_status check_all_merged(struct flow *f)
{
	for (f->known.id = 0; f->known.id < f->u->n; f->known.id++) {
		const struct fo_op *o = fo_instance_op(f->p, f->u, f->known.id);
		if (is_over_block(o) && !is_backward(o))
			FO_TRY(check_merged(f, &o->arg[FO_ATTENTION_BLOCK_O]));
	}
	return check_blocks(f);
}

static fo_status follow(struct flow *f)
{
	for (int i = 0; i < f->u->n; i++) {
		const struct fo_op *o = fo_instance_op(f->p, f->u, i);
		f->known.id = i;
		/* A new generation: nothing of the old one counts. */
		for (int k = 0; k < o->n; k++)
			if (o->arg[k].access == FO_DEF && !fo_home_persists(f->p->buf[o->arg[k].buf].home)) {
				FO_TRY(check_merged(f, &o->arg[k]));
				fo_rects_forget(&f->known, &o->arg[k]);
			}
		bool comm = fo_op_info(o->kind)->cls == FO_CLASS_COMM;
		FO_TRY(comm ? visit_comm(f, o) : visit(f, o));
	}
	if (f->cp > 1)
		FO_TRY(check_all_merged(f));
	if (f->p->run.mode != FO_MODE_TRAIN || !f->p->nparam)
		return FO_OK;
	for (f->known.id = 0; f->known.id < f->u->n; f->known.id++)
		FO_TRY(check_read(f, fo_instance_op(f->p, f->u, f->known.id)));
	return check_weights(f);
}

fo_status fo_sums_verify(const struct fo_program *p, const struct fo_unrolled *u)
{
	struct flow f = { .p = p,
			  .u = u,
			  .all = coordinates(p, FO_GROUP_DATA),
			  .tp = fo_mesh_tp(&p->run.mesh) > 1,
			  .cp = fo_mesh_cp(&p->run.mesh) };
	if (!f.all && !f.tp && !p->staged)
		return FO_OK;
	for (int mb = 0; mb < p->run.micro_batches; mb++)
		f.batch += term_of(mb);
	fo_rects_init(&f.known, p, u, sizeof(struct state));
	fo_status st = follow(&f);
	fo_rects_fini(&f.known);
	return st;
}

/* ---- who updates what ---- */

static void add_update(struct fo_roles *r, const struct fo_program *p, int q, int layer, const struct fo_operand *w)
{
	const struct fo_param *pr = &p->param[q];
	if (pr->weight != w->buf)
		return;
	int64_t row = w->r0 + p->buf[w->buf].row0, r0 = fo_max(pr->r0, row), r1 = fo_min(pr->r0 + pr->nr, row + w->nr);
	int64_t c0 = fo_max(pr->c0, w->c0), c1 = fo_min(pr->c0 + pr->nc, w->c0 + w->nc);
	if (r0 >= r1 || c0 >= c1)
		return;
	fo_array_room(&r->update, &r->update_cap, (size_t)r->updates, sizeof *r->update);
	r->update[r->updates++] = (struct fo_role_update){ .param = q,
							   .layer = pr->per_layer ? layer : 0,
							   .rank = p->rank,
							   .r0 = pr->global_r0 + r0 - pr->r0,
							   .r1 = pr->global_r0 + r1 - pr->r0,
							   .c0 = pr->global_c0 + c0 - pr->c0,
							   .c1 = pr->global_c0 + c1 - pr->c0 };
}

void fo_updates_add(struct fo_roles *r, const struct fo_program *p)
{
	for (int s = 0; s < p->nslot; s++) {
		const struct fo_block *b = &p->block[p->slot[s].block];
		for (int i = 0; i < b->n; i++) {
			const struct fo_op *o = &b->op[i];
			if (fo_op_family(o->kind) != FO_OPS_UPDATE)
				continue;
			for (int t = 0; t < fo_op_tensors(o->kind, o->n); t++) {
				const struct fo_operand *w = &o->arg[fo_op_operand_of(o->kind, t, FO_ADAMW_W)];
				for (int q = 0; q < p->nparam; q++)
					add_update(r, p, q, p->slot[s].layer + w->dlayer, w);
			}
		}
	}
}

static int by_element(const void *x, const void *y)
{
	const struct fo_role_update *a = x, *b = y;
	return FO_ORDER_BY(fo_order(a->param, b->param), fo_order(a->layer, b->layer), fo_order(a->r0, b->r0),
			   fo_order(a->c0, b->c0), fo_order(a->r1, b->r1), fo_order(a->c1, b->c1),
			   fo_order(a->rank, b->rank));
}

/* Owners of one element: every rank, or those that are in the same place along some coordinates of the mesh. */
static bool owned_once(const struct fo_mesh *mesh, const int32_t *owner, int n)
{
	static const enum fo_group of[] = { FO_GROUP_SHARD, FO_GROUP_REPLICATE, FO_GROUP_HEADS, FO_GROUP_KV };
	enum { COORDINATES = sizeof of / sizeof *of };
	for (int set = 0; set < 1 << COORDINATES; set++) {
		struct fo_mesh m = *mesh, first = *mesh;
		int64_t ranks = n;
		bool same = n > 0;
		for (int c = 0; c < COORDINATES && same; c++) {
			if (!(set >> c & 1))
				continue;
			ranks *= fo_mesh_group(&m, of[c], NULL, NULL);
			first.rank = owner[0];
			for (int i = 1; i < n && same; i++) {
				int32_t x, y;
				m.rank = owner[i];
				fo_mesh_group(&first, of[c], &x, NULL);
				fo_mesh_group(&m, of[c], &y, NULL);
				same = x == y;
			}
		}
		if (same && ranks == fo_mesh_stage_ranks(mesh))
			return true;
	}
	return false;
}

/* Every stage that has an element updates it once in each such set of its ranks. Owners come in the order of ranks. */
static bool owned_once_by_stages(const struct fo_mesh *mesh, const int32_t *owner, int n)
{
	const int32_t ranks = fo_mesh_stage_ranks(mesh);
	bool once = n > 0;
	for (int i = 0, end; i < n && once; i = end) {
		for (end = i + 1; end < n && owner[end] / ranks == owner[i] / ranks;)
			end++;
		once = owned_once(mesh, owner + i, end - i);
	}
	return once;
}

static fo_status bad_cell(const struct fo_param *pr, int layer, int64_t row, int64_t col, const int32_t *owner, int n)
{
	struct fo_str by = { 0 };
	for (int i = 0; i < n && i < 8; i++)
		fo_str_printf(&by, "%s%d", i ? ", " : n > 1 ? "ranks " : "rank ", owner[i]);
	fo_status st = fo_fail(
		FO_EBUG,
		"parameter '%s' of layer %d: the optimizer updates row %lld, column %lld on %s%s; each set "
		"of ranks that hold the parameter together must do so once",
		pr->name, layer, (long long)row, (long long)col, n ? by.data : "no rank", n > 8 ? " and others" : "");
	fo_str_fini(&by);
	return st;
}

static int by_rank(const void *x, const void *y) { return fo_order(*(const int32_t *)x, *(const int32_t *)y); }

/* One parameter of one layer: u[0, n). Rows and columns where a rectangle begins or ends cut it into cells, which have
 * the same owners all over. */
static fo_status check_cells(const struct fo_roles *r, const struct fo_role_update *u, int64_t n)
{
	const struct fo_program *p = r->of->p;
	const struct fo_param *pr = &p->param[u->param];
	int64_t *row = fo_xmalloc((size_t)(2 * n + 2) * sizeof *row),
		*col = fo_xmalloc((size_t)(2 * n + 2) * sizeof *col);
	int32_t *owner = fo_xmalloc((size_t)n * sizeof *owner);
	fo_status st = FO_OK;
	row[2 * n + 1] = pr->rows, col[2 * n + 1] = pr->cols; /* and 0, from fo_xmalloc */
	for (int64_t i = 0; i < n; i++) {
		row[2 * i] = u[i].r0, row[2 * i + 1] = u[i].r1;
		col[2 * i] = u[i].c0, col[2 * i + 1] = u[i].c1;
	}
	qsort(row, (size_t)(2 * n + 2), sizeof *row, fo_by_int64);
	qsort(col, (size_t)(2 * n + 2), sizeof *col, fo_by_int64);
	for (int64_t y = 0; y <= 2 * n; y++)
		for (int64_t x = 0; x <= 2 * n && row[y] < row[y + 1] && st == FO_OK; x++) {
			int owners = 0;
			bool twice = false;
			for (int64_t i = 0; i < n && col[x] < col[x + 1]; i++) {
				if (u[i].r0 > row[y] || u[i].r1 <= row[y] || u[i].c0 > col[x] || u[i].c1 <= col[x])
					continue;
				for (int k = 0; k < owners; k++)
					twice |= owner[k] == u[i].rank;
				owner[owners++] = u[i].rank;
			}
			if (col[x] >= col[x + 1])
				continue;
			qsort(owner, (size_t)owners, sizeof *owner, by_rank);
			if (twice || !owned_once_by_stages(&p->run.mesh, owner, owners))
				st = bad_cell(pr, u->layer, row[y], col[x], owner, owners);
		}
	free(row);
	free(col);
	free(owner);
	return st;
}

/* The common case without cells: every rank of one stage updates all of it in one piece. */
static bool all_by_all(const struct fo_roles *r, const struct fo_role_update *u, int64_t n)
{
	const struct fo_param *pr = &r->of->p->param[u->param];
	const int64_t ranks = fo_mesh_stage_ranks(&r->of->p->run.mesh), first = u->rank / ranks * ranks;
	bool whole = n == ranks;
	for (int64_t i = 0; i < n && whole; i++)
		whole = u[i].rank == first + i && !u[i].r0 && !u[i].c0 && u[i].r1 == pr->rows && u[i].c1 == pr->cols;
	return whole;
}

fo_status fo_updates_verify(struct fo_roles *r)
{
	const struct fo_program *p = r->of->p;
	int64_t seen = 0, want = 0;
	if (!r->updates || p->run.mode != FO_MODE_TRAIN)
		return FO_OK; /* nobody trains */
	qsort(r->update, (size_t)r->updates, sizeof *r->update, by_element);
	for (int64_t i = 0, end; i < r->updates; i = end, seen++) {
		for (end = i + 1; end < r->updates && r->update[end].param == r->update[i].param &&
				  r->update[end].layer == r->update[i].layer;)
			end++;
		if (!all_by_all(r, r->update + i, end - i))
			FO_TRY(check_cells(r, r->update + i, end - i));
	}
	for (int q = 0; q < p->nparam; q++)
		want += p->param[q].per_layer ? p->model.layers : 1;
	if (seen != want)
		return fo_fail(FO_EBUG, "the ranks together update %lld of %lld weights", (long long)seen,
			       (long long)want);
	return FO_OK;
}
