/* flatout launch: a job of several processes, started by mpirun and watched until it ends.
 *
 * MPI notices that a process ended, but neither one that stands still nor, by itself, a link that is down. The ranks'
 * state files (record/rank_state.h) tell the rest: a heart that does not beat ends the job, never an operation that
 * takes long. */
#define _GNU_SOURCE
#include "cli/cli.h"
#include "cli/engine/launch.h"

#include "base/clock.h"
#include "base/fs.h"
#include "ckpt/ckpt.h"
#include "program/run.h"
#include "train/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct fo_opt rows[] = {
	FO_OPT_ROW(struct fo_launch, ranks, int64_t, FO_OPT_T_INT, "launch.ranks", "N", NULL, 1, 65536, "ranks",
		   "processes to start; -n N is the same", NULL, letter = 'n'),
	FO_OPT_TEXT(struct fo_launch, hosts, "launch.hosts", "LIST", NULL,
		    "where: 'h1:2,h2:2' (host and ranks), or the name of a host file of MPI; default: here"),
	FO_OPT_INT(struct fo_launch, restarts, "launch.restarts", "N", "0", 0, 1e6, "restarts",
		   "how often a job that a fault ended is started again"),
	FO_OPT_REAL(struct fo_launch, silent, "launch.silent-after", "T", "15", 2, 1e6, "s",
		    "a rank without a heartbeat for so long is taken for hung, and the job is ended"),
	FO_OPT_REAL(struct fo_launch, start, "launch.start-within", "T", "20", 1, 1e6, "s",
		    "every rank must have come so long after the first one"),
	FO_OPT_PATH(struct fo_launch, mpirun, "launch.mpirun", "PATH", "mpirun",
		    "Open MPI's mpirun or MPICH's mpiexec.hydra"),
	FO_OPT_TEXT(struct fo_launch, mpi_args, "launch.mpi-args", "WORDS", NULL,
		    "further words for it, such as '--mca btl_tcp_if_include eth0'"),
	FO_OPT_BOOL(struct fo_launch, dry_run, "launch.dry-run", "false", "print mpirun's command line, then stop"),
	FO_OPT_PATH(struct fo_launch, as_rank, "launch.as-rank", "DIR", NULL,
		    "for the processes that launch itself starts: be the parent of one rank"),
	FO_OPT_END
};

/* How long mpirun may take to end a job of which a rank has ended, and one of which all have. */
#define GRACE_NS 3000000000
#define LINGER_NS 10000000000

struct job {
	const struct fo_launch *l;
	struct fo_arena *arena;
	const char *dir; /* of the run */
	char id[32];
	pid_t pid; /* mpirun's, which leads a process group */
	int err;   /* its standard error */
	struct fo_launch_said said;
	struct fo_ranks_watch watch;
	int64_t begun_ns, first_ns, bad_ns, over_ns; /* 0: not yet. first: some rank came; over: all have ended */
	bool *came;                                  /* by rank: its file was there */
	int stops;                                   /* signals that were passed on */
	bool ended_by_us;
	/* Why it is ended: rank -1: no rank. */
	int rank;
	char why[1600];
};

static volatile sig_atomic_t stops;
static void on_signal(int signal)
{
	(void)signal;
	stops++;
}

/* ---- the child's words ---- */

/* The run directory of `train ARGUMENTS`: its mistakes are told once, here, and not by every rank. */
static fo_status find_dir(struct fo_arena *a, int argc, char **argv, int ranks, const char **dir)
{
	const struct fo_command *c = &fo_cmd_train;
	struct fo_opt_set s;
	char **copy = fo_arena_alloc(a, ((size_t)argc + 1) * sizeof *copy);
	memcpy(copy, argv, (size_t)argc * sizeof *copy);
	fo_cli_options_read(c, &s, fo_arena_alloc(a, c->size), &argc, copy);
	fo_status st = argc > 1 ? fo_cli_options_yaml(c, &s, copy[1]) : FO_OK;
	if (st == FO_OK && ranks > 1)
		fo_launch_ranks_are(&s, s.target, ranks);
	if (st == FO_OK)
		st = fo_run_check(&s, s.target);
	if (st == FO_OK)
		st = fo_cli_no_more_args(c, argc, copy, c->most);
	for (int i = 0; i < s.total && st == FO_OK; i++)
		if (!strcmp(fo_opt_row(&s, i)->key, "run.dir"))
			*dir = fo_arena_strdup(a, fo_cli_text_at(&s, i));
	fo_opt_fini(&s);
	return st;
}

