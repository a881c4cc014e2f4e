/* One training step of ours, one of PyTorch's, in turn, in one run: tokens/s of both and their ratio; then, of ours alone, the
 * step time composed from quiet spans, or on a device (--train.device cuda) the parts of a step timed by events.
 *
 *   bench_train_vs_torch [--rounds 5] [--warm 1] [--quiet-steps 0] [--model.layers 12] [--pass.merge-qkv no] ...
 *                        [-- PYTHON torch_train.py ARGS...]
 *
 * All options of a run work (flatout train --help); by default the benchmark Llama (12 layers, 768, ffn 2048, 12 heads,
 * vocabulary 32,000, untied), one row of 2,048 random tokens per step. The command behind -- is started with --lockstep: it does
 * one step for each line on its standard input and answers with one JSON line (README.md). The first rounds (--warm) warm both
 * sides up and do not count. Machines are noisy: read the ratio, not the seconds.
 *
 * The quiet step time (docs/metrics.md): every operation of the program is timed between two bursts of known work, over
 * --quiet-steps steps; an operation counts with the median of its quiet spans, one that had none with the median of all. The
 * line says what share of the time comes from operations with enough quiet spans. */
#include "base/clock.h"
#include "base/mem.h"
#include "kernel/calibrate.h"
#include "kernel/measure.h"
#include "pass/pass.h"
#include "program/run.h"
#include "timeline/metered.h"
#include "train/device.h"
#include "train/exec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct bench {
	struct fo_run run;
	int64_t rounds, warm, quiet_steps;
	char **peer;
	struct fo_model model;
	struct fo_program program;
	struct fo_store *store;
	struct fo_exec *exec;
	struct fo_cuda *cuda; /* NULL: the processor */
	double peak_flop_s;
};
/* On a device the executor's third step is timed by events (train/exec_graph.c), and with this distance no later one: rounds run as most of
 * training does. */
enum { TIMED_EVERY = 1 << 20, TIMED_STEP = 2 };
static const struct fo_opt extra[] = {
	FO_OPT_INT(struct bench, rounds, "bench.rounds", "N", "5", 1, 10000, "rounds", "that count"),
	FO_OPT_INT(struct bench, warm, "bench.warm", "N", "1", 0, 10000, "rounds", "in front of them"),
	FO_OPT_INT(struct bench, quiet_steps, "bench.quiet-steps", "N", "0", 0, 10000, "steps", "timed operation by operation"),
	FO_OPT_END
};
static struct fo_opt rows[FO_RUN_ROWS_MAX];

static fo_status port(void *ctx, enum fo_port p, int mb, const struct fo_tensor *arg, int n)
{
	const struct bench *b = ctx;
	int64_t seq = b->run.seq;
	(void)n, (void)mb;
	if (p == FO_PORT_BATCH)
		for (int64_t i = 0; i < arg[0].rows; i++) {
			((int32_t *)arg[0].data)[i] = (int32_t)(fo_rng_u64(1, (uint64_t)i) % (uint64_t)b->model.vocab);
			((int32_t *)arg[1].data)[i] = (int32_t)(fo_rng_u64(1, (uint64_t)i + 1) % (uint64_t)b->model.vocab);
			((int32_t *)arg[2].data)[i] = (int32_t)(i % seq);
			((int32_t *)arg[3].data)[i] = (int32_t)(i - i % seq);
		}
	if (p == FO_PORT_HYPER) {
		const double v[FO_HYPER_COUNT] = {
			[FO_HYPER_LR] = 1e-4,    [FO_HYPER_BETA1] = 0.9, [FO_HYPER_BETA2] = 0.95,
			[FO_HYPER_EPS] = 1e-8,   [FO_HYPER_DECAY] = 0.1, [FO_HYPER_CORR1] = 0.1,
			[FO_HYPER_CORR2] = 0.05, [FO_HYPER_CLIP] = 1,
			[FO_HYPER_INV_TOKENS] = 1.0 / (double)(seq * b->run.rows * b->run.micro_batches)
		};
		memcpy(arg[0].data, v, sizeof v);
	}
	return FO_OK;
}

