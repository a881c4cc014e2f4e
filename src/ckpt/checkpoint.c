#define _GNU_SOURCE /* renameat2 */
#include "ckpt/ckpt.h"
#include "base/schema.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

/* ---- records ---- */

#define META(m, ...) FO_FIELD(struct fo_ckpt_meta, m, __VA_ARGS__)
#define COUNT .flags = FO_NEEDED, .high = 0x1p62
static const struct fo_schema_field meta_field[] = {
	META(step, "step", "", "optimizer steps done", COUNT),
	META(tokens, "tokens", "", "tokens with loss so far", COUNT),
	META(loss, "loss", "nats per token", "of the last step", .flags = FO_NULLS),
	META(first_step, "first_step", "", "first step of the run that was taken; 0 or absent: not known"),
	META(first_loss, "first_loss", "nats per token", "its loss", .flags = FO_NULLS),
	META(grad_norm, "grad_norm", "", "of the last step that was taken; 0 or absent: none", .high = 1e308),
	META(precision, "precision", "", "of the run", .flags = FO_NEEDED),
	META(master, "master", "", "format of the master weights in `state.safetensors`; absent: fp32"),
	META(moments, "moments", "", "format of the moments there; absent: fp32"),
	META(seed, "seed", "", "seed of the run", .flags = FO_NEEDED),
	META(tokenizer_checksum, "tokenizer_checksum", "", "of `tokenizer.json`", .flags = FO_NEEDED),
	META(loader.seed, "loader_seed", "", "seed of the order of documents", .flags = FO_NEEDED),
	META(loader.shard_checksum, "shard_checksum", "", "of the shard that is read", .flags = FO_NEEDED),
	META(loader.next_step, "loader_next_step", "", "the loader's next step", COUNT),
	META(seq, "seq", "", "tokens of a row"),
	META(rows_per_step, "rows_per_step", "", "rows x micro-batches"),
	META(packing, "packing", "", "0 packed, 1 padded, 2 best fit, 3 split"),
	META(skipped, "skipped", "", "steps in which the weights stayed; absent: 0"),
	META(rewinds, "rewinds", "", "times the run went back to a checkpoint; absent: 0"),
	FO_FIELD_REALS(struct fo_ckpt_meta, recent_loss, losses, "recent_loss", "nats per token",
		       "losses that the spike guard looks back at, oldest first; absent: none",
		       .expected = "a list of at most 256 numbers"),
};
static void check_meta(const void *record, struct fo_schema_reader *r)
{
	const struct fo_ckpt_meta *m = record;
	if (m->first_step < 0 || m->first_step > m->step)
		fo_schema_refuse(r, "first_step", "a step up to the last");
	if (m->skipped < 0 || m->skipped > m->step)
		fo_schema_refuse(r, "skipped", "a number of steps up to the last");
	if (m->rewinds < 0)
		fo_schema_refuse(r, "rewinds", "a count");
}
const struct fo_schema fo_ckpt_schema = { "training", "checkpoint's training.json", SCHEMA,
					  FO_FIELDS(struct fo_ckpt_meta, meta_field), .check = check_meta };

/* Size and checksum of the bytes that were handed to the file system. They are not read back: that would make a write
 * that went wrong look right. */
struct sum {
	const char *file;
	int64_t bytes;
	uint64_t hash;
};
/* A newer version may list files that this one does not know. */
enum { MANIFEST_FILES = 64 };
struct manifest {
	struct sum sum[MANIFEST_FILES];
	int files;
};
static const struct fo_schema_field sum_field[] = {
	FO_FIELD(struct sum, file, "file", "", "its name"),
	FO_FIELD(struct sum, bytes, "bytes", "B", "size", .flags = FO_NEEDED),
	FO_FIELD(struct sum, hash, "xxh3_64", "", "checksum", .flags = FO_NEEDED),
};
static const struct fo_schema sum_schema = { "", "file", FO_FIELDS(struct sum, sum_field) };
static const struct fo_schema_field manifest_field[] = {
	FO_FIELD_MAP(struct manifest, sum, files, &sum_schema, "files", "every other file of the folder, by name",
		     .flags = FO_NEEDED, .elements = MANIFEST_FILES),
};
const struct fo_schema fo_ckpt_manifest_schema = { "manifest", "checkpoint's manifest.json", SCHEMA,
						   FO_FIELDS(struct manifest, manifest_field) };

/* ---- saving ---- */

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

static fo_status write_text(struct fo_arena *a, const char *dir, int file, const char *text, struct sum *sum)
{
	size_t n = strlen(text);
	sum[file] = (struct sum){ file_name[file], (int64_t)n, XXH3_64bits(text, n) };
	return fo_fs_write_new(fo_arena_printf(a, "%s/%s", dir, file_name[file]), text, n);
}

/* The text of a record file, which ends with an empty line. Arena-owned. */
static char *record_text(struct fo_arena *a, const struct fo_schema *schema, const void *record)
{
	struct fo_str s = { 0 };
	fo_schema_text(schema, record, true, &s);
	char *text = fo_arena_printf(a, "%s\n", s.data);
	fo_str_fini(&s);
	return text;
}

