/* Matrix products by shape, as the kernels of one instruction set run them, against the rate of its multiply-add unit.
 *
 *   bench_products [--isa ref|avx2|avx512|avx512bf16|amx] [--threads N] [--seconds S] [--tokens T] [--dtype f32|bf16]
 * [--only OUTxIN]
 *
 * A sample is one call of the product (packing, tails and all) between two bursts on the same threads
 * (kernel/measure.h); its ratio is the product's rate over the mean of the two register-only rates. A machine that
 * slows down or is shared slows both, so the ratio says how good the kernel is. One JSON line per product: median and
 * best of all samples, medians of the quiet ones. --seconds is the time given to each line. */
#include "base/json.h"
#include "kernel/measure.h"
#include "kernel/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench {
	enum fo_isa isa;
	int threads;
	double seconds;
	int64_t tokens;
	int dtype; /* -1: all */
	const char *only;
};

static void print(const struct bench *b, const char *name, int pass, int64_t out, int64_t in, int dtype,
		  const struct fo_work *w, const struct fo_measured *r)
{
	struct fo_str s = { 0 };
	struct fo_json j;
	fo_json_begin(&j, &s, false);
	fo_json_object(&j, NULL);
	fo_json_text(&j, "product", name);
	fo_json_text(&j, "pass", fo_work_pass_name[pass]);
	fo_json_int(&j, "m", pass == FO_WORK_WGRAD ? out : b->tokens);
	fo_json_int(&j, "n", pass == FO_WORK_FORWARD ? out : in);
	fo_json_int(&j, "k", pass == FO_WORK_FORWARD ? in : pass == FO_WORK_DGRAD ? out : b->tokens);
	fo_json_text(&j, "dtype", fo_dtype_name[dtype]);
	fo_json_text(&j, "set", w->set->name);
	fo_json_int(&j, "threads", b->threads);
	fo_json_int(&j, "samples", r->time.spans);
	fo_json_real(&j, "ratio_median", r->ratio_median);
	fo_json_real(&j, "ratio_best", r->ratio_best);
	fo_json_real(&j, "flop_s_median", w->flop / r->time.median_s);
	fo_json_real(&j, "flop_s_best", w->flop / r->time.best_s);
	fo_json_int(&j, "quiet_samples", r->time.quiet);
	fo_json_real(&j, "quiet_ratio_median", r->quiet_ratio_median);
	fo_json_real(&j, "quiet_flop_s_median", w->flop / r->time.quiet_median_s);
	fo_json_real(&j, "burst_flop_s_median", r->burst_flop_s_median);
	fo_json_real(&j, "burst_flop_s_best", r->burst_flop_s_best);
	fo_json_int(&j, "ws_bytes", (int64_t)w->call.ws_bytes);
	fo_json_close(&j);
	puts(s.data);
	fflush(stdout);
	fo_str_fini(&s);
}

static fo_status run(const struct bench *b, const char *name, int pass, int64_t out, int64_t in, int dtype)
{
	struct fo_work w;
	struct fo_work_data d = { 0 };
	struct fo_meter m;
	fo_work_linear(&w, b->isa, pass, b->tokens, out, in, dtype, b->threads);
	fo_work_data_need(&d, &w);
	FO_TRY(fo_work_data_new(&d));
	fo_work_bind(&w, &d, 1);
	fo_status st = fo_meter_init(&m, w.set, dtype, b->threads);
	if (st == FO_OK) {
		struct fo_measured r = fo_measure_work(&m, fo_work_run, &w, w.flop, b->seconds, 3);
		print(b, name, pass, out, in, dtype, &w, &r);
		fo_meter_fini(&m);
	}
	fo_work_data_free(&d);
	return st;
}

/* Any product may be named; without a name the usual ones run. */
static fo_status run_named(const struct bench *b, int dtype)
{
	long long out, in;
	char rest;
	if (sscanf(b->only, "%lldx%lld%c", &out, &in, &rest) != 2 || out < 1 || in < 1 || out > 1 << 20 || in > 1 << 20)
		return fo_fail(FO_EARG, "--only: '%s' is not OUTxIN", b->only);
	for (int p = 0; p < FO_WORK_PASSES; p++)
		FO_TRY(run(b, b->only, p, out, in, dtype));
	return FO_OK;
}

static fo_status run_all(const struct bench *b)
{
	static const struct {
		const char *name;
		int64_t out, in;
	} layer[] = {
		{ "768x768", 768, 768 },     { "2048x768", 2048, 768 },   { "768x2048", 768, 2048 },
		{ "2304x768", 2304, 768 },   { "4096x768", 4096, 768 },   { "2048x2048", 2048, 2048 },
		{ "8192x2048", 8192, 2048 }, { "2048x8192", 2048, 8192 }, { "32000x768", 32000, 768 },
	};
	const int dtypes[] = { FO_F32, FO_BF16 };
	for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
		if (b->dtype >= 0 && b->dtype != dtypes[d])
			continue;
		if (b->only) {
			FO_TRY(run_named(b, dtypes[d]));
			continue;
		}
		for (size_t i = 0; i < sizeof layer / sizeof *layer; i++)
			for (int p = 0; p < FO_WORK_PASSES; p++)
				FO_TRY(run(b, layer[i].name, p, layer[i].out, layer[i].in, dtypes[d]));
	}
	return FO_OK;
}

static int usage(void)
{
	fputs("usage: bench_products [--isa ref|avx2|avx512|avx512bf16|amx] [--threads N] [--seconds S] [--tokens T] "
	      "[--dtype f32|bf16] [--only OUTxIN]\n",
	      stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct bench b = { .threads = 1, .seconds = 0.5, .tokens = 2048, .dtype = -1 };
	if (fo_isa_choose(&b.isa) != FO_OK) {
		fprintf(stderr, "bench_products: %s\n", fo_err_text());
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
		} else if (!strcmp(key, "--only")) {
			b.only = value;
		} else if (!strcmp(key, "--isa")) {
			if (!fo_isa_named(value, &b.isa) || !fo_isa_have(b.isa)) {
				fprintf(stderr, "bench_products: this machine has no instruction set '%s'\n", value);
				return 2;
			}
		} else {
			return usage();
		}
	}
	if (b.threads < 1 || b.threads > 1024 || b.tokens < 1 || !(b.seconds >= 0))
		return usage();
	if (run_all(&b) != FO_OK) {
		fprintf(stderr, "bench_products: %s\n", fo_err_text());
		return 3;
	}
	return 0;
}
