/* Configuration files of every format as lists of settings: what stands where, what is refused, and that no prefix of a
 * file crashes a reader. */
#include "job/conf.h"
#include "base/fs.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct fo_conf parsed(const char *text, enum fo_conf_format format)
{
	struct fo_conf c;
	if (fo_conf_parse(text, strlen(text), "test", NULL, &c) != FO_OK)
		fail_msg("%s: %s", text, fo_err_text());
	if (c.format != format)
		fail_msg("read as %s: %s", fo_conf_format_name[c.format], text);
	return c;
}

static void is(const struct fo_conf *c, const char *path, const char *value, int line)
{
	const struct fo_conf_entry *e = fo_conf_find(c, path);
	if (!e)
		fail_msg("no '%s'", path);
	if (strcmp(e->value, value) || (line && e->line != line))
		fail_msg("'%s' is '%s' in line %d, not '%s' in line %d", path, e->value, e->line, value, line);
}

static void is_kind(const struct fo_conf *c, const char *path, enum fo_conf_kind kind)
{
	const struct fo_conf_entry *e = fo_conf_find(c, path);
	if (!e || e->kind != kind)
		fail_msg("'%s' is of kind %d, not %d", path, e ? (int)e->kind : -1, (int)kind);
}

static void refused(const char *text, const char *why)
{
	struct fo_conf c;
	fo_status st = fo_conf_parse(text, strlen(text), "test", NULL, &c);
	if (st != FO_EFORMAT || !strstr(fo_err_text(), why))
		fail_msg("'%.60s': status %d, '%s', expected '%s'", text, (int)st, fo_err_text(), why);
	fo_conf_fini(&c);
}

static void test_toml(void **state)
{
	(void)state;
	struct fo_conf c = parsed("# a comment\n"
				  "top = 1_000 # one more\n"
				  "[a.b]\r\n"
				  "basic = \"x\\t\\u00e9\\\"\" \r\n"
				  "literal = 'C:\\x'\n"
				  "long = \"\"\"\n"
				  "one \\\n"
				  "   two\"\"\"\n"
				  "raw = '''\n"
				  "it's\n'''\n"
				  "list = [ 1, # first\n"
				  "  'two',\n"
				  "  [3, 4], ]\n"
				  "empty = []\n"
				  "inline = { x = 1, y.z = 'q', 'k k' = true }\n"
				  "'quoted key' = -1.5e-3\n"
				  "date = 1979-05-27 07:32:00Z\n"
				  "a.dotted . key = false\n"
				  "[[many]]\n"
				  "v = 1\n"
				  "[many.sub]\n"
				  "w = 2\n"
				  "[[many]]\n"
				  "v = 3\n",
				  FO_CONF_TOML);
	is(&c, "top", "1000", 2);
	is(&c, "a.b.basic", "x\t\xc3\xa9\"", 4);
	is(&c, "a.b.literal", "C:\\x", 5);
	is(&c, "a.b.long", "one two", 6);
	is(&c, "a.b.raw", "it's\n", 9);
	is(&c, "a.b.list", "1,two", 12);
	is(&c, "a.b.list.2", "3,4", 14);
	is(&c, "a.b.empty", "", 15);
	is(&c, "a.b.inline.y.z", "q", 16);
	is(&c, "a.b.inline.k k", "true", 16);
	is(&c, "a.b.quoted key", "-1.5e-3", 17);
	is(&c, "a.b.date", "1979-05-27T07:32:00Z", 18);
	is(&c, "a.b.a.dotted.key", "false", 19);
	is(&c, "many.0.v", "1", 21);
	is(&c, "many.0.sub.w", "2", 23);
	is(&c, "many.1.v", "3", 25);
	is_kind(&c, "a.b.list", FO_CONF_LIST);
	fo_conf_fini(&c);
	refused("[a]\nx = 1\nx = 2\n", "test:3: 'a.x' was already set in line 2");
	refused("[a]\nx = abc\n", "test:2: not valid TOML: a text must stand in quotes");
	refused("[a]\nx = \"abc\ny = 1\n", "test:2: not valid TOML: a string has no end");
	refused("[a]\nx = 1 y = 2\n", "expected the end of the line");
	refused("[a\nx = 1\ny = 2\nz = 3\n", "expected ']'");
	refused("[a]\nx = '''\nq\n", "test:2: not valid TOML: a string has no end");
	refused("[a]\nx = \"\\q\"\n", "a backslash is followed by no known letter");
	refused("[a]\nx = \"\\ud800\"\n", "\\u names no character");
}

