/* fp8 formats, casts and products: all 256 numbers of each format from its definition, every rounding by looking for
 * the nearest number in double, casts and scaled products of PyTorch (tests/golden/make_fp8.py), and what scales do at
 * the edges. */
#include "check/engine/num.h"
#include "base/clock.h"
#include "ckpt/ckpt.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static float decode(int dtype, uint8_t b) { return dtype == FO_E4M3 ? fo_e4m3_to_f32(b) : fo_e5m2_to_f32(b); }
static uint8_t encode(int dtype, float x) { return dtype == FO_E4M3 ? fo_e4m3_from_f32(x) : fo_e5m2_from_f32(x); }
static const int format[] = { FO_E4M3, FO_E5M2 };

static uint32_t bits_of(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	return u;
}
static float from_bits(uint32_t u)
{
	float f;
	memcpy(&f, &u, 4);
	return f;
}

/* The specification's table: (-1)^s 2^(e - bias) (1 + m / 2^M), subnormals 2^(1 - bias) m / 2^M. NaN and infinity as
 * NAN, INFINITY. */
static double defined(int dtype, int b)
{
	int M = dtype == FO_E4M3 ? 3 : 2, bias = dtype == FO_E4M3 ? 7 : 15, m = b & ((1 << M) - 1), e = (b & 127) >> M;
	double sign = b & 128 ? -1 : 1;
	if (dtype == FO_E4M3 && e == 15 && m == 7)
		return NAN;
	if (dtype == FO_E5M2 && e == 31)
		return m ? NAN : sign * INFINITY;
	return sign * (e ? ldexp(1 + ldexp(m, -M), e - bias) : ldexp(m, 1 - bias - M));
}

/* The nearest number, ties to the even code, never beyond the largest. */
static uint8_t nearest(int dtype, double x)
{
	int best = 0;
	double off = INFINITY;
	if (isnan(x) || (isinf(x) && dtype == FO_E4M3))
		return dtype == FO_E4M3 ? 0x7f : 0x7e;
	if (isinf(x))
		return 0x7c;
	double size = fmin(fabs(x), 1e6); /* doubles still tell the numbers below from each other */
	for (int b = 0; b < 128; b++) {
		double d = fabs(size - defined(dtype, b));
		if (isfinite(d) && (d < off || (d == off && b % 2 == 0))) {
			best = b;
			off = d;
		}
	}
	return (uint8_t)best;
}

static void test_values(void **state)
{
	(void)state;
	assert_true(defined(FO_E4M3, 0x7e) == FO_E4M3_MAX && defined(FO_E5M2, 0x7b) == FO_E5M2_MAX);
	assert_true(defined(FO_E4M3, 1) == 0x1p-9 && defined(FO_E5M2, 1) == 0x1p-16);
	for (int f = 0; f < 2; f++)
		for (int b = 0; b < 256; b++) {
			double want = defined(format[f], b), got = decode(format[f], (uint8_t)b);
			assert_true(isnan(want) ? isnan(got) : got == want && signbit(got) == signbit(want));
			if (!isnan(want))
				assert_int_equal(encode(format[f], (float)got), b);
		}
}

static void check_rounding(int dtype, float x)
{
	uint8_t want = nearest(dtype, x), got = encode(dtype, x);
	want |= signbit(x) ? 0x80 : 0;
	if (got != want)
		fail_msg("%s of %.9g (%08x): got %02x, the nearest is %02x", fo_dtype_name[dtype], (double)x,
			 bits_of(x), got, want);
}

