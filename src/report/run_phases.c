/* The slow phases of a run with what the log says of them, and the time between its steps. */
#include "report/run_int.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const fo_report_gap_name[FO_GAP_COUNT] = { "evaluation", "checkpoints", "stopped or starting", "other" };

/* ---- running medians ---- */

/* The place of v among the first n of `sorted`, which ascend. */
static int64_t place(const double *sorted, int64_t n, double v)
{
	int64_t lo = 0, hi = n;
	while (lo < hi) {
		int64_t mid = (lo + hi) / 2;
		if (sorted[mid] < v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static double middle(const double *sorted, int64_t n)
{
	if (!n)
		return NAN;
	return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* The window's values are kept sorted: each step removes one and inserts one. */
void fo_running_median(const double *v, int64_t n, int64_t window, double *out)
{
	double *sorted = fo_xmalloc((size_t)(window + 1) * sizeof *sorted);
	int64_t have = 0, half = window / 2;
	for (int64_t i = -half; i < n; i++) {
		int64_t in = i + half, gone = i - half - 1;
		if (gone >= 0 && isfinite(v[gone])) {
			int64_t k = place(sorted, have, v[gone]);
			memmove(sorted + k, sorted + k + 1, (size_t)(have-- - k - 1) * sizeof *sorted);
		}
		if (in < n && isfinite(v[in])) {
			int64_t k = place(sorted, have, v[in]);
			memmove(sorted + k + 1, sorted + k, (size_t)(have++ - k) * sizeof *sorted);
			sorted[k] = v[in];
		}
		if (i >= 0)
			out[i] = isnan(v[i]) ? NAN : middle(sorted, have);
	}
	free(sorted);
}

/* ---- the machine ---- */

/* A sum or, over its weight, a mean of what is known; NaN where nothing is. */
struct known {
	double sum, weight;
};
static void add(struct known *k, double v, double weight)
{
	if (isfinite(v)) {
		k->sum += v * weight;
		k->weight += weight;
	}
}
static double sum_of(const struct known *k) { return k->weight > 0 ? k->sum : NAN; }
static double mean_of(const struct known *k) { return k->sum / k->weight; }

struct fo_state_use fo_machine_over(const struct fo_record *r, int64_t first, int64_t last, bool inside)
{
	struct known steal = { 0 }, clock = { 0 }, load = { 0 }, limited = { 0 }, joules = { 0 }, throttles = { 0 };
	double seconds = 0;
	int64_t before = 0;
	for (int64_t i = 0; i < r->machines; i++) {
		const struct fo_record_machine *m = &r->machine[i];
		const struct fo_state_use *u = &m->use;
		/* The event tells of the steps (before, m->step]; it counts with its share of them that lies inside
		 * (outside). */
		double lo = fmax((double)before, (double)first - 1), hi = fmin((double)m->step, (double)last);
		double steps = (double)m->step - (double)before;
		double part = steps > 0 ? fmax(hi - lo, 0) / steps : (double)(m->step >= first && m->step <= last);
		part = inside ? part : 1 - part;
		before = m->step;
		if (!(u->seconds * part > 0))
			continue;
		seconds += u->seconds * part;
		add(&steal, u->steal, u->seconds * part);
		add(&clock, u->clock_hz, u->seconds * part);
		add(&load, u->load, u->seconds * part);
		add(&limited, u->limited_s, part);
		add(&joules, u->joules, part);
		add(&throttles, u->throttles, 1); /* single events belong to the phase that they touch */
	}
	return (struct fo_state_use){ .seconds = seconds,
				      .steal = mean_of(&steal),
				      .clock_hz = mean_of(&clock),
				      .load = mean_of(&load),
				      .limited_s = sum_of(&limited),
				      .joules = sum_of(&joules),
				      .throttles = sum_of(&throttles) };
}

/* ---- why ---- */

/* Share of the time of rows [from, to] that waited for data; NaN. */
static double waited(const struct fo_record_steps *s, int64_t from, int64_t to)
{
	double data = 0, all = 0;
	for (int64_t i = from; i <= to; i++) {
		double d = fo_record_value(s, FO_STEP_DATA_SECONDS, i),
		       seconds = fo_record_value(s, FO_STEP_SECONDS, i);
		if (isfinite(d) && seconds > 0) {
			data += d;
			all += seconds;
		}
	}
	return all > 0 ? data / all : NAN;
}

static void say(struct fo_str *text, const char *fmt, ...) FO_PRINTF(2, 3);
static void say(struct fo_str *text, const char *fmt, ...)
{
	va_list ap;
	if (text->len)
		fo_str_puts(text, "; ");
	va_start(ap, fmt);
	fo_str_vprintf(text, fmt, ap);
	va_end(ap);
}

static const char *keep(struct fo_report *o, struct fo_str *text)
{
	const char *kept = fo_arena_strdup(&o->arena, text->len ? text->data : "");
	fo_str_fini(text);
	return kept;
}

/* Names what differed in the phase, by the log. A share counts from two points more than elsewhere, a clock from 5 %
 * less: smaller differences come and go from minute to minute. */
static const char *cause_of(struct fo_report *o, const struct fo_report_phase *p, double waited_all)
{
	const struct fo_record *r = o->r;
	struct fo_state_use in = fo_machine_over(r, p->first, p->last, true),
			    out = fo_machine_over(r, p->first, p->last, false);
	struct fo_str text = { 0 };
	int64_t starts = 0;
	double steal = isnan(out.steal) ? 0 : out.steal;
	if (in.steal > steal + 0.02)
		say(&text, "steal %.0f %% (else %.0f %%)", 100 * in.steal, 100 * steal);
	if (in.clock_hz < out.clock_hz * 0.95)
		say(&text, "clock %.2f GHz (else %.2f)", in.clock_hz / 1e9, out.clock_hz / 1e9);
	if (in.throttles > 0)
		say(&text, "%.0f thermal events", in.throttles);
	double limited = in.limited_s / in.seconds, limited_else = out.limited_s / out.seconds;
	if (limited > (isnan(limited_else) ? 0 : limited_else) + 0.02)
		say(&text, "held back by the cgroup %.0f %% of the time", 100 * limited);
	double data = waited(&r->step, fo_record_row(&r->step, p->first), fo_record_row(&r->step, p->last));
	if (data > waited_all + 0.02)
		say(&text, "waited for data %.0f %% (whole run %.0f %%)", 100 * data, 100 * waited_all);
	if (in.load > 1.25 * out.load && r->threads > 0 && in.load > 1.25 * (double)r->threads)
		say(&text, "load %.1f (else %.1f)", in.load, out.load);
	for (int64_t i = 0; i < r->starts; i++)
		starts += r->start[i].step >= p->first - 1 && r->start[i].step <= p->last;
	if (starts)
		say(&text, "a process began");
	return keep(o, &text);
}

/* Evaluations and checkpoints in the phase. They lie between steps and cannot have made steps slow: reported, not
 * blamed. */
static const char *beside(struct fo_report *o, const struct fo_report_phase *p)
{
	const struct fo_record *r = o->r;
	struct fo_str text = { 0 };
	int64_t evals = 0, saves = 0;
	for (int64_t i = 0; i < r->checkpoints; i++)
		saves += r->checkpoint[i].step >= p->first - 1 && r->checkpoint[i].step <= p->last;
	for (int64_t i = 0; i < r->evals; i++)
		evals += r->eval[i].step >= p->first && r->eval[i].step <= p->last;
	if (saves)
		say(&text, "%lld checkpoint%s", (long long)saves, fo_plural(saves));
	if (evals)
		say(&text, "%lld evaluation%s", (long long)evals, fo_plural(evals));
	return keep(o, &text);
}

/* ---- when ---- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void add_phase(struct fo_report *o, int64_t from, int64_t to, size_t *cap)
{
	const struct fo_record_steps *s = &o->r->step;
	double *v = fo_xmalloc((size_t)(to - from + 1) * sizeof *v), lost = 0, sum = 0;
	size_t n = 0;
	for (int64_t i = from; i <= to; i++)
		if (isfinite(o->seconds[i])) {
			v[n++] = o->seconds[i];
			sum += o->seconds[i];
			lost += o->seconds[i] - o->step_s.median;
		}
	qsort(v, n, sizeof *v, by_value);
	fo_array_room(&o->phase, cap, (size_t)o->phases, sizeof *o->phase);
	o->phase[o->phases++] = (struct fo_report_phase){
		s->step[from], s->step[to], n ? v[n / 2] / o->step_s.median : NAN, lost, "", "",
	};
	o->slow_s += sum;
	o->lost_s += lost;
	free(v);
}

enum { CAUSES = 100 }; /* each looks through all events; more phases than that keep theirs to themselves */

void fo_report_find_phases(struct fo_report *o)
{
	int64_t n = o->r->step.n, from = -1, to = -1;
	size_t cap = 0;
	double bound = FO_SLOW_TIMES * o->step_s.median;
	if (!o->seconds || n < FO_SLOW_WINDOW || !(bound > 0))
		return;
	double *smooth = fo_arena_alloc(&o->arena, (size_t)n * sizeof *smooth);
	fo_running_median(o->seconds, n, FO_SLOW_WINDOW, smooth);
	o->seconds_smooth = smooth;
	for (int64_t i = 0; i < n; i++) {
		if (!(smooth[i] > bound))
			continue;
		if (from >= 0 && i - to > FO_SLOW_WINDOW) {
			add_phase(o, from, to, &cap);
			from = -1;
		}
		from = from < 0 ? i : from;
		to = i;
	}
	if (from >= 0)
		add_phase(o, from, to, &cap);
	double waited_all = o->phases ? waited(&o->r->step, 0, n - 1) : NAN;
	for (int i = 0; i < o->phases && i < CAUSES; i++) {
		o->phase[i].cause = cause_of(o, &o->phase[i], waited_all);
		o->phase[i].beside = beside(o, &o->phase[i]);
	}
}

/* ---- between steps ---- */

/* Seconds that training waited for the checkpoint after `step`; 0. */
static double blocked_at(const struct fo_record *r, int64_t step, int64_t *at)
{
	double sum = 0;
	while (*at < r->checkpoints && r->checkpoint[*at].step < step)
		(*at)++;
	for (int64_t i = *at; i < r->checkpoints && r->checkpoint[i].step == step; i++)
		sum += r->checkpoint[i].blocked_seconds > 0 ? r->checkpoint[i].blocked_seconds : 0;
	return sum;
}

#define LOG_TIME 0.001 /* seconds: the log's times are cut to milliseconds */
/* A clock that is slewed gains at most 500 ppm (adjtime): within the hour that a step may take, under two seconds. What
 * is more was set. */
#define CLOCK_SET 2.0
#define CLOCK_SLEW 0.0005

static void count(struct fo_report *o, enum fo_report_gap kind, double seconds)
{
	if (!(seconds > 0))
		return;
	o->gap_s[kind] += seconds;
	o->gaps[kind]++;
}

/* A step's place in time; NaN where the log does not say. */
struct moment {
	double time, clock, seconds;
	int32_t process;
};

/* Seconds between the end of one step and the begin of the next. The system's clock may be set meanwhile, so the steady
 * one is asked within a process; without it a gap less than none shows that, and counts nothing. */
static double gap_between(const struct moment *a, const struct moment *b, int64_t *set)
{
	double by_time = b->time - b->seconds - a->time, by_clock = b->clock - b->seconds - a->clock;
	double slack = 2 * LOG_TIME + CLOCK_SLEW * b->seconds;
	bool steady = a->process == b->process && isfinite(by_clock) && by_clock >= -slack;
	if (!isfinite(a->time))
		return NAN;
	if (steady) {
		*set += fabs(by_time - by_clock) > CLOCK_SET;
		return by_clock;
	}
	if (by_time >= -slack)
		return by_time;
	++*set;
	return 0;
}

void fo_report_find_gaps(struct fo_report *o)
{
	const struct fo_record *r = o->r;
	const struct fo_record_steps *s = &r->step;
	struct moment last = { NAN, NAN, NAN, 0 };
	int64_t save = 0, eval = 0;
	double wall = 0;
	o->wall_s = NAN;
	for (int64_t i = 0; i < s->n; i++) {
		const struct moment now = { fo_record_value(s, FO_STEP_TIME, i), fo_record_value(s, FO_STEP_CLOCK, i),
					    fo_record_value(s, FO_STEP_SECONDS, i), s->start[i] };
		if (!isfinite(now.time) || !isfinite(now.seconds))
			continue;
		double gap = gap_between(&last, &now, &o->clock_set);
		int64_t before = i ? s->step[i - 1] : 0;
		double blocked = fmin(blocked_at(r, before, &save), gap);
		while (eval < r->evals && r->eval[eval].step < before)
			eval++;
		if (isfinite(gap) && now.process != last.process) {
			count(o, FO_GAP_STOPPED, gap);
		} else if (isfinite(gap)) {
			double rest = gap - fmax(blocked, 0);
			count(o, FO_GAP_CHECKPOINT, blocked);
			if (eval < r->evals && r->eval[eval].step == before) {
				count(o, FO_GAP_EVAL, rest);
			} else {
				/* Cut times make gaps of both signs, which cancel in the sum. */
				o->gap_s[FO_GAP_OTHER] += rest;
				o->gaps[FO_GAP_OTHER] += rest > LOG_TIME;
			}
		}
		wall += now.seconds + (isfinite(gap) ? gap : 0);
		o->wall_s = wall;
		last = now;
	}
	o->gap_s[FO_GAP_OTHER] = fmax(o->gap_s[FO_GAP_OTHER], 0);
}
