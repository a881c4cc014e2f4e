/* The job of processes that MPI started: its beginning and end, groups, and news of ranks that gave up (mpi.h).
 * Calls are in mpi_op.c. */
#include "comm/mpi_int.h"

#include "base/clock.h"
#include "base/count.h"
#include "base/mem.h"
#include "program/program.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct fo_mpi_end *of(struct fo_comm *c) { return (struct fo_mpi_end *)c; }

/* ---- the end of a job ---- */

static fo_status alive(const struct fo_mpi_job *job)
{
	if (!atomic_load(&job->ended))
		return FO_OK;
	return fo_fail(FO_ECOMM, "rank %d of %d: %s", job->world.rank, job->world.ranks, job->why);
}

/* The lock is held. */
static bool end_job(struct fo_mpi_job *job, const char *why)
{
	if (atomic_load(&job->ended))
		return false;
	snprintf(job->why, sizeof job->why, "%s", why);
	atomic_store(&job->ended, true);
	return true;
}

enum { NEWS_TAG = 0, NEWS_NS = 1000000 };
static fo_status wait_for_news(struct fo_mpi_job *job)
{
	int error = job->mpi->receive(job->news, job->control, job->note, sizeof job->note, -1, NEWS_TAG);
	return error ? fo_mpi_failed(job, error, "wait for news of other ranks") : FO_OK;
}

/* Looks once in NEWS_NS whether another rank has given up. Whoever comes while one looks goes on. */
static void look_for_news(struct fo_mpi_job *job)
{
	const int64_t now = fo_now_ns();
	struct fo_mpi_fault fault;
	bool came = false;
	if (now - atomic_load(&job->asked_ns) < NEWS_NS || atomic_load(&job->ended) ||
	    pthread_mutex_trylock(&job->lock))
		return;
	atomic_store(&job->asked_ns, now);
	if (!job->mpi->test(job->news, &came, &fault) && came) {
		job->note[sizeof job->note - 1] = 0;
		end_job(job, job->note);
	}
	pthread_mutex_unlock(&job->lock);
}

/* Tells every other rank. A rank that does not take it is not waited for: it hangs, or has gone. */
#define TELL_S 0.5
static void tell(struct fo_mpi_job *job)
{
	const int ranks = job->world.ranks;
	const int64_t until = fo_now_ns() + (int64_t)(TELL_S * 1e9);
	struct fo_mpi_batch *b = job->mpi->batch_new(ranks);
	struct fo_mpi_fault fault;
	bool over = false;
	for (int r = 0; r < ranks && b; r++)
		if (r != job->world.rank && job->mpi->send(b, job->control, job->why, sizeof job->why, r, NEWS_TAG))
			break;
	while (b && !over && fo_now_ns() < until && !job->mpi->test(b, &over, &fault))
		sched_yield();
	if (over)
		job->mpi->batch_free(b); /* else MPI still reads from it */
}

/* Whoever made calls frees their memory next. Messages that have begun to move are over within that time, unless the
 * other rank hangs; those that have not are never read. */
#define DRAIN_S 0.5
static void drain(struct fo_mpi_end *e, int64_t until_ns)
{
	pthread_mutex_lock(&e->lock);
	fo_mpi_end_drain(e, until_ns);
	pthread_mutex_unlock(&e->lock);
}

static int64_t drain_until(void) { return fo_now_ns() + (int64_t)(DRAIN_S * 1e9); }

static void abort_job(struct fo_comm *c)
{
	struct fo_mpi_job *job = of(c)->job;
	char why[96];
	snprintf(why, sizeof why, "rank %d ended the job", job->world.rank);
	pthread_mutex_lock(&job->lock);
	bool first = end_job(job, why);
	pthread_mutex_unlock(&job->lock);
	if (first)
		tell(job);
	const int64_t until = drain_until();
	pthread_mutex_lock(&job->lock);
	for (struct fo_mpi_end *e = job->ends; e; e = e->next)
		drain(e, until);
	pthread_mutex_unlock(&job->lock);
}

static fo_status check(struct fo_comm *c)
{
	look_for_news(of(c)->job);
	return alive(of(c)->job);
}

/* ---- calls ---- */

static fo_status start(struct fo_comm *c, const struct fo_comm_call *k, struct fo_comm_request *r)
{
	struct fo_mpi_end *e = of(c);
	struct fo_mpi_op *o = NULL;
	pthread_mutex_lock(&e->lock);
	fo_status st = alive(e->job);
	if (st == FO_OK)
		st = fo_mpi_op_start(e, k, &o);
	pthread_mutex_unlock(&e->lock);
	*r = (struct fo_comm_request){ .state = o };
	return st;
}

