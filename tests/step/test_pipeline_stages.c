/* Stages of unlike numbers of layers, and what each of them recomputes. */
#include "base/count.h"
#include "support/must.h"
#include "support/ranks.h"

#include "pass/pass.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fo_lowering lowering(int32_t stages, enum fo_pp_kind kind)
{
	return (struct fo_lowering){
		.seq = 16,
		.rows = 2,
		.micro_batches = 8,
		.precision = FO_PRECISION_F32,
		.pass = { .pp = 1 + (int64_t)kind, .ddp = 25 },
		.mesh = { .pp = stages, .replicate = 1, .shard = 1, .cp = 1, .tp = 1 },
	};
}

static void list(struct fo_lowering *low, const int *layers, int32_t parts)
{
	low->stages.parts = parts;
	for (int32_t i = 0; i < parts; i++)
		low->stages.layers[i] = (int16_t)layers[i];
}

/* ---- lists ---- */

static void refused(const struct fo_model *m, const struct fo_lowering *low, const char *why)
{
	struct fo_program p;
	assert_int_equal(fo_pass_build(&p, m, low), FO_EARG);
	if (!strstr(fo_err_text(), why))
		fail_msg("not '%s': %s", why, fo_err_text());
	fo_err_clear();
}

static void test_lists(void **state)
{
	(void)state;
	struct fo_model m = step_model(9, 32, 4, 2, 48, 64, false);
	struct fo_lowering low = lowering(2, FO_PP_INTERLEAVED);
	struct fo_str text = { 0 };
	int32_t begin;
	list(&low, (int[]){ 1, 5, 1, 2 }, 4);
	low.stages.repeats = 2;
	low.stages.repeat[0] = (struct fo_stage_repeat){ FO_RECOMPUTE_SELECTIVE, FO_RECOMPUTE_NORM, 1 };
	low.stages.repeat[1] = (struct fo_stage_repeat){ FO_RECOMPUTE_FULL, 0, 3 };
	fo_lowering_parts_text(&low, 9, &text);
	assert_string_equal(text.data, "1, 5, 1, 2");
	assert_true(fo_lowering_part(&low, 9, 3, &begin) == 2 && begin == 7);
	fo_str_fini(&text);
	text = (struct fo_str){ 0 };
	fo_recompute_text(&low, 9, &text);
	assert_string_equal(text.data, "stage 0: norm, swiglu in the first 1 of 2 layers, norm in the rest; stage 1: "
				       "everything in the first 3 of 7 layers, nothing in the rest");
	fo_str_fini(&text);
	for (int32_t rank = 0; rank < 2; rank++) {
		struct fo_program p, q;
		struct fo_str a = { 0 }, b = { 0 };
		low.mesh.rank = rank;
		must(fo_pass_build(&p, &m, &low));
		/* Stage 0 has layers 0 and 6, stage 1 layers 1 to 5, 7 and 8: own ones count. */
		assert_int_equal(fo_program_layers(&p), rank ? 7 : 2);
		assert_int_equal(fo_program_has_layer(&p, 6), !rank);
		assert_int_equal(p.run.pass.recompute, rank ? FO_RECOMPUTE_FULL : FO_RECOMPUTE_SELECTIVE);
		assert_int_equal(p.run.pass.recompute_layers, rank ? 4 : 1);
		assert_int_equal(p.run.pass.recompute_rest, rank ? 0 : FO_RECOMPUTE_NORM);
		fo_program_dump(&p, &a);
		must(fo_program_parse(&q, a.data, a.len, "dump"));
		fo_program_dump(&q, &b);
		assert_true(a.len == b.len && !memcmp(a.data, b.data, a.len));
		fo_str_fini(&a), fo_str_fini(&b);
		fo_program_fini(&p), fo_program_fini(&q);
	}
	low.stages.repeat[0].rest = FO_RECOMPUTE_FULL;
	refused(&m, &low, "the rest of stage 0's layers recompute more than the first ones");
	low.stages.repeats = 1;
	refused(&m, &low, "what 1 stages recompute is listed, and there are 2");
	low.stages.repeats = 0;
	list(&low, (int[]){ 1, 5, 1, 3 }, 4);
	refused(&m, &low, "have 10 layers together, and the model has 9");
	list(&low, (int[]){ 4, 5 }, 2);
	refused(&m, &low, "layers of 2 parts are listed, and 2 stages x 2 parts are 4");
	list(&low, (int[]){ 1, 5, 0, 3 }, 4);
	refused(&m, &low, "part 2 of the pipeline is to have 0 layers");
}

/* ---- balance ---- */

/* Seconds of the slowest stage, by the programs of all stages. */
static double slowest(const struct fo_model *m, struct fo_lowering low)
{
	double most = 0;
	for (int32_t k = 0; k < fo_mesh_pp(&low.mesh); k++) {
		struct fo_program p;
		low.mesh.rank = k;
		must(fo_pass_build(&p, m, &low));
		most = fmax(most, fo_program_seconds(&p, &fo_choose_processor, false));
		fo_program_fini(&p);
	}
	return most;
}

