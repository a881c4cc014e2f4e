#include "train/team.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "hw/topology.h"
#include "pass/pass.h"
#include "program/roles.h"
#include "record/rank_state.h"
#include "train/devices.h"
#include "train/member_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fo_team {
	const struct fo_program *first, *eval; /* eval NULL: there is none */
	int ranks;
	struct fo_processes *processes; /* NULL: threads */
	struct fo_carrier *carrier;     /* the processes', or the team's own */
	struct fo_devices devices;      /* ranks 0: they compute on the processor */
	struct fo_task_made *made;      /* of each rank but the first */
};

int fo_team_threads(int threads, int ranks) { return threads / ranks > 1 ? threads / ranks : 1; }

static struct fo_member *member(const struct fo_team *t, int i) { return &t->carrier->member[i]; }

/* ---- a job's life ---- */

/* Rank i's program, made here as `first` was: that of a process, which has made its own. */
static fo_status build_here(int i, const struct fo_program *first, struct fo_program *out)
{
	struct fo_lowering low = first->run;
	low.mesh.rank = i;
	return fo_pass_build(out, &first->model, &low);
}

/* Unlike programs come from unlike machines or libraries, as the program's file is the same. */
static fo_status check_hash(const struct fo_team *t, int i, const struct fo_program *p, bool eval)
{
	struct fo_task_built built;
	FO_TRY(fo_answer_get(&t->carrier->answer[i], &built, sizeof built));
	if ((eval ? built.eval_hash : built.hash) == fo_program_hash(p))
		return FO_OK;
	return fo_fail(FO_EBUG, "rank %d of %d on host %.63s has made another program than rank 0 makes for it", i,
		       t->ranks, t->processes->place[i].host);
}

/* Programs that do not fit together would hang, or train something else. */
static fo_status check_together(const struct fo_team *t, const struct fo_program *first, bool eval)
{
	struct fo_roles roles = { 0 };
	struct fo_program *own = fo_xmalloc((size_t)t->ranks * sizeof *own); /* of processes */
	fo_status st = FO_OK;
	for (int i = 0; i < t->ranks && st == FO_OK; i++) {
		const struct fo_program *p = first;
		bool kept;
		if (i && t->processes) {
			st = build_here(i, first, &own[i]);
			p = &own[i];
			if (st == FO_OK)
				st = check_hash(t, i, p, eval);
		} else if (i) {
			p = eval ? &member(t, i)->eval_program : &member(t, i)->program;
		}
		if (st == FO_OK)
			st = fo_roles_add(&roles, p, &kept);
		if (p == &own[i] && (st != FO_OK || !kept))
			fo_program_fini(&own[i]);
	}
	if (st == FO_OK)
		st = fo_roles_verify(&roles, first->run.rows * fo_mesh_data(&first->run.mesh));
	fo_roles_fini(&roles);
	for (int i = 0; i < t->ranks; i++)
		fo_program_fini(&own[i]);
	free(own);
	return st;
}

static fo_status build_all(struct fo_team *t)
{
	struct fo_task_build what;
	memset(&what, 0, sizeof what); /* what lies between its members travels too */
	what.model = t->first->model;
	what.run = t->first->run;
	if (t->eval)
		what.eval = t->eval->run;
	FO_TRY(fo_carrier_do(t->carrier, FO_TASK_BUILD, &what, sizeof what));
	FO_TRY(check_together(t, t->first, false));
	fo_status st = t->eval ? check_together(t, t->eval, true) : FO_OK;
	return st == FO_OK ? st : fo_wrap(st, "evaluation");
}

static fo_status link_all(struct fo_team *t)
{
	struct fo_member *self = t->carrier->self;
	const bool nccl = t->devices.nccl;
	FO_TRY(fo_carrier_begin(t->carrier, FO_TASK_LINK, &nccl, sizeof nccl));
	return fo_carrier_end(t->carrier,
			      fo_links_open(&self->links, self->world, t->first, t->eval, nccl ? self->cuda : NULL));
}

static fo_status make_all(struct fo_team *t, const struct fo_exec_options *o)
{
	FO_TRY(fo_carrier_do(t->carrier, FO_TASK_MAKE, o, sizeof *o));
	for (int i = 1; i < t->ranks; i++)
		FO_TRY(fo_answer_get(&t->carrier->answer[i], &t->made[i], sizeof t->made[i]));
	return FO_OK;
}

static fo_status open_threads(struct fo_team *t, const struct fo_exec_options *o, fo_port_fn *port)
{
	struct fo_cpus *share = o->bind ? fo_xmalloc((size_t)t->ranks * sizeof *share) : NULL;
	if (share)
		(void)fo_topology_share_here(t->ranks, share);
	fo_status st = fo_carrier_threads(&t->carrier, t->ranks, &o->local, share, port);
	free(share);
	FO_TRY(st);
	for (int i = 1; i < t->ranks && o->state; i++)
		if (fo_rank_state_open_beside(&member(t, i)->state, o->state, i, t->ranks) != FO_OK)
			fo_err_clear(); /* nobody sees what it does */
	return FO_OK;
}