static void test_rounding(void **state)
{
	(void)state;
	for (int f = 0; f < 2; f++) {
		/* Half way between neighbours, and what lies next to it. */
		for (int b = 0; b + 1 < 128 && isfinite(defined(format[f], b + 1)); b++) {
			float middle = (float)((defined(format[f], b) + defined(format[f], b + 1)) / 2);
			for (int sign = -1; sign <= 1; sign += 2) {
				check_rounding(format[f], (float)sign * middle);
				check_rounding(format[f], (float)sign * nextafterf(middle, INFINITY));
				check_rounding(format[f], (float)sign * nextafterf(middle, 0));
			}
		}
		/* fp32 from end to end, subnormals, infinity and NaN too. */
		for (uint64_t u = 0; u <= UINT32_MAX; u += 262147)
			check_rounding(format[f], from_bits((uint32_t)u));
		const float edge[] = { 0,   -0.0f, INFINITY, -INFINITY, NAN,   448,   464,
				       465, 480,   57344,    61440,     65536, 3e38f, 1e-45f };
		for (size_t i = 0; i < sizeof edge / sizeof *edge; i++)
			check_rounding(format[f], edge[i]);
	}
}

/* ---- kernels ---- */

/* A tensor of its own; free its data. */
static struct fo_tensor tensor(int dtype, int64_t rows, int64_t cols)
{
	struct fo_tensor t = { .rows = rows, .cols = cols, .ld = cols, .dtype = (uint8_t)dtype };
	t.data = calloc((size_t)(rows * cols) + 1, fo_dtype_bytes(dtype));
	assert_non_null(t.data);
	return t;
}

static void run(const struct fo_kernel_set *set, struct fo_call *c)
{
	const struct fo_kernel *k = fo_kernel_pick(set->isa, c, NULL);
	c->threads = 2;
	void *ws = aligned_alloc(64, ((k->ws ? k->ws(c) : 0) / 64 + 1) * 64);
	c->ws = ws;
	k->run(c);
	free(ws);
}

static const struct fo_kernel_set *set_at(int i)
{
	return i < FO_ISA_COUNT && fo_kernel_sets[i] && fo_isa_have(fo_kernel_sets[i]->isa) ? fo_kernel_sets[i] : NULL;
}

/* The kernels' bits are those of base/fp8.h, for numbers from end to end of fp32, in every set. */
static void test_casts(void **state)
{
	(void)state;
	enum { ROWS = 37, COLS = 443 };
	struct fo_call c = { .kind = FO_OP_fp8_cast, .n = 3, .first = 1u << 2 };
	c.arg[0] = tensor(FO_F32, ROWS, COLS);
	uint32_t step = UINT32_MAX / (ROWS * COLS) + 2;
	for (int64_t i = 0; i < ROWS * COLS; i++)
		((float *)c.arg[0].data)[i] = from_bits((uint32_t)i * step);
	for (int s = 0; set_at(s); s++)
		for (int f = 0; f < 2; f++)
			for (int axis = 0; axis < 3; axis++) {
				c.arg[1] = tensor(FO_F32, axis == 1 ? ROWS : 1, axis == 2 ? COLS : 1);
				c.arg[2] = tensor(format[f], ROWS, COLS);
				for (int64_t i = 0; i < c.arg[1].rows * c.arg[1].cols; i++)
					((float *)c.arg[1].data)[i] = axis ? 0.013f * (float)(i + 1) : 0.7f;
				run(set_at(s), &c);
				for (int64_t i = 0; i < ROWS * COLS; i++) {
					float scale = ((float *)c.arg[1].data)[axis == 1   ? i / COLS
									       : axis == 2 ? i % COLS
											   : 0];
					uint8_t got = ((uint8_t *)c.arg[2].data)[i],
						want = encode(format[f], ((float *)c.arg[0].data)[i] / scale);
					if (got != want && !isnan(((float *)c.arg[0].data)[i]))
						fail_msg("%s, axis %d: %.9g / %.9g is %02x, expected %02x",
							 set_at(s)->name, axis, (double)((float *)c.arg[0].data)[i],
							 (double)scale, got, want);
					assert_true(
						isnan(((float *)c.arg[0].data)[i]) == isnan(decode(format[f], got)) ||
						(format[f] == FO_E4M3 && isinf(((float *)c.arg[0].data)[i] / scale)));
				}
				free(c.arg[1].data);
				free(c.arg[2].data);
			}
	free(c.arg[0].data);
}

