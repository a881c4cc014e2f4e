/* Numbers and ranges in sentences. */
#include "health/health_int.h"

#include <ctype.h>
#include <string.h>

const char *fo_health_num(struct fo_health *h, double v, enum fo_draw_unit unit)
{
	char buf[32];
	return fo_arena_strdup(&h->arena, fo_draw_number(buf, v, unit));
}

/* Both numbers in the same unit need it once: "22.5 to 23.6 %". */
static void drop_unit(char *low, const char *high)
{
	char *unit = strchr(low, ' ');
	const char *other = strchr(high, ' ');
	if (unit && other && !strcmp(unit, other))
		*unit = '\0';
}

const char *fo_health_range(struct fo_arena *a, struct fo_range r, enum fo_draw_unit unit)
{
	char low[32], high[32];
	if (!fo_range_known(r))
		return "not known";
	fo_draw_number(low, r.low, unit);
	fo_draw_number(high, r.high, unit);
	if (!strcmp(low, high))
		return fo_arena_strdup(a, low);
	if (unit != FO_DRAW_MONEY)
		drop_unit(low, high);
	return fo_arena_printf(a, "%s to %s", low, high);
}

const char *fo_health_clause(struct fo_health *h, const char *title)
{
	char *text = fo_health_text(h, "%s", title);
	if (*text && islower((unsigned char)text[1]))
		*text = (char)tolower((unsigned char)*text);
	return text;
}

const char *fo_health_sentence(struct fo_health *h, const char *clause)
{
	char *text = fo_health_text(h, "%s.", clause);
	/* A name of a file keeps its case. */
	size_t word = strcspn(text, " ");
	if (!memchr(text, '.', word) && !memchr(text, '/', word))
		*text = (char)toupper((unsigned char)*text);
	return text;
}
