/* Matrix products by shape, as the kernels of one instruction set run them, against the rate of its multiply-add unit.
 *
 *   products [--isa avx2|avx512|amx|ref] [--threads N] [--seconds S] [--tokens T] [--dtype f32|bf16] [--only OUTxIN]
 *            [--clock wall|cpu]
 *
 * A sample is one call of the product (packing, tails and all) between two register-only bursts on the same threads; its ratio
 * is the product's rate over the mean of the two burst rates. A machine that slows down or is shared slows both, so the ratio
 * says how good the kernel is. One JSON line per product: median and best of the samples; `ratio` fields are of the samples'
 * own ratios. --seconds is the time given to each line. --clock cpu counts this thread's processor time instead, for one thread
 * on a machine that others use too. Compile with -fopenmp, -Isrc and link the engine. */
#include "base/clock.h"
#include "base/mem.h"
#include "kernel/kernel.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct product {
	const char *name, *pass;
	int64_t m, n, k;
	bool ta, tb;
};

struct bench {
	enum fo_isa isa;
	const struct fo_kernel_set *set;
	int threads;
	double seconds;
	int64_t tokens, burst_rounds;
	int dtype; /* -1: all */
	const char *only;
	clockid_t clock;
};

enum { MAX_SAMPLES = 4096 };

static int64_t now_ns(const struct bench *b)
{
	struct timespec t;
	clock_gettime(b->clock, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Rate of all threads together in register-only bursts, FLOP/s. Each thread times its own: on a busy machine the fork and join
 * takes longer than the burst. */
static double burst(const struct bench *b, int dtype)
{
	double rate = 0;
#pragma omp parallel num_threads(b->threads) reduction(+ : rate)
	{
		int64_t t0 = now_ns(b);
		double flop = b->set->peak_burst(dtype, b->burst_rounds);
		rate += flop / (double)(now_ns(b) - t0) * 1e9;
	}
	return rate;
}

/* Bursts of about 2 ms: short against a change of the machine's mood. The quickest of five counts: the others may have been
 * interrupted. */
static void burst_calibrate(struct bench *b, int dtype)
{
	for (b->burst_rounds = 1000;; b->burst_rounds *= 2) {
		int64_t best = INT64_MAX;
		for (int i = 0; i < 5; i++) {
			int64_t t0 = fo_now_ns();
			b->set->peak_burst(dtype, b->burst_rounds);
			int64_t ns = fo_now_ns() - t0;
			best = ns < best ? ns : best;
		}
		if (best > 2000000)
			return;
	}
}

static fo_status fill(struct fo_tensor *t, uint64_t stream)
{
	FO_TRY(fo_pages_new((size_t)(t->rows * t->ld) * fo_dtype_bytes(t->dtype), &t->data));
	for (int64_t i = 0; i < t->rows * t->ld; i++) {
		float x = (float)(fo_rng_uniform(stream, (uint64_t)i) - 0.5);
		if (t->dtype == FO_BF16)
			((uint16_t *)t->data)[i] = fo_bf16_from_f32(x);
		else
			((float *)t->data)[i] = x;
	}
	return FO_OK;
}

static void release(struct fo_tensor *t)
{
	if (t->data)
		fo_pages_free(t->data, (size_t)(t->rows * t->ld) * fo_dtype_bytes(t->dtype));
}

/* wgrad results are fp32 as in training, the others have the operands' dtype. */
static struct fo_call call_of(const struct bench *b, const struct product *p, int dtype)
{
	struct fo_call c = { .kind = FO_OP_matmul, .n = 3, .first = 1 << 2, .threads = b->threads };
	c.attr.ta = p->ta;
	c.attr.tb = p->tb;
	int64_t size[3][2] = { { p->ta ? p->k : p->m, p->ta ? p->m : p->k },
			       { p->tb ? p->n : p->k, p->tb ? p->k : p->n },
			       { p->m, p->n } };
	for (int i = 0; i < 3; i++)
		c.arg[i] = (struct fo_tensor){
			.rows = size[i][0], .cols = size[i][1], .ld = size[i][1], .dtype = (uint8_t)dtype
		};
	if (!strcmp(p->pass, "wgrad"))
		c.arg[2].dtype = FO_F32;
	return c;
}

static void measure(const struct bench *b, const struct product *p, int dtype, const struct fo_call *c,
		    const struct fo_kernel *kernel, const char *set)
{
	static double ratio[MAX_SAMPLES], rate[MAX_SAMPLES], peak[MAX_SAMPLES];
	double flop = 2.0 * (double)p->m * (double)p->n * (double)p->k;
	int n = 0;
	kernel->run(c); /* touches the pages */
	double before = burst(b, dtype);
	int64_t end = fo_now_ns() + (int64_t)(b->seconds * 1e9);
	do {
		int64_t t0 = now_ns(b);
		kernel->run(c);
		rate[n] = flop / (double)(now_ns(b) - t0) * 1e9;
		double after = burst(b, dtype);
		peak[n] = (before + after) / 2;
		ratio[n] = rate[n] / peak[n];
		before = after;
		n++;
	} while (n < MAX_SAMPLES && (n < 3 || fo_now_ns() < end));
	size_t count = (size_t)n;
	printf("{\"product\": \"%s\", \"pass\": \"%s\", \"m\": %lld, \"n\": %lld, \"k\": %lld, \"dtype\": \"%s\", "
	       "\"set\": \"%s\", "
	       "\"threads\": %d, \"samples\": %d, \"ratio_median\": %.4f, \"ratio_best\": %.4f, \"flop_s_median\": "
	       "%.4g, "
	       "\"flop_s_best\": %.4g, \"burst_flop_s_median\": %.4g, \"burst_flop_s_best\": %.4g, \"ws_bytes\": "
	       "%zu}\n",
	       p->name, p->pass, (long long)p->m, (long long)p->n, (long long)p->k, fo_dtype_name[dtype], set,
	       b->threads, n, fo_stats_quantile(ratio, count, 0.5), fo_stats_quantile(ratio, count, 1),
	       fo_stats_quantile(rate, count, 0.5), fo_stats_quantile(rate, count, 1),
	       fo_stats_quantile(peak, count, 0.5), fo_stats_quantile(peak, count, 1), c->ws_bytes);
	fflush(stdout);
}

static fo_status run(struct bench *b, const struct product *p, int dtype)
{
	struct fo_call c = call_of(b, p, dtype);
	const struct fo_kernel_set *set;
	const struct fo_kernel *kernel = fo_kernel_pick(b->isa, &c, &set);
	fo_status st = FO_OK;
	b->set = set;
	c.ws_bytes = kernel->ws ? kernel->ws(&c) : 0;
	if (c.ws_bytes)
		FO_TRY(fo_pages_new(c.ws_bytes, &c.ws));
	for (int i = 0; i < 3 && st == FO_OK; i++)
		st = fill(&c.arg[i], (uint64_t)i);
	if (st == FO_OK) {
		burst_calibrate(b, dtype);
		measure(b, p, dtype, &c, kernel, set->name);
	}
	for (int i = 0; i < 3; i++)
		release(&c.arg[i]);
	if (c.ws)
		fo_pages_free(c.ws, c.ws_bytes);
	return st;
}

static fo_status run_all(struct bench *b)
{
	/* y(T, out) = x(T, in) w(out, in)', dx = dy w, dw = dy' x. */
	static const struct {
		const char *name;
		int64_t out, in;
	} layer[] = {
		{ "768x768", 768, 768 },     { "2048x768", 2048, 768 },   { "768x2048", 768, 2048 },
		{ "2048x2048", 2048, 2048 }, { "32000x768", 32000, 768 },
	};
	const int dtypes[] = { FO_F32, FO_BF16 };
	for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
		for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
			const struct product pass[] = {
				{ layer[i].name, "forward", b->tokens, layer[i].out, layer[i].in, false, true },
				{ layer[i].name, "dgrad", b->tokens, layer[i].in, layer[i].out, false, false },
				{ layer[i].name, "wgrad", layer[i].out, layer[i].in, b->tokens, true, false },
			};
			if ((b->dtype >= 0 && b->dtype != dtypes[d]) || (b->only && strcmp(b->only, layer[i].name)))
				continue;
			for (int p = 0; p < 3; p++)
				FO_TRY(run(b, &pass[p], dtypes[d]));
		}
	}
	return FO_OK;
}

