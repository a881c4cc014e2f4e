/* Step 2: causal attention through cuDNN's graph API, from plain C. Small shapes, forward and backward, against double
 * precision on the host: heads of their own, grouped queries, one fused QKV buffer, packed documents. Then times at
 * 8,192 and 32,768 tokens. Exit 77 without a CUDA device.
 *
 *   probe_attention [DEVICEPROP-OUT.json]     prints the device's properties as cuDNN sees them, for use without a
 * device probe_attention --plan DEVICEPROP.json    no device: builds every graph and asks the heuristic for an engine
 *
 * The graphs are composed of products, pointwise operations, reductions and reshapes, the form that cuDNN's own front
 * end emits and its engines recognise as attention. K goes in transposed, in the backward graph V too. */
#include "probe_util.h"

#include <cudnn.h>
#include <stdbool.h>
#include <time.h>

typedef cudnnBackendDescriptor_t desc;
enum {
	MIN_CUDNN = 91800
}; /* before 9.18, packed backward left NaN on this generation (transformer-engine issue 2186) */
static int failures;
static cudnnHandle_t handle;   /* NULL with --plan */
static desc device_properties; /* NULL with a device */

#define DNN(call) dnn((call), #call, __LINE__)
static bool dnn(cudnnStatus_t s, const char *what, int line)
{
	if (s == CUDNN_STATUS_SUCCESS)
		return true;
	char text[1024] = "";
	cudnnGetLastErrorString(text, sizeof text);
	printf("    line %d: %s: %s: %s\n", line, what, cudnnGetErrorString(s), text);
	failures++;
	return false;
}

static desc make(cudnnBackendDescriptorType_t type)
{
	desc d = NULL;
	DNN(cudnnBackendCreateDescriptor(type, &d));
	return d;
}
#define SET(d, name, type, count, values) \
	DNN(cudnnBackendSetAttribute(d, CUDNN_ATTR_##name, CUDNN_TYPE_##type, count, values))
#define SET_DESC(d, name, value)                          \
	do {                                              \
		desc v_ = (value);                        \
		SET(d, name, BACKEND_DESCRIPTOR, 1, &v_); \
	} while (0)

/* Identifiers that host and graph share; intermediates count from FIRST_FREE. */
enum {
	Q_ = 1,
	K_,
	V_,
	O_,
	STATS,
	DO_,
	DQ_,
	DK_,
	DV_,
	ROWSUM,
	DQ_SUM,
	DK_FULL,
	DV_FULL,
	SCALE,
	MINUS_INF,
	ONE,
	LENGTH,
	OFFSET_Q,
	OFFSET_K,
	OFFSET_STATS,
	IDS,
	FIRST_FREE = 100
};

struct shape {
	int64_t b, h, k, s, d;
	bool fused, packed;
};
struct tensor {
	desc d;
	int64_t dim[4], stride[4];
};
struct graph {
	desc op[48];
	int ops;
	int64_t next;
	struct shape at;
	desc plan;
	int64_t workspace;
};

static struct tensor tensor(struct graph *g, cudnnDataType_t type, int64_t id, const int64_t dim[4],
			    const int64_t stride[4], desc ragged)
{
	struct tensor t = { .d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR) };
	bool yes = true;
	int64_t align = 16, uid = id ? id : g->next++;
	memcpy(t.dim, dim, sizeof t.dim);
	memcpy(t.stride, stride, sizeof t.stride);
	SET(t.d, TENSOR_DATA_TYPE, DATA_TYPE, 1, &type);
	SET(t.d, TENSOR_DIMENSIONS, INT64, 4, dim);
	SET(t.d, TENSOR_STRIDES, INT64, 4, stride);
	SET(t.d, TENSOR_UNIQUE_ID, INT64, 1, &uid);
	SET(t.d, TENSOR_BYTE_ALIGNMENT, INT64, 1, &align);
	if (!id)
		SET(t.d, TENSOR_IS_VIRTUAL, BOOLEAN, 1, &yes);
	if (id == SCALE || id == MINUS_INF || id == ONE)
		SET(t.d, TENSOR_IS_BY_VALUE, BOOLEAN, 1, &yes);
	if (ragged)
		SET_DESC(t.d, TENSOR_RAGGED_OFFSET_DESC, ragged);
	DNN(cudnnBackendFinalize(t.d));
	return t;
}

#define F32 CUDNN_DATA_FLOAT
#define BF16 CUDNN_DATA_BFLOAT16
static const int64_t unit[4] = { 1, 1, 1, 1 };

static struct tensor like(struct graph *g, struct tensor t, cudnnDataType_t type)
{
	return tensor(g, type, 0, t.dim, t.stride, NULL);
}
static struct tensor column(struct graph *g) /* one value per query and head */
{
	struct shape s = g->at;
	return tensor(g, F32, 0, (int64_t[]){ s.b, s.h, s.s, 1 }, (int64_t[]){ s.h * s.s, s.s, 1, 1 }, NULL);
}

static void add(struct graph *g, desc op)
{
	DNN(cudnnBackendFinalize(op));
	g->op[g->ops++] = op;
}

static struct tensor pointwise_to(struct graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t math, struct tensor x,
				  const struct tensor *b, const struct tensor *t, struct tensor y, int64_t axis)
{
	desc p = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR), o = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
	SET(p, POINTWISE_MODE, POINTWISE_MODE, 1, &mode);
	SET(p, POINTWISE_MATH_PREC, DATA_TYPE, 1, &math);
	if (mode == CUDNN_POINTWISE_GEN_INDEX)
		SET(p, POINTWISE_AXIS, INT64, 1, &axis);
	DNN(cudnnBackendFinalize(p));
	SET_DESC(o, OPERATION_POINTWISE_PW_DESCRIPTOR, p);
	SET_DESC(o, OPERATION_POINTWISE_XDESC, x.d);
	SET_DESC(o, OPERATION_POINTWISE_YDESC, y.d);
	if (b)
		SET_DESC(o, OPERATION_POINTWISE_BDESC, b->d);
	if (t)
		SET_DESC(o, OPERATION_POINTWISE_TDESC, t->d);
	add(g, o);
	return y;
}

