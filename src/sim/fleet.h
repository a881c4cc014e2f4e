/* A step of many ranks, event by event.
 *
 * Roles are programs: operations on lanes, each with what it waits for. Ranks are points of a mesh, and groups of
 * them are sets of its axes, so nothing here grows with the number of ranks but one number for each. Ranks that
 * cannot be told apart do the same at the same times and are one class: those of one role, with the same times of
 * their own, whose groups, neighbours and hosts hold the same classes. A class is simulated once, which is exact.
 * Without ranks that differ there is a class for each role; a straggler adds those that meet it in one way or
 * another.
 *
 * A lane does one operation after the other. An operation begins when its lane is free and what it waits for has
 * ended.
 *   - One that computes shares its rank's cores with the rank's other lanes that compute (fo_lane_computes), and is
 *     slowed by the ranks of its host that compute at the same time (fleet.crowd).
 *   - A call is met when the last rank of its group has come. It is over for all of them at once: when the ranks
 *     have done their own work (`seconds` from when it was met) and the links have carried it. Links share their
 *     rate among the transfers that are under way on them, and a transfer goes on at the rate of its slowest link;
 *     serial links carry one after the other, and wait for nothing else; a call is over when all its links have
 *     carried it.
 *   - Sends and receives meet in pairs, without buffers.
 * Times are seconds from the step's begin. Nothing is random unless jitter is asked for, and that is drawn from a
 * seed. */
#ifndef FO_SIM_FLEET_H
#define FO_SIM_FLEET_H

#include "base/err.h"
#include "base/json.h"
#include "program/program.h"

/* ---- what is given ---- */

enum { FO_FLEET_AXES = 8, FO_FLEET_GROUPS = 16, FO_FLEET_LINKS = 4, FO_FLEET_RANKS_MOST = 1 << 20 };
enum fo_fleet_does {
	FO_FLEET_WORKS, /* computes on a lane that computes; else (copies, the host) takes time and nothing shared */
	FO_FLEET_CALLS, /* all ranks of its group */
	FO_FLEET_SENDS,
	FO_FLEET_RECEIVES
};
struct fo_fleet_op {
	int32_t name;        /* in fleet.name */
	uint8_t lane, does;  /* enum fo_lane, enum fo_fleet_does */
	uint8_t group, link; /* of those that call, send and receive: in fleet.group, fleet.link */
	uint8_t kind;        /* FO_FLEET_WORKS: enum fo_crowd_kind, what slows it */
	bool wraps;          /* sends, receives: behind the last place comes the first */
	int16_t peer;        /* sends, receives: places from here in the group, which then has one axis (or is a row of
			      * places, slowest axis first) */
	int32_t needs;       /* so many operations it waits for, of earlier ones: fo_fleet_role.need[need_begin ...] */
	int32_t need_begin;
	double before_s; /* from when it could begin until it does: what dispatches it is not ready */
	/* Works: with the cores to itself. Calls: what the ranks do themselves, from when all are there. */
	double seconds;
	double link_s; /* calls: what their links need for it with nothing else on them */
	double bytes;  /* that a rank receives; for reports alone */
	uint64_t what; /* calls: ranks that meet must have the same; 0: not compared */
};
/* Operations in an order in which each waits only for earlier ones; those of a lane run in that order. */
struct fo_fleet_role {
	char *name; /* "stage 3" */
	struct fo_fleet_op *op;
	int32_t ops;
	int32_t *need;
	double after_s; /* after each operation before its lane takes the next: dispatch */
	size_t op_cap, need_cap;
	int32_t needs;
};
struct fo_fleet_group {
	const char *name; /* "shard" */
	uint32_t axes;    /* bit a: its ranks differ in axis a; 0: each rank alone */
	bool ends;        /* of these ranks only the first and the last are one group, each of the others is alone */
};
/* What ranks of one host share, or what each has of its own: `ranks` that are numbered one after the other have one. */
struct fo_fleet_link {
	const char *name; /* "NIC" */
	int32_t ranks;    /* 1: of each rank */
	bool serial;      /* carries one call after the other instead of sharing its rate */
};
/* Ranks that are not as the others of their role: factors on their times. */
struct fo_fleet_odd {
	int32_t rank;
	double work, link;
};
/* How many times as long an operation takes while k ranks of a host compute: slow[kind][k - 1] for k up to `most`, the
 * last for more. */
