/* Pipelines on CUDA devices: all stages on one, through host memory, or each rank on one of its own, over NCCL. Losses,
 * gradient norms, gradients, weights and moments are those of one rank on the processor, within what test_cuda_ranks.c
 * allows; what was planned is what is taken; a fault of one stage ends all. FLATOUT_PIPELINE_CASES=all: every case, and
 * both ways. */
#include "support/cuda.h"
#include "support/must.h"
#include "support/ranks.h"
#include "train/store_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct fo_test_soft *soft;

enum { SEQ = 8, VOCAB = 24, DEVICES = 8 };

#define PIPE(kind) .ddp = 1, .pp = 1 + FO_PP_##kind
static const struct form {
	const char *name;
	int pp, layers, micro_batches;
	struct fo_passes pass;
	int shard, tp, cp;     /* 0: 1 */
	bool tied, bf16, more; /* more: with FLATOUT_PIPELINE_CASES alone */
	int parts[4];          /* layers of the parts; 0: even */
} form[] = {
	{ "gpipe", 2, 2, 3, .pass = { PIPE(GPIPE) }, .tied = true },
	{ "gpipe", 4, 4, 2, .pass = { PIPE(GPIPE) }, .more = true },
	{ "1f1b", 2, 3, 3, .pass = { PIPE(1F1B), .merge_qkv = 1 }, .parts = { 2, 1 } },
	{ "1f1b", 4, 4, 5, .pass = { PIPE(1F1B) }, .tied = true },
	{ "interleaved", 2, 4, 4, .pass = { PIPE(INTERLEAVED) } },
	{ "interleaved", 4, 8, 4, .pass = { PIPE(INTERLEAVED) }, .tied = true, .more = true },
	{ "zb-h1", 2, 2, 3, .pass = { PIPE(ZB_H1), .recompute = FO_RECOMPUTE_SELECTIVE } },
	{ "zb-h1", 4, 4, 4, .pass = { PIPE(ZB_H1) } },
	{ "zb-h2", 2, 2, 4, .pass = { PIPE(ZB_H2) }, .tied = true },
	{ "zb-h2", 4, 4, 5, .pass = { PIPE(ZB_H2) }, .more = true },
	{ "dualpipe-v", 2, 4, 4, .pass = { PIPE(DUALPIPE_V) } },
	{ "dualpipe-v", 4, 8, 8, .pass = { PIPE(DUALPIPE_V) }, .tied = true, .more = true },
	{ "1f1b, bf16", 2, 2, 2, .pass = { PIPE(1F1B) }, .bf16 = true },
	{ "1f1b x fsdp", 2, 2, 2, .pass = { PIPE(1F1B), .zero = FO_ZERO_WEIGHTS, .zero_prefetch = 1 }, .shard = 2 },
	{ "interleaved x tp", 2, 4, 2, .pass = { PIPE(INTERLEAVED), .tp = FO_TP_SEQUENCE }, .tp = 2, .tied = true,
	  .more = true },
	{ "zb-h1 x zero 1 x tp", 2, 2, 2, .pass = { PIPE(ZB_H1), .zero = FO_ZERO_STATE, .tp = FO_TP_SEQUENCE },
	  .shard = 2, .tp = 2 },
	{ "1f1b x ring", 2, 2, 2, .pass = { PIPE(1F1B), .cp = FO_CP_RING }, .cp = 2 },
};
enum { FORMS = sizeof form / sizeof *form };

static int axis(int n) { return n ? n : 1; }

static void describe(struct ranks_job *j, const struct form *f, const struct step_batch *b, bool stages)
{
	*j = (struct ranks_job){
		.model = step_model(f->layers, 16, 2, 2, 24, VOCAB, f->tied), .batch = b, .clip = 1, .eps = 1e-4
	};
	j->low = step_lowering(b, f->bf16 ? FO_PRECISION_BF16 : FO_PRECISION_F32, FO_MODE_TRAIN);
	j->options = (struct fo_exec_options){ .threads = 1, .poison = true, .timeline_steps = 4, .timed_every = 2 };
	must(fo_isa_choose(&j->options.isa));
	if (!stages)
		return;
	j->low.pass = f->pass;
	j->low.mesh = (struct fo_mesh){
		.pp = f->pp, .replicate = 1, .shard = axis(f->shard), .cp = axis(f->cp), .tp = axis(f->tp)
	};
	j->low.rows = b->rows / axis(f->shard);
	for (int i = 0; i < 4 && f->parts[i]; i++)
		j->low.stages.layers[j->low.stages.parts++] = (int16_t)f->parts[i];
}

/* What all ranks have between them. */
static void join(struct outcome *all, const struct ranks_job *j, const char *label)
{
	const int tp = fo_mesh_tp(&j->low.mesh), stage = fo_mesh_stage_ranks(&j->low.mesh),
		  shared = tp * (j->low.pass.zero ? fo_mesh_group(&j->low.mesh, FO_GROUP_SHARD, NULL, NULL) : 1);
	*all = (struct outcome){ 0 };
	for (int r = 0; r < j->ranks; r++) {
		const struct ranks_rank *k = &j->rank[r];
		const int like = r / stage * stage + r % stage % shared;
		if (k->error.st != FO_OK)
			fail_msg("%s: rank %d: %s", label, r, k->error.text);
		assert_memory_equal(k->out.loss, j->rank[0].out.loss, sizeof k->out.loss);
		assert_memory_equal(k->out.norm, j->rank[0].out.norm, sizeof k->out.norm);
		assert_true(k->hash == j->rank[like].hash);
		if (r == like)
			outcome_join(all, &k->out, r > 0);
	}
}

