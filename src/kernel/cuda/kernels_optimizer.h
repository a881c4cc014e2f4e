/* Kernels of optimizer.cu and launch_optimizer.c. */
#define FO_CUDA_KERNELS_OPTIMIZER(X)
