/* Two runs beside each other: made-up timelines in which every answer is known. */
#include "report/versus.h"
#include "base/fs.h"
#include "pass/pass.h"
#include "support/must.h"
#include "support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char dir[] = "test_versus.XXXXXX";

static void put(const char *run, const char *name, const char *text)
{
	char path[160];
	snprintf(path, sizeof path, "%s/%s", dir, run);
	must(fo_fs_mkdirs(path));
	snprintf(path, sizeof path, "%s/%s/%s", dir, run, name);
	must(fo_fs_write_atomic(path, text, strlen(text)));
}

struct spec {
	const char *name;
	int64_t recompute, merge; /* passes */
	int64_t slow_ns;          /* more for each operation of head.f */
	int64_t stall_ns;         /* of another operation in each step */
	int64_t jitter_ns;        /* how much instances vary from step to step */
	double step_seconds, spread;
	const char *options, *machine;
	int64_t other_from; /* losses differ from this step on; 0: never */
	const char *isa;    /* NULL: avx2 */
};
enum { STEPS = 8, UNIT_NS = 1000, WAIT_NS = 500 };

static int layers_ops; /* instances that backward repeats in the run that was made last */

/* A run whose operations take UNIT_NS each. */
static void make_run(const struct spec *c)
{
	struct fo_model m = tiny_model();
	m.max_position = 64;
	struct fo_lowering low = { .seq = 8,
				   .rows = 2,
				   .micro_batches = 2,
				   .precision = FO_PRECISION_BF16,
				   .mode = FO_MODE_TRAIN,
				   .pass = { .recompute = c->recompute, .merge_qkv = c->merge } };
	struct fo_program p;
	struct fo_unrolled u;
	struct fo_timeline t;
	struct fo_str text = { 0 };
	char path[160], hash[24];
	snprintf(m.name, sizeof m.name, "small");
	must(fo_pass_build(&p, &m, &low));
	must(fo_unroll(&p, &u));
	must(fo_timeline_init(&t, &p, &u, STEPS));
	layers_ops = 0;
	for (int step = 0; step < STEPS; step++) {
		int64_t at = 1000000000LL * step;
		for (int i = 0; i < u.n; i++) {
			const struct fo_op *o = fo_instance_op(&p, &u, i);
			const char *block = p.block[p.slot[u.slot[i]].block].name;
			int64_t ns = UNIT_NS + (strcmp(block, "head.f") ? 0 : c->slow_ns) +
				     (i == 11 * step + 20 ? c->stall_ns : 0) + (step % 3 - 1) * c->jitter_ns;
			if (i == u.n / 2) { /* a wait for the host lane's first operation */
				fo_timeline_record(&t, FO_LANE_COMPUTE, step, ~0, at, at + WAIT_NS);
				at += WAIT_NS;
			}
			layers_ops += step == 0 && o->phase == FO_RECOMPUTE;
			fo_timeline_record(&t, o->lane, step, i, at, at + ns);
			at += ns;
		}
	}
	fo_program_dump(&p, &text);
	put(c->name, "program.txt", text.data);
	snprintf(path, sizeof path, "%s/%s/timeline.fot", dir, c->name);
	must(fo_timeline_write(&t, &p, path));
	snprintf(hash, sizeof hash, "%016llx", (unsigned long long)fo_program_hash(&p));
	text.len = 0;
	fo_str_printf(
		&text,
		"{\"schema\":1,\"run\":{\"options\":{%s}},\"machine\":{\"cpu\":\"x\",\"threads\":2,\"isa\":\"%s\"},"
		"\"train_shard_checksum\":\"1\",\"program_hash\":\"%s\"}",
		c->options, c->isa ? c->isa : "avx2", hash);
	put(c->name, "run.json", text.data);
	text.len = 0;
	fo_str_puts(&text, "{\"event\":\"start\",\"step\":-0}\n{\"event\":\"start\",\"step\":0}\n");
	for (int s = 1; s <= 40; s++)
		fo_str_printf(&text,
			      "{\"event\":\"step\",\"step\":%d,\"loss\":%.17g,\"seconds\":%.17g,\"loss_tokens\":100}\n",
			      s, 5 - 0.1 * s + (c->other_from && s >= c->other_from ? 0.25 : 0),
			      s == 1 ? 100 : c->step_seconds + c->spread * (s % 5 - 2));
	fo_str_printf(&text,
		      "{\"event\":\"eval\",\"step\":40,\"loss\":1.5}\n%s"
		      "{\"event\":\"end\",\"step\":40,\"how\":\"done\",\"timed_steps\":39,\"parts\":{\"matmul\":3.9},"
		      "\"planned_bytes\":100,\"measured_bytes\":110}\n",
		      c->machine);
	put(c->name, "log.jsonl", text.data);
	fo_str_fini(&text);
	fo_timeline_fini(&t);
	fo_unrolled_fini(&u);
	fo_program_fini(&p);
}

