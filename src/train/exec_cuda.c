/* The engine of a device: a stream per lane, kernels of the device's table, ports through page-locked memory.
 *
 * Memory is planned when the executor is made and taken before its first step, so that a plan that does not fit can be
 * looked at and made again. exec_graph.c puts a whole step together from operations. */
#include "base/mem.h"
#include "base/str.h"
#include "train/exec_cuda.h"
#include "train/store_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	STAGE_ALIGN = 64, /* a cache line */
	SCRATCH_BYTES = 64
};

/* ---- one instance ---- */

static fo_status give_up(struct fo_exec *e, fo_status st)
{
	struct fo_err why;
	fo_err_save(&why, st);
	fo_exec_give_up(e);
	return fo_err_raise(&why);
}

static fo_status settle(struct fo_exec *e, int id)
{
	fo_status st = fo_exec_pairs_settle(e, id);
	return st == FO_OK ? FO_OK : give_up(e, st);
}

/* A port that reads is served after the copy to the host. A port that fills is served before the copy to the device,
 * and its contents may ask for other plans. */
static fo_status run(struct fo_exec *e, int id)
{
	struct fo_exec_cuda *x = e->cuda;
	const struct fo_op *o = fo_instance_op(e->p, &e->u, id);
	fo_cuda_stream stream = x->lane[o->lane].stream;
	bool fills = fo_exec_is_host(o) && fo_access_writes(o->arg[FO_HOST_IN_A].access);
	fo_status st;
	if (fo_op_family(o->kind) == FO_OPS_P2P) {
		st = fo_exec_pairs_list(e, id);
		return st == FO_OK ? FO_OK : give_up(e, st);
	}
	FO_TRY(settle(e, id));
	if (fills) {
		FO_TRY(fo_exec_inputs_drop(e));
		FO_TRY(fo_exec_serve(e, id));
		fo_exec_look(e);
		FO_TRY(fo_exec_prepare(e));
	}
	FO_TRY(fo_cuda_event_record(x->c, x->base, stream, false));
	st = x->staged && fo_exec_is_comm(o) ? fo_exec_pairs_run(e, id) : fo_exec_enqueue(e, id);
	if (st == FO_OK)
		st = fo_cuda_event_record(x->c, x->fork, stream, false);
	if (st == FO_OK) {
		st = fo_exec_wait(e, stream);
		st = st == FO_OK ? FO_OK : fo_exec_failed(e, id, st);
	}
	if (st != FO_OK)
		return give_up(e, st);
	FO_TRY(fo_cuda_event_ms(x->c, x->base, x->fork, &x->around_ms));
	if (e->changes)
		fo_store_device_changed(e->store);
	return fo_exec_is_host(o) && !fills ? fo_exec_serve(e, id) : FO_OK;
}

double fo_exec_around_seconds(const struct fo_exec *e) { return e->cuda ? (double)e->cuda->around_ms * 1e-3 : NAN; }

static fo_status find(struct fo_exec *e, const struct fo_tensor *t, int64_t *at, double *value)
{
	struct fo_exec_cuda *x = e->cuda;
	unsigned char *scratch = x->staging + x->scratch_at;
	struct fo_cuda_queue q = { .cuda = x->c, .stream = x->lane[FO_LANE_COMPUTE].stream };
	size_t bytes = fo_dtype_bytes(t->dtype);
	const unsigned char *host = e->host_arena;
	if (host && (const unsigned char *)t->data >= host &&
	    (const unsigned char *)t->data < host + e->u.host_arena_bytes)
		return fo_exec_engine_cpu.find(e, t, at, value); /* nothing runs meanwhile */
	FO_TRY(fo_cuda_find_nonfinite(&q, t, x->found));
	FO_TRY(fo_cuda_copy_out(x->c, scratch, x->found, sizeof *x->found, q.stream));
	FO_TRY(fo_cuda_stream_wait(x->c, q.stream));
	memcpy(at, scratch, sizeof *at);
	if (*at < 0)
		return FO_OK;
	int64_t element = *at / t->cols * t->ld + *at % t->cols;
	FO_TRY(fo_cuda_copy_out(x->c, scratch, (unsigned char *)t->data + element * (int64_t)bytes, bytes, q.stream));
	FO_TRY(fo_cuda_stream_wait(x->c, q.stream));
	*value = fo_element(scratch, t->dtype, 0);
	return FO_OK;
}

