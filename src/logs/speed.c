/* Makes step times of what the lines of progress print.
 *
 * The kind whose lines tell most about time is the run's. Its lines are put into one sequence: lines that repeat a step
 * (other ranks, a second print) are dropped; where the step number falls back, a process began again from a checkpoint,
 * and what is done twice counts once. A line's step time is the first of these that it tells: its own time per step;
 * the growth of a running time; tokens per step over a rate; samples per step over a rate; the growth of the time
 * stamps. Kinds do not mix these. */
#include "logs/logs_int.h"

#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	WARM_STEPS = 10, /* first steps left out of medians: compilation, caches, allocators */
	SHORT = 20,      /* runs shorter than this many steps leave out a fifth instead */
	PHASE_MIN = 3,   /* lines that make a slow phase */
	PHASES_MAX = 1000,
};
static const double PHASE_SLOW = 1.15; /* times the median: above what quartiles of quiet runs span */
static const double LINE_SLOW = 1.5;   /* a single line that says one step's time */
static const double MEAN_SLOW = 1.1;   /* a single line that is a mean of several steps */

/* ---- which kind ---- */

static size_t told_by(const struct fo_log_lines *l, enum fo_log_field f)
{
	size_t n = 0;
	for (size_t i = 0; i < l->count && n < 2 && l->cell[f]; i++)
		n += !isnan(fo_log_get(l, i, f));
	return n;
}

static int worth(const struct fo_log_lines *l)
{
	static const struct {
		enum fo_log_field field;
		int worth;
	} of[] = { { FO_LOG_STEP, 64 },  { FO_LOG_SECONDS, 32 },     { FO_LOG_RATE, 16 }, { FO_LOG_RATE_ALL, 16 },
		   { FO_LOG_TOTAL, 16 }, { FO_LOG_SAMPLES_RATE, 8 }, { FO_LOG_AT, 4 } };
	int w = 0;
	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		w += told_by(l, of[i].field) ? of[i].worth : 0;
	return w;
}

static void choose_kind(struct fo_log *log)
{
	size_t best = 0;
	for (size_t i = 1; i < log->kinds; i++) {
		int a = worth(&log->lines[i]), b = worth(&log->lines[best]);
		if (a > b || (a == b && log->lines[i].count > log->lines[best].count))
			best = i;
	}
	if (!log->kinds)
		return;
	struct fo_log_lines l = log->lines[best];
	log->lines[best] = log->lines[0];
	log->lines[0] = l;
	log->kind = *l.kind;
}

/* ---- micro-batches ---- */

/* Lines of a micro-batch are added up; the line that ends a step stays. Where lines are printed now and then, their
 * mean stands for the micro-batches between. FO_LOG_STEP counts micro-batches, FO_LOG_STEPS is the step, -1 within. */
static void join_micro(struct fo_log_lines *l)
{
	size_t n = 0;
	double sum = 0, lines = 0, last_micro = 0, last_step = 0;
	for (size_t i = 0; i < l->count; i++) {
		double seconds = fo_log_get(l, i, FO_LOG_SECONDS), step = fo_log_get(l, i, FO_LOG_STEPS);
		double micro = fo_log_get(l, i, FO_LOG_STEP);
		sum += isnan(seconds) ? 0 : seconds;
		lines += !isnan(seconds);
		if (step == -1)
			continue;
		step = step > 0 ? step : last_step + 1;
		double per_step = (micro - last_micro) / (step - last_step);
		fo_log_copy(l, n, i);
		if (lines > 0 && per_step >= 1 && isfinite(per_step))
			sum *= per_step / lines;
		fo_log_set(l, n, FO_LOG_SECONDS, sum);
		fo_log_set(l, n, FO_LOG_STEP, step);
		fo_log_set(l, n++, FO_LOG_STEPS, NAN);
		last_micro = micro;
		last_step = step;
		sum = lines = 0;
	}
	l->count = n;
	l->files = 1; /* restarts are not looked for in such logs */
}

static bool has_micro(const struct fo_log_lines *l)
{
	for (int i = 0; i < fo_log_forms; i++)
		if (&fo_log_form[i].kind == l->kind)
			return fo_log_form[i].micro;
	return false;
}

