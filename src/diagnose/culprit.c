/* The rank that makes the others wait, and the row of its ledger that exceeds theirs most. */
#include "diagnose/diagnose.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"

#include <stdlib.h>

/* The rows of a rank's own work. Waiting is not among them: it is the others' doing. */
static int own_rows(const struct fo_ledger *l, const char *name[], int64_t ns[])
{
	int n = 0;
	for (int i = 0; i < FO_K_COMPUTE_COUNT; i++, n++) {
		name[n] = fo_kernel_class_name[i];
		ns[n] = l->class_ns[i];
	}
	name[n] = "exposed_mem";
	ns[n++] = l->exposed_mem_ns;
	name[n] = "exposed_transfer";
	ns[n++] = l->exposed_transfer_ns;
	for (int i = 0; i < FO_IDLE_COUNT; i++, n++) {
		name[n] = fo_idle_name[i];
		ns[n] = l->idle_ns[i];
	}
	return n;
}
enum { OWN_ROWS = FO_K_COMPUTE_COUNT + 2 + FO_IDLE_COUNT };

static const struct fo_device_ledger *ledger_of(const struct fo_diagnosis *d, const struct fo_rank_wait *w)
{
	for (int i = 0; i < d->ranks; i++)
		for (int64_t k = 0; d->rank[i].rank == w->rank && k < d->rank[i].devices; k++)
			if (d->rank[i].device[k].device == w->device)
				return &d->rank[i].device[k];
	return NULL;
}

/* How much later its median step began than the same step did on the others: it was late before the step's first
 * operation. */
static int64_t late_begin(const struct fo_diagnosis *d, const struct fo_rank_wait *w,
			  const struct fo_device_ledger *own)
{
	int64_t at = fo_device_ledger_median(own), begin = 0;
	double *v = fo_xmalloc((size_t)d->waits * sizeof *v);
	size_t n = 0;
	for (int i = 0; at >= 0 && i < d->waits; i++) {
		const struct fo_device_ledger *l = ledger_of(d, &d->wait[i]);
		for (int64_t k = 0; l && k < l->steps; k++) {
			if (l->step[k].number != own->step[at].number || (own->step[at].number < 0 && k != at))
				continue;
			int r = 0;
			while (d->rank[r].rank != d->wait[i].rank)
				r++;
			int64_t b = fo_plus(l->step[k].l.begin_ns, d->set->offset_ns[r]);
			if (&d->wait[i] == w)
				begin = b;
			else
				v[n++] = (double)b;
			break;
		}
	}
	int64_t late = n ? begin - (int64_t)fo_stats_quantile(v, n, 0.5) : 0;
	free(v);
	return late;
}

void fo_diagnose_culprit(struct fo_diagnosis *d)
{
	int64_t all = 0;
	struct fo_culprit *c = &d->culprit;
	*c = (struct fo_culprit){ .at = -1 };
	for (int i = 0; i < d->waits; i++) {
		all += d->wait[i].caused_ns;
		if (d->wait[i].caused_ns > 0 && (c->at < 0 || d->wait[i].caused_ns > d->wait[c->at].caused_ns))
			c->at = i;
	}
	if (c->at < 0)
		return;
	c->share = (double)d->wait[c->at].caused_ns / (double)all;
	const struct fo_device_ledger *own = ledger_of(d, &d->wait[c->at]);
	double *v = fo_xmalloc((size_t)d->waits * OWN_ROWS * sizeof *v);
	const char *name[OWN_ROWS];
	int64_t ns[OWN_ROWS];
	size_t n = 0;
	for (int i = 0; i < d->waits; i++) {
		const struct fo_device_ledger *l = ledger_of(d, &d->wait[i]);
		if (!l || i == c->at)
			continue;
		own_rows(&l->median.l, name, ns);
		for (int k = 0; k < OWN_ROWS; k++)
			v[(size_t)k * (size_t)d->waits + n] = (double)ns[k];
		n++;
	}
	if (own)
		own_rows(&own->median.l, name, ns);
	for (int k = 0; own && n && k < OWN_ROWS; k++) {
		int64_t excess = ns[k] - (int64_t)fo_stats_quantile(&v[(size_t)k * (size_t)d->waits], n, 0.5);
		if (excess > c->excess_ns) {
			c->excess_ns = excess;
			c->row = name[k];
		}
	}
	int64_t late = own ? late_begin(d, &d->wait[c->at], own) : 0;
	if (late > c->excess_ns) {
		c->excess_ns = late;
		c->row = "late_begin";
	}
	free(v);
}
