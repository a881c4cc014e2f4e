/* The verifier over roles (program/roles.h), by defects that are planted. Random programs of ranks (models, passes,
 * meshes; pipelines and collectives made by hand) are all accepted. Then one thing is broken in one rank or in all of
 * them; at least 95 of 100 such programs must be refused. A broken program that is accepted is run: where it gives what
 * the whole one gives, it was no defect, and is counted apart. What escapes is listed. */
#include "base/clock.h"
#include "pass/pass.h"
#include "support/choices.h"
#include "support/must.h"
#include "support/random.h"
#include "support/ranks.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- programs of a job ---- */

struct job {
	struct fo_model model;
	struct fo_lowering low; /* of rank 0 */
	int ranks;
	bool by_hand; /* its steps are pipeline and collectives, no model's */
	int stages_mb, gpipe, extras;
	uint64_t seed;
};

static int kind_of(const char *name)
{
	int k = fo_op_kind_find(name);
	assert_true(k >= 0);
	return k;
}

/* Operation `kind` at the end of a block on these buffers, in the modes of ops.def: the first that it has. */
static struct fo_op *put(struct fo_program *p, int block, const char *kind, int lane, int group, int peer, int n,
			 const int *buf)
{
	int k = kind_of(kind);
	bool comm = fo_op_info(k)->cls == FO_CLASS_COMM;
	struct fo_op *o = fo_op_insert(p, block, p->block[block].n, k, comm ? FO_TRANSFER : FO_FORWARD, lane);
	o->group = (uint8_t)group;
	o->attr.peer = peer;
	for (int i = 0; i < n; i++) {
		int modes = fo_op_info(k)->operand[fo_op_operand_row(k, i)].modes, access = 0;
		while (!(modes >> access & 1))
			access++;
		fo_op_arg(p, o, buf[i], 0, access);
	}
	return o;
}

enum { WIDTH = 6 };
static int tokens_buffer(struct fo_program *p, const char *name)
{
	return fo_buffer_add(p, name, FO_F32, FO_HOME_ACT, FO_PER_MICRO_BATCH, p->tokens, FO_AXIS_TOKENS, WIDTH,
			     FO_AXIS_ONE);
}

/* Stages of a pipeline, one on each rank: forward and backward of micro-batches, all forward first or one after the
 * other (1F1B), and rows that travel around a ring. */
static void add_pipeline(struct fo_program *p, const struct job *j)
{
	int me = p->rank, last = p->ranks - 1, mbs = (int)p->run.micro_batches;
	int seed = fo_buffer_add(p, "seed", FO_F32, FO_HOME_STATE, 0, p->tokens, FO_AXIS_TOKENS, WIDTH, FO_AXIS_ONE);
	int out = fo_buffer_add(p, "result", FO_F32, FO_HOME_STATE, FO_PER_MICRO_BATCH, p->tokens, FO_AXIS_TOKENS,
				WIDTH, FO_AXIS_ONE);
	int x = tokens_buffer(p, "pipe.x"), y = tokens_buffer(p, "pipe.y"), dy = tokens_buffer(p, "pipe.dy"),
	    dx = tokens_buffer(p, "pipe.dx");
	int f = fo_block_add(p, "pipe.f", FO_ROLE_FORWARD, FO_UNIT_STEP),
	    b = fo_block_add(p, "pipe.b", FO_ROLE_BACKWARD, FO_UNIT_STEP);
	if (me > 0)
		put(p, f, "receive", FO_LANE_RECV_FORWARD, FO_GROUP_DATA, me - 1, 1, &x);
	put(p, f, "add", FO_LANE_COMPUTE, 0, 0, 3, (const int[]){ me > 0 ? x : seed, seed, y });
	if (me < last)
		put(p, f, "send", FO_LANE_SEND_FORWARD, FO_GROUP_DATA, me + 1, 1, &y);
	if (me < last)
		put(p, b, "receive", FO_LANE_RECV_BACKWARD, FO_GROUP_DATA, me + 1, 1, &dy);
	put(p, b, "add", FO_LANE_COMPUTE, 0, 0, 3, (const int[]){ y, me < last ? dy : seed, dx });
	if (me > 0)
		put(p, b, "send", FO_LANE_SEND_BACKWARD, FO_GROUP_DATA, me - 1, 1, &dx);
	else
		put(p, b, "add", FO_LANE_COMPUTE, 0, 0, 3, (const int[]){ dx, seed, out });
	for (int i = 0, ahead = j->gpipe ? mbs : (last - me < mbs ? last - me : mbs), fs = 0, bs = 0; bs < mbs; i++) {
		bool forward = fs < mbs && fs < bs + ahead + !j->gpipe;
		if (forward)
			fo_slot_add(p, f, 0, fs++);
		else
			fo_slot_add(p, b, 0, bs++);
	}
}

/* A block that all ranks have in front of the pipeline or behind it: in between, some would wait for ever. */
static void add_slot(struct fo_program *p, int block, bool in_front)
{
	fo_slot_add(p, block, 0, 0);
	for (int s = p->nslot - 1; s > 0 && in_front; s--) {
		struct fo_slot t = p->slot[s];
		p->slot[s] = p->slot[s - 1];
		p->slot[s - 1] = t;
	}
}

