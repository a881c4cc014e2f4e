/* Checkpoints of one global layout: whatever mesh of ranks writes one, its files are those that one rank writes, byte
 * for byte; whatever mesh reads it gets its rows; a flipped bit, a file too few or of another checkpoint is found. */
#include "ckpt/ckpt.h"
#include "base/rng.h"
#include "kernel/kernel.h"
#include "support/must.h"
#include "support/same_files.h"
#include "support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { LAYERS = 3, KINDS = 4, TENSORS = 2 + LAYERS * KINDS, STEP = 7 };

static char root[] = "test_ckpt_shards.XXXXXX";
static uint64_t draws;
static int64_t draw(int64_t n) { return (int64_t)(fo_rng_u64(11, draws++) % (uint64_t)n); }

/* The tensors of a model as one rank has them, filled at random, and how ranks of a mesh may divide each: a shard group
 * by rows, a tp group by rows or columns. */
enum { ALIKE, BY_ROWS, BY_COLS };
struct whole {
	struct fo_st_tensor t[TENSORS], m[TENSORS]; /* weights; state, of which the last is optional */
};
static struct how {
	bool shared;
	int tp;
} how_of(const struct fo_st_tensor *t)
{
	const uint64_t by = XXH3_64bits(t->name, strlen(t->name));
	return (struct how){ .shared = !t->vector && by % 3,
			     .tp = t->vector ? (by / 3 % 2 ? BY_COLS : ALIKE) : (int)(by / 3 % 3) };
}

static struct fo_st_tensor tensor(const char *name, int32_t layer, bool vector)
{
	struct fo_st_tensor t = { .layer = layer, .vector = vector, .rows = vector ? 1 : 1 + draw(40) };
	snprintf(t.name, sizeof t.name, "%s", name);
	t.cols = 1 + draw(40);
	t.ld = t.cols;
	t.dtype = draw(2) ? FO_F32 : FO_BF16;
	const size_t n = (size_t)(t.rows * t.cols) * fo_dtype_bytes(t.dtype);
	t.data = malloc(n);
	for (size_t i = 0; i < n; i++)
		((unsigned char *)t.data)[i] = (unsigned char)fo_rng_u64(12, draws++);
	return t;
}

static void whole_new(struct whole *w)
{
	char name[64];
	int n = 0;
	w->t[n++] = tensor("embed", 0, false);
	for (int k = 0; k < KINDS; k++)
		for (int l = 1; l <= LAYERS; l++) {
			snprintf(name, sizeof name, "layers.%d.w%d", l - 1, k);
			w->t[n++] = tensor(name, l, k == 0);
		}
	w->t[n++] = tensor("norm", 0, true);
	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof name, "%s%.50s", i == n - 1 ? "state." : "m.", w->t[i].name);
		w->m[i] = tensor(name, w->t[i].layer, w->t[i].vector);
	}
	w->m[n - 1].optional = true;
}

static void whole_free(struct whole *w)
{
	for (int i = 0; i < TENSORS; i++) {
		free(w->t[i].data);
		free(w->m[i].data);
	}
}

/* The rectangle that a rank of the mesh has: between columns that are not its own. */
static void take(struct fo_st_tensor *out, const struct fo_st_tensor *of, const struct fo_mesh *m, bool fill)
{
	const struct how how = how_of(of);
	int32_t place, in_tp, copy,
		ranks = fo_mesh_group(m, FO_GROUP_SHARD, &place, NULL),
		tp = fo_mesh_group(m, FO_GROUP_TP, &in_tp, NULL),
		copies = fo_mesh_group(m, how.shared ? FO_GROUP_REPLICATE : FO_GROUP_DATA, &copy, NULL);
	const size_t size = fo_dtype_bytes(of->dtype);
	int64_t from;
	*out = *of;
	out->whole = of->rows;
	out->wide = of->cols;
	if (how.tp == BY_ROWS)
		out->rows = fo_mesh_part(of->rows, in_tp, tp, &out->row);
	if (how.tp == BY_COLS)
		out->cols = fo_mesh_part(of->cols, in_tp, tp, &out->col);
	if (how.shared) {
		out->rows = fo_mesh_part(out->rows, place, ranks, &from);
		out->row += from;
	}
	out->copies = how.tp == ALIKE ? copies * tp : copies;
	out->copy = how.tp == ALIKE ? copy * tp + in_tp : copy;
	out->ld = out->cols + draw(3);
	out->data = calloc((size_t)(out->rows * out->ld) + 1, size);
	for (int64_t r = 0; fill && r < out->rows; r++)
		memcpy((char *)out->data + (size_t)(r * out->ld) * size,
		       (const char *)of->data + (size_t)((out->row + r) * of->cols + out->col) * size,
		       (size_t)out->cols * size);
}

