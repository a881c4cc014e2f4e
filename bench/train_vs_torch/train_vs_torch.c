/* One training step of ours, one of PyTorch's, in turn, in one run: tokens/s of both and their ratio; then, of ours
 * alone, the step time composed from quiet spans, or on a device (--train.device cuda) the parts of a step timed by
 * events.
 *
 *   bench_train_vs_torch [--rounds 5] [--warm 1] [--quiet-steps 0] [--model.layers 12] [--pass.merge-qkv no] ...
 *                        [-- PYTHON torch_train.py ARGS...]
 *   bench_train_vs_torch --bench.plan 150.1GB ...
 *
 * The benchmark chooses what the run leaves open (pass.recompute=auto, optim.state, train.batch-rows) for the available
 * memory, as `flatout train` does, and refuses a plan that does not fit before it takes memory. --bench.plan prints the
 * memory plan for a device of that size, which need not be there, and stops.
 *
 * All options of a run work (flatout train --help); by default the benchmark Llama (12 layers, 768, ffn 2048, 12
 * heads, vocabulary 32,000, untied), one row of 2,048 random tokens per step. The command behind -- is started with
 * --lockstep: it does one step for each line on its standard input and answers with one JSON line (README.md). The
 * first rounds (--warm) warm both sides up and do not count. Machines are noisy: read the ratio, not the seconds.
 *
 * The quiet step time (docs/metrics.md): every operation of the program is timed between two bursts of known work,
 * over --quiet-steps steps; an operation counts with the median of its quiet spans, one that had none with the median
 * of all. The line says what share of the time comes from operations with enough quiet spans.
 *
 * On a device the last line holds beside the rates: MFU and its factors, the parts of the timed step with their sum,
 * what the device's memory planned and took, the choice made, how products were tuned, and NVML's clock, power and
 * energy over the rounds that count. */
#include "parts.h"

#include "base/clock.h"
#include "base/mem.h"
#include "kernel/calibrate.h"
#include "kernel/measure.h"
#include "record/record.h"
#include "pass/pass.h"
#include "program/run.h"
#include "timeline/metered.h"
#include "record/record.h"
#include "train/device.h"
#include "train/exec.h"
#include "train/room.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct bench {
	struct fo_run run;
	int64_t rounds, warm, quiet_steps, plan;
	char **peer;
	struct fo_room_step step;
	struct fo_cuda *cuda; /* NULL: the processor */
	struct fo_nvml_watch *nvml;
	int64_t device_free; /* bytes that were free once the device was open */
	double peak_flop_s;
	struct fo_profile parts; /* of the timed step */
};
/* On a device the executor's third step is timed by events (train/exec_graph.c), and with this distance no later one:
 * rounds run as most of training does. */
enum { TIMED_EVERY = 1 << 20, TIMED_STEP = 2 };
static const struct fo_opt extra[] = {
	FO_OPT_INT(struct bench, rounds, "bench.rounds", "N", "5", 1, 10000, "rounds", "that count"),
	FO_OPT_INT(struct bench, warm, "bench.warm", "N", "1", 0, 10000, "rounds", "in front of them"),
	FO_OPT_INT(struct bench, quiet_steps, "bench.quiet-steps", "N", "0", 0, 10000, "steps",
		   "timed operation by operation"),
	FO_OPT_BYTES(struct bench, plan, "bench.plan", "SIZE", NULL, 0, 0x1p53,
		     "the step's memory on a device of this size, which need not be there"),
	FO_OPT_END
};

static double step_tokens(const struct bench *b)
{
	return (double)(b->step.program.tokens * b->step.program.run.micro_batches);
}

