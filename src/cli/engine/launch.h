/* Private to flatout launch: the line that starts MPI, what MPI says, and the parent of each rank. */
#ifndef FO_CLI_ENGINE_LAUNCH_H
#define FO_CLI_ENGINE_LAUNCH_H

#include "base/err.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/str.h"
#include "program/run.h"
#include "record/rank_where.h"

#include <stdbool.h>
#include <stdint.h>

struct fo_launch {
	int64_t ranks, restarts;
	const char *hosts, *mpirun, *mpi_args, *as_rank;
	double silent, start;
	bool dry_run;
};

/* ---- launch_line.c ---- */

enum fo_mpi_kind { FO_MPI_OPEN, FO_MPI_HYDRA };
struct fo_launch_line {
	enum fo_mpi_kind kind;
	char **argv; /* NULL-terminated, in the arena */
	int argc;
};
/* The command line of mpirun for `child`, which each rank runs. FO_EARG; FO_EUNSUPPORTED where there is no MPI that
 * this program knows. */
FO_CHECKED fo_status fo_launch_line(struct fo_arena *a, const struct fo_launch *l, char *const *child,
				    struct fo_launch_line *out);
/* The host on which a rank is expected where hosts are a list, filled in order; NULL: not known. */
const char *fo_launch_host_of(struct fo_arena *a, const struct fo_launch *l, int rank);

/* ---- launch_said.c: what comes out of mpirun's standard error ---- */

/* Lines of the ranks pass on at once. Held back are MPI's own reports, between lines of dashes, and error lines of our
 * program: at the end one line is to say what happened, and all of them come out where it cannot be said. */
struct fo_launch_said {
	struct fo_str line; /* not ended yet */
	struct fo_str held;
	bool block;              /* in a report of MPI */
	char node[80], exe[256]; /* a host that has no such program; "" */
	char lost[80];           /* a host that MPI lost its connection to; "" */
	char unreachable[160];   /* why a host cannot be reached; "" */
	bool daemon;             /* MPI could not start its daemon somewhere */
	char last[160];          /* the last line that passed on */
};
void fo_launch_said_begin(struct fo_launch_said *s);
void fo_launch_said_add(struct fo_launch_said *s, const char *bytes, size_t n);
void fo_launch_said_end(struct fo_launch_said *s, bool show);
/* The held error line of our program that has `part` ("": the last one) and its hint, without their prefixes; *hint may
 * become "". false: there is none. */
bool fo_launch_said_error(const struct fo_launch_said *s, const char *part, char *text, char *hint, size_t size);

/* ---- launch_rank.c: the parent of one rank ---- */

/* Runs argv as a child, passes signals on (SIGUSR1 as SIGINT), and leaves how it ended in dir. Never returns but with
 * an error; else the process ends with the child's exit code. */
FO_CHECKED fo_status fo_launch_rank(const char *dir, char **argv);

/* ---- train.c ---- */

/* The options of a run that so many processes carry out: mesh.ranks follows, and what contradicts it is a problem. */
void fo_launch_ranks_are(struct fo_opt_set *s, const struct fo_run *r, int ranks);

#endif