static int usage(void)
{
	fputs("usage: products [--isa ref|avx2|avx512|amx] [--threads N] [--seconds S] [--tokens T] [--dtype f32|bf16] "
	      "[--only OUTxIN] [--clock wall|cpu]\n",
	      stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct bench b = { .threads = 1, .seconds = 0.5, .tokens = 2048, .dtype = -1, .clock = CLOCK_MONOTONIC };
	if (fo_isa_choose(&b.isa) != FO_OK) {
		fprintf(stderr, "products: %s\n", fo_err_text());
		return 2;
	}
	for (int i = 1; i < argc; i += 2) {
		const char *key = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
		if (!value)
			return usage();
		if (!strcmp(key, "--threads")) {
			b.threads = atoi(value);
		} else if (!strcmp(key, "--seconds")) {
			b.seconds = atof(value);
		} else if (!strcmp(key, "--tokens")) {
			b.tokens = atoll(value);
		} else if (!strcmp(key, "--dtype") && (!strcmp(value, "f32") || !strcmp(value, "bf16"))) {
			b.dtype = strcmp(value, "f32") ? FO_BF16 : FO_F32;
		} else if (!strcmp(key, "--clock") && (!strcmp(value, "wall") || !strcmp(value, "cpu"))) {
			b.clock = strcmp(value, "cpu") ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
		} else if (!strcmp(key, "--only")) {
			b.only = value;
		} else if (!strcmp(key, "--isa")) {
			int isa = 0;
			while (isa < FO_ISA_COUNT && strcmp(value, fo_isa_name[isa]))
				isa++;
			if (isa == FO_ISA_COUNT || !fo_isa_have((enum fo_isa)isa)) {
				fprintf(stderr, "products: this machine has no instruction set '%s'\n", value);
				return 2;
			}
			b.isa = (enum fo_isa)isa;
		} else {
			return usage();
		}
	}
	if (b.clock != CLOCK_MONOTONIC && b.threads > 1) {
		fputs("products: --clock cpu counts one thread only: use --threads 1\n", stderr);
		return 2;
	}
	if (b.threads < 1 || b.threads > 1024 || b.tokens < 1 || !(b.seconds >= 0))
		return usage();
	if (run_all(&b) != FO_OK) {
		fprintf(stderr, "products: %s\n", fo_err_text());
		return 3;
	}
	return 0;
}
