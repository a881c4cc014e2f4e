/* fp8: norms, SwiGLU and its backward that cast what they make (pass fp8-fuse), in bf16; norms and SwiGLU into E4M3,
 * gradients into E5M2.
 *
 * Memory, with the transposed copy, against the two kernels apart: a norm of (8192, 4096) 134 MB, 32 us at 4.2 TB/s,
 * instead of 268; SwiGLU of (8192, 14336) 705 MB, 168 us, instead of 1,174; its backward 1,174 MB, 280 us, instead of
 * 2,114. Bits are those of the kernels apart: sums have the same teams and the same order, and a cast sees numbers
 * rounded to bf16. */
#include "kernel/cuda/fp8.cuh"
#include "kernel/cuda/swiglu.cuh"

enum { THREADS = 256, THREADS_NORM = 512 };

/* Eight numbers as they would be read back. */
FO_DEVICE void as_stored(float *x)
{
	fo_pack<uint16_t> v;
	fo_packed(v, x);
	fo_unpack(v, x);
}
FO_DEVICE fo_pack<uint16_t> eight(const fo_cuda_view &x, int64_t r, int64_t c)
{
	return fo_pack_load((const uint16_t *)x.data + r * x.ld + c);
}

/* ---- SwiGLU: a tile of 128 x 128 elements at a time (fp8.cuh) ---- */

struct swiglu_source {
	enum { RESULTS = 1, AT_ONCE = 2 /* four accesses */ };
	struct loaded {
		fo_pack<uint16_t> gate, up;
	};
	const fo_cuda_fp8_made_args &p;
	FO_DEVICE_MEMBER void load(int64_t r, int64_t c, loaded &to) const
	{
		to.gate = eight(p.x, r, c), to.up = eight(p.b, r, c);
	}
	FO_DEVICE_MEMBER void values(const loaded &from, float (*a)[8]) const
	{
		float g[8];
		fo_unpack(from.gate, g), fo_unpack(from.up, a[0]);
#pragma unroll
		for (int e = 0; e < 8; e++)
			a[0][e] *= silu(uint16_t(), g[e]);
		as_stored(a[0]);
	}
};

/* Gradients of gate and up, from one read. */
struct swiglu_bwd_source {
	enum { RESULTS = 2, AT_ONCE = 2 /* six accesses */ };
	struct loaded {
		fo_pack<uint16_t> gate, up, dy;
	};
	const fo_cuda_fp8_made_args &p;
	FO_DEVICE_MEMBER void load(int64_t r, int64_t c, loaded &to) const
	{
		to.gate = eight(p.x, r, c), to.up = eight(p.b, r, c), to.dy = eight(p.dy, r, c);
	}
	FO_DEVICE_MEMBER void values(const loaded &from, float (*a)[8]) const
	{
		float d[8];
		fo_unpack(from.gate, a[0]), fo_unpack(from.up, a[1]), fo_unpack(from.dy, d);
#pragma unroll
		for (int e = 0; e < 8; e++)
			swiglu_gradient<uint16_t>(&a[0][e], &a[1][e], d[e]);
		as_stored(a[0]), as_stored(a[1]);
	}
};
#define SWIGLU(name, source, e5m2, blocks)                                                                          \
	FO_KERNEL_BLOCKS(name, struct fo_cuda_fp8_made_args, THREADS, blocks)                                       \
	{                                                                                                           \
		by_step_scale(p.step, [&](uint32_t part, float scale, bool write) {                                 \
			return tile_of<e5m2, true, uint16_t>(source{ p }, p.q, p.qt, p.z, p.x.rows, p.x.cols, part, \
							     scale, write);                                         \
		});                                                                                                 \
	}
SWIGLU(swiglu_fp8_bf16, swiglu_source, false, 3)
SWIGLU(swiglu_bwd_fp8_bf16, swiglu_bwd_source, true, 2)

/* ---- norms: a strip of 16 whole rows at a time ----
 *
 * A team of threads takes a row, as norm.cu's wide kernels do: it stays packed in registers while its sum is made, is
 * read once, and goes out as fp8. For the transposed copy the strip's bytes wait in shared memory (16 D of them: 64 KB
 * for D = 4096, so that three blocks find room) until all rows are there. Then a thread takes four columns: 16 words,
 * one of each row, become four accesses of 16 bytes by squares of 4 x 4 bytes turned in registers. Words of neighbours
 * lie in neighbouring banks. An access fills half a sector of 32 bytes; the strip beside it, which runs at the same
 * time, fills the other while the line is in the second-level cache. */

enum { NORM_GROUPS = 4 /* of eight columns, for each thread: norm.cu's V */, TEAMS_MOST = 16 };

/* Sums of all teams at once, each in the order of fo_block_sum. */
FO_DEVICE float team_sum(float x, int mine, int lane, int team)
{
	__shared__ float scratch[TEAMS_MOST][16];
	x = fo_warp_sum(x);
	__syncthreads();
	if (lane % 32 == 0)
		scratch[mine][lane / 32] = x;
	__syncthreads();
	return fo_warp_sum(lane % 32 < team / 32 ? scratch[mine][lane % 32] : 0);
}

