/* fp8: maxima, scales, casts, histories.
 *
 * Memory, for x in bf16: amax 2 B an element, cast 3 B (2 read, 1 written), with or without the maximum. A tensor
 * (8192, 4096): amax 67 MB, 16 us at 4.2 TB/s; cast 101 MB, 24 us; (8192, 14336): 56 and 84 us. The cast's arithmetic,
 * some 12 instructions an element, fills half of what a multiprocessor has while 3 B pass. Scales and histories are a
 * few KB: the launch is their time. */
#include "kernel/cuda/fp8.cuh"

#include <math.h>

enum { THREADS = 256 };

/* Elements [0, n) of a row, by threads `first`, first + step, ... */
template <typename T> FO_DEVICE uint32_t row_larger(const T *p, int64_t n, bool aligned, int64_t first, int64_t step)
{
	enum { AT_ONCE = 4 / sizeof(T) }; /* groups, for four accesses under way */
	const int64_t groups = aligned ? n / GROUP : 0;
	uint32_t top = 0;
	int64_t i = first;
	for (; i + (AT_ONCE - 1) * step < groups; i += AT_ONCE * step) {
		float x[AT_ONCE][GROUP];
#pragma unroll
		for (int u = 0; u < AT_ONCE; u++)
			load16(p + (i + u * step) * GROUP, x[u]);
#pragma unroll
		for (int u = 0; u < AT_ONCE; u++)
			top = larger_of<GROUP>(top, x[u]);
	}
	for (; i < groups; i += step) {
		float x[GROUP];
		load16(p + i * GROUP, x);
		top = larger_of<GROUP>(top, x);
	}
	for (i = groups * GROUP + first; i < n; i += step)
		top = fo_larger(top, fo_magnitude(fo_load(p + i)));
	return top;
}

/* The maximum of n numbers that lie one after the other, by one block. */
FO_DEVICE uint32_t few_larger(const float *p, int64_t n)
{
	uint32_t top = 0;
	for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
		top = fo_larger(top, fo_magnitude(p[i]));
	return block_larger(top);
}

/* The elements that a thread reads in share `part` of `parts`: of one row, elements that all shares have in turn; of
 * more rows, those that belong to the share. */
struct share {
	int64_t row, rows, first, step;
};
FO_DEVICE share share_of(int64_t rows, uint32_t part, uint32_t parts)
{
	const bool one = rows == 1;
	share w;
	w.row = one ? 0 : part;
	w.rows = one ? 1 : parts;
	w.first = one ? (int64_t)part * blockDim.x + threadIdx.x : threadIdx.x;
	w.step = one ? (int64_t)parts * blockDim.x : blockDim.x;
	return w;
}

/* ---- maxima ---- */

/* The maximum of all elements; a tensor without gaps comes as one row. */
template <typename T>
FO_DEVICE uint32_t share_larger(const fo_cuda_view &x, bool aligned, uint32_t part, uint32_t parts)
{
	const share w = share_of(x.rows, part, parts);
	uint32_t top = 0;
	for (int64_t r = w.row; r < x.rows; r += w.rows)
		top = fo_larger(top, row_larger((const T *)x.data + r * x.ld, x.cols, aligned, w.first, w.step));
	return top;
}
template <typename T> FO_DEVICE void amax_all(const fo_cuda_amax_args &p)
{
	const uint32_t top = block_larger(share_larger<T>(p.x, p.aligned, blockIdx.x, gridDim.x));
	if (threadIdx.x == 0)
		p.partial[blockIdx.x] = top;
}
FO_KERNEL(amax_all_bf16, struct fo_cuda_amax_args, THREADS) { amax_all<uint16_t>(p); }
FO_KERNEL(amax_all_f32, struct fo_cuda_amax_args, THREADS) { amax_all<float>(p); }

/* The maximum of each row: a warp takes one. */
template <typename T> FO_DEVICE void amax_rows(const fo_cuda_amax_args &p)
{
	const int warps = THREADS / 32;
	for (int64_t r = (int64_t)blockIdx.x * warps + threadIdx.x / 32; r < p.x.rows;
	     r += (int64_t)gridDim.x * warps) {
		const uint32_t top = warp_larger(
			row_larger((const T *)p.x.data + r * p.x.ld, p.x.cols, p.aligned, threadIdx.x % 32, 32));
		if (threadIdx.x % 32 == 0)
			p.out[r * p.out_ld] = __uint_as_float(top);
	}
}
FO_KERNEL(amax_rows_bf16, struct fo_cuda_amax_args, THREADS) { amax_rows<uint16_t>(p); }
FO_KERNEL(amax_rows_f32, struct fo_cuda_amax_args, THREADS) { amax_rows<float>(p); }

