/* How long OpenMP's threads spin before they sleep.
 *
 * libgomp spins for milliseconds by default. That is right on a machine of one's own; beside other work a spinning
 * thread takes the processor from the one it waits for (measured 2026-11-21 on two busy cores: 5.7 ktokens/s with the
 * default, 14.9 with 30,000 turns, 20.4 asleep at once; on the same cores less busy: 30.0, 40.7, 20.8). A short spin
 * serves both. The library reads its variables before main, so the process starts itself again with the variable set.
 */
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
	/* Without /proc the default stays. */
}
