/* Unrolling: operation instances in issue order, live ranges, and the waits that data demands.
 *
 * Each buffer instance has at most one live generation. Its accesses so far (rectangle, lane, reads or writes) are kept
 * in a list; a new access waits for every overlapping one that it conflicts with. Lanes are in order, so one number per
 * lane, the newest instance there, is enough. */
#include "program/program.h"
#include "base/count.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct access {
	int32_t op, r0, r1, c0, c1, next;
	uint8_t lane, writes;
};

struct walk {
	const struct fo_program *p;
	struct fo_unrolled *u;
	int *base;        /* per buffer: its first instance */
	int *life, *head; /* per buffer instance: live generation, newest access; -1 none */
	struct access *pool;
	size_t pool_cap;
	int pool_n, free_list;
	int slot, op; /* the operation that is visited, for messages */
};

static int instance_count(const struct fo_program *p, const struct fo_buffer *b)
{
	int layers = b->axes & FO_PER_LAYER ? (int)p->model.layers + 1 : 1;
	return layers * (b->axes & FO_PER_MICRO_BATCH ? (int)p->run.micro_batches : 1);
}

static fo_status bad(const struct walk *w, const struct fo_operand *a, const char *what)
{
	const struct fo_program *p = w->p;
	const struct fo_slot *s = &p->slot[w->slot];
	const struct fo_block *b = &p->block[s->block];
	char buffer[sizeof p->buf->name + 1] = "";
	if (a)
		snprintf(buffer, sizeof buffer, "%s ", p->buf[a->buf].name);
	return fo_fail(FO_EBUG, "block '%s' op %d %s (layer %d, micro-batch %d): %s%s", b->name, w->op,
		       fo_op_info(b->op[w->op].kind)->name, s->layer, s->mb, buffer, what);
}

/* The buffer instance an operand names, -1 when its layer or micro-batch does not exist. */
static int find_instance(const struct walk *w, const struct fo_operand *a, int *layer, int *mb)
{
	const struct fo_slot *s = &w->p->slot[w->slot];
	const struct fo_buffer *b = &w->p->buf[a->buf];
	int mbs = b->axes & FO_PER_MICRO_BATCH ? (int)w->p->run.micro_batches : 1;
	*layer = b->axes & FO_PER_LAYER ? s->layer + a->dlayer : 0;
	*mb = b->axes & FO_PER_MICRO_BATCH ? s->mb : 0;
	if (*layer < 0 || *layer > w->p->model.layers || *mb < 0 || *mb >= w->p->run.micro_batches)
		return -1;
	return w->base[a->buf] + *layer * mbs + *mb;
}

static void drop_accesses(struct walk *w, int inst)
{
	while (w->head[inst] >= 0) {
		int x = w->head[inst];
		w->head[inst] = w->pool[x].next;
		w->pool[x].next = w->free_list;
		w->free_list = x;
	}
}

static void begin_life(struct walk *w, int inst, int id, const struct fo_operand *a, int layer, int mb)
{
	struct fo_unrolled *u = w->u;
	const struct fo_buffer *b = &w->p->buf[a->buf];
	if (w->life[inst] >= 0 && fo_instance_op(w->p, u, id)->phase == FO_RECOMPUTE)
		u->life[w->life[inst]].again = true;
	fo_array_room(&u->life, &u->life_cap, (size_t)u->nlife, sizeof *u->life);
	struct fo_life *l = &u->life[w->life[inst] = u->nlife++];
	*l = (struct fo_life){ .buf = a->buf,
			       .layer = layer,
			       .mb = mb,
			       .first = id,
			       .last = id,
			       .bytes = fo_buffer_bytes(b),
			       .offset = -1,
			       .persists = fo_home_persists(b->home) };
	for (int i = 0; i < FO_LANE_COUNT; i++)
		l->last_on_lane[i] = -1;
	drop_accesses(w, inst);
}

static int64_t overlap(const struct access *x, const struct fo_operand *a)
{
	int64_t rows = fo_min(x->r1, a->r0 + a->nr) - fo_max(x->r0, a->r0);
	int64_t cols = fo_min(x->c1, a->c0 + a->nc) - fo_max(x->c0, a->c0);
	return rows > 0 && cols > 0 ? rows * cols : 0;
}

/* Whether access x and those after it in the list write all of the rectangle: the parts that x does not write must be
 * covered by the others. */
static bool covered(const struct walk *w, int x, const struct fo_operand *a)
{
	if (a->nr <= 0 || a->nc <= 0)
		return true;
	for (; x >= 0; x = w->pool[x].next) {
		const struct access *e = &w->pool[x];
		if (!e->writes || !overlap(e, a))
			continue;
		int32_t a1 = a->r0 + a->nr, c1 = a->c0 + a->nc, r0 = (int32_t)fo_max(e->r0, a->r0),
			r1 = (int32_t)fo_min(e->r1, a1);
		const struct fo_operand above = { .r0 = a->r0, .nr = r0 - a->r0, .c0 = a->c0, .nc = a->nc },
					below = { .r0 = r1, .nr = a1 - r1, .c0 = a->c0, .nc = a->nc },
					left = { .r0 = r0, .nr = r1 - r0, .c0 = a->c0, .nc = e->c0 - a->c0 },
					right = { .r0 = r0, .nr = r1 - r0, .c0 = e->c1, .nc = c1 - e->c1 };
		return covered(w, e->next, &above) && covered(w, e->next, &below) && covered(w, e->next, &left) &&
		       covered(w, e->next, &right);
	}
	return false;
}