/* A team norms row `row`; is: there is such a row. bytes: the row's in shared memory, NULL: not wanted. */
template <bool ADD>
FO_DEVICE uint32_t norm_row(const fo_cuda_fp8_made_args &p, int64_t row, bool is, int mine, int lane, float scale,
			    bool write, unsigned char *bytes)
{
	const int groups = (int)p.x.cols / 8;
	fo_pack<uint16_t> x[NORM_GROUPS], b[NORM_GROUPS];
#pragma unroll
	for (int v = 0; v < NORM_GROUPS; v++) {
		const int i = lane + v * p.team;
		x[v] = b[v] = fo_pack_zero<uint16_t>();
		if (is && i < groups) {
			x[v] = fo_pack_load((const uint16_t *)p.x.data + row * p.x.ld + i * 8);
			if (ADD)
				b[v] = fo_pack_load((const uint16_t *)p.b.data + row * p.b.ld + i * 8);
		}
	}
	float sum = 0;
#pragma unroll
	for (int v = 0; v < NORM_GROUPS; v++) {
		const int i = lane + v * p.team;
		fo_norm_group<uint16_t, ADD>(
			x[v], b[v],
			ADD && write && is && i < groups ? (uint16_t *)p.c.data + row * p.c.ld + i * 8 : NULL, sum);
	}
	const float rstd = 1 / sqrtf(team_sum(sum, mine, lane, p.team) / (float)(int32_t)p.x.cols + p.eps);
	const float inverse = fo_div_rn(1, scale);
	uint32_t top = 0;
	if (write && is && !lane)
		((float *)p.rstd.data)[row * p.rstd.ld] = rstd;
#pragma unroll
	for (int v = 0; v < NORM_GROUPS; v++) {
		const int i = lane + v * p.team;
		if (!is || i >= groups)
			continue;
		float e[8], f[8];
		uint2 out;
		fo_unpack(x[v], e), fo_unpack(fo_pack_load((const uint16_t *)p.g.data + i * 8), f);
#pragma unroll
		for (int k = 0; k < 8; k++)
			e[k] = e[k] * rstd * f[k];
		as_stored(e);
		top = larger_of<8>(top, e);
		if (!write)
			continue;
		if (p.z.data)
			fo_store8((uint16_t *)p.z.data + row * p.z.ld + i * 8, e);
#pragma unroll
		for (int k = 0; k < 8; k++)
			e[k] = fo_div_by(e[k], scale, inverse);
		out.x = fo_to_fp8x4<false>(e), out.y = fo_to_fp8x4<false>(e + 4);
		*reinterpret_cast<uint2 *>((unsigned char *)p.q.data + row * p.q.ld + i * 8) = out;
		if (bytes)
			*reinterpret_cast<uint2 *>(bytes + i * 8) = out;
	}
	return top;
}

/* Four columns of a strip, from its bytes in shared memory. */
FO_DEVICE void turn_columns(const fo_cuda_fp8_made_args &p, const uint32_t *words, int64_t r0, int column)
{
	const int64_t across = p.x.cols / 4;
	fo_16 out[4];
#pragma unroll
	for (int s = 0; s < 4; s++) {
		uint32_t w[4], turned[4];
#pragma unroll
		for (int k = 0; k < 4; k++)
			w[k] = words[(s * 4 + k) * across + column];
		turn_square(w, turned);
#pragma unroll
		for (int k = 0; k < 4; k++)
			out[k].w[s] = turned[k];
	}
#pragma unroll
	for (int k = 0; k < 4; k++)
		*reinterpret_cast<fo_16 *>((unsigned char *)p.qt.data + (column * 4 + k) * p.qt.ld + r0) = out[k];
}

template <bool ADD>
FO_DEVICE uint32_t norm_strip(const fo_cuda_fp8_made_args &p, uint32_t strip, float scale, bool write,
			      unsigned char *bytes)
{
	const int mine = (int)threadIdx.x / p.team, lane = (int)threadIdx.x % p.team;
	const int64_t r0 = (int64_t)strip * FO_CUDA_FP8_STRIP;
	uint32_t top = 0;
#pragma unroll 1
	for (int k = 0; k < FO_CUDA_FP8_STRIP; k += p.teams) {
		const int in = k + mine;
		const bool is = in < FO_CUDA_FP8_STRIP && r0 + in < p.x.rows;
		top = fo_larger(top, norm_row<ADD>(p, r0 + in, is, mine, lane, scale, write,
						   p.qt.data ? bytes + in * p.x.cols : NULL));
	}
	if (!write || !p.qt.data)
		return top;
	__syncthreads();
	for (int c = (int)threadIdx.x; c < p.x.cols / 4; c += (int)blockDim.x)
		turn_columns(p, (const uint32_t *)bytes, r0, c);
	return top;
}
#define NORM(name, add)                                                             \
	FO_KERNEL_BLOCKS(name, struct fo_cuda_fp8_made_args, THREADS_NORM, 2)       \
	{                                                                           \
		FO_SHARED_DYNAMIC(bytes);                                           \
		by_step_scale(p.step, [&](uint32_t part, float scale, bool write) { \
			return norm_strip<add>(p, part, scale, write, bytes);       \
		});                                                                 \
	}
NORM(norm_fp8_bf16, false)
NORM(add_norm_fp8_bf16, true)
