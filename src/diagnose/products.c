/* Matrix multiplications by shape: what they reached, and what the device could do for that shape. */
#include "diagnose/products_int.h"

#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"
#include "trace/shapes.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- shapes ---- */

static int64_t leading(const struct fo_shapes *s, int arg, int keep)
{
	double n = 1; /* as a double first: shapes come from a file and may overflow */
	for (int i = 0; i < s->rank[arg] - keep; i++)
		n *= (double)s->dim[arg][i];
	return n < 1e15 ? (int64_t)n : (int64_t)1e15;
}

static int64_t last(const struct fo_shapes *s, int arg, int back) { return fo_shapes_last(s, arg, back); }

/* Operators that are matmuls, and which of their arguments are a and b. */
static const struct {
	const char *name;
	int a, b;
	bool b_by_row; /* b is (n, k), as a layer keeps its weight */
} operator[] = {
	{ "aten::mm", 0, 1, false },          { "aten::addmm", 1, 2, false },
	{ "aten::bmm", 0, 1, false },         { "aten::baddbmm", 1, 2, false },
	{ "aten::linear", 0, 1, true },       { "aten::_scaled_mm", 0, 1, false },
	{ "aten::_grouped_mm", 0, 1, false }, { "aten::_scaled_grouped_mm", 0, 1, false },
};

static int product_operator(const char *name)
{
	for (size_t i = 0; i < sizeof(operator) / sizeof(*operator); i++)
		if (strcmp(name, operator[i].name) == 0)
			return (int)i;
	return -1;
}

static bool product_of(int which, const struct fo_shapes *s, struct fo_product_shape *out)
{
	int a = operator[which].a, b = operator[which].b;
	if (s->n <= b || s->rank[a] < 2 || s->rank[b] < 2)
		return false;
	bool grouped = strstr(operator[which].name, "grouped") !=
		       NULL; /* each group of b takes its own rows of a, so every row is used once */
	bool batched = s->rank[a] >= 3 && s->rank[b] >= 3 && !grouped;
	out->batch = batched ? leading(s, a, 2) : 1;
	out->m = batched ? last(s, a, 2) : leading(s, a, 1);
	out->k = last(s, a, 1);
	out->n = operator[which].b_by_row ? last(s, b, 2) : last(s, b, 1);
	return last(s, b, operator[which].b_by_row ? 1 : 2) == out->k;
}

static bool is_attention(const char *name)
{
	static const char *const part[] = { "scaled_dot_product_",
					    "_flash_attention_forward",
					    "_flash_attention_backward",
					    "_flash_attn_",
					    "FlashAttnFunc",
					    "_efficient_attention_",
					    NULL };
	for (int i = 0; part[i]; i++)
		if (strstr(name, part[i]))
			return true;
	return false;
}

/* Queries (batch, heads, queries, dim), keys (batch, kv heads, keys, dim), values; heads behind the sequence in the
 * libraries' own operators; (batch, queries, dim) where there is one head. */
static bool attention_shape(const char *name, const struct fo_shapes *s, struct fo_attention_shape *out)
{
	bool heads_first = strstr(name, "scaled_dot_product_") != NULL, backward = strstr(name, "ackward") != NULL;
	int q = backward && s->n > 3, rank = q < s->n ? s->rank[q] : 0;
	if (s->n < q + 3 || (rank != 4 && rank != 3) || s->rank[q + 1] != rank || s->rank[q + 2] != rank)
		return false;
	const int64_t *a = s->dim[q], *b = s->dim[q + 1], *c = s->dim[q + 2];
	int sequence = rank == 3 || !heads_first ? 1 : 2;
	*out = (struct fo_attention_shape){ .batch = a[0],
					    .heads = rank == 3 ? 1 : a[3 - sequence],
					    .queries = a[sequence],
					    .keys = b[sequence],
					    .dim = a[rank - 1],
					    .value_dim = c[rank - 1],
					    .backward = backward };
	return true;
}

/* Both matmuls over all pairs, so that a causal mask counts in full, as the rule mfu has it; backward counts twice the
 * forward. */
