/* Choices of algorithms on disk: one JSON object per line, so that a line which was cut or changed loses only itself.
 */
#include "kernel/cuda/product.h"
#include "base/fs.h"
#include "base/json.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA "flatout-product-1"
enum {
	FILE_MOST = 16 << 20, /* some 30,000 products */
	ALGO_BYTES = sizeof(cublasLtMatmulAlgo_t),
	RANK_MOST = 1 << 16,
};
#define SIZE_MOST ((json_int_t)1 << 40) /* no dimension of a product on a device is larger */
#define US_MOST 1e9
#define JOULES_MOST 1e9
#define HZ_MOST 1e12

static const char *const method_name[FO_CUDA_METHODS] = { "bursts", "clear", "blocks" };

static const struct {
	const char *name;
	size_t offset;
} size_field[] = {
	{ "m", offsetof(struct fo_cuda_product, m) },     { "n", offsetof(struct fo_cuda_product, n) },
	{ "k", offsetof(struct fo_cuda_product, k) },     { "lda", offsetof(struct fo_cuda_product, lda) },
	{ "ldb", offsetof(struct fo_cuda_product, ldb) }, { "ldd", offsetof(struct fo_cuda_product, ldd) },
}, type_field[] = {
	{ "a", offsetof(struct fo_cuda_product, type_a) },
	{ "b", offsetof(struct fo_cuda_product, type_b) },
	{ "d", offsetof(struct fo_cuda_product, type_d) },
}, flag_field[] = {
	{ "transpose_a", offsetof(struct fo_cuda_product, ta) }, { "transpose_b", offsetof(struct fo_cuda_product, tb) },
	{ "accumulate", offsetof(struct fo_cuda_product, add) }, { "scale_lines", offsetof(struct fo_cuda_product, lines) },
	{ "fast", offsetof(struct fo_cuda_product, fast) },      { "loose", offsetof(struct fo_cuda_product, loose) },
};
enum {
	SIZES = sizeof size_field / sizeof *size_field,
	TYPES = sizeof type_field / sizeof *type_field,
	FLAGS = sizeof flag_field / sizeof *flag_field
};
#define AT(key, field) ((char *)(key) + (field).offset)

/* ---- reading ---- */

static bool read_size(const json_t *j, const char *name, json_int_t most, int64_t *out)
{
	const json_t *v = json_object_get(j, name);
	*out = json_integer_value(v);
	return json_is_integer(v) && *out >= 0 && *out <= most;
}

static bool read_type(const json_t *j, const char *name, uint8_t *out)
{
	static const uint8_t type[] = { FO_BF16, FO_F32, FO_E4M3, FO_E5M2 };
	const char *s = json_string_value(json_object_get(j, name));
	for (size_t i = 0; s && i < sizeof type; i++)
		if (!strcmp(s, fo_dtype_name[type[i]])) {
			*out = type[i];
			return true;
		}
	return false;
}

static bool read_us(const json_t *j, const char *name, double *out)
{
	const json_t *v = json_object_get(j, name);
	*out = json_number_value(v);
	return json_is_number(v) && *out > 0 && *out < US_MOST;
}

/* A number, or null: NAN. */
static bool read_known(const json_t *j, const char *name, double most, double *out)
{
	const json_t *v = json_object_get(j, name);
	*out = json_is_null(v) ? NAN : json_number_value(v);
	return json_is_null(v) || (json_is_number(v) && *out >= 0 && *out <= most);
}

