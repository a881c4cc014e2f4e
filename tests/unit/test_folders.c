/* Folders: of several recordings one is taken; lost, cut, empty and foreign files, logs of schedules and other runs are
 * told, and why. */
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "diagnose/diagnose.h"
#include "trace/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/scratch.h"

static const char *in(const char *name)
{
	static char path[8][160];
	static int at;
	at = (at + 1) % 8;
	snprintf(path[at], sizeof path[at], "%s/%s", fo_scratch, name);
	return path[at];
}

static void put(const char *name, const char *text)
{
	char folder[160];
	snprintf(folder, sizeof folder, "%s", in(name));
	*strrchr(folder, '/') = 0;
	assert_int_equal(fo_fs_mkdirs(folder), FO_OK);
	FILE *f = fopen(in(name), "we");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

/* A rank with a few kernels, the last launched without one where `lost` says so; cut: the file ends inside its last
 * event. */
static void trace(const char *name, int rank, int world, bool cut, int lost)
{
	struct fo_str s = { 0 };
	/* The name makes the files differ: two ranks never record the same bytes. */
	fo_str_printf(&s, "{\"schemaVersion\": 1, \"traceName\": \"%s\", ", name);
	if (rank >= 0)
		fo_str_printf(&s, "\"distributedInfo\": {\"rank\": %d, \"world_size\": %d}, ", rank, world);
	fo_str_puts(&s, "\"traceEvents\": [");
	for (int i = 0; i < 10; i++) {
		fo_str_printf(&s,
			      "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1, "
			      "\"tid\": 1, \"ts\": %d, \"dur\": 2, \"args\": {\"correlation\": %d}},",
			      10 * i, i + 1);
		if (i < 5 || i >= 5 + lost)
			fo_str_printf(&s,
				      "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"sgemm\", \"pid\": 0, \"tid\": "
				      "7, \"ts\": %d, \"dur\": 6, \"args\": {\"device\": 0, \"stream\": 7, "
				      "\"correlation\": %d}}%s",
				      10 * i + 4, i + 1, i < 9 ? "," : "");
	}
	if (!cut)
		fo_str_puts(&s, "]}");
	else
		s.data[s.len - 10] = 0;
	put(name, s.data);
	fo_str_fini(&s);
}

static void opened(struct fo_trace_set *s, const char *folder)
{
	if (fo_trace_set_open(s, (const char *[]){ in(folder) }, 1) != FO_OK)
		fail_msg("%s: %s", folder, fo_err_text());
}

/* Is there an entry of that kind whose path ends so, with so many files? */
static void left(const struct fo_trace_set *s, enum fo_left_kind kind, const char *path, int files, const char *why)
{
	for (int i = 0; i < s->lefts; i++) {
		const struct fo_left_out *l = &s->left[i];
		size_t n = strlen(l->path), m = strlen(path);
		if (l->kind == kind && n >= m && !strcmp(l->path + n - m, path) && l->files == files &&
		    strstr(l->why, why))
			return;
	}
	for (int i = 0; i < s->lefts; i++)
		print_message("%s '%s' %d: %s\n", fo_left_name[s->left[i].kind], s->left[i].path, s->left[i].files,
			      s->left[i].why);
	fail_msg("'%s' is not among what was left out", path);
}

/* One of the sentences says so. */
static void says(struct fo_trace_set *s, const char *what)
{
	struct fo_diagnosis d;
	struct fo_diagnose_options o = { 0 };
	struct fo_arena a = { 0 };
	struct fo_str json = { 0 };
	const char **line;
	bool found = false;
	assert_int_equal(fo_diagnose(&d, s, &o), FO_OK);
	int n = fo_found_of(&d, &a, &line);
	for (int i = 0; i < n; i++)
		found |= strstr(line[i], what) != NULL;
	for (int i = 0; i < n && !found; i++)
		print_message("%s\n", line[i]);
	if (!found)
		fail_msg("no sentence says '%s'", what);
	struct fo_json j;
	fo_json_begin(&j, &json, true);
	fo_json_object(&j, NULL);
	fo_diagnosis_json(&d, &j);
	fo_json_close(&j);
	assert_non_null(strstr(json.data, "\"remarks\""));
	fo_str_fini(&json);
	fo_arena_fini(&a);
	fo_diagnosis_fini(&d);
}

/* Nothing to say of what is whole. */
static void silent(struct fo_trace_set *s)
{
	struct fo_diagnosis d;
	struct fo_diagnose_options o = { 0 };
	struct fo_arena a = { 0 };
	const char **line;
	assert_int_equal(fo_diagnose(&d, s, &o), FO_OK);
	int n = fo_found_of(&d, &a, &line);
	if (n)
		fail_msg("it says '%s'", line[0]);
	fo_arena_fini(&a);
	fo_diagnosis_fini(&d);
}

static void iteration(const char *top, int number, int ranks, int cut)
{
	char name[96];
	for (int r = 0; r < ranks; r++) {
		snprintf(name, sizeof name, "%s/iteration_%d/rank%d_trace.json", top, number, r);
		trace(name, r, 2, r == cut, 0);
	}
}

static void iterations(void **state)
{
	(void)state;
	struct fo_trace_set s;
	iteration("titan", 10, 2, -1);
	iteration("titan", 100, 2, -1);
	iteration("titan", 20, 2, -1);
	opened(&s, "titan");
	assert_int_equal(s.count, 2);
	assert_non_null(strstr(s.taken, "titan/iteration_100"));
	assert_non_null(strstr(s.rank[0]->path, "iteration_100/rank0"));
	assert_int_equal(s.lefts, 2);
	left(&s, FO_LEFT_EARLIER, "iteration_10", 2, "earlier");
	left(&s, FO_LEFT_EARLIER, "iteration_20", 2, "earlier");
	says(&s, "of several recordings");
	fo_trace_set_fini(&s);
	/* The newest is not whole: one rank is lost, or cut. */
	iteration("titan", 200, 1, -1);
	iteration("titan", 150, 2, 1);
	opened(&s, "titan");
	assert_non_null(strstr(s.taken, "iteration_100"));
	left(&s, FO_LEFT_EARLIER, "iteration_200", 1, "fewer workers");
	left(&s, FO_LEFT_EARLIER, "iteration_150", 2, "rank1_trace.json' ends inside its events");
	fo_trace_set_fini(&s);
	/* None is whole: the newest with everyone, and it is said which rank is cut. */
	iteration("cut", 5, 2, 0);
	iteration("cut", 6, 2, 1);
	opened(&s, "cut");
	assert_non_null(strstr(s.taken, "iteration_6"));
	assert_int_equal(s.count, 2);
	says(&s, "rank 1 (");
	fo_trace_set_fini(&s);
	/* One iteration that the user names is taken as it is. */
	opened(&s, "titan/iteration_20");
	assert_null(s.taken);
	assert_int_equal(s.lefts, 0);
	silent(&s);
	fo_trace_set_fini(&s);
}

/* Times in names instead: each worker's n-th file. */
static void repeats(void **state)
{
	(void)state;
	struct fo_trace_set s;
	trace("tb/w0.1700000000000.pt.trace.json", 0, 2, false, 0);
	trace("tb/w1.1700000000007.pt.trace.json", 1, 2, false, 0);
	opened(&s, "tb");
	assert_null(s.taken);
	assert_int_equal(s.count, 2);
	fo_trace_set_fini(&s);
	trace("tb/w0.1700000100000.pt.trace.json", 0, 2, false, 0);
	trace("tb/w1.1700000100003.pt.trace.json", 1, 2, false, 0);
	trace("tb/w0.1700000200000.pt.trace.json", 0, 2, false, 0);
	opened(&s, "tb");
	assert_int_equal(s.count, 2);
	assert_non_null(strstr(s.rank[0]->path, "w0.1700000100000"));
	assert_non_null(strstr(s.rank[1]->path, "w1.1700000100003"));
	assert_int_equal(s.lefts, 2);
	fo_trace_set_fini(&s);
}

static void lost_and_cut(void **state)
{
	(void)state;
	struct fo_trace_set s;
	char name[64];
	for (int r = 0; r < 8; r++) {
		snprintf(name, sizeof name, "eight/rank%d.json", r);
		if (r != 3)
			trace(name, r, 8, r == 5, 0);
	}
	put("eight/rank3.json", "");
	opened(&s, "eight");
	assert_int_equal(s.count, 7);
	left(&s, FO_LEFT_FOREIGN, "rank3.json", 1, "is empty");
	says(&s, "7 of the job's 8 ranks: there is no trace of rank 3");
	says(&s, "rank 5 (");
	says(&s, "is cut");
	fo_trace_set_fini(&s);
	/* Nobody recorded how many there are: the names have a hole. */
	for (int r = 0; r < 4; r++) {
		snprintf(name, sizeof name, "hole/rank%d.json", r);
		if (r != 2)
			trace(name, -1, 0, false, 0);
	}
	opened(&s, "hole");
	says(&s, "there is no trace of rank 2");
	fo_trace_set_fini(&s);
	/* A sample; one alone. */
	trace("few/rank0.json", 0, 64, false, 0);
	opened(&s, "few");
	says(&s, "rank 0 alone, of the job's 64");
	fo_trace_set_fini(&s);
	trace("few/rank8.json", 8, 64, false, 0);
	opened(&s, "few");
	says(&s, "a sample, 2 of the job's 64 ranks (0, 8)");
	fo_trace_set_fini(&s);
	/* Launches whose kernels are not there. */
	trace("thin/rank0.json", -1, 0, false, 4);
	opened(&s, "thin");
	assert_int_equal(s.rank[0]->defect.unanswered, 4);
	says(&s, "thinned: 4 of 10 launches");
	fo_trace_set_fini(&s);
	trace("whole/rank0.json", -1, 0, false, 0);
	opened(&s, "whole");
	silent(&s);
	fo_trace_set_fini(&s);
}

static const char timeline[] = "{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"forward-compute\", \"name\": \"f\", "
			       "\"pid\": 1, \"tid\": 1, \"ts\": 1, \"dur\": 1}]}";

/* What else lies there. */
static void others(void **state)
{
	(void)state;
	struct fo_trace_set s;
	trace("mixed/rank0.json", 0, 2, false, 0);
	trace("mixed/rank1.json", 1, 2, false, 0);
	put("mixed/pp/config.json", "{\"pp_size\": 1, \"vp_size\": 1, \"num_mbs\": 1}");
	put("mixed/pp/pp_rank_0.json",
	    "{\"1\": {\"total\": 90, \"fwd_start\": [0], \"fwd_end\": [10], \"bwd_start\": [50], \"bwd_end\": [65]}}");
	put("mixed/timeline.json", timeline);
	put("mixed/nccl_trace_rank_0", "\x80\x02}q");
	put("mixed/snapshot.pickle", "x");
	put("mixed/other.pickle", "x");
	put("mixed/nothing.json", "{\"schemaVersion\": 1, \"traceEvents\": []}");
	put("mixed/notes.md", "step 5");
	assert_false(fo_schedule_is(in("mixed")));
	opened(&s, "mixed");
	assert_int_equal(s.count, 2);
	left(&s, FO_LEFT_SCHEDULE, "pp/config.json", 2, "pipeline schedule");
	left(&s, FO_LEFT_FOREIGN, "timeline.json", 1, "pipeline schedule");
	left(&s, FO_LEFT_FOREIGN, "nccl_trace_rank_0", 1, "flight recorder");
	left(&s, FO_LEFT_FOREIGN, "other.pickle", 2, "pickle");
	left(&s, FO_LEFT_NOTHING, "nothing.json", 1, "nothing of a GPU");
	says(&s, "left out:");
	fo_trace_set_fini(&s);
	/* The same without traces is a log of a schedule. */
	put("log/timeline.json", timeline);
	put("log/result.json", "{\"forward-compute\": 3}");
	assert_true(fo_schedule_is(in("log")));
}

/* A run of ours with others below it is one run; a folder of runs is none. */
static void runs(void **state)
{
	(void)state;
	struct fo_trace_set s;
	put("run/timeline.fot", "not read here");
	put("run/ladder/a/timeline.fot", "nor here");
	put("run/ladder/b/timeline.fot", "nor here");
	assert_int_equal(fo_trace_set_open(&s, (const char *[]){ in("run") }, 1), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "run/timeline.fot"));
	assert_int_equal(fo_trace_set_open(&s, (const char *[]){ in("run/ladder") }, 1), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "holds 2 runs"));
	assert_non_null(strstr(fo_err_hint(), "run/ladder/a, "));
}

