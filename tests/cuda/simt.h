/* CUDA C for a C++ compiler: with this in front, the .cu files of src/kernel/cuda run on the processor, by a software
 * multiprocessor (simt.c).
 *
 * Kernels need no change: FO_KERNEL and its like of device.cuh are defined here, and so is the part of CUDA C that
 * kernels use. Threads of a block are coroutines of one thread of the system: they switch where they meet
 * (__syncthreads, __shfl_*_sync and others). So atomic functions need no atomicity. Blocks run one after another, each
 * to its end.
 *
 * FO_SIMT_FILE is the name of the .cu file. The only variables of such a file are shared ones: its .bss, which the
 * build renames to fo_shared_<file> (a section attribute does not reach into templates), is filled with 0xff before
 * each block, as dynamic shared memory is. */
#ifndef FO_TESTS_CUDA_SIMT_H
#define FO_TESTS_CUDA_SIMT_H

#define FO_SIMT 1

#include "cuda/simt_int.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define FO_SIMT_PASTE_(a, b) a##b
#define FO_SIMT_PASTE(a, b) FO_SIMT_PASTE_(a, b)
#define FO_SIMT_TEXT_(a) #a
#define FO_SIMT_TEXT(a) FO_SIMT_TEXT_(a)
#define FO_SIMT_BEGIN FO_SIMT_PASTE(__start_fo_shared_, FO_SIMT_FILE)
#define FO_SIMT_END FO_SIMT_PASTE(__stop_fo_shared_, FO_SIMT_FILE)
/* The linker's names for the section; none where the file has no shared variables. */
extern "C" __attribute__((weak)) unsigned char FO_SIMT_BEGIN[], FO_SIMT_END[];

#define FO_KERNEL(name, type, threads)                                                                     \
	static void fo_simt_body_##name(const type &p);                                                    \
	static void fo_simt_call_##name(const void *args) { fo_simt_body_##name(*(const type *)args); }    \
	extern "C" const struct fo_simt_kernel fo_simt_kernel_##name;                                      \
	const struct fo_simt_kernel fo_simt_kernel_##name = { #name,   fo_simt_call_##name, sizeof(type),  \
							      threads, FO_SIMT_BEGIN,       FO_SIMT_END }; \
	static void fo_simt_body_##name(const type &p)
#define FO_KERNEL_BLOCKS(name, type, threads, blocks) FO_KERNEL(name, type, threads)
#define FO_DEVICE [[maybe_unused]] static inline
#define FO_DEVICE_MEMBER inline
#define FO_SHARED_DYNAMIC(name) unsigned char *const name = fo_simt_dynamic

#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static
#define __constant__ static const

#define threadIdx fo_simt_thread
#define blockIdx fo_simt_block
#define blockDim fo_simt_threads
#define gridDim fo_simt_blocks
static const int warpSize [[maybe_unused]] = 32;

/* ---- where threads meet ---- */

#define FO_SIMT_HERE __FILE__, __LINE__
#define __syncthreads() ((void)fo_simt_meet(FO_SIMT_BARRIER, 0, 0, 0, 0, FO_SIMT_HERE))
#define __syncthreads_or(x) ((int)fo_simt_meet(FO_SIMT_BARRIER_OR, 0, (x) != 0, 0, 0, FO_SIMT_HERE))
#define __syncthreads_and(x) ((int)fo_simt_meet(FO_SIMT_BARRIER_AND, 0, (x) != 0, 0, 0, FO_SIMT_HERE))
#define __syncthreads_count(x) ((int)fo_simt_meet(FO_SIMT_BARRIER_COUNT, 0, (x) != 0, 0, 0, FO_SIMT_HERE))
#define __syncwarp(...) fo_simt_sync(FO_SIMT_HERE __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_sync(...) fo_simt_shuffle(FO_SIMT_INDEX, FO_SIMT_HERE, __VA_ARGS__)
#define __shfl_up_sync(...) fo_simt_shuffle(FO_SIMT_UP, FO_SIMT_HERE, __VA_ARGS__)
#define __shfl_down_sync(...) fo_simt_shuffle(FO_SIMT_DOWN, FO_SIMT_HERE, __VA_ARGS__)
#define __shfl_xor_sync(...) fo_simt_shuffle(FO_SIMT_XOR, FO_SIMT_HERE, __VA_ARGS__)
#define __ballot_sync(mask, x) ((unsigned)fo_simt_meet(FO_SIMT_BALLOT, mask, (x) != 0, 0, 0, FO_SIMT_HERE))
#define __any_sync(mask, x) (__ballot_sync(mask, x) != 0)
#define __all_sync(mask, x) (__ballot_sync(mask, !(x)) == 0)
#define __reduce_add_sync(mask, x) fo_simt_reduce(FO_SIMT_ADD, FO_SIMT_HERE, mask, x)
#define __reduce_min_sync(mask, x) fo_simt_reduce(FO_SIMT_MIN, FO_SIMT_HERE, mask, x)
#define __reduce_max_sync(mask, x) fo_simt_reduce(FO_SIMT_MAX, FO_SIMT_HERE, mask, x)
#define __reduce_and_sync(mask, x) fo_simt_reduce(FO_SIMT_AND_BITS, FO_SIMT_HERE, mask, x)
#define __reduce_or_sync(mask, x) fo_simt_reduce(FO_SIMT_OR_BITS, FO_SIMT_HERE, mask, x)

