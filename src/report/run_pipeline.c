/* A pipeline in a report: a late step that all stages have, slot by slot, and how much of it was idle, measured and by
 * the schedule's formula with the slots' own mean times. */
#include "report/run_int.h"
#include "report/slots.h"

#include <math.h>

struct pipeline {
	struct fo_pp_shape shape;
	int32_t step; /* from 0, as spans have it */
	struct fo_draw_slots picture;
	struct fo_slots_bubble bubble;
};

/* False: *why says why nothing is known of it; NULL: the run has no pipeline. */
static bool pipeline_of(const struct fo_report *o, struct fo_doc *d, struct pipeline *x, const char **why)
{
	const struct fo_record *r = o->r;
	struct fo_program p;
	int files = 0;
	*why = NULL;
	if (r->ranks < 2 || fo_mesh_pp(&r->program.run.mesh) < 2)
		return false;
	const char **path = fo_doc_alloc(d, (size_t)r->ranks * sizeof *path);
	for (int i = 0; i < r->ranks; i++)
		if (r->rank[i].timeline)
			path[files++] = r->rank[i].file.path;
	if (!fo_slots_of_files(d, &x->picture, path, files, &p, &x->step, why)) {
		*why = *why ? *why : "no stage left a timeline that can be read";
		return false;
	}
	x->shape = fo_lowering_pipeline(&p.run);
	fo_program_fini(&p);
	fo_slots_bubble_of(&x->bubble, &x->picture, &x->shape);
	return true;
}

void fo_report_say_pipeline(const struct fo_report *o, struct fo_doc *d)
{
	struct pipeline x;
	const char *why;
	if (pipeline_of(o, d, &x, &why))
		fo_doc_verdict(d, FO_DOC_PLAIN, "bubble", "%s", fo_slots_bubble_text(d, &x.bubble, x.step));
	else if (why)
		fo_doc_verdict(d, FO_DOC_PLAIN, "bubble", "not known: %s", why);
}

void fo_report_draw_pipeline(const struct fo_report *o, struct fo_doc *d)
{
	struct pipeline x;
	const char *why, *of = "";
	if (!pipeline_of(o, d, &x, &why))
		return;
	fo_slots_draw(d, &x.picture, &x.shape, x.step);
	const struct fo_slots_bubble *b = &x.bubble;
	if (b->by.of_pipeline)
		of = fo_doc_printf(d, ", and %s of the longest that a stage took from its first pass to its last",
				   fo_doc_num(d, b->longest, FO_DRAW_SHARE));
	fo_doc_para(d, "%s of the time from the first pass to the last was without passes%s; %s.",
		    fo_doc_num(d, b->measured, FO_DRAW_SHARE), of, fo_slots_formula_text(d, b));
}

void fo_report_pipeline_json(const struct fo_report *o, struct fo_json *j)
{
	struct fo_doc d = { 0 };
	struct pipeline x;
	const char *why;
	if (pipeline_of(o, &d, &x, &why))
		fo_slots_bubble_json(j, &x.bubble, &x.shape, x.step);
	else
		fo_json_raw(j, "pipeline", "null");
	fo_doc_fini(&d);
}
