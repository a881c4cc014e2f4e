/* Runs of Flatout on a machine that was measured (flatout calibrate): each is predicted from its options and a profile by
 * the simulator, as flatout predict does. No constant is fitted to them, and none of the others' is used. */
#include "base/mem.h"
#include "pass/pass.h"
#include "program/run.h"
#include "score/score_int.h"
#include "sim/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 256 };

static const char *field(const struct fo_csv *csv, const struct fo_csv_row *at, const char *name)
{
	for (int i = 0; i < csv->columns; i++)
		if (!strcmp(csv->head.field[i], name))
			return at->field[i];
	return "";
}

/* A path beside the table. */
static const char *beside(struct fo_arena *a, const char *table, const char *path)
{
	const char *end = strrchr(table, '/');
	if (*path == '/' || !end)
		return path;
	return fo_arena_printf(a, "%.*s/%s", (int)(end - table), table, path);
}

static fo_status read_options(struct fo_arena *a, const char *text, struct fo_opt_set *s, const struct fo_run *run)
{
	char *words = fo_arena_strdup(a, text), *word[WORDS + 1] = { words }, *next = NULL;
	int n = 1;
	for (char *w = strtok_r(words, " ", &next); w; w = strtok_r(NULL, " ", &next)) {
		if (n == WORDS)
			return fo_fail(FO_EARG, "more than %d options", WORDS - 1);
		word[n++] = w;
	}
	fo_opt_read_args(s, &n, word);
	if (n > 1)
		fo_opt_problem(s, "'%.60s' is no option of flatout train", word[1]);
	return fo_run_check(s, run);
}

/* The step of all ranks; *tokens: of it. */
static fo_status simulate(const struct fo_run *run, const struct fo_limits *l, struct fo_interval *step_s,
			  double *tokens)
{
	struct fo_program p;
	struct fo_rates rates;
	struct fo_sim_ranks x = { 0 };
	const int64_t ranks = run->ranks;
	FO_TRY(fo_rates_init(&rates, l, run->threads > ranks ? (int)(run->threads / ranks) : 1));
	FO_TRY(fo_pass_build_run(&p, run));
	*tokens = (double)fo_program_step_tokens(&p);
	const struct fo_link_rates links = { .limits = l,
					     .over = FO_LINK_THREADS,
					     .copy_byte_s = rates.copy_byte_s,
					     .byte_s = run->link_gbps * 1e9 / 8,
					     .latency_s = run->link_us * 1e-6 };
	fo_status st = fo_sim_ranks_init(&x, &p);
	x.apart = fo_run_is_paced(run);
	if (st == FO_OK)
		st = fo_sim_ranks_step(&x, &rates, &links, fo_rates_threads(l), -1);
	*step_s = x.step_s;
	fo_sim_ranks_fini(&x);
	fo_program_fini(&p);
	return st;
}

static fo_status predict(struct fo_arena *a, const char *options, const char *profile, struct fo_interval *step_s,
			 struct fo_run *run, double *tokens)
{
	struct fo_opt_set s;
	struct fo_limits l;
	fo_opt_init(&s, fo_run_options, run);
	fo_status st = read_options(a, options, &s, run);
	if (st == FO_OK && (st = fo_limits_read(profile, &l)) == FO_OK) {
		st = simulate(run, &l, step_s, tokens);
		fo_limits_fini(&l);
	}
	fo_opt_fini(&s);
	return st;
}

void fo_score_here(struct fo_score_table *t, const char *where, const struct fo_csv *csv, const struct fo_csv_row *at,
		   struct fo_score_row *x)
{
	struct fo_run run;
	struct fo_interval step;
	double tokens, measured = strtod(field(csv, at, "step_seconds"), NULL);
	x->inferred = x->model = x->family = x->gpu = x->precision = "";
	x->framework = "Flatout";
	x->job.style = FO_PREDICT_STYLE_FLATOUT;
	x->group = *field(csv, at, "group") ? field(csv, at, "group") : "here";
	x->bytes = x->guess = x->memory = x->memory_pooled = NAN;
	if (!(measured > 0) || !isfinite(measured)) {
		x->out = "no step time";
		return;
	}
	x->scope = true;
	fo_status st = predict(&t->arena, field(csv, at, "options"),
			       beside(&t->arena, where, field(csv, at, "profile")), &step, &run, &tokens);
	if (st != FO_OK) {
		x->refused = fo_arena_strdup(&t->arena, fo_err_text());
		fo_err_clear();
		return;
	}
	x->covered = true;
	x->layout.devices = (double)run.ranks;
	x->tokens_s = tokens / measured / x->layout.devices;
	x->predicted = x->stranger = tokens / step.mid / x->layout.devices;
	x->half_width = x->stranger_width = fmax(log(step.high / step.mid), log(step.mid / step.low));
}
