/* What a rank does at this moment: a small file per rank in the run directory (RUN/ranks/00003.state), which the rank
 * maps and writes with a few stores per operation, and which anybody reads, also when the job hangs.
 *
 * A thread of the writer renews its heartbeat every FO_RANK_BEAT_NS, whatever the rank does: a heart that does not
 * beat is a process that was stopped, killed or starved, never one whose operation takes long. docs/formats.md has
 * the bytes.
 *
 * Readers never trust a file: it may be cut, of another version, or change while it is read. Texts that come out of
 * here are ended and safe for a terminal. */
#ifndef FO_RECORD_RANK_STATE_H
#define FO_RECORD_RANK_STATE_H

#include "base/err.h"
#include "base/mem.h"
#include "hw/state.h"

#include <stdbool.h>
#include <stdint.h>

enum fo_rank_phase {
	FO_RANK_STARTING,   /* the process runs; it may wait for the other ranks to come */
	FO_RANK_PREPARING,  /* text, programs, tuning, weights */
	FO_RANK_STEP,       /* a training step runs */
	FO_RANK_BETWEEN,    /* between two steps */
	FO_RANK_EVALUATING, /* held-out text, or a sample */
	FO_RANK_SAVING,     /* a checkpoint */
	FO_RANK_DONE,
	FO_RANK_INTERRUPTED, /* asked to stop, its state is saved */
	FO_RANK_FAILED,
	FO_RANK_PHASES
};
extern const char *const fo_rank_phase_name[FO_RANK_PHASES]; /* "starting", ... */
static inline bool fo_rank_phase_ended(enum fo_rank_phase p) { return p >= FO_RANK_DONE; }

enum fo_lane_does { FO_LANE_UNUSED, FO_LANE_IDLE, FO_LANE_RUNS, FO_LANE_WAITS, FO_LANE_DOES };
enum { FO_RANK_LANES = 16, FO_RANK_RECENT = 33, FO_RANK_WHOLE = 64 };
#define FO_RANK_BEAT_NS ((int64_t)250000000)
#define FO_RANK_JOB_VARIABLE "FLATOUT_JOB" /* names the job to its ranks */

/* ---- writing ---- */

struct fo_rank_state;
/* Makes DIR/ranks and the rank's file, which appears whole, and starts the heartbeat. The job is named by
 * FO_RANK_JOB_VARIABLE, else by what MPI, PMIx or Slurm put into the environment, else by this process. FO_EIO. The
 * other functions take a state that is NULL and do nothing. */
FO_CHECKED fo_status fo_rank_state_open(struct fo_rank_state **out, const char *dir, int rank, int ranks);
/* The file of another rank of the same job, a thread of this process. From then on the job has `ranks` ranks: before
 * there are threads it has one, so that nobody takes the others for missing. */
FO_CHECKED fo_status fo_rank_state_open_beside(struct fo_rank_state **out, struct fo_rank_state *first, int rank,
					       int ranks);
/* Ends the heartbeat. A rank that is neither done nor failed is so with the status of its run: FO_OK, FO_EINTERRUPT, or
 * an error, whose text it takes. The file stays. */
void fo_rank_state_close(struct fo_rank_state *s, fo_status st);
/* Removes the files of ranks that an earlier job had and this one has not. */
FO_CHECKED fo_status fo_rank_state_clean(const char *dir, int ranks);
/* The threads that compute, and the hardware threads that they may use: told once. */
void fo_rank_state_processors(struct fo_rank_state *s, int threads, const struct fo_cpus *cpus);
void fo_rank_state_phase(struct fo_rank_state *s, enum fo_rank_phase phase);
/* Step number `step` of `steps`, from 1, begins. */
void fo_rank_state_step(struct fo_rank_state *s, int64_t step, int64_t steps);
/* Ends the rank with an error: its first one, and one line of it, is kept. */
void fo_rank_state_failed(struct fo_rank_state *s, fo_status st, const char *text);

/* An operation; names longer than 23 bytes are cut, NULL is "". */
struct fo_rank_op {
	const char *op, *block, *phase, *group; /* "matmul", "layer.f", "forward", "shard" */
	int32_t instance, layer, mb;            /* -1: none */
};
/* Lane number `lane` (below FO_RANK_LANES) runs the operation, or waits for it, since now_ns (fo_now_ns); does IDLE:
 * `o` may be NULL. Only one thread writes a lane at a time. A few stores. */
void fo_rank_state_lane(struct fo_rank_state *s, int lane, const char *name, enum fo_lane_does does,
			const struct fo_rank_op *o, int64_t now_ns);

/* The thread of communication had its turn `ns` later than it wanted: the processor was not there for it, or it worked
 * on what came. Counts as the rank's own where lane 0 has nothing else to do meanwhile. */
