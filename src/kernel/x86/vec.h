/* Vectors of FO_LANES floats, for sources that are compiled once per instruction set: set_avx2.c (8 lanes) and
 * set_avx512.c (16 lanes) include them. GCC's vector extensions lower any width to what the -m flags allow, so tests
 * build the 16-lane code on machines without AVX-512 (FO_LANES 16 with -mavx2) and hold it to the same results.
 * Multiplications and additions contract to FMA (-ffp-contract=fast). */
#ifndef FO_KERNEL_X86_VEC_H
#define FO_KERNEL_X86_VEC_H

#include "base/count.h"
#include "kernel/kernel.h"

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef FO_LANES
#error "define FO_LANES to 8 or 16 before including vec.h"
#endif

#define FO_INLINE static inline __attribute__((always_inline, unused))
#ifdef __clang__
#define MM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MM_UNROLL _Pragma("GCC unroll 16")
#endif

typedef float vf __attribute__((vector_size(FO_LANES * 4)));
typedef int32_t vi __attribute__((vector_size(FO_LANES * 4)));
typedef uint32_t vu __attribute__((vector_size(FO_LANES * 4)));
typedef uint16_t vh __attribute__((vector_size(FO_LANES * 2)));
typedef double vd __attribute__((vector_size(FO_LANES * 8)));

/* (vf){ 0 } + x would be an addition where x is not known, because it turns -0 into 0. */
FO_INLINE vf v_set1(float x)
{
#if FO_LANES == 8
	return (vf){ x, x, x, x, x, x, x, x };
#else
	return (vf){ x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x };
#endif
}
FO_INLINE vf v_load(const float *p)
{
	vf v;
	memcpy(&v, p, sizeof v);
	return v;
}
FO_INLINE void v_store(float *p, vf v) { memcpy(p, &v, sizeof v); }
FO_INLINE vf v_fma(vf a, vf b, vf c) { return a * b + c; }
FO_INLINE vf v_select(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }
/* Denormals become zeros of the same sign, as in the units that multiply bf16: for models of them. */
FO_INLINE vf v_flush(vf x)
{
	vi bits = (vi)x, normal = (bits & 0x7f800000) != 0;
	return (vf)(bits & (normal | (vi)v_set1(-0.0f)));
}
FO_INLINE vf v_max(vf a, vf b)
{
#if FO_LANES == 8 && defined __AVX__
	return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif FO_LANES == 16 && defined __AVX512F__
	return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#else
	return v_select(a > b, a, b);
#endif
}
FO_INLINE vf v_min(vf a, vf b)
{
#if FO_LANES == 8 && defined __AVX__
	return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#elif FO_LANES == 16 && defined __AVX512F__
	return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#else
	return v_select(a < b, a, b);
#endif
}
/* Sum and maximum of the lanes, in a fixed tree order. */
FO_INLINE float v_sum(vf v)
{
#if FO_LANES == 16 && defined __AVX512F__
	/* The same tree without a round trip through memory, whose latency shows in short rows. */
	__m256 a = _mm512_castps512_ps256((__m512)v) + _mm512_extractf32x8_ps((__m512)v, 1);
	__m128 b = _mm256_castps256_ps128(a) + _mm256_extractf128_ps(a, 1);
	b += _mm_movehl_ps(b, b);
	return b[0] + b[1];
#else
	float t[FO_LANES];
	v_store(t, v);
	for (int w = FO_LANES / 2; w; w /= 2)
		for (int i = 0; i < w; i++)
			t[i] += t[i + w];
	return t[0];
#endif
}
FO_INLINE float v_hmax(vf v)
{
	float t[FO_LANES];
	v_store(t, v);
	for (int w = FO_LANES / 2; w; w /= 2)
		for (int i = 0; i < w; i++)
			t[i] = t[i] > t[i + w] ? t[i] : t[i + w];
	return t[0];
}

/* Eight lanes whatever FO_LANES is, for code that works by eight. */
typedef float v8 __attribute__((vector_size(32)));
typedef uint16_t v8h __attribute__((vector_size(16)));
typedef uint32_t v8u __attribute__((vector_size(32)));

/* bf16, rounded to nearest even; NaN stays NaN. */
FO_INLINE v8 v8_from_bf16(v8h h)
{
#ifdef __AVX2__
	return (v8)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)h),
				     16); /* GCC widens in two halves and joins them */
