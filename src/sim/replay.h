/* What-if: the recorded steps of a run again, with other times.
 *
 * Every rank's operations run in their order, each when what it waits for has ended and after the pause that it was
 * recorded with; calls begin when their last rank comes and take what they took. Without a change that gives the
 * recorded step, and how far it does not is said. Then times of operations, lanes or links are replaced, or a rank
 * takes what the others take, and the difference is what the change is worth. What was not recorded (other work of
 * the machine, what would be slower with other settings) stays as it was. */
#ifndef FO_SIM_REPLAY_H
#define FO_SIM_REPLAY_H

#include "sim/fleet.h"
#include "timeline/timeline.h"

enum { FO_REPLAY_STEPS = 8, FO_REPLAY_CHANGES = 32 };

/* Times of operations (by kind; also "KIND of BLOCK") or of a lane, times a factor. */
struct fo_replay_scale {
	char name[64];
	double factor;
};
struct fo_replay_changes {
	struct fo_replay_scale scale[FO_REPLAY_CHANGES];
	int scales;
	double links; /* how many times as fast; 0 stands for 1 */
	int without;  /* the rank that takes what the others take; -1: none */
};

struct fo_replay_rank {
	struct fo_timeline_file file;
	struct fo_program p;
	struct fo_unrolled u;
	bool known;
};
struct fo_replay {
	int ranks; /* of the job */
	int known; /* that left a timeline */
	int alone; /* >= 0: only this rank is replayed, because others left none; calls take what they took */
	struct fo_replay_rank *rank;   /* each of them */
	int32_t step[FO_REPLAY_STEPS]; /* as spans name them, the newest last */
	int steps;
	double measured_s[FO_REPLAY_STEPS]; /* from the first begin to the last end of any rank */
	int slow;                           /* the rank that is slower than all others beyond chance; -1: none */
	bool slow_known;                    /* there are steps enough to say so */
	int slow_steps, slow_needed;
};
/* path: a run's folder, or a timeline file with its program beside it. FO_EFORMAT, FO_EIO: it is none, or damaged;
 * FO_EARG: it holds no whole step. Needs fo_replay_fini in no case of failure. */
FO_CHECKED fo_status fo_replay_open(struct fo_replay *x, const char *path);
void fo_replay_fini(struct fo_replay *x);
/* "matmul=0.5,lane:reduce=0". FO_EARG: a name that this run has no operation of, or a factor that cannot be. */
FO_CHECKED fo_status fo_replay_parse(struct fo_replay_changes *c, const struct fo_replay *x, const char *text);

/* One step (its number in x->step), with changes or (c NULL) without. */
struct fo_replay_step {
	struct fo_fleet fleet;
	struct fo_fleet_run run;
	struct fo_fleet_path path;
	void *inside;
};
/* FO_EFORMAT: calls of the ranks do not fit together. */
FO_CHECKED fo_status fo_replay_step(struct fo_replay_step *s, const struct fo_replay *x, int step,
				    const struct fo_replay_changes *c);
void fo_replay_step_fini(struct fo_replay_step *s);

#endif
