/* The machine profile: what this machine's processor and memory were measured to reach. One file per processor, in the
 * user's cache; `flatout calibrate` fills it, training and `flatout mfu` take their peak from it, simulators their
 * times.
 *
 * Units: FLOP/s, bytes, seconds. A row is one kind of work of one shape on so many threads. Its times are of one span
 * (one call): best and median of all spans, and of the quiet ones (hw/quiet.h), which are NaN where no span was quiet.
 *
 *   kind              variant              shape                                 dtype
 *   matmul            forward dgrad wgrad  m, n, k of c(m,n) = a b               of a and b
 *   attention(_bwd)   causal               tokens, heads, kv heads, head dim     of q
 *   other operations  -                    rows, columns of the largest operand  the run's precision
 *   read              plain                bytes of one span                     -
 *   write, copy       plain, nt            bytes of one span                     -
 *   overhead          executor             -                                     -
 *   all_reduce, ...   ranks                ranks, bytes that one of them gets    f32 (cost/links.h)
 *
 * nt: stores that go past the caches. overhead: seconds per operation. A row with a key stands for one very operation
 * of a program (cost/cost.h), a matmul or attention too. */
#ifndef FO_HW_PROFILE_H
#define FO_HW_PROFILE_H

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "hw/quiet.h"
#include "hw/state.h"

#include <stdbool.h>
#include <stdint.h>

enum { FO_LIMITS_SCHEMA = 1, FO_LIMITS_DIMS = 4, FO_LIMITS_MAX_ROWS = 8192, FO_LIMITS_MAX_PEAKS = 256 };
#define FO_LIMITS_MAX_BYTES ((size_t)8 << 20) /* a row is about 300 bytes */

/* The register-only peak of one data type and number of threads: best and median of bursts. */
struct fo_limits_peak {
	char dtype[8], set[16], date[32], method[120]; /* set: the kernel set whose loop was fastest */
	int threads, bursts, clean_bursts;
	double best_flop_s, median_flop_s;
};
/* Fewer clean bursts and the machine was too busy to tell its peak: such a peak may be low. It is shown with that
 * remark, and training measures anew. */
enum { FO_PEAK_ENOUGH = 20 };
static inline bool fo_limits_peak_sure(const struct fo_limits_peak *p) { return p->clean_bursts >= FO_PEAK_ENOUGH; }
struct fo_limits_row {
	char kind[24], variant[12], dtype[8], set[16], date[32]; /* set: whose kernel ran */
	int threads;
	int64_t dim[FO_LIMITS_DIMS]; /* zeros after the last */
	double flop, bytes;          /* of one span: executed, moved at least (each operand once) */
	uint64_t key; /* of the very operation (cost/cost.h: fo_op_signature); 0: stands for its kind and shape alone */
	double cold;  /* share of its operands' bytes that no cache held before; NaN: as the span before left them */
	struct fo_quiet_stats time;
};
/* The machine's state while the rows were measured (hw/state.h). seconds 0: not recorded. */
struct fo_limits_state {
	struct fo_state_use use;
	char governor[32]; /* of cpufreq, at the end; "": not readable */
};
struct fo_limits {
	char cpu[80], isa[16], date[32],
		method[240];          /* isa, date, method of the newest calibration; "" before the first */
	int64_t cache_bytes;          /* all caches of the last level; 0: not known */
	struct fo_limits_state state; /* of the newest calibration */
	struct fo_limits_peak *peak;
	struct fo_limits_row *row;
	size_t peaks, rows, peak_cap, row_cap;
};

/* The processor's name as the system reports it, made visible, with family and model on x86: virtual
 * machines call processors of several generations "AMD EPYC", and their profiles must not mix. */
void fo_cpu_name(char *buf, size_t size);
/* Hardware threads this process may use (affinity and container limits respected): what a run takes unless run.threads
 * says. */
int fo_cpu_threads(void);
/* "<cache>/<name>": the cache is $FLATOUT_CACHE, else $XDG_CACHE_HOME/flatout, else ~/.cache/flatout. The folder is not
 * made. */
char *fo_cache_path(struct fo_arena *a, const char *name);
/* "<cache>/machine-<hash of the processor's name>.json". */
char *fo_limits_path(struct fo_arena *a, const char *cpu);

/* FO_EIO when it cannot be read, FO_EFORMAT (naming the place) when it is not a profile; *m needs no fini then. */
FO_CHECKED fo_status fo_limits_read(const char *path, struct fo_limits *m);
FO_CHECKED fo_status fo_limits_parse(const char *text, size_t len, const char *where, struct fo_limits *m);
extern const struct fo_schema fo_limits_schema;
void fo_limits_json(const struct fo_limits *m, struct fo_str *out);
FO_CHECKED fo_status fo_limits_write(const char *path, const struct fo_limits *m);
void fo_limits_fini(struct fo_limits *m);
/* Reads, lets `edit` change and writes, alone among processes (flock on a file beside it). What is absent, damaged or
 * of another processor starts empty. Makes the folder. */
FO_CHECKED fo_status fo_limits_update(const char *path, const char *cpu, void (*edit)(struct fo_limits *m, void *ctx),
				      void *ctx);

/* NULL: none. */
struct fo_limits_peak *fo_limits_peak(const struct fo_limits *m, const char *dtype, int threads);
/* Replaces the peak of the same dtype and threads, or adds it. */
void fo_limits_peak_put(struct fo_limits *m, const struct fo_limits_peak *p);
/* The same, but a higher peak by the same method stays: a rate that was reached once can be reached. Bursts count from
 * either. */
void fo_limits_peak_raise(struct fo_limits *m, const struct fo_limits_peak *p);
void fo_limits_row_add(struct fo_limits *m, const struct fo_limits_row *r);
/* The row of the same work (kind, variant, shape, type, signature, state of the caches, threads); NULL: none. */
const struct fo_limits_row *fo_limits_row_find(const struct fo_limits *m, const struct fo_limits_row *r);
/* Which of two rows of the same work a profile keeps: the newer, but one without a quiet span takes the place of none
 * that had some, unless other kernels ran. old may be NULL. */
const struct fo_limits_row *fo_limits_row_keep(const struct fo_limits_row *old, const struct fo_limits_row *newer);

/* The time to go by: the quiet median where at least FO_QUIET_ENOUGH spans were quiet, else the median of all. */
double fo_limits_row_seconds(const struct fo_limits_row *r);
/* The highest measured bytes/s of a memory row (read, write or copy) of this many threads; 0: none. Of quiet spans
 * where there are any. */
double fo_limits_memory(const struct fo_limits *m, const char *kind, int threads);

#endif
