/* What all launchers share, and the launches that have no .cu file of their own. */
#include "kernel/cuda/cuda_int.h"

_Static_assert((int)FO_CUDA_F32 == FO_F32 && (int)FO_CUDA_BF16 == FO_BF16 && (int)FO_CUDA_F64 == FO_F64 &&
		       (int)FO_CUDA_I32 == FO_I32 && (int)FO_CUDA_I16 == FO_I16 && (int)FO_CUDA_E4M3 == FO_E4M3 &&
		       (int)FO_CUDA_E5M2 == FO_E5M2,
	       "device code knows the data types by the same numbers");

/* ---- operands ---- */

enum { ACCESS_BYTES = 16 };

struct fo_cuda_view fo_cuda_view_of(const struct fo_tensor *t)
{
	return (struct fo_cuda_view){
		.data = t->data, .rows = t->rows, .cols = t->cols, .ld = t->ld, .dtype = t->dtype
	};
}

void fo_cuda_views(struct fo_cuda_view *to, const struct fo_call *c, const int8_t *operand, int n)
{
	for (int i = 0; i < n; i++)
		if (operand[i] >= 0 && fo_call_has(c, operand[i]))
			to[i] = fo_cuda_view_of(&c->arg[operand[i]]);
}

bool fo_cuda_aligned(const struct fo_tensor *t, bool whole)
{
	return (uintptr_t)t->data % ACCESS_BYTES == 0 &&
	       (whole || (size_t)t->ld * fo_dtype_bytes(t->dtype) % ACCESS_BYTES == 0);
}

bool fo_cuda_in_eights(const struct fo_cuda_view *v, int n)
{
	for (int i = 0; i < n; i++)
		if ((uintptr_t)v[i].data % ACCESS_BYTES || v[i].cols % 8 ||
		    (size_t)v[i].ld * fo_dtype_bytes(v[i].dtype) % ACCESS_BYTES)
			return false;
	return true;
}

bool fo_cuda_of_one_type(const struct fo_cuda_view *v, int n)
{
	for (int i = 1; i < n; i++)
		if (v[i].data && v[i].dtype != v[0].dtype)
			return false;
	return true;
}

const char *fo_cuda_floats_only(const struct fo_cuda *c, const struct fo_call *s)
{
	for (int i = 0; i < s->n; i++)
		if (!fo_cuda_is_float(&s->arg[i]) && s->arg[i].dtype != FO_I32)
			return "operands are neither bf16 nor fp32";
	return NULL;
}

struct fo_cuda_divisor fo_cuda_divisor_of(uint32_t value)
{
	/* With 2^log >= value: ceil(2^(31 + log) / value) is off by less than 1, and n < 2^31 makes less than 1 / value
	 * of it. */
	uint32_t log = 0;
	while ((1ull << log) < value)
		log++;
	const uint64_t scaled = 1ull << (31 + log);
	return (struct fo_cuda_divisor){ .value = value,
					 .multiplier = (uint32_t)((scaled + value - 1) / value),
					 .shift = 31 + log };
}

/* ---- launches ---- */

enum {
	/* The most static shared memory that kernels with dynamic shared memory have beside it: it counts in both
	 * limits. */
	SHARED_STATIC = 2 << 10,
	/* CUDA C++ Programming Guide, 16.5.3 of version 12: 48 KiB for a block that asks for nothing. */
	SHARED_UNASKED = (48 << 10) - SHARED_STATIC,
	WAVES = 8, /* of blocks per multiprocessor: enough to even out their ends */
};

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
fo_status fo_cuda_launch_blocks(struct fo_cuda_queue *q, enum fo_cuda_function f, int64_t blocks, const void *args)
{
	return fo_cuda_launch(q, f, (struct fo_cuda_grid){ (uint32_t)blocks, 1, 1, FO_CUDA_THREADS, 0 }, args);
}
fo_status fo_cuda_launch_each(struct fo_cuda_queue *q, enum fo_cuda_function f, int64_t n, const void *args)
{
	return fo_cuda_launch_blocks(q, f, fo_cuda_blocks(q->cuda, n, FO_CUDA_THREADS), args);
}

/* ---- activations to host memory and back (pass offload) ----
 *
 * They are copied in stream order, by the copy engines, while kernels run. The host's side must be page-locked; whole
 * rows lie end to end on both sides (program/ops.c). The driver takes the direction from the addresses: device and
 * page-locked memory share one address space. */

static const char *transfer_cannot(const struct fo_cuda *c, const struct fo_call *s)
{
	for (int i = FO_OFFLOAD_X; i <= FO_OFFLOAD_Y; i++)
		if (s->arg[i].rows > 1 && s->arg[i].ld != s->arg[i].cols)
			return "rows do not lie end to end";
	return NULL;
}
static fo_status transfer(struct fo_cuda_queue *q, const struct fo_call *call, int64_t variant)
{
	const struct fo_tensor *x = &call->arg[FO_OFFLOAD_X], *y = &call->arg[FO_OFFLOAD_Y];
	return fo_cuda_copy(q->cuda, y->data, x->data, (size_t)(x->rows * x->cols) * fo_dtype_bytes(x->dtype),
			    q->stream);
}
const struct fo_cuda_kernel fo_cuda_transfer = { .by = "CUDA", .cannot = transfer_cannot, .run = transfer };

/* ---- not operations ---- */

fo_status fo_cuda_init_weights(struct fo_cuda_queue *q, const struct fo_cuda_init *in)
{
	const struct fo_tensor *w = &in->weight, *m = &in->master;
	const struct fo_tensor *like = w->data ? w : m;
	if (!fo_cuda_is_float(w) || (m->data && m->dtype != FO_F32 && m->dtype != FO_I16))
		return fo_fail(FO_EUNSUPPORTED, "the device does not make weights of type %s", fo_dtype_name[w->dtype]);
	const struct fo_cuda_init_weights_args args = { w->data,  m->data,   like->rows,      like->cols,
							like->ld, in->first, in->global_cols, in->stream,
							in->std,  w->dtype,  m->dtype };
	return fo_cuda_launch_each(q, FO_CUDA_FN_init_weights, like->rows * like->cols, &args);
}

fo_status fo_cuda_find_nonfinite(struct fo_cuda_queue *q, const struct fo_tensor *t, int64_t *found)
{
	const struct fo_cuda_nonfinite_args args = { fo_cuda_view_of(t), (uint64_t *)found };
	/* -1, and above every index for an unsigned minimum */
	FO_TRY(fo_cuda_fill(q->cuda, found, 0xff, sizeof *found, q->stream));
	return fo_cuda_launch_each(q, FO_CUDA_FN_find_nonfinite, t->rows * t->cols, &args);
}
