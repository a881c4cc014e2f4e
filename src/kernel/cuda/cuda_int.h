/* Private to src/kernel/cuda: NVIDIA's functions as they were found, and what launchers share.
 *
 * Needs the toolkit's headers: only files below src/kernel/cuda that CMake builds where those were found include it. */
#ifndef FO_KERNEL_CUDA_CUDA_INT_H
#define FO_KERNEL_CUDA_CUDA_INT_H

#include "base/mem.h"
#include "base/count.h"
#include "kernel/cuda/cuda.h"
#include "kernel/cuda/kernels.h"

#include <cublasLt.h>
#include <cuda.h>
#include <cudnn.h>
#include <cudnn_backend.h>

/* All kernels' functions have one signature (struct fo_cuda_kernel), and few need every parameter. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* cuda.h renames some functions by macros (cuMemAlloc is cuMemAlloc_v2): the name that is looked up is the macro's
 * value. */
#define FO_CUDA_DRIVER_CALLS(X)        \
	X(cuInit)                      \
	X(cuDriverGetVersion)          \
	X(cuGetErrorString)            \
	X(cuDeviceGetCount)            \
	X(cuDeviceGet)                 \
	X(cuDeviceGetName)             \
	X(cuDeviceTotalMem)            \
	X(cuDeviceGetAttribute)        \
	X(cuDevicePrimaryCtxRetain)    \
	X(cuDevicePrimaryCtxRelease)   \
	X(cuCtxSetCurrent)             \
	X(cuModuleLoadData)            \
	X(cuModuleUnload)              \
	X(cuModuleGetFunction)         \
	X(cuFuncSetAttribute)          \
	X(cuFuncGetAttribute)          \
	X(cuLaunchKernel)              \
	X(cuMemAlloc)                  \
	X(cuMemFree)                   \
	X(cuMemAllocHost)              \
	X(cuMemFreeHost)               \
	X(cuMemGetInfo)                \
	X(cuMemcpyAsync)               \
	X(cuMemcpyHtoDAsync)           \
	X(cuMemcpyDtoHAsync)           \
	X(cuMemsetD8Async)             \
	X(cuStreamCreate)              \
	X(cuStreamDestroy)             \
	X(cuStreamSynchronize)         \
	X(cuStreamWaitEvent)           \
	X(cuStreamBeginCapture)        \
	X(cuStreamEndCapture)          \
	X(cuStreamIsCapturing)         \
	X(cuEventCreate)               \
	X(cuEventDestroy)              \
	X(cuEventRecord)               \
	X(cuEventRecordWithFlags)      \
	X(cuEventSynchronize)          \
	X(cuEventElapsedTime)          \
	X(cuGraphInstantiateWithFlags) \
	X(cuGraphLaunch)               \
	X(cuGraphExecDestroy)          \
	X(cuGraphDestroy)              \
	X(cuGraphGetNodes)
#define FO_CUBLASLT_CALLS(X)                    \
	X(cublasLtCreate)                       \
	X(cublasLtDestroy)                      \
	X(cublasLtGetVersion)                   \
	X(cublasLtMatmul)                       \
	X(cublasLtMatmulDescCreate)             \
	X(cublasLtMatmulDescDestroy)            \
	X(cublasLtMatmulDescSetAttribute)       \
	X(cublasLtMatrixLayoutCreate)           \
	X(cublasLtMatrixLayoutDestroy)          \
	X(cublasLtMatmulPreferenceCreate)       \
	X(cublasLtMatmulPreferenceDestroy)      \
	X(cublasLtMatmulPreferenceSetAttribute) \
	X(cublasLtMatmulAlgoGetHeuristic)       \
	X(cublasLtMatmulAlgoCheck)
#define FO_CUDNN_CALLS(X)                \
	X(cudnnGetVersion)               \
	X(cudnnCreate)                   \
	X(cudnnDestroy)                  \
	X(cudnnSetStream)                \
	X(cudnnGetErrorString)           \
	X(cudnnGetLastErrorString)       \
	X(cudnnBackendCreateDescriptor)  \
	X(cudnnBackendDestroyDescriptor) \
	X(cudnnBackendSetAttribute)      \
	X(cudnnBackendGetAttribute)      \
	X(cudnnBackendFinalize)          \
	X(cudnnBackendExecute)
