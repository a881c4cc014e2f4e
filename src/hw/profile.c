#include "hw/profile.h"
#include "base/fs.h"
#include "base/schema.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void fo_cpu_name(char *buf, size_t size)
{
	char line[256], name[80] = "unknown processor";
	int family = -1, model = -1;
	FILE *f = fopen("/proc/cpuinfo", "re");
	while (f && fgets(line, sizeof line, f)) {
		char *colon = strchr(line, ':');
		if (!colon)
			continue;
		line[strcspn(line, "\n")] = 0;
		const char *value = colon[1] ? colon + 2 : "";
		if (!strncmp(line, "cpu family\t", 11)) {
			family = atoi(value);
		} else if (!strncmp(line, "model\t", 6)) {
			model = atoi(value);
		} else if (!strncmp(line, "model name\t", 11)) {
			fo_str_visible(name, sizeof name, value);
			break; /* of each processor, family and model stand before it */
		}
	}
	if (f)
		fclose(f);
	if (family >= 0 && model >= 0)
		snprintf(buf, size, "%s (family %d, model %d)", name, family, model);
	else
		snprintf(buf, size, "%s", name);
}

char *fo_cache_path(struct fo_arena *a, const char *name)
{
	const char *dir = getenv("FLATOUT_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	if (dir && *dir)
		return fo_arena_printf(a, "%s/%s", fo_fs_home_path(a, dir), name);
	/* A relative XDG_CACHE_HOME is to be ignored (XDG Base Directory Specification 0.8). */
	if (xdg && *xdg == '/')
		return fo_arena_printf(a, "%s/flatout/%s", xdg, name);
	return fo_arena_printf(a, "%s/.cache/flatout/%s", home && *home ? home : "/tmp", name);
}

char *fo_limits_path(struct fo_arena *a, const char *cpu)
{
	return fo_cache_path(a, fo_arena_printf(a, "machine-%08x.json", (unsigned)XXH3_64bits(cpu, strlen(cpu))));
}

void fo_limits_fini(struct fo_limits *m)
{
	free(m->peak);
	free(m->row);
	*m = (struct fo_limits){ 0 };
}

void fo_limits_row_add(struct fo_limits *m, const struct fo_limits_row *r)
{
	if (m->rows == FO_LIMITS_MAX_ROWS)
		return; /* our own grids are far smaller, and readers refuse more */
	fo_array_room(&m->row, &m->row_cap, m->rows, sizeof *m->row);
	m->row[m->rows++] = *r;
}

/* The cold share is one of bytes: what differs by less than this is rounding of another path to the same state. */
#define COLD_ALIKE 0.01

static bool same_work(const struct fo_limits_row *a, const struct fo_limits_row *b)
{
	bool cold = isnan(a->cold) ? isnan(b->cold) : fabs(a->cold - b->cold) < COLD_ALIKE;
	return cold && a->threads == b->threads && a->key == b->key && a->flop == b->flop &&
	       !strcmp(a->kind, b->kind) && !strcmp(a->variant, b->variant) && !strcmp(a->dtype, b->dtype) &&
	       !memcmp(a->dim, b->dim, sizeof a->dim);
}

const struct fo_limits_row *fo_limits_row_find(const struct fo_limits *m, const struct fo_limits_row *r)
{
	for (size_t i = 0; i < m->rows; i++)
		if (same_work(&m->row[i], r))
			return &m->row[i];
	return NULL;
}

const struct fo_limits_row *fo_limits_row_keep(const struct fo_limits_row *old, const struct fo_limits_row *newer)
{
	return old && old->time.quiet && !newer->time.quiet && !strcmp(old->set, newer->set) ? old : newer;
}

struct fo_limits_peak *fo_limits_peak(const struct fo_limits *m, const char *dtype, int threads)
{
	for (size_t i = 0; i < m->peaks; i++)
		if (m->peak[i].threads == threads && !strcmp(m->peak[i].dtype, dtype))
			return &m->peak[i];
	return NULL;
}

void fo_limits_peak_put(struct fo_limits *m, const struct fo_limits_peak *p)
{
	struct fo_limits_peak *old = fo_limits_peak(m, p->dtype, p->threads);
	if (old) {
		*old = *p;
	} else if (m->peaks < FO_LIMITS_MAX_PEAKS) {
		fo_array_room(&m->peak, &m->peak_cap, m->peaks, sizeof *m->peak);
		m->peak[m->peaks++] = *p;
	}
}

void fo_limits_peak_raise(struct fo_limits *m, const struct fo_limits_peak *p)
{
	struct fo_limits_peak *old = fo_limits_peak(m, p->dtype, p->threads);
	if (!old || strcmp(old->method, p->method) || old->best_flop_s < p->best_flop_s) {
		fo_limits_peak_put(m, p);
	} else if (old->clean_bursts < p->clean_bursts) {
		old->clean_bursts = p->clean_bursts;
		old->bursts = p->bursts > old->bursts ? p->bursts : old->bursts;
	}
}

/* ---- the record ---- */

/* Bounds far outside what any machine does, so that sums and ratios of what is read stay finite. */
#define RATE .flags = FO_NEEDED, .low = 1e3, .high = 1e21
#define SECONDS .flags = FO_NEEDED, .low = 1e-10, .high = 1e6
#define WORK .flags = FO_NEEDED, .high = 1e24
#define COUNT(least) .flags = FO_NEEDED, .low = (least), .high = 1 << 30
#define THREADS .flags = FO_NEEDED, .low = 1, .high = 1 << 16
#define NAME .flags = FO_NEEDED | FO_WORD
#define SENTENCE .flags = FO_NEEDED | FO_VISIBLE
#define BYTES .flags = FO_NEEDED, .high = 1LL << 50

#define PEAK(m, ...) FO_FIELD(struct fo_limits_peak, m, __VA_ARGS__)
static const struct fo_schema_field peak_field[] = {
	PEAK(dtype, "dtype", "", "data type: `f32`, `bf16`", NAME),
	PEAK(threads, "threads", "", "threads that computed", THREADS),
	PEAK(set, "set", "", "kernel set whose loop was fastest", NAME),
	PEAK(best_flop_s, "best_flop_s", "FLOP/s", "best burst", RATE),
	PEAK(median_flop_s, "median_flop_s", "FLOP/s", "median burst", RATE),
	PEAK(bursts, "bursts", "", "bursts measured", COUNT(1)),
	PEAK(clean_bursts, "clean_bursts", "", "bursts that nothing disturbed", COUNT(0)),
	PEAK(date, "date", "", "when it was measured", SENTENCE),
	PEAK(method, "method", "", "how it was measured", SENTENCE),
};
static void check_peak(const void *record, struct fo_schema_reader *r)
{
	const struct fo_limits_peak *p = record;
	if (p->clean_bursts > p->bursts)
		fo_schema_refuse(r, "clean_bursts", "an integer of at most bursts");
	if (p->median_flop_s > p->best_flop_s)
		fo_schema_refuse(r, "median_flop_s", "a number not above best_flop_s");
}
static const struct fo_schema peak_schema = { "", "peak", FO_FIELDS(struct fo_limits_peak, peak_field),
					      .check = check_peak };

#define ROW(m, ...) FO_FIELD(struct fo_limits_row, m, __VA_ARGS__)
static const struct fo_schema_field row_field[] = {
	ROW(kind, "kind", "", "operation or kind of memory access; below", NAME),
	ROW(variant, "variant", "", "below", NAME),
	ROW(dtype, "dtype", "", "data type", NAME),
	ROW(set, "set", "", "kernel set that ran", NAME),
	ROW(threads, "threads", "", "threads that computed", THREADS),
	FO_FIELD_AS(DIMS, struct fo_limits_row, dim, "shape", "", "at most 4 dimensions; below", .flags = FO_NEEDED,
		    .low = 1, .high = 1LL << 50, .expected = "a list of at most 4 integers"),
	ROW(flop, "flop", "FLOP", "executed in a span", WORK),
	ROW(bytes, "bytes", "B", "moved in a span at least: each operand once", WORK),
	ROW(key, "key", "",
	    "signature of the operation ([simulator.md](simulator.md)); absent: the row stands for its kind and shape",
	    .flags = FO_OMIT),
	ROW(cold, "cold", "share",
	    "bytes of its operands that no cache held before a span; absent: as the span before left them",
	    .flags = FO_OMIT | FO_NULLS, .high = 1),
	ROW(time.quiet_median_s, "quiet_median_s", "s", "median of the quiet spans; null: none was quiet",
	    .flags = FO_NEEDED | FO_NULLS, .low = 1e-10, .high = 1e6),
	ROW(time.quiet_best_s, "quiet_best_s", "s", "best of the quiet spans; null: none was quiet",
	    .flags = FO_NEEDED | FO_NULLS, .low = 1e-10, .high = 1e6),
	ROW(time.quiet, "quiet", "", "quiet spans", COUNT(0)),
	ROW(time.median_s, "median_s", "s", "median of all spans", SECONDS),
	ROW(time.best_s, "best_s", "s", "best of all spans", SECONDS),
	ROW(time.spans, "spans", "", "spans measured", COUNT(1)),
	ROW(date, "date", "", "when it was measured", SENTENCE),
};
static void check_row(const void *record, struct fo_schema_reader *r)
{
	const struct fo_limits_row *w = record;
	const struct fo_quiet_stats *t = &w->time;
	if (w->flop > 0 && w->flop < 1)
		fo_schema_refuse(r, "flop", "0 or a number of at least 1");
	if (w->bytes > 0 && w->bytes < 1)
		fo_schema_refuse(r, "bytes", "0 or a number of at least 1");
	if (t->quiet > t->spans)
		fo_schema_refuse(r, "quiet", "an integer of at most spans");
	if (t->median_s < t->best_s)
		fo_schema_refuse(r, "median_s", "a number not below best_s");
	if (t->quiet_best_s < t->best_s)
		fo_schema_refuse(r, "quiet_best_s", "a number not below best_s");
	if ((t->quiet > 0) != !isnan(t->quiet_median_s) || (t->quiet > 0) != !isnan(t->quiet_best_s))
		fo_schema_refuse(r, "quiet", "quiet times if, and only if, spans were quiet");
	if (t->quiet_median_s < t->quiet_best_s)
		fo_schema_refuse(r, "quiet_median_s", "a number not below quiet_best_s");
}
static const struct fo_schema row_schema = { "", "row", FO_FIELDS(struct fo_limits_row, row_field),
					     .check = check_row };

static const struct fo_schema_field state_field[] = {
	FO_FIELD_RECORD(struct fo_limits_state, use, &fo_state_use_schema, "", "", .flags = FO_INLINE),
	FO_FIELD(struct fo_limits_state, governor, "governor", "", "cpufreq governor",
		 .flags = FO_NEEDED | FO_NULLS | FO_VISIBLE),
};
static const struct fo_schema state_schema = { "", "state", FO_FIELDS(struct fo_limits_state, state_field) };

/* A profile as a file has it. */
struct file {
	struct fo_limits m;
	bool has_state;
};
#define LIMITS(member, ...) FO_FIELD(struct file, m.member, __VA_ARGS__)
static const struct fo_schema_field limits_field[] = {
	LIMITS(cpu, "cpu", "", "name of the processor", SENTENCE),
	LIMITS(isa, "isa", "", "highest kernel set measured", NAME),
	LIMITS(cache_bytes, "cache_bytes", "B", "all last-level caches together; 0: not known", BYTES),
	LIMITS(date, "date", "", "when the newest calibration ran; empty: only peaks are known", SENTENCE),
	LIMITS(method, "method", "", "how the newest calibration measured", SENTENCE),
	FO_FIELD_OPTIONAL(struct file, m.state, has_state, &state_schema, "state",
			  "the machine while the newest calibration ran; absent in profiles of training alone",
			  .flags = FO_OMIT),
	FO_FIELD_LIST(struct file, m.peak, m.peaks, &peak_schema, "peaks",
		      "one for each data type and number of threads", .flags = FO_NEEDED | FO_POINTER,
		      .elements = FO_LIMITS_MAX_PEAKS, .expected = "a list of at most 256 entries"),
	FO_FIELD_LIST(struct file, m.row, m.rows, &row_schema, "rows",
		      "one for each work, shape and number of threads, a line each",
		      .flags = FO_NEEDED | FO_POINTER | FO_LINES, .elements = FO_LIMITS_MAX_ROWS,
		      .expected = "a list of at most 8192 entries"),
};
const struct fo_schema fo_limits_schema = { "profile", "machine profile", FO_LIMITS_SCHEMA,
					    FO_FIELDS(struct file, limits_field) };

/* Copies what was read into memory of the profile's own, which later calls extend. */
static void take_lists(const struct fo_limits *from, struct fo_limits *m, struct fo_schema_reader *r)
{
	m->peak = NULL;
	m->row = NULL;
	m->peaks = m->rows = m->peak_cap = m->row_cap = 0;
	for (size_t i = 0; i < from->peaks && r->st == FO_OK; i++) {
		snprintf(r->at, sizeof r->at, "peaks[%zu].", i);
		if (fo_limits_peak(m, from->peak[i].dtype, from->peak[i].threads))
			fo_schema_refuse(r, "dtype", "one entry for each dtype and number of threads");
		else
			fo_limits_peak_put(m, &from->peak[i]);
	}
	for (size_t i = 0; i < from->rows && r->st == FO_OK; i++)
		fo_limits_row_add(m, &from->row[i]);
}

fo_status fo_limits_parse(const char *text, size_t len, const char *where, struct fo_limits *m)
{
	struct fo_arena a = { 0 };
	struct fo_schema_reader r = { .arena = &a, .where = where };
	struct file read = { 0 };
	json_t *j;
	if (len > FO_LIMITS_MAX_BYTES)
		return fo_fail(FO_EFORMAT, "'%s': %zu bytes, expected at most %zu", where, len, FO_LIMITS_MAX_BYTES);
	fo_status st = fo_schema_parse(text, len, where, fo_limits_schema.what, &j);
	if (st != FO_OK)
		return fo_hint(st, "'flatout calibrate --out=FILE' writes one");
	if (fo_schema_read(&fo_limits_schema, j, &read, &r) == FO_OK) {
		struct fo_limits got = read.m;
		take_lists(&read.m, &got, &r);
		if (r.st == FO_OK)
			*m = got;
		else
			fo_limits_fini(&got);
	}
	json_decref(j);
	fo_arena_fini(&a);
	return r.st;
}

fo_status fo_limits_read(const char *path, struct fo_limits *m)
{
	struct fo_arena a = { 0 };
	char *text;
	size_t len;
	fo_status st = fo_fs_read(&a, path, FO_LIMITS_MAX_BYTES, &text, &len);
	if (st == FO_OK)
		st = fo_limits_parse(text, len, path, m);
	fo_arena_fini(&a);
	return st;
}

void fo_limits_json(const struct fo_limits *m, struct fo_str *out)
{
	const struct file f = { *m, m->state.use.seconds > 0 };
	fo_schema_text(&fo_limits_schema, &f, true, out);
}

fo_status fo_limits_write(const char *path, const struct fo_limits *m)
{
	struct fo_str s = { 0 };
	fo_limits_json(m, &s);
	fo_str_puts(&s, "\n");
	fo_status st = fo_fs_write_atomic(path, s.data, s.len);
	fo_str_fini(&s);
	return st;
}

fo_status fo_limits_update(const char *path, const char *cpu, void (*edit)(struct fo_limits *m, void *ctx), void *ctx)
{
	struct fo_limits m = { 0 };
	int lock;
	FO_TRY(fo_fs_update_begin(path, &lock));
	if (fo_limits_read(path, &m) != FO_OK)
		fo_err_clear();
	if (strcmp(m.cpu, cpu)) {
		fo_limits_fini(&m);
		snprintf(m.cpu, sizeof m.cpu, "%s", cpu);
	}
	edit(&m, ctx);
	fo_status st = fo_limits_write(path, &m);
	fo_limits_fini(&m);
	fo_fs_update_end(lock);
	return st;
}

/* ---- asking ---- */

double fo_limits_row_seconds(const struct fo_limits_row *r)
{
	return r->time.quiet >= FO_QUIET_ENOUGH ? r->time.quiet_median_s : r->time.median_s;
}

double fo_limits_memory(const struct fo_limits *m, const char *kind, int threads)
{
	double best = 0;
	for (size_t i = 0; i < m->rows; i++) {
		const struct fo_limits_row *r = &m->row[i];
		double s = r->time.quiet ? r->time.quiet_median_s : r->time.median_s;
		if (!strcmp(r->kind, kind) && r->threads == threads)
			best = fmax(best, r->bytes / s);
	}
	return best;
}
