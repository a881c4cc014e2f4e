/* Reading traces: MB of unpacked JSON per second and the memory that it took, on a generated trace of any size (plain,
 * gzip, Zstandard) or on files that are there.
 *
 *   bench_trace [--bytes 2000000000] [--rounds 3] [--isa avx2|sse2|portable] [--dir .] [--keep] [FILE...]
 *
 * The generated trace has what the PyTorch profiler writes for a training step with stacks and shapes, in its layout:
 * of ten events five are frames of Python, two operators with shapes, one a call that launches, one a kernel, one an
 * arrow. Each round is a process of its own, so that the memory is that of one reading; of the packed files the rate
 * counts unpacked bytes. Seconds of processor time stand beside those of the clock: on a busy machine only they mean
 * anything. One JSON line per file. */
#include "base/clock.h"
#include "base/str.h"
#include "trace/scan.h"
#include "trace/trace.h"
#include "trace/unpack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

struct result {
	double seconds, cpu; /* cpu: of the whole process, its threads together */
	int64_t events, gpu, ops;
	long peak_kib;
	bool ok;
};

/* ---- the generated trace ---- */

struct sink {
	FILE *plain;
	gzFile gz;
	FILE *zst;
	ZSTD_CCtx *zctx;
	int64_t bytes;
};

static void put(struct sink *s, const char *p, size_t n)
{
	static char packed[1 << 17];
	s->bytes += (int64_t)n;
	fwrite(p, 1, n, s->plain);
	gzwrite(s->gz, p, (unsigned)n);
	ZSTD_inBuffer in = { p, n, 0 };
	while (in.pos < in.size) {
		ZSTD_outBuffer out = { packed, sizeof packed, 0 };
		ZSTD_compressStream2(s->zctx, &out, &in, ZSTD_e_continue);
		fwrite(packed, 1, out.pos, s->zst);
	}
}

/* The events of one operator that launches one kernel, at `us`. */
static void put_operator(struct sink *s, struct fo_str *text, int64_t i, int64_t us)
{
	static const char *const op[] = { "aten::mm", "aten::addmm", "aten::mul", "aten::_to_copy",
					  "aten::native_layer_norm" };
	static const char *const kernel[] = {
		"nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN",
		"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_"
		"kernel__5x_cublas",
		"void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<c10::BFloat16, "
		"c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, std::array<char*, "
		"3ul> >(int, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
		"at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul>)",
		"void "
		"at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
		"{lambda()#3}>(int)",
		"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, "
		"float, c10::BFloat16 const*)",
	};
	int k = (int)(i % 5);
	text->len = 0;
	for (int frame = 0; frame < 5; frame++)
		fo_str_printf(text,
			      "  {\n    \"ph\": \"X\", \"cat\": \"python_function\", \"name\": "
			      "\"torch/nn/modules/module.py(%d): _call_impl\", \"pid\": 4242, \"tid\": 4242,\n    "
			      "\"ts\": %lld.%03d, \"dur\": %d.250,\n    \"args\": {\n      \"Python parent id\": %lld, "
			      "\"Python id\": %lld, \"Ev Idx\": %lld\n    }\n  },\n",
			      1700 + frame, (long long)us, frame * 7, 90 - frame, (long long)(i * 5 + frame - 1),
			      (long long)(i * 5 + frame), (long long)(i * 8 + frame));
	for (int inner = 0; inner < 2; inner++)
		fo_str_printf(text,
			      "  {\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"%s\", \"pid\": 4242, \"tid\": "
			      "4242,\n    \"ts\": %lld.%03d, \"dur\": %d.875,\n    \"args\": {\n      \"External id\": "
			      "%lld,\"Record function id\": 0, \"Concrete Inputs\": [\"\", \"\"], \"Input type\": "
			      "[\"c10::BFloat16\", \"c10::BFloat16\"], \"Input Strides\": [[4096, 1], [1, 4096]], "
			      "\"Input Dims\": [[8192, 4096], [4096, %d]], \"Ev Idx\": %lld\n    }\n  },\n",
			      inner ? op[k] : "aten::linear", (long long)us + 10 + 5 * inner, inner * 11,
			      60 - 20 * inner, (long long)(i * 2 + inner), 4096 << i % 3,
			      (long long)(i * 8 + 5 + inner));
	fo_str_printf(text,
		      "  {\n    \"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": "
		      "4242, \"tid\": 4242,\n    \"ts\": %lld.500, \"dur\": 4.125,\n    \"args\": {\n      \"External "
		      "id\": %lld, \"cbid\": 211, \"correlation\": %lld\n    }\n  },\n",
		      (long long)us + 20, (long long)(i * 2 + 1), (long long)i + 1);
	fo_str_printf(text,
		      "  {\n    \"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"%s\", \"pid\": 0, \"tid\": 7,\n    "
		      "\"ts\": %lld.125, \"dur\": 71.875,\n    \"args\": {\n      \"External id\": %lld, \"queued\": "
		      "0, \"device\": 0, \"context\": 1, \"stream\": 7, \"correlation\": %lld, \"registers per "
		      "thread\": 168, \"shared memory\": 213024, \"blocks per SM\": 0.969697, \"warps per SM\": "
		      "11.636364, \"grid\": [2, 64, 1], \"block\": [384, 1, 1], \"est. achieved occupancy %%\": "
		      "18\n    }\n  },\n",
		      kernel[k], (long long)us + 30, (long long)(i * 2 + 1), (long long)i + 1);
	fo_str_printf(text,
		      "  {\n    \"ph\": \"f\", \"id\": %lld, \"pid\": 0, \"tid\": 7, \"ts\": %lld.125, \"cat\": "
		      "\"ac2g\", \"name\": \"ac2g\", \"bp\": \"e\"\n  },\n",
		      (long long)i + 1, (long long)us + 30);
	put(s, text->data, text->len);
}

