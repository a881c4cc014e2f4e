#include "pass/pass.h"
#include "base/fs.h"

#include <stddef.h>

const char *const fo_pass_kind_name[] = { "shard", "rewrite", "schedule" };

#define PASS(field, name_, kind_, on_, legal_, apply_, text)                                                      \
	{                                                                                                         \
		.name = name_, .kind = FO_PASS_##kind_, .doc = text, .choice = offsetof(struct fo_passes, field), \
		.on = on_, .legal = legal_, .apply = apply_                                                       \
	}
/* The passes in the order in which they are applied. */
const struct fo_pass fo_pass_table[] = {
	PASS(tp, "tp", SHARD, FO_TP_SEQUENCE, fo_pass_tp_legal, fo_pass_tp,
	     "ranks of a tp group have the same rows and divide the layers' weights, heads and columns among them"),
	PASS(cp, "cp", SHARD, FO_CP_RING, fo_pass_cp_legal, fo_pass_cp,
	     "ranks of a cp group share the tokens of rows; keys and values travel round a ring while queries meet "
	     "those that are there, or each rank has some heads of all tokens for attention"),
	PASS(merge_qkv, "merge-qkv", REWRITE, 1, NULL, fo_pass_merge_qkv,
	     "queries, keys and values come from one matmul: their input is read once, forward and backward"),
	PASS(merge_gate_up, "merge-gate-up", REWRITE, 1, NULL, fo_pass_merge_gate_up,
	     "gate and up come from one matmul: their input is read once, forward and backward"),
	PASS(attention, "attention", REWRITE, FO_ATTENTION_EAGER, fo_pass_attention_legal, fo_pass_attention,
	     "attention keeps the probabilities of whole rows in memory, as an untuned stack does: a baseline, it "
	     "gives nothing"),
	PASS(master, "master", REWRITE, 1, fo_pass_master_legal, fo_pass_master,
	     "the fp32 number that a bf16 weight is rounded from is stored as that weight and a low half (split), or "
	     "not at all (none)"),
	PASS(moments, "moments", REWRITE, 1, fo_pass_moments_legal, fo_pass_moments,
	     "AdamW's moments are stored in bf16, half the bytes"),
	PASS(pp, "pp", SCHEDULE, 1 + FO_PP_1F1B, fo_pass_pp_legal, fo_pass_pp,
	     "ranks of a pp group are stages of a pipeline: each has its part of the layers, and activations travel "
	     "from one to the next"),
	PASS(fp8, "fp8", REWRITE, 1, fo_pass_fp8_legal, fo_pass_fp8,
	     "the layers' matmuls take fp8 factors with scales, cast once for all that read them"),
	PASS(fp8_precompute, "fp8-scale-precompute", REWRITE, 1, fo_pass_fp8_precompute_legal, fo_pass_fp8_precompute,
	     "weights are scaled and cast to fp8 once per step, after their optimizer step"),
	PASS(fp8_transposed, "fp8-transposed", REWRITE, 1, fo_pass_fp8_transposed_legal, fo_pass_fp8_transposed,
	     "casts to fp8 write transposed copies too: every fp8 matmul sums along the rows of both factors, as "
	     "Hopper's do"),
	PASS(fuse_loss, "fuse-loss", REWRITE, 512, fo_pass_fuse_loss_legal, fo_pass_fuse_loss,
	     "head, loss and their gradients by chunks of tokens: the logits never exist in full"),
	PASS(recompute, "recompute", REWRITE, FO_RECOMPUTE_SELECTIVE, fo_pass_recompute_legal, fo_pass_recompute,
	     "backward makes activations again instead of keeping them: less memory, more work that runs"),
	PASS(fuse_elementwise, "fuse-elementwise", REWRITE, 1, NULL, fo_pass_fuse_elementwise,
	     "an addition and the norm of its sum, and both gradients of a norm, are one walk over memory each"),
	PASS(fuse_rope, "fuse-rope", REWRITE, 1, NULL, fo_pass_fuse_rope,
	     "attention's gradients are turned back by rope before they are stored: dq and dk are not read and written "
	     "again"),
	PASS(fp8_fuse, "fp8-fuse", REWRITE, 1, fo_pass_fp8_fuse_legal, fo_pass_fp8_fuse,
	     "norms, SwiGLU and its backward cast what they make to fp8 by the delayed scale; what only casts read is "
	     "never stored"),
	PASS(offload, "offload", REWRITE, 1, fo_pass_offload_legal, fo_pass_offload,
	     "activations of the first layers wait for backward in host memory, copied beside compute: for devices, on "
	     "a CPU it only moves bytes"),
	PASS(fused_optimizer, "fused-optimizer", REWRITE, 1, NULL, fo_pass_fused_optimizer,
	     "one operation steps many tensors: threads start once and share them evenly"),
	PASS(tp_async, "tp-async", SCHEDULE, FO_TP_ASYNC_AUTO, fo_pass_tp_async_legal, fo_pass_tp_async,
	     "gathers and scatters of a tp group travel in pieces, while the work on other pieces goes on"),
	PASS(pp, "pp-weights", SCHEDULE, 1 + FO_PP_1F1B, NULL, fo_pass_pp_weights,
	     "zero-bubble schedules of stages: gradients of weights come later than those of inputs"),
	PASS(ddp, "ddp", SCHEDULE, 25, fo_pass_ddp_legal, fo_pass_ddp,
	     "on several ranks: gradients are added up over all of them, in buckets, while backward goes on"),
	PASS(zero, "zero", SCHEDULE, FO_ZERO_WEIGHTS, fo_pass_zero_legal, fo_pass_zero,
	     "ranks of a shard group share optimizer state (1), gradients (2) and weights (3), by rows; 3 gathers "
	     "weights ahead of their use"),
	PASS(optimizer_in_backward, "optimizer-in-backward", SCHEDULE, 1, fo_pass_optimizer_in_backward_legal,
	     fo_pass_optimizer_in_backward,
	     "a parameter is updated as soon as its gradient is complete, and the gradient's bytes are free"),
	PASS(wgrad_lane, "wgrad-lane", SCHEDULE, 1, NULL, fo_pass_wgrad_lane,
	     "weight-gradient matmuls run on a lane of their own beside the rest of backward: for devices, to fill "
	     "what kernels leave idle"),
};
#undef PASS
const int fo_pass_count = sizeof fo_pass_table / sizeof *fo_pass_table;

