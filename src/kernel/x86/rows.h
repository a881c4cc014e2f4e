/* Shared by the row kernels: rows of tensors, when to use threads, and data types as compile-time constants. */
#ifndef FO_KERNEL_X86_ROWS_H
#define FO_KERNEL_X86_ROWS_H

#include "kernel/x86/vec.h"

/* Elements that are worth a thread: about 10 us of work, what a fork and join costs. */
enum { ROWS_THREAD_ELEMENTS = 16384 };

FO_INLINE char *row_at(const struct fo_tensor *t, int64_t r)
{
	return (char *)t->data + (size_t)(r * t->ld) * fo_dtype_bytes(t->dtype);
}

/* Threads for a tensor of this shape. Results never depend on it. */
FO_INLINE int row_threads(const struct fo_call *c, const struct fo_tensor *t)
{
	return (int)fo_clamp(t->rows * t->cols / ROWS_THREAD_ELEMENTS, 1, fo_max(c->threads, 1));
}

FO_INLINE double row_hyper(const struct fo_tensor *t, int i) { return ((const double *)t->data)[i]; }

/* Element i of ACC operand `arg`, which holds doubles, becomes x or gets it added. */
FO_INLINE void row_acc_f64(const struct fo_call *c, int arg, int i, double x)
{
	double *p = (double *)c->arg[arg].data + i;
	*p = fo_call_stores(c, arg) ? x : *p + x;
}

/* The data type that all operands of the bit set `operands` have; -1 when they differ. */
FO_INLINE int row_dtype(const struct fo_call *c, uint32_t operands)
{
	int found = -1;
	for (int i = 0; i < c->n; i++) {
		if (!(operands >> i & 1))
			continue;
		if (found >= 0 && found != c->arg[i].dtype)
			return -1;
		found = c->arg[i].dtype;
	}
	return found;
}

/* Calls f(c, ..., dtype) with a constant dtype where the operands agree, so that loops have no branch on it, else with
 * -1. It is used inside parallel regions, because their bodies become functions before constants could reach them. */
#define ROWS_BY_DTYPE(f, operands, c, ...)                       \
	do {                                                     \
		switch (row_dtype(c, operands)) {                \
		case FO_F32: f(c, __VA_ARGS__, FO_F32); break;   \
		case FO_BF16: f(c, __VA_ARGS__, FO_BF16); break; \
		default: f(c, __VA_ARGS__, -1); break;           \
		}                                                \
	} while (0)

/* A row and its data type. row_get and row_put move w elements (FO_LANES, or fewer at the end) at column j. */
struct row {
	char *p;
	int dtype;
};
FO_INLINE struct row row_of(const struct fo_tensor *t, int64_t r, int dtype)
{
	return (struct row){ row_at(t, r), dtype < 0 ? t->dtype : dtype };
}
FO_INLINE vf row_get(struct row r, int64_t j, int w)
{
	return w == FO_LANES ? v_load_any(r.p, j, r.dtype) : v_load_part(r.p, j, r.dtype, w);
}
FO_INLINE void row_put(struct row r, int64_t j, int w, vf v)
{
	if (w == FO_LANES)
		v_store_any(r.p, j, r.dtype, v);
	else
		v_store_part(r.p, j, r.dtype, v, w);
}

/* Two vectors of a row of f32 or bf16 whose type is known. For bf16 they are the even elements and the odd ones: a
 * shift and a mask widen such a pair, and a shift and a mask narrow it, where elements in order would need shuffles,
 * for which processors have fewer units. Rows of one type agree about the order. */
struct v2 {
	vf a, b;
};
FO_INLINE struct v2 row_get2(struct row r, int64_t j)
{
	if (r.dtype != FO_BF16)
		return (struct v2){ v_load((const float *)r.p + j), v_load((const float *)r.p + j + FO_LANES) };
	vu u;
	memcpy(&u, (const uint16_t *)r.p + j, sizeof u);
	return (struct v2){ (vf)(u << 16), (vf)(u & 0xffff0000u) };
}
/* Rounds to bf16 in the upper half, to nearest even; NaN stays NaN (one with all bits set). The lower half is left to
 * be cut off. */
FO_INLINE vu v_round_bf16(vf v)
{
	vu u = (vu)v;
	return (u + 0x7fff + (u >> 16 & 1)) | (vu)(v != v);
}
#if FO_LANES == 16 && defined __AVX512BW__
/* Rounds results of arithmetic to bf16 in pairs: a into the even words, b into the odd ones. Upper and lower halves are
 * taken apart: the upper half goes up by one if the lower half is above one half, or equal to it and the upper one odd.
 * Infinity must not become 0 by it, and a NaN that arithmetic made has a bit in its upper half and stays as it is.
 * VCVTNE2PS2BF16 is not used because it makes zeros of denormals. */
