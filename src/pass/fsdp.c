/* zero=3: ranks of a shard group share the weights, too; each has its rows of them, in place.
 *
 * What forward and backward read is a gathered copy in the arena, made on the gather lane some uses ahead
 * (zero_prefetch) and dead after its last use, so the plan of the arena knows what it costs. zero_reshard says how long
 * a copy lives: `forward`: to its use, unless the next one's gathering would begin before that ends; `backward`: to the
 * end of the micro-batch's backward; `step`: to the end of the step, whatever the number of micro-batches.
 *
 * zero_first: the copies that the first zero_prefetch uses of a step read persist from step to step. They are
 * gathered behind the optimizer's update of their weights, beside the rest of the optimizer, so a step begins with
 * what it needs; whoever else reads these weights in the step reads the same copy. The gathers are of phase DERIVE:
 * the executor makes the copies before the first step, and when weights were changed from outside.
 *
 * From: FairScale's and PyTorch's FSDP (Zhao et al. 2023), whose second version shards by rows as well. */
#include "pass/pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Weights whose copy persists: what slots of `slot.layer` see of them. */
struct kept {
	int copy, layer, buf, user; /* user: whose gathers are one block, from 0 */
	struct fo_operand of;       /* the copy that `buf` stands for */
	struct fo_slot slot;
};
struct gathers {
	struct fo_program *p;
	int n, layers;     /* buffers before, instances of each */
	int *copy;         /* by buffer: of shared weights the gathered copy; else -1 */
	int *source;       /* by buffer: of a copy its weights; else -1 */
	int *last;         /* [copy's buffer][layer]: the newest slot that used it; -1: none */
	int *made, made_n; /* blocks of gathers */
	size_t made_cap;
	struct kept *kept;
	int nkept;
	size_t kept_cap;
	int kept_from; /* buffers from here on are kept copies */
};
/* The gathers in front of one slot. */
struct ahead {
	int before, use;    /* slots */
	struct fo_op block; /* its operands: the copies */
};

static void add_copies(struct gathers *g)
{
	struct fo_program *p = g->p;
	for (int i = 0; i < g->n; i++) {
		struct fo_buffer b = p->buf[i];
		char name[sizeof b.name];
		if (b.home != FO_HOME_PARAM || !b.whole)
			continue;
		snprintf(name, sizeof name, "g.%.20s", b.name);
		b.home = FO_HOME_ACT;
		b.rows = b.whole;
		b.row0 = b.whole = 0;
		g->copy[i] = fo_buffer_like(p, name, &b);
	}
	g->source = fo_xmalloc((size_t)p->nbuf * sizeof *g->source);
	memset(g->source, -1, (size_t)p->nbuf * sizeof *g->source);
	for (int i = 0; i < g->n; i++)
		if (g->copy[i] >= 0)
			g->source[g->copy[i]] = i;
}

static void read_copies(struct gathers *g)
{
	struct fo_program *p = g->p;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; p->block[b].role != FO_ROLE_OPTIMIZER && i < p->block[b].n; i++)
			for (int k = 0; k < p->block[b].op[i].n; k++) {
				struct fo_operand *a = &p->block[b].op[i].arg[k];
				if (a->buf < g->n && g->copy[a->buf] >= 0)
					a->buf = (int16_t)g->copy[a->buf];
			}
}

/* The copies that a slot uses, each once, as operands of its block: a layer has fewer weights than an operation may
 * have operands. */
static int copies_used(const struct gathers *g, int s, struct fo_operand *out)
{
	const struct fo_program *p = g->p;
	const struct fo_block *b = &p->block[p->slot[s].block];
	int n = 0;
	for (int i = 0; i < b->n; i++)
		for (int k = 0; k < b->op[i].n; k++) {
			struct fo_operand a = b->op[i].arg[k];
			bool known = g->source[a.buf] < 0;
			for (int j = 0; j < n && !known; j++)
				known = out[j].buf == a.buf && out[j].dlayer == a.dlayer;
			if (known || n == FO_MAX_OPERANDS)
				continue;
			a.access = FO_DEF;
			a.r0 = a.c0 = 0;
			a.nr = (int32_t)p->buf[a.buf].rows;
			a.nc = (int32_t)p->buf[a.buf].cols;
			out[n++] = a;
		}
	return n;
}

