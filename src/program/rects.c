#include "program/rects.h"

#include "base/count.h"

#include <stdlib.h>
#include <string.h>

static int instances_of(const struct fo_program *p, const struct fo_buffer *b)
{
	int layers = b->axes & FO_PER_LAYER ? (int)p->model.layers + 1 : 1;
	return layers * (b->axes & FO_PER_MICRO_BATCH ? (int)p->run.micro_batches : 1);
}

void fo_rects_init(struct fo_rects *s, const struct fo_program *p, const struct fo_unrolled *u, size_t size)
{
	int instances = 0;
	*s = (struct fo_rects){ .p = p, .u = u, .size = size, .unused = -1 };
	s->base = fo_xmalloc((size_t)(p->nbuf + 1) * sizeof *s->base);
	for (int i = 0; i < p->nbuf; i++) {
		s->base[i] = instances;
		instances += instances_of(p, &p->buf[i]);
	}
	s->head = fo_xmalloc((size_t)(instances + 1) * sizeof *s->head);
	memset(s->head, -1, (size_t)(instances + 1) * sizeof *s->head);
}

void fo_rects_fini(struct fo_rects *s)
{
	free(s->base);
	free(s->head);
	free(s->rect);
	free(s->value);
	*s = (struct fo_rects){ 0 };
}

int fo_rects_instance(const struct fo_rects *s, const struct fo_operand *a)
{
	const struct fo_buffer *b = &s->p->buf[a->buf];
	const struct fo_slot *slot = &s->p->slot[s->u->slot[s->id]];
	int mbs = b->axes & FO_PER_MICRO_BATCH ? (int)s->p->run.micro_batches : 1;
	int layer = b->axes & FO_PER_LAYER ? slot->layer + a->dlayer : 0;
	return s->base[a->buf] + layer * mbs + (b->axes & FO_PER_MICRO_BATCH ? slot->mb : 0);
}

static void push(struct fo_rects *s, int inst, struct fo_rect e, const void *value)
{
	int x = s->unused;
	if (e.r0 >= e.r1 || e.c0 >= e.c1)
		return;
	if (x >= 0) {
		s->unused = s->rect[x].next;
	} else {
		x = s->n++;
		fo_array_room(&s->rect, &s->rect_cap, (size_t)x, sizeof *s->rect);
		fo_array_room(&s->value, &s->value_cap, (size_t)x, s->size);
	}
	e.next = s->head[inst];
	s->rect[x] = e;
	memcpy(fo_rects_value(s, x), value, s->size);
	s->head[inst] = x;
}

static bool overlaps(const struct fo_rect *e, const struct fo_operand *a)
{
	return e->r0 < a->r0 + a->nr && a->r0 < e->r1 && e->c0 < a->c0 + a->nc && a->c0 < e->c1;
}

void fo_rects_erase(struct fo_rects *s, const struct fo_operand *a)
{
	const int inst = fo_rects_instance(s, a);
	unsigned char value[64];
	int kept = s->head[inst];
	s->head[inst] = -1;
	while (kept >= 0) {
		const struct fo_rect e = s->rect[kept];
		const int at = kept;
		kept = e.next;
		if (!overlaps(&e, a)) {
			s->rect[at].next = s->head[inst];
			s->head[inst] = at;
			continue;
		}
		memcpy(value, fo_rects_value(s, at), s->size);
		s->rect[at].next = s->unused;
		s->unused = at;
		const int32_t r0 = (int32_t)fo_max(e.r0, a->r0), r1 = (int32_t)fo_min(e.r1, a->r0 + a->nr);
		push(s, inst, (struct fo_rect){ .r0 = e.r0, .r1 = r0, .c0 = e.c0, .c1 = e.c1 }, value);
		push(s, inst, (struct fo_rect){ .r0 = r1, .r1 = e.r1, .c0 = e.c0, .c1 = e.c1 }, value);
		push(s, inst, (struct fo_rect){ .r0 = r0, .r1 = r1, .c0 = e.c0, .c1 = a->c0 }, value);
		push(s, inst, (struct fo_rect){ .r0 = r0, .r1 = r1, .c0 = a->c0 + a->nc, .c1 = e.c1 }, value);
	}
}

void fo_rects_forget(struct fo_rects *s, const struct fo_operand *a) { s->head[fo_rects_instance(s, a)] = -1; }

void fo_rects_write(struct fo_rects *s, const struct fo_operand *a, const void *value)
{
	fo_rects_erase(s, a);
	push(s, fo_rects_instance(s, a),
	     (struct fo_rect){ .r0 = a->r0, .r1 = a->r0 + a->nr, .c0 = a->c0, .c1 = a->c0 + a->nc }, value);
}

static int first_from(const struct fo_rects *s, int x, const struct fo_operand *a)
{
	while (x >= 0 && !overlaps(&s->rect[x], a))
		x = s->rect[x].next;
	return x;
}

int fo_rects_first(const struct fo_rects *s, const struct fo_operand *a)
{
	return first_from(s, s->head[fo_rects_instance(s, a)], a);
}

int fo_rects_next(const struct fo_rects *s, int x, const struct fo_operand *a)
{
	return first_from(s, s->rect[x].next, a);
}

int fo_rects_of(const struct fo_rects *s, int buf, int layer) { return s->head[s->base[buf] + layer]; }

int64_t fo_rects_shared(const struct fo_rect *e, const struct fo_operand *a)
{
	return overlaps(e, a) ? (fo_min(e->r1, a->r0 + a->nr) - fo_max(e->r0, a->r0)) *
					(fo_min(e->c1, a->c0 + a->nc) - fo_max(e->c0, a->c0))
			      : 0;
}
