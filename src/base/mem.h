/* Memory. Three kinds, by size and owner:
 *
 * - Data-sized memory (weights, activations, shards): fo_pages_new() returns a status; the caller frees.
 * - Bookkeeping (names, lists, programs): fo_xmalloc() and arenas. They cannot fail towards the caller: if the system
 *   refuses a few kilobytes the process is lost anyway, so one line is written to standard error and the process ends
 *   with exit code 3. Sizes that come from outside must be capped before they reach these functions.
 * - Temporaries: an arena that the caller passes in. */
#ifndef FO_BASE_MEM_H
#define FO_BASE_MEM_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

void *fo_xmalloc(size_t bytes);           /* zeroed */
void *fo_xrealloc(void *p, size_t bytes); /* as realloc; new bytes are not zeroed */
char *fo_xstrdup(const char *s);

/* Number of fo_xmalloc/fo_xrealloc/arena-block/pages allocations so far in this process: the "no malloc after the
 * first step" test reads it. */
uint64_t fo_mem_count(void);

struct fo_arena_block;
struct fo_arena {
	struct fo_arena_block *head;
};                                                      /* zero-initialised is ready for use */
void *fo_arena_alloc(struct fo_arena *a, size_t bytes); /* zeroed, 16-byte aligned; lives until fini */
char *fo_arena_strdup(struct fo_arena *a, const char *s);
char *fo_arena_printf(struct fo_arena *a, const char *fmt, ...) FO_PRINTF(2, 3);
/* Adds a text to a list of *n that lies in the arena too; NULL and 0 are the empty list. */
void fo_arena_say(struct fo_arena *a, const char ***line, int64_t *n, const char *fmt, ...) FO_PRINTF(4, 5);
void fo_arena_fini(struct fo_arena *a);

/* bytes of zeroed pages, 2 MiB aligned, huge pages advised; not touched yet. Freed with fo_pages_free(p, bytes). */
FO_CHECKED fo_status fo_pages_new(size_t bytes, void **out);
void fo_pages_free(void *p, size_t bytes);
/* Addresses alone: nothing may be read or written there, and no memory is set aside for them, whatever the system's
 * accounting. Freed as pages. fo_pages_take makes [p, p + bytes), which lies in them, zeroed memory (in whole pages;
 * what was taken stays as it is). */
FO_CHECKED fo_status fo_pages_reserve(size_t bytes, void **out);
FO_CHECKED fo_status fo_pages_take(void *p, size_t bytes);
size_t fo_pages_size(size_t bytes); /* what fo_pages_new(bytes) takes from the system: whole huge pages */

/* a * b with overflow reported as FO_EFORMAT ("size overflows"); *out is set only on success. */
FO_CHECKED fo_status fo_mul_size(size_t a, size_t b, size_t *out);

/* Grows *array (element size `size`) so that index n is valid; capacity is kept in *cap. */
void fo_array_room(void *array, size_t *cap, size_t n, size_t size);

#endif