/* How it was chosen. Lines from before there were blocks have no method: they were chosen by bursts. */
static bool read_method(const json_t *j, struct fo_cuda_choice *c)
{
	const char *method = json_string_value(json_object_get(j, "method")),
		   *by = json_string_value(json_object_get(j, "decided_by"));
	const json_t *blocks = json_object_get(j, "blocks");
	c->noise = c->joules = c->hz = NAN;
	if (!json_object_get(j, "method"))
		return true;
	while (method && c->method < FO_CUDA_METHODS && strcmp(method, method_name[c->method]) != 0)
		c->method++;
	if (!method || c->method == FO_CUDA_METHODS || !by || !json_is_array(blocks) ||
	    json_array_size(blocks) > FO_TUNE_BLOCKS || (strcmp(by, "time") != 0 && strcmp(by, "energy") != 0))
		return false;
	c->by_energy = !strcmp(by, "energy");
	c->blocks = (int)json_array_size(blocks);
	for (int i = 0; i < c->blocks; i++) {
		const json_t *b = json_array_get(blocks, (size_t)i);
		int64_t rank;
		if (!read_size(b, "rank", RANK_MOST, &rank) || !read_us(b, "us", &c->block[i].us) ||
		    !read_known(b, "joules", JOULES_MOST, &c->block[i].joules) ||
		    !read_known(b, "clock_hz", HZ_MOST, &c->block[i].hz))
			return false;
		c->block[i].who = (int)rank;
	}
	return read_known(j, "noise", 1, &c->noise) && read_known(j, "joules", JOULES_MOST, &c->joules) &&
	       read_known(j, "clock_hz", HZ_MOST, &c->hz);
}

static bool read_algo(const json_t *j, cublasLtMatmulAlgo_t *out)
{
	const char *s = json_string_value(json_object_get(j, "algorithm"));
	unsigned char *to = (unsigned char *)out;
	if (!s || strlen(s) != 2 * ALGO_BYTES || strspn(s, "0123456789abcdef") != 2 * ALGO_BYTES)
		return false;
	for (int i = 0; i < ALGO_BYTES; i++) {
		const char two[3] = { s[2 * i], s[2 * i + 1], 0 };
		to[i] = (unsigned char)strtoul(two, NULL, 16);
	}
	return true;
}

static bool read_choice(const json_t *j, struct fo_cuda_choice *c)
{
	int64_t rank, of;
	memset(c, 0, sizeof *c);
	for (int i = 0; i < SIZES; i++)
		if (!read_size(j, size_field[i].name, SIZE_MOST, (int64_t *)(void *)AT(&c->key, size_field[i])))
			return false;
	for (int i = 0; i < TYPES; i++)
		if (!read_type(j, type_field[i].name, (uint8_t *)AT(&c->key, type_field[i])))
			return false;
	for (int i = 0; i < FLAGS; i++) {
		const json_t *v = json_object_get(j, flag_field[i].name);
		if (!json_is_boolean(v))
			return false;
		*AT(&c->key, flag_field[i]) = json_is_true(v);
	}
	if (!read_size(j, "rank", RANK_MOST, &rank) || !read_size(j, "of", RANK_MOST, &of))
		return false;
	c->rank = (int)rank;
	c->of = (int)of;
	return read_us(j, "us", &c->us) && read_us(j, "first_us", &c->first_us) && read_method(j, c) &&
	       read_algo(j, &c->algo);
}

const struct fo_cuda_choice *fo_cuda_choices_find(const struct fo_cuda_choices *in, const struct fo_cuda_product *key)
{
	for (size_t i = 0; i < in->n; i++)
		if (!memcmp(&in->choice[i].key, key, sizeof *key))
			return &in->choice[i];
	return NULL;
}

static void put(struct fo_cuda_choices *to, const struct fo_cuda_choice *c)
{
	struct fo_cuda_choice *old = (struct fo_cuda_choice *)(uintptr_t)fo_cuda_choices_find(to, &c->key);
	if (!old) {
		fo_array_room(&to->choice, &to->cap, to->n, sizeof *to->choice);
		old = &to->choice[to->n++];
	}
	*old = *c;
}

static void read_line(struct fo_cuda_choices *to, const char *line, size_t len)
{
	struct fo_cuda_choice c;
	json_error_t e;
	json_t *j = json_loadb(line, len, JSON_REJECT_DUPLICATES, &e);
	const char *schema = json_string_value(json_object_get(j, "schema")),
		   *device = json_string_value(json_object_get(j, "device")),
		   *library = json_string_value(json_object_get(j, "library"));
	if (!schema || !device || !library || strcmp(schema, SCHEMA) != 0) {
		to->damaged++;
	} else if (strcmp(device, to->device) != 0 || strcmp(library, to->library) != 0) {
		fo_str_append(&to->others, line, len);
		fo_str_puts(&to->others, "\n");
	} else if (read_choice(j, &c)) {
		put(to, &c);
	} else {
		to->damaged++;
	}
	json_decref(j);
}

