/* Timelines of what-if analyses: Chrome JSON, plain or packed, whose events are a schedule's operations. Processes are
 * data-parallel replicas, threads are named "PP rank 2, TP rank 0, compute". Communication is drawn from the last
 * participant's arrival on. Steps follow each other, each 1.1 x its length after the one before. */
#include "trace/schedule_int.h"
#include "trace/unpack.h"

#include "base/index.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/count.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A job of 64 workers and 44 steps is 21 MB; the whole text is held while it is read. */
static const size_t MAX_TEXT = (size_t)512 << 20;
static const double MAX_US = 9e15; /* int64 nanoseconds */

struct raw {
	struct fo_schedule_op op;
	int64_t step, pid, tid;
	double begin_us, end_us;
};
struct place {
	int64_t pid, tid;
	int stage, tensor, replica;
};
struct reader {
	const char *path;
	struct raw *raw;
	size_t n, cap;
	struct place *place;
	size_t places, place_cap;
	int64_t left_out;
};

#define NAME(enumerator, name) name,
const char *const fo_schedule_kind_name[FO_SCHED_COUNT] = { FO_SCHEDULE_KINDS(NAME) };

/* -1 unknown */
static int kind_of(const char *name, size_t n)
{
	for (int i = 0; i < FO_SCHED_COUNT; i++)
		if (strlen(fo_schedule_kind_name[i]) == n && memcmp(name, fo_schedule_kind_name[i], n) == 0)
			return i;
	return -1;
}

bool fo_schedule_begins(const char *text)
{
	for (const char *p = text; (p = strstr(p, "\"cat\""));) {
		p += strlen("\"cat\"");
		p += strspn(p, " \t\r\n:");
		if (*p == '"' && kind_of(p + 1, strcspn(p + 1, "\"")) >= 0)
			return true;
	}
	return false;
}

static int64_t whole(const json_t *v, int64_t without)
{
	if (json_is_integer(v))
		return json_integer_value(v);
	double d = json_is_real(v) ? json_real_value(v) : NAN;
	return d >= -MAX_US && d <= MAX_US ? (int64_t)d : without;
}

static int32_t small(const json_t *args, const char *key)
{
	int64_t v = whole(json_object_get(args, key), -1);
	return v >= 0 && v < INT32_MAX ? (int32_t)v : -1;
}

/* "PP rank 2, TP rank 0, compute" */
static void name_thread(struct reader *r, const json_t *event, const json_t *args)
{
	const char *name = json_string_value(json_object_get(args, "name"));
	struct place p = { .pid = whole(json_object_get(event, "pid"), -1),
			   .tid = whole(json_object_get(event, "tid"), -1) };
	if (!name || sscanf(name, "PP rank %d, TP rank %d", &p.stage, &p.tensor) != 2 || p.stage < 0 || p.tensor < 0)
		return;
	fo_array_room(&r->place, &r->place_cap, r->places, sizeof *r->place);
	r->place[r->places++] = p;
}

static void take(struct reader *r, const json_t *event)
{
	const json_t *args = json_object_get(event, "args");
	const char *ph = json_string_value(json_object_get(event, "ph")),
		   *cat = json_string_value(json_object_get(event, "cat"));
	if (ph && strcmp(ph, "M") == 0)
		name_thread(r, event, args);
	if (!ph || strcmp(ph, "X") != 0 || !cat)
		return;
	int kind = kind_of(cat, strlen(cat));
	double ts = json_number_value(json_object_get(event, "ts")),
	       dur = json_number_value(json_object_get(event, "dur"));
	json_t *step = json_object_get(args, "step");
	if (kind < 0 || !json_is_integer(step) || !(fabs(ts) < MAX_US && fabs(dur) < MAX_US)) {
		r->left_out++;
		return;
	}
	fo_array_room(&r->raw, &r->cap, r->n, sizeof *r->raw);
	struct raw *x = &r->raw[r->n++];
	*x = (struct raw){
		.step = json_integer_value(step),
		.pid = whole(json_object_get(event, "pid"), -1),
		.tid = whole(json_object_get(event, "tid"), -1),
		.begin_us = ts,
		.end_us = ts + dur,
		.op = { .kind = (uint8_t)kind,
			.chunk = small(args, "model_chunk"),
			.microbatch = small(args, "mb_id"),
			.sequence = small(args, "seq_id") },
	};
	if (x->op.chunk >= FO_SCHEDULE_MAX_CHUNKS)
		x->op.chunk = -1;
	if (kind <= FO_SCHED_WEIGHT && x->op.chunk < 0)
		x->op.chunk = 0; /* simulated timelines leave it out */
}

/* One event at a time: a tree of the whole file would take twenty times its size. */
static fo_status read_events(struct reader *r, const char *text, size_t len)
{
	const char *p = text + strspn(text, " \t\r\n"), *end = text + len;
	if (*p == '{') {
		const char *key = strstr(p, "\"traceEvents\"");
		p = key ? key + strlen("\"traceEvents\"") : end;
		p += strspn(p, " \t\r\n:");
	}
	if (p >= end || *p != '[')
		return fo_fail(FO_EFORMAT, "'%s' has no list of events", r->path);
	for (p++;;) {
		p += strspn(p, " \t\r\n,");
		if (*p == ']')
			return FO_OK;
		json_error_t e;
		char why[4 * JSON_ERROR_TEXT_LENGTH + 8]; /* it quotes the file */
		json_t *event = p < end ? json_loadb(p, (size_t)(end - p), JSON_DISABLE_EOF_CHECK, &e) : NULL;
		if (!event && (p >= end || json_error_code(&e) == json_error_premature_end_of_input))
			return fo_hint(fo_fail(FO_EFORMAT,
					       "'%s' ends early: its list of events breaks off after byte %td", r->path,
					       p - text),
				       "copy the file again");
		if (!event)
			return fo_fail(FO_EFORMAT, "'%s' is no timeline: at byte %td, %s", r->path, p - text,
				       fo_str_visible(why, sizeof why, e.text));
		take(r, event);
		json_decref(event);
		p += e.position;
	}
}

