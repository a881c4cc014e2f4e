#include "train/member_int.h"

#include "pass/pass.h"
#include "record/rank_state.h"

#include <string.h>

static fo_status build(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	(void)n;
	const struct fo_task_build *t = bytes;
	struct fo_lowering low = t->run;
	low.mesh.rank = m->number;
	m->ports.ranks = (int)fo_mesh_data(&low.mesh);
	m->ports.rank = (int)fo_mesh_set(&low.mesh);
	m->eval_ports.ranks = m->ports.ranks;
	m->eval_ports.rank = m->ports.rank;
	fo_ports_own_tokens(&m->ports, &low);
	fo_ports_own_tokens(&m->eval_ports, &low);
	FO_TRY(fo_pass_build(&m->program, &t->model, &low));
	if (t->eval.seq) {
		low = t->eval;
		low.mesh.rank = m->number;
		FO_TRY(fo_pass_build(&m->eval_program, &t->model, &low));
	}
	const struct fo_task_built built = { .hash = fo_program_hash(&m->program),
					     .eval_hash = t->eval.seq ? fo_program_hash(&m->eval_program) : 0 };
	fo_answer_put(out, &built, sizeof built);
	return FO_OK;
}

static fo_status link_up(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	(void)n;
	(void)out;
	return fo_links_open(&m->links, m->world, &m->program, m->eval_program.nbuf ? &m->eval_program : NULL,
			     *(const bool *)bytes ? m->cuda : NULL);
}

static fo_status make(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	(void)n;
	struct fo_exec_options o;
	struct fo_task_made made;
	memcpy(&o, bytes, sizeof o);
	/* Addresses mean nothing to another rank. */
	o.links = &m->links;
	o.mac = NULL;
	o.cuda = m->cuda;
	o.batch = NULL;
	o.state = m->state;
	FO_TRY(fo_store_new_on(&m->store, &m->program, m->cuda));
	FO_TRY(fo_exec_new(&m->exec, &m->program, m->store, &o, m->port, &m->ports, NULL));
	made = (struct fo_task_made){ .memory = fo_exec_memory(m->exec),
				      .timeline_bytes = (int64_t)fo_pages_size(fo_exec_timeline(m->exec)->bytes) };
	if (m->eval_program.nbuf) {
		FO_TRY(fo_store_add(m->store, &m->eval_program));
		FO_TRY(fo_exec_new(&m->eval, &m->eval_program, m->store, &o, m->port, &m->eval_ports, m->exec));
		const struct fo_memory eval = fo_exec_memory(m->eval);
		made.memory.persistent = eval.persistent; /* with tables that evaluation alone has */
		const int64_t own = eval.workspace + (eval.arena > made.memory.arena ? eval.arena : 0);
		made.eval_bytes = eval.tables + (int64_t)fo_pages_size(fo_exec_timeline(m->eval)->bytes);
		made.memory.staging += eval.staging;
		if (m->cuda)
			made.memory.workspace += own;
		else
			made.eval_bytes += own;
	}
	fo_rank_state_processors(m->state, o.threads, &m->cpus);
	made.copy_bytes = fo_keep_copy_bytes(m->store);
	fo_keep_init(&m->keep, &m->program, m->store, m->exec, m->world, o.threads);
	m->keep.sums = m->tasks;
	fo_answer_put(out, &made, sizeof made);
	return FO_OK;
}

static void take_numbers(struct fo_member *m, const void *bytes, int32_t *step)
{
	const struct fo_task_step *t = bytes;
	memcpy(m->ports.hyper, t->hyper, sizeof t->hyper);
	*step = t->step;
}

static fo_status run_step(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	(void)n;
	int32_t step;
	(void)out;
	take_numbers(m, bytes, &step);
	FO_TRY(fo_member_next_batch(m, ((const struct fo_task_step *)bytes)->batch));
	fo_rank_state_step(m->state, step + 1, ((const struct fo_task_step *)bytes)->steps);
	FO_TRY(fo_exec_step(m->exec, step));
	fo_rank_state_phase(m->state, FO_RANK_BETWEEN);
	return FO_OK;
}

static fo_status find_fault(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	(void)n;
	struct fo_exec_fault fault;
	int32_t step;
	take_numbers(m, bytes, &step);
	FO_TRY(fo_exec_find_fault(m->exec, &fault));
	fo_answer_put(out, &fault, sizeof fault);
	return FO_OK;
}

static fo_status evaluate(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	(void)n;
	(void)out;
	const int32_t step = ((const struct fo_task_step *)bytes)->step;
	FO_TRY(fo_member_eval_batch(m, step));
	fo_rank_state_phase(m->state, FO_RANK_EVALUATING);
	FO_TRY(fo_exec_step(m->eval, step));
	fo_rank_state_phase(m->state, FO_RANK_BETWEEN);
	return FO_OK;
}

/* A path that counts from rank 0's working directory would name something else here. */
static fo_status check_path(const struct fo_member *m, const char *path)
{
	if (!m->lost || !*path || *path == '/')
		return FO_OK;
	return fo_hint(
		fo_fail(FO_EIO, "'%s' counts from rank 0's working directory '%s', which is not there", path, m->lost),
		"give the whole path, or start in a folder that all hosts have");
}

static fo_status fill(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	(void)n;
	(void)out;
	FO_TRY(check_path(m, ((const struct fo_keep_task *)bytes)->path));
	return fo_keep_work(&m->keep, bytes, NULL);
}

