/* Which tokens rows are, on ranks of a tp group: rows that meet in an operation must be of the same tokens.
 *
 * A rank has all tokens of a micro-batch or its own ones (sequence parallel), and these are one stretch or, where
 * communication travels in pieces, its part of each piece. So a gather of the wrong piece, or a scatter into the wrong
 * rows, has the right shape, the right type and the right number of ranks. Here the tokens of the rows of every
 * activation are followed through the instances in issue order, from the batch on. Operands with one letter of ops.def
 * for rows of tokens must have the same tokens there. Of a gather it is taken that the other ranks' rows lie as far on
 * as ranks lie apart: each rank's own rows show it, when its own program is checked. What comes from elsewhere (another
 * stage of a pipeline, an exchange of tokens for heads) is not known, and fits whatever it meets. */
#include "program/roles.h"

#include "base/count.h"
#include "program/rects.h"

#include <stdlib.h>
#include <string.h>

enum { RUNS_MOST = 4 * FO_TP_ASYNC_MOST, UNKNOWN = INT32_MIN };
struct run {
	int32_t row, n, token; /* row: of the operand */
};
struct tokens {
	int n; /* runs; 0: it is not known */
	struct run run[RUNS_MOST];
};
struct follow {
	const struct fo_program *p;
	const struct fo_unrolled *u;
	struct fo_rects known; /* int32_t: the token of row r is r + this; or UNKNOWN */
	struct tokens *of;     /* by letter of ops.def */
};

static bool has_tokens(const struct follow *f, const struct fo_operand *a)
{
	return f->p->buf[a->buf].row_axis == FO_AXIS_TOKENS;
}

static fo_status wrong(const struct follow *f, const struct fo_operand *a, const char *what)
{
	char where[192];
	fo_roles_where(f->p, f->u, f->p->rank, f->known.id, f->p->buf[a->buf].name, where, sizeof where);
	return fo_fail(FO_EBUG, "%s, rows %d to %d: %s", where, a->r0, a->r0 + a->nr - 1, what);
}

/* ---- what is known of an operand ---- */

static int by_row(const void *x, const void *y)
{
	const struct run *a = x, *b = y;
	return FO_ORDER_BY(fo_order(a->row, b->row), fo_order(a->n, b->n));
}

/* Joins runs that go on, in the order of rows. False: two columns of one row are of unlike tokens. */
static bool join_runs(struct tokens *t)
{
	int n = 0;
	qsort(t->run, (size_t)t->n, sizeof *t->run, by_row);
	for (int i = 0; i < t->n; i++) {
		const struct run e = t->run[i];
		struct run *last = n ? &t->run[n - 1] : NULL;
		if (!last || e.row > last->row + last->n ||
		    (e.row == last->row + last->n && e.token - e.row != last->token - last->row)) {
			t->run[n++] = e;
			continue;
		}
		if (e.token - e.row != last->token - last->row)
			return false;
		last->n = (int32_t)fo_max(last->n, e.row + e.n - last->row);
	}
	t->n = n;
	return true;
}

static fo_status read_tokens(const struct follow *f, const struct fo_operand *a, struct tokens *out)
{
	int64_t seen = 0;
	bool unknown = false;
	out->n = 0;
	for (int x = fo_rects_first(&f->known, a); x >= 0; x = fo_rects_next(&f->known, x, a)) {
		const struct fo_rect *e = &f->known.rect[x];
		const int32_t from = (int32_t)fo_max(e->r0, a->r0), to = (int32_t)fo_min(e->r1, a->r0 + a->nr),
			      ahead = *(const int32_t *)fo_rects_value(&f->known, x);
		seen += fo_rects_shared(e, a);
		unknown |= ahead == UNKNOWN || out->n == RUNS_MOST;
		if (!unknown)
			out->run[out->n++] = (struct run){ from - a->r0, to - from, from + ahead };
	}
	if (!seen)
		return FO_OK;
	if (seen < (int64_t)a->nr * a->nc)
		return wrong(f, a, "some of it was not written");
	if (unknown) {
		out->n = 0;
		return FO_OK;
	}
	return join_runs(out) ? FO_OK : wrong(f, a, "its columns are of unlike tokens");
}

static void write_tokens(struct follow *f, const struct fo_operand *a, const struct tokens *t)
{
	if (!t->n)
		fo_rects_write(&f->known, a, &(int32_t){ UNKNOWN });
	for (int i = 0; i < t->n; i++) {
		struct fo_operand part = *a;
		part.r0 += t->run[i].row;
		part.nr = t->run[i].n;
		const int32_t ahead = t->run[i].token - part.r0;
		fo_rects_write(&f->known, &part, &ahead);
	}
}

static int32_t rows_of(const struct tokens *t) { return t->n ? t->run[t->n - 1].row + t->run[t->n - 1].n : 0; }

static bool same(const struct tokens *a, const struct tokens *b)
{
	bool alike = a->n == b->n;
	for (int i = 0; alike && i < a->n; i++)
		alike = !memcmp(&a->run[i], &b->run[i], sizeof a->run[i]);
	return alike;
}

