/* ops.def as C: the enum of operations, the enum of each operation's operands, and the table. All of it
 * is made by the compiler; nothing is parsed at run time. */
#ifndef FO_PROGRAM_OPS_H
#define FO_PROGRAM_OPS_H

#include <stdbool.h>
#include <stdint.h>

/* FO_EACH(M, P, (a, b), (c, d), ...) is M(P, a, b, NONE, NONE, 0) M(P, c, d, NONE, NONE, 0) ...: once for each tuple in
 * parentheses, at most 12 of them. NONE stands for what a tuple leaves out. */
#define FO_UNPACK(...) __VA_ARGS__
#define FO_APPLY(M, ...) M(__VA_ARGS__)
#define FO_EACH_1(M, P, t) FO_APPLY(M, P, FO_UNPACK t, NONE, NONE, 0)
#define FO_EACH_2(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, NONE, NONE, 0) FO_EACH_1(M, P, __VA_ARGS__)
#define FO_EACH_3(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, NONE, NONE, 0) FO_EACH_2(M, P, __VA_ARGS__)
#define FO_EACH_4(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, NONE, NONE, 0) FO_EACH_3(M, P, __VA_ARGS__)
#define FO_EACH_5(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, NONE, NONE, 0) FO_EACH_4(M, P, __VA_ARGS__)
#define FO_EACH_6(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, NONE, NONE, 0) FO_EACH_5(M, P, __VA_ARGS__)
#define FO_EACH_7(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, NONE, NONE, 0) FO_EACH_6(M, P, __VA_ARGS__)
#define FO_EACH_8(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, NONE, NONE, 0) FO_EACH_7(M, P, __VA_ARGS__)
#define FO_EACH_9(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, NONE, NONE, 0) FO_EACH_8(M, P, __VA_ARGS__)
#define FO_EACH_10(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, NONE, NONE, 0) FO_EACH_9(M, P, __VA_ARGS__)
#define FO_EACH_11(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, NONE, NONE, 0) FO_EACH_10(M, P, __VA_ARGS__)
#define FO_EACH_12(M, P, t, ...) FO_APPLY(M, P, FO_UNPACK t, NONE, NONE, 0) FO_EACH_11(M, P, __VA_ARGS__)
#define FO_EACH_OF(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, N, ...) FO_EACH_##N
#define FO_EACH(M, P, ...) FO_EACH_OF(__VA_ARGS__, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)(M, P, __VA_ARGS__)

enum fo_op_kind {
#define FO_OP(id, ...) FO_OP_##id,
#include "program/ops.def"
	FO_OP_COUNT
};

