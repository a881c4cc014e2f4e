/* The checksum of tensors' words: a sum in which each word has a factor of its own. Unlike a hash of bytes one behind
 * the other it can be made of any rectangles of a tensor, in any order, and added up. */
#include "ckpt/ckpt_int.h"

#include <pthread.h>
#include <string.h>

/* Words whose factors are made with one multiplication each from a table: 4 KiB, which stays in a core's cache. */
enum { BLOCK = 512 };
static uint64_t factor[BLOCK];
static pthread_once_t made = PTHREAD_ONCE_INIT;

/* The output function of SplitMix64 (Steele, Lea, Flood 2014) behind one step of its counter. Odd: a factor under which
 * no other word has the same product. */
static uint64_t odd(uint64_t x)
{
	x = (x + 1) * 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (x ^ x >> 31) | 1;
}

/* Offsets of blocks in files are below 2^63, so the two kinds of factors come from other numbers. */
static void make_factors(void)
{
	for (uint64_t i = 0; i < BLOCK; i++)
		factor[i] = odd(((uint64_t)1 << 63) + i);
}

/* The bytes need not be aligned: a mapped file's are not. */
#define DOT(name, type)                                                           \
	static uint64_t name(const unsigned char *p, const uint64_t *f, size_t n) \
	{                                                                         \
		uint64_t sum = 0;                                                 \
		for (size_t i = 0; i < n; i++) {                                  \
			type word;                                                \
			memcpy(&word, p + i * sizeof word, sizeof word);          \
			sum += (uint64_t)word * f[i];                             \
		}                                                                 \
		return sum;                                                       \
	}
DOT(dot_1, uint8_t)
DOT(dot_2, uint16_t)
DOT(dot_4, uint32_t)

uint64_t fo_st_words_sum(const void *data, size_t element_bytes, int64_t elements, int64_t first, int64_t at)
{
	const unsigned char *p = data;
	const size_t word = element_bytes < 4 ? element_bytes : 4;
	uint64_t sum = 0, number = (uint64_t)first * (element_bytes / word),
		 left = (uint64_t)elements * (element_bytes / word);
	pthread_once(&made, make_factors);
	while (left) {
		const uint64_t in = number % BLOCK;
		const size_t n = left < BLOCK - in ? (size_t)left : (size_t)(BLOCK - in);
		const uint64_t *f = factor + in;
		const uint64_t part = word == 4 ? dot_4(p, f, n) : word == 2 ? dot_2(p, f, n) : dot_1(p, f, n);
		sum += part * odd((uint64_t)at + (number - in) * word);
		p += n * word;
		number += n;
		left -= n;
	}
	return sum;
}
