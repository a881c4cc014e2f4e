/* A whole step on a device: instances in issue order into their lanes' streams, events where the program waits, all of
 * it captured into a graph and replayed.
 *
 * A graph holds plans that may depend on the ports' contents (the number of documents, say), so there is a graph for
 * each combination that comes up. A combination that comes up for the first time is launched operation by operation,
 * which also loads what libraries load late and names an operation that fails; the second time it is captured.
 * Replaying is right because hyper-parameters, step number and seed are device memory that a copy from the staging
 * fills. The step ends when the host has its results. Until then nobody fills the staging again, except with the next
 * step's batch, which exec_inputs.c takes care of: one staging is enough.
 *
 * Timed steps have graphs of their own, with an event after each operation, and one before it where it is the first of
 * its lane or has waited. Events cost the device 1 to 2 us each: they lengthen timed steps a little, and no others. */
#include "base/clock.h"
#include "base/mem.h"
#include "train/exec_cuda.h"
#include "train/store_int.h"

#include <stdlib.h>
#include <string.h>

static bool fills(const struct fo_op *o) { return fo_exec_is_host(o) && fo_access_writes(o->arg[FO_HOST_IN_A].access); }

/* ---- events ---- */

fo_status fo_exec_graph_open(struct fo_exec *e)
{
	struct fo_exec_cuda *x = e->cuda;
	int last[FO_LANE_COUNT];
	x->at = fo_xmalloc((size_t)(e->u.n + 1) * sizeof *x->at);
	memset(last, -1, sizeof last);
	FO_TRY(fo_cuda_event_new(x->c, true, &x->base));
	FO_TRY(fo_cuda_event_new(x->c, true, &x->fork));
	FO_TRY(fo_cuda_event_new(x->c, false, &x->over));
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		if (x->lane[l].used)
			FO_TRY(fo_cuda_event_new(x->c, false, &x->lane[l].join));
		if (x->lane[l].stage_bytes)
			FO_TRY(fo_cuda_event_new(x->c, false, &x->lane[l].left));
	}
	for (int i = 0; i < e->u.n; i++) {
		int lane = fo_instance_op(e->p, &e->u, i)->lane;
		bool waits = last[lane] < 0;
		last[lane] = i;
		for (int l = 0; l < FO_LANE_COUNT; l++) {
			int32_t need = e->u.wait[i][l];
			waits |= need >= 0;
			if (need >= 0 && !x->at[need].done)
				FO_TRY(fo_cuda_event_new(x->c, false, &x->at[need].done));
		}
		if (!e->o.timed_every)
			continue;
		FO_TRY(fo_cuda_event_new(x->c, true, &x->at[i].ends));
		if (waits)
			FO_TRY(fo_cuda_event_new(x->c, true, &x->at[i].begins));
	}
	return FO_OK;
}

void fo_exec_graph_close(struct fo_exec *e)
{
	struct fo_exec_cuda *x = e->cuda;
	fo_exec_graph_drop(e);
	for (int i = 0; x->at && i < e->u.n; i++) {
		fo_cuda_event_free(x->c, x->at[i].done);
		fo_cuda_event_free(x->c, x->at[i].begins);
		fo_cuda_event_free(x->c, x->at[i].ends);
	}
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		fo_cuda_event_free(x->c, x->lane[l].join);
		fo_cuda_event_free(x->c, x->lane[l].left);
		x->lane[l].join = x->lane[l].left = NULL;
	}
	fo_cuda_event_free(x->c, x->base);
	fo_cuda_event_free(x->c, x->fork);
	fo_cuda_event_free(x->c, x->over);
	x->base = x->fork = x->over = NULL;
	free(x->at);
	x->at = NULL;
}

/* ---- putting a step into streams ---- */

static fo_status enqueue_step(struct fo_exec *e, bool timed, bool capturing)
{
	FO_TRY(fo_exec_lanes_begin(e, timed, capturing));
	for (int id = 0; id < e->u.n; id++) {
		FO_TRY(fo_exec_instance_begins(e, id, timed, capturing));
		FO_TRY(fo_exec_enqueue(e, id));
		FO_TRY(fo_exec_instance_ends(e, id, timed, capturing));
	}
	return fo_exec_lanes_end(e);
}

