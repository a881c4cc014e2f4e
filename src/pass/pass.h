/* Passes: optimisations that rewrite a step program, one file each. Every pass keeps the mathematics, except those
 * about precision (master, moments, fp8): losses, gradients and updated weights are those of the plain program up to
 * rounding (tests/step/test_passes.c). Model FLOP are the same for all.
 *
 * p->run.pass (struct fo_passes, program.h) says what a program asks for; 0 means off. Programs that share a store
 * (training, evaluation, a sample) are built with the same choice, because some passes change weights and their state;
 * a pass does what applies to the program's mode. docs/passes/README.md explains the order. */
#ifndef FO_PASS_PASS_H
#define FO_PASS_PASS_H

#include "hw/catalogue.h"
#include "cost/device.h"
#include "program/program.h"
#include "program/roles.h"
#include "program/run.h"

enum fo_pass_kind { FO_PASS_SHARD, FO_PASS_REWRITE, FO_PASS_SCHEDULE };
extern const char *const fo_pass_kind_name[];

/* FO_OK, or FO_EARG with the reason why this program cannot have the pass. */
typedef fo_status fo_pass_legal_fn(const struct fo_program *p);
/* Rewrites a program; called only where it is legal. */
typedef void fo_pass_fn(struct fo_program *p);

struct fo_pass {
	const char *name; /* as in options, messages and docs/passes/NAME.md */
	enum fo_pass_kind kind;
	const char *doc;         /* one line: what it does to the program, and the gain */
	size_t choice;           /* offset of its int64_t in struct fo_passes; 0 there: off */
	int64_t on;              /* a usual value where it is on, for `flatout passes` */
	fo_pass_legal_fn *legal; /* NULL: always legal */
	fo_pass_fn *apply;
};
extern const struct fo_pass fo_pass_table[];
extern const int fo_pass_count;

/* Applies to a lowered program what p->run.pass asks for, in the table's order, and verifies after each pass. FO_EARG
 * names a pass that is not legal here. The program is finished (fo_program_fini) on failure. */
FO_CHECKED fo_status fo_passes_apply(struct fo_program *p);
/* fo_program_lower and then fo_passes_apply: how programs are made everywhere. */
FO_CHECKED fo_status fo_pass_build(struct fo_program *p, const struct fo_model *m, const struct fo_lowering *run);
/* The same program without a look at it after each pass, which takes most of the time: for planners, whose programs
 * nobody runs. */
FO_CHECKED fo_status fo_pass_build_unverified(struct fo_program *p, const struct fo_model *m,
					      const struct fo_lowering *run);
/* Notes in a stage's program what all ranks of the job run (fo_program.job_exec): the program of all layers is built
 * for it. Others are left as they are. */
void fo_pass_note_job(struct fo_program *p);
/* The training program of a run without running it: read from program.file, else lowered, with what is left open chosen
 * for memory.budget (else memory.limit, else no limit). */
FO_CHECKED fo_status fo_pass_build_run(struct fo_program *p, const struct fo_run *r);

/* The programs of all ranks of the mesh of `first`, built as that one was, and checked together (program/roles.h). Of
 * each role the program of one rank is kept. FO_EBUG: they do not fit together. */
struct fo_pass_ranks {
	struct fo_program *program; /* by role */
	int n;
	struct fo_roles roles;
};
FO_CHECKED fo_status fo_pass_build_ranks(struct fo_pass_ranks *r, const struct fo_program *first);
void fo_pass_ranks_fini(struct fo_pass_ranks *r);

/* The program of the first rank of a stage, built as `first` was. */
FO_CHECKED fo_status fo_pass_build_stage(struct fo_program *out, const struct fo_program *first, int32_t stage);
/* One stage of a pipeline, and the planned bytes of each of its ranks. */
struct fo_pass_stage {
	int32_t ranks;
	int64_t layers;
	bool embedding, head;
	int64_t arena_bytes, persistent_bytes; /* activations and gradients; weights and state */
	struct fo_passes pass;                 /* its own */
};
/* out[s]: of stage s of first's mesh, of which there are fo_mesh_pp. */
FO_CHECKED fo_status fo_pass_stages(const struct fo_program *first, struct fo_pass_stage *out);

/* ---- helpers that passes share (edit.c) ---- */

/* Makes one buffer of `n` (at least 2) of equal rows (by_rows: columns), data type, home and axes, in this order. Every
 * operand, and the parameters' rectangles, become rectangles of it. The first DEF of a block stays one, later ones
 * become PART, except for what persists. Returns its index; the old buffers stand empty until fo_edit_sweep. */
int fo_edit_concat(struct fo_program *p, const char *name, const int *ids, int n, bool by_rows);
/* Joins operations of one kind on adjacent rectangles (matmuls over m, n or k, rotations, biases, sums of squares,
 * optimizer steps) where the later one may move up to the earlier one. */
