/* The traces of one job: which files, whose they are, and whether they belong together. */
#include "trace/folder.h"
#include "trace/trace.h"

#include "base/fs.h"
#include "base/index.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/count.h"
#include "base/text.h"
#include "base/thread.h"

#include <ctype.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <xxhash.h>

/* Two ranks of one job record the same steps, so their windows overlap but for what clocks are wrong. An hour of
 * disagreement is taken for another run. */
static const int64_t APART_NS = 3600LL * 1000000000;

const char *const fo_left_name[FO_LEFT_COUNT] = {
	[FO_LEFT_FOREIGN] = "foreign", [FO_LEFT_NOTHING] = "nothing",   [FO_LEFT_EARLIER] = "earlier",
	[FO_LEFT_RUN] = "run",         [FO_LEFT_SCHEDULE] = "schedule", [FO_LEFT_COPY] = "copy",
};

#define TWO_RUNS "two runs are compared with: flatout compare A B"
static const char one_each[] = "give one recording of each rank; " TWO_RUNS;

struct file {
	char *path;
	bool listed; /* found in a folder, not named by the user: may turn out to be something else */
	bool wanted; /* to be read now */
	bool read;
	int folder, recording; /* of the folder's; -1 */
	struct fo_trace *trace;
	struct fo_err err;
};

struct files {
	struct file *v;
	size_t n, cap;
	struct fo_folder *folder;
	size_t folders;
};

static void add(struct files *f, const char *path, bool listed, int folder, int recording)
{
	fo_array_room(&f->v, &f->cap, f->n, sizeof *f->v);
	f->v[f->n++] = (struct file){ .path = fo_xstrdup(path),
				      .listed = listed,
				      .folder = folder,
				      .recording = recording,
				      .wanted = recording < 0 };
}

static fo_status add_folder(struct files *f, struct fo_trace_set *s, const char *path)
{
	f->folder = fo_xrealloc(f->folder, (f->folders + 1) * sizeof *f->folder);
	struct fo_folder *d = &f->folder[f->folders++];
	FO_TRY(fo_folder_list(d, path, s));
	for (size_t i = 0; i < d->files; i++)
		add(f, d->file[i], true, (int)f->folders - 1, d->recording_of[i]);
	return FO_OK;
}

static fo_status add_path(struct files *f, struct fo_trace_set *s, const char *path)
{
	if (fo_fs_is_dir(path))
		return add_folder(f, s, path);
	if (fo_fs_exists(path) || !strpbrk(path, "*?[")) {
		add(f, path, false, -1, -1);
		return FO_OK;
	}
	glob_t g = { 0 };
	int error = glob(path, 0, NULL, &g);
	fo_status st = FO_OK;
	if (error == GLOB_NOMATCH)
		st = fo_fail(FO_EARG, "no file matches '%s'", path);
	else if (error)
		st = fo_fail(FO_EIO, "cannot look for '%s'", path);
	else if (g.gl_pathc > FO_FOLDER_FILES)
		st = fo_fail(FO_EARG, "'%s' matches %zu files, at most %d are read", path, g.gl_pathc, FO_FOLDER_FILES);
	for (size_t i = 0; st == FO_OK && i < g.gl_pathc; i++)
		st = fo_fs_is_dir(g.gl_pathv[i]) ? add_folder(f, s, g.gl_pathv[i])
						 : (add(f, g.gl_pathv[i], false, -1, -1), FO_OK);
	globfree(&g);
	return st;
}

/* ---- reading ---- */

/* One file under two names (links) or given twice would be two ranks that wait for each other. */
static fo_status refuse_twice(const struct files *f)
{
	struct fo_index seen = { 0 };
	fo_status st = FO_OK;
	for (size_t i = 0; st == FO_OK && i < f->n; i++) {
		struct stat now;
		if (stat(f->v[i].path, &now)) /* reading it tells why */
			continue;
		const char *path = f->v[i].path,
			   *first =
				   f->v[fo_index_add(&seen, (int64_t)now.st_dev, (int64_t)now.st_ino, (int32_t)i)].path;
		if (first == path)
			continue;
		st = strcmp(first, path) == 0 ? fo_fail(FO_EARG, "'%s' is given twice", path)
					      : fo_fail(FO_EARG, "'%s' and '%s' are one file", first, path);
		st = fo_hint(st, "%s", one_each);
	}
	fo_index_fini(&seen);
	return st;
}

