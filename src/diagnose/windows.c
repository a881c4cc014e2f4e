/* Finds where steps begin and end on a device. The host runs ahead of it, so a step is what was launched in it: from
 * the begin of the first operation launched in step k to that of the first launched in step k + 1. */
#include "diagnose/ledger_int.h"

#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void add(struct fo_windows *w, struct fo_window v)
{
	fo_array_room(&w->v, &w->cap, w->n, sizeof *w->v);
	w->v[w->n++] = v;
}

/* A step of the host, when the first operation launched in it began (INT64_MAX: none was) and the last one ended. */
struct host_step {
	int64_t number, begin, end, first, last;
};

static int by_begin(const void *a, const void *b)
{
	const struct host_step *x = a, *y = b;
	return x->begin != y->begin ? fo_order(x->begin, y->begin) : fo_order(x->number, y->number);
}

/* The last step that begins at or before `at`; -1: none. */
static int64_t step_at(const struct host_step *s, int64_t n, int64_t at) { return FO_FIRST(i, n, s[i].begin > at) - 1; }

/* The windows of step `from`, and of those behind it up to `to` that launched nothing: each of these begins when the
 * device has done what was launched before it and the host is there. */
static void add_steps(struct fo_windows *w, const struct host_step *s, int64_t from, int64_t to, int64_t done)
{
	int64_t at = s[from].first, open = from;
	for (int64_t i = from + 1; i <= to; i++) {
		if (i < to && s[i].first != INT64_MAX)
			continue; /* it ran ahead of `from` and is part of it */
		int64_t begin = fo_min(i == to ? s[to].first : fo_max(s[i].begin, done), s[to].first);
		if (begin > at)
			add(w, (struct fo_window){ s[open].number, at, begin, s[open].begin, s[open].end });
		else
			w->unseen++; /* the one that is open, or this one where `from` has operations of no length only
				      */
		open = begin > at || open != from ? i : open;
		at = begin;
	}
}

/* The steps that the host recorded, or (device >= 0) their copies on that GPU, by begin; nothing launched in them yet.
 * The caller frees the array, which has room for one more. */
static struct host_step *steps_of(const struct fo_trace *t, int16_t device, int64_t *n)
{
	struct host_step *s = fo_xmalloc((size_t)(t->step_count + 1) * sizeof *s);
	*n = 0;
	for (int64_t i = 0; i < t->step_count; i++) {
		const struct fo_trace_step *of = &t->step[i];
		if (device < 0 ? of->thread >= 0 : of->thread < 0 && of->device == device)
			s[(*n)++] = (struct host_step){ of->number, of->begin_ns, of->end_ns, INT64_MAX, INT64_MIN };
	}
	qsort(s, (size_t)*n, sizeof *s, by_begin);
	return s;
}

/* Fills first and last of each step: when the device began and ended what was launched in it, or (not inside) after its
 * begin and before that of the next. */
static void note_launched(const struct fo_device_ops *d, struct host_step *s, int64_t n, bool inside)
{
	for (int64_t i = 0; i < d->n; i++) {
		const struct fo_gpu_op *g = &d->op[i];
		if (g->launch < 0 || !fo_device_op_counts(d, g))
			continue;
		int64_t at = d->t->launch[g->launch].begin_ns, k = step_at(s, n, at);
		if (k < 0 || (inside && at >= s[k].end))
			continue;
		s[k].first = fo_min(g->begin_ns, s[k].first);
		s[k].last = fo_max(g->end_ns, s[k].last);
	}
}

