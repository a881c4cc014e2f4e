/* Names known formats that have no reader here. One table says how each is recognised, what it is called and what to do
 * instead. */
#define _GNU_SOURCE /* memmem */
#include "trace/foreign.h"

#include "trace/schedule_int.h"
#include "trace/unpack.h"

#include "base/str.h"
#include "base/count.h"
#include "base/text.h"
#include "timeline/timeline.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
	HEAD_BYTES = 64 << 10, /* of the unpacked file; the keys and names that tell formats apart stand in front */
	MOST_SIGNS = 8,
	MOST_NAMES = 5,
};

/* The kind of a file's content; each row of the table names the kinds it can be. */
enum { JSON = 1, TEXT = 2, BINARY = 4 };

struct head {
	char *p;
	size_t n;
	int kind;
	bool whole; /* the file ends where this does */
};

struct row {
	struct fo_foreign says;
	int kind;
	const char *begin; /* the first bytes; NULL: any */
	size_t begin_n;
	const char *all[3];          /* each of them stands in the head */
	const char *any[MOST_SIGNS]; /* and one of these, if there are any */
	bool (*test)(const struct head *h);
	const char *name[MOST_NAMES]; /* endings, or parts where they begin with '*' */
};

#define MAGIC(text) .begin = text, .begin_n = sizeof(text) - 1

/* ---- what no list of words tells ---- */

static bool holds(const struct head *h, size_t within, const char *word)
{
	return memmem(h->p, fo_min(h->n, within), word, strlen(word)) != NULL;
}

/* One field of a protobuf at p: the tag's number and, where it has one, its content. false: no such field. */
static bool field(const char *text, size_t n, int *number, size_t *content, size_t *length)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t v = 0, at = 1;
	int shift = 0;
	*number = n ? p[0] >> 3 : 0;
	if (!n || (p[0] & 7) != 2 || !*number)
		return false;
	for (;; shift += 7) {
		if (at >= n || shift > 35)
			return false;
		v |= (size_t)(p[at] & 127) << shift;
		if (!(p[at++] & 128))
			break;
	}
	*content = at;
	*length = v;
	return true;
}

/* Is the head a sequence of packets, all of field 1? */
static bool is_packets(const struct head *h)
{
	size_t at = 0, content, length;
	int number, packets = 0;
	while (at < h->n) {
		if (!field(h->p + at, h->n - at, &number, &content, &length) || number != 1 || length < 2)
			return false;
		packets++;
		if (length > h->n - at - content)
			return packets > 2 && !h->whole;
		at += content + length;
	}
	return packets > 1;
}

/* XSpace of XLA and TensorFlow: its planes are named "/host:CPU", "/device:GPU:0", and a name stands at a plane's
 * front. */
static bool is_xplane(const struct head *h)
{
	enum { FRONT = 64 }; /* tag and length of the first plane, its id, tag and length of its name */
	size_t content, length;
	int number;
	return field(h->p, h->n, &number, &content, &length) && number == 1 &&
	       (holds(h, FRONT, "/host:") || holds(h, FRONT, "/device:") || holds(h, FRONT, "Task Environment"));
}

static const char *line_end(const char *p, const char *end)
{
	const char *nl = memchr(p, '\n', (size_t)(end - p));
	return nl ? nl : end;
}

/* [section] or key = value, comments before it. */
static bool is_toml(const struct head *h)
{
	const char *p = h->p, *end = p + h->n;
	bool assigned = false;
	for (int lines = 0; p < end && lines < 64; lines++) {
		const char *stop = line_end(p, end), *a = p, *key;
		while (a < stop && isspace((unsigned char)*a))
			a++;
		p = stop < end ? stop + 1 : end;
		if (a == stop || *a == '#')
			continue;
		bool table = *a == '[';
		a += strspn(a, "[");
		key = a;
		while (a < stop && (isalnum((unsigned char)*a) || strchr("_-. \"'", *a)))
			a++;
		if (a == key || !(isalpha((unsigned char)*key) || *key == '_') || a >= stop)
			return false;
		if (table ? *a != ']' : *a != '=')
			return assigned;
		assigned |= !table; /* [true] is JSON, too */
	}
	return assigned;
}

