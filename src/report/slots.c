/* Slots of pipelines as pictures. */
#include "report/slots.h"

#include <math.h>

/* X(letter, words, colour of the page's parts), the work of slots in the order of enum fo_pp_work, then what logs have
 * beside it. */
#define KINDS(X)                             \
	X('F', "forward", 0)                 \
	X('B', "backward", 1)                \
	X('I', "backward of the input", 2)   \
	X('W', "backward of the weights", 4) \
	X('C', "collective", 3)              \
	X('O', "optimizer", 6)               \
	X('P', "pause", 7)
enum { COLLECTIVE = FO_PP_WORKS, OPTIMIZER, PAUSE, ALL };
#define LETTER(letter, words, tone) letter,
#define WORDS(letter, words, tone) words,
#define TONE(letter, words, tone) tone,
static const char letters[ALL] = { KINDS(LETTER) };
static const char *const kind_words[ALL] = { KINDS(WORDS) };
static const unsigned char tones[ALL] = { KINDS(TONE) };

static void begin(struct fo_doc *d, struct fo_draw_slots *out, int32_t stages)
{
	struct fo_draw_slot_row *row = fo_doc_alloc(d, (size_t)stages * sizeof *row);
	for (int32_t s = 0; s < stages; s++)
		row[s].name = fo_doc_printf(d, "stage %d", s);
	*out = (struct fo_draw_slots){ .letter = letters,
				       .kind_name = kind_words,
				       .tone = tones,
				       .kinds = ALL,
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

/* The kind of a log's operation; -1: transfers, which lie beside passes and would hide where these leave the stage
 * empty. A log that has the weights' part of backward apart calls the input's part backward. */
static int kind_of(const struct fo_schedule_op *op, bool apart)
{
	switch (op->kind) {
	case FO_SCHED_FORWARD: return FO_PP_FORWARD;
	case FO_SCHED_BACKWARD: return apart ? FO_PP_INPUT : FO_PP_BACKWARD;
	case FO_SCHED_WEIGHT: return FO_PP_WEIGHT;
	case FO_SCHED_FORWARD_SEND:
	case FO_SCHED_FORWARD_RECV:
	case FO_SCHED_BACKWARD_SEND:
	case FO_SCHED_BACKWARD_RECV: return -1;
	case FO_SCHED_OPTIMIZER: return OPTIMIZER;
	case FO_SCHED_PAUSE: return PAUSE;
	default: return COLLECTIVE;
	}
}
static bool is_drawn(const struct fo_schedule_op *op, int32_t replica, bool apart)
{
	return op->replica == replica && op->end_ns > op->begin_ns && kind_of(op, apart) >= 0;
}

bool fo_slots_of_log(struct fo_doc *d, struct fo_draw_slots *out, const struct fo_schedule_log *s, int64_t step,
		     int32_t replica)
{
	const struct fo_schedule_op *op = s->op + s->step[step].first;
	const int64_t ops = s->step[step].ops;
	bool apart = false;
	begin(d, out, s->stages);
	struct fo_draw_slot_row *row = (struct fo_draw_slot_row *)out->row;
	for (int64_t i = 0; i < ops; i++)
		apart |= op[i].kind == FO_SCHED_WEIGHT;
	for (int64_t i = 0; i < ops; i++)
		if (is_drawn(&op[i], replica, apart)) {
			row[op[i].stage].slots++;
			out->to = fmax(out->to, (double)op[i].end_ns * 1e-9);
		}
	struct fo_draw_slot **slot = fo_doc_alloc(d, (size_t)s->stages * sizeof *slot);
	for (int k = 0; k < s->stages; k++) {
		row[k].slot = slot[k] = fo_doc_alloc(d, (row[k].slots + 1) * sizeof *slot[k]);
		row[k].slots = 0;
	}
	for (int64_t i = 0; i < ops; i++) { /* by stage and begin already */
		const struct fo_schedule_op *o = &op[i];
		if (!is_drawn(o, replica, apart))
			continue;
		const bool pass = kind_of(o, apart) < FO_PP_WORKS;
		slot[o->stage][row[o->stage].slots++] = (struct fo_draw_slot){ .from = (double)o->begin_ns * 1e-9,
									       .to = (double)o->end_ns * 1e-9,
									       .kind = kind_of(o, apart),
									       .number = pass ? o->microbatch : -1,
									       .part = pass && s->chunks > 1 ? o->chunk
													     : -1 };
	}
	return out->to > 0;
}
