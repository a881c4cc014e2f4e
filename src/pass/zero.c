/* zero: ranks of a shard group share what each of them held before: the state of the optimizer (1), gradients too (2),
 * weights too (3, fsdp.c).
 *
 * Of every buffer of weights with at least a row for each rank of the group, a rank owns the rows that fo_mesh_part
 * gives it. Its moments, its master and, from 2 on, its gradients have these rows alone; a parameter's part of them is
 * where its rectangle and these rows meet. Smaller buffers (norm weights, biases) stay whole on each rank, which all
 * make the same step of them. Row shards of row-major buffers are contiguous, so nothing is packed.
 *
 * Pass ddp came before: its sums over all ranks become a reduce-scatter within the shard group and, where there are
 * several such groups, a sum of the own rows over them (hsdp). The gradient norm is of own rows, so it is added up over
 * the shard group; gradients that are whole on each rank are counted once, behind it. Under 1 and 2 weights are
 * gathered behind their update.
 *
 * From: ZeRO (Rajbhandari et al. 2020). */
#include "pass/pass.h"
#include "program/mesh_cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct zero {
	struct fo_program *p;
	int32_t ranks, replicas;
	int n;        /* buffers before the pass */
	bool *shared; /* by buffer: ranks share its rows */
	int *own;     /* by buffer of gradients: the one of its own rows; -1: none */
	bool each;    /* gradients are scattered behind each micro-batch, and added to own rows */
	/* Sums of squares of gradients (pass tp makes two or three), and those of own rows, -1 while there are none;
	 * `rest`: some gradient of the sum is whole. */
	struct sums {
		int all, own;
		bool rest;
	} sums[3];
	int nsums;
};

/* Whether the optimizer's operations take all rows of a buffer at once. A random number belongs to an element: those of
 * an operation on many tensors are counted from one place. */
static bool is_taken_whole(const struct fo_program *p, int buf)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; p->block[b].role == FO_ROLE_OPTIMIZER && i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			for (int k = 0; k < o->n; k++)
				if (o->arg[k].buf == buf && (o->arg[k].r0 || o->arg[k].nr != p->buf[buf].rows ||
							     (o->attr.stochastic && fo_op_info(o->kind)->per_tensor)))
					return false;
		}
	return true;
}

static bool can_share(const struct fo_program *p, const struct fo_param *q, int32_t ranks)
{
	bool can = p->buf[q->weight].rows >= ranks && q->m >= 0 && q->v >= 0 && q->grad >= 0;
	for (int k = 0; k < FO_PARAM_BUFFERS && can; k++)
		can = q->buf[k] < 0 || is_taken_whole(p, q->buf[k]);
	return can;
}

fo_status fo_pass_zero_legal(const struct fo_program *p)
{
	const struct fo_passes *c = &p->run.pass;
	int32_t ranks = fo_mesh_group(&p->run.mesh, FO_GROUP_SHARD, NULL, NULL);
	if (c->zero >= FO_ZERO_COUNT || c->zero_prefetch < 0 || c->zero_prefetch > FO_ZERO_PREFETCH_MOST ||
	    c->zero_reshard < 0 || c->zero_reshard >= FO_RESHARD_COUNT || c->zero_sync < 0 ||
	    c->zero_sync >= FO_SYNC_COUNT)
		return fo_fail(
			FO_EARG,
			"zero is 1, 2 or 3, its prefetch 0 to %d, its reshard one of %d ways, its sync one of %d",
			FO_ZERO_PREFETCH_MOST, FO_RESHARD_COUNT, FO_SYNC_COUNT);
	if (c->zero_first && !c->zero_prefetch)
		return fo_hint(fo_fail(FO_EARG, "zero-first gathers the first zero-prefetch blocks' weights, and none "
						"is gathered ahead"),
			       "a zero-prefetch of 1 or more says how many");
	if (ranks < 2 || p->run.mode != FO_MODE_TRAIN) /* evaluation follows training */
		return FO_OK;
	if (!c->ddp)
		return fo_fail(FO_EARG, "pass ddp, which adds gradients up over the ranks, comes before");
	for (int q = 0; q < p->nparam; q++)
		if (can_share(p, &p->param[q], ranks))
			return FO_OK;
	return fo_mesh_shards_legal(0, ranks);
}

