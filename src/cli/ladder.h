/* flatout ladder in both builds, with and without the engine: its options, and how a ladder is shown. */
#ifndef FO_CLI_LADDER_H
#define FO_CLI_LADDER_H

#include "cli/cli.h"
#include "ladder/ladder.h"

struct fo_cli_ladder {
	struct fo_run run;
	const char *rungs;
	int64_t rounds;
	bool show, plan, brief, force; /* plan: never set, ladder_plan.c has it */
	const char *json;
};
/* Reads DIR, prints, and writes both files. FO_ENUMERIC when a rung's losses left those they are compared with; FO_EIO
 * when the baseline failed, or every rung that starts from another. Files that cannot be written are an error after the
 * text was printed; only a warning where `keeps` is false. */
FO_CHECKED fo_status fo_cli_ladder_report(const char *dir, const struct fo_cli_ladder *in, bool keeps);
#ifndef FO_NO_ENGINE
/* Runs what is missing (engine/ladder.c). */
FO_CHECKED fo_status fo_cli_ladder_run(const struct fo_cli_ladder *in, struct fo_ladder_plan *p);
#endif

#endif
