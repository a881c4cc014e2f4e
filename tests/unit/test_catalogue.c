/* The device catalogue: the strict CSV reader, our own rows, user files, hostile bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "hw/catalogue.h"
#include "hw/csv.h"

static void source_dir(char *buf, size_t size, const char *tail)
{
	const char *root = getenv("FLATOUT_SOURCE");
	snprintf(buf, size, "%s/%s", root ? root : ".", tail);
}

static struct fo_catalogue load(const char *user)
{
	struct fo_catalogue c;
	fo_status st = fo_catalogue_load(&c, user);
	if (st != FO_OK)
		print_message("%s\n", fo_err_text());
	assert_int_equal(st, FO_OK);
	return c;
}

static double peak(const struct fo_catalogue *c, const char *name, enum fo_precision p)
{
	const struct fo_device *d;
	double t = 0;
	assert_int_equal(fo_catalogue_find(c, name, &d), FO_OK);
	assert_int_equal(fo_device_peak(d, p, &t), FO_OK);
	return t;
}

/* Data sheets' dense peaks; the vendors' headlines are the sparse ones. */
static void test_peaks(void **state)
{
	(void)state;
	struct fo_catalogue c = load(NULL);
	assert_true(peak(&c, "b200", FO_PREC_BF16) == 2250);
	assert_true(peak(&c, "B200-SXM-HGX", FO_PREC_FP8) == 4500);
	assert_true(peak(&c, "h100", FO_PREC_BF16) == 989);
	assert_true(peak(&c, "H100-SXM", FO_PREC_FP8) == 1979);
	assert_true(peak(&c, "a100", FO_PREC_BF16) == 312);
	assert_true(peak(&c, "v100", FO_PREC_FP16) == 125);
	assert_true(peak(&c, "gb300", FO_PREC_BF16) == 2500);
	assert_true(peak(&c, "mi300x", FO_PREC_BF16) == 1307.4);
	assert_true(peak(&c, "tpu-v4", FO_PREC_BF16) == 275);
	const struct fo_device *d;
	assert_int_equal(fo_catalogue_find(&c, "b200", &d), FO_OK);
	assert_true(d->sparse[FO_PREC_BF16] == 4500);
	double t = -1;
	assert_int_equal(fo_catalogue_find(&c, "v100", &d), FO_OK);
	assert_int_equal(fo_device_peak(d, FO_PREC_BF16, &t), FO_EARG);
	assert_true(t == -1);
	assert_non_null(strstr(fo_err_text(), "no published dense peak for bf16"));
	fo_catalogue_fini(&c);
}

/* Sparse over dense, where vendors print both: 2 but for these. */
static double sparse_over_dense(const struct fo_device *d, enum fo_precision p)
{
	static const struct {
		const char *name;
		enum fo_precision precision;
		double ratio;
	} other[] = {
		{ "B300-SXM-HGX", FO_PREC_FP4, 4.0 / 3 }, /* 144 and 108 PFLOP/s of eight */
		{ "GB300-NVL72", FO_PREC_FP4, 4.0 / 3 },  /* 1,440 and 1,080 PFLOP/s of 72 */
		{ "Trainium2", FO_PREC_TF32, 3.84 },      /* one sparse figure for every type */
		{ "Trainium2", FO_PREC_FP16, 3.84 },      { "Trainium2", FO_PREC_BF16, 3.84 },
		{ "Trainium3", FO_PREC_TF32, 3.75 },      { "Trainium3", FO_PREC_FP16, 3.75 },
		{ "Trainium3", FO_PREC_BF16, 3.75 },
	};
	for (size_t i = 0; i < sizeof other / sizeof *other; i++)
		if (!strcmp(d->name, other[i].name) && p == other[i].precision)
			return other[i].ratio;
	return 2;
}

/* Every row: a source, a date, a kind, some peak and a memory; where both are printed, sparse is twice dense but for
 * vendors' rounding (an L40S data sheet prints 362 and 733) and the exceptions above. A row without a peak says so. */
