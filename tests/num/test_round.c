/* fp32 numbers in 16 bits: splitting is exact, rounding at random has the right mean, its noise looks uniform and
 * independent, and the update that uses them gives the same bits in any set of kernels, number of threads and lie of
 * the tensors. */
#include "base/clock.h"
#include "kernel/kernel.h"
#include "kernel/round.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- splitting ---- */

/* Every upper half, with lower halves at the borders, at ties and anywhere. */
static void test_split(void **state)
{
	(void)state;
	static const uint32_t border[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };
	int ties = 0;
	for (uint32_t upper = 0; upper < 1 << 16; upper++)
		for (uint32_t i = 0; i < 12; i++) {
			uint32_t lower = i < 6 ? border[i] : (uint32_t)fo_rng_u64(upper, i) & 0xffff,
				 bits = upper << 16 | lower;
			float f = fo_f32_of_bits(bits);
			uint16_t high = fo_split_high(f);
			int16_t low = fo_split_low(f);
			if (isnan(f)) {
				assert_true(isnan(fo_split_join(high, low)) && isnan(fo_bf16_to_f32(high)));
				continue;
			}
			assert_true(fo_f32_bits(fo_split_join(high, low)) == bits);
			/* The nearest, and at ties the larger one. */
			if (lower == 0x8000) {
				ties++;
				assert_true(high == upper + 1);
			} else {
				assert_true(high == fo_bf16_from_f32(f));
			}
		}
	assert_true(ties > 60000);
}

/* ---- rounding at random ---- */

static void test_exact_probability(void **state)
{
	(void)state;
	static const uint32_t number[] = { 0x3f800000, 0x3f800001, 0x3f804000, 0xbf80c123,
					   0x3f7fffff, 0x00000123, 0xc2ff8001 };
	for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
		uint32_t up = 0, upper = number[i] >> 16;
		for (uint32_t bits = 0; bits < 1 << 16; bits++) {
			uint16_t h = fo_bf16_at_random(fo_f32_of_bits(number[i]), bits);
			assert_true(h == upper || h == upper + 1);
			up += h != upper;
		}
		assert_int_equal(up, number[i] & 0xffff); /* of 2^16: the mean is the number itself */
	}
	assert_true(isnan(fo_bf16_to_f32(fo_bf16_at_random(NAN, 0xffff))));
	assert_true(isinf(fo_bf16_to_f32(fo_bf16_at_random(-INFINITY, 0xffff))));
}

/* Correlation of two streams of 16-bit numbers; their deviation from uniform in 256 bins as chi-square is added to
 * *chi. */
enum { N = 1 << 18 };
static double correlation(const uint16_t *a, const uint16_t *b, double *chi, double *mean)
{
	double bin[256] = { 0 }, product = 0, sum = 0;
	for (int i = 0; i < N; i++) {
		bin[a[i] >> 8]++;
		sum += a[i] + 0.5;
		product += (a[i] - 32767.5) * (b[i] - 32767.5);
	}
	*chi = 0;
	for (int i = 0; i < 256; i++)
		*chi += (bin[i] - N / 256.0) * (bin[i] - N / 256.0) / (N / 256.0);
	*mean = sum / N / 65536;
	return product / N / (65536.0 * 65536 / 12);
}

static void fill(uint16_t *to, struct fo_noise_key key, int shift, uint32_t from, uint32_t stride)
{
	for (uint32_t i = 0; i < N; i++)
		to[i] = (uint16_t)(fo_noise(key, from + i * stride) >> shift);
}

