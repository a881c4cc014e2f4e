/* Many ranks at once: traces of the PyTorch profiler's form are written below a folder and read, matched, aligned and
 * divided into waiting and transfer as flatout diagnose does.
 *
 *   bench_ranks [RANKS 64] [STEPS 40] [FOLDER /tmp]
 *
 * A rank's step is 200 operators with a launch and a kernel each and 20 collectives with recorded groups; rank 5's
 * clock is 3 ms ahead, and each rank is late by its own amount. One JSON line: MB/s of text over all threads, seconds
 * by part, peak memory. */
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "diagnose/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const char gemm[] = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas";
static const char reduce[] = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";

static void operation(FILE *f, int id, double us, double late, int collective, int ranks)
{
	fprintf(f,
		",\n{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm\",\"pid\":7,\"tid\":7,\"ts\":%.3f,\"dur\":20."
		"5,\"args\":{\"External id\":%d,\"Input Dims\":[[4096,4096],[4096,11008]],\"Input "
		"type\":[\"c10::BFloat16\",\"c10::BFloat16\"]}}",
		us, id);
	fprintf(f,
		",\n{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":7,\"tid\":7,\"ts\":%."
		"3f,\"dur\":5.25,\"args\":{\"correlation\":%d}}",
		us + 3, id);
	fprintf(f,
		",\n{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"%s\",\"pid\":0,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
		"\"args\":{\"device\":0,\"stream\":%d,\"correlation\":%d",
		collective >= 0 ? reduce : gemm, collective >= 0 ? 9 : 7, us + 30 + (collective >= 0 ? late : 0),
		collective >= 0 ? 40 - late : 18.125, collective >= 0 ? 9 : 7, id);
	if (collective >= 0)
		fprintf(f,
			",\"Collective name\":\"allreduce\",\"Process Group Name\":\"0\",\"Process Group "
			"Ranks\":\"[]\",\"Group size\":%d,\"Seq\":%d,\"In msg nelems\":1048576,\"Out msg "
			"nelems\":1048576,\"dtype\":\"BFloat16\",\"In split size\":\"[]\",\"Out split size\":\"[]\"",
			ranks, collective);
	fputs("}}", f);
}

static int64_t write_rank(const char *path, int rank, int ranks, int steps)
{
	FILE *f = fopen(path, "w");
	if (!f)
		return -1;
	int id = 1, collective = 0;
	double clock = rank == 5 ? 3000 : 0, us = 1000;
	fprintf(f,
		"{\"schemaVersion\":1,\"baseTimeNanoseconds\":1700000000000000000,\"distributedInfo\":{\"backend\":"
		"\"nccl\",\"rank\":%d,\"world_size\":%d},\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\","
		"\"pid\":7,\"args\":{\"name\":\"python\"}}",
		rank, ranks);
	for (int s = 0; s < steps; s++) {
		fprintf(f,
			",\n{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%d\",\"pid\":7,\"tid\":7,"
			"\"ts\":%.3f,\"dur\":10990}",
			s, us + clock);
		for (int i = 0; i < 220; i++, us += 50)
			operation(f, id++, us + clock, 20 * fo_rng_uniform((uint64_t)rank, (uint64_t)(s * 220 + i)),
				  i % 11 == 10 ? collective++ : -1, ranks);
	}
	fputs("]}\n", f);
	long size = ftell(f);
	return fclose(f) ? -1 : size;
}

int main(int argc, char **argv)
{
	int ranks = argc > 1 ? atoi(argv[1]) : 64, steps = argc > 2 ? atoi(argv[2]) : 40;
	char folder[512], path[600];
	const char *one = folder;
	int64_t bytes = 0, t0, t1, t2;
	snprintf(folder, sizeof folder, "%s/flatout-bench-ranks", argc > 3 ? argv[3] : "/tmp");
	struct fo_trace_set s = { 0 };
	struct fo_diagnosis d;
	struct fo_diagnose_options o = { .price_per_hour = NAN };
	fo_status st = fo_fs_mkdirs(folder);
	for (int r = 0; st == FO_OK && r < ranks; r++) {
		snprintf(path, sizeof path, "%s/rank%d.json", folder, r);
		int64_t n = write_rank(path, r, ranks, steps);
		st = n < 0 ? fo_fail(FO_EIO, "cannot write '%s'", path) : FO_OK;
		bytes += n;
	}
	t0 = fo_now_ns();
	if (st == FO_OK)
		st = fo_trace_set_open(&s, &one, 1);
	t1 = fo_now_ns();
	if (st == FO_OK)
		st = fo_diagnose(&d, &s, &o);
	t2 = fo_now_ns();
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	if (st == FO_OK) {
		printf("{\"ranks\":%d,\"mb\":%.1f,\"read_s\":%.3f,\"mb_per_s\":%.0f,\"diagnose_s\":%.3f,\"matches\":%"
		       "lld,\"clock_of_5_us\":%.1f,\"residual_us\":%.2f,\"peak_mb\":%.0f}\n",
		       ranks, (double)bytes / 1e6, (double)(t1 - t0) * 1e-9,
		       (double)bytes / 1e6 / ((double)(t1 - t0) * 1e-9), (double)(t2 - t1) * 1e-9, (long long)s.matches,
		       ranks > 5 ? (double)s.offset_ns[5] / 1e3 : 0, (double)s.residual_ns / 1e3,
		       (double)u.ru_maxrss / 1024);
		fo_diagnosis_fini(&d);
	}
	fo_trace_set_fini(&s);
	if (st != FO_OK)
		fprintf(stderr, "bench_ranks: %s\n", fo_err_text());
	if (fo_fs_remove_tree(folder) != FO_OK)
		fprintf(stderr, "bench_ranks: %s\n", fo_err_text());
	return st == FO_OK ? 0 : 1;
}
