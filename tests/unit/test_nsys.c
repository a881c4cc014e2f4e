/* Nsight Systems exports: databases that this test writes, with every trap; real ones where FLATOUT_TRACES has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/fs.h"
#include "base/str.h"
#include "trace/trace.h"

static char dir[] = "test_nsys.XXXXXX";

static const char *in_dir(const char *name)
{
	static char path[256];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

/* A database of these statements. */
static void write_db(const char *path, const char *const *sql)
{
	sqlite3 *h;
	char *why = NULL;
	unlink(path);
	assert_int_equal(sqlite3_open(path, &h), SQLITE_OK);
	assert_int_equal(sqlite3_exec(h, "PRAGMA page_size=512; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF", NULL,
				      NULL, NULL),
			 SQLITE_OK);
	for (; *sql; sql++)
		if (sqlite3_exec(h, *sql, NULL, NULL, &why) != SQLITE_OK)
			fail_msg("%s: %s", *sql, why);
	sqlite3_close(h);
}

static struct fo_trace *open_db(const char *path)
{
	struct fo_trace *t = NULL;
	fo_status st = fo_trace_open(&t, path);
	if (st != FO_OK)
		fail_msg("%s", fo_err_text());
	return t;
}

static void refused(const char *path, const char *part)
{
	struct fo_trace *t = NULL;
	assert_int_equal(fo_trace_open(&t, path), FO_EFORMAT);
	if (!strstr(fo_err_text(), part) || strchr(fo_err_text(), '\n'))
		fail_msg("got '%s', expected '%s'", fo_err_text(), part);
}

/* Process p (from 1) as globalPid, its thread 7 as globalTid: machine bits, process, thread. */
#define PID "(281474976710656 + 16777216 * %d)"
#define TID "(281474976710656 + 16777216 * %d + 7)"

static void fill(sqlite3 *h, const char *fmt, ...)
{
	char sql[512], *why = NULL;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(sql, sizeof(sql), fmt, ap);
	va_end(ap);
	if (sqlite3_exec(h, sql, NULL, NULL, &why) != SQLITE_OK)
		fail_msg("%s: %s", sql, why);
}

static const char *const schema[] = {
	"CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)",
	"CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)",
	"INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.25.0')",
	"INSERT INTO StringIds VALUES (1, 'sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n'), (2, "
	"'ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)'),"
	"(3, 'cudaLaunchKernel_v7000'), (4, 'cudaMemcpyAsync_v3020'), (5, 'cudaStreamSynchronize_v3020'), (6, "
	"'iteration 4'), (7, 'cuLaunchKernelEx'),"
	"(8, 'pt_main_thread')",
	"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, "
	"streamId INTEGER, correlationId INTEGER,"
	" globalPid INTEGER, demangledName INTEGER, shortName INTEGER, graphNodeId INTEGER)",
	"CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, "
	"correlationId INTEGER, nameId INTEGER)",
	NULL,
};

static sqlite3 *begin(const char *path)
{
	sqlite3 *h;
	write_db(path, schema);
	assert_int_equal(sqlite3_open(path, &h), SQLITE_OK);
	return h;
}

static void kernel(sqlite3 *h, int process, int device, int64_t start, int64_t end, int correlation, int name)
{
	fill(h, "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (%lld, %lld, %d, %d, 7, %d, " PID ", %d, %d, NULL)",
	     (long long)start, (long long)end, device, process, correlation, process, name, name);
}

static void call(sqlite3 *h, int process, int64_t start, int64_t end, int correlation, int name)
{
	fill(h, "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (%lld, %lld, 0, " TID ", %d, %d)", (long long)start,
	     (long long)end, process, correlation, name);
}

static const struct fo_host_op *host(const struct fo_trace *t, const char *name)
{
	for (int64_t i = 0; i < t->op_count; i++)
		if (strcmp(fo_trace_text(t, t->op[i].name), name) == 0)
			return &t->op[i];
	return NULL;
}

