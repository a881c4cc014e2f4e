#define _GNU_SOURCE /* memfd_create */
#include "support/fuzz_targets.h"
#include "audit/host.h"
#include "ckpt/ckpt.h"
#include "data/data_int.h"
#include "diagnose/straggler.h"
#include "cost/cost.h"
#include "cost/device_profile.h"
#include "hw/profile.h"
#include "job/job.h"
#include "ladder/plan_int.h"
#include "program/run.h"
#include "record/record.h"
#include "report/run.h"
#include "report/roofline.h"
#include "timeline/metered.h"
#include "timeline/ranks.h"
#include "trace/scan.h"
#include "trace/trace.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

/* A reader must say what was wrong, in one line. */
static void explained(fo_status st)
{
	if (st != FO_OK && (!fo_err_text()[0] || strchr(fo_err_text(), '\n') || st == FO_EBUG)) {
		fprintf(stderr, "badly explained error %d: '%s'\n", (int)st, fo_err_text());
		abort();
	}
}

/* The bytes as a file that never touches a disk. */
static int as_file(char path[64], const void *bytes, size_t n)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
		abort();
	snprintf(path, 64, "/proc/self/fd/%d", fd);
	return fd;
}

static void program(const void *bytes, size_t n)
{
	struct fo_program p;
	struct fo_unrolled u;
	fo_err_clear();
	fo_status st = fo_program_parse(&p, bytes, n, "fuzz");
	explained(st);
	if (st != FO_OK)
		return;
	if (fo_unroll(&p, &u) != FO_OK)
		abort(); /* it was verified */
	fo_plan(&p, &u);
	fo_prune_waits(&p, &u);
	fo_unrolled_fini(&u);
	struct fo_str s = { 0 };
	fo_program_dump(&p, &s);
	fo_str_fini(&s);
	fo_program_fini(&p);
}

static void safetensors(const void *bytes, size_t n)
{
	char path[64];
	struct fo_st_file f;
	int fd = as_file(path, bytes, n);
	fo_err_clear();
	fo_status st = fo_st_open(&f, path);
	explained(st);
	for (size_t i = 0; st == FO_OK && i < f.n; i++) {
		const struct fo_st_entry *e = &f.entry[i];
		struct fo_st_tensor t = { .dtype = FO_F64,
					  .vector = e->ndim == 1,
					  .rows = e->ndim == 2 ? e->shape[0] : 1 };
		t.cols = t.ld = e->ndim == 2 ? e->shape[1] : e->ndim == 1 ? e->shape[0] : 1;
		if (strlen(e->name) >= sizeof t.name)
			continue;
		snprintf(t.name, sizeof t.name, "%.95s", e->name);
		if (t.rows > 0 && t.cols > 0 &&
		    t.rows * t.cols <= (int64_t)n) { /* as many elements as bytes: no dtype is smaller */
			t.data = malloc((size_t)(t.rows * t.cols) * sizeof(double));
			if (fo_st_copy(&f, path, &t) != FO_OK)
				explained(FO_EFORMAT);
			free(t.data);
		}
	}
	if (st == FO_OK)
		fo_st_close(&f);
	close(fd);
}

static void config(const void *bytes, size_t n)
{
	struct fo_model m;
	fo_err_clear();
	fo_status st = fo_model_parse(bytes, n, "fuzz", &m);
	explained(st);
	if (st != FO_OK)
		return;
	volatile double sink = fo_model_flop_per_token(&m, 2048).mfu;
	(void)sink;
	st = fo_model_trainable(&m);
	explained(st);
}

/* Every shard lies in the folder of the index. */
static void hf_index(const void *bytes, size_t n)
{
	struct fo_arena a = { 0 };
	char **shard;
	size_t shards;
	fo_err_clear();
	fo_status st = fo_hf_index_parse(&a, bytes, n, "fuzz", &shard, &shards);
	explained(st);
	for (size_t i = 0; st == FO_OK && i < shards; i++)
		if (strchr(shard[i], '/') || shard[i][0] == '.' || !shard[i][0])
			abort();
	fo_arena_fini(&a);
}

