/* flatout program --schedule: a pipeline's schedule as text, picture and JSON. */
#ifndef FO_CLI_PROGRAM_SCHEDULE_H
#define FO_CLI_PROGRAM_SCHEDULE_H

#include "cli/cli.h"

struct fo_cli_schedule {
	int kind;               /* enum fo_pp_kind; -1: no schedule is asked for */
	int64_t stages, chunks; /* chunks 0: the kind's usual number */
	const char *times;      /* "1,1,1" */
	double send;
	const char *svg; /* NULL: no picture */
};
/* FO_EARG: options of a schedule without --schedule, a shape that is not legal, times that are none. */
FO_CHECKED fo_status fo_cli_schedule(const struct fo_cli_call *call, const struct fo_cli_schedule *in,
				     int64_t micro_batches);

#endif
