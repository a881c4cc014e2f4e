/* Instances in streams: served by ports, run by kernels with their plans and workspaces. */
#include "base/clock.h"
#include "base/mem.h"
#include "train/exec_cuda.h"
#include "train/store_int.h"

#include <stdlib.h>
#include <string.h>

enum { WS_ALIGN = 256 }; /* promised by struct fo_cuda_queue */

/* ---- one instance ---- */

fo_status fo_exec_serve(struct fo_exec *e, int id)
{
	struct fo_call c = fo_exec_call(e, id);
	for (int i = 0; i < c.n; i++)
		c.arg[i].data = e->cuda->staging + e->cuda->stage[e->u.arg_begin[id] + i];
	return e->port(e->ctx, c.attr.port, e->p->slot[e->u.slot[id]].mb, c.arg, c.n);
}

fo_status fo_exec_poison_device(struct fo_exec *e, int id)
{
	const struct fo_op *o = fo_instance_op(e->p, &e->u, id);
	const int32_t *life_of = &e->u.life_of[e->u.arg_begin[id]];
	for (int i = 0; e->o.poison && i < o->n; i++)
		if (fo_exec_begins(e, id, i) && e->p->buf[o->arg[i].buf].home != FO_HOME_HOST)
			FO_TRY(fo_cuda_fill(e->cuda->c, e->data[life_of[i]], 0xff, (size_t)e->u.life[life_of[i]].bytes,
					    e->cuda->lane[o->lane].stream));
	return FO_OK;
}

static fo_status enqueue(struct fo_exec *e, int id)
{
	struct fo_exec_cuda *x = e->cuda;
	const struct fo_op *o = fo_instance_op(e->p, &e->u, id);
	const struct fo_exec_device_op *d = fo_exec_device_op(e, id);
	struct fo_exec_stream *lane = &x->lane[o->lane];
	struct fo_call c = fo_exec_call(e, id);
	FO_TRY(fo_exec_poison_device(e, id));
	if (fo_exec_is_comm(o))
		return fo_exec_transfer_put(e, id, &lane->transfer, lane->stream, x->workspace + lane->ws_at);
	FO_TRY(fo_exec_fails(e, id));
	for (int i = 0; !d->kernel && i < c.n; i++) {
		int64_t at = x->stage[e->u.arg_begin[id] + i];
		void *staged = x->staging + at;
		if (x->inputs.now && x->whole_step && fo_exec_is_batch(o))
			FO_TRY(fo_cuda_copy(x->c, c.arg[i].data, x->inputs.now + at, fo_tensor_bytes(&c.arg[i]),
					    lane->stream));
		else if (fo_access_writes(o->arg[i].access))
			FO_TRY(fo_cuda_copy_in(x->c, c.arg[i].data, staged, fo_tensor_bytes(&c.arg[i]), lane->stream));
		else
			FO_TRY(fo_cuda_copy_out(x->c, staged, c.arg[i].data, fo_tensor_bytes(&c.arg[i]), lane->stream));
	}
	if (!d->kernel || e->o.null_kernels)
		return FO_OK;
	struct fo_cuda_queue q = {
		.cuda = x->c, .stream = lane->stream, .ws = x->workspace + lane->ws_at, .ws_bytes = lane->ws_bytes
	};
	return d->kernel->run(&q, &c, d->variant >= 0 ? x->variant[d->variant] : 0);
}

fo_status fo_exec_enqueue(struct fo_exec *e, int id)
{
	fo_cuda_trace_push(id);
	fo_status st = enqueue(e, id);
	fo_cuda_trace_pop();
	return st == FO_OK ? FO_OK : fo_exec_failed(e, id, st);
}

/* ---- around instances: waits and events ---- */