fo_status fo_team_open(struct fo_team **out, const struct fo_program *first, const struct fo_program *eval,
		       const struct fo_exec_options *o, fo_port_fn *port, struct fo_processes *p)
{
	struct fo_team *t = *out = fo_xmalloc(sizeof *t);
	t->first = first;
	t->eval = eval;
	t->ranks = first->ranks;
	t->processes = p;
	t->made = fo_xmalloc((size_t)t->ranks * sizeof *t->made);
	if (p)
		t->carrier = p->carrier;
	else
		FO_TRY(open_threads(t, o, port));
	t->carrier->self->state = o->state;
	if (o->cuda)
		FO_TRY(fo_devices_open(&t->devices, t->carrier, &o->devices, o->cuda));
	FO_TRY(build_all(t));
	FO_TRY(link_all(t));
	return make_all(t, o);
}

struct fo_links *fo_team_links(struct fo_team *t) { return &t->carrier->self->links; }

bool fo_team_over_nccl(const struct fo_team *t) { return t && t->devices.nccl; }

struct fo_comm *fo_team_world(struct fo_team *t) { return t ? t->carrier->self->world : NULL; }
struct fo_comm *fo_team_tasks(struct fo_team *t) { return t ? t->carrier->self->tasks : NULL; }

/* ---- weights and state ---- */

fo_status fo_team_fill(struct fo_team *t, struct fo_keep *own, const struct fo_keep_task *task)
{
	if (!t)
		return fo_keep_work(own, task, NULL);
	FO_TRY(fo_carrier_begin(t->carrier, FO_TASK_FILL, task, sizeof *task));
	return fo_carrier_end(t->carrier, fo_keep_work(own, task, NULL));
}

fo_status fo_team_keep(struct fo_team *t, struct fo_keep *own, const struct fo_keep_task *task, bool *done)
{
	bool all = true, other;
	if (!t) {
		fo_status st = fo_keep_work(own, task, &all);
		if (done)
			*done = all;
		return st;
	}
	FO_TRY(fo_carrier_begin(t->carrier, FO_TASK_KEEP, task, sizeof *task));
	struct fo_err mine;
	fo_err_save(&mine, fo_keep_work(own, task, &all));
	fo_status st = fo_carrier_end(t->carrier, FO_OK);
	for (int i = 1; i < t->ranks; i++)
		all &= fo_answer_get(&t->carrier->answer[i], &other, sizeof other) == FO_OK && other;
	if (done)
		*done = all;
	return mine.st == FO_OK ? st : fo_wrap(fo_err_raise(&mine), "rank 0 of %d", t->ranks);
}

fo_status fo_team_lend(struct fo_team *t, struct fo_keep *own, struct fo_store *to, const struct fo_program *of)
{
	const struct fo_keep_task task = { .kind = FO_KEEP_LEND };
	FO_TRY(fo_carrier_begin(t->carrier, FO_TASK_KEEP, &task, sizeof task));
	return fo_carrier_end(t->carrier, fo_keep_lend(own, to, of));
}

void fo_team_memory(const struct fo_team *t, struct fo_memory *m)
{
	for (int i = 1; t && !t->processes && i < t->ranks; i++) {
		const struct fo_memory *one = &t->made[i].memory;
		m->staging += one->staging;
		m->host += one->host;
		m->host_arena += one->host_arena;
		if (t->devices.ranks && !t->devices.with_first[i])
			continue;
		m->arena += one->arena;
		m->persistent += one->persistent;
		m->workspace += one->workspace;
		m->max_live += one->max_live;
	}
}

/* ---- timelines ---- */

int64_t fo_team_beside_bytes(const struct fo_team *t)
{
	int64_t sum = 0;
	for (int i = 1; t && !t->processes && i < t->ranks; i++)
		sum += t->made[i].timeline_bytes + t->made[i].memory.tables + t->made[i].eval_bytes;
	return sum;
}

