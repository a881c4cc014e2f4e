/* The base of every kernel: 16-byte accesses, bf16, sums over warps and blocks.
 *
 * Two compilers read the .cu files: nvcc, and in tests a C++ compiler that first includes a software model of a
 * multiprocessor (tests/cuda/simt.h, which defines FO_SIMT): threads of a block run as coroutines that switch at
 * barriers and shuffles. So a kernel uses only what is here and the plain language: __shared__, __syncthreads,
 * __shfl_*_sync, threadIdx and its like; PTX and types of NVIDIA's headers stay behind functions of this file that have
 * a portable twin. */
#ifndef FO_KERNEL_CUDA_DEVICE_CUH
#define FO_KERNEL_CUDA_DEVICE_CUH

#include "base/fp8.h"
#include "kernel/cuda/kernels.h"
#include "kernel/round.h"

#include <stdint.h>

#ifndef FO_SIMT
#include <cuda_bf16.h>
#include <cuda_fp8.h>

/* threads: of a block, all that may be launched; the compiler gives each its registers by it. */
#define FO_KERNEL(name, type, threads) \
	extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ type p)
/* blocks: how many of them at least shall find room on a multiprocessor, whatever registers the compiler would have
 * liked to take. */
#define FO_KERNEL_BLOCKS(name, type, threads, blocks) \
	extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ type p)
#define FO_DEVICE static __device__ __forceinline__
#define FO_DEVICE_MEMBER __device__ __forceinline__
/* Dynamic shared memory of a block, 16-byte aligned; its size is in the launch. */
#define FO_SHARED_DYNAMIC(name) extern __shared__ __align__(16) unsigned char name[]
#endif

struct __attribute__((aligned(16))) fo_16 {
	uint32_t w[4];
};

/* Four of the eight bytes of a (0 to 3) and b (4 to 7): byte i of the result is the one that hexadecimal digit i of
 * `which` names. */
FO_DEVICE uint32_t fo_bytes(uint32_t a, uint32_t b, uint32_t which)
{
#ifdef FO_SIMT
	uint32_t x = 0;
	for (int i = 0; i < 4; i++) {
		const uint32_t k = which >> 4 * i & 7;
		x |= ((k < 4 ? a : b) >> k % 4 * 8 & 0xff) << 8 * i;
	}
	return x;
#else
	return __byte_perm(a, b, which);
#endif
}

/* ---- bf16: round to nearest even ---- */

