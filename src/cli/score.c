/* flatout score: how far predictions are from published runs. */
#include "cli/cli.h"

#include "base/fs.h"
#include "hw/catalogue.h"
#include "cli/score.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct score {
	const char *out, *devices_file, *machine, *json;
	bool fit, alone, constants, force;
};

static const struct fo_opt rows[] = {
	FO_OPT_OUTPUT(struct score, out, "score.out", "FILE", NULL,
		      "CSV: of each row what was measured, predicted and inferred", FO_OUTPUT_SCORE),
	FO_OPT_YES_NO(struct score, fit, "score.fit", "yes",
		      "fit constants to rows of other models; no: constants as physics and data sheets give them"),
	FO_OPT_BOOL(struct score, alone, "score.alone", "no",
		    "fit to this table alone, not to Flatout's own copy of published runs too"),
	FO_OPT_BOOL(struct score, constants, "score.constants", "no", "the fitted constants with bounds and origin"),
	FO_OPT_PATH(struct score, machine, "score.machine", "PROFILE", "",
		    "of a table of this machine's runs: the profile of all rows; empty: the one that each names"),
	FO_OPT_PATH(struct score, devices_file, "score.devices-file", "PATH", NULL,
		    "CSV with own devices, as data/devices.csv"),
	FO_CLI_OUTPUT_ROWS(struct score, "score", "JSON on standard output")
};

static void sum_json(struct fo_json *j, const char *key, const struct fo_score_sum *s)
{
	fo_json_object(j, key);
	if (!key)
		fo_json_text(j, "group", s->name);
	fo_json_put(j, FO_INT("rows", s->rows), FO_REAL("coverage", s->rows ? (double)s->covered / s->rows : NAN),
		    FO_REAL("mean_abs_error", s->mean), FO_REAL("median_abs_error", s->median),
		    FO_REAL("bias", s->bias), FO_REAL("p90", s->p90), FO_REAL("interval_coverage", s->inside),
		    FO_REAL("interval_half_width", s->width), FO_REAL("guess_mean_abs_error", s->guess),
		    FO_REAL("rank_correlation", s->rank), FO_REAL("regret", s->regret),
		    FO_REAL("regret_random", s->regret_random), FO_INT("regret_sets", s->sets));
	fo_json_record(j, "publisher_unseen", FO_REAL("mean_abs_error", s->stranger_mean),
		       FO_REAL("median_abs_error", s->stranger_median),
		       FO_REAL("interval_coverage", s->stranger_inside),
		       FO_REAL("interval_half_width", s->stranger_width));
	fo_json_record(j, "memory", FO_INT("rows", s->memory_rows), FO_REAL("mean_abs_error", s->memory),
		       FO_REAL("median_abs_error", s->memory_median),
		       /* No overhead is fitted to a publisher: the same for all. */
		       FO_REAL("pooled_mean_abs_error", s->memory));
	fo_json_close(j);
}

static void write_json(const struct fo_score *s, struct fo_json *j)
{
	sum_json(j, "overall", &s->overall);
	sum_json(j, "experts", &s->moe);
	fo_json_array(j, "groups");
	for (int i = 0; i < s->groups; i++)
		sum_json(j, NULL, &s->group[i]);
	fo_json_close(j);
}

static const char *percent(struct fo_doc *d, double v) { return isnan(v) ? "-" : fo_doc_printf(d, "%.1f", 100 * v); }

static void row(struct fo_doc *d, const struct fo_score_sum *s)
{
	if (!s->rows)
		return;
	fo_doc_row(d, s->name, fo_doc_count(d, s->rows), percent(d, (double)s->covered / s->rows), percent(d, s->mean),
		   percent(d, s->median), percent(d, s->bias), percent(d, s->p90), percent(d, s->guess),
		   percent(d, s->inside), percent(d, s->width));
}
static void more(struct fo_doc *d, const struct fo_score_sum *s)
{
	if (!s->rows)
		return;
	fo_doc_row(d, s->name, percent(d, s->stranger_mean), percent(d, s->stranger_median),
		   percent(d, s->stranger_inside), percent(d, s->stranger_width),
		   isnan(s->rank) ? "-" : fo_doc_printf(d, "%.2f", s->rank), percent(d, s->regret),
		   percent(d, s->regret_random), fo_doc_count(d, s->memory_rows), percent(d, s->memory),
		   percent(d, s->memory_median));
}

