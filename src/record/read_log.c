/* Reading log.jsonl line by line. Step lines, of which there may be millions, are scanned in one pass without
 * allocation; the few others are read by their tables (tables.c). */
#include "record/record.h"
#include "base/fs.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const fo_step_field_name[FO_STEP_FIELD_COUNT] = {
#define X(name, key, unit, means) key,
	FO_STEP_FIELDS(X)
#undef X
};

enum { LINE_BYTES = 1 << 20, STEPS_MAX = 1 << 24, EVENTS_MAX = 1 << 20 };
#define STEP_NUMBER_MAX 9007199254740992.0 /* 2^53: beyond it not every integer is a double */

/* ---- scanning one line ---- */

struct scan {
	const char *p, *end;
};
struct line {
	const char *event; /* into the line; NULL: none */
	size_t event_len;
	double step, value[FO_STEP_FIELD_COUNT];
};

static void blanks(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r'))
		s->p++;
}

static bool take(struct scan *s, char c)
{
	blanks(s);
	if (s->p == s->end || *s->p != c)
		return false;
	s->p++;
	return true;
}

/* A string's bytes as they stand, escapes included. */
static bool string(struct scan *s, const char **text, size_t *len)
{
	if (!take(s, '"'))
		return false;
	*text = s->p;
	for (; s->p < s->end && *s->p != '"'; s->p++)
		if (*s->p == '\\' && ++s->p == s->end)
			return false;
	if (s->p >= s->end)
		return false;
	*len = (size_t)(s->p++ - *text);
	return true;
}

/* Reads a number. With digits below 2^53 and at most 22 decimals both parts are exact doubles, so one division rounds
 * correctly (W. D. Clinger, How to read floating point numbers accurately, 1990). The C library reads all others. */
