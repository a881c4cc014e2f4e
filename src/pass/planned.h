/* Memory of a job's ranks as the executor plans it, from their programs: for planners, which ask about many jobs that
 * nobody runs.
 *
 * For each stage of a pipeline it lowers one rank of each size (parts of rows that do not divide evenly differ by one).
 * A step of many micro-batches is lowered with few, which takes most of the time. Without a pipeline its plan stands
 * for all where it repeats itself: a micro-batch begins with all that lives in the places where it lay when an earlier
 * one began, and the slots between the two are like those before them. Else slots of a full pipeline are put in until
 * there are as many as the schedule has, and all of them are planned. So bytes are those of the whole step, to the
 * byte. */
#ifndef FO_PASS_PLANNED_H
#define FO_PASS_PLANNED_H

#include "program/program.h"

/* Bytes of a rank's fullest instant: what is alive then, and the holes between. */
enum fo_planned_part {
	FO_PLANNED_WEIGHTS,     /* persist */
	FO_PLANNED_STATES,      /* persist: masters, moments, copies, tables */
	FO_PLANNED_GRADIENTS,   /* of weights, alive when most is */
	FO_PLANNED_ACTIVATIONS, /* the same of all else but gathered weights */
	FO_PLANNED_GATHERED,    /* the same of weights that were gathered for use */
	FO_PLANNED_HOLES,       /* the arena beyond what is alive when most is */
	FO_PLANNED_PARTS
};
struct fo_planned {
	int32_t rank;                    /* which it is */
	int64_t persistent, arena, live; /* as fo_plan has them: persistent_bytes, arena_bytes, max_live_bytes */
	int64_t host;                    /* host_arena_bytes */
	int64_t part[FO_PLANNED_PARTS];  /* sum: persistent + arena */
};
static inline int64_t fo_planned_bytes(const struct fo_planned *p) { return p->persistent + p->arena; }

/* Operations, lowered and planned, that take some seconds: a processor of 2025 takes half a second for 2^18. */
enum { FO_PLANNED_OPERATIONS = 1 << 22 };

struct fo_planned_job {
	struct fo_planned *stage; /* its fullest rank, by stage; the caller's: fo_mesh_pp of them. NULL: not wanted */
	struct fo_planned fullest;
	int32_t programs;      /* lowered */
	int64_t micro_batches; /* of the largest program that was lowered */
	int64_t operations;    /* of all programs, lowered and planned */
	const char *why; /* nothing is planned, one static sentence: it would take too long. NULL: it is planned */
};
/* run: a legal lowering of any rank for training. most: operations of all programs, 0: no limit.
 * FO_EARG: there is no such program, with the passes' words. */
FO_CHECKED fo_status fo_pass_plan_job(const struct fo_model *m, const struct fo_lowering *run, int64_t most,
				      struct fo_planned_job *out);

#endif