static struct tensor binary(struct graph *g, cudnnPointwiseMode_t mode, struct tensor x, struct tensor b)
{
	return pointwise_to(g, mode, F32, x, &b, NULL, like(g, x, F32), 0);
}

static struct tensor unary(struct graph *g, cudnnPointwiseMode_t mode, struct tensor x)
{
	return pointwise_to(g, mode, F32, x, NULL, NULL, like(g, x, F32), 0);
}

static void reduce(struct graph *g, cudnnReduceTensorOp_t mode, struct tensor x, struct tensor y)
{
	desc r = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR), o = make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
	cudnnDataType_t f32 = F32;
	SET(r, REDUCTION_COMP_TYPE, DATA_TYPE, 1, &f32);
	SET(r, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1, &mode);
	DNN(cudnnBackendFinalize(r));
	SET_DESC(o, OPERATION_REDUCTION_DESC, r);
	SET_DESC(o, OPERATION_REDUCTION_XDESC, x.d);
	SET_DESC(o, OPERATION_REDUCTION_YDESC, y.d);
	add(g, o);
}

/* m, n, k: which dimensions have a length per document; NULL where all are full */
static void product(struct graph *g, struct tensor a, struct tensor b, struct tensor c, desc m, desc n, desc k)
{
	desc p = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR), o = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
	cudnnDataType_t f32 = F32;
	SET(p, MATMUL_COMP_TYPE, DATA_TYPE, 1, &f32);
	DNN(cudnnBackendFinalize(p));
	SET_DESC(o, OPERATION_MATMUL_ADESC, a.d);
	SET_DESC(o, OPERATION_MATMUL_BDESC, b.d);
	SET_DESC(o, OPERATION_MATMUL_CDESC, c.d);
	SET_DESC(o, OPERATION_MATMUL_DESC, p);
	if (m)
		SET_DESC(o, OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, m);
	if (n)
		SET_DESC(o, OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, n);
	if (k)
		SET_DESC(o, OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, k);
	add(g, o);
}

static struct tensor reshape(struct graph *g, struct tensor x, struct tensor y)
{
	desc o = make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
	SET_DESC(o, OPERATION_RESHAPE_XDESC, x.d);
	SET_DESC(o, OPERATION_RESHAPE_YDESC, y.d);
	add(g, o);
	return y;
}

/* The operands that both graphs share. */
struct operands {
	struct tensor q, k, kt, v, vt, o, stats, scale, minus_inf, length;
	desc rag_q, rag_k, rag_stats, len;
	int64_t q_dim[4], q_stride[4], k_dim[4], k_stride[4], t_dim[4], t_stride[4], out_stride[4], stats_dim[4],
		stats_stride[4];
};

static struct operands operands(struct graph *g)
{
	struct shape s = g->at;
	int64_t q_row = s.h * s.d, k_row = s.k * s.d;
	if (s.fused)
		q_row = k_row = (s.h + 2 * s.k) * s.d;
	struct operands x = {
		.q_dim = { s.b, s.h, s.s, s.d },
		.q_stride = { s.s * q_row, s.d, q_row, 1 },
		.k_dim = { s.b, s.k, s.s, s.d },
		.k_stride = { s.s * k_row, s.d, k_row, 1 },
		.t_dim = { s.b, s.k, s.d, s.s },
		.t_stride = { s.s * k_row, s.d, 1, k_row },
		.out_stride = { s.s * s.h * s.d, s.d, s.h * s.d, 1 },
		.stats_dim = { s.b, s.h, s.s, 1 },
		.stats_stride = { s.h * s.s, s.s, 1, 1 },
	};
	if (s.packed) {
		int64_t per_document[4] = { s.b, 1, 1, 1 }, offsets[4] = { s.b + 1, 1, 1, 1 };
		x.rag_q = tensor(g, CUDNN_DATA_INT32, OFFSET_Q, offsets, unit, NULL).d;
		x.rag_k = tensor(g, CUDNN_DATA_INT32, OFFSET_K, offsets, unit, NULL).d;
		x.rag_stats = tensor(g, CUDNN_DATA_INT32, OFFSET_STATS, offsets, unit, NULL).d;
		x.length = tensor(g, CUDNN_DATA_INT32, LENGTH, per_document, unit, NULL);
		x.len = x.length.d;
		memcpy(x.stats_stride, (int64_t[4]){ s.s * s.h, 1, s.h, 1 }, sizeof x.stats_stride);
	}
	x.q = tensor(g, BF16, Q_, x.q_dim, x.q_stride, x.rag_q);
	x.kt = tensor(g, BF16, K_, x.t_dim, x.t_stride, x.rag_k);
	x.o = tensor(g, BF16, O_, x.q_dim, x.out_stride, x.rag_q);
	x.stats = tensor(g, F32, STATS, x.stats_dim, x.stats_stride, x.rag_stats);
	x.scale = tensor(g, F32, SCALE, unit, unit, NULL);
	x.minus_inf = tensor(g, F32, MINUS_INF, unit, unit, NULL);
	return x;
}