static void test_noise(void **state)
{
	(void)state;
	uint16_t *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
	assert_true(a && b);
	for (int k = 0; k < 24; k++) {
		uint64_t seed = (uint64_t)k / 4, step = (uint64_t)(k % 4) * 1000;
		struct fo_noise_key key = fo_noise_key(seed, step, k % 3, FO_NOISE_WEIGHT);
		const struct {
			struct fo_noise_key key;
			int shift;
			uint32_t from;
		} other[] = {
			{ key, 0, 1 },   /* the element beside it */
			{ key, 0, 768 }, /* the element below it */
			{ key, 16, 0 },  /* the word's other half */
			{ fo_noise_key(seed, step + 1, k % 3, FO_NOISE_WEIGHT), 0, 0 },
			{ fo_noise_key(seed + 1, step, k % 3, FO_NOISE_WEIGHT), 0, 0 },
			{ fo_noise_key(seed, step, k % 3 + 1, FO_NOISE_WEIGHT), 0, 0 },
			{ fo_noise_key(seed, step, k % 3, FO_NOISE_MOMENTS), 0, 0 },
		};
		for (size_t i = 0; i < sizeof other / sizeof *other; i++)
			for (uint32_t stride = 1; stride <= 4096; stride *= 64) {
				double chi, mean, c;
				fill(a, key, k % 2 ? 16 : 0, 12345, stride);
				fill(b, other[i].key, (k % 2 ? 16 : 0) ^ other[i].shift, 12345 + other[i].from, stride);
				c = correlation(a, b, &chi, &mean);
				/* Five deviations of a correlation of N independent pairs (1 / sqrt N) and of a mean;
				 * chi-square with 255 degrees has mean 255 and deviation 22.6. The seeds are fixed:
				 * this passes or it does not. */
				if (fabs(c) > 5 / sqrt(N) || fabs(mean - 0.5) > 5 / sqrt(12.0 * N) ||
				    fabs(chi - 255) > 5 * 22.6)
					fail_msg("key %d, stream %zu, stride %u: correlation %.4f, mean %.5f, "
						 "chi-square %.0f",
						 k, i, stride, c, mean, chi);
			}
	}
	free(a);
	free(b);
}

/* ---- the update ---- */

/* One adamw over (rows, cols) with everything that it may have; master NONE, FO_F32 or FO_I16. */
enum { NONE = -1 };
struct update {
	struct fo_call call;
	double hyper[FO_HYPER_COUNT], scale[2];
	int64_t n;
	float *start; /* fp32 numbers that weights begin as */
};

static void *room(size_t bytes)
{
	void *p = calloc(1, bytes + 64);
	assert_non_null(p);
	return p;
}

static void update_new(struct update *u, int64_t rows, int64_t cols, int moments, int weight, int master,
		       bool stochastic)
{
	const int dtype[] = { moments, moments, FO_F32, FO_F64, FO_F64, weight, master };
	*u = (struct update){ .n = rows * cols, .scale = { 1, 1 } };
	const double hyper[FO_HYPER_COUNT] = { [FO_HYPER_LR] = 1e-3,  [FO_HYPER_BETA1] = 0.9, [FO_HYPER_BETA2] = 0.95,
					       [FO_HYPER_EPS] = 1e-8, [FO_HYPER_DECAY] = 0.1, [FO_HYPER_CORR1] = 1,
					       [FO_HYPER_CORR2] = 1,  [FO_HYPER_SEED] = 3,    [FO_HYPER_STEP] = 0 };
	memcpy(u->hyper, hyper, sizeof hyper);
	u->call = (struct fo_call){ .kind = FO_OP_adamw, .n = master >= 0 ? 7 : 6, .threads = 1 };
	u->call.attr.value = 1;
	u->call.attr.stochastic = stochastic;
	u->start = room((size_t)u->n * sizeof *u->start);
	for (int i = 0; i < u->call.n; i++) {
		struct fo_tensor *t = &u->call.arg[i];
		*t = (struct fo_tensor){ .rows = i == 3 || i == 4 ? 1 : rows,
					 .cols = i == 3   ? FO_HYPER_COUNT
						 : i == 4 ? 2
							  : cols };
		t->ld = t->cols;
		t->dtype = (uint8_t)dtype[i];
		t->data = i == 3   ? (void *)u->hyper
			  : i == 4 ? (void *)u->scale
				   : room((size_t)(rows * cols) * fo_dtype_bytes(dtype[i]));
	}
	for (int64_t i = 0; i < u->n; i++)
		u->start[i] = (float)fo_rng_normal(11, (uint64_t)i);
}

/* The weights' formats from `start`. */
static void update_begin(struct update *u)
{
	struct fo_tensor *w = &u->call.arg[5], *master = u->call.n > 6 ? &u->call.arg[6] : NULL;
	for (int64_t i = 0; i < u->n; i++) {
		float f = u->start[i];
		if (w->dtype == FO_F32)
			((float *)w->data)[i] = f;
		else
			((uint16_t *)w->data)[i] = master && master->dtype == FO_I16 ? fo_split_high(f)
										     : fo_bf16_from_f32(f);
		if (master && master->dtype == FO_I16)
			((int16_t *)master->data)[i] = fo_split_low(f);
		else if (master)
			((float *)master->data)[i] = f;
	}
}