/* The maximum of each column: a block takes 8 x 32 columns, a warp's thread eight neighbours; its warps, and the blocks
 * of one grid.x, take rows in turn. */
template <typename T> FO_DEVICE void amax_cols(const fo_cuda_amax_args &p)
{
	__shared__ uint32_t scratch[THREADS / 32][THREADS];
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = THREADS / 32;
	const int64_t col = ((int64_t)blockIdx.x * 32 + lane) * 8, left = p.x.cols - col,
		      rows = (int64_t)gridDim.y * warps;
	const bool wide = p.aligned && left >= 8;
	uint32_t top[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
#pragma unroll 4
	for (int64_t r = (int64_t)blockIdx.y * warps + warp; r < p.x.rows; r += rows) {
		const T *row = (const T *)p.x.data + r * p.x.ld + col;
		float x[8];
		if (wide) {
			fo_load8(row, x);
		} else {
#pragma unroll
			for (int k = 0; k < 8; k++)
				x[k] = k < left ? fo_load(row + k) : 0;
		}
#pragma unroll
		for (int k = 0; k < 8; k++)
			top[k] = fo_larger(top[k], fo_magnitude(x[k]));
	}
#pragma unroll
	for (int k = 0; k < 8; k++)
		scratch[warp][lane + 32 * k] = top[k];
	__syncthreads();
	/* Thread t joins column t of the block, which lane t / 8 left as its t % 8th. */
	uint32_t all = 0;
	for (int w = 0; w < warps; w++)
		all = fo_larger(all, scratch[w][threadIdx.x / 8 + 32 * (threadIdx.x % 8)]);
	if ((int64_t)blockIdx.x * THREADS + threadIdx.x < p.x.cols)
		p.partial[(int64_t)blockIdx.y * p.x.cols + (int64_t)blockIdx.x * THREADS + threadIdx.x] = all;
}
FO_KERNEL(amax_cols_bf16, struct fo_cuda_amax_args, THREADS) { amax_cols<uint16_t>(p); }
FO_KERNEL(amax_cols_f32, struct fo_cuda_amax_args, THREADS) { amax_cols<float>(p); }

FO_KERNEL(amax_join, struct fo_cuda_amax_join_args, THREADS)
{
	if (p.whole) {
		uint32_t top = 0;
		for (int64_t i = threadIdx.x; i < p.n; i += blockDim.x)
			top = fo_larger(top, p.partial[i]);
		top = block_larger(top);
		if (threadIdx.x == 0)
			p.out[0] = __uint_as_float(top);
		return;
	}
	const int64_t col = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (col >= p.cols)
		return;
	uint32_t top = 0;
	for (int64_t i = 0; i < p.n; i++)
		top = fo_larger(top, p.partial[i * p.cols + col]);
	p.out[col] = __uint_as_float(top);
}

/* ---- scales ---- */

FO_KERNEL(fp8_scale, struct fo_cuda_fp8_scale_args, THREADS)
{
	FO_EACH_ELEMENT(i, r, c, p.out.rows, p.out.cols)
	((float *)p.out.data)[r * p.out.ld + c] = scale_of(
		fo_magnitude(((const float *)p.amax.data)[r * p.amax.ld + c]), p.largest, p.power);
}

/* The step begins: maxima of histories, of all layers at once. Some 4 KB a block: the launch is its time, once per
 * step. */
FO_KERNEL(fp8_begin, struct fo_cuda_fp8_begin_args, THREADS)
{
	const fo_cuda_view &h = p.history[blockIdx.y], &amax = p.amax[blockIdx.y];
	if (blockIdx.x >= h.rows)
		return;
	const uint32_t top = few_larger((const float *)h.data + blockIdx.x * h.ld, h.cols);
	if (threadIdx.x < FO_CUDA_AMAX_WORDS)
		((uint32_t *)amax.data)[blockIdx.x * amax.ld + threadIdx.x] = threadIdx.x == FO_CUDA_AMAX_HISTORY ? top
														  : 0;
}

/* ---- casts ---- */

enum scales { ONE, ROWS, COLS };

/* Where scales lie along columns each has a division of its own; else the reciprocal is taken once and corrected. */
template <bool E5M2, scales S, typename T>
FO_DEVICE uint32_t cast16(const fo_cuda_fp8_cast_args &p, const T *x, uint8_t *y, int64_t col, float scale,
			  float inverse, uint32_t top, bool max)
{
	float a[GROUP];
	fo_16 o;
	load16(x, a);
	if (max)
		top = larger_of<GROUP>(top, a);
#pragma unroll
	for (int k = 0; k < GROUP; k++)
		a[k] = S == COLS ? fo_div_rn(a[k], p.scale[col + k]) : fo_div_by(a[k], scale, inverse);
#pragma unroll
	for (int k = 0; k < 4; k++)
		o.w[k] = fo_to_fp8x4<E5M2>(a + 4 * k);
	*reinterpret_cast<fo_16 *>(y) = o;
	return top;
}

/* Columns [0, n) of one row, by threads first, first + step, ...; returns the maximum. */
template <bool E5M2, scales S, bool MAX, typename T>
FO_DEVICE uint32_t cast_row(const fo_cuda_fp8_cast_args &p, const T *x, uint8_t *y, float scale, int64_t first,
			    int64_t step, uint32_t top)
{
	const int64_t n = p.x.cols, groups = p.aligned ? n / GROUP : 0;
	const float inverse = S == COLS ? 0 : fo_div_rn(1, scale);
	for (int64_t i = first; i < groups; i += step)
		top = cast16<E5M2, S>(p, x + i * GROUP, y + i * GROUP, i * GROUP, scale, inverse, top, MAX);
	for (int64_t i = groups * GROUP + first; i < n; i += step) {
		const float a = fo_load(x + i), q = S == COLS ? fo_div_rn(a, p.scale[i]) : fo_div_by(a, scale, inverse);
		y[i] = E5M2 ? fo_e5m2_from_f32(q) : fo_e4m3_from_f32(q);
		if (MAX)
			top = fo_larger(top, fo_magnitude(a));
	}
	return top;
}

/* A tensor without gaps that has one scale comes as one row. `one`: the scale of all. */
template <bool E5M2, scales S, bool MAX, typename T>
FO_DEVICE uint32_t cast_share(const fo_cuda_fp8_cast_args &p, float one, uint32_t part, uint32_t parts)
{
	uint32_t top = 0;
	const share w = share_of(p.x.rows, part, parts);
	for (int64_t r = w.row; r < p.x.rows; r += w.rows)
		top = cast_row<E5M2, S, MAX>(p, (const T *)p.x.data + r * p.x.ld, (uint8_t *)p.y.data + r * p.y.ld,
					     S == ROWS ? p.scale[r * p.scale_ld] : one, w.first, w.step, top);
	return top;
}

#define CAST(name, e5m2, scales, type)                                                                         \
	FO_KERNEL(name, struct fo_cuda_fp8_cast_args, THREADS)                                                 \
	{                                                                                                      \
		cast_share<e5m2, scales, false, type>(p, scales == ONE ? *p.scale : 1, blockIdx.x, gridDim.x); \
	}
#define CAST_STEP(name, e5m2, type, blocks)                                                                 \
	FO_KERNEL_BLOCKS(name, struct fo_cuda_fp8_cast_step_args, THREADS, blocks)                          \
	{                                                                                                   \
		by_step_scale(p.step, [&](uint32_t part, float scale, bool write) {                         \
			return write ? cast_share<e5m2, ONE, true, type>(p.cast, scale, part, p.step.parts) \
				     : share_larger<type>(p.cast.x, p.cast.aligned, part, p.step.parts);    \
		});                                                                                         \
	}
/* blocks of a multiprocessor: the most whose registers hold a cast without spilling on every architecture */
#define CASTS(from, type, blocks)                                   \
	CAST(fp8_cast_##from##_e4m3_one, false, ONE, type)          \
	CAST(fp8_cast_##from##_e4m3_rows, false, ROWS, type)        \
	CAST(fp8_cast_##from##_e4m3_cols, false, COLS, type)        \
	CAST(fp8_cast_##from##_e5m2_one, true, ONE, type)           \
	CAST(fp8_cast_##from##_e5m2_rows, true, ROWS, type)         \
	CAST(fp8_cast_##from##_e5m2_cols, true, COLS, type)         \
	CAST_STEP(fp8_cast_step_##from##_e4m3, false, type, blocks) \
	CAST_STEP(fp8_cast_step_##from##_e5m2, true, type, blocks)
CASTS(bf16, uint16_t, 6)
CASTS(f32, float, 5)

/* ---- histories ---- */

/* A block moves a row on by one column, from its end, so that nothing is overwritten before it was read. */
FO_KERNEL(fp8_push, struct fo_cuda_fp8_push_args, THREADS)
{
	if (*p.scale < 0)
		return;
	float *h = (float *)p.history.data + blockIdx.x * p.history.ld;
	const float newest = p.amax[blockIdx.x * p.amax_ld];
	const float first = fo_magnitude(newest) < 0x7f800000u ? newest : 0; /* not NaN or infinite */
	for (int64_t begin = (p.history.cols - 1) / THREADS * THREADS; begin >= 0; begin -= THREADS) {
		const int64_t j = begin + threadIdx.x;
		float x = 0;
		if (j < p.history.cols)
			x = j ? h[j - 1] : first;
		__syncthreads();
		if (j < p.history.cols)
			h[j] = x;
		__syncthreads();
	}
}