/* ---- setting up ---- */

/* Finds the kernel of every operation; the error names all that cannot run, each reason once. */
static fo_status find_kernels(struct fo_exec *e)
{
	struct fo_exec_cuda *x = e->cuda;
	struct fo_str bad = { 0 };
	x->op = fo_xmalloc((size_t)(e->ops + 1) * sizeof *x->op);
	for (int i = 0; i < e->ops; i++) {
		const struct fo_op *o = e->op[i];
		struct fo_exec_device_op *d = &x->op[i];
		char text[256];
		d->variant = -1;
		x->lane[o->lane].used = true;
		if (fo_exec_is_host(o) || fo_exec_is_comm(o))
			continue;
		d->kernel = fo_cuda_kernel_of((enum fo_op_kind)o->kind);
		const char *why = fo_cuda_cannot(x->c, &e->call[i]);
		if (!why && d->kernel->variant)
			d->variant = x->variants++;
		if (!why)
			continue;
		snprintf(text, sizeof text, "%s (%s)", fo_op_info(o->kind)->name, why);
		if (!bad.len || !strstr(bad.data, text))
			fo_str_printf(&bad, "%s%s", bad.len ? ", " : "", text);
	}
	fo_status st = FO_OK;
	if (bad.len)
		st = fo_hint(
			fo_fail(FO_EUNSUPPORTED, "the device cannot run these operations of the program: %s", bad.data),
			"change train.precision or the passes (pass.*) that make them, or train on the processor: "
			"train.device=cpu");
	fo_str_fini(&bad);
	return st;
}

/* Lanes' instances; those of communication need links. */
static fo_status fill_lanes(struct fo_exec *e)
{
	struct fo_exec_cuda *x = e->cuda;
	for (int l = 0; l < FO_LANE_COUNT; l++)
		x->lane[l].instance = fo_xmalloc((size_t)(e->u.n + 1) * sizeof *x->lane[l].instance);
	for (int id = 0; id < e->u.n; id++) {
		const struct fo_op *o = fo_instance_op(e->p, &e->u, id);
		struct fo_exec_stream *lane = &x->lane[o->lane];
		lane->instance[lane->instances++] = id;
		if (!fo_exec_is_comm(o) || lane->transfer.part)
			continue;
		if (!e->o.links || o->lane == FO_LANE_COMPUTE)
			return fo_fail(FO_EBUG, "%s on lane %s, and no other rank to reach from there",
				       fo_op_info(o->kind)->name, fo_lane_name[o->lane]);
		if (e->o.links->streams && o->attr.narrow)
			return fo_fail(FO_EUNSUPPORTED,
				       "%s cannot travel as bf16 over NCCL: take fp32, or "
				       "mesh.over=host",
				       fo_op_info(o->kind)->name);
		lane->transfer.part = fo_xmalloc((size_t)e->p->ranks * sizeof *lane->transfer.part);
	}
	x->staged = e->o.links && !e->o.links->streams;
	return FO_OK;
}

static fo_status find_firsts(struct fo_exec *e)
{
	for (int id = 0; id < e->u.n; id++) {
		struct fo_exec_device_op *d = &e->cuda->op[fo_exec_op(e, id)];
		if (!d->kernel)
			continue;
		const int room = sizeof d->first / sizeof *d->first;
		int k = 0;
		while (k < d->firsts && d->first[k] != e->u.first[id])
			k++;
		if (k == room)
			return fo_exec_failed(
				e, id,
				fo_fail(FO_EUNSUPPORTED, "its instances store and add in more than %d ways", room));
		if (k == d->firsts)
			d->first[d->firsts++] = e->u.first[id];
	}
	return FO_OK;
}

