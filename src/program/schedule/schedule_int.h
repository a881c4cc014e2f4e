/* Inside src/program/schedule: what each schedule's file gives. */
#ifndef FO_PROGRAM_SCHEDULE_INT_H
#define FO_PROGRAM_SCHEDULE_INT_H

#include "program/schedule.h"

struct fo_pp_row {
	int64_t (*order)(const struct fo_pp_shape *p, int32_t stage, struct fo_pp_slot *out);
	int64_t (*in_flight)(const struct fo_pp_shape *p, int32_t stage);
	/* forward, input, weight: seconds of a whole stage, as fo_pp_formula_of. */
	void (*formula)(struct fo_pp_formula *out, const struct fo_pp_shape *p, double forward, double input,
			double weight);
};
extern const struct fo_pp_row fo_pp_gpipe, fo_pp_1f1b, fo_pp_interleaved, fo_pp_zb_h1, fo_pp_zb_h2, fo_pp_dualpipe_v;

/* A list that grows in the caller's memory. */
struct fo_pp_list {
	struct fo_pp_slot *slot;
	int64_t n;
};
static inline void fo_pp_put(struct fo_pp_list *l, enum fo_pp_work work, int32_t mb, int32_t chunk)
{
	l->slot[l->n++] = (struct fo_pp_slot){ .mb = mb, .chunk = (int16_t)chunk, .work = (uint8_t)work };
}
static inline int32_t fo_pp_least(int64_t a, int64_t b) { return (int32_t)(a < b ? a : b); }

#endif
