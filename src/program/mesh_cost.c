/* The cost of a mesh in closed form: the tensors of a layer, of the embedding and of the head, each with the sums,
 * gathers and exchanges that passes tp, cp, ddp and zero put around it. docs/passes says what these do; here is what
 * they add up to. tests/step/test_mesh_cost.c holds all of it to the programs themselves. */
#include "program/mesh_cost.h"

#include "base/count.h"
#include "base/mem.h"
#include "program/ring.h"

#include <stdlib.h>
#include <string.h>

enum { TENSORS = 24, ALIGN = 64 /* of the plan (plan.c) */ };
enum unit { EMBED, LAYER, HEAD, UNITS };
/* The sum that the squares of a tensor's gradient belong to (pass tp). */
enum squares { ALL_SQUARES, TP_SQUARES, HEADS_SQUARES, SUMS_OF_SQUARES };

/* A buffer of weights, as a rank of a tp group has it; whole rows of a shard group. */
struct tensor {
	int64_t rows, cols, own; /* own: its rows of a shard group */
	enum unit unit;
	enum squares squares;
	bool term, kv; /* gradient: a term of a sum over tp; made by each rank of a kv group */
	bool shared;   /* by the ranks of the shard group */
};

struct mesh {
	const struct fo_model *m;
	const struct fo_lowering *run;
	const struct fo_passes *pass;
	int32_t size[FO_GROUP_COUNT], place[FO_GROUP_COUNT];
	bool sequence;
	int64_t tokens, own_tokens;    /* of a micro-batch: of this rank's tp group, of this rank */
	int64_t d, q, k, f, v;         /* columns: hidden; queries, keys, feed-forward, words of this rank */
	int64_t heads, kv_heads;       /* of this rank */
	int64_t act, state, weight;    /* bytes of an element */
	int64_t layers, micro_batches; /* layers: of this stage */
	struct fo_pp_shape shape;
	int32_t stage;
	bool first, last; /* this stage has the embedding, the head */
	struct tensor tensor[TENSORS];
	int n;
	struct fo_mesh_wire *wire;
};

/* ---- bytes of calls ---- */

static void receive(struct mesh *x, int group, int lane, double bytes)
{
	x->wire->group[group] += bytes;
	x->wire->lane[lane] += bytes;
	x->wire->all += bytes;
}

/* As wire_elements of op_cost.c. */
static double all_reduced(const struct mesh *x, int group, int64_t elements)
{
	int64_t begin;
	const double own = (double)fo_mesh_part(elements, x->place[group], x->size[group], &begin);
	return own * (x->size[group] - 1) + (double)elements - own;
}

static void all_reduce(struct mesh *x, int group, int lane, int64_t elements, int64_t bytes, double times)
{
	if (x->size[group] > 1)
		receive(x, group, lane, times * (double)bytes * all_reduced(x, group, elements));
}

/* ---- tensors ---- */

static void add_tensor(struct mesh *x, enum unit unit, int64_t rows, int64_t cols, struct tensor t)
{
	t.rows = rows;
	t.cols = cols;
	t.unit = unit;
	t.own = rows;
	if (x->pass->zero && x->size[FO_GROUP_SHARD] > 1 && rows >= x->size[FO_GROUP_SHARD]) {
		int64_t begin;
		t.shared = true;
		t.own = fo_mesh_part(rows, x->place[FO_GROUP_SHARD], x->size[FO_GROUP_SHARD], &begin);
	}
	x->tensor[x->n++] = t;
}

/* What a tp group divides, and what every rank of it has: of that, gradients that are made of own tokens are terms. */
static struct tensor divided(const struct mesh *x)
{
	return (struct tensor){ .squares = x->size[FO_GROUP_TP] > 1 ? TP_SQUARES : ALL_SQUARES };
}
static struct tensor of_stream(const struct mesh *x) { return (struct tensor){ .term = x->sequence }; }
static struct tensor of_keys(const struct mesh *x)
{
	if (x->size[FO_GROUP_KV] < 2)
		return divided(x);
	return (struct tensor){ .kv = true, .squares = x->size[FO_GROUP_HEADS] > 1 ? HEADS_SQUARES : ALL_SQUARES };
}

/* n rows of a layer's weights, or as many columns of a bias. */
static void add_lines(struct mesh *x, bool bias, int64_t n, struct tensor t)
{
	if (bias)
		add_tensor(x, LAYER, 1, n, t);
	else
		add_tensor(x, LAYER, n, x->d, t);
}

static void add_qkv(struct mesh *x, bool bias)
{
	if (x->pass->merge_qkv && x->size[FO_GROUP_KV] < 2) {
		add_lines(x, bias, x->q + 2 * x->k, divided(x));
		return;
	}
	add_lines(x, bias, x->q, divided(x));
	add_lines(x, bias, x->k, of_keys(x));
	add_lines(x, bias, x->k, of_keys(x));
}

static void add_gate_up(struct mesh *x, bool bias)
{
	if (x->pass->merge_gate_up) {
		add_lines(x, bias, 2 * x->f, divided(x));
		return;
	}
	add_lines(x, bias, x->f, divided(x));
	add_lines(x, bias, x->f, divided(x));
}

