/* Attention as cuDNN's graph API wants it: composed of matmuls, pointwise operations, reductions and reshapes, the
 * form that its engines recognise as attention (matched as SDPA_FWD and SDPA_BWD by 9.19; its one-operation form has no
 * causal mask there).
 *
 * A graph depends on a description alone, a plan on a device's properties too; neither needs a device, so tests without
 * one build both.
 *
 * Layout: token-major rectangles, token i of head h at i ld + h dim. Fixed: `batch` documents of `seq` tokens each, one
 * after another. Unfinished (backward): dq is left as the fp32 sum, dk and dv in all query heads, for a kernel of ours
 * to go on with. Ragged: up to `batch` documents of up to `seq` tokens among `tokens`, anywhere; lengths and offsets
 * are in device memory. */
#ifndef FO_KERNEL_CUDA_CUDNN_GRAPH_H
#define FO_KERNEL_CUDA_CUDNN_GRAPH_H

#include "kernel/cuda/cuda_int.h"

/* Tensors that the caller supplies when a plan runs, by the identifier that the graph knows them by. */
enum fo_dnn_id {
	FO_DNN_Q = 1, /* bf16, but lse fp32 */
	FO_DNN_K,
	FO_DNN_V,
	FO_DNN_O,
	FO_DNN_LSE,
	FO_DNN_DO, /* backward: bf16 */
	FO_DNN_DQ,
	FO_DNN_DK,
	FO_DNN_DV,
	FO_DNN_ROWSUM,  /* backward, scratch: fp32, per token and head */
	FO_DNN_DQ_SUM,  /* ... fp32: as dq, ragged with its ld */
	FO_DNN_DK_FULL, /* ... ragged or unfinished, shared kv heads: bf16, (token, query head, dim) without gaps */
	FO_DNN_DV_FULL,
	FO_DNN_SCALE, /* fp32 in host memory */
	FO_DNN_MINUS_INF,
	FO_DNN_ONE,
	FO_DNN_WINDOW,
	FO_DNN_LENGTH,   /* ragged: int32 per document */
	FO_DNN_OFFSET_Q, /* ... int64, batch + 1: elements; in the order of the operands */
	FO_DNN_OFFSET_K,
	FO_DNN_OFFSET_V,
	FO_DNN_OFFSET_O,
	FO_DNN_OFFSET_LSE,
	FO_DNN_IDS
};
/* A plan depends on this. ld: elements from token to token of Q .. DV, by fo_dnn_id; lse's is FO_DNN_LSE's. Ragged: dq,
 * dk, dv and do share the offsets, so also the ld, of q, k, v and o. No padding between members, the whole struct is
 * compared as bytes. */
struct fo_dnn_shape {
	int64_t batch, seq, tokens, heads, kv, dim, window, ragged, backward, unfinished;
	int64_t ld[FO_DNN_DV + 1];
};

enum { FO_DNN_OPS = 48, FO_DNN_OWNED = 256 };
struct fo_dnn_graph {
	const struct fo_cudnn_calls *dnn;
	cudnnBackendDescriptor_t owned[FO_DNN_OWNED], op[FO_DNN_OPS], graph;
	int owns, ops;
	int64_t next;     /* identifier of the next intermediate */
	fo_status failed; /* the first failure; later calls do nothing */
	bool used[FO_DNN_IDS];
};
/* Composes and finalises; handle: NULL, or where it will run. On failure (FO_EDEVICE with cuDNN's last words) nothing
 * stays behind; else fo_dnn_graph_free. */
FO_CHECKED fo_status fo_dnn_graph_new(struct fo_dnn_graph *out, const struct fo_cudnn_calls *dnn, cudnnHandle_t handle,
				      const struct fo_dnn_shape *s);
void fo_dnn_graph_free(struct fo_dnn_graph *g);

struct fo_dnn_plan {
	cudnnBackendDescriptor_t plan;
	int64_t engine, workspace; /* bytes */
	int configs;               /* that the heuristic offered and that can be used */
	char kernel[160];          /* its name */
	bool used[FO_DNN_IDS];     /* what a run must supply */
};
/* The heuristic's first choice for a graph, compiled (about a second). Either handle or device_properties (a finalised
 * DEVICEPROP descriptor) is given. generation: 8, 9 or 10, the device's compute capability; a kernel made for an older
 * one is refused with FO_EUNSUPPORTED, for the second choices are slower by a multiple, and nobody would see it.
 * FO_EUNSUPPORTED too where no engine takes the graph. Freed with fo_dnn_plan_free. */
FO_CHECKED fo_status fo_dnn_plan_new(struct fo_dnn_plan *out, const struct fo_dnn_graph *g, cudnnHandle_t handle,
				     cudnnBackendDescriptor_t device_properties, int generation);
void fo_dnn_plan_free(struct fo_dnn_plan *p, const struct fo_cudnn_calls *dnn);

/* FO_EDEVICE with cuDNN's last error text where s is not success. */
FO_CHECKED fo_status fo_dnn_check(const struct fo_cudnn_calls *dnn, cudnnStatus_t s, const char *doing);

#endif
