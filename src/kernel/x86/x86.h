/* The kernels of the x86 sets, and what their sources export.
 *
 * The vector kernels are one set of sources, compiled for 8 lanes (AVX2 and FMA) and for 16 lanes (AVX-512 F, BW, VL,
 * DQ). The sets avx512bf16 and amx have what gains from units that multiply bf16. Every function obeys the contract of
 * kernel.h. Operands may be f32 and bf16 in any mix, factors of matmuls fp8 too, in any shape; f64 stays with `ref`. Sums
 * are split and ordered by shape alone, so results do not depend on the number of threads. */
#ifndef FO_KERNEL_X86_X86_H
#define FO_KERNEL_X86_X86_H

#include "kernel/kernel.h"

/* What a set has: K(operation, function, can) for a kernel without workspace, W(operation, function, can, ws) for one
 * with. Functions are declared below and put into the set's table by set.inc. */
#define FO_X86_EAGER_LIST(K, W)                                                      \
	W(attention_eager, attention_eager, attention_eager_can, attention_eager_ws) \
	W(attention_eager_bwd, attention_eager_bwd, attention_eager_can, attention_eager_ws)
#define FO_X86_AMX_LIST(K, W)                    \
	W(matmul, matmul, matmul_can, matmul_ws) \
	FO_X86_EAGER_LIST(K, W)
#define FO_X86_DOT_LIST(K, W)                                \
	FO_X86_AMX_LIST(K, W)                                \
	W(attention, attention, attention_can, attention_ws) \
	W(attention_bwd, attention_bwd, attention_can, attention_bwd_ws)
#define FO_X86_VECTOR_LIST(K, W)                                                         \
	FO_X86_DOT_LIST(K, W)                                                            \
	W(attention_cached, attention_cached, attention_cached_can, attention_cached_ws) \
	K(cache_put, cache_put, rows_can)                                                \
	K(last_row, last_row, rows_can)                                                  \
	K(embed, embed, rows_can)                                                        \
	K(embed_bwd, embed_bwd, embed_bwd_can)                                           \
	K(rmsnorm, rmsnorm, rows_can)                                                    \
	K(rmsnorm_dx, rmsnorm_dx, rows_can)                                              \
	K(add, add, rows_can)                                                            \
	K(rope, rope, rows_can)                                                          \
	K(swiglu, swiglu, rows_can)                                                      \
	K(swiglu_bwd, swiglu_bwd, rows_can)                                              \
	K(add_bias, add_bias, rows_can)                                                  \
	K(add_rmsnorm, add_rmsnorm, rows_can)                                            \
	W(rmsnorm_bwd, rmsnorm_bwd, rows_can, rmsnorm_bwd_ws)                            \
	W(rmsnorm_dg, rmsnorm_dg, rows_can, column_sums_ws)                              \
	W(bias_grad, bias_grad, rows_can, column_sums_ws)                                \
	W(xent, xent, xent_can, xent_ws)                                                 \
	W(xent_fwd, xent_fwd, xent_can, xent_fwd_ws)                                     \
	W(sumsq, sumsq, sumsq_can, sumsq_ws)                                             \
	W(sumsq_many, sumsq, sumsq_can, sumsq_ws)                                        \
	K(adamw, adamw, adamw_can)                                                       \
	K(adamw_many, adamw, adamw_can)                                                  \
	K(adamw_master_many, adamw, adamw_can)                                           \
	K(amax, amax, amax_can)                                                          \
	K(fp8_cast, fp8_cast, fp8_cast_can)                                              \
	W(fp8_cast_step, fp8_step, fp8_step_can, fp8_step_ws)                            \
	W(rmsnorm_fp8, fp8_step, fp8_step_can, fp8_step_ws)                              \
	W(add_rmsnorm_fp8, fp8_step, fp8_step_can, fp8_step_ws)                          \
	W(swiglu_fp8, fp8_step, fp8_step_can, fp8_step_ws)                               \
	W(swiglu_bwd_fp8, fp8_step, fp8_step_can, fp8_step_ws)

#define FO_X86_KERNEL(run, can)   \
	fo_kernel_fn FO_X86(run); \
	bool FO_X86(can)(const struct fo_call *shape);
#define FO_X86_K(id, run, can) FO_X86_KERNEL(run, can)
#define FO_X86_W(id, run, can, ws) \
	FO_X86_KERNEL(run, can)    \
	size_t FO_X86(ws)(const struct fo_call *shape);

#define FO_X86(name) fo_##name##_avx2
FO_X86_VECTOR_LIST(FO_X86_K, FO_X86_W)
#undef FO_X86
#define FO_X86(name) fo_##name##_avx512
FO_X86_VECTOR_LIST(FO_X86_K, FO_X86_W)
#undef FO_X86
#define FO_X86(name) fo_##name##_avx512bf16
FO_X86_DOT_LIST(FO_X86_K, FO_X86_W)
#undef FO_X86
#define FO_X86(name) fo_##name##_amx
FO_X86_AMX_LIST(FO_X86_K, FO_X86_W)
#undef FO_X86

#endif