#else
	return (v8)(__builtin_convertvector(h, v8u) << 16);
#endif
}
FO_INLINE v8h v8_to_bf16(v8 v)
{
	v8u u = (v8u)v, r = u + 0x7fff + (u >> 16 & 1);
#ifdef __AVX2__
	/* GCC's own narrowing to 16 bits goes lane by lane through byte shuffles. */
	__m256 quiet = _mm256_or_ps((__m256)v, (__m256)_mm256_set1_epi32(1 << 22));
	__m256 kept = _mm256_blendv_ps((__m256)r, quiet, _mm256_cmp_ps((__m256)v, (__m256)v, _CMP_UNORD_Q));
	__m256i high = _mm256_srli_epi32((__m256i)kept, 16);
	return (v8h)_mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x08));
#else
	v8u nan = (v8u)(v != v);
	return __builtin_convertvector(((r & ~nan) | ((u | 1 << 22) & nan)) >> 16, v8h);
#endif
}
FO_INLINE vf v_from_bf16(vh h)
{
#if FO_LANES == 8 && defined __AVX2__
	return (vf)v8_from_bf16((v8h)h);
#elif FO_LANES == 16 && defined __AVX512F__
	return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
#else
	return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}
/* Narrows values below 2^16. */
FO_INLINE vh v_narrow(vu u)
{
#if FO_LANES == 8 && defined __AVX2__
	/* GCC's own narrowing to 16 bits goes lane by lane through byte shuffles. */
	return (vh)_mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)u, (__m256i)u), 0x08));
#else
	return __builtin_convertvector(u, vh);
#endif
}
#if FO_LANES == 16 && defined __AVX512BW__
FO_INLINE __m512i v_odd_words(void)
{
	typedef uint16_t vw __attribute__((vector_size(64)));
	return (__m512i)(vw){ 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31 };
}
#endif
FO_INLINE vh v_to_bf16(vf v)
{
#if FO_LANES == 8 && defined __AVX2__
	return (vh)v8_to_bf16((v8)v);
#elif FO_LANES == 16 && defined __AVX512BW__
	/* Integers, because VCVTNEPS2BF16 makes zeros of denormals. One shuffle takes the upper halves together. */
	vu u = (vu)v, r = u + 0x7fff + (u >> 16 & 1);
	__mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
	__m512i kept = _mm512_mask_or_epi32((__m512i)r, nan, (__m512i)u, _mm512_set1_epi32(1 << 22));
	return (vh)_mm512_castsi512_si256(_mm512_permutexvar_epi16(v_odd_words(), kept));
#else
	vu u = (vu)v, r = u + 0x7fff + (u >> 16 & 1);
	vu nan = (vu)(v != v);
	return v_narrow(((r & ~nan) | ((u | 1 << 22) & nan)) >> 16);
#endif
}
FO_INLINE vf v_load_bf16(const uint16_t *p)
{
	vh h;
	memcpy(&h, p, sizeof h);
	return v_from_bf16(h);
}
FO_INLINE void v_store_bf16(uint16_t *p, vf v)
{
	vh h = v_to_bf16(v);
	memcpy(p, &h, sizeof h);
}

/* Elements of an f32 or bf16 row from i on, as floats. The _part forms read (write) n < FO_LANES elements; the rest are
 * 0 (untouched). */
FO_INLINE vf v_load_any(const void *row, int64_t i, int dtype)
{
	return dtype == FO_BF16 ? v_load_bf16((const uint16_t *)row + i) : v_load((const float *)row + i);
}
FO_INLINE void v_store_any(void *row, int64_t i, int dtype, vf v)
{
	if (dtype == FO_BF16)
		v_store_bf16((uint16_t *)row + i, v);
	else
		v_store((float *)row + i, v);
}
/* Calls f(..., dtype) with a constant dtype, bf16 or f32, so that its loops have no branch on it. */
#define V_BY_DTYPE(f, dtype, ...)                \
	do {                                     \
		if ((dtype) == FO_BF16)          \
			f(__VA_ARGS__, FO_BF16); \
		else                             \
			f(__VA_ARGS__, FO_F32);  \
	} while (0)