void fo_rank_state_late(struct fo_rank_state *s, int64_t ns);

/* How a rank's process ended, as its parent saw it. */
struct fo_rank_end {
	bool known;
	int signal, code; /* signal 0: it exited with that code */
	bool told;        /* the parent had been told to end it: no cause, but an effect */
	bool memory;      /* the system killed a process of this control group for lack of memory meanwhile */
};
/* For that parent: writes it into the file of this job and rank, or makes one that says that the
 * rank was starting. FO_EIO. */
FO_CHECKED fo_status fo_rank_state_ended(const char *dir, int rank, int ranks, const struct fo_rank_end *e);

/* Says in DIR/ranks that the job of that name (FO_RANK_JOB_VARIABLE) is over: whoever still is of it is to end. */
FO_CHECKED fo_status fo_rank_job_ends(const char *dir, const char *job);
bool fo_rank_job_is_over(const char *dir, const char *job); /* false where it cannot be told */

/* ---- reading ---- */

struct fo_lane_seen {
	enum fo_lane_does does;
	bool torn; /* it changed while it was read: nothing but its name counts */
	int64_t since_ns;
	double seconds; /* since then; up to the heartbeat where the rank is not under this system; NAN */
	int32_t instance, layer, mb;
	char op[48], block[48], phase[24], group[24], name[24];
};
enum fo_rank_file { FO_RANK_FILE_ABSENT, FO_RANK_FILE_WHOLE, FO_RANK_FILE_DAMAGED };
/* A rank's own work up to the end of a step: all of a step's time but what its computation waited for other ranks, and
 * of that what its thread of communication was late. Sums since its file was made. */
struct fo_rank_mark {
	int64_t step, at_ns, own_ns;
	int64_t counted; /* steps that are in own_ns: metered ones are not */
};
/* Alive? Asked of the system where the process ran under this one, else NOT_KNOWN. */
enum fo_rank_alive { FO_RANK_NOT_KNOWN, FO_RANK_ALIVE, FO_RANK_STOPPED, FO_RANK_GONE };
struct fo_rank_seen {
	enum fo_rank_file file;
	char why[160]; /* of a damaged one: a sentence */
	int rank, ranks;
	int64_t pid, begun_unix_ns;
	char host[80], job[80], program[48]; /* program: the binary's build id, "" not known */
	enum fo_rank_phase phase;
	double phase_seconds; /* in it, counted as those of a lane */
	int64_t step, steps;  /* 0: none so far */
	uint64_t beats;       /* heartbeats so far */
	int threads;          /* that compute; 0: not told */
	char cpus[40];        /* hardware threads that they may use; "" not told */
	bool here;            /* it was written under this system: alive and age are known */
	double age;           /* seconds since the heartbeat; NAN */
	enum fo_rank_alive alive;
	struct fo_rank_end end;
	fo_status error; /* FO_OK: none */
	char text[640];  /* of the error */
	int lanes;
	struct fo_lane_seen lane[FO_RANK_LANES];
	/* By step. recent: half a second or more apart; whole: over all steps since the file was made. */
	int recents, wholes;
	struct fo_rank_mark recent[FO_RANK_RECENT], whole[FO_RANK_WHOLE];
};
/* "DIR/ranks/00003.state" */
char *fo_rank_state_path(struct fo_arena *a, const char *dir, int rank);
/* One file. Damage is in *out. */
void fo_rank_state_read(const char *path, struct fo_rank_seen *out);

struct fo_ranks_seen {
	struct fo_rank_seen *rank; /* of each rank of the job, `file` ABSENT where it left none; owned */
	int ranks;                 /* 0: no file says it */
	char job[80];
	int strangers; /* files of other jobs, which are older than this one, and count as absent */
};
/* All ranks of the job of that name; NULL: of the one that began last. FO_EIO: there is no such folder. Freed with
 * fo_ranks_seen_fini. */
FO_CHECKED fo_status fo_ranks_seen_read(struct fo_ranks_seen *out, const char *dir, const char *job);
void fo_ranks_seen_fini(struct fo_ranks_seen *s);

/* The lane that says what the rank does: that of its computation, which also says what it waits for; NULL: none
 * runs. */
const struct fo_lane_seen *fo_rank_main_lane(const struct fo_rank_seen *r);
/* "all_gather of layer 3 (forward, micro-batch 2)"; "" where it is torn. */
void fo_lane_text(const struct fo_lane_seen *l, char *out, size_t size);
/* "step 12: waits for all_gather of layer 3 (forward, micro-batch 2)", "saving". */
void fo_rank_doing(const struct fo_rank_seen *r, char *out, size_t size);
/* How long it has done so, in seconds; NAN: not known. */
double fo_rank_seconds(const struct fo_rank_seen *r);

#endif
