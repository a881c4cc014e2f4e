/* Weights of a Hugging Face folder: single and sharded, converted; everything that does not fit named at once; hostile
 * indices. */
#include "base/fs.h"
#include "ckpt/ckpt.h"
#include "kernel/kernel.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "test_hf.XXXXXX";

static const char *in_dir(const char *name)
{
	static char path[128];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static void fresh(void)
{
	must(fo_fs_remove_tree(dir));
	must(fo_fs_mkdirs(dir));
}

static void spill(const char *name, const void *bytes, size_t n)
{
	FILE *f = fopen(in_dir(name), "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	fclose(f);
}

static float value[3][8] = { { 1, 2, 3, 4, 5, 6, 7, 8 }, { -1, -2, -3, -4, -5, -6, -7, -8 }, { 0.5f, 0.25f } };

/* What the files hold: an embedding 4 x 2, a head 4 x 2, a norm of 2. */
static struct fo_st_tensor held(const char *name, int which)
{
	struct fo_st_tensor t = { .dtype = FO_F32,
				  .vector = which == 2,
				  .rows = which == 2 ? 1 : 4,
				  .cols = 2,
				  .ld = 2,
				  .data = value[which] };
	snprintf(t.name, sizeof t.name, "%s", name);
	return t;
}
#define EMBED "model.embed_tokens.weight"
#define HEAD "lm_head.weight"
#define NORM "model.norm.weight"

static void write_file(const char *file, const struct fo_st_tensor *t, size_t n)
{
	uint64_t sum;
	must(fo_st_write(in_dir(file), t, n, NULL, &sum));
}

/* What the model asks for; every float becomes a mark first. */
static float got[3][8];
static void wanted(struct fo_st_tensor t[3])
{
	t[0] = held(EMBED, 0), t[1] = held(HEAD, 1), t[2] = held(NORM, 2);
	for (int i = 0; i < 3; i++)
		t[i].data = got[i];
	for (int i = 0; i < 24; i++)
		((float *)got)[i] = 99;
}

static void refuses(bool tied, const char *const *says, const char *hint)
{
	struct fo_st_tensor t[3];
	wanted(t);
	fo_status st = fo_hf_read(dir, tied, t, tied ? 1 : 3);
	assert_true(st == FO_EFORMAT || st == FO_EIO || st == FO_EUNSUPPORTED);
	for (; *says; says++)
		if (!strstr(fo_err_text(), *says))
			fail_msg("'%s' does not say '%s'", fo_err_text(), *says);
	if (!strstr(fo_err_hint(), hint))
		fail_msg("hint '%s' does not say '%s'", fo_err_hint(), hint);
	for (int i = 0; i < 24; i++)
		assert_true(((float *)got)[i] == 99); /* nothing was copied */
}
#define REFUSES(tied, hint, ...) refuses(tied, (const char *const[]){ __VA_ARGS__, NULL }, hint)

static void accepts(bool tied)
{
	struct fo_st_tensor t[4];
	float master[8];
	wanted(t);
	int n = 3;
	if (tied)
		t[1] = t[2], n = 2;
	t[n] = t[0], t[n].data = master; /* a weight and its master copy */
	must(fo_hf_read(dir, tied, t, (size_t)n + 1));
	assert_memory_equal(got[0], value[0], sizeof value[0]);
	assert_memory_equal(master, value[0], sizeof value[0]);
	assert_memory_equal(got[2], value[2], 2 * sizeof(float));
	if (!tied)
		assert_memory_equal(got[1], value[1], sizeof value[1]);
}

static void write_model(void)
{
	fresh();
	write_file("model.safetensors", (struct fo_st_tensor[]){ held(EMBED, 0), held(HEAD, 1), held(NORM, 2) }, 3);
}

static const char good_index[] = "{\"metadata\": {\"total_size\": 72}, \"weight_map\": {\"" EMBED
				 "\": \"b.safetensors\", \"" HEAD "\": \"a.safetensors\", \"" NORM
				 "\": \"b.safetensors\"}}";

static void write_shards(const char *index)
{
	fresh();
	write_file("a.safetensors", (struct fo_st_tensor[]){ held(HEAD, 1) }, 1);
	write_file("b.safetensors", (struct fo_st_tensor[]){ held(NORM, 2), held(EMBED, 0) }, 2);
	spill("model.safetensors.index.json", index, strlen(index));
}

static void test_reads(void **state)
{
	(void)state;
	write_model();
	accepts(false);
	write_shards(good_index);
	accepts(false);
}

static void test_exceptions(void **state)
{
	(void)state;
	/* The same head again where it is tied; the rotary table of old files. */
	fresh();
	write_file("model.safetensors",
		   (struct fo_st_tensor[]){ held(EMBED, 0), held(HEAD, 0), held(NORM, 2),
					    held("model.layers.0.self_attn.rotary_emb.inv_freq", 2) },
		   4);
	accepts(true);
	write_model();
	struct fo_st_tensor t[2];
	struct fo_st_tensor all[3];
	wanted(all);
	t[0] = all[0], t[1] = all[2];
	assert_int_equal(fo_hf_read(dir, true, t, 2), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "1 not the model's: 'lm_head.weight'"));
	assert_non_null(strstr(fo_err_hint(), "set tie_word_embeddings to false"));
	fresh();
	write_file("model.safetensors", (struct fo_st_tensor[]){ held(EMBED, 0), held(NORM, 2) }, 2);
	REFUSES(false, "set tie_word_embeddings to true", "1 missing: 'lm_head.weight'");
}

/* Raw bytes under a type that we never write. */
static void write_raw(const char *dtype, const void *data, size_t count, size_t bytes)
{
	char head[256];
	uint64_t n = (uint64_t)snprintf(head, sizeof head,
					"{\"" NORM "\":{\"dtype\":\"%s\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}",
					dtype, count, bytes);
	FILE *f = fopen(in_dir("model.safetensors"), "wb");
	assert_non_null(f);
	fwrite(&n, 1, 8, f), fwrite(head, 1, n, f), fwrite(data, 1, bytes, f);
	fclose(f);
}

static void test_types(void **state)
{
	(void)state;
	/* IEEE 754-2019, binary16: ends of the ranges, a subnormal, a third. */
	const uint16_t half[] = { 0x3c00, 0xc000, 0x7bff, 0x0400, 0x03ff, 0x0001, 0x8001,
				  0x0000, 0x8000, 0x7c00, 0xfc00, 0x7e01, 0x3555 };
	const double want[] = { 1,    -2,       65504,     0x1p-14, 1023 * 0x1p-24, 0x1p-24, -0x1p-24, 0,
				-0.0, INFINITY, -INFINITY, NAN,     0.333251953125 };
	enum { N = sizeof half / sizeof *half };
	float f[N];
	uint16_t b[N];
	fresh();
	write_raw("F16", half, N, sizeof half);
	struct fo_st_tensor t[] = {
		{ .name = NORM, .dtype = FO_F32, .vector = true, .rows = 1, .cols = N, .ld = N, .data = f },
		{ .name = NORM, .dtype = FO_BF16, .vector = true, .rows = 1, .cols = N, .ld = N, .data = b }
	};
	must(fo_hf_read(dir, false, t, 2));
	for (int i = 0; i < N; i++) {
		assert_true(isnan(want[i]) ? isnan(f[i])
					   : f[i] == (float)want[i] && !signbit(f[i]) == !signbit(want[i]));
		assert_true(isnan(want[i]) ? isnan(fo_bf16_to_f32(b[i])) : b[i] == fo_bf16_from_f32((float)want[i]));
	}
	write_raw("F8_E4M3", half, N, N);
	assert_int_equal(fo_hf_read(dir, false, t, 2), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "1 of a type that cannot be read: '" NORM "' (F8_E4M3)"));
	write_raw("I32", half, 6, 24);
	t[0].cols = 6;
	assert_int_equal(fo_hf_read(dir, false, t, 1), FO_EFORMAT);
}

