#include "base/fs.h"
#include "record/record.h"
#include "train/resume.h"
#include "train/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void damaged(void *ctx, const char *why, const char *instead)
{
	fo_events_warn(ctx, "%s; going on from '%s' instead", why, instead);
}

void fo_setup_find(struct fo_setup *s)
{
	fo_status st = fo_ckpt_pick(&s->arena, s->folder.ckpt_dir, 0, damaged, s->events, &s->found.path,
				    &s->found.meta);
	if (st != FO_OK) {
		fo_err_save(&s->found.error, st);
		s->found.meta = (struct fo_ckpt_meta){ 0 };
	}
}

fo_status fo_setup_has_weights(struct fo_setup *s)
{
	struct fo_record r;
	char *found;
	FO_TRY(fo_ckpt_newest(&s->arena, s->folder.ckpt_dir, true, &found));
	if (found || !fo_fs_exists(fo_arena_printf(&s->arena, "%s/log.jsonl", s->run->dir)))
		return FO_OK;
	FO_TRY(fo_record_open(&r, s->run->dir, 0));
	bool none = fo_record_saves_none(&r);
	int64_t steps = (int64_t)r.step.n;
	fo_record_fini(&r);
	if (!none)
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG,
			       "the run in '%s' did %lld steps and has no checkpoint to go on from: with "
			       "checkpoint.last=no none of its weights were saved",
			       s->run->dir, (long long)steps),
		       "choose another run.dir, or remove this one to train it from the start; checkpoint.last=yes or "
		       "checkpoint.every saves weights");
}

/* Fills in what the checkpoint in `path` records of the run that made it; the rest stays NULL. Texts point into *file,
 * which is open if this returns true. */
static bool read_record(const char *path, struct fo_record *file, struct fo_model *model, uint64_t *val_checksum,
			struct fo_resume_side *out)
{
	char *end;
	if (fo_model_load(path, model) == FO_OK)
		out->model = model;
	if (fo_record_open(file, path, 0) != FO_OK) {
		fo_err_clear();
		return false;
	}
	fo_err_clear();
	if (*file->passes)
		out->passes = file->passes;
	if (*file->isa && !*file->device)
		out->kernels = file->isa;
	*val_checksum = strtoull(file->val_checksum, &end, 16);
	if (*file->val_checksum && !*end)
		out->val_checksum = val_checksum;
	return true;
}

static void hint_what_to_do(struct fo_setup *s, fo_status st, const struct fo_resume_differences *d)
{
	struct fo_str todo = { 0 };
	if (d->set.len)
		fo_str_printf(&todo, "set %s, ", d->set.data);
	if (d->model)
		fo_str_puts(&todo, "let model.name be a copy of that checkpoint's config.json, ");
	if (d->data)
		fo_str_printf(&todo, "restore the files in '%s', ", s->corpus.dir);
	fo_hint(st, "%.*s or choose another run.dir; docs/safety.md lists what may change", (int)todo.len - 2,
		todo.data);
	fo_str_fini(&todo);
}

/* Says in one line which options of the learning rate are others than before: allowed, and easily done unknowingly. */
static void say_schedule(const struct fo_setup *s, const struct fo_record *was)
{
	static const char *const key[] = { "optim.lr", "optim.schedule", "optim.final-lr", "optim.decay-share",
					   "optim.warmup" };
	struct fo_str text = { 0 };
	if (!s->hooks->options)
		return;
	struct fo_opt_set now = *s->hooks->options;
	now.arena = (struct fo_arena){ 0 }; /* takes the texts */
	for (size_t i = 0; i < sizeof key / sizeof *key; i++) {
		const int row = fo_opt_find(now.rows, key[i]);
		const struct fo_record_option *before = fo_record_option(was, key[i]);
		const char *value = fo_opt_value_text(&now, row);
		/* A length of warm-up that nobody set follows train.steps. */
		if (!before || (now.origin[row].from == FO_ORIGIN_DEFAULT && !strcmp(key[i], "optim.warmup")))
			continue;
		char *end_was, *end_is;
		double number_was = strtod(before->value, &end_was), number_is = strtod(value, &end_is);
		bool numbers = !*end_was && !*end_is;
		if (numbers ? number_was != number_is : strcmp(before->value, value) != 0)
			fo_str_printf(&text, "%s%s was %s and is %s", text.len ? ", " : "", key[i], before->value,
				      value);
	}
	fo_arena_fini(&now.arena);
	if (text.len)
		fo_events_warn(s->events, "the learning rate changes from here on: %s", text.data);
	fo_str_fini(&text);
}

/* Warns of what changes, refuses what must not, in one sentence that names all of it. */
static fo_status compare_record(struct fo_setup *s, const struct fo_ckpt_meta *meta)
{
	const char *path = s->found.path;
	struct fo_resume_differences d;
	struct fo_str passes = { 0 };
	struct fo_record file;
	struct fo_model model;
	uint64_t val_checksum;
	struct fo_resume_side was = { .meta = &s->found.meta };
	fo_status st = FO_OK;
	bool opened = read_record(path, &file, &model, &val_checksum, &was);
	fo_passes_text(&s->step.program.run.pass, &passes);
	const struct fo_resume_side is = { .model = &s->step.model,
					   .meta = meta,
					   .passes = passes.data,
					   .val_checksum = &s->corpus.val.checksum,
					   .kernels = s->cuda ? NULL : fo_isa_name[s->step.options.isa] };
	fo_resume_compare(&was, &is, &d);
	if (d.refused.len) {
		st = fo_fail(FO_EARG, "this run is not the one of checkpoint '%s': %s", path, d.refused.data);
		hint_what_to_do(s, st, &d);
	} else {
		for (char *line = d.warned.data, *next; line && *line; line = next) {
			next = line + strcspn(line, "\n");
			*next++ = 0;
			fo_events_warn(s->events, "%s", line);
		}
		if (opened)
			say_schedule(s, &file);
		if (d.unknown.len)
			fo_events_warn(s->events, "checkpoint '%s' does not record %s: not compared with this run",
				       path, d.unknown.data);
	}
	fo_resume_differences_fini(&d);
	fo_str_fini(&passes);
	if (opened)
		fo_record_fini(&file);
	return st;
}

void fo_setup_adopt(struct fo_ckpt_meta *meta, const struct fo_ckpt_meta *from)
{
	const int64_t seq = meta->seq, rows = meta->rows_per_step, packing = meta->packing;
	int64_t left_out;
	*meta = *from;
	meta->loader.next_step = fo_resume_next_step(from->loader.next_step, from->rows_per_step, rows, &left_out);
	meta->seq = seq;
	meta->rows_per_step = rows;
	meta->packing = packing;
}

fo_status fo_setup_resume(struct fo_setup *s, struct fo_ckpt_meta *meta)
{
	if (s->found.error.st != FO_OK)
		return fo_err_raise(&s->found.error);
	if (!s->found.path)
		return FO_OK;
	FO_TRY(compare_record(s, meta));
	FO_TRY(fo_setup_read(s, s->found.path));
	fo_setup_adopt(meta, &s->found.meta);
	return FO_OK;
}
