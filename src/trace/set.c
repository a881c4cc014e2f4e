/* The traces of one job: which files, whose they are, and whether they belong together. */
#include "trace/schedule.h"
#include "trace/trace.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/text.h"

#include <ctype.h>
#include <dirent.h>
#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	MAX_FILES = 65536,  /* more is no folder of traces but somebody's disk */
	MAX_THREADS = 64,
};
/* Two ranks of one job record the same steps, so their windows overlap but for what clocks are wrong. An hour of disagreement is
 * taken for another run. */
static const int64_t APART_NS = 3600LL * 1000000000;

struct file {
	char *path;
	bool listed; /* found in a folder, not named by the user: may turn out to be something else */
	struct fo_trace *trace;
	struct fo_err err;
};

struct files {
	struct file *v;
	size_t n, cap;
	atomic_size_t next;
};

static void add(struct files *f, const char *path, bool listed)
{
	fo_array_room(&f->v, &f->cap, f->n, sizeof *f->v);
	f->v[f->n++] = (struct file){ .path = fo_xstrdup(path), .listed = listed };
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);
	return n >= m && strcasecmp(s + n - m, end) == 0;
}

static bool named_like_a_trace(const char *path)
{
	static const char *const known[] = { ".json", ".json.gz", ".json.zst", ".sqlite", ".sqlite3", ".db", ".fot", ".nsys-rep" };
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (ends_with(path, known[i]))
			return true;
	return false;
}

/* A report whose export lies beside it is that export. */
static bool exported(char *const *v, size_t n, const char *report)
{
	size_t stem = strlen(report) - strlen(".nsys-rep");
	for (size_t i = 0; i < n; i++)
		if (strncmp(v[i], report, stem) == 0 && strcasecmp(v[i] + stem, ".sqlite") == 0)
			return true;
	return false;
}

/* v[0]: the first file of such a log; names every folder of one, for one of them is to be given. */
static fo_status refuse_schedules(const char *path, char *const *v, size_t n)
{
	enum { SHOWN = 4 }; /* a hint is one line */
	struct fo_str below = { 0 };
	const char *last = NULL;
	size_t last_n = 0, found = 0;
	for (size_t i = 0; i < n; i++) {
		const char *slash = strrchr(v[i], '/');
		size_t len = slash ? (size_t)(slash - v[i]) : 0;
		if (!len || strncmp(slash + 1, "pp_rank_", 8) != 0 || (last && len == last_n && strncmp(v[i], last, len) == 0))
			continue;
		last = v[i];
		last_n = len;
		if (found++ < SHOWN)
			fo_str_printf(&below, "%s%.*s", found > 1 ? ", " : "", (int)len, v[i]);
	}
	fo_status st = fo_fail(FO_EARG, "'%s' holds no traces but logs of pipeline schedules", path);
	st = fo_hint(st, "give one of them: %s%s", below.data, found > SHOWN ? ", ..." : "");
	fo_str_fini(&below);
	return st;
}

static fo_status add_folder(struct files *f, const char *path)
{
	struct fo_arena a = { 0 };
	char **v;
	size_t n, before = f->n;
	bool own = false;
	fo_status st = fo_fs_list(&a, path, MAX_FILES, &v, &n);
	for (size_t i = 0; st == FO_OK && i < n; i++)
		own |= ends_with(v[i], ".fot");
	for (size_t i = 0; st == FO_OK && i < n; i++) {
		/* A run's folder holds its records as JSON beside the timelines. */
		if (own ? !ends_with(v[i], ".fot") : !named_like_a_trace(v[i]))
			continue;
		if (ends_with(v[i], ".nsys-rep") && exported(v, n, v[i]))
			continue;
		const char *slash = strrchr(v[i], '/'), *name = slash ? slash + 1 : v[i];
		if (strncmp(name, "pp_rank_", 8) == 0 && fo_schedule_is(v[i])) {
			st = refuse_schedules(path, v + i, n - i);
			break;
		}
		add(f, v[i], true);
	}
	fo_arena_fini(&a);
	if (st == FO_OK && f->n == before) {
		st = fo_fail(FO_EARG, "no traces in '%s'", path);
		st = fo_hint(st, "looked for names that end in .json, .json.gz, .json.zst, .sqlite, .db or .fot");
	}
	return st;
}

