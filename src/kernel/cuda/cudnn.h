/* Attention plans of one device, made once for each description and kept. */
#ifndef FO_KERNEL_CUDA_CUDNN_H
#define FO_KERNEL_CUDA_CUDNN_H

#include "kernel/cuda/cudnn_graph.h"

struct fo_cuda_plan {
	struct fo_dnn_shape shape;
	struct fo_dnn_plan made;
	char why[256]; /* not empty: cuDNN, or we, turned this one down; then it is not run */
};
/* The plan for s, compiled where it is new (seconds). Points into c: valid until it is closed. FO_OK also where it was
 * turned down. */
FO_CHECKED fo_status fo_cuda_plan_get(struct fo_cuda *c, const struct fo_dnn_shape *s, const struct fo_cuda_plan **out,
				      bool *is_new);
/* ... NULL where it was never made. */
const struct fo_cuda_plan *fo_cuda_plan_find(const struct fo_cuda *c, const struct fo_dnn_shape *s);
/* The i-th; NULL behind the last. */
const struct fo_cuda_plan *fo_cuda_plan_at(const struct fo_cuda *c, int i);
/* From now on p is turned down. */
void fo_cuda_plan_refuse(struct fo_cuda *c, const struct fo_cuda_plan *p, const char *why);
/* Puts a plan into q's stream: pointer[id] for every id it uses (scalars: host memory, read before this returns), ws
 * for its workspace. */
FO_CHECKED fo_status fo_cuda_plan_run(struct fo_cuda_queue *q, const struct fo_cuda_plan *p, void *const *pointer,
				      void *ws);
void fo_cuda_plans_free(struct fo_cuda *c);

/* ---- attention by such plans (attention_dnn.c); launch_attention.c chooses between it and our own kernels ---- */

/* Variants of attention and attention_bwd: which plan the contents of doc_start take (host: NULL, or doc_start as on
 * the device). FO_CUDA_DOCS_OWN: none, our own kernels take it. */
enum { FO_CUDA_DOCS_OWN = 0 };
int64_t fo_cuda_docs_variant(const struct fo_call *s, const int32_t *doc_start);
int64_t fo_cuda_docs_merge(const struct fo_call *s, int64_t a, int64_t b);
/* Documents and tokens of the longest that a variant serves; *ragged: false where all have just this length. */
void fo_cuda_docs_of(const struct fo_call *s, int64_t variant, int64_t *documents, int64_t *longest, bool *ragged);

/* cuDNN may take this call: there is one, and types and layouts are such as it knows. */
bool fo_cuda_dnn_may(const struct fo_cuda *c, const struct fo_call *s, int64_t variant);
/* Plans, and runs once on scratch memory where that is to be had, so that all of it is loaded before a capture. *taken
 * false: turned down, for our own kernels. */
FO_CHECKED fo_status fo_cuda_dnn_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes,
					 bool *taken);
/* The most that fo_cuda_dnn_prepare asks for, whatever the documents (fo_cuda_ws_most says what is assumed). */
size_t fo_cuda_dnn_ws_most(const struct fo_call *s);
/* *taken as above. */
FO_CHECKED fo_status fo_cuda_dnn_run(struct fo_cuda_queue *q, const struct fo_call *s, int64_t variant, bool *taken);
/* attention_bwd_rope's dq and dk, as attention_bwd left them, turned (launch_attention.c). */
FO_CHECKED fo_status fo_cuda_attention_turn(struct fo_cuda_queue *q, const struct fo_call *s);
/* Why cuDNN turned a call of this shape down, in whatever variant; NULL: it did not. */
const char *fo_cuda_dnn_why(const struct fo_cuda *c, const struct fo_call *s);

#endif
