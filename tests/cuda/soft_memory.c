/* Memory of the software device: a range of addresses of its own, so that host pointers are recognised; each allocation
 * ends at a page that cannot be touched. */
#define _GNU_SOURCE
#include "cuda/soft_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
	PAGE = 4096,
	ALIGN = 256, /* what the driver promises at least, and no more */
	PATTERN = 0xa5,
	POISON = 0xff,
	SMALL_NUMBER = 1 << 20, /* no count of tokens, columns or heads in tests is larger */
	FIRST = 1 << 28,        /* the first allocation's distance from the range's begin: no small number either */
	STACK_NEAR = 64 << 10
};
#define RANGE ((size_t)64 << 30) /* of addresses; never given twice before all were given once */

struct piece {
	unsigned char *at;
	size_t bytes;
	int device;
};
static struct pieces {
	struct piece *piece; /* by address */
	int n, cap;
} device, host;
static unsigned char *range;
static size_t taken[SOFT_DEVICES_MOST];
static size_t cursor = FIRST, most = FIRST; /* where to look for room next; no allocation was ever beyond */

static int find(const struct pieces *all, const void *p)
{
	int lo = 0, hi = all->n; /* the last that begins at or before p */
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		if (all->piece[mid].at <= (const unsigned char *)p)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo - 1;
}

static void insert(struct pieces *all, unsigned char *at, size_t bytes)
{
	if (all->n == all->cap) {
		all->cap = all->cap ? 2 * all->cap : 64;
		all->piece = realloc(all->piece, (size_t)all->cap * sizeof *all->piece);
		if (!all->piece)
			abort();
	}
	int i = find(all, at) + 1;
	memmove(&all->piece[i + 1], &all->piece[i], (size_t)(all->n - i) * sizeof *all->piece);
	all->piece[i] = (struct piece){ at, bytes, soft_device() };
	all->n++;
}

static void drop(struct pieces *all, int i)
{
	memmove(&all->piece[i], &all->piece[i + 1], (size_t)(--all->n - i) * sizeof *all->piece);
}

static bool holds(const struct pieces *all, const void *p, size_t bytes)
{
	int i = find(all, p);
	if (i < 0)
		return false;
	size_t off = (size_t)((const unsigned char *)p - all->piece[i].at);
	return off <= all->piece[i].bytes && bytes <= all->piece[i].bytes - off && (bytes || off < all->piece[i].bytes);
}

enum soft_where soft_where(const void *p, size_t bytes)
{
	return holds(&device, p, bytes) ? SOFT_DEVICE : holds(&host, p, bytes) ? SOFT_HOST : SOFT_NOWHERE;
}

/* Structs of arguments have padding, and what lies there is left over from anything: a 32-bit number with half of an
 * old address beside it looks like an address. So only what is known to be wrong counts: memory that was given back,
 * page-locked memory, the caller's stack; and never where the lower half looks like a small number. */
const char *soft_not_a_device_address(uint64_t word)
{
	const unsigned char *p = (const unsigned char *)(uintptr_t)word, *here = __builtin_frame_address(0);
	if ((uint32_t)word < SMALL_NUMBER)
		return NULL;
	/* The address just behind is an honest one: the end of an empty rectangle. */
	if (range && p >= range + FIRST && p < range + most && !holds(&device, p, 0) && !holds(&device, p - 1, 0))
		return "device memory that is not allocated";
	if (holds(&host, p, 0))
		return "page-locked memory of the host";
	return (uintptr_t)p - (uintptr_t)here < STACK_NEAR ? "the caller's stack" : NULL;
}

size_t soft_total(void)
{
	const char *text = getenv("FLATOUT_SOFT_MEMORY");
	return text && *text ? (size_t)strtoull(text, NULL, 0) : (size_t)8 << 30;
}

size_t soft_taken(void) { return taken[soft_device()]; }

static size_t up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* Room for `bytes` with an untouchable page on each side, after the last one; from the start again where the range
 * ends. */
static unsigned char *place(size_t bytes)
{
	for (int turn = 0; turn < 2; turn++) {
		size_t at = cursor;
		while (at + bytes + 2 * PAGE <= RANGE) {
			int i = find(&device, range + at + bytes + 2 * PAGE);
			size_t end = i < 0 ? 0 : up((size_t)(device.piece[i].at + device.piece[i].bytes - range), PAGE);
			if (i < 0 || end <= at) {
				cursor = at + PAGE + bytes;
				most = cursor > most ? cursor : most;
				return range + at + PAGE;
			}
			at = end;
		}
		cursor = FIRST;
	}
	return NULL;
}

