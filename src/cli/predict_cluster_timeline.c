/* The timeline of a predicted step: a picture of its stages, an SVG file, a trace. */
#include "cli/predict_cluster.h"

#include "base/fs.h"

#include <math.h>
#include <stdlib.h>

enum { ON_A_PAGE = 8 }; /* stages: each takes up to 200 KB of a page */
enum { TRACED = 64 };   /* ranks of a trace: those whose steps differ */

static int by_begin(const void *a, const void *b)
{
	const struct fo_draw_span *x = a, *y = b;
	return (x->from > y->from) - (x->from < y->from);
}

/* What the ranks of a class compute or wait for; what stages send each other lies beside it and is left out. */
static void put_lane(struct fo_doc *d, const struct fo_fleet_run *run, int32_t class, struct fo_draw_lane *out)
{
	const struct fo_fleet_class *c = &run->class[class];
	const struct fo_fleet_role *r = &run->fleet->role[c->role];
	struct fo_draw_span *span = fo_doc_alloc(d, (size_t)r->ops * sizeof *span);
	size_t n = 0;
	for (int32_t i = 0; i < r->ops; i++)
		if (r->op[i].name != FO_PLAN_SEND && c->end_s[i] > c->begin_s[i])
			span[n++] = (struct fo_draw_span){ c->begin_s[i], c->end_s[i], r->op[i].name,
							   fo_plan_op_name[r->op[i].name] };
	qsort(span, n, sizeof *span, by_begin);
	*out = (struct fo_draw_lane){ fo_doc_printf(d, "%s", r->name), span, n };
}

static void lanes_of(struct fo_doc *d, const char *model, const struct fo_plan_timeline *t, size_t most,
		     struct fo_draw_lanes *out)
{
	const struct fo_fleet_run *run = &t->run;
	size_t lanes = (size_t)run->classes < most ? (size_t)run->classes : most;
	struct fo_draw_lane *lane = fo_doc_alloc(d, lanes * sizeof *lane);
	/* Of more stages than a picture holds, the first and the last ones. */
	for (size_t i = 0; i < lanes; i++) {
		size_t skip = i < (lanes + 1) / 2 ? 0 : (size_t)run->classes - lanes;
		put_lane(d, run, (int32_t)(i + skip), &lane[i]);
	}
	const char *which = lanes < (size_t)run->classes
				    ? fo_doc_printf(d, "One rank of the first and the last %zu of %d pipeline stages",
						    lanes / 2, run->classes)
				    : "One rank of each pipeline stage";
	*out = (struct fo_draw_lanes){
		.title = fo_doc_printf(d, "one predicted step of %s", model),
		.desc = fo_doc_printf(d,
				      "%s, simulated event by event from the predicted parts. Gaps are waits for other "
				      "stages. Communication that compute hides is not drawn.",
				      which),
		.to = run->step_s,
		.lane = lane,
		.lanes = lanes,
	};
	for (int i = 0; i < FO_PLAN_OPS; i++)
		out->tone_name[i] = fo_plan_op_name[i];
}

void fo_cli_timeline_lanes(struct fo_doc *d, const char *model, const struct fo_plan_timeline *t)
{
	struct fo_draw_lanes lanes;
	lanes_of(d, model, t, ON_A_PAGE, &lanes);
	fo_doc_lanes(d, &lanes);
}

void fo_cli_predicted_lanes(struct fo_doc *d, const struct fo_cli_predicted *p)
{
	if (!p->timeline)
		return;
	fo_doc_only(d, FO_DOC_PAGE);
	fo_doc_heading(d, "Timeline");
	fo_cli_timeline_lanes(d, p->asked->job.model.name, p->timeline);
	fo_doc_only(d, FO_DOC_BOTH);
}

fo_status fo_cli_predicted_write(const struct fo_cli_predicted *p, const char *svg, const char *trace)
{
	struct fo_str s = { 0 };
	struct fo_doc d = { 0 };
	fo_status st = FO_OK;
	if (svg) {
		struct fo_draw_lanes lanes;
		lanes_of(&d, p->asked->job.model.name, p->timeline, FO_DRAW_LANES, &lanes);
		fo_draw_lanes_svg(&s, &lanes);
		st = fo_fs_write_atomic(svg, s.data, s.len);
		fo_str_fini(&s);
	}
	if (st == FO_OK && trace) {
		int32_t *rank = NULL, ranks = fo_fleet_shown(&p->timeline->run, TRACED, &rank);
		fo_fleet_trace(&p->timeline->run, rank, ranks, &s);
		free(rank);
		st = fo_fs_write_atomic(trace, s.data, s.len);
		fo_str_fini(&s);
	}
	fo_doc_fini(&d);
	return st;
}