static float amax_of(int s, const float *v, int64_t rows, int64_t cols)
{
	struct fo_call c = { .kind = FO_OP_amax, .n = 2, .first = 2 };
	c.arg[0] = tensor(FO_F32, rows, cols);
	c.arg[1] = tensor(FO_F32, 1, 1);
	memcpy(c.arg[0].data, v, (size_t)(rows * cols) * 4);
	run(set_at(s), &c);
	float top = *(float *)c.arg[1].data;
	free(c.arg[0].data);
	free(c.arg[1].data);
	return top;
}

static float scale_of(float amax, double largest, int power)
{
	struct fo_call c = {
		.kind = FO_OP_fp8_scale, .n = 2, .first = 2, .attr = { .value = largest, .sign = (int8_t)power }
	};
	c.arg[0] = tensor(FO_F32, 1, 1);
	c.arg[1] = tensor(FO_F32, 1, 1);
	*(float *)c.arg[0].data = amax;
	run(&fo_kernels_ref, &c);
	float s = *(float *)c.arg[1].data;
	free(c.arg[0].data);
	free(c.arg[1].data);
	return s;
}

static void test_scales(void **state)
{
	(void)state;
	float v[50];
	for (int i = 0; i < 50; i++)
		v[i] = (float)sin(i);
	for (int s = 0; set_at(s); s++) {
		v[33] = -7;
		assert_true(amax_of(s, v, 5, 10) == 7);
		for (int at = 0; at < 50; at++) { /* wherever it stands */
			float keep = v[at];
			v[at] = NAN;
			assert_true(isnan(amax_of(s, v, 5, 10)) && isnan(amax_of(s, v, 1, 50)));
			v[at] = -INFINITY;
			assert_true(amax_of(s, v, 5, 10) == INFINITY);
			v[at] = keep;
		}
	}
	assert_true(scale_of(448, 448, 0) == 1 && scale_of(57344 * 8, 57344, 0) == 8);
	assert_true(scale_of(0, 448, 0) == 1 && scale_of(0, 448, 1) == 1);
	assert_true(isnan(scale_of(NAN, 448, 0)) && isnan(scale_of(INFINITY, 448, 1)));
	assert_true(scale_of(1e-44f, 448, 0) == 0x1p-126f && scale_of(1e-44f, 448, 1) == 0x1p-126f);
	assert_true(scale_of(448 * 4, 448, 1) == 4 && scale_of(449 * 4, 448, 1) == 8 &&
		    scale_of(3e38f, 448, 1) == 0x1p120f);
	/* The largest number of a tensor becomes the largest of the format, and nothing saturates. */
	for (int i = 0; i < 2000; i++) {
		float top = (float)exp2(200 * fo_rng_uniform(3, (uint64_t)i) - 100);
		assert_int_equal(fo_e4m3_from_f32(top / scale_of(top, 448, 0)), 0x7e);
		float half = top / scale_of(top, 448, 1);
		assert_true(half > 223.9f && half <= 448);
	}
}

/* Steps join in front, what is not finite counts as nothing, a refused step changes nothing; a step begins with the
 * largest. */
