/* NCCL as it was found at run time. Needs nccl.h: only files that are built with FO_NCCL=1 include it. */
#ifndef FO_KERNEL_CUDA_NCCL_CALLS_H
#define FO_KERNEL_CUDA_NCCL_CALLS_H

#include <nccl.h>

struct fo_cuda_found;
#define FO_NCCL_CALLS(X)         \
	X(ncclGetVersion)        \
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
	X(ncclBroadcast)         \
	X(ncclSend)              \
	X(ncclRecv)              \
	X(ncclGroupStart)        \
	X(ncclGroupEnd)
/* Of newer versions, NULL in older ones: memory since 2.19, windows since 2.27. */
#define FO_NCCL_NEWER_CALLS(X)    \
	X(ncclMemAlloc)           \
	X(ncclMemFree)            \
	X(ncclCommWindowRegister) \
	X(ncclCommWindowDeregister)
struct __attribute__((may_alias)) fo_nccl_calls { /* of a struct fo_cuda_loaded */
#define FO_NCCL_MEMBER(f) __typeof__(f) *f;
	FO_NCCL_CALLS(FO_NCCL_MEMBER) FO_NCCL_NEWER_CALLS(FO_NCCL_MEMBER)
#undef FO_NCCL_MEMBER
};
/* Loaded once per process, by the first who asks; kept. Thread-safe. NULL: found->why says why. */
const struct fo_nccl_calls *fo_cuda_load_nccl(struct fo_cuda_found *found);

#endif
