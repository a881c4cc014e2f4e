/* Logs of pipeline schedules: which file it is, and the order of what was read. The two formats: schedule_timeline.c,
 * schedule_primus.c. */
#include "trace/folder.h"
#include "trace/foreign.h"
#include "trace/schedule_int.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/count.h"
#include "base/text.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* ---- which file ---- */

enum { SNIFF = 1 << 16 };

static bool is_timeline(const char *path)
{
	gzFile f;
	if (fo_schedule_text_open(path, &f) != FO_OK)
		return false;
	char *text = fo_xmalloc(SNIFF + 1);
	int n = gzread(f, text, SNIFF);
	gzclose(f);
	bool found = n > 0 && fo_schedule_begins(text);
	free(text);
	return found;
}

static char *joined(const char *folder, const char *name)
{
	struct fo_str s = { 0 };
	fo_str_printf(&s, "%s/%s", folder, name);
	return s.data;
}

static bool has(const char *folder, const char *name)
{
	char *p = joined(folder, name);
	bool yes = fo_fs_exists(p) && !fo_fs_is_dir(p);
	free(p);
	return yes;
}

/* The Primus folder that path is, or lies in as one of its files; NULL. The caller frees it. */
static char *primus_folder(const char *path)
{
	if (fo_fs_is_dir(path))
		return has(path, "config.json") && has(path, "pp_rank_0.json") ? fo_xstrdup(path) : NULL;
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	if (strncmp(name, "pp_rank_", 8) != 0)
		return NULL;
	char *folder = slash ? fo_xstrdup(path) : fo_xstrdup(".");
	if (slash)
		folder[slash == path ? 1 : slash - path] = 0;
	if (has(folder, "config.json") && has(folder, "pp_rank_0.json"))
		return folder;
	free(folder);
	return NULL;
}