/* The best of all divisions by the stages' own programs, to the share of a step that transfers take, which the division
 * leaves out; and what it gives against even stages. */
static void check_balance(int64_t layers, int64_t vocab, bool tied)
{
	struct fo_model m = step_model(layers, 64, 4, 2, 96, vocab, tied);
	struct fo_lowering low = lowering(2, FO_PP_1F1B);
	const double even = slowest(&m, low);
	double best = INFINITY;
	for (int a = 1; a < layers; a++) {
		struct fo_lowering other = low;
		list(&other, (int[]){ a, (int)layers - a }, 2);
		best = fmin(best, slowest(&m, other));
	}
	must(fo_pass_divide(&m, &low, 0, true, &fo_choose_processor));
	const double got = slowest(&m, low);
	if (got > best * 1.01 || got > even * (1 + 1e-12))
		fail_msg("%d layers, %d words: %g, best %g, even %g", (int)layers, (int)vocab, got, best, even);
	/* The head is worth layers where the vocabulary is large. */
	assert_int_equal(low.stages.parts, vocab > 1000 ? 2 : 0);
	assert_true(!low.stages.parts || (low.stages.layers[1] < low.stages.layers[0] && got < even));
}

static int64_t planned(const struct fo_model *m, struct fo_lowering low, int32_t stage)
{
	struct fo_pass_stage s[4];
	struct fo_program p;
	must(fo_pass_build(&p, m, &low));
	must(fo_pass_stages(&p, s));
	fo_program_fini(&p);
	return s[stage].arena_bytes + s[stage].persistent_bytes;
}

static void test_balance(void **state)
{
	(void)state;
	check_balance(6, 64, false);
	check_balance(6, 4096, false);
	check_balance(9, 2048, true);
	/* Memory: with room enough time decides, with less the stage that holds more micro-batches has fewer layers. */
	struct fo_model m = step_model(8, 64, 4, 2, 96, 64, false);
	struct fo_lowering low = lowering(2, FO_PP_1F1B);
	struct fo_pass_stage stage[2];
	struct fo_program p;
	low.seq = 128; /* activations take more than weights */
	must(fo_pass_divide(&m, &low, 0, false, &fo_choose_processor));
	assert_int_equal(low.stages.parts, 0);
	must(fo_pass_build(&p, &m, &low));
	must(fo_pass_stages(&p, stage));
	const int64_t first = stage[0].arena_bytes + stage[0].persistent_bytes,
		      last = stage[1].arena_bytes + stage[1].persistent_bytes;
	fo_program_fini(&p);
	assert_true(first > last);
	must(fo_pass_divide(&m, &low, last + (first - last) / 2, false, &fo_choose_processor));
	assert_int_equal(low.stages.parts, 2);
	assert_true(low.stages.layers[0] < low.stages.layers[1]);
	assert_true(planned(&m, low, 0) < first);
	/* Layers that keep their precision have no history of delayed scales: such a division is not taken. */
	m = step_model(4, 64, 4, 2, 96, 8192, false);
	low = lowering(2, FO_PP_1F1B);
	low.precision = FO_PRECISION_BF16;
	must(fo_pass_divide(&m, &low, 0, false, &fo_choose_processor));
	assert_int_equal(low.stages.layers[1], 1);
	low.pass.fp8 = FO_FP8_DELAYED;
	low.pass.fp8_history = 4;
	low.pass.fp8_last = 1;
	must(fo_pass_divide(&m, &low, 0, false, &fo_choose_processor));
	assert_int_equal(low.stages.parts, 0);
	must(fo_pass_build(&p, &m, &low));
	fo_program_fini(&p);
}

/* ---- recomputation by stage ---- */

static void train(const struct fo_model *m, const struct fo_lowering *low, const struct step_batch *b, uint64_t hash[4])
{
	struct ranks_job j = {
		.model = *m, .low = *low, .batch = b, .options = { .threads = 1 }, .clip = 1, .eps = 1e-8
	};
	must(fo_isa_choose(&j.options.isa));
	j.order = 5;
	ranks_run(&j);
	for (int r = 0; r < j.ranks; r++) {
		if (j.rank[r].error.st != FO_OK)
			fail_msg("rank %d: %s", r, j.rank[r].error.text);
		hash[r] = j.rank[r].hash;
		/* What runs is what was planned, to the byte. */
		const struct fo_unrolled *u = fo_exec_unrolled(j.rank[r].rig.exec);
		assert_int_equal(u->arena_bytes + u->persistent_bytes, planned(m, *low, r));
	}
	ranks_free(&j);
}

