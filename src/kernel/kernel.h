/* Kernels: what runs an operation on this machine.
 *
 * A kernel set is a table of function pointers by operation. The reference set (`ref`) is complete and plain; faster
 * sets override it where they can and where can() agrees with the shapes, so there is always a kernel. The `null` set
 * returns at once: loops, schedules and timelines of a 405B model run on a laptop.
 *
 * Contract of a kernel:
 * - Operands are row-major rectangles (data, rows, cols, ld in elements), numbered by the enums of ops.def: the weight
 *   of adamw is c->arg[FO_ADAMW_W].
 * - It writes exactly its outputs, allocates nothing, prints nothing, returns nothing: shapes were checked before.
 * - Where bit i of call->first is set, operand i is stored, else added to: set for DEF and PART, and for an ACC whose
 *   rectangle has not been written yet (fo_unroll decides).
 * - It uses at most call->threads threads (OpenMP) and call->ws (64-byte aligned, call->ws_bytes >= what ws() asked
 *   for).
 * - The same inputs, threads and set give the same bits: which thread computes a number may change from call to call,
 *   the order in which its terms are added may not.
 * - bf16 is stored rounded to nearest even; sums are carried in fp32 at least (fp64 operands: fp64).
 * - In-place pairs of ops.def: an output may be the very same rectangle as its input. */
#ifndef FO_KERNEL_KERNEL_H
#define FO_KERNEL_KERNEL_H

#include "base/err.h"
#include "base/fp8.h"
#include "program/program.h"

struct fo_tensor {
	void *data;
	int64_t rows, cols, ld;
	uint8_t dtype;
	/* An element's identity (round.h): 1 + the layer of the buffer's instance, 0 where the
	 * buffer has none; and how many elements of the buffer come before the first one. */
	int32_t layer;
	int64_t first;
};

struct fo_call {
	uint8_t kind, n; /* operation, operands present */
	struct fo_attr attr;
	uint32_t first; /* see the contract */
	struct fo_tensor arg[FO_MAX_OPERANDS];
	int threads;
	void *ws;
	size_t ws_bytes;
	/* Counts multiply-accumulates (attention: of visible pairs only), in `ref` alone, for tests of the
	 * accounting. */
	double *mac;
};

/* Whether the call has operand i, which ops.def lets be absent. */
static inline bool fo_call_has(const struct fo_call *c, int i) { return c->n > i; }
/* Whether operand i is stored; else it is added to. */
static inline bool fo_call_stores(const struct fo_call *c, int i) { return c->first >> i & 1; }
/* Place of a word in a table of n rows, or in n columns, that begin with word attr.element; -1: it is none of them. */
static inline int64_t fo_call_word(const struct fo_call *c, int32_t word, int64_t n)
{
	int64_t at = word - c->attr.element;
	return word >= 0 && at >= 0 && at < n ? at : -1;
}

/* A matmul c = op(a) op(b), stored or added to c; threads and workspace are still to be set. */
struct fo_call fo_call_matmul(struct fo_tensor a, bool ta, struct fo_tensor b, bool tb, struct fo_tensor c, bool store);
/* The base operation's call for tensor k of an operation on many (ops.def), or c itself. A common ACC operand is
 * stored, if at all, by the first. */
struct fo_call fo_call_one(const struct fo_call *c, int k);

/* The fp8_cast_step of x within a call that casts by the scale of the step (fo_op_fp8_step). */
struct fo_call fo_call_fp8_cast(const struct fo_call *c, struct fo_tensor x);
/* The operation within such a call that makes x, as *make, and x itself, which goes where the call stores it, or to
 * `room`, rows x cols elements of the type of operand 0. false: x is an operand already (fp8_cast_step). */
bool fo_call_fp8_make(const struct fo_call *c, void *room, struct fo_call *make, struct fo_tensor *x);
/* The operands of such a call from fo_op_fp8_step(kind) on. */
enum { FO_FP8_STEP_SX, FO_FP8_STEP_Y, FO_FP8_STEP_AMAX, FO_FP8_STEP_Z };
/* Whether its last operand is there and holds the numbers themselves, not the transpose of y. */
static inline bool fo_call_fp8_wide(const struct fo_call *c)
{
	int at = fo_op_fp8_step(c->kind);
	const struct fo_tensor *z = &c->arg[at + FO_FP8_STEP_Z], *y = &c->arg[at + FO_FP8_STEP_Y];
	/* fp8_cast_step makes no numbers: its x comes right before sx. */
	return at != FO_FP8_CAST_STEP_SX && fo_call_has(c, at + FO_FP8_STEP_Z) && !fo_dtype_fp8(z->dtype) &&
	       z->rows == y->rows && z->cols == y->cols;
}
/* Attention of a shape: a call without data, threads and workspace. seq: tokens of a row of the batch (eager alone). */
enum fo_attention_form {
	FO_ATTENTION_FORWARD,
	FO_ATTENTION_BACKWARD,
	FO_ATTENTION_FORWARD_EAGER,
	FO_ATTENTION_BACKWARD_EAGER,
};
struct fo_call fo_call_attention(enum fo_attention_form form, int64_t tokens, int64_t seq, int64_t heads,
				 int64_t kv_heads, int64_t head_dim, int dtype);