static void test_yaml(void **state)
{
	(void)state;
	struct fo_conf c = parsed("a:\n"
				  "  b: 8\n"
				  "  'c d': \"x\"\n"
				  "  list: [1, two, {x: 3}]\n"
				  "  none: null\n"
				  "  ref: ${a.b}\n"
				  "  four: ${multiply:4, ${.b}}\n"
				  "  open: ${elsewhere.b}\n"
				  "  loop: ${.loop}\n"
				  "--num-layers: 32 # a comment\n"
				  "text: |\n"
				  "  two\n"
				  "  lines\n"
				  "alias: &n 5\n"
				  "again: *n\n",
				  FO_CONF_YAML);
	is(&c, "a.b", "8", 2);
	is(&c, "a.c d", "x", 3);
	is(&c, "a.list", "1,two", 4);
	is(&c, "a.list.2.x", "3", 4);
	is_kind(&c, "a.none", FO_CONF_NULL);
	is(&c, "a.ref", "8", 6);
	is(&c, "a.four", "32", 7);
	is_kind(&c, "a.open", FO_CONF_OPEN);
	is_kind(&c, "a.loop", FO_CONF_OPEN);
	is(&c, "num_layers", "32", 10);
	is(&c, "text", "two\nlines\n", 11);
	is_kind(&c, "again", FO_CONF_OPEN);
	fo_conf_fini(&c);
	refused("a: [1, 2\nb: 3\n", "test:2: not valid YAML");
	refused("? [a]\n: 1\nb: 2\nc: 3\n", "a key must be a word, got a list");
	refused("just words\n", "expected settings like 'key: value'");
}

static void test_json(void **state)
{
	(void)state;
	struct fo_conf c = parsed(
		"{\n \"a\": {\"b\": 1e9, \"s\": \"x\\u00e9\\n\"},\n \"l\": [1, {\"x\": null}, true]\n}", FO_CONF_JSON);
	is(&c, "a.b", "1e9", 2);
	is(&c, "a.s", "x\xc3\xa9\n", 2);
	is(&c, "l.1.x", "null", 3);
	is_kind(&c, "l.1.x", FO_CONF_NULL);
	is(&c, "l", "1,true", 3);
	fo_conf_fini(&c);
	refused("{\"a\": 1,", "test:1: not valid JSON");
	refused("{\"a\": 1, \"a\": 2}", "not valid JSON: duplicate object key");
	refused("{\"a\": 1} x", "not valid JSON");
}

