/* The vector kernels of x86: one set of sources, compiled for 8 lanes (AVX2 and FMA) and 16 lanes (AVX-512 F, BW, VL,
 * DQ).
 *
 * Every function obeys the contract of kernel.h. Operands may be f32 and bf16 in any mix, factors of products fp8 too,
 * in any shape; f64 stays with `ref`. Sums are split and ordered by shape alone, so results do not depend on the number
 * of threads. */
#ifndef FO_KERNEL_X86_X86_H
#define FO_KERNEL_X86_X86_H

#include "kernel/kernel.h"

#define FO_X86_KERNELS(isa)                                                                                           \
	fo_kernel_fn fo_matmul_##isa, fo_embed_##isa, fo_embed_bwd_##isa, fo_rmsnorm_##isa, fo_rmsnorm_dx_##isa,      \
		fo_rmsnorm_dg_##isa, fo_add_##isa, fo_rope_##isa, fo_swiglu_##isa, fo_swiglu_bwd_##isa,               \
		fo_add_bias_##isa, fo_bias_grad_##isa, fo_xent_##isa, fo_xent_fwd_##isa, fo_sumsq_##isa,              \
		fo_adamw_##isa, fo_attention_##isa, fo_attention_bwd_##isa, fo_attention_cached_##isa,                \
		fo_cache_put_##isa, fo_last_row_##isa, fo_add_rmsnorm_##isa, fo_rmsnorm_bwd_##isa, fo_amax_##isa,     \
		fo_fp8_cast_##isa, fo_attention_eager_##isa, fo_attention_eager_bwd_##isa;                            \
	/* Every operand that holds real numbers is f32 or bf16, and sums into memory are not bf16. */                \
	bool fo_matmul_can_##isa(const struct fo_call *shape), fo_rows_can_##isa(const struct fo_call *shape),        \
		fo_adamw_can_##isa(const struct fo_call *shape), fo_sumsq_can_##isa(const struct fo_call *shape),     \
		fo_attention_can_##isa(const struct fo_call *shape), fo_fp8_can_##isa(const struct fo_call *shape),   \
		fo_attention_cached_can_##isa(const struct fo_call *shape),                                           \
		fo_attention_eager_can_##isa(const struct fo_call *shape);                                            \
	/* Bytes of workspace. */                                                                                     \
	size_t fo_matmul_ws_##isa(const struct fo_call *shape), fo_column_sums_ws_##isa(const struct fo_call *shape), \
		fo_rmsnorm_bwd_ws_##isa(const struct fo_call *shape), fo_xent_ws_##isa(const struct fo_call *shape),  \
		fo_sumsq_ws_##isa(const struct fo_call *shape), fo_attention_ws_##isa(const struct fo_call *shape),   \
		fo_attention_bwd_ws_##isa(const struct fo_call *shape),                                               \
		fo_attention_cached_ws_##isa(const struct fo_call *shape),                                            \
		fo_attention_eager_ws_##isa(const struct fo_call *shape);                                             \
	/* n rounds of multiply-adds on registers alone: FLOP done; 0 for types that do not run on the fp32 unit. */  \
	double fo_peak_burst_##isa(int dtype, int64_t n);
FO_X86_KERNELS(avx2)
FO_X86_KERNELS(avx512)
/* What the sets that multiply bf16 in units of their own have beside products: attention made of them. */
#define FO_X86_EAGER(isa)                                                    \
	fo_kernel_fn fo_attention_eager_##isa, fo_attention_eager_bwd_##isa; \
	bool fo_attention_eager_can_##isa(const struct fo_call *shape);      \
	size_t fo_attention_eager_ws_##isa(const struct fo_call *shape);
#define FO_X86_DOT(isa)                                        \
	FO_X86_EAGER(isa)                                      \
	fo_kernel_fn fo_matmul_##isa;                          \
	bool fo_matmul_can_##isa(const struct fo_call *shape); \
	size_t fo_matmul_ws_##isa(const struct fo_call *shape);
FO_X86_DOT(avx512bf16)
FO_X86_EAGER(amx)

#endif
