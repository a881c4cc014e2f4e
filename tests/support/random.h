/* Random numbers that are the same on every machine: splitmix64. A test sets fo_random_state to its seed. */
#ifndef FO_TESTS_RANDOM_H
#define FO_TESTS_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

static uint64_t fo_random_state;

static inline uint64_t random_next(void)
{
	uint64_t z = fo_random_state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static inline double real(double low, double high)
{
	return low + (high - low) * (double)(random_next() >> 11) / 9007199254740992.0;
}

static inline int below(int n) { return (int)(random_next() % (uint64_t)n); }
static inline int pick(int low, int high) { return low + below(high - low + 1); }
static inline bool chance(double p) { return real(0, 1) < p; }

#endif