static void test_history(void **state)
{
	(void)state;
	struct fo_call push = { .kind = FO_OP_fp8_push, .n = 3 };
	push.arg[0] = tensor(FO_F32, 2, 1);
	push.arg[1] = tensor(FO_F32, 2, 3);
	push.arg[2] = tensor(FO_F64, 1, 2);
	float *amax = push.arg[0].data, *h = push.arg[1].data;
	double *scale = push.arg[2].data;
	const float step[][2] = { { 4, 1 }, { 2, NAN }, { 8, INFINITY }, { 16, 3 } };
	const float want[][6] = {
		{ 4, 0, 0, 1, 0, 0 }, { 2, 4, 0, 0, 1, 0 }, { 8, 2, 4, 0, 0, 1 }, { 16, 8, 2, 3, 0, 0 }
	};
	struct fo_call top = { .kind = FO_OP_fp8_begin, .n = 2, .first = 2 };
	top.arg[0] = push.arg[1];
	top.arg[1] = tensor(FO_F32, 2, FO_FP8_AMAX_COLS);
	const float *begun = top.arg[1].data;
	scale[0] = 1;
	for (int s = -1; s < 5; s++) {
		scale[0] = s == 4 ? -1 : 1;
		if (s >= 0) {
			memcpy(amax, step[s < 4 ? s : 0], sizeof step[0]);
			run(&fo_kernels_ref, &push);
			assert_memory_equal(h, want[s < 4 ? s : 3], sizeof want[0]);
		}
		run(&fo_kernels_ref, &top);
		for (int r = 0; r < 2; r++) {
			const float row[FO_FP8_AMAX_COLS] = { 0, fmaxf(fmaxf(h[3 * r], h[3 * r + 1]), h[3 * r + 2]), 0,
							      0 };
			assert_memory_equal(begun + r * FO_FP8_AMAX_COLS, row, sizeof row);
		}
	}
	for (int i = 0; i < 3; i++)
		free(push.arg[i].data);
	free(top.arg[1].data);
}

/* By the scale of the step: of the history, or where that is empty of x itself. The largest number seen stays, of
 * several tensors the larger, NaN for good. Every set, with the transpose and without. */
static void test_step_scale(void **state)
{
	(void)state;
	struct fo_call c = { .kind = FO_OP_fp8_cast_step, .first = 1u << 1 | 1u << 2 | 1u << 4 };
	c.arg[0] = tensor(FO_F32, 3, 7);
	c.arg[1] = tensor(FO_F32, 1, 1);
	c.arg[3] = tensor(FO_F32, 1, FO_FP8_AMAX_COLS);
	float *x = c.arg[0].data, *sx = c.arg[1].data, *amax = c.arg[3].data;
	for (int s = 0; set_at(s); s++)
		for (int f = 0; f < 2; f++)
			for (int both = 0; both < 2; both++) {
				const float largest = f ? 57344 : 448;
				c.n = 4 + both;
				c.arg[2] = tensor(f ? FO_E5M2 : FO_E4M3, 3, 7);
				c.arg[4] = tensor(f ? FO_E5M2 : FO_E4M3, 7, 3);
				for (int round = 0; round < 5; round++) {
					static const float seen[] = { 0, 0, 40, 0, 7 }, past[] = { 0, 16, 16, 0, 1 };
					const float top = round == 4 ? NAN : round == 3 ? 0 : 32;
					for (int i = 0; i < 21; i++)
						x[i] = top == 0 ? 0 : (float)sin(i);
					x[13] = -top;
					amax[0] = seen[round], amax[1] = past[round], amax[2] = amax[3] = 0;
					run(set_at(s), &c);
					const float scale = past[round] > 0 ? past[round] / largest
							    : round == 3    ? 1
									    : top / largest;
					assert_true(*sx == scale);
					assert_true(round == 4 ? isnan(amax[0]) : amax[0] == fmaxf(seen[round], top));
					assert_true(amax[1] == past[round] && amax[2] == 0 && amax[3] == 0);
					const uint8_t *y = c.arg[2].data, *yt = c.arg[4].data;
					for (int i = 0; i < 21; i++) {
						if (i == 13 && round == 4)
							continue; /* NaN has many bytes */
						assert_int_equal(y[i], encode(c.arg[2].dtype, x[i] / scale));
						assert_true(!both || yt[i % 7 * 3 + i / 7] == y[i]);
					}
				}
				free(c.arg[2].data);
				free(c.arg[4].data);
			}
	free(c.arg[0].data);
	free(c.arg[1].data);
	free(c.arg[3].data);
}

/* ---- products ---- */

static double element(const struct fo_tensor *t, bool across, int64_t line, int64_t d)
{
	return fo_num_get(t, across ? d : line, across ? line : d);
}

/* c = (a b) x scales against a double-precision product of what the numbers stand for: off by at most the rounding of
 * fp32 sums, k 2^-24 of the sum of magnitudes (Higham 2002, section 3.1), two roundings of the scaling and the sum with
 * what was there. */