/* Collectives, and rows that travel around a ring, in groups of several ranks. What is gathered is used. */
static void add_collectives(struct fo_program *p, const struct job *j)
{
	enum { GATHER, BROADCAST, ALL_TO_ALL, RING };
	static const char *const kind[] = { "all_gather", "broadcast", "all_to_all", "send" };
	for (int i = 0; i < j->extras; i++) {
		uint64_t r = j->seed >> 3 * i;
		int group = FO_GROUP_DATA + (int)(r % 3), which = (int)(r / 3 % 4);
		if (fo_mesh_group(&p->run.mesh, (enum fo_group)group, NULL, NULL) == 1)
			group = FO_GROUP_DATA;
		int32_t place, n = fo_mesh_group(&p->run.mesh, (enum fo_group)group, &place, NULL);
		int64_t begin, rows = which == ALL_TO_ALL ? 2 * n : 7 + n, own = fo_mesh_part(rows, place, n, &begin);
		int lane = r % 2 ? FO_LANE_GATHER : FO_LANE_TP, peer = which == BROADCAST ? (int)(r % (uint64_t)n) : 0;
		char name[4][24];
		for (int k = 0; k < 4; k++)
			snprintf(name[k], sizeof name[k], "c.%c%d", "xyrb"[k], i);
		int x = fo_buffer_add(p, name[0], FO_F32, FO_HOME_STATE, 0, which == GATHER ? own : rows,
				      FO_AXIS_TOKENS, WIDTH, FO_AXIS_ONE),
		    y = x;
		if (which != BROADCAST)
			y = fo_buffer_add(p, name[1], FO_F32, FO_HOME_ACT, 0, rows, FO_AXIS_TOKENS, WIDTH, FO_AXIS_ONE);
		int sum = fo_buffer_add(p, name[2], FO_F32, FO_HOME_STATE, 0, rows, FO_AXIS_TOKENS, WIDTH, FO_AXIS_ONE);
		int block = fo_block_add(p, name[3], FO_ROLE_GATHER, FO_UNIT_STEP);
		if (which == RING) {
			put(p, block, "send", FO_LANE_SEND_FORWARD, group, (place + 1) % n, 1, &x);
			put(p, block, "receive", FO_LANE_RECV_FORWARD, group, (place + n - 1) % n, 1, &y);
		} else {
			put(p, block, kind[which], lane, group, peer, 1 + (which != BROADCAST), (const int[]){ x, y });
		}
		put(p, block, "add", FO_LANE_COMPUTE, 0, 0, 3, (const int[]){ y, y, sum });
		add_slot(p, block, r % 5 < 3);
	}
}

static void make_by_hand(struct fo_program *p, const struct job *j)
{
	for (int b = 0; b < p->nblock; b++)
		free(p->block[b].op);
	p->nblock = p->nslot = p->nparam = p->nbuf = 0;
	add_pipeline(p, j);
	add_collectives(p, j);
}

static void build(struct fo_program *p, const struct job *j, int rank)
{
	struct fo_lowering low = j->low;
	low.mesh.rank = rank;
	if (fo_pass_build(p, &j->model, &low) != FO_OK) {
		char label[400];
		choices_describe(label, sizeof label, &j->model, &low);
		fail_msg("rank %d: %s: %s, mesh %d x %d x %d x %d x %d, %d micro-batches", rank, fo_err_text(), label,
			 fo_mesh_pp(&low.mesh), low.mesh.replicate, low.mesh.shard, low.mesh.cp, low.mesh.tp,
			 (int)low.micro_batches);
	}
	if (j->by_hand)
		make_by_hand(p, j);
}

static struct job random_job(bool by_hand)
{
	static const int mesh[][2] = { { 2, 1 }, { 3, 1 }, { 4, 1 }, { 8, 1 }, { 1, 2 }, { 1, 4 },
				       { 2, 2 }, { 2, 3 }, { 4, 2 }, { 2, 4 }, { 5, 1 }, { 3, 2 } };
	const int *m = mesh[choices_draw(sizeof mesh / sizeof *mesh)];
	struct job j = { .by_hand = by_hand, .ranks = m[0] * m[1], .model = choices_model() };
	j.low = (struct fo_lowering){ .seq = 6 + choices_draw(8),
				      .rows = 1,
				      .micro_batches = 1 + choices_draw(by_hand ? 6 : 3),
				      .precision = FO_PRECISION_F64,
				      .mode = FO_MODE_TRAIN,
				      .mesh = { .replicate = m[0], .shard = m[1] } };
	j.gpipe = (int)choices_draw(2);
	j.extras = (int)choices_draw(4);
	j.seed = choices_seed + choices_draws * 0x9e3779b97f4a7c15;
	if (by_hand)
		return j;
	j.low.pass = choices_passes(&j.model);
	j.low.pass.ddp = 1;
	choices_zero(&j.low.pass, m[1]);
	if (choices_draw(3) == 0) {
		j.low.precision = FO_PRECISION_F32;
		choices_fp8(&j.low.pass, &j.model);
		j.low.pass.fp8_precompute &= j.low.pass.zero != FO_ZERO_WEIGHTS;
		j.low.pass.fp8_transposed &= j.low.pass.fp8_precompute;
	}
	return j;
}

