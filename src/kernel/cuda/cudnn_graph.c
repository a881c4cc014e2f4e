/* Attention graphs for cuDNN, built attribute by attribute.
 *   forward:  s = scale q k'; masks; p = exp(s - max); lse = max + log(sum p); o = (p / sum) v
 *   backward: p = exp(scale q k' - lse); masks; D = rowsum(do o); ds = p (do v' - D) scale;
 *             dq = ds k; dk = ds' q; dv = p' do
 *
 * The form that cuDNN's engines recognise was found by asking them, and test_cudnn_graphs.c holds it: k comes in
 * transposed, in the backward graph v too; p and what is transposed are bf16, all other intermediates fp32; masks come
 * in the order padding, causal, window. Backward subtracts the log-sum-exp before all masks, as NVIDIA's front end
 * does: the lse of rows after a document's end is whatever lies in memory, and a mask after the subtraction removes it
 * again. */
#include "kernel/cuda/cudnn_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef cudnnBackendDescriptor_t desc;

fo_status fo_dnn_check(const struct fo_cudnn_calls *dnn, cudnnStatus_t s, const char *doing)
{
	char text[512] = "";
	if (s == CUDNN_STATUS_SUCCESS)
		return FO_OK;
	dnn->cudnnGetLastErrorString(text, sizeof text);
	text[strcspn(text, "\n")] = 0;
	return fo_fail(FO_EDEVICE, "cannot %s: cuDNN says %s%s%s", doing, dnn->cudnnGetErrorString(s),
		       *text ? ": " : "", text);
}

/* ---- descriptors: after the first failure nothing more is called ---- */

static void check(struct fo_dnn_graph *g, cudnnStatus_t s, const char *doing)
{
	if (g->failed == FO_OK)
		g->failed = fo_dnn_check(g->dnn, s, doing);
}

static desc make(struct fo_dnn_graph *g, cudnnBackendDescriptorType_t type)
{
	desc d = NULL;
	if (g->failed != FO_OK)
		return NULL;
	if (g->owns == FO_DNN_OWNED) {
		g->failed = fo_fail(FO_EBUG, "an attention graph has more than %d parts", (int)FO_DNN_OWNED);
		return NULL;
	}
	check(g, g->dnn->cudnnBackendCreateDescriptor(type, &d), "describe attention");
	if (g->failed == FO_OK)
		g->owned[g->owns++] = d;
	return d;
}
static void set(struct fo_dnn_graph *g, desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
		int64_t n, const void *values)
{
	if (g->failed == FO_OK)
		check(g, g->dnn->cudnnBackendSetAttribute(d, name, type, n, values), "describe attention");
}
static void finalize(struct fo_dnn_graph *g, desc d)
{
	if (g->failed == FO_OK)
		check(g, g->dnn->cudnnBackendFinalize(d), "describe attention");
}
#define SET(g, d, name, type, n, values) set(g, d, CUDNN_ATTR_##name, CUDNN_TYPE_##type, n, values)
#define SET_DESC(g, d, name, value) SET(g, d, name, BACKEND_DESCRIPTOR, 1, &(desc){ value })

/* ---- tensors ---- */

#define F32 CUDNN_DATA_FLOAT
#define BF16 CUDNN_DATA_BFLOAT16
enum { ALIGNMENT = 16, FIRST_INTERMEDIATE = 100 };
static const int64_t unit[4] = { 1, 1, 1, 1 };

struct tensor {
	desc d;
	int64_t dim[4], stride[4];
};