/* Windows from n steps of the host, by begin. s has room for one more: what is launched behind the last. */
static bool from_host(struct fo_windows *w, const struct fo_device_ops *d, struct host_step *s, int64_t n)
{
	if (n == 0)
		return false;
	s[n] = (struct host_step){ -1, s[n - 1].end, INT64_MAX, INT64_MAX, INT64_MIN };
	note_launched(d, s, n + 1, false);
	int64_t before = -1,
		done = INT64_MIN; /* the last step seen that launched something; when all of these so far were done */
	for (int64_t i = 0; i <= n; i++) {
		if (s[i].first == INT64_MAX)
			continue;
		/* A stream of its own may run ahead of the step before; windows do not overlap. */
		if (before < 0 || s[i].first > s[before].first) {
			if (before >= 0)
				add_steps(w, s, before, i, done);
			before = i;
		}
		done = fo_max(s[i].last, done);
	}
	w->dropped = before >= 0 && before < n;
	return w->n > 0;
}

static bool from_steps(struct fo_windows *w, const struct fo_device_ops *d)
{
	int64_t n;
	struct host_step *s = steps_of(d->t, -1, &n);
	bool found = from_host(w, d, s, n);
	free(s);
	w->from = d->t->format == FO_TRACE_NSYS ? FO_WINDOW_NVTX : FO_WINDOW_LAUNCHED_STEPS;
	return found;
}

/* The begin of a host's step, or the end of the work that earlier ones left over if that is later: as host_step.c has
 * it. */
static int64_t begin_behind_leftovers(const struct fo_device_ops *d, int64_t begin, int64_t first)
{
	int64_t at = begin;
	for (int64_t i = 0; i < d->n && d->op[i].begin_ns < first; i++) {
		const struct fo_gpu_op *g = &d->op[i];
		bool before = g->launch < 0 || d->t->launch[g->launch].begin_ns < begin;
		if (before && fo_device_op_counts(d, g) && g->end_ns <= first && g->end_ns > at)
			at = g->end_ns;
	}
	return at;
}

/* The only step that is marked and launched something. Where it ends on the GPU is not in the trace; on the host it is,
 * and what the host did before the first kernel is a part of it. */
static bool from_one_step(struct fo_windows *w, const struct fo_device_ops *d)
{
	int64_t n;
	struct host_step *s = steps_of(d->t, -1, &n);
	note_launched(d, s, n, true);
	int64_t only = -1, launching = 0;
	for (int64_t i = 0; i < n; i++)
		if (s[i].first != INT64_MAX) {
			only = i;
			launching++;
		}
	if (launching == 1) { /* of several, whose order on the GPU is not that of the host, none is believed */
		const struct host_step *k = &s[only];
		int64_t begin = begin_behind_leftovers(d, k->begin, k->first);
		if (k->last > begin)
			add(w, (struct fo_window){ k->number, begin, fo_max(k->last, k->end), k->begin, k->end });
	}
	free(s);
	w->from = FO_WINDOW_HOST_STEP;
	return w->n > 0;
}

/* The begin of the first operation that begins at or behind `at`; INT64_MAX: none does. */
static int64_t first_from(const struct fo_device_ops *d, int64_t at)
{
	int64_t first = FO_FIRST(i, d->n, d->op[i].begin_ns >= at);
	while (first < d->n && !fo_device_op_counts(d, &d->op[first]))
		first++;
	return first < d->n ? d->op[first].begin_ns : INT64_MAX;
}

/* Steps by the profiler's copies of them on the GPU. Their begins alone are believed: their lengths are wrong on some
 * devices. */
static bool from_gpu_steps(struct fo_windows *w, const struct fo_device_ops *d)
{
	int64_t n;
	struct host_step *s = steps_of(d->t, d->device, &n);
	bool sane = true;
	int64_t kept = 0;
	for (int64_t i = 0; i < n; i++) {
		if (kept && s[i].number == s[kept - 1].number)
			continue; /* annotated twice */
		sane = sane && (!kept || s[i].number > s[kept - 1].number);
		s[kept] = s[i];
		s[kept++].first = first_from(d, s[i].begin);
	}
	for (int64_t i = 0; sane && i < kept; i++) {
		int64_t next = i + 1 < kept ? s[i + 1].first : first_from(d, s[i].end);
		if (s[i].first != INT64_MAX && next != INT64_MAX && next > s[i].first)
			add(w, (struct fo_window){ s[i].number, s[i].first, next, -1, -1 });
		else
			w->dropped++;
	}
	free(s);
	/* A hole in the middle would break the chain of windows. */
	for (size_t i = 1; i < w->n; i++)
		if (w->v[i].begin != w->v[i - 1].end)
			w->n = 0;
	w->from = FO_WINDOW_GPU_STEPS;
	return w->n > 0;
}

