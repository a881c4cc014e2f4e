/* Ranks on CUDA devices: all on one, through host memory, or each on one of its own, over NCCL. Losses, gradients and
 * state are those of ranks on the processor, within what tests/cuda/test_cuda_step.c allows between the two for one
 * rank; a fault ends all. */
#include "support/cuda.h"
#include "support/ranks.h"
#include "support/must.h"
#include "train/store_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct fo_test_soft *soft;

/* Jobs of shard x replicate x cp ranks; cp 0 is 1. */
static const struct form {
	const char *name;
	int shard, replicate, micro_batches;
	struct fo_passes pass;
	int cp;
} form[] = {
	{ "ddp", 1, 2, 1, { .ddp = 1 }, 0 },
	{ "ddp, buckets at the end", 1, 2, 2, { .ddp = 1, .fuse_elementwise = 1 }, 0 },
	{ "zero 1", 2, 1, 2, { .ddp = 1, .zero = FO_ZERO_STATE }, 0 },
	{ "zero 2, each micro-batch", 2, 1, 2, { .ddp = 1, .zero = FO_ZERO_GRADIENTS, .zero_sync = 1 }, 0 },
	{ "fsdp",
	  2,
	  1,
	  2,
	  { .ddp = 1, .zero = FO_ZERO_WEIGHTS, .zero_prefetch = 1, .zero_sync = 1, .merge_qkv = 1 },
	  0 },
	{ "fsdp, three ranks", 3, 1, 1, { .ddp = 1, .zero = FO_ZERO_WEIGHTS, .recompute = FO_RECOMPUTE_SELECTIVE }, 0 },
	{ "hsdp", 2, 2, 2, { .ddp = 1, .zero = FO_ZERO_WEIGHTS, .zero_prefetch = 1 }, 0 },
	{ "ring of three", 1, 1, 2, { .ddp = 1, .cp = FO_CP_RING, .recompute = FO_RECOMPUTE_SELECTIVE }, 3 },
	{ "ring, fsdp", 2, 1, 1, { .ddp = 1, .cp = FO_CP_RING, .zero = FO_ZERO_WEIGHTS, .zero_prefetch = 1 }, 2 },
};
enum { FORMS = sizeof form / sizeof *form, RANKS_OWN = 4, /* most of a form */ SEQ = 12, VOCAB = 70 };

/* Heads and rows that three ranks cannot share evenly. */
static struct fo_model model(void) { return step_model(2, 32, 4, 2, 40, VOCAB, false); }

static void run(struct ranks_job *j, const struct form *f, enum fo_numerics precision, const struct step_batch *b,
		int where)
{
	*j = (struct ranks_job){ .model = model(), .batch = b, .clip = 1, .eps = 1e-4, .where = where };
	j->low = step_lowering(b, precision, FO_MODE_TRAIN);
	j->low.rows = b->rows / (f->shard * f->replicate);
	j->low.pass = f->pass;
	j->low.mesh = (struct fo_mesh){ .shard = f->shard, .replicate = f->replicate, .cp = f->cp };
	j->options = (struct fo_exec_options){ .threads = 1, .poison = true, .timeline_steps = 4, .timed_every = 2 };
	must(fo_isa_choose(&j->options.isa));
	ranks_run(j);
}

static void compare(const char *label, const struct ranks_job *got, const struct ranks_job *want, double eps)
{
	for (int i = 0; i < got->ranks; i++) {
		const struct outcome *g = &got->rank[i].out, *w = &want->rank[i].out;
		if (got->rank[i].error.st != FO_OK)
			fail_msg("%s: rank %d: %s", label, i, got->rank[i].error.text);
		assert_true(w->loss[OUTCOME_STEPS - 1] < w->loss[0]);
		for (int s = 0; s < OUTCOME_STEPS; s++)
			if (!(fabs(g->loss[s] / w->loss[s] - 1) <= eps) ||
			    !(fabs(g->norm[s] / w->norm[s] - 1) <= 4 * eps))
				fail_msg("%s: rank %d, step %d: loss %.9g, norm %.9g; on the processor %.9g and %.9g",
					 label, i, s, g->loss[s], g->norm[s], w->loss[s], w->norm[s]);
		assert_int_equal(g->n, w->n);
		for (int k = 0; k < g->n; k++) {
			const int which = g->item[k].which; /* as test_cuda_step: weights, moments, gradients */
			if (which == 1 || which == 3)
				continue;
			double far = outcome_distance(&g->item[k], outcome_find(w, &g->item[k]), w);
			if (!(far <= 8 * eps))
				fail_msg("%s: rank %d: '%s' (%d) is off by %.3g", label, i, g->item[k].name, which,
					 far);
		}
	}
}

