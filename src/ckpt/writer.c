/* Writes a checkpoint, by one rank or by all of a job together.
 *
 * The files follow from the tensors' names, types, whole shapes and layers and from a bound on a file's size, never
 * from the ranks. Who writes which rows is said by one rule (`own_rows`), so that every rank knows its part without
 * asking: ranks that have the same rectangle of a tensor divide its rows. */
#define _GNU_SOURCE /* renameat2 */
#include "base/count.h"
#include "base/retry.h"
#include "base/schema.h"
#include "ckpt/ckpt_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

/* At most about twice as many files of a stem: below what readers accept (MAX_SHARDS). */
enum { FILES_FEW = 1024, TEXTS = 8 };

struct shard {
	char *name;
	struct fo_st_tensor *t; /* n of them, which lie one behind the other */
	size_t n;
	struct fo_str head;
	int64_t bytes; /* of the file */
};

/* The files of one stem. */
struct set {
	const char *stem, *metadata_json;
	struct fo_st_tensor *t; /* in the order of the files */
	size_t n;
	struct shard *shard;
	int shards;
	int64_t total; /* bytes of tensors */
};
enum { MODEL, STATE, SETS };

struct fo_ckpt_writer {
	struct fo_arena arena;
	const struct fo_ckpt_content *content;
	const struct fo_ckpt_meta *meta;
	char *dir, *tmp, *path;
	struct set set[SETS];
	uint64_t *sum; /* per shard of both sets: of what this rank wrote */
	size_t sums;
	struct fo_ckpt_sum text[TEXTS];
	int texts;
};

/* ---- the layout ---- */

/* Tensors of a layer come together, others before or behind all layers, as the list has them. */
static void sort_by_layer(struct set *s, const struct fo_st_tensor *t)
{
	int32_t layers = 0;
	size_t first = s->n, at = 0;
	for (size_t i = 0; i < s->n; i++) {
		layers = t[i].layer > layers ? t[i].layer : layers;
		first = t[i].layer && first == s->n ? i : first;
	}
	for (size_t i = 0; i < first; i++)
		s->t[at++] = t[i];
	/* As many passes as there are layers, each over a list of as many tensors: some millions for the largest. */
	for (int32_t l = 1; l <= layers; l++)
		for (size_t i = first; i < s->n; i++)
			if (t[i].layer == l)
				s->t[at++] = t[i];
	for (size_t i = first; i < s->n; i++)
		if (!t[i].layer)
			s->t[at++] = t[i];
}

static void add_shard(struct set *s, size_t first) { s->shard[s->shards++] = (struct shard){ .t = &s->t[first] }; }

/* Fills a file up to the bound with whole layers; a layer that is larger is split behind a tensor, and a tensor that
 * is larger has a file of its own. */
static void split(struct fo_arena *a, struct set *s, int64_t bound)
{
	for (size_t i = 0; i < s->n; i++)
		s->total += fo_st_bytes(&s->t[i]);
	bound = bound > 0 ? fo_max(bound, fo_ceil_div(s->total, FILES_FEW)) : INT64_MAX;
	s->shard = fo_arena_alloc(a, (s->n + 1) * sizeof *s->shard);
	add_shard(s, 0);
	int64_t in = 0; /* bytes in the last file */
	for (size_t i = 0, end = 0; i < s->n;) {
		int64_t layer = 0;
		for (; end < s->n && s->t[end].layer == s->t[i].layer; end++)
			layer += fo_st_bytes(&s->t[end]);
		bool new_file = in && layer > bound - in;
		for (; i < end; i++, new_file = false) {
			const int64_t one = fo_st_bytes(&s->t[i]);
			if (new_file || (in && one > bound - in)) {
				add_shard(s, i);
				in = 0;
			}
			in += one;
			s->shard[s->shards - 1].n++;
		}
	}
}