static fo_status add_path(struct files *f, const char *path)
{
	if (fo_fs_is_dir(path))
		return add_folder(f, path);
	if (fo_fs_exists(path) || !strpbrk(path, "*?[")) {
		add(f, path, false);
		return FO_OK;
	}
	glob_t g = { 0 };
	int error = glob(path, 0, NULL, &g);
	fo_status st = FO_OK;
	if (error == GLOB_NOMATCH)
		st = fo_fail(FO_EARG, "no file matches '%s'", path);
	else if (error)
		st = fo_fail(FO_EIO, "cannot look for '%s'", path);
	else if (g.gl_pathc > MAX_FILES)
		st = fo_fail(FO_EARG, "'%s' matches %zu files, at most %d are read", path, g.gl_pathc, MAX_FILES);
	for (size_t i = 0; st == FO_OK && i < g.gl_pathc; i++)
		st = fo_fs_is_dir(g.gl_pathv[i]) ? add_folder(f, g.gl_pathv[i]) : (add(f, g.gl_pathv[i], false), FO_OK);
	globfree(&g);
	return st;
}

/* ---- reading ---- */

struct identity {
	struct stat st;
	const char *path;
};
static int by_identity(const void *a, const void *b)
{
	const struct stat *x = &((const struct identity *)a)->st, *y = &((const struct identity *)b)->st;
	if (x->st_dev != y->st_dev)
		return x->st_dev < y->st_dev ? -1 : 1;
	return x->st_ino != y->st_ino ? (x->st_ino < y->st_ino ? -1 : 1) : 0;
}

/* One file under two names (links) or given twice would be two ranks that wait for each other. */
static fo_status refuse_twice(const struct files *f)
{
	struct identity *v = fo_xmalloc((f->n + 1) * sizeof *v);
	size_t n = 0;
	fo_status st = FO_OK;
	for (size_t i = 0; i < f->n; i++) {
		v[n].path = f->v[i].path;
		n += stat(f->v[i].path, &v[n].st) == 0; /* what cannot be looked at is told by reading it */
	}
	qsort(v, n, sizeof *v, by_identity);
	for (size_t i = 1; st == FO_OK && i < n; i++) {
		if (by_identity(&v[i - 1], &v[i]) != 0)
			continue;
		st = strcmp(v[i - 1].path, v[i].path) == 0 ? fo_fail(FO_EARG, "'%s' is given twice", v[i].path) :
							     fo_fail(FO_EARG, "'%s' and '%s' are one file", v[i - 1].path, v[i].path);
		st = fo_hint(st, "give one recording of each rank; two runs are compared with: flatout compare A B");
	}
	free(v);
	return st;
}

static void *read_some(void *arg)
{
	struct files *f = arg;
	for (size_t i; (i = atomic_fetch_add(&f->next, 1)) < f->n;)
		fo_err_save(&f->v[i].err, fo_trace_open(&f->v[i].trace, f->v[i].path));
	return NULL;
}

static void read_all(struct files *f)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t want = cpus > 0 ? (size_t)cpus : 1;
	if (want > MAX_THREADS)
		want = MAX_THREADS;
	if (want > f->n)
		want = f->n;
	pthread_t thread[MAX_THREADS];
	size_t started = 0;
	/* One fewer: this thread reads too, and reads all where none could be started. */
	while (started + 1 < want && pthread_create(&thread[started], NULL, read_some, f) == 0)
		started++;
	read_some(f);
	for (size_t i = 0; i < started; i++)
		pthread_join(thread[i], NULL);
}

static bool holds_nothing(const struct fo_trace *t)
{
	return !t->gpu_count && !t->op_count && !t->launch_count;
}

