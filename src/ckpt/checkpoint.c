#define _GNU_SOURCE /* renameat2 */
#include "ckpt/ckpt.h"
#include "base/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#define SCHEMA 1
#define MAX_JSON ((size_t)1 << 20)

static const char *const file_name[] = { "config.json",       "model.safetensors", "tokenizer.json",
					 "state.safetensors", "training.json",     "run.json" };
enum { CONFIG, MODEL, TOKENIZER, STATE, TRAINING, RUN, FILES };

/* ---- saving ---- */

static char *training_json(struct fo_arena *a, const struct fo_ckpt_meta *m)
{
	struct fo_str s = { 0 };
	struct fo_json j;
	char hex[24];
	fo_json_begin(&j, &s, true);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "schema", SCHEMA);
	fo_json_int(&j, "step", m->step);
	fo_json_int(&j, "tokens", m->tokens);
	fo_json_real(&j, "loss", m->loss);
	fo_json_int(&j, "first_step", m->first_step);
	fo_json_real(&j, "first_loss", m->first_loss);
	fo_json_real(&j, "grad_norm", m->grad_norm);
	fo_json_text(&j, "precision", m->precision);
	fo_json_text(&j, "master", m->master);
	fo_json_text(&j, "moments", m->moments);
	/* 64-bit words as text: JSON readers lose bits beyond 2^53. */
	const struct {
		const char *key;
		uint64_t v;
	} word[] = { { "seed", m->seed },
		     { "tokenizer_checksum", m->tokenizer_checksum },
		     { "loader_seed", m->loader.seed },
		     { "shard_checksum", m->loader.shard_checksum } };
	for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
		snprintf(hex, sizeof hex, "%016" PRIx64, word[i].v);
		fo_json_text(&j, word[i].key, hex);
	}
	fo_json_int(&j, "loader_next_step", m->loader.next_step);
	fo_json_int(&j, "seq", m->seq);
	fo_json_int(&j, "rows_per_step", m->rows_per_step);
	fo_json_int(&j, "packing", m->packing);
	fo_json_int(&j, "skipped", m->skipped);
	fo_json_int(&j, "rewinds", m->rewinds);
	fo_json_array(&j, "recent_loss");
	for (int64_t i = 0; i < m->losses; i++)
		fo_json_real(&j, NULL, m->recent_loss[i]);
	fo_json_close(&j);
	fo_json_close(&j);
	fo_str_puts(&s, "\n");
	char *text = fo_arena_strdup(a, s.data);
	fo_str_fini(&s);
	return text;
}

/* What was handed to the file system: the manifest vouches for the bytes that were meant. To read them back would make
 * a write that went wrong look right. */
struct sum {
	uint64_t hash, bytes;
	bool there;
};

struct hashing {
	struct fo_map map;
	uint64_t hash;
};

static fo_status hash_map(void *ctx)
{
	struct hashing *h = ctx;
	h->hash = XXH3_64bits(h->map.data, h->map.len);
	return FO_OK;
}

static fo_status hash_file(const char *path, uint64_t *hash, uint64_t *size)
{
	struct hashing h = { 0 };
	FO_TRY(fo_map_open(&h.map, path));
	fo_status st = fo_map_guard(hash_map, &h);
	*hash = h.hash;
	*size = h.map.len;
	fo_map_close(&h.map);
	return st;
}

static fo_status write_manifest(struct fo_arena *a, const char *dir, const struct sum *sum)
{
	struct fo_str s = { 0 };
	struct fo_json j;
	fo_json_begin(&j, &s, true);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "schema", SCHEMA);
	fo_json_object(&j, "files");
	for (int i = 0; i < FILES; i++) {
		char hex[24];
		if (!sum[i].there)
			continue;
		snprintf(hex, sizeof hex, "%016" PRIx64, sum[i].hash);
		fo_json_object(&j, file_name[i]);
		fo_json_int(&j, "bytes", (int64_t)sum[i].bytes);
		fo_json_text(&j, "xxh3_64", hex);
		fo_json_close(&j);
	}
	fo_json_close(&j);
	fo_json_close(&j);
	fo_str_puts(&s, "\n");
	fo_status st = fo_fs_write_new(fo_arena_printf(a, "%s/manifest.json", dir), s.data, s.len);
	fo_str_fini(&s);
	return st;
}

