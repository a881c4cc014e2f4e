/* The length of a job's steps without stragglers: the recorded operations of a pipeline schedule are run again in their
 * dependencies, with other durations. (The method is that of "Understanding Stragglers in Large Model Training Using
 * What-if Analysis", Lin et al. 2025; equation numbers are theirs.)
 *
 * Dependencies of one step. On a worker (one stage
 * of one replica): passes in their recorded order; each kind of transfer in its own order; a pass after the receive
 * that feeds it, a send after the pass that made it, a receive after the pass before the one it feeds; the first
 * backward transfers after the last forward pass but one before the first backward pass; the parameters' gathering
 * before the first forward pass of their chunk; after the last pass, in this order: pause, norms' gradients,
 * embedding's, scattering of gradients, clipping, optimizer (scattering right after the chunk's last backward pass
 * where there is a separate all-reduce). Between workers: a send and its receive, a collective's members, begin to move
 * data when the last is there. Logs without transfers: a pass after the same microbatch's on the neighbour.
 *
 * An operation's own time: its duration; a collective's: from its last member's begin to its end. Without stragglers
 * each operation takes the mean (passes, optimizer) or median (communication) of its kind over stages, replicas and
 * steps.
 */
#ifndef FO_DIAGNOSE_STRAGGLER_H
#define FO_DIAGNOSE_STRAGGLER_H

#include "base/mem.h"
#include "trace/schedule.h"

struct fo_str;

struct fo_whatif {
	bool known;
	char why[192]; /* it is not */
	double measured_s, no_delay_s,
		ideal_s;        /* mean step: as recorded; every operation begins when it can; and without stragglers */
	double slowdown;        /* eq. 1: no_delay / ideal */
	double launch_slowdown; /* measured / no_delay */
	double *by_stage, *by_replica,
		by_kind[FO_SCHED_COUNT]; /* the ideal step with only these as recorded / the ideal step; 0: none */
	double *step_slowdown;           /* [step]; 0: left out */
	int worst_stage, worst_replica, worst_kind;
	double worst_workers; /* eq. 5: the share of the slowdown that goes when the 3 % worst workers are as the others
			       */
	double last_stage;    /* the same for the last stage */
	double unevenness;    /* the same when each operation takes the mean or median of its kind on its stage: what
			       * differs from    microbatch to microbatch and replica to replica */
	int worker_stage, worker_replica; /* the worst */
};

struct fo_schedule_finding {
	const char *id; /* "pipeline-last-stage", "pipeline-worker", "pipeline-uneven", "pipeline-bubble" */
	bool serious;
	double ceiling; /* step before / after, if all of it went; of a bubble: if half of it did */
	char title[160], why[400], proposal[320];
};
enum { FO_SCHEDULE_FINDINGS_MAX = 3 };

struct fo_schedule_diagnosis {
	struct fo_schedule_log *schedule; /* not owned */
	struct fo_arena arena;            /* of what is pointed to below */
	int64_t warm_up; /* leading steps longer than 1.5 medians, left out of everything below: compilation, allocation
			  */
	double *bubble;  /* [stage]: share of the stage's span without a pass; median over steps */
	double *bubble_of_step; /* [stage]: of the whole step's */
	double *step_bubble;    /* [step][stage]: as bubble, warm-up too */
	double *work_s;         /* [stage]: time inside passes, median */
	double ideal_bubble;    /* (p - 1) / (v m): of the ideal work */
	double ideal_of_step;   /* the same as a share of the step: (p - 1) / (v m + p - 1) */
	double step_s;          /* median */
	struct fo_whatif whatif;
	struct fo_schedule_finding finding[FO_SCHEDULE_FINDINGS_MAX]; /* stragglers, then the bubble */
	int findings;
	bool serious;
};

FO_CHECKED fo_status fo_schedule_diagnose(struct fo_schedule_diagnosis *d, struct fo_schedule_log *s);
void fo_schedule_diagnosis_fini(struct fo_schedule_diagnosis *d);
/* {"schema": 1, "schedule": {...}, "ranks": [], "findings": [...]}: docs/formats.md. */
void fo_schedule_diagnosis_json(const struct fo_schedule_diagnosis *d, struct fo_str *out);

/* The graph of one step and its simulation, for tests and other uses. Durations are by operation of the step, in ns. */
struct fo_step_graph;
/* FO_EFORMAT where the log's dependencies contradict each other. */
FO_CHECKED fo_status fo_step_graph_new(struct fo_step_graph **out, const struct fo_schedule_log *s, int64_t step);
void fo_step_graph_free(struct fo_step_graph *g);
/* An operation's own time, as recorded. */
double fo_step_graph_own_ns(const struct fo_step_graph *g, int64_t op);
/* When the last operation ends, with everything begun as soon as it can. */
double fo_step_graph_run(struct fo_step_graph *g, const double *own_ns);

#endif