static const char *reason(const struct fo_score_row *r)
{
	const char *why = r->out ? r->out : r->refused;
	return why ? why : "not predicted";
}

/* Rows that were left out, by reason; a reason of few rows names them. */
static void say_left(struct fo_doc *d, const struct fo_score_table *t)
{
	enum { NAMED = 3 };
	int left = 0;
	for (int i = 0; i < t->rows; i++)
		left += !t->row[i].covered;
	if (!left)
		return;
	fo_doc_para(d, "%d of %d rows were left out (--out writes why, row by row):", left, t->rows);
	for (int i = 0; i < t->rows; i++) {
		const char *why = reason(&t->row[i]);
		int before = 0, all = 0;
		for (int k = 0; !t->row[i].covered && k < t->rows; k++)
			if (!t->row[k].covered && !strcmp(reason(&t->row[k]), why))
				before += k < i, all++;
		if (!all || before)
			continue;
		const char *lines = "";
		for (int k = i; all <= NAMED && k < t->rows; k++)
			if (!t->row[k].covered && !strcmp(reason(&t->row[k]), why))
				lines = fo_doc_printf(d, "%s%s%d", lines, *lines ? ", " : ": line ", t->row[k].line);
		fo_doc_item(d, "%d: %s%s", all, why, lines);
	}
}

static void say(struct fo_doc *d, const struct fo_score *s, const struct fo_score_table *t, const char *path, bool fit)
{
	fo_doc_title(d, "Predictions of %s", path);
	fo_doc_table(d, FO_DRAW_FITTED,
		     fit ? "Tokens/s, predicted by a fit without any row of the same model, in %"
			 : "Tokens/s, predicted by constants that no run is fitted to, in %",
		     "lrrrrrrrrr", "group", "rows", "covered", "mean", "median", "bias", "p90", "guess", "inside",
		     "width");
	row(d, &s->overall);
	for (int i = 0; i < s->groups; i++)
		row(d, &s->group[i]);
	row(d, &s->moe);
	fo_doc_table(d, FO_DRAW_FITTED,
		     fit ? "Without any row of the publisher; order; peak memory, in %"
			 : "Of an unknown publisher; order; peak memory, in %",
		     "lrrrrrrrrrr", "group", "mean", "median", "inside", "width", "rank", "regret", "random", "peaks",
		     "mean", "median");
	more(d, &s->overall);
	for (int i = 0; i < s->groups; i++)
		more(d, &s->group[i]);
	more(d, &s->moe);
	say_left(d, t);
	fo_doc_para(
		d, "guess: a constant MFU for each GPU and number type, the median of other models. inside: rows in "
		   "their 80 %% interval, whose half-width is width in the median. rank: correlation of ranks. regret: "
		   "best measured over picked, less 1, among at least three configurations of the same work; random: a "
		   "random pick's. peaks: rows that give a peak of memory; its error as the "
		   "framework's logs count it, in the mean and in the median.");
}

/* Runs of this machine: seconds of a step, predicted from its profile. */
static void say_machine(struct fo_doc *d, const struct fo_score *s, const struct fo_score_table *t, const char *path)
{
	fo_doc_title(d, "Predictions of %s", path);
	fo_doc_table(d, FO_DRAW_FITTED, "Seconds of a step, predicted from a profile without any of these runs, in %",
		     "lrrrrrr", "group", "rows", "covered", "mean", "median", "bias", "p90");
	for (int i = -1; i < s->groups; i++) {
		const struct fo_score_sum *x = i < 0 ? &s->overall : &s->group[i];
		fo_doc_row(d, x->name, fo_doc_count(d, x->rows), percent(d, (double)x->covered / x->rows),
			   percent(d, x->mean), percent(d, x->median), percent(d, x->bias), percent(d, x->p90));
	}
	fo_doc_table(d, FO_DRAW_FITTED, "Runs", "lrlrrr", "group", "ranks", "run", "measured s", "predicted s",
		     "error");
	for (int i = 0; i < t->rows; i++) {
		const struct fo_score_row *r = &t->row[i];
		if (r->covered)
			fo_doc_row(d, r->group, fo_doc_printf(d, "%.0f", r->ranks), r->model,
				   fo_doc_printf(d, "%.4g", 1 / r->tokens_s),
				   fo_doc_printf(d, "%.4g", 1 / r->predicted),
				   fo_doc_printf(d, "%+.1f", 100 * (r->tokens_s / r->predicted - 1)));
	}
	say_left(d, t);
}

