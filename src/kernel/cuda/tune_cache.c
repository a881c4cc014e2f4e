/* Choices of algorithms on disk: one JSON object per line, so that a line which was cut or changed loses only itself.
 */
#include "kernel/cuda/product.h"
#include "base/fs.h"
#include "base/schema.h"

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

static const char *const method_name[FO_CUDA_METHODS] = { "bursts", "clear", "blocks" };
static const char *const decider_name[] = { "time", "energy" };

/* ---- the record ---- */

/* A choice as a line of the file has it. */
struct line {
	const char *schema, *device, *library, *algorithm;
	struct fo_cuda_choice c; /* method -1: absent */
	int decider;             /* as c.by_energy; -1: absent */
};

#define RANK .flags = FO_NEEDED, .high = RANK_MOST
#define MICROSECONDS .flags = FO_NEEDED, .low = 0x1p-1022, .high = 1e9
#define JOULES .flags = FO_NULLS, .high = 1e9
#define HERTZ .flags = FO_NULLS, .high = 1e12

#define BLOCK(m, ...) FO_FIELD(struct fo_tune_block, m, __VA_ARGS__)
static const struct fo_schema_field block_field[] = {
	BLOCK(who, "rank", "", "of the algorithm that ran", RANK),
	BLOCK(us, "us", "us", "of a run", MICROSECONDS),
	BLOCK(joules, "joules", "J", "of a run", JOULES),
	BLOCK(hz, "clock_hz", "Hz", "mean SM clock", HERTZ),
};
static const struct fo_schema block_schema = { "", "block", FO_FIELDS(struct fo_tune_block, block_field) };

#define LINE(m, ...) FO_FIELD(struct line, m, __VA_ARGS__)
/* No dimension of a matmul on a device is larger. */
#define SIZE(m, means) LINE(c.key.m, #m, "", means, .flags = FO_NEEDED, .high = 1LL << 40)
#define TYPE(m, means)                                                                                              \
	FO_FIELD_AS(CHOICE, struct line, c.key.type_##m, #m, "", means, .flags = FO_NEEDED, .names = fo_dtype_name, \
		    .elements = FO_DTYPE_COUNT)
#define FLAG(m, name, means) LINE(c.key.m, name, "", means, .flags = FO_NEEDED)
static const struct fo_schema_field line_field[] = {
	LINE(schema, "schema", "", "`" SCHEMA "`", .flags = FO_NEEDED),
	LINE(device, "device", "", "name of the device", .flags = FO_NEEDED),
	LINE(library, "library", "", "version of cuBLASLt", .flags = FO_NEEDED),
	SIZE(m, "rows of d"),
	SIZE(n, "columns of d"),
	SIZE(k, "length of the sums"),
	SIZE(lda, "row length of a"),
	SIZE(ldb, "row length of b"),
	SIZE(ldd, "row length of d"),
	TYPE(a, "data type of a"),
	TYPE(b, "data type of b"),
	TYPE(d, "data type of d"),
	FLAG(ta, "transpose_a", "a is transposed"),
	FLAG(tb, "transpose_b", "b is transposed"),
	FLAG(add, "accumulate", "d is added to"),
	FLAG(lines, "scale_lines", "fp8: a scale for each line of either factor"),
	FLAG(fast, "fast", "fp8: sums in the tensor cores' shorter form"),
	FLAG(loose, "loose", "operands begin at multiples of their elements only"),
	LINE(c.us, "us", "us", "median of the choice", MICROSECONDS),
	LINE(c.first_us, "first_us", "us", "median of the library's first proposal", MICROSECONDS),
	LINE(c.rank, "rank", "", "the choice's place among the proposals that ran", RANK),
	LINE(c.of, "of", "", "proposals that ran", RANK),
	FO_FIELD_AS(CHOICE, struct line, c.method, "method", "", "how it was chosen", .names = method_name,
		    .elements = FO_CUDA_METHODS, .absent = -1),
	FO_FIELD_AS(CHOICE, struct line, decider, "decided_by", "", "what decided", .names = decider_name,
		    .elements = 2, .absent = -1),
	LINE(c.noise, "noise", "share", "of the blocks' times", .flags = FO_NULLS, .high = 1),
	LINE(c.joules, "joules", "J", "median of the choice's blocks", JOULES),
	LINE(c.hz, "clock_hz", "Hz", "median of the choice's blocks", HERTZ),
	FO_FIELD_LIST(struct line, c.block, c.blocks, &block_schema, "blocks", "in the order in which they ran",
		      .elements = FO_TUNE_BLOCKS),
	LINE(algorithm, "algorithm", "", "the library's own 64 bytes in hexadecimal", .flags = FO_NEEDED),
};
static const struct fo_schema line_schema = { "products", "choice of an algorithm",
					      FO_FIELDS(struct line, line_field) };