/* Counts the words of a training loop in a line that have a figure after them: "step 5", "lm loss: 10.5", "iter=3". */
static int figures_in(const char *line, const char *stop)
{
	static const char *const word[] = { "loss", "step", "iter", "iteration", "epoch", "tokens", "lr", "samples" };
	int n = 0;
	for (const char *p = line; p < stop; p++)
		for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
			size_t len = strlen(word[i]);
			if (strncasecmp(p, word[i], len) != 0 || (p > line && isalpha((unsigned char)p[-1])))
				continue;
			const char *q = p + len + strspn(p + len, " \t:=|'\"/_-[");
			n += isdigit((unsigned char)*q) != 0 && q > p + len;
		}
	return n;
}

/* Has some line two such figures? Prose has one now and then. */
static bool has_log_line(const struct head *h)
{
	const char *p = h->p, *end = p + h->n;
	bool found = false;
	for (int lines = 0; p < end && lines < 1000 && !found; lines++) {
		const char *stop = line_end(p, end);
		found = figures_in(p, stop - p < 512 ? stop : p + 511) > 1;
		p = stop < end ? stop + 1 : end;
	}
	return found;
}

/* Lines of text; where the first begins with a bracket, as "[2026-01-31 12:00:00] step 5", a word stands behind the
 * closing one. */
static bool is_log(const struct head *h)
{
	const char *p = h->p, *stop = line_end(p, p + h->n);
	if (h->kind == JSON) {
		const char *close = memchr(p, ']', (size_t)(stop - p)), *first = p;
		while (first < stop && isspace((unsigned char)*first))
			first++;
		if (first == stop || *first != '[' || !close ||
		    !isalpha((unsigned char)close[1 + strspn(close + 1, ": [")]))
			return false;
	}
	return has_log_line(h);
}

/* One JSON object in each line: a log for machines. An object over several lines is none. */
static bool is_json_lines(const struct head *h)
{
	const char *p = h->p, *stop = line_end(p, p + h->n), *last = stop;
	while (last > p && isspace((unsigned char)last[-1]))
		last--;
	return *p == '{' && last > p && last[-1] == '}' && stop < p + h->n &&
	       (stop + 1 == p + h->n || stop[1] == '{') && !memmem(h->p, h->n, "traceEvents", 11) && has_log_line(h);
}

static bool is_schedule(const struct head *h) { return fo_schedule_begins(h->p); }

static bool is_any_text(const struct head *h)
{
	size_t at = 0;
	while (at < h->n && isspace((unsigned char)h->p[at]))
		at++;
	return at < h->n;
}

/* [[1700000000000, 0, 4096, 2], ...]: time, action, bytes, category. */
static bool is_memory_timeline(const struct head *h)
{
	const char *p = h->p, *end = p + h->n;
	int brackets = 0, commas = 0;
	for (; p < end && (isspace((unsigned char)*p) || *p == '['); p++)
		brackets += *p == '[';
	for (; brackets == 2 && p < end && (isdigit((unsigned char)*p) || strchr("-., \t\r\n", *p)); p++)
		commas += *p == ',';
	return brackets == 2 && p < end && *p == ']' && commas == 3;
}

static bool is_nsys_report(const struct head *h)
{
	enum { FRONT = 64 }; /* its magic stands there; further in the letters may be anybody's */
	return holds(h, FRONT, "QDREP") || holds(h, FRONT, "QDSTRM") || holds(h, FRONT, "NSYS");
}

static bool is_tar(const struct head *h)
{
	enum { MAGIC_AT = 257 }; /* in the header of the first member, POSIX.1 */
	return h->n >= MAGIC_AT + 5 && memcmp(h->p + MAGIC_AT, "ustar", 5) == 0;
}

/* ---- the table ---- */

#define RECORD "record the step with PyTorch's profiler or Nsight Systems: docs/traces.md has the lines"
#define ROCPROF                                                                                                        \
	"record the step with PyTorch's profiler, which on ROCm sees the same kernels and the operators around them: " \
	"docs/traces.md"
#define NSYS                                                                                                        \
	"record it with Nsight Systems: nsys profile -t cuda,nvtx -o r python train.py; nsys export --type sqlite " \
	"r.nsys-rep"

static const char mtia[] = "\"mtia_";

/* The first row that fits names the file, so special rows stand in front of general ones. docs/commands/diagnose.md has
 * the same list. */
