/* The table of settings, and single values of a job. */
#include "job/job.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const struct fo_job_setting_row fo_job_setting_row[FO_JOB_SETTINGS] = {
#define FO_JOB_SETTING(id, kind, words, meaning) [FO_JOB_##id] = { #id, FO_JOB_##kind, words, meaning },
#include "job/settings.def"
#undef FO_JOB_SETTING
};

void fo_job_init(struct fo_job *job)
{
	*job = (struct fo_job){ 0 };
	for (int s = 0; s < FO_JOB_SETTINGS; s++)
		job->value[s].number = NAN;
}

void fo_job_copy(struct fo_job *to, const struct fo_job *from)
{
	*to = *from;
	to->arena = (struct fo_arena){ 0 };
}

void fo_job_fini(struct fo_job *job) { fo_arena_fini(&job->arena); }

void fo_job_set(struct fo_job *job, enum fo_job_setting s, double number)
{
	const struct fo_job_value *v = &job->value[s];
	job->value[s] = (struct fo_job_value){
		.origin = FO_JOB_GIVEN, .number = number, .key = v->key, .unit = v->unit, .power = v->power
	};
}

/* Word number n of a text of words. */
static const char *word(struct fo_job *job, const char *words, double n)
{
	for (; n >= 1 && words; n--) {
		words = strchr(words, ' ');
		if (words)
			words++;
	}
	return words ? fo_arena_printf(&job->arena, "%.*s", (int)strcspn(words, " "), words) : "unknown";
}

const char *fo_job_text(struct fo_job *job, enum fo_job_setting s)
{
	const struct fo_job_value *v = &job->value[s];
	if (v->origin == FO_JOB_AUTO)
		return "auto";
	if (fo_job_setting_row[s].kind == FO_JOB_TEXT)
		return v->text ? v->text : "unknown";
	if (isnan(v->number))
		return "unknown";
	if (fo_job_setting_row[s].kind == FO_JOB_SWITCH)
		return v->number != 0 ? "on" : "off";
	if (fo_job_setting_row[s].kind == FO_JOB_WORD)
		return word(job, fo_job_setting_row[s].words, v->number);
	return fo_arena_printf(&job->arena, "%.15g", v->number);
}

double fo_job_own_number(const struct fo_job *job, enum fo_job_setting s, double number)
{
	const struct fo_job_value *v = &job->value[s];
	if (v->power)
		return exp2(number);
	return v->unit > 0 ? number / v->unit : number;
}

/* Words that say "off" themselves. */
static bool says_off(const char *text)
{
	static const char *const off[] = { "off", "false", "no", "none", "null", "disabled", "0", "" };
	for (size_t i = 0; i < sizeof off / sizeof *off; i++)
		if (!strcasecmp(text, off[i]))
			return true;
	return false;
}

const char *fo_job_own_text(struct fo_job *job, enum fo_job_setting s)
{
	const struct fo_job_value *v = &job->value[s];
	const char *text = fo_job_text(job, s);
	/* "mixed_precision: bf16" says that fp8 is off: "mixed_precision: off" is no value of it. */
	if (v->origin == FO_JOB_STATED && v->text && !strcmp(text, "off") && !says_off(v->text))
		return v->text;
	if (isnan(v->number) || v->origin == FO_JOB_AUTO || (!v->power && !(v->unit > 0)))
		return text;
	double own = fo_job_own_number(job, s, v->number);
	return v->power ? fo_arena_printf(&job->arena, "%.15g (2^%.15g)", own, v->number)
			: fo_arena_printf(&job->arena, "%.15g", own);
}
