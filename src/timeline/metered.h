/* Metered steps: every operation of a step timed between two bursts of known work, and the step time that is composed
 * from the quiet spans.
 *
 * Quiet phases of a shared machine are shorter than a step (docs/metrics.md). So a step's time is composed from its
 * operations: each counts with the median of its quiet spans, over all metered steps and layers. The file keeps raw
 * spans, because which of them was quiet depends on the best bursts ever seen, in other files, too.
 *
 * A meter (src/kernel/measure.h) takes the spans; training with train.metered-every appends them to DIR/metered.fom
 * (docs/formats.md), one checksummed piece per step. */
#ifndef FO_TIMELINE_METERED_H
#define FO_TIMELINE_METERED_H

#include "hw/quiet.h"
#include "timeline/timeline.h"

#define FO_METERED_FILE "metered.fom" /* in a run directory */

struct fo_metered_span {
	int32_t step, instance; /* step: 1-based, as in log.jsonl; instance: of the program's unrolling */
	struct fo_quiet_span span;
};
struct fo_metered {
	uint64_t program_hash;
	int threads;
	char dtype[8]; /* of the register-only loop in the bursts: only bursts of one dtype and thread count compare */
	struct fo_metered_span *span;
	size_t n, cap;
	int64_t steps; /* pieces read; of one in memory: fo_metered_end's */
	bool torn;     /* read: the file ends in the middle of a piece, which was left out */
};
/* An empty one, for this program. Freed with fo_metered_fini. */
void fo_metered_init(struct fo_metered *m, const struct fo_program *p, const char *dtype, int threads);
void fo_metered_fini(struct fo_metered *m);
void fo_metered_add(struct fo_metered *m, int32_t step, int32_t instance, const struct fo_quiet_span *s);

/* Reads and validates. The rest of a last piece that a kill cut off is left out; other damage is FO_EFORMAT. */
FO_CHECKED fo_status fo_metered_read(struct fo_metered *m, const char *path);

/* Appends one piece per step. A file of another program, dtype or thread count is begun anew. */
struct fo_metered_out {
	int fd;
	char *path; /* heap */
	struct fo_str piece;
};
FO_CHECKED fo_status fo_metered_open(struct fo_metered_out *o, const char *path, const struct fo_metered *m);
/* Writes m's spans, those of one step, and empties m. Allocates only when a piece is larger than all before. */
FO_CHECKED fo_status fo_metered_write(struct fo_metered_out *o, struct fo_metered *m);
void fo_metered_close(struct fo_metered_out *o);

/* ---- composition ---- */

/* Raises *best by every burst of m: call it for all files of one machine, dtype and thread count, then compose each. */
void fo_metered_best(const struct fo_metered *m, struct fo_burst *best);

struct fo_composed_op {          /* operation `op` of block `block`, over all layers and micro-batches */
	int block, op, per_step; /* instances in a step */
	struct fo_quiet_stats time;
	double seconds; /* of one instance: the quiet median, of all spans where none was quiet; 0 without a span */
};
struct fo_composed {
	struct fo_composed_op *op; /* blocks in order; operations that the host serves have no spans */
	int ops;
	int64_t steps;
	double seconds;               /* the quiet step time: the operations one after the other; NaN without a span */
	double median_s;              /* the same from the medians of all spans */
	double part_s[FO_PART_COUNT]; /* of `seconds` */
	double quiet_share;           /* of `seconds`, from operations that had a quiet span */
	double enough_share;          /* of `seconds`, from operations that had FO_QUIET_ENOUGH of them */
	double quiet_spans_share;     /* of all spans, those that were quiet */
};
/* u: of p. FO_EFORMAT when the spans belong to another program. */
FO_CHECKED fo_status fo_compose(struct fo_composed *c, const struct fo_metered *m, const struct fo_program *p,
				const struct fo_unrolled *u, const struct fo_burst *best);
void fo_composed_fini(struct fo_composed *c);

#endif