/* The same with tp groups: a model that they can share, in half of the cases with heads of keys on several ranks, or
 * communication in pieces, or both. */
static struct job random_tp_job(void)
{
	static const struct fo_mesh mesh[] = {
		{ .replicate = 1, .shard = 1, .tp = 2 }, { .replicate = 2, .shard = 1, .tp = 2 },
		{ .replicate = 1, .shard = 2, .tp = 2 }, { .replicate = 1, .shard = 1, .tp = 4 },
		{ .replicate = 2, .shard = 2, .tp = 2 }, { .replicate = 1, .shard = 2, .tp = 4 },
		{ .replicate = 2, .shard = 1, .tp = 3 }
	};
	struct job j = random_job(false);
	const struct fo_mesh m = mesh[choices_draw(sizeof mesh / sizeof *mesh)];
	const int64_t pieces = choices_draw(2) ? 1 + choices_draw(3) : 0;
	j.ranks = fo_mesh_ranks(&m);
	j.low.mesh = m;
	j.low.seq = m.tp * (pieces > 1 ? pieces : 1) * (2 + choices_draw(2));
	j.model.heads *= m.tp;
	if (choices_draw(2) || m.tp % j.model.kv_heads)
		j.model.kv_heads *= m.tp;
	j.model.ffn *= m.tp;
	j.low.pass.tp = 1 + choices_draw(FO_TP_COUNT - 1);
	j.low.pass.tp_async = j.low.pass.tp == FO_TP_SEQUENCE ? pieces : 0;
	j.low.pass.zero = j.low.pass.zero_sync = j.low.pass.zero_prefetch = j.low.pass.zero_reshard =
		j.low.pass.zero_first = 0;
	choices_zero(&j.low.pass, m.shard);
	j.low.pass.fp8_precompute &= j.low.pass.zero != FO_ZERO_WEIGHTS;
	j.low.pass.fp8_transposed &= j.low.pass.fp8_precompute;
	return j;
}

/* With cp groups, whose keys travel round a ring; some have tp groups, too. */
static struct job random_cp_job(void)
{
	static const struct fo_mesh mesh[] = { { .replicate = 1, .shard = 1, .cp = 2, .tp = 1 },
					       { .replicate = 1, .shard = 1, .cp = 3, .tp = 1 },
					       { .replicate = 1, .shard = 1, .cp = 4, .tp = 1 },
					       { .replicate = 2, .shard = 1, .cp = 3, .tp = 1 },
					       { .replicate = 1, .shard = 2, .cp = 2, .tp = 2 } };
	struct job j = random_job(false);
	const struct fo_mesh m = mesh[choices_draw(sizeof mesh / sizeof *mesh)];
	j.ranks = fo_mesh_ranks(&m);
	j.low.mesh = m;
	j.low.seq = 2 * m.cp * (2 + choices_draw(2));
	j.model.heads *= m.tp, j.model.kv_heads *= m.tp, j.model.ffn *= m.tp;
	j.low.pass.tp = m.tp > 1 ? 1 + choices_draw(FO_TP_COUNT - 1) : FO_TP_OFF;
	j.low.pass.cp = FO_CP_RING;
	j.low.pass.attention = FO_ATTENTION_FLASH;
	j.low.pass.zero = FO_ZERO_OFF;
	return j;
}

/* The same with stages of a pipeline: every schedule, with other axes. */
static struct job random_pp_job(void)
{
	static const struct fo_mesh mesh[] = {
		{ .pp = 2, .replicate = 1, .shard = 1, .tp = 1 }, { .pp = 3, .replicate = 1, .shard = 1, .tp = 1 },
		{ .pp = 4, .replicate = 1, .shard = 1, .tp = 1 }, { .pp = 2, .replicate = 2, .shard = 1, .tp = 1 },
		{ .pp = 2, .replicate = 1, .shard = 2, .tp = 1 }, { .pp = 2, .replicate = 2, .shard = 2, .tp = 1 },
		{ .pp = 4, .replicate = 1, .shard = 2, .tp = 1 }, { .pp = 2, .replicate = 1, .shard = 1, .tp = 2 },
		{ .pp = 2, .replicate = 1, .shard = 2, .tp = 2 }
	};
	struct job j = random_job(false);
	const struct fo_mesh m = mesh[choices_draw(sizeof mesh / sizeof *mesh)];
	const enum fo_pp_kind kind = (enum fo_pp_kind)choices_draw(FO_PP_KINDS_COUNT);
	j.ranks = fo_mesh_ranks(&m);
	j.low.mesh = m;
	j.low.seq = 2 * (2 + choices_draw(3));
	j.low.micro_batches = kind == FO_PP_DUALPIPE_V ? 2 * m.pp : 1 + choices_draw(5);
	j.low.precision = FO_PRECISION_F64;
	j.model.layers = m.pp * fo_pp_chunks_usual(kind);
	j.model.heads *= m.tp;
	j.model.kv_heads *= m.tp;
	j.model.ffn *= m.tp;
	j.low.pass = choices_passes(&j.model);
	j.low.pass.ddp = 1;
	j.low.pass.offload = 0;
	j.low.pass.pp = 1 + kind;
	j.low.pass.tp = m.tp > 1 ? 1 + choices_draw(FO_TP_COUNT - 1) : FO_TP_OFF;
	choices_zero(&j.low.pass, m.shard);
	return j;
}

