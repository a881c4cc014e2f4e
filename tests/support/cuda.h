/* Tests on a CUDA device: a real one, or the software one (docs/cuda-testing.md) whose libraries FLATOUT_CUDA_LIBRARIES
 * names. */
#ifndef FO_TESTS_SUPPORT_CUDA_H
#define FO_TESTS_SUPPORT_CUDA_H

#include "check/engine/num_cuda.h"
#include "cuda/soft.h"
#include "kernel/cuda/cuda.h"

/* Opens the device that FLATOUT_CUDA_DEVICE numbers (0). NULL where there is none: it has printed "skipped: no CUDA
 * device", and the test's status is *status: 77, or 1 where CTest promised the software device or a device there cannot
 * be opened. */
struct fo_cuda *fo_test_cuda_open(int *status);

/* The software device's own functions; NULL on a real device. */
struct fo_test_soft {
	void (*counters)(struct fo_soft_counters *out, bool reset);
	void (*seed)(uint64_t seed);
	void (*order)(int order);
	int (*enqueue)(void *stream, void (*run)(void *args), const void *args, size_t bytes, const char *name);
};
const struct fo_test_soft *fo_test_soft(const struct fo_cuda *c);

/* fo_num_cuda_kernel and fo_num_cuda_run on the device that fo_num_cuda_use named, where errors end the test. */
extern const struct fo_kernel fo_test_cuda_kernel;
void fo_test_cuda_run(const struct fo_call *call, unsigned char *const *block, const size_t *bytes);

#endif