/* Two processes with a GPU each, the same correlations, rows in no order, everything that an export may have. */
static void make_two_ranks(const char *path)
{
	sqlite3 *h = begin(path);
	for (int p = 2; p >= 1; p--) {
		kernel(h, p, p - 1, 5000, 9000, 12, 2);
		kernel(h, p, p - 1, 1000, 4000 + p, 11, 1);
		call(h, p, 600, 700, 12, 7);
		call(h, p, 100, 200, 11, 3);
		call(h, p, 800, 9100, 14, 5);
	}
	fill(h, "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId "
		"INTEGER, correlationId INTEGER, globalPid INTEGER,"
		"bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER)");
	fill(h,
	     "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (9500, 9600, 0, 7, 13, " PID
	     ", 4096, 1, 0, 2), (9700, 9800, 0, 7, 99, " PID ", 8, 10, 2, 2)",
	     1, 1);
	fill(h, "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER, streamId "
		"INTEGER, correlationId INTEGER, globalPid INTEGER)");
	fill(h, "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (9900, 9900, 1, 8, 0, " PID ")", 2);
	call(h, 1, 9300, 9400, 13, 4);
	/* The records of waits name device 0 whichever it is. */
	fill(h, "CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, end INTEGER, deviceId INTEGER, "
		"contextId INTEGER, streamId INTEGER,"
		"globalPid INTEGER, syncType INTEGER, eventSyncId INTEGER)");
	fill(h, "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (4100, 4200, 0, 2, 7, " PID ", 2, 55)", 2);
	fill(h,
	     "CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (eventSyncId INTEGER, streamId INTEGER, globalPid INTEGER)");
	fill(h, "INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT VALUES (55, 9, " PID "), (55, 3, " PID ")", 2, 1);
	fill(h, "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER)");
	fill(h, "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1779782330176752435)");
	fill(h, "CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT)");
	fill(h, "INSERT INTO PROCESSES VALUES (" PID ", 2, 'python3'), (" PID ", 9, 'bash')", 2, 9);
	fill(h, "CREATE TABLE ThreadNames (nameId INTEGER, globalTid INTEGER)");
	fill(h, "INSERT INTO ThreadNames VALUES (8, " TID ")", 1);
	fill(h, "CREATE TABLE PROFILER_OVERHEAD (start INTEGER, end INTEGER, globalTid INTEGER)");
	fill(h, "INSERT INTO PROFILER_OVERHEAD VALUES (10, 30, " TID "), (40, 45, " TID ")", 2, 2);
	fill(h, "CREATE TABLE DIAGNOSTIC_EVENT (text TEXT, globalPid INTEGER)");
	fill(h,
	     "INSERT INTO DIAGNOSTIC_EVENT VALUES ('Number of CUPTI events produced: 43', -144115188075855872), ('12 "
	     "CUDA events were dropped.', " PID ")",
	     1);
	sqlite3_close(h);
}