static void read_one(void *ctx, size_t i)
{
	struct file *file = &((struct files *)ctx)->v[i];
	if (!file->wanted || file->read)
		return;
	fo_err_save(&file->err, fo_trace_open(&file->trace, file->path));
	file->read = true;
}

static bool holds_nothing(const struct fo_trace *t) { return !t->gpu_count && !t->op_count && !t->launch_count; }

static void forget(struct file *file)
{
	fo_trace_free(file->trace);
	file->trace = NULL;
	file->read = file->wanted = false;
}

/* ---- several recordings ---- */

/* The fault of a file, as the rest of a sentence that begins with its path; NULL: none. */
static const char *fault(const struct file *file)
{
	if (file->err.st != FO_OK)
		return "cannot be read";
	if (holds_nothing(file->trace))
		return "holds nothing of a GPU or a host";
	return file->trace->defect.truncated ? "ends inside its events" : NULL;
}

static bool is_of(const struct file *file, size_t folder, int recording)
{
	return file->folder == (int)folder && file->recording == recording;
}

/* Reads one recording. Returns the first file that is not whole; NULL: all are. */
static const struct file *try_recording(struct files *f, size_t folder, int recording)
{
	const struct file *bad = NULL;
	for (size_t i = 0; i < f->n; i++)
		f->v[i].wanted |= is_of(&f->v[i], folder, recording);
	fo_thread_share(f->n, read_one, f);
	for (size_t i = 0; i < f->n && !bad; i++)
		if (is_of(&f->v[i], folder, recording) && fault(&f->v[i]))
			bad = &f->v[i];
	return bad;
}

/* The newest recording that is whole; where none is, the newest in which nobody is missing, else the newest. The others
 * are told. */
static void choose_recording(struct fo_trace_set *s, struct files *f, size_t folder)
{
	const struct fo_folder *d = &f->folder[folder];
	char **why = fo_xmalloc((size_t)d->recordings * sizeof *why + 1);
	int most = 0, chosen = -1;
	for (int r = 0; r < d->recordings; r++)
		most = fo_max(d->recording[r].files, most);
	for (int r = 0; r < d->recordings && chosen < 0; r++) {
		struct fo_str text = { 0 };
		const struct file *bad = d->recording[r].complete ? try_recording(f, folder, r) : NULL;
		if (d->recording[r].complete && !bad) {
			chosen = r;
			break;
		}
		if (bad)
			fo_str_printf(&text, "is not whole: '%s' %s", bad->path, fault(bad));
		why[r] = text.data;
		for (size_t i = 0; bad && i < f->n; i++)
			if (is_of(&f->v[i], folder, r))
				forget(&f->v[i]);
	}
	if (chosen < 0) {
		chosen = 0;
		try_recording(f, folder, chosen);
	}
	for (int r = 0; r < d->recordings; r++) {
		const struct fo_recording *x = &d->recording[r];
		struct fo_str text = { 0 };
		if (r != chosen && !x->complete)
			fo_str_printf(&text, "is another recording, of fewer workers");
		else if (r != chosen)
			fo_str_puts(&text, why[r] ? why[r] : "is an earlier recording");
		if (r != chosen)
			fo_trace_set_leave(s, FO_LEFT_EARLIER, x->label, x->files, text.data);
		fo_str_fini(&text);
		free(why[r]);
	}
	free(why);
	free(s->taken);
	s->taken = fo_xstrdup(d->recording[chosen].label);
}

static void read_files(struct fo_trace_set *s, struct files *f)
{
	fo_thread_share(f->n, read_one, f);
	for (size_t i = 0; i < f->folders; i++)
		if (f->folder[i].recordings)
			choose_recording(s, f, i);
}

/* ---- what is kept ---- */

static void skip(struct fo_trace_set *s, struct file *file, enum fo_left_kind kind, const char *why)
{
	char shown[300], subject[sizeof shown + 4];
	struct stat st;
	/* An error begins with the path, which the list shows itself. */
	size_t n = (size_t)snprintf(subject, sizeof subject, "'%s' ", fo_str_visible(shown, sizeof shown, file->path));
	if (strncmp(why, subject, n) == 0)
		why += n;
	fo_trace_set_leave(s, kind, file->path, 1, stat(file->path, &st) == 0 && st.st_size == 0 ? "is empty" : why);
	forget(file);
}

