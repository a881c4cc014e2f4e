/* All legal divisions on a grid of memory and MFU: a cell keeps of each kind the fastest. */
#include "plan/landscape.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

const char *const fo_plan_kind_name[FO_PLAN_KINDS] = {
	"data parallel alone", "tensor", "pipeline", "tensor and pipeline", "with context", "with experts",
};

enum fo_plan_kind fo_plan_kind_of(const struct fo_predict_layout *l)
{
	if (l->ep > 1)
		return FO_PLAN_KIND_EXPERT;
	if (l->cp > 1)
		return FO_PLAN_KIND_CONTEXT;
	if (l->pp > 1)
		return l->tp > 1 ? FO_PLAN_KIND_BOTH : FO_PLAN_KIND_PIPELINE;
	return l->tp > 1 ? FO_PLAN_KIND_TENSOR : FO_PLAN_KIND_DATA;
}

enum { CELLS = FO_PLAN_KINDS * 2 * FO_PLAN_COLUMNS * FO_PLAN_ROWS };
struct looking {
	const struct fo_plan_asked *a;
	struct fo_plan_landscape *o;
	struct fo_plan_place *cell; /* seconds 0: empty */
	double usable, mfu_most;
	struct fo_predict_shared shared;
};

static size_t place_on(double v, double most, size_t parts)
{
	double at = v / most * (double)parts;
	return at < (double)parts ? (size_t)at : parts - 1;
}

static bool look(void *ctx, const struct fo_predict_layout *l, int again)
{
	struct looking *k = ctx;
	struct fo_predict_step s;
	(void)again;
	if (!fo_predict_point_within(&k->a->base, l, &k->shared, INFINITY, &s) || !isfinite(s.seconds))
		return true;
	k->o->divisions++;
	if (s.bytes > k->o->memory_most) {
		k->o->beyond++;
		return true;
	}
	enum fo_plan_kind kind = fo_plan_kind_of(l);
	bool fits = fo_predict_upper_bytes(&s) <= k->usable;
	size_t at = ((size_t)kind * 2 + fits) * FO_PLAN_COLUMNS + place_on(s.bytes, k->o->memory_most, FO_PLAN_COLUMNS);
	struct fo_plan_place *c = &k->cell[at * FO_PLAN_ROWS + place_on(s.mfu_causal, k->mfu_most, FO_PLAN_ROWS)];
	if (c->seconds == 0 || s.seconds < c->seconds)
		*c = (struct fo_plan_place){ s.bytes, s.mfu_causal, s.seconds, kind, fits };
	return true;
}

void fo_plan_landscape_of(struct fo_plan_landscape *o, const struct fo_plan_asked *a, double memory_most,
			  double mfu_most)
{
	*o = (struct fo_plan_landscape){ .memory_most = memory_most };
	struct looking k = { .a = a,
			     .o = o,
			     .cell = fo_xmalloc(CELLS * sizeof *k.cell),
			     .usable = fo_plan_room(a),
			     .mfu_most = mfu_most };
	for (size_t i = 0; i < CELLS; i++)
		k.cell[i] = (struct fo_plan_place){ 0 };
	fo_plan_each(a, look, &k);
	for (size_t i = 0; i < CELLS; i++)
		if (k.cell[i].seconds > 0)
			k.cell[o->places++] = k.cell[i];
	o->place = k.cell;
}

void fo_plan_landscape_fini(struct fo_plan_landscape *o)
{
	free(o->place);
	*o = (struct fo_plan_landscape){ 0 };
}