static void say_constants(struct fo_doc *d, const struct fo_score *s, bool fit)
{
	fo_doc_table(d, FO_DRAW_FITTED, fit ? "Constants, fitted to all rows" : "Constants, not fitted", "lrrrrl",
		     "constant", "value", "start", "low", "high", "unit");
	for (int i = 0; i < fo_predict_constant_count; i++) {
		const struct fo_predict_constant_row *c = &fo_predict_constant_row[i];
		fo_doc_row(d, c->id, fo_doc_printf(d, "%.4g", s->x[i]), fo_doc_printf(d, "%g", c->start),
			   fo_doc_printf(d, "%g", c->low), fo_doc_printf(d, "%g", c->high), c->unit);
	}
	fo_doc_table(d, FO_DRAW_FITTED, "Publishers' factors on speed", "lr", "publisher", "factor");
	for (int i = 0; i < s->habits; i++)
		fo_doc_row(d, s->habit_of[i], fo_doc_printf(d, "%.3f", s->habit[i]));
}

static fo_status write_rows(const struct fo_score_table *t, const char *path)
{
	struct fo_str text = { 0 };
	fo_score_rows_csv(t, &text);
	fo_status st = fo_fs_write_atomic(path, text.data, text.len);
	fo_str_fini(&text);
	return st;
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct score *in = call->in;
	struct fo_catalogue c;
	struct fo_score_table table = { 0 }, own = { 0 };
	struct fo_score *s = NULL;
	if (call->argc < 2)
		return fo_hint(fo_fail(FO_EARG, "which table? none is named"), "flatout score FILE.csv");
	FO_TRY(fo_catalogue_load(&c, in->devices_file));
	fo_status st = fo_score_read(call->argv[1], &c, &table);
	bool here = st == FO_OK && !strcmp(table.layout, "machine");
	if (st == FO_OK && !here && *in->machine)
		st = fo_fail(FO_EARG,
			     "--machine is of a table of this machine's runs: '%s' has no columns options, profile, "
			     "step_seconds",
			     fo_cli_seen(call->argv[1]));
	if (st == FO_OK && !here && !in->alone)
		st = fo_score_read_own(&c, &own);
	if (here) {
		s = fo_xmalloc(sizeof *s);
		st = fo_cli_score_machine(&table, call->argv[1], in->machine, s);
	} else if (st == FO_OK) {
		s = fo_xmalloc(sizeof *s);
		struct fo_score_options o = { .fit = in->fit };
		st = fo_score_of(&table, own.rows ? &own : NULL, &o, s);
		if (st == FO_EARG)
			st = fo_hint(st, "--out writes why, row by row");
	}
	if (s && in->out && table.rows) { /* also when nothing could be predicted: it says why */
		fo_status wrote = write_rows(&table, in->out);
		st = st == FO_OK ? wrote : st;
	}
	if (st == FO_OK && call->json)
		write_json(s, call->json);
	else if (here && st == FO_OK)
		say_machine(call->doc, s, &table, call->argv[1]);
	else if (st == FO_OK) {
		say(call->doc, s, &table, call->argv[1], in->fit);
		if (in->constants)
			say_constants(call->doc, s, in->fit);
	}
	free(s);
	fo_score_fini(&own);
	fo_score_fini(&table);
	fo_catalogue_fini(&c);
	return st;
}

const struct fo_command fo_cmd_score = {
	.name = "score",
	.group = "plan",
	.usage = "flatout score FILE.csv [--out FILE] [--fit=no] [--alone] [--constants] [--json]",
	.summary = "how far predictions are from published runs",
	.text = "Predicts every run of a table by constants that are fitted without any run of the same model, and "
		"again without any run of the same publisher, and sums up the errors beside those of a constant MFU. "
		"The table has a row for each run and columns such as model, gpu, gpus, seq_len, tp, pp, micro_batch, "
		"tokens_per_s_per_gpu; those that are missing are inferred, and --out says what was. The tables of "
		"vTrain and of SimuMax are read, too. docs/accuracy.md lists the columns and the rules.\n\n"
		"  flatout score data/published_runs.csv\n"
		"  flatout score runs.csv --out=rows.csv --json",
	.opts = rows,
	.act = run,
	.size = sizeof(struct score),
	.most = 1,
};
