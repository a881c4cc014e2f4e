#include "hw/profile.h"
#include "base/fs.h"
#include "base/json.h"

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
	/* A relative XDG_CACHE_HOME is to be ignored (XDG Base Directory Specification 0.8). */
	char *own = dir && *dir ? fo_fs_home_path(a, dir) : NULL;
	char *base = own                  ? own
		     : xdg && *xdg == '/' ? fo_arena_printf(a, "%s/flatout", xdg)
					  : fo_arena_printf(a, "%s/.cache/flatout", home && *home ? home : "/tmp");
	return fo_arena_printf(a, "%s/%s", base, name);
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

/* ---- reading: every value is checked, the first that is wrong is named ---- */

struct reader {
	const char *where, *list; /* file; "peaks", "rows", "state" or "" */
	size_t at;                /* entry of the list */
	fo_status st;
};

static void bad(struct reader *r, const char *key, const char *expected)
{
	if (r->st != FO_OK)
		return;
	if (!strcmp(r->list, "state"))
		r->st = fo_fail(FO_EFORMAT, "'%s': state.%s: expected %s", r->where, key, expected);
	else if (*r->list)
		r->st = fo_fail(FO_EFORMAT, "'%s': %s[%zu].%s: expected %s", r->where, r->list, r->at, key, expected);
	else
		r->st = fo_fail(FO_EFORMAT, "'%s': %s: expected %s", r->where, key, expected);
}

