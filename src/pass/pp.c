/* pp: ranks of a pp group are the stages of a pipeline. Each has its part of the model's layers, the first one the
 * embedding, the last one the head; micro-batches go through them one behind the other.
 *
 * A schedule (program/schedule.h) says in which order a stage works on micro-batches forward and backward; here its
 * slots become slots of the program: the own layers' blocks, with a receive in front of them and a send behind, of the
 * activations between two layers forward, and of their gradients backward. Each direction and end has a lane of its
 * own. The head goes forward where backward begins: nothing else
 * waits for its loss, and logits live for one micro-batch alone.
 *
 * Where a receive is listed. A send ends when its receive has come, and a receive may wait for bytes that a send before
 * it still reads; listed as late as its tensor is needed, such waits can go round in a circle. So the schedule is
 * walked through with slots of even length (1, backward 2), and a receive is listed in front of the first own slot that
 * ends when the sender's does or later. Then it waits for nothing that ends, in that walk, as late as its own send, and
 * by induction over the walk's time nothing waits for itself, at whatever speed ranks really run. For one that comes
 * when the slot before is over this is in front of that slot: its bytes are its own, and the transfer waits for
 * nothing.
 *
 * Zero-bubble schedules go backward in two pieces: gradients of inputs, which the stage before waits for, and later
 * those of weights (fo_pass_pp_weights). The second piece is a block of its own, filled when recomputation and fusions
 * are done: the matmuls that make weight gradients, and sums for biases. Gradients of norms' weights, of the embedding
 * and of the head stay with their inputs'.
 *
 * What all stages need of each other comes once a step: the last one sends the loss, and squares of gradients are added
 * up over the group. An embedding whose weights are the head's is on two stages: its gradient is added up over both
 * before the optimizer, both update their copy, and the first one alone counts it in the norm.
 *
 * Blocks are those of the whole model, so passes behind this one see a stage's program like any other.
 *
 * From: GPipe (Huang et al. 2019), PipeDream-Flush (Narayanan et al. 2021) and what program/schedule names. */
#include "pass/pass.h"
#include "base/count.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHTS "layer.w"
enum { DIRECTIONS = 2 }; /* FO_ROLE_FORWARD, FO_ROLE_BACKWARD */

/* What slot `slot` of the stage receives comes at a time of the walk. */
struct arrival {
	double time;
	int64_t slot;
};

struct stage {
	struct fo_program *p;
	struct fo_pp_shape shape;
	int32_t own; /* this stage's number */
	bool train, first, last;
	/* Blocks of the whole program by layer: [FO_ROLE_FORWARD], [FO_ROLE_BACKWARD]; -1: none. */
	int *layer[DIRECTIONS], embed[DIRECTIONS], head[DIRECTIONS], batch;
	int weights;             /* an empty block, which fo_pass_pp_weights fills */
	struct fo_pp_slot *slot; /* the schedule's */
	int64_t slots;
	bool *has_batch;      /* by micro-batch: its tokens were listed */
	struct arrival *in;   /* what its slots receive, in the order in which it comes */
	int64_t ins, in_at;   /* in_at: the next to be listed */
	double *end;          /* by slot, in the walk */
	struct fo_slot *from; /* the whole program's slots */
	int from_n;
};

fo_status fo_pass_pp_legal(const struct fo_program *p)
{
	if (fo_mesh_pp(&p->run.mesh) < 2)
		return FO_OK;
	FO_TRY(fo_lowering_check_pipeline(&p->run, p->model.layers));
	if (p->run.mode != FO_MODE_TRAIN && p->run.mode != FO_MODE_EVAL)
		return fo_fail(FO_EARG, "stages of a pipeline train and evaluate; they do not write text");
	if (p->run.pass.offload)
		return fo_hint(fo_fail(FO_EARG,
				       "stages of a pipeline keep their activations: pass offload copies those "
				       "of layers that other stages have"),
			       "pass.offload=0, or mesh.pp=1");
	return FO_OK;
}

/* ---- the whole program ---- */

static bool is_port(const struct fo_block *b, int port) { return b->n == 1 && b->op[0].attr.port == port; }