/* ---- copies that persist ---- */

static int layer_of(const struct fo_program *p, const struct fo_slot *s, const struct fo_operand *a)
{
	return p->buf[a->buf].axes & FO_PER_LAYER ? s->layer + a->dlayer : 0;
}

static const struct kept *kept_of(const struct gathers *g, const struct fo_slot *s, const struct fo_operand *a)
{
	for (int k = 0; k < g->nkept; k++)
		if (g->kept[k].copy == a->buf && g->kept[k].layer == layer_of(g->p, s, a))
			return &g->kept[k];
	return NULL;
}

/* What the first uses of a step read. */
static void find_first(struct gathers *g)
{
	const struct fo_program *p = g->p;
	for (int s = 0, users = 0; s < p->nslot; s++) {
		struct fo_operand used[FO_MAX_OPERANDS];
		int many = copies_used(g, s, used);
		if (many && users++ == p->run.pass.zero_prefetch)
			return;
		for (int i = 0; i < many; i++) {
			if (kept_of(g, &p->slot[s], &used[i]))
				continue;
			fo_array_room(&g->kept, &g->kept_cap, (size_t)g->nkept, sizeof *g->kept);
			g->kept[g->nkept++] = (struct kept){ .copy = used[i].buf,
							     .layer = layer_of(p, &p->slot[s], &used[i]),
							     .user = users - 1,
							     .of = used[i],
							     .slot = p->slot[s] };
		}
	}
}

/* Each is a buffer without layers: others of the same weights are not kept. */
static void add_kept(struct gathers *g)
{
	struct fo_program *p = g->p;
	g->kept_from = p->nbuf;
	for (int k = 0; k < g->nkept; k++) {
		struct kept *e = &g->kept[k];
		struct fo_buffer b = p->buf[e->copy];
		char name[sizeof b.name];
		snprintf(name, sizeof name, "k%d.%.16s", e->layer, p->buf[g->source[e->copy]].name);
		b.home = FO_HOME_STATE;
		b.axes = 0;
		e->buf = fo_buffer_like(p, name, &b);
	}
	g->source = fo_xrealloc(g->source, (size_t)p->nbuf * sizeof *g->source);
	for (int i = g->kept_from; i < p->nbuf; i++)
		g->source[i] = -1;
}

/* Slots of this block and layer read what is kept, in a block of their own where others stay. */
static void read_kept(struct gathers *g, int block, int layer)
{
	struct fo_program *p = g->p;
	const struct fo_slot at = { .block = (int16_t)block, .layer = (int16_t)layer };
	bool any = false, slots = false, others = false;
	for (int i = 0; p->block[block].role != FO_ROLE_OPTIMIZER && i < p->block[block].n; i++)
		for (int k = 0; k < p->block[block].op[i].n; k++)
			any |= kept_of(g, &at, &p->block[block].op[i].arg[k]) != NULL;
	for (int s = 0; any && s < p->nslot; s++) {
		slots |= p->slot[s].block == block && p->slot[s].layer == layer;
		others |= p->slot[s].block == block && p->slot[s].layer != layer;
	}
	if (!slots)
		return;
	int to = block;
	if (others) {
		char name[sizeof p->block->name];
		snprintf(name, sizeof name, "%.14s.k%d", p->block[block].name, layer);
		to = fo_block_clone(p, block, name);
		for (int s = 0; s < p->nslot; s++)
			if (p->slot[s].block == block && p->slot[s].layer == layer)
				p->slot[s].block = (int16_t)to;
	}
	for (int i = 0; i < p->block[to].n; i++)
		for (int k = 0; k < p->block[to].op[i].n; k++) {
			struct fo_operand *a = &p->block[to].op[i].arg[k];
			const struct kept *e = kept_of(g, &at, a);
			if (!e)
				continue;
			a->buf = (int16_t)e->buf;
			a->dlayer = 0;
		}
}

