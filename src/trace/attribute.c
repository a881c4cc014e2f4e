/* Classes by operator and module. A kernel's name often does not say what it is for: an eager RMSNorm is five
 * elementwise kernels, an optimizer's arithmetic looks like anybody's, and the forward work that the backward pass
 * repeats is the same kernels once more. Parents stand before their children in op[], so one pass hands everything
 * down. Classes of operators and modules replace the name's only where the name says little (elementwise,
 * reductions, copies); class_by_name keeps it. */
#define _GNU_SOURCE /* strcasestr */
#include "trace/trace_int.h"

#include "base/mem.h"
#include "base/count.h"

#include <stdlib.h>
#include <string.h>

enum { NO_CLASS = FO_K_COUNT };

/* Places of an operator in the backward pass. */
enum { FORWARD, BACKWARD, CHECKPOINT, RECOMPUTED };

struct state {
	uint8_t class; /* of what is around it; NO_CLASS */
	uint8_t pass;
};

/* What a name says, found once per distinct text. */
struct meaning {
	bool known;
	uint8_t class;                   /* NO_CLASS */
	bool weak;                       /* only where nothing around it says more: casts, copies */
	bool node, checkpoint, backward; /* a frame of the autograd engine; one that repeats a checkpointed forward;
					    named ...Backward0 */
	uint8_t word;                    /* enum word: of the patterns */
};

enum word { W_NONE, W_POW, W_MEAN, W_ADD, W_RSQRT, W_MUL, W_CAST, W_NEG, W_CAT };

struct work {
	struct fo_trace *t;
	struct meaning *meaning; /* by text */
	struct state *state;     /* by host operator */
	uint8_t *pattern;        /* by host operator: the class that a pattern gives it */
	int32_t *before, *after; /* by host operator: its neighbours under the same parent that launch something; -1 */
	bool *works;             /* by host operator: something was launched in it */
	struct fo_index sequences; /* (sequence, 0): of forward operators, by number in forward[] */
	struct forward {
		int32_t thread;
		uint8_t class;
		bool ambiguous;
	} * forward;
	size_t forward_cap;
	bool repeats; /* forward operators in the backward pass are recomputation, not a graph of it */
};

/* ---- names ---- */

struct rule {
	uint8_t class;
	bool weak;
	const char *part[10]; /* any of them in the name, whatever the case */
};

/* The first rule that fits. */
static uint8_t class_by(const struct rule *r, const char *name, bool *weak)
{
	for (; r->part[0]; r++)
		for (int i = 0; r->part[i]; i++)
			if (strcasestr(name, r->part[i])) {
				*weak = r->weak;
				return r->class;
			}
	return NO_CLASS;
}

/* Operators of PyTorch and nodes of its autograd: "aten::native_layer_norm", "...evaluate_function:
 * NativeLayerNormBackward0". */
static const struct rule operator_rules[] = {
	{ FO_K_COPY, false, { "_foreach_copy" } },
	{ FO_K_OPTIMIZER, false, { "_foreach_", "_fused_adam", "_fused_sgd" } },
	{ FO_K_LOSS, false, { "log_softmax", "LogSoftmax", "cross_entropy", "CrossEntropy", "_loss", "LossBackward" } },
	{ FO_K_NORM,
	  false,
	  { "layer_norm", "LayerNorm", "rms_norm", "RmsNorm", "batch_norm", "BatchNorm", "group_norm", "GroupNorm",
	    "instance_norm" } },
	{ FO_K_ATTENTION_FORWARD, false, { "scaled_dot_product" } },
	{ FO_K_ATTENTION_BACKWARD, false, { "ScaledDotProduct" } },
	{ FO_K_ATTENTION_FORWARD, false, { "flash_attention", "efficient_attention", "FlashAttn" } },
	{ FO_K_SOFTMAX, false, { "_softmax", "::softmax", "SoftmaxBackward" } },
	{ FO_K_EMBEDDING, false, { "embedding" } },
	{ FO_K_ROPE, false, { "rotary" } },
	{ FO_K_CONV, false, { "convolution", "::conv1d", "::conv2d", "::conv3d" } },
	{ FO_K_POOL, false, { "_pool", "PoolBackward" } },
	{ FO_K_CAST, true, { "::_to_copy", "ToCopyBackward" } },
	{ FO_K_COPY, true, { "::contiguous", "::clone", "CloneBackward" } },
	{ 0 },
};

/* Classes of modules: "nn.Module: LlamaRMSNorm_3", and NVTX ranges named after one: "layers.3.input_layernorm". */
static const struct rule module_rules[] = {
	{ FO_K_NORM, false, { "rmsnorm", "rms_norm", "layernorm", "layer_norm", "batchnorm", "groupnorm" } },
	{ FO_K_ROPE, false, { "rotaryemb", "rotary_emb", "rotarypos" } },
	{ FO_K_MOE, false, { "topkrouter", "topkgate", "moegate" } },
	{ FO_K_LOSS, false, { "crossentropy" } },
	{ FO_K_EMBEDDING, false, { "embedding" } },
	{ 0 },
};

