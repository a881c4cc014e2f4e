/* Costs of shapes and layouts: dimensions to pad, results of too few tiles, operands that are rearranged, weights that
 * are gathered by token. Each is kept out of gemm-efficiency and of the device's limit (fo_product_claimed). */
#include "diagnose/products_int.h"

#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a dimension is ---- */

enum { VALUES = 256, SHOWN = 3 };

/* Dimensions by value, as forward matmuls of one matrix have them: rows are tokens, the others are the model's. */
struct dimensions {
	int64_t token[VALUES], model[VALUES];
	int tokens, models;
};

static bool among(const int64_t *v, int n, int64_t x)
{
	for (int i = 0; i < n; i++)
		if (v[i] == x)
			return true;
	return false;
}

static void note(int64_t *v, int *n, int64_t x)
{
	if (*n < VALUES && !among(v, *n, x))
		v[(*n)++] = x;
}

static void learn(struct dimensions *d, const struct fo_trace *t)
{
	*d = (struct dimensions){ 0 };
	for (int64_t i = 0; i < t->op_count; i++) {
		struct fo_product_shape p;
		double flop;
		int32_t where;
		if (t->op[i].backward || t->op[i].kind != FO_HOST_OP || t->op[i].shapes < 0 ||
		    !fo_call_of_op(t, (int32_t)i, &where, &p, &flop) || where != i || p.m == 0 || p.batch != 1)
			continue;
		note(d->token, &d->tokens, p.m);
		note(d->model, &d->models, p.n);
		note(d->model, &d->models, p.k);
	}
}

/* The head's size is the smallest dimension of the matmuls of an attention that is written out; heads are not larger
 * than this. */
#define HEAD_MOST 512

enum role { HIDDEN, TOKENS, SEQUENCE, HEAD };
static const char *const role_words[] = {
	[HIDDEN] = "hidden, feed-forward or vocabulary size",
	[TOKENS] = "tokens: batch x sequence",
	[SEQUENCE] = "sequence length",
	[HEAD] = "head size",
};

static enum role role(const struct dimensions *d, const struct fo_product *p, int which)
{
	const int64_t dim[] = { p->m, p->n, p->k };
	int64_t x = dim[which], least = fo_min(p->n, p->k);
	if (p->batch > 1 && least <= HEAD_MOST)
		return which > 0 && x == least && x < p->m ? HEAD : SEQUENCE;
	bool token = among(d->token, d->tokens, x), model = among(d->model, d->models, x);
	if (p->batch > 1) /* batched by experts: rows are tokens, the rest is the model's */
		return which == 0 ? TOKENS : HIDDEN;
	if (token == model) /* its size does not tell */
		token = which == 0;
	return token ? TOKENS : HIDDEN;
}

/* ---- evidence ---- */

static bool is_padded(const struct fo_product *p) { return p->padded_flop_s > 0; }
static bool has_few_tiles(const struct fo_product *p) { return p->few_tiles; }

static void evidence_of(struct fo_finding *f, const struct fo_subject *s, bool (*wanted)(const struct fo_product *p))
{
	const struct fo_trace *t = s->t;
	for (const struct fo_gpu_op *end, *g = fo_shown_ops(s, &end); g < end; g++) {
		int32_t where;
		int at = fo_product_of_gpu(s->d, t, g, &where);
		if (at >= 0 && wanted(&s->d->product[at]))
			fo_evidence_gpu(f, s, g, fo_trace_text(t, t->op[where].name));
	}
}

/* ---- matmuls ---- */

/* The share of what is attainable that matmuls without such a loss reach; 1 where there are none to compare with. */
static double usual(const struct fo_diagnosis *d, bool *known)
{
	double took = 0, ideal = 0;
	for (int64_t i = 0; i < d->products; i++) {
		const struct fo_product *p = &d->product[i];
		if (fo_product_claimed(p) || p->tiny || !(p->attainable_flop_s > 0))
			continue;
		took += (double)p->time_ns;
		ideal += (double)p->time_ns * fmin(1, p->flop_s / p->attainable_flop_s);
	}
	*known = took > 0;
	return *known && ideal > 0 ? ideal / took : 1;
}

/* Time of the step that the claimed matmuls take above `best` of each, which is its rate without the loss. Matmuls of
 * an attention that is written out are promised by attention-eager. */