static void test_rows(void **state)
{
	(void)state;
	struct fo_catalogue c = load(NULL);
	assert_true(c.count >= 40);
	for (size_t i = 0; i < c.count; i++) {
		const struct fo_device *d = &c.device[i];
		int peaks = 0;
		for (int p = 0; p < FO_PREC_COUNT; p++) {
			peaks += !isnan(d->dense[p]);
			if (!isnan(d->sparse[p])) {
				assert_false(isnan(d->dense[p]));
				double ratio = sparse_over_dense(d, (enum fo_precision)p);
				if (!(fabs(d->sparse[p] / d->dense[p] - ratio) < 0.03))
					fail_msg("%s, %s: sparse is %g times dense", d->name, fo_precision_name[p],
						 d->sparse[p] / d->dense[p]);
			}
		}
		assert_true((peaks > 0) != (strstr(d->notes, "no peak is published") != NULL));
		assert_true(d->memory_gb > 0 && d->memory_tb_s > 0);
		assert_true(strlen(d->source) > 5 && strlen(d->date) >= 7 && strncmp(d->date, "20", 2) == 0);
		assert_true(strcmp(d->kind, "gpu") == 0 || strcmp(d->kind, "tpu") == 0 || strcmp(d->kind, "hpu") == 0 ||
			    strcmp(d->kind, "trainium") == 0);
		assert_true(isnan(d->rent_low) == isnan(d->rent_high) && !(d->rent_low > d->rent_high));
		assert_true(isnan(d->rent_low) == !*d->rent_note);
		const struct fo_device *found;
		assert_int_equal(fo_catalogue_find(&c, d->name, &found), FO_OK);
		assert_ptr_equal(found, d);
		if (!isnan(d->measured_bf16))
			assert_true(d->measured_bf16 < d->dense[FO_PREC_BF16]);
	}
	fo_catalogue_fini(&c);
}

/* Dense and sparse FP4 by device, and peaks of the rows that data sheets give in other ways: AMD's by clock (2,200 of
 * 2,400 MHz), GH200 as H100, half of what NVIDIA prints for a DGX Spark. */
static void test_newer(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		enum fo_precision precision;
		double dense, sparse; /* 0: not published */
	} known[] = {
		{ "b200", FO_PREC_FP4, 9000, 18000 },
		{ "b300", FO_PREC_FP4, 13500, 18000 },
		{ "gb200", FO_PREC_FP4, 10000, 20000 },
		{ "gb300", FO_PREC_FP4, 15000, 20000 },
		{ "mi355x", FO_PREC_FP4, 10066, 0 },
		{ "mi355x", FO_PREC_FP8, 5033.2, 10066 },
		{ "mi350x", FO_PREC_FP4, 9227.5, 0 },
		{ "mi350x", FO_PREC_BF16, 2306.9, 4613.7 },
		{ "rtx-pro-6000", FO_PREC_FP4, 2015, 4000 },
		{ "5090", FO_PREC_FP4, 1676, 3352 },
		{ "gh200", FO_PREC_BF16, 989, 1979 },
		{ "gh200-144g", FO_PREC_FP8, 1979, 3958 },
		{ "a6000", FO_PREC_BF16, 154.8, 309.6 },
		{ "3090", FO_PREC_BF16, 71, 142 },
		{ "3090", FO_PREC_FP32, 35.6, 0 },
		{ "3090", FO_PREC_FP8, 0, 0 },
		{ "gb10", FO_PREC_FP4, 500, 1000 },
		{ "gb10", FO_PREC_BF16, 0, 0 },
		{ "trn2", FO_PREC_FP8, 1299, 2563 },
		{ "trn1", FO_PREC_BF16, 190, 0 },
		{ "trn3", FO_PREC_FP4, 2517, 0 },
		{ "v5p", FO_PREC_BF16, 459, 0 },
		{ "v6e", FO_PREC_BF16, 918, 0 },
		{ "h100", FO_PREC_FP4, 0, 0 },
	};
	struct fo_catalogue c = load(NULL);
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		const struct fo_device *d;
		assert_int_equal(fo_catalogue_find(&c, known[i].name, &d), FO_OK);
		double dense = d->dense[known[i].precision], sparse = d->sparse[known[i].precision];
		if (!(known[i].dense > 0 ? dense == known[i].dense : isnan(dense)) ||
		    !(known[i].sparse > 0 ? sparse == known[i].sparse : isnan(sparse)))
			fail_msg("%s, %s: %g and %g", known[i].name, fo_precision_name[known[i].precision], dense,
				 sparse);
	}
	const struct fo_device *x, *y;
	assert_int_equal(fo_catalogue_find(&c, "mi350x", &x), FO_OK);
	assert_int_equal(fo_catalogue_find(&c, "mi355x", &y), FO_OK);
	for (int p = FO_PREC_FP16; p < FO_PREC_COUNT; p++)
		assert_true(fabs(x->dense[p] / y->dense[p] - 2200.0 / 2400) < 1e-3);
	/* Two rows of one name with different peaks: none is taken, unless the memory tells. */
	static const char other[] = "name,bf16_dense_tflops,memory_gb,source\nGH200-200GB,900,200,me\n";
	assert_ptr_equal(fo_device_match(&c, "NVIDIA GH200", 0, 0)->dense,
			 fo_device_match(&c, "NVIDIA GH200", 132, 0)->dense);
	assert_int_equal(fo_catalogue_add(&c, other, strlen(other), "t"), FO_OK);
	assert_null(fo_device_match(&c, "NVIDIA GH200", 0, 0));
	assert_string_equal(fo_device_match(&c, "NVIDIA GH200", 0, (int64_t)102e9)->name, "GH200-96GB");
	/* AMD prints no peak of an MI308X: none is made up, and the sentence says what to do. */
	double t = -1;
	assert_int_equal(fo_catalogue_find(&c, "mi308x", &x), FO_OK);
	assert_int_equal(fo_device_peak(x, FO_PREC_BF16, &t), FO_EARG);
	assert_true(t == -1 && strstr(fo_err_text(), "no published dense peak") &&
		    strstr(fo_err_hint(), "FLATOUT_DEVICES"));
	fo_catalogue_fini(&c);
}

