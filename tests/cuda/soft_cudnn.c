/* libcudnn of the tests: runs the graphs that a program describes, operation by operation, on the software device.
 *
 * Knows what attention is composed of: products, pointwise operations, reductions, exchanges of the last two
 * dimensions, lengths and ragged offsets. It does not recognise attention: whatever the operations say is computed, in
 * double precision, rounded where the description gives a tensor another type than fp32, so that a mask the wrong way
 * round, or in the wrong place, gives wrong numbers.
 *
 * Behind a document's length. The real engines compute whole tiles, and what they find behind the length is nowhere
 * documented. Here:
 *   - a document has rows up to the next multiple of TILE, and all operations are done on all of them;
 *   - matrices in bf16 are zero there, as loads by tiles with bounds give it;
 *   - fp32 numbers per row that the caller supplies (the log-sum-exp) are NaN there;
 *   - what the graph itself computed is what it computed; nothing is stored there.
 * The second is an assumption that is kind, the third one that is not; only a device shows what is so.
 *
 * FLATOUT_SOFT_CUDNN=adds: a product into fp32 memory that no operation reads again is added to what lies there, which
 * is not a number. Whether the real one sets such a tensor to zero first is not documented. =adds-later: from a plan's
 * second run on.
 *
 * A product into fp32 memory (dQ before it is rounded) is a sum of blocks of TILE keys in fp32 in an order that is
 * drawn anew in every run: the real one adds them as its blocks end, and nobody may count on the same bits twice. */
#include "base/rng.h"
#include "cuda/soft.h"
#include "kernel/kernel.h"

#include <cudnn_backend.h>
#include <cudnn_graph.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	TILE = 16,
	ATTRIBUTES = 24,
	TENSORS = 160,
	OPS = 64,
	WORKSPACE = 4096, /* bytes that a plan asks for: filled with 0xff, never used */
	WHOLE = 128, /* without lengths, documents are of a multiple: Hopper's backward gives NaN where S % 128 = 64
			(pytorch 196678) */
	ALIGNMENT = 16,
};

static cudnnStatus_t refuse(cudnnStatus_t st, const char *format, ...) __attribute__((format(printf, 2, 3)));
static char last_error[512];
static cudnnStatus_t refuse(cudnnStatus_t st, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vsnprintf(last_error, sizeof last_error, format, list);
	va_end(list);
	if (getenv("FLATOUT_SOFT_TRACE"))
		fprintf(stderr, "software cuDNN: %s\n", last_error);
	return st;
}
/* While work runs nobody can be told: as for a kernel that breaks a rule, the process ends. */
static void fault(const char *what, int64_t at)
{
	fprintf(stderr, "software cuDNN: %s (document %lld)\n", what, (long long)at);
	abort();
}

/* ---- what is described ---- */

struct tensor {
	int64_t uid, ragged; /* ragged: identifier of its offsets; 0: none */
	int64_t dim[4], stride[4];
	cudnnDataType_t type;
	bool is_virtual, by_value, made; /* made: by an operation */
	bool seq[4];                     /* dimensions 2 and 3: of a document's length */
	int last;                        /* operation that uses it last */
};
enum op_kind { POINTWISE, REDUCTION, PRODUCT, RESHAPE };
struct op {
	enum op_kind kind;
	int mode, x, b, t, y, lengths[3]; /* tensors, by index; -1: none. Products: x, b, y; lengths of m, n, k */
	int64_t axis;
};
struct program {
	struct tensor tensor[TENSORS];
	struct op op[OPS];
	int tensors, ops, length, refs; /* length: the tensor of lengths; -1: none */
	int64_t batch, heads, kv, runs;
};

struct attribute {
	cudnnBackendAttributeName_t name;
	int64_t n;
	void *values;
};
struct descriptor {
	cudnnBackendDescriptorType_t type;
	bool final;
	struct attribute attribute[ATTRIBUTES];
	int attributes;
	struct program *program; /* of a graph and of what was made of it */
};

static struct descriptor *of(cudnnBackendDescriptor_t d) { return (struct descriptor *)(void *)d; }
static size_t type_bytes(cudnnBackendAttributeType_t t)
{
	switch (t) {
	case CUDNN_TYPE_BOOLEAN:
	case CUDNN_TYPE_CHAR: return 1;
	case CUDNN_TYPE_INT64:
	case CUDNN_TYPE_HANDLE:
	case CUDNN_TYPE_VOID_PTR:
	case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
	default: return 4; /* enumerations */
	}
}
static const struct attribute *find(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
	for (int i = 0; i < d->attributes; i++)
		if (d->attribute[i].name == name)
			return &d->attribute[i];
	return NULL;
}
static int integer(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
	const struct attribute *a = find(d, name);
	return a ? *(const int *)a->values : -1;
}
static bool flag(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
	const struct attribute *a = find(d, name);
	return a && *(const bool *)a->values;
}
static struct descriptor *child(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
	const struct attribute *a = find(d, name);
	return a ? of(*(cudnnBackendDescriptor_t *)a->values) : NULL;
}
static void drop(struct program *p)
{
	if (p && --p->refs == 0)
		free(p);
}
static struct program *keep(struct program *p)
{
	p->refs++;
	return p;
}