fo_status fo_exec_instance_begins(struct fo_exec *e, int id, bool timed, bool capturing)
{
	struct fo_exec_cuda *x = e->cuda;
	fo_cuda_stream s = x->lane[fo_instance_op(e->p, &e->u, id)->lane].stream;
	for (int l = 0; l < FO_LANE_COUNT; l++)
		if (e->u.wait[id][l] >= 0)
			FO_TRY(fo_cuda_event_after(x->c, s, x->at[e->u.wait[id][l]].done));
	if (timed && x->at[id].begins)
		FO_TRY(fo_cuda_event_record(x->c, x->at[id].begins, s, capturing));
	return FO_OK;
}

fo_status fo_exec_instance_ends(struct fo_exec *e, int id, bool timed, bool capturing)
{
	struct fo_exec_cuda *x = e->cuda;
	fo_cuda_stream s = x->lane[fo_instance_op(e->p, &e->u, id)->lane].stream;
	if (timed)
		FO_TRY(fo_cuda_event_record(x->c, x->at[id].ends, s, capturing));
	return x->at[id].done ? fo_cuda_event_record(x->c, x->at[id].done, s, false) : FO_OK;
}

/* All streams begin after the compute lane's and end before it goes on: waiting for that one is waiting for the
 * step. */
fo_status fo_exec_lanes_begin(struct fo_exec *e, bool timed, bool capturing)
{
	struct fo_exec_cuda *x = e->cuda;
	fo_cuda_stream first = x->lane[FO_LANE_COMPUTE].stream;
	if (timed)
		FO_TRY(fo_cuda_event_record(x->c, x->base, first, capturing));
	FO_TRY(fo_cuda_event_record(x->c, x->fork, first, false));
	for (int l = 0; l < FO_LANE_COUNT; l++)
		if (x->lane[l].used && l != FO_LANE_COMPUTE)
			FO_TRY(fo_cuda_event_after(x->c, x->lane[l].stream, x->fork));
	return FO_OK;
}

fo_status fo_exec_lanes_end(struct fo_exec *e)
{
	struct fo_exec_cuda *x = e->cuda;
	fo_cuda_stream first = x->lane[FO_LANE_COMPUTE].stream;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		if (!x->lane[l].used || l == FO_LANE_COMPUTE)
			continue;
		FO_TRY(fo_cuda_event_record(x->c, x->lane[l].join, x->lane[l].stream, false));
		FO_TRY(fo_cuda_event_after(x->c, first, x->lane[l].join));
	}
	return FO_OK;
}

/* ---- other ranks' devices ---- */

void fo_exec_give_up(struct fo_exec *e)
{
	if (!e->o.links)
		return;
	fo_comm_abort(e->o.links->world);
	fo_links_abort(e->o.links);
}

fo_status fo_exec_wait_for(struct fo_exec *e, fo_cuda_event event)
{
	const int64_t since = fo_now_ns();
	bool done = false;
	for (;;) {
		FO_TRY(fo_cuda_event_done(e->cuda->c, event, &done));
		FO_TRY(fo_links_check(e->o.links)); /* what ended because it was given up is not done */
		if (done)
			return FO_OK;
		fo_comm_rest(since, 0);
	}
}

fo_status fo_exec_wait(struct fo_exec *e, fo_cuda_stream s)
{
	struct fo_exec_cuda *x = e->cuda;
	if (!e->o.links || x->staged)
		return fo_cuda_stream_wait(x->c, s);
	FO_TRY(fo_cuda_event_record(x->c, x->over, s, false));
	return fo_exec_wait_for(e, x->over);
}

/* ---- plans and workspaces ---- */

void fo_exec_look(struct fo_exec *e)
{
	struct fo_exec_cuda *x = e->cuda;
	memset(x->variant, -1, (size_t)x->variants * sizeof *x->variant);
	for (int i = 0; i < x->sites; i++) {
		const struct fo_exec_site *s = &x->site[i];
		const struct fo_exec_device_op *d = &x->op[s->op];
		const struct fo_call *c = &e->call[s->op];
		int64_t v = d->kernel->variant(c, s->host), *into = &x->variant[d->variant];
		*into = *into < 0 || !d->kernel->merge ? v : d->kernel->merge(c, *into, v);
	}
}

