/* The AVX512_BF16 set: what gains from dot products of bf16 pairs (VDPBF16PS). Everything else falls to AVX-512.
 *
 * Processors differ: on AMD's Zen 4 and Zen 5 the instruction does twice the work of an fp32 multiply-add in the same
 * time, on Intel's up to Emerald Rapids half of it. So the set is taken only where its register-only loop beats that of
 * AVX-512. */
#define FO_LANES 16
#include "base/clock.h"
#include "kernel/x86/attention.h"
#include "kernel/x86/dot.h"
#include "kernel/x86/x86.h"

#include <stdatomic.h>

static bool have(void) { return fo_isa_have(FO_ISA_AVX512BF16); }

/* n rounds of 24 independent sums (two pipes times the latency need ten to twelve) of a random operand times another
 * and then times its negative: sums stay between two random numbers for ever and their bits toggle. Nothing but
 * registers is touched. */
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
	__asm__ volatile("" : : "r"(sum) : "memory"); /* somebody might look at them */
	return 2.0 * SUMS * FO_LANES * 4 * (double)n;
}

/* FLOP per second of the best of some bursts of about 20 us: the ratio is a factor of two either way, so a busy machine
 * does not turn it. */
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
		is = have() && faster();
		atomic_store_explicit(&known, is, memory_order_relaxed);
	}
	return is;
}

static const struct fo_kernel table[FO_OP_COUNT] = {
	[FO_OP_matmul] = { .run = fo_matmul_avx512bf16,
			   .can = fo_matmul_can_avx512bf16,
			   .ws = fo_matmul_ws_avx512bf16 },
	[FO_OP_attention] = { .run = fo_attention_avx512bf16,
			      .can = fo_attention_can_avx512bf16,
			      .ws = fo_attention_ws_avx512bf16 },
	[FO_OP_attention_bwd] = { .run = fo_attention_bwd_avx512bf16,
				  .can = fo_attention_can_avx512bf16,
				  .ws = fo_attention_bwd_ws_avx512bf16 },
	[FO_OP_attention_eager] = { .run = fo_attention_eager_avx512bf16,
				    .can = fo_attention_eager_can_avx512bf16,
				    .ws = fo_attention_eager_ws_avx512bf16 },
	[FO_OP_attention_eager_bwd] = { .run = fo_attention_eager_bwd_avx512bf16,
					.can = fo_attention_eager_can_avx512bf16,
					.ws = fo_attention_eager_ws_avx512bf16 },
};

const struct fo_kernel_set fo_kernels_avx512bf16 = { "avx512bf16", FO_ISA_AVX512BF16, have, worth, table, peak_burst };
