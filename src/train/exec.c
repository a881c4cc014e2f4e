#include "train/exec_int.h"
#include "base/clock.h"
#include "base/mem.h"
#include "train/store_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- steps ---- */

void fo_exec_weights_changed(struct fo_exec *e)
{
	e->derived = false;
	fo_store_changed(e->store);
}

fo_status fo_exec_fetch(struct fo_exec *e) { return fo_store_fetch(e->store); }

fo_status fo_exec_begin(struct fo_exec *e)
{
	FO_TRY(fo_exec_ready(e));
	for (int i = 0; i < e->u.n && !e->derived; i++)
		if (fo_instance_op(e->p, &e->u, i)->phase == FO_DERIVE)
			FO_TRY(e->engine->run(e, i));
	e->derived = true;
	return FO_OK;
}

fo_status fo_exec_step(struct fo_exec *e, int32_t step)
{
	FO_TRY(fo_exec_begin(e));
	return e->engine->step(e, step);
}

fo_status fo_exec_step_in_order(struct fo_exec *e, const int *order)
{
	FO_TRY(fo_exec_begin(e));
	for (int i = 0; i < e->u.n; i++)
		FO_TRY(e->engine->run(e, order[i]));
	return FO_OK;
}

struct around {
	struct fo_exec *e;
	int id;
	fo_status st;
};
static void run_around(void *arg)
{
	struct around *a = arg;
	a->st = a->e->engine->run(a->e, a->id);
}

fo_status fo_exec_step_around(struct fo_exec *e, fo_exec_around_fn *around, void *ctx)
{
	FO_TRY(fo_exec_begin(e));
	for (int i = 0; i < e->u.n; i++) {
		struct around a = { e, i, FO_OK };
		if (!fo_op_has_kernel(fo_instance_op(e->p, &e->u, i)->kind))
			run_around(&a);
		else
			around(ctx, i, run_around, &a);
		if (a.st != FO_OK)
			return a.st;
	}
	return FO_OK;
}

/* ---- setting up ---- */

static void make_call(struct fo_exec *e, const struct fo_op *o, struct fo_call *c)
{
	*c = (struct fo_call){ .kind = o->kind, .n = o->n, .attr = o->attr };
	for (int k = 0; k < o->n; k++) {
		const struct fo_operand *a = &o->arg[k];
		const struct fo_buffer *b = &e->p->buf[a->buf];
		c->arg[k] = (struct fo_tensor){ .rows = a->nr, .cols = a->nc, .ld = b->cols, .dtype = b->dtype };
		e->changes |= fo_access_writes(a->access) && fo_home_persists(b->home);
	}
}

static void make_calls(struct fo_exec *e)
{
	const struct fo_program *p = e->p;
	e->block_op = fo_xmalloc((size_t)(p->nblock + 1) * sizeof *e->block_op);
	for (int b = 0; b < p->nblock; b++) {
		e->block_op[b] = e->ops;
		e->ops += p->block[b].n;
	}
	e->op = fo_xmalloc((size_t)(e->ops + 1) * sizeof *e->op);
	e->call = fo_xmalloc((size_t)(e->ops + 1) * sizeof *e->call);
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			int at = e->block_op[b] + i;
			e->op[at] = &p->block[b].op[i];
			make_call(e, e->op[at], &e->call[at]);
		}
}

static fo_status find_persistent(struct fo_exec *e)
{
	e->data = fo_xmalloc((size_t)(e->u.nlife + 1) * sizeof *e->data);
	for (int i = 0; i < e->u.nlife; i++) {
		const struct fo_life *l = &e->u.life[i];
		const struct fo_buffer *b = &e->p->buf[l->buf], *have;
		if (!l->persists)
			continue;
		e->data[i] = fo_store_find(e->store, b->name, l->layer, &have);
		/* A shorter table (fewer positions) is a prefix of a longer one. */
		if (!e->data[i] || have->dtype != b->dtype || have->cols != b->cols ||
		    (have->rows != b->rows && (b->home != FO_HOME_CONST || have->rows < b->rows)))
			return fo_fail(FO_EBUG, "the store has no buffer '%s' (%s, %lld x %lld) of layer %d", b->name,
				       fo_dtype_name[b->dtype], (long long)b->rows, (long long)b->cols, l->layer);
	}
	return FO_OK;
}

static fo_status start(struct fo_exec *e)
{
	if (!e->started)
		FO_TRY(e->engine->start(e));
	e->started = true;
	return FO_OK;
}

