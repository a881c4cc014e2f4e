/* bf16 at its edges, in every set of this machine: rounding of ties, denormals, infinities and NaN bit by bit;
 * exponentials over their whole range. tests/num/test_sets.c holds the error of ordinary numbers. */
#include "base/rng.h"
#include "kernel/kernel.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 64, COLS = 107, N = ROWS * COLS }; /* whole vectors, pairs and an odd tail at 8 and 16 lanes */

static uint16_t a[N], b[N], y[N];
static float f[N];

static struct fo_tensor tensor(void *data, int dtype)
{
	return (struct fo_tensor){ .data = data, .rows = ROWS, .cols = COLS, .ld = COLS, .dtype = (uint8_t)dtype };
}

static float f32_of(uint32_t u)
{
	float x;

	memcpy(&x, &u, sizeof x);
	return x;
}

/* Any bits, more often those next to zero, to infinity and to a tie of bf16. */
static uint32_t bits(uint64_t i)
{
	uint32_t u = (uint32_t)fo_rng_u64(7, i);

	switch (i % 5) {
	case 0: return u & 0x807fffff;                                      /* denormal */
	case 1: return (u & 0xffff0000) | 0x8000;                           /* tie, or a NaN */
	case 2: return (u & 0x8001ffff) | 0x7f000000 | (u & 0xfe0000) << 6; /* the largest, infinity, NaN */
	case 3: return u & 0x80000000;                                      /* zero */
	default: return u;
	}
}

static bool nan_bits(uint16_t h) { return (h & 0x7fff) > 0x7f80; }

static void same(const char *set, const char *what, int i, uint16_t got, float exact)
{
	uint16_t want = fo_bf16_from_f32(exact);

	if (exact != exact ? !nan_bits(got) : got != want)
		fail_msg("%s, %s, element %d: %04x, not %04x", set, what, i, got, want);
}

/* The sets with a kernel of their own for this operation. */
static const struct fo_kernel *kernel_of(int isa, int op)
{
	const struct fo_kernel_set *s = fo_isa_have(isa) ? fo_kernel_sets[isa] : NULL;

	return s && s->kernel[op].run ? &s->kernel[op] : NULL;
}

static void test_add(void **state)
{
	(void)state;
	for (int isa = 0; isa < FO_ISA_COUNT; isa++) {
		struct fo_call c = { .kind = FO_OP_add, .n = 3, .first = UINT32_MAX, .threads = 1 };
		const struct fo_kernel *k = kernel_of(isa, FO_OP_add);

		for (int round = 0; k && round < 20; round++) {
			for (int i = 0; i < N; i++) {
				a[i] = (uint16_t)(bits((uint64_t)(round * N + i)) >> 16);
				b[i] = (uint16_t)(bits((uint64_t)((round + 20) * N + i * 7)) >> 16);
				/* Half of them a sum that lies at or near a tie. */
				if (i % 2 && (a[i] & 0x7f80) > 0x0800 && (a[i] & 0x7f80) < 0x7f80)
					b[i] = (uint16_t)((a[i] & 0xff80) - (7 + i / 2 % 3) * 0x80);
			}
			c.arg[0] = tensor(a, FO_BF16);
			c.arg[1] = tensor(b, FO_BF16);
			c.arg[2] = tensor(y, FO_BF16);
			k->run(&c);
			for (int i = 0; i < N; i++)
				same(fo_isa_name[isa], "add", i, y[i], fo_bf16_to_f32(a[i]) + fo_bf16_to_f32(b[i]));
		}
	}
}

/* Numbers that no arithmetic touched, signalling NaN among them. */
static void test_cast(void **state)
{
	int32_t row[ROWS];

	(void)state;
	for (int i = 0; i < ROWS; i++)
		row[i] = ROWS - 1 - i;
	for (int isa = 0; isa < FO_ISA_COUNT; isa++) {
		struct fo_call c = { .kind = FO_OP_embed, .n = 3, .first = UINT32_MAX, .threads = 1 };
		const struct fo_kernel *k = kernel_of(isa, FO_OP_embed);

		for (int round = 0; k && round < 20; round++) {
			for (int i = 0; i < N; i++)
				f[i] = f32_of(bits((uint64_t)(round * N + i)));
			c.arg[0] = (struct fo_tensor){ .data = row, .rows = ROWS, .cols = 1, .ld = 1, .dtype = FO_I32 };
			c.arg[1] = tensor(f, FO_F32);
			c.arg[2] = tensor(y, FO_BF16);
			k->run(&c);
			for (int i = 0; i < N; i++)
				same(fo_isa_name[isa], "cast", i, y[i], f[row[i / COLS] * COLS + i % COLS]);
		}
	}
}

