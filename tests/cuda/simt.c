/* The software multiprocessor: threads of a block are coroutines that switch where they meet. */
#define _GNU_SOURCE
#include "cuda/simt_int.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	STACK_BYTES = 64 << 10,
	STAGGER = 832,
	STAGGER_MOST =
		16 << 10, /* bytes: stacks that end at the same place of a page would share one set of the cache */
	GUARD = 256,      /* bytes of a pattern on each side of dynamic shared memory */
	PATTERN = 0xa5,
	POISON = 0xff, /* NaN in every floating-point type, -1 as an integer */
};

enum state { NEW, READY, AT_WARP, AT_BLOCK, ENDED };
struct thread {
	void *sp;
	unsigned char *stack;
	enum state state;
	int kind, by, width, line;
	uint32_t mask;
	uint64_t value; /* brought to the meeting; taken from it */
	const char *file;
};

struct fo_simt_index fo_simt_thread, fo_simt_block, fo_simt_threads, fo_simt_blocks;
unsigned char *fo_simt_dynamic;

static struct thread thread[FO_SIMT_THREADS];
static unsigned char *stacks, *free_stack[FO_SIMT_THREADS];
static int free_stacks;
static void *scheduler_sp;
static struct thread *current;
static const struct fo_simt_kernel *kernel;
static const void *arguments;
static uint64_t rng;

static uint32_t draw(void)
{
	rng ^= rng << 13; /* xorshift64, Marsaglia 2003 */
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng >> 32);
}

/* ---- switching: what a function call must keep, by the processor's calling convention ---- */

#ifdef __x86_64__
void fo_simt_switch(void **save, void *to);
__asm__(".text\n"
	".globl fo_simt_switch\n"
	".hidden fo_simt_switch\n"
	".type fo_simt_switch, @function\n"
	"fo_simt_switch:\n"
	"	pushq %rbp\n	pushq %rbx\n	pushq %r12\n	pushq %r13\n	pushq %r14\n	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n	popq %r14\n	popq %r13\n	popq %r12\n	popq %rbx\n	popq %rbp\n"
	"	ret\n"
	".size fo_simt_switch, .-fo_simt_switch\n");

static void *first_frame(unsigned char *stack, void (*entry)(void))
{
	size_t low = (size_t)(stack - stacks) / STACK_BYTES * STAGGER % STAGGER_MOST / 64 * 64;
	void **sp = (void **)(void *)(stack + STACK_BYTES - low);
	*--sp = NULL; /* where a caller would have left its address: keeps the stack aligned as at any call */
	*--sp = (void *)entry;
	for (int i = 0; i < 6; i++)
		*--sp = NULL;
	return sp;
}
#else
#include <ucontext.h>
static ucontext_t context[FO_SIMT_THREADS + 1];
static void fo_simt_switch(void **save, void *to)
{
	*save = *save ? *save : &context[FO_SIMT_THREADS];
	swapcontext(*save, to);
}
static void *first_frame(unsigned char *stack, void (*entry)(void))
{
	ucontext_t *c = &context[(stack - stacks) / STACK_BYTES];
	getcontext(c);
	c->uc_stack.ss_sp = stack;
	c->uc_stack.ss_size = STACK_BYTES;
	makecontext(c, entry, 0);
	return c;
}
#endif

/* ---- reports ---- */

static void where(const struct thread *t)
{
	static const char *const kinds[] = { "__syncthreads",       "__syncthreads_or",  "__syncthreads_and",
					     "__syncthreads_count", "__syncwarp",        "__shfl_sync",
					     "__shfl_up_sync",      "__shfl_down_sync",  "__shfl_xor_sync",
					     "__ballot_sync",       "__reduce_add_sync", "__reduce_min_sync",
					     "__reduce_max_sync",   "__reduce_and_sync", "__reduce_or_sync" };
	if (t->state == ENDED)
		fprintf(stderr, "  thread %d has ended\n", (int)(t - thread));
	else
		fprintf(stderr, "  thread %d waits at %s, %s:%d, mask %08x\n", (int)(t - thread), kinds[t->kind],
			t->file, t->line, t->state == AT_BLOCK ? 0xffffffffu : t->mask);
}

