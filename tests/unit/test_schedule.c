/* Logs of pipeline schedules: both formats, their mistakes, bubbles, and what steps would take without stragglers. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "diagnose/straggler.h"

#include "base/fs.h"
#include "base/str.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

static char dir[] = "test_schedule.XXXXXX";

static void near(double got, double want, double within)
{
	if (!(fabs(got - want) <= within))
		fail_msg("got %.12g, expected %.12g", got, want);
}
static char *in_dir(const char *name)
{
	static char path[4][256];
	static int turn;
	char *p = path[turn++ % 4];
	snprintf(p, sizeof path[0], "%s/%s", dir, name);
	return p;
}
static void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}
static struct fo_schedule_diagnosis diagnosed(const char *path, struct fo_schedule_log **s)
{
	struct fo_schedule_diagnosis d;
	must(fo_schedule_open(s, path));
	must(fo_schedule_diagnose(&d, *s));
	return d;
}
static void done(struct fo_schedule_diagnosis *d, struct fo_schedule_log *s)
{
	fo_schedule_diagnosis_fini(d);
	fo_schedule_free(s);
}

/* ---- a timeline by hand ---- */

static struct fo_str out;
static const char *comma = "";

static void begin(void)
{
	out.len = 0;
	comma = "[";
}
/* pid: replica; tid: 10 x stage; us */
static void event(const char *cat, int replica, int stage, int step, int chunk, int sequence, double ts, double end)
{
	fo_str_printf(&out,
		      "%s{\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.17g,\"dur\":%.17g,\"ph\":\"X\","
		      "\"args\":{\"step\":%d,"
		      "\"model_chunk\":%d,\"mb_id\":%d,\"seq_id\":%d}}",
		      comma, cat, cat, replica, stage * 10, ts, end - ts, step, chunk, sequence, sequence);
	comma = ",\n";
}
static char *end_timeline(int replicas, int stages, const char *name)
{
	for (int r = 0; r < replicas; r++)
		for (int i = 0; i < stages; i++)
			fo_str_printf(&out,
				      "%s{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{"
				      "\"name\":\"PP rank %d, TP rank 0, compute\"}}",
				      comma, r, i * 10, i);
	fo_str_puts(&out, "]");
	char *path = in_dir(name);
	write_text(path, out.data);
	return path;
}

/* Two stages, two microbatches, the second stage's passes twice as long: F 10 / 20, B 20 / 40, transfers of 1, the
 * second of which waits for the pass before the one that it feeds. Computed by hand. */
static void two_stages(double late)
{
	begin();
	event("forward-compute", 0, 0, 7, 0, 0, 0, 10);
	event("forward-send", 0, 0, 7, -1, 0, 10, 11);
	event("forward-recv", 0, 1, 7, -1, 0, 10, 11);
	event("forward-compute", 0, 1, 7, 0, 0, 11 + late, 31 + late);
	event("forward-compute", 0, 0, 7, 0, 1, 10, 20);
	event("backward-compute", 0, 1, 7, 0, 0, 31 + late, 71 + late);
	event("backward-send", 0, 1, 7, -1, 0, 71 + late, 72 + late);
	event("backward-recv", 0, 0, 7, -1, 0, 71 + late, 72 + late);
	event("backward-compute", 0, 0, 7, 0, 0, 72 + late, 92 + late);
	event("forward-send", 0, 0, 7, -1, 1, 31 + late, 32 + late);
	event("forward-recv", 0, 1, 7, -1, 1, 31 + late, 32 + late);
	event("forward-compute", 0, 1, 7, 0, 1, 71 + late, 91 + late);
	event("backward-compute", 0, 1, 7, 0, 1, 91 + late, 131 + late);
	event("backward-send", 0, 1, 7, -1, 1, 131 + late, 132 + late);
	event("backward-recv", 0, 0, 7, -1, 1, 131 + late, 132 + late);
	event("backward-compute", 0, 0, 7, 0, 1, 132 + late, 152 + late);
	event("optimizer", 0, 0, 7, -1, 0, 152 + late, 153 + late);
	event("optimizer", 0, 1, 7, -1, 0, 132 + late, 133 + late);
}

