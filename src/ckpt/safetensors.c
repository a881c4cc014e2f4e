/* safetensors: 8 bytes little-endian header length, a JSON header, raw data. */
#include "base/count.h"
#include "base/schema.h"
#include "base/retry.h"
#include "ckpt/ckpt_int.h"
#include "kernel/kernel.h"
#include "kernel/round.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define MAX_HEADER ((size_t)100 << 20) /* the reference implementation's limit */
#define MAX_TENSORS 1000000

/* Data types that tensors of ours have: all before fp8, which is made from the weights again. */
enum { TYPES = FO_I16 + 1 };
static const char *const type_name[TYPES] = {
	[FO_F32] = "F32", [FO_BF16] = "BF16", [FO_F64] = "F64", [FO_I32] = "I32", [FO_I16] = "I16"
};
static const struct {
	const char *name;
	size_t bytes;
} known_type[] = {
	{ "F32", 4 }, { "BF16", 2 }, { "F64", 8 }, { "I32", 4 },     { "I64", 8 },
	{ "F16", 2 }, { "U8", 1 },   { "I8", 1 },  { "BOOL", 1 },    { "I16", 2 },
	{ "U16", 2 }, { "U32", 4 },  { "U64", 8 }, { "F8_E4M3", 1 }, { "F8_E5M2", 1 },
};

/* ---- tensors by parts ---- */

/* A rectangle of a tensor, in memory of this process: whole rows, or a part of one. */
typedef fo_status part_fn(void *ctx, const struct fo_st_tensor *part, int64_t row, int64_t col);

static unsigned char *element(const void *data, const struct fo_st_tensor *t, int64_t row, int64_t col)
{
	return (unsigned char *)(uintptr_t)data + (row * t->ld + col) * (int64_t)fo_dtype_bytes(t->dtype);
}

static fo_status do_part(const struct fo_st_tensor *t, int64_t row, int64_t col, int64_t rows, int64_t cols,
			 bool writes, part_fn *fn, void *ctx)
{
	const struct fo_st_memory *m = t->memory;
	int64_t bytes = ((rows - 1) * t->ld + cols) *
			(int64_t)fo_dtype_bytes(t->dtype); /* a low half is as large as its weight */
	unsigned char *at = element(t->data, t, row, col), *low = t->low ? element(t->low, t, row, col) : NULL;
	bool fetch = !writes || (rows > 1 && t->ld != t->cols); /* what lies between rows stays as it is */
	struct fo_st_tensor part = *t;
	void *piece[2] = { NULL, NULL };
	part.rows = rows;
	part.cols = cols;
	FO_TRY(m->get(m->ctx, 0, at, bytes, fetch, &piece[0]));
	if (low)
		FO_TRY(m->get(m->ctx, 1, low, bytes, fetch, &piece[1]));
	part.data = piece[0];
	part.low = piece[1];
	FO_TRY(fn(ctx, &part, row, col));
	if (!writes)
		return FO_OK;
	FO_TRY(m->put(m->ctx, 0, at, bytes));
	return low ? m->put(m->ctx, 1, low, bytes) : FO_OK;
}

/* Calls fn for the whole tensor in rising order: once where it is in this process's memory, else piece by piece. */
static fo_status by_parts(const struct fo_st_tensor *t, bool writes, part_fn *fn, void *ctx)
{
	if (!t->memory || !t->rows)
		return t->rows ? fn(ctx, t, 0, 0) : FO_OK;
	int64_t room = t->memory->piece_bytes / (int64_t)fo_dtype_bytes(t->dtype),
		rows = room < t->cols ? 1 : 1 + (room - t->cols) / t->ld;
	for (int64_t r = 0; r < t->rows; r += rows)
		for (int64_t c = 0; c < t->cols; c += room)
			FO_TRY(do_part(t, r, c, fo_min(rows, t->rows - r), fo_min(room, t->cols - c), writes, fn, ctx));
	return FO_OK;
}