void fo_edit_join(struct fo_program *p);
/* Drops buffers that neither operand nor parameter names; indices change. */
void fo_edit_sweep(struct fo_program *p);
/* Blocks that no slot uses are gone. */
void fo_edit_sweep_blocks(struct fo_program *p);
/* May operation `from` of a block stand at `to` instead, either way? */
bool fo_edit_can_move(const struct fo_program *p, int block, int from, int to);
/* Whether two operations run at the same place: phase, lane and group are equal. */
bool fo_edit_beside(const struct fo_op *x, const struct fo_op *y);
/* Operations i < k of a block become `fused`, at either place: at i where k may move up to it, else at k where i may
 * move down. False: neither may move, nothing is changed. Operations after the one that went move up by one. */
bool fo_edit_fuse(struct fo_program *p, int block, int i, int k, const struct fo_op *fused);
/* Whether the order of two operations of one block matters. */
bool fo_edit_conflict(const struct fo_op *x, const struct fo_op *y);
/* A slot of `block`, without layer, in front of the first one whose block is `of`. */
void fo_edit_put_before(struct fo_program *p, int block, int of);
/* Whether two operands name the same elements. */
bool fo_edit_same(const struct fo_operand *a, const struct fo_operand *b);
/* Slots of `block` that `apart` says (by slot) get a block of their own, a copy named "BLOCK.SUFFIX"; returns it, or -1
 * where there is no such slot. */
int fo_edit_split(struct fo_program *p, int block, const char *suffix, const bool *apart);

/* ---- the passes ---- */

fo_pass_legal_fn fo_pass_tp_legal, fo_pass_cp_legal, fo_pass_pp_legal, fo_pass_tp_async_legal, fo_pass_attention_legal,
	fo_pass_master_legal, fo_pass_moments_legal, fo_pass_fp8_legal, fo_pass_fp8_precompute_legal,
	fo_pass_fp8_transposed_legal, fo_pass_fp8_fuse_legal, fo_pass_fuse_loss_legal, fo_pass_recompute_legal,
	fo_pass_offload_legal, fo_pass_ddp_legal, fo_pass_zero_legal, fo_pass_optimizer_in_backward_legal;
fo_pass_fn fo_pass_tp, fo_pass_cp, fo_pass_pp, fo_pass_pp_weights, fo_pass_tp_async, fo_pass_merge_qkv,
	fo_pass_merge_gate_up, fo_pass_attention, fo_pass_master, fo_pass_moments, fo_pass_fp8, fo_pass_fp8_precompute,
	fo_pass_fp8_transposed, fo_pass_fp8_fuse, fo_pass_fuse_loss, fo_pass_recompute, fo_pass_fuse_elementwise,
	fo_pass_fuse_rope, fo_pass_offload, fo_pass_fused_optimizer, fo_pass_ddp, fo_pass_zero,
	fo_pass_optimizer_in_backward, fo_pass_wgrad_lane;

/* cp_heads.c: pass cp where each rank has some heads of all tokens. */
void fo_pass_cp_heads(struct fo_program *p);
/* ddp.c: sums of the gradients in `of` (by buffer) over all ranks behind each micro-batch but the last. */
void fo_pass_ddp_each(struct fo_program *p, const bool *of);
/* ddp.c: of[2] = of[0] + of[1], operation `at` of a block. */
void fo_pass_put_sum(struct fo_program *p, int block, int at, int phase, const struct fo_operand of[3]);
/* ddp.c: a block that adds `own` up over a group, and makes `all` of it and `rest` (-1: there is none, nothing is
 * made).
 */
int fo_pass_ddp_norm(struct fo_program *p, const char *name, enum fo_group group, int own, int rest, int all);
/* fsdp.c: weights that ranks share (fo_buffer.whole) are gathered where forward and backward read them. */
void fo_pass_zero_weights(struct fo_program *p);
/* zero.c: p, a program of another mode, shares the weights that `train` shares, the training program of one mesh. */
void fo_pass_zero_follow(struct fo_program *p, const struct fo_program *train);
/* recompute.c: "norm, swiglu in the first 3 of 12 layers, norm in the rest", or "nothing"; where stages of a pipeline
 * have their own, "stage 0: everything; stages 1 to 3: nothing", with layers counted in the stage. */
void fo_recompute_text(const struct fo_lowering *run, int64_t layers, struct fo_str *out);
/* The same of one stage. */
void fo_recompute_stage_text(const struct fo_lowering *run, int64_t layers, int32_t stage, struct fo_str *out);
/* The set (enum fo_recompute) that an operation of a layer's forward block belongs to. */
int fo_recompute_set_of(const struct fo_block *forward, int op);

struct fo_choose_rates;
/* divide.c: balances the layers of run->mesh's stages (run->stages) by predicted seconds, where that makes the slowest
 * stage faster than even stages do. All layers count as alike. room_bytes: of a rank; 0: no limit. leanest: what is
 * recomputed is still open, so it counts as all that can be where the room is asked for. FO_EARG: such stages cannot
 * be. */
FO_CHECKED fo_status fo_pass_divide(const struct fo_model *m, struct fo_lowering *run, int64_t room_bytes, bool leanest,
				    const struct fo_choose_rates *rates);