static void find_blocks(struct stage *s)
{
	struct fo_program *p = s->p;
	const size_t n = (size_t)p->model.layers + 1;
	for (int d = 0; d < DIRECTIONS; d++) {
		s->layer[d] = fo_xmalloc(n * sizeof *s->layer[d]);
		memset(s->layer[d], -1, n * sizeof *s->layer[d]);
		s->embed[d] = s->head[d] = -1;
	}
	for (int i = 0; i < p->nslot; i++) {
		const struct fo_block *b = &p->block[p->slot[i].block];
		if (b->role == FO_ROLE_HOST && is_port(b, FO_PORT_BATCH))
			s->batch = p->slot[i].block;
		if (b->role != FO_ROLE_FORWARD && b->role != FO_ROLE_BACKWARD)
			continue;
		if (b->unit == FO_UNIT_LAYER)
			s->layer[b->role][p->slot[i].layer] = p->slot[i].block;
		else if (b->unit == FO_UNIT_EMBED)
			s->embed[b->role] = p->slot[i].block;
		else if (b->unit == FO_UNIT_HEAD)
			s->head[b->role] = p->slot[i].block;
	}
	s->from = p->slot;
	s->from_n = p->nslot;
	p->slot = NULL;
	p->nslot = 0;
	p->slot_cap = 0;
}

/* Evaluation goes forward alone, part by part. */
static void find_slots(struct stage *s)
{
	const int32_t mbs = s->shape.micro_batches;
	s->slot = fo_xmalloc((size_t)fo_pp_slots_most(&s->shape) * sizeof *s->slot);
	if (s->train) {
		s->slots = fo_pp_order(&s->shape, s->own, s->slot);
		return;
	}
	for (int32_t mb = 0; mb < mbs; mb++)
		for (int32_t c = 0; c < s->shape.chunks; c++)
			s->slot[s->slots++] = (struct fo_pp_slot){ .mb = mb,
								   .chunk = (int16_t)c,
								   .work = FO_PP_FORWARD };
}

/* ---- between stages ---- */

/* A block that sends or receives one buffer of a layer's border: made where the stage has not needed it yet. */
static int transfer_block(struct stage *s, bool sends, bool forward, int32_t peer, int buf)
{
	struct fo_program *p = s->p;
	char name[sizeof p->block->name];
	static const int lane[2][2] = { { FO_LANE_RECV_BACKWARD, FO_LANE_RECV_FORWARD },
					{ FO_LANE_SEND_BACKWARD, FO_LANE_SEND_FORWARD } };
	snprintf(name, sizeof name, "%s.%d.%.12s", sends ? "send" : "recv", peer, p->buf[buf].name);
	const int known = fo_block_find(p, name);
	if (known >= 0)
		return known;
	const int b = fo_block_add(p, name, FO_ROLE_P2P,
				   p->buf[buf].axes & FO_PER_LAYER ? FO_UNIT_LAYER : FO_UNIT_STEP);
	struct fo_op *o = fo_op_insert(p, b, 0, fo_op_of_wire(sends ? FO_WIRE_SEND : FO_WIRE_RECEIVE), FO_TRANSFER,
				       lane[sends][forward]);
	o->group = FO_GROUP_PP;
	o->attr.peer = peer;
	fo_op_arg(p, o, buf, 0, sends ? FO_READ : FO_DEF);
	return b;
}

/* Whether a block of this direction hands buffer `buf` over its layer's upper border: forward it writes there, backward
 * it reads there what the layer behind has made of it. */
static bool crosses(const struct stage *s, int layer, bool forward, int buf)
{
	bool writes = false, reads = false, makes = false; /* makes: backward, before it reads it */
	for (int d = 0; d < DIRECTIONS; d++) {
		const int at = s->layer[d][layer];
		for (int i = 0; at >= 0 && i < s->p->block[at].n; i++)
			for (int k = 0; k < s->p->block[at].op[i].n; k++) {
				const struct fo_operand *a = &s->p->block[at].op[i].arg[k];
				if (a->buf != buf || a->dlayer != 1)
					continue;
				writes |= d == FO_ROLE_FORWARD && fo_access_writes(a->access);
				makes |= d == FO_ROLE_BACKWARD && !reads && fo_access_writes(a->access);
				reads |= d == FO_ROLE_BACKWARD;
			}
	}
	return forward ? writes : reads && !makes && !writes;
}

/* What lies between layer `border` and the one before it goes to another stage or comes from there. */
static void put_transfers(struct stage *s, bool sends, bool forward, int32_t peer, int border, int mb)
{
	for (int buf = 0; buf < s->p->nbuf; buf++)
		if (crosses(s, border - 1, forward, buf))
			fo_slot_add(s->p, transfer_block(s, sends, forward, peer, buf), border, mb);
}

