/* SwiGLU of one element, and its gradients: by itself (elementwise.cu) and with a cast (fp8_made.cu), the same
 * expressions.
 *
 * An accurate exponential and a division are some 40 instructions: as long as the memory takes. In bf16 the special
 * function unit's own, 2^-22 off at worst, vanish in the rounding of the result; fp32 pays for accuracy. The first
 * argument says which. */
#ifndef FO_KERNEL_CUDA_SWIGLU_CUH
#define FO_KERNEL_CUDA_SWIGLU_CUH

#include "kernel/cuda/device.cuh"

FO_DEVICE float sigmoid(uint16_t, float x) { return fo_reciprocal_fast(1 + fo_exp2_fast(x * -1.44269504f)); }
FO_DEVICE float sigmoid(float, float x) { return 1 / (1 + expf(-x)); }
FO_DEVICE float silu(uint16_t t, float x) { return x * sigmoid(t, x); }
FO_DEVICE float silu(float, float x) { return x / (1 + expf(-x)); }

/* With s = sigmoid(gate): silu = gate s, silu' = s (1 + gate (1 - s)). */
template <typename T> FO_DEVICE void swiglu_gradient(float *g, float *u, const float dy)
{
	const float s = sigmoid(T(), *g), gate = *g;
	*g = dy * *u * s * (1 + gate * (1 - s));
	*u = dy * gate * s;
}

#endif
