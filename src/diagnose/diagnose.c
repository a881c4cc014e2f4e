/* All parts of a diagnosis in their order. */
#include "diagnose/diagnose.h"

#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"

#include <stdlib.h>

/* The longest step of a rank's devices, without waiting for other ranks. */
static int64_t own_work(const struct fo_rank_ledger *r)
{
	int64_t most = 0;
	for (int64_t i = 0; i < r->devices; i++) {
		const struct fo_ledger *l = &r->device[i].median.l;
		if (l->span_ns - l->exposed_wait_ns > most)
			most = l->span_ns - l->exposed_wait_ns;
	}
	return most;
}

struct rank_work {
	int64_t ns;
	int at;
};
static int by_work(const void *a, const void *b)
{
	const struct rank_work *x = a, *y = b;
	return x->ns != y->ns ? fo_order(x->ns, y->ns) : x->at - y->at;
}

static void rank_by_work(struct fo_diagnosis *d)
{
	struct rank_work *w = fo_xmalloc((size_t)(d->ranks + 1) * sizeof *w);
	for (int i = 0; i < d->ranks; i++)
		w[i] = (struct rank_work){ own_work(&d->rank[i]), i };
	qsort(w, (size_t)d->ranks, sizeof *w, by_work);
	if (d->ranks) {
		const struct rank_work *most = &w[d->ranks - 1], *middle = &w[(d->ranks - 1) / 2];
		d->best = w[0].at;
		d->middle = middle->at;
		d->worst = most->at;
		d->step_skew = middle->ns > 0 ? (double)(most->ns - middle->ns) / (double)middle->ns : 0;
	}
	free(w);
}

fo_status fo_diagnose(struct fo_diagnosis *d, struct fo_trace_set *s, const struct fo_diagnose_options *o)
{
	struct fo_op_waits waits;
	*d = (struct fo_diagnosis){ .with = *o, .set = s };
	d->rank = fo_xmalloc((size_t)(s->count + 1) * sizeof *d->rank);
	d->ranks = s->count;
	fo_diagnose_collectives(d, &waits);
	fo_ledger_ranks(d->rank, s->rank, (size_t)s->count, &o->ledger, &waits);
	fo_op_waits_fini(&waits);
	fo_diagnose_culprit(d);
	rank_by_work(d);
	fo_own_run_of(d);
	fo_diagnose_pipeline(d);
	fo_status st = fo_diagnose_bridge(d);
	if (st != FO_OK) {
		fo_diagnosis_fini(d);
		return st;
	}
	fo_diagnose_findings(d);
	return FO_OK;
}

void fo_diagnosis_fini(struct fo_diagnosis *d)
{
	for (int i = 0; i < d->ranks; i++)
		fo_ledger_rank_fini(&d->rank[i]);
	free(d->rank);
	free(d->wait);
	free(d->pipeline.bubble);
	free(d->pipeline.stage);
	free(d->product);
	free(d->finding);
	free(d->unknown);
	*d = (struct fo_diagnosis){ 0 };
}
