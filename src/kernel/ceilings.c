#include "kernel/ceilings.h"
#include "base/clock.h"
#include "base/mem.h"
#include "kernel/calibrate.h"
#include "kernel/measure.h"
#include "kernel/memory.h"
#include "kernel/work.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3, GROUPS_MAX = 20 }; /* groups: numbers of threads */
/* Of the whole time, that each kernel set gets for each of the four peaks; on a busy machine four times as much. */
#define PEAK_SHARE 0.005
/* A burst behind each span, and forks: what a span costs beside its own time. Only for planning. */
#define SPAN_OVERHEAD 1e-3
/* One region of operands: 32000 x 768 in f32 fits, 128256 x 4096 does not. */
#define REGION_MOST ((size_t)256 << 20)
#define METHOD                                                                                                       \
	"each span between two bursts (registers, second-level cache); quiet: bursts near their best and no thread " \
	"waited "                                                                                                    \
	"for its processor; median of all spans beside it"

struct item {
	struct fo_limits_row row;
	struct fo_work work;
	struct fo_traffic traffic;
	void (*fn)(void *arg);
	void *arg; /* NULL: its own work or traffic */
	double units, guess_s;
	int dtype;
	struct fo_quiet_span *span;
	size_t n, cap;
};
struct grid {
	const struct fo_ceilings_options *o;
	struct item *item;
	size_t n, cap;
	double peak[2]; /* one thread: f32, bf16 */
	struct fo_traffic_data traffic;
	struct fo_work_data data;
	int group[GROUPS_MAX], groups; /* numbers of threads */
	struct fo_meter meter[GROUPS_MAX][2];
	int64_t begin;
	int left_out;
};

static double spent(const struct grid *g) { return (double)(fo_now_ns() - g->begin) * 1e-9; }

static void progress(const struct grid *g, const char *what)
{
	double share = spent(g) / g->o->seconds;
	if (g->o->progress)
		g->o->progress(g->o->ctx, what, share < 1 ? share : 1);
}

/* ---- the grid ---- */

static struct item *item_add(struct grid *g, const char *kind, const char *variant, const char *dtype, int threads)
{
	fo_array_room(&g->item, &g->cap, g->n, sizeof *g->item);
	struct item *it = &g->item[g->n++];
	*it = (struct item){ .units = 1, .row.threads = threads };
	snprintf(it->row.kind, sizeof it->row.kind, "%s", kind);
	snprintf(it->row.variant, sizeof it->row.variant, "%s", variant);
	snprintf(it->row.dtype, sizeof it->row.dtype, "%s", dtype);
	return it;
}

/* A guess of its time, only to see what fits into the time given: 0.7 of the peak (plain loops: a fiftieth, about 2 of
 * 100 GFLOP/s on Zen 3, November 2026), 8 GB/s from memory. */
static void guess(const struct grid *g, struct item *it)
{
	double peak = g->peak[it->dtype == FO_BF16] * it->row.threads;
	it->guess_s = fmax(it->row.flop / ((g->o->isa == FO_ISA_REF ? 0.02 : 0.7) * peak), it->row.bytes / 8e9);
}

static void take_work(struct grid *g, struct item *it, int dtype, const int64_t *dim, int dims)
{
	it->dtype = dtype;
	it->row.flop = it->work.flop;
	it->row.bytes = it->work.bytes;
	for (int i = 0; i < dims; i++)
		it->row.dim[i] = dim[i];
	snprintf(it->row.set, sizeof it->row.set, "%s", it->work.set->name);
	guess(g, it);
	if (fo_work_bytes(&it->work) > REGION_MOST) {
		g->n--;
		g->left_out++;
	}
}

/* Widths of the Llama presets (heads x dimension, feed-forward, vocabulary), tokens of a micro-batch. */
static void add_products(struct grid *g, int dtype, int threads)
{
	static const struct {
		int64_t out, in;
		bool quick;
	} layer[] = { { 256, 256, false },   { 768, 768, true },    { 2048, 768, true },  { 768, 2048, true },
		      { 2048, 2048, false }, { 4096, 4096, false }, { 32000, 768, false } };
	static const struct {
		int64_t tokens;
		bool quick;
	} size[] = { { 128, false }, { 512, true }, { 2048, true }, { 4096, false } };
	for (size_t l = 0; l < sizeof layer / sizeof *layer; l++)
		for (size_t s = 0; s < sizeof size / sizeof *size; s++)
			for (int p = 0; p < FO_WORK_PASSES; p++) {
				int64_t t = size[s].tokens, out = layer[l].out, in = layer[l].in;
				int64_t dim[] = { p == FO_WORK_WGRAD ? out : t, p == FO_WORK_FORWARD ? out : in,
						  p == FO_WORK_FORWARD ? in
						  : p == FO_WORK_DGRAD ? out
								       : t };
				if (g->o->quick && !(layer[l].quick && size[s].quick))
					continue;
				struct item *it = item_add(g, "matmul", fo_work_pass_name[p], fo_dtype_name[dtype],
							   threads);
				fo_work_linear(&it->work, g->o->isa, p, t, out, in, dtype, threads);
				take_work(g, it, dtype, dim, 3);
			}
}

