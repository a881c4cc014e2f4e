/* How long an operation takes on an accelerator of the catalogue (hw/catalogue.h), as an interval.
 *
 * Where the device was measured (cost/device_profile.h) an operation takes the time of its row, or its class the rate
 * of the rows of the class. Else its time is arithmetic: FLOP or bytes over a share of what the vendor publishes. The
 * shares stand in one table in device.c, each with where it comes from; a device of which nothing is published gets
 * wide ones and says so. Steps that others published lie inside the interval (tests/unit/test_predict_device.c); none
 * of Flatout's own was measured yet.
 *
 * Formulas, of an operation of which M x N x K, FLOP and bytes are those of fo_op_cost:
 *   products    FLOP / rate x tiles x depth, at least bytes / memory rate. tiles: what the last wave of tiles leaves
 *               idle, of the best of four tile sizes, relative to large shapes; depth: what filling the pipeline costs
 *               where K < 2048. The fast end has neither. fp8 factors that do not lie along K are turned first: two
 *               bytes an element.
 *   wgrad       on top, the sum in fp32 that a weight gradient reads and writes: the part of that time that no product
 *               hides, which grows as K shrinks.
 *   attention   FLOP / (rate / (1 + s0 / s)), s: keys of a query times two; tiles as above, a block for 128 queries of
 *               a head.
 *   the rest    bytes / memory rate: one of fused kernels, one of plain streams; at least what a kernel takes that
 *               does nothing.
 * Behind every operation a gap: from the end of a kernel until the next one runs at full speed. */
#ifndef FO_COST_DEVICE_H
#define FO_COST_DEVICE_H

#include "hw/catalogue.h"
#include "program/program.h"

/* low <= mid <= high. Of seconds low is the fast end, of rates the slow one. */
struct fo_interval {
	double low, mid, high;
};
static inline void fo_interval_add(struct fo_interval *sum, struct fo_interval x, double times)
{
	sum->low += times * x.low;
	sum->mid += times * x.mid;
	sum->high += times * x.high;
}

enum fo_device_class {
	FO_DEVICE_PRODUCT,            /* of bf16 factors, FLOP/s */
	FO_DEVICE_PRODUCT_FP8,        /* FLOP/s */
	FO_DEVICE_ATTENTION,          /* forward, of rows without end, FLOP/s */
	FO_DEVICE_ATTENTION_BACKWARD, /* the same; FLOP as executed: the scores are made again */
	FO_DEVICE_FUSED,              /* norms, rotation, SwiGLU, casts: bytes/s */
	FO_DEVICE_STREAM,             /* cross-entropy, AdamW, sums of squares: bytes/s */
	FO_DEVICE_CLASSES
};
extern const char *const fo_device_class_name[FO_DEVICE_CLASSES];

struct fo_device_profile;
struct fo_device_rates {
	char name[64];                              /* of the catalogue's row */
	double peak_flop_s, memory_byte_s, units;   /* dense bf16; as published; multiprocessors, NaN: not known */
	int64_t memory_bytes;                       /* that a driver shows; 0: not known */
	struct fo_interval rate[FO_DEVICE_CLASSES]; /* NaN: not known */
	double most[FO_DEVICE_CLASSES];             /* what no measurement can exceed (device.c); NaN: not known */
	const char *origin[FO_DEVICE_CLASSES];      /* where the rate comes from, one line */
	double keys0[2];                            /* s0 above, forward and backward */
	struct fo_interval gap_s;                   /* behind each operation */
	bool published;                             /* rates of such a device are published; else they stand in */
	const struct fo_device_profile *profile;    /* NULL: not measured; outlives this */
};

/* From the catalogue's row. FO_EARG when it has no dense bf16 peak, FO_EUNSUPPORTED, saying why, when something else
 * is missing (its kind, too) or it is no GPU: nothing is known then. */
FO_CHECKED fo_status fo_device_rates_init(struct fo_device_rates *r, const struct fo_device *d);

/* Where its time belongs in a budget. */
enum fo_device_part {
	FO_DEVICE_PART_LINEAR,
	FO_DEVICE_PART_WGRAD, /* sums of weight gradients read and written, as far as it shows */
	FO_DEVICE_PART_HEAD,  /* its products, with their sums */
	FO_DEVICE_PART_ATTENTION,
	FO_DEVICE_PART_FUSED,
	FO_DEVICE_PART_FP8, /* maxima, scales and casts */
	FO_DEVICE_PART_LOSS,
	FO_DEVICE_PART_OPTIMIZER,
	FO_DEVICE_PART_REPEATED, /* whatever backward computes again */
	FO_DEVICE_PART_TRANSFER, /* waiting for copies to and from the host */
	FO_DEVICE_PART_GAPS,
	FO_DEVICE_PARTS
};
extern const char *const fo_device_part_name[FO_DEVICE_PARTS];

struct fo_device_time {
	struct fo_interval seconds; /* without the gap; 0 for the host's operations */
	struct fo_interval sums;    /* of these what reading and writing a weight gradient's sum adds */
	double sum_bytes;           /* that this reads and writes */
	bool known;                 /* false: there is no kernel or no rate for it; seconds 0 */
	bool measured;              /* the very operation was */
};
/* first: bits of operands that are stored, not added to (struct fo_unrolled); pairs as in fo_op_cost. */
struct fo_device_time fo_device_op_seconds(const struct fo_device_rates *r, const struct fo_program *p,
					   const struct fo_op *o, uint32_t first, double pairs);
/* The part of an operation in a block of that unit. Its sums belong to WGRAD where the part is LINEAR. */
enum fo_device_part fo_device_part_of(const struct fo_op *o, enum fo_unit unit);

/* What operations that run beside each other on two compute lanes save: this share of the products of backward, from
 * the tails of waves of the one that the other fills. A prediction: low where nothing overlaps well. 0 for a program
 * with one such lane. */
struct fo_interval fo_device_overlap(const struct fo_program *p);
/* The time of an operation in a step that saves so much. */
struct fo_device_time fo_device_beside(struct fo_device_time t, const struct fo_op *o, struct fo_interval saved);

/* A whole step, all operations one behind the other with their gaps and nothing waiting for copies: for comparing two
 * programs of the same run. FO_EUNSUPPORTED naming an operation of which nothing is known. */
FO_CHECKED fo_status fo_device_program_seconds(const struct fo_device_rates *r, const struct fo_program *p,
					       double pairs, struct fo_interval *seconds);

#endif
