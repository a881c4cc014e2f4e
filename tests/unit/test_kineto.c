/* The PyTorch profiler's traces: the tokenizer against jansson and against itself in every instruction set, and a small
 * trace for each thing that profilers do wrong. */
#include "base/fs.h"
#include "base/str.h"
#include "trace/scan.h"
#include "trace/trace_int.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

#include "support/scratch.h"

static char path[96];

/* ---- reading what a test wrote ---- */

static fo_status read_bytes(struct fo_trace **t, const char *name, const void *bytes, size_t n)
{
	snprintf(path, sizeof path, "%s/%s", fo_scratch, name);
	FILE *f = fopen(path, "we");
	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
	fo_err_clear();
	return fo_trace_open(t, path);
}

static struct fo_trace *read_text(const char *json)
{
	struct fo_trace *t;
	if (read_bytes(&t, "t.json", json, strlen(json)) != FO_OK)
		fail_msg("%s (%s)", fo_err_text(), json);
	return t;
}

/* Reads a trace of these events; NULL ends the list. */
static struct fo_trace *read_list(const char *const *event)
{
	struct fo_str json = { 0 };
	fo_str_puts(&json, "{\"schemaVersion\": 1, \"traceEvents\": [");
	for (size_t i = 0; event[i]; i++)
		fo_str_printf(&json, "%s%s", i ? "," : "", event[i]);
	fo_str_puts(&json, "]}");
	struct fo_trace *t = read_text(json.data);
	fo_str_fini(&json);
	return t;
}
#define read_events(...) read_list((const char *const[]){ __VA_ARGS__, NULL })

#define EVENT(cat, name, pid, tid, ts, dur, args)                                                       \
	"{\"ph\": \"X\", \"cat\": \"" cat "\", \"name\": \"" name "\", \"pid\": " pid ", \"tid\": " tid \
	", \"ts\": " ts ", \"dur\": " dur ", \"args\": {" args "}}"
#define KERNEL(name, ts, dur, args) EVENT("kernel", name, "0", "7", ts, dur, "\"device\": 0, \"stream\": 7" args)
#define HOST(cat, name, ts, dur, args) EVENT(cat, name, "10", "11", ts, dur, args)

/* ---- numbers ---- */

static void exact_times(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		bool ok;
		int64_t ns;
	} rows[] = {
		{ "0", true, 0 },
		{ "1623142623460111", true, 1623142623460111000 },
		{ "4458676522690.655", true, 4458676522690655 },  /* a double has 0.000977 us here, and is off by one */
		{ "2241346127369.9589", true, 2241346127369958 }, /* cut, not rounded */
		{ "0.001", true, 1 },
		{ "0.0009", true, 0 },
		{ "5.", true, 5000 },
		{ ".25", true, 250 },
		{ "-1.2345", true, -1234 },
		{ "1.5e3", true, 1500000 },
		{ "1.6231426234601112E+15", true, 1623142623460111200 },
		{ "123456789e-5", true, 1234567 },
		{ "1e-30", true, 0 },
		{ "0e99999999999", true, 0 },
		{ "1e30", true, INT64_MAX },
		{ "-1e30", true, -INT64_MAX },
		{ "9223372036854775.807", true, INT64_MAX },
		{ "9223372036854775.808", true, INT64_MAX },
		{ "7400000000000000", true, 7400000000000000000 },
		{ "00012", true, 12000 },
		{ "", false, 0 },
		{ ".", false, 0 },
		{ "NaN", false, 0 },
		{ "N/A", false, 0 },
		{ "Infinity", false, 0 },
		{ "1.2.3", false, 0 },
		{ "12x", false, 0 },
		{ "1e", false, 0 },
		{ "0x10", false, 0 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		for (int quoted = 0; quoted < 2; quoted++) {
			struct fo_scan_text v = { rows[i].text, strlen(rows[i].text), quoted ? '"' : '1', false };
			int64_t ns = 0;
			bool saturated, ok = fo_scan_thousandths(&v, &ns, &saturated);
			if (ok != rows[i].ok || (ok && ns != rows[i].ns))
				fail_msg("'%s' is %d, %lld", rows[i].text, ok, (long long)ns);
		}
}

/* ---- the tokenizer ---- */

static uint64_t seed = 88172645463325252u;
static unsigned rnd(unsigned n)
{
	seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
	return (unsigned)(seed % n);
}

static json_t *random_value(int depth)
{
	char text[200];
	size_t n = 0, want = rnd(8) ? rnd(20) : rnd(190);
	switch (rnd(depth ? 6 : 4)) {
	case 0: return json_integer((json_int_t)rnd(1000000) - 1000);
	case 1: return json_real(rnd(1000000) / 8.0);
	case 2:
		while (n < want) {
			static const char *const piece[] = { "a", "B", "\"", "\\", "\n", "\x01",     "{",
							     "}", "[", "]",  ",",  ":",  "\xc3\xa9", "\xf0\x9f\x94\xa5",
							     " " };
			const char *p = piece[rnd(15)];
			memcpy(text + n, p, strlen(p));
			n += strlen(p);
		}
		return json_stringn(text, n);
	case 3: return rnd(2) ? json_null() : json_boolean(rnd(2));
	default:;
		json_t *v = rnd(2) ? json_array() : json_object();
		for (unsigned i = rnd(6); i-- > 0;) {
			if (json_is_array(v))
				json_array_append_new(v, random_value(depth - 1));
			else
				json_object_set_new(
					v,
					(const char *[]){ "a", "Input Dims", "key with \" and \\", "{", "}]" }[rnd(5)],
					random_value(depth - 1));
		}
		return v;
	}
}

/* What the tokenizer gives for a value is what jansson gives. */
static void same_value(const struct fo_scan_text *v, json_t *want)
{
	char text[512];
	if (!want) {
		assert_int_equal(v->first, 0);
	} else if (json_is_string(want)) {
		assert_int_equal(v->first, '"');
		assert_true(v->n < sizeof text);
		size_t n = fo_scan_unescape(v, text);
		assert_int_equal(n, json_string_length(want));
		assert_memory_equal(text, json_string_value(want), n);
	} else {
		json_t *got = json_loadb(v->p, v->n, JSON_DECODE_ANY, NULL);
		assert_non_null(got);
		assert_true(json_equal(got, want));
		json_decref(got);
	}
}

static const char *const isas[] = { "portable", "sse2", "avx2" };

static void as_jansson_reads(void **state)
{
	(void)state;
	static const char *const key[] = { "ph",  "cat", "name", "pid", "tid",   "ts",
					   "dur", "id",  "args", "bp",  "other", "s" };
	for (int round = 0; round < 3000; round++) {
		json_t *o = json_object();
		for (int k = 0; k < 12; k++) {
			if (!strcmp(key[k], "ph"))
				json_object_set_new(o, key[k], json_string("X")); /* others end an event early */
			else if (rnd(4))
				json_object_set_new(o, key[k], random_value(3));
		}
		size_t flags[] = { 0, JSON_COMPACT, JSON_INDENT(2), JSON_ENSURE_ASCII,
				   JSON_INDENT(4) | JSON_ENSURE_ASCII };
		char *text = json_dumps(o, flags[rnd(5)] | JSON_REAL_PRECISION(17));
		assert_non_null(text);
		size_t n = strlen(text);
		char *padded = calloc(1, n + 2 + FO_SCAN_PAD);
		memcpy(padded, text, n);
		padded[n] = ','; /* what follows an event */
		for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
			if (!fo_scan_choose(isas[i]))
				continue;
			struct fo_scan_event e;
			const char *after;
			assert_int_equal(fo_scan_event(padded, padded + n + 1, false, &e, &after), FO_SCAN_OK);
			assert_ptr_equal(after, padded + n);
			assert_false(e.mended);
			struct fo_scan_text *slot[] = { &e.ph, &e.cat, &e.name, &e.pid, &e.tid,
							&e.ts, &e.dur, &e.id,   &e.args };
			for (int k = 0; k < 9; k++)
				same_value(slot[k], json_object_get(o, key[k]));
			/* At any earlier end more is asked for. */
			size_t cut = rnd((unsigned)n);
			char kept[FO_SCAN_PAD + 1];
			size_t room = n + 1 - cut < FO_SCAN_PAD ? n + 1 - cut : FO_SCAN_PAD;
			memcpy(kept, padded + cut, room);
			memset(padded + cut, 0, room);
			if (cut)
				assert_int_equal(fo_scan_event(padded, padded + cut, false, &e, &after), FO_SCAN_MORE);
			memcpy(padded + cut, kept, room);
			struct fo_scan_member m[32];
			int members = fo_scan_members(padded, padded + n, m, 32);
			assert_int_equal(members, json_object_size(o));
		}
		free(padded);
		free(text);
		json_decref(o);
	}
	assert_true(fo_scan_choose(NULL));
	assert_false(fo_scan_choose("vax"));
}

