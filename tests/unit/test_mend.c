/* What some profilers leave out: launches without correlations, devices under other numbers than their work. */
#include "base/fs.h"
#include "trace/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/scratch.h"

static struct fo_trace *read_events(const char *head, const char *events)
{
	char path[64];
	struct fo_trace *t;
	snprintf(path, sizeof path, "%s/t.json", fo_scratch);
	FILE *f = fopen(path, "we");
	assert_non_null(f);
	fprintf(f, "{\"schemaVersion\": 1, %s \"traceEvents\": [%s]}", head, events);
	assert_int_equal(fclose(f), 0);
	if (fo_trace_open(&t, path) != FO_OK)
		fail_msg("%s", fo_err_text());
	return t;
}

#define ARG(x) ", \"args\": {" x "}"
#define EVENT(cat, name, pid, tid, ts, dur, rest)                                                       \
	"{\"ph\": \"X\", \"cat\": \"" cat "\", \"name\": \"" name "\", \"pid\": " pid ", \"tid\": " tid \
	", \"ts\": " ts ", \"dur\": " dur rest "}"
#define MM "\"Input Dims\": [[64, 32], [32, 16]], \"Input type\": [\"float\", \"float\"]"
#define OP(name, ts, dur, args) EVENT("cpu_op", name, "10", "11", ts, dur, ARG(args))
#define CALL(name, ts, args) EVENT("cuda_runtime", name, "10", "11", ts, "2", ARG(args))
#define KERNEL(name, ts, args) EVENT("kernel", name, "2", "7", ts, "5", ARG(args))
#define GPU "\"device\": 2, \"stream\": 7"
#define ARROW(ph, id, pid, tid, ts)                                                            \
	"{\"ph\": \"" ph "\", \"id\": " id ", \"pid\": " pid ", \"tid\": " tid ", \"ts\": " ts \
	", \"cat\": \"ac2g\", \"name\": \"ac2g\"}"

static const struct fo_gpu_op *named(const struct fo_trace *t, const char *name)
{
	for (int64_t i = 0; i < t->gpu_count; i++)
		if (!strcmp(fo_trace_text(t, t->gpu[i].name), name))
			return &t->gpu[i];
	fail_msg("no '%s'", name);
	return NULL;
}

/* The launch's begin in us and the operator's name. */
static void launched(const struct fo_trace *t, const char *kernel, int64_t at_us, const char *op)
{
	const struct fo_gpu_op *g = named(t, kernel);
	if (g->launch < 0)
		fail_msg("%s has no launch", kernel);
	assert_int_equal(t->launch[g->launch].begin_ns / 1000, at_us);
	assert_string_equal(g->op < 0 ? "" : fo_trace_text(t, t->op[g->op].name), op);
}

/* Events of one trace, each on a line of its own: the macros join texts. */
/* clang-format off */

static void by_number(void **state)
{
	(void)state;
	struct fo_trace *t = read_events("",
		OP("aten::mm", "10", "20", "\"External id\": 5, " MM) ","
		CALL("hipLaunchKernel", "12", "\"External id\": 5") ","
		CALL("hipMemcpyWithStream", "16", "\"External id\": 5") ","
		CALL("hipLaunchKernel", "20", "\"External id\": 5") ","
		KERNEL("second", "60", GPU ", \"External id\": 5") ","
		KERNEL("first", "50", GPU ", \"External id\": 5") ","
		EVENT("gpu_memcpy", "copy", "2", "7", "40", "5", ARG(GPU ", \"External id\": 5, \"bytes\": 4")) ","
		KERNEL("leftover", "1", GPU ", \"External id\": 3") ","
		KERNEL("nobody's", "2", GPU));
	launched(t, "first", 12, "aten::mm");
	launched(t, "second", 20, "aten::mm");
	launched(t, "copy", 16, "aten::mm");
	assert_true(t->op[named(t, "first")->op].shapes >= 0);
	assert_int_equal(named(t, "leftover")->launch, -1);
	assert_int_equal(t->defect.unlinked, 2);
	assert_int_equal(t->defect.shared_correlations, 0);
	fo_trace_free(t);

	/* A correlation goes before such a number. */
	t = read_events("",
		OP("aten::mm", "10", "20", "\"External id\": 5, " MM) ","
		CALL("hipLaunchKernel", "12", "\"External id\": 5, \"correlation\": 1") ","
		OP("aten::add", "40", "20", "\"External id\": 6") ","
		CALL("hipLaunchKernel", "42", "\"External id\": 6, \"correlation\": 2") ","
		KERNEL("tied", "90", GPU ", \"External id\": 5, \"correlation\": 2"));
	launched(t, "tied", 42, "aten::add");
	fo_trace_free(t);
}

static void by_fewer_calls(void **state)
{
	(void)state;
	/* Two kernels and one call: which is its own nobody knows; the operator is. */
	struct fo_trace *t = read_events("",
		OP("aten::mm", "10", "20", "\"External id\": 5, " MM) ","
		CALL("hipLaunchKernel", "12", "\"External id\": 5") ","
		KERNEL("first", "50", GPU ", \"external id\": 5") ","
		KERNEL("second", "60", GPU ", \"External id\": 5"));
	launched(t, "first", 12, "aten::mm");
	launched(t, "second", 12, "aten::mm");
	assert_int_equal(t->defect.shared_correlations, 2);
	fo_trace_free(t);

	/* No call is recorded: the operator launched, at the latest when it ended, and before the kernel began. */
	t = read_events("",
		OP("aten::mm", "10", "20", "\"External id\": 5, " MM) ","
		OP("aten::add", "40", "20", "\"External id\": 6") ","
		KERNEL("late", "90", GPU ", \"External id\": 5") ","
		KERNEL("early", "44", GPU ", \"External id\": 6"));
	launched(t, "late", 29, "aten::mm");
	launched(t, "early", 44, "aten::add");
	assert_int_equal(t->defect.unlinked, 0);
	fo_trace_free(t);

	/* Calls out of order are sorted before more launches come. */
	t = read_events("",
		CALL("hipLaunchKernel", "72", "\"External id\": 9") ","
		CALL("hipLaunchKernel", "2", "\"External id\": 8") ","
		OP("aten::mm", "10", "20", "\"External id\": 5, " MM) ","
		KERNEL("k", "90", GPU ", \"External id\": 5"));
	launched(t, "k", 29, "aten::mm");
	assert_int_equal(t->launch_count, 3);
	fo_trace_free(t);
}

