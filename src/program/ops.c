/* The operations table as data, and the names of the program's enums. Costs are in op_cost.c, checks in op_check.c. */
#include "program/program.h"

#include <string.h>

const char *const fo_class_name[] = { "tensor", "memory", "comm", "host" };
const char *const fo_category_name[FO_CAT_COUNT] = {
	"matmul", "attention_forward", "attention_backward", "elementwise",
	"loss",   "optimizer",         "communication",      "host",
};
const char *const fo_access_name[] = { "read", "def", "part", "update", "acc", "take" };
const char *const fo_dtype_name[FO_DTYPE_COUNT] = { "f32", "bf16", "f64", "i32", "i16", "e4m3", "e5m2" };
const char *const fo_lane_name[FO_LANE_COUNT] = {
	"compute",      "host",          "copy",          "tp",    "gather", "reduce", "recv_forward",
	"send_forward", "recv_backward", "send_backward", "wgrad", "cp",
};
const char *const fo_lane_carries[FO_LANE_COUNT] = {
	[FO_LANE_TP] = "tensor parallel",
	[FO_LANE_GATHER] = "weights",
	[FO_LANE_REDUCE] = "gradients",
	[FO_LANE_RECV_FORWARD] = "activations received",
	[FO_LANE_SEND_FORWARD] = "activations sent",
	[FO_LANE_RECV_BACKWARD] = "their gradients received",
	[FO_LANE_SEND_BACKWARD] = "their gradients sent",
	[FO_LANE_CP] = "context parallel",
};
const char *const fo_phase_name[FO_PHASE_COUNT] = { "forward",   "backward", "wgrad", "recompute",
						    "optimizer", "transfer", "derive" };
const char *const fo_port_name[FO_PORT_COUNT] = { "none", "batch", "hyper", "loss", "logits", "chunk" };
const char *const fo_group_name[FO_GROUP_COUNT] = { "none", "data",  "shard", "replicate", "tp",  "all",
						    "kv",   "heads", "cp",    "pp",        "ends" };
const char *const fo_role_name[FO_ROLE_COUNT] = { "forward", "backward", "wgrad", "optimizer",
						  "gather",  "reduce",   "p2p",   "host" };
const char *const fo_unit_name[FO_UNIT_COUNT] = { "embed", "layer", "head", "step" };
const char *const fo_numerics_name[FO_PRECISION_COUNT] = { "fp32", "bf16", "fp64" };
const char *const fo_master_name[FO_MASTER_COUNT] = { "fp32", "split", "none" };
const char *const fo_moments_name[FO_MOMENTS_COUNT] = { "fp32", "bf16" };

enum { OPTIONAL = 1 << 6, EACH = 1 << 7, ACCESS = OPTIONAL - 1 };
/* Modes of operands as ops.def writes them. */
enum {
	MODES_r = 1 << FO_READ,
	MODES_d = 1 << FO_DEF,
	MODES_u = 1 << FO_UPDATE,
	MODES_a = 1 << FO_ACC,
	MODES_t = 1 << FO_TAKE,
	MODES_rt = MODES_r | MODES_t,
	MODES_dp = MODES_d | 1 << FO_PART,
	MODES_dpa = MODES_dp | MODES_a,
	MODES_ud = MODES_u | MODES_d,
	MODES_r_opt = MODES_r | OPTIONAL,
	MODES_d_opt = MODES_d | OPTIONAL,
	MODES_u_opt = MODES_u | OPTIONAL,
	MODES_dp_opt = MODES_dp | OPTIONAL,
	MODES_r_each = MODES_r | EACH,
	MODES_u_each = MODES_u | EACH,
	MODES_t_each = MODES_t | EACH,
	MODES_ud_each = MODES_ud | EACH,
	MODES_dp_each = MODES_dp | EACH,
};

enum {
#define FO_FAMILY(family, category) CATEGORY_##family = FO_CAT_##category,
	FO_FAMILIES(FO_FAMILY)
#undef FO_FAMILY
};
#define JOIN(dim) (1u << FO_DIM_##dim)

