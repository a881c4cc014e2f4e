/* One training step of ours, one of PyTorch's, in turn, in one run: tokens/s of both and their ratio.
 *
 *   bench_train_vs_torch [--seq 2048] [--rounds 5] [--warm 1] [--dtype bf16|fp32] [--threads N] [--layers 12]
 *                        -- PYTHON torch_train.py ARGS...
 *
 * The command behind -- is started with --lockstep: it does one step for each line on its standard input and answers with one
 * JSON line (bench/train_vs_torch/README.md). Without a command only our side runs. The model is the benchmark Llama of the
 * script's defaults (12 layers, 768, ffn 2048, 12 heads, vocabulary 32,000, untied), one row of random tokens per step. The
 * first rounds (--warm) warm both sides up and do not count. Machines are noisy: read the ratio, not the seconds. */
#include "base/clock.h"
#include "base/mem.h"
#include "kernel/calibrate.h"
#include "train/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct bench {
	int64_t seq, rounds, warm, layers;
	int threads;
	enum fo_numerics precision;
	char **peer;
};

static fo_status port(void *ctx, enum fo_port p, int mb, const struct fo_tensor *arg, int n)
{
	const struct bench *b = ctx;
	(void)n, (void)mb;
	if (p == FO_PORT_BATCH)
		for (int64_t i = 0; i < arg[0].rows; i++) {
			((int32_t *)arg[0].data)[i] = (int32_t)(fo_rng_u64(1, (uint64_t)i) % 32000);
			((int32_t *)arg[1].data)[i] = (int32_t)(fo_rng_u64(1, (uint64_t)i + 1) % 32000);
			((int32_t *)arg[2].data)[i] = (int32_t)(i % b->seq);
			((int32_t *)arg[3].data)[i] = (int32_t)(i - i % b->seq);
		}
	if (p == FO_PORT_HYPER) {
		double *h = arg[0].data;
		const double v[FO_HYPER_COUNT] = {
			[FO_HYPER_LR] = 1e-4,    [FO_HYPER_BETA1] = 0.9, [FO_HYPER_BETA2] = 0.95,
			[FO_HYPER_EPS] = 1e-8,   [FO_HYPER_DECAY] = 0.1, [FO_HYPER_CORR1] = 0.1,
			[FO_HYPER_CORR2] = 0.05, [FO_HYPER_CLIP] = 1,    [FO_HYPER_INV_TOKENS] = 1.0 / (double)b->seq
		};
		memcpy(h, v, sizeof v);
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

static fo_status run(struct bench *b)
{
	struct fo_model m;
	struct fo_program p;
	struct fo_store *store;
	struct fo_exec *e;
	struct fo_calibration peak;
	struct fo_exec_options o = { .threads = b->threads, .timeline_steps = 2 };
	FO_TRY(fo_calibrate_peak(b->precision == FO_PRECISION_BF16 ? FO_BF16 : FO_F32, b->threads, 1, false, &peak));
	FO_TRY(fo_model_load("flatout-134m", &m));
	m.layers = b->layers;
	FO_TRY(fo_isa_choose(&o.isa));
	FO_TRY(fo_program_lower(&p, &m, &(struct fo_lowering){ .seq = b->seq, .rows = 1, .micro_batches = 1, .precision = b->precision }));
	FO_TRY(fo_store_new(&store, &p));
	fo_store_init(store, &p, 1);
	FO_TRY(fo_exec_new(&e, &p, store, &o, port, b, NULL));
	FILE *to = NULL, *from = NULL;
	pid_t pid = b->peer ? start_peer(b->peer, &to, &from) : 0;
	double *ours = fo_xmalloc((size_t)b->rounds * sizeof *ours),
	       *theirs = fo_xmalloc((size_t)b->rounds * sizeof *theirs);
	double *ratio = fo_xmalloc((size_t)b->rounds * sizeof *ratio);
	int64_t n = 0;
	for (int64_t i = 0; i < b->warm + b->rounds; i++) {
		int64_t t0 = fo_now_ns();
		FO_TRY(fo_exec_step(e, (int32_t)i));
		double us = (double)(fo_now_ns() - t0) * 1e-9, they = pid ? peer_step(to, from) : 0;
		if (they < 0)
			return fo_fail(FO_EIO, "the peer stopped in round %lld", (long long)i);
		printf("{\"round\":%lld,\"warm_up\":%s,\"flatout_seconds\":%.4f,\"torch_seconds\":%.4f}\n",
		       (long long)i, i < b->warm ? "true" : "false", us, they);
		fflush(stdout);
		if (i >= b->warm) {
			ours[n] = us, theirs[n] = they, ratio[n] = they / us;
			n++;
		}
	}
	double tokens = (double)b->seq, mine = fo_stats_median(ours, (size_t)n),
	       best = fo_stats_quantile(ours, (size_t)n, 0);
	struct fo_mfu f = fo_mfu_of_step(&p, tokens, tokens * (tokens + 1) / 2, mine, peak.best_flop_s),
		      fb = fo_mfu_of_step(&p, tokens, tokens * (tokens + 1) / 2, best, peak.best_flop_s);
	printf("{\"rounds\":%lld,\"seq\":%lld,\"threads\":%d,\"isa\":\"%s\",\"flatout_tokens_per_second\":{\"median\":%"
	       ".2f,\"best\":%.2f},"
	       "\"mfu\":{\"median\":%.4f,\"best\":%.4f},\"mfu_causal\":{\"median\":%.4f,\"best\":%.4f},\"peak_flop_s\":"
	       "%.4g",
	       (long long)n, (long long)b->seq, b->threads, fo_isa_name[o.isa], tokens / mine, tokens / best, f.mfu,
	       fb.mfu, f.mfu_causal, fb.mfu_causal, peak.best_flop_s);
	if (pid)
		printf(",\"torch_tokens_per_second\":{\"median\":%.2f,\"best\":%.2f},\"ratio\":{\"median\":%.3f,"
		       "\"best\":%.3f}",
		       tokens / fo_stats_median(theirs, (size_t)n), tokens / fo_stats_quantile(theirs, (size_t)n, 0),
		       fo_stats_median(ratio, (size_t)n), fo_stats_quantile(ratio, (size_t)n, 1));
	printf("}\n");
	if (pid) {
		fclose(to);
		fclose(from);
		waitpid(pid, NULL, 0);
	}
	fo_exec_free(e);
	fo_store_free(store);
	fo_program_fini(&p);
	free(ours);
	free(theirs);
	free(ratio);
	return FO_OK;
}

int main(int argc, char **argv)
{
	struct bench b = { .seq = 2048,
			   .rounds = 5,
			   .warm = 1,
			   .layers = 12,
			   .threads = fo_cpu_threads(),
			   .precision = FO_PRECISION_BF16 };
	for (int i = 1; i < argc; i++) {
		const char *v = i + 1 < argc ? argv[i + 1] : "";
		if (!strcmp(argv[i], "--")) {
			b.peer = i + 1 < argc ? &argv[i + 1] : NULL;
			break;
		}
		if (!strcmp(argv[i], "--seq"))
			b.seq = atoll(v);
		else if (!strcmp(argv[i], "--rounds"))
			b.rounds = atoll(v);
		else if (!strcmp(argv[i], "--warm"))
			b.warm = atoll(v);
		else if (!strcmp(argv[i], "--layers"))
			b.layers = atoll(v);
		else if (!strcmp(argv[i], "--threads"))
			b.threads = atoi(v);
		else if (!strcmp(argv[i], "--dtype"))
			b.precision = strcmp(v, "fp32") ? FO_PRECISION_BF16 : FO_PRECISION_F32;
		else {
			fprintf(stderr, "unknown option '%s'\n", argv[i]);
			return 2;
		}
		i++;
	}
	if (b.seq < 2 || b.rounds < 1 || b.warm < 0 || b.layers < 1 || b.threads < 1) {
		fprintf(stderr, "seq, rounds, layers and threads must be positive\n");
		return 2;
	}
	fo_status st = run(&b);
	if (st != FO_OK)
		fprintf(stderr, "bench_train_vs_torch: %s\n", fo_err_text());
	return fo_status_exit_code(st);
}