static void update_free(struct update *u)
{
	for (int i = 0; i < u->call.n; i++)
		if (i != 3 && i != 4)
			free(u->call.arg[i].data);
	free(u->start);
}

static double get(const struct fo_tensor *t, int64_t i)
{
	return t->dtype == FO_BF16 ? (double)fo_bf16_to_f32(((const uint16_t *)t->data)[i])
				   : (double)((const float *)t->data)[i];
}

static void gradient(struct update *u, int step)
{
	for (int64_t i = 0; i < u->n; i++)
		((float *)u->call.arg[2].data)[i] = (float)fo_rng_normal(100 + (uint64_t)step, (uint64_t)i);
}

static const struct fo_kernel *adamw(int set) { return &fo_kernel_sets[set]->kernel[FO_OP_adamw]; }
#define EACH_SET(s) for (int s = 0; s < FO_ISA_COUNT && fo_kernel_sets[s] && fo_isa_have(fo_kernel_sets[s]->isa); s++)

/* A split master is the fp32 master, bit by bit, over many steps; the weight is the same but at ties. */
static void test_split_is_master(void **state)
{
	(void)state;
	enum { R = 3, C = 2051 };
	EACH_SET(s)
	{
		struct update copy, split;
		if (!adamw(s)->run)
			continue;
		update_new(&copy, R, C, FO_F32, FO_BF16, FO_F32, false);
		update_new(&split, R, C, FO_F32, FO_BF16, FO_I16, false);
		/* Some that stay ties: their gradients are 0, and nothing decays. */
		for (int64_t i = 0; i < copy.n; i += 7)
			split.start[i] = copy.start[i] = fo_f32_of_bits((fo_f32_bits(copy.start[i]) & 0xffff0000) |
									0x8000);
		copy.call.attr.value = split.call.attr.value = 0;
		update_begin(&copy);
		update_begin(&split);
		int64_t ties = 0, moved = 0;
		for (int step = 0; step < 40; step++) {
			gradient(&copy, step);
			for (int64_t i = 0; i < copy.n; i += 7)
				((float *)copy.call.arg[2].data)[i] = 0;
			memcpy(split.call.arg[2].data, copy.call.arg[2].data, (size_t)copy.n * 4);
			adamw(s)->run(&copy.call);
			adamw(s)->run(&split.call);
			for (int64_t i = 0; i < copy.n; i++) {
				uint16_t h = ((uint16_t *)split.call.arg[5].data)[i],
					 plain = ((uint16_t *)copy.call.arg[5].data)[i];
				float master = ((float *)copy.call.arg[6].data)[i];
				float joined = fo_split_join(h, ((int16_t *)split.call.arg[6].data)[i]);
				assert_true(fo_f32_bits(joined) == fo_f32_bits(master));
				bool tie = (fo_f32_bits(master) & 0xffff) == 0x8000;
				assert_true(h == plain || (tie && h == plain + 1));
				ties += tie;
				moved += h != plain;
			}
		}
		assert_true(ties > 40 * copy.n / 8 && moved > ties / 3 && moved < ties);
		update_free(&copy);
		update_free(&split);
	}
}

