/* flatout score: runs of this machine, each predicted as flatout predict does it. */
#include "cli/score.h"

#include "cli/predict.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS = 64 };

/* A path in a table is relative to the table's folder. */
static const char *beside(struct fo_arena *a, const char *table, const char *path)
{
	const char *slash = strrchr(table, '/');
	return *path == '/' || !slash ? path : fo_arena_printf(a, "%.*s/%s", (int)(slash - table), table, path);
}

/* Splits "--mesh.tp=2 --run.threads=1"; paths of further profiles are relative to the table, too. 0: too many words. */
static int words_of(struct fo_arena *a, const char *options, const char *table, char *argv[WORDS])
{
	static const char paced[] = "--train.paced=";
	char *rest, *at = strtok_r(fo_arena_strdup(a, options), " ", &rest);
	int n = 0;
	argv[n++] = fo_arena_strdup(a, "predict");
	for (; at && n < WORDS - 1; at = strtok_r(NULL, " ", &rest))
		argv[n++] = !strncmp(at, paced, sizeof paced - 1)
				    ? (char *)fo_arena_printf(a, "%s%s", paced, beside(a, table, at + sizeof paced - 1))
				    : at;
	argv[n] = NULL;
	return at ? 0 : n;
}

static fo_status seconds_of(struct fo_arena *a, const char *options, const char *table, const char *profile,
			    double *out)
{
	char *argv[WORDS];
	int argc = words_of(a, options, table, argv);
	if (!argc)
		return fo_fail(FO_EARG, "a run has more than %d options", WORDS - 2);
	struct fo_opt_set s;
	struct predict *in = fo_xmalloc(sizeof *in);
	fo_cli_options_read(&fo_cmd_predict, &s, in, &argc, argv);
	fo_status st = argc > 1 ? fo_fail(FO_EARG, "'%s' is no option of a run", argv[1])
				: fo_cli_options_finish(&fo_cmd_predict, &s);
	in->profile = profile;
	if (st == FO_OK)
		st = fo_cli_predict_seconds(in, &s, out);
	fo_opt_fini(&s);
	free(in);
	return st;
}

fo_status fo_cli_score_machine(struct fo_score_table *t, const char *table, const char *profile, struct fo_score *out)
{
	for (int i = 0; i < t->rows; i++) {
		struct fo_score_row *r = &t->row[i];
		double seconds = NAN;
		if (!r->scope)
			continue;
		const char *own = *profile ? profile : beside(&t->arena, table, r->profile);
		fo_status st = seconds_of(&t->arena, r->options, table, own, &seconds);
		if (st == FO_ENOMEM)
			return st;
		if (st != FO_OK) {
			r->refused = fo_arena_strdup(&t->arena, fo_err_text());
			fo_err_clear();
			continue;
		}
		r->covered = true;
		r->predicted = r->stranger = 1 / seconds;
		r->guess = NAN;
	}
	return fo_score_machine(t, out);
}