/* The peer as a child with pipes on both ends. */
static pid_t start_peer(char **argv, FILE **to, FILE **from)
{
	int in[2], out[2];
	if (pipe(in) || pipe(out))
		return -1;
	pid_t pid = fork();
	if (pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		close(in[1]);
		close(out[0]);
		execvp(argv[0], argv);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	*to = fdopen(in[1], "w");
	*from = fdopen(out[0], "r");
	return pid;
}

/* Seconds of the peer's next step; negative when it is gone. */
static double peer_step(FILE *to, FILE *from)
{
	char line[512];
	double seconds;
	if (fputs("\n", to) < 0 || fflush(to) || !fgets(line, sizeof line, from))
		return -1;
	const char *s = strstr(line, "\"seconds\":");
	return s && sscanf(s + 10, "%lf", &seconds) == 1 ? seconds : -1;
}

static double step_tokens(const struct bench *b) { return (double)(b->run.seq * b->run.rows * b->run.micro_batches); }

static struct fo_mfu mfu(const struct bench *b, double seconds)
{
	double seq = (double)b->run.seq, tokens = step_tokens(b);
	return fo_mfu_of_step(&b->program, tokens, tokens / seq * seq * (seq + 1) / 2, seconds, b->peak_flop_s > 0 ? b->peak_flop_s : NAN);
}

static void json_mfu(struct fo_json *j, const struct bench *b, const char *name, double seconds)
{
	struct fo_mfu f = mfu(b, seconds);
	fo_json_object(j, name);
	fo_json_real(j, "tokens_per_second", step_tokens(b) / seconds);
	fo_json_real(j, "mfu", f.mfu);
	fo_json_real(j, "mfu_causal", f.mfu_causal);
	fo_json_close(j);
}

/* ---- in turn with the peer ---- */

struct times {
	double *ours, *theirs, *ratio;
	size_t n;
};

static fo_status take_turns(struct bench *b, struct times *t, FILE *to, FILE *from)
{
	for (int64_t i = 0; i < b->warm + b->rounds; i++) {
		int64_t t0 = fo_now_ns();
		FO_TRY(fo_exec_step(b->exec, (int32_t)i));
		double us = (double)(fo_now_ns() - t0) * 1e-9, they = to ? peer_step(to, from) : 0;
		if (they < 0)
			return fo_fail(FO_EIO, "the peer stopped in round %lld", (long long)i);
		printf("{\"round\":%lld,\"warm_up\":%s,\"flatout_seconds\":%.4f,\"torch_seconds\":%.4f}\n", (long long)i,
		       i < b->warm ? "true" : "false", us, they);
		fflush(stdout);
		if (i >= b->warm) {
			t->ours[t->n] = us, t->theirs[t->n] = they, t->ratio[t->n] = they / us;
			t->n++;
		}
	}
	return FO_OK;
}

static void memory(struct fo_json *j, const struct bench *b)
{
	struct fo_memory m = fo_exec_memory(b->exec);
	int64_t have = 0, all = 0;
	fo_json_int(j, "planned_bytes", m.arena + m.persistent + m.workspace);
	if (b->cuda && fo_cuda_memory(b->cuda, &have, &all) == FO_OK)
		fo_json_int(j, "device_bytes_taken", all - have); /* the driver's own and other programs' included */
}

static void report(const struct bench *b, const struct times *t, enum fo_isa isa, bool peer)
{
	struct fo_str s = { 0 }, passes = { 0 };
	struct fo_json j;
	double tokens = step_tokens(b);
	fo_passes_text(&b->program.run.pass, &passes);
	fo_json_begin(&j, &s, false);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "rounds", (int64_t)t->n);
	fo_json_text(&j, "model", b->model.name);
	fo_json_int(&j, "seq", b->run.seq);
	fo_json_text(&j, "precision", fo_numerics_name[b->program.run.precision]);
	fo_json_text(&j, "passes", passes.data);
	if (b->cuda) {
		fo_json_text(&j, "device", fo_cuda_info(b->cuda)->name);
	} else {
		fo_json_int(&j, "threads", b->run.threads);
		fo_json_text(&j, "isa", fo_isa_name[isa]);
	}
	fo_json_int(&j, "rows", b->program.run.rows);
	fo_json_int(&j, "micro_batches", b->program.run.micro_batches);
	fo_json_real(&j, "peak_flop_s", b->peak_flop_s > 0 ? b->peak_flop_s : NAN);
	memory(&j, b);
	json_mfu(&j, b, "median", fo_stats_median(t->ours, t->n));
	json_mfu(&j, b, "best", fo_stats_quantile(t->ours, t->n, 0));
	if (peer) {
		fo_json_real(&j, "torch_tokens_per_second_median", tokens / fo_stats_median(t->theirs, t->n));
		fo_json_real(&j, "torch_tokens_per_second_best", tokens / fo_stats_quantile(t->theirs, t->n, 0));
		fo_json_real(&j, "ratio_median", fo_stats_median(t->ratio, t->n));
		fo_json_real(&j, "ratio_best", fo_stats_quantile(t->ratio, t->n, 1));
	}
	fo_json_close(&j);
	puts(s.data);
	fflush(stdout);
	fo_str_fini(&s);
	fo_str_fini(&passes);
}