static void yaml(const void *bytes, size_t n)
{
	struct fo_run r;
	struct fo_opt_set s;
	fo_opt_init(&s, fo_run_options, &r);
	fo_err_clear();
	if (fo_opt_read_yaml_text(&s, bytes, n, "fuzz") == FO_OK && fo_opt_finish(&s) != FO_OK && !fo_err_text()[0])
		abort();
	fo_opt_fini(&s);
}

/* What was read is written so that it reads the same again. */
static void tokenizer_again(const struct fo_tokenizer *t)
{
	struct fo_str text = { 0 };
	struct fo_tokenizer *again;
	char path[64];
	tok_text(t, &text);
	int fd = as_file(path, text.data, text.len);
	if (fo_tokenizer_load(path, &again) != FO_OK || again->checksum != t->checksum) {
		fprintf(stderr, "a tokenizer does not survive saving: %s\n", fo_err_text());
		abort();
	}
	fo_tokenizer_free(again);
	fo_str_fini(&text);
	close(fd);
}

static void tokenizer(const void *bytes, size_t n)
{
	static const char text[] = "Hello, w\xc3\xb6rld!  123\n\n\xff\xfe  don't e\xcc\xa3\xcc\x81 "
				   "\xe2\x96\x81\xe4\xb8\xad\xe6\x96\x87 foo foo_bar";
	char path[64];
	struct fo_tokenizer *t;
	int fd = as_file(path, bytes, n);
	fo_err_clear();
	fo_status st = fo_tokenizer_load(path, &t);
	explained(st);
	if (st == FO_OK) {
		int32_t *ids = NULL;
		size_t whole = 0, parts = 0, cap = 0, at = fo_tokenizer_cut(t, text, sizeof text - 1, 9);
		struct fo_str out = { 0 };
		struct fo_encoder *e;
		if (fo_tokenizer_encode(t, text, sizeof text - 1, &ids, &whole, &cap) == FO_OK)
			fo_tokenizer_decode_text(t, ids, whole, &out);
		if (fo_encoder_new(t, &e) == FO_OK) {
			if (fo_encoder_encode(e, text, at, true, &ids, &parts, &cap) == FO_OK &&
			    fo_encoder_encode(e, text + at, sizeof text - 1 - at, false, &ids, &parts, &cap) == FO_OK &&
			    parts != whole)
				abort();
			fo_encoder_free(e);
		}
		fo_str_fini(&out);
		free(ids);
		tokenizer_again(t);
		fo_tokenizer_free(t);
	}
	close(fd);
}

static void shard(const void *bytes, size_t n)
{
	char path[64];
	struct fo_shard s;
	int fd = as_file(path, bytes, n);
	fo_err_clear();
	fo_status st = fo_shard_open(&s, path);
	explained(st);
	if (st == FO_OK) {
		volatile int64_t sink = 0;
		for (int64_t i = 0; i < s.tokens; i++)
			sink += s.ids16 ? s.ids16[i] : s.ids32[i];
		for (int64_t i = 0; i <= s.docs; i++)
			sink += s.doc_at[i];
		(void)sink;
		fo_shard_close(&s);
	}
	close(fd);
}

static void timeline_file(const void *bytes, size_t n)
{
	char path[64];
	struct fo_timeline_file f;
	int fd = as_file(path, bytes, n);
	fo_err_clear();
	fo_status st = fo_timeline_read(&f, path);
	explained(st);
	if (st == FO_OK && f.ranks > 1 && f.ranks <= 64) {
		const struct fo_timeline_file *file[64] = { 0 };
		struct fo_ranks o;
		file[f.rank] = &f;
		file[(f.rank + 1) % f.ranks] = &f; /* the same calls twice: some are matched */
		fo_ranks_merge(&o, file, f.ranks);
		fo_ranks_fini(&o);
	}
	if (st == FO_OK)
		fo_timeline_fini(&f.t);
	close(fd);
}