static fo_status do_keep(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	(void)n;
	const struct fo_keep_task *t = bytes;
	/* May take long: a rank that hangs in it must not look like one that waits for rank 0. */
	const bool saves = t->kind == FO_KEEP_COPY || t->kind == FO_KEEP_WRITE || (t->kind == FO_KEEP_POLL && t->wait);
	bool done = true;
	if (saves)
		fo_rank_state_phase(m->state, FO_RANK_SAVING);
	fo_status st = check_path(m, t->path);
	if (st == FO_OK)
		st = fo_keep_work(&m->keep, t, &done);
	if (saves)
		fo_rank_state_phase(m->state, FO_RANK_BETWEEN);
	if (st != FO_OK)
		fo_err_save(&out->error, st);
	fo_answer_put(out, &done, sizeof done);
	return FO_OK;
}

static fo_status close_own(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	(void)n;
	(void)bytes;
	(void)out;
	fo_loader_close(m->loader);
	fo_keep_close(&m->keep);
	fo_exec_free(m->eval);
	fo_exec_free(m->exec);
	fo_links_close(&m->links);
	fo_store_free(m->store);
	fo_program_fini(&m->eval_program);
	fo_program_fini(&m->program);
	fo_order_share_close(m->order);
	if (m->number)
		fo_cuda_close(m->cuda);
	m->cuda = NULL;
	m->loader = NULL;
	m->order = NULL;
	m->exec = m->eval = NULL;
	m->store = NULL;
	return FO_OK;
}

static fo_status finish(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	(void)bytes;
	(void)n;
	(void)out;
	m->ended = true;
	return FO_OK;
}

_Static_assert(sizeof(struct fo_exec_fault) <= FO_ANSWER_BYTES && sizeof(struct fo_task_made) <= FO_ANSWER_BYTES, "");

enum { ANY = -1 };
static const struct {
	const char *name;
	fo_task_fn *fn;
	size_t bytes; /* that belong to it; ANY: it looks at their number itself */
	/* What lowering and planning took and gave back serves the next rank, where threads of their own would each
	 * keep as much. */
	bool in_turn;
	bool goes_on; /* the job does, where some rank has an error */
} row[FO_TASKS] = {
	[FO_TASK_BUILD] = { "build", build, sizeof(struct fo_task_build), true, false },
	[FO_TASK_DEVICE] = { "device", fo_member_device, sizeof(struct fo_exec_devices), true, false },
	[FO_TASK_LINK] = { "link", link_up, sizeof(bool), false, false },
	[FO_TASK_MAKE] = { "make", make, sizeof(struct fo_exec_options), true, false },
	[FO_TASK_STEP] = { "step", run_step, sizeof(struct fo_task_step), false, false },
	[FO_TASK_FIND_FAULT] = { "find-fault", find_fault, sizeof(struct fo_task_step), false, false },
	[FO_TASK_EVALUATE] = { "evaluate", evaluate, sizeof(struct fo_task_step), false, false },
	[FO_TASK_FILL] = { "fill", fill, sizeof(struct fo_keep_task), true, false },
	[FO_TASK_KEEP] = { "keep", do_keep, sizeof(struct fo_keep_task), false, true },
	[FO_TASK_CLOSE] = { "close", close_own, 0, false, false },
	[FO_TASK_FOLDER] = { "folder", fo_member_folder, sizeof(struct fo_task_folder), false, false },
	[FO_TASK_PEAK] = { "peak", fo_member_peak, sizeof(struct fo_task_peak), false, false },
	[FO_TASK_DATA] = { "data", fo_member_data, sizeof(struct fo_task_data), false, false },
	[FO_TASK_LOADER] = { "loader", fo_member_loader, sizeof(struct fo_task_loader), false, false },
	[FO_TASK_EVAL_DATA] = { "eval-data", fo_member_eval_data, sizeof(struct fo_task_eval_data), false, false },
	[FO_TASK_CLOCK] = { "clock", fo_member_clock, 0, false, false },
	[FO_TASK_TIMELINE] = { "timeline", fo_member_timeline, sizeof(struct fo_task_timeline), false, false },
	[FO_TASK_END] = { "end", finish, sizeof(struct fo_err), false, false },
};

bool fo_task_in_turn(enum fo_task task) { return row[task].in_turn; }
bool fo_task_ends_job(enum fo_task task) { return !row[task].goes_on; }
const char *fo_task_name(enum fo_task task) { return row[task].name; }

fo_status fo_member_work(struct fo_member *m, enum fo_task task, const void *bytes, size_t n, struct fo_answer *out)
{
	out->error.st = FO_OK;
	out->n = 0;
	fo_status st = m->cuda ? fo_cuda_attach(m->cuda) : FO_OK;
	if (st == FO_OK)
		st = n == row[task].bytes || row[task].bytes == (size_t)ANY
			     ? row[task].fn(m, bytes, n, out)
			     : fo_fail(FO_EBUG, "task %s came with %zu bytes, expected %zu", row[task].name, n,
				       row[task].bytes);
	if (st == FO_OK)
		return FO_OK;
	fo_err_save(&out->error, st);
	fo_rank_state_failed(m->state, st, fo_err_text());
	fo_comm_abort(m->world); /* nobody waits for this rank */
	return st;
}
