#include "timeline/timeline.h"
#include "base/mem.h"

#include <math.h>

const char *const fo_part_name[FO_PART_COUNT] = {
	"matmul", "attention_forward", "attention_backward", "elementwise", "loss", "optimizer", "communication",
	"data",   "unattributed",
};

const char *const fo_part_words[FO_PART_COUNT] = {
	[FO_PART_MATMUL] = "matmuls",
	[FO_PART_ATTENTION_FORWARD] = "attention forward",
	[FO_PART_ATTENTION_BACKWARD] = "attention backward",
	[FO_PART_ELEMENTWISE] = "norms and elementwise",
	[FO_PART_LOSS] = "loss",
	[FO_PART_OPTIMIZER] = "optimizer",
	[FO_PART_COMMUNICATION] = "exposed communication",
	[FO_PART_DATA] = "waiting for data",
	[FO_PART_UNATTRIBUTED] = "unattributed",
};

const unsigned char fo_part_tone[FO_PART_COUNT] = {
	[FO_PART_MATMUL] = 0,
	[FO_PART_ATTENTION_FORWARD] = 12,
	[FO_PART_ATTENTION_BACKWARD] = 2,
	[FO_PART_ELEMENTWISE] = 10,
	[FO_PART_LOSS] = 19,
	[FO_PART_OPTIMIZER] = 5,
	[FO_PART_COMMUNICATION] = 6,
	[FO_PART_DATA] = 9,
	[FO_PART_UNATTRIBUTED] = 8,
};

fo_status fo_timeline_init(struct fo_timeline *t, const struct fo_program *p, const struct fo_unrolled *u, int steps)
{
	uint32_t per_step[FO_LANE_COUNT] = { 0 };
	*t = (struct fo_timeline){ 0 };
	for (int i = 0; i < u->n; i++)
		per_step[fo_instance_op(p, u, i)->lane] += 2; /* the operation and a wait before it */
	size_t spans = 0;
	for (int l = 0; l < FO_LANE_COUNT; l++)
		spans += (size_t)per_step[l] * (size_t)steps;
	t->bytes = spans * sizeof(struct fo_span);
	FO_TRY(fo_pages_new(t->bytes, &t->memory));
	struct fo_span *at = t->memory;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		t->lane[l].cap = per_step[l] * (uint32_t)steps;
		t->lane[l].span = at;
		at += t->lane[l].cap;
	}
	return FO_OK;
}

void fo_timeline_fini(struct fo_timeline *t)
{
	fo_pages_free(t->memory, t->bytes);
	*t = (struct fo_timeline){ 0 };
}

/* ---- spans of lanes that share the cores ---- */

static uint64_t oldest_of(const struct fo_ring *r) { return r->n > r->cap ? r->n - r->cap : 0; }
static const struct fo_span *span_of(const struct fo_ring *r, uint64_t i) { return &r->span[i % r->cap]; }

