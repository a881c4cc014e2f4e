/* Element by element: additions, rotations, SwiGLU, tables (elementwise.cu, launch_elementwise.c). */
struct fo_cuda_add_args {
	struct fo_cuda_view a, b, c;
};
#define FO_CUDA_KERNELS_ELEMENTWISE(X)                                                                                 \
	X(add_bf16, struct fo_cuda_add_args) X(add_f32, struct fo_cuda_add_args) X(add_any, struct fo_cuda_add_args)
