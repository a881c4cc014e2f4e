/* Our own timelines (docs/formats.md): the program beside one says what its numbers mean.
 *
 * Lanes become streams of one device, spans operations. Nobody launches them: a lane takes the next when the one before
 * is done, so a launch begins where the lane was free and the wait for it, if there is one, is over. */
#include "trace/trace_int.h"

#include "base/count.h"
#include "base/str.h"
#include "base/text.h"
#include "program/program.h"
#include "timeline/timeline.h"

#include <string.h>

struct own {
	struct fo_program program;
	struct fo_unrolled unrolled;
	struct fo_timeline_file timeline;
	int32_t members[FO_GROUP_COUNT]; /* text of each group's ranks, from 1; 0: not made yet */
	bool has_program;
};

enum {
	/* The dispatch between two operations of a lane takes about a microsecond. After a longer gap the lane had
	 * nothing to run: the training loop works between its steps. The limit is that of gaps between kernels
	 * (docs/metrics.md, "the ledger"). */
	DISPATCH_NS = 10000,
};

/* The kernel class that a trace gives to each family of operations; a matmul of fp8 factors has its own. */
static const enum fo_kernel_class class_of[FO_OPS_FAMILIES] = {
	[FO_OPS_MATMUL] = FO_K_GEMM,
	[FO_OPS_ATTENTION] = FO_K_ATTENTION_FORWARD,
	[FO_OPS_ATTENTION_BWD] = FO_K_ATTENTION_BACKWARD,
	[FO_OPS_EAGER] = FO_K_ATTENTION_FORWARD,
	[FO_OPS_EAGER_BWD] = FO_K_ATTENTION_BACKWARD,
	[FO_OPS_CACHED] = FO_K_ATTENTION_FORWARD,
	[FO_OPS_NORM] = FO_K_NORM,
	[FO_OPS_ROPE] = FO_K_ROPE,
	[FO_OPS_EMBEDDING] = FO_K_EMBEDDING,
	[FO_OPS_BIAS] = FO_K_ELEMENTWISE,
	[FO_OPS_POINTWISE] = FO_K_ELEMENTWISE,
	[FO_OPS_COPY] = FO_K_COPY,
	[FO_OPS_CAST] = FO_K_CAST,
	[FO_OPS_HISTORY] = FO_K_OPTIMIZER,
	[FO_OPS_LOSS] = FO_K_LOSS,
	[FO_OPS_CLIP] = FO_K_OPTIMIZER,
	[FO_OPS_UPDATE] = FO_K_OPTIMIZER,
	[FO_OPS_TRANSFER] = FO_K_COPY,
	[FO_OPS_COLLECTIVE] = FO_K_COMMUNICATION,
	[FO_OPS_P2P] = FO_K_COMMUNICATION,
	[FO_OPS_HOST] = FO_K_OTHER,
};

static enum fo_kernel_class class_of_op(const struct fo_program *p, const struct fo_op *o)
{
	enum fo_op_family family = fo_op_family(o->kind);
	bool fp8 = family == FO_OPS_MATMUL && fo_dtype_fp8(p->buf[o->arg[FO_MATMUL_A].buf].dtype);
	return fp8 ? FO_K_GEMM_FP8 : class_of[family];
}

static uint8_t flags_of_phase(int phase)
{
	switch (phase) {
	case FO_BACKWARD:
	case FO_WGRAD: return FO_GPU_BACKWARD;
	case FO_RECOMPUTE: return FO_GPU_BACKWARD | FO_GPU_RECOMPUTED;
	default: return 0;
	}
}

static int32_t text(struct fo_trace_build *b, const char *s) { return fo_trace_intern(b, s, strlen(s)); }

/* The host's side of a span: it fetched a batch, read a loss, or waited for another lane. */
static void add_host(struct fo_trace_build *b, const struct fo_span *s, const struct fo_op *o, int lane, int32_t thread)
{
	const struct fo_op_info *info = fo_op_info(o->kind);
	bool waited = s->instance < 0;
	struct fo_host_op *h = fo_trace_add_op(b, s->begin_ns, s->end_ns);
	h->thread = thread;
	h->kind = waited ? FO_HOST_SYNC : FO_HOST_OP;
	if (info->family == FO_OPS_HOST && fo_access_writes(o->arg[FO_HOST_IN_A].access))
		h->kind = FO_HOST_DATA;
	struct fo_str name = { 0 };
	fo_str_printf(&name, "%s%s", waited ? "wait for " : "", info->name);
	h->name = text(b, name.data);
	fo_str_fini(&name);
	if (!waited)
		return;
	struct fo_gpu_wait *w = fo_trace_add_wait(b, s->begin_ns, s->end_ns);
	w->kind = text(b, "wait for a lane");
	w->stream = lane;
	w->on_stream = o->lane;
	w->device = fo_trace_device(b, 0);
}