static void test_arguments(void **state)
{
	(void)state;
	struct fo_conf c = parsed("--num-layers 32\n--flag\n--x=1\n--neg -1 --many a b 'c d'\n--open $HOME/x\n--last",
				  FO_CONF_ARGUMENTS);
	is(&c, "--num-layers", "32", 1);
	is_kind(&c, "--flag", FO_CONF_FLAG);
	is(&c, "--x", "1", 3);
	is(&c, "--neg", "-1", 4);
	is(&c, "--many", "a,b,c d", 4);
	is_kind(&c, "--open", FO_CONF_OPEN);
	is_kind(&c, "--last", FO_CONF_FLAG);
	fo_conf_fini(&c);
	c = parsed("#!/bin/bash\n"
		   "#SBATCH --nodes=16\n"
		   "export NCCL_ALGO=\"Ring\"\n"
		   "N=${NODES:-4}\n"
		   "A=(\n --nproc_per_node 8 # eight\n --nnodes $N\n)\n"
		   "S=\"--num-layers 96 --seq-length 2048\"\n"
		   "if true; then\n A+=(--more \"two words\")\nfi\n"
		   "CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun \"${A[@]}\" \\\n"
		   "  --master_port 1 train.py $S --batch $((2 * $N)) --rest ${1:-7} 2>&1 | tee log --not-this\n"
		   "echo --neither\n",
		   FO_CONF_ARGUMENTS);
	is(&c, "launch.--nodes", "16", 2);
	is(&c, "env.NCCL_ALGO", "Ring", 3);
	is(&c, "env.CUDA_DEVICE_MAX_CONNECTIONS", "1", 0);
	is(&c, "launch.--nproc_per_node", "8", 6);
	is(&c, "launch.--nnodes", "4", 7);
	is(&c, "launch.--more", "two words", 0);
	is(&c, "launch.script", "train.py", 0);
	is(&c, "--num-layers", "96", 0);
	is(&c, "--seq-length", "2048", 0);
	is(&c, "--batch", "8", 0);
	is(&c, "--rest", "7", 0);
	assert_null(fo_conf_find(&c, "--not-this"));
	assert_null(fo_conf_find(&c, "--neither"));
	fo_conf_fini(&c);
}

/* Of a text that is parted only the piece with an unknown variable is unknown. */
static void test_open_pieces(void **state)
{
	(void)state;
	struct fo_conf c = parsed("#!/bin/bash\n"
				  "A=\"--load $CKPT --num-layers 32 --path ${DIR}/x --hidden-size 4096 $MORE\"\n"
				  "torchrun train.py $A --seq-length 2048 --at a$X --last 1\n",
				  FO_CONF_ARGUMENTS);
	is_kind(&c, "--load", FO_CONF_OPEN);
	is(&c, "--num-layers", "32", 0);
	is_kind(&c, "--num-layers", FO_CONF_VALUE);
	is_kind(&c, "--path", FO_CONF_OPEN);
	is_kind(&c, "--seq-length", FO_CONF_VALUE);
	is_kind(&c, "--at", FO_CONF_OPEN);
	is_kind(&c, "--last", FO_CONF_VALUE);
	fo_conf_fini(&c);
	/* No command: the variables alone. */
	c = parsed("#!/bin/bash\nA=\"--load $CKPT --num-layers 32\"\n", FO_CONF_ARGUMENTS);
	is_kind(&c, "--load", FO_CONF_OPEN);
	is(&c, "--num-layers", "32", 0);
	is_kind(&c, "--num-layers", FO_CONF_VALUE);
	fo_conf_fini(&c);
}

static void test_sources(void **state)
{
	(void)state;
	struct fo_conf c = parsed("#!/bin/bash\nsource venv/bin/activate\n. /etc/profile\nsource ~/.bashrc\n"
				  "if true; then . $(dirname $0)/conf/common.sh; fi\n"
				  "torchrun train.py --num-layers 32\n",
				  FO_CONF_ARGUMENTS);
	is(&c, FO_CONF_SOURCE, "common.sh", 5);
	size_t sources = 0;
	for (size_t i = 0; i < c.entries; i++)
		sources += !strcmp(c.entry[i].path, FO_CONF_SOURCE);
	assert_int_equal(sources, 1);
	is(&c, "--num-layers", "32", 6);
	fo_conf_fini(&c);
}

static void test_templates(void **state)
{
	(void)state;
	const char *why = "test:2: a template, not a configuration: render it first";
	refused("a: 1\n{{- if .Values.more }}\nb: {{ .Values.b }}\n{{- end }}\n", why);
	refused("a: 1\n{% if more %}\nb: {{ b }} c\n{% endif %}\n", why);
	struct fo_conf c = parsed("a: {b: {c: 1}}\nd: 2\n", FO_CONF_YAML);
	is(&c, "a.b.c", "1", 1);
	fo_conf_fini(&c);
}

