/* Kernels of loss.cu and launch_loss.c. */
#define FO_CUDA_KERNELS_LOSS(X)
