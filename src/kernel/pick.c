/* The choice of a set and of a kernel from any table of sets. It knows no set itself, so that kernels made of other
 * kernels may use it. */
#include "kernel/kernel.h"

static bool worth(const struct fo_kernel_set *set) { return !set || !set->worth || set->worth(); }

enum fo_isa fo_isa_best_of(const struct fo_kernel_set *const *sets, enum fo_isa top)
{
	while (top > FO_ISA_REF && !worth(sets[top]))
		top--;
	return top;
}

const struct fo_kernel *fo_kernel_pick_of(const struct fo_kernel_set *const *sets, enum fo_isa isa,
					  const struct fo_call *shape, const struct fo_kernel_set **set)
{
	const struct fo_kernel_set *found = sets[FO_ISA_REF];

	for (int i = isa; i > FO_ISA_REF; i--) {
		const struct fo_kernel *k = sets[i] ? &sets[i]->kernel[shape->kind] : NULL;

		if (k && k->run && (!k->can || k->can(shape)) && (i == (int)isa || worth(sets[i]))) {
			found = sets[i];
			break;
		}
	}
	if (set)
		*set = found;
	return &found->kernel[shape->kind];
}