/* ---- defects ---- */

enum defect_kind {
	DROP,
	DOUBLE,
	SWAP,
	SWAP_SLOTS,
	EARLIER,
	DROP_SLOT,
	DOUBLE_SLOT,
	GROUP,
	PEER,
	FEWER_ROWS,
	LATER_ROWS,
	OTHER_TENSOR,
	DROP_TENSOR,
	DOUBLE_TENSOR,
	TYPE,
	MAXIMUM,
	LANE,
	UPDATE_ROWS,
	UPDATE_DROP,
	UPDATE_DOUBLE,
	COMPUTE_DROP,
	WORK_DROP,
	WORK_SWAP,
	WORK_EARLIER,
	ONE_LANE,
	ADDED_WAIT,
	DEFECTS
};
static const char *const defect_name[DEFECTS] = {
	"call dropped",
	"call doubled",
	"two calls of a block exchanged",
	"two slots of calls exchanged",
	"slot of calls one place earlier",
	"slot of calls dropped",
	"slot of calls doubled",
	"wrong group",
	"wrong peer or root",
	"a row too few",
	"a row too late",
	"another tensor",
	"tensor of a bucket dropped",
	"tensor of a bucket twice",
	"buffer of another type",
	"maximum of ranks added up",
	"another lane",
	"optimizer leaves out a row",
	"optimizer operation dropped",
	"optimizer operation twice",
	"matrix product dropped",
	"slot of work dropped",
	"two slots of work exchanged",
	"slot of work one place earlier",
	"both directions on one lane",
	"added wait",
};

struct defect {
	int kind, rank; /* rank -1: all */
	uint64_t seed;  /* of its choices, the same on every rank */
};

/* A random operation that `wanted` takes, and its block. */
static struct fo_op *find_op(struct fo_program *p, bool (*wanted)(const struct fo_op *), int *block, int *at)
{
	int n = 0;
	struct fo_op *found = NULL;
	for (int s = 0; s < p->nslot; s++)
		for (int b = p->slot[s].block, i = 0; i < p->block[b].n; i++)
			if (wanted(&p->block[b].op[i]) && !below(++n)) {
				found = &p->block[b].op[i];
				*block = b;
				*at = i;
			}
	return found;
}
static bool is_comm(const struct fo_op *o) { return fo_op_info(o->kind)->cls == FO_CLASS_COMM; }
static bool is_bucket(const struct fo_op *o) { return is_comm(o) && fo_op_tensors(o->kind, o->n) > 1; }
static bool names_peer(const struct fo_op *o)
{
	return fo_op_family(o->kind) == FO_OPS_P2P || fo_op_info(o->kind)->wire == FO_WIRE_BROADCAST;
}
static bool is_max(const struct fo_op *o) { return is_comm(o) && fo_op_info(o->kind)->max; }
static bool is_update(const struct fo_op *o) { return fo_op_family(o->kind) == FO_OPS_UPDATE; }
static bool is_product(const struct fo_op *o) { return fo_op_family(o->kind) == FO_OPS_MATMUL; }

static bool slot_calls(const struct fo_program *p, int s)
{
	const struct fo_block *b = &p->block[p->slot[s].block];
	for (int i = 0; i < b->n; i++)
		if (is_comm(&b->op[i]))
			return true;
	return false;
}

/* Forward, backward, or gradients of weights. */
static bool slot_works(const struct fo_program *p, int s) { return p->block[p->slot[s].block].role <= FO_ROLE_WGRAD; }

static bool break_slots(struct fo_program *p, int kind, bool wanted(const struct fo_program *p, int s))
{
	int at[2] = { -1, -1 }, n = 0;
	for (int s = 0; s < p->nslot; s++)
		if (wanted(p, s) && !below(++n))
			at[0] = s;
	for (int s = at[0] + 1; at[0] >= 0 && s < p->nslot && at[1] < 0; s++)
		if (wanted(p, s))
			at[1] = s;
	if (at[0] < 0 || (kind == SWAP_SLOTS && at[1] < 0) || (kind == EARLIER && !at[0]))
		return false;
	struct fo_slot *s = p->slot, t = s[at[0]];
	if (kind == SWAP_SLOTS) {
		s[at[0]] = s[at[1]], s[at[1]] = t;
	} else if (kind == EARLIER) {
		s[at[0]] = s[at[0] - 1], s[at[0] - 1] = t;
	} else if (kind == DROP_SLOT) {
		memmove(s + at[0], s + at[0] + 1, (size_t)(p->nslot - at[0] - 1) * sizeof *s);
		p->nslot--;
	} else {
		fo_slot_add(p, t.block, t.layer, t.mb);
		s = p->slot;
		memmove(s + at[0] + 1, s + at[0], (size_t)(p->nslot - at[0] - 1) * sizeof *s);
	}
	return true;
}

