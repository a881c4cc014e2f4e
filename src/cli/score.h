/* flatout score: what its halves share. */
#ifndef FO_CLI_SCORE_H
#define FO_CLI_SCORE_H

#include "score/score.h"

/* Predicts the runs of a table of this machine (layout "machine") and sums up. profile: of all rows; "": each row's
 * own, relative to the table. A row that cannot be predicted says why and is left out. */
FO_CHECKED fo_status fo_cli_score_machine(struct fo_score_table *t, const char *table, const char *profile,
					  struct fo_score *out);

#endif
