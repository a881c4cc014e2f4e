#include "kernel/memory.h"
#include "base/count.h"
#include "base/clock.h"
#include "base/mem.h"

#include <omp.h>
#include <stdio.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

const char *const fo_memory_kind_name[FO_MEMORY_KINDS] = { "read", "write", "copy" };

/* A piece takes one to four milliseconds at 8 to 32 GB/s: short against a neighbour's phases, long against a fork. */
enum { PIECE = 32 << 20, LEAST = 128 << 20 };
#define MOST ((size_t)2 << 30)

typedef uint64_t line __attribute__((vector_size(16), aligned(16)));
enum { STEP = 4 }; /* vectors of a cache line */

/* One number from a small file of the system: "32768K", "0-3". */
static bool read_number(int cpu, int level, const char *name, long *out)
{
	char path[96];
	snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, level, name);
	FILE *f = fopen(path, "re");
	bool good = f && fscanf(f, "%ld", out) == 1;
	if (f)
		fclose(f);
	return good;
}

/* sysconf is not used: glibc 2.36 says 256 MiB where this system's file says 32 (AMD Zen 3 under KVM). */
int64_t fo_cache_bytes(void)
{
	int64_t sum = 0;
	for (int level = 3; !sum && level >= 2; level--) {
		long first, kib;
		for (int cpu = 0; read_number(cpu, level, "size", &kib); cpu++)
			if (read_number(cpu, level, "shared_cpu_list", &first) && first == cpu) /* counted once */
				sum += (int64_t)kib << 10;
	}
	return sum;
}

int64_t fo_cache_second_bytes(void)
{
	long second, third;
	return read_number(0, 2, "size", &second) && read_number(0, 3, "size", &third) ? (int64_t)second << 10 : 0;
}

enum { LINE = 64 };

void fo_cache_fetch(const void *data, size_t rows, size_t bytes, size_t stride, int threads)
{
	uint64_t sum = 0;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(+ : sum)
	for (size_t r = 0; r < rows; r++) {
		const unsigned char *p = (const unsigned char *)data + r * stride;
		for (size_t i = 0; i < bytes; i += LINE)
			sum += p[i];
	}
	__asm__ volatile("" : : "r"(sum));
}

#if defined(__SSE2__)
#define CAN_EVICT
static void evict_line(const void *p) { _mm_clflush(p); }
static void evict_wait(void) { _mm_mfence(); }
#elif defined(__aarch64__)
#define CAN_EVICT
/* Linux lets programs clean and invalidate. */
static void evict_line(const void *p) { __asm__ volatile("dc civac, %0" : : "r"(p) : "memory"); }
static void evict_wait(void) { __asm__ volatile("dsb ish" : : : "memory"); }
#endif

bool fo_cache_evict(const void *data, size_t rows, size_t bytes, size_t stride, int threads)
{
#ifdef CAN_EVICT
#pragma omp parallel num_threads(threads)
	{
#pragma omp for schedule(static) nowait
		for (size_t r = 0; r < rows; r++) {
			const unsigned char *p = (const unsigned char *)data + r * stride, *end = p + bytes;
			for (p = (const unsigned char *)((uintptr_t)p & ~(uintptr_t)(LINE - 1)); p < end; p += LINE)
				evict_line(p);
		}
		evict_wait();
	}
	return true;
#else
	(void)data, (void)rows, (void)bytes, (void)stride, (void)threads;
	return false;
#endif
}

static void part(size_t bytes, int thread, int threads, size_t *begin, size_t *end)
{
	size_t lines = bytes / 64;
	*begin = lines * (size_t)thread / (size_t)threads * 64;
	*end = lines * (size_t)(thread + 1) / (size_t)threads * 64;
}

fo_status fo_traffic_data_new(struct fo_traffic_data *d, int64_t cache_bytes, int threads)
{
	*d = (struct fo_traffic_data){ 0 };
	size_t bytes = 4 * (size_t)cache_bytes,
	       memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGE_SIZE);
	bytes = (size_t)fo_min(fo_clamp((int64_t)bytes, LEAST, MOST), (int64_t)(memory / 8)) / PIECE * PIECE;
	if (!bytes)
		return fo_fail(FO_ENOMEM, "less than %d MiB of memory: too little to measure its rate",
			       8 * PIECE >> 20);
	void *from = NULL, *to = NULL;
	fo_status st = fo_pages_new(bytes, &from);
	if (st == FO_OK)
		st = fo_pages_new(bytes, &to);
	if (st != FO_OK) {
		if (from)
			fo_pages_free(from, bytes);
		return st;
	}
	*d = (struct fo_traffic_data){ .from = from, .to = to, .bytes = bytes };
	/* Touched piece by piece as they will be used, so that each page lies near the thread that uses it. */
