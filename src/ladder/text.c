/* The share of the text that each rung sees: text.json, and the sentence above every table and picture. */
#include "ladder/plan_int.h"

#include "base/fs.h"

#include <stdio.h>
#include <string.h>

/* ---- text.json ---- */

void fo_ladder_text_json(const struct fo_ladder_text *t, const struct fo_ladder_plan *p, struct fo_str *out)
{
	struct fo_ladder_text f = *t;
	f.steps = p->steps;
	f.rungs = p->rungs;
	for (int i = 0; i < p->rungs; i++)
		f.rung[i].name = p->rung[i].name;
	fo_schema_text(&fo_ladder_text_schema, &f, true, out);
}

static double share_of(int64_t n, int64_t tokens) { return n < 0 ? NAN : (double)n / (double)tokens; }

/* A file of another plan, a damaged or an absent one leaves the shares unknown. */
void fo_ladder_text_read(struct fo_ladder *l)
{
	struct fo_schema_reader r = { .arena = &l->arena, .lenient = true };
	struct fo_ladder_text t = { 0 };
	const char *path = fo_arena_printf(&l->arena, "%s/" FO_LADDER_TEXT_FILE, l->dir);
	if (!fo_fs_exists(path))
		return;
	if (fo_schema_read_file(&fo_ladder_text_schema, path, (size_t)1 << 20, &t, &r) == FO_OK && t.tokens > 0 &&
	    t.steps == l->steps && t.rungs == l->rungs) {
		l->text_tokens = t.tokens;
		for (int i = 0; i < l->rungs; i++) {
			struct fo_ladder_rung *g = &l->rung[i];
			if (strcmp(t.rung[i].name, g->name) != 0)
				continue;
			g->text_passes = share_of(t.rung[i].served, t.tokens);
			g->text_seen = share_of(t.rung[i].distinct, t.tokens);
			g->text_reached = share_of(t.rung[i].reached, t.tokens);
		}
	}
	fo_err_clear();
}

/* ---- the sentence ---- */

const char *fo_ladder_share(struct fo_arena *a, double share)
{
	if (!isfinite(share))
		return "-";
	/* Only all of the text is called 100 %, and only nothing 0 %. */
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

/* The phrase that most rungs have in common; NULL: nothing is known. */
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
		const char *before = s.len ? "; " : "";
		for (int k = i; k < l->rungs; k++)
			if (text[k] && !strcmp(text[k], text[i])) {
				fo_str_printf(&s, "%s%s", before, l->rung[k].name);
				before = ", ";
			}
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
