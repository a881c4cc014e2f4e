#include "cli/goodput.h"

#include <math.h>
#include <stdlib.h>

/* More than this cannot be meant: each node fails every minute, a save or a restart takes a month. */
#define MOST_FAILURES 1.5e6
#define MOST_SECONDS 2.6e6

static fo_status read(const char *text, const char *option, struct fo_range usual, double most, const char *example,
		      struct fo_range *out)
{
	*out = usual;
	if (!text)
		return FO_OK;
	FO_TRY(fo_range_parse(text, option, out));
	if (out->high <= most)
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG, "%s is '%s', and %.15g is the most that it may be", option, text, most),
		       "%s=%s", option, example);
}

const char *fo_cli_goodput_named(const struct fo_cli_goodput *in)
{
	const struct {
		const char *option;
		bool given;
	} one[] = { { "--failures", in->failures != NULL },
		    { "--save", in->save != NULL },
		    { "--restart", in->restart != NULL },
		    { "--checkpoint-every", in->every > 0 } };
	for (size_t i = 0; i < sizeof one / sizeof *one; i++)
		if (one[i].given)
			return one[i].option;
	return NULL;
}

fo_status fo_cli_goodput_read(const struct fo_cli_goodput *in, struct fo_goodput_in *out)
{
	*out = (struct fo_goodput_in){ .interval_s = in->every > 0 ? in->every : 0, .days = in->days, .seed = 1 };
	FO_TRY(read(in->failures, "--failures", FO_GOODPUT_FAILURES, MOST_FAILURES, "4", &out->failures));
	FO_TRY(read(in->save, "--save", FO_GOODPUT_SAVE_S, MOST_SECONDS, "20", &out->save_s));
	return read(in->restart, "--restart", FO_GOODPUT_RESTART_S, MOST_SECONDS, "600", &out->restart_s);
}

const char *fo_cli_goodput_time(struct fo_doc *d, double s)
{
	if (isinf(s))
		return "never";
	if (s >= 2 * 86400)
		return fo_doc_printf(d, "%.3g days", s / 86400);
	if (s >= 2 * 3600)
		return fo_doc_printf(d, "%.1f h", s / 3600);
	return s >= 120 ? fo_doc_printf(d, "%.0f min", s / 60) : fo_doc_printf(d, "%.3g s", s);
}

static const char *range(struct fo_doc *d, struct fo_range r)
{
	return r.low < r.high ? fo_doc_printf(d, "%.4g to %.4g", r.low, r.high) : fo_doc_printf(d, "%.4g", r.low);
}

void fo_cli_goodput_say(struct fo_doc *d, const struct fo_cli_goodput *given, const struct fo_goodput_in *in)
{
	fo_doc_line(d, "failures", "%s of 1,000 nodes of eight devices in a day%s", range(d, in->failures),
		    given->failures
			    ? ""
			    : " (published: Meta's A100 clusters, 2024; Llama 3's were 3.8; --failures says yours)");
	const char *save = given->save ? "" : " (a guess: --save)";
	const char *restart = given->restart ? "" : " (a guess: --restart)";
	fo_doc_line(d, "saves", "a checkpoint stops training for %s s%s, a restart takes %s s%s", range(d, in->save_s),
		    save, range(d, in->restart_s), restart);
}

void fo_cli_goodput_json(struct fo_json *j, const struct fo_cli_goodput *given, const struct fo_goodput_in *in)
{
	const struct {
		const char *key;
		struct fo_range r;
		bool given;
	} one[] = { { "failures_per_1000_node_days", in->failures, given->failures != NULL },
		    { "save_seconds", in->save_s, given->save != NULL },
		    { "restart_seconds", in->restart_s, given->restart != NULL } };
	fo_json_object(j, "goodput_from");
	for (size_t i = 0; i < sizeof one / sizeof *one; i++)
		fo_json_record(j, one[i].key, FO_REAL("low", one[i].r.low), FO_REAL("high", one[i].r.high),
			       FO_BOOL("given", one[i].given));
	fo_json_put(j, FO_REAL("days", in->days),
		    FO_REAL("checkpoint_every_seconds", in->interval_s > 0 ? in->interval_s : NAN));
	fo_json_close(j);
}

/* ---- the curve ---- */

/* Times of the best interval; the best itself is in the middle. */
static const double around[] = { 1 / 16.0, 1 / 8.0, 1 / 4.0, 1 / 2.0, 1, 2, 4, 8, 16 };
enum { AROUND = sizeof around / sizeof *around, CURVE = AROUND + 1 };

static int by_interval(const void *a, const void *b)
{
	const struct fo_goodput *x = a, *y = b;
	return (x->interval_s > y->interval_s) - (x->interval_s < y->interval_s);
}