#pragma omp parallel num_threads(threads)
	for (size_t piece = 0; piece < bytes; piece += PIECE) {
		size_t begin, end;
		part(PIECE, omp_get_thread_num(), omp_get_num_threads(), &begin, &end);
		for (size_t i = piece + begin; i < piece + end; i += 8) {
			*(uint64_t *)(d->from + i) = i * 0x9e3779b97f4a7c15u;
			*(uint64_t *)(d->to + i) = i;
		}
	}
	return FO_OK;
}

void fo_traffic_data_free(struct fo_traffic_data *d)
{
	if (d->bytes) {
		fo_pages_free(d->from, d->bytes);
		fo_pages_free(d->to, d->bytes);
	}
	*d = (struct fo_traffic_data){ 0 };
}

bool fo_traffic_can(const struct fo_traffic *t)
{
#ifdef __SSE2__
	return !t->past_caches || t->kind != FO_MEMORY_READ;
#else
	return !t->past_caches;
#endif
}

double fo_traffic_bytes(const struct fo_traffic *t) { return (double)PIECE * (t->kind == FO_MEMORY_COPY ? 2 : 1); }

static void store(line *at, line v, bool past_caches)
{
#ifdef __SSE2__
	if (past_caches) {
		_mm_stream_si128((__m128i *)at, (__m128i)v);
		return;
	}
#endif
	(void)past_caches;
	*at = v;
}

/* Reads in four streams, because one alone waits for its prefetcher (AMD Zen 3: 11 GB/s with one, 25 with four). */
static void read_streams(const line *p, size_t n)
{
	enum { STREAMS = 4 };
	line sum[STREAMS] = { { 0 } };
	size_t length = n / STREAMS;
	for (size_t i = 0; i < length; i++)
		for (size_t k = 0; k < STREAMS; k++)
			sum[k] ^= p[k * length + i];
	for (size_t k = 0; k < STREAMS; k++)
		__asm__ volatile("" : : "m"(sum[k]));
}

/* The empty assembler keeps the compiler from making memset and memcpy of these loops: those choose their stores
 * themselves. */
static inline void move(const struct fo_traffic *t, size_t begin, size_t end, bool past_caches)
{
	const line *from = (const line *)(t->data->from + begin), *stop = (const line *)(t->data->from + end);
	line *to = (line *)(t->data->to + begin), a = { 1, 2 };
	switch (t->kind) {
	case FO_MEMORY_READ: read_streams(from, (size_t)(stop - from)); break;
	case FO_MEMORY_WRITE:
		for (; from < stop; from += STEP, to += STEP) {
			for (int i = 0; i < STEP; i++)
				store(&to[i], a, past_caches);
			__asm__ volatile("" : : : "memory");
		}
		break;
	default:
		for (; from < stop; from += STEP, to += STEP) {
			for (int i = 0; i < STEP; i++)
				store(&to[i], from[i], past_caches);
			__asm__ volatile("" : : : "memory");
		}
	}
}

void fo_traffic_run(void *traffic)
{
	const struct fo_traffic *t = traffic;
	size_t piece = t->data->next;
	t->data->next = piece + PIECE < t->data->bytes ? piece + PIECE : 0;
#pragma omp parallel num_threads(t->threads)
	{
		size_t begin, end;
		part(PIECE, omp_get_thread_num(), omp_get_num_threads(), &begin, &end);
		if (t->past_caches) {
			move(t, piece + begin, piece + end, true);
#ifdef __SSE2__
			_mm_sfence(); /* the last of them has left, too */
#endif
		} else {
			move(t, piece + begin, piece + end, false);
		}
	}
}

double fo_memory_read_rate(int threads)
{
	enum { PIECES = 20 };
	struct fo_traffic_data d;
	if (fo_traffic_data_new(&d, fo_cache_bytes(), threads) != FO_OK) {
		fo_err_clear();
		return 0;
	}
	struct fo_traffic t = { .data = &d, .kind = FO_MEMORY_READ, .threads = threads };
	double best = 0;
	for (int i = 0; i < PIECES; i++) {
		int64_t t0 = fo_now_ns();
		fo_traffic_run(&t);
		double rate = fo_traffic_bytes(&t) / ((double)(fo_now_ns() - t0) * 1e-9);
		best = rate > best ? rate : best;
	}
	fo_traffic_data_free(&d);
	return best;
}
