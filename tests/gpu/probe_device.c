/* Step 1: versions, the device, and the rate of a device-to-device copy. Exit 77 without a CUDA device. */
#include "probe_util.h"

#include <cublasLt.h>

enum { REPEATS = 30 };
static const size_t copy_bytes = (size_t)1 << 30; /* far larger than any cache */
struct copy {
	void *from, *to;
};

static void run_copy(void *arg)
{
	struct copy *c = arg;
	CUDA(cudaMemcpyAsync(c->to, c->from, copy_bytes, cudaMemcpyDeviceToDevice, 0));
}

static void measure_copy(void)
{
	struct copy c;
	CUDA(cudaMalloc(&c.from, copy_bytes));
	CUDA(cudaMalloc(&c.to, copy_bytes));
	size_t part = (size_t)64 << 20;
	uint64_t seed = 1, *host = malloc(part);
	if (!host) {
		printf("failed: no host memory\n");
		exit(1);
	}
	for (size_t i = 0; i < part / sizeof *host; i++)
		host[i] = next_random(&seed);
	for (size_t at = 0; at < copy_bytes; at += part)
		CUDA(cudaMemcpy((char *)c.from + at, host, part, cudaMemcpyHostToDevice));
	double ms[REPEATS];
	for (int i = 0; i < 3; i++)
		run_copy(&c);
	for (int i = 0; i < REPEATS; i++)
		ms[i] = time_once(run_copy, &c);
	double mid = median(ms, REPEATS);
	printf("copy: median %.0f GB/s, best %.0f GB/s, worst %.0f GB/s (read + written, 1 GiB random data, %d "
	       "copies)\n",
	       2e-6 * (double)copy_bytes / mid, 2e-6 * (double)copy_bytes / ms[0],
	       2e-6 * (double)copy_bytes / ms[REPEATS - 1], REPEATS);
	free(host);
	CUDA(cudaFree(c.from));
	CUDA(cudaFree(c.to));
}

int main(void)
{
	int n = 0, runtime = 0, driver = 0, sm_khz = 0, mem_khz = 0;
	if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
		printf("skipped: no CUDA device\n");
		return 77;
	}
	struct cudaDeviceProp p;
	CUDA(cudaGetDeviceProperties(&p, 0));
	CUDA(cudaRuntimeGetVersion(&runtime));
	CUDA(cudaDriverGetVersion(&driver));
	CUDA(cudaDeviceGetAttribute(&sm_khz, cudaDevAttrClockRate, 0));
	CUDA(cudaDeviceGetAttribute(&mem_khz, cudaDevAttrMemoryClockRate, 0));
	printf("devices: %d; first: %s, compute capability %d.%d, %d SMs at up to %d MHz\n", n, p.name, p.major,
	       p.minor, p.multiProcessorCount, sm_khz / 1000);
	printf("memory: %.2f GiB, %d bit at %d MHz, L2 %.0f MiB, shared per block %zu bytes (opt-in)\n",
	       (double)p.totalGlobalMem / 1073741824.0, p.memoryBusWidth, mem_khz / 1000, p.l2CacheSize / 1048576.0,
	       p.sharedMemPerBlockOptin);
	printf("versions: runtime %d, driver %d, cublasLt %zu\n", runtime, driver, cublasLtGetVersion());
	measure_copy();
	return 0;
}