/* Places the operands of host operations in the staging, whole rows each, those of batches first. */
static fo_status plan_staging(struct fo_exec *e)
{
	struct fo_exec_cuda *x = e->cuda;
	x->stage = fo_xmalloc((size_t)(e->u.arg_begin[e->u.n] + 1) * sizeof *x->stage);
	memset(x->stage, -1, (size_t)e->u.arg_begin[e->u.n] * sizeof *x->stage);
	for (int others = 0; others < 2; others++) {
		for (int id = 0; id < e->u.n; id++) {
			const struct fo_op *o = fo_instance_op(e->p, &e->u, id);
			for (int i = 0; fo_exec_is_host(o) && fo_exec_is_batch(o) == !others && i < o->n; i++) {
				const struct fo_operand *a = &o->arg[i];
				const struct fo_buffer *b = &e->p->buf[a->buf];
				if (a->nc != b->cols)
					return fo_fail(FO_EUNSUPPORTED,
						       "port '%s' has columns of '%s' alone: on a device it must have "
						       "whole rows",
						       fo_port_name[o->attr.port], b->name);
				x->stage[e->u.arg_begin[id] + i] = (int64_t)x->staging_bytes;
				x->staging_bytes += fo_round_up_bytes(
					(size_t)(a->nr * b->cols) * fo_dtype_bytes(b->dtype), STAGE_ALIGN);
			}
		}
		x->inputs.bytes = others ? x->inputs.bytes : x->staging_bytes;
	}
	if (x->staged)
		fo_exec_staged_plan(e);
	x->scratch_at = x->staging_bytes;
	x->staging_bytes += SCRATCH_BYTES;
	return FO_OK;
}

static void add_site(struct fo_exec *e, int id, const void *const *filled)
{
	struct fo_exec_cuda *x = e->cuda;
	const struct fo_op *o = fo_instance_op(e->p, &e->u, id);
	struct fo_exec_site s = { .op = fo_exec_op(e, id) };
	for (int i = 0; i < o->n; i++) {
		const struct fo_operand *a = &o->arg[i];
		const struct fo_buffer *b = &e->p->buf[a->buf];
		const unsigned char *host = filled[e->u.life_of[e->u.arg_begin[id] + i]];
		s.host[i] = host ? host + (a->r0 * b->cols + a->c0) * (int64_t)fo_dtype_bytes(b->dtype) : NULL;
		x->inputs.looks_beyond |= host && (size_t)(host - x->staging) >= x->inputs.bytes;
	}
	for (int k = x->sites; k-- > 0;)
		if (x->site[k].op == s.op && !memcmp(x->site[k].host, s.host, sizeof s.host))
			return;
	fo_array_room(&x->site, &x->site_cap, (size_t)x->sites, sizeof s);
	x->site[x->sites++] = s;
}

/* Finds the operations whose plans may depend on contents: the host knows what a port filled and nobody else writes. */
static void find_sites(struct fo_exec *e)
{
	struct fo_exec_cuda *x = e->cuda;
	const void **filled = fo_xmalloc((size_t)(e->u.nlife + 1) * sizeof *filled);
	for (int pass = 0; pass < 2; pass++) /* first the fills of ports, then the changes of others */
		for (int id = 0; id < e->u.n; id++) {
			const struct fo_op *o = fo_instance_op(e->p, &e->u, id);
			for (int i = 0; i < o->n; i++) {
				int k = e->u.arg_begin[id] + i;
				if (!fo_access_writes(o->arg[i].access) || (pass == 1) == fo_exec_is_host(o))
					continue;
				bool whole = o->arg[i].nr == e->p->buf[o->arg[i].buf].rows;
				filled[e->u.life_of[k]] = pass == 0 && whole ? x->staging + x->stage[k] : NULL;
			}
		}
	for (int id = 0; id < e->u.n; id++)
		if (fo_exec_device_op(e, id)->variant >= 0)
			add_site(e, id, filled);
	free(filled);
}

