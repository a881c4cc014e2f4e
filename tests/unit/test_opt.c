/* The options table: values, files, flags, environment, help texts; and that hostile input is only refused. */
#include "base/clock.h"
#include "base/opt.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct run {
	int64_t steps, memory, every, seed;
	double lr, pause, free_real;
	bool shuffle, json;
	const char *path, *name;
	int dtype;
};

static const struct fo_opt rows[] = {
	FO_OPT_INT(struct run, seed, "seed", "N", "1", 0, 9.2e18, "", "seed of all random numbers"),
	FO_OPT_INT(struct run, steps, "train.steps", "N", "1000", 1, 1e9, "steps", "optimizer steps to run"),
	FO_OPT_INT(struct run, every, "val.every", "N", "100", 1, INFINITY, "steps", "steps between validations"),
	FO_OPT_REAL(struct run, lr, "optim.lr", "X", "3e-4", 0, 1, "", "peak learning rate. Reached after the warm-up"),
	FO_OPT_REAL(struct run, pause, "train.pause", "TIME", "5m", 0, 86400, "s", "time between checkpoints"),
	FO_OPT_REAL(struct run, free_real, "optim.any", "X", NULL, 0, 0, "", "a number without a range"),
	FO_OPT_BYTES(struct run, memory, "train.memory", "SIZE", "1.5GiB", 1024, 0x1p50,
		     "memory for activations \\ 'x'"),
	FO_OPT_BOOL(struct run, shuffle, "data.shuffle", "true", "shuffle the documents"),
	FO_OPT_BOOL(struct run, json, "json", "false", "print JSON"),
	FO_OPT_TEXT(struct run, path, "data.path", "PATH", NULL, "text to train on"),
	FO_OPT_TEXT(struct run, name, "data.name", "NAME", "", "name of the data"),
	FO_OPT_ENUM(struct run, dtype, "train.dtype", "bf16", "precision of the products", "fp32|bf16"),
	FO_OPT_END
};

/* Rows whose short form is not unique. */
static const struct fo_opt twins[] = { FO_OPT_INT(struct run, steps, "train.steps", "N", "1", 1, 9, "steps", "steps"),
				       FO_OPT_INT(struct run, every, "val.steps", "N", "1", 1, 9, "steps", "steps"),
				       FO_OPT_END };

/* The group is a command's name. */
static const struct fo_opt one_group[] = { FO_OPT_INT(struct run, steps, "cmd.steps", "N", "1", 1, 9, "steps", "steps"),
					   FO_OPT_INT(struct run, seed, "cmd.seed", "N", "1", 1, 9, "", "seed"),
					   FO_OPT_END };

static void yaml(struct fo_opt_set *s, struct run *r, const char *text)
{
	fo_opt_init(s, rows, r);
	assert_int_equal(fo_opt_read_yaml_text(s, text, strlen(text), "run.yaml"), FO_OK);
}

/* The text gives exactly these mistakes. */
static void expect_problems(const char *text, const char *problems)
{
	struct fo_opt_set s;
	struct run r;
	yaml(&s, &r, text);
	assert_string_equal(s.problems.data ? s.problems.data : "", problems);
	fo_opt_fini(&s);
}

static void test_defaults(void **state)
{
	(void)state;
	struct fo_opt_set s;
	struct run r;
	memset(&r, 0xaa, sizeof r);
	fo_opt_init(&s, rows, &r);
	assert_int_equal(s.problem_count, 0);
	assert_int_equal(r.steps, 1000);
	assert_true(r.lr == 3e-4);
	assert_true(r.pause == 300);
	assert_true(r.free_real == 0);
	assert_int_equal(r.memory, 3LL << 29);
	assert_true(r.shuffle);
	assert_null(r.path);
	assert_string_equal(r.name, "");
	assert_int_equal(r.dtype, 1);
	assert_false(fo_opt_given(&s, "train.steps"));
	assert_int_equal(fo_opt_finish(&s), FO_OK);
	fo_opt_fini(&s);
}

static bool set(struct run *r, const char *key, const char *text)
{
	struct fo_opt_set s;
	fo_opt_init(&s, rows, r);
	fo_opt_set_text(&s, key, text, FO_ORIGIN_FLAG, "");
	bool ok = s.problem_count == 0;
	fo_opt_fini(&s);
	return ok;
}