static void add_attention(struct grid *g, int dtype, int threads)
{
	static const int64_t heads[][2] = { { 12, 64 }, { 6, 128 } }, tokens[] = { 512, 2048, 4096 };
	for (size_t h = 0; h < 2; h++)
		for (size_t s = 0; s < (g->o->quick ? 2 : 3); s++)
			for (int backward = 0; backward < 2; backward++) {
				int64_t dim[] = { tokens[s], heads[h][0], heads[h][0], heads[h][1] };
				struct item *it = item_add(g, backward ? "attention_bwd" : "attention", "causal",
							   fo_dtype_name[dtype], threads);
				fo_work_attention(&it->work, g->o->isa, backward, dim[0], 1, dim[1], dim[2], dim[3],
						  dtype, threads);
				take_work(g, it, dtype, dim, 4);
			}
}

static void widest(const struct fo_op *o, int64_t dim[2])
{
	dim[0] = dim[1] = 0;
	for (int i = 0; i < o->n; i++)
		if ((int64_t)o->arg[i].nr * o->arg[i].nc > dim[0] * dim[1]) {
			dim[0] = o->arg[i].nr;
			dim[1] = o->arg[i].nc;
		}
}

/* Of each memory-bound operation in this program the largest: what a training step calls, with its costs. */
static void add_operations(struct grid *g, const struct fo_program *p, int dtype, int threads)
{
	const struct fo_op *largest[FO_OP_COUNT] = { NULL };
	int64_t dim[2], most[2];
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			widest(o, dim);
			if (fo_op_info(o->kind)->cls != FO_CLASS_MEMORY || dim[0] * dim[1] <= FO_HYPER_COUNT /* a few numbers */)
				continue;
			if (largest[o->kind])
				widest(largest[o->kind], most);
			if (!largest[o->kind] || dim[0] * dim[1] > most[0] * most[1])
				largest[o->kind] = o;
		}
	for (int k = 0; k < FO_OP_COUNT; k++) {
		if (!largest[k])
			continue;
		widest(largest[k], dim);
		struct item *it = item_add(g, fo_op_info(k)->name, "-", fo_dtype_name[dtype], threads);
		fo_work_of_op(&it->work, g->o->isa, p, largest[k], threads);
		bool twice = false;
		for (size_t i = 0; i + 1 < g->n; i++)
			twice |= !strcmp(g->item[i].row.kind, it->row.kind) && g->item[i].dtype == dtype &&
				 g->item[i].row.threads == threads && g->item[i].row.dim[0] == dim[0] &&
				 g->item[i].row.dim[1] == dim[1];
		if (twice)
			g->n--;
		else
			take_work(g, it, dtype, dim, 2);
	}
}

static fo_status add_programs(struct grid *g, int dtype, int threads)
{
	static const struct {
		int64_t hidden, ffn, tokens;
		bool quick;
	} shape[] = { { 768, 2048, 512, true }, { 768, 2048, 2048, false }, { 2048, 8192, 2048, false } };
	for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
		struct fo_program p;
		struct fo_model m;
		if (g->o->quick && !shape[i].quick)
			continue;
		FO_TRY(fo_model_load("flatout-134m", &m));
		m.layers = 1;
		m.hidden = shape[i].hidden;
		m.ffn = shape[i].ffn;
		m.heads = m.kv_heads = m.hidden / m.head_dim;
		FO_TRY(fo_program_lower(
			&p, &m,
			&(struct fo_lowering){ .seq = shape[i].tokens,
					       .rows = 1,
					       .micro_batches = 1,
					       .precision = dtype == FO_BF16 ? FO_PRECISION_BF16 : FO_PRECISION_F32 }));
		add_operations(g, &p, dtype, threads);
		fo_program_fini(&p);
	}
	return FO_OK;
}

static void add_traffic(struct grid *g, int threads)
{
	for (int k = 0; k < FO_MEMORY_KINDS; k++)
		for (int past = 0; past < 2; past++) {
			struct fo_traffic t = {
				.data = &g->traffic, .kind = k, .past_caches = past, .threads = threads
			};
			if (!fo_traffic_can(&t))
				continue;
			struct item *it = item_add(g, fo_memory_kind_name[k], past ? "nt" : "plain", "-", threads);
			it->traffic = t;
			it->fn = fo_traffic_run;
			it->row.bytes = fo_traffic_bytes(&t);
			it->row.dim[0] = (int64_t)it->row.bytes;
			snprintf(it->row.set, sizeof it->row.set, "-");
			guess(g, it);
		}
}

