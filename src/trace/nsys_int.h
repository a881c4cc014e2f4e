/* Inside src/trace: what the parts of the Nsight Systems reader share. */
#ifndef FO_TRACE_NSYS_INT_H
#define FO_TRACE_NSYS_INT_H

#include "trace/trace_int.h"

#include "base/mem.h"

#include <sqlite3.h>

/* ---- nsys_db.c: tables of an SQLite file that a stranger may have made ----
 *
 * The file is opened read-only and immutable (no locks, no journal), with views, triggers and extensions off. Tables
 * are read in one pass each, without their indexes, column by column as far as they exist. A row takes bytes of the
 * file and so does its text: a file whose pages lead in circles is told by rows or text beyond its size. */

struct nsys_db {
	sqlite3 *h;
	const char *path;
	char **table;                      /* names of its real tables */
	int64_t tables, bytes, text_bytes; /* the file's; of the texts read so far */
	size_t cap;
};
FO_CHECKED fo_status nsys_db_open(struct nsys_db *d, const char *path);
void nsys_db_close(struct nsys_db *d);
/* The table of that name, or its newest version ("..._V3" before "..._V2" before the name itself); NULL. */
const char *nsys_db_table(const struct nsys_db *d, const char *name);

enum { NSYS_COLUMNS = 16 };
/* A row that is looked at. */
struct nsys_row {
	struct nsys_db *d;
	sqlite3_stmt *stmt;   /* NULL: there is no such table */
	int at[NSYS_COLUMNS]; /* where a column stands in the statement; -1: the table does not have it */
};
bool nsys_has(const struct nsys_row *r, int column);
/* `otherwise` for a column that is absent, NULL or no number. */
int64_t nsys_int(const struct nsys_row *r, int column, int64_t otherwise);
/* NULL for a column that is absent, NULL or no text. Valid until the next row; *n bytes, NUL behind them. */
const char *nsys_text(const struct nsys_row *r, int column, size_t *n);
/* A time; NSYS_NO_TIME for one that is absent or no time: nothing was recorded 36 years from the begin of its session,
 * and sums of two times must fit. */
#define NSYS_NO_TIME INT64_MIN
int64_t nsys_time(const struct nsys_row *r, int column);

/* A table of the export: what becomes of each of its rows. A file without the table has no rows; a table without one of
 * its first `needed` columns is FO_EFORMAT. */
struct nsys;
struct nsys_table {
	const char *name;
	int needed;
	void (*row)(struct nsys *x, const struct nsys_row *r);
	const char *column[NSYS_COLUMNS]; /* ends with NULL */
};
FO_CHECKED fo_status nsys_read_tables(struct nsys *x, const struct nsys_table *t, size_t n);

/* ---- whose rows they are (nsys_ids.c) ---- */

enum { MOST_PAIRS = 1024 }; /* of process and GPU in one file; searched in a row */

struct pair {
	int64_t process;   /* nsys_process() */
	int64_t device;    /* as the process numbers it */
	int64_t board;     /* as TARGET_INFO_GPU numbers it; -1: not told */
	int64_t gpu;       /* device id in the trace */
	int group, number; /* number: the same for all pairs of a process */
	bool communicates;
};

/* A range that may be a step: its text is a word for it, with a number or without. */
struct candidate {
	int64_t number, begin_ns, end_ns; /* number -1: has none */
	int32_t stem, thread;             /* text without the number */
};

/* Processes that share GPUs: one trace. */
struct group {
	struct fo_trace_build b;
	struct candidate *candidate;
	size_t candidates, candidate_cap;
	int64_t diagnostics; /* events that the profiler says it lost; -1: it said nothing at all */
};

struct nsys {
	struct nsys_db db;
	struct fo_index string_ids; /* (id, 0): numbers in string[] */
	struct string {
		const char *text;
		size_t n;
	} * string;
	size_t string_cap;
	struct fo_arena arena; /* their texts */
	struct pair *pair;
	size_t pairs, pair_cap, last;
	struct group *group;
	int groups;
	bool one_process; /* GPU operations do not say whose they are */
	bool too_many_pairs;
	struct fo_index contexts; /* (process, context): its device. Records of waits name device 0 whichever it is */
	struct fo_index events;   /* (process, CUDA event): the stream that recorded it */
};

/* globalPid and globalTid hold the machine, the process (24 bits) and the thread (24 bits). */
static inline int64_t nsys_process(int64_t global) { return (int64_t)((uint64_t)global >> 24); }
static inline int64_t nsys_thread(int64_t global) { return global & 0xffffff; }

void nsys_take_string(struct nsys *x, const struct nsys_row *r); /* columns: id, value */
/* NULL: no such string. */
const char *nsys_string(const struct nsys *x, int64_t id, size_t *n);
/* NULL: a pair that has no GPU work. */
struct pair *nsys_pair_of(struct nsys *x, int64_t process, int64_t device);
/* NULL: a process that is no part of a trace. *index: of the device there. */
struct group *nsys_group_of_pair(struct nsys *x, int64_t process, int64_t device, int16_t *index);
struct group *nsys_group_of_process(struct nsys *x, int64_t process);
/* Correlations are unique within a process; -1 for none. */
int64_t nsys_correlation(struct nsys *x, int64_t process, int64_t correlation);

FO_CHECKED fo_status nsys_read_gpu(struct nsys *x); /* nsys_gpu.c: kernels, copies, fills, graphs, waits, devices */
FO_CHECKED fo_status
nsys_read_host(struct nsys *x); /* nsys_host.c: calls, ranges, steps, threads, what the profiler says of itself */

#endif
