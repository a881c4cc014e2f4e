#include "kernel/cuda/device.cuh"

/* ---- c = a + b ---- */

/* Rows are as long as 8 divides and 16-byte aligned; a block strides over groups of 8 columns of all rows. */
template <typename T> FO_DEVICE void add_rows(const fo_cuda_add_args &p)
{
	const int64_t per_row = p.c.cols / 8, n = p.c.rows * per_row;
	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
		const int64_t r = i / per_row, c = i % per_row * 8;
		float a[8], b[8];
		fo_load8((const T *)p.a.data + r * p.a.ld + c, a);
		fo_load8((const T *)p.b.data + r * p.b.ld + c, b);
#pragma unroll
		for (int k = 0; k < 8; k++)
			a[k] += b[k];
		fo_store8((T *)p.c.data + r * p.c.ld + c, a);
	}
}
FO_KERNEL(add_bf16, struct fo_cuda_add_args, 256) { add_rows<uint16_t>(p); }
FO_KERNEL(add_f32, struct fo_cuda_add_args, 256) { add_rows<float>(p); }

/* Any layout of rows, either type: one element at a time. Correctness for odd shapes, not speed. */
FO_KERNEL(add_any, struct fo_cuda_add_args, 256)
{
	const int64_t n = p.c.rows * p.c.cols;
	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
		const int64_t r = i / p.c.cols, c = i % p.c.cols;
		fo_view_put(p.c, r, c, fo_view_get(p.a, r, c) + fo_view_get(p.b, r, c));
	}
}