/* Damaged texts: whatever comes of them, it is the same in every instruction set, and nothing is read outside. */
static void same_in_every_isa(void **state)
{
	(void)state;
	static const char base[] = KERNEL(
		"void a<b, \\\"c\\\\\\\">::d(e)", "123.456", "7",
		", \"grid\": [1, 2, 3], \"x\": \"\\\\\"") ",\n  {\"ph\": \"X\", \"name\": "
							  "\"two\", \"ts\": 1},\n" HOST("python_function",
											"nn.Module: Linear_0", "1", "2",
											"") "]}";
	for (int round = 0; round < 20000; round++) {
		char text[sizeof base + FO_SCAN_PAD] = "";
		memcpy(text, base, sizeof base - 1);
		size_t n = sizeof base - 1;
		for (unsigned i = rnd(5); i-- > 0;)
			text[1 + rnd((unsigned)n - 1)] = "\"\\{}[],: \n\x01x1"[rnd(13)];
		if (!rnd(4)) {
			size_t cut = 1 + rnd((unsigned)n - 1);
			memset(text + cut, 0, n - cut);
			n = cut;
		}
		enum fo_scan first = FO_SCAN_OK;
		struct fo_scan_event one;
		const char *first_after = NULL;
		bool have = false, last = rnd(2);
		for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
			struct fo_scan_event e;
			const char *after = NULL;
			if (!fo_scan_choose(isas[i]))
				continue;
			enum fo_scan got = fo_scan_event(text, text + n, last, &e, &after);
			if (!have) {
				first = got, first_after = after, one = e, have = true;
				continue;
			}
			assert_int_equal(got, first);
			if (got != FO_SCAN_OK)
				continue;
			assert_ptr_equal(after, first_after);
			assert_int_equal(e.skipped, one.skipped);
			assert_int_equal(e.mended, one.mended);
			if (!e.skipped)
				assert_memory_equal(&e.name, &one.name, offsetof(struct fo_scan_text, first));
		}
	}
	fo_scan_choose(NULL);
}

/* ---- layouts ---- */

static void one_trace_in_any_dress(void **state)
{
	(void)state;
	static const char *const dress[] = {
		"[" KERNEL("k", "100.5", "7.25", ", \"correlation\": 5") "]",
		"\xef\xbb\xbf{\"traceEvents\":[" KERNEL(
			"k", "100.5", "7.25",
			", \"correlation\": 5") "],\"distributedInfo\":{\"rank\":3,\"world_size\":8}}",
		"{\"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 3, \"world_size\": 8, \"pg_config\": "
		"[{\"ranks\": [0, 1]}]},\n \"traceEvents\"\n:\n[\n" KERNEL("k", "\"100.5\"", "\"7.25\"",
									   ", \"correlation\": \"5\"") "\n]\n}\n",
		"{\"x\": [1, {\"traceEvents\": 2}], \"traceEvents\": [" KERNEL("k", "1.005e2", "725e-2",
									       ", \"correlation\": 5") ",]}",
		("{\"traceEvents\": [ {\"args\": {\"correlation\": 5, \"stream\": 7, \"device\": 0}, \"dur\": 7.25, "
		 "\"ts\": 100.5, \"tid\": \"stream 7\", \"pid\": 0, "
		 "\"name\": \"k\", \"cat\": \"Kernel\", \"ph\": \"X\"} ], \"z\": null}"),
	};
	for (size_t i = 0; i < sizeof dress / sizeof *dress; i++) {
		struct fo_trace *t = read_text(dress[i]);
		assert_int_equal(t->gpu_count, 1);
		assert_int_equal(t->gpu[0].begin_ns, 100500);
		assert_int_equal(t->gpu[0].end_ns, 107750);
		assert_int_equal(t->gpu[0].stream, 7);
		assert_int_equal(t->gpu[0].correlation, 5);
		assert_string_equal(fo_trace_text(t, t->gpu[0].name), "k");
		assert_int_equal(t->device[t->gpu[0].device].id, 0);
		assert_int_equal(t->defect.malformed, 0);
		assert_false(t->defect.truncated);
		assert_int_equal(t->rank, i == 1 || i == 2 ? 3 : -1);
		assert_int_equal(t->world_size, i == 1 || i == 2 ? 8 : -1);
		fo_trace_free(t);
	}
}