/* ---- annotations of iterations ---- */

enum { NOTE_NAME = 64, NOTE_GROUPS = 64 /* kinds of such names in one trace; further ones are not looked at */ };
struct notes {
	char name[NOTE_NAME]; /* digits left out */
	int32_t thread;
	int64_t count, total, end;
	bool overlap;
};

/* "iteration 12", "train_step", "step12", but not an optimizer's or a scheduler's step, which is a part of one. */
static bool names_iteration(const char *name)
{
	static const char *const part[] = { "optimizer", "scheduler", "scaler", "lr", "grad",
					    "engine",    "adam",      "adamw",  "sgd" };
	static const char *const whole[] = { "iteration", "iter", "step", "minibatch", "training_batch" };
	for (size_t i = 0; i < sizeof part / sizeof *part; i++)
		if (fo_text_has_word(name, part[i]))
			return false;
	for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
		if (fo_text_has_word(name, whole[i]))
			return true;
	return false;
}

/* The name without digits, and its last number; -1: none. */
static int64_t split_name(char out[NOTE_NAME], const char *name)
{
	int64_t number = -1;
	size_t n = 0;
	while (*name && n + 1 < NOTE_NAME) {
		if (isdigit((unsigned char)*name)) {
			number = strtoll(name, NULL, 10);
			name += strspn(name, "0123456789");
		} else {
			out[n++] = *name++;
		}
	}
	out[n] = 0;
	return number;
}

static const struct notes *find_notes(const struct fo_trace *t, struct notes *group, int *groups)
{
	char name[NOTE_NAME];
	const struct notes *best = NULL;
	for (int64_t i = 0; i < t->op_count; i++) {
		const struct fo_host_op *o = &t->op[i];
		if (o->kind != FO_HOST_NOTE || !names_iteration(fo_trace_text(t, o->name)))
			continue;
		split_name(name, fo_trace_text(t, o->name));
		int k = 0;
		while (k < *groups && (group[k].thread != o->thread || strcmp(group[k].name, name)))
			k++;
		if (k == *groups) {
			if (k == NOTE_GROUPS)
				continue;
			group[k] = (struct notes){ .thread = o->thread, .end = INT64_MIN };
			memcpy(group[k].name, name, sizeof name);
			++*groups;
		}
		group[k].overlap |= o->begin_ns < group[k].end;
		group[k].end = o->end_ns;
		group[k].total += o->end_ns - o->begin_ns;
		group[k].count++;
	}
	for (int k = 0; k < *groups; k++)
		if (group[k].count > 1 && !group[k].overlap && (!best || group[k].total > best->total))
			best = &group[k];
	return best;
}

static bool from_notes(struct fo_windows *w, const struct fo_device_ops *d)
{
	const struct fo_trace *t = d->t;
	struct notes group[NOTE_GROUPS];
	char name[NOTE_NAME];
	int groups = 0;
	const struct notes *best = find_notes(t, group, &groups);
	if (!best)
		return false;
	struct host_step *s = fo_xmalloc((size_t)(best->count + 1) * sizeof *s);
	int64_t n = 0;
	for (int64_t i = 0; i < t->op_count && n < best->count; i++) {
		const struct fo_host_op *o = &t->op[i];
		if (o->kind != FO_HOST_NOTE || o->thread != best->thread || !names_iteration(fo_trace_text(t, o->name)))
			continue;
		int64_t number = split_name(name, fo_trace_text(t, o->name));
		if (!strcmp(name, best->name)) {
			s[n] = (struct host_step){ number >= 0 ? number : n, o->begin_ns, o->end_ns, INT64_MAX,
						   INT64_MIN };
			n++;
		}
	}
	qsort(s, (size_t)n, sizeof *s, by_begin);
	bool found = from_host(w, d, s, n);
	free(s);
	w->from = FO_WINDOW_NVTX;
	return found;
}

