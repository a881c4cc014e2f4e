#include "comm/sum.h"

#include "base/count.h"
#include "kernel/kernel.h"

#include <math.h>
#include <string.h>

static double larger(double a, double b) { return b > a || isnan(b) ? b : a; }

/* to[i] = to[i] (op) b[i]; sums of bf16 numbers stand in `to` as fp32. */
static void combine(void *to, const void *b, int64_t n, int dtype, enum fo_comm_op op)
{
	bool sum = op == FO_COMM_SUM;
	if (dtype == FO_F64) {
		double *t = to;
		const double *x = b;
		for (int64_t i = 0; i < n; i++)
			t[i] = sum ? t[i] + x[i] : larger(t[i], x[i]);
	} else if (dtype == FO_F32) {
		float *t = to;
		const float *x = b;
		for (int64_t i = 0; i < n; i++)
			t[i] = sum ? t[i] + x[i] : (float)larger(t[i], x[i]);
	} else {
		float *t = to;
		const uint16_t *x = b;
		for (int64_t i = 0; i < n; i++) {
			float v = fo_bf16_to_f32(x[i]);
			t[i] = sum ? t[i] + v : (float)larger(t[i], v);
		}
	}
}

enum { PIECE = 2048 }; /* elements: small enough for the stack and the first-level cache */

void fo_comm_reduce(const void *const *from, int ranks, int64_t n, int dtype, enum fo_comm_op op, void *to)
{
	const size_t size = fo_dtype_bytes(dtype);
	double piece[PIECE];
	for (int64_t at = 0; at < n; at += PIECE) {
		const int64_t few = fo_min(PIECE, n - at);
		for (int r = 0; r < ranks; r++) {
			const char *x = (const char *)from[r] + (size_t)at * size;
			if (r)
				combine(piece, x, few, dtype, op);
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