#define FO_CUDA_MEMBER(f) __typeof__(f) *f;
/* One struct per library: a field per function, named as NVIDIA names it: c->driver->cuMemAlloc(...). They look at a
 * table of pointers (struct fo_cuda_loaded), hence may_alias. */
struct __attribute__((may_alias)) fo_cuda_driver_calls {
	FO_CUDA_DRIVER_CALLS(FO_CUDA_MEMBER)
};
struct __attribute__((may_alias)) fo_cublaslt_calls {
	FO_CUBLASLT_CALLS(FO_CUDA_MEMBER)
};
struct __attribute__((may_alias)) fo_cudnn_calls {
	FO_CUDNN_CALLS(FO_CUDA_MEMBER)
};

/* Loaded once per process, by the first who asks; kept. Thread-safe. NULL: found->why says why. */
const struct fo_cuda_driver_calls *fo_cuda_load_driver(struct fo_cuda_found *found);
/* Whether the loaded driver is the tests' software model of a device (tests/cuda), which brings our kernels along,
 * compiled for the host. */
bool fo_cuda_driver_is_software(void);
const struct fo_cublaslt_calls *fo_cuda_load_cublaslt(struct fo_cuda_found *found);
const struct fo_cudnn_calls *fo_cuda_load_cudnn(struct fo_cuda_found *found);
/* Opens a library by its candidates' names ("libcudnn.so.9", ..., NULL): first in the folders of FLATOUT_CUDA_LIBRARIES
 * (':' between them), then where the system's loader finds it, then where the toolkit lay when this was built. NULL:
 * found->why. */
void *fo_cuda_dlopen(struct fo_cuda_found *found, const char *const *names);

/* Loads a library's functions, all or none, once per process, and keeps them. names: of functions; those that begin
 * with '?' may be missing and are NULL then. version says which version it is, and may refuse it. Thread-safe; `to` is
 * zero-initialised and static. Returns the functions, or NULL: found->why. */
struct fo_cuda_loaded {
	bool tried, good, software;
	struct fo_cuda_found found;
	void *function[64];
};
const void *fo_cuda_load(struct fo_cuda_loaded *to, const char *const *files, const char *const *names, int n,
			 void (*version)(struct fo_cuda_loaded *l), struct fo_cuda_found *found);
#define FO_CUDA_TEXT_(f) #f
#define FO_CUDA_TEXT(f) FO_CUDA_TEXT_(f)
#define FO_CUDA_NAME(f) FO_CUDA_TEXT(f), /* of what a macro of NVIDIA's may have renamed */
/* Look for NCCL and CUPTI; where the build had no header found->why says so. */
void fo_cuda_survey_nccl(struct fo_cuda_found *found);  /* load_nccl.c */
void fo_cuda_survey_cupti(struct fo_cuda_found *found); /* cupti.c */

struct fo_cuda_tune;  /* algorithms of products (tune.c) */
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

struct fo_cuda_view fo_cuda_view_of(const struct fo_tensor *t);
/* Blocks for n pieces of work of which a block does `per_block`, for kernels that stride: at most enough to fill the
 * device several times over. */
uint32_t fo_cuda_blocks(const struct fo_cuda *c, int64_t n, int64_t per_block);