/* ---- writing ---- */

/* Bytes between two looks at the same memory: what is hashed is written while a processor's cache still has it. */
#define PUT_BYTES ((int64_t)1 << 20)

static size_t row_bytes(const struct fo_st_tensor *t) { return (size_t)t->cols * fo_dtype_bytes(t->dtype); }
int64_t fo_st_bytes(const struct fo_st_tensor *t)
{
	return fo_st_whole(t) * fo_st_wide(t) * (int64_t)fo_dtype_bytes(t->dtype);
}

void fo_st_header(struct fo_str *out, const struct fo_st_tensor *t, size_t n, const char *metadata_json)
{
	struct fo_json j;
	size_t at = 0;
	fo_json_begin(&j, out, false);
	fo_json_object(&j, NULL);
	if (metadata_json)
		fo_json_raw(&j, "__metadata__", metadata_json);
	for (size_t i = 0; i < n; i++) {
		fo_json_object(&j, t[i].name);
		fo_json_text(&j, "dtype", type_name[t[i].dtype]);
		fo_json_array(&j, "shape");
		if (!t[i].vector)
			fo_json_int(&j, NULL, fo_st_whole(&t[i]));
		fo_json_int(&j, NULL, fo_st_wide(&t[i]));
		fo_json_close(&j);
		fo_json_array(&j, "data_offsets");
		fo_json_int(&j, NULL, (int64_t)at);
		fo_json_int(&j, NULL, (int64_t)(at += (size_t)fo_st_bytes(&t[i])));
		fo_json_close(&j);
		fo_json_close(&j);
	}
	fo_json_close(&j);
	while (out->len % 8)
		fo_str_puts(out, " ");
}

uint64_t fo_st_header_sum(const struct fo_str *head)
{
	const uint64_t len = head->len;
	XXH3_state_t *s = XXH3_createState();
	XXH3_64bits_reset(s);
	XXH3_64bits_update(s, &len, sizeof len);
	XXH3_64bits_update(s, head->data, head->len);
	const uint64_t sum = XXH3_64bits_digest(s);
	XXH3_freeState(s);
	return sum;
}

fo_status fo_st_put_header(int fd, const char *path, const struct fo_str *head)
{
	const uint64_t len = head->len; /* little-endian, as every machine we build for is */
	int error = fo_write_all(fd, &len, sizeof len, NULL);
	if (!error)
		error = fo_write_all(fd, head->data, head->len, NULL);
	return error ? fo_fs_refuse("write", path, error) : FO_OK;
}

struct sink {
	int fd;
	const char *path;
	int64_t at;       /* where the tensor begins in the file */
	int64_t row, col; /* in the whole tensor: of what is put */
	uint64_t sum;
	int64_t next; /* where the file's offset is */
};

static fo_status put(struct sink *s, int64_t to, const void *bytes, size_t n)
{
	if (s->next != to && lseek(s->fd, to, SEEK_SET) != to)
		return fo_fs_refuse("write", s->path, errno);
	int error = fo_write_all(s->fd, bytes, n, NULL);
	s->next = to + (int64_t)n;
	return error ? fo_fs_refuse("write", s->path, error) : FO_OK;
}

/* Rows, or a part of one, which begin at (row, col) of what is put. What lies one behind the other in memory and in the
 * file is put at once. */
static fo_status put_part(void *ctx, const struct fo_st_tensor *t, int64_t row, int64_t col)
{
	struct sink *s = ctx;
	const int64_t wide = fo_st_wide(t), bytes = (int64_t)row_bytes(t), size = (int64_t)fo_dtype_bytes(t->dtype);
	const int64_t step = t->cols == wide && t->ld == wide ? fo_max(1, PUT_BYTES / (bytes + 1)) : 1;
	for (int64_t r = 0; r < t->rows; r += step) {
		const int64_t rows = fo_min(step, t->rows - r), first = (s->row + row + r) * wide + s->col + col;
		const void *from = element(t->data, t, r, 0);
		s->sum += fo_st_words_sum(from, (size_t)size, rows * t->cols, first, s->at);
		FO_TRY(put(s, s->at + first * size, from, (size_t)(rows * bytes)));
	}
	return FO_OK;
}