static void lay_out(struct fo_arena *a, struct set *s, const struct fo_st_tensor *t, int64_t bound)
{
	s->t = fo_arena_alloc(a, (s->n + 1) * sizeof *s->t);
	sort_by_layer(s, t);
	split(a, s, bound);
	for (int i = 0; i < s->shards; i++) {
		struct shard *f = &s->shard[i];
		f->name = s->shards == 1 ? fo_arena_printf(a, FO_ST_SINGLE, s->stem)
					 : fo_arena_printf(a, FO_ST_SHARD, s->stem, i + 1, s->shards);
		fo_st_header(&f->head, f->t, f->n, s->metadata_json);
		f->bytes = fo_st_header_bytes(&f->head);
		for (size_t k = 0; k < f->n; k++)
			f->bytes += fo_st_bytes(&f->t[k]);
	}
}

void fo_ckpt_writer_new(struct fo_ckpt_writer **out, const char *dir, const struct fo_ckpt_content *c,
			const struct fo_ckpt_meta *meta)
{
	struct fo_ckpt_writer *w = *out = fo_xmalloc(sizeof *w);
	*w = (struct fo_ckpt_writer){ .content = c, .meta = meta };
	w->dir = fo_arena_strdup(&w->arena, dir);
	w->tmp = fo_arena_printf(&w->arena, "%s/.tmp-step-%08" PRId64, dir, meta->step);
	w->path = fo_ckpt_step_path(&w->arena, dir, meta->step);
	w->set[MODEL] = (struct set){ .stem = "model", .n = c->weights, .metadata_json = "{\"format\":\"pt\"}" };
	w->set[STATE] = (struct set){ .stem = "state", .n = c->states };
	lay_out(&w->arena, &w->set[MODEL], c->weight, c->file_bytes);
	lay_out(&w->arena, &w->set[STATE], c->state, c->file_bytes);
	w->sums = (size_t)(w->set[MODEL].shards + w->set[STATE].shards);
	w->sum = fo_arena_alloc(&w->arena, w->sums * sizeof *w->sum);
}

void fo_ckpt_writer_free(struct fo_ckpt_writer *w)
{
	if (!w)
		return;
	for (int k = 0; k < SETS; k++)
		for (int i = 0; i < w->set[k].shards; i++)
			fo_str_fini(&w->set[k].shard[i].head);
	fo_arena_fini(&w->arena);
	free(w);
}

uint64_t *fo_ckpt_writer_sums(struct fo_ckpt_writer *w, size_t *n)
{
	*n = w->sums;
	return w->sum;
}

/* ---- rank 0: the folder, texts and headers ---- */

static fo_status write_text(struct fo_ckpt_writer *w, const char *file, const char *text)
{
	size_t n = strlen(text);
	w->text[w->texts++] = (struct fo_ckpt_sum){ .file = file, .bytes = (int64_t)n, .hash = XXH3_64bits(text, n) };
	return fo_fs_write_new(fo_arena_printf(&w->arena, "%s/%s", w->tmp, file), text, n);
}

static fo_status write_tokenizer(struct fo_ckpt_writer *w)
{
	const struct fo_tokenizer *t = w->content->tokenizer;
	char *path = fo_arena_printf(&w->arena, "%s/tokenizer.json", w->tmp);
	struct stat st;
	if (!t)
		return FO_OK;
	FO_TRY(fo_tokenizer_save(t, path));
	if (stat(path, &st))
		return fo_fs_refuse("read", path, errno);
	w->text[w->texts++] = (struct fo_ckpt_sum){ .file = "tokenizer.json",
						    .bytes = (int64_t)st.st_size,
						    .hash = fo_tokenizer_checksum(t) };
	return FO_OK;
}

static fo_status write_index(struct fo_ckpt_writer *w, const struct set *s)
{
	struct fo_str text = { 0 };
	struct fo_json j;
	if (s->shards == 1)
		return FO_OK;
	fo_json_begin(&j, &text, true);
	fo_json_object(&j, NULL);
	fo_json_object(&j, "metadata");
	fo_json_int(&j, "total_size", s->total);
	fo_json_close(&j);
	fo_json_object(&j, "weight_map");
	for (int i = 0; i < s->shards; i++)
		for (size_t k = 0; k < s->shard[i].n; k++)
			fo_json_text(&j, s->shard[i].t[k].name, s->shard[i].name);
	fo_json_close(&j);
	fo_json_close(&j);
	fo_str_puts(&text, "\n");
	fo_status st = write_text(w, fo_arena_printf(&w->arena, FO_ST_INDEX, s->stem), text.data);
	fo_str_fini(&text);
	return st;
}

