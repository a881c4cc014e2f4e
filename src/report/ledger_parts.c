#include "report/ledger_parts.h"

#include <string.h>

#define NAME(id, name, tone) name,
const char *const fo_ledger_part_name[FO_LEDGER_PARTS] = { FO_LEDGER_PART_LIST(NAME) };
#define TONE(id, name, tone) tone,
const unsigned char fo_ledger_part_tone[FO_LEDGER_PARTS] = { FO_LEDGER_PART_LIST(TONE) };

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
	part[FO_LEDGER_WAIT] = l->exposed_wait_ns - l->exposed_bubble_ns;
	part[FO_LEDGER_BUBBLE] = l->exposed_bubble_ns;
	part[FO_LEDGER_TRANSFER] = l->exposed_transfer_ns;
	part[FO_LEDGER_COMM_UNKNOWN] = l->exposed_comm_unknown_ns;
	part[FO_LEDGER_COPIES] = l->exposed_mem_ns;
	for (int c = 0; c < FO_IDLE_COUNT; c++)
		part[idle_part[c]] += l->idle_ns[c];
}