/* g sigmoid(g) u for g from -300 to 300 and the largest numbers: within one unit of bf16's last place. */
static void test_swiglu(void **state)
{
	(void)state;
	for (int i = 0; i < N; i++) {
		a[i] = fo_bf16_from_f32(i % 9 == 8 ? (i % 2 ? 3e38f : -3e38f) : 600.0f * ((float)i / N - 0.5f));
		b[i] = fo_bf16_from_f32(i % 2 ? 0.75f : -1.0f);
	}
	a[3] = 0x7fc0, b[5] = 0xffc0, a[COLS - 1] = 0x7f81; /* the last signals */
	for (int isa = 0; isa < FO_ISA_COUNT; isa++) {
		struct fo_call c = { .kind = FO_OP_swiglu, .n = 3, .first = UINT32_MAX, .threads = 1 };
		const struct fo_kernel *k = kernel_of(isa, FO_OP_swiglu);

		if (!k)
			continue;
		c.arg[0] = tensor(a, FO_BF16);
		c.arg[1] = tensor(b, FO_BF16);
		c.arg[2] = tensor(y, FO_BF16);
		k->run(&c);
		for (int i = 0; i < N; i++) {
			double g = (double)fo_bf16_to_f32(a[i]),
			       exact = g / (1 + exp(-g)) * (double)fo_bf16_to_f32(b[i]);
			double got = (double)fo_bf16_to_f32(y[i]);

			/* Some sets take no exponential above e^88 or below e^-87. */
			if (isnan(exact) ? !isnan(got)
					 : !(fabs(got - exact) <= fabs(exact) / 128 + fabs(g) * exp(-86.9)))
				fail_msg("%s, swiglu(%g): %g, not %g", fo_isa_name[isa], g, got, exact);
		}
	}
}

/* Rows of logits over a range where most exponentials vanish; a row with NaN has no finite loss. */
static void test_xent(void **state)
{
	enum { SPACE = 1 << 16 };
	static _Alignas(64) unsigned char space[SPACE];
	int32_t target[ROWS];
	double hyper[FO_HYPER_COUNT] = { [FO_HYPER_INV_TOKENS] = 1.0 / ROWS }, loss, exact = 0;
	static double p[N];

	(void)state;
	for (int i = 0; i < N; i++)
		a[i] = fo_bf16_from_f32((float)(fo_rng_u64(3, (uint64_t)i) % 4001) / 10 - 200);
	for (int r = 0; r < ROWS; r++) {
		double max = -INFINITY, sum = 0;

		target[r] = r * 5 % COLS;
		for (int j = 0; j < COLS; j++)
			max = fmax(max, (double)fo_bf16_to_f32(a[r * COLS + j]));
		for (int j = 0; j < COLS; j++)
			sum += p[r * COLS + j] = exp((double)fo_bf16_to_f32(a[r * COLS + j]) - max);
		for (int j = 0; j < COLS; j++)
			p[r * COLS + j] = (p[r * COLS + j] / sum - (j == target[r])) / ROWS;
		exact += (log(sum) + max - (double)fo_bf16_to_f32(a[r * COLS + target[r]])) / ROWS;
	}
	for (int isa = 0; isa < FO_ISA_COUNT; isa++) {
		struct fo_call c = {
			.kind = FO_OP_xent, .n = 4, .first = UINT32_MAX, .threads = 2, .ws = space, .ws_bytes = SPACE
		};
		const struct fo_kernel *k = kernel_of(isa, FO_OP_xent);

		for (int round = 0; k && round < 2; round++) {
			memcpy(y, a, sizeof y);
			if (round)
				y[5 * COLS + 40] = 0xffc0;
			c.arg[0] = tensor(y, FO_BF16);
			c.arg[1] = (struct fo_tensor){
				.data = target, .rows = ROWS, .cols = 1, .ld = 1, .dtype = FO_I32
			};
			c.arg[2] = (struct fo_tensor){
				.data = hyper, .rows = 1, .cols = FO_HYPER_COUNT, .ld = FO_HYPER_COUNT, .dtype = FO_F64
			};
			c.arg[3] = (struct fo_tensor){ .data = &loss, .rows = 1, .cols = 1, .ld = 1, .dtype = FO_F64 };
			assert_true(!k->ws || k->ws(&c) <= SPACE);
			k->run(&c);
			if (round) {
				assert_false(isfinite(loss));
				assert_true(nan_bits(y[5 * COLS]) && nan_bits(y[5 * COLS + COLS - 1]));
				continue;
			}
			if (!(fabs(loss - exact) <= 1e-6 * exact))
				fail_msg("%s, xent: %.9g, not %.9g", fo_isa_name[isa], loss, exact);
			for (int i = 0; i < N; i++)
				if (!(fabs((double)fo_bf16_to_f32(y[i]) - p[i]) <= fabs(p[i]) / 128 + exp(-86.9)))
					fail_msg("%s, xent, element %d: %g, not %g", fo_isa_name[isa], i,
						 (double)fo_bf16_to_f32(y[i]), p[i]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_add),
		cmocka_unit_test(test_cast),
		cmocka_unit_test(test_swiglu),
		cmocka_unit_test(test_xent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