static void test_integers(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int64_t v;
	} good[] = {
		{ "1", 1 },           { "4k", 4000 },
		{ "1M", 1000000 },    { "2Ki", 2048 },
		{ "1.5k", 1500 },     { "1e3", 1000 },
		{ "+7", 7 },          { "2.50e1", 25 },
		{ "0.001M", 1000 },   { "1Gi", 0 },
		{ "12 k", 12000 },    { "000123", 123 },
		{ "4K", 4000 },       { "1m", 1000000 },
		{ "1B", 1000000000 }, { "0.5b", 500000000 },
		{ "1T", 0 },          { "1000000000", 1000000000 },
	};
	struct run r;
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		bool ok = set(&r, "train.steps", good[i].text);
		assert_int_equal(ok, good[i].v != 0); /* 1Gi is above 1e9 */
		if (ok)
			assert_int_equal(r.steps, good[i].v);
	}
	static const char *const bad[] = {
		"",
		" ",
		"k",
		"1x",
		"1 ",
		" 1",
		"1kk",
		"0",
		"-1",
		"1.5",
		"1.0001k",
		"0x10",
		"nan",
		"inf",
		"1e",
		"1e99",
		"1e-1",
		"99999999999999999999",
		"1e999999999999999999",
		"340282366920938463463374607431768211457",
		"1,000",
		"1_000",
		"--1",
		"1KB",
		"1kk",
		"one",
		"1.2.3",
		".",
		"1e400k",
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		assert_false(set(&r, "train.steps", bad[i]));
		assert_int_equal(r.steps, 1000);
	}
	/* No integer passes through a double. */
	assert_true(set(&r, "seed", "9007199254740993"));
	assert_int_equal(r.seed, 9007199254740993);
	assert_false(set(&r, "seed", "9223372036854775808"));
}

static void test_reals_sizes_and_the_rest(void **state)
{
	(void)state;
	struct run r;
	assert_true(set(&r, "optim.lr", "3e-4") && r.lr == 3e-4);
	assert_true(set(&r, "optim.lr", ".5") && r.lr == 0.5);
	assert_true(set(&r, "optim.any", "7G") && r.free_real == 7e9);
	assert_true(set(&r, "optim.any", "-1e300") && r.free_real == -1e300);
	assert_true(set(&r, "train.pause", "30s") && r.pause == 30);
	assert_true(set(&r, "train.pause", "2h") && r.pause == 7200);
	assert_true(set(&r, "train.pause", "250ms") && r.pause == 0.25);
	assert_true(set(&r, "train.pause", "7") && r.pause == 7);
	assert_true(set(&r, "train.memory", "80GiB") && r.memory == 80LL << 30);
	assert_true(set(&r, "train.memory", "80 GB") && r.memory == 80000000000);
	assert_true(set(&r, "train.memory", "4096B") && r.memory == 4096);
	assert_true(set(&r, "train.memory", "80gb") && r.memory == 80000000000);
	assert_true(set(&r, "train.memory", "16G") && r.memory == 16LL << 30);
	assert_true(set(&r, "train.dtype", "fp32") && r.dtype == 0);
	assert_true(set(&r, "json", "Yes") && r.json);
	assert_true(set(&r, "json", "off") && !r.json);
	static const char *const bad[][2] = {
		{ "optim.lr", "1.5" },
		{ "optim.lr", "nan" },
		{ "optim.lr", "0x1p-3" },
		{ "optim.any", "1e999" },
		{ "optim.any", "1e308k" },
		{ "train.pause", "5x" },
		{ "train.pause", "2k" },
		{ "train.pause", "3d" },
		{ "train.memory", "80P" },
		{ "train.pause", "5M" },
		{ "train.memory", "1023" },
		{ "train.memory", "0.3B" },
		{ "train.memory", "9999999TiB" },
		{ "train.dtype", "" },
		{ "train.dtype", "fp" },
		{ "train.dtype", "fp32|bf16" },
		{ "train.dtype", "|" },
		{ "json", "" },
		{ "json", "2" },
		{ "data.path", "\xff" },
		{ "data.path", "a\xc3" },
		{ "data.path", "\xed\xa0\x80" },
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_false(set(&r, bad[i][0], bad[i][1]));
}

struct outputs {
	int64_t seq;
	double batch;
	const char *in, *out, *json;
	bool force;
};
static const struct fo_opt output_rows[] = {
	FO_OPT_LENGTH(struct outputs, seq, "cmd.seq", "S", NULL, 1, 1 << 30, "sequence length"),
	FO_OPT_LENGTH_REAL(struct outputs, batch, "cmd.tokens-per-step", "N", NULL, 1, 1e18, "tokens of a step"),
	FO_OPT_PATH(struct outputs, in, "cmd.in", "PATH", NULL, "what is read"),
	FO_OPT_OUTPUT(struct outputs, out, "cmd.out", "FILE", NULL, "what is written", FO_OUTPUT_PAGE),
	FO_OPT_JSON(struct outputs, json, "cmd.json", "JSON on standard output"),
	FO_OPT_FORCE(struct outputs, force, "cmd.force"),
	FO_OPT_END
};

/* Reads these arguments; the caller ends s. */
static void read_outputs(struct fo_opt_set *s, struct outputs *o, int *argc, char **argv)
{
	fo_opt_init(s, output_rows, o);
	fo_opt_read_args(s, argc, argv);
}

/* 8k is 8192 where it is the length of a sequence or a batch, and the reader is told so. */
static void test_lengths(void **state)
{
	(void)state;
	struct fo_opt_set s;
	struct outputs o;
	char *argv[] = { "cmd", "--seq=8k", "--tokens-per-step=4M", NULL };
	int argc = 3;
	read_outputs(&s, &o, &argc, argv);
	assert_int_equal(fo_opt_finish(&s), FO_OK);
	assert_int_equal(o.seq, 8192);
	assert_true(o.batch == 4194304);
	assert_string_equal(s.notes.data,
			    "--seq: 8k is taken as 8192 tokens\n--tokens-per-step: 4M is taken as 4194304 tokens");
	fo_opt_fini(&s);

	char *plain[] = { "cmd", "--seq=8Ki", "--tokens-per-step=1.5B", NULL };
	argc = 3;
	read_outputs(&s, &o, &argc, plain);
	assert_int_equal(o.seq, 8192);
	assert_true(o.batch == 1.5e9);
	assert_int_equal(s.notes.len, 0); /* these have one meaning */
	fo_opt_fini(&s);
}

/* A shell expands "~/x" where it begins a word, not behind "--out=": we do, so that no folder "~" is ever made. */
static void test_home(void **state)
{
	(void)state;
	struct fo_opt_set s;
	struct outputs o;
	char *argv[] = { "cmd", "--in=~", "--out=~/a/b", "~/c", "d~/~", NULL };
	int argc = 5;
	assert_int_equal(setenv("HOME", "/h", 1), 0);
	read_outputs(&s, &o, &argc, argv);
	assert_int_equal(fo_opt_finish(&s), FO_OK);
	assert_string_equal(o.in, "/h");
	assert_string_equal(o.out, "/h/a/b");
	assert_int_equal(argc, 3);
	assert_string_equal(argv[1], "/h/c");
	assert_string_equal(argv[2], "d~/~");
	fo_opt_set_text(&s, "cmd.out", "./~/x", FO_ORIGIN_FLAG, "");
	assert_string_equal(o.out, "./~/x");
	assert_int_equal(fo_opt_read_yaml_text(&s, "cmd: {in: ~/y}\n", 15, "run.yaml"), FO_OK);
	fo_opt_fini(&s);
	fo_opt_init(&s, output_rows, &o);
	assert_int_equal(fo_opt_read_yaml_text(&s, "cmd: {in: ~/y}\n", 15, "run.yaml"), FO_OK);
	assert_string_equal(o.in, "/h/y");
	fo_opt_set_text(&s, "cmd.out", "~bob/x", FO_ORIGIN_FLAG, "--out");
	assert_int_equal(fo_opt_finish(&s), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "'--out' must be a path in UTF-8, got '~bob/x': only '~/' is expanded"));
	fo_opt_fini(&s);
	assert_int_equal(unsetenv("HOME"), 0);
	fo_opt_init(&s, output_rows, &o);
	fo_opt_set_text(&s, "cmd.out", "~/x", FO_ORIGIN_FLAG, "--out");
	assert_int_equal(fo_opt_finish(&s), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "which is not set"));
	fo_opt_fini(&s);
}

