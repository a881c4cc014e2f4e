#include "support/outcome.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fo_status outcome_keep(void *ctx, const struct fo_store_tensor *t)
{
	struct outcome *o = ctx;
	if (o->offset && t->which != 2)
		return FO_OK;
	assert_true(o->n < (int)(sizeof o->item / sizeof *o->item));
	struct outcome_item *i = &o->item[o->n++];
	*i = (struct outcome_item){ .which = o->offset ? 4 : t->which, .n = t->rows * t->cols };
	snprintf(i->name, sizeof i->name, "%s", t->name);
	i->v = malloc((size_t)i->n * sizeof *i->v);
	assert_non_null(i->v);
	for (int64_t r = 0; r < t->rows; r++)
		for (int64_t c = 0; c < t->cols; c++)
			i->v[r * t->cols + c] = step_get(t->data, t->dtype, r * t->ld + c);
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
	double d = 0, n = 0, total = 0;
	assert_int_equal(a->n, b->n);
	for (int64_t i = 0; i < a->n; i++) {
		d += (a->v[i] - b->v[i]) * (a->v[i] - b->v[i]);
		n += b->v[i] * b->v[i];
	}
	for (int k = 0; k < all->n; k++)
		for (int64_t i = 0; all->item[k].which == b->which && i < all->item[k].n; i++)
			total += all->item[k].v[i] * all->item[k].v[i];
	return sqrt(d / fmax(n, 1e-6 * total));
}