static void test_two_ranks(void **state)
{
	(void)state;
	const char *path = in_dir("two.sqlite");
	make_two_ranks(path);
	struct fo_trace *t = open_db(path), *u = t->next;
	assert_non_null(u);
	assert_null(u->next);
	assert_true(t->format == FO_TRACE_NSYS && t->device_count == 1 && u->device_count == 1);
	assert_true(t->device[0].id == 0 && u->device[0].id == 1);
	assert_true(t->origin_unix_ns == 1779782330176752435 && u->origin_unix_ns == t->origin_unix_ns);
	assert_int_equal(t->gpu_count, 4);
	assert_int_equal(u->gpu_count, 3);
	/* Sorted, named, linked to the launch of its own process. */
	assert_true(t->gpu[0].begin_ns == 1000 && t->gpu[0].end_ns == 4001 && u->gpu[0].end_ns == 4002);
	assert_true(t->gpu[0].class == FO_K_GEMM && t->gpu[1].class == FO_K_COMMUNICATION);
	for (struct fo_trace *x = t; x; x = x->next) {
		const struct fo_launch *l = &x->launch[x->gpu[0].launch];
		assert_true(l->begin_ns == 100);
		assert_string_equal(fo_trace_text(x, l->name), "cudaLaunchKernel");
		assert_string_equal(fo_trace_text(x, x->launch[x->gpu[1].launch].name), "cuLaunchKernelEx");
		assert_true(host(x, "cudaStreamSynchronize")->kind == FO_HOST_SYNC);
		assert_true(x->thread[l->thread].tid == 7 && x->defect.shared_correlations == 0);
	}
	assert_true(t->thread[0].pid == 1 && u->thread[0].pid == 2);
	assert_string_equal(fo_trace_text(t, t->thread[0].name), "pt_main_thread");
	assert_string_equal(fo_trace_text(u, u->process_name), "python3");
	/* Copies */
	assert_true(t->gpu[2].kind == FO_GPU_MEMCPY && t->gpu[2].copy == FO_COPY_H2D && t->gpu[2].bytes == 4096 &&
		    (t->gpu[2].flags & FO_GPU_PAGEABLE));
	assert_string_equal(fo_trace_text(t, t->gpu[2].name), "Memcpy HtoD (Pageable -> Device)");
	assert_true(t->gpu[3].copy == FO_COPY_P2P && !(t->gpu[3].flags & FO_GPU_PAGEABLE) && t->gpu[3].launch == -1);
	assert_true(t->defect.unlinked == 1 && u->defect.zero_duration == 1 && u->gpu[2].kind == FO_GPU_MEMSET);
	/* The wait belongs to the second process and device, and to the stream that recorded its event there. */
	assert_true(t->wait_count == 0 && u->wait_count == 1 && u->wait[0].stream == 7 && u->wait[0].on_stream == 9 &&
		    u->wait[0].device == 0);
	assert_string_equal(fo_trace_text(u, u->wait[0].kind), "Stream Wait Event");
	assert_true(t->defect.dropped_by_profiler == 12 && u->defect.dropped_by_profiler == 0);
	assert_true(t->defect.profiler_overhead_ns == 0 && u->defect.profiler_overhead_ns == 25);
	fo_trace_free(t);

	/* As a set they are two ranks, in the order of their GPUs. */
	struct fo_trace_set s;
	const char *one[] = { path };
	assert_int_equal(fo_trace_set_open(&s, one, 1), FO_OK);
	assert_int_equal(s.count, 2);
	assert_true(s.rank[0]->rank == 0 && s.rank[1]->rank == 1 && s.rank[1]->device[0].id == 1 && !s.rank[0]->next);
	fo_trace_set_fini(&s);
}

/* Both processes call their GPU 0. */
static void test_visible_devices(void **state)
{
	(void)state;
	const char *path = in_dir("visible.sqlite");
	for (int how = 0; how < 3; how++) {
		sqlite3 *h = begin(path);
		for (int p = 1; p <= 2; p++)
			kernel(h, p, 0, 1000 * p, 1000 * p + 900, 5, how == 1 ? 2 : 1),
				call(h, p, 10 * p, 10 * p + 5, 5, 3);
		if (how == 2) {
			fill(h, "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER)");
			fill(h, "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (6, 0, 1), (3, 0, 2)");
			fill(h, "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, totalMemory INTEGER, smCount "
				"INTEGER, computeMajor INTEGER)");
			fill(h, "INSERT INTO TARGET_INFO_GPU VALUES (6, 'NVIDIA H100 80GB HBM3', 85028765696, 132, 9)");
		}
		sqlite3_close(h);
		struct fo_trace *t = open_db(path);
		if (how == 0) { /* nothing tells, and they do not communicate: one GPU that both use */
			assert_true(!t->next && t->gpu_count == 2 && t->device_count == 1 && t->device[0].id == 0);
			/* Correlations are a process's own. */
			assert_true(t->launch[t->gpu[0].launch].begin_ns == 10 &&
				    t->launch[t->gpu[1].launch].begin_ns == 20 && !t->defect.shared_correlations);
		} else if (how == 1) { /* two that communicate are on two GPUs */
			assert_true(t->next && t->gpu_count == 1 && t->device[0].id == 0 && t->next->device[0].id == 1);
		} else { /* the table tells */
			assert_true(t->next && t->device[0].id == 3 && t->next->device[0].id == 6);
			assert_true(t->device[0].name < 0 && t->next->device[0].sm_count == 132 &&
				    t->next->device[0].capability_major == 9);
			assert_string_equal(fo_trace_text(t->next, t->next->device[0].name), "NVIDIA H100 80GB HBM3");
		}
		fo_trace_free(t);
	}
	/* One process with two GPUs is one trace. */
	sqlite3 *h = begin(path);
	kernel(h, 1, 1, 1000, 2000, 5, 1);
	kernel(h, 1, 0, 1000, 2000, 6, 1);
	kernel(h, 2, 2, 1000, 2000, 6, 1);
	sqlite3_close(h);
	struct fo_trace *t = open_db(path);
	assert_true(t->device_count == 2 && t->next && t->next->device_count == 1 && t->next->device[0].id == 2 &&
		    !t->next->next);
	fo_trace_free(t);
}

