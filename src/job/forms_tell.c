/* Which framework a file is of. */
#include "base/str.h"
#include "job/forms.h"

#include <stdio.h>
#include <string.h>

/* Of two forms that share a table and fit alike, the first one is meant: it is the more general. */
const struct fo_form *const fo_form[] = {
	&fo_form_torchtitan, &fo_form_torchtitan_python, &fo_form_megatron,   &fo_form_nemo,
	&fo_form_bridge,     &fo_form_deepspeed,         &fo_form_accelerate, &fo_form_transformers,
	&fo_form_axolotl,    &fo_form_llamafactory,      &fo_form_maxtext,    &fo_form_litgpt,
	&fo_form_nanotron,   &fo_form_foundry,           &fo_form_olmo,       &fo_form_olmo_yaml,
	&fo_form_neox,       &fo_form_flatout,           &fo_form_hf_model,
};
const int fo_forms = sizeof fo_form / sizeof *fo_form;

enum { SIGNATURE = 4, ENOUGH = 2 };

static int points_of(const struct fo_form *f, const struct fo_conf *c)
{
	int points = 0;
	for (size_t i = 0; i < c->entries && i < FO_FORM_JUDGED; i++) {
		const char *path = c->entry[i].path;
		if (fo_form_lists(f, f->signature, path))
			points += SIGNATURE;
		else if (fo_form_row_of(f, path))
			points++;
	}
	return points;
}

static fo_status unknown(const struct fo_conf *c)
{
	char shown[64], seen[256] = "";
	size_t n = 0;
	for (size_t i = 0; i < c->entries && i < 3 && n < sizeof seen; i++)
		n += (size_t)snprintf(seen + n, sizeof seen - n, "%s'%s'", i ? ", " : "",
				      fo_str_visible(shown, sizeof shown, c->entry[i].path));
	struct fo_str known = { 0 };
	for (int i = 0; i < fo_forms; i++)
		if (fo_form[i]->name.name && fo_form[i] != &fo_form_hf_model)
			fo_str_printf(&known, "%s%s", known.len ? ", " : "", fo_form[i]->name.name);
	fo_status st;
	size_t variables = 0;
	for (size_t i = 0; i < c->entries; i++)
		variables += !strncmp(c->entry[i].path, "env.", 4) || !strncmp(c->entry[i].path, "launch.", 7);
	if (c->format == FO_CONF_ARGUMENTS && c->entries && 5 * variables >= 4 * c->entries)
		st = fo_fail(FO_EFORMAT, "'%s' is a script that sets %zu variables and no setting of a job", c->file,
			     variables);
	else if (c->entries)
		st = fo_fail(FO_EFORMAT,
			     "'%s' is no training configuration that is known here: read as %s, it has %zu "
			     "setting%s, the first %s",
			     c->file, fo_conf_format_name[c->format], c->entries, fo_plural(c->entries), seen);
	else
		st = fo_fail(FO_EFORMAT, "'%s' holds no settings: read as %s", c->file, fo_conf_format_name[c->format]);
	fo_hint(st, "known are the configurations of %s", known.data);
	fo_str_fini(&known);
	return st;
}

static bool related(const struct fo_form *a, const struct fo_form *b)
{
	enum { TABLES = sizeof a->rows / sizeof *a->rows };
	for (int i = 0; i < TABLES && a->rows[i]; i++)
		for (int k = 0; k < TABLES && b->rows[k]; k++)
			if (a->rows[i] == b->rows[k])
				return true;
	return false;
}

fo_status fo_form_of(const struct fo_conf *c, const struct fo_form **out)
{
	int best = 0, second = 0;
	const struct fo_form *other = NULL;
	*out = NULL;
	for (int i = 0; i < fo_forms; i++) {
		int points = points_of(fo_form[i], c);
		if (points > best) {
			second = best;
			other = *out;
			best = points;
			*out = fo_form[i];
		} else if (points > second) {
			second = points;
			other = fo_form[i];
		}
	}
	if (best < ENOUGH && fo_conf_is_template(c))
		return fo_conf_refuse_template(c);
	if (best < ENOUGH)
		return unknown(c);
	if (second == best && !related(*out, other))
		return fo_hint(fo_fail(FO_EFORMAT, "'%s' looks as much like a configuration of %s as of %s", c->file,
				       (*out)->name.name, other->name.name),
			       "give the whole file: the keys that differ are missing");
	return FO_OK;
}
