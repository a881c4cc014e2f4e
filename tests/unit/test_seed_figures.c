/* Every "ours" of docs/seed-figures.md, recomputed from the formulas, the presets and the catalogue: the document must
 * say the same, row by row, and have no row that is not here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "hw/shares.h"
#include "model/model.h"

#define FP32 FO_PREC_FP32
#define BF16 FO_PREC_BF16
#define FP8 FO_PREC_FP8

static struct fo_catalogue catalogue;
static struct fo_arena arena;
static char *document;
static int rows, wrong;

/* TFLOP/s of one device, dense. */
static double peak(const char *name, enum fo_precision p)
{
	const struct fo_device *d;
	double tflops = 0;
	if (fo_catalogue_find(&catalogue, name, &d) != FO_OK || fo_device_peak(d, p, &tflops) != FO_OK)
		fail_msg("%s", fo_err_text());
	return tflops;
}

static struct fo_flop flop(const char *model, int64_t seq)
{
	struct fo_model m;
	if (fo_model_load(model, &m) != FO_OK)
		fail_msg("%s", fo_err_text());
	return fo_model_flop_per_token(&m, seq);
}

/* The peak of a run whose matmuls of the layers are in fp8, attention and the head in bf16. */
static double mixed_peak(const char *name, const char *model, int64_t seq)
{
	const struct fo_device *d;
	struct fo_flop f = flop(model, seq);
	struct fo_shares s = { .given = true };
	double tflops = 0;
	s.of[FP8] = f.layers / f.mfu;
	s.of[BF16] = 1 - s.of[FP8];
	if (fo_catalogue_find(&catalogue, name, &d) != FO_OK || fo_device_weighted_peak(d, &s, &tflops) != FO_OK)
		fail_msg("%s", fo_err_text());
	return tflops;
}

/* The fourth column of the row with this number must read as formatted here. */
static void row(const char *number, const char *format, ...) FO_PRINTF(2, 3);
static void row(const char *number, const char *format, ...)
{
	char value[64], start[32], column[80];
	va_list ap;
	va_start(ap, format);
	vsnprintf(value, sizeof(value), format, ap);
	va_end(ap);
	snprintf(start, sizeof(start), "\n| %s | ", number);
	snprintf(column, sizeof(column), "| %s |", value);
	const char *line = strstr(document, start);
	int bars = 0;
	const char *at = line ? line + 1 : "";
	while (*at && *at != '\n' && !(*at == '|' && ++bars == 4))
		at++;
	rows++;
	if (!line || strncmp(at, column, strlen(column)) != 0) {
		print_error("row %s: computed '%s', the document has '%.40s'\n", number, value,
			    line ? at : "no such row");
		wrong++;
	}
}

static void vector_labs(void)
{
	row("0.1", "%.1f PFLOP/s", 0.4 * peak("b200", BF16) / 1e3);
	row("0.2", "%.1f", 128 * 0.4);
	row("0.3", "%.1f", 128 * 0.2);
	row("0.4", "$%.4f million", 256 * 90 * 24 * 2.5 / 1e6);
	row("0.5", "%.1f", 256 * 0.4);
	row("0.6", "%.1f", 256 * 0.6);
	row("0.7", "%.1f", 256 * 0.2);
	row("0.8", "$%.0f", 256 * 0.2 * 90 * 24 * 2.5);
	row("0.9", "$%.0f", 256 * 90 * 24 * 2.5 / 3);
	row("0.10", "%.1f %% less time", 100 * (1 - 40.0 / 60));
	row("0.11", "%.1f %% MFU", 60 * 60.0 / 95);
	row("0.12", "%.0f times", 450 / (400 / 8.0));
	row("0.13", "%.1f points", 40 / (1 - 0.3) - 40);
	row("0.14", "%.2f %%", 100 * flop("llama-3.1-8b", 8192).mfu_6n * 21111 / peak("b200", BF16) / 1e12);
}