static void same_rows(const struct fo_st_tensor *got, const struct fo_st_tensor *of)
{
	const size_t size = fo_dtype_bytes(of->dtype);
	for (int64_t r = 0; r < got->rows; r++)
		assert_memory_equal((const char *)got->data + (size_t)(r * got->ld) * size,
				    (const char *)of->data + (size_t)((got->row + r) * of->cols + got->col) * size,
				    (size_t)got->cols * size);
}

static void part_new(struct whole *out, const struct whole *of, const struct fo_mesh *m, bool fill)
{
	for (int i = 0; i < TENSORS; i++) {
		take(&out->t[i], &of->t[i], m, fill);
		take(&out->m[i], &of->m[i], m, fill);
	}
}

/* All ranks of the mesh, one after the other. fail: a rank that does not get its rows written, -1: none. */
static fo_status save(const char *dir, const struct whole *w, struct fo_mesh mesh, int64_t bound, int fail)
{
	enum { MOST = 64 };
	const int ranks = fo_mesh_ranks(&mesh);
	struct whole part[MOST];
	struct fo_ckpt_content c[MOST];
	struct fo_ckpt_writer *writer[MOST];
	struct fo_model model = tiny_model();
	const struct fo_ckpt_meta meta = { .step = STEP, .tokens = 1, .seed = 1, .precision = "fp32" };
	fo_status st = FO_OK;
	size_t n;
	snprintf(model.name, sizeof model.name, "tiny");
	for (int r = 0; r < ranks; r++) {
		mesh.rank = r;
		part_new(&part[r], w, &mesh, true);
		c[r] = (struct fo_ckpt_content){ .model = &model,
						 .weight_dtype = "float32",
						 .weight = part[r].t,
						 .weights = TENSORS,
						 .state = part[r].m,
						 .states = TENSORS,
						 .file_bytes = bound,
						 .rank = r };
		fo_ckpt_writer_new(&writer[r], dir, &c[r], &meta);
	}
	must(fo_ckpt_writer_begin(writer[0]));
	for (int r = ranks - 1; r >= 0; r--) /* in whatever order */
		if (r != fail)
			must(fo_ckpt_writer_rows(writer[r]));
	uint64_t *sum = fo_ckpt_writer_sums(writer[0], &n);
	for (int r = 1; r < ranks; r++)
		for (size_t i = 0; i < n; i++)
			sum[i] += fo_ckpt_writer_sums(writer[r], &n)[i];
	if (fail >= 0)
		st = fo_fail(FO_EIO, "no space");
	st = fo_ckpt_writer_end(writer[0], st, 0);
	for (int r = 0; r < ranks; r++) {
		fo_ckpt_writer_free(writer[r]);
		whole_free(&part[r]);
	}
	return st;
}

static char *folder(struct fo_arena *a, const char *dir) { return fo_arena_printf(a, "%s/step-%08d", dir, STEP); }

static void read_by(const char *path, const struct whole *w, struct fo_mesh mesh)
{
	const int ranks = fo_mesh_ranks(&mesh);
	for (mesh.rank = 0; mesh.rank < ranks; mesh.rank++) {
		struct whole part;
		int64_t afresh;
		part_new(&part, w, &mesh, false);
		must(fo_ckpt_read(path, part.t, TENSORS, part.m, TENSORS, &afresh));
		for (int i = 0; i < TENSORS; i++) {
			same_rows(&part.t[i], &w->t[i]);
			same_rows(&part.m[i], &w->m[i]);
		}
		whole_free(&part);
	}
}