static void test_ranges(void **state)
{
	(void)state;
	const char *path = in_dir("ranges.sqlite");
	sqlite3 *h = begin(path);
	kernel(h, 1, 0, 1000, 2000, 5, 1);
	call(h, 1, 510, 520, 5, 3);
	fill(h, "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid "
		"INTEGER, textId INTEGER, domainId INTEGER)");
	fill(h,
	     "INSERT INTO NVTX_EVENTS VALUES (3000, 4000, 59, 'iteration 5', " TID
	     ", NULL, 0), (500, 2900, 59, NULL, " TID ", 6, 0)",
	     1, 1);
	fill(h,
	     "INSERT INTO NVTX_EVENTS VALUES (505, 900, 60, 'step 1', " TID ", NULL, 0), (501, 700, 59, 'step', " TID
	     ", NULL, 0)",
	     1, 1); /* inside */
	fill(h,
	     "INSERT INTO NVTX_EVENTS VALUES (506, 600, 59, 'aten::mm, seq = 12, op_id = 3, sizes = [[2, 4], [4, 8]], "
	     "input_op_ids = [(1,0)]', " TID ", NULL, 0)",
	     1);
	fill(h,
	     "INSERT INTO NVTX_EVENTS VALUES (10, 20, 59, 'dataloader next_batch', " TID
	     ", NULL, 0), (5000, NULL, 59, 'open', " TID ", NULL, 0)",
	     1, 1);
	fill(h,
	     "INSERT INTO NVTX_EVENTS VALUES (7, NULL, 34, 'a mark', " TID ", NULL, 0), (NULL, NULL, 75, 'NCCL', " TID
	     ", NULL, 1)",
	     1, 1);
	fill(h,
	     "INSERT INTO NVTX_EVENTS VALUES (9, 5, 59, 'backwards in time', " TID
	     ", NULL, 0), (1, 2, 59, 'another process', " TID ", NULL, 0)",
	     1, 3);
	sqlite3_close(h);
	struct fo_trace *t = open_db(path);
	assert_int_equal(t->step_count, 2);
	assert_true(t->step[0].number == 4 && t->step[0].begin_ns == 500 && t->step[0].end_ns == 2900 &&
		    t->step[1].number == 5);
	const struct fo_host_op *mm = host(t, "aten::mm");
	assert_true(mm && mm->kind == FO_HOST_OP && mm->sequence == 12 && t->gpu[0].op == mm - t->op);
	assert_string_equal(fo_trace_text(t, mm->shapes), "[[2, 4], [4, 8]]");
	assert_true(host(t, "iteration 4")->kind == FO_HOST_NOTE &&
		    host(t, "dataloader next_batch")->kind == FO_HOST_DATA);
	assert_null(host(t, "open"));
	assert_null(host(t, "a mark"));
	assert_null(host(t, "another process"));
	assert_int_equal(t->defect.malformed, 1);
	fo_trace_free(t);
}