static void header(void **state)
{
	(void)state;
	struct fo_trace *t = read_text(
		"{\"deviceProperties\": [{\"id\": 0, \"name\": \"AMD Radeon Graphics\", \"totalGlobalMem\": "
		"205571227648, "
		"\"computeMajor\": 9, \"computeMinor\": 4, \"numSms\": 304}, {\"id\": 6, \"name\": \"B\", \"numSms\": "
		"-5}], \"traceEvents\": ["
		"{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"pid\": 6, \"tid\": 1, \"ts\": 10, \"dur\": "
		"2, \"args\": {\"device\": 6}},"
		"{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 9, \"args\": {\"name\": \"python3\"}},"
		"{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 9, \"tid\": 12, \"args\": {\"name\": "
		"\"pt_autograd_0\"}}"
		"], \"baseTimeNanoseconds\": 1751410836000000000}");
	assert_int_equal(t->origin_unix_ns, 1751410836000000000);
	assert_int_equal(t->gpu[0].begin_ns, 10000);
	assert_int_equal(t->device_count, 2);
	assert_int_equal(t->device[0].id, 6); /* those with work first */
	assert_int_equal(t->gpu[0].device, 0);
	assert_int_equal(t->device[0].sm_count, 0);
	assert_int_equal(t->device[1].sm_count, 304);
	assert_int_equal(t->device[1].memory_bytes, 205571227648);
	assert_int_equal(t->device[1].capability_major, 9);
	assert_string_equal(fo_trace_text(t, t->device[1].name), "AMD Radeon Graphics");
	assert_string_equal(fo_trace_text(t, t->process_name), "python3");
	assert_string_equal(fo_trace_text(t, t->thread[0].name), "pt_autograd_0");
	fo_trace_free(t);
	/* Unix microseconds without a base: times count from the first event, whose own time is kept as the origin.
	 * "ts": 0 does not move it. */
	t = read_events(KERNEL("a", "1623142623460111", "5", ""), KERNEL("z", "0", "0", ""),
			HOST("cpu_op", "aten::mm", "1623142623460100.5", "9", ""));
	assert_int_equal(t->origin_unix_ns, 1623142623460100500);
	assert_int_equal(t->op[0].begin_ns, 0);
	assert_int_equal(t->gpu[1].begin_ns, 10500);
	assert_int_equal(t->begin_ns, 0);
	assert_int_equal(t->end_ns, 15500);
	fo_trace_free(t);
}

static void old_categories(void **state)
{
	(void)state;
	struct fo_trace *t = read_events(
		"{\"ph\":\"X\",\"cat\":\"Operator\",\"name\":\"aten::conv2d\",\"pid\":5,\"tid\":\"5\",\"ts\":100,"
		"\"dur\":50,\"args\":{\"Input dims\":[[1,2]]}}",
		"{\"ph\":\"X\",\"cat\":\"Runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":5,\"tid\":\"5\",\"ts\":110,"
		"\"dur\":5,\"args\":{\"correlation\":9}}",
		"{\"ph\":\"s\",\"id\":9,\"cat\":\"async_cpu_to_gpu\",\"name\":\"launch\",\"pid\":5,\"tid\":5,"
		"\"ts\":110}",
		"{\"ph\":\"X\",\"cat\":\"Kern\\u0065l\",\"name\":\"k\",\"pid\":0,\"tid\":\"stream 7\",\"ts\":130,"
		"\"dur\":5,\"args\":{\"device\":0,\"stream\":7,\"correlation\":9}}",
		"{\"ph\":\"X\",\"cat\":\"Memset\",\"name\":\"Memset (Device)\",\"pid\":0,\"tid\":\"stream 7\","
		"\"ts\":140,\"dur\":5,\"args\":{\"bytes\":64}}",
		"{\"ph\":\"X\",\"cat\":\"Memcpy\",\"name\":\"Memcpy HtoD (Pageable -> Device)\",\"pid\":0,"
		"\"tid\":\"stream 7\",\"ts\":150,\"dur\":5,\"args\":{\"bytes\":4096}}",
		"{\"ph\":\"X\",\"cat\":\"python\",\"name\":\"main.py(1): f\",\"pid\":5,\"tid\":5,\"ts\":1,\"dur\":500,"
		"\"args\":{}}");
	assert_int_equal(t->gpu_count, 3);
	assert_int_equal(t->gpu[0].stream, 7);
	assert_int_equal(t->gpu[0].launch, 0);
	assert_string_equal(fo_trace_text(t, t->op[t->gpu[0].op].name), "aten::conv2d");
	assert_string_equal(fo_trace_text(t, t->op[t->gpu[0].op].shapes), "[[1,2]]");
	assert_int_equal(t->gpu[1].kind, FO_GPU_MEMSET);
	assert_int_equal(t->gpu[1].bytes, 64);
	assert_int_equal(t->gpu[2].kind, FO_GPU_MEMCPY);
	assert_int_equal(t->gpu[2].copy, FO_COPY_H2D);
	assert_int_equal(t->gpu[2].flags & FO_GPU_PAGEABLE, FO_GPU_PAGEABLE);
	assert_int_equal(t->gpu[2].class, FO_K_MEMORY);
	assert_int_equal(t->defect.unlinked, 2);
	assert_int_equal(t->op_count, 1);
	fo_trace_free(t);
}