int64_t fo_team_copy_bytes(const struct fo_team *t)
{
	int64_t sum = 0;
	for (int i = 1; t && !t->processes && i < t->ranks; i++)
		sum += t->made[i].copy_bytes;
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

static fo_status write_others(struct fo_team *t, const struct fo_timeline *own, const char *dir)
{
	fo_status st = FO_OK;
	FO_TRY(fo_carrier_begin(t->carrier, FO_TASK_CLOCK, NULL, 0));
	for (int i = 1; i < t->ranks && st == FO_OK; i++)
		st = fo_member_ask_clock(t->carrier->self->world, i);
	FO_TRY(fo_carrier_end(t->carrier, st));
	struct fo_task_timeline *what = fo_xmalloc(sizeof *what);
	what->begun_unix_ns = own->whose.begun_unix_ns;
	what->origin_ns = own->origin_ns;
	st = fo_fs_whole_path(dir, what->dir, sizeof what->dir);
	if (st == FO_OK)
		st = fo_carrier_do(t->carrier, FO_TASK_TIMELINE, what, sizeof *what);
	free(what);
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
	if (t && t->processes)
		st = write_others(t, own, dir);
	for (int i = 1; t && !t->processes && i < t->ranks && st == FO_OK; i++) {
		struct fo_timeline *other = fo_exec_timeline(member(t, i)->exec);
		other->whose = own->whose;
		other->origin_ns = own->origin_ns;
		st = fo_timeline_write(other, &member(t, i)->program, fo_timeline_rank_path(&a, dir, i));
		if (st == FO_OK)
			st = fo_timeline_write_program(&member(t, i)->program, first, dir);
	}
	if (st == FO_OK)
		st = fo_timeline_write(own, first, fo_timeline_rank_path(&a, dir, 0));
	if (st == FO_OK)
		st = remove_others(dir, first->ranks);
	fo_arena_fini(&a);
	return st;
}

void fo_team_over(struct fo_team *t, fo_status st)
{
	if (t && t->carrier)
		t->carrier->over = st;
}

void fo_team_close(struct fo_team *t)
{
	struct fo_err error; /* that ends the run: it stays */
	if (!t)
		return;
	fo_err_save(&error, FO_EBUG);
	if (fo_carrier_begin(t->carrier, FO_TASK_CLOSE, NULL, 0) == FO_OK) {
		fo_links_close(&t->carrier->self->links);
		if (fo_carrier_end(t->carrier, FO_OK) != FO_OK)
			fo_err_clear();
	}
	(void)fo_err_raise(&error);
	if (!t->processes) /* which go on */
		fo_carrier_close(t->carrier);
	(void)fo_err_raise(&error);
	fo_devices_fini(&t->devices);
	free(t->made);
	free(t);
}

/* ---- steps ---- */

/* Begins a task that all ranks do with this step's numbers. They read one batch, each its own rows of it. */
static fo_status begin(struct fo_team *t, enum fo_task task, const struct fo_ports *ports, int32_t step,
		       struct fo_task_step *what)
{
	*what = (struct fo_task_step){ .step = step,
				       .steps = ports->steps,
				       .batch = ports->batch ? ports->batch->step : -1 };
	memcpy(what->hyper, ports->hyper, sizeof what->hyper);
	for (int i = 1; i < t->ranks && !t->processes; i++)
		member(t, i)->ports.batch = ports->batch;
	return fo_carrier_begin(t->carrier, task, what, sizeof *what);
}

fo_status fo_team_step(struct fo_team *t, struct fo_exec *e, const struct fo_ports *ports, int32_t step)
{
	struct fo_task_step what;
	if (!t)
		return fo_exec_step(e, step);
	FO_TRY(begin(t, FO_TASK_STEP, ports, step, &what));
	return fo_carrier_end(t->carrier, fo_exec_step(e, step));
}

fo_status fo_team_evaluate(struct fo_team *t, struct fo_exec *e, const struct fo_ports *ports, int32_t step)
{
	const struct fo_task_step what = { .step = step, .batch = step };
	if (!t)
		return fo_exec_step(e, step);
	for (int i = 1; i < t->ranks && !t->processes; i++)
		member(t, i)->eval_ports.batch = ports->batch;
	FO_TRY(fo_carrier_begin(t->carrier, FO_TASK_EVALUATE, &what, sizeof what));
	return fo_carrier_end(t->carrier, fo_exec_step(e, step));
}

fo_status fo_team_step_around(struct fo_team *t, struct fo_exec *e, const struct fo_ports *ports, int32_t step,
			      fo_exec_around_fn *around, void *ctx)
{
	struct fo_task_step what;
	if (!t)
		return fo_exec_step_around(e, around, ctx);
	FO_TRY(begin(t, FO_TASK_STEP, ports, step, &what));
	return fo_carrier_end(t->carrier, fo_exec_step_around(e, around, ctx));
}

fo_status fo_team_find_fault(struct fo_team *t, struct fo_exec *e, const struct fo_ports *ports,
			     struct fo_exec_fault *out)
{
	struct fo_task_step what;
	if (!t)
		return fo_exec_find_fault(e, out);
	FO_TRY(begin(t, FO_TASK_FIND_FAULT, ports, 0, &what));
	FO_TRY(fo_carrier_end(t->carrier, fo_exec_find_fault(e, out)));
	/* Sums over ranks carry a value on: the earliest place is where it came from. */
	int from = 0;
	for (int i = 1; i < t->ranks; i++) {
		struct fo_exec_fault f;
		FO_TRY(fo_answer_get(&t->carrier->answer[i], &f, sizeof f));
		bool earlier = out->instance < 0 || f.instance < out->instance;
		/* Stages have programs of their own: only one of them made it, the others read it. */
		if (out->instance >= 0 && t->first->staged && f.read != out->read)
			earlier = out->read;
		/* Of ranks that meet it in one call, one found it in what it had. */
		const bool own = !t->first->staged && f.instance == out->instance && f.read && !out->read;
		if (f.instance >= 0 && (earlier || own))
			*out = f, from = i;
	}
	if (out->instance >= 0) {
		char text[sizeof out->text];
		memcpy(text, out->text, sizeof text);
		snprintf(out->text, sizeof out->text, "on rank %d of %d, %.280s", from, t->ranks, text);
	}
	return FO_OK;
}
