/* A pipeline in a report: the last step that all ranks have, slot by slot, and how much of it was idle, measured and by
 * the schedule's formula with the slots' own mean times. */
#include "report/run_int.h"
#include "report/slots.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

enum { STAGES = 64 }; /* more are not read: each has a program of its own */

struct pipeline {
	struct fo_pp_shape shape;
	int32_t step; /* from 0, as spans have it */
	struct fo_draw_slots picture;
	double measured; /* idle share of the time from the first pass to the end of the last */
	double formula;  /* NAN: there is none */
	struct fo_pp_formula by;
};

/* Sums over the passes of all stages. */
static void measure(struct pipeline *x)
{
	double sum[FO_PP_WORKS] = { 0 }, from = INFINITY, to = -INFINITY, busy = 0;
	for (size_t i = 0; i < x->picture.rows; i++)
		for (size_t k = 0; k < x->picture.row[i].slots; k++) {
			const struct fo_draw_slot *s = &x->picture.row[i].slot[k];
			if (s->kind >= FO_PP_WORKS)
				continue;
			sum[s->kind] += s->to - s->from;
			from = fmin(from, s->from);
			to = fmax(to, s->to);
		}
	for (int k = 0; k < FO_PP_WORKS; k++)
		busy += sum[k];
	x->measured = to > from ? 1 - busy / ((to - from) * (double)x->picture.rows) : NAN;
	/* Of one stage and micro-batch. A whole backward counts as its input's part: no formula of such a schedule
	 * looks at the two apart. */
	const double each = (double)x->picture.rows * x->shape.micro_batches;
	fo_pp_formula_of(&x->by, &x->shape, sum[FO_PP_FORWARD] / each, (sum[FO_PP_BACKWARD] + sum[FO_PP_INPUT]) / each,
			 sum[FO_PP_WEIGHT] / each);
	x->formula = x->by.of_pipeline ? NAN : x->by.idle_s / (x->by.idle_s + busy / (double)x->picture.rows);
}

/* The first rank of each stage: its program beside its timeline. False: some stage left none. */
static bool read_stages(const struct fo_record *r, struct fo_slots_stage *stage, struct fo_program *program, int32_t n)
{
	const int32_t apart = fo_mesh_stage_ranks(&r->program.run.mesh);
	stage[0] = (struct fo_slots_stage){ &r->program, r->rank[0].timeline };
	for (int32_t s = 0; s < n; s++) {
		const struct fo_record_rank *rank = &r->rank[s * apart];
		if (!rank->timeline)
			return false;
		if (!s)
			continue;
		if (fo_timeline_program(&program[s], rank->timeline, rank->file.path) != FO_OK) {
			fo_err_clear();
			return false;
		}
		stage[s] = (struct fo_slots_stage){ &program[s], rank->timeline };
	}
	return true;
}

static bool pipeline_of(const struct fo_report *o, struct fo_doc *d, struct pipeline *x)
{
	const struct fo_record *r = o->r;
	const int32_t n = r->ranks > 1 ? fo_mesh_pp(&r->program.run.mesh) : 1;
	if (n < 2 || n > STAGES || !o->ranks.steps || r->ranks != fo_mesh_ranks(&r->program.run.mesh))
		return false;
	struct fo_program *program = fo_xmalloc((size_t)n * sizeof *program);
	struct fo_slots_stage *stage = fo_xmalloc((size_t)n * sizeof *stage);
	x->shape = fo_lowering_pipeline(&r->program.run);
	x->step = o->ranks.last_step - 1;
	bool known = read_stages(r, stage, program, n) && fo_pp_legal(&x->shape) == FO_OK &&
		     fo_slots_of_timelines(d, &x->picture, stage, n, x->step);
	fo_err_clear();
	if (known)
		measure(x);
	for (int32_t s = 1; s < n; s++)
		fo_program_fini(&program[s]);
	free(stage);
	free(program);
	return known;
}

void fo_report_draw_pipeline(const struct fo_report *o, struct fo_doc *d)
{
	struct pipeline x;
	if (!pipeline_of(o, d, &x))
		return;
	x.picture.title = fo_doc_printf(d, "Pipeline, schedule %s: step %d by stage", fo_pp_title[x.shape.kind],
					x.step + 1);
	x.picture.desc = "Each row is the first rank of a stage; gaps are idle or communication";
	fo_doc_para(d, "Pipeline, schedule %s: %d stages, %d micro-batches; step %d, the first rank of each stage",
		    fo_pp_title[x.shape.kind], x.shape.stages, x.shape.micro_batches, x.step + 1);
	fo_doc_slots(d, &x.picture);
	fo_doc_para(d,
		    "%s of the time from the first pass to the last was without passes; even stages and messages that "
		    "take no time would leave %s by %s.",
		    fo_doc_num(d, x.measured, FO_DRAW_SHARE), fo_doc_num(d, x.formula, FO_DRAW_SHARE), x.by.text);
}

void fo_report_pipeline_json(const struct fo_report *o, struct fo_json *j)
{
	struct fo_doc d = { 0 };
	struct pipeline x;
	if (pipeline_of(o, &d, &x))
		fo_json_record(j, "pipeline", FO_TEXT("schedule", fo_pp_name[x.shape.kind]),
			       FO_INT("stages", x.shape.stages), FO_INT("micro_batches", x.shape.micro_batches),
			       FO_INT("chunks", x.shape.chunks), FO_INT("step", x.step + 1),
			       FO_REAL("bubble", x.measured), FO_REAL("formula_bubble", x.formula),
			       FO_TEXT("formula", x.by.text));
	else
		fo_json_raw(j, "pipeline", "null");
	fo_doc_fini(&d);
}
