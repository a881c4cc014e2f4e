/* fp8: a cast that writes its transpose, too.
 *
 * Memory, for x in bf16: 4 B an element (2 read, 1 + 1 written), with or without the maximum; in fp32 6 B. A tensor
 * (8192, 4096) in bf16: 134 MB, 32 us at 4.2 TB/s; (8192, 14336): 470 MB, 112 us. A cast and a transposition after it
 * move 5 B. Arithmetic is fp8_cast's, whose numbers these are bit for bit, and some two instructions an element for
 * turning. Both results are written in lines of 128 bytes: a tile's side. */
#include "kernel/cuda/fp8.cuh"

enum { THREADS = 256 };

/* The numbers as they lie in memory. */
template <typename T> struct stored {
	enum { RESULTS = 1, AT_ONCE = 8 / sizeof(T) /* four accesses */ };
	typedef fo_pack<T> loaded;
	const fo_cuda_view &x;
	FO_DEVICE_MEMBER void load(int64_t r, int64_t c, loaded &to) const
	{
		to = fo_pack_load((const T *)x.data + r * x.ld + c);
	}
	FO_DEVICE_MEMBER void values(const loaded &from, float (*a)[8]) const { fo_unpack(from, a[0]); }
};

/* Tile `index`; returns the maximum where MAX asks for it; !write: nothing else. */
template <bool E5M2, bool MAX, typename T>
FO_DEVICE uint32_t cast_tile(const fo_cuda_fp8_cast_t_args &p, uint32_t index, float scale, bool write)
{
	const fo_cuda_view none = { NULL, 0, 0, 0, 0, 0 };
	return tile_of<E5M2, MAX, T>(stored<T>{ p.x }, p.y, p.yt, none, p.x.rows, p.x.cols, index, scale, write);
}

#define CAST(name, e5m2, type)                                                                    \
	FO_KERNEL(fp8_cast_t_##name, struct fo_cuda_fp8_cast_t_args, THREADS)                     \
	{                                                                                         \
		cast_tile<e5m2, false, type>(p, blockIdx.x, *p.scale, true);                      \
	}                                                                                         \
	FO_KERNEL_BLOCKS(fp8_cast_step_t_##name, struct fo_cuda_fp8_cast_step_t_args, THREADS, 3) \
	{                                                                                         \
		by_step_scale(p.step, [&](uint32_t part, float scale, bool write) {               \
			return cast_tile<e5m2, true, type>(p.cast, part, scale, write);           \
		});                                                                               \
	}
CAST(bf16_e4m3, false, uint16_t)
CAST(bf16_e5m2, true, uint16_t)
CAST(f32_e4m3, false, float)
CAST(f32_e5m2, true, float)

/* Any layout, any types: element by element, neighbours of a row to neighbours of a warp. */
enum { SIDE = TILE + 4 /* neighbours of a row in banks of their own */ };

FO_DEVICE uint32_t cast_tile_any(const fo_cuda_fp8_cast_t_args &p, int64_t index, float scale, bool write)
{
	__shared__ unsigned char tile[TILE * SIDE];
	const int64_t across = (p.x.cols + TILE - 1) / TILE, r0 = index / across * TILE, c0 = index % across * TILE;
	const float inverse = fo_div_rn(1, scale);
	uint32_t top = 0;
	for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
		const int64_t r = r0 + i / TILE, c = c0 + i % TILE;
		if (r >= p.x.rows || c >= p.x.cols)
			continue;
		const float a = fo_view_get(p.x, r, c), q = fo_div_by(a, scale, inverse);
		const unsigned char byte = p.y.dtype == FO_CUDA_E5M2 ? fo_e5m2_from_f32(q) : fo_e4m3_from_f32(q);
		top = fo_larger(top, fo_magnitude(a));
		if (write)
			((unsigned char *)p.y.data)[r * p.y.ld + c] = tile[i % TILE * SIDE + i / TILE] = byte;
	}
	__syncthreads();
	for (int i = threadIdx.x; write && i < TILE * TILE; i += THREADS) {
		const int64_t r = r0 + i % TILE, c = c0 + i / TILE;
		if (r < p.x.rows && c < p.x.cols)
			((unsigned char *)p.yt.data)[c * p.yt.ld + r] = tile[i / TILE * SIDE + i % TILE];
	}
	return top;
}
FO_KERNEL(fp8_cast_t_any, struct fo_cuda_fp8_cast_t_args, THREADS) { cast_tile_any(p, blockIdx.x, *p.scale, true); }
FO_KERNEL(fp8_cast_step_t_any, struct fo_cuda_fp8_cast_step_t_args, THREADS)
{
	by_step_scale(p.step, [&](uint32_t part, float scale, bool write) {
		return cast_tile_any(p.cast, part, scale, write);
	});
}