static void add_tensors(struct mesh *x)
{
	const struct fo_model *m = x->m;
	const struct tensor heads = { .term = x->size[FO_GROUP_TP] > 1 };
	if (x->first || (x->last && m->tied))
		add_tensor(x, EMBED, x->v, x->d, divided(x));
	if (x->last)
		add_tensor(x, HEAD, 1, x->d, of_stream(x));
	if (x->last && !m->tied)
		add_tensor(x, HEAD, x->v, x->d, divided(x));
	add_tensor(x, LAYER, 1, x->d, of_stream(x));
	add_tensor(x, LAYER, 1, x->d, of_stream(x));
	add_qkv(x, false);
	add_tensor(x, LAYER, x->d, x->q, divided(x));
	add_gate_up(x, false);
	add_tensor(x, LAYER, x->d, x->f, divided(x));
	if (m->attention_bias)
		add_qkv(x, true);
	if (m->output_bias)
		add_tensor(x, LAYER, 1, x->d, of_stream(x));
	if (m->mlp_bias) {
		add_gate_up(x, true);
		add_tensor(x, LAYER, 1, x->d, of_stream(x));
	}
	for (int i = 0; i < 2 && m->qk_norm; i++)
		add_tensor(x, LAYER, 1, m->head_dim, heads);
}

static int64_t times_of(const struct mesh *x, const struct tensor *t) { return t->unit == LAYER ? x->layers : 1; }

/* ---- gradients ---- */

static bool staged(const struct mesh *x) { return x->shape.stages > 1; }

/* Own layers of a part of the model. */
static int64_t part_layers(const struct mesh *x, int32_t chunk, int32_t *begin)
{
	return fo_lowering_part(x->run, x->m->layers, fo_pp_position(&x->shape, x->stage, chunk), begin);
}

/* Own layers among the first `n` of the model. */
static int64_t layers_before(const struct mesh *x, int64_t n)
{
	int64_t sum = staged(x) ? 0 : fo_min(n, x->m->layers);
	for (int32_t c = 0; c < x->shape.chunks && staged(x); c++) {
		int32_t begin;
		const int64_t layers = part_layers(x, c, &begin);
		sum += fo_max(0, fo_min(n - begin, layers));
	}
	return sum;
}

/* An embedding whose weights are the head's, where stages have one each. */
static bool at_both_ends(const struct mesh *x, const struct tensor *t)
{
	return staged(x) && x->m->tied && t->unit == EMBED && !(x->first && x->last);
}

static bool scatters_each(const struct mesh *x)
{
	return x->pass->zero >= FO_ZERO_GRADIENTS && x->pass->zero_sync == FO_SYNC_MICRO_BATCH;
}

static void gradient(struct mesh *x, const struct tensor *t)
{
	const double times = (double)times_of(x, t);
	const bool narrow = x->pass->reduce_dtype == FO_REDUCE_BF16 && x->state == 4;
	const int64_t bytes = narrow ? 2 : x->state, own = t->own * t->cols;
	if (t->shared) {
		receive(x, FO_GROUP_SHARD, FO_LANE_REDUCE,
			times * (scatters_each(x) ? (double)x->micro_batches : 1) * (double)(own * bytes) *
				(x->size[FO_GROUP_SHARD] - 1));
		all_reduce(x, FO_GROUP_REPLICATE, FO_LANE_REDUCE, own, bytes, times);
		if (t->term)
			all_reduce(x, FO_GROUP_TP, FO_LANE_REDUCE, own, bytes, times);
	} else {
		all_reduce(x, t->term ? FO_GROUP_ALL : FO_GROUP_DATA, FO_LANE_REDUCE, t->rows * t->cols, bytes, times);
	}
	if (t->kv)
		all_reduce(x, FO_GROUP_KV, FO_LANE_REDUCE, own, bytes, times);
	if (at_both_ends(x, t))
		all_reduce(x, FO_GROUP_ENDS, FO_LANE_REDUCE, own, x->state, times);
}

/* Loss and norm: single numbers of 8 bytes. */
static void numbers(struct mesh *x)
{
	bool own[SUMS_OF_SQUARES] = { false };
	if (x->last)
		all_reduce(x, FO_GROUP_DATA, FO_LANE_REDUCE, 1, 8, 1);
	else
		receive(x, FO_GROUP_PP, FO_LANE_RECV_BACKWARD, 8);
	all_reduce(x, FO_GROUP_PP, FO_LANE_REDUCE, 1, 8, 1);
	if (x->size[FO_GROUP_TP] > 1)
		all_reduce(x, FO_GROUP_TP, FO_LANE_REDUCE, 1, 8, 1);
	if (x->size[FO_GROUP_KV] > 1 && x->size[FO_GROUP_HEADS] > 1)
		all_reduce(x, FO_GROUP_HEADS, FO_LANE_REDUCE, 1, 8, 1);
	for (int i = 0; i < x->n; i++)
		if (x->first || !at_both_ends(x, &x->tensor[i])) /* the first stage measures what both have */
			own[x->tensor[i].squares] |= x->tensor[i].shared;
	for (int i = 0; i < SUMS_OF_SQUARES; i++)
		all_reduce(x, FO_GROUP_SHARD, FO_LANE_REDUCE, 1, 8, own[i]);
}

