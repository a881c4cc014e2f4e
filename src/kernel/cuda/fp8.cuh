/* Shared by kernels that make or transpose fp8 numbers: groups of 16 elements, maxima, tiles of bytes that are
 * transposed. */
#ifndef FO_KERNEL_CUDA_FP8_CUH
#define FO_KERNEL_CUDA_FP8_CUH

#include "kernel/cuda/rows.cuh"

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
/* The same over the block. */
FO_DEVICE uint32_t block_larger(uint32_t top)
{
	__shared__ uint32_t scratch[32];
	top = warp_larger(top);
	__syncthreads();
	if (threadIdx.x % 32 == 0)
		scratch[threadIdx.x / 32] = top;
	__syncthreads();
	return warp_larger(threadIdx.x % 32 < blockDim.x / 32 ? scratch[threadIdx.x % 32] : 0);
}

/* The scale as kernel/ref computes it: the smallest normal number keeps the quotient of a cast finite. */
FO_DEVICE float scale_of(uint32_t top, float largest, bool power)
{
	if (top == 0)
		return 1;
	if (top >= 0x7f800000u)
		return __uint_as_float(0x7fc00000u);
	const uint32_t s = fo_larger(__float_as_uint(fo_div_rn(__uint_as_float(top), largest)), 0x00800000u);
	return __uint_as_float(power ? (s + 0x007fffffu) & 0x7f800000u : s);
}

/* ---- casts by the scale of the step ----
 *
 * The scale is known before: every part of the work is done once, and a block's maximum joins the step's by one atomic
 * maximum of the magnitude's bits, which are ordered as integers, what is not a number above all. A maximum has no
 * order, so the bits repeat.
 *
 * Where the history was empty (a run's first step) the scale is of x's own maximum, which all blocks must have joined
 * before any may cast. Blocks of one launch must not wait for each other: nothing says that all of them find room on
 * the device while some wait. So a second launch of the same kernel stands behind the first (fo_cuda_fp8_step_launch).
 * The first measures, the second casts. Where the history was not empty the first did all and the second returns at
 * once: some 2 us of a step for each tensor. */

FO_DEVICE void join_word(uint32_t *to, uint32_t top)
{
	if (top > *(const volatile uint32_t *)to) /* most blocks find a larger one there, and then nobody waits */
		atomicMax(to, top);
}

/* work(i, scale, write): part i of p.parts, returns the maximum of what is cast; !write: nothing else. The grid may be
 * of any size. */
template <typename F> FO_DEVICE void by_step_scale(const fo_cuda_fp8_step &p, F work)
{
	const uint32_t past = p.amax[FO_CUDA_AMAX_HISTORY];
	if (p.second && past)
		return;
	const bool write = p.second || past;
	const float scale = scale_of(p.second ? p.amax[FO_CUDA_AMAX_OWN] : past, p.largest, false);
	uint32_t top = 0;
	if (write && blockIdx.x == 0 && threadIdx.x == 0)
		*p.sx = scale;
#pragma unroll 1
	for (uint32_t i = blockIdx.x; i < p.parts; i += gridDim.x) {
		top = fo_larger(top, work(i, scale, write));
		__syncthreads();
	}
	if (p.second) {
		/* The last block leaves the words as they were: all others have read the maximum. */
		if (threadIdx.x == 0 && atomicAdd(p.amax + FO_CUDA_AMAX_BLOCKS, 1u) + 1 == gridDim.x)
			p.amax[FO_CUDA_AMAX_OWN] = p.amax[FO_CUDA_AMAX_BLOCKS] = 0;
		return;
	}
	top = block_larger(top);
	if (threadIdx.x == 0) {
		join_word(p.amax + FO_CUDA_AMAX_STEP, top);
		if (!past)
			join_word(p.amax + FO_CUDA_AMAX_OWN, top);
	}
}

/* ---- tiles: 128 x 128 bytes, turned by 256 threads ---- */

enum {
	TILE = 128,
	QUADS = TILE / 4,
	CHUNKS = TILE / 16
}; /* bytes a side: 16 KiB of shared memory, one 128-byte line a row */

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

/* Turns a square of 4 x 4 bytes: byte j of out[i] is byte i of in[j]. */
FO_DEVICE void turn_square(const uint32_t *in, uint32_t *out)
{
	const uint32_t a = fo_bytes(in[0], in[1], 0x5140), b = fo_bytes(in[2], in[3], 0x5140);
	const uint32_t c = fo_bytes(in[0], in[1], 0x7362), d = fo_bytes(in[2], in[3], 0x7362);
	out[0] = fo_bytes(a, b, 0x5410), out[1] = fo_bytes(a, b, 0x7632);
	out[2] = fo_bytes(c, d, 0x5410), out[3] = fo_bytes(c, d, 0x7632);
}
/* A thread has 16 bytes (chunk threadIdx.x % CHUNKS of the columns) of each of four rows (quad threadIdx.x / CHUNKS of
 * them): it turns four squares of 4 x 4 bytes in registers, and puts 16 words, each four rows of one column, into the
 * tile, column by column. Word q of column c lies at q ^ 4 (c / 16): writes of a warp (8 chunks of columns, 4 quads of
 * rows) and tile_out's reads of 16 bytes by 8 threads meet no bank twice. tile: TILE * QUADS words. */