static int64_t above(const struct fo_rule_context *c, bool (*wanted)(const struct fo_product *p), double reach)
{
	const struct fo_diagnosis *d = c->s->d;
	double slow = 0, all = 0;
	for (int64_t i = 0; i < d->products; i++) {
		const struct fo_product *p = &d->product[i];
		double best = reach * (p->few_tiles ? p->attainable_flop_s : p->padded_flop_s);
		all += (double)p->time_ns;
		if (wanted(p) && best > p->flop_s && !(c->facts->attention_written_out && p->batch > 1))
			slow += (double)p->time_ns * (1 - p->flop_s / best);
	}
	return all > 0 ? (int64_t)((double)fo_class_time(&c->s->l, FO_PRODUCT_CLASSES) * slow / all) : 0;
}

static double share_of(const struct fo_rule_context *c, bool (*wanted)(const struct fo_product *p))
{
	double some = 0, all = 0;
	for (int64_t i = 0; i < c->s->d->products; i++) {
		all += (double)c->s->d->product[i].time_ns;
		some += wanted(&c->s->d->product[i]) ? (double)c->s->d->product[i].time_ns : 0;
	}
	return all > 0 ? fo_share(c, fo_class_time(&c->s->l, FO_PRODUCT_CLASSES)) * some / all : 0;
}

static void gain_of(const struct fo_rule_context *c, struct fo_finding *f, bool (*wanted)(const struct fo_product *p),
		    double least)
{
	bool known;
	int64_t ns = above(c, wanted, usual(c->s->d, &known));
	f->serious = fo_share(c, ns) > FO_SHARE_SERIOUS;
	if (ns > 0)
		fo_gain_usual(c, f, ns, known ? least : 0);
	else
		fo_gain_none(f);
}

/* "n 4097 -> 4160 (hidden, feed-forward or vocabulary size)", each once. */
static void say_dimensions(const struct fo_rule_context *c, struct fo_finding *f)
{
	static const char letter[] = "mnk";
	struct dimensions known;
	int64_t seen[SHOWN];
	int shown = 0;
	learn(&known, c->s->t);
	for (int64_t i = 0; i < c->s->d->products; i++) {
		const struct fo_product *p = &c->s->d->product[i];
		const int64_t dim[] = { p->m, p->n, p->k };
		for (int k = 0; k < 3 && is_padded(p); k++) {
			if (!p->pad[k] || shown == SHOWN || among(seen, shown, dim[k]))
				continue;
			fo_why(f, "%s%c %lld -> %lld (%s)", shown ? ", " : "", letter[k], (long long)dim[k],
			       (long long)p->pad[k], role_words[role(&known, p, k)]);
			seen[shown++] = dim[k];
		}
	}
}

static const struct fo_product *first_of(const struct fo_diagnosis *d, bool (*wanted)(const struct fo_product *p))
{
	for (int64_t i = 0; i < d->products; i++)
		if (wanted(&d->product[i]))
			return &d->product[i];
	return NULL;
}

void fo_shape_facts(const struct fo_subject *s, struct fo_facts *facts)
{
	struct dimensions known;
	if (!first_of(s->d, is_padded))
		return;
	learn(&known, s->t);
	for (int64_t i = 0; i < s->d->products; i++)
		for (int k = 0; k < 3; k++) {
			const struct fo_product *p = &s->d->product[i];
			enum role r = is_padded(p) && p->pad[k] ? role(&known, p, k) : HEAD;
			facts->hidden_ragged |= r == HIDDEN;
			facts->tokens_ragged |= r == TOKENS || r == SEQUENCE;
		}
}

static bool padding(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_product *p = first_of(c->s->d, is_padded);
	double share = share_of(c, is_padded);
	if (!p || share <= FO_SHARE_ADVICE)
		return false;
	gain_of(c, f, is_padded, FO_GAIN_HALF);
	fo_title(f, "ragged dimensions: matmuls whose shape can be padded take %.1f %% of the step", 100 * share);
	fo_why(f, "Pad ");
	say_dimensions(c, f);
	fo_why(f,
	       ". Rows that are no whole 16 bytes keep kernels off the matrix units' full loads, and a dimension just "
	       "past a multiple of 128 opens a row of tiles for a few columns. Most time: %lld x %lld x %lld in %s at "
	       "%.3g TFLOP/s; padded up to %.3g of useful work. The device does not set that limit.",
	       (long long)p->m, (long long)p->n, (long long)p->k, p->dtype, p->flop_s / 1e12, p->padded_flop_s / 1e12);
	evidence_of(f, c->s, is_padded);
	return true;
}