fo_status fo_st_put(int fd, const char *path, const struct fo_st_tensor *t, int64_t from, int64_t rows, int64_t at,
		    uint64_t *sum)
{
	struct fo_st_tensor some = *t;
	struct sink s = { .fd = fd, .path = path, .at = at, .row = t->row + from, .col = t->col, .next = -1 };
	if (!rows)
		return FO_OK;
	some.rows = rows;
	some.wide = fo_st_wide(t); /* a part of a row is not a narrower tensor */
	some.data = element(t->data, t, from, 0);
	fo_status st = by_parts(&some, false, put_part, &s);
	*sum += s.sum;
	return st;
}

static fo_status write_all(int fd, const char *path, const struct fo_st_tensor *t, size_t n, const struct fo_str *head,
			   uint64_t *sum)
{
	int64_t at = fo_st_header_bytes(head);
	FO_TRY(fo_st_put_header(fd, path, head));
	*sum = fo_st_header_sum(head);
	for (size_t i = 0; i < n; i++) {
		FO_TRY(fo_st_put(fd, path, &t[i], 0, t[i].rows, at, sum));
		at += fo_st_bytes(&t[i]);
	}
	return fo_fsync(fd) ? fo_fs_refuse("write", path, errno) : FO_OK;
}

fo_status fo_st_write(const char *path, const struct fo_st_tensor *t, size_t n, const char *metadata_json,
		      uint64_t *checksum)
{
	int fd = fo_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return fo_fs_refuse("create", path, errno);
	struct fo_str head = { 0 };
	fo_st_header(&head, t, n, metadata_json);
	fo_status st = write_all(fd, path, t, n, &head, checksum);
	fo_str_fini(&head);
	if (fo_close(fd) && st == FO_OK)
		st = fo_fs_refuse("write", path, errno);
	return st;
}

/* ---- reading ---- */

static size_t type_bytes(const char *name)
{
	for (size_t i = 0; i < sizeof known_type / sizeof *known_type; i++)
		if (!strcmp(known_type[i].name, name))
			return known_type[i].bytes;
	return 0;
}

static fo_status read_entry(struct fo_st_entry *e, const char *path, const char *name, json_t *v, size_t data_len)
{
	const char *dtype = json_string_value(json_object_get(v, "dtype"));
	json_t *shape = json_object_get(v, "shape"), *off = json_object_get(v, "data_offsets"),
	       *o0 = json_array_get(off, 0), *o1 = json_array_get(off, 1);
	char seen[160];
	fo_str_visible(seen, sizeof seen, name);
	if (strlen(name) >= sizeof e->name)
		return fo_fail(FO_EFORMAT, "'%s': tensor name '%s...' is longer than %zu bytes", path, seen,
			       sizeof e->name - 1);
	if (!dtype || !type_bytes(dtype))
		return fo_fail(FO_EFORMAT, "'%s': tensor '%s' has no dtype that safetensors defines", path, seen);
	if (!json_is_array(shape) || json_array_size(shape) > 8 || json_array_size(off) != 2 || !json_is_integer(o0) ||
	    !json_is_integer(o1))
		return fo_fail(FO_EFORMAT,
			       "'%s': tensor '%s' needs a shape of at most 8 dimensions and two data_offsets", path,
			       seen);
	size_t bytes = type_bytes(dtype);
	e->ndim = (int)json_array_size(shape);
	for (int i = 0; i < e->ndim; i++) {
		json_t *d = json_array_get(shape, (size_t)i);
		if (!json_is_integer(d) || json_integer_value(d) < 0)
			return fo_fail(FO_EFORMAT, "'%s': tensor '%s' has a dimension that is not a whole number", path,
				       seen);
		e->shape[i] = json_integer_value(d);
		fo_status st = fo_mul_size(bytes, (size_t)e->shape[i], &bytes);
		if (st != FO_OK)
			return fo_wrap(st, "'%s': tensor '%s'", path, seen);
	}
	json_int_t begin = json_integer_value(o0), end = json_integer_value(o1);
	if (begin < 0 || end < begin || (size_t)end > data_len || (size_t)(end - begin) != bytes)
		return fo_fail(FO_EFORMAT,
			       "'%s': tensor '%s' occupies bytes %lld to %lld, its shape needs %zu bytes and the file "
			       "holds %zu",
			       path, seen, (long long)begin, (long long)end, bytes, data_len);
	snprintf(e->name, sizeof e->name, "%s", name);
	snprintf(e->dtype, sizeof e->dtype, "%s", dtype);
	e->begin = (size_t)begin;
	e->end = (size_t)end;
	return FO_OK;
}

