/* safetensors files: round trips, conversions, and bytes that are not what they should be. */
#include "ckpt/ckpt.h"
#include "base/clock.h"
#include "kernel/kernel.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "test_safetensors.XXXXXX", path[64];

static void spill(const void *bytes, size_t n)
{
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	fclose(f);
}

static unsigned char *slurp(size_t *n)
{
	struct fo_map m;
	must(fo_map_open(&m, path));
	unsigned char *copy = malloc(m.len + 1);
	memcpy(copy, m.data, *n = m.len);
	fo_map_close(&m);
	return copy;
}

static void test_round_trip(void **state)
{
	(void)state;
	float wide[3][5], v[4] = { 1, -0.0f, INFINITY, NAN };
	uint16_t half[6];
	double d[2] = { 0.1, 1e300 };
	int32_t idx[2] = { -7, 1 << 30 };
	for (int i = 0; i < 15; i++)
		wide[i / 5][i % 5] = (float)fo_rng_normal(1, (uint64_t)i);
	for (int i = 0; i < 6; i++)
		half[i] = fo_bf16_from_f32((float)i / 3);
	const struct fo_st_tensor t[] = {
		{ .name = "a rectangle", .dtype = FO_F32, .rows = 3, .cols = 4, .ld = 5, .data = wide },
		{ .name = "v", .dtype = FO_F32, .vector = true, .rows = 1, .cols = 4, .ld = 4, .data = v },
		{ .name = "h", .dtype = FO_BF16, .rows = 2, .cols = 3, .ld = 3, .data = half },
		{ .name = "d", .dtype = FO_F64, .vector = true, .rows = 1, .cols = 2, .ld = 2, .data = d },
		{ .name = "i", .dtype = FO_I32, .vector = true, .rows = 1, .cols = 2, .ld = 2, .data = idx },
	};
	uint64_t sum, again;
	must(fo_st_write(path, t, 5, "{\"format\":\"pt\"}", &sum));
	must(fo_st_write(path, t, 5, "{\"format\":\"pt\"}", &again));
	assert_true(sum == again);
	size_t n;
	unsigned char *bytes = slurp(&n);
	uint64_t head;
	memcpy(&head, bytes, 8);
	assert_int_equal(head % 8, 0); /* data aligned as the format asks */
	assert_int_equal(n, 8 + head + 3 * 4 * 4 + 16 + 12 + 16 + 8);
	free(bytes);
	struct fo_st_file f;
	must(fo_st_open(&f, path));
	assert_int_equal(f.n, 5);
	assert_null(fo_st_find(&f, "__metadata__"));
	assert_int_equal(fo_st_find(&f, "v")->ndim, 1);
	assert_int_equal(fo_st_find(&f, "h")->shape[1], 3);
	float back[3][7];
	memset(back, 0x55, sizeof back);
	struct fo_st_tensor to = {
		.name = "a rectangle", .dtype = FO_F32, .rows = 3, .cols = 4, .ld = 7, .data = back
	};
	must(fo_st_copy(&f, path, &to));
	for (int i = 0; i < 3; i++) {
		assert_memory_equal(back[i], wide[i], 16);
		assert_int_equal(((unsigned char *)&back[i][4])[0], 0x55); /* nothing beside the rectangle */
	}
	double as64[12];
	uint16_t as16[12];
	to = (struct fo_st_tensor){
		.name = "a rectangle", .dtype = FO_F64, .rows = 3, .cols = 4, .ld = 4, .data = as64
	};
	must(fo_st_copy(&f, path, &to));
	to.dtype = FO_BF16, to.data = as16;
	must(fo_st_copy(&f, path, &to));
	for (int i = 0; i < 12; i++) {
		assert_true(as64[i] == (double)wide[i / 4][i % 4]);
		assert_int_equal(as16[i], fo_bf16_from_f32(wide[i / 4][i % 4]));
	}
	to = (struct fo_st_tensor){
		.name = "v", .dtype = FO_BF16, .vector = true, .rows = 1, .cols = 4, .ld = 4, .data = as16
	};
	must(fo_st_copy(&f, path, &to));
	assert_int_equal(as16[1], 0x8000);
	assert_true(isinf(fo_bf16_to_f32(as16[2])) && isnan(fo_bf16_to_f32(as16[3])));
	/* What does not fit. */
	to.cols = 5;
	assert_int_equal(fo_st_copy(&f, path, &to), FO_EFORMAT);
	to.cols = 4, to.vector = false;
	assert_int_equal(fo_st_copy(&f, path, &to), FO_EFORMAT);
	to.vector = true, to.dtype = FO_I32;
	assert_int_equal(fo_st_copy(&f, path, &to), FO_EFORMAT);
	snprintf(to.name, sizeof to.name, "nothing");
	assert_int_equal(fo_st_copy(&f, path, &to), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "nothing"));
	fo_st_close(&f);
}

