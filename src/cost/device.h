/* How long an operation takes on an accelerator of the catalogue (hw/catalogue.h), as an interval.
 *
 * Where the device was measured (cost/device_profile.h) an operation takes the time of its row, or its class the rate
 * of the rows of the class. Else its time is FLOP or bytes over a share of what the vendor publishes (the table in
 * device.c). Steps that others published lie inside the interval (tests/unit/test_predict_device.c); none of Flatout's
 * own was measured yet. With M x N x K, FLOP and bytes of fo_op_cost:
 *   matmuls     FLOP / rate x tiles x depth, at least bytes / memory rate. tiles: what the last wave of tiles leaves
 *               idle, of the best of four tile sizes, relative to large shapes; depth: what filling the pipeline costs
 *               where K < 2048. The fast end has neither. fp8 factors that do not lie along K are turned first: two
 *               bytes an element.
 *   wgrad       on top, the part that no matmul hides of reading and writing a weight gradient's fp32 sum
 *   attention   FLOP / (rate / (1 + s0 / s)), s: keys of a query times two; tiles as above, a block for 128 queries of
 *               a head
 *   the rest    bytes / memory rate, of fused kernels or of plain streams; at least what an empty kernel takes
 * Every operation is followed by a gap: from the end of a kernel until the next one runs at full speed. */
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
	FO_DEVICE_PRODUCT,            /* bf16 matmuls, FLOP/s */
	FO_DEVICE_PRODUCT_FP8,        /* fp8 matmuls, FLOP/s */
	FO_DEVICE_ATTENTION,          /* forward, of infinitely long rows, FLOP/s */
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
	struct fo_interval gap_s;                   /* after each operation */
	bool published;                             /* rates of such a device are published; else they stand in */
	const struct fo_device_profile *profile;    /* NULL: not measured; outlives this */
};

/* Takes the catalogue's row. FO_EARG when it has no dense bf16 peak, FO_EUNSUPPORTED when something else is missing or
 * it is no GPU. */
FO_CHECKED fo_status fo_device_rates_init(struct fo_device_rates *r, const struct fo_device *d);

/* The part of a budget that an operation's time belongs to. */
enum fo_device_part {
	FO_DEVICE_PART_LINEAR,
	FO_DEVICE_PART_WGRAD, /* the visible time of reading and writing sums of weight gradients */
	FO_DEVICE_PART_HEAD,  /* its matmuls, with their sums */
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
	struct fo_interval sums;    /* of these, what a weight gradient's sum adds */
	double sum_bytes;           /* read and written for it */
	bool known;                 /* false: there is no kernel or no rate for it; seconds 0 */
	bool measured;              /* by the profile's row of this operation */
};
/* first: bits of operands that are stored, not added to (struct fo_unrolled); pairs as in fo_op_cost. */
struct fo_device_time fo_device_op_seconds(const struct fo_device_rates *r, const struct fo_program *p,
					   const struct fo_op *o, uint32_t first, double pairs);
/* The part of an operation in a block of that unit. Its sums belong to WGRAD where the part is LINEAR. */
enum fo_device_part fo_device_part_of(const struct fo_op *o, enum fo_unit unit);

/* The share of backward's matmuls that two compute lanes save, because one lane fills the tails of the other's waves. A
 * prediction; 0 for a program with one such lane. */
struct fo_interval fo_device_overlap(const struct fo_program *p);
/* The time of an operation in a step that saves this share. */
struct fo_device_time fo_device_beside(struct fo_device_time t, const struct fo_op *o, struct fo_interval saved);

/* The factor, at least 1, by which a matmul of these dimensions takes longer than its FLOP over the rate of large ones:
 * tiles, waves and depth as above. The fast end has 1. */
double fo_device_shape_cost(const struct fo_device_rates *r, double m, double n, double k);

/* A whole step, operations one after the other with their gaps, no waits for copies: for comparing two programs of the
 * same run. FO_EUNSUPPORTED, naming an operation of which nothing is known. */
FO_CHECKED fo_status fo_device_program_seconds(const struct fo_device_rates *r, const struct fo_program *p,
					       double pairs, struct fo_interval *seconds);

#endif
