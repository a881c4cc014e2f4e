/* Our own timelines (docs/formats.md): the program beside one says what its numbers mean.
 *
 * Lanes become streams of one device, spans operations. Nobody launches them: a lane takes the next when the one before
 * is done, so a launch begins where the lane was free and the wait for it, if there is one, is over. */
#include "trace/trace_int.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "program/program.h"
#include "timeline/timeline.h"

#include <string.h>

struct own {
	struct fo_arena arena;
	struct fo_program program;
	struct fo_unrolled unrolled;
	struct fo_timeline_file timeline;
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

static void add_operation(struct fo_trace_build *b, const struct own *x, const struct fo_span *s, const struct fo_op *o,
			  int lane, int32_t thread, int64_t free_at)
{
	int64_t number = b->t->gpu_count;
	int32_t name = text(b, fo_op_info(o->kind)->name);
	struct fo_gpu_op *g = fo_trace_add_gpu(b, s->begin_ns, s->end_ns);
	g->correlation = number;
	g->name = name;
	g->stream = lane;
	g->device = fo_trace_device(b, 0);
	g->kind = FO_GPU_KERNEL;
	g->class = g->class_by_name = (uint8_t)class_of_op(&x->program, o);
	g->flags = flags_of_phase(o->phase);
	int64_t from = s->begin_ns - free_at <= DISPATCH_NS ? free_at : s->begin_ns;
	struct fo_launch *l = fo_trace_add_launch(b, from, s->begin_ns);
	l->correlation = number;
	l->name = name;
	l->thread = thread;
}

static void add_lane(struct fo_trace_build *b, const struct own *x, int lane)
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

/* program.txt in the timeline's folder, where a run leaves both. */
static fo_status read_program(struct own *x, const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *beside = fo_arena_printf(&x->arena, "%.*sprogram.txt", slash ? (int)(slash - path + 1) : 0, path);
	if (!fo_fs_exists(beside))
		return fo_hint(fo_fail(FO_EFORMAT, "timeline '%s' is numbers without its program: there is no '%s'",
				       path, beside),
			       "put the program.txt of its run beside it");
	FO_TRY(fo_program_read(&x->program, beside, true));
	x->has_program = true;
	fo_status st = fo_unroll(&x->program, &x->unrolled);
	if (st != FO_OK) {
		fo_program_fini(&x->program);
		x->has_program = false;
		return st;
	}
	if (fo_program_hash(&x->program) != x->timeline.program_hash)
		return fo_fail(FO_EFORMAT, "timeline '%s' is of another program than '%s'", path, beside);
	return FO_OK;
}

fo_status fo_trace_read_own(struct fo_trace_build *b, const char *path)
{
	struct own x = { 0 };
	FO_TRY(fo_timeline_read(&x.timeline, path));
	fo_status st = read_program(&x, path);
	if (st == FO_OK) {
		b->t->format = FO_TRACE_OWN;
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
	fo_arena_fini(&x.arena);
	return st;
}
