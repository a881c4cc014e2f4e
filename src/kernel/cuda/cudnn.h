/* The attention plans of one device: each is made once for a description and kept. */
#ifndef FO_KERNEL_CUDA_CUDNN_H
#define FO_KERNEL_CUDA_CUDNN_H

#include "kernel/cuda/cudnn_graph.h"

struct fo_cuda_plan {
	struct fo_dnn_shape shape;
	struct fo_dnn_plan made;
	char why[256]; /* not empty: cuDNN, or we, refused this plan, and it is not run */
};
/* The plan for s, compiled (seconds) if it is new. The pointer is valid until c is closed. FO_OK also where the plan
 * was refused. */
FO_CHECKED fo_status fo_cuda_plan_get(struct fo_cuda *c, const struct fo_dnn_shape *s, const struct fo_cuda_plan **out,
				      bool *is_new);
/* The plan for s; NULL if it was never made. */
const struct fo_cuda_plan *fo_cuda_plan_find(const struct fo_cuda *c, const struct fo_dnn_shape *s);
/* The i-th plan; NULL after the last. */
const struct fo_cuda_plan *fo_cuda_plan_at(const struct fo_cuda *c, int i);
/* Refuses p from now on. */
void fo_cuda_plan_refuse(struct fo_cuda *c, const struct fo_cuda_plan *p, const char *why);
/* Puts a plan into q's stream. pointer[id] is set for every id that it uses (scalars: host memory, read before this
 * returns); ws is its workspace. */
FO_CHECKED fo_status fo_cuda_plan_run(struct fo_cuda_queue *q, const struct fo_cuda_plan *p, void *const *pointer,
				      void *ws);
void fo_cuda_plans_free(struct fo_cuda *c);

/* ---- attention by such plans (attention_dnn.c); launch_attention.c chooses between it and our own kernels ---- */

/* Whether a call is of attention's gradients (attention_bwd, attention_bwd_rope); and whether they are turned as rope
 * does it. The operands of both are those of attention_bwd; a turned call has position and table after them. */
static inline bool fo_cuda_is_backward(const struct fo_call *s)
{
	return fo_op_info(s->kind)->category == FO_CAT_ATTENTION_BACKWARD;
}
static inline bool fo_cuda_is_turned(const struct fo_call *s) { return fo_call_has(s, FO_ATTENTION_BWD_ROPE_TABLE); }
static inline const struct fo_tensor *fo_cuda_doc_of(const struct fo_call *s)
{
	return &s->arg[fo_cuda_is_backward(s) ? FO_ATTENTION_BWD_DOC_START : FO_ATTENTION_DOC_START];
}

/* Variants of attention and attention_bwd: which plan serves the contents of doc_start (NULL: unknown, else as on the
 * device). FO_CUDA_DOCS_OWN: none, our own kernels take the call. */
enum { FO_CUDA_DOCS_OWN = 0 };
int64_t fo_cuda_docs_variant(const struct fo_call *s, const int32_t *doc_start);
int64_t fo_cuda_docs_merge(const struct fo_call *s, int64_t a, int64_t b);
/* The number of documents that a variant serves, and the tokens of the longest. *ragged: false where all have exactly
 * this length. */
void fo_cuda_docs_of(const struct fo_call *s, int64_t variant, int64_t *documents, int64_t *longest, bool *ragged);

/* Whether cuDNN may take this call: it is there, and types and layouts are such as it knows. */
bool fo_cuda_dnn_may(const struct fo_cuda *c, const struct fo_call *s, int64_t variant);
/* Makes a plan, and runs it once on scratch memory where there is enough, so that everything is loaded before a
 * capture. *taken false: refused, our own kernels take the call. */
FO_CHECKED fo_status fo_cuda_dnn_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes,
					 bool *taken);
/* The largest workspace that fo_cuda_dnn_prepare asks for, whatever the documents (fo_cuda_ws_most says what is
 * assumed). */
size_t fo_cuda_dnn_ws_most(const struct fo_call *s);
/* Runs the plan; *taken as above. */
FO_CHECKED fo_status fo_cuda_dnn_run(struct fo_cuda_queue *q, const struct fo_call *s, int64_t variant, bool *taken);
/* Turns attention_bwd_rope's dq and dk, as attention_bwd left them. */
FO_CHECKED fo_status fo_cuda_attention_turn(struct fo_cuda_queue *q, const struct fo_call *s);
/* Why cuDNN refused a call of this shape, in whatever variant; NULL: it did not. */
const char *fo_cuda_dnn_why(const struct fo_cuda *c, const struct fo_call *s);

#endif