static void test_unknown(void **state)
{
	(void)state;
	struct fo_catalogue c = load(NULL);
	const struct fo_device *d = NULL;
	assert_int_equal(fo_catalogue_find(&c, "h10", &d), FO_EARG);
	assert_null(d);
	assert_non_null(strstr(fo_err_text(), "'H100-SXM5-80GB'"));
	assert_int_equal(fo_catalogue_find(&c, "", &d), FO_EARG);
	enum fo_precision p;
	assert_int_equal(fo_precision_parse("BF16", &p), FO_OK);
	assert_int_equal(p, FO_PREC_BF16);
	assert_int_equal(fo_precision_parse("fp7", &p), FO_EARG);
	fo_catalogue_fini(&c);
}

static char *temporary(const char *text)
{
	static char path[64];
	snprintf(path, sizeof(path), "/tmp/flatout_catalogue_%d.csv", (int)getpid());
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	return path;
}

/* A user's file adds rows and replaces rows of the same name as a whole; the environment names it as well. */
static void test_user_file(void **state)
{
	(void)state;
	char *path = temporary("# mine\nname,bf16_dense_tflops,source,aliases\r\n"
			       "Mine-1,100.5,\"measured, \"\"twice\"\"\",mine m1\nh100-sxm5-80gb,900,own run,h100\n");
	struct fo_catalogue c = load(path);
	assert_true(peak(&c, "M1", FO_PREC_BF16) == 100.5);
	assert_true(peak(&c, "h100", FO_PREC_BF16) == 900);
	const struct fo_device *d;
	double t;
	assert_int_equal(fo_catalogue_find(&c, "mine", &d), FO_OK);
	assert_string_equal(d->source, "measured, \"twice\"");
	assert_non_null(strstr(d->where, ":3"));
	assert_int_equal(fo_catalogue_find(&c, "h100", &d), FO_OK);
	assert_int_equal(fo_device_peak(d, FO_PREC_FP8, &t), FO_EARG); /* the built-in row is gone as a whole */
	fo_catalogue_fini(&c);
	setenv("FLATOUT_DEVICES", path, 1);
	c = load(NULL);
	assert_true(peak(&c, "mine", FO_PREC_BF16) == 100.5);
	unsetenv("FLATOUT_DEVICES");
	fo_catalogue_fini(&c);
	assert_int_equal(fo_catalogue_load(&c, "/nonexistent/devices.csv"), FO_EIO);
	unlink(path);
}

