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

/* One rank of a group that is measured; rank 0 keeps the times. */
struct member {
	struct fo_comm *comm;
	enum fo_wire wire;
	int64_t n; /* of the call: elements of one rank's part */
	double seconds;
	float *memory;  /* what it sends, then what it receives */
	size_t bytes;   /* of each half */
	double ahead_s; /* of rank 0's clock */
	double *taken;  /* seconds per call */
	int calls;
	fo_status st;
};

/* What a rank tells the others behind each call, by its own clock set right; rank 0 also whether that was enough. */
struct told {
	double begin, end, enough;
};

static fo_status tell_all(const struct member *m, const struct told *mine, struct told *all)
{
	return fo_comm_call(m->comm, &(struct fo_comm_call){ .kind = FO_COMM_ALL_GATHER,
							     .from = mine,
							     .to = all,
							     .n = sizeof *mine / sizeof(double),
							     .dtype = FO_F64 });
}

static struct fo_comm_call call_of(const struct member *m)
{
	struct fo_comm_call c = { .kind = kind_of(m->wire), .n = m->n, .dtype = FO_F32 };
	c.from = m->memory;
	c.to = (char *)m->memory + m->bytes;
	if (m->wire == FO_WIRE_ALL_REDUCE) /* as gradients are added up */
		c.to = m->memory;
	if (m->wire == FO_WIRE_RECEIVE) {
		c.kind = fo_comm_rank(m->comm) ? FO_COMM_RECV : FO_COMM_SEND;
		c.peer = !fo_comm_rank(m->comm);
	}
	return c;
}

static double now_s(const struct member *m) { return (double)fo_now_ns() * 1e-9 - m->ahead_s; }

static void count(struct member *m, const struct told *all)
{
	const int ranks = fo_comm_ranks(m->comm);
	double last = all[0].begin, end = 0;
	for (int r = 0; r < ranks; r++) {
		last = fmax(last, all[r].begin);
		end += all[r].end / ranks;
	}
	m->taken[m->calls++] = fmax(end - last, 1e-9);
}

static fo_status repeat(struct member *m, struct told *all)
{
	const struct fo_comm_call c = call_of(m);
	const double begin = now_s(m);
	struct told mine = { 0 };
	FO_TRY(fo_comm_call(m->comm, &c)); /* touches the memory */
	do {
		FO_TRY(tell_all(m, &mine, all)); /* nobody goes on before all are there */
		mine.begin = now_s(m);
		FO_TRY(fo_comm_call(m->comm, &c));
		mine.end = now_s(m);
		mine.enough = m->calls + 1 == MOST || (m->calls + 1 >= LEAST && mine.end - begin > m->seconds);
		FO_TRY(tell_all(m, &mine, all));
		count(m, all);
	} while (all[0].enough == 0);
	return FO_OK;
}

static void *run_member(void *arg)
{
	struct member *m = arg;
	struct told *all = fo_xmalloc((size_t)fo_comm_ranks(m->comm) * sizeof *all);
	m->st = repeat(m, all);
	if (m->st != FO_OK)
		fo_comm_abort(m->comm);
	free(all);
	return NULL;
}

