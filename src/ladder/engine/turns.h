/* Running a ladder: in every round each rung trains the next share of its steps, in an order drawn anew. A turn is a
 * forked child that resumes the rung's checkpoint, stops behind its share and saves; what kills it is that rung's
 * failure while the others go on. All that happened lies in the rungs' directories, so a ladder that was stopped or
 * killed goes on with the turn that is missing.
 *
 * The caller's process must not have run OpenMP yet: its threads would be missing in the children. */
#ifndef FO_LADDER_ENGINE_TURNS_H
#define FO_LADDER_ENGINE_TURNS_H

#include "ladder/ladder.h"
#include "train/train.h"

#include <signal.h>

struct fo_ladder_turn {
	const struct fo_ladder_plan *plan;
	int rung, round;    /* rung -1: the text is prepared */
	int turn, turns;    /* of all that are left, this one included in `turn`, from 1 */
	int64_t first, end; /* steps done before and after it */
};
struct fo_ladder_hooks {
	void *ctx;
	/* Called in the child: sets the hooks of its training; `stop`, run_json and dry_run are set by this module. */
	void (*child)(void *ctx, const struct fo_ladder_turn *t, struct fo_train_hooks *out);
	char *(*run_json)(void *ctx, struct fo_opt_set *s); /* heap: what run.json says of the command line */
	/* Called in the caller's process. */
	void (*turn)(void *ctx, const struct fo_ladder_turn *t);                      /* begins */
	void (*done)(void *ctx, const struct fo_ladder_turn *t, const char *failure); /* failure NULL: as it should */
	const volatile sig_atomic_t *stop; /* not 0: the turn that runs saves, and no other begins */
};
/* Does what is missing of the plan (which fo_ladder_plan_keep has kept). FO_EINTERRUPT after a stop. A rung that fails
 * is noted in its directory and left out until the next call; only when the text cannot be prepared, or no process can
 * be made, that is the call's error. */
FO_CHECKED fo_status fo_ladder_turns(const struct fo_ladder_plan *p, const struct fo_ladder_hooks *h);

#endif
