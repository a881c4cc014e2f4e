/* MFU of whole training steps at one point of a growth curve: one JSON line.
 *
 *   bench_growth [--bench.curve NAME] [--bench.rounds 5] [--bench.warm 1] [--bench.document 0] [--model.layers 12]
 * [--data.seq N] ...
 *
 * All options of a run work (flatout train --help); by default the benchmark Llama on one row of 2,048 random tokens.
 * --bench.document D cuts each row into packed documents of D tokens (0: whole rows). `sweep` runs the points of all
 * curves, `curves.py` draws them.
 *
 * In front of the first round and behind every round stands a burst of the register-only loop on the same threads. MFU
 * is quoted twice, median and best of all rounds, unfiltered: over the highest rate that these threads were seen to
 * reach, in a burst of this run or in calibration (median, best: the stricter ones), and each round over the mean of
 * the two bursts beside it (adjacent_*: what slows both cancels out; where burst_worst_share is far below 1 the bursts
 * themselves were disturbed). With packed documents mfu and mfu_causal still take the closed formulas of whole rows
 * (docs/metrics.md), so mfu_document is the one to read there. `parts` are shares of the time of the rounds by
 * category. */
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "kernel/calibrate.h"
#include "kernel/measure.h"
#include "pass/pass.h"
#include "program/run.h"
#include "train/exec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BURST_NS = 40 * 1000 * 1000 }; /* long against forking, short against a step */

struct bench {
	struct fo_run run;
	int64_t rounds, warm, document;
	const char *curve;
	struct fo_model model;
	struct fo_program program;
	struct fo_store *store;
	struct fo_exec *exec;
	enum fo_isa isa;
	struct fo_limits_peak peak;
};
static const struct fo_opt extra[] = {
	FO_OPT_INT(struct bench, rounds, "bench.rounds", "N", "5", 1, 10000, "rounds", "steps that count"),
	FO_OPT_INT(struct bench, warm, "bench.warm", "N", "1", 0, 10000, "rounds", "steps in front of them"),
	FO_OPT_INT(struct bench, document, "bench.document", "N", "0", 0, 1 << 20, "tokens",
		   "per packed document; 0: whole rows"),
	FO_OPT_TEXT(struct bench, curve, "bench.curve", "NAME", "point",
		    "written into the line: which curve the point belongs to"),
	FO_OPT_END
};

static int64_t document_tokens(const struct bench *b)
{
	return b->document && b->document < b->run.seq ? b->document : b->run.seq;
}

static fo_status port(void *ctx, enum fo_port p, int mb, const struct fo_tensor *arg, int n)
{
	const struct bench *b = ctx;
	int64_t seq = b->run.seq, document = document_tokens(b);
	uint64_t vocab = (uint64_t)b->model.vocab;
	(void)n;
	if (p == FO_PORT_BATCH)
		for (int64_t i = 0; i < arg[0].rows; i++) {
			uint64_t at = (uint64_t)(mb * arg[0].rows + i);
			int64_t place = i % seq % document;
			((int32_t *)arg[0].data)[i] = (int32_t)(fo_rng_u64(1, at) % vocab);
			((int32_t *)arg[1].data)[i] = (int32_t)(fo_rng_u64(1, at + 1) % vocab);
			((int32_t *)arg[2].data)[i] = (int32_t)place;
			((int32_t *)arg[3].data)[i] = (int32_t)(i - place);
		}
	if (p == FO_PORT_HYPER) {
		const double v[FO_HYPER_COUNT] = { [FO_HYPER_LR] = 1e-4,
						   [FO_HYPER_BETA1] = 0.9,
						   [FO_HYPER_BETA2] = 0.95,
						   [FO_HYPER_EPS] = 1e-8,
						   [FO_HYPER_DECAY] = 0.1,
						   [FO_HYPER_CORR1] = 0.1,
						   [FO_HYPER_CORR2] = 0.05,
						   [FO_HYPER_CLIP] = 1,
						   [FO_HYPER_INV_TOKENS] = 1.0 / (double)(seq * b->run.rows *
											  b->run.micro_batches) };
		memcpy(arg[0].data, v, sizeof v);
	}
	return FO_OK;
}

