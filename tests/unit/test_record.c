/* Run directories as a kill, a rewind, another version or a stranger may leave them. */
#define _GNU_SOURCE /* memfd_create */
#include "record/record.h"
#include "base/fs.h"
#include "base/clock.h"
#include "support/tiny_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "test_record.XXXXXX";

static const char *at(const char *name)
{
	static char path[128];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static void put(const char *name, const char *text)
{
	FILE *f = fopen(at(name), "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/* The text as a log. */
static void read_text(struct fo_record *r, const char *text)
{
	int fd = memfd_create("log", MFD_CLOEXEC);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	lseek(fd, 0, SEEK_SET);
	*r = (struct fo_record){ 0 };
	if (fo_record_read_log(r, fd, "log") != FO_OK)
		fail_msg("%s", fo_err_text());
	close(fd);
}

#define STEP(n, loss) "{\"event\":\"step\",\"step\":" #n ",\"loss\":" #loss ",\"seconds\":0.5}\n"

static void test_fields(void **state)
{
	(void)state;
	struct fo_record r;
	read_text(
		&r,
		"{\"event\":\"step\",\"step\":1,\"loss\":5.5,\"grad_norm\":null,\"lr\":0.00012345678901234567,"
		"\"seconds\":1e-3,"
		"\"tokens\":4096,\"unknown\":{\"a\":[1,\"}\"]},\"mfu\":\"0.5\",\"hfu\":true,\"time\":1795035054.123}\n"
		" { \"step\" : 2 , \"event\" : \"step\" , \"loss\" : -0.25 } \r\n");
	assert_int_equal(r.step.n, 2);
	assert_int_equal(r.bad_lines, 0);
	assert_true(fo_record_value(&r.step, FO_STEP_LOSS, 0) == 5.5);
	assert_true(fo_record_value(&r.step, FO_STEP_LOSS, 1) == -0.25);
	assert_true(fo_record_value(&r.step, FO_STEP_LR, 0) == 0.00012345678901234567);
	assert_true(fo_record_value(&r.step, FO_STEP_SECONDS, 0) == 1e-3);
	assert_true(fo_record_value(&r.step, FO_STEP_TIME, 0) == 1795035054.123);
	assert_true(isnan(fo_record_value(&r.step, FO_STEP_TIME, 1)));
	assert_true(isnan(fo_record_value(&r.step, FO_STEP_MFU, 0)));
	assert_null(r.step.value[FO_STEP_GRAD_NORM]);
	fo_record_fini(&r);
}

/* Every number is the double that the C library reads. */
static void test_numbers(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 20000; i++) {
		char text[128], number[48];
		double x = (fo_rng_uniform(1, i) - 0.5) * pow(10, (double)(int)(fo_rng_u64(2, i) % 40) - 20);
		snprintf(number, sizeof number, i % 3 == 0 ? "%.17g" : i % 3 == 1 ? "%.6f" : "%.9f", x);
		snprintf(text, sizeof text, "{\"event\":\"step\",\"step\":1,\"loss\":%s}\n", number);
		struct fo_record r;
		read_text(&r, text);
		if (fo_record_value(&r.step, FO_STEP_LOSS, 0) != strtod(number, NULL))
			fail_msg("%s was read as %.17g", number, fo_record_value(&r.step, FO_STEP_LOSS, 0));
		fo_record_fini(&r);
	}
}

static void test_newest_wins(void **state)
{
	(void)state;
	struct fo_record r;
	/* Killed behind step 4, resumed from 2; then a spike at 5 that goes back to 3. */
	read_text(&r, STEP(1, 1) STEP(2, 2) STEP(3, 3) "{\"event\":\"eval\",\"step\":3,\"loss\":9}\n" STEP(4, 4)
			      STEP(3, 30) "{\"event\":\"eval\",\"step\":3,\"loss\":90}\n" STEP(
				      4, 40) "{\"event\":\"spike\",\"step\":5,\"action\":\"rewind\",\"loss\":99,\"back_"
					     "to\":3,\"documents\":[{\"document\":1}]}\n" STEP(4, 400));
	assert_int_equal(r.step.n, 4);
	for (int64_t i = 0; i < 4; i++)
		assert_int_equal(r.step.step[i], i + 1);
	assert_true(fo_record_value(&r.step, FO_STEP_LOSS, 2) == 30);
	assert_true(fo_record_value(&r.step, FO_STEP_LOSS, 3) == 400);
	assert_int_equal(r.undone_steps, 3);
	assert_true(r.undone_seconds == 1.5);
	assert_int_equal(r.evals, 1);
	assert_true(r.eval[0].loss == 90);
	assert_int_equal(r.guards, 1);
	assert_int_equal(r.guard[0].back_to, 3);
	assert_int_equal(r.guard[0].documents, 1);
	assert_int_equal(fo_record_row(&r.step, 4), 3);
	assert_int_equal(fo_record_row(&r.step, 5), -1);
	fo_record_fini(&r);
	/* A run that ended right behind the rewind has no steps that it took back. */
	read_text(&r, STEP(1, 1) STEP(2, 2) "{\"event\":\"spike\",\"step\":3,\"action\":\"rewind\",\"back_to\":1}\n");
	assert_int_equal(r.step.n, 1);
	fo_record_fini(&r);
}

static void test_damage(void **state)
{
	(void)state;
	struct fo_record r;
	read_text(&r, STEP(1, 1) "\n{\"event\":\"step\",\"step\":-2}\nnull\n{\"event\":\"step\",\"step\":1.5}\n{"
				 "\"event\":\"later\",\"step\":1}\n"
				 "{\"event\":\"eval\",\"step\":1,\"loss\":01}\n{\"event\":\"step\",\"step\":2,\"loss\":"
				 "nan}\n" STEP(2, 2) "{\"event\":\"step\",\"st");
	assert_int_equal(r.step.n, 2);
	assert_int_equal(r.lines, 9);
	assert_int_equal(r.bad_lines, 6);
	assert_int_equal(r.first_bad_line, 2);
	assert_true(r.torn);
	fo_record_fini(&r);
	/* A line of more than a megabyte, and what follows it. */
	struct fo_str s = { 0 };
	fo_str_puts(&s, "{\"event\":\"step\",\"step\":1,\"x\":\"");
	for (int i = 0; i < 3 << 16; i++)
		fo_str_puts(&s, "0123456789abcdef");
	fo_str_puts(&s, "\"}\n" STEP(7, 7));
	read_text(&r, s.data);
	assert_int_equal(r.step.n, 1);
	assert_int_equal(r.step.step[0], 7);
	assert_int_equal(r.bad_lines, 1);
	assert_false(r.torn);
	fo_record_fini(&r);
	fo_str_fini(&s);
}

static void test_events(void **state)
{
	(void)state;
	struct fo_record r;
	struct fo_profile f;
	read_text(
		&r,
		"{\"event\":\"start\",\"step\":0,\"peak_flop_s\":1e11,\"arena_bytes\":5,\"time\":1}\n" STEP(1, 1) STEP(
			2,
			2) "{\"event\":\"profile\",\"step\":2,\"steps\":2,\"parts\":{\"matmul\":0.75,\"data\":0.25,"
			   "\"later\":7}}\n"
			   "{\"event\":\"machine\",\"step\":2,\"seconds\":5,\"steal\":0.25,\"clock_hz\":null,\"load\":"
			   "\"x\"}\n"
			   "{\"event\":\"checkpoint\",\"step\":2,\"path\":\"a/"
			   "b\",\"seconds\":2,\"blocked_seconds\":1}\n"
			   "{\"event\":\"nonfinite\",\"step\":3,\"action\":\"skip\",\"loss\":null,\"where\":\"there\"}"
			   "\n" STEP(4,
				     4) "{\"event\":\"profile\",\"step\":4,\"steps\":1,\"parts\":{\"matmul\":1}}\n"
					"{\"event\":\"end\",\"step\":4,\"how\":\"done\",\"steps\":4,\"timed_steps\":3,"
					"\"parts\":{\"matmul\":1.5},\"planned_bytes\":10,\"measured_bytes\":11}\n");
	assert_int_equal(r.bad_lines, 0);
	assert_int_equal(r.step.n, 3);
	assert_true(fo_record_last_start(&r)->peak_flop_s == 1e11 && isnan(fo_record_last_start(&r)->other_bytes));
	assert_true(r.machine[0].use.steal == 0.25 && isnan(r.machine[0].use.clock_hz) && isnan(r.machine[0].use.load));
	assert_string_equal(r.checkpoint[0].path, "a/b");
	assert_string_equal(r.guard[0].where, "there");
	assert_int_equal(r.guard[0].back_to, -1);
	assert_string_equal(fo_record_last_end(&r)->how, "done");
	assert_true(fo_record_last_end(&r)->profile.steps == 3 && fo_record_last_end(&r)->profile.total_ns == 1.5e9);
	assert_true(fo_record_profile_total(&r, &f));
	assert_int_equal(f.steps, 3);
	assert_true(f.part_ns[FO_PART_MATMUL] == 1.75e9 && f.total_ns == 2e9);
	assert_true(fo_record_quantile(&r.step, FO_STEP_LOSS, 0, 3, 0.5) == 2);
	assert_true(isnan(fo_record_quantile(&r.step, FO_STEP_LR, 0, 3, 0.5)));
	fo_record_fini(&r);
}

/* Two processes that knew different peaks, a rewind, and a third that knew none: each step's work is of its own
 * process. */
static void test_peak_of_each_process(void **state)
{
	(void)state;
	struct fo_record r;
#define WORK(n, mfu) "{\"event\":\"step\",\"step\":" #n ",\"seconds\":2,\"mfu\":" #mfu "}\n"
	read_text(&r,
		  WORK(1, 0.5) "{\"event\":\"start\",\"step\":1,\"peak_flop_s\":100}\n" WORK(2, 0.5) WORK(
			  3, 0.5) "{\"event\":\"start\",\"step\":3,\"peak_flop_s\":200}\n" WORK(4, 0.25)
			  WORK(5, 0.25) "{\"event\":\"spike\",\"step\":6,\"action\":\"rewind\",\"back_to\":2}\n" WORK(
				  3, 0.25) "{\"event\":\"start\",\"step\":3,\"peak_flop_s\":null}\n" WORK(4, null));
	assert_int_equal(r.step.n, 4);
	r.peak_flop_s = NAN;
	assert_null(fo_record_start_of(&r, 0));
	assert_true(isnan(fo_record_peak_of(&r, 0)));
	assert_true(fo_record_peak_of(&r, 1) == 100);
	/* Step 3 was done again by the second process, which began behind 3. */
	assert_true(fo_record_start_of(&r, 2) == &r.start[1] && fo_record_peak_of(&r, 2) == 200);
	assert_true(fo_record_start_of(&r, 3) == &r.start[2]);
	assert_true(fo_record_mean_flop(&r, FO_STEP_MFU) == 100);
	assert_true(isnan(fo_record_mean_flop(&r, FO_STEP_HFU)));
	fo_record_fini(&r);
}

static void test_metered_steps_are_no_figure(void **state)
{
	(void)state;
	struct fo_record r;
	read_text(&r,
		  STEP(1, 1) "{\"event\":\"step\",\"step\":2,\"loss\":2,\"seconds\":50,\"metered\":true}\n" STEP(3, 3));
	assert_true(fo_record_quantile(&r.step, FO_STEP_SECONDS, 0, 3, 1) == 0.5);
	fo_record_fini(&r);
}

static void test_directory(void **state)
{
	(void)state;
	struct fo_record r;
	assert_int_equal(fo_record_open(&r, at("missing"), 0), FO_EIO);
	assert_int_equal(fo_record_open(&r, dir, 0), FO_EARG);
	put("run.json",
	    "{\"schema\":1,\"run\":{\"started\":\"now\",\"flatout\":{\"version\":\"9\"},\"options\":{\"train.steps\":"
	    "{\"value\":7,\"origin\":\"file\",\"where\":\"run.yaml:3\"},\"optim.lr\":{\"value\":0.0006,\"origin\":"
	    "\"default\"},"
	    "\"odd\":5}},\"machine\":{\"threads\":2,\"peak_flop_s\":null},\"seed\":4}");
	assert_int_equal(fo_record_open(&r, dir, FO_RECORD_WITH_TIMELINE), FO_OK);
	assert_int_equal(r.file[FO_RECORD_RUN_JSON].state, FO_RECORD_WHOLE);
	assert_int_equal(r.file[FO_RECORD_LOG].state, FO_RECORD_ABSENT);
	assert_int_equal(r.file[FO_RECORD_TIMELINE].state, FO_RECORD_ABSENT);
	assert_string_equal(fo_record_option(&r, "train.steps")->value, "7");
	assert_string_equal(fo_record_option(&r, "train.steps")->where, "run.yaml:3");
	assert_string_equal(fo_record_option(&r, "optim.lr")->value, "0.0006");
	assert_string_equal(fo_record_option(&r, "odd")->value, "");
	assert_null(fo_record_option(&r, "nothing"));
	assert_int_equal(r.threads, 2);
	assert_true(isnan(r.peak_flop_s));
	assert_string_equal(r.commit, "");
	fo_record_fini(&r);
	put("run.json", "{\"schema\":2}");
	put("log.jsonl", "garbage\nmore\n");
	put("program.txt", "no program");
	put("timeline.fot", "no timeline");
	put("metered.fom", "no spans");
	assert_int_equal(fo_record_open(&r, dir, FO_RECORD_WITH_TIMELINE | FO_RECORD_WITH_METERED), FO_OK);
	for (int i = 0; i < FO_RECORD_FILES; i++) {
		assert_int_equal(r.file[i].state, FO_RECORD_DAMAGED);
		assert_true(*r.file[i].why);
	}
	fo_record_fini(&r);
}

/* A pipe without a writer, or a device without an end, where a file should be: refused at once. */
static void test_no_regular_files(void **state)
{
	(void)state;
	static const char *const name[FO_RECORD_FILES] = { "run.json", "log.jsonl", "program.txt", "timeline.fot",
							   "metered.fom" };
	struct fo_record r;
	for (int kind = 0; kind < 2; kind++) {
		for (int i = 0; i < FO_RECORD_FILES; i++) {
			unlink(at(name[i]));
			assert_int_equal(kind ? symlink("/dev/zero", at(name[i])) : mkfifo(at(name[i]), 0600), 0);
		}
		alarm(20); /* instead of waiting for ever */
		assert_int_equal(fo_record_open(&r, dir, FO_RECORD_WITH_TIMELINE | FO_RECORD_WITH_METERED), FO_OK);
		alarm(0);
		for (int i = 0; i < FO_RECORD_FILES; i++) {
			assert_int_equal(r.file[i].state, FO_RECORD_DAMAGED);
			assert_non_null(strstr(r.file[i].why, i < FO_RECORD_TIMELINE ? "not a regular file"
										     : "cannot be read without"));
		}
		fo_record_fini(&r);
	}
	for (int i = 0; i < FO_RECORD_FILES; i++)
		unlink(at(name[i]));
}

/* A key with NUL bytes is no field's name, however it begins and whatever lies behind that name in memory. */
static void test_nul_in_keys(void **state)
{
	(void)state;
	enum { NULS = 3000 };
	static const char begin[] = "{\"event\":\"step\",\"step\":1,\"lr", end[] = "\":1}\n", nuls[NULS];
	for (size_t n = 1; n <= NULS; n = n < 64 ? n + 1 : n + 587) {
		struct fo_record r = { 0 };
		int fd = memfd_create("log", MFD_CLOEXEC);
		assert_int_equal(write(fd, begin, sizeof begin - 1), sizeof begin - 1);
		assert_int_equal(write(fd, nuls, n), n);
		assert_int_equal(write(fd, end, sizeof end - 1), sizeof end - 1);
		lseek(fd, 0, SEEK_SET);
		assert_int_equal(fo_record_read_log(&r, fd, "log"), FO_OK);
		close(fd);
		assert_int_equal(r.step.n, 1);
		for (int f = 0; f < FO_STEP_FIELD_COUNT; f++)
			assert_null(r.step.value[f]);
		fo_record_fini(&r);
	}
}

static struct fo_program p;
static struct fo_unrolled u;

/* A program's timeline; then the same beside another program. */
static void test_timeline(void **state)
{
	(void)state;
	struct fo_record r;
	struct fo_timeline t;
	struct fo_profile f;
	struct fo_str text = { 0 };
	assert_int_equal(fo_timeline_init(&t, &p, &u, 3), FO_OK);
	for (int step = 0; step < 2; step++)
		for (int i = 0; i < (step ? u.n - 1 : u.n); i++) {
			int lane = fo_instance_op(&p, &u, i)->lane;
			fo_timeline_record(&t, lane, step, i, 1000000 * step + 10 * i, 1000000 * step + 10 * i + 8);
		}
	assert_int_equal(fo_timeline_write(&t, &p, at("timeline.fot")), FO_OK);
	fo_timeline_fini(&t);
	fo_program_dump(&p, &text);
	put("program.txt", text.data);
	put("log.jsonl", STEP(1, 1));
	assert_int_equal(fo_record_open(&r, dir, FO_RECORD_WITH_TIMELINE), FO_OK);
	assert_string_equal(r.file[FO_RECORD_TIMELINE].why, "");
	assert_int_equal(r.file[FO_RECORD_TIMELINE].state, FO_RECORD_WHOLE);
	assert_true(r.unrolled.arena_bytes > 0);
	/* The second step is not whole. */
	assert_true(fo_record_profile_total(&r, &f));
	assert_int_equal(f.steps, 1);
	int first = 0, last = u.n - 1;
	while (fo_instance_op(&p, &u, first)->lane != FO_LANE_COMPUTE)
		first++;
	while (fo_instance_op(&p, &u, last)->lane != FO_LANE_COMPUTE)
		last--;
	assert_true(f.total_ns == 10.0 * (last - first) + 8);
	fo_record_fini(&r);
	/* Another name makes it another program. */
	char *name = strstr(text.data, "name ");
	assert_non_null(name);
	name[5] = name[5] == 'x' ? 'y' : 'x';
	put("program.txt", text.data);
	assert_int_equal(fo_record_open(&r, dir, FO_RECORD_WITH_TIMELINE), FO_OK);
	assert_int_equal(r.file[FO_RECORD_PROGRAM].state, FO_RECORD_WHOLE);
	assert_int_equal(r.file[FO_RECORD_TIMELINE].state, FO_RECORD_DAMAGED);
	assert_non_null(strstr(r.file[FO_RECORD_TIMELINE].why, "another step program"));
	fo_record_fini(&r);
	fo_str_fini(&text);
}

static int setup(void **state)
{
	(void)state;
	struct fo_model m = tiny_model();
	m.max_position = 64;
	struct fo_lowering run = {
		.seq = 8, .rows = 2, .micro_batches = 2, .precision = FO_PRECISION_BF16, .mode = FO_MODE_TRAIN
	};
	snprintf(m.name, sizeof m.name, "small");
	return !mkdtemp(dir) || fo_program_lower(&p, &m, &run) != FO_OK || fo_unroll(&p, &u) != FO_OK;
}

static int teardown(void **state)
{
	(void)state;
	fo_unrolled_fini(&u);
	fo_program_fini(&p);
	return fo_fs_remove_tree(dir) != FO_OK;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_newest_wins),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_metered_steps_are_no_figure),
		cmocka_unit_test(test_peak_of_each_process),
		cmocka_unit_test(test_nul_in_keys),
		cmocka_unit_test(test_no_regular_files),
		cmocka_unit_test(test_directory),
		cmocka_unit_test(test_timeline),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
