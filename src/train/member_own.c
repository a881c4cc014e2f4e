#define _GNU_SOURCE /* sched_setaffinity */
/* Tasks of a rank that is a process: what it has of its own where threads share rank 0's, and its place among hosts. */
#include "train/member_int.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "pass/pass.h"
#include "record/rank_state.h"
#include "train/train.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the run's folder ---- */

/* How long a new file may take to be seen on another host, as file systems of networks cache what is not there: NFS
 * looks again after at most 3 s by default for files (acregmin) and 30 s for folders (acdirmin), which a name that was
 * never asked for does not wait for. */
#define SEEN_S 5.0

static fo_status read_token(const struct fo_task_folder *t, uint64_t *text)
{
	struct fo_arena a = { 0 };
	char *s;
	size_t n;
	fo_status st = fo_fs_read_regular(&a, t->token, 64, &s, &n);
	unsigned long long v;
	if (st == FO_OK && sscanf(s, "%llx", &v) == 1)
		*text = v;
	fo_arena_fini(&a);
	return st;
}

fo_status fo_member_folder(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	const struct fo_task_folder *t = bytes;
	const int64_t until = fo_now_ns() + (int64_t)(SEEN_S * 1e9);
	uint64_t text = ~t->text;
	(void)n;
	(void)out;
	/* A launcher may start ranks elsewhere. If that is not there, only paths that
	 * count from it cannot be used. */
	free(m->lost);
	m->lost = chdir(t->cwd) ? fo_xstrdup(t->cwd) : NULL;
	errno = 0;
	while (read_token(t, &text) != FO_OK || text != t->text) {
		if (fo_now_ns() > until)
			return fo_hint(fo_fail(FO_EIO,
					       "the run directory '%s' is not the one of rank 0: a file that it wrote "
					       "there is not seen here",
					       t->dir),
				       "all hosts of a job need one run.dir, on a file system that they share");
		nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
	}
	fo_err_clear();
	if (fo_rank_state_open(&m->state, t->dir, m->number, m->ranks) != FO_OK)
		fo_err_clear(); /* nobody sees what it does, and the run goes on */
	fo_rank_state_phase(m->state, FO_RANK_PREPARING);
	return FO_OK;
}

/* ---- the peak ---- */

struct measuring {
	const struct fo_task_peak *what;
	int threads;
	struct fo_peak peak;
};

/* On a thread of its own that may use the whole host: a launcher may have bound this rank to its share. */
static void *measure(void *arg)
{
	struct measuring *m = arg;
	cpu_set_t all;
	memset(&all, 0xff, sizeof all);
	(void)sched_setaffinity(0, sizeof all, &all); /* the system takes away what this process may not use */
	fo_calibrate_find_peak(m->what->precision, m->threads, &m->peak);
	return NULL;
}

void fo_member_measure(int local_ranks, const struct fo_task_peak *what, struct fo_peak *out)
{
	struct measuring m = { .what = what, .threads = what->threads * local_ranks };
	pthread_t thread;
	if (pthread_create(&thread, NULL, measure, &m))
		snprintf(m.peak.source, sizeof m.peak.source, "no thread to measure it on");
	else
		pthread_join(thread, NULL);
	*out = m.peak;
}

fo_status fo_member_peak(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	struct fo_peak peak = { 0 };
	(void)n;
	if (!m->local_rank)
		fo_member_measure(m->local_ranks, bytes, &peak);
	fo_answer_put(out, &peak, sizeof peak);
	return FO_OK;
}

/* ---- text ---- */

static fo_status open_shard(struct fo_shard *s, const struct fo_task_data *t)
{
	FO_TRY(fo_shard_open(s, t->path));
	if (s->checksum == t->checksum)
		return FO_OK;
	fo_fail(FO_EFORMAT, "'%s' is another text than rank 0 has: its checksum is %016llx here and %016llx there",
		t->path, (unsigned long long)s->checksum, (unsigned long long)t->checksum);
	fo_shard_close(s);
	return fo_hint(FO_EFORMAT, "all hosts of a job need the same file there");
}

fo_status fo_member_data(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	(void)n;
	(void)out;
	return open_shard(&m->shard, bytes);
}

/* The ranks of a host find the first of them, which has made the order. */
struct order_entry {
	char host[64];
	int32_t local_rank, spare;
	struct fo_order_place place;
};

fo_status fo_member_order(struct fo_member *m, const struct fo_shard *shard, const struct fo_batch_shape *shape)
{
	struct order_entry own = { .local_rank = m->local_rank, .place.fd = -1 }, *all;
	fo_order_share_close(m->order);
	m->order = NULL;
	snprintf(own.host, sizeof own.host, "%s", m->host);
	if (!m->local_rank && m->local_ranks > 1)
		m->order = fo_order_share_make(fo_order_bytes(shard, shape), m->local_ranks, &own.place);
	all = fo_xmalloc((size_t)m->ranks * sizeof *all);
	const struct fo_comm_call k = fo_comm_bytes(FO_COMM_ALL_GATHER, &own, all, sizeof own, 0);
	fo_status st = fo_comm_call(m->world, &k);
	for (int i = 0; st == FO_OK && m->local_rank && i < m->ranks; i++)
		if (!all[i].local_rank && !strncmp(all[i].host, own.host, sizeof own.host))
			m->order = fo_order_share_join(fo_order_bytes(shard, shape), m->local_rank, &all[i].place);
	free(all);
	return st;
}

