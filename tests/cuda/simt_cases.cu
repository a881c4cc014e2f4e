/* Kernels that keep and that break the rules of a multiprocessor: what the software one (simt.c) is itself tested with.
 */
#include "cuda/simt_cases.h"
#include "kernel/cuda/device.cuh"

/* Sums of 32, of 8, prefix sums, ballots: out has 8 numbers for each thread. */
FO_KERNEL(case_warp, struct simt_args, 1024)
{
	const int i = (int)threadIdx.x, lane = i % 32;
	int *out = p.out + 8 * ((int64_t)blockIdx.x * blockDim.x + i);
	int sum = i;
	for (int k = 16; k; k >>= 1)
		sum += __shfl_xor_sync(0xffffffffu, sum, k);
	out[0] = sum;
	out[1] = __shfl_up_sync(0xffffffffu, i, 3);
	out[2] = __shfl_down_sync(0xffffffffu, i, 5, 8);
	out[3] = __shfl_sync(0xffffffffu, i, 7, 16);
	out[4] = (int)__ballot_sync(0xffffffffu, lane % 3 == 0);
	out[5] = __any_sync(0xffffffffu, lane == 31) + 2 * __all_sync(0xffffffffu, lane < 31);
	double wide = i; /* 8 bytes */
	out[6] = (int)__shfl_xor_sync(0xffffffffu, wide, 1);
	/* Halves of a warp on ways of their own. */
	if (lane < 16)
		out[7] = __shfl_xor_sync(0x0000ffffu, i, 1);
	else
		out[7] = __reduce_add_sync(0xffff0000u, i);
}

/* The block's sum of squares through shared memory, the grid's by the last block to arrive. n: threads of a block. */
FO_KERNEL(case_grid_sum, struct simt_args, 256)
{
	FO_SHARED_DYNAMIC(raw);
	int *part = (int *)raw;
	__shared__ int last;
	const int i = (int)threadIdx.x;
	part[i] = (int)(blockIdx.x * blockDim.x + (unsigned)i);
	__syncthreads();
	for (int k = (int)blockDim.x / 2; k; k /= 2) {
		if (i < k)
			part[i] += part[i + k];
		__syncthreads();
	}
	if (i == 0) {
		p.out[1 + blockIdx.x] = part[0];
		__threadfence();
		last = atomicAdd(&p.out[0], 1) == (int)gridDim.x - 1;
	}
	if (__syncthreads_or(i == 0 && last) && i == 0) {
		int all = 0;
		for (unsigned b = 0; b < gridDim.x; b++)
			all += p.out[1 + b];
		p.out[0] = all;
	}
}

/* Shared memory as a block finds it. */
template <int N> FO_DEVICE int first_of(int i)
{
	__shared__ int box[N];
	const int found = box[i];
	box[i] = i; /* the next block must not find it */
	return found;
}
FO_KERNEL(case_fresh, struct simt_args, 64)
{
	FO_SHARED_DYNAMIC(raw);
	__shared__ int one[64];
	const int i = (int)threadIdx.x;
	int *out = p.out + 3 * ((int)blockIdx.x * 64 + i), *dynamic = (int *)raw;
	out[0] = one[i];
	out[1] = first_of<64>(i);
	out[2] = dynamic[i];
	one[i] = dynamic[i] = i;
}

/* No barrier between what one thread writes and another reads. */
FO_KERNEL(case_race, struct simt_args, 64)
{
	__shared__ int box[64];
	box[threadIdx.x] = (int)threadIdx.x;
	if (p.n)
		__syncthreads();
	p.out[blockIdx.x * 64 + threadIdx.x] = box[63 - threadIdx.x];
}

/* Blocks that take it that a lower one ran before. */
FO_KERNEL(case_order, struct simt_args, 32)
{
	if (threadIdx.x == 0)
		p.out[blockIdx.x] = blockIdx.x ? p.out[blockIdx.x - 1] + 1 : 0;
}

/* Broken ones, by p.n. */
FO_KERNEL(case_broken, struct simt_args, 64)
{
	FO_SHARED_DYNAMIC(raw);
	const int i = (int)threadIdx.x;
	if (p.n == SIMT_SOME_END && i == 40)
		return;
	if (p.n == SIMT_ELSEWHERE && i < 32)
		__syncthreads();
	if (p.n == SIMT_MASK)
		p.out[i] = __shfl_xor_sync(i % 32 < 8 ? 0xffffffffu : 0xff00ffffu, i, 1);
	if (p.n == SIMT_NOT_NAMED)
		p.out[i] = __shfl_xor_sync(0x0000ffffu, i, 1);
	if (p.n == SIMT_HALF_WARP && i % 2)
		__syncwarp();
	if (p.n == SIMT_MISALIGNED) {
		fo_16 v = *reinterpret_cast<const fo_16 *>(p.out + 1);
		p.out[i] = (int)v.w[0];
	}
	if (p.n == SIMT_NOWHERE)
		p.out[i] = *(int *)(uintptr_t)(8 + 4 * i);
	if (p.n == SIMT_OVERRUN && i == 0)
		raw[p.bytes] = 0;
	__syncthreads();
	p.out[i] = 1;
}
