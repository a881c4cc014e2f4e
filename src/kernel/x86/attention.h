/* Causal, document-aware attention on x86, forward and backward: the rows `attention` and `attention_bwd` of the sets
 * avx2, avx512 and, for bf16 on pairs, avx512bf16.
 *
 * Operands (ops.def), T tokens, H query heads, K key/value heads, head h reads kv head h / (H/K), Q = attr.head_dim:
 *   forward:  q(T,HQ) k(T,KQ) v(T,KQ) doc_start(T,1) i32 | o(T,HQ) lse(T,H) f32
 *   backward: q k v o(T,HQ) lse do(T,HQ) doc_start | dq(T,HQ) dk(T,KQ) dv(T,KQ)
 * Query i sees the keys doc_start[i] <= j <= i, with attr.window W only i - W < j; scores are attr.value q k'.
 * doc_start must not decrease; entries outside 0..i are clamped. Sums are fp32; outputs are written whole. avx512bf16
 * rounds probabilities and the gradients of scores to bf16 before they are multiplied.
 *
 * Results do not depend on the number of threads nor on timing: every sum has one order. Threads take tasks from a
 * counter.
 *
 * Workspace in bytes, T rounded up to whole blocks of 96 keys (backward, per query head: 48 queries; avx512bf16 96), Q
 * to whole vectors: forward:   n 8 Q T + threads (768 Q + 10112; with 16 lanes 19392) backward:  n (12 Q T + H/K (20 Q
 * + 8) T) + threads (768 Q + 36864) avx512bf16: forward:   n 4 Q T + threads (576 Q + 19392) backward:  n (6 Q T + H/K
 * (12 Q + 8) T) + threads (768 Q + 58368) where n key/value heads are worked off at a time: all K, or as many as stay
 * below 16 MiB (backward 4 MiB per thread, at least 8), at least one. */
#ifndef FO_KERNEL_X86_ATTENTION_H
#define FO_KERNEL_X86_ATTENTION_H

#include "kernel/kernel.h"

/* can: q, k, v, o (and the gradients) all f32 or all bf16 (avx512bf16: bf16), lse f32, doc_start i32, head_dim a
 * multiple of 8 (avx512bf16: 16) up to 256, columns that are whole heads, H a multiple of K. One answer for both
 * directions: by call->n. */
#define FO_ATTENTION_DECLARE(isa)                              \
	void fo_attention_##isa(const struct fo_call *c);      \
	void fo_attention_bwd_##isa(const struct fo_call *c);  \
	bool fo_attention_can_##isa(const struct fo_call *c);  \
	size_t fo_attention_ws_##isa(const struct fo_call *c); \
	size_t fo_attention_bwd_ws_##isa(const struct fo_call *c);

FO_ATTENTION_DECLARE(avx2)
FO_ATTENTION_DECLARE(avx512)
FO_ATTENTION_DECLARE(avx512bf16)

#endif