static fo_status write_text(struct fo_arena *a, const char *dir, int file, const char *text, struct sum *sum)
{
	size_t n = strlen(text);
	sum[file] = (struct sum){ XXH3_64bits(text, n), n, true };
	return fo_fs_write_new(fo_arena_printf(a, "%s/%s", dir, file_name[file]), text, n);
}

/* Files whose writer tells the checksum; the size is the file system's. */
static fo_status written(struct fo_arena *a, const char *dir, int file, uint64_t hash, struct sum *sum)
{
	char *path = fo_arena_printf(a, "%s/%s", dir, file_name[file]);
	struct stat st;
	if (stat(path, &st))
		return fo_fail(FO_EIO, "cannot read '%s': %s", path, strerror(errno));
	sum[file] = (struct sum){ hash, (uint64_t)st.st_size, true };
	return FO_OK;
}

static fo_status write_files(struct fo_arena *a, const char *dir, const struct fo_ckpt_content *c,
			     const struct fo_ckpt_meta *meta)
{
	struct sum sum[FILES] = { 0 };
	uint64_t hash;
	const struct fo_tokenizer *t = c->tokenizer;
	FO_TRY(write_text(a, dir, CONFIG,
			  fo_model_config_json(a, c->model, c->weight_dtype, t ? fo_tokenizer_bos(t) : -1,
					       t ? fo_tokenizer_eos(t) : -1),
			  sum));
	FO_TRY(fo_st_write(fo_arena_printf(a, "%s/%s", dir, file_name[MODEL]), c->weight, c->weights,
			   "{\"format\":\"pt\"}", &hash));
	FO_TRY(written(a, dir, MODEL, hash, sum));
	FO_TRY(fo_st_write(fo_arena_printf(a, "%s/%s", dir, file_name[STATE]), c->state, c->states, NULL, &hash));
	FO_TRY(written(a, dir, STATE, hash, sum));
	if (c->tokenizer) {
		FO_TRY(fo_tokenizer_save(c->tokenizer, fo_arena_printf(a, "%s/%s", dir, file_name[TOKENIZER])));
		FO_TRY(written(a, dir, TOKENIZER, fo_tokenizer_checksum(c->tokenizer), sum));
	}
	if (c->run_config_json)
		FO_TRY(write_text(a, dir, RUN, c->run_config_json, sum));
	FO_TRY(write_text(a, dir, TRAINING, training_json(a, meta), sum));
	FO_TRY(write_manifest(a, dir, sum));
	return fo_fs_sync_dir(dir);
}

/* The step a folder's name carries, -1 when it is not a checkpoint's. */
static int64_t step_of(const char *name)
{
	char *end;
	if (strncmp(name, "step-", 5) || strlen(name) < 13)
		return -1;
	long long v = strtoll(name + 5, &end, 10);
	return *end || v < 0 ? -1 : v;
}

static char *step_path(struct fo_arena *a, const char *dir, int64_t step)
{
	return fo_arena_printf(a, "%s/step-%08" PRId64, dir, step);
}

/* Renamed first: a run that is killed while it removes must not leave half a checkpoint under a checkpoint's name. */
static fo_status remove_step(struct fo_arena *a, const char *dir, int64_t step)
{
	char *old = step_path(a, dir, step), *gone = fo_arena_printf(a, "%s/.tmp-step-%08" PRId64, dir, step);
	if (rename(old, gone))
		return fo_fail(FO_EIO, "cannot rename '%s' to '%s': %s", old, gone, strerror(errno));
	return fo_fs_remove_tree(gone);
}