/* ---- gathered weights ---- */

/* A micro-batch's uses of shared weights, in their order: embedding, layers, head, and back. */
struct uses {
	bool embed, layers, head, head_back;
	int64_t n; /* of a micro-batch */
};

/* The loss by chunks makes the head's gradients at once. */
static bool chunks_loss(const struct mesh *x) { return x->pass->fuse_loss && x->pass->fuse_loss < x->tokens; }

static struct uses uses_of(const struct mesh *x)
{
	struct uses u = { 0 };
	bool embed = false;
	for (int i = 0; i < x->n; i++) {
		embed |= x->tensor[i].unit == EMBED && x->tensor[i].shared;
		u.layers |= x->tensor[i].unit == LAYER && x->tensor[i].shared;
		u.head |= x->tensor[i].unit == HEAD && x->tensor[i].shared;
	}
	u.embed = embed && x->first;
	u.head |= embed && x->m->tied && x->last;
	u.head_back = u.head && !chunks_loss(x);
	u.n = u.embed + u.head + u.head_back + 2 * x->layers * u.layers;
	return u;
}

/* How often weights are gathered that uses `at` of each micro-batch read, n of them (fsdp.c): anew for each use that is
 * more than zero_prefetch behind the one before it. */
static int64_t gathers(const struct mesh *x, const struct uses *u, const int64_t *at, int n)
{
	const int64_t ahead = x->pass->zero_prefetch, reshard = x->pass->zero_reshard;
	int64_t inside = 0;
	if (!n)
		return 0;
	for (int i = 1; i < n; i++)
		inside += reshard == FO_RESHARD_FORWARD && at[i] - at[i - 1] > ahead;
	const bool anew = reshard != FO_RESHARD_STEP && u->n - at[n - 1] + at[0] > ahead;
	return 1 + x->micro_batches * inside + (x->micro_batches - 1) * anew;
}

/* Whether a copy persists that use `at` of a step's first micro-batch reads first. */
static bool persists(const struct mesh *x, int64_t at) { return x->pass->zero_first && at < x->pass->zero_prefetch; }

/* Places of the uses of weights, of layer `layer`. */
static int places(const struct mesh *x, const struct uses *u, enum unit unit, int64_t layer, int64_t at[3])
{
	const int64_t head = u->embed + x->layers * u->layers;
	int n = 0;
	if (unit == LAYER) {
		at[0] = u->embed + layer;
		at[1] = u->n - 1 - layer;
		return 2;
	}
	if (unit == EMBED)
		at[n++] = 0;
	if (unit == EMBED && !x->m->tied)
		return n;
	at[n++] = head;
	if (u->head_back)
		at[n++] = head + 1;
	return n;
}

static int64_t copies_bytes(const struct mesh *x, const struct tensor *t, int64_t copies)
{
	return copies * fo_round_up(t->rows * t->cols * x->weight, ALIGN);
}

/* How often a step gathers weights of one use, all instances together, and how many copies of them persist. */
struct gathered {
	int64_t times, stays;
};

static struct gathered gathered_of(const struct mesh *x, const struct uses *u, enum unit unit)
{
	struct gathered g = { 0 };
	int64_t at[3];
	if (x->pass->zero != FO_ZERO_WEIGHTS)
		return (struct gathered){ .times = unit == LAYER ? x->layers : 1 };
	for (int64_t l = 0; l < (unit == LAYER ? x->layers : 1); l++) {
		const int n = places(x, u, unit, l, at);
		const bool stays = persists(x, at[0]);
		g.times += stays ? 1 : gathers(x, u, at, n);
		g.stays += stays;
	}
	return g;
}

/* The same for a stage, whose schedule says in which order weights are used. */
struct use {
	int64_t at, mb; /* the newest use, -1: none */
	bool stays;
};
struct used {
	const struct mesh *x;
	struct gathered *of;
	struct use *unit[UNITS];
	int64_t n; /* uses so far */
};

static void use(struct used *w, enum unit unit, int64_t layer, int64_t mb)
{
	const int64_t ahead = w->x->pass->zero_prefetch, reshard = w->x->pass->zero_reshard, at = w->n++;
	struct use *u = &w->unit[unit][layer];
	const bool is_there = u->stays ||
			      (u->at >= 0 && (fo_max(at - ahead, 0) <= u->at || reshard == FO_RESHARD_STEP ||
					      (reshard == FO_RESHARD_BACKWARD && u->mb == mb)));
	if (u->at < 0 && persists(w->x, at)) {
		u->stays = true;
		w->of[unit].stays++;
	}
	w->of[unit].times += !is_there;
	u->at = at;
	u->mb = mb;
}

