/* Slots of pipelines as pictures. */
#include "report/slots.h"

#include <math.h>

/* Colours of the page's parts: blue forward, orange backward, sky blue and green its two halves. */
static const unsigned char tone[FO_PP_WORKS] = { 0, 1, 2, 4 };
static const char *const work_words[FO_PP_WORKS] = { "forward", "backward", "backward of the input",
						     "backward of the weights" };

static void begin(struct fo_doc *d, struct fo_draw_slots *out, int32_t stages)
{
	struct fo_draw_slot_row *row = fo_doc_alloc(d, (size_t)stages * sizeof *row);
	for (int32_t s = 0; s < stages; s++)
		row[s].name = fo_doc_printf(d, "stage %d", s);
	*out = (struct fo_draw_slots){ .letter = fo_pp_letter,
				       .kind_name = work_words,
				       .tone = tone,
				       .kinds = FO_PP_WORKS,
				       .row = row,
				       .rows = (size_t)stages };
}

void fo_slots_of_walk(struct fo_doc *d, struct fo_draw_slots *out, const struct fo_pp_plan *plan,
		      const struct fo_pp_walk *w)
{
	const struct fo_pp_shape *p = &plan->shape;
	begin(d, out, p->stages);
	struct fo_draw_slot *slot = fo_doc_alloc(d, (size_t)plan->begin[p->stages] * sizeof *slot);
	struct fo_draw_slot_row *row = (struct fo_draw_slot_row *)out->row;
	for (int32_t s = 0; s < p->stages; s++) {
		row[s].slot = slot + plan->begin[s];
		row[s].slots = (size_t)(plan->begin[s + 1] - plan->begin[s]);
		for (int64_t i = plan->begin[s]; i < plan->begin[s + 1]; i++) {
			const struct fo_pp_slot a = plan->slot[i];
			slot[i] = (struct fo_draw_slot){ .from = w->span[i].begin,
							 .to = w->span[i].end,
							 .kind = a.work,
							 .number = a.mb,
							 .part = p->chunks > 1 ? a.chunk : -1 };
		}
	}
	out->to = w->step_s;
	out->turns = true;
}

/* The work of a log's operation; -1: it is none of a slot. A log that has WEIGHT apart calls INPUT backward. */
static int work_of(const struct fo_schedule_op *op, bool apart)
{
	switch (op->kind) {
	case FO_SCHED_FORWARD: return FO_PP_FORWARD;
	case FO_SCHED_BACKWARD: return apart ? FO_PP_INPUT : FO_PP_BACKWARD;
	case FO_SCHED_WEIGHT: return FO_PP_WEIGHT;
	default: return -1;
	}
}

bool fo_slots_of_log(struct fo_doc *d, struct fo_draw_slots *out, const struct fo_schedule_log *s, int64_t step,
		     int32_t replica)
{
	const struct fo_schedule_op *op = s->op + s->step[step].first;
	const int64_t ops = s->step[step].ops;
	int64_t from = INT64_MAX, to = INT64_MIN;
	bool apart = false;
	begin(d, out, s->stages);
	struct fo_draw_slot_row *row = (struct fo_draw_slot_row *)out->row;
	for (int64_t i = 0; i < ops; i++)
		apart |= op[i].kind == FO_SCHED_WEIGHT;
	for (int64_t i = 0; i < ops; i++)
		if (op[i].replica == replica && work_of(&op[i], apart) >= 0 && op[i].end_ns > op[i].begin_ns) {
			row[op[i].stage].slots++;
			from = op[i].begin_ns < from ? op[i].begin_ns : from;
			to = op[i].end_ns > to ? op[i].end_ns : to;
		}
	if (from >= to)
		return false;
	struct fo_draw_slot **slot = fo_doc_alloc(d, (size_t)s->stages * sizeof *slot);
	for (int k = 0; k < s->stages; k++) {
		row[k].slot = slot[k] = fo_doc_alloc(d, (row[k].slots + 1) * sizeof *slot[k]);
		row[k].slots = 0;
	}
	for (int64_t i = 0; i < ops; i++) { /* by stage and begin already */
		const struct fo_schedule_op *o = &op[i];
		if (o->replica != replica || work_of(o, apart) < 0 || o->end_ns <= o->begin_ns)
			continue;
		slot[o->stage][row[o->stage].slots++] = (struct fo_draw_slot){ .from = (double)(o->begin_ns - from) *
										       1e-9,
									       .to = (double)(o->end_ns - from) * 1e-9,
									       .kind = work_of(o, apart),
									       .number = o->microbatch,
									       .part = s->chunks > 1 ? o->chunk : -1 };
	}
	out->to = (double)(to - from) * 1e-9;
	return true;
}
