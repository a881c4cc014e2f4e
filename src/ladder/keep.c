/* plan.json: what a ladder is made of, so that it can be gone on with, and shown, by itself. */
#include "ladder/plan_int.h"

#include "base/fs.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void fo_ladder_plan_json(const struct fo_ladder_plan *p, struct fo_str *out)
{
	struct fo_arena a = { 0 };
	struct fo_ladder_plan_file f = { .version = p->version,
					 .cpu = p->cpu,
					 .run_file = p->run_file,
					 .threads = p->threads,
					 .rounds = p->rounds,
					 .rungs = p->rungs,
					 .steps = p->steps,
					 .seed = (int64_t)p->seed,
					 .rung = p->rung };
	int n = 0;
	while (fo_run_options[n].key)
		n++;
	f.base = fo_arena_alloc(&a, (size_t)n * sizeof *f.base);
	for (int i = 0; i < n; i++)
		if (strcmp(fo_run_options[i].key, "run.dir") && strcmp(fo_run_options[i].key, "train.steps"))
			f.base[f.options++] = (struct fo_ladder_option){ fo_run_options[i].key,
									 fo_opt_value_text(p->base, i) };
	fo_schema_text(&fo_ladder_plan_schema, &f, true, out);
	fo_arena_fini(&a);
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
		/* A rung's options follow from the base and its changes, which are compared one by one. */
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
	/* A plan whose start failed before the first turn is replaced. */
	if (st == FO_OK && keep && (keep = has_begun(p->dir, old, len, path)))
		st = compare(p, old, len, path, &text);
	/* The count of an earlier plan's text says nothing about this one. */
	if (st == FO_OK && !keep) {
		unlink(fo_arena_printf(&a, "%s/" FO_LADDER_TEXT_FILE, p->dir));
		st = fo_fs_write_atomic(path, text.data, text.len);
	}
	fo_str_fini(&text);
	fo_arena_fini(&a);
	return st;
}

/* ---- reading it back ---- */

/* Checks what the table cannot say about rung i, and derives its other members. */
static void finish_rung(struct fo_ladder *l, int i, struct fo_schema_reader *r)
{
	struct fo_ladder_rung *g = &l->rung[i];
	snprintf(r->at, sizeof r->at, "rungs[%d].", i);
	if (!fo_ladder_name_ok(g->name))
		fo_schema_refuse(r, "name", "letters, digits, '-', '_' and '.'");
	if (g->from >= i)
		fo_schema_refuse(r, "from", "the index of an earlier rung, or -1");
	if (g->reference > i)
		fo_schema_refuse(r, "reference", "the index of an earlier rung, or its own");
	g->check = FO_LADDER_UNCHECKED;
	if (g->from < 0)
		g->check = FO_LADDER_REFERENCE;
	else if (g->reference == i)
		g->check = FO_LADDER_NEW_DATA;
	g->dir = fo_arena_printf(&l->arena, "%s/%s", l->dir, g->name);
}

fo_status fo_ladder_plan_parse(struct fo_ladder *l, const char *text, size_t len, const char *where)
{
	struct fo_schema_reader r = { .arena = &l->arena, .where = where };
	struct fo_ladder_plan_file f = { 0 };
	json_t *o;
	FO_TRY(fo_schema_parse(text, len, where, fo_ladder_plan_schema.what, &o));
	fo_schema_blank(&fo_ladder_plan_schema, &f);
	fo_schema_read(&fo_ladder_plan_schema, o, &f, &r);
	json_decref(o);
	if (r.st != FO_OK)
		return r.st;
	if (!f.rungs)
		fo_schema_refuse(&r, "rungs", "1 to 64 rungs");
	l->threads = f.threads;
	l->rounds = f.rounds;
	l->seed = (uint64_t)f.seed;
	l->steps = f.steps;
	l->version = f.version;
	l->cpu = f.cpu;
	l->run_file = f.run_file;
	l->rung = f.rung;
	l->rungs = f.rungs;
	for (int i = 0; i < l->rungs && r.st == FO_OK; i++)
		finish_rung(l, i, &r);
	return r.st;
}