/* A delay at random, seldom a long one. */
static void shake(struct fo_mpi_end *e)
{
	if (!e->shake)
		return;
	e->shake = fo_rng_u64(e->shake, 0);
	if (e->shake % 4)
		return;
	struct timespec t = { .tv_nsec = (long)(e->shake >> 8 & (e->shake % 64 ? 0x3fff : 0x1fffff)) };
	nanosleep(&t, NULL);
}

static fo_status test(struct fo_comm *c, struct fo_comm_request *r, bool *done)
{
	struct fo_mpi_end *e = of(c);
	bool moved = false;
	look_for_news(e->job);
	shake(e);
	pthread_mutex_lock(&e->lock);
	fo_status st = alive(e->job);
	if (st == FO_OK)
		st = fo_mpi_op_test(e, r->state, &moved, done);
	pthread_mutex_unlock(&e->lock);
	FO_TRY(st);
	r->phase = (r->phase + moved) & 0xffff;
	if (*done)
		*r = (struct fo_comm_request){ 0 };
	return FO_OK;
}

/* ---- beginning, groups, end ---- */

/* MPI in this process, under the lock. */
static struct {
	pthread_mutex_t lock;
	const struct fo_mpi_plugin *mpi; /* NULL: not started */
	struct fo_mpi_world world;
	int worlds; /* open */
	bool over;
} process = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The last world that is closed ends MPI, unless it has ended badly: that needs all ranks. */
static void close_world(struct fo_mpi_job *job)
{
	const bool good = !atomic_load(&job->ended);
	pthread_mutex_lock(&process.lock);
	const bool last = !--process.worlds;
	if (good) {
		struct fo_mpi_fault fault;
		bool over = false;
		job->mpi->cancel(job->news);
		while (!over && !job->mpi->test(job->news, &over, &fault)) /* news that come now come whole */
			sched_yield();
		job->mpi->batch_free(job->news);
		job->mpi->release(job->control);
		job->mpi->release(job->world.comm);
	}
	if (last)
		process.over = true;
	if (last && good)
		job->mpi->finish();
	pthread_mutex_unlock(&process.lock);
	if (!good)
		return; /* MPI may still write to what it was given */
	pthread_mutex_destroy(&job->lock);
	free(job);
}

static void close_end(struct fo_comm *c)
{
	struct fo_mpi_end *e = of(c);
	struct fo_mpi_job *job = e->job;
	const bool world = e->comm == job->world.comm, ended = atomic_load(&job->ended);
	pthread_mutex_lock(&job->lock);
	for (struct fo_mpi_end **p = &job->ends; *p; p = &(*p)->next)
		if (*p == e) {
			*p = e->next;
			break;
		}
	pthread_mutex_unlock(&job->lock);
	if (ended)
		drain(e, drain_until());
	else if (!world)
		job->mpi->release(e->comm);
	fo_mpi_end_free(e);
	if (world)
		close_world(job);
}

static fo_status split(struct fo_comm *c, int colour, struct fo_comm **out);
static const struct fo_comm_transport transport = {
	.name = "MPI",
	.accumulates = true,
	.narrows = true,
	.start = start,
	.test = test,
	.split = split,
	.check = check,
	.abort = abort_job,
	.close = close_end,
};

static struct fo_mpi_end *new_end(struct fo_mpi_job *job, void *comm, int rank, int ranks)
{
	struct fo_mpi_end *e = fo_xmalloc(sizeof *e);
	*e = (struct fo_mpi_end){ .base = { .transport = &transport, .rank = rank, .ranks = ranks },
				  .job = job,
				  .comm = comm };
	e->rank_of = fo_xmalloc((size_t)ranks * sizeof *e->rank_of);
	e->sent = fo_xmalloc((size_t)ranks * sizeof *e->sent);
	e->got = fo_xmalloc((size_t)ranks * sizeof *e->got);
	pthread_mutex_init(&e->lock, NULL);
	if (job->options.shake)
		e->shake = fo_rng_u64(job->options.shake, (uint64_t)job->world.rank);
	pthread_mutex_lock(&job->lock);
	e->next = job->ends;
	job->ends = e;
	pthread_mutex_unlock(&job->lock);
	return e;
}

