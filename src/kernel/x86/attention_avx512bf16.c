/* Attention with 16 lanes on dot products of bf16 pairs. */
#define FO_LANES 16
#define FO_PAIR 2
#define FO_NAME(x) x##_avx512bf16
#include "kernel/x86/attention.inc"
