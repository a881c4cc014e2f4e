/* Weights as fo_store_init makes them. Double precision all the way, rounded to fp32 once: the device's log and cos may
 * differ from the processor's in the last of 53 bits, which one number in some hundred million notices.
 *
 * Floor: 2 to 6 bytes per weight are written; 8 billion take 4 to 12 ms at 4 TB/s. Logarithms and cosines in fp64,
 * about 100 instructions each, take longer: some 50 ms. Once per run: not tuned further. */
#include "kernel/cuda/device.cuh"

#include "base/rng.h"

FO_DEVICE double uniform(uint64_t stream, uint64_t index)
{
	return (double)(fo_rng_u64(stream, index) >> 11) * 0x1p-53;
}

FO_KERNEL(init_weights, struct fo_cuda_init_weights_args, 256)
{
	FO_EACH_ELEMENT(i, r, c, p.rows, p.cols)
	{
		const int64_t at = r * p.ld + c;
		const uint64_t global = (uint64_t)(p.first + r * p.global_cols + c);
		float v = p.std < 0 ? 0.0f : 1.0f;
		if (p.std > 0) {
			const double u = 1.0 - uniform(p.stream, 2 * global), w = uniform(p.stream, 2 * global + 1);
			v = (float)(p.std * (sqrt(-2 * log(u)) * cos(6.283185307179586 * w)));
		}
		const bool split = p.master_type == FO_CUDA_I16;
		if (p.weight && p.weight_type == FO_CUDA_BF16)
			((uint16_t *)p.weight)[at] = split ? fo_split_high(v) : fo_to_bf16(v);
		else if (p.weight)
			((float *)p.weight)[at] = v;
		if (p.master && split)
			((int16_t *)p.master)[at] = fo_split_low(v);
		else if (p.master)
			((float *)p.master)[at] = v;
	}
}