static void broken(const char *what)
{
	fprintf(stderr, "software CUDA device: kernel %s, block %u,%u,%u of %u threads: %s\n", kernel->name,
		fo_simt_block.x, fo_simt_block.y, fo_simt_block.z, fo_simt_threads.x, what);
}

static _Noreturn void diverged(const struct thread *a, const struct thread *b)
{
	fflush(stdout);
	fprintf(stderr,
		"software CUDA device: kernel %s, block %u,%u,%u of %u threads: threads that should meet do not\n",
		kernel->name, fo_simt_block.x, fo_simt_block.y, fo_simt_block.z, fo_simt_threads.x);
	where(a);
	where(b);
	abort();
}

/* Traps of a kernel (an access that is not aligned, an index beyond an array, an address that is not there) are told
 * before whoever handles the signal gets it. */
static const int signals[] = { SIGILL, SIGSEGV, SIGBUS };
enum { SIGNALS = sizeof signals / sizeof *signals };
static struct sigaction before[SIGNALS];

static void trapped(int sig, siginfo_t *info, void *context)
{
	char text[256];
	(void)info;
	(void)context;
	int n = snprintf(
		text, sizeof text, "software CUDA device: kernel %s, block %u,%u,%u, thread %u: %s\n", kernel->name,
		fo_simt_block.x, fo_simt_block.y, fo_simt_block.z, fo_simt_thread.x,
		sig == SIGILL
			? "an access that is not aligned to its size, an index beyond its array, or a shift by too much"
			: "an address where no memory is");
	if (write(2, text, (size_t)n) < 0)
		_exit(1);
	for (int i = 0; i < SIGNALS; i++)
		sigaction(signals[i], &before[i], NULL); /* the instruction is tried again */
}

static void watch(bool on)
{
	const struct sigaction own = { .sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER };
	for (int i = 0; i < SIGNALS; i++)
		sigaction(signals[i], on ? &own : &before[i], on ? &before[i] : NULL);
}

/* ---- a warp ---- */

static bool together(const struct thread *a, const struct thread *b)
{
	return a->state == b->state && a->kind == b->kind && a->line == b->line && a->file == b->file &&
	       (a->state == AT_BLOCK || a->mask == b->mask);
}

static int64_t as_signed(uint64_t v, int bytes) { return bytes == 4 ? (int32_t)v : (int64_t)v; }

/* Of all values: sums, ballots, extremes. */
static uint64_t of_all(const struct thread *lanes, uint32_t mask)
{
	const struct thread *one = &lanes[__builtin_ctz(mask)];
	uint64_t all = one->kind == FO_SIMT_BALLOT ? 0 : one->value;
	for (int i = 0; i < FO_SIMT_WARP; i++) {
		uint64_t v = lanes[i].value;
		if (!(mask >> i & 1))
			continue;
		if (one->kind == FO_SIMT_BALLOT)
			all |= (uint64_t)(v != 0) << i;
		else if (one->kind == FO_SIMT_ADD)
			all += &lanes[i] == one ? 0 : v;
		else if (one->kind == FO_SIMT_AND_BITS)
			all &= v;
		else if (one->kind == FO_SIMT_OR_BITS)
			all |= v;
		else if (one->width ? (as_signed(v, one->by) < as_signed(all, one->by)) == (one->kind == FO_SIMT_MIN)
				    : (v < all) == (one->kind == FO_SIMT_MIN))
			all = v;
	}
	return all;
}

/* The lane whose value `lane` takes; its own where there is none, as on the device. */
static int source_of(const struct thread *t, int lane)
{
	int width = t->width, base = lane & -width, from = lane;
	switch (t->kind) {
	case FO_SIMT_INDEX: from = base + (t->by & (width - 1)); break;
	case FO_SIMT_UP: from = lane - t->by; break;
	case FO_SIMT_DOWN: from = lane + t->by; break;
	default: from = lane ^ t->by; break;
	}
	return from < base || from >= base + width ? lane : from;
}

