/* Checks plans of pipelines and walks through them in time. Both follow the same graph: slots and transfers are nodes,
 * and each waits for at most three others. A node's end is the latest of theirs and its own time; a node that waits for
 * itself is a plan that cannot run. */
#include "program/schedule.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

const char *const fo_pp_sends_name[FO_PP_SENDS] = { "buffered", "lanes", "blocking" };

enum { WAITS = 3, FORWARDS = 0, INPUTS, WEIGHTS, KEYS };
/* Node i is slot i of the plan; node slots + i is the transfer of what slot i needs. */
struct graph {
	const struct fo_pp_plan *plan;
	const struct fo_pp_times *times; /* NULL: only order counts */
	enum fo_pp_sends sends;
	int32_t slots;
	int32_t *of[KEYS];      /* [part x micro-batch]: the slot; -1: none */
	int32_t *stage;         /* of each slot */
	int32_t (*wait)[WAITS]; /* nodes; -1: none */
	double *end;
	uint8_t *state; /* of the search: 0 not seen, 1 on the path, 2 done */
};

static int32_t key(const struct fo_pp_plan *plan, int32_t stage, struct fo_pp_slot s)
{
	return fo_pp_position(&plan->shape, stage, s.chunk) * plan->shape.micro_batches + s.mb;
}
static int64_t within_stage(const struct graph *g, int32_t i) { return i - g->plan->begin[g->stage[i]]; }

/* ---- each slot exactly once, in an order that a stage alone can run ---- */

static fo_status put_once(struct graph *g, int what, int32_t stage, int32_t i)
{
	const struct fo_pp_slot s = g->plan->slot[i];
	int32_t *at = &g->of[what][key(g->plan, stage, s)];
	if (*at >= 0)
		return fo_fail(FO_EARG, "stage %d has %s of micro-batch %d, chunk %d twice: slots %lld and %lld", stage,
			       fo_pp_work_name[s.work], s.mb, s.chunk, (long long)within_stage(g, *at),
			       (long long)within_stage(g, i));
	*at = i;
	return FO_OK;
}

static fo_status collect(struct graph *g)
{
	const struct fo_pp_shape *p = &g->plan->shape;
	for (int32_t stage = 0; stage < p->stages; stage++)
		for (int64_t i = g->plan->begin[stage]; i < g->plan->begin[stage + 1]; i++) {
			const struct fo_pp_slot s = g->plan->slot[i];
			g->stage[i] = stage;
			if (s.work >= FO_PP_WORKS || s.mb < 0 || s.mb >= p->micro_batches || s.chunk < 0 ||
			    s.chunk >= p->chunks)
				return fo_fail(FO_EARG,
					       "stage %d, slot %lld: work %d on micro-batch %d, chunk %d; there are %d "
					       "kinds of work, %d micro-batches and %d chunks",
					       stage, (long long)within_stage(g, (int32_t)i), s.work, s.mb, s.chunk,
					       FO_PP_WORKS, p->micro_batches, p->chunks);
			if (s.work == FO_PP_FORWARD)
				FO_TRY(put_once(g, FORWARDS, stage, (int32_t)i));
			if (s.work == FO_PP_BACKWARD || s.work == FO_PP_INPUT)
				FO_TRY(put_once(g, INPUTS, stage, (int32_t)i));
			if (s.work == FO_PP_BACKWARD || s.work == FO_PP_WEIGHT)
				FO_TRY(put_once(g, WEIGHTS, stage, (int32_t)i));
		}
	return FO_OK;
}

static fo_status check_stage(const struct graph *g, int32_t stage, struct fo_pp_slot s)
{
	static const char *const name[KEYS] = { "forward", "backward of the input", "backward of the weights" };
	int32_t before = -1;
	for (int what = 0; what < KEYS; what++) {
		const int32_t at = g->of[what][key(g->plan, stage, s)];
		if (at < 0)
			return fo_fail(FO_EARG, "stage %d has no %s of micro-batch %d, chunk %d", stage, name[what],
				       s.mb, s.chunk);
		if (at < before)
			return fo_fail(FO_EARG,
				       "stage %d runs %s of micro-batch %d, chunk %d in slot %lld, before its %s in "
				       "slot %lld",
				       stage, name[what], s.mb, s.chunk, (long long)within_stage(g, at), name[what - 1],
				       (long long)within_stage(g, before));
		before = at;
	}
	return FO_OK;
}

static fo_status check_stages(const struct graph *g)
{
	const struct fo_pp_shape *p = &g->plan->shape;
	for (int32_t stage = 0; stage < p->stages; stage++)
		for (int32_t chunk = 0; chunk < p->chunks; chunk++)
			for (int32_t mb = 0; mb < p->micro_batches; mb++)
				FO_TRY(check_stage(g, stage, (struct fo_pp_slot){ .mb = mb, .chunk = (int16_t)chunk }));
	return FO_OK;
}

/* ---- what waits for what ---- */