/* The bits of an update: whatever the threads, and in one piece or as tensors of their own that keep their numbers. */
static void test_same_bits(void **state)
{
	(void)state;
	enum { R = 37, C = 1111, CUT = 14 }; /* large enough that threads share it */
	EACH_SET(s)
	{
		struct update whole, other;
		if (!adamw(s)->run)
			continue;
		for (int form = 0; form < 3; form++) {
			int moments = form ? FO_BF16 : FO_F32, master = form == 2 ? FO_I16 : NONE;
			update_new(&whole, R, C, moments, FO_BF16, master, true);
			whole.call.attr.element = 5000000000; /* beyond 32 bits: numbers wrap alike */
			update_begin(&whole);
			gradient(&whole, 1);
			for (int way = 0; way < 3; way++) {
				update_new(&other, R, C, moments, FO_BF16, master, true);
				other.call.attr.element = 5000000000;
				update_begin(&other);
				gradient(&other, 1);
				struct fo_call c = other.call;
				c.threads = 1 + way;
				for (int piece = 0; piece < (way == 2 ? 2 : 1); piece++) {
					for (int i = 0; way == 2 && i < c.n; i++) {
						if (i == 3 || i == 4)
							continue;
						c.arg[i].rows = piece ? R - CUT : CUT;
						c.arg[i].first = piece ? CUT * C : 0;
						c.arg[i].data = (char *)other.call.arg[i].data +
								(piece ? CUT * C : 0) *
									(int)fo_dtype_bytes(c.arg[i].dtype);
					}
					adamw(s)->run(&c);
				}
				if (way == 0) { /* the first run is what the others are compared with */
					struct update t = whole;
					whole = other;
					other = t;
					update_free(&other);
					continue;
				}
				for (int i = 0; i < c.n; i++)
					if (i != 3 && i != 4)
						assert_memory_equal(other.call.arg[i].data, whole.call.arg[i].data,
								    (size_t)whole.n * fo_dtype_bytes(c.arg[i].dtype));
				update_free(&other);
			}
			/* Another step, layer or number is other noise. */
			for (int way = 0; way < 3; way++) {
				update_new(&other, R, C, moments, FO_BF16, master, true);
				other.call.attr.element = 5000000000 + (way == 2);
				other.hyper[FO_HYPER_STEP] = way == 0;
				other.call.arg[5].layer = way == 1;
				update_begin(&other);
				gradient(&other, 1);
				adamw(s)->run(&other.call);
				bool random_weight = master == NONE;
				assert_int_equal(random_weight, !!memcmp(other.call.arg[5].data, whole.call.arg[5].data,
									 (size_t)whole.n * 2));
				if (form)
					assert_true(memcmp(other.call.arg[1].data, whole.call.arg[1].data,
							   (size_t)whole.n * 2));
				update_free(&other);
			}
			update_free(&whole);
		}
	}
}

/* Where the arithmetic is exact, every set rounds the same numbers with the same noise. */
static void test_sets_agree(void **state)
{
	(void)state;
	enum { R = 5, C = 203 };
	struct update want, got;
	update_new(&want, R, C, FO_BF16, FO_BF16, NONE, true);
	gradient(&want, 1);
	/* beta 0: the moments are the gradient and its square, rounded once. */
	want.hyper[FO_HYPER_BETA1] = want.hyper[FO_HYPER_BETA2] = want.hyper[FO_HYPER_LR] = 0;
	adamw(0)->run(&want.call);
	EACH_SET(s)
	{
		if (!s || !adamw(s)->run)
			continue;
		update_new(&got, R, C, FO_BF16, FO_BF16, NONE, true);
		gradient(&got, 1);
		memcpy(got.hyper, want.hyper, sizeof got.hyper);
		adamw(s)->run(&got.call);
		for (int i = 0; i < 2; i++)
			assert_memory_equal(got.call.arg[i].data, want.call.arg[i].data, (size_t)want.n * 2);
		update_free(&got);
	}
	int moved = 0;
	for (int64_t i = 0; i < want.n; i++)
		moved += ((uint16_t *)want.call.arg[0].data)[i] !=
			 fo_bf16_from_f32(((float *)want.call.arg[2].data)[i]);
	assert_true(moved > want.n / 8); /* it is no rounding to nearest */
	update_free(&want);
}

