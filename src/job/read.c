/* Several files as one job: which goes first, the caller's own settings, the model. */
#include "base/str.h"
#include "base/text.h"
#include "job/forms.h"

#include <stdio.h>
#include <stdlib.h>

enum { FILES_MAX = 32 };

struct all {
	struct fo_job *job;
	struct fo_conf conf[FILES_MAX];
	const struct fo_form *form[FILES_MAX];
	bool named[FILES_MAX]; /* a script takes the file in by its name */
	const char *const *path;
	int files;
	struct fo_conf given; /* --set as entries without a line */
	struct fo_model shape;
	const char *model_name, *no_shape;
	const struct fo_conf *model_file; /* a config.json among the files; NULL: none */
	const char *arguments;            /* of the caller, behind the files; NULL */
};

/* ---- the caller's settings ---- */

int fo_job_split_settings(const char *text, struct fo_arena *arena, const char ***out)
{
	int n = 0;
	const char **list = fo_arena_alloc(arena, (strlen(text) + 1) * sizeof *list);
	while (*text) {
		const char *end = text + strcspn(text, ",");
		while (*end) {
			const char *next = end + 1;
			size_t equals = strcspn(next, "=,");
			if (next[equals] == '=')
				break;
			end = next + strcspn(next, ",");
		}
		list[n++] = fo_arena_printf(arena, "%.*s", (int)(end - text), text);
		text = *end ? end + 1 : end;
	}
	*out = list;
	return n;
}

static const char *setting_names(struct fo_arena *a)
{
	struct fo_str s = { 0 };
	for (int i = 0; i < FO_JOB_SETTINGS; i++) {
		fo_str_puts(&s, i ? ", " : "");
		for (const char *p = fo_job_setting_row[i].id; *p; p++)
			fo_str_printf(&s, "%c", tolower((unsigned char)*p));
	}
	const char *text = fo_arena_strdup(a, s.data);
	fo_str_fini(&s);
	return text;
}

static int setting_named(const char *name)
{
	for (int s = 0; s < FO_JOB_SETTINGS; s++)
		if (fo_conf_same_key(fo_job_setting_row[s].id, name))
			return s;
	return -1;
}

/* "tp=8": a setting by its id. */
static fo_status set_by_id(struct fo_job *job, enum fo_job_setting s, const char *key, const char *value)
{
	struct fo_job_value v = { .origin = FO_JOB_GIVEN,
				  .number = NAN,
				  .text = fo_arena_strdup(&job->arena, value),
				  .key = fo_arena_strdup(&job->arena, key) };
	enum fo_job_kind kind = fo_job_setting_row[s].kind;
	if (kind != FO_JOB_TEXT && !fo_form_value(s, value, &v.number)) {
		const char *expected = "a number";
		if (kind == FO_JOB_SWITCH)
			expected = "on or off";
		else if (kind == FO_JOB_WORD)
			expected = fo_arena_printf(&job->arena, "one of: %s", fo_job_setting_row[s].words);
		return fo_fail(FO_EARG, "--set %s=%s: expected %s", key, value, expected);
	}
	job->value[s] = v;
	return FO_OK;
}

static fo_status take_given(struct all *all, const struct fo_job_given *given)
{
	for (int i = 0; given && i < given->sets; i++) {
		const char *text = given->set[i], *equals = strchr(text, '=');
		if (!equals || equals == text)
			return fo_fail(FO_EARG, "--set %s: expected NAME=VALUE", text);
		char *key = fo_arena_printf(&all->job->arena, "%.*s", (int)(equals - text), text);
		int s = setting_named(key);
		if (s >= 0) {
			FO_TRY(set_by_id(all->job, (enum fo_job_setting)s, key, equals + 1));
			continue;
		}
		bool known = false;
		for (int f = 0; f < all->files; f++)
			known |= fo_form_knows(all->form[f], key);
		if (!known)
			return fo_hint(fo_fail(FO_EARG, "--set %s: no setting has this name", text),
				       "settings are %s; or a key as the configuration spells it",
				       setting_names(&all->job->arena));
		FO_TRY(fo_conf_add_given(&all->given, key, equals + 1));
	}
	return FO_OK;
}