static fo_status make_grid(struct grid *g)
{
	int most = g->o->threads;
	for (int t = 1; t < most && g->groups + 1 < GROUPS_MAX; t *= 2)
		g->group[g->groups++] = t;
	g->group[g->groups++] = most;
	for (int i = 0; i < g->groups; i++) {
		int t = g->group[i];
		add_traffic(g, t);
		for (int d = 0; (t == 1 || t == most) && d < 2; d++) {
			add_products(g, d ? FO_BF16 : FO_F32, t);
			add_attention(g, d ? FO_BF16 : FO_F32, t);
			FO_TRY(add_programs(g, d ? FO_BF16 : FO_F32, t));
		}
	}
	for (int i = 0; i < g->o->extras; i++) {
		const struct fo_ceilings_extra *e = &g->o->extra[i];
		struct item *it = item_add(g, "", "", "", 1);
		it->row = e->row;
		it->fn = e->fn;
		it->arg = e->arg;
		it->units = e->units;
	}
	return FO_OK;
}

static bool is_product(const struct item *it) { return it->work.kernel && it->work.call.kind == FO_OP_matmul; }

static int by_guess(const void *a, const void *b)
{
	double x = ((const struct item *)a)->guess_s, y = ((const struct item *)b)->guess_s;
	return (x > y) - (x < y);
}
/* Leaves out the most expensive shapes until every round of the rest has room for a warm run and a measured one. The cheapest
 * product of each number of threads stays: a profile without any says nothing. */
