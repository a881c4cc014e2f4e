/* Ranks as threads of this process: a task is handed over under a lock. */
#include "train/carrier.h"

#include "base/mem.h"
#include "base/thread.h"
#include "comm/local.h"
#include "hw/topology.h"

#include <stdlib.h>

struct threads;
struct seat { /* of a rank but the first */
	struct threads *of;
	int number;
	pthread_t thread;
	bool started, bind;
};

struct threads {
	struct fo_carrier c;
	struct seat *seat;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t changed;
	enum fo_task task;
	const void *bytes;
	size_t n;
	int64_t tasks; /* begun so far */
	int busy;      /* ranks that are not done with the newest one */
	bool quit;
};

static struct threads *of(struct fo_carrier *c) { return (struct threads *)(void *)c; }

static void *rank_thread(void *arg)
{
	struct seat *seat = arg;
	struct threads *t = seat->of;
	struct fo_member *m = &t->c.member[seat->number];
	int64_t seen = 0;
	if (seat->bind)
		(void)fo_cpus_bind(&m->cpus); /* where the system refuses, it goes on unbound */
	pthread_mutex_lock(&t->lock);
	for (;;) {
		while (t->tasks == seen && !t->quit)
			pthread_cond_wait(&t->changed, &t->lock);
		if (t->quit)
			break;
		seen = t->tasks;
		enum fo_task task = t->task;
		const void *bytes = t->bytes;
		size_t n = t->n;
		pthread_mutex_unlock(&t->lock);
		(void)fo_member_work(m, task, bytes, n, &t->c.answer[seat->number]);
		fo_comm_idle(m->world, true); /* before the next task it calls nothing */
		pthread_mutex_lock(&t->lock);
		t->busy--;
		pthread_cond_broadcast(&t->changed);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

static fo_status begin(struct fo_carrier *c, enum fo_task task, const void *bytes, size_t n)
{
	struct threads *t = of(c);
	if (fo_task_in_turn(task)) {
		fo_status st = FO_OK;
		for (int i = 1; i < c->ranks; i++)
			c->answer[i].error.st = FO_OK;
		for (int i = 1; i < c->ranks && st == FO_OK; i++)
			st = fo_member_work(&c->member[i], task, bytes, n, &c->answer[i]);
		/* The error is in the answer; this thread goes on with rank 0's device. */
		return c->self->cuda ? fo_cuda_attach(c->self->cuda) : FO_OK;
	}
	pthread_mutex_lock(&t->lock);
	t->task = task;
	t->bytes = bytes;
	t->n = n;
	t->tasks++;
	for (int i = 0; i < c->ranks; i++)
		fo_comm_idle(c->member[i].world, false);
	for (int i = 1; i < c->ranks; i++)
		t->busy += t->seat[i].started;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
	return FO_OK;
}

static fo_status end(struct fo_carrier *c)
{
	struct threads *t = of(c);
	fo_comm_idle(c->self->world, true);
	pthread_mutex_lock(&t->lock);
	while (t->busy)
		pthread_cond_wait(&t->changed, &t->lock);
	pthread_mutex_unlock(&t->lock);
	const int cause = fo_carrier_cause(c->answer, c->ranks);
	if (cause < 0)
		return FO_OK;
	fo_member_name(&c->member[cause], &c->answer[cause].error);
	return fo_err_raise(&c->answer[cause].error);
}

static void close_threads(struct fo_carrier *c)
{
	struct threads *t = of(c);
	/* A rank that failed has said so; the others end because the run does. */
	const fo_status over = c->over == FO_OK || c->over == FO_EINTERRUPT ? c->over : FO_ECOMM;
	pthread_mutex_lock(&t->lock);
	t->quit = true;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
	for (int i = 1; i < c->ranks; i++)
		if (t->seat[i].started)
			pthread_join(t->seat[i].thread, NULL);
	for (int i = 0; i < c->ranks; i++) {
		if (i) /* rank 0's is the caller's */
			fo_rank_state_close(c->member[i].state, over);
		fo_comm_close(c->member[i].world);
		fo_comm_close(c->member[i].tasks);
	}
	pthread_cond_destroy(&t->changed);
	pthread_mutex_destroy(&t->lock);
	free(c->member);
	free(c->answer);
	free(t->seat);
	free(t);
}

static const struct fo_carrier_way way = { begin, end, close_threads };

fo_status fo_carrier_threads(struct fo_carrier **out, int ranks, const struct fo_comm_local *local,
			     const struct fo_cpus *share, fo_port_fn *port)
{
	struct threads *t = fo_xmalloc(sizeof *t);
	struct fo_member *member = fo_xmalloc((size_t)ranks * sizeof *member);
	struct fo_comm **world = fo_xmalloc((size_t)ranks * sizeof *world),
		       **tasks = fo_xmalloc((size_t)ranks * sizeof *tasks);
	*out = &t->c;
	t->c = (struct fo_carrier){ .way = &way, .ranks = ranks, .self = member, .member = member };
	t->c.answer = fo_xmalloc((size_t)ranks * sizeof *t->c.answer);
	t->seat = fo_xmalloc((size_t)ranks * sizeof *t->seat);
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->changed, NULL);
	fo_status st = fo_comm_local_open(ranks, local, world);
	if (st == FO_OK)
		st = fo_comm_local_open(ranks, NULL, tasks);
	for (int i = 0; i < ranks; i++) {
		member[i] = (struct fo_member){
			.number = i, .ranks = ranks, .port = port, .world = world[i], .tasks = tasks[i]
		};
		t->seat[i] = (struct seat){ .of = t, .number = i, .bind = share && fo_cpus_count(&share[i]) };
		if (share)
			member[i].cpus = share[i];
		else
			fo_cpus_here(&member[i].cpus);
		if (st != FO_OK || !i)
			continue;
		st = fo_thread_start(&t->seat[i].thread, rank_thread, &t->seat[i], "the thread of a rank");
		t->seat[i].started = st == FO_OK;
	}
	free(world);
	free(tasks);
	return st;
}
