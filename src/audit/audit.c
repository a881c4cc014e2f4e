#include "audit/audit.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const char *const fo_audit_level_name[FO_AUDIT_LEVELS] = { "serious", "advice", "note" };

void fo_audit_fini(struct fo_audit *a)
{
	free(a->finding);
	free(a->gap);
	fo_arena_fini(&a->arena);
	*a = (struct fo_audit){ 0 };
}

static const char *kept(struct fo_audit *a, const char *text) { return text ? fo_arena_strdup(&a->arena, text) : NULL; }

void fo_audit_add(struct fo_audit *a, struct fo_audit_finding f)
{
	assert(f.id && f.title && f.evidence);
	const char **text[] = { &f.id,  &f.title,    &f.setting, &f.now,       &f.proposed,
				&f.why, &f.evidence, &f.paste,   &f.gain_from, &f.source };
	for (size_t i = 0; i < sizeof text / sizeof *text; i++)
		*text[i] = kept(a, *text[i]);
	if (!(f.gain.low > 0) || !(f.gain.high >= f.gain.low))
		f.gain = fo_range(NAN);
	fo_array_room(&a->finding, &a->cap, a->count, sizeof *a->finding);
	a->finding[a->count++] = f;
}

void fo_audit_not_known(struct fo_audit *a, const char *what, const char *tell)
{
	for (size_t i = 0; i < a->gaps; i++)
		if (!strcmp(a->gap[i].what, what))
			return;
	fo_array_room(&a->gap, &a->gap_cap, a->gaps, sizeof *a->gap);
	a->gap[a->gaps++] = (struct fo_audit_gap){ kept(a, what), kept(a, tell) };
}

/* A serious finding without a gain stops a job or loses it, so it comes before any speed. */
static double certain_gain(const struct fo_audit_finding *f)
{
	double unknown = f->level == FO_AUDIT_SERIOUS ? INFINITY : 1;
	return fo_range_known(f->gain) ? f->gain.low : unknown;
}

static bool before(const struct fo_audit_finding *x, const struct fo_audit_finding *y)
{
	if (x->level != y->level)
		return x->level < y->level;
	return certain_gain(x) > certain_gain(y);
}

/* Findings are few, and insertion keeps the order of equal ones. */
void fo_audit_sort(struct fo_audit *a)
{
	for (size_t i = 1; i < a->count; i++) {
		struct fo_audit_finding f = a->finding[i];
		size_t at = i;
		for (; at > 0 && before(&f, &a->finding[at - 1]); at--)
			a->finding[at] = a->finding[at - 1];
		a->finding[at] = f;
	}
}

size_t fo_audit_of(const struct fo_audit *a, enum fo_audit_level level)
{
	size_t n = 0;
	for (size_t i = 0; i < a->count; i++)
		n += a->finding[i].level == level;
	return n;
}

/* ---- as a document ---- */

static const char *worth(struct fo_doc *d, const struct fo_audit_finding *f)
{
	if (!fo_range_known(f->gain))
		return "not known";
	const char *low = fo_doc_num(d, f->gain.low, FO_DRAW_FACTOR),
		   *high = fo_doc_num(d, f->gain.high, FO_DRAW_FACTOR);
	const char *range = strcmp(low, high) ? fo_doc_printf(d, "%s to %s", low, high) : low;
	return f->gain_from ? fo_doc_printf(d, "%s as fast (%s)", range, f->gain_from)
			    : fo_doc_printf(d, "%s as fast", range);
}

static void say_line(struct fo_doc *d, const char *label, const char *text)
{
	if (text && *text)
		fo_doc_line(d, label, "%s", text);
}

static void say_setting(struct fo_doc *d, const struct fo_audit_finding *f)
{
	const char *now = f->now && f->setting ? fo_doc_printf(d, "%s: %s", f->setting, f->now) : f->now;
	say_line(d, "Now", now ? now : f->setting);
	say_line(d, "Try", f->proposed);
}

/* "advice", "advice, +10 to +18 %" */
static const char *tag(struct fo_doc *d, const struct fo_audit_finding *f)
{
	const char *name = fo_audit_level_name[f->level];
	if (!fo_range_known(f->gain))
		return name;
	const char *low = fo_doc_printf(d, "%+.0f", 100 * (f->gain.low - 1)),
		   *high = fo_doc_printf(d, "%+.0f", 100 * (f->gain.high - 1));
	return strcmp(low, high) ? fo_doc_printf(d, "%s, %s to %s %%", name, low, high)
				 : fo_doc_printf(d, "%s, %s %%", name, low);
}

static void say_finding(struct fo_doc *d, const struct fo_audit_finding *f)
{
	fo_doc_card(d, f->level == FO_AUDIT_SERIOUS ? FO_DOC_BAD : FO_DOC_PLAIN, tag(d, f), "%s", f->title);
	say_setting(d, f);
	say_line(d, "Why", f->why);
	if (f->level != FO_AUDIT_NOTE)
		say_line(d, "Worth", worth(d, f));
	say_line(d, "Evidence", f->evidence);
	say_line(d, "Source", f->source);
	if (f->paste)
		fo_doc_code(d, f->paste);
	fo_doc_card_end(d);
}

