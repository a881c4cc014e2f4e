#include "train/room.h"

#include "kernel/work.h"
#include "train/device.h"
#include "train/store_int.h"

#include "hw/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { ROUNDS = 4 }; /* a smaller choice may have other workspaces; after a few rounds they stay the same */

/* ---- memory that is there ---- */

/* "Name:   123 kB" in a /proc file, in bytes; 0 when it is not there. */
static int64_t proc_bytes(const char *file, const char *name)
{
	FILE *f = fopen(file, "re");
	char line[256];
	int64_t bytes = 0;
	while (f && fgets(line, sizeof line, f)) {
		long long kb;
		if (!strncmp(line, name, strlen(name)) && sscanf(line + strlen(name), ": %lld kB", &kb) == 1)
			bytes = kb * 1024;
	}
	if (f)
		fclose(f);
	return bytes;
}

int64_t fo_memory_resident(void) { return proc_bytes("/proc/self/status", "RssAnon"); }

int64_t fo_memory_available(void)
{
	int64_t free_bytes = proc_bytes("/proc/meminfo", "MemAvailable");
	double room = fo_state_memory_room("");
	/* 0 would mean that nothing is known. */
	if (!isnan(room) && (!free_bytes || room < (double)free_bytes))
		free_bytes = room < 1 ? 1 : (int64_t)room;
	return free_bytes;
}

int64_t fo_memory_mappable(void)
{
	static const struct {
		int limit;
		const char *used; /* counts what is mapped, touched or not */
	} row[] = { { RLIMIT_DATA, "VmData" }, { RLIMIT_AS, "VmSize" } };
	int64_t most = fo_memory_available();
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct rlimit l;
		int64_t used = proc_bytes("/proc/self/status", row[i].used);
		if (getrlimit(row[i].limit, &l) || l.rlim_cur == RLIM_INFINITY || l.rlim_cur > INT64_MAX)
			continue;
		int64_t left = (int64_t)l.rlim_cur > used ? (int64_t)l.rlim_cur - used : 1;
		if (!most || left < most)
			most = left;
	}
	return most;
}

/* ---- memory that a run may take ---- */

static int64_t least(int64_t limit, int64_t have) { return limit && (limit < have || !have) ? limit : have; }
int64_t fo_room_allowed(const struct fo_run *r, int64_t have) { return least(r->memory_limit, have); }
int64_t fo_room_budget(const struct fo_run *r, int64_t have)
{
	return least(r->memory_budget, fo_room_allowed(r, have));
}

static fo_status does_not_fit(const struct fo_program *p, int64_t need, int64_t have)
{
	char a[32], b[32];
	return fo_hint(
		fo_fail(FO_ENOMEM, "the run plans at least %s of the device's memory and may use %s",
			fo_str_bytes(a, (double)need), fo_str_bytes(b, (double)have)),
		p->run.rows > 1
			? "halve train.rows and double train.micro-batches, or let pass.recompute and optim.state be "
			  "auto"
			: "shorten data.seq, choose a smaller model, or let pass.recompute and optim.state be auto");
}

/* FO_ENOMEM, with what to do, where arena, persistent buffers and `beside` bytes are more than the run may take of a
 * device. */
static fo_status fits(const struct fo_run *r, const struct fo_program *p, int64_t beside, int64_t have)
{
	struct fo_unrolled u;
	int64_t may = fo_room_allowed(r, have);
	FO_TRY(fo_unroll(p, &u));
	fo_plan(p, &u);
	int64_t need = u.arena_bytes + u.persistent_bytes + beside;
	fo_unrolled_fini(&u);
	return need <= may ? FO_OK : does_not_fit(p, need, may);
}

/* Programs, and executors where there are any, that can be made again for a smaller budget. */
struct maker {
	void *ctx;
	const struct fo_choice *choice;   /* the newest */
	int64_t (*need)(const void *ctx); /* bytes of what was made last */
	fo_status (*again)(void *ctx, int64_t reserve);
	int64_t ranks; /* that take so much */
};

