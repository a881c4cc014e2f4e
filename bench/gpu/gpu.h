/* Shared by gpu.c, which sets up and times operations, and sustain.c, which runs one for seconds. */
#ifndef BENCH_GPU_GPU_H
#define BENCH_GPU_GPU_H

#include "hw/nvml.h"
#include "kernel/cuda/cuda.h"
#include "kernel/work.h"
#include "program/run.h"
#include "train/room.h"

struct entry {
	struct fo_work work;
	int64_t count; /* in a step */
	uint64_t key;  /* fo_op_signature: how flatout predict finds it again */
};
struct bench {
	struct fo_run run;
	int64_t device, square, plan;
	const char *only;
	double seconds, block, sustain;
	struct fo_room_step step; /* that `flatout train` would run on this device */
	struct fo_unrolled unrolled;
	struct entry *entry;
	size_t entries, entry_cap;
	struct fo_work_data host;
	struct fo_cuda *cuda;
	struct fo_cuda_queue queue;
	fo_cuda_event begin, end;
	unsigned char *pool, *flush; /* device */
	void *stage;                 /* page-locked: what goes to the device passes through it */
	size_t pool_bytes, copy_bytes, flush_bytes;
	double copy_bytes_s, product_flop_s;
	double *ms; /* of the newest measurement, sorted */
	size_t n;
};

struct launch {
	const struct fo_cuda_kernel *kernel;
	struct fo_call call;
	int64_t variant;
};
/* Puts it into b's stream. */
FO_CHECKED fo_status bench_enqueue(struct bench *b, const struct launch *l);
/* Operands of w on the device, its plan made (tuned as the run says), its code loaded: *l can be put into b's stream.
 */
FO_CHECKED fo_status bench_ready(struct bench *b, struct fo_work *w, struct launch *l);

/* ---- sustain.c ---- */

/* l again and again for so many seconds, without the host waiting for one call before it puts the next, and nothing
 * between them: seconds of one call, over the last half of that time. */
FO_CHECKED fo_status bench_block(struct bench *b, const struct launch *l, double seconds, double *each_s);
/* --bench.sustain: the square product in bursts, then for b->sustain seconds; prints a line per window, and what it
 * settled at. */
FO_CHECKED fo_status bench_sustain(struct bench *b);

#endif
