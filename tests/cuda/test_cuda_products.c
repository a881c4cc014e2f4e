/* Products on a device beyond the cases that every kernel set is held to: fp8 that the library takes as it is, and
 * which algorithm runs. */
#include "base/fs.h"
#include "base/mem.h"
#include "hw/nvml.h"
#include "support/cuda.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct fo_cuda *cuda;
static const struct fo_test_soft *soft;
static char folder[] = "/tmp/fo-test-products-XXXXXX", cache[128];

/* ---- fp8: every layout, scales of all or of lines or mixed, both outputs, added and stored ---- */

struct fp8 {
	int64_t m, n, k;
	int ta, tb, a, out, acc, lines_a, lines_b;
};
static struct fo_num_case fp8_case(const struct fp8 *f)
{
	struct fo_num_case c;
	fo_num_case_init(&c, FO_OP_matmul);
	fo_num_case_arg(&c, f->a, f->ta ? f->k : f->m, f->ta ? f->m : f->k, FO_READ, FO_NUM_NORMAL, 64, 0);
	fo_num_case_arg(&c, FO_E4M3, f->tb ? f->n : f->k, f->tb ? f->k : f->n, FO_READ, FO_NUM_NORMAL, 64, 0);
	fo_num_case_arg(&c, f->out, f->m, f->n, f->acc ? FO_ACC : FO_DEF, f->acc ? FO_NUM_NORMAL : FO_NUM_NAN, 1, 0);
	fo_num_case_arg(&c, FO_F32, f->lines_a && !f->ta ? f->m : 1, f->lines_a && f->ta ? f->m : 1, FO_READ,
			FO_NUM_POSITIVE, 1, 0);
	fo_num_case_arg(&c, FO_F32, f->lines_b && f->tb ? f->n : 1, f->lines_b && !f->tb ? f->n : 1, FO_READ,
			FO_NUM_POSITIVE, 1, 0);
	c.call.attr.ta = (uint8_t)f->ta;
	c.call.attr.tb = (uint8_t)f->tb;
	c.call.first = f->acc ? 0 : 1u << 2;
	return c;
}

/* more than one tile of the transposition, and parts of tiles */
static const int64_t fp8_shape[][3] = { { 16, 16, 16 }, { 48, 144, 272 }, { 160, 32, 144 } };
static struct fp8 fp8_mode(const int64_t *shape, int t)
{
	return (struct fp8){ shape[0],
			     shape[1],
			     shape[2],
			     t & 1,
			     t >> 1 & 1,
			     t >> 2 & 1 ? FO_E5M2 : FO_E4M3,
			     t & 1 ? FO_F32 : FO_BF16,
			     t >> 1 & 1,
			     t >> 3 & 1,
			     t >> 4 & 1 };
}

/* What Hopper's tensor cores may lose. They add 32 products and the sum so far in one instruction: all are shifted to
 * the exponent of the largest and cut 13 bits behind its first (DeepSeek-V3, arXiv 2412.19437, section 3.5.2), so each
 * of the 33 terms loses less than 2^-13 of the largest. Fast sums go on like that to the end. Others begin anew after
 * 128 products (four instructions, what CUTLASS promotes after) and those parts are added in fp32. Then the scales (two
 * roundings), what is added to, and the rounding of the result. */
