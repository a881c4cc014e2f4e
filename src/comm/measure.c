#include "comm/measure.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "comm/local.h"
#include "cost/links.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that a rank receives, about: from what only shows latency to more than second-level caches hold. */
static const int64_t sizes[] = { 1024, 65536, 1 << 20, 1 << 24 };
enum { SIZES = sizeof sizes / sizeof *sizes, LEAST = 7, MOST = 400 };

/* What an operation's wire is as a call; their order is one (exec_comm.c asserts it). */
static enum fo_comm_kind kind_of(enum fo_wire wire) { return (enum fo_comm_kind)(wire - FO_WIRE_ALL_REDUCE); }

struct group {
	int ranks;
	enum fo_wire wire;
	int64_t n; /* of the call: elements of one rank's part */
	double seconds;
	struct fo_comm **comm;
	float **memory; /* per rank: what it sends, then what it receives */
	size_t bytes;   /* of each half */
	int64_t *begin, *end;
	double *taken; /* seconds per call */
	int calls;
	bool enough; /* said by rank 0 between two calls */
};
struct member {
	struct group *g;
	int rank;
	fo_status st;
};

/* All ranks come here: nobody goes on before. */
static fo_status barrier(struct group *g, int rank)
{
	float x[2] = { 0 };
	return fo_comm_call(
		g->comm[rank],
		&(struct fo_comm_call){ .kind = FO_COMM_ALL_REDUCE, .from = x, .to = x, .n = 2, .dtype = FO_F32 });
}

static struct fo_comm_call call_of(const struct group *g, int rank)
{
	struct fo_comm_call c = { .kind = kind_of(g->wire), .n = g->n, .dtype = FO_F32 };
	c.from = g->memory[rank];
	c.to = (char *)g->memory[rank] + g->bytes;
	if (g->wire == FO_WIRE_ALL_REDUCE) /* as gradients are added up */
		c.to = g->memory[rank];
	if (g->wire == FO_WIRE_RECEIVE) {
		c.kind = rank ? FO_COMM_RECV : FO_COMM_SEND;
		c.peer = !rank;
	}
	return c;
}

static void count(struct group *g, int64_t begin_ns)
{
	int64_t last = g->begin[0];
	double end = 0;
	for (int r = 0; r < g->ranks; r++) {
		last = g->begin[r] > last ? g->begin[r] : last;
		end += (double)g->end[r] / g->ranks;
	}
	g->taken[g->calls++] = fmax(end - (double)last, 1) * 1e-9;
	double spent = (double)(fo_now_ns() - begin_ns) * 1e-9;
	g->enough = g->calls == MOST || (g->calls >= LEAST && spent > g->seconds);
}

static fo_status repeat(struct group *g, int rank)
{
	struct fo_comm_call c = call_of(g, rank);
	int64_t begin = fo_now_ns();
	FO_TRY(fo_comm_call(g->comm[rank], &c)); /* touches the memory */
	for (;;) {
		FO_TRY(barrier(g, rank));
		if (g->enough)
			return FO_OK;
		FO_TRY(barrier(g, rank));
		g->begin[rank] = fo_now_ns();
		FO_TRY(fo_comm_call(g->comm[rank], &c));
		g->end[rank] = fo_now_ns();
		FO_TRY(barrier(g, rank));
		if (!rank)
			count(g, begin);
	}
}

static void *run_rank(void *arg)
{
	struct member *m = arg;
	m->st = repeat(m->g, m->rank);
	if (m->st != FO_OK)
		fo_comm_abort(m->g->comm[m->rank]);
	return NULL;
}

static fo_status run_group(struct group *g)
{
	struct member *m = fo_xmalloc((size_t)g->ranks * sizeof *m);
	pthread_t *thread = fo_xmalloc((size_t)g->ranks * sizeof *thread);
	fo_status st = fo_comm_local_open(g->ranks, NULL, g->comm);
	int started = 1, opened = st == FO_OK ? g->ranks : 0;
	for (int r = 0; r < g->ranks; r++)
		m[r] = (struct member){ .g = g, .rank = r };
	for (; started < g->ranks && st == FO_OK; started += st == FO_OK)
		st = fo_thread_start(&thread[started], run_rank, &m[started], "the thread of a rank");
	if (st != FO_OK && opened)
		fo_comm_abort(g->comm[0]);
	else if (st == FO_OK)
		run_rank(&m[0]);
	for (int r = 1; opened && r < started; r++)
		pthread_join(thread[r], NULL);
	for (int r = 0; r < g->ranks && st == FO_OK; r++)
		st = m[r].st;
	for (int r = 0; r < opened; r++)
		fo_comm_close(g->comm[r]);
	free(thread);
	free(m);
	return st;
}

