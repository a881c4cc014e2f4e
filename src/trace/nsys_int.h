/* Inside src/trace: what the parts of the Nsight Systems reader share. */
#ifndef FO_TRACE_NSYS_INT_H
#define FO_TRACE_NSYS_INT_H

#include "trace/nsys_db.h"
#include "trace/trace_int.h"

#include "base/mem.h"

enum { MOST_PAIRS = 1024 }; /* of process and GPU in one file; searched in a row */

struct strings {
	struct string {
		int64_t id;
		const char *text;
		size_t n;
	} * v; /* open addressing; text NULL: empty */
	size_t count, slots;
	struct fo_arena arena;
};

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
	struct fo_nsys_db db;
	struct strings strings;
	struct pair *pair;
	size_t pairs, pair_cap, last;
	struct group *group;
	int groups;
	bool one_process; /* GPU operations do not say whose they are */
	struct context {
		int64_t process, id, device;
	} * context; /* of kernels: records of waits name device 0 whichever it is */
	size_t contexts, context_cap, last_context;
	struct event {
		int64_t process, id;
		int32_t stream;
	} * event; /* CUDA events by id: the stream that recorded them */
	size_t events, event_cap;
};

/* globalPid and globalTid hold the machine, the process (24 bits) and the thread (24 bits). */
static inline int64_t nsys_process(int64_t global) { return (int64_t)((uint64_t)global >> 24); }
static inline int64_t nsys_thread(int64_t global) { return global & 0xffffff; }

/* A time column; NSYS_NO_TIME for one that is absent or no time: nothing was recorded 36 years from the begin of its
 * session, and sums of two times must fit. */
#define NSYS_NO_TIME INT64_MIN
static inline int64_t nsys_time(const struct fo_nsys_rows *r, int column)
{
	int64_t v = fo_nsys_int(r, column, NSYS_NO_TIME);
	return v > -((int64_t)1 << 60) && v < (int64_t)1 << 60 ? v : NSYS_NO_TIME;
}

/* A table of the export: what becomes of each of its rows. Without the table, or without one of its first `needed`
 * columns, there are no rows (fo_nsys_rows_begin). */
struct nsys_table {
	const char *name;
	int needed;
	void (*row)(struct nsys *x, const struct fo_nsys_rows *r);
	const char *column[FO_NSYS_COLUMNS]; /* ends with NULL */
};
FO_CHECKED fo_status nsys_read_table(struct nsys *x, const struct nsys_table *t);
FO_CHECKED fo_status nsys_read_tables(struct nsys *x, const struct nsys_table *t, size_t n);

FO_CHECKED fo_status nsys_read_strings(struct nsys *x);
/* NULL: no such string. */
const char *nsys_string(const struct nsys *x, int64_t id, size_t *n);
/* NULL: a pair that has no GPU work. */
struct pair *nsys_pair_of(struct nsys *x, int64_t process, int64_t device);
/* NULL: a process that is no part of a trace. *index: of the device there. */
struct group *nsys_group_of_pair(struct nsys *x, int64_t process, int64_t device, int16_t *index);
struct group *nsys_group_of_process(struct nsys *x, int64_t process);
/* Correlations are unique within a process; -1 for none. */
int64_t nsys_correlation(const struct nsys *x, int64_t process, int64_t correlation);

FO_CHECKED fo_status nsys_read_gpu(struct nsys *x); /* nsys_gpu.c: kernels, copies, fills, graphs, waits, devices */
FO_CHECKED fo_status
nsys_read_host(struct nsys *x); /* nsys_host.c: calls, ranges, steps, threads, what the profiler says of itself */

#endif
