/* What the probe programs share: checks, bf16, random data and event timing. Header only, so each program is one file.
 */
#ifndef PROBE_UTIL_H
#define PROBE_UTIL_H

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUDA(call)                                                                 \
	do {                                                                       \
		cudaError_t e_ = (call);                                           \
		if (e_ != cudaSuccess) {                                           \
			printf("failed: %s: %s\n", #call, cudaGetErrorString(e_)); \
			exit(1);                                                   \
		}                                                                  \
	} while (0)

static inline float from_bf16(uint16_t h)
{
	union {
		uint32_t u;
		float f;
	} v = { .u = (uint32_t)h << 16 };
	return v.f;
}

static inline uint16_t to_bf16(float f) /* round to nearest even */
{
	union {
		float f;
		uint32_t u;
	} v = { .f = f };
	return (uint16_t)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
}

/* SplitMix64 (Steele, Lea, Flood 2014) */
static inline uint64_t next_random(uint64_t *s)
{
	uint64_t x = *s += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* About normal: the sum of four uniforms has variance 1/3. Rates depend on the data (power), so zeros will not do. */
static inline double next_normal(uint64_t *s)
{
	uint64_t x = next_random(s);
	double sum = 0;
	for (int i = 0; i < 4; i++)
		sum += (double)(x >> 16 * i & 0xffff) / 65536 - 0.5;
	return sum * 1.7320508075688772;
}

static inline int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static inline double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof *v, compare_double);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Milliseconds on the device for one call of run(arg) on stream 0. */
static inline double time_once(void (*run)(void *), void *arg)
{
	static cudaEvent_t start, stop;
	if (!start) {
		CUDA(cudaEventCreate(&start));
		CUDA(cudaEventCreate(&stop));
	}
	float ms;
	CUDA(cudaEventRecord(start, 0));
	run(arg);
	CUDA(cudaEventRecord(stop, 0));
	CUDA(cudaEventSynchronize(stop));
	CUDA(cudaEventElapsedTime(&ms, start, stop));
	return ms;
}

#endif