static uint8_t word_of(const char *name)
{
	static const struct {
		const char *name;
		uint8_t word;
	} known[] = {
		{ "aten::pow", W_POW },      { "aten::square", W_POW }, { "aten::mean", W_MEAN },
		{ "aten::add", W_ADD },      { "aten::add_", W_ADD },   { "aten::rsqrt", W_RSQRT },
		{ "aten::mul", W_MUL },      { "aten::to", W_CAST },    { "aten::_to_copy", W_CAST },
		{ "aten::type_as", W_CAST }, { "aten::neg", W_NEG },    { "aten::cat", W_CAT },
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(name, known[i].name) == 0)
			return known[i].word;
	return W_NONE;
}

static const struct meaning *meaning_of(struct work *w, const struct fo_host_op *o)
{
	static const struct meaning nothing = { .known = true, .class = NO_CLASS };
	if (o->name < 0)
		return &nothing;
	struct meaning *m = &w->meaning[o->name];
	if (m->known)
		return m;
	const char *name = fo_trace_text(w->t, o->name);
	*m = (struct meaning){ .known = true, .class = NO_CLASS };
	if (o->kind == FO_HOST_OP) {
		m->node = strncmp(name, "autograd::engine::evaluate_function", 35) == 0;
		m->backward = m->node || strstr(name, "Backward") != NULL;
		m->checkpoint = m->backward && strstr(name, "Checkpoint") != NULL;
		m->class = class_by(operator_rules, name, &m->weak);
		if (m->class == FO_K_ATTENTION_FORWARD && (m->backward || strstr(name, "backward")))
			m->class = FO_K_ATTENTION_BACKWARD;
		m->word = word_of(name);
	} else if (o->kind == FO_HOST_NOTE && strncmp(name, "Optimizer.", 10) == 0) {
		m->class = FO_K_OPTIMIZER;
	} else if (o->kind == FO_HOST_MODULE || (o->kind == FO_HOST_NOTE && !strchr(name, ' '))) {
		m->class = class_by(module_rules, name, &m->weak);
	}
	return m;
}

/* ---- patterns of operators without a module ---- */

static void find_neighbours(struct work *w)
{
	struct fo_trace *t = w->t;
	for (int64_t i = 0; i < t->launch_count; i++)
		for (int32_t o = t->launch[i].op; o >= 0 && !w->works[o]; o = t->op[o].parent)
			w->works[o] = true;
	int32_t *last = fo_xmalloc((size_t)(t->op_count + 1) *
				   sizeof(*last)); /* by parent + 1: its last child seen, + 1 */
	int32_t thread = -1;
	for (int32_t i = 0; i < t->op_count; i++) {
		const struct fo_host_op *o = &t->op[i];
		if (o->thread != thread)
			last[0] = 0;
		thread = o->thread;
		w->before[i] = w->after[i] = -1;
		if (o->kind != FO_HOST_OP || !w->works[i])
			continue;
		int32_t *slot = &last[o->parent + 1];
		if (*slot) {
			w->before[i] = *slot - 1;
			w->after[*slot - 1] = i;
		}
		*slot = i + 1;
	}
	free(last);
}

static uint8_t word_at(struct work *w, int32_t i) { return i < 0 ? W_NONE : meaning_of(w, &w->t->op[i])->word; }

/* x * rsqrt(mean(x^2) + eps) * weight, with casts to single precision and back: RMSNorm as every implementation in
 * Python has it. */
static void mark_norm(struct work *w, int32_t rsqrt)
{
	int32_t add = w->before[rsqrt], mean = word_at(w, add) == W_ADD ? w->before[add] : add;
	int32_t pow = mean < 0 ? -1 : w->before[mean], mul = w->after[rsqrt];
	if (word_at(w, mean) != W_MEAN || word_at(w, pow) != W_POW || word_at(w, mul) != W_MUL)
		return;
	int32_t first = word_at(w, w->before[pow]) == W_CAST ? w->before[pow] : pow, end = w->after[mul];
	if (word_at(w, end) == W_CAST)
		end = w->after[end];
	if (word_at(w, end) == W_MUL)
		end = w->after[end];
	for (int32_t i = first; i != end && i >= 0; i = w->after[i])
		w->pattern[i] = FO_K_NORM;
}