static fo_status prepare_op(struct fo_exec *e, int op, bool *larger)
{
	struct fo_exec_cuda *x = e->cuda;
	const struct fo_exec_device_op *d = &x->op[op];
	struct fo_exec_stream *lane = &x->lane[e->op[op]->lane];
	/* Sums that are added to something have room of their own. */
	const struct fo_op *o = e->op[op];
	if (fo_exec_is_comm(o) && !x->staged && o->arg[o->n - 1].access == FO_ACC)
		lane->ws_bytes = (size_t)fo_max((int64_t)lane->ws_bytes,
						(int64_t)fo_tensor_bytes(&e->call[op].arg[o->n - 1]));
	for (int i = 0; d->kernel && d->kernel->prepare && i < d->firsts; i++) {
		struct fo_call shape = e->call[op];
		size_t ws = 0;
		shape.first = d->first[i];
		fo_status st = d->kernel->prepare(x->c, &shape, d->variant >= 0 ? x->variant[d->variant] : 0, &ws);
		if (st != FO_OK)
			return fo_wrap(st, "%s", fo_op_info(shape.kind)->name);
		*larger |= ws > lane->ws_bytes;
		lane->ws_bytes = ws > lane->ws_bytes ? ws : lane->ws_bytes;
	}
	return FO_OK;
}

static void lay_out_workspace(struct fo_exec_cuda *x)
{
	x->workspace_bytes = 0;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		x->lane[l].ws_at = x->workspace_bytes;
		x->workspace_bytes += fo_round_up_bytes(x->lane[l].ws_bytes, WS_ALIGN);
	}
	x->workspace_bytes = fo_device_size(x->workspace_bytes + WS_ALIGN); /* and `found` */
}

fo_status fo_exec_take_workspace(struct fo_exec_cuda *x)
{
	void *device;
	fo_cuda_free(x->c, x->workspace);
	x->workspace = NULL;
	lay_out_workspace(x);
	fo_status st = fo_cuda_alloc(x->c, x->workspace_bytes, &device);
	if (st != FO_OK)
		return fo_wrap(st, "cannot hold the workspaces of operations");
	x->workspace = device;
	x->found = (int64_t *)device + (x->workspace_bytes - WS_ALIGN) / sizeof *x->found;
	return FO_OK;
}

/* Called while nothing runs: between steps, or between instances that are run one by one. */
fo_status fo_exec_prepare(struct fo_exec *e)
{
	struct fo_exec_cuda *x = e->cuda;
	size_t bytes = (size_t)x->variants * sizeof *x->variant;
	bool larger = false, first = !x->prepared;
	if (!first && !memcmp(x->prepared, x->variant, bytes))
		return FO_OK;
	for (int i = 0; i < e->ops; i++) {
		int v = x->op[i].variant;
		if (first || (v >= 0 && x->variant[v] != x->prepared[v]))
			FO_TRY(prepare_op(e, i, &larger));
	}
	if (first)
		x->prepared = fo_xmalloc(bytes + 1);
	memcpy(x->prepared, x->variant, bytes);
	if (x->workspace && larger) {
		fo_exec_graph_drop(e);
		return fo_exec_take_workspace(x);
	}
	lay_out_workspace(x);
	return FO_OK;
}

/* ---- graphs hold plans ---- */

void fo_exec_graph_free(struct fo_exec_cuda *x, struct fo_exec_graph *g)
{
	fo_cuda_graph_free(x->c, g->graph[0]);
	fo_cuda_graph_free(x->c, g->graph[1]);
	free(g->variant);
	*g = (struct fo_exec_graph){ 0 };
}

void fo_exec_graph_drop(struct fo_exec *e)
{
	while (e->cuda->graphs)
		fo_exec_graph_free(e->cuda, &e->cuda->graph[--e->cuda->graphs]);
}
