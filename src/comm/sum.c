#include "comm/sum.h"

#include "base/count.h"
#include "kernel/kernel.h"

#include <math.h>
#include <string.h>

static double larger(double a, double b) { return b > a || isnan(b) ? b : a; }

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

enum { PIECE = 2048 }; /* elements: small enough for the stack and the first-level cache */

void fo_comm_reduce(const void *const *from, int ranks, int64_t n, int dtype, enum fo_comm_op op, void *to)
{
	const size_t size = fo_dtype_bytes(dtype);
	void (*const combine)(void *, const void *, int64_t, enum fo_comm_op) = dtype == FO_F64   ? combine_f64
										: dtype == FO_F32 ? combine_f32
												  : combine_bf16;
	double piece[PIECE];
	for (int64_t at = 0; at < n; at += PIECE) {
		const int64_t few = fo_min(PIECE, n - at);
		for (int r = 0; r < ranks; r++) {
			const char *x = (const char *)from[r] + (size_t)at * size;
			if (r)
				combine(piece, x, few, op);
			else if (dtype != FO_BF16)
				memcpy(piece, x, (size_t)few * size);
			else
				for (int64_t i = 0; i < few; i++)
					((float *)piece)[i] = fo_bf16_to_f32(((const uint16_t *)(const void *)x)[i]);
		}
		char *out = (char *)to + (size_t)at * size;
		if (dtype != FO_BF16)
			memcpy(out, piece, (size_t)few * size);
		else
			for (int64_t i = 0; i < few; i++)
				((uint16_t *)(void *)out)[i] = fo_bf16_from_f32(((float *)piece)[i]);
	}
}