static double tokens_of(const struct bench *b) { return (double)(b->run.seq * b->run.rows * b->run.micro_batches); }

/* Pairs of tokens that see each other in a step. */
static double pairs_of(const struct bench *b)
{
	double d = (double)document_tokens(b), whole = floor((double)b->run.seq / d),
	       rest = (double)b->run.seq - whole * d;
	return tokens_of(b) / (double)b->run.seq * (whole * d * (d + 1) / 2 + rest * (rest + 1) / 2);
}

static struct fo_mfu mfu(const struct bench *b, double seconds, double peak)
{
	return fo_mfu_of_step(&b->program, tokens_of(b), pairs_of(b), seconds, peak);
}

struct rounds {
	double *seconds, *burst; /* burst[i] in front of round i, burst[i + 1] behind it */
	struct fo_profile profile;
	double worst_share; /* least share of a burst's time that a thread had its processor */
};

static double burst(const struct bench *b, int64_t n, struct rounds *r)
{
	double share, flop_s;
	int dtype = b->program.run.precision == FO_PRECISION_BF16 ? FO_BF16 : FO_F32;
	flop_s = fo_measure_peak(fo_kernel_sets[b->isa], dtype, (int)b->run.threads, n, &share);
	r->worst_share = share < r->worst_share ? share : r->worst_share;
	return flop_s;
}

static fo_status take(struct bench *b, struct rounds *r)
{
	int dtype = b->program.run.precision == FO_PRECISION_BF16 ? FO_BF16 : FO_F32;
	int64_t n = fo_measure_rounds(fo_kernel_sets[b->isa], dtype, BURST_NS);
	for (int64_t i = 0; i < b->warm; i++)
		FO_TRY(fo_exec_step(b->exec, (int32_t)i));
	r->worst_share = 1;
	r->burst[0] = burst(b, n, r);
	for (int64_t i = 0; i < b->rounds; i++) {
		int32_t step = (int32_t)(b->warm + i);
		int64_t t0 = fo_now_ns();
		FO_TRY(fo_exec_step(b->exec, step));
		int64_t t1 = fo_now_ns();
		r->seconds[i] = (double)(t1 - t0) * 1e-9;
		r->burst[i + 1] = burst(b, n, r);
		fo_profile_add_step(&r->profile, fo_exec_timeline(b->exec), &b->program, fo_exec_unrolled(b->exec),
				    step, t0, t1, 0);
	}
	return FO_OK;
}

static void json_mfu(struct fo_json *j, const char *name, struct fo_mfu f)
{
	fo_json_object(j, name);
	fo_json_real(j, "mfu", f.mfu);
	fo_json_real(j, "mfu_causal", f.mfu_causal);
	fo_json_real(j, "mfu_document", f.mfu_document);
	fo_json_close(j);
}

