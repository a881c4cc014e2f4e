/* Private to src/kernel/cuda: an open device, and what launchers share. */
#ifndef FO_KERNEL_CUDA_CUDA_INT_H
#define FO_KERNEL_CUDA_CUDA_INT_H

#include "base/mem.h"
#include "base/count.h"
#include "kernel/cuda/kernels.h"
#include "kernel/cuda/libraries.h"

/* All kernels' functions have one signature (struct fo_cuda_kernel), and few need every parameter. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

struct fo_cuda_tune;  /* algorithms of matmuls (tune.c) */
struct fo_cuda_plans; /* attention plans (cudnn.c) */
struct fo_cuda {
	const struct fo_cuda_driver_calls *driver;
	const struct fo_cublaslt_calls *lt;
	const struct fo_cudnn_calls *dnn; /* NULL: without cuDNN */
	struct fo_cuda_device info;
	int index;
	CUcontext context;
	CUfunction function[FO_CUDA_FUNCTIONS]; /* of kernels.h; all found when it was opened */
	CUmodule *module;
	int modules;
	cublasLtHandle_t lt_handle;
	cudnnHandle_t dnn_handle; /* NULL: without */
	struct fo_cuda_tune *tune;
	struct fo_cuda_plans *plans;
	char dnn_why[320]; /* why there is no dnn_handle; "" on a software device */
};
/* FO_EDEVICE with the driver's words where r is not success. */
FO_CHECKED fo_status fo_cuda_check(const struct fo_cuda *c, CUresult r, const char *doing);

/* Launches one of our kernels: args is the struct that kernels.h names for it. shared_bytes: dynamic shared memory. */
struct fo_cuda_grid {
	uint32_t x, y, z, threads;
	uint32_t shared_bytes;
};
FO_CHECKED fo_status fo_cuda_launch(struct fo_cuda_queue *q, enum fo_cuda_function f, struct fo_cuda_grid grid,
				    const void *args);
/* The same with a line of blocks of FO_CUDA_THREADS: so many, or (each) as a kernel takes whose threads stride over n
 * pieces of work. */
FO_CHECKED fo_status fo_cuda_launch_blocks(struct fo_cuda_queue *q, enum fo_cuda_function f, int64_t blocks,
					   const void *args);
FO_CHECKED fo_status fo_cuda_launch_each(struct fo_cuda_queue *q, enum fo_cuda_function f, int64_t n, const void *args);
/* Blocks for n pieces of work of which a block does `per_block`, for kernels that stride: at most enough to fill the
 * device several times over. */
uint32_t fo_cuda_blocks(const struct fo_cuda *c, int64_t n, int64_t per_block);

