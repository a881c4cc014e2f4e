/* Programs of divisions, lowered for their memory alone. */
#include "plan/programs.h"

#include "base/count.h"
#include "base/opt.h"
#include "base/str.h"
#include "pass/pass.h"
#include "plan/settings.h"
#include "program/mesh_cost.h"

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

void fo_plan_memory_of_run(const struct fo_run *run, const struct fo_model *model, struct fo_plan_memory *out)
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
	else if (fo_pass_plan_job(model, &c.run, FO_PLANNED_OPERATIONS, &job) != FO_OK)
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

void fo_plan_memory_of(const struct fo_plan_asked *a, const struct fo_plan_point *p, const struct fo_model *model,
		       struct fo_plan_memory *out)
{
	struct fo_str text = { 0 };
	struct fo_opt_set set;
	struct fo_run run;
	*out = (struct fo_plan_memory){ 0 };
	if (fo_plan_settings(FO_PLAN_WORDS_FLATOUT, a, p, model, &text, &out->why)) {
		fo_opt_init(&set, fo_run_options, &run);
		if (fo_opt_read_yaml_text(&set, text.data, text.len, "plan") == FO_OK &&
		    fo_run_check(&set, &run) == FO_OK)
			fo_plan_memory_of_run(&run, model, out);
		else
			out->why = "its executor refuses the run file";
		fo_opt_fini(&set);
	}
	fo_str_fini(&text);
	fo_err_clear();
}
