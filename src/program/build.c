/* Building blocks for lowering and passes. */
#include "program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int fo_buffer_add(struct fo_program *p, const char *name, int dtype, int home, int axes, int64_t rows, int row_axis,
		  int64_t cols, int col_axis)
{
	fo_array_room(&p->buf, &p->buf_cap, (size_t)p->nbuf, sizeof *p->buf);
	struct fo_buffer *b = &p->buf[p->nbuf];
	*b = (struct fo_buffer){ .dtype = (uint8_t)dtype,
				 .layout = FO_ROW_MAJOR,
				 .home = (uint8_t)home,
				 .axes = (uint8_t)axes,
				 .rows = rows,
				 .row_axis = (uint8_t)row_axis,
				 .cols = cols,
				 .col_axis = (uint8_t)col_axis };
	snprintf(b->name, sizeof b->name, "%s", name);
	return p->nbuf++;
}

int fo_buffer_like(struct fo_program *p, const char *name, const struct fo_buffer *like)
{
	const struct fo_buffer b = *like; /* it may stand in the list that grows here */
	int at = fo_buffer_add(p, name, b.dtype, b.home, b.axes, b.rows, b.row_axis, b.cols, b.col_axis);
	p->buf[at].tp = b.tp;
	p->buf[at].stage = b.stage;
	p->buf[at].row0 = b.row0;
	p->buf[at].whole = b.whole;
	return at;
}

int fo_buffer_find(const struct fo_program *p, const char *name)
{
	for (int i = 0; i < p->nbuf; i++)
		if (!strcmp(p->buf[i].name, name))
			return i;
	return -1;
}

int fo_block_add(struct fo_program *p, const char *name, int role, int unit)
{
	fo_array_room(&p->block, &p->block_cap, (size_t)p->nblock, sizeof *p->block);
	struct fo_block *b = &p->block[p->nblock];
	*b = (struct fo_block){ .role = (uint8_t)role, .unit = (uint8_t)unit };
	snprintf(b->name, sizeof b->name, "%s", name);
	return p->nblock++;
}

int fo_block_find(const struct fo_program *p, const char *name)
{
	for (int i = 0; i < p->nblock; i++)
		if (!strcmp(p->block[i].name, name))
			return i;
	return -1;
}

int fo_block_clone(struct fo_program *p, int from, const char *name)
{
	int to = fo_block_add(p, name, p->block[from].role, p->block[from].unit);
	for (int i = 0; i < p->block[from].n; i++)
		fo_op_clone(p, to, i, &p->block[from].op[i]);
	return to;
}

struct fo_op *fo_op_clone(struct fo_program *p, int block, int at, const struct fo_op *from)
{
	struct fo_op copy = *from; /* it may stand in the list that grows here */
	struct fo_op *o = fo_op_insert(p, block, at, copy.kind, copy.phase, copy.lane);
	copy.id = o->id;
	*o = copy;
	return o;
}

struct fo_op *fo_op_insert(struct fo_program *p, int block, int at, int kind, int phase, int lane)
{
	struct fo_block *b = &p->block[block];
	if (b->n == b->cap) {
		b->cap = b->cap * 2 + 16;
		b->op = fo_xrealloc(b->op, (size_t)b->cap * sizeof *b->op);
	}
	memmove(b->op + at + 1, b->op + at, (size_t)(b->n - at) * sizeof *b->op);
	b->n++;
	struct fo_op *o = &b->op[at];
	memset(o, 0, sizeof *o);
	o->id = o->origin = p->next_id++;
	o->kind = (uint8_t)kind;
	o->phase = (uint8_t)phase;
	o->lane = (uint8_t)lane;
	return o;
}

void fo_op_remove(struct fo_program *p, int block, int at)
{
	struct fo_block *b = &p->block[block];
	b->n--;
	memmove(b->op + at, b->op + at + 1, (size_t)(b->n - at) * sizeof *b->op);
}

void fo_op_arg(struct fo_program *p, struct fo_op *o, int buf, int dlayer, int access)
{
	o->arg[o->n++] = (struct fo_operand){ .buf = (int16_t)buf,
					      .dlayer = (int8_t)dlayer,
					      .access = (uint8_t)access,
					      .nr = (int32_t)p->buf[buf].rows,
					      .nc = (int32_t)p->buf[buf].cols };
}

void fo_slot_add(struct fo_program *p, int block, int layer, int mb)
{
	fo_array_room(&p->slot, &p->slot_cap, (size_t)p->nslot, sizeof *p->slot);
	p->slot[p->nslot++] = (struct fo_slot){ .block = (int16_t)block, .layer = (int16_t)layer, .mb = mb };
}

void fo_slot_insert(struct fo_program *p, int at, struct fo_slot s)
{
	fo_slot_add(p, s.block, s.layer, s.mb);
	memmove(p->slot + at + 1, p->slot + at, (size_t)(p->nslot - 1 - at) * sizeof *p->slot);
	p->slot[at] = s;
}

int64_t fo_param_rows(const struct fo_param *q, const struct fo_buffer *b, int64_t *from)
{
	int64_t begin = q->r0 > b->row0 ? q->r0 : b->row0, end = q->r0 + q->nr, most = b->row0 + b->rows;
	end = end < most ? end : most;
	*from = begin - q->r0;
	return end > begin ? end - begin : 0;
}

int64_t fo_buffer_bytes(const struct fo_buffer *b) { return b->rows * b->cols * (int64_t)fo_dtype_bytes(b->dtype); }

void fo_program_fini(struct fo_program *p)
{
	for (int i = 0; i < p->nblock; i++)
		free(p->block[i].op);
	free(p->buf);
	free(p->block);
	free(p->slot);
	free(p->param);
	*p = (struct fo_program){ 0 };
}
