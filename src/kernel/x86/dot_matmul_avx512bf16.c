#define FO_LANES 16
#define FO_NAME(x) x##_avx512bf16
#include "kernel/x86/dot_matmul.inc"
