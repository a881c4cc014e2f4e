/* The files that were given, those that were taken, and what is missing of the job: a few sentences for every output.
 */
#include "diagnose/diagnose.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/count.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 4 }; /* of one kind; JSON has all */

/* The begin and end of a recording cut off a few kernels; where a hundredth of the launches lack theirs, events were
 * left out. */
#define THIN 0.01

struct lines {
	struct fo_arena *a;
	const char **v;
	int64_t n;
};

#define say(l, ...) fo_arena_say((l)->a, &(l)->v, &(l)->n, __VA_ARGS__)

/* "0, 3, 5 to 7" */
static const char *list(struct fo_arena *a, const int *v, int n)
{
	const char *text = "";
	int said = 0;
	for (int i = 0, to; i < n; i = to + 1) {
		for (to = i; to + 1 < n && v[to + 1] == v[to] + 1;)
			to++;
		if (said++ == 2 * SHOWN)
			return fo_arena_printf(a, "%s, ...", text);
		text = fo_arena_printf(a, "%s%s%d", text, i ? ", " : "", v[i]);
		if (to > i + 1)
			text = fo_arena_printf(a, "%s to %d", text, v[to]);
		else
			to = i;
	}
	return text;
}

/* The job's number of ranks, as recorded, else by the highest number; 0: unknown. */
static int world_of(const struct fo_diagnosis *d, bool *recorded)
{
	int world = 0, highest = -1;
	bool order = false;
	for (int i = 0; i < d->ranks; i++) {
		const struct fo_trace *t = d->rank[i].trace;
		if (!t)
			continue;
		world = fo_max(t->world_size, world);
		highest = fo_max(d->rank[i].rank, highest);
		order |= t->rank_from == FO_RANK_ORDER;
	}
	*recorded = world > 0;
	if (world <= 0 && d->ranks > 1 && !order)
		return highest + 1;
	return world > 0 ? world : 0;
}

/* Ascending. */
static int *ranks_given(const struct fo_diagnosis *d, struct fo_arena *a)
{
	int *rank = fo_arena_alloc(a, (size_t)(d->ranks + 1) * sizeof *rank);
	for (int i = 0; i < d->ranks; i++)
		rank[i] = d->rank[i].rank;
	qsort(rank, (size_t)d->ranks, sizeof *rank, fo_by_int);
	return rank;
}

int fo_found_missing(const struct fo_diagnosis *d, struct fo_arena *a, int **missing)
{
	bool recorded;
	int world = world_of(d, &recorded), n = 0, at = 0;
	enum { MOST = 1 << 20 }; /* no job has more; a file may say anything */
	*missing = NULL;
	if (world <= d->ranks || world > MOST)
		return 0;
	int *present = ranks_given(d, a);
	*missing = fo_arena_alloc(a, (size_t)world * sizeof **missing);
	for (int r = 0; r < world; r++) {
		while (at < d->ranks && present[at] < r)
			at++;
		if (at == d->ranks || present[at] != r)
			(*missing)[n++] = r;
	}
	return n;
}

static const char *files(struct fo_arena *a, int n) { return n == 1 ? "" : fo_arena_printf(a, " (%d files)", n); }

static void say_ranks(struct lines *l, const struct fo_diagnosis *d)
{
	bool recorded;
	int world = world_of(d, &recorded), *missing, n = fo_found_missing(d, l->a, &missing);
	if (!n || (d->ranks == 1 && d->rank[0].rank < 0))
		return;
	const char *lack = fo_arena_printf(l->a, "there is no trace of rank %s", list(l->a, missing, n));
	if (d->ranks == 1) {
		say(l, "rank %d alone, of the job's %d: what the others did, and who waited for whom, is not known",
		    d->rank[0].rank, world);
	} else if (!recorded) {
		say(l, "%d ranks, by their names up to %d: %s", d->ranks, world - 1, lack);
	} else if (2 * d->ranks > world) {
		say(l, "%d of the job's %d ranks: %s", d->ranks, world, lack);
	} else {
		int *given = ranks_given(d, l->a);
		say(l, "a sample, %d of the job's %d ranks (%s): what the others did is not known", d->ranks, world,
		    list(l->a, given, d->ranks));
	}
}