/* ---- memory that is reached through pieces ---- */

static unsigned char far_away[512], *piece_of[2]; /* stands for a device's; addresses are `there` plus an offset */
static unsigned char there[512];
static int64_t largest;

static fo_status far_get(void *ctx, int piece, const void *at, int64_t bytes, bool fetch, void **data)
{
	const struct fo_st_memory *m = ctx;
	assert_true(bytes > 0 && bytes <= m->piece_bytes);
	largest = bytes > largest ? bytes : largest;
	free(piece_of[piece]);
	piece_of[piece] = malloc((size_t)bytes); /* of that size: a sanitizer sees what goes beyond */
	memset(piece_of[piece], 0xee, (size_t)bytes);
	if (fetch)
		memcpy(piece_of[piece], far_away + ((const unsigned char *)at - there), (size_t)bytes);
	*data = piece_of[piece];
	return FO_OK;
}

static fo_status far_put(void *ctx, int piece, void *at, int64_t bytes)
{
	(void)ctx;
	memcpy(far_away + ((unsigned char *)at - there), piece_of[piece], (size_t)bytes);
	return FO_OK;
}

/* Whatever a piece holds (one element, part of a row, rows, all of it): the file has the same bytes, the tensor gets
 * the same ones, what lies between its rows stays. */
static void test_in_pieces(void **state)
{
	(void)state;
	enum { ROWS = 5, COLS = 7, LD = 9 };
	static const int64_t size[] = { 8, 12, 28, 64, 100, 400 };
	float plain[ROWS * LD];
	uint16_t high[ROWS * LD], low[ROWS * LD];
	for (int i = 0; i < ROWS * LD; i++)
		plain[i] = (float)fo_rng_normal(3, (uint64_t)i);
	for (size_t k = 0; k < sizeof size / sizeof *size; k++)
		for (int ld = COLS; ld <= LD; ld += LD - COLS) {
			struct fo_st_memory m = { .ctx = &m, .piece_bytes = size[k], .get = far_get, .put = far_put };
			struct fo_st_tensor t = {
				.name = "t", .dtype = FO_F32, .rows = ROWS, .cols = COLS, .ld = ld, .data = plain
			};
			uint64_t near_sum, far_sum;
			struct fo_st_file f;
			largest = 0;
			must(fo_st_write(path, &t, 1, NULL, &near_sum));
			memcpy(far_away, plain, sizeof plain);
			t.memory = &m, t.data = there;
			must(fo_st_write(path, &t, 1, NULL, &far_sum));
			assert_true(near_sum == far_sum && largest <= size[k]);
			must(fo_st_open(&f, path));
			memset(far_away, 0x77, sizeof far_away);
			must(fo_st_copy(&f, path, &t));
			for (int i = 0; i < ROWS * ld; i++) {
				float v, gap;
				memcpy(&v, far_away + 4 * i, 4);
				memset(&gap, 0x77, 4);
				/* Behind the last row nothing is written; between rows what was there is written again.
				 */
				assert_memory_equal(&v, i % ld < COLS ? &plain[i] : &gap, 4);
			}
			/* Two destinations of one tensor: the weight and its low half. */
			struct fo_st_tensor s = { .name = "t",
						  .dtype = FO_BF16,
						  .rows = ROWS,
						  .cols = COLS,
						  .ld = ld,
						  .data = high,
						  .low = (int16_t *)low };
			memset(high, 0x77, sizeof high);
			memset(low, 0x77, sizeof low);
			must(fo_st_copy(&f, path, &s));
			memset(far_away, 0x77, sizeof far_away);
			s.memory = &m, s.data = there, s.low = (int16_t *)(void *)(there + 256);
			must(fo_st_copy(&f, path, &s));
			assert_memory_equal(far_away, high, (size_t)(ROWS * ld) * 2);
			assert_memory_equal(far_away + 256, low, (size_t)(ROWS * ld) * 2);
			must(fo_st_zero(&t));
			for (int i = 0; i < ROWS * ld; i++)
				for (int b = 0; i % ld < COLS && b < 4; b++)
					assert_int_equal(far_away[4 * i + b], 0);
			fo_st_close(&f);
		}
	free(piece_of[0]);
	free(piece_of[1]);
}

