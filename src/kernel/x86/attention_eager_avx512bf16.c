#define FO_LANES 16
#define FO_NAME(x) x##_avx512bf16
#define FO_SET_ISA FO_ISA_AVX512BF16
#include "kernel/x86/attention_eager.inc"
