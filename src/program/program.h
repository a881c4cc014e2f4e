/* The step program: what one rank does in one training step, written once and read by everybody.
 *
 * Blocks are operation lists (layer forward, layer backward, head, ...). Slots put them in issue order: block x layer x
 * micro-batch. Operands are rectangles of buffers with an access mode. Dimensions, dependencies, lifetimes and costs
 * are derived from operands and never stored a second time. Passes edit blocks or reorder slots; the verifier runs
 * after each. fo_unroll() makes instances, live ranges and waits; fo_plan() places live ranges in one arena and adds
 * the waits that the reuse of bytes needs; executor and simulator obey the same waits.
 *
 * A program is plain data and owns everything it points to (fo_program_fini). Ids are indices; nobody keeps pointers
 * across an insertion. */
#ifndef FO_PROGRAM_PROGRAM_H
#define FO_PROGRAM_PROGRAM_H

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/model.h"
#include "program/ops.h"
#include "program/schedule.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- data types, layouts, places ---- */

/* I16: low halves of split fp32 numbers (kernel/round.h), nothing else. */
enum fo_dtype { FO_F32, FO_BF16, FO_F64, FO_I32, FO_I16, FO_E4M3, FO_E5M2, FO_DTYPE_COUNT };
extern const char *const fo_dtype_name[FO_DTYPE_COUNT];
static inline bool fo_dtype_fp8(int t) { return t == FO_E4M3 || t == FO_E5M2; }
static inline size_t fo_dtype_bytes(int t)
{
	static const uint8_t bytes[FO_DTYPE_COUNT] = {
		[FO_F32] = 4, [FO_BF16] = 2, [FO_F64] = 8, [FO_I32] = 4, [FO_I16] = 2, [FO_E4M3] = 1, [FO_E5M2] = 1
	};
	return bytes[t];
}

/* How a buffer's elements lie in memory. Another layout of the same values is another buffer. Only row-major exists so
 * far; panel, VNNI and transposed forms come with the layout pass. */
enum fo_layout { FO_ROW_MAJOR, FO_LAYOUT_COUNT };

/* ACT and GRAD live in the planned arena; PARAM, STATE and CONST persist from step to step. HOST: in a second planned
 * arena, in the host's memory, which only offload and fetch reach (on the CPU it is memory like any other). */
enum fo_home { FO_HOME_ACT, FO_HOME_GRAD, FO_HOME_PARAM, FO_HOME_STATE, FO_HOME_CONST, FO_HOME_HOST, FO_HOME_COUNT };
static inline bool fo_home_persists(int h) { return h >= FO_HOME_PARAM && h <= FO_HOME_CONST; }
enum { FO_PER_LAYER = 1, FO_PER_MICRO_BATCH = 2 }; /* loop indices that a buffer carries */
enum fo_axis {
	FO_AXIS_ONE,
	FO_AXIS_TOKENS,
	FO_AXIS_HIDDEN,
	FO_AXIS_Q,
	FO_AXIS_KV,
	FO_AXIS_FFN,
	FO_AXIS_VOCAB,
	FO_AXIS_HEADS,
	FO_AXIS_COUNT
};

/* In-order queues. CPU engines give each used lane a thread, CUDA a stream. Point-to-point transfers have one lane for
 * each direction and end: a receive waiting in front of a send on one lane deadlocks 1F1B. */
enum fo_lane {
	FO_LANE_COMPUTE,
	FO_LANE_HOST,
	FO_LANE_COPY,
	FO_LANE_TP,
	FO_LANE_GATHER,
	FO_LANE_REDUCE,
	FO_LANE_RECV_FORWARD,
	FO_LANE_SEND_FORWARD,
	FO_LANE_RECV_BACKWARD,
	FO_LANE_SEND_BACKWARD,
	FO_LANE_WGRAD, /* a second one of compute: matmuls that make gradients of weights (pass wgrad-lane) */
	FO_LANE_CP,    /* between the ranks of a cp group: keys, values and their gradients, or tokens for heads */
	FO_LANE_COUNT
};
extern const char *const fo_lane_name[FO_LANE_COUNT];
/* What travels on a lane of communication, as reports and predictions of exposed communication name it ("tensor
 * parallel"); NULL: ranks do not communicate on it. */
extern const char *const fo_lane_carries[FO_LANE_COUNT];
/* Lanes whose operations compute: they share the cores of the processor or the device. */
static inline bool fo_lane_computes(int lane) { return lane == FO_LANE_COMPUTE || lane == FO_LANE_WGRAD; }
/* The lane whose communicators a lane uses: what is sent and received in one direction goes through one. */
static inline int fo_lane_channel(int lane)
{
	if (lane == FO_LANE_RECV_FORWARD)
		return FO_LANE_SEND_FORWARD;
	return lane == FO_LANE_RECV_BACKWARD ? FO_LANE_SEND_BACKWARD : lane;
}

/* DERIVE: makes what persists of weights alone. The executor does it, too, when weights were changed from outside. */
enum fo_phase { FO_FORWARD, FO_BACKWARD, FO_WGRAD, FO_RECOMPUTE, FO_OPTIMIZER, FO_TRANSFER, FO_DERIVE, FO_PHASE_COUNT };
extern const char *const fo_phase_name[FO_PHASE_COUNT];