/* ---- where and when ---- */

static int by_step(const void *a, const void *b)
{
	return fo_order(((const struct raw *)a)->step, ((const struct raw *)b)->step);
}
static int by_process(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	return FO_ORDER_BY(fo_order(x->pid, y->pid), fo_order(x->tensor, y->tensor));
}

/* Replicas are counted in the order of processes, then of tensor-parallel ranks. */
static fo_status find_places(struct reader *r, struct fo_schedule_log *s)
{
	if (!r->places)
		return fo_fail(
			FO_EFORMAT,
			"'%s' does not say which stage is which: no thread is named \"PP rank 0, TP rank 0, ...\"",
			r->path);
	struct fo_index threads = { 0 }, used = { 0 };
	fo_status st = FO_OK;
	qsort(r->place, r->places, sizeof *r->place, by_process);
	for (size_t i = 0; i < r->places; i++) {
		struct place *p = &r->place[i];
		s->replicas += !i || by_process(p - 1, p);
		p->replica = s->replicas - 1;
		fo_index_add(&threads, p->pid, p->tid, (int32_t)i);
	}
	for (size_t i = 0; st == FO_OK && i < r->n; i++) {
		struct raw *x = &r->raw[i];
		int32_t at = fo_index_find(&threads, x->pid, x->tid);
		if (at < 0 || r->place[at].stage >= FO_SCHEDULE_MAX_STAGES) {
			st = fo_fail(FO_EFORMAT, "'%s' does not say which stage thread %lld of process %lld is",
				     r->path, (long long)x->tid, (long long)x->pid);
			break;
		}
		x->op.stage = r->place[at].stage;
		x->op.replica = r->place[at].replica;
		fo_index_add(&used, x->op.replica, 0, 0);
		s->stages = (int)fo_max(x->op.stage + 1, s->stages);
	}
	if (st == FO_OK && (int)used.n != s->replicas)
		st = fo_fail(FO_EFORMAT, "'%s' names %d replicas and has operations of %zu", r->path, s->replicas,
			     used.n);
	fo_index_fini(&threads);
	fo_index_fini(&used);
	return st;
}

struct extent {
	double low, high, begin; /* us */
};

/* A step begins with its first operation's wait, which the drawing leaves out but the layout of steps keeps. Where the
 * file is not laid out so, the first event is the begin. */
static void find_begins(struct extent *e, int64_t n)
{
	double grid = 0;
	bool fits = true;
	for (int64_t i = 0; i < n; i++) {
		e[i].begin = grid;
		double slack = e[i].low - grid, length = e[i].high - grid;
		fits &= slack >= -1 && slack <= 0.05 * length; /* 1 us: doubles of hours; a twentieth: far below the
								  tenth between steps */
		grid += 1.1 * length;
	}
	for (int64_t i = 0; i < n && !fits; i++)
		e[i].begin = e[i].low;
}

static void find_steps(struct reader *r, struct fo_schedule_log *s)
{
	qsort(r->raw, r->n, sizeof *r->raw, by_step);
	struct extent *e = fo_xmalloc(r->n * sizeof *e);
	s->step = fo_xmalloc(r->n * sizeof *s->step);
	for (size_t i = 0; i < r->n; i++) {
		const struct raw *x = &r->raw[i];
		if (!i || x->step != x[-1].step) {
			s->step[s->steps].number = x->step;
			e[s->steps++] = (struct extent){ .low = x->begin_us, .high = x->end_us };
		}
		struct extent *own = &e[s->steps - 1];
		own->low = fmin(own->low, x->begin_us);
		own->high = fmax(own->high, x->end_us);
	}
	find_begins(e, s->steps);
	s->op = fo_xmalloc(r->n * sizeof *s->op);
	int32_t step = -1;
	for (size_t i = 0; i < r->n; i++) {
		const struct raw *x = &r->raw[i];
		step += !i || x->step != x[-1].step;
		struct fo_schedule_op *o = &s->op[s->ops++];
		*o = x->op;
		o->step = step;
		o->begin_ns = llround((x->begin_us - e[step].begin) * 1e3);
		o->end_ns = llround((x->end_us - e[step].begin) * 1e3);
	}
	for (int64_t i = 0; i < s->steps; i++)
		s->step[i].length_ns = llround((e[i].high - e[i].begin) * 1e3);
	free(e);
}

fo_status fo_schedule_read_timeline(struct fo_schedule_log *s, const char *path)
{
	struct reader r = { .path = path };
	char *text;
	size_t len;
	s->format = FO_SCHEDULE_TIMELINE;
	FO_TRY(fo_unpack_head(path, MAX_TEXT + 1, &text, &len));
	fo_status st = len <= MAX_TEXT
			       ? read_events(&r, text, len)
			       : fo_fail(FO_EFORMAT, "'%s' is a schedule of more than %zu MiB", path, MAX_TEXT >> 20);
	if (st == FO_OK && !r.n)
		st = fo_fail(FO_EFORMAT, "'%s' has no operations with a step", path);
	if (st == FO_OK)
		st = find_places(&r, s);
	if (st == FO_OK)
		find_steps(&r, s);
	s->left_out = r.left_out;
	free(text);
	free(r.raw);
	free(r.place);
	return st;
}