static fo_status write_header(struct fo_ckpt_writer *w, const struct shard *f)
{
	const char *path = fo_arena_printf(&w->arena, "%s/%s", w->tmp, f->name);
	int fd = fo_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return fo_fs_refuse("create", path, errno);
	fo_status st = fo_st_put_header(fd, path, &f->head);
	if (fo_close(fd) && st == FO_OK)
		st = fo_fs_refuse("write", path, errno);
	return st;
}

fo_status fo_ckpt_writer_begin(struct fo_ckpt_writer *w)
{
	const struct fo_ckpt_content *c = w->content;
	int64_t bos = -1, eos = -1;
	if (c->tokenizer) {
		bos = fo_tokenizer_bos(c->tokenizer);
		eos = fo_tokenizer_eos(c->tokenizer);
	}
	FO_TRY(fo_fs_mkdirs(w->dir));
	FO_TRY(fo_fs_remove_tree(w->tmp));
	FO_TRY(fo_fs_mkdirs(w->tmp));
	FO_TRY(write_text(w, "config.json", fo_model_config_json(&w->arena, c->model, c->weight_dtype, bos, eos)));
	FO_TRY(write_tokenizer(w));
	if (c->run_config_json)
		FO_TRY(write_text(w, "run.json", c->run_config_json));
	FO_TRY(write_text(w, "training.json", fo_ckpt_record_text(&w->arena, &fo_ckpt_schema, w->meta)));
	for (int k = 0; k < SETS; k++) {
		FO_TRY(write_index(w, &w->set[k]));
		for (int i = 0; i < w->set[k].shards; i++)
			FO_TRY(write_header(w, &w->set[k].shard[i]));
	}
	return FO_OK;
}

/* ---- every rank: its rows ---- */

/* A rank writes a part of the rows that it holds. index: the tensor's place, so that a tensor of one row is not always
 * the same rank's. */
static int64_t own_rows(const struct fo_st_tensor *t, size_t index, int64_t *from)
{
	const int32_t ranks = t->copies ? t->copies : 1;
	return fo_mesh_part(t->rows, (int32_t)(((size_t)t->copy + index) % (size_t)ranks), ranks, from);
}