/* ---- buffers ---- */

static void cut(struct zero *z, int buf)
{
	struct fo_buffer *b = &z->p->buf[buf];
	int32_t place;
	if (b->whole)
		return;
	fo_mesh_group(&z->p->run.mesh, FO_GROUP_SHARD, &place, NULL);
	b->whole = b->rows;
	b->rows = fo_mesh_part(b->whole, place, z->ranks, &b->row0);
}

/* Of gradients the whole one stays what backward adds to; its sum has a buffer of its own. */
static void add_own_gradient(struct zero *z, int grad)
{
	const struct fo_buffer b = z->p->buf[grad];
	char name[sizeof b.name];
	snprintf(name, sizeof name, "r.%.20s", b.name[0] == 'd' && b.name[1] == '.' ? b.name + 2 : b.name);
	z->own[grad] = fo_buffer_like(z->p, name, &b);
	cut(z, z->own[grad]);
}

static void share_buffers(struct zero *z)
{
	struct fo_program *p = z->p;
	for (int q = 0; q < p->nparam; q++)
		for (int k = 0; can_share(p, &p->param[q], z->ranks) && k < FO_PARAM_BUFFERS; k++)
			if (p->param[q].buf[k] >= 0)
				z->shared[p->param[q].buf[k]] = true;
	for (int q = 0; q < p->nparam; q++) {
		struct fo_param *pr = &p->param[q];
		const int state[] = { pr->m, pr->v, pr->master };
		const int grad = pr->grad;
		if (!z->shared[pr->weight])
			continue;
		for (size_t k = 0; k < sizeof state / sizeof *state; k++)
			if (state[k] >= 0)
				cut(z, state[k]);
		if (p->run.pass.zero < FO_ZERO_GRADIENTS)
			continue;
		if (z->own[grad] < 0)
			add_own_gradient(z, grad);
		p->param[q].grad = (int16_t)z->own[grad];
		if (p->run.pass.zero == FO_ZERO_WEIGHTS)
			cut(z, p->param[q].weight);
	}
}

/* The operand's own rows: in the buffer that has them alone, or among all. */
static struct fo_operand own_rows(const struct zero *z, struct fo_operand a)
{
	const struct fo_program *p = z->p;
	int64_t begin, rows;
	int32_t place;
	if (a.buf < z->n && z->own[a.buf] >= 0)
		a.buf = (int16_t)z->own[a.buf];
	const struct fo_buffer *b = &p->buf[a.buf];
	fo_mesh_group(&p->run.mesh, FO_GROUP_SHARD, &place, NULL);
	rows = fo_mesh_part(fo_buffer_whole(b), place, z->ranks, &begin);
	a.r0 = b->whole ? 0 : (int32_t)begin;
	a.nr = (int32_t)rows;
	return a;
}

/* ---- sums of gradients ---- */

static struct fo_op *append(struct fo_program *p, int block, int kind, int lane, enum fo_group group)
{
	struct fo_op *o = fo_op_insert(p, block, p->block[block].n, kind, FO_TRANSFER, lane);
	o->group = (uint8_t)group;
	return o;
}

