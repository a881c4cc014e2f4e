/* Files that are no trace: each known format is named, by what stands in it and else by its name, with what to do
 * instead. */
#include "base/fs.h"
#include "base/mem.h"
#include "trace/foreign.h"
#include "trace/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "support/scratch.h"

static const char *put(const char *name, const void *bytes, size_t n, bool pack)
{
	static char path[128];
	snprintf(path, sizeof path, "%s/%s", fo_scratch, name);
	if (pack) {
		gzFile f = gzopen(path, "wb");
		assert_int_equal(gzwrite(f, bytes, (unsigned)n), n);
		assert_int_equal(gzclose(f), Z_OK);
		return path;
	}
	FILE *f = fopen(path, "we");
	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
	return path;
}

/* One sentence that names the format, and a hint. */
static void refused(const char *path, const char *says)
{
	struct fo_trace *t;
	fo_err_clear();
	fo_status st = fo_trace_open(&t, path);
	if (st != FO_EFORMAT || !strstr(fo_err_text(), says))
		fail_msg("%s: status %d, '%s', expected '%s'", path, st, fo_err_text(), says);
	assert_true(*fo_err_hint());
	assert_null(strchr(fo_err_text(), '\n'));
}

#define CHROME(event) "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [" event "]}"
#define BYTES(text) text, sizeof(text) - 1

