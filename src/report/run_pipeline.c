/* A pipeline in a report: a late step that all stages have, slot by slot, and how much of it was idle, measured and by
 * the schedule's formula with the slots' own mean times. */
#include "report/run_int.h"
#include "report/slots.h"

#include <math.h>

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
	measure(x);
	return true;
}

void fo_report_draw_pipeline(const struct fo_report *o, struct fo_doc *d)
{
	struct pipeline x;
	if (!pipeline_of(o, d, &x))
		return;
	fo_slots_draw(d, &x.picture, &x.shape, x.step);
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
