/* Options of one command, from all places. */
#include "cli/cli.h"

#include <stdio.h>

static fo_status finish(const struct fo_command *c, struct fo_opt_set *s)
{
	fo_status st = fo_opt_finish(s);
	return st == FO_OK ? FO_OK
			   : fo_hint(st, "'flatout %s --help' lists the options with their ranges and units", c->name);
}

fo_status fo_cli_options(const struct fo_command *c, struct fo_opt_set *s, void *target, int *argc, char **argv)
{
	fo_opt_init(s, c->opts, target);
	fo_opt_read_env(s);
	fo_opt_read_args(s, argc, argv);
	return finish(c, s);
}

fo_status fo_cli_options_file(const struct fo_command *c, struct fo_opt_set *s, void *target, int *argc, char **argv)
{
	fo_opt_init(s, c->opts, target);
	fo_opt_read_args(s, argc, argv);
	fo_opt_read_env(s);
	/* The file comes last only because a flag may stand in front of its name: precedence does not follow this
	 * order. */
	if (*argc > 1)
		FO_TRY(fo_opt_read_yaml(s, argv[1]));
	return finish(c, s);
}

fo_status fo_cli_no_more_args(const struct fo_command *c, int argc, char **argv, int most)
{
	if (argc <= 1 + most)
		return FO_OK;
	char shown[256];
	fo_fail(FO_EARG, "unexpected argument '%s'", fo_str_visible(shown, sizeof shown, argv[1 + most]));
	return fo_hint(FO_EARG, "usage: %s", c->usage);
}