/* ---- what is broken ---- */

static void broken_names(void **state)
{
	(void)state;
	static const struct {
		const char *name, *read;
	} rows[] = {
		{ "f \"quoted\" g", "f \"quoted\" g" },
		{ "a\", \"b", "a\", \"b" },
		{ "operator\"\"_x(\"}\")", "operator\"\"_x(\"}\")" },
		{ "C:\\path\\Users\\q", "C:\\path\\Users\\q" },
		{ "ends in \\", "ends in \\" },
		{ "tab\there and \x01 there", "tab\there and \x01 there" },
		{ "line\nfeed", "line\nfeed" },
		{ "\\u00e9\\ud83d\\ude00\\ud83d\\u0000.", "\xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbd ." },
		{ "{[(\\\"", "{[(\"" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		for (int layout = 0; layout < 2; layout++) {
			char events[2048];
			const char *gap = layout ? "\n    " : " ";
			snprintf(events, sizeof events,
				 "%s,{\"ph\": \"X\", \"cat\": \"kernel\",%s\"name\": \"%s\", \"pid\": 0, \"tid\": 7,"
				 "%s\"ts\": 20, \"dur\": 5,%s\"args\": {\"device\": 0, "
				 "\"correlation\": 4}%s},%s%s",
				 KERNEL("before", "1", "5", ""), gap, rows[i].name, gap, gap, gap, gap,
				 KERNEL("behind", "40", "5", ""));
			struct fo_trace *t = read_events(events);
			if (t->gpu_count != 3 || t->defect.malformed ||
			    strcmp(fo_trace_text(t, t->gpu[1].name), rows[i].read))
				fail_msg("'%s': %lld kernels, %lld malformed, '%s'", rows[i].name,
					 (long long)t->gpu_count, (long long)t->defect.malformed,
					 t->gpu_count > 1 ? fo_trace_text(t, t->gpu[1].name) : "");
			assert_int_equal(t->gpu[1].correlation, 4);
			fo_trace_free(t);
		}
}

static void broken_events(void **state)
{
	(void)state;
	/* Each costs itself, never its neighbours. */
	static const char *const bad[] = {
		KERNEL("nan", "NaN", "5", ""),
		KERNEL("inf", "Infinity", "5", ""),
		KERNEL("text", "\"soon\"", "5", ""),
		KERNEL("huge", "1e40", "5", ""),
		"{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"no time\"}",
		"{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": }",
		"17",
		"null",
		"\"text\"",
		"[1, 2]",
		"{{{",
		"{\"ph\": \"X\" \"cat\": \"kernel\"}",
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		char events[2048];
		snprintf(events, sizeof events, "%s, %s, %s", KERNEL("before", "1", "5", ""), bad[i],
			 KERNEL("behind", "40", "5", ""));
		struct fo_trace *t = read_events(events);
		if (t->gpu_count != 2 || t->defect.malformed < 1)
			fail_msg("%s: %lld kernels, %lld malformed", bad[i], (long long)t->gpu_count,
				 (long long)t->defect.malformed);
		fo_trace_free(t);
	}
	/* Values of arguments that are no numbers are unknown. */
	struct fo_trace *t = read_events(
		KERNEL("k", "1", "5",
		       ", \"correlation\": NaN, \"est. achieved occupancy %\": -Infinity, \"bytes\": \"N/A\""),
		KERNEL("l", "9", "\"N/A\"", ""));
	assert_int_equal(t->gpu_count, 2);
	assert_int_equal(t->gpu[0].correlation, -1);
	assert_int_equal(t->gpu[1].end_ns, 9000);
	fo_trace_free(t);
}

static void truncated(void **state)
{
	(void)state;
	static const char whole[] = "{\"traceEvents\": [" KERNEL("a", "1", "5", "") ",\n" KERNEL(
		"b", "10", "5", "") "\n], \"distributedInfo\": {\"rank\": 2}}";
	size_t first = (size_t)(strstr(whole, "\n{") - whole), second = (size_t)(strstr(whole, "\n]") - whole);
	for (size_t n = (size_t)(strchr(whole, '[') - whole) + 1; n < sizeof whole; n++) {
		struct fo_trace *t;
		fo_status st = read_bytes(&t, "cut.json", whole, n);
		if (n < first - 1) { /* nothing tells whose it is */
			assert_int_equal(st, FO_EFORMAT);
			assert_non_null(strstr(fo_err_text(), "ends before the first"));
			continue;
		}
		if (st != FO_OK)
			fail_msg("%zu bytes: %s", n, fo_err_text());
		assert_int_equal(t->gpu_count, (n >= first - 1) + (n >= second));
		assert_int_equal(t->defect.truncated, n < sizeof whole - 1);
		assert_int_equal(t->rank, strstr(whole, "2}") < whole + n - 1 ? 2 : -1);
		fo_trace_free(t);
	}
}

static void durations(void **state)
{
	(void)state;
	struct fo_trace *t = read_events(KERNEL("zero", "50", "0", ""), KERNEL("none", "0", "0", ""),
					 KERNEL("back", "60", "-3", ""), KERNEL("ok", "70", "5", ""),
					 KERNEL("late", "65", "5", ""), KERNEL("two", "80", "5", ""),
					 KERNEL("absurd", "90", "7400000000000000", ""), KERNEL("next", "100", "5", ""),
					 KERNEL("pdl", "106", "9", ""), KERNEL("x", "110", "5", ""),
					 KERNEL("end", "120", "7400000000000000", ""));
	assert_int_equal(t->gpu_count, 11);
	assert_int_equal(t->defect.zero_duration, 2);
	assert_int_equal(t->defect.negative_duration, 1);
	assert_int_equal(t->defect.clipped, 2);
	assert_int_equal(t->defect.out_of_order, 2);
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		const char *name = fo_trace_text(t, g->name);
		assert_true(g->end_ns >= g->begin_ns);
		if (i)
			assert_true(g->begin_ns >= g[-1].begin_ns);
		if (!strcmp(name, "absurd"))
			assert_int_equal(g->end_ns, 100000); /* its successor's begin */
		if (!strcmp(name, "pdl"))
			assert_int_equal(g->end_ns, 115000); /* overlaps are legal */
		assert_int_equal(!!(g->flags & FO_GPU_CLIPPED), !strcmp(name, "absurd") || !strcmp(name, "end"));
	}
	assert_int_equal(t->begin_ns, 65000);
	fo_trace_free(t);
	/* What a graph replays runs beside its successor although the stream's number is the same. */
	t = read_events(KERNEL("a", "1", "500", ", \"graph id\": 3"), KERNEL("b", "2", "1", ", \"graph id\": 3"),
			KERNEL("c", "4", "1", ", \"graph id\": 3"));
	assert_int_equal(t->defect.clipped, 0);
	assert_true(t->defect.graph_granularity);
	assert_true(t->gpu[0].flags & FO_GPU_GRAPH);
	fo_trace_free(t);
}

