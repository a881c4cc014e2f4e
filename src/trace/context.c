/* A kernel's neighbours say what it is for: a softmax between two batched products is attention written out, weights
 * that are gathered for products of one row are experts. After attribution to operators and modules (attribute.c). */
#define _GNU_SOURCE /* strcasestr */
#include "trace/shapes.h"
#include "trace/trace_int.h"

#include <string.h>

enum {
	BESIDE = 8, /* kernels between a softmax and its products: scale, mask, casts, dropout; with room to spare */
	LOOK = 64,  /* operations of all streams that are passed on the way */
	DEEP = 32,  /* operators and modules around a launch */
};

static const char *op_name(const struct fo_trace *t, int32_t op) { return fo_trace_text(t, t->op[op].name); }

static bool is_product(uint8_t class) { return class == FO_K_GEMM || class == FO_K_GEMM_FP8; }

/* Can this kernel stand between a softmax and the products of its attention? */
static bool passes(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	return g->class == FO_K_ELEMENTWISE || g->class == FO_K_CAST || g->class == FO_K_COPY ||
	       g->class == FO_K_LAYOUT || g->class == FO_K_RNG || g->class == FO_K_OTHER || g->class == FO_K_MEMORY ||
	       g->class == FO_K_SOFTMAX || (g->class == FO_K_LOSS && strcasestr(fo_trace_text(t, g->name), "softmax"));
}

/* The next product on the stream of gpu[i], forwards (1) or backwards (-1); -1: something else comes first. */
static int64_t product_beside(const struct fo_trace *t, int64_t i, int way)
{
	const struct fo_gpu_op *of = &t->gpu[i];
	int seen = 0;
	for (int64_t k = i + way, n = 0; k >= 0 && k < t->gpu_count && n < LOOK; k += way, n++) {
		const struct fo_gpu_op *g = &t->gpu[k];
		if (g->device != of->device)
			return -1;
		if (g->stream != of->stream)
			continue;
		if (is_product(g->class))
			return k;
		if (!passes(t, g) || ++seen > BESIDE)
			return -1;
	}
	return -1;
}

enum fo_batched fo_trace_batched(const struct fo_trace *t, int32_t op)
{
	for (int depth = 0; op >= 0 && depth < DEEP; op = t->op[op].parent, depth++) {
		const char *name = op_name(t, op);
		if (t->op[op].kind != FO_HOST_OP)
			continue;
		if (strstr(name, "bmm"))
			return FO_BATCHED_YES;
		if (!strcmp(name, "aten::mm") || !strcmp(name, "aten::addmm") || !strcmp(name, "aten::linear"))
			return FO_BATCHED_NO;
	}
	return FO_BATCHED_UNKNOWN;
}

/* Can it be a product of attention? Without a recorded operator its place alone speaks for it. */
static bool is_batched(const struct fo_trace *t, int64_t gpu)
{
	return t->gpu[gpu].op < 0 || fo_trace_batched(t, t->gpu[gpu].op) == FO_BATCHED_YES;
}

enum says { SAYS_NOTHING, SAYS_SOFTMAX, SAYS_LOSS, SAYS_ATTENTION };

/* What operators and modules around a softmax's launch say of it; the innermost that says anything decides. */
static enum says around(const struct fo_trace *t, int32_t op)
{
	static const char *const loss[] = { "log_softmax", "LogSoftmax", "cross_entropy", "CrossEntropy", "nll_loss",
					    "NllLoss",     NULL };
	enum says says = SAYS_NOTHING;
	for (int depth = 0; op >= 0 && depth < DEEP; op = t->op[op].parent, depth++) {
		const struct fo_host_op *o = &t->op[op];
		const char *name = op_name(t, op);
		if (fo_trace_any_of(name, loss))
			return SAYS_LOSS;
		if (strstr(name, "scaled_dot_product") ||
		    (o->kind == FO_HOST_MODULE && (strcasestr(name, "attention") || strcasestr(name, "attn"))))
			return SAYS_ATTENTION;
		if (o->kind == FO_HOST_OP && (strcasestr(name, "softmax")))
			says = SAYS_SOFTMAX;
	}
	return says;
}