/* ---- one sequence of steps ---- */

struct file {
	size_t from, to;
	double at;  /* time stamp of its first line, or its first step */
	double few; /* steps that a line may lie behind: another rank's; 0: lines of one rank */
};

enum { RANK_LINES = 16, RANK_FALLS = 3 };

static int by_number(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Lines of several ranks in one file fall back by a few steps again and again; no process begins again that often. What
 * lies between two of all steps is the distance of lines, whoever prints them. */
static double rank_fall(const struct fo_log_lines *l, size_t from, size_t to)
{
	size_t falls = 0, n = 0, gaps = 0;
	for (size_t i = from + 1; i < to; i++)
		falls += fo_log_get(l, i, FO_LOG_STEP) < fo_log_get(l, i - 1, FO_LOG_STEP);
	if (falls < RANK_FALLS || falls <= (to - from) / 8)
		return 0;
	double *step = fo_xmalloc((to - from) * sizeof *step);
	for (size_t i = from; i < to; i++)
		if (!isnan(fo_log_get(l, i, FO_LOG_STEP)))
			step[n++] = fo_log_get(l, i, FO_LOG_STEP);
	qsort(step, n, sizeof *step, by_number);
	for (size_t i = 1; i < n; i++)
		if (step[i] > step[i - 1])
			step[gaps++] = step[i] - step[i - 1];
	double few = gaps ? RANK_LINES * fo_stats_select(step, gaps, 0.5) : 0;
	free(step);
	return few;
}

/* A process that begins again does the steps again that it lost, one line after the other. Where lines of two runs
 * alternate, the steps fall back and then jump over all of them, again and again. */
static size_t crossings(const struct fo_log_lines *l, size_t from, size_t to, double few)
{
	double high = INFINITY, least = INFINITY;
	size_t n = 0;
	for (size_t i = from + 1; i < to; i++) {
		double before = fo_log_get(l, i - 1, FO_LOG_STEP), step = fo_log_get(l, i, FO_LOG_STEP);
		if (step < before - few)
			high = fmin(high, before);
		if (step > before)
			least = fmin(least, step - before);
		if (step > high) {
			n += step - before > (few > 0 ? few : 1.5 * least);
			high = INFINITY;
		}
	}
	return n;
}

enum { CROSSINGS = 3, CROSSING_LINES = 16 };
bool fo_log_is_mixed(const struct fo_log *log)
{
	return log->crossings >= CROSSINGS && log->crossings >= log->lines[0].count / CROSSING_LINES;
}

/* Are two files, a before b, the same steps as two ranks printed them? Not where b begins when a has ended. */
static bool same_steps(const struct fo_log_lines *l, const struct file *a, const struct file *b)
{
	size_t n = a->to - a->from, m = b->to - b->from, differ = n > m ? n - m : m - n;
	if (!n || !m || differ > n / 10 + 2 ||
	    fo_log_get(l, a->from, FO_LOG_STEP) != fo_log_get(l, b->from, FO_LOG_STEP))
		return false;
	return !(fo_log_get(l, b->from, FO_LOG_AT) > fo_log_get(l, a->to - 1, FO_LOG_AT));
}

static int by_time(const void *a, const void *b)
{
	const struct file *x = a, *y = b;
	if (x->at != y->at && !isnan(x->at) && !isnan(y->at))
		return x->at < y->at ? -1 : 1;
	return (x->from > y->from) - (x->from < y->from);
}

/* The files in the order of their first time stamps; of their first steps where not all have stamps. */
static struct file *order_files(struct fo_log *log)
{
	const struct fo_log_lines *l = &log->lines[0];
	struct file *file = fo_xmalloc((size_t)(l->files + 1) * sizeof *file);
	bool stamps = true;
	for (int f = 0; f < l->files; f++) {
		file[f].from = l->from[f];
		file[f].to = f + 1 < l->files ? l->from[f + 1] : l->count;
		file[f].at = file[f].from < file[f].to ? fo_log_get(l, file[f].from, FO_LOG_AT) : INFINITY;
		file[f].few = rank_fall(l, file[f].from, file[f].to);
		log->crossings += crossings(l, file[f].from, file[f].to, file[f].few);
		stamps &= !isnan(file[f].at);
	}
	for (int f = 0; f < l->files && !stamps; f++)
		if (file[f].from < file[f].to)
			file[f].at = fo_log_get(l, file[f].from, FO_LOG_STEP);
	qsort(file, (size_t)l->files, sizeof *file, by_time);
	return file;
}

static double step_of(const struct fo_log *log, size_t i) { return fo_log_at(log, i, FO_LOG_STEP); }
static double stamp_of(const struct fo_log *log, size_t i) { return fo_log_at(log, i, FO_LOG_AT); }

static void add_part(struct fo_log *log, double begin)
{
	log->part = fo_xrealloc(log->part, (log->parts + 1) * sizeof *log->part);
	log->part[log->parts++] = (struct fo_log_part){ .from = log->steps, .begin = begin, .end = NAN, .lost = NAN };
}

/* A process begins again at `step`: steps from there on that stand in the sequence are done twice. */
static void begin_again(struct fo_log *log, double step, double at)
{
	int64_t again = 0;
	double until = stamp_of(log, log->steps - 1);
	for (; log->steps && step_of(log, log->steps - 1) >= step; again++)
		log->steps--;
	log->part[log->parts - 1].end = until;
	while (log->parts > 1 && log->part[log->parts - 1].from >= log->steps)
		log->parts--;
	add_part(log, at);
	log->part[log->parts - 1].again = again;
}

/* The same step again is another rank's line, or a second print of it. A smaller step is a new process, unless its time
 * stamp is none that is later: then it is another rank's line, too. */
static void take_row(struct fo_log *log, size_t row, double few, double *latest)
{
	struct fo_log_lines *l = &log->lines[0];
	double step = fo_log_get(l, row, FO_LOG_STEP), at = fo_log_get(l, row, FO_LOG_AT);
	double last = log->steps ? step_of(log, log->steps - 1) : -INFINITY;
	if (isnan(step)) {
		step = log->steps ? last + 1 : 1;
		fo_log_set(l, row, FO_LOG_STEP, step);
	}
	if (step == last || (step < last && (at <= *latest || last - step <= few)))
		return;
	if (step < last)
		begin_again(log, step, at);
	else if (!log->parts)
		add_part(log, at);
	log->row[log->steps++] = (uint32_t)row;
	*latest = at > *latest ? at : *latest;
}

static void make_sequence(struct fo_log *log)
{
	const struct fo_log_lines *l = &log->lines[0];
	struct file *file = order_files(log);
	double latest = -INFINITY; /* time stamp */
	log->row = fo_xmalloc((l->count + 1) * sizeof *log->row);
	for (int f = 0, taken = 0; f < l->files; f++) {
		if (f > taken && same_steps(l, &file[taken], &file[f]))
			continue;
		taken = f;
		for (size_t i = file[f].from; i < file[f].to; i++)
			take_row(log, i, file[f].few, &latest);
	}
	for (size_t p = 0; p < log->parts; p++)
		log->part[p].to = p + 1 < log->parts ? log->part[p + 1].from : log->steps;
	if (log->parts && log->steps)
		log->part[log->parts - 1].end = stamp_of(log, log->steps - 1);
	free(file);
}

/* ---- lines and their steps ---- */

static bool first_of_part(const struct fo_log *log, size_t i)
{
	size_t low = 0, high = log->parts;
	if (i >= log->part[high - 1].from)
		return i == log->part[high - 1].from;
	while (low < high) {
		size_t p = low + (high - low) / 2;
		if (log->part[p].from == i)
			return true;
		if (log->part[p].from < i)
			low = p + 1;
		else
			high = p;
	}
	return false;
}

/* Is line i a process's first step, which the line behind it counts again? It may stand right behind the last line of
 * the process before. */
static bool counts_again(const struct fo_log *log, size_t i)
{
	if (log->kind.span != FO_LOG_MEAN_FIRST || !(log->interval > 1) || i + 1 >= log->steps ||
	    first_of_part(log, i + 1) || step_of(log, i + 1) - step_of(log, i) != log->interval - 1)
		return false;
	return first_of_part(log, i) || step_of(log, i) - step_of(log, i - 1) == 1;
}

double fo_log_steps_at(const struct fo_log *log, size_t i)
{
	if (i && !first_of_part(log, i))
		return step_of(log, i) - step_of(log, i - 1);
	if (counts_again(log, i))
		return 1;
	return fmax(fmin(log->interval, step_of(log, i)), 1);
}

static void find_interval(struct fo_log *log)
{
	double *d = fo_xmalloc((log->steps + 1) * sizeof *d);
	size_t n = 0;
	for (const struct fo_log_part *p = log->part; p < log->part + log->parts; p++)
		for (size_t i = p->from + 1; i < p->to; i++)
			d[n++] = step_of(log, i) - step_of(log, i - 1);
	log->interval = n ? fo_stats_select(d, n, 0.5) : 1;
	free(d);
}

static double growth(const struct fo_log *log, size_t i, enum fo_log_field f)
{
	if (!i || !log->lines[0].cell[f] || !log->numbered || first_of_part(log, i))
		return NAN;
	double d = fo_log_at(log, i, f) - fo_log_at(log, i - 1, f);
	return d > 0 ? d / (step_of(log, i) - step_of(log, i - 1)) : NAN;
}

/* ---- long gaps ---- */

static const double GAP_TIMES = 10, GAP_SECONDS = 60, GAP_RATE = 3;

/* Nothing was trained in a gap of the time stamps that is far longer than the line's steps take, unless the line itself
 * says that they were slow. `usual`: by the stamps, s per step. */
static bool is_gap(const struct fo_log *log, size_t i, double usual)
{
	double gap = growth(log, i, FO_LOG_AT) * fo_log_steps_at(log, i);
	return gap > GAP_TIMES * usual * fo_log_steps_at(log, i) &&
	       !(2 * fo_log_at(log, i, FO_LOG_SECONDS) * fo_log_steps_at(log, i) > gap);
}

/* Leaves out the lines whose rate says that their steps were slow; how many are left. */
static size_t drop_slow(const struct fo_log *log, size_t *at, size_t gaps)
{
	double rate = gaps ? fo_log_median(log, FO_LOG_RATE) : NAN,
	       all = gaps ? fo_log_median(log, FO_LOG_RATE_ALL) : NAN;
	size_t n = 0;
	for (size_t g = 0; g < gaps; g++)
		if (!(fo_log_at(log, at[g], FO_LOG_RATE) < rate / GAP_RATE) &&
		    !(fo_log_at(log, at[g], FO_LOG_RATE_ALL) < all / GAP_RATE))
			at[n++] = at[g];
	return n;
}

static void split_at(struct fo_log *log, const size_t *at, size_t gaps)
{
	struct fo_log_part *old = log->part;
	size_t parts = log->parts, g = 0;
	log->part = NULL;
	log->parts = 0;
	for (size_t p = 0; p < parts; p++) {
		add_part(log, old[p].begin);
		log->part[log->parts - 1] = old[p];
		for (; g < gaps && at[g] < old[p].to; g++) {
			struct fo_log_part *x = &log->part[log->parts - 1];
			double end = x->end;
			x->to = at[g];
			x->end = stamp_of(log, at[g] - 1);
			add_part(log, stamp_of(log, at[g]));
			x = &log->part[log->parts - 1];
			*x = (struct fo_log_part){ at[g], old[p].to, x->begin, end, NAN, 0 };
		}
	}
	free(old);
}

/* A process that begins again without doing steps twice shows by the gap alone. Many gaps are none of these, but what
 * the run does between steps. */
static void split_gaps(struct fo_log *log)
{
	enum { SELDOM = 20 };
	if (!log->lines[0].cell[FO_LOG_AT] || !log->numbered)
		return;
	double *v = fo_xmalloc((log->steps + 1) * sizeof *v), usual;
	size_t *at = NULL, room = 0, n = 0, gaps = 0;
	for (const struct fo_log_part *p = log->part; p < log->part + log->parts; p++)
		for (size_t i = p->from + 1; i < p->to; i++) {
			double s = stamp_of(log, i) - stamp_of(log, i - 1);
			if (s > 0)
				v[n++] = s / (step_of(log, i) - step_of(log, i - 1));
		}
	usual = fo_stats_select(v, n, 0.5);
	for (size_t i = 1; i < log->steps && n; i++)
		if (stamp_of(log, i) - stamp_of(log, i - 1) > GAP_SECONDS && is_gap(log, i, usual)) {
			fo_array_room(&at, &room, gaps, sizeof *at);
			at[gaps++] = i;
		}
	gaps = drop_slow(log, at, gaps);
	if (gaps && gaps <= 1 + log->steps / SELDOM)
		split_at(log, at, gaps);
	free(at);
	free(v);
}

/* ---- step times ---- */

static double known(double a, double b) { return isnan(a) ? b : a; }

static double samples_told(const struct fo_log *log, size_t i)
{
	double samples = known(fo_log_at(log, i, FO_LOG_SAMPLES), log->told[FO_LOG_BATCH].number);
	if (!isnan(samples) || isnan(log->told[FO_LOG_LOCAL].number))
		return samples;
	double ranks = fo_log_devices(log, i) /
		       (known(log->told[FO_LOG_TP].number, 1) * known(log->told[FO_LOG_PP].number, 1) *
			known(log->told[FO_LOG_CP].number, 1));
	return log->told[FO_LOG_LOCAL].number * ranks;
}

double fo_log_tokens(const struct fo_log *log, size_t i)
{
	double tokens = known(fo_log_at(log, i, FO_LOG_TOKENS), log->told[FO_LOG_STEP_TOKENS].number);
	if (isnan(tokens) && !isnan(log->told[FO_LOG_SEQ].number))
		tokens = samples_told(log, i) * log->told[FO_LOG_SEQ].number;
	return isnan(tokens) ? growth(log, i, FO_LOG_SEEN_TOKENS) : tokens;
}

enum way { BY_SECONDS, BY_TOTAL, BY_RATE, BY_RATE_ALL, BY_SAMPLES, BY_STAMPS, WAYS };
static const char *const way_text[WAYS] = {
	"the time per step that each line prints",          "the growth of the running time",
	"tokens per step over the printed rate per device", "tokens per step over the printed rate",
	"sequences per step over the printed rate",         "the time stamps of the lines",
};

static double time_by(const struct fo_log *log, size_t i, enum way w)
{
	switch (w) {
	case BY_SECONDS: return fo_log_at(log, i, FO_LOG_SECONDS);
	case BY_TOTAL: return growth(log, i, FO_LOG_TOTAL);
	case BY_RATE: return fo_log_tokens(log, i) / (fo_log_at(log, i, FO_LOG_RATE) * fo_log_devices(log, i));
	case BY_RATE_ALL: return fo_log_tokens(log, i) / fo_log_at(log, i, FO_LOG_RATE_ALL);
	case BY_SAMPLES: return samples_told(log, i) / fo_log_at(log, i, FO_LOG_SAMPLES_RATE);
	case BY_STAMPS: return growth(log, i, FO_LOG_AT);
	case WAYS: break;
	}
	return NAN;
}

/* First lines of a part that are left out: those of its first ten steps, of a short one those of a fifth. */
static size_t warm_lines(const struct fo_log *log, const struct fo_log_part *p)
{
	if (p->from >= p->to) /* all of its steps were done again */
		return 0;
	double from = step_of(log, p->from) - log->interval + 1, steps = step_of(log, p->to - 1) - from + 1;
	double warm = steps >= SHORT ? WARM_STEPS : fmax(floor(steps / 5), 1);
	size_t n = 0;
	while (p->from + n + 1 < p->to && step_of(log, p->from + n) < from + warm)
		n++;
	return n;
}

/* Whole seconds say little of a step, and nothing of one that is shorter. */
static bool is_whole(const struct fo_log *log, enum fo_log_field f)
{
	for (size_t i = 0; i < log->steps; i++)
		if (fo_log_at(log, i, f) != floor(fo_log_at(log, i, f)) && !isnan(fo_log_at(log, i, f)))
			return false;
	return true;
}

/* One time for the lines behind `from` up to `to`: the growth over all of them. */
static void fill_window(struct fo_log *log, size_t from, size_t to, enum fo_log_field f)
{
	double s = (fo_log_at(log, to, f) - fo_log_at(log, from, f)) / (step_of(log, to) - step_of(log, from));
	for (size_t i = from + 1; i <= to; i++)
		log->seconds[i] = s > 0 ? s : NAN;
}

/* Windows of as many lines as make WINDOW seconds; the last one takes what is left. */
static void fill_windows(struct fo_log *log, size_t from, size_t last, enum fo_log_field f)
{
	static const double WINDOW = 40;
	size_t begin = from;
	for (size_t i = from + 1; i <= last; i++) {
		double at = fo_log_at(log, i, f);
		if (isnan(fo_log_at(log, begin, f)))
			begin = i;
		if (!(at - fo_log_at(log, begin, f) >= WINDOW))
			continue;
		if (i < last && fo_log_at(log, last, f) - fo_log_at(log, i, f) < WINDOW)
			i = last;
		fill_window(log, begin, i, f);
		begin = i;
	}
	if (begin < last)
		fill_window(log, begin, last, f);
}

static void find_coarse_times(struct fo_log *log, enum fo_log_field f)
{
	for (const struct fo_log_part *p = log->part; p < log->part + log->parts; p++) {
		size_t warm = warm_lines(log, p), first = p->from + (warm ? warm - 1 : 0);
		if (p->from >= p->to)
			continue;
		log->seconds[p->from] = NAN;
		fill_windows(log, p->from, first, f);
		fill_windows(log, first, p->to - 1, f);
	}
}

/* True: from whole seconds. */
static bool find_times(struct fo_log *log)
{
	log->seconds = fo_xmalloc((log->steps + 1) * sizeof *log->seconds);
	for (int w = 0; w < WAYS; w++) {
		size_t n = 0;
		for (size_t i = 0; i < log->steps; i++) {
			double s = time_by(log, i, (enum way)w);
			log->seconds[i] = s > 0 && isfinite(s) ? s : NAN;
			n += !isnan(log->seconds[i]);
		}
		if (!n)
			continue;
		log->timed_by = way_text[w];
		log->one_step = log->kind.span == FO_LOG_ONE_STEP && log->interval > 1 && w != BY_TOTAL &&
				w != BY_STAMPS;
		enum fo_log_field f = w == BY_STAMPS ? FO_LOG_AT : FO_LOG_TOTAL;
		bool coarse = (w == BY_TOTAL || w == BY_STAMPS) && is_whole(log, f);
		log->stamped = coarse || w == BY_STAMPS;
		if (coarse)
			find_coarse_times(log, f);
		return coarse;
	}
	return false;
}

/* ---- figures ---- */

size_t fo_log_counted(const struct fo_log *log, size_t *line)
{
	size_t n = 0;
	for (size_t p = 0; p < log->parts; p++)
		for (size_t i = log->part[p].from + warm_lines(log, &log->part[p]); i < log->part[p].to; i++)
			line[n++] = i;
	return n;
}

struct fo_log_spread fo_log_spread_of(double *v, size_t n)
{
	struct fo_spread s = fo_stats_select_spread(v, n);
	return (struct fo_log_spread){ s.low, s.median, s.high };
}

static struct fo_log_spread spread_of_times(const struct fo_log *log)
{
	double *v = fo_xmalloc((log->steps + 1) * sizeof *v);
	size_t n = 0;
	for (const struct fo_log_part *p = log->part; p < log->part + log->parts; p++)
		for (size_t i = p->from + warm_lines(log, p); i < p->to; i++)
			if (isfinite(log->seconds[i]))
				v[n++] = log->seconds[i];
	struct fo_log_spread s = fo_log_spread_of(v, n);
	free(v);
	return s;
}

double fo_log_median(const struct fo_log *log, enum fo_log_field f)
{
	if (!log->steps || !log->lines[0].cell[f])
		return NAN;
	double *v = fo_xmalloc((log->steps + 1) * sizeof *v);
	size_t n = 0;
	for (const struct fo_log_part *p = log->part; p < log->part + log->parts; p++)
		for (size_t i = p->from + warm_lines(log, p); i < p->to; i++)
			if (isfinite(fo_log_at(log, i, f)))
				v[n++] = fo_log_at(log, i, f);
	double median = fo_stats_select(v, n, 0.5);
	free(v);
	return median;
}

double fo_log_last(const struct fo_log *log, enum fo_log_field f)
{
	for (size_t i = log->steps && log->lines[0].cell[f] ? log->steps : 0; i-- > 0;)
		if (!isnan(fo_log_at(log, i, f)))
			return fo_log_at(log, i, f);
	return NAN;
}

double fo_log_time_at(const struct fo_log *log, size_t i)
{
	double s = known(log->seconds[i], log->time.median), steps = fo_log_steps_at(log, i);
	if (log->one_step)
		return s + (steps - 1) * log->time.median;
	if (counts_again(log, i))
		return 0;
	return s * (i && counts_again(log, i - 1) ? log->interval : steps);
}

static void add_phase(struct fo_log *log, const size_t *line, size_t from, size_t to)
{
	double *v = fo_xmalloc((to - from) * sizeof *v);
	for (size_t i = from; i < to; i++)
		v[i - from] = log->seconds[line[i]];
	struct fo_log_phase p = { .first = (int64_t)(step_of(log, line[from]) - fo_log_steps_at(log, line[from]) + 1),
				  .last = (int64_t)step_of(log, line[to - 1]),
				  .times = fo_stats_select(v, to - from, 0.5) / log->time.median,
				  .at = stamp_of(log, line[from]) };
	free(v);
	log->phase = fo_xrealloc(log->phase, (log->phases + 1) * sizeof *log->phase);
	log->phase[log->phases++] = p;
}

/* Stretches of slow lines: several in a row, or one that is slow beyond doubt. */
static void find_phases(struct fo_log *log)
{
	size_t *line = fo_xmalloc((log->steps + 1) * sizeof *line), n = fo_log_counted(log, line);
	double one = log->interval > 1 ? MEAN_SLOW : LINE_SLOW;
	double low = log->interval > 1 ? MEAN_SLOW : PHASE_SLOW;
	for (size_t i = 0, end; i < n && log->phases < PHASES_MAX; i = end) {
		double most = 0;
		for (end = i; end < n && log->seconds[line[end]] > low * log->time.median; end++)
			most = fmax(most, log->seconds[line[end]]);
		if (end - i >= PHASE_MIN || most > one * log->time.median)
			add_phase(log, line, i, end);
		end += end == i;
	}
	free(line);
}

static void find_losses(struct fo_log *log)
{
	for (size_t p = 1; p < log->parts; p++) {
		struct fo_log_part *x = &log->part[p];
		double first = known(log->seconds[x->from], log->time.median);
		first = log->one_step ? fo_log_time_at(log, x->from) : first * fo_log_steps_at(log, x->from);
		double idle = x->begin - first - log->part[p - 1].end;
		if (!isnan(idle))
			x->lost = fmax(idle, 0) + (double)x->again * log->interval * known(log->time.median, 0);
	}
}

void fo_log_speed(struct fo_log *log)
{
	choose_kind(log);
	if (!log->kinds)
		return;
	if (has_micro(&log->lines[0]))
		join_micro(&log->lines[0]);
	log->numbered = told_by(&log->lines[0], FO_LOG_STEP) > 0;
	make_sequence(log);
	find_interval(log);
	if (log->steps)
		split_gaps(log);
	bool coarse = find_times(log);
	if (!log->steps)
		return;
	for (size_t p = 0; p < log->parts; p++)
		log->left_out += warm_lines(log, &log->part[p]);
	log->time = spread_of_times(log);
	if (!isnan(log->time.median) && !coarse)
		find_phases(log);
	find_losses(log);
}