static const struct row rows[] = {
	{ { "an archive (tar)", "unpack it and give its traces, or their folder: tar -xf FILE" },
	  BINARY,
	  .test = is_tar,
	  .name = { ".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz" } },
	{ { "a report of Nsight Systems, whose format is closed", NULL },
	  BINARY,
	  .test = is_nsys_report,
	  .name = { ".nsys-rep", ".qdrep", ".qdstrm" } },
	{ { "a report of Nsight Compute", "it measures single kernels, not where a step's time goes: " RECORD },
	  BINARY,
	  MAGIC("NVR\0"),
	  .name = { ".ncu-rep", ".nsight-cuprof-report" } },
	{ { "a dump of PyTorch's flight recorder",
	    "it tells which collective hung (torchfrtrace reads it), not where time went: " RECORD },
	  BINARY,
	  MAGIC("\x80"),
	  .any = { "pg_config", "pg_status", "collective_seq_id", "comm_lib_version", "nccl_version" },
	  .name = { "*nccl_trace_rank_", "*comm_lib_trace_rank_" } },
	{ { "a dump of PyTorch's flight recorder",
	    "it tells which collective hung (torchfrtrace reads it), not where time went: " RECORD },
	  JSON,
	  .all = { "\"entries\"" },
	  .any = { "\"pg_config\"", "\"collective_seq_id\"", "\"comm_lib_version\"", "\"nccl_version\"" } },
	{ { "a memory snapshot of PyTorch",
	    "it tells who holds memory (open it at pytorch.org/memory_viz), not where time went: " RECORD },
	  BINARY,
	  MAGIC("\x80"),
	  .any = { "device_traces", "segments", "allocator_settings" },
	  .name = { "*memory_snapshot", "*mem_snapshot" } },
	{ { "a memory snapshot of PyTorch",
	    "it tells who holds memory (open it at pytorch.org/memory_viz), not where time went: " RECORD },
	  JSON,
	  .all = { "\"segments\"", "\"device_traces\"" } },
	{ { "a pickle of Python", "traces are JSON or SQLite: prof.export_chrome_trace(FILE) writes one" },
	  BINARY,
	  MAGIC("\x80"),
	  .name = { ".pickle", ".pkl" } },
	{ { "a memory timeline of the PyTorch profiler",
	    "it has bytes over time, no kernels: prof.export_chrome_trace(FILE) of the same profiler writes the "
	    "trace" },
	  JSON,
	  .test = is_memory_timeline,
	  .name = { "*memory_timeline", "*memory-timeline" } },
	{ { "an output of rocprofv3 (JSON)", ROCPROF }, JSON, .all = { "rocprofiler-sdk" } },
	{ { "an output of rocprof (CSV)", ROCPROF },
	  TEXT,
	  .any = { "\"Kernel_Name\"", "\"Agent_Id\"", "\"Kind\",\"Domain\",\"Function\"", "\"KernelName\"",
		   "Index,KernelName" },
	  .name = { "_kernel_trace.csv", "_hip_api_trace.csv", "_memory_copy_trace.csv", "_hsa_api_trace.csv" } },
	{ { "a database of rocprofv3 (rocpd)", ROCPROF }, BINARY, MAGIC("SQLite format 3"), .all = { "rocpd_" } },
	{ { "an execution trace of PyTorch (Chakra)", "it has operators and their order, no times of the GPU: "
						      "prof.export_chrome_trace(FILE) of the same run writes those" },
	  JSON,
	  .all = { "\"nodes\"" },
	  .any = { "chakra", "\"ctrl_deps\"", "\"rf_id\"", "execution_trace", "\"schema\"" } },
	{ { "a profile of XLA (xplane: JAX, TensorFlow, PyTorch/XLA)", NSYS },
	  BINARY,
	  .test = is_xplane,
	  .name = { ".xplane.pb" } },
	{ { "an execution trace in Chakra's format", "it has operators and their order, no times of the GPU: " RECORD },
	  BINARY,
	  .any = { "chakra", "is_cpu_op", "comm_type" },
	  .name = { ".et" } },
	{ { "a Perfetto trace (protobuf)", "what is read is the JSON of PyTorch's profiler: " RECORD },
	  BINARY,
	  .test = is_packets,
	  .name = { ".pftrace", ".perfetto-trace", ".perfetto" } },
	{ { "a ZIP archive", "unpack it; what is read packed is .gz and .zst" },
	  BINARY,
	  MAGIC("PK\x03\x04"),
	  .name = { ".zip", ".npz" } },
	{ { "a file packed with xz", "unpack it (xz -d FILE); what is read packed is .gz and .zst" },
	  BINARY | TEXT,
	  MAGIC("\xfd"
		"7zXZ"),
	  .name = { ".xz" } },
	{ { "a file packed with bzip2", "unpack it (bzip2 -d FILE); what is read packed is .gz and .zst" },
	  BINARY | TEXT,
	  MAGIC("BZh"),
	  .name = { ".bz2" } },
	{ { "an Arrow or Parquet file",
	    "of Nsight Systems export SQLite instead: nsys export --type sqlite REPORT.nsys-rep" },
	  BINARY,
	  .any = { "PAR1", "ARROW1" },
	  .name = { ".parquet", ".arrow", ".parquetdir", ".arwdir" } },
	{ { "an event file of TensorBoard", "it has curves, no times of the GPU: " RECORD },
	  BINARY,
	  .all = { "brain.Event:" },
	  .name = { "*events.out.tfevents" } },
	{ { "a trace of an MTIA accelerator (\"mtia_ccp_events\")",
	    "its work is not read; what is: CUDA, ROCm and XPU traces, with events of the category \"kernel\"" },
	  JSON,
	  .any = { mtia } },
	{ { "a trace of an Ascend accelerator",
	    "its work is not read; what is: CUDA, ROCm and XPU traces, with events of the category \"kernel\"" },
	  JSON,
	  .all = { "Ascend Hardware" } },
	{ { "a trace of JAX or TensorFlow (XLA's profiler)", "its events name no kind of work: " NSYS },
	  JSON,
	  .all = { "traceEvents" },
	  .any = { "/device:GPU:", "/device:TPU:", "/host:CPU", "highres-ticks" } },
	{ { "a trace of a web browser", RECORD },
	  JSON,
	  .all = { "traceEvents" },
	  .any = { "CrBrowserMain", "CrRendererMain", "devtools.timeline", "chrome-bitness", "\"blink", "\"v8\"" } },
	{ { "a log of a pipeline schedule", "give it alone: flatout diagnose FILE" }, JSON, .test = is_schedule },
	{ { "a record of Hugging Face's Trainer",
	    "it has losses and rates, no times of the GPU: " RECORD "; flatout mfu takes its tokens per second" },
	  JSON,
	  .all = { "\"log_history\"" } },
	{ { "a log with a JSON object in each line",
	    "a log has no times of the GPU: " RECORD "; flatout mfu takes its tokens per second" },
	  JSON,
	  .test = is_json_lines,
	  .name = { ".jsonl" } },
	{ { "a table of Nsight Systems' statistics (CSV)",
	    "give the recording: nsys export --type sqlite REPORT.nsys-rep" },
	  TEXT,
	  .any = { "Time (%),", "Total Time (ns)" } },
	{ { "a page (HTML)", "give the trace that it was made from" },
	  TEXT,
	  .any = { "<!DOCTYPE html", "<!doctype html", "<html" },
	  .name = { ".html" } },
	{ { "a TOML file", "it configures a run and records nothing: " RECORD },
	  JSON | TEXT,
	  .test = is_toml,
	  .name = { ".toml" } },
	{ { "a training log", "a log has no times of the GPU: " RECORD "; flatout mfu takes its tokens per second" },
	  JSON | TEXT,
	  .test = is_log,
	  .name = { ".log" } },
	{ { "a text, no JSON (a log, a table, a script)", RECORD "; flatout mfu takes a log's tokens per second" },
	  TEXT,
	  .test = is_any_text },
};