static void check_product(int s, int64_t m, int64_t n, int64_t k, int t, int type_a, int lines, bool acc)
{
	struct fo_call c = {
		.kind = FO_OP_matmul, .n = 5, .first = acc ? 0 : 4, .attr = { .ta = t & 1, .tb = t >> 1 & 1 }
	};
	bool ta = t & 1, tb = t >> 1 & 1;
	uint64_t seed = (uint64_t)(m * 1000003 + n * 1009 + k * 31 + t);
	c.arg[0] = tensor(type_a, ta ? k : m, ta ? m : k);
	c.arg[1] = tensor(FO_E4M3, tb ? n : k, tb ? k : n);
	c.arg[2] = tensor(FO_F32, m, n);
	c.arg[3] = tensor(FO_F32, lines && !ta ? m : 1, lines && ta ? m : 1);
	c.arg[4] = tensor(FO_F32, lines && tb ? n : 1, lines && !tb ? n : 1);
	for (int a = 0; a < 2; a++)
		for (int64_t i = 0; i < m * k * !a + n * k * a; i++) {
			uint8_t b = (uint8_t)fo_rng_u64(seed + (uint64_t)a, (uint64_t)i);
			((uint8_t *)c.arg[a].data)[i] = isfinite(decode(c.arg[a].dtype, b)) ? b
											    : 1; /* subnormals too */
		}
	for (int a = 3; a < 5; a++)
		for (int64_t i = 0; i < c.arg[a].rows * c.arg[a].cols; i++)
			((float *)c.arg[a].data)[i] = (float)exp2(20 * fo_rng_uniform(seed + (uint64_t)a, (uint64_t)i) -
								  15);
	for (int64_t i = 0; acc && i < m * n; i++)
		((float *)c.arg[2].data)[i] = (float)fo_rng_normal(seed, (uint64_t)i) * 100;
	struct fo_tensor before = tensor(FO_F32, m, n);
	memcpy(before.data, c.arg[2].data, (size_t)(m * n) * 4);
	run(set_at(s), &c);
	for (int64_t i = 0; i < m; i++)
		for (int64_t j = 0; j < n; j++) {
			double sum = 0, size = 0, old = fo_num_get(&before, i, j);
			double sa = ((float *)c.arg[3].data)[lines ? i : 0],
			       sb = ((float *)c.arg[4].data)[lines ? j : 0];
			for (int64_t d = 0; d < k; d++) {
				double p = element(&c.arg[0], ta, i, d) * sa * (element(&c.arg[1], !tb, j, d) * sb);
				sum += p;
				size += fabs(p);
			}
			double want = sum + old, got = fo_num_get(&c.arg[2], i, j);
			double bound = 0x1p-24 * (((double)k + 4) * size + 3 * fabs(old) + fabs(want));
			if (!(fabs(got - want) <= bound))
				fail_msg("%s %lldx%lldx%lld transposed %d lines %d acc %d: (%lld,%lld) is %.9g, "
					 "expected %.9g within %.3g",
					 set_at(s)->name, (long long)m, (long long)n, (long long)k, t, lines, acc,
					 (long long)i, (long long)j, got, want, bound);
		}
	for (int i = 0; i < 5; i++)
		free(c.arg[i].data);
	free(before.data);
}

static void test_products(void **state)
{
	static const int64_t size[][3] = { { 1, 1, 1 },    { 2, 3, 5 },    { 6, 16, 8 },
					   { 7, 17, 385 }, { 41, 50, 96 }, { 13, 33, 1500 } };
	(void)state;
	for (int s = 0; set_at(s); s++)
		for (size_t i = 0; i < sizeof size / sizeof *size; i++)
			for (int mask = 0; mask < 32; mask++)
				check_product(s, size[i][0], size[i][1], size[i][2], mask & 3, format[mask >> 2 & 1],
					      mask >> 3 & 1, mask >> 4);
}

