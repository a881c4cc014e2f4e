/* Waits of operations between ranks: each is needed, or orders nothing. As test_lanes does for lanes of one rank: a
 * wait of an operation between ranks, or for one, is left out on all ranks at once, and instances run in the worst
 * order that is legal without it, the same on all ranks, so that calls still meet. Losses, norms or weights must
 * change. */
#include "pass/pass.h"
#include "support/choices.h"
#include "support/interleave.h"
#include "support/must.h"
#include "support/ranks.h"
#include "support/waits.h"
#include "train/exec_int.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A job whose ranks' programs differ in nothing but the rectangles that ranks own. */
struct alike {
	struct ranks_job *job;
	void *start[RANKS_MOST]; /* weights and state */
	struct fo_transfer transfer[RANKS_MOST];
};

static struct fo_exec *exec_of(const struct alike *a, int rank) { return a->job->rank[rank].rig.exec; }

/* One instance on all ranks; a call is over on all of them before the next instance begins. */
static fo_status run_everywhere(struct alike *a, int id)
{
	const struct fo_exec *first = exec_of(a, 0);
	const bool comm = fo_exec_is_comm(fo_instance_op(first->p, &first->u, id));
	for (int r = 0; r < a->job->ranks; r++)
		if (comm)
			FO_TRY(fo_exec_transfer_start(exec_of(a, r), id, &a->transfer[r]));
		else
			FO_TRY(first->engine->run(exec_of(a, r), id));
	for (int left = comm; left;) {
		left = 0;
		for (int r = 0; r < a->job->ranks; r++) {
			bool done;
			FO_TRY(fo_exec_transfer_test(exec_of(a, r), id, &a->transfer[r], &done));
			left += !done;
		}
	}
	return FO_OK;
}

/* What the next step reads beside weights and state. */
static uint64_t sum_derived(const struct step_rig *r)
{
	uint64_t sum = 0;
	for (int b = 0; b < r->program.nblock; b++)
		for (int i = 0; i < r->program.block[b].n; i++) {
			const struct fo_op *o = &r->program.block[b].op[i];
			const struct fo_buffer *y = &r->program.buf[o->arg[o->n - 1].buf];
			if (o->phase != FO_DERIVE)
				continue;
			const unsigned char *at = fo_store_find(r->store, y->name, 0, NULL);
			for (int64_t k = 0; k < fo_buffer_bytes(y); k++)
				sum = sum * 0x9e3779b97f4a7c15 + at[k];
		}
	return sum;
}

static void run_order(void *ctx, const int *order, struct waits_result *out)
{
	struct alike *a = ctx;
	struct fo_exec *exec[RANKS_MOST];
	memset(out, 0, sizeof *out);
	for (int r = 0; r < a->job->ranks; r++) {
		struct step_rig *rig = &a->job->rank[r].rig;
		memset(rig->loss, 0, sizeof rig->loss);
		memset(rig->scale, 0, sizeof rig->scale);
		step_rig_restore(rig, a->start[r]);
		memset(rig->arena, 0xff, (size_t)fo_exec_unrolled(rig->exec)->arena_bytes);
		exec[r] = rig->exec;
	}
	must(interleave_begin(exec, a->job->ranks));
	for (int i = 0; i < fo_exec_unrolled(exec_of(a, 0))->n; i++)
		if (run_everywhere(a, order[i]) != FO_OK)
			return;
	for (int r = 0; r < a->job->ranks; r++) {
		const struct step_rig *rig = &a->job->rank[r].rig;
		out->loss[0] += rig->loss[0] * (r + 1);
		out->loss[1] += rig->loss[1] * (r + 1);
		out->scale[0] += rig->scale[0] * (r + 1);
		out->scale[1] += rig->scale[1] * (r + 1);
		out->hash = out->hash * 31 + step_rig_hash(&a->job->rank[r].rig) + sum_derived(rig);
	}
	out->finished = true;
}

static void check_alike(const struct alike *a)
{
	const struct fo_unrolled *u = fo_exec_unrolled(exec_of(a, 0));
	for (int r = 1; r < a->job->ranks; r++) {
		const struct fo_unrolled *v = fo_exec_unrolled(exec_of(a, r));
		assert_int_equal(u->n, v->n);
		assert_memory_equal(u->wait, v->wait, (size_t)u->n * sizeof *u->wait);
	}
}

static void drop_each(const struct fo_model *m, struct fo_mesh mesh, struct fo_passes pass, int64_t micro,
		      struct waits_tally *t)
{
	struct step_batch b;
	struct waits g;
	char label[64];
	const int ranks = fo_mesh_ranks(&mesh);
	snprintf(label, sizeof label, "%d x %d ranks", mesh.replicate, mesh.shard);
	step_batch_random(&b, 6, 2 * ranks, micro, m->vocab, 2, 5);
	struct ranks_job j = { .model = *m,
			       .batch = &b,
			       .options = { .isa = FO_ISA_REF, .threads = 1, .poison = true, .timeline_steps = 1 },
			       .clip = 0.5,
			       .eps = 1e-4,
			       .order = 1,
			       .steps = 1 };
	j.low = step_lowering(&b, FO_PRECISION_F64, FO_MODE_TRAIN);
	j.low.pass = pass;
	j.low.mesh = mesh;
	j.low.rows = b.rows / ranks;
	ranks_run(&j);
	struct alike a = { .job = &j };
	check_alike(&a);
	for (int r = 0; r < ranks; r++) {
		a.start[r] = step_rig_save(&j.rank[r].rig);
		a.transfer[r].part = fo_xmalloc((size_t)ranks * sizeof(int64_t));
	}
	waits_make(&g, &j.rank[0].rig.program, fo_exec_unrolled(exec_of(&a, 0)));
	waits_drop_each(&g, true, run_order, &a, label, t);
	waits_free(&g);
	for (int r = 0; r < ranks; r++) {
		free(a.start[r]);
		free(a.transfer[r].part);
	}
	ranks_free(&j);
	step_batch_free(&b);
}