/* Each bad text with a part of the sentence that must be said about it. */
static void test_bad_rows(void **state)
{
	(void)state;
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "", "empty" },
		{ "# only a comment\n", "empty" },
		{ "nam,source\nx,y\n", "t:1: unknown column 'nam', nearest is 'name'" },
		{ "source\nx\n", "no column 'name'" },
		{ "name,name\nx,y\n", "appears twice" },
		{ "name,source\nx\n", "t:2: 1 fields, expected 2" },
		{ "name,source\nx,y,z\n", "t:2: 3 fields, expected 2" },
		{ "name,source\n\"x,y\n", "t:2: a quoted field does not end" },
		{ "name,source\n\"x\"a,y\n", "t:2: text behind a closing quote" },
		{ "name,source\nx\"a,y\n", "t:2: a quote inside an unquoted field" },
		{ "name,source\nx,\x01\n", "byte 0x01" },
		{ "name,source\nx,\xff\n", "byte 0xff" },
		{ "name,source\nx,\xc0\xaf\n", "byte 0xc0" },
		{ "name,source\nx,\xed\xa0\x80\n", "byte 0xed" },
		{ "name,source\nx,\xc2", "byte 0xc2" },
		{ "name,source\nx,a\rb\n", "byte 0x0d" },
		{ "name,source\nx,\n", "has no source" },
		{ "name,source\n,y\n", "name ''" },
		{ "name,source\na b,y\n", "name 'a b'" },
		{ "name,source,tdp_w\nx,y,nan\n", "t:2: tdp_w is 'nan'" },
		{ "name,source,tdp_w\nx,y,-5\n", "tdp_w is '-5'" },
		{ "name,source,tdp_w\nx,y,0\n", "tdp_w is '0'" },
		{ "name,source,tdp_w\nx,y,1e400\n", "tdp_w is '1e400'" },
		{ "name,source,tdp_w\nx,y,7 W\n", "tdp_w is '7 W'" },
		{ "name,source,aliases\nx,y,\nz,y,X\n", "t:3: name 'X' already belongs to 'x' (t:2)" },
		{ "name,source\nx,y\nX,y\n", "t:3: device 'x' appears twice, first at t:2" },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fo_catalogue c = { 0 };
		assert_int_equal(fo_catalogue_add(&c, bad[i].text, strlen(bad[i].text), "t"), FO_EFORMAT);
		if (!strstr(fo_err_text(), bad[i].says))
			fail_msg("case %zu: got '%s', expected '%s' in it", i, fo_err_text(), bad[i].says);
		fo_catalogue_fini(&c);
	}
}

static void test_caps(void **state)
{
	(void)state;
	size_t n = 5u << 20;
	char *text = calloc(1, n);
	struct fo_catalogue c = { 0 };
	memset(text, 'a', n);
	assert_int_equal(fo_catalogue_add(&c, text, n, "t"), FO_EFORMAT);
	assert_int_equal(fo_catalogue_add(&c, text, 5000, "t"), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "longer than"));
	memset(text, ',', n);
	assert_int_equal(fo_catalogue_add(&c, text, 5000, "t"), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "columns"));
	memset(text, '\n', n);
	for (size_t i = 0; i < 5000; i++)
		memcpy(text + 8 * i, i ? "x,y\n" : "name,a\n", i ? 4 : 7);
	assert_int_equal(fo_catalogue_add(&c, text, 40000, "t"), FO_EFORMAT);
	struct fo_arena a = { 0 };
	struct fo_csv csv;
	assert_int_equal(fo_csv_parse(&a, text, 40000, "t", &csv), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "more than 4096 rows"));
	fo_arena_fini(&a);
	fo_catalogue_fini(&c);
	free(text);
}

/* The built-in table is the file of this tree, byte for byte in what it says; a folder that FLATOUT_DATA names adds to
 * it. */
