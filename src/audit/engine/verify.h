/* `flatout verify`: holds this machine's kernels, or a CUDA device's, and the engine around them to what they should
 * give.
 *
 * - Kernels: every operation of ops.def with every kernel set that has it, fp32 and bf16, against double precision
 * (num.h). `ref` itself is the naive implementation that the others are measured by, so its bound is a priori: four
 * roundings to the output's type plus four roundings to fp32 times the root of the longest sum.
 * - Step: losses, gradient norms and every gradient of a small Llama against stored values in double precision
 *   (step_values.inc; tests/golden/make_step.py); the bound is twice the error of transformers in the same precision.
 * - Determinism: the same steps twice, the same bits. Checkpoint: saved, read back, the same bits; damaged, refused.
 * Program: dumped, read back, the same program and the same bits.
 *
 * On a device: its kernels, the step, determinism and the checkpoint. Attention by cuDNN adds the gradient of queries
 * in no fixed order: steps with it that give other bits the second time are not checked, not failed.
 *
 * What did not run is FO_VERIFY_NOT_CHECKED with its reason in `detail`, never a pass. Threads: one call at a time. */
#ifndef FO_AUDIT_VERIFY_H
#define FO_AUDIT_VERIFY_H

#include "audit/engine/num.h"
#include "base/mem.h"
#include "kernel/kernel.h"

enum fo_verify_result { FO_VERIFY_PASS, FO_VERIFY_FAIL, FO_VERIFY_NOT_CHECKED, FO_VERIFY_RESULTS };
extern const char *const fo_verify_result_name[FO_VERIFY_RESULTS]; /* "pass", "FAIL", "not checked" */

/* One thing that was held against one other. Texts belong to the report. */
struct fo_verify_check {
	const char *group;   /* "kernels avx2 bf16", "step ref fp32", "checkpoint": checks of a group stand together */
	const char *name;    /* "matmul", "loss", "gradient of model.norm.weight" */
	const char *against; /* what is right: "double precision", "the first run" */
	double error, bound; /* NAN where nothing is measured: bits are equal or not */
	enum fo_verify_result result;
	const char *detail; /* how much was done, why it failed, or why it was not checked; may be NULL */
};
struct fo_verify_report {
	struct fo_verify_check *check;
	size_t n, cap;
	int count[FO_VERIFY_RESULTS];
	double seconds;
	struct fo_arena arena;
};
struct fo_verify_options {
	bool brief;  /* the chosen kernel set only, one layout and thread count per case: for the start of a run */
	int threads; /* of steps; >= 1 */
	struct fo_cuda *cuda; /* what is checked; NULL: the processor */
	/* Called with the group that begins; may be NULL. */
	void (*progress)(void *ctx, const char *group);
	void *ctx;
};

/* Runs everything. An error means that nothing can be said (FLATOUT_ISA is wrong, no memory); a check that fails or
 * cannot run is in the report. The caller ends the report with fo_verify_fini, also after an error. */
FO_CHECKED fo_status fo_verify(const struct fo_verify_options *o, struct fo_verify_report *r);
void fo_verify_fini(struct fo_verify_report *r);

/* Operations that have a kernel but no case for operands of this dtype: names into `out` (at most cap), returns how
 * many. */
int fo_verify_uncovered(int dtype, const char **out, int cap);

#endif