/* false: it cannot be read any more. */
static bool hash_file(const char *path, uint64_t *hash)
{
	enum { PIECE = 1 << 20 };
	FILE *f = fopen(path, "rbe");
	if (!f)
		return false;
	char *piece = fo_xrealloc(NULL, PIECE);
	XXH3_state_t *state = XXH3_createState();
	size_t n;
	XXH3_64bits_reset(state);
	while ((n = fread(piece, 1, PIECE, f)) > 0)
		XXH3_64bits_update(state, piece, n);
	bool good = !ferror(f);
	*hash = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	free(piece);
	fclose(f);
	return good;
}

/* Two ranks never record the same bytes: a copy under another name is no rank. In a folder it is left out, given by
 * name it is refused. Only files of one size are read again. */
static fo_status leave_copies(struct fo_trace_set *s, struct files *f)
{
	struct fo_index sizes = { 0 }, contents = { 0 };
	int64_t *size = fo_xmalloc((f->n + 1) * sizeof *size);
	bool *shared = fo_xmalloc(f->n + 1);
	fo_status st = FO_OK;
	for (size_t i = 0; i < f->n; i++) {
		struct stat now;
		if (!f->v[i].read || !f->v[i].trace || stat(f->v[i].path, &now) || !S_ISREG(now.st_mode))
			continue; /* a pipe is read once */
		size[i] = now.st_size;
		int32_t first = fo_index_add(&sizes, size[i], 0, (int32_t)i);
		if (first != (int32_t)i)
			shared[i] = shared[first] = true;
	}
	for (size_t k = 0; st == FO_OK && k < 2 * f->n;
	     k++) { /* the files that were named, then those found in folders */
		size_t i = k % f->n;
		uint64_t hash;
		if (!shared[i] || f->v[i].listed != (k >= f->n) || !hash_file(f->v[i].path, &hash))
			continue;
		int32_t first = fo_index_add(&contents, size[i], (int64_t)hash, (int32_t)i);
		if (first == (int32_t)i)
			continue;
		char shown[300];
		struct fo_str why = { 0 };
		fo_str_printf(&why, "is a copy of '%s'", fo_str_visible(shown, sizeof shown, f->v[first].path));
		if (f->v[i].listed)
			skip(s, &f->v[i], FO_LEFT_COPY, why.data);
		else
			st = fo_hint(fo_fail(FO_EARG, "'%s' %s", f->v[i].path, why.data),
				     "give one recording of each rank");
		fo_str_fini(&why);
	}
	fo_index_fini(&sizes);
	fo_index_fini(&contents);
	free(size);
	free(shared);
	return st;
}

/* Keeps what was read; what lies in a folder without being a trace is told and left out, unless nothing else is there.
 */