/* As it is, then with its checksum made right (8 bytes at 16, over all behind the header): or nothing else would be
 * tried. */
static void timeline(const void *bytes, size_t n)
{
	enum { HEADER = 24 + 8 * FO_LANE_COUNT };
	timeline_file(bytes, n);
	if (n < HEADER)
		return;
	unsigned char *copy = malloc(n);
	memcpy(copy, bytes, n);
	uint64_t sum = XXH3_64bits(copy + HEADER, n - HEADER);
	memcpy(copy + 16, &sum, sizeof sum);
	timeline_file(copy, n);
	free(copy);
}

static void metered_file(const void *bytes, size_t n)
{
	char path[64];
	struct fo_metered m;
	struct fo_burst best = { 0 };
	int fd = as_file(path, bytes, n);
	fo_err_clear();
	fo_status st = fo_metered_read(&m, path);
	explained(st);
	if (st == FO_OK) {
		fo_metered_best(&m, &best);
		fo_metered_fini(&m);
	}
	close(fd);
}

/* As it is, then with the checksums of the header (bytes 32 to 40) and of every piece made right. */
static void metered(const void *bytes, size_t n)
{
	enum { HEADER = 40, PIECE = 24, RECORD = 72 };
	metered_file(bytes, n);
	if (n < HEADER)
		return;
	unsigned char *copy = malloc(n);
	memcpy(copy, bytes, n);
	uint64_t sum = XXH3_64bits(copy, HEADER - 8);
	memcpy(copy + HEADER - 8, &sum, sizeof sum);
	for (size_t at = HEADER; at + PIECE <= n;) {
		uint32_t spans;
		memcpy(&spans, copy + at + 4, 4);
		size_t body = (size_t)spans * RECORD;
		if (body > n - at - PIECE)
			break;
		sum = XXH3_64bits_withSeed(copy + at + PIECE, body, XXH3_64bits(copy + at, PIECE - 8));
		memcpy(copy + at + PIECE - 8, &sum, sizeof sum);
		at += PIECE + body;
	}
	metered_file(copy, n);
	free(copy);
}

/* Rungs of people; what is accepted is kept as a plan that reads back. */
static void rungs(const void *bytes, size_t n)
{
	struct fo_run r;
	struct fo_opt_set base;
	struct fo_str text = { 0 };
	fo_opt_init(&base, fo_run_options, &r);
	struct fo_ladder_plan p = { .base = &base,
				    .dir = "x",
				    .run_file = "",
				    .version = "",
				    .cpu = "",
				    .threads = 1,
				    .steps = 20,
				    .rounds = 5 };
	fo_err_clear();
	fo_status st = fo_ladder_plan_text(&p, bytes, n, "fuzz");
	if (st != FO_OK && !fo_err_text()[0])
		abort();
	if (st == FO_OK) {
		struct fo_ladder l = { .dir = "x" };
		fo_ladder_plan_json(&p, &text);
		if (fo_ladder_plan_parse(&l, text.data, text.len, "fuzz") != FO_OK || l.rungs != p.rungs) {
			fprintf(stderr, "a plan does not survive being kept: %s\n", fo_err_text());
			abort();
		}
		fo_ladder_fini(&l);
	}
	fo_str_fini(&text);
	fo_ladder_plan_fini(&p);
	fo_opt_fini(&base);
}

static void plan(const void *bytes, size_t n)
{
	struct fo_ladder l = { .dir = "x" };
	fo_err_clear();
	explained(fo_ladder_plan_parse(&l, bytes, n, "fuzz"));
	fo_ladder_fini(&l);
}

