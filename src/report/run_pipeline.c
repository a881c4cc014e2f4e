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
	double longest;  /* the same of the longest that one stage takes from its first pass to its last */
	double formula;  /* of the one that `by` is about; NAN: it does not hold for these times */
	struct fo_pp_formula by;
};

/* Sums over the passes of all stages. */
static void measure(struct pipeline *x)
{
	double sum[FO_PP_WORKS] = { 0 }, from = INFINITY, to = -INFINITY, busy = 0, longest = 0;
	for (size_t i = 0; i < x->picture.rows; i++) {
		double first = INFINITY, last = -INFINITY;
		for (size_t k = 0; k < x->picture.row[i].slots; k++) {
			const struct fo_draw_slot *s = &x->picture.row[i].slot[k];
			if (s->kind >= FO_PP_WORKS)
				continue;
			sum[s->kind] += s->to - s->from;
			first = fmin(first, s->from);
			last = fmax(last, s->to);
		}
		from = fmin(from, first);
		to = fmax(to, last);
		longest = fmax(longest, last - first);
	}
	for (int k = 0; k < FO_PP_WORKS; k++)
		busy += sum[k];
	x->longest = longest > 0 ? 1 - busy / (longest * (double)x->picture.rows) : NAN;
	x->measured = to > from ? 1 - busy / ((to - from) * (double)x->picture.rows) : NAN;
	/* Of one stage and micro-batch. A whole backward counts as its input's part: no formula of such a schedule
	 * looks at the two apart. */
	const double each = (double)x->picture.rows * x->shape.micro_batches;
	fo_pp_formula_of(&x->by, &x->shape, sum[FO_PP_FORWARD] / each, (sum[FO_PP_BACKWARD] + sum[FO_PP_INPUT]) / each,
			 sum[FO_PP_WEIGHT] / each);
	x->formula = x->by.idle_s / (x->by.idle_s + busy / (double)x->picture.rows);
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
	const char *of = "";
	if (x.by.of_pipeline)
		of = fo_doc_printf(d, ", and %s of the longest that a stage took from its first pass to its last",
				   fo_doc_num(d, x.longest, FO_DRAW_SHARE));
	fo_doc_para(d, "%s of the time from the first pass to the last was without passes%s.",
		    fo_doc_num(d, x.measured, FO_DRAW_SHARE), of);
	if (isfinite(x.formula))
		fo_doc_para(d, "Even stages and messages that take no time would leave %s of %s by %s.",
			    fo_doc_num(d, x.formula, FO_DRAW_SHARE), x.by.of_pipeline ? "the latter" : "it", x.by.text);
	else
		fo_doc_para(d, "%s says nothing of these times: it wants %s.", x.by.text, x.by.condition);
}

void fo_report_pipeline_json(const struct fo_report *o, struct fo_json *j)
{
	struct fo_doc d = { 0 };
	struct pipeline x;
	if (pipeline_of(o, &d, &x))
		fo_json_record(j, "pipeline", FO_TEXT("schedule", fo_pp_name[x.shape.kind]),
			       FO_INT("stages", x.shape.stages), FO_INT("micro_batches", x.shape.micro_batches),
			       FO_INT("chunks", x.shape.chunks), FO_INT("step", x.step + 1),
			       FO_REAL("bubble", x.measured), FO_REAL("longest_stage_bubble", x.longest),
			       FO_REAL("formula_bubble", x.formula),
			       FO_TEXT("formula_of", x.by.of_pipeline ? "longest_stage" : "step"),
			       FO_TEXT("formula", x.by.text), FO_TEXT("condition", x.by.condition));
	else
		fo_json_raw(j, "pipeline", "null");
	fo_doc_fini(&d);
}
