/* The AVX512_BF16 set: what gains from dot products of bf16 pairs (VDPBF16PS). All else falls to AVX-512.
 *
 * Processors differ: on AMD's Zen 4 and Zen 5 the instruction does twice the work of an fp32 multiply-add in the same
 * time, on Intel's up to Emerald Rapids half of it. So the set is used only where its register-only loop beats that of
 * AVX-512. */
#define FO_LANES 16
#define FO_PAIR 2
#define FO_NAME(x) x##_avx512bf16
#define FO_SET_ISA FO_ISA_AVX512BF16
#define FO_SET_TEXT "avx512bf16"
#include "base/clock.h"
#include "kernel/x86/attention.inc"
#include "kernel/x86/dot_matmul.inc"

static const struct fo_kernel_set *const sets[] = { &fo_kernels_ref, &fo_kernels_avx2, &fo_kernels_avx512,
						    &fo_kernels_avx512bf16 };
#include "kernel/x86/attention_eager.inc"

#include <stdatomic.h>

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

/* Compares FLOP per second, the best of some bursts of about 20 us. The ratio is a factor of two either way, so a busy
 * machine does not reverse it. */
static bool faster(void)
{
	const struct fo_kernel_set *set[2] = { &fo_kernels_avx512, &fo_kernels_avx512bf16 };
	double best[2] = { 0, 0 };
	for (int i = 0; i < 24; i++) {
		int which = i % 2;
		int64_t start = fo_now_ns();
		double flop = set[which]->peak_burst(FO_BF16, which ? 3000 : 12000), rate;
		rate = flop / (double)(fo_now_ns() - start);
		if (i >= 4 && rate > best[which]) /* the first ones wake the unit */
			best[which] = rate;
	}
	return best[1] > best[0];
}

static bool worth(void)
{
	static atomic_int known = -1; /* every thread would find the same: a race is harmless */
	int is = atomic_load_explicit(&known, memory_order_relaxed);
	if (is < 0) {
		is = fo_isa_have(FO_ISA_AVX512BF16) && faster();
		atomic_store_explicit(&known, is, memory_order_relaxed);
	}
	return is;
}

#define FO_SET_ATTENTION
#define FO_SET_WORTH worth
#include "kernel/x86/set.inc"
