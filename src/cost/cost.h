/* How long an operation takes on a machine that was measured (hw/profile.h), and which operands the caches still hold.
 *
 * Rows of a profile that `flatout calibrate RUN` has made carry a signature: kind, shapes, data types and all else that
 * decides the time of a call. An operation whose signature has rows takes their time: exact. Else its rate is the
 * geometric mean of the rows of its kind, type and number of threads, weighted by nearness:
 *   matmuls, attention   FLOP/s, by doublings of the dimensions
 *   memory operations    bytes/s, by doublings of the bytes moved, and by the share of them that no cache holds: all
 *                        instead of none counts as two doublings
 * A row's time is the median of its quiet spans, of all where none was quiet, as metered steps are composed
 * (timeline/metered.h). A kind without any row runs at the machine's rate of copying, or of matmuls: a guess, marked as
 * one. */
#ifndef FO_COST_COST_H
#define FO_COST_COST_H

#include "hw/profile.h"
#include "program/program.h"

/* A hash that identifies a call: kind, attributes, and of each operand shape, leading dimension, data type and access.
 * first: bit i where this call stores operand i instead of adding to it (struct fo_unrolled). Never 0. */
uint64_t fo_op_signature(const struct fo_program *p, const struct fo_op *o, uint32_t first);

/* The row that an operation would be measured as; threads, set, date, times and the cold share are left to the
 * measurer. FO_EARG for what no kernel computes. */
FO_CHECKED fo_status fo_op_row(const struct fo_program *p, const struct fo_op *o, uint32_t first, double pairs,
			       struct fo_limits_row *row);

/* Rows that stand for how long the last level keeps what nobody uses (kernel/kept.h): this kind, seconds of a chain of
 * reads after it was left alone for dim[0] microseconds, or of what no cache holds; dim[1] the bytes of the second
 * level, which is a core's own. */
#define FO_KEPT_ROW "kept"
#define FO_KEPT_LEFT "left"
#define FO_KEPT_NOT "flushed"

/* Contents of caches. The last level may be others' too, who push out what is left alone: of bytes that were touched
 * longer ago than `second` bytes, and so are in it at best, the share lost[k] after after_s[k] seconds. */
enum { FO_CACHES_GAPS = 16 };
struct fo_caches {
	double last, second;
	int gaps; /* 0: it keeps everything, or nobody measured it */
	double after_s[FO_CACHES_GAPS], lost[FO_CACHES_GAPS];
};
/* As a profile has it. */
void fo_caches_of(struct fo_caches *c, const struct fo_limits *l);
/* The share, on the line between two gaps; 0 before the first. */
double fo_caches_lost(const struct fo_caches *c, double left_s);

struct fo_rates {
	const struct fo_limits *limits; /* outlives this */
	int threads;                    /* of the compute lane */
	double copy_byte_s;             /* from memory to memory: where a kind has no row */
	double overhead_s;              /* of the executor, for each operation; 0: not measured */
	struct fo_caches caches;
};
/* FO_EUNSUPPORTED when the profile has no matmul or no copy with so many threads. */
FO_CHECKED fo_status fo_rates_init(struct fo_rates *r, const struct fo_limits *l, int threads);
/* The most threads that a profile has matmuls of; 0: it has none. */
int fo_rates_threads(const struct fo_limits *l);
/* The processors that its machine has at least: the most threads of matmuls and of peaks. A calibration for several
 * ranks of one thread has matmuls of one, and peaks of all ranks together as far as there are processors. 0: none. */
int fo_rates_cores(const struct fo_limits *l);

/* A call: what it finds. */
struct fo_op_use {
	uint32_t first; /* as in fo_op_signature */
	uint32_t cold;  /* bit i: operand i is in no cache */
	double pairs;   /* as in fo_op_cost */
	double lost;    /* share of its bytes, of operands that are not cold, that others pushed out of the caches */
};
/* How well a time is known. NEAR: interpolated, the nearest row within FO_COST_NEAR doublings of all dimensions
 * together. GUESS: further away, or a stand-in for a kind without rows. NONE: nothing is known, 0 s (communication). */
enum fo_sure { FO_SURE_EXACT, FO_SURE_NEAR, FO_SURE_GUESS, FO_SURE_NONE, FO_SURE_COUNT };
extern const char *const fo_sure_name[FO_SURE_COUNT];
#define FO_COST_NEAR 2.0
struct fo_op_time {
	double seconds; /* without the executor's overhead; 0 for the host's operations, which are EXACT */
	enum fo_sure sure;
	bool quiet; /* the nearest row had quiet spans (hw/quiet.h); false for stand-ins */
};
struct fo_op_time fo_rates_op(const struct fo_rates *r, const struct fo_program *p, const struct fo_op *o,
			      const struct fo_op_use *use);

/* ---- step.c ---- */

/* When a step runs each of its instances; steps follow each other step_s apart. */
struct fo_step_when {
	const double *begin_s, *end_s; /* per instance */
	double step_s;
};
/* The time of each instance; pairs of a micro-batch as in fo_op_cost. when NULL: so soon after each other that nobody
 * pushed anything out of the caches. The program is unrolled and planned. To be freed with free(). */
struct fo_op_time *fo_rates_step(const struct fo_rates *r, const struct fo_program *p, const struct fo_unrolled *u,
				 double pairs, const struct fo_step_when *when);

/* ---- reuse.c: what the caches hold ----
 *
 * The model is one cache of least recent use, the last level's size, fully associative: an operand is cold when more
 * bytes than that were touched since its own bytes were (by whatever lay there: arena bytes are reused). Two steps are
 * walked, so that the first finds what a step leaves. */

/* Per instance: bit i is set where operand i is cold. The program is unrolled and planned; cache_bytes 0 (not known):
 * all operands are cold. To be freed with free(). */
uint32_t *fo_reuse_cold(const struct fo_program *p, const struct fo_unrolled *u, int64_t cache_bytes);
/* Per instance fo_op_use.lost, by how long ago each operand was touched last. To be freed with free(). */
double *fo_reuse_lost(const struct fo_program *p, const struct fo_unrolled *u, const struct fo_caches *c,
		      const struct fo_step_when *when);
/* Bytes that an operation touches of operand i: the rectangle; of a table that is looked up, one row per token. */
double fo_reuse_touched(const struct fo_program *p, const struct fo_op *o, int i);
/* The share, 0 to 1, of the bytes an operation touches that are in the operands of bit set `cold`. */
double fo_reuse_share(const struct fo_program *p, const struct fo_op *o, uint32_t cold);

#endif
