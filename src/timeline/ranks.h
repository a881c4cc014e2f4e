/* The timelines of a run's ranks side by side: what each computed, what of its communication lay behind that, and for
 * whom it waited.
 *
 * Operations of several ranks that are one collective are found by group, channel, step and their order in it. Its
 * transfer begins when its last member arrived: what a member spends there before is waiting for a late rank, the rest
 * is transfer. Of an operation whose other members left no timeline the two cannot be told apart: it is unknown. */
#ifndef FO_TIMELINE_RANKS_H
#define FO_TIMELINE_RANKS_H

#include "timeline/slow.h"
#include "timeline/timeline.h"

/* What a rank that communicates does at a moment; the earlier one counts where two operations differ. */
enum fo_rank_comm { FO_RANK_TRANSFER, FO_RANK_UNKNOWN, FO_RANK_WAIT, FO_RANK_COMM_COUNT };

/* Sums over the steps, ns. step = compute + exposed + other; hidden lies inside compute. */
struct fo_rank_times {
	bool known;         /* it left a timeline; else all are 0 */
	int64_t step_ns;    /* from the first operation of a step to the end of its last */
	int64_t compute_ns; /* some lane that computes ran an operation */
	int64_t exposed_ns[FO_RANK_COMM_COUNT],
		hidden_ns[FO_RANK_COMM_COUNT]; /* communication outside and inside that */
	/* The same by lane (fo_lane_carries): where several are under way, a moment counts for the first of them, so
	 * these sum to all exposed and all hidden communication. */
	int64_t lane_exposed_ns[FO_LANE_COUNT], lane_hidden_ns[FO_LANE_COUNT];
	int64_t other_ns;        /* neither: dispatch, ports, the host */
	int64_t last, caused_ns; /* collectives in which it arrived last; what the others waited then */
};
/* A rank's calls in one group. */
struct fo_rank_group {
	int rank;
	enum fo_group group;
	int32_t colour, members, place;
	int64_t calls, unmatched;                 /* unmatched: of calls, those of which some member is not known */
	int64_t bytes;                            /* received */
	int64_t wait_ns, transfer_ns, unknown_ns; /* summed over calls, also where two lie side by side */
	int64_t last, caused_ns;
};
struct fo_ranks {
	int ranks, known;              /* of the job; with a timeline */
	int32_t first_step, last_step; /* from 1; of those that all have whole */
	int64_t steps;                 /* 0: there is no such step, and nothing else is known */
	struct fo_rank_times *rank;    /* each of them */
	struct fo_rank_group *group;   /* by group, colour, place */
	int64_t groups, calls, unmatched;
	int late;                 /* the rank for which others waited longest; -1: for none */
	int64_t waited_ns;        /* by all ranks together, summed over calls */
	struct fo_slow_rank slow; /* each of the steps is a window; not known unless all ranks are */
};
/* A call to other ranks in one step. */
struct fo_rank_call {
	int32_t rank, instance;
	int64_t begin_ns, end_ns, met_ns; /* on rank 0's clock; met: its last member came */
	int64_t meeting;                  /* calls that are one have the same number; -1: some member is not known */
};
/* Those of this step (as spans name it), by rank, then begin; *out is to be freed. Files as in fo_ranks_merge. */
void fo_rank_calls(struct fo_rank_call **out, int64_t *n, const struct fo_timeline_file *const *file, int ranks,
		   int32_t step);
/* file[r]: of rank r, or NULL. Files of one run. */
void fo_ranks_merge(struct fo_ranks *out, const struct fo_timeline_file *const *file, int ranks);
void fo_ranks_fini(struct fo_ranks *r);
/* ns of a rank's step (as its spans name it) in which it communicates and no lane computes: waiting and transfer, which
 * its own file alone does not tell apart. by_lane: NULL, or the same by lane as in fo_rank_times. */
int64_t fo_rank_step_exposed(const struct fo_timeline_file *f, int32_t step, int64_t by_lane[FO_LANE_COUNT]);
static inline int64_t fo_rank_exposed(const struct fo_rank_times *t)
{
	return t->exposed_ns[FO_RANK_TRANSFER] + t->exposed_ns[FO_RANK_UNKNOWN] + t->exposed_ns[FO_RANK_WAIT];
}
static inline int64_t fo_rank_hidden(const struct fo_rank_times *t)
{
	return t->hidden_ns[FO_RANK_TRANSFER] + t->hidden_ns[FO_RANK_UNKNOWN] + t->hidden_ns[FO_RANK_WAIT];
}

#endif