/* By content: the names say nothing. */
static void by_content(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		size_t n;
		const char *says;
	} rows[] = {
		{ BYTES("NVR\0\x10\0\0\0profile"), "Nsight Compute" },
		{ BYTES("\x80\x02}q\0(X\x07\0\0\0versionX\x03\0\0\0002.4X\x09\0\0\0pg_config}u."), "flight recorder" },
		{ BYTES("{\"version\": \"2.10\", \"nccl_version\": \"2.21.5\", \"pg_config\": {}, \"entries\": "
			"[{\"state\": \"completed\"}]}"),
		  "flight recorder" },
		{ BYTES("\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94(\x8c\x08segments\x94]\x94\x8c\x0d"
			"device_traces\x94]\x94u."),
		  "memory snapshot" },
		{ BYTES("\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94\x8c\x05hello\x94K\x01s."), "pickle" },
		{ BYTES("[[1700000000000000, 1, 4096, 2], [1700000000000100, 2, 4096, 2]]"), "memory timeline" },
		{ BYTES("{\"rocprofiler-sdk-tool\": [{\"metadata\": {\"pid\": 5}}]}"), "rocprofv3" },
		{ BYTES("\"Kind\",\"Agent_Id\",\"Queue_Id\",\"Kernel_Name\"\n\"KERNEL_DISPATCH\",1,1,\"k\"\n"),
		  "rocprof" },
		{ BYTES("{\"schema\": \"1.1.1-chakra.0.0.4\", \"pid\": 3, \"nodes\": [{\"id\": 1, \"name\": "
			"\"[pytorch|profiler|execution_trace|process]\", \"ctrl_deps\": 1}]}"),
		  "Chakra" },
		{ BYTES("\x14\x0a\x12"
			"1.1.1-chakra.0.0.4\x20\x08\x01\x12\x05hello\x1a\x09is_cpu_op\0\0"),
		  "Chakra" },
		{ BYTES("\x0a\x18\x08\x01\x12\x0d/device:GPU:0\x1a\x05\x08\x01\x12\x01s"), "XLA" },
		{ BYTES("\x0a\x04\x50\x01\x40\x05\x0a\x04\x50\x01\x40\x06\x0a\x04\x50\x01\x40\x07"), "Perfetto" },
		{ BYTES("PK\x03\x04\x14\0\0\0data.pkl"), "ZIP" },
		{ BYTES("\xfd"
			"7zXZ\0\0\x04\xe6"),
		  "xz" },
		{ BYTES("BZh91AY&SY\0\x01"), "bzip2" },
		{ BYTES("PAR1\x15\0\x15\x10"), "Parquet" },
		{ BYTES("\0\0\0\0\x01\x02QDREP\x01\x02"), "Nsight Systems" },
		{ BYTES("\x18\0\0\0\0\0\0\0brain.Event:2"), "TensorBoard" },
		{ BYTES("{\"displayTimeUnit\":\"ns\",\"metadata\":{\"highres-ticks\":true},\"traceEvents\":[{\"ph\":"
			"\"M\",\"pid\":1,\"name\":\"process_name\","
			"\"args\":{\"name\":\"/"
			"device:GPU:0\"}},{\"ph\":\"X\",\"pid\":1,\"tid\":2,\"ts\":1.5,\"dur\":2.5,\"name\":\"gemm_"
			"fusion\"}]}"),
		  "JAX" },
		{ BYTES(CHROME("{\"ph\": \"X\", \"cat\": \"devtools.timeline\", \"name\": \"RunTask\", \"ts\": 1, "
			       "\"dur\": 2, \"pid\": 1, \"tid\": 1}")),
		  "browser" },
		{ BYTES(CHROME(
			  "{\"ph\": \"X\", \"cat\": \"mtia_ccp_events\", \"name\": \"x\", \"ts\": 1, \"dur\": 1}")),
		  "MTIA" },
		{ BYTES("[{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 2, \"args\": {\"name\": \"Ascend "
			"Hardware\"}}]"),
		  "Ascend" },
		{ BYTES(CHROME(
			  "{\"ph\": \"X\", \"cat\": \"forward-compute\", \"name\": \"f\", \"ts\": 1, \"dur\": 1}")),
		  "pipeline schedule" },
		{ BYTES("{\"step\": 1, \"loss\": 10.9}\n{\"step\": 2, \"loss\": 10.1}\n"), "JSON object in each line" },
		{ BYTES("Time (%),Total Time (ns),Instances,Name\n50.0,1000,3,k\n"), "statistics" },
		{ BYTES("<!DOCTYPE html>\n<html><body>step 5</body></html>"), "page" },
		{ BYTES("# a run\n[model]\nlayers = 4\n\n[training]\nsteps = 100\n"), "TOML" },
		{ BYTES("[model]\nlayers = 4\n"), "TOML" },
		{ BYTES("steps = 100\nlr = 0.1\n"), "TOML" },
		{ BYTES("2026-01-31 12:00:00 INFO starting\n2026-01-31 12:00:01 INFO iteration 5 | lm loss: 10.5 |\n"),
		  "training log" },
		{ BYTES("step 5 is where it hangs, they say\n"), "a text, no JSON" },
		{ BYTES("{\"global_step\": 5, \"log_history\": [{\"loss\": 2.5, \"step\": 5}]}"), "Trainer" },
		{ BYTES("[2026-01-31 12:00:00] INFO hello\n[2026-01-31 12:00:01] step 5 loss 10.5\n"), "training log" },
		{ BYTES("[rank0]: hello\n[rank0]: step: 5 loss: 10.5\n"), "training log" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		refused(put("unnamed", rows[i].text, rows[i].n, false), rows[i].says);
		/* The same packed, under the name of a trace. */
		refused(put("trace.json.gz", rows[i].text, rows[i].n, true), rows[i].says);
	}
}

/* A member's name and content may be those of any other format. */
static void archive(void **state)
{
	(void)state;
	char tar[1024] = "rank0_kernel_trace.json";
	memcpy(tar + 257,
	       "ustar\0"
	       "00",
	       8);
	snprintf(tar + 512, 512, "{\"traceEvents\": [{\"args\": \"is_cpu_op\"}]}");
	refused(put("unnamed", tar, sizeof tar, false), "an archive (tar)");
	refused(put("traces.json.gz", tar, sizeof tar, true), "an archive (tar)");
	assert_non_null(strstr(fo_err_hint(), "unpack it"));
}

