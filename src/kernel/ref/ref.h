/* The reference set, private part: every operation in two arithmetics.
 *
 * fo_ref_f32_*: operands f32, bf16 or fp8 (in any mix), sums in fp32. fo_ref_f64_*: operands f64, the measure of all
 * others. hyper, acc, scale and loss are f64 in both. The sources are the .inc files of this folder, compiled once per
 * arithmetic with REAL = float or double. Sums are plain: one after the other in index order, so that `ref` is also the
 * naive same-precision implementation which the errors of faster sets are compared with. */
#ifndef FO_KERNEL_REF_REF_H
#define FO_KERNEL_REF_REF_H

#include "kernel/kernel.h"

#define FO_OP(id, ...)                                 \
	void fo_ref_f32_##id(const struct fo_call *c); \
	void fo_ref_f64_##id(const struct fo_call *c);
#include "program/ops.def"

size_t fo_ref_f32_matmul_ws(const struct fo_call *c), fo_ref_f64_matmul_ws(const struct fo_call *c);
size_t fo_ref_f32_attention_ws(const struct fo_call *c), fo_ref_f64_attention_ws(const struct fo_call *c);
size_t fo_ref_f32_attention_bwd_ws(const struct fo_call *c), fo_ref_f64_attention_bwd_ws(const struct fo_call *c);
size_t fo_ref_f32_attention_cached_ws(const struct fo_call *c), fo_ref_f64_attention_cached_ws(const struct fo_call *c);
size_t fo_ref_f32_attention_eager_ws(const struct fo_call *c), fo_ref_f64_attention_eager_ws(const struct fo_call *c);
size_t fo_ref_f32_attention_eager_bwd_ws(const struct fo_call *c),
	fo_ref_f64_attention_eager_bwd_ws(const struct fo_call *c);
size_t fo_ref_f32_xent_ws(const struct fo_call *c), fo_ref_f64_xent_ws(const struct fo_call *c);
size_t fo_ref_f32_sumsq_ws(const struct fo_call *c), fo_ref_f64_sumsq_ws(const struct fo_call *c);
double fo_ref_f32_peak_burst(int64_t n), fo_ref_f64_peak_burst(int64_t n);

#endif