/* One bucket of ddp: what is whole stays in it. complete: nothing more comes to these sums. */
static void scatter(struct zero *z, int block, const struct fo_op *bucket, bool complete)
{
	struct fo_program *p = z->p;
	struct fo_op rest = *bucket, own = *bucket;
	rest.n = own.n = 0;
	if (bucket->group == FO_GROUP_KV || bucket->group == FO_GROUP_ENDS) {
		for (int k = 0; k < bucket->n; k++)
			if (bucket->arg[k].buf < z->n && z->shared[bucket->arg[k].buf]) {
				rest.arg[k] = own_rows(z, bucket->arg[k]);
				rest.arg[k].access = FO_UPDATE;
			}
		rest.n = bucket->n;
		fo_op_clone(p, block, p->block[block].n, &rest);
		return;
	}
	for (int k = 0; k < bucket->n; k++) {
		struct fo_operand x = bucket->arg[k];
		if (x.buf >= z->n || !z->shared[x.buf]) {
			rest.arg[rest.n++] = x;
			continue;
		}
		struct fo_operand y = own_rows(z, x);
		struct fo_op *o = append(p, block, fo_op_of_wire(FO_WIRE_REDUCE_SCATTER), FO_LANE_REDUCE,
					 FO_GROUP_SHARD);
		o->n = 2;
		o->attr.narrow = bucket->attr.narrow;
		x.access = y.buf == x.buf ? FO_READ : FO_TAKE;
		y.access = z->each ? FO_ACC : FO_DEF;
		if (y.buf == x.buf)
			y.access = FO_PART;
		o->arg[FO_REDUCE_SCATTER_X] = x;
		o->arg[FO_REDUCE_SCATTER_Y] = y;
		y.access = FO_UPDATE;
		own.arg[own.n++] = y;
	}
	if (rest.n)
		fo_op_clone(p, block, p->block[block].n, &rest);
	if (own.n && z->replicas > 1 && complete)
		fo_op_clone(p, block, p->block[block].n, &own)->group = FO_GROUP_REPLICATE;
	if (own.n && bucket->group == FO_GROUP_ALL && complete)
		fo_op_clone(p, block, p->block[block].n, &own)->group = FO_GROUP_TP;
}

/* The blocks from `first` on. */
static void scatter_blocks(struct zero *z, int first, bool complete)
{
	struct fo_program *p = z->p;
	for (int b = first; b < p->nblock; b++)
		for (int left = p->block[b].role == FO_ROLE_REDUCE ? p->block[b].n : 0; left > 0; left--) {
			const struct fo_op bucket = p->block[b].op[0];
			fo_op_remove(p, b, 0);
			scatter(z, b, &bucket, complete);
		}
}

/* Small gradients that stay whole, and sums over several shard groups, travel once a step in any case. */
static void scatter_gradients(struct zero *z)
{
	struct fo_program *p = z->p;
	const int blocks = p->nblock;
	scatter_blocks(z, 0, true);
	if (!z->each)
		return;
	bool *of = fo_xmalloc((size_t)p->nbuf * sizeof *of);
	for (int i = 0; i < z->n; i++)
		of[i] = z->own[i] >= 0;
	fo_pass_ddp_each(p, of);
	scatter_blocks(z, blocks, false);
	free(of);
}

/* ---- the optimizer ---- */

static struct sums *sums_of(struct zero *z, int buf)
{
	for (int i = 0; i < z->nsums; i++)
		if (z->sums[i].all == buf)
			return &z->sums[i];
	return NULL;
}

