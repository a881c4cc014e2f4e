/* The reference set, private part: every operation in two arithmetics.
 *
 * fo_ref_f32_*: operands f32, bf16 or fp8 in any mix, sums in fp32. fo_ref_f64_*: operands f64, the measure of all
 * others. hyper, acc, scale and loss are f64 in both. The sources are the .inc files of this folder, compiled once per
 * arithmetic with REAL = float or double. Sums are plain, one after the other in index order, so that `ref` is also the
 * naive same-precision implementation which the errors of faster sets are compared with. */
#ifndef FO_KERNEL_REF_REF_H
#define FO_KERNEL_REF_REF_H

#include "kernel/kernel.h"
#include "program/ring.h"

#define FO_OP(id, ...) fo_kernel_fn fo_ref_f32_##id, fo_ref_f64_##id;
#include "program/ops.def"

typedef size_t fo_ref_ws_fn(const struct fo_call *c);
/* Operations that need workspace, and the function that says how much: X(operation, function). */
#define FO_REF_WS(X)                                   \
	X(matmul, matmul_ws)                           \
	X(attention, attention_ws)                     \
	X(attention_bwd, attention_bwd_ws)             \
	X(attention_bwd_rope, attention_bwd_ws)        \
	X(attention_block, attention_ws)               \
	X(attention_block_bwd, attention_bwd_ws)       \
	X(attention_eager, attention_eager_ws)         \
	X(attention_eager_bwd, attention_eager_bwd_ws) \
	X(attention_cached, attention_cached_ws)       \
	X(xent, xent_ws)                               \
	X(xent_fwd, xent_ws)                           \
	X(sumsq, sumsq_ws)                             \
	X(sumsq_many, sumsq_many_ws)                   \
	X(fp8_cast_step, fp8_step_ws)                  \
	X(rmsnorm_fp8, fp8_step_ws)                    \
	X(add_rmsnorm_fp8, fp8_step_ws)                \
	X(swiglu_fp8, fp8_step_ws)                     \
	X(swiglu_bwd_fp8, fp8_step_ws)
#define FO_REF_DECLARE(id, ws) fo_ref_ws_fn fo_ref_f32_##ws, fo_ref_f64_##ws;
FO_REF_WS(FO_REF_DECLARE)
#undef FO_REF_DECLARE

/* The first half of fp8_cast_step: sx and amax, where `own` is x's maximum; largest: attr.value is the largest number
 * of the format. stored: amax begins with zeros. */
typedef void fo_ref_step_scale_fn(const struct fo_attr *largest, const struct fo_tensor *own,
				  const struct fo_tensor *sx, const struct fo_tensor *amax, bool stored);
fo_ref_step_scale_fn fo_ref_f32_step_scale, fo_ref_f64_step_scale;
double fo_ref_f32_peak_burst(int64_t n), fo_ref_f64_peak_burst(int64_t n);

#endif
