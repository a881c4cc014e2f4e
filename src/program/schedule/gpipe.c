/* GPipe: all forwards, then all backwards.
 *
 * Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", 2019
 * (arXiv:1811.06965), section 2.3 and figure 2c. Four stages, four micro-batches:
 *
 *	stage 0  F0 F1 F2 F3 .  .  .  .  .  .  B0 B1 B2 B3
 *	stage 1  .  F0 F1 F2 F3 .  .  .  .  B0 B1 B2 B3 .
 *	stage 2  .  .  F0 F1 F2 F3 .  .  B0 B1 B2 B3 .  .
 *	stage 3  .  .  .  F0 F1 F2 F3 B0 B1 B2 B3 .  .  .
 *
 * The figure runs the backwards from the last micro-batch to the first. Here they run from the first to the last, so
 * that gradients are added up in the order of the micro-batches, as every other schedule does. Time and memory are the
 * same. */
#include "program/schedule/schedule_int.h"

static int64_t order(const struct fo_pp_shape *p, int32_t stage, struct fo_pp_slot *out)
{
	struct fo_pp_list l = { out, 0 };
	(void)stage;
	for (int32_t mb = 0; mb < p->micro_batches; mb++)
		fo_pp_put(&l, FO_PP_FORWARD, mb, 0);
	for (int32_t mb = 0; mb < p->micro_batches; mb++)
		fo_pp_put(&l, FO_PP_BACKWARD, mb, 0);
	return l.n;
}

static int64_t in_flight(const struct fo_pp_shape *p, int32_t stage)
{
	(void)stage;
	return p->micro_batches;
}

/* The pipeline fills once and drains once, forward and backward. */
static void formula(struct fo_pp_formula *out, const struct fo_pp_shape *p, double forward, double input, double weight)
{
	out->idle_s = (p->stages - 1) * (forward + input + weight);
	out->text = "(p - 1) (F + B)";
	out->source = "Huang et al. 2019 (GPipe), section 2.3: O((p - 1) / (m + p - 1)) of the step";
	out->condition = "equal stages; any number of micro-batches";
}

const struct fo_pp_row fo_pp_gpipe = { order, in_flight, formula };
