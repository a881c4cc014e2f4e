/* What is known of rectangles of buffers while the instances of a program are followed in issue order: of each
 * rectangle one value, whose type is the caller's. */
#ifndef FO_PROGRAM_RECTS_H
#define FO_PROGRAM_RECTS_H

#include "program/program.h"

struct fo_rect {
	int32_t r0, r1, c0, c1;
	int32_t next; /* of its buffer's instance or of the free list; -1: none */
};
struct fo_rects {
	const struct fo_program *p;
	const struct fo_unrolled *u;
	int *base, *head; /* per buffer: its first instance; per instance: a rectangle, -1: none */
	struct fo_rect *rect;
	unsigned char *value; /* of each rectangle, `size` bytes */
	size_t size, rect_cap, value_cap;
	int n, unused;
	int id; /* the instance of the program that is visited: operands are its slot's */
};

void fo_rects_init(struct fo_rects *s, const struct fo_program *p, const struct fo_unrolled *u, size_t size);
void fo_rects_fini(struct fo_rects *s);

/* The buffer's instance that an operand names, a number. */
int fo_rects_instance(const struct fo_rects *s, const struct fo_operand *a);
/* What was known of the operand's rectangle, or of the whole instance, is forgotten. */
void fo_rects_erase(struct fo_rects *s, const struct fo_operand *a);
void fo_rects_forget(struct fo_rects *s, const struct fo_operand *a);
void fo_rects_write(struct fo_rects *s, const struct fo_operand *a, const void *value);
/* The first rectangle that has elements of the operand, and the next one after x; -1: there is none. Numbers hold until
 * something is written. */
int fo_rects_first(const struct fo_rects *s, const struct fo_operand *a);
int fo_rects_next(const struct fo_rects *s, int x, const struct fo_operand *a);
static inline void *fo_rects_value(const struct fo_rects *s, int x) { return s->value + (size_t)x * s->size; }
/* The first rectangle of a buffer's instance of this layer (0 where it has none), and of no micro-batch; the others
 * follow by `next`. */
int fo_rects_of(const struct fo_rects *s, int buf, int layer);
/* Elements that a rectangle and an operand have in common. */
int64_t fo_rects_shared(const struct fo_rect *e, const struct fo_operand *a);

#endif
