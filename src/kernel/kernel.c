/* The table of kernel sets, and the choices from it. */
#include "kernel/kernel.h"

#include <stdlib.h>

/* Sets by instruction set; a row that a set leaves out falls to the next lower one. */
const struct fo_kernel_set *const fo_kernel_sets[FO_ISA_COUNT] = {
	&fo_kernels_ref,
#ifdef __x86_64__
	&fo_kernels_avx2, &fo_kernels_avx512, &fo_kernels_avx512bf16, &fo_kernels_amx,
#endif
};

fo_status fo_isa_choose(enum fo_isa *out)
{
	const char *want = getenv("FLATOUT_ISA");
	enum fo_isa isa;
	if (!want || !*want) {
		*out = fo_isa_best_of(fo_kernel_sets, fo_isa_top());
		return FO_OK;
	}
	if (!fo_isa_named(want, &isa)) {
		fo_fail(FO_EARG, "FLATOUT_ISA is '%.40s', which is not an instruction set", want);
		return fo_hint(FO_EARG, "it may be ref, avx2, avx512, avx512bf16 or amx");
	}
	if (!fo_isa_have(isa)) {
		fo_fail(FO_EUNSUPPORTED, "FLATOUT_ISA is '%s', but this machine has only '%s'", want,
			fo_isa_name[fo_isa_top()]);
		return fo_hint(FO_EUNSUPPORTED, "unset FLATOUT_ISA, or set it to '%s' or lower",
			       fo_isa_name[fo_isa_top()]);
	}
	*out = isa;
	return FO_OK;
}

const struct fo_kernel *fo_kernel_pick(enum fo_isa isa, const struct fo_call *shape, const struct fo_kernel_set **set)
{
	return fo_kernel_pick_of(fo_kernel_sets, isa, shape, set);
}