/* Ascending by interval; their number. *best: the place of the best, *given: of the one that was given, -1: none. */
static int curve_of(const struct fo_goodput_in *in, struct fo_goodput *out, int *best, int *given)
{
	struct fo_goodput_in one = *in;
	struct fo_goodput first;
	int n = 0;
	one.interval_s = 0;
	fo_goodput_of(&one, &first);
	const double at = first.interval_s;
	for (int i = 0; i < AROUND && at > 0 && isfinite(at); i++) {
		one.interval_s = at * around[i];
		fo_goodput_of(&one, &out[n++]);
	}
	if (!n)
		out[n++] = first;
	if (in->interval_s > 0)
		fo_goodput_of(in, &out[n++]);
	qsort(out, (size_t)n, sizeof *out, by_interval);
	*best = 0;
	*given = -1;
	for (int i = 0; i < n; i++) {
		*best = out[i].interval_s == at ? i : *best;
		*given = in->interval_s > 0 && out[i].interval_s == in->interval_s ? i : *given;
	}
	return n;
}

void fo_cli_goodput_picture(struct fo_doc *d, const char *title, const char *x_name, const double *x,
			    const struct fo_goodput *g, size_t n)
{
	struct fo_draw_series *s = fo_doc_alloc(d, 3 * sizeof *s);
	double *at[4];
	for (int k = 0; k < 4; k++)
		at[k] = fo_doc_alloc(d, (n + 1) * sizeof **at);
	for (size_t i = 0; i < n; i++) {
		const double v[] = { x[i], g[i].share, g[i].drawn.low, g[i].drawn.high };
		for (int k = 0; k < 4; k++)
			at[k][i] = v[k];
	}
	for (int k = 0; k < 3; k++)
		s[k] = (struct fo_draw_series){ .name = k ? NULL : "at the middles of the ranges",
						.x = at[0],
						.y = at[k + 1],
						.n = n,
						.faint = k > 0,
						.marks = !k };
	fo_doc_lines(d,
		     &(struct fo_draw_lines){ .title = title,
					      .desc = "Share of the time that counts; pale lines: 80 % of drawn runs",
					      .x_name = x_name,
					      .y_name = "share of the time",
					      .y_unit = FO_DRAW_SHARE,
					      .x_log = true,
					      .y_lo = 0,
					      .y_hi = 1,
					      .series = s,
					      .n = 3 });
}

static void curve_picture(struct fo_doc *d, const struct fo_goodput *g, int n)
{
	double x[CURVE];
	for (int i = 0; i < n; i++)
		x[i] = g[i].interval_s;
	fo_doc_only(d, FO_DOC_PAGE);
	fo_cli_goodput_picture(d, "Goodput over the time between checkpoints",
			       "seconds of training between checkpoints", x, g, (size_t)n);
	fo_doc_only(d, FO_DOC_BOTH);
}

void fo_cli_goodput_curve(struct fo_doc *d, const struct fo_goodput_in *in, double tokens_s)
{
	struct fo_goodput g[CURVE];
	int best, given;
	const int n = curve_of(in, g, &best, &given);
	const struct fo_goodput *x = &g[given >= 0 ? given : best];
	fo_doc_line(d, "goodput",
		    "%.1f %% of the time counts (80 %% of drawn runs of %.3g days: %.1f to %.1f %%): %s of all devices",
		    100 * x->share, in->days, 100 * x->drawn.low, 100 * x->drawn.high,
		    fo_doc_si(d, tokens_s * x->share, "tok/s"));
	if (isinf(x->failure_s))
		fo_doc_line(d, "between", "failures: none are assumed");
	else
		fo_doc_line(d, "between", "failures of all devices: %s; checkpoints: %s%s",
			    fo_cli_goodput_time(d, x->failure_s), fo_cli_goodput_time(d, x->interval_s),
			    given >= 0 ? fo_doc_printf(d, ", and the best is %s",
						       fo_cli_goodput_time(d, g[best].interval_s))
				       : ", which is the best");
	if (n < 2)
		return;
	curve_picture(d, g, n);
	fo_doc_table(d, FO_DRAW_FITTED, NULL, "lrrrr", "checkpoint every", "good, %", "80 %", "saves, %",
		     "failures, %");
	for (int i = 0; i < n; i++) {
		const char *mark = i == best ? " (best)" : "";
		mark = i == given ? " (given)" : mark;
		fo_doc_row(d, fo_doc_printf(d, "%s%s", fo_cli_goodput_time(d, g[i].interval_s), mark),
			   fo_doc_printf(d, "%.1f", 100 * g[i].share),
			   fo_doc_printf(d, "%.1f to %.1f", 100 * g[i].drawn.low, 100 * g[i].drawn.high),
			   fo_doc_printf(d, "%.1f", 100 * g[i].saving), fo_doc_printf(d, "%.1f", 100 * g[i].failing));
	}
}

void fo_cli_goodput_curve_json(struct fo_json *j, const struct fo_goodput_in *in)
{
	struct fo_goodput g[CURVE];
	int best, given;
	const int n = curve_of(in, g, &best, &given);
	fo_json_array(j, "goodput");
	for (int i = 0; i < n; i++)
		fo_json_record(j, NULL, FO_REAL("checkpoint_every_seconds", g[i].interval_s),
			       FO_REAL("low", g[i].drawn.low), FO_REAL("mid", g[i].share),
			       FO_REAL("high", g[i].drawn.high), FO_REAL("saving_share", g[i].saving),
			       FO_REAL("failing_share", g[i].failing),
			       FO_REAL("seconds_between_failures", g[i].failure_s), FO_BOOL("best", i == best),
			       FO_BOOL("given", i == given));
	fo_json_close(j);
}
