/* flatout program --schedule: which slot runs when, how much of the step is idle, by the published formula and by a
 * walk through the slots, and what each stage holds. */
#include "cli/program_schedule.h"

#include "base/fs.h"
#include "program/schedule.h"
#include "report/slots.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What one schedule comes to. */
struct view {
	struct fo_pp_shape shape;
	struct fo_pp_times times;      /* of one part */
	double forward, input, weight; /* of one stage */
	struct fo_pp_plan plan;
	struct fo_pp_walk walk;
	struct fo_pp_formula formula;
	bool lanes; /* runs on in-order lanes */
};

static fo_status read_times(const char *text, struct view *v)
{
	double *const to[] = { &v->forward, &v->input, &v->weight };
	const char *s = text;
	for (int i = 0; i < 3; i++) {
		char *end;
		*to[i] = strtod(s, &end);
		/* 1e9: a turn is compared with others, and sums stay exact enough */
		if (end == s || !(*to[i] > 0) || !(*to[i] <= 1e9) || *end != (i < 2 ? ',' : '\0'))
			return fo_fail(FO_EARG,
				       "--times wants three numbers above 0 (forward, backward of the input, backward "
				       "of the weights) such as 1,1,1, not '%s'",
				       text);
		s = end + 1;
	}
	return FO_OK;
}

static fo_status view_of(struct view *v, const struct fo_cli_schedule *in, int64_t micro_batches)
{
	const enum fo_pp_kind kind = (enum fo_pp_kind)in->kind;
	v->shape = (struct fo_pp_shape){ kind, (int32_t)in->stages, (int32_t)micro_batches,
					 in->chunks ? (int32_t)in->chunks : fo_pp_chunks_usual(kind) };
	FO_TRY(fo_pp_legal(&v->shape));
	FO_TRY(read_times(in->times, v));
	v->times = (struct fo_pp_times){ .forward_s = v->forward / v->shape.chunks,
					 .input_s = v->input / v->shape.chunks,
					 .weight_s = v->weight / v->shape.chunks,
					 .send_s = in->send };
	fo_pp_plan_of(&v->plan, &v->shape);
	fo_pp_formula_of(&v->formula, &v->shape, v->forward, v->input, v->weight);
	v->lanes = fo_pp_check(&v->plan, FO_PP_LANES) == FO_OK;
	fo_err_clear();
	return fo_pp_walk_of(&v->walk, &v->plan, &v->times, v->lanes ? FO_PP_LANES : FO_PP_BUFFERED);
}

/* The share of the step that the formula leaves idle. */
static double formula_share(const struct view *v)
{
	const double work = v->shape.micro_batches * (v->forward + v->input + v->weight);
	return v->formula.idle_s / (work + v->formula.idle_s);
}
static double walk_share(const struct view *v)
{
	const double work = v->shape.micro_batches * (v->forward + v->input + v->weight);
	return v->formula.of_pipeline ? 1 - work / v->walk.pipeline_s : v->walk.bubble;
}

static void say_bubble(const struct view *v, const struct fo_cli_schedule *in, struct fo_doc *d)
{
	const struct fo_pp_formula *f = &v->formula;
	const char *of = f->of_pipeline ? "of the longest that a stage takes from its first slot to its last"
					: "of the step";
	fo_doc_line(d, "bubble", "%s of the %sstep by the walk: %.4g turns, %g of them work",
		    fo_doc_num(d, v->walk.bubble, FO_DRAW_SHARE), f->of_pipeline ? "whole " : "", v->walk.step_s,
		    v->shape.micro_batches * (v->forward + v->input + v->weight));
	if (isnan(f->idle_s))
		fo_doc_line(d, "formula", "%s does not hold for these figures: it wants %s (%s)", f->text, f->condition,
			    f->source);
	else
		fo_doc_line(d, "formula", "%s%s %s, %s; by the walk %s (%s; %s)", f->bound ? "at most " : "",
			    fo_doc_num(d, formula_share(v), FO_DRAW_SHARE), of, f->text,
			    fo_doc_num(d, walk_share(v), FO_DRAW_SHARE), f->source, f->condition);
	if (v->shape.stages == 1)
		fo_doc_line(d, "note", "one stage is no pipeline: nothing waits for another stage");
	if (in->send > 0)
		fo_doc_line(d, "sends", "%g turns each, in the walk alone: the formula has none", in->send);
}

