/* A software multiprocessor: what kernels (simt.h, C++) and the driver (soft_driver.c, C) know of it. */
#ifndef FO_TESTS_CUDA_SIMT_INT_H
#define FO_TESTS_CUDA_SIMT_INT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FO_SIMT_WARP = 32, FO_SIMT_THREADS = 1024 };

/* One kernel, as FO_KERNEL leaves it behind. */
struct fo_simt_kernel {
	const char *name;
	void (*call)(const void *args);
	size_t args_bytes;
	int threads;                 /* of a block, at most: its launch bounds */
	unsigned char *shared, *end; /* the __shared__ variables of its file */
};
/* Runs all blocks in an order drawn from seed; threads between two meeting points, too, run in a drawn order. Not
 * reentrant. A kernel that breaks the rules (threads that do not meet, writes around dynamic shared memory) is reported
 * on stderr and ends the process. */
void fo_simt_launch(const struct fo_simt_kernel *k, const void *args, const uint32_t grid[3], uint32_t threads,
		    uint32_t shared_bytes, uint64_t seed);

/* Called by threads of a block: where they meet. */
enum fo_simt_meeting {
	FO_SIMT_BARRIER, /* all of the block: */
	FO_SIMT_BARRIER_OR,
	FO_SIMT_BARRIER_AND,
	FO_SIMT_BARRIER_COUNT, /* value is a predicate */
	FO_SIMT_SYNC,          /* those of the warp that mask names: */
	FO_SIMT_INDEX,
	FO_SIMT_UP,
	FO_SIMT_DOWN,
	FO_SIMT_XOR, /* value of another one */
	FO_SIMT_BALLOT,
	FO_SIMT_ADD,
	FO_SIMT_MIN,
	FO_SIMT_MAX,
	FO_SIMT_AND_BITS,
	FO_SIMT_OR_BITS /* of all */
};
uint64_t fo_simt_meet(int kind, uint32_t mask, uint64_t value, int by, int width, const char *file, int line);

struct fo_simt_index {
	uint32_t x, y, z;
};
extern struct fo_simt_index fo_simt_thread, fo_simt_block, fo_simt_threads, fo_simt_blocks;
extern unsigned char *fo_simt_dynamic;

#ifdef __cplusplus
}
#endif

#endif
