#include "base/mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20) /* x86-64 and aarch64 (4 KiB granule) huge page */

static atomic_uint_fast64_t count;

uint64_t fo_mem_count(void) { return atomic_load(&count); }

static void out_of_memory(size_t bytes)
{
	fprintf(stderr, "flatout: out of memory: the system refused %zu bytes\n", bytes);
	exit(3);
}

void *fo_xmalloc(size_t bytes)
{
	atomic_fetch_add(&count, 1);
	void *p = calloc(1, bytes ? bytes : 1);
	if (!p)
		out_of_memory(bytes);
	return p;
}

void *fo_xrealloc(void *p, size_t bytes)
{
	atomic_fetch_add(&count, 1);
	p = realloc(p, bytes ? bytes : 1);
	if (!p)
		out_of_memory(bytes);
	return p;
}

char *fo_xstrdup(const char *s)
{
	size_t n = strlen(s) + 1;
	return memcpy(fo_xmalloc(n), s, n);
}

struct fo_arena_block {
	struct fo_arena_block *next;
	size_t used, size;
	_Alignas(16) unsigned char data[];
};

void *fo_arena_alloc(struct fo_arena *a, size_t bytes)
{
	if (bytes > SIZE_MAX / 2) /* a negative count: rounding it up would wrap to a tiny block */
		out_of_memory(bytes);
	bytes = (bytes + 15) & ~(size_t)15;
	struct fo_arena_block *b = a->head;
	if (!b || b->size - b->used < bytes) {
		size_t size = bytes > 16384 ? bytes : 16384;
		b = fo_xmalloc(sizeof *b + size);
		b->size = size;
		b->next = a->head;
		a->head = b;
	}
	void *p = b->data + b->used;
	b->used += bytes;
	return p;
}

char *fo_arena_strdup(struct fo_arena *a, const char *s)
{
	size_t n = strlen(s) + 1;
	return memcpy(fo_arena_alloc(a, n), s, n);
}

static char *arena_vprintf(struct fo_arena *a, const char *fmt, va_list ap)
{
	va_list again;
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	char *s = fo_arena_alloc(a, (size_t)(n < 0 ? 0 : n) + 1);
	vsnprintf(s, (size_t)(n < 0 ? 0 : n) + 1, fmt, again);
	va_end(again);
	return s;
}

char *fo_arena_printf(struct fo_arena *a, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	char *s = arena_vprintf(a, fmt, ap);
	va_end(ap);
	return s;
}

void fo_arena_say(struct fo_arena *a, const char ***line, int64_t *n, const char *fmt, ...)
{
	va_list ap;
	if (!(*n & (*n - 1))) { /* none, or a power of two: the list is full */
		const char **more = fo_arena_alloc(a, (size_t)(*n ? 2 * *n : 1) * sizeof *more);
		for (int64_t i = 0; i < *n; i++)
			more[i] = (*line)[i];
		*line = more;
	}
	va_start(ap, fmt);
	(*line)[(*n)++] = arena_vprintf(a, fmt, ap);
	va_end(ap);
}

void fo_arena_fini(struct fo_arena *a)
{
	for (struct fo_arena_block *b = a->head, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	a->head = NULL;
}

size_t fo_pages_size(size_t bytes) { return ((bytes ? bytes : 1) + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1); }

static fo_status map_pages(size_t bytes, int protection, void **out)
{
	atomic_fetch_add(&count, 1);
	size_t size = fo_pages_size(bytes);
	if (size < bytes)
		return fo_fail(FO_ENOMEM, "cannot allocate %zu bytes: size overflows", bytes);
	/* Map one huge page more and trim, so that the result starts on a huge page. */
	unsigned char *p = mmap(NULL, size + HUGE_PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return fo_fail(FO_ENOMEM, "cannot allocate %.3f GiB: the system refused", (double)bytes / 1073741824.0);
	size_t head = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
	if (head)
		munmap(p, head);
	if (HUGE_PAGE - head)
		munmap(p + head + size, HUGE_PAGE - head);
	madvise(p + head, size, MADV_HUGEPAGE);
	*out = p + head;
	return FO_OK;
}

fo_status fo_pages_new(size_t bytes, void **out) { return map_pages(bytes, PROT_READ | PROT_WRITE, out); }
fo_status fo_pages_reserve(size_t bytes, void **out) { return map_pages(bytes, PROT_NONE, out); }

fo_status fo_pages_take(void *p, size_t bytes)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)p / page * page,
			to = ((uintptr_t)p + bytes + page - 1) / page * page;
	atomic_fetch_add(&count, 1);
	if (mprotect((void *)from, to - from, PROT_READ | PROT_WRITE))
		return fo_fail(FO_ENOMEM, "cannot allocate %.3f GiB: the system refused", (double)bytes / 1073741824.0);
	return FO_OK;
}

void fo_pages_free(void *p, size_t bytes)
{
	if (p)
		munmap(p, fo_pages_size(bytes));
}

fo_status fo_mul_size(size_t a, size_t b, size_t *out)
{
	size_t product;
	if (__builtin_mul_overflow(a, b, &product))
		return fo_fail(FO_EFORMAT, "size overflows: %zu x %zu bytes", a, b);
	*out = product;
	return FO_OK;
}

void fo_array_room(void *array, size_t *cap, size_t n, size_t size)
{
	if (n < *cap)
		return;
	size_t want = *cap ? *cap * 2 : 16;
	if (want <= n)
		want = n + 1;
	void **slot = array;
	*slot = fo_xrealloc(*slot, want * size);
	*cap = want;
}
