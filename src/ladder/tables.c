/* The tables of plan.json and text.json (docs/formats.md). */
#include "ladder/plan_int.h"

/* ---- rungs as planned ---- */

#define CHANGE(m, ...) FO_FIELD(struct fo_ladder_change, m, __VA_ARGS__)
static const struct fo_schema_field change_field[] = {
	CHANGE(key, "key", "", "option"),
	CHANGE(value, "value", "", "in this rung"),
	CHANGE(was, "was", "", "in the rung that it starts from"),
};
const struct fo_schema fo_ladder_change_schema = { "", "change", FO_FIELDS(struct fo_ladder_change, change_field) };

#define RUNG(m, ...) FO_FIELD(struct fo_ladder_rung, m, __VA_ARGS__)
static const struct fo_schema_field planned_rung_field[] = {
	RUNG(name, "name", "", "its folder"),
	RUNG(what, "what", "", "one sentence"),
	RUNG(from, "from", "", "index of the rung that it starts from; -1: baseline", .flags = FO_NEEDED, .low = -1,
	     .high = FO_LADDER_MAX_RUNGS),
	RUNG(reference, "reference", "", "index of the rung whose losses its own are compared with; itself: none",
	     .flags = FO_NEEDED, .high = FO_LADDER_MAX_RUNGS),
	RUNG(numerics_only, "numerics_only", "", "emulated arithmetic: its time says nothing"),
	RUNG(options, "options", "",
	     "for a shell, after `flatout train` and the run file: all that makes this rung but `run.dir`"),
	FO_FIELD_LIST(struct fo_ladder_rung, change, changes, &fo_ladder_change_schema, "change", "against `from`",
		      .flags = FO_POINTER, .elements = FO_LADDER_MAX_CHANGES),
};
static const struct fo_schema planned_rung_schema = { "", "rung",
						      FO_FIELDS(struct fo_ladder_rung, planned_rung_field) };

/* ---- plan.json ---- */

#define OPTION(m, ...) FO_FIELD(struct fo_ladder_option, m, __VA_ARGS__)
static const struct fo_schema_field option_field[] = { OPTION(key, "key", "", ""), OPTION(value, "", "", "") };
static const struct fo_schema option_schema = { "", "option", FO_FIELDS(struct fo_ladder_option, option_field) };

#define PLAN(m, ...) FO_FIELD(struct fo_ladder_plan_file, m, __VA_ARGS__)
#define COUNT(least, most) .flags = FO_NEEDED, .low = (least), .high = (most)
static const struct fo_schema_field plan_field[] = {
	PLAN(version, "version", "", "of the program"),
	PLAN(cpu, "cpu", "", "name of the processor"),
	PLAN(threads, "threads", "", "threads that compute", COUNT(1, 1 << 16)),
	PLAN(run_file, "run_file", "", "as given on the command line"),
	PLAN(steps, "steps", "", "steps of each rung", COUNT(1, 10000000)),
	PLAN(rounds, "rounds", "", "rounds that they are split into",
	     COUNT(FO_LADDER_MIN_ROUNDS, FO_LADDER_MAX_ROUNDS)),
	PLAN(seed, "seed", "", "of the order of turns", COUNT(0, 0x1p63)),
	FO_FIELD_MAP(struct fo_ladder_plan_file, base, options, &option_schema, "base", "options of the run, as text",
		     .flags = FO_POINTER | FO_WRITE_ONLY),
	FO_FIELD_LIST(struct fo_ladder_plan_file, rung, rungs, &planned_rung_schema, "rungs", "at most 64",
		      .flags = FO_NEEDED | FO_POINTER, .elements = FO_LADDER_MAX_RUNGS),
};
const struct fo_schema fo_ladder_plan_schema = { "plan", "plan of a ladder", 1,
						 FO_FIELDS(struct fo_ladder_plan_file, plan_field) };

/* ---- text.json ---- */

#define SEEN(m, ...) FO_FIELD(struct fo_ladder_text_rung, m, __VA_ARGS__)
#define TOKENS .absent = -1, .low = 0, .high = 0x1p53
static const struct fo_schema_field seen_field[] = {
	SEEN(name, "name", "", "of the rung"),
	SEEN(served, "served", "", "tokens in rows, padding left out; what comes twice counts twice", TOKENS),
	SEEN(distinct, "distinct", "", "tokens that came at least once", TOKENS),
	SEEN(reached, "reached", "", "tokens that come at some time, however long it trains", TOKENS),
};
static const struct fo_schema seen_schema = { "", "rung", FO_FIELDS(struct fo_ladder_text_rung, seen_field) };

#define TEXT(m, ...) FO_FIELD(struct fo_ladder_text, m, __VA_ARGS__)
static const struct fo_schema_field text_field[] = {
	TEXT(tokens, "tokens", "", "of the text that is trained on"),
	TEXT(steps, "steps", "", "of each rung"),
	FO_FIELD_LIST(struct fo_ladder_text, rung, rungs, &seen_schema, "rungs", "in the plan's order",
		      .elements = FO_LADDER_MAX_RUNGS),
};
const struct fo_schema fo_ladder_text_schema = { "text", "count of a ladder's text", 1,
						 FO_FIELDS(struct fo_ladder_text, text_field) };
