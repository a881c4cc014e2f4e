/* Waiting for other threads of a team inside a kernel.
 *
 * libgomp's own barrier spins for milliseconds before it sleeps. On a machine with other work on it two threads of a
 * team often share a core for a while, and then the one that spins keeps the other from running. So a waiting thread
 * spins shortly and then gives its core away. */
#ifndef FO_KERNEL_X86_WAIT_H
#define FO_KERNEL_X86_WAIT_H

#include <immintrin.h>
#include <sched.h>
#include <stdint.h>

enum {
	WAIT_SPINS = 1000
}; /* pauses of about 65 cycles (AMD Zen 3): 20 us, what giving a core away and getting it back costs */

/* One turn of a waiting loop; *turn counts them. */
static inline void wait_turn(int *turn)
{
	if (++*turn < WAIT_SPINS)
		_mm_pause();
	else
		sched_yield();
}

/* A barrier for the threads of one team: all zero before the first use, then used again and again. */
struct wait_barrier {
	int32_t arrived, round;
};

/* Returns when all n threads of the team have called it. What any of them wrote before, all of them see after. */
static inline void wait_barrier(struct wait_barrier *b, int n)
{
	int32_t round = __atomic_load_n(&b->round, __ATOMIC_ACQUIRE);
	if (__atomic_add_fetch(&b->arrived, 1, __ATOMIC_ACQ_REL) == n) {
		__atomic_store_n(&b->arrived, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&b->round, round + 1, __ATOMIC_RELEASE);
		return;
	}
	for (int turn = 0; __atomic_load_n(&b->round, __ATOMIC_ACQUIRE) == round;)
		wait_turn(&turn);
}

#endif