static double attention_of(const char *name, const struct fo_shapes *s)
{
	struct fo_attention_shape a;
	if (!attention_shape(name, s, &a))
		return 0;
	return (a.backward ? 2.0 : 1.0) * 2 * (double)a.batch * (double)a.heads * (double)a.queries * (double)a.keys *
	       (double)(a.dim + a.value_dim);
}

bool fo_attention_of_op(const struct fo_trace *t, int32_t op, struct fo_attention_shape *out)
{
	struct fo_shapes s;
	for (int depth = 0; op >= 0 && depth < 64; op = t->op[op].parent, depth++) {
		const struct fo_host_op *o = &t->op[op];
		const char *name = fo_trace_text(t, o->name);
		if (o->shapes >= 0 && is_attention(name) && fo_shapes_parse(&s, fo_trace_text(t, o->shapes)) &&
		    attention_shape(name, &s, out))
			return true;
	}
	return false;
}

/* The type of the operand that a matmul, convolution or attention multiplies first. */
static void type_of(const struct fo_trace *t, const struct fo_host_op *o, int arg, char dtype[12])
{
	snprintf(dtype, 12, "%s", o->types < 0 ? "" : fo_dtype_of_arg(fo_trace_text(t, o->types), arg));
}

/* Tensile's names (AMD): behind the two operands' layouts stand the types, "Cijk_Alik_Bljk_BBS_BH",
 * "Cijk_Ailk_Bljk_S_B_Bias", "Cijk_Alik_Bljk_F8BS": the first is the operands'. X: single precision on XF32 units. */
static const char *dtype_of_tensile(const char *name)
{
	static const struct {
		const char *begin, *dtype;
	} known[] = { { "F8", "fp8" },    { "B8", "fp8" }, { "H", "fp16" }, { "B", "bf16" },
		      { "S_MX", "tf32" }, { "S", "fp32" }, { "D", "fp64" } };
	const char *p = strstr(name, "Cijk_");
	for (int words = 0; p && words < 3; words++) {
		p = strchr(p, '_');
		p = p ? p + 1 : NULL;
	}
	for (size_t i = 0; p && i < sizeof(known) / sizeof(*known); i++)
		if (strncmp(p, known[i].begin, strlen(known[i].begin)) == 0)
			return known[i].dtype;
	return "";
}

/* cuBLAS's generated matmuls: "nvjet_tst_192x192_64x4_...": types of operands, sum and result; t: bf16, h: fp16, q:
 * fp8. Single operands (s) have no unit of their own: TF32 or parts of bf16, which the name does not tell. */
static const char *dtype_of_nvjet(const char *name)
{
	const char *p = strstr(name, "nvjet_") + strlen("nvjet_");
	if (strncmp(p, "sm", 2) == 0 &&
	    isdigit((unsigned char)p[2])) { /* "nvjet_sm100_qqtst_mma_...": the chip first */
		p = strchr(p, '_');
		p = p ? p + 1 : "";
	}
	switch (*p) {
	case 't': return "bf16";
	case 'h': return "fp16";
	case 'q':
	case 'r': return "fp8";
	default: return "";
	}
}

const char *fo_dtype_of_kernel(const char *name)
{
	/* Parts that name a type come first, then instruction shapes. m16n8k8 ("1688") of 16 bit operands says so
	 * beside it
	 * ("turing_fp16_s1688gemm_fp16", "cutlass_75_tensorop_bf16_s1688gemm_bf16"); with nothing beside it its
	 * operands are TF32
	 * ("cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4": s is what it sums in). m8n8k4 ("884") and m16n8k16
	 * take 16 bit only. */
	static const struct {
		const char *part, *dtype;
	} known[] = { { "e4m3", "fp8" },    { "e5m2", "fp8" },   { "fp8", "fp8" },       { "tf32", "tf32" },
		      { "xf32", "tf32" },   { "bf16", "bf16" },  { "BFloat16", "bf16" }, { "bfloat16", "bf16" },
		      { "fp16", "fp16" },   { "f16", "fp16" },   { "d884", "fp64" },     { "dgemm", "fp64" },
		      { "f64f64", "fp64" }, { "h884", "fp16" },  { "s884", "fp16" },     { "h1688", "fp16" },
		      { "i16816", "" },     { "16816", "fp16" }, { "s161616", "fp16" },  { "s1688", "tf32" },
		      { "half", "fp16" },   { "sgemm", "fp32" }, { "scudnn", "fp32" },   { "f32f32_f32f32", "fp32" },
		      { "<float", "fp32" } };
	if (strstr(name, "Cijk_"))
		return dtype_of_tensile(name);
	if (strstr(name, "nvjet_"))
		return dtype_of_nvjet(name);
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (strstr(name, known[i].part))
			return known[i].dtype;
	return "";
}

