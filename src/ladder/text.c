/* The sentence that says how much of the text each rung sees, above every table and picture. */
#include "ladder/ladder.h"

#include <string.h>

const char *fo_ladder_share(struct fo_arena *a, double share)
{
	if (!isfinite(share))
		return "-";
	/* Only all is called 100 %, and only nothing 0. */
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

/* The phrase that most rungs share; NULL: nothing is known. */
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