/* ---- files ---- */

static bool is_model(const struct all *all, int f) { return all->form[f] == &fo_form_hf_model; }

static void reading(struct all *all, int f, struct fo_reading *r)
{
	*r = (struct fo_reading){ .job = all->job,
				  .conf = &all->conf[f],
				  .form = all->form[f],
				  .shape = &all->shape,
				  .model_name = &all->model_name,
				  .no_shape = &all->no_shape };
}

/* Programs that answer instead of training. */
static bool is_inference(const char *script)
{
	static const char *const part[] = { "text_generation", "text_gen", "inference", "vllm.entrypoints" };
	for (size_t i = 0; i < sizeof part / sizeof *part; i++)
		if (strstr(fo_text_file_name(script), part[i]))
			return true;
	return false;
}

static fo_status refuse_inference(const struct fo_conf *c)
{
	const struct fo_conf_entry *found = NULL;
	for (size_t i = 0; i < c->entries; i++) {
		if (strcmp(c->entry[i].path, "launch.script"))
			continue;
		if (!is_inference(c->entry[i].value))
			return FO_OK;
		found = &c->entry[i];
	}
	if (!found)
		return FO_OK;
	char shown[128];
	fo_fail(FO_EFORMAT, "%s:%d: '%s' is inference, and an audit is of a training", c->file, found->line,
		fo_str_visible(shown, sizeof shown, fo_text_file_name(found->value)));
	return fo_hint(FO_EFORMAT, "give the script or the configuration that starts the training");
}

static bool same_name(const char *a, const char *b) { return !strcmp(fo_text_file_name(a), fo_text_file_name(b)); }

static bool was_given(const struct all *all, const char *file)
{
	for (int f = 0; f < all->files; f++)
		if (same_name(file, all->path[f]))
			return true;
	return false;
}

static bool is_source(const struct fo_conf_entry *e) { return !strcmp(e->path, FO_CONF_SOURCE); }

/* Marks the files that scripts take in by their names. */
static void mark_named(struct all *all)
{
	for (int f = 0; f < all->files; f++)
		for (size_t i = 0; i < all->conf[f].entries; i++)
			for (int k = 0; k < all->files && is_source(&all->conf[f].entry[i]); k++)
				all->named[k] |= same_name(all->conf[f].entry[i].value, all->path[k]);
}

/* Is `file` what entry `e` of the script `by` takes in? A variable ("source $CONFIG") may be any that nothing names. */
static bool takes_in(const struct all *all, int by, const struct fo_conf_entry *e, int file)
{
	if (!is_source(e) || by == file)
		return false;
	if (e->value[0] == '$')
		return all->conf[file].format == FO_CONF_ARGUMENTS && !all->named[file];
	return same_name(e->value, all->path[file]);
}

/* The first file that a script takes in and that was not given; NULL: none. *by: the script. */
static const struct fo_conf_entry *source_missing(const struct all *all, const struct fo_conf **by)
{
	for (int f = 0; f < all->files; f++)
		for (size_t i = 0; i < all->conf[f].entries; i++) {
			const struct fo_conf_entry *e = &all->conf[f].entry[i];
			bool given = false;
			for (int k = 0; k < all->files; k++)
				given |= takes_in(all, f, e, k);
			if (!is_source(e) || given)
				continue;
			*by = &all->conf[f];
			return e;
		}
	return NULL;
}

/* The script among the files that takes this one in; -1: none does. */
static int taken_in_by(const struct all *all, int file)
{
	for (int f = 0; f < all->files; f++)
		for (size_t i = 0; i < all->conf[f].entries; i++)
			if (takes_in(all, f, &all->conf[f].entry[i], file))
				return f;
	return -1;
}

