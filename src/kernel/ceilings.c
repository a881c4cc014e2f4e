#include "kernel/ceilings_int.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cost/links.h"
#include "kernel/calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3 };
/* The share of the whole time that each kernel set gets for each of the four peaks; four times as much on a busy
 * machine. */
#define PEAK_SHARE 0.005
/* The cost of a span besides its own time, for planning: the burst after it, and forks. */
#define SPAN_OVERHEAD 1e-3
/* The time when the caller names none. */
#define USUAL_SECONDS 60
#define MOST_SECONDS 600
#define METHOD                                                                                                       \
	"each span between two bursts (registers, second-level cache); quiet: bursts near their best and no thread " \
	"waited for its processor; rows with a key: operands fetched into the caches or put out of them before "     \
	"each span"

static double spent(const struct fo_grid *g) { return (double)(fo_now_ns() - g->begin) * 1e-9; }

static void progress(const struct fo_grid *g, const char *what)
{
	double share = spent(g) / g->seconds;
	if (g->o->progress)
		g->o->progress(g->o->ctx, what, share < 1 ? share : 1);
}

static bool is_matmul(const struct fo_grid_item *it)
{
	return it->work.kernel && fo_op_info(it->work.call.kind)->category == FO_CAT_MATMUL;
}

static int by_guess(const void *a, const void *b)
{
	const struct fo_grid_item *x = a, *y = b;
	if (x->spare != y->spare)
		return x->spare - y->spare;
	return (x->guess_s > y->guess_s) - (x->guess_s < y->guess_s);
}
static int by_order(const void *a, const void *b)
{
	return ((const struct fo_grid_item *)a)->at - ((const struct fo_grid_item *)b)->at;
}
/* The least time of an item: a warm run and a measured one in every round. */
static double least_of(const struct fo_grid_item *it) { return ROUNDS * (2 * it->guess_s + SPAN_OVERHEAD); }

static double least_of_all(const struct fo_grid *g)
{
	double s = 0;
	for (size_t i = 0; i < g->n; i++)
		s += least_of(&g->item[i]);
	return s;
}

/* Leaves out the most expensive shapes until every round of the rest has room for a warm run and a measured one. The
 * cheapest matmul of each number of threads stays, because a profile without any says nothing. */
static void fit(struct fo_grid *g, double seconds)
{
	double need = 0;
	size_t n = 0;
	bool matmul[FO_GRID_GROUPS_MAX] = { false };
	qsort(g->item, g->n, sizeof *g->item, by_guess);
	for (size_t i = 0; i < g->n; i++) {
		struct fo_grid_item *it = &g->item[i];
		bool first = false;
		for (int t = 0; t < g->groups; t++)
			if (is_matmul(it) && it->row.threads == g->group[t] && !matmul[t])
				first = matmul[t] = true;
		need += least_of(it);
		if (need <= seconds || first)
			g->item[n++] = *it;
	}
	g->left_out += (int)(g->n - n);
	g->n = n;
	qsort(g->item, n, sizeof *g->item, by_order);
	for (size_t i = 0; i < n; i++) { /* pointers into the array hold from here on */
		struct fo_grid_item *it = &g->item[i];
		if (!it->fn) {
			it->fn = fo_work_run;
			it->arg = &it->work;
			fo_work_data_need(&g->data, &it->work);
		} else if (!it->arg) {
			it->arg = &it->traffic;
		}
	}
}

/* ---- measuring ---- */

static void span_of(struct fo_grid *g, struct fo_grid_item *it, struct fo_meter *m)
{
	struct fo_quiet_span s;
	if (it->arranged) {
		if (!fo_work_arrange(&it->work, it->cold, g->cache_bytes))
			it->row.cold = NAN;
		fo_meter_idle(m);
	}
	fo_meter_span(m, it->fn, it->arg, &s);
	s.seconds /= it->units;
	fo_array_room(&it->span, &it->cap, it->n, sizeof *it->span);
	it->span[it->n++] = s;
}

static void visit(struct fo_grid *g, struct fo_grid_item *it, struct fo_meter *m, double slice)
{
	int64_t begin = fo_now_ns();
	if (it->fn == fo_work_run)
		fo_work_bind(&it->work, &g->data, it->docs);
	it->fn(it->arg);
	fo_meter_idle(m);
	do
		span_of(g, it, m);
	while ((double)(fo_now_ns() - begin) * 1e-9 < slice);
}

/* Visits the cheapest matmul of this group and the copying of memory, however late it is: a prediction needs both. */
static void visit_first(struct fo_grid *g, int t)
{
	bool matmul = false;
	for (size_t i = 0; i < g->n; i++) {
		struct fo_grid_item *it = &g->item[i];
		bool copy = it->fn == fo_traffic_run && it->traffic.kind == FO_MEMORY_COPY,
		     first = is_matmul(it) && !matmul;
		if (it->row.threads != g->group[t] || (!copy && !first))
			continue;
		matmul |= first;
		visit(g, it, &g->meter[t][it->dtype == FO_BF16], 0);
	}
}