static fo_status open_header(const char *json, size_t data)
{
	struct fo_str s = { 0 };
	struct fo_st_file f;
	uint64_t n = strlen(json);
	char zero[64] = { 0 };
	fo_str_append(&s, &n, 8);
	fo_str_append(&s, json, n);
	fo_str_append(&s, zero, data);
	spill(s.data, s.len);
	fo_str_fini(&s);
	fo_err_clear();
	fo_status st = fo_st_open(&f, path);
	if (st == FO_OK)
		fo_st_close(&f);
	else
		assert_non_null(strstr(fo_err_text(), path));
	return st;
}

#define A(rest) "{\"a\":{\"dtype\":\"F32\"," rest "}}"
static void test_hostile_headers(void **state)
{
	(void)state;
	assert_int_equal(open_header(A("\"shape\":[2],\"data_offsets\":[0,8]"), 8), FO_OK);
	assert_int_equal(open_header("{}", 0), FO_OK);
	assert_int_equal(open_header("{\"__metadata__\":{\"x\":\"y\"}}  ", 0), FO_OK);
	assert_int_equal(open_header(A("\"shape\":[],\"data_offsets\":[0,4]"), 4), FO_OK); /* a scalar */
	assert_int_equal(open_header(A("\"shape\":[0],\"data_offsets\":[0,0]"), 0), FO_OK);
	static const char *const bad[] = {
		"",
		"[]",
		"7",
		"{",
		"{\"a\":1}",
		"{\"a\":{}}",
		"\xff\xfe",
		"{\"a\":null}",
		A("\"shape\":[2],\"data_offsets\":[0,9]"),
		A("\"shape\":[2],\"data_offsets\":[0,4]"),
		A("\"shape\":[2],\"data_offsets\":[1,9]"),
		A("\"shape\":[2],\"data_offsets\":[8,0]"),
		A("\"shape\":[2],\"data_offsets\":[-8,0]"),
		A("\"shape\":[2],\"data_offsets\":[0]"),
		A("\"shape\":[2],\"data_offsets\":[0,8,8]"),
		A("\"shape\":[2],\"data_offsets\":{}"),
		A("\"shape\":[2.0],\"data_offsets\":[0,8]"),
		A("\"shape\":[-2],\"data_offsets\":[0,8]"),
		A("\"shape\":2,\"data_offsets\":[0,8]"),
		A("\"shape\":[2]"),
		A("\"data_offsets\":[0,8]"),
		A("\"shape\":[4611686018427387904,4],\"data_offsets\":[0,8]"),
		A("\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]"),
		A("\"shape\":[99999999999999999999],\"data_offsets\":[0,8]"),
		A("\"shape\":[2],\"data_offsets\":[0,8]") "x",
		"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}",
		"{\"a\":{\"dtype\":4,\"shape\":[2],\"data_offsets\":[0,8]}}",
		"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[1]"
		",\"data_offsets\":[4,8]}}",
		"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1]"
		",\"data_offsets\":[0,4]}}",
		"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", /* four bytes belong to nobody */
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (open_header(bad[i], 8) != FO_EFORMAT)
			fail_msg("header %zu '%s' is not refused", i, bad[i]);
	char deep[5000];
	memset(deep, '[', sizeof deep - 1);
	deep[sizeof deep - 1] = 0;
	assert_int_equal(open_header(deep, 0), FO_EFORMAT);
	char name[400];
	snprintf(name, sizeof name, "{\"%0300d\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7);
	assert_int_equal(open_header(name, 8), FO_EFORMAT);
	/* Lengths that lie. */
	static const uint64_t length[] = { 0, 1, 7, 9, 1 << 20, UINT64_MAX, (uint64_t)1 << 63, UINT64_MAX - 7 };
	for (size_t i = 0; i < sizeof length / sizeof *length; i++) {
		struct fo_st_file f;
		unsigned char b[16] = "12345678{}      ";
		memcpy(b, &length[i], 8);
		spill(b, sizeof b);
		assert_int_equal(fo_st_open(&f, path), FO_EFORMAT);
	}
	for (size_t n = 0; n < 8; n++) {
		struct fo_st_file f;
		spill("12345678", n);
		assert_int_equal(fo_st_open(&f, path), FO_EFORMAT);
	}
	struct fo_st_file f;
	assert_int_equal(fo_st_open(&f, "no/such/file"), FO_EIO);
}

/* Any byte of a file written by the Python library changed, any length cut: refused or read, never outside. */
static void test_damaged(void **state)
{
	(void)state;
	const char *root = getenv("FLATOUT_SOURCE");
	char golden[512];
	struct fo_map m;
	snprintf(golden, sizeof golden, "%s/tests/golden/gqa/model.safetensors", root ? root : ".");
	must(fo_map_open(&m, golden));
	unsigned char *copy = malloc(m.len);
	uint64_t head;
	int opened = 0;
	memcpy(&head, m.data, 8);
	for (int k = 0; k < 600; k++) {
		size_t n = m.len;
		memcpy(copy, m.data, n);
		if (k % 5 == 0)
			n = fo_rng_u64(3, (uint64_t)k) % n;
		for (int w = 0; w <= k % 3 && n; w++)
			copy[fo_rng_u64(4, (uint64_t)(k * 3 + w)) % (n < head + 8 ? n : head + 8)] = (unsigned char)
				fo_rng_u64(5, (uint64_t)(k * 3 + w));
		spill(copy, n);
		struct fo_st_file f;
		fo_status st = fo_st_open(&f, path);
		if (st != FO_OK) {
			assert_int_equal(st, FO_EFORMAT);
			continue;
		}
		opened++;
		volatile unsigned char sink = 0;
		for (size_t i = 0; i < f.n; i++)
			for (size_t at = f.entry[i].begin; at < f.entry[i].end; at++)
				sink ^= f.data[at];
		(void)sink;
		fo_st_close(&f);
	}
	assert_true(opened < 600);
	free(copy);
	fo_map_close(&m);
}

static int make_dir(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return 1;
	snprintf(path, sizeof path, "%s/x.safetensors", dir);
	return 0;
}

static int remove_dir(void **state)
{
	(void)state;
	return fo_fs_remove_tree(dir) != FO_OK;
}

/* Cut while it is open: a sentence, not the end of the process. */
static void test_cut_while_open(void **state)
{
	(void)state;
	enum { COLS = 1 << 16 }; /* pages beyond the header's */
	float *data = calloc(COLS, sizeof *data);
	struct fo_st_tensor t = {
		.name = "w", .dtype = FO_F32, .vector = true, .rows = 1, .cols = COLS, .ld = COLS, .data = data
	};
	struct fo_st_file f;
	uint64_t sum;
	assert_non_null(data);
	must(fo_st_write(path, &t, 1, NULL, &sum));
	must(fo_st_open(&f, path));
	assert_int_equal(truncate(path, 8192), 0);
	assert_int_equal(fo_st_copy(&f, path, &t), FO_EIO);
	assert_non_null(strstr(fo_err_text(), "was cut short"));
	fo_st_close(&f);
	free(data);
}

int main(void)
{
	/* The first: fo_map_guard takes SIGBUS once, cmocka anew for each test. */
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_cut_while_open), cmocka_unit_test(test_round_trip),
					    cmocka_unit_test(test_in_pieces), cmocka_unit_test(test_hostile_headers),
					    cmocka_unit_test(test_damaged) };
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