static void test_by_hand(void **state)
{
	(void)state;
	struct fo_schedule_log *s;
	two_stages(5); /* 5 us between a receive and the pass that it feeds: a launch that came late */
	char *path = end_timeline(1, 2, "hand.json");
	assert_true(fo_schedule_is(path));
	struct fo_schedule_diagnosis d = diagnosed(path, &s);
	assert_int_equal(s->stages, 2);
	assert_int_equal(s->replicas, 1);
	assert_int_equal(s->microbatches, 2);
	assert_int_equal(s->steps, 1);
	assert_int_equal(s->step[0].number, 7);
	assert_int_equal(s->step[0].length_ns, 158000);
	assert_true(s->has_transfers);
	/* Spans from 0 to the stage's last pass: 157 and 136; work 60 and 120. */
	near(d.bubble[0], 1 - 60.0 / 157, 1e-12);
	near(d.bubble[1], 1 - 120.0 / 136, 1e-12);
	near(d.bubble_of_step[1], 1 - 120.0 / 157, 1e-12);
	near(d.ideal_bubble, 0.5, 0);
	near(d.ideal_of_step, 1.0 / 3, 1e-15);
	assert_true(d.whatif.known);
	near(d.whatif.measured_s, 158e-6, 1e-12);
	near(d.whatif.no_delay_s, 153e-6, 1e-12);
	/* Means: F 15, B 30, optimizer and transfers 1. F0 0-15, send 15-16, F0' 16-31, B0' 31-61, send 61-62, B0
	 * 62-92; F1 15-30, its receive waits for F0': 31-32, F1' 61-76, B1' 76-106, send 106-107, B1 107-137, optimizer
	 * 138. */
	near(d.whatif.ideal_s, 138e-6, 1e-12);
	near(d.whatif.slowdown, 153.0 / 138, 1e-9);
	/* Stage 1 alone as recorded: F0 0-15, 16, F0' 16-36, B0' 36-76, F1' 76-96, B1' 96-136, 137, B1 137-167, 168. */
	near(d.whatif.by_stage[1], 168.0 / 138, 1e-9);
	assert_int_equal(d.whatif.worst_stage, 1);
	near(d.whatif.last_stage, (153.0 - 123.0) / (153 - 138), 1e-9);
	/* (without it: F0 0-10, 11, F0' 11-26, B0' 26-56, F1' 56-71, B1' 71-101, 102, B1 102-122, 123) */
	near(d.whatif.unevenness, 0, 1e-9); /* each stage by itself is even */
	assert_int_equal(d.findings, 2);
	assert_string_equal(d.finding[0].id, "pipeline-last-stage");
	near(d.finding[0].ceiling, 153.0 / 138,
	     1e-9); /* twice the slowdown would go: no more than the even step is promised */
	assert_non_null(strstr(d.finding[0].why, "as long as the others', all of the slowdown"));
	assert_true(d.serious);
	struct fo_str json = { 0 };
	fo_schedule_diagnosis_json(&d, &json);
	assert_non_null(strstr(json.data, "\"dominant_stage\": 1"));
	fo_str_fini(&json);
	done(&d, s);
}

/* Steps laid out in 1.1 lengths: what waited before the first drawn event belongs to the step. */
static void test_layout(void **state)
{
	(void)state;
	struct fo_schedule_log *s;
	begin();
	event("forward-compute", 0, 0, 1, 0, 0, 2, 50);
	event("backward-compute", 0, 0, 1, 0, 0, 50, 100);
	event("forward-compute", 0, 0, 2, 0, 0, 113, 150);
	event("backward-compute", 0, 0, 2, 0, 0, 150, 210);
	must(fo_schedule_open(&s, end_timeline(1, 1, "layout.json")));
	assert_int_equal(s->step[0].length_ns, 100000);
	assert_int_equal(s->step[1].length_ns, 100000);
	fo_schedule_free(s);
	begin();
	event("forward-compute", 0, 0, 1, 0, 0, 1002, 1050);
	event("backward-compute", 0, 0, 1, 0, 0, 1050, 1100);
	event("forward-compute", 0, 0, 2, 0, 0, 5000, 5060);
	must(fo_schedule_open(&s, end_timeline(1, 1, "layout.json")));
	assert_int_equal(s->step[0].length_ns, 98000);
	assert_int_equal(s->step[1].length_ns, 60000);
	fo_schedule_free(s);
}