/* id 0: an intermediate, which lies nowhere in memory. */
static struct tensor tensor(struct fo_dnn_graph *g, cudnnDataType_t type, int id, const int64_t *dim,
			    const int64_t *stride, desc ragged)
{
	struct tensor t = { .d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR) };
	const int64_t align = ALIGNMENT, uid = id ? id : g->next++;
	const bool yes = true;
	memcpy(t.dim, dim, sizeof t.dim);
	memcpy(t.stride, stride, sizeof t.stride);
	SET(g, t.d, TENSOR_DATA_TYPE, DATA_TYPE, 1, &type);
	SET(g, t.d, TENSOR_DIMENSIONS, INT64, 4, dim);
	SET(g, t.d, TENSOR_STRIDES, INT64, 4, stride);
	SET(g, t.d, TENSOR_UNIQUE_ID, INT64, 1, &uid);
	SET(g, t.d, TENSOR_BYTE_ALIGNMENT, INT64, 1, &align);
	if (!id)
		SET(g, t.d, TENSOR_IS_VIRTUAL, BOOLEAN, 1, &yes);
	else
		g->used[id] = true;
	if (id == FO_DNN_SCALE || id == FO_DNN_MINUS_INF || id == FO_DNN_ONE || id == FO_DNN_WINDOW)
		SET(g, t.d, TENSOR_IS_BY_VALUE, BOOLEAN, 1, &yes);
	if (ragged)
		SET_DESC(g, t.d, TENSOR_RAGGED_OFFSET_DESC, ragged);
	finalize(g, t.d);
	return t;
}
static struct tensor like(struct fo_dnn_graph *g, struct tensor t, cudnnDataType_t type)
{
	return tensor(g, type, 0, t.dim, t.stride, NULL);
}
static struct tensor scalar(struct fo_dnn_graph *g, int id) { return tensor(g, F32, id, unit, unit, NULL); }

/* ---- operations ---- */

static void add(struct fo_dnn_graph *g, desc op)
{
	finalize(g, op);
	if (g->failed == FO_OK && g->ops == FO_DNN_OPS)
		g->failed = fo_fail(FO_EBUG, "an attention graph has more than %d operations", (int)FO_DNN_OPS);
	if (g->failed == FO_OK)
		g->op[g->ops++] = op;
}
static struct tensor pointwise_to(struct fo_dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t math,
				  struct tensor x, const struct tensor *b, const struct tensor *t, struct tensor y,
				  int64_t axis)
{
	desc p = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), o = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
	SET(g, p, POINTWISE_MODE, POINTWISE_MODE, 1, &mode);
	SET(g, p, POINTWISE_MATH_PREC, DATA_TYPE, 1, &math);
	if (mode == CUDNN_POINTWISE_GEN_INDEX)
		SET(g, p, POINTWISE_AXIS, INT64, 1, &axis);
	finalize(g, p);
	SET_DESC(g, o, OPERATION_POINTWISE_PW_DESCRIPTOR, p);
	SET_DESC(g, o, OPERATION_POINTWISE_XDESC, x.d);
	SET_DESC(g, o, OPERATION_POINTWISE_YDESC, y.d);
	if (b)
		SET_DESC(g, o, OPERATION_POINTWISE_BDESC, b->d);
	if (t)
		SET_DESC(g, o, OPERATION_POINTWISE_TDESC, t->d);
	add(g, o);
	return y;
}
static struct tensor binary(struct fo_dnn_graph *g, cudnnPointwiseMode_t mode, struct tensor x, struct tensor b)
{
	return pointwise_to(g, mode, F32, x, &b, NULL, like(g, x, F32), 0);
}
static struct tensor unary(struct fo_dnn_graph *g, cudnnPointwiseMode_t mode, struct tensor x)
{
	return pointwise_to(g, mode, F32, x, NULL, NULL, like(g, x, F32), 0);
}
static void reduce(struct fo_dnn_graph *g, cudnnReduceTensorOp_t mode, struct tensor x, struct tensor y)
{
	desc r = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), o = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
	const cudnnDataType_t f32 = F32;
	const bool no = false;
	SET(g, r, REDUCTION_COMP_TYPE, DATA_TYPE, 1, &f32);
	SET(g, r, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1, &mode);
	SET(g, r, REDUCTION_IS_DETERMINISTIC, BOOLEAN, 1, &no);
	finalize(g, r);
	SET_DESC(g, o, OPERATION_REDUCTION_DESC, r);
	SET_DESC(g, o, OPERATION_REDUCTION_XDESC, x.d);
	SET_DESC(g, o, OPERATION_REDUCTION_YDESC, y.d);
	add(g, o);
}
/* m, n, k: the lengths of documents, where that dimension of the matmul runs over tokens; NULL elsewhere. */
static void matmul(struct fo_dnn_graph *g, struct tensor a, struct tensor b, struct tensor c, desc m, desc n, desc k)
{
	desc p = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR), o = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
	const cudnnDataType_t f32 = F32;
	SET(g, p, MATMUL_COMP_TYPE, DATA_TYPE, 1, &f32);
	finalize(g, p);
	SET_DESC(g, o, OPERATION_MATMUL_ADESC, a.d);
	SET_DESC(g, o, OPERATION_MATMUL_BDESC, b.d);
	SET_DESC(g, o, OPERATION_MATMUL_CDESC, c.d);
	SET_DESC(g, o, OPERATION_MATMUL_DESC, p);
	if (m)
		SET_DESC(g, o, OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, m);
	if (n)
		SET_DESC(g, o, OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, n);
	if (k)
		SET_DESC(g, o, OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, k);
	add(g, o);
}
static struct tensor reshape(struct fo_dnn_graph *g, struct tensor x, struct tensor y)
{
	desc o = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
	SET_DESC(g, o, OPERATION_RESHAPE_XDESC, x.d);
	SET_DESC(g, o, OPERATION_RESHAPE_YDESC, y.d);
	add(g, o);
	return y;
}

