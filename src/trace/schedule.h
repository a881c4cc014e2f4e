/* Logs of pipeline schedules: not what a GPU ran but which stage worked at which microbatch when. Two kinds are read:
 *
 * - timelines of what-if analyses (Chrome JSON, plain or gzip; categories forward-compute, backward-compute,
 * forward-send, ...; processes are data-parallel replicas, threads are named "PP rank 2, TP rank 0, compute").
 * Communication is drawn from the last participant's arrival on. Steps are laid out one after the other, each 1.1 x its
 * length after the one before;
 * - Primus: a folder with config.json and pp_rank_<stage>.json (milliseconds since the stage entered the schedule).
 *
 * Times are int64 ns since the begin of the step. */
#ifndef FO_TRACE_SCHEDULE_H
#define FO_TRACE_SCHEDULE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum fo_schedule_kind {
	FO_SCHED_FORWARD,
	FO_SCHED_BACKWARD,
	FO_SCHED_WEIGHT, /* the weights' part of the backward pass, where it is apart */
	FO_SCHED_FORWARD_SEND,
	FO_SCHED_FORWARD_RECV,
	FO_SCHED_BACKWARD_SEND,
	FO_SCHED_BACKWARD_RECV,
	FO_SCHED_PARAMS_GATHER,
	FO_SCHED_GRADS_SCATTER,
	FO_SCHED_GRADS_SEPARATE,  /* all-reduce of gradients outside the scattered buffers */
	FO_SCHED_GRADS_NORM,      /* of the norms' weights, inside the tensor-parallel group */
	FO_SCHED_GRADS_EMBEDDING, /* of the shared embedding: first and last stage */
	FO_SCHED_CLIP,            /* global norm of the gradients: everyone */
	FO_SCHED_OPTIMIZER,
	FO_SCHED_PAUSE, /* the host's garbage collector */
	FO_SCHED_COUNT
};
extern const char *const fo_schedule_kind_name[FO_SCHED_COUNT]; /* as in the timelines: "forward-compute" */

struct fo_schedule_op {
	int64_t begin_ns, end_ns; /* end < begin: by so much a member of a collective ended before the last one began */
	int32_t step;             /* in step[] */
	int32_t replica, stage, chunk, microbatch; /* chunk and microbatch of compute; -1 */
	int32_t sequence;                          /* of its kind on its worker in its step */
	uint8_t kind;
};

struct fo_schedule_step {
	int64_t number;
	int64_t length_ns;  /* as measured */
	int64_t first, ops; /* in op[] */
};

enum fo_schedule_format { FO_SCHEDULE_TIMELINE, FO_SCHEDULE_PRIMUS };

struct fo_schedule_log {
	enum fo_schedule_format format;
	char *path;
	int stages, replicas, chunks, microbatches; /* microbatches: of one stage's chunk in one step, the greatest */
	struct fo_schedule_op *op;                  /* by step, replica, stage, begin, kind, sequence */
	int64_t ops;
	struct fo_schedule_step *step;
	int64_t steps;
	int64_t *span_ns;   /* [step][stage]: from the step's first compute to the stage's last; Primus: the stage's own
			       total */
	int64_t left_out;   /* events of other categories */
	bool has_transfers; /* sends and receives are recorded */
	char *also;         /* another timeline that lay beside it and was left alone; NULL */
};

/* Is it such a log? A folder without traces, or files of one; looks at names and first bytes. Never fails: what it
 * cannot read is no schedule. */
bool fo_schedule_is(const char *path);
/* Are both files of one Primus folder? */
bool fo_schedule_same(const char *a, const char *b);
/* FO_EFORMAT with file and byte or key. Freed with fo_schedule_free (NULL allowed). */
FO_CHECKED fo_status fo_schedule_open(struct fo_schedule_log **out, const char *path);
void fo_schedule_free(struct fo_schedule_log *s);

#endif
