#include "timeline/timeline.h"
#include "base/fs.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

const char *const fo_part_name[FO_PART_COUNT] = {
	"matmul", "attention_forward", "attention_backward", "elementwise", "loss", "optimizer", "communication",
	"data",   "unattributed",
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

void fo_profile_add_step(struct fo_profile *f, const struct fo_timeline *t, const struct fo_program *p,
			 const struct fo_unrolled *u, int32_t step, int64_t begin_ns, int64_t end_ns,
			 int64_t loader_wait_ns)
{
	const struct fo_ring *r = &t->lane[FO_LANE_COMPUTE];
	double covered = 0, wall = (double)(end_ns - begin_ns);
	uint64_t oldest = r->n > r->cap ? r->n - r->cap : 0;
	const struct fo_span *newest = r->n > oldest ? &r->span[(r->n - 1) % r->cap] : NULL;
	/* A run that went back does a step again: what ended before this one began is the earlier one's. */
	if (!newest || newest->step != step || newest->end_ns < begin_ns) {
		f->untimed_ns += wall;
		f->untimed_steps++;
		return;
	}
	for (uint64_t i = r->n; i-- > oldest;) {
		const struct fo_span *s = &r->span[i % r->cap];
		if (s->step != step || s->end_ns < begin_ns)
			break;
		double d = (double)(s->end_ns - s->begin_ns);
		int id = s->instance >= 0 ? s->instance : ~s->instance;
		if (id >= u->n)
			continue; /* spans read from a file may belong to another program */
		const struct fo_op *o = fo_instance_op(p, u, id);
		enum fo_part part = fo_part_of_op((enum fo_op_kind)o->kind);
		/* A wait for a compute operation of another lane is idle time by dependency: neither compute nor communication. */
		if (s->instance < 0 && part < FO_PART_COMMUNICATION)
			part = FO_PART_UNATTRIBUTED;
		f->part_ns[part] += d;
		covered += d;
	}
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
	double rate = 1 / (seconds * peak_flop_s), mbs = (double)p->run.micro_batches;
	/* Unmasked attention costs 12 H Q L per pair forward and backward (docs/metrics.md). */
	double pair_flop = 12.0 * (double)m->layers * (double)m->heads * (double)m->head_dim;
	mfu.mfu_document = (f.mfu_6n * tokens + pair_flop * pairs) * rate;
	mfu.hfu = fo_program_cost(p, pairs / mbs).exec * rate;
	return mfu;
}

/* ---- file ---- */

#define MAGIC "FOTIMEL1"
enum { MAX_SPANS = 1 << 28 };

struct header {
	char magic[8];
	uint64_t program_hash, checksum;
	uint64_t spans[FO_LANE_COUNT];
};

fo_status fo_timeline_write(const struct fo_timeline *t, const struct fo_program *p, const char *path)
{
	struct header h = { .magic = MAGIC, .program_hash = fo_program_hash(p) };
	struct fo_str s = { 0 };
	fo_str_append(&s, &h, sizeof h);
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		const struct fo_ring *r = &t->lane[l];
		for (uint64_t i = r->n > r->cap ? r->n - r->cap : 0; i < r->n; i++) {
			struct fo_span x = r->span[i % r->cap];
			x.begin_ns -= t->origin_ns;
			x.end_ns -= t->origin_ns;
			fo_str_append(&s, &x, sizeof x);
			h.spans[l]++;
		}
	}
	h.checksum = XXH3_64bits(s.data + sizeof h, s.len - sizeof h);
	memcpy(s.data, &h, sizeof h);
	fo_status st = fo_fs_write_atomic(path, s.data, s.len);
	fo_str_fini(&s);
	return st;
}

static fo_status check_file(const struct fo_map *m, const char *path, struct header *h)
{
	if (m->len < sizeof *h || memcmp(m->data, MAGIC, 8))
		return fo_fail(FO_EFORMAT, "'%s' is not a timeline: it does not begin with '" MAGIC "'", path);
	memcpy(h, m->data, sizeof *h);
	uint64_t spans = 0;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		if (h->spans[l] > MAX_SPANS)
			return fo_fail(FO_EFORMAT, "timeline '%s' claims %llu spans on one lane, more than 2^28", path,
				       (unsigned long long)h->spans[l]);
		spans += h->spans[l];
	}
	if (m->len - sizeof *h != spans * sizeof(struct fo_span))
		return fo_fail(FO_EFORMAT, "timeline '%s' is cut off: got %zu bytes of spans, expected %llu", path,
			       m->len - sizeof *h, (unsigned long long)(spans * sizeof(struct fo_span)));
	if (XXH3_64bits(m->data + sizeof *h, m->len - sizeof *h) != h->checksum)
		return fo_fail(FO_EFORMAT, "timeline '%s' is damaged: its checksum does not match", path);
	return FO_OK;
}

fo_status fo_timeline_read(struct fo_timeline_file *f, const char *path)
{
	struct fo_map m;
	struct header h;
	*f = (struct fo_timeline_file){ 0 };
	FO_TRY(fo_map_open(&m, path));
	fo_status st = check_file(&m, path, &h);
	if (st == FO_OK) {
		f->program_hash = h.program_hash;
		f->t.bytes = m.len - sizeof h;
		st = fo_pages_new(f->t.bytes ? f->t.bytes : 1, &f->t.memory);
	}
	if (st == FO_OK) {
		struct fo_span *at = f->t.memory;
		memcpy(at, m.data + sizeof h, f->t.bytes);
		for (int l = 0; l < FO_LANE_COUNT; l++) {
			f->t.lane[l] = (struct fo_ring){ at, (uint32_t)h.spans[l], h.spans[l] };
			for (uint64_t i = 0; i < h.spans[l] && st == FO_OK; i++)
				if (at[i].end_ns < at[i].begin_ns || (i && at[i].begin_ns < at[i - 1].begin_ns))
					st = fo_fail(FO_EFORMAT,
						     "timeline '%s': span %llu of lane %s ends before it begins or is "
						     "out of order",
						     path, (unsigned long long)i, fo_lane_name[l]);
			at += h.spans[l];
		}
	}
	fo_map_close(&m);
	if (st != FO_OK)
		fo_timeline_fini(&f->t);
	return st;
}