void fo_audit_doc_verdict(struct fo_doc *d, const struct fo_audit *a)
{
	size_t serious = fo_audit_of(a, FO_AUDIT_SERIOUS), advice = fo_audit_of(a, FO_AUDIT_ADVICE),
	       notes = fo_audit_of(a, FO_AUDIT_NOTE);
	const char *rest = fo_doc_printf(d, "%zu of advice, %zu note%s; %lld rule%s looked", advice, notes,
					 fo_plural(notes), (long long)a->checked, fo_plural(a->checked));
	if (serious)
		fo_doc_verdict(d, FO_DOC_BAD, "Audit", "%zu serious finding%s, %s", serious, fo_plural(serious), rest);
	else if (a->little && a->little_why)
		fo_doc_verdict(d, FO_DOC_PLAIN, "Audit", "little is known: %s; give %s; %s", a->little_why, a->little,
			       rest);
	else if (a->little)
		fo_doc_verdict(d, FO_DOC_PLAIN, "Audit",
			       "little is known: %lld of %lld rules could look; give %s; "
			       "%zu of advice, %zu note%s",
			       (long long)a->checked, (long long)a->concerned, a->little, advice, notes,
			       fo_plural(notes));
	else if (a->checked)
		fo_doc_verdict(d, FO_DOC_GOOD, "Audit", "no serious finding, %s", rest);
	else
		fo_doc_verdict(d, FO_DOC_PLAIN, "Audit", "nothing could be checked");
	if (a->count && a->finding[0].level != FO_AUDIT_NOTE)
		fo_doc_line(d, "First", "%s", a->finding[0].title);
}

/* One item for all that the same file would tell. */
static void say_gaps(struct fo_doc *d, const struct fo_audit *a)
{
	if (a->gaps)
		fo_doc_heading(d, "What is not known");
	for (size_t i = 0; i < a->gaps; i++) {
		const char *tell = a->gap[i].tell, *what = a->gap[i].what;
		size_t first = 0;
		while (strcmp(a->gap[first].tell, tell))
			first++;
		for (size_t k = i + 1; k < a->gaps && first == i; k++)
			if (!strcmp(a->gap[k].tell, tell))
				what = fo_doc_printf(d, "%s, %s", what, a->gap[k].what);
		if (first == i)
			fo_doc_item(d, "%s; %s would tell", what, tell);
	}
}

void fo_audit_doc_findings(struct fo_doc *d, const struct fo_audit *a)
{
	for (size_t i = 0; i < a->count; i++)
		say_finding(d, &a->finding[i]);
	if (a->reads) {
		fo_doc_heading(d, "What was read");
		for (int64_t i = 0; i < a->reads; i++)
			fo_doc_item(d, "%s", a->read[i]);
	}
	say_gaps(d, a);
}

void fo_audit_doc(struct fo_doc *d, const struct fo_audit *a)
{
	fo_audit_doc_verdict(d, a);
	fo_audit_doc_findings(d, a);
}

/* ---- as JSON ---- */

static void write_finding(struct fo_json *j, const struct fo_audit_finding *f)
{
	fo_json_object(j, NULL);
	fo_json_put(j, FO_TEXT("id", f->id), FO_TEXT("level", fo_audit_level_name[f->level]),
		    FO_TEXT("title", f->title), FO_TEXT("setting", f->setting), FO_TEXT("now", f->now),
		    FO_TEXT("proposed", f->proposed), FO_TEXT("why", f->why), FO_TEXT("evidence", f->evidence),
		    FO_TEXT("paste", f->paste));
	if (fo_range_known(f->gain))
		fo_json_record(j, "gain", FO_REAL("low", f->gain.low), FO_REAL("high", f->gain.high));
	else
		fo_json_text(j, "gain", NULL);
	fo_json_put(j, FO_TEXT("gain_from", f->gain_from), FO_TEXT("source", f->source));
	fo_json_close(j);
}

void fo_audit_json(struct fo_json *j, const struct fo_audit *a)
{
	fo_json_put(j, FO_INT("serious", (int64_t)fo_audit_of(a, FO_AUDIT_SERIOUS)),
		    FO_INT("advice", (int64_t)fo_audit_of(a, FO_AUDIT_ADVICE)),
		    FO_INT("notes", (int64_t)fo_audit_of(a, FO_AUDIT_NOTE)), FO_INT("checked", a->checked),
		    FO_BOOL("little_known", a->little != NULL));
	fo_json_array(j, "findings");
	for (size_t i = 0; i < a->count; i++)
		write_finding(j, &a->finding[i]);
	fo_json_close(j);
	fo_json_texts(j, "read", a->read, a->reads);
	fo_json_array(j, "not_known");
	for (size_t i = 0; i < a->gaps; i++)
		fo_json_record(j, NULL, FO_TEXT("what", a->gap[i].what), FO_TEXT("tell", a->gap[i].tell));
	fo_json_close(j);
}
