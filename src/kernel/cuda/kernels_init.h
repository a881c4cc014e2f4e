/* Kernels of init.cu. FO_CUDA_KERNELS_INIT(X): X(name, argument struct). */

/* Elements of one parameter's rectangle in its weight, and in its master copy at the same places. */
struct fo_cuda_init_weights_args {
	void *weight, *master; /* of the rectangle's first element; master NULL: the weight alone */
	int64_t rows, cols, ld;
	int64_t first, global_cols; /* number of the first element in the whole tensor; elements in a row of that */
	uint64_t stream;            /* of random numbers */
	double std;                 /* 0: ones; below 0: zeros */
	int32_t weight_type, master_type; /* master_type FO_CUDA_I16: both are halves of one number */
};

#define FO_CUDA_KERNELS_INIT(X) X(init_weights, struct fo_cuda_init_weights_args)
