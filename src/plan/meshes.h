/* The best mesh for the ranks of a run on a machine that was measured: every mesh that the executor runs is lowered by
 * its own passes, its memory planned, and its step simulated with the times of a profile (sim/ranks.h), as flatout
 * predict does for one.
 *
 * What is searched: stages with each schedule and number of chunks, tp with and without sequence parallelism and at
 * once or in pieces, cp as ring and by heads, the ranks that share states with their ZeRO stage and how long gathered
 * weights stay, and how the rows of a step are divided into micro-batches. Recomputation is what the run asks for;
 * where that is "auto", what the executor takes for the memory. */
#ifndef FO_PLAN_MESHES_H
#define FO_PLAN_MESHES_H

#include "base/str.h"
#include "program/run.h"
#include "sim/ranks.h"

/* A mesh: members of struct fo_run of the same names. */
struct fo_plan_mesh {
	int64_t pp, pp_chunks, tp, tp_async, cp, shard, replicate, rows, micro_batches;
	int pp_kind, cp_by, zero, zero_reshard;
	bool tp_sequence;
	/* What came out. */
	bool legal, too_large; /* the executor runs it; it finds no way to fit it into memory.budget */
	struct fo_interval step_s, exposed_s;
	int64_t bytes;      /* of all ranks, which share the machine's memory */
	double guess_share; /* of computing: times that are guessed */
	int parts;          /* how much there is to it: smaller is simpler */
};
/* -1: free. */
struct fo_plan_mesh_fixed {
	int64_t pp, pp_chunks, tp, tp_async, cp, shard, rows_of_a_rank;
	int pp_kind, cp_by, zero, zero_reshard, tp_sequence;
};
#define FO_PLAN_MESH_FREE                                                                                         \
	(struct fo_plan_mesh_fixed)                                                                               \
	{                                                                                                         \
		.pp = -1, .pp_chunks = -1, .tp = -1, .tp_async = -1, .cp = -1, .shard = -1, .rows_of_a_rank = -1, \
		.pp_kind = -1, .cp_by = -1, .zero = -1, .zero_reshard = -1, .tp_sequence = -1                     \
	}
struct fo_plan_meshes_asked {
	const struct fo_run *run; /* its ranks, model, rows of a step; the mesh in it does not count */
	const struct fo_rates *rates;
	const struct fo_link_rates *links;
	int cores;
	double pairs;         /* of a row; -1: unbroken */
	int64_t memory_bytes; /* that all ranks may take together; 0: any */
	struct fo_plan_mesh_fixed fixed;
};
struct fo_plan_meshes {
	struct fo_plan_mesh *mesh; /* those that the executor runs and that fit, the fastest first */
	int n, named;              /* named: the simplest of those within FO_PLAN_TIE of the fastest */
	int64_t tried, refused, too_large;
	int64_t least_bytes; /* of those that do not fit, the smallest; 0: not known */
	double seconds;      /* that the search took */
};
/* FO_EARG: the executor runs none of them, and why not the first. FO_ENOMEM: none fits. *out needs fini in any case. */
FO_CHECKED fo_status fo_plan_meshes_search(struct fo_plan_meshes *out, const struct fo_plan_meshes_asked *asked);
void fo_plan_meshes_fini(struct fo_plan_meshes *m);

/* Appends it as options ("--mesh.pp=2 --pass.pp=zb-h1 --train.rows=4 ...") or as lines of a run file. */
void fo_plan_mesh_options(const struct fo_plan_mesh *m, int64_t ranks, struct fo_str *out);
void fo_plan_mesh_yaml(const struct fo_plan_mesh *m, int64_t ranks, struct fo_str *out);

#endif