/* ---- one slot of the schedule ---- */

struct part {
	int32_t at, begin, end; /* of the model; its layers */
	bool first, last;
};

static struct part part_of(const struct stage *s, struct fo_pp_slot slot)
{
	struct part x = { .at = fo_pp_position(&s->shape, s->own, slot.chunk) };
	x.end = fo_lowering_part(&s->p->run, s->p->model.layers, x.at, &x.begin);
	x.end += x.begin;
	x.first = x.at == 0;
	x.last = x.at == fo_pp_parts(&s->shape) - 1;
	return x;
}

static bool is_forward(struct fo_pp_slot slot) { return slot.work == FO_PP_FORWARD; }

/* ---- when things come ---- */

/* The end of each slot of a plan, by stage, direction, chunk and micro-batch. */
static size_t place_of(const struct stage *s, int32_t stage, struct fo_pp_slot slot)
{
	const size_t direction = 2 * (size_t)stage + !is_forward(slot);
	return (direction * (size_t)s->shape.chunks + (size_t)slot.chunk) * (size_t)s->shape.micro_batches +
	       (size_t)slot.mb;
}

static int by_time(const void *x, const void *y)
{
	const struct arrival *a = x, *b = y;
	return FO_ORDER_BY(fo_order(a->time, b->time), fo_order(a->slot, b->slot));
}

/* Walks through the schedule of all stages. */
static fo_status walk(struct stage *s, double *ends)
{
	const struct fo_pp_times even = { .forward_s = 1, .input_s = 1, .weight_s = 1 };
	struct fo_pp_plan plan;
	struct fo_pp_walk w;
	fo_pp_plan_of(&plan, &s->shape);
	fo_status st = fo_pp_walk_of(&w, &plan, &even, FO_PP_BUFFERED);
	for (int32_t k = 0; k < s->shape.stages && st == FO_OK; k++)
		for (int64_t i = plan.begin[k]; i < plan.begin[k + 1]; i++)
			if (plan.slot[i].work != FO_PP_WEIGHT)
				ends[place_of(s, k, plan.slot[i])] = w.span[i].end;
	for (int64_t i = 0; i < s->slots && st == FO_OK; i++)
		s->end[i] = w.span[plan.begin[s->own] + i].end;
	if (st == FO_OK)
		fo_pp_walk_free(&w);
	fo_pp_plan_free(&plan);
	return st;
}

/* Evaluation has one micro-batch: what comes is listed as soon as can be, for nothing was sent before. */
static void find_arrivals(struct stage *s)
{
	const size_t all = 2 * (size_t)s->shape.stages * (size_t)s->shape.chunks * (size_t)s->shape.micro_batches;
	double *ends = fo_xmalloc((all + 1) * sizeof *ends);
	struct fo_pp_peer from;
	s->in = fo_xmalloc((size_t)(s->slots + 1) * sizeof *s->in);
	s->end = fo_xmalloc((size_t)(s->slots + 1) * sizeof *s->end);
	if (s->train && walk(s, ends) != FO_OK)
		fo_err_clear(); /* a schedule that is legal can be walked through */
	for (int64_t i = 0; i < s->slots; i++)
		if (fo_pp_needs(&s->shape, s->own, s->slot[i], &from) && from.stage != s->own)
			s->in[s->ins++] = (struct arrival){ ends[place_of(s, from.stage, from.slot)], i };
	qsort(s->in, (size_t)s->ins, sizeof *s->in, by_time);
	free(ends);
}

/* Lists what comes until slot i ends. */
static void put_arrivals(struct stage *s, int64_t i)
{
	for (; s->in_at < s->ins && s->in[s->in_at].time <= s->end[i]; s->in_at++) {
		const struct fo_pp_slot slot = s->slot[s->in[s->in_at].slot];
		const struct part x = part_of(s, slot);
		struct fo_pp_peer from;
		if (fo_pp_needs(&s->shape, s->own, slot, &from))
			put_transfers(s, false, is_forward(slot), from.stage, is_forward(slot) ? x.begin : x.end,
				      slot.mb);
	}
}

static void put_batch(struct stage *s, struct fo_pp_slot slot)
{
	if (!s->has_batch[slot.mb])
		fo_slot_add(s->p, s->batch, 0, slot.mb);
	s->has_batch[slot.mb] = true;
}

