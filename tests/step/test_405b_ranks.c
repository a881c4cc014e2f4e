/* The 405B's programs on eight ranks, here: null kernels, a transport that matches, checks and counts calls and moves
 * nothing, and memory that is reserved and never touched. Every instance of a step runs on every rank in an order drawn
 * among all that lanes, waits and calls permit; those of a few layers, which have every kind of neighbour that a layer
 * can have, by the executors' own threads, too (threads take long to hand over what takes no time). */
#include "base/clock.h"
#include "pass/pass.h"
#include "support/must.h"
#include "support/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>

enum { RANKS = 8, FEW_LAYERS = 6, MICRO_BATCHES = 16 };

static double resident_gb(void)
{
	struct rusage u;
	assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
	return (double)u.ru_maxrss * 1024e-9;
}

/* What the ranks planned, all together: bytes of state and of arenas. */
static double planned_gb(const struct ranks_job *j, int64_t *instances)
{
	double bytes = 0;
	*instances = 0;
	for (int r = 0; r < j->ranks; r++) {
		const struct fo_unrolled *u = fo_exec_unrolled(j->rank[r].rig.exec);
		bytes += (double)u->arena_bytes + (double)u->persistent_bytes;
		*instances += u->n;
	}
	return bytes * 1e-9;
}

static void run_405b(struct fo_mesh mesh, struct fo_passes pass)
{
	struct ranks_job j = {
		.options = { .isa = FO_ISA_REF, .threads = 1, .null_kernels = true, .timeline_steps = 1 },
		.transport = { .null = true },
		.steps = 1
	};
	must(fo_model_load("llama-3.1-405b", &j.model));
	const int64_t layers = getenv("FLATOUT_SANITIZED") ? FEW_LAYERS : j.model.layers;
	j.low = (struct fo_lowering){ .seq = 8192,
				      .rows = 1,
				      .micro_batches = MICRO_BATCHES,
				      .precision = FO_PRECISION_BF16,
				      .mode = FO_MODE_TRAIN,
				      .pass = pass,
				      .mesh = mesh };
	for (int how = 0; how < 2; how++) {
		int64_t t0 = fo_now_ns(), instances;
		j.order = how ? 0 : 7;
		j.model.layers = how ? FEW_LAYERS : layers;
		char label[160];
		ranks_run(&j);
		double planned = planned_gb(&j, &instances);
		snprintf(label, sizeof label, "405B, %d layers, %d x %d x %d x %d ranks, %s", (int)j.model.layers,
			 fo_mesh_pp(&mesh), mesh.replicate, mesh.shard, fo_mesh_tp(&mesh),
			 j.order ? "one thread" : "threads");
		for (int r = 0; r < j.ranks; r++) {
			if (j.rank[r].error.st != FO_OK)
				fail_msg("%s: rank %d: %s", label, r, j.rank[r].error.text);
			assert_int_equal(j.rank[r].calls, 1 + MICRO_BATCHES + 1); /* hyper, batches, loss */
			assert_true(j.rank[r].received > 0);
		}
		ranks_check_wire(&j, label);
		print_message("%s: %.3f million instances in %.2f s (all %.2f s); %.1f GB received by rank 0, "
			      "%.0f GB planned, at most %.2f GB touched\n",
			      label, (double)instances * 1e-6, j.rank[0].step_s, (double)(fo_now_ns() - t0) * 1e-9,
			      (double)j.rank[0].received * 1e-9, planned, resident_gb());
		ranks_free(&j);
	}
}

static void test_ddp(void **state)
{
	(void)state;
	run_405b((struct fo_mesh){ .replicate = RANKS, .shard = 1 },
		 (struct fo_passes){ .ddp = 25, .fuse_loss = 1024 });
}

/* Weights in parts, gathered two uses ahead: of all ranks, and within a domain of four with sums across two. */
static void test_fsdp(void **state)
{
	(void)state;
	const struct fo_passes pass = { .ddp = 25,
					.fuse_loss = 1024,
					.zero = FO_ZERO_WEIGHTS,
					.zero_prefetch = 2,
					.zero_sync = FO_SYNC_MICRO_BATCH,
					.reduce_dtype = FO_REDUCE_BF16,
					.recompute = FO_RECOMPUTE_FULL };
	run_405b((struct fo_mesh){ .replicate = 1, .shard = RANKS }, pass);
}

static void test_hsdp(void **state)
{
	(void)state;
	struct fo_passes pass = { .ddp = 25, .fuse_loss = 1024, .zero = FO_ZERO_WEIGHTS, .zero_prefetch = 1 };
	for (pass.zero_reshard = 0; pass.zero_reshard < FO_RESHARD_COUNT; pass.zero_reshard++) {
		pass.zero_first = pass.zero_reshard == FO_RESHARD_FORWARD;
		run_405b((struct fo_mesh){ .replicate = 2, .shard = RANKS / 2 }, pass);
	}
}

/* Stages of a pipeline, each with tp groups that share weights. */
static void test_stages(void **state)
{
	(void)state;
	struct fo_passes pass = { .ddp = 25,
				  .fuse_loss = 1024,
				  .recompute = FO_RECOMPUTE_FULL,
				  .tp = FO_TP_SEQUENCE,
				  .zero = FO_ZERO_WEIGHTS,
				  .zero_prefetch = 1 };
	static const enum fo_pp_kind kind[] = { FO_PP_1F1B, FO_PP_INTERLEAVED, FO_PP_ZB_H1 };
	for (size_t i = 0; i < sizeof kind / sizeof *kind; i++) {
		pass.pp = 1 + kind[i];
		run_405b((struct fo_mesh){ .pp = 2, .replicate = 1, .shard = 2, .tp = 2 }, pass);
	}
}

static int close_links(void **state)
{
	(void)state;
	ranks_close_links();
	return 0;
}

int main(void)
{
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* what is touched counts by small pages */
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_ddp), cmocka_unit_test(test_fsdp),
					    cmocka_unit_test(test_hsdp), cmocka_unit_test(test_stages) };
	return cmocka_run_group_tests(tests, NULL, close_links);
}