/* Page-locked memory that was taken is what was planned. */
static void check_staging(const struct ranks_job *j, const char *label, int64_t before)
{
	struct fo_soft_counters c;
	int64_t plan = 0;
	for (int i = 0; i < j->ranks; i++) {
		const struct fo_memory m = fo_exec_memory(j->rank[i].rig.exec);
		plan += m.staging + m.host_arena + fo_store_pinned_bytes();
	}
	soft->counters(&c, false);
	if (c.host_bytes - before != plan)
		fail_msg("%s: %lld bytes are page-locked, planned are %lld", label, (long long)(c.host_bytes - before),
			 (long long)plan);
}

static void against_processor(int where)
{
	for (int k = 0; k < FORMS; k++) {
		const struct form *f = &form[k];
		const bool exact = k % 3 != 1;
		struct ranks_job *got = calloc(1, sizeof *got), *want = calloc(1, sizeof *want);
		struct fo_soft_counters before = { 0 };
		struct step_batch b;
		char label[96];
		assert_true(got && want);
		snprintf(label, sizeof label, "%s, %s", f->name, where == RANKS_ONE_DEVICE ? "one device" : "NCCL");
		step_batch_random(&b, SEQ, f->shard * f->replicate, f->micro_batches, VOCAB, 2, 5);
		if (soft)
			soft->counters(&before, false);
		const enum fo_numerics precision = exact ? FO_PRECISION_F32 : FO_PRECISION_BF16;
		run(got, f, precision, &b, where);
		run(want, f, precision, &b, RANKS_PROCESSOR);
		compare(label, got, want, exact ? 2e-6 : 1e-2);
		if (where == RANKS_ONE_DEVICE)
			ranks_check_wire(got, label);
		if (soft)
			check_staging(got, label, before.host_bytes);
		ranks_free(got);
		ranks_free(want);
		free(got);
		free(want);
		step_batch_free(&b);
	}
}

static void test_one_device(void **state)
{
	(void)state;
	against_processor(RANKS_ONE_DEVICE);
}

static void test_own_devices(void **state)
{
	(void)state;
	if (fo_cuda_count() < RANKS_OWN)
		skip();
	against_processor(RANKS_OWN_DEVICES);
}

/* One rank's instance fails: its error is that, the others say that a rank has ended the job. */
static void test_fault(void **state)
{
	(void)state;
	static struct ranks_job j;
	struct step_batch b;
	step_batch_random(&b, SEQ, 2, 2, VOCAB, 0, 6);
	for (int i = 0; i < 8; i++) {
		const int where = i % 2 && fo_cuda_count() > 1 ? RANKS_OWN_DEVICES : RANKS_ONE_DEVICE;
		const struct form *f = &form[i % 4 < 2 ? 0 : 4];
		j = (struct ranks_job){ .model = model(), .batch = &b, .clip = 1, .eps = 1e-4, .where = where };
		j.low = step_lowering(&b, FO_PRECISION_F32, FO_MODE_TRAIN);
		j.low.rows = 1;
		j.low.pass = f->pass;
		j.low.mesh = (struct fo_mesh){ .shard = f->shard, .replicate = f->replicate, .cp = f->cp };
		j.options = (struct fo_exec_options){ .threads = 1, .timeline_steps = 1, .fail_rank = i / 4 };
		j.options.fail_at = 10 + 13 * i; /* some compute, some travel */
		ranks_run(&j);
		const struct fo_err *one = &j.rank[i / 4].error, *other = &j.rank[1 - i / 4].error;
		if (one->st != FO_EIO || !strstr(one->text, "a fault was asked for") || other->st != FO_ECOMM)
			fail_msg("case %d: '%s' (%d), the other rank '%s' (%d)", i, one->text, one->st, other->text,
				 other->st);
		ranks_free(&j);
	}
	step_batch_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_one_device), cmocka_unit_test(test_own_devices),
					    cmocka_unit_test(test_fault) };
	int status;
	setenv("FLATOUT_SOFT_DEVICES", "4", 1);
	struct fo_cuda *cuda = fo_test_cuda_open(&status);
	if (!cuda)
		return status;
	soft = fo_test_soft(cuda);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fo_cuda_close(cuda);
	return failed;
}