/* ---- the program ---- */

struct fo_operand { /* rectangle of buf[layer + dlayer][mb] */
	int16_t buf;
	int8_t dlayer;
	uint8_t access;
	int32_t r0, nr, c0, nc;
};

/* Whether two operands have elements in common (of one layer's instance). */
static inline bool fo_operands_overlap(const struct fo_operand *a, const struct fo_operand *b)
{
	return a->buf == b->buf && a->dlayer == b->dlayer && a->r0 < b->r0 + b->nr && b->r0 < a->r0 + a->nr &&
	       a->c0 < b->c0 + b->nc && b->c0 < a->c0 + a->nc;
}

/* Attributes of an operation: what operands cannot say. A field that an operation does not use is zero. Dimensions are
 * never here. */
struct fo_attr {
	uint8_t ta, tb;     /* matmul: first, second operand transposed */
	int8_t sign;        /* rope: +1 forward, -1 backward */
	uint8_t port;       /* host_in, host_out: enum fo_port */
	int32_t head_dim;   /* attention, rope: columns of one head; rmsnorm*: of what is normed, 0: whole rows */
	int32_t window;     /* attention*: newest keys that a query sees at most, its own included; 0: all */
	int32_t stochastic; /* adamw: 1: moments, and weights without a master, that are bf16 are rounded at random */
	int32_t peer;       /* send, receive, broadcast: a rank of the group; attention_block*: how many places before
			     * this rank in the ring the keys' rank is */
	int32_t cp, place, chunk; /* attention_block*: ranks of the cp group, this one's place there, tokens of one of
				   * the 2 cp chunks of a row (ring.h) */
	uint8_t narrow;  /* all_reduce*, reduce_scatter: 1: fp32 numbers travel as bf16 (fo_comm_call.narrow) */
	int64_t element; /* adamw, stochastic: number of the weight buffer's first element (kernel/round.h);
			     * embed*, xent_*: the first word of a rank's part of the vocabulary */
	double value;    /* rmsnorm*: eps; attention*: score scale; adamw: 1 where weight decay applies, else 0;
			     * clip: 1 where the norm of the step before counts */
};
enum fo_port { FO_PORT_NONE, FO_PORT_BATCH, FO_PORT_HYPER, FO_PORT_LOSS, FO_PORT_LOGITS, FO_PORT_CHUNK, FO_PORT_COUNT };
extern const char *const fo_port_name[FO_PORT_COUNT];
/* Operands of ports that have several, in order. */
enum { FO_PORT_BATCH_TOKEN, FO_PORT_BATCH_TARGET, FO_PORT_BATCH_POSITION, FO_PORT_BATCH_DOC_START };
enum { FO_PORT_CHUNK_TOKEN, FO_PORT_CHUNK_POSITION, FO_PORT_CHUNK_SPAN };
enum { FO_PORT_LOSS_LOSS, FO_PORT_LOSS_SCALE };

/* Columns of the hyper buffer, (1, FO_HYPER_COUNT) f64: what varies from step to step. */
enum fo_hyper {
	FO_HYPER_LR,
	FO_HYPER_BETA1,
	FO_HYPER_BETA2,
	FO_HYPER_EPS,
	FO_HYPER_DECAY,
	FO_HYPER_CORR1,
	FO_HYPER_CORR2,      /* 1 - beta1^t, 1 - beta2^t */
	FO_HYPER_CLIP,       /* bound on the global norm; 0: none */
	FO_HYPER_INV_TOKENS, /* 1 / targets of the global batch */
	FO_HYPER_LOSS_LIMIT, /* a step whose loss is above it is refused (0: none) */
	FO_HYPER_SEED,       /* of the run, below 2^53 */
	FO_HYPER_STEP,       /* optimizer steps before this one */
	FO_HYPER_LAST_NORM,  /* global gradient norm of the last step that was taken; 0: none */
	FO_HYPER_COUNT
};

/* The ranks that work on a step, as a mesh of `pp` x `replicate` x `shard` x `cp` x `tp`; 0 stands for 1. The last
 * coordinate varies fastest: rank = (((p x replicate + r) x shard + s) x cp + c) x tp + t. Ranks that differ in pp are
 * stages of a pipeline: they have the same rows and other layers (pass pp). Ranks that differ in replicate or shard
 * have rows of their own. Those that differ in cp have the same rows, each its own tokens of every row (pass cp); those
 * that differ in tp have the same tokens, and divide the weights and the work on them (pass tp). Where a model has
 * fewer key and value heads than there are ranks in a tp group, kv neighbours have the same ones: lowering says so. */
struct fo_mesh {
	int32_t rank, replicate, shard, cp, tp, kv, pp;
};
/* Which ranks take part in an operation of class COMM. REPLICATE, CP, TP, PP: those that differ in this coordinate
 * alone. SHARD: in shard and cp; cp's ranks have the same weights, so they share them like the others of a shard group.
 * DATA: in replicate, shard and cp, all ranks with other tokens. ALL: every rank of a stage. Of a tp group, KV: those
 * with the same key and value heads, HEADS: one of each such set. Of a pp group, ENDS: the first and the last one;
 * each of the others is alone. Numbers stand in timelines. */
