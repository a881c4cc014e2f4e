/* The AMX set: products of bf16. Everything else falls to AVX-512. */
#define FO_LANES 16
#include "kernel/x86/amx_matmul.inc"

static bool have(void) { return fo_isa_have(FO_ISA_AMX); }

static const struct fo_kernel table[FO_OP_COUNT] = {
	[FO_OP_matmul] = { .run = amx_matmul, .can = amx_matmul_can, .ws = amx_matmul_ws },
};

/* Products of other types run on the AVX-512 unit, or on none of ours. */
static double peak_burst(int dtype, int64_t n)
{
	return dtype == FO_BF16 ? amx_peak_burst(n) : fo_kernels_avx512.peak_burst(dtype, n);
}

const struct fo_kernel_set fo_kernels_amx = { "amx", FO_ISA_AMX, have, table, peak_burst };
