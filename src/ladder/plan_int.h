/* Shared by the files of src/ladder that make, keep and read plans. */
#ifndef FO_LADDER_PLAN_INT_H
#define FO_LADDER_PLAN_INT_H

#include "base/schema.h"
#include "ladder/ladder.h"

#define FO_LADDER_PLAN_FILE "plan.json"
#define FO_LADDER_TEXT_FILE "text.json"
#define FO_LADDER_FAILED_FILE "failed.txt" /* in a rung's directory: why its last turn failed */

/* A name becomes a folder's beside the ladder's own files: 1 to FO_LADDER_NAME_MAX letters, digits, '-', '_' and '.'.
 */
bool fo_ladder_name_ok(const char *name);
/* Value of an option in a rung (-1: in the base). */
const char *fo_ladder_value(const struct fo_ladder_plan *p, int rung, const char *key);
/* Fills what follows from name, from and change of rung i, whose predecessors are done. */
void fo_ladder_plan_derive(struct fo_ladder_plan *p, int i);
/* Every rung as a run, and steps against rounds; reports what `problems` holds so far, too. */
FO_CHECKED fo_status fo_ladder_plan_check(const struct fo_ladder_plan *p, struct fo_opt_set *problems);
struct fo_ladder_option {
	const char *key, *value;
};
/* A plan as plan.json has it. */
struct fo_ladder_plan_file {
	const char *version, *cpu, *run_file;
	int threads, rounds, rungs;
	int64_t steps, seed;
	struct fo_ladder_option *base; /* what all rungs have in common, but for where the ladder is */
	int options;
	struct fo_ladder_rung *rung;
};
extern const struct fo_schema fo_ladder_change_schema; /* struct fo_ladder_change */
/* plan.json as text. */
void fo_ladder_plan_json(const struct fo_ladder_plan *p, struct fo_str *out);
/* Fills the plan's part of l: rungs with names, changes, options, reference. FO_EFORMAT. */
FO_CHECKED fo_status fo_ladder_plan_parse(struct fo_ladder *l, const char *text, size_t len, const char *where);
/* The share of the text that each rung sees (data/data.h: struct fo_text_seen), counted before the first step. */
struct fo_ladder_text_rung {
	const char *name;
	int64_t served, distinct, reached; /* -1: not known */
};
struct fo_ladder_text {
	int64_t tokens; /* of the text that is trained on */
	int64_t steps;  /* of each rung */
	int rungs;
	struct fo_ladder_text_rung rung[FO_LADDER_MAX_RUNGS];
};
/* text.json; names, steps and the number of rungs are the plan's. */
void fo_ladder_text_json(const struct fo_ladder_text *t, const struct fo_ladder_plan *p, struct fo_str *out);
/* Reads text.json into l, whose rungs are there; shares that cannot be read stay unknown. */
void fo_ladder_text_read(struct fo_ladder *l);
/* src/ladder/judge.c: spreads, gains and checks of a ladder whose rungs are read. */
void fo_ladder_judge(struct fo_ladder *l);

#endif