static bool split_k(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_product *p = first_of(c->s->d, has_few_tiles);
	double share = share_of(c, has_few_tiles);
	if (!p || share <= FO_SHARE_ADVICE)
		return false;
	gain_of(c, f, has_few_tiles, 0);
	fo_title(f, "matmuls with few tiles and a long k leave units idle: %.1f %% of the step", 100 * share);
	fo_why(f,
	       "%lld x %lld x %lld has %.0f tile%s for all of the device's units, and its kernel does not divide k = "
	       "%lld among them: %.3g of %.3g TFLOP/s. A kernel that does (split-k, stream-k) uses the idle ones: "
	       "torch.compile's max-autotune, or another library. The device does not set that limit.",
	       (long long)p->m, (long long)p->n, (long long)p->k, p->tiles, fo_plural((int64_t)p->tiles),
	       (long long)p->k, p->flop_s / 1e12, p->attainable_flop_s / 1e12);
	evidence_of(f, c->s, has_few_tiles);
	return true;
}

/* ---- attention ---- */

/* The share of a fused kernel's work that a ragged size costs. Heads run as the next multiple of 32
 * (FlashAttention-2: 32, 64, 96, 128, 160, 192, 224, 256), sequences in tiles of 128; only what is just past such a
 * multiple is called ragged. */
static double attention_waste(const struct fo_attention_shape *a, const char **what, int64_t *from, int64_t *to)
{
	double head = 0, keys = 0;
	if (a->dim > 32 && a->dim % 32 > 0 && a->dim % 32 <= 8)
		head = 1 - (double)a->dim / (double)((a->dim + 31) / 32 * 32);
	if (a->keys > 128 && a->keys % 128 > 0 && a->keys % 128 <= 8)
		keys = 1 - (double)a->keys / (double)((a->keys + 127) / 128 * 128);
	*what = head >= keys ? "head size" : "sequence length";
	*from = head >= keys ? a->dim : a->keys;
	*to = head >= keys ? a->dim / 32 * 32 : a->keys / 128 * 128;
	return fmax(head, keys);
}

static bool attention_padding(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_trace *t = c->s->t;
	int64_t ns = 0, most = 0, from = 0, to = 0;
	const char *what = "";
	for (const struct fo_gpu_op *end, *g = fo_shown_ops(c->s, &end); g < end; g++) {
		struct fo_attention_shape a;
		const char *of;
		int64_t x, y, length = g->end_ns - g->begin_ns;
		if ((g->class != FO_K_ATTENTION_FORWARD && g->class != FO_K_ATTENTION_BACKWARD) ||
		    !fo_attention_of_op(t, g->op, &a))
			continue;
		double waste = attention_waste(&a, &of, &x, &y);
		ns += (int64_t)(waste * (double)length);
		if (waste > 0 && length > most) {
			most = length;
			what = of;
			from = x;
			to = y;
		}
		if (waste > 0)
			fo_evidence_gpu(f, c->s, g, NULL);
	}
	ns /= c->s->steps;
	if (fo_share(c, ns) <= FO_SHARE_ADVICE / 2)
		return false;
	if (c->s->d->attention.efficiency < FO_ATTENTION_LEAST) /* promised by attention-efficiency */
		fo_gain_none(f);
	else
		fo_gain_usual(c, f, ns, FO_GAIN_HALF);
	fo_title(f, "attention pads a %s of %lld: %.1f %% of the step is for nothing", what, (long long)from,
		 fo_percent(c, ns));
	fo_why(f,
	       "Its kernels work on whole tiles: heads in multiples of 32, sequences in multiples of 128. %lld is just "
	       "past one. With %lld none of that time is lost.",
	       (long long)from, (long long)to);
	return true;
}

/* ---- kernels that should not be there ---- */

