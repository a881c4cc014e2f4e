/* Programs of divisions, lowered for their memory alone. */
#include "plan/programs_int.h"

#include "base/clock.h"
#include "base/count.h"
#include "base/opt.h"
#include "base/str.h"
#include "pass/pass.h"
#include "plan/settings.h"
#include "program/mesh_cost.h"

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

/* ---- a search with them ---- */

/* One division of many may take a quarter of the operations that are left. */
enum { SHARE = 4 };

static void add(const struct fo_plan_asked *a, const struct fo_plan_point *p, int64_t most)
{
	struct fo_plan_program one = { .point = *p, .global_batch = a->global_batch };
	if (a->programs_known || fo_plan_programs_find(a, p))
		return;
	plan_point(a, p, a->model, most, &one.memory);
	fo_plan_programs_put(a->programs, &one);
}

/* Plans the points of *o that have not been, first the one to take. False: not all of them fit. */
static bool add_points(const struct fo_plan_asked *a, struct fo_plan *o)
{
	struct fo_plan_programs *x = a->programs;
	bool fit = true;
	add(a, &o->point[o->named], FO_PLAN_PROGRAMS_OPERATIONS); /* whatever was planned before */
	for (int i = 0; i < o->points && !fo_plan_programs_over(x); i++)
		add(a, &o->point[i], (FO_PLAN_PROGRAMS_OPERATIONS - x->operations) / SHARE);
	for (int i = 0; i < o->points; i++)
		fit &= fo_plan_programs_fit(a, &o->point[i]);
	return fit;
}

fo_status fo_plan_search(struct fo_plan *o, const struct fo_plan_asked *a)
{
	double seconds = 0;
	for (;;) {
		const int64_t begin = fo_now_ns();
		const fo_status st = fo_plan_search_once(o, a);
		const bool fit = !a->programs || st != FO_OK || add_points(a, o);
		o->seconds = seconds += 1e-9 * (double)(fo_now_ns() - begin);
		if (fit)
			return st;
		a->programs->rounds++;
	}
}