static void push_access(struct walk *w, int inst, int id, const struct fo_operand *a, int lane, bool writes)
{
	int x = w->free_list;
	if (x >= 0) {
		w->free_list = w->pool[x].next;
	} else {
		x = w->pool_n++;
		fo_array_room(&w->pool, &w->pool_cap, (size_t)x, sizeof *w->pool);
	}
	w->pool[x] = (struct access){ .op = id,
				      .r0 = a->r0,
				      .r1 = a->r0 + a->nr,
				      .c0 = a->c0,
				      .c1 = a->c0 + a->nc,
				      .next = w->head[inst],
				      .lane = (uint8_t)lane,
				      .writes = writes };
	w->head[inst] = x;
}

static fo_status visit_operand(struct walk *w, int id, const struct fo_op *o, int i)
{
	struct fo_unrolled *u = w->u;
	const struct fo_operand *a = &o->arg[i];
	const struct fo_buffer *b = &w->p->buf[a->buf];
	bool persists = fo_home_persists(b->home), writes = fo_access_writes(a->access),
	     reads = fo_access_reads(a->access);
	int layer, mb, inst = find_instance(w, a, &layer, &mb);
	if (inst < 0)
		return bad(w, a, "has no such layer or micro-batch");
	if ((a->access == FO_DEF && !persists) || w->life[inst] < 0) {
		if (!persists && a->access != FO_DEF && a->access != FO_ACC)
			return bad(w, a,
				   a->access == FO_PART ? "is partly written before it is defined"
							: "is read before it is defined");
		begin_life(w, inst, id, a, layer, mb);
	}
	struct fo_life *l = &u->life[w->life[inst]];
	bool written = false, listed = false,
	     whole = (!reads && a->access != FO_ACC) || persists || covered(w, w->head[inst], a);
	for (int x = w->head[inst]; x >= 0; x = w->pool[x].next) {
		struct access *e = &w->pool[x];
		if (!overlap(e, a))
			continue;
		if ((writes || e->writes) && e->op != id && u->wait[id][e->lane] < e->op)
			u->wait[id][e->lane] = e->op;
		written |= e->writes;
		if (e->lane == o->lane && e->writes == writes && e->r0 == a->r0 && e->r1 == a->r0 + a->nr &&
		    e->c0 == a->c0 && e->c1 == a->c0 + a->nc) {
			e->op = id; /* the same rectangle again on the same lane: the newer stands for both */
			listed = true;
		}
	}
	if (a->access == FO_DEF || a->access == FO_PART || (a->access == FO_ACC && !written && !persists))
		u->first[id] |= 1u << i;
	if (!whole && (reads || written))
		return bad(w, a,
			   reads ? "is read where it was not written" : "is added to where only a part was written");
	if (!listed)
		push_access(w, inst, id, a, o->lane, writes);
	l->last = id;
	l->last_on_lane[o->lane] = id;
	l->reads += reads;
	u->life_of[u->arg_begin[id] + i] = w->life[inst];
	if (a->access == FO_TAKE) {
		l->taken = true;
		if (a->nr == b->rows && a->nc == b->cols) {
			w->life[inst] = -1;
			drop_accesses(w, inst);
		}
	}
	return FO_OK;
}

static void allocate(struct walk *w)
{
	const struct fo_program *p = w->p;
	struct fo_unrolled *u = w->u;
	int instances = 0, operands = 0;
	w->base = fo_xmalloc((size_t)(p->nbuf + 1) * sizeof *w->base);
	for (int i = 0; i < p->nbuf; i++) {
		w->base[i] = instances;
		instances += instance_count(p, &p->buf[i]);
	}
	for (int s = 0; s < p->nslot; s++) {
		const struct fo_block *b = &p->block[p->slot[s].block];
		u->n += b->n;
		for (int i = 0; i < b->n; i++)
			operands += b->op[i].n;
	}
	size_t n = (size_t)u->n + 1;
	u->slot = fo_xmalloc(n * sizeof *u->slot);
	u->op = fo_xmalloc(n * sizeof *u->op);
	u->wait = fo_xmalloc(n * sizeof *u->wait);
	u->arg_begin = fo_xmalloc(n * sizeof *u->arg_begin);
	u->life_of = fo_xmalloc((size_t)(operands + 1) * sizeof *u->life_of);
	u->first = fo_xmalloc(n * sizeof *u->first);
	u->slot_begin = fo_xmalloc((size_t)(p->nslot + 1) * sizeof *u->slot_begin);
	w->life = fo_xmalloc((size_t)(instances + 1) * sizeof *w->life);
	w->head = fo_xmalloc((size_t)(instances + 1) * sizeof *w->head);
	memset(w->life, -1, (size_t)instances * sizeof *w->life);
	memset(w->head, -1, (size_t)instances * sizeof *w->head);
	memset(u->wait, -1, n * sizeof *u->wait);
	w->free_list = -1;
}

