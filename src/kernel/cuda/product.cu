/* Kernels that matmuls need beside cuBLASLt: transposition of fp8 operands, products of fp8 that the library does not
 * take, and random operands to tune with. */
#include "kernel/cuda/fp8.cuh"

/* ---- y = x' for bytes: fp8 products of Hopper take both operands with the summed dimension along rows ---- */

FO_DEVICE fo_16 load_bytes(const unsigned char *p, int64_t n, bool wide)
{
	fo_16 v = { { 0, 0, 0, 0 } };
	if (wide) {
		if (n > 0)
			v = *reinterpret_cast<const fo_16 *>(p);
		return v;
	}
#pragma unroll
	for (int i = 0; i < 16; i++)
		v.w[i / 4] |= i < n ? (uint32_t)p[i] << i % 4 * 8 : 0;
	return v;
}

/* A block turns one tile (fp8.cuh). Moves 2 bytes per element, nothing else: 117 MB of weights in 0.055 ms at 4.3 TB/s.
 */
FO_KERNEL(fp8_transpose, struct fo_cuda_fp8_transpose_args, 256)
{
	__shared__ __align__(16) uint32_t tile[TILE * QUADS];
	const int64_t across = (p.cols + TILE - 1) / TILE, r0 = blockIdx.x / across * TILE,
		      c0 = blockIdx.x % across * TILE;
	const int chunk = threadIdx.x % CHUNKS, quad = threadIdx.x / CHUNKS;
	fo_16 row[4];
#pragma unroll
	for (int i = 0; i < 4; i++) {
		const int64_t r = r0 + quad * 4 + i, c = c0 + chunk * 16;
		row[i] = load_bytes((const unsigned char *)p.x + r * p.ldx + c, r < p.rows ? p.cols - c : 0,
				    p.wide != 0);
	}
	tile_in(tile, row);
	__syncthreads();
	tile_out(tile, (unsigned char *)p.y, p.ldy, r0, c0, p.rows, p.cols, p.wide != 0);
}

/* ---- products of fp8 numbers that the library cannot take: in bf16, scales afterwards. Right, not fast ---- */

/* The value of an fp8 number (base/fp8.h). */
FO_DEVICE float fp8_value(uint32_t code, int e5m2)
{
	const int mantissa = e5m2 ? 2 : 3;
	const int bias = e5m2 ? 15 : 7;
	const uint32_t magnitude = code & 0x7f, sign = (code & 0x80) << 24;
	if (e5m2 ? magnitude >= 0x7c : magnitude == 0x7f)
		return __uint_as_float(sign | 0x7f800000u | (e5m2 ? (magnitude & 3) << 21 : 1u << 22));
	if (magnitude >> mantissa == 0) {
		const float step = __uint_as_float((uint32_t)(127 + 1 - bias - mantissa) << 23);
		return __uint_as_float(__float_as_uint(step * (float)magnitude) | sign);
	}
	return __uint_as_float(sign | ((magnitude << (23 - mantissa)) + ((uint32_t)(127 - bias) << 23)));
}

FO_KERNEL(fp8_widen, struct fo_cuda_fp8_widen_args, 256)
{
	FO_EACH_ELEMENT(i, r, c, p.x.rows, p.x.cols)
	{
		const uint32_t code = ((const unsigned char *)p.x.data)[r * p.x.ld + c];
		p.y[r * p.ldy + c] = fo_to_bf16(fp8_value(code, p.x.dtype == FO_CUDA_E5M2));
	}
}

FO_DEVICE float line_scale(const fo_cuda_view &s, int64_t i)
{
	const float *scale = (const float *)s.data;
	if (s.rows > 1)
		return scale[i * s.ld];
	return scale[s.cols > 1 ? i : 0];
}

FO_KERNEL(product_scale, struct fo_cuda_product_scale_args, 256)
{
	FO_EACH_ELEMENT(i, r, c, p.c.rows, p.c.cols)
	{
		const float x = p.sum[i] * line_scale(p.sa, r) * line_scale(p.sb, c);
		fo_view_put(p.c, r, c, p.add ? fo_view_get(p.c, r, c) + x : x);
	}
}

FO_KERNEL(product_lines, struct fo_cuda_product_lines_args, 256)
{
	FO_EACH(i, p.n)
	p.to[i] = line_scale(p.s, i);
}

/* ---- operands to tune with ---- */

/* The mixing step of SplitMix64 (Steele, Lea and Flood 2014). */
FO_DEVICE uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

FO_KERNEL(product_random, struct fo_cuda_product_random_args, 256)
{
	FO_EACH(i, p.n)
	{
		const uint64_t u = mix(p.seed + ((uint64_t)i + 1) * 0x9e3779b97f4a7c15ull);
		/* four uniform numbers added and scaled to variance 1: power depends on how bits toggle, not on the
		 * tails */
		const float sum = (float)(u & 0xffff) + (float)(u >> 16 & 0xffff) + (float)(u >> 32 & 0xffff) +
				  (float)(u >> 48);
		const float x = (sum - 131070) * (1.7320508f / 65536);
		if (p.dtype == FO_CUDA_F32)
			((float *)p.to)[i] = x;
		else if (p.dtype == FO_CUDA_BF16)
			((uint16_t *)p.to)[i] = fo_to_bf16(x);
		else /* codes 0x20 to 0x47: 1/8 to 3.75 as E4M3, 1/128 to 7 as E5M2 */
			((unsigned char *)p.to)[i] = (unsigned char)(0x20 + (u & 0xffff) % 40 + (u >> 63) * 0x80);
	}
}