/* Are its scores of all pairs of tokens: three dimensions or more, the last two alike? */
static bool is_square(const struct fo_trace *t, int32_t op)
{
	struct fo_shapes s;
	for (int depth = 0; op >= 0 && depth < DEEP; op = t->op[op].parent, depth++)
		if (t->op[op].shapes >= 0 && strcasestr(op_name(t, op), "softmax"))
			return fo_shapes_parse(&s, fo_trace_text(t, t->op[op].shapes)) && s.rank[0] >= 3 &&
			       fo_shapes_last(&s, 0, 1) == fo_shapes_last(&s, 0, 2) && fo_shapes_last(&s, 0, 1) > 1;
	return false;
}

static void place_softmax(struct fo_trace *t, int64_t i)
{
	struct fo_gpu_op *g = &t->gpu[i];
	bool by_name = g->class == FO_K_LOSS; /* a template flag, or the operator */
	enum says says = around(t, g->flags & FO_GPU_GRAPH ? -1 : g->op);
	if (says == SAYS_LOSS) {
		g->class = FO_K_LOSS;
		return;
	}
	int64_t before = product_beside(t, i, -1), after = product_beside(t, i, 1);
	bool between = before >= 0 && after >= 0 && is_batched(t, before) && is_batched(t, after);
	if (by_name && says == SAYS_NOTHING && !between)
		return;
	g->class = FO_K_SOFTMAX;
	if (says == SAYS_ATTENTION || between || is_square(t, g->op))
		g->flags |= FO_GPU_SCORES;
}

/* ---- weights gathered by token ---- */

static bool gathers(const char *name)
{
	return !strcmp(name, "aten::index") || !strcmp(name, "aten::index_select") || !strcmp(name, "aten::gather") ||
	       !strcmp(name, "aten::embedding") || !strcmp(name, "aten::take");
}

/* The shapes of the innermost operator at or above op whose name passes. */
static bool shapes_of(const struct fo_trace *t, int32_t op, bool (*wanted)(const char *name), struct fo_shapes *out)
{
	for (int depth = 0; op >= 0 && depth < DEEP; op = t->op[op].parent, depth++)
		if (t->op[op].kind == FO_HOST_OP && wanted(op_name(t, op)))
			return t->op[op].shapes >= 0 && fo_shapes_parse(out, fo_trace_text(t, t->op[op].shapes));
	return false;
}

static bool multiplies(const char *name) { return !strcmp(name, "aten::bmm"); }

/* index(weights (experts, k, n), ...), then a product of one row with each of what came out, a matrix for each token.
 */
static bool feeds_rows(const struct fo_trace *t, int64_t i)
{
	struct fo_shapes from, into;
	int64_t product = product_beside(t, i, 1);
	if (product < 0 || !shapes_of(t, t->gpu[i].op, gathers, &from) ||
	    !shapes_of(t, t->gpu[product].op, multiplies, &into))
		return false;
	if (into.n < 2 || into.rank[0] != 3 || into.rank[1] != 3 || from.rank[0] < 2)
		return false;
	if (into.dim[0][1] != 1 && into.dim[1][2] != 1)
		return false;
	int gathered = into.dim[0][1] == 1; /* the operand that is no vector */
	int64_t a = into.dim[gathered][1], b = into.dim[gathered][2], x = fo_shapes_last(&from, 0, 2),
		y = fo_shapes_last(&from, 0, 1);
	/* The matrix as it lies, transposed by a view, or each matrix as one row of a table. */
	bool matrix = from.rank[0] == 3 && ((a == x && b == y) || (a == y && b == x));
	bool row = from.rank[0] == 2 && (double)y == (double)a * (double)b;
	return a > 1 && b > 1 && (matrix || row);
}

void fo_trace_place(struct fo_trace *t)
{
	for (int64_t i = 0; i < t->gpu_count; i++) {
		struct fo_gpu_op *g = &t->gpu[i];
		if (g->kind != FO_GPU_KERNEL)
			continue;
		if (g->class == FO_K_SOFTMAX ||
		    (g->class == FO_K_LOSS && strcasestr(fo_trace_text(t, g->name), "softmax")))
			place_softmax(t, i);
		else if (g->class == FO_K_EMBEDDING && g->op >= 0 && !(g->flags & FO_GPU_GRAPH) && feeds_rows(t, i)) {
			g->class = FO_K_MOE;
			g->flags |= FO_GPU_GATHERED;
		}
	}
}
