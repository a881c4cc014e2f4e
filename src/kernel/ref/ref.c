/* The reference set: its table, and the choice between its two arithmetics. */
#include "kernel/ref/ref.h"

/* The type of the first operand that is not an index decides. */
static bool is_f64(const struct fo_call *c)
{
	int i = 0;
	while (c->arg[i].dtype == FO_I32 && i + 1 < c->n)
		i++;
	return c->arg[i].dtype == FO_F64;
}

static size_t ws(const struct fo_call *c)
{
#define WS(id, function) [FO_OP_##id] = { fo_ref_f32_##function, fo_ref_f64_##function },
	static fo_ref_ws_fn *const functions[FO_OP_COUNT][2] = { FO_REF_WS(WS) };
	fo_ref_ws_fn *f = functions[c->kind][is_f64(c)];
	return f ? f(c) : 0;
}

/* HOST operations are ports of the training loop: they have no kernel, and their rows stay NULL. */
#define RUN_HOST(id)
#define RUN_COMM(id) RUN_MEMORY(id)
#define RUN_TENSOR(id) RUN_MEMORY(id)
#define RUN_MEMORY(id)                                \
	static void run_##id(const struct fo_call *c) \
	{                                             \
		if (is_f64(c))                        \
			fo_ref_f64_##id(c);           \
		else                                  \
			fo_ref_f32_##id(c);           \
	}
#define FO_OP(id, ID, cls, ...) RUN_##cls(id)
#include "program/ops.def"

#define NAME_HOST(id) NULL
#define NAME_COMM(id) run_##id
#define NAME_TENSOR(id) run_##id
#define NAME_MEMORY(id) run_##id
static const struct fo_kernel table[] = {
#define FO_OP(id, ID, cls, ...) { .run = NAME_##cls(id), .ws = ws },
#include "program/ops.def"
};

static bool have(void) { return true; }

static double peak_burst(int dtype, int64_t n)
{
	return dtype == FO_F64 ? fo_ref_f64_peak_burst(n) : fo_ref_f32_peak_burst(n);
}

const struct fo_kernel_set fo_kernels_ref = { "ref", FO_ISA_REF, have, NULL, table, peak_burst };
