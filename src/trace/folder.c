#include "trace/folder.h"

#include "trace/foreign.h"
#include "trace/schedule.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/count.h"
#include "base/text.h"
#include "timeline/timeline.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The length of the path's folder, without the slash. */
static size_t folder_length(const char *path)
{
	const char *name = fo_text_file_name(path);
	return name > path ? (size_t)(name - path) - 1 : 0;
}

static bool named_like_a_trace(const char *path)
{
	static const char *const known[] = { ".json",    ".json.gz", ".json.zst", ".sqlite",
					     ".sqlite3", ".db",      ".fot",      ".nsys-rep" };
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (fo_text_ends(path, known[i]))
			return true;
	return false;
}

/* Does the report's SQLite export lie beside it? Then that is read. */
static bool exported(char *const *v, size_t n, const char *report)
{
	size_t stem = strlen(report) - strlen(".nsys-rep");
	for (size_t i = 0; i < n; i++)
		if (strncmp(v[i], report, stem) == 0 && strcasecmp(v[i] + stem, ".sqlite") == 0)
			return true;
	return false;
}

void fo_trace_set_leave(struct fo_trace_set *s, enum fo_left_kind kind, const char *path, int files, const char *why)
{
	enum {
		NEAR = 64
	}; /* entries looked back: a folder may hold thousands of files, each with a reason of its own */
	size_t n = folder_length(path);
	for (int i = s->lefts - 1; i >= 0 && i >= s->lefts - NEAR && kind != FO_LEFT_EARLIER; i--) {
		struct fo_left_out *l = &s->left[i];
		if (l->kind != kind || strcmp(l->why, why) != 0 || folder_length(l->path) != n ||
		    strncmp(l->path, path, n) != 0)
			continue;
		l->files += files;
		return;
	}
	s->left = fo_xrealloc(s->left, (size_t)(s->lefts + 1) * sizeof *s->left);
	s->left[s->lefts++] = (struct fo_left_out){ kind, fo_xstrdup(path), fo_xstrdup(why), files };
}

/* ---- several recordings ---- */

/* The recording that a file belongs to, as its path says. */
struct numbered {
	char *slot;     /* the path without the number: the same for one worker in all recordings */
	int64_t number; /* of the iteration, or the time in the name, then how many are before it; -1 none */
	bool iteration;
	bool taken;   /* part of a recording */
	size_t label; /* bytes of the path that name the recording; 0: the file's name does */
	size_t file;
};

static int64_t number_at(const char *p, size_t *digits)
{
	int64_t v = 0;
	for (*digits = 0; isdigit((unsigned char)p[*digits]); ++*digits)
		v = v < INT64_MAX / 10 - 9 ? v * 10 + (p[*digits] - '0') : v;
	return v;
}

/* "iteration_20", "iter20", "step-12", "global_step=5": where the digits are. */
static const char *iteration_in(const char *p, size_t *digits, int64_t *number)
{
	static const char *const word[] = { "iteration", "iter", "global_step", "step" };
	for (const char *begin = p; *p; p++)
		for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
			size_t n = strlen(word[i]);
			if (strncasecmp(p, word[i], n) != 0 || (p > begin && isalpha((unsigned char)p[-1])))
				continue;
			const char *at = p + n + (p[n] && strchr("_-=", p[n]) ? 1 : 0);
			*number = number_at(at, digits);
			if (*digits)
				return at;
		}
	return NULL;
}

/* "worker0.1694128201545.pt.trace.json": the time at which it was written, ten digits or more. */
static const char *time_in(const char *name, size_t *digits, int64_t *number)
{
	for (const char *p = name; *p; p += *digits ? *digits : 1) {
		*number = number_at(p, digits);
		if (*digits >= 10)
			return p;
	}
	return NULL;
}

static struct numbered look_at(const char *folder, const char *path, size_t file)
{
	struct numbered x = { .number = -1, .file = file };
	size_t skip = strlen(folder), n_iteration = 0, n_time = 0;
	int64_t number, time;
	const char *below = strncmp(path, folder, skip) == 0 ? path + skip : path;
	const char *iteration = iteration_in(below, &n_iteration, &number),
		   *at = time_in(fo_text_file_name(path), &n_time, &time);
	if (iteration) {
		x.number = number;
		x.iteration = true;
		const char *slash = strchr(iteration, '/');
		x.label = slash ? (size_t)(slash - path) : 0;
	} else if (at) {
		x.number = time;
	}
	struct fo_str slot = { 0 };
	for (const char *p = path; *p;) {
		size_t masked = 0;
		if (p == iteration)
			masked = n_iteration;
		else if (p == at)
			masked = n_time;
		fo_str_append(&slot, masked ? "#" : p, 1);
		p += masked ? masked : 1;
	}
	x.slot = slot.data;
	return x;
}

static int by_slot(const void *a, const void *b)
{
	const struct numbered *x = a, *y = b;
	return FO_ORDER_BY(strcmp(x->slot, y->slot), fo_order(x->number, y->number));
}

