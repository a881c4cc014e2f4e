#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

fo_status fo_thread_start(pthread_t *t, void *(*fn)(void *), void *arg, const char *what)
{
	static const int own[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL };
	sigset_t all, before;
	sigfillset(&all);
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		sigdelset(&all, own[i]);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(t, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error ? fo_fail(FO_EIO, "cannot start %s: %s", what, strerror(error)) : FO_OK;
}

void fo_thread_wakes_promptly(void)
{
#ifdef PR_SET_TIMERSLACK
	(void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* ns; the default, 50 us, is a tenth of a call of 64 KiB */
#endif
#if defined(SYS_sched_setattr) && defined(SYS_sched_getattr)
	/* The least that Linux takes. With its usual slices of 3 ms calls between ranks began and ended when
	 * threads that compute paused (2 ranks on 2 processors, Linux 6.18, November 2026). */
	enum { SLICE_NS = 100000 };
	struct { /* sched_setattr(2), its first version */
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = { .size = sizeof attr };
	if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) || attr.policy != SCHED_OTHER)
		return;
	attr.runtime = SLICE_NS;
	(void)syscall(SYS_sched_setattr, 0, &attr, 0); /* refused: as before */
#endif
}

struct share {
	size_t n;
	void (*fn)(void *ctx, size_t i);
	void *ctx;
	atomic_size_t next;
};

static void *work(void *arg)
{
	struct share *s = arg;
	for (size_t i; (i = atomic_fetch_add(&s->next, 1)) < s->n;)
		s->fn(s->ctx, i);
	return NULL;
}

void fo_thread_share(size_t n, void (*fn)(void *ctx, size_t i), void *ctx)
{
	enum { MOST = 64 };
	struct share s = { .n = n, .fn = fn, .ctx = ctx };
	pthread_t thread[MOST];
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t started = 0;
	while (started + 1 < n && started + 1 < MOST && (long)started + 1 < cpus &&
	       pthread_create(&thread[started], NULL, work, &s) == 0)
		started++;
	work(&s);
	for (size_t i = 0; i < started; i++)
		pthread_join(thread[i], NULL);
}
