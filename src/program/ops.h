/* What ops.def declares, as C: the enum of operations, the enum of each operation's operands, and the table. All of it is
 * made by the compiler; nothing is parsed at run time. */
#ifndef FO_PROGRAM_OPS_H
#define FO_PROGRAM_OPS_H

#include <stdbool.h>
#include <stdint.h>

/* FO_EACH(M, P, (a, b), (c, d), ...) is M(P, a, b, 0) M(P, c, d, 0) ...: once for each parenthesised tuple, at most 12
 * of them. */
#define FO_UNPACK(...) __VA_ARGS__
#define FO_APPLY(M, ...) M(__VA_ARGS__)
#define FO_EACH_1(M, P, t) FO_APPLY(M, P, FO_UNPACK t, 0)
#define FO_EACH_2(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, 0) FO_EACH_1(M, P, __VA_ARGS__)
#define FO_EACH_3(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, 0) FO_EACH_2(M, P, __VA_ARGS__)
#define FO_EACH_4(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, 0) FO_EACH_3(M, P, __VA_ARGS__)
#define FO_EACH_5(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, 0) FO_EACH_4(M, P, __VA_ARGS__)
#define FO_EACH_6(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, 0) FO_EACH_5(M, P, __VA_ARGS__)
#define FO_EACH_7(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, 0) FO_EACH_6(M, P, __VA_ARGS__)
#define FO_EACH_8(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, 0) FO_EACH_7(M, P, __VA_ARGS__)
#define FO_EACH_9(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, 0) FO_EACH_8(M, P, __VA_ARGS__)
#define FO_EACH_10(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, 0) FO_EACH_9(M, P, __VA_ARGS__)
#define FO_EACH_11(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, 0) FO_EACH_10(M, P, __VA_ARGS__)
#define FO_EACH_12(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, 0) FO_EACH_11(M, P, __VA_ARGS__)
#define FO_EACH_OF(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, N, ...) FO_EACH_##N
#define FO_EACH(M, P, ...) FO_EACH_OF(__VA_ARGS__, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)(M, P, __VA_ARGS__)

enum fo_op_kind {
#define FO_OP(id, ...) FO_OP_##id,
#include "program/ops.def"
	FO_OP_COUNT
};

/* Where an operation has its operands: FO_ADAMW_W is the weight of adamw. */
#define FO_OPERAND_PLACE(ID, NAME, ...) FO_##ID##_##NAME,
#define FO_OP(id, ID, cls, category, cost, inplace, doc, ...) enum { FO_EACH(FO_OPERAND_PLACE, ID, __VA_ARGS__) };
#include "program/ops.def"

enum fo_class { FO_CLASS_TENSOR, FO_CLASS_MEMORY, FO_CLASS_COMM, FO_CLASS_HOST };
enum fo_category {
	FO_CAT_MATMUL,
	FO_CAT_ATTENTION_FORWARD,
	FO_CAT_ATTENTION_BACKWARD,
	FO_CAT_ELEMENTWISE,
	FO_CAT_LOSS,
	FO_CAT_OPTIMIZER,
	FO_CAT_COMMUNICATION,
	FO_CAT_HOST,
	FO_CAT_COUNT
};
extern const char *const fo_class_name[], *const fo_category_name[FO_CAT_COUNT];

/* READ. DEF starts a generation: the old contents are dead. PART writes a rectangle of the live generation. UPDATE
 * reads and writes. ACC adds, and stores where this rectangle has not been written in this generation (it starts one if
 * none lives). TAKE reads and ends the generation. */
enum fo_access { FO_READ, FO_DEF, FO_PART, FO_UPDATE, FO_ACC, FO_TAKE };
static inline bool fo_access_writes(int a) { return a == FO_DEF || a == FO_PART || a == FO_UPDATE || a == FO_ACC; }
static inline bool fo_access_reads(int a) { return a == FO_READ || a == FO_UPDATE || a == FO_TAKE; }
extern const char *const fo_access_name[];

enum { FO_MAX_OPERANDS = 32 }; /* bits of fo_unrolled's first */
struct fo_op_info {
	const char *name, *inplace, *doc;
	enum fo_class cls;
	enum fo_category category;
	int min_operands, max_operands;
	struct {
		const char *name;
		uint8_t modes;
	} operand[FO_MAX_OPERANDS]; /* modes: bit set of 1 << fo_access */
	/* An operation on many tensors does what `base` does to each: operands [0, common) belong to all of them, the
	 * per_tensor ones behind come again for each tensor. Of one tensor: per_tensor 0, base the kind itself. */
	int common, per_tensor;
	enum fo_op_kind base;
	int8_t base_operand[FO_MAX_OPERANDS]; /* on many: row above that operand i of base has */
};
const struct fo_op_info *fo_op_info(enum fo_op_kind kind);
int fo_op_kind_find(const char *name); /* -1: no such operation */
/* Tensors that an operation of n operands works on: 1 but for those on many. */
int fo_op_tensors(enum fo_op_kind kind, int n);
/* Where operand i of the base operation on tensor k stands. */
int fo_op_operand_of(enum fo_op_kind kind, int k, int i);
/* Operations that cast to fp8 by the scale of the step have the operands sx, y, amax and perhaps one more from here on;
 * -1: no such operation. */
int fo_op_fp8_step(enum fo_op_kind kind);
enum { FO_FP8_AMAX_COLS = 4 }; /* of their amax: ops.def, fp8_cast_step */
/* Row of the operand table that operand i has. */
int fo_op_operand_row(enum fo_op_kind kind, int i);

#endif