static void skip(struct fo_trace_set *s, struct file *file, const char *why)
{
	struct fo_str text = { 0 };
	fo_str_printf(&text, "'%s' is no trace: %s", file->path, why);
	s->skipped = fo_xrealloc(s->skipped, (size_t)(s->skips + 1) * sizeof *s->skipped);
	s->skipped[s->skips++] = text.data;
	fo_trace_free(file->trace);
	file->trace = NULL;
}

/* Keeps what was read; what lies in a folder without being a trace is told and left out, unless nothing else is there. */
static fo_status keep(struct fo_trace_set *s, struct files *f)
{
	size_t good = 0;
	for (size_t i = 0; i < f->n; i++)
		good += f->v[i].err.st == FO_OK && !holds_nothing(f->v[i].trace);
	for (size_t i = 0; i < f->n; i++) {
		struct file *file = &f->v[i];
		bool failed = file->err.st != FO_OK;
		if (file->listed && good && file->err.st == FO_EFORMAT)
			skip(s, file, file->err.text);
		else if (failed)
			return fo_err_raise(&file->err);
		else if (file->listed && good && holds_nothing(file->trace))
			skip(s, file, "nothing of a GPU or a host in it");
	}
	size_t count = 0;
	for (size_t i = 0; i < f->n; i++)
		for (const struct fo_trace *t = f->v[i].trace; t; t = t->next)
			count++;
	s->rank = fo_xmalloc((count + 1) * sizeof *s->rank);
	for (size_t i = 0; i < f->n; i++) {
		for (struct fo_trace *t = f->v[i].trace, *next; t; t = next) {
			next = t->next;
			t->next = NULL;
			s->rank[s->count++] = t;
		}
		f->v[i].trace = NULL;
	}
	return FO_OK;
}

/* ---- whose it is ---- */

/* The number behind the last "rank" or "worker" in s[0..n): -1 without. */
static int number_in(const char *s, size_t n)
{
	static const char *const word[] = { "rank", "worker" };
	int found = -1;
	for (size_t i = 0; i < n; i++) {
		for (size_t w = 0; w < 2; w++) {
			size_t len = strlen(word[w]);
			if (i + len >= n || strncasecmp(s + i, word[w], len) != 0)
				continue;
			size_t at = i + len;
			if (strchr("_-.= ", s[at]) && at + 1 < n)
				at++;
			int64_t v = 0;
			size_t digits = at;
			while (digits < n && isdigit((unsigned char)s[digits]) && v < 100000000)
				v = v * 10 + (s[digits++] - '0');
			if (digits > at && v < 100000000)
				found = (int)v;
		}
	}
	return found;
}

static int rank_from_path(const char *path)
{
	for (size_t end = strlen(path); end;) {
		size_t from = end;
		while (from && path[from - 1] != '/')
			from--;
		int r = number_in(path + from, end - from);
		if (r >= 0)
			return r;
		end = from ? from - 1 : 0;
	}
	return -1;
}

static fo_status find_ranks(struct fo_trace_set *s)
{
	int unknown = 0;
	for (int i = 0; i < s->count; i++) {
		struct fo_trace *t = s->rank[i];
		if (t->rank >= 0)
			continue;
		/* One name cannot say the ranks of several processes. */
		bool shared = (i && strcmp(s->rank[i - 1]->path, t->path) == 0) || (i + 1 < s->count && strcmp(s->rank[i + 1]->path, t->path) == 0);
		t->rank = shared ? -1 : rank_from_path(t->path);
		t->rank_from = FO_RANK_FILE_NAME;
		unknown += t->rank < 0;
	}
	if (!unknown || s->count == 1)
		return FO_OK;
	for (int i = 0; i < s->count; i++) {
		if (s->rank[i]->rank < 0 && unknown < s->count) {
			fo_status st = fo_fail(FO_EARG, "whose is '%s'? other traces name their rank, this one does not", s->rank[i]->path);
			return fo_hint(st, "put the number into its name: rank3.json");
		}
	}
	for (int i = 0; i < s->count; i++) {
		s->rank[i]->rank = i;
		s->rank[i]->rank_from = FO_RANK_ORDER;
	}
	return FO_OK;
}