static void test_any_mesh(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	char *one = fo_arena_printf(&a, "%s/one", root), *many = fo_arena_printf(&a, "%s/many", root);
	size_t most = 0, least = SIZE_MAX;
	for (int round = 0; round < 12; round++) {
		struct whole w;
		struct fo_ckpt_meta meta;
		const int64_t bound = round % 3 ? 800 << round % 4 : 0;
		whole_new(&w);
		must(save(one, &w, (struct fo_mesh){ 0 }, bound, -1));
		must(fo_ckpt_open(folder(&a, one), &meta));
		for (int i = 0; i < 3; i++) {
			const struct fo_mesh mesh = { .replicate = 1 + (int32_t)draw(3),
						      .shard = 1 + (int32_t)draw(3),
						      .tp = 1 + (int32_t)draw(4) };
			must(save(many, &w, mesh, bound, -1));
			must(fo_ckpt_open(folder(&a, many), &meta));
			size_t files = same_files(&a, folder(&a, one), folder(&a, many), "one rank and several");
			most = files > most ? files : most;
			least = files < least ? files : least;
			read_by(folder(&a, many), &w,
				(struct fo_mesh){
					.replicate = 2, .shard = 1 + (int32_t)draw(9), .tp = 1 + (int32_t)draw(5) });
		}
		read_by(folder(&a, one), &w, (struct fo_mesh){ 0 });
		whole_free(&w);
	}
	assert_true(least == 5 && most > 20); /* without shards: config, training, manifest and two of tensors */
	fo_arena_fini(&a);
	must(fo_fs_remove_tree(root));
}

/* No file but one of a single tensor is larger than the bound, tensors of a layer that fits stay together, and what
 * Hugging Face's readers go by names every file. */
static void test_bound(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	char *dir = fo_arena_printf(&a, "%s/bound", root), **file, **shard, *text;
	size_t n, len, shards;
	struct whole w;
	whole_new(&w);
	int64_t layer = 0;
	for (int i = 0; i < TENSORS; i++)
		if (w.t[i].layer == 1)
			layer += fo_st_bytes(&w.t[i]);
	must(save(dir, &w, (struct fo_mesh){ 0 }, layer, -1));
	must(fo_fs_list(&a, folder(&a, dir), 1000, &file, &n));
	for (size_t i = 0; i < n; i++) {
		struct fo_st_file f;
		if (strcmp(file[i] + strlen(file[i]) - 12, ".safetensors") != 0)
			continue;
		must(fo_st_open(&f, file[i]));
		assert_true(f.n == 1 || (int64_t)f.entry[f.n - 1].end <= layer);
		int first = -1, others = 0;
		for (size_t k = 0; k < f.n; k++) {
			bool is = !strncmp(f.entry[k].name, "layers.0.", 9);
			first = is && first < 0 ? (int)k : first;
			others += is;
		}
		assert_true(first < 0 || others == KINDS);
		fo_st_close(&f);
	}
	must(fo_fs_read(&a, fo_arena_printf(&a, "%s/model.safetensors.index.json", folder(&a, dir)), 1 << 20, &text,
			&len));
	must(fo_hf_index_parse(&a, text, len, "index", &shard, &shards));
	assert_true(shards >= 2);
	must(fo_hf_read(folder(&a, dir), false, w.t, TENSORS));
	whole_free(&w);
	fo_arena_fini(&a);
	must(fo_fs_remove_tree(root));
}

static void flip(const char *path, long bit)
{
	FILE *f = fopen(path, "r+b");
	assert_non_null(f);
	fseek(f, bit / 8, SEEK_SET);
	int c = fgetc(f);
	fseek(f, bit / 8, SEEK_SET);
	fputc(c ^ 1 << bit % 8, f);
	fclose(f);
}

/* Any bit of any file but the manifest, whose white space may change. */
static void test_flipped(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	char *dir = fo_arena_printf(&a, "%s/flipped", root), **file;
	struct fo_ckpt_meta meta;
	struct whole w;
	size_t n;
	whole_new(&w);
	must(save(dir, &w, (struct fo_mesh){ .replicate = 2, .shard = 3, .tp = 2 }, 4000, -1));
	char *path = folder(&a, dir);
	must(fo_fs_list(&a, path, 1000, &file, &n));
	assert_true(n > 10);
	for (size_t i = 0; i < n; i++) {
		FILE *f = fopen(file[i], "rb");
		fseek(f, 0, SEEK_END);
		long bits = ftell(f) * 8;
		fclose(f);
		for (int k = 0; k < 60 && !strstr(file[i], "manifest"); k++) {
			long bit = k ? (long)draw(bits) : bits - 1;
			flip(file[i], bit);
			if (fo_ckpt_open(path, &meta) == FO_OK)
				fail_msg("bit %ld of '%s' is another one, and nobody noticed", bit, file[i]);
			flip(file[i], bit);
		}
	}
	must(fo_ckpt_open(path, &meta));
	whole_free(&w);
	fo_arena_fini(&a);
	must(fo_fs_remove_tree(root));
}