/* Files whose writer reports the checksum; the size is the file system's. */
static fo_status written(struct fo_arena *a, const char *dir, int file, uint64_t hash, struct sum *sum)
{
	char *path = fo_arena_printf(a, "%s/%s", dir, file_name[file]);
	struct stat st;
	if (stat(path, &st))
		return fo_fs_refuse("read", path, errno);
	sum[file] = (struct sum){ file_name[file], (int64_t)st.st_size, hash };
	return FO_OK;
}

static fo_status write_manifest(struct fo_arena *a, const char *dir, const struct sum sum[FILES])
{
	struct manifest m = { .files = 0 };
	for (int i = 0; i < FILES; i++)
		if (sum[i].file)
			m.sum[m.files++] = sum[i];
	const char *text = record_text(a, &fo_ckpt_manifest_schema, &m);
	return fo_fs_write_new(fo_arena_printf(a, "%s/manifest.json", dir), text, strlen(text));
}

static fo_status write_files(struct fo_arena *a, const char *dir, const struct fo_ckpt_content *c,
			     const struct fo_ckpt_meta *meta)
{
	struct sum sum[FILES] = { 0 };
	uint64_t hash;
	int64_t bos = -1, eos = -1;
	if (c->tokenizer) {
		bos = fo_tokenizer_bos(c->tokenizer);
		eos = fo_tokenizer_eos(c->tokenizer);
	}
	FO_TRY(write_text(a, dir, CONFIG, fo_model_config_json(a, c->model, c->weight_dtype, bos, eos), sum));
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
	FO_TRY(write_text(a, dir, TRAINING, record_text(a, &fo_ckpt_schema, meta), sum));
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
		return fo_fs_refuse("list", dir, errno);
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
	/* Checkpoints of later steps are damaged (a run goes on from the newest whole one). They neither count nor are
	 * removed: counting them would remove whole ones. */
	int64_t kept = 0;
	for (size_t i = 0; keep > 0 && i < n && st == FO_OK; i++)
		if (steps[i] <= meta->step && kept++ >= keep)
			st = remove_step(&a, dir, steps[i]);
done:
	if (st != FO_OK && !saved) {
		/* A half-written folder would take the space that the next attempt needs. */
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

fo_status fo_ckpt_newest(struct fo_arena *a, const char *dir, bool clean, char **path)
{
	int64_t *steps;
	size_t n;
	FO_TRY(list_steps(a, dir, clean, &steps, &n));
	*path = n ? step_path(a, dir, steps[0]) : NULL;
	return FO_OK;
}

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

/* A record of the folder; the arena owns its texts. */
static fo_status read_record(struct fo_arena *a, const char *dir, const char *file, const struct fo_schema *schema,
			     void *record)
{
	struct fo_schema_reader r = { .arena = a };
	return fo_schema_read_file(schema, fo_arena_printf(a, "%s/%s", dir, file), MAX_JSON, record, &r);
}

static const struct sum *find_sum(const struct manifest *m, const char *file)
{
	for (int i = 0; i < m->files; i++)
		if (!strcmp(m->sum[i].file, file))
			return &m->sum[i];
	return NULL;
}

/* Every file that the manifest must or does name has its size and checksum. */
static fo_status check_files(struct fo_arena *a, const char *dir, const struct manifest *m)
{
	for (int i = 0; i < FILES; i++) {
		const struct sum *want = find_sum(m, file_name[i]);
		uint64_t hash, size;
		if (!want && (i == TOKENIZER || i == RUN))
			continue;
		if (!want)
			return fo_fail(FO_EFORMAT, "'%s/manifest.json' has no checksum of '%s'", dir, file_name[i]);
		FO_TRY(hash_file(fo_arena_printf(a, "%s/%s", dir, file_name[i]), &hash, &size));
		if ((int64_t)size != want->bytes || hash != want->hash)
			return fo_fail(FO_EFORMAT,
				       "'%s/%s' is damaged: got %" PRIu64 " bytes with checksum %016" PRIx64
				       ", the manifest says %" PRId64 " bytes with %016" PRIx64,
				       dir, file_name[i], size, hash, want->bytes, want->hash);
	}
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
	struct manifest manifest = { 0 };
	fo_status st;
	/* Versions that had no other formats did not name them. */
	*meta = (struct fo_ckpt_meta){ .master = "fp32", .moments = "fp32" };
	FO_TRY_OR(st, read_record(&a, path, "manifest.json", &fo_ckpt_manifest_schema, &manifest), done);
	FO_TRY_OR(st, check_files(&a, path, &manifest), done);
	FO_TRY_OR(st, read_record(&a, path, file_name[TRAINING], &fo_ckpt_schema, meta), done);
	st = check_name(path, meta->step);
done:
	fo_arena_fini(&a);
	return st == FO_OK ? st : fo_wrap(st, "cannot load checkpoint '%s'", path);
}

/* Number of entries of the file that a reader must ask for; state that this run does not keep is passed over. */
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