enum { FO_MESH_RANKS_MOST = 1 << 16 };
enum fo_group {
	FO_GROUP_NONE,
	FO_GROUP_DATA,
	FO_GROUP_SHARD,
	FO_GROUP_REPLICATE,
	FO_GROUP_TP,
	FO_GROUP_ALL,
	FO_GROUP_KV,
	FO_GROUP_HEADS,
	FO_GROUP_CP,
	FO_GROUP_PP,
	FO_GROUP_ENDS,
	FO_GROUP_COUNT
};
extern const char *const fo_group_name[FO_GROUP_COUNT];
static inline int32_t fo_mesh_tp(const struct fo_mesh *m) { return m->tp ? m->tp : 1; }
static inline int32_t fo_mesh_kv(const struct fo_mesh *m) { return m->kv ? m->kv : 1; }
/* So many neighbours of tp ranks have the same key and value heads of a model. */
static inline int32_t fo_mesh_kv_of(const struct fo_model *m, int32_t tp)
{
	return m->kv_heads < tp && tp % m->kv_heads == 0 ? tp / (int32_t)m->kv_heads : 1;
}
static inline int32_t fo_mesh_cp(const struct fo_mesh *m) { return m->cp ? m->cp : 1; }
/* So many sets of rows there are. */
static inline int32_t fo_mesh_data(const struct fo_mesh *m)
{
	const int32_t shard = m->shard ? m->shard : 1;
	return shard * (m->replicate ? m->replicate : 1);
}
static inline int32_t fo_mesh_pp(const struct fo_mesh *m) { return m->pp ? m->pp : 1; }
static inline int32_t fo_mesh_stage_ranks(const struct fo_mesh *m) /* of one stage of a pipeline */
{
	return fo_mesh_data(m) * fo_mesh_cp(m) * fo_mesh_tp(m);
}
static inline int32_t fo_mesh_ranks(const struct fo_mesh *m) { return fo_mesh_stage_ranks(m) * fo_mesh_pp(m); }
static inline int32_t fo_mesh_stage(const struct fo_mesh *m) { return m->rank / fo_mesh_stage_ranks(m); }
/* Whether no coordinate is negative and there are at most FO_MESH_RANKS_MOST ranks. */
bool fo_mesh_is_sound(const struct fo_mesh *m);
/* Which of these sets of rows this rank has, from 0. */
static inline int32_t fo_mesh_set(const struct fo_mesh *m)
{
	return m->rank / (fo_mesh_cp(m) * fo_mesh_tp(m)) % fo_mesh_data(m);
}
/* The number of ranks in this rank's group; *place (may be NULL): its own rank there; *colour (may be NULL): a number
 * that the ranks of its group share and no others have. */
int32_t fo_mesh_group(const struct fo_mesh *m, enum fo_group g, int32_t *place, int32_t *colour);
/* The rank of the mesh that has this place in m->rank's group. */
int32_t fo_mesh_member(const struct fo_mesh *m, enum fo_group g, int32_t place);
/* How many of n rows are those of rank `place` of `ranks`, and where they begin: n place / ranks to n (place + 1) /
 * ranks. */
int64_t fo_mesh_part(int64_t n, int32_t place, int32_t ranks, int64_t *begin);
/* Whether tp ranks can divide the layers of a model and `tokens` of a micro-batch. FO_EARG: what cannot be shared
 * evenly, and the numbers of ranks nearest to tp that can share all of it. */
FO_CHECKED fo_status fo_mesh_tp_legal(const struct fo_model *m, int64_t tokens, int32_t tp);
/* The same for cp ranks and rows of seq tokens: 2 cp chunks of one size (pass.cp=ring). */
FO_CHECKED fo_status fo_mesh_cp_legal(int64_t seq, int32_t cp);
/* The same for the tokens and heads of cp ranks, where tp ranks have divided the heads (pass.cp=heads). */
FO_CHECKED fo_status fo_mesh_cp_heads_legal(const struct fo_model *m, int64_t tokens, int32_t cp, int32_t tp);

struct fo_op {
	uint32_t id, origin; /* fresh per inserted op; id of the op it was cloned or merged from (its own otherwise) */
	uint8_t kind, phase, lane, group, n; /* group: of class COMM, enum fo_group; else 0 */
	struct fo_attr attr;
	struct fo_operand arg[FO_MAX_OPERANDS];
};
enum fo_role {
	FO_ROLE_FORWARD,
	FO_ROLE_BACKWARD,
	FO_ROLE_WGRAD,
	FO_ROLE_OPTIMIZER,
	FO_ROLE_GATHER,
	FO_ROLE_REDUCE,
	FO_ROLE_P2P,
	FO_ROLE_HOST,
	FO_ROLE_COUNT
};
enum fo_unit { FO_UNIT_EMBED, FO_UNIT_LAYER, FO_UNIT_HEAD, FO_UNIT_STEP, FO_UNIT_COUNT };
extern const char *const fo_role_name[FO_ROLE_COUNT], *const fo_unit_name[FO_UNIT_COUNT];