/* Files of the same bytes are one rank's, whatever their names say. */
static void copies(void **state)
{
	(void)state;
	struct fo_trace_set s;
	char *text, name[64];
	size_t n;
	struct fo_arena a = { 0 };
	trace("copies/rank0.json", -1, 0, false, 0);
	trace("copies/rank8.json", -1, 0, false, 0); /* of the same size, and no copy */
	assert_int_equal(fo_fs_read(&a, in("copies/rank0.json"), 1 << 20, &text, &n), FO_OK);
	for (int r = 1; r < 8; r++) {
		snprintf(name, sizeof name, "copies/rank%d.json", r);
		put(name, text);
	}
	fo_arena_fini(&a);
	opened(&s, "copies");
	assert_int_equal(s.count, 2);
	assert_non_null(strstr(s.rank[0]->path, "rank0.json"));
	assert_non_null(strstr(s.rank[1]->path, "rank8.json"));
	left(&s, FO_LEFT_COPY, "rank1.json", 7, "is a copy of '");
	says(&s, "rank0.json'");
	fo_trace_set_fini(&s);
	assert_int_equal(fo_trace_set_open(&s, (const char *[]){ in("copies/rank0.json"), in("copies/rank1.json") }, 2),
			 FO_EARG);
	assert_non_null(strstr(fo_err_text(), "rank1.json' is a copy of '"));
}