/* Data-parallel replicas meet in the gathering of parameters, the clipping; a member that is late makes all late. */
static void test_replicas(void **state)
{
	(void)state;
	struct fo_schedule_log *s;
	begin();
	for (int r = 0; r < 2; r++) {
		double f = r ? 30 : 10;
		event("params-all-gather", r, 0, 1, 0, 0, 1, 3);
		event("forward-compute", r, 0, 1, 0, 0, 3, 3 + f);
		event("backward-compute", r, 0, 1, 0, 0, 3 + f, 23 + f);
		event("gc", r, 0, 1, -1, 0, 23 + f, 23 + f);
		event("layernorm-grads-all-reduce", r, 0, 1, -1, 0, 23 + f, 24 + f);
		event("grads-reduce-scatter", r, 0, 1, 0, 0, 54, 58);
		event("optimizer-clip-main-grad", r, 0, 1, -1, 0, 58, 59);
		event("optimizer", r, 0, 1, -1, 0, 59, 60);
	}
	struct fo_schedule_diagnosis d = diagnosed(end_timeline(2, 1, "replicas.json"), &s);
	assert_int_equal(s->replicas, 2);
	assert_true(d.whatif.known);
	near(d.whatif.no_delay_s, 59e-6, 1e-12); /* 2 + 30 + 20 + 1 + 4 + 1 + 1 */
	near(d.whatif.ideal_s, 49e-6, 1e-12);    /* passes of 20 */
	near(d.whatif.by_replica[1], 59.0 / 49, 1e-9);
	near(d.whatif.by_replica[0], 1, 1e-9);
	assert_int_equal(d.whatif.worker_replica, 1);
	near(d.whatif.unevenness, 1, 1e-9);
	assert_string_equal(d.finding[0].id, "pipeline-worker");
	near(d.whatif.worst_workers, 1, 1e-9); /* 10 of 10: the other replica is faster than the mean */
	done(&d, s);
}

static void refused(const char *path, const char *why)
{
	struct fo_schedule_log *s;
	fo_status st = fo_schedule_open(&s, path);
	if (st == FO_OK)
		fo_schedule_free(s);
	assert_int_not_equal(st, FO_OK);
	if (!strstr(fo_err_text(), why))
		fail_msg("'%s' does not say '%s'", fo_err_text(), why);
}

/* A packed log whose checksum does not fit, and one that is cut: both are refused, the whole one is read. */
static void test_damaged(void **state)
{
	(void)state;
	struct fo_schedule_log *s;
	two_stages(0);
	end_timeline(1, 2, "plain.json");
	char *path = in_dir("packed.json.gz"), *whole;
	gzFile z = gzopen(path, "wb");
	assert_int_equal(gzwrite(z, out.data, (unsigned)out.len), (int)out.len);
	gzclose(z);
	must(fo_schedule_open(&s, path));
	fo_schedule_free(s);
	struct fo_arena a = { 0 };
	size_t n;
	must(fo_fs_read(&a, path, 1 << 20, &whole, &n));
	whole[n - 6] ^= 1;
	must(fo_fs_write_atomic(path, whole, n));
	refused(path, "is damaged");
	must(fo_fs_write_atomic(path, whole, n / 2));
	refused(path, "packed.json.gz");
	fo_arena_fini(&a);
}

static void test_mistakes(void **state)
{
	(void)state;
	struct fo_schedule_log *s;
	two_stages(0);
	char *path = end_timeline(1, 2, "cut.json");
	out.data[out.len / 2] = 0;
	write_text(path, out.data);
	refused(path, "ends early: its list of events breaks off after byte");
	begin();
	event("forward-compute", 0, 0, 1, 0, 0, 0, 10);
	fo_str_puts(&out, "]");
	path = in_dir("nameless.json");
	write_text(path, out.data);
	refused(path, "which stage is which");
	write_text(path, "{\"cat\":\"forward-compute\"}");
	refused(path, "no list of events");
	/* One transfer has no partner: bubbles are known, the rest is not. */
	two_stages(0);
	event("forward-send", 0, 0, 7, -1, 2, 200, 201);
	struct fo_schedule_diagnosis d = diagnosed(end_timeline(1, 2, "odd.json"), &s);
	assert_false(d.whatif.known);
	assert_non_null(strstr(d.whatif.why, "passes and 3 of 'forward-send'"));
	near(d.bubble[1], 1 - 120.0 / 131, 1e-12);
	done(&d, s);
	/* A number that no time has. */
	begin();
	event("forward-compute", 0, 0, 1, 0, 0, 0, 10);
	event("forward-compute", 0, 0, 1, 0, 1, 1e300, 2e300);
	must(fo_schedule_open(&s, end_timeline(1, 1, "far.json")));
	assert_int_equal(s->left_out, 1);
	fo_schedule_free(s);
	assert_false(fo_schedule_is(in_dir("nothing.json")));
	write_text(in_dir("other.json"), "{\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"kernel\"}]}");
	assert_false(fo_schedule_is(in_dir("other.json")));
}