static void report(const struct bench *b, const struct rounds *r, double *scratch)
{
	size_t n = (size_t)b->rounds;
	double median = fo_stats_median(r->seconds, n), best = fo_stats_quantile(r->seconds, n, 0);
	double peak = fmax(fo_stats_quantile(r->burst, n + 1, 1), b->peak.best_flop_s);
	struct fo_str s = { 0 }, passes = { 0 };
	struct fo_json j;
	fo_passes_text(&b->program.run.pass, &passes);
	fo_json_begin(&j, &s, false);
	fo_json_object(&j, NULL);
	fo_json_text(&j, "bench", "growth");
	fo_json_int(&j, "schema", 1);
	fo_json_text(&j, "curve", b->curve);
	fo_json_text(&j, "model", b->model.name);
	fo_json_real(&j, "parameters", fo_model_params(&b->model).total);
	fo_json_int(&j, "seq", b->run.seq);
	fo_json_int(&j, "document", document_tokens(b));
	fo_json_real(&j, "step_tokens", tokens_of(b));
	fo_json_int(&j, "threads", b->run.threads);
	fo_json_text(&j, "precision", fo_numerics_name[b->program.run.precision]);
	fo_json_text(&j, "passes", passes.data);
	fo_json_text(&j, "isa", fo_isa_name[b->isa]);
	fo_json_int(&j, "rounds", b->rounds);
	fo_json_real(&j, "tokens_per_second_median", tokens_of(b) / median);
	fo_json_real(&j, "tokens_per_second_best", tokens_of(b) / best);
	json_mfu(&j, "median", mfu(b, median, peak));
	json_mfu(&j, "best", mfu(b, best, peak));
	for (size_t i = 0; i < n; i++) /* FLOP that the adjacent bursts would have done in that time */
		scratch[i] = r->seconds[i] * (r->burst[i] + r->burst[i + 1]) / 2;
	json_mfu(&j, "adjacent_median", mfu(b, fo_stats_median(scratch, n), 1));
	json_mfu(&j, "adjacent_best", mfu(b, fo_stats_quantile(scratch, n, 0), 1));
	fo_json_real(&j, "peak_flop_s", peak);
	fo_json_real(&j, "burst_flop_s_best", fo_stats_quantile(r->burst, n + 1, 1));
	fo_json_real(&j, "burst_flop_s_median", fo_stats_median(r->burst, n + 1));
	fo_json_real(&j, "burst_worst_share", r->worst_share);
	fo_json_object(&j, "parts");
	for (int i = 0; i < FO_PART_COUNT; i++)
		fo_json_real(&j, fo_part_name[i], r->profile.part_ns[i] / r->profile.total_ns);
	fo_json_close(&j);
	fo_json_close(&j);
	puts(s.data);
	fo_str_fini(&s);
	fo_str_fini(&passes);
}

static fo_status run(struct bench *b)
{
	if (!b->run.threads)
		b->run.threads = fo_cpu_threads();
	struct fo_lowering low = fo_run_lowering(&b->run, FO_MODE_TRAIN);
	struct fo_exec_options o = { .threads = (int)b->run.threads, .timeline_steps = 2 };
	FO_TRY(fo_calibrate_peak(low.precision == FO_PRECISION_BF16 ? FO_BF16 : FO_F32, o.threads, 1, &b->peak));
	FO_TRY(fo_run_model(&b->run, &b->model));
	FO_TRY(fo_isa_choose(&b->isa));
	o.isa = b->isa;
	FO_TRY(fo_pass_build(&b->program, &b->model, &low));
	FO_TRY(fo_store_new(&b->store, &b->program));
	fo_store_init(b->store, &b->program, 1);
	FO_TRY(fo_exec_new(&b->exec, &b->program, b->store, &o, port, b, NULL));
	double *memory = fo_xmalloc((size_t)(3 * b->rounds + 1) * sizeof *memory);
	struct rounds r = { .seconds = memory, .burst = memory + 2 * b->rounds };
	fo_status st = take(b, &r);
	if (st == FO_OK)
		report(b, &r, memory + b->rounds);
	free(memory);
	return st;
}

int main(int argc, char **argv)
{
	struct bench b = { 0 };
	struct fo_opt_set s;
	fo_opt_init_own(&s, fo_run_options, extra, &b);
	b.run.micro_batches = 1; /* unless asked for */
	fo_opt_read_args(&s, &argc, argv);
	fo_status st = argc > 1 ? fo_fail(FO_EARG, "unexpected argument '%s'", argv[1]) : fo_run_check(&s, &b.run);
	if (st == FO_OK)
		st = run(&b);
	if (st != FO_OK)
		fprintf(stderr, "bench_growth: %s\n", fo_err_text());
	fo_exec_free(b.exec);
	fo_store_free(b.store);
	fo_program_fini(&b.program);
	fo_opt_fini(&s);
	return fo_status_exit_code(st);
}
