/* The peak of this machine, measured: a CPU has no datasheet peak.
 *
 * A register-only loop of the matrix (or FMA) unit runs on all threads at once with random data, in bursts of about
 * half a millisecond; a burst's rate is the work of all threads over the time from the first start to the last end. The
 * best burst is the peak; the median stands beside it. Every set this machine has is tried, whatever FLATOUT_ISA says:
 * the peak is the machine's, not the kernels'. The result is kept in the user's cache with its date and method, looked
 * at again for a moment at each start, and may only rise: a busy machine cannot make MFU look better for good. */
#ifndef FO_KERNEL_CALIBRATE_H
#define FO_KERNEL_CALIBRATE_H

#include "base/err.h"
#include "hw/profile.h" /* fo_cpu_name */
#include "program/program.h"
#include "timeline/timeline.h"

struct fo_calibration {
	double best_flop_s, median_flop_s;
	int threads, bursts;
	int clean_bursts;       /* of them: every thread had its processor to itself */
	char set[16], dtype[8]; /* the kernel set whose loop was fastest */
	char cpu[80], date[32], method[120];
};
/* dtype: FO_F32 or FO_BF16. Uses the cached value of this CPU, thread count and type unless `fresh`. FO_EUNSUPPORTED
 * where no set has a register-only loop (then there is no MFU). seconds: how long to measure each set. */
FO_CHECKED fo_status fo_calibrate_peak(int dtype, int threads, double seconds, bool fresh, struct fo_calibration *out);
void fo_calibration_peak(const struct fo_calibration *c, struct fo_peak *peak);

#endif
