/* The one device and the one step that figures are of. */
#include "diagnose/findings_int.h"

#include "base/count.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* A sum over steps to one step. The leaves are divided and their sums built anew, so that parts still add up exactly.
 */
static void divide(struct fo_ledger *l, int64_t n)
{
	int64_t figure[FO_LEDGER_FIGURES];
	struct fo_ledger sum = *l;
	memcpy(figure, l, sizeof figure);
	for (size_t i = 0; i < FO_LEDGER_FIGURES; i++)
		figure[i] /= n;
	memcpy(l, figure, sizeof *l);
	l->begin_ns = sum.begin_ns;
	l->end_ns = sum.end_ns;
	l->forward_ns = sum.forward_ns < 0 ? -1 : l->forward_ns;
	l->comp_ns = l->exposed_mem_ns = l->idle_total_ns = 0;
	for (int i = 0; i < FO_K_COMPUTE_COUNT; i++)
		l->comp_ns += l->class_ns[i];
	for (int i = 0; i < FO_COPY_COUNT; i++)
		l->exposed_mem_ns += l->copy_ns[i];
	for (int i = 0; i < FO_IDLE_COUNT; i++)
		l->idle_total_ns += l->idle_ns[i];
	l->exposed_comm_ns = l->exposed_wait_ns + l->exposed_transfer_ns + l->exposed_comm_unknown_ns;
	l->busy_ns = l->comp_ns + l->exposed_comm_ns + l->exposed_mem_ns;
	l->span_ns = l->busy_ns + l->idle_total_ns;
}

void fo_shown_step_of(const struct fo_device_ledger *v, struct fo_subject *out)
{
	const struct fo_ledger *m = &v->median.l;
	*out = (struct fo_subject){ .l = *m,
				    .steps = 1,
				    .begin_ns = m->begin_ns,
				    .end_ns = m->end_ns,
				    .launch_busy_ns = v->median.launch_busy_ns,
				    .loader_ns = v->median.loader_ns,
				    .loader_busy_ns = v->median.loader_busy_ns };
	if (v->steps < 2 || (double)v->total.span_ns <= FO_STEPS_UNEVEN * (double)v->steps * (double)m->span_ns)
		return;
	out->l = v->total;
	out->steps = v->steps;
	out->begin_ns = v->step[0].l.begin_ns;
	out->end_ns = v->step[v->steps - 1].l.end_ns;
	divide(&out->l, v->steps);
	int64_t busy = 0, loader = 0, both = 0;
	for (int64_t i = 0; i < v->steps; i++) {
		busy = busy < 0 || v->step[i].launch_busy_ns < 0 ? -1 : busy + v->step[i].launch_busy_ns;
		loader += v->step[i].loader_ns;
		both += v->step[i].loader_busy_ns;
	}
	out->launch_busy_ns = busy < 0 ? -1 : busy / v->steps;
	out->loader_ns = loader / v->steps;
	out->loader_busy_ns = both / v->steps;
}

char *fo_shown_step_words(char buf[48], const struct fo_device_ledger *v)
{
	struct fo_subject s;
	fo_shown_step_of(v, &s);
	if (v->from == FO_WINDOW_WHOLE)
		snprintf(buf, 48, "whole trace");
	else if (s.steps > 1)
		snprintf(buf, 48, "mean of %lld steps", (long long)s.steps);
	else if (v->steps > 1)
		snprintf(buf, 48, "median step (%lld)", (long long)v->median.number);
	else
		snprintf(buf, 48, "step %lld", (long long)v->median.number);
	return buf;
}

char *fo_window_words(char buf[160], const struct fo_diagnosis *d)
{
	const struct fo_device_ledger *v = fo_shown_device(d, d->worst);
	struct fo_subject s;
	char step[48], ns[24];
	buf[0] = '\0';
	if (!v)
		return buf;
	fo_shown_step_of(v, &s);
	fo_ns_text(ns, s.l.span_ns);
	fo_shown_step_words(step, v);
	if (v->from == FO_WINDOW_WHOLE && v->lead_ns)
		snprintf(buf, 160, "the whole trace from the host's first work to the last GPU operation, %s", ns);
	else if (v->from == FO_WINDOW_WHOLE && v->start_ns)
		snprintf(buf, 160, "the whole trace after a start that is left out, %s", ns);
	else if (v->from == FO_WINDOW_WHOLE)
		snprintf(buf, 160, "the whole trace from the first GPU operation to the last, %s", ns);
	else if (v->from == FO_WINDOW_HOST_STEP)
		snprintf(buf, 160, "%s as marked on the host, %s", step, ns);
	else
		snprintf(buf, 160, "%s%s, %s", s.steps == 1 && v->steps == 1 ? "" : "the ", step, ns);
	return buf;
}

int64_t fo_step_at(const struct fo_device_ledger *d, int64_t ns)
{
	int64_t i = FO_FIRST(k, d->steps, d->step[k].l.end_ns > ns);
	return i < d->steps && d->step[i].l.begin_ns <= ns ? i : -1;
}

const struct fo_device_ledger *fo_shown_device(const struct fo_diagnosis *d, int rank)
{
	if (rank < 0 || rank >= d->ranks)
		return NULL;
	const struct fo_rank_ledger *r = &d->rank[rank];
	const struct fo_device_ledger *best = NULL;
	int64_t fullest = 0;
	for (int64_t i = 0; i < r->devices; i++)
		fullest = fo_max(r->device[i].total.ops, fullest);
	for (int64_t i = 0; i < r->devices; i++) {
		const struct fo_device_ledger *v = &r->device[i];
		if (v->total.ops == 0 || v->total.ops < fullest / 10)
			continue;
		if (!best || v->median.l.span_ns - v->median.l.exposed_wait_ns >
				     best->median.l.span_ns - best->median.l.exposed_wait_ns)
			best = v;
	}
	return best;
}

bool fo_subject_of(const struct fo_diagnosis *d, struct fo_subject *out)
{
	const struct fo_device_ledger *v = fo_shown_device(d, d->worst);
	if (!v)
		return false;
	fo_subject_device(out, d, &d->rank[d->worst], v);
	return true;
}

void fo_subject_device(struct fo_subject *out, const struct fo_diagnosis *d, const struct fo_rank_ledger *r,
		       const struct fo_device_ledger *v)
{
	fo_shown_step_of(v, out);
	out->d = d;
	out->rank = r;
	out->device = v;
	out->t = r->trace;
	out->id = v->device;
}

int64_t fo_class_time(const struct fo_ledger *l, uint64_t classes)
{
	int64_t ns = 0;
	for (int i = 0; i < FO_K_COMPUTE_COUNT; i++)
		ns += classes >> i & 1 ? l->class_ns[i] : 0;
	return ns;
}