static void keep_first(struct gathers *g)
{
	struct fo_program *p = g->p;
	const int blocks = p->nblock;
	find_first(g);
	add_kept(g);
	for (int b = 0; b < blocks; b++)
		for (int l = 0; l < g->layers; l++)
			read_kept(g, b, l);
}

static bool reads_kept(const struct gathers *g, int s)
{
	const struct fo_block *b = &g->p->block[g->p->slot[s].block];
	for (int i = 0; i < b->n; i++)
		for (int k = 0; k < b->op[i].n; k++)
			if (b->op[i].arg[k].buf >= g->kept_from)
				return true;
	return false;
}

/* The newest slot that updates the weights of this copy. */
static int updated_by(const struct gathers *g, const struct kept *e)
{
	const struct fo_program *p = g->p;
	for (int s = p->nslot - 1; s >= 0; s--) {
		const struct fo_block *b = &p->block[p->slot[s].block];
		for (int i = 0; i < b->n; i++)
			for (int k = 0; fo_op_family(b->op[i].kind) == FO_OPS_UPDATE && k < b->op[i].n; k++) {
				const struct fo_operand *a = &b->op[i].arg[k];
				if (a->buf == g->source[e->copy] && layer_of(p, &p->slot[s], a) == e->layer)
					return s;
			}
	}
	return -1;
}

/* The next step's first copies, each user's behind the last update of its weights. */
static void gather_kept(struct gathers *g)
{
	struct fo_program *p = g->p;
	for (int k = 0, next; k < g->nkept; k = next) {
		const struct fo_slot of = g->kept[k].slot;
		char name[sizeof p->block->name];
		int behind = -1;
		snprintf(name, sizeof name, "next.%d", g->kept[k].user);
		int block = fo_block_add(p, name, FO_ROLE_OPTIMIZER, p->block[of.block].unit);
		for (next = k; next < g->nkept && g->kept[next].user == g->kept[k].user; next++) {
			const struct kept *e = &g->kept[next];
			int s = updated_by(g, e);
			behind = s > behind ? s : behind;
			struct fo_op *o = fo_op_insert(p, block, p->block[block].n, fo_op_of_wire(FO_WIRE_ALL_GATHER),
						       FO_DERIVE, FO_LANE_GATHER);
			o->group = FO_GROUP_SHARD;
			fo_op_arg(p, o, g->source[e->copy], e->of.dlayer, FO_READ);
			fo_op_arg(p, o, e->buf, 0, FO_DEF);
		}
		fo_slot_insert(p, behind + 1, (struct fo_slot){ .block = (int16_t)block, .layer = of.layer });
	}
}

/* ---- copies in the arena ---- */

static int *last_use(const struct gathers *g, const struct fo_operand *a, int s)
{
	return &g->last[(size_t)a->buf * (size_t)g->layers + (size_t)layer_of(g->p, &g->p->slot[s], a)];
}

/* Is a copy that slot `last` used there still, for slot s, whose gathers stand in front of slot `before`? */
static bool is_kept(const struct fo_program *p, int last, int s, int before)
{
	if (last < 0)
		return false;
	if (before <= last || p->run.pass.zero_reshard == FO_RESHARD_STEP)
		return true;
	return p->run.pass.zero_reshard == FO_RESHARD_BACKWARD && p->slot[last].mb == p->slot[s].mb;
}

