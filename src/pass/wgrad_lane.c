/* wgrad-lane: the matmuls that make gradients of weights run on a second compute lane.
 *
 * Nothing in backward waits for a weight gradient but the next one into the same buffer and the optimizer, while each
 * input gradient waits for the one before. So a device that has both in streams of their own always has a second kernel
 * whose thread blocks fill the multiprocessors that the last wave of the first leaves idle. Operations change lanes and
 * nothing else: unroll derives what each waits for, the plan keeps what the lane still reads (plan.c), and sums into
 * one gradient keep their order, so every bit stays.
 *
 * Gradients of biases read the same operand as the matmul in front of them and go with it. Those of norms and of the
 * embedding stay: the first are one walk with the gradient of the norm's input (pass fuse-elementwise), the second is
 * backward's last operation. */
#include "pass/pass.h"

void fo_pass_wgrad_lane(struct fo_program *p)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			struct fo_op *o = &p->block[b].op[i];
			enum fo_op_family family = fo_op_family(o->kind);
			if (o->phase == FO_WGRAD && (family == FO_OPS_MATMUL || family == FO_OPS_BIAS))
				o->lane = FO_LANE_WGRAD;
		}
}
