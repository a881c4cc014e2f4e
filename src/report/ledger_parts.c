#include "report/ledger_parts.h"

#include <string.h>

const char *const fo_ledger_part_name[FO_LEDGER_PARTS] = {
	[FO_LEDGER_GEMM] = "matrix products",
	[FO_LEDGER_ATTENTION] = "attention",
	[FO_LEDGER_CONV] = "convolutions",
	[FO_LEDGER_NORM] = "norms",
	[FO_LEDGER_ELEMENTWISE] = "elementwise, reductions",
	[FO_LEDGER_CAST] = "casts, copying kernels",
	[FO_LEDGER_FUSED] = "compiled, fused kernels",
	[FO_LEDGER_LOSS] = "loss, softmax",
	[FO_LEDGER_MOE] = "routing of experts",
	[FO_LEDGER_OTHER] = "other kernels",
	[FO_LEDGER_OPTIMIZER] = "optimizer",
	[FO_LEDGER_WAIT] = "communication: waiting for a late rank",
	[FO_LEDGER_TRANSFER] = "communication: transfer",
	[FO_LEDGER_COMM_UNKNOWN] = "communication: waiting or transfer",
	[FO_LEDGER_COPIES] = "copies and fills",
	[FO_LEDGER_IDLE_DATA] = "idle: data loading",
	[FO_LEDGER_IDLE_SYNC] = "idle: host waits or allocates",
	[FO_LEDGER_IDLE_BUSY] = "idle: host busy launching",
	[FO_LEDGER_IDLE_HOST] = "idle: host, not in the trace",
	[FO_LEDGER_IDLE_LAUNCH] = "idle: launches, loading, gaps",
	[FO_LEDGER_IDLE_DEPENDENCY] = "idle: another stream or event",
	[FO_LEDGER_IDLE_UNKNOWN] = "idle: the trace cannot tell",
};

/* Families: computation blue, green and yellow, communication orange and red, copies brown, idleness violet, rose and
 * grey, the host's own lanes sand. */
const unsigned char fo_ledger_part_tone[FO_LEDGER_PARTS] = {
	[FO_LEDGER_GEMM] = 0,          [FO_LEDGER_ATTENTION] = 12,   [FO_LEDGER_CONV] = 2,
	[FO_LEDGER_NORM] = 15,         [FO_LEDGER_ELEMENTWISE] = 10, [FO_LEDGER_CAST] = 18,
	[FO_LEDGER_FUSED] = 4,         [FO_LEDGER_LOSS] = 19,        [FO_LEDGER_MOE] = 27,
	[FO_LEDGER_OTHER] = 16,        [FO_LEDGER_OPTIMIZER] = 5,    [FO_LEDGER_WAIT] = 14,
	[FO_LEDGER_TRANSFER] = 6,      [FO_LEDGER_COMM_UNKNOWN] = 1, [FO_LEDGER_COPIES] = 11,
	[FO_LEDGER_IDLE_DATA] = 9,     [FO_LEDGER_IDLE_SYNC] = 3,    [FO_LEDGER_IDLE_BUSY] = 17,
	[FO_LEDGER_IDLE_HOST] = 20,    [FO_LEDGER_IDLE_LAUNCH] = 8,  [FO_LEDGER_IDLE_DEPENDENCY] = 7,
	[FO_LEDGER_IDLE_UNKNOWN] = 21,
};

static const enum fo_ledger_part idle_part[FO_IDLE_COUNT] = {
	[FO_IDLE_HOST_DATA] = FO_LEDGER_IDLE_DATA,         [FO_IDLE_HOST_SYNC] = FO_LEDGER_IDLE_SYNC,
	[FO_IDLE_HOST_LAUNCH_BOUND] = FO_LEDGER_IDLE_BUSY, [FO_IDLE_HOST_OTHER] = FO_LEDGER_IDLE_HOST,
	[FO_IDLE_LAUNCH_LATENCY] = FO_LEDGER_IDLE_LAUNCH,  [FO_IDLE_KERNEL_GAP] = FO_LEDGER_IDLE_LAUNCH,
	[FO_IDLE_LONG_CALL] = FO_LEDGER_IDLE_LAUNCH,       [FO_IDLE_DEPENDENCY] = FO_LEDGER_IDLE_DEPENDENCY,
	[FO_IDLE_UNKNOWN] = FO_LEDGER_IDLE_UNKNOWN,
};

enum fo_ledger_part fo_ledger_part_of(enum fo_kernel_class k)
{
	switch (k) {
	case FO_K_GEMM:
	case FO_K_GEMM_FP8: return FO_LEDGER_GEMM;
	case FO_K_ATTENTION_FORWARD:
	case FO_K_ATTENTION_BACKWARD: return FO_LEDGER_ATTENTION;
	case FO_K_CONV: return FO_LEDGER_CONV;
	case FO_K_NORM: return FO_LEDGER_NORM;
	case FO_K_ELEMENTWISE:
	case FO_K_REDUCE: return FO_LEDGER_ELEMENTWISE;
	case FO_K_CAST:
	case FO_K_LAYOUT:
	case FO_K_COPY: return FO_LEDGER_CAST;
	case FO_K_FUSED: return FO_LEDGER_FUSED;
	case FO_K_LOSS:
	case FO_K_SOFTMAX: return FO_LEDGER_LOSS;
	case FO_K_MOE: return FO_LEDGER_MOE;
	case FO_K_OPTIMIZER: return FO_LEDGER_OPTIMIZER;
	case FO_K_COMMUNICATION: return FO_LEDGER_TRANSFER;
	case FO_K_MEMORY: return FO_LEDGER_COPIES;
	default: return FO_LEDGER_OTHER;
	}
}

void fo_ledger_parts(const struct fo_ledger *l, int64_t part[FO_LEDGER_PARTS])
{
	memset(part, 0, FO_LEDGER_PARTS * sizeof *part);
	for (int k = 0; k < FO_K_COMPUTE_COUNT; k++)
		part[fo_ledger_part_of((enum fo_kernel_class)k)] += l->class_ns[k];
	part[FO_LEDGER_WAIT] = l->exposed_wait_ns;
	part[FO_LEDGER_TRANSFER] = l->exposed_transfer_ns;
	part[FO_LEDGER_COMM_UNKNOWN] = l->exposed_comm_unknown_ns;
	part[FO_LEDGER_COPIES] = l->exposed_mem_ns;
	for (int c = 0; c < FO_IDLE_COUNT; c++)
		part[idle_part[c]] += l->idle_ns[c];
}