static int by_rank(const void *a, const void *b)
{
	const struct fo_trace *x = *(struct fo_trace *const *)a, *y = *(struct fo_trace *const *)b;
	return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1) : strcmp(x->path, y->path);
}

static bool overlap(const struct fo_trace *a, const struct fo_trace *b)
{
	if (!a->origin_unix_ns || !b->origin_unix_ns)
		return true;
	int64_t a0 = fo_plus(a->origin_unix_ns, a->begin_ns), a1 = fo_plus(a->origin_unix_ns, a->end_ns);
	int64_t b0 = fo_plus(b->origin_unix_ns, b->begin_ns), b1 = fo_plus(b->origin_unix_ns, b->end_ns);
	return fo_minus(b0, a1) < APART_NS && fo_minus(a0, b1) < APART_NS;
}

static fo_status check_one_job(const struct fo_trace_set *s)
{
	static const char *const format[] = { "of the PyTorch profiler", "of Nsight Systems", "our own" };
	const struct fo_trace *world = NULL;
	for (int i = 0; i < s->count; i++) {
		const struct fo_trace *t = s->rank[i], *first = s->rank[0];
		if (i && t->rank == s->rank[i - 1]->rank) {
			fo_status st = fo_fail(FO_EARG, "two traces of rank %d: '%s' and '%s'", t->rank, s->rank[i - 1]->path, t->path);
			return fo_hint(st, "give one recording of each rank; two runs are compared with: flatout compare A B");
		}
		if (t->format != first->format)
			return fo_fail(FO_EARG, "not one job: '%s' is %s, '%s' is %s", first->path, format[first->format], t->path,
				       format[t->format]);
		if (world && t->world_size > 0 && t->world_size != world->world_size)
			return fo_fail(FO_EARG, "not one job: '%s' is of %d ranks, '%s' of %d", world->path, world->world_size, t->path,
				       t->world_size);
		if (t->world_size > 0)
			world = t;
		if (!overlap(first, t)) {
			fo_status st = fo_fail(FO_EARG, "not one job: '%s' and '%s' were recorded hours apart", first->path, t->path);
			return fo_hint(st, "two runs are compared with: flatout compare A B");
		}
	}
	return FO_OK;
}

fo_status fo_trace_set_open(struct fo_trace_set *s, const char *const *path, int n)
{
	*s = (struct fo_trace_set){ .residual_ns = -1 };
	struct files f = { 0 };
	fo_status st = n > 0 ? FO_OK : fo_fail(FO_EARG, "no trace given");
	for (int i = 0; st == FO_OK && i < n; i++)
		st = add_path(&f, path[i]);
	if (st == FO_OK && f.n > MAX_FILES)
		st = fo_fail(FO_EARG, "%zu files, at most %d are read", f.n, MAX_FILES);
	if (st == FO_OK)
		st = refuse_twice(&f);
	if (st == FO_OK) {
		read_all(&f);
		st = keep(s, &f);
	}
	for (size_t i = 0; i < f.n; i++) {
		fo_trace_free(f.v[i].trace);
		free(f.v[i].path);
	}
	free(f.v);
	if (st == FO_OK)
		st = find_ranks(s);
	if (st == FO_OK) {
		qsort(s->rank, (size_t)s->count, sizeof *s->rank, by_rank);
		st = check_one_job(s);
	}
	if (st == FO_OK)
		fo_trace_set_match(s);
	else
		fo_trace_set_fini(s);
	return st;
}

void fo_trace_set_fini(struct fo_trace_set *s)
{
	for (int i = 0; i < s->count; i++)
		fo_trace_free(s->rank[i]);
	for (int i = 0; i < s->skips; i++)
		free(s->skipped[i]);
	free(s->skipped);
	free(s->rank);
	free(s->offset_ns);
	free(s->match);
	free(s->match_part);
	*s = (struct fo_trace_set){ .residual_ns = -1 };
}
