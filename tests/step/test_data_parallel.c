/* Data parallel training is what one rank does: random small models x 2 to 8 ranks x random legal subsets of passes in
 * double precision against one rank's program with all rows: losses, gradient norms, gradients, weights and moments
 * after three steps agree to 1e-12. The same job twice gives the same bits on every rank, whatever the delays. What the
 * transport carries is what the accounting says, to the byte. A rank that fails ends the others. */
#include "base/clock.h"
#include "pass/pass.h"
#include "support/choices.h"
#include "support/must.h"
#include "support/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = OUTCOME_STEPS };
#define EPS 1e-12

static void train_alone(struct outcome *out, const struct ranks_job *j)
{
	struct step_rig r;
	struct fo_lowering low = j->low;
	low.mesh = (struct fo_mesh){ 0 };
	low.rows = j->batch->rows;
	*out = (struct outcome){ 0 };
	step_rig_lower(&r, &j->model, &low, j->batch, &j->options);
	r.hyper[FO_HYPER_CLIP] = j->clip;
	r.hyper[FO_HYPER_EPS] = j->eps;
	for (int s = 0; s < STEPS; s++) {
		step_rig_at(&r, s + 1);
		must(fo_exec_step(r.exec, s));
		outcome_step(out, &r, s);
	}
	outcome_end(out, &r);
	step_rig_free(&r);
}

/* The largest relative difference of anything; names it. */
static double differs(const struct outcome *got, const struct outcome *want, char *what, size_t size)
{
	static const char *const kind[] = { "weight", "master", "m", "v", "gradient" };
	double most = 0;
	*what = 0;
	for (int s = 0; s < STEPS; s++) {
		double loss = fabs(got->loss[s] / want->loss[s] - 1), norm = fabs(got->norm[s] / want->norm[s] - 1);
		if (!(loss <= most))
			most = loss, snprintf(what, size, "loss of step %d", s);
		if (!isnan(most) && !(norm <= most))
			most = norm, snprintf(what, size, "norm of step %d", s);
		if (isnan(most))
			return most;
	}
	assert_int_equal(got->n, want->n);
	for (int i = 0; i < got->n; i++) {
		const struct outcome_item *g = &got->item[i];
		double e = outcome_distance(g, outcome_find(want, g), want);
		if (!(e <= most))
			most = e, snprintf(what, size, "%s '%s'", kind[g->which], g->name);
		if (isnan(most))
			break;
	}
	return most;
}

static struct ranks_job job_of(const struct fo_model *m, const struct step_batch *b, int ranks, struct fo_passes pass)
{
	struct ranks_job j = { .model = *m,
			       .batch = b,
			       .options = { .isa = FO_ISA_REF, .threads = 1, .poison = true, .timeline_steps = 1 },
			       .clip = 0.5, /* below the norm of a fresh model: clipping takes part */
			       .eps = 1e-4 };
	j.low = step_lowering(b, FO_PRECISION_F64, FO_MODE_TRAIN);
	j.low.rows = b->rows / ranks;
	j.low.pass = pass;
	j.low.mesh.replicate = ranks;
	return j;
}

static void test_equal_to_one_rank(void **state)
{
	(void)state;
	static struct outcome alone;
	double most = 0;
	const char *more = getenv("FLATOUT_RANK_CASES"); /* a nightly run asks for many */
	int cases = more ? atoi(more) : 40;
	for (int round = 0; round < cases; round++) {
		int ranks = 2 + (int)choices_draw(7);
		struct fo_model m = choices_model();
		struct step_batch b;
		char label[512], what[128];
		step_batch_random(&b, 6 + choices_draw(8), ranks * (1 + choices_draw(2)), 1 + choices_draw(3), m.vocab,
				  (int)choices_draw(4), choices_seed + choices_draws);
		struct fo_passes pass = choices_passes(&m);
		struct ranks_job j = job_of(&m, &b, ranks, pass);
		train_alone(&alone, &j);
		j.low.pass.ddp = 1 + choices_draw(30);
		j.transport.shake = choices_draw(2) ? choices_seed + choices_draws : 0;
		j.options.delay_seed = choices_draw(2) ? choices_seed + choices_draws : 0;
		ranks_run(&j);
		choices_describe(label, sizeof label, &m, &j.low);
		for (int r = 0; r < ranks; r++) {
			struct ranks_rank *k = &j.rank[r];
			if (k->error.st != FO_OK)
				fail_msg("%d ranks, %s: rank %d: %s", ranks, label, r, k->error.text);
			double e = differs(&k->out, &alone, what, sizeof what);
			if (!(e <= EPS))
				fail_msg("%d ranks, %s: rank %d: %s is off by %.3g", ranks, label, r, what, e);
			most = fmax(most, e);
			/* All ranks have the same weights and state, bit by bit. */
			assert_true(k->hash == j.rank[0].hash);
			if ((double)k->received != STEPS * k->wire)
				fail_msg("%d ranks, %s: rank %d received %lld bytes, the program says %.17g", ranks,
					 label, r, (long long)k->received, STEPS * k->wire);
		}
		outcome_free(&alone);
		ranks_free(&j);
		step_batch_free(&b);
	}
	print_message("%d cases, the largest difference is %.3g\n", cases, most);
}