/* A file that a script takes in may set variables alone: then it is of the script's framework. */
static fo_status form_of(struct all *all, int file)
{
	fo_status st = fo_form_of(&all->conf[file], &all->form[file]);
	int by = taken_in_by(all, file);
	if (st != FO_EFORMAT || by < 0)
		return st;
	fo_err_clear();
	return fo_form_of(&all->conf[by], &all->form[file]);
}

static fo_status read_all(struct all *all)
{
	for (int f = 0; f < all->files; f++) {
		bool text = all->arguments && f == all->files - 1;
		fo_status st = text ? fo_conf_parse(all->arguments, strlen(all->arguments), all->path[f], NULL,
						    &all->conf[f])
				    : fo_conf_read(all->path[f], &all->conf[f]);
		if (st == FO_EFORMAT && !*fo_err_hint())
			fo_hint(st,
				"a training configuration was expected, and by its content "
				"this was read as %s; a log of "
				"a run is for 'flatout mfu'",
				fo_conf_format_name[all->conf[f].format]);
		FO_TRY(st);
		FO_TRY(refuse_inference(&all->conf[f]));
	}
	mark_named(all);
	for (int f = 0; f < all->files; f++) {
		FO_TRY(form_of(all, f));
		if (is_model(all, f) && !all->model_file)
			all->model_file = &all->conf[f];
		else if (is_model(all, f))
			return fo_fail(FO_EARG, "'%s' and '%s' are both models' config.json: give one",
				       all->model_file->file, all->conf[f].file);
	}
	for (int f = 0; f < all->files; f++)
		if (!is_model(all, f)) {
			all->job->form = &all->form[f]->name;
			return FO_OK;
		}
	return fo_hint(
		fo_fail(FO_EFORMAT, "'%s' is a model's config.json, no training configuration", all->conf[0].file),
		"give it beside the training configuration that it belongs to");
}

static fo_status refuse_two_jobs(const struct all *all)
{
	const struct fo_form *one = NULL;
	const char *file = NULL;
	for (int f = 0; f < all->files; f++) {
		const struct fo_form *form = all->form[f];
		if (one && form->alone && form != one)
			return fo_hint(fo_fail(FO_EARG, "'%s' is of %s and '%s' of %s: these are two jobs", file,
					       one->name.name, all->conf[f].file, form->name.name),
				       "give the files of one job, and the other in a call of its own");
		if (!one && form->alone) {
			one = form;
			file = all->conf[f].file;
		}
	}
	return FO_OK;
}

/* Files of a framework that decides go first, then in the order of the caller. */
static void apply_all(struct all *all)
{
	struct fo_reading r;
	for (int f = 0; f < all->files && all->given.entries; f++) {
		reading(all, f, &r);
		r.conf = &all->given;
		if (!is_model(all, f))
			fo_form_apply(&r);
	}
	for (int specific = 1; specific >= 0; specific--)
		for (int f = 0; f < all->files; f++)
			if (all->form[f]->specific == (specific == 1) && !is_model(all, f)) {
				reading(all, f, &r);
				fo_form_apply(&r);
			}
	for (int specific = 1; specific >= 0; specific--)
		for (int f = 0; f < all->files; f++)
			if (all->form[f]->specific == (specific == 1) && !is_model(all, f)) {
				reading(all, f, &r);
				fo_form_conclude(&r);
			}
}

/* A file that another one refers to and that was given is not missing. */
static void settle_missing(struct all *all)
{
	struct fo_job_value *v = &all->job->value[FO_JOB_MISSING_FILE];
	if (v->text && was_given(all, v->text))
		*v = (struct fo_job_value){ .number = NAN };
	const struct fo_conf *by;
	const struct fo_conf_entry *source = source_missing(all, &by);
	if (!source || v->text)
		return;
	struct fo_arena *a = &all->job->arena;
	*v = (struct fo_job_value){ .origin = FO_JOB_STATED,
				    .number = NAN,
				    .text = fo_arena_strdup(a, source->value),
				    .key = "source",
				    .file = fo_arena_strdup(a, by->file),
				    .line = source->line };
}

