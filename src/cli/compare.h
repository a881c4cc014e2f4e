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
FO_CHECKED fo_status fo_cli_compare_traces(const char *const path[2], const struct fo_cli_compare *in);
/* Prints the document unless JSON was asked for, and writes the page of --html. */
FO_CHECKED static inline fo_status fo_cli_compare_show(const struct fo_doc *d, const struct fo_cli_compare *in)
{
	if (!in->json && !(in->html && *in->html == '-' && !in->html[1]))
		fo_cli_print(d);
	return in->html ? fo_cli_page(d, in->html) : FO_OK;
}

#endif
