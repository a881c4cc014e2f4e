/* Figures of a run directory: running medians, slow phases and what the log says of them, gaps, memory by lifetime. */
#include "report/run.h"

#include "base/fs.h"
#include "support/tiny_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "test_report.XXXXXX";

static const char *at(const char *name)
{
	static char path[128];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Against sorting every window. */
static void test_running_median(void **state)
{
	(void)state;
	enum { N = 300 };
	double v[N], out[N], w[N];
	unsigned x = 1;
	for (int i = 0; i < N; i++) {
		x = x * 1103515245 + 12345;
		v[i] = x >> 16 & 1 && i % 7 == 0 ? NAN : (double)(x >> 20 & 63); /* equal values too */
	}
	for (int window = 1; window <= 31; window += 6) {
		fo_running_median(v, N, window, out);
		for (int i = 0; i < N; i++) {
			int n = 0;
			for (int k = i - window / 2; k <= i + window / 2; k++)
				if (k >= 0 && k < N && isfinite(v[k]))
					w[n++] = v[k];
			qsort(w, (size_t)n, sizeof *w, by_value);
			double want = isnan(v[i]) ? NAN : n % 2 ? w[n / 2] : (w[n / 2 - 1] + w[n / 2]) / 2;
			assert_true(out[i] == want || (isnan(out[i]) && isnan(want)));
		}
	}
}

/* 1000 steps of 0.1 s; from 300 to 349 of 0.2 s; single slow ones elsewhere; from 600 to 700 of 0.14 s while the
 * machine steals. An evaluation behind step 500 takes 3 s, a checkpoint behind 800 blocks for 0.5 s, the process is
 * begun again behind 900. */
static void write_log(void)
{
	FILE *f = fopen(at("log.jsonl"), "w");
	double t = 1795000000;
	assert_non_null(f);
	fprintf(f, "{\"event\":\"start\",\"step\":0,\"time\":%.3f}\n", t);
	for (int i = 1; i <= 1000; i++) {
		double s = i >= 300 && i < 350 ? 0.2 : i >= 600 && i <= 700 ? 0.14 : i % 100 == 50 ? 0.5 : 0.1;
		double data = i >= 300 && i < 350 ? 0.1 : 0;
		t += s;
		fprintf(f,
			"{\"event\":\"step\",\"step\":%d,\"loss\":%.6f,\"seconds\":%g,\"data_seconds\":%g,\"loss_"
			"tokens\":100,"
			"\"tokens_per_second\":%g,\"mfu\":%g,\"time\":%.3f}\n",
			i, 3 + 5.0 / i, s, data, 100 / s, 0.05 / s, t);
		if (i % 50 == 0)
			fprintf(f,
				"{\"event\":\"machine\",\"step\":%d,\"seconds\":5,\"steal\":%g,\"clock_hz\":2e9,"
				"\"load\":2}\n",
				i, i > 600 && i <= 700 ? 0.25 : 0.01);
		if (i == 320 || i == 640)
			fprintf(f, "{\"event\":\"eval\",\"step\":%d,\"loss\":3.6}\n", i);
		if (i == 500) {
			t += 3;
			fprintf(f, "{\"event\":\"eval\",\"step\":500,\"loss\":3.5,\"time\":%.3f}\n", t);
		}
		if (i == 800) {
			t += 0.5;
			fprintf(f, "{\"event\":\"checkpoint\",\"step\":800,\"path\":\"x\",\"seconds\":2,\"blocked_"
				   "seconds\":0.5}\n");
		}
		if (i == 900) {
			t += 60;
			fprintf(f, "{\"event\":\"start\",\"step\":900,\"time\":%.3f}\n", t - 10);
		}
	}
	fclose(f);
}

static void test_phases(void **state)
{
	(void)state;
	struct fo_record r;
	struct fo_report o;
	write_log();
	assert_int_equal(fo_record_open(&r, dir, FO_RECORD_WITH_TIMELINE), FO_OK);
	fo_report_make(&o, &r);
	assert_true(fabs(o.step_s.median - 0.1) < 1e-12);
	assert_int_equal(o.phases, 2);
	/* Where half of the window is slow. */
	assert_true(o.phase[0].first >= 298 && o.phase[0].first <= 301 && o.phase[0].last >= 348 &&
		    o.phase[0].last <= 351);
	assert_true(o.phase[1].first >= 598 && o.phase[1].first <= 601 && o.phase[1].last >= 699 &&
		    o.phase[1].last <= 702);
	assert_true(fabs(o.phase[0].times - 2) < 1e-9);
	assert_true(fabs(o.phase[1].times - 1.4) < 1e-9);
	assert_true(o.phase[0].lost_s > 4.8 && o.phase[0].lost_s < 5.6);
	assert_non_null(strstr(o.phase[0].cause, "waited for data 4"));
	assert_null(strstr(o.phase[0].cause, "steal"));
	assert_non_null(strstr(o.phase[1].cause, "steal 25 % (else 1 %)"));
	assert_null(strstr(o.phase[1].cause, "data"));
	/* What lies between steps is told, and not blamed. */
	assert_null(strstr(o.phase[0].cause, "evaluation"));
	assert_string_equal(o.phase[0].beside, "1 evaluation");
	assert_int_equal(o.gaps[FO_GAP_EVAL], 1);
	assert_true(fabs(o.gap_s[FO_GAP_EVAL] - 3) < 0.01);
	assert_int_equal(o.gaps[FO_GAP_CHECKPOINT], 1);
	assert_true(fabs(o.gap_s[FO_GAP_CHECKPOINT] - 0.5) < 0.01);
	assert_int_equal(o.gaps[FO_GAP_STOPPED], 1);
	assert_true(fabs(o.gap_s[FO_GAP_STOPPED] - 60) < 0.01);
	double sum = o.step_time_s;
	for (int k = 0; k < FO_GAP_COUNT; k++)
		sum += o.gap_s[k];
	assert_true(fabs(sum - o.wall_s) < 0.05); /* everything has its place */
	assert_true(o.best_eval == 3.5 && o.best_eval_step == 500);
	assert_true(fabs(o.mfu[0].median - 0.5) < 1e-9);
	fo_report_fini(&o);
	fo_record_fini(&r);
}

/* Steps end to end, whose times the log cuts to milliseconds: nothing lies between them. */
static void test_cut_times(void **state)
{
	(void)state;
	struct fo_record r;
	struct fo_report o;
	double t = 1795000000;
	FILE *f = fopen(at("log.jsonl"), "w");
	assert_non_null(f);
	fprintf(f, "{\"event\":\"start\",\"step\":0,\"time\":%.3f}\n", t);
	for (int i = 1; i <= 1000; i++) {
		double s = 0.03 + 1e-6 * (i * 7919 % 1000);
		t += s;
		fprintf(f,
			"{\"event\":\"step\",\"step\":%d,\"loss\":3,\"seconds\":%.9f,\"loss_tokens\":100,\"time\":%.3f}"
			"\n",
			i, s, floor(t * 1000) / 1000);
	}
	fclose(f);
	assert_int_equal(fo_record_open(&r, dir, FO_RECORD_WITH_TIMELINE), FO_OK);
	fo_report_make(&o, &r);
	assert_int_equal(o.gaps[FO_GAP_OTHER], 0);
	assert_true(o.gap_s[FO_GAP_OTHER] <= 0.001);
	assert_true(fabs(o.step_time_s + o.gap_s[FO_GAP_OTHER] - o.wall_s) <= 0.001);
	fo_report_fini(&o);
	fo_record_fini(&r);
}

/* 100 steps of 0.1 s, ten minutes between two processes behind step 50; `jump` is added to the system's clock behind
 * step `at`. */
static void report_of_jump(struct fo_record *r, struct fo_report *o, int step, double jump, bool steady)
{
	double t = 1795000000, c = 5;
	FILE *f = fopen(at("log.jsonl"), "w");
	assert_non_null(f);
	for (int i = 1; i <= 100; i++) {
		char clock[40] = "";
		if (i == 1 || i == 51) {
			t += i == 51 ? 600 : 0;
			c = 5;
			fprintf(f, "{\"event\":\"start\",\"step\":%d,\"time\":%.3f}\n", i - 1, t);
		}
		t += 0.1;
		c += 0.1;
		if (steady)
			snprintf(clock, sizeof clock, ",\"clock\":%.3f", c);
		fprintf(f,
			"{\"event\":\"step\",\"step\":%d,\"loss\":3,\"seconds\":0.1,\"loss_tokens\":100,\"time\":%.3f%"
			"s}\n",
			i, t, clock);
		t += i == step ? jump : 0;
	}
	fclose(f);
	assert_int_equal(fo_record_open(r, dir, FO_RECORD_WITH_TIMELINE), FO_OK);
	fo_report_make(o, r);
}

/* A clock that is set makes no time of nothing, and none less than nothing. */
static void test_clock_is_set(void **state)
{
	(void)state;
	static const struct {
		int step;
		double jump;
		bool steady;
		double wall;
		int64_t set, stops;
	} row[] = {
		{ 20, 0, true, 610, 0, 1 },       { 20, -3600, true, 610, 1, 1 }, { 20, 36000, true, 610, 1, 1 },
		{ 20, -3600, false, 610, 1, 1 },  { 50, -3600, true, 10, 1, 0 },  { 50, -3600, false, 10, 1, 0 },
		{ 100, -3600, false, 610, 0, 1 }, { 1, -1e9, false, 610, 1, 1 },
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct fo_record r;
		struct fo_report o;
		report_of_jump(&r, &o, row[i].step, row[i].jump, row[i].steady);
		double sum = o.step_time_s;
		for (int k = 0; k < FO_GAP_COUNT; k++) {
			assert_true(o.gap_s[k] >= 0);
			sum += o.gap_s[k];
		}
		if (fabs(o.wall_s - row[i].wall) > 0.05 || fabs(sum - o.wall_s) > 0.05 || o.clock_set != row[i].set ||
		    o.gaps[FO_GAP_STOPPED] != row[i].stops || o.gap_s[FO_GAP_OTHER] > 0.05)
			fail_msg("row %zu: wall %g, sum %g, set %lld times, stopped %lld times for %g s, other %g s", i,
				 o.wall_s, sum, (long long)o.clock_set, (long long)o.gaps[FO_GAP_STOPPED],
				 o.gap_s[FO_GAP_STOPPED], o.gap_s[FO_GAP_OTHER]);
		fo_report_fini(&o);
		fo_record_fini(&r);
	}
}

/* What the picture adds up to is what the planner counted while it placed. */
static void test_memory(void **state)
{
	(void)state;
	static const char *const preset[] = { "flatout-134m", "llama-3.2-1b" };
	for (size_t k = 0; k < sizeof preset / sizeof *preset; k++) {
		struct fo_model m;
		struct fo_lowering run = { .seq = 64, .rows = 2, .micro_batches = 3, .precision = FO_PRECISION_BF16 };
		struct fo_program p;
		struct fo_str text = { 0 };
		struct fo_record r;
		struct fo_report o;
		assert_int_equal(fo_model_load(preset[k], &m), FO_OK);
		assert_int_equal(fo_program_lower(&p, &m, &run), FO_OK);
		fo_program_dump(&p, &text);
		assert_int_equal(fo_fs_write_atomic(at("program.txt"), text.data, text.len), FO_OK);
		fo_str_fini(&text);
		fo_program_fini(&p);
		assert_int_equal(fo_record_open(&r, dir, FO_RECORD_WITH_PROGRAM), FO_OK);
		assert_int_equal(r.file[FO_RECORD_PROGRAM].state, FO_RECORD_WHOLE);
		fo_report_make(&o, &r);
		const struct fo_report_memory *e = &o.memory;
		assert_int_equal(e->points, r.unrolled.n);
		double most = 0, persists = e->live[FO_LIFE_WEIGHTS][0] + e->live[FO_LIFE_STATE][0];
		for (int64_t i = 0; i < e->points; i++) {
			double sum = 0;
			for (int l = 0; l < FO_LIFE_COUNT; l++) {
				assert_true(e->live[l][i] >= 0);
				sum += e->live[l][i];
			}
			most = fmax(most, sum);
		}
		assert_true(persists == (double)r.unrolled.persistent_bytes);
		assert_true(most - persists == (double)r.unrolled.max_live_bytes);
		assert_true(e->live[FO_LIFE_KEPT][e->peak] > 0);
		assert_true(e->live[FO_LIFE_GRADIENT][0] == 0);
		assert_true(e->buffers == 10 && e->buffer[0].bytes >= e->buffer[9].bytes);
		fo_report_fini(&o);
		fo_record_fini(&r);
	}
	unlink(at("program.txt"));
}

/* Two processes that knew different peaks, and steps whose rows are full or padded: the work of the mean step in the
 * quiet time. */
static void test_quiet_mfu(void **state)
{
	(void)state;
	struct fo_model m = tiny_model();
	struct fo_lowering low = {
		.seq = 16, .rows = 2, .micro_batches = 1, .precision = FO_PRECISION_F32, .mode = FO_MODE_TRAIN
	};
	struct fo_program p;
	struct fo_unrolled u;
	struct fo_str text = { 0 };
	struct fo_metered spans;
	struct fo_metered_out out;
	struct fo_record r;
	struct fo_report o;
	assert_int_equal(fo_program_lower(&p, &m, &low), FO_OK);
	assert_int_equal(fo_unroll(&p, &u), FO_OK);
	fo_program_dump(&p, &text);
	assert_int_equal(fo_fs_write_atomic(at("program.txt"), text.data, text.len), FO_OK);
	fo_metered_init(&spans, &p, "f32", 1);
	assert_int_equal(fo_metered_open(&out, at("metered.fom"), &spans), FO_OK);
	for (int i = 0; i < u.n; i++)
		if (fo_op_info(fo_instance_op(&p, &u, i)->kind)->cls != FO_CLASS_HOST)
			fo_metered_add(&spans, 1, i, &(struct fo_quiet_span){ 0.5, 0, { 1, 1, 1 }, { 1, 1, 1 } });
	double quiet_s = 0.5 * (double)spans.n;
	assert_int_equal(fo_metered_write(&out, &spans), FO_OK);
	fo_metered_close(&out);
	fo_metered_fini(&spans);
	/* 60, 60 and 600 FLOP: the median step is not the mean one. */
	static const char log[] = "{\"event\":\"start\",\"step\":0,\"peak_flop_s\":100}\n"
				  "{\"event\":\"step\",\"step\":1,\"seconds\":1,\"mfu\":0.6}\n{\"event\":\"step\","
				  "\"step\":2,\"seconds\":1,\"mfu\":0.6}\n"
				  "{\"event\":\"start\",\"step\":2,\"peak_flop_s\":1000}\n{\"event\":\"step\",\"step\":"
				  "3,\"seconds\":1,\"mfu\":0.6}\n";
	assert_int_equal(fo_fs_write_atomic(at("log.jsonl"), log, sizeof log - 1), FO_OK);
	assert_int_equal(fo_record_open(&r, dir, FO_RECORD_WITH_METERED), FO_OK);
	fo_report_make(&o, &r);
	assert_true(fabs(o.quiet_s - quiet_s) < 1e-9);
	assert_true(fabs(o.quiet_mfu - 240 / quiet_s / 1000) < 1e-12);
	fo_report_fini(&o);
	fo_record_fini(&r);
	fo_str_fini(&text);
	fo_unrolled_fini(&u);
	fo_program_fini(&p);
	unlink(at("program.txt"));
	unlink(at("metered.fom"));
}

static void page_of(const struct fo_report *o, struct fo_str *page)
{
	struct fo_doc d = { 0 };
	fo_report_doc(o, &d);
	fo_doc_to_html(&d, page);
	fo_doc_fini(&d);
}

/* A log alone, one without any finite number, one whose every step is a phase of its own. */
static void test_bare(void **state)
{
	(void)state;
	static const char *const log[] = {
		"{\"event\":\"eval\",\"step\":3,\"loss\":null}\n",
		"{\"event\":\"step\",\"step\":1}\n{\"event\":\"step\",\"step\":2,\"seconds\":null,\"loss\":null}\n{"
		"\"event\":\"ste",
		"{\"event\":\"step\",\"step\":9007199254740993,\"seconds\":1e308,\"loss\":-1e308,\"mfu\":1e300,"
		"\"time\":-1e308}\n"
		"{\"event\":\"step\",\"step\":9007199254740995,\"seconds\":1e-308,\"loss\":1e308,\"time\":1e308}\n"
		"{\"event\":\"machine\",\"step\":-5,\"seconds\":1e308,\"steal\":1e308,\"limited_seconds\":-1}\n",
	};
	for (size_t i = 0; i < sizeof log / sizeof *log; i++) {
		struct fo_record r;
		struct fo_report o;
		struct fo_str page = { 0 }, json = { 0 };
		struct fo_json j;
		assert_int_equal(fo_fs_write_atomic(at("log.jsonl"), log[i], strlen(log[i])), FO_OK);
		assert_int_equal(fo_record_open(&r, dir, FO_RECORD_WITH_TIMELINE | FO_RECORD_WITH_METERED), FO_OK);
		fo_report_make(&o, &r);
		page_of(&o, &page);
		assert_non_null(strstr(page.data, "</html>"));
		assert_non_null(strstr(page.data, "There is no run.json"));
		assert_null(strstr(page.data, "(null)"));
		fo_json_begin(&j, &json, false);
		fo_json_object(&j, NULL);
		fo_report_json(&o, &j);
		fo_json_close(&j);
		assert_null(strstr(json.data, "nan"));
		fo_str_fini(&page);
		fo_str_fini(&json);
		fo_report_fini(&o);
		fo_record_fini(&r);
	}
}

/* As long as a run gets: the page stays small. */
static void test_long(void **state)
{
	(void)state;
	enum { N = 100000 };
	struct fo_record r;
	struct fo_report o;
	struct fo_str page = { 0 };
	FILE *f = fopen(at("log.jsonl"), "w");
	unsigned x = 1;
	for (int i = 1; i <= N; i++) {
		x = x * 1103515245 + 12345;
		double s = 0.1 + (x >> 16) * 1e-6 + (i / 500 % 4 == 3 ? 0.1 : 0);
		fprintf(f,
			"{\"event\":\"step\",\"step\":%d,\"loss\":%g,\"seconds\":%g,\"mfu\":%g,\"mfu_causal\":%g,"
			"\"hfu\":%g}\n",
			i, 2 + (x >> 20) * 1e-4, s, 0.05 / s, 0.045 / s, 0.06 / s);
		if (i % 50 == 0)
			fprintf(f,
				"{\"event\":\"eval\",\"step\":%d,\"loss\":3}\n{\"event\":\"machine\",\"step\":%d,"
				"\"seconds\":5,\"steal\":0.1}\n"
				"{\"event\":\"spike\",\"step\":%d,\"action\":\"warn\"}\n",
				i, i, i);
	}
	fclose(f);
	assert_int_equal(fo_record_open(&r, dir, FO_RECORD_WITH_TIMELINE), FO_OK);
	fo_report_make(&o, &r);
	assert_int_equal(o.window, 201);
	assert_true(o.phases == 50);
	page_of(&o, &page);
	assert_true(page.len < 1000000);
	fo_str_fini(&page);
	fo_report_fini(&o);
	fo_record_fini(&r);
}

static int begin(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : 1;
}
static int end(void **state)
{
	(void)state;
	return fo_fs_remove_tree(dir) != FO_OK;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_running_median), cmocka_unit_test(test_phases),
					    cmocka_unit_test(test_cut_times),      cmocka_unit_test(test_clock_is_set),
					    cmocka_unit_test(test_memory),         cmocka_unit_test(test_bare),
					    cmocka_unit_test(test_long),           cmocka_unit_test(test_quiet_mfu) };
	return cmocka_run_group_tests(tests, begin, end);
}