static double fp8_bound(const struct fo_call *c, int64_t i, int64_t j, bool fast, double *exact)
{
	enum { STEP = 32, PART = 128 };
	const struct fo_tensor *a = &c->arg[0], *b = &c->arg[1], *sa = &c->arg[3], *sb = &c->arg[4];
	const int64_t k = c->attr.ta ? a->rows : a->cols;
	double sum = 0, part = 0, lost = 0, absolute = 0;
	for (int64_t l = 0; l < k; l += STEP) {
		double largest = fabs(part);
		for (int64_t s = l; s < l + STEP && s < k; s++) {
			double x = (c->attr.ta ? fo_num_get(a, s, i) : fo_num_get(a, i, s)) *
				   (c->attr.tb ? fo_num_get(b, j, s) : fo_num_get(b, s, j));
			largest = fmax(largest, fabs(x));
			part += x;
		}
		largest = fmax(largest, fabs(part));
		lost += (STEP + 1) * 0x1p-13 * largest;
		if ((!fast && (l + STEP) % PART == 0) || l + STEP >= k) {
			sum += part;
			absolute += fabs(part);
			part = 0;
		}
	}
	lost += (double)(k / PART + 1) * 0x1p-24 * absolute;
	const double scale = fo_num_get(sa, sa->rows > 1 ? i : 0, sa->cols > 1 ? i : 0) *
			     fo_num_get(sb, sb->rows > 1 ? j : 0, sb->cols > 1 ? j : 0);
	const double before = c->first & 1u << 2 ? 0 : fo_num_get(&c->arg[2], i, j);
	*exact = sum * scale + before;
	lost = lost * scale + 3 * 0x1p-24 * (fabs(sum * scale) + fabs(before));
	return lost + (c->arg[2].dtype == FO_BF16 ? 0x1p-8 : 0x1p-23) * (fabs(*exact) + lost);
}
/* Each mode alone, on any device, against double precision on the very numbers that were multiplied. */
static void test_fp8_bound(void **state)
{
	static const int64_t deep[3] = { 32, 48, 2048 };
	(void)state;
	for (size_t s = 0; s <= sizeof fp8_shape / sizeof *fp8_shape; s++)
		for (int t = 0; t < 32; t++) {
			const struct fp8 f = fp8_mode(s < sizeof fp8_shape / sizeof *fp8_shape ? fp8_shape[s] : deep,
						      t);
			const struct fo_num_case c = fp8_case(&f);
			struct fo_num_data in, got;
			double worst = 0;
			fo_num_data_new(&in, &c, 11, true);
			fo_num_data_copy(&got, &in);
			assert_true(fo_num_run(&fo_test_cuda_kernel, &got, 1));
			for (int64_t i = 0; i < f.m; i++)
				for (int64_t j = 0; j < f.n; j++) {
					const bool fast = f.a == FO_E4M3 && !f.ta && f.tb && !f.acc;
					double want, bound = fp8_bound(&in.call, i, j, fast, &want),
						     x = fo_num_get(&got.call.arg[2], i, j);
					if (!(fabs(x - want) <= bound))
						fail_msg("%s, ta=%d tb=%d lines %d %d: element %lld, %lld is %g, not "
							 "%g (at most %g apart)",
							 c.name, f.ta, f.tb, f.lines_a, f.lines_b, (long long)i,
							 (long long)j, x, want, bound);
					worst = fmax(worst, fabs(x - want) / bound);
				}
			if (!soft)
				print_message("%s ta=%d tb=%d lines %d %d: %.3f of the bound\n", c.name, f.ta, f.tb,
					      f.lines_a, f.lines_b, worst);
			fo_num_data_free(&in);
			fo_num_data_free(&got);
		}
}

/* The software device adds in fp32 and is held to that; a real one to test_fp8_bound. */
static void test_fp8(void **state)
{
	(void)state;
	if (!soft)
		skip();
	for (size_t s = 0; s < sizeof fp8_shape / sizeof *fp8_shape; s++)
		for (int t = 0; t < 32; t++) {
			struct fp8 f = fp8_mode(fp8_shape[s], t);
			struct fo_num_case c = fp8_case(&f);
			char why[512];
			assert_null(fo_num_cuda_cannot(&c));
			if (!fo_num_check_device(&c, &fo_test_cuda_kernel, NULL, NULL, why, sizeof why))
				fail_msg("ta=%d tb=%d lines %d %d: %s", f.ta, f.tb, f.lines_a, f.lines_b, why);
		}
}

/* Kernels of ours that a product launches: what the library takes as it is needs none, what lies the other way one
 * transposition each. */
static int64_t launches_of(const struct fp8 *f)
{
	struct fo_num_case c = fp8_case(f);
	struct fo_num_data d;
	struct fo_soft_counters n;
	fo_num_data_new(&d, &c, 1, true);
	soft->counters(&n, true);
	assert_true(fo_num_run(&fo_test_cuda_kernel, &d, 1));
	soft->counters(&n, false);
	fo_num_data_free(&d);
	assert_int_equal(n.library_calls, 1);
	return n.launches;
}
static void test_fp8_ways(void **state)
{
	struct fp8 f = { .m = 64, .n = 96, .k = 32, .tb = 1, .a = FO_E4M3, .out = FO_BF16 };
	(void)state;
	if (!soft)
		skip();
	assert_int_equal(launches_of(&f), 0);
	f.lines_a = f.lines_b = 1;
	assert_int_equal(launches_of(&f), 0);
	f.lines_b = 0; /* a lone scale among lines becomes lines */
	assert_int_equal(launches_of(&f), 1);
	f.lines_a = 0;
	f.tb = 0;
	assert_int_equal(launches_of(&f), 1);
	f.ta = 1;
	assert_int_equal(launches_of(&f), 2);
	f.k = 33; /* two factors widened, the product scaled */
	assert_int_equal(launches_of(&f), 3);
}