/* ---- composed from quiet spans ---- */

struct quiet {
	const struct bench *b;
	struct fo_meter meter;
	struct fo_metered spans;
	int32_t step;
};

static void around(void *ctx, int instance, void (*run)(void *arg), void *arg)
{
	struct quiet *q = ctx;
	struct fo_quiet_span span;
	fo_meter_span(&q->meter, run, arg, &span);
	fo_metered_add(&q->spans, q->step, instance, &span);
}

static void report_quiet(const struct quiet *q, const struct fo_composed *c)
{
	struct fo_str text = { 0 };
	struct fo_json j;
	fo_json_begin(&j, &text, false);
	fo_json_object(&j, NULL);
	json_mfu(&j, q->b, "quiet", c->seconds);
	json_mfu(&j, q->b, "composed_unfiltered", c->median_s);
	fo_json_real(&j, "quiet_spans_share", c->quiet_spans_share);
	fo_json_real(&j, "time_with_a_quiet_span_share", c->quiet_share);
	fo_json_real(&j, "time_with_enough_quiet_spans_share", c->enough_share);
	fo_json_real(&j, "register_only_flop_s_best", q->meter.best.flop_s);
	fo_json_close(&j);
	puts(text.data);
	fo_str_fini(&text);
}

static fo_status measure_quiet(struct bench *b, enum fo_isa isa)
{
	const struct fo_program *p = &b->program;
	struct quiet q = { .b = b };
	struct fo_composed c;
	int dtype = p->run.precision == FO_PRECISION_BF16 ? FO_BF16 : FO_F32;
	FO_TRY(fo_meter_init(&q.meter, fo_kernel_sets[isa], dtype, (int)b->run.threads));
	fo_metered_init(&q.spans, p, fo_dtype_name[dtype], (int)b->run.threads);
	fo_status st = FO_OK;
	while (q.step++ < b->quiet_steps && st == FO_OK)
		st = fo_exec_step_around(b->exec, around, &q);
	if (st == FO_OK)
		st = fo_compose(&c, &q.spans, p, fo_exec_unrolled(b->exec), &q.meter.best);
	if (st == FO_OK) {
		report_quiet(&q, &c);
		fo_composed_fini(&c);
	}
	fo_metered_fini(&q.spans);
	fo_meter_fini(&q.meter);
	return st;
}

/* ---- parts of a step on a device ---- */

/* Three steps in front of all rounds. */
static fo_status report_parts(struct bench *b)
{
	struct fo_profile f = { 0 };
	struct fo_str text = { 0 };
	struct fo_json j;
	for (int32_t i = 0; i < TIMED_STEP; i++)
		FO_TRY(fo_exec_step(b->exec, i));
	int64_t t0 = fo_now_ns();
	FO_TRY(fo_exec_step(b->exec, TIMED_STEP));
	fo_profile_add_step(&f, fo_exec_timeline(b->exec), &b->program, fo_exec_unrolled(b->exec), TIMED_STEP, t0, fo_now_ns(), 0);
	fo_json_begin(&j, &text, false);
	fo_json_object(&j, NULL);
	fo_json_object(&j, "parts_ms");
	for (int i = 0; i < FO_PART_COUNT; i++)
		fo_json_real(&j, fo_part_name[i], f.part_ns[i] * 1e-6);
	fo_json_close(&j);
	fo_json_real(&j, "step_ms", f.total_ns * 1e-6);
	fo_json_close(&j);
	puts(text.data);
	fo_str_fini(&text);
	return FO_OK;
}

