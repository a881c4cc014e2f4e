/* Options of one command, from all places. */
#include "cli/cli.h"

#include "program/run.h"

#include <stdio.h>
#include <string.h>

void fo_cli_options_read(const struct fo_command *c, struct fo_opt_set *s, void *target, int *argc, char **argv)
{
	fo_opt_init(s, c->opts, target);
	fo_opt_read_args(s, argc, argv);
	/* The run's rows are the first ones of c->opts, so that their indices are the same. */
	if (c->own)
		s->rows = fo_run_options;
	fo_opt_read_env(s);
	s->rows = c->opts;
}

fo_status fo_cli_options_finish(const struct fo_command *c, struct fo_opt_set *s)
{
	fo_status st = c->own ? fo_run_check(s, s->target) : fo_opt_finish(s);
	if (st == FO_OK)
		return FO_OK;
	if (c->own && strcmp(c->name, FO_RUN_OPTIONS_COMMAND))
		return fo_hint(st,
			       "'flatout %s --help' lists its own options, 'flatout " FO_RUN_OPTIONS_COMMAND
			       " --help' those of a run with ranges and units",
			       c->name);
	return fo_hint(st, "'flatout %s --help' lists the options with their ranges and units", c->name);
}

fo_status fo_cli_options(const struct fo_command *c, struct fo_opt_set *s, void *target, int *argc, char **argv)
{
	fo_cli_options_read(c, s, target, argc, argv);
	return fo_cli_options_finish(c, s);
}

/* Does the file begin like a step program? Anything else, an unreadable file too, is left to the reader. */
static bool is_program(const char *path)
{
	static const char head[] = "flatout-program ";
	char got[sizeof head - 1];
	FILE *f = fopen(path, "re");
	bool yes = f && fread(got, 1, sizeof got, f) == sizeof got && !memcmp(got, head, sizeof got);
	if (f)
		fclose(f);
	return yes;
}

fo_status fo_cli_options_yaml(const struct fo_command *c, struct fo_opt_set *s, const char *path)
{
	if (is_program(path)) {
		char shown[256];
		fo_str_visible(shown, sizeof shown, path);
		fo_fail(FO_EARG, "'%s' is a step program, not a run file", shown);
		return fo_hint(FO_EARG, "flatout %s --program.file=%s reads it", c->name, shown);
	}
	s->rows = fo_run_options;
	fo_status st = fo_opt_read_yaml(s, path);
	s->rows = c->opts;
	return st;
}

fo_status fo_cli_options_file(const struct fo_command *c, struct fo_opt_set *s, void *target, int *argc, char **argv)
{
	fo_cli_options_read(c, s, target, argc, argv);
	/* The file comes last only because a flag may stand in front of its name: precedence does not follow this
	 * order. */
	if (*argc > 1)
		FO_TRY(fo_cli_options_yaml(c, s, argv[1]));
	return fo_cli_options_finish(c, s);
}

fo_status fo_cli_no_more_args(const struct fo_command *c, int argc, char **argv, int most)
{
	if (argc <= 1 + most)
		return FO_OK;
	char shown[256];
	fo_fail(FO_EARG, "unexpected argument '%s'", fo_str_visible(shown, sizeof shown, argv[1 + most]));
	return fo_hint(FO_EARG, "usage: %s", c->usage);
}