/* fp8.c: FO_EARG where a part of the pipeline has no layer that takes fp8, and delayed scales want one. */
FO_CHECKED fo_status fo_pass_fp8_stages(const struct fo_lowering *run, int64_t layers);

/* ---- choosing (choose.c) ---- */

/* Rates that choices, and orders of operations, are made with (op_seconds.c): FLOP/s of matmuls and of attention,
 * bytes/s of memory. Only their ratios matter. They are fixed for a kind of machine, so that a run file makes the same
 * choice on every machine of that kind. */
struct fo_choose_rates {
	double product_flop_s, attention_flop_s, memory_bytes_s;
	bool on_device;                /* `device` is known */
	struct fo_device_rates device; /* its profile is NULL: the same run file makes the same choice */
};
extern const struct fo_choose_rates fo_choose_processor;
/* The rates of the device in this row of the catalogue: the middle of its intervals (cost/device.h), for fp32 in
 * proportion to the peaks. row NULL, or a row without known rates: those of an H200. */
struct fo_choose_rates fo_choose_device(const struct fo_device *row, enum fo_numerics precision);

/* Seconds by the model that choices are made with: FLOP over a rate plus bytes over a rate. They compare plans and
 * predict nothing. */
double fo_op_seconds(const struct fo_program *p, const struct fo_op *o, const struct fo_choose_rates *rates);
/* The same for a whole step; repeated: only its recomputed operations. */
double fo_program_seconds(const struct fo_program *p, const struct fo_choose_rates *rates, bool repeated);
/* Share of a step's time, by that model, that `most` micro-batches in a step would save: the optimizer runs once a
 * step. */
double fo_program_gain_of_more(const struct fo_program *p, const struct fo_choose_rates *rates, int64_t most);

/* Passes that pay on a device only: taken where they are predicted to save a thousandth of the step's time. */
enum { FO_PREDICTED_PASSES = 3 };
extern const struct fo_predicted_pass {
	const char *key; /* of the option */
	size_t of_run;   /* offset of its int (enum fo_run_choice) in struct fo_run */
	size_t of_pass;  /* of its int64_t in struct fo_passes */
} fo_predicted_pass[FO_PREDICTED_PASSES];
struct fo_predicted {
	bool open, taken; /* the run left it open; and it is done */
	double gain;      /* predicted share of a step's time that it saves; NAN: not known, then it is not taken */
};
/* One way to train that the user allows. Any ask of a lower tier is preferred; within a tier the faster one. */
struct fo_ask {
	struct fo_lowering run;
	int tier; /* from 0 */
};
struct fo_choose {
	int64_t budget_bytes;  /* for all that the run takes; 0: no limit */
	int64_t reserve_bytes; /* of it, what the run takes beside its arena and what persists */
	int64_t batch_rows;    /* rows of a step, to be split into equal micro-batches; 0: as the ask says */
	bool recompute;        /* choose what is recomputed; else as the ask says */
	bool divide;           /* divide layers over stages (fo_pass_divide); else as the ask says */
	int64_t stage_bytes;   /* what a stage may take then; 0: no limit */
	bool host_apart; /* the budget is a device's: what waits in host memory (pass offload) is not part of it */
	bool fuse_loss;  /* choose the chunk of pass fuse-loss, at least the ask's; else as the ask says */
	const struct fo_choose_rates *rates; /* NULL: fo_choose_processor */
};
struct fo_choice {
	struct fo_lowering run; /* with everything chosen */
	/* Seconds of a step by the model, and the part that is recomputation; 0: nothing was chosen, or nothing fits.
	 */
	double seconds, repeat_seconds;
	/* Planned: arena, what persists, and host memory unless host_apart; of several stages the mean. */
	int64_t bytes;
	int candidates, planned;                            /* how many there were, how many had to be planned */
	struct fo_predicted predicted[FO_PREDICTED_PASSES]; /* on a device, in the order of fo_predicted_pass */
	bool fuse_loss;                                     /* the chunk was chosen */
	double fuse_loss_gain; /* share of a step's time that it saves against the smallest chunk, by the model */
};
/* The plan of least time that fits. FO_ENOMEM: none does; the message names the least, which out->run is, and what
 * would fit. */
FO_CHECKED fo_status fo_pass_choose(const struct fo_model *m, const struct fo_ask *ask, int asks,
				    const struct fo_choose *want, struct fo_choice *out);
/* Chooses what a run leaves open (pass.recompute=auto, train.batch-rows, optim.state) within budget_bytes (0: no
 * limit), of which reserve_bytes are for other things than the program. device: rates of the device that computes and
 * has the memory; there pass.fuse-loss=auto and the passes of fo_predicted_pass are open too. NULL: a processor. */
FO_CHECKED fo_status fo_pass_choose_run(const struct fo_run *r, const struct fo_model *m, int64_t budget_bytes,
					int64_t reserve_bytes, const struct fo_choose_rates *device,
					struct fo_choice *out);
/* The same by what the run itself says: its own budget, and an H200 where train.device names a device (auto: no). */
FO_CHECKED fo_status fo_pass_choose_said(const struct fo_run *r, const struct fo_model *m, struct fo_choice *out);

#endif