static fo_status find_peak(struct bench *b, enum fo_numerics precision, int threads)
{
	struct fo_calibration c;
	struct fo_peak p;
	if (b->cuda) {
		fo_device_find_peak(fo_cuda_info(b->cuda), precision, &p);
		b->peak_flop_s = p.flop_s;
		return fo_device_tune(b->cuda, (enum fo_cuda_tune_mode)b->run.tune);
	}
	FO_TRY(fo_calibrate_peak(precision == FO_PRECISION_BF16 ? FO_BF16 : FO_F32, threads, 1, false, &c));
	b->peak_flop_s = c.best_flop_s;
	return FO_OK;
}

static fo_status run(struct bench *b)
{
	char why[320];
	if (!b->run.threads)
		b->run.threads = fo_cpu_threads();
	struct fo_lowering low = fo_run_lowering(&b->run, FO_MODE_TRAIN);
	struct fo_exec_options o = { .threads = (int)b->run.threads, .timeline_steps = 2 };
	FO_TRY(fo_device_open(b->run.device, &b->cuda, why, sizeof why));
	FO_TRY(find_peak(b, low.precision, o.threads));
	o.cuda = b->cuda;
	o.timed_every = TIMED_EVERY;
	FO_TRY(fo_run_model(&b->run, &b->model));
	FO_TRY(fo_isa_choose(&o.isa));
	FO_TRY(fo_pass_build(&b->program, &b->model, &low));
	FO_TRY(fo_store_new(&b->store, &b->program));
	/* Weights that are made on the device need no host memory: an 8B model's state would take 64 GB of it. */
	if (b->cuda)
		FO_TRY(fo_store_init_device(b->store, &b->program, 1, b->cuda));
	else
		fo_store_init(b->store, &b->program, 1);
	FO_TRY(fo_exec_new(&b->exec, &b->program, b->store, &o, port, b, NULL));
	if (b->cuda)
		FO_TRY(report_parts(b));
	FILE *to = NULL, *from = NULL;
	pid_t pid = b->peer ? start_peer(b->peer, &to, &from) : 0;
	double *times = fo_xmalloc((size_t)b->rounds * 3 * sizeof *times);
	struct times t = { times, times + b->rounds, times + 2 * b->rounds, 0 };
	fo_status st = take_turns(b, &t, to, from);
	if (pid) {
		fclose(to);
		fclose(from);
		waitpid(pid, NULL, 0);
	}
	if (st == FO_OK)
		report(b, &t, o.isa, pid != 0);
	free(times);
	return st == FO_OK && b->quiet_steps && !b->cuda ? measure_quiet(b, o.isa) : st;
}

int main(int argc, char **argv)
{
	struct bench b = { 0 };
	struct fo_opt_set s;
	for (int i = 1; i < argc && !b.peer; i++)
		if (!strcmp(argv[i], "--")) {
			b.peer = &argv[i + 1];
			argc = i;
		}
	fo_run_options_with(rows, extra);
	fo_opt_init(&s, rows, &b);
	b.run.micro_batches = 1; /* unless asked for */
	fo_opt_read_args(&s, &argc, argv);
	fo_status st = argc > 1 ? fo_fail(FO_EARG, "unexpected argument '%s'", argv[1]) : fo_run_check(&s, &b.run);
	if (st == FO_OK)
		st = run(&b);
	if (st != FO_OK)
		fprintf(stderr, "bench_train_vs_torch: %s\n", fo_err_text());
	fo_exec_free(b.exec);
	fo_store_free(b.store);
	fo_cuda_close(b.cuda);
	fo_program_fini(&b.program);
	fo_opt_fini(&s);
	return fo_status_exit_code(st);
}
