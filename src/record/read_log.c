/* log.jsonl, line by line. Lines of steps, of which there may be millions, are scanned by hand: one pass, no
 * allocation. The few others are read with jansson. */
#include "record/record.h"
#include "base/fs.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const fo_step_field_name[FO_STEP_FIELD_COUNT] = {
	"loss", "grad_norm",  "lr",           "seconds", "data_seconds", "tokens",  "loss_tokens", "tokens_per_second",
	"mfu",  "mfu_causal", "mfu_document", "mfu_6n",  "hfu",          "metered", "time",        "clock",
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

/* Up to 19 digits and a power of ten up to 22, when the digits are below 2^53: both are exact doubles, so one
 * multiplication or division rounds right (W. D. Clinger, How to read floating point numbers accurately, 1990). Else
 * the C library reads it. */
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

/* Over an object or array. Its inside is only followed as far as strings and brackets go. */
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

/* A value: *number is NAN where it is none; a text is told by *text. */
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

/* What the log said of step `from` and later is undone. */
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

static double real_of(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	double x = json_is_number(v) ? json_number_value(v) : NAN;
	return isfinite(x) ? x : NAN;
}

/* A count; `absent` where there is none. */
static int64_t count_of(const json_t *o, const char *key, int64_t absent)
{
	double x = real_of(o, key);
	return x >= 0 && x <= STEP_NUMBER_MAX ? (int64_t)x : absent;
}

static const char *text_of(struct fo_record *r, const json_t *o, const char *key)
{
	const char *t = json_string_value(json_object_get(o, key));
	return t ? fo_arena_strdup(&r->arena, t) : "";
}

/* Room for one more of an array of events; false: there are too many. */
#define ADD(r, list, n, cap)                                                                                       \
	((r)->n < EVENTS_MAX                                                                                       \
		 ? (fo_array_room(&(r)->list, &(r)->cap, (size_t)(r)->n, sizeof *(r)->list), &(r)->list[(r)->n++]) \
		 : NULL)

static bool add_eval(struct fo_record *r, const json_t *o, int64_t step)
{
	struct fo_record_eval *e = ADD(r, eval, evals, eval_cap);
	if (e)
		*e = (struct fo_record_eval){ .step = step, .loss = real_of(o, "loss"), .time = real_of(o, "time") };
	return e;
}

static bool add_checkpoint(struct fo_record *r, const json_t *o, int64_t step)
{
	struct fo_record_checkpoint *c = ADD(r, checkpoint, checkpoints, checkpoint_cap);
	if (c)
		*c = (struct fo_record_checkpoint){ .step = step,
						    .path = text_of(r, o, "path"),
						    .seconds = real_of(o, "seconds"),
						    .blocked_seconds = real_of(o, "blocked_seconds"),
						    .time = real_of(o, "time") };
	return c;
}

static bool add_machine(struct fo_record *r, const json_t *o, int64_t step)
{
	struct fo_record_machine *m = ADD(r, machine, machines, machine_cap);
	if (m)
		*m = (struct fo_record_machine){ .step = step,
						 .time = real_of(o, "time"),
						 .use = { .seconds = real_of(o, "seconds"),
							  .steal = real_of(o, "steal"),
							  .clock_hz = real_of(o, "clock_hz"),
							  .throttles = real_of(o, "throttles"),
							  .limited_s = real_of(o, "limited_seconds"),
							  .joules = real_of(o, "joules"),
							  .load = real_of(o, "load") } };
	return m;
}

/* Seconds by part of `steps` steps; steps 0 where the line tells nothing. */
static struct fo_profile profile_of(const json_t *o, const char *steps_key)
{
	struct fo_profile f = { .steps = count_of(o, steps_key, 0) };
	const json_t *parts = json_object_get(o, "parts");
	for (int i = 0; i < FO_PART_COUNT; i++) {
		double v = real_of(parts, fo_part_name[i]);
		f.part_ns[i] = isnan(v) ? 0 : v * 1e9;
		f.total_ns += f.part_ns[i];
	}
	return f.steps && f.total_ns > 0 && isfinite(f.total_ns) ? f : (struct fo_profile){ 0 };
}

static bool add_profile(struct fo_record *r, const json_t *o, int64_t step)
{
	struct fo_profile f = profile_of(o, "steps");
	struct fo_record_profile *p = f.steps ? ADD(r, profile, profiles, profile_cap) : NULL;
	if (p)
		*p = (struct fo_record_profile){ .step = step, .time = real_of(o, "time"), .profile = f };
	return p || !f.steps;
}