/* --json alone takes no argument: what follows is the command's own. */
static void test_json_flag(void **state)
{
	(void)state;
	static const struct {
		const char *a, *b, *json;
		int left;
	} row[] = {
		{ "--json", "trace.json", "-", 2 }, { "--json", "-", "-", 1 },
		{ "--json=-", "x", "-", 2 },        { "--json=out.json", "x", "out.json", 2 },
		{ "--json=yes", "x", "-", 2 },      { "--json=no", "x", NULL, 2 },
		{ "--no-json", "x", NULL, 2 },      { "--force", "x", NULL, 2 },
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct fo_opt_set s;
		struct outputs o;
		char a[16], b[16], *argv[] = { "cmd", a, b, NULL };
		int argc = 3;
		snprintf(a, sizeof a, "%s", row[i].a);
		snprintf(b, sizeof b, "%s", row[i].b);
		read_outputs(&s, &o, &argc, argv);
		assert_int_equal(fo_opt_finish(&s), FO_OK);
		assert_int_equal(argc, row[i].left);
		if (row[i].json)
			assert_string_equal(o.json, row[i].json);
		else
			assert_null(o.json);
		fo_opt_fini(&s);
	}
}

static void test_yaml(void **state)
{
	(void)state;
	struct fo_opt_set s;
	struct run r;
	yaml(&s, &r,
	     "# a comment\nseed: 7\r\ntrain:\n  steps: 4k # four thousand\n  memory: \"2 GiB\"\ndata: {path: 'a b', "
	     "name: \"\"}\n"
	     "optim.lr: 1e-3\nval:\n");
	assert_int_equal(fo_opt_finish(&s), FO_OK);
	assert_int_equal(r.seed, 7);
	assert_int_equal(r.steps, 4000);
	assert_int_equal(r.memory, 2LL << 30);
	assert_string_equal(r.path, "a b");
	assert_string_equal(r.name, "");
	assert_true(r.lr == 1e-3);
	assert_true(fo_opt_given(&s, "train.steps"));
	assert_string_equal(s.origin[1].where, "run.yaml:4");
	assert_int_equal(s.origin[1].from, FO_ORIGIN_FILE);
	fo_opt_fini(&s);
	expect_problems("", "");
	expect_problems("\xef\xbb\xbfseed: 1\n", "");
	expect_problems("---\nseed: 1\n...\n", "");
}

