/* What tests tell the software libcupti. */
#ifndef FO_TESTS_CUDA_SOFT_CUPTI_H
#define FO_TESTS_CUDA_SOFT_CUPTI_H

#include <stddef.h>
#include <stdint.h>

/* A kernel was launched by this thread now and ran then (clock of fo_now_ns); node: of a graph that was launched; 0:
 * none. */
void fo_software_cupti_kernel(const char *name, int64_t begin_ns, int64_t end_ns, uint64_t node);
/* A node was made by this thread; from: it is a copy of that one; 0: it is new. */
void fo_software_cupti_node(uint64_t node, uint64_t from);
void fo_software_cupti_lose(size_t n); /* records */

#endif