static struct tensor select_where(struct graph *g, const struct operands *x, struct tensor s, struct tensor mask)
{
	return pointwise_to(g, CUDNN_POINTWISE_BINARY_SELECT, F32, s, &x->minus_inf, &mask, like(g, s, F32), 0);
}

static struct tensor position(struct graph *g, struct tensor s, int64_t axis)
{
	return pointwise_to(g, CUDNN_POINTWISE_GEN_INDEX, F32, s, NULL, NULL, like(g, s, CUDNN_DATA_INT32), axis);
}

static struct tensor compare(struct graph *g, cudnnPointwiseMode_t mode, struct tensor a, struct tensor b)
{
	return pointwise_to(g, mode, CUDNN_DATA_BOOLEAN, a, &b, NULL, like(g, a, CUDNN_DATA_BOOLEAN), 0);
}

/* Keeps what lies inside the document. */
static struct tensor mask_padding(struct graph *g, const struct operands *x, struct tensor s)
{
	struct tensor row = compare(g, CUDNN_POINTWISE_CMP_LT, position(g, s, 2), x->length);
	struct tensor col = compare(g, CUDNN_POINTWISE_CMP_LT, position(g, s, 3), x->length);
	return select_where(g, x, s, compare(g, CUDNN_POINTWISE_LOGICAL_AND, row, col));
}

static struct tensor mask_causal(struct graph *g, const struct operands *x, struct tensor s)
{
	struct tensor row = position(g, s, 2), col = position(g, s, 3);
	return select_where(g, x, s, compare(g, CUDNN_POINTWISE_CMP_GE, row, col));
}

/* scale Q K', documents masked */
static struct tensor scores(struct graph *g, const struct operands *x)
{
	struct shape s = g->at;
	struct tensor raw = tensor(g, F32, 0, (int64_t[]){ s.b, s.h, s.s, s.s },
				   (int64_t[]){ s.h * s.s * s.s, s.s * s.s, s.s, 1 }, NULL);
	product(g, x->q, x->kt, raw, x->len, x->len, NULL);
	return binary(g, CUDNN_POINTWISE_MUL, raw, x->scale);
}

/* Backward after the log-sum-exp is subtracted: that of rows behind a document's end is whatever lies in memory. */
static struct tensor masked(struct graph *g, const struct operands *x, struct tensor s)
{
	return mask_causal(g, x, g->at.packed ? mask_padding(g, x, s) : s);
}

static void compose_forward(struct graph *g)
{
	struct operands x = operands(g);
	struct tensor v = tensor(g, BF16, V_, x.k_dim, x.k_stride, x.rag_k);
	struct tensor s = masked(g, &x, scores(g, &x)), max = column(g), sum = column(g);
	reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, max);
	struct tensor e = unary(g, CUDNN_POINTWISE_EXP, binary(g, CUDNN_POINTWISE_SUB, s, max));
	reduce(g, CUDNN_REDUCE_TENSOR_ADD, e, sum);
	struct tensor log_sum = unary(g, CUDNN_POINTWISE_LOG, sum);
	pointwise_to(g, CUDNN_POINTWISE_ADD, F32, max, &log_sum, NULL, x.stats, 0);
	struct tensor p = pointwise_to(g, CUDNN_POINTWISE_DIV, F32, e, &sum, NULL, like(g, e, BF16), 0);
	product(g, p, v, x.o, x.len, NULL, x.len);
}

/* sum over the query heads that share a kv head */
static void product_by_kv_head(struct graph *g, const struct operands *x, struct tensor a, struct tensor b,
			       int64_t full_id, struct tensor out)
{
	struct shape s = g->at;
	if (s.h == s.k) {
		product(g, a, b, out, x->len, NULL, x->len);
		return;
	}
	/* Packed: a real buffer, so that its size follows the tokens and not documents x longest document. It takes the
	 * offsets of K; cuDNN multiplies them by h / k itself, as it does for its front end. */
	int64_t row = s.h * s.d, flat[4] = { s.h * s.s * s.d, s.s * s.d, s.d, 1 },
		by_token[4] = { s.s * row, s.d, row, 1 };
	struct tensor full = s.packed ? tensor(g, BF16, full_id, x->q_dim, by_token, x->rag_k)
				      : tensor(g, BF16, 0, x->q_dim, flat, NULL);
	product(g, a, b, full, x->len, NULL, x->len);
	reduce(g, CUDNN_REDUCE_TENSOR_ADD, full, out);
}