/* Another tensor of the same type, of the same size where there is one. */
static bool other_tensor(struct fo_program *p, struct fo_operand *a)
{
	const struct fo_buffer *b = &p->buf[a->buf];
	for (int same = 1; same >= 0; same--) {
		int n = 0, found = -1;
		for (int i = 0; i < p->nbuf; i++) {
			const struct fo_buffer *q = &p->buf[i];
			bool size = q->rows == b->rows && q->cols == b->cols;
			if (i != a->buf && q->dtype == b->dtype && q->home == b->home && q->axes == b->axes &&
			    (size || !same) && !below(++n))
				found = i;
		}
		if (found < 0)
			continue;
		a->buf = (int16_t)found;
		a->nr = a->nr == b->rows || a->nr > p->buf[found].rows ? (int32_t)p->buf[found].rows : a->nr;
		a->nc = (int32_t)p->buf[found].cols;
		return true;
	}
	return false;
}

static bool break_call(struct fo_program *p, const struct defect *d)
{
	int b, i;
	struct fo_op *o = find_op(p, d->kind == PEER ? names_peer : is_comm, &b, &i);
	if (d->kind == DROP_TENSOR || d->kind == DOUBLE_TENSOR)
		o = find_op(p, is_bucket, &b, &i);
	if (d->kind == MAXIMUM)
		o = find_op(p, is_max, &b, &i);
	if (!o)
		return false;
	int k = below(o->n), v;
	struct fo_operand *a = &o->arg[k];
	struct fo_op t = *o;
	int ranks = fo_mesh_group(&p->run.mesh, (enum fo_group)o->group, NULL, NULL);
	switch ((enum defect_kind)d->kind) {
	case DROP: fo_op_remove(p, b, i); return true;
	case DOUBLE: fo_op_clone(p, b, i + 1, &t); return true;
	case SWAP:
		v = (i + 1 + below(p->block[b].n)) % p->block[b].n;
		if (v == i || !is_comm(&p->block[b].op[v]))
			return false;
		*o = p->block[b].op[v];
		p->block[b].op[v] = t;
		return true;
	case GROUP:
		if (fo_mesh_tp(&p->run.mesh) > 1 || p->staged)
			o->group = (uint8_t)(1 + (o->group + below(FO_GROUP_COUNT - 2)) % (FO_GROUP_COUNT - 1));
		else
			o->group = (uint8_t)(1 + (o->group + below(2)) % 3);
		return true;
	case PEER: o->attr.peer = (o->attr.peer + 1 + below(ranks > 2 ? ranks - 1 : 1)) % ranks; return ranks > 1;
	case FEWER_ROWS: return a->nr-- > 1;
	case LATER_ROWS: a->r0++; return a->nr-- > 1;
	case OTHER_TENSOR: return other_tensor(p, a);
	case DROP_TENSOR:
		memmove(a, a + 1, (size_t)(o->n - k - 1) * sizeof *a);
		o->n--;
		return true;
	case DOUBLE_TENSOR:
		if (o->n == FO_MAX_OPERANDS)
			return false;
		o->arg[o->n++] = *a;
		return true;
	case TYPE: p->buf[a->buf].dtype = p->buf[a->buf].dtype == FO_F32 ? FO_BF16 : FO_F32; return true;
	case MAXIMUM: o->kind = (uint8_t)kind_of("all_reduce"); return true;
	case LANE: o->lane = (uint8_t)(FO_LANE_TP + (o->lane - FO_LANE_TP + 1 + below(6)) % 7); return true;
	default: return false;
	}
}

static bool break_compute(struct fo_program *p, int kind)
{
	int b, i;
	struct fo_op *o = find_op(p, kind == COMPUTE_DROP ? is_product : is_update, &b, &i);
	if (!o)
		return false;
	struct fo_op t = *o;
	if (kind == UPDATE_DOUBLE)
		fo_op_clone(p, b, i + 1, &t);
	else if (kind != UPDATE_ROWS)
		fo_op_remove(p, b, i);
	else
		for (int k = 0, at = fo_op_operand_of(o->kind, 0, FO_ADAMW_W); k < o->n; k++) {
			bool own = t.arg[k].nr == t.arg[at].nr && t.arg[k].nc == t.arg[at].nc;
			if (own && t.arg[k].nr < 2)
				return false;
			o->arg[k].nr -= own;
		}
	return true;
}

/* What is received waits behind what is sent. */
static bool join_lanes(struct fo_program *p)
{
	bool any = false;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			struct fo_op *o = &p->block[b].op[i];
			any |= fo_lane_channel(o->lane) != o->lane;
			o->lane = (uint8_t)fo_lane_channel(o->lane);
		}
	return any;
}

#include "roles_forms.h"

static const char *name_of(const struct defect *d)
{
	return d->kind < DEFECTS ? defect_name[d->kind] : form[d->kind - DEFECTS].name;
}