/* Bytes of the tensors that a collective works on, on this rank: of the larger side where it has two. */
static int64_t payload(const struct fo_program *p, const struct fo_op *o)
{
	int tensors = fo_op_tensors(o->kind, o->n);
	int64_t most = 0, sum = 0;
	for (int i = 0; i < o->n; i++) {
		int64_t bytes = (int64_t)o->arg[i].nr * o->arg[i].nc *
				(int64_t)fo_dtype_bytes(p->buf[o->arg[i].buf].dtype);
		most = fo_max(bytes, most);
		sum += bytes;
	}
	return tensors > 1 ? sum : most;
}

/* Appends the ranks of this rank's group, the same text on all of them (out may be NULL). Returns the one at `place`;
 * -1: none. */
static int32_t members_of(const struct fo_program *p, enum fo_group g, int32_t place, struct fo_str *out)
{
	int32_t own, colour, at, found = -1;
	fo_mesh_group(&p->run.mesh, g, NULL, &own);
	for (int32_t r = 0; r < p->ranks; r++) {
		struct fo_mesh m = p->run.mesh;
		m.rank = r;
		fo_mesh_group(&m, g, &at, &colour);
		if (colour != own)
			continue;
		found = at == place ? r : found;
		if (out)
			fo_str_printf(out, "%s%d", out->len ? ", " : "", r);
	}
	return found;
}

/* The names that profilers give to what moves. */
static const char *const wire_name[] = {
	[FO_WIRE_ALL_REDUCE] = "allreduce",
	[FO_WIRE_ALL_GATHER] = "allgather",
	[FO_WIRE_BROADCAST] = "broadcast",
	[FO_WIRE_REDUCE_SCATTER] = "reduce_scatter",
	[FO_WIRE_SEND] = "send",
	[FO_WIRE_RECEIVE] = "recv",
	[FO_WIRE_ALL_TO_ALL] = "alltoall",
	[FO_WIRE_SHIFT] = "permute",
};

/* A call's number in its step, the same on all members. Those of one stage run one program; stages of a pipeline do
 * not, and each counts its calls of the kind. */
static int64_t number_of(const struct own *x, const struct fo_timeline_collective *k)
{
	int64_t n = 0;
	if (k->group != FO_GROUP_PP && k->group != FO_GROUP_ENDS)
		return k->instance;
	for (int64_t i = 0; i < x->timeline.collectives; i++) {
		const struct fo_timeline_collective *c = &x->timeline.collective[i];
		n += c->group == k->group && c->wire == k->wire && c->lane == k->lane && c->instance < k->instance;
	}
	return n;
}

/* Messages between two stages keep their order in each direction of the model; one direction may overtake the other. */
static const char *direction_of(int lane)
{
	switch (lane) {
	case FO_LANE_SEND_FORWARD:
	case FO_LANE_RECV_FORWARD: return ", forward";
	case FO_LANE_SEND_BACKWARD:
	case FO_LANE_RECV_BACKWARD: return ", backward";
	default: return "";
	}
}

/* A collective with what tells it from others: its group is named with the lane, which has communicators of its own. */
static int32_t add_collective(struct fo_trace_build *b, struct own *x, const struct fo_span *s, const struct fo_op *o)
{
	const struct fo_timeline_collective *k = fo_timeline_collective_of(&x->timeline, s->instance);
	const enum fo_group g = k ? (enum fo_group)k->group : FO_GROUP_NONE;
	struct fo_str words = { 0 };
	int32_t index;
	if (!k || k->members < 2)
		return -1;
	bool between_two = k->wire == FO_WIRE_SEND || k->wire == FO_WIRE_RECEIVE;
	if (!x->members[g]) {
		members_of(&x->program, g, -1, &words);
		x->members[g] = 1 + text(b, words.data);
		words.len = 0;
	}
	struct fo_collective *c = fo_trace_add_collective(b, &index);
	fo_str_puts(&words, fo_group_name[g]);
	if (!between_two)
		fo_str_printf(&words, ", lane %s", fo_lane_name[k->lane]);
	else
		fo_str_puts(&words, direction_of(k->lane));
	c->group = text(b, words.data);
	fo_str_fini(&words);
	c->name = text(b, wire_name[k->wire]);
	c->members = x->members[g] - 1;
	c->purpose = text(b, fo_lane_carries[k->lane] ? fo_lane_carries[k->lane] : fo_group_name[g]);
	c->dtype = text(b, fo_dtype_name[x->program.buf[o->arg[0].buf].dtype]);
	c->group_size = k->members;
	const bool stages = k->group == FO_GROUP_PP || k->group == FO_GROUP_ENDS;
	const int64_t a_step = stages ? INT32_MAX : x->unrolled.n;
	c->sequence = between_two ? -1 : s->step * a_step + number_of(x, k);
	c->bytes = payload(&x->program, o);
	c->equal_parts = k->wire == FO_WIRE_ALL_REDUCE || k->wire == FO_WIRE_BROADCAST;
	int32_t peer = between_two ? members_of(&x->program, g, k->peer, NULL) : -1;
	c->peer_from = k->wire == FO_WIRE_RECEIVE ? peer : -1;
	c->peer_to = k->wire == FO_WIRE_SEND ? peer : -1;
	return index;
}

