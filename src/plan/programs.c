/* Programs of divisions, lowered for their memory alone. */
#include "plan/programs.h"

#include "base/count.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/str.h"
#include "pass/pass.h"
#include "plan/settings.h"
#include "program/mesh_cost.h"

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

static void plan_run(const struct fo_run *run, const struct fo_model *model, int64_t most, struct fo_plan_memory *out)
{
	struct fo_choice c;
	struct fo_planned_job job = { .stage = NULL };
	*out = (struct fo_plan_memory){ 0 };
	if (*run->program_file)
		out->why = "its program comes from a file";
	else if (fo_model_trainable(model) != FO_OK)
		out->why = "Flatout cannot train this model";
	else if (fo_pass_choose_said(run, model, &c) != FO_OK)
		out->why = "its executor finds no program for these settings";
	else if (fo_mesh_legal(model, &c.run) != FO_OK)
		out->why = "its executor refuses such a mesh";
	else if (fo_pass_plan_job(model, &c.run, most, &job) != FO_OK)
		out->why = "its executor lowers no such program";
	else
		out->why = job.why;
	out->operations = job.operations;
	out->lowered = job.micro_batches;
	if (!out->why) {
		out->fullest = job.fullest;
		out->micro_batches = c.run.micro_batches;
		out->rows = c.run.rows;
	}
	fo_err_clear();
}

void fo_plan_memory_of_run(const struct fo_run *run, const struct fo_model *model, struct fo_plan_memory *out)
{
	plan_run(run, model, FO_PLANNED_OPERATIONS, out);
}

static void plan_point(const struct fo_plan_asked *a, const struct fo_plan_point *p, const struct fo_model *model,
		       int64_t most, struct fo_plan_memory *out)
{
	struct fo_str text = { 0 };
	struct fo_opt_set set;
	struct fo_run run;
	*out = (struct fo_plan_memory){ 0 };
	if (fo_plan_settings(FO_PLAN_WORDS_FLATOUT, a, p, model, &text, &out->why)) {
		fo_opt_init(&set, fo_run_options, &run);
		if (fo_opt_read_yaml_text(&set, text.data, text.len, "plan") == FO_OK &&
		    fo_run_check(&set, &run) == FO_OK)
			plan_run(&run, model, most, out);
		else
			out->why = "its executor refuses the run file";
		fo_opt_fini(&set);
	}
	fo_str_fini(&text);
	fo_err_clear();
}

void fo_plan_memory_of(const struct fo_plan_asked *a, const struct fo_plan_point *p, const struct fo_model *model,
		       struct fo_plan_memory *out)
{
	plan_point(a, p, model, FO_PLANNED_OPERATIONS, out);
}

/* ---- those of a search ---- */

/* Operations that all searches of a command plan, and rounds of them. A round that finds that divisions do not fit is
 * a search more. */
enum { OPERATIONS_MOST = 2 * FO_PLANNED_OPERATIONS, ROUNDS_MOST = 24 };

struct entry {
	struct fo_plan_point point;
	double global_batch;
	struct fo_plan_memory memory;
};
struct fo_plan_programs {
	struct entry *of;
	size_t n, cap;
	int64_t operations;
	int rounds;
};

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

static bool is_over(const struct fo_plan_programs *x)
{
	return x->operations >= OPERATIONS_MOST || x->rounds >= ROUNDS_MOST;
}

static const struct entry *find(const struct fo_plan_asked *a, const struct fo_plan_point *p)
{
	const struct fo_plan_programs *x = a->programs;
	for (size_t i = 0; i < x->n; i++) {
		const struct entry *e = &x->of[i];
		if (e->point.again == p->again && e->point.layout.devices == p->layout.devices &&
		    e->global_batch == a->global_batch && fo_plan_same(&e->point.layout, &p->layout))
			return e;
	}
	return NULL;
}

bool fo_plan_programs_fit(const struct fo_plan_asked *a, struct fo_plan_point *p)
{
	const struct entry *e = find(a, p);
	const double room = fo_plan_room(a);
	if (e && !e->memory.why)
		fo_plan_memory_take(&p->step, &e->memory.fullest);
	else if (!e && !is_over(a->programs))
		return p->step.bytes_range.low <= room;
	return fo_predict_upper_bytes(&p->step) <= room;
}

const char *fo_plan_programs_why(const struct fo_plan_asked *a, const struct fo_plan_point *p)
{
	const struct entry *e = find(a, p);
	return e ? e->memory.why : no_time;
}

/* False: it was there. */
static bool add(const struct fo_plan_asked *a, const struct fo_plan_point *p)
{
	struct fo_plan_programs *x = a->programs;
	if (find(a, p) || is_over(x))
		return false;
	struct entry e = { .point = *p, .global_batch = a->global_batch };
	plan_point(a, p, a->model, fo_min(FO_PLANNED_OPERATIONS, OPERATIONS_MOST - x->operations), &e.memory);
	x->operations += e.memory.operations;
	fo_array_room(&x->of, &x->cap, x->n, sizeof *x->of);
	x->of[x->n++] = e;
	return true;
}

bool fo_plan_programs_add(const struct fo_plan_asked *a, const struct fo_plan *o)
{
	struct fo_plan_programs *x = a->programs;
	bool any = false;
	if (is_over(x))
		return false;
	x->rounds++;
	any |= add(a, &o->point[o->named]);
	for (int i = 0; i < o->points && !(a->programs_of_best && i); i++)
		any |= add(a, &o->point[i]);
	return any || is_over(x);
}
