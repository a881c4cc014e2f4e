/* Decides which of many timed spans were not disturbed by other programs.
 *
 * On a shared machine a time says as much about the neighbours as about the code. So each span is timed between two
 * short bursts of known work on the same threads: a loop on registers alone, and a walk through the second-level cache.
 * A neighbour on the sibling of a core hardly slows the first, but takes a third and more from the second
 * (docs/metrics.md has figures); a lower clock slows both. A span is quiet when
 *   - its threads did not wait for a processor for more than FO_QUIET_LOST of its time, where the system tells,
 *   - every thread had its processor for FO_QUIET_SHARE of both bursts,
 *   - both bursts ran at FO_QUIET_REGISTER and FO_QUIET_CACHE of the best rates seen with that many threads.
 * Whoever reports a quiet figure reports the unfiltered median and both counts beside it.
 *
 * Pure arithmetic; src/kernel/measure.h takes the times. */
#ifndef FO_HW_QUIET_H
#define FO_HW_QUIET_H

#include <stdbool.h>
#include <stddef.h>

/* Loose enough for a timer interrupt in half a millisecond, tight enough that a time slice lost to somebody else (a
 * millisecond and more) always shows. */
#define FO_QUIET_SHARE 0.97
#define FO_QUIET_LOST 0.03
/* In slow phases the register loop falls to 0.84-0.88 of its best and reading the second-level cache to 0.60-0.67 (2
 * virtual cores of Emerald Rapids, November 2026); between two quiet bursts rates differ by a few percent. */
#define FO_QUIET_REGISTER 0.90
#define FO_QUIET_CACHE 0.85
/* The least number of quiet spans whose median can be relied on. */
#define FO_QUIET_ENOUGH 30

struct fo_burst {
	double flop_s; /* registers alone, all threads together */
	double byte_s; /* second-level cache, all threads together */
	double share;  /* share of the burst in which the thread that waited most had its processor: 0 to 1 */
};
struct fo_quiet_span {
	double seconds;
	double lost; /* share of the span in which the thread that waited most waited for a processor; 0: unknown */
	struct fo_burst before, after;
};
/* Raises each rate of *best to that of b, where b is higher. Starts from zeros. */
void fo_burst_raise(struct fo_burst *best, const struct fo_burst *b);
bool fo_quiet_is(const struct fo_quiet_span *s, const struct fo_burst *best);

struct fo_quiet_stats {
	int spans, quiet;
	double best_s, median_s;             /* of all spans; NaN without any */
	double quiet_best_s, quiet_median_s; /* of the quiet ones; NaN without any */
};
struct fo_quiet_stats fo_quiet_stats(const struct fo_quiet_span *v, size_t n, const struct fo_burst *best);

#endif
