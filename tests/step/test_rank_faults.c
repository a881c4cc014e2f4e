/* What goes wrong on one rank ends the job, with one message that names rank and operation: operations that fail,
 * on any rank and at any place; and programs that differ, so that a rank never calls what the others wait for.
 * A rank that is merely late ends nothing. */
#include "pass/pass.h"
#include "support/choices.h"
#include "support/must.h"
#include "support/ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { RANKS = 4 };

static struct ranks_job job_of(const struct fo_model *m, const struct step_batch *b)
{
	struct ranks_job j = { .model = *m,
			       .batch = b,
			       .options = { .isa = FO_ISA_REF, .threads = 1, .poison = true, .timeline_steps = 1 },
			       .clip = 0.5,
			       .eps = 1e-4,
			       .steps = 1 };
	j.low = step_lowering(b, FO_PRECISION_F32, FO_MODE_TRAIN);
	j.low.rows = b->rows / RANKS;
	j.low.pass.ddp = 1;
	j.low.mesh.replicate = RANKS;
	return j;
}

static void name_of(const struct ranks_job *j, int rank, int id, char *out, size_t size)
{
	const struct step_rig *r = &j->rank[rank].rig;
	const struct fo_unrolled *u = fo_exec_unrolled(r->exec);
	snprintf(out, size, "%s of ", fo_op_info(fo_instance_op(&r->program, u, id)->kind)->name);
}

/* Nobody fails while another still opens its links. */
static pthread_barrier_t opened;
static void meet(struct ranks_rank *r)
{
	(void)r;
	pthread_barrier_wait(&opened);
}

/* Of all ranks exactly one has an error of its own; the others say that it ended the job. */
static void test_injected(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 32, 4, 2, 40, 50, false);
	struct step_batch b;
	step_batch_random(&b, 8, RANKS, 2, m.vocab, 2, 7);
	struct ranks_job whole = job_of(&m, &b);
	ranks_run(&whole);
	const int instances = fo_exec_unrolled(whole.rank[0].rig.exec)->n;
	for (int round = 0; round < 60; round++) {
		struct ranks_job j = job_of(&m, &b);
		char name[64];
		j.options.fail_rank = (int)choices_draw(RANKS);
		j.options.fail_at = 1 + (int)choices_draw(instances - 1);
		j.options.delay_seed = choices_draw(2) ? choices_seed + choices_draws : 0;
		j.transport.shake = choices_draw(2) ? choices_seed + choices_draws : 0;
		j.before = meet;
		ranks_run(&j);
		name_of(&whole, 0, j.options.fail_at, name, sizeof name);
		for (int r = 0; r < RANKS; r++) {
			const struct fo_err *e = &j.rank[r].error;
			if (r == j.options.fail_rank) {
				assert_int_equal(e->st, FO_EIO);
				if (strncmp(e->text, name, strlen(name)))
					fail_msg("'%s' does not begin with '%s'", e->text, name);
			} else if (e->st != FO_OK) { /* a rank that needs no more of it may have ended its step */
				assert_int_equal(e->st, FO_ECOMM);
				snprintf(name, sizeof name, "rank %d ended the job", j.options.fail_rank);
				if (!strstr(e->text, name))
					fail_msg("rank %d says '%s'", r, e->text);
				name_of(&whole, 0, j.options.fail_at, name, sizeof name);
			}
		}
		ranks_free(&j);
	}
	ranks_free(&whole);
	step_batch_free(&b);
}

/* ---- programs that differ ---- */

static int lost_rank, lost_call; /* this rank's program lacks this operation of class comm */

static void lose(struct fo_program *p)
{
	int seen = 0;
	for (int k = 0; k < p->nblock && p->rank == lost_rank; k++)
		for (int i = 0; i < p->block[k].n; i++) {
			struct fo_block *block = &p->block[k];
			if (fo_op_info(block->op[i].kind)->cls != FO_CLASS_COMM || seen++ != lost_call)
				continue;
			memmove(&block->op[i], &block->op[i + 1], (size_t)(block->n - i - 1) * sizeof *block->op);
			block->n--;
			return;
		}
}

static int calls_of(const struct fo_program *p)
{
	int calls = 0;
	for (int k = 0; k < p->nblock; k++)
		for (int i = 0; i < p->block[k].n; i++)
			calls += fo_op_info(p->block[k].op[i].kind)->cls == FO_CLASS_COMM;
	return calls;
}

static void test_lost(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 32, 4, 2, 40, 50, false);
	struct step_batch b;
	step_batch_random(&b, 8, RANKS, 2, m.vocab, 2, 7);
	struct ranks_job whole = job_of(&m, &b);
	ranks_run(&whole);
	const int calls = calls_of(&whole.rank[0].rig.program);
	assert_true(calls >= 3);
	for (lost_call = 0; lost_call < calls; lost_call++)
		for (lost_rank = 0; lost_rank < RANKS; lost_rank++) {
			struct ranks_job j = job_of(&m, &b);
			char name[48];
			int says = 0;
			j.build = lose;
			j.before = meet;
			j.options.delay_seed = (uint64_t)(7 * lost_call + lost_rank);
			j.transport.shake = (uint64_t)(5 * lost_call + lost_rank);
			ranks_run(&j);
			snprintf(name, sizeof name, "waits for rank %d, which never calls it", lost_rank);
			for (int r = 0; r < RANKS; r++) {
				const struct fo_err *e = &j.rank[r].error;
				/* Calls that meet and are unlike are an error of their own, by both names. */
				bool unlike = strstr(e->text, " where rank ") != NULL;
				says += e->st == FO_ECOMM && (strstr(e->text, name) || unlike);
				assert_true(r == lost_rank || e->st == FO_ECOMM);
				if (e->st != FO_OK && !strstr(e->text, "all_reduce"))
					fail_msg("rank %d of a job that lacks call %d of rank %d says '%s'", r,
						 lost_call, lost_rank, e->text);
			}
			if (!says)
				fail_msg("call %d of rank %d: nobody names it: '%s'", lost_call, lost_rank,
					 j.rank[!lost_rank].error.text);
			ranks_free(&j);
		}
	ranks_free(&whole);
	step_batch_free(&b);
}

/* ---- late ranks ---- */

static void come_late(struct ranks_rank *r)
{
	if (r->rank == 2) /* many naps of the others, who have nothing else to do */
		nanosleep(&(struct timespec){ .tv_nsec = 300000000 }, NULL);
}

static void test_late(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 32, 4, 2, 40, 50, false);
	struct step_batch b;
	step_batch_random(&b, 8, RANKS, 2, m.vocab, 2, 7);
	struct ranks_job j = job_of(&m, &b);
	j.before = come_late;
	j.steps = 3;
	ranks_run(&j);
	for (int r = 0; r < RANKS; r++)
		if (j.rank[r].error.st != FO_OK)
			fail_msg("rank %d: %s", r, j.rank[r].error.text);
	ranks_free(&j);
	step_batch_free(&b);
}

int main(void)
{
	pthread_barrier_init(&opened, NULL, RANKS);
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_injected), cmocka_unit_test(test_lost),
					    cmocka_unit_test(test_late) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