const struct fo_foreign *fo_foreign_at(int i)
{
	return i >= 0 && (size_t)i < sizeof rows / sizeof *rows ? &rows[i].says : NULL;
}

/* ---- looking ---- */

/* JSON is what begins with a bracket, with a value or a key behind it; a log may begin with one too, and is told by its
 * rows. */
static int kind_of(const struct head *h)
{
	size_t at = 0;
	for (size_t i = 0; i < h->n; i++)
		if ((unsigned char)h->p[i] < 8 || h->p[i] == 0x7f)
			return BINARY;
	while (at < h->n && isspace((unsigned char)h->p[at]))
		at++;
	if (at < h->n && (h->p[at] == '{' || h->p[at] == '['))
		return JSON;
	size_t broken = 0;
	for (size_t i = 0; i < h->n;) {
		uint32_t code;
		size_t n = fo_utf8_decode(h->p + i, h->n - i, &code);
		broken += !n;
		i += n ? n : 1;
	}
	return broken > h->n / 16 ? BINARY : TEXT; /* a log may hold some byte of another encoding */
}

/* Looking must not replace the error that made somebody look. */
static bool read_head(const char *path, struct head *h)
{
	struct fo_err before;
	fo_err_save(&before, FO_OK);
	*h = (struct head){ 0 };
	bool read = fo_unpack_head(path, HEAD_BYTES, &h->p, &h->n) == FO_OK;
	fo_err_raise(&before);
	h->whole = h->n < HEAD_BYTES;
	h->kind = read ? kind_of(h) : 0;
	return read;
}