static void wait_for(struct graph *g, int32_t node, int32_t other)
{
	int k = 0;
	if (other < 0)
		return;
	while (g->wait[node][k] >= 0)
		k++;
	g->wait[node][k] = other;
}
static int32_t slot_of(const struct graph *g, const struct fo_pp_peer *peer)
{
	return g->of[peer->slot.work == FO_PP_FORWARD ? FORWARDS : INPUTS][key(g->plan, peer->stage, peer->slot)];
}
/* The transfers in front of and behind a slot, -1 where there is none. */
static int32_t receive_of(const struct graph *g, int32_t i)
{
	struct fo_pp_peer from;
	if (!fo_pp_needs(&g->plan->shape, g->stage[i], g->plan->slot[i], &from) || from.stage == g->stage[i])
		return -1;
	return g->slots + i;
}
static int32_t send_of(const struct graph *g, int32_t i)
{
	struct fo_pp_peer to;
	if (!fo_pp_feeds(&g->plan->shape, g->stage[i], g->plan->slot[i], &to) || to.stage == g->stage[i])
		return -1;
	return g->slots + slot_of(g, &to);
}
static void append(struct graph *g, int32_t *last, int32_t node)
{
	if (node < 0)
		return;
	wait_for(g, node, *last);
	*last = node;
}

static void connect_stage(struct graph *g, int32_t stage)
{
	int32_t last = -1, send[2] = { -1, -1 }, receive[2] = { -1, -1 };
	for (int32_t i = (int32_t)g->plan->begin[stage]; i < g->plan->begin[stage + 1]; i++) {
		const int back = g->plan->slot[i].work != FO_PP_FORWARD;
		const int32_t in = receive_of(g, i), out = send_of(g, i);
		struct fo_pp_peer from;
		if (g->sends == FO_PP_BLOCKING) {
			append(g, &last, in);
			append(g, &last, i);
			append(g, &last, out);
		} else {
			append(g, &last, i);
			append(g, &send[back], out);
			if (g->sends == FO_PP_LANES)
				append(g, &receive[back], in);
		}
		if (in >= 0 && g->sends != FO_PP_BLOCKING)
			wait_for(g, i, in);
		else if (in < 0 && fo_pp_needs(&g->plan->shape, stage, g->plan->slot[i], &from))
			wait_for(g, i, slot_of(g, &from));
		if (out >= 0 && g->sends != FO_PP_BLOCKING)
			wait_for(g, out, i);
	}
}

static double seconds(const struct graph *g, int32_t node)
{
	if (!g->times)
		return 0;
	if (node >= g->slots)
		return g->times->send_s;
	const struct fo_pp_slot s = g->plan->slot[node];
	return fo_pp_seconds(g->times, fo_pp_position(&g->plan->shape, g->stage[node], s.chunk), s.work);
}

double fo_pp_seconds(const struct fo_pp_times *t, int32_t position, int work)
{
	const double input = t->input ? t->input[position] : t->input_s;
	const double weight = t->weight ? t->weight[position] : t->weight_s;
	switch (work) {
	case FO_PP_FORWARD: return t->forward ? t->forward[position] : t->forward_s;
	case FO_PP_INPUT: return input;
	case FO_PP_WEIGHT: return weight;
	default: return input + weight;
	}
}

/* ---- the search ---- */

static void name_slot(const struct graph *g, int32_t i, struct fo_str *out)
{
	const struct fo_pp_slot s = g->plan->slot[i];
	fo_str_printf(out, "stage %d's %s of micro-batch %d", g->stage[i], fo_pp_work_name[s.work], s.mb);
	if (g->plan->shape.chunks > 1)
		fo_str_printf(out, ", chunk %d", s.chunk);
}

/* Names the slots on the circle path[0..n), at most the first few. */
static fo_status fail_circle(const struct graph *g, const int32_t *path, int64_t n)
{
	enum { SHOWN = 4 };
	struct fo_str text = { 0 };
	int64_t slots = 0;
	int32_t first = -1;
	for (int64_t i = 0; i < n; i++) {
		if (path[i] >= g->slots) /* a transfer is named by its slot */
			continue;
		if (first < 0)
			first = path[i];
		if (slots++ >= SHOWN)
			continue;
		fo_str_puts(&text, slots == 1 ? "" : ", which waits for ");
		name_slot(g, path[i], &text);
	}
	if (first < 0) { /* transfers alone: each stands behind another on some lane */
		for (int64_t i = 0; i < n && i < SHOWN; i++) {
			fo_str_puts(&text, i ? ", which waits for the message to " : "the message to ");
			name_slot(g, path[i] - g->slots, &text);
		}
		fo_str_puts(&text, n > SHOWN ? ", and so on" : "");
	} else if (slots > SHOWN)
		fo_str_printf(&text, ", and so on over %lld slots", (long long)slots);
	fo_status st = fo_fail(FO_EARG,
			       "the order of slots never ends with %s sends: %s, which waits for the first again",
			       fo_pp_sends_name[g->sends], text.data);
	fo_str_fini(&text);
	return st;
}

static void finish(struct graph *g, int32_t node)
{
	double begin = 0;
	for (int k = 0; k < WAITS && g->wait[node][k] >= 0; k++)
		if (g->end[g->wait[node][k]] > begin)
			begin = g->end[g->wait[node][k]];
	g->end[node] = begin + seconds(g, node);
	g->state[node] = 2;
}