static void test_repeats(void **state)
{
	(void)state;
	struct fo_model m = step_model(8, 64, 4, 2, 160, 64, false);
	struct step_batch b;
	struct fo_lowering low = lowering(4, FO_PP_1F1B);
	uint64_t plain[4], repeated[4];
	step_batch_random(&b, 16, 2, 8, m.vocab, 2, 3);
	low.rows = 2;
	const struct fo_ask ask = { .run = low };
	/* Within what the last but one stage takes as it is, those before it have to repeat, and the last need not. */
	const int64_t budget = planned(&m, low, 2);
	assert_true(planned(&m, low, 0) > budget && planned(&m, low, 3) <= budget);
	const struct fo_choose want = { .budget_bytes = budget, .recompute = true };
	struct fo_choice got;
	must(fo_pass_choose(&m, &ask, 1, &want, &got));
	assert_int_equal(got.run.stages.repeats, 4);
	int64_t sum = 0;
	for (int32_t k = 0; k < 4; k++) {
		const struct fo_stage_repeat *r = &got.run.stages.repeat[k];
		const int64_t bytes = planned(&m, got.run, k);
		sum += bytes;
		assert_true(bytes <= budget);
		assert_int_equal(r->first != 0, k < 2);
		assert_int_equal(planned(&m, low, k) > budget, k < 2);
	}
	assert_int_equal(got.bytes, (sum + 3) / 4);
	assert_true(got.repeat_seconds > 0);
	train(&m, &low, &b, plain);
	train(&m, &got.run, &b, repeated);
	assert_memory_equal(plain, repeated, sizeof plain);
	/* FLOP of the job are those of all stages' programs. */
	struct fo_program p;
	double exec = 0;
	must(fo_pass_build(&p, &m, &got.run));
	fo_pass_note_job(&p);
	for (int32_t k = 0; k < 4; k++) {
		struct fo_program stage;
		must(fo_pass_build_stage(&stage, &p, k));
		exec += fo_program_cost(&stage, 0).exec;
		fo_program_fini(&stage);
	}
	assert_true(fabs(p.job_exec / exec - 1) < 1e-12);
	fo_program_fini(&p);
	/* With less and less memory every stage still fits, up to what all that can be repeated leaves. */
	struct fo_lowering full = low;
	int64_t least = 0, more = 0;
	full.pass.recompute = FO_RECOMPUTE_FULL;
	for (int32_t k = 0; k < 4; k++)
		least = fo_max(least, planned(&m, full, k));
	for (int i = 0; i <= 4; i++) {
		const struct fo_choose some = { .budget_bytes = least + (budget - least) * i / 4, .recompute = true };
		must(fo_pass_choose(&m, &ask, 1, &some, &got));
		for (int32_t k = 0; k < 4; k++) {
			const int set = got.run.stages.repeats ? got.run.stages.repeat[k].first : 0;
			assert_true(planned(&m, got.run, k) <= some.budget_bytes);
			assert_true(set == FO_RECOMPUTE_FULL || set < FO_RECOMPUTE_REST - 1);
			more += set != 0;
		}
	}
	assert_true(more > 4);
	/* What fits no stage is refused with the least that the fullest one takes. */
	const struct fo_choose small = { .budget_bytes = planned(&m, low, 3) / 4, .recompute = true };
	assert_int_equal(fo_pass_choose(&m, &ask, 1, &small, &got), FO_ENOMEM);
	assert_non_null(strstr(fo_err_text(), "no plan of this step fits"));
	fo_err_clear();
	step_batch_free(&b);
}

/* A step's rows in micro-batches where the schedule has a least number of them, and each split fits all stages. */
static void test_splits(void **state)
{
	(void)state;
	struct fo_model m = step_model(8, 64, 4, 2, 96, 64, false);
	struct fo_lowering low = lowering(2, FO_PP_DUALPIPE_V);
	struct fo_choice got;
	const struct fo_ask ask = { .run = low };
	struct fo_choose want = { .batch_rows = 12, .recompute = true, .divide = true };
	must(fo_pass_choose(&m, &ask, 1, &want, &got));
	assert_true(got.run.micro_batches >= 4 && got.run.rows * got.run.micro_batches == 12);
	assert_int_equal(got.run.stages.repeats, 0);
	want.batch_rows = 3;
	assert_int_equal(fo_pass_choose(&m, &ask, 1, &want, &got), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "for 2 stages 4 or more, not 3"));
	fo_err_clear();
	/* More micro-batches have a smaller bubble, and fewer rows each: 1F1B of 4 stages takes many. */
	low = lowering(4, FO_PP_1F1B);
	want.batch_rows = 16;
	must(fo_pass_choose(&m, &(struct fo_ask){ .run = low }, 1, &want, &got));
	assert_true(got.run.micro_batches > 4);
	low = lowering(6, FO_PP_DUALPIPE_V);
	low.micro_batches = 16;
	m.layers = 12;
	refused(&m, &low, "dualpipe-v of 6 stages needs messages that overtake each other");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_balance),
		cmocka_unit_test(test_repeats),
		cmocka_unit_test(test_splits),
	};
	return cmocka_run_group_tests_name("pipeline_stages", tests, NULL, NULL);
}
