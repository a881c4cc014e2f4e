/* simt_cases.cu's kernels, for test_cuda_simt.c. */
#ifndef FO_TESTS_CUDA_SIMT_CASES_H
#define FO_TESTS_CUDA_SIMT_CASES_H

#include <stdint.h>

enum {
	SIMT_WELL,
	SIMT_SOME_END,
	SIMT_ELSEWHERE,
	SIMT_MASK,
	SIMT_NOT_NAMED,
	SIMT_HALF_WARP,
	SIMT_OVERRUN,
	SIMT_MISALIGNED,
	SIMT_NOWHERE
};
struct simt_args {
	int *out;
	int32_t n, bytes;
};

#endif