enum fo_crowd_kind { FO_CROWD_TENSOR, FO_CROWD_MEMORY, FO_CROWD_KINDS };
struct fo_fleet_crowd {
	int32_t ranks; /* of a host, numbered one after the other; 0 or 1: no rank is slowed by others */
	int32_t most;
	const double *slow[FO_CROWD_KINDS];
};
struct fo_fleet {
	int32_t axis[FO_FLEET_AXES], axes; /* ranks of each axis; the last one varies fastest */
	const char *axis_name[FO_FLEET_AXES];
	struct fo_fleet_group group[FO_FLEET_GROUPS];
	int32_t groups;
	struct fo_fleet_link link[FO_FLEET_LINKS];
	int32_t links;
	struct fo_fleet_role *role;
	int32_t roles;
	const int32_t *role_of; /* per rank; NULL: the place on role_axis, or the only role */
	int32_t role_axis;
	char **name; /* of operations */
	int32_t names;
	size_t name_cap, role_cap;
	const struct fo_fleet_odd *odd; /* by rank, each once; the caller's */
	int32_t odds;
	struct fo_fleet_crowd crowd;
	/* Each operation that works takes exp(jitter g) times as long, with g of the normal distribution, drawn anew
	 * for each rank and operation. Then every rank differs. */
	double jitter;
	uint64_t seed;
	bool apart; /* every rank is simulated by itself, also where others do the same */
	/* Says in `out` what an operation is, for messages of calls that do not fit together; NULL: its name does. */
	void (*tell)(const void *ctx, int32_t role, int32_t op, char *out, size_t size);
	const void *ctx;
};

/* Building one; names and roles are the fleet's, everything else pointed to is the caller's. */
int32_t fo_fleet_ranks(const struct fo_fleet *f);
/* Adds an axis behind (faster than) those before; its number. */
int32_t fo_fleet_axis(struct fo_fleet *f, const char *name, int32_t ranks);
int32_t fo_fleet_group(struct fo_fleet *f, const char *name, uint32_t axes);
int32_t fo_fleet_link(struct fo_fleet *f, const char *name, int32_t ranks, bool serial);
/* The number of a name, which is added if it is new (looks from the newest back). */
int32_t fo_fleet_name(struct fo_fleet *f, const char *name);
/* Valid until the next one is added. */
struct fo_fleet_role *fo_fleet_role_add(struct fo_fleet *f, const char *name);
/* Adds an operation; its number. need_begin and needs are set by fo_fleet_need, which adds to the newest one. */
int32_t fo_fleet_op_add(struct fo_fleet_role *r, struct fo_fleet_op op);
void fo_fleet_need(struct fo_fleet_role *r, int32_t earlier);
void fo_fleet_fini(struct fo_fleet *f);

/* Place of a rank in its group, and how many there are; the rank that has a place; a number of the group, less than the
 * number of ranks, that no other group of this kind has. */
int32_t fo_fleet_place(const struct fo_fleet *f, int32_t group, int32_t rank, int32_t *ranks);
int32_t fo_fleet_member(const struct fo_fleet *f, int32_t group, int32_t rank, int32_t place);
int32_t fo_fleet_colour(const struct fo_fleet *f, int32_t group, int32_t rank);

/* ---- what comes out ---- */

/* What an operation's begin rested on: an earlier operation of the same class (what it waited for, or the one before it
 * on its lane); -1: nothing, it began with the step. */
