/* 1F1B: a stage starts a backward as soon as it can, so that it holds no more micro-batches than there are stages from
 * it to the last.
 *
 * Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", 2021
 * (arXiv:2104.04473), section 2.2.1 and figure 4 (top): "PipeDream-Flush". Four stages, four micro-batches:
 *
 *	stage 0  F0 F1 F2 F3 .  .  .  B0 .  B1 .  B2 .  B3
 *	stage 1  .  F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3 .
 *	stage 2  .  .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .  .
 *	stage 3  .  .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .  .
 */
#include "program/schedule/schedule_int.h"

/* Forwards before the first pair of forward and backward: one for each stage behind this one. */
static int32_t warm_up(const struct fo_pp_shape *p, int32_t stage)
{
	return fo_pp_least(p->stages - 1 - stage, p->micro_batches);
}

static int64_t order(const struct fo_pp_shape *p, int32_t stage, struct fo_pp_slot *out)
{
	struct fo_pp_list l = { out, 0 };
	const int32_t warm = warm_up(p, stage);
	for (int32_t mb = 0; mb < warm; mb++)
		fo_pp_put(&l, FO_PP_FORWARD, mb, 0);
	for (int32_t mb = 0; mb < p->micro_batches; mb++) {
		if (warm + mb < p->micro_batches)
			fo_pp_put(&l, FO_PP_FORWARD, warm + mb, 0);
		fo_pp_put(&l, FO_PP_BACKWARD, mb, 0);
	}
	return l.n;
}

static int64_t in_flight(const struct fo_pp_shape *p, int32_t stage)
{
	return fo_pp_least(p->stages - stage, p->micro_batches);
}

static void formula(struct fo_pp_formula *out, const struct fo_pp_shape *p, double forward, double input, double weight)
{
	out->idle_s = (p->stages - 1) * (forward + input + weight);
	out->text = "(p - 1) (F + B)";
	out->source = "Narayanan et al. 2021, section 2.2.1: (p - 1) / m of the ideal time";
	out->condition = "equal stages; any number of micro-batches";
}

const struct fo_pp_row fo_pp_1f1b = { order, in_flight, formula };
