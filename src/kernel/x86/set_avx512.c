/* The kernel set of AVX-512 (F, BW, VL, DQ): 16 lanes. */
#define FO_LANES 16
#define FO_NAME(x) x##_avx512
#define FO_SET_ISA FO_ISA_AVX512
#define FO_SET_TEXT "avx512"
#include "kernel/x86/vector_set.inc"