static bool number(struct scan *s, double *out)
{
	static const double ten[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
				      1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
	const char *begin = s->p, *p = begin, *end = s->end;
	bool minus = p < end && *p == '-';
	uint64_t digits = 0;
	int n = 0, shift = 0;
	p += minus;
	const char *first = p;
	for (; p < end && *p >= '0' && *p <= '9'; p++, n++)
		digits = digits * 10 + (uint64_t)(*p - '0');
	if (p == first || (*first == '0' && p - first > 1))
		return false;
	if (p < end && *p == '.') {
		const char *dot = ++p;
		for (; p < end && *p >= '0' && *p <= '9'; p++, n++)
			digits = digits * 10 + (uint64_t)(*p - '0');
		if (p == dot)
			return false;
		shift = (int)-(p - dot);
	}
	bool power = p < end && (*p == 'e' || *p == 'E');
	if (power) {
		p++;
		p += p < end && (*p == '+' || *p == '-');
		const char *e = p;
		while (p < end && *p >= '0' && *p <= '9')
			p++;
		if (p == e)
			return false;
	}
	s->p = p;
	if (!power && n <= 19 && digits < (uint64_t)1 << 53 && shift >= -22) {
		*out = (double)digits / ten[-shift];
		*out = minus ? -*out : *out;
		return true;
	}
	char text[512]; /* what is longer is no number that anyone wrote down to keep */
	size_t len = (size_t)(p - begin);
	if (len >= sizeof text)
		return false;
	memcpy(text, begin, len);
	text[len] = 0;
	*out = strtod(text, NULL);
	return true;
}

static bool word(struct scan *s, const char *w)
{
	size_t n = strlen(w);
	if ((size_t)(s->end - s->p) < n || memcmp(s->p, w, n))
		return false;
	s->p += n;
	return true;
}

/* Skips an object or array; only strings and brackets inside it are looked at. */
static bool nested(struct scan *s)
{
	const char *text;
	size_t len;
	int64_t depth = 0;
	do {
		if (s->p == s->end)
			return false;
		if (*s->p == '"') {
			if (!string(s, &text, &len))
				return false;
			continue;
		}
		depth += *s->p == '{' || *s->p == '[';
		depth -= *s->p == '}' || *s->p == ']';
		s->p++;
	} while (depth);
	return true;
}

/* Reads a value: *v is NAN where it is no number; *text is NULL where it is no text. */
static bool value(struct scan *s, double *v, const char **text, size_t *len)
{
	*v = NAN;
	*text = NULL;
	blanks(s);
	if (s->p == s->end)
		return false;
	switch (*s->p) {
	case '"': return string(s, text, len);
	case '{':
	case '[': return nested(s);
	case 't': *v = 1; return word(s, "true");
	case 'f': *v = 0; return word(s, "false");
	case 'n': return word(s, "null");
	}
	return number(s, v) && (isfinite(*v) || (*v = NAN, true));
}

static double *find_place(struct line *l, int *next, const char *key, size_t len)
{
	/* Fields come in the order of the last line, mostly. */
	for (int k = 0; k < FO_STEP_FIELD_COUNT; k++) {
		int f = (*next + k) % FO_STEP_FIELD_COUNT;
		const char *name = fo_step_field_name[f];
		if (strlen(name) == len && !memcmp(name, key, len)) { /* a key may hold NUL bytes */
			*next = f + 1;
			return &l->value[f];
		}
	}
	return len == 4 && !memcmp(key, "step", 4) ? &l->step : NULL;
}

/* One JSON object, flat as far as we look. */
static bool scan_line(const char *text, size_t n, struct line *l)
{
	struct scan s = { text, text + n };
	int next = 0;
	*l = (struct line){ .step = NAN };
	for (int f = 0; f < FO_STEP_FIELD_COUNT; f++)
		l->value[f] = NAN;
	if (!take(&s, '{'))
		return false;
	if (take(&s, '}'))
		return true;
	do {
		const char *key, *word_text;
		size_t key_len, word_len;
		double v;
		if (!string(&s, &key, &key_len) || !take(&s, ':') || !value(&s, &v, &word_text, &word_len))
			return false;
		if (word_text && key_len == 5 && !memcmp(key, "event", 5)) {
			l->event = word_text;
			l->event_len = word_len;
		} else if (!word_text && key_len) {
			double *at = find_place(l, &next, key, key_len);
			if (at)
				*at = v;
		}
	} while (take(&s, ','));
	if (!take(&s, '}'))
		return false;
	blanks(&s);
	return s.p == s.end;
}

/* ---- steps ---- */

/* Drops what earlier lines said about step `from` and later ones. */
static void undo(struct fo_record *r, int64_t from)
{
	struct fo_record_steps *s = &r->step;
	for (; s->n && s->step[s->n - 1] >= from; s->n--) {
		double seconds = fo_record_value(s, FO_STEP_SECONDS, s->n - 1);
		r->undone_steps++;
		r->undone_seconds += isnan(seconds) ? 0 : seconds;
	}
	while (r->evals && r->eval[r->evals - 1].step >= from)
		r->evals--;
	while (r->checkpoints && r->checkpoint[r->checkpoints - 1].step >= from)
		r->checkpoints--;
	while (r->profiles && r->profile[r->profiles - 1].step >= from)
		r->profiles--;
}

static fo_status add_step(struct fo_record *r, const struct line *l)
{
	struct fo_record_steps *s = &r->step;
	if (s->n && (int64_t)l->step <= s->step[s->n - 1])
		undo(r, (int64_t)l->step);
	if (s->n == STEPS_MAX)
		return fo_fail(FO_EFORMAT, "more than 2^24 steps");
	size_t i = (size_t)s->n, cap = s->cap;
	fo_array_room(&s->step, &s->cap, i, sizeof *s->step);
	if (s->cap != cap)
		s->start = fo_xrealloc(s->start, s->cap * sizeof *s->start);
	for (int f = 0; f < FO_STEP_FIELD_COUNT; f++) {
		if (!s->value[f] && isnan(l->value[f]))
			continue;
		if (!s->value[f]) {
			s->value[f] = fo_xrealloc(NULL, s->cap * sizeof(double));
			for (size_t k = 0; k < i; k++)
				s->value[f][k] = NAN;
		} else if (s->cap != cap) {
			s->value[f] = fo_xrealloc(s->value[f], s->cap * sizeof(double));
		}
		s->value[f][i] = l->value[f];
	}
	s->step[i] = (int64_t)l->step;
	s->start[i] = (int32_t)(r->starts - 1); /* a process says that it begins before its first step */
	s->n++;
	return FO_OK;
}

/* ---- other events ---- */

/* Seconds by part become a whole profile; one of no steps or no time says nothing. */
static bool finish_profile(struct fo_profile *f)
{
	f->total_ns = 0;
	for (int i = 0; i < FO_PART_COUNT; i++) {
		if (isnan(f->part_ns[i]))
			f->part_ns[i] = 0;
		f->total_ns += f->part_ns[i];
	}
	if (!f->steps || !(f->total_ns > 0) || !isfinite(f->total_ns))
		*f = (struct fo_profile){ 0 };
	return f->steps > 0;
}

static bool finish_profile_line(struct fo_record *r, void *line)
{
	(void)r;
	return finish_profile(&((struct fo_record_profile *)line)->profile);
}

static bool finish_end(struct fo_record *r, void *line)
{
	struct fo_record_end *e = line;
	(void)r;
	finish_profile(&e->profile);
	e->device.split.hz = e->device.use.sm_hz;
	return true;
}

static bool finish_nonfinite(struct fo_record *r, void *line)
{
	struct fo_record_guard *g = line;
	(void)r;
	g->kind = FO_GUARD_NONFINITE;
	g->back_to = -1;
	g->median = g->deviation = g->z = NAN;
	return true;
}

/* A run that went back to a checkpoint repeats the steps since then. */
static bool finish_spike(struct fo_record *r, void *line)
{
	struct fo_record_guard *g = line;
	g->kind = FO_GUARD_SPIKE;
	g->grad_norm = NAN;
	g->where = "";
	if (g->back_to >= 0)
		undo(r, g->back_to + 1);
	return true;
}

/* Lists that the lines of each event are added to. finish completes what the table cannot say; it returns false for a
 * line that says nothing. */
static const struct event {
	const struct fo_schema *schema;
	size_t list, n, cap;
	bool (*finish)(struct fo_record *r, void *line);
} events[] = {
#define EVENT(schema, list, n, finish)                                                    \
	{                                                                                 \
		&schema, offsetof(struct fo_record, list), offsetof(struct fo_record, n), \
			offsetof(struct fo_record, list##_cap), finish                    \
	}
	EVENT(fo_log_eval, eval, evals, NULL),
	EVENT(fo_log_checkpoint, checkpoint, checkpoints, NULL),
	EVENT(fo_log_machine, machine, machines, NULL),
	EVENT(fo_log_profile, profile, profiles, finish_profile_line),
	EVENT(fo_log_nonfinite, guard, guards, finish_nonfinite),
	EVENT(fo_log_spike, guard, guards, finish_spike),
	EVENT(fo_log_start, start, starts, NULL),
	EVENT(fo_log_end, end, ends, finish_end),
};

/* Adds a line to the list of its event; an event that no row names is one of a later version. False: the list is full.
 */
static bool add_event(struct fo_record *r, const char *name, const json_t *o)
{
	const struct event *e = events, *end = events + sizeof events / sizeof *events;
	struct fo_schema_reader read = { .arena = &r->arena, .lenient = true };
	while (e < end && strcmp(e->schema->event, name) != 0)
		e++;
	if (e == end)
		return true;
	char **list = (char **)(void *)((char *)r + e->list);
	int64_t *n = (int64_t *)(void *)((char *)r + e->n);
	size_t size = e->schema->size;
	if (*n == EVENTS_MAX)
		return false;
	fo_array_room(list, (size_t *)(void *)((char *)r + e->cap), (size_t)*n, size);
	void *line = *list + (size_t)(*n)++ * size;
	memset(line, 0, size);
	fo_schema_blank(e->schema, line);
	fo_schema_read(e->schema, o, line, &read);
	if (e->finish && !e->finish(r, line))
		(*n)--;
	return true;
}

static void note_bad(struct fo_record *r)
{
	if (!r->bad_lines++)
		r->first_bad_line = r->lines;
}

static fo_status one_line(struct fo_record *r, const char *text, size_t n)
{
	struct line l;
	r->lines++;
	if (!scan_line(text, n, &l) || !l.event ||
	    !(l.step >= 0 && l.step <= STEP_NUMBER_MAX && l.step == floor(l.step))) {
		note_bad(r);
		return FO_OK;
	}
	if (l.event_len == 4 && !memcmp(l.event, "step", 4)) {
		if (l.step >= 1)
			return add_step(r, &l);
		note_bad(r);
		return FO_OK;
	}
	json_error_t why;
	json_t *o = json_loadb(text, n, 0, &why);
	const char *name = json_string_value(json_object_get(o, "event"));
	fo_status st = FO_OK;
	if (!name)
		note_bad(r);
	else if (!add_event(r, name, o))
		st = fo_fail(FO_EFORMAT, "more than 2^20 events '%s'", name);
	json_decref(o);
	return st;
}

/* ---- the file ---- */

/* Takes whole lines off the front of buf; returns the bytes that are left, moved to its front. *skip: inside a line
 * that is too long, which has been counted already. */
static fo_status take_lines(struct fo_record *r, char *buf, size_t *have, bool *skip)
{
	size_t at = 0;
	for (;;) {
		char *feed = memchr(buf + at, '\n', *have - at);
		if (!feed)
			break;
		size_t n = (size_t)(feed - buf) - at;
		if (*skip)
			*skip = false;
		else
			FO_TRY(one_line(r, buf + at, n));
		at += n + 1;
	}
	memmove(buf, buf + at, *have - at);
	*have -= at;
	if (*have == LINE_BYTES || *skip) {
		if (!*skip) {
			r->lines++;
			note_bad(r);
		}
		*skip = true;
		*have = 0;
	}
	return FO_OK;
}

fo_status fo_record_read_log(struct fo_record *r, int fd, const char *path)
{
	char *buf = fo_xmalloc(LINE_BYTES);
	size_t have = 0;
	bool skip = false;
	fo_status st = FO_OK;
	while (st == FO_OK) {
		ssize_t n = read(fd, buf + have, LINE_BYTES - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			st = fo_fs_refuse("read", path, errno);
		if (n <= 0)
			break;
		have += (size_t)n;
		st = take_lines(r, buf, &have, &skip);
		if (st != FO_OK)
			st = fo_wrap(st, "cannot read '%s': line %lld", path, (long long)r->lines);
	}
	r->torn = have > 0 || skip;
	free(buf);
	return st;
}