static void say(const struct view *v, const struct fo_cli_schedule *in, const struct fo_draw_slots *c, struct fo_doc *d)
{
	struct fo_str text = { 0 };
	bool less = false;
	fo_doc_verdict(d, FO_DOC_PLAIN, NULL, "%s", c->title);
	fo_doc_slots(d, c);
	say_bubble(v, in, d);
	for (int32_t s = 0; s < v->shape.stages && s < 16; s++) {
		const int64_t from = v->plan.begin[s];
		int32_t input;
		const int32_t held = fo_pp_in_flight(v->plan.slot + from, v->plan.begin[s + 1] - from, &input);
		fo_str_printf(&text, s ? ", %d" : "%d", held);
		if (input != held)
			fo_str_printf(&text, " (%d)", input);
		less |= input != held;
	}
	if (v->shape.stages > 16)
		fo_str_puts(&text, ", ...");
	fo_str_puts(&text, v->shape.chunks > 1 ? " micro-batches x chunks" : " micro-batches");
	fo_doc_line(d, "in flight", "%s at most, by stage%s", text.data,
		    less ? "; in brackets, those without the gradient of their input" : "");
	if (!v->lanes)
		fo_doc_warning(d,
			       "This order needs messages that overtake each other: on in-order lanes, as the engine "
			       "has, it would wait for ever.");
	text.len = 0;
	fo_pp_remark(&v->shape, &text);
	if (text.len)
		fo_doc_warning(d, "%s", text.data);
	fo_str_fini(&text);
}

static void write_json(const struct view *v, const struct fo_cli_schedule *in, struct fo_json *j)
{
	const struct fo_pp_formula *f = &v->formula;
	fo_json_put(j, FO_TEXT("schedule", fo_pp_name[v->shape.kind]), FO_INT("stages", v->shape.stages),
		    FO_INT("micro_batches", v->shape.micro_batches), FO_INT("chunks", v->shape.chunks),
		    FO_REAL("forward", v->forward), FO_REAL("backward_input", v->input),
		    FO_REAL("backward_weight", v->weight), FO_REAL("send", in->send), FO_REAL("step", v->walk.step_s),
		    FO_REAL("longest_stage", v->walk.pipeline_s), FO_REAL("bubble", v->walk.bubble),
		    FO_REAL("formula_bubble", formula_share(v)),
		    FO_TEXT("formula_of", f->of_pipeline ? "longest_stage" : "step"),
		    FO_BOOL("formula_is_bound", f->bound), FO_TEXT("formula", f->text), FO_TEXT("source", f->source),
		    FO_TEXT("condition", f->condition), FO_BOOL("in_order_lanes", v->lanes));
	fo_json_array(j, "stage");
	for (int32_t s = 0; s < v->shape.stages; s++) {
		const int64_t from = v->plan.begin[s], to = v->plan.begin[s + 1];
		int32_t input;
		const int32_t held = fo_pp_in_flight(v->plan.slot + from, to - from, &input);
		fo_json_object(j, NULL);
		fo_json_put(j, FO_INT("in_flight", held), FO_INT("in_flight_before_input", input),
			    FO_REAL("busy", v->walk.busy[s]));
		fo_json_array(j, "slots");
		for (int64_t i = from; i < to; i++)
			fo_json_record(j, NULL, FO_TEXT("work", fo_pp_work_name[v->plan.slot[i].work]),
				       FO_INT("micro_batch", v->plan.slot[i].mb),
				       FO_INT("chunk", v->plan.slot[i].chunk), FO_REAL("begin", v->walk.span[i].begin),
				       FO_REAL("end", v->walk.span[i].end));
		fo_json_close(j);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void name_it(struct fo_doc *d, const struct view *v, struct fo_draw_slots *c)
{
	const char *chunks = "";
	if (v->shape.chunks > 1)
		chunks = fo_doc_printf(d, " of %d chunks", v->shape.chunks);
	c->title = fo_doc_printf(d, "schedule %s: %d %s%s, %d %s", fo_pp_title[v->shape.kind], v->shape.stages,
				 fo_word(v->shape.stages, "stage", "stages"), chunks, v->shape.micro_batches,
				 fo_word(v->shape.micro_batches, "micro-batch", "micro-batches"));
	c->desc = fo_doc_printf(d,
				"forward %g, backward of the input %g, of the weights %g turns a stage; idle for %s of "
				"the step",
				v->forward, v->input, v->weight, fo_doc_num(d, v->walk.bubble, FO_DRAW_SHARE));
}

static fo_status write_svg(const char *path, const struct fo_draw_slots *c)
{
	struct fo_str text = { 0 };
	fo_draw_slots_svg(&text, c);
	fo_status st = fo_fs_write_atomic(path, text.data, text.len);
	fo_str_fini(&text);
	return st;
}

fo_status fo_cli_schedule(const struct fo_cli_call *call, const struct fo_cli_schedule *in, int64_t micro_batches)
{
	struct view v = { .lanes = false };
	struct fo_draw_slots c;
	fo_status st = FO_OK;
	FO_TRY_OR(st, view_of(&v, in, micro_batches), done);
	fo_slots_of_walk(call->doc, &c, &v.plan, &v.walk);
	name_it(call->doc, &v, &c);
	if (in->svg)
		FO_TRY_OR(st, write_svg(in->svg, &c), done);
	if (call->json)
		write_json(&v, in, call->json);
	else
		say(&v, in, &c, call->doc);
done:
	fo_pp_walk_free(&v.walk);
	fo_pp_plan_free(&v.plan);
	return st;
}