static void test_builtin(void **state)
{
	(void)state;
	char dir[512], path[600];
	unsetenv("FLATOUT_DATA");
	struct fo_catalogue in = load(NULL), more, file = { 0 };
	struct fo_arena a = { 0 };
	char *text;
	size_t len;
	source_dir(path, sizeof path, "data/devices.csv");
	assert_int_equal(fo_fs_read(&a, path, 1 << 20, &text, &len), FO_OK);
	for (size_t i = 0; i < len; i++)
		assert_true((unsigned char)text[i] < 128); /* fo_embed makes chars of it, which may be signed */
	assert_int_equal(fo_catalogue_add(&file, text, len, "built-in devices.csv"), FO_OK);
	assert_int_equal(in.count, file.count);
	for (size_t i = 0; i < in.count; i++) {
		assert_string_equal(in.device[i].name, file.device[i].name);
		assert_string_equal(in.device[i].where, file.device[i].where);
		assert_string_equal(in.device[i].source, file.device[i].source);
		assert_memory_equal(in.device[i].dense, file.device[i].dense, sizeof in.device[i].dense);
	}

	snprintf(dir, sizeof dir, "/tmp/fo_catalogue_XXXXXX");
	assert_non_null(mkdtemp(dir));
	setenv("FLATOUT_DATA", dir, 1);
	assert_int_equal(fo_catalogue_load(&more, NULL), FO_EIO); /* no such file: said, not skipped */
	assert_non_null(strstr(fo_err_text(), dir));
	snprintf(path, sizeof path, "%s/devices.csv", dir);
	FILE *f = fopen(path, "w");
	fputs("name,bf16_dense_tflops,source\nmy-chip,5,me\nH100-SXM5-80GB,7,me\n", f);
	fclose(f);
	more = load(NULL);
	assert_int_equal(more.count, in.count + 1);
	assert_true(peak(&more, "my-chip", FO_PREC_BF16) == 5);
	assert_true(peak(&more, "h100-sxm5-80gb", FO_PREC_BF16) == 7);
	assert_true(peak(&more, "b200", FO_PREC_BF16) == 2250);
	fo_catalogue_fini(&more);
	/* A copy of the whole table is no conflict, under a relative name either. */
	char cwd[4096];
	assert_non_null(getcwd(cwd, sizeof cwd));
	source_dir(path, sizeof path, ".");
	assert_int_equal(chdir(path), 0);
	setenv("FLATOUT_DATA", "data", 1);
	more = load(NULL);
	assert_int_equal(more.count, in.count);
	assert_string_equal(more.device[0].name, in.device[0].name);
	assert_int_equal(chdir(cwd), 0);
	unsetenv("FLATOUT_DATA");
	snprintf(path, sizeof path, "%s/devices.csv", dir);
	unlink(path);
	rmdir(dir);
	fo_catalogue_fini(&more);
	fo_catalogue_fini(&in);
	fo_catalogue_fini(&file);
	fo_arena_fini(&a);
}

/* Random damage to our own file: any status, no crash, and a good result is a usable one. */
static void test_mutations(void **state)
{
	(void)state;
	char path[512], *text;
	size_t len;
	struct fo_arena a = { 0 };
	source_dir(path, sizeof(path), "data/devices.csv");
	assert_int_equal(fo_fs_read(&a, path, 1 << 20, &text, &len), FO_OK);
	int good = 0, bad = 0;
	for (uint64_t k = 0; k < 3000; k++) {
		uint64_t at = 0;
		/* Every third text is cut short so that the damage meets more than the first lines. */
		size_t n = k % 3 ? len : fo_rng_u64(k, at++) % len;
		char *copy = malloc(n ? n : 1);
		memcpy(copy, text, n);
		int hits = 1 + (int)(fo_rng_u64(k, at++) % 4);
		for (int h = 0; n && h < hits; h++) {
			static const char spice[] = "\",\n\r#\0-.e9\xff\xc3\xed";
			size_t where = fo_rng_u64(k, at++) % n;
			uint64_t r = fo_rng_u64(k, at++);
			copy[where] = r & 1 ? (char)(r >> 8) : spice[(r >> 8) % (sizeof(spice) - 1)];
		}
		struct fo_catalogue c = { 0 };
		if (fo_catalogue_add(&c, copy, n, "t") == FO_OK) {
			const struct fo_device *d;
			good++;
			for (size_t i = 0; i < c.count; i++)
				assert_int_equal(fo_catalogue_find(&c, c.device[i].name, &d), FO_OK);
		} else {
			bad++;
			assert_true(strlen(fo_err_text()) > 5);
		}
		fo_catalogue_fini(&c);
		free(copy);
	}
	assert_true(good > 100 && bad > 100);
	fo_arena_fini(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_peaks),   cmocka_unit_test(test_rows),      cmocka_unit_test(test_newer),
		cmocka_unit_test(test_unknown), cmocka_unit_test(test_user_file), cmocka_unit_test(test_bad_rows),
		cmocka_unit_test(test_caps),    cmocka_unit_test(test_builtin),   cmocka_unit_test(test_mutations),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