static void open_two(struct fo_record r[2], struct fo_versus *v, const char *a, const char *b)
{
	char path[160];
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, i ? b : a);
		must(fo_record_open(&r[i], path, FO_RECORD_WITH_TIMELINE | FO_RECORD_WITH_METERED));
		assert_string_equal(r[i].file[FO_RECORD_TIMELINE].why, "");
	}
	fo_versus_make(v, &r[0], &r[1]);
}

static void close_two(struct fo_record r[2], struct fo_versus *v)
{
	fo_versus_fini(v);
	fo_record_fini(&r[0]);
	fo_record_fini(&r[1]);
}

static bool says(const struct fo_versus *v, const char *text)
{
	for (int64_t i = 0; i < v->causes; i++)
		if (strstr(v->cause[i], text))
			return true;
	return false;
}

#define QUIET "{\"event\":\"machine\",\"step\":40,\"seconds\":5,\"steal\":0.001,\"clock_hz\":3e9}\n"

static void test_recompute(void **state)
{
	(void)state;
	struct fo_record r[2];
	struct fo_versus v;
	char text[96];
	make_run(&(struct spec){
		.name = "kept",
		.step_seconds = 0.01,
		.spread = 1e-4,
		.machine = QUIET,
		.options = "\"pass.recompute\":{\"value\":\"none\"},\"run.dir\":{\"value\":\"same\"}" });
	make_run(&(struct spec){
		.name = "again",
		.recompute = FO_RECOMPUTE_FULL,
		.step_seconds = 0.012,
		.spread = 1e-4,
		.machine = QUIET,
		.other_from = 31,
		.options = "\"pass.recompute\":{\"value\":\"full\"},\"run.dir\":{\"value\":\"same\"}" });
	open_two(r, &v, "kept", "again");
	assert_true(v.operations && !v.same_program && v.same_data);
	/* The first step, of 100 s, is cold. */
	assert_int_equal(v.side[0].figure[FO_VERSUS_STEP_SECONDS].n, 39);
	assert_true(fabs(v.side[0].figure[FO_VERSUS_STEP_SECONDS].median - 0.01) < 1e-12);
	assert_true(
		fo_spread_apart(&v.side[0].figure[FO_VERSUS_STEP_SECONDS], &v.side[1].figure[FO_VERSUS_STEP_SECONDS]));
	assert_int_equal(v.options, 1);
	assert_string_equal(v.option[0].key, "pass.recompute");
	assert_true(layers_ops > 0);
	assert_true(fabs(v.side[1].phase[FO_RECOMPUTE].median - layers_ops * UNIT_NS * 1e-9) < 1e-15);
	snprintf(text, sizeof text, "B recomputes activations, A keeps them: %+.3f ms", layers_ops * UNIT_NS * 1e-6);
	assert_true(says(&v, text));
	for (int i = 0; i < 2; i++)
		assert_true(fabs(v.side[i].part[FO_PART_DATA].median - WAIT_NS * 1e-9) < 1e-15);
	/* What only one does is named, and is all of the difference. */
	double sum = 0;
	for (int64_t i = 0; i < v.ops; i++) {
		assert_true(i == 0 || fabs(v.op[i].difference) <= fabs(v.op[i - 1].difference));
		if (v.op[i].phase == FO_RECOMPUTE)
			assert_true(!v.op[i].in[0] && v.op[i].in[1] && v.op[i].apart);
		else
			assert_true(v.op[i].in[0] && v.op[i].in[1] && v.op[i].difference == 0 && !v.op[i].apart);
		sum += v.op[i].difference;
	}
	assert_true(fabs(sum - layers_ops * UNIT_NS * 1e-9) < 1e-15);
	assert_int_equal(v.common_steps, 40);
	assert_int_equal(v.identical_steps, 30);
	assert_true(fabs(v.largest_loss_difference - 0.25) < 1e-12 && v.largest_at >= 31);
	assert_int_equal(v.eval_step, 40);
	assert_true(v.side[0].mean_part[FO_PART_MATMUL] == 0.1);
	close_two(r, &v);
}