static void compose_backward(struct graph *g)
{
	struct shape s = g->at;
	struct operands x = operands(g);
	int64_t flat[4] = { s.h * s.s * s.d, s.s * s.d, s.d, 1 }, across_dim[4] = { s.b, s.h, s.s, s.s };
	int64_t across_stride[4] = { s.h * s.s * s.s, s.s * s.s, 1, s.s };
	struct tensor vt = tensor(g, BF16, V_, x.t_dim, x.t_stride, x.rag_k),
		      d_o = tensor(g, BF16, DO_, x.q_dim, x.out_stride, x.rag_q);
	struct tensor dq = tensor(g, BF16, DQ_, x.q_dim, x.q_stride, x.rag_q),
		      dk = tensor(g, BF16, DK_, x.k_dim, x.k_stride, x.rag_k);
	struct tensor dv = tensor(g, BF16, DV_, x.k_dim, x.k_stride, x.rag_k),
		      one = tensor(g, F32, ONE, unit, unit, NULL);

	/* row sums of dO o O */
	struct tensor sum = column(g), rowsum = tensor(g, F32, ROWSUM, x.stats_dim, x.stats_stride, x.rag_stats);
	struct tensor both = tensor(g, F32, 0, x.q_dim, flat, NULL);
	pointwise_to(g, CUDNN_POINTWISE_MUL, F32, d_o, &x.o, NULL, both, 0);
	reduce(g, CUDNN_REDUCE_TENSOR_ADD, both, sum);
	pointwise_to(g, CUDNN_POINTWISE_MUL, F32, sum, &one, NULL, rowsum, 0);

	/* P from the stored log-sum-exp; dV = P' dO */
	struct tensor less = binary(g, CUDNN_POINTWISE_SUB, scores(g, &x), x.stats);
	struct tensor p = unary(g, CUDNN_POINTWISE_EXP, masked(g, &x, less));
	struct tensor pt = reshape(g, p, tensor(g, BF16, 0, across_dim, across_stride, NULL));
	product_by_kv_head(g, &x, pt, d_o, DV_FULL, dv);

	/* dS = P o (dO V' - row sum) scale; dK = dS' Q */
	struct tensor dp = like(g, p, F32);
	product(g, d_o, vt, dp, x.len, x.len, NULL);
	struct tensor ds = binary(g, CUDNN_POINTWISE_MUL,
				  binary(g, CUDNN_POINTWISE_MUL, binary(g, CUDNN_POINTWISE_SUB, dp, rowsum), p),
				  x.scale);
	struct tensor dst = reshape(g, ds, tensor(g, BF16, 0, across_dim, across_stride, NULL));
	product_by_kv_head(g, &x, dst, x.q, DK_FULL, dk);

	/* dQ = dS K, summed in fp32 over the blocks of keys */
	struct tensor k = reshape(g, x.kt, tensor(g, BF16, 0, x.k_dim, x.k_stride, x.rag_k));
	struct tensor dq_sum = tensor(g, F32, DQ_SUM, x.q_dim, s.packed ? x.q_stride : flat, x.rag_q);
	product(g, ds, k, dq_sum, x.len, NULL, x.len);
	pointwise_to(g, CUDNN_POINTWISE_IDENTITY, F32, dq_sum, NULL, NULL, dq, 0);
}

/* Graph, heuristic, first engine, plan. Returns false where one of them is refused. */
static bool build(struct graph *g, const char *name)
{
	int before = failures;
	desc graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
	     heuristic = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	SET(graph, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, g->ops, g->op);
	if (handle)
		SET(graph, OPERATIONGRAPH_HANDLE, HANDLE, 1, &handle);
	if (failures != before || !DNN(cudnnBackendFinalize(graph)))
		return false;
	cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
	SET_DESC(heuristic, ENGINEHEUR_OPERATION_GRAPH, graph);
	SET(heuristic, ENGINEHEUR_MODE, HEUR_MODE, 1, &mode);
	if (device_properties)
		SET_DESC(heuristic, ENGINEHEUR_DEVICEPROP, device_properties);
	if (!DNN(cudnnBackendFinalize(heuristic)))
		return false;
	desc config = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR), engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	int64_t n = 0, index = -1;
	if (!DNN(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
					  &n, &config)) ||
	    n < 1) {
		printf("    %s: no engine for this graph\n", name);
		failures++;
		return false;
	}
	DNN(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
				     &engine));
	DNN(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &index));
	g->plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	SET_DESC(g->plan, EXECUTION_PLAN_ENGINE_CONFIG, config);
	if (handle)
		SET(g->plan, EXECUTION_PLAN_HANDLE, HANDLE, 1, &handle);
	if (!DNN(cudnnBackendFinalize(g->plan)))
		return false;
	DNN(cudnnBackendGetAttribute(g->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
				     &g->workspace));
	printf("    %s: %d operations, engine %lld, workspace %.1f MiB\n", name, g->ops, (long long)index,
	       (double)g->workspace / 1048576);
	return failures == before;
}

