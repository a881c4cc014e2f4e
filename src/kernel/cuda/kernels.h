/* The device kernels of our own, by name, with the one struct each takes: shared by host C and CUDA C.
 *
 * FO_CUDA_KERNEL_LIST(X): X(name, struct of arguments). The functions lie in *.cu as FO_KERNEL(name, struct, ...)
 * (device.cuh) and are launched by fo_cuda_launch(q, FO_CUDA_FN_name, grid, &args). One file of the list per .cu file
 * keeps additions apart. */
#ifndef FO_KERNEL_CUDA_KERNELS_H
#define FO_KERNEL_CUDA_KERNELS_H

#include <stdint.h>

/* enum fo_dtype as device code knows it; launch.c holds both to each other. */
enum { FO_CUDA_F32, FO_CUDA_BF16, FO_CUDA_F64, FO_CUDA_I32, FO_CUDA_I16, FO_CUDA_E4M3, FO_CUDA_E5M2 };

/* A row-major rectangle on the device: FO_CUDA_F32 and its like. */
struct fo_cuda_view {
	void *data;
	int64_t rows, cols, ld;
	int32_t dtype, zero; /* no padding: equal arguments are equal bytes, and none of them looks like an address */
};

#include "kernel/cuda/kernels_elementwise.h"
#include "kernel/cuda/kernels_norm.h"
#include "kernel/cuda/kernels_loss.h"
#include "kernel/cuda/kernels_optimizer.h"
#include "kernel/cuda/kernels_fp8.h"
#include "kernel/cuda/kernels_attention.h"
#include "kernel/cuda/kernels_init.h"
#include "kernel/cuda/kernels_product.h"

#define FO_CUDA_KERNEL_LIST(X)         \
	FO_CUDA_KERNELS_ELEMENTWISE(X) \
	FO_CUDA_KERNELS_NORM(X)        \
	FO_CUDA_KERNELS_LOSS(X)        \
	FO_CUDA_KERNELS_OPTIMIZER(X)   \
	FO_CUDA_KERNELS_FP8(X)         \
	FO_CUDA_KERNELS_ATTENTION(X)   \
	FO_CUDA_KERNELS_INIT(X)        \
	FO_CUDA_KERNELS_PRODUCT(X)

enum fo_cuda_function {
#define FO_CUDA_FN(name, args) FO_CUDA_FN_##name,
	FO_CUDA_KERNEL_LIST(FO_CUDA_FN)
#undef FO_CUDA_FN
		FO_CUDA_FUNCTIONS
};

#endif