struct fo_block {
	char name[24];
	uint8_t role, unit;
	int n, cap;
	struct fo_op *op;
};
struct fo_slot {
	int16_t block, layer;
	int32_t mb;
};
/* What a rank of a tp group has of a buffer: all of it, as the others do; its part of the rows or columns; the part
 * that ranks of its kv group have, too (weights of keys and values, their gradients and state); or one term of a sum
 * over the group (gradients, until pass ddp has added them up). */
enum fo_tp_part { FO_TP_WHOLE, FO_TP_ROWS, FO_TP_COLS, FO_TP_KV_ROWS, FO_TP_KV_COLS, FO_TP_TERM, FO_TP_PARTS };
static inline bool fo_tp_divides_rows(int part) { return part == FO_TP_ROWS || part == FO_TP_KV_ROWS; }
static inline bool fo_tp_is_kv(int part) { return part == FO_TP_KV_ROWS || part == FO_TP_KV_COLS; }
/* Coordinates of a tp group, as a set: which key and value heads, which rank of those with the same ones. */
enum { FO_ACROSS_HEADS = 1, FO_ACROSS_KV = 2 };
/* Whether this stage of a pipeline has a parameter's buffer. ABSENT: other stages have it. ENDS: the first and the last
 * stage both do, the embedding whose weights are the head's, too. Which layers' instances a stage has, see
 * fo_program_has_layer. */
enum fo_stage_part { FO_STAGE_HERE, FO_STAGE_ABSENT, FO_STAGE_ENDS, FO_STAGE_PARTS };
struct fo_buffer {
	char name[24];
	uint8_t dtype, layout, home, axes, row_axis, col_axis, tp, stage;
	int64_t rows, cols;
	/* Where ranks share it: `rows` are rows row0 and on of a buffer of `whole` rows; whole 0: it is whole. */
	int64_t row0, whole;
};
/* Ranks of m that have the same part of a buffer that persists; *place: which of them this one is. */
int32_t fo_buffer_holders(const struct fo_mesh *m, const struct fo_buffer *b, int32_t *place);
static inline int64_t fo_buffer_whole(const struct fo_buffer *b) { return b->whole ? b->whole : b->rows; }
enum { FO_PARAM_BUFFERS = 5 }; /* of a parameter: weight, master, m, v, gradient */
#define FO_INIT_ONES 0.0
#define FO_INIT_ZEROS (-1.0)
/* One logical parameter tensor: which rectangle of which buffer holds which part of the global tensor. */
struct fo_param {
	char name[64];      /* Hugging Face name; "{}" stands for the layer where per_layer */
	int64_t rows, cols; /* logical, global */
	bool per_layer, decay;
	double init_std; /* or FO_INIT_ONES (norm weights), FO_INIT_ZEROS (biases) */
	/* Buffers; master -1 when the weight itself is the master copy. A master of I16 is the low half of the split
	 * one whose high half is the weight. */
	union {
		struct {
			int16_t weight, master, m, v, grad;
		};
		int16_t buf[FO_PARAM_BUFFERS];
	};
	int32_t r0, c0, nr, nc; /* rectangle in the buffers, as though each were whole */
	int64_t global_r0, global_c0;
};
/* The rows of a parameter's rectangle that buffer b holds: how many, 0 for none; *from: the first one's place in the
 * rectangle. A rank owns those that its buffer of moments holds. */
int64_t fo_param_rows(const struct fo_param *q, const struct fo_buffer *b, int64_t *from);

/* BF16: fp32 master, m, v (unless passes change that), gradients. F64: tests */
enum fo_numerics { FO_PRECISION_F32, FO_PRECISION_BF16, FO_PRECISION_F64, FO_PRECISION_COUNT };
extern const char *const fo_numerics_name[FO_PRECISION_COUNT];
/* Whole step; forward and loss; forward and logits out; forward of a chunk of `seq` tokens of one text whose keys and
 * values so far lie in a cache of `context` rows, and the logits of its last token. */
enum fo_mode { FO_MODE_TRAIN, FO_MODE_EVAL, FO_MODE_LOGITS, FO_MODE_DECODE };

/* The operations of a layer that backward repeats (src/pass/recompute.c): a sum of these sets. An operation that writes
 * into a buffer in place (rotation, bias) belongs to the set of the one that makes the buffer. */