/* A variable that holds itself twice, forty times. */
static void test_growth(void **state)
{
	(void)state;
	struct fo_str s = { 0 };
	fo_str_puts(&s, "#!/bin/sh\nX=--a\n");
	for (int i = 0; i < 40; i++)
		fo_str_puts(&s, "X=\"$X $X\"\n");
	fo_str_puts(&s, "torchrun a.py $X\n");
	refused(s.data, "the arguments grow without end");
	fo_str_fini(&s);
}

static void test_printed(void **state)
{
	(void)state;
	struct fo_conf c = parsed("[INFO] Running with args: {'training': {'seq_len': 8192, 'x': None, 'y': True}, "
				  "'m': ['a', 'b']}\nstep: 1\n",
				  FO_CONF_PRINTED);
	is(&c, "training.seq_len", "8192", 1);
	is(&c, "training.y", "true", 1);
	is_kind(&c, "training.x", FO_CONF_NULL);
	is(&c, "m", "a,b", 1);
	fo_conf_fini(&c);
	c = parsed("JobConfig(job=Job(x='it''s'),\n  training=Training(seq_len=4_096, dtype=torch.bfloat16,\n"
		   "  kind=<Kind.fast: 1>, t=(1, 2)))\n",
		   FO_CONF_PRINTED);
	is(&c, "training.seq_len", "4096", 2);
	is(&c, "training.dtype", "torch.bfloat16", 2);
	is(&c, "training.kind", "fast", 3);
	is(&c, "training.t", "1,2", 3);
	fo_conf_fini(&c);
	c = parsed("0: ---------------- arguments ----------------\n"
		   "0:   bf16 ............................ True\n"
		   "0:   rampup .......................... ['32', '32']\n"
		   "0:   path ............................ /a b/c\n"
		   "0: ------------- end of arguments ----------\n"
		   "0:   num_layers ...................... 7\n",
		   FO_CONF_PRINTED);
	is(&c, "bf16", "true", 2);
	is(&c, "rampup", "32,32", 3);
	is(&c, "path", "/a b/c", 4);
	assert_null(fo_conf_find(&c, "num_layers"));
	fo_conf_fini(&c);
}

static void test_python(void **state)
{
	(void)state;
	static const char text[] = "import os\n"
				   "def small() -> Trainer.Config:\n"
				   "    named = registry(\"8B\", converters=[F8.Config(recipe=\"row\")])\n"
				   "    return Trainer.Config(\n"
				   "        spec=named,\n"
				   "        training=TrainingConfig(seq_len=2 * 1024, steps=1_000, on=os.x == \"1\"),\n"
				   "        parts=[A(), B(c=1)] + more,\n"
				   "    )\n"
				   "def large() -> Trainer.Config:\n"
				   "    config = small()\n"
				   "    if x:\n"
				   "        config.training.steps = 5\n"
				   "    config.training.seq_len = 4096\n"
				   "    return config\n";
	struct fo_conf c;
	refused(text, "'test' has 2 configurations: small, large");
	assert_int_equal(fo_conf_parse(text, strlen(text), "test", "small", &c), FO_OK);
	is(&c, "spec.0", "8B", 3);
	is(&c, "spec.converters.0.recipe", "row", 3);
	is_kind(&c, "training.seq_len", FO_CONF_OPEN);
	is_kind(&c, "training.on", FO_CONF_OPEN);
	is_kind(&c, "parts", FO_CONF_OPEN);
	is(&c, "training.steps", "1000", 6);
	fo_conf_fini(&c);
	assert_int_equal(fo_conf_parse(text, strlen(text), "test", "large", &c), FO_OK);
	is(&c, "training.seq_len", "4096", 13);
	is_kind(&c, "training.steps", FO_CONF_OPEN); /* a condition is not evaluated */
	fo_conf_fini(&c);
	assert_int_equal(fo_conf_parse(text, strlen(text), "test", "none", &c), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "'test' has no function 'none'; it has small, large"));
	fo_conf_fini(&c);
	/* A part that is made before, and changed behind. */
	static const char part[] =
		"def a() -> Trainer.Config:\n    part = P(x=1, y=2)\n    return Trainer.Config(p=part)\n"
		"def b() -> Trainer.Config:\n    config = a()\n    config.p.y = 3\n    return config\n";
	assert_int_equal(fo_conf_parse(part, strlen(part), "test", "b", &c), FO_OK);
	is(&c, "p.x", "1", 2);
	is(&c, "p.y", "3", 6);
	assert_null(fo_conf_find(&c, "$part.x"));
	fo_conf_fini(&c);
	/* Functions that call each other. */
	refused("def a() -> Trainer.Config:\n    config = a()\n    return config\nimport x\n",
		"functions call each other without end");
}

