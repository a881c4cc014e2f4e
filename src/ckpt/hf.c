/* Reads weights from a folder in Hugging Face's layout: one safetensors file, or shards with an index. */
#include "base/schema.h"
#include "ckpt/ckpt_int.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CONFIG ((size_t)1 << 20) /* a config.json is a few KiB */
#define EMBEDDING "model.embed_tokens.weight"
#define HEAD "lm_head.weight"

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
		fo_str_printf(&s, "%lld x ", (long long)fo_st_whole(t));
	fo_str_printf(&s, "%lld", (long long)fo_st_wide(t));
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

static bool is_head_of_embedding(const struct fo_st_set *f, const struct fo_st_held *head)
{
	const struct fo_st_held *e = fo_st_set_find(f, EMBEDDING);
	const struct fo_st_entry *a = head->entry, *b = e ? e->entry : NULL;
	return b && !strcmp(a->name, HEAD) && !strcmp(a->dtype, b->dtype) && a->end - a->begin == b->end - b->begin &&
	       !memcmp(f->file[head->shard].data + a->begin, f->file[e->shard].data + b->begin, a->end - a->begin);
}

static fo_status report(const struct fo_st_set *f, struct problems *p)
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

static fo_status check_fit(struct fo_st_set *f, bool tied, const struct fo_st_tensor *t, size_t n)
{
	struct problems p = { 0 };
	for (size_t i = 0; i < n; i++) {
		struct fo_st_held *h = fo_st_set_find(f, t[i].name);
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
		const struct fo_st_held *h = &f->held[i];
		if (h->wanted || is_rotary_table(h->entry->name) || (tied && is_head_of_embedding(f, h)))
			continue;
		other_head |= tied && !strcmp(h->entry->name, HEAD);
		problem(&p, SURPLUS, h->entry->name, "");
	}
	bool no_head = p.count[MISSING] == 1 && !tied && !fo_st_set_find(f, HEAD) && fo_st_set_find(f, EMBEDDING);
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
static fo_status refuse_quantised(struct fo_st_set *f)
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

/* The error of a folder that has weights in PyTorch's format alone says what to do. */
static fo_status open_folder(struct fo_st_set *f, const char *dir)
{
	fo_status st = fo_st_set_open(f, dir, "model");
	if (st != FO_EIO || f->shards)
		return st;
	if (fo_fs_exists(fo_arena_printf(&f->arena, "%s/pytorch_model.bin", dir)) ||
	    fo_fs_exists(fo_arena_printf(&f->arena, "%s/pytorch_model.bin.index.json", dir)))
		return fo_hint(st, "pytorch_model.bin runs code when it is loaded: convert it once with transformers' "
				   "save_pretrained");
	return st;
}

static fo_status visit(const char *dir, bool tied, const struct fo_st_tensor *t, size_t n, bool copy)
{
	struct fo_st_set f;
	fo_status st = open_folder(&f, dir);
	if (st == FO_OK)
		st = refuse_quantised(&f);
	if (st == FO_OK)
		st = check_fit(&f, tied, t, n);
	for (size_t i = 0; copy && i < n && st == FO_OK; i++) {
		const struct fo_st_held *h = fo_st_set_find(&f, t[i].name);
		st = fo_st_copy_entry(&f.file[h->shard], f.path[h->shard], h->entry, &t[i]);
	}
	fo_st_set_close(&f);
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