#if FO_LANES == 16 && defined __AVX512BW__
FO_INLINE __mmask16 v_first(int n) { return (__mmask16)((1u << n) - 1); }
#endif
FO_INLINE vf v_load_part(const void *row, int64_t i, int dtype, int n)
{
#if FO_LANES == 16 && defined __AVX512BW__
	if (dtype == FO_BF16)
		return v_from_bf16((vh)_mm256_maskz_loadu_epi16(v_first(n), (const uint16_t *)row + i));
	return (vf)_mm512_maskz_loadu_ps(v_first(n), (const float *)row + i);
#else
	if (dtype == FO_BF16) {
		vh h = { 0 };
		memcpy(&h, (const uint16_t *)row + i, (size_t)n * 2);
		return v_from_bf16(h);
	}
	vf v = { 0 };
	memcpy(&v, (const float *)row + i, (size_t)n * 4);
	return v;
#endif
}
FO_INLINE void v_store_part(void *row, int64_t i, int dtype, vf v, int n)
{
#if FO_LANES == 16 && defined __AVX512BW__
	if (dtype == FO_BF16)
		_mm256_mask_storeu_epi16((uint16_t *)row + i, v_first(n), (__m256i)v_to_bf16(v));
	else
		_mm512_mask_storeu_ps((float *)row + i, v_first(n), (__m512)v);
#else
	if (dtype == FO_BF16) {
		vh h = v_to_bf16(v);
		memcpy((uint16_t *)row + i, &h, (size_t)n * 2);
	} else {
		memcpy((float *)row + i, &v, (size_t)n * 4);
	}
#endif
}

/* exp(x) = 2^n p(r), |r| <= h = ln2/2. p is the Taylor polynomial of degree 7 whose last term is replaced by what
 * Chebyshev's T7 leaves of it: r^7 ~ 7/4 h^2 r^5 - 7/8 h^4 r^3 (+ 4e-8 r, lost in rounding). Error below 2e-8 before
 * rounding, two units in the last place with it. Below -87 the result is 0, above 88 it saturates, NaN stays NaN (the
 * operand order of min and max sees to that). */
FO_INLINE vf v_exp(vf x)
{
	const float h2 = 0.12011325f, h4 = h2 * h2;
	vi zero = x < v_set1(-87.0f), nan = x != x;
	x = v_min(v_set1(88.0f), v_max(v_set1(-87.0f), x));
	const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
	vf z = x * 1.44269504f + magic;
	vf n = z - magic;
	vf r = x - n * 0.693359375f; /* ln 2 in two parts (Cody and Waite) */
	r = r + n * 2.12194440e-4f;
	vf p = v_set1(1.0f / 720);
	p = p * r + (1.0f / 120 + 1.75f / 5040 * h2);
	p = p * r + 1.0f / 24;
	p = p * r + (1.0f / 6 - 0.875f / 5040 * h4);
	p = p * r + 0.5f;
	p = p * r + 1.0f;
	p = p * r + 1.0f;
	/* times 2^n: n stands in z's low bits; p lies between 0.7 and 1.42, so the exponent stays within its bits. */
	return (vf)(((vi)((vu)p + ((vu)z << 23)) & ~zero) | nan); /* the sum would make a number of most NaNs */
}

/* exp(x) where a relative error of (2 |x| + 3) 2^-24 will do: what is rounded to bf16 in the end. No clamps: z = x / ln
 * 2 splits into its floor, which VSCALEFPS makes an exponent of whatever its size (0 below -150, infinity from 128),
 * and a rest in [0, 1), which is 0 for infinities; NaN comes through. The polynomial has the least relative error on
 * [0, 1] of those with p(0) = 1: 8.3e-8 (dev/kernel/attention/exp2_coefficients.py 5 0). */
FO_INLINE vf v_exp_short(vf x)
{
#if FO_LANES == 16 && defined __AVX512DQ__
	vf z = x * 1.44269504f, r = (vf)_mm512_reduce_ps((__m512)z, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
	vf p = v_set1(0x1.e9691p-10f);
	p = p * r + 0x1.277c1cp-7f;
	p = p * r + 0x1.c91c1p-5f;
	p = p * r + 0x1.ebdb6ap-3f;
	p = p * r + 0x1.62e4bap-1f;
	p = p * r + 1.0f;
	return (vf)_mm512_scalef_ps((__m512)p, (__m512)z);
#else
	return v_exp(x);
#endif
}

#endif
