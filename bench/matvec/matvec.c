/* Products of few rows, y = x W', against a plain loop that reads as many bytes: what share of the memory's speed they
 * get. Kernel and loop take turns, so that a busy machine slows both; the figures are the median and the best of the
 * pairs. bench_matvec [THREADS] */
#include "base/clock.h"
#include "base/mem.h"
#include "kernel/calibrate.h"
#include "kernel/memory.h"
#include "kernel/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS = 5, K = 2048, BYTES = 128 << 20 };

static void run(enum fo_isa isa, int dtype, int64_t m, int threads)
{
	int64_t n = BYTES / K / (int64_t)fo_dtype_bytes(dtype);
	void *w;
	if (fo_pages_new(BYTES, &w) != FO_OK)
		exit(3);
	memset(w, 0x3c, BYTES); /* 0.0115 in both types: neither zero nor denormal */
	float *x = fo_xmalloc((size_t)(m * K) * 4), *y = fo_xmalloc((size_t)(m * n) * 4);
	struct fo_call c = { .kind = FO_OP_matmul, .n = 3, .attr = { .tb = 1 }, .first = 1u << 2, .threads = threads };
	c.arg[0] = (struct fo_tensor){ .data = x, .rows = m, .cols = K, .ld = K, .dtype = (uint8_t)dtype };
	c.arg[1] = (struct fo_tensor){ .data = w, .rows = n, .cols = K, .ld = K, .dtype = (uint8_t)dtype };
	c.arg[2] = (struct fo_tensor){ .data = y, .rows = m, .cols = n, .ld = n, .dtype = (uint8_t)dtype };
	const struct fo_kernel *k = fo_kernel_pick(isa, &c, NULL);
	c.ws_bytes = k->ws ? k->ws(&c) : 0;
	if (fo_pages_new(c.ws_bytes + 64, &c.ws) != FO_OK)
		exit(3);
	double rate[PAIRS], share[PAIRS], best = 0, best_read = 0;
	for (int i = 0; i < PAIRS; i++) {
		double read = fo_memory_read_rate(threads);
		int64_t t0 = fo_now_ns();
		for (int r = 0; r < 3; r++)
			k->run(&c);
		rate[i] = 3.0 * BYTES / ((double)(fo_now_ns() - t0) * 1e-9);
		share[i] = rate[i] / read;
		best = rate[i] > best ? rate[i] : best;
		best_read = read > best_read ? read : best_read;
	}
	printf("%-6s %-4s m=%lld threads=%d: median %.2f GB/s, best %.2f, of reading: median %.2f, best over best "
	       "%.2f\n",
	       fo_isa_name[isa], fo_dtype_name[dtype], (long long)m, threads, 1e-9 * fo_stats_median(rate, PAIRS),
	       1e-9 * best, fo_stats_median(share, PAIRS), best / best_read);
	fo_pages_free(c.ws, c.ws_bytes + 64);
	fo_pages_free(w, BYTES);
	free(x);
	free(y);
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : fo_cpu_threads();
	enum fo_isa isa;
	setvbuf(stdout, NULL, _IOLBF, 0); /* a line at a time, into files too */
	if (fo_isa_choose(&isa) != FO_OK)
		return 3;
	for (int dtype = FO_F32; dtype <= FO_BF16; dtype++)
		for (int64_t m = 1; m <= 5; m += m == 1 ? 3 : 1) /* five rows are packed first */
			run(isa, dtype, m, threads < 1 ? 1 : threads);
	return 0;
}