enum fo_recompute {
	FO_RECOMPUTE_NORM = 1,    /* norms, query and key norms too: their outputs are not kept */
	FO_RECOMPUTE_SWIGLU = 2,  /* the input of the down projection */
	FO_RECOMPUTE_GATE_UP = 4, /* the gate and up matmuls */
	FO_RECOMPUTE_QKV = 8,     /* the q, k, v matmuls with their rotation */
	FO_RECOMPUTE_ATTENTION = 16,
	FO_RECOMPUTE_OUT = 32,  /* the attention's output matmul and the residual after it */
	FO_RECOMPUTE_REST = 64, /* operations that other passes made */
	FO_RECOMPUTE_SELECTIVE = FO_RECOMPUTE_NORM | FO_RECOMPUTE_SWIGLU,
	FO_RECOMPUTE_FULL = 127, /* all that backward needs, from the layer's input */
	/* In ops.def alone: the operation belongs to the set of the one that made its first operand, or that reads its
	 * result. */
	FO_RECOMPUTE_BY_INPUT = -1,
	FO_RECOMPUTE_BY_READER = -2,
};
enum { FO_RECOMPUTE_SETS = 6 }; /* with a name */
extern const char *const fo_recompute_name[FO_RECOMPUTE_SETS];
/* The sets' names with `sep` between them; nothing where no set has a name. */
void fo_recompute_sets_text(int64_t sets, const char *sep, struct fo_str *out);
/* The master copy that bf16 weights are rounded from: an fp32 copy (4 bytes per parameter beside the weight's 2), the
 * same number split into the weight and a low half (2 bytes), or nothing. What the moments of AdamW are stored in. How
 * what is stored in bf16 alone is rounded. */
enum fo_master { FO_MASTER_FP32, FO_MASTER_SPLIT, FO_MASTER_NONE, FO_MASTER_COUNT };
enum fo_moments { FO_MOMENTS_FP32, FO_MOMENTS_BF16, FO_MOMENTS_COUNT };
enum fo_rounding { FO_ROUND_NEAREST, FO_ROUND_STOCHASTIC, FO_ROUND_COUNT };
extern const char *const fo_master_name[FO_MASTER_COUNT], *const fo_moments_name[FO_MOMENTS_COUNT];

/* The settings of passes (src/pass), each an int64_t: X(member, name in dumps, names of its values, how many). Without
 * such names 1 is yes, or it is a number. */
#define FO_PASS_FIELDS(X)                                                                                             \
	X(merge_qkv, "merge-qkv", NULL, 0)                                                                            \
	X(merge_gate_up, "merge-gate-up", NULL, 0)                                                                    \
	X(fuse_loss, "fuse-loss", NULL, 0) /* tokens of a chunk */                                                    \
	X(fuse_elementwise, "fuse-elementwise", NULL, 0)                                                              \
	X(fuse_rope, "fuse-rope", NULL, 0)                                                                            \
	/* Backward repeats a sum of enum fo_recompute in the first recompute_layers layers (0: in all), */           \
	/* another in the rest of them. */                                                                            \
	X(recompute, "recompute", NULL, 0)                                                                            \
	X(recompute_layers, "recompute-layers", NULL, 0)                                                              \
	X(recompute_rest, "recompute-rest", NULL, 0)                                                                  \
	X(master, "master", fo_master_name, FO_MASTER_COUNT)                                                          \
	X(moments, "moments", fo_moments_name, FO_MOMENTS_COUNT)                                                      \
	/* Of weights with FO_MASTER_NONE and moments with FO_MOMENTS_BF16. */                                        \
	X(rounding, "rounding", rounding_name, FO_ROUND_COUNT)                                                        \
	X(fused_optimizer, "fused-optimizer", NULL, 0)                                                                \
	X(optimizer_in_backward, "optimizer-in-backward", NULL, 0)                                                    \
	/* Lowering does it: the bound on the gradient norm is on that of the step before (FO_HYPER_LAST_NORM). */    \
	X(previous_norm, "previous-norm", NULL, 0)                                                                    \
	X(fp8, "fp8", fp8_name, FO_FP8_COUNT)                                                                         \
	X(fp8_history, "fp8-history", NULL, 0) /* delayed: steps that are remembered */                               \
	X(fp8_precompute, "fp8-scale-precompute", NULL, 0)                                                            \
	X(fp8_wgrad, "fp8-wgrad", fp8_wgrad_name, FO_FP8_WGRAD_COUNT)                                                 \
	X(fp8_transposed, "fp8-transposed", NULL, 0)                                                                  \
	X(fp8_fuse, "fp8-fuse", NULL, 0)                                                                              \
	X(fp8_first, "fp8-skip-first", NULL, 0) /* so many layers at each end keep their precision */                 \
	X(fp8_last, "fp8-skip-last", NULL, 0)                                                                         \
	X(attention, "attention", attention_name, FO_ATTENTION_COUNT)                                                 \
	X(tp, "tp", tp_name, FO_TP_COUNT)           /* what ranks of a tp group do with the residual stream */        \
	X(cp, "cp", cp_name, FO_CP_COUNT)           /* how tokens of a cp group's ranks see each other's keys */      \
	X(pp, "pp", pp_name, FO_PP_KINDS_COUNT + 1) /* the schedule of stages: 1 + enum fo_pp_kind */                 \
	X(pp_chunks, "pp-chunks", NULL, 0)          /* parts of the model that a stage has; 0: as usual there */      \
	X(tp_async, "tp-async", NULL, 0)            /* pieces of a micro-batch's tokens; 1: as many as pay */         \
	X(offload, "offload", NULL, 0)              /* layers whose activations wait in host memory */                \
	X(wgrad_lane, "wgrad-lane", NULL, 0)                                                                          \
	X(reduce_dtype, "reduce-dtype", reduce_name, FO_REDUCE_COUNT) /* what gradients travel as */                  \
	X(reduce_late, "reduce-late", NULL, 0)                        /* sums over ranks when backward is over */     \
	X(ddp, "ddp", NULL, 0)                                        /* MiB of a bucket of gradients */              \
	/* What ranks of a shard group share: enum fo_zero. WEIGHTS: so many uses ahead weights are gathered, and   \
	 * when they are given up again, enum fo_reshard. */ \
	X(zero, "zero", zero_name, FO_ZERO_COUNT)                                                                     \
	X(zero_prefetch, "zero-prefetch", NULL, 0)                                                                    \
	X(zero_reshard, "zero-reshard", reshard_name, FO_RESHARD_COUNT)                                               \
	X(zero_first, "zero-first", NULL, 0) /* the first zero_prefetch uses' weights are gathered a step ahead */    \
	X(zero_sync, "zero-sync", sync_name, FO_SYNC_COUNT) /* GRADIENTS and WEIGHTS: enum fo_sync */
