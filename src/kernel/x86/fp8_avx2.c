#define FO_LANES 8
#define FO_NAME(x) x##_avx2
#include "kernel/x86/fp8.inc"
