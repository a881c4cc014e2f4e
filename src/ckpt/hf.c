/* Reads weights from a folder in Hugging Face's layout: one safetensors file, or shards with an index. */
#include "base/schema.h"
#include "ckpt/ckpt.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"
#define MAX_INDEX ((size_t)64 << 20) /* one with 60,000 tensors has 6 MiB */
#define MAX_CONFIG ((size_t)1 << 20) /* a config.json is a few KiB */
#define MAX_SHARDS 4096              /* Llama 3.1 405B has 191 */
#define EMBEDDING "model.embed_tokens.weight"
#define HEAD "lm_head.weight"

/* A tensor of the folder. */
struct held {
	const struct fo_st_entry *entry;
	size_t shard;
	bool wanted;
};
struct folder {
	struct fo_arena arena;
	const char *dir;
	char **path; /* by shard */
	struct fo_st_file *file;
	size_t shards, open;
	struct held *held; /* by name */
	size_t n;
};

static int by_name(const void *a, const void *b)
{
	const struct held *x = a, *y = b;
	return strcmp(x->entry->name, y->entry->name);
}

static struct held *find(const struct folder *f, const char *name)
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

/* ---- finding the files ---- */

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

static fo_status read_index(struct folder *f, const char *index, json_t **map)
{
	char *text, **shard;
	size_t len;
	*map = NULL;
	FO_TRY(fo_fs_read(&f->arena, index, MAX_INDEX, &text, &len));
	FO_TRY(parse_index(&f->arena, text, len, index, map, &shard, &f->shards));
	for (size_t i = 0; i < f->shards; i++)
		f->path[i] = fo_arena_printf(&f->arena, "%s/%s", f->dir, shard[i]);
	return FO_OK;
}

/* Opens all shards and sorts their tensors by name. */
static fo_status open_shards(struct folder *f)
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
			f->held[at++] = (struct held){ .entry = &f->file[s].entry[i], .shard = s };
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
static fo_status check_index(const struct folder *f, const char *index, json_t *map)
{
	const char *name;
	json_t *v;
	char shown[160];
	json_object_foreach(map, name, v)
	{
		const struct held *h = find(f, name);
		const char *file = h ? strrchr(f->path[h->shard], '/') + 1 : "";
		if (!h || strcmp(file, json_string_value(v)))
			return fo_fail(FO_EFORMAT, "'%s' places tensor '%s' in '%s', which does not hold it", index,
				       fo_str_visible(shown, sizeof shown, name), json_string_value(v));
	}
	return FO_OK;
}

static fo_status open_folder(struct folder *f)
{
	char *single = fo_arena_printf(&f->arena, "%s/" SINGLE, f->dir);
	char *index = fo_arena_printf(&f->arena, "%s/" INDEX, f->dir);
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
		return fo_fail(FO_EIO, "'%s' is not a folder; expected one with " SINGLE " or " INDEX, f->dir);
	fo_status st = fo_fail(FO_EIO, "'%s' holds neither " SINGLE " nor " INDEX, f->dir);
	if (fo_fs_exists(fo_arena_printf(&f->arena, "%s/pytorch_model.bin", f->dir)) ||
	    fo_fs_exists(fo_arena_printf(&f->arena, "%s/pytorch_model.bin.index.json", f->dir)))
		return fo_hint(st, "pytorch_model.bin runs code when it is loaded: convert it once with transformers' "
				   "save_pretrained");
	return st;
}

/* ---- do they fit the model ---- */

enum { MISSING, SURPLUS, SHAPE, TYPE, KINDS };
struct problems {
	struct fo_str text[KINDS];
	size_t count[KINDS];
};
enum { SHOWN = 8 }; /* names of each kind: enough to see a pattern */

static void problem(struct problems *p, int kind, const char *name, const char *detail)
{
	char shown[160];
	if (p->count[kind]++ < SHOWN)
		fo_str_printf(&p->text[kind], "%s'%s'%s", p->count[kind] > 1 ? ", " : "",
			      fo_str_visible(shown, sizeof shown, name), detail);
}

static void shape_problem(struct problems *p, const struct fo_st_entry *e, const struct fo_st_tensor *t)
{
	struct fo_str s = { 0 };
	fo_str_puts(&s, " is ");
	for (int i = 0; i < e->ndim; i++)
		fo_str_printf(&s, "%s%lld", i ? " x " : "", (long long)e->shape[i]);
	fo_str_printf(&s, "%s, the model's ", e->ndim ? "" : "a scalar");
	if (!t->vector)
		fo_str_printf(&s, "%lld x ", (long long)t->rows);
	fo_str_printf(&s, "%lld", (long long)t->cols);
	problem(p, SHAPE, t->name, s.data);
	fo_str_fini(&s);
}

static bool known_type(const char *dtype)
{
	return !strcmp(dtype, "F32") || !strcmp(dtype, "BF16") || !strcmp(dtype, "F16") || !strcmp(dtype, "F64");
}

/* transformers wrote this table until 4.31 and has ignored it since: it follows from the configuration. */
static bool is_rotary_table(const char *name)
{
	static const char end[] = "rotary_emb.inv_freq";
	size_t n = strlen(name);
	return n >= sizeof end - 1 && !strcmp(name + n - (sizeof end - 1), end);
}

