/* The command lines of mpirun (Open MPI) and mpiexec.hydra (MPICH). */
#include "cli/engine/launch.h"

#include "base/count.h"
#include "base/fs.h"
#include "hw/profile.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { WORDS_MAX = 4096 };

static void word(struct fo_arena *a, struct fo_launch_line *l, const char *text)
{
	if (l->argc < WORDS_MAX)
		l->argv[l->argc++] = fo_arena_strdup(a, text);
}

static void words(struct fo_arena *a, struct fo_launch_line *l, const char *text)
{
	while (*(text += strspn(text, " \t\n"))) {
		size_t n = strcspn(text, " \t\n");
		word(a, l, fo_arena_printf(a, "%.*s", (int)n, text));
		text += n;
	}
}

/* What `mpirun --version` says. A child of its own, not a shell: the name may hold anything. */
static fo_status ask_version(const char *mpirun, char *out, size_t size)
{
	int pipe_[2];
	if (pipe(pipe_))
		return fo_fail(FO_EIO, "cannot make a pipe: %s", strerror(errno));
	pid_t pid = fork();
	if (!pid) {
		dup2(pipe_[1], STDOUT_FILENO);
		dup2(pipe_[1], STDERR_FILENO);
		close(pipe_[0]);
		execlp(mpirun, mpirun, "--version", (char *)NULL);
		_exit(127);
	}
	close(pipe_[1]);
	size_t n = 0;
	for (ssize_t got; n + 1 < size && (got = read(pipe_[0], out + n, size - 1 - n)) != 0;) {
		if (got > 0)
			n += (size_t)got;
		else if (errno != EINTR)
			break;
	}
	out[n] = 0;
	close(pipe_[0]);
	int status = 0;
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return pid < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 127) ? FO_EUNSUPPORTED : FO_OK;
}

static fo_status find_kind(const char *mpirun, enum fo_mpi_kind *kind)
{
	char text[4096];
	if (ask_version(mpirun, text, sizeof text) != FO_OK)
		return fo_hint(fo_fail(FO_EUNSUPPORTED, "there is no program '%s' to start ranks with", mpirun),
			       "install Open MPI (openmpi-bin) or MPICH, or name it: --mpirun=PATH; on one machine "
			       "'flatout train run.yaml --ranks=N' needs neither");
	if (strstr(text, "Open MPI") || strstr(text, "OpenRTE"))
		*kind = FO_MPI_OPEN;
	else if (strstr(text, "HYDRA") || strstr(text, "Hydra") || strstr(text, "Intel(R) MPI"))
		*kind = FO_MPI_HYDRA;
	else
		return fo_hint(
			fo_fail(FO_EUNSUPPORTED, "'%s' is neither Open MPI's mpirun nor MPICH's mpiexec.hydra", mpirun),
			"start the ranks with it yourself: '%s ... flatout train run.yaml' works too", mpirun);
	return FO_OK;
}

/* ---- hosts ---- */

static fo_status bad_hosts(const struct fo_launch *l, const char *fmt, ...) FO_PRINTF(2, 3);
static fo_status bad_hosts(const struct fo_launch *l, const char *fmt, ...)
{
	char why[160];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(why, sizeof why, fmt, ap);
	va_end(ap);
	return fo_hint(fo_fail(FO_EARG, "'--hosts=%s': %s", l->hosts, why),
		       "expected hosts, each with the ranks that it takes, or a file of hosts: --hosts=h1:2,h2:2");
}

/* Does a host of the list before `at` have this name? */
static bool came_before(const char *list, const char *at, size_t name)
{
	for (const char *e = list; e < at; e += strcspn(e, ",") + 1)
		if (strcspn(e, ":,") == name && !strncmp(e, at, name))
			return true;
	return false;
}

static fo_status check_hosts(const struct fo_launch *l)
{
	const char *list = l->hosts;
	if (!list || (*list && fo_fs_exists(list)))
		return FO_OK;
	if (strchr(list, '/'))
		return bad_hosts(l, "there is no such file");
	for (const char *at = list;; at++) {
		const size_t n = strcspn(at, ","), name = strcspn(at, ":,"),
			     digits = strspn(at + name + (name < n), "0123456789");
		if (!name)
			return bad_hosts(l, "it has an empty name");
		if (name < n && (!digits || name + 1 + digits != n || digits > 6 || !strtoll(at + name + 1, NULL, 10)))
			return bad_hosts(l, "'%.*s' is no number of ranks from 1 to 999999",
					 (int)fo_min((int64_t)(n - name - 1), 60), at + name + 1);
		if (came_before(list, at, name))
			return bad_hosts(l, "host '%.*s' comes twice", (int)fo_min((int64_t)name, 100), at);
		at += n;
		if (!*at)
			return FO_OK;
	}
}

