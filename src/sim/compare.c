#include "sim/compare.h"
#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

void fo_sim_table_init(struct fo_sim_table *t, const struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u)
{
	int *begin = fo_xmalloc((size_t)(p->nblock + 1) * sizeof *begin), ops = 0;
	*t = (struct fo_sim_table){ .instances = u->n, .measured_s = NAN };
	for (int b = 0; b < p->nblock; b++) {
		begin[b] = ops;
		ops += p->block[b].n;
	}
	int *line_at = fo_xmalloc((size_t)(ops + 1) * sizeof *line_at);
	for (int i = 0; i < ops; i++)
		line_at[i] = -1;
	t->line = fo_xmalloc((size_t)(ops + 1) * sizeof *t->line);
	t->line_of = fo_xmalloc((size_t)(u->n + 1) * sizeof *t->line_of);
	for (int i = 0; i < u->n; i++) {
		int block = p->slot[u->slot[i]].block, at = begin[block] + u->op[i];
		t->line_of[i] = -1;
		if (fo_instance_op(p, u, i)->lane != FO_LANE_COMPUTE)
			continue;
		if (line_at[at] < 0) {
			line_at[at] = t->lines;
			t->line[t->lines++] = (struct fo_sim_line){ .block = block, .op = u->op[i], .measured_s = NAN };
		}
		struct fo_sim_line *l = &t->line[t->line_of[i] = line_at[at]];
		l->times++;
		t->recorded++;
		l->predicted_s += s->seconds[i];
		t->predicted_s += s->seconds[i];
		l->sure = s->sure[i] > l->sure ? s->sure[i] : l->sure;
	}
	free(begin);
	free(line_at);
}

void fo_sim_table_fini(struct fo_sim_table *t)
{
	free(t->line);
	free(t->line_of);
	*t = (struct fo_sim_table){ 0 };
}

/* Sums of each line in each step from `first` on. */
static void sum_spans(const struct fo_sim_table *t, const struct fo_ring *ring, int32_t first, double *sum)
{
	for (uint64_t i = ring->n > ring->cap ? ring->n - ring->cap : 0; i < ring->n; i++) {
		const struct fo_span *s = &ring->span[i % ring->cap];
		if (s->step >= first && s->instance >= 0 && s->instance < t->instances && t->line_of[s->instance] >= 0)
			sum[(size_t)(s->step - first) * (size_t)t->lines + (size_t)t->line_of[s->instance]] += (double)(s->end_ns - s->begin_ns) * 1e-9;
	}
}

fo_status fo_sim_table_timeline(struct fo_sim_table *t, const struct fo_program *p, const struct fo_timeline_file *f, const char *where)
{
	const struct fo_ring *c = &f->t.lane[FO_LANE_COMPUTE];
	uint64_t oldest = c->n > c->cap ? c->n - c->cap : 0;
	if (f->program_hash != fo_program_hash(p))
		return fo_fail(FO_EFORMAT, "'%s' was recorded with another program than the one it is compared with", where);
	int32_t first = INT32_MAX, last = -1;
	for (uint64_t i = oldest; i < c->n; i++) {
		const struct fo_span *s = &c->span[i % c->cap];
		if (s->step < 0 || s->step < last || s->step == INT32_MAX)
			return fo_fail(FO_EFORMAT, "'%s': its steps are out of order", where);
		first = i == oldest ? s->step + 1 : first;
		last = s->step;
	}
	if (last < first)
		return fo_hint(fo_fail(FO_EARG, "'%s' has no step behind its first: nothing to compare with", where),
			       "train some steps more: the first touches fresh memory and does not count");
	/* Every step but the last one was recorded whole. */
	if ((uint64_t)(last - first) * (uint64_t)t->recorded > c->n)
		return fo_fail(FO_EFORMAT, "'%s': steps are missing", where);
	int steps = last - first + 1;
	double *sum = fo_xmalloc(((size_t)steps * (size_t)t->lines + 1) * sizeof *sum), *v = fo_xmalloc((size_t)steps * sizeof *v),
	       *all = fo_xmalloc((size_t)steps * sizeof *all);
	sum_spans(t, c, first, sum);
	for (int i = 0; i < t->lines; i++) {
		for (int k = 0; k < steps; k++) {
			v[k] = sum[(size_t)k * (size_t)t->lines + (size_t)i];
			all[k] += v[k];
		}
		t->line[i].measured_s = fo_stats_quantile(v, (size_t)steps, 0.5);
	}
	t->measured_s = fo_stats_quantile(all, (size_t)steps, 0.5);
	t->steps = steps;
	free(sum);
	free(v);
	free(all);
	return FO_OK;
}

void fo_sim_table_instances(struct fo_sim_table *t, const double *seconds, int steps)
{
	for (int i = 0; i < t->lines; i++)
		t->line[i].measured_s = 0;
	for (int i = 0; i < t->instances; i++)
		if (t->line_of[i] >= 0)
			t->line[t->line_of[i]].measured_s += seconds[i];
	t->measured_s = t->predicted_s = 0;
	t->steps = steps;
	for (int i = 0; i < t->lines; i++)
		if (!isnan(t->line[i].measured_s)) {
			t->measured_s += t->line[i].measured_s;
			t->predicted_s += t->line[i].predicted_s;
		}
}

static int worst_first(const void *a, const void *b)
{
	const struct fo_sim_line *x = a, *y = b;
	double d = fabs(x->measured_s - x->predicted_s), e = fabs(y->measured_s - y->predicted_s);
	d = isnan(d) ? x->predicted_s : d;
	e = isnan(e) ? y->predicted_s : e;
	if (isnan(x->measured_s) != isnan(y->measured_s))
		return isnan(x->measured_s) ? 1 : -1;
	if (d != e)
		return d < e ? 1 : -1;
	return x->block != y->block ? x->block - y->block : x->op - y->op;
}

void fo_sim_table_sort(struct fo_sim_table *t) { qsort(t->line, (size_t)t->lines, sizeof *t->line, worst_first); }