typedef void fo_kernel_fn(const struct fo_call *c);

struct fo_kernel {
	fo_kernel_fn *run;                         /* NULL: this set has none */
	bool (*can)(const struct fo_call *shape);  /* NULL: every shape and dtype; data pointers are not set yet */
	size_t (*ws)(const struct fo_call *shape); /* NULL: needs no workspace; bytes for call->threads threads */
};

/* Instruction sets in order; a higher one includes the lower ones. */
enum fo_isa { FO_ISA_REF, FO_ISA_AVX2, FO_ISA_AVX512, FO_ISA_AVX512BF16, FO_ISA_AMX, FO_ISA_COUNT };
struct fo_kernel_set {
	const char *name; /* "ref", "avx2", "avx512", "avx512bf16", "amx", "null" */
	enum fo_isa isa;
	bool (*have)(void); /* CPUID, XGETBV and, for AMX, the system's permission */
	/* Whether it beats the set below it on this machine; NULL: always. Else it is used only when asked for by
	 * name. */
	bool (*worth)(void);
	const struct fo_kernel *kernel; /* one row per operation */
	/* The register-only loop of the unit that matmuls of this type run on: one thread runs n iterations on random
	 * data; returns the FLOP done, 0 without such a unit. May be NULL. The calibrated peak is made from it. */
	double (*peak_burst)(int dtype, int64_t n);
};
extern const struct fo_kernel_set fo_kernels_ref, fo_kernels_null, fo_kernels_avx2, fo_kernels_avx512,
	fo_kernels_avx512bf16, fo_kernels_amx;
/* The sets of this architecture by instruction set; NULL where the architecture has none (only ref is everywhere). */
extern const struct fo_kernel_set *const fo_kernel_sets[FO_ISA_COUNT];

/* The best instruction set of this machine, lowered by FLATOUT_ISA. FO_EUNSUPPORTED when the variable names one that is
 * not there; FO_EARG for an unknown name. */
FO_CHECKED fo_status fo_isa_choose(enum fo_isa *out);
extern const char *const fo_isa_name[FO_ISA_COUNT];
bool fo_isa_have(enum fo_isa isa);
/* Whether VDPBF16PS gains anything over fp32 multiply-adds on processors of this maker (CPUID leaf 0, 12 letters). */
bool fo_isa_dots_gain(const char maker[12]);
enum fo_isa fo_isa_top(void); /* the highest that this machine has */
/* The instruction set of that name; false where there is none. */
bool fo_isa_named(const char *name, enum fo_isa *out);

/* The kernel for this call at `isa` or below. Never NULL: `ref` takes what no other does. *set (may be NULL) says
 * whose. */
const struct fo_kernel *fo_kernel_pick(enum fo_isa isa, const struct fo_call *shape, const struct fo_kernel_set **set);

/* The two decisions above for any table of sets by instruction set, which has at least `ref`: the best set at `top` or
 * below, and the kernel. */
enum fo_isa fo_isa_best_of(const struct fo_kernel_set *const *sets, enum fo_isa top);
const struct fo_kernel *fo_kernel_pick_of(const struct fo_kernel_set *const *sets, enum fo_isa isa,
					  const struct fo_call *shape, const struct fo_kernel_set **set);

/* Runs a call that casts by the scale of the step by kernels of `sets` at `isa` or below (fp8_step.c); its
 * workspace. */
void fo_kernel_fp8_step(const struct fo_call *c, const struct fo_kernel_set *const *sets, enum fo_isa isa);
size_t fo_kernel_fp8_step_ws(const struct fo_call *c, const struct fo_kernel_set *const *sets, enum fo_isa isa);

/* float <-> bf16, round to nearest even, NaN stays NaN. */
static inline float fo_bf16_to_f32(uint16_t h)
{
	union {
		uint32_t u;
		float f;
	} v = { .u = (uint32_t)h << 16 };
	return v.f;
}
static inline uint16_t fo_bf16_from_f32(float f)
{
	union {
		float f;
		uint32_t u;
	} v = { .f = f };
	if ((v.u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(v.u >> 16 | 64);
	return (uint16_t)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
}

#endif
