/* Shared by all launchers. */
#include "kernel/cuda/cuda_int.h"

_Static_assert((int)FO_CUDA_F32 == FO_F32 && (int)FO_CUDA_BF16 == FO_BF16 && (int)FO_CUDA_F64 == FO_F64 &&
		       (int)FO_CUDA_I32 == FO_I32 && (int)FO_CUDA_I16 == FO_I16 && (int)FO_CUDA_E4M3 == FO_E4M3 &&
		       (int)FO_CUDA_E5M2 == FO_E5M2,
	       "device code knows the data types by the same numbers");

enum {
	/* The most static shared memory that kernels with dynamic shared memory have beside it: it counts in both
	 * limits. */
	SHARED_STATIC = 2 << 10,
	/* CUDA C++ Programming Guide, 16.5.3 of version 12: 48 KiB for a block that asks for nothing. */
	SHARED_UNASKED = (48 << 10) - SHARED_STATIC,
	ACCESS_BYTES = 16,
	WAVES = 8, /* of blocks per multiprocessor: enough to even out their ends */
};

struct fo_cuda_view fo_cuda_view_of(const struct fo_tensor *t)
{
	return (struct fo_cuda_view){
		.data = t->data, .rows = t->rows, .cols = t->cols, .ld = t->ld, .dtype = t->dtype
	};
}

int fo_cuda_vector(const struct fo_tensor *const *t, int n)
{
	for (int i = 0; i < n; i++) {
		size_t bytes = fo_dtype_bytes(t[i]->dtype);
		if ((uintptr_t)t[i]->data % ACCESS_BYTES || (size_t)t[i]->ld * bytes % ACCESS_BYTES || t[i]->cols % 8)
			return 1;
	}
	return 8;
}

uint32_t fo_cuda_blocks(const struct fo_cuda *c, int64_t n, int64_t per_block)
{
	int64_t most = (int64_t)c->info.multiprocessors * WAVES;
	return (uint32_t)fo_max(fo_min(fo_ceil_div(n, per_block), most), 1);
}

fo_status fo_cuda_launch(struct fo_cuda_queue *q, enum fo_cuda_function f, struct fo_cuda_grid g, const void *args)
{
	void *list[] = { (void *)(uintptr_t)args };
	/* A kernel may have all shared memory that the device gives a block: launches of one graph that take different
	 * amounts need the same limit. Setting it costs a call, which capture allows, so there is nothing to remember.
	 */
	if (g.shared_bytes > SHARED_UNASKED)
		FO_TRY(fo_cuda_check(q->cuda,
				     q->cuda->driver->cuFuncSetAttribute(
					     q->cuda->function[f], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
					     (int)q->cuda->info.shared_per_block - SHARED_STATIC),
				     "get more shared memory"));
	return fo_cuda_check(q->cuda,
			     q->cuda->driver->cuLaunchKernel(q->cuda->function[f], g.x, g.y, g.z, g.threads, 1, 1,
							     g.shared_bytes, q->stream, list, NULL),
			     "launch a kernel");
}