static void round_of(struct fo_grid *g, int round, size_t *order)
{
	for (size_t i = g->n; i > 1; i--) { /* Fisher and Yates */
		size_t k = (size_t)(fo_rng_u64(3 + (uint64_t)round, i) % i), x = order[i - 1];
		order[i - 1] = order[k];
		order[k] = x;
	}
	/* One number of threads after the other, because changing it makes the runtime start threads. Each has its
	 * share of what is left; on a machine too busy for all of its rows some wait for the next round and its other
	 * order. */
	size_t todo = g->n * (size_t)(ROUNDS - round);
	for (int t = 0; t < g->groups; t++) {
		size_t mine = 0;
		for (size_t i = 0; i < g->n; i++)
			mine += g->item[i].row.threads == g->group[t];
		double end = spent(g) + (g->seconds - spent(g)) * (double)mine / (double)(todo ? todo : 1);
		todo -= mine;
		for (int d = 0; d < 2; d++)
			fo_meter_attach(&g->meter[t][d]);
		if (round == 0)
			visit_first(g, t);
		for (size_t i = 0; i < g->n && mine && spent(g) < end; i++) {
			struct fo_grid_item *it = &g->item[order[i]];
			if (it->row.threads != g->group[t])
				continue;
			progress(g, it->row.kind);
			visit(g, it, &g->meter[t][it->dtype == FO_BF16], (end - spent(g)) / (double)mine--);
		}
	}
}

/* Measures the operations of a run, one span of each in the order of its step, over and over: so each finds the
 * processor as a step leaves it, its code and branches as well as its operands (a kernel that runs again and again is
 * some microseconds faster). What is not an operation, memory and the executor, comes before, on a fifth of the time.
 */
#define OTHERS_SHARE 0.2
static void sweep(struct fo_grid *g)
{
	size_t others = 0;
	double each = OTHERS_SHARE * (g->seconds - spent(g));
	for (size_t i = 0; i < g->n; i++)
		others += !g->item[i].arranged;
	for (int t = 0; t < g->groups; t++)
		for (size_t i = 0; i < g->n; i++) {
			struct fo_grid_item *it = &g->item[i];
			struct fo_meter *m = &g->meter[t][it->dtype == FO_BF16];
			if (it->arranged || it->row.threads != g->group[t])
				continue;
			progress(g, it->row.kind);
			fo_meter_attach(m);
			visit(g, it, m, each / (double)others);
		}
	for (int d = 0; d < 2; d++)
		fo_meter_attach(&g->meter[g->groups - 1][d]);
	for (int warm = 1; warm || spent(g) < g->seconds; warm = 0)
		for (size_t i = 0; i < g->n && (warm || spent(g) < g->seconds); i++) {
			struct fo_grid_item *it = &g->item[i];
			if (!it->arranged)
				continue;
			progress(g, it->row.kind);
			fo_work_bind(&it->work, &g->data, it->docs);
			if (warm)
				it->fn(it->arg);
			else
				span_of(g, it, &g->meter[g->groups - 1][it->dtype == FO_BF16]);
		}
}

static fo_status open_meters(struct fo_grid *g)
{
	for (int t = 0; t < g->groups; t++)
		for (int d = 0; d < 2; d++)
			FO_TRY(fo_meter_init(&g->meter[t][d], fo_kernel_sets[g->o->isa], d ? FO_BF16 : FO_F32,
					     g->group[t]));
	return FO_OK;
}

static fo_status measure_peaks(struct fo_grid *g, struct fo_limits *m)
{
	const int threads[] = { 1, g->o->threads };
	for (int t = 0; t < (g->o->threads > 1 ? 2 : 1); t++)
		for (int d = 0; d < 2; d++) {
			struct fo_limits_peak p;
			progress(g, "peak");
			FO_TRY(fo_calibrate_peak(d ? FO_BF16 : FO_F32, threads[t], PEAK_SHARE * g->seconds, &p));
			fo_limits_peak_raise(m, &p);
			if (t == 0)
				g->peak[d] = p.best_flop_s;
		}
	return FO_OK;
}

/* ---- the result ---- */

/* A general calibration replaces every row of its numbers of threads, a run's calibration only what it measured again.
 */
static bool is_replaced(const struct fo_grid *g, const struct fo_limits *new, const struct fo_limits_row *old)
{
	if (fo_link_is_row(old)) /* ranks are measured by themselves */
		return false;
	for (int t = 0; !g->o->program && t < g->groups; t++)
		if (old->threads == g->group[t])
			return true;
	return g->o->program && fo_limits_row_find(new, old);
}