/* ---- the optimizer ---- */

/* A step ends where the optimizer's kernels do: the next matmul belongs to the next step, and so does what
 * stands in front of it and behind the last of these kernels. Where updates lie inside the backward pass there are
 * several groups of them in a step: then the steps so found differ in their number of operations, and none of them is
 * believed. */
static bool from_optimizer(struct fo_windows *w, const struct fo_device_ops *d)
{
	int64_t after = INT64_MIN, at = INT64_MIN, ops = 0, least = INT64_MAX, most = 0;
	bool seen = false, inside = false, products = false;
	for (int64_t i = 0; i < d->n; i++) {
		const struct fo_gpu_op *g = &d->op[i];
		if (!fo_device_op_counts(d, g))
			continue;
		if (g->class == FO_K_OPTIMIZER) {
			inside = products; /* of a step that computed something */
			after = INT64_MIN;
		} else if (inside && after == INT64_MIN) {
			after = g->begin_ns;
		}
		ops++;
		if (!fo_class_is_heavy(g->class))
			continue;
		products = true;
		if (!inside)
			continue;
		inside = false;
		if (seen && after > at) {
			add(w, (struct fo_window){ -1, at, after, -1, -1 });
			w->v[w->n - 1].number = (int64_t)w->n - 1;
			least = fo_min(ops, least);
			most = fo_max(ops, most);
		}
		at = after;
		seen = true;
		ops = 0;
	}
	w->from = FO_WINDOW_OPTIMIZER;
	w->dropped = seen;
	if (w->n && most - least > least / 4)
		w->n = 0;
	return w->n > 0;
}

/* ---- without steps ---- */

/* The whole trace, from the first operation to the last end. Operations left over from before the profiler looked have
 * no launch record: they begin the window only where nothing is linked at all. */
static void whole(struct fo_windows *w, const struct fo_device_ops *d, bool leftovers)
{
	int64_t begin = INT64_MAX, linked = INT64_MAX, end = INT64_MIN;
	for (int64_t i = 0; i < d->n; i++) {
		const struct fo_gpu_op *g = &d->op[i];
		if (!fo_device_op_counts(d, g) || g->end_ns <= g->begin_ns)
			continue;
		begin = fo_min(g->begin_ns, begin);
		if (g->launch >= 0 && g->begin_ns < linked)
			linked = g->begin_ns;
		end = fo_max(g->end_ns, end);
	}
	if (!leftovers && linked != INT64_MAX)
		begin = linked;
	w->from = FO_WINDOW_WHOLE;
	if (begin < end)
		add(w, (struct fo_window){ -1, begin, end, -1, -1 });
}

void fo_windows_find(struct fo_windows *w, const struct fo_device_ops *d, bool take_all)
{
	static bool (*const way[])(struct fo_windows *, const struct fo_device_ops *) = { from_steps, from_one_step,
											  from_gpu_steps, from_notes,
											  from_optimizer };
	*w = (struct fo_windows){ 0 };
	for (size_t i = 0; !take_all && i < sizeof way / sizeof *way; i++) {
		if (way[i](w, d))
			return;
		w->n = 0;
		w->dropped = w->unseen = 0;
	}
	whole(w, d, take_all);
}

void fo_windows_fini(struct fo_windows *w)
{
	free(w->v);
	*w = (struct fo_windows){ 0 };
}