static void add_operation(struct fo_trace_build *b, struct own *x, const struct fo_span *s, const struct fo_op *o,
			  int lane, int32_t thread, int64_t free_at)
{
	int64_t number = b->t->gpu_count;
	int32_t name = text(b, fo_op_info(o->kind)->name), collective = add_collective(b, x, s, o);
	struct fo_gpu_op *g = fo_trace_add_gpu(b, s->begin_ns, s->end_ns);
	g->correlation = number;
	g->name = name;
	g->stream = lane;
	g->device = fo_trace_device(b, 0);
	g->kind = FO_GPU_KERNEL;
	g->class = g->class_by_name = (uint8_t)class_of_op(&x->program, o);
	g->flags = flags_of_phase(o->phase);
	g->collective = collective;
	int64_t from = s->begin_ns - free_at <= DISPATCH_NS ? free_at : s->begin_ns;
	struct fo_launch *l = fo_trace_add_launch(b, from, s->begin_ns);
	l->correlation = number;
	l->name = name;
	l->thread = thread;
}

static void add_lane(struct fo_trace_build *b, struct own *x, int lane)
{
	const struct fo_ring *r = &x->timeline.t.lane[lane];
	int32_t thread = fo_trace_thread(b, 0, lane);
	b->t->thread[thread].name = text(b, fo_lane_name[lane]);
	for (uint64_t i = 0; i < r->n; i++) {
		const struct fo_span *s = &r->span[i];
		int32_t id = s->instance >= 0 ? s->instance : ~s->instance;
		b->t->defect.events++;
		if (id >= x->unrolled.n) {
			b->t->defect.malformed++;
			continue;
		}
		const struct fo_op *o = fo_instance_op(&x->program, &x->unrolled, id);
		bool host = fo_op_info(o->kind)->category == FO_CAT_HOST;
		if (host || s->instance < 0)
			add_host(b, s, o, lane, thread);
		else
			add_operation(b, x, s, o, lane, thread, i ? r->span[i - 1].end_ns : s->begin_ns);
	}
}

static void put_on_first_clock(struct fo_timeline_file *f)
{
	for (int l = 0; l < FO_LANE_COUNT; l++)
		for (uint64_t i = 0; i < f->t.lane[l].n; i++) {
			struct fo_span *s = &f->t.lane[l].span[i];
			s->begin_ns = fo_plus(s->begin_ns, f->t.whose.clock_offset_ns);
			s->end_ns = fo_plus(s->end_ns, f->t.whose.clock_offset_ns);
		}
}

/* A step lasts from its first span on the compute lane to its last. */
static void add_steps(struct fo_trace_build *b, const struct own *x)
{
	const struct fo_ring *r = &x->timeline.t.lane[FO_LANE_COMPUTE];
	int32_t thread = fo_trace_thread(b, 0, FO_LANE_COMPUTE);
	for (uint64_t from = 0, to; from < r->n; from = to) {
		for (to = from + 1; to < r->n && r->span[to].step == r->span[from].step;)
			to++;
		fo_trace_add_step(b, (int64_t)r->span[from].step + 1, r->span[from].begin_ns, r->span[to - 1].end_ns)
			->thread = thread;
	}
}

static fo_status read_program(struct own *x, const char *path)
{
	FO_TRY(fo_timeline_program(&x->program, &x->timeline, path));
	fo_status st = fo_unroll(&x->program, &x->unrolled);
	if (st == FO_OK)
		x->has_program = true;
	else
		fo_program_fini(&x->program);
	return st;
}

/* Whose it is, of several ranks. Their times are those of rank 0's clock. */
static void add_rank(struct fo_trace *t, const struct fo_timeline_file *f, const struct fo_program *p)
{
	if (p->ranks < 2)
		return;
	t->rank = p->rank;
	t->world_size = p->ranks;
	t->rank_from = FO_RANK_RECORDED;
	t->origin_unix_ns = f->ranks ? f->t.whose.begun_unix_ns : 0;
	t->one_clock = f->ranks > 0;
}

fo_status fo_trace_read_own(struct fo_trace_build *b, const char *path)
{
	struct own x = { 0 };
	FO_TRY(fo_timeline_read(&x.timeline, path));
	fo_status st = read_program(&x, path);
	if (st == FO_OK) {
		b->t->format = FO_TRACE_OWN;
		add_rank(b->t, &x.timeline, &x.program);
		put_on_first_clock(&x.timeline);
		for (int lane = 0; lane < FO_LANE_COUNT; lane++)
			if (x.timeline.t.lane[lane].n)
				add_lane(b, &x, lane);
		add_steps(b, &x);
	}
	if (x.has_program) {
		fo_unrolled_fini(&x.unrolled);
		fo_program_fini(&x.program);
	}
	fo_timeline_fini(&x.timeline.t);
	return st;
}