/* What no program has is refused with words, not computed. */
static void test_cannot(void **state)
{
	struct fp8 f = { .m = 16, .n = 16, .k = 16, .a = FO_E5M2, .out = FO_F32 };
	struct fo_num_case c = fp8_case(&f);
	(void)state;
	c.call.arg[1].dtype = FO_E5M2;
	assert_string_equal(fo_cuda_cannot(cuda, &c.call), "both factors are e5m2: one of them must be e4m3");
	c.call.arg[1].dtype = FO_BF16;
	assert_string_equal(fo_cuda_cannot(cuda, &c.call), "factors are of different types");
	c = fp8_case(&f);
	c.call.n = 3;
	assert_string_equal(fo_cuda_cannot(cuda, &c.call), "fp8 factors have no fp32 scales");
	fo_num_case_matmul(&c, 4, 4, 4, 0, 0, FO_F64, FO_F64, FO_DEF, true);
	assert_string_equal(fo_cuda_cannot(cuda, &c.call), "operands are neither fp8, bf16 nor fp32");
	fo_num_case_matmul(&c, 4, 4, 4, 0, 0, FO_F32, FO_BF16, FO_DEF, true);
	assert_string_equal(fo_cuda_cannot(cuda, &c.call), "the product of fp32 factors is not fp32");
	fo_num_case_matmul(&c, 4, 4, 4, 0, 0, FO_BF16, FO_F32, FO_DEF, true);
	assert_null(fo_cuda_cannot(cuda, &c.call));
}

/* ---- algorithms ---- */

/* A device of its own: what is prepared stays prepared as long as the device is open. */
static struct fo_cuda *fresh(enum fo_cuda_tune_mode mode, const char *path)
{
	struct fo_cuda *c;
	must(fo_cuda_open(&c, 0));
	must(fo_cuda_tune_set(c, mode, path));
	return c;
}
static struct fo_cuda_tuned prepared(struct fo_cuda *c, int64_t m, int64_t n, int64_t k)
{
	struct fo_num_case x;
	struct fo_cuda_tuned t;
	size_t ws;
	fo_num_case_matmul(&x, m, n, k, 0, 1, FO_BF16, FO_BF16, FO_DEF, true);
	must(fo_cuda_kernel_of(FO_OP_matmul)->prepare(c, &x.call, 0, &ws));
	fo_cuda_tune_result(c, &t);
	return t;
}
static char *text_of(struct fo_arena *a)
{
	char *text = NULL;
	size_t len;
	must(fo_fs_read(a, cache, 1 << 20, &text, &len));
	return fo_arena_strdup(a, text);
}
static int lines_of(const char *text)
{
	int n = 0;
	for (; *text; text++)
		n += *text == '\n';
	return n;
}
static void put_text(const char *text) { must(fo_fs_write_atomic(cache, text, strlen(text))); }

static void test_off(void **state)
{
	struct fo_cuda *c = fresh(FO_CUDA_TUNE_OFF, cache);
	struct fo_cuda_tuned t = prepared(c, 64, 64, 64);
	(void)state;
	assert_int_equal(t.proposed, 2); /* one for aligned operands, one for others */
	assert_int_equal(t.measured + t.kept, 0);
	t = prepared(c, 64, 64, 64);
	assert_int_equal(t.proposed, 2);
	assert_false(fo_fs_exists(cache));
	fo_cuda_close(c);
}