/* Rows that changed places, and files that did, have the same bytes and other checksums. */
static void test_exchanged(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	char file[128];
	float rows[2][64], back[2][64];
	uint64_t sum, other;
	snprintf(file, sizeof file, "%s/x.safetensors", root);
	must(fo_fs_mkdirs(root));
	for (int i = 0; i < 128; i++)
		back[1 - i / 64][i % 64] = rows[i / 64][i % 64] = (float)i;
	struct fo_st_tensor t = { .name = "x", .dtype = FO_F32, .rows = 2, .cols = 64, .ld = 64, .data = rows };
	must(fo_st_write(file, &t, 1, NULL, &sum));
	t.data = back;
	must(fo_st_write(file, &t, 1, NULL, &other));
	assert_true(sum != other);
	struct fo_st_file f;
	must(fo_st_open(&f, file));
	must(fo_st_sum(&f, false, &sum));
	assert_true(sum == other);
	fo_st_close(&f);
	fo_arena_fini(&a);
	must(fo_fs_remove_tree(root));
}

static void test_missing(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	char *dir = fo_arena_printf(&a, "%s/missing", root), **file;
	struct fo_ckpt_meta meta;
	struct whole w;
	size_t n;
	whole_new(&w);
	must(save(dir, &w, (struct fo_mesh){ 0 }, 4000, -1));
	char *path = folder(&a, dir), *aside = fo_arena_printf(&a, "%s/aside", root);
	must(fo_fs_list(&a, path, 1000, &file, &n));
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(rename(file[i], aside), 0);
		fo_status st = fo_ckpt_open(path, &meta);
		assert_true(st == FO_EIO || st == FO_EFORMAT);
		assert_non_null(strstr(fo_err_text(), path));
		assert_int_equal(rename(aside, file[i]), 0);
	}
	/* A file of weights beside shards is none of this checkpoint, and readers would take it. */
	char *single = fo_arena_printf(&a, "%s/model.safetensors", path);
	uint64_t sum;
	must(fo_st_write(single, w.t, 1, NULL, &sum));
	assert_int_equal(fo_ckpt_open(path, &meta), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "beside the shards"));
	assert_int_equal(unlink(single), 0);
	must(fo_ckpt_open(path, &meta));
	/* A rank that failed: its error stands, no folder is left, and the former checkpoint is as it was. */
	assert_int_equal(save(dir, &w, (struct fo_mesh){ .shard = 4 }, 4000, 2), FO_EIO);
	assert_non_null(strstr(fo_err_text(), "cannot save the checkpoint of step 7: no space"));
	must(fo_ckpt_open(path, &meta));
	assert_false(fo_fs_exists(fo_arena_printf(&a, "%s/.tmp-step-%08d", dir, STEP)));
	whole_free(&w);
	fo_arena_fini(&a);
	must(fo_fs_remove_tree(root));
}

/* SplitMix64 as docs/formats.md has it, made odd. */
static uint64_t odd(uint64_t x)
{
	x = (x + 1) * 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (x ^ x >> 31) | 1;
}

/* A file's checksum word by word, or row by row, as the documentation says. */
static uint64_t sum_of(const char *path, bool rows)
{
	struct fo_st_file f;
	must(fo_st_open(&f, path));
	const size_t head = (size_t)(f.data - f.map.data);
	uint64_t sum = XXH3_64bits(f.map.data, head);
	for (size_t i = 0; i < f.n; i++) {
		const struct fo_st_entry *e = &f.entry[i];
		const uint64_t word = e->dtype[0] == 'B' ? 2 : 4, n = (e->end - e->begin) / word, at = head + e->begin;
		const size_t row = (e->end - e->begin) / (size_t)(e->ndim > 1 ? e->shape[0] : 1);
		for (uint64_t k = 0; !rows && k < n; k++) {
			uint32_t v = 0;
			memcpy(&v, f.map.data + at + k * word, word);
			sum += v * odd(((uint64_t)1 << 63) + k % 512) * odd(at + k / 512 * 512 * word);
		}
		for (size_t k = e->begin; rows && k < e->end; k += row)
			sum += XXH3_64bits_withSeed(f.data + k, row, head + k);
	}
	fo_st_close(&f);
	return sum;
}