static fo_status child_words(struct fo_arena *a, const char *dir, int argc, char **argv, char ***out)
{
	char exe[FO_PATH_BYTES];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
	if (n < 0)
		return fo_fail(FO_EIO, "cannot tell where this program is: %s", strerror(errno));
	exe[n] = 0;
	char **w = *out = fo_arena_alloc(a, ((size_t)argc + 5) * sizeof *w);
	*w++ = fo_arena_strdup(a, exe);
	*w++ = fo_arena_strdup(a, "launch");
	*w++ = fo_arena_printf(a, "--as-rank=%s", dir);
	*w++ = fo_arena_strdup(a, "--");
	memcpy(w, argv, (size_t)argc * sizeof *w);
	return FO_OK;
}

/* ---- starting and ending ---- */

static fo_status start(struct job *j, char **argv)
{
	int err[2];
	if (pipe2(err, O_CLOEXEC))
		return fo_fail(FO_EIO, "cannot make a pipe: %s", strerror(errno));
	const pid_t parent = getpid();
	j->pid = fork();
	if (!j->pid) {
		setpgid(0, 0); /* Ctrl-C of the terminal is for the launcher alone */
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			_exit(3);
		int null = open("/dev/null", O_RDONLY);
		dup2(null, STDIN_FILENO);
		dup2(err[1], STDERR_FILENO);
		/* MPI gives rank 0 a terminal whatever this program writes to: a log file is to have whole lines. */
		if (!isatty(STDOUT_FILENO))
			setenv("TERM", "dumb", 1);
		signal(SIGPIPE, SIG_DFL);
		signal(SIGXFSZ, SIG_DFL);
		execvp(argv[0], argv);
		dprintf(STDERR_FILENO, "flatout: cannot start '%s': %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	close(err[1]);
	if (j->pid < 0) {
		close(err[0]);
		return fo_fail(FO_EIO, "cannot start '%s': %s", argv[0], strerror(errno));
	}
	j->err = err[0];
	j->begun_ns = fo_now_ns();
	return FO_OK;
}

/* Reads what mpirun says for at most `ms`; false: it has closed its end. */
static bool hear(struct job *j, int ms)
{
	char buf[4096];
	struct pollfd p = { .fd = j->err, .events = POLLIN };
	if (poll(&p, 1, ms) <= 0)
		return true;
	ssize_t n = read(j->err, buf, sizeof buf);
	if (n > 0)
		fo_launch_said_add(&j->said, buf, (size_t)n);
	return n > 0 || (n < 0 && errno == EINTR);
}

static bool reap(struct job *j, int *status)
{
	pid_t got = waitpid(j->pid, status, WNOHANG);
	return got == j->pid || (got < 0 && errno == ECHILD);
}

/* Kills processes of this job that still run under this system, and waits until they are gone. */
static void kill_ranks_here(struct job *j)
{
	enum { LOOKS = 50 };
	for (int look = 0, left = 1; left && look < LOOKS; look++) {
		left = 0;
		if (fo_ranks_watch_look(&j->watch, j->dir, j->id) != FO_OK || strcmp(j->watch.seen.job, j->id) != 0)
			return;
		for (int i = 0; i < j->watch.seen.ranks; i++) {
			const struct fo_rank_seen *r = &j->watch.seen.rank[i];
			if (r->file != FO_RANK_FILE_WHOLE || r->alive < FO_RANK_ALIVE || r->alive == FO_RANK_GONE)
				continue;
			left++;
			kill((pid_t)r->pid, SIGKILL);
		}
		if (left)
			nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	}
}

/* Ranks on other hosts end by themselves, or their parents end them (launch_rank.c). Which of them still beats its
 * heart after OTHERS_S? -1: none. One that has not for QUIET_S is gone, or cut off from the folder. */
#define OTHERS_S 15.0
#define QUIET_S 3.0
static int left_elsewhere(struct job *j)
{
	const int64_t begun = fo_now_ns();
	int left = 0;
	while (left >= 0 && (double)(fo_now_ns() - begun) * 1e-9 < OTHERS_S) {
		left = -1;
		if (fo_ranks_watch_look(&j->watch, j->dir, j->id) != FO_OK || strcmp(j->watch.seen.job, j->id) != 0)
			break;
		for (int i = 0; i < j->watch.seen.ranks; i++) {
			const struct fo_rank_seen *r = &j->watch.seen.rank[i];
			const bool ended = r->end.known || fo_rank_phase_ended(r->phase);
			if (r->file == FO_RANK_FILE_WHOLE && !r->here && !ended && r->age < QUIET_S)
				left = i;
		}
		if (left >= 0)
			nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
	}
	fo_err_clear();
	return left;
}

/* The job has ended by a fault: nothing of it goes on. *again: it may be started again. */
static fo_status leave_nothing(struct job *j, fo_status st, bool *again)
{
	struct fo_err why;
	fo_err_save(&why, st);
	if (fo_rank_job_ends(j->dir, j->id) != FO_OK)
		fo_err_clear(); /* the folder may be what failed */
	const int left = *again ? left_elsewhere(j) : -1;
	(void)fo_err_raise(&why);
	if (left < 0)
		return st;
	const struct fo_rank_seen *r = &j->watch.seen.rank[left];
	*again = false;
	return fo_hint(
		st, "the job is not started again, because rank %d of it still runs on host %s: end process %lld there",
		left, r->host, (long long)r->pid);
}

/* Ends mpirun, which ends what it started, and waits for it: a second for a term, then by force. */
static void end_job(struct job *j, int *status)
{
	const int64_t begun = fo_now_ns();
	bool killed = false;
	j->ended_by_us = true;
	kill(j->pid, SIGTERM);
	while (!reap(j, status)) {
		if (!hear(j, 50))
			nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
		if (!killed && fo_now_ns() - begun > 5000000000) {
			kill(-j->pid, SIGKILL);
			killed = true;
		}
	}
}

/* ---- judging ---- */

static bool because(struct job *j, int rank, const char *why)
{
	j->rank = rank;
	snprintf(j->why, sizeof j->why, "%s", why);
	return true;
}

static bool builds_differ(struct job *j)
{
	const struct fo_ranks_seen *s = &j->watch.seen;
	const struct fo_rank_seen *first = NULL;
	for (int i = 0; i < s->ranks; i++) {
		const struct fo_rank_seen *r = &s->rank[i];
		if (r->file != FO_RANK_FILE_WHOLE || !*r->program)
			continue;
		if (first && strcmp(first->program, r->program) != 0)
			return because(j, i,
				       fo_arena_printf(j->arena,
						       "on host %s runs another build of flatout than rank %d on host "
						       "%s: build %.12s, not %.12s",
						       r->host, first->rank, first->host, r->program, first->program));
		if (!first)
			first = r;
	}
	return false;
}

static const char *missing_text(struct job *j, int rank)
{
	const char *host = fo_launch_host_of(j->arena, j->l, rank);
	return fo_arena_printf(j->arena, "has not started within %g s of the first rank (expected on host %s)",
			       j->l->start, host ? host : "not known");
}

/* Is there a reason to end the job? mpirun ends most faults by itself, within a second or two. */
static bool judge(struct job *j)
{
	const struct fo_ranks_seen *s = &j->watch.seen;
	const int64_t now = fo_now_ns();
	const double begun = (double)(now - j->begun_ns) * 1e-9;
	char text[1400];
	bool ours = s->ranks && !strcmp(s->job, j->id), all = ours, bad = false;
	/* Once ranks have come, files that are gone say nothing: somebody tidied up. */
	if (!ours && !j->first_ns && begun > j->l->start + 5) {
		char *why = fo_arena_printf(j->arena, "no rank has started within %.0f s", begun);
		if (j->l->hosts)
			why = fo_arena_printf(j->arena, "%s: hosts %s", why, j->l->hosts);
		return because(j, -1, why);
	}
	if (!ours)
		return false;
	if (!j->first_ns)
		j->first_ns = now;
	if (builds_differ(j))
		return true;
	for (int i = 0; i < s->ranks; i++) {
		enum fo_rank_health h = fo_rank_health(&s->rank[i], j->l->silent);
		all &= h == FO_HEALTH_ENDED;
		bad |= h == FO_HEALTH_FAILED || h == FO_HEALTH_GONE || h == FO_HEALTH_ECHO;
		if (i < j->l->ranks)
			j->came[i] |= h != FO_HEALTH_ABSENT;
		if (h == FO_HEALTH_ABSENT && i < j->l->ranks && !j->came[i] &&
		    (double)(now - j->first_ns) * 1e-9 > j->l->start)
			return because(j, i, missing_text(j, i));
		if (h == FO_HEALTH_SILENT || (h == FO_HEALTH_STOPPED && s->rank[i].age > j->l->silent)) {
			int at = fo_ranks_cause(s, j->l->silent, 1e9, text, sizeof text);
			return because(j, at, text);
		}
	}
	/* mpirun should have noticed, and has not. */
	if (bad && !j->bad_ns)
		j->bad_ns = now;
	if (bad && now - j->bad_ns > GRACE_NS)
		return because(j, fo_ranks_cause(s, j->l->silent, 1e9, text, sizeof text), text);
	if (all && !j->over_ns)
		j->over_ns = now;
	return all && now - j->over_ns > LINGER_NS;
}

/* The first Ctrl-C lets the step end and a checkpoint be written, the second one ends all at once. */
static bool pass_stops_on(struct job *j)
{
	if (stops <= j->stops)
		return false;
	j->stops = stops;
	if (stops > 1)
		return true;
	fprintf(stderr, "flatout: stopping after this step; once more ends the job at once\n");
	kill(j->pid, SIGUSR1); /* mpirun passes it on, and the parents of the ranks make an interrupt of it */
	return false;
}

static void watch(struct job *j, int *status)
{
	int64_t next = 0;
	bool open = true;
	while (!reap(j, status)) {
		if (open)
			open = hear(j, 100);
		else
			nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
		bool at_once = pass_stops_on(j);
		int64_t now = fo_now_ns();
		bool due = now >= next;
		/* Before the folder and its ranks exist there is nothing to see. */
		if (due && fo_ranks_watch_look(&j->watch, j->dir, j->id) != FO_OK)
			fo_err_clear();
		if (due) /* thousands of files take a while: at most a tenth of the time goes to them */
			next = fo_now_ns() + (fo_now_ns() - now) * 10 + 200000000;
		if (at_once || (due && judge(j))) {
			end_job(j, status);
			break;
		}
	}
	for (int i = 0; open && i < 50; i++) { /* what is left in the pipe; a daemon may hold its end open */
		struct pollfd p = { .fd = j->err, .events = POLLIN };
		if (poll(&p, 1, 20) <= 0)
			break;
		open = hear(j, 0);
	}
}

/* ---- what happened ---- */

/* To an error that was raised. */
static fo_status with_checkpoint(struct job *j, fo_status st)
{
	struct fo_err why;
	char *path = NULL;
	fo_err_save(&why, st);
	if (fo_ckpt_newest(j->arena, fo_arena_printf(j->arena, "%s/checkpoints", j->dir), false, &path) != FO_OK)
		path = NULL;
	(void)fo_err_raise(&why);
	if (path)
		return fo_hint(st, "the newest checkpoint is '%s'; the same command goes on from there", path);
	return fo_hint(st, "there is no checkpoint yet: the same command begins anew");
}

/* MPI's words about hosts name the cause where no rank can. */
static fo_status host_fault(struct job *j)
{
	const struct fo_launch_said *s = &j->said;
	const struct fo_ranks_seen *seen = &j->watch.seen;
	char ranks[200] = "", doing[600] = "";
	if (*s->exe)
		return fo_hint(fo_fail(FO_EUNSUPPORTED, "host %s has no program '%s' that can be run",
				       *s->node ? s->node : "not known", s->exe),
			       "install the same build under the same path on every host");
	if (*s->unreachable)
		return fo_hint(fo_fail(FO_ECOMM, "a host cannot be reached: %s", s->unreachable),
			       "'ssh HOST true' must work without a password from here to every host of %s",
			       j->l->hosts ? j->l->hosts : "the list");
	if (s->daemon) {
		const char *hosts = j->l->hosts ? j->l->hosts : "localhost";
		return fo_hint(fo_fail(FO_ECOMM, "MPI could not start its daemon on a host of '%s'%s%s", hosts,
				       *s->last ? ": " : "", fo_cli_seen(s->last)),
			       "'ssh HOST which orted' must answer without a password on every host");
	}
	if (!*s->lost)
		return FO_OK;
	bool *in = fo_arena_alloc(j->arena, (size_t)seen->ranks + 1);
	for (int i = 0; i < seen->ranks; i++) {
		in[i] = !strcmp(seen->rank[i].host, s->lost);
		if (in[i] && !*doing)
			fo_rank_doing(&seen->rank[i], doing, sizeof doing);
	}
	fo_ranks_text(in, seen->ranks, ranks, sizeof ranks);
	if (!*doing)
		snprintf(doing, sizeof doing, "not known what it did");
	fo_fail(FO_ECOMM, "the connection to host %s was lost (rank %s): %s", s->lost, *ranks ? ranks : "not known",
		doing);
	return with_checkpoint(j, FO_ECOMM);
}

/* An exit code's meaning: a 3 may have any cause, so it counts as a fault. */
static fo_status status_of(int code)
{
	static const fo_status known[] = { FO_EARG, FO_ENUMERIC, FO_EBUG };
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (code == fo_status_exit_code(known[i]))
			return known[i];
	return FO_ECOMM;
}

/* A rank's own error, in the words in which it printed it, with its place. */
static fo_status rank_fault(struct job *j, int rank, const char *why)
{
	const struct fo_rank_seen *r = rank < j->watch.seen.ranks ? &j->watch.seen.rank[rank] : NULL;
	char text[4096], hint[4096], place[200];
	if (r && r->phase == FO_RANK_FAILED && r->error != FO_OK) {
		fo_rank_place_text(r, place, sizeof place);
		fo_fail(r->error, "rank %d of %lld (%s): %s", rank, (long long)j->l->ranks, place, r->text);
		if (fo_launch_said_error(&j->said, r->text, text, hint, sizeof text) && *hint)
			return fo_hint(r->error, "%s", hint);
		return with_checkpoint(j, r->error);
	}
	/* A rank whose state file did not take its error (it had none yet, or the folder is gone) has printed it. */
	if (r && r->end.known && r->end.code && fo_launch_said_error(&j->said, "", text, hint, sizeof text)) {
		const fo_status st = status_of(r->end.code);
		fo_fail(st, "%s", text);
		if (*hint)
			return fo_hint(st, "%s", hint);
		return st == FO_ECOMM ? with_checkpoint(j, st) : st;
	}
	fo_fail(FO_ECOMM, "rank %d of %lld %s", rank, (long long)j->l->ranks, why);
	return with_checkpoint(j, FO_ECOMM);
}

static bool all_ended(const struct job *j, bool *interrupted)
{
	const struct fo_ranks_seen *s = &j->watch.seen;
	bool all = s->ranks && !strcmp(s->job, j->id);
	*interrupted = false;
	for (int i = 0; i < s->ranks && all; i++) {
		all = fo_rank_health(&s->rank[i], 1e9) == FO_HEALTH_ENDED;
		*interrupted |= s->rank[i].phase == FO_RANK_INTERRUPTED;
	}
	return all;
}

static fo_status interrupted_by_user(struct job *j)
{
	char text[4096], hint[4096];
	if (fo_launch_said_error(&j->said, "", text, hint, sizeof text)) {
		fo_fail(FO_EINTERRUPT, "%s", text);
		return *hint ? fo_hint(FO_EINTERRUPT, "%s", hint) : FO_EINTERRUPT;
	}
	fo_fail(FO_EINTERRUPT, "the job was stopped");
	return with_checkpoint(j, FO_EINTERRUPT);
}

static fo_status outcome(struct job *j, int status, bool *show)
{
	char text[1400];
	bool interrupted;
	const bool fine = WIFEXITED(status) && !WEXITSTATUS(status);
	(void)!fo_ranks_watch_look(&j->watch, j->dir, j->id);
	const bool ours = !strcmp(j->watch.seen.job, j->id);
	if (all_ended(j, &interrupted))
		return interrupted ? interrupted_by_user(j) : FO_OK;
	/* An early Ctrl-C comes before mpirun has a handler of its own. */
	if (j->stops > 1 || (j->stops && WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1))
		return interrupted_by_user(j);
	if (WIFSIGNALED(status) && !j->ended_by_us) {
		fo_fail(FO_ECOMM, "mpirun itself was killed by signal %d, and all ranks with it", WTERMSIG(status));
		return with_checkpoint(j, FO_ECOMM);
	}
	int rank = ours ? fo_ranks_cause(&j->watch.seen, 1e9, 1e9, text, sizeof text) : -1;
	enum fo_rank_health h = rank < 0 ? FO_HEALTH_FINE : fo_rank_health(&j->watch.seen.rank[rank], 1e9);
	/* The file of a rank that failed, or that something killed, says more than anybody else; but what this program
	 * itself ended is no cause. */
	if (*j->why && j->rank >= 0)
		return rank_fault(j, j->rank, j->why);
	const bool host = *j->said.exe || *j->said.unreachable || j->said.daemon || *j->said.lost;
	if (!j->ended_by_us && (h == FO_HEALTH_FAILED || (h == FO_HEALTH_GONE && !host)))
		return rank_fault(j, rank, text);
	fo_status st = host_fault(j);
	if (st != FO_OK)
		return st;
	if (*j->why) {
		fo_fail(FO_ECOMM, "%s", j->why);
		return with_checkpoint(j, FO_ECOMM);
	}
	if (rank >= 0)
		return rank_fault(j, rank, text);
	*show = true;
	if (fine)
		return FO_OK; /* no rank left a file: none trained */
	fo_fail(FO_ECOMM, "mpirun ended with exit code %d, and no rank says why",
		WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	return fo_hint(FO_ECOMM, "what it said stands above");
}

/* ---- the command ---- */

static void name_job(struct job *j)
{
	uint64_t r = 0;
	if (getrandom(&r, sizeof r, 0) != (ssize_t)sizeof r)
		r = (uint64_t)fo_now_ns() ^ (uint64_t)getpid();
	snprintf(j->id, sizeof j->id, "launch-%016llx", (unsigned long long)r);
	setenv(FO_RANK_JOB_VARIABLE, j->id, 1);
}

static void print_line(FILE *f, char *const *argv)
{
	struct fo_str s = { 0 };
	for (; *argv; argv++) {
		fo_str_shell(&s, *argv);
		fo_str_puts(&s, argv[1] ? " " : "\n");
	}
	fputs(s.data, f);
	fo_str_fini(&s);
}

static bool is_fault(fo_status st) { return st == FO_ECOMM || st == FO_EDEVICE; }

/* *again: a job that a fault ended may be started again. */
static fo_status one_job(struct fo_arena *a, const struct fo_launch *l, const char *dir, char **child, bool *again)
{
	struct job j = { .l = l, .arena = a, .dir = dir, .rank = -1 };
	j.came = fo_arena_alloc(a, (size_t)l->ranks * sizeof *j.came);
	struct fo_launch_line line;
	int status = 0;
	name_job(&j);
	FO_TRY(fo_launch_line(a, l, child, &line));
	print_line(l->dry_run ? stdout : stderr, line.argv);
	if (l->dry_run)
		return FO_OK;
	fo_launch_said_begin(&j.said);
	FO_TRY(start(&j, line.argv));
	watch(&j, &status);
	bool show = false;
	fo_status st = outcome(&j, status, &show);
	struct fo_err why;
	fo_err_save(&why, st);
	kill_ranks_here(&j);
	*again &= is_fault(st);
	if (is_fault(st)) {
		(void)fo_err_raise(&why);
		fo_err_save(&why, leave_nothing(&j, st, again));
	}
	fo_launch_said_end(&j.said, show);
	close(j.err);
	fo_ranks_watch_fini(&j.watch);
	return st == FO_OK ? FO_OK : fo_err_raise(&why);
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct fo_launch *l = call->in;
	struct fo_arena a = { 0 };
	const char *dir = NULL;
	char **child;
	if (call->argc < 2)
		return fo_hint(fo_fail(FO_EARG, "nothing to launch: no 'train run.yaml' is given"), "usage: %s",
			       call->command->usage);
	if (strcmp(call->argv[1], "train") != 0)
		return fo_hint(fo_fail(FO_EARG, "launch can 'train', got '%s': no other command has several processes",
				       fo_cli_seen(call->argv[1])),
			       "usage: %s", call->command->usage);
	if (l->as_rank) {
		char **argv = call->argv;
		argv[0] = "flatout";
		return fo_launch_rank(l->as_rank, argv);
	}
	if (!l->ranks)
		return fo_hint(fo_fail(FO_EARG, "launch does not know how many ranks to start: give -n N"), "usage: %s",
			       call->command->usage);
	signal(SIGCHLD, SIG_DFL); /* ignored, it would hide how mpirun ends */
	struct sigaction on = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	sigemptyset(&on.sa_mask);
	fo_status st = find_dir(&a, call->argc - 1, call->argv + 1, (int)l->ranks, &dir);
	if (st == FO_OK)
		st = child_words(&a, dir, call->argc - 1, call->argv + 1, &child);
	if (st == FO_OK && !l->dry_run) /* ranks would take the places of that job's files */
		st = fo_folder_free(dir);
	if (st == FO_OK && !l->dry_run) {
		sigaction(SIGINT, &on, NULL);
		sigaction(SIGTERM, &on, NULL);
		sigaction(SIGHUP, &on, NULL);
	}
	for (int64_t again = 0; st == FO_OK; again++) {
		bool may = again < l->restarts;
		st = one_job(&a, l, dir, child, &may);
		if (!may || stops)
			break;
		fprintf(stderr, "flatout: %s\nflatout: restart %lld of %lld\n", fo_cli_seen(fo_err_text()),
			(long long)again + 1, (long long)l->restarts);
		nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
		if (stops) /* nothing runs that could be stopped */
			break;
		st = FO_OK;
	}
	fo_arena_fini(&a);
	return st;
}

const struct fo_command fo_cmd_launch = {
	.processes = true,
	.name = "launch",
	.group = "train",
	.usage = "flatout launch -n N [--hosts LIST] [--restarts N] -- train run.yaml [--KEY=VALUE ...]",
	.summary = "train with several processes or hosts, and watch them",
	.text = "Starts N ranks with mpirun, prints its command line, and stays until the job ends. When a rank is "
		"killed, fails, stands still or never starts, or a host is lost, it ends everything and says in one "
		"line which rank, where, and in which operation. A rank is taken for hung when its heart does not "
		"beat, never because an operation takes long.\n\n"
		"Ctrl-C once ends the job after the step, with a checkpoint; twice at once.\n\n"
		"Under Slurm ('srun --mpi=pmix flatout train run.yaml') and with mpirun itself this command is not "
		"needed. 'flatout status RUN' shows what the ranks do.\n\n"
		"  flatout launch -n 4 -- train run.yaml\n"
		"  flatout launch -n 4 --hosts=h1:2,h2:2 --restarts=3 -- train run.yaml",
	.opts = rows,
	.act = run,
	.size = sizeof(struct fo_launch),
	.most = FO_CLI_ANY,
};
