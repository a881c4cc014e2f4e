/* Cross entropy of logits with targets, and its gradient in the logits' place.
 *
 * A block takes a row. It reads it once for the maximum and the sum of exponentials together (each thread carries its
 * own maximum and rescales its sum when that grows: Milakov and Gimelshein 2018, "Online normalizer calculation for
 * softmax"), then a second time for the gradient. The second reading goes backwards over the row and each thread meets
 * its own elements again, so what was read last comes out of L1 and the rest out of L2, where a row must therefore stay
 * in between: a row of Llama 3 (128,256 columns of bf16) is 257 KB, 132 rows in flight are 34 MB of an H200's 60 MB.
 * The launcher keeps the rows in flight within half of L2, but never below one for each multiprocessor: a block of 1024
 * threads fills one by its registers.
 *
 * Memory: one read and one write of the logits, 8,192 x 128,256 x 2 x 2 B = 4.2 GB, 1.0 ms at 4.2 TB/s. Exponentials:
 * two for each logit, 2.1e9 at 16 per clock and multiprocessor, 0.6 ms beside it. */
#include "kernel/cuda/device.cuh"

#include <math.h>

#define LOG2_E 1.44269504088896340736f
/* Below every logit, but not so far that a difference overflows. */
#define LEAST (-1e30f)

enum { AT_ONCE = 4 /* 16-byte accesses under way in a thread before the first is used */ };

/* A maximum, and the sum of 2^((x - max) log2 e). */
struct softmax_sum {
	float max, sum;
};

template <int N> FO_DEVICE void softmax_take(softmax_sum &s, const float *x)
{
	float top = x[0];
#pragma unroll
	for (int k = 1; k < N; k++)
		top = fmaxf(top, x[k]);
	top = fmaxf(top, s.max);
	float sum = s.sum * fo_exp2_fast((s.max - top) * LOG2_E);
#pragma unroll
	for (int k = 0; k < N; k++)
		sum += fo_exp2_fast((x[k] - top) * LOG2_E);
	s.max = top;
	s.sum = sum;
}

/* Each operation is rounded by itself, so that both threads of a pair find the same. */
FO_DEVICE softmax_sum softmax_join(softmax_sum a, softmax_sum b)
{
	softmax_sum s;
	s.max = fmaxf(a.max, b.max);
	const float by_a = fo_exp2_fast((a.max - s.max) * LOG2_E), by_b = fo_exp2_fast((b.max - s.max) * LOG2_E);
	s.sum = fo_add_rn(fo_mul_rn(a.sum, by_a), fo_mul_rn(b.sum, by_b));
	return s;
}
FO_DEVICE softmax_sum softmax_warp(softmax_sum s)
{
#pragma unroll
	for (int k = 16; k; k >>= 1) {
		softmax_sum other;
		other.max = __shfl_xor_sync(0xffffffffu, s.max, k);
		other.sum = __shfl_xor_sync(0xffffffffu, s.sum, k);
		s = softmax_join(s, other);
	}
	return s;
}

/* An access has N elements: eight neighbours, or one where rows begin anywhere. */
template <int N, typename T> FO_DEVICE void get(const T *p, float *x)
{
	if (N == 8)
		fo_load8(p, x);
	else
		x[0] = fo_load(p);
}
template <int N, typename T> FO_DEVICE void put(T *p, const float *x)
{
	if (N == 8)
		fo_store8(p, x);
	else
		fo_store(p, x[0]);
}

/* The sum over this thread's part of a row of n accesses. */
template <int N, typename T> FO_DEVICE softmax_sum softmax_read(const T *row, int n)
{
	softmax_sum s = { LEAST, 0 };
	const int step = blockDim.x;
	for (int i = threadIdx.x; i < n; i += AT_ONCE * step) {
		float x[AT_ONCE * N];
#pragma unroll
		for (int u = 0; u < AT_ONCE; u++) {
			if (i + u * step < n) {
				get<N>(row + (int64_t)(i + u * step) * N, x + u * N);
			} else {
#pragma unroll
				for (int k = 0; k < N; k++)
					x[u * N + k] = -INFINITY; /* adds nothing to any sum */
			}
		}
		softmax_take<AT_ONCE * N>(s, x);
	}
	return s;
}

