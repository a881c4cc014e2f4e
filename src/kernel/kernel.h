/* Kernels: what runs an operation on this machine.
 *
 * A kernel set is a row of function pointers by operation kind. The reference set (`ref`) is complete and plain; faster
 * sets override it where they can and where can() agrees with the shapes, so there is always a kernel. The `null` set
 * returns at once: loops, schedules and timelines of a 405B model run on a laptop.
 *
 * Contract of a kernel:
 * - Operands come in the order of ops.def as row-major rectangles (data, rows, cols, ld in elements).
 * - It writes exactly its outputs, allocates nothing, prints nothing, returns nothing: shapes were checked before.
 * - Where bit i of call->first is set, operand i is stored, else added to: set for DEF and PART, and for an ACC whose
 *   rectangle has not been written yet (fo_unroll decides).
 * - It uses at most call->threads threads (OpenMP) and call->ws (64-byte aligned, call->ws_bytes >= what ws() asked
 * for).
 * - The same inputs, threads and set give the same bits: who computes a number may change from call to call, the order
 * in which its terms are added may not.
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
	/* Where it lies, for what depends on the element's identity and not on the program's form (round.h): 1 + the
	 * layer of its buffer's instance, 0 where the buffer has none; elements of the buffer before its first one. */
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
	/* Counts multiply-accumulates into sums (attention: of visible pairs only). NULL except in tests of the
	 * accounting; only `ref` looks at it. */
	double *mac;
};

/* The base operation's call for tensor k of an operation on many (ops.def), or c itself. What is common and added to is
 * stored, if at all, by the first. */
struct fo_call fo_call_one(const struct fo_call *c, int k);

/* Of a call that casts by the scale of the step (fo_op_fp8_step): x is cast as fp8_cast_step does it, with the same sx,
 * y, amax and transpose. */
struct fo_call fo_call_fp8_cast(const struct fo_call *c, struct fo_tensor x);
/* ... and how x is made, by an operation that casts nothing; false: it is there (fp8_cast_step). It goes where the call
 * stores it, or to `room`, of rows x cols elements of the type of operand 0. */
bool fo_call_fp8_make(const struct fo_call *c, void *room, struct fo_call *make, struct fo_tensor *x);
/* Its last operand is there and is the numbers themselves, not the transpose of y. */
static inline bool fo_call_fp8_wide(const struct fo_call *c)
{
	int at = fo_op_fp8_step(c->kind) + 3;
	const struct fo_tensor *z = &c->arg[at], *y = z - 2;
	return c->kind != FO_OP_fp8_cast_step && c->n > at && !fo_dtype_fp8(z->dtype) && z->rows == y->rows &&
	       z->cols == y->cols;
}

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
	/* Whether it beats the set below it here; NULL: it does wherever it is. A set that does not is run only when
	 * asked for by name. */
	bool (*worth)(void);
	const struct fo_kernel *kernel; /* FO_OP_COUNT rows */
	/* Register-only rate of the unit that products of this dtype run on, one thread, n iterations of the loop on
	 * random data: returns FLOP done. 0: the set has no such unit. NULL: none. The calibrated peak is made from it.
	 */
	double (*peak_burst)(int dtype, int64_t n);
};
extern const struct fo_kernel_set fo_kernels_ref, fo_kernels_null, fo_kernels_avx2, fo_kernels_avx512,
	fo_kernels_avx512bf16, fo_kernels_amx;
/* The sets of this architecture by instruction set; NULL where the architecture has none (only ref is everywhere). */
extern const struct fo_kernel_set *const fo_kernel_sets[FO_ISA_COUNT];

/* The best instruction set this machine has that is worth it, lowered by FLATOUT_ISA (ref, avx2, avx512, avx512bf16,
 * amx). FO_EUNSUPPORTED when the variable asks for one that is not there; FO_EARG for an unknown name. */
FO_CHECKED fo_status fo_isa_choose(enum fo_isa *out);
extern const char *const fo_isa_name[FO_ISA_COUNT];
bool fo_isa_have(enum fo_isa isa);
/* The instruction set of that name; false where there is none. */
bool fo_isa_named(const char *name, enum fo_isa *out);

/* The kernel for this call at `isa` or below, of sets that are worth it. Never NULL: `ref` takes what no other does.
 * *set (may be NULL) says whose. */
const struct fo_kernel *fo_kernel_pick(enum fo_isa isa, const struct fo_call *shape, const struct fo_kernel_set **set);

/* The two decisions above on any table of sets by instruction set, which has `ref` at least: the best at `top` or
 * below, and the kernel. */
enum fo_isa fo_isa_best_of(const struct fo_kernel_set *const *sets, enum fo_isa top);
const struct fo_kernel *fo_kernel_pick_of(const struct fo_kernel_set *const *sets, enum fo_isa isa,
					  const struct fo_call *shape, const struct fo_kernel_set **set);

/* Such a call by the kernels of `isa` (fp8_step.c), and what it needs of c->ws: rows of those sets' tables. */
void fo_kernel_fp8_step(const struct fo_call *c, enum fo_isa isa);
size_t fo_kernel_fp8_step_ws(const struct fo_call *c, enum fo_isa isa);

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
