/* Ranks that are processes (train/processes.h), here on threads over communicators of one process: tasks and errors
 * go the way that they go between hosts, each rank has its own program, weights and loader, and the bits are those of
 * ranks as threads. */
#include "train/processes.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/thread.h"
#include "pass/pass.h"
#include "record/rank_state.h"
#include "support/keep_beside.h"
#include "support/must.h"
#include "train/team.h"
#include "train/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 4 };
static char folder[64];

static const char *at(const char *name)
{
	static char path[4][256];
	static int next;
	char *p = path[next++ % 4];
	snprintf(p, sizeof path[0], "%s/%s", folder, name);
	return p;
}

/* ---- the ranks of a job ---- */

struct rank {
	struct fo_comm *tasks, *steps;
	const char *version;
	pthread_t thread;
	fo_status st;
	bool told;
	char text[512];
};

static void *other(void *arg)
{
	struct rank *r = arg;
	struct fo_processes *p;
	r->st = fo_processes_meet(&p, r->tasks, r->steps, r->version, false);
	if (r->st == FO_OK)
		r->st = fo_processes_serve(p, &r->told);
	snprintf(r->text, sizeof r->text, "%s", fo_err_text());
	fo_processes_close(p, r->st);
	return NULL;
}

/* Starts the others; rank 0 meets them. */
static fo_status begin(struct rank rank[MOST], int ranks, const char *last_version, struct fo_processes **p)
{
	struct fo_comm *tasks[MOST], *steps[MOST];
	must(fo_comm_local_open(ranks, NULL, tasks));
	must(fo_comm_local_open(ranks, NULL, steps));
	for (int i = 1; i < ranks; i++) {
		rank[i] = (struct rank){ .tasks = tasks[i],
					 .steps = steps[i],
					 .version = i == ranks - 1 ? last_version : "1" };
		must(fo_thread_start(&rank[i].thread, other, &rank[i], "a rank"));
	}
	return fo_processes_meet(p, tasks[0], steps[0], "1", true);
}

static void join(struct rank *rank, int ranks)
{
	for (int i = 1; i < ranks; i++)
		pthread_join(rank[i].thread, NULL);
}

/* ---- runs ---- */

static void options_of(struct fo_opt_set *s, struct fo_run *r, const char *dir, int ranks, int shard, int steps)
{
	static const char *const given[][2] = {
		{ "model.layers", "2" },  { "model.hidden", "32" },       { "model.heads", "2" },
		{ "model.ffn", "48" },    { "model.kv-heads", "1" },      { "model.head-dim", "16" },
		{ "model.vocab", "300" }, { "data.seq", "16" },           { "data.holdout", "10" },
		{ "train.rows", "8" },    { "train.micro-batches", "2" }, { "train.precision", "fp32" },
		{ "eval.every", "2" },    { "eval.batches", "2" },        { "optim.schedule", "constant" },
		{ "sample.tokens", "0" }, { "guard.spike", "off" },
	};
	char number[24];
	fo_opt_init(s, fo_run_options, r);
	for (size_t i = 0; i < sizeof given / sizeof *given; i++)
		fo_opt_set_text(s, given[i][0], given[i][1], FO_ORIGIN_FLAG, "");
	fo_opt_set_text(s, "data.path", at("text"), FO_ORIGIN_FLAG, "");
	fo_opt_set_text(s, "run.dir", at(dir), FO_ORIGIN_FLAG, "");
	snprintf(number, sizeof number, "%d", ranks);
	fo_opt_set_text(s, "mesh.ranks", number, FO_ORIGIN_FLAG, "");
	snprintf(number, sizeof number, "%d", shard);
	fo_opt_set_text(s, "mesh.shard", number, FO_ORIGIN_FLAG, "");
	snprintf(number, sizeof number, "%d", steps);
	fo_opt_set_text(s, "train.steps", number, FO_ORIGIN_FLAG, "");
	must(fo_run_check(s, r));
}

/* One thread per rank, whatever they are. */
static void train(const char *dir, int ranks, int shard, int steps, bool processes)
{
	struct fo_opt_set s;
	struct fo_run r;
	struct rank rank[MOST];
	struct fo_train_hooks hooks = { 0 };
	struct fo_train_result result;
	options_of(&s, &r, dir, ranks, shard, steps);
	r.threads = processes ? 1 : ranks;
	hooks.version = "1";
	if (processes)
		must(begin(rank, ranks, "1", &hooks.processes));
	must(fo_train(&r, &hooks, &result));
	assert_int_equal(result.planned_bytes > 0, 1);
	if (processes) {
		fo_processes_close(hooks.processes, FO_OK);
		join(rank, ranks);
	}
	for (int i = 1; processes && i < ranks; i++) {
		assert_int_equal(rank[i].st, FO_OK);
		assert_true(rank[i].told);
	}
	fo_train_result_fini(&result);
	fo_opt_fini(&s);
}

