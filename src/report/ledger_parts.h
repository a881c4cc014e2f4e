/* A ledger's parts in words: one order and one wording for pages and comparisons. */
#ifndef FO_REPORT_LEDGER_PARTS_H
#define FO_REPORT_LEDGER_PARTS_H

#include "diagnose/diagnose.h"

/* What a picture shows. Exclusive: they sum to the span. */
enum fo_ledger_part {
	FO_LEDGER_GEMM,
	FO_LEDGER_ATTENTION,
	FO_LEDGER_CONV,
	FO_LEDGER_NORM,
	FO_LEDGER_ELEMENTWISE, /* with reductions */
	FO_LEDGER_CAST,        /* with kernels that copy */
	FO_LEDGER_FUSED,
	FO_LEDGER_LOSS, /* with softmax */
	FO_LEDGER_MOE,
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
extern const unsigned char
	fo_ledger_part_tone[FO_LEDGER_PARTS]; /* its colour in every picture (draw/draw.h); no two share one */
/* Colours of the host's lanes beside them: operators, annotations, waits, data loading, launches. */
enum { FO_LEDGER_TONE_OP = 22, FO_LEDGER_TONE_NOTE, FO_LEDGER_TONE_SYNC, FO_LEDGER_TONE_DATA, FO_LEDGER_TONE_LAUNCH };

void fo_ledger_parts(const struct fo_ledger *l, int64_t part[FO_LEDGER_PARTS]);
/* Of a kernel's class; copies and communication included (FO_LEDGER_TRANSFER). */
enum fo_ledger_part fo_ledger_part_of(enum fo_kernel_class k);

#endif
