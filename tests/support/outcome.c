#include "support/outcome.h"
#include "support/must.h"

#define XXH_INLINE_ALL
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

fo_status outcome_keep(void *ctx, const struct fo_store_tensor *t)
{
	struct outcome *o = ctx;
	if (!t->rows || (o->offset ? t->which != 2 : t->which > 3)) /* histories of fp8: only such programs have them */
		return FO_OK;
	assert_true(o->n < (int)(sizeof o->item / sizeof *o->item));
	struct outcome_item *i = &o->item[o->n++];
	*i = (struct outcome_item){ .which = o->offset ? 4 : t->which,
				    .part = t->dtype == FO_I16,
				    .n = t->rows * t->cols,
				    .row = t->row,
				    .whole = t->whole,
				    .cols = t->cols,
				    .col = t->col,
				    .whole_cols = t->whole_cols };
	snprintf(i->name, sizeof i->name, "%s", t->name);
	i->v = malloc((size_t)i->n * sizeof *i->v);
	assert_non_null(i->v);
	for (int64_t r = 0; r < t->rows; r++)
		for (int64_t c = 0; c < t->cols; c++) {
			double v = step_get(t->data, t->dtype, r * t->ld + c);
			i->v[r * t->cols + c] = v;
			o->squares[i->which] += v * v;
		}
	return FO_OK;
}

void outcome_step(struct outcome *o, struct step_rig *r, int s)
{
	o->loss[s] = r->loss[0];
	o->norm[s] = r->hyper[FO_HYPER_LAST_NORM] = r->scale[1];
	if (s)
		return;
	o->offset = 4;
	must(fo_store_visit(r->store, &r->program, outcome_keep, o));
	o->offset = 0;
}

void outcome_end(struct outcome *o, struct step_rig *r)
{
	must(fo_store_visit(r->store, &r->program, outcome_keep, o));
}

void outcome_free(struct outcome *o)
{
	for (int i = 0; i < o->n; i++)
		free(o->item[i].v);
}

uint64_t outcome_hash(const struct outcome *o)
{
	uint64_t hash = (uint64_t)o->n;
	for (int i = 0; i < o->n; i++)
		hash = XXH3_64bits_withSeed(o->item[i].v, (size_t)o->item[i].n * sizeof *o->item[i].v, hash);
	return hash;
}

static struct outcome_item *item_of(struct outcome *o, const struct outcome_item *like)
{
	for (int i = 0; i < o->n; i++)
		if (o->item[i].which == like->which && !strcmp(o->item[i].name, like->name))
			return &o->item[i];
	assert_true(o->n < (int)(sizeof o->item / sizeof *o->item));
	struct outcome_item *x = &o->item[o->n++];
	*x = *like;
	x->row = x->col = 0;
	x->cols = x->whole_cols;
	x->n = x->whole * x->cols;
	x->v = malloc((size_t)x->n * sizeof *x->v);
	assert_non_null(x->v);
	for (int64_t i = 0; i < x->n; i++)
		x->v[i] = NAN; /* nobody has brought it */
	return x;
}

void outcome_join(struct outcome *o, const struct outcome *more, bool again)
{
	memcpy(o->loss, more->loss, sizeof o->loss);
	memcpy(o->norm, more->norm, sizeof o->norm);
	for (int i = 0; i < more->n; i++) {
		const struct outcome_item *m = &more->item[i];
		struct outcome_item *x = item_of(o, m);
		assert_true(m->col + m->cols <= x->cols && m->row + m->n / m->cols <= x->whole);
		for (int64_t k = 0; k < m->n; k++) {
			double *v = &x->v[(m->row + k / m->cols) * x->cols + m->col + k % m->cols];
			if (!isnan(*v) && ((m->n < x->n && !again) || memcmp(v, &m->v[k], sizeof *v) != 0))
				fail_msg("two ranks have row %lld of '%s' (%d)", (long long)(m->row + k / m->cols),
					 x->name, x->which);
			*v = m->v[k];
		}
	}
}

const struct outcome_item *outcome_find(const struct outcome *o, const struct outcome_item *like)
{
	for (int i = 0; i < o->n; i++)
		if (o->item[i].which == like->which && !strcmp(o->item[i].name, like->name))
			return &o->item[i];
	fail_msg("no tensor '%s' (%d)", like->name, like->which);
	return NULL;
}

double outcome_distance(const struct outcome_item *a, const struct outcome_item *b, const struct outcome *all)
{
	double d = 0, n = 0;
	assert_int_equal(a->n, b->n);
	for (int64_t i = 0; i < a->n; i++) {
		d += (a->v[i] - b->v[i]) * (a->v[i] - b->v[i]);
		n += b->v[i] * b->v[i];
	}
	return sqrt(d / fmax(n, 1e-6 * all->squares[b->which]));
}

void outcome_compare(const char *label, const struct outcome *got, const struct outcome *plain,
		     const struct outcome *truth, double times, double eps)
{
	static const char *const kind[] = { "weight", "master", "m", "v", "gradient" };
	for (int s = 0; s < OUTCOME_STEPS; s++) {
		double e = fabs(got->loss[s] / truth->loss[s] - 1), p = fabs(plain->loss[s] / truth->loss[s] - 1);
		if (!(e <= times * p + eps))
			fail_msg("%s: loss of step %d is %.17g, plain %.17g, fp64 %.17g", label, s, got->loss[s],
				 plain->loss[s], truth->loss[s]);
		e = fabs(got->norm[s] / truth->norm[s] - 1), p = fabs(plain->norm[s] / truth->norm[s] - 1);
		if (!(e <= times * p + eps))
			fail_msg("%s: gradient norm of step %d is %.17g, plain %.17g, fp64 %.17g", label, s,
				 got->norm[s], plain->norm[s], truth->norm[s]);
	}
	assert_int_equal(got->n, plain->n);
	for (int i = 0; i < got->n; i++) {
		const struct outcome_item *g = &got->item[i], *p = outcome_find(plain, g);
		struct outcome_item like = *g;
		if (g->part)
			continue;
		if (g->which == 1) /* fp64 has no master copies: its weights are */
			like.which = 0;
		const struct outcome_item *t = outcome_find(truth, &like);
		double e = outcome_distance(g, t, truth), have = outcome_distance(p, t, truth);
		if (!(e <= times * have + eps))
			fail_msg("%s: %s '%s' is off by %.3g, plain by %.3g", label, kind[g->which], g->name, e, have);
	}
}
