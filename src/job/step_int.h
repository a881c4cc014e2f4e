/* A step's work, counted once, and the rates that turn it into time, drawn many times. Private to src/job. */
#ifndef FO_JOB_STEP_INT_H
#define FO_JOB_STEP_INT_H

#include "cost/device.h"
#include "job/collective.h"
#include "job/memory_int.h"
#include "job/step.h"

/* Matmuls: FLOP, and FLOP times what tiles, waves and depth cost. */
struct fo_job_flop {
	double flop, shaped;
};
/* Bytes where fusion is known in part only. */
struct fo_job_moved {
	double low, high;
};

/* One direction of one micro-batch on the busiest stage; `head` is of the last stage. */
struct fo_job_pass {
	struct fo_job_flop bf16, fp8, grouped; /* grouped: of experts, in the type of the linear matmuls */
	struct fo_job_flop core;               /* of scores that are stored: two matmuls */
	double attention;                      /* FLOP as kernels run them, short rows included */
	double scores;                         /* bytes of scores that are stored */
	struct fo_job_moved memory;
	double casts; /* bytes, fp8 */
	struct fo_job_moved launches;
};

struct fo_job_work {
	struct fo_job_counts m;
	struct fo_job_shape s;
	double layers;                               /* of the fullest stage */
	struct fo_job_pass forward, backward, again; /* of all its layers; again: what backward repeats of forward */
	struct fo_job_flop head[2];                  /* forward, backward */
	struct fo_job_moved loss;                    /* bytes */
	double heads;                                /* of attention on this device */
	bool eager_attention, grouped_fp8;
	bool torch_ring; /* CP is PyTorch's own */
	/* Communication of one micro-batch. */
	struct fo_job_group tp, cp, ep, shard, replicate;
	double tp_bytes, tp_times[3]; /* of one gather or reduction; gathers of forward, backward, again */
	double cp_bytes[2];           /* forward, backward; keys and values that all ranks have */
	double ep_bytes, ep_times[3];
	double send_bytes;
	int send_across;
	bool tp_overlap, tp_back_overlap, ep_overlap, send_overlap;
	/* Data parallelism. */
	double zero, gather_bytes, reduce_bytes, sum_bytes; /* of the stage's weights */
	double copied;                                      /* bytes that FSDP moves on the device, of one step */
	double added;                                       /* bytes of weight gradients' sums, of one micro-batch */
	double gathers, gathers_back, reduces;              /* of one step: forward, backward, reductions */
	struct fo_job_moved overlap_gather, overlap_reduce; /* 0 or 1, or between where it is not known */
	double bubble;                                      /* share of a stage's micro-batch, times this, is idle */
	/* Once a step. */
	double elements;            /* weights that this device updates */
	struct fo_job_moved update; /* bytes of one weight */
	double update_launches;
	double to_host, from_host, on_host; /* bytes of offloading, bytes that the host's update moves */
	double host_kept;                   /* bytes of activations that go and come in a micro-batch */
	bool graphs;
};

/* Counts. A text: what is missing; NULL. */
const char *fo_job_work_of(struct fo_job *job, const struct fo_cluster *c, const struct fo_device_rates *r,
			   struct fo_job_work *w);

#endif