static bool build_both(struct shape s, struct graph *forward, struct graph *backward)
{
	*forward = (struct graph){ .next = FIRST_FREE, .at = s };
	*backward = *forward;
	compose_forward(forward);
	compose_backward(backward);
	return build(forward, "forward") && build(backward, "backward");
}

/* ---- running ---- */

struct call {
	struct graph *g;
	void *pointer[IDS];
	void *workspace;
	desc pack;
};

static void prepare(struct call *c, const int *ids, int n)
{
	int64_t uid[IDS];
	void *pointer[IDS];
	for (int i = 0; i < n; i++) {
		uid[i] = ids[i];
		pointer[i] = c->pointer[ids[i]];
	}
	c->pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
	SET(c->pack, VARIANT_PACK_DATA_POINTERS, VOID_PTR, n, pointer);
	SET(c->pack, VARIANT_PACK_UNIQUE_IDS, INT64, n, uid);
	SET(c->pack, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, &c->workspace);
	DNN(cudnnBackendFinalize(c->pack));
}

static void run_call(void *arg)
{
	struct call *c = arg;
	DNN(cudnnBackendExecute(handle, c->g->plan, c->pack));
}

/* Host and device copies of everything; rows are tokens. */
struct data {
	struct shape s;
	int64_t tokens, q_row, k_row; /* elements from one token to the next */
	const int *start;             /* documents: tokens start[i] to start[i + 1] */
	int documents;
	uint16_t *q, *k, *v, *d_o; /* host, row strides q_row, k_row, k_row, h d */
	void *device[IDS];
	float scale, minus_inf, one;
};

/* Not a number, with as much behind it: what tiles read behind the last document, or before it was written, must not
 * reach a result. */
enum { TAIL = 256 /* rows: the longest tile, and then some */ };
static void *on_device(size_t bytes)
{
	void *p;
	CUDA(cudaMalloc(&p, bytes ? bytes : 16));
	CUDA(cudaMemset(p, 0xff, bytes ? bytes : 16));
	return p;
}

static uint16_t *random_bf16(int64_t n, uint64_t seed)
{
	uint16_t *p = malloc((size_t)n * sizeof *p);
	if (!p) {
		printf("failed: no host memory\n");
		exit(1);
	}
	for (int64_t i = 0; i < n; i++)
		p[i] = to_bf16((float)next_normal(&seed));
	return p;
}

static void fill(struct data *x)
{
	struct shape s = x->s;
	int64_t t = x->tokens, qn = s.h * s.d, kn = s.k * s.d;
	x->q_row = s.fused ? qn + 2 * kn : qn;
	x->k_row = s.fused ? x->q_row : kn;
	x->scale = 1 / sqrtf((float)s.d);
	x->minus_inf = -INFINITY;
	x->one = 1;
	void **p = x->device;
	if (s.fused) {
		x->q = random_bf16(t * x->q_row, 1);
		x->k = x->q + qn;
		x->v = x->k + kn;
		uint16_t *all = p[Q_] = on_device((size_t)(t * x->q_row) * 2),
			 *grad = p[DQ_] = on_device((size_t)((t + TAIL) * x->q_row) * 2);
		p[K_] = all + qn;
		p[V_] = all + qn + kn;
		p[DK_] = grad + qn;
		p[DV_] = grad + qn + kn;
		CUDA(cudaMemcpy(all, x->q, (size_t)(t * x->q_row) * 2, cudaMemcpyHostToDevice));
	} else {
		uint16_t **host[] = { &x->q, &x->k, &x->v };
		for (int i = 0; i < 3; i++) {
			size_t n = (size_t)(t * (i ? kn : qn));
			*host[i] = random_bf16((int64_t)n, (uint64_t)i + 1);
			p[Q_ + i] = on_device(n * 2);
			p[DQ_ + i] = on_device(n * 2);
			CUDA(cudaMemcpy(p[Q_ + i], *host[i], n * 2, cudaMemcpyHostToDevice));
		}
	}
	x->d_o = random_bf16(t * qn, 9);
	p[O_] = on_device((size_t)((t + TAIL) * qn) * 2);
	p[DO_] = on_device((size_t)((t + TAIL) * qn) * 2);
	CUDA(cudaMemcpy(p[DO_], x->d_o, (size_t)(t * qn) * 2, cudaMemcpyHostToDevice));
	p[STATS] = on_device((size_t)((t + TAIL) * s.h) * 4);
	p[ROWSUM] = on_device((size_t)((t + TAIL) * s.h) * 4);
	p[DQ_SUM] = on_device((size_t)((t + TAIL) * (x->q_row > qn ? x->q_row : qn)) * 4);
	p[DK_FULL] = on_device((size_t)((t + TAIL) * qn) * 2);
	p[DV_FULL] = on_device((size_t)((t + TAIL) * qn) * 2);
	p[SCALE] = &x->scale;
	p[MINUS_INF] = &x->minus_inf;
	p[ONE] = &x->one;
}

