/* fp8: a cast that writes its transpose, too.
 *
 * Memory, for x in bf16: 4 B an element (2 read, 1 + 1 written), with or without the maximum; in fp32 6 B. A tensor (8192, 4096) in bf16:
 * 134 MB, 32 us at 4.2 TB/s; (8192, 14336): 470 MB, 112 us. A cast and a transposition after it move 5 B. Arithmetic is fp8_cast's, whose
 * numbers these are bit for bit, and some two instructions an element for turning. Both results are written in lines of 128 bytes: a
 * tile's side. */
#include "kernel/cuda/fp8.cuh"

enum { THREADS = 256 };

/* Leaves the block's maximum in partial[its number], where it is asked for. */
FO_DEVICE void leave_top(const fo_cuda_fp8_cast_t_args &p, uint32_t top, uint32_t *scratch)
{
	if (!p.partial)
		return;
	top = block_larger(top, scratch);
	if (threadIdx.x == 0)
		p.partial[blockIdx.x] = top;
}

/* Rows and columns are multiples of 16, and so is where each row begins: a thread's 16 elements of a row are inside or outside. */
template <bool E5M2, typename T> FO_DEVICE void cast_wide(const fo_cuda_fp8_cast_t_args &p, uint32_t *tile, uint32_t *scratch)
{
	enum { AT_ONCE = 4 / sizeof(T) }; /* rows, for four accesses under way: more take registers that blocks need */
	const int64_t across = (p.x.cols + TILE - 1) / TILE, r0 = blockIdx.x / across * TILE, c0 = blockIdx.x % across * TILE;
	const int64_t r = r0 + threadIdx.x / CHUNKS * 4, c = c0 + threadIdx.x % CHUNKS * 16;
	const bool inside = r < p.x.rows && c < p.x.cols; /* all four rows, or none */
	const float scale = *p.scale, inverse = fo_div_rn(1, scale);
	fo_16 row[4];
	uint32_t top = 0;
#pragma unroll
	for (int k = 0; k < 4; k += AT_ONCE) {
		float a[AT_ONCE][GROUP];
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++)
			if (inside)
				load16((const T *)p.x.data + (r + k + i) * p.x.ld + c, a[i]);
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			if (!inside)
				continue;
			if (p.partial)
				top = larger_of<GROUP>(top, a[i]);
#pragma unroll
			for (int j = 0; j < GROUP; j++)
				a[i][j] = fo_div_by(a[i][j], scale, inverse);
#pragma unroll
			for (int w = 0; w < 4; w++)
				row[k + i].w[w] = fo_to_fp8x4<E5M2>(a[i] + 4 * w);
		}
	}
#pragma unroll
	for (int i = 0; i < 4; i++)
		if (inside)
			*reinterpret_cast<fo_16 *>((unsigned char *)p.y.data + (r + i) * p.y.ld + c) = row[i];
	if (inside)
		tile_in(tile, row);
	__syncthreads();
	tile_out(tile, (unsigned char *)p.yt.data, p.yt.ld, r0, c0, p.x.rows, p.x.cols, true);
	leave_top(p, top, scratch);
}

#define CAST(name, e5m2, type)                                                                                         \
	FO_KERNEL(name, struct fo_cuda_fp8_cast_t_args, THREADS)                                                       \
	{                                                                                                              \
		__shared__ __align__(16) uint32_t tile[TILE * QUADS];                                                  \
		__shared__ uint32_t scratch[32];                                                                       \
		cast_wide<e5m2, type>(p, tile, scratch);                                                               \
	}
CAST(fp8_cast_t_bf16_e4m3, false, uint16_t)
CAST(fp8_cast_t_bf16_e5m2, true, uint16_t)
CAST(fp8_cast_t_f32_e4m3, false, float)
CAST(fp8_cast_t_f32_e5m2, true, float)

/* Any layout, any types: element by element, neighbours of a row to neighbours of a warp. */
FO_KERNEL(fp8_cast_t_any, struct fo_cuda_fp8_cast_t_args, THREADS)
{
	enum { SIDE = TILE + 4 /* neighbours of a row in banks of their own */ };
	__shared__ unsigned char tile[TILE * SIDE];
	__shared__ uint32_t scratch[32];
	const int64_t across = (p.x.cols + TILE - 1) / TILE, r0 = blockIdx.x / across * TILE, c0 = blockIdx.x % across * TILE;
	const float scale = *p.scale, inverse = fo_div_rn(1, scale);
	uint32_t top = 0;
	for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
		const int64_t r = r0 + i / TILE, c = c0 + i % TILE;
		if (r >= p.x.rows || c >= p.x.cols)
			continue;
		const float a = fo_view_get(p.x, r, c), q = fo_div_by(a, scale, inverse);
		const unsigned char byte = p.y.dtype == FO_CUDA_E5M2 ? fo_e5m2_from_f32(q) : fo_e4m3_from_f32(q);
		top = fo_larger(top, fo_magnitude(a));
		((unsigned char *)p.y.data)[r * p.y.ld + c] = tile[i % TILE * SIDE + i / TILE] = byte;
	}
	__syncthreads();
	for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
		const int64_t r = r0 + i % TILE, c = c0 + i / TILE;
		if (r < p.x.rows && c < p.x.cols)
			((unsigned char *)p.yt.data)[c * p.yt.ld + r] = tile[i / TILE * SIDE + i % TILE];
	}
	leave_top(p, top, scratch);
}