bool fo_call_of_op(const struct fo_trace *t, int32_t op, int32_t *where, struct fo_product_shape *shape, double *flop)
{
	struct fo_shapes s;
	for (int depth = 0; op >= 0 && depth < 64; op = t->op[op].parent, depth++) {
		const struct fo_host_op *o = &t->op[op];
		const char *name = fo_trace_text(t, o->name);
		int which = product_operator(name);
		if (o->shapes < 0 || (which < 0 && !is_attention(name)) ||
		    !fo_shapes_parse(&s, fo_trace_text(t, o->shapes)))
			continue;
		*where = op;
		*shape = (struct fo_product_shape){ 0 };
		if (which >= 0 && product_of(which, &s, shape)) {
			*flop = 2 * (double)shape->batch * (double)shape->m * (double)shape->n * (double)shape->k;
			type_of(t, o, operator[which].a, shape->dtype);
			return *flop > 0;
		}
		*flop = which < 0 ? attention_of(name, &s) : 0;
		if (*flop > 0) {
			type_of(t, o, 0, shape->dtype);
			return true;
		}
	}
	return false;
}

/* ---- types ---- */

/* The recorded type of the innermost matmul, convolution or attention around g's launch; "" without. */
static const char *recorded_type(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	int32_t op = g->flags & FO_GPU_GRAPH ? -1 : g->op;
	for (int depth = 0; op >= 0 && depth < 64; op = t->op[op].parent, depth++) {
		const struct fo_host_op *o = &t->op[op];
		const char *name = fo_trace_text(t, o->name);
		int which = product_operator(name);
		if (o->types >= 0 && (which >= 0 || is_attention(name) || strstr(name, "conv")))
			return fo_dtype_of_arg(fo_trace_text(t, o->types), which >= 0 ? operator[which].a : 0);
	}
	return "";
}

/* The operand's recorded type decides. 32 bit operands may run on TF32 or 16 bit units, and the kernel's name tells
 * which. */
static const char *type_beside(const char *recorded, const char *kernel)
{
	const char *by_name = fo_dtype_of_kernel(kernel);
	bool units = by_name[0] && strcmp(by_name, "fp64") != 0;
	return !recorded[0] || (strcmp(recorded, "fp32") == 0 && units) ? by_name : recorded;
}

bool fo_dtype_recorded(const struct fo_trace *t, const struct fo_gpu_op *g) { return recorded_type(t, g)[0] != '\0'; }

const char *fo_dtype_of_gpu(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	return type_beside(recorded_type(t, g), fo_trace_text(t, g->name));
}

/* ---- calls ---- */

struct call {
	struct fo_product_shape shape;
	int64_t op, begin_ns, time_ns, live_ns; /* live: under communication */
	int32_t kernel;                         /* name of the longest */
	int64_t kernel_ns;
	bool splits; /* some kernel of it divides k over units */
};

static int by_op(const void *a, const void *b)
{
	const struct call *x = a, *y = b;
	return fo_order(x->op, y->op);
}

static int shape_order(const struct fo_product_shape *x, const struct fo_product_shape *y)
{
	const int64_t a[] = { x->m, x->n, x->k, x->batch }, b[] = { y->m, y->n, y->k, y->batch };
	for (int i = 0; i < 4; i++)
		if (a[i] != b[i])
			return a[i] > b[i] ? 1 : -1;
	return strcmp(x->dtype, y->dtype);
}