static void same(const char *a, const char *b, const char *file)
{
	struct fo_arena arena = { 0 };
	char *x, *y;
	size_t nx, ny;
	must(fo_fs_read(&arena, fo_arena_printf(&arena, "%s/%s", at(a), file), (size_t)1 << 24, &x, &nx));
	must(fo_fs_read(&arena, fo_arena_printf(&arena, "%s/%s", at(b), file), (size_t)1 << 24, &y, &ny));
	if (nx != ny || memcmp(x, y, nx))
		fail_msg("%s of %s and %s differ", file, a, b);
	fo_arena_fini(&arena);
}

static void same_checkpoint(const char *a, const char *b, int step)
{
	char name[64];
	snprintf(name, sizeof name, "checkpoints/step-%08d/model.safetensors", step);
	same(a, b, name);
	snprintf(name, sizeof name, "checkpoints/step-%08d/state.safetensors", step);
	same(a, b, name);
}

static void test_trains_as_threads_do(void **state)
{
	(void)state;
	train("threads4", 4, 2, 3, false);
	train("processes4", 4, 2, 3, true);
	same_checkpoint("threads4", "processes4", 3);
	/* Each rank has left its timeline, and its program where that is another than rank 0's. */
	assert_true(fo_fs_exists(at("processes4/timeline-rank3.fot")));
	same("threads4", "processes4", "program-rank1.txt");
	/* On with another number of ranks and another mesh. */
	train("threads4", 2, 2, 5, false);
	train("processes4", 2, 2, 5, true);
	same_checkpoint("threads4", "processes4", 5);
	assert_false(fo_fs_exists(at("processes4/timeline-rank3.fot")));
}

static void test_unlike_programs(void **state)
{
	(void)state;
	struct rank rank[MOST];
	struct fo_processes *p;
	assert_int_equal(begin(rank, 3, "2", &p), FO_EUNSUPPORTED);
	assert_non_null(strstr(fo_err_text(), "rank 2 on host "));
	assert_non_null(strstr(fo_err_text(), "runs flatout 2, rank 0 on host "));
	fo_processes_close(p, FO_EUNSUPPORTED);
	join(rank, 3);
	for (int i = 1; i < 3; i++) {
		assert_int_equal(rank[i].st, FO_EUNSUPPORTED);
		assert_non_null(strstr(rank[i].text, "rank 2 on host "));
	}
}

/* A run as a team has it, whose rank `who` fails in the middle of a step, while a checkpoint is written. */
static void fail_in_step(int who, int ranks)
{
	struct fo_opt_set s;
	struct fo_run r;
	struct rank rank[MOST];
	struct fo_processes *p;
	struct fo_program program;
	struct fo_team *team;
	struct fo_store *store;
	struct fo_exec *exec;
	struct fo_shard shard;
	struct fo_loader *loader;
	struct fo_model m;
	char name[64];
	options_of(&s, &r, "processes4", ranks, 1, 4);
	must(fo_run_model(&r, &m));
	struct fo_lowering low = fo_run_lowering(&r, FO_MODE_TRAIN);
	must(fo_pass_build(&program, &m, &low));
	must(begin(rank, ranks, "1", &p));
	struct fo_exec_options o = { .isa = FO_ISA_REF, .threads = 1, .fail_rank = who, .fail_at = 20 };
	struct fo_ports ports = { .ranks = 1 };
	must(fo_shard_open(&shard, at("processes4/data/train.shard")));
	must(fo_processes_data(p, at("processes4/data"), shard.checksum));
	must(fo_team_open(&team, &program, NULL, &o, fo_ports_serve, p));
	o.links = fo_team_links(team);
	must(fo_store_new(&store, &program));
	must(fo_exec_new(&exec, &program, store, &o, fo_ports_serve, &ports, NULL));
	struct fo_keep keep;
	fo_keep_init(&keep, &program, store, exec, fo_team_world(team), 1);
	must(fo_team_fill(team, &keep, &(struct fo_keep_task){ .kind = FO_KEEP_INIT, .seed = 1 }));
	struct fo_batch_shape shape = { .seq = low.seq, .rows = low.rows * ranks, .micro_batches = low.micro_batches };
	struct fo_loader_state from = { .next_step = 2 };
	struct fo_order_share *order;
	must(fo_processes_loader(p, &shard, &shape, &from, 0, &order));
	shape.own_rows = low.rows;
	must(fo_loader_open_shared(&loader, &shard, &shape, &from, 0, order));
	int64_t wait_ns;
	must(fo_loader_next(loader, &ports.batch, &wait_ns));
	char beside[64];
	snprintf(beside, sizeof beside, "%s", at(who == 1 ? "beside1" : "beside3"));
	keep_beside_begin(team, &keep, beside);
	fo_status st = fo_team_step(team, exec, &ports, 0);
	assert_int_not_equal(st, FO_OK);
	assert_int_not_equal(st, FO_ECOMM); /* an echo */
	snprintf(name, sizeof name, "rank %d of %d on host ", who, ranks);
	if (strncmp(fo_err_text(), name, strlen(name)))
		fail_msg("'%s' does not begin with '%s'", fo_err_text(), name);
	struct fo_err error;
	fo_err_save(&error, st);
	keep_beside_end(team, &keep, beside); /* what was under way is not lost */
	fo_loader_close(loader);
	fo_keep_close(&keep);
	fo_exec_free(exec);
	fo_team_close(team);
	fo_store_free(store);
	fo_program_fini(&program);
	fo_shard_close(&shard);
	must(fo_err_raise(&error) == st ? FO_OK : FO_EBUG);
	fo_processes_close(p, st);
	join(rank, ranks);
	for (int i = 1; i < ranks; i++) { /* all leave with the same cause */
		assert_int_equal(rank[i].st, st);
		assert_true(rank[i].told);
		assert_string_equal(rank[i].text, error.text);
	}
	fo_opt_fini(&s);
}

