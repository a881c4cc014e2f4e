/* How long OpenMP's waiting threads spin before they sleep.
 *
 * libgomp's threads spin for milliseconds by default. That is right on an idle machine; beside other work a spinning
 * thread takes the processor from the thread that it waits for. Measured on 2026-11-21 on two busy cores: 5.7 ktokens/s
 * with the default, 14.9 with 30,000 turns, 20.4 with none; on the same cores less busy: 30.0, 40.7 and 20.8. A short
 * spin serves both.
 *
 * The process starts itself again, because nothing else sets the spin: libgomp reads GOMP_SPINCOUNT once, in its own
 * constructor, which runs before any code of this program, and no function of OpenMP or of libgomp changes it later.
 * The variable is in the environment from then on, so that the second start goes through. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fo_cli_tune_threads(char **argv, const char *turns)
{
	if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY"))
		return;
	setenv("GOMP_SPINCOUNT", turns, 1);
	execv("/proc/self/exe", argv);
	/* Only reached without /proc: the default stays. */
}
