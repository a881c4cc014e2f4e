/* The AMX set: products of bf16, and what is made of products. Everything else falls to the sets below. */
#define FO_LANES 16
#include "kernel/x86/amx_matmul.inc"
#include "kernel/x86/x86.h"

static bool have(void) { return fo_isa_have(FO_ISA_AMX); }

static const struct fo_kernel table[FO_OP_COUNT] = {
	[FO_OP_matmul] = { .run = amx_matmul, .can = amx_matmul_can, .ws = amx_matmul_ws },
	[FO_OP_attention_eager] = { .run = fo_attention_eager_amx,
				    .can = fo_attention_eager_can_amx,
				    .ws = fo_attention_eager_ws_amx },
	[FO_OP_attention_eager_bwd] = { .run = fo_attention_eager_bwd_amx,
					.can = fo_attention_eager_can_amx,
					.ws = fo_attention_eager_ws_amx },
};

/* Products of other types do not run on this unit. */
static double peak_burst(int dtype, int64_t n) { return dtype == FO_BF16 ? amx_peak_burst(n) : 0; }

const struct fo_kernel_set fo_kernels_amx = { "amx", FO_ISA_AMX, have, NULL, table, peak_burst };