static void test_a_rank_fails(void **state)
{
	(void)state;
	for (int who = 1; who < MOST; who += 2)
		fail_in_step(who, MOST);
}

static void test_what_is_not_the_same(void **state)
{
	(void)state;
	struct rank rank[MOST];
	struct fo_processes *p;
	must(begin(rank, 2, "1", &p));
	fo_status st = fo_processes_data(p, at("processes4/data"), 1);
	assert_int_equal(st, FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "rank 1 of 2 on host "));
	assert_non_null(strstr(fo_err_text(), "is another text than rank 0 has"));
	fo_processes_close(p, st);
	join(rank, 2);
	assert_int_equal(rank[1].st, FO_EFORMAT);
	assert_true(rank[1].told);
}

/* A rank that takes no more tasks: its process is gone, or hangs. */
static void *leave(void *arg)
{
	struct rank *r = arg;
	struct fo_processes *p;
	r->st = fo_processes_meet(&p, r->tasks, r->steps, "1", false);
	while (r->st == FO_OK)
		r->st = fo_comm_check(r->tasks);
	fo_processes_close(p, r->st);
	return NULL;
}

/* Rank 0 ends a job that failed without the ranks that do not take its end. */
static void test_a_rank_is_gone(void **state)
{
	(void)state;
	struct fo_comm *tasks[2], *steps[2];
	struct fo_processes *p;
	must(fo_comm_local_open(2, NULL, tasks));
	must(fo_comm_local_open(2, NULL, steps));
	struct rank gone = { .tasks = tasks[1], .steps = steps[1] };
	must(fo_thread_start(&gone.thread, leave, &gone, "a rank"));
	must(fo_processes_meet(&p, tasks[0], steps[0], "1", false));
	p->end_s = 0.1;
	fo_processes_close(p, fo_fail(FO_EIO, "the disk is full"));
	assert_string_equal(fo_err_text(), "the disk is full");
	pthread_join(gone.thread, NULL);
	assert_int_equal(gone.st, FO_ECOMM);
}

/* A host without rank 0's working directory: only what counts from it is refused. */
static void test_no_such_folder(void **state)
{
	(void)state;
	static struct fo_task_folder t;
	static struct fo_answer answer;
	struct fo_comm *world;
	struct fo_member m = { .number = 0, .ranks = 1 };
	struct fo_keep_task load = { .kind = FO_KEEP_LOAD, .path = "weights" };
	must(fo_comm_local_open(1, NULL, &world));
	m.world = world;
	snprintf(t.cwd, sizeof t.cwd, "/no such/folder");
	snprintf(t.dir, sizeof t.dir, "%s", at("elsewhere"));
	snprintf(t.token, sizeof t.token, "%s", at("token"));
	t.text = 7;
	must(fo_fs_write_atomic(t.token, "7\n", 2));
	must(fo_member_work(&m, FO_TASK_FOLDER, &t, sizeof t, &answer));
	assert_int_equal(fo_member_work(&m, FO_TASK_FILL, &load, sizeof load, &answer), FO_EIO);
	assert_string_equal(answer.error.text,
			    "'weights' counts from rank 0's working directory '/no such/folder', which is not there");
	fo_rank_state_close(m.state, FO_EIO);
	fo_comm_close(world);
	free(m.lost);
}

static int make_text(void **state)
{
	(void)state;
	struct fo_str s = { 0 };
	for (int i = 0; i < 4000; i++)
		fo_str_printf(&s, "%s%d%s", i % 7 ? "word " : "another one ", i % 13, i % 40 ? " " : "\n\n");
	snprintf(folder, sizeof folder, "processes.XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	must(fo_fs_write_atomic(at("text"), s.data, s.len));
	setenv("FLATOUT_CACHE", folder, 1); /* the peak is measured once */
	fo_str_fini(&s);
	return 0;
}

static int remove_all(void **state)
{
	(void)state;
	return fo_fs_remove_tree(folder) != FO_OK;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_trains_as_threads_do), /* makes the text that others read */
		cmocka_unit_test(test_unlike_programs),      cmocka_unit_test(test_a_rank_fails),
		cmocka_unit_test(test_what_is_not_the_same), cmocka_unit_test(test_a_rank_is_gone),
		cmocka_unit_test(test_no_such_folder),
	};
	return cmocka_run_group_tests(tests, make_text, remove_all);
}