static bool named_json(const char *name)
{
	size_t n = strlen(name);
	return (n > 5 && strcmp(name + n - 5, ".json") == 0) || (n > 8 && strcmp(name + n - 8, ".json.gz") == 0);
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The timelines of a folder, by name; the caller frees each and the list. */
static char **timelines(const char *folder, size_t *n)
{
	char **v = NULL;
	size_t cap = 0;
	*n = 0;
	DIR *d = opendir(folder);
	for (struct dirent *e; d && (e = readdir(d));) {
		if (e->d_name[0] == '.' || !named_json(e->d_name))
			continue;
		char *p = joined(folder, e->d_name);
		if (fo_fs_is_dir(p) || !is_timeline(p)) {
			free(p);
			continue;
		}
		fo_array_room(&v, &cap, *n, sizeof *v);
		v[(*n)++] = p;
	}
	if (d)
		closedir(d);
	if (*n)
		qsort(v, *n, sizeof *v, by_text);
	return v;
}

static void free_texts(char **v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(v[i]);
	free(v);
}

/* Does the folder hold traces? Then a log in it only lies beside them. */
static bool has_traces(const char *folder)
{
	struct fo_arena a = { 0 };
	char **v;
	size_t n;
	bool found = false;
	if (fo_fs_list(&a, folder, FO_FOLDER_FILES, &v, &n) == FO_OK)
		for (size_t i = 0; i < n && !found; i++)
			found = fo_foreign_is_trace(v[i]);
	fo_arena_fini(&a);
	return found;
}

bool fo_schedule_is(const char *path)
{
	bool is_folder = fo_fs_is_dir(path);
	char *folder = primus_folder(path);
	if (folder) {
		free(folder);
		return !is_folder || !has_traces(path);
	}
	if (!is_folder)
		return fo_fs_exists(path) && is_timeline(path);
	size_t n;
	char **v = timelines(path, &n);
	free_texts(v, n);
	return n > 0 && !has_traces(path);
}

bool fo_schedule_same(const char *a, const char *b)
{
	char *x = primus_folder(a), *y = primus_folder(b);
	bool same = x && y && strcmp(x, y) == 0;
	free(x);
	free(y);
	return same;
}

/* Is path what an analysis writes beside the timeline it was made from? ideal-timeline-ST.json.gz beside
 * timeline-ST.json.gz. */
static bool simulated_from(const char *path, char *const *v, size_t n)
{
	const char *name = strrchr(path, '/') + 1;
	if (strncmp(name, "ideal-", 6) != 0)
		return false;
	for (size_t i = 0; i < n; i++)
		if (strcmp(strrchr(v[i], '/') + 1, name + 6) == 0)
			return true;
	return false;
}

static fo_status read_timelines(struct fo_schedule_log *s, const char *folder)
{
	size_t n;
	char **v = timelines(folder, &n);
	const char *one = NULL;
	fo_status st = n ? FO_OK : fo_fail(FO_EARG, "no timeline in '%s'", folder);
	for (size_t i = 0; st == FO_OK && i < n; i++) {
		if (simulated_from(v[i], v, n)) {
			free(s->also);
			s->also = fo_xstrdup(v[i]);
		} else if (one) {
			st = fo_fail(FO_EARG, "two timelines in '%s': '%s' and '%s'", folder, one, v[i]);
			st = fo_hint(st, "give one of them by name");
		} else {
			one = v[i];
		}
	}
	if (st == FO_OK)
		st = fo_schedule_read_timeline(s, one);
	free_texts(v, n);
	return st;
}

/* ---- order ---- */

static int by_place(const void *a, const void *b)
{
	const struct fo_schedule_op *x = a, *y = b;
	if (x->step != y->step)
		return fo_order(x->step, y->step);
	if (x->replica != y->replica)
		return fo_order(x->replica, y->replica);
	if (x->stage != y->stage)
		return fo_order(x->stage, y->stage);
	if (x->begin_ns != y->begin_ns)
		return fo_order(x->begin_ns, y->begin_ns);
	if (x->kind != y->kind)
		return fo_order(x->kind, y->kind);
	return fo_order(x->sequence, y->sequence);
}

/* The number of forward passes that a worker did per chunk in a step; the greatest over workers and steps. */
static void count_microbatches(struct fo_schedule_log *s)
{
	int64_t run = 0;
	for (int64_t i = 0; i < s->ops; i++) {
		const struct fo_schedule_op *o = &s->op[i];
		if (i && (o->step != o[-1].step || o->replica != o[-1].replica || o->stage != o[-1].stage))
			run = 0;
		run += o->kind == FO_SCHED_FORWARD;
		if (run / s->chunks > s->microbatches)
			s->microbatches = (int)(run / s->chunks);
	}
}

/* Spans from the step's first compute to each stage's last, unless the log brought its own. */
static void measure_spans(struct fo_schedule_log *s)
{
	s->span_ns = fo_xmalloc((size_t)(s->steps * s->stages + 1) * sizeof *s->span_ns);
	for (int64_t k = 0; k < s->steps; k++) {
		const struct fo_schedule_op *o = s->op + s->step[k].first;
		int64_t begin = INT64_MAX, *span = s->span_ns + k * s->stages;
		for (int64_t i = 0; i < s->step[k].ops; i++)
			if (o[i].kind <= FO_SCHED_WEIGHT && o[i].begin_ns < begin)
				begin = o[i].begin_ns;
		for (int64_t i = 0; i < s->step[k].ops; i++)
			if (o[i].kind <= FO_SCHED_WEIGHT && o[i].end_ns - begin > span[o[i].stage])
				span[o[i].stage] = o[i].end_ns - begin;
	}
}

static void finish(struct fo_schedule_log *s)
{
	qsort(s->op, (size_t)s->ops, sizeof *s->op, by_place);
	int chunks = 0;
	for (int64_t i = 0; i < s->ops; i++) {
		struct fo_schedule_step *k = &s->step[s->op[i].step];
		k->first = k->ops ? k->first : i;
		k->ops++;
		s->has_transfers |= s->op[i].kind >= FO_SCHED_FORWARD_SEND && s->op[i].kind <= FO_SCHED_BACKWARD_RECV;
		if (s->op[i].kind <= FO_SCHED_WEIGHT && s->op[i].chunk >= chunks)
			chunks = s->op[i].chunk + 1;
	}
	s->chunks = chunks ? chunks : 1;
	count_microbatches(s);
	if (!s->span_ns)
		measure_spans(s);
}

fo_status fo_schedule_open(struct fo_schedule_log **out, const char *path)
{
	struct fo_schedule_log *s = fo_xmalloc(sizeof *s);
	s->path = fo_xstrdup(path);
	char *primus = primus_folder(path);
	fo_status st;
	if (primus)
		st = fo_schedule_read_primus(s, primus);
	else if (fo_fs_is_dir(path))
		st = read_timelines(s, path);
	else
		st = fo_schedule_read_timeline(s, path);
	free(primus);
	if (st != FO_OK) {
		fo_schedule_free(s);
		return st;
	}
	finish(s);
	*out = s;
	return FO_OK;
}

void fo_schedule_free(struct fo_schedule_log *s)
{
	if (!s)
		return;
	free(s->path);
	free(s->op);
	free(s->step);
	free(s->span_ns);
	free(s->also);
	free(s);
}
