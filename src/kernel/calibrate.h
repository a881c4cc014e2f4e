/* The peak of this machine, measured: a CPU has no datasheet peak.
 *
 * A register-only loop of the matrix (or FMA) unit runs on all threads at once with random data, in bursts of about
 * half a millisecond; a burst's rate is the work of all threads over the time from the first start to the last end. The
 * best burst is the peak; the median stands beside it. Every set this machine has is tried, whatever FLATOUT_ISA says:
 * the peak is the machine's, not the kernels'. The result is kept in the user's cache (hw/profile.h), looked at again
 * for a moment at each start, and may only rise: a busy machine cannot make MFU look better for good. */
#ifndef FO_KERNEL_CALIBRATE_H
#define FO_KERNEL_CALIBRATE_H

#include "base/err.h"
#include "hw/profile.h"
#include "program/program.h"
#include "timeline/timeline.h"

/* dtype: FO_F32 or FO_BF16. seconds: how long to measure each set. FO_EUNSUPPORTED where no set has a register-only
 * loop (then there is no MFU). */
FO_CHECKED fo_status fo_calibrate_peak(int dtype, int threads, double seconds, struct fo_limits_peak *out);
/* The peak that a run of this precision is held against: of so many threads, at most of those that this process may use
 * at once. Without one, peak->source says why. */
void fo_calibrate_find_peak(enum fo_numerics precision, int threads, struct fo_peak *peak);

#endif
