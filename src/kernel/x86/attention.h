/* Causal, document-aware attention on x86, forward and backward: the operations `attention` and `attention_bwd` of the
 * kernel sets avx2, avx512 and, for bf16 multiplied in pairs, avx512bf16.
 *
 * Shapes, with T tokens, H query heads, K key/value heads and Q = attr.head_dim columns per head; query head h reads
 * key/value head h / (H/K):
 *   forward:  q(T,HQ) k(T,KQ) v(T,KQ) doc_start(T,1) i32 -> o(T,HQ) lse(T,H) f32
 *   backward: q k v o lse do(T,HQ) doc_start -> dq(T,HQ) dk(T,KQ) dv(T,KQ)
 * Query i sees the keys doc_start[i] <= j <= i and, with a window W (attr.window), only those with j > i - W. Scores
 * are attr.value times q k'. doc_start must not decrease; entries outside 0..i are clamped, so that wrong contents
 * cannot lead outside the operands. Sums are fp32 and outputs are written whole. avx512bf16 rounds probabilities and
 * the gradients of scores to bf16 before it multiplies them.
 *
 * Results depend neither on the number of threads nor on timing: threads take tasks from a counter, but the terms of
 * every sum are added in one order.
 *
 * Workspace in bytes. T is rounded up to whole blocks of 96 keys (backward, for each query head, to 48 queries;
 * avx512bf16: 96), Q to whole vectors. n key/value heads are worked on at a time: all K, or as many as need at most 16
 * MiB (backward 4 MiB per thread, but at least 8 MiB), and at least one.
 *   forward   n 8 Q T + threads (768 Q + 10112; with 16 lanes 19392)
 *             avx512bf16: n 4 Q T + threads (576 Q + 19392)
 *   backward  n (12 Q T + H/K (20 Q + 8) T) + threads (768 Q + 36864)
 *             avx512bf16: n (6 Q T + H/K (12 Q + 8) T) + threads (768 Q + 58368) */
#ifndef FO_KERNEL_X86_ATTENTION_H
#define FO_KERNEL_X86_ATTENTION_H

#include "kernel/kernel.h"

/* can: q, k, v, o and their gradients are all f32 or all bf16 (avx512bf16: bf16), lse is f32, doc_start i32; head_dim
 * is a multiple of 8 (avx512bf16: 16) up to 256; columns are whole heads and H is a multiple of K. */
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