/* ---- PyTorch's numbers ---- */

static const unsigned char *golden(const struct fo_st_file *f, const char *name, int64_t *n)
{
	const struct fo_st_entry *e = fo_st_find(f, name);
	if (!e)
		fail_msg("fp8.safetensors has no '%s'", name);
	*n = 1;
	for (int i = 0; i < e->ndim; i++)
		*n *= e->shape[i];
	return f->data + e->begin;
}

static void test_torch(void **state)
{
	(void)state;
	char path[512], name[32];
	struct fo_st_file f;
	const char *root = getenv("FLATOUT_SOURCE");
	int64_t n;
	snprintf(path, sizeof path, "%s/tests/golden/fp8.safetensors", root ? root : ".");
	if (fo_st_open(&f, path) != FO_OK)
		fail_msg("%s", fo_err_text());
	for (int k = 0; k < 2; k++) {
		float x;
		snprintf(name, sizeof name, "%s.values", fo_dtype_name[format[k]]);
		const unsigned char *values = golden(&f, name, &n);
		assert_int_equal(n, 256);
		for (int b = 0; b < 256; b++) {
			memcpy(&x, values + 4 * b, 4);
			assert_true(isnan(x) ? isnan(decode(format[k], (uint8_t)b))
					     : x == decode(format[k], (uint8_t)b));
		}
		snprintf(name, sizeof name, "%s.x", fo_dtype_name[format[k]]);
		const unsigned char *from = golden(&f, name, &n);
		snprintf(name, sizeof name, "%s.y", fo_dtype_name[format[k]]);
		const unsigned char *to = golden(&f, name, &n);
		assert_true(n > 4000);
		for (int64_t i = 0; i < n; i++) {
			memcpy(&x, from + 4 * i, 4);
			assert_int_equal(encode(format[k], x), to[i]);
		}
	}
	for (int s = 0; set_at(s); s++)
		for (int rows = 0; rows < 2; rows++) {
			struct fo_call c = { .kind = FO_OP_matmul, .n = 5, .first = 4, .attr = { .tb = 1 } };
			c.arg[0] = (struct fo_tensor){ .rows = 48, .cols = 96, .ld = 96, .dtype = FO_E4M3 };
			c.arg[1] = (struct fo_tensor){ .rows = 32, .cols = 96, .ld = 96, .dtype = FO_E4M3 };
			c.arg[2] = tensor(FO_BF16, 48, 32);
			c.arg[3] = tensor(FO_F32, rows ? 48 : 1, 1);
			c.arg[4] = tensor(FO_F32, rows ? 32 : 1, 1);
			c.arg[0].data = (void *)golden(&f, "product.x", &n);
			c.arg[1].data = (void *)golden(&f, "product.w", &n);
			memcpy(c.arg[3].data, golden(&f, rows ? "rows.sx" : "tensor.sx", &n), rows ? 4 * 48 : 4);
			memcpy(c.arg[4].data, golden(&f, rows ? "rows.sw" : "tensor.sw", &n), rows ? 4 * 32 : 4);
			const unsigned char *y = golden(&f, rows ? "rows.y" : "tensor.y", &n);
			run(set_at(s), &c);
			for (int64_t i = 0; i < 48 * 32; i++) { /* sums in another order: the last bit of bf16 */
				uint16_t h;
				memcpy(&h, y + 2 * i, 2);
				double want = fo_bf16_to_f32(h), got = fo_bf16_to_f32(((uint16_t *)c.arg[2].data)[i]);
				assert_true(fabs(got - want) <= 0x1p-7 * fabs(want) + 0x1p-12);
			}
			for (int i = 2; i < 5; i++)
				free(c.arg[i].data);
		}
	fo_st_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),   cmocka_unit_test(test_rounding), cmocka_unit_test(test_casts),
		cmocka_unit_test(test_scales),   cmocka_unit_test(test_history),  cmocka_unit_test(test_step_scale),
		cmocka_unit_test(test_products), cmocka_unit_test(test_torch),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
