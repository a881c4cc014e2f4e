/* Is one rank slower than all others, and what does that cost the job?
 *
 * Ranks that share a model's rows go in step: the slowest one's own work is what a step takes, and the others wait for
 * the difference. Some rank is the slowest in every step, so a name needs more than that: one rank must be the slowest
 * in so many windows of time that chance does not explain it, and by an amount that matters. */
#ifndef FO_TIMELINE_SLOW_H
#define FO_TIMELINE_SLOW_H

#include <stdbool.h>
#include <stdint.h>

/* A job straggles from a slowdown of 1.1 on: "Understanding Stragglers in Large Model Training Using What-if Analysis",
 * Lin et al. 2025. */
#define FO_SLOW_RANK_TIMES 1.1
/* Odds that some rank of ranks that are all alike would be the slowest so often. */
#define FO_SLOW_RANK_CHANCE 0.001

/* A window is at least this long, s: the rhythm of control groups (a tenth of a second) and of time slices evens out in
 * it, and a burst of a neighbour does not fill several, as their independence wants. */
#define FO_SLOW_RANK_WINDOW_S 0.5
#define FO_SLOW_RANK_WINDOW_NS ((int64_t)(FO_SLOW_RANK_WINDOW_S * 1e9))

struct fo_slow_rank {
	bool known;          /* there are windows enough for an answer; else only `windows` and `needed` count */
	int rank;            /* -1: none is slower than all others by an amount that matters */
	int windows, needed; /* all in which every rank's work is known; how many an answer needs at least */
	int64_t first, last; /* the steps of the windows, from 1; filled in by the caller */
	/* Of the rank that is the slowest most often, also where it is not named: */
	int slowest;           /* windows in which it was */
	double own_s, other_s; /* its own work in a step, that of the slowest other one; medians over windows */
	double step_s;         /* a step; median over windows */
	/* Median of the difference over all windows: about what a step would take less if the rank were as fast as the
	 * slowest other one. Less where communication or that other rank is then in the way; more where the rank also
	 * holds up transfers. */
	double lost_s;
};
/* own[r * windows + w], step[w]: seconds per step, finite and >= 0. ranks >= 1, windows >= 0. One rank: known, and
 * none. */
void fo_slow_rank_find(struct fo_slow_rank *out, const double *own, const double *step, int ranks, int windows);

#endif