static void put_head(struct stage *s, int mb)
{
	const int layers = (int)s->p->model.layers;
	fo_slot_add(s->p, s->head[FO_ROLE_FORWARD], layers, mb);
	if (s->train)
		fo_slot_add(s->p, s->head[FO_ROLE_BACKWARD], layers, mb);
}

static void put_work(struct stage *s, struct fo_pp_slot slot)
{
	struct fo_program *p = s->p;
	const struct part x = part_of(s, slot);
	if (is_forward(slot)) {
		if (x.first)
			fo_slot_add(p, s->embed[FO_ROLE_FORWARD], 0, slot.mb);
		for (int l = x.begin; l < x.end; l++)
			fo_slot_add(p, s->layer[FO_ROLE_FORWARD][l], l, slot.mb);
		if (x.last && !s->train)
			put_head(s, slot.mb);
		return;
	}
	if (slot.work == FO_PP_WEIGHT) {
		for (int l = x.end - 1; l >= x.begin; l--)
			fo_slot_add(p, s->weights, l, slot.mb);
		return;
	}
	if (x.last)
		put_head(s, slot.mb);
	for (int l = x.end - 1; l >= x.begin; l--)
		fo_slot_add(p, s->layer[FO_ROLE_BACKWARD][l], l, slot.mb);
	if (x.first)
		fo_slot_add(p, s->embed[FO_ROLE_BACKWARD], 0, slot.mb);
}

static void put_outputs(struct stage *s, struct fo_pp_slot slot)
{
	const struct part x = part_of(s, slot);
	struct fo_pp_peer to;
	if (fo_pp_feeds(&s->shape, s->own, slot, &to) && to.stage != s->own)
		put_transfers(s, true, is_forward(slot), to.stage, is_forward(slot) ? x.end : x.begin, slot.mb);
}

/* ---- parameters outside of the layers ---- */

static bool touches(const struct fo_block *b, const struct fo_param *q)
{
	for (int i = 0; i < b->n; i++)
		for (int k = 0; k < b->op[i].n; k++)
			for (int f = 0; f < FO_PARAM_BUFFERS; f++)
				if (q->buf[f] >= 0 && b->op[i].arg[k].buf == q->buf[f])
					return true;
	return false;
}

/* The embedding's and the head's parameters: of this stage, of others, or of both ends. */
static void divide_params(struct stage *s)
{
	struct fo_program *p = s->p;
	int32_t head_stage, chunk;
	fo_pp_holder(&s->shape, fo_pp_parts(&s->shape) - 1, &head_stage, &chunk);
	for (int i = 0; i < p->nparam; i++) {
		const struct fo_param *q = &p->param[i];
		const bool embed = touches(&p->block[s->embed[FO_ROLE_FORWARD]], q),
			   head = touches(&p->block[s->head[FO_ROLE_FORWARD]], q);
		int part = FO_STAGE_HERE;
		if (q->per_layer)
			continue;
		if (!(embed && s->first) && !(head && s->last))
			part = FO_STAGE_ABSENT;
		else if (embed && head && head_stage != 0)
			part = FO_STAGE_ENDS;
		for (int f = 0; f < FO_PARAM_BUFFERS; f++)
			if (q->buf[f] >= 0)
				p->buf[q->buf[f]].stage = (uint8_t)part;
	}
}

/* ---- the end of a step ---- */

static bool is_sum_of_squares(const struct fo_program *p, const struct fo_op *o)
{
	return fo_op_family(o->kind) == FO_OPS_CLIP && p->buf[o->arg[FO_SUMSQ_G].buf].home == FO_HOME_GRAD;
}

/* Whether an optimizer block outside of the layers is this stage's. What both ends have, the first one measures. */
static bool is_own(const struct stage *s, const struct fo_block *b)
{
	for (int i = 0; i < b->n; i++)
		for (int k = 0; k < b->op[i].n; k++) {
			const struct fo_buffer *buf = &s->p->buf[b->op[i].arg[k].buf];
			if (buf->stage == FO_STAGE_ABSENT)
				return false;
			if (buf->stage == FO_STAGE_ENDS && is_sum_of_squares(s->p, &b->op[i]) && !s->first)
				return false;
		}
	return true;
}