/* Ranks that the list has room for; 0: a file, or no number is given for some host. */
static int64_t slots_of(const char *list)
{
	int64_t sum = 0;
	if (!list || fo_fs_exists(list))
		return 0;
	for (const char *at = list; *at;) {
		size_t n = strcspn(at, ",");
		const char *colon = memchr(at, ':', n);
		int64_t k = colon ? strtoll(colon + 1, NULL, 10) : 1;
		sum += k > 0 ? k : 1;
		at += n + (at[n] == ',');
	}
	return sum;
}

const char *fo_launch_host_of(struct fo_arena *a, const struct fo_launch *l, int rank)
{
	if (!l->hosts || fo_fs_exists(l->hosts))
		return NULL;
	int64_t before = 0;
	for (const char *at = l->hosts; *at;) {
		size_t n = strcspn(at, ","), name = strcspn(at, ":,");
		int64_t k = name < n ? strtoll(at + name + 1, NULL, 10) : 1;
		if (rank < before + (k > 0 ? k : 1))
			return fo_arena_printf(a, "%.*s", (int)name, at);
		before += k > 0 ? k : 1;
		at += n + (at[n] == ',');
	}
	return NULL;
}

/* ---- the line ---- */

/* Open MPI has several ways to say it: --oversubscribe, --map-by :OVERSUBSCRIBE, --mca rmaps_base_oversubscribe 1. */
static bool may_oversubscribe(const char *args)
{
	static const char word[] = "oversubscribe";
	for (const char *at = args; at && *at; at++)
		if (!strncasecmp(at, word, sizeof word - 1))
			return at - args < 2 || strncasecmp(at - 2, "no", 2) != 0;
	return false;
}

/* Open MPI refuses more ranks than there is room for, in a page of text. */
static fo_status hosts_have_room(const struct fo_launch *l)
{
	const int64_t room = slots_of(l->hosts);
	if (!room || l->ranks <= room || may_oversubscribe(l->mpi_args))
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG, "%lld ranks are asked for, and --hosts=%s has room for %lld",
			       (long long)l->ranks, l->hosts, (long long)room),
		       "say how many ranks each host takes, --hosts=h1:2,h2:2, or let hosts take more than they have "
		       "room for: --mpi-args=--oversubscribe");
}

static void open_mpi(struct fo_arena *a, const struct fo_launch *l, struct fo_launch_line *out)
{
	const int64_t room = l->hosts ? 0 : fo_cpu_threads();
	word(a, out, "-n");
	word(a, out, fo_arena_printf(a, "%lld", (long long)l->ranks));
	if (l->hosts) {
		word(a, out, fo_fs_exists(l->hosts) ? "--hostfile" : "--host");
		word(a, out, l->hosts);
		/* A host that is gone is noticed after 10 s, where the default is hours; ssh asks nobody and waits for
		 * no host for longer than that. */
		words(a, out,
		      "--mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 2 --mca "
		      "oob_tcp_keepalive_probes 3");
		if (!l->mpi_args || !strstr(l->mpi_args, "plm_rsh_")) {
			word(a, out, "--mca");
			word(a, out, "plm_rsh_args");
			word(a, out, "-o ConnectTimeout=10 -o BatchMode=yes");
		}
	}
	if (!geteuid())
		word(a, out, "--allow-run-as-root");
	if (room && l->ranks > room)
		word(a, out, "--oversubscribe");
	/* Our threads choose their processors themselves. */
	words(a, out, "--bind-to none");
	for (char **e = environ; *e; e++)
		if (!strncmp(*e, "FLATOUT_", 8)) {
			word(a, out, "-x");
			word(a, out, fo_arena_printf(a, "%.*s", (int)strcspn(*e, "="), *e));
		}
}

static void hydra(struct fo_arena *a, const struct fo_launch *l, struct fo_launch_line *out)
{
	word(a, out, "-n");
	word(a, out, fo_arena_printf(a, "%lld", (long long)l->ranks));
	if (l->hosts) {
		word(a, out, fo_fs_exists(l->hosts) ? "-f" : "-hosts");
		word(a, out, l->hosts);
	}
	words(a, out, "-bind-to none"); /* the whole environment goes along by itself */
}

fo_status fo_launch_line(struct fo_arena *a, const struct fo_launch *l, char *const *child, struct fo_launch_line *out)
{
	out->argc = 0;
	out->argv = fo_arena_alloc(a, (WORDS_MAX + 1) * sizeof *out->argv);
	FO_TRY(check_hosts(l));
	FO_TRY(find_kind(l->mpirun, &out->kind));
	if (out->kind == FO_MPI_OPEN)
		FO_TRY(hosts_have_room(l));
	word(a, out, l->mpirun);
	if (out->kind == FO_MPI_OPEN)
		open_mpi(a, l, out);
	else
		hydra(a, l, out);
	if (l->mpi_args)
		words(a, out, l->mpi_args);
	for (; *child; child++)
		word(a, out, *child);
	return out->argc < WORDS_MAX ? FO_OK : fo_fail(FO_EARG, "more than %d words to start a rank with", WORDS_MAX);
}