static bool is_head_of_embedding(const struct folder *f, const struct held *head)
{
	const struct held *e = find(f, EMBEDDING);
	const struct fo_st_entry *a = head->entry, *b = e ? e->entry : NULL;
	return b && !strcmp(a->name, HEAD) && !strcmp(a->dtype, b->dtype) && a->end - a->begin == b->end - b->begin &&
	       !memcmp(f->file[head->shard].data + a->begin, f->file[e->shard].data + b->begin, a->end - a->begin);
}

static fo_status report(const struct folder *f, struct problems *p)
{
	static const char *const what[KINDS] = { "missing: ", "not the model's: ", "of another shape: ",
						 "of a type that cannot be read: " };
	struct fo_str all = { 0 };
	for (int k = 0; k < KINDS; k++) {
		if (!p->count[k])
			continue;
		fo_str_printf(&all, "%s%zu %s%s", all.len ? "; " : "", p->count[k], what[k], p->text[k].data);
		if (p->count[k] > SHOWN)
			fo_str_printf(&all, " and %zu more", p->count[k] - SHOWN);
	}
	fo_status st = FO_OK;
	if (all.len)
		st = fo_fail(FO_EFORMAT, "the tensors in '%s' do not fit the model: %s", f->dir, all.data);
	fo_str_fini(&all);
	for (int k = 0; k < KINDS; k++)
		fo_str_fini(&p->text[k]);
	return st;
}

static fo_status check_fit(struct folder *f, bool tied, const struct fo_st_tensor *t, size_t n)
{
	struct problems p = { 0 };
	for (size_t i = 0; i < n; i++) {
		struct held *h = find(f, t[i].name);
		if (!h) {
			problem(&p, MISSING, t[i].name, "");
			continue;
		}
		char type[24];
		snprintf(type, sizeof type, " (%s)", h->entry->dtype);
		if (!h->wanted && !fo_st_fits(h->entry, &t[i]))
			shape_problem(&p, h->entry, &t[i]);
		else if (!h->wanted && !known_type(h->entry->dtype))
			problem(&p, TYPE, t[i].name, type);
		h->wanted = true;
	}
	bool other_head = false;
	for (size_t i = 0; i < f->n; i++) {
		const struct held *h = &f->held[i];
		if (h->wanted || is_rotary_table(h->entry->name) || (tied && is_head_of_embedding(f, h)))
			continue;
		other_head |= tied && !strcmp(h->entry->name, HEAD);
		problem(&p, SURPLUS, h->entry->name, "");
	}
	bool no_head = p.count[MISSING] == 1 && !tied && !find(f, HEAD) && find(f, EMBEDDING);
	fo_status st = report(f, &p);
	if (st != FO_OK && other_head)
		return fo_hint(st, "config.json ties the head to the embedding, but '" HEAD
				   "' differs from it: set tie_word_embeddings to false");
	if (st != FO_OK && no_head)
		return fo_hint(st, "if the head is the embedding, set tie_word_embeddings to true in config.json");
	return st;
}

/* A file that says its weights are quantised means other numbers than its tensors hold, also where those are plain
 * floats: transformers quantises such as it loads them. Using them as they are is for whoever owns the file to decide.
 */
static fo_status refuse_quantised(struct folder *f)
{
	char *text, shown[64];
	size_t len;
	const char *path = fo_arena_printf(&f->arena, "%s/config.json", f->dir);
	if (!fo_fs_exists(path))
		return FO_OK;
	FO_TRY(fo_fs_read(&f->arena, path, MAX_CONFIG, &text, &len));
	json_t *root = json_loadb(text, len, 0, NULL);
	const json_t *q = json_object_get(root, "quantization_config");
	const char *method = json_string_value(json_object_get(q, "quant_method"));
	fo_status st = FO_OK;
	const char *by = "without a quant_method";
	if (method)
		by = fo_arena_printf(&f->arena, "quant_method '%s'", fo_str_visible(shown, sizeof shown, method));
	if (q && !json_is_null(q))
		st = fo_hint(fo_fail(FO_EFORMAT,
				     "'%s' has a quantization_config (%s): quantised weights are not supported", path,
				     by),
			     "where the tensors are plain floats, take that key out of config.json: then they are used "
			     "as they are");
	json_decref(root);
	return st;
}

static fo_status visit(const char *dir, bool tied, const struct fo_st_tensor *t, size_t n, bool copy)
{
	struct folder f = { .dir = dir };
	fo_status st = open_folder(&f);
	if (st == FO_OK)
		st = refuse_quantised(&f);
	if (st == FO_OK)
		st = check_fit(&f, tied, t, n);
	for (size_t i = 0; copy && i < n && st == FO_OK; i++) {
		const struct held *h = find(&f, t[i].name);
		st = fo_st_copy_entry(&f.file[h->shard], f.path[h->shard], h->entry, &t[i]);
	}
	for (size_t i = 0; i < f.open; i++)
		fo_st_close(&f.file[i]);
	fo_arena_fini(&f.arena);
	return st == FO_OK ? st : fo_wrap(st, "cannot load weights");
}

fo_status fo_hf_read(const char *dir, bool tied, const struct fo_st_tensor *t, size_t n)
{
	return visit(dir, tied, t, n, true);
}

fo_status fo_hf_check(const char *dir, bool tied, const struct fo_st_tensor *t, size_t n)
{
	return visit(dir, tied, t, n, false);
}