FO_INLINE __m512i v_pair_bf16(vf a, vf b)
{
	const __mmask32 odd = 0xaaaaaaaau;
	__m512i high = _mm512_mask_blend_epi16(odd, _mm512_srli_epi32((__m512i)a, 16), (__m512i)b);
	__m512i low = _mm512_mask_blend_epi16(odd, (__m512i)a, _mm512_slli_epi32((__m512i)b, 16));
	__mmask32 number = _mm512_cmple_epu16_mask(_mm512_add_epi16(high, high), _mm512_set1_epi16((short)0xff00));
	low = _mm512_adds_epu16(low, _mm512_and_si512(high, _mm512_set1_epi16(1)));
	__mmask32 up = _mm512_mask_cmpgt_epu16_mask(number, low, _mm512_set1_epi16((short)0x8000));
	return _mm512_mask_sub_epi16(high, up, high, _mm512_set1_epi16(-1));
}
#endif
/* Stores a pair of results and returns it as it would be read back. */
FO_INLINE struct v2 row_put2(struct row r, int64_t j, struct v2 v)
{
	if (r.dtype != FO_BF16) {
		v_store((float *)r.p + j, v.a);
		v_store((float *)r.p + j + FO_LANES, v.b);
		return v;
	}
#if FO_LANES == 16 && defined __AVX512BW__
	vu u = (vu)v_pair_bf16(v.a, v.b);
	memcpy((uint16_t *)r.p + j, &u, sizeof u);
	return (struct v2){ (vf)(u << 16), (vf)(u & 0xffff0000u) };
#else
	vu even = v_round_bf16(v.a), odd = v_round_bf16(v.b) & 0xffff0000u, u = even >> 16 | odd;
	memcpy((uint16_t *)r.p + j, &u, sizeof u);
	return (struct v2){ (vf)(even & 0xffff0000u), (vf)odd };
#endif
}
/* The number of columns at the front of a row that go by `pairs` pairs at a time; 0 where types are mixed, which lie in
 * different orders. */
FO_INLINE int64_t row_pairs(int64_t cols, int dtype, int pairs)
{
	const int64_t step = 2 * pairs * FO_LANES;
	return dtype < 0 ? 0 : cols / step * step;
}
/* The pair with its elements in order, as they lie in a row of f32. */
FO_INLINE struct v2 v2_in_order(struct v2 v, int dtype)
{
	if (dtype != FO_BF16)
		return v;
#if FO_LANES == 8
	return (struct v2){ __builtin_shufflevector(v.a, v.b, 0, 8, 1, 9, 2, 10, 3, 11),
			    __builtin_shufflevector(v.a, v.b, 4, 12, 5, 13, 6, 14, 7, 15) };
#else
	return (struct v2){ __builtin_shufflevector(v.a, v.b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
			    __builtin_shufflevector(v.a, v.b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
						    31) };
#endif
}
/* The inverse: neighbours of a row of f32 as a pair of `dtype` holds them. */
FO_INLINE struct v2 v2_as_pair(struct v2 v, int dtype)
{
	if (dtype != FO_BF16)
		return v;
#if FO_LANES == 8
	return (struct v2){ __builtin_shufflevector(v.a, v.b, 0, 2, 4, 6, 8, 10, 12, 14),
			    __builtin_shufflevector(v.a, v.b, 1, 3, 5, 7, 9, 11, 13, 15) };
#else
	return (struct v2){
		__builtin_shufflevector(v.a, v.b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
		__builtin_shufflevector(v.a, v.b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
	};
#endif
}

/* Runs `body` for each vector at j of [from, to). w, its elements, is constant in the body of whole vectors. */
#define ROWS_EACH(j, w, from, to, body)                       \
	do {                                                  \
		int64_t j = (from);                           \
		for (; j + FO_LANES <= (to); j += FO_LANES) { \
			enum { w = FO_LANES };                \
			body;                                 \
		}                                             \
		if (j < (to)) {                               \
			const int w = (int)((to)-j);          \
			body;                                 \
		}                                             \
	} while (0)

FO_INLINE void copy_row(struct row to, struct row from, int64_t cols)
{
	if (from.dtype == to.dtype)
		memcpy(to.p, from.p, (size_t)cols * fo_dtype_bytes(to.dtype));
	else
		ROWS_EACH(j, w, 0, cols, row_put(to, j, w, row_get(from, j, w)));
}

#endif