static void test_yaml_mistakes_come_together(void **state)
{
	(void)state;
	expect_problems("train:\n  stpes: 5\n  steps: 0\n  memory: 4Q\n  steps: 7\n  dtype: fp8\noptim: {lr: nan}\nlr: "
			"1\ntrian:\n  a: b\n",
			"run.yaml:2: unknown key 'train.stpes'; nearest is 'train.steps'\n"
			"run.yaml:3: 'train.steps' must be an integer from 1 to 1e9 steps, got '0'\n"
			"run.yaml:4: 'train.memory' must be a size from 1 KiB to 1 PiB, got '4Q'\n"
			"run.yaml:5: 'train.steps' was already set in line 3\n"
			"run.yaml:6: 'train.dtype' must be one of fp32, bf16, got 'fp8'\n"
			"run.yaml:7: 'optim.lr' must be a number from 0 to 1, got 'nan'\n"
			"run.yaml:8: unknown key 'lr'; nearest is 'optim.lr'\n"
			"run.yaml:9: unknown key 'trian'; nearest is 'train'");
	expect_problems("val: {every: -1}\n",
			"run.yaml:1: 'val.every' must be an integer of at least 1 steps, got '-1'");
	expect_problems("train: {steps: {a: 1}}\n", "run.yaml:1: 'train.steps' takes one value, got a mapping");
	expect_problems("train: {steps: [1]}\n", "run.yaml:1: 'train.steps' takes one value, got a list");
	expect_problems("train: 5\n", "run.yaml:1: 'train' is a section of keys, got the value '5'");
	expect_problems("[a]\n", "run.yaml:1: expected lines like 'key: value', got a list");
	expect_problems("hello\n", "run.yaml:1: expected lines like 'key: value', got 'hello'");
	expect_problems("? {a: b}\n: 5\n? [c]\n: {d: e}\n",
			"run.yaml:1: a mapping cannot be a key\nrun.yaml:3: a list cannot be a key");
	expect_problems("seed: &a 5\ndata: {path: *a}\n", "run.yaml:1: anchor '&a' is not allowed in a run file\n"
							  "run.yaml:2: alias '*a' is not allowed in a run file");
	expect_problems("seed: !!int 5\n", "run.yaml:1: tag 'tag:yaml.org,2002:int' is not allowed in a run file");
	expect_problems("<<: {seed: 1}\n", "run.yaml:1: unknown key '<<'");
	expect_problems("train: {steps: 1}\ntrain: {steps: 2}\n",
			"run.yaml:2: section 'train' was already opened in line 1\n"
			"run.yaml:2: 'train.steps' was already set in line 1");
	expect_problems("seed: 1\n---\nseed: 2\n", "run.yaml:2: a second document starts here: a run file holds one");
	expect_problems("data: {path: \"a\\0b\"}\n",
			"run.yaml:1: 'data.path' must be UTF-8 text without NUL, got 'a\\x01b'");
	expect_problems("seed: \"\x1b[31m\"\n",
			"run.yaml:1: not text: byte or character 0x1b at byte 7 is not allowed");
}

static void test_yaml_bytes(void **state)
{
	(void)state;
	struct fo_opt_set s;
	struct run r;
	yaml(&s, &r, "train:\n  stpes: 1\n\tb: 2\n"); /* the reason is libyaml's, and so is its wording */
	assert_int_equal(s.problem_count, 2);
	assert_non_null(strstr(s.problems.data, "\nrun.yaml:3: not valid YAML in column 1: "));
	fo_opt_fini(&s);
	static const char nul[] = "seed: 1\nval: \0 2\n", latin[] = "seed: 1\n# \xe4\n";
	fo_opt_init(&s, rows, &r);
	assert_int_equal(fo_opt_read_yaml_text(&s, nul, sizeof nul - 1, "n.yaml"), FO_OK);
	assert_non_null(strstr(s.problems.data, "n.yaml:2: not text: byte or character 0x00"));
	fo_opt_fini(&s);
	fo_opt_init(&s, rows, &r);
	assert_int_equal(fo_opt_read_yaml_text(&s, latin, sizeof latin - 1, "l.yaml"), FO_OK);
	assert_non_null(strstr(s.problems.data, "l.yaml:2: not text"));
	assert_int_equal(s.problem_count, 1);
	fo_opt_fini(&s);
}

/* Files that are legal to write down and expensive or deep to follow. */
static void test_yaml_hostile(void **state)
{
	(void)state;
	struct fo_opt_set s;
	struct run r;
	size_t size = FO_OPT_FILE_BYTES_MAX;
	char *text = malloc(size + 1);
	assert_non_null(text);
	static const char *const unit[] = { "[",          "{a: ",         "- ",        "? ",   "a: b\n",
					    "train: {\n", "zz: {x: y}\n", "\"",        "&a ",  "!a ",
					    "*a\n",       "|\n ",         "seed: 1\n", "%x\n", "---\n" };
	for (size_t u = 0; u < sizeof unit / sizeof unit[0]; u++) {
		size_t n = 0, k = strlen(unit[u]), end = size / 4;
		for (; n + k <= end; n += k)
			memcpy(text + n, unit[u], k);
		fo_opt_init(&s, rows, &r);
		assert_int_equal(fo_opt_read_yaml_text(&s, text, n, "big.yaml"), FO_OK);
		assert_int_equal(fo_opt_finish(&s), FO_EARG);
		fo_opt_fini(&s);
	}
	fo_opt_init(&s, rows, &r);
	assert_int_equal(fo_opt_read_yaml_text(&s, text, size + 1, "big.yaml"), FO_EFORMAT);
	fo_opt_fini(&s);
	free(text);
	char deep[2000] = "";
	for (int i = 0; i < 40; i++)
		sprintf(deep + strlen(deep), "%*strain:\n", i, "");
	yaml(&s, &r, deep);
	assert_true(s.problem_count >= 1);
	fo_opt_fini(&s);
}

