/* flatout init and flatout config: writing and explaining run files. */
#include "cli/cli.h"

#include "base/fs.h"
#include "program/run.h"

#include <string.h>

/* ---- init ---- */

struct init {
	struct fo_run run;
	const char *json;
	bool force;
};
static const struct fo_opt init_extra[] = { FO_OPT_JSON(struct init, json, "cli.json", "print JSON"),
					    FO_OPT_FORCE(struct init, force, "cli.force"), FO_OPT_END };

/* A first run that any machine finishes in minutes: about 7M parameters. What the user gives replaces it. */
static const struct {
	const char *key, *value;
} first_run[] = {
	{ "model.layers", "6" },        { "model.hidden", "256" },     { "model.heads", "4" },
	{ "model.kv-heads", "4" },      { "model.head-dim", "64" },    { "model.ffn", "704" },
	{ "model.vocab", "4096" },      { "data.seq", "512" },         { "train.rows", "4" },
	{ "train.micro-batches", "1" }, { "train.steps", "300" },      { "optim.lr", "2e-3" },
	{ "eval.every", "50" },         { "checkpoint.every", "100" }, { "sample.tokens", "60" },
};

static fo_status write_sample(struct fo_opt_set *s, const char *path, bool json, bool force)
{
	struct fo_str text = { 0 };
	fo_opt_sample_yaml(s, &text);
	fo_status st = force ? FO_OK : fo_output_may_replace(FO_OUTPUT_RUN_FILE, path);
	if (st == FO_OK)
		st = fo_fs_write_atomic(path, text.data, text.len);
	fo_str_fini(&text);
	if (st == FO_OK && json) {
		struct fo_str out = { 0 };
		fo_str_puts(&out, "{\"schema\":1,\"file\":");
		fo_json_string(&out, path, strlen(path));
		printf("%s}\n", out.data);
		fo_str_fini(&out);
	} else if (st == FO_OK) {
		const char *shown = fo_cli_seen(path);
		printf("wrote %s\nnext: flatout train %s --dry-run   what it would do, the memory plan\n"
		       "      flatout train %s             train; Ctrl-C saves, again goes on\n",
		       shown, shown, shown);
	}
	return st;
}

static fo_status run_init(int argc, char **argv)
{
	struct init in;
	struct fo_opt_set s;
	fo_status st;
	fo_cli_options_read(&fo_cmd_init, &s, &in, &argc, argv);
	FO_TRY_OR(st, fo_cli_no_more_args(&fo_cmd_init, argc, argv, 1), done);
	for (size_t i = 0; i < sizeof first_run / sizeof *first_run; i++)
		/* Sizes are those of the model that is named or loaded. */
		if (!fo_opt_given(&s, first_run[i].key) && !fo_opt_given(&s, "model.name") &&
		    !(fo_opt_given(&s, "model.weights") && !strncmp(first_run[i].key, "model.", 6)))
			fo_opt_set_text(&s, first_run[i].key, first_run[i].value, FO_ORIGIN_FILE, "first run");
	/* Text that every Debian has, so that the file runs as it is. */
	if (!fo_opt_given(&s, "data.path") && fo_fs_is_dir("/usr/share/common-licenses"))
		fo_opt_set_text(&s, "data.path", "/usr/share/common-licenses", FO_ORIGIN_FILE, "first run");
	if (!fo_opt_given(&s, "data.holdout"))
		fo_opt_set_text(&s, "data.holdout", "10", FO_ORIGIN_FILE, "first run");
	FO_TRY_OR(st, fo_cli_options_finish(&fo_cmd_init, &s), done);
	st = write_sample(&s, argc > 1 ? argv[1] : "run.yaml", in.json, in.force);
done:
	fo_opt_fini(&s);
	return st;
}

const struct fo_command fo_cmd_init = {
	.name = "init",
	.group = "train",
	.usage = "flatout init [FILE] [--KEY=VALUE ...] [--force] [--json]",
	.summary = "write a commented run file that runs",
	.text = "FILE is run.yaml unless named; an existing file is overwritten with --force alone. Without "
		"--model.name the file holds a model of about 7M parameters that any machine trains in minutes. Any "
		"option given here goes into the file:\n\n"
		"  flatout init --data.path=books/ --train.steps=2000\n",
	.opts = fo_run_options,
	.own = init_extra,
	.run = run_init,
};

/* ---- config ---- */

struct config {
	struct fo_run run;
	bool all, force;
	const char *json;
};
static const struct fo_opt config_extra[] = { FO_OPT_BOOL(struct config, all, "cli.all", "true",
							  "show values that are defaults too"),
					      FO_OPT_JSON(struct config, json, "cli.json", "print JSON"),
					      FO_OPT_FORCE(struct config, force, "cli.force"), FO_OPT_END };

/* "3 rows", "1 row", "64 MiB": a size carries its unit. */
static const char *value_with_unit(struct fo_opt_set *s, int i)
{
	const struct fo_opt *row = &s->rows[i];
	const char *value = fo_opt_value_text(s, i);
	size_t n = strlen(row->unit);
	if (row->type == FO_OPT_T_BYTES) {
		size_t digits = strspn(value, "0123456789");
		return fo_arena_printf(&s->arena, "%.*s %s", (int)digits, value, value + digits);
	}
	if (!n || (row->names && !strcmp(value, row->names))) /* a word has none */
		return value;
	if (!strcmp(value, "1") && n > 1 && row->unit[n - 1] == 's')
		n -= n > 4 && !strcmp(row->unit + n - 4, "ches") ? 2 : 1; /* batches */
	return fo_arena_printf(&s->arena, "%s %.*s", value, (int)n, row->unit);
}

static void print_config(struct fo_opt_set *s, bool all)
{
	struct fo_table t;
	fo_table_init(&t, "lll");
	fo_table_row(&t, "key", "value", "origin");
	for (int i = 0; i < s->count; i++) {
		if (!all && s->origin[i].from == FO_ORIGIN_DEFAULT)
			continue;
		const char *where = s->origin[i].where;
		fo_table_row(&t, s->rows[i].key, value_with_unit(s, i),
			     where && *where ? where : fo_opt_origin_name(s->origin[i].from));
	}
	fo_cli_table(&t, "", true);
	fo_table_fini(&t);
}

static fo_status run_config(int argc, char **argv)
{
	struct config in;
	struct fo_opt_set s;
	fo_status st;
	FO_TRY_OR(st, fo_cli_options_file(&fo_cmd_config, &s, &in, &argc, argv), done);
	FO_TRY_OR(st, fo_cli_no_more_args(&fo_cmd_config, argc, argv, 1), done);
	struct fo_model m;
	FO_TRY_OR(st, fo_run_model(&in.run, &m), done);
	if (in.json) {
		struct fo_str out = { 0 };
		fo_str_puts(&out, "{\"schema\":1,\"options\":");
		fo_opt_json(&s, &out);
		printf("%s}\n", out.data);
		fo_str_fini(&out);
	} else {
		print_config(&s, in.all);
	}
done:
	fo_opt_fini(&s);
	return st;
}

const struct fo_command fo_cmd_config = {
	.name = "config",
	.group = "train",
	.usage = "flatout config [run.yaml] [--KEY=VALUE ...] [--no-all] [--json]",
	.summary = "effective values of a run and where each comes from",
	.text = "Precedence: default, run file (shown as file:line), environment (the variable), flag. All mistakes "
		"are reported at once, each with the nearest key, the range and the unit.\n",
	.opts = fo_run_options,
	.own = config_extra,
	.run = run_config,
};
