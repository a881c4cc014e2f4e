/* Edits that several passes need: merging buffers, joining operations, moving them. */
#include "pass/pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAME = 1, ROWS = 2, COLS = 4 }; /* how a second rectangle lies to a first: the same, below it, to its right */

static int relation(const struct fo_operand *a, const struct fo_operand *b)
{
	if (a->buf != b->buf || a->dlayer != b->dlayer)
		return 0;
	bool rows = a->r0 == b->r0 && a->nr == b->nr, cols = a->c0 == b->c0 && a->nc == b->nc;
	if (rows && cols)
		return SAME;
	if (cols && a->r0 + a->nr == b->r0)
		return ROWS;
	return rows && a->c0 + a->nc == b->c0 ? COLS : 0;
}

bool fo_edit_same(const struct fo_operand *a, const struct fo_operand *b) { return relation(a, b) == SAME; }

static bool starts_or_ends(const struct fo_operand *a) { return a->access == FO_DEF || a->access == FO_TAKE; }

/* A DEF or TAKE concerns the whole generation, not only its rectangle. */
bool fo_edit_conflict(const struct fo_op *x, const struct fo_op *y)
{
	for (int i = 0; i < x->n; i++)
		for (int k = 0; k < y->n; k++) {
			const struct fo_operand *a = &x->arg[i], *b = &y->arg[k];
			bool same = a->buf == b->buf && a->dlayer == b->dlayer;
			if (same && (starts_or_ends(a) || starts_or_ends(b)))
				return true;
			if (fo_operands_overlap(a, b) && (fo_access_writes(a->access) || fo_access_writes(b->access)))
				return true;
		}
	return false;
}

bool fo_edit_can_move(const struct fo_program *p, int block, int from, int to)
{
	const struct fo_op *o = p->block[block].op;
	int low = to < from ? to : from, high = to < from ? from : to;
	for (int i = low; i <= high; i++)
		if (i != from && fo_edit_conflict(&o[i], &o[from]))
			return false;
	return true;
}

bool fo_edit_beside(const struct fo_op *x, const struct fo_op *y)
{
	return x->phase == y->phase && x->lane == y->lane && x->group == y->group;
}

bool fo_edit_fuse(struct fo_program *p, int block, int i, int k, const struct fo_op *fused)
{
	struct fo_op *o = p->block[block].op;
	if (k == i + 1 || fo_edit_can_move(p, block, k, i + 1)) {
		o[i] = *fused;
		fo_op_remove(p, block, k);
		return true;
	}
	if (!fo_edit_can_move(p, block, i, k - 1))
		return false;
	o[k] = *fused;
	fo_op_remove(p, block, i);
	return true;
}

int fo_edit_split(struct fo_program *p, int block, const char *suffix, const bool *apart)
{
	int own = -1;
	for (int s = 0; s < p->nslot; s++) {
		char name[sizeof p->block->name];
		if (p->slot[s].block != block || !apart[s])
			continue;
		snprintf(name, sizeof name, "%.16s.%s", p->block[block].name, suffix);
		own = own < 0 ? fo_block_clone(p, block, name) : own;
		p->slot[s].block = (int16_t)own;
	}
	return own;
}

void fo_edit_put_before(struct fo_program *p, int block, int of)
{
	int s = 0;
	while (p->slot[s].block != of)
		s++;
	fo_slot_insert(p, s, (struct fo_slot){ .block = (int16_t)block });
}

/* ---- one buffer for several ---- */

static void widen_operands(struct fo_program *p, int merged, const int *ids, const int32_t *offset, int n, bool by_rows)
{
	bool persists = fo_home_persists(p->buf[merged].home);
	for (int b = 0; b < p->nblock; b++) {
		bool defined = false;
		for (int i = 0; i < p->block[b].n; i++)
			for (int k = 0; k < p->block[b].op[i].n; k++) {
				struct fo_operand *a = &p->block[b].op[i].arg[k];
				int x = 0;
				while (x < n && ids[x] != a->buf)
					x++;
				if (x == n)
					continue;
				a->buf = (int16_t)merged;
				*(by_rows ? &a->r0 : &a->c0) += offset[x];
				if (a->access != FO_DEF || persists)
					continue;
				if (defined)
					a->access = FO_PART;
				defined = true;
			}
	}
}

