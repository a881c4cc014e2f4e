#include "support/mpirun.h"

#include "comm/mpi.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The process becomes mpirun. */
static void become_mpirun(char *program, int ranks, bool open_mpi)
{
	char n[16], *name[] = { open_mpi ? "mpirun.openmpi" : "mpirun.mpich", "mpirun" };
	/* More ranks than processors, and perhaps as root in a container. */
	setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
	setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
	setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0); /* a test that is ended leaves no ranks */
	snprintf(n, sizeof n, "%d", ranks);
	for (int i = 0; i < 2; i++) {
		char *argv[] = { name[i], "-n", n, program, NULL };
		execvp(name[i], argv);
		if (errno != ENOENT)
			break;
	}
	printf("skipped: cannot start mpirun: %s\n", strerror(errno));
	fflush(stdout);
	_exit(MPIRUN_SKIPPED);
}

int mpirun_self(char *program, int ranks)
{
	const char *file, *made_for, *why;
	int status;
	if (!fo_comm_mpi_found(&file, &made_for, &why)) {
		printf("skipped: %s\n", why);
		return MPIRUN_SKIPPED;
	}
	fflush(NULL);
	pid_t child = fork();
	if (!child)
		become_mpirun(program, ranks, !strncmp(made_for, "Open MPI", 8));
	while (child > 0 && waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			child = -1;
	if (child < 0) {
		printf("cannot start mpirun: %s\n", strerror(errno));
		return 1;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