static fo_status settle(const struct maker *m, const struct fo_run *r, int64_t have)
{
	for (int i = 0; i < ROUNDS && m->choice->planned; i++) {
		int64_t budget = fo_room_budget(r, have), need = m->need(m->ctx);
		if (!budget || need <= budget)
			break;
		FO_TRY(m->again(m->ctx, need - m->choice->bytes * m->ranks));
	}
	return FO_OK;
}

/* Evaluation shares the step's weights, so it takes the step's passes, which say how they are stored. */
static fo_status build_evaluation(struct fo_program *out, const struct fo_run *r, const struct fo_model *m,
				  const struct fo_program *step)
{
	struct fo_lowering eval = fo_run_lowering(r, FO_MODE_EVAL);
	eval.pass = step->run.pass;
	eval.stages = step->run.stages;
	return fo_pass_build(out, m, &eval);
}

/* ---- a step ---- */

int fo_room_step_ranks_here(const struct fo_room_step *s) { return s->processes ? 1 : (int)s->run->ranks; }

int fo_room_step_rows_here(const struct fo_room_step *s)
{
	return s->processes ? 1 : (int)fo_mesh_data(&s->program.run.mesh);
}

static int sharing(const struct fo_room_step *s) { return s->sharing ? s->sharing : fo_room_step_ranks_here(s); }

struct fo_memory fo_room_step_memory(const struct fo_room_step *s)
{
	struct fo_memory m = fo_exec_memory(s->exec);
	fo_team_memory(s->team, &m);
	return m;
}

int64_t fo_room_step_need(const struct fo_room_step *s)
{
	struct fo_memory m = fo_exec_memory(s->exec), eval = fo_exec_memory(s->eval), all = fo_room_step_memory(s);
	int64_t bytes = fo_memory_taken(&all, s->options.cuda != NULL) + eval.workspace;
	if (eval.arena > m.arena) /* else it uses the step's */
		bytes += eval.arena;
	return bytes + (s->beside ? s->beside(s->beside_ctx) : 0);
}

fo_status fo_room_step_programs(struct fo_room_step *s, int64_t reserve)
{
	const struct fo_choose_rates *device = NULL;
	struct fo_choose_rates rates;
	const int ranks = sharing(s);
	if (s->given)
		return build_evaluation(&s->eval_program, s->run, &s->model, &s->program);
	if (s->options.cuda) {
		rates = fo_device_choose_rates(fo_cuda_info(s->options.cuda), fo_run_precision(s->run));
		device = &rates;
	}
	/* Each rank has its share of the memory. */
	fo_status st = fo_pass_choose_run(s->open ? s->open : s->run, &s->model,
					  fo_room_budget(s->run, s->have) / ranks, reserve / ranks, device, &s->choice);
	if (st != FO_OK && st != FO_ENOMEM)
		return st;
	if (st == FO_ENOMEM)
		fo_err_save(&s->too_large, st);
	FO_TRY(fo_pass_build(&s->program, &s->model, &s->choice.run));
	fo_pass_note_job(&s->program);
	return build_evaluation(&s->eval_program, s->run, &s->model, &s->program);
}

static fo_status make_executors(struct fo_room_step *s)
{
	struct fo_exec_options train = s->options;
	if (s->options.cuda) {
		if (s->too_large.st != FO_OK)
			return fo_err_raise(&s->too_large);
		FO_TRY(fits(s->run, &s->program, 0, s->have / sharing(s)));
	}
	train.batch = s->program.ranks > 1 ? NULL : s->batch;
	if (s->program.ranks > 1) {
		train.threads = fo_team_threads(s->options.threads, fo_room_step_ranks_here(s));
		FO_TRY(fo_team_open(&s->team, &s->program, &s->eval_program, &train, s->port, s->processes));
		train.links = fo_team_links(s->team);
	}
	FO_TRY(fo_store_new_on(&s->store, &s->program, s->options.cuda));
	FO_TRY(fo_exec_new(&s->exec, &s->program, s->store, &train, s->port, s->ctx, NULL));
	train.batch = NULL;
	return fo_exec_new(&s->eval, &s->eval_program, s->store, &train, s->port, s->eval_ctx, s->exec);
}

