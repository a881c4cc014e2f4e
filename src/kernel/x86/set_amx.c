/* The kernel set of AMX: matmuls of bf16, and what is made of them. Everything else falls to the sets below. */
#define FO_LANES 16
#define FO_NAME(x) x##_amx
#define FO_SET_ISA FO_ISA_AMX
#define FO_SET_TEXT "amx"
#include "kernel/x86/amx_matmul.inc"

static const struct fo_kernel_set *const sets[] = { &fo_kernels_ref, &fo_kernels_avx2, &fo_kernels_avx512,
						    &fo_kernels_avx512bf16, &fo_kernels_amx };
#include "kernel/x86/attention_eager.inc"

/* Matmuls of other types do not run on this unit. */
static double peak_burst(int dtype, int64_t n) { return dtype == FO_BF16 ? amx_peak_burst(n) : 0; }

#define FO_SET_WORTH NULL
#include "kernel/x86/set.inc"