static void test_kept(void **state)
{
	struct fo_arena a = { 0 };
	struct fo_cuda *c = fresh(FO_CUDA_TUNE_ON, cache);
	struct fo_cuda_tuned t = prepared(c, 64, 64, 64);
	(void)state;
	assert_int_equal(t.measured, 1);
	assert_true(t.seconds > 0 && t.gain >= 1 - 1e-12);
	assert_string_equal(t.note, "");
	t = prepared(c, 64, 64, 64);
	assert_int_equal(t.measured, 1);
	t = prepared(c, 64, 64, 128);
	assert_int_equal(t.measured, 2);
	fo_cuda_close(c);
	assert_int_equal(lines_of(text_of(&a)), 2);
	for (int on = 0; on < 2; on++) {
		c = fresh(on ? FO_CUDA_TUNE_ON : FO_CUDA_TUNE_KEPT, cache);
		t = prepared(c, 64, 64, 128);
		assert_int_equal(t.kept, 1);
		assert_int_equal(t.measured, 0);
		fo_cuda_close(c);
	}
	c = fresh(FO_CUDA_TUNE_KEPT, cache); /* not kept, and not measured */
	t = prepared(c, 64, 64, 192);
	assert_int_equal(t.kept + t.measured, 0);
	fo_cuda_close(c);
	fo_arena_fini(&a);
}

/* Replaces the first `from` by `to` of the same length. */
static char *changed(struct fo_arena *a, const char *text, const char *from, const char *to)
{
	char *copy = fo_arena_strdup(a, text), *at = strstr(copy, from);
	assert_non_null(at);
	assert_int_equal(strlen(from), strlen(to));
	memcpy(at, to, strlen(to));
	return copy;
}

static void test_damaged(void **state)
{
	struct fo_arena a = { 0 };
	const char *good = text_of(&a);
	const char *const from[] = { "\"m\":64",
				     "\"schema\":\"flatout-product-1\"",
				     "\"bf16\"",
				     "\"us\":",
				     "\"algorithm\":\"",
				     "\"accumulate\":false",
				     "{" };
	const char *const to[] = { "\"m\":-4",
				   "\"schema\":\"flatout-product-2\"",
				   "\"bf17\"",
				   "\"uz\":",
				   "\"algorithm\":\"x\":",
				   "\"accumulate\": null",
				   " " };
	(void)state;
	for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
		if (strlen(from[i]) != strlen(to[i]))
			continue;
		put_text(changed(&a, good, from[i], to[i]));
		struct fo_cuda *c = fresh(FO_CUDA_TUNE_KEPT, cache);
		struct fo_cuda_tuned t = prepared(c, 64, 64, 64);
		assert_non_null(strstr(t.note, "1 damaged line of '"));
		assert_int_equal(t.kept, 0);
		t = prepared(c, 64, 64, 128); /* the second line still counts */
		assert_int_equal(t.kept, 1);
		fo_cuda_close(c);
	}
	/* cut in the middle of the second line, and bytes that are no text */
	char *cut = fo_arena_strdup(&a, good);
	cut[strlen(cut) - 40] = 0;
	put_text(cut);
	struct fo_cuda *c = fresh(FO_CUDA_TUNE_ON, cache);
	assert_int_equal(prepared(c, 64, 64, 64).kept, 1);
	assert_int_equal(prepared(c, 64, 64, 128).measured, 1);
	fo_cuda_close(c);
	assert_int_equal(lines_of(text_of(&a)), 2); /* whole again */
	put_text("\xff\xfe\n\n[]\nnull\n3\n{\"schema\":7}\n");
	c = fresh(FO_CUDA_TUNE_KEPT, cache);
	struct fo_cuda_tuned t = prepared(c, 64, 64, 64);
	assert_non_null(strstr(t.note, "5 damaged lines of '"));
	fo_cuda_close(c);
	put_text(good);
	fo_arena_fini(&a);
}

static void test_foreign(void **state)
{
	struct fo_arena a = { 0 };
	const char *good = text_of(&a), *device = strstr(good, "\"device\":\"");
	char *other = fo_arena_strdup(&a, good);
	(void)state;
	other[device - good + 10] ^= 1; /* the first line's device has another name */
	put_text(other);
	struct fo_cuda *c = fresh(FO_CUDA_TUNE_ON, cache);
	struct fo_cuda_tuned t = prepared(c, 64, 64, 64);
	assert_int_equal(t.measured, 1);
	assert_string_equal(t.note, "");
	fo_cuda_close(c);
	const char *now = text_of(&a);
	assert_int_equal(lines_of(now), 3);
	assert_non_null(strstr(now, fo_arena_printf(&a, "%.*s", (int)strcspn(other, "\n"), other)));
	put_text(good);
	fo_arena_fini(&a);
}