/* The block that gathers these copies for slots of block `of`. */
static int gather_block(struct gathers *g, int of, const struct fo_op *want)
{
	struct fo_program *p = g->p;
	char name[sizeof p->block->name];
	for (int m = 0; m < g->made_n; m++) {
		const struct fo_block *b = &p->block[g->made[m]];
		bool same = b->n == want->n && b->unit == p->block[of].unit;
		for (int i = 0; same && i < b->n; i++)
			same = fo_edit_same(&b->op[i].arg[FO_ALL_GATHER_Y], &want->arg[i]);
		if (same)
			return g->made[m];
	}
	snprintf(name, sizeof name, "%.16s.g", p->block[of].name);
	for (int k = 2; fo_block_find(p, name) >= 0; k++)
		snprintf(name, sizeof name, "%.16s.g%d", p->block[of].name, k);
	int block = fo_block_add(p, name, FO_ROLE_GATHER, p->block[of].unit);
	for (int i = 0; i < want->n; i++) {
		struct fo_op *o = fo_op_insert(p, block, i, fo_op_of_wire(FO_WIRE_ALL_GATHER), FO_TRANSFER,
					       FO_LANE_GATHER);
		o->group = FO_GROUP_SHARD;
		fo_op_arg(p, o, g->source[want->arg[i].buf], want->arg[i].dlayer, FO_READ);
		o->arg[o->n++] = want->arg[i];
	}
	fo_array_room(&g->made, &g->made_cap, (size_t)g->made_n, sizeof *g->made);
	g->made[g->made_n++] = block;
	return block;
}

/* What is gathered in front of which slot, in the slots' order. Returns how many. */
static int plan_gathers(struct gathers *g, struct ahead *out)
{
	const struct fo_program *p = g->p;
	int *user = fo_xmalloc((size_t)(p->nslot + 1) * sizeof *user), users = 0, n = 0;
	for (int s = 0; s < p->nslot; s++) {
		struct fo_operand used[FO_MAX_OPERANDS];
		int many = copies_used(g, s, used);
		if (!many && !reads_kept(g, s))
			continue;
		user[users++] = s;
		if (!many)
			continue;
		int at = users - 1 - (int)p->run.pass.zero_prefetch;
		struct ahead *a = &out[n];
		*a = (struct ahead){ .before = user[at > 0 ? at : 0], .use = s };
		for (int i = 0; i < many; i++) {
			int *last = last_use(g, &used[i], s);
			if (!is_kept(p, *last, s, a->before))
				a->block.arg[a->block.n++] = used[i];
			*last = s;
		}
		n += a->block.n > 0;
	}
	free(user);
	return n;
}

void fo_pass_zero_weights(struct fo_program *p)
{
	struct gathers g = { .p = p, .n = p->nbuf, .layers = (int)p->model.layers + 1 };
	g.copy = fo_xmalloc((size_t)g.n * sizeof *g.copy);
	memset(g.copy, -1, (size_t)g.n * sizeof *g.copy);
	add_copies(&g);
	read_copies(&g);
	g.kept_from = INT16_MAX;
	if (p->run.pass.zero_first && p->run.mode == FO_MODE_TRAIN)
		keep_first(&g);
	size_t places = (size_t)p->nbuf * (size_t)g.layers;
	g.last = fo_xmalloc(places * sizeof *g.last);
	memset(g.last, -1, places * sizeof *g.last);
	struct ahead *a = fo_xmalloc(((size_t)p->nslot + 1) * sizeof *a);
	int n = plan_gathers(&g, a), at = 0, slots = 0;
	struct fo_slot *to = fo_xmalloc((size_t)(p->nslot + n + 1) * sizeof *to);
	for (int s = 0; s < p->nslot; s++) {
		for (; at < n && a[at].before == s; at++) {
			to[slots] = p->slot[a[at].use];
			to[slots++].block = (int16_t)gather_block(&g, p->slot[a[at].use].block, &a[at].block);
		}
		to[slots++] = p->slot[s];
	}
	free(p->slot);
	p->slot = to;
	p->nslot = slots;
	p->slot_cap = (size_t)(slots + 1);
	gather_kept(&g);
	free(g.kept);
	free(a);
	free(g.copy);
	free(g.source);
	free(g.last);
	free(g.made);
}
