/* A ledger's parts in words: one order and one wording for pages and comparisons. */
#ifndef FO_REPORT_LEDGER_PARTS_H
#define FO_REPORT_LEDGER_PARTS_H

#include "diagnose/diagnose.h"

/* The parts of a picture in its order: part, name, colour (draw/draw.h; no two share one). The parts are exclusive:
 * they sum to the span. Each family has hues of its own: computation blue and green, communication orange and red,
 * copies brown, idleness violet, rose and grey, the host's own lanes sand.
 *
 * ELEMENTWISE holds reductions too, CAST kernels that copy, LOSS softmax, OTHER kernels of all other classes,
 * IDLE_LAUNCH the time from a launch on and the gaps between kernels that were launched in time. */
#define FO_LEDGER_PART_LIST(X)                                   \
	X(GEMM, "matmuls", 0)                                    \
	X(ATTENTION, "attention", 12)                            \
	X(CONV, "convolutions", 2)                               \
	X(NORM, "norms", 15)                                     \
	X(ELEMENTWISE, "elementwise, reductions", 10)            \
	X(CAST, "casts, copying kernels", 18)                    \
	X(FUSED, "compiled, fused kernels", 4)                   \
	X(LOSS, "loss, softmax", 19)                             \
	X(MOE, "routing of experts", 27)                         \
	X(OTHER, "other kernels", 16)                            \
	X(OPTIMIZER, "optimizer", 28)                            \
	X(WAIT, "communication: waiting for a late rank", 14)    \
	X(BUBBLE, "communication: the pipeline's bubble", 5)     \
	X(TRANSFER, "communication: transfer", 6)                \
	X(COMM_UNKNOWN, "communication: waiting or transfer", 1) \
	X(COPIES, "copies and fills", 11)                        \
	X(IDLE_DATA, "idle: data loading", 9)                    \
	X(IDLE_SYNC, "idle: host waits or allocates", 3)         \
	X(IDLE_BUSY, "idle: host busy launching", 17)            \
	X(IDLE_HOST, "idle: host, not in the trace", 20)         \
	X(IDLE_LAUNCH, "idle: launches, loading, gaps", 8)       \
	X(IDLE_DEPENDENCY, "idle: another stream or event", 7)   \
	X(IDLE_UNKNOWN, "idle: the trace cannot tell", 21)
#define FO_LEDGER_PART_ID(id, name, tone) FO_LEDGER_##id,
enum fo_ledger_part { FO_LEDGER_PART_LIST(FO_LEDGER_PART_ID) FO_LEDGER_PARTS };
#undef FO_LEDGER_PART_ID
extern const char *const fo_ledger_part_name[FO_LEDGER_PARTS];
extern const unsigned char fo_ledger_part_tone[FO_LEDGER_PARTS];
/* Colours of the host's lanes beside them: operators, annotations, waits, data loading, launches. */
enum { FO_LEDGER_TONE_OP = 22, FO_LEDGER_TONE_NOTE, FO_LEDGER_TONE_SYNC, FO_LEDGER_TONE_DATA, FO_LEDGER_TONE_LAUNCH };

void fo_ledger_parts(const struct fo_ledger *l, int64_t part[FO_LEDGER_PARTS]);
/* Returns the part that kernels of a class belong to; communication is FO_LEDGER_TRANSFER. */
enum fo_ledger_part fo_ledger_part_of(enum fo_kernel_class k);

#endif
