/* The parent of one rank's process, on the rank's host: it alone sees how that process ends. */
#define _GNU_SOURCE
#include "cli/engine/launch.h"

#include "comm/mpi.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t child, told, ended_here;

/* A term is MPI's word that the job is over, and its kill follows after a second: a rank that ends by itself meanwhile
 * may, and the others end in time for how they ended to be written down. */
static void be_told(int signal)
{
	(void)signal;
	told = 1;
	ualarm(200000, 0);
}

static void end_child(int signal)
{
	int error = errno;
	(void)signal;
	ended_here = 1;
	if (child > 0)
		kill((pid_t)child, SIGKILL);
	errno = error;
}

static void pass_on(int signal)
{
	int error = errno;
	if (child > 0)
		kill((pid_t)child, signal == SIGUSR1 ? SIGINT : signal);
	errno = error;
}

static void catch_signals(void)
{
	static const struct {
		int signal;
		void (*by)(int signal);
	} row[] = { { SIGTERM, be_told }, { SIGHUP, be_told },  { SIGALRM, end_child },
		    { SIGINT, pass_on },  { SIGUSR1, pass_on }, { SIGUSR2, pass_on } };
	struct sigaction a = { .sa_flags = SA_RESTART };
	sigfillset(&a.sa_mask);
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		a.sa_handler = row[i].by;
		sigaction(row[i].signal, &a, NULL);
	}
}

/* Processes of this control group that the system killed for lack of memory so far; -1: not known. */
static long killed_for_memory(void)
{
	char line[4096], path[4300] = "";
	long kills = -1;
	FILE *f = fopen("/proc/self/cgroup", "re");
	while (f && fgets(line, sizeof line, f)) {
		const char *first = strstr(line, ":memory:"); /* of the first version of control groups */
		line[strcspn(line, "\n")] = 0;
		if (first)
			snprintf(path, sizeof path, "/sys/fs/cgroup/memory%s/memory.oom_control",
				 first + strlen(":memory:"));
		else if (!strncmp(line, "0::", 3) && !*path)
			snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.events", line + 3);
	}
	if (f)
		fclose(f);
	f = *path ? fopen(path, "re") : NULL;
	while (f && fgets(line, sizeof line, f))
		(void)sscanf(line, "oom_kill %ld", &kills);
	if (f)
		fclose(f);
	return kills;
}

static void run_child(char **argv, const sigset_t *mask, pid_t parent)
{
	/* A parent that is killed takes its rank along: nothing of the job stays behind. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpgid(0, 0); /* MPI's daemons signal the whole group, and an interrupt is to come once */
	if (getppid() != parent)
		_exit(3);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	execv("/proc/self/exe", argv);
	fprintf(stderr, "flatout: cannot start '%s' again: %s\n", argv[0], strerror(errno));
	_exit(3);
}

/* Waits for the end of the rank, and ends it once the launcher says that its job is over: where MPI's daemon hangs, or
 * the host was cut off, nobody else does. */
enum { LOOK_S = 2 };
static int wait_for_child(pid_t pid, const char *dir)
{
	const char *job = getenv(FO_RANK_JOB_VARIABLE);
	const struct timespec look = { .tv_sec = LOOK_S };
	sigset_t ends;
	int status = 0;
	sigemptyset(&ends);
	sigaddset(&ends, SIGCHLD);
	for (;;) {
		const pid_t got = waitpid(pid, &status, WNOHANG);
		if (got == pid || (got < 0 && errno != EINTR))
			return status;
		const int signal = sigtimedwait(&ends, NULL, &look);
		if (signal < 0 && errno == EAGAIN && job && fo_rank_job_is_over(dir, job)) {
			told = 1;
			end_child(0);
		}
	}
}

fo_status fo_launch_rank(const char *dir, char **argv)
{
	struct fo_comm_launch place;
	FO_TRY(fo_comm_launched(&place));
	const int rank = place.rank, ranks = place.ranks;
	if (!place.by)
		return fo_hint(fo_fail(FO_EARG, "--as-rank is for processes that mpirun starts, and this is none"),
			       "'flatout launch -n N -- train run.yaml' starts them");
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* MPI's daemon on this host is gone: so is the job */
	const long kills = killed_for_memory();
	/* It has come, whatever its process waits for; that makes a file of its own, which takes this one's place. */
	struct fo_rank_state *own;
	if (fo_rank_state_open(&own, dir, rank, ranks) != FO_OK)
		fo_err_clear();
	sigset_t all, before;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	signal(SIGCHLD, SIG_DFL); /* ignored, it would hide how the rank ends */
	catch_signals();
	const pid_t parent = getpid();
	pid_t pid = fork();
	if (!pid)
		run_child(argv, &before, parent);
	if (pid < 0)
		return fo_fail(FO_EIO, "cannot start a rank's process: %s", strerror(errno));
	child = pid;
	sigaddset(&before, SIGCHLD); /* it stays pending, for wait_for_child */
	sigprocmask(SIG_SETMASK, &before, NULL);
	const int status = wait_for_child(pid, dir);
	child = 0;
	struct fo_rank_end end = {
		.known = true,
		/* A signal that did not come from here is a cause, even when MPI has noticed first. */
		.told = told && (ended_here || !WIFSIGNALED(status)),
		.memory = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && kills >= 0 &&
			  killed_for_memory() > kills
	};
	if (WIFSIGNALED(status))
		end.signal = WTERMSIG(status);
	else if (WIFEXITED(status))
		end.code = WEXITSTATUS(status);
	/* A full disk does not make a fault of a rank that ended well. */
	if (fo_rank_state_ended(dir, rank, ranks, &end) != FO_OK)
		fprintf(stderr, "flatout: %s\n", fo_err_text());
	/* The rank printed what there is to say. One that was asked to stop has done so: MPI must not take it for a
	 * fault and kill the others while they save; the launcher knows from its file. */
	fflush(NULL);
	if (end.signal)
		_exit(128 + end.signal);
	_exit(end.code == fo_status_exit_code(FO_EINTERRUPT) ? 0 : end.code);
}