static void compare(const char *label, const struct outcome *got, const struct outcome *want, double eps)
{
	assert_true(want->loss[OUTCOME_STEPS - 1] < want->loss[0]);
	for (int s = 0; s < OUTCOME_STEPS; s++)
		if (!(fabs(got->loss[s] / want->loss[s] - 1) <= eps) ||
		    !(fabs(got->norm[s] / want->norm[s] - 1) <= 4 * eps))
			fail_msg("%s: step %d: loss %.9g, norm %.9g; one rank has %.9g and %.9g", label, s,
				 got->loss[s], got->norm[s], want->loss[s], want->norm[s]);
	assert_int_equal(got->n, want->n);
	for (int k = 0; k < got->n; k++) {
		const int which = got->item[k].which;
		if (which == 1 || which == 3)
			continue;
		const double far = outcome_distance(&got->item[k], outcome_find(want, &got->item[k]), want);
		if (!(far <= 8 * eps))
			fail_msg("%s: '%s' (%d) is off by %.3g", label, got->item[k].name, which, far);
	}
}

/* Memory of devices and page-locked memory that was taken is what was planned. */
static void check_memory(const struct ranks_job *j, const char *label, const struct fo_soft_counters *before)
{
	struct fo_soft_counters c;
	int64_t device = 0, host = 0;
	for (int i = 0; i < j->ranks; i++) {
		const struct fo_memory m = fo_exec_memory(j->rank[i].rig.exec);
		const struct fo_unrolled *u = fo_exec_unrolled(j->rank[i].rig.exec);
		assert_true(u->persistent_bytes == fo_store_bytes(j->rank[i].rig.store));
		device += m.arena + m.persistent + m.workspace;
		host += m.staging + m.host_arena + fo_store_pinned_bytes();
	}
	soft->counters(&c, false);
	if (c.live_bytes - before->live_bytes != device || c.host_bytes - before->host_bytes != host)
		fail_msg("%s: devices hold %lld bytes, planned are %lld; page-locked are %lld, planned %lld", label,
			 (long long)(c.live_bytes - before->live_bytes), (long long)device,
			 (long long)(c.host_bytes - before->host_bytes), (long long)host);
	/* Without a host in between, the third step replays a graph. */
	assert_true((c.graph_launches > before->graph_launches) == (j->where == RANKS_OWN_DEVICES));
}

static void run_form(const struct form *f, int where)
{
	static struct ranks_job got, want;
	static struct outcome all, one;
	struct fo_soft_counters before = { 0 };
	struct step_batch b;
	char label[96];
	snprintf(label, sizeof label, "%s, pp %d, %s", f->name, f->pp,
		 where == RANKS_ONE_DEVICE ? "one device" : "NCCL");
	step_batch_random(&b, SEQ, axis(f->shard), f->micro_batches, VOCAB, 2, 5);
	describe(&got, f, &b, true);
	describe(&want, f, &b, false);
	got.where = where;
	if (soft)
		soft->counters(&before, false);
	ranks_run(&got);
	ranks_run(&want);
	join(&all, &got, label);
	join(&one, &want, label);
	compare(label, &all, &one, f->bf16 ? 1e-2 : 2e-6);
	ranks_check_wire(&got, label);
	if (soft)
		check_memory(&got, label, &before);
	outcome_free(&all);
	outcome_free(&one);
	ranks_free(&got);
	ranks_free(&want);
	step_batch_free(&b);
}

static void test_one_rank(void **state)
{
	(void)state;
	const char *more = getenv("FLATOUT_PIPELINE_CASES");
	for (int k = 0; k < FORMS; k++) {
		const int ranks = form[k].pp * axis(form[k].shard) * axis(form[k].tp) * axis(form[k].cp);
		const bool own = fo_cuda_count() >= ranks;
		if (form[k].more && !more)
			continue;
		if (own && (more || k % 4 % 3 == 0))
			run_form(&form[k], RANKS_OWN_DEVICES);
		if (!own || more || k % 4 % 3)
			run_form(&form[k], RANKS_ONE_DEVICE);
	}
}

/* An instance of one stage fails: its error is that, the others' that a rank has ended the job. */
static void test_fault(void **state)
{
	(void)state;
	static struct ranks_job j;
	for (int i = 0; i < (getenv("FLATOUT_PIPELINE_CASES") ? 12 : 4); i++) {
		const struct form *f = &form[i % 4 < 2 ? 4 : 7];
		const int fails = i % f->pp;
		struct step_batch b;
		step_batch_random(&b, SEQ, 1, f->micro_batches, VOCAB, 0, 6);
		describe(&j, f, &b, true);
		j.where = i % 2 && fo_cuda_count() >= f->pp ? RANKS_OWN_DEVICES : RANKS_ONE_DEVICE;
		j.options.fail_rank = fails;
		j.options.fail_at = 10 + 17 * i;
		ranks_run(&j);
		for (int r = 0; r < f->pp; r++) {
			const struct fo_err *e = &j.rank[r].error;
			if (r == fails ? e->st != FO_EIO || !strstr(e->text, "a fault was asked for")
				       : e->st != FO_ECOMM)
				fail_msg("case %d: rank %d says '%s' (%d)", i, r, e->text, e->st);
		}
		ranks_free(&j);
		step_batch_free(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_one_rank), cmocka_unit_test(test_fault) };
	int status;
	char devices[8];
	snprintf(devices, sizeof devices, "%d", DEVICES);
	setenv("FLATOUT_SOFT_DEVICES", devices, 1);
	struct fo_cuda *cuda = fo_test_cuda_open(&status);
	if (!cuda)
		return status;
	soft = fo_test_soft(cuda);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fo_cuda_close(cuda);
	return failed;
}
