/* A pipeline in a report: a late step that all stages have, slot by slot, and how much of it was idle, measured and by
 * the schedule's formula with the slots' own mean times. */
#include "report/run_int.h"
#include "report/slots.h"

#include <math.h>

struct pipeline {
	struct fo_pp_shape shape;
	int32_t step; /* from 0, as spans have it */
	struct fo_draw_slots picture;
	struct fo_slots_bubble b;
};

static bool pipeline_of(const struct fo_report *o, struct fo_doc *d, struct pipeline *x)
{
	const struct fo_record *r = o->r;
	struct fo_program p;
	int files = 0;
	if (r->ranks < 2 || fo_mesh_pp(&r->program.run.mesh) < 2)
		return false;
	const char **path = fo_doc_alloc(d, (size_t)r->ranks * sizeof *path);
	for (int i = 0; i < r->ranks; i++)
		if (r->rank[i].timeline)
			path[files++] = r->rank[i].file.path;
	if (!fo_slots_of_files(d, &x->picture, path, files, &p, &x->step))
		return false;
	x->shape = fo_lowering_pipeline(&p.run);
	fo_program_fini(&p);
	fo_slots_bubble_of(&x->b, &x->picture, &x->shape);
	return true;
}

void fo_report_draw_pipeline(const struct fo_report *o, struct fo_doc *d)
{
	struct pipeline x;
	if (!pipeline_of(o, d, &x))
		return;
	fo_slots_draw(d, &x.picture, &x.shape, x.step);
	const char *of = "";
	if (x.b.by.of_pipeline)
		of = fo_doc_printf(d, ", and %s of the longest that a stage took from its first pass to its last",
				   fo_doc_num(d, x.b.longest, FO_DRAW_SHARE));
	fo_doc_para(d, "%s of the time from the first pass to the last was without passes%s.",
		    fo_doc_num(d, x.b.measured, FO_DRAW_SHARE), of);
	if (isfinite(x.b.formula))
		fo_doc_para(d, "Even stages and messages that take no time would leave %s of %s by %s.",
			    fo_doc_num(d, x.b.formula, FO_DRAW_SHARE), x.b.by.of_pipeline ? "the latter" : "it",
			    x.b.by.text);
	else
		fo_doc_para(d, "%s says nothing of these times: it wants %s.", x.b.by.text, x.b.by.condition);
}

void fo_report_pipeline_json(const struct fo_report *o, struct fo_json *j)
{
	struct fo_doc d = { 0 };
	struct pipeline x;
	if (pipeline_of(o, &d, &x))
		fo_json_record(j, "pipeline", FO_TEXT("schedule", fo_pp_name[x.shape.kind]),
			       FO_INT("stages", x.shape.stages), FO_INT("micro_batches", x.shape.micro_batches),
			       FO_INT("chunks", x.shape.chunks), FO_INT("step", x.step + 1),
			       FO_REAL("bubble", x.b.measured), FO_REAL("longest_stage_bubble", x.b.longest),
			       FO_REAL("formula_bubble", x.b.formula),
			       FO_TEXT("formula_of", x.b.by.of_pipeline ? "longest_stage" : "step"),
			       FO_TEXT("formula", x.b.by.text), FO_TEXT("condition", x.b.by.condition));
	else
		fo_json_raw(j, "pipeline", "null");
	fo_doc_fini(&d);
}