static void use_slot(struct used *w, const struct uses *u, struct fo_pp_slot s)
{
	const struct mesh *x = w->x;
	const int32_t part = fo_pp_position(&x->shape, x->stage, s.chunk);
	const bool forward = s.work == FO_PP_FORWARD, head = !forward && part == fo_pp_parts(&x->shape) - 1;
	int32_t begin;
	const int64_t n = part_layers(x, s.chunk, &begin);
	if (s.work == FO_PP_WEIGHT)
		return;
	if (forward && part == 0 && u->embed)
		use(w, EMBED, 0, s.mb);
	for (int i = 0; head && i < u->head + u->head_back; i++)
		use(w, x->m->tied ? EMBED : HEAD, 0, s.mb);
	for (int64_t i = 0; i < n && u->layers; i++)
		use(w, LAYER, forward ? begin + i : begin + n - 1 - i, s.mb);
}

static void stage_gathers(const struct mesh *x, const struct uses *u, struct gathered of[UNITS])
{
	struct used w = { .x = x, .of = of };
	struct fo_pp_slot *slot = fo_xmalloc((size_t)fo_pp_slots_most(&x->shape) * sizeof *slot);
	const int64_t slots = fo_pp_order(&x->shape, x->stage, slot);
	for (int k = 0; k < UNITS; k++) {
		const int64_t n = k == LAYER ? x->m->layers : 1;
		w.unit[k] = fo_xmalloc((size_t)n * sizeof **w.unit);
		for (int64_t i = 0; i < n; i++)
			w.unit[k][i] = (struct use){ -1, -1, false };
		of[k] = (struct gathered){ 0 };
	}
	for (int64_t i = 0; i < slots; i++)
		use_slot(&w, u, slot[i]);
	for (int k = 0; k < UNITS; k++)
		free(w.unit[k]);
	free(slot);
}

/* Weights on the wire; returns the bytes of copies that persist. */
static int64_t weights(struct mesh *x)
{
	const struct uses u = uses_of(x);
	struct gathered of[UNITS];
	int64_t kept = 0;
	for (int unit = 0; unit < UNITS; unit++)
		of[unit] = gathered_of(x, &u, (enum unit)unit);
	if (staged(x) && x->pass->zero == FO_ZERO_WEIGHTS)
		stage_gathers(x, &u, of);
	for (int i = 0; i < x->n; i++) {
		const struct tensor *t = &x->tensor[i];
		if (!t->shared)
			continue;
		receive(x, FO_GROUP_SHARD, FO_LANE_GATHER,
			(double)of[t->unit].times * (double)((t->rows - t->own) * t->cols * x->weight));
		kept += copies_bytes(x, t, of[t->unit].stays);
	}
	return kept;
}

/* ---- tokens ---- */

/* What the first layers repeat, and the others. */
static int64_t repeated(const struct mesh *x, int64_t *first)
{
	const struct fo_passes *c = x->pass;
	const bool some = c->recompute_layers && c->recompute_layers < x->m->layers;
	*first = some ? layers_before(x, c->recompute_layers) : x->layers;
	return some && c->recompute ? c->recompute_rest : 0;
}

/* Layers whose backward repeats what is of `set`. */
static double layers_with(const struct mesh *x, int set)
{
	int64_t first, layers = 0;
	const int64_t rest = repeated(x, &first);
	if (x->pass->recompute & set)
		layers += first;
	if (rest & set)
		layers += x->layers - first;
	return (double)layers;
}

static void tensor_parallel(struct mesh *x)
{
	const double mb = (double)x->micro_batches, layers = (double)x->layers,
		     norms = layers_with(x, FO_RECOMPUTE_NORM), out = layers_with(x, FO_RECOMPUTE_OUT);
	const int64_t chunk = chunks_loss(x) ? x->pass->fuse_loss : x->tokens;
	if (x->size[FO_GROUP_TP] < 2)
		return;
	if (x->sequence)
		receive(x, FO_GROUP_TP, FO_LANE_TP,
			mb * (8 * layers + 2 * norms + out + 2 * x->first + 2 * x->last) *
				(double)((x->tokens - x->own_tokens) * x->d * x->act));
	else
		all_reduce(x, FO_GROUP_TP, FO_LANE_TP, x->tokens * x->d, x->act,
			   mb * (4 * layers + out + x->first + x->last));
	for (int last = 0; last < 2 && x->last; last++) {
		const int64_t n = last ? x->tokens % chunk : chunk;
		const double times = mb * (last ? n > 0 : (double)(x->tokens / chunk));
		all_reduce(x, FO_GROUP_TP, FO_LANE_TP, n, 4, times);
		all_reduce(x, FO_GROUP_TP, FO_LANE_TP, 2 * n, x->state, times);
	}
}

/* Columns of own heads of queries, keys and values side by side, and of queries. */
static int64_t exchanged(const struct mesh *x, int64_t *q)
{
	const int64_t cp = x->size[FO_GROUP_CP];
	*q = x->q / cp;
	return *q + 2 * fo_heads_each(x->kv_heads, cp) * x->m->head_dim;
}