/* Lengths and element offsets of the documents; unused ones have length 0 and start at the end. */
static void fill_documents(struct data *x)
{
	struct shape s = x->s;
	int64_t row[3] = { s.h * s.d, s.k * s.d, s.h };
	int32_t *number = malloc((size_t)(s.b + 1) * sizeof *number);
	if (!number) {
		printf("failed: no host memory\n");
		exit(1);
	}
	for (int o = -1; o < 3; o++) {
		for (int64_t i = 0; i <= s.b; i++) {
			int start = i < x->documents ? x->start[i] : (int)x->tokens;
			number[i] = o >= 0 ? (int32_t)(start * row[o]) : i < x->documents ? x->start[i + 1] - start : 0;
		}
		void *to = x->device[o < 0 ? LENGTH : OFFSET_Q + o] = on_device((size_t)(s.b + 1) * sizeof *number);
		CUDA(cudaMemcpy(to, number, (size_t)(s.b + (o >= 0)) * sizeof *number, cudaMemcpyHostToDevice));
	}
	free(number);
}

static void release(struct data *x)
{
	for (int i = Q_; i < IDS; i++) {
		bool part = x->s.fused && (i == K_ || i == V_ || i == DK_ || i == DV_);
		if (x->device[i] && !part && i != SCALE && i != MINUS_INF && i != ONE)
			CUDA(cudaFree(x->device[i]));
	}
	free(x->q);
	if (!x->s.fused) {
		free(x->k);
		free(x->v);
	}
	free(x->d_o);
}

/* ---- reference ---- */

static double rounded(double x, bool naive) { return naive ? from_bf16(to_bf16((float)x)) : x; }

struct gradients {
	double *o, *dq, *dk, *dv;
}; /* dense: tokens x h d, tokens x k d */

/* One query row of one head, forward and backward, in double precision; with `naive`, every tensor that a plain bf16
 * implementation would store is rounded to bf16. p and dp have one element per key. */
static void reference_row(const struct data *x, struct gradients *r, int64_t first, int64_t i, int64_t head, bool naive,
			  double *p, double *dp)
{
	struct shape s = x->s;
	int64_t kv = head / (s.h / s.k), at = i * s.h * s.d + head * s.d;
	const uint16_t *q = x->q + i * x->q_row + head * s.d, *d_o = x->d_o + at;
	double max = -INFINITY, sum = 0, rowsum = 0, scale = (double)x->scale;
	for (int64_t j = first; j <= i; j++) {
		const uint16_t *k = x->k + j * x->k_row + kv * s.d, *v = x->v + j * x->k_row + kv * s.d;
		double a = 0, b = 0;
		for (int64_t c = 0; c < s.d; c++) {
			a += (double)from_bf16(q[c]) * from_bf16(k[c]);
			b += (double)from_bf16(d_o[c]) * from_bf16(v[c]);
		}
		p[j] = rounded(a * scale, naive);
		dp[j] = rounded(b, naive);
		max = p[j] > max ? p[j] : max;
	}
	for (int64_t j = first; j <= i; j++)
		sum += p[j] = exp(p[j] - max);
	for (int64_t j = first; j <= i; j++) {
		p[j] = rounded(p[j] / sum, naive);
		const uint16_t *v = x->v + j * x->k_row + kv * s.d;
		for (int64_t c = 0; c < s.d; c++)
			r->o[at + c] += p[j] * from_bf16(v[c]);
	}
	for (int64_t c = 0; c < s.d; c++) {
		r->o[at + c] = rounded(r->o[at + c], naive);
		rowsum += r->o[at + c] * from_bf16(d_o[c]);
	}
	for (int64_t j = first; j <= i; j++) {
		const uint16_t *k = x->k + j * x->k_row + kv * s.d;
		double ds = rounded(p[j] * (dp[j] - rowsum) * scale, naive);
		double *dk = r->dk + j * s.k * s.d + kv * s.d, *dv = r->dv + j * s.k * s.d + kv * s.d;
		for (int64_t c = 0; c < s.d; c++) {
			r->dq[at + c] += ds * from_bf16(k[c]);
			dk[c] += ds * from_bf16(q[c]);
			dv[c] += p[j] * from_bf16(d_o[c]);
		}
	}
}