/* ---- tensors and operations of a graph ---- */

static int64_t uid_of(const struct descriptor *d)
{
	return *(const int64_t *)find(d, CUDNN_ATTR_TENSOR_UNIQUE_ID)->values;
}

static cudnnStatus_t check_tensor(const struct descriptor *d)
{
	const struct attribute *dim = find(d, CUDNN_ATTR_TENSOR_DIMENSIONS),
			       *stride = find(d, CUDNN_ATTR_TENSOR_STRIDES);
	if (!dim || !stride || dim->n != 4 || stride->n != 4 || !find(d, CUDNN_ATTR_TENSOR_UNIQUE_ID) ||
	    !find(d, CUDNN_ATTR_TENSOR_DATA_TYPE))
		return refuse(CUDNN_STATUS_BAD_PARAM,
			      "a tensor without type, identifier, or four dimensions and strides");
	for (int i = 0; i < 4; i++)
		if (((const int64_t *)dim->values)[i] < 1 || ((const int64_t *)stride->values)[i] < 1)
			return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor with a dimension or stride below 1");
	return CUDNN_STATUS_SUCCESS;
}
/* The tensor's place in the program; -1: there is none. */
static int place(struct program *p, const struct descriptor *d)
{
	if (!d)
		return -1;
	const int64_t uid = uid_of(d);
	for (int i = 0; i < p->tensors; i++)
		if (p->tensor[i].uid == uid)
			return i;
	struct tensor *t = &p->tensor[p->tensors];
	const struct descriptor *ragged = child(d, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC);
	*t = (struct tensor){ .uid = uid, .last = -1 };
	memcpy(t->dim, find(d, CUDNN_ATTR_TENSOR_DIMENSIONS)->values, sizeof t->dim);
	memcpy(t->stride, find(d, CUDNN_ATTR_TENSOR_STRIDES)->values, sizeof t->stride);
	t->type = (cudnnDataType_t)integer(d, CUDNN_ATTR_TENSOR_DATA_TYPE);
	t->is_virtual = flag(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
	t->by_value = flag(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
	t->ragged = ragged ? uid_of(ragged) : 0;
	p->tensors++;
	if (ragged)
		place(p, ragged);
	return (int)(t - p->tensor);
}

static bool read_op(struct program *p, const struct descriptor *d, struct op *o)
{
#define TENSOR_OF(name) place(p, child(d, CUDNN_ATTR_OPERATION_##name))
	*o = (struct op){ .b = -1, .t = -1, .lengths = { -1, -1, -1 } };
	switch (d->type) {
	case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: {
		const struct descriptor *w = child(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
		o->kind = POINTWISE;
		o->mode = integer(w, CUDNN_ATTR_POINTWISE_MODE);
		o->axis = find(w, CUDNN_ATTR_POINTWISE_AXIS) ? *(int64_t *)find(w, CUDNN_ATTR_POINTWISE_AXIS)->values
							     : 0;
		o->x = TENSOR_OF(POINTWISE_XDESC);
		o->b = TENSOR_OF(POINTWISE_BDESC);
		o->t = TENSOR_OF(POINTWISE_TDESC);
		o->y = TENSOR_OF(POINTWISE_YDESC);
		break;
	}
	case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
		o->kind = REDUCTION;
		o->mode = integer(child(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC), CUDNN_ATTR_REDUCTION_OPERATOR);
		o->x = TENSOR_OF(REDUCTION_XDESC);
		o->y = TENSOR_OF(REDUCTION_YDESC);
		break;
	case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
		o->kind = PRODUCT;
		o->x = TENSOR_OF(MATMUL_ADESC);
		o->b = TENSOR_OF(MATMUL_BDESC);
		o->y = TENSOR_OF(MATMUL_CDESC);
		o->lengths[0] = TENSOR_OF(MATMUL_GEMM_M_OVERRIDE_DESC);
		o->lengths[1] = TENSOR_OF(MATMUL_GEMM_N_OVERRIDE_DESC);
		o->lengths[2] = TENSOR_OF(MATMUL_GEMM_K_OVERRIDE_DESC);
		break;
	case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
		o->kind = RESHAPE;
		o->x = TENSOR_OF(RESHAPE_XDESC);
		o->y = TENSOR_OF(RESHAPE_YDESC);
		break;
	default: return false;
	}
	return o->x >= 0 && o->y >= 0;
}

static bool known(const struct op *o)
{
	static const int pointwise[] = { CUDNN_POINTWISE_ADD,          CUDNN_POINTWISE_SUB,
					 CUDNN_POINTWISE_MUL,          CUDNN_POINTWISE_DIV,
					 CUDNN_POINTWISE_EXP,          CUDNN_POINTWISE_LOG,
					 CUDNN_POINTWISE_IDENTITY,     CUDNN_POINTWISE_GEN_INDEX,
					 CUDNN_POINTWISE_CMP_LT,       CUDNN_POINTWISE_CMP_GE,
					 CUDNN_POINTWISE_CMP_GT,       CUDNN_POINTWISE_LOGICAL_AND,
					 CUDNN_POINTWISE_BINARY_SELECT };
	if (o->kind == REDUCTION)
		return o->mode == CUDNN_REDUCE_TENSOR_ADD || o->mode == CUDNN_REDUCE_TENSOR_MAX;
	for (size_t i = 0; o->kind == POINTWISE && i < sizeof pointwise / sizeof *pointwise; i++)
		if (o->mode == pointwise[i])
			return true;
	return o->kind == PRODUCT || o->kind == RESHAPE;
}

static bool swapped(const struct tensor *x, const struct tensor *y)
{
	return x->stride[2] == y->stride[3] && x->stride[3] == y->stride[2];
}

static bool mark(bool *to, bool yes)
{
	const bool is_new = yes && !*to;
	*to |= yes;
	return is_new;
}
/* Where an operand's dimension is the length of a document, that of its neighbours is. True: something was learnt. */
static bool spread(struct program *p, const struct op *o)
{
	struct tensor *x = &p->tensor[o->x], *y = &p->tensor[o->y], *b = o->b >= 0 ? &p->tensor[o->b] : NULL,
		      *t = o->t >= 0 ? &p->tensor[o->t] : NULL;
	bool is_new = false;
	if (o->kind == PRODUCT) {
		bool *const named[3][2] = { { &x->seq[2], &y->seq[2] },
					    { &b->seq[3], &y->seq[3] },
					    { &x->seq[3], &b->seq[2] } };
		for (int i = 0; i < 6; i++)
			is_new |= mark(named[i / 2][i % 2], o->lengths[i / 2] >= 0);
		return is_new;
	}
	for (int i = 2; i < 4; i++) {
		struct tensor *all[] = { x, y, b, t };
		if (o->kind == RESHAPE) {
			const int j = swapped(x, y) ? 5 - i : i;
			is_new |= mark(&y->seq[j], x->seq[i]);
			is_new |= mark(&x->seq[i], y->seq[j]);
			continue;
		}
		bool any = false;
		for (int k = 0; k < 4; k++)
			any |= all[k] && all[k]->seq[i];
		for (int k = 0; k < 4; k++)
			is_new |= all[k] && all[k]->dim[i] > 1 && mark(&all[k]->seq[i], any);
	}
	return is_new;
}

static cudnnStatus_t check_product(const struct program *p, const struct op *o)
{
	const struct tensor *a = &p->tensor[o->x], *b = &p->tensor[o->b], *c = &p->tensor[o->y];
	if (a->dim[3] != b->dim[2] || a->dim[2] != c->dim[2] || b->dim[3] != c->dim[3] || a->dim[0] != b->dim[0] ||
	    a->dim[0] != c->dim[0])
		return refuse(CUDNN_STATUS_BAD_PARAM, "a product of shapes that do not fit each other");
	if ((a->type != CUDNN_DATA_BFLOAT16 && a->type != CUDNN_DATA_FLOAT) || b->type != CUDNN_DATA_BFLOAT16)
		return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a product of types %d and %d", (int)a->type, (int)b->type);
	if (a->dim[1] % b->dim[1] && b->dim[1] % a->dim[1])
		return refuse(CUDNN_STATUS_NOT_SUPPORTED, "%lld heads do not share %lld", (long long)a->dim[1],
			      (long long)b->dim[1]);
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_program(struct program *p)
{
	p->length = -1;
	p->kv = INT64_MAX;
	for (int i = 0; i < p->ops; i++) {
		const struct op *o = &p->op[i];
		const int used[] = { o->x, o->b, o->t, o->y };
		for (int k = 0; k < 4; k++)
			if (used[k] >= 0)
				p->tensor[used[k]].last = i;
		p->tensor[o->y].made = true;
		if (!known(o))
			return refuse(CUDNN_STATUS_NOT_SUPPORTED, "an operation that is not known here: %d, %d",
				      o->kind, o->mode);
		if (o->kind != PRODUCT)
			continue;
		cudnnStatus_t st = check_product(p, o);
		if (st != CUDNN_STATUS_SUCCESS)
			return st;
		p->batch = p->tensor[o->x].dim[0];
		for (int k = 0; k < 4; k++)
			if (used[k] >= 0) {
				const int64_t heads = p->tensor[used[k]].dim[1];
				p->heads = heads > p->heads ? heads : p->heads;
				p->kv = heads < p->kv ? heads : p->kv;
			}
		for (int k = 0; k < 3; k++)
			if (o->lengths[k] >= 0)
				p->length = o->lengths[k];
	}
	for (bool again = true; again;) {
		again = false;
		for (int i = 0; i < p->ops; i++)
			again |= spread(p, &p->op[i]);
	}
	for (int i = 0; i < p->ops; i++)
		if (p->length < 0 && p->op[i].kind == PRODUCT && p->tensor[p->op[i].y].dim[2] % WHOLE)
			return refuse(CUDNN_STATUS_NOT_SUPPORTED, "documents of %lld tokens without lengths",
				      (long long)p->tensor[p->op[i].y].dim[2]);
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t compose(struct descriptor *d)
{
	const struct attribute *a = find(d, CUDNN_ATTR_OPERATIONGRAPH_OPS);
	struct program *p = calloc(1, sizeof *p);
	if (!p)
		return CUDNN_STATUS_ALLOC_FAILED;
	p->refs = 1;
	d->program = p;
	for (int64_t i = 0; a && i < a->n; i++) {
		/* an operation has at most seven tensors, each with offsets */
		if (p->ops == OPS || p->tensors + 14 > TENSORS ||
		    !read_op(p, of(((cudnnBackendDescriptor_t *)a->values)[i]), &p->op[p->ops]))
			return refuse(CUDNN_STATUS_NOT_SUPPORTED,
				      "too many operations, or one of a kind that is not known here");
		p->ops++;
	}
	return p->ops ? check_program(p) : refuse(CUDNN_STATUS_BAD_PARAM, "a graph without operations");
}

/* ---- running: one document and one kv head, with the query heads that share it, at a time ---- */

struct run {
	struct program *p;
	void *at[TENSORS]; /* by tensor, where the caller has put it */
	double scalar[TENSORS];
	void *workspace;
	uint64_t draw;
};
struct part {
	const struct run *r;
	int64_t doc, kv, length, tile; /* length: -1: of all rows */
	double *value[TENSORS];        /* slices x extent 2 x extent 3 */
};

static const struct tensor *tensor_at(const struct part *w, int t) { return &w->r->p->tensor[t]; }
static int64_t slices(const struct part *w, int t)
{
	const struct program *p = w->r->p;
	return tensor_at(w, t)->dim[1] == p->heads && p->heads > p->kv ? p->heads / p->kv : 1;
}
static int64_t head(const struct part *w, int t, int64_t g)
{
	const int64_t n = tensor_at(w, t)->dim[1];
	return slices(w, t) > 1 ? w->kv * slices(w, t) + g : n > 1 ? w->kv : 0;
}
static int64_t extent(const struct part *w, int t, int axis)
{
	const struct tensor *x = tensor_at(w, t);
	return x->seq[axis] && w->length >= 0 ? w->tile : x->dim[axis];
}
static int64_t inside(const struct part *w, int t, int axis)
{
	const struct tensor *x = tensor_at(w, t);
	return x->seq[axis] && w->length >= 0 ? w->length : x->dim[axis];
}
static int64_t numbers(const struct part *w, int t) { return slices(w, t) * extent(w, t, 2) * extent(w, t, 3); }

static int find_uid(const struct program *p, int64_t uid)
{
	for (int i = 0; i < p->tensors; i++)
		if (p->tensor[i].uid == uid)
			return i;
	return -1;
}
/* Offsets are those of the tensor with the fewest heads that shares them; others have rows so many times as long. */
static int64_t offset_of(const struct run *r, int t, int64_t doc)
{
	const struct program *p = r->p;
	const struct tensor *x = &p->tensor[t];
	int64_t fewest = x->dim[1];
	if (!x->ragged)
		return doc * x->stride[0];
	for (int i = 0; i < p->tensors; i++)
		if (p->tensor[i].ragged == x->ragged && !p->tensor[i].is_virtual && p->tensor[i].dim[1] < fewest)
			fewest = p->tensor[i].dim[1];
	const int offsets = find_uid(p, x->ragged);
	const int64_t at = p->tensor[offsets].type == CUDNN_DATA_INT64 ? ((const int64_t *)r->at[offsets])[doc]
								       : ((const int32_t *)r->at[offsets])[doc];
	return at * (x->dim[1] / fewest);
}

static double rounded(cudnnDataType_t type, double x)
{
	switch (type) {
	case CUDNN_DATA_BFLOAT16: return fo_bf16_to_f32(fo_bf16_from_f32((float)x));
	case CUDNN_DATA_FLOAT: return x;
	default: return trunc(x);
	}
}
static double get(cudnnDataType_t type, const void *at, int64_t i)
{
	switch (type) {
	case CUDNN_DATA_BFLOAT16: return fo_bf16_to_f32(((const uint16_t *)at)[i]);
	case CUDNN_DATA_FLOAT: return ((const float *)at)[i];
	case CUDNN_DATA_INT32: return ((const int32_t *)at)[i];
	default: return NAN;
	}
}

/* Memory to values, or the other way, where the document has rows. */
static void move(struct part *w, int t, bool store)
{
	const struct tensor *x = tensor_at(w, t);
	const int64_t e2 = extent(w, t, 2), e3 = extent(w, t, 3), base = offset_of(w->r, t, w->doc);
	for (int64_t g = 0; g < slices(w, t); g++)
		for (int64_t i = 0; i < inside(w, t, 2); i++)
			for (int64_t j = 0; j < inside(w, t, 3); j++) {
				const int64_t at = base + head(w, t, g) * x->stride[1] + i * x->stride[2] +
						   j * x->stride[3];
				double *v = &w->value[t][(g * e2 + i) * e3 + j];
				if (!store)
					*v = get(x->type, w->r->at[t], at);
				else if (x->type == CUDNN_DATA_FLOAT)
					((float *)w->r->at[t])[at] = (float)*v;
				else
					((uint16_t *)w->r->at[t])[at] = fo_bf16_from_f32((float)*v);
			}
}
/* The operand's values; from memory where it lies there. */
static const double *load(struct part *w, int t)
{
	const struct tensor *x = tensor_at(w, t);
	if (!w->value[t]) {
		const int64_t n = numbers(w, t);
		w->value[t] = malloc((size_t)n * sizeof(double));
		if (!w->value[t])
			abort();
		for (int64_t i = 0; i < n; i++)
			w->value[t][i] = x->type == CUDNN_DATA_BFLOAT16 ? 0 : NAN;
		if (x->by_value)
			*w->value[t] = w->r->scalar[t];
	}
	if (!x->is_virtual && !x->by_value)
		move(w, t, false);
	return w->value[t];
}

static double apply(int mode, double x, double b, double t)
{
	switch (mode) {
	case CUDNN_POINTWISE_ADD: return x + b;
	case CUDNN_POINTWISE_SUB: return x - b;
	case CUDNN_POINTWISE_MUL: return x * b;
	case CUDNN_POINTWISE_DIV: return x / b;
	case CUDNN_POINTWISE_EXP: return exp(x);
	case CUDNN_POINTWISE_LOG: return log(x);
	case CUDNN_POINTWISE_CMP_LT: return x < b;
	case CUDNN_POINTWISE_CMP_GE: return x >= b;
	case CUDNN_POINTWISE_CMP_GT: return x > b;
	case CUDNN_POINTWISE_LOGICAL_AND: return x != 0 && b != 0;
	case CUDNN_POINTWISE_BINARY_SELECT: return t != 0 ? x : b;
	default: return x;
	}
}
/* Element (g, i, j) of a tensor that may have one instead of many. */
static int64_t element(const struct part *w, int t, int64_t g, int64_t i, int64_t j)
{
	const int64_t e2 = extent(w, t, 2), e3 = extent(w, t, 3);
	return ((slices(w, t) > 1 ? g : 0) * e2 + (e2 > 1 ? i : 0)) * e3 + (e3 > 1 ? j : 0);
}
static void pointwise(struct part *w, const struct op *o, const double *x, const double *b, const double *t, double *y)
{
	const int64_t n2 = extent(w, o->y, 2), n3 = extent(w, o->y, 3);
	const cudnnDataType_t type = tensor_at(w, o->y)->type;
	for (int64_t g = 0; g < slices(w, o->y); g++)
		for (int64_t i = 0; i < n2; i++)
			for (int64_t j = 0; j < n3; j++) {
				double v;
				if (o->mode == CUDNN_POINTWISE_GEN_INDEX)
					v = (double)(o->axis == 2 ? i : j);
				else
					v = apply(o->mode, x[element(w, o->x, g, i, j)],
						  b ? b[element(w, o->b, g, i, j)] : 0,
						  t ? t[element(w, o->t, g, i, j)] : 0);
				y[(g * n2 + i) * n3 + j] = rounded(type, v);
			}
}
static void reduction(struct part *w, const struct op *o, const double *x, double *y)
{
	const int64_t n = numbers(w, o->y);
	const bool max = o->mode == CUDNN_REDUCE_TENSOR_MAX;
	for (int64_t i = 0; i < n; i++)
		y[i] = max ? -INFINITY : 0;
	for (int64_t g = 0; g < slices(w, o->x); g++)
		for (int64_t i = 0; i < extent(w, o->x, 2); i++)
			for (int64_t j = 0; j < extent(w, o->x, 3); j++) {
				const double v = x[element(w, o->x, g, i, j)];
				double *to = &y[element(w, o->y, g, i, j)];
				*to = max ? (v > *to || isnan(v) ? v : *to) : *to + v;
			}
	for (int64_t i = 0; i < n; i++)
		y[i] = rounded(tensor_at(w, o->y)->type, y[i]);
}
/* to[0 .. n) += row i of a, elements from .. until, times b */
static void add_block(const struct part *w, const struct op *o, const double *a, const double *b, int64_t g, int64_t i,
		      int64_t from, int64_t until, double *to, int64_t n)
{
	for (int64_t l = from; l < until; l++) {
		const double f = a[element(w, o->x, g, i, l)], *row = b + element(w, o->b, g, l, 0);
		for (int64_t j = 0; j < n; j++)
			to[j] += f * row[j];
	}
}
static void product(struct part *w, const struct op *o, const double *a, const double *b, double *y)
{
	const int64_t m = extent(w, o->y, 2), n = extent(w, o->y, 3), k = extent(w, o->x, 3), many = slices(w, o->y);
	const struct tensor *c = tensor_at(w, o->y);
	const char *how = getenv("FLATOUT_SOFT_CUDNN");
	const bool blocks = !c->is_virtual && c->type == CUDNN_DATA_FLOAT;
	const bool later = how && !strcmp(how, "adds-later") && w->r->p->runs > 1;
	const bool adds = blocks && how && (later || !strcmp(how, "adds")) && &w->r->p->op[c->last] == o;
	const int64_t step = blocks ? TILE : k, steps = (k + step - 1) / step;
	double *one = malloc((size_t)n * sizeof *one);
	if (!one)
		abort();
	for (int64_t r = 0; r < many * m; r++) {
		double *to = y + r * n;
		memset(to, 0, (size_t)n * sizeof *to);
		const int64_t first = blocks ? (int64_t)(fo_rng_u64(w->r->draw, (uint64_t)r) % (uint64_t)steps) : 0;
		for (int64_t s = 0; s < steps; s++) {
			const int64_t from = (first + s) % steps * step;
			memset(one, 0, (size_t)n * sizeof *one);
			add_block(w, o, a, b, r / m, r % m, from, from + step < k ? from + step : k, one, n);
			for (int64_t j = 0; j < n; j++)
				to[j] = blocks ? (float)to[j] + (float)one[j] : one[j];
		}
		for (int64_t j = 0; j < n; j++)
			to[j] = adds ? NAN : rounded(c->type, to[j]);
	}
	free(one);
}
static void reshape(struct part *w, const struct op *o, const double *x, double *y)
{
	const int64_t n2 = extent(w, o->y, 2), n3 = extent(w, o->y, 3);
	const bool turn = swapped(tensor_at(w, o->x), tensor_at(w, o->y));
	for (int64_t g = 0; g < slices(w, o->y); g++)
		for (int64_t i = 0; i < n2; i++)
			for (int64_t j = 0; j < n3; j++)
				y[(g * n2 + i) * n3 + j] = rounded(tensor_at(w, o->y)->type,
								   x[g * n2 * n3 + (turn ? j * n2 + i : i * n3 + j)]);
}

static void run_part(struct part *w)
{
	const struct program *p = w->r->p;
	for (int i = 0; i < p->ops; i++) {
		const struct op *o = &p->op[i];
		const double *x = o->mode == CUDNN_POINTWISE_GEN_INDEX && o->kind == POINTWISE ? NULL : load(w, o->x);
		const double *b = o->b >= 0 ? load(w, o->b) : NULL, *t = o->t >= 0 ? load(w, o->t) : NULL;
		double *y = w->value[o->y] = malloc((size_t)numbers(w, o->y) * sizeof *y);
		if (!y)
			abort();
		if (o->kind == POINTWISE)
			pointwise(w, o, x, b, t, y);
		else if (o->kind == REDUCTION)
			reduction(w, o, x, y);
		else if (o->kind == PRODUCT)
			product(w, o, x, b, y);
		else
			reshape(w, o, x, y);
		if (!tensor_at(w, o->y)->is_virtual)
			move(w, o->y, true);
		for (int k = 0; k < p->tensors; k++)
			if (p->tensor[k].last == i) {
				free(w->value[k]);
				w->value[k] = NULL;
			}
	}
}

/* ---- a run: its memory, then its documents ---- */

/* Elements from a tensor's first to behind its last. */
static int64_t reach(const struct run *r, int t)
{
	const struct tensor *x = &r->p->tensor[t];
	int64_t n = 1;
	if (x->ragged)
		return offset_of(r, t, r->p->batch);
	for (int i = 0; i < 4; i++)
		n += (x->dim[i] - 1) * x->stride[i];
	return n;
}
static int64_t bytes_of(const struct run *r, int t)
{
	return reach(r, t) * (r->p->tensor[t].type == CUDNN_DATA_BFLOAT16 ? 2 : 4);
}
static bool scratch(const struct program *p, int t)
{
	const struct tensor *x = &p->tensor[t];
	bool read = false;
	for (int i = 0; i < p->ops; i++)
		read |= p->op[i].x == t || p->op[i].b == t;
	return x->made && read && !x->is_virtual;
}
/* What is written on the way, all of it, where the description says that it lies: too little memory, or memory of
 * another, shows. */
static void scribble(const struct run *r)
{
	const struct program *p = r->p;
	memset(r->workspace, 0xff, WORKSPACE);
	for (int i = 0; i < p->tensors; i++) {
		if (!scratch(p, i))
			continue;
		for (int k = 0; k < p->tensors; k++) {
			const struct tensor *other = &p->tensor[k];
			if (k == i || !r->at[k] || other->by_value ||
			    (other->type != CUDNN_DATA_BFLOAT16 && other->type != CUDNN_DATA_FLOAT))
				continue;
			if ((char *)r->at[i] < (char *)r->at[k] + bytes_of(r, k) &&
			    (char *)r->at[k] < (char *)r->at[i] + bytes_of(r, i))
				fault("a tensor that is made on the way lies in another's memory", -1);
		}
		memset(r->at[i], 0xff, (size_t)bytes_of(r, i));
	}
}
/* Documents of a ragged tensor lie one behind another, none beyond the last offset; a single token is no document for
 * the real one. */
static void check_documents(const struct run *r)
{
	const struct program *p = r->p;
	const int32_t *length = r->at[p->length];
	for (int t = 0; t < p->tensors; t++) {
		const struct tensor *x = &p->tensor[t];
		const int axis = x->seq[2] ? 2 : 3;
		for (int64_t b = 0; x->ragged && !x->is_virtual && b < p->batch; b++) {
			const int64_t from = offset_of(r, t, b), to = offset_of(r, t, b + 1), rows = x->stride[axis];
			if (length[b] < 0 || length[b] > x->dim[axis] || length[b] == 1)
				fault("a length below 0, above the longest, or of 1", b);
			if (from < 0 || from % rows || to < from + (length[b] ? length[b] * rows : 0))
				fault("offsets that are not in order, or documents that overlap", b);
		}
	}
}
static void run(void *args)
{
	static uint64_t runs;
	const char *seed = getenv("FLATOUT_SOFT_SEED");
	struct run *r = args; /* a graph's node runs again and again with the same */
	const struct program *p = r->p;
	r->p->runs++;
	r->draw = fo_rng_u64(seed ? strtoull(seed, NULL, 10) : 1, runs++);
	if (p->length >= 0)
		check_documents(r);
	scribble(r);
	for (int64_t b = 0; b < p->batch; b++) {
		const int64_t length = p->length >= 0 ? ((const int32_t *)r->at[p->length])[b] : -1;
		for (int64_t h = 0; length != 0 && h < p->kv; h++) {
			struct part w = {
				.r = r, .doc = b, .kv = h, .length = length, .tile = (length + TILE - 1) / TILE * TILE
			};
			run_part(&w);
		}
	}
}

/* ---- cuDNN's functions ---- */

struct handle {
	cudaStream_t stream;
};

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
const char *cudnnGetErrorString(cudnnStatus_t st)
{
	switch (st) {
	case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
	case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
	default: return "CUDNN_STATUS_OTHER";
	}
}
void cudnnGetLastErrorString(char *message, size_t size) { snprintf(message, size, "%s", last_error); }
/* FLATOUT_SOFT_CUDNN=0: it does not start, so that a program's own kernels are taken. */
cudnnStatus_t cudnnCreate(cudnnHandle_t *h)
{
	const char *off = getenv("FLATOUT_SOFT_CUDNN");
	if (off && !strcmp(off, "0"))
		return refuse(CUDNN_STATUS_NOT_INITIALIZED, "FLATOUT_SOFT_CUDNN=0");
	*h = calloc(1, sizeof(struct handle));
	return *h ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_ALLOC_FAILED;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t h)
{
	free(h);
	return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t stream)
{
	((struct handle *)(void *)h)->stream = stream;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d)
{
	struct descriptor *own = calloc(1, sizeof *own);
	if (!own)
		return CUDNN_STATUS_ALLOC_FAILED;
	own->type = type;
	*d = (cudnnBackendDescriptor_t)(void *)own;
	return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
	for (int i = 0; i < of(d)->attributes; i++)
		free(of(d)->attribute[i].values);
	drop(of(d)->program);
	free(d);
	return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
				       cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
	struct descriptor *o = of(d);
	struct attribute *a = (struct attribute *)(uintptr_t)find(o, name);
	const size_t bytes = (size_t)n * type_bytes(type);
	if (o->final)
		return refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d of a descriptor that is final", (int)name);
	for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < n; i++)
		if (!((const cudnnBackendDescriptor_t *)values)[i] ||
		    !of(((const cudnnBackendDescriptor_t *)values)[i])->final)
			return refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d is a descriptor that is not final",
				      (int)name);
	if (!a) {
		if (o->attributes == ATTRIBUTES)
			return refuse(CUDNN_STATUS_NOT_SUPPORTED, "more than %d attributes", (int)ATTRIBUTES);
		a = &o->attribute[o->attributes++];
	}
	free(a->values);
	*a = (struct attribute){ name, n, malloc(bytes > 8 ? bytes : 8) };
	if (!a->values)
		return CUDNN_STATUS_ALLOC_FAILED;
	memcpy(a->values, values, bytes);
	return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d)
{
	struct descriptor *o = of(d), *from = NULL;
	cudnnStatus_t st = CUDNN_STATUS_SUCCESS;
	if (o->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR)
		st = check_tensor(o);
	else if (o->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
		st = compose(o);
	else if (o->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
		from = child(o, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
	else if (o->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
		from = child(o, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
	if (from)
		o->program = keep(from->program);
	o->final = st == CUDNN_STATUS_SUCCESS;
	return st;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const d, cudnnBackendAttributeName_t name,
				       cudnnBackendAttributeType_t type, int64_t room, int64_t *n, void *values)
{
	static const char json[] = "{\"kernels\":[{\"kernelName\":\"software\"}]}";
	struct descriptor *made;
	(void)type;
	if (n)
		*n = 1;
	switch (name) {
	case CUDNN_ATTR_ENGINEHEUR_RESULTS:
		made = of(*(cudnnBackendDescriptor_t *)values);
		made->program = keep(of(d)->program);
		made->final = true;
		return CUDNN_STATUS_SUCCESS;
	case CUDNN_ATTR_ENGINECFG_ENGINE: return CUDNN_STATUS_SUCCESS;
	case CUDNN_ATTR_ENGINE_GLOBAL_INDEX: *(int64_t *)values = 0; return CUDNN_STATUS_SUCCESS;
	case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: *(int64_t *)values = WORKSPACE; return CUDNN_STATUS_SUCCESS;
	case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION:
		*n = sizeof json;
		if (values)
			memcpy(values, json, (size_t)room < sizeof json ? (size_t)room : sizeof json);
		return CUDNN_STATUS_SUCCESS;
	default: return refuse(CUDNN_STATUS_NOT_SUPPORTED, "attribute %d cannot be asked for", (int)name);
	}
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
	const struct attribute *at = find(of(pack), CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS),
			       *id = find(of(pack), CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
			       *ws = find(of(pack), CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
	struct run r = { .p = of(plan)->program };
	if (!at || !id || !ws || at->n != id->n)
		return refuse(CUDNN_STATUS_BAD_PARAM, "a run without pointers, identifiers or a workspace");
	r.workspace = *(void **)ws->values;
	if (!fo_software_holds(r.workspace, WORKSPACE))
		return refuse(CUDNN_STATUS_BAD_PARAM, "the workspace is not in device memory");
	for (int64_t i = 0; i < id->n; i++) {
		const int t = find_uid(r.p, ((int64_t *)id->values)[i]);
		if (t < 0 || r.p->tensor[t].is_virtual)
			return refuse(CUDNN_STATUS_BAD_PARAM, "tensor %lld is not asked for",
				      (long long)((int64_t *)id->values)[i]);
		r.at[t] = ((void **)at->values)[i];
		if (r.p->tensor[t].by_value)
			r.scalar[t] = *(float *)r.at[t];
	}
	for (int t = 0; t < r.p->tensors; t++) {
		const struct tensor *x = &r.p->tensor[t];
		const bool number = x->type == CUDNN_DATA_BFLOAT16 || x->type == CUDNN_DATA_FLOAT;
		if (x->is_virtual)
			continue;
		if (!r.at[t])
			return refuse(CUDNN_STATUS_BAD_PARAM, "tensor %lld is not given", (long long)x->uid);
		if (x->by_value)
			continue;
		if ((uintptr_t)r.at[t] % ALIGNMENT && number)
			return refuse(CUDNN_STATUS_BAD_PARAM, "tensor %lld is not aligned", (long long)x->uid);
		if (!fo_software_holds(r.at[t], x->ragged ? 1
						: number  ? (size_t)bytes_of(&r, t)
							  : (size_t)x->dim[0] * 4))
			return refuse(CUDNN_STATUS_BAD_PARAM, "tensor %lld does not lie in device memory",
				      (long long)x->uid);
	}
	return fo_software_enqueue(((struct handle *)(void *)h)->stream, run, &r, sizeof r, "attention")
		       ? CUDNN_STATUS_EXECUTION_FAILED
		       : CUDNN_STATUS_SUCCESS;
}