static void test_stalls_are_no_operations(void **state)
{
	(void)state;
	struct fo_record r[2];
	struct fo_versus v;
	make_run(&(struct spec){
		.name = "calm", .step_seconds = 0.01, .spread = 1e-4, .options = "", .machine = QUIET });
	make_run(&(struct spec){
		.name = "busy",
		.stall_ns = 5000000,
		.step_seconds = 0.015,
		.spread = 1e-4,
		.options = "",
		.machine = "{\"event\":\"machine\",\"step\":40,\"seconds\":5,\"steal\":0.2,\"clock_hz\":2e9}\n" });
	open_two(r, &v, "calm", "busy");
	assert_true(v.same_program);
	/* A stall of 5 ms in each step, each time in another operation. */
	/* Beside it the gap of the one operation that the host lane runs in between. */
	if (fabs(v.side[1].beyond_s - 5e-3 - UNIT_NS * 1e-9) >= 1e-12 ||
	    fabs(v.side[0].beyond_s - UNIT_NS * 1e-9) >= 1e-12)
		fail_msg("beyond the medians: %g and %g s", v.side[0].beyond_s, v.side[1].beyond_s);
	for (int64_t i = 0; i < v.ops; i++)
		assert_true(v.op[i].difference == 0);
	assert_true(says(&v, "5.000 of +5.000 ms are beyond"));
	assert_true(says(&v, "took 0.1 % of the processors' time in A, 20.0 % in B"));
	assert_true(says(&v, "clock was 3.00 GHz in A, 2.00 in B: -33.3 %"));
	assert_true(says(&v, "the same program on the same processor"));
	close_two(r, &v);
	/* Other kernels do other things. */
	make_run(&(struct spec){ .name = "wide",
				 .step_seconds = 0.005,
				 .spread = 1e-4,
				 .options = "",
				 .machine = QUIET,
				 .isa = "avx512bf16" });
	open_two(r, &v, "calm", "wide");
	assert_true(v.same_program);
	assert_true(says(&v, "kernels of avx2 in A, of avx512bf16 in B"));
	assert_false(says(&v, "the same program on the same processor"));
	close_two(r, &v);
}

static void test_not_resolved(void **state)
{
	(void)state;
	struct fo_record r[2];
	struct fo_versus v;
	make_run(&(struct spec){ .name = "one",
				 .jitter_ns = 300,
				 .step_seconds = 0.01,
				 .spread = 1e-3,
				 .options = "",
				 .machine = QUIET });
	make_run(&(struct spec){ .name = "two",
				 .jitter_ns = 300,
				 .slow_ns = 100,
				 .step_seconds = 0.0105,
				 .spread = 1e-3,
				 .options = "",
				 .machine = QUIET });
	make_run(&(struct spec){ .name = "three",
				 .jitter_ns = 300,
				 .slow_ns = 2000,
				 .step_seconds = 0.02,
				 .spread = 1e-3,
				 .options = "",
				 .machine = QUIET });
	open_two(r, &v, "one", "two");
	assert_false(
		fo_spread_apart(&v.side[0].figure[FO_VERSUS_STEP_SECONDS], &v.side[1].figure[FO_VERSUS_STEP_SECONDS]));
	for (int64_t i = 0; i < v.ops; i++)
		assert_false(v.op[i].apart);
	close_two(r, &v);
	open_two(r, &v, "one", "three");
	assert_true(
		fo_spread_apart(&v.side[0].figure[FO_VERSUS_STEP_SECONDS], &v.side[1].figure[FO_VERSUS_STEP_SECONDS]));
	for (int64_t i = 0; i < v.ops; i++)
		assert_int_equal(v.op[i].apart, !strcmp(v.op[i].block, "head.f"));
	assert_string_equal(v.op[0].block, "head.f");
	close_two(r, &v);
}

/* Nothing but a log on one side, and merged products on the other. */
static void test_little_is_known(void **state)
{
	(void)state;
	struct fo_record r[2];
	struct fo_versus v;
	char path[160];
	put("bare", "log.jsonl", "{\"event\":\"step\",\"step\":3,\"loss\":1}\n");
	make_run(&(struct spec){
		.name = "merged", .merge = 1, .step_seconds = 0.01, .options = "\"a\":{\"value\":1}", .machine = "" });
	snprintf(path, sizeof path, "%s/bare", dir);
	must(fo_record_open(&r[0], path, FO_RECORD_WITH_TIMELINE));
	snprintf(path, sizeof path, "%s/merged", dir);
	must(fo_record_open(&r[1], path, FO_RECORD_WITH_TIMELINE));
	fo_versus_make(&v, &r[0], &r[1]);
	assert_false(v.operations || v.same_program || v.same_data);
	assert_int_equal(v.options, 0);
	assert_int_equal(v.common_steps, 1);
	assert_true(isnan(v.side[0].mean_part[0]) && isnan(v.side[0].planned_bytes));
	close_two(r, &v);
	open_two(r, &v, "kept", "merged");
	assert_true(says(&v, "pass merge-qkv: off in A, on in B: -"));
	close_two(r, &v);
}

static int setup(void **state)
{
	(void)state;
	return !mkdtemp(dir);
}

static int teardown(void **state)
{
	(void)state;
	return fo_fs_remove_tree(dir) != FO_OK;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_recompute),
					    cmocka_unit_test(test_stalls_are_no_operations),
					    cmocka_unit_test(test_not_resolved),
					    cmocka_unit_test(test_little_is_known) };
	return cmocka_run_group_tests(tests, setup, teardown);
}
