/* Lines of progress: finds the mark of each kind in the text and reads the fields of the lines that hold one.
 *
 * Every kind that a log turns out to hold is searched for on its own, by the mark alone and not line by line, so the
 * lines that say nothing of progress cost no more than memmem. Which kinds there are is decided on samples of the text.
 * A long text is split between threads at line ends; blocks of lines are read by one thread. */
#define _GNU_SOURCE /* memrchr */
#include "logs/logs_int.h"

#include "base/count.h"

#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
	SAMPLE = 1 << 20, /* bytes of one sample */
	SAMPLES = 8,
	HEAD = 4 << 20,   /* facts are looked for in the first 4 MiB, and in front of the first step */
	BLOCK = 1 << 14,  /* a block of lines is not longer */
	PIECE = 16 << 20, /* a thread's share is at least that */
	THREADS = 8,
	LINE = 1 << 14, /* a line of progress is not longer */
	ESCAPE = 27,
};

static bool is_digit(char c) { return (unsigned)(c - '0') < 10; } /* isdigit looks up the locale's table */

/* ---- numbers ---- */

static double suffix(const char *p, const char *end)
{
	static const struct {
		char letter;
		double factor;
	} of[] = {
		{ 'K', 1e3 }, { 'M', 1e6 }, { 'B', 1e9 }, { 'G', 1e9 }, { 'T', 1e12 }, { 'P', 1e15 }, { 'E', 1e18 }
	};
	if (p < end && (p + 1 == end || !isalpha((unsigned char)p[1])))
		for (size_t i = 0; i < sizeof of / sizeof *of; i++)
			if (*p == of[i].letter)
				return of[i].factor;
	return 1;
}

static bool three_digits(const char *p, const char *end)
{
	return end - p >= 3 && is_digit(p[0]) && is_digit(p[1]) && is_digit(p[2]) && (end - p == 3 || !is_digit(p[3]));
}

/* Exact for up to 15 digits and powers of ten up to 22, whose product or quotient is rounded once; what is longer is
 * rounded a second time, by less than what a log prints. */