/* ---- both directions ---- */

struct operands {
	const struct fo_dnn_shape *s;
	struct tensor q, kt, lse, scale, minus_inf, window, length;
	desc off[FO_DNN_LSE + 1], len; /* NULL: fixed */
};

/* A tensor (batch, heads, tokens, dim), or with tokens and dim exchanged; rows lie ld apart. */
static struct tensor rows(struct fo_dnn_graph *g, const struct operands *x, cudnnDataType_t type, int id, int64_t heads,
			  int64_t ld, desc off, bool transposed)
{
	const struct fo_dnn_shape *s = x->s;
	const int64_t dim[2][4] = { { s->batch, heads, s->seq, s->dim }, { s->batch, heads, s->dim, s->seq } };
	const int64_t stride[2][4] = { { s->seq * ld, s->dim, ld, 1 }, { s->seq * ld, s->dim, 1, ld } };
	return tensor(g, type, id, dim[transposed], stride[transposed], off);
}
/* One number per token and head, laid out as the lse is: (token, head). NVIDIA's front end has (head, token) unless
 * documents are packed. The kernel that 9.19 makes takes both strides as parameters, so it is the same for either
 * layout. */
static struct tensor per_row(struct fo_dnn_graph *g, const struct operands *x, int id, int64_t ld, desc off)
{
	const struct fo_dnn_shape *s = x->s;
	return tensor(g, F32, id, (int64_t[]){ s->batch, s->heads, s->seq, 1 }, (int64_t[]){ s->seq * ld, 1, ld, 1 },
		      off);
}
static struct tensor column(struct fo_dnn_graph *g, const struct operands *x)
{
	const struct fo_dnn_shape *s = x->s;
	return tensor(g, F32, 0, (int64_t[]){ s->batch, s->heads, s->seq, 1 },
		      (int64_t[]){ s->heads * s->seq, s->seq, 1, 1 }, NULL);
}

static struct operands operands(struct fo_dnn_graph *g, const struct fo_dnn_shape *s)
{
	struct operands x = { .s = s };
	for (int i = FO_DNN_Q; s->ragged && i <= FO_DNN_LSE; i++)
		x.off[i] = tensor(g, CUDNN_DATA_INT64, FO_DNN_OFFSET_Q + i - FO_DNN_Q,
				  (int64_t[]){ s->batch + 1, 1, 1, 1 }, unit, NULL)
				   .d;
	if (s->ragged) {
		x.length = tensor(g, CUDNN_DATA_INT32, FO_DNN_LENGTH, (int64_t[]){ s->batch, 1, 1, 1 }, unit, NULL);
		x.len = x.length.d;
	}
	x.q = rows(g, &x, BF16, FO_DNN_Q, s->heads, s->ld[FO_DNN_Q], x.off[FO_DNN_Q], false);
	x.kt = rows(g, &x, BF16, FO_DNN_K, s->kv, s->ld[FO_DNN_K], x.off[FO_DNN_K], true);
	x.lse = per_row(g, &x, FO_DNN_LSE, s->ld[FO_DNN_LSE], x.off[FO_DNN_LSE]);
	x.scale = scalar(g, FO_DNN_SCALE);
	x.minus_inf = scalar(g, FO_DNN_MINUS_INF);
	if (s->window)
		x.window = scalar(g, FO_DNN_WINDOW);
	return x;
}