static void test_folder(void **state)
{
	(void)state;
	struct fo_schedule_log *s;
	char *folder = in_dir("job"), path[300];
	must(fo_fs_mkdirs(folder));
	two_stages(0);
	end_timeline(1, 2, "job/timeline-A.json");
	end_timeline(1, 2, "job/ideal-timeline-A.json");
	snprintf(path, sizeof path, "%s/result-A.json", folder);
	write_text(path, "{\"slowdown\": 9}");
	assert_true(fo_schedule_is(folder));
	must(fo_schedule_open(&s, folder));
	assert_non_null(strstr(s->also, "ideal-timeline-A.json"));
	fo_schedule_free(s);
	end_timeline(1, 2, "job/timeline-B.json");
	refused(folder, "two timelines");
}

/* ---- Primus ---- */

static void primus(const char *folder, const char *config, const char *const *stage, int n)
{
	char path[300];
	must(fo_fs_mkdirs(folder));
	snprintf(path, sizeof path, "%s/config.json", folder);
	write_text(path, config);
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof path, "%s/pp_rank_%d.json", folder, i);
		write_text(path, stage[i]);
	}
}

static void test_primus(void **state)
{
	(void)state;
	struct fo_schedule_log *s;
	char *folder = in_dir("primus"), path[300];
	const char *stage[2] = {
		"{\"1\":{\"total\":90,\"memory\":1,\"fwd_start\":[0,10],\"fwd_end\":[10,20],\"bwd_start\":[50,75],"
		"\"bwd_end\":[65,90]},"
		" \"2\":{\"total\":90,\"memory\":1,\"fwd_start\":[0,10],\"fwd_end\":[10,20],\"bwd_start\":[50,75],"
		"\"bwd_end\":[65,90]}}",
		"{\"2\":{\"total\":80,\"memory\":1,\"fwd_start\":[10,45],\"fwd_end\":[25,60],\"bwd_start\":[25,60],"
		"\"bwd_end\":[45,75]},"
		" \"1\":{\"total\":80,\"memory\":1,\"fwd_start\":[10,45],\"fwd_end\":[25,60],\"bwd_start\":[25,60],"
		"\"bwd_end\":[45,75]}}",
	};
	primus(folder, "{\"pp_size\": 2, \"vp_size\": 1, \"num_mbs\": 2}", stage, 2);
	snprintf(path, sizeof path, "%s/pp_rank_1.json", folder);
	assert_true(fo_schedule_is(folder));
	assert_true(fo_schedule_is(path));
	struct fo_schedule_diagnosis d = diagnosed(folder, &s);
	assert_int_equal(s->steps, 2);
	assert_int_equal(s->microbatches, 2);
	assert_false(s->has_transfers);
	near(d.bubble[0], 1 - 50.0 / 90, 1e-12);
	near(d.bubble[1], 1 - 65.0 / 80, 1e-12);
	near(d.bubble_of_step[1], 1 - 65.0 / 90, 1e-12);
	/* F0 0-10, F0' 10-25, B0' 25-45, B0 45-60; F1 10-20, F1' 45-60, B1' 60-75, B1 75-90. */
	near(d.whatif.no_delay_s, 90e-3, 1e-12);
	/* F 12.5, B 16.25: F0' 12.5-25, B0' 25-41.25, F1' 41.25-53.75, B1' 53.75-70, B1 70-86.25. */
	near(d.whatif.ideal_s, 86.25e-3, 1e-12);
	done(&d, s);
	stage[1] = "{\"1\":{\"total\":80,\"fwd_start\":[10],\"fwd_end\":[]}}";
	primus(folder, "{\"pp_size\": 2}", stage, 2);
	refused(folder, "1 of 'fwd_start' and 0 of 'fwd_end'");
	primus(folder, "{\"pp_size\": 3}", stage, 2);
	refused(folder, "'fwd_end'");
	primus(folder, "{\"pp_size\": -3}", stage, 2);
	refused(folder, "pp_size");
	primus(folder, "{\"pp_size\": 2", stage, 2);
	refused(folder, "no JSON");
}