/* Steps of the checkpoints in dir, newest first. clean: remove what killed runs left. */
static fo_status list_steps(struct fo_arena *a, const char *dir, bool clean, int64_t **steps, size_t *n)
{
	*steps = NULL;
	*n = 0;
	DIR *d = opendir(dir);
	if (!d && errno == ENOENT)
		return FO_OK;
	if (!d)
		return fo_fail(FO_EIO, "cannot list '%s': %s", dir, strerror(errno));
	size_t cap = 0;
	int64_t *v = NULL;
	fo_status st = FO_OK;
	for (struct dirent *e; st == FO_OK && (e = readdir(d));) {
		if (clean && !strncmp(e->d_name, ".tmp-step-", 10))
			st = fo_fs_remove_tree(fo_arena_printf(a, "%s/%s", dir, e->d_name)); /* a killed run left it */
		int64_t s = step_of(e->d_name);
		if (s < 0)
			continue;
		fo_array_room(&v, &cap, *n, sizeof *v);
		size_t i = (*n)++;
		for (; i && v[i - 1] < s; i--)
			v[i] = v[i - 1];
		v[i] = s;
	}
	closedir(d);
	if (*n)
		*steps = memcpy(fo_arena_alloc(a, *n * sizeof *v), v, *n * sizeof *v);
	free(v);
	return st;
}

fo_status fo_ckpt_save(const char *dir, const struct fo_ckpt_content *c, const struct fo_ckpt_meta *meta, int keep)
{
	struct fo_arena a = { 0 };
	char *tmp = fo_arena_printf(&a, "%s/.tmp-step-%08" PRId64, dir, meta->step),
	     *path = step_path(&a, dir, meta->step);
	int64_t *steps;
	size_t n;
	bool saved = false;
	fo_status st;
	FO_TRY_OR(st, fo_fs_mkdirs(dir), done);
	FO_TRY_OR(st, fo_fs_remove_tree(tmp), done);
	FO_TRY_OR(st, fo_fs_mkdirs(tmp), done);
	FO_TRY_OR(st, write_files(&a, tmp, c, meta), done);
	/* The same step again (a run that was resumed and interrupted at once) changes places with the old folder in
	 * one step. */
	if (renameat2(AT_FDCWD, tmp, AT_FDCWD, path, fo_fs_exists(path) ? RENAME_EXCHANGE : 0)) {
		st = fo_fail(FO_EIO, "cannot rename '%s' to '%s': %s", tmp, path, strerror(errno));
		goto done;
	}
	FO_TRY_OR(st, fo_fs_sync_dir(dir), done);
	saved = true;
	FO_TRY_OR(st, fo_fs_remove_tree(tmp), done);
	FO_TRY_OR(st, list_steps(&a, dir, true, &steps, &n), done);
	/* Later ones than this are damaged (a run goes on from the newest whole one): they neither count nor go, or the
	 * count would remove what is whole. */
	int64_t kept = 0;
	for (size_t i = 0; keep > 0 && i < n && st == FO_OK; i++)
		if (steps[i] <= meta->step && kept++ >= keep)
			st = remove_step(&a, dir, steps[i]);
done:
	if (st != FO_OK && !saved) {
		/* What is half written would take the space that the next attempt needs. */
		struct fo_err why;
		fo_err_save(&why, st);
		if (fo_fs_remove_tree(tmp) != FO_OK)
			fo_err_clear();
		st = fo_err_raise(&why);
	}
	fo_arena_fini(&a);
	if (st == FO_OK)
		return st;
	return fo_wrap(st,
		       saved ? "the checkpoint of step %lld is saved, but what is older cannot be removed"
			     : "cannot save the checkpoint of step %lld",
		       (long long)meta->step);
}

/* ---- loading ---- */

static fo_status newest(struct fo_arena *a, const char *dir, bool clean, char **path)
{
	int64_t *steps;
	size_t n;
	FO_TRY(list_steps(a, dir, clean, &steps, &n));
	*path = n ? step_path(a, dir, steps[0]) : NULL;
	return FO_OK;
}

