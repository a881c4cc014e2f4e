#include "kernel/crowd.h"

#include "base/clock.h"
#include "base/count.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cost/links.h"
#include "kernel/work.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KINDS = 2, LEVELS = 18, ROUNDS_LEAST = 3, ROUNDS_MOST = 40, PASSES = 2 };
static const char *const kind_name[KINDS] = { FO_CROWD_TENSOR_ROW, FO_CROWD_MEMORY_ROW };

struct item {
	struct fo_work work;
	int64_t times; /* in a step */
	int kind;
};
struct member {
	struct team *team;
	struct fo_work_data data;
	struct item *item;
	int place;
	pthread_t thread;
};
struct team {
	int items, ranks;
	struct member *member;
	atomic_int active; /* so many compute */
	atomic_bool over;
};

/* ---- what each does ---- */

static double now_s(void) { return (double)fo_now_ns() * 1e-9; }

/* Every distinct operation once; seconds of a step by kind. */
static void pass(struct member *m, double sum[KINDS])
{
	for (int i = 0; i < m->team->items; i++) {
		struct item *it = &m->item[i];
		const double begin = now_s();
		fo_work_run(&it->work);
		sum[it->kind] += (double)it->times * (now_s() - begin);
	}
}

static void *run_member(void *arg)
{
	struct member *m = arg;
	const struct timespec nap = { 0, 200000 };
	while (!atomic_load(&m->team->over)) {
		double sum[KINDS];
		if (m->place < atomic_load(&m->team->active))
			pass(m, sum);
		else
			nanosleep(&nap, NULL);
	}
	return NULL;
}

/* ---- the operations ---- */

static int kind_of(const struct fo_op *o)
{
	switch (fo_op_info(o->kind)->cls) {
	case FO_CLASS_TENSOR: return 0;
	case FO_CLASS_MEMORY: return 1;
	case FO_CLASS_COMM:
	case FO_CLASS_HOST: break;
	}
	return -1;
}

static int count_items(const struct fo_program *p)
{
	int n = 0;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			n += kind_of(&p->block[b].op[i]) >= 0 && fo_block_slots(p, b) > 0;
	return n;
}

static fo_status member_open(struct member *m, const struct fo_program *p, enum fo_isa isa, int threads)
{
	int n = 0;
	m->item = fo_xmalloc((size_t)(m->team->items + 1) * sizeof *m->item);
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n && fo_block_slots(p, b) > 0; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			if (kind_of(o) < 0)
				continue;
			struct item *it = &m->item[n++];
			it->kind = kind_of(o);
			it->times = fo_block_slots(p, b);
			fo_work_of_op(&it->work, isa, p, o, 0, threads);
			fo_work_data_need(&m->data, &it->work);
		}
	FO_TRY(fo_work_data_new(&m->data));
	for (int i = 0; i < n; i++)
		fo_work_bind(&m->item[i].work, &m->data, p->run.rows);
	return FO_OK;
}

/* ---- measuring ---- */

struct levels {
	int ranks[LEVELS], n, spans;
	double *taken[LEVELS][KINDS]; /* seconds of a step, per pass */
};

static void find_levels(struct levels *l, int ranks)
{
	*l = (struct levels){ 0 };
	for (int k = 1; k < ranks && l->n < LEVELS - 1; k *= 2)
		l->ranks[l->n++] = k;
	l->ranks[l->n++] = ranks;
	for (int k = 0; k < l->n; k++)
		for (int i = 0; i < KINDS; i++)
			l->taken[k][i] = fo_xmalloc(ROUNDS_MOST * PASSES * sizeof(double));
}

/* All levels in turn in each round, so that what else the machine does falls on all alike. */
static void measure(struct team *t, struct levels *l, double seconds,
		    void (*progress)(void *ctx, const char *what, double share), void *ctx)
{
	struct member *first = &t->member[0];
	const double begin = now_s();
	for (int round = 0; round < ROUNDS_MOST; round++) {
		const double spent = now_s() - begin;
		if (round >= ROUNDS_LEAST && spent > seconds)
			break;
		for (int k = 0; k < l->n; k++) {
			double warm[KINDS] = { 0 };
			atomic_store(&t->active, l->ranks[k]);
			pass(first, warm);
			for (int n = 0; n < PASSES; n++) {
				double sum[KINDS] = { 0 };
				pass(first, sum);
				for (int i = 0; i < KINDS; i++)
					l->taken[k][i][l->spans + n] = sum[i];
			}
		}
		l->spans += PASSES;
		if (progress)
			progress(ctx, "ranks that compute at once", fmin(spent / fmax(seconds, 1e-3), 1));
	}
	atomic_store(&t->over, true);
}

static void keep_rows(const struct levels *l, int threads, const char *dtype, struct fo_limits *m)
{
	size_t kept = 0;
	/* All of these threads: times of one run's step are of no use beside those of another's. */
	for (size_t i = 0; i < m->rows; i++)
		if (strcmp(m->row[i].kind, FO_CROWD_ROW) != 0 || m->row[i].threads != threads)
			m->row[kept++] = m->row[i];
	m->rows = kept;
	for (int k = 0; k < l->n; k++)
		for (int i = 0; i < KINDS; i++) {
			struct fo_limits_row row = { .threads = threads, .cold = NAN };
			snprintf(row.kind, sizeof row.kind, FO_CROWD_ROW);
			snprintf(row.variant, sizeof row.variant, "%s", kind_name[i]);
			snprintf(row.dtype, sizeof row.dtype, "%s", dtype);
			snprintf(row.set, sizeof row.set, FO_LINK_THREADS);
			fo_clock_utc(row.date);
			row.dim[0] = l->ranks[k];
			row.time = (struct fo_quiet_stats){ .spans = l->spans,
							    .quiet_best_s = NAN,
							    .quiet_median_s = NAN };
			row.time.best_s = fo_stats_quantile(l->taken[k][i], (size_t)l->spans, 0);
			row.time.median_s = fo_stats_quantile(l->taken[k][i], (size_t)l->spans, 0.5);
			if (row.time.median_s > 0)
				fo_limits_row_add(m, &row);
		}
}

fo_status fo_crowd_measure(const struct fo_program *p, enum fo_isa isa, int threads, int ranks, double seconds,
			   struct fo_limits *m, void (*progress)(void *ctx, const char *what, double share), void *ctx)
{
	struct team t = { .items = count_items(p), .ranks = ranks };
	struct levels l;
	fo_status st = FO_OK;
	int started = 1;
	t.member = fo_xmalloc((size_t)ranks * sizeof *t.member);
	find_levels(&l, ranks);
	for (int r = 0; r < ranks && st == FO_OK; r++) {
		t.member[r].team = &t;
		t.member[r].place = r;
		st = member_open(&t.member[r], p, isa, threads);
	}
	for (; started < ranks && st == FO_OK; started += st == FO_OK)
		st = fo_thread_start(&t.member[started].thread, run_member, &t.member[started], "the thread of a rank");
	if (st == FO_OK)
		measure(&t, &l, seconds, progress, ctx);
	atomic_store(&t.over, true);
	for (int r = 1; r < started; r++)
		pthread_join(t.member[r].thread, NULL);
	if (st == FO_OK)
		keep_rows(&l, threads, p->run.precision == FO_PRECISION_BF16 ? "bf16" : "f32", m);
	for (int r = 0; r < ranks; r++) {
		fo_work_data_free(&t.member[r].data);
		free(t.member[r].item);
	}
	for (int k = 0; k < l.n; k++)
		for (int i = 0; i < KINDS; i++)
			free(l.taken[k][i]);
	free(t.member);
	return st;
}