/* x cos + rotate_half(x) sin: mul, neg, cat, mul, add. */
static void mark_rope(struct work *w, int32_t neg)
{
	int32_t first = w->before[neg], cat = w->after[neg];
	int32_t mul = cat < 0 ? -1 : w->after[cat];
	int32_t add = mul < 0 ? -1 : w->after[mul];
	if (word_at(w, first) != W_MUL || word_at(w, cat) != W_CAT || word_at(w, mul) != W_MUL ||
	    word_at(w, add) != W_ADD)
		return;
	for (int32_t i = first; i != w->after[add] && i >= 0; i = w->after[i])
		w->pattern[i] = FO_K_ROPE;
}

static void find_patterns(struct work *w)
{
	for (int32_t i = 0; i < w->t->op_count; i++) {
		uint8_t word = w->works[i] && w->t->op[i].kind == FO_HOST_OP ? word_at(w, i) : W_NONE;
		if (word == W_RSQRT)
			mark_norm(w, i);
		else if (word == W_NEG)
			mark_rope(w, i);
	}
}

/* ---- forward operators by their sequence number ---- */

static bool is_forward(struct work *w, const struct fo_host_op *o)
{
	return o->kind == FO_HOST_OP && o->sequence >= 0 && !o->other_thread && !meaning_of(w, o)->backward;
}

/* An operator shows the number that the next node gets: of several with one number the last made the node. */
static void note_forwards(struct work *w)
{
	struct fo_trace *t = w->t;
	for (int32_t i = 0; i < t->op_count; i++) {
		const struct fo_host_op *o = &t->op[i];
		if (!is_forward(w, o))
			continue;
		size_t known = w->sequences.n, at = (size_t)fo_index_add(&w->sequences, o->sequence, 0, (int32_t)known);
		fo_array_room(&w->forward, &w->forward_cap, at, sizeof(*w->forward));
		struct forward *f = &w->forward[at];
		/* Every thread counts for itself. */
		bool ambiguous = at < known &&
				 (f->ambiguous || (f->thread != o->thread && f->class != w->state[i].class));
		*f = (struct forward){ o->thread, w->state[i].class, ambiguous };
	}
}

/* ---- handing down ---- */

/* Kernels that prepare operands for attention or a convolution, or add a bias to the result, are neither: they keep
 * their own class. */
static bool keeps_clear(uint8_t around)
{
	return around == FO_K_ATTENTION_FORWARD || around == FO_K_ATTENTION_BACKWARD || around == FO_K_CONV;
}

static void inherit(struct work *w)
{
	struct fo_trace *t = w->t;
	for (int32_t i = 0; i < t->op_count; i++) {
		const struct fo_host_op *o = &t->op[i];
		const struct meaning *m = meaning_of(w, o);
		struct state s = o->parent >= 0 ? w->state[o->parent] : (struct state){ NO_CLASS, FORWARD };
		uint8_t class = m->class != NO_CLASS ? m->class : w->pattern[i];
		if (class == NO_CLASS && m->backward && o->sequence >= 0) {
			int32_t at = fo_index_find(&w->sequences, o->sequence, 0);
			if (at >= 0 && !w->forward[at].ambiguous)
				class = w->forward[at].class;
		}
		if (class == FO_K_ATTENTION_FORWARD && m->backward)
			class = FO_K_ATTENTION_BACKWARD;
		bool weak = m->weak && s.class != NO_CLASS && !keeps_clear(s.class);
		/* A module's own class or none: not that of the module around it. An optimizer's step is its own
		 * whatever it calls. */
		if (s.class != FO_K_OPTIMIZER && (o->kind == FO_HOST_MODULE || m->node || (class != NO_CLASS && !weak)))
			s.class = class;
		if (m->node)
			s.pass = m->checkpoint ? CHECKPOINT : BACKWARD;
		else if (m->backward)
			s.pass = m->checkpoint ? CHECKPOINT : fo_max(s.pass, BACKWARD);
		else if (o->kind == FO_HOST_OP &&
			 (s.pass == CHECKPOINT || (s.pass == BACKWARD && w->repeats && is_forward(w, o))))
			s.pass = RECOMPUTED;
		w->state[i] = s;
	}
}

/* Under create_graph every node of the backward pass records a graph and looks as if it repeated the forward pass. */
static bool backward_repeats(struct work *w)
{
	struct fo_trace *t = w->t;
	int64_t nodes = 0, with_forward = 0;
	int32_t node = -1;
	bool counted = false;
	for (int32_t i = 0; i < t->op_count; i++) {
		const struct fo_host_op *o = &t->op[i];
		if (o->kind == FO_HOST_OP && meaning_of(w, o)->node && w->works[i]) {
			nodes++;
			node = i;
			counted = false;
		} else if (node >= 0 && !counted && o->thread == t->op[node].thread &&
			   o->begin_ns < t->op[node].end_ns && w->works[i] && is_forward(w, o)) {
			with_forward++;
			counted = true;
		}
	}
	return 2 * with_forward < nodes;
}