fo_status fo_ckpt_latest(struct fo_arena *a, const char *dir, char **path) { return newest(a, dir, true, path); }
fo_status fo_ckpt_newest(struct fo_arena *a, const char *dir, char **path) { return newest(a, dir, false, path); }

int64_t fo_ckpt_count(const char *dir)
{
	struct fo_arena a = { 0 };
	int64_t *steps;
	size_t n = 0;
	if (list_steps(&a, dir, false, &steps, &n) != FO_OK)
		fo_err_clear();
	fo_arena_fini(&a);
	return (int64_t)n;
}

fo_status fo_ckpt_pick(struct fo_arena *a, const char *dir, int64_t every, fo_ckpt_refused_fn *refused, void *ctx,
		       char **path, struct fo_ckpt_meta *meta)
{
	int64_t *steps;
	size_t n;
	struct fo_err newest = { 0 };
	FO_TRY(list_steps(a, dir, true, &steps, &n));
	*path = NULL;
	for (size_t i = 0; i < n; i++) {
		char *try = step_path(a, dir, steps[i]);
		if (every && steps[i] % every)
			continue;
		fo_status st = fo_ckpt_open(try, meta);
		if (st == FO_EFORMAT || st == FO_EIO) { /* damaged, a file missing, a disk that fails */
			if (newest.st == FO_OK)
				fo_err_save(&newest, st);
			continue;
		}
		FO_TRY(st);
		*path = try;
		if (newest.st != FO_OK && refused)
			refused(ctx, newest.text, try);
		return FO_OK;
	}
	if (newest.st == FO_OK)
		return FO_OK;
	if (newest.hint[0])
		return fo_err_raise(&newest);
	return fo_hint(fo_err_raise(&newest), "no checkpoint in '%s' is whole: restore one, or choose another run.dir",
		       dir);
}

fo_status fo_ckpt_forget(const char *dir, int64_t step)
{
	struct fo_arena a = { 0 };
	int64_t *steps;
	size_t n;
	fo_status st = list_steps(&a, dir, true, &steps, &n);
	for (size_t i = 0; i < n && st == FO_OK; i++)
		if (steps[i] > step)
			st = remove_step(&a, dir, steps[i]);
	fo_arena_fini(&a);
	return st;
}

static fo_status load_json(struct fo_arena *a, const char *dir, const char *file, json_t **root)
{
	char *path = fo_arena_printf(a, "%s/%s", dir, file), *text, seen[160];
	size_t len;
	json_error_t err;
	FO_TRY(fo_fs_read_regular(a, path, MAX_JSON, &text, &len));
	*root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &err);
	if (!*root)
		return fo_fail(FO_EFORMAT, "'%s' is not JSON: line %d: %s", path, err.line,
			       fo_str_visible(seen, sizeof seen, err.text));
	json_int_t schema = json_integer_value(json_object_get(*root, "schema"));
	if (schema != SCHEMA) {
		json_decref(*root);
		*root = NULL;
		return fo_fail(FO_EFORMAT, "'%s' has schema %lld, expected %d", path, (long long)schema, SCHEMA);
	}
	return FO_OK;
}

static bool parse_word(json_t *v, uint64_t *out)
{
	const char *s = json_string_value(v);
	char *end;
	if (!s || strlen(s) != 16)
		return false;
	*out = strtoull(s, &end, 16);
	return !*end;
}

