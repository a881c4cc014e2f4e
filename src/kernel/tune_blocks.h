/* Which of a few algorithms is fastest in a long run, from blocks of many runs back to back.
 *
 * Why blocks: a device at its power limit lowers its clock over tens of milliseconds for what draws more power. An
 * algorithm that is faster in a burst of a few milliseconds may be slower in a step of seconds. */
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

/* Whose turn it is: there and back, 0 1 2 3 3 2 1 0 for n = 4 <= FO_TUNE_FINALISTS, so that steady drift (heat) adds
 * the same to each mean. Returns the number of blocks, 2 n. */
int fo_tune_blocks_order(int n, int order[FO_TUNE_BLOCKS]);

/* The rule. A finalist's noise is half the range of its blocks over their median; the largest counts, 1 % at most. Who
 * is slower than the fastest by more than the noise is out. Of those left the one with the least energy per run is
 * taken, if all energies are known and it is less by more than the energies' own noise; else the fastest, the first of
 * equals. Every finalist has a block; blocks <= FO_TUNE_BLOCKS. */
void fo_tune_blocks_decide(const struct fo_tune_block *b, int blocks, int n, struct fo_tune_verdict *out);

#endif