static struct gradients reference(const struct data *x, bool naive)
{
	struct shape s = x->s;
	size_t qn = (size_t)(x->tokens * s.h * s.d), kn = (size_t)(x->tokens * s.k * s.d);
	struct gradients r = { calloc(qn, 8), calloc(qn, 8), calloc(kn, 8), calloc(kn, 8) };
	double *p = calloc((size_t)x->tokens, 16), *dp = p + x->tokens;
	if (!r.o || !r.dq || !r.dk || !r.dv || !p) {
		printf("failed: no host memory\n");
		exit(1);
	}
	for (int doc = 0; doc < x->documents; doc++)
		for (int64_t i = x->start[doc]; i < x->start[doc + 1]; i++)
			for (int64_t head = 0; head < s.h; head++)
				reference_row(x, &r, x->start[doc], i, head, naive, p, dp);
	for (size_t i = 0; naive && i < qn; i++)
		r.dq[i] = rounded(r.dq[i], true);
	for (size_t i = 0; naive && i < kn; i++) {
		r.dk[i] = rounded(r.dk[i], true);
		r.dv[i] = rounded(r.dv[i], true);
	}
	free(p);
	return r;
}

static void free_gradients(struct gradients *r)
{
	free(r->o);
	free(r->dq);
	free(r->dk);
	free(r->dv);
}

/* ||got - want|| / ||want|| of rows of `width` elements; device rows are `row` apart; got from the device or, with
 * device NULL, from `other`. */
static double distance(const void *device, int64_t row, const double *other, const double *want, int64_t tokens,
		       int64_t width)
{
	double error = 0, size = 0;
	uint16_t *host = malloc((size_t)width * 2);
	for (int64_t t = 0; t < tokens; t++) {
		if (device)
			CUDA(cudaMemcpy(host, (const uint16_t *)device + t * row, (size_t)width * 2,
					cudaMemcpyDeviceToHost));
		for (int64_t c = 0; c < width; c++) {
			double w = want[t * width + c], g = device ? from_bf16(host[c]) : other[t * width + c];
			error += (g - w) * (g - w);
			size += w * w;
		}
	}
	free(host);
	return sqrt(error / size);
}

static const int forward_ids[] = { Q_, K_, V_, O_, STATS, SCALE, MINUS_INF };
static const int backward_ids[] = { Q_, K_, V_, O_, STATS, DO_, DQ_, DK_, DV_, ROWSUM, DQ_SUM, SCALE, MINUS_INF, ONE };
static const int packed_ids[] = { LENGTH, OFFSET_Q, OFFSET_K, OFFSET_STATS };
static const int full_ids[] = { DK_FULL, DV_FULL };

static void attach(struct call *c, struct graph *g, const struct data *x, bool backward)
{
	int ids[IDS], n = 0;
	for (size_t i = 0; i < (backward ? sizeof backward_ids : sizeof forward_ids) / sizeof(int); i++)
		ids[n++] = backward ? backward_ids[i] : forward_ids[i];
	for (size_t i = 0; x->s.packed && i < sizeof packed_ids / sizeof(int); i++)
		ids[n++] = packed_ids[i];
	for (size_t i = 0; x->s.packed && backward && x->s.h != x->s.k && i < 2; i++)
		ids[n++] = full_ids[i];
	*c = (struct call){ .g = g };
	memcpy(c->pointer, x->device, sizeof c->pointer);
	c->workspace = on_device((size_t)g->workspace);
	prepare(c, ids, n);
}

static void compare_with_reference(const struct data *x)
{
	struct shape s = x->s;
	struct gradients want = reference(x, false), naive = reference(x, true);
	const struct {
		const char *name;
		int id;
		int64_t row, width;
		double *want, *naive;
	} row[] = {
		{ "o", O_, s.h * s.d, s.h * s.d, want.o, naive.o },
		{ "dq", DQ_, x->q_row, s.h * s.d, want.dq, naive.dq },
		{ "dk", DK_, x->k_row, s.k * s.d, want.dk, naive.dk },
		{ "dv", DV_, x->k_row, s.k * s.d, want.dv, naive.dv },
	};
	for (int i = 0; i < 4; i++) {
		double got = distance(x->device[row[i].id], row[i].row, NULL, row[i].want, x->tokens, row[i].width);
		double plain = distance(NULL, 0, row[i].naive, row[i].want, x->tokens, row[i].width);
		bool ok = got <= 2 * plain; /* false for NaN */
		printf("    %-2s error %.2e, naive bf16 %.2e%s\n", row[i].name, got, plain, ok ? "" : "  WRONG");
		failures += !ok;
	}
	free_gradients(&want);
	free_gradients(&naive);
}

static void test_case(const char *name, struct shape s, const int *start, int documents)
{
	printf("  %s: %lld x %lld tokens, %lld query and %lld kv heads of %lld\n", name, (long long)s.b, (long long)s.s,
	       (long long)s.h, (long long)s.k, (long long)s.d);
	struct graph forward, backward;
	if (!build_both(s, &forward, &backward) || !handle)
		return;
	struct data x = { .s = s, .start = start, .documents = documents, .tokens = start[documents] };
	struct call f, b;
	fill(&x);
	if (s.packed)
		fill_documents(&x);
	attach(&f, &forward, &x, false);
	attach(&b, &backward, &x, true);
	run_call(&f);
	run_call(&b);
	CUDA(cudaDeviceSynchronize());
	compare_with_reference(&x);
	CUDA(cudaFree(f.workspace));
	CUDA(cudaFree(b.workspace));
	release(&x);
}

