/* Kernels of norm.cu and launch_norm.c. */
#define FO_CUDA_KERNELS_NORM(X)