/* Delays of lanes and of the transport change no bit, in any precision. */
static void test_same_bits(void **state)
{
	(void)state;
	for (int round = 0; round < 9; round++) {
		int ranks = 2 + (int)choices_draw(3);
		struct fo_model m = choices_model();
		struct step_batch b;
		uint64_t hash = 0;
		step_batch_random(&b, 8, ranks, 2, m.vocab, 2, choices_seed + choices_draws);
		for (int again = 0; again < 3; again++) {
			struct ranks_job j = job_of(&m, &b, ranks, (struct fo_passes){ .ddp = 1, .fuse_loss = 4 });
			j.low.precision = (enum fo_numerics)(round % FO_PRECISION_COUNT);
			j.transport.shake = (uint64_t)again * 77;
			j.options.delay_seed = (uint64_t)again * 99;
			ranks_run(&j);
			for (int r = 0; r < ranks; r++) {
				assert_int_equal(j.rank[r].error.st, FO_OK);
				hash = hash ? hash : j.rank[r].hash;
				assert_true(j.rank[r].hash == hash);
			}
			ranks_free(&j);
		}
		step_batch_free(&b);
	}
}

/* A gradient travels once a step however many micro-batches there are, in as many operations as its buckets need. */
static void test_reduced_once(void **state)
{
	(void)state;
	struct fo_model m = step_model(3, 64, 4, 2, 128, 512, false);
	double bytes = 0;
	for (int micro = 1; micro <= 4; micro += 3) {
		struct fo_lowering low = { .seq = 16,
					   .rows = 1,
					   .micro_batches = micro,
					   .precision = FO_PRECISION_F32,
					   .mesh = { .replicate = 2 },
					   .pass = { .ddp = 25 } };
		struct step_built b;
		int calls = 0;
		step_build(&b, &m, &low);
		for (int i = 0; i < b.u.n; i++) {
			const struct fo_op *o = fo_instance_op(&b.p, &b.u, i);
			calls += fo_op_info(o->kind)->cls == FO_CLASS_COMM;
			if (fo_op_info(o->kind)->cls == FO_CLASS_COMM)
				assert_int_equal(o->lane, FO_LANE_REDUCE);
		}
		/* Loss and head's gradients, 3 layers, embedding. */
		assert_int_equal(calls, 1 + 1 + 3 + 1);
		/* Two ranks: each receives as many bytes as it has, of fp32 gradients and the loss. */
		assert_true(b.cost.wire == 4.0 * (double)fo_model_params(&m).total + 8);
		assert_true(bytes == 0 || b.cost.wire == bytes);
		bytes = b.cost.wire;
		step_built_free(&b);
	}
}

/* ---- faults ---- */

static void break_rank(struct ranks_rank *r, int s)
{
	/* Rank 1 leaves the job after its first step, as one that failed between steps does. */
	if (r->rank == 1 && s == 0) {
		fo_comm_abort(r->world);
		r->error.st = FO_EIO;
	}
}

static void test_fault(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 32, 4, 2, 40, 50, false);
	struct step_batch b;
	step_batch_random(&b, 8, 4, 2, m.vocab, 2, 7);
	struct ranks_job j = job_of(&m, &b, 4, (struct fo_passes){ .ddp = 1 });
	j.after = break_rank;
	ranks_run(&j);
	for (int r = 0; r < 4; r++) {
		if (r == 1)
			continue;
		assert_int_equal(j.rank[r].error.st, FO_ECOMM);
		assert_non_null(strstr(j.rank[r].error.text, "all_reduce_many of "));
		assert_non_null(strstr(j.rank[r].error.text, "rank 1 ended the job"));
	}
	ranks_free(&j);
	step_batch_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_equal_to_one_rank), cmocka_unit_test(test_same_bits),
					    cmocka_unit_test(test_reduced_once), cmocka_unit_test(test_fault) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