CUresult soft_alloc(CUdeviceptr *out, size_t bytes)
{
	size_t own = up(bytes, ALIGN), pages = up(own, PAGE);
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!range) {
		/* Away from all else, where the system has no objection. Shared, so that a limit on the process's own
		 * data leaves it out. */
		range = mmap((void *)(uintptr_t)0x200000000000, RANGE, PROT_NONE,
			     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (range == MAP_FAILED)
			abort();
	}
	if (soft_taken() + own > soft_total())
		return CUDA_ERROR_OUT_OF_MEMORY;
	unsigned char *page = place(pages);
	if (!page || mprotect(page, pages, PROT_READ | PROT_WRITE))
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* At the end of its pages: 256-byte aligned and no better, and what runs behind it by much is caught at once.
	 */
	unsigned char *p = page + pages - own;
	memset(page, PATTERN, pages - own);
	memset(p, POISON, bytes);
	memset(p + bytes, PATTERN, own - bytes);
	insert(&device, p, bytes);
	soft_count.allocations++;
	taken[soft_device()] += own;
	soft_count.live_bytes += (int64_t)own;
	if (soft_count.live_bytes > soft_count.peak_bytes)
		soft_count.peak_bytes = soft_count.live_bytes;
	*out = (CUdeviceptr)(uintptr_t)p;
	return CUDA_SUCCESS;
}

static void check_piece(const struct piece *p, const char *after)
{
	size_t own = up(p->bytes, ALIGN), pages = up(own, PAGE);
	for (size_t i = 0; i < pages - own; i++)
		if (p->at[-1 - (ptrdiff_t)i] != PATTERN) {
			soft_say("byte %zu in front of %zu bytes of device memory was written; noticed after %s", i + 1,
				 p->bytes, after);
			abort();
		}
	for (size_t i = p->bytes; i < own; i++)
		if (p->at[i] != PATTERN) {
			soft_say("byte %zu behind %zu bytes of device memory was written; noticed after %s",
				 i - p->bytes, p->bytes, after);
			abort();
		}
}

void soft_check_guards(const char *after)
{
	for (int i = 0; i < device.n; i++)
		check_piece(&device.piece[i], after);
}

CUresult soft_free(CUdeviceptr ptr)
{
	unsigned char *p = (unsigned char *)(uintptr_t)ptr;
	int i = find(&device, p);
	if (!p)
		return CUDA_SUCCESS;
	if (i < 0 || device.piece[i].at != p)
		return CUDA_ERROR_INVALID_VALUE;
	check_piece(&device.piece[i], "it was freed");
	size_t own = up(device.piece[i].bytes, ALIGN), pages = up(own, PAGE);
	unsigned char *page = p + own - pages;
	taken[device.piece[i].device] -= own;
	drop(&device, i);
	madvise(page, pages, MADV_REMOVE); /* of shared pages the only one that gives them back */
	mprotect(page, pages, PROT_NONE);
	soft_count.frees++;
	soft_count.live_bytes -= (int64_t)own;
	return CUDA_SUCCESS;
}

/* An address that does not look like a small number (soft_not_a_device_address): those of an allocator may, some always
 * do. */
static unsigned char *pages(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *other;
	if (p == MAP_FAILED || (uint32_t)(uintptr_t)p >= SMALL_NUMBER)
		return p == MAP_FAILED ? NULL : p;
	other = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(p, bytes);
	return other == MAP_FAILED ? NULL : other;
}

CUresult soft_host_alloc(void **out, size_t bytes)
{
	unsigned char *p = bytes ? pages(up(bytes, PAGE)) : NULL;
	if (!p)
		return bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	memset(p, POISON, bytes);
	insert(&host, p, bytes);
	soft_count.host_bytes += (int64_t)bytes;
	*out = p;
	return CUDA_SUCCESS;
}

CUresult soft_host_register(void *p, size_t bytes, bool add)
{
	int i = find(&host, p);
	if (add) {
		insert(&host, p, bytes);
		return CUDA_SUCCESS;
	}
	if (i < 0 || host.piece[i].at != p)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	drop(&host, i);
	return CUDA_SUCCESS;
}

CUresult soft_host_free(void *p)
{
	int i = find(&host, p);
	if (i < 0 || host.piece[i].at != p)
		return CUDA_ERROR_INVALID_VALUE;
	soft_count.host_bytes -= (int64_t)host.piece[i].bytes;
	munmap(p, up(host.piece[i].bytes, PAGE));
	drop(&host, i);
	return CUDA_SUCCESS;
}