/* ---- graphs ---- */

static fo_status capture(struct fo_exec *e, bool timed, fo_cuda_graph *out)
{
	struct fo_exec_cuda *x = e->cuda;
	fo_cuda_stream first = x->lane[FO_LANE_COMPUTE].stream;
	FO_TRY(fo_cuda_capture_begin(x->c, first));
	fo_status st = enqueue_step(e, timed, true);
	if (st == FO_OK)
		return fo_cuda_capture_end(x->c, first, out);
	struct fo_err why;
	fo_err_save(&why, st);
	if (fo_cuda_capture_end(x->c, first, out) == FO_OK) /* a capture must end for the stream to be of use again */
		fo_cuda_graph_free(x->c, *out);
	*out = NULL;
	return fo_err_raise(&why);
}

/* The entry of x->variant. *fresh: it is a new one, for which the least recently used may have made room. */
static struct fo_exec_graph *find_graph(struct fo_exec_cuda *x, bool *fresh)
{
	size_t bytes = (size_t)x->variants * sizeof *x->variant;
	struct fo_exec_graph *oldest = x->graph;
	*fresh = false;
	for (int i = 0; i < x->graphs; i++) {
		struct fo_exec_graph *g = &x->graph[i];
		if (!memcmp(g->variant, x->variant, bytes))
			return g;
		if (g->used < oldest->used)
			oldest = g;
	}
	*fresh = true;
	struct fo_exec_graph *g = x->graphs < FO_EXEC_GRAPHS_MAX ? &x->graph[x->graphs++] : oldest;
	fo_exec_graph_free(x, g);
	g->variant = fo_xmalloc(bytes + 1);
	memcpy(g->variant, x->variant, bytes);
	return g;
}

static fo_status launch(struct fo_exec *e, bool timed)
{
	struct fo_exec_cuda *x = e->cuda;
	bool fresh;
	if (x->staged)
		return fo_exec_staged_step(e, timed);
	if (e->o.eager)
		return enqueue_step(e, timed, false);
	struct fo_exec_graph *g = find_graph(x, &fresh);
	g->used = x->steps;
	if (fresh)
		return enqueue_step(e, timed, false);
	/* Captures both kinds at once: otherwise the first timed step would contain the host time of capturing. */
	for (int t = 0; t < 2; t++)
		if (!g->graph[t] && (t ? e->o.timed_every > 0 : e->o.timed_every != 1))
			FO_TRY(capture(e, t, &g->graph[t]));
	return fo_cuda_graph_launch(x->c, g->graph[timed], x->lane[FO_LANE_COMPUTE].stream);
}

/* ---- times ---- */

static fo_status at_ns(const struct fo_exec_cuda *x, fo_cuda_event event, int64_t base_ns, int64_t *ns)
{
	float ms;
	FO_TRY(fo_cuda_event_ms(x->c, x->base, event, &ms));
	*ns = base_ns + (int64_t)((double)ms * 1e6);
	return FO_OK;
}

/* Records spans in host time. The first event counts as the time of the launch, so that no span lies outside its step.
 * An operation's span begins where the one before it on its lane ended. If it waited, a span for the wait comes between
 * them and names the instance that it waited for longest. The compute lane also waits for the first port, while the
 * ports are filled. */
