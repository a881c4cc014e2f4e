/* The record as JSON. */
#include "health/health_int.h"

static void range_json(struct fo_json *j, const char *key, struct fo_range r)
{
	if (fo_range_known(r))
		fo_json_record(j, key, FO_REAL("low", r.low), FO_REAL("high", r.high));
	else
		fo_json_text(j, key, NULL);
}

static void mfu_json(const struct fo_health *h, struct fo_json *j)
{
	const struct fo_health_mfu *m = &h->mfu;
	fo_json_object(j, "mfu");
	fo_json_real(j, "now", m->now);
	range_json(j, "spread", m->spread);
	fo_json_put(j, FO_TEXT("by", fo_health_source_name[m->source]), FO_TEXT("rule", m->rule),
		    FO_TEXT("from", m->from), FO_TEXT("why_not", m->why_not),
		    FO_REAL("gpu_utilisation", m->utilisation), FO_REAL("computing", m->computing),
		    FO_REAL("nvidia_smi_utilisation", m->busy), FO_REAL("cap", m->cap),
		    FO_TEXT("cap_from", m->cap_from));
	fo_json_close(j);
}

static void questions_json(const struct fo_health *h, struct fo_json *j)
{
	fo_json_array(j, "questions");
	for (int i = 0; i < FO_HEALTH_ASKS; i++) {
		const struct fo_health_question *q = &h->question[i];
		fo_json_object(j, NULL);
		fo_json_put(j, FO_TEXT("id", q->id), FO_TEXT("question", q->text),
			    FO_TEXT("answer", fo_health_answer_name[q->answer]), FO_BOOL("bad", q->bad),
			    FO_BOOL("estimated", q->estimated));
		range_json(j, "figure", q->figure);
		fo_json_put(j, FO_TEXT("figure_of", q->figure_of), FO_TEXT("because", q->because));
		fo_json_texts(j, "evidence", q->evidence, q->evidences);
		fo_json_put(j, FO_TEXT("record", q->record), FO_TEXT("paste", q->paste));
		fo_json_close(j);
	}
	fo_json_close(j);
}

void fo_health_changes_json(const struct fo_health *h, struct fo_json *j)
{
	fo_json_array(j, "changes");
	for (size_t i = 0; i < h->changes; i++) {
		const struct fo_health_change *c = &h->change[i];
		fo_json_object(j, NULL);
		fo_json_put(j, FO_TEXT("id", c->id), FO_TEXT("title", c->title),
			    FO_TEXT("worth", fo_health_worth_name[c->worth]), FO_BOOL("of_this_job", c->priced),
			    FO_BOOL("serious", c->serious));
		range_json(j, "gain", c->gain);
		range_json(j, "mfu_after", c->mfu_after);
		range_json(j, "mfu_points", c->points);
		range_json(j, "year_usd", c->year_usd);
		fo_json_put(j, FO_TEXT("gain_from", c->gain_from), FO_TEXT("setting", c->setting),
			    FO_TEXT("now", c->now), FO_TEXT("proposed", c->proposed), FO_TEXT("paste", c->paste),
			    FO_TEXT("why", c->why));
		fo_json_texts(j, "sources", c->source, c->sources);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void savings_json(const struct fo_health *h, struct fo_json *j)
{
	const struct fo_health_savings *s = &h->savings;
	const struct fo_range none = fo_range(__builtin_nan(""));
	fo_json_object(j, "savings");
	fo_json_bool(j, "known", s->known);
	fo_json_text(j, "why_not", s->why_not);
	range_json(j, "together", s->together);
	range_json(j, "mfu_after", s->mfu_after);
	range_json(j, "rent_usd_per_hour", s->rent);
	fo_json_text(j, "rent_from", s->rent_from);
	range_json(j, "share_of_year", h->given.year);
	range_json(j, "year_cost", s->known ? s->price.year_cost : none);
	range_json(j, "saved_share", s->known ? s->price.saved_share : none);
	range_json(j, "year_saved", s->known ? s->price.year_saved : none);
	range_json(j, "recovered", s->known ? s->price.recovered : none);
	range_json(j, "recovered_year", s->recovered_year);
	fo_json_close(j);
}

static void files_json(const struct fo_health *h, struct fo_json *j)
{
	fo_json_array(j, "files");
	for (size_t i = 0; i < h->files; i++) {
		const struct fo_health_file *f = &h->file[i];
		fo_json_record(j, NULL, FO_TEXT("path", f->path), FO_TEXT("kind", fo_health_kind_name[f->kind]),
			       FO_TEXT("what", f->what), FO_TEXT("why", f->why), FO_BOOL("named", f->named));
	}
	fo_json_close(j);
}

void fo_health_json(const struct fo_health *h, struct fo_json *j)
{
	fo_json_bool(j, "serious", h->serious);
	fo_json_put(j, FO_REAL("devices", h->devices), FO_TEXT("devices_from", h->devices_from),
		    FO_TEXT("device", h->device ? h->device->name : NULL), FO_TEXT("device_from", h->device_from));
	mfu_json(h, j);
	questions_json(h, j);
	fo_health_changes_json(h, j);
	savings_json(h, j);
	fo_json_texts(j, "conflicts", h->conflict, h->conflicts);
	files_json(h, j);
}
