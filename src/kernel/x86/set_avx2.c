#define FO_LANES 8
#define FO_NAME(x) x##_avx2
#define FO_SET_ISA FO_ISA_AVX2
#define FO_SET_TEXT "avx2"
#include "kernel/kernel.h"

/* This set and those below it: what its kernels that are made of others choose from. */
static const struct fo_kernel_set *const sets[] = { &fo_kernels_ref, &fo_kernels_avx2 };
#include "kernel/x86/attention_eager.inc"
#include "kernel/x86/vector_set.inc"
