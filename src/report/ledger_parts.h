/* A ledger's parts in words: one order and one wording for pages and comparisons. */
#ifndef FO_REPORT_LEDGER_PARTS_H
#define FO_REPORT_LEDGER_PARTS_H

#include "diagnose/diagnose.h"

/* What a picture shows. Exclusive: they sum to the span. */
enum fo_ledger_part {
	FO_LEDGER_GEMM,
	FO_LEDGER_ATTENTION,
	FO_LEDGER_CONV,
	FO_LEDGER_OTHER, /* kernels of all other classes */
	FO_LEDGER_OPTIMIZER,
	FO_LEDGER_WAIT,
	FO_LEDGER_TRANSFER,
	FO_LEDGER_COMM_UNKNOWN,
	FO_LEDGER_COPIES,
	FO_LEDGER_IDLE_DATA,
	FO_LEDGER_IDLE_SYNC,
	FO_LEDGER_IDLE_BUSY,
	FO_LEDGER_IDLE_HOST,
	FO_LEDGER_IDLE_LAUNCH, /* from the launch on, and the gaps between kernels that were launched in time */
	FO_LEDGER_IDLE_DEPENDENCY,
	FO_LEDGER_IDLE_UNKNOWN,
	FO_LEDGER_PARTS
};
extern const char *const fo_ledger_part_name[FO_LEDGER_PARTS]; /* "matrix products", "idle: data loading", ... */

void fo_ledger_parts(const struct fo_ledger *l, int64_t part[FO_LEDGER_PARTS]);
/* Of a kernel's class; copies and communication included (FO_LEDGER_TRANSFER). */
enum fo_ledger_part fo_ledger_part_of(enum fo_kernel_class k);

/* The device of a rank that works most in its median step; NULL without any. */
const struct fo_device_ledger *fo_ledger_busiest(const struct fo_rank_ledger *r);

#endif