/* Which kernel runs which operation: X(operation, kernel), of struct fo_cuda_kernel fo_cuda_<kernel>, by file. */
#define FO_CUDA_OPERATIONS(X)                 \
	/* matmul.c */                        \
	X(matmul, matmul)                     \
	/* launch_attention.c */              \
	X(attention, attention)               \
	X(attention_bwd, attention_bwd)       \
	X(attention_bwd_rope, attention_bwd)  \
	X(attention_cached, attention_cached) \
	/* launch_elementwise.c */            \
	X(add, add)                           \
	X(add_bias, add_bias)                 \
	X(swiglu, swiglu)                     \
	X(swiglu_bwd, swiglu_bwd)             \
	X(rope, rope)                         \
	X(embed, embed)                       \
	X(embed_bwd, embed_bwd)               \
	X(cache_put, cache_put)               \
	X(last_row, last_row)                 \
	/* launch_norm.c */                   \
	X(rmsnorm, rmsnorm)                   \
	X(add_rmsnorm, add_rmsnorm)           \
	X(rmsnorm_dx, rmsnorm_dx)             \
	X(rmsnorm_dg, rmsnorm_dg)             \
	X(rmsnorm_bwd, rmsnorm_bwd)           \
	X(bias_grad, bias_grad)               \
	/* launch_loss.c */                   \
	X(xent, xent)                         \
	X(xent_fwd, xent_fwd)                 \
	/* launch_optimizer.c */              \
	X(sumsq, sumsq)                       \
	X(sumsq_many, sumsq)                  \
	X(clip, clip)                         \
	X(clip_ahead, clip_ahead)             \
	X(global_norm, global_norm)           \
	X(adamw, adamw)                       \
	X(adamw_many, adamw)                  \
	X(adamw_master_many, adamw)           \
	/* launch_fp8.c */                    \
	X(amax, amax)                         \
	X(fp8_scale, fp8_scale)               \
	X(fp8_begin, fp8_begin)               \
	X(fp8_begin_many, fp8_begin)          \
	X(fp8_cast, fp8_cast)                 \
	X(fp8_cast_t, fp8_cast_t)             \
	X(fp8_cast_step, fp8_cast_step)       \
	X(fp8_push, fp8_push)                 \
	/* launch_fp8_made.c */               \
	X(rmsnorm_fp8, rmsnorm_fp8)           \
	X(add_rmsnorm_fp8, add_rmsnorm_fp8)   \
	X(swiglu_fp8, swiglu_fp8)             \
	X(swiglu_bwd_fp8, swiglu_bwd_fp8)     \
	/* launch_transfer.c */               \
	X(offload, transfer)                  \
	X(fetch, transfer)
#define FO_CUDA_OPERATION(id, kernel) extern const struct fo_cuda_kernel fo_cuda_##kernel;
FO_CUDA_OPERATIONS(FO_CUDA_OPERATION)
#undef FO_CUDA_OPERATION

/* Frees the table of products of a device that closes. */
void fo_cuda_tune_free(struct fo_cuda *c);
/* The arguments that kernels take from operands sx, y and amax of a call that casts by the scale of the step, in
 * `parts`. */
FO_CHECKED fo_status fo_cuda_fp8_step_args(struct fo_cuda_queue *q, const struct fo_call *c, uint32_t parts,
					   struct fo_cuda_fp8_step *out);
/* Puts both launches of such a kernel into q's stream (fp8.cuh). step lies within args. */
FO_CHECKED fo_status fo_cuda_fp8_step_launch(struct fo_cuda_queue *q, enum fo_cuda_function f, struct fo_cuda_grid grid,
					     const void *args, struct fo_cuda_fp8_step *step);

/* What launchers ask of operands. */
static inline bool fo_cuda_is_float(const struct fo_tensor *t) { return t->dtype == FO_F32 || t->dtype == FO_BF16; }
/* Elements per 16-byte access where each row of all n tensors begins at a multiple of it, else 1. For tensors of
 * differing types the narrowest decides: 8 elements of bf16 are 16 bytes, of fp32 two accesses. */
int fo_cuda_vector(const struct fo_tensor *const *t, int n);
/* A `cannot`: operands are bf16, fp32 or 32-bit integers. */
const char *fo_cuda_floats_only(const struct fo_cuda *c, const struct fo_call *shape);
/* Division by `value`, 1 to 2^31, as device code does it (fo_quotient of rows.cuh): launch_elementwise.c. */
struct fo_cuda_divisor fo_cuda_divisor_of(uint32_t value);

#endif