/* Two chunks: the interleaved order is known without being recorded. */
static void test_interleaved(void **state)
{
	(void)state;
	struct fo_schedule_log *s;
	const char *stage[2] = {
		"{\"1\":{\"total\":100,\"fwd_start\":[0,1,2,3],\"fwd_end\":[1,2,3,4],\"bwd_start\":[10,12,14,16],\"bwd_"
		"end\":[11,13,15,17]}}",
		"{\"1\":{\"total\":100,\"fwd_start\":[1,2,3,4],\"fwd_end\":[2,3,4,5],\"bwd_start\":[9,11,13,15],\"bwd_"
		"end\":[10,12,14,16]}}",
	};
	char *folder = in_dir("interleaved");
	primus(folder, "{\"pp_size\": 2, \"vpp_size\": 2, \"micro_batches\": 2}", stage, 2);
	must(fo_schedule_open(&s, folder));
	assert_int_equal(s->chunks, 2);
	assert_int_equal(s->microbatches, 2);
	static const int chunk[8] = { 0, 0, 1, 1, 1, 1, 0, 0 }, microbatch[8] = { 0, 1, 0, 1, 0, 1, 0, 1 };
	for (int i = 0; i < 8; i++) {
		assert_int_equal(s->op[i].chunk, chunk[i]);
		assert_int_equal(s->op[i].microbatch, microbatch[i]);
	}
	fo_schedule_free(s);
}

/* ---- published figures ---- */

static void test_published(void **state)
{
	(void)state;
	const char *traces = getenv("FLATOUT_TRACES");
	if (!traces)
		skip();
	struct fo_schedule_log *s;
	char path[1024];
	snprintf(path, sizeof path, "%s/bytedance_ST", traces);
	struct fo_schedule_diagnosis d = diagnosed(path, &s);
	const struct fo_whatif *w = &d.whatif;
	assert_true(w->known);
	/* Their durations are 32-bit floats, ours whole nanoseconds: seven digits agree. */
	near(w->slowdown, 1.1787021836556841, 2e-7);
	near(w->launch_slowdown, 1.01921617557204, 5e-7);
	near(w->no_delay_s, 2.172696813310722, 5e-7);
	near(w->ideal_s, 1.843295824372035, 5e-7);
	near(w->worst_workers, 0.031404269124045224, 5e-6);
	near(w->last_stage, 1.2193563788811714, 5e-6);
	static const double by_stage[4] = { 0.9980450635272368, 0.9830562530894704, 0.9824931309511952,
					    1.2322559543157936 };
	for (int i = 0; i < 4; i++)
		near(w->by_stage[i], by_stage[i], 5e-7);
	near(w->by_replica[0], 1.1730828198099532, 5e-7);
	near(w->by_replica[1], 1.1778704237064905, 5e-7);
	near(w->by_kind[FO_SCHED_FORWARD], 1.0874989663025318, 5e-7);
	near(w->by_kind[FO_SCHED_BACKWARD], 1.074156472437866, 5e-7);
	near(w->by_kind[FO_SCHED_GRADS_EMBEDDING], 1.0095504024370303, 5e-7);
	near(w->by_kind[FO_SCHED_CLIP], 1.0023506224771044, 5e-7);
	assert_int_equal(w->worst_stage, 3);
	assert_string_equal(d.finding[0].id, "pipeline-last-stage");
	done(&d, s);
	static const struct {
		const char *folder;
		double first, last;
	} primus_log[] = { { "pp8", 0.364, 0.173 }, { "pp8_vpp2", 0.325, 0.086 } };
	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s/primus_pp_vis/pp_data_example/gpu8_layer64_gbs16/%s", traces,
			 primus_log[i].folder);
		d = diagnosed(path, &s);
		assert_int_equal(s->step[19].number, 20);
		near(d.step_bubble[19 * 8], primus_log[i].first, 5e-4);
		near(d.step_bubble[19 * 8 + 7], primus_log[i].last, 5e-4);
		assert_true(d.whatif.known);
		near(d.whatif.launch_slowdown, 1, 0.02); /* the dependencies explain the step */
		done(&d, s);
	}
}

int main(void)
{
	if (!mkdtemp(dir))
		return 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_hand), cmocka_unit_test(test_layout),      cmocka_unit_test(test_replicas),
		cmocka_unit_test(test_damaged), cmocka_unit_test(test_mistakes),    cmocka_unit_test(test_folder),
		cmocka_unit_test(test_primus),  cmocka_unit_test(test_interleaved), cmocka_unit_test(test_published),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fo_str_fini(&out);
	if (fo_fs_remove_tree(dir) != FO_OK)
		return 1;
	return failed;
}