struct fo_fleet_class {
	int32_t role, first, ranks; /* its first rank; how many there are */
	double *begin_s, *end_s; /* per operation; the end is with what its lane needs before the next one (after_s) */
	int32_t *cause;          /* per operation */
	bool *waited;            /* per operation: the cause is of another lane, and the lane was free before */
	/* Per call, send or receive, in order (fo_fleet_run.call gives the number): when the last rank had come, which
	 * class that was, and the number of its operation. */
	double *met_s;
	int32_t *met_class, *met_op;
	double step_s; /* its last end */
};
struct fo_fleet_run {
	const struct fo_fleet *fleet; /* must outlive this */
	double step_s;                /* of the last rank */
	int32_t *class_of;            /* per rank */
	struct fo_fleet_class *class;
	int32_t classes;
	int32_t **call;        /* per role and operation: its number among the calls; -1: it works */
	int64_t events;        /* that were simulated */
	int32_t last, last_op; /* the class and operation that ended last */
};
/* FO_EARG: a fleet that cannot be (a group, link, role or need that is not there; negative or infinite times).
 * FO_EUNSUPPORTED: ranks that differ, times operations, are more than memory is taken for; the message says how many.
 * FO_EBUG: ranks call different things, or wait for each other for ever; the message names rank, operation and lane.
 * *run needs fo_fleet_run_fini in no case of failure. */
FO_CHECKED fo_status fo_fleet_simulate(struct fo_fleet_run *run, const struct fo_fleet *f);
void fo_fleet_run_fini(struct fo_fleet_run *run);

/* Where a class's step goes, in ns, from times that are rounded to ns one by one as timelines hold them: the same words
 * as fo_rank_times (timeline/ranks.h). step = compute + exposed + other, and `tail` up to the end of the job's step. */
struct fo_fleet_sums {
	int64_t step_ns, compute_ns, other_ns;
	int64_t transfer_ns, wait_ns;               /* exposed */
	int64_t hidden_transfer_ns, hidden_wait_ns; /* inside compute */
	int64_t lane_exposed_ns[FO_LANE_COUNT], lane_hidden_ns[FO_LANE_COUNT];
	int64_t busy_ns[FO_LANE_COUNT]; /* sums of spans */
	int64_t tail_ns;                /* others still work */
};
void fo_fleet_sums_of(struct fo_fleet_sums *s, const struct fo_fleet_run *run, int32_t class);

/* The operations that hold the step, from its end back to its begin: each piece ends where the next begins. */
enum fo_fleet_hold {
	FO_FLEET_HOLD_WORK,
	FO_FLEET_HOLD_TRANSFER, /* of a call, from when all were there */
	FO_FLEET_HOLD_DISPATCH  /* between operations of a lane */
};
struct fo_fleet_piece {
	int32_t class, op;
	uint8_t hold;
	double begin_s, end_s;
};
/* Operations of one name on one lane: how much of the path they are, and of which class most of it is. */
struct fo_fleet_share {
	int32_t class, name, pieces;
	uint8_t lane, hold;
	double seconds, class_s;
};
struct fo_fleet_path {
	struct fo_fleet_piece *piece; /* in the order of time */
	int32_t pieces;
	struct fo_fleet_share *share; /* longest first */
	int32_t shares;
	double seconds; /* of all pieces: the step */
};
void fo_fleet_path_of(struct fo_fleet_path *p, const struct fo_fleet_run *run);
void fo_fleet_path_fini(struct fo_fleet_path *p);

/* The ranks whose classes differ, at most `most` of them: those of the critical path first, then the first of each
 * class. The caller frees *rank. */
int32_t fo_fleet_shown(const struct fo_fleet_run *run, int32_t most, int32_t **rank);
/* The spans of these ranks in the Trace Event Format (record/trace_events.h): a process for each rank, a thread for
 * each lane; a call shows when all had come. Waiting for a late rank is a slice of its own. */
void fo_fleet_trace(const struct fo_fleet_run *run, const int32_t *rank, int32_t ranks, struct fo_str *out);

#endif
