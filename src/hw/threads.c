#define _GNU_SOURCE /* sched_getaffinity */
#include "hw/profile.h"
#include "hw/state.h"

#include <math.h>
#include <sched.h>

int fo_cpu_threads(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
	double granted = ceil(fo_state_processors(""));
	if (granted < n)
		n = (int)granted;
	return n > 0 ? n : 1;
}