static inline void fo_simt_sync(const char *file, int line, unsigned mask = 0xffffffffu)
{
	fo_simt_meet(FO_SIMT_SYNC, mask, 0, 0, 0, file, line);
}
template <typename T>
static inline T fo_simt_shuffle(int kind, const char *file, int line, unsigned mask, T x, int by, int width = 32)
{
	static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
	uint64_t v = 0;
	memcpy(&v, &x, sizeof x);
	v = fo_simt_meet(kind, mask, v, by, width, file, line);
	memcpy(&x, &v, sizeof x);
	return x;
}
template <typename T> static inline T fo_simt_reduce(int kind, const char *file, int line, unsigned mask, T x)
{
	return (T)fo_simt_meet(kind, mask, (uint64_t)x, sizeof x, (T)-1 < (T)1, file, line);
}
static inline void __threadfence(void) {}
static inline void __threadfence_block(void) {}

/* ---- integer atomic functions: nothing interrupts a coroutine ---- */

#define FO_SIMT_ATOMIC(name, T, expression) \
	static inline T name(T *p, T x)     \
	{                                   \
		T old = *p;                 \
		*p = (expression);          \
		return old;                 \
	}
#define FO_SIMT_ATOMICS(T)                               \
	FO_SIMT_ATOMIC(atomicAdd, T, old + x)            \
	FO_SIMT_ATOMIC(atomicMax, T, old > x ? old : x)  \
	FO_SIMT_ATOMIC(atomicMin, T, old < x ? old : x)  \
	FO_SIMT_ATOMIC(atomicExch, T, x)                 \
	FO_SIMT_ATOMIC(atomicOr, T, old | x)             \
	FO_SIMT_ATOMIC(atomicAnd, T, old &x)             \
	static inline T atomicCAS(T *p, T expected, T x) \
	{                                                \
		T old = *p;                              \
		*p = old == expected ? x : old;          \
		return old;                              \
	}
FO_SIMT_ATOMICS(int)
FO_SIMT_ATOMICS(unsigned)
FO_SIMT_ATOMICS(unsigned long long)
/* 0 .. x, then 0 again: what "the last block does the rest" counts with. */
FO_SIMT_ATOMIC(atomicInc, unsigned, old >= x ? 0 : old + 1)
FO_SIMT_ATOMIC(atomicDec, unsigned, old == 0 || old > x ? x : old - 1)

/* ---- numbers ---- */

#define FO_SIMT_BITS(name, from, to)      \
	static inline to name(from x)     \
	{                                 \
		to y;                     \
		memcpy(&y, &x, sizeof y); \
		return y;                 \
	}
FO_SIMT_BITS(__float_as_uint, float, unsigned)
FO_SIMT_BITS(__uint_as_float, unsigned, float)
FO_SIMT_BITS(__float_as_int, float, int)
FO_SIMT_BITS(__int_as_float, int, float)
FO_SIMT_BITS(__double_as_longlong, double, long long)
FO_SIMT_BITS(__longlong_as_double, long long, double)

static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
/* The device's are less exact: what is proved here holds for the exact ones. The C library has their names. */
#define __expf(x) (expf(x))
#define __logf(x) (logf(x))
#define __log2f(x) (log2f(x))
#define __sinf(x) (sinf(x))
#define __cosf(x) (cosf(x))
#define __powf(x, y) (powf(x, y))
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1 / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frsqrt_rn(float x) { return 1 / sqrtf(x); }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fsub_rn(float x, float y) { return x - y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline double __dadd_rn(double x, double y) { return x + y; }
static inline double __dsub_rn(double x, double y) { return x - y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline double __ddiv_rn(double x, double y) { return x / y; }
static inline double __dsqrt_rn(double x) { return sqrt(x); }
static inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
static inline float __double2float_rn(double x) { return (float)x; }
static inline int __float2int_rn(float x) { return (int)nearbyintf(x); }
static inline int __float2int_rz(float x) { return (int)x; }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1 : 0; }

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
	return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n)
{
	return (unsigned)(((uint64_t)hi << 32 | lo) << (n & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n)
{
	return (unsigned)(((uint64_t)hi << 32 | lo) >> (n & 31));
}
#define FO_SIMT_MINMAX(T)                                       \
	static inline T min(T a, T b) { return a < b ? a : b; } \
	static inline T max(T a, T b) { return a > b ? a : b; }
FO_SIMT_MINMAX(int)
FO_SIMT_MINMAX(unsigned)
FO_SIMT_MINMAX(long)
FO_SIMT_MINMAX(unsigned long)
FO_SIMT_MINMAX(long long)
FO_SIMT_MINMAX(unsigned long long)
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

/* ---- memory ---- */

template <typename T> static inline T __ldg(const T *p) { return *p; }
template <typename T> static inline T __ldcs(const T *p) { return *p; }
template <typename T> static inline T __ldcg(const T *p) { return *p; }
template <typename T> static inline void __stcs(T *p, T x) { *p = x; }
template <typename T> static inline void __stcg(T *p, T x) { *p = x; }
struct alignas(8) float2 {
	float x, y;
};
struct alignas(16) float4 {
	float x, y, z, w;
};
struct alignas(8) uint2 {
	unsigned x, y;
};
struct alignas(16) uint4 {
	unsigned x, y, z, w;
};
struct alignas(8) int2 {
	int x, y;
};
struct alignas(16) int4 {
	int x, y, z, w;
};
static inline float2 make_float2(float x, float y) { return { x, y }; }
static inline float4 make_float4(float x, float y, float z, float w) { return { x, y, z, w }; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return { x, y }; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return { x, y, z, w }; }
static inline int2 make_int2(int x, int y) { return { x, y }; }
static inline int4 make_int4(int x, int y, int z, int w) { return { x, y, z, w }; }

#endif