/* A graph's kernel, or the last kernel of its stream, that ends long after everything else. Of a few kernels such an
 * end may have been measured. */
static void far_ends(void **state)
{
	(void)state;
	static const char *const far[][2] = {
		{ KERNEL("far", "2005", "20000000", ", \"graph id\": 3") },
		{ KERNEL("far", "2005", "20000000", ", \"graph id\": 3"),
		  KERNEL("far", "2030", "30000000", ", \"graph id\": 3") },
		{ KERNEL("far", "2390", "20000000", "") },
		{ KERNEL("far", "2390", "20000000", ""),
		  HOST("cuda_runtime", "cudaDeviceSynchronize", "2391", "20000010", "") },
		{ KERNEL("long", "2390", "20000", "") },
	};
	static const int64_t want[] = { 1, 2, 1, 0, 0 };
	for (size_t i = 0; i < sizeof far / sizeof *far; i++)
		for (int n = 4; n <= 40; n += 36) {
			static char events[1 << 14];
			size_t at = 0;
			for (int k = 0; k < n; k++)
				at += (size_t)snprintf(events + at, sizeof events - at, KERNEL("k", "%d", "8", "") ",",
						       (n == 4 ? 2350 : 10) + 10 * k + (n == 40) * 1980);
			snprintf(events + at, sizeof events - at,
				 "%s%s%s," HOST("cpu_op", "aten::mm", "%d", "5000", ""), far[i][0],
				 far[i][1] ? "," : "", far[i][1] ? far[i][1] : "", n == 4 ? 1 : 1000);
			struct fo_trace *t = read_events(events);
			assert_int_equal(t->defect.clipped, n == 4 ? 0 : want[i]);
			for (int64_t k = 0; n == 40 && k < t->gpu_count; k++)
				if (!strcmp(fo_trace_text(t, t->gpu[k].name), "far"))
					assert_int_equal(t->gpu[k].end_ns, want[i] ? t->gpu[k].begin_ns : 20002390000);
			fo_trace_free(t);
		}
}

/* Operators of which each ends behind the next one's begin: whatever is over is looked at once. */
static void overlapping_parents(void **state)
{
	(void)state;
	enum { MANY = 300000 };
	struct fo_trace_build b;
	struct fo_trace *t;
	fo_trace_build_init(&b, "overlapping");
	int32_t thread = fo_trace_thread(&b, 1, 1);
	for (int64_t i = 0; i < MANY; i++) {
		struct fo_host_op *o = fo_trace_add_op(&b, 2000 * i, 2000 * (i + MANY));
		o->thread = thread;
		o->kind = FO_HOST_MODULE;
	}
	clock_t begin = clock();
	assert_int_equal(fo_trace_build_finish(&b, &t), FO_OK);
	assert_true(clock() - begin < 5 * CLOCKS_PER_SEC); /* every one against every other: minutes */
	assert_int_equal(t->op_count, MANY);
	for (int64_t i = 0; i < MANY; i++)
		assert_int_equal(t->op[i].parent, -1);
	fo_trace_free(t);
}

/* ---- links ---- */

static void correlations(void **state)
{
	(void)state;
	struct fo_trace *t = read_events(
		HOST("cpu_op", "aten::mm", "100", "30",
		     "\"Input Dims\": [[4, 8], [8, 2]], \"Input type\": [\"float\", \"float\"]"),
		HOST("cuda_runtime", "cudaLaunchKernel", "110", "5", "\"correlation\": 1"),
		HOST("cuda_runtime", "cudaGraphLaunch", "140", "5", "\"correlation\": 2"),
		HOST("cuda_runtime", "cudaMemcpy", "150", "20", "\"correlation\": 3"),
		HOST("cuda_runtime", "cudaStreamSynchronize", "180", "20", "\"correlation\": 9"),
		HOST("cuda_runtime", "cudaFuncGetAttributes", "210", "1", "\"correlation\": 10"),
		HOST("cuda_driver", "cuNewLaunchOfTomorrow", "220", "1", "\"correlation\": 11"),
		KERNEL("leftover", "90", "5", ", \"correlation\": 777"),
		KERNEL("alone", "120", "5", ", \"correlation\": 1"), KERNEL("g1", "150", "5", ", \"correlation\": 2"),
		KERNEL("g2", "156", "5", ", \"correlation\": 2"), KERNEL("c1", "165", "1", ", \"correlation\": 3"),
		KERNEL("c2", "168", "1", ", \"correlation\": 3"), KERNEL("none", "200", "5", ""),
		KERNEL("new", "230", "5", ", \"correlation\": 11"));
	const struct fo_gpu_op *g = t->gpu;
	assert_int_equal(t->gpu_count, 8);
	assert_int_equal(t->launch_count, 4);
	assert_int_equal(t->defect.unlinked, 2);
	assert_int_equal(t->defect.shared_correlations, 4);
	assert_int_equal(g[0].launch, -1);
	assert_string_equal(fo_trace_text(t, t->launch[g[1].launch].name), "cudaLaunchKernel");
	assert_string_equal(fo_trace_text(t, t->op[g[1].op].name), "aten::mm");
	assert_string_equal(fo_trace_text(t, t->op[g[1].op].shapes), "[[4, 8], [8, 2]]");
	assert_string_equal(fo_trace_text(t, t->op[g[1].op].types), "[\"float\", \"float\"]");
	assert_int_equal(g[2].flags, FO_GPU_GRAPH | FO_GPU_SHARED);
	assert_true(t->launch[g[2].launch].graph);
	assert_int_equal(g[4].flags, FO_GPU_SHARED);
	assert_true(t->launch[g[4].launch].blocking);
	assert_int_equal(g[6].launch, -1);
	assert_string_equal(fo_trace_text(t, t->launch[g[7].launch].name), "cuNewLaunchOfTomorrow");
	int sync = 0, call = 0;
	for (int64_t i = 0; i < t->op_count; i++)
		sync += t->op[i].kind == FO_HOST_SYNC, call += t->op[i].kind == FO_HOST_CALL;
	assert_int_equal(sync, 1);
	assert_int_equal(call, 1);
	assert_true(t->defect.has_launches && t->defect.has_host_ops && t->defect.has_shapes && !t->defect.has_modules);
	fo_trace_free(t);
}