/* An algorithm that this library does not know: noted, and measured again. */
static void test_refused(void **state)
{
	struct fo_arena a = { 0 };
	const char *good = text_of(&a), *at = strstr(good, "\"algorithm\":\"");
	char *other = fo_arena_strdup(&a, good);
	(void)state;
	if (!soft) /* what the real one makes of such bytes is its own affair */
		skip();
	memset(other + (at - good) + 13, '0', 128);
	put_text(other);
	struct fo_cuda *c = fresh(FO_CUDA_TUNE_ON, cache);
	struct fo_cuda_tuned t = prepared(c, 64, 64, 64);
	assert_non_null(strstr(t.note, "refuses an algorithm"));
	assert_int_equal(t.measured, 1);
	fo_cuda_close(c);
	c = fresh(FO_CUDA_TUNE_KEPT, cache);
	assert_int_equal(prepared(c, 64, 64, 64).kept, 1);
	fo_cuda_close(c);
	put_text(good);
	fo_arena_fini(&a);
}

/* Where nothing can be measured the first proposal runs, and the note says why. */
static void test_no_memory(void **state)
{
	struct fo_cuda *c = fresh(FO_CUDA_TUNE_ON, NULL);
	void *all[64];
	int n = 0;
	(void)state;
	/* What is reported as free cannot be had to the last byte, nor in one piece: ever smaller pieces until the
	 * smallest is refused. */
	for (size_t bytes = (size_t)1 << 40; bytes >= 256; bytes /= 2)
		while (n < 64 && fo_cuda_alloc(c, bytes, &all[n]) == FO_OK)
			n++;
	fo_err_clear();
	assert_in_range(n, 1, 63);
	struct fo_cuda_tuned t = prepared(c, 64, 64, 320);
	assert_int_equal(t.measured, 0);
	assert_int_equal(t.proposed, 2);
	assert_non_null(strstr(t.note, "was not measured: the device cannot hold"));
	while (n)
		fo_cuda_free(c, all[--n]);
	fo_cuda_close(c);
}

/* ---- times that the software library makes up (FLATOUT_SOFT_TIMES): choices can be foretold ---- */

static void timed(const char *times, enum fo_cuda_tune_mode mode, struct fo_cuda_tuned *out)
{
	setenv("FLATOUT_SOFT_TIMES", times, 1);
	struct fo_cuda *c = fresh(mode, cache);
	*out = prepared(c, 64, 64, 64);
	fo_cuda_close(c);
	unsetenv("FLATOUT_SOFT_TIMES");
	if (*out->note)
		fail_msg("%s", out->note);
}
/* The cache's only line has each of these. */
static void keeps(const char *const *text)
{
	struct fo_arena a = { 0 };
	const char *line = text_of(&a);
	assert_int_equal(lines_of(line), 1);
	for (; *text; text++)
		if (!strstr(line, *text))
			fail_msg("no %s in %s", *text, line);
	fo_arena_fini(&a);
}
#define KEEPS(...) keeps((const char *const[]){ __VA_ARGS__, NULL })

/* The choice is the fastest. */
static void test_fastest(void **state)
{
	static const char *const times[] = { "100,300,200", "300,100,200", "300,200,100" };
	struct fo_arena a = { 0 };
	(void)state;
	if (!soft)
		skip();
	for (int fast = 0; fast < 3; fast++) {
		struct fo_cuda_tuned t;
		unlink(cache);
		timed(times[fast], FO_CUDA_TUNE_ON, &t);
		assert_int_equal(t.measured, 1);
		KEEPS(fo_arena_printf(&a, "\"rank\":%d,", fast), "\"method\":\"clear\"", "\"decided_by\":\"time\"",
		      "\"blocks\":[]");
		assert_true(fabs(t.gain - (fast ? 3 : 1)) < 1e-3);
	}
	fo_arena_fini(&a);
}

/* The first algorithm wins each burst and tires; the second one does not. The third is out of the question either
 * way. */