static int by_begin(const void *a, const void *b)
{
	const struct fo_st_entry *x = a, *y = b;
	int order = fo_order((int64_t)x->begin, (int64_t)y->begin);
	return order ? order : fo_order((int64_t)x->end, (int64_t)y->end);
}

static fo_status read_header(struct fo_st_file *f, const char *path, json_t *root, size_t data_len)
{
	size_t count = json_object_size(root);
	if (!json_is_object(root) || count > MAX_TENSORS)
		return fo_fail(FO_EFORMAT, "'%s': the safetensors header must be an object of at most %d tensors", path,
			       MAX_TENSORS);
	f->entry = fo_arena_alloc(&f->arena, (count + 1) * sizeof *f->entry);
	const char *name;
	json_t *v;
	json_object_foreach(root, name, v)
	{
		if (strcmp(name, "__metadata__"))
			FO_TRY(read_entry(&f->entry[f->n++], path, name, v, data_len));
	}
	qsort(f->entry, f->n, sizeof *f->entry, by_begin);
	size_t at = 0;
	for (size_t i = 0; i < f->n; i++) {
		if (f->entry[i].begin != at)
			return fo_fail(
				FO_EFORMAT,
				"'%s': tensor '%s' begins at byte %zu, expected %zu: tensors overlap or leave a gap",
				path, f->entry[i].name, f->entry[i].begin, at);
		at = f->entry[i].end;
	}
	if (at != data_len)
		return fo_fail(FO_EFORMAT, "'%s': tensors end at byte %zu, the file's data at %zu", path, at, data_len);
	return FO_OK;
}

struct opening {
	struct fo_st_file *f;
	const char *path;
};

static fo_status open_mapped(void *ctx)
{
	struct fo_st_file *f = ((struct opening *)ctx)->f;
	const char *path = ((struct opening *)ctx)->path;
	uint64_t len = 0;
	if (f->map.len >= 8)
		memcpy(&len, f->map.data, 8);
	if (f->map.len < 8 || len > MAX_HEADER || len > f->map.len - 8)
		return fo_fail(FO_EFORMAT,
			       "'%s' is not a safetensors file: it has %zu bytes and its header claims %llu", path,
			       f->map.len, (unsigned long long)len);
	json_t *root;
	f->data = f->map.data + 8 + len;
	FO_TRY(fo_schema_parse((const char *)f->map.data + 8, (size_t)len, path, "safetensors file", &root));
	fo_status st = read_header(f, path, root, f->map.len - 8 - (size_t)len);
	json_decref(root);
	return st;
}

fo_status fo_st_open(struct fo_st_file *f, const char *path)
{
	*f = (struct fo_st_file){ 0 };
	FO_TRY(fo_map_open(&f->map, path));
	fo_status st = fo_map_guard(open_mapped, &(struct opening){ f, path });
	if (st != FO_OK)
		fo_st_close(f);
	return st;
}