static void lambda_paper(void)
{
	row("1.1", "%.3f M", 128256.0 * 4096 / 1e6);
	row("1.2", "%.3f G", flop("llama-3.1-8b", 8192).mfu / 1e9);
	row("1.3", "%.1f", flop("llama-3.1-8b", 8192).mfu * 21111 / 1e12);
	row("1.4", "%.2f %%", 100 * flop("llama-3.1-8b", 8192).mfu * 21111 / peak("b200", BF16) / 1e12);
	row("1.5", "%.0f tokens/s", 0.5534 * peak("b200", BF16) * 1e12 / flop("llama-3.1-8b", 8192).mfu);
	row("1.6", "%.3fx", 55.34 / 44.46);
	row("1.7", "%.3fx", 50.20 / 23.83);
	row("1.8", "%.3fx", 52.69 / 28.62);
	row("1.9", "%.1f %% MFU", 40 * 1.36);
	row("1.10", "%.0f %% MFU", 40 * 1.25);
	row("1.11", "%.0f", 3.0 * 3);
	row("1.12", "%.1f TB/s", 72 * 1.8);
	row("1.13", "%.1f PFLOP/s", peak("b200", FP8) / 1e3);
	row("1.14", "%.1f PFLOP/s", peak("gb300", BF16) / 1e3);
	row("1.15", "%.0f TFLOP/s", 0.5269 * peak("gb300", BF16));
	row("1.16", "%.0f", 0.5269 * peak("gb300", BF16) * 1e12 / flop("llama-3.1-405b", 8192).mfu);
	row("1.17", "%.0f", 0.5020 * peak("b200", BF16) * 1e12 / flop("llama-3.1-70b", 8192).mfu);
	row("1.18", "%.2fx", 1783.0 / 812);
	row("1.19", "%.1f %%", 100 * 1783 / 8 / peak("b200", BF16));
	row("1.20", "%.1f %%", 100 * 1783 / peak("b200", BF16));
	row("1.21", "%.1f %%", 100 * 1783 / peak("b200", FP8));
	row("1.22", "%.1f %%", 100 * 812 / peak("b200", BF16));
	row("1.23", "%.2fx", 3 * 2.474 / 2.615);
	row("1.24", "%.0f", 0.4446 * peak("b200", BF16) * 1e12 / flop("llama-3.1-8b", 8192).mfu);
	row("1.25", "%.2f", 0.4446 * peak("b200", BF16) * 1e12 / flop("llama-3.1-8b", 8192).mfu * 2.474 / 8192);
	row("1.26", "%.1f %%", 56 + 14 + 7 + 11.5);
	row("1.27", "%.1f %%", 68 + 1.5 + 3 + 15.4);
	row("1.28", "%.0f GPUs", 2.0 * 72);
	row("1.29", "%.2f %%", 100 * flop("llama-3.1-8b", 8192).mfu_causal * 21111 / peak("b200", BF16) / 1e12);
	row("1.30", "%.3f", flop("llama-3.1-8b", 32768).mfu / flop("llama-3.1-8b", 32768).mfu_causal);
	row("1.31", "%.1f %%", 100 * 1783 / mixed_peak("b200", "llama-3.1-70b", 8192));
}

static void a100_cluster(void)
{
	row("2.1", "%.0f GPUs", 16.0 * 8);
	row("2.2", "%.0f %%", 100.0 - 7);
	row("2.3", "%.2fx", 40 / 7.0);
	row("2.4", "%.2fx", 7 * 24 / 18.0);
	row("2.5", "%.2fe21 FLOP", 7 * 86400 * 128 * 0.07 * peak("a100", BF16) * 1e12 / 1e21);
	row("2.6", "%.2fe21 FLOP", 18 * 3600 * 128 * 0.40 * peak("a100", BF16) * 1e12 / 1e21);
	row("2.7", "%.1f %%", 100 * 7 / 40.0);
	row("2.8", "%.0f %% MFU", 7 * 11.0);
	row("2.9", "%.0f k tokens/s", 128 * 0.07 * peak("a100", BF16) * 1e12 / flop("gpt3-1.3b", 2048).mfu / 1e3);
	row("2.10", "$%.2f per GPU-hour", 480e3 / (1 - 7 / 40.0) / (128 * 8760));
	row("2.11", "%.0f MiB", 4194304 / 1048576.0);
}

