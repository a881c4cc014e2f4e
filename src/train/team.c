#include "train/team.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/thread.h"
#include "comm/local.h"
#include "pass/pass.h"
#include "program/roles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum task { NOTHING, OPEN, STEP, FIND_FAULT, QUIT };

struct rank {
	struct fo_team *team;
	int number;
	struct fo_comm *world;
	struct fo_links links;
	/* Of all but rank 0. */
	pthread_t thread;
	bool started;
	struct fo_program program;
	struct fo_store *store;
	struct fo_exec *exec;
	struct fo_ports ports;
	struct fo_exec_fault fault;
	struct fo_err error; /* of the newest task; st FO_OK: none */
};

struct fo_team {
	const struct fo_program *first;
	struct fo_exec_options options;
	fo_port_fn *port;
	int ranks;
	struct rank *rank;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t changed;
	enum task task;
	int64_t tasks; /* begun so far */
	int busy;      /* ranks that are not done with the newest one */
	int32_t step;
};

int fo_team_threads(int threads, int ranks) { return threads / ranks > 1 ? threads / ranks : 1; }

/* ---- a rank's thread ---- */

static fo_status work(struct rank *r, enum task task, int32_t step)
{
	switch (task) {
	case OPEN: return fo_links_open(&r->links, r->world, &r->program);
	case STEP: return fo_exec_step(r->exec, step);
	case FIND_FAULT: return fo_exec_find_fault(r->exec, &r->fault);
	case NOTHING:
	case QUIT: break;
	}
	return FO_OK;
}

static void close_rank(struct rank *r)
{
	fo_exec_free(r->exec);
	fo_store_free(r->store);
	fo_program_fini(&r->program);
}

static void *rank_thread(void *arg)
{
	struct rank *r = arg;
	struct fo_team *t = r->team;
	int64_t seen = 0;
	for (;;) {
		pthread_mutex_lock(&t->lock);
		while (t->tasks == seen)
			pthread_cond_wait(&t->changed, &t->lock);
		seen = t->tasks;
		enum task task = t->task;
		int32_t step = t->step;
		pthread_mutex_unlock(&t->lock);
		fo_status st = work(r, task, step);
		r->error.st = FO_OK;
		if (st != FO_OK) {
			fo_err_save(&r->error, st);
			fo_comm_abort(r->world); /* nobody waits for this rank */
		}
		fo_comm_idle(r->world, true); /* before the next task it calls nothing */
		if (task == QUIT)
			close_rank(r);
		pthread_mutex_lock(&t->lock);
		t->busy--;
		pthread_cond_broadcast(&t->changed);
		pthread_mutex_unlock(&t->lock);
		if (task == QUIT)
			return NULL;
	}
}

/* ---- tasks for all ---- */

static void begin(struct fo_team *t, enum task task, int32_t step)
{
	pthread_mutex_lock(&t->lock);
	t->task = task;
	t->step = step;
	t->tasks++;
	for (int i = 0; i < t->ranks; i++)
		fo_comm_idle(t->rank[i].world, false);
	for (int i = 1; i < t->ranks; i++)
		t->busy += t->rank[i].started;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
}

/* Waits for all. st: what rank 0's part returned. A rank that fails ends the others, whose errors say only that: the
 * error that is no such echo is the cause. */
static fo_status end(struct fo_team *t, fo_status st)
{
	struct fo_err *first = &t->rank[0].error;
	const struct rank *cause = NULL;
	first->st = FO_OK;
	if (st != FO_OK) {
		fo_err_save(first, st);
		fo_comm_abort(t->rank[0].world);
	}
	fo_comm_idle(t->rank[0].world, true);
	pthread_mutex_lock(&t->lock);
	while (t->busy)
		pthread_cond_wait(&t->changed, &t->lock);
	pthread_mutex_unlock(&t->lock);
	for (int i = 0; i < t->ranks; i++) {
		const struct rank *r = &t->rank[i];
		if (r->error.st != FO_OK && (!cause || (cause->error.st == FO_ECOMM && r->error.st != FO_ECOMM)))
			cause = r;
	}
	if (!cause)
		return FO_OK;
	st = fo_err_raise(&cause->error);
	return fo_wrap(st, "rank %d of %d", cause->number, t->ranks);
}

/* ---- a job's life ---- */

static fo_status build_rank(struct rank *r)
{
	struct fo_lowering low = r->team->first->run;
	low.mesh.rank = r->number;
	r->ports.rank = r->number;
	r->ports.ranks = r->team->ranks;
	return fo_pass_build(&r->program, &r->team->first->model, &low);
}