static void parents(void **state)
{
	(void)state;
	struct fo_trace *t = read_events(
		HOST("cuda_runtime", "cudaLaunchKernel", "125", "2", "\"correlation\": 1"),
		KERNEL("k", "130", "5", ", \"correlation\": 1"),
		HOST("python_function", "nn.Module: LlamaRMSNorm_3", "90", "100", "\"Python id\": 3"),
		HOST("python_function", "torch/nn/modules/module.py(1): x", "91", "99", ""),
		HOST("cpu_op", "aten::mul", "120", "10", "\"Sequence number\": 44, \"Fwd thread id\": 2"),
		HOST("cpu_op", "aten::linear", "100", "50", ""), HOST("cpu_op", "aten::view", "102", "3", ""),
		/* launches nothing, inside another */ HOST("cpu_op", "aten::lonely", "200", "3", ""),
		HOST("user_annotation", "Optimizer.step#AdamW.step", "80", "200", ""),
		HOST("cpu_op", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "300", "9", ""),
		"{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::other_thread\", \"pid\": 10, \"tid\": 99, "
		"\"ts\": 100, \"dur\": 60, \"args\": {}}");
	const struct fo_host_op *o = &t->op[t->gpu[0].op];
	static const char *const chain[] = { "aten::mul", "aten::linear", "nn.Module: LlamaRMSNorm_3",
					     "Optimizer.step#AdamW.step", "" };
	assert_int_equal(o->sequence, 44);
	assert_true(o->other_thread);
	for (int i = 0; i < 4; i++) {
		assert_string_equal(fo_trace_text(t, o->name), chain[i]);
		assert_int_equal(o->parent < 0, i == 3);
		if (i < 3)
			o = &t->op[o->parent];
	}
	bool data = false;
	for (int64_t i = 0; i < t->op_count; i++) {
		const char *name = fo_trace_text(t, t->op[i].name);
		assert_string_not_equal(name, "aten::view");
		assert_null(strstr(name, "module.py"));
		data |= t->op[i].kind == FO_HOST_DATA;
		if (i)
			assert_true(
				t->op[i].thread > t->op[i - 1].thread ||
				(t->op[i].thread == t->op[i - 1].thread && t->op[i].begin_ns >= t->op[i - 1].begin_ns));
	}
	assert_true(data);
	assert_int_equal(t->op_count, 7);
	assert_int_equal(t->launch[0].op, t->gpu[0].op);
	fo_trace_free(t);
	/* ROCm: frames apart from all threads. */
	t = read_events(
		"{\"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"nn.Module: Norm_0\", \"pid\": 0, \"tid\": "
		"0, \"ts\": 90, \"dur\": 50, \"args\": {}}",
		HOST("cpu_op", "aten::mul", "100", "10", ""));
	assert_int_equal(t->op_count, 2);
	assert_string_equal(fo_trace_text(t, t->op[t->op[1].parent].name), "nn.Module: Norm_0");
	fo_trace_free(t);
}

/* A file with each event twice is the trace with each once; operators of one time are left alone. */
static void doubled(void **state)
{
	(void)state;
#define LAUNCHED                                                                    \
	HOST("cuda_runtime", "cudaLaunchKernel", "105", "5", "\"correlation\": 1"), \
		KERNEL("k", "120", "30", ", \"correlation\": 1")
#define OPERATORS                                                      \
	HOST("cpu_op", "aten::mm", "100", "20", "\"External id\": 1"), \
		HOST("cpu_op", "aten::mm", "100", "20", "\"External id\": 2")
	struct fo_trace *once = read_events(OPERATORS, LAUNCHED);
	struct fo_trace *twice = read_events(OPERATORS, LAUNCHED, OPERATORS, LAUNCHED);
	assert_int_equal(once->defect.doubled, 0);
	assert_int_equal(twice->defect.doubled, 4);
	assert_int_equal(twice->gpu_count, 1);
	assert_int_equal(twice->launch_count, 1);
	assert_int_equal(twice->op_count, once->op_count);
	assert_int_equal(twice->defect.shared_correlations, 0);
	fo_trace_free(once);
	fo_trace_free(twice);
	once = read_events(HOST("cpu_op", "aten::mm", "100", "20", ""), HOST("cpu_op", "aten::mm", "100", "20", ""),
			   LAUNCHED);
	assert_int_equal(once->defect.doubled, 0);
	fo_trace_free(once);
}