static void test_sustained(void **state)
{
	static const char tires[] = "100/104,102,200";
	struct fo_cuda_tuned t;
	(void)state;
	if (!soft) { /* times are its own */
		timed("", FO_CUDA_TUNE_LONG, &t);
		assert_int_equal(t.measured + t.kept, 1);
		return;
	}
	unlink(cache);
	timed(tires, FO_CUDA_TUNE_ON, &t);
	assert_int_equal(t.by_blocks, 0);
	KEEPS("\"rank\":0,", "\"method\":\"bursts\"", "\"blocks\":[]", "\"noise\":null", "\"joules\":null");
	/* What bursts chose is chosen again by blocks. */
	timed(tires, FO_CUDA_TUNE_LONG, &t);
	assert_int_equal(t.measured, 1);
	assert_int_equal(t.by_blocks, 1);
	assert_int_equal(t.by_energy, 0);
	assert_true(fabs(t.gain - 104.0 / 102) < 1e-3);
	KEEPS("\"rank\":1,", "\"method\":\"blocks\"", "\"decided_by\":\"time\"", "\"joules\":null", "\"clock_hz\":null",
	      "\"blocks\":[{\"rank\":0,\"us\":104");
	/* What blocks chose stays, whoever asks. */
	static const enum fo_cuda_tune_mode mode[] = { FO_CUDA_TUNE_ON, FO_CUDA_TUNE_LONG, FO_CUDA_TUNE_KEPT };
	for (size_t i = 0; i < sizeof mode / sizeof *mode; i++) {
		timed("100,300,300", mode[i], &t);
		assert_int_equal(t.kept, 1);
		assert_int_equal(t.measured, 0);
	}
	KEEPS("\"rank\":1,", "\"method\":\"blocks\"", "\"blocks\":[{\"rank\":0,\"us\":104");
	/* What is gained is said against the library's first proposal, in blocks, however slow that is. */
	unlink(cache);
	timed("130,100/104,102", FO_CUDA_TUNE_LONG, &t);
	assert_int_equal(t.by_blocks, 1);
	assert_true(fabs(t.gain - 130.0 / 102) < 1e-3);
	KEEPS("\"rank\":2,", "\"rank\":0,\"us\":130");
	/* A lead that no clock takes back needs no blocks, and is not measured again. */
	unlink(cache);
	timed("100/104,120,200", FO_CUDA_TUNE_LONG, &t);
	assert_int_equal(t.by_blocks, 0);
	KEEPS("\"rank\":0,", "\"method\":\"clear\"");
	timed("100/104,120,200", FO_CUDA_TUNE_LONG, &t);
	assert_int_equal(t.kept, 1);
}

/* Whoever stops it while it measures gets what bursts said, and nothing more is measured. */
struct told {
	int calls;
	volatile sig_atomic_t stop;
};
static void progress(void *ctx, const char *what, const char *unit, double done, double total)
{
	struct told *t = ctx;
	(void)what, (void)unit, (void)total;
	t->stop = t->calls++ == 1; /* the second product: before its blocks */
	assert_int_equal(done, t->calls - 1);
}
static void test_stopped(void **state)
{
	struct told told = { 0 };
	struct fo_arena a = { 0 };
	(void)state;
	if (!soft)
		skip();
	unlink(cache);
	setenv("FLATOUT_SOFT_TIMES", "100/104,102,200", 1);
	struct fo_cuda *c = fresh(FO_CUDA_TUNE_LONG, cache);
	fo_cuda_tune_hooks(c, progress, &told, &told.stop);
	assert_int_equal(prepared(c, 64, 64, 64).by_blocks, 1);
	struct fo_cuda_tuned t = prepared(c, 64, 64, 128);
	assert_int_equal(t.measured, 2);
	assert_int_equal(t.by_blocks, 1);
	assert_non_null(strstr(text_of(&a), "\"us\":100.0"));
	assert_non_null(strstr(text_of(&a), "\"method\":\"bursts\",\"decided_by\":\"time\",\"noise\":null,\"joules\":"
					    "null,\"clock_hz\":null,\"blocks\":[]"));
	t = prepared(c, 64, 64, 192);
	assert_int_equal(t.measured, 2);
	assert_int_equal(told.calls, 2);
	assert_string_equal(t.note, "");
	unsetenv("FLATOUT_SOFT_TIMES");
	fo_cuda_close(c);
	fo_arena_fini(&a);
}