static void test_all_at_once(void **state)
{
	(void)state;
	struct fo_st_tensor wide = held(EMBED, 0), flat = held(NORM, 2);
	wide.rows = 2, wide.cols = wide.ld = 4;
	flat.vector = false;
	fresh();
	write_file("model.safetensors",
		   (struct fo_st_tensor[]){ wide, flat, held("model.x\033.weight", 2), held("y", 2) }, 4);
	REFUSES(false, "",
		"1 missing: 'lm_head.weight'; 2 not the model's: 'model.x\\x1b.weight', 'y'; 2 of another shape: "
		"'" EMBED "' is 2 x 4, the model's 4 x 2, '" NORM "' is 1 x 2, the model's 2");
	/* Many are counted, some shown. */
	struct fo_st_tensor many[30];
	char name[16];
	for (int i = 0; i < 30; i++)
		snprintf(name, sizeof name, "t%02d", i), many[i] = held(name, 2);
	fresh();
	write_file("model.safetensors", many, 30);
	REFUSES(false, "", "3 missing",
		"30 not the model's: 't00', 't01', 't02', 't03', 't04', 't05', 't06', 't07' and 22 more");
}

static void test_folders(void **state)
{
	(void)state;
	fresh();
	REFUSES(false, "", "holds neither model.safetensors nor model.safetensors.index.json");
	spill("pytorch_model.bin", "x", 1);
	REFUSES(false, "save_pretrained", "holds neither");
	struct fo_st_tensor t[3];
	wanted(t);
	assert_int_equal(fo_hf_read(in_dir("pytorch_model.bin"), false, t, 3), FO_EIO);
	assert_non_null(strstr(fo_err_text(), "is not a folder"));
	spill("model.safetensors", "x", 1);
	REFUSES(false, "", "not a safetensors file");
}

