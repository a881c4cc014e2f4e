/* How much of the text each rung sees: text.json, and the sentence that stands above every table and picture. */
#include "ladder/plan_int.h"

#include "base/fs.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* ---- text.json ---- */

void fo_ladder_text_json(const struct fo_ladder_text *t, const struct fo_ladder_plan *p, struct fo_str *out)
{
	struct fo_json j;
	fo_json_begin(&j, out, true);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "schema", 1);
	fo_json_int(&j, "tokens", t->tokens);
	fo_json_int(&j, "steps", p->steps);
	fo_json_array(&j, "rungs");
	for (int i = 0; i < p->rungs; i++) {
		fo_json_object(&j, NULL);
		fo_json_text(&j, "name", p->rung[i].name);
		fo_json_int(&j, "served", t->rung[i].served);
		fo_json_int(&j, "distinct", t->rung[i].distinct);
		fo_json_int(&j, "reached", t->rung[i].reached);
		fo_json_close(&j);
	}
	fo_json_close(&j);
	fo_json_close(&j);
}

static double share_of(const json_t *o, const char *key, double tokens)
{
	const json_t *v = json_object_get(o, key);
	double share = json_is_integer(v) ? (double)json_integer_value(v) / tokens : NAN;
	return share >= 0 ? share : NAN;
}

/* Of another plan, damaged or absent: then it is not known. */
void fo_ladder_text_read(struct fo_ladder *l)
{
	char *text;
	size_t len, i;
	json_t *rung;
	const char *path = fo_arena_printf(&l->arena, "%s/" FO_LADDER_TEXT_FILE, l->dir);
	if (!fo_fs_exists(path))
		return;
	json_t *root = fo_fs_read(&l->arena, path, (size_t)1 << 20, &text, &len) == FO_OK
			       ? json_loadb(text, len, 0, NULL)
			       : NULL;
	const json_t *rungs = json_object_get(root, "rungs");
	double tokens = (double)json_integer_value(json_object_get(root, "tokens"));
	if (tokens > 0 && json_integer_value(json_object_get(root, "steps")) == l->steps &&
	    json_array_size(rungs) == (size_t)l->rungs) {
		l->text_tokens = (int64_t)tokens;
		json_array_foreach((json_t *)rungs, i, rung)
		{
			struct fo_ladder_rung *g = &l->rung[i];
			const char *name = json_string_value(json_object_get(rung, "name"));
			if (!name || strcmp(name, g->name))
				continue;
			g->text_passes = share_of(rung, "served", tokens);
			g->text_seen = share_of(rung, "distinct", tokens);
			g->text_reached = share_of(rung, "reached", tokens);
		}
	}
	json_decref(root);
	fo_err_clear();
}

/* ---- the sentence ---- */

const char *fo_ladder_share(struct fo_arena *a, double share)
{
	if (!isfinite(share))
		return "-";
	/* What is not all is not called 100 %, what is not nothing not 0. */
	if (share < 1 && share > 0.999)
		return "99.9";
	return fo_arena_printf(a, share > 0 && share < 0.001 ? "%.2g" : "%.1f", 100 * share);
}

/* "1.5 % of the text, 14 times over (its rows cut the rest off)" */
static const char *phrase(struct fo_arena *a, const struct fo_ladder_rung *g)
{
	double times = g->text_passes / g->text_seen;
	struct fo_str s = { 0 };
	if (g->text_seen < 1)
		fo_str_printf(&s, "%s %% of the text", fo_ladder_share(a, g->text_seen));
	else
		fo_str_puts(&s, "all of the text");
	if (times >= 1.05)
		fo_str_printf(&s, ", %.*f times over", times < 9.95, times);
	if (g->text_reached < 1)
		fo_str_printf(&s, " (its rows cut %s %% off)", fo_ladder_share(a, 1 - g->text_reached));
	const char *text = fo_arena_strdup(a, s.data);
	fo_str_fini(&s);
	return text;
}

static bool counts(const struct fo_ladder_rung *g) { return !g->reason && isfinite(g->text_seen) && g->text_seen > 0; }

/* What most rungs have in common; NULL: nothing is known. */
static const char *commonest(const struct fo_ladder *l, const char *const *text)
{
	const char *best = NULL;
	int most = 0;
	for (int i = 0; i < l->rungs; i++) {
		int n = 0;
		for (int k = 0; k < l->rungs && text[i]; k++)
			n += text[k] && !strcmp(text[i], text[k]);
		if (n >= most && n) /* the later ones where two are as common: rungs build on each other */
			best = text[i], most = n;
	}
	return best;
}

bool fo_ladder_same_text(const struct fo_ladder *l)
{
	const struct fo_ladder_rung *first = NULL;
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *g = &l->rung[i];
		if (!counts(g))
			continue;
		first = first ? first : g;
		if (g->text_passes != first->text_passes || g->text_seen != first->text_seen ||
		    g->text_reached != first->text_reached)
			return false;
	}
	return true;
}

const char *fo_ladder_text_title(const struct fo_ladder *l, struct fo_arena *a)
{
	const char **text = fo_arena_alloc(a, (size_t)(l->rungs + 1) * sizeof *text), *common;
	struct fo_str s = { 0 };
	int others = 0, n = 0;
	for (int i = 0; i < l->rungs; i++)
		text[i] = counts(&l->rung[i]) ? phrase(a, &l->rung[i]) : NULL;
	common = commonest(l, text);
	if (!common)
		return NULL;
	for (int i = 0; i < l->rungs; i++) {
		bool told = !text[i] || !strcmp(text[i], common);
		others += text[i] && told;
		n += text[i] != NULL;
		for (int k = 0; k < i && !told; k++)
			told = text[k] && !strcmp(text[k], text[i]);
		if (told)
			continue;
		int names = 0;
		for (int k = i; k < l->rungs; k++)
			if (text[k] && !strcmp(text[k], text[i]))
				fo_str_printf(&s, "%s%s", names++ ? ", " : s.len ? "; " : "", l->rung[k].name);
		fo_str_printf(&s, " saw %s", text[i]);
	}
	const char *last = NULL;
	for (int i = 0; i < l->rungs; i++)
		last = text[i] && !strcmp(text[i], common) ? l->rung[i].name : last;
	if (others == n)
		fo_str_printf(&s, n == 1 ? "the rung saw %s" : "each rung saw %s", common);
	else
		fo_str_printf(&s, "; %s saw %s", others == 1 ? last : "the others", common);
	const char *out = fo_arena_strdup(a, s.data);
	fo_str_fini(&s);
	return out;
}
