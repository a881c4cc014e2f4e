/* What `flatout diagnose` makes of a folder: figures of each rank's ledger. */
#ifndef FO_TESTS_SUPPORT_LEDGERS_H
#define FO_TESTS_SUPPORT_LEDGERS_H

#include <stdint.h>

struct ledger_of_rank {
	int64_t compute_ns, exposed_ns, wait_ns, transfer_ns, bubble_ns;
};
/* Fails the test unless there are so many ranks with one device each. */
void ledgers_of(const char *dir, struct ledger_of_rank *rank, int ranks);

#endif