#define OPERAND(ID, NAME, text, m, t, r, c, over1, over2, ...)                                            \
	[FO_##ID##_##NAME] = { .name = #text,                                                             \
			       .misfit = "the shape of '" #text                                           \
					 "' does not agree with the model or with what stands before it", \
			       .modes = MODES_##m & ACCESS,                                               \
			       .type = FO_TYPE_##t,                                                       \
			       .rows = FO_DIM_##r,                                                        \
			       .cols = FO_DIM_##c,                                                        \
			       .over = { FO_##ID##_##over1, FO_##ID##_##over2 } },
#define IS_THERE(ID, NAME, ...) +1
#define IS_NEEDED(ID, NAME, text, m, ...) +!(MODES_##m & OPTIONAL)
#define IS_COMMON(ID, NAME, text, m, ...) +!(MODES_##m & EACH)
#define IS_EACH(ID, NAME, text, m, ...) +!!(MODES_##m & EACH)
/* One operation at most has one operand of type STEP. */
#define STEP_PLACE(ID, NAME, text, m, t, ...) +(FO_TYPE_##t == FO_TYPE_STEP ? 1 + FO_##ID##_##NAME : 0)
/* Both operations are in one argument: (ADAMW_MANY, ADAMW). */
#define BASE_OPERAND_OF(MANY, ID, NAME) [FO_##ID##_##NAME] = FO_##MANY##_##NAME,
#define BASE_OPERAND_IN(...) BASE_OPERAND_OF(__VA_ARGS__)
#define BASE_OPERAND(both, NAME, ...) BASE_OPERAND_IN(FO_UNPACK both, NAME)
#define COLUMNS(id, ID, c, f, cost, check, traits, text, ...)                                              \
	.name = #id, .doc = text, .cls = FO_CLASS_##c, .family = FO_OPS_##f,                               \
	.category = (enum fo_category)CATEGORY_##f, .min_operands = FO_EACH(IS_NEEDED, ID, __VA_ARGS__),   \
	.max_operands = FO_EACH(IS_THERE, ID, __VA_ARGS__), .common = FO_EACH(IS_COMMON, ID, __VA_ARGS__), \
	.per_tensor = FO_EACH(IS_EACH, ID, __VA_ARGS__), .step = FO_EACH(STEP_PLACE, ID, __VA_ARGS__) - 1, \
	.operand = { FO_EACH(OPERAND, ID, __VA_ARGS__) }, FO_UNPACK traits

static const struct fo_op_info info[FO_OP_COUNT] = {
#define FO_OP(id, ID, ...) { .base = FO_OP_##id, .plain = FO_OP_##id, COLUMNS(id, ID, __VA_ARGS__) },
#define FO_OP_FP8(id, ID, b, BASE, ...) { .base = FO_OP_##id, .plain = FO_OP_##b, COLUMNS(id, ID, __VA_ARGS__) },
#define FO_OP_MANY(id, ID, b, BASE, c, f, cost, check, traits, text, ...)     \
	{ .base = FO_OP_##b,                                                  \
	  .plain = FO_OP_##id,                                                \
	  .base_operand = { FO_EACH(BASE_OPERAND, (ID, BASE), __VA_ARGS__) }, \
	  COLUMNS(id, ID, c, f, cost, check, traits, text, __VA_ARGS__) },
#include "program/ops.def"
};

const struct fo_op_info *fo_op_info(int kind) { return &info[kind]; }

int fo_op_kind_find(const char *name)
{
	for (int k = 0; k < FO_OP_COUNT; k++)
		if (!strcmp(info[k].name, name))
			return k;
	return -1;
}

int fo_op_of_wire(enum fo_wire wire)
{
	int k = 0;
	while (info[k].wire != wire || info[k].per_tensor)
		k++;
	return k;
}

int fo_op_of_heads(enum fo_heads heads)
{
	int k = 0;
	while (info[k].heads != heads)
		k++;
	return k;
}

int fo_op_joining(bool max)
{
	int k = 0;
	while (info[k].wire != FO_WIRE_ALL_REDUCE || info[k].per_tensor || info[k].max != max)
		k++;
	return k;
}

int fo_op_tensors(int kind, int n)
{
	return info[kind].per_tensor ? (n - info[kind].common) / info[kind].per_tensor : 1;
}

int fo_op_operand_of(int kind, int k, int i)
{
	const struct fo_op_info *f = &info[kind];
	int row = f->per_tensor ? f->base_operand[i] : i;
	return row < f->common ? row : row + k * f->per_tensor;
}

int fo_op_operand_row(int kind, int i)
{
	const struct fo_op_info *f = &info[kind];
	return i < f->common ? i : f->common + (i - f->common) % f->per_tensor;
}

int fo_op_many_of(int kind, int n)
{
	for (int k = 0; k < FO_OP_COUNT; k++)
		if (info[k].per_tensor && (int)info[k].base == kind && info[k].common + info[k].per_tensor == n)
			return k;
	return -1;
}

int fo_op_fp8_of(int kind)
{
	for (int k = 0; k < FO_OP_COUNT; k++)
		if (k != kind && (int)info[k].plain == kind)
			return k;
	return -1;
}

void fo_op_cast_operands(int fused, int *at, int *n)
{
	const struct fo_op_info *f = &info[fused], *plain = &info[f->plain];
	*at = 0;
	while (!strcmp(f->operand[*at].name, plain->operand[*at].name))
		++*at;
	*n = plain->max_operands - f->step;
}

bool fo_op_in_place(int kind, int k, int *out, int *in)
{
	const struct fo_op_info *f = &info[kind];
	for (int i = 0; i < f->max_operands; i++)
		for (int j = 0; j < 2; j++)
			if (f->operand[i].over[j] >= 0 && k-- == 0) {
				*out = i;
				*in = f->operand[i].over[j];
				return true;
			}
	return false;
}
