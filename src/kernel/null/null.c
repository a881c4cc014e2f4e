/* The null set: every operation returns at once and writes nothing. */
#include "kernel/kernel.h"

static void run(const struct fo_call *c) { (void)c; }

static bool have(void) { return true; }

#define RUN_TENSOR         \
	{                  \
		.run = run \
	}
#define RUN_MEMORY         \
	{                  \
		.run = run \
	}
#define RUN_COMM           \
	{                  \
		.run = run \
	}
#define RUN_HOST            \
	{                   \
		.run = NULL \
	}
static const struct fo_kernel table[FO_OP_COUNT] = {
#define FO_OP(id, ID, cls, ...) [FO_OP_##id] = RUN_##cls,
#include "program/ops.def"
};

const struct fo_kernel_set fo_kernels_null = { "null", FO_ISA_REF, have, NULL, table, NULL };