FO_DEVICE void tile_in(uint32_t *tile, const fo_16 *row)
{
	const int chunk = threadIdx.x % CHUNKS, quad = threadIdx.x / CHUNKS;
#pragma unroll
	for (int w = 0; w < 4; w++) {
		const uint32_t in[4] = { row[0].w[w], row[1].w[w], row[2].w[w], row[3].w[w] };
		uint32_t out[4], *to = tile + (chunk * 16 + w * 4) * QUADS + (quad ^ chunk * 4);
		turn_square(in, out);
#pragma unroll
		for (int i = 0; i < 4; i++)
			to[i * QUADS] = out[i];
	}
}
/* Called after a barrier. The tile whose first element is (r0, c0) of (rows, cols) goes to y, which has a row of
 * `ldy` bytes for each column. */
FO_DEVICE void tile_out(const uint32_t *tile, unsigned char *y, int64_t ldy, int64_t r0, int64_t c0, int64_t rows,
			int64_t cols, bool wide)
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		const int col = threadIdx.x / CHUNKS + i * (TILE / 4), group = threadIdx.x % CHUNKS;
		const fo_16 v = *reinterpret_cast<const fo_16 *>(tile + col * QUADS + (group ^ col / 16) * 4);
		const int64_t c = c0 + col, r = r0 + group * 16;
		store_bytes(y + c * ldy + r, v, c < cols ? rows - r : 0, wide);
	}
}

/* Tile `index` of what `source` makes of (rows, cols): cast into y and, where yt.data is set, its transpose; the
 * numbers themselves, in T, into z where that is set. Rows and columns are multiples of 16, and so is where each row of
 * all operands begins: a thread's 16 elements of a row are inside or outside. Returns the maximum where MAX asks for
 * it; !write: does nothing else.
 *
 * A source makes RESULTS tensors that lie side by side in y and z (one above the other in yt): load() asks memory for 8
 * elements of row r from column c on, AT_ONCE times before the first are used; values() makes numbers of them, rounded
 * to T. What is under way stays packed. */
template <bool E5M2, bool MAX, typename T, typename S>
FO_DEVICE uint32_t tile_of(const S &source, const fo_cuda_view &y, const fo_cuda_view &yt, const fo_cuda_view &z,
			   int64_t rows, int64_t cols, uint32_t index, float scale, bool write)
{
	__shared__ __align__(16) uint32_t tile[TILE * QUADS];
	const uint32_t across = (uint32_t)((cols + TILE - 1) / TILE);
	const int64_t r0 = (int64_t)(index / across) * TILE, c0 = (int64_t)(index % across) * TILE;
	const int64_t r = r0 + threadIdx.x / CHUNKS * 4, c = c0 + threadIdx.x % CHUNKS * 16;
	const bool inside = r < rows && c < cols; /* all four rows, or none */
	const float inverse = fo_div_rn(1, scale);
	fo_16 row[S::RESULTS][4];
	uint32_t top = 0;
#pragma unroll
	for (int k = 0; k < 8; k += S::AT_ONCE) { /* two eights of each of four rows */
		typename S::loaded in[S::AT_ONCE];
#pragma unroll
		for (int i = 0; i < S::AT_ONCE; i++)
			if (inside)
				source.load(r + (k + i) / 2, c + (k + i) % 2 * 8, in[i]);
#pragma unroll
		for (int i = 0; i < S::AT_ONCE; i++) {
			if (!inside)
				continue;
			float a[S::RESULTS][8];
			source.values(in[i], a);
#pragma unroll
			for (int n = 0; n < S::RESULTS; n++) {
				if (MAX)
					top = larger_of<8>(top, a[n]);
				if (z.data && write)
					fo_store8((T *)z.data + (r + (k + i) / 2) * z.ld + n * cols + c +
							  (k + i) % 2 * 8,
						  a[n]);
#pragma unroll
				for (int j = 0; j < 8; j++)
					a[n][j] = fo_div_by(a[n][j], scale, inverse);
				row[n][(k + i) / 2].w[(k + i) % 2 * 2] = fo_to_fp8x4<E5M2>(a[n]);
				row[n][(k + i) / 2].w[(k + i) % 2 * 2 + 1] = fo_to_fp8x4<E5M2>(a[n] + 4);
			}
		}
	}
	if (MAX && !write)
		return top;
#pragma unroll
	for (int n = 0; n < S::RESULTS; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			if (inside)
				*reinterpret_cast<fo_16 *>((unsigned char *)y.data + (r + i) * y.ld + n * cols +
							   c) = row[n][i];
		if (!yt.data)
			continue;
		if (n)
			__syncthreads();
		if (inside)
			tile_in(tile, row[n]);
		__syncthreads();
		tile_out(tile, (unsigned char *)yt.data + n * cols * yt.ld, yt.ld, r0, c0, rows, cols, true);
	}
	return top;
}

#endif