static void tutorial(void)
{
	row("3.1", "%.2f d^2", flop("gpt3-175b", 2048).component[FO_COMP_QKV].forward / (96 * 12288.0 * 12288));
	row("3.2", "%.2f d^2", flop("llama-3.1-8b", 8192).component[FO_COMP_QKV].forward / (32 * 4096.0 * 4096));
	row("3.3", "%.2f T d", flop("gpt3-175b", 2048).component[FO_COMP_SCORES].forward / (96 * 2048.0 * 12288));
	row("3.4", "%.2f d^2", flop("gpt3-175b", 2048).component[FO_COMP_OUTPUT].forward / (96 * 12288.0 * 12288));
	row("3.5", "%.2f d^2", flop("gpt3-175b", 2048).component[FO_COMP_FFN].forward / (96 * 12288.0 * 12288));
	row("3.6", "%.0f d^2", 6 + 2 + 8.0);
	row("3.7", "%.3g", 6 * 175e9 * 300e9);
	row("3.8", "%.4g", flop("gpt3-175b", 2048).mfu_6n * 300e9);
	row("3.9", "%.4g", flop("gpt3-175b", 2048).mfu * 300e9);
	row("3.10", "%.1f %%", 100 * (1 - flop("llama-3.1-8b", 8192).mfu_6n / flop("llama-3.1-8b", 8192).mfu));
	row("3.11", "%.1f TFLOP/s", 0.5 * peak("h100", BF16));
	row("3.12", "%.1f %%", 100 * 238.3e3 * flop("palm-540b", 2048).mfu / (6144 * peak("tpu-v4", BF16) * 1e12));
	row("3.13", "%.1f %%", 100 * 117 / peak("a100", BF16));
	row("3.14", "%.1f %%", 100 * 430 / peak("h100", BF16));
	row("3.15", "%.1f %%", 100 * 400 / peak("h100", BF16));
	row("3.16", "%.1f %%", 100 * 380 / peak("h100", BF16));
	row("3.17", "%.1f %%",
	    100 * 14.8e12 / (2.664e6 * 3600) * flop("deepseek-v3", 4096).mfu / peak("h800", BF16) / 1e12);
	row("3.18", "%.1f %%",
	    100 * 14.8e12 / (2.664e6 * 3600) * flop("deepseek-v3", 4096).mfu_causal / peak("h800", BF16) / 1e12);
	row("3.19", "%.1f %%",
	    100 * 14.8e12 / (2.664e6 * 3600) * flop("deepseek-v3", 4096).mfu_6n / peak("h800", BF16) / 1e12);
	row("3.20", "%.1f %%",
	    100 * 14.8e12 / (2.664e6 * 3600) * flop("deepseek-v3", 4096).mfu_6n / peak("h800", FP8) / 1e12);
	row("3.21", "%.1fx", peak("h100", BF16) / peak("h100", FP32));
	row("3.22", "%.2fx", peak("h100", FP8) / peak("h100", BF16));
	row("3.23", "%.1f", 8 * 4096 / 1.2);
	row("3.24", "%.4g", 6 * 7e9 * 27307);
	row("3.25", "%.4g", 8 * peak("h100", BF16) * 1e12);
	row("3.26", "%.2f %%", 100 * 6 * 7e9 * 27307 / (8 * peak("h100", BF16) * 1e12));
	row("3.27", "%.2f %%", 100 * flop("llama-2-7b", 4096).mfu * 27307 / (8 * peak("h100", BF16) * 1e12));
	row("3.28", "%.2g", 6 * 7e9 * 1e12);
	struct fo_model with;
	if (fo_model_load("deepseek-v3", &with) != FO_OK || fo_model_count_mtp(&with) != FO_OK)
		fail_msg("%s", fo_err_text());
	row("3.29", "%.1f %%",
	    100 * 14.8e12 / (2.664e6 * 3600) * fo_model_flop_per_token(&with, 4096).mfu / peak("h800", BF16) / 1e12);
}

static void test_document(void **state)
{
	(void)state;
	char path[512];
	size_t len;
	int numbered = 0;
	const char *root = getenv("FLATOUT_SOURCE");
	root = root ? root : ".";
	snprintf(path, sizeof(path), "%s/data", root);
	setenv("FLATOUT_DATA", path, 1);
	assert_int_equal(fo_catalogue_load(&catalogue, NULL), FO_OK);
	snprintf(path, sizeof(path), "%s/docs/seed-figures.md", root);
	assert_int_equal(fo_fs_read(&arena, path, 1 << 20, &document, &len), FO_OK);
	vector_labs();
	lambda_paper();
	a100_cluster();
	tutorial();
	for (const char *p = document; (p = strstr(p, "\n| ")) != NULL; p++)
		numbered += p[3] >= '0' && p[3] <= '9';
	assert_int_equal(numbered, rows);
	assert_int_equal(wrong, 0);
	fo_catalogue_fini(&catalogue);
	fo_arena_fini(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_document) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
