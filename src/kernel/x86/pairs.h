/* Shuffles that pack pairs of bf16 into vectors of 64 bytes, for units that multiply pairs (AMX tiles, VDPBF16PS).
 * Requires 16 lanes. The compiler lowers the shuffles, so machines without AVX-512 test the same source. */
#ifndef FO_KERNEL_X86_PAIRS_H
#define FO_KERNEL_X86_PAIRS_H

#include "kernel/x86/vec.h"

#if FO_LANES != 16
#error "pairs are packed by 16"
#endif

typedef uint16_t vw __attribute__((vector_size(64))); /* 32 bf16 */

#define SHUFFLE __builtin_shufflevector
FO_INLINE vw load_row(const uint16_t *p)
{
	vw v;
	memcpy(&v, p, sizeof v);
	return v;
}
FO_INLINE void store_row(uint16_t *p, vw v) { memcpy(p, &v, sizeof v); }

/* Transposes 16 x 16 dwords: first pairs of rows within 128-bit lanes, then pairs of pairs, then the lanes. */
FO_INLINE void transpose16(vi r[16])
{
	vi t[16];
	for (int i = 0; i < 16; i += 2) {
		t[i] = SHUFFLE(r[i], r[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
		t[i + 1] = SHUFFLE(r[i], r[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
	}
	for (int i = 0; i < 16; i += 4)
		for (int j = 0; j < 2; j++) {
			r[i + 2 * j] = SHUFFLE(t[i + j], t[i + j + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13,
					       28, 29);
			r[i + 2 * j + 1] = SHUFFLE(t[i + j], t[i + j + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27,
						   14, 15, 30, 31);
		}
	/* r[4 q + j], lane l: column 4 l + j of rows 4 q .. 4 q + 3 */
	for (int j = 0; j < 4; j++) {
		vi a = SHUFFLE(r[j], r[j + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
		vi b = SHUFFLE(r[j], r[j + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
		vi c = SHUFFLE(r[j + 8], r[j + 12], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
		vi d = SHUFFLE(r[j + 8], r[j + 12], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
		t[j] = SHUFFLE(a, c, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
		t[j + 8] = SHUFFLE(a, c, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
		t[j + 4] = SHUFFLE(b, d, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
		t[j + 12] = SHUFFLE(b, d, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
	}
	memcpy(r, t, sizeof t);
}

/* Interleaves two rows as pairs (x[i], y[i]): i < 16 go into lo, the others into hi. */
FO_INLINE void interleave(const uint16_t *px, const uint16_t *py, vw *lo, vw *hi)
{
	vw x = load_row(px), y = load_row(py);
	*lo = SHUFFLE(x, y, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42, 11, 43, 12,
		      44, 13, 45, 14, 46, 15, 47);
	*hi = SHUFFLE(x, y, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27,
		      59, 28, 60, 29, 61, 30, 62, 31, 63);
}

#endif