/* A file of any kind, read to its end twice: bad parts are errors, then left out. */
static void text(const void *bytes, size_t n)
{
	char path[64];
	int fd = as_file(path, bytes, n);
	for (int skip = 0; skip < 2; skip++) {
		struct fo_text *t;
		struct fo_text_part p = { .bytes = NULL };
		const struct fo_text_options o = { .skip_bad = skip, .max_document = 4096, .max_expand = 50 };
		fo_err_clear();
		lseek(fd, 0, SEEK_SET);
		fo_status st = fo_text_open(&t, &(char *){ path }, 1, &o);
		if (st != FO_OK)
			abort();
		do {
			st = fo_text_next(t, &p);
			explained(st);
			if (st == FO_OK && p.bytes && p.json) {
				char *value;
				size_t len;
				explained(fo_text_field(p.bytes, p.len, "text", &value, &len));
				fo_err_clear();
			}
		} while (st == FO_OK && p.bytes);
		fo_text_close(t);
	}
	close(fd);
}

/* One line; where jansson reads a text in it, it must be ours. */
static void json_line(const void *bytes, size_t n)
{
	char *copy = malloc(n + 1), *value = NULL;
	size_t len = 0;
	memcpy(copy, bytes, n);
	json_t *root = json_loadb(bytes, n, JSON_ALLOW_NUL, NULL), *want = json_object_get(root, "text");
	fo_err_clear();
	fo_status st = fo_text_field(copy, n, "text", &value, &len);
	explained(st);
	if (st == FO_OK && (value < copy || len > n || value + len > copy + n))
		abort();
	if (json_is_string(want) &&
	    (st != FO_OK || len != json_string_length(want) || memcmp(value, json_string_value(want), len)))
		if (st == FO_OK || !strstr(fo_err_text(), "nested"))
			abort();
	json_decref(root);
	free(copy);
}

static void profile(const void *bytes, size_t n)
{
	struct fo_limits m;
	struct fo_roofline r;
	fo_err_clear();
	fo_status st = fo_limits_parse(bytes, n, "fuzz", &m);
	explained(st);
	if (st != FO_OK)
		return;
	struct fo_str s = { 0 };
	fo_limits_json(&m, &s);
	fo_str_fini(&s);
	struct fo_rates rates;
	explained(fo_rates_init(&rates, &m, 2));
	st = fo_roofline_init(&r, &m);
	explained(st);
	if (st == FO_OK) {
		fo_roofline_text(&r, true, false, &s);
		fo_roofline_svg(&r, &s);
		fo_str_fini(&s);
		fo_roofline_fini(&r);
	}
	fo_limits_fini(&m);
}

static void device_profile(const void *bytes, size_t n)
{
	struct fo_device_profile f;
	struct fo_interval seconds;
	fo_err_clear();
	fo_status st = fo_device_profile_parse(bytes, n, "fuzz", &f);
	explained(st);
	if (st != FO_OK)
		return;
	for (size_t i = 0; i < f.rows; i++)
		if (!fo_device_profile_find(&f, f.row[i].key, &seconds) ||
		    !(seconds.low > 0 && seconds.low <= seconds.mid && seconds.mid <= seconds.high))
			abort();
	fo_device_profile_fini(&f);
}

/* A training log: whatever it says, steps ascend, the figures can be asked for, and a page comes of it. */
static void log_file(const void *bytes, size_t n)
{
	char path[64];
	struct fo_record r = { 0 };
	struct fo_report o;
	struct fo_str page = { 0 };
	struct fo_profile f;
	int fd = as_file(path, bytes, n);
	fo_err_clear();
	lseek(fd, 0, SEEK_SET);
	explained(fo_record_read_log(&r, fd, "fuzz"));
	for (int64_t i = 1; i < r.step.n; i++)
		if (r.step.step[i] <= r.step.step[i - 1])
			abort();
	for (int k = 0; k < FO_STEP_FIELD_COUNT; k++)
		fo_record_quantile(&r.step, (enum fo_step_field)k, 0, r.step.n, 0.5);
	fo_record_profile_total(&r, &f);
	/* As fo_record_open leaves it where there is no run.json. */
	r.dir = r.started = r.version = r.commit = r.compiler = r.passes = r.cpu = r.isa = r.peak_source = r.affinity =
		"";
	for (int i = 0; i < FO_RECORD_FILES; i++)
		r.file[i].path = r.file[i].why = "";
	fo_report_make(&o, &r);
	struct fo_doc d = { 0 };
	fo_report_doc(&o, &d);
	fo_doc_to_html(&d, &page);
	fo_doc_fini(&d);
	if (strcmp(page.data + page.len - 8, "</html>\n"))
		abort();
	fo_report_fini(&o);
	fo_str_fini(&page);
	fo_record_fini(&r);
	close(fd);
}