static void by_name(void **state)
{
	(void)state;
	static const struct {
		const char *name, *says;
	} rows[] = {
		{ "r.ncu-rep", "Nsight Compute" },  { "traces.tar.gz", "an archive (tar)" },
		{ "r.pickle", "pickle" },           { "nccl_trace_rank_3", "flight recorder" },
		{ "h.xplane.pb", "XLA" },           { "r.pftrace", "Perfetto" },
		{ "rank0.et", "Chakra" },           { "memory_timeline.raw", "timeline" },
		{ "r.nsys-rep", "Nsight Sys" },     { "5_kernel_trace.csv", "rocprof" },
		{ "mem_snapshot.bin", "snapshot" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		refused(put(rows[i].name, BYTES("\x01\x02\x03 nothing known"), false), rows[i].says);
	/* What stands in the file goes before its name. */
	refused(put("r.ncu-rep", BYTES("\x80\x04\x95}\x94(\x8c\x08segments\x94]\x94u."), false), "memory snapshot");
}

/* JSON that is no trace and has no name of its own. */
static void nobodys(void **state)
{
	(void)state;
	static const char *const text[] = {
		"[1,2,3]",
		"[]",
		"[[[]]]",
		"[true]",
		"[\"a\"]",
		"{\"traceEvents\": []}",
		"{\"a\": {\"b\": 1}}",
		"[{\"step\": 5}]",
		CHROME("{\"ph\": \"X\", \"cat\": \"mine\", \"name\": \"f\", \"ts\": 1, \"dur\": 1}")
	};
	for (size_t i = 0; i < sizeof text / sizeof *text; i++)
		refused(put("t.json", text[i], strlen(text[i]), false), "no trace of the PyTorch profiler");
	enum { DEEP = 100000 };
	char *deep = malloc(2 * DEEP);
	memset(deep, '[', DEEP);
	memset(deep + DEEP, ']', DEEP);
	refused(put("deep.json", deep, 2 * DEEP, false), "no trace of the PyTorch profiler");
	refused(put("open.json", deep, DEEP, false), "no trace of the PyTorch profiler");
	free(deep);
}

/* A word of another format in an event's name makes a trace of the profiler nobody else's. */
static void still_traces(void **state)
{
	(void)state;
	static const char *const text[] = {
		"{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"/host:CPU rf_id Ascend "
		"Hardware\", \"pid\": 1, \"tid\": 1, \"ts\": 1, \"dur\": 1}]}",
		"{\"schemaVersion\": 1, \"traceEvents\": []}",
		"[{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"step loss 5\", \"pid\": 0, \"tid\": 7, \"ts\": 1, "
		"\"dur\": 1}]",
		"{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"Kernel\", \"name\": \"k\", \"pid\": 0, \"tid\": 7, "
		"\"ts\": 1, \"dur\": 1}",
	};
	struct fo_trace *t;
	for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
		if (fo_trace_open(&t, put("memory_timeline.json", text[i], strlen(text[i]), false)) != FO_OK)
			fail_msg("%s", fo_err_text());
		fo_trace_free(t);
	}
}

/* The page about the command lists every format. */
static void documented(void **state)
{
	(void)state;
	const char *root = getenv("FLATOUT_SOURCE");
	char path[4096], *page;
	struct fo_arena a = { 0 };
	size_t n;
	snprintf(path, sizeof path, "%s/docs/commands/diagnose.md", root && *root ? root : ".");
	if (!fo_fs_exists(path))
		skip();
	assert_int_equal(fo_fs_read(&a, path, 1 << 20, &page, &n), FO_OK);
	for (int i = 0; fo_foreign_at(i); i++) {
		const struct fo_foreign *f = fo_foreign_at(i);
		const char *name = f->what;
		name += !strncmp(name, "an ", 3) ? 3 : !strncmp(name, "a ", 2) ? 2 : 0;
		char want[160];
		size_t len = strcspn(name, "(,");
		snprintf(want, sizeof want, "| %.*s", (int)(len && name[len - 1] == ' ' ? len - 1 : len), name);
		if (!strstr(page, want))
			fail_msg("docs/commands/diagnose.md does not list '%s'", want);
	}
	fo_arena_fini(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_content), cmocka_unit_test(archive),      cmocka_unit_test(by_name),
		cmocka_unit_test(nobodys),    cmocka_unit_test(still_traces), cmocka_unit_test(documented),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