static int by_shape(const void *a, const void *b)
{
	const struct call *x = a, *y = b;
	int order = shape_order(&x->shape, &y->shape);
	return order ? order : fo_order(x->time_ns, y->time_ns);
}

static int by_time(const void *a, const void *b)
{
	const struct fo_product *x = a, *y = b;
	return fo_order(y->time_ns, x->time_ns);
}

static void type_of_call(const struct fo_trace *t, struct call *c)
{
	char dtype[12];
	snprintf(dtype, sizeof(dtype), "%s", type_beside(c->shape.dtype, fo_trace_text(t, c->kernel)));
	snprintf(c->shape.dtype, sizeof(c->shape.dtype), "%s", dtype);
}

static int64_t collect(const struct fo_subject *s, struct call **out)
{
	const struct fo_trace *t = s->t;
	struct fo_intervals comm = { 0 };
	size_t cap = 0;
	int64_t n = 0, kept = 0;
	for (int64_t i = 0; i < t->gpu_count; i++)
		if (t->gpu[i].device == s->id && t->gpu[i].class == FO_K_COMMUNICATION)
			fo_intervals_add(&comm, t->gpu[i].begin_ns, t->gpu[i].end_ns);
	fo_intervals_unite(&comm);
	*out = NULL;
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *o = &t->gpu[i];
		struct call c = { .kernel = o->name, .kernel_ns = o->end_ns - o->begin_ns, .begin_ns = o->begin_ns };
		int32_t where;
		double flop;
		if (o->device != s->id || (o->class != FO_K_GEMM && o->class != FO_K_GEMM_FP8) ||
		    o->end_ns <= o->begin_ns || !fo_call_of_op(t, o->op, &where, &c.shape, &flop) || c.shape.m == 0)
			continue;
		c.op = where;
		c.splits = fo_product_splits_k(fo_trace_text(t, o->name));
		c.time_ns = c.kernel_ns;
		c.live_ns = fo_intervals_within(&comm, o->begin_ns, o->end_ns);
		fo_array_room(out, &cap, (size_t)n, sizeof(**out));
		(*out)[n++] = c;
	}
	fo_intervals_fini(&comm);
	if (n == 0)
		return 0;
	/* Several kernels of one operator (split k and its reduction) are one call. */
	qsort(*out, (size_t)n, sizeof(**out), by_op);
	for (int64_t i = 1; i < n; i++) {
		struct call *c = &(*out)[kept], *next = &(*out)[i];
		if (next->op != c->op) {
			(*out)[++kept] = *next;
			continue;
		}
		c->time_ns = fo_plus(c->time_ns, next->time_ns);
		c->live_ns = fo_plus(c->live_ns, next->live_ns);
		c->splits |= next->splits;
		c->begin_ns = fo_min(next->begin_ns, c->begin_ns);
		c->kernel = next->kernel_ns > c->kernel_ns ? next->kernel : c->kernel;
		c->kernel_ns = fo_max(next->kernel_ns, c->kernel_ns);
	}
	for (int64_t i = 0; i <= kept; i++)
		type_of_call(t, &(*out)[i]);
	return kept + 1;
}

int fo_product_of_gpu(const struct fo_diagnosis *d, const struct fo_trace *t, const struct fo_gpu_op *g, int32_t *where)
{
	struct fo_product_shape s;
	double flop;
	if ((g->class != FO_K_GEMM && g->class != FO_K_GEMM_FP8) || !fo_call_of_op(t, g->op, where, &s, &flop) ||
	    s.m == 0)
		return -1;
	const char *dtype = type_beside(s.dtype, fo_trace_text(t, g->name));
	for (int i = 0; i < d->products && i < FO_PRODUCTS_LOOKED_AT; i++) {
		const struct fo_product *p = &d->product[i];
		if (p->m == s.m && p->n == s.n && p->k == s.k && p->batch == s.batch && strcmp(p->dtype, dtype) == 0)
			return i;
	}
	return -1;
}

/* ---- by shape ---- */