static void test_big_file(void **state)
{
	(void)state;
	char path[] = "/tmp/test_opt_XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 10000000), 0);
	struct fo_opt_set s;
	struct run r;
	fo_opt_init(&s, rows, &r);
	assert_int_equal(fo_opt_read_yaml(&s, path), FO_EFORMAT);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(write(fd, "seed: 3\n", 8), 8);
	assert_int_equal(fo_opt_read_yaml(&s, path), FO_OK);
	assert_int_equal(r.seed, 3);
	close(fd);
	unlink(path);
	assert_int_equal(fo_opt_read_yaml(&s, path), FO_EIO);
	fo_opt_fini(&s);
}

static void test_many_mistakes(void **state)
{
	(void)state;
	struct fo_opt_set s;
	struct run r;
	fo_opt_init(&s, rows, &r);
	for (int i = 0; i < 5000; i++)
		fo_opt_problem(&s, "mistake %d", i);
	assert_int_equal(s.problem_count, 5000);
	assert_true(s.problems.len < 100 * 20);
	assert_int_equal(fo_opt_finish(&s), FO_EARG);
	assert_memory_equal(fo_err_text(), "mistake 0\nmistake 1\n", 20);
	assert_non_null(strstr(fo_err_text(), " more mistakes"));
	fo_opt_fini(&s);
}

static void test_args(void **state)
{
	(void)state;
	struct fo_opt_set s;
	struct run r;
	fo_opt_init(&s, rows, &r);
	char *argv[] = { "train",     "--steps=5",  "run.yaml", "--optim.lr", "0.1", "--no-shuffle",
			 "--json",    "--name",     "",         "--pause",    "1m",  "-",
			 "--every=9", "--every=10", "--",       "--seed",     NULL };
	int argc = (int)(sizeof argv / sizeof argv[0]) - 1;
	fo_opt_read_args(&s, &argc, argv);
	assert_int_equal(fo_opt_finish(&s), FO_OK);
	assert_int_equal(argc, 4);
	assert_string_equal(argv[1], "run.yaml");
	assert_string_equal(argv[2], "-");
	assert_string_equal(argv[3], "--seed");
	assert_null(argv[4]);
	assert_int_equal(r.steps, 5);
	assert_true(r.lr == 0.1);
	assert_false(r.shuffle);
	assert_true(r.json);
	assert_true(r.pause == 60);
	assert_int_equal(r.every, 10);
	fo_opt_fini(&s);
}

static void test_arg_mistakes(void **state)
{
	(void)state;
	struct fo_opt_set s;
	struct run r;
	fo_opt_init(&s, rows, &r);
	char *argv[] = { "train", "--stesp=5",       "--train.steps", "x",      "--no-steps",
			 "-q",    "--shuffle=maybe", "--=",           "--path", NULL };
	int argc = 9;
	fo_opt_read_args(&s, &argc, argv);
	assert_string_equal(s.problems.data, "unknown option '--stesp'; nearest is '--steps'\n"
					     "'--train.steps' must be an integer from 1 to 1e9 steps, got 'x'\n"
					     "unknown option '--no-steps'; nearest is '--steps'\n"
					     "unknown option '-q'\n"
					     "'--shuffle' must be true or false (or yes, no, on, off), got 'maybe'\n"
					     "unknown option '--'\n"
					     "'--path' needs a value: UTF-8 text without NUL");
	assert_int_equal(argc, 1);
	fo_opt_fini(&s);
	fo_opt_init(&s, twins, &r);
	char *argv2[] = { "x", "--steps=5", "--val.steps=3", NULL };
	argc = 3;
	fo_opt_read_args(&s, &argc, argv2);
	assert_string_equal(s.problems.data,
			    "'--steps' could be '--train.steps' or '--val.steps': write the whole name");
	assert_int_equal(r.every, 3);
	fo_opt_fini(&s);
}