/* Gradients of what both ends have are added up once they are complete. */
static void put_ends(struct stage *s)
{
	struct fo_program *p = s->p;
	int block = -1;
	for (int i = 0; i < p->nparam; i++) {
		const int grad = p->param[i].grad;
		if (grad < 0 || p->buf[grad].stage != FO_STAGE_ENDS)
			continue;
		if (block < 0)
			block = fo_block_add(p, "ends.r", FO_ROLE_REDUCE, FO_UNIT_STEP);
		struct fo_op *o = fo_op_insert(p, block, p->block[block].n, fo_op_joining(false), FO_TRANSFER,
					       FO_LANE_REDUCE);
		o->group = FO_GROUP_ENDS;
		fo_op_arg(p, o, grad, 0, FO_UPDATE);
	}
	if (block >= 0)
		fo_slot_add(p, block, 0, 0);
}

/* The last stage tells all others the loss. */
static void put_loss(struct stage *s)
{
	struct fo_program *p = s->p;
	const int loss = fo_buffer_find(p, "loss");
	int32_t from, chunk;
	fo_pp_holder(&s->shape, fo_pp_parts(&s->shape) - 1, &from, &chunk);
	for (int32_t to = 0; to < s->shape.stages; to++) {
		if (to == from || (s->own != from && s->own != to))
			continue;
		fo_slot_add(p, transfer_block(s, s->own == from, false, s->own == from ? to : from, loss), 0, 0);
	}
}

/* The operation that decides whether a step is taken. */
static bool reads_norm(const struct fo_program *p, const struct fo_block *b)
{
	return b->n && fo_op_family(b->op[0].kind) == FO_OPS_CLIP && !is_sum_of_squares(p, &b->op[0]);
}

/* Squares of gradients are added up over the stages before the norm is read. */
static void put_norm(struct stage *s, const struct fo_block *clip)
{
	struct fo_program *p = s->p;
	const int sum = clip->op[0].arg[FO_CLIP_ACC].buf;
	fo_slot_add(p, fo_pass_ddp_norm(p, "step.p", FO_GROUP_PP, sum, -1, -1), 0, 0);
}

static void put_end(struct stage *s)
{
	struct fo_program *p = s->p;
	bool optimizes = false;
	for (int i = 0; i < s->from_n; i++) {
		const struct fo_slot *x = &s->from[i];
		const struct fo_block *b = &p->block[x->block];
		const bool out = b->role == FO_ROLE_HOST && is_port(b, FO_PORT_LOSS);
		if (b->role != FO_ROLE_OPTIMIZER && !out)
			continue;
		if (!optimizes) { /* nothing of these is needed before */
			put_ends(s);
			put_loss(s);
			optimizes = true;
			b = &p->block[x->block];
		}
		if (b->unit == FO_UNIT_LAYER ? !fo_program_has_layer(p, x->layer) : !is_own(s, b))
			continue;
		if (reads_norm(p, b))
			put_norm(s, b);
		fo_slot_add(p, x->block, x->layer, x->mb);
	}
}

static void put_begin(struct stage *s)
{
	for (int i = 0; i < s->from_n; i++) {
		const struct fo_block *b = &s->p->block[s->from[i].block];
		if (b->role == FO_ROLE_HOST && is_port(b, FO_PORT_HYPER))
			fo_slot_add(s->p, s->from[i].block, s->from[i].layer, s->from[i].mb);
	}
}

static void keep_layers(struct stage *s)
{
	struct fo_program *p = s->p;
	p->staged = true;
	for (int32_t c = 0; c < s->shape.chunks; c++) {
		const struct part x = part_of(s, (struct fo_pp_slot){ .chunk = (int16_t)c });
		p->layer_begin = !c || x.begin < p->layer_begin ? x.begin : p->layer_begin;
		p->layer_end = !c || x.end > p->layer_end ? x.end : p->layer_end;
		s->first |= x.first;
		s->last |= x.last;
	}
}

/* ---- backward in two pieces ---- */

/* A weight gradient that may come later: no operation behind it in its block changes what it reads. */
static bool may_wait(const struct fo_block *b, int at)
{
	const struct fo_op *o = &b->op[at];
	const enum fo_op_family family = fo_op_family(o->kind);
	if (o->phase != FO_WGRAD || (family != FO_OPS_MATMUL && family != FO_OPS_BIAS))
		return false;
	for (int i = at + 1; i < b->n; i++)
		if (b->op[i].phase != FO_WGRAD && fo_edit_conflict(o, &b->op[i]))
			return false;
	return true;
}