/* Steps of a hundredth of a unit in the last place: nearest never moves, at random moves by their sum on average. */
static void test_weights_drift(void **state)
{
	(void)state;
	enum { R = 64, C = 1024, STEPS = 50 };
	EACH_SET(s)
	for (int stochastic = 0; adamw(s)->run && stochastic < 2; stochastic++) {
		struct update u;
		update_new(&u, R, C, FO_F32, FO_BF16, NONE, stochastic);
		u.hyper[FO_HYPER_LR] = 0x1p-7 / 100;
		u.call.attr.value = 0;
		for (int64_t i = 0; i < u.n; i++)
			u.start[i] = 1.5f;
		update_begin(&u);
		double ideal = 1.5 - STEPS * 0x1p-7 / 100, sum = 0;
		for (int step = 0; step < STEPS; step++) {
			u.hyper[FO_HYPER_STEP] = step;
			for (int64_t i = 0; i < u.n; i++)
				((float *)u.call.arg[2].data)[i] = 1;
			u.hyper[FO_HYPER_CORR1] = 1 - pow(0.9, step + 1);
			u.hyper[FO_HYPER_CORR2] = 1 - pow(0.95, step + 1);
			adamw(s)->run(&u.call);
		}
		for (int64_t i = 0; i < u.n; i++)
			sum += get(&u.call.arg[5], i);
		/* One rounding has variance at most 0.01 x 0.99 units^2 where it lies a hundredth from a number. */
		double deviation = sqrt(STEPS * 0.0099) * 0x1p-7 / sqrt((double)u.n);
		if (stochastic)
			assert_true(fabs(sum / (double)u.n - ideal) < 5 * deviation);
		else
			assert_true(sum / (double)u.n == 1.5);
		update_free(&u);
	}
}

/* A second moment of 1 whose gradient becomes 1/2, after `steps`: the mean over elements. */
static double second_moment(int set, double beta2, int moments, bool stochastic, int steps)
{
	enum { R = 16, C = 256 };
	struct update u;
	double sum = 0;
	update_new(&u, R, C, moments, FO_F32, NONE, stochastic);
	u.hyper[FO_HYPER_BETA2] = beta2;
	for (int64_t i = 0; i < u.n; i++) {
		if (moments == FO_BF16)
			((uint16_t *)u.call.arg[1].data)[i] = fo_bf16_from_f32(1);
		else
			((float *)u.call.arg[1].data)[i] = 1;
	}
	for (int step = 0; step < steps; step++) {
		u.hyper[FO_HYPER_STEP] = step;
		for (int64_t i = 0; i < u.n; i++)
			((float *)u.call.arg[2].data)[i] = 0.5f;
		adamw(set)->run(&u.call);
	}
	for (int64_t i = 0; i < u.n; i++)
		sum += get(&u.call.arg[1], i);
	double mean = sum / (double)u.n;
	update_free(&u);
	return mean;
}

/* Rounded to nearest, a second moment stops where a step is below half a unit in the last place; at random it does not.
 */
static void test_second_moment(void **state)
{
	(void)state;
	static const double beta2[] = { 0.95, 0.98, 0.99, 0.995, 0.999 };
	int set = FO_ISA_COUNT - 1;
	while (!fo_kernel_sets[set] || !fo_isa_have(fo_kernel_sets[set]->isa) || !adamw(set)->run)
		set--;
	for (size_t i = 0; i < sizeof beta2 / sizeof *beta2; i++) {
		int steps = (int)(5 / (1 - beta2[i])); /* exact: 1/4 + 3/4 e^-5 */
		double exact = second_moment(set, beta2[i], FO_F32, false, steps);
		double nearest = second_moment(set, beta2[i], FO_BF16, false, steps);
		double random = second_moment(set, beta2[i], FO_BF16, true, steps);
		print_message("beta2 %g, %d steps after g^2 falls from 1 to 1/4: v %.4f, bf16 nearest %.4f (%+.1f %%), "
			      "at random %.4f (%+.2f %%)\n",
			      beta2[i], steps, exact, nearest, 100 * (nearest / exact - 1), random,
			      100 * (random / exact - 1));
		assert_true(fabs(exact - 0.255) < 0.002);
		/* Its elements walk by about 2^-9 sqrt(1 / (2 (1 - beta2))) of v; the mean of 4096 is 64 times as
		 * close. */
		assert_true(fabs(random / exact - 1) < 5 * 0x1p-8 / sqrt(2 * (1 - beta2[i])) / 64 + 1e-3);
		assert_true(beta2[i] < 0.999 ? nearest > 1.03 * exact : nearest == 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_split),         cmocka_unit_test(test_exact_probability),
		cmocka_unit_test(test_noise),         cmocka_unit_test(test_split_is_master),
		cmocka_unit_test(test_same_bits),     cmocka_unit_test(test_sets_agree),
		cmocka_unit_test(test_weights_drift), cmocka_unit_test(test_second_moment),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