/* The checksums of the documentation; and a manifest of schema 2, which has those of rows, is read. */
static void test_sums(void **state)
{
	(void)state;
	static const char *const stem[] = { "model", "state" };
	struct fo_arena a = { 0 };
	char *dir = fo_arena_printf(&a, "%s/sums", root), *text, want[64];
	struct fo_ckpt_meta meta;
	struct whole w;
	size_t len;
	whole_new(&w);
	/* Larger than a block of words, so that blocks differ. */
	free(w.t[1].data);
	w.t[1].rows = 70;
	w.t[1].cols = w.t[1].ld = 90;
	w.t[1].vector = false;
	w.t[1].data = calloc(70 * 90, 8);
	for (int i = 0; i < 70 * 90; i++)
		((uint16_t *)w.t[1].data)[i] = (uint16_t)fo_rng_u64(13, (uint64_t)i);
	must(save(dir, &w, (struct fo_mesh){ .shard = 2, .tp = 3 }, 0, -1));
	char *path = folder(&a, dir), *manifest = fo_arena_printf(&a, "%s/manifest.json", path);
	must(fo_fs_read(&a, manifest, 1 << 20, &text, &len));
	for (int i = 0; i < 2; i++) {
		char *file = fo_arena_printf(&a, "%s/%s.safetensors", path, stem[i]);
		snprintf(want, sizeof want, "\"words_64\": \"%016llx\"", (unsigned long long)sum_of(file, false));
		char *at = strstr(text, want);
		assert_non_null(at);
		snprintf(want, sizeof want, "%016llx", (unsigned long long)sum_of(file, true));
		memcpy(at + strlen("\"words_64\": \""), want, 16);
	}
	char *old = fo_arena_printf(&a, "%s", text);
	struct fo_str two = { 0 };
	for (const char *p = old; *p;) {
		const bool name = !strncmp(p, "words_64", 8), version = !strncmp(p, "\"schema\": 3", 11);
		fo_str_printf(&two, "%s", name ? "rows_xxh3_64" : version ? "\"schema\": 2" : "");
		if (!name && !version)
			fo_str_printf(&two, "%c", *p);
		p += name ? 8 : version ? 11 : 1;
	}
	must(fo_fs_write_atomic(manifest, two.data, two.len));
	must(fo_ckpt_open(path, &meta));
	read_by(path, &w, (struct fo_mesh){ .shard = 2, .tp = 2 });
	flip(fo_arena_printf(&a, "%s/state.safetensors", path), 8 * 3000 + 3);
	assert_int_equal(fo_ckpt_open(path, &meta), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "state.safetensors' is damaged"));
	fo_str_fini(&two);
	whole_free(&w);
	fo_arena_fini(&a);
	must(fo_fs_remove_tree(root));
}

/* Version 0.1's manifest: checksums of whole files. */
static void test_old_manifest(void **state)
{
	(void)state;
	static const char *const name[] = { "config.json", "training.json", "model.safetensors", "state.safetensors" };
	struct fo_arena a = { 0 };
	char *dir = fo_arena_printf(&a, "%s/old", root), *text;
	struct fo_ckpt_meta meta;
	struct fo_str manifest = { 0 };
	struct whole w;
	size_t len;
	whole_new(&w);
	must(save(dir, &w, (struct fo_mesh){ 0 }, 0, -1));
	char *path = folder(&a, dir);
	fo_str_puts(&manifest, "{\n  \"schema\": 1,\n  \"files\": {");
	for (int i = 0; i < 4; i++) {
		must(fo_fs_read(&a, fo_arena_printf(&a, "%s/%s", path, name[i]), 1 << 24, &text, &len));
		fo_str_printf(&manifest,
			      "%s\n    \"%s\": {\n      \"bytes\": %zu,\n      \"xxh3_64\": \"%016llx\"\n    }",
			      i ? "," : "", name[i], len, (unsigned long long)XXH3_64bits(text, len));
	}
	fo_str_puts(&manifest, "\n  }\n}\n");
	must(fo_fs_write_atomic(fo_arena_printf(&a, "%s/manifest.json", path), manifest.data, manifest.len));
	must(fo_ckpt_open(path, &meta));
	read_by(path, &w, (struct fo_mesh){ .replicate = 2, .shard = 3 });
	flip(fo_arena_printf(&a, "%s/state.safetensors", path), 8 * 1000 + 3);
	assert_int_equal(fo_ckpt_open(path, &meta), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "state.safetensors' is damaged"));
	fo_str_fini(&manifest);
	whole_free(&w);
	fo_arena_fini(&a);
	must(fo_fs_remove_tree(root));
}

static int make_root(void **state)
{
	(void)state;
	return !mkdtemp(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_mesh),  cmocka_unit_test(test_bound),   cmocka_unit_test(test_flipped),
		cmocka_unit_test(test_exchanged), cmocka_unit_test(test_missing), cmocka_unit_test(test_old_manifest),
		cmocka_unit_test(test_sums),
	};
	return cmocka_run_group_tests(tests, make_root, NULL);
}
