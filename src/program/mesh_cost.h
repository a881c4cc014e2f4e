/* What a mesh of ranks costs, from a model and a run alone: no program is made. For planners, which try many meshes.
 *
 * Bytes on the wire and bytes that persist are those of the program that passes make, to the byte, of any stage of a
 * pipeline, too. Of the arena, whose
 * plan is a search, two bounds are known. */
#ifndef FO_PROGRAM_MESH_COST_H
#define FO_PROGRAM_MESH_COST_H

#include "program/program.h"

/* Whether a training run can have the mesh that it names: what lowering and the passes tp, cp, zero and tp-async would
 * say, in the same words (those of passes come without "pass NAME:"). The run is one that a single rank can train; that
 * a block has at most 65,535 operations (fuse-loss with many small chunks) is not looked at.
 * FO_EARG: why not, and the nearest that can. */
FO_CHECKED fo_status fo_mesh_legal(const struct fo_model *m, const struct fo_lowering *run);

/* Parts of it, which passes call: whether a mesh is sound and has such a rank; its cp ranks can share tokens and heads;
 * they can have the run's attention; `own` tokens of a rank can be so many pieces (tp-async); some weight has a row for
 * each rank of a shard group. */
FO_CHECKED fo_status fo_mesh_check(const struct fo_mesh *m);
FO_CHECKED fo_status fo_mesh_tokens_legal(const struct fo_model *m, const struct fo_lowering *run);
FO_CHECKED fo_status fo_mesh_attention_legal(const struct fo_lowering *run);
FO_CHECKED fo_status fo_mesh_pieces_legal(int64_t own, int64_t pieces);
FO_CHECKED fo_status fo_mesh_shards_legal(int64_t most_rows, int32_t ranks);

/* What persists on a rank, and what lives in its arena when most does. */
struct fo_mesh_memory {
	int64_t weights, master, moments; /* its own rows of them */
	int64_t copies;                   /* gathered weights that persist (zero-first), tables of rotations */
	int64_t persistent;               /* all of these: as the memory plan has it */
	int64_t kept;                     /* activations that wait for backward, of one micro-batch */
	int64_t gradients;                /* of weights, at most at a time */
	/* Of the arena: at least so many bytes are alive at some time; never more than so many are. */
	int64_t arena_low, arena_high;
};
/* The plan of an arena leaves holes where no range fits, so it may take more than arena_high: of 2,000 random meshes of
 * small models it did in 30 to 60, by 1.665 times at most (tests/step/test_mesh_cost.c holds it to this). Large models'
 * layers are alike, and leave few holes: an arena took 1.02 to 1.06 times what lives in it for four meshes of an 8B
 * (2026-11-28). */
#define FO_MESH_HOLES 1.75

/* Bytes that rank mesh.rank receives in a training step. */
struct fo_mesh_wire {
	double group[FO_GROUP_COUNT]; /* by the ranks that it receives them from */
	double lane[FO_LANE_COUNT];
	double all;
};

/* FO_EUNSUPPORTED: the run has a pass that this does not know (fp8, offload), or none of those that ranks need. The
 * mesh must be legal. */
FO_CHECKED fo_status fo_mesh_cost(const struct fo_model *m, const struct fo_lowering *run, struct fo_mesh_wire *wire,
				  struct fo_mesh_memory *memory);

#endif