static void take_own_rows(const struct fo_program *p, struct fo_batch_shape *shape)
{
	shape->own_rows = p->run.rows;
	shape->first_row = fo_mesh_set(&p->run.mesh) * shape->own_rows;
}

fo_status fo_member_loader(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	const struct fo_task_loader *t = bytes;
	struct fo_batch_shape shape = t->shape;
	(void)n;
	(void)out;
	fo_loader_close(m->loader);
	m->loader = NULL;
	take_own_rows(&m->program, &shape);
	m->ports.rank = 0; /* the loader has no rows of others */
	m->ports.ranks = 1;
	FO_TRY(fo_member_order(m, &m->shard, &t->shape));
	return fo_loader_open_shared(&m->loader, &m->shard, &shape, &t->from, t->pad, m->order);
}

fo_status fo_member_next_batch(struct fo_member *m, int64_t number)
{
	int64_t wait_ns;
	if (!m->loader)
		return FO_OK;
	FO_TRY(fo_loader_next(m->loader, &m->ports.batch, &wait_ns));
	if (m->ports.batch->step != number)
		return fo_fail(FO_EBUG, "the loader is at batch %lld, rank 0's at %lld",
			       (long long)m->ports.batch->step, (long long)number);
	return FO_OK;
}

/* ---- evaluation ---- */

fo_status fo_member_eval_data(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	const struct fo_task_eval_data *t = bytes;
	struct fo_batch_shape shape = t->shape;
	struct fo_shard held_out;
	(void)n;
	(void)out;
	FO_TRY(open_shard(&held_out, &t->from));
	take_own_rows(&m->eval_program, &shape);
	fo_status st = fo_eval_batches(&m->arena, &held_out, &shape, t->pad, t->batches, &m->eval_batch);
	fo_shard_close(&held_out);
	if (st == FO_OK)
		m->eval_batches = t->batches;
	return st;
}

fo_status fo_member_eval_batch(struct fo_member *m, int64_t step)
{
	if (!m->eval_batch)
		return FO_OK;
	if (step < 0 || step >= m->eval_batches)
		return fo_fail(FO_EBUG, "there is no batch %lld of evaluation", (long long)step);
	m->eval_ports.batch = &m->eval_batch[step];
	m->eval_ports.rank = 0;
	m->eval_ports.ranks = 1;
	return FO_OK;
}

/* ---- the clock ---- */

/* The shortest of so many round trips tells the most: half of it is how far the answer may be off. */
enum { TRIPS = 16 };

static fo_status pass(struct fo_comm *c, double *v, int peer, bool send)
{
	return fo_comm_call(c, &(struct fo_comm_call){ .kind = send ? FO_COMM_SEND : FO_COMM_RECV,
						       .from = v,
						       .to = v,
						       .n = 1,
						       .dtype = FO_F64,
						       .peer = peer });
}

/* Nanoseconds travel as fp64, exact up to 2^53: 104 days of uptime. They count from a moment of rank 0's that is sent
 * first, which keeps them small on the one side, and differences are taken on the other. */
fo_status fo_member_ask_clock(struct fo_comm *c, int rank)
{
	int64_t best = INT64_MAX, offset = 0;
	for (int i = 0; i < TRIPS; i++) {
		double there = 0;
		int64_t t0 = fo_now_ns();
		FO_TRY(pass(c, &there, rank, true));
		FO_TRY(pass(c, &there, rank, false));
		int64_t trip = fo_now_ns() - t0;
		if (trip >= best)
			continue;
		best = trip;
		offset = t0 + trip / 2 - (int64_t)there;
	}
	/* Ranks of one host have one clock, which such a difference is no evidence against. */
	if (offset < best / 2 && offset > -best / 2)
		offset = 0;
	double say = (double)offset;
	return pass(c, &say, rank, true);
}

fo_status fo_member_clock(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	double v;
	(void)bytes;
	(void)n;
	(void)out;
	for (int i = 0; i < TRIPS; i++) {
		FO_TRY(pass(m->world, &v, 0, false));
		v = (double)fo_now_ns();
		FO_TRY(pass(m->world, &v, 0, true));
	}
	FO_TRY(pass(m->world, &v, 0, false));
	m->clock_offset_ns = (int64_t)v;
	return FO_OK;
}

/* ---- timelines ---- */

fo_status fo_member_timeline(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	const struct fo_task_timeline *t = bytes;
	struct fo_timeline *own = fo_exec_timeline(m->exec);
	struct fo_arena a = { 0 };
	(void)n;
	(void)out;
	own->whose = (struct fo_timeline_whose){
		.begun_unix_ns = t->begun_unix_ns, .clock_offset_ns = own->origin_ns + m->clock_offset_ns - t->origin_ns
	};
	snprintf(own->whose.host, sizeof own->whose.host, "%s", m->host);
	fo_status st = fo_timeline_write(own, &m->program, fo_timeline_rank_path(&a, t->dir, m->number));
	fo_arena_fini(&a);
	FO_TRY(st);
	/* The file of its program, where that is another than rank 0's. */
	struct fo_lowering low = m->program.run;
	struct fo_program first;
	low.mesh.rank = 0;
	FO_TRY(fo_pass_build(&first, &m->program.model, &low));
	st = fo_timeline_write_program(&m->program, &first, t->dir);
	fo_program_fini(&first);
	return st;
}
