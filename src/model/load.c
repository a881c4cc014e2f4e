/* Finding a model by its name: a preset, a path, a name on Hugging Face. */
#include "base/fs.h"
#include "base/str.h"
#include "model/model.h"
#include "model/model_int.h"

#include <stdio.h>
#include <string.h>

static fo_status load_file(const char *path, struct fo_model *out)
{
	struct fo_arena a = { 0 };
	char *text;
	size_t len;
	fo_status st = fo_fs_read(&a, path, FO_MODEL_MAX_CONFIG, &text, &len);
	if (st == FO_OK)
		st = fo_model_parse(text, len, path, out);
	fo_arena_fini(&a);
	return st;
}

static const char *preset_name(int i) { return i < fo_model_preset_count() ? fo_model_preset(i)->name : NULL; }

/* The name most like `name` among name_of(0), name_of(1), ... up to NULL, other than two that were taken. */
static const char *nearest(const char *name, const char *(*name_of)(int), const char *const taken[2])
{
	const char *best = NULL, *at;
	int best_distance = 1 << 20;
	for (int i = 0; (at = name_of(i)); i++) {
		int d = fo_str_distance(name, at);
		if (d < best_distance && at != taken[0] && at != taken[1]) {
			best = at;
			best_distance = d;
		}
	}
	return best;
}

/* The refusal of an unknown name, with the nearest presets as a hint. An organisation in front ("meta-llama/") is not
 * part of a preset's name. */
static fo_status unknown(const char *name)
{
	char shown[128], list[256];
	const char *slash = strrchr(name, '/'), *last = slash && slash[1] ? slash + 1 : name, *near[3] = { 0 };
	for (int k = 0; k < 3; k++)
		near[k] = nearest(last, preset_name, near);
	snprintf(list, sizeof list, "'%s', '%s', '%s'", near[0], near[1], near[2]);
	fo_status st = fo_fail(FO_EARG, "unknown model '%s': neither a preset nor a config.json nor a folder with one",
			       fo_str_visible(shown, sizeof(shown), name));
	if (last != name)
		return fo_hint(st,
			       "nearest presets: %s, and %s on Hugging Face; of another model name its config.json, as "
			       "fetched",
			       list, nearest(name, fo_model_hub_id, (const char *[2]){ 0 }));
	return fo_hint(st, "nearest presets: %s; 'flatout flops --list' shows all", list);
}

fo_status fo_model_load(const char *name, struct fo_model *out)
{
	if (!name || !*name)
		return fo_fail(FO_EARG, "no model given: expected a preset or the path of a config.json");
	const struct fo_model *preset = fo_model_preset_named(name);
	if (preset) {
		*out = *preset;
		return FO_OK;
	}
	if (fo_fs_is_dir(name)) {
		struct fo_arena a = { 0 };
		fo_status st = load_file(fo_arena_printf(&a, "%s/config.json", name), out);
		fo_arena_fini(&a);
		return st;
	}
	const char *dot = strrchr(name, '.');
	if (dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml")))
		return fo_hint(fo_fail(FO_EARG, "'%s' is a run file, not a model", name),
			       "a model is a preset ('flatout flops --list'), a config.json, or a folder with one; "
			       "'flatout program %s' counts the step of a run",
			       name);
	if (fo_fs_exists(name))
		return load_file(name, out);
	preset = fo_model_of_hub(name); /* after the paths: a folder of that name is what somebody fetched */
	if (!preset)
		return unknown(name);
	*out = *preset;
	return FO_OK;
}
