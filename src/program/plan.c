/* The memory plan: one walk in issue order, best fit among free ranges, offsets known before the first step. What waits
 * in host memory has an arena of its own, planned the same way.
 *
 * A generation placed over the bytes of a dead one must not start before the dead one's last access on every lane. Free
 * ranges carry those lane vectors, and taking one adds them to the waits. Without them a shuffled run computes wrong
 * numbers (tests/step/test_lanes.c shows it).
 *
 * Such a wait is cheap where the other lane is far ahead, and ruins a second compute lane: the compute lane's next
 * operation would take the bytes that a weight gradient reads, and wait for its end. So bytes that the second lane
 * reads stay taken until the compute lane has listed WGRAD_SLACK more operations that multiply. That is also how far
 * the second lane may fall behind, and the cost of its bytes. */
#include "program/program.h"
#include "base/count.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN 64 /* a cache line and a 512-bit vector */
/* One would do: while a lane runs a matmul, the other has its next one waiting. With the second a matmul that takes
 * longer than the one it runs beside (gate and up beside the attention's output) is not waited for at once. */
enum { WGRAD_SLACK = 2 };

struct range {
	int64_t offset, size;
	int32_t last[FO_LANE_COUNT];
};

struct space { /* one arena */
	struct range *range;
	int n;
	size_t cap; /* free ranges, by offset, never adjacent */
	int64_t top, live;
};

struct plan {
	const struct fo_program *p;
	struct fo_unrolled *u;
	struct space device, host;
};

static struct space *space_of(struct plan *s, const struct fo_life *l)
{
	return s->p->buf[l->buf].home == FO_HOME_HOST ? &s->host : &s->device;
}

static int64_t padded(const struct fo_life *l) { return fo_round_up(l->bytes, ALIGN); }

static void newest(int32_t *into, const int32_t *from)
{
	for (int l = 0; l < FO_LANE_COUNT; l++)
		into[l] = (int32_t)fo_max(into[l], from[l]);
}

static bool same_rectangle(const struct fo_program *p, const struct fo_operand *a, const struct fo_operand *b)
{
	return a->r0 == b->r0 && a->nr == b->nr && a->c0 == b->c0 && a->nc == b->nc &&
	       p->buf[a->buf].cols == p->buf[b->buf].cols && p->buf[a->buf].dtype == p->buf[b->buf].dtype;
}

/* The operand that output i may overwrite with life `in`: ops.def allows the pair and the rectangles are the same. */
static bool pairs_with(struct plan *s, int id, const struct fo_op *o, int i, int in)
{
	const int32_t *life_of = &s->u->life_of[s->u->arg_begin[id]];
	int out, k;
	for (int pair = 0; fo_op_in_place(o->kind, pair, &out, &k); pair++)
		if (out == i && k < o->n && life_of[k] == in && same_rectangle(s->p, &o->arg[i], &o->arg[k]))
			return true;
	return false;
}

/* Gives the new life of output i of instance id the bytes of an input that dies here, if ops.def allows it. Where
 * several outputs are rectangles of the new life, or several inputs of the dying one (gate and up side by side), each
 * input must be the partner of an output: an output that lay elsewhere would overwrite what is still to be read. */
static bool place_in_place(struct plan *s, int id, const struct fo_op *o, int i, struct fo_life *l)
{
	const int32_t *life_of = &s->u->life_of[s->u->arg_begin[id]];
	int out, in;
	for (int pair = 0; fo_op_in_place(o->kind, pair, &out, &in); pair++) {
		if (out != i || in >= o->n)
			continue;
		struct fo_life *q = &s->u->life[life_of[in]];
		bool fits = !q->persists && !q->moved && q->until == id && q->bytes == l->bytes &&
			    same_rectangle(s->p, &o->arg[i], &o->arg[in]);
		for (int k = 0; fits && k < o->n; k++) {
			bool partner = life_of[k] != life_of[in];
			for (int j = 0; !partner && j < o->n; j++)
				partner = life_of[j] == life_of[i] && fo_access_writes(o->arg[j].access) &&
					  same_rectangle(s->p, &o->arg[j], &o->arg[k]) &&
					  pairs_with(s, id, o, j, life_of[in]);
			fits = partner;
		}
		if (!fits)
			continue;
		l->offset = q->offset;
		q->moved = true;
		for (int k = 0; k < FO_LANE_COUNT; k++)
			if (q->last_on_lane[k] != id && q->last_on_lane[k] > s->u->wait[id][k])
				s->u->wait[id][k] = q->last_on_lane[k];
		return true;
	}
	return false;
}

static void place(struct plan *s, int id, struct fo_life *l)
{
	struct space *m = space_of(s, l);
	int64_t need = padded(l);
	int best = -1;
	for (int i = 0; i < m->n; i++)
		if (m->range[i].size >= need && (best < 0 || m->range[i].size < m->range[best].size))
			best = i;
	if (best < 0 && m->n && m->range[m->n - 1].offset + m->range[m->n - 1].size == m->top) {
		best = m->n - 1; /* the last range touches the top: grow it */
		m->top += need - m->range[best].size;
		m->range[best].size = need;
	}
	m->live += need;
	if (best < 0) {
		l->offset = m->top;
		m->top += need;
		return;
	}
	struct range *r = &m->range[best];
	l->offset = r->offset;
	newest(s->u->wait[id], r->last);
	r->offset += need;
	r->size -= need;
	if (!r->size)
		memmove(r, r + 1, (size_t)(--m->n - best) * sizeof *r);
}