static void exchange(struct thread *lanes, uint32_t mask)
{
	uint64_t value[FO_SIMT_WARP];
	const int kind = lanes[__builtin_ctz(mask)].kind;
	uint64_t all = kind >= FO_SIMT_BALLOT ? of_all(lanes, mask) : 0;
	for (int i = 0; i < FO_SIMT_WARP; i++) {
		if (!(mask >> i & 1))
			continue;
		int from = kind >= FO_SIMT_INDEX && kind <= FO_SIMT_XOR ? source_of(&lanes[i], i) : i;
		/* What a lane that does not take part holds is not defined. */
		value[i] = kind >= FO_SIMT_BALLOT ? all : mask >> from & 1 ? lanes[from].value : UINT64_MAX;
	}
	for (int i = 0; i < FO_SIMT_WARP; i++)
		if (mask >> i & 1) {
			lanes[i].value = value[i];
			lanes[i].state = READY;
		}
}

/* ---- running ---- */

/* The warp that runs: where its round of lanes stands. */
static struct {
	struct thread *thread;
	uint32_t exist, flip, next; /* lanes; the order of this round; how many had their turn */
} warp;

static void body(void)
{
	kernel->call(arguments);
	current->state = ENDED;
	fo_simt_switch(&current->sp, scheduler_sp);
	abort(); /* an ended thread is not resumed */
}

/* The next thread of this round that has something to do; NULL: all have ended or wait. */
static struct thread *next_lane(void)
{
	while (warp.next < FO_SIMT_WARP) {
		uint32_t i = warp.next++ ^ warp.flip;
		if (warp.exist >> i & 1 && warp.thread[i].state <= READY)
			return &warp.thread[i];
	}
	return NULL;
}

static void begin_round(void)
{
	warp.next = 0;
	warp.flip = draw() % FO_SIMT_WARP;
}

/* Becomes t, and returns when somebody becomes the caller again. */
static void become(struct thread *t, void **save)
{
	current = t;
	fo_simt_thread.x = (uint32_t)(t - thread);
	if (t->state == NEW) {
		t->stack = free_stack[--free_stacks];
		t->sp = first_frame(t->stack, body);
	}
	t->state = READY;
	fo_simt_switch(save, t->sp);
}

/* Lanes that have met go on. False: none has. late: two that keep each other waiting. */
static bool meet_lanes(const struct thread *late[2])
{
	uint32_t left = 0;
	bool any = false;
	for (int i = 0; i < FO_SIMT_WARP; i++)
		left |= (uint32_t)(warp.exist >> i & 1 && warp.thread[i].state == AT_WARP) << i;
	while (left) {
		const struct thread *t = &warp.thread[__builtin_ctz(left)];
		uint32_t all = t->mask & warp.exist;
		bool met = all & 1u << (t - warp.thread);
		if (!met)
			late[0] = late[1] = t; /* its mask does not name itself */
		for (int i = 0; i < FO_SIMT_WARP && met; i++)
			if (all >> i & 1 && !together(t, &warp.thread[i])) {
				met = false;
				late[0] = t, late[1] = &warp.thread[i];
			}
		if (met)
			exchange(warp.thread, all);
		left &= ~(met ? all : 1u << (t - warp.thread));
		any |= met;
	}
	return any;
}

uint64_t fo_simt_meet(int kind, uint32_t mask, uint64_t value, int by, int width, const char *file, int line)
{
	struct thread *t = current;
	const struct thread *late[2];
	t->kind = kind;
	t->mask = mask;
	t->value = value;
	t->by = by;
	t->width = width;
	t->file = file;
	t->line = line;
	t->state = kind <= FO_SIMT_BARRIER_COUNT ? AT_BLOCK : AT_WARP;
	/* Straight to the next one: the scheduler is asked when a round has ended and nobody has met. */
	struct thread *next = next_lane();
	if (!next && t->state == AT_WARP && meet_lanes(late)) {
		begin_round();
		next = next_lane();
	}
	if (!next)
		fo_simt_switch(&t->sp, scheduler_sp);
	else if (next != t)
		become(next, &t->sp);
	t->state = READY;
	return t->value;
}

