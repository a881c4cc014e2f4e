#include "base/thread.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
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