static fo_status check_manifest(struct fo_arena *a, const char *dir, json_t *root)
{
	json_t *files = json_object_get(root, "files");
	for (int i = 0; i < FILES; i++) {
		json_t *f = json_object_get(files, file_name[i]);
		uint64_t want, hash, size;
		if (!f && (i == TOKENIZER || i == RUN))
			continue;
		if (!f || !parse_word(json_object_get(f, "xxh3_64"), &want))
			return fo_fail(FO_EFORMAT, "'%s/manifest.json' has no checksum of '%s'", dir, file_name[i]);
		FO_TRY(hash_file(fo_arena_printf(a, "%s/%s", dir, file_name[i]), &hash, &size));
		if ((json_int_t)size != json_integer_value(json_object_get(f, "bytes")) || hash != want)
			return fo_fail(FO_EFORMAT,
				       "'%s/%s' is damaged: got %" PRIu64 " bytes with checksum %016" PRIx64
				       ", the manifest says %" PRId64 " bytes with %016" PRIx64,
				       dir, file_name[i], size, hash,
				       (int64_t)json_integer_value(json_object_get(f, "bytes")), want);
	}
	return FO_OK;
}

static fo_status read_meta(const char *dir, json_t *t, struct fo_ckpt_meta *m)
{
	json_t *step = json_object_get(t, "step"), *tokens = json_object_get(t, "tokens"),
	       *next = json_object_get(t, "loader_next_step");
	const char *precision = json_string_value(json_object_get(t, "precision"));
	*m = (struct fo_ckpt_meta){ .step = json_integer_value(step),
				    .tokens = json_integer_value(tokens),
				    .loss = json_number_value(json_object_get(t, "loss")) };
	m->loader.next_step = json_integer_value(next);
	m->seq = json_integer_value(json_object_get(t, "seq"));
	m->rows_per_step = json_integer_value(json_object_get(t, "rows_per_step"));
	m->packing = json_integer_value(json_object_get(t, "packing"));
	if (!json_is_integer(step) || m->step < 0 || !json_is_integer(tokens) || m->tokens < 0 ||
	    !json_is_integer(next) || m->loader.next_step < 0 || !precision ||
	    strlen(precision) >= sizeof m->precision || !parse_word(json_object_get(t, "seed"), &m->seed) ||
	    !parse_word(json_object_get(t, "tokenizer_checksum"), &m->tokenizer_checksum) ||
	    !parse_word(json_object_get(t, "loader_seed"), &m->loader.seed) ||
	    !parse_word(json_object_get(t, "shard_checksum"), &m->loader.shard_checksum))
		return fo_fail(FO_EFORMAT, "'%s/training.json' lacks a field or has one of the wrong type", dir);
	snprintf(m->precision, sizeof m->precision, "%s", precision);
	/* Files without them are of versions that had no other formats. */
	const char *const state[] = { json_string_value(json_object_get(t, "master")),
				      json_string_value(json_object_get(t, "moments")) };
	snprintf(m->master, sizeof m->master, "%s", state[0] ? state[0] : "fp32");
	snprintf(m->moments, sizeof m->moments, "%s", state[1] ? state[1] : "fp32");
	/* Not in the files of versions without guards: nothing was skipped. */
	json_t *losses = json_object_get(t, "recent_loss");
	m->skipped = json_integer_value(json_object_get(t, "skipped"));
	m->rewinds = json_integer_value(json_object_get(t, "rewinds"));
	m->losses = (int64_t)json_array_size(losses);
	m->grad_norm = json_number_value(json_object_get(t, "grad_norm"));    /* nor this */
	m->first_step = json_integer_value(json_object_get(t, "first_step")); /* nor these */
	m->first_loss = json_number_value(json_object_get(t, "first_loss"));
	if (!(m->grad_norm >= 0) || !isfinite(m->grad_norm))
		return fo_fail(FO_EFORMAT, "'%s/training.json' has a gradient norm of %g", dir, m->grad_norm);
	if (m->first_step < 0 || m->first_step > m->step)
		return fo_fail(FO_EFORMAT, "'%s/training.json' has a first step of %lld", dir,
			       (long long)m->first_step);
	if (m->losses > FO_CKPT_LOSSES || m->skipped < 0 || m->skipped > m->step || m->rewinds < 0)
		return fo_fail(FO_EFORMAT, "'%s/training.json' has %lld recent losses and %lld skipped steps of %lld",
			       dir, (long long)m->losses, (long long)m->skipped, (long long)m->step);
	for (int64_t i = 0; i < m->losses; i++)
		m->recent_loss[i] = json_number_value(json_array_get(losses, (size_t)i));
	return FO_OK;
}

