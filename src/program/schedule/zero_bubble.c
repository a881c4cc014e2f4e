/* Zero bubble: backward in two parts. The gradient of the input is what the stage before waits for; the gradient of
 * the weights waits for nobody, so it fills the time that would be idle.
 *
 * Qi, Wan, Huang, Lin, "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv:2401.10241), section 2: the handcrafted
 * schedules ZB-H1 and ZB-H2 (figure 3). ZB-H1, four stages, six micro-batches (I: gradient of the input, B
 * in the paper):
 *
 *	stage 0  F0 F1 F2 F3 .  .  .  I0 W0 F4 I1 W1 F5 I2 W2 I3 W3 I4 W4 I5 W5
 *	stage 3  .  .  .  F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 W3 W4 W5
 *
 * ZB-H1 has 1F1B's warm-up, and stage s runs the weights' gradient of a micro-batch s input gradients late. So each
 * stage holds p micro-batches, as 1F1B's first stage does. ZB-H2 doubles both: a stage begins with 2 (p - 1 - s) + 1
 * forwards and is 2 s late, holds 2 p - 1 micro-batches, and also fills the time in front of the first gradient. */
#include "program/schedule/schedule_int.h"

#include <math.h>

/* times: 1 for ZB-H1, 2 for ZB-H2 */
static int64_t order(const struct fo_pp_shape *p, int32_t stage, int32_t times, struct fo_pp_slot *out)
{
	struct fo_pp_list l = { out, 0 };
	const int32_t m = p->micro_batches, late = times * stage;
	const int32_t warm = fo_pp_least(times * (p->stages - 1 - stage), m);
	for (int32_t mb = 0; mb < warm; mb++)
		fo_pp_put(&l, FO_PP_FORWARD, mb, 0);
	for (int32_t mb = 0; mb < m; mb++) {
		if (warm + mb < m)
			fo_pp_put(&l, FO_PP_FORWARD, warm + mb, 0);
		fo_pp_put(&l, FO_PP_INPUT, mb, 0);
		if (mb >= late)
			fo_pp_put(&l, FO_PP_WEIGHT, mb - late, 0);
	}
	for (int32_t mb = m > late ? m - late : 0; mb < m; mb++)
		fo_pp_put(&l, FO_PP_WEIGHT, mb, 0);
	return l.n;
}
static int64_t order_h1(const struct fo_pp_shape *p, int32_t stage, struct fo_pp_slot *out)
{
	return order(p, stage, 1, out);
}
static int64_t order_h2(const struct fo_pp_shape *p, int32_t stage, struct fo_pp_slot *out)
{
	return order(p, stage, 2, out);
}

static int64_t in_flight_h1(const struct fo_pp_shape *p, int32_t stage)
{
	(void)stage;
	return fo_pp_least(p->stages, p->micro_batches);
}
static int64_t in_flight_h2(const struct fo_pp_shape *p, int32_t stage)
{
	(void)stage;
	return fo_pp_least(2 * p->stages - 1, p->micro_batches);
}

/* With fewer micro-batches than stages, only m - 1 weights' gradients stand behind the last stage's last input
 * gradient. */
static void formula_h1(struct fo_pp_formula *out, const struct fo_pp_shape *p, double forward, double input,
		       double weight)
{
	out->text = "(p - 1) (F + I - W)";
	out->source = "Qi et al. 2024, section 2.3, table 2";
	out->condition = "equal stages; W no longer than F or I; at least as many micro-batches as stages";
	out->idle_s = (p->stages - 1) * (forward + input - weight);
	if (p->micro_batches < p->stages) {
		out->text = "(p - 1) (F + I) - (m - 1) W";
		out->source = "counted here, as section 2.3 of Qi et al. 2024 counts";
		out->condition = "equal stages; W no longer than F or I; fewer micro-batches than stages";
		out->idle_s = (p->stages - 1) * (forward + input) - (p->micro_batches - 1) * weight;
	}
	if (p->stages > 1 && (weight > forward || weight > input))
		out->idle_s = NAN;
}

/* The paper counts a stage's own time from its first slot to its last: it starts the next step without waiting for the
 * other stages (its section 4 checks the optimizer's step afterwards). */
static void formula_h2(struct fo_pp_formula *out, const struct fo_pp_shape *p, double forward, double input,
		       double weight)
{
	out->idle_s = (p->stages - 1) * (forward + input - 2 * weight);
	out->text = "(p - 1) (F + I - 2 W)";
	out->source = "Qi et al. 2024, section 2.3, table 2";
	out->condition = "equal stages; W no longer than F or I; at least 2 p - 1 micro-batches; no stage waits for "
			 "another between steps";
	out->of_pipeline = true;
	if (p->stages > 1 && (weight > forward || weight > input || p->micro_batches < 2 * p->stages - 1))
		out->idle_s = NAN;
}

const struct fo_pp_row fo_pp_zb_h1 = { order_h1, in_flight_h1, formula_h1 };
const struct fo_pp_row fo_pp_zb_h2 = { order_h2, in_flight_h2, formula_h2 };