/* Runs the threads of a warp until each has ended or waits for the block. */
static void run_warp(struct thread *first, int n)
{
	const struct thread *late[2] = { NULL, NULL };
	warp.thread = first;
	warp.exist = n >= FO_SIMT_WARP ? UINT32_MAX : (1u << n) - 1;
	for (;;) {
		begin_round();
		for (struct thread *t = next_lane(); t; t = next_lane()) {
			become(t, &scheduler_sp);
			if (current->state == ENDED)
				free_stack[free_stacks++] = current->stack;
		}
		bool waiting = false;
		for (int i = 0; i < n; i++)
			waiting |= first[i].state == AT_WARP;
		if (!waiting)
			return;
		if (!meet_lanes(late))
			diverged(late[0], late[1]);
	}
}

/* ---- a block ---- */

static void release_block(int n)
{
	uint64_t count = 0;
	for (int i = 0; i < n; i++) {
		if (!together(&thread[0], &thread[i]))
			diverged(&thread[0], &thread[i]);
		count += thread[i].value != 0;
	}
	for (int i = 0; i < n; i++) {
		switch (thread[i].kind) {
		case FO_SIMT_BARRIER_OR: thread[i].value = count != 0; break;
		case FO_SIMT_BARRIER_AND: thread[i].value = count == (uint64_t)n; break;
		default: thread[i].value = count; break;
		}
		thread[i].state = READY;
	}
}

static void run_block(int n)
{
	const int warps = (n + FO_SIMT_WARP - 1) / FO_SIMT_WARP;
	for (int i = 0; i < n; i++)
		thread[i].state = NEW;
	for (;;) {
		int begin = (int)(draw() % (uint32_t)warps), ended = 0;
		for (int k = 0; k < warps; k++) {
			int w = (begin + k) % warps * FO_SIMT_WARP;
			run_warp(&thread[w], n - w < FO_SIMT_WARP ? n - w : FO_SIMT_WARP);
		}
		for (int i = 0; i < n; i++)
			ended += thread[i].state == ENDED;
		if (ended == n)
			return;
		release_block(n);
	}
}

static bool intact(const unsigned char *p)
{
	for (int i = 0; i < GUARD; i++)
		if (p[i] != PATTERN)
			return false;
	return true;
}

static uint64_t gcd(uint64_t a, uint64_t b) { return b ? gcd(b, a % b) : a; }

void fo_simt_launch(const struct fo_simt_kernel *k, const void *args, const uint32_t grid[3], uint32_t threads,
		    uint32_t shared_bytes, uint64_t seed)
{
	const uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
	unsigned char *shared = aligned_alloc(GUARD, ((size_t)shared_bytes + 3 * GUARD - 1) / GUARD * GUARD);
	if (!stacks) {
		stacks = mmap(NULL, (size_t)FO_SIMT_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		for (int i = 0; i < FO_SIMT_THREADS; i++)
			free_stack[free_stacks++] = stacks + (size_t)i * STACK_BYTES;
	}
	if (!shared || stacks == MAP_FAILED)
		abort();
	kernel = k;
	arguments = args;
	rng = seed * 0x9e3779b97f4a7c15u | 1;
	memset(shared, PATTERN, (size_t)shared_bytes + 2 * GUARD);
	fo_simt_dynamic = shared + GUARD;
	fo_simt_threads = (struct fo_simt_index){ threads, 1, 1 };
	fo_simt_blocks = (struct fo_simt_index){ grid[0], grid[1], grid[2] };
	watch(true);
	/* b = step i + begin mod blocks visits every block once where step and blocks have no common divisor. */
	uint64_t begin = draw() % blocks, step = 1 + draw() % blocks;
	while (gcd(step, blocks) != 1)
		step++;
	for (uint64_t i = 0; i < blocks; i++) {
		uint64_t b = (step * i + begin) % blocks;
		fo_simt_block = (struct fo_simt_index){ (uint32_t)(b % grid[0]), (uint32_t)(b / grid[0] % grid[1]),
							(uint32_t)(b / grid[0] / grid[1]) };
		memset(fo_simt_dynamic, POISON, shared_bytes);
		if (k->shared)
			memset(k->shared, POISON, (size_t)(k->end - k->shared));
		run_block((int)threads);
		if (!intact(shared) || !intact(fo_simt_dynamic + shared_bytes))
			broken("it wrote around its dynamic shared memory"), abort();
	}
	watch(false);
	free(shared);
}