fo_status fo_cuda_choices_read(struct fo_cuda_choices *to, const char *path)
{
	struct fo_arena a = { 0 };
	char *text = NULL;
	size_t len = 0;
	fo_cuda_choices_fini(to);
	fo_status st = fo_fs_exists(path) ? fo_fs_read_regular(&a, path, FILE_MOST, &text, &len) : FO_OK;
	for (size_t at = 0; st == FO_OK && at < len;) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end ? (size_t)(end - (text + at)) : len - at;
		if (n)
			read_line(to, text + at, n);
		at += n + 1;
	}
	fo_arena_fini(&a);
	return st;
}

void fo_cuda_choices_fini(struct fo_cuda_choices *c)
{
	free(c->choice);
	fo_str_fini(&c->others);
	c->choice = NULL;
	c->n = c->cap = 0;
	c->others = (struct fo_str){ 0 };
	c->damaged = 0;
}

/* ---- writing ---- */

static void write_method(const struct fo_cuda_choice *c, struct fo_json *j)
{
	fo_json_text(j, "method", method_name[c->method]);
	fo_json_text(j, "decided_by", c->by_energy ? "energy" : "time");
	fo_json_real(j, "noise", c->noise);
	fo_json_real(j, "joules", c->joules);
	fo_json_real(j, "clock_hz", c->hz);
	fo_json_array(j, "blocks");
	for (int i = 0; i < c->blocks; i++) {
		fo_json_object(j, NULL);
		fo_json_int(j, "rank", c->block[i].who);
		fo_json_real(j, "us", c->block[i].us);
		fo_json_real(j, "joules", c->block[i].joules);
		fo_json_real(j, "clock_hz", c->block[i].hz);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void write_choice(const struct fo_cuda_choices *of, const struct fo_cuda_choice *c, struct fo_str *out)
{
	char hex[2 * ALGO_BYTES + 1];
	const unsigned char *from = (const unsigned char *)&c->algo;
	struct fo_json j;
	for (int i = 0; i < ALGO_BYTES; i++)
		snprintf(hex + 2 * i, 3, "%02x", from[i]);
	fo_json_begin(&j, out, false);
	fo_json_object(&j, NULL);
	fo_json_text(&j, "schema", SCHEMA);
	fo_json_text(&j, "device", of->device);
	fo_json_text(&j, "library", of->library);
	for (int i = 0; i < SIZES; i++)
		fo_json_int(&j, size_field[i].name, *(const int64_t *)(const void *)AT(&c->key, size_field[i]));
	for (int i = 0; i < TYPES; i++)
		fo_json_text(&j, type_field[i].name, fo_dtype_name[*(const uint8_t *)AT(&c->key, type_field[i])]);
	for (int i = 0; i < FLAGS; i++)
		fo_json_bool(&j, flag_field[i].name, *AT(&c->key, flag_field[i]));
	fo_json_real(&j, "us", c->us);
	fo_json_real(&j, "first_us", c->first_us);
	fo_json_int(&j, "rank", c->rank);
	fo_json_int(&j, "of", c->of);
	write_method(c, &j);
	fo_json_text(&j, "algorithm", hex);
	fo_json_close(&j);
	fo_str_puts(out, "\n");
}

fo_status fo_cuda_choices_keep(struct fo_cuda_choices *to, const char *path, const struct fo_cuda_choice *add)
{
	struct fo_str out = { 0 };
	int lock;
	FO_TRY(fo_fs_update_begin(path, &lock));
	fo_status st = fo_cuda_choices_read(to, path);
	if (st != FO_OK)
		goto done;
	put(to, add);
	if (to->others.len)
		fo_str_append(&out, to->others.data, to->others.len);
	for (size_t i = 0; i < to->n; i++)
		write_choice(to, &to->choice[i], &out);
	st = fo_fs_write_atomic(path, out.data, out.len);
done:
	fo_fs_update_end(lock);
	fo_str_fini(&out);
	return st;
}