static void test_ddp(void **state)
{
	(void)state;
	struct waits_tally t = { 0 };
	struct fo_model m = step_model(2, 16, 2, 1, 24, 24, false), tied = step_model(1, 16, 2, 2, 24, 24, true);
	tied.attention_bias = true;
	drop_each(&m, (struct fo_mesh){ .replicate = 2 }, (struct fo_passes){ .ddp = 1 }, 2, &t);
	drop_each(&tied, (struct fo_mesh){ .replicate = 3 }, (struct fo_passes){ .ddp = 1, .wgrad_lane = 1 }, 1, &t);
	drop_each(&m, (struct fo_mesh){ .replicate = 2, .shard = 2 },
		  (struct fo_passes){
			  .ddp = 1, .fuse_loss = 5, .optimizer_in_backward = 1, .previous_norm = 1, .offload = 1 },
		  2, &t);
	waits_print(&t);
	assert_true(t.data - t.commuting > 10);
	assert_true(t.idle * 5 <= t.waits && t.commuting * 10 <= t.waits);
}

/* Every two instances of a rank's program that touch the same bytes are in order, by lane or by waits. */
static void test_enough(void **state)
{
	(void)state;
	int pairs = 0;
	for (int round = 0; round < 60; round++) {
		struct fo_program p;
		struct fo_unrolled u;
		struct waits g;
		struct fo_model m = choices_small_model();
		struct fo_lowering low = { .seq = 6,
					   .rows = 1 + choices_draw(2),
					   .micro_batches = 1 + choices_draw(2),
					   .precision = (enum fo_numerics)choices_draw(FO_PRECISION_COUNT),
					   .mesh = { .replicate = 1 + (int32_t)choices_draw(3),
						     .shard = 1 + (int32_t)choices_draw(3) } };
		low.mesh.rank = (int32_t)choices_draw(fo_mesh_ranks(&low.mesh));
		low.pass = choices_passes(&m);
		low.pass.ddp = 1;
		choices_zero(&low.pass, low.mesh.shard);
		must(fo_pass_build(&p, &m, &low));
		must(fo_unroll(&p, &u));
		fo_plan(&p, &u);
		fo_prune_waits(&p, &u);
		waits_make(&g, &p, &u);
		waits_order_known(&g, -1, -1);
		for (int k = 0; k < g.pairs; k++)
			if (!waits_ordered(&g, &g.pair[k]))
				fail_msg("round %d: instances %d and %d touch the same bytes and nothing orders them",
					 round, g.pair[k].i, g.pair[k].j);
		pairs += g.pairs;
		waits_free(&g);
		fo_unrolled_fini(&u);
		fo_program_fini(&p);
	}
	print_message("%d pairs of instances on two lanes touch the same bytes\n", pairs);
	assert_true(pairs > 1000);
}

/* State, gradients and weights in parts: reductions to the owner, gathers ahead of uses, sums over replicas. */
static void test_zero(void **state)
{
	(void)state;
	static const struct fo_mesh meshes[] = { { .replicate = 1, .shard = 2 }, { .replicate = 2, .shard = 2 } };
	struct fo_model m = step_model(3, 16, 2, 1, 24, 24, false), tied = step_model(2, 16, 2, 2, 24, 24, true);
	for (int zero = FO_ZERO_STATE; zero < FO_ZERO_COUNT; zero++) {
		struct waits_tally t = { 0 };
		for (int k = 0; k < 2; k++)
			for (int reshard = 0; reshard < (zero == FO_ZERO_WEIGHTS ? FO_RESHARD_COUNT : 1); reshard++)
				drop_each(k ? &tied : &m, meshes[k],
					  (struct fo_passes){ .ddp = 1,
							      .zero = zero,
							      .zero_prefetch = zero == FO_ZERO_WEIGHTS ? 1 + k : 0,
							      .zero_reshard = reshard,
							      .zero_first = zero == FO_ZERO_WEIGHTS && reshard != k,
							      .zero_sync = zero > FO_ZERO_STATE && k },
					  1 + k, &t);
		print_message("zero=%d: ", zero);
		waits_print(&t);
		assert_true(t.data - t.commuting - t.stale > 10);
		assert_true(t.idle * 5 <= t.waits && (t.commuting + t.stale) * 5 <= t.waits);
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
	omp_set_num_threads(1);
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_enough), cmocka_unit_test(test_ddp),
					    cmocka_unit_test(test_zero) };
	return cmocka_run_group_tests(tests, NULL, close_links);
}
