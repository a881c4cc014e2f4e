/* What kernels share that make fp8 numbers or turn them: groups of 16 elements, maxima, tiles of bytes that are turned. */
#ifndef FO_KERNEL_CUDA_FP8_CUH
#define FO_KERNEL_CUDA_FP8_CUH

#include "kernel/cuda/device.cuh"

enum { GROUP = 16 /* elements: two accesses of bf16, one of fp8 */ };

template <typename T> FO_DEVICE void load16(const T *p, float *x)
{
	fo_load8(p, x);
	fo_load8(p + 8, x + 8);
}
template <int N> FO_DEVICE uint32_t larger_of(uint32_t top, const float *x)
{
#pragma unroll
	for (int k = 0; k < N; k++)
		top = fo_larger(top, fo_magnitude(x[k]));
	return top;
}
FO_DEVICE uint32_t warp_larger(uint32_t top)
{
#pragma unroll
	for (int k = 16; k; k >>= 1)
		top = fo_larger(top, __shfl_xor_sync(0xffffffffu, top, k));
	return top;
}
/* Over the block; scratch: 32 words of shared memory. */
FO_DEVICE uint32_t block_larger(uint32_t top, uint32_t *scratch)
{
	top = warp_larger(top);
	__syncthreads();
	if (threadIdx.x % 32 == 0)
		scratch[threadIdx.x / 32] = top;
	__syncthreads();
	return warp_larger(threadIdx.x % 32 < blockDim.x / 32 ? scratch[threadIdx.x % 32] : 0);
}

/* ---- tiles: 128 x 128 bytes, turned by 256 threads ---- */

enum { TILE = 128, QUADS = TILE / 4, CHUNKS = TILE / 16 }; /* bytes a side: 16 KiB of shared memory, one 128-byte line a row */

FO_DEVICE void store_bytes(unsigned char *p, const fo_16 &v, int64_t n, bool wide)
{
	if (wide) {
		if (n > 0)
			*reinterpret_cast<fo_16 *>(p) = v;
		return;
	}
#pragma unroll
	for (int i = 0; i < 16; i++)
		if (i < n)
			p[i] = (unsigned char)(v.w[i / 4] >> i % 4 * 8);
}

/* A thread has 16 bytes (chunk threadIdx.x % CHUNKS of the columns) of each of four rows (quad threadIdx.x / CHUNKS of them): it turns
 * four squares of 4 x 4 bytes in registers, and puts 16 words, each four rows of one column, into the tile, column by column. Word q of
 * column c lies at q ^ 4 (c / 16): writes of a warp (8 chunks of columns, 4 quads of rows) and tile_out's reads of 16 bytes by 8 threads
 * meet no bank twice. tile: TILE * QUADS words. */
FO_DEVICE void tile_in(uint32_t *tile, const fo_16 *row)
{
	const int chunk = threadIdx.x % CHUNKS, quad = threadIdx.x / CHUNKS;
#pragma unroll
	for (int w = 0; w < 4; w++) {
		const uint32_t a = fo_bytes(row[0].w[w], row[1].w[w], 0x5140), b = fo_bytes(row[2].w[w], row[3].w[w], 0x5140);
		const uint32_t d = fo_bytes(row[0].w[w], row[1].w[w], 0x7362), e = fo_bytes(row[2].w[w], row[3].w[w], 0x7362);
		uint32_t *to = tile + (chunk * 16 + w * 4) * QUADS + (quad ^ chunk * 4);
		to[0] = fo_bytes(a, b, 0x5410);
		to[QUADS] = fo_bytes(a, b, 0x7632);
		to[2 * QUADS] = fo_bytes(d, e, 0x5410);
		to[3 * QUADS] = fo_bytes(d, e, 0x7632);
	}
}
/* Behind a barrier: the tile whose first element is (r0, c0) of (rows, cols) goes to y, which has a row of `ldy` bytes for each column. */
FO_DEVICE void tile_out(const uint32_t *tile, unsigned char *y, int64_t ldy, int64_t r0, int64_t c0, int64_t rows, int64_t cols, bool wide)
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		const int col = threadIdx.x / CHUNKS + i * (TILE / 4), group = threadIdx.x % CHUNKS;
		const fo_16 v = *reinterpret_cast<const fo_16 *>(tile + col * QUADS + (group ^ col / 16) * 4);
		const int64_t c = c0 + col, r = r0 + group * 16;
		store_bytes(y + c * ldy + r, v, c < cols ? rows - r : 0, wide);
	}
}

#endif