static void test_no_configuration(void **state)
{
	(void)state;
	refused("", "is empty");
	refused(" \n\t\n", "is empty");
	struct fo_conf c;
	assert_int_equal(fo_conf_parse("a\0b = 1", 7, "test", NULL, &c), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "is no text"));
	fo_conf_fini(&c);
	static const char *const opening[] = { "[a]\nx = [", "a: [", "{\"a\":", "JobConfig(a=f(" };
	for (size_t i = 0; i < sizeof opening / sizeof *opening; i++) {
		struct fo_str s = { 0 };
		fo_str_puts(&s, opening[i]);
		for (int k = 0; k < 20000; k++)
			fo_str_puts(&s, i == 2 ? "{\"a\":" : i == 3 ? "a=f(" : "[");
		assert_int_equal(fo_conf_parse(s.data, s.len, "test", NULL, &c), FO_EFORMAT);
		assert_true(strstr(fo_err_text(), "deep") || strstr(fo_err_text(), "depth"));
		fo_conf_fini(&c);
		fo_str_fini(&s);
	}
	assert_int_equal(fo_conf_read("/no/such/file", &c), FO_EIO);
	fo_conf_fini(&c);
}

/* Every prefix of every sample: settings or an error of one line. */
static void test_prefixes(void **state)
{
	(void)state;
	const char *root = getenv("FLATOUT_SOURCE");
	struct fo_arena a = { 0 };
	char dir[512], **path;
	size_t files;
	snprintf(dir, sizeof dir, "%s/fuzz/corpus/job", root ? root : ".");
	if (fo_fs_list(&a, dir, 1000, &path, &files) != FO_OK)
		fail_msg("%s", fo_err_text());
	assert_true(files > 20);
	for (size_t f = 0; f < files; f++) {
		char *text;
		size_t len;
		assert_int_equal(fo_fs_read(&a, path[f], 1 << 20, &text, &len), FO_OK);
		for (size_t n = 0; n <= len; n++) {
			/* Memory of exactly this size, so that a sanitizer sees a step behind it. */
			char *part = malloc(n ? n : 1);
			struct fo_conf c;
			memcpy(part, text, n);
			fo_status st = fo_conf_parse(part, n, "test", NULL, &c);
			bool named = st == FO_OK || (*fo_err_text() && !strchr(fo_err_text(), '\n'));
			if ((st != FO_OK && st != FO_EFORMAT) || !named)
				fail_msg("%s cut after %zu bytes: %d, '%s'", path[f], n, (int)st, fo_err_text());
			fo_conf_fini(&c);
			free(part);
		}
	}
	fo_arena_fini(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_toml),
		cmocka_unit_test(test_yaml),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_open_pieces),
		cmocka_unit_test(test_sources),
		cmocka_unit_test(test_templates),
		cmocka_unit_test(test_growth),
		cmocka_unit_test(test_printed),
		cmocka_unit_test(test_python),
		cmocka_unit_test(test_no_configuration),
		cmocka_unit_test(test_prefixes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
