/* Shared by kernels over rows: eight neighbours as they lie in memory, and the row that a piece of work belongs to.
 *
 * A kernel that is bound by memory first issues all its loads, then waits: what has arrived stays packed in registers
 * (4 of bf16, 8 of fp32 for eight elements) until it is used. */
#ifndef FO_KERNEL_CUDA_ROWS_CUH
#define FO_KERNEL_CUDA_ROWS_CUH

#include "kernel/cuda/device.cuh"

/* Eight elements of type T. */
template <typename T> struct fo_pack {
	fo_16 v[sizeof(T) * 8 / 16];
};
/* p is 16-byte aligned. */
template <typename T> FO_DEVICE fo_pack<T> fo_pack_load(const T *p) { return *reinterpret_cast<const fo_pack<T> *>(p); }
template <typename T> FO_DEVICE void fo_pack_store(T *p, const fo_pack<T> &v)
{
	*reinterpret_cast<fo_pack<T> *>(p) = v;
}
template <typename T> FO_DEVICE fo_pack<T> fo_pack_zero()
{
	fo_pack<T> p;
#pragma unroll
	for (int i = 0; i < (int)(sizeof(T) * 8 / 16); i++)
#pragma unroll
		for (int k = 0; k < 4; k++)
			p.v[i].w[k] = 0;
	return p;
}
FO_DEVICE void fo_unpack(const fo_pack<uint16_t> &p, float *x)
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		x[2 * i] = __uint_as_float(p.v[0].w[i] << 16);
		x[2 * i + 1] = __uint_as_float(p.v[0].w[i] & 0xffff0000u);
	}
}
FO_DEVICE void fo_unpack(const fo_pack<float> &p, float *x)
{
#pragma unroll
	for (int i = 0; i < 8; i++)
		x[i] = __uint_as_float(p.v[i / 4].w[i % 4]);
}
/* Eight numbers rounded to T. */
FO_DEVICE void fo_packed(fo_pack<uint16_t> &p, const float *x)
{
#pragma unroll
	for (int i = 0; i < 4; i++)
		p.v[0].w[i] = fo_to_bf16x2(x[2 * i], x[2 * i + 1]);
}
FO_DEVICE void fo_packed(fo_pack<float> &p, const float *x)
{
#pragma unroll
	for (int i = 0; i < 8; i++)
		p.v[i / 4].w[i % 4] = __float_as_uint(x[i]);
}

/* A group of a norm's row: x becomes x + b, rounded as it is stored to c (ADD; c NULL: nobody stores it here), so that
 * the norm is of what the two operations apart would see: the same bits. sum: of squares, in the order of the columns.
 */
template <typename T, bool ADD> FO_DEVICE void fo_norm_group(fo_pack<T> &x, const fo_pack<T> &b, T *c, float &sum)
{
	float e[8];
	fo_unpack(x, e);
	if (ADD) {
		float f[8];
		fo_unpack(b, f);
#pragma unroll
		for (int k = 0; k < 8; k++)
			e[k] += f[k];
		fo_packed(x, e);
		if (c)
			fo_pack_store(c, x);
		fo_unpack(x, e);
	}
#pragma unroll
	for (int k = 0; k < 8; k++)
		sum += e[k] * e[k];
}

/* Turns a pair of columns, as rope does. */
FO_DEVICE void fo_rotate(float *x1, float *x2, float cosine, float sine)
{
	const float a = *x1, b = *x2;
	*x1 = a * cosine - b * sine;
	*x2 = b * cosine + a * sine;
}
/* n / d by multiplication: a division is forty instructions, this is three. n < 2^31. */
FO_DEVICE uint32_t fo_quotient(uint32_t n, const fo_cuda_divisor &d)
{
	return (uint32_t)((uint64_t)n * d.multiplier >> d.shift);
}

/* Where eight neighbours of a rectangle lie: group i of those counted along rows. */
struct fo_place {
	int64_t row;
	uint32_t col;
};
FO_DEVICE fo_place fo_place_of(uint32_t i, const fo_cuda_divisor &per_row)
{
	const uint32_t r = fo_quotient(i, per_row);
	fo_place at;
	at.row = r, at.col = (i - r * per_row.value) * 8;
	return at;
}
template <typename T> FO_DEVICE T *fo_at(const fo_cuda_view &v, const fo_place &at)
{
	return (T *)v.data + at.row * v.ld + at.col;
}

#endif