/* False: there is nothing of this kind to break. */
static bool plant(struct fo_program *p, const struct defect *d)
{
	fo_random_state = d->seed;
	static const int work[] = { DROP_SLOT, SWAP_SLOTS, EARLIER };
	if (d->kind >= DEFECTS)
		return form[d->kind - DEFECTS].plant(p);
	if (d->kind >= SWAP_SLOTS && d->kind <= DOUBLE_SLOT && d->kind != GROUP)
		return break_slots(p, d->kind, slot_calls);
	if (d->kind >= WORK_DROP && d->kind <= WORK_EARLIER)
		return break_slots(p, work[d->kind - WORK_DROP], slot_works);
	if (d->kind >= UPDATE_ROWS && d->kind <= COMPUTE_DROP)
		return break_compute(p, d->kind);
	if (d->kind == ONE_LANE)
		return join_lanes(p);
	return d->kind == ADDED_WAIT || break_call(p, d);
}

/* An instance waits for an older one of another lane, in the role of d->rank or in all: a receive for the send in front
 * of it, or any for any. */
static void add_wait(struct fo_roles *r, const struct defect *d)
{
	fo_random_state = d->seed;
	for (int k = 0; k < r->n; k++) {
		struct fo_unrolled *u = &r->of[k].u;
		const struct fo_program *p = r->of[k].p;
		int id = pick(0, u->n - 1), on = below(id + 1);
		if (d->rank >= 0 && r->role[d->rank] != k)
			continue;
		for (int i = 1; i < u->n && chance(0.9); i++)
			if (fo_op_info(fo_instance_op(p, u, i)->kind)->wire == FO_WIRE_RECEIVE &&
			    fo_op_info(fo_instance_op(p, u, i - 1)->kind)->wire == FO_WIRE_SEND)
				id = i, on = i - 1;
		int lane = fo_instance_op(p, u, on)->lane;
		if (lane != fo_instance_op(p, u, id)->lane && on < id && u->wait[id][lane] < on)
			u->wait[id][lane] = on;
	}
}

/* FO_OK: accepted. `broken` may be NULL. *applied: the defect could be planted. */
static fo_status verify(const struct job *j, const struct defect *broken, bool *applied)
{
	struct fo_program p[RANKS_MOST];
	struct fo_roles roles = { 0 };
	fo_status st = FO_OK;
	*applied = false;
	for (int r = 0; r < j->ranks; r++) {
		build(&p[r], j, r);
		if (broken && (broken->rank < 0 || broken->rank == r))
			*applied |= plant(&p[r], broken);
	}
	for (int r = 0; r < j->ranks && st == FO_OK; r++) {
		bool kept;
		st = fo_roles_add(&roles, &p[r], &kept);
	}
	if (st == FO_OK && broken && broken->kind == ADDED_WAIT)
		add_wait(&roles, broken);
	if (st == FO_OK)
		st = fo_roles_verify(&roles, j->by_hand ? 0 : j->low.rows * fo_mesh_data(&j->low.mesh));
	fo_roles_fini(&roles);
	for (int r = 0; r < j->ranks; r++)
		fo_program_fini(&p[r]);
	return st;
}

/* ---- accepted all the same: does it matter? ---- */

static uint64_t state_now[RANKS_MOST];
static const struct job *running;
static const struct defect *planted; /* NULL: the whole program */

static void replace(struct fo_program *p)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* ranks are threads, random numbers have one state */
	if (running->by_hand)
		make_by_hand(p, running);
	pthread_mutex_lock(&lock);
	if (planted && (planted->rank < 0 || planted->rank == p->rank))
		plant(p, planted);
	pthread_mutex_unlock(&lock);
}

/* What persists begins unlike on each rank. */
static void fill(struct ranks_rank *r)
{
	const struct fo_program *p = &r->rig.program;
	for (int i = 0; running->by_hand && i < p->nbuf; i++) {
		const struct fo_buffer *b;
		float *x = fo_store_find(r->rig.store, p->buf[i].name, 0, &b);
		if (x && b->home == FO_HOME_STATE && b->dtype == FO_F32)
			for (int64_t k = 0; k < b->rows * b->cols; k++)
				x[k] = (float)(r->rank * 31 + i * 7 + k % 97);
	}
}

/* All that persists, after each step. */
static void keep_state(struct ranks_rank *r, int s)
{
	(void)s;
	int64_t bytes;
	const unsigned char *memory = fo_store_memory(r->rig.store, &bytes);
	state_now[r->rank] = XXH3_64bits_withSeed(memory, (size_t)bytes, state_now[r->rank]);
}

struct result {
	bool ran;
	struct outcome out[RANKS_MOST];
	uint64_t state[RANKS_MOST];
};

static void run(const struct job *j, const struct defect *d, struct result *to)
{
	struct step_batch b;
	step_batch_random(&b, j->low.seq, fo_mesh_data(&j->low.mesh), j->low.micro_batches, j->model.vocab, 1, j->seed);
	struct ranks_job job = { .model = j->model,
				 .low = j->low,
				 .batch = &b,
				 .options = { .isa = FO_ISA_REF, .threads = 1, .poison = true, .timeline_steps = 1 },
				 .clip = 0.5,
				 .eps = 1e-4,
				 .build = replace,
				 .before = fill,
				 .after = keep_state,
				 .steps = OUTCOME_STEPS };
	running = j;
	planted = d;
	memset(state_now, 0, sizeof state_now);
	ranks_run(&job);
	to->ran = true;
	for (int r = 0; r < j->ranks; r++) {
		to->ran &= job.rank[r].error.st == FO_OK;
		to->out[r] = job.rank[r].out;
		to->state[r] = state_now[r];
		job.rank[r].out = (struct outcome){ 0 };
	}
	ranks_free(&job);
	step_batch_free(&b);
}