static void context_parallel(struct mesh *x)
{
	const int64_t cp = x->size[FO_GROUP_CP];
	const double layers = (double)x->layers, again = layers_with(x, FO_RECOMPUTE_ATTENTION),
		     mb = (double)x->micro_batches;
	int64_t q;
	if (cp < 2)
		return;
	if (x->pass->cp == FO_CP_RING) {
		receive(x, FO_GROUP_CP, FO_LANE_CP,
			mb * (6 * layers + 2 * again) * (double)((cp - 1) * x->tokens * x->k * x->act));
		return;
	}
	const int64_t qkv = exchanged(x, &q);
	receive(x, FO_GROUP_CP, FO_LANE_CP,
		mb * (2 * layers + again) * (double)((cp - 1) * x->tokens * (qkv + q) * x->act));
}

/* Activations and their gradients from other stages. */
static void stages(struct mesh *x)
{
	const double bytes = (double)x->micro_batches * (double)(x->own_tokens * x->d * x->act);
	for (int32_t c = 0; c < x->shape.chunks && staged(x); c++)
		for (int forward = 0; forward < 2; forward++) {
			const struct fo_pp_slot slot = { .chunk = (int16_t)c,
							 .work = forward ? FO_PP_FORWARD : FO_PP_BACKWARD };
			struct fo_pp_peer from;
			if (fo_pp_needs(&x->shape, x->stage, slot, &from) && from.stage != x->stage)
				receive(x, FO_GROUP_PP, forward ? FO_LANE_RECV_FORWARD : FO_LANE_RECV_BACKWARD, bytes);
		}
}

/* ---- memory ---- */

static int64_t padded(int64_t rows, int64_t cols, int64_t bytes) { return fo_round_up(rows * cols * bytes, ALIGN); }

static bool is_heads(const struct mesh *x) { return x->size[FO_GROUP_CP] > 1 && x->pass->cp == FO_CP_HEADS; }

/* What backward reads of a layer's forward and `sets` does not repeat. */
struct layer {
	const struct mesh *x;
	int64_t sets, bytes;
};

static void keep(struct layer *l, bool needed, int made_by, int64_t rows, int64_t cols, int64_t bytes)
{
	if (needed && !(l->sets & made_by))
		l->bytes += padded(rows, cols, bytes);
}

static void keep_attention(struct layer *l)
{
	const struct mesh *x = l->x;
	const bool eager = x->pass->attention == FO_ATTENTION_EAGER;
	int64_t q = x->q, tokens = x->tokens, heads = x->heads;
	if (is_heads(x)) {
		const int64_t qkv = exchanged(x, &q);
		tokens *= x->size[FO_GROUP_CP];
		heads /= x->size[FO_GROUP_CP];
		keep(l, true, FO_RECOMPUTE_ATTENTION, tokens, qkv, x->act);
		keep(l, !eager, FO_RECOMPUTE_ATTENTION, tokens, q, x->act);
	}
	if (eager)
		keep(l, true, FO_RECOMPUTE_ATTENTION, tokens, heads * x->run->seq, x->act);
	else
		keep(l, true, FO_RECOMPUTE_ATTENTION, tokens, heads, x->state);
	keep(l, true, FO_RECOMPUTE_ATTENTION, x->tokens, x->q, x->act);
}

/* Queries, keys and values; with norms of their own what is normed, and its statistics. */
static void keep_qkv(struct layer *l)
{
	const struct mesh *x = l->x;
	const bool read = !is_heads(x) || l->sets & FO_RECOMPUTE_ATTENTION, norms = x->m->qk_norm,
		   merged = x->pass->merge_qkv && x->size[FO_GROUP_KV] < 2 &&
			    (x->size[FO_GROUP_CP] < 2 || x->pass->cp == FO_CP_HEADS);
	if (merged) {
		keep(l, norms || read, FO_RECOMPUTE_QKV, x->tokens, x->q + 2 * x->k, x->act);
	} else {
		keep(l, norms || read, FO_RECOMPUTE_QKV, x->tokens, x->q, x->act);
		keep(l, norms || read, FO_RECOMPUTE_QKV, x->tokens, x->k, x->act);
		keep(l, read, FO_RECOMPUTE_QKV, x->tokens, x->k, x->act);
	}
	keep(l, norms && read, FO_RECOMPUTE_NORM, x->tokens, x->q, x->act);
	keep(l, norms && read, FO_RECOMPUTE_NORM, x->tokens, x->k, x->act);
	keep(l, norms, read ? FO_RECOMPUTE_NORM : 0, x->tokens, x->heads, x->state);
	keep(l, norms, read ? FO_RECOMPUTE_NORM : 0, x->tokens, x->kv_heads, x->state);
}

