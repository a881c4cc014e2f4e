/* cp: ranks of a cp group share the tokens of every row. Each has its own queries, keys and values; a query must see
 * keys of others.
 *
 * heads: cp_heads.c.
 *
 * ring: keys and values travel round the group, on lane cp, and a rank's queries look at those that are there while the
 * next ones come. What they find among the keys of each rank is merged by log-sum-exp, so a rank never holds the keys
 * of a whole row. Backward they travel once more. With them goes, one place behind, the sum of their gradients: each
 * rank adds what its own queries contribute, and hands the sum on while it works on the next keys. With n ranks each of
 * keys, values and their gradients is handed on n - 1 times; what a rank contributes to its own keys stays where it is.
 *
 * Rows are cut so that all ranks have the same number of pairs to compute (program/ring.h). All else in a program is
 * done token by token, and sees nothing of it: a rank's program simply has fewer tokens (fo_program.tokens). Weights
 * are those of all, so their gradients are added up over cp as over ranks with other rows (FO_GROUP_DATA,
 * FO_GROUP_SHARD).
 *
 * From: Ring Attention (Liu et al. 2023); two chunks of a row for each rank: "zig-zag" (Zhu 2024,
 * ring-flash-attention). */
#include "pass/pass.h"
#include "program/mesh_cost.h"

#include <stdio.h>
#include <string.h>

struct ring {
	struct fo_program *p;
	int32_t ranks, place, chunk;
	int block, at;   /* where the next operation goes */
	struct fo_op of; /* the attention that it stands for */
};

fo_status fo_pass_cp_legal(const struct fo_program *p)
{
	const int64_t cp = p->run.pass.cp;
	const int32_t ranks = fo_mesh_cp(&p->run.mesh);
	if (cp < 0 || cp >= FO_CP_COUNT)
		return fo_fail(FO_EARG, "cp is 1 (ring) or 2 (heads), not %lld", (long long)cp);
	if (ranks < 2)
		return FO_OK;
	if (p->run.mode != FO_MODE_TRAIN && p->run.mode != FO_MODE_EVAL)
		return fo_fail(FO_EARG, "ranks of a cp group train and evaluate; they do not write text");
	return fo_mesh_attention_legal(&p->run); /* rows and heads were looked at when the program was lowered */
}

static struct fo_op *put(struct ring *r, int kind, int phase, int lane)
{
	struct fo_op *o = fo_op_insert(r->p, r->block, r->at++, kind, phase, lane);
	if (fo_op_info(kind)->cls == FO_CLASS_COMM)
		o->group = FO_GROUP_CP;
	return o;
}

static void add_arg(struct fo_op *o, struct fo_operand a, int access)
{
	a.access = (uint8_t)access;
	o->arg[o->n++] = a;
}

/* Another buffer like that of an operand, named after it and a step of the ring. */
static struct fo_operand another(struct ring *r, const struct fo_operand *like, const char *prefix, int step)
{
	char name[sizeof r->p->buf->name];
	struct fo_operand a = *like;
	const struct fo_buffer b = r->p->buf[like->buf];
	snprintf(name, sizeof name, "%.4s%.12s.%d", prefix, b.name, step);
	const int known = fo_buffer_find(r->p, name);
	a.buf = (int16_t)(known >= 0 ? known : fo_buffer_like(r->p, name, &b));
	return a;
}

/* The next rank has it as `prefix`NAME.step. */
static struct fo_operand hand_on(struct ring *r, const struct fo_operand *x, const struct fo_operand *like,
				 const char *prefix, int step)
{
	const struct fo_operand y = another(r, like, prefix, step);
	struct fo_op *o = put(r, fo_op_of_wire(FO_WIRE_SHIFT), FO_TRANSFER, FO_LANE_CP);
	add_arg(o, *x, FO_READ);
	add_arg(o, y, FO_DEF);
	return y;
}

/* Keys and values go to the next rank, where there is one that lacks them. */
static void hand_on_keys(struct ring *r, const struct fo_operand kv[2], const char *prefix, int step,
			 struct fo_operand next[2])
{
	for (int i = 0; i < 2; i++)
		next[i] = step < r->ranks ? hand_on(r, &kv[i], &r->of.arg[FO_ATTENTION_K + i], prefix, step) : kv[i];
}

/* The operation over the keys that have come `step` places; its operands as r->of has them. */
static struct fo_op *put_block(struct ring *r, int step)
{
	struct fo_op *o = put(r, fo_op_info(r->of.kind)->block, r->of.phase, FO_LANE_COMPUTE);
	o->attr = r->of.attr;
	o->attr.cp = r->ranks;
	o->attr.place = r->place;
	o->attr.chunk = r->chunk;
	o->attr.peer = step;
	o->n = r->of.n;
	memcpy(o->arg, r->of.arg, sizeof o->arg);
	return o;
}