static void test_precedence(void **state)
{
	(void)state;
	struct fo_opt_set s;
	struct run r;
	setenv("FLATOUT_TRAIN_STEPS", "20", 1);
	setenv("FLATOUT_OPTIM_LR", "0.5", 1);
	setenv("FLATOUT_SEED", "", 1);
	fo_opt_init(&s, rows, &r);
	char *argv[] = { "train", "--steps=30", NULL };
	int argc = 2;
	/* The order of reading does not matter. */
	fo_opt_read_args(&s, &argc, argv);
	fo_opt_read_env(&s);
	const char *text = "train: {steps: 10}\noptim: {lr: 0.1}\nseed: 4\n";
	assert_int_equal(fo_opt_read_yaml_text(&s, text, strlen(text), "f"), FO_OK);
	assert_int_equal(fo_opt_finish(&s), FO_OK);
	assert_int_equal(r.steps, 30);
	assert_true(r.lr == 0.5);
	assert_int_equal(r.seed, 4);
	assert_int_equal(s.origin[1].from, FO_ORIGIN_FLAG);
	assert_string_equal(s.origin[3].where, "FLATOUT_OPTIM_LR");
	struct fo_str out = { 0 };
	fo_opt_json(&s, &out);
	json_t *v = json_loads(out.data, 0, NULL);
	assert_non_null(v);
	json_t *steps = json_object_get(v, "train.steps");
	assert_int_equal(json_integer_value(json_object_get(steps, "value")), 30);
	assert_string_equal(json_string_value(json_object_get(steps, "origin")), "flag");
	assert_true(json_is_null(json_object_get(json_object_get(v, "data.path"), "value")));
	json_decref(v);
	fo_str_fini(&out);
	fo_opt_fini(&s);
	/* A wrong value is reported even when a higher origin overrides it. */
	setenv("FLATOUT_TRAIN_STEPS", "none", 1);
	fo_opt_init(&s, rows, &r);
	argv[1] = "--steps=30";
	argc = 2;
	fo_opt_read_args(&s, &argc, argv);
	fo_opt_read_env(&s);
	assert_string_equal(s.problems.data,
			    "'FLATOUT_TRAIN_STEPS' must be an integer from 1 to 1e9 steps, got 'none'");
	assert_int_equal(r.steps, 30);
	fo_opt_fini(&s);
	unsetenv("FLATOUT_TRAIN_STEPS");
	unsetenv("FLATOUT_OPTIM_LR");
	unsetenv("FLATOUT_SEED");
}

struct command {
	bool keep, fused;
	int tied;
	int64_t every;
	bool json, own_keep;
};
static const struct fo_opt settings[] = {
	FO_OPT_YES_NO(struct command, keep, "train.keep", "yes", "keep what was made"),
	FO_OPT_YES_NO(struct command, fused, "pass.fused", "no", "one walk over memory"),
	FO_OPT_TRI(struct command, tied, "model.tied", "model", "share the weights", "model"),
	FO_OPT_INT(struct command, every, "train.every", "N", "1", 1, 9, "steps", "how often"), FO_OPT_END
};
static const struct fo_opt own[] = { FO_OPT_BOOL(struct command, json, "cli.json", "false", "print JSON"),
				     FO_OPT_BOOL(struct command, own_keep, "cli.keep", "false", "keep the table"),
				     FO_OPT_END };

/* true is yes, and a setting wants its value; the third word of three is 2. */
static void test_yes_no(void **state)
{
	(void)state;
	struct fo_opt_set s;
	struct command c;
	struct fo_str out = { 0 };
	fo_opt_init(&s, settings, &c);
	assert_true(c.keep && !c.fused && c.tied == 2);
	char *argv[] = { "cmd", "--keep", "no", "--fused=on", "--tied=yes", NULL };
	int argc = 5;
	fo_opt_read_args(&s, &argc, argv);
	assert_int_equal(fo_opt_finish(&s), FO_OK);
	assert_true(!c.keep && c.fused && c.tied == 1 && argc == 1);
	assert_string_equal(fo_opt_value_text(&s, 0), "no");
	assert_string_equal(fo_opt_value_text(&s, 1), "yes");
	fo_opt_json(&s, &out);
	assert_non_null(strstr(out.data, "\"yes\""));
	fo_str_fini(&out);
	fo_opt_help(settings, &out);
	assert_non_null(strstr(out.data, "--train.keep NAME"));
	assert_non_null(strstr(out.data, "(default yes; one of yes, no)"));
	fo_str_fini(&out);
	fo_opt_set_text(&s, "model.tied", "auto", FO_ORIGIN_FLAG, "--tied");
	fo_opt_set_text(&s, "train.keep", "2", FO_ORIGIN_FLAG, "--keep");
	assert_string_equal(s.problems.data, "'--tied' must be one of no, yes, model, got 'auto'\n"
					     "'--keep' must be one of yes, no (or true, false, on, off), got '2'");
	fo_opt_fini(&s);
}