/* ---- GPU operations ---- */

static bool says_little(uint8_t class)
{
	return class == FO_K_ELEMENTWISE || class == FO_K_REDUCE || class == FO_K_CAST || class == FO_K_COPY ||
	       class == FO_K_RNG || class == FO_K_OTHER;
}

static uint8_t class_in(uint8_t by_name, uint8_t around)
{
	if (around == NO_CLASS || by_name == FO_K_COMMUNICATION || by_name == FO_K_MEMORY)
		return by_name;
	if (keeps_clear(around))
		return by_name == FO_K_OTHER ? around : by_name;
	if (around == FO_K_OPTIMIZER)
		return around;
	if (around == FO_K_LOSS && by_name == FO_K_SOFTMAX)
		return around;
	/* A copy is a cast or makes contiguous: the operator tells which. */
	if (around == FO_K_CAST || around == FO_K_COPY)
		return by_name == FO_K_CAST || by_name == FO_K_COPY ? around : by_name;
	return says_little(by_name) ? around : by_name;
}

static bool is_matmul_or_convolution(const char *name)
{
	static const char *const matmul[] = { "mm",     "addmm",  "bmm",        "baddbmm",     "linear",
					      "matmul", "einsum", "_scaled_mm", "_grouped_mm", "_scaled_grouped_mm",
					      NULL };
	if (strncmp(name, "aten::", 6) != 0)
		return false;
	for (int i = 0; matmul[i]; i++)
		if (strcmp(name + 6, matmul[i]) == 0)
			return true;
	return strstr(name, "convolution") || strncmp(name + 6, "conv", 4) == 0;
}

/* A copy inside a matmul or convolution brings an operand into the layout that the library wants. */
static bool rearranges(struct work *w, const struct fo_gpu_op *g, uint8_t class, uint8_t around)
{
	const struct fo_trace *t = w->t;
	enum { DEEP = 16 };
	const char *name = fo_trace_text(t, g->name);
	bool plain = strstr(name, "direct_copy") ||
		     strstr(name, "copy_device_to_device"); /* a cast, says the table: it may be either */
	bool copies = class == FO_K_COPY || (class == FO_K_CAST && around != FO_K_CAST && plain);
	int32_t op = g->op;
	for (int depth = 0; copies && op >= 0 && depth < DEEP && t->op[op].kind == FO_HOST_OP;
	     op = t->op[op].parent, depth++)
		if (is_matmul_or_convolution(fo_trace_text(t, t->op[op].name)))
			return true;
	return false;
}

static void attribute_gpu(struct work *w)
{
	struct fo_trace *t = w->t;
	for (int64_t i = 0; i < t->gpu_count; i++) {
		struct fo_gpu_op *g = &t->gpu[i];
		if (g->op < 0)
			continue;
		const struct state *s = &w->state[g->op];
		if (s->pass != FORWARD)
			g->flags |= FO_GPU_BACKWARD;
		if (s->pass == RECOMPUTED || s->pass == CHECKPOINT)
			g->flags |= FO_GPU_RECOMPUTED;
		if (g->kind != FO_GPU_KERNEL || g->flags & FO_GPU_GRAPH)
			continue;
		g->class = class_in(g->class_by_name, s->class);
		if (rearranges(w, g, g->class, s->class))
			g->class = FO_K_LAYOUT;
	}
	for (int64_t i = 0; i < t->op_count; i++) {
		t->op[i].backward = w->state[i].pass != FORWARD;
		t->op[i].recomputed = w->state[i].pass == RECOMPUTED;
	}
}

void fo_trace_attribute(struct fo_trace *t)
{
	if (t->op_count == 0)
		return;
	size_t n = (size_t)t->op_count;
	struct work w = { .t = t,
			  .meaning = fo_xmalloc(((size_t)fo_trace_texts_count(t->texts) + 1) * sizeof(*w.meaning)),
			  .state = fo_xmalloc(n * sizeof(*w.state)),
			  .pattern = fo_xmalloc(n),
			  .before = fo_xmalloc(n * sizeof(*w.before)),
			  .after = fo_xmalloc(n * sizeof(*w.after)),
			  .works = fo_xmalloc(n * sizeof(*w.works)) };
	memset(w.pattern, NO_CLASS, n);
	find_neighbours(&w);
	find_patterns(&w);
	w.repeats = backward_repeats(&w);
	inherit(&w); /* the forward pass */
	note_forwards(&w);
	inherit(&w); /* and what the backward pass has from it */
	attribute_gpu(&w);
	free(w.meaning);
	free(w.state);
	free(w.pattern);
	free(w.before);
	free(w.after);
	free(w.works);
	free(w.forward);
	fo_index_fini(&w.sequences);
}
