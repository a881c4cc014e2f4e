/* Tensors in one safetensors file, or in several with an index, as Hugging Face lays them out. */
#include "base/schema.h"
#include "ckpt/ckpt_int.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SHARDS 4096 /* Llama 3.1 405B has 191 */

static int by_name(const void *a, const void *b)
{
	const struct fo_st_held *x = a, *y = b;
	return strcmp(x->entry->name, y->entry->name);
}

struct fo_st_held *fo_st_set_find(const struct fo_st_set *f, const char *name)
{
	size_t lo = 0, hi = f->n;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		int order = strcmp(f->held[mid].entry->name, name);
		if (!order)
			return &f->held[mid];
		if (order < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

/* Accepts only a file of this folder: an index from outside must not make us read elsewhere. */
static bool plain_name(const char *s)
{
	size_t n = strlen(s), end = strlen(".safetensors");
	return n > end && n < 256 && *s != '.' && !strchr(s, '/') && !strcmp(s + n - end, ".safetensors");
}

static fo_status add_shard(struct fo_arena *a, const char *where, const char *name, json_t *seen, char **shard,
			   size_t *n)
{
	char shown[160];
	if (json_object_get(seen, name))
		return FO_OK;
	if (!plain_name(name))
		return fo_fail(FO_EFORMAT, "'%s': shard '%s' is not a plain file name that ends in .safetensors", where,
			       fo_str_visible(shown, sizeof shown, name));
	if (*n == MAX_SHARDS)
		return fo_fail(FO_EFORMAT, "'%s' names more than %d shards", where, MAX_SHARDS);
	shard[(*n)++] = fo_arena_strdup(a, name);
	json_object_set_new(seen, name, json_true());
	return FO_OK;
}

/* *map: tensor to shard, for the caller to release (also after an error; NULL: none). */
static fo_status parse_index(struct fo_arena *a, const char *json, size_t len, const char *where, json_t **map,
			     char ***shard, size_t *n)
{
	char shown[160];
	const char *name;
	json_t *v, *root;
	*map = NULL;
	*n = 0;
	FO_TRY(fo_schema_parse(json, len, where, "index of shards", &root));
	*map = json_incref(json_object_get(root, "weight_map"));
	json_decref(root);
	if (!json_is_object(*map) || !json_object_size(*map))
		return fo_fail(FO_EFORMAT, "'%s': key 'weight_map' must name the shard of each tensor", where);
	*shard = fo_arena_alloc(a, MAX_SHARDS * sizeof **shard);
	json_t *seen = json_object();
	fo_status st = FO_OK;
	json_object_foreach(*map, name, v)
	{
		st = json_is_string(v) ? add_shard(a, where, json_string_value(v), seen, *shard, n)
				       : fo_fail(FO_EFORMAT, "'%s': the shard of tensor '%s' is not a text", where,
						 fo_str_visible(shown, sizeof shown, name));
		if (st != FO_OK)
			break;
	}
	json_decref(seen);
	return st;
}

fo_status fo_hf_index_parse(struct fo_arena *a, const char *json, size_t len, const char *where, char ***shard,
			    size_t *n)
{
	json_t *map;
	fo_status st = parse_index(a, json, len, where, &map, shard, n);
	json_decref(map);
	return st;
}

static fo_status read_index(struct fo_st_set *f, const char *index, json_t **map)
{
	char *text, **shard;
	size_t len;
	*map = NULL;
	FO_TRY(fo_fs_read(&f->arena, index, FO_CKPT_INDEX_MOST, &text, &len));
	FO_TRY(parse_index(&f->arena, text, len, index, map, &shard, &f->shards));
	for (size_t i = 0; i < f->shards; i++)
		f->path[i] = fo_arena_printf(&f->arena, "%s/%s", f->dir, shard[i]);
	return FO_OK;
}

/* Opens all shards and sorts their tensors by name. */
static fo_status open_shards(struct fo_st_set *f)
{
	f->file = fo_arena_alloc(&f->arena, f->shards * sizeof *f->file);
	for (; f->open < f->shards; f->open++) {
		FO_TRY(fo_st_open(&f->file[f->open], f->path[f->open]));
		f->n += f->file[f->open].n;
	}
	f->held = fo_arena_alloc(&f->arena, (f->n + 1) * sizeof *f->held);
	size_t at = 0;
	for (size_t s = 0; s < f->shards; s++)
		for (size_t i = 0; i < f->file[s].n; i++)
			f->held[at++] = (struct fo_st_held){ .entry = &f->file[s].entry[i], .shard = s };
	qsort(f->held, f->n, sizeof *f->held, by_name);
	char shown[160];
	for (size_t i = 1; i < f->n; i++)
		if (!by_name(&f->held[i - 1], &f->held[i]))
			return fo_fail(FO_EFORMAT, "'%s' and '%s' both hold tensor '%s'", f->path[f->held[i - 1].shard],
				       f->path[f->held[i].shard],
				       fo_str_visible(shown, sizeof shown, f->held[i].entry->name));
	return FO_OK;
}

/* Checks that every shard holds the tensors that the index places in it. */
static fo_status check_index(const struct fo_st_set *f, const char *index, json_t *map)
{
	const char *name;
	json_t *v;
	char shown[160];
	json_object_foreach(map, name, v)
	{
		const struct fo_st_held *h = fo_st_set_find(f, name);
		const char *file = h ? strrchr(f->path[h->shard], '/') + 1 : "";
		if (!h || strcmp(file, json_string_value(v)))
			return fo_fail(FO_EFORMAT, "'%s' places tensor '%s' in '%s', which does not hold it", index,
				       fo_str_visible(shown, sizeof shown, name), json_string_value(v));
	}
	return FO_OK;
}

static fo_status open_files(struct fo_st_set *f, const char *stem)
{
	char *single = fo_arena_printf(&f->arena, "%s/" FO_ST_SINGLE, f->dir, stem);
	char *index = fo_arena_printf(&f->arena, "%s/" FO_ST_INDEX, f->dir, stem);
	f->path = fo_arena_alloc(&f->arena, MAX_SHARDS * sizeof *f->path);
	/* transformers looks in this order, too. */
	if (fo_fs_exists(single)) {
		f->path[f->shards++] = single;
		return open_shards(f);
	}
	if (fo_fs_exists(index)) {
		json_t *map;
		fo_status st = read_index(f, index, &map);
		if (st == FO_OK)
			st = open_shards(f);
		if (st == FO_OK)
			st = check_index(f, index, map);
		json_decref(map);
		return st;
	}
	if (!fo_fs_is_dir(f->dir))
		return fo_fail(FO_EIO, "'%s' is not a folder; expected one with " FO_ST_SINGLE " or " FO_ST_INDEX,
			       f->dir, stem, stem);
	return fo_fail(FO_EIO, "'%s' holds neither " FO_ST_SINGLE " nor " FO_ST_INDEX, f->dir, stem, stem);
}

fo_status fo_st_set_open(struct fo_st_set *f, const char *dir, const char *stem)
{
	*f = (struct fo_st_set){ .dir = dir };
	return open_files(f, stem);
}

void fo_st_set_close(struct fo_st_set *f)
{
	for (size_t i = 0; i < f->open; i++)
		fo_st_close(&f->file[i]);
	fo_arena_fini(&f->arena);
	*f = (struct fo_st_set){ 0 };
}