static const char *whose(struct fo_arena *a, const struct fo_diagnosis *d, int i)
{
	return d->rank[i].rank >= 0 && d->ranks > 1
		       ? fo_arena_printf(a, "rank %d ('%s')", d->rank[i].rank, d->rank[i].trace->path)
		       : fo_arena_printf(a, "'%s'", d->rank[i].trace->path);
}

bool fo_found_thin(const struct fo_trace *t)
{
	return t->gpu_count > 0 && (double)t->defect.unanswered > THIN * (double)t->launch_count;
}

/* Says which ranks' files are cut, thinned or empty. */
static void say_faults(struct lines *l, const struct fo_diagnosis *d)
{
	static const char *const more[] = { "are cut", "hold no GPU work", "hold events twice", "are thinned" };
	int n[4] = { 0 };
	for (int i = 0; i < d->ranks; i++) {
		const struct fo_trace *t = d->rank[i].trace;
		if (!t)
			continue;
		const char *who = whose(l->a, d, i);
		if (t->defect.truncated && n[0]++ < SHOWN)
			say(l, "%s is cut: the file ends inside its events, after %lld of them", who,
			    (long long)t->defect.events);
		if (!t->gpu_count && d->ranks > 1 && n[1]++ < SHOWN)
			say(l, "%s holds no GPU work", who);
		if (t->defect.doubled && n[2]++ < SHOWN)
			say(l, "%s holds %lld of its %lld events twice: one of each is counted", who,
			    (long long)t->defect.doubled, (long long)t->defect.events);
		if (fo_found_thin(t) && n[3]++ < SHOWN)
			say(l,
			    "%s is thinned: %lld of %lld launches have no operation in it, whose time counts as idle",
			    who, (long long)t->defect.unanswered, (long long)t->launch_count);
	}
	for (int i = 0; i < 4; i++)
		if (n[i] > SHOWN)
			say(l, "%d more %s: --json names them", n[i] - SHOWN, more[i]);
}

int fo_found_of(const struct fo_diagnosis *d, struct fo_arena *a, const char ***line)
{
	static const struct fo_trace_set nothing;
	struct lines l = { .a = a };
	const struct fo_trace_set *s = d->set ? d->set : &nothing; /* a diagnosis made by hand has none */
	int shown = 0, more = 0;
	if (s->taken)
		say(&l, "of several recordings '%s' was taken%s", s->taken, files(a, d->ranks));
	say_ranks(&l, d);
	say_faults(&l, d);
	for (int i = 0; i < s->lefts; i++) {
		const struct fo_left_out *x = &s->left[i];
		const char *beside = "";
		if (x->files > 1 && x->kind == FO_LEFT_EARLIER)
			beside = fo_arena_printf(a, " (%d files)", x->files);
		else if (x->files > 1)
			beside = fo_arena_printf(a, " and %d more there:", x->files - 1);
		if (shown++ < SHOWN)
			say(&l, "left out: '%s'%s %s", x->path, beside, x->why);
		else
			more += x->files;
	}
	if (more)
		say(&l, "left out: %d more files, which --json names", more);
	*line = l.v;
	return (int)l.n;
}

void fo_found_json(struct fo_json *j, const struct fo_diagnosis *d)
{
	struct fo_arena a = { 0 };
	const char **line;
	int *missing, n = fo_found_missing(d, &a, &missing), lines = fo_found_of(d, &a, &line);
	fo_json_object(j, "found");
	fo_json_text(j, "taken", d->set ? d->set->taken : NULL);
	fo_json_array(j, "missing_ranks");
	for (int i = 0; i < n; i++)
		fo_json_int(j, NULL, missing[i]);
	fo_json_close(j);
	fo_json_array(j, "left_out");
	for (int i = 0; d->set && i < d->set->lefts; i++) {
		const struct fo_left_out *x = &d->set->left[i];
		fo_json_object(j, NULL);
		fo_json_text(j, "kind", fo_left_name[x->kind]);
		fo_json_text(j, "path", x->path);
		fo_json_int(j, "files", x->files);
		fo_json_text(j, "why", x->why);
		fo_json_close(j);
	}
	fo_json_close(j);
	fo_json_texts(j, "remarks", line, lines);
	fo_json_close(j);
	fo_arena_fini(&a);
}
