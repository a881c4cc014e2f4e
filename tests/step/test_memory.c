/* The memory plan: no two lives on the same bytes, what is touched is what was planned, nothing is allocated later. */
#include "support/step.h"
#include "base/clock.h"
#include "pass/pass.h"
#include "support/must.h"

#include <stdlib.h>
#include <string.h>

static struct fo_exec_options options(void)
{
	struct fo_exec_options o = { .threads = 2, .timeline_steps = 4 };
	must(fo_isa_choose(&o.isa));
	return o;
}

/* In issue order: a life's bytes belong to nobody else from its first to its last instance, in-place successors apart,
 * which begin where their input ends. */
static void test_no_overlap(void **state)
{
	(void)state;
	for (int k = 0; k < 9; k++) { /* from 6 on with activations in host memory, an arena of its own */
		struct fo_model m = step_model(3, 32, 4, 2, 40, 50, k % 2);
		struct fo_lowering low = { .seq = 12,
					   .rows = 1,
					   .micro_batches = 1 + k % 3,
					   .precision = (enum fo_numerics)(k % 3),
					   .mode = k == 5 ? FO_MODE_EVAL : FO_MODE_TRAIN,
					   .pass = { .offload = k < 6 ? 0 : 1 + k % 2 } };
		struct fo_program p;
		struct fo_unrolled u;
		int64_t top = 0, host = 0;
		int shared = 0;
		must(fo_pass_build(&p, &m, &low));
		must(fo_unroll(&p, &u));
		fo_plan(&p, &u);
		for (int i = 0; i < u.nlife; i++) {
			const struct fo_life *a = &u.life[i];
			assert_true(a->offset >= 0 && a->offset % 64 == 0 && a->first <= a->last);
			if (a->persists)
				continue;
			bool in_host = p.buf[a->buf].home == FO_HOME_HOST;
			int64_t *most = in_host ? &host : &top;
			*most = a->offset + a->bytes > *most ? a->offset + a->bytes : *most;
			for (int j = 0; j < u.nlife; j++) {
				const struct fo_life *b = &u.life[j];
				if (i == j || b->persists || in_host != (p.buf[b->buf].home == FO_HOME_HOST) ||
				    a->first > b->first || b->first > a->last || (a->first == b->first && i > j))
					continue;
				bool meet = a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
				shared += meet;
				if (meet && !(a->moved && a->last == b->first && a->offset == b->offset &&
					      a->bytes == b->bytes))
					fail_msg("lives of '%s' and '%s' lie on the same bytes", p.buf[a->buf].name,
						 p.buf[b->buf].name);
			}
		}
		assert_true(low.mode == FO_MODE_EVAL || shared > 0); /* in-place pairs do occur */
		assert_true(top <= u.arena_bytes && u.max_live_bytes <= u.arena_bytes);
		assert_true(host <= u.host_arena_bytes && u.host_arena_bytes < host + 64 && (host > 0) == (k >= 6));
		fo_unrolled_fini(&u);
		fo_program_fini(&p);
	}
}

static void check_measured(struct fo_passes passes)
{
	struct fo_model m = step_model(3, 64, 4, 2, 160, 256, false);
	struct step_batch b;
	struct step_rig r;
	struct fo_exec_options o = options();
	step_batch_random(&b, 64, 2, 2, 256, 2, 8);
	struct fo_lowering low = step_lowering(&b, FO_PRECISION_BF16, FO_MODE_TRAIN);
	low.pass = passes;
	step_rig_lower(&r, &m, &low, &b, &o);
	must(fo_exec_step(r.exec, 0));
	size_t planned = (size_t)fo_exec_unrolled(r.exec)->arena_bytes, touched = 0;
	/* A pattern that no result has: what keeps it was never written. 64 bytes are the plan's grain. */
	memset(r.arena, 0x5b, planned);
	must(fo_exec_step(r.exec, 1));
	for (size_t i = 0; i < planned; i += 64) {
		bool same = true;
		for (size_t k = i; k < i + 64 && k < planned; k++)
			same &= r.arena[k] == 0x5b;
		touched += same ? 0 : 64;
	}
	print_message("arena: planned %zu bytes, touched %zu (%.2f %%)\n", planned, touched,
		      100.0 * (double)touched / (double)planned);
	assert_true((double)touched >= 0.97 * (double)planned && touched <= planned + 63);
	struct fo_memory mem = fo_exec_memory(r.exec);
	assert_true(mem.persistent >= fo_store_bytes(r.store) && mem.arena >= (int64_t)planned &&
		    mem.max_live <= (int64_t)planned);
	step_rig_free(&r);
	step_batch_free(&b);
}

static void test_measured(void **state)
{
	(void)state;
	check_measured((struct fo_passes){ 0 });
	check_measured((struct fo_passes){ .merge_qkv = 1, .merge_gate_up = 1 });
	check_measured((struct fo_passes){ .fuse_loss = 48 });
	check_measured((struct fo_passes){
		.fuse_loss = 48, .fused_optimizer = 1, .optimizer_in_backward = 1, .previous_norm = 1 });
}

static void test_no_allocation(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 32, 4, 2, 48, 64, false);
	struct step_batch b;
	struct step_rig r;
	struct fo_exec_options o = options();
	step_batch_random(&b, 16, 2, 2, 64, 2, 8);
	struct fo_lowering low = step_lowering(&b, FO_PRECISION_F32, FO_MODE_TRAIN);
	step_rig_lower(&r, &m, &low, &b, &o);
	must(fo_exec_step(r.exec, 0));
	uint64_t before = fo_mem_count();
	for (int i = 1; i < 12; i++) /* beyond what the span rings hold */
		must(fo_exec_step(r.exec, i));
	assert_true(fo_mem_count() == before);
	step_rig_free(&r);
	step_batch_free(&b);
}