static int64_t kept_of(const struct mesh *x, int64_t sets)
{
	struct layer l = { .x = x, .sets = sets };
	const int64_t merged = x->pass->merge_gate_up ? 1 : 2;
	keep(&l, true, 0, x->own_tokens, x->d, x->act);
	keep(&l, true, FO_RECOMPUTE_OUT, x->own_tokens, x->d, x->act);
	for (int i = 0; i < 2; i++) { /* both norms: all tokens of what matmuls read */
		keep(&l, true, FO_RECOMPUTE_NORM, x->tokens, x->d, x->act);
		keep(&l, true, FO_RECOMPUTE_NORM, x->own_tokens, 1, x->state);
	}
	keep_qkv(&l);
	keep_attention(&l);
	for (int64_t i = 0; i < merged; i++)
		keep(&l, true, FO_RECOMPUTE_GATE_UP, x->tokens, 2 / merged * x->f, x->act);
	keep(&l, true, FO_RECOMPUTE_SWIGLU, x->tokens, x->f, x->act);
	return l.bytes;
}

/* All that a layer's backward may have at one time beside what is kept: what it repeats, the gradients of activations,
 * and what is on its way between ranks. */
static int64_t passing(const struct mesh *x)
{
	const int64_t cp = x->size[FO_GROUP_CP], d = (x->own_tokens + x->tokens) * x->d,
		      qkv = x->tokens * (x->q + 2 * x->k);
	int64_t q, all = 8 * d + x->tokens * (4 * x->f + 3 * x->q) + 3 * qkv, more = 0;
	if (is_heads(x))
		more = 4 * cp * x->tokens * (exchanged(x, &q) + x->q / cp);
	else if (cp > 1)
		more = cp * x->tokens * (12 * x->k + 2 * x->q + 2 * x->heads * x->state / x->act);
	return kept_of(x, 0) + (all + more) * x->act + 64 * ALIGN;
}

/* Bytes of a layer's gradients, and of those outside of layers: of whole weights, or of own rows where these have
 * buffers of their own. */
static int64_t gradients(const struct mesh *x, bool own, bool layers)
{
	int64_t bytes = 0;
	for (int i = 0; i < x->n; i++) {
		const struct tensor *t = &x->tensor[i];
		if ((t->unit == LAYER) == layers)
			bytes += padded(own ? t->own : t->rows, t->cols, x->state);
	}
	return bytes;
}

/* Gathered copies of weights, most at a time: the embedding's and the head's live at other times, but where these lie
 * close to each other. *head: those that are there with all activations. */
static int64_t copies(const struct mesh *x, int64_t *head)
{
	const bool keeps = x->pass->zero_reshard != FO_RESHARD_FORWARD;
	const int64_t ahead = x->pass->zero_prefetch + 2, layers = keeps ? x->layers : fo_min(ahead, x->layers);
	int64_t of[UNITS] = { 0 };
	*head = 0;
	if (x->pass->zero != FO_ZERO_WEIGHTS)
		return 0;
	for (int i = 0; i < x->n; i++)
		if (x->tensor[i].shared)
			of[x->tensor[i].unit] += padded(x->tensor[i].rows, x->tensor[i].cols, x->weight);
	if (!x->pass->zero_first) { /* else some of them persist */
		*head = of[x->m->tied ? EMBED : HEAD];
		*head += keeps ? x->layers * of[LAYER] : 0;
	}
	const bool apart = !keeps && x->layers > ahead;
	return layers * of[LAYER] + (apart ? fo_max(of[EMBED], of[HEAD]) : of[EMBED] + of[HEAD]);
}

/* Bytes of one tensor of the vocabulary's gradient. */
static int64_t words(const struct mesh *x) { return padded(x->v, x->d, x->state); }

/* Gradients of weights when the last micro-batch's forward is over, when backward is, and most at a time. Those of own
 * rows have buffers of their own, which are there beside whole ones until these are scattered. */
struct gradients {
	int64_t before, end, most;
	bool by_layer; /* gone behind the slot that completes them */
};

static struct gradients gradients_of(const struct mesh *x)
{
	const struct fo_passes *c = x->pass;
	const bool several = x->micro_batches > 1,
		   scatters = x->size[FO_GROUP_SHARD] > 1 && c->zero >= FO_ZERO_GRADIENTS,
		   late = c->reduce_late && fo_mesh_ranks(&x->run->mesh) > 1,
		   by_layer = scatters && !late && (!several || scatters_each(x)),
		   early = c->optimizer_in_backward && !late && !several;
	const int64_t whole = gradients(x, false, true) * x->layers + gradients(x, false, false),
		      own = gradients(x, true, true) * x->layers + gradients(x, true, false);
	const int64_t most = by_layer ? own : whole;
	struct gradients g = { .end = most, .most = most, .by_layer = by_layer || early };
	if (several)
		g.before = scatters_each(x) ? own : whole;
	if (scatters && !by_layer)
		g.most += own;
	if (c->optimizer_in_backward)
		g.end = 0;
	if (early)
		g.most = 0; /* but those of a layer, and outside */
	return g;
}

/* Bytes that wait for backward over a stage's schedule. A micro-batch holds them from a chunk's forward to its
 * backward; where weights' gradients come later, all that a layer's backward makes besides, at most, until then. */
struct held {
	int64_t low, high; /* most at a time */
	int64_t last_low;  /* when the model's last part goes backward */
};