static bool inside_product(const struct fo_trace *t, int32_t op)
{
	for (int depth = 0; op >= 0 && depth < 32 && t->op[op].kind == FO_HOST_OP; op = t->op[op].parent, depth++) {
		const char *name = fo_trace_text(t, t->op[op].name);
		if (strstr(name, "conv"))
			return false;
		if (strstr(name, "mm") || strstr(name, "linear") || strstr(name, "einsum") || strstr(name, "matmul"))
			return true;
	}
	return false;
}

static bool rearranges_operand(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	return g->class == FO_K_LAYOUT && inside_product(t, g->op);
}
static bool turns_layout(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	return g->class == FO_K_LAYOUT && !inside_product(t, g->op);
}

static bool gathered(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	(void)t;
	return (g->flags & FO_GPU_GATHERED) != 0;
}

/* The time of the wanted kernels in a step, with the longest as evidence. */
static int64_t needless(const struct fo_rule_context *c, struct fo_finding *f,
			bool (*wanted)(const struct fo_trace *, const struct fo_gpu_op *), int64_t *calls)
{
	const struct fo_trace *t = c->s->t;
	int64_t ns = 0, n = 0;
	for (const struct fo_gpu_op *end, *g = fo_shown_ops(c->s, &end); g < end; g++) {
		if (g->begin_ns < c->s->begin_ns || !wanted(t, g))
			continue;
		ns += g->end_ns - g->begin_ns;
		n++;
		fo_evidence_gpu(f, c->s, g, g->op >= 0 ? fo_trace_text(t, t->op[g->op].name) : NULL);
	}
	*calls = n / c->s->steps;
	return ns / c->s->steps;
}

/* Time of layout kernels in a step, exclusive as the ledger has it, with the longest as evidence. */
static int64_t layout_ns(const struct fo_rule_context *c, struct fo_finding *f,
			 bool (*wanted)(const struct fo_trace *, const struct fo_gpu_op *), int64_t *kernels)
{
	const struct fo_ledger *l = &c->s->l;
	double ns = (double)needless(c, f, wanted, kernels);
	if (l->class_sum_ns[FO_K_LAYOUT] > l->class_ns[FO_K_LAYOUT])
		ns *= (double)l->class_ns[FO_K_LAYOUT] / (double)l->class_sum_ns[FO_K_LAYOUT];
	return ns < (double)l->class_ns[FO_K_LAYOUT] ? (int64_t)ns : l->class_ns[FO_K_LAYOUT];
}

static bool product_layout(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t n, ns = layout_ns(c, f, rearranges_operand, &n);
	if (!fo_notable(c, f, ns))
		return false;
	fo_gain_usual(c, f, ns, 0);
	fo_title(f, "operands are rearranged inside matmuls: %.1f %% of the step", fo_percent(c, ns));
	fo_why(f,
	       "%lld kernels of a step only bring operands into the layout that the matmul's kernel wants. They are "
	       "no arithmetic and do not count for the matmuls. Store the operand as it is read: contiguous in its "
	       "last or last but one dimension, not expanded, permuted or sliced with a stride; transpose a weight "
	       "once, not in each step.",
	       (long long)n);
	return true;
}

bool fo_conv_layout(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t n, ns = layout_ns(c, f, turns_layout, &n);
	/* Half the usual mark, for the convolutions between them gain as well from the layout that suits them. */
	fo_notable(c, f, ns);
	if (fo_share(c, ns) <= FO_SHARE_ADVICE / 2)
		return false;
	fo_gain_usual(c, f, ns, FO_GAIN_HALF);
	fo_title(f, "convolutions turn their layout around: %.1f %% of the step in %lld kernels", fo_percent(c, ns),
		 (long long)n);
	fo_why(f, "The matrix units take images with their channels last (NHWC); tensors are stored as NCHW and are "
		  "converted around each convolution. Stored with channels last they need no conversion.");
	return true;
}

static bool expert_gather(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t n, ns = needless(c, f, gathered, &n), experts = c->s->l.class_ns[FO_K_MOE];
	ns = fo_min(ns, experts);
	if (!fo_notable(c, f, ns))
		return false;
	fo_gain_usual(c, f, ns, FO_GAIN_HALF);
	fo_title(f, "experts' weights are copied for every token: %.1f %% of the step", fo_percent(c, ns));
	fo_why(f, "An index fetches a whole matrix for each token, and a batched matmul multiplies it by one row. Sort "
		  "the tokens by expert and use a grouped matmul (torch._grouped_mm, or a fused kernel of experts): "
		  "then each weight is read once for all of its tokens, and the matmuls have as many rows.");
	return true;
}

