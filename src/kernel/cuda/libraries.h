/* NVIDIA's functions as they are found at run time. Needs the headers of the toolkit, and those of NCCL and CUPTI where
 * the build has them: only files that are built with FO_CUDA=1 include it. */
#ifndef FO_KERNEL_CUDA_LIBRARIES_H
#define FO_KERNEL_CUDA_LIBRARIES_H

#include "kernel/cuda/cuda.h"

#include <cublasLt.h>
#include <cuda.h>
#include <cudnn.h>
#include <cudnn_backend.h>
#if FO_NCCL
#include <nccl.h>
#endif
#if FO_CUPTI
#include <cupti.h>
#endif

/* cuda.h renames some functions by macros (cuMemAlloc is cuMemAlloc_v2): the name that is looked up is the macro's
 * value. */
#define FO_CUDA_DRIVER_CALLS(X)        \
	X(cuInit)                      \
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
	X(cuEventQuery)                \
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
#define FO_NCCL_CALLS(X)         \
	X(ncclGetUniqueId)       \
	X(ncclCommInitRank)      \
	X(ncclCommFinalize)      \
	X(ncclCommDestroy)       \
	X(ncclCommAbort)         \
	X(ncclCommGetAsyncError) \
	X(ncclGetErrorString)    \
	X(ncclGetLastError)      \
	X(ncclAllReduce)         \
	X(ncclAllGather)         \
	X(ncclReduceScatter)     \
	X(ncclReduce)            \
	X(ncclBroadcast)         \
	X(ncclSend)              \
	X(ncclRecv)              \
	X(ncclGroupStart)        \
	X(ncclGroupEnd)
/* Functions of newer versions, NULL in older ones: memory since 2.19, windows since 2.27. */
#define FO_NCCL_NEWER_CALLS(X)    \
	X(ncclMemAlloc)           \
	X(ncclMemFree)            \
	X(ncclCommWindowRegister) \
	X(ncclCommWindowDeregister)
#define FO_CUPTI_CALLS(X)                         \
	X(cuptiGetTimestamp)                      \
	X(cuptiGetResultString)                   \
	X(cuptiActivityRegisterCallbacks)         \
	X(cuptiActivityEnable)                    \
	X(cuptiActivityDisable)                   \
	X(cuptiActivityFlushAll)                  \
	X(cuptiActivityGetNextRecord)             \
	X(cuptiActivityGetNumDroppedRecords)      \
	X(cuptiActivityPushExternalCorrelationId) \
	X(cuptiActivityPopExternalCorrelationId)  \
	X(cuptiGetGraphNodeId)                    \
	X(cuptiSubscribe)                         \
	X(cuptiUnsubscribe)                       \
	X(cuptiEnableCallback)

/* One struct per library: a field per function, named as NVIDIA names it: c->driver->cuMemAlloc(...). They look at the
 * loader's table of pointers, hence may_alias. */
#define FO_CUDA_MEMBER(f) __typeof__(f) *f;
#define FO_CUDA_CALLS(name, ...)                 \
	struct __attribute__((may_alias)) name { \
		__VA_ARGS__                      \
	}
FO_CUDA_CALLS(fo_cuda_driver_calls, FO_CUDA_DRIVER_CALLS(FO_CUDA_MEMBER));
FO_CUDA_CALLS(fo_cublaslt_calls, FO_CUBLASLT_CALLS(FO_CUDA_MEMBER));
FO_CUDA_CALLS(fo_cudnn_calls, FO_CUDNN_CALLS(FO_CUDA_MEMBER));
#if FO_NCCL
FO_CUDA_CALLS(fo_nccl_calls, FO_NCCL_CALLS(FO_CUDA_MEMBER) FO_NCCL_NEWER_CALLS(FO_CUDA_MEMBER));
#endif
#if FO_CUPTI
FO_CUDA_CALLS(fo_cupti_calls, FO_CUPTI_CALLS(FO_CUDA_MEMBER));
#endif

/* The value of a macro as text: "13" of CUBLAS_VER_MAJOR. */
#define FO_CUDA_TEXT_(f) #f
#define FO_CUDA_TEXT(f) FO_CUDA_TEXT_(f)
/* The functions of a library (its struct above). It is loaded once per process, by the first who asks, and kept: all
 * functions or none. NULL: found->why says why. Looks first in the folders of FLATOUT_CUDA_LIBRARIES (':' between
 * them), then where the system's loader finds it, then where the toolkit lay when this was built. Thread-safe. */
const void *fo_cuda_load(enum fo_cuda_lib which, struct fo_cuda_found *found);
/* Whether the loaded driver is the tests' software model of a device (tests/cuda), which brings our kernels along,
 * compiled for the host. */
bool fo_cuda_driver_is_software(void);

#endif