static fo_status port(void *ctx, enum fo_port p, int mb, const struct fo_tensor *arg, int n)
{
	const struct bench *b = ctx;
	int64_t seq = b->run.seq;
	(void)n, (void)mb;
	if (p == FO_PORT_BATCH)
		for (int64_t i = 0; i < arg[0].rows; i++) {
			((int32_t *)arg[0].data)[i] = (int32_t)(fo_rng_u64(1, (uint64_t)i) %
								(uint64_t)b->step.model.vocab);
			((int32_t *)arg[1].data)[i] = (int32_t)(fo_rng_u64(1, (uint64_t)i + 1) %
								(uint64_t)b->step.model.vocab);
			((int32_t *)arg[2].data)[i] = (int32_t)(i % seq);
			((int32_t *)arg[3].data)[i] = (int32_t)(i - i % seq);
		}
	if (p == FO_PORT_HYPER) {
		const double v[FO_HYPER_COUNT] = {
			[FO_HYPER_LR] = 1e-4,    [FO_HYPER_BETA1] = 0.9, [FO_HYPER_BETA2] = 0.95,
			[FO_HYPER_EPS] = 1e-8,   [FO_HYPER_DECAY] = 0.1, [FO_HYPER_CORR1] = 0.1,
			[FO_HYPER_CORR2] = 0.05, [FO_HYPER_CLIP] = 1,    [FO_HYPER_INV_TOKENS] = 1.0 / step_tokens(b)
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
		fprintf(stderr, "bench_train_vs_torch: '%s' cannot be run: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	signal(SIGPIPE, SIG_IGN); /* a peer that ends is said in words: peer_step */
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

static struct fo_mfu mfu(const struct bench *b, double seconds)
{
	double seq = (double)b->run.seq, tokens = step_tokens(b);
	return fo_mfu_of_step(&b->step.program, tokens, tokens / seq * seq * (seq + 1) / 2, seconds,
			      b->peak_flop_s > 0 ? b->peak_flop_s : NAN);
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
		if (i == b->warm)
			fo_nvml_watch_restart(b->nvml); /* what it did before says nothing of the rounds that count */
		int64_t t0 = fo_now_ns();
		FO_TRY(fo_exec_step(b->step.exec, (int32_t)i));
		double us = (double)(fo_now_ns() - t0) * 1e-9, they = to ? peer_step(to, from) : 0;
		if (they < 0)
			return fo_fail(FO_EIO, "the peer stopped in round %lld", (long long)i);
		printf("{\"round\":%lld,\"warm_up\":%s,\"flatout_seconds\":%.4f,\"torch_seconds\":%.4f}\n",
		       (long long)i, i < b->warm ? "true" : "false", us, they);
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
	struct fo_memory m = fo_exec_memory(b->step.exec);
	int64_t have = 0, all = 0;
	fo_json_int(j, "planned_bytes", m.arena + m.persistent + m.workspace);
	fo_json_int(j, "arena_bytes", m.arena);
	fo_json_int(j, "persistent_bytes", m.persistent);
	fo_json_int(j, "workspace_bytes", m.workspace);
	fo_json_int(j, "have_bytes", b->step.have);
	if (!b->cuda || fo_cuda_memory(b->cuda, &have, &all) != FO_OK)
		return;
	fo_json_int(j, "measured_bytes",
		    b->device_free - have); /* since the device was open: with code that libraries loaded, and graphs */
	fo_json_int(j, "device_bytes_taken", all - have); /* with the context, and other programs' */
}

/* The timed step's parts, their sum, and the step that it was against those that no event slowed. */
static void parts(struct fo_json *j, const struct bench *b, double round_s)
{
	double sum = 0;
	fo_json_object(j, "parts_ms");
	for (int i = 0; i < FO_PART_COUNT; i++) {
		fo_json_real(j, fo_part_name[i], b->parts.part_ns[i] * 1e-6);
		sum += i == FO_PART_UNATTRIBUTED ? 0 : b->parts.part_ns[i] * 1e-6;
	}
	fo_json_close(j);
	fo_json_real(j, "parts_sum_ms", sum); /* without what is unattributed: gaps */
	fo_json_real(j, "timed_step_ms", b->parts.total_ns * 1e-6);
	fo_json_real(j, "round_ms", round_s * 1e3);
	fo_json_real(j, "round_less_parts_ms", round_s * 1e3 - sum);
}

static void device(struct fo_json *j, const struct bench *b, double round_s, const struct fo_nvml_use *u, size_t rounds)
{
	const struct fo_cuda_device *d = fo_cuda_info(b->cuda);
	const struct fo_mfu f = mfu(b, round_s);
	const struct fo_mfu_split split = fo_device_split(d, b->step.program.run.precision, &f, b->peak_flop_s, u);
	struct fo_exec_code code[FO_EXEC_CODES_MAX];
	struct fo_nvml_library nvml;
	struct fo_cuda_tuned tuned;
	fo_cuda_tune_result(b->cuda, &tuned);
	parts(j, b, round_s);
	fo_json_object(j, "products");
	fo_device_tuned_json(&tuned, &b->run, j);
	fo_json_close(j);
	fo_json_object(j, "code");
	for (int i = 0, n = fo_exec_codes(b->step.exec, code); i < n; i++)
		fo_json_int(j, code[i].by, code[i].instances);
	fo_json_close(j);
	fo_json_text(j, "attention_note", fo_cuda_attention_note(b->cuda));
	fo_json_object(j, "nvml");
	const struct fo_record_device device = { .use = *u,
						 .joules_per_token = u->joules / (step_tokens(b) * (double)rounds),
						 .split = split };
	fo_schema_write_fields(&fo_record_device_schema, &device, j);
	fo_json_text(j, "why", b->nvml ? NULL : fo_nvml_library(&nvml) ? "NVML does not know this device" : nvml.why);
	fo_json_close(j);
}

static void report(const struct bench *b, const struct times *t, bool peer, const struct fo_nvml_use *u)
{
	struct fo_str s = { 0 }, passes = { 0 };
	struct fo_json j;
	double tokens = step_tokens(b);
	fo_passes_text(&b->step.program.run.pass, &passes);
	fo_json_begin(&j, &s, false);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "rounds", (int64_t)t->n);
	fo_json_text(&j, "model", b->step.model.name);
	fo_json_int(&j, "seq", b->run.seq);
	fo_json_text(&j, "precision", fo_numerics_name[b->step.program.run.precision]);
	fo_json_text(&j, "passes", passes.data);
	if (b->cuda) {
		fo_json_text(&j, "device", fo_cuda_info(b->cuda)->name);
	} else {
		fo_json_int(&j, "threads", b->run.threads);
		fo_json_text(&j, "isa", fo_isa_name[b->step.options.isa]);
	}
	fo_json_int(&j, "rows", b->step.program.run.rows);
	fo_json_int(&j, "micro_batches", b->step.program.run.micro_batches);
	fo_json_object(&j, "choice");
	fo_room_choice_json(&b->step.choice, &b->step.program, &j);
	fo_json_close(&j);
	fo_json_real(&j, "peak_flop_s", b->peak_flop_s > 0 ? b->peak_flop_s : NAN);
	memory(&j, b);
	json_mfu(&j, b, "median", fo_stats_median(t->ours, t->n));
	json_mfu(&j, b, "best", fo_stats_quantile(t->ours, t->n, 0));
	if (b->cuda)
		device(&j, b, fo_stats_median(t->ours, t->n), u, t->n);
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
	const struct fo_program *p = &b->step.program;
	struct quiet q = { .b = b };
	struct fo_composed c;
	int dtype = p->run.precision == FO_PRECISION_BF16 ? FO_BF16 : FO_F32;
	FO_TRY(fo_meter_init(&q.meter, fo_kernel_sets[isa], dtype, (int)b->run.threads));
	fo_metered_init(&q.spans, p, fo_dtype_name[dtype], (int)b->run.threads);
	fo_status st = FO_OK;
	while (q.step++ < b->quiet_steps && st == FO_OK)
		st = fo_exec_step_around(b->step.exec, around, &q);
	if (st == FO_OK)
		st = fo_compose(&c, &q.spans, p, fo_exec_unrolled(b->step.exec), &q.meter.best);
	if (st == FO_OK) {
		report_quiet(&q, &c);
		fo_composed_fini(&c);
	}
	fo_metered_fini(&q.spans);
	fo_meter_fini(&q.meter);
	return st;
}

/* ---- setting up ---- */

static fo_status find_peak(struct bench *b, enum fo_numerics precision)
{
	struct fo_limits_peak c;
	struct fo_peak p;
	if (b->cuda) {
		fo_device_find_peak(fo_cuda_info(b->cuda), precision, &p);
		b->peak_flop_s = p.flop_s;
		return FO_OK;
	}
	FO_TRY(fo_calibrate_peak(precision == FO_PRECISION_BF16 ? FO_BF16 : FO_F32, (int)b->run.threads, 1, &c));
	b->peak_flop_s = c.best_flop_s;
	return FO_OK;
}

static fo_status open_all(struct bench *b)
{
	struct fo_exec_options o = { .threads = (int)b->run.threads, .timeline_steps = 2, .timed_every = TIMED_EVERY };
	char why[320];
	int64_t total;
	FO_TRY(fo_device_open(b->run.device, &b->cuda, why, sizeof why));
	if (*why)
		fprintf(stderr, "warning: a CUDA device is there but cannot be used: %s; the processor computes\n",
			why);
	o.cuda = b->cuda;
	if (b->cuda) {
		FO_TRY(fo_device_tune(b->cuda, &b->run));
		FO_TRY(fo_cuda_memory(b->cuda, &b->device_free, &total));
		b->nvml = fo_nvml_watch_start(fo_cuda_nvml(b->cuda));
	}
	FO_TRY(find_peak(b, fo_run_precision(&b->run)));
	FO_TRY(fo_isa_choose(&o.isa));
	FO_TRY(fo_room_step_open(&b->step, &b->run, &o, port, b));
	/* Weights that are made on the device need no host memory: an 8B model's state would take 64 GB of it. */
	if (b->cuda)
		return fo_store_init_device(b->step.store, &b->step.program, 1, b->cuda);
	fo_store_init(b->step.store, &b->step.program, 1);
	return FO_OK;
}

static void close_all(struct bench *b)
{
	fo_nvml_watch_stop(b->nvml);
	fo_room_step_close(&b->step);
	fo_cuda_close(b->cuda);
}

/* ---- the whole ---- */

/* In front of all rounds: the step that is timed by events, and those before it, in which memory is taken and clocks
 * begin to settle. */
static fo_status time_parts(struct bench *b)
{
	for (int32_t i = 0; i < TIMED_STEP; i++)
		FO_TRY(fo_exec_step(b->step.exec, i));
	return bench_parts(b->step.exec, &b->step.program, TIMED_STEP, &b->parts);
}

static fo_status run(struct bench *b)
{
	FO_TRY(open_all(b));
	if (b->cuda)
		FO_TRY(time_parts(b));
	FILE *to = NULL, *from = NULL;
	pid_t pid = b->peer ? start_peer(b->peer, &to, &from) : 0;
	double *times = fo_xmalloc((size_t)b->rounds * 3 * sizeof *times);
	struct times t = { times, times + b->rounds, times + 2 * b->rounds, 0 };
	fo_status st = take_turns(b, &t, to, from);
	const struct fo_nvml_use use = fo_nvml_watch_total(b->nvml);
	if (pid) {
		int how = 0;
		fclose(to);
		fclose(from);
		waitpid(pid, &how, 0);
		if (st != FO_OK && how)
			st = fo_wrap(st, WIFEXITED(how) ? "the peer ended with status %d" : "signal %d ended the peer",
				     WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how));
	}
	if (st == FO_OK)
		report(b, &t, pid != 0, &use);
	free(times);
	return st == FO_OK && b->quiet_steps && !b->cuda ? measure_quiet(b, b->step.options.isa) : st;
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
	fo_opt_init_own(&s, fo_run_options, extra, &b);
	b.run.micro_batches = 1; /* unless asked for */
	fo_opt_read_args(&s, &argc, argv);
	fo_status st = argc > 1               ? fo_fail(FO_EARG, "unexpected argument '%s'", argv[1])
		       : b.peer && !b.peer[0] ? fo_fail(FO_EARG, "behind '--' stands no command")
					      : fo_run_check(&s, &b.run);
	if (!b.run.threads)
		b.run.threads = fo_cpu_threads();
	if (st == FO_OK)
		st = b.plan ? fo_room_plan_print(&b.run, b.plan, stdout) : run(&b);
	if (st != FO_OK)
		fprintf(stderr, "bench_train_vs_torch: %s%s%s\n", fo_err_text(), *fo_err_hint() ? "\nhint: " : "",
			fo_err_hint());
	close_all(&b);
	fo_opt_fini(&s);
	return fo_status_exit_code(st);
}
