#define FO_LANES 16
#define FO_NAME(x) x##_avx512
#include "kernel/x86/fp8.inc"
