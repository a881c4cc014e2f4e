/* Private to src/check: shared by the parts of the self-check. */
#ifndef FO_CHECK_VERIFY_INT_H
#define FO_CHECK_VERIFY_INT_H

#include "check/engine/verify.h"
#include "train/exec.h"
#include "train/ports.h"

struct fo_verify_run {
	const struct fo_verify_options *o;
	struct fo_verify_report *r;
	enum fo_isa isa; /* the chosen one */
};

/* Begins a group: its name, printf-like, in the report's memory; announced to the caller. */
const char *fo_verify_group(struct fo_verify_run *v, const char *fmt, ...) FO_PRINTF(2, 3);
/* Adds a check; name and detail are copied. */
void fo_verify_put(struct fo_verify_run *v, struct fo_verify_check c);
/* Adds a check that passes when error <= bound (a NaN does not). detail may be NULL. */
void fo_verify_measured(struct fo_verify_run *v, const char *group, const char *name, const char *against, double error,
			double bound, const char *detail);
/* Adds a check without a figure. */
void fo_verify_add(struct fo_verify_run *v, const char *group, const char *name, const char *against,
		   enum fo_verify_result result, const char *detail);
/* The check passes where the bits are the same. */
void fo_verify_same_bits(struct fo_verify_run *v, const char *group, const char *name, const char *against, bool same);
/* Adds "FAIL" with this thread's error text. */
void fo_verify_error(struct fo_verify_run *v, const char *group, const char *name, const char *against);
/* Is this set checked? (fo_verify reports once why it is not.) */
bool fo_verify_set_runs(const struct fo_verify_run *v, enum fo_isa isa);

/* ---- src/check/engine/verify_step.c: a whole small step ---- */

struct fo_verify_rig {
	struct fo_program program;
	struct fo_store *store;
	struct fo_exec *exec;
	struct fo_ports ports;
	struct fo_batch batch;
};
/* The stored model, tokens and weights before the first step. Ended with fo_verify_rig_fini, also after an error. text:
 * NULL, or a dumped program to run in place of the lowered one. */
FO_CHECKED fo_status fo_verify_rig_init(struct fo_verify_rig *g, enum fo_numerics precision,
					const struct fo_exec_options *how, const struct fo_str *text);
void fo_verify_rig_fini(struct fo_verify_rig *g);
/* Optimizer steps `first`.. (1-based), n of them. loss, norm: (n) each; may be NULL. */
FO_CHECKED fo_status fo_verify_rig_steps(struct fo_verify_rig *g, int first, int n, double *loss, double *norm);
/* XXH3 over weights, master copies, moments and the last loss. */
FO_CHECKED fo_status fo_verify_rig_digest(struct fo_verify_rig *g, uint64_t *digest);

/* The result of comparing bits after steps of g: FO_VERIFY_NOT_CHECKED where cuDNN may make them differ. */
enum fo_verify_result fo_verify_bits(const struct fo_verify_rig *g, bool same);
/* Instruction set and threads, or the device. */
struct fo_exec_options fo_verify_how(const struct fo_verify_run *v, enum fo_isa isa);

void fo_verify_steps(struct fo_verify_run *v);
void fo_verify_repeat(struct fo_verify_run *v);
void fo_verify_program(struct fo_verify_run *v);
void fo_verify_checkpoint(struct fo_verify_run *v);
void fo_verify_ranks(struct fo_verify_run *v); /* verify_ranks.c */

#endif
