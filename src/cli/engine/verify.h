/* The self-check as other commands use it. */
#ifndef FO_CLI_ENGINE_VERIFY_H
#define FO_CLI_ENGINE_VERIFY_H

#include "audit/engine/verify.h"

#include <stdio.h>

/* Runs the self-check and prints one line on f. FO_ENUMERIC when a check failed. threads 0: all this process may use;
 * device: as train.device. */
FO_CHECKED fo_status fo_cli_verify_at_start(bool brief, int threads, const char *device, FILE *f);

#endif