static void by_arrow(void **state)
{
	(void)state;
	struct fo_trace *t = read_events("",
		OP("aten::mm", "10", "20", MM) ","
		CALL("hipLaunchKernel", "12", "\"a\": 1") ","
		ARROW("s", "77", "10", "11", "12") ","
		KERNEL("first", "50", GPU) ","
		ARROW("f", "77", "2", "7", "50") ","
		OP("aten::add", "30", "8", "\"a\": 1") ","
		ARROW("s", "78", "10", "11", "33.5") ","
		ARROW("f", "78", "2", "7", "60.25") ","
		KERNEL("second", "60.25", GPU) ","
		KERNEL("third", "70", GPU) ","
		ARROW("f", "79", "2", "7", "70"));
	launched(t, "first", 12, "aten::mm");
	assert_string_equal(fo_trace_text(t, t->launch[named(t, "first")->launch].name), "hipLaunchKernel");
	launched(t, "second", 33, "aten::add");
	assert_int_equal(named(t, "third")->launch, -1);
	assert_int_equal(t->defect.unlinked, 1);
	assert_int_equal(t->defect.shared_correlations, 0);
	assert_int_equal(t->defect.events, 11);
	assert_int_equal(t->defect.malformed, 0);
	fo_trace_free(t);
	/* Unix time: arrows move with the rest. */
	t = read_events("",
		OP("aten::mm", "1700000000000010.5", "20", MM) ","
		ARROW("s", "1", "10", "11", "1700000000000012.25") ","
		KERNEL("k", "1700000000000050.125", GPU) ","
		ARROW("f", "1", "2", "7", "1700000000000050.125"));
	launched(t, "k", 1, "aten::mm");
	fo_trace_free(t);
	/* Two arrows begin under one number, and two end: which belongs to which nobody knows. */
	t = read_events("",
		OP("aten::mm", "10", "20", MM) ","
		ARROW("s", "0", "10", "11", "12") ","
		OP("aten::add", "40", "8", "\"a\": 1") ","
		ARROW("s", "0", "10", "11", "42") ","
		KERNEL("first", "50", GPU) ","
		ARROW("f", "0", "2", "7", "50") ","
		KERNEL("second", "60", GPU) ","
		ARROW("f", "0", "2", "7", "60"));
	assert_int_equal(named(t, "first")->launch, -1);
	assert_int_equal(named(t, "second")->launch, -1);
	assert_int_equal(t->defect.unlinked, 2);
	fo_trace_free(t);
}

/* clang-format on */

#define DEVICE(id, name, sms) "{\"id\": " id ", \"name\": \"" name "\", \"numSms\": " sms "}"

static const char *device(const struct fo_trace *t, int64_t id)
{
	for (int64_t i = 0; i < t->device_count; i++)
		if (t->device[i].id == id)
			return fo_trace_text(t, t->device[i].name);
	return "no such device";
}

static void devices(void **state)
{
	(void)state;
	static const char on2[] = KERNEL("k", "5", "\"device\": 2, \"stream\": 0"),
			  both[] = KERNEL("k", "5", "\"device\": 2") "," KERNEL("k", "5", "\"device\": 9");
	struct fo_trace *t = read_events("\"deviceProperties\": [" DEVICE("0", "AMD Instinct MI300X VF", "304") "],",
					 on2);
	assert_string_equal(device(t, 2), "AMD Instinct MI300X VF");
	assert_int_equal(t->device[0].id, 2);
	assert_int_equal(t->device[0].sm_count, 304);
	fo_trace_free(t);
	/* All of one model. */
	t = read_events("\"deviceProperties\": [" DEVICE("0", "A", "5") "," DEVICE("1", "A", "5") "," DEVICE("3", "A",
													     "5") "],",
			both);
	assert_string_equal(device(t, 2), "A");
	assert_string_equal(device(t, 9), "A");
	fo_trace_free(t);
	/* Two models: in their order. */
	t = read_events("\"deviceProperties\": [" DEVICE("1", "B", "6") "," DEVICE("0", "A", "5") "],", both);
	assert_string_equal(device(t, 2), "A");
	assert_string_equal(device(t, 9), "B");
	fo_trace_free(t);
	/* Two models and one that works: which it is nobody knows. A number that fits is taken as it stands. */
	t = read_events("\"deviceProperties\": [" DEVICE("1", "B", "6") "," DEVICE("0", "A", "5") "],", on2);
	assert_string_equal(device(t, 2), "");
	fo_trace_free(t);
	t = read_events("\"deviceProperties\": [" DEVICE("2", "B", "6") "," DEVICE("0", "A", "5") "],", on2);
	assert_string_equal(device(t, 2), "B");
	fo_trace_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(by_number), cmocka_unit_test(by_fewer_calls),
					    cmocka_unit_test(by_arrow), cmocka_unit_test(devices) };
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