/* Graphs as a whole, versions of tables, absent columns and tables, no GPU work at all. */
static void test_schemas(void **state)
{
	(void)state;
	const char *path = in_dir("schemas.sqlite");
	sqlite3 *h = begin(path);
	fill(h, "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL");
	fill(h, "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, streamId "
		"INTEGER, correlationId INTEGER, globalPid INTEGER,"
		"graphId INTEGER)");
	fill(h, "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (100, 300, 0, 7, 4, " PID ", 21)", 1);
	sqlite3_close(h);
	struct fo_trace *t = open_db(path);
	assert_true(t->gpu_count == 1 && (t->gpu[0].flags & FO_GPU_GRAPH) && t->defect.graph_granularity);
	assert_string_equal(fo_trace_text(t, t->gpu[0].name), "CUDA graph 21");
	fo_trace_free(t);

	/* The newest version of a table counts; an export of few columns says nothing of processes. */
	static const char *const few[] = {
		"CREATE TABLE stringids (id INTEGER, VALUE TEXT)",
		"INSERT INTO stringids VALUES (1, 'nvjet_tst_128x64'), (1, 'a second of that id')",
		"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER)",
		"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2)",
		"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL_V3 (start INTEGER, end INTEGER, deviceId INTEGER, "
		"correlationId INTEGER, shortName INTEGER)",
		"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL_V3 VALUES (100, 200, 3, 9, 1), ('100', 'x', 3, NULL, 1), (400, "
		"300, 3, -5, NULL), (1e300, 2, 3, 8, 1)",
		"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL_V2 (start INTEGER)",
		"CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, "
		"correlationId INTEGER)",
		"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 20, 1, 9)",
		NULL,
	};
	write_db(path, few);
	t = open_db(path);
	assert_true(!t->next && t->gpu_count == 2 && t->defect.malformed == 2 && t->defect.negative_duration == 1);
	assert_true(t->gpu[0].begin_ns == 100 && t->device[0].id == 3 && t->gpu[0].launch == 0 &&
		    t->gpu[0].class == FO_K_GEMM);
	fo_trace_free(t);

	static const char *const none[] = {
		"CREATE TABLE StringIds (id INTEGER, value TEXT)",
		"CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER)",
		"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS end, 0 AS deviceId", NULL
	};
	write_db(path, none);
	t = open_db(path);
	assert_true(t->gpu_count == 0 && t->op_count == 0 && !t->next); /* a view is no table */
	fo_trace_free(t);
}