/* A line as they were before there were blocks is read, and goes through a write unchanged in what it said. */
static void test_old_line(void **state)
{
	struct fo_arena a = { 0 };
	struct fo_cuda_tuned t;
	(void)state;
	if (!soft)
		skip();
	unlink(cache);
	timed("200,100,200", FO_CUDA_TUNE_ON, &t);
	char *old = text_of(&a), *from = strstr(old, ",\"method\""), *to = strstr(old, ",\"algorithm\"");
	assert_true(from && to && from < to);
	memmove(from, to, strlen(to) + 1);
	put_text(old);
	timed("100,200,200", FO_CUDA_TUNE_ON, &t);
	assert_int_equal(t.kept, 1);
	timed("100/104,102,200", FO_CUDA_TUNE_LONG, &t); /* it was chosen by bursts */
	assert_int_equal(t.measured, 1);
	KEEPS("\"method\":\"blocks\"");
	fo_arena_fini(&a);
}

/* What blocks say may be damaged, too. */
static void test_damaged_blocks(void **state)
{
	static const char *const from[] = { "\"method\":\"blocks\"", "\"blocks\":[{\"rank\":0", "\"clock_hz\":null" };
	static const char *const to[] = { "\"method\":\"blokes\"", "\"blocks\":[{\"rank\":-", "\"clock_hz\":\"ab\"" };
	struct fo_arena a = { 0 };
	struct fo_cuda_tuned t;
	(void)state;
	if (!soft)
		skip();
	unlink(cache);
	timed("100/104,102,200", FO_CUDA_TUNE_LONG, &t);
	const char *good = text_of(&a);
	for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
		put_text(changed(&a, good, from[i], to[i]));
		struct fo_cuda *c = fresh(FO_CUDA_TUNE_KEPT, cache);
		t = prepared(c, 64, 64, 64);
		if (t.kept || !strstr(t.note, "1 damaged line of '"))
			fail_msg("%s: kept %d, '%s'", to[i], t.kept, t.note);
		fo_cuda_close(c);
	}
	fo_arena_fini(&a);
}

/* With an NVML that says so (tests/preload/nvml.c) each block has its energy and clock. */
static void test_blocks_with_nvml(void **state)
{
	const char *library = getenv("FLATOUT_FAKE_NVML");
	struct fo_cuda_tuned t;
	(void)state;
	if (!soft || !library)
		skip();
	setenv("FLATOUT_NVML", library, 1);
	setenv("FAKE_NVML_PCI", fo_cuda_info(cuda)->pci, 1);
	unlink(cache);
	timed("100/104,102,200", FO_CUDA_TUNE_LONG, &t);
	assert_int_equal(t.by_blocks, 1);
	KEEPS("\"rank\":1,", "\"clock_hz\":1376000000", "\"joules\":0.");
	unsetenv("FLATOUT_NVML");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fp8),
		cmocka_unit_test(test_fp8_bound),
		cmocka_unit_test(test_fp8_ways),
		cmocka_unit_test(test_cannot),
		cmocka_unit_test(test_off),
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_foreign),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_fastest),
		cmocka_unit_test(test_sustained),
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_old_line),
		cmocka_unit_test(test_damaged_blocks),
		cmocka_unit_test(test_blocks_with_nvml),
	};
	int status;
	setenv("FLATOUT_SOFT_MEMORY", "268435456", 0); /* of which a test takes nearly all */
	/* Which library it is is found out once per process; a software device uses it only while it is named. */
	if (getenv("FLATOUT_FAKE_NVML"))
		setenv("FLATOUT_NVML", getenv("FLATOUT_FAKE_NVML"), 1);
	fo_nvml_library(NULL);
	unsetenv("FLATOUT_NVML");
	cuda = fo_test_cuda_open(&status);
	if (!cuda)
		return status;
	soft = fo_test_soft(cuda);
	fo_num_cuda_use(cuda);
	if (!mkdtemp(folder))
		return 1;
	snprintf(cache, sizeof cache, "%s/sub/products.jsonl", folder);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	if (fo_fs_remove_tree(folder) != FO_OK)
		failed++;
	fo_cuda_close(cuda);
	return failed;
}