/* A command's own rows: flags set them, files and variables do not, and the short form is theirs. */
static void test_own(void **state)
{
	(void)state;
	struct fo_opt_set s;
	struct command c;
	struct fo_str out = { 0 };
	setenv("FLATOUT_CLI_JSON", "yes", 1);
	setenv("FLATOUT_TRAIN_EVERY", "3", 1);
	fo_opt_init_own(&s, settings, own, &c);
	char *argv[] = { "cmd", "--keep", "x", "--train.keep=no", NULL };
	int argc = 4;
	fo_opt_read_args(&s, &argc, argv);
	fo_opt_read_env(&s);
	assert_int_equal(fo_opt_finish(&s), FO_OK);
	assert_true(c.own_keep && !c.keep && c.every == 3 && !c.json && argc == 2);
	assert_true(fo_opt_given(&s, "cli.keep") && !fo_opt_given(&s, "cli.json"));
	fo_opt_json(&s, &out);
	fo_opt_sample_yaml(&s, &out);
	assert_null(strstr(out.data, "cli"));
	fo_str_fini(&out);
	const char *text = "cli: {json: yes}\n";
	assert_int_equal(fo_opt_read_yaml_text(&s, text, strlen(text), "f"), FO_OK);
	assert_string_equal(s.problems.data, "f:1: unknown key 'cli'");
	fo_opt_fini(&s);
	unsetenv("FLATOUT_CLI_JSON");
	unsetenv("FLATOUT_TRAIN_EVERY");
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

/* Sample file of the present values, read back, gives the same values. */
static void round_trip(struct fo_opt_set *s, const struct run *r)
{
	struct fo_str text = { 0 };
	fo_opt_sample_yaml(s, &text);
	struct fo_opt_set t;
	struct run q;
	yaml(&t, &q, text.data);
	assert_string_equal(t.problems.data ? t.problems.data : "", "");
	assert_int_equal(q.steps, r->steps);
	assert_int_equal(q.memory, r->memory);
	assert_int_equal(q.every, r->every);
	assert_int_equal(q.seed, r->seed);
	assert_true(q.lr == r->lr && q.pause == r->pause && q.free_real == r->free_real);
	assert_true(q.shuffle == r->shuffle && q.json == r->json && q.dtype == r->dtype);
	assert_true(same_text(q.path, r->path) && same_text(q.name, r->name));
	for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n"))
		assert_true(strlen(line) <= 80 || strchr(line, '#') == NULL);
	fo_opt_fini(&t);
	fo_str_fini(&text);
}

static void test_sample(void **state)
{
	(void)state;
	struct fo_opt_set s;
	struct run r;
	fo_opt_init(&s, rows, &r);
	round_trip(&s, &r);
	static const char *const texts[] = {
		"",      "~",        "null",
		"- a",   "a: b # c", "#",
		"\"q\"", "'",        "x\ny\t\x01\x7f",
		"{",     "*a",       "&b",
		"!c",    "%",        "\xc3\xa4\xe2\x80\xa8\xef\xbb\xbf\xf0\x9f\x98\x80\xc2\x85",
		"true",  "\\",       " lead",
		"...",   "---"
	};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		fo_opt_set_text(&s, "data.path", texts[i], FO_ORIGIN_FLAG, "");
		fo_opt_set_text(&s, "data.name", texts[i], FO_ORIGIN_FLAG, "");
		assert_int_equal(s.problem_count, 0);
		round_trip(&s, &r);
	}
	for (uint64_t i = 0; i < 500; i++) {
		r.lr = fo_rng_uniform(1, i);
		r.free_real = (fo_rng_uniform(2, i) - 0.5) * pow(10, (double)(int64_t)(fo_rng_u64(3, i) % 600) - 300);
		r.memory = 1024 + (int64_t)(fo_rng_u64(4, i) % 1000000);
		r.seed = (int64_t)(fo_rng_u64(5, i) >> 2);
		fo_opt_set_text(&s, "optim.any", "1", FO_ORIGIN_FLAG, "");
		r.free_real = fo_rng_normal(6, i);
		round_trip(&s, &r);
	}
	fo_opt_fini(&s);
}

static void test_help(void **state)
{
	(void)state;
	struct fo_str out = { 0 };
	fo_opt_help(rows, &out);
	assert_non_null(
		strstr(out.data, "  --train.steps N           optimizer steps to run (default 1000; 1 to 1e9\n"));
	assert_non_null(strstr(out.data, "--[no-]data.shuffle"));
	assert_non_null(strstr(out.data, "one of"));
	for (int i = 0; rows[i].key; i++)
		assert_non_null(strstr(out.data, rows[i].key));
	for (char *line = strtok(out.data, "\n"); line; line = strtok(NULL, "\n"))
		assert_true(strlen(line) <= 80);
	out.len = 0;
	fo_opt_help(one_group, &out);
	assert_string_equal(out.data, "Options:\n  --steps N                 steps (default 1; 1 to 9 steps)\n"
				      "  --seed N                  seed (default 1; 1 to 9)\n");
	out.len = 0;
	fo_opt_help(twins, &out);
	assert_non_null(strstr(out.data, "val:\n  --val.steps N"));
	fo_str_fini(&out);
}

static void test_mdoc_lints(void **state)
{
	(void)state;
	if (system("command -v mandoc >/dev/null 2>&1") != 0)
		skip();
	struct fo_str out = { 0 };
	fo_str_puts(&out, ".Dd November 21, 2026\n.Dt TEST 1\n.Os\n.Sh NAME\n.Nm test\n.Nd a test\n.Sh DESCRIPTION\n");
	fo_opt_mdoc_text(&out, "A first sentence. A second one (really.) And .dots, 'quotes', back\\slashes.\n\n  "
			       ".literal \\fB\n\n  'two\n\nEnd.\n"
			       "  x\nLast");
	fo_opt_mdoc(rows, &out);
	FILE *p = popen("mandoc -T lint", "w");
	assert_non_null(p);
	fputs(out.data, p);
	assert_int_equal(pclose(p), 0);
	fo_str_fini(&out);
}