static fo_status make_rank(struct rank *r)
{
	struct fo_exec_options o = r->team->options;
	o.links = &r->links;
	o.state = NULL; /* rank 0's */
	FO_TRY(fo_store_new(&r->store, &r->program));
	return fo_exec_new(&r->exec, &r->program, r->store, &o, r->team->port, &r->ports, NULL);
}

/* On this thread, one rank after the other: what lowering and planning took and gave back serves the next rank, where
 * threads of their own would each keep as much. */
static fo_status for_each(struct fo_team *t, fo_status (*fn)(struct rank *r))
{
	for (int i = 1; i < t->ranks; i++) {
		fo_status st = fn(&t->rank[i]);
		if (st != FO_OK)
			return fo_wrap(st, "rank %d of %d", i, t->ranks);
	}
	return FO_OK;
}

/* Programs that do not fit together would hang, or train something else. */
static fo_status check_together(const struct fo_team *t)
{
	struct fo_roles roles = { 0 };
	fo_status st = FO_OK;
	for (int i = 0; i < t->ranks && st == FO_OK; i++) {
		bool kept;
		st = fo_roles_add(&roles, i ? &t->rank[i].program : t->first, &kept);
	}
	if (st == FO_OK)
		st = fo_roles_verify(&roles, t->first->run.rows * t->ranks);
	fo_roles_fini(&roles);
	return st;
}

fo_status fo_team_open(struct fo_team **out, const struct fo_program *first, const struct fo_exec_options *o,
		       fo_port_fn *port)
{
	struct fo_team *t = *out = fo_xmalloc(sizeof *t);
	t->first = first;
	t->options = *o;
	t->port = port;
	t->ranks = first->ranks;
	t->rank = fo_xmalloc((size_t)t->ranks * sizeof *t->rank);
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->changed, NULL);
	struct fo_comm **world = fo_xmalloc((size_t)t->ranks * sizeof *world);
	fo_status st = fo_comm_local_open(t->ranks, &o->local, world);
	for (int i = 0; i < t->ranks; i++) {
		t->rank[i] = (struct rank){ .team = t, .number = i, .world = st == FO_OK ? world[i] : NULL };
		if (st != FO_OK || !i)
			continue;
		st = fo_thread_start(&t->rank[i].thread, rank_thread, &t->rank[i], "the thread of a rank");
		t->rank[i].started = st == FO_OK;
		for (int k = i + 1; st != FO_OK && k < t->ranks; k++)
			fo_comm_close(world[k]);
	}
	free(world);
	FO_TRY(st);
	FO_TRY(for_each(t, build_rank));
	FO_TRY(check_together(t));
	begin(t, OPEN, 0);
	FO_TRY(end(t, fo_links_open(&t->rank[0].links, t->rank[0].world, first)));
	return for_each(t, make_rank);
}

struct fo_links *fo_team_links(struct fo_team *t) { return &t->rank[0].links; }

/* Rank i's store; own: rank 0's. */
static struct fo_store *store_of(struct fo_team *t, int i, struct fo_store *own) { return i ? t->rank[i].store : own; }

fo_status fo_team_copy(struct fo_team *t, const struct fo_store *from, struct fo_store *own)
{
	for (int i = 0; t && i < t->ranks; i++) {
		struct fo_store *to = store_of(t, i, own);
		if (to == from)
			continue;
		FO_TRY(fo_store_copy(to, from));
		if (i)
			fo_exec_weights_changed(t->rank[i].exec);
	}
	return FO_OK;
}

fo_status fo_team_collect(struct fo_team *t, struct fo_store *to, struct fo_store *own)
{
	/* Ranks of one shard group have all of it between them. */
	for (int i = 0; i < fo_mesh_group(&t->first->run.mesh, FO_GROUP_SHARD, NULL, NULL); i++)
		FO_TRY(fo_store_copy(to, store_of(t, i, own)));
	return FO_OK;
}

void fo_team_memory(const struct fo_team *t, struct fo_memory *m)
{
	for (int i = 1; t && i < t->ranks; i++) {
		struct fo_memory one = fo_exec_memory(t->rank[i].exec);
		m->arena += one.arena;
		m->persistent += one.persistent;
		m->workspace += one.workspace;
		m->max_live += one.max_live;
		m->host_arena += one.host_arena;
	}
}

/* ---- timelines ---- */

int64_t fo_team_beside_bytes(const struct fo_team *t)
{
	int64_t sum = 0;
	for (int i = 1; t && i < t->ranks; i++)
		sum += (int64_t)fo_pages_size(fo_exec_timeline(t->rank[i].exec)->bytes) +
		       fo_exec_memory(t->rank[i].exec).tables;
	return sum;
}

