/* Neighbours on a stream. A kernel's class says what it does; its neighbours say whether a compiler could merge it with
 * another, and whether a softmax belongs to attention. */
#include "diagnose/products_int.h"

#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An operation of the step and its neighbours on its stream, as places in the same array; -1: none. */
struct link {
	const struct fo_gpu_op *g;
	int64_t before, behind;
	bool attention; /* between the matmuls of attention that is written out, or one of them */
};

/* ---- streams ---- */

struct last {
	int32_t stream;
	int64_t at;
};

static int64_t link_streams(const struct fo_subject *s, struct link **out)
{
	const struct fo_trace *t = s->t;
	struct last *last = NULL;
	size_t cap = 0;
	int64_t first, end, n = 0, streams = 0;
	fo_subject_ops(t, s->id, s->begin_ns, s->end_ns, &first, &end);
	struct link *v = fo_xmalloc((size_t)(end - first + 1) * sizeof *v);
	for (int64_t i = first; i < end; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		if (g->kind != FO_GPU_KERNEL || g->class == FO_K_MEMORY || g->begin_ns < s->begin_ns)
			continue;
		int64_t k = 0;
		while (k < streams && last[k].stream != g->stream)
			k++;
		v[n] = (struct link){ .g = g, .before = k < streams ? last[k].at : -1, .behind = -1 };
		if (k == streams) {
			fo_array_room(&last, &cap, (size_t)streams, sizeof *last);
			last[streams++].stream = g->stream;
		} else {
			v[last[k].at].behind = n;
		}
		last[k].at = n++;
	}
	free(last);
	*out = v;
	return n;
}

/* ---- one operator each ---- */

#define MERGED                                                                                        \
	(1u << FO_K_NORM | 1u << FO_K_LOSS | 1u << FO_K_SOFTMAX | 1u << FO_K_ROPE | 1u << FO_K_CAST | \
	 1u << FO_K_ELEMENTWISE | 1u << FO_K_COPY | 1u << FO_K_REDUCE | 1u << FO_K_RNG)

/* PyTorch's own kernels are one operator each, but for those over lists of tensors, and so is what a library does for
 * an operator of PyTorch's (a batch norm of cuDNN's). Kernels of other operators are there because somebody fused them:
 * activation and product, norm and residual. */
static bool one_operator(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	const char *name = fo_trace_text(t, g->name), *op = g->op >= 0 ? fo_trace_text(t, t->op[g->op].name) : "";
	bool pytorch = strstr(name, "at::native") || strstr(name, "softmax_warp") || strstr(name, "cunn_SoftMax") ||
		       (strncmp(op, "aten::", 6) == 0 && !strstr(op, "_fused"));
	return g->class < FO_K_COMPUTE_COUNT && (MERGED >> g->class & 1) && g->class_by_name != FO_K_FUSED &&
	       !strstr(name, "multi_tensor") && pytorch;
}

/* ---- attention that is written out ---- */

/* The most kernels between a softmax and its matmul: scaling, masking, dropout, casts, a copy. */
enum { BETWEEN_MOST = 8 };

/* Walks along the stream from a softmax and returns how many matmuls of attention it finds, at most `products` (one on
 * each side, two in the backward pass). With `mark` it marks them and the kernels between. */
static int walk(const struct fo_trace *t, struct link *v, int64_t from, bool back, int products, bool mark)
{
	int found = 0, between = 0;
	for (int64_t i = back ? v[from].before : v[from].behind; i >= 0 && found < products;
	     i = back ? v[i].before : v[i].behind) {
		uint8_t class = v[i].g->class;
		if (class == FO_K_GEMM && fo_trace_batched(t, v[i].g->op) != FO_BATCHED_NO)
			found++;
		else if (class >= FO_K_COMPUTE_COUNT || !(MERGED >> class & 1) || class == FO_K_SOFTMAX ||
			 ++between > BETWEEN_MOST)
			break;
		if (mark)
			v[i].attention = true;
	}
	return found;
}

static void find_attention(const struct fo_subject *s, struct link *v, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		if (v[i].g->class != FO_K_SOFTMAX)
			continue;
		bool backward = (v[i].g->flags & FO_GPU_BACKWARD) != 0 ||
				strstr(fo_trace_text(s->t, v[i].g->name), "ackward");
		int products = backward ? 2 : 1, before = walk(s->t, v, i, true, products, false),
		    behind = walk(s->t, v, i, false, products, false);
		if (before + behind == 0)
			continue;
		v[i].attention = true;
		walk(s->t, v, i, true, before, true);
		walk(s->t, v, i, false, behind, true);
	}
}

/* ---- sums ---- */

/* The kernel's part of what the ledger gives its class. The ledger counts overlapping kernels once. */
static double exclusive_ns(const struct fo_subject *s, const struct fo_gpu_op *g)
{
	double sum = (double)s->l.class_sum_ns[g->class], own = (double)s->l.class_ns[g->class];
	return (double)(fo_min(g->end_ns, s->end_ns) - g->begin_ns) * (sum > own ? own / sum : 1);
}

static bool has_operator(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	for (int32_t i = g->op; i >= 0; i = t->op[i].parent)
		if (t->op[i].kind == FO_HOST_OP)
			return true;
	return false;
}

void fo_chains_of(const struct fo_subject *s, struct fo_chains *out)
{
	struct link *v;
	int64_t n = link_streams(s, &v), ops = 0;
	double told = 0, fusable = 0, alone = 0, softmax = 0, between = 0, product = 0, flop = 0;
	find_attention(s, v, n);
	for (int64_t i = 0; i < n; i++) {
		const struct fo_gpu_op *g = v[i].g;
		if (g->class >= FO_K_COMPUTE_COUNT)
			continue;
		bool beside = (v[i].before >= 0 && one_operator(s->t, v[v[i].before].g)) ||
			      (v[i].behind >= 0 && one_operator(s->t, v[v[i].behind].g));
		double ns = exclusive_ns(s, g);
		int32_t where;
		struct fo_product_shape shape;
		double one = NAN;
		bool merges = one_operator(s->t, g) && beside;
		ops += merges;
		told += (merges || (v[i].attention && g->class != FO_K_GEMM)) && has_operator(s->t, g) ? ns : 0;
		if (v[i].attention && g->class == FO_K_GEMM) {
			flop += fo_call_of_op(s->t, g->op, &where, &shape, &one) && shape.m > 0 ? one : NAN;
			product += ns;
		} else if (v[i].attention) {
			*(g->class == FO_K_SOFTMAX ? &softmax : &between) += ns;
		} else if (merges) {
			fusable += ns;
		} else if (FO_MOVING_CLASSES >> g->class & 1) {
			alone += ns;
		}
	}
	double steps = (double)s->steps;
	bool known = 2 * told > fusable + softmax + between;
	*out = (struct fo_chains){ .fusable_ns = (int64_t)(fusable / steps),
				   .fusable_ops = ops / s->steps,
				   .alone_ns = (int64_t)(alone / steps),
				   .softmax_ns = (int64_t)(softmax / steps),
				   .between_ns = (int64_t)(between / steps),
				   .product_ns = (int64_t)(product / steps),
				   .operators_known = known,
				   .product_flop = product > 0 ? flop / steps : NAN };
	free(v);
}