static int64_t chunk_kept(const struct mesh *x, int32_t chunk, int64_t rest, int64_t *layers)
{
	int32_t begin;
	*layers = part_layers(x, chunk, &begin);
	const bool some = x->pass->recompute_layers && x->pass->recompute_layers < x->m->layers;
	const int64_t first = some ? fo_max(0, fo_min(x->pass->recompute_layers - begin, *layers)) : *layers;
	return first * kept_of(x, x->pass->recompute) + (*layers - first) * kept_of(x, rest);
}

static struct held held_of(const struct mesh *x, int64_t rest)
{
	struct fo_pp_slot *slot = fo_xmalloc((size_t)fo_pp_slots_most(&x->shape) * sizeof *slot);
	const int64_t slots = fo_pp_order(&x->shape, x->stage, slot);
	struct held h = { 0 };
	int64_t low = 0, high = 0;
	for (int64_t i = 0; i < slots; i++) {
		const bool last = fo_pp_position(&x->shape, x->stage, slot[i].chunk) == fo_pp_parts(&x->shape) - 1;
		int64_t layers;
		const int64_t kept = chunk_kept(x, slot[i].chunk, rest, &layers), more = layers * passing(x) - kept;
		if (slot[i].work == FO_PP_FORWARD) {
			low += kept, high += kept;
		} else if (slot[i].work == FO_PP_WEIGHT) {
			high -= kept + more;
		} else {
			h.last_low = last ? fo_max(h.last_low, low) : h.last_low;
			low -= kept, high += slot[i].work == FO_PP_INPUT ? more : -kept;
		}
		h.low = fo_max(h.low, low);
		h.high = fo_max(h.high, high);
	}
	free(slot);
	return h;
}

/* Counts beside what waits the messages in flight of each part and micro-batch, on their way or ahead of their use. */
static void stage_arena(const struct mesh *x, int64_t rest, struct fo_mesh_memory *o)
{
	const struct gradients g = gradients_of(x);
	const struct held h = held_of(x, rest);
	const int64_t logits = (chunks_loss(x) ? x->pass->fuse_loss : x->tokens) * x->v * x->act,
		      batch = x->micro_batches * 8 * 4 * x->tokens * x->size[FO_GROUP_CP] + 64 * ALIGN,
		      head = logits + 4 * (x->own_tokens + x->tokens) * x->d * x->act + 8 * x->tokens * x->state,
		      message = padded(x->own_tokens, x->d, x->act);
	int64_t head_copies;
	const bool accumulates = x->micro_batches > 1 && !g.by_layer, ends = x->m->tied && !(x->first && x->last);
	const int64_t gathered = copies(x, &head_copies);
	const int64_t vocabulary = x->first || x->last ? words(x) : 0;
	const int64_t whole = accumulates ? 0 : 2 * gradients(x, false, true) + vocabulary;
	o->gradients = g.most;
	o->arena_low = fo_max(h.low, x->last ? h.last_low + logits : 0);
	o->arena_low = fo_max(o->arena_low, g.end);
	o->arena_high = h.high + g.most + whole + (ends ? vocabulary : 0) + gathered + batch;
	o->arena_high += 4 * message * x->shape.chunks * fo_min(x->micro_batches, 2 * x->shape.stages);
	o->arena_high += fo_max(passing(x), x->last ? head : 0) * (1 + (x->pass->wgrad_lane != 0));
}

static void arena(const struct mesh *x, struct fo_mesh_memory *o)
{
	int64_t first;
	const int64_t rest = repeated(x, &first);
	const struct gradients g = gradients_of(x);
	const bool several = x->micro_batches > 1;
	const int64_t logits = (chunks_loss(x) ? x->pass->fuse_loss : x->tokens) * x->v * x->act,
		      layer = gradients(x, false, true), batch = 8 * 4 * x->tokens * x->size[FO_GROUP_CP] + 64 * ALIGN,
		      head = logits + 4 * (x->own_tokens + x->tokens) * x->d * x->act + 8 * x->tokens * x->state;
	int64_t head_copies;
	const int64_t gathered = copies(x, &head_copies);
	o->kept = first * kept_of(x, x->pass->recompute) + (x->layers - first) * kept_of(x, rest);
	if (staged(x)) {
		stage_arena(x, rest, o);
		return;
	}
	o->gradients = g.most;
	o->arena_low = o->kept + logits + g.before + head_copies + (chunks_loss(x) && !g.before ? words(x) : 0);
	o->arena_low = fo_max(o->arena_low, g.end);
	/* Whole gradients of two layers and of the head, where all gradients are not counted already. */
	const int64_t whole = several && !g.by_layer ? 0 : 2 * layer + words(x);
	o->arena_high = (several ? o->kept + g.most : fo_max(o->kept, g.most)) + whole + gathered + batch +
			fo_max(passing(x), head) * (1 + (x->pass->wgrad_lane != 0));
}