/* The passes that shall be, or were, applied; 0: off. They travel with the program, so that programs which share
 * weights are built alike. */
struct fo_passes {
#define X(member, ...) int64_t member;
	FO_PASS_FIELDS(X)
#undef X
};
/* Keys and values of the ranks of a cp group travel round a ring; or each rank has some heads of all tokens while
 * attention is computed. */
enum fo_cp { FO_CP_OFF, FO_CP_RING, FO_CP_HEADS, FO_CP_COUNT };
/* Each rank of a tp group has the residual stream of all tokens, or (sequence parallel) of its own. */
enum fo_tp { FO_TP_OFF, FO_TP_REPLICATED, FO_TP_SEQUENCE, FO_TP_COUNT };
enum { FO_TP_ASYNC_AUTO = 1, FO_TP_ASYNC_MOST = 64 };
/* Each shares what the one before it shares, too. */
enum { FO_ZERO_PREFETCH_MOST = 64 };
enum fo_zero { FO_ZERO_OFF, FO_ZERO_STATE, FO_ZERO_GRADIENTS, FO_ZERO_WEIGHTS, FO_ZERO_COUNT };
/* Gathered weights are given up after each use, after a micro-batch's backward, or at the end of the step. */
enum fo_reshard { FO_RESHARD_FORWARD, FO_RESHARD_BACKWARD, FO_RESHARD_STEP, FO_RESHARD_COUNT };
/* Gradients travel between ranks as they are, or rounded to bf16. */
enum fo_reduce { FO_REDUCE_FP32, FO_REDUCE_BF16, FO_REDUCE_COUNT };
/* Gradients are added up over the shard group once a step, or behind each micro-batch. */
enum fo_sync { FO_SYNC_STEP, FO_SYNC_MICRO_BATCH, FO_SYNC_COUNT };
/* Tiled: scores of some queries and keys at a time. Eager: the probabilities of whole rows, in memory from forward to
 * backward. */
enum fo_attention { FO_ATTENTION_FLASH, FO_ATTENTION_EAGER, FO_ATTENTION_COUNT };
/* Scales of fp8 factors: per tensor, of the numbers themselves or of the maxima of past steps; or per row (column).
 * ROWWISE_HP: weight gradients are matmuls of unrounded factors. */
enum fo_fp8 { FO_FP8_OFF, FO_FP8_CURRENT, FO_FP8_DELAYED, FO_FP8_ROWWISE, FO_FP8_ROWWISE_HP, FO_FP8_COUNT };
enum { FO_FP8_HISTORY_MAX = 65536 };
/* Factors of weight gradients: fp8 like the others, or as they are (as ROWWISE_HP has them anyhow). */
enum fo_fp8_wgrad { FO_FP8_WGRAD_FP8, FO_FP8_WGRAD_PLAIN, FO_FP8_WGRAD_COUNT };
struct fo_pass_field {
	const char *name;
	size_t offset;            /* of an int64_t in struct fo_passes */
	const char *const *value; /* names of its values, or NULL */
	int64_t values;
};
extern const struct fo_pass_field fo_pass_field[];
static inline int64_t fo_passes_get(const struct fo_passes *c, size_t offset)
{
	return *(const int64_t *)((const char *)c + offset);
}
static inline void fo_passes_set(struct fo_passes *c, size_t offset, int64_t value)
{
	*(int64_t *)((char *)c + offset) = value;
}
extern const int fo_pass_fields;
/* The value of the field at `offset` as it follows its name: "=split", "=512", or nothing where it is merely on. */
void fo_pass_value_text(size_t offset, int64_t value, struct fo_str *out);
/* "merge-qkv, fuse-loss=512", or "none". */
void fo_passes_text(const struct fo_passes *c, struct fo_str *out);

/* Layers and recomputation of a pipeline's stages, each of its own. */
enum { FO_STAGING_MOST = 256 }; /* parts of a model, or stages, that can be listed */
struct fo_staging {
	int32_t parts;   /* how many have their layers in the list below; 0: all as many, as near as can be */
	int32_t repeats; /* the same of stages and what they make again; 0: all do as fo_passes.recompute says */
	int16_t layers[FO_STAGING_MOST]; /* by part, in the order of the model */
	/* Sets (enum fo_recompute) that backward repeats in the first `layers` of a stage's layers, and in the rest. */
	struct fo_stage_repeat {
		uint8_t first, rest;
		int16_t layers;
	} repeat[FO_STAGING_MOST];
};

