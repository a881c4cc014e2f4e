/* pp: ranks of a pp group are the stages of a pipeline. Each has its part of the model's layers, the first one the
 * embedding, the last one the head; micro-batches go through them one behind the other.
 *
 * A schedule (program/schedule.h) says in which order a stage works on micro-batches forward and backward; here its
 * slots become slots of the program: the own layers' blocks, with a receive in front of them and a send behind, of the
 * activations between two layers forward, and of their gradients backward. Each direction and end has a lane of its
 * own. What a slot receives, and its batch, is listed in front of the slot before it: its bytes are then taken before
 * that one's are free, so the transfer need not wait for it. The head goes forward where backward begins: nothing else
 * waits for its loss, and logits live for one micro-batch alone.
 *
 * What all stages need of each other comes once a step: the last one sends the loss, and squares of gradients are added
 * up over the group. An embedding whose weights are the head's is on two stages: its gradient is added up over both
 * before the optimizer, both update their copy, and the first one alone counts it in the norm.
 *
 * Blocks are those of the whole model, so passes behind this one see a stage's program like any other.
 *
 * From: GPipe (Huang et al. 2019), PipeDream-Flush (Narayanan et al. 2021) and what program/schedule names. */
#include "pass/pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Who has a block: enum fo_unit and enum fo_role of forward and backward. */
enum { DIRECTIONS = 2 };

struct stage {
	struct fo_program *p;
	struct fo_pp_shape shape;
	int32_t own; /* this stage's number */
	bool train, first, last;
	/* Blocks of the whole program by layer: [FO_ROLE_FORWARD], [FO_ROLE_BACKWARD]; -1: none. */
	int *layer[DIRECTIONS], embed[DIRECTIONS], head[DIRECTIONS], batch;
	struct fo_pp_slot *slot; /* the schedule's */
	int64_t slots;
	bool *has_batch;      /* by micro-batch: its tokens were listed */
	struct fo_slot *from; /* the whole program's slots */
	int from_n;
};

fo_status fo_pass_pp_legal(const struct fo_program *p)
{
	if (fo_mesh_pp(&p->run.mesh) < 2)
		return FO_OK;
	FO_TRY(fo_lowering_check_pipeline(&p->run, p->model.layers));
	const struct fo_pp_shape shape = fo_lowering_pipeline(&p->run);
	if (p->run.mode != FO_MODE_TRAIN && p->run.mode != FO_MODE_EVAL)
		return fo_fail(FO_EARG, "stages of a pipeline train and evaluate; they do not write text");
	if (fo_pp_splits(shape.kind) || fo_pp_placement(shape.kind) != FO_PP_LOOP)
		return fo_hint(fo_fail(FO_EARG, "schedule %s does not run yet: stages go backward in one piece, and "
						"parts of the model go round",
				       fo_pp_name[shape.kind]),
			       "pass.pp=1f1b, interleaved or gpipe");
	if (p->run.pass.offload)
		return fo_hint(fo_fail(FO_EARG, "stages of a pipeline keep their activations: pass offload copies those "
						"of layers that other stages have"),
			       "pass.offload=0, or mesh.pp=1");
	if (p->run.pass.fp8 == FO_FP8_DELAYED && shape.chunks > 1)
		return fo_hint(fo_fail(FO_EARG, "delayed fp8 scales join the maxima of neighbouring layers, and %d "
						"chunks of a stage are none",
				       shape.chunks),
			       "pass.fp8=current, or a schedule of one chunk (pass.pp=1f1b)");
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
			s->slot[s->slots++] =
				(struct fo_pp_slot){ .mb = mb, .chunk = (int16_t)c, .work = FO_PP_FORWARD };
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
	bool writes = false, reads = false;
	for (int d = 0; d < DIRECTIONS; d++) {
		const int at = s->layer[d][layer];
		for (int i = 0; at >= 0 && i < s->p->block[at].n; i++)
			for (int k = 0; k < s->p->block[at].op[i].n; k++) {
				const struct fo_operand *a = &s->p->block[at].op[i].arg[k];
				if (a->buf != buf || a->dlayer != 1)
					continue;
				writes |= d == FO_ROLE_FORWARD && fo_access_writes(a->access);
				reads |= d == FO_ROLE_BACKWARD;
			}
	}
	return forward ? writes : reads && !writes;
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

/* What a slot needs from elsewhere. */
static void put_inputs(struct stage *s, struct fo_pp_slot slot)
{
	const struct part x = part_of(s, slot);
	struct fo_pp_peer from;
	if (!s->has_batch[slot.mb])
		fo_slot_add(s->p, s->batch, 0, slot.mb);
	s->has_batch[slot.mb] = true;
	if (fo_pp_needs(&s->shape, s->own, slot, &from) && from.stage != s->own)
		put_transfers(s, false, is_forward(slot), from.stage, is_forward(slot) ? x.begin : x.end, slot.mb);
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
		struct fo_op *o = fo_op_insert(p, block, p->block[block].n, FO_OP_all_reduce_many, FO_TRANSFER,
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
		if (b->n && b->op[0].kind == FO_OP_clip)
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
	keep_layers(&s);
	divide_params(&s);
	put_begin(&s);
	put_inputs(&s, s.slot[0]);
	for (int64_t i = 0; i < s.slots; i++) {
		if (i + 1 < s.slots)
			put_inputs(&s, s.slot[i + 1]);
		put_work(&s, s.slot[i]);
		put_outputs(&s, s.slot[i]);
	}
	put_end(&s);
	for (int d = 0; d < DIRECTIONS; d++)
		free(s.layer[d]);
	free(s.from);
	free(s.slot);
	free(s.has_batch);
	fo_edit_sweep_blocks(p);
	fo_edit_sweep(p);
}
