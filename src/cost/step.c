/* The times of all instances of a step. */
#include "base/mem.h"
#include "cost/cost.h"

#include <math.h>
#include <stdlib.h>

/* Shares of lost bytes that differ by less count as one: so many hundredths of the difference between an operation
 * whose bytes are in the caches and one whose are not. */
#define LOST_ALIKE 0.01

/* An operation of a block runs in few ways: it stores or adds, with this or that operand in the caches. */
struct way {
	uint32_t first, cold;
	double lost;
	struct fo_op_time time;
};
struct ways {
	struct way *way;
	size_t n, cap;
};

static struct fo_op_time time_of(struct ways *w, const struct fo_rates *r, const struct fo_program *p,
				 const struct fo_op *o, const struct fo_op_use *use)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->way[i].first == use->first && w->way[i].cold == use->cold &&
		    fabs(w->way[i].lost - use->lost) < LOST_ALIKE)
			return w->way[i].time;
	fo_array_room(&w->way, &w->cap, w->n, sizeof *w->way);
	w->way[w->n] = (struct way){ use->first, use->cold, use->lost, fo_rates_op(r, p, o, use) };
	return w->way[w->n++].time;
}

struct fo_op_time *fo_rates_step(const struct fo_rates *r, const struct fo_program *p, const struct fo_unrolled *u,
				 double pairs, const struct fo_step_when *when)
{
	struct fo_op_time *out = fo_xmalloc((size_t)(u->n + 1) * sizeof *out);
	uint32_t *cold = fo_reuse_cold(p, u, r->limits->cache_bytes);
	double *lost = when && r->caches.gaps ? fo_reuse_lost(p, u, &r->caches, when) : NULL;
	int *begin = fo_xmalloc((size_t)(p->nblock + 1) * sizeof *begin), ops = 0;
	for (int b = 0; b < p->nblock; b++) {
		begin[b] = ops;
		ops += p->block[b].n;
	}
	struct ways *ways = fo_xmalloc((size_t)(ops + 1) * sizeof *ways);
	for (int i = 0; i < u->n; i++) {
		const struct fo_op_use use = { u->first[i], cold[i], pairs, lost ? lost[i] : 0 };
		struct ways *w = &ways[begin[p->slot[u->slot[i]].block] + u->op[i]];
		out[i] = time_of(w, r, p, fo_instance_op(p, u, i), &use);
	}
	for (int i = 0; i < ops; i++)
		free(ways[i].way);
	free(ways);
	free(begin);
	free(cold);
	free(lost);
	return out;
}
