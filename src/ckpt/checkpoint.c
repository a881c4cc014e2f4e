#include "ckpt/ckpt_int.h"
#include "base/schema.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { SCHEMA = 1, MANIFEST_SCHEMA = 3 };
#define MAX_JSON ((size_t)1 << 20)

#define CONFIG "config.json"
#define TRAINING "training.json"
static const char *const stem[] = { "model", "state" };
enum { STEMS = sizeof stem / sizeof *stem };

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

/* A newer version may list files that this one does not know. Two sets of files have at most 4,096 each (shards.c). */
enum { MANIFEST_FILES = 1 << 14 };
static const struct fo_schema_field sum_field[] = {
	FO_FIELD(struct fo_ckpt_sum, file, "file", "", "its name"),
	FO_FIELD(struct fo_ckpt_sum, bytes, "bytes", "B", "size", .flags = FO_NEEDED),
	FO_FIELD(struct fo_ckpt_sum, hash, "xxh3_64", "", "checksum of its bytes; absent: one of the others is there",
		 .flags = FO_OMIT),
	FO_FIELD(struct fo_ckpt_sum, rows, "rows_xxh3_64", "",
		 "of safetensors, by schema 2 alone: that of the header, plus that of each row, seeded with its "
		 "offset, modulo 2^64",
		 .flags = FO_OMIT, .since = 2),
	FO_FIELD(struct fo_ckpt_sum, words, "words_64", "",
		 "of safetensors: that of the header, plus each word times its factor, modulo 2^64", .flags = FO_OMIT,
		 .since = 3),
};
static void check_sum(const void *record, struct fo_schema_reader *r)
{
	const struct fo_ckpt_sum *s = record;
	if (!!s->hash + !!s->rows + !!s->words != 1)
		fo_schema_refuse(r, "xxh3_64", "one of xxh3_64, rows_xxh3_64 and words_64");
}
static const struct fo_schema sum_schema = { "", "file", FO_FIELDS(struct fo_ckpt_sum, sum_field), .check = check_sum };
static const struct fo_schema_field manifest_field[] = {
	FO_FIELD_MAP(struct fo_ckpt_manifest, sum, files, &sum_schema, "files",
		     "every other file of the folder, by name", .flags = FO_NEEDED | FO_POINTER,
		     .elements = MANIFEST_FILES),
};
const struct fo_schema fo_ckpt_manifest_schema = { "manifest", "checkpoint's manifest.json", MANIFEST_SCHEMA,
						   FO_FIELDS(struct fo_ckpt_manifest, manifest_field), .oldest = 1 };

char *fo_ckpt_record_text(struct fo_arena *a, const struct fo_schema *schema, const void *record)
{
	struct fo_str s = { 0 };
	fo_schema_text(schema, record, true, &s);
	char *text = fo_arena_printf(a, "%s\n", s.data);
	fo_str_fini(&s);
	return text;
}

/* ---- folders ---- */

/* The step a folder's name carries, -1 when it is not a checkpoint's. */
static int64_t step_of(const char *name)
{
	char *end;
	if (strncmp(name, "step-", 5) || strlen(name) < 13)
		return -1;
	long long v = strtoll(name + 5, &end, 10);
	return *end || v < 0 ? -1 : v;
}

char *fo_ckpt_step_path(struct fo_arena *a, const char *dir, int64_t step)
{
	return fo_arena_printf(a, "%s/step-%08" PRId64, dir, step);
}

/* Renamed first: a run that is killed while it removes must not leave half a checkpoint under a checkpoint's name. */
fo_status fo_ckpt_remove_step(struct fo_arena *a, const char *dir, int64_t step)
{
	char *old = fo_ckpt_step_path(a, dir, step), *gone = fo_arena_printf(a, "%s/.tmp-step-%08" PRId64, dir, step);
	if (rename(old, gone))
		return fo_fail(FO_EIO, "cannot rename '%s' to '%s': %s", old, gone, strerror(errno));
	return fo_fs_remove_tree(gone);
}

fo_status fo_ckpt_list_steps(struct fo_arena *a, const char *dir, bool clean, int64_t **steps, size_t *n)
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

/* ---- loading ---- */

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

fo_status fo_ckpt_newest(struct fo_arena *a, const char *dir, bool clean, char **path)
{
	int64_t *steps;
	size_t n;
	FO_TRY(fo_ckpt_list_steps(a, dir, clean, &steps, &n));
	*path = n ? fo_ckpt_step_path(a, dir, steps[0]) : NULL;
	return FO_OK;
}

