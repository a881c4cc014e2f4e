/* Measures the cost of the always-on timeline: the time to record one operation (two clock reads and a store), and its
 * share of a training step of the benchmark Llama (12 layers, 768, one row), which this benchmark times too.
 *
 *   bench_recorder [--seq 512] [--rounds 5]
 *
 * One JSON line. The share is operations per step x nanoseconds per record / nanoseconds per step (median of rounds).
 */
#include "base/clock.h"
#include "base/mem.h"
#include "kernel/calibrate.h"
#include "train/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS 1000000

static fo_status port(void *ctx, enum fo_port p, int mb, const struct fo_tensor *arg, int n)
{
	(void)ctx, (void)mb;
	for (int i = 0; (p == FO_PORT_BATCH || p == FO_PORT_HYPER) && i < n;
	     i++) /* token 0 everywhere: time does not depend on it */
		memset(arg[i].data, 0, (size_t)(arg[i].rows * arg[i].cols) * fo_dtype_bytes(arg[i].dtype));
	return FO_OK;
}

static double record_ns(struct fo_timeline *t)
{
	int64_t begin = fo_now_ns();
	for (int i = 0; i < RECORDS; i++) {
		int64_t t0 = fo_now_ns();
		fo_timeline_record(t, FO_LANE_COMPUTE, 0, 0, t0, fo_now_ns());
	}
	return (double)(fo_now_ns() - begin) / RECORDS;
}

static fo_status run(int64_t seq, int rounds)
{
	struct fo_model m;
	struct fo_program p;
	struct fo_store *store;
	struct fo_exec *e;
	struct fo_exec_options o = { .threads = fo_cpu_threads() };
	double step[64], record[64];
	FO_TRY(fo_model_load("flatout-134m", &m));
	FO_TRY(fo_isa_choose(&o.isa));
	FO_TRY(fo_program_lower(
		&p, &m,
		&(struct fo_lowering){ .seq = seq, .rows = 1, .micro_batches = 1, .precision = FO_PRECISION_BF16 }));
	FO_TRY(fo_store_new(&store, &p));
	fo_store_init(store, &p, 1);
	FO_TRY(fo_exec_new(&e, &p, store, &o, port, NULL, NULL));
	FO_TRY(fo_exec_step(e, 0));
	for (int i = 0; i < rounds; i++) {
		int64_t t0 = fo_now_ns();
		FO_TRY(fo_exec_step(e, i + 1));
		step[i] = (double)(fo_now_ns() - t0);
		record[i] = record_ns(fo_exec_timeline(e));
	}
	double s = fo_stats_median(step, (size_t)rounds), r = fo_stats_median(record, (size_t)rounds);
	int n = fo_exec_unrolled(e)->n;
	printf("{\"record_ns\":%.1f,\"operations_per_step\":%d,\"seq\":%lld,\"step_seconds\":%.4f,\"share\":%.3g}\n", r,
	       n, (long long)seq, s * 1e-9, n * r / s);
	fo_exec_free(e);
	fo_store_free(store);
	fo_program_fini(&p);
	return FO_OK;
}

int main(int argc, char **argv)
{
	int64_t seq = 512;
	int rounds = 5;
	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--seq"))
			seq = atoll(argv[i + 1]);
		else if (!strcmp(argv[i], "--rounds"))
			rounds = atoi(argv[i + 1]);
	}
	if (seq < 2 || rounds < 1 || rounds > 64) {
		fprintf(stderr, "usage: bench_recorder [--seq 512] [--rounds 5]\n");
		return 2;
	}
	fo_status st = run(seq, rounds);
	if (st != FO_OK)
		fprintf(stderr, "bench_recorder: %s\n", fo_err_text());
	return fo_status_exit_code(st);
}