static void collectives(void **state)
{
	(void)state;
#define COMMS                                                                                              \
	"\"Collective name\": \"allreduce\", \"In msg nelems\": 2049000, \"Out msg nelems\": 2049000, "    \
	"\"Group size\": 2, \"dtype\": \"Float\", \"In split size\": \"[]\", \"Out split size\": \"[]\", " \
	"\"Process Group Name\": \"0\", \"Process Group Ranks\": \"[0, 1]\", \"Seq\": 6"
	struct fo_trace *t = read_events(
		KERNEL("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "10", "5",
		       ", \"correlation\": 1, " COMMS),
		HOST("cpu_op", "record_param_comms", "20", "9", COMMS),
		HOST("cpu_op", "c10d::allreduce_", "19", "12", ""),
		HOST("cuda_runtime", "cudaLaunchKernelExC", "22", "2", "\"correlation\": 2"),
		KERNEL("ncclDevKernel_Generic(x)", "30", "5", ", \"correlation\": 2"),
		KERNEL("ncclDevKernel_SendRecv(x)", "40", "5",
		       ", \"Collective name\": \"send\", \"In split size\": \"[1, 2]\", \"Dst Rank\": 3, \"In msg "
		       "nelems\": 7, \"dtype\": \"Odd\""));
	assert_int_equal(t->collective_count, 3);
	for (int i = 0; i < 2; i++) {
		const struct fo_collective *c = &t->collective[t->gpu[i].collective];
		assert_int_equal(t->gpu[i].class, FO_K_COMMUNICATION);
		assert_string_equal(fo_trace_text(t, c->name), "allreduce");
		assert_string_equal(fo_trace_text(t, c->members), "[0, 1]");
		assert_int_equal(c->bytes, 2049000 * 4);
		assert_int_equal(c->group_size, 2);
		assert_int_equal(c->sequence, 6);
		assert_int_equal(c->peer_to, -1);
		assert_true(c->equal_parts);
	}
	const struct fo_collective *c = &t->collective[t->gpu[2].collective];
	assert_int_equal(c->peer_to, 3);
	assert_int_equal(c->bytes, -1);
	assert_false(c->equal_parts);
	assert_true(t->defect.has_collective_args);
	fo_trace_free(t);
	/* Types in any spelling; one that is not known has no size. */
	static const struct {
		const char *dtype;
		int64_t bytes;
	} rows[] = { { "BFloat16", 20 }, { "bfloat16", 20 },     { "torch.bfloat16", 20 }, { "c10::Half", 20 },
		     { "float16", 20 },  { "FLOAT", 40 },        { "Float8_e4m3fn", 10 },  { "float8_e5m2", 10 },
		     { "Byte", 10 },     { "ComplexFloat", 80 }, { "int64", 80 },          { "Odd", -1 } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char event[512];
		snprintf(event, sizeof event,
			 KERNEL("ncclDevKernel_AllReduce(x)", "10", "5",
				", \"Collective name\": \"allreduce\", \"In msg nelems\": 10, \"dtype\": \"%s\""),
			 rows[i].dtype);
		t = read_events(event);
		if (t->collective[0].bytes != rows[i].bytes)
			fail_msg("%s: %lld bytes", rows[i].dtype, (long long)t->collective[0].bytes);
		fo_trace_free(t);
	}
}

static void steps_and_others(void **state)
{
	(void)state;
	struct fo_trace *t = read_events(
		HOST("user_annotation", "ProfilerStep#12", "100", "50", ""),
		HOST("cpu_op", "ProfilerStep#11", "50", "50", ""),
		HOST("gpu_user_annotation", "ProfilerStep#11", "60", "45", "\"device\": 0"),
		HOST("gpu_user_annotation", "ProfilerStep#11", "61", "30", "\"device\": 0"),
		HOST("gpu_user_annotation", "## forward ##", "60", "45", ""),
		HOST("user_annotation", "ProfilerStep#x", "1", "1", ""),
		"{\"ph\": \"X\", \"cat\": \"overhead\", \"name\": \"Activity Buffer Request\", \"pid\": -1, \"tid\": "
		"0, \"ts\": 5, \"dur\": 1526.826}",
		"{\"ph\": \"X\", \"cat\": \"cuda_sync\", \"name\": \"Stream Wait Event\", \"pid\": 0, \"tid\": 20, "
		"\"ts\": 70, \"dur\": 4, \"args\": {\"device\": 0, \"stream\": 20, "
		"\"wait_on_stream\": 7}}",
		"{\"ph\": \"X\", \"cat\": \"Trace\", \"ts\": 1, \"dur\": 9, \"pid\": \"Spans\", \"tid\": \"PyTorch "
		"Profiler\", \"name\": \"PyTorch Profiler (0)\"}",
		"{\"ph\": \"C\", \"name\": \"GPU 0 Utilization\", \"pid\": 0, \"ts\": 1, \"args\": {\"GPU "
		"Utilization\": 0.5}}");
	assert_int_equal(t->gpu_count, 0);
	assert_int_equal(t->step_count, 3);
	assert_int_equal(t->step[0].number, 11);
	assert_int_equal(t->step[1].number, 12);
	assert_true(t->step[0].thread >= 0 && t->step[2].thread < 0);
	assert_int_equal(t->step[2].end_ns - t->step[2].begin_ns, 45000); /* the longer of the two */
	assert_int_equal(t->defect.duplicates, 1);
	assert_int_equal(t->defect.profiler_overhead_ns, 1526826);
	assert_int_equal(t->wait_count, 1);
	assert_int_equal(t->wait[0].stream, 20);
	assert_int_equal(t->wait[0].on_stream, 7);
	assert_int_equal(t->defect.events, 10);
	fo_trace_free(t);
}

/* ---- packed, long, not a trace ---- */

/* 5 MB: several windows, with events across their borders and one event longer than a window. */
static char *long_trace(size_t *n, int64_t *kernels)
{
	char *text = malloc(9 << 20), *p = text;
	p += sprintf(p, "{\"traceEvents\": [\n");
	for (*kernels = 0; p - text < 5 << 20; (*kernels)++) {
		p += sprintf(p,
			     "{\"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"f.py(%lld): g\", \"pid\": 1, "
			     "\"tid\": 1, \"ts\": 1, \"dur\": 2, \"args\": {\"a\": [1, \"}\"]}},\n",
			     (long long)*kernels);
		p += sprintf(p, KERNEL("k", "%lld.125", "3", ", \"correlation\": %lld") ",\n", (long long)*kernels * 10,
			     (long long)*kernels);
		if (*kernels == 100) {
			p += sprintf(p,
				     "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"long\", \"pid\": 1, \"tid\": 1, "
				     "\"ts\": 1, \"dur\": 1, \"args\": {\"x\": \"");
			memset(p, 'x', 3 << 20);
			p += 3 << 20;
			p += sprintf(p, "\"}},\n");
		}
	}
	p += sprintf(p - 2, "\n], \"distributedInfo\": {\"rank\": 5}}") - 2;
	*n = (size_t)(p - text);
	return text;
}

