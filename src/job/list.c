/* A job as a table for people and as JSON for programs. */
#include "base/str.h"
#include "job/job.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

const char *fo_job_env(const struct fo_job *job, const char *name)
{
	for (int64_t i = job->envs; i-- > 0;)
		if (!strcmp(job->env[i].name, name))
			return job->env[i].value;
	return NULL;
}

static const char *id_of(struct fo_doc *doc, int s)
{
	char id[64];
	snprintf(id, sizeof id, "%s", fo_job_setting_row[s].id);
	for (char *p = id; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	return fo_doc_printf(doc, "%s", id);
}

static const char *last_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* The only file that states something; NULL: none, or there are several. */
static const char *only_file(const struct fo_job *job)
{
	const char *file = NULL;
	for (int s = 0; s < FO_JOB_SETTINGS; s++) {
		const char *other = job->value[s].file;
		if (file && other && strcmp(file, other))
			return NULL;
		file = file ? file : other;
	}
	return file;
}

/* Where a value is from: "line 41", of several files "job.toml:41"; "default", "the option". */
static const char *origin(struct fo_doc *doc, const struct fo_job *job, const struct fo_job_value *v, bool one_file)
{
	const char *release = job->form ? job->form->release : NULL;
	if (v->file && one_file)
		return fo_doc_printf(doc, "line %d", v->line);
	if (v->file)
		return fo_doc_printf(doc, "%s:%d", last_name(v->file), v->line);
	if (v->origin == FO_JOB_GIVEN)
		return "the option";
	if (v->origin == FO_JOB_DEFAULT)
		return release ? "default" : "follows";
	return "";
}

static const char *shortened(struct fo_doc *doc, const char *text, size_t room)
{
	char safe[256];
	fo_str_visible(safe, sizeof safe, text);
	return strlen(safe) > room ? fo_doc_printf(doc, "%.*s...", (int)room - 3, safe)
				   : fo_doc_printf(doc, "%s", safe);
}

enum { VALUE_ROOM = 13, KEY_ROOM = 24, FROM_ROOM = 16, UNREAD_SHOWN = 40 }; /* 80 columns in all */

/* The end of a long key says most. */
static const char *key_end(struct fo_doc *doc, const char *key)
{
	size_t n = strlen(key);
	return n <= KEY_ROOM ? shortened(doc, key, KEY_ROOM)
			     : fo_doc_printf(doc, "...%s", shortened(doc, key + n - (KEY_ROOM - 3), KEY_ROOM));
}

void fo_job_list(struct fo_job *job, struct fo_doc *doc)
{
	if (job->form)
		fo_doc_line(doc, "Read as", "%s", job->form->name);
	if (job->form && job->form->release)
		fo_doc_line(doc, "Defaults", "of %s %s", job->form->name, job->form->release);
	if (job->has_model)
		fo_doc_line(doc, "Model", "%s, from %s", job->model.name, last_name(job->model_from));
	else
		fo_doc_line(doc, "Model", "not known: %s",
			    job->model_missing ? job->model_missing : "no file was read");
	bool one_file = only_file(job);
	if (one_file)
		fo_doc_line(doc, "File", "%s", only_file(job));
	fo_doc_heading(doc, "Settings");
	fo_doc_table(doc, FO_DRAW_FITTED, NULL, "llll", "setting", "value", "from", "key");
	for (int s = 0; s < FO_JOB_SETTINGS; s++) {
		const struct fo_job_value *v = &job->value[s];
		if (v->origin == FO_JOB_UNKNOWN)
			continue;
		fo_doc_cells(doc, fo_job_setting_row[s].meaning,
			     FO_CELLS(id_of(doc, s),
				      shortened(doc, fo_job_text(job, (enum fo_job_setting)s), VALUE_ROOM),
				      shortened(doc, origin(doc, job, v, one_file), FROM_ROOM),
				      v->key ? key_end(doc, v->key) : ""));
	}
	const char *unknown = "";
	for (int s = 0; s < FO_JOB_SETTINGS; s++)
		if (job->value[s].origin == FO_JOB_UNKNOWN)
			unknown = fo_doc_join(doc, unknown, id_of(doc, s));
	if (*unknown)
		fo_doc_remark(doc, "Not stated, and without a default: %s.", unknown);
	if (job->notes)
		fo_doc_heading(doc, "Notes");
	for (int64_t i = 0; i < job->notes; i++)
		fo_doc_item(doc, "%s", job->note[i]);
	if (job->unread_count)
		fo_doc_heading(doc, "Not read");
	for (int64_t i = 0; i < job->unread_count && i < UNREAD_SHOWN; i++)
		fo_doc_item(doc, "%s", job->unread[i]);
	if (job->unread_count > UNREAD_SHOWN)
		fo_doc_remark(doc, "and %lld more", (long long)(job->unread_count - UNREAD_SHOWN));
}

static const char *const origin_name[] = {
	[FO_JOB_UNKNOWN] = "unknown", [FO_JOB_STATED] = "stated", [FO_JOB_GIVEN] = "given",
	[FO_JOB_DEFAULT] = "default", [FO_JOB_AUTO] = "auto",
};

static void value_json(struct fo_job *job, int s, struct fo_json *json)
{
	const struct fo_job_value *v = &job->value[s];
	enum fo_job_kind kind = fo_job_setting_row[s].kind;
	char id[64];
	snprintf(id, sizeof id, "%s", fo_job_setting_row[s].id);
	for (char *p = id; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	fo_json_object(json, id);
	if (v->origin == FO_JOB_AUTO)
		fo_json_text(json, "value", NULL);
	else if (kind == FO_JOB_TEXT || kind == FO_JOB_WORD)
		fo_json_text(json, "value", fo_job_text(job, (enum fo_job_setting)s));
	else if (kind == FO_JOB_SWITCH)
		fo_json_bool(json, "value", v->number != 0);
	else
		fo_json_real(json, "value", v->number);
	fo_json_text(json, "origin", origin_name[v->origin]);
	fo_json_text(json, "text", v->text);
	fo_json_text(json, "key", v->key);
	fo_json_text(json, "file", v->file);
	if (v->line)
		fo_json_int(json, "line", v->line);
	fo_json_close(json);
}

void fo_job_json(struct fo_job *job, struct fo_json *json)
{
	fo_json_text(json, "form", job->form ? job->form->id : NULL);
	fo_json_text(json, "release", job->form ? job->form->release : NULL);
	fo_json_text(json, "model", job->has_model ? job->model.name : NULL);
	fo_json_text(json, "model_from", job->has_model ? job->model_from : NULL);
	fo_json_text(json, "model_missing", job->model_missing);
	fo_json_object(json, "settings");
	for (int s = 0; s < FO_JOB_SETTINGS; s++)
		if (job->value[s].origin != FO_JOB_UNKNOWN)
			value_json(job, s, json);
	fo_json_close(json);
	fo_json_object(json, "environment");
	for (int64_t i = 0; i < job->envs; i++)
		fo_json_text(json, job->env[i].name, job->env[i].value);
	fo_json_close(json);
	fo_json_texts(json, "notes", job->note, job->notes);
	fo_json_texts(json, "unread", job->unread, job->unread_count);
}
