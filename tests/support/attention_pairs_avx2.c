/* Attention on pairs of bf16, whose dot products are modelled and whose 16 lanes the compiler lowers to 8: for machines
 * without AVX512_BF16 (tests/num_attention). May be called where AVX2 and FMA are. */
#pragma GCC diagnostic ignored "-Wpsabi" /* vectors wider than the target's registers never leave this file */
#define FO_LANES 16
#define FO_PAIR 2
#define FO_NAME(x) x##_pairs
#include "kernel/x86/attention.inc"
