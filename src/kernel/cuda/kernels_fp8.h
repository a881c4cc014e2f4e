/* Kernels of fp8.cu and launch_fp8.c. */
#define FO_CUDA_KERNELS_FP8(X)