static void free_result(const struct job *j, struct result *r)
{
	for (int i = 0; i < j->ranks; i++)
		outcome_free(&r->out[i]);
}

/* The broken program gives what the whole one gives. */
static bool is_equivalent(const struct job *j, const struct defect *d)
{
	static struct result whole, broken;
	bool same = true;
	run(j, NULL, &whole);
	run(j, d, &broken);
	assert_true(whole.ran);
	same &= broken.ran;
	for (int r = 0; r < j->ranks && same; r++) {
		const struct outcome *x = &broken.out[r], *y = &whole.out[r];
		same &= x->n == y->n && (!j->by_hand || broken.state[r] == whole.state[r]);
		for (int s = 0; s < OUTCOME_STEPS; s++)
			same &= fabs(x->loss[s] - y->loss[s]) <= 1e-12 * fabs(y->loss[s]) &&
				fabs(x->norm[s] - y->norm[s]) <= 1e-12 * fabs(y->norm[s]);
		for (int i = 0; i < x->n && same; i++)
			same &= outcome_distance(&x->item[i], outcome_find(y, &x->item[i]), y) <= 1e-12;
	}
	free_result(j, &whole);
	free_result(j, &broken);
	return same;
}

static void describe(const struct job *j, const struct defect *d, char *text, size_t size)
{
	char label[400];
	choices_describe(label, sizeof label, &j->model, &j->low);
	char where[24] = "all ranks";
	if (d->rank >= 0)
		snprintf(where, sizeof where, "rank %d", d->rank);
	snprintf(text, size, "%s in %s; %s, mesh %d x %d x %d x %d x %d, %d micro-batches, %s", name_of(d), where,
		 j->by_hand ? "by hand" : "ddp", fo_mesh_pp(&j->low.mesh), j->low.mesh.replicate, j->low.mesh.shard,
		 j->low.mesh.cp, j->low.mesh.tp, (int)j->low.micro_batches, label);
}

struct tally {
	int planted, caught, alike, missed;
};

enum jobs { ROWS, TP, STAGES };

static struct job draw_job(enum jobs which, int i)
{
	if (which == TP)
		return random_tp_job();
	if (which == STAGES)
		return random_pp_job();
	return random_job(i / DEFECTS % 3 == 2 || i % DEFECTS >= ONE_LANE);
}

static void plant_defects(int cases, enum jobs which)
{
	struct tally by[DEFECTS] = { 0 }, all = { 0 };
	int hung = 0;
	int64_t begin = fo_now_ns();
	for (int i = 0; i < cases; i++) {
		struct job j = draw_job(which, i);
		struct defect d = { .kind = i % DEFECTS,
				    .rank = choices_draw(3) ? (int)choices_draw(j.ranks) : -1,
				    .seed = (uint64_t)i * 7919 + 1 };
		bool applied;
		char text[700];
		if (verify(&j, NULL, &applied) != FO_OK) {
			describe(&j, &d, text, sizeof text);
			fail_msg("a whole program is refused: %s (%s)", fo_err_text(), text);
		}
		fo_status st = verify(&j, &d, &applied);
		if (!applied)
			continue;
		struct tally *t = &by[d.kind];
		t->planted++;
		if (st != FO_OK) {
			t->caught++;
			/* What is said to wait for ever does not come to an end. */
			if (strstr(fo_err_text(), " for ever") && d.kind != ADDED_WAIT) {
				static struct result stuck;
				snprintf(text, sizeof text, "%s", fo_err_text());
				run(&j, &d, &stuck);
				free_result(&j, &stuck);
				if (stuck.ran)
					fail_msg("it runs, and is refused: %s", text);
				hung++;
			}
			if (getenv("FLATOUT_ROLE_TEXTS"))
				print_message("%s: %s\n", defect_name[d.kind], fo_err_text());
			continue;
		}
		/* The waits of a role are no part of a program; what was let happen with them was no cycle. */
		if (d.kind == ADDED_WAIT || is_equivalent(&j, &d)) {
			t->alike++;
			continue;
		}
		t->missed++;
		describe(&j, &d, text, sizeof text);
		print_message("escapes: case %d, %s\n", i, text);
	}
	print_message("%-34s %8s %8s %8s %8s\n", "", "planted", "caught", "no harm", "missed");
	for (int k = 0; k < DEFECTS; k++) {
		print_message("%-34s %8d %8d %8d %8d\n", defect_name[k], by[k].planted, by[k].caught, by[k].alike,
			      by[k].missed);
		all.planted += by[k].planted, all.caught += by[k].caught;
		all.alike += by[k].alike, all.missed += by[k].missed;
	}
	print_message("%d programs accepted; of %d defects %d caught, %d without effect, %d missed: %.2f %%; %.1f s\n",
		      cases, all.planted, all.caught, all.alike, all.missed,
		      100.0 * all.caught / (all.caught + all.missed), 1e-9 * (double)(fo_now_ns() - begin));
	print_message("%d of those caught wait for ever, and did so when they ran\n", hung);
	assert_true(all.caught * 100 >= 95 * (all.caught + all.missed));
}