/* Elements of a part such that a rank receives about so many bytes. */
static int64_t part_of(enum fo_wire wire, int ranks, int64_t bytes)
{
	double n = (double)bytes / sizeof(float), others = ranks - 1;
	if (wire == FO_WIRE_ALL_REDUCE)
		n *= ranks / (2 * others);
	else if (wire == FO_WIRE_ALL_GATHER || wire == FO_WIRE_REDUCE_SCATTER || wire == FO_WIRE_ALL_TO_ALL)
		n /= others;
	return n < 1 ? 1 : (int64_t)n;
}

static fo_status measure_one(int ranks, enum fo_wire wire, int64_t bytes, double seconds, struct fo_limits_row *row)
{
	struct group g = { .ranks = ranks, .wire = wire, .n = part_of(wire, ranks, bytes), .seconds = seconds };
	const size_t n = (size_t)ranks;
	struct fo_comm_call c = { .kind = kind_of(wire), .n = g.n, .dtype = FO_F32 };
	g.bytes = (size_t)g.n * sizeof(float) * (wire == FO_WIRE_ALL_REDUCE ? 1 : n);
	g.comm = fo_xmalloc(n * sizeof *g.comm);
	g.memory = fo_xmalloc(n * sizeof *g.memory);
	g.begin = fo_xmalloc(2 * n * sizeof *g.begin);
	g.end = g.begin + n;
	g.taken = fo_xmalloc(MOST * sizeof *g.taken);
	fo_status st = FO_OK;
	for (size_t r = 0; r < n && st == FO_OK; r++)
		st = fo_pages_new(2 * g.bytes, (void **)&g.memory[r]);
	if (st == FO_OK)
		st = run_group(&g);
	*row = (struct fo_limits_row){ .variant = FO_LINK_VARIANT, .dtype = "f32", .set = "threads", .cold = NAN };
	snprintf(row->kind, sizeof row->kind, "%s", fo_link_kind(wire));
	fo_clock_utc(row->date);
	row->threads = ranks;
	for (int r = 0; r < ranks; r++)
		row->bytes = fmax(row->bytes, (double)fo_comm_wire_bytes(&c, r, ranks));
	row->dim[0] = ranks;
	row->dim[1] = (int64_t)row->bytes;
	row->time = (struct fo_quiet_stats){ .spans = g.calls, .quiet_best_s = NAN, .quiet_median_s = NAN };
	if (st == FO_OK) {
		row->time.best_s = fo_stats_quantile(g.taken, (size_t)g.calls, 0);
		row->time.median_s = fo_stats_quantile(g.taken, (size_t)g.calls, 0.5);
	}
	for (size_t r = 0; r < n; r++)
		fo_pages_free(g.memory[r], 2 * g.bytes);
	free(g.taken);
	free(g.begin);
	free(g.memory);
	free(g.comm);
	return st;
}

static void drop_group(struct fo_limits *m, int ranks)
{
	size_t kept = 0;
	for (size_t i = 0; i < m->rows; i++)
		if (!fo_link_is_row(&m->row[i]) || m->row[i].dim[0] != ranks)
			m->row[kept++] = m->row[i];
	m->rows = kept;
}

fo_status fo_comm_measure(int ranks, double seconds, struct fo_limits *m,
			  void (*progress)(void *ctx, const char *what, double share), void *ctx)
{
	int groups = 0, done = 0;
	for (int g = 2; g <= ranks; g++)
		groups += ranks % g == 0;
	const int kinds = FO_WIRE_ALL_TO_ALL - FO_WIRE_ALL_REDUCE; /* a sender's call is the receiver's */
	double each = seconds / (groups * kinds * SIZES);
	for (int g = 2; g <= ranks; g++) {
		if (ranks % g)
			continue;
		drop_group(m, g);
		for (int w = FO_WIRE_ALL_REDUCE; w <= FO_WIRE_ALL_TO_ALL; w++)
			for (int k = 0; k < SIZES && w != FO_WIRE_SEND; k++, done++) {
				struct fo_limits_row row;
				if (w == FO_WIRE_RECEIVE && g != 2)
					continue;
				if (progress)
					progress(ctx, fo_link_kind((enum fo_wire)w),
						 (double)done / (groups * kinds * SIZES));
				FO_TRY(measure_one(g, (enum fo_wire)w, sizes[k], each, &row));
				fo_limits_row_add(m, &row);
			}
	}
	return FO_OK;
}