int64_t fo_ckpt_count(const char *dir)
{
	struct fo_arena a = { 0 };
	int64_t *steps;
	size_t n = 0;
	if (fo_ckpt_list_steps(&a, dir, false, &steps, &n) != FO_OK)
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
	FO_TRY(fo_ckpt_list_steps(a, dir, true, &steps, &n));
	*path = NULL;
	for (size_t i = 0; i < n; i++) {
		char *try = fo_ckpt_step_path(a, dir, steps[i]);
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
	fo_status st = fo_ckpt_list_steps(&a, dir, true, &steps, &n);
	for (size_t i = 0; i < n && st == FO_OK; i++)
		if (steps[i] > step)
			st = fo_ckpt_remove_step(&a, dir, steps[i]);
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

static const struct fo_ckpt_sum *find_sum(const struct fo_ckpt_manifest *m, const char *file)
{
	for (int i = 0; i < m->files; i++)
		if (!strcmp(m->sum[i].file, file))
			return &m->sum[i];
	return NULL;
}

static fo_status missing(const char *dir, const char *file)
{
	return fo_fail(FO_EFORMAT, "'%s/manifest.json' has no checksum of '%s'", dir, file);
}

/* The checksum of header and words, or rows; the header is read first, and may be damaged itself. */
static fo_status sum_tensors(const char *path, bool rows, uint64_t *sum, uint64_t *size)
{
	struct fo_st_file f;
	fo_status st = fo_st_open(&f, path);
	if (st != FO_OK)
		return st == FO_EFORMAT ? fo_wrap(st, "'%s' is damaged", path) : st;
	*size = f.map.len;
	st = fo_st_sum(&f, rows, sum);
	fo_st_close(&f);
	return st;
}

static fo_status check_file(struct fo_arena *a, const char *dir, const struct fo_ckpt_sum *want)
{
	const char *path = fo_arena_printf(a, "%s/%s", dir, want->file);
	const uint64_t sum = want->hash | want->rows | want->words; /* one of them is there */
	uint64_t hash = 0, size = 0;
	FO_TRY(want->hash ? hash_file(path, &hash, &size) : sum_tensors(path, want->rows, &hash, &size));
	if ((int64_t)size == want->bytes && hash == sum)
		return FO_OK;
	return fo_fail(FO_EFORMAT,
		       "'%s' is damaged: got %" PRIu64 " bytes with checksum %016" PRIx64 ", the manifest says %" PRId64
		       " bytes with %016" PRIx64,
		       path, size, hash, want->bytes, sum);
}

/* Is it one of the files of this stem: whole, a shard, the index? */
static bool is_of(const char *file, const char *of)
{
	char name[64];
	int i, n;
	snprintf(name, sizeof name, "%s-%%d-of-%%d", of);
	if (sscanf(file, name, &i, &n) == 2) {
		snprintf(name, sizeof name, FO_ST_SHARD, of, i, n);
		return !strcmp(file, name);
	}
	snprintf(name, sizeof name, FO_ST_SINGLE, of);
	if (!strcmp(file, name))
		return true;
	snprintf(name, sizeof name, FO_ST_INDEX, of);
	return !strcmp(file, name);
}

/* Other files are a newer version's, and nobody here reads them. */
static bool is_ours(const char *file)
{
	static const char *const text[] = { CONFIG, TRAINING, "tokenizer.json", "run.json" };
	bool ours = false;
	for (size_t i = 0; i < sizeof text / sizeof *text; i++)
		ours |= !strcmp(file, text[i]);
	for (int k = 0; k < STEMS; k++)
		ours |= is_of(file, stem[k]);
	return ours;
}

/* The files that a reader of this stem will open are all in the manifest. */
static fo_status check_shards(struct fo_arena *a, const char *dir, const struct fo_ckpt_manifest *m, const char *of)
{
	const char *single = fo_arena_printf(a, FO_ST_SINGLE, of), *index = fo_arena_printf(a, FO_ST_INDEX, of);
	char *text, **shard;
	size_t len, n;
	if (find_sum(m, single))
		return FO_OK;
	if (!find_sum(m, index))
		return missing(dir, single);
	if (fo_fs_exists(fo_arena_printf(a, "%s/%s", dir, single)))
		return fo_fail(FO_EFORMAT, "'%s/%s' stands beside the shards of the checkpoint", dir, single);
	const char *path = fo_arena_printf(a, "%s/%s", dir, index);
	FO_TRY(fo_fs_read(a, path, FO_CKPT_INDEX_MOST, &text, &len));
	FO_TRY(fo_hf_index_parse(a, text, len, path, &shard, &n));
	for (size_t i = 0; i < n; i++)
		if (!find_sum(m, shard[i]) || !is_of(shard[i], of))
			return missing(dir, shard[i]);
	return FO_OK;
}

/* Every file that the manifest must or does name has its size and checksum. */
static fo_status check_files(struct fo_arena *a, const char *dir, const struct fo_ckpt_manifest *m)
{
	static const char *const needed[] = { CONFIG, TRAINING };
	for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
		if (!find_sum(m, needed[i]))
			return missing(dir, needed[i]);
	for (int i = 0; i < m->files; i++)
		if (is_ours(m->sum[i].file))
			FO_TRY(check_file(a, dir, &m->sum[i]));
	for (int k = 0; k < STEMS; k++)
		FO_TRY(check_shards(a, dir, m, stem[k]));
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
	struct fo_ckpt_manifest manifest = { 0 };
	fo_status st;
	/* Versions that had no other formats did not name them. */
	*meta = (struct fo_ckpt_meta){ .master = "fp32", .moments = "fp32" };
	FO_TRY_OR(st, read_record(&a, path, "manifest.json", &fo_ckpt_manifest_schema, &manifest), done);
	FO_TRY_OR(st, check_files(&a, path, &manifest), done);
	FO_TRY_OR(st, read_record(&a, path, TRAINING, &fo_ckpt_schema, meta), done);
	st = check_name(path, meta->step);
done:
	fo_arena_fini(&a);
	return st == FO_OK ? st : fo_wrap(st, "cannot load checkpoint '%s'", path);
}

/* Number of tensors that a reader must ask for; state that this run does not keep is passed over. */
static size_t required(const struct fo_st_set *f)
{
	size_t n = 0;
	for (size_t i = 0; i < f->n; i++)
		n += strncmp(f->held[i].entry->name, "state.", 6) != 0;
	return n;
}

static fo_status read_tensor(const struct fo_st_set *f, const char *of, const struct fo_st_tensor *t, int64_t *afresh)
{
	const struct fo_st_held *h = fo_st_set_find(f, t->name);
	const bool other = h && t->optional && !fo_st_fits(h->entry, t);
	*afresh += other;
	if (t->optional && (!h || other))
		return fo_st_zero(t);
	if (!h)
		return fo_fail(FO_EFORMAT, "'%s/" FO_ST_SINGLE "' has no tensor '%s'", f->dir, of, t->name);
	return fo_st_copy_entry(&f->file[h->shard], f->path[h->shard], h->entry, t);
}

static fo_status read_files(const char *dir, const char *of, const struct fo_st_tensor *t, size_t n, int64_t *afresh)
{
	struct fo_st_set f;
	fo_status st = fo_st_set_open(&f, dir, of);
	if (st == FO_OK) {
		/* One tensor more would be forgotten at the next save: a tied model over an untied one's checkpoint. */
		size_t want = 0, have = required(&f);
		for (size_t i = 0; i < n; i++)
			want += !t[i].optional;
		if (have != want)
			st = fo_hint(fo_fail(FO_EFORMAT, "'%s/" FO_ST_SINGLE "' has %zu tensors, this model has %zu",
					     dir, of, have, want),
				     "another model needs another run.dir; --model.weights=DIR starts from weights "
				     "alone");
		for (size_t i = 0; i < n && st == FO_OK; i++)
			st = read_tensor(&f, of, &t[i], afresh);
	}
	fo_st_set_close(&f);
	return st;
}

fo_status fo_ckpt_read(const char *path, const struct fo_st_tensor *weight, size_t weights,
		       const struct fo_st_tensor *state, size_t states, int64_t *afresh)
{
	*afresh = 0;
	fo_status st = read_files(path, stem[0], weight, weights, afresh);
	if (st == FO_OK)
		st = read_files(path, stem[1], state, states, afresh);
	return st == FO_OK ? st : fo_wrap(st, "cannot load checkpoint '%s'", path);
}