/* Ranks of this process: a thread each. */
static fo_status run_threads(int ranks, struct member *m)
{
	const size_t n = (size_t)ranks;
	pthread_t *thread = fo_xmalloc(n * sizeof *thread);
	struct fo_comm **comm = fo_xmalloc(n * sizeof *comm);
	fo_status st = fo_comm_local_open(ranks, NULL, comm);
	int started = 1, opened = st == FO_OK ? ranks : 0;
	for (int r = 0; r < opened; r++)
		m[r].comm = comm[r];
	for (; started < ranks && st == FO_OK; started += st == FO_OK)
		st = fo_thread_start(&thread[started], run_member, &m[started], "the thread of a rank");
	if (st != FO_OK && opened)
		fo_comm_abort(comm[0]);
	else if (st == FO_OK)
		run_member(&m[0]);
	for (int r = 1; opened && r < started; r++)
		pthread_join(thread[r], NULL);
	for (int r = 0; r < ranks && st == FO_OK; r++)
		st = m[r].st;
	for (int r = 0; r < opened; r++)
		fo_comm_close(comm[r]);
	free(comm);
	free(thread);
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

/* What is measured: a kind of call of about so many bytes in groups of so many ranks. */
struct what {
	int ranks, apart; /* apart: 0 on one host (cost/links.h) */
	enum fo_wire wire;
	int64_t bytes;
	double seconds;
};

static fo_status member_new(struct member *m, const struct what *w)
{
	*m = (struct member){ .wire = w->wire, .n = part_of(w->wire, w->ranks, w->bytes), .seconds = w->seconds };
	m->bytes = (size_t)m->n * sizeof(float) * (w->wire == FO_WIRE_ALL_REDUCE ? 1 : (size_t)w->ranks);
	m->taken = fo_xmalloc(MOST * sizeof *m->taken);
	return fo_pages_new(2 * m->bytes, (void **)&m->memory);
}

static void member_free(struct member *m)
{
	if (m->memory)
		fo_pages_free(m->memory, 2 * m->bytes);
	free(m->taken);
}

/* The profile's row of what rank 0 has measured. */
static void fill_row(const struct what *w, struct member *m, const char *transport, struct fo_limits_row *row)
{
	struct fo_comm_call c = { .kind = kind_of(w->wire), .n = m->n, .dtype = FO_F32 };
	*row = (struct fo_limits_row){ .variant = FO_LINK_VARIANT, .dtype = "f32", .cold = NAN };
	snprintf(row->set, sizeof row->set, "%s", transport);
	snprintf(row->kind, sizeof row->kind, "%s", fo_link_kind(w->wire));
	fo_clock_utc(row->date);
	row->threads = w->ranks;
	for (int r = 0; r < w->ranks; r++)
		row->bytes = fmax(row->bytes, (double)fo_comm_wire_bytes(&c, r, w->ranks));
	row->dim[0] = w->ranks;
	row->dim[1] = (int64_t)row->bytes;
	row->dim[2] = w->apart;
	row->time = (struct fo_quiet_stats){ .spans = m->calls, .quiet_best_s = NAN, .quiet_median_s = NAN };
	row->time.best_s = fo_stats_quantile(m->taken, (size_t)m->calls, 0);
	row->time.median_s = fo_stats_quantile(m->taken, (size_t)m->calls, 0.5);
}

static fo_status measure_threads(const struct what *w, struct fo_limits_row *row)
{
	struct member *m = fo_xmalloc((size_t)w->ranks * sizeof *m);
	fo_status st = FO_OK;
	for (int r = 0; r < w->ranks && st == FO_OK; r++)
		st = member_new(&m[r], w);
	if (st == FO_OK)
		st = run_threads(w->ranks, m);
	if (st == FO_OK)
		fill_row(w, &m[0], FO_LINK_THREADS, row);
	for (int r = 0; r < w->ranks; r++)
		member_free(&m[r]);
	free(m);
	return st;
}

/* One process of a group: every one of the group calls it. */
static fo_status measure_processes(const struct what *w, struct fo_comm *group, double ahead_s,
				   struct fo_limits_row *row)
{
	struct member m;
	fo_status st = member_new(&m, w);
	m.comm = group;
	m.ahead_s = ahead_s;
	if (st == FO_OK) {
		run_member(&m);
		st = m.st;
	}
	if (st == FO_OK)
		fill_row(w, &m, FO_LINK_MPI, row);
	member_free(&m);
	return st;
}

static void drop_group(struct fo_limits *m, int ranks, const char *transport)
{
	size_t kept = 0;
	for (size_t i = 0; i < m->rows; i++)
		if (!fo_link_is_row(&m->row[i]) || m->row[i].dim[0] != ranks || strcmp(m->row[i].set, transport))
			m->row[kept++] = m->row[i];
	m->rows = kept;
}

void fo_comm_measure_replace(struct fo_limits *m, const struct fo_limits *from)
{
	for (size_t i = 0; i < from->rows; i++)
		if (fo_link_is_row(&from->row[i]))
			drop_group(m, (int)from->row[i].dim[0], from->row[i].set);
	for (size_t i = 0; i < from->rows; i++)
		if (fo_link_is_row(&from->row[i]))
			fo_limits_row_add(m, &from->row[i]);
}

/* How far this rank's clock is ahead of rank 0's: half way between sending and the answer of the quickest of some. */
enum { PINGS = 20 };
static fo_status clock_ahead(struct fo_comm *c, double *ahead_s)
{
	double best = INFINITY, x = 0;
	*ahead_s = 0;
	for (int r = 1; r < fo_comm_ranks(c); r++)
		for (int k = 0; k < PINGS; k++) {
			const bool asks = fo_comm_rank(c) == r;
			const double begin = (double)fo_now_ns() * 1e-9;
			struct fo_comm_call to = {
				.kind = FO_COMM_SEND, .from = &x, .n = 1, .dtype = FO_F64, .peer = asks ? 0 : r
			};
			struct fo_comm_call from = {
				.kind = FO_COMM_RECV, .to = &x, .n = 1, .dtype = FO_F64, .peer = asks ? 0 : r
			};
			if (!asks && fo_comm_rank(c))
				continue;
			FO_TRY(fo_comm_call(c, asks ? &to : &from));
			if (!asks)
				x = (double)fo_now_ns() * 1e-9;
			FO_TRY(fo_comm_call(c, asks ? &from : &to));
			const double end = (double)fo_now_ns() * 1e-9;
			if (!asks || end - begin > best)
				continue;
			best = end - begin;
			*ahead_s = (begin + end) / 2 - x;
		}
	return FO_OK;
}

/* How a group of so many ranks is measured: threads, or this process's place in a world. */
struct over {
	struct fo_comm *world; /* NULL: threads of this process */
	bool one_host;         /* and so one clock */
	struct fo_limits *m;   /* NULL: this rank keeps no rows */
	void (*progress)(void *ctx, const char *what, double share);
	void *ctx;
	double each_s;
	int done, all;
};

/* apart: the ranks of a group are numbered so far apart. */
static fo_status measure_group(struct over *o, int ranks, int apart)
{
	struct fo_comm *group = NULL;
	double ahead_s = 0;
	fo_status st = FO_OK;
	const int rank = o->world ? fo_comm_rank(o->world) : 0;
	if (o->world)
		FO_TRY(fo_comm_split(o->world, rank / (ranks * apart) * apart + rank % apart, &group));
	if (group && !o->one_host)
		st = clock_ahead(group, &ahead_s);
	for (int wire = FO_WIRE_ALL_REDUCE; wire <= FO_WIRE_ALL_TO_ALL; wire++)
		for (int k = 0; k < SIZES && wire != FO_WIRE_SEND && st == FO_OK; k++, o->done++) {
			const struct what w = { ranks, o->one_host ? 0 : apart, (enum fo_wire)wire, sizes[k],
						o->each_s };
			struct fo_limits_row row;
			if (wire == FO_WIRE_RECEIVE && ranks != 2)
				continue;
			if (o->progress)
				o->progress(o->ctx, fo_link_kind(w.wire), (double)o->done / o->all);
			st = group ? measure_processes(&w, group, ahead_s, &row) : measure_threads(&w, &row);
			if (st == FO_OK && o->m)
				fo_limits_row_add(o->m, &row);
		}
	fo_comm_close(group);
	return st;
}

/* On several hosts a group of some ranks may lie on one or spread over many: groups of neighbours are measured, and
 * those of ranks 2, 4 ... apart as long as they divide the job. All groups of a kind call at once, as in a run. */
static fo_status measure_groups(struct over *o, int ranks, double seconds)
{
	const int kinds = FO_WIRE_ALL_TO_ALL - FO_WIRE_ALL_REDUCE; /* a sender's call is the receiver's */
	int groups = 0;
	for (int g = 2; g <= ranks; g++)
		for (int apart = 1; ranks % (g * apart) == 0 && (apart == 1 || !o->one_host); apart *= 2)
			groups++;
	o->all = groups * kinds * SIZES;
	o->each_s = seconds / o->all;
	for (int g = 2; g <= ranks; g++) {
		if (ranks % g == 0 && o->m)
			drop_group(o->m, g, o->world ? FO_LINK_MPI : FO_LINK_THREADS);
		for (int apart = 1; ranks % (g * apart) == 0 && (apart == 1 || !o->one_host); apart *= 2)
			FO_TRY(measure_group(o, g, apart));
	}
	return FO_OK;
}

fo_status fo_comm_measure(int ranks, double seconds, struct fo_limits *m,
			  void (*progress)(void *ctx, const char *what, double share), void *ctx)
{
	struct over o = { .one_host = true, .m = m, .progress = progress, .ctx = ctx };
	return measure_groups(&o, ranks, seconds);
}

fo_status fo_comm_measure_world(struct fo_comm *world, bool one_host, double seconds, struct fo_limits *m,
				void (*progress)(void *ctx, const char *what, double share), void *ctx)
{
	struct over o = { .world = world, .one_host = one_host, .m = m, .progress = progress, .ctx = ctx };
	return measure_groups(&o, fo_comm_ranks(world), seconds);
}
