/* The programs of all ranks of a mesh, checked together. fo_program_verify looks at one rank; what ranks do with each
 * other is looked at here, before any of them runs.
 *
 * A role is a set of ranks whose programs are equal but for places: which rank of a group they send to or receive from,
 * and which rows of a tensor that a group shares are theirs. A role is unrolled and planned once. */
#ifndef FO_PROGRAM_ROLES_H
#define FO_PROGRAM_ROLES_H

#include "program/program.h"

struct fo_role_program {
	const struct fo_program *p;   /* of its first rank; the caller's */
	struct fo_unrolled u;         /* planned, waits pruned: what executor and simulator obey */
	int32_t first, ranks;         /* its first rank, how many there are */
	int32_t *call;                /* per instance: its first call, counted in a rank; -1: it does not communicate */
	int32_t *lane[FO_LANE_COUNT]; /* instances of each lane, in order */
	int32_t lane_n[FO_LANE_COUNT];
};

/* A tensor of an operation of class COMM: one call of a transport. */
struct fo_role_call {
	int32_t rank, instance; /* instance: of its role */
	int32_t a, b;    /* collective: colour and place in the group; else the sender's and the receiver's rank */
	int32_t meeting; /* the ranks that have the same number meet here; set by fo_roles_verify */
	uint8_t kind, group, channel, side, dtype;
	int16_t tensor, buf, root; /* root: of a broadcast, a place in the group; else -1 */
	int16_t part;              /* the operand that has this rank's part, where it is another one; -1: none */
	int32_t layer, mb;         /* of the buffer; -1: it has none */
	int32_t r0, rows, cols;    /* of what all ranks of the group have together; point-to-point: what travels */
};

/* An optimizer rectangle in global coordinates of a parameter. */
struct fo_role_update {
	int32_t param, layer, rank;
	int64_t r0, r1, c0, c1;
};

struct fo_roles {
	int32_t ranks; /* added so far */
	int32_t *role; /* by rank */
	struct fo_role_program *of;
	int32_t n;                 /* roles */
	struct fo_role_call *call; /* of all ranks, in the order of ranks and issue */
	int32_t *call_begin;       /* by rank */
	int64_t calls;
	int64_t meetings; /* set by fo_roles_verify */
	struct fo_role_update *update;
	int64_t updates;
	size_t role_cap, of_cap, call_cap, begin_cap, update_cap;
};

/* Adds the program of the next rank, from 0 on. *kept: it is the first of a new role, so it must live as long as *r;
 * any other may go at once. FO_EBUG: it is not well formed, or it breaks the rules of sums over ranks (sums.c). */
FO_CHECKED fo_status fo_roles_add(struct fo_roles *r, const struct fo_program *p, bool *kept);
/* All ranks were added. Checks that
 *   - all have the same mesh, sequences and micro-batches, and FLOP summed over ranks are those of the closed formula
 *     for `rows` rows of a micro-batch of the whole job (0: not known, not checked);
 *   - the collectives of every group and lane come in one order on all members, with the same kind, tensor, rectangle,
 *     type, root; each send meets a receive of the same bytes and type;
 *   - no rank waits for ever, with sends that are over only when they are received;
 *   - each element of each parameter is updated once in every set of ranks that hold a copy of it together.
 * FO_EBUG: one sentence that names rank, block, operation and what the other rank has instead. */
FO_CHECKED fo_status fo_roles_verify(struct fo_roles *r, int64_t rows);
void fo_roles_fini(struct fo_roles *r);

/* ---- the parts of it ---- */

/* "rank 1, block 'layer.b.r' (layer 3, micro-batch 0): all_reduce_many of 'wq.g'" */
void fo_roles_where(const struct fo_program *p, const struct fo_unrolled *u, int rank, int instance, const char *buffer,
		    char *out, size_t size);
/* Sums over ranks in one program (sums.c). */
FO_CHECKED fo_status fo_sums_verify(const struct fo_program *p, const struct fo_unrolled *u);
/* Whose tokens rows are, in one program of a tp group with sequence parallel (rows.c). */
FO_CHECKED fo_status fo_rows_verify(const struct fo_program *p, const struct fo_unrolled *u);
/* Who updates what, of all ranks (sums.c). */
void fo_updates_add(struct fo_roles *r, const struct fo_program *p);
FO_CHECKED fo_status fo_updates_verify(struct fo_roles *r);

#endif