static void release(struct space *s, const struct fo_life *l)
{
	int64_t need = padded(l);
	int k = 0;
	s->live -= need;
	while (k < s->n && s->range[k].offset < l->offset)
		k++;
	fo_array_room(&s->range, &s->cap, (size_t)s->n, sizeof *s->range);
	memmove(&s->range[k + 1], &s->range[k], (size_t)(s->n++ - k) * sizeof *s->range);
	s->range[k] = (struct range){ .offset = l->offset, .size = need };
	memcpy(s->range[k].last, l->last_on_lane, sizeof s->range[k].last);
	/* Joins the range with its right neighbour, then its left one with both. */
	for (int i = k; i >= 0 && i >= k - 1; i--) {
		struct range *r = &s->range[i];
		if (i + 1 == s->n || r->offset + r->size != r[1].offset)
			continue;
		r->size += r[1].size;
		newest(r->last, r[1].last);
		memmove(r + 1, r + 2, (size_t)(--s->n - i - 1) * sizeof *r);
	}
}

/* Gradients are left alone: who takes one has waited for the lane that made it. */
static void find_ends(struct plan *s)
{
	struct fo_unrolled *u = s->u;
	int *further = fo_xmalloc((size_t)(u->n + 1) * sizeof *further), ahead[WGRAD_SLACK];
	for (int k = 0; k < WGRAD_SLACK; k++)
		ahead[k] = u->n - 1;
	for (int i = u->n - 1; i >= 0; i--) {
		const struct fo_op *o = fo_instance_op(s->p, u, i);
		further[i] = ahead[WGRAD_SLACK - 1];
		if (o->lane != FO_LANE_COMPUTE || fo_op_info(o->kind)->cls != FO_CLASS_TENSOR)
			continue;
		memmove(ahead + 1, ahead, (WGRAD_SLACK - 1) * sizeof *ahead);
		ahead[0] = i;
	}
	for (int i = 0; i < u->nlife; i++) {
		struct fo_life *l = &u->life[i];
		int32_t read = s->p->buf[l->buf].home == FO_HOME_GRAD ? -1 : l->last_on_lane[FO_LANE_WGRAD];
		l->until = read >= 0 ? (int32_t)fo_max(further[read], l->last) : l->last;
	}
	free(further);
}

/* Bytes of what persists and that no operation touches: memory has an instance of each own layer (train/store.h),
 * histories and copies of layers that keep their precision among them. */
static int64_t untouched(const struct fo_program *p, const struct fo_unrolled *u)
{
	int64_t bytes = 0, layers = fo_program_layers(p),
		*touched = fo_xmalloc((size_t)(p->nbuf + 1) * sizeof *touched);
	for (int i = 0; i < u->nlife; i++)
		touched[u->life[i].buf] += u->life[i].persists;
	for (int b = 0; b < p->nbuf; b++)
		if (touched[b] && p->buf[b].axes & FO_PER_LAYER)
			bytes += (layers - touched[b]) * fo_round_up(fo_buffer_bytes(&p->buf[b]), ALIGN);
	free(touched);
	return bytes;
}

void fo_plan(const struct fo_program *p, struct fo_unrolled *u)
{
	struct plan s = { .p = p, .u = u };
	int *dies = fo_xmalloc((size_t)(u->n + 1) * sizeof *dies),
	    *next = fo_xmalloc((size_t)(u->nlife + 1) * sizeof *next);
	memset(dies, -1, (size_t)(u->n + 1) * sizeof *dies);
	u->persistent_bytes = u->max_live_bytes = 0;
	find_ends(&s);
	for (int i = 0; i < u->nlife; i++) {
		struct fo_life *l = &u->life[i];
		if (l->persists) {
			l->offset = u->persistent_bytes;
			u->persistent_bytes += padded(l);
		} else {
			next[i] = dies[l->until];
			dies[l->until] = i;
		}
	}
	u->persistent_bytes += untouched(p, u);
	for (int id = 0; id < u->n; id++) {
		const struct fo_op *o = fo_instance_op(p, u, id);
		for (int i = 0; i < o->n; i++) {
			struct fo_life *l = &u->life[u->life_of[u->arg_begin[id] + i]];
			if (!l->persists && l->offset < 0 && !place_in_place(&s, id, o, i, l))
				place(&s, id, l);
		}
		u->max_live_bytes = fo_max(u->max_live_bytes, s.device.live);
		for (int x = dies[id]; x >= 0; x = next[x])
			if (!u->life[x].moved)
				release(space_of(&s, &u->life[x]), &u->life[x]);
	}
	u->arena_bytes = s.device.top;
	u->host_arena_bytes = s.host.top;
	free(s.device.range);
	free(s.host.range);
	free(dies);
	free(next);
}