static void test_refusals(void **state)
{
	(void)state;
	const char *path = in_dir("odd #1?mode=rwc%20.sqlite");
	static const char *const foreign[] = { "CREATE TABLE people (name TEXT)", NULL };
	static const char *const half[] = { "CREATE TABLE StringIds (id INTEGER)",
					    "CREATE TABLE META_DATA_EXPORT (name TEXT)", NULL };
	static const char *const timeless[] = {
		"CREATE TABLE StringIds (id INTEGER, value TEXT)",
		"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (deviceId INTEGER, globalPid INTEGER, start INTEGER)", NULL
	};
	write_db(path, foreign);
	refused(path, "no export of Nsight Systems");
	assert_non_null(strstr(fo_err_hint(), "nsys export --type=sqlite"));
	write_db(path, half);
	refused(path, "table 'StringIds' has no column 'value'");
	write_db(path, timeless);
	refused(path, "table 'CUPTI_ACTIVITY_KIND_KERNEL' has no column 'end'");

	/* Cut off, and with a page that leads back to the first. */
	sqlite3 *h = begin(path);
	for (int i = 0; i < 200; i++)
		kernel(h, 1, 0, i * 10, i * 10 + 5, i, 1);
	sqlite3_close(h);
	struct fo_arena a = { 0 };
	char *bytes;
	size_t n;
	assert_int_equal(fo_fs_read(&a, path, 1 << 24, &bytes, &n), FO_OK);
	assert_int_equal(fo_fs_write_atomic(path, bytes, n / 2), FO_OK);
	refused(path, "is damaged");
	for (size_t page = 512; page + 512 <= n; page += 512)
		if ((unsigned char)bytes[page] ==
		    5) { /* an inner page of a table: all its children are its first leaf */
			size_t cells = (unsigned char)bytes[page + 3] * 256u + (unsigned char)bytes[page + 4],
			       first = (unsigned char)bytes[page + 12] * 256u + (unsigned char)bytes[page + 13];
			for (size_t i = 1; i < cells; i++) {
				size_t at = (unsigned char)bytes[page + 12 + 2 * i] * 256u +
					    (unsigned char)bytes[page + 13 + 2 * i];
				memcpy(bytes + page + at, bytes + page + first, 4);
			}
		}
	assert_int_equal(fo_fs_write_atomic(path, bytes, n), FO_OK);
	struct fo_trace *t = NULL;
	if (fo_trace_open(&t, path) == FO_OK) /* rows come twice, but no more than the file could hold */
		assert_true(t->gpu_count < (int64_t)n);
	fo_trace_free(t);
	fo_arena_fini(&a);
}

/* ---- real exports ---- */

static int64_t by_class(const struct fo_trace *t, int what)
{
	/* Operations are sorted by begin and each trace here has one device: a union is one pass. */
	int64_t sum = 0, end = INT64_MIN;
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		int is = g->kind != FO_GPU_KERNEL ? 2 : g->class == FO_K_COMMUNICATION ? 1 : 0;
		if (what != 3 && what != is)
			continue;
		int64_t from = g->begin_ns > end ? g->begin_ns : end;
		sum += g->end_ns > from ? g->end_ns - from : 0;
		end = g->end_ns > end ? g->end_ns : end;
	}
	return sum;
}

static void test_real(void **state)
{
	(void)state;
	const char *root = getenv("FLATOUT_TRACES");
	if (!root)
		skip();
	/* The reference program's integers: compute, communication, copies, busy. */
	static const struct {
		const char *file;
		int64_t ns[2][4];
	} known[] = {
		{ "nsys_h100_mfu_before/mfu_2gpu_before.sqlite",
		  { { 253690832, 17172652, 2954303, 273817787 }, { 256095624, 8229100, 2951192, 267275916 } } },
		{ "nsys_h100_mfu_after/mfu_2gpu_after.sqlite",
		  { { 227484352, 9989016, 2635381, 240108749 }, { 227608953, 23753085, 2638716, 254000754 } } },
		{ "nsys_mock_small/mock.sqlite", { { 4129, 0, 1632, 5761 }, { 0, 0, 0, 0 } } },
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		char path[512];
		snprintf(path, sizeof(path), "%s/%s", root, known[i].file);
		struct fo_trace *t = open_db(path);
		int process = 0;
		for (const struct fo_trace *x = t; x; x = x->next, process++)
			for (int what = 0; what < 4; what++)
				assert_int_equal(by_class(x, what), known[i].ns[process][what]);
		assert_int_equal(process, known[i].ns[1][0] ? 2 : 1);
		fo_trace_free(t);
	}
	char path[512];
	snprintf(path, sizeof(path), "%s/nsys_no_gpu_work/profile.sqlite", root);
	struct fo_trace *t = open_db(path);
	assert_true(t->gpu_count == 0 && !t->next && t->op_count > 0);
	fo_trace_free(t);
}

static int start(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int finish(void **state)
{
	(void)state;
	return fo_fs_remove_tree(dir) == FO_OK ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_ranks), cmocka_unit_test(test_visible_devices), cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_schemas),   cmocka_unit_test(test_refusals),        cmocka_unit_test(test_real),
	};
	return cmocka_run_group_tests(tests, start, finish);
}
