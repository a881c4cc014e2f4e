#include "sim/compare.h"
#include "base/clock.h"
#include "base/mem.h"
#include "timeline/ranks.h"

#include <math.h>
#include <stdlib.h>

void fo_sim_table_init(struct fo_sim_table *t, const struct fo_sim *s, const struct fo_program *p,
		       const struct fo_unrolled *u)
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
		if (!fo_lane_computes(fo_instance_op(p, u, i)->lane))
			continue;
		if (line_at[at] < 0) {
			line_at[at] = t->lines;
			t->line[t->lines++] = (struct fo_sim_line){ .block = block, .op = u->op[i], .measured_s = NAN };
		}
		struct fo_sim_line *l = &t->line[t->line_of[i] = line_at[at]];
		l->times++;
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

/* Steps that a ring's compute spans are of, in order; *out is to be freed. Those timed otherwise (metered, repeated to
 * find a fault) are not recorded, so numbers may be missing. */
static fo_status steps_of(const struct fo_ring *r, const char *where, int32_t **out, int *n)
{
	size_t cap = 0;
	*out = NULL;
	*n = 0;
	for (uint64_t i = r->n > r->cap ? r->n - r->cap : 0; i < r->n; i++) {
		int32_t step = r->span[i % r->cap].step;
		if (*n && step == (*out)[*n - 1])
			continue;
		if (*n && step < (*out)[*n - 1]) {
			free(*out);
			return fo_fail(FO_EFORMAT, "'%s': its steps are out of order", where);
		}
		fo_array_room(out, &cap, (size_t)*n, sizeof **out);
		(*out)[(*n)++] = step;
	}
	return FO_OK;
}

/* Sums of each line in each of the steps but the first, in ascending order. */
static void sum_spans(const struct fo_sim_table *t, const struct fo_timeline *from, int lane, const int32_t *step,
		      int steps, double *sum)
{
	const struct fo_ring *r = &from->lane[lane];
	int k = 0;
	for (uint64_t i = r->n > r->cap ? r->n - r->cap : 0; i < r->n; i++) {
		const struct fo_span *s = &r->span[i % r->cap];
		while (k + 1 < steps && step[k] < s->step)
			k++;
		if (k && s->step == step[k] && s->instance >= 0 && s->instance < t->instances &&
		    t->line_of[s->instance] >= 0)
			sum[(size_t)(k - 1) * (size_t)t->lines + (size_t)t->line_of[s->instance]] +=
				fo_timeline_own_ns(from, lane, s) * 1e-9;
	}
}

/* sum: of `steps` steps, each line. */
static void take_medians(struct fo_sim_table *t, const double *sum, int steps)
{
	double *v = fo_xmalloc(2 * (size_t)steps * sizeof *v), *all = v + steps;
	for (int i = 0; i < t->lines; i++) {
		for (int k = 0; k < steps; k++) {
			v[k] = sum[(size_t)k * (size_t)t->lines + (size_t)i];
			all[k] += v[k];
		}
		t->line[i].measured_s = fo_stats_quantile(v, (size_t)steps, 0.5);
	}
	t->measured_s = fo_stats_quantile(all, (size_t)steps, 0.5);
	t->steps = steps;
	free(v);
}

fo_status fo_sim_table_timeline(struct fo_sim_table *t, const struct fo_program *p, const struct fo_timeline_file *f,
				const char *where)
{
	int32_t *step;
	int steps;
	if (f->program_hash != fo_program_hash(p))
		return fo_fail(FO_EFORMAT, "'%s' was recorded with another program than the one it is compared with",
			       where);
	FO_TRY(steps_of(&f->t.lane[FO_LANE_COMPUTE], where, &step, &steps));
	fo_status st = FO_OK;
	int gone = 0; /* steps of which the ring of the other lane that computes has lost spans */
	const struct fo_ring *w = &f->t.lane[FO_LANE_WGRAD];
	while (w->n && gone < steps && step[gone] < w->span[0].step)
		gone++;
	steps -= gone;
	if (steps < 2) {
		st = fo_hint(fo_fail(FO_EARG, "'%s' has no step after its first: nothing to compare with", where),
			     "train some steps more: the first touches fresh memory and does not count");
	} else {
		double *sum = fo_xmalloc((size_t)(steps - 1) * (size_t)(t->lines + 1) * sizeof *sum);
		sum_spans(t, &f->t, FO_LANE_COMPUTE, step + gone, steps, sum);
		sum_spans(t, &f->t, FO_LANE_WGRAD, step + gone, steps, sum);
		take_medians(t, sum, steps - 1);
		free(sum);
	}
	free(step);
	return st;
}