static int newest_first(const void *a, const void *b)
{
	const struct fo_recording *x = a, *y = b;
	return FO_ORDER_BY(fo_order(y->complete, x->complete), fo_order(y->number, x->number));
}

/* Found or made. */
static int recording_for(struct fo_folder *f, const struct numbered *x)
{
	int64_t number = x->number;
	for (int i = 0; i < f->recordings; i++)
		if (f->recording[i].number == number)
			return i;
	struct fo_str label = { 0 };
	if (x->label)
		fo_str_append(&label, f->file[x->file], x->label);
	else if (x->iteration)
		fo_str_printf(&label, "%s, iteration %lld", f->path, (long long)number);
	else
		fo_str_printf(&label, "%s, recording %lld of each worker", f->path, (long long)number + 1);
	f->recording = fo_xrealloc(f->recording, (size_t)(f->recordings + 1) * sizeof *f->recording);
	f->recording[f->recordings] = (struct fo_recording){ .label = label.data, .number = number };
	return f->recordings++;
}

/* Finds recordings: where a worker has several files whose paths differ only in an iteration's number or a time, each
 * number is one. */
static void find_recordings(struct fo_folder *f)
{
	struct numbered *v = fo_xmalloc((f->files + 1) * sizeof *v);
	bool several = false, iterations = false;
	int slots = 0;
	for (size_t i = 0; i < f->files; i++) {
		v[i] = look_at(f->path, f->file[i], i);
		iterations |= v[i].iteration;
	}
	qsort(v, f->files, sizeof *v, by_slot);
	for (size_t i = 1; i < f->files; i++)
		several |= v[i].number >= 0 && v[i].iteration == iterations && strcmp(v[i].slot, v[i - 1].slot) == 0 &&
			   v[i].number != v[i - 1].number;
	int64_t within = 0;
	for (size_t i = 0; several && i < f->files; i++) {
		bool first = !i || strcmp(v[i].slot, v[i - 1].slot) != 0;
		within = first ? 0 : within + 1;
		if (v[i].number < 0 || v[i].iteration != iterations)
			continue;
		slots += first;
		v[i].number = iterations ? v[i].number : within;
		v[i].taken = true;
		int at = recording_for(f, &v[i]); /* may move the array */
		f->recording[at].files++;
	}
	for (int i = 0; i < f->recordings; i++)
		f->recording[i].complete = f->recording[i].files == slots;
	if (f->recordings)
		qsort(f->recording, (size_t)f->recordings, sizeof *f->recording, newest_first);
	for (size_t i = 0; i < f->files; i++) {
		if (v[i].taken)
			f->recording_of[v[i].file] = recording_for(f, &v[i]);
		free(v[i].slot);
	}
	free(v);
}

/* ---- listing ---- */

static void take(struct fo_folder *f, const char *path)
{
	f->file = fo_xrealloc(f->file, (f->files + 1) * sizeof *f->file);
	f->recording_of = fo_xrealloc(f->recording_of, (f->files + 1) * sizeof *f->recording_of);
	f->recording_of[f->files] = -1;
	f->file[f->files++] = fo_xstrdup(path);
}

/* Appends the folders of these files for a hint of one line, each once; how many there are. v is sorted. */
static size_t name_folders(struct fo_str *out, char *const *v, size_t n, bool (*wanted)(const char *path))
{
	enum { SHOWN = 4 };
	size_t found = 0, last_n = 0;
	const char *last = "";
	for (size_t i = 0; i < n; i++) {
		size_t len = folder_length(v[i]);
		if (!wanted(v[i]) || (found && len == last_n && strncmp(v[i], last, len) == 0))
			continue;
		last = v[i];
		last_n = len;
		if (found++ < SHOWN)
			fo_str_printf(out, "%s%.*s", found > 1 ? ", " : "", (int)len, v[i]);
	}
	fo_str_puts(out, found > SHOWN ? ", ..." : "");
	return found;
}

/* A timeline of ours that stands for a run: the other ranks' belong to rank 0's. */
static bool is_own(const char *path) { return fo_text_ends(path, ".fot") && fo_timeline_rank_of_path(path) < 1; }
static bool is_stage(const char *path) { return strncmp(fo_text_file_name(path), "pp_rank_", 8) == 0; }

/* Rank 0's timeline, and those of the other ranks beside it that were written with it: a file that an earlier run left
 * is of another job. What cannot be read is told when it is. */
static void take_ranks(struct fo_folder *f, struct fo_trace_set *s, const char *first, char *const *v, size_t n)
{
	struct fo_timeline_file own = { 0 }, other;
	take(f, first);
	bool known = fo_timeline_read(&own, first) == FO_OK;
	for (size_t i = 0; i < n; i++) {
		if (fo_timeline_rank_of_path(v[i]) < 1 || folder_length(v[i]) != folder_length(first) ||
		    strncmp(v[i], first, folder_length(first)) != 0)
			continue;
		bool read = fo_timeline_read(&other, v[i]) == FO_OK;
		if (known && read && !fo_timeline_same_run(&own, &other))
			fo_trace_set_leave(s, FO_LEFT_RUN, v[i], 1, "is of another run than rank 0's timeline");
		else
			take(f, v[i]);
		if (read)
			fo_timeline_fini(&other.t);
	}
	fo_err_clear();
	if (known)
		fo_timeline_fini(&own.t);
}