static void generate(const char *stem, int64_t bytes)
{
	char path[3][512];
	struct sink s = { 0 };
	struct fo_str text = { 0 };
	static const char head[] =
		"{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [\n    {\n      \"id\": 0, \"name\": \"NVIDIA "
		"H100\", \"totalGlobalMem\": 85029158912, \"computeMajor\": 9, \"computeMinor\": 0, \"numSms\": "
		"132\n    }\n  "
		"],\n  "
		"\"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 0, \"world_size\": 8},\n  \"traceEvents\": [\n";
	static const char tail[] = "  {\"ph\": \"i\", \"name\": \"Record Window End\", \"s\": \"g\", \"pid\": \"\", "
				   "\"tid\": \"\", \"ts\": 1}\n  ],\n  "
				   "\"baseTimeNanoseconds\": 1751410836000000000\n}\n";
	snprintf(path[0], sizeof path[0], "%s.json", stem);
	snprintf(path[1], sizeof path[1], "%s.json.gz", stem);
	snprintf(path[2], sizeof path[2], "%s.json.zst", stem);
	s.plain = fopen(path[0], "we");
	s.gz = gzopen(path[1], "wb1e");
	s.zst = fopen(path[2], "we");
	s.zctx = ZSTD_createCCtx();
	if (!s.plain || !s.gz || !s.zst || !s.zctx) {
		fprintf(stderr, "cannot write '%s.json'\n", stem);
		exit(3);
	}
	put(&s, head, sizeof head - 1);
	for (int64_t i = 0; s.bytes < bytes; i++)
		put_operator(&s, &text, i, 5000000000 + i * 100);
	put(&s, tail, sizeof tail - 1);
	char packed[1 << 12];
	for (size_t left = 1; left;) {
		ZSTD_outBuffer out = { packed, sizeof packed, 0 };
		left = ZSTD_compressStream2(s.zctx, &out, &(ZSTD_inBuffer){ NULL, 0, 0 }, ZSTD_e_end);
		fwrite(packed, 1, out.pos, s.zst);
	}
	bool lost = fclose(s.plain) | (gzclose(s.gz) != Z_OK) | fclose(s.zst);
	ZSTD_freeCCtx(s.zctx);
	fo_str_fini(&text);
	if (lost) {
		fprintf(stderr, "cannot write '%s.json': no room?\n", stem);
		exit(3);
	}
}

/* ---- measuring ---- */