static fo_status split(struct fo_comm *c, int colour, struct fo_comm **out)
{
	struct fo_mpi_job *job = of(c)->job;
	void *comm;
	int rank, ranks;
	FO_TRY(alive(job));
	int error = job->mpi->split(of(c)->comm, colour, &comm, &rank, &ranks);
	if (error)
		return fo_mpi_failed(job, error, "split a group of ranks");
	struct fo_mpi_end *e = new_end(job, comm, rank, ranks);
	const int32_t self = job->world.rank;
	fo_status st = fo_comm_call(
		&e->base,
		&(struct fo_comm_call){
			.kind = FO_COMM_ALL_GATHER, .from = &self, .to = e->rank_of, .n = 1, .dtype = FO_I32 });
	if (st != FO_OK) {
		fo_comm_close(&e->base);
		return st;
	}
	memset(e->base.received, 0, sizeof e->base.received); /* what the group's user calls counts alone */
	*out = &e->base;
	return FO_OK;
}
_Static_assert(sizeof(int) == sizeof(int32_t), "ranks travel as I32");

/* Does MPI find what the launcher said? A plugin for another MPI than the launcher's finds itself alone. */
static fo_status compare(const struct fo_mpi_world *w, const struct fo_comm_launch *l)
{
	const char *made_for = process.mpi->made_for;
	if (w->one_thread)
		return fo_hint(
			fo_fail(FO_EUNSUPPORTED,
				"%s allows calls from one thread alone, and a rank's thread of communication needs to "
				"call it, too",
				made_for),
			"build MPI with support for threads (MPI_THREAD_SERIALIZED or more)");
	if (l->ranks == w->ranks)
		return FO_OK;
	return fo_hint(
		fo_fail(FO_ECOMM, "%s started %d processes, and MPI (%s) finds %d", l->by ? l->by : "no launcher",
			l->ranks, made_for, w->ranks),
		"the launcher and the plugin need the same MPI: start with that one's mpirun, or name a plugin that "
		"was made for this one in FLATOUT_MPI_PLUGIN");
}

/* The lock of the process is held. */
static fo_status start_mpi(void)
{
	struct fo_comm_launch l;
	const char *why;
	if (process.over)
		return fo_fail(FO_EBUG, "MPI has ended: it is started once in a process");
	if (process.mpi)
		return FO_OK;
	FO_TRY(fo_comm_launched(&l));
	const struct fo_mpi_plugin *mpi = fo_mpi_load(&why);
	if (!mpi)
		return fo_hint(fo_fail(FO_EUNSUPPORTED, "no MPI for %d ranks: %s", l.ranks, why),
			       "install Open MPI with its header and build again, or name the plugin's file in "
			       "FLATOUT_MPI_PLUGIN (docs/install.md)");
	process.mpi = mpi;
	process.world.rank = l.rank;
	process.world.ranks = l.ranks;
	process.over = true; /* until all is well */
	int error = mpi->start(&process.world);
	if (error)
		return fo_mpi_failed(&(struct fo_mpi_job){ .mpi = mpi, .world = process.world }, error, "start");
	FO_TRY(compare(&process.world, &l));
	process.over = false;
	return FO_OK;
}

/* Communicators for calls and for news. The lock of the process is held. */
static fo_status new_job(const struct fo_comm_mpi *options, struct fo_mpi_job **out)
{
	struct fo_mpi_job *job = *out = fo_xmalloc(sizeof *job);
	pthread_mutex_init(&job->lock, NULL);
	job->mpi = process.mpi;
	job->world = process.world;
	if (options)
		job->options = *options;
	int error = job->mpi->copy(process.world.comm, &job->world.comm);
	if (!error)
		error = job->mpi->copy(process.world.comm, &job->control);
	if (error)
		return fo_mpi_failed(job, error, "copy the group of all ranks");
	job->news = job->mpi->batch_new(1);
	if (!job->news)
		return fo_fail(FO_ENOMEM, "no memory for messages of MPI");
	return wait_for_news(job);
}

fo_status fo_comm_mpi_open(const struct fo_comm_mpi *options, struct fo_comm **world)
{
	struct fo_mpi_job *job = NULL;
	pthread_mutex_lock(&process.lock);
	fo_status st = start_mpi();
	if (st == FO_OK)
		st = new_job(options, &job);
	process.worlds += st == FO_OK;
	pthread_mutex_unlock(&process.lock);
	if (st != FO_OK) {
		free(job);
		return st;
	}
	struct fo_mpi_end *e = new_end(job, job->world.comm, job->world.rank, job->world.ranks);
	for (int r = 0; r < job->world.ranks; r++)
		e->rank_of[r] = r;
	*world = &e->base;
	return FO_OK;
}

struct fo_comm_where fo_comm_mpi_where(const struct fo_comm *world)
{
	const struct fo_mpi_world *w = &((const struct fo_mpi_end *)world)->job->world;
	struct fo_comm_where out = { w->local_rank, w->local_ranks, w->node, w->nodes, "" };
	if (gethostname(out.host, sizeof out.host - 1))
		*out.host = 0;
	return out;
}