void fo_st_close(struct fo_st_file *f)
{
	fo_map_close(&f->map);
	fo_arena_fini(&f->arena);
	*f = (struct fo_st_file){ 0 };
}

struct summing {
	const struct fo_st_file *f;
	bool rows;
	uint64_t sum;
};

static uint64_t rows_sum(const unsigned char *data, const struct fo_st_entry *e, size_t head)
{
	size_t row = e->end - e->begin;
	uint64_t sum = 0;
	if (e->ndim > 1 && row)
		row /= (size_t)e->shape[0];
	for (size_t at = e->begin; at < e->end; at += row)
		sum += XXH3_64bits_withSeed(data + at, row, head + at);
	return sum;
}

static fo_status sum_mapped(void *ctx)
{
	struct summing *s = ctx;
	const struct fo_st_file *f = s->f;
	const size_t head = (size_t)(f->data - f->map.data);
	s->sum = XXH3_64bits(f->map.data, head);
	for (size_t i = 0; i < f->n; i++) {
		const struct fo_st_entry *e = &f->entry[i];
		const size_t size = type_bytes(e->dtype);
		s->sum += s->rows ? rows_sum(f->data, e, head)
				  : fo_st_words_sum(f->data + e->begin, size, (int64_t)((e->end - e->begin) / size), 0,
						    (int64_t)(head + e->begin));
	}
	return FO_OK;
}

fo_status fo_st_sum(const struct fo_st_file *f, bool rows, uint64_t *sum)
{
	struct summing s = { .f = f, .rows = rows };
	fo_status st = fo_map_guard(sum_mapped, &s);
	*sum = s.sum;
	return st;
}

const struct fo_st_entry *fo_st_find(const struct fo_st_file *f, const char *name)
{
	for (size_t i = 0; i < f->n; i++)
		if (!strcmp(f->entry[i].name, name))
			return &f->entry[i];
	return NULL;
}

/* IEEE 754 binary16, which files may hold and nothing here computes in. */
enum { F16 = FO_DTYPE_COUNT };

/* 5 bits of exponent (bias 15) and 10 of fraction: every value is a float exactly. */
static float f16_to_f32(uint16_t h)
{
	int exponent = h >> 10 & 31, fraction = h & 1023;
	double v = ldexp(fraction, -24);
	if (exponent == 31)
		v = fraction ? NAN : INFINITY;
	else if (exponent)
		v = ldexp(1024 + fraction, exponent - 25);
	return (float)(h >> 15 ? -v : v);
}

static double load_element(const unsigned char *p, int dtype)
{
	if (dtype == FO_F64) {
		double v;
		memcpy(&v, p, 8);
		return v;
	}
	if (dtype == F16) {
		uint16_t h;
		memcpy(&h, p, 2);
		return (double)f16_to_f32(h);
	}
	uint32_t u = 0;
	memcpy(&u, p, dtype == FO_BF16 ? 2 : 4);
	if (dtype == FO_BF16)
		u <<= 16;
	float v;
	memcpy(&v, &u, 4);
	return v;
}

static void store_element(unsigned char *p, int dtype, double d)
{
	if (dtype == FO_F64) {
		memcpy(p, &d, 8);
		return;
	}
	float f = (float)d;
	if (dtype == FO_F32) {
		memcpy(p, &f, 4);
		return;
	}
	uint16_t h = fo_bf16_from_f32(f);
	memcpy(p, &h, 2);
}

bool fo_st_fits(const struct fo_st_entry *e, const struct fo_st_tensor *t)
{
	return t->vector ? e->ndim == 1 && e->shape[0] == fo_st_wide(t)
			 : e->ndim == 2 && e->shape[0] == fo_st_whole(t) && e->shape[1] == fo_st_wide(t);
}

/* enum fo_dtype, or F16; -1: a type that no tensor of ours takes. */
static int element_type(const struct fo_st_entry *e)
{
	for (int i = 0; i < TYPES; i++)
		if (!strcmp(type_name[i], e->dtype))
			return i;
	return strcmp(e->dtype, "F16") ? -1 : F16;
}