static void persistent(const struct mesh *x, int64_t kept_copies, struct fo_mesh_memory *o)
{
	const struct fo_passes *c = x->pass;
	const bool bf16 = x->run->precision == FO_PRECISION_BF16;
	int64_t master = 0;
	if (bf16 && c->master != FO_MASTER_NONE)
		master = c->master == FO_MASTER_SPLIT ? 2 : 4;
	const int64_t moment = c->moments == FO_MOMENTS_BF16 ? 2 : x->state;
	for (int i = 0; i < x->n; i++) {
		const struct tensor *t = &x->tensor[i];
		const int64_t times = times_of(x, t), rows = c->zero == FO_ZERO_WEIGHTS ? t->own : t->rows;
		o->weights += times * padded(rows, t->cols, x->weight);
		o->master += times * padded(t->own, t->cols, master);
		o->moments += 2 * times * padded(t->own, t->cols, moment);
	}
	o->copies = kept_copies + padded(x->run->seq, x->m->head_dim, x->state);
	o->persistent = o->weights + o->master + o->moments + o->copies;
}

/* ---- all of it ---- */

static void begin(struct mesh *x, const struct fo_model *m, const struct fo_lowering *run, struct fo_mesh_wire *wire)
{
	struct fo_mesh mesh = run->mesh;
	*x = (struct mesh){ .m = m, .run = run, .pass = &run->pass, .wire = wire };
	mesh.kv = fo_mesh_kv_of(m, fo_mesh_tp(&mesh));
	for (int g = FO_GROUP_DATA; g < FO_GROUP_COUNT; g++)
		x->size[g] = fo_mesh_group(&mesh, (enum fo_group)g, &x->place[g], NULL);
	const int32_t tp = x->size[FO_GROUP_TP], heads = x->size[FO_GROUP_HEADS];
	int64_t from;
	x->sequence = tp > 1 && x->pass->tp == FO_TP_SEQUENCE;
	x->tokens = run->seq * run->rows / x->size[FO_GROUP_CP];
	x->own_tokens = x->sequence ? x->tokens / tp : x->tokens;
	x->d = m->hidden;
	x->heads = m->heads / tp;
	x->kv_heads = m->kv_heads / heads;
	x->q = x->heads * m->head_dim;
	x->k = x->kv_heads * m->head_dim;
	x->f = m->ffn / tp;
	x->v = fo_mesh_part(m->vocab, x->place[FO_GROUP_TP], tp, &from);
	x->state = run->precision == FO_PRECISION_F64 ? 8 : 4;
	x->act = x->weight = run->precision == FO_PRECISION_BF16 ? 2 : x->state;
	x->micro_batches = run->micro_batches;
	x->stage = fo_mesh_stage(&mesh);
	x->shape = fo_mesh_pp(&mesh) > 1 ? fo_lowering_pipeline(run)
					 : (struct fo_pp_shape){ .stages = 1, .micro_batches = 1, .chunks = 1 };
	x->layers = staged(x) ? 0 : m->layers;
	x->first = x->last = !staged(x);
	for (int32_t c = 0; c < x->shape.chunks && staged(x); c++) {
		const int32_t part = fo_pp_position(&x->shape, x->stage, c);
		int32_t first;
		x->layers += part_layers(x, c, &first);
		x->first |= part == 0;
		x->last |= part == fo_pp_parts(&x->shape) - 1;
	}
	add_tensors(x);
}

static fo_status known(const struct fo_lowering *run)
{
	const struct fo_passes *c = &run->pass;
	if (c->fp8)
		return fo_fail(FO_EUNSUPPORTED, "the cost of a mesh with fp8 is not known without its program");
	if (c->offload)
		return fo_fail(FO_EUNSUPPORTED, "the cost of a mesh with offload is not known without its program");
	if (run->mode != FO_MODE_TRAIN)
		return fo_fail(FO_EUNSUPPORTED, "the cost of a mesh is that of a training step");
	if ((fo_mesh_ranks(&run->mesh) > fo_mesh_pp(&run->mesh) && !c->ddp) || (fo_mesh_tp(&run->mesh) > 1 && !c->tp) ||
	    (fo_mesh_cp(&run->mesh) > 1 && !c->cp))
		return fo_fail(FO_EUNSUPPORTED, "ranks of a mesh need the passes ddp, tp and cp");
	return FO_OK;
}

fo_status fo_mesh_cost(const struct fo_model *m, const struct fo_lowering *run, struct fo_mesh_wire *wire,
		       struct fo_mesh_memory *memory)
{
	struct mesh x;
	struct fo_lowering own;
	*wire = (struct fo_mesh_wire){ .all = 0 };
	*memory = (struct fo_mesh_memory){ .persistent = 0 };
	FO_TRY(known(run));
	if (run->stages.repeats) { /* the own stage's choice */
		own = *run;
		fo_lowering_repeat(&own, m->layers);
		run = &own;
	}
	begin(&x, m, run, wire);
	for (int i = 0; i < x.n; i++)
		gradient(&x, &x.tensor[i]);
	numbers(&x);
	persistent(&x, weights(&x), memory);
	tensor_parallel(&x);
	context_parallel(&x);
	stages(&x);
	arena(&x, memory);
	return FO_OK;
}