static fo_status keep(struct fo_trace_set *s, struct files *f)
{
	bool good = false;
	for (size_t i = 0; i < f->n; i++)
		good |= f->v[i].read && f->v[i].err.st == FO_OK && !holds_nothing(f->v[i].trace);
	for (size_t i = 0; i < f->n; i++) {
		struct file *file = &f->v[i];
		if (!file->read)
			continue;
		if (file->listed && good && (file->err.st == FO_EFORMAT || file->err.st == FO_EIO))
			skip(s, file, FO_LEFT_FOREIGN, file->err.text);
		else if (file->err.st != FO_OK)
			return fo_err_raise(&file->err);
		else if (file->listed && good && holds_nothing(file->trace))
			skip(s, file, FO_LEFT_NOTHING, "holds nothing of a GPU or a host");
	}
	FO_TRY(leave_copies(s, f));
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

/* The number after the last "rank" or "worker" of a path; -1: it has none. */
static int rank_from_path(const char *path)
{
	static const char *const word[] = { "rank", "worker" };
	int found = -1;
	for (const char *p = path; *p; p++)
		for (int w = 0; w < 2; w++) {
			const char *at = p + strlen(word[w]);
			if (strncasecmp(p, word[w], strlen(word[w])) != 0)
				continue;
			at += *at && strchr("_-.= ", *at);
			long number = isdigit((unsigned char)*at) ? strtol(at, NULL, 10) : LONG_MAX;
			if (number < 100000000)
				found = (int)number;
		}
	return found;
}

static fo_status find_ranks(struct fo_trace_set *s)
{
	int unknown = 0;
	for (int i = 0; i < s->count; i++) {
		struct fo_trace *t = s->rank[i];
		if (t->rank >= 0)
			continue;
		/* One name cannot say the ranks of several processes. */
		bool shared = (i && strcmp(s->rank[i - 1]->path, t->path) == 0) ||
			      (i + 1 < s->count && strcmp(s->rank[i + 1]->path, t->path) == 0);
		t->rank = shared ? -1 : rank_from_path(t->path);
		t->rank_from = FO_RANK_FILE_NAME;
		unknown += t->rank < 0;
	}
	for (int i = 0; unknown && s->count > 1 && i < s->count; i++) {
		struct fo_trace *t = s->rank[i];
		if (unknown == s->count) {
			t->rank = i;
			t->rank_from = FO_RANK_ORDER;
		} else if (t->rank < 0) {
			return fo_hint(fo_fail(FO_EARG, "'%s' does not say its rank, the other traces do", t->path),
				       "put the number into its name: rank3.json");
		}
	}
	return FO_OK;
}

static int by_rank(const void *a, const void *b)
{
	const struct fo_trace *x = *(struct fo_trace *const *)a, *y = *(struct fo_trace *const *)b;
	return x->rank != y->rank ? fo_order(x->rank, y->rank) : strcmp(x->path, y->path);
}

static bool overlap(const struct fo_trace *a, const struct fo_trace *b)
{
	if (!a->origin_unix_ns || !b->origin_unix_ns)
		return true;
	int64_t a0 = fo_plus(a->origin_unix_ns, a->begin_ns), a1 = fo_plus(a->origin_unix_ns, a->end_ns);
	int64_t b0 = fo_plus(b->origin_unix_ns, b->begin_ns), b1 = fo_plus(b->origin_unix_ns, b->end_ns);
	return fo_minus(b0, a1) < APART_NS && fo_minus(a0, b1) < APART_NS;
}

static const char *const format[] = { "of the PyTorch profiler", "of Nsight Systems", "our own" };

static fo_status check_one_job(const struct fo_trace_set *s)
{
	const struct fo_trace *world = NULL;
	for (int i = 0; i < s->count; i++) {
		const struct fo_trace *t = s->rank[i], *first = s->rank[0];
		if (i && t->rank == s->rank[i - 1]->rank) {
			fo_status st = fo_fail(FO_EARG, "two traces of rank %d: '%s' and '%s'", t->rank,
					       s->rank[i - 1]->path, t->path);
			return fo_hint(st, "%s", one_each);
		}
		if (t->format != first->format)
			return fo_fail(FO_EARG, "not one job: '%s' is %s, '%s' is %s", first->path,
				       format[first->format], t->path, format[t->format]);
		if (first->one_clock && t->one_clock && t->origin_unix_ns != first->origin_unix_ns)
			return fo_hint(fo_fail(FO_EARG, "not one job: '%s' and '%s' were written by two runs",
					       first->path, t->path),
				       TWO_RUNS);
		if (world && t->world_size > 0 && t->world_size != world->world_size)
			return fo_fail(FO_EARG, "not one job: '%s' is of %d ranks, '%s' of %d", world->path,
				       world->world_size, t->path, t->world_size);
		if (t->world_size > 0)
			world = t;
		if (!overlap(first, t)) {
			fo_status st = fo_fail(FO_EARG, "not one job: '%s' and '%s' were recorded hours apart",
					       first->path, t->path);
			return fo_hint(st, TWO_RUNS);
		}
	}
	return FO_OK;
}

/* ---- which jobs there are ---- */

/* Traces that may be one job's: one format, one world size, one hour, each rank once. */
struct job {
	const struct fo_trace *first;
	int last_rank, traces;
	bool one_folder;
};

static size_t folder_of(const char *path) { return (size_t)(fo_text_file_name(path) - path); }

static bool beside(const struct fo_trace *a, const struct fo_trace *b)
{
	size_t n = folder_of(a->path);
	return n == folder_of(b->path) && strncmp(a->path, b->path, n) == 0;
}

/* The traces come by rank, then path, so that the last rank tells whether this one is there. */
static bool may_join(const struct job *j, const struct fo_trace *t)
{
	return j->first->format == t->format && j->first->world_size == t->world_size &&
	       !j->first->origin_unix_ns == !t->origin_unix_ns && overlap(j->first, t) &&
	       (t->rank < 0 || t->rank != j->last_rank);
}

static int most_first(const void *a, const void *b)
{
	const struct job *x = a, *y = b;
	return x->traces != y->traces ? fo_order(y->traces, x->traces) : strcmp(x->first->path, y->first->path);
}

/* Finds jobs, traces of one folder first. Returns how many there are. */
static int find_jobs(const struct fo_trace_set *s, struct job *job)
{
	int n = 0;
	for (int i = 0; i < s->count; i++) {
		const struct fo_trace *t = s->rank[i];
		int at = 0;
		while (at < n && !(may_join(&job[at], t) && beside(job[at].first, t)))
			at++;
		for (at = at < n ? at : 0; at < n && !may_join(&job[at], t); at++)
			;
		if (at == n)
			job[n++] = (struct job){ .first = t, .one_folder = true };
		job[at].one_folder &= beside(job[at].first, t);
		job[at].last_rank = t->rank;
		job[at].traces++;
	}
	qsort(job, (size_t)n, sizeof *job, most_first);
	return n;
}

static void describe_job(struct fo_str *out, const struct job *j)
{
	const struct fo_trace *t = j->first;
	time_t at = (time_t)(t->origin_unix_ns / 1000000000);
	struct tm utc;
	char when[32], shown[300];
	fo_str_printf(out, "%d %s", j->traces, format[t->format]);
	if (t->world_size > 0)
		fo_str_printf(out, ", of %d rank%s", t->world_size, fo_plural(t->world_size));
	if (t->origin_unix_ns && gmtime_r(&at, &utc) && strftime(when, sizeof when, "%Y-%m-%d %H:%M UTC", &utc))
		fo_str_printf(out, ", %s", when);
	fo_str_printf(out, " ('%s'", fo_str_visible(shown, sizeof shown, t->path));
	if (j->traces > 1)
		fo_str_puts(out, j->one_folder ? " and others there" : " and others");
	fo_str_puts(out, ")");
}

/* The first pair of many files that does not fit says little: the hint says what was found. */
static fo_status tell_jobs(const struct fo_trace_set *s, fo_status st)
{
	enum { SHOWN = 4 }; /* a hint is one line */
	struct fo_str found = { 0 };
	struct job *job = fo_xmalloc((size_t)(s->count + 1) * sizeof *job);
	int n = find_jobs(s, job);
	if (s->count > 2 && n > 1) {
		fo_str_printf(&found, "%s%sfound: ", fo_err_hint(),
			      *fo_err_hint() ? "; " : "give the traces of one job; ");
		for (int i = 0; i < n && i < SHOWN; i++) {
			fo_str_puts(&found, i ? "; " : "");
			describe_job(&found, &job[i]);
		}
		if (n > SHOWN)
			fo_str_printf(&found, "; and %d more that do not belong together", n - SHOWN);
		st = fo_hint(st, "%s", found.data);
	}
	free(job);
	fo_str_fini(&found);
	return st;
}

static fo_status one_job(struct fo_trace_set *s)
{
	if (!s->count)
		return FO_OK;
	fo_status st = find_ranks(s);
	qsort(s->rank, (size_t)s->count, sizeof *s->rank, by_rank);
	if (st == FO_OK)
		st = check_one_job(s);
	return st == FO_OK ? FO_OK : tell_jobs(s, st);
}

fo_status fo_trace_set_open(struct fo_trace_set *s, const char *const *path, int n)
{
	*s = (struct fo_trace_set){ .residual_ns = -1 };
	struct files f = { 0 };
	fo_status st = n > 0 ? FO_OK : fo_fail(FO_EARG, "no trace given");
	for (int i = 0; st == FO_OK && i < n; i++)
		st = add_path(&f, s, path[i]);
	if (st == FO_OK && f.n > FO_FOLDER_FILES)
		st = fo_fail(FO_EARG, "%zu files, at most %d are read", f.n, FO_FOLDER_FILES);
	if (st == FO_OK)
		st = refuse_twice(&f);
	if (st == FO_OK) {
		read_files(s, &f);
		st = keep(s, &f);
	}
	for (size_t i = 0; i < f.n; i++) {
		fo_trace_free(f.v[i].trace);
		free(f.v[i].path);
	}
	for (size_t i = 0; i < f.folders; i++)
		fo_folder_fini(&f.folder[i]);
	free(f.folder);
	free(f.v);
	if (st == FO_OK)
		st = one_job(s);
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
	for (int i = 0; i < s->lefts; i++) {
		free(s->left[i].path);
		free(s->left[i].why);
	}
	free(s->left);
	free(s->taken);
	free(s->rank);
	free(s->offset_ns);
	free(s->match);
	free(s->match_part);
	*s = (struct fo_trace_set){ .residual_ns = -1 };
}
