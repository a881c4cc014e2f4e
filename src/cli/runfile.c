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
static const struct fo_opt init_extra[] = { FO_CLI_OUTPUT_ROWS(struct init, "cli", "print JSON") };

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

/* Gives what the user left open the values of a first run. */
static fo_status first_values(struct fo_opt_set *s, int argc, char **argv)
{
	(void)argc, (void)argv;
	for (size_t i = 0; i < sizeof first_run / sizeof *first_run; i++)
		/* Sizes are those of the model that is named or loaded. */
		if (!fo_opt_given(s, first_run[i].key) && !fo_opt_given(s, "model.name") &&
		    !(fo_opt_given(s, "model.weights") && !strncmp(first_run[i].key, "model.", 6)))
			fo_opt_set_text(s, first_run[i].key, first_run[i].value, FO_ORIGIN_FILE, "first run");
	/* Text that every Debian has, so that the file runs as it is. */
	if (!fo_opt_given(s, "data.path") && fo_fs_is_dir("/usr/share/common-licenses"))
		fo_opt_set_text(s, "data.path", "/usr/share/common-licenses", FO_ORIGIN_FILE, "first run");
	if (!fo_opt_given(s, "data.holdout"))
		fo_opt_set_text(s, "data.holdout", "10", FO_ORIGIN_FILE, "first run");
	return FO_OK;
}

static fo_status run_init(const struct fo_cli_call *call)
{
	const struct init *in = call->in;
	const char *path = call->argc > 1 ? call->argv[1] : "run.yaml", *shown = fo_cli_seen(path);
	FO_TRY(in->force ? FO_OK : fo_output_may_replace(FO_OUTPUT_RUN_FILE, path));
	struct fo_str text = { 0 };
	fo_opt_sample_yaml(call->options, &text);
	fo_status st = fo_fs_write_atomic(path, text.data, text.len);
	fo_str_fini(&text);
	if (st == FO_OK && call->json)
		fo_json_text(call->json, "file", path);
	else if (st == FO_OK)
		printf("wrote %s\nnext: flatout train %s --dry-run   what it would do, the memory plan\n"
		       "      flatout train %s             train; Ctrl-C saves, again goes on\n",
		       shown, shown, shown);
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
	.prepare = first_values,
	.act = run_init,
	.size = sizeof(struct init),
	.most = 1,
};

/* ---- config ---- */

struct config {
	struct fo_run run;
	bool all, force;
	const char *json;
};
static const struct fo_opt config_extra[] = { FO_OPT_BOOL(struct config, all, "cli.all", "true",
							  "show values that are defaults too"),
					      FO_CLI_OUTPUT_ROWS(struct config, "cli", "print JSON") };

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

static fo_status run_config(const struct fo_cli_call *call)
{
	struct fo_opt_set *s = call->options;
	const struct config *in = call->in;
	struct fo_doc *d = call->doc;
	struct fo_model m;
	FO_TRY(fo_run_model(&in->run, &m));
	if (call->json) {
		struct fo_str options = { 0 };
		fo_opt_json(s, &options);
		options.data[options.len - 1] = 0; /* its line feed */
		fo_json_raw(call->json, "options", options.data);
		fo_str_fini(&options);
		return FO_OK;
	}
	fo_doc_table(d, FO_DRAW_FULL, NULL, "lll", "key", "value", "origin");
	for (int i = 0; i < s->count; i++) {
		const char *where = s->origin[i].where;
		if (in->all || s->origin[i].from != FO_ORIGIN_DEFAULT)
			fo_doc_row(d, s->rows[i].key, value_with_unit(s, i),
				   where && *where ? where : fo_opt_origin_name(s->origin[i].from));
	}
	return FO_OK;
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
	.act = run_config,
	.size = sizeof(struct config),
	.most = 1,
};
