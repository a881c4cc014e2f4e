#include "support/finding_rows.h"

#include "diagnose/findings_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define BIT(class) ((uint64_t)1 << (class))

static int64_t idle(const struct fo_ledger *l, unsigned causes)
{
	int64_t ns = 0;
	for (int i = 0; i < FO_IDLE_COUNT; i++)
		ns += causes >> i & 1 ? l->idle_ns[i] : 0;
	return ns;
}

int64_t finding_rows(const char *id, const struct fo_ledger *l, bool *alone)
{
	const uint64_t products = BIT(FO_K_GEMM) | BIT(FO_K_GEMM_FP8) | BIT(FO_K_CONV);
	const struct {
		const char *id;
		bool alone;
		int64_t ns;
	} known[] = {
		{ "data-loading", true, idle(l, 1u << FO_IDLE_HOST_DATA) },
		{ "host-launch", true,
		  idle(l, 1u << FO_IDLE_HOST_LAUNCH_BOUND | 1u << FO_IDLE_LAUNCH_LATENCY | 1u << FO_IDLE_HOST_OTHER) },
		{ "host-work", true,
		  idle(l, 1u << FO_IDLE_HOST_LAUNCH_BOUND | 1u << FO_IDLE_LAUNCH_LATENCY | 1u << FO_IDLE_HOST_OTHER) },
		{ "code-loading", true, idle(l, 1u << FO_IDLE_LONG_CALL) },
		{ "host-sync", true, idle(l, 1u << FO_IDLE_HOST_SYNC) },
		{ "host-other", true, idle(l, 1u << FO_IDLE_HOST_OTHER) },
		{ "garbage-collection", true,
		  idle(l, 1u << FO_IDLE_HOST_OTHER | 1u << FO_IDLE_HOST_SYNC | 1u << FO_IDLE_HOST_LAUNCH_BOUND) },
		{ "checkpoint", true,
		  idle(l, 1u << FO_IDLE_HOST_OTHER | 1u << FO_IDLE_HOST_SYNC | 1u << FO_IDLE_HOST_LAUNCH_BOUND) },
		{ "allocator", true, idle(l, 1u << FO_IDLE_HOST_SYNC) },
		{ "kernel-gaps", true, idle(l, 1u << FO_IDLE_KERNEL_GAP) },
		{ "dependency", true, idle(l, 1u << FO_IDLE_DEPENDENCY) },
		{ "idle-unknown", true, idle(l, 1u << FO_IDLE_UNKNOWN) },
		{ "comm-wait", false, l->span_ns }, /* the other ranks' time */
		{ "comm-transfer", true, l->exposed_transfer_ns },
		{ "comm-unknown", true, l->exposed_comm_unknown_ns },
		{ "comm-small", true, l->exposed_comm_ns },
		{ "copies", true, l->exposed_mem_ns },
		{ "memory-bound", true, fo_class_time(l, FO_MOVING_CLASSES) },
		{ "attention-eager", true, fo_class_time(l, FO_MOVING_CLASSES | products) },
		{ "optimizer-unfused", true, fo_class_time(l, BIT(FO_K_OPTIMIZER)) + l->idle_total_ns },
		{ "precision", true, fo_class_time(l, products) },
		{ "gemm-efficiency", true, fo_class_time(l, products) },
		{ "shape-padding", true, fo_class_time(l, products) },
		{ "split-k", true, fo_class_time(l, products) },
		{ "attention-padding", true,
		  fo_class_time(l, BIT(FO_K_ATTENTION_FORWARD) | BIT(FO_K_ATTENTION_BACKWARD)) },
		{ "product-layout", true, fo_class_time(l, BIT(FO_K_LAYOUT)) },
		{ "expert-gather", true, fo_class_time(l, BIT(FO_K_MOE)) },
		{ "expert-loop", false, 0 },
		{ "elementwise-rate", false, 0 },
		{ "conv-layout", true, fo_class_time(l, BIT(FO_K_LAYOUT)) },
		{ "attention-efficiency", true,
		  fo_class_time(l, BIT(FO_K_ATTENTION_FORWARD) | BIT(FO_K_ATTENTION_BACKWARD)) },
		{ "attention-unknown", false, 0 },
		{ "product-ceiling", false, 0 },
		{ "compute-bound", false, 0 },
		{ "comm-backend", false, 0 },
		{ "data-parallel", false, 0 },
		{ "contention", false, fo_class_time(l, products) },    /* part of what gemm-efficiency speaks of */
		{ "unequal-calls", false, fo_class_time(l, products) }, /* as well */
		{ "recompute", false, l->recompute_ns },                /* its kernels are in their classes too */
		{ "pipeline", false, l->span_ns },
	};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strcmp(id, known[i].id) == 0) {
			*alone = known[i].alone;
			return known[i].ns;
		}
	fail_msg("no rows are known of '%s': add it here and to docs/diagnosis-rules.md", id);
	return 0;
}
