#include "comm/sum.h"

#include "base/count.h"
#include "kernel/kernel.h"

#include <math.h>
#include <string.h>

static double larger(double a, double b) { return b > a || isnan(b) ? b : a; }

static float plain(float x) { return x; }
static float rounded(float x) { return fo_bf16_to_f32(fo_bf16_from_f32(x)); }
static double plain_f64(double x) { return x; }

/* NAME_load: t[i] = x[i], as numbers are added up; NAME_add: t[i] = t[i] (op) x[i]. A loop each, so that the compiler
 * makes vectors of it. */
#define FORM(name, type, from, value)                                                          \
	static void name##_load(void *restrict to, const void *restrict b, int64_t n)          \
	{                                                                                      \
		type *t = to;                                                                  \
		const from *x = b;                                                             \
		for (int64_t i = 0; i < n; i++)                                                \
			t[i] = value(x[i]);                                                    \
	}                                                                                      \
	static void name##_add(void *restrict to, const void *restrict b, int64_t n, bool sum) \
	{                                                                                      \
		type *t = to;                                                                  \
		const from *x = b;                                                             \
		if (sum)                                                                       \
			for (int64_t i = 0; i < n; i++)                                        \
				t[i] += value(x[i]);                                           \
		else                                                                           \
			for (int64_t i = 0; i < n; i++)                                        \
				t[i] = (type)larger((double)t[i], (double)value(x[i]));        \
	}
FORM(f64, double, double, plain_f64)
FORM(f32, float, float, plain)
FORM(bf16, float, uint16_t, fo_bf16_to_f32)
FORM(narrow, float, float, rounded)

struct form {
	size_t size;
	void (*load)(void *restrict, const void *restrict, int64_t);
	void (*add)(void *restrict, const void *restrict, int64_t, bool);
};
static const struct form form_f64 = { 8, f64_load, f64_add }, form_f32 = { 4, f32_load, f32_add },
			 form_bf16 = { 2, bf16_load, bf16_add }, form_narrow = { 4, narrow_load, narrow_add };

void fo_comm_pack(const float *from, int64_t n, uint16_t *to)
{
	for (int64_t i = 0; i < n; i++)
		to[i] = fo_bf16_from_f32(from[i]);
}

void fo_comm_unpack(const uint16_t *from, int64_t n, float *to) { bf16_load(to, from, n); }

enum { PIECE = 2048 }; /* elements: small enough for the stack and the first-level cache */

void fo_comm_reduce(const void *const *from, int ranks, int64_t n, const struct fo_comm_call *k, bool packed, void *to)
{
	const struct form *own = &form_f64, *form;
	if (k->dtype != FO_F64)
		own = k->dtype == FO_F32 ? &form_f32 : &form_bf16;
	form = own;
	if (k->narrow)
		form = packed ? &form_bf16 : &form_narrow;
	double piece[PIECE];
	for (int64_t at = 0; at < n; at += PIECE) {
		const int64_t few = fo_min(PIECE, n - at);
		char *out = (char *)to + (size_t)at * own->size;
		if (k->accumulate)
			own->load(piece, out, few);
		for (int r = 0; r < ranks; r++) {
			const char *x = (const char *)from[r] + (size_t)at * form->size;
			if (r || k->accumulate)
				form->add(piece, x, few, k->op == FO_COMM_SUM);
			else
				form->load(piece, x, few);
		}
		if (k->dtype == FO_BF16)
			fo_comm_pack((const float *)piece, few, (uint16_t *)(void *)out);
		else if (k->narrow && k->kind == FO_COMM_ALL_REDUCE)
			narrow_load(out, piece, few);
		else
			own->load(out, piece, few);
	}
}