static fo_status write_shard(struct fo_ckpt_writer *w, const struct set *s, const struct shard *f, uint64_t *sum)
{
	const char *path = fo_arena_printf(&w->arena, "%s/%s", w->tmp, f->name);
	int64_t at = fo_st_header_bytes(&f->head), from, mine = 0;
	for (size_t k = 0; k < f->n; k++)
		mine += own_rows(&f->t[k], (size_t)(&f->t[k] - s->t), &from);
	if (!mine && w->content->rank)
		return FO_OK;
	int fd = fo_open(path, O_WRONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return fo_fs_refuse("open", path, errno);
	fo_status st = FO_OK;
	for (size_t k = 0; k < f->n && st == FO_OK; k++) {
		int64_t rows = own_rows(&f->t[k], (size_t)(&f->t[k] - s->t), &from);
		st = fo_st_put(fd, path, &f->t[k], from, rows, at, sum);
		at += fo_st_bytes(&f->t[k]);
	}
	if (st == FO_OK && fo_fsync(fd))
		st = fo_fs_refuse("write", path, errno);
	if (fo_close(fd) && st == FO_OK)
		st = fo_fs_refuse("write", path, errno);
	return st;
}

fo_status fo_ckpt_writer_rows(struct fo_ckpt_writer *w)
{
	uint64_t *sum = w->sum;
	for (int k = 0; k < SETS; k++)
		for (int i = 0; i < w->set[k].shards; i++, sum++) {
			const struct shard *f = &w->set[k].shard[i];
			*sum = w->content->rank ? 0 : fo_st_header_sum(&f->head);
			FO_TRY(write_shard(w, &w->set[k], f, sum));
		}
	return FO_OK;
}

/* ---- rank 0: the manifest, and the folder's name ---- */

static fo_status write_manifest(struct fo_ckpt_writer *w)
{
	struct fo_arena *a = &w->arena;
	struct fo_ckpt_manifest m = { .sum = fo_arena_alloc(a, (TEXTS + w->sums) * sizeof *m.sum) };
	size_t at = 0;
	for (int i = 0; i < w->texts; i++)
		m.sum[m.files++] = w->text[i];
	for (int k = 0; k < SETS; k++)
		for (int i = 0; i < w->set[k].shards; i++, at++) {
			const struct shard *f = &w->set[k].shard[i];
			m.sum[m.files++] = (struct fo_ckpt_sum){ .file = f->name,
								 .bytes = f->bytes,
								 .words = w->sum[at] };
		}
	const char *text = fo_ckpt_record_text(a, &fo_ckpt_manifest_schema, &m);
	return fo_fs_write_new(fo_arena_printf(a, "%s/manifest.json", w->tmp), text, strlen(text));
}

/* Removes all but the newest `keep` checkpoints. Those of later steps are damaged (a run goes on from the newest whole
 * one). They neither count nor are removed: counting them would remove whole ones. */
static fo_status remove_old(struct fo_ckpt_writer *w, int keep)
{
	int64_t *steps, kept = 0;
	size_t n;
	FO_TRY(fo_ckpt_list_steps(&w->arena, w->dir, true, &steps, &n));
	for (size_t i = 0; keep > 0 && i < n; i++)
		if (steps[i] <= w->meta->step && kept++ >= keep)
			FO_TRY(fo_ckpt_remove_step(&w->arena, w->dir, steps[i]));
	return FO_OK;
}

/* *renamed: the new folder has its name; only then is it saved for good once the folder around it reached the disk. */
static fo_status finish(struct fo_ckpt_writer *w, int keep, bool *renamed, bool *saved)
{
	FO_TRY(write_manifest(w));
	FO_TRY(fo_fs_sync_dir(w->tmp));
	/* The same step again (a run that was resumed and interrupted at once) changes places with the old folder in
	 * one step. */
	if (renameat2(AT_FDCWD, w->tmp, AT_FDCWD, w->path, fo_fs_exists(w->path) ? RENAME_EXCHANGE : 0))
		return fo_fail(FO_EIO, "cannot rename '%s' to '%s': %s", w->tmp, w->path, strerror(errno));
	*renamed = true; /* what has the other name now may be the last good checkpoint of this step */
	FO_TRY(fo_fs_sync_dir(w->dir));
	*saved = true;
	FO_TRY(fo_fs_remove_tree(w->tmp));
	return remove_old(w, keep);
}

fo_status fo_ckpt_writer_end(struct fo_ckpt_writer *w, fo_status st, int keep)
{
	const long long step = (long long)w->meta->step;
	bool renamed = false, saved = false;
	if (st == FO_OK)
		st = finish(w, keep, &renamed, &saved);
	if (st != FO_OK && !renamed) {
		/* A half-written folder would take the space that the next attempt needs. */
		struct fo_err why;
		fo_err_save(&why, st);
		if (fo_fs_remove_tree(w->tmp) != FO_OK)
			fo_err_clear();
		st = fo_err_raise(&why);
	}
	if (st == FO_OK)
		return st;
	return fo_wrap(st,
		       saved ? "the checkpoint of step %lld is saved, but what is older cannot be removed"
			     : "cannot save the checkpoint of step %lld",
		       step);
}

fo_status fo_ckpt_save(const char *dir, const struct fo_ckpt_content *c, const struct fo_ckpt_meta *meta, int keep)
{
	struct fo_ckpt_writer *w;
	fo_ckpt_writer_new(&w, dir, c, meta);
	fo_status st = fo_ckpt_writer_begin(w);
	if (st == FO_OK)
		st = fo_ckpt_writer_rows(w);
	st = fo_ckpt_writer_end(w, st, keep);
	fo_ckpt_writer_free(w);
	return st;
}
