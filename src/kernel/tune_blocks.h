/* Which of a few algorithms is fastest in a long run: from blocks of many runs back to back, each with its time, energy
 * and clock.
 *
 * Why blocks: a device at its power limit lowers its clock for what draws more power, over tens of milliseconds. An
 * algorithm that is faster in a burst of a few milliseconds, which the clock does not follow, may be slower in a step
 * of seconds. Needs no device: numbers in, a choice out. */
#ifndef FO_KERNEL_TUNE_BLOCKS_H
#define FO_KERNEL_TUNE_BLOCKS_H

#include <stdbool.h>

enum {
	FO_TUNE_FINALISTS = 4, /* algorithms that are compared, at most */
	FO_TUNE_BLOCKS = 2 * FO_TUNE_FINALISTS,
};
struct fo_tune_block {
	int who;       /* 0 .. n - 1 */
	double us;     /* per run */
	double joules; /* per run, of the whole device; NAN: not known */
	double hz;     /* mean SM clock; NAN */
};
/* Medians over a finalist's blocks. */
struct fo_tune_verdict {
	int best;
	bool by_energy; /* its time was within the noise of the fastest, and its energy was less */
	double noise;   /* as a share of the time: within it times count as equal */
	double us[FO_TUNE_FINALISTS], joules[FO_TUNE_FINALISTS], hz[FO_TUNE_FINALISTS];
};

/* Whose turn it is: there and back, 0 1 2 3 3 2 1 0 for n = 4, so that what changes steadily over time (heat) adds the
 * same to each mean. n <= FO_TUNE_FINALISTS. Returns the number of blocks, 2 n. */
int fo_tune_blocks_order(int n, int order[FO_TUNE_BLOCKS]);

/* The rule. The noise is the largest over the finalists of half of what their own blocks differ by, as a share of their
 * median, and 1 % at most: more than that no tie may cost. Who is slower than the fastest by more than the noise is
 * out. Of those left the one with the least energy per run is taken, if the energy of all of them is known and it is
 * less by more than the energies' own noise (found in the same way); else the fastest, and of equals the first. Every
 * finalist has a block; blocks <= FO_TUNE_BLOCKS. */
void fo_tune_blocks_decide(const struct fo_tune_block *b, int blocks, int n, struct fo_tune_verdict *out);

#endif