static void forward(struct ring *r)
{
	const struct fo_operand *of = r->of.arg;
	struct fo_operand kv[2] = { of[FO_ATTENTION_K], of[FO_ATTENTION_V] }, next[2], o, lse;
	for (int step = 0; step < r->ranks; step++) {
		hand_on_keys(r, kv, "f.", step + 1, next);
		o = step ? another(r, &of[FO_ATTENTION_O], "f.", step) : of[FO_ATTENTION_O];
		lse = step ? another(r, &of[FO_ATTENTION_LSE], "f.", step) : of[FO_ATTENTION_LSE];
		struct fo_op *b = put_block(r, step);
		b->arg[FO_ATTENTION_BLOCK_K].buf = kv[0].buf;
		b->arg[FO_ATTENTION_BLOCK_V].buf = kv[1].buf;
		b->arg[FO_ATTENTION_BLOCK_O].buf = o.buf;
		b->arg[FO_ATTENTION_BLOCK_LSE].buf = lse.buf;
		if (step) {
			b = put(r, fo_op_info(b->kind)->merge, r->of.phase, FO_LANE_COMPUTE);
			b->attr.head_dim = r->of.attr.head_dim;
			add_arg(b, o, FO_READ);
			add_arg(b, lse, FO_READ);
			add_arg(b, of[FO_ATTENTION_O], FO_UPDATE);
			add_arg(b, of[FO_ATTENTION_LSE], FO_UPDATE);
		}
		memcpy(kv, next, sizeof kv);
	}
}

/* The sum of a gradient that came and this rank's own, as `to`. */
static void add_up(struct ring *r, const struct fo_operand *came, const struct fo_operand *own,
		   const struct fo_operand *to)
{
	fo_pass_put_sum(r->p, r->block, r->at++, FO_BACKWARD, (const struct fo_operand[]){ *came, *own, *to });
}

/* sum[]: of the gradients of keys and of values, what goes to the next rank. */
static void hand_on_gradients(struct ring *r, int step, struct fo_operand sum[2])
{
	for (int i = 0; i < 2; i++) {
		const struct fo_operand *d = &r->of.arg[FO_ATTENTION_BWD_DK + i];
		const struct fo_operand own = another(r, d, "c.", step);
		if (step == 1) {
			sum[i] = own;
		} else {
			const struct fo_operand came = sum[i];
			sum[i] = another(r, d, "s.", step);
			add_up(r, &came, &own, &sum[i]);
		}
		sum[i] = hand_on(r, &sum[i], d, "t.", step);
	}
}

static void backward(struct ring *r)
{
	const struct fo_operand *of = r->of.arg;
	struct fo_operand kv[2] = { of[FO_ATTENTION_BWD_K], of[FO_ATTENTION_BWD_V] }, next[2], sum[2];
	for (int step = 0; step < r->ranks; step++) {
		hand_on_keys(r, kv, "b.", step + 1, next);
		struct fo_op *b = put_block(r, step);
		b->arg[FO_ATTENTION_BLOCK_BWD_K].buf = kv[0].buf;
		b->arg[FO_ATTENTION_BLOCK_BWD_V].buf = kv[1].buf;
		b->arg[FO_ATTENTION_BLOCK_BWD_DQ].access = step ? FO_ACC : FO_DEF;
		const int at = r->at - 1;
		for (int i = FO_ATTENTION_BLOCK_BWD_DK; i <= FO_ATTENTION_BLOCK_BWD_DV; i++) {
			const struct fo_operand d = another(r, &of[i], "c.", step);
			r->p->block[r->block].op[at].arg[i].buf = d.buf;
		}
		if (step)
			hand_on_gradients(r, step, sum);
		memcpy(kv, next, sizeof kv);
	}
	for (int i = 0; i < 2; i++) {
		const struct fo_operand *d = &of[FO_ATTENTION_BWD_DK + i];
		const struct fo_operand own = another(r, d, "c.", 0);
		add_up(r, &sum[i], &own, d);
	}
}

void fo_pass_cp(struct fo_program *p)
{
	struct ring r = { .p = p };
	r.ranks = fo_mesh_group(&p->run.mesh, FO_GROUP_CP, &r.place, NULL);
	if (r.ranks < 2)
		return;
	if (p->run.pass.cp == FO_CP_HEADS) {
		fo_pass_cp_heads(p);
		return;
	}
	r.chunk = (int32_t)(p->run.seq / r.ranks / 2);
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			r.of = p->block[b].op[i];
			const int kind = fo_op_info(r.of.kind)->block;
			if (!kind || kind == (int)r.of.kind)
				continue;
			fo_op_remove(p, b, i);
			r.block = b;
			r.at = i;
			if (fo_op_family(kind) == FO_OPS_ATTENTION)
				forward(&r);
			else
				backward(&r);
			i = r.at - 1;
		}
}