/* ---- operations ---- */

/* The letter of an operand's rows of tokens; ANY stands for T. */
static int letter_of(const struct fo_op *o, int i)
{
	int row, col;
	fo_op_dims(o, i, &row, &col);
	return row == FO_DIM_ANY ? FO_DIM_T : row;
}

static fo_status read_all(struct follow *f, const struct fo_op *o)
{
	struct tokens t;
	for (int l = 0; l < FO_DIM_COUNT; l++)
		f->of[l].n = 0;
	for (int i = 0; i < o->n; i++) {
		const struct fo_operand *a = &o->arg[i];
		if (!fo_access_reads(a->access) || !has_tokens(f, a))
			continue;
		FO_TRY(read_tokens(f, a, &t));
		struct tokens *want = &f->of[letter_of(o, i)];
		if (t.n && want->n && rows_of(&t) == rows_of(want) && !same(&t, want))
			return wrong(f, a, "its rows are of other tokens than those that they meet");
		if (t.n && !want->n)
			*want = t;
	}
	return FO_OK;
}

static fo_status visit(struct follow *f, const struct fo_op *o)
{
	FO_TRY(read_all(f, o));
	for (int i = 0; i < o->n; i++) {
		const struct fo_operand *a = &o->arg[i];
		if (!fo_access_writes(a->access) || !has_tokens(f, a))
			continue;
		struct tokens *t = &f->of[letter_of(o, i)];
		if (fo_op_info(o->kind)->cls == FO_CLASS_HOST && a->nr == f->p->tokens)
			*t = (struct tokens){ 1, { { 0, a->nr, 0 } } };
		else if (rows_of(t) != a->nr)
			t->n = 0;
		write_tokens(f, a, t);
	}
	return FO_OK;
}

/* Rows that all ranks have of what each has `n` of: rank q's lie q - place times n tokens on. */
static void gather(struct tokens *t, int32_t n, int32_t place, int32_t ranks)
{
	const int own = t->n;
	if (own * ranks > RUNS_MOST || rows_of(t) != n) {
		t->n = 0;
		return;
	}
	for (int q = ranks - 1; q >= 0; q--)
		for (int i = 0; i < own; i++) {
			const struct run e = t->run[i];
			t->run[q * own + i] = (struct run){ e.row + q * n, e.n, e.token + (q - place) * n };
		}
	t->n = own * ranks;
	(void)join_runs(t); /* one column of runs */
}

static fo_status visit_comm(struct follow *f, const struct fo_op *o)
{
	const enum fo_wire wire = fo_op_info(o->kind)->wire;
	const struct fo_operand *from = &o->arg[0], *to = &o->arg[o->n - 1];
	int32_t place;
	const int32_t ranks = fo_mesh_group(&f->p->run.mesh, (enum fo_group)o->group, &place, NULL);
	const bool moves = wire == FO_WIRE_SHIFT ||
			   (o->group == FO_GROUP_TP && (wire == FO_WIRE_ALL_GATHER || wire == FO_WIRE_REDUCE_SCATTER));
	struct tokens t = { 0 };
	if (!has_tokens(f, to) || wire == FO_WIRE_ALL_REDUCE || wire == FO_WIRE_BROADCAST || wire == FO_WIRE_SEND)
		return FO_OK;
	if (!moves) {
		write_tokens(f, to, &t);
		return FO_OK;
	}
	struct fo_operand x = *from;
	if (wire == FO_WIRE_REDUCE_SCATTER) {
		int64_t begin;
		x.nr = (int32_t)fo_mesh_part(from->nr, place, ranks, &begin);
		x.r0 += (int32_t)begin;
	}
	FO_TRY(read_tokens(f, &x, &t));
	if (wire == FO_WIRE_ALL_GATHER && t.n)
		gather(&t, from->nr, place, ranks);
	write_tokens(f, to, &t);
	return FO_OK;
}

fo_status fo_rows_verify(const struct fo_program *p, const struct fo_unrolled *u)
{
	struct follow f = { .p = p, .u = u };
	fo_status st = FO_OK;
	if (fo_mesh_tp(&p->run.mesh) < 2 || p->run.pass.tp != FO_TP_SEQUENCE)
		return FO_OK;
	f.of = fo_xmalloc(FO_DIM_COUNT * sizeof *f.of);
	fo_rects_init(&f.known, p, u, sizeof(int32_t));
	for (int i = 0; i < u->n && st == FO_OK; i++) {
		const struct fo_op *o = fo_instance_op(p, u, i);
		f.known.id = i;
		for (int k = 0; k < o->n; k++)
			if (o->arg[k].access == FO_DEF && has_tokens(&f, &o->arg[k]))
				fo_rects_forget(&f.known, &o->arg[k]);
		st = fo_op_info(o->kind)->cls == FO_CLASS_COMM ? visit_comm(&f, o) : visit(&f, o);
	}
	fo_rects_fini(&f.known);
	free(f.of);
	return st;
}