/* Numbers that follow from two others. */
static void complete(struct fo_job *job)
{
	double nodes = fo_job_number(job, FO_JOB_NODES), per = fo_job_number(job, FO_JOB_PER_NODE);
	struct fo_job_value *all = &job->value[FO_JOB_DEVICES];
	if (!fo_job_known(job, FO_JOB_DEVICES) && nodes >= 1 && per >= 1)
		*all = (struct fo_job_value){ .origin = job->value[FO_JOB_PER_NODE].origin,
					      .number = nodes * per,
					      .key = job->value[FO_JOB_PER_NODE].key,
					      .file = job->value[FO_JOB_PER_NODE].file,
					      .line = job->value[FO_JOB_PER_NODE].line };
}

/* ---- the model ---- */

static bool take_number(const struct fo_job *job, enum fo_job_setting s, int64_t *out)
{
	double v = fo_job_number(job, s);
	if (!(v >= 1 && v < 1e12))
		return false;
	*out = (int64_t)v;
	return true;
}

/* The first setting of the shape that is needed and not known; NULL: none. */
static const char *shape_of(struct fo_job *job, struct fo_model *m)
{
	const struct {
		enum fo_job_setting s;
		int64_t *to;
		bool needed;
	} field[] = {
		{ FO_JOB_LAYERS, &m->layers, true },
		{ FO_JOB_HIDDEN, &m->hidden, true },
		{ FO_JOB_HEADS, &m->heads, true },
		{ FO_JOB_FFN, &m->ffn, true },
		{ FO_JOB_VOCAB, &m->vocab, m->vocab == 0 },
		{ FO_JOB_KV_HEADS, &m->kv_heads, false },
		{ FO_JOB_HEAD_DIM, &m->head_dim, false },
		{ FO_JOB_MAX_POSITION, &m->max_position, m->learned_position },
	};
	int64_t vocab = m->vocab;
	for (size_t i = 0; i < sizeof field / sizeof *field; i++)
		if (!take_number(job, field[i].s, field[i].to) && field[i].needed)
			return fo_job_setting_row[field[i].s].meaning;
	if (vocab)
		m->vocab = vocab; /* padded */
	if (!m->kv_heads)
		m->kv_heads = m->heads;
	if (!m->head_dim && m->heads)
		m->head_dim = m->hidden / m->heads;
	if (!fo_job_known(job, FO_JOB_GATED))
		return "feed-forward: two matrices or, with a gate, three";
	m->tied = fo_job_is(job, FO_JOB_TIED, 1);
	m->gated = fo_job_is(job, FO_JOB_GATED, 1);
	int64_t experts = 0;
	if (take_number(job, FO_JOB_EXPERTS, &experts) && experts > 1) {
		m->experts = experts;
		m->family = m->kv_lora ? FO_FAMILY_DEEPSEEK : FO_FAMILY_MOE;
		take_number(job, FO_JOB_EXPERTS_ACTIVE, &m->experts_active);
		if (!take_number(job, FO_JOB_EXPERT_FFN, &m->expert_ffn))
			m->expert_ffn = m->ffn;
	}
	return NULL;
}

static bool states_shape(const struct fo_job *job)
{
	return fo_job_known(job, FO_JOB_LAYERS) && fo_job_known(job, FO_JOB_HIDDEN);
}

/* A preset or a name on Hugging Face; the folder in front of a name ("./assets/hf/Llama-3.1-8B") does not count. */
static const struct fo_model *preset_of(const char *name)
{
	const struct fo_model *m = fo_model_preset_named(name);
	m = m ? m : fo_model_of_hub(name);
	const char *last = fo_text_file_name(name);
	for (int i = 0; !m && fo_model_hub_id(i); i++)
		if (!strcasecmp(fo_text_file_name(fo_model_hub_id(i)), last))
			m = fo_model_of_hub(fo_model_hub_id(i));
	return m;
}