/* Which kernel runs which operation: X(operation, kernel), of struct fo_cuda_kernel fo_cuda_<kernel>, by file. */
#define FO_CUDA_OPERATIONS(X)                       \
	/* matmul.c */                              \
	X(matmul, matmul)                           \
	/* launch_attention.c */                    \
	X(attention, attention)                     \
	X(attention_bwd, attention_bwd)             \
	X(attention_bwd_rope, attention_bwd)        \
	X(attention_block, attention_block)         \
	X(attention_block_bwd, attention_block_bwd) \
	X(attention_merge, attention_merge)         \
	X(attention_cached, attention_cached)       \
	/* launch_elementwise.c */                  \
	X(add, map)                                 \
	X(add_bias, map)                            \
	X(swiglu, map)                              \
	X(swiglu_bwd, map)                          \
	X(rope, rope)                               \
	X(embed, copy_rows)                         \
	X(cache_put, copy_rows)                     \
	X(last_row, copy_rows)                      \
	X(heads_apart, heads)                       \
	X(heads_together, heads)                    \
	X(embed_bwd, embed_bwd)                     \
	/* launch_norm.c */                         \
	X(rmsnorm, norm)                            \
	X(add_rmsnorm, norm)                        \
	X(rmsnorm_dx, norm_bwd)                     \
	X(rmsnorm_dg, norm_bwd)                     \
	X(rmsnorm_bwd, norm_bwd)                    \
	X(bias_grad, bias_grad)                     \
	/* launch_loss.c */                         \
	X(xent, xent)                               \
	X(xent_fwd, xent)                           \
	X(xent_max, xent_max)                       \
	X(xent_sums, xent_sums)                     \
	X(xent_grad, xent_grad)                     \
	X(xent_loss, xent_loss)                     \
	/* launch_optimizer.c */                    \
	X(sumsq, sumsq)                             \
	X(sumsq_many, sumsq)                        \
	X(clip, clip)                               \
	X(clip_ahead, clip_ahead)                   \
	X(global_norm, global_norm)                 \
	X(adamw, adamw)                             \
	X(adamw_many, adamw)                        \
	X(adamw_master_many, adamw)                 \
	/* launch_fp8.c */                          \
	X(amax, amax)                               \
	X(fp8_scale, fp8_scale)                     \
	X(fp8_begin, fp8_begin)                     \
	X(fp8_begin_many, fp8_begin)                \
	X(fp8_cast, fp8_cast)                       \
	X(fp8_cast_t, fp8_cast_t)                   \
	X(fp8_cast_step, fp8_cast_step)             \
	X(fp8_push, fp8_push)                       \
	/* launch_fp8_made.c */                     \
	X(rmsnorm_fp8, fp8_made)                    \
	X(add_rmsnorm_fp8, fp8_made)                \
	X(swiglu_fp8, fp8_made)                     \
	X(swiglu_bwd_fp8, fp8_made)                 \
	/* launch.c */                              \
	X(offload, transfer)                        \
	X(fetch, transfer)
#define FO_CUDA_OPERATION(id, kernel) extern const struct fo_cuda_kernel fo_cuda_##kernel;
FO_CUDA_OPERATIONS(FO_CUDA_OPERATION)
#undef FO_CUDA_OPERATION

/* Frees the table of matmuls of a device that closes. */
void fo_cuda_tune_free(struct fo_cuda *c);
/* The arguments that kernels take from operands sx, y and amax of a call that casts by the scale of the step, in
 * `parts`. */
FO_CHECKED fo_status fo_cuda_fp8_step_args(struct fo_cuda_queue *q, const struct fo_call *c, uint32_t parts,
					   struct fo_cuda_fp8_step *out);
/* Puts both launches of such a kernel into q's stream (fp8.cuh). step lies within args. */
FO_CHECKED fo_status fo_cuda_fp8_step_launch(struct fo_cuda_queue *q, enum fo_cuda_function f, struct fo_cuda_grid grid,
					     const void *args, struct fo_cuda_fp8_step *step);

/* Questions of launchers about operands. */
static inline bool fo_cuda_is_float(const struct fo_tensor *t) { return t->dtype == FO_F32 || t->dtype == FO_BF16; }
struct fo_cuda_view fo_cuda_view_of(const struct fo_tensor *t);
/* to[i] becomes the view of operand number operand[i], for i below n; it stays as it is where that is negative or the
 * call does not have it. */
void fo_cuda_views(struct fo_cuda_view *to, const struct fo_call *c, const int8_t *operand, int n);
/* Whether every row of t (whole: t as one row) begins at a multiple of 16 bytes. */
bool fo_cuda_aligned(const struct fo_tensor *t, bool whole);
/* Whether n views, of which some may be empty, can be read and written eight elements at a time: rows of whole eights
 * that begin at multiples of 16 bytes. Whether all are of the first one's type. */
bool fo_cuda_in_eights(const struct fo_cuda_view *v, int n);
bool fo_cuda_of_one_type(const struct fo_cuda_view *v, int n);
/* A `cannot`: operands are bf16, fp32 or 32-bit integers. */
const char *fo_cuda_floats_only(const struct fo_cuda *c, const struct fo_call *shape);
/* Division by `value`, 1 to 2^31, as device code does it (fo_quotient of rows.cuh). */
struct fo_cuda_divisor fo_cuda_divisor_of(uint32_t value);

#endif
