/* What is written for other tools, read back by readers that share nothing with the writers. (The tools' own readers:
 * tests/cli/readers.sh.) */
#include "record/prometheus.h"
#include "record/tensorboard.h"
#include "record/trace_events.h"
#include "base/fs.h"
#include "support/must.h"
#include "support/tiny_model.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "test_publish.XXXXXX";

static const char *at(const char *name)
{
	static char path[128];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

/* RFC 3720, appendix B.4; and the usual check value of "123456789". */
static void test_crc(void **state)
{
	(void)state;
	unsigned char zero[32] = { 0 }, one[32], up[32], down[32];
	for (int i = 0; i < 32; i++)
		one[i] = 0xff, up[i] = (unsigned char)i, down[i] = (unsigned char)(31 - i);
	assert_int_equal(fo_crc32c(0, zero, 32), 0x8a9136aa);
	assert_int_equal(fo_crc32c(0, one, 32), 0x62a8ab43);
	assert_int_equal(fo_crc32c(0, up, 32), 0x46dd794e);
	assert_int_equal(fo_crc32c(0, down, 32), 0x113fdb5c);
	assert_int_equal(fo_crc32c(0, "123456789", 9), 0xe3069283);
	assert_int_equal(fo_crc32c(fo_crc32c(0, "1234", 4), "56789", 5), 0xe3069283);
}

/* ---- event files: a reader of its own ---- */

/* The same checksum by long division of the message, most significant bit first: nothing in common with the table-less
 * loop. */
static uint32_t crc_again(const unsigned char *p, size_t n)
{
	uint32_t r = 0;
	for (size_t i = 0; i < 8 * (n + 4); i++) {
		size_t byte = i / 8;
		unsigned bit = byte < n ? p[byte] >> (i % 8) & 1 : 0;
		bit ^= byte < 4; /* begins with all ones */
		uint32_t top = r >> 31;
		r = r << 1 | bit;
		r ^= top ? 0x1edc6f41u : 0;
	}
	uint32_t turned = 0;
	for (int k = 0; k < 32; k++)
		turned |= (r >> k & 1) << (31 - k);
	return ~turned;
}

struct seen {
	int records, starts, versions, scalars;
	int64_t start_step[4];
	struct {
		int64_t step;
		char tag[40];
		float value;
	} scalar[64];
	double last_time;
};

static uint64_t varint(const unsigned char **p)
{
	uint64_t v = 0;
	int shift = 0;
	do
		v |= (uint64_t)(**p & 0x7f) << shift, shift += 7;
	while (*(*p)++ & 0x80);
	return v;
}

static void read_summary(const unsigned char *p, const unsigned char *end, int64_t step, struct seen *s)
{
	while (p < end) {
		assert_int_equal(varint(&p), 1 << 3 | 2);
		uint64_t n = varint(&p);
		const unsigned char *stop = p + n;
		while (p < stop) {
			uint64_t key = varint(&p);
			if (key == (1 << 3 | 2)) {
				uint64_t len = varint(&p);
				snprintf(s->scalar[s->scalars].tag, sizeof s->scalar[0].tag, "%.*s", (int)len,
					 (const char *)p);
				p += len;
			} else {
				assert_int_equal(key, 2 << 3 | 5);
				memcpy(&s->scalar[s->scalars].value, p, 4);
				p += 4;
			}
		}
		s->scalar[s->scalars++].step = step;
	}
}

static void read_event(const unsigned char *p, size_t n, struct seen *s)
{
	const unsigned char *end = p + n;
	int64_t step = -1;
	while (p < end) {
		uint64_t key = varint(&p), len;
		switch (key >> 3) {
		case 1:
			memcpy(&s->last_time, p, 8);
			p += 8;
			break;
		case 2: step = (int64_t)varint(&p); break;
		default:
			len = varint(&p);
			s->versions += key >> 3 == 3 && len == 13 && !memcmp(p, "brain.Event:2", 13);
			if (key >> 3 == 7 && len == 2 && p[0] == 8 && p[1] == 1)
				s->start_step[s->starts++] = step;
			if (key >> 3 == 5)
				read_summary(p, p + len, step, s);
			p += len;
		}
	}
	assert_ptr_equal(p, end);
}

static void read_events(const char *path, struct seen *s)
{
	struct fo_map m;
	must(fo_map_open(&m, path));
	for (size_t i = 0; i < m.len;) {
		uint64_t n;
		uint32_t crc[2], want[2];
		memcpy(&n, m.data + i, 8);
		memcpy(&crc[0], m.data + i + 8, 4);
		assert_true(n < m.len - i);
		memcpy(&crc[1], m.data + i + 12 + n, 4);
		want[0] = crc_again(m.data + i, 8);
		want[1] = crc_again(m.data + i + 12, n);
		for (int k = 0; k < 2; k++) {
			uint32_t v = crc[k] - 0xa282ead8u;
			assert_int_equal((v << 15 | v >> 17), want[k]);
		}
		read_event(m.data + i + 12, n, s);
		s->records++;
		i += n + 16;
	}
	fo_map_close(&m);
}

static void test_tensorboard(void **state)
{
	(void)state;
	struct fo_tensorboard t;
	struct seen s = { 0 };
	double value[FO_STEP_FIELD_COUNT];
	char first[256], second[256];
	for (int f = 0; f < FO_STEP_FIELD_COUNT; f++)
		value[f] = f + 0.5;
	value[FO_STEP_METERED] = 0;
	value[FO_STEP_MFU] = NAN;
	value[FO_STEP_TIME] = 1795035054.5;
	must(fo_tensorboard_open(&t, at("board/below"), 300, 1795035050));
	must(fo_tensorboard_step(&t, 300, value));
	must(fo_tensorboard_eval(&t, 300, 3.25, 1795035055));
	must(fo_tensorboard_eval(&t, 300, NAN, 1795035055));
	must(fo_tensorboard_restart(&t, 299, 1795035056));
	snprintf(first, sizeof first, "%s", t.path);
	fo_tensorboard_close(&t);
	read_events(first, &s);
	assert_int_equal(s.records, 5);
	assert_int_equal(s.versions, 1);
	assert_int_equal(s.starts, 2);
	assert_int_equal(s.start_step[0], 300);
	assert_int_equal(s.start_step[1], 299);
	assert_int_equal(s.scalars, 11);
	assert_string_equal(s.scalar[0].tag, "loss/train");
	assert_true(s.scalar[0].value == 0.5f && s.scalar[0].step == 300);
	for (int i = 0; i < s.scalars; i++)
		assert_string_not_equal(s.scalar[i].tag, "mfu/mfu");
	assert_string_equal(s.scalar[10].tag, "loss/held_out");
	/* A second process in the same second: its file sorts behind the first. */
	must(fo_tensorboard_open(&t, at("board/below"), 301, 1795035050));
	snprintf(second, sizeof second, "%s", t.path);
	fo_tensorboard_close(&t);
	assert_true(strcmp(second, first) > 0);
	assert_int_equal(fo_tensorboard_open(&t, "/dev/null/x", 1, 0), FO_EIO);
	/* The time a metered step took is no step time. */
	value[FO_STEP_METERED] = 1;
	must(fo_tensorboard_open(&t, at("metered"), 1, 1));
	must(fo_tensorboard_step(&t, 1, value));
	snprintf(first, sizeof first, "%s", t.path);
	fo_tensorboard_close(&t);
	s = (struct seen){ 0 };
	read_events(first, &s);
	for (int i = 0; i < s.scalars; i++)
		assert_string_not_equal(s.scalar[i].tag, "speed/step_seconds");
}

/* ---- Prometheus ---- */

static void test_prometheus(void **state)
{
	(void)state;
	struct fo_prometheus p;
	struct fo_str s = { 0 };
	double value[FO_STEP_FIELD_COUNT];
	fo_prometheus_init(&p);
	p.run = "a \"run\"\\of\nmine\xff";
	for (int i = 1; i <= 100; i++) {
		for (int f = 0; f < FO_STEP_FIELD_COUNT; f++)
			value[f] = i;
		value[FO_STEP_METERED] = i == 100;
		value[FO_STEP_MFU] = 0.25;
		value[FO_STEP_HFU] = NAN;
		fo_prometheus_step(&p, i, value);
	}
	fo_prometheus_text(&p, &s);
	assert_non_null(strstr(
		s.data,
		"# TYPE flatout_step gauge\nflatout_step{run=\"a \\\"run\\\"\\\\of\\nmine\xef\xbf\xbd\"} 100\n"));
	/* The median of steps 37 to 100 without the metered one. */
	assert_non_null(
		strstr(s.data, "\nflatout_median_step_seconds{run=\"a \\\"run\\\"\\\\of\\nmine\xef\xbf\xbd\"} 68\n"));
	assert_non_null(strstr(s.data, "rule=\"mfu\"} 0.25\n"));
	assert_null(strstr(s.data, "rule=\"hfu\""));
	assert_null(strstr(s.data, "flatout_checkpoint"));
	assert_null(strstr(s.data, "nan"));
	/* Every line is a comment or a sample of a metric whose HELP and TYPE came before. */
	char metric[64] = "";
	for (char *line = strtok(s.data, "\n"); line; line = strtok(NULL, "\n")) {
		char kind[8], name[64];
		if (sscanf(line, "# %7s %63[a-z_] ", kind, name) == 2) {
			assert_true(strcmp(kind, "HELP") == 0 || strcmp(metric, name) == 0);
			snprintf(metric, sizeof metric, "%s", name);
		} else {
			assert_int_equal(sscanf(line, "%63[a-z_]{run=", name), 1);
			assert_string_equal(name, metric);
		}
	}
	fo_str_fini(&s);
}

/* A reader sees one whole file or another, never half of one. */
static void test_atomic(void **state)
{
	(void)state;
	struct fo_prometheus small, large;
	struct fo_str text[2] = { 0 };
	char path[128], name[3000];
	snprintf(path, sizeof path, "%s", at("x.prom"));
	memset(name, 'x', sizeof name - 1);
	name[sizeof name - 1] = 0;
	fo_prometheus_init(&small);
	fo_prometheus_init(&large);
	large.run = name;
	fo_prometheus_text(&small, &text[0]);
	fo_prometheus_text(&large, &text[1]);
	must(fo_prometheus_write(&small, path, true));
	pid_t child = fork();
	if (!child) {
		for (int i = 0; i < 2000; i++)
			if (fo_prometheus_write(i % 2 ? &small : &large, path, true) != FO_OK)
				_exit(1);
		_exit(0);
	}
	int seen[2] = { 0 }, status = 0;
	while (!waitpid(child, &status, WNOHANG)) {
		struct fo_arena a = { 0 };
		char *got;
		size_t len;
		must(fo_fs_read(&a, path, 1 << 20, &got, &len));
		int which = len == text[1].len;
		assert_int_equal(len, text[which].len);
		assert_memory_equal(got, text[which].data, len);
		seen[which]++;
		fo_arena_fini(&a);
	}
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_true(seen[0] > 0 && seen[1] > 0);
	fo_str_fini(&text[0]);
	fo_str_fini(&text[1]);
	assert_int_equal(fo_prometheus_write(&small, at("missing/x.prom"), true), FO_EIO);
}

/* ---- trace events ---- */

static fo_status gather(void *ctx, const void *bytes, size_t n)
{
	fo_str_append(ctx, bytes, n);
	return FO_OK;
}

static fo_status refuse(void *ctx, const void *bytes, size_t n)
{
	(void)ctx, (void)bytes, (void)n;
	return fo_fail(FO_EIO, "full");
}

static double number(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	assert_true(json_is_number(v));
	return json_number_value(v);
}

/* What the events of a written trace hold, by process. */
struct trace_counts {
	int ops[3], waits[3], counters[3], processes, step_slices;
	double end[3][128], flop; /* of the last slice of each thread; summed over operations of step 5 */
};

static void count_event(struct trace_counts *c, const json_t *e)
{
	const char *ph = json_string_value(json_object_get(e, "ph")),
		   *cat = json_string_value(json_object_get(e, "cat"));
	const json_t *args = json_object_get(e, "args");
	int pid = (int)number(e, "pid"), tid = (int)number(e, "tid");
	assert_in_range(pid, 1, 2);
	c->processes += !strcmp(json_string_value(json_object_get(e, "name")), "process_name");
	c->counters[pid] += *ph == 'C';
	if (*ph != 'X')
		return;
	/* Slices of a thread follow each other. */
	assert_true(number(e, "ts") >= c->end[pid][tid] - 1e-6);
	c->end[pid][tid] = number(e, "ts") + number(e, "dur");
	if (!strcmp(cat, "step")) {
		c->step_slices++;
		return;
	}
	bool wait = !strcmp(cat, "wait");
	assert_true(fabs(number(e, "dur") - (wait ? 0.013 : 0.059)) < 1e-9);
	int id = (int)number(args, "instance"), step = (int)number(args, "step");
	double begin = (double)(1000000 * (step - 5) + 100 * id + (wait ? 100 : 20) - 20) / 1000;
	assert_true(fabs(number(e, "ts") - begin) < 1e-6);
	c->ops[pid] += !wait;
	c->waits[pid] += wait;
	if (pid == 1 && step == 5 && json_object_get(args, "model_flop"))
		c->flop += number(args, "model_flop");
}

static void test_trace(void **state)
{
	(void)state;
	struct fo_model m = tiny_model();
	struct fo_lowering run = {
		.seq = 8, .rows = 2, .micro_batches = 2, .precision = FO_PRECISION_BF16, .mode = FO_MODE_TRAIN
	};
	struct fo_program p;
	struct fo_unrolled u;
	struct fo_timeline t;
	must(fo_program_lower(&p, &m, &run));
	must(fo_unroll(&p, &u));
	must(fo_timeline_init(&t, &p, &u, 2));
	/* Long after the clock began, so that a double of microseconds would lose nanoseconds. */
	const int64_t base = 123456789012345678;
	for (int step = 4; step < 6; step++)
		for (int i = 0; i < u.n; i++) {
			int64_t b = base + 1000000 * step + 100 * i;
			int lane = fo_instance_op(&p, &u, i)->lane;
			if (lane == FO_LANE_COMPUTE && i % 7 == 3)
				fo_timeline_record(&t, lane, step, ~(i - 1), b, b + 13);
			fo_timeline_record(&t, lane, step, i, b + 20, b + 79);
		}
	fo_timeline_record(&t, FO_LANE_COMPUTE, 5, u.n + 5, base + 7000000,
			   base + 7000001); /* of no instance: left out */
	double mfu[] = { 0.5 };
	int64_t number_of[] = { 6 };
	struct fo_record_steps steps = { .n = 1, .step = number_of, .value = { [FO_STEP_MFU] = mfu } };
	struct fo_trace_source source[2] = { { "measured: \"x\"", &p, &u, &t, &steps, false },
					     { "predicted", &p, &u, &t, NULL, false } };
	struct fo_str out = { 0 };
	must(fo_trace_events_write(source, 2, &(struct fo_trace_sink){ &out, gather }));
	json_error_t why;
	json_t *root = json_loadb(out.data, out.len, JSON_DECODE_INT_AS_REAL, &why), *e;
	assert_non_null(root);
	size_t k;
	struct trace_counts c = { 0 };
	json_array_foreach(json_object_get(root, "traceEvents"), k, e) { count_event(&c, e); }
	assert_int_equal(c.processes, 2);
	assert_int_equal(c.step_slices, 4);
	for (int pid = 1; pid <= 2; pid++) {
		assert_int_equal(c.ops[pid], 2 * u.n);
		assert_true(c.waits[pid] > 0);
	}
	assert_int_equal(c.counters[1], 1);
	assert_int_equal(c.counters[2], 0);
	assert_true(fabs(c.flop / fo_program_cost(&p, -1).model - 1) < 1e-12);
	json_decref(root);
	fo_str_fini(&out);
	assert_int_equal(fo_trace_events_write(source, 1, &(struct fo_trace_sink){ NULL, refuse }), FO_EIO);
	fo_timeline_fini(&t);
	fo_unrolled_fini(&u);
	fo_program_fini(&p);
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
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crc),    cmocka_unit_test(test_tensorboard), cmocka_unit_test(test_prometheus),
		cmocka_unit_test(test_atomic), cmocka_unit_test(test_trace),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
