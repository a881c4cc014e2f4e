/* Cross entropy (loss.cu, launch_loss.c). */
struct fo_cuda_xent_args {
	struct fo_cuda_view logits;
	const int32_t *target; /* of row i at i * target_ld; -1: the row carries no loss */
	int64_t target_ld;
	const double *inv_tokens; /* xent: the factor of all gradients */
	double *row_loss;         /* of each row, without that factor */
};
/* loss[0] = sum of row_loss, times inv_tokens; without that, loss[1] = rows that carry a loss. They are stored or
 * added. */
struct fo_cuda_loss_sum_args {
	const double *row_loss;
	const int32_t *target;
	int64_t target_ld, rows;
	const double *inv_tokens;
	double *loss;
	int32_t stored;
};
#define FO_CUDA_KERNELS_LOSS(X)                        \
	X(xent_bf16, struct fo_cuda_xent_args)         \
	X(xent_f32, struct fo_cuda_xent_args)          \
	X(xent_any_bf16, struct fo_cuda_xent_args)     \
	X(xent_any_f32, struct fo_cuda_xent_args)      \
	X(xent_fwd_bf16, struct fo_cuda_xent_args)     \
	X(xent_fwd_f32, struct fo_cuda_xent_args)      \
	X(xent_fwd_any_bf16, struct fo_cuda_xent_args) \
	X(xent_fwd_any_f32, struct fo_cuda_xent_args)  \
	X(loss_sum, struct fo_cuda_loss_sum_args)