/* Of an operation on gradients alone: own rows have a sum of their own. */
static void split_sums(struct zero *z, int block, int at)
{
	struct fo_program *p = z->p;
	const struct fo_op o = p->block[block].op[at];
	const struct fo_op_info *f = fo_op_info(o.kind);
	struct fo_op side[2] = { o, o };
	int n[2] = { 0, 0 };
	for (int k = 0; k < fo_op_tensors(o.kind, o.n); k++) {
		struct fo_operand g = o.arg[fo_op_operand_of(o.kind, k, FO_SUMSQ_G)];
		bool own = z->shared[g.buf];
		side[own].arg[fo_op_operand_of(o.kind, n[own]++, FO_SUMSQ_G)] = own ? own_rows(z, g) : g;
	}
	for (int k = 0; k < 2; k++)
		side[k].n = (uint8_t)(f->per_tensor ? f->common + n[k] * f->per_tensor : o.n);
	struct fo_operand *acc = &side[1].arg[fo_op_operand_of(o.kind, 0, FO_SUMSQ_ACC)];
	struct sums *s = sums_of(z, acc->buf);
	if (n[1] && s->own < 0) {
		char name[sizeof p->buf->name];
		snprintf(name, sizeof name, "%.18s.own", p->buf[s->all].name);
		s->own = fo_buffer_like(p, name, &p->buf[s->all]);
	}
	s->rest |= n[0] > 0;
	acc->buf = (int16_t)s->own;
	p->block[block].op[at] = side[!n[0]];
	if (n[0] && n[1])
		fo_op_clone(p, block, at + 1, &side[1]);
}

/* Updates own rows, and sends them to the others where all have the whole weight. */
static void update_own(struct zero *z, int block, int at)
{
	struct fo_program *p = z->p;
	const int part[] = { FO_ADAMW_M, FO_ADAMW_V, FO_ADAMW_GRAD, FO_ADAMW_W, FO_ADAMW_MASTER };
	struct fo_op *o = &p->block[block].op[at];
	const int kind = o->kind, each = fo_op_info(kind)->per_tensor,
		  operands = each ? fo_op_info(kind)->common + each : o->n;
	for (int k = 0; k < fo_op_tensors(kind, p->block[block].op[at].n); k++) {
		o = &p->block[block].op[at];
		const struct fo_operand w = o->arg[fo_op_operand_of(kind, k, FO_ADAMW_W)];
		if (!z->shared[w.buf])
			continue;
		for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
			struct fo_operand *a = &o->arg[part[i] < operands ? fo_op_operand_of(kind, k, part[i]) : 0];
			if (part[i] < operands)
				*a = own_rows(z, *a);
		}
		if (p->buf[w.buf].whole) {
			if (o->attr.stochastic)
				o->attr.element += p->buf[w.buf].row0 * p->buf[w.buf].cols;
			continue;
		}
		struct fo_operand x = own_rows(z, w), y = w;
		o = append(p, block, fo_op_of_wire(FO_WIRE_ALL_GATHER), FO_LANE_GATHER, FO_GROUP_SHARD);
		x.access = FO_READ;
		y.access = FO_PART;
		o->n = 2;
		o->arg[FO_ALL_GATHER_X] = x;
		o->arg[FO_ALL_GATHER_Y] = y;
	}
}

static bool sums_gradients(const struct fo_program *p, const struct fo_op *o)
{
	return fo_op_family(o->kind) == FO_OPS_CLIP &&
	       p->buf[o->arg[fo_op_operand_of(o->kind, 0, FO_SUMSQ_G)].buf].home == FO_HOME_GRAD;
}

/* Who used a sum of gradients uses that of all ranks'. */
static void sum_norms(struct zero *z, const struct sums *s)
{
	struct fo_program *p = z->p;
	char name[sizeof p->buf->name];
	int reader = -1, sum = s->own;
	if (s->own < 0)
		return;
	if (s->rest) {
		snprintf(name, sizeof name, "%.18s.all", p->buf[s->all].name);
		sum = fo_buffer_like(p, name, &p->buf[s->all]);
	}
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			for (int k = 0; k < p->block[b].op[i].n; k++) {
				struct fo_operand *a = &p->block[b].op[i].arg[k];
				if (a->buf != s->all || a->access == FO_ACC)
					continue;
				a->buf = (int16_t)sum;
				reader = b;
			}
	snprintf(name, sizeof name, fo_block_find(p, "step.n") < 0 ? "step.n" : "step.n2");
	fo_edit_put_before(p, fo_pass_ddp_norm(p, name, FO_GROUP_SHARD, s->own, s->rest ? s->all : -1, sum), reader);
}

