/* plan.json: what a ladder is made of, so that it can be gone on with, and shown, by itself. */
#include "ladder/plan_int.h"

#include "base/fs.h"
#include "base/json.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SCHEMA = 1 };

static void rung_json(const struct fo_ladder_plan *p, int i, struct fo_json *j)
{
	const struct fo_ladder_rung *g = &p->rung[i];
	fo_json_object(j, NULL);
	fo_json_text(j, "name", g->name);
	fo_json_text(j, "what", g->what);
	fo_json_int(j, "from", g->from);
	fo_json_int(j, "reference", g->reference);
	fo_json_bool(j, "numerics_only", g->numerics_only);
	fo_json_text(j, "options", g->options);
	fo_ladder_changes_json(j, g);
	fo_json_close(j);
}

void fo_ladder_plan_json(const struct fo_ladder_plan *p, struct fo_str *out)
{
	struct fo_json j;
	fo_json_begin(&j, out, true);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "schema", SCHEMA);
	fo_json_text(&j, "version", p->version);
	fo_json_text(&j, "cpu", p->cpu);
	fo_json_int(&j, "threads", p->threads);
	fo_json_text(&j, "run_file", p->run_file);
	fo_json_int(&j, "steps", p->steps);
	fo_json_int(&j, "rounds", p->rounds);
	fo_json_int(&j, "seed", (int64_t)p->seed);
	/* What every rung has in common: the options of the run, but for where the ladder lies. */
	fo_json_object(&j, "base");
	for (int i = 0; fo_run_options[i].key; i++)
		if (strcmp(fo_run_options[i].key, "run.dir") && strcmp(fo_run_options[i].key, "train.steps"))
			fo_json_text(&j, fo_run_options[i].key, fo_opt_value_text(p->base, i));
	fo_json_close(&j);
	fo_json_array(&j, "rungs");
	for (int i = 0; i < p->rungs; i++)
		rung_json(p, i, &j);
	fo_json_close(&j);
	fo_json_close(&j);
}

/* ---- comparing with what is kept ---- */

/* "what was 'a', is 'b' now" of the first member of `now` that `was` has otherwise. */
static fo_status differs(const char *dir, const char *subject, const json_t *was, const json_t *now)
{
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)now, key, value)
	{
		json_t *old = json_object_get(was, key);
		/* A rung's options follow from the base and its changes, which are told apart one by one. */
		if (json_is_object(value) || json_is_array(value) || !strcmp(key, "options") || json_equal(old, value))
			continue;
		char *a = old ? json_dumps(old, JSON_ENCODE_ANY) : NULL, *b = json_dumps(value, JSON_ENCODE_ANY),
		     shown[2][600];
		fo_status st = fo_fail(FO_EARG,
				       "'%s' holds a ladder with another configuration: %s%s was %s, is %s now", dir,
				       subject, key, fo_str_visible(shown[0], sizeof shown[0], a ? a : "not there"),
				       fo_str_visible(shown[1], sizeof shown[1], b));
		free(a);
		free(b);
		return fo_hint(st, "figures of two configurations do not mix: go back to what it was, or choose "
				   "another --run.dir");
	}
	return FO_OK;
}

static fo_status compare_rungs(const char *dir, const json_t *was, const json_t *now)
{
	size_t i;
	json_t *rung, *change;
	json_array_foreach((json_t *)now, i, rung)
	{
		char subject[80];
		size_t k;
		json_t *old = json_array_get(was, i), *of_old = json_object_get(old, "change");
		snprintf(subject, sizeof subject, "rung %zu: ", i + 1);
		FO_TRY(differs(dir, subject, old, rung));
		json_array_foreach(json_object_get(rung, "change"), k, change)
		{
			snprintf(subject, sizeof subject,
				 "rung '%.40s', change %zu: ", json_string_value(json_object_get(rung, "name")), k + 1);
			FO_TRY(differs(dir, subject, json_array_get(of_old, k), change));
		}
		if (json_array_size(of_old) != k)
			return fo_hint(fo_fail(FO_EARG,
					       "'%s' holds a ladder with another configuration: rung '%.40s' changed "
					       "%zu options, changes %zu now",
					       dir, json_string_value(json_object_get(rung, "name")),
					       json_array_size(of_old), k),
				       "choose another --run.dir");
	}
	if (json_array_size(was) != json_array_size(now))
		return fo_hint(fo_fail(FO_EARG, "'%s' holds a ladder of %zu rungs, this one has %zu", dir,
				       json_array_size(was), json_array_size(now)),
			       "choose another --run.dir");
	return FO_OK;
}

static fo_status compare(const struct fo_ladder_plan *p, const char *old, size_t len, const char *path,
			 const struct fo_str *text)
{
	json_error_t e;
	json_t *was = json_loadb(old, len, 0, &e), *now = json_loadb(text->data, text->len, 0, NULL);
	fo_status st = was ? FO_OK : fo_fail(FO_EFORMAT, "'%s' is damaged: %s", path, e.text);
	if (st == FO_OK)
		st = differs(p->dir, "", was, now);
	if (st == FO_OK)
		st = differs(p->dir, "option ", json_object_get(was, "base"), json_object_get(now, "base"));
	if (st == FO_OK)
		st = compare_rungs(p->dir, json_object_get(was, "rungs"), json_object_get(now, "rungs"));
	json_decref(was);
	json_decref(now);
	return st;
}

/* Whether any rung of the plan in `old` has begun. */
static bool has_begun(const char *dir, const char *old, size_t len, const char *path)
{
	struct fo_ladder l = { .dir = dir };
	bool begun = fo_ladder_plan_parse(&l, old, len, path) != FO_OK;
	for (int i = 0; i < l.rungs && !begun; i++)
		begun = fo_fs_exists(l.rung[i].dir);
	fo_ladder_fini(&l);
	return begun;
}