/* A folder that is named like a checkpoint is that of its step: one that was renamed or copied over another would be
 * taken for the newest, and its state go on under a wrong count. */
static fo_status check_name(const char *path, int64_t step)
{
	char name[64];
	size_t end = strlen(path), begin;
	while (end > 1 && path[end - 1] == '/')
		end--;
	for (begin = end; begin && path[begin - 1] != '/';)
		begin--;
	snprintf(name, sizeof name, "%.*s", (int)(end - begin), path + begin);
	if (end - begin >= sizeof name || step_of(name) < 0 || step_of(name) == step)
		return FO_OK;
	return fo_hint(fo_fail(FO_EFORMAT, "the folder is named after step %lld and holds step %lld",
			       (long long)step_of(name), (long long)step),
		       "name it step-%08lld if it is that one, or remove it", (long long)step);
}

fo_status fo_ckpt_open(const char *path, struct fo_ckpt_meta *meta)
{
	struct fo_arena a = { 0 };
	json_t *manifest = NULL, *training = NULL;
	fo_status st;
	FO_TRY_OR(st, load_json(&a, path, "manifest.json", &manifest), done);
	FO_TRY_OR(st, check_manifest(&a, path, manifest), done);
	FO_TRY_OR(st, load_json(&a, path, file_name[TRAINING], &training), done);
	FO_TRY_OR(st, read_meta(path, training, meta), done);
	st = check_name(path, meta->step);
done:
	json_decref(manifest);
	json_decref(training);
	fo_arena_fini(&a);
	return st == FO_OK ? st : fo_wrap(st, "cannot load checkpoint '%s'", path);
}

/* Entries of the file that must be asked for: a memory that this run does not keep is left behind. */
static size_t required(const struct fo_st_file *f)
{
	size_t n = 0;
	for (size_t i = 0; i < f->n; i++)
		n += strncmp(f->entry[i].name, "state.", 6) != 0;
	return n;
}

static fo_status read_tensor(const struct fo_st_file *f, const char *path, const struct fo_st_tensor *t)
{
	return t->optional && !fo_st_find(f, t->name) ? fo_st_zero(t) : fo_st_copy(f, path, t);
}

static fo_status read_file(const char *dir, const char *file, const struct fo_st_tensor *t, size_t n)
{
	struct fo_arena a = { 0 };
	struct fo_st_file f;
	char *path = fo_arena_printf(&a, "%s/%s", dir, file);
	fo_status st = fo_st_open(&f, path);
	if (st == FO_OK) {
		/* One tensor more would be forgotten at the next save: a tied model over an untied one's checkpoint. */
		size_t want = 0, have = required(&f);
		for (size_t i = 0; i < n; i++)
			want += !t[i].optional;
		if (have != want)
			st = fo_hint(
				fo_fail(FO_EFORMAT, "'%s' has %zu tensors, this model has %zu", path, have, want),
				"another model needs another run.dir; --model.weights=DIR starts from weights alone");
		for (size_t i = 0; i < n && st == FO_OK; i++)
			st = read_tensor(&f, path, &t[i]);
		fo_st_close(&f);
	}
	fo_arena_fini(&a);
	return st;
}

fo_status fo_ckpt_read(const char *path, const struct fo_st_tensor *weight, size_t weights,
		       const struct fo_st_tensor *state, size_t states)
{
	fo_status st = read_file(path, file_name[MODEL], weight, weights);
	if (st == FO_OK)
		st = read_file(path, file_name[STATE], state, states);
	return st == FO_OK ? st : fo_wrap(st, "cannot load checkpoint '%s'", path);
}