static struct tensor keep_where(struct fo_dnn_graph *g, const struct operands *x, struct tensor s, struct tensor mask)
{
	return pointwise_to(g, CUDNN_POINTWISE_BINARY_SELECT, F32, s, &x->minus_inf, &mask, like(g, s, F32), 0);
}
static struct tensor position(struct fo_dnn_graph *g, struct tensor s, int64_t axis)
{
	return pointwise_to(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, s, NULL, NULL, like(g, s, CUDNN_DATA_INT32),
			    axis);
}
static struct tensor compare(struct fo_dnn_graph *g, cudnnPointwiseMode_t mode, struct tensor a, struct tensor b)
{
	return pointwise_to(g, mode, CUDNN_DATA_BOOLEAN, a, &b, NULL, like(g, a, CUDNN_DATA_BOOLEAN), 0);
}
static struct tensor mask_padding(struct fo_dnn_graph *g, const struct operands *x, struct tensor s)
{
	struct tensor row = position(g, s, 2), col = position(g, s, 3);
	struct tensor row_in = compare(g, CUDNN_POINTWISE_CMP_LT, row, x->length),
		      col_in = compare(g, CUDNN_POINTWISE_CMP_LT, col, x->length);
	return keep_where(g, x, s, compare(g, CUDNN_POINTWISE_LOGICAL_AND, row_in, col_in));
}
/* Query row sees key col where row >= col and, in a window, col + window > row. */
static struct tensor mask_causal(struct fo_dnn_graph *g, const struct operands *x, struct tensor s)
{
	struct tensor row = position(g, s, 2), col = position(g, s, 3);
	s = keep_where(g, x, s, compare(g, CUDNN_POINTWISE_CMP_GE, row, col));
	if (!x->s->window)
		return s;
	row = position(g, s, 2), col = position(g, s, 3);
	struct tensor reach = pointwise_to(g, CUDNN_POINTWISE_ADD, F32, col, &x->window, NULL,
					   like(g, s, CUDNN_DATA_INT32), 0);
	return keep_where(g, x, s, compare(g, CUDNN_POINTWISE_CMP_GT, reach, row));
}
/* scale Q K', each document by itself */
static struct tensor scores(struct fo_dnn_graph *g, const struct operands *x)
{
	const struct fo_dnn_shape *s = x->s;
	struct tensor raw = tensor(g, F32, 0, (int64_t[]){ s->batch, s->heads, s->seq, s->seq },
				   (int64_t[]){ s->heads * s->seq * s->seq, s->seq * s->seq, s->seq, 1 }, NULL);
	matmul(g, x->q, x->kt, raw, x->len, x->len, NULL);
	return binary(g, CUDNN_POINTWISE_MUL, raw, x->scale);
}
static struct tensor masked(struct fo_dnn_graph *g, const struct operands *x, struct tensor s)
{
	return mask_causal(g, x, x->s->ragged ? mask_padding(g, x, s) : s);
}

/* ---- forward ---- */

