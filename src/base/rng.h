/* The hash that all random numbers come from, here and on devices. */
#ifndef FO_BASE_RNG_H
#define FO_BASE_RNG_H

#include "base/both.h"

#include <stdint.h>

/* SplitMix64 (Steele, Lea, Flood 2014): a counter-based hash, so element i of stream s is rng(s, i) in any order. */
FO_BOTH uint64_t fo_rng_u64(uint64_t stream, uint64_t index)
{
	uint64_t x = stream * 0xd1342543de82ef95u + (index + 1) * 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

#endif
