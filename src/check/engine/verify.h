/* `flatout verify`: checks this machine's kernels, or a CUDA device's, and the engine around them.
 *
 * - Kernels: every operation of ops.def with every kernel set that has it, fp32 and bf16, against double precision
 *   (num.h). `ref`, by which the others are measured, has an a priori bound (fo_num_check_naive).
 * - Step: losses, gradient norms and every gradient of a small Llama against stored values in double precision
 *   (data/step_values.inc); the bound is twice the error of transformers in the same precision.
 * - Determinism: the same steps twice, the same bits. Checkpoint: saved, read back, the same bits; damaged, refused.
 *   Ranks, where asked for: three steps of as many ranks against those of one.
 *   Program, not on a device: dumped, read back, the same program and the same bits.
 *
 * cuDNN's attention adds the gradient of queries in no fixed order: steps with it that give other bits the second time
 * are not checked, not failed. What did not run is FO_VERIFY_NOT_CHECKED with its reason in `detail`, never a pass.
 * Threads: one call at a time. */
#ifndef FO_CHECK_VERIFY_H
#define FO_CHECK_VERIFY_H

#include "check/engine/num.h"
#include "base/mem.h"
#include "kernel/kernel.h"

enum fo_verify_result { FO_VERIFY_PASS, FO_VERIFY_FAIL, FO_VERIFY_NOT_CHECKED, FO_VERIFY_RESULTS };
extern const char *const fo_verify_result_name[FO_VERIFY_RESULTS]; /* "pass", "FAIL", "not checked" */

/* One comparison. Texts belong to the report. */
struct fo_verify_check {
	const char *group;   /* "kernels avx2 bf16", "step ref fp32", "checkpoint" */
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
	int ranks;   /* above 1: as many are compared with one */
	const char *device;   /* of ranks, where cuda is not NULL: how they open theirs, as train.device */
	struct fo_cuda *cuda; /* what is checked; NULL: the processor */
	/* Called with the group that begins; may be NULL. */
	void (*progress)(void *ctx, const char *group);
	void *ctx;
};

/* Runs everything. An error means that nothing can be checked (FLATOUT_ISA is wrong, no memory); a check that fails or
 * cannot run is in the report. Ended with fo_verify_fini, also after an error. */
FO_CHECKED fo_status fo_verify(const struct fo_verify_options *o, struct fo_verify_report *r);
void fo_verify_fini(struct fo_verify_report *r);

/* Operations that have a kernel but no case for operands of this dtype: names into `out` (at most cap), returns how
 * many. */
int fo_verify_uncovered(int dtype, const char **out, int cap);

#endif