static const char *place_of(struct fo_job *job, enum fo_job_setting s)
{
	const struct fo_job_value *v = &job->value[s];
	if (v->file)
		return fo_arena_printf(&job->arena, "%s:%d", v->file, v->line);
	return v->origin == FO_JOB_GIVEN ? "the option" : "the framework's defaults";
}

static void use(struct fo_job *job, const struct fo_model *m, const char *from)
{
	job->model = *m;
	job->has_model = true;
	job->model_from = from;
}

/* What the files state beside the name of a known model replaces its dimensions. */
static void change(const struct fo_job *job, struct fo_model *m)
{
	const struct {
		enum fo_job_setting s;
		int64_t *to;
	} field[] = {
		{ FO_JOB_LAYERS, &m->layers },     { FO_JOB_HIDDEN, &m->hidden },     { FO_JOB_HEADS, &m->heads },
		{ FO_JOB_KV_HEADS, &m->kv_heads }, { FO_JOB_HEAD_DIM, &m->head_dim }, { FO_JOB_FFN, &m->ffn },
		{ FO_JOB_VOCAB, &m->vocab },
	};
	bool changed = false;
	for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
		int64_t v = 0;
		if (!fo_job_stated(job, field[i].s) || !take_number(job, field[i].s, &v) || v == *field[i].to)
			continue;
		*field[i].to = v;
		changed = true;
	}
	if (fo_job_stated(job, FO_JOB_TIED) && !isnan(fo_job_number(job, FO_JOB_TIED)) &&
	    m->tied != fo_job_is(job, FO_JOB_TIED, 1)) {
		m->tied = !m->tied;
		changed = true;
	}
	if (changed && strlen(m->name) + 10 < sizeof m->name)
		strcat(m->name, ", changed");
}

/* A dimension that is stated and cannot be, with its place; NULL: none. */
static const char *odd_number(struct fo_job *job)
{
	static const enum fo_job_setting needed[] = { FO_JOB_LAYERS, FO_JOB_HIDDEN, FO_JOB_HEADS, FO_JOB_FFN,
						      FO_JOB_VOCAB };
	int64_t n;
	for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
		if (!isnan(fo_job_number(job, needed[i])) && !take_number(job, needed[i], &n))
			return fo_arena_printf(&job->arena, "%s: the model's %s: %.15g is not a number from 1 to 1e12",
					       place_of(job, needed[i]), fo_job_setting_row[needed[i]].meaning,
					       fo_job_number(job, needed[i]));
	return NULL;
}

/* The model of the files; what is missing where there is none. */
static void model_of_files(struct all *all)
{
	struct fo_job *job = all->job;
	struct fo_arena *a = &job->arena;
	const char *name = all->model_name ? all->model_name : job->value[FO_JOB_MODEL].text;
	const struct fo_model *known = name ? preset_of(name) : NULL;
	if (known) {
		struct fo_model m = *known;
		change(job, &m);
		if (fo_model_check(&m) == FO_OK) {
			use(job, &m, place_of(job, FO_JOB_MODEL));
			return;
		}
		job->model_missing = fo_arena_strdup(a, fo_err_text());
		fo_err_clear();
		return;
	}
	if (all->no_shape) {
		job->model_missing = all->no_shape;
		return;
	}
	if (states_shape(job)) {
		struct fo_model m = all->shape;
		const char *missing = shape_of(job, &m);
		snprintf(m.name, sizeof m.name, "%.63s", name ? fo_text_file_name(name) : "the configuration's model");
		const char *odd = odd_number(job);
		if (odd) {
			job->model_missing = odd;
		} else if (missing) {
			job->model_missing = fo_arena_printf(
				a,
				"the configuration does not state the model's %s: give --model NAME or its config.json",
				missing);
		} else if (fo_model_check(&m) != FO_OK) {
			job->model_missing = fo_arena_strdup(a, fo_err_text());
			fo_err_clear();
		} else {
			use(job, &m, place_of(job, FO_JOB_LAYERS));
		}
		return;
	}
	char shown[256];
	if (job->value[FO_JOB_MODEL].text)
		job->model_missing = fo_arena_printf(
			a, "'%s' is no model that is known here: give --model NAME or its config.json",
			fo_str_visible(shown, sizeof shown, job->value[FO_JOB_MODEL].text));
	else
		job->model_missing = "no model is named: give --model NAME or its config.json";
}