/* The block that makes the weight gradients of layers that go backward in block `of`, which loses them. */
static int weights_of(struct fo_program *p, int of)
{
	char name[sizeof p->block->name];
	snprintf(name, sizeof name, "%.16s.w", p->block[of].name);
	const int w = fo_block_add(p, name, FO_ROLE_WGRAD, FO_UNIT_LAYER);
	for (int i = p->block[of].n - 1; i >= 0; i--) {
		if (!may_wait(&p->block[of], i))
			continue;
		const struct fo_op o = p->block[of].op[i];
		fo_op_remove(p, of, i);
		struct fo_op *to = fo_op_insert(p, w, 0, o.kind, o.phase, o.lane);
		const uint32_t id = to->id;
		*to = o;
		to->id = id;
	}
	return w;
}

static bool is_backward_layer(const struct fo_program *p, int block)
{
	return p->block[block].unit == FO_UNIT_LAYER && p->block[block].role == FO_ROLE_BACKWARD;
}

/* The slots with weight gradients where their schedule has them; a slot that goes backward in one piece has its own
 * right behind it. of: by layer, the block that makes them; empty: the one that stands for it. */
static void place_weights(struct fo_program *p, const int *of, int empty)
{
	const size_t mbs = (size_t)p->run.micro_batches, all = (size_t)p->model.layers * mbs;
	struct fo_slot *from = p->slot;
	const int slots = p->nslot;
	bool *later = fo_xmalloc((all + 1) * sizeof *later);
	memset(later, 0, all * sizeof *later);
	for (int s = 0; s < slots; s++)
		if (from[s].block == empty)
			later[(size_t)from[s].layer * mbs + (size_t)from[s].mb] = true;
	p->slot = NULL;
	p->nslot = 0;
	p->slot_cap = 0;
	for (int s = 0; s < slots; s++) {
		const struct fo_slot x = from[s];
		fo_slot_add(p, x.block == empty ? of[x.layer] : x.block, x.layer, x.mb);
		if (is_backward_layer(p, x.block) && !later[(size_t)x.layer * mbs + (size_t)x.mb])
			fo_slot_add(p, of[x.layer], x.layer, x.mb);
	}
	free(from);
	free(later);
}

void fo_pass_pp_weights(struct fo_program *p)
{
	const int empty = fo_block_find(p, WEIGHTS), blocks = p->nblock;
	int *made, *of;
	if (empty < 0)
		return;
	made = fo_xmalloc((size_t)blocks * sizeof *made);
	of = fo_xmalloc((size_t)p->model.layers * sizeof *of);
	memset(made, -1, (size_t)blocks * sizeof *made);
	for (int s = 0; s < p->nslot; s++) {
		const int b = p->slot[s].block;
		if (!is_backward_layer(p, b))
			continue;
		if (made[b] < 0)
			made[b] = weights_of(p, b);
		of[p->slot[s].layer] = made[b];
	}
	place_weights(p, of, empty);
	free(made);
	free(of);
	fo_edit_sweep_blocks(p);
}

void fo_pass_pp(struct fo_program *p)
{
	struct stage s = { .p = p, .shape = fo_lowering_pipeline(&p->run), .own = fo_mesh_stage(&p->run.mesh) };
	if (s.shape.stages < 2)
		return;
	s.train = p->run.mode == FO_MODE_TRAIN;
	s.has_batch = fo_xmalloc((size_t)s.shape.micro_batches * sizeof *s.has_batch);
	memset(s.has_batch, 0, (size_t)s.shape.micro_batches * sizeof *s.has_batch);
	find_blocks(&s);
	find_slots(&s);
	find_arrivals(&s);
	keep_layers(&s);
	divide_params(&s);
	s.weights = fo_block_add(p, WEIGHTS, FO_ROLE_WGRAD, FO_UNIT_LAYER);
	put_begin(&s);
	for (int64_t i = 0; i < s.slots; i++) {
		put_batch(&s, s.slot[i]);
		if (i + 1 < s.slots) /* ahead: the host lane copies while this one computes */
			put_batch(&s, s.slot[i + 1]);
		put_arrivals(&s, i);
		put_work(&s, s.slot[i]);
		put_outputs(&s, s.slot[i]);
	}
	put_end(&s);
	for (int d = 0; d < DIRECTIONS; d++)
		free(s.layer[d]);
	free(s.from);
	free(s.slot);
	free(s.in);
	free(s.end);
	free(s.has_batch);
	fo_edit_sweep_blocks(p);
	fo_edit_sweep(p);
}
