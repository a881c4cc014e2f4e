/* Dot products of bf16 pairs into fp32 (VDPBF16PS), as the instruction where it exists and as a model where code must
 * be tested without it.
 *
 * A vector of pairs holds FO_LANES pairs of bf16, the even element of each in the lower half of the lane. v_dot(c, a,
 * b) adds the products of both halves to c. Denormal operands and results count as zero, and each multiply-add rounds
 * to nearest even (Intel SDM volume 2, VDPBF16PS). The model (tests/num16) does the same by two multiply-adds, the odd
 * elements first. */
#ifndef FO_KERNEL_X86_DOT_H
#define FO_KERNEL_X86_DOT_H

#include "kernel/x86/vec.h"

typedef vi vp; /* FO_LANES pairs of bf16 */

FO_INLINE vp vp_load(const void *pairs)
{
	vp v;
	memcpy(&v, pairs, sizeof v);
	return v;
}
FO_INLINE void vp_store(void *pairs, vp v) { memcpy(pairs, &v, sizeof v); }

/* One pair in every lane. */
FO_INLINE vp vp_set1(const void *pair)
{
	int32_t x;
	memcpy(&x, pair, sizeof x);
	return x - (vp){ 0 };
}

#if FO_LANES == 16 && defined __AVX512BF16__
FO_INLINE vf v_dot(vf c, vp a, vp b) { return (vf)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b); }
#else
FO_INLINE vf v_dot(vf c, vp a, vp b)
{
	const vi high = (vi){ 0 } - 0x10000;
	vf odd = v_fma(v_flush((vf)(a & high)), v_flush((vf)(b & high)), v_flush(c));
	vf even = v_fma(v_flush((vf)(a << 16)), v_flush((vf)(b << 16)), v_flush(odd));
	return v_flush(even);
}
#endif

#endif