fo_status fo_sim_exposed_of(struct fo_sim_exposed *x, const struct fo_timeline_file *f, const char *where)
{
	int32_t *step;
	int steps;
	*x = (struct fo_sim_exposed){ 0 };
	FO_TRY(steps_of(&f->t.lane[FO_LANE_COMPUTE], where, &step, &steps));
	const size_t n = (size_t)(steps + 1);
	double *exposed = fo_xmalloc((FO_LANE_COUNT + 1) * n * sizeof *exposed), *lane = exposed + n;
	for (int k = 1; k < steps; k++) {
		int64_t by_lane[FO_LANE_COUNT];
		exposed[k] = (double)fo_rank_step_exposed(f, step[k], by_lane) * 1e-9;
		for (int l = 0; l < FO_LANE_COUNT; l++)
			lane[(size_t)l * n + (size_t)k] = (double)by_lane[l] * 1e-9;
	}
	if (steps > 1) {
		x->steps = steps - 1;
		x->best_s = fo_stats_quantile(exposed + 1, (size_t)x->steps, 0);
		x->median_s = fo_stats_quantile(exposed + 1, (size_t)x->steps, 0.5);
		for (int l = 0; l < FO_LANE_COUNT; l++)
			x->lane_median_s[l] = fo_stats_quantile(lane + (size_t)l * n + 1, (size_t)x->steps, 0.5);
	}
	free(exposed);
	free(step);
	return FO_OK;
}

void fo_sim_table_composed(struct fo_sim_table *t, const struct fo_composed *c)
{
	t->measured_s = t->predicted_s = 0;
	t->steps = (int)c->steps;
	for (int i = 0; i < t->lines; i++) {
		struct fo_sim_line *l = &t->line[i];
		l->measured_s = NAN;
		for (int k = 0; k < c->ops; k++)
			if (c->op[k].block == l->block && c->op[k].op == l->op && c->op[k].time.spans)
				l->measured_s = c->op[k].seconds * l->times;
		if (isnan(l->measured_s))
			continue;
		t->measured_s += l->measured_s;
		t->predicted_s += l->predicted_s;
	}
}

static double mean_of(const struct fo_record_steps *s, enum fo_step_field f)
{
	double sum = 0;
	int64_t n = 0;
	for (int64_t i = 0; i < s->n; i++) {
		double v = fo_record_value(s, f, i);
		sum += v >= 0 ? v : 0;
		n += v >= 0;
	}
	return n ? sum / (double)n : NAN;
}

struct fo_sim_load fo_sim_load_of_run(const struct fo_record *r)
{
	struct fo_sim_load load = { -1, NAN, mean_of(&r->step, FO_STEP_LOSS_TOKENS) };
	const struct fo_program *p = &r->program;
	double seq = (double)p->run.seq;
	if (!p->nblock)
		return load;
	load.tokens = fo_record_mean_flop(r, FO_STEP_MFU_6N) / fo_model_flop_per_token(&p->model, p->run.seq).mfu_6n;
	/* Executed FLOP grow by the same for each pair. */
	double none = fo_program_cost(p, 0).exec, one = fo_program_cost(p, 1).exec,
	       most = (double)p->run.rows * seq * (seq + 1) / 2;
	double pairs = (fo_record_mean_flop(r, FO_STEP_HFU) / p->ranks - none) / (one - none); /* ranks do alike */
	if (pairs >= 0 && pairs <= 1.001 * most)
		load.pairs = fmin(pairs, most);
	return load;
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