static bool fits(const struct row *r, const struct head *h)
{
	bool any = !r->any[0];
	if (!(r->kind & h->kind) || (!r->begin && !r->all[0] && !r->any[0] && !r->test))
		return false;
	if (r->begin && (h->n < r->begin_n || memcmp(h->p, r->begin, r->begin_n) != 0))
		return false;
	for (size_t i = 0; i < sizeof r->all / sizeof *r->all && r->all[i]; i++)
		if (!holds(h, HEAD_BYTES, r->all[i]))
			return false;
	for (size_t i = 0; i < MOST_SIGNS && r->any[i] && !any; i++)
		any = holds(h, HEAD_BYTES, r->any[i]);
	return any && (!r->test || r->test(h));
}

static bool named(const struct row *r, const char *path)
{
	const char *name = fo_text_file_name(path);
	for (size_t i = 0; i < MOST_NAMES && r->name[i]; i++)
		if (*r->name[i] == '*' ? fo_text_mentions(name, r->name[i] + 1) : fo_text_ends(name, r->name[i]))
			return true;
	return false;
}

const struct fo_foreign *fo_foreign_by_name(const char *path)
{
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (named(&rows[i], path))
			return &rows[i].says;
	return NULL;
}

const struct fo_foreign *fo_foreign_of(const char *path)
{
	const struct row *found = NULL;
	const struct fo_foreign *by_name;
	struct head h;
	if (read_head(path, &h)) {
		for (size_t i = 0; !found && h.n && i < sizeof rows / sizeof *rows; i++)
			if (fits(&rows[i], &h))
				found = &rows[i];
		free(h.p);
	}
	if (found && found->test != is_any_text)
		return &found->says;
	by_name = fo_foreign_by_name(path);
	return by_name || !found ? by_name : &found->says;
}

bool fo_foreign_is_trace(const char *path)
{
	/* Members of the profiler's header, and the kinds of event that it writes most. */
	static const char *const sign[] = { "\"schemaVersion\"",   "\"deviceProperties\"", "\"cpu_op\"",
					    "\"kernel\"",          "\"cuda_runtime\"",     "\"user_annotation\"",
					    "\"python_function\"", "\"Operator\"",         "\"Kernel\"",
					    "\"Runtime\"" };
	struct head h;
	bool yes = false;
	if (read_head(path, &h)) {
		if (h.kind == BINARY)
			yes = fo_timeline_begins(h.p, h.n) ||
			      (holds(&h, HEAD_BYTES, "SQLite format 3") && holds(&h, HEAD_BYTES, "StringIds"));
		for (size_t i = 0; !yes && h.kind == JSON && i < sizeof sign / sizeof *sign; i++)
			yes = holds(&h, HEAD_BYTES, sign[i]) && holds(&h, HEAD_BYTES, "\"name\"");
		free(h.p);
	}
	return yes;
}

/* "r.nsys-rep" exports to "r.sqlite", where nsys would put it too. */
static fo_status hint_export(const char *path, fo_status st)
{
	struct fo_str command = { 0 }, to = { 0 };
	char visible[512];
	size_t stem = strlen(path);
	for (size_t i = stem; i-- > 0 && path[i] != '/';)
		if (path[i] == '.') {
			stem = i;
			break;
		}
	fo_str_append(&to, path, stem);
	fo_str_puts(&to, ".sqlite");
	fo_str_puts(&command, "nsys export --type sqlite --output ");
	fo_str_shell(&command, to.data);
	fo_str_puts(&command, " ");
	fo_str_shell(&command, path);
	st = fo_hint(st, "export it: %s", fo_str_visible(visible, sizeof visible, command.data));
	fo_str_fini(&command);
	fo_str_fini(&to);
	return st;
}

static fo_status refuse_as(const char *path, const struct fo_foreign *f)
{
	char shown[300];
	fo_status st = fo_fail(FO_EFORMAT, "'%s' is %s: no trace that can be read",
			       fo_str_visible(shown, sizeof shown, path), f->what);
	return f->instead ? fo_hint(st, "%s", f->instead) : hint_export(path, st);
}

fo_status fo_foreign_refuse(const char *path, fo_status st)
{
	const struct fo_foreign *f = fo_foreign_of(path);
	return f ? refuse_as(path, f) : st;
}

fo_status fo_foreign_refuse_mtia(const char *path)
{
	size_t i = 0;
	while (!rows[i].any[0] || strcmp(rows[i].any[0], mtia) != 0)
		i++;
	return refuse_as(path, &rows[i].says);
}