static bool add_guard(struct fo_record *r, const json_t *o, int64_t step, enum fo_record_guard_kind kind)
{
	struct fo_record_guard *g = ADD(r, guard, guards, guard_cap);
	if (!g)
		return false;
	*g = (struct fo_record_guard){ .kind = kind,
				       .step = step,
				       .back_to = count_of(o, "back_to", -1),
				       .action = text_of(r, o, "action"),
				       .where = text_of(r, o, "where"),
				       .loss = real_of(o, "loss"),
				       .grad_norm = real_of(o, "grad_norm"),
				       .median = real_of(o, "median"),
				       .deviation = real_of(o, "deviation"),
				       .z = real_of(o, "z"),
				       .time = real_of(o, "time"),
				       .documents = (int64_t)json_array_size(json_object_get(o, "documents")) };
	if (g->back_to >= 0)
		undo(r, g->back_to + 1);
	return true;
}

static bool add_start(struct fo_record *r, const json_t *o, int64_t step)
{
	struct fo_record_start *s = ADD(r, start, starts, start_cap);
	if (s)
		*s = (struct fo_record_start){ .step = step,
					       .time = real_of(o, "time"),
					       .peak_flop_s = real_of(o, "peak_flop_s"),
					       .threads = count_of(o, "threads", -1),
					       .isa = text_of(r, o, "isa"),
					       .peak_dtype = text_of(r, o, "peak_dtype"),
					       .program_hash = text_of(r, o, "program_hash"),
					       .device = text_of(r, o, "device"),
					       .arena_bytes = real_of(o, "arena_bytes"),
					       .persistent_bytes = real_of(o, "persistent_bytes"),
					       .workspace_bytes = real_of(o, "workspace_bytes"),
					       .other_bytes = real_of(o, "other_bytes"),
					       .checkpoint_bytes = real_of(o, "checkpoint_bytes") };
	return s;
}

const struct fo_record_device fo_record_no_device = {
	.sm_hz = NAN,
	.watts = NAN,
	.joules_per_token = NAN,
	.power_share = NAN,
	.thermal_share = NAN,
	.sm_active = NAN,
	.dram_active = NAN,
	.split = { NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, "" },
};

static struct fo_record_device device_of(const json_t *d)
{
	const char *why = json_string_value(json_object_get(d, "ofu_why"));
	struct fo_record_device r = { .told = json_is_object(d),
				      .sm_hz = real_of(d, "sm_clock_hz"),
				      .watts = real_of(d, "watts"),
				      .joules_per_token = real_of(d, "joules_per_token"),
				      .power_share = real_of(d, "throttled_power"),
				      .thermal_share = real_of(d, "throttled_thermal"),
				      .sm_active = real_of(d, "sm_active"),
				      .dram_active = real_of(d, "dram_active"),
				      .split = { .clock = real_of(d, "mfu_clock"),
						 .work = real_of(d, "mfu_work"),
						 .counted = real_of(d, "mfu_counted"),
						 .hz = real_of(d, "sm_clock_hz"),
						 .peak_hz = real_of(d, "peak_clock_hz"),
						 .pipes = real_of(d, "tensor_pipes"),
						 .ofu = real_of(d, "ofu"),
						 .useful = real_of(d, "mfu_useful") } };
	fo_str_visible(r.split.why, sizeof r.split.why, why ? why : "");
	return r;
}

static bool add_end(struct fo_record *r, const json_t *o, int64_t step)
{
	struct fo_record_end *e = ADD(r, end, ends, end_cap);
	if (e)
		*e = (struct fo_record_end){ .step = step,
					     .how = text_of(r, o, "how"),
					     .time = real_of(o, "time"),
					     .steps = count_of(o, "steps", 0),
					     .profile = profile_of(o, "timed_steps"),
					     .planned_bytes = real_of(o, "planned_bytes"),
					     .measured_bytes = real_of(o, "measured_bytes"),
					     .joules_per_token = real_of(o, "joules_per_token"),
					     .huge_page_share = real_of(o, "huge_page_share"),
					     .device = device_of(json_object_get(o, "device")),
					     .padding_share = real_of(o, "padding_share"),
					     .truncated_share = real_of(o, "truncated_share") };
	return e;
}

static bool add_event(struct fo_record *r, const char *name, const json_t *o, int64_t step)
{
	if (!strcmp(name, "eval"))
		return add_eval(r, o, step);
	if (!strcmp(name, "checkpoint"))
		return add_checkpoint(r, o, step);
	if (!strcmp(name, "machine"))
		return add_machine(r, o, step);
	if (!strcmp(name, "profile"))
		return add_profile(r, o, step);
	if (!strcmp(name, "nonfinite"))
		return add_guard(r, o, step, FO_GUARD_NONFINITE);
	if (!strcmp(name, "spike"))
		return add_guard(r, o, step, FO_GUARD_SPIKE);
	if (!strcmp(name, "start"))
		return add_start(r, o, step);
	return strcmp(name, "end") || add_end(r, o, step); /* of a later version: none of ours */
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
	else if (!add_event(r, name, o, (int64_t)l.step))
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
