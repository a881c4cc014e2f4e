/* Logs of pipeline schedules: which file it is, and the order of what was read. The two formats: schedule_timeline.c,
 * schedule_primus.c. */
#include "trace/folder.h"
#include "trace/foreign.h"
#include "trace/schedule_int.h"
#include "trace/unpack.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/count.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* ---- which file ---- */

enum { SNIFF = 1 << 16 };

static bool is_timeline(const char *path)
{
	char *text;
	size_t n;
	if (fo_unpack_head(path, SNIFF, &text, &n) != FO_OK)
		return false;
	bool found = fo_schedule_begins(text);
	free(text);
	return found;
}

/* Has a folder what a Primus log consists of? */
static bool is_primus(const char *folder)
{
	static const char *const part[] = { "config.json", "pp_rank_0.json" };
	bool all = true;
	for (int i = 0; i < 2; i++) {
		struct fo_str s = { 0 };
		fo_str_printf(&s, "%s/%s", folder, part[i]);
		all &= fo_fs_exists(s.data) && !fo_fs_is_dir(s.data);
		fo_str_fini(&s);
	}
	return all;
}

/* The Primus folder that path is, or lies in as one of its files; NULL. The caller frees it. */
static char *primus_folder(const char *path)
{
	if (fo_fs_is_dir(path))
		return is_primus(path) ? fo_xstrdup(path) : NULL;
	if (strncmp(fo_text_file_name(path), "pp_rank_", 8) != 0)
		return NULL;
	char *folder = fo_fs_parent(path);
	if (is_primus(folder))
		return folder;
	free(folder);
	return NULL;
}

/* The timelines in a folder, not below it, by name: in arena memory. */
static char **timelines(struct fo_arena *a, const char *folder, size_t *n)
{
	char **v = NULL;
	size_t all = 0;
	*n = 0;
	if (fo_fs_list_here(a, folder, FO_FOLDER_FILES, &v, &all) != FO_OK)
		return NULL;
	for (size_t i = 0; i < all; i++)
		if ((fo_text_ends(v[i], ".json") || fo_text_ends(v[i], ".json.gz")) && is_timeline(v[i]))
			v[(*n)++] = v[i];
	return v;
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
	struct fo_arena a = { 0 };
	size_t n;
	timelines(&a, path, &n);
	fo_arena_fini(&a);
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
	const char *name = fo_text_file_name(path);
	bool found = false;
	for (size_t i = 0; i < n && strncmp(name, "ideal-", 6) == 0; i++)
		found |= strcmp(fo_text_file_name(v[i]), name + 6) == 0;
	return found;
}

static fo_status read_timelines(struct fo_schedule_log *s, const char *folder)
{
	struct fo_arena a = { 0 };
	size_t n;
	char **v = timelines(&a, folder, &n);
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
	fo_arena_fini(&a);
	return st;
}

/* ---- order ---- */

static int by_place(const void *a, const void *b)
{
	const struct fo_schedule_op *x = a, *y = b;
	return FO_ORDER_BY(fo_order(x->step, y->step), fo_order(x->replica, y->replica), fo_order(x->stage, y->stage),
			   fo_order(x->begin_ns, y->begin_ns), fo_order(x->kind, y->kind),
			   fo_order(x->sequence, y->sequence));
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
		s->microbatches = (int)fo_max(run / s->chunks, s->microbatches);
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
			if (o[i].kind <= FO_SCHED_WEIGHT)
				begin = fo_min(o[i].begin_ns, begin);
		for (int64_t i = 0; i < s->step[k].ops; i++)
			if (o[i].kind <= FO_SCHED_WEIGHT)
				span[o[i].stage] = fo_max(o[i].end_ns - begin, span[o[i].stage]);
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
		if (s->op[i].kind <= FO_SCHED_WEIGHT)
			chunks = (int)fo_max(s->op[i].chunk + 1, chunks);
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
