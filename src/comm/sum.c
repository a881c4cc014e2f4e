#include "comm/sum.h"

#include "base/count.h"
#include "kernel/kernel.h"

#include <math.h>
#include <string.h>

static double larger(double a, double b) { return b > a || isnan(b) ? b : a; }

static float round_bf16(float x) { return fo_bf16_to_f32(fo_bf16_from_f32(x)); }

/* t[i] = t[i] (op) x[i]; those of bf16 stand in t as fp32. A loop each, so that the compiler makes vectors of it. */
#define COMBINE(name, type, from, value)                                                \
	static void name(void *to, const void *b, int64_t n, enum fo_comm_op op)        \
	{                                                                               \
		type *restrict t = to;                                                  \
		const from *restrict x = b;                                             \
		if (op == FO_COMM_SUM)                                                  \
			for (int64_t i = 0; i < n; i++)                                 \
				t[i] += value(x[i]);                                    \
		else                                                                    \
			for (int64_t i = 0; i < n; i++)                                 \
				t[i] = (type)larger((double)t[i], (double)value(x[i])); \
	}
COMBINE(combine_f64, double, double, )
COMBINE(combine_f32, float, float, )
COMBINE(combine_bf16, float, uint16_t, fo_bf16_to_f32)
COMBINE(combine_narrow, float, float, round_bf16)

enum { PIECE = 2048 }; /* elements: small enough for the stack and the first-level cache */

/* Numbers as they are added up: bf16 as fp32. */
static void widen(void *to, const void *from, int64_t n, int dtype, bool narrow)
{
	if (narrow)
		for (int64_t i = 0; i < n; i++)
			((float *)to)[i] = round_bf16(((const float *)from)[i]);
	else if (dtype != FO_BF16)
		memcpy(to, from, (size_t)n * fo_dtype_bytes(dtype));
	else
		for (int64_t i = 0; i < n; i++)
			((float *)to)[i] = fo_bf16_to_f32(((const uint16_t *)from)[i]);
}

static void leave(void *to, const void *sum, int64_t n, const struct fo_comm_call *k)
{
	if (k->dtype != FO_BF16)
		widen(to, sum, n, k->dtype, k->narrow && k->kind == FO_COMM_ALL_REDUCE);
	else
		for (int64_t i = 0; i < n; i++)
			((uint16_t *)to)[i] = fo_bf16_from_f32(((const float *)sum)[i]);
}

void fo_comm_reduce(const struct fo_comm_call *k, const void *const *from, int ranks, int64_t n, void *to)
{
	const size_t size = fo_dtype_bytes(k->dtype);
	void (*combine)(void *, const void *, int64_t, enum fo_comm_op) = combine_f32;
	if (k->dtype == FO_F64)
		combine = combine_f64;
	else if (k->dtype == FO_BF16)
		combine = combine_bf16;
	else if (k->narrow)
		combine = combine_narrow;
	double piece[PIECE];
	for (int64_t at = 0; at < n; at += PIECE) {
		const int64_t few = fo_min(PIECE, n - at);
		char *out = (char *)to + (size_t)at * size;
		if (k->accumulate)
			widen(piece, out, few, k->dtype, false);
		for (int r = 0; r < ranks; r++) {
			const char *x = (const char *)from[r] + (size_t)at * size;
			if (r || k->accumulate)
				combine(piece, x, few, k->op);
			else
				widen(piece, x, few, k->dtype, k->narrow);
		}
		leave(out, piece, few, k);
	}
}
