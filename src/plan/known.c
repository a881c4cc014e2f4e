/* The programs of divisions that were planned: kept for all searches of a command. */
#include "plan/programs_int.h"

#include "base/count.h"
#include "base/mem.h"

#include <stdlib.h>

/* Executors take whole huge pages, of processors and of devices (fo_pages_new, cuMemAlloc). */
enum { PAGE = 2 << 20 };
static double rest_of_page(int64_t bytes) { return (double)(fo_round_up(bytes, PAGE) - bytes); }

void fo_plan_memory_take(struct fo_predict_step *s, const struct fo_planned *p)
{
	fo_predict_planned(
		s, (const double[FO_PREDICT_MEMORIES]){
			   [FO_PREDICT_WEIGHTS] = (double)p->part[FO_PLANNED_WEIGHTS],
			   [FO_PREDICT_GRADIENTS] = (double)p->part[FO_PLANNED_GRADIENTS],
			   [FO_PREDICT_STATES] = (double)p->part[FO_PLANNED_STATES] + rest_of_page(p->persistent),
			   [FO_PREDICT_ACTIVATIONS] = (double)p->part[FO_PLANNED_ACTIVATIONS],
			   [FO_PREDICT_BUFFERS] = (double)p->part[FO_PLANNED_GATHERED] +
						  (double)p->part[FO_PLANNED_HOLES] + rest_of_page(p->arena),
		   });
}

static const char no_time[] = "the divisions before took all the operations that are planned in some seconds";

struct fo_plan_programs *fo_plan_programs_new(void)
{
	struct fo_plan_programs *x = fo_xmalloc(sizeof *x);
	*x = (struct fo_plan_programs){ 0 };
	return x;
}

void fo_plan_programs_free(struct fo_plan_programs *x)
{
	if (x)
		free(x->of);
	free(x);
}

bool fo_plan_same(const struct fo_predict_layout *a, const struct fo_predict_layout *b)
{
	return a->tp == b->tp && a->cp == b->cp && a->pp == b->pp && a->ep == b->ep && a->chunks == b->chunks &&
	       a->schedule == b->schedule && a->zero == b->zero && a->shard == b->shard && a->sp == b->sp &&
	       a->micro_batch == b->micro_batch && a->recompute == b->recompute && a->recompute_op == b->recompute_op &&
	       a->tp_overlap == b->tp_overlap && a->keeps_weights == b->keeps_weights &&
	       a->stages_near == b->stages_near && a->type == b->type && a->format == b->format &&
	       a->again_stages == b->again_stages;
}

bool fo_plan_programs_over(const struct fo_plan_programs *x)
{
	return x->operations >= FO_PLAN_PROGRAMS_OPERATIONS || x->rounds >= FO_PLAN_PROGRAMS_ROUNDS;
}

const struct fo_plan_program *fo_plan_programs_find(const struct fo_plan_asked *a, const struct fo_plan_point *p)
{
	const struct fo_plan_programs *x = a->programs;
	for (size_t i = 0; i < x->n; i++) {
		const struct fo_plan_program *e = &x->of[i];
		if (e->point.again == p->again && e->point.layout.devices == p->layout.devices &&
		    e->global_batch == a->global_batch && fo_plan_same(&e->point.layout, &p->layout))
			return e;
	}
	return NULL;
}

enum fo_plan_known fo_plan_programs_know(const struct fo_plan_asked *a, const struct fo_plan_point *p)
{
	const struct fo_plan_program *e = fo_plan_programs_find(a, p);
	if (e)
		return e->memory.why ? FO_PLAN_BOUNDED : FO_PLAN_KNOWN;
	return a->programs_known || fo_plan_programs_over(a->programs) ? FO_PLAN_BOUNDED : FO_PLAN_OPEN;
}

bool fo_plan_programs_fit(const struct fo_plan_asked *a, struct fo_plan_point *p)
{
	const struct fo_plan_program *e = fo_plan_programs_find(a, p);
	if (e && !e->memory.why)
		fo_plan_memory_take(&p->step, &e->memory.fullest);
	return fo_predict_upper_bytes(&p->step) <= fo_plan_room(a);
}

const char *fo_plan_programs_why(const struct fo_plan_asked *a, const struct fo_plan_point *p)
{
	const struct fo_plan_program *e = fo_plan_programs_find(a, p);
	return e ? e->memory.why : no_time;
}

void fo_plan_programs_put(struct fo_plan_programs *x, const struct fo_plan_program *program)
{
	fo_array_room(&x->of, &x->cap, x->n, sizeof *x->of);
	x->of[x->n++] = *program;
	x->operations += program->memory.operations;
}