static void compose_forward(struct fo_dnn_graph *g, const struct fo_dnn_shape *s)
{
	const struct operands x = operands(g, s);
	struct tensor v = rows(g, &x, BF16, FO_DNN_V, s->kv, s->ld[FO_DNN_V], x.off[FO_DNN_V], false);
	struct tensor o = rows(g, &x, BF16, FO_DNN_O, s->heads, s->ld[FO_DNN_O], x.off[FO_DNN_O], false);
	struct tensor score = masked(g, &x, scores(g, &x)), max = column(g, &x), sum = column(g, &x);
	reduce(g, CUDNN_REDUCE_TENSOR_MAX, score, max);
	struct tensor e = unary(g, CUDNN_POINTWISE_EXP, binary(g, CUDNN_POINTWISE_SUB, score, max));
	reduce(g, CUDNN_REDUCE_TENSOR_ADD, e, sum);
	struct tensor log_sum = unary(g, CUDNN_POINTWISE_LOG, sum);
	pointwise_to(g, CUDNN_POINTWISE_ADD, F32, max, &log_sum, NULL, x.lse, 0);
	struct tensor p = pointwise_to(g, CUDNN_POINTWISE_DIV, F32, e, &sum, NULL, like(g, e, BF16), 0);
	matmul(g, p, v, o, x.len, NULL, x.len);
}

/* ---- backward ---- */

/* a' b, summed over the query heads that share a key/value head. In ragged plans the terms of the sum are a real
 * buffer, whose size then follows the tokens and not documents times the longest one; it takes the offsets of k or v,
 * which cuDNN itself multiplies by heads / kv, as it does for its front end. Unfinished plans return the terms. */
static void matmul_by_kv_head(struct fo_dnn_graph *g, const struct operands *x, struct tensor a, struct tensor b,
			      int id, int full_id, desc off)
{
	const struct fo_dnn_shape *s = x->s;
	const int64_t ld = s->ld[id];
	if (s->heads == s->kv) {
		matmul(g, a, b, rows(g, x, BF16, id, s->kv, ld, off, false), x->len, NULL, x->len);
		return;
	}
	struct tensor full;
	if (s->ragged)
		full = rows(g, x, BF16, full_id, s->heads, ld * (s->heads / s->kv), off, false);
	else if (s->unfinished)
		full = rows(g, x, BF16, full_id, s->heads, s->heads * s->dim, NULL, false);
	else
		full = tensor(g, BF16, 0, (int64_t[]){ s->batch, s->heads, s->seq, s->dim },
			      (int64_t[]){ s->heads * s->seq * s->dim, s->seq * s->dim, s->dim, 1 }, NULL);
	matmul(g, a, b, full, x->len, NULL, x->len);
	if (!s->unfinished)
		reduce(g, CUDNN_REDUCE_TENSOR_ADD, full, rows(g, x, BF16, id, s->kv, ld, off, false));
}

/* D, the row sums of do o (element by element). */
static struct tensor row_sums(struct fo_dnn_graph *g, const struct operands *x, struct tensor d_o)
{
	const struct fo_dnn_shape *s = x->s;
	struct tensor o = rows(g, x, BF16, FO_DNN_O, s->heads, s->ld[FO_DNN_O], x->off[FO_DNN_O], false),
		      one = scalar(g, FO_DNN_ONE);
	struct tensor both = tensor(g, F32, 0, o.dim,
				    (int64_t[]){ s->heads * s->seq * s->dim, s->seq * s->dim, s->heads * s->dim, 1 },
				    NULL);
	struct tensor sum = column(g, x), out;
	if (s->ragged)
		out = per_row(g, x, FO_DNN_ROWSUM, s->ld[FO_DNN_LSE], x->off[FO_DNN_LSE]);
	else
		out = tensor(g, F32, FO_DNN_ROWSUM, sum.dim, sum.stride, NULL);
	pointwise_to(g, CUDNN_POINTWISE_MUL, F32, d_o, &o, NULL, both, 0);
	reduce(g, CUDNN_REDUCE_TENSOR_ADD, both, sum);
	return pointwise_to(g, CUDNN_POINTWISE_MUL, F32, sum, &one, NULL, out, 0);
}