FO_DEVICE float fo_from_bf16(uint16_t h) { return __uint_as_float((uint32_t)h << 16); }
FO_DEVICE uint16_t fo_to_bf16(float f)
{
#ifdef FO_SIMT
	uint32_t u = __float_as_uint(f);
	if ((u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(u >> 16 | 64);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
#else
	return __bfloat16_as_ushort(__float2bfloat16_rn(f));
#endif
}
/* Two at once: lo in the lower half. */
FO_DEVICE uint32_t fo_to_bf16x2(float lo, float hi)
{
#ifdef FO_SIMT
	return (uint32_t)fo_to_bf16(hi) << 16 | fo_to_bf16(lo);
#else
	__nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
	return *reinterpret_cast<uint32_t *>(&v);
#endif
}

/* ---- arithmetic that is rounded operation by operation, as the processor's: nvcc would join products and sums
 * otherwise ---- */

#ifdef FO_SIMT
FO_DEVICE float fo_add_rn(float a, float b) { return a + b; }
FO_DEVICE float fo_sub_rn(float a, float b) { return a - b; }
FO_DEVICE float fo_mul_rn(float a, float b) { return a * b; }
FO_DEVICE float fo_div_rn(float a, float b) { return a / b; }
FO_DEVICE float fo_sqrt_rn(float a) { return __builtin_sqrtf(a); }
FO_DEVICE float fo_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
FO_DEVICE float fo_add_rn(float a, float b) { return __fadd_rn(a, b); }
FO_DEVICE float fo_sub_rn(float a, float b) { return __fsub_rn(a, b); }
FO_DEVICE float fo_mul_rn(float a, float b) { return __fmul_rn(a, b); }
FO_DEVICE float fo_div_rn(float a, float b) { return __fdiv_rn(a, b); }
FO_DEVICE float fo_sqrt_rn(float a) { return __fsqrt_rn(a); }
FO_DEVICE float fo_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
#endif
/* a / b with y = 1 / b, rounded: the bits of fo_div_rn without its branch, where neither a nor the quotient is
 * subnormal. Two corrections of a quotient that is off by less than two units make it the nearest number (Markstein
 * 1990). */
FO_DEVICE float fo_div_by(float a, float b, float y)
{
	const float q = fo_mul_rn(a, y), p = fo_fma(fo_fma(-q, b, a), y, q), n = fo_fma(fo_fma(-p, b, a), y, p);
	/* Infinite numbers have no remainder, and that of -0 is 0. */
	return (__float_as_uint(n) & 0x7fffffff) - 1 < 0x7f7fffffu ? n : q;
}

/* ---- fp8: to nearest even, too large becomes the largest, what is not finite stays so (base/fp8.h) ---- */

/* Two finite numbers, lo in the lower byte. */
FO_DEVICE uint32_t fo_to_e4m3x2(float lo, float hi)
{
#if !defined FO_SIMT && __CUDA_ARCH__ >= 890
	return __nv_cvt_float2_to_fp8x2(make_float2(lo, hi), __NV_SATFINITE, __NV_E4M3);
#else
	return (uint32_t)fo_e4m3_from_f32(hi) << 8 | fo_e4m3_from_f32(lo);
#endif
}
FO_DEVICE uint32_t fo_to_e5m2x2(float lo, float hi)
{
#if !defined FO_SIMT && __CUDA_ARCH__ >= 890
	return __nv_cvt_float2_to_fp8x2(make_float2(lo, hi), __NV_SATFINITE, __NV_E5M2);
#else
	return (uint32_t)fo_e5m2_from_f32(hi) << 8 | fo_e5m2_from_f32(lo);
#endif
}
/* The larger magnitude, as bits: magnitudes are ordered as integers, with what is not a number above all. */
FO_DEVICE uint32_t fo_magnitude(float x) { return __float_as_uint(x) & 0x7fffffff; }
FO_DEVICE uint32_t fo_larger(uint32_t a, uint32_t b) { return a > b ? a : b; }
/* Any four numbers, the first in the lowest byte. The device's conversion makes the largest number of an infinity:
 * those take the long way. */
template <bool E5M2> FO_DEVICE uint32_t fo_to_fp8x4(const float *x)
{
	uint32_t top = 0, w = 0;
#pragma unroll
	for (int i = 0; i < 4; i++)
		top = fo_larger(top, fo_magnitude(x[i]));
	if (top < 0x7f800000u && E5M2)
		return fo_to_e5m2x2(x[2], x[3]) << 16 | fo_to_e5m2x2(x[0], x[1]);
	if (top < 0x7f800000u)
		return fo_to_e4m3x2(x[2], x[3]) << 16 | fo_to_e4m3x2(x[0], x[1]);
#pragma unroll
	for (int i = 0; i < 4; i++)
		w |= (uint32_t)(E5M2 ? fo_e5m2_from_f32(x[i]) : fo_e4m3_from_f32(x[i])) << 8 * i;
	return w;
}

/* ---- elements: T is uint16_t for bf16, float for fp32 ---- */

FO_DEVICE float fo_load(const uint16_t *p) { return fo_from_bf16(*p); }
FO_DEVICE float fo_load(const float *p) { return *p; }
FO_DEVICE void fo_store(uint16_t *p, float x) { *p = fo_to_bf16(x); }
FO_DEVICE void fo_store(float *p, float x) { *p = x; }

/* Eight neighbours as fp32: one 16-byte access of bf16, two of fp32. p is 16-byte aligned. */
FO_DEVICE void fo_load8(const uint16_t *p, float *x)
{
	const fo_16 v = *reinterpret_cast<const fo_16 *>(p);
#pragma unroll
	for (int i = 0; i < 4; i++) {
		x[2 * i] = __uint_as_float(v.w[i] << 16);
		x[2 * i + 1] = __uint_as_float(v.w[i] & 0xffff0000u);
	}
}
FO_DEVICE void fo_load8(const float *p, float *x)
{
	const fo_16 a = reinterpret_cast<const fo_16 *>(p)[0], b = reinterpret_cast<const fo_16 *>(p)[1];
#pragma unroll
	for (int i = 0; i < 4; i++) {
		x[i] = __uint_as_float(a.w[i]);
		x[4 + i] = __uint_as_float(b.w[i]);
	}
}
FO_DEVICE void fo_store8(uint16_t *p, const float *x)
{
	fo_16 v;
#pragma unroll
	for (int i = 0; i < 4; i++)
		v.w[i] = fo_to_bf16x2(x[2 * i], x[2 * i + 1]);
	*reinterpret_cast<fo_16 *>(p) = v;
}
FO_DEVICE void fo_store8(float *p, const float *x)
{
	fo_16 a, b;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		a.w[i] = __float_as_uint(x[i]);
		b.w[i] = __float_as_uint(x[4 + i]);
	}
	reinterpret_cast<fo_16 *>(p)[0] = a;
	reinterpret_cast<fo_16 *>(p)[1] = b;
}

/* ---- one element of a view, bf16 or fp32: for paths that odd layouts take ---- */

FO_DEVICE float fo_view_get(const fo_cuda_view &v, int64_t r, int64_t c)
{
	return v.dtype == FO_CUDA_BF16 ? fo_from_bf16(((const uint16_t *)v.data)[r * v.ld + c])
				       : ((const float *)v.data)[r * v.ld + c];
}
FO_DEVICE void fo_view_put(const fo_cuda_view &v, int64_t r, int64_t c, float x)
{
	if (v.dtype == FO_CUDA_BF16)
		((uint16_t *)v.data)[r * v.ld + c] = fo_to_bf16(x);
	else
		((float *)v.data)[r * v.ld + c] = x;
}

/* ---- approximations of the special function unit, for results that are rounded to bf16: 2^-22 at worst ---- */

FO_DEVICE float fo_exp2_fast(float x)
{
#ifdef FO_SIMT
	return exp2f(x);
#else
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#endif
}
FO_DEVICE float fo_reciprocal_fast(float x)
{
#ifdef FO_SIMT
	return 1 / x;
#else
	float y;
	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#endif
}

/* ---- sums ---- */

/* Sums and maxima over the 32 threads of a warp come out the same in all of them; the order is fixed. */
template <typename T> FO_DEVICE T fo_warp_sum(T x)
{
#pragma unroll
	for (int k = 16; k; k >>= 1)
		x += __shfl_xor_sync(0xffffffffu, x, k);
	return x;
}
FO_DEVICE float fo_warp_max(float x)
{
#pragma unroll
	for (int k = 16; k; k >>= 1)
		x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, k));
	return x;
}
/* The same over a block of `warps` warps. */
template <typename T> FO_DEVICE T fo_block_sum(T x, int warps)
{
	__shared__ T scratch[32];
	x = fo_warp_sum(x);
	__syncthreads(); /* who still reads scratch of a sum before */
	if (threadIdx.x % 32 == 0)
		scratch[threadIdx.x / 32] = x;
	__syncthreads();
	return fo_warp_sum((int)(threadIdx.x % 32) < warps ? scratch[threadIdx.x % 32] : T(0));
}

/* ---- threads that stride ---- */

/* Every number i below n once. */
#define FO_EACH(i, n)                                                                                  \
	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, n_of_##i = (n); i < n_of_##i; \
	     i += (int64_t)gridDim.x * blockDim.x)
/* Every element (r, c) of a rectangle once; i: its number. */
#define FO_EACH_ELEMENT(i, r, c, rows, cols) \
	FO_EACH(i, (rows) * (cols))          \
	for (int64_t r = i / (cols), c = i % (cols), once = 1; once; once = 0)

#endif