static int sum_buffer(const struct fo_op *o) { return o->arg[fo_op_operand_of(o->kind, 0, FO_SUMSQ_ACC)].buf; }

static void share_optimizer(struct zero *z)
{
	struct fo_program *p = z->p;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			if (sums_gradients(p, o) && !sums_of(z, sum_buffer(o)))
				z->sums[z->nsums++] = (struct sums){ sum_buffer(o), -1, false };
		}
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			if (fo_op_family(o->kind) == FO_OPS_UPDATE)
				update_own(z, b, i);
			else if (sums_gradients(p, o) && sums_of(z, sum_buffer(o)))
				split_sums(z, b, i);
		}
	for (int i = 0; i < z->nsums; i++)
		sum_norms(z, &z->sums[i]);
}

/* What is made of weights alone (fp8 numbers, for the next step) waits for their gathering. It comes behind the updates
 * of all layers, so that these go on meanwhile. */
static void derive_behind(struct fo_program *p)
{
	for (int b = 0, blocks = p->nblock; b < blocks; b++) {
		char name[sizeof p->block->name];
		int derive = -1;
		for (int i = 0; i < p->block[b].n; i++) {
			if (p->block[b].op[i].phase != FO_DERIVE)
				continue;
			if (derive < 0) {
				snprintf(name, sizeof name, "%.16s.d", p->block[b].name);
				derive = fo_block_add(p, name, p->block[b].role, p->block[b].unit);
			}
			const struct fo_op o = p->block[b].op[i];
			fo_op_remove(p, b, i--);
			struct fo_op *to = fo_op_clone(p, derive, p->block[derive].n, &o);
			to->origin = to->id;
		}
		for (int s = 0, slots = p->nslot; derive >= 0 && s < slots; s++)
			if (p->slot[s].block == b)
				fo_slot_add(p, derive, p->slot[s].layer, p->slot[s].mb);
	}
}

static void share_training(struct zero *z)
{
	struct fo_program *p = z->p;
	z->shared = fo_xmalloc((size_t)p->nbuf * sizeof *z->shared);
	z->own = fo_xmalloc((size_t)p->nbuf * sizeof *z->own);
	for (int i = 0; i < p->nbuf; i++)
		z->own[i] = -1;
	share_buffers(z);
	scatter_gradients(z);
	share_optimizer(z);
	derive_behind(p);
	free(z->shared);
	free(z->own);
}

static struct zero begin(struct fo_program *p)
{
	struct zero z = { .p = p, .n = p->nbuf };
	z.ranks = fo_mesh_group(&p->run.mesh, FO_GROUP_SHARD, NULL, NULL);
	z.replicas = fo_mesh_group(&p->run.mesh, FO_GROUP_REPLICATE, NULL, NULL);
	z.each = p->run.pass.zero >= FO_ZERO_GRADIENTS && p->run.pass.zero_sync == FO_SYNC_MICRO_BATCH &&
		 p->run.micro_batches > 1;
	return z;
}

void fo_pass_zero(struct fo_program *p)
{
	struct zero z = begin(p);
	if (z.ranks < 2 || p->run.mode != FO_MODE_TRAIN)
		return;
	share_training(&z);
	if (p->run.pass.zero == FO_ZERO_WEIGHTS)
		fo_pass_zero_weights(p);
}

/* Which buffers are shared follows from the optimizer's operations, which evaluation does not have. */
void fo_pass_zero_follow(struct fo_program *p, const struct fo_program *train)
{
	struct zero z = begin(p);
	for (int i = 0; i < z.n; i++)
		for (int k = 0; p->buf[i].home == FO_HOME_PARAM && k < train->nbuf; k++)
			if (train->buf[k].whole && !strcmp(train->buf[k].name, p->buf[i].name))
				cut(&z, i);
	fo_pass_zero_weights(p);
}