static fo_status visit_all(struct walk *w)
{
	const struct fo_program *p = w->p;
	struct fo_unrolled *u = w->u;
	int id = 0, args = 0;
	for (int s = 0; s < p->nslot; s++) {
		const struct fo_block *b = &p->block[p->slot[s].block];
		w->slot = s;
		if (p->slot[s].layer < 0 || p->slot[s].layer > p->model.layers || p->slot[s].mb < 0 ||
		    p->slot[s].mb >= p->run.micro_batches)
			return fo_fail(FO_EBUG, "block '%s': no layer %d or no micro-batch %d", b->name,
				       p->slot[s].layer, p->slot[s].mb);
		u->slot_begin[s] = id;
		for (int i = 0; i < b->n; i++, id++) {
			w->op = i;
			u->slot[id] = s;
			u->op[id] = (uint16_t)i;
			u->arg_begin[id] = args;
			args += b->op[i].n;
			const char *why = fo_op_check(p, &b->op[i]);
			if (why)
				return bad(w, NULL, why);
			for (int k = 0; k < b->op[i].n; k++)
				FO_TRY(visit_operand(w, id, &b->op[i], k));
		}
	}
	u->slot_begin[p->nslot] = id;
	u->arg_begin[id] = args;
	for (int i = 0; i < u->nlife; i++) {
		const struct fo_life *l = &u->life[i];
		if (p->buf[l->buf].home == FO_HOME_GRAD && !l->taken)
			return fo_fail(FO_EBUG, "gradient '%s' of layer %d is accumulated and never taken",
				       p->buf[l->buf].name, l->layer);
		const struct fo_op *first = fo_instance_op(p, u, l->first);
		/* Backward may use only one of the two outputs of a recomputed cast. */
		bool other = first->phase == FO_RECOMPUTE &&
			     (fo_op_fp8_step(first->kind) >= 0 ||
			      (fo_op_family(first->kind) == FO_OPS_CAST && first->n > FO_FP8_CAST_Y + 1));
		/* Ports hand each stage of a pipeline all of a batch. */
		other |= p->staged && fo_op_info(first->kind)->cls == FO_CLASS_HOST;
		if (!l->persists && !l->reads && !l->again && !other)
			u->dead_stores++;
	}
	return FO_OK;
}

fo_status fo_unroll(const struct fo_program *p, struct fo_unrolled *u)
{
	struct walk w = { .p = p, .u = u };
	*u = (struct fo_unrolled){ 0 };
	allocate(&w);
	fo_status st = visit_all(&w);
	free(w.base);
	free(w.life);
	free(w.head);
	free(w.pool);
	if (st != FO_OK)
		fo_unrolled_fini(u);
	return st;
}

void fo_unrolled_fini(struct fo_unrolled *u)
{
	free(u->slot);
	free(u->op);
	free(u->wait);
	free(u->arg_begin);
	free(u->life_of);
	free(u->first);
	free(u->life);
	free(u->slot_begin);
	*u = (struct fo_unrolled){ 0 };
}

void fo_prune_waits(const struct fo_program *p, struct fo_unrolled *u)
{
	/* known[l]: the newest instance of each lane that is certain to have finished once lane l has reached the
	 * present. at[i]: the same once instance i has finished. */
	int32_t(*at)[FO_LANE_COUNT] = fo_xmalloc((size_t)(u->n + 1) * sizeof *at), known[FO_LANE_COUNT][FO_LANE_COUNT];
	memset(known, -1, sizeof known);
	for (int i = 0; i < u->n; i++) {
		int lane = fo_instance_op(p, u, i)->lane;
		int32_t *k = known[lane];
		u->wait[i][lane] = -1; /* lanes are in order */
		/* The newest producer first: what it knows may make the others superfluous. */
		for (;;) {
			int best = -1;
			for (int l = 0; l < FO_LANE_COUNT; l++)
				if (u->wait[i][l] > k[l] && (best < 0 || u->wait[i][l] > u->wait[i][best]))
					best = l;
			if (best < 0)
				break;
			const int32_t *d = at[u->wait[i][best]];
			for (int l = 0; l < FO_LANE_COUNT; l++)
				if (d[l] > k[l])
					k[l] = d[l];
			if (k[best] < u->wait[i][best])
				k[best] = u->wait[i][best];
			u->wait[i][best] = -2 - u->wait[i][best]; /* marked as needed */
		}
		for (int l = 0; l < FO_LANE_COUNT; l++)
			u->wait[i][l] = u->wait[i][l] <= -2 ? -2 - u->wait[i][l] : -1;
		k[lane] = i;
		memcpy(at[i], k, sizeof *at);
	}
	free(at);
}