static void time_case(int64_t length)
{
	enum { ROUNDS = 20 };
	struct shape s = { .b = 1, .h = 32, .k = 8, .s = length, .d = 128, .fused = true };
	int start[] = { 0, (int)length };
	struct graph forward, backward;
	printf("  time: 1 x %lld tokens, 32 query and 8 kv heads of 128, fused QKV\n", (long long)length);
	if (!build_both(s, &forward, &backward) || !handle)
		return;
	struct data x = { .s = s, .start = start, .documents = 1, .tokens = length };
	struct call call[2];
	fill(&x);
	attach(&call[0], &forward, &x, false);
	attach(&call[1], &backward, &x, true);
	double ms[2][ROUNDS];
	for (int r = -3; r < ROUNDS; r++)
		for (int i = 0; i < 2; i++) {
			double t = time_once(run_call, &call[i]);
			if (r >= 0)
				ms[i][r] = t;
		}
	/* visible pairs of a causal row block, (S + 1) S / 2; two products forward, five backward (scores are made
	 * again) */
	double pair = 2.0 * 32 * 128 * (double)length * (double)(length + 1) / 2;
	for (int i = 0; i < 2; i++) {
		double mid = median(ms[i], ROUNDS);
		printf("    %-8s median %8.3f ms, best %8.3f ms: %6.1f TFLOP/s of visible pairs\n",
		       i ? "backward" : "forward", mid, ms[i][0], (i ? 5 : 2) * pair / mid * 1e-9);
		CUDA(cudaFree(call[i].workspace));
	}
	release(&x);
}

/* ---- devices ---- */

enum { JSON_CAP = 1 << 20 };

static bool load_properties(const char *path)
{
	static char text[JSON_CAP];
	FILE *f = fopen(path, "rb");
	if (!f) {
		printf("failed: cannot read '%s'\n", path);
		return false;
	}
	size_t n = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	device_properties = make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
	return SET(device_properties, DEVICEPROP_JSON_REPRESENTATION, CHAR, (int64_t)n, text) &&
	       DNN(cudnnBackendFinalize(device_properties));
}

static void save_properties(const char *path)
{
	static char text[JSON_CAP];
	int32_t id = 0;
	int64_t n = 0;
	desc d = make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
	SET(d, DEVICEPROP_DEVICE_ID, INT32, 1, &id);
	if (!DNN(cudnnBackendFinalize(d)) || !DNN(cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
									   CUDNN_TYPE_CHAR, sizeof text - 1, &n, text)))
		return;
	printf("  DEVICEPROP %s\n", text);
	FILE *f = fopen(path, "wb");
	if (f) {
		fputs(text, f);
		fclose(f);
	}
}

int main(int argc, char **argv)
{
	bool plan_only = argc > 2 && !strcmp(argv[1], "--plan");
	int n = 0;
	if (!plan_only && (cudaGetDeviceCount(&n) != cudaSuccess || n == 0)) {
		printf("skipped: no CUDA device\n");
		return 77;
	}
	printf("cuDNN %zu (headers %d)\n", cudnnGetVersion(), CUDNN_VERSION);
	if (cudnnGetVersion() < MIN_CUDNN) {
		printf("skipped: cuDNN before 9.18 has known faults in packed backward attention\n");
		return 77;
	}
	if (plan_only ? !load_properties(argv[2]) : !DNN(cudnnCreate(&handle)))
		return 1;
	if (!plan_only && argc > 1)
		save_properties(argv[1]);
	test_case("heads of their own", (struct shape){ 2, 4, 4, 256, 64, false, false }, (const int[]){ 0, 256, 512 },
		  2);
	test_case("grouped queries", (struct shape){ 2, 8, 2, 256, 128, false, false }, (const int[]){ 0, 256, 512 },
		  2);
	test_case("grouped, fused QKV", (struct shape){ 2, 8, 2, 256, 128, true, false }, (const int[]){ 0, 256, 512 },
		  2);
	test_case("packed documents", (struct shape){ 5, 4, 4, 256, 128, false, true },
		  (const int[]){ 0, 256, 300, 302, 500 }, 4);
	test_case("packed, grouped", (struct shape){ 5, 8, 2, 256, 128, false, true },
		  (const int[]){ 0, 256, 300, 302, 500 }, 4);
	static const int empty[] = { 0, 0, 0, 200, 200, 329, 456, 456, 600 };
	test_case("empty documents in front, between and behind", (struct shape){ 16, 4, 4, 256, 128, false, true },
		  empty, 8);
	test_case("... grouped", (struct shape){ 16, 8, 2, 256, 128, false, true }, empty, 8);
	test_case("... smallest plan", (struct shape){ 16, 8, 2, 128, 128, false, true },
		  (const int[]){ 0, 0, 100, 101 + 126 }, 3);
	test_case("... largest plan", (struct shape){ 16384, 8, 2, 512, 128, false, true }, empty, 8);
	time_case(8192);
	time_case(32768);
	printf("attention: %d failures\n", failures);
	return failures != 0;
}