struct fo_lowering {
	/* Rows of `seq` tokens per micro-batch, of this rank alone, with its part of their tokens: T = rows x seq / cp.
	 */
	int64_t seq, rows, micro_batches;
	enum fo_numerics precision;
	enum fo_mode mode;
	int64_t context; /* DECODE: rows of the cache, at least seq; rows and micro_batches are 1. Else 0 */
	struct fo_passes pass;
	struct fo_mesh mesh;
	struct fo_staging stages;
};
/* The shape of the pipeline that a run's mesh and passes ask for. */
struct fo_pp_shape fo_lowering_pipeline(const struct fo_lowering *run);
/* FO_EARG: why this model cannot be divided among these stages so. */
FO_CHECKED fo_status fo_lowering_check_pipeline(const struct fo_lowering *run, int64_t layers);
/* Makes run->pass say what the own stage's backward repeats, where run->stages lists it. Layers count through the
 * model. Lowering does it. */
void fo_lowering_repeat(struct fo_lowering *run, int64_t layers);
/* The layers of each part as text, in the order of the model: "5, 4, 4, 3". */
void fo_lowering_parts_text(const struct fo_lowering *run, int64_t layers, struct fo_str *out);
/* How many of a model's layers part `part` of the pipeline has (0 is the first); *begin: its first one. */
int32_t fo_lowering_part(const struct fo_lowering *run, int64_t layers, int32_t part, int32_t *begin);

struct fo_program {
	struct fo_model model;
	struct fo_lowering run;
	int64_t tokens;                 /* T: of this rank, per micro-batch */
	int32_t rank, ranks;            /* those of run.mesh */
	bool staged;                    /* a stage of a pipeline: pass pp has left its part of the model */
	double job_exec, job_exec_pair; /* of a stage, where known (fo_pass_note_job): FLOP that all ranks run, and
					 * what each pair of a set's micro-batch adds to that; 0: not known */
	int32_t layer_begin,
		layer_end; /* layers that live on this rank; of several chunks from the first to the last */
	struct fo_buffer *buf;
	int nbuf;
	size_t buf_cap;
	struct fo_block *block;
	int nblock;
	size_t block_cap;
	struct fo_slot *slot;
	int nslot;
	size_t slot_cap;
	struct fo_param *param;
	int nparam;
	size_t param_cap;
	uint32_t next_id;
};

/* Whether this rank has the layer, and how many it has. */
bool fo_program_has_layer(const struct fo_program *p, int64_t layer);
int64_t fo_program_layers(const struct fo_program *p);
/* Whether this rank has a buffer's instance of this layer (any where it has no layers). */
bool fo_program_has(const struct fo_program *p, const struct fo_buffer *b, int64_t layer);
/* Whether it has the first part of the model with the embedding, the last with the head. */
bool fo_program_has_embedding(const struct fo_program *p);
bool fo_program_has_head(const struct fo_program *p);

/* The plain program, whatever run->pass says: fo_pass_build (src/pass) does both. */
FO_CHECKED fo_status fo_program_lower(struct fo_program *p, const struct fo_model *m, const struct fo_lowering *run);
void fo_program_fini(struct fo_program *p);

/* Building blocks for lowering and passes. Indices are returned; dimensions default to the whole buffer. */
int fo_buffer_add(struct fo_program *p, const char *name, int dtype, int home, int axes, int64_t rows, int row_axis,
		  int64_t cols, int col_axis);
/* Another one with all that *like has but the name. */
int fo_buffer_like(struct fo_program *p, const char *name, const struct fo_buffer *like);
int fo_buffer_find(const struct fo_program *p, const char *name); /* -1: none */
int fo_block_add(struct fo_program *p, const char *name, int role, int unit);
int fo_block_find(const struct fo_program *p, const char *name);
int fo_block_clone(struct fo_program *p, int from, const char *name);
/* A copy with an id of its own; `origin` is that of what it copies. */
struct fo_op *fo_op_clone(struct fo_program *p, int block, int at, const struct fo_op *from);
struct fo_op *fo_op_insert(struct fo_program *p, int block, int at, int kind, int phase, int lane);
void fo_op_remove(struct fo_program *p, int block, int at);
void fo_op_arg(struct fo_program *p, struct fo_op *o, int buf, int dlayer, int access);
void fo_slot_add(struct fo_program *p, int block, int layer, int mb);
void fo_slot_insert(struct fo_program *p, int at, struct fo_slot s);
int64_t fo_buffer_bytes(const struct fo_buffer *b);

