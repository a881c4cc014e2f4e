/* The memory that is there, the part that a training step may take, and its choices made so that it fits: the same for
 * `flatout train` and the benchmarks. */
#ifndef FO_TRAIN_ROOM_H
#define FO_TRAIN_ROOM_H

#include "base/json.h"
#include "kernel/cuda/cuda.h"
#include "pass/pass.h"
#include "program/run.h"
#include "train/exec.h"
#include "train/team.h"

#include <stdio.h>

/* Bytes, as Linux reports them; 0: not known. Anonymous resident memory of this process; memory that it may still take
 * (free, or what its control groups leave if that is less); the same for page-locked and mapped memory, which the
 * process's own limits (ulimit -d, -v) bound too. */
int64_t fo_memory_resident(void);
int64_t fo_memory_available(void);
int64_t fo_memory_mappable(void);

/* Bytes that the run may take (memory.limit, or `have` if that is less), and bytes that choices may plan with
 * (memory.budget, or the former). have: free memory without what is left alone; 0: not known. Both give 0 where nothing
 * limits the run. */
int64_t fo_room_allowed(const struct fo_run *r, int64_t have);
int64_t fo_room_budget(const struct fo_run *r, int64_t have);

/* A training step ready to run, as `flatout train` makes it. On a device no memory is taken before its weights are made
 * or its first step. It must not move.
 *
 * The caller fills in the first part, then either calls fo_room_step_open, or the functions below it one by one. */
struct fo_room_step {
	const struct fo_run *run;       /* limits, precision, evaluation */
	const struct fo_run *open;      /* the run whose open choices are made; NULL: run */
	struct fo_exec_options options; /* threads: of all ranks of this process together */
	struct fo_processes *processes; /* that ranks are; NULL: threads of this one */
	int sharing; /* ranks that take of `have`; 0: all of this process (fo_room_step_ranks_here) */
	/* Serves the step's executor: evaluation looks at no next batch, nor do several ranks, which read rank 0's. */
	fo_exec_batch_fn *batch;
	fo_port_fn *port;
	void *ctx, *eval_ctx;               /* of the ports */
	int64_t have;                       /* bytes that are free without what is left alone; 0: not known */
	bool given;                         /* `program` is the caller's: nothing is chosen */
	int64_t (*beside)(const void *ctx); /* bytes that come beside the executors; NULL: none */
	const void *beside_ctx;

	struct fo_model model;
	struct fo_choice choice; /* planned 0: nothing was left to choose */
	struct fo_err too_large; /* st FO_OK, or why no choice fits: the programs are then the least ones */
	struct fo_program program, eval_program;
	struct fo_store *store; /* zeroed; of several ranks rank 0's own rows */
	/* eval is there because `flatout train` has it: its memory belongs to the choice. */
	struct fo_exec *exec, *eval;
	struct fo_team *team; /* the other ranks; NULL: there are none. program, store and exec are rank 0's */
};
/* Closed with fo_room_step_close, whatever was returned. FO_ENOMEM: nothing fits. */
FO_CHECKED fo_status fo_room_step_open(struct fo_room_step *s, const struct fo_run *r, const struct fo_exec_options *o,
				       fo_port_fn *port, void *ctx);
/* Makes both programs; the choice leaves `reserve` bytes of the budget. */
FO_CHECKED fo_status fo_room_step_programs(struct fo_room_step *s, int64_t reserve);
/* Store and executors of the programs. The choice fits by its program; the memory beside it (workspaces, evaluation,
 * `beside`) is known once executors are there: where both are too much, programs and executors are made again with less
 * for the program, a few times at most. FO_ENOMEM on a device that cannot hold the program. */
FO_CHECKED fo_status fo_room_step_executors(struct fo_room_step *s);
/* Ranks that this process has the memory and the threads of. */
int fo_room_step_ranks_here(const struct fo_room_step *s);
/* Sets of rows that the loader of this process fills in: those of all its ranks, which a tp group shares. */
int fo_room_step_rows_here(const struct fo_room_step *s);
/* Memory of the step's executors, of all ranks of this process together. */
struct fo_memory fo_room_step_memory(const struct fo_room_step *s);
/* Bytes that the step takes: of the device, or of the host. */
int64_t fo_room_step_need(const struct fo_room_step *s);
void fo_room_step_close(struct fo_room_step *s); /* zeroed: nothing */

/* Fields of an open JSON object: what is recomputed and its share of the time, formats of the state, rows,
 * micro_batches, candidates, plans. */
void fo_room_choice_json(const struct fo_choice *c, const struct fo_program *p, struct fo_json *j);

/* Writes to f, as one line of JSON, the plan of the run for an H200 of total_bytes (as CUDA shows them) that need not
 * be there. FO_ENOMEM as above. */
FO_CHECKED fo_status fo_room_plan_print(const struct fo_run *r, int64_t total_bytes, FILE *f);

#endif