static fo_status place(struct fo_exec *e)
{
	void *arena = NULL;
	if (e->share)
		FO_TRY(place(e->share));
	if (e->placed)
		return start(e);
	if (e->share) {
		arena = e->share->arena;
	} else if (!e->arena) { /* else an attempt that failed later took it */
		fo_status st = e->engine->arena_new(e, e->arena_bytes, &arena);
		if (st != FO_OK)
			return fo_wrap(st, "cannot hold the step's activations and gradients");
	}
	e->arena = e->arena ? e->arena : arena;
	if (e->u.host_arena_bytes && !e->host_arena) {
		void *host;
		fo_status st = e->engine->host_new(e, (size_t)e->u.host_arena_bytes, &host);
		if (st != FO_OK)
			return fo_wrap(st, "cannot hold the activations that wait in host memory");
		e->host_arena = host;
	}
	if (e->o.cuda)
		FO_TRY(fo_store_mirror(e->store, e->o.cuda));
	for (int i = 0; i < e->u.nlife; i++) {
		const struct fo_life *l = &e->u.life[i];
		if (!l->persists)
			e->data[i] = (e->p->buf[l->buf].home == FO_HOME_HOST ? e->host_arena : e->arena) + l->offset;
		else if (e->o.cuda)
			e->data[i] = fo_store_on_device(e->store, e->data[i]);
	}
	e->placed = true;
	return start(e);
}

fo_status fo_exec_ready(struct fo_exec *e)
{
	FO_TRY(place(e));
	return e->engine->begin ? e->engine->begin(e) : FO_OK;
}

static fo_status set_up(struct fo_exec *e, struct fo_exec *share)
{
	FO_TRY(fo_unroll(e->p, &e->u));
	fo_plan(e->p, &e->u);
	fo_prune_waits(e->p, &e->u);
	make_calls(e);
	if (share && share->arena_bytes >= (size_t)e->u.arena_bytes && share->o.cuda == e->o.cuda)
		e->share = share;
	else
		e->arena_bytes = (size_t)e->u.arena_bytes;
	FO_TRY(e->engine->open(e));
	FO_TRY(find_persistent(e));
	FO_TRY(fo_timeline_init(&e->timeline, e->p, &e->u, e->o.timeline_steps ? e->o.timeline_steps : 64));
	e->timeline.origin_ns = fo_now_ns();
	return e->engine->late ? FO_OK : place(e);
}

fo_status fo_exec_new(struct fo_exec **out, const struct fo_program *p, struct fo_store *s,
		      const struct fo_exec_options *o, fo_port_fn *port, void *ctx, struct fo_exec *share)
{
	struct fo_exec *e = fo_xmalloc(sizeof *e);
	e->engine = o->cuda ? &fo_exec_engine_cuda : &fo_exec_engine_cpu;
	e->p = p;
	e->store = s;
	e->o = *o;
#ifdef FO_DEBUG
	e->o.poison = true; /* a value that is used before it is written shows as NaN */
#endif
	e->port = port;
	e->ctx = ctx;
	fo_status st = set_up(e, share);
	if (st != FO_OK) {
		fo_exec_free(e);
		return st;
	}
	*out = e;
	return FO_OK;
}

void fo_exec_free(struct fo_exec *e)
{
	if (!e)
		return;
	e->engine->stop(e);
	free(e->block_op);
	free(e->op);
	free(e->call);
	free(e->data);
	if (!e->share && e->arena)
		e->engine->arena_free(e, e->arena, e->arena_bytes);
	if (e->host_arena)
		e->engine->host_free(e, e->host_arena, (size_t)e->u.host_arena_bytes);
	e->engine->close(e);
	fo_timeline_fini(&e->timeline);
	fo_unrolled_fini(&e->u);
	free(e);
}

const struct fo_unrolled *fo_exec_unrolled(const struct fo_exec *e) { return &e->u; }
struct fo_timeline *fo_exec_timeline(struct fo_exec *e) { return &e->timeline; }

static int64_t tables_bytes(const struct fo_exec *e)
{
	const struct fo_program *p = e->p;
	const struct fo_unrolled *u = &e->u;
	size_t rooms = 0, per_op = sizeof *e->op + sizeof *e->call,
	       per_instance = sizeof *u->slot + sizeof *u->op + sizeof *u->wait + sizeof *u->arg_begin +
			      sizeof *u->first,
	       per_life = sizeof *u->life + sizeof *e->data;
	for (int b = 0; b < p->nblock; b++)
		rooms += (size_t)p->block[b].cap;
	return (int64_t)((size_t)e->ops * per_op + rooms * sizeof(struct fo_op) + (size_t)u->n * per_instance +
			 (size_t)u->arg_begin[u->n] * sizeof *u->life_of + (size_t)u->nlife * per_life +
			 p->buf_cap * sizeof *p->buf + p->block_cap * sizeof *p->block + p->slot_cap * sizeof *p->slot +
			 (size_t)p->nslot * sizeof *u->slot_begin + p->param_cap * sizeof *p->param);
}

struct fo_memory fo_exec_memory(const struct fo_exec *e)
{
	struct fo_memory m = { .max_live = e->u.max_live_bytes, .tables = tables_bytes(e) };
	e->engine->memory(e, &m);
	return m;
}

int fo_exec_codes(const struct fo_exec *e, struct fo_exec_code out[FO_EXEC_CODES_MAX])
{
	int n = 0;
	for (int i = 0; i < e->u.n; i++) {
		const char *by = e->engine->by(e, fo_exec_op(e, i));
		int k = 0;
		while (by && k < n && strcmp(out[k].by, by))
			k++;
		if (!by || k == FO_EXEC_CODES_MAX)
			continue;
		if (k == n)
			out[n++] = (struct fo_exec_code){ .by = by };
		out[k].instances++;
	}
	return n;
}