/* A timeline of a pipeline schedule, and all that is made from one. */
static void schedule(const void *bytes, size_t n)
{
	char path[64];
	struct fo_schedule_log *s;
	struct fo_schedule_diagnosis d;
	int fd = as_file(path, bytes, n);
	fo_err_clear();
	fo_schedule_is(path);
	fo_status st = fo_schedule_open(&s, path);
	explained(st);
	if (st == FO_OK) {
		if (fo_schedule_diagnose(&d, s) != FO_OK)
			abort();
		struct fo_str json = { 0 };
		fo_schedule_diagnosis_json(&d, &json);
		json_t *again = json_loadb(json.data, json.len, 0, NULL);
		if (!again)
			abort();
		json_decref(again);
		fo_str_fini(&json);
		fo_schedule_diagnosis_fini(&d);
		fo_schedule_free(s);
	}
	close(fd);
}

/* A training configuration: as a job its list and its JSON can be written, whatever it holds. */
static void job(const void *bytes, size_t n)
{
	char path[64];
	const char *paths[] = { path };
	struct fo_job j;
	int fd = as_file(path, bytes, n);
	fo_err_clear();
	fo_status st = fo_job_read(paths, 1, NULL, &j);
	explained(st);
	if (st == FO_OK) {
		struct fo_doc doc = { 0 };
		struct fo_str text = { 0 }, json = { 0 };
		struct fo_json w;
		fo_job_list(&j, &doc);
		fo_doc_to_term(&doc, 80, &text);
		fo_json_begin(&w, &json, false);
		fo_json_object(&w, NULL);
		fo_job_json(&j, &w);
		fo_json_close(&w);
		json_t *again = json_loadb(json.data, json.len, 0, NULL);
		if (!again)
			abort();
		json_decref(again);
		fo_doc_fini(&doc);
		fo_str_fini(&text);
		fo_str_fini(&json);
	}
	fo_job_fini(&j);
	close(fd);
}

/* What commands printed on a host. */
static void host(const void *bytes, size_t n)
{
	struct fo_host_facts f = { 0 };
	struct fo_audit a = { 0 };
	fo_host_read(&f, "a/x", bytes, n);
	fo_host_read(&f, "b/x", bytes, n / 2);
	fo_audit_host(&a, &f);
	fo_audit_fini(&a);
	fo_host_facts_fini(&f);
}

/* ---- traces ---- */

static void hold(bool true_of_every_trace, const char *what)
{
	if (true_of_every_trace)
		return;
	fprintf(stderr, "a trace whose %s\n", what);
	abort();
}

static bool index_in(int64_t i, int64_t n) { return i >= -1 && i < n; }