static double scaled(uint64_t digits, int power)
{
	static const double ten[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
				      1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
	if (power >= 0)
		return power <= 22 ? (double)digits * ten[power] : (double)digits * pow(10, power);
	return power >= -22 ? (double)digits / ten[-power] : (double)digits * pow(10, power);
}

/* "e-05" at p: its value; 0 and *end = p where there is none. */
static int exponent(const char *p, const char *end, const char **behind)
{
	const char *q = p + 1;
	int v = 0;
	*behind = p;
	if (p >= end || (*p != 'e' && *p != 'E'))
		return 0;
	bool minus = q < end && *q == '-';
	q += q < end && (*q == '-' || *q == '+');
	if (q >= end || !is_digit(*q))
		return 0;
	for (; q < end && is_digit(*q); q++)
		v = v < 1000 ? 10 * v + (*q - '0') : v;
	*behind = q;
	return minus ? -v : v;
}

static bool digits(const char *p, const char *end, double *value, const char **behind)
{
	uint64_t n = 0;
	int power = 0, seen = 0;
	bool minus = p < end && *p == '-', point = false;
	p += p < end && (*p == '-' || *p == '+');
	for (; p < end; p++) {
		if (is_digit(*p)) {
			seen++;
			if (n < UINT64_MAX / 10 - 1) {
				n = 10 * n + (uint64_t)(*p - '0');
				power -= point;
			} else {
				power += !point;
			}
		} else if (*p == '.' && !point) {
			point = true;
		} else if (*p != ',' || point || !seen || !three_digits(p + 1, end)) {
			if (*p != ',' || point || !seen || end - p < 5 || p[4] != ',' || !is_digit(p[1]))
				break;
		}
	}
	if (!seen)
		return false;
	power += exponent(p, end, behind);
	*value = (minus ? -1 : 1) * scaled(n, power);
	return isfinite(*value);
}

bool fo_log_number(const char *p, const char *end_of_text, double *value, const char **end)
{
	if (p < end_of_text && (is_digit(*p) || *p == '-' || *p == '+' || *p == '.')) {
		if (!digits(p, end_of_text, value, end))
			return false;
		*value *= suffix(*end, end_of_text);
		return isfinite(*value);
	}
	if (end_of_text - p >= 3 && (!strncasecmp(p, "nan", 3) || !strncasecmp(p, "N/A", 3))) {
		*value = NAN;
		*end = p + 3;
		return true;
	}
	if (end_of_text - p >= 4 && (!strncasecmp(p, "true", 4) || !strncasecmp(p, "null", 4))) {
		*value = *p == 't' || *p == 'T' ? 1 : NAN;
		*end = p + 4;
		return true;
	}
	return false;
}

/* "1d 2h 3m 4.5s", of which parts may be missing, or "300ms"; false: none. */
static bool unit_clock(const char *p, const char *end, double *seconds)
{
	static const struct {
		const char *unit;
		double seconds;
	} of[] = { { "ms", 1e-3 }, { "d", 86400 }, { "h", 3600 }, { "m", 60 }, { "s", 1 } };
	enum { UNITS = sizeof of / sizeof *of };
	double sum = 0, v;
	bool any = false;
	const char *behind;
	while (digits(p, end, &v, &behind)) {
		size_t u = 0;
		while (u < UNITS && (size_t)(end - behind) >= strlen(of[u].unit) &&
		       memcmp(behind, of[u].unit, strlen(of[u].unit)) != 0)
			u++;
		p = behind + (u < UNITS ? strlen(of[u].unit) : 0);
		if (u == UNITS || p > end || (p < end && isalnum((unsigned char)*p)))
			return false;
		sum += v * of[u].seconds;
		any = true;
		if (p + 1 >= end || *p != ' ' || !is_digit(p[1]))
			break;
		p++;
	}
	*seconds = sum;
	return any;
}

bool fo_log_clock(const char *p, const char *end_of_text, double *seconds)
{
	if (unit_clock(p, end_of_text, seconds))
		return true;
	double part[4], v;
	int n = 0;
	const char *end;
	double days = 0;
	if (fo_log_number(p, end_of_text, &v, &end) && end_of_text - end > 4 && !strncmp(end, " day", 4)) {
		days = v;
		for (p = end; p < end_of_text && *p != ','; p++)
			;
		p++;
		while (p < end_of_text && *p == ' ')
			p++;
	}
	while (n < 4 && p < end_of_text && is_digit(*p) && fo_log_number(p, end_of_text, &v, &end)) {
		part[n++] = v;
		p = end;
		if (p >= end_of_text || *p != ':')
			break;
		p++;
	}
	if (n < 2 || n > 3)
		return false;
	*seconds = 86400 * days + (n == 3 ? 3600 * part[0] + 60 * part[1] + part[2] : 60 * part[0] + part[1]);
	return true;
}

/* Days since 1970 of a date in the Gregorian calendar: Howard Hinnant's "days_from_civil". */
static int64_t days(int64_t y, int m, int d)
{
	y -= m <= 2;
	int64_t era = (y >= 0 ? y : y - 399) / 400, of_era = y - era * 400;
	int64_t of_year = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
	return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* n digits at p; -1: not all are digits. */
static int number_at(const char *p, int n)
{
	int v = 0;
	for (int i = 0; i < n; i++) {
		if (!is_digit(p[i]))
			return -1;
		v = 10 * v + (p[i] - '0');
	}
	return v;
}

double fo_log_stamp(const char *p, const char *end)
{
	if (end - p > 96)
		end = p + 96;
	for (; end - p >= 19; p++) {
		if (p[4] != '-' || p[7] != '-' || (p[10] != ' ' && p[10] != 'T') || p[13] != ':' || p[16] != ':')
			continue;
		int y = number_at(p, 4), mo = number_at(p + 5, 2), d = number_at(p + 8, 2), h = number_at(p + 11, 2),
		    mi = number_at(p + 14, 2), s = number_at(p + 17, 2);
		if (y < 0 || mo < 1 || mo > 12 || d < 1 || d > 31 || h < 0 || mi < 0 || s < 0)
			continue;
		double part = 0;
		const char *q = p + 19;
		if (q < end && (*q == ',' || *q == '.')) {
			double unit = 0.1;
			for (q++; q < end && is_digit(*q); q++, unit /= 10)
				part += unit * (*q - '0');
		}
		return (double)(days(y, mo, d) * 86400 + h * 3600 + mi * 60 + s) + part;
	}
	return NAN;
}

/* ---- one line ---- */

static bool word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* A form, ready to search for. */
struct seeker {
	const struct fo_log_form *form;
	struct fo_log_needle mark, need[FO_LOG_NEEDS], never, key[FO_LOG_KEYS];
	struct seeker *before; /* forms that go before this one and whose mark may stand where this one's does */
	size_t befores;
	size_t stamp; /* where the line before had its time stamp */
};

static struct seeker seeker_of(const struct fo_log_form *f)
{
	struct seeker s = { .form = f, .mark = fo_log_needle(f->mark) };
	for (int i = 0; i < FO_LOG_NEEDS && f->need[i]; i++)
		s.need[i] = fo_log_needle(f->need[i]);
	if (f->never)
		s.never = fo_log_needle(f->never);
	for (int i = 0; i < FO_LOG_KEYS && f->key[i].text; i++)
		s.key[i] = fo_log_needle(f->key[i].text);
	return s;
}

static void add_befores(struct seeker *s)
{
	for (const struct fo_log_form *g = fo_log_form; g < s->form; g++) {
		if (!strstr(g->mark, s->form->mark))
			continue;
		s->before = fo_xrealloc(s->before, (s->befores + 1) * sizeof *s->before);
		s->before[s->befores++] = seeker_of(g);
	}
}

/* A key as a whole word at or behind `from`. */
static const char *find_key(const char *line, const char *from, const char *end, const struct fo_log_needle *key)
{
	for (const char *p = from; (p = fo_log_seek(p, end, key)) != NULL; p++)
		if (p == line || !word_char(*p) || (!word_char(p[-1]) && p[-1] != '/'))
			return p;
	return NULL;
}

static bool value_behind(const char *p, const char *end, const struct fo_log_key *k, double *v, const char **behind)
{
	while (p < end && (*p == ' ' || *p == '"' || *p == '\'' || *p == ':' || *p == '\t'))
		p++;
	if (k->how & FO_LOG_CLOCK) {
		*behind = p;
		return fo_log_clock(p, end, v);
	}
	if (!fo_log_number(p, end, v, behind))
		return false;
	if (k->field == FO_LOG_AT && *behind < end && **behind == '-') {
		*v = fo_log_stamp(p, end - p > 40 ? p + 40 : end);
		return !isnan(*v);
	}
	if (k->how & FO_LOG_UNIT && end - *behind >= 2 && !strncmp(*behind, "ms", 2))
		*v *= 1e-3;
	if (k->how & FO_LOG_FLOPS && end - *behind >= 6 && !memcmp(*behind + 1, "FLOPS", 5))
		*v *= **behind == 'T' ? 1 : suffix(*behind, *behind + 1) / 1e12;
	if (k->how & FO_LOG_COUNTED)
		*v -= 1;
	/* Four decimals of a smaller rate are fewer than three digits. */
	if (k->how & FO_LOG_PER)
		*v = *v >= 0.02 ? 1 / *v : NAN;
	return true;
}

/* Makes a step of the run of a step of its epoch, where the line tells enough for that. */
static void leave_epoch(const struct fo_log_key *k, double *row)
{
	double epoch = row[FO_LOG_EPOCH];
	if (isnan(epoch) || !(k->how & (FO_LOG_OF_EPOCH | FO_LOG_IN_EPOCH)))
		return;
	if (k->how & FO_LOG_OF_EPOCH)
		row[FO_LOG_STEP] += epoch > 0 ? epoch * row[FO_LOG_STEPS] : 0;
	else if (epoch > 0)
		row[FO_LOG_STEP] = NAN;
	row[FO_LOG_STEPS] = NAN;
}

static bool value_before(const char *line, const char *p, double *v)
{
	const char *begin = p, *end;
	while (begin > line && begin[-1] == ' ')
		begin--;
	const char *last = begin;
	while (begin > line && (is_digit(begin[-1]) || strchr(".,-+", begin[-1])))
		begin--;
	return begin < last && fo_log_number(begin, last, v, &end) && end == last;
}

static void read_keys(const struct seeker *s, const char *line, const char *end, double *row)
{
	const char *from = line, *p, *behind;
	const struct fo_log_form *f = s->form;
	for (const struct fo_log_key *k = f->key; k < f->key + FO_LOG_KEYS && k->text; k++) {
		double v;
		if (!isnan(row[k->field]))
			continue;
		const struct fo_log_needle *n = &s->key[k - f->key];
		if (!(p = find_key(line, from, end, n)) && (from == line || !(p = find_key(line, line, end, n))))
			continue;
		if (k->how & FO_LOG_BEFORE) {
			if (value_before(line, p, &v))
				row[k->field] = v * k->scale;
			continue;
		}
		p += n->len;
		if (!value_behind(p, end, k, &v, &behind))
			continue;
		row[k->field] = v * k->scale;
		from = behind;
		while (behind < end && *behind == ' ')
			behind++;
		if (k->field == FO_LOG_STEP && behind < end && *behind == '/') {
			for (behind++; behind < end && *behind == ' '; behind++)
				;
			if (fo_log_number(behind, end, &v, &from))
				row[FO_LOG_STEPS] = v;
		}
		if (k->field == FO_LOG_STEP)
			leave_epoch(k, row);
	}
}

static bool has_all(const struct seeker *s, const char *line, const char *end)
{
	for (int i = 0; i < FO_LOG_NEEDS && s->need[i].text; i++)
		if (!fo_log_seek(line, end, &s->need[i]))
			return false;
	return !s->never.text || !fo_log_seek(line, end, &s->never);
}

/* Is the line taken by an earlier form, whose mark is this one's or holds it? */
static bool taken_before(const struct seeker *s, const char *line, const char *end)
{
	for (const struct seeker *b = s->before; b < s->before + s->befores; b++)
		if (fo_log_seek(line, end, &b->mark) && has_all(b, line, end))
			return true;
	return false;
}

/* A copy of [*p, *end) without the colours of a terminal; buf holds LINE bytes. */
static void strip_colours(const char **p, const char **end, char *buf)
{
	size_t n = 0;
	for (const char *q = *p; q < *end && n < LINE; q++) {
		if (*q == ESCAPE && q + 1 < *end && q[1] == '[') {
			for (q += 2; q < *end && !isalpha((unsigned char)*q); q++)
				;
			continue;
		}
		buf[n++] = *q;
	}
	*p = buf;
	*end = buf + n;
}

/* ---- a whole text ---- */

struct piece {
	struct seeker seek;
	const char *text, *from, *to, *end; /* marks in [from, to); a block may reach to `end` */
	struct fo_log_lines lines;
	pthread_t thread;
};

static const char *line_begin(const char *text, const char *p)
{
	const char *from = p - text > LINE ? p - LINE : text;
	const char *feed = memrchr(from, '\n', (size_t)(p - from)), *begin = feed ? feed + 1 : from;
	const char *back = memrchr(begin, '\r', (size_t)(p - begin));
	return back ? back + 1 : begin;
}

static const char *line_end(const char *p, const char *end)
{
	if (end - p > LINE)
		end = p + LINE;
	const char *feed = memchr(p, '\n', (size_t)(end - p)), *stop = feed ? feed : end;
	const char *back = memchr(p, '\r', (size_t)(stop - p));
	return back ? back : stop;
}

static void *read_piece(void *arg)
{
	struct piece *x = arg;
	const struct seeker *s = &x->seek;
	const struct fo_log_form *f = s->form;
	char *buf = fo_xmalloc(LINE);
	const char *next, *p = x->from;
	/* A mark that begins with a line feed stands at the text's first byte without one. */
	bool head = *f->mark == '\n' && x->from == x->text && x->to - p >= (ptrdiff_t)s->mark.len &&
		    !memcmp(p, f->mark + 1, s->mark.len - 1);
	for (p = head ? p : fo_log_seek(p, x->to, &s->mark); p; p = fo_log_seek(next, x->to, &s->mark)) {
		const char *line = line_begin(x->text, p + (*f->mark == '\n')), *end = line_end(p + 1, x->end);
		next = end > p ? end : p + 1;
		if (f->block) {
			const char *most = x->end - p > BLOCK ? p + BLOCK : x->end;
			const char *other = fo_log_seek(p + s->mark.len, most, &s->mark);
			end = other ? line_begin(x->text, other) : most;
			next = other ? other : most;
		}
		if (p - line > LINE)
			continue;
		if (!f->block && memchr(line, ESCAPE, (size_t)(end - line)))
			strip_colours(&line, &end, buf);
		if (!has_all(s, line, end) || taken_before(s, line, end))
			continue;
		double row[FO_LOG_FIELDS];
		fo_log_blank(row);
		row[FO_LOG_PLACE] = (double)(p - x->text);
		read_keys(s, line, end, row);
		if (isnan(row[FO_LOG_AT]))
			row[FO_LOG_AT] = fo_log_stamp(line, end);
		if (f->micro && !fo_log_find(line, end, "(step)"))
			row[FO_LOG_STEPS] = -1; /* speed.c adds it to the step that follows */
		fo_log_add(&x->lines, row, 0);
	}
	free(buf);
	return NULL;
}

bool fo_log_is_there(const char *text, size_t len, const char *word)
{
	size_t step = len > SAMPLE ? (len - SAMPLE) / (SAMPLES - 1) : 1;
	for (size_t i = 0; i < SAMPLES; i++) {
		size_t from = i * step, n = len - from < SAMPLE ? len - from : SAMPLE;
		if (from < len && fo_log_find(text + from, text + from + n, word))
			return true;
		if (len <= SAMPLE)
			break;
	}
	return false;
}

static void scan_form(struct fo_log *log, const struct fo_log_form *f, const char *text, size_t len, int file)
{
	struct piece piece[THREADS];
	struct seeker seek = seeker_of(f);
	add_befores(&seek);
	size_t n = f->block ? 1 : len / PIECE;
	n = (size_t)fo_clamp((int64_t)n, 1, THREADS);
	const char *from = text, *end = text + len;
	for (size_t i = 0; i < n; i++) {
		const char *to = i + 1 < n ? text + len / n * (i + 1) : end;
		const char *feed = to < end ? memchr(to, '\n', (size_t)(end - to)) : NULL;
		to = feed ? feed : end;
		piece[i] = (struct piece){ .seek = seek, .text = text, .from = from, .to = to, .end = end };
		if (i + 1 == n || pthread_create(&piece[i].thread, NULL, read_piece, &piece[i]) != 0) {
			read_piece(&piece[i]);
			piece[i].thread = 0;
		}
		from = to;
	}
	struct fo_log_lines *all = NULL;
	for (size_t i = 0; i < n; i++) {
		struct fo_log_lines *l = &piece[i].lines;
		if (i + 1 < n && piece[i].thread)
			pthread_join(piece[i].thread, NULL);
		if (!l->count)
			continue;
		all = all ? all : fo_log_lines_of(log, &f->kind);
		fo_log_add_rows(all, l, file);
	}
	free(seek.before);
}

void fo_log_scan(struct fo_log *log, const char *text, size_t len, int file, const char *path)
{
	bool any = false;
	for (int i = 0; i < fo_log_forms; i++)
		if (fo_log_is_there(text, len, fo_log_form[i].mark)) {
			any = true;
			scan_form(log, &fo_log_form[i], text, len, file);
		}
	for (int i = 0; !any && i < fo_log_forms && len > (size_t)SAMPLE * SAMPLES; i++)
		scan_form(log, &fo_log_form[i], text, len, file);
	fo_log_scan_facts(log, text, len < HEAD ? len : HEAD, path);
}

/* ---- facts ---- */

static const char *skip(const char *p, const char *end, const char *set)
{
	while (p < end && strchr(set, *p) && *p)
		p++;
	return p;
}

/* Where the value of a word at p begins; NULL: it is not written in the word's style. */
static const char *fact_value(const struct fo_log_word *w, const char *line, const char *p, const char *end)
{
	const char *v = p + strlen(w->text);
	switch (w->style) {
	case FO_LOG_DOTS: {
		const char *dots = skip(v, end, " ");
		const char *behind = skip(dots, end, ".");
		return v < end && *v == ' ' && behind - dots >= 3 ? skip(behind, end, " [") : NULL;
	}
	case FO_LOG_CELL: {
		const char *bar = skip(v, end, " ");
		bool left = p - line >= 2 && p[-2] == '|';
		return left && bar < end && *bar == '|' ? skip(bar + 1, end, " ") : NULL;
	}
	case FO_LOG_MEMBER: return v < end && *v == ':' ? skip(v + 1, end, " \"") : NULL;
	case FO_LOG_PHRASE: return skip(v, end, " :");
	}
	return NULL;
}

static size_t text_value(const struct fo_log_word *w, const char *v, const char *end)
{
	const char *stop = w->until ? fo_log_find(v, end, w->until) : NULL;
	if (w->style == FO_LOG_CELL)
		stop = fo_log_find(v, end, "  ");
	if (!stop)
		for (stop = v; stop < end && !strchr(" \",|\t", *stop); stop++)
			;
	return (size_t)(stop - v);
}

/* Facts that a later dump of the same arguments may contradict. */
static bool again(const struct fo_log_word *w)
{
	return w->style == FO_LOG_DOTS && (w->fact == FO_LOG_DEVICES || w->fact == FO_LOG_BATCH);
}

/* The number of a fact; false: there is none. Megatron's fp8 is the name of a format. */
static bool fact_number(const struct fo_log_word *w, const char *v, const char *end, double *number)
{
	const char *behind;
	if (w->fact == FO_LOG_FP8 && end - v >= 4 && (!strncmp(v, "hybr", 4) || !strncmp(v, "e4m3", 4))) {
		*number = 1;
		return true;
	}
	return fo_log_number(v, end, number, &behind) && !isnan(*number);
}

double fo_log_fact_at(const struct fo_log_word *w, const char *text, const char *p, const char *end)
{
	double number;
	const char *stop = line_end(p, end), *v = fact_value(w, line_begin(text, p), p, stop);
	return v && v < stop && fact_number(w, v, stop, &number) ? number * w->scale : NAN;
}

/* Does a word begin at p? A colour of the terminal in front of it ends with a letter, too. */
static bool word_begins(const char *text, const char *p)
{
	if (p == text || !word_char(*p) || (!word_char(p[-1]) && p[-1] != '/'))
		return true;
	const char *q = p - 1;
	while (*q != ESCAPE && q > text && p - q < 24 && strchr("0123456789;[m", *q))
		q--;
	return p[-1] == 'm' && *q == ESCAPE;
}

void fo_log_scan_facts(struct fo_log *log, const char *text, size_t len, const char *path)
{
	const char *end = text + len;
	for (const struct fo_log_word *w = fo_log_word; w < fo_log_word + fo_log_words; w++) {
		for (const char *p = text; (p = fo_log_find(p, end, w->text)) != NULL; p++) {
			if (!word_begins(text, p))
				continue;
			const char *line = line_begin(text, p), *stop = line_end(p, end);
			if (w->within && !fo_log_find(line, stop, w->within)) {
				p = stop - 1; /* nor has it for the word's next places in this line */
				continue;
			}
			const char *v = fact_value(w, line, p, stop);
			double number = NAN;
			if (!v || v >= stop)
				continue;
			bool text_fact = w->fact >= FO_LOG_MODEL;
			if (text_fact ? !strncmp(v, "None", 4) : !fact_number(w, v, stop, &number))
				continue;
			if (again(w) && log->told[w->fact].number == number * w->scale)
				continue; /* a later dump of arguments may give another one */
			int64_t at = 1;
			for (const char *q = text; (q = memchr(q, '\n', (size_t)(p - q))) != NULL; q++)
				at++;
			bool first = !fo_log_knows(log, w->fact);
			fo_log_tell(log, w->fact, number * w->scale, text_fact ? v : NULL,
				    text_fact ? text_value(w, v, stop) : 0, path, at);
			if (!first || !again(w))
				break;
		}
	}
}