static void test_poison(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 32, 4, 2, 48, 64, true);
	struct step_batch b;
	step_batch_random(&b, 16, 2, 2, 64, 2, 8);
	for (int precision = 0; precision < FO_PRECISION_COUNT; precision++) {
		uint64_t hash[2];
		double loss[2];
		for (int poison = 0; poison < 2; poison++) {
			struct step_rig r;
			struct fo_exec_options o = options();
			o.poison = poison;
			struct fo_lowering low = step_lowering(&b, (enum fo_numerics)precision, FO_MODE_TRAIN);
			step_rig_lower(&r, &m, &low, &b, &o);
			for (int i = 0; i < 2; i++)
				must(fo_exec_step(r.exec, i));
			hash[poison] = step_rig_hash(&r);
			loss[poison] = r.loss[0];
			step_rig_free(&r);
		}
		assert_true(hash[0] == hash[1] && loss[0] == loss[1] && loss[0] == loss[0]);
	}
	step_batch_free(&b);
}

/* Evaluation borrows the training step's arena; both keep their numbers. */
static void test_shared_arena(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 32, 4, 2, 48, 64, false);
	struct step_batch b;
	struct step_rig train;
	struct fo_program p;
	struct fo_exec *borrower;
	struct fo_exec_options o = options();
	step_batch_random(&b, 16, 2, 2, 64, 2, 8);
	struct fo_lowering low = step_lowering(&b, FO_PRECISION_F32, FO_MODE_TRAIN),
			   eval = step_lowering(&b, FO_PRECISION_F32, FO_MODE_EVAL);
	step_rig_lower(&train, &m, &low, &b, &o);
	must(fo_program_lower(&p, &m, &eval));
	must(fo_exec_new(&borrower, &p, train.store, &o, NULL, NULL, train.exec));
	assert_true(fo_exec_memory(borrower).arena <= fo_exec_memory(train.exec).arena);
	fo_exec_free(borrower);
	must(fo_exec_step(train.exec, 0)); /* the arena is still there */
	fo_program_fini(&p);
	step_rig_free(&train);
	step_batch_free(&b);
}

/* 405B, 16 micro-batches: what the program says needs no 405B machine. */
static void test_405b(void **state)
{
	(void)state;
	struct fo_model m;
	struct fo_program p;
	struct fo_unrolled u;
	must(fo_model_load("llama-3.1-405b", &m));
	struct fo_lowering low = {
		.seq = 8192, .rows = 1, .micro_batches = 16, .precision = FO_PRECISION_BF16, .mode = FO_MODE_TRAIN
	};
	int64_t t0 = fo_now_ns();
	must(fo_program_lower(&p, &m, &low));
	must(fo_unroll(&p, &u));
	fo_plan(&p, &u);
	fo_prune_waits(&p, &u);
	double seconds = (double)(fo_now_ns() - t0) * 1e-9;
	struct fo_params n = fo_model_params(&m);
	print_message("405B, 16 micro-batches: %d instances, lowered, unrolled and planned in %.2f s; arena %.1f GB "
		      "(%.3f of the most that lives at once), persistent %.1f GB\n",
		      u.n, seconds, (double)u.arena_bytes * 1e-9, (double)u.arena_bytes / (double)u.max_live_bytes,
		      (double)u.persistent_bytes * 1e-9);
	assert_true(u.n > 70000);
	/* bf16 weights, fp32 master, m and v: 14 bytes per parameter; the rest is the rope table and padding. */
	assert_true((double)u.persistent_bytes >= 14 * n.total && (double)u.persistent_bytes < 14.01 * n.total);
	assert_true((double)u.arena_bytes >= 4 * n.total);                     /* fp32 gradients */
	assert_true((double)u.arena_bytes <= 1.05 * (double)u.max_live_bytes); /* best fit leaves few holes */
	fo_unrolled_fini(&u);
	fo_program_fini(&p);
}

/* The executor's own cost: every instance of an 8-layer step, no arithmetic. */
static void test_null_kernels(void **state)
{
	(void)state;
	struct fo_model m = step_model(8, 64, 4, 2, 160, 256, false);
	struct step_batch b;
	struct step_rig r;
	struct fo_exec_options o = options();
	o.null_kernels = true;
	step_batch_random(&b, 64, 2, 4, 256, 1, 8);
	struct fo_lowering low = step_lowering(&b, FO_PRECISION_BF16, FO_MODE_TRAIN);
	step_rig_lower(&r, &m, &low, &b, &o);
	uint64_t hash = step_rig_hash(&r);
	must(fo_exec_step(r.exec, 0));
	int64_t t0 = fo_now_ns();
	for (int i = 1; i < 11; i++)
		must(fo_exec_step(r.exec, i));
	print_message("null kernels: %.0f ns per instance\n",
		      (double)(fo_now_ns() - t0) / 10 / fo_exec_unrolled(r.exec)->n);
	assert_true(step_rig_hash(&r) == hash);
	assert_int_equal(r.calls, 11 * (1 + 4 + 1)); /* hyper, micro-batches, loss */
	step_rig_free(&r);
	step_batch_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_overlap),    cmocka_unit_test(test_measured),
		cmocka_unit_test(test_no_allocation), cmocka_unit_test(test_poison),
		cmocka_unit_test(test_shared_arena),  cmocka_unit_test(test_405b),
		cmocka_unit_test(test_null_kernels),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
