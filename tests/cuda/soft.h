/* The software CUDA device: what its libraries show to tests and to each other beside NVIDIA's functions. Needs no CUDA
 * header.
 *
 * libcuda.so.1 (soft_driver.c, soft_queue.c, soft_memory.c, simt.c and the kernels) and libcublasLt (soft_cublaslt.c)
 * lie in one folder, which FLATOUT_CUDA_LIBRARIES names. Environment, read when the library is loaded:
 *
 *   FLATOUT_SOFT_SEED      of all random choices; 1
 *   FLATOUT_SOFT_ORDER     random (work runs now or later, in any order that streams and events leave open), lazy (only
 * when somebody waits), eager (at once) FLATOUT_SOFT_MEMORY    bytes of the device; 8 GiB FLATOUT_SOFT_DEVICES   1
 *   FLATOUT_SOFT_TRACE     1: every piece of work on stderr as it runs
 *   FLATOUT_SOFT_CHECK     1: guard zones are looked at after each piece of work, not only when somebody waits
 *   FLATOUT_SOFT_TIMES     read with each product: what it takes, made up; then no other time passes on the device
 *                          (soft_cublaslt.c)
 *   FLATOUT_SOFT_COUNTERS  file that gets the counters as JSON when the process ends */
#ifndef FO_TESTS_CUDA_SOFT_H
#define FO_TESTS_CUDA_SOFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FO_SOFT_COUNTERS(X)                                                                     \
	X(launches)      /* of kernels of ours, also as nodes of graphs */                      \
	X(library_calls) /* products and what else other software libraries put into streams */ \
	X(copies_in)                                                                            \
	X(copies_out)                                                                           \
	X(copies)                                                                               \
	X(fills)                                                                                \
	X(records)                                                                              \
	X(waits)                                                                                \
	X(captures)                                                                             \
	X(graph_launches)                                                                       \
	X(graph_nodes) /* nodes that ran */                                                     \
	X(synchronisations)                                                                     \
	X(allocations)                                                                          \
	X(frees)                                                                                \
	X(live_bytes)                                                                           \
	X(peak_bytes)                                                                           \
	X(host_bytes)
struct fo_soft_counters {
#define FO_SOFT_COUNTER(name) int64_t name;
	FO_SOFT_COUNTERS(FO_SOFT_COUNTER)
#undef FO_SOFT_COUNTER
};
enum fo_soft_order { FO_SOFT_RANDOM, FO_SOFT_LAZY, FO_SOFT_EAGER };

/* Exported by libcuda.so.1. */
int fo_software_device(void);
void fo_software_counters(struct fo_soft_counters *out, bool reset); /* reset: all but live and host bytes begin anew */
void fo_software_seed(uint64_t seed);
void fo_software_order(int order);
/* Puts run(args) into a stream (or a graph that is being captured); args are copied. A CUresult. */
int fo_software_enqueue(void *stream, void (*run)(void *args), const void *args, size_t bytes, const char *name);
/* The same for work that waits for other threads' devices, too: it runs once met(args) is true, which is asked with the
 * device's lock held, while nothing else runs. begun: called with the work's args when it is put into the stream, as
 * part of a graph whenever that is launched, in the order of the host's calls. */
int fo_software_enqueue_met(void *stream, void (*begun)(void *args), bool (*met)(void *args), void (*run)(void *args),
			    const void *args, size_t bytes, const char *name);
/* Time passes on the device: counted while FLATOUT_SOFT_TIMES is set (soft_cublaslt.c), from inside a piece of work. */
void fo_software_takes(double us);
/* All of it lies in one piece of device memory. */
bool fo_software_holds(const void *device, size_t bytes);

#endif