/* Thousands of damaged files and command lines: whatever they do, they only leave mistakes. Run under ASan in CI. */
static void test_random_mutations(void **state)
{
	(void)state;
	struct fo_opt_set s;
	struct run r;
	struct fo_str text = { 0 };
	fo_opt_init(&s, rows, &r);
	fo_opt_sample_yaml(&s, &text);
	fo_opt_fini(&s);
	static const char bits[] = "{}[]:,-?&*!|>'\"%@`#\n\t \0\xff\xc3\x80~<.0e";
	char *copy = malloc(text.len + 1);
	int refused = 0;
	for (uint64_t seed = 0; seed < 5000; seed++) {
		size_t len = text.len;
		memcpy(copy, text.data, len + 1);
		int changes = 1 + (int)(fo_rng_u64(seed, 0) % 8);
		for (int k = 0; k < changes; k++) {
			size_t at = fo_rng_u64(seed, (uint64_t)k * 4 + 1) % len;
			uint64_t what = fo_rng_u64(seed, (uint64_t)k * 4 + 2);
			if (what % 4 == 0)
				copy[at] = (char)(what >> 8);
			else if (what % 4 == 1)
				len = at + 1;
			else
				copy[at] = bits[(what >> 8) % (sizeof bits - 1)];
		}
		fo_opt_init(&s, rows, &r);
		assert_int_equal(fo_opt_read_yaml_text(&s, copy, len, "m.yaml"), FO_OK);
		assert_true(s.problem_count || (r.steps >= 1 && r.steps <= 1000000000 && r.lr >= 0 && r.lr <= 1));
		refused += fo_opt_finish(&s) != FO_OK;
		/* One mistake is one line, with no byte that a terminal would obey. */
		int lines = s.problem_count > 0;
		for (size_t i = 0; i < s.problems.len; i++) {
			lines += s.problems.data[i] == '\n';
			assert_true(s.problems.data[i] == '\n' || (unsigned char)s.problems.data[i] >= 0x20);
		}
		assert_int_equal(lines, s.problem_count < FO_OPT_PROBLEMS_MAX ? s.problem_count : FO_OPT_PROBLEMS_MAX);
		fo_opt_fini(&s);
	}
	assert_true(refused > 1000);
	free(copy);
	fo_str_fini(&text);
}

static void test_random_args(void **state)
{
	(void)state;
	static const char *const words[] = { "--train.steps",
					     "--steps=",
					     "--no-shuffle",
					     "--json",
					     "x",
					     "-",
					     "--",
					     "---",
					     "=",
					     "--=",
					     "--no-",
					     "--optim.lr=1e-3",
					     "--memory",
					     "80GiB",
					     "--dtype=fp32",
					     "-1",
					     "\xff\xfe",
					     "--\x01=\n" };
	for (uint64_t seed = 0; seed < 5000; seed++) {
		struct fo_opt_set s;
		struct run r;
		char store[8][64], *argv[9] = { NULL };
		int argc = (int)(fo_rng_u64(seed, 0) % 9), before = argc;
		for (int i = 0; i < argc; i++) {
			argv[i] = store[i];
			snprintf(store[i], sizeof store[i], "%s%s", words[fo_rng_u64(seed, 10 + (uint64_t)i) % 18],
				 fo_rng_u64(seed, 20 + (uint64_t)i) % 3
					 ? ""
					 : words[fo_rng_u64(seed, 30 + (uint64_t)i) % 18]);
			size_t len = strlen(store[i]);
			if (fo_rng_u64(seed, 40 + (uint64_t)i) % 4 == 0 && len)
				store[i][fo_rng_u64(seed, 50 + (uint64_t)i) % len] =
					(char)(fo_rng_u64(seed, 60 + (uint64_t)i) | 1);
		}
		fo_opt_init(&s, rows, &r);
		fo_opt_read_args(&s, &argc, argv);
		assert_true(argc <= before && argc >= (before > 0));
		(void)!fo_opt_finish(&s);
		fo_opt_fini(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_integers),
		cmocka_unit_test(test_reals_sizes_and_the_rest),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_home),
		cmocka_unit_test(test_json_flag),
		cmocka_unit_test(test_yaml),
		cmocka_unit_test(test_yaml_mistakes_come_together),
		cmocka_unit_test(test_yaml_bytes),
		cmocka_unit_test(test_yaml_hostile),
		cmocka_unit_test(test_big_file),
		cmocka_unit_test(test_many_mistakes),
		cmocka_unit_test(test_args),
		cmocka_unit_test(test_arg_mistakes),
		cmocka_unit_test(test_precedence),
		cmocka_unit_test(test_yes_no),
		cmocka_unit_test(test_own),
		cmocka_unit_test(test_sample),
		cmocka_unit_test(test_help),
		cmocka_unit_test(test_mdoc_lints),
		cmocka_unit_test(test_random_mutations),
		cmocka_unit_test(test_random_args),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
