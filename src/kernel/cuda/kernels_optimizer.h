/* Gradient norm, clipping, AdamW (optimizer.cu, launch_optimizer.c).
 *
 * Tensors are cut into chunks: a tensor whose operands all lie without gaps as one long row, else row by row. The
 * chunks of all tensors of a launch are numbered through; those of tensor k begin at `begin`, and a row has per_row of
 * them. */
enum {
	FO_CUDA_SUMSQ_TENSORS = 31,
	FO_CUDA_ADAMW_TENSORS = 7
}; /* as many as operands of sumsq_many, adamw_many are, or more */
enum { FO_CUDA_SUMSQ_CHUNK = 16384, FO_CUDA_ADAMW_CHUNK = 8192 }; /* elements; a sum's order depends on the first */

struct fo_cuda_sumsq_tensor {
	const void *data;
	int64_t rows, cols, ld;
	uint32_t begin, per_row;
	int32_t dtype, aligned; /* every row begins at 16 bytes */
};
struct fo_cuda_sumsq_args {
	struct fo_cuda_sumsq_tensor t[FO_CUDA_SUMSQ_TENSORS];
	int32_t n;
	uint32_t chunks;
	double *partial; /* sum of each chunk */
	double *acc;
	int32_t stored; /* else added */
};
struct fo_cuda_clip_args {
	const double *acc, *hyper, *loss; /* NULL where there is none */
	double *scale;
	int32_t last; /* the norm of the step before is bounded */
};
struct fo_cuda_adamw_tensor {
	void *m, *v, *w, *master; /* NULL: without */
	const void *g;
	int64_t rows, cols, ld_m, ld_v, ld_w, ld_master, ld_g;
	int64_t number; /* of the first element, for its noise */
	int32_t layer;
	uint32_t begin, per_row;
	int32_t type_moments, type_g, type_w, type_master;
};
struct fo_cuda_adamw_args {
	struct fo_cuda_adamw_tensor t[FO_CUDA_ADAMW_TENSORS];
	int32_t n;
	uint32_t chunks;
	const double *hyper, *scale;
	double decays; /* 1: weight decay applies, 0: it does not */
	int32_t stochastic;
};
/* adamw_<moments>_<weights>_<gradients>. weights: bf16 or f32 alone; copy: bf16 beside an fp32 master; split: bf16 and
 * its low half. */
#define FO_CUDA_KERNELS_ADAMW(X, args) \
	X(adamw_f32_bf16_f32, args)    \
	X(adamw_f32_f32_f32, args)     \
	X(adamw_f32_copy_f32, args)    \
	X(adamw_f32_split_f32, args)   \
	X(adamw_bf16_bf16_f32, args)   \
	X(adamw_bf16_f32_f32, args)    \
	X(adamw_bf16_copy_f32, args)   \
	X(adamw_bf16_split_f32, args)  \
	X(adamw_f32_bf16_bf16, args)   \
	X(adamw_f32_f32_bf16, args)    \
	X(adamw_f32_copy_bf16, args)   \
	X(adamw_f32_split_bf16, args)  \
	X(adamw_bf16_bf16_bf16, args)  \
	X(adamw_bf16_f32_bf16, args)   \
	X(adamw_bf16_copy_bf16, args)  \
	X(adamw_bf16_split_bf16, args) \
	X(adamw_any, args)
struct fo_cuda_nonfinite_args {
	struct fo_cuda_view t;
	uint64_t *found; /* all ones before */
};
#define FO_CUDA_KERNELS_OPTIMIZER(X)                        \
	X(sumsq, struct fo_cuda_sumsq_args)                 \
	X(sumsq_sum, struct fo_cuda_sumsq_args)             \
	X(clip, struct fo_cuda_clip_args)                   \
	X(clip_ahead, struct fo_cuda_clip_args)             \
	X(global_norm, struct fo_cuda_clip_args)            \
	FO_CUDA_KERNELS_ADAMW(X, struct fo_cuda_adamw_args) \
	X(find_nonfinite, struct fo_cuda_nonfinite_args)