fo_status fo_ladder_plan_keep(const struct fo_ladder_plan *p)
{
	struct fo_arena a = { 0 };
	struct fo_str text = { 0 };
	char *path = fo_arena_printf(&a, "%s/" FO_LADDER_PLAN_FILE, p->dir), *old;
	size_t len;
	fo_status st;
	fo_ladder_plan_json(p, &text);
	bool keep = fo_fs_exists(path);
	st = keep ? fo_fs_read_regular(&a, path, (size_t)8 << 20, &old, &len) : fo_fs_mkdirs(p->dir);
	/* What a start that failed before its first turn left binds nobody. */
	if (st == FO_OK && keep && (keep = has_begun(p->dir, old, len, path)))
		st = compare(p, old, len, path, &text);
	/* What an earlier plan's rungs see says nothing of this one's. */
	if (st == FO_OK && !keep) {
		unlink(fo_arena_printf(&a, "%s/" FO_LADDER_TEXT_FILE, p->dir));
		st = fo_fs_write_atomic(path, text.data, text.len);
	}
	fo_str_fini(&text);
	fo_arena_fini(&a);
	return st;
}

/* ---- reading it back ---- */

static const char *text_of(struct fo_ladder *l, const json_t *o, const char *key)
{
	const char *v = json_string_value(json_object_get(o, key));
	return fo_arena_strdup(&l->arena, v ? v : "");
}

static bool count_of(const json_t *o, const char *key, int64_t lo, int64_t hi, int64_t *out)
{
	const json_t *v = json_object_get(o, key);
	*out = json_is_integer(v) ? (int64_t)json_integer_value(v) : lo - 1;
	return *out >= lo && *out <= hi;
}

static bool parse_rung(struct fo_ladder *l, int i, const json_t *o)
{
	struct fo_ladder_rung *g = &l->rung[i];
	const json_t *change = json_object_get(o, "change");
	int64_t from, reference;
	size_t n = json_array_size(change);
	*g = (struct fo_ladder_rung){ .name = text_of(l, o, "name"),
				      .what = text_of(l, o, "what"),
				      .options = text_of(l, o, "options"),
				      .numerics_only = json_is_true(json_object_get(o, "numerics_only")) };
	if (!fo_ladder_name_ok(g->name) || n > FO_LADDER_MAX_CHANGES || !count_of(o, "from", -1, i - 1, &from) ||
	    !count_of(o, "reference", 0, i, &reference))
		return false;
	struct fo_ladder_change *c = fo_arena_alloc(&l->arena, (n + 1) * sizeof *c);
	for (size_t k = 0; k < n; k++) {
		const json_t *v = json_array_get(change, k);
		c[k] = (struct fo_ladder_change){ text_of(l, v, "key"), text_of(l, v, "value"), text_of(l, v, "was") };
	}
	g->change = c;
	g->changes = (int)n;
	g->from = (int)from;
	g->reference = (int)reference;
	g->check = from < 0 ? FO_LADDER_REFERENCE : reference == i ? FO_LADDER_NEW_DATA : FO_LADDER_UNCHECKED;
	g->dir = fo_arena_printf(&l->arena, "%s/%s", l->dir, g->name);
	return true;
}

static fo_status parse_plan(struct fo_ladder *l, const json_t *o, const char *where)
{
	const json_t *rungs = json_object_get(o, "rungs");
	int64_t schema, threads, rounds, seed;
	if (!count_of(o, "schema", SCHEMA, SCHEMA, &schema))
		return fo_fail(FO_EFORMAT, "'%s' is no plan of a ladder: 'schema' is not %d", where, SCHEMA);
	if (!count_of(o, "threads", 1, 1 << 16, &threads) || !count_of(o, "steps", 1, 10000000, &l->steps) ||
	    !count_of(o, "rounds", FO_LADDER_MIN_ROUNDS, FO_LADDER_MAX_ROUNDS, &rounds) ||
	    !count_of(o, "seed", 0, INT64_MAX, &seed))
		return fo_fail(FO_EFORMAT, "'%s': threads, steps, rounds or seed of the ladder is missing or cannot be",
			       where);
	l->threads = (int)threads;
	l->rounds = (int)rounds;
	l->seed = (uint64_t)seed;
	l->version = text_of(l, o, "version");
	l->cpu = text_of(l, o, "cpu");
	l->run_file = text_of(l, o, "run_file");
	size_t n = json_array_size(rungs);
	if (n < 1 || n > FO_LADDER_MAX_RUNGS)
		return fo_fail(FO_EFORMAT, "'%s' has %zu rungs, expected 1 to %d", where, n, FO_LADDER_MAX_RUNGS);
	l->rung = fo_arena_alloc(&l->arena, n * sizeof *l->rung);
	for (l->rungs = 0; (size_t)l->rungs < n; l->rungs++)
		if (!parse_rung(l, l->rungs, json_array_get(rungs, (size_t)l->rungs)))
			return fo_fail(FO_EFORMAT, "'%s': rung %d has no name, starting rung or changes that can be",
				       where, l->rungs + 1);
	return FO_OK;
}

fo_status fo_ladder_plan_parse(struct fo_ladder *l, const char *text, size_t len, const char *where)
{
	json_error_t e;
	json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
	char shown[300];
	if (!o)
		return fo_fail(FO_EFORMAT, "'%s' is no plan of a ladder: line %d: %s", where, e.line,
			       fo_str_visible(shown, sizeof shown, e.text));
	fo_status st = parse_plan(l, o, where);
	json_decref(o);
	return st;
}