/* Evaluation works on training's weights, so where ranks share these it is told how. */
static void follow_training(struct fo_program *p, const struct fo_pass *pass)
{
	struct fo_program train;
	struct fo_lowering low = p->run;
	low.mode = FO_MODE_TRAIN;
	if (pass->apply != fo_pass_zero || p->run.mode == FO_MODE_TRAIN || p->run.pass.zero != FO_ZERO_WEIGHTS ||
	    fo_mesh_group(&p->run.mesh, FO_GROUP_SHARD, NULL, NULL) < 2)
		return;
	if (fo_pass_build(&train, &p->model, &low) != FO_OK) {
		fo_err_clear(); /* no training, nothing that is shared: the weights of any store are whole */
		return;
	}
	fo_pass_zero_follow(p, &train);
	fo_program_fini(&train);
}

static fo_status apply_one(struct fo_program *p, const struct fo_pass *pass, bool verified)
{
	if (pass->legal) {
		fo_status st = pass->legal(p);
		if (st != FO_OK)
			return fo_wrap(st, "pass %s", pass->name);
	}
	pass->apply(p);
	follow_training(p, pass);
	return verified ? fo_program_verify(p, pass->name) : FO_OK;
}

static fo_status apply_all(struct fo_program *p, bool verified)
{
	for (int i = 0; i < fo_pass_count; i++) {
		if (!fo_passes_get(&p->run.pass, fo_pass_table[i].choice))
			continue;
		fo_status st = apply_one(p, &fo_pass_table[i], verified);
		if (st != FO_OK) {
			fo_program_fini(p);
			return st;
		}
	}
	return FO_OK;
}

fo_status fo_passes_apply(struct fo_program *p) { return apply_all(p, true); }

fo_status fo_pass_build_unverified(struct fo_program *p, const struct fo_model *m, const struct fo_lowering *run)
{
	FO_TRY(fo_program_lower(p, m, run));
	return apply_all(p, false);
}

fo_status fo_pass_build(struct fo_program *p, const struct fo_model *m, const struct fo_lowering *run)
{
	FO_TRY(fo_program_lower(p, m, run));
	return fo_passes_apply(p);
}
