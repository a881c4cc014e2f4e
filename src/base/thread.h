/* Starting threads, and sharing numbered pieces of work among some of them. */
#ifndef FO_BASE_THREAD_H
#define FO_BASE_THREAD_H

#include "base/err.h"

#include <pthread.h>
#include <stddef.h>

/* A thread to which no signal goes but those that its own instructions cause. FO_EIO: "cannot start WHAT: reason". */
FO_CHECKED fo_status fo_thread_start(pthread_t *t, void *(*fn)(void *), void *arg, const char *what);
/* The calling thread has little to do, but at once when it wakes: its timers have no slack, and where other threads
 * fill all processors, Linux (since 6.12) lets it run before them if it asks for short slices, which it does here. On
 * other systems the latter does nothing, nor where somebody chose another scheduling policy. */
void fo_thread_wakes_promptly(void);
/* Calls fn(ctx, i) for each i < n, on as many threads as there are processors (at most 64); this one works too, and
 * does all where none could be started. */
void fo_thread_share(size_t n, void (*fn)(void *ctx, size_t i), void *ctx);

#endif
