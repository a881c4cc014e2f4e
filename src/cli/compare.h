/* flatout compare: what A and B are decides which comparison is made. */
#ifndef FO_CLI_COMPARE_H
#define FO_CLI_COMPARE_H

#include "diagnose/diagnose.h"

#include <stdbool.h>

/* Two traces, or files and folders of several ranks' traces (compare_traces.c); prints text or JSON. */
FO_CHECKED fo_status fo_cli_compare_traces(const char *a, const char *b, const struct fo_diagnose_options *o, bool all,
					   bool json);

#endif