/* Integers are copied as they are, never converted. */
static bool is_integer(int dtype) { return dtype == FO_I32 || dtype == FO_I16; }

struct copying {
	const struct fo_st_tensor *t; /* the part */
	const unsigned char *src;     /* in the map: the tensor's first element, later the part's */
	int64_t cols;                 /* of the whole tensor */
	int from;
};

static size_t from_bytes(int from) { return from == F16 ? 2 : fo_dtype_bytes(from); }

static fo_status copy_rows(void *ctx)
{
	const struct copying *how = ctx;
	const struct fo_st_tensor *t = how->t;
	const unsigned char *src = how->src;
	int from = how->from;
	size_t fs = from_bytes(from), ts = fo_dtype_bytes(t->dtype);
	for (int64_t r = 0; r < t->rows; r++, src += (size_t)how->cols * fs) {
		unsigned char *dst = (unsigned char *)t->data + (size_t)(r * t->ld) * ts;
		if (t->low)
			for (int64_t c = 0; c < t->cols; c++) {
				float v = (float)load_element(src + (size_t)c * fs, from);
				((uint16_t *)dst)[c] = fo_split_high(v);
				t->low[r * t->ld + c] = fo_split_low(v);
			}
		else if (from == t->dtype)
			memcpy(dst, src, (size_t)t->cols * ts);
		else
			for (int64_t c = 0; c < t->cols; c++)
				store_element(dst + (size_t)c * ts, t->dtype, load_element(src + (size_t)c * fs, from));
	}
	return FO_OK;
}

/* Only reading the mapped file is guarded: the guard leaves its callee with a jump. */
static fo_status copy_part(void *ctx, const struct fo_st_tensor *part, int64_t row, int64_t col)
{
	struct copying how = *(const struct copying *)ctx;
	how.t = part;
	how.src += (size_t)(row * how.cols + col) * from_bytes(how.from);
	return fo_map_guard(copy_rows, &how);
}

static fo_status zero_part(void *ctx, const struct fo_st_tensor *t, int64_t row, int64_t col)
{
	size_t size = fo_dtype_bytes(t->dtype);
	(void)ctx, (void)row, (void)col;
	for (int64_t r = 0; r < t->rows; r++)
		memset((char *)t->data + (size_t)(r * t->ld) * size, 0, (size_t)t->cols * size);
	return FO_OK;
}

fo_status fo_st_zero(const struct fo_st_tensor *t) { return by_parts(t, true, zero_part, NULL); }

fo_status fo_st_copy_entry(const struct fo_st_file *f, const char *path, const struct fo_st_entry *e,
			   const struct fo_st_tensor *t)
{
	if (!fo_st_fits(e, t))
		return fo_fail(FO_EFORMAT, "'%s': tensor '%s' has another shape than the model's %lld x %lld", path,
			       t->name, (long long)fo_st_whole(t), (long long)fo_st_wide(t));
	int from = element_type(e);
	if (from < 0 || (from != t->dtype && (is_integer(from) || is_integer(t->dtype))))
		return fo_fail(FO_EFORMAT, "'%s': tensor '%s' is %s, expected F32, BF16, F16 or F64", path, t->name,
			       e->dtype);
	const int64_t wide = fo_st_wide(t);
	const size_t skipped = (size_t)(t->row * wide + t->col) * from_bytes(from);
	return by_parts(t, true, copy_part, &(struct copying){ NULL, f->data + e->begin + skipped, wide, from });
}

fo_status fo_st_copy(const struct fo_st_file *f, const char *path, const struct fo_st_tensor *t)
{
	const struct fo_st_entry *e = fo_st_find(f, t->name);
	if (!e)
		return fo_fail(FO_EFORMAT, "'%s' has no tensor '%s'", path, t->name);
	return fo_st_copy_entry(f, path, e, t);
}