static void compose_backward(struct fo_dnn_graph *g, const struct fo_dnn_shape *s)
{
	const struct operands x = operands(g, s);
	const int64_t *ld = s->ld;
	const int64_t across[4] = { s->batch, s->heads, s->seq, s->seq },
		      across_stride[4] = { s->heads * s->seq * s->seq, s->seq * s->seq, 1, s->seq };
	const int64_t flat[4] = { s->heads * s->seq * s->dim, s->seq * s->dim, s->dim, 1 };
	struct tensor vt = rows(g, &x, BF16, FO_DNN_V, s->kv, ld[FO_DNN_V], x.off[FO_DNN_V], true);
	struct tensor d_o = rows(g, &x, BF16, FO_DNN_DO, s->heads, ld[FO_DNN_DO], x.off[FO_DNN_O], false);
	struct tensor rowsum = row_sums(g, &x, d_o);

	/* P from the stored log-sum-exp; dV = P' dO */
	struct tensor less = binary(g, CUDNN_POINTWISE_SUB, scores(g, &x), x.lse);
	struct tensor p = unary(g, CUDNN_POINTWISE_EXP, masked(g, &x, less));
	struct tensor pt = reshape(g, p, tensor(g, BF16, 0, across, across_stride, NULL));
	matmul_by_kv_head(g, &x, pt, d_o, FO_DNN_DV, FO_DNN_DV_FULL, x.off[FO_DNN_V]);

	/* dS = P o (dO V' - D) scale; dK = dS' Q */
	struct tensor dp = like(g, p, F32);
	matmul(g, d_o, vt, dp, x.len, x.len, NULL);
	struct tensor ds = binary(g, CUDNN_POINTWISE_MUL,
				  binary(g, CUDNN_POINTWISE_MUL, binary(g, CUDNN_POINTWISE_SUB, dp, rowsum), p),
				  x.scale);
	struct tensor dst = reshape(g, ds, tensor(g, BF16, 0, across, across_stride, NULL));
	matmul_by_kv_head(g, &x, dst, x.q, FO_DNN_DK, FO_DNN_DK_FULL, x.off[FO_DNN_K]);

	/* dQ = dS K, summed in fp32 over blocks of keys in the order in which they end, so the bits differ from run to
	 * run. The order could be fixed by leaving the sum out, at the cost of 4.4 GB of workspace at 8,192 tokens and
	 * 69 GB at 32,768. */
	struct tensor k = reshape(g, x.kt, rows(g, &x, BF16, 0, s->kv, ld[FO_DNN_K], x.off[FO_DNN_K], false));
	struct tensor sum = s->ragged ? rows(g, &x, F32, FO_DNN_DQ_SUM, s->heads, ld[FO_DNN_DQ], x.off[FO_DNN_Q], false)
				      : tensor(g, F32, FO_DNN_DQ_SUM, x.q.dim, flat, NULL);
	matmul(g, ds, k, sum, x.len, NULL, x.len);
	if (!s->unfinished)
		pointwise_to(g, CUDNN_POINTWISE_IDENTITY, F32, sum, NULL, NULL,
			     rows(g, &x, BF16, FO_DNN_DQ, s->heads, ld[FO_DNN_DQ], x.off[FO_DNN_Q], false), 0);
}

fo_status fo_dnn_graph_new(struct fo_dnn_graph *g, const struct fo_cudnn_calls *dnn, cudnnHandle_t handle,
			   const struct fo_dnn_shape *s)
{
	*g = (struct fo_dnn_graph){ .dnn = dnn, .next = FIRST_INTERMEDIATE };
	if (s->backward)
		compose_backward(g, s);
	else
		compose_forward(g, s);
	desc d = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
	SET(g, d, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, g->ops, g->op);
	if (handle)
		SET(g, d, OPERATIONGRAPH_HANDLE, HANDLE, 1, &handle);
	finalize(g, d);
	g->graph = d;
	if (g->failed != FO_OK)
		fo_dnn_graph_free(g);
	return g->failed;
}

void fo_dnn_graph_free(struct fo_dnn_graph *g)
{
	while (g->owns)
		g->dnn->cudnnBackendDestroyDescriptor(g->owned[--g->owns]);
}

/* ---- plans ---- */