/* One reading in a process of its own. */
static struct result read_once(const char *path)
{
	int fd[2];
	struct result r = { 0 };
	fflush(stdout);
	if (pipe(fd))
		return r;
	pid_t pid = fork();
	if (pid == 0) {
		struct fo_trace *t;
		int64_t begin = fo_now_ns();
		fo_status st = fo_trace_open(&t, path);
		r.seconds = (double)(fo_now_ns() - begin) / 1e9;
		if (st == FO_OK) {
			r.ok = true;
			r.events = t->defect.events;
			r.gpu = t->gpu_count;
			r.ops = t->op_count;
		} else {
			fprintf(stderr, "%s\n", fo_err_text());
		}
		_exit(write(fd[1], &r, sizeof r) != sizeof r);
	}
	close(fd[1]);
	struct rusage usage = { 0 };
	int status = 1;
	if (read(fd[0], &r, sizeof r) != sizeof r)
		r.ok = false;
	close(fd[0]);
	if (pid < 0 || wait4(pid, &status, 0, &usage) != pid || status)
		r.ok = false;
	r.peak_kib = usage.ru_maxrss;
	r.cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		(double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
	return r;
}

static int64_t unpacked_bytes(const char *path)
{
	static char block[1 << 20];
	struct fo_unpack *u;
	int64_t total = 0;
	size_t n;
	if (fo_unpack_open(&u, path) != FO_OK)
		return 0;
	while (fo_unpack_read(u, block, sizeof block, &n) == FO_OK && n)
		total += (int64_t)n;
	fo_unpack_close(u);
	return total;
}

static int less(const void *a, const void *b)
{
	double x = ((const struct result *)a)->seconds, y = ((const struct result *)b)->seconds;
	return (x > y) - (x < y);
}

static void measure(const char *path, int rounds)
{
	struct result r[64];
	int64_t bytes = unpacked_bytes(path);
	for (int i = 0; i < rounds; i++)
		if (r[i] = read_once(path), !r[i].ok)
			return;
	double cpu = r[0].cpu;
	for (int i = 1; i < rounds; i++)
		cpu = r[i].cpu < cpu ? r[i].cpu : cpu;
	qsort(r, (size_t)rounds, sizeof *r, less);
	printf("{\"file\":\"%s\",\"isa\":\"%s\",\"raw_mb\":%.1f,\"best_s\":%.4f,\"median_s\":%.4f,\"best_mb_s\":%.0f,"
	       "\"median_mb_s\":%.0f,\"best_cpu_s\":%.4f,\"best_mb_per_cpu_s\":%.0f,"
	       "\"peak_mib\":%.1f,\"events\":%lld,\"gpu_operations\":%lld,\"host_operations\":%lld}\n",
	       path, fo_scan_chosen(), (double)bytes / 1e6, r[0].seconds, r[rounds / 2].seconds,
	       (double)bytes / 1e6 / r[0].seconds, (double)bytes / 1e6 / r[rounds / 2].seconds, cpu,
	       (double)bytes / 1e6 / cpu, (double)r[0].peak_kib / 1024, (long long)r[0].events, (long long)r[0].gpu,
	       (long long)r[0].ops);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int64_t bytes = 2000000000;
	int rounds = 3, i = 1;
	const char *dir = ".";
	bool keep = false;
	for (; i < argc && !strncmp(argv[i], "--", 2); i++) {
		if (!strcmp(argv[i], "--keep"))
			keep = true;
		else if (!strcmp(argv[i], "--bytes") && i + 1 < argc)
			bytes = atoll(argv[++i]);
		else if (!strcmp(argv[i], "--rounds") && i + 1 < argc)
			rounds = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--isa") && i + 1 < argc)
			fo_scan_choose(argv[++i]);
		else if (!strcmp(argv[i], "--dir") && i + 1 < argc)
			dir = argv[++i];
		else
			return fprintf(stderr, "usage: bench_trace [--bytes N] [--rounds N] [--isa avx2|sse2|portable] "
					       "[--dir D] [--keep] [FILE...]\n"),
			       2;
	}
	rounds = rounds < 1 ? 1 : rounds > 64 ? 64 : rounds;
	for (int file = i; file < argc; file++)
		measure(argv[file], rounds);
	if (i < argc)
		return 0;
	static const char *const end[] = { ".json", ".json.gz", ".json.zst" };
	char stem[400], path[512];
	snprintf(stem, sizeof stem, "%s/generated_trace", dir);
	generate(stem, bytes);
	for (int e = 0; e < 3; e++) {
		snprintf(path, sizeof path, "%s%s", stem, end[e]);
		measure(path, rounds);
		if (!keep)
			remove(path);
	}
	return 0;
}
