/* flatout compare: what A and B are decides which comparison is made. */
#ifndef FO_CLI_COMPARE_H
#define FO_CLI_COMPARE_H

#include "cli/cli.h"

struct fo_cli_compare {
	bool all, force;
	const char *json, *html;
	const char *model, *device;
	int64_t seq, tokens_per_step;
};
/* Two traces, or files and folders of several ranks' traces (compare_traces.c); prints text or JSON. */
FO_CHECKED fo_status fo_cli_compare_traces(const struct fo_cli_call *call, const char *const path[2]);

#endif
