/* flatout diagnose: what the command prints, in parts, each with an empty line in front. 80 columns; what comes from
 * files is made visible. */
#ifndef FO_CLI_DIAGNOSE_H
#define FO_CLI_DIAGNOSE_H

#include "diagnose/diagnose.h"

#include <stdio.h>

/* The bottleneck, its worth, the runner-up; MFU beside utilisation. No empty line in front: it stands first. */
void fo_cli_diagnose_answer(FILE *f, const struct fo_diagnosis *d);
/* Prints which traces were read and which are missing, cut or left out; nothing for one whole trace. */
void fo_cli_diagnose_found(FILE *f, const struct fo_diagnosis *d);
/* Every rank and device in a line where there are several; of the slowest rank the ledger of each device, what is
 * doubtful about its trace, and the host's step. */
void fo_cli_diagnose_ledger(FILE *f, const struct fo_diagnosis *d);
/* From 100 % down to MFU; nothing where that is not known (the answer says why). */
void fo_cli_diagnose_bridge(FILE *f, const struct fo_diagnosis *d);
/* Each with its evidence, settings and gain; of what has to be known of the trace a line each, behind them but where it
 * makes figures doubtful. brief: titles and what they are worth. */
void fo_cli_diagnose_findings(FILE *f, const struct fo_diagnosis *d, bool brief);
/* The names of kernels and copies that took most time; nothing without GPU work. */
void fo_cli_diagnose_kernels(FILE *f, const struct fo_diagnosis *d);
/* Products by shape, most time first; nothing where no shapes are known. */
void fo_cli_diagnose_products(FILE *f, const struct fo_diagnosis *d);
/* What the traces cannot tell, and the flag that would; nothing where there is none. */
void fo_cli_diagnose_unknowns(FILE *f, const struct fo_diagnosis *d);
/* Waiting per rank and who causes it, skew, pipeline; nothing for a single rank without any of these. */
void fo_cli_diagnose_ranks(FILE *f, const struct fo_diagnosis *d);

/* A log of a pipeline schedule (fo_schedule_is) instead of traces: text on standard output, JSON to `json` (a path;
 * "-": instead of the text; NULL: none). *serious: exit code 1. */
FO_CHECKED fo_status fo_cli_diagnose_schedule(const char *path, const char *json, bool *serious);

#endif