/* A plan describes itself as JSON: `"kernelName":"..."`; the first of its kernels is the one that computes. */
static void kernel_name(const struct fo_cudnn_calls *dnn, desc plan, char *out, size_t size)
{
	static const char key[] = "\"kernelName\":\"";
	int64_t n = 0;
	*out = 0;
	if (dnn->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &n,
					  NULL) != CUDNN_STATUS_SUCCESS ||
	    n <= 0)
		return;
	char *text = fo_xmalloc((size_t)n + 1);
	if (dnn->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, n, &n,
					  text) == CUDNN_STATUS_SUCCESS) {
		text[n] = 0;
		const char *at = strstr(text, key);
		if (at) {
			at += sizeof key - 1;
			snprintf(out, size, "%.*s", (int)strcspn(at, "\""), at);
		}
	}
	free(text);
}

/* The device generation in a kernel's name ("..._sm90_flash_...": 9). 0: the name has none. */
static int generation_of(const char *kernel)
{
	const char *at = strstr(kernel, "_sm");
	return at ? atoi(at + 3) / 10 : 0;
}

struct choice {
	desc heuristic, config, engine;
};
static fo_status choose(struct choice *c, const struct fo_dnn_graph *g, desc properties, int *configs, int64_t *engine)
{
	const struct fo_cudnn_calls *d = g->dnn;
	const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
	desc graph = g->graph;
	int64_t n = 0;
#define TRY(call) FO_TRY(fo_dnn_check(d, d->call, "plan attention"))
	TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &c->heuristic));
	TRY(cudnnBackendSetAttribute(c->heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR,
				     1, &graph));
	TRY(cudnnBackendSetAttribute(c->heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
	if (properties)
		TRY(cudnnBackendSetAttribute(c->heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
					     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties));
	TRY(cudnnBackendFinalize(c->heuristic));
	TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &c->config));
	TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &c->engine));
	TRY(cudnnBackendGetAttribute(c->heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
				     &c->config));
	*configs = (int)n;
	if (n < 1)
		return fo_fail(FO_EUNSUPPORTED, "cuDNN has no engine for this attention on this device");
	TRY(cudnnBackendGetAttribute(c->config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
				     &c->engine));
	TRY(cudnnBackendGetAttribute(c->engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, engine));
	return FO_OK;
}

static fo_status compile(struct fo_dnn_plan *p, const struct fo_cudnn_calls *d, desc config, cudnnHandle_t handle,
			 int generation)
{
	TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &p->plan));
	if (handle)
		TRY(cudnnBackendSetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
	TRY(cudnnBackendSetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
				     &config));
	TRY(cudnnBackendFinalize(p->plan));
	TRY(cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, NULL,
				     &p->workspace));
	kernel_name(d, p->plan, p->kernel, sizeof p->kernel);
	int made_for = generation_of(p->kernel);
	if (made_for && made_for < generation)
		return fo_fail(
			FO_EUNSUPPORTED,
			"cuDNN would run attention by a kernel of generation %d on a device of generation %d: '%s'",
			made_for, generation, p->kernel);
	return FO_OK;
}
#undef TRY

fo_status fo_dnn_plan_new(struct fo_dnn_plan *p, const struct fo_dnn_graph *g, cudnnHandle_t handle, desc properties,
			  int generation)
{
	struct choice c = { 0 };
	*p = (struct fo_dnn_plan){ .engine = -1 };
	fo_status st = choose(&c, g, properties, &p->configs, &p->engine);
	if (st == FO_OK)
		st = compile(p, g->dnn, c.config, handle, generation);
	memcpy(p->used, g->used, sizeof p->used);
	const desc mine[] = { c.engine, c.config, c.heuristic };
	for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
		if (mine[i])
			g->dnn->cudnnBackendDestroyDescriptor(mine[i]);
	if (st != FO_OK)
		fo_dnn_plan_free(p, g->dnn);
	return st;
}

void fo_dnn_plan_free(struct fo_dnn_plan *p, const struct fo_cudnn_calls *dnn)
{
	if (p->plan)
		dnn->cudnnBackendDestroyDescriptor(p->plan);
	p->plan = NULL;
}