/* Makes rows of what was measured, in place of those of the same work; but a row that had quiet spans stays where the
 * new one has none. */
static void rows_of(struct fo_grid *g, const struct fo_limits *m, struct fo_limits *new, struct fo_ceilings_result *r)
{
	for (size_t i = 0; i < g->n; i++) {
		struct fo_grid_item *it = &g->item[i];
		int t = 0;
		while (g->group[t] != it->row.threads)
			t++;
		if (!it->n) {
			g->left_out++;
			continue;
		}
		it->row.time = fo_quiet_stats(it->span, it->n, &g->meter[t][it->dtype == FO_BF16].best);
		memcpy(it->row.date, m->date, sizeof it->row.date);
		const struct fo_limits_row *keep = fo_limits_row_keep(fo_limits_row_find(m, &it->row), &it->row);
		fo_limits_row_add(new, keep);
		r->kept += keep != &it->row;
		r->rows++;
		r->spans += it->row.time.spans;
		r->quiet += it->row.time.quiet;
	}
}

static void result_of(struct fo_grid *g, struct fo_limits *m, struct fo_ceilings_result *r)
{
	struct fo_limits new = { 0 };
	size_t kept = 0;
	fo_clock_utc(m->date);
	snprintf(m->method, sizeof m->method, "%s", METHOD);
	snprintf(m->isa, sizeof m->isa, "%s", fo_isa_name[g->o->isa]);
	m->cache_bytes = g->cache_bytes;
	rows_of(g, m, &new, r);
	for (size_t i = 0; i < m->rows; i++)
		if (!is_replaced(g, &new, &m->row[i]))
			m->row[kept++] = m->row[i];
	m->rows = kept;
	for (size_t i = 0; i < new.rows; i++)
		fo_limits_row_add(m, &new.row[i]);
	fo_limits_fini(&new);
	r->left_out = g->left_out;
	r->seconds = spent(g);
}

/* The order in the file: by kind, then threads, then shape. */
static int by_name(const void *x, const void *y)
{
	const struct fo_limits_row *a = &((const struct fo_grid_item *)x)->row,
				   *b = &((const struct fo_grid_item *)y)->row;
	int c = strcmp(a->kind, b->kind);
	c = c ? c : strcmp(a->dtype, b->dtype);
	c = c ? c : strcmp(a->variant, b->variant);
	c = c ? c : a->threads - b->threads;
	for (int i = 0; !c && i < FO_LIMITS_DIMS; i++)
		c = (a->dim[i] > b->dim[i]) - (a->dim[i] < b->dim[i]);
	return c;
}

static fo_status run(struct fo_grid *g, struct fo_limits *m)
{
	FO_TRY(measure_peaks(g, m));
	FO_TRY(fo_grid_make(g));
	progress(g, "memory");
	FO_TRY(fo_traffic_data_new(&g->traffic, g->cache_bytes, g->o->threads));
	if (!(g->o->seconds > 0))
		g->seconds = fmin(fmax(g->seconds, spent(g) + 2 * least_of_all(g)), MOST_SECONDS);
	double left = g->seconds - spent(g);
	fit(g, left > 0 ? left : 0.1 * g->seconds);
	FO_TRY(fo_work_data_new(&g->data));
	FO_TRY(open_meters(g));
	size_t *order = fo_xmalloc((g->n + 1) * sizeof *order);
	for (size_t i = 0; i < g->n; i++)
		order[i] = i;
	if (g->o->program)
		sweep(g);
	for (int r = 0; r < ROUNDS && !g->o->program; r++)
		round_of(g, r, order);
	free(order);
	return FO_OK;
}

fo_status fo_ceilings_measure(const struct fo_ceilings_options *o, struct fo_limits *m,
			      struct fo_ceilings_result *result)
{
	struct fo_grid *g = fo_xmalloc(sizeof *g);
	*g = (struct fo_grid){ .o = o,
			       .have = m,
			       .begin = fo_now_ns(),
			       .cache_bytes = fo_cache_bytes(),
			       .seconds = o->seconds > 0 ? o->seconds : USUAL_SECONDS };
	*result = (struct fo_ceilings_result){ 0 };
	fo_status st = run(g, m);
	if (st == FO_OK) {
		qsort(g->item, g->n, sizeof *g->item, by_name);
		result_of(g, m, result);
	}
	for (size_t i = 0; i < g->n; i++)
		free(g->item[i].span);
	for (int t = 0; t < g->groups; t++)
		for (int d = 0; d < 2; d++)
			if (g->meter[t][d].set)
				fo_meter_fini(&g->meter[t][d]);
	free(g->item);
	fo_work_data_free(&g->data);
	fo_traffic_data_free(&g->traffic);
	free(g);
	return st;
}