template <int N, typename T>
FO_DEVICE void gradient_put(T *row, int i, float *x, int target, float max, float factor, float inv_tokens)
{
#pragma unroll
	for (int k = 0; k < N; k++)
		x[k] = fo_exp2_fast((x[k] - max) * LOG2_E) * factor;
	const int hit = target - i * N;
	if (hit >= 0 && hit < N) {
#pragma unroll
		for (int k = 0; k < N; k++)
			x[k] -= k == hit ? inv_tokens : 0;
	}
	put<N>(row + (int64_t)i * N, x);
}

/* The same accesses backwards. */
template <int N, typename T> FO_DEVICE void gradient_write(T *row, int n, int target, softmax_sum s, float inv_tokens)
{
	const int step = blockDim.x, mine = n > (int)threadIdx.x ? (n - 1 - (int)threadIdx.x) / step + 1 : 0;
	const float factor = fo_div_rn(inv_tokens, s.sum);
	int k = mine - 1;
	for (; k >= AT_ONCE - 1; k -= AT_ONCE) {
		float x[AT_ONCE][N];
#pragma unroll
		for (int u = 0; u < AT_ONCE; u++)
			get<N>(row + (int64_t)(threadIdx.x + (k - u) * step) * N, x[u]);
#pragma unroll
		for (int u = 0; u < AT_ONCE; u++)
			gradient_put<N>(row, threadIdx.x + (k - u) * step, x[u], target, s.max, factor, inv_tokens);
	}
	for (; k >= 0; k--) {
		float x[N];
		get<N>(row + (int64_t)(threadIdx.x + k * step) * N, x);
		gradient_put<N>(row, threadIdx.x + k * step, x, target, s.max, factor, inv_tokens);
	}
}

template <int N, typename T> FO_DEVICE void zero_write(T *row, int n)
{
	float zero[N];
#pragma unroll
	for (int k = 0; k < N; k++)
		zero[k] = 0;
	for (int i = threadIdx.x; i < n; i += blockDim.x)
		put<N>(row + (int64_t)i * N, zero);
}

template <bool GRADIENT, int N, typename T> FO_DEVICE void xent_rows(const fo_cuda_xent_args &p)
{
	__shared__ softmax_sum scratch[32];
	const int n = (int)(p.logits.cols / N), warps = blockDim.x / 32;
	const float inv_tokens = GRADIENT ? (float)*p.inv_tokens : 0;
	for (int64_t r = blockIdx.x; r < p.logits.rows; r += gridDim.x) {
		T *row = (T *)p.logits.data + r * p.logits.ld;
		const int target = p.target[r * p.target_ld];
		if (target < 0) {
			if (threadIdx.x == 0)
				p.row_loss[r] = 0;
			if (GRADIENT)
				zero_write<N>(row, n);
			continue;
		}
		const float hit = threadIdx.x == 0 ? fo_load(row + target) : 0; /* before a gradient takes its place */
		softmax_sum s = softmax_warp(softmax_read<N>((const T *)row, n));
		__syncthreads(); /* who still reads scratch of the row before */
		if (threadIdx.x % 32 == 0)
			scratch[threadIdx.x / 32] = s;
		__syncthreads();
		softmax_sum mine = { LEAST, 0 };
		if ((int)(threadIdx.x % 32) < warps)
			mine = scratch[threadIdx.x % 32];
		s = softmax_warp(mine);
		if (threadIdx.x == 0)
			p.row_loss[r] = (double)(logf(s.sum) - (hit - s.max));
		if (GRADIENT)
			gradient_write<N>(row, n, target, s, inv_tokens);
	}
}

#define XENT(name, gradient, n, type) \
	FO_KERNEL(name, struct fo_cuda_xent_args, 1024) { xent_rows<gradient, n, type>(p); }
XENT(xent_bf16, true, 8, uint16_t)
XENT(xent_f32, true, 8, float)
XENT(xent_any_bf16, true, 1, uint16_t)
XENT(xent_any_f32, true, 1, float)
XENT(xent_fwd_bf16, false, 8, uint16_t)
XENT(xent_fwd_f32, false, 8, float)
XENT(xent_fwd_any_bf16, false, 1, uint16_t)
XENT(xent_fwd_any_f32, false, 1, float)

/* ---- the same where ranks divide the vocabulary: three kernels, between which ranks join maxima and sums ----
 *
 * Each reads the logits once, 8,192 x 16,032 of bf16 on 8 ranks: 263 MB, 0.06 ms at 4.2 TB/s. */

FO_DEVICE float row_max(float x)
{
	__shared__ float scratch[32];
	const int warps = blockDim.x / 32;
#pragma unroll
	for (int k = 16; k; k >>= 1)
		x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, k));
	__syncthreads(); /* who still reads scratch of the row before */
	if (threadIdx.x % 32 == 0)
		scratch[threadIdx.x / 32] = x;
	__syncthreads();
	x = (int)(threadIdx.x % 32) < warps ? scratch[threadIdx.x % 32] : LEAST;
