/* Which part of the ledger a finding may speak of: its loss is never more. */
#ifndef FO_TESTS_FINDING_ROWS_H
#define FO_TESTS_FINDING_ROWS_H

#include "diagnose/diagnose.h"

/* Fails the test for a finding that it does not know. *alone: no other finding speaks of the same time. */
int64_t finding_rows(const char *id, const struct fo_ledger *l, bool *alone);

#endif
