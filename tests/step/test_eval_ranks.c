/* Evaluation by several ranks: its loss is that of one rank, on any mesh, whatever they share; what they share is what
 * training shares, so both work on one store; bytes on the wire are those that the program says. */
#include "pass/pass.h"
#include "support/choices.h"
#include "support/must.h"
#include "support/ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double truth[2];
static int gathered;

/* Every rank has the sums of all. */
static void compare(struct ranks_rank *r, int s)
{
	for (int k = 0; k < 2; k++)
		if (!(fabs(r->rig.loss[k] - truth[k]) <= 1e-12 * truth[k]))
			fail_msg("rank %d, step %d: %s is %.17g, of one rank it is %.17g", r->rank, s,
				 k ? "the number of targets" : "the sum of losses", r->rig.loss[k], truth[k]);
}

static void evaluate_alone(const struct fo_model *m, const struct step_batch *b)
{
	struct step_rig r;
	const struct fo_lowering low = step_lowering(b, FO_PRECISION_F64, FO_MODE_EVAL);
	const struct fo_exec_options o = { .isa = FO_ISA_REF, .threads = 1, .poison = true, .timeline_steps = 1 };
	step_rig_lower(&r, m, &low, b, &o);
	must(fo_exec_step(r.exec, 0));
	memcpy(truth, r.loss, sizeof truth);
	step_rig_free(&r);
	assert_true(truth[0] > 0 && truth[1] > 0);
}

/* The weights of both programs of a rank lie alike. False: training cannot be this way. */
static bool same_store(const struct ranks_job *j, int rank)
{
	struct fo_lowering low = j->low;
	struct fo_program train, eval;
	low.mesh.rank = rank;
	low.mode = FO_MODE_TRAIN;
	if (fo_pass_build(&train, &j->model, &low) != FO_OK) {
		fo_err_clear();
		return false;
	}
	low.mode = FO_MODE_EVAL;
	must(fo_pass_build(&eval, &j->model, &low));
	struct fo_store *s;
	must(fo_store_new(&s, &train));
	must(fo_store_add(s, &eval));
	fo_store_free(s);
	for (int i = 0; i < eval.nbuf; i++)
		gathered += eval.buf[i].home == FO_HOME_PARAM && eval.buf[i].whole;
	fo_program_fini(&train);
	fo_program_fini(&eval);
	return true;
}

static void test_equal_to_one_rank(void **state)
{
	(void)state;
	int cases = 0, groups = 0; /* groups: cases with tp groups */
	for (int round = 0; round < 60; round++) {
		static const uint8_t rows[] = { 2, 4, 6, 8, 12 };
		struct fo_model m = choices_small_model();
		struct step_batch b;
		char label[512];
		static const int32_t of_group[] = { 1, 1, 2, 4 };
		const int32_t tp = of_group[choices_draw(4)];
		if (tp > 1) {
			m.kv_heads = 1 << choices_draw(3);
			m.heads = 4;
			m.ffn = 4 * (2 + choices_draw(3));
		}
		step_batch_random(&b, tp > 1 ? 8 : 4 + choices_draw(5), rows[choices_draw(sizeof rows)], 1, m.vocab,
				  (int)choices_draw(4), choices_seed + choices_draws);
		struct ranks_job j = {
			.model = m,
			.batch = &b,
			.options = { .isa = FO_ISA_REF, .threads = 1, .poison = true, .timeline_steps = 1 },
			.after = compare,
			.steps = 2
		};
		j.low = step_lowering(&b, FO_PRECISION_F64, FO_MODE_EVAL);
		do {
			j.low.mesh.replicate = 1 + (int32_t)choices_draw(RANKS_MOST);
			j.low.mesh.shard = 1 + (int32_t)choices_draw(RANKS_MOST);
			j.low.mesh.tp = tp;
			j.low.mesh.pp = 1 + (int32_t)choices_draw(m.layers);
		} while (fo_mesh_ranks(&j.low.mesh) > RANKS_MOST || b.rows % fo_mesh_data(&j.low.mesh));
		j.low.rows = b.rows / fo_mesh_data(&j.low.mesh);
		j.low.pass = choices_passes(&m);
		j.low.pass.tp = tp > 1 ? 1 + choices_draw(FO_TP_COUNT - 1) : FO_TP_OFF;
		j.low.pass.ddp = 1 + choices_draw(30);
		j.low.pass.pp = j.low.mesh.pp > 1 ? 1 + choices_draw(FO_PP_KINDS_COUNT) : 0;
		j.low.pass.offload = j.low.mesh.pp > 1 ? 0 : j.low.pass.offload;
		j.low.pass.zero = j.low.mesh.shard > 1 ? choices_draw(FO_ZERO_COUNT) : FO_ZERO_OFF;
		if (j.low.pass.zero == FO_ZERO_WEIGHTS) {
			j.low.pass.zero_prefetch = choices_draw(4);
			j.low.pass.zero_reshard = choices_draw(FO_RESHARD_COUNT);
		}
		choices_describe(label, sizeof label, &m, &j.low);
		bool legal = true;
		for (int r = 0; r < fo_mesh_ranks(&j.low.mesh) && legal; r++)
			legal = same_store(&j, r);
		if (legal) {
			cases++;
			groups += tp > 1;
			evaluate_alone(&m, &b);
			j.transport.shake = j.options.delay_seed = choices_draw(2) ? choices_seed + choices_draws : 0;
			ranks_run(&j);
			for (int r = 0; r < j.ranks; r++)
				if (j.rank[r].error.st != FO_OK)
					fail_msg("%s: rank %d: %s", label, r, j.rank[r].error.text);
			ranks_check_wire(&j, label);
			ranks_free(&j);
		}
		step_batch_free(&b);
	}
	print_message("%d cases, %d of them with tp groups, %d shared weights\n", cases, groups, gathered);
	assert_true(cases >= 20 && groups >= 10 && gathered > 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_equal_to_one_rank) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