/* Ends `node` and all that it waits for. path: room for all nodes. */
static fo_status visit(struct graph *g, int32_t node, int32_t *path)
{
	int64_t n = 0;
	if (g->state[node])
		return FO_OK;
	path[n++] = node;
	g->state[node] = 1;
	while (n) {
		const int32_t at = path[n - 1];
		int32_t next = -1;
		for (int k = 0; k < WAITS && next < 0; k++)
			if (g->wait[at][k] >= 0 && g->state[g->wait[at][k]] != 2)
				next = g->wait[at][k];
		if (next < 0) {
			finish(g, at);
			n--;
			continue;
		}
		if (g->state[next] == 1) {
			int64_t from = n - 1;
			while (path[from] != next)
				from--;
			return fail_circle(g, path + from, n - from);
		}
		path[n++] = next;
		g->state[next] = 1;
	}
	return FO_OK;
}

static fo_status run(struct graph *g)
{
	fo_status st = FO_OK;
	int32_t *path = fo_xmalloc(2 * (size_t)g->slots * sizeof *path);
	for (int32_t stage = 0; stage < g->plan->shape.stages; stage++)
		connect_stage(g, stage);
	for (int32_t node = 0; node < 2 * g->slots && st == FO_OK; node++)
		if (node < g->slots || receive_of(g, node - g->slots) >= 0)
			st = visit(g, node, path);
	free(path);
	return st;
}

static void graph_fini(struct graph *g)
{
	for (int k = 0; k < KEYS; k++)
		free(g->of[k]);
	free(g->stage);
	free(g->wait);
	free(g->end);
	free(g->state);
}

/* The graph of a plan, with every node's end. Freed with graph_fini, also where it fails. */
static fo_status graph_of(struct graph *g, const struct fo_pp_plan *plan, const struct fo_pp_times *times,
			  enum fo_pp_sends sends)
{
	*g = (struct graph){ .plan = plan, .times = times, .sends = sends };
	FO_TRY(fo_pp_legal(&plan->shape));
	const int64_t slots = plan->begin[plan->shape.stages];
	if (slots > FO_PP_SLOTS_MOST)
		return fo_fail(FO_EARG, "the plan has %lld slots, more than %d", (long long)slots, FO_PP_SLOTS_MOST);
	const size_t n = (size_t)slots, keys = (size_t)fo_pp_parts(&plan->shape) * (size_t)plan->shape.micro_batches;
	g->slots = (int32_t)slots;
	for (int k = 0; k < KEYS; k++) {
		g->of[k] = fo_xmalloc(keys * sizeof *g->of[k]);
		memset(g->of[k], 0xff, keys * sizeof *g->of[k]);
	}
	g->stage = fo_xmalloc(n * sizeof *g->stage);
	g->wait = fo_xmalloc(2 * n * sizeof *g->wait);
	memset(g->wait, 0xff, 2 * n * sizeof *g->wait);
	g->end = fo_xmalloc(2 * n * sizeof *g->end);
	g->state = fo_xmalloc(2 * n);
	FO_TRY(collect(g));
	FO_TRY(check_stages(g));
	return run(g);
}

fo_status fo_pp_check(const struct fo_pp_plan *plan, enum fo_pp_sends sends)
{
	struct graph g;
	fo_status st = graph_of(&g, plan, NULL, sends);
	graph_fini(&g);
	return st;
}

fo_status fo_pp_walk_of(struct fo_pp_walk *out, const struct fo_pp_plan *plan, const struct fo_pp_times *t,
			enum fo_pp_sends sends)
{
	struct graph g;
	const int32_t stages = plan->shape.stages;
	fo_status st = FO_OK;
	FO_TRY_OR(st, graph_of(&g, plan, t, sends), done);
	*out = (struct fo_pp_walk){ .span = fo_xmalloc((size_t)g.slots * sizeof *out->span),
				    .busy = fo_xmalloc((size_t)stages * sizeof *out->busy) };
	double busy = 0;
	for (int32_t stage = 0; stage < stages; stage++) {
		const int64_t from = plan->begin[stage], to = plan->begin[stage + 1];
		for (int64_t i = from; i < to; i++) {
			const double s = seconds(&g, (int32_t)i);
			out->span[i] = (struct fo_pp_span){ g.end[i] - s, g.end[i] };
			out->busy[stage] += s;
		}
		const double length = out->span[to - 1].end - out->span[from].begin;
		out->pipeline_s = length > out->pipeline_s ? length : out->pipeline_s;
		out->step_s = out->span[to - 1].end > out->step_s ? out->span[to - 1].end : out->step_s;
		busy += out->busy[stage];
	}
	out->bubble = out->step_s > 0 ? 1 - busy / (out->step_s * stages) : 0;
done:
	graph_fini(&g);
	return st;
}

void fo_pp_walk_free(struct fo_pp_walk *w)
{
	free(w->span);
	free(w->busy);
	*w = (struct fo_pp_walk){ .span = NULL };
}
