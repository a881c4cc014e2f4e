/* fp8 numbers of the Open Compute Project's OFP8 specification (revision 1.0, 2023).
 *
 * E4M3: sign, 4 bits of exponent (bias 7), 3 of mantissa; largest 448, smallest 2^-9; no infinity, NaN is 0x7f and
 * 0xff. E5M2: 5 bits of exponent (bias 15), 2 of mantissa; largest 57344, smallest 2^-16; infinity 0x7c, NaN above it.
 *
 * Rounding is to nearest even. A finite number beyond the largest becomes the largest; what is not finite stays so (in
 * E4M3 infinity becomes NaN): the saturating conversion of GPUs makes the largest of an infinity, and a step that went
 * wrong would look well. */
#ifndef FO_BASE_FP8_H
#define FO_BASE_FP8_H

#include "base/both.h"

#include <stdint.h>

#define FO_E4M3_MAX 448.0f
#define FO_E5M2_MAX 57344.0f

union fo_fp8_bits {
	uint32_t u;
	float f;
};

FO_BOTH float fo_fp8_to_f32(uint8_t b, int mantissa, int bias)
{
	uint32_t magnitude = b & 0x7fu, fraction = magnitude & ((1u << mantissa) - 1), exponent = magnitude >> mantissa;
	union fo_fp8_bits v;
	if (exponent)
		v.u = (magnitude << (23 - mantissa)) + ((uint32_t)(127 - bias) << 23);
	else /* subnormal: a multiple of 2^(1 - bias - mantissa) */
		v.u = (uint32_t)(127 + 1 - bias - mantissa) << 23, v.f *= (float)fraction;
	v.u |= (uint32_t)(b & 0x80) << 24;
	return v.f;
}

FO_BOTH uint8_t fo_fp8_from_f32(float x, int mantissa, int bias, uint8_t largest)
{
	union fo_fp8_bits v, magic;
	v.f = x;
	magic.u = (uint32_t)(127 + 24 - bias - mantissa) << 23;
	uint32_t sign = v.u >> 24 & 0x80, a = v.u & 0x7fffffff, code;
	int drop = 23 - mantissa;
	if (a >= (uint32_t)(127 + 1 - bias) << 23) {
		code = (a + (1u << (drop - 1)) - 1 + (a >> drop & 1)) >> drop;
		code -= (uint32_t)(127 - bias) << mantissa;
		code = code > largest ? largest : code;
	} else { /* the sum's last place is the subnormals' distance: the addition rounds */
		v.u = a;
		v.f += magic.f;
		code = v.u - magic.u;
	}
	return (uint8_t)(sign | code);
}

FO_BOTH float fo_e4m3_to_f32(uint8_t b)
{
	union fo_fp8_bits nan;
	nan.u = 0x7fc00000;
	return (b & 0x7f) == 0x7f ? nan.f : fo_fp8_to_f32(b, 3, 7);
}
FO_BOTH uint8_t fo_e4m3_from_f32(float x)
{
	union fo_fp8_bits v;
	v.f = x;
	return (v.u & 0x7fffffff) >= 0x7f800000 ? (uint8_t)(v.u >> 24 | 0x7f) : fo_fp8_from_f32(x, 3, 7, 0x7e);
}
FO_BOTH float fo_e5m2_to_f32(uint8_t b)
{
	union fo_fp8_bits v;
	v.u = (uint32_t)(b & 0x80) << 24 | 0x7f800000 | (uint32_t)(b & 3) << 21;
	return (b & 0x7f) >= 0x7c ? v.f : fo_fp8_to_f32(b, 2, 15);
}
FO_BOTH uint8_t fo_e5m2_from_f32(float x)
{
	union fo_fp8_bits v;
	v.f = x;
	uint32_t a = v.u & 0x7fffffff;
	if (a >= 0x7f800000)
		return (uint8_t)((v.u >> 24 & 0x80) | (a > 0x7f800000 ? 0x7e : 0x7c));
	return fo_fp8_from_f32(x, 2, 15, 0x7b);
}

#endif