static fo_status find_model(struct all *all, const struct fo_job_given *given)
{
	struct fo_job *job = all->job;
	struct fo_model m;
	if (given && given->model) {
		FO_TRY(fo_model_load(given->model, &m));
		use(job, &m, "the option");
	} else if (all->model_file) {
		FO_TRY(fo_model_parse(all->model_file->text, all->model_file->len, all->model_file->file, &m));
		use(job, &m, fo_arena_strdup(&job->arena, all->model_file->file));
	} else {
		model_of_files(all);
	}
	return FO_OK;
}

/* A job without a file: one that states nothing, in the form of the framework that is named. */
static fo_status read_none(struct all *all, const struct fo_job_given *given)
{
	all->files = 0;
	for (int f = 0; given->framework && f < fo_forms; f++)
		if (fo_form[f]->name.id && !strcmp(fo_form[f]->name.id, given->framework)) {
			all->conf[0].file = "the options";
			all->form[0] = fo_form[f];
			all->job->form = &fo_form[f]->name;
			all->files = 1;
			return FO_OK;
		}
	return given->framework ? fo_fail(FO_EARG, "'%s' is no framework that is known here", given->framework) : FO_OK;
}

/* What each job states for itself; a framework's example values would be taken for its own. */
static void forget_default_work(struct fo_job *job)
{
	static const enum fo_job_setting work[] = {
		FO_JOB_SEQ,     FO_JOB_MICRO_BATCH, FO_JOB_LOCAL_BATCH, FO_JOB_GLOBAL_BATCH, FO_JOB_ACCUMULATION,
		FO_JOB_DEVICES, FO_JOB_NODES,       FO_JOB_DTYPE,       FO_JOB_ZERO,         FO_JOB_SEQUENCE_PARALLEL
	};
	for (size_t i = 0; i < sizeof work / sizeof *work; i++)
		if (job->value[work[i]].origin == FO_JOB_DEFAULT)
			job->value[work[i]] = (struct fo_job_value){ .number = NAN };
}

static fo_status read_job(struct all *all, const struct fo_job_given *given)
{
	bool none = !all->files;
	FO_TRY(none ? read_none(all, given) : read_all(all));
	FO_TRY(refuse_two_jobs(all));
	FO_TRY(take_given(all, given));
	const struct fo_conf *by;
	all->job->partial = source_missing(all, &by) != NULL;
	apply_all(all);
	if (none)
		forget_default_work(all->job);
	settle_missing(all);
	complete(all->job);
	return find_model(all, given);
}

fo_status fo_job_read(const char *const *path, int files, const struct fo_job_given *given, struct fo_job *job)
{
	fo_job_init(job);
	const char *text = given ? given->arguments : NULL, *every[FILES_MAX];
	if (files < 1 && !text && !(given && given->model))
		return fo_fail(FO_EARG, "no configuration was given");
	if (files + (text != NULL) > FILES_MAX)
		return fo_fail(FO_EARG, "%d files were given: a job has at most %d", files, FILES_MAX);
	for (int f = 0; f < files; f++)
		every[f] = path[f];
	if (text)
		every[files++] = "the arguments";
	struct all *all = fo_xmalloc(sizeof *all);
	all->job = job;
	all->path = every;
	all->arguments = text;
	all->files = files;
	all->given.file = "--set";
	all->shape.norm_eps = 1e-5;
	all->shape.rope.theta = 10000;
	all->shape.rope.factor = 1;
	fo_status st = read_job(all, given);
	for (int f = 0; f < files; f++)
		fo_conf_fini(&all->conf[f]);
	fo_conf_fini(&all->given);
	free(all);
	return st;
}