/* ---- reading ---- */

static bool read_algo(const char *s, cublasLtMatmulAlgo_t *out)
{
	unsigned char *to = (unsigned char *)out;
	if (strlen(s) != 2 * ALGO_BYTES || strspn(s, "0123456789abcdef") != 2 * ALGO_BYTES)
		return false;
	for (int i = 0; i < ALGO_BYTES; i++) {
		const char two[3] = { s[2 * i], s[2 * i + 1], 0 };
		to[i] = (unsigned char)strtoul(two, NULL, 16);
	}
	return true;
}

/* Data types that the library multiplies. */
static bool multiplies(int dtype)
{
	return dtype == FO_BF16 || dtype == FO_F32 || dtype == FO_E4M3 || dtype == FO_E5M2;
}

/* Completes l->c from the rest of the line; false: the line is damaged. */
static bool complete(struct line *l)
{
	struct fo_cuda_choice *c = &l->c;
	const bool decided = c->method < 0 || l->decider >= 0;
	c->by_energy = l->decider == 1;
	if (c->method < 0) { /* lines from before there were blocks have no method: they were chosen by bursts */
		c->method = FO_CUDA_BURSTS;
		c->by_energy = false;
		c->noise = c->joules = c->hz = NAN;
		c->blocks = 0;
	}
	return multiplies(c->key.type_a) && multiplies(c->key.type_b) && multiplies(c->key.type_d) && decided &&
	       read_algo(l->algorithm, &c->algo);
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

/* Takes a line: a choice of this device and library, one of another (kept as text), or a damaged one. */
static void read_line(struct fo_cuda_choices *to, const char *text, size_t len)
{
	struct fo_arena a = { 0 };
	struct fo_schema_reader lenient = { .arena = &a, .lenient = true }, strict = { .arena = &a, .where = "line" };
	struct line l = { 0 };
	json_error_t e;
	json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
	fo_schema_blank(&line_schema, &l);
	fo_schema_read(&line_schema, j, &l, &lenient);
	if (strcmp(l.schema, SCHEMA) != 0 || !*l.device || !*l.library) {
		to->damaged++;
	} else if (strcmp(l.device, to->device) != 0 || strcmp(l.library, to->library) != 0) {
		fo_str_append(&to->others, text, len);
		fo_str_puts(&to->others, "\n");
	} else if (fo_schema_read(&line_schema, j, &l, &strict) == FO_OK && complete(&l)) {
		put(to, &l.c);
	} else {
		to->damaged++;
		fo_err_clear();
	}
	json_decref(j);
	fo_arena_fini(&a);
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

static void write_choice(const struct fo_cuda_choices *of, const struct fo_cuda_choice *c, struct fo_str *out)
{
	const unsigned char *from = (const unsigned char *)&c->algo;
	char hex[2 * ALGO_BYTES + 1];
	for (int i = 0; i < ALGO_BYTES; i++)
		snprintf(hex + 2 * i, 3, "%02x", from[i]);
	const struct line l = { .schema = SCHEMA,
				.device = of->device,
				.library = of->library,
				.algorithm = hex,
				.c = *c,
				.decider = c->by_energy };
	fo_schema_text(&line_schema, &l, false, out);
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