/* Launch, prologue and epilogue of any kernel take 2 to 4 us on current devices: a call that is not longer than twice
 * that says nothing of arithmetic. */
#define TINY_NS 5000

static double median_of(const struct call *c, int64_t n, int live)
{
	/* Calls of a shape are sorted by time. Live: communication covers more than half of it; otherwise less than a
	 * tenth. */
	int64_t hits = 0, at = 0;
	for (int64_t i = 0; i < n; i++)
		hits += live ? 2 * c[i].live_ns > c[i].time_ns : 10 * c[i].live_ns < c[i].time_ns;
	for (int64_t i = 0; i < n; i++) {
		bool hit = live ? 2 * c[i].live_ns > c[i].time_ns : 10 * c[i].live_ns < c[i].time_ns;
		if (hit && at++ == hits / 2)
			return hits >= 3 ? (double)c[i].time_ns : NAN;
	}
	return NAN;
}

static struct fo_product summary(const struct fo_trace *t, const struct call *c, int64_t n, const struct fo_device *v)
{
	const struct fo_product_shape *s = &c->shape;
	struct fo_product p = { .m = s->m, .n = s->n, .k = s->k, .batch = s->batch, .calls = n };
	double flop = 2 * (double)s->batch * (double)s->m * (double)s->n * (double)s->k;
	snprintf(p.dtype, sizeof(p.dtype), "%s", s->dtype);
	const char *kernel = fo_trace_text(t, c[n / 2].kernel);
	for (int64_t i = 0; i < n; i++)
		p.time_ns = fo_plus(p.time_ns, c[i].time_ns);
	p.flop_s = flop * (double)n / ((double)p.time_ns / 1e9);
	p.best_flop_s = flop / ((double)c[0].time_ns / 1e9);
	p.contended = median_of(c, n, 1) / median_of(c, n, 0);
	p.fill = v ? fo_product_fill(s, kernel, v->units) : NAN;
	double memory = v ? flop / fo_product_bytes(s) * v->memory_tb_s * 1e12 : NAN;
	p.tiny = p.time_ns < n * TINY_NS;
	p.memory_bound = !p.tiny && memory < fo_peak_of(v, p.dtype, false);
	p.attainable_flop_s = p.tiny ? NAN : fo_product_attainable(s, kernel, v);
	for (int64_t i = 0; i < n; i++)
		p.splits_k |= c[i].splits;
	fo_product_pad(&p, s, kernel, v);
	return p;
}

/* The first call of a shape stands among the others where no step is marked: libraries choose a kernel and load it,
 * caches and clocks are cold. What takes more than twice the median of those behind it is put last and left out. */
static int64_t leave_out_first(struct call *c, int64_t n)
{
	int64_t first = 0;
	for (int64_t i = 1; i < n; i++)
		first = c[i].begin_ns < c[first].begin_ns ? i : first;
	if (n < 4 || first != n - 1 || c[first].time_ns <= 2 * c[(n - 1) / 2].time_ns)
		return n;
	return n - 1;
}

void fo_products_of(struct fo_diagnosis *d, const struct fo_subject *s, const struct fo_device *v)
{
	struct call *c;
	size_t cap = 0;
	free(d->product);
	d->product = NULL;
	d->products = 0;
	int64_t n = collect(s, &c);
	if (n)
		qsort(c, (size_t)n, sizeof(*c), by_shape);
	for (int64_t i = 0, last_of; i < n; i = last_of) {
		for (last_of = i + 1; last_of < n && shape_order(&c[i].shape, &c[last_of].shape) == 0; last_of++)
			;
		fo_array_room(&d->product, &cap, (size_t)d->products, sizeof(*d->product));
		int64_t kept = s->device->from == FO_WINDOW_WHOLE ? leave_out_first(c + i, last_of - i) : last_of - i;
		d->product[d->products] = summary(s->t, c + i, kept, v);
		d->product[d->products++].warm_up = last_of - i - kept;
	}
	free(c);
	if (d->products)
		qsort(d->product, (size_t)d->products, sizeof(*d->product), by_time);
}