/* Where an operation has its operands: FO_ADAMW_W is the weight of adamw; FO_ADAMW_NONE (-1) is none of them. */
#define FO_OPERAND_PLACE(ID, NAME, ...) FO_##ID##_##NAME,
#define FO_OP(id, ID, cls, family, cost, check, traits, doc, ...) \
	enum { FO_##ID##_NONE = -1, FO_EACH(FO_OPERAND_PLACE, ID, __VA_ARGS__) };
#include "program/ops.def"

enum fo_class { FO_CLASS_TENSOR, FO_CLASS_MEMORY, FO_CLASS_COMM, FO_CLASS_HOST };
/* Rows of the step profile. */
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

/* Kinds of work, each with its category. Attention computes tiles of scores (ATTENTION), stores whole rows of
 * probabilities (EAGER), or reads cached keys (CACHED). BIAS adds a row to rows, or rows to a row. CAST makes fp8
 * numbers and their scales, HISTORY keeps maxima for later scales. CLIP makes the gradient norm and decides whether the
 * step is taken, UPDATE applies it. TRANSFER moves rows between the device and its host. All ranks of a group make a
 * COLLECTIVE, two of them P2P. */
#define FO_FAMILIES(X)                       \
	X(MATMUL, MATMUL)                    \
	X(ATTENTION, ATTENTION_FORWARD)      \
	X(ATTENTION_BWD, ATTENTION_BACKWARD) \
	X(EAGER, ATTENTION_FORWARD)          \
	X(EAGER_BWD, ATTENTION_BACKWARD)     \
	X(CACHED, ATTENTION_FORWARD)         \
	X(NORM, ELEMENTWISE)                 \
	X(ROPE, ELEMENTWISE)                 \
	X(EMBEDDING, ELEMENTWISE)            \
	X(BIAS, ELEMENTWISE)                 \
	X(POINTWISE, ELEMENTWISE)            \
	X(COPY, ELEMENTWISE)                 \
	X(CAST, ELEMENTWISE)                 \
	X(HISTORY, OPTIMIZER)                \
	X(LOSS, LOSS)                        \
	X(CLIP, OPTIMIZER)                   \
	X(UPDATE, OPTIMIZER)                 \
	X(TRANSFER, COMMUNICATION)           \
	X(COLLECTIVE, COMMUNICATION)         \
	X(P2P, COMMUNICATION)                \
	X(HOST, HOST)
enum fo_op_family {
#define FO_FAMILY(family, category) FO_OPS_##family,
	FO_FAMILIES(FO_FAMILY)
#undef FO_FAMILY
		FO_OPS_FAMILIES
};

/* Types of an operand's elements. fp8 numbers stand nowhere without their scales; kernels rely on all of it. */
enum fo_operand_type {
	FO_TYPE_NUM,    /* f32, bf16 or f64: all numbers of an operation are f64, or none is */
	FO_TYPE_WIDE,   /* such a number, never narrower than f32: statistics, gradients of weights, tables */
	FO_TYPE_LIKE,   /* a number of the type of the first operand */
	FO_TYPE_FACTOR, /* a number, or fp8 where its scale is an operand too */
	FO_TYPE_MASTER, /* a number, or the low half of an fp32 number whose high half is the weight (i16) */
	FO_TYPE_I32,    /* an index */
	FO_TYPE_F64,    /* f64 in every precision: norms, losses, hyper-parameters */
	FO_TYPE_F32,    /* a scale of fp8 numbers */
	FO_TYPE_MAX,    /* F32, also beside f64: maxima; written to, they are joined, not added */
	FO_TYPE_STEP,   /* F32: the scale of the step; its fp8 numbers, maxima and perhaps their copy follow it */
	FO_TYPE_FP8,    /* e4m3 or e5m2 */
	FO_TYPE_CAST,   /* fp8, or the type of the first operand: a second result of a cast */
	FO_TYPE_MOVED,  /* any, whole rows in the memory of the device */
	FO_TYPE_HOSTED, /* any, whole rows in the memory of the host */
	FO_TYPE_PORT,   /* decided by the port (attr) */
};

/* Rows and columns of operands. Those below FO_DIM_FREE are given; the others are bound by the first operand that has
 * them, and every later one must agree. */
enum fo_dim {
	FO_DIM_ANY, /* the operation's check knows */
	FO_DIM_1,
	FO_DIM_2,
	FO_DIM_4,
	FO_DIM_HYPER,     /* columns of the hyper buffer */
	FO_DIM_V,         /* vocabulary, or a rank's part of it (pass tp) */
	FO_DIM_CONTEXT,   /* rows of the cache of keys and values */
	FO_DIM_POSITIONS, /* at least a row for each position */
	FO_DIM_F2,        /* 2 F */
	FO_DIM_FREE,
	FO_DIM_T = FO_DIM_FREE, /* tokens */
	FO_DIM_D,
	FO_DIM_F,
	FO_DIM_HQ, /* query heads x head dimension */
	FO_DIM_KQ, /* key and value heads x head dimension */
	FO_DIM_Q,  /* head dimension: attr head_dim; of norms all columns where that is 0 */
	FO_DIM_H,  /* heads */
	FO_DIM_HS, /* heads x tokens of a row */
	FO_DIM_M,
	FO_DIM_N,
	FO_DIM_K,
	FO_DIM_R,
	FO_DIM_C,
	FO_DIM_S,
	FO_DIM_COUNT
};

/* What an operation of class COMM does to the memory of a group's ranks, in the order of comm/comm.h. */
enum fo_wire {
	FO_WIRE_NONE,
	FO_WIRE_ALL_REDUCE,
	FO_WIRE_ALL_GATHER,
	FO_WIRE_REDUCE_SCATTER,
	FO_WIRE_BROADCAST,
	FO_WIRE_SEND,
	FO_WIRE_RECEIVE,
	FO_WIRE_ALL_TO_ALL,
	FO_WIRE_SHIFT
};

/* Copies between rows of own tokens and rows that are sorted by the ranks of a cp group: for each of them the columns
 * of its heads. */
enum fo_heads { FO_HEADS_NONE, FO_HEADS_APART, FO_HEADS_TOGETHER };

/* READ. DEF starts a generation: the old contents are dead. PART writes a rectangle of the live generation. UPDATE
 * reads and writes. ACC adds, and stores where this rectangle has not been written in this generation (it starts one if
 * none lives). TAKE reads and ends the generation. */
enum fo_access { FO_READ, FO_DEF, FO_PART, FO_UPDATE, FO_ACC, FO_TAKE };
static inline bool fo_access_writes(int a) { return a == FO_DEF || a == FO_PART || a == FO_UPDATE || a == FO_ACC; }
static inline bool fo_access_reads(int a) { return a == FO_READ || a == FO_UPDATE || a == FO_TAKE; }
extern const char *const fo_access_name[];

enum { FO_MAX_OPERANDS = 32 }; /* bits of fo_unrolled's first */
struct fo_op_operand {
	const char *name, *misfit; /* misfit: the message where its shape does not agree */
	uint8_t modes;             /* bit set of 1 << fo_access */
	uint8_t type, rows, cols;  /* enum fo_operand_type, enum fo_dim */
	int8_t over[2];            /* inputs whose bytes this output may share; -1: none */
};
struct fo_op_info {
	const char *name, *doc;
	enum fo_class cls;
	enum fo_op_family family;
	enum fo_category category;
	int min_operands, max_operands;
	struct fo_op_operand operand[FO_MAX_OPERANDS];
	/* An operation on many tensors does what `base` does to each: operands [0, common) belong to all of them, the
	 * per_tensor ones after them come again for each tensor. Of one tensor: per_tensor 0, base the kind itself. */
	int common, per_tensor;
	enum fo_op_kind base;
	int8_t base_operand[FO_MAX_OPERANDS]; /* on many: row above that operand i of base has */
	/* The operation whose result is cast to fp8 here (FO_OP_FP8); any other has itself. */
	enum fo_op_kind plain;
	/* Operations that cast by the scale of the step have the operands sx, y, amax and perhaps one more from here
	 * on; -1: no such operation. */
	int step;
	/* The set of enum fo_recompute that the operation belongs to; 0: FO_RECOMPUTE_REST. */
	int recompute;
	enum fo_wire wire;
	/* Of attention: the operation over the keys of one rank of a cp group (attr peer), which has itself here, and
	 * the one that merges what two such found. 0: none. */
	int block, merge;
	enum fo_heads heads;
	bool max; /* it writes maxima of what it reads: those of maxima over some rows, too */
	/* Two of them over neighbouring rectangles may become one along these: bit set of 1 << fo_dim. */
	uint32_t joins;
};
const struct fo_op_info *fo_op_info(int kind);
int fo_op_kind_find(const char *name); /* -1: no such operation */
int fo_op_of_wire(enum fo_wire wire);  /* the operation on one tensor that does this between ranks */
int fo_op_of_heads(enum fo_heads heads);
int fo_op_joining(bool max); /* the operation that joins sums, or maxima, over all ranks of a group */
/* Whether a kernel runs it. The training loop serves HOST, a transport between ranks makes COMM. */
static inline bool fo_op_has_kernel(int kind)
{
	return fo_op_info(kind)->cls != FO_CLASS_HOST && fo_op_info(kind)->cls != FO_CLASS_COMM;
}
static inline enum fo_op_family fo_op_family(int kind) { return fo_op_info(kind)->family; }
static inline int fo_op_fp8_step(int kind) { return fo_op_info(kind)->step; }
enum { FO_FP8_AMAX_COLS = 4 }; /* of the amax of such operations: ops.def, fp8_cast_step */

/* Tensors that an operation of n operands works on: 1 but for those on many. */
int fo_op_tensors(int kind, int n);
/* Index of the operand that is operand i of the base operation on tensor k. */
int fo_op_operand_of(int kind, int k, int i);
/* Row of the operand table that operand i has. */
int fo_op_operand_row(int kind, int i);
/* The operation on many tensors that does what `kind` with n operands does to one; -1: there is none. */
int fo_op_many_of(int kind, int n);
/* The operation that casts what `kind` makes (FO_OP_FP8): -1 where there is none. */
int fo_op_fp8_of(int kind);
/* Operands of fo_op_info(fused)->plain that `fused` casts instead of storing them: *n of them from *at on. */
void fo_op_cast_operands(int fused, int *at, int *n);
/* Pair number k of an output that may lie in the place of an input, in the order of ops.def; false: there are fewer. */
bool fo_op_in_place(int kind, int k, int *out, int *in);

#endif
