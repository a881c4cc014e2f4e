/* The other ranks of a job (train/team.h): the rank that fails, and the one that makes a value that is not finite, are
 * named whichever they are, and all others come back. */
#include "train/team.h"

#include "pass/pass.h"
#include "support/keep_beside.h"
#include "support/must.h"
#include "support/scratch.h"
#include "support/step.h"
#include "train/links.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 4, SEQ = 8, ROWS = 8, VOCAB = 64 };

/* What the ports of rank `who` do in the step that is tested. */
static _Atomic int who;
static enum { NOTHING, FAIL, POISON } what;

static fo_status serve(void *ctx, enum fo_port port, int mb, const struct fo_tensor *arg, int n)
{
	struct fo_ports *p = ctx;
	FO_TRY(fo_ports_serve(ctx, port, mb, arg, n));
	if (p->rank != who)
		return FO_OK;
	if (what == FAIL && port == FO_PORT_BATCH)
		return fo_fail(FO_EIO, "no batch came");
	if (what == POISON && port == FO_PORT_HYPER)
		((double *)arg->data)[FO_HYPER_INV_TOKENS] = NAN;
	return FO_OK;
}

struct job {
	struct step_batch text;
	struct fo_batch batch;
	struct fo_program p;
	struct fo_store *store;
	struct fo_exec *exec;
	struct fo_team *team;
	struct fo_keep keep;
	struct fo_ports ports;
};

static void job_new(struct job *j)
{
	struct fo_model m = step_model(2, 32, 4, 2, 64, VOCAB, false);
	struct fo_exec_options o = { .isa = FO_ISA_REF, .threads = 1, .poison = true };
	*j = (struct job){ .ports = { .rank = 0, .ranks = RANKS } };
	step_batch_random(&j->text, SEQ, ROWS, 1, VOCAB, 0, 3);
	j->batch = (struct fo_batch){ .token = j->text.token,
				      .target = j->text.target,
				      .position = j->text.position,
				      .doc_start = j->text.doc_start };
	struct fo_lowering low = step_lowering(&j->text, FO_PRECISION_F32, FO_MODE_TRAIN);
	low.rows = ROWS / RANKS;
	low.pass.ddp = 1;
	low.mesh.replicate = RANKS;
	must(fo_pass_build(&j->p, &m, &low));
	must(fo_store_new(&j->store, &j->p));
	must(fo_team_open(&j->team, &j->p, NULL, &o, serve, NULL));
	o.links = fo_team_links(j->team);
	must(fo_exec_new(&j->exec, &j->p, j->store, &o, serve, &j->ports, NULL));
	fo_keep_init(&j->keep, &j->p, j->store, j->exec, fo_team_world(j->team), 1);
	must(fo_team_fill(j->team, &j->keep, &(struct fo_keep_task){ .kind = FO_KEEP_INIT, .seed = 1 }));
	j->ports.batch = &j->batch;
	double *h = j->ports.hyper;
	h[FO_HYPER_LR] = 1e-3, h[FO_HYPER_BETA1] = 0.9, h[FO_HYPER_BETA2] = 0.95, h[FO_HYPER_EPS] = 1e-8;
	h[FO_HYPER_CORR1] = 0.1, h[FO_HYPER_CORR2] = 0.05, h[FO_HYPER_CLIP] = 1;
	h[FO_HYPER_INV_TOKENS] = 1.0 / (double)j->text.loss_tokens;
}

static void job_free(struct job *j)
{
	fo_keep_close(&j->keep);
	fo_exec_free(j->exec);
	fo_team_close(j->team);
	fo_store_free(j->store);
	fo_program_fini(&j->p);
	step_batch_free(&j->text);
}

static void test_fails(void **state)
{
	(void)state;
	for (int rank = 0; rank < RANKS; rank++) {
		struct job j;
		char name[32], beside[80];
		job_new(&j);
		snprintf(beside, sizeof beside, "%s/%d", fo_scratch, rank);
		keep_beside_begin(j.team, &j.keep, beside);
		what = NOTHING;
		must(fo_team_step(j.team, j.exec, &j.ports, 0));
		assert_true(isfinite(j.ports.loss[0]) && j.ports.loss[0] > 0);
		what = FAIL;
		who = rank;
		assert_int_equal(fo_team_step(j.team, j.exec, &j.ports, 1), FO_EIO);
		snprintf(name, sizeof name, "rank %d of %d", rank, RANKS);
		assert_non_null(strstr(fo_err_text(), name));
		assert_non_null(strstr(fo_err_text(), "no batch came"));
		keep_beside_end(j.team, &j.keep, beside); /* what was under way is not lost */
		job_free(&j);
	}
}

static void test_not_finite(void **state)
{
	(void)state;
	for (int rank = 0; rank < RANKS; rank++) {
		struct job j;
		struct fo_exec_fault fault;
		char name[32];
		job_new(&j);
		what = POISON;
		who = rank;
		must(fo_team_step(j.team, j.exec, &j.ports, 0));
		assert_false(isfinite(j.ports.loss[0]));
		must(fo_team_find_fault(j.team, j.exec, &j.ports, &fault));
		snprintf(name, sizeof name, "on rank %d of %d", rank, RANKS);
		if (strncmp(fault.text, name, strlen(name)))
			fail_msg("'%s' does not begin with '%s'", fault.text, name);
		job_free(&j);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_fails), cmocka_unit_test(test_not_finite) };
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