#pragma unroll
	for (int k = 16; k; k >>= 1)
		x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, k));
	return x;
}

template <int N, typename T> FO_DEVICE void part_max(const fo_cuda_xent_part_args &p, int64_t r, const T *row, int n)
{
	float top = LEAST;
	for (int i = threadIdx.x; i < n; i += blockDim.x) {
		float x[N];
		get<N>(row + (int64_t)i * N, x);
#pragma unroll
		for (int k = 0; k < N; k++)
			top = fmaxf(top, x[k]);
	}
	top = row_max(top);
	if (threadIdx.x == 0)
		p.max[r * p.max_ld] = top;
}

template <int N, typename T> FO_DEVICE void part_sums(const fo_cuda_xent_part_args &p, int64_t r, const T *row, int n)
{
	const float top = p.max[r * p.max_ld];
	const int64_t own = p.target[r * p.target_ld] - p.first;
	float sum = 0;
	for (int i = threadIdx.x; i < n; i += blockDim.x) {
		float x[N];
		get<N>(row + (int64_t)i * N, x);
#pragma unroll
		for (int k = 0; k < N; k++)
			sum += fo_exp2_fast((x[k] - top) * LOG2_E);
	}
	sum = fo_block_sum(sum, blockDim.x / 32);
	if (threadIdx.x)
		return;
	p.sums[r * p.sums_ld] = sum;
	p.sums[r * p.sums_ld + 1] = own >= 0 && own < p.logits.cols ? fo_load(row + own) - top : 0;
}

template <int N, typename T> FO_DEVICE void part_grad(const fo_cuda_xent_part_args &p, int64_t r, T *row, int n)
{
	const float top = p.max[r * p.max_ld], inv_tokens = (float)*p.inv_tokens;
	const int target = p.target[r * p.target_ld];
	const int64_t own = target - p.first;
	const int hit = own >= 0 && own < p.logits.cols ? (int)own : -1;
	if (target < 0) {
		zero_write<N>(row, n);
		return;
	}
	const float factor = fo_div_rn(inv_tokens, p.sums[r * p.sums_ld]);
	for (int i = threadIdx.x; i < n; i += blockDim.x) {
		float x[N];
		get<N>(row + (int64_t)i * N, x);
		gradient_put<N>(row, i, x, hit, top, factor, inv_tokens);
	}
}

#define PART(name, part, type, n)                                                                         \
	FO_KERNEL(name, struct fo_cuda_xent_part_args, 1024)                                              \
	{                                                                                                 \
		for (int64_t r = blockIdx.x; r < p.logits.rows; r += gridDim.x)                           \
			part<n>(p, r, (type *)p.logits.data + r * p.logits.ld, (int)(p.logits.cols / n)); \
	}
#define PARTS(name, part)                        \
	PART(name##_bf16, part, uint16_t, 8)     \
	PART(name##_f32, part, float, 8)         \
	PART(name##_any_bf16, part, uint16_t, 1) \
	PART(name##_any_f32, part, float, 1)
PARTS(xent_max, part_max)
PARTS(xent_sums, part_sums)
PARTS(xent_grad, part_grad)

FO_KERNEL(xent_row_loss, struct fo_cuda_xent_loss_args, 1024)
{
	FO_EACH(i, p.rows)
	{
		const float *sums = p.sums + i * p.sums_ld;
		p.row_loss[i] = p.target[i * p.target_ld] < 0 ? 0 : (double)(logf(sums[0]) - sums[1]);
	}
}

/* A single block reads 8 B a row: a few microseconds. */
FO_KERNEL(loss_sum, struct fo_cuda_loss_sum_args, 1024)
{
	double sum = 0, count = 0;
	for (int64_t i = threadIdx.x; i < p.rows; i += blockDim.x) {
		sum += p.row_loss[i];
		count += p.target[i * p.target_ld] >= 0;
	}
	sum = fo_block_sum(sum, blockDim.x / 32);
	count = fo_block_sum(count, blockDim.x / 32);
	if (threadIdx.x)
		return;
	if (p.inv_tokens)
		sum *= *p.inv_tokens;
	p.loss[0] = p.stored ? sum : p.loss[0] + sum;
	if (!p.inv_tokens)
		p.loss[1] = p.stored ? count : p.loss[1] + count;
}