/* Weights that are said to be quantised are other numbers than their tensors, be those plain or not. */
static void test_quantised(void **state)
{
	(void)state;
	struct fo_st_tensor t[3] = { held(EMBED, 0), held(HEAD, 1), held(NORM, 2) };
	static const char with[] =
		"{\"model_type\": \"llama\", \"quantization_config\": {\"quant_method\": \"fp8\", \"bits\": 8}}",
			  bare[] = "{\"quantization_config\": {\"load_in_4bit\": true}}",
			  none[] = "{\"quantization_config\": null}";
	fresh();
	write_file("model.safetensors", t, 3);
	spill("config.json", with, sizeof with - 1);
	REFUSES(false, "take that key out",
		"config.json' has a quantization_config (quant_method 'fp8'): quantised weights are not supported");
	spill("config.json", bare, sizeof bare - 1);
	REFUSES(false, "take that key out", "(without a quant_method)");
	spill("config.json", none, sizeof none - 1);
	accepts(false);
}

static void test_index(void **state)
{
	(void)state;
#define MAP(shard) "{\"weight_map\": {\"" EMBED "\": " shard "}}"
	static const struct {
		const char *index, *says;
	} bad[] = {
		{ "", "not JSON" },
		{ "{\"weight_map\": {\"x\": \"a.safetensors\", \"x\": \"b.safetensors\"}}", "not JSON" },
		{ "[]", "'weight_map' must name" },
		{ "{}", "'weight_map' must name" },
		{ "{\"weight_map\": {}}", "'weight_map' must name" },
		{ "{\"weight_map\": [\"a.safetensors\"]}", "'weight_map' must name" },
		{ MAP("7"), "the shard of tensor '" EMBED "' is not a text" },
		{ MAP("\"../a.safetensors\""), "shard '../a.safetensors' is not a plain file name" },
		{ MAP("\"/etc/a.safetensors\""), "is not a plain file name" },
		{ MAP("\"sub/a.safetensors\""), "is not a plain file name" },
		{ MAP("\"..\""), "is not a plain file name" },
		{ MAP("\"\""), "is not a plain file name" },
		{ MAP("\".safetensors\""), "is not a plain file name" },
		{ MAP("\"a.bin\""), "is not a plain file name" },
		{ MAP("\"\\u001b.bin\""), "shard '\\x1b.bin' is not" },
		{ MAP("\"c.safetensors\""), "c.safetensors" }, /* not there */
		{ MAP("\"a.safetensors\""), "places tensor '" EMBED "' in 'a.safetensors', which does not hold it" },
		{ "{\"weight_map\": {\"" EMBED "\": \"b.safetensors\", \"z\\u001b\": \"b.safetensors\"}}",
		  "places tensor 'z\\x1b' in 'b.safetensors'" },
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		write_shards(bad[i].index);
		REFUSES(false, "", bad[i].says);
	}
	/* A name in two shards. */
	write_shards(good_index);
	write_file("a.safetensors", (struct fo_st_tensor[]){ held(HEAD, 1), held(EMBED, 0) }, 2);
	REFUSES(false, "", "both hold tensor '" EMBED "'");
	/* A shard that lacks what the index does not name is missing for the model. */
	write_shards(MAP("\"b.safetensors\""));
	REFUSES(false, "", "1 missing: '" HEAD "'");
	/* More shards than any model has. */
	struct fo_str s = { 0 };
	fo_str_puts(&s, "{\"weight_map\": {");
	for (int i = 0; i < 4097; i++)
		fo_str_printf(&s, "%s\"t%d\": \"%d.safetensors\"", i ? ", " : "", i, i);
	fo_str_puts(&s, "}}");
	write_shards(s.data);
	REFUSES(false, "", "names more than 4096 shards");
	fo_str_fini(&s);
}

static int make_dir(void **state)
{
	(void)state;
	return !mkdtemp(dir);
}
static int remove_dir(void **state)
{
	(void)state;
	return fo_fs_remove_tree(dir) != FO_OK;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads),       cmocka_unit_test(test_exceptions), cmocka_unit_test(test_types),
		cmocka_unit_test(test_all_at_once), cmocka_unit_test(test_folders),    cmocka_unit_test(test_quantised),
		cmocka_unit_test(test_index),
	};
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
