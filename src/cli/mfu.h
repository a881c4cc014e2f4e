/* flatout mfu: its options, and the part that reads logs. */
#ifndef FO_CLI_MFU_H
#define FO_CLI_MFU_H

#include "cli/cli.h"

struct fo_cli_mfu {
	const char *model, *device, *dtype, *share, *devices_file;
	int64_t seq, devices, batch;
	double params, total, per_device, step_seconds, tokens_per_step, rent, tokens;
	const char *json, *html, *csv;
	bool mtp, force;
};

/* Reads the positional arguments as logs of one run; exit code 1 where no MFU is known. */
FO_CHECKED fo_status fo_cli_mfu_log(const struct fo_cli_call *call);

#endif
