/* Inside src/diagnose: how windows are found and gaps explained. */
#ifndef FO_DIAGNOSE_LEDGER_INT_H
#define FO_DIAGNOSE_LEDGER_INT_H

#include "diagnose/diagnose.h"

#include <string.h>

/* The longest gap behind an operation that was launched before it which is the hardware's own turn-around, and the
 * longest time in which what follows a communication counts as waiting for it (facts: docs/metrics.md, "the ledger").
 */
#define FO_KERNEL_GAP_NS INT64_C(10000)
/* The operation begins microseconds after a launch on an idle device, under a profiler some tens. Beyond this the call
 * itself lasted (the driver loads or compiles the kernel's code at its first use), or the operation waited on the
 * device. */
#define FO_LAUNCH_LATENCY_NS INT64_C(1000000)

/* 3 %: how far a step of the host and one of the GPU may differ by the definition of the latter alone
 * (docs/metrics.md). */
#define FO_STEP_MATCHES 1.03

/* Three ways to say which operations count, and as what. */
enum fo_kinds {
	FO_KINDS_BY_NAME,  /* a copy is a copy, whichever way the trace calls it */
	FO_KINDS_RECORDED, /* of ref.py: as the trace calls it; a copy is no communication, a kernel no copy */
	FO_KINDS_LINKED, /* of TraceLens: with a launch record only; fills are computation, and those of ROCm, of whose
			  * launches the trace shows no flow to the GPU, are left out */
};
static inline enum fo_kinds fo_kinds_of(const struct fo_ledger_options *o)
{
	if (o->exclude_unlinked)
		return FO_KINDS_LINKED;
	return o->whole_trace ? FO_KINDS_RECORDED : FO_KINDS_BY_NAME;
}
/* Is this operation counted? */
static inline bool fo_ledger_counts(const struct fo_trace *t, const struct fo_gpu_op *g, enum fo_kinds kinds)
{
	if (kinds != FO_KINDS_LINKED)
		return true;
	return g->launch >= 0 &&
	       (g->kind != FO_GPU_MEMSET || strncmp(fo_trace_text(t, t->launch[g->launch].name), "hip", 3));
}

/* The operations of one device: t->gpu[first .. first + n). */
struct fo_device_ops {
	const struct fo_trace *t;
	const struct fo_gpu_op *op;
	int64_t n;
	const int64_t *wait; /* by op[], as in fo_op_waits; NULL: unknown of all */
	int16_t device;
	enum fo_kinds kinds;
	bool once; /* without those that the backward pass repeats */
};
static inline bool fo_device_op_counts(const struct fo_device_ops *d, const struct fo_gpu_op *g)
{
	return (d->kinds != FO_KINDS_LINKED || fo_ledger_counts(d->t, g, d->kinds)) &&
	       !(d->once && (g->flags & FO_GPU_RECOMPUTED));
}

struct fo_window {
	int64_t number, begin, end;   /* number -1: none */
	int64_t host_begin, host_end; /* -1: unknown */
};
/* Each window begins where the one before ends. */
struct fo_windows {
	enum fo_window_origin from;
	struct fo_window *v;
	size_t n, cap;
	int64_t dropped; /* steps at the end of which the trace does not show where they end */
	int64_t unseen;  /* steps that launched nothing and have no window, for the device was busy all the while */
};
/* `whole`: no steps are looked for. No window at all where no operation lasts. */
void fo_windows_find(struct fo_windows *w, const struct fo_device_ops *d, bool whole);
void fo_windows_fini(struct fo_windows *w);
/* window_start.c: where a window without steps begins. Fills lead_ns, start_ns and start_ops of *out. */
struct fo_idle;
void fo_window_start(struct fo_window *v, const struct fo_device_ops *d, const struct fo_idle *idle,
		     struct fo_device_ledger *out);

/* The host's activity while a device idled: unions of intervals by thread. */
struct fo_idle {
	const struct fo_trace *t;
	bool recorded;            /* fo_idle_init's */
	struct fo_intervals data; /* the data loader's, whichever thread it ran on */
	struct fo_intervals *sync,
		*busy;             /* by thread: waits for the GPU; operators and calls with short holes closed */
	struct fo_intervals *load; /* by thread: calls in which code is loaded; none with `recorded` */
	int32_t *last_thread;      /* by device: that of its last launch; -1 */
};
void fo_idle_init(struct fo_idle *h, const struct fo_trace *t, bool recorded);
/* Adds the part [from, to) of a device's gap [begin, end) to the causes; `first` is the operation that ends the gap.
 * NULL: none does, as the host had launched nothing more: what its thread of the last launch did is the cause. */
void fo_idle_divide(const struct fo_idle *h, int16_t device, const struct fo_gpu_op *first, int64_t begin, int64_t end,
		    int64_t from, int64_t to, int64_t idle_ns[FO_IDLE_COUNT]);
/* The time in [begin, end) in which one of these threads (by thread: does it launch for the device?) was inside
 * operators or calls that do not wait; -1 where the trace has no host operators. *loader: that of the data loader in
 * it; *both: that of both at once. */
int64_t fo_idle_launch_busy(const struct fo_idle *h, const bool *launches, int64_t begin, int64_t end, int64_t *loader,
			    int64_t *both);
void fo_idle_fini(struct fo_idle *h);

/* The host's steps, *n of them, for the caller to free. */
struct fo_host_step *fo_host_steps(const struct fo_trace *t, int64_t *n);

#endif
