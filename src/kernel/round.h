/* fp32 numbers in 16 bits: split in two halves, or rounded at random.
 *
 * Split. A bf16 number is the upper half of an fp32 one. high is the fp32 number rounded to bf16, low what is left, in
 * units of high's last bit / 2^16, from -2^15 to 2^15 - 1: fp32 = (high << 16) + low as integers, always exactly. Ties
 * are rounded away from zero: rounding them to even would let 65,537 fp32 numbers share an even high half, one more
 * than low can tell apart. So high differs from fo_bf16_from_f32 only at exact ties whose upper half is even, one fp32
 * number in 131,072. A NaN keeps its sign and upper half alone.
 *
 * At random. A number between two neighbours in bf16 becomes the upper one (in magnitude) with the probability that the
 * mean is the number itself: uniform noise is added to the lower half, which is then cut off. What is a bf16 number
 * already does not change. Small steps are thus taken now and then instead of never (Gupta et al. 2015, "Deep Learning
 * with Limited Numerical Precision"; Zamirai et al. 2020 for bf16 weights).
 *
 * The noise is a function of (run's seed, step, layer, what is rounded, number of the element): it depends neither on
 * threads, nor on how tensors lie in buffers, nor on whether the run was resumed. Elements are numbered row by row
 * through all parameters of a layer, and through those outside layers, in the order of the program's list: tensors that
 * a pass laid beside each other keep their numbers. */
#ifndef FO_KERNEL_ROUND_H
#define FO_KERNEL_ROUND_H

#include "base/rng.h"

union fo_f32_word {
	uint32_t u;
	float f;
};
FO_BOTH uint32_t fo_f32_bits(float f)
{
	union fo_f32_word v;
	v.f = f;
	return v.u;
}
FO_BOTH float fo_f32_of_bits(uint32_t u)
{
	union fo_f32_word v;
	v.u = u;
	return v.f;
}

/* The bits that are split: a NaN gives up its lower half, or a carry from there could make it a zero. */
FO_BOTH uint32_t fo_split_bits(float f)
{
	uint32_t u = fo_f32_bits(f);
	return (u & 0x7fffffff) > 0x7f800000 ? (u | 1 << 22) & 0xffff0000 : u;
}
FO_BOTH uint16_t fo_split_high(float f) { return (uint16_t)((fo_split_bits(f) + 0x8000) >> 16); }
FO_BOTH int16_t fo_split_low(float f) { return (int16_t)(uint16_t)fo_split_bits(f); }
FO_BOTH float fo_split_join(uint16_t high, int16_t low)
{
	return fo_f32_of_bits(((uint32_t)high << 16) + (uint32_t)(int32_t)low);
}

/* What is rounded: weights and first moments take the lower 16 bits of their word, second moments the upper. */
enum fo_noise { FO_NOISE_WEIGHT, FO_NOISE_MOMENTS };
struct fo_noise_key {
	uint32_t a, b;
};
/* layer: 0 for a tensor outside the layers, 1 + its layer else (fo_tensor.layer). */
FO_BOTH struct fo_noise_key fo_noise_key(uint64_t seed, uint64_t step, int32_t layer, enum fo_noise what)
{
	uint64_t k = fo_rng_u64(fo_rng_u64(seed, step), 2 * (uint64_t)layer + (uint64_t)what);
	struct fo_noise_key key;
	key.a = (uint32_t)k;
	key.b = (uint32_t)(k >> 32);
	return key;
}
/* 32 uniform bits for element n: the finaliser of MurmurHash3 (Appleby 2011, public domain), in which every input bit
 * changes every output bit with probability about one half, with the key xored in before and between its
 * multiplications. */
#define FO_NOISE_MULTIPLY_1 0x85ebca6bu
#define FO_NOISE_MULTIPLY_2 0xc2b2ae35u
FO_BOTH uint32_t fo_noise(struct fo_noise_key key, uint32_t n)
{
	uint32_t x = n ^ key.a;
	x = (x ^ x >> 16) * FO_NOISE_MULTIPLY_1 ^ key.b;
	x = (x ^ x >> 13) * FO_NOISE_MULTIPLY_2;
	return x ^ x >> 16;
}
/* bits: uniform, below 2^16. */
FO_BOTH uint16_t fo_bf16_at_random(float f, uint32_t bits)
{
	uint32_t u = fo_f32_bits(f);
	if ((u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(u >> 16 | 64);
	return (uint16_t)((u + bits) >> 16);
}

#endif
