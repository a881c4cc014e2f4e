/* Rates of the three matmuls of attention alone, on data from the caches that they read in attention (keys from L2, the
 * rest from L1), and of the vector parts, against the register-only rate of the same instruction.
 *
 *   gcc -std=gnu11 -O3 -mavx2 -mfma -mf16c -fopenmp -Isrc dev/kernel/attention/tiles.c -o tiles -lm && ./tiles
 *   gcc -std=gnu11 -O3 -march=native -DFO_LANES=16 -DFO_PAIR=2 -fopenmp ...   pairs of bf16, 16 lanes */
#ifndef FO_LANES
#define FO_LANES 8
#endif
#define FO_NAME(x) x##_tiles
#include "kernel/x86/attention.inc"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double cpu_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static float *room(size_t n)
{
	float *p = aligned_alloc(64, (n * 4 + 63) / 64 * 64);
	for (size_t i = 0; i < n; i++)
		p[i] = (float)rand() / (float)RAND_MAX - 0.5f;
	return p;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Multiply-adds of the matmuls, FLOP per second. */
static double unit_rate(void)
{
	enum { SUMS = FO_LANES == 8 ? 12 : 24 };
	vf s[SUMS], a = splat(0.999f), b = splat(0.001f);
	for (int i = 0; i < SUMS; i++)
		s[i] = splat((float)i);
	double t = cpu_s();
	for (int n = 0; n < 500000; n++) {
#pragma GCC unroll 24
		for (int i = 0; i < SUMS; i++)
			s[i] = FO_PAIR == 2 ? mad(a, b, s[i]) : mad(s[i], a, b);
	}
	__asm__ volatile("" : : "r"(s) : "memory"); /* somebody might look at them */
	return 500000. * SUMS * 2 * FO_PAIR * FO_LANES / (cpu_s() - t);
}

int main(void)
{
	enum { REPEATS = 60, ROUNDS = 41 };
	for (int64_t dim = 64; dim <= 128; dim *= 2) {
		struct geometry g = { .t = 4096, .tk = 4096, .tq = 4096, .dim = dim, .pitch = dim, .unit = 1 };
		int64_t words = dim / FO_PAIR;
		int32_t doc[1] = { 0 };
		struct fo_tensor docs = { .data = doc, .ld = 0 };
		g.doc = &docs;
		float *k = room(BK * (size_t)dim * 2), *q = room(PQ * (size_t)dim * BP),
		      *o = room(PQ * (size_t)dim * BP);
		float *s = room(BP * BK * PQ), *ds = room(BP * BK * PQ), *dsk = room(BP * BK * PQ),
		      *dk = room(BK * (size_t)dim);
		float max[PQ], sum[PQ] = { 0 };
		struct panel panel = { .q0 = 2048, .qt = q, .ot = o, .max = max, .sum = sum };
		double all[5][ROUNDS], median[5], pairs = BK * PQ;
		for (int n = 0; n < ROUNDS; n++) {
			double t[6], peak = unit_rate();
			t[0] = cpu_s();
			for (int e = 0; e < REPEATS; e++)
				for (int64_t j = 0; j < BK; j += MR)
					tile_scores(s + j * PQ, k + j * words, q, words);
			t[1] = cpu_s();
			for (int e = 0; e < REPEATS; e++)
				for (int64_t d = 0; d < dim; d += MR)
					tile_values(o + d * PQ, k + BK * words + d * (BK / FO_PAIR), dsk, BK / FO_PAIR,
						    true);
			t[2] = cpu_s();
			for (int e = 0; e < REPEATS; e++)
				for (int64_t j = 0; j < BK; j += DR)
					tile_keys(dk + j * dim, dsk + j * PW, q, dim, BP);
			t[3] = cpu_s();
			memset(max, 0, sizeof max);
			for (int e = 0; e < REPEATS; e++)
				softmax_block(&g, &panel, s, 0, BK, false);
			t[4] = cpu_s();
			for (int e = 0; e < REPEATS; e++) {
				struct gradient to = { FO_PAIR == 2 ? dsk : s, FO_PAIR == 2 ? dsk + BK * PW : ds,
						       FO_PAIR == 2 ? dsk + 2 * BK * PW : ds };
				for (int64_t j = 0; j < BK;
				     j += MR, to.p += MR * PW, to.ds += MR * PW, to.dsk += MR * PW)
					gradient_tile(&g, &to, FO_PAIR == 2 ? s : to.p, FO_PAIR == 2 ? ds : to.ds, max,
						      sum, NULL, 2048, j, false);
			}
			t[5] = cpu_s();
			memset(o, 0, PQ * (size_t)dim * BP * 4), memset(dk, 0, BK * (size_t)dim * 4);
			for (int i = 0; i < 5; i++) {
				double flop = i < 3 ? pairs * 2 * (double)dim * (i == 2 ? BP : 1) : pairs;
				all[i][n] = flop * REPEATS / (t[i + 1] - t[i]) /
					    (i < 3 ? peak : peak / (4 * FO_PAIR * FO_LANES));
			}
		}
		for (int i = 0; i < 5; i++) {
			qsort(all[i], ROUNDS, sizeof all[i][0], ascending);
			median[i] = all[i][ROUNDS / 2];
		}
		printf("dim %ld: scores %.3f values %.3f keys %.3f of the unit's rate; cycles per vector: softmax %.1f "
		       "gradient %.1f\n",
		       (long)dim, median[0], median[1], median[2], FO_LANES / median[3], FO_LANES / median[4]);
		free(k), free(q), free(o), free(s), free(ds), free(dsk), free(dk);
	}
	return 0;
}
