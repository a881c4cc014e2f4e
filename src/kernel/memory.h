/* Memory traffic alone: what memory-bound operations are compared with. Arrays are four times the last-level caches,
 * and each span takes the next piece of them, so what it touches has left the caches. */
#ifndef FO_KERNEL_MEMORY_H
#define FO_KERNEL_MEMORY_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fo_memory_kind { FO_MEMORY_READ, FO_MEMORY_WRITE, FO_MEMORY_COPY, FO_MEMORY_KINDS };
extern const char *const fo_memory_kind_name[FO_MEMORY_KINDS];

struct fo_traffic_data {
	unsigned char *from, *to;
	size_t bytes; /* each */
	size_t next;  /* piece that comes next */
};
/* Bytes of all last-level caches together; 0: the system does not say. */
int64_t fo_cache_bytes(void);
/* Bytes of one core's second level, where there is a third; 0: there is none, or the system does not say. */
int64_t fo_cache_second_bytes(void);
/* Reads every cache line of `rows` rows of `bytes` bytes, `stride` bytes apart, each thread a stretch of rows. */
void fo_cache_fetch(const void *data, size_t rows, size_t bytes, size_t stride, int threads);
/* Evicts the same lines from all caches. false: this processor has no instruction for it. */
bool fo_cache_evict(const void *data, size_t rows, size_t bytes, size_t stride, int threads);

/* Two arrays, touched by the threads that will move them. FO_ENOMEM. */
FO_CHECKED fo_status fo_traffic_data_new(struct fo_traffic_data *d, int64_t cache_bytes, int threads);
void fo_traffic_data_free(struct fo_traffic_data *d);

struct fo_traffic {
	struct fo_traffic_data *data;
	enum fo_memory_kind kind;
	bool past_caches; /* non-temporal stores: x86 only */
	int threads;
};
bool fo_traffic_can(const struct fo_traffic *t);
/* Bytes that one run reads and writes, as the program sees them (a store that first fetches its line counts once). */
double fo_traffic_bytes(const struct fo_traffic *t);
/* One piece: a fo_meter_span function. */
void fo_traffic_run(void *traffic);

/* Bytes per second at which `threads` threads read what no cache holds, the best of some twenty pieces: the ceiling of
 * a matmul of one row. Takes some tenths of a second. 0: no memory for it. */
double fo_memory_read_rate(int threads);

#endif
