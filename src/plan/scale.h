/* One job on clusters of many sizes: each with the best plan of its own, its MFU, and what of the time counts.
 *
 * Strong: the batch is one and the same. Weak: it grows with the devices, from the size that it is stated for. What is
 * known of a size is said with it: the constants of src/predict rest on runs of at most FO_PREDICT_PUBLISHED_DEVICES
 * devices, and the network of a larger cluster is a guess unless its measured rate was given. */
#ifndef FO_PLAN_SCALE_H
#define FO_PLAN_SCALE_H

#include "plan/plan.h"
#include "sim/goodput.h"

enum { FO_SCALE_SIZES = 32 };
struct fo_scale_asked {
	struct fo_plan_asked plan; /* devices and global_batch: the size that the batch is stated for */
	double per_node;           /* devices of a node that is whole */
	struct fo_range net;       /* between nodes, over what plan.base's machine has: {0.5, 1} */
	bool net_measured;         /* somebody measured what collectives reach there */
	bool weak;
	struct fo_goodput_in goodput; /* but for devices */
	double size[FO_SCALE_SIZES];  /* devices, ascending: fo_scale_sizes, or some that fo_scale_check accepts */
	int sizes;
};
enum fo_scale_fit {
	FO_SCALE_FITS,
	FO_SCALE_TOO_LARGE,   /* no division fits in memory */
	FO_SCALE_NO_DIVISION, /* none is legal for this batch */
	FO_SCALE_NO_BATCH     /* weak: the batch would be no whole number of sequences */
};
struct fo_scale_point {
	double devices, per_node, nodes, global_batch;
	enum fo_scale_fit fit;
	/* The rest where it fits. */
	const char *size; /* not NULL: MFU and what follows from it are not known, fo_predict_size_doubt says why */
	struct fo_plan_point plan;
	struct fo_range seconds, tokens_s, mfu_causal; /* 80 %; tokens of all devices */
	double speed;                                  /* tokens/s over those of the smallest size that fits */
	struct fo_goodput goodput;
	/* Tokens of all devices in a second of the whole time: 80 % of each, as if both were at their ends at once. */
	struct fo_range kept_tokens_s;
	const char *doubt; /* why to distrust the figures; NULL: nothing */
	/* FO_SCALE_TOO_LARGE: of a device, in the division that takes least; the most that it may be, which decides. */
	double smallest_bytes, smallest_bytes_high;
};
struct fo_scale {
	bool weak;
	int points;
	struct fo_scale_point point[FO_SCALE_SIZES];
};

/* Doublings from 8 devices to 262,144; their number. Every node has a place in them: one whose devices are no power of
 * two (a rack of 72) is used up to the largest power of two below. */
int fo_scale_sizes(double *size);
/* FO_EARG where no number of nodes has so many devices. */
FO_CHECKED fo_status fo_scale_check(double per_node, double devices);
/* FO_EARG, with a hint: fixed degrees, or a batch, that no size has. Sizes on which the job does not fit, and those
 * that have no legal division beside others that do, are points that say so. */
FO_CHECKED fo_status fo_scale_of(struct fo_scale *out, const struct fo_scale_asked *asked);

#endif