/* A run of ours leaves its timelines in its folder. Runs below it (a ladder's rungs) are runs of their own. */
static fo_status take_run(struct fo_folder *f, struct fo_trace_set *s, char *const *v, size_t n)
{
	struct fo_str own = { 0 }, some = { 0 };
	size_t runs = 0, last = 0;
	fo_str_printf(&own, "%s%s" FO_TIMELINE_FILE, f->path, fo_text_ends(f->path, "/") ? "" : "/");
	bool here = fo_fs_exists(own.data);
	for (size_t i = 0; i < n; i++)
		if (is_own(v[i])) {
			last = i;
			runs++;
		}
	fo_status st = FO_OK;
	if (here || runs == 1) {
		take_ranks(f, s, here ? own.data : v[last], v, n);
	} else {
		name_folders(&some, v, n, is_own);
		st = fo_fail(FO_EARG, "'%s' holds %zu runs, which are not ranks of one job", f->path, runs);
		st = fo_hint(st, "give one of them: %s", some.data);
	}
	for (size_t i = 0; here && i < n; i++)
		if (is_own(v[i]) && strcmp(v[i], own.data) != 0)
			fo_trace_set_leave(s, FO_LEFT_RUN, v[i], 1,
					   "is of another run, in a folder below: give that folder by name");
	fo_str_fini(&own);
	fo_str_fini(&some);
	return st;
}

/* The settings beside a Primus log are part of it. */
static bool of_schedule(const char *path)
{
	if (is_stage(path))
		return fo_schedule_is(path);
	if (strcmp(fo_text_file_name(path), "config.json") != 0)
		return false;
	struct fo_str beside = { 0 };
	fo_str_printf(&beside, "%.*s/pp_rank_0.json", (int)folder_length(path), path);
	bool yes = fo_schedule_is(beside.data);
	fo_str_fini(&beside);
	return yes;
}

static fo_status take_traces(struct fo_folder *f, struct fo_trace_set *s, char *const *v, size_t n)
{
	size_t schedules = 0;
	for (size_t i = 0; i < n; i++) {
		const struct fo_foreign *other = named_like_a_trace(v[i]) ? NULL : fo_foreign_by_name(v[i]);
		if (other) {
			struct fo_str why = { 0 };
			fo_str_printf(&why, "is %s, by its name", other->what);
			fo_trace_set_leave(s, FO_LEFT_FOREIGN, v[i], 1, why.data);
			fo_str_fini(&why);
		} else if (!named_like_a_trace(v[i]) || (fo_text_ends(v[i], ".nsys-rep") && exported(v, n, v[i]))) {
			continue;
		} else if (of_schedule(v[i])) {
			schedules++;
			fo_trace_set_leave(s, FO_LEFT_SCHEDULE, v[i], 1,
					   "is the log of a pipeline schedule: give it alone");
		} else {
			take(f, v[i]);
		}
	}
	if (f->files || !schedules)
		return FO_OK;
	struct fo_str below = { 0 };
	name_folders(&below, v, n, is_stage);
	fo_status st = fo_fail(FO_EARG, "'%s' holds no traces but logs of pipeline schedules", f->path);
	st = fo_hint(st, "give one of them: %s", below.data);
	fo_str_fini(&below);
	return st;
}

fo_status fo_folder_list(struct fo_folder *f, const char *path, struct fo_trace_set *s)
{
	struct fo_arena a = { 0 };
	char **v;
	size_t n;
	bool own = false;
	*f = (struct fo_folder){ .path = fo_xstrdup(path) };
	fo_status st = fo_fs_list(&a, path, FO_FOLDER_FILES, &v, &n);
	for (size_t i = 0; st == FO_OK && i < n; i++)
		own |= fo_text_ends(v[i], ".fot");
	/* A run's folder holds its records as JSON beside the timelines. */
	if (st == FO_OK)
		st = own ? take_run(f, s, v, n) : take_traces(f, s, v, n);
	fo_arena_fini(&a);
	if (st == FO_OK && !f->files) {
		st = fo_fail(FO_EARG, "no traces in '%s', which holds %zu file%s, none named like a trace", path, n,
			     fo_plural(n));
		const struct fo_left_out *l = s->lefts ? &s->left[s->lefts - 1] : NULL;
		st = l ? fo_hint(st, "'%s' %s", l->path, l->why)
		       : fo_hint(st, "traces have names that end in .json, .json.gz, .json.zst, .sqlite, .db or .fot");
	}
	if (st == FO_OK)
		find_recordings(f);
	return st;
}

void fo_folder_fini(struct fo_folder *f)
{
	for (size_t i = 0; i < f->files; i++)
		free(f->file[i]);
	for (int i = 0; i < f->recordings; i++)
		free(f->recording[i].label);
	free(f->file);
	free(f->recording_of);
	free(f->recording);
	free(f->path);
	*f = (struct fo_folder){ 0 };
}
