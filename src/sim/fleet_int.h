/* Inside src/sim: the parts of the simulator of many ranks. */
#ifndef FO_SIM_FLEET_INT_H
#define FO_SIM_FLEET_INT_H

#include "base/rng.h"
#include "sim/fleet.h"

FO_CHECKED fo_status fo_fleet_check(const struct fo_fleet *f);

/* ---- classes (fleet_class.c) ---- */

/* Ranks that are numbered one after the other, `ranks` to a block: hosts, and what shares a link. */
struct fo_fleet_part { /* a class, and how many of its ranks */
	int32_t class, ranks;
};
struct fo_fleet_blocks {
	int32_t ranks;  /* of a block */
	int32_t n;      /* kinds of blocks that hold different classes */
	int32_t *of;    /* per class: its kind of block */
	int32_t *begin; /* per kind, n + 1: in part */
	struct fo_fleet_part *part;
};
/* Groups that are made of the same classes are one. */
struct fo_fleet_circle {
	int32_t n;
	int32_t *of;     /* per class; -1: its role does not call in this group */
	int32_t *begin;  /* per circle, n + 1 */
	int32_t *member; /* classes, ascending */
	int32_t *ranks;  /* per circle: of one group */
};
struct fo_fleet_classes {
	int32_t n;
	int32_t *of;    /* per rank */
	int32_t *first; /* per class: its first rank */
	int32_t *ranks; /* per class */
	struct fo_fleet_circle circle[FO_FLEET_GROUPS];
};
void fo_fleet_classes_of(struct fo_fleet_classes *c, const struct fo_fleet *f);
void fo_fleet_classes_fini(struct fo_fleet_classes *c);
void fo_fleet_blocks_of(struct fo_fleet_blocks *b, const struct fo_fleet_classes *c, const struct fo_fleet *f,
			int32_t ranks);
void fo_fleet_blocks_fini(struct fo_fleet_blocks *b);

int32_t fo_fleet_on_axis(const struct fo_fleet *f, int32_t axis, int32_t rank);
static inline int32_t fo_fleet_role_of(const struct fo_fleet *f, int32_t rank)
{
	if (f->role_of)
		return f->role_of[rank];
	return f->roles > 1 ? fo_fleet_on_axis(f, f->role_axis, rank) : 0;
}
/* The rank that an operation sends to or receives from; -1: there is none. */
int32_t fo_fleet_partner(const struct fo_fleet *f, const struct fo_fleet_op *o, int32_t rank);
/* What a rank's times are multiplied by. */
struct fo_fleet_odd fo_fleet_odd_of(const struct fo_fleet *f, int32_t rank);
/* Numbers that look random: a hash of x. */
static inline uint64_t fo_fleet_mix(uint64_t x) { return fo_rng_u64(0, x); }

#endif
