/* Kernels of attention.cu and launch_attention.c. */
#define FO_CUDA_KERNELS_ATTENTION(X)