/* Text of less than `size` bytes, made visible. word: letters, digits, '_' and '-' only. */
static void read_text(struct reader *r, const json_t *j, const char *key, bool word, char *out, size_t size)
{
	const json_t *v = json_object_get(j, key);
	const char *s = json_string_value(v);
	char shown[1024 + 8]; /* four bytes for one at worst, and what fo_str_visible keeps free */
	if (!s || strlen(s) >= size || strlen(s) != json_string_length(v)) {
		bad(r, key, "a short text");
		return;
	}
	for (const char *c = s; word && *c; c++)
		if (!((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '_' || *c == '-')) {
			bad(r, key, "a word of small letters, digits, '_' or '-'");
			return;
		}
	snprintf(out, size, "%s", fo_str_visible(shown, sizeof shown, s));
}

static int64_t read_int(struct reader *r, const json_t *v, const char *key, int64_t lo, int64_t hi)
{
	int64_t n = json_integer_value(v);
	if (!json_is_integer(v) || n < lo || n > hi) {
		bad(r, key, "an integer in its range");
		return lo;
	}
	return n;
}

/* null is NaN where `missing` allows it */
static double read_real(struct reader *r, const json_t *j, const char *key, double lo, double hi, bool missing)
{
	const json_t *v = json_object_get(j, key);
	double x = json_number_value(v);
	if (missing && json_is_null(v))
		return NAN;
	if (!json_is_number(v) || !(x >= lo && x <= hi))
		bad(r, key, missing ? "a number in its range, or null" : "a number in its range");
	return x;
}

/* Bounds far outside what any machine does, so that sums and ratios of what is read stay finite. */
#define RATE_LO 1e3
#define RATE_HI 1e21
#define SECONDS_LO 1e-10
#define SECONDS_HI 1e6
#define WORK_HI 1e24
enum { THREADS_HI = 1 << 16, COUNT_HI = 1 << 30 };

/* Nothing, or at least one. */
static double read_work(struct reader *r, const json_t *j, const char *key)
{
	double x = read_real(r, j, key, 0, WORK_HI, false);
	if (x > 0 && x < 1)
		bad(r, key, "0 or a number of at least 1");
	return x;
}

static struct fo_limits_peak read_peak(struct reader *r, const json_t *j)
{
	struct fo_limits_peak p = { 0 };
	read_text(r, j, "dtype", true, p.dtype, sizeof p.dtype);
	read_text(r, j, "set", true, p.set, sizeof p.set);
	read_text(r, j, "date", false, p.date, sizeof p.date);
	read_text(r, j, "method", false, p.method, sizeof p.method);
	p.threads = (int)read_int(r, json_object_get(j, "threads"), "threads", 1, THREADS_HI);
	p.bursts = (int)read_int(r, json_object_get(j, "bursts"), "bursts", 1, COUNT_HI);
	p.clean_bursts = (int)read_int(r, json_object_get(j, "clean_bursts"), "clean_bursts", 0, p.bursts);
	p.best_flop_s = read_real(r, j, "best_flop_s", RATE_LO, RATE_HI, false);
	p.median_flop_s = read_real(r, j, "median_flop_s", RATE_LO, p.best_flop_s, false);
	return p;
}

/* Sixteen hexadecimal digits; absent in rows that stand for a shape alone, and in older profiles. */
static uint64_t read_key(struct reader *r, const json_t *j)
{
	const json_t *v = json_object_get(j, "key");
	const char *s = json_string_value(v);
	if (!v)
		return 0;
	if (!s || strlen(s) != 16 || strspn(s, "0123456789abcdef") != 16) {
		bad(r, "key", "sixteen hexadecimal digits");
		return 0;
	}
	return strtoull(s, NULL, 16);
}

static struct fo_limits_row read_row(struct reader *r, const json_t *j)
{
	struct fo_limits_row w = { 0 };
	const json_t *shape = json_object_get(j, "shape");
	read_text(r, j, "kind", true, w.kind, sizeof w.kind);
	read_text(r, j, "variant", true, w.variant, sizeof w.variant);
	read_text(r, j, "dtype", true, w.dtype, sizeof w.dtype);
	read_text(r, j, "set", true, w.set, sizeof w.set);
	read_text(r, j, "date", false, w.date, sizeof w.date);
	w.threads = (int)read_int(r, json_object_get(j, "threads"), "threads", 1, THREADS_HI);
	if (!json_is_array(shape) || json_array_size(shape) > FO_LIMITS_DIMS)
		bad(r, "shape", "a list of at most 4 integers");
	for (size_t i = 0; r->st == FO_OK && i < json_array_size(shape); i++)
		w.dim[i] = read_int(r, json_array_get(shape, i), "shape", 1, (int64_t)1 << 50);
	w.flop = read_work(r, j, "flop");
	w.bytes = read_work(r, j, "bytes");
	w.key = read_key(r, j);
	w.cold = json_object_get(j, "cold") ? read_real(r, j, "cold", 0, 1, true) : NAN;
	w.time.spans = (int)read_int(r, json_object_get(j, "spans"), "spans", 1, COUNT_HI);
	w.time.quiet = (int)read_int(r, json_object_get(j, "quiet"), "quiet", 0, w.time.spans);
	w.time.best_s = read_real(r, j, "best_s", SECONDS_LO, SECONDS_HI, false);
	w.time.median_s = read_real(r, j, "median_s", w.time.best_s, SECONDS_HI, false);
	w.time.quiet_best_s = read_real(r, j, "quiet_best_s", w.time.best_s, SECONDS_HI, true);
	w.time.quiet_median_s = read_real(r, j, "quiet_median_s", w.time.best_s, SECONDS_HI, true);
	if ((w.time.quiet > 0) != !isnan(w.time.quiet_median_s) || (w.time.quiet > 0) != !isnan(w.time.quiet_best_s))
		bad(r, "quiet", "quiet times if, and only if, spans were quiet");
	if (w.time.quiet_median_s < w.time.quiet_best_s)
		bad(r, "quiet_median_s", "a number not below quiet_best_s");
	return w;
}

static void read_lists(struct reader *r, const json_t *j, struct fo_limits *m)
{
	const json_t *peaks = json_object_get(j, "peaks"), *rows = json_object_get(j, "rows");
	if (!json_is_array(peaks) || json_array_size(peaks) > FO_LIMITS_MAX_PEAKS)
		bad(r, "peaks", "a list of at most 256 entries");
	if (!json_is_array(rows) || json_array_size(rows) > FO_LIMITS_MAX_ROWS)
		bad(r, "rows", "a list of at most 8192 entries");
	r->list = "peaks";
	for (r->at = 0; r->st == FO_OK && r->at < json_array_size(peaks); r->at++) {
		struct fo_limits_peak p = read_peak(r, json_array_get(peaks, r->at));
		if (r->st == FO_OK && fo_limits_peak(m, p.dtype, p.threads))
			bad(r, "dtype", "one entry for each dtype and number of threads");
		if (r->st == FO_OK)
			fo_limits_peak_put(m, &p);
	}
	r->list = "rows";
	for (r->at = 0; r->st == FO_OK && r->at < json_array_size(rows); r->at++) {
		struct fo_limits_row w = read_row(r, json_array_get(rows, r->at));
		if (r->st == FO_OK)
			fo_limits_row_add(m, &w);
	}
}

/* Absent in the profiles of versions that did not record it. */
static void read_state(struct reader *r, const json_t *root, struct fo_limits_state *s)
{
	const json_t *j = json_object_get(root, "state");
	struct fo_state_use *u = &s->use;
	if (!j)
		return;
	r->list = "state";
	if (!json_is_null(json_object_get(j, "governor")))
		read_text(r, j, "governor", false, s->governor, sizeof s->governor);
	u->seconds = read_real(r, j, "seconds", SECONDS_LO, SECONDS_HI, false);
	u->steal = read_real(r, j, "steal", 0, 1, true);
	u->clock_hz = read_real(r, j, "clock_hz", 0, RATE_HI, true);
	u->throttles = read_real(r, j, "throttles", 0, WORK_HI, true);
	u->limited_s = read_real(r, j, "limited_seconds", 0, WORK_HI, true);
	u->joules = read_real(r, j, "joules", 0, WORK_HI, true);
	u->load = read_real(r, j, "load", 0, WORK_HI, true);
	r->list = "";
}

fo_status fo_limits_parse(const char *text, size_t len, const char *where, struct fo_limits *m)
{
	json_error_t e;
	struct fo_limits got = { 0 };
	struct reader r = { .where = where, .list = "" };
	char shown[200];
	if (len > FO_LIMITS_MAX_BYTES)
		return fo_fail(FO_EFORMAT, "'%s': %zu bytes, expected at most %zu", where, len, FO_LIMITS_MAX_BYTES);
	json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
	if (!j)
		return fo_hint(fo_fail(FO_EFORMAT, "'%s' is not a machine profile: line %d: %s", where, e.line,
				       fo_str_visible(shown, sizeof shown, e.text)),
			       "'flatout calibrate --out=FILE' writes one");
	int64_t schema = json_integer_value(json_object_get(j, "schema"));
	if (schema != FO_LIMITS_SCHEMA) {
		r.st = fo_fail(FO_EFORMAT, "'%s': schema is %lld, expected %d: not a machine profile of this version",
			       where, (long long)schema, FO_LIMITS_SCHEMA);
	} else {
		read_text(&r, j, "cpu", false, got.cpu, sizeof got.cpu);
		read_text(&r, j, "isa", true, got.isa, sizeof got.isa);
		read_text(&r, j, "date", false, got.date, sizeof got.date);
		read_text(&r, j, "method", false, got.method, sizeof got.method);
		got.cache_bytes = read_int(&r, json_object_get(j, "cache_bytes"), "cache_bytes", 0, (int64_t)1 << 50);
		read_state(&r, j, &got.state);
		read_lists(&r, j, &got);
	}
	json_decref(j);
	if (r.st != FO_OK)
		fo_limits_fini(&got);
	else
		*m = got;
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

/* ---- writing ---- */

static void peak_json(struct fo_json *j, const struct fo_limits_peak *p)
{
	fo_json_object(j, NULL);
	fo_json_text(j, "dtype", p->dtype);
	fo_json_int(j, "threads", p->threads);
	fo_json_text(j, "set", p->set);
	fo_json_real(j, "best_flop_s", p->best_flop_s);
	fo_json_real(j, "median_flop_s", p->median_flop_s);
	fo_json_int(j, "bursts", p->bursts);
	fo_json_int(j, "clean_bursts", p->clean_bursts);
	fo_json_text(j, "date", p->date);
	fo_json_text(j, "method", p->method);
	fo_json_close(j);
}

static void row_json(struct fo_json *j, const struct fo_limits_row *r)
{
	fo_json_object(j, NULL);
	fo_json_text(j, "kind", r->kind);
	fo_json_text(j, "variant", r->variant);
	fo_json_text(j, "dtype", r->dtype);
	fo_json_text(j, "set", r->set);
	fo_json_int(j, "threads", r->threads);
	fo_json_array(j, "shape");
	for (int i = 0; i < FO_LIMITS_DIMS && r->dim[i]; i++)
		fo_json_int(j, NULL, r->dim[i]);
	fo_json_close(j);
	fo_json_real(j, "flop", r->flop);
	fo_json_real(j, "bytes", r->bytes);
	if (r->key) {
		char key[24];
		snprintf(key, sizeof key, "%016llx", (unsigned long long)r->key);
		fo_json_text(j, "key", key);
	}
	if (!isnan(r->cold))
		fo_json_real(j, "cold", r->cold);
	fo_json_real(j, "quiet_median_s", r->time.quiet_median_s);
	fo_json_real(j, "quiet_best_s", r->time.quiet_best_s);
	fo_json_int(j, "quiet", r->time.quiet);
	fo_json_real(j, "median_s", r->time.median_s);
	fo_json_real(j, "best_s", r->time.best_s);
	fo_json_int(j, "spans", r->time.spans);
	fo_json_text(j, "date", r->date);
	fo_json_close(j);
}

void fo_limits_json(const struct fo_limits *m, struct fo_str *out)
{
	struct fo_json j;
	fo_json_begin(&j, out, true);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "schema", FO_LIMITS_SCHEMA);
	fo_json_text(&j, "cpu", m->cpu);
	fo_json_text(&j, "isa", m->isa);
	fo_json_int(&j, "cache_bytes", m->cache_bytes);
	fo_json_text(&j, "date", m->date);
	fo_json_text(&j, "method", m->method);
	if (m->state.use.seconds > 0) {
		fo_json_object(&j, "state");
		fo_state_use_json(&m->state.use, &j);
		fo_json_text(&j, "governor", *m->state.governor ? m->state.governor : NULL);
		fo_json_close(&j);
	}
	fo_json_array(&j, "peaks");
	for (size_t i = 0; i < m->peaks; i++)
		peak_json(&j, &m->peak[i]);
	fo_json_close(&j);
	fo_json_array(&j, "rows");
	for (size_t i = 0; i < m->rows; i++) { /* a line each: there are hundreds */
		struct fo_str line = { 0 };
		struct fo_json flat;
		fo_json_begin(&flat, &line, false);
		row_json(&flat, &m->row[i]);
		fo_json_raw(&j, NULL, line.data);
		fo_str_fini(&line);
	}
	fo_json_close(&j);
	fo_json_close(&j);
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