/* FLATOUT_ROLE_CASES: a nightly run asks for many. Sanitizers, which look for other things, take six times as long:
 * they get a sixth. */
static int role_cases(int usual)
{
	const char *more = getenv("FLATOUT_ROLE_CASES");
#ifdef __SANITIZE_ADDRESS__
	usual /= 6;
#endif
	return more ? atoi(more) : usual;
}

static void test_defects(void **state)
{
	(void)state;
	plant_defects(role_cases(300), ROWS);
}

static void test_tp_defects(void **state)
{
	(void)state;
	plant_defects(role_cases(150), TP);
}

static void test_stage_defects(void **state)
{
	(void)state;
	plant_defects(role_cases(150), STAGES);
}

/* Does a rank's program, looked at alone, read what nothing has written? Then it never runs. */
static bool refused_alone(const struct job *j, const struct defect *d)
{
	bool refused = false;
	for (int r = 0; r < j->ranks && !refused; r++) {
		struct fo_program p;
		struct fo_unrolled u;
		build(&p, j, r);
		if (d->rank < 0 || d->rank == r)
			plant(&p, d);
		refused = fo_unroll(&p, &u) != FO_OK;
		if (!refused)
			fo_unrolled_fini(&u);
		fo_program_fini(&p);
	}
	return refused;
}

/* Each form of defect, planted until it has been often enough: all are caught that change what comes out. */
static void test_forms(void **state)
{
	(void)state;
	const int wanted = role_cases(12), tries = 144; /* some forms need a job that is seldom drawn */
	print_message("%-40s %8s %8s %8s\n", "", "planted", "caught", "no harm");
	for (int k = 0; k < FORMS; k++) {
		int n = 0, caught = 0, alike = 0;
		for (int i = 0; i < tries && caught + alike < wanted; i++) {
			struct job j = form[k].of == CP_JOB ? random_cp_job() : random_tp_job();
			const struct defect d = { .kind = DEFECTS + k,
						  .rank = form[k].one ? (int)choices_draw(j.ranks) : -1,
						  .seed = (uint64_t)i * 7919 + 1 };
			bool applied;
			char text[700];
			describe(&j, &d, text, sizeof text);
			if (verify(&j, NULL, &applied) != FO_OK)
				fail_msg("a whole program is refused: %s (%s)", fo_err_text(), text);
			const fo_status st = verify(&j, &d, &applied);
			if (!applied)
				continue;
			n++;
			if (st != FO_OK && getenv("FLATOUT_ROLE_TEXTS"))
				print_message("%s: %s\n", form[k].name, fo_err_text());
			if (st != FO_OK || refused_alone(&j, &d))
				caught++;
			else if (is_equivalent(&j, &d))
				alike++;
			else
				fail_msg("escapes: %s", text);
		}
		print_message("%-40s %8d %8d %8d\n", form[k].name, n, caught, alike);
		assert_true(caught > 0);
	}
}

/* Ranks that do the same are one role, and what the check takes is said. */
static void test_roles(void **state)
{
	(void)state;
	struct fo_model m = step_model(32, 4096, 32, 8, 14336, 128256, false);
	struct fo_lowering low = { .seq = 512,
				   .rows = 1,
				   .micro_batches = 4,
				   .precision = FO_PRECISION_BF16,
				   .mesh = { .replicate = 8 },
				   .pass = { .ddp = 25, .merge_qkv = 1, .merge_gate_up = 1, .fused_optimizer = 1 } };
	struct fo_program p[RANKS_MOST];
	struct fo_roles roles = { 0 };
	for (int r = 0; r < RANKS_MOST; r++) {
		low.mesh.rank = r;
		must(fo_pass_build(&p[r], &m, &low));
	}
	int64_t begin = fo_now_ns();
	for (int r = 0; r < RANKS_MOST; r++) {
		bool kept;
		must(fo_roles_add(&roles, &p[r], &kept));
		assert_true(kept == !r);
	}
	must(fo_roles_verify(&roles, 8));
	print_message("32 layers x 4 micro-batches on 8 ranks: %lld calls checked in %.1f ms\n", (long long)roles.calls,
		      1e-6 * (double)(fo_now_ns() - begin));
	assert_int_equal(roles.n, 1);
	assert_int_equal(roles.of[0].ranks, 8);
	/* Rows that are not those of the job. */
	assert_int_equal(fo_roles_verify(&roles, 9), FO_EBUG);
	assert_non_null(strstr(fo_err_text(), "8 ranks together do "));
	fo_roles_fini(&roles);
	for (int r = 0; r < RANKS_MOST; r++)
		fo_program_fini(&p[r]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_defects), cmocka_unit_test(test_tp_defects),
					    cmocka_unit_test(test_stage_defects), cmocka_unit_test(test_forms),
					    cmocka_unit_test(test_roles) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