static fo_status record_spans(struct fo_exec *e, int32_t step, int64_t filled_ns, int64_t base_ns)
{
	struct fo_exec_cuda *x = e->cuda;
	int64_t at[FO_LANE_COUNT];
	fo_status st = FO_OK;
	for (int l = 0; l < FO_LANE_COUNT; l++)
		at[l] = l == FO_LANE_COMPUTE ? filled_ns : base_ns;
	int first = -1;
	for (int id = 0; id < e->u.n && st == FO_OK; id++) {
		const struct fo_op *o = fo_instance_op(e->p, &e->u, id);
		int64_t begin = at[o->lane];
		int newest = -1;
		first = first < 0 && fills(o) ? id : first;
		for (int l = 0; l < FO_LANE_COUNT; l++) {
			int32_t need = e->u.wait[id][l];
			if (need >= 0 && (newest < 0 || x->at[need].end_ns > x->at[newest].end_ns))
				newest = need;
		}
		if (x->at[id].begins)
			st = at_ns(x, x->at[id].begins, base_ns, &begin);
		if (st == FO_OK)
			st = at_ns(x, x->at[id].ends, base_ns, &x->at[id].end_ns);
		begin = begin > at[o->lane] ? begin : at[o->lane];
		x->at[id].end_ns = x->at[id].end_ns > begin ? x->at[id].end_ns : begin;
		newest = newest < 0 && o->lane == FO_LANE_COMPUTE && at[o->lane] == filled_ns ? first : newest;
		int64_t until = begin;
		if (newest >= 0 && x->at[newest].end_ns < begin)
			until = x->at[newest].end_ns; /* the rest is the launch */
		if (newest >= 0 && until > at[o->lane] && st == FO_OK)
			fo_timeline_record(&e->timeline, o->lane, step, ~newest, at[o->lane], until);
		if (st == FO_OK)
			fo_timeline_record(&e->timeline, o->lane, step, id, begin, x->at[id].end_ns);
		at[o->lane] = x->at[id].end_ns;
	}
	return st;
}

/* ---- the step ---- */

static fo_status serve_all(struct fo_exec *e, bool filling)
{
	bool apart = e->cuda->inputs.now != NULL; /* batches */
	for (int id = 0; id < e->u.n; id++) {
		const struct fo_op *o = fo_instance_op(e->p, &e->u, id);
		if (fo_exec_is_host(o) && fills(o) == filling && !(apart && fo_exec_is_batch(o)))
			FO_TRY(fo_exec_serve(e, id));
	}
	return FO_OK;
}

/* Serves the ports that fill, and prepares the plans that their contents ask for. */
static fo_status make_ready(struct fo_exec *e)
{
	struct fo_exec_cuda *x = e->cuda;
	FO_TRY(serve_all(e, true));
	if (x->inputs.now)
		FO_TRY(fo_exec_inputs_ready(e));
	else
		fo_exec_look(e);
	return fo_exec_prepare(e);
}

static fo_status launch_and_wait(struct fo_exec *e, bool timed)
{
	struct fo_exec_cuda *x = e->cuda;
	if (x->inputs.now)
		FO_TRY(fo_exec_inputs_take(e));
	x->whole_step = true;
	fo_status st = launch(e, timed);
	x->whole_step = false;
	if (st == FO_OK && x->inputs.now)
		st = fo_exec_inputs_ahead(e);
	return st == FO_OK ? fo_exec_wait(e, x->lane[FO_LANE_COMPUTE].stream) : st;
}

/* Where not all steps are timed, the third is the first: in the first, libraries load late; the second captures. */
static bool is_timed(const struct fo_exec *e)
{
	int64_t every = e->o.timed_every;
	return every && e->cuda->steps % every == 2 % every;
}

fo_status fo_exec_cuda_step(struct fo_exec *e, int32_t step)
{
	struct fo_exec_cuda *x = e->cuda;
	bool timed = is_timed(e);
	int64_t filled_ns = fo_now_ns();
	FO_TRY(make_ready(e));
	if (e->changes)
		fo_store_device_changed(e->store);
	int64_t base_ns = fo_now_ns();
	fo_status st = launch_and_wait(e, timed);
	if (st != FO_OK) {
		struct fo_err why;
		fo_err_save(&why, fo_wrap(st, "step %d on the device", (int)step));
		fo_exec_give_up(e);
		e->engine->stop(e); /* nothing of it runs on while the caller looks at what there is */
		return fo_err_raise(&why);
	}
	x->steps++;
	if (timed)
		FO_TRY(record_spans(e, step, filled_ns, base_ns));
	return serve_all(e, false);
}