static fo_status remove_others(const char *dir, int ranks)
{
	enum { FILES = 1 << 20 };
	struct fo_arena a = { 0 };
	char **name;
	size_t n;
	fo_status st = fo_fs_list_here(&a, dir, FILES, &name, &n);
	for (size_t i = 0; st == FO_OK && i < n; i++)
		if (fo_timeline_rank_of_path(name[i]) >= ranks)
			st = fo_fs_remove_tree(name[i]);
	fo_arena_fini(&a);
	return st;
}

fo_status fo_team_write_timelines(struct fo_team *t, struct fo_exec *e, const struct fo_program *first, const char *dir)
{
	struct fo_timeline *own = fo_exec_timeline(e);
	struct fo_arena a = { 0 };
	fo_status st = FO_OK;
	/* Threads of one process have one clock: all files count from one moment. */
	double ago = (double)(fo_now_ns() - own->origin_ns);
	own->whose = (struct fo_timeline_whose){ .begun_unix_ns = (int64_t)(fo_clock_unix() * 1e9 - ago) };
	if (gethostname(own->whose.host, sizeof own->whose.host - 1))
		own->whose.host[0] = 0;
	for (int i = 1; t && i < t->ranks && st == FO_OK; i++) {
		struct fo_timeline *other = fo_exec_timeline(t->rank[i].exec);
		other->whose = own->whose;
		other->origin_ns = own->origin_ns;
		st = fo_timeline_write(other, &t->rank[i].program, fo_timeline_rank_path(&a, dir, i));
		if (st == FO_OK)
			st = fo_timeline_write_program(&t->rank[i].program, first, dir);
	}
	if (st == FO_OK)
		st = fo_timeline_write(own, first, fo_timeline_rank_path(&a, dir, 0));
	if (st == FO_OK)
		st = remove_others(dir, first->ranks);
	fo_arena_fini(&a);
	return st;
}

void fo_team_close(struct fo_team *t)
{
	if (!t)
		return;
	begin(t, QUIT, 0);
	for (int i = 1; i < t->ranks; i++)
		if (t->rank[i].started)
			pthread_join(t->rank[i].thread, NULL);
	for (int i = 0; i < t->ranks; i++) {
		fo_links_close(&t->rank[i].links);
		fo_comm_close(t->rank[i].world);
	}
	pthread_cond_destroy(&t->changed);
	pthread_mutex_destroy(&t->lock);
	free(t->rank);
	free(t);
}

/* ---- steps ---- */

/* All ranks read one batch, each its own rows of it. */
static void feed(struct fo_team *t, const struct fo_ports *ports)
{
	for (int i = 1; i < t->ranks; i++) {
		struct fo_ports *to = &t->rank[i].ports;
		to->batch = ports->batch;
		memcpy(to->hyper, ports->hyper, sizeof to->hyper);
	}
}

fo_status fo_team_step(struct fo_team *t, struct fo_exec *e, const struct fo_ports *ports, int32_t step)
{
	if (!t)
		return fo_exec_step(e, step);
	feed(t, ports);
	begin(t, STEP, step);
	return end(t, fo_exec_step(e, step));
}

fo_status fo_team_step_around(struct fo_team *t, struct fo_exec *e, const struct fo_ports *ports, int32_t step,
			      fo_exec_around_fn *around, void *ctx)
{
	if (!t)
		return fo_exec_step_around(e, around, ctx);
	feed(t, ports);
	begin(t, STEP, step);
	return end(t, fo_exec_step_around(e, around, ctx));
}

fo_status fo_team_find_fault(struct fo_team *t, struct fo_exec *e, const struct fo_ports *ports,
			     struct fo_exec_fault *out)
{
	if (!t)
		return fo_exec_find_fault(e, out);
	feed(t, ports);
	begin(t, FIND_FAULT, 0);
	FO_TRY(end(t, fo_exec_find_fault(e, out)));
	/* Sums over ranks carry a value on: the earliest place is where it came from. */
	int from = 0;
	for (int i = 1; i < t->ranks; i++) {
		const struct fo_exec_fault *f = &t->rank[i].fault;
		if (f->instance >= 0 && (out->instance < 0 || f->instance < out->instance))
			*out = *f, from = i;
	}
	if (out->instance >= 0) {
		char text[sizeof out->text];
		memcpy(text, out->text, sizeof text);
		snprintf(out->text, sizeof out->text, "on rank %d of %d, %.280s", from, t->ranks, text);
	}
	return FO_OK;
}
