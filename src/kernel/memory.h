/* Memory traffic that does nothing else: what memory-bound operations are held against. Arrays are four times the
 * last-level caches, each span takes the next piece of them, so what it touches has long left the caches. */
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
/* Reads every cache line of a rectangle of `rows` rows of `bytes` bytes, `stride` bytes apart: the first rows by the
 * first of `threads` threads, and so on. */
void fo_cache_fetch(const void *data, size_t rows, size_t bytes, size_t stride, int threads);
/* Puts the same lines out of all caches, writing back what was changed. false where the processor offers no way to. */
bool fo_cache_evict(const void *data, size_t rows, size_t bytes, size_t stride, int threads);

/* Two arrays, filled and touched by `threads` threads in the pieces that they will move. FO_ENOMEM. */
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

/* Bytes per second at which `threads` threads together read what no cache holds, the best of some twenty pieces: what a
 * product of one row has to compare itself with. Takes some tenths of a second. 0: no memory for it. */
double fo_memory_read_rate(int threads);

#endif