static void fit(struct grid *g, double seconds)
{
	double need = 0;
	size_t n = 0;
	bool product[GROUPS_MAX] = { false };
	qsort(g->item, g->n, sizeof *g->item, by_guess);
	for (size_t i = 0; i < g->n; i++) {
		struct item *it = &g->item[i];
		bool first = false;
		for (int t = 0; t < g->groups; t++)
			if (is_product(it) && it->row.threads == g->group[t] && !product[t])
				first = product[t] = true;
		need += ROUNDS * (2 * it->guess_s + SPAN_OVERHEAD);
		if (need <= seconds || first)
			g->item[n++] = *it;
	}
	g->left_out += (int)(g->n - n);
	g->n = n;
	for (size_t i = 0; i < n; i++) { /* pointers into the array hold from here on */
		struct item *it = &g->item[i];
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

static void visit(struct grid *g, struct item *it, struct fo_meter *m, double slice)
{
	int64_t begin = fo_now_ns();
	if (it->fn == fo_work_run)
		fo_work_bind(&it->work, &g->data, 1);
	it->fn(it->arg);
	fo_meter_idle(m);
	do {
		struct fo_quiet_span s;
		fo_meter_span(m, it->fn, it->arg, &s);
		s.seconds /= it->units;
		fo_array_room(&it->span, &it->cap, it->n, sizeof *it->span);
		it->span[it->n++] = s;
	} while ((double)(fo_now_ns() - begin) * 1e-9 < slice);
}

/* The cheapest product of this group, however late it is. */
static void visit_one_product(struct grid *g, int t)
{
	for (size_t i = 0; i < g->n; i++)
		if (g->item[i].row.threads == g->group[t] && is_product(&g->item[i])) {
			visit(g, &g->item[i], &g->meter[t][g->item[i].dtype == FO_BF16], 0);
			return;
		}
}

static void round_of(struct grid *g, int round, size_t *order)
{
	for (size_t i = g->n; i > 1; i--) { /* Fisher and Yates */
		size_t k = (size_t)(fo_rng_u64(3 + (uint64_t)round, i) % i), x = order[i - 1];
		order[i - 1] = order[k];
		order[k] = x;
	}
	/* One number of threads after the other: changing it makes the runtime start threads. Each has its share of what is
	 * left; on a machine too busy for all of its rows some wait for the next round and its other order. */
	size_t todo = g->n * (size_t)(ROUNDS - round);
	for (int t = 0; t < g->groups; t++) {
		size_t mine = 0;
		for (size_t i = 0; i < g->n; i++)
			mine += g->item[i].row.threads == g->group[t];
		double end = spent(g) + (g->o->seconds - spent(g)) * (double)mine / (double)(todo ? todo : 1);
		todo -= mine;
		for (int d = 0; d < 2; d++)
			fo_meter_attach(&g->meter[t][d]);
		if (round == 0)
			visit_one_product(g, t);
		for (size_t i = 0; i < g->n && mine && spent(g) < end; i++) {
			struct item *it = &g->item[order[i]];
			if (it->row.threads != g->group[t])
				continue;
			progress(g, it->row.kind);
			visit(g, it, &g->meter[t][it->dtype == FO_BF16], (end - spent(g)) / (double)mine--);
		}
	}
}

static fo_status open_meters(struct grid *g)
{
	for (int t = 0; t < g->groups; t++)
		for (int d = 0; d < 2; d++) {
			/* The highest set at or below isa that has a loop: the unit that the kernels use. */
			fo_status st = FO_EUNSUPPORTED;
			for (int i = g->o->isa; i >= 0 && st != FO_OK; i--)
				if (fo_kernel_sets[i])
					st = fo_meter_init(&g->meter[t][d], fo_kernel_sets[i], d ? FO_BF16 : FO_F32,
							   g->group[t]);
			FO_TRY(st);
		}
	return FO_OK;
}

static fo_status measure_peaks(struct grid *g, struct fo_limits *m)
{
	const int threads[] = { 1, g->o->threads };
	for (int t = 0; t < (g->o->threads > 1 ? 2 : 1); t++)
		for (int d = 0; d < 2; d++) {
			struct fo_calibration c;
			progress(g, "peak");
			FO_TRY(fo_calibrate_peak(d ? FO_BF16 : FO_F32, threads[t], PEAK_SHARE * g->o->seconds, false,
						 &c));
			struct fo_limits_peak p = { .threads = c.threads,
						     .bursts = c.bursts,
						     .clean_bursts = c.clean_bursts,
						     .best_flop_s = c.best_flop_s,
						     .median_flop_s = c.median_flop_s };
			memcpy(p.dtype, c.dtype, sizeof p.dtype);
			memcpy(p.set, c.set, sizeof p.set);
			memcpy(p.date, c.date, sizeof p.date);
			memcpy(p.method, c.method, sizeof p.method);
			fo_limits_peak_raise(m, &p);
			if (t == 0)
				g->peak[d] = c.best_flop_s;
		}
	return FO_OK;
}

/* ---- the result ---- */

static void result_of(struct grid *g, struct fo_limits *m, struct fo_ceilings_result *r)
{
	size_t kept = 0;
	for (size_t i = 0; i < m->rows; i++) {
		bool again = false;
		for (int t = 0; t < g->groups; t++)
			again |= m->row[i].threads == g->group[t];
		if (!again)
			m->row[kept++] = m->row[i];
	}
	m->rows = kept;
	fo_clock_utc(m->date);
	snprintf(m->method, sizeof m->method, "%s", METHOD);
	snprintf(m->isa, sizeof m->isa, "%s", fo_isa_name[g->o->isa]);
	m->cache_bytes = fo_cache_bytes();
	for (size_t i = 0; i < g->n; i++) {
		struct item *it = &g->item[i];
		int t = 0;
		while (g->group[t] != it->row.threads)
			t++;
		if (!it->n) {
			g->left_out++;
			continue;
		}
		it->row.time = fo_quiet_stats(it->span, it->n, &g->meter[t][it->dtype == FO_BF16].best);
		memcpy(it->row.date, m->date, sizeof it->row.date);
		fo_limits_row_add(m, &it->row);
		r->rows++;
		r->spans += it->row.time.spans;
		r->quiet += it->row.time.quiet;
	}
	r->left_out = g->left_out;
	r->seconds = spent(g);
}

/* In the file: by kind, then threads, then shape. */
static int by_name(const void *x, const void *y)
{
	const struct fo_limits_row *a = &((const struct item *)x)->row, *b = &((const struct item *)y)->row;
	int c = strcmp(a->kind, b->kind);
	c = c ? c : strcmp(a->dtype, b->dtype);
	c = c ? c : strcmp(a->variant, b->variant);
	c = c ? c : a->threads - b->threads;
	for (int i = 0; !c && i < FO_LIMITS_DIMS; i++)
		c = (a->dim[i] > b->dim[i]) - (a->dim[i] < b->dim[i]);
	return c;
}

static fo_status run(struct grid *g, struct fo_limits *m)
{
	FO_TRY(measure_peaks(g, m));
	FO_TRY(make_grid(g));
	progress(g, "memory");
	FO_TRY(fo_traffic_data_new(&g->traffic, fo_cache_bytes(), g->o->threads));
	double left = g->o->seconds - spent(g);
	fit(g, left > 0 ? left : 0.1 * g->o->seconds);
	FO_TRY(fo_work_data_new(&g->data));
	FO_TRY(open_meters(g));
	size_t *order = fo_xmalloc((g->n + 1) * sizeof *order);
	for (size_t i = 0; i < g->n; i++)
		order[i] = i;
	for (int r = 0; r < ROUNDS; r++)
		round_of(g, r, order);
	free(order);
	return FO_OK;
}

fo_status fo_ceilings_measure(const struct fo_ceilings_options *o, struct fo_limits *m,
			      struct fo_ceilings_result *result)
{
	struct grid *g = fo_xmalloc(sizeof *g);
	*g = (struct grid){ .o = o, .begin = fo_now_ns() };
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