static fo_status open_engine(struct fo_exec *e)
{
	struct fo_exec_cuda *x = e->cuda = fo_xmalloc(sizeof *x);
	void *staging;
	x->c = e->o.cuda;
	FO_TRY(fo_cuda_attach(x->c));
	FO_TRY(find_kernels(e));
	FO_TRY(fill_lanes(e));
	FO_TRY(find_firsts(e));
	FO_TRY(plan_staging(e));
	FO_TRY(fo_cuda_host_alloc(x->c, x->staging_bytes, &staging));
	x->staging = staging;
	memset(staging, 0, x->staging_bytes); /* plans are first made for what zeros say */
	x->variant = fo_xmalloc((size_t)(x->variants + 1) * sizeof *x->variant);
	find_sites(e);
	fo_exec_look(e);
	x->lane[FO_LANE_COMPUTE].used = true; /* the step begins and ends there */
	for (int l = 0; l < FO_LANE_COUNT; l++)
		if (x->lane[l].used)
			FO_TRY(fo_cuda_stream_new(x->c, &x->lane[l].stream));
	return fo_exec_prepare(e);
}

static fo_status arena_new(struct fo_exec *e, size_t bytes, void **out)
{
	return fo_cuda_alloc(e->cuda->c, fo_device_size(bytes), out);
}

static void arena_free(struct fo_exec *e, void *arena, size_t bytes)
{
	(void)bytes;
	fo_cuda_free(e->cuda->c, arena);
}

static fo_status host_new(struct fo_exec *e, size_t bytes, void **out)
{
	return fo_cuda_host_alloc(e->cuda->c, bytes, out);
}

static void host_free(struct fo_exec *e, void *arena, size_t bytes)
{
	(void)bytes;
	fo_cuda_host_free(e->cuda->c, arena);
}

static fo_status start(struct fo_exec *e)
{
	fo_status st = fo_exec_take_workspace(e->cuda);
	if (st == FO_OK)
		st = fo_exec_inputs_open(e);
	if (st == FO_OK)
		st = fo_exec_graph_open(e);
	if (st == FO_OK)
		return FO_OK;
	fo_exec_graph_close(e);
	fo_exec_inputs_close(e);
	return st;
}

static fo_status begin(struct fo_exec *e)
{
	FO_TRY(fo_cuda_attach(e->cuda->c));
	return fo_store_send(e->store);
}

static void stop(struct fo_exec *e)
{
	struct fo_exec_cuda *x = e->cuda;
	for (int l = 0; x && l < FO_LANE_COUNT; l++)
		if (x->lane[l].stream)
			(void)!fo_cuda_stream_wait(x->c, x->lane[l].stream);
	if (x)
		(void)!fo_exec_inputs_drop(e);
}

static void close_engine(struct fo_exec *e)
{
	struct fo_exec_cuda *x = e->cuda;
	if (!x)
		return;
	fo_exec_graph_close(e);
	fo_exec_inputs_close(e);
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		fo_cuda_stream_free(x->c, x->lane[l].stream);
		free(x->lane[l].instance);
		free(x->lane[l].transfer.part);
	}
	fo_cuda_free(x->c, x->workspace);
	fo_cuda_host_free(x->c, x->staging);
	free(x->op);
	free(x->stage);
	free(x->site);
	free(x->variant);
	free(x->prepared);
	free(x);
}

static void memory(const struct fo_exec *e, struct fo_memory *m)
{
	m->arena = (int64_t)fo_device_size((size_t)e->u.arena_bytes);
	m->persistent = fo_store_device_bytes(e->store);
	m->host_arena = e->u.host_arena_bytes;
	m->workspace = (int64_t)(e->cuda->workspace_bytes +
				 (e->o.batch && e->cuda->inputs.bytes ? fo_device_size(2 * e->cuda->inputs.bytes) : 0));
	m->staging = (int64_t)e->cuda->staging_bytes;
	m->host = fo_store_host_bytes(e->store) + fo_store_pinned_bytes();
}

static const char *by(const struct fo_exec *e, int op)
{
	return e->cuda->op[op].kernel ? fo_cuda_by(e->cuda->c, &e->call[op]) : NULL;
}

const struct fo_exec_engine fo_exec_engine_cuda = {
	.late = true,
	.open = open_engine,
	.arena_new = arena_new,
	.host_new = host_new,
	.start = start,
	.stop = stop,
	.close = close_engine,
	.arena_free = arena_free,
	.host_free = host_free,
	.begin = begin,
	.step = fo_exec_cuda_step,
	.settle = settle,
	.run = run,
	.find = find,
	.memory = memory,
	.by = by,
};