/* A step of which no choice fits is announced as it is, then refused. */
static int64_t step_need(const void *ctx)
{
	const struct fo_room_step *s = ctx;
	return s->too_large.st == FO_OK ? fo_room_step_need(s) : 0;
}

static fo_status step_again(void *ctx, int64_t reserve)
{
	struct fo_room_step *s = ctx;
	fo_room_step_close(s);
	FO_TRY(fo_room_step_programs(s, reserve));
	return make_executors(s);
}

fo_status fo_room_step_executors(struct fo_room_step *s)
{
	FO_TRY(make_executors(s));
	return settle(&(struct maker){ s, &s->choice, step_need, step_again, sharing(s) }, s->run, s->have);
}

/* Bytes that a run may take: free memory of the device less its reserve, or of this machine (c NULL); 0: not known. */
static fo_status find_have(struct fo_cuda *c, int64_t *have)
{
	int64_t total;
	*have = fo_memory_available();
	if (!c)
		return FO_OK;
	FO_TRY(fo_cuda_memory(c, have, &total));
	*have -= fo_device_reserve(total);
	return FO_OK;
}

fo_status fo_room_step_open(struct fo_room_step *s, const struct fo_run *r, const struct fo_exec_options *o,
			    fo_port_fn *port, void *ctx)
{
	*s = (struct fo_room_step){ .run = r, .options = *o, .port = port, .ctx = ctx, .eval_ctx = ctx };
	FO_TRY(find_have(o->cuda, &s->have));
	FO_TRY(fo_run_model(r, &s->model));
	FO_TRY(fo_room_step_programs(s, 0));
	if (s->too_large.st != FO_OK)
		return fo_err_raise(&s->too_large);
	FO_TRY(fo_room_step_executors(s));
	if (s->too_large.st != FO_OK)
		return fo_err_raise(&s->too_large);
	return o->cuda ? fits(r, &s->program, fo_exec_memory(s->exec).workspace, s->have) : FO_OK;
}

void fo_room_step_close(struct fo_room_step *s)
{
	fo_exec_free(s->eval);
	fo_exec_free(s->exec);
	fo_store_free(s->store);
	fo_team_close(s->team);
	s->team = NULL;
	fo_program_fini(&s->eval_program);
	fo_program_fini(&s->program);
	s->exec = s->eval = NULL;
	s->store = NULL;
}

/* ---- without the device ---- */

/* Bytes of the workspaces of the program's operations on a device like d: for each lane the most that one of its
 * operations takes. */
static int64_t workspace_of(const struct fo_program *p, const struct fo_cuda_device *d)
{
	size_t lane[FO_LANE_COUNT] = { 0 }, sum = 0;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			struct fo_work w;
			if (!fo_op_has_kernel(o->kind))
				continue;
			fo_work_of_op(&w, FO_ISA_REF, p, o, 0, 1);
			size_t bytes = fo_cuda_ws_most(d, &w.call);
			lane[o->lane] = bytes > lane[o->lane] ? bytes : lane[o->lane];
		}
	for (int l = 0; l < FO_LANE_COUNT; l++)
		sum += lane[l];
	return (int64_t)fo_device_size(sum + 1); /* and the place where faults are reported */
}

/* A step for a device like d, which need not be there, made as `flatout train` makes it there. */
struct planned {
	const struct fo_run *r;
	const struct fo_model *m;
	const struct fo_cuda_device *d;
	int64_t have;
	struct fo_choice choice;
	struct fo_program program;
	/* Bytes as a device hands them out, of both programs; host_arena is host memory. */
	int64_t arena, persistent, workspace, host_arena;
};

static int64_t need_of(const void *ctx)
{
	const struct planned *p = ctx;
	return p->arena + p->persistent + p->workspace;
}

