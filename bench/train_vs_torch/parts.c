#include "parts.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

/* Operations that differ in nothing that a reader of the table asks for. */
struct group {
	uint8_t kind, phase, unit, lane;
	int64_t count;
	double ns, flop, bytes;
};
struct table {
	struct group *group;
	size_t n, cap;
};

static struct group *group_of(struct table *t, const struct fo_op *o, int unit)
{
	const struct group want = {
		.kind = (uint8_t)o->kind, .phase = (uint8_t)o->phase, .unit = (uint8_t)unit, .lane = (uint8_t)o->lane
	};
	for (size_t i = 0; i < t->n; i++)
		if (t->group[i].kind == want.kind && t->group[i].phase == want.phase && t->group[i].unit == want.unit &&
		    t->group[i].lane == want.lane)
			return &t->group[i];
	fo_array_room(&t->group, &t->cap, t->n, sizeof *t->group);
	t->group[t->n] = want;
	return &t->group[t->n++];
}

static void collect(struct table *t, const struct fo_timeline *l, const struct fo_program *p,
		    const struct fo_unrolled *u, int32_t step)
{
	for (int lane = 0; lane < FO_LANE_COUNT; lane++) {
		const struct fo_ring *r = &l->lane[lane];
		for (uint64_t i = r->n > r->cap ? r->n - r->cap : 0; i < r->n; i++) {
			const struct fo_span *s = &r->span[i % r->cap];
			if (s->step != step || s->instance < 0)
				continue;
			const struct fo_op *o = fo_instance_op(p, u, s->instance);
			const struct fo_cost c = fo_op_cost(p, o, -1);
			struct group *g = group_of(t, o, p->block[p->slot[u->slot[s->instance]].block].unit);
			g->count++;
			g->ns += fo_timeline_own_ns(l, lane, s);
			g->flop += c.exec;
			g->bytes += c.bytes;
		}
	}
}

static int longest(const void *a, const void *b)
{
	const struct group *x = a, *y = b;
	return (x->ns < y->ns) - (x->ns > y->ns);
}

static void print_group(const struct group *g, double step_ns)
{
	const bool products = fo_op_info(g->kind)->cls == FO_CLASS_TENSOR;
	struct fo_str text = { 0 };
	struct fo_json j;
	fo_json_begin(&j, &text, false);
	fo_json_object(&j, NULL);
	fo_json_text(&j, "operation", fo_op_info(g->kind)->name);
	fo_json_text(&j, "phase", fo_phase_name[g->phase]);
	fo_json_text(&j, "unit", fo_unit_name[g->unit]);
	fo_json_text(&j, "lane", fo_lane_name[g->lane]);
	fo_json_int(&j, "count", g->count);
	fo_json_real(&j, "ms", g->ns * 1e-6);
	fo_json_real(&j, "of_step", g->ns / step_ns);
	fo_json_real(&j, products ? "tflop_s" : "gb_s",
		     (products ? g->flop * 1e-3 : g->bytes) / g->ns); /* per nanosecond */
	fo_json_close(&j);
	puts(text.data);
	fo_str_fini(&text);
}

fo_status bench_parts(struct fo_exec *e, const struct fo_program *p, int32_t step, struct fo_profile *f)
{
	struct table t = { 0 };
	int64_t begin = fo_now_ns();
	FO_TRY(fo_exec_step(e, step));
	int64_t end = fo_now_ns();
	fo_profile_add_step(f, fo_exec_timeline(e), p, fo_exec_unrolled(e), step, begin, end, 0);
	collect(&t, fo_exec_timeline(e), p, fo_exec_unrolled(e), step);
	if (t.n)
		qsort(t.group, t.n, sizeof *t.group, longest);
	for (size_t i = 0; i < t.n; i++)
		print_group(&t.group[i], (double)(end - begin));
	fflush(stdout);
	free(t.group);
	return FO_OK;
}
