/* The kernel set of AVX2 and FMA: 8 lanes. */
#define FO_LANES 8
#define FO_NAME(x) x##_avx2
#define FO_SET_ISA FO_ISA_AVX2
#define FO_SET_TEXT "avx2"
#include "kernel/x86/vector_set.inc"