static fo_status make(void *ctx, int64_t reserve)
{
	struct planned *p = ctx;
	struct fo_unrolled u;
	fo_program_fini(&p->program);
	const struct fo_choose_rates rates = fo_device_choose_rates(p->d, fo_run_precision(p->r));
	FO_TRY(fo_pass_choose_run(p->r, p->m, fo_room_budget(p->r, p->have), reserve, &rates, &p->choice));
	FO_TRY(fo_pass_build(&p->program, p->m, &p->choice.run));
	FO_TRY(fo_unroll(&p->program, &u));
	fo_plan(&p->program, &u);
	p->arena = (int64_t)fo_device_size((size_t)u.arena_bytes);
	p->persistent = (int64_t)fo_device_size((size_t)u.persistent_bytes);
	p->host_arena = u.host_arena_bytes;
	fo_unrolled_fini(&u);
	p->workspace = workspace_of(&p->program, p->d);
	/* Evaluation has no gradients: its arena is the smaller one. */
	struct fo_program eval = { 0 };
	fo_status st = build_evaluation(&eval, p->r, p->m, &p->program);
	if (st == FO_OK)
		p->workspace += workspace_of(&eval, p->d);
	fo_program_fini(&eval);
	return st;
}

static fo_status make_that_fits(struct planned *p)
{
	FO_TRY(make(p, 0));
	FO_TRY(settle(&(struct maker){ p, &p->choice, need_of, make, p->r->ranks }, p->r, p->have));
	int64_t may = fo_room_allowed(p->r, p->have);
	return need_of(p) <= may ? FO_OK : does_not_fit(&p->program, need_of(p), may);
}

void fo_room_choice_json(const struct fo_choice *c, const struct fo_program *p, struct fo_json *j)
{
	struct fo_str text = { 0 };
	fo_recompute_text(&p->run, p->model.layers, &text);
	fo_json_text(j, "recompute", text.data);
	fo_json_real(j, "recompute_share", c->seconds > 0 ? c->repeat_seconds / c->seconds : NAN);
	fo_json_text(j, "master", fo_master_name[p->run.pass.master]);
	fo_json_text(j, "moments", fo_moments_name[p->run.pass.moments]);
	fo_json_int(j, "rows", p->run.rows);
	fo_json_int(j, "micro_batches", p->run.micro_batches);
	fo_json_int(j, "candidates", c->candidates);
	fo_json_int(j, "planned", c->planned);
	fo_str_fini(&text);
}

/* NVIDIA's data sheet: 132 multiprocessors of compute capability 9.0, 50 MB of second-level cache. */
static const struct fo_cuda_device h200 = {
	.cc_major = 9, .multiprocessors = 132, .name = "NVIDIA H200", .l2_bytes = 50000000
};

fo_status fo_room_plan_print(const struct fo_run *r, int64_t total_bytes, FILE *f)
{
	struct fo_cuda_device d = h200;
	struct fo_model m;
	struct fo_str text = { 0 };
	struct fo_json j;
	const int64_t reserve = fo_device_reserve(total_bytes), have = total_bytes - FO_DEVICE_CONTEXT_BYTES - reserve;
	d.memory_bytes = total_bytes;
	FO_TRY(fo_run_model(r, &m));
	struct planned p = { .r = r, .m = &m, .d = &d, .have = have > 0 ? have : 1 };
	fo_status st = make_that_fits(&p);
	if (st == FO_OK) {
		fo_json_begin(&j, &text, false);
		fo_json_object(&j, NULL);
		fo_json_text(&j, "plan_for", "a device like an H200 that is not there: arithmetic");
		fo_json_text(&j, "model", m.name);
		fo_json_int(&j, "seq", r->seq);
		fo_room_choice_json(&p.choice, &p.program, &j);
		fo_json_int(&j, "total_bytes", total_bytes);
		fo_json_int(&j, "context_bytes", FO_DEVICE_CONTEXT_BYTES);
		fo_json_int(&j, "reserve_bytes", reserve);
		fo_json_int(&j, "arena_bytes", p.arena);
		fo_json_int(&j, "persistent_bytes", p.persistent);
		fo_json_int(&j, "workspace_bytes", p.workspace);
		fo_json_int(&j, "host_arena_bytes", p.host_arena);
		fo_json_int(&j, "left_bytes", have - p.arena - p.persistent - p.workspace);
		fo_json_close(&j);
		fprintf(f, "%s\n", text.data);
	}
	fo_str_fini(&text);
	fo_program_fini(&p.program);
	return st;
}