uint64_t fo_ring_from(const struct fo_ring *r, int64_t ns)
{
	uint64_t low = oldest_of(r), high = r->n;
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		if (span_of(r, middle)->end_ns < ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

double fo_timeline_own_ns(const struct fo_timeline *t, int lane, const struct fo_span *s)
{
	const struct fo_ring *r = &t->lane[lane == FO_LANE_COMPUTE ? FO_LANE_WGRAD : FO_LANE_COMPUTE];
	double length = (double)(s->end_ns - s->begin_ns), both = 0;
	if (!fo_lane_computes(lane))
		return length;
	for (uint64_t i = fo_ring_from(r, s->begin_ns); i < r->n && span_of(r, i)->begin_ns < s->end_ns; i++) {
		const struct fo_span *x = span_of(r, i);
		int64_t begin = x->begin_ns > s->begin_ns ? x->begin_ns : s->begin_ns;
		int64_t end = x->end_ns < s->end_ns ? x->end_ns : s->end_ns;
		both += x->instance >= 0 ? (double)(end - begin) : 0;
	}
	return length - (s->instance >= 0 ? both / 2 : both);
}

int fo_timeline_ran(const struct fo_timeline *t, int32_t step, int64_t begin_ns, int64_t end_ns)
{
	int ran = 0;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		const struct fo_ring *r = &t->lane[l];
		for (uint64_t i = fo_lane_computes(l) ? fo_ring_from(r, begin_ns) : r->n;
		     i < r->n && span_of(r, i)->begin_ns <= end_ns; i++)
			ran += span_of(r, i)->step == step && span_of(r, i)->instance >= 0;
	}
	return ran;
}

int fo_instances_computing(const struct fo_program *p, const struct fo_unrolled *u)
{
	int n = 0;
	for (int i = 0; i < u->n; i++)
		n += fo_lane_computes(fo_instance_op(p, u, i)->lane);
	return n;
}

/* ---- profile ---- */

enum fo_part fo_part_of_op(enum fo_op_kind kind)
{
	switch (fo_op_info(kind)->category) {
	case FO_CAT_MATMUL: return FO_PART_MATMUL;
	case FO_CAT_ATTENTION_FORWARD: return FO_PART_ATTENTION_FORWARD;
	case FO_CAT_ATTENTION_BACKWARD: return FO_PART_ATTENTION_BACKWARD;
	case FO_CAT_ELEMENTWISE: return FO_PART_ELEMENTWISE;
	case FO_CAT_LOSS: return FO_PART_LOSS;
	case FO_CAT_OPTIMIZER: return FO_PART_OPTIMIZER;
	case FO_CAT_COMMUNICATION: return FO_PART_COMMUNICATION;
	case FO_CAT_HOST: return FO_PART_DATA;
	case FO_CAT_COUNT: break;
	}
	return FO_PART_UNATTRIBUTED;
}

/* A wait for a compute operation of another lane is idle time by dependency: neither compute nor communication. */
static enum fo_part part_of_span(const struct fo_op *o, bool waited)
{
	enum fo_part part = fo_part_of_op((enum fo_op_kind)o->kind);
	return waited && part < FO_PART_COMMUNICATION ? FO_PART_UNATTRIBUTED : part;
}

/* Spans that were read from a file may belong to another program. Returns the time covered. */
static double add_span(struct fo_profile *f, const struct fo_timeline *t, const struct fo_program *p,
		       const struct fo_unrolled *u, int lane, const struct fo_span *s)
{
	int id = s->instance >= 0 ? s->instance : ~s->instance;
	if (id >= u->n)
		return 0;
	double own = fo_timeline_own_ns(t, lane, s);
	f->part_ns[part_of_span(fo_instance_op(p, u, id), s->instance < 0)] += own;
	return own;
}

void fo_profile_add_step(struct fo_profile *f, const struct fo_timeline *t, const struct fo_program *p,
			 const struct fo_unrolled *u, int32_t step, int64_t begin_ns, int64_t end_ns,
			 int64_t loader_wait_ns)
{
	const struct fo_ring *r = &t->lane[FO_LANE_COMPUTE], *w = &t->lane[FO_LANE_WGRAD];
	double covered = 0, wall = (double)(end_ns - begin_ns);
	uint64_t oldest = oldest_of(r);
	const struct fo_span *newest = r->n > oldest ? span_of(r, r->n - 1) : NULL;
	/* A run that went back does a step again: what ended before this one began is the earlier one's. */
	if (!newest || newest->step != step || newest->end_ns < begin_ns) {
		f->untimed_ns += wall;
		f->untimed_steps++;
		return;
	}
	for (uint64_t i = r->n; i-- > oldest;) {
		const struct fo_span *s = span_of(r, i);
		if (s->step != step || s->end_ns < begin_ns)
			break;
		covered += add_span(f, t, p, u, FO_LANE_COMPUTE, s);
	}
	for (uint64_t i = fo_ring_from(w, begin_ns); i < w->n && span_of(w, i)->begin_ns <= end_ns; i++)
		if (span_of(w, i)->step == step && span_of(w, i)->instance >= 0)
			covered += add_span(f, t, p, u, FO_LANE_WGRAD, span_of(w, i));
	f->part_ns[FO_PART_DATA] += (double)loader_wait_ns;
	f->part_ns[FO_PART_UNATTRIBUTED] += wall - covered - (double)loader_wait_ns;
	f->total_ns += wall;
	f->steps++;
}

/* ---- meter ---- */

struct fo_mfu fo_mfu_of_step(const struct fo_program *p, double tokens, double pairs, double seconds,
			     double peak_flop_s)
{
	const struct fo_model *m = &p->model;
	struct fo_flop f = fo_model_flop_per_token(m, p->run.seq);
	struct fo_mfu mfu = fo_mfu_of_tokens(&f, tokens, seconds, peak_flop_s);
	double rate = 1 / (seconds * peak_flop_s);
	double sets = (double)p->run.micro_batches * fo_mesh_data(&p->run.mesh); /* of rows: a tp group has one */
	/* Unmasked attention costs 12 H Q L per pair forward and backward (docs/metrics.md). */
	double pair_flop = 12.0 * (double)m->layers * (double)m->heads * (double)m->head_dim;
	mfu.mfu_document = (f.mfu_6n * tokens + pair_flop * pairs) * rate;
	if (!p->staged) /* ranks do alike */
		mfu.hfu = fo_program_cost(p, pairs / sets).exec * p->ranks * rate;
	else
		mfu.hfu = p->job_exec > 0 ? (p->job_exec + p->job_exec_pair * pairs / sets) * rate : NAN;
	return mfu;
}