/* Reads and writes programs as text (docs/formats.md). Reading validates and verifies; `where` names it in errors. */
void fo_program_dump(const struct fo_program *p, struct fo_str *out);
FO_CHECKED fo_status fo_program_parse(struct fo_program *p, const char *text, size_t len, const char *where);
/* Reads a program from a file of at most 256 MiB (docs/formats.md). regular: pipes and devices are refused. */
FO_CHECKED fo_status fo_program_read(struct fo_program *p, const char *path, bool regular);
uint64_t fo_program_hash(const struct fo_program *p); /* of the dump: stored beside timelines */

/* ---- accounting ---- */

struct fo_cost { /* FLOP needed by rule mfu, mfu_causal; FLOP run; bytes moved, sent */
	double model, model_causal, exec, bytes, wire;
};
/* The sizes of a matmul c(m,n) of depth k. */
static inline void fo_matmul_dims(const struct fo_op *o, int64_t *m, int64_t *n, int64_t *k)
{
	const struct fo_operand *a = &o->arg[FO_MATMUL_A], *b = &o->arg[FO_MATMUL_B];
	*m = o->attr.ta ? a->nc : a->nr;
	*k = o->attr.ta ? a->nr : a->nc;
	*n = o->attr.tb ? b->nr : b->nc;
}
/* pairs: attention pairs (query, key) in the micro-batch that see each other; < 0 stands for unbroken rows:
 * rows x seq (seq + 1) / 2, in DECODE for the cache's last `seq` rows; less those that a sliding window hides. The
 * second sums a whole step, the third the operations of one category. */
struct fo_cost fo_op_cost(const struct fo_program *p, const struct fo_op *o, double pairs);
struct fo_cost fo_program_cost(const struct fo_program *p, double pairs);
int64_t fo_block_slots(const struct fo_program *p, int block); /* how often a block comes in a step */
int64_t fo_program_step_tokens(const struct fo_program *p);    /* of all ranks, padding included */
/* Whether the rows or columns of an operand are one rank's own in its tp group, and along which coordinates of it. */
bool fo_operand_divided(const struct fo_program *p, const struct fo_operand *a, uint8_t *rows, uint8_t *cols);
/* Bytes that this rank receives from others in a step. */
double fo_program_wire(const struct fo_program *p);
struct fo_cost fo_program_category_cost(const struct fo_program *p, enum fo_category c, double pairs);

/* ---- unrolling: instances, live ranges, waits ---- */

struct fo_life { /* one generation of one buffer instance */
	int32_t buf, layer, mb;
	int32_t first, last; /* instances of its first write and last use */
	int32_t last_on_lane[FO_LANE_COUNT];
	int32_t until; /* set by fo_plan: its bytes are free after this instance; `last`, or later for the wgrad lane */
	int64_t bytes, offset; /* offset: in the arena, in the host's arena (home HOST), or in the persistent area */
	bool persists, taken, moved; /* moved: its bytes went on to an output in place */
	int32_t reads;
	bool again; /* a recomputed generation took its place */
};
struct fo_unrolled {
	int n; /* instances, in issue order */
	int32_t *slot;
	uint16_t *op;                   /* instance -> slot, index of the op in its block */
	int32_t (*wait)[FO_LANE_COUNT]; /* newest instance on each lane that must have finished; -1 none */
	int32_t *arg_begin;             /* n + 1: instance -> first entry of life_of */
	int32_t *life_of;               /* per operand: its life */
	uint32_t *first;                /* bit i: operand i is stored, not added to (DEF, PART, the first ACC) */
	struct fo_life *life;
	int nlife;
	size_t life_cap;
	int32_t *slot_begin; /* nslot + 1: first instance of a slot */
	/* Set by fo_plan; buffers of home HOST are in the last alone. */
	int64_t arena_bytes, persistent_bytes, max_live_bytes, host_arena_bytes;
	int dead_stores; /* values never read, except a second output of a recomputed operation */
};
/* FO_EBUG (naming block, op, buffer) when the program is not well formed: this is the verifier's core. */
FO_CHECKED fo_status fo_unroll(const struct fo_program *p, struct fo_unrolled *u);
void fo_unrolled_fini(struct fo_unrolled *u);
static inline const struct fo_op *fo_instance_op(const struct fo_program *p, const struct fo_unrolled *u, int i)
{
	return &p->block[p->slot[u->slot[i]].block].op[u->op[i]];
}
/* Drops waits that follow from others (one vector per lane): what remains is what events are made from. */
void fo_prune_waits(const struct fo_program *p, struct fo_unrolled *u);

/* Time-ordered best fit, in two arenas; 64-byte aligned offsets; adds the waits that reuse needs. */
void fo_plan(const struct fo_program *p, struct fo_unrolled *u);

/* Checks shapes per kind, rectangles, definitions before uses, every gradient taken, no dead stores, each parameter
 * element owned by exactly one optimizer rectangle (TRAIN), model FLOP equal to the closed formula. `after` names the
 * pass for the message. */
FO_CHECKED fo_status fo_program_verify(const struct fo_program *p, const char *after);
/* NULL, or why the operands of this op do not fit together. */
const char *fo_op_check(const struct fo_program *p, const struct fo_op *o);
/* Letters (enum fo_dim) of operand i; a transposed factor of a matmul has them the other way round. */
void fo_op_dims(const struct fo_op *o, int i, int *rows, int *cols);

#endif
