/* Logs of pipeline schedules: not what a GPU ran but which stage worked at which microbatch when, in int64 ns from the
 * step's start. Two kinds are read: timelines of what-if analyses (schedule_timeline.c) and Primus's folders, with
 * config.json and pp_rank_<stage>.json (milliseconds since the stage entered the schedule). */
#ifndef FO_TRACE_SCHEDULE_H
#define FO_TRACE_SCHEDULE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* X(enumerator, name): as the timelines name them. */
#define FO_SCHEDULE_KINDS(X)                                                                                \
	X(FORWARD, "forward-compute")                                                                       \
	X(BACKWARD, "backward-compute")                                                                     \
	X(WEIGHT, "backward-wgrad-compute") /* the weights' part of the backward pass, where it is apart */ \
	X(FORWARD_SEND, "forward-send")                                                                     \
	X(FORWARD_RECV, "forward-recv")                                                                     \
	X(BACKWARD_SEND, "backward-send")                                                                   \
	X(BACKWARD_RECV, "backward-recv")                                                                   \
	X(PARAMS_GATHER, "params-all-gather")                                                               \
	X(GRADS_SCATTER, "grads-reduce-scatter")                                                            \
	X(GRADS_SEPARATE, "separate-grads-all-reduce")   /* of gradients outside the scattered buffers */   \
	X(GRADS_NORM, "layernorm-grads-all-reduce")      /* inside the tensor-parallel group */             \
	X(GRADS_EMBEDDING, "embedding-grads-all-reduce") /* first and last stage */                         \
	X(CLIP, "optimizer-clip-main-grad")              /* global norm of the gradients: everyone */       \
	X(OPTIMIZER, "optimizer")                                                                           \
	X(PAUSE, "gc") /* the host's garbage collector */
#define FO_SCHEDULE_ENUM(enumerator, name) FO_SCHED_##enumerator,
enum fo_schedule_kind { FO_SCHEDULE_KINDS(FO_SCHEDULE_ENUM) FO_SCHED_COUNT };
extern const char *const fo_schedule_kind_name[FO_SCHED_COUNT];

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