/* Rows of experts differ from expert to expert, those of a layer do not. Several weights of one size that are each
 * multiplied by another number of rows, where tokens are routed, are experts in a loop. */
enum { EXPERTS_LEAST = 4 };

static bool expert_loop(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_diagnosis *d = c->s->d;
	const struct fo_product *most = NULL;
	int64_t all = 0, ns = 0, best = 0, calls = 0, rows = 0;
	const int64_t n = fo_min(d->products, FO_PRODUCTS_LOOKED_AT);
	for (int64_t i = 0; c->facts->moe && i < n; i++) {
		int64_t sizes = 0, took = 0, of = 0;
		all += d->product[i].time_ns;
		for (int64_t k = 0; k < n; k++) {
			const struct fo_product *p = &d->product[k];
			bool same = p->n == d->product[i].n && p->k == d->product[i].k && p->batch == 1;
			sizes += same;
			took += same ? p->time_ns : 0;
			of += same ? p->calls : 0;
		}
		if (sizes < EXPERTS_LEAST || d->product[i].batch != 1)
			continue;
		ns += d->product[i].time_ns;
		if (took > best) {
			best = took;
			most = &d->product[i];
			calls = of;
			rows = sizes;
		}
	}
	double share = all ? fo_share(c, fo_class_time(&c->s->l, FO_PRODUCT_CLASSES)) * (double)ns / (double)all : 0;
	if (!most || share <= FO_SHARE_ADVICE)
		return false;
	fo_gain_none(f);
	fo_title(f, "experts run one after the other: their matmuls take %.1f %% of the step", 100 * share);
	fo_why(f,
	       "Tokens are routed, and %lld matmuls with weights of %lld x %lld have %lld different numbers of rows: a "
	       "loop over experts. Each matmul alone is small. A grouped matmul, or a fused kernel of experts, runs "
	       "them at once; what that gains this trace cannot say.",
	       (long long)calls, (long long)most->k, (long long)most->n, (long long)rows);
	return true;
}

/* Far below the memory's rate: strides, broadcasts, or tensors that are too small. What it costs is in memory-bound
 * already. */
#define SLOW 0.4

static bool elementwise_rate(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_moving_rate *m = &c->s->d->moving;
	double rate = m->time_ns > 0 ? m->bytes / ((double)m->time_ns * 1e-9) / m->peak_bytes_s : NAN;
	if (!(rate < SLOW) || rate < FO_RATE_LEAST || fo_share(c, m->time_ns) <= FO_SHARE_ADVICE)
		return false;
	fo_gain_none(f);
	fo_title(f, "elementwise kernels reach %.0f %% of the memory's bandwidth and take %.1f %% of the step",
		 100 * rate, fo_percent(c, m->time_ns));
	fo_why(f,
	       "By their recorded shapes they move %.0f GB/s, each operand and the result counted once; the memory "
	       "does %.0f. Operands with a stride, permuted or expanded ones, and casts in between make such kernels "
	       "slow.",
	       rate * m->peak_bytes_s / 1e9, m->peak_bytes_s / 1e9);
	return true;
}

const struct fo_rule_row fo_rules_shape[] = {
	{ "shape-padding", FO_FIND_COMPUTE, .holds = padding },
	{ "attention-padding", FO_FIND_COMPUTE, .holds = attention_padding },
	{ "split-k", FO_FIND_COMPUTE, .holds = split_k },
	{ "product-layout", FO_FIND_MEMORY_BOUND, .holds = product_layout },
	{ "expert-gather", FO_FIND_MEMORY_BOUND, .holds = expert_gather },
	{ "expert-loop", FO_FIND_COMPUTE, .holds = expert_loop, .kernels = FO_PRODUCT_CLASSES },
	{ "elementwise-rate", FO_FIND_MEMORY_BOUND, .holds = elementwise_rate, .kernels = FO_MOVING_CLASSES },
	{ .id = NULL },
};