/* What everything behind the readers relies on; a number that stands for all of it. */
static uint64_t check_trace(const struct fo_trace *t)
{
	uint64_t sum = (uint64_t)t->rank;
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		hold(g->end_ns >= g->begin_ns, "operation ends before it begins");
		hold(g->device >= 0 && g->device < t->device_count, "operation has no device");
		hold(index_in(g->launch, t->launch_count) && index_in(g->op, t->op_count) &&
			     index_in(g->collective, t->collective_count),
		     "operation points outside");
		hold(!i || g->device > g[-1].device || (g->device == g[-1].device && g->begin_ns >= g[-1].begin_ns),
		     "operations are out of order");
		hold(g->class < FO_K_COUNT && g->copy < FO_COPY_COUNT, "operation has no class");
		sum = sum * 31 + ((uint64_t)g->begin_ns ^ (uint64_t)g->end_ns << 1) + (uint64_t)g->launch +
		      strlen(fo_trace_text(t, g->name));
	}
	for (int64_t i = 0; i < t->launch_count; i++) {
		const struct fo_launch *l = &t->launch[i];
		hold(l->end_ns >= l->begin_ns && index_in(l->op, t->op_count) && l->thread >= 0 &&
			     l->thread < t->thread_count,
		     "launch is wrong");
		sum = sum * 31 + (uint64_t)l->begin_ns + (uint64_t)l->op;
	}
	for (int64_t i = 0; i < t->op_count; i++) {
		const struct fo_host_op *o = &t->op[i];
		hold(o->end_ns >= o->begin_ns && index_in(o->parent, i) && o->thread >= 0 &&
			     o->thread < t->thread_count,
		     "host operator is wrong");
		hold(!i || o->thread > o[-1].thread || (o->thread == o[-1].thread && o->begin_ns >= o[-1].begin_ns),
		     "host operators are out of order");
		sum = sum * 31 + (uint64_t)o->begin_ns + (uint64_t)o->parent + strlen(fo_trace_text(t, o->name));
	}
	return sum;
}

/* Every reader of traces, by the first bytes; JSON in every instruction set. */
static void trace(const void *bytes, size_t n)
{
	static const char *const isa[] = { "portable", "sse2", "avx2" };
	fo_status first = FO_OK;
	uint64_t sum = 0;
	for (size_t i = 0, done = 0; i < sizeof isa / sizeof *isa; i++) {
		char path[64];
		struct fo_trace *t = NULL;
		if (!fo_scan_choose(isa[i]))
			continue;
		int fd = as_file(path, bytes, n);
		fo_err_clear();
		fo_status st = fo_trace_open(&t, path);
		explained(st);
		uint64_t got = st == FO_OK ? check_trace(t) : 0;
		if (done++)
			hold(st == first && got == sum, "reading depends on the processor");
		first = st;
		sum = got;
		fo_trace_free(t);
		close(fd);
	}
	fo_scan_choose(NULL);
}

/* SQLite looks for its file by name, so this one lies on a disk; the same for every input. */
static char nsys_path[] = P_tmpdir "/flatout-fuzz-nsys.XXXXXX";
static void nsys_remove(void) { unlink(nsys_path); }

static void nsys(const void *bytes, size_t n)
{
	static const char magic[] = "SQLite format 3"; /* what is told apart by its first bytes is the other target's */
	static int fd = -1;
	struct fo_trace *t = NULL;
	if (fd < 0 && (fd = mkstemp(nsys_path)) >= 0)
		atexit(nsys_remove);
	if (n < sizeof magic || fd < 0 || ftruncate(fd, 0) || pwrite(fd, bytes, n, 0) != (ssize_t)n ||
	    pwrite(fd, magic, sizeof magic, 0) < 0)
		return;
	fo_err_clear();
	explained(fo_trace_open(&t, nsys_path));
	for (const struct fo_trace *x = t; x; x = x->next)
		check_trace(x);
	fo_trace_free(t);
}

const struct fuzz_target fuzz_target[] = {
	{ "program", program },     { "safetensors", safetensors },
	{ "config", config },       { "index", hf_index },
	{ "yaml", yaml },           { "tokenizer", tokenizer },
	{ "shard", shard },         { "timeline", timeline },
	{ "metered", metered },     { "rungs", rungs },
	{ "plan", plan },           { "text", text },
	{ "json_line", json_line }, { "device_profile", device_profile },
	{ "profile", profile },     { "log", log_file },
	{ "schedule", schedule },   { "trace", trace },
	{ "nsys", nsys },           { "job", job },
	{ "host", host },
};
const int fuzz_targets = sizeof fuzz_target / sizeof *fuzz_target;