static void check_long(const char *name, const void *bytes, size_t n, int64_t kernels)
{
	struct fo_trace *t;
	if (read_bytes(&t, name, bytes, n) != FO_OK)
		fail_msg("%s", fo_err_text());
	assert_int_equal(t->gpu_count, kernels);
	assert_int_equal(t->rank, 5);
	assert_int_equal(t->defect.malformed, 0);
	assert_false(t->defect.truncated);
	for (int64_t i = 0; i < kernels; i++)
		assert_int_equal(t->gpu[i].begin_ns, i * 10000 + 125);
	fo_trace_free(t);
}

static void packed(void **state)
{
	(void)state;
	struct fo_trace *t;
	size_t n, half;
	int64_t kernels;
	char *text = long_trace(&n, &kernels);
	check_long("plain", text, n, kernels);

	/* Two members, as `cat a.gz b.gz` makes, and no suffix. */
	char *out = malloc(n + 4096);
	size_t packed = 0;
	half = n / 2;
	for (int part = 0; part < 2; part++) {
		z_stream z = { .next_in = (unsigned char *)text + (part ? half : 0),
			       .avail_in = (unsigned)(part ? n - half : half),
			       .next_out = (unsigned char *)out + packed,
			       .avail_out = (unsigned)(n + 4096 - packed) };
		assert_int_equal(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
		assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
		packed += z.total_out;
		deflateEnd(&z);
	}
	check_long("trace_without_suffix", out, packed, kernels);
	assert_int_equal(read_bytes(&t, "cut.gz", out, packed / 2), FO_OK);
	assert_true(t->defect.truncated && t->gpu_count > 0 && t->gpu_count < kernels);
	fo_trace_free(t);
	out[packed / 4] ^= 0x55; /* damaged inside: what came before stays */
	assert_int_equal(read_bytes(&t, "damaged.gz", out, packed), FO_OK);
	assert_true(t->defect.truncated && t->gpu_count < kernels);
	fo_trace_free(t);

	size_t frame = ZSTD_compress(out, n + 4096, text, half, 1);
	assert_false(ZSTD_isError(frame));
	size_t second = ZSTD_compress(out + frame, n + 4096 - frame, text + half, n - half, 1);
	check_long("t.zst", out, frame + second, kernels);
	assert_int_equal(read_bytes(&t, "cut.zst", out, frame + second / 2), FO_OK);
	assert_true(t->defect.truncated && t->gpu_count < kernels);
	fo_trace_free(t);
	assert_int_equal(read_bytes(&t, "bad.zst", "\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff\xff\xff\xff", 12), FO_EFORMAT);
	assert_int_equal(read_bytes(&t, "bad.gz", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff", 14),
			 FO_EFORMAT);
	free(out);
	free(text);
}

static void not_a_trace(void **state)
{
	(void)state;
	struct fo_trace *t;
	static const struct {
		const char *name, *text, *says;
		fo_status st;
	} rows[] = {
		{ "a.json", "", "nothing", FO_EFORMAT },
		{ "b.json", "   \n", "nothing", FO_EFORMAT },
		{ "c.json", "hello", "is a text", FO_EFORMAT },
		{ "d.json", "{}", "no \"traceEvents\"", FO_EFORMAT },
		{ "e.json", "{\"traceEvents\": 5}", "\"traceEvents\" is not a list", FO_EFORMAT },
		{ "null.json", "{\"traceEvents\": null}", "\"traceEvents\" is null", FO_EFORMAT },
		{ "f.json", "{\"a\": [1, 2", "without an end", FO_EFORMAT },
		{ "g.json", "{a: 1}", "no member", FO_EFORMAT },
		{ "h.json",
		  "{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"mtia_ccp_events\", \"name\": \"x\", \"ts\": 1, "
		  "\"dur\": 1}]}",
		  "mtia_ccp_events", FO_EFORMAT },
		{ "my run.nsys-rep", "anything", "report of Nsight Systems", FO_EFORMAT },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_int_equal(read_bytes(&t, rows[i].name, rows[i].text, strlen(rows[i].text)), rows[i].st);
		if (!strstr(fo_err_text(), rows[i].says))
			fail_msg("%s: %s", rows[i].name, fo_err_text());
		assert_true(*fo_err_hint());
	}
	char want[256];
	snprintf(want, sizeof want, "nsys export --type sqlite --output '%s/my run.sqlite' '%s/my run.nsys-rep'",
		 fo_scratch, fo_scratch);
	assert_non_null(strstr(fo_err_hint(), want));
	assert_int_equal(fo_trace_open(&t, "no/such/file"), FO_EIO);
	int ends[2];
	char pipe_path[32];
	assert_int_equal(pipe(ends), 0);
	snprintf(pipe_path, sizeof pipe_path, "/dev/fd/%d", ends[0]);
	assert_int_equal(fo_trace_open(&t, pipe_path), FO_EIO);
	assert_non_null(strstr(fo_err_hint(), "to a file first"));
	close(ends[0]);
	close(ends[1]);
	/* A trace of nothing is one where it says whose it is; an empty list is anybody's. */
	t = read_text("{\"schemaVersion\": 1, \"traceEvents\": []}");
	assert_int_equal(t->gpu_count, 0);
	assert_false(t->defect.truncated);
	fo_trace_free(t);
	t = read_text(
		"[{\"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"f.py(1): g\", \"ts\": 1, \"dur\": 2}]");
	fo_trace_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exact_times),
		cmocka_unit_test(as_jansson_reads),
		cmocka_unit_test(same_in_every_isa),
		cmocka_unit_test(one_trace_in_any_dress),
		cmocka_unit_test(header),
		cmocka_unit_test(old_categories),
		cmocka_unit_test(broken_names),
		cmocka_unit_test(broken_events),
		cmocka_unit_test(truncated),
		cmocka_unit_test(durations),
		cmocka_unit_test(correlations),
		cmocka_unit_test(parents),
		cmocka_unit_test(doubled),
		cmocka_unit_test(far_ends),
		cmocka_unit_test(overlapping_parents),
		cmocka_unit_test(collectives),
		cmocka_unit_test(steps_and_others),
		cmocka_unit_test(packed),
		cmocka_unit_test(not_a_trace),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
