/* Words about a job and its settings. */
#include "audit/config_int.h"

#include <string.h>

/* ---- what the job is ---- */

/* By its beginning: "megatron" stands for its arguments and for its YAML. */
bool fo_site_form(const struct fo_site *s, const char *forms)
{
	const char *id = s->job->form ? s->job->form->id : "";
	for (const char *at = forms; at && *at; at += strcspn(at, " "), at += *at == ' ')
		if (!strncmp(id, at, strcspn(at, " ")))
			return true;
	return false;
}

bool fo_site_trains_all(const struct fo_site *s) { return !fo_site_is(s, FO_JOB_ADAPTERS, 1); }
bool fo_site_spans(const struct fo_site *s) { return s->shape->devices > s->domain; }

/* ---- words ---- */

const char *fo_site_text(const struct fo_site *s, enum fo_job_setting x, double number)
{
	struct fo_job_value was = s->job->value[x];
	fo_job_set(s->job, x, number);
	const char *text = fo_job_own_text(s->job, x);
	s->job->value[x] = was;
	return text;
}

const char *fo_site_evidence(const struct fo_site *s, enum fo_job_setting x)
{
	const struct fo_job_value *v = &s->job->value[x];
	if (v->file && v->line > 0)
		return fo_site_say(s, "%s:%d", v->file, v->line);
	if (v->file)
		return v->file;
	if (v->origin == FO_JOB_GIVEN)
		return "--set";
	const struct fo_job_form *f = s->job->form;
	const char *kind = f ? strstr(f->name, " (") : NULL;
	size_t name = 0;
	if (f)
		name = kind ? (size_t)(kind - f->name) : strlen(f->name);
	if (v->origin == FO_JOB_DEFAULT && f)
		return fo_site_say(s, "default of %.*s%s%s", (int)name, f->name, f->release ? " " : "",
				   f->release ? f->release : "");
	return f ? f->name : "the job";
}

const char *fo_site_gb(const struct fo_site *s, struct fo_range bytes)
{
	const double gib = 1 << 30; /* as nvidia-smi and PyTorch count */
	const char *low = fo_site_say(s, "%.0f", bytes.low / gib), *high = fo_site_say(s, "%.0f", bytes.high / gib);
	return strcmp(low, high) ? fo_site_say(s, "%s to %s GiB", low, high) : fo_site_say(s, "%s GiB", low);
}

const char *fo_site_percent(const struct fo_site *s, struct fo_range share)
{
	const char *low = fo_site_say(s, "%.0f", 100 * share.low), *high = fo_site_say(s, "%.0f", 100 * share.high);
	return strcmp(low, high) ? fo_site_say(s, "%s to %s %%", low, high) : fo_site_say(s, "%s %%", low);
}
