/* The AVX512_BF16 set: what gains from dot products of bf16 pairs (VDPBF16PS). All else falls to AVX-512.
 *
 * Processors differ: on AMD's Zen 4 and Zen 5 the instruction does twice the work of an fp32 multiply-add in the same
 * time, on Intel's up to Emerald Rapids half of it. So the set is used on AMD's. */
#define FO_LANES 16
#define FO_PAIR 2
#define FO_NAME(x) x##_avx512bf16
#define FO_SET_ISA FO_ISA_AVX512BF16
#define FO_SET_TEXT "avx512bf16"
#include "kernel/x86/attention.inc"
#include "kernel/x86/dot_matmul.inc"

static const struct fo_kernel_set *const sets[] = { &fo_kernels_ref, &fo_kernels_avx2, &fo_kernels_avx512,
						    &fo_kernels_avx512bf16 };
#include "kernel/x86/attention_eager.inc"

#include <cpuid.h>

/* n rounds of 24 independent sums (two pipes times the latency need ten to twelve), each of a random operand times
 * another and then times its negative: sums stay between two random numbers for ever, and their bits toggle. Nothing
 * but registers is touched. */
static double peak_burst(int dtype, int64_t n)
{
	enum { SUMS = 24 };
	vf sum[SUMS];
	vp a, b, minus;
	if (dtype != FO_BF16)
		return 0;
	for (int i = 0; i < FO_LANES; i++) {
		uint32_t x = (uint32_t)(i + 1) * 0x9e3779b9u, y = (uint32_t)(i + 1) * 0x85ebca6bu;
		a[i] = (int32_t)(0x3f803f80u | (x & 0x007f007fu)); /* both in [1, 2) */
		b[i] = (int32_t)(0x3f803f80u | (y & 0x007f007fu));
		minus[i] = (int32_t)((uint32_t)b[i] | 0x80008000u);
	}
	for (int i = 0; i < SUMS; i++)
		sum[i] = v_set1(0.01f + 0.37f * (float)i);
	for (int64_t k = 0; k < n; k++) {
#pragma GCC unroll 24
		for (int i = 0; i < SUMS; i++)
			sum[i] = v_dot(sum[i], a, b);
#pragma GCC unroll 24
		for (int i = 0; i < SUMS; i++)
			sum[i] = v_dot(sum[i], a, minus);
	}
	__asm__ volatile("" : : "r"(sum) : "memory"); /* the compiler must assume that they are read */
	return 2.0 * SUMS * FO_LANES * 4 * (double)n;
}

/* By the maker's name, not by a measurement: the choice decides bits, and a run must have the same ones whatever else
 * the machine does while it begins. */
static bool worth(void)
{
	char maker[12];
	uint32_t leaf;
	return fo_isa_have(FO_ISA_AVX512BF16) &&
	       __get_cpuid(0, &leaf, (uint32_t *)maker, (uint32_t *)(maker + 8), (uint32_t *)(maker + 4)) &&
	       fo_isa_dots_gain(maker);
}

#define FO_SET_ATTENTION
#define FO_SET_WORTH worth
#include "kernel/x86/set.inc"