/* Several jobs in one folder: refused, and the hint says which there are. */
static void jobs(void **state)
{
	(void)state;
	struct fo_trace_set s;
	char name[64];
	for (int r = 0; r < 4; r++) {
		snprintf(name, sizeof name, "jobs/a/rank%d.json", r);
		trace(name, r, 4, false, 0);
		snprintf(name, sizeof name, "jobs/b/rank%d.json", r);
		trace(name, r, 4, false, 0);
		snprintf(name, sizeof name, "jobs/c%d.json", r);
		if (r < 2)
			trace(name, r, 2, false, 0);
	}
	assert_int_equal(fo_trace_set_open(&s, (const char *[]){ in("jobs") }, 1), FO_EARG);
	assert_non_null(strstr(fo_err_hint(), "found: 4 of the PyTorch profiler, of 4 ranks ('"));
	assert_non_null(strstr(fo_err_hint(), "jobs/a/rank0.json' and others there); 4 of"));
	assert_non_null(strstr(fo_err_hint(),
			       "jobs/b/rank0.json' and others there); 2 of the PyTorch profiler, of 2 ranks ('"));
	assert_non_null(strstr(fo_err_hint(), "jobs/c0.json' and others there)"));
	assert_null(strstr(fo_err_hint(), "more that"));
	/* Many: the list is short. */
	for (int r = 0; r < 30; r++) {
		snprintf(name, sizeof name, "jobs/many%d.json", r);
		trace(name, 0, 100 + r, false, 0);
	}
	assert_int_equal(fo_trace_set_open(&s, (const char *[]){ in("jobs") }, 1), FO_EARG);
	assert_non_null(strstr(fo_err_hint(), "; and 29 more that do not belong together"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(iterations), cmocka_unit_test(repeats), cmocka_unit_test(lost_and_cut),
		cmocka_unit_test(others),     cmocka_unit_test(runs),    cmocka_unit_test(copies),
		cmocka_unit_test(jobs),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