int fo_edit_concat(struct fo_program *p, const char *name, const int *ids, int n, bool by_rows)
{
	int32_t offset[8], total = 0;
	for (int i = 0; i < n; i++) {
		const struct fo_buffer *b = &p->buf[ids[i]];
		offset[i] = total;
		total += (int32_t)(by_rows ? b->rows : b->cols);
	}
	const struct fo_buffer b = p->buf[ids[0]];
	int merged = fo_buffer_like(p, name, &b);
	*(by_rows ? &p->buf[merged].rows : &p->buf[merged].cols) = total;
	widen_operands(p, merged, ids, offset, n, by_rows);
	for (int x = 0; x < n; x++)
		for (struct fo_param *q = p->param; q < p->param + p->nparam; q++) {
			if (q->weight == ids[x]) /* the rectangle is the same in all of its buffers */
				*(by_rows ? &q->r0 : &q->c0) += offset[x];
			for (int k = 0; k < FO_PARAM_BUFFERS; k++)
				q->buf[k] = (int16_t)(q->buf[k] == ids[x] ? merged : q->buf[k]);
		}
	return merged;
}

void fo_edit_sweep(struct fo_program *p)
{
	int *to = fo_xmalloc((size_t)(p->nbuf + 1) * sizeof *to), n = 0;
	memset(to, -1, (size_t)p->nbuf * sizeof *to);
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			for (int k = 0; k < p->block[b].op[i].n; k++)
				to[p->block[b].op[i].arg[k].buf] = 0;
	for (int q = 0; q < p->nparam; q++)
		for (int k = 0; k < FO_PARAM_BUFFERS; k++)
			if (p->param[q].buf[k] >= 0)
				to[p->param[q].buf[k]] = 0;
	for (int i = 0; i < p->nbuf; i++)
		if (to[i] >= 0) {
			p->buf[n] = p->buf[i];
			to[i] = n++;
		}
	p->nbuf = n;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			for (int k = 0; k < p->block[b].op[i].n; k++) {
				int16_t *buf = &p->block[b].op[i].arg[k].buf;
				*buf = (int16_t)to[*buf];
			}
	for (int q = 0; q < p->nparam; q++)
		for (int k = 0; k < FO_PARAM_BUFFERS; k++)
			if (p->param[q].buf[k] >= 0)
				p->param[q].buf[k] = (int16_t)to[p->param[q].buf[k]];
	free(to);
}

void fo_edit_sweep_blocks(struct fo_program *p)
{
	int *to = fo_xmalloc((size_t)(p->nblock + 1) * sizeof *to), n = 0;
	for (int b = 0; b < p->nblock; b++) {
		to[b] = -1;
		if (!fo_block_slots(p, b)) {
			free(p->block[b].op);
			continue;
		}
		p->block[n] = p->block[b];
		to[b] = n++;
	}
	p->nblock = n;
	for (int s = 0; s < p->nslot; s++)
		p->slot[s].block = (int16_t)to[p->slot[s].block];
	free(to);
}

/* ---- joining ---- */

/* Whether y continues x along letter `dim` of ops.def: every operand that has the letter lies next to its partner
 * there, all others are the same. A matmul that sums over the letter must add to its result. */
static bool continues(const struct fo_op *x, const struct fo_op *y, const int *r, int dim)
{
	if (dim == FO_DIM_K && y->arg[FO_MATMUL_C].access != FO_ACC)
		return false;
	for (int i = 0; i < x->n; i++) {
		int rows, cols, want = SAME;
		fo_op_dims(x, i, &rows, &cols);
		if (rows == dim)
			want = ROWS;
		else if (cols == dim)
			want = COLS;
		if (r[i] != want)
			return false;
	}
	return true;
}

static bool joins(const struct fo_op *x, const struct fo_op *y)
{
	int r[FO_MAX_OPERANDS];
	if (x->kind != y->kind || !fo_edit_beside(x, y) || x->n != y->n ||
	    memcmp(&x->attr, &y->attr, sizeof x->attr) != 0)
		return false;
	for (int i = 0; i < x->n; i++)
		r[i] = relation(&x->arg[i], &y->arg[i]);
	for (int dim = FO_DIM_FREE; dim < FO_DIM_COUNT; dim++)
		if (fo_op_info(x->kind)->joins & 1u << dim && continues(x, y, r, dim))
			return true;
	return false;
}

static void join(struct fo_op *x, const struct fo_op *y)
{
	for (int i = 0; i < x->n; i++) {
		int r = relation(&x->arg[i], &y->arg[i]);
		if (r == ROWS)
			x->arg[i].nr += y->arg[i].nr;
		else if (r == COLS)
			x->arg[i].nc += y->arg[i].nc;
	}
}

void fo_edit_join(struct fo_program *p)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			for (int k = i + 1; k < p->block[b].n; k++) {
				struct fo_op *o = p->block[b].op;
				if (!joins(&o[i], &o[k]) || !fo_edit_can_move(p, b, k, i + 1))
					continue;
				join(&o[i], &o[k]);
				fo_op_remove(p, b, k--);
			}
}
