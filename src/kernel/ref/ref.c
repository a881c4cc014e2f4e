/* The reference set: its table, and the choice between its two arithmetics. */
#include "kernel/ref/ref.h"

/* ---- operations made of others: the same in both arithmetics, since the types of the tensors of each part decide, not
 * that of hyper ---- */

static void each(const struct fo_call *c)
{
	for (int k = 0; k < fo_op_tensors(c->kind, c->n); k++) {
		const struct fo_call one = fo_call_one(c, k);
		fo_kernels_ref.kernel[one.kind].run(&one);
	}
}

static size_t sumsq_many_ws(const struct fo_call *c)
{
	size_t most = 0;
	for (int k = 0; k < fo_op_tensors(c->kind, c->n); k++) {
		const struct fo_call one = fo_call_one(c, k);
		size_t ws = fo_kernels_ref.kernel[one.kind].ws(&one);
		most = ws > most ? ws : most;
	}
	return most;
}

/* Casts by the scale of the step take all their kernels from this set. */
static const struct fo_kernel_set *const own[] = { &fo_kernels_ref };

static void fp8_step(const struct fo_call *c) { fo_kernel_fp8_step(c, own, FO_ISA_REF); }
static size_t fp8_step_ws(const struct fo_call *c) { return fo_kernel_fp8_step_ws(c, own, FO_ISA_REF); }

/* The names that the table below expects of both arithmetics. */
#define RUN(id, function)                                              \
	void fo_ref_f32_##id(const struct fo_call *c) { function(c); } \
	void fo_ref_f64_##id(const struct fo_call *c) { function(c); }
#define WS(function)                                                                  \
	size_t fo_ref_f32_##function(const struct fo_call *c) { return function(c); } \
	size_t fo_ref_f64_##function(const struct fo_call *c) { return function(c); }
RUN(sumsq_many, each)
RUN(adamw_many, each)
RUN(adamw_master_many, each)
RUN(fp8_begin_many, each)
RUN(fp8_cast_step, fp8_step)
RUN(rmsnorm_fp8, fp8_step)
RUN(add_rmsnorm_fp8, fp8_step)
RUN(swiglu_fp8, fp8_step)
RUN(swiglu_bwd_fp8, fp8_step)
WS(sumsq_many_ws)
WS(fp8_step_ws)
#undef RUN
#undef WS

/* ---- the table ---- */

/* The type of the first operand decides that is no index and not in fp8, which both arithmetics take. */
static bool is_f64(const struct fo_call *c)
{
	int i = 0;
	while ((c->arg[i].dtype == FO_I32 || fo_dtype_fp8(c->arg[i].dtype)) && i + 1 < c->n)
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

/* HOST operations are ports of the training loop, COMM those of a transport: they have no kernel, and their rows stay
 * NULL. */
#define RUN_HOST(id)
#define RUN_COMM(id)
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
#define NAME_COMM(id) NULL
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
