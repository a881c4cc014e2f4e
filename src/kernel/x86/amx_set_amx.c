/* The AMX set: matmuls of bf16, and what is made of them. Everything else falls to the sets below. */
#define FO_LANES 16
#define FO_NAME(x) x##_amx
#define FO_SET_ISA FO_ISA_AMX
#define FO_SET_TEXT "amx"
#include "kernel/x86/amx_matmul.inc"

/* Matmuls of other types do not run on this unit. */
static double peak_burst(int dtype, int64_t n) { return dtype == FO_BF16 ? amx_peak_burst(n) : 0; }

/* This set and those below it: what its kernels that are made of others choose from. */
static const struct fo_kernel_set *const sets[] = { &fo_kernels_ref, &fo_kernels_avx2, &fo_kernels_avx512,
						    &fo_kernels_avx512bf16, &fo_kernels_amx };
#include "kernel/x86/attention_eager.inc"

#define FO_SET_LIST FO_X86_AMX_LIST
#define FO_SET_PEAK peak_burst
#define FO_SET_WORTH NULL
#include "kernel/x86/set.inc"
