/* The engine of the processor: one thread per used lane, kernels of the kernel sets. Of the lanes that compute, one
 * does so at a time. Lanes of communication share a thread. */
#include "train/exec_int.h"
#include "base/clock.h"
#include "base/count.h"
#include "base/mem.h"
#include "base/thread.h"
#include "train/store_int.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

double fo_element(const void *data, int dtype, int64_t at)
{
	switch (dtype) {
	case FO_F64: return ((const double *)data)[at];
	case FO_BF16: return (double)fo_bf16_to_f32(((const uint16_t *)data)[at]);
	case FO_E4M3: return (double)fo_e4m3_to_f32(((const uint8_t *)data)[at]);
	case FO_E5M2: return (double)fo_e5m2_to_f32(((const uint8_t *)data)[at]);
	default: return (double)((const float *)data)[at];
	}
}

/* An operation, prepared before any instance of it runs. */
struct prepared {
	const struct fo_kernel *kernel;
	enum fo_isa isa;
};

/* What a thread touches of its stack and of its part of the heap, as measured. */
enum { STACK_BYTES = 32 << 10 };

struct lane {
	struct fo_exec *e;
	int id;
	pthread_t thread;
	bool started;
	int *instance, n; /* its instances, in order */
	void *ws;
	size_t ws_bytes;
	int threads;
	_Atomic int32_t done;   /* newest instance that has finished in this step */
	_Atomic int32_t wanted; /* oldest instance that a sleeper waits for; INT32_MAX: nobody sleeps on this lane */
	uint64_t delays;        /* random delays drawn so far */
	/* What its thread does; guarded by the executor's lock. ASLEEP: until lane `of` has finished `until`. */
	enum { ENDED, AWAKE, ASLEEP } state;
	int of;
	int32_t until;
	/* Of a lane of communication, which the thread of all of these drives. */
	bool linked, on_its_way;
	int next; /* of `instance`: on its way, or the next to start */
	int64_t begin_ns;
	struct fo_transfer transfer;
	bool waited; /* its next instance had to wait for a lane that does not compute */
	/* While instances run one by one: its point-to-point transfers that were listed and those that are over. */
	int listed, over;
};

struct fo_exec_cpu {
	struct prepared *op; /* of each of the executor's operations */
	struct lane lane[FO_LANE_COUNT];
	/* Held by the lane that computes, so that a run has no more threads than its peak counts. */
	pthread_mutex_t cores;
	/* Lanes sleep on `wake` until what they wait for has moved. */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	int32_t step;       /* guarded by lock */
	int64_t generation; /* steps begun; guarded by lock */
	int running;        /* helper lanes still in this step; guarded by lock */
	bool quit;
	pthread_t linker; /* drives the lanes of communication */
	bool linked;      /* it runs */
	/* The linker sleeps on `called` until one of its lanes may go on or another rank has moved something. */
	pthread_cond_t called;
	_Atomic bool naps;
	_Atomic int64_t told; /* how often other ranks have said so */
	_Atomic bool failed;
	struct fo_err error; /* guarded by lock */
	/* Paced kernels: per instance the time that it takes; NULL: kernels run. due_ns: when the last operation of the
	 * lanes that compute was to end; 0: none has run in this step. Held with `cores`. */
	int64_t *pace_ns, due_ns;
};

/* ---- for those who ask where it hangs ---- */

/* Lane ln runs instance `id`, or waits for it; -1: it does nothing. */
static void tell(const struct fo_exec *e, const struct lane *ln, enum fo_lane_does does, int32_t id, int64_t now_ns)
{
	if (!e->o.state)
		return;
	struct fo_rank_op op = { .instance = id, .layer = -1, .mb = -1 };
	if (id >= 0) {
		const struct fo_slot *s = &e->p->slot[e->u.slot[id]];
		const struct fo_block *b = &e->p->block[s->block];
		const struct fo_op *o = fo_instance_op(e->p, &e->u, id);
		const bool once = b->role == FO_ROLE_OPTIMIZER || b->unit == FO_UNIT_STEP;
		op.op = fo_op_info(o->kind)->name;
		op.block = b->name;
		op.phase = fo_phase_name[o->phase];
		op.group = fo_exec_is_comm(o) ? fo_group_name[o->group] : NULL;
		op.layer = b->unit == FO_UNIT_LAYER ? s->layer : -1;
		op.mb = once ? -1 : s->mb;
	}
	fo_rank_state_lane(e->o.state, ln->id, fo_lane_name[ln->id], does, &op, now_ns);
}

/* ---- one instance ---- */

/* Waits in place of a kernel. from_ns: when the operation could begin, had no wait before it ended late; 0: now. */
static void pace(struct fo_exec *e, int id, int64_t from_ns)
{
	const int64_t now = fo_now_ns(), until = (from_ns ? from_ns : now) + e->cpu->pace_ns[id];
	const struct timespec at = { .tv_sec = until / 1000000000, .tv_nsec = until % 1000000000 };
	while (until > now && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
	if (fo_lane_computes(fo_instance_op(e->p, &e->u, id)->lane))
		e->cpu->due_ns = until;
}

static fo_status run_on(struct fo_exec *e, struct lane *ln, int id)
{
	const struct fo_slot *s = &e->p->slot[e->u.slot[id]];
	const struct prepared *pr = &e->cpu->op[fo_exec_op(e, id)];
	struct fo_call c = fo_exec_call(e, id);
	fo_exec_poison(e, id);
	FO_TRY(fo_exec_fails(e, id));
	if (fo_op_info(c.kind)->cls == FO_CLASS_HOST)
		return e->port(e->ctx, c.attr.port, s->mb, c.arg, c.n);
	c.threads = ln->threads;
	c.ws = ln->ws;
	c.ws_bytes = ln->ws_bytes;
	c.mac = e->o.mac;
	if (e->cpu->pace_ns)
		pace(e, id, fo_lane_computes(ln->id) && !ln->waited ? e->cpu->due_ns : 0);
	else if (!e->o.null_kernels)
		pr->kernel->run(&c);
	return FO_OK;
}

/* ---- one by one ----
 *
 * A rank that runs its instances in issue order, on the calling thread, must not wait for a send or a receive where
 * it stands: stages of a pipeline would wait for each other in a circle. These go on beside what follows, each lane's
 * in their order, and an instance waits for those that it needs. */

static bool is_pair(const struct fo_op *o) { return fo_op_family(o->kind) == FO_OPS_P2P; }

/* Has lane l no listed transfer up to instance `id` that is not over? */
static bool is_over(const struct fo_exec *e, int l, int id)
{
	const struct lane *ln = &e->cpu->lane[l];
	return ln->over == ln->listed || ln->instance[ln->over] > id;
}

static bool has_all(const struct fo_exec *e, int id)
{
	for (int l = 0; l < FO_LANE_COUNT; l++)
		if (e->u.wait[id][l] >= 0 && !is_over(e, l, e->u.wait[id][l]))
			return false;
	return true;
}

/* Moves transfers that were listed; *moved: more may be possible at once. */
static fo_status move_pairs(struct fo_exec *e, bool *moved, int64_t *until_ns)
{
	*moved = false;
	*until_ns = 0;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		struct lane *ln = &e->cpu->lane[l];
		bool done = false;
		if (ln->over == ln->listed)
			continue;
		const int id = ln->instance[ln->over];
		if (!ln->on_its_way && !has_all(e, id))
			continue;
		if (!ln->on_its_way)
			FO_TRY(fo_exec_transfer_start(e, id, &ln->transfer));
		ln->on_its_way = true;
		FO_TRY(fo_exec_transfer_test(e, id, &ln->transfer, &done));
		*moved |= done || ln->transfer.moved;
		*until_ns = fo_exec_earlier(*until_ns, ln->transfer.until_ns);
		ln->over += done;
		ln->on_its_way = !done;
	}
	return FO_OK;
}

/* Returns when all transfers that instance `id` waits for are over, and behind the last one of a step all of them. */
static fo_status wait_for_pairs(struct fo_exec *e, int id)
{
	int64_t since = fo_now_ns(), until_ns;
	for (;;) {
		bool moved, ready = has_all(e, id);
		for (int l = 0; l < FO_LANE_COUNT && ready; l++)
			ready = e->cpu->lane[l].listed < e->cpu->lane[l].n || is_over(e, l, id);
		if (ready)
			return FO_OK;
		FO_TRY(move_pairs(e, &moved, &until_ns));
		if (moved) {
			since = fo_now_ns();
			continue;
		}
		fo_comm_idle(e->o.links->world, true);
		fo_comm_rest(since, until_ns);
	}
}

/* On the calling thread, while nothing else of this rank runs but its point-to-point transfers. */
static fo_status transfer(struct fo_exec *e, struct lane *ln, int id)
{
	bool done = false;
	int64_t since = fo_now_ns();
	FO_TRY(fo_exec_transfer_start(e, id, &ln->transfer));
	for (;;) {
		FO_TRY(fo_exec_transfer_test(e, id, &ln->transfer, &done));
		if (done)
			return FO_OK;
		bool moved;
		int64_t until_ns;
		FO_TRY(move_pairs(e, &moved, &until_ns));
		if (moved || ln->transfer.moved) {
			since = fo_now_ns();
			continue;
		}
		fo_comm_idle(e->o.links->world, true);
		fo_comm_rest(since, fo_exec_earlier(until_ns, ln->transfer.until_ns));
	}
}

static fo_status list_pair(struct fo_exec *e, struct lane *ln, int id)
{
	bool moved;
	int64_t until_ns;
	if (ln->instance[0] == id) { /* a step begins */
		ln->listed = ln->over = 0;
		ln->on_its_way = false;
	}
	ln->listed++;
	return move_pairs(e, &moved, &until_ns);
}

static fo_status settle(struct fo_exec *e, int id)
{
	fo_status st = e->o.links ? wait_for_pairs(e, id) : FO_OK;
	if (st != FO_OK)
		fo_comm_abort(e->o.links->world);
	return st;
}

/* Runs an instance with the threads and the workspace of its own lane, which its kernel was prepared for. */
static fo_status run(struct fo_exec *e, int id)
{
	const struct fo_op *o = fo_instance_op(e->p, &e->u, id);
	fo_status st = FO_OK;
	if (is_pair(o)) {
		st = list_pair(e, &e->cpu->lane[o->lane], id);
	} else if (e->o.links) {
		st = settle(e, id);
		if (st == FO_OK && fo_exec_is_comm(o))
			st = transfer(e, &e->cpu->lane[o->lane], id);
	}
	if (st != FO_OK)
		fo_comm_abort(e->o.links->world);
	if (st != FO_OK || fo_exec_is_comm(o))
		return st;
	e->cpu->due_ns = 0; /* what has passed since the last one is not lateness alone */
	return run_on(e, &e->cpu->lane[o->lane], id);
}

/* ---- lanes ---- */

static void fail(struct fo_exec *e, fo_status st)
{
	pthread_mutex_lock(&e->cpu->lock);
	if (!atomic_load(&e->cpu->failed))
		fo_err_save(&e->cpu->error, st);
	atomic_store(&e->cpu->failed, true);
	pthread_cond_broadcast(&e->cpu->wake);
	pthread_cond_signal(&e->cpu->called);
	pthread_mutex_unlock(&e->cpu->lock);
	if (e->o.links)
		fo_comm_abort(e->o.links->world); /* others must not wait for this rank */
}

/* Returns when instance `id` of lane `l` has finished, or the step has failed. A sleeper says first what it wants and
 * looks at `done` again; the other side stores `done` first and then looks at `wanted`, all in sequentially consistent
 * order: either the sleeper sees the new value or it is woken. */
static void wait_for(struct fo_exec *e, struct lane *self, int l, int32_t id)
{
	struct lane *ln = &e->cpu->lane[l];
	pthread_mutex_lock(&e->cpu->lock);
	self->state = ASLEEP;
	self->of = l;
	self->until = id;
	for (;;) {
		if (id < atomic_load(&ln->wanted))
			atomic_store(&ln->wanted, id);
		if (atomic_load(&ln->done) >= id || atomic_load(&e->cpu->failed))
			break;
		pthread_cond_wait(&e->cpu->wake, &e->cpu->lock);
	}
	self->state = AWAKE;
	pthread_mutex_unlock(&e->cpu->lock);
}

static void finished(struct fo_exec *e, struct lane *ln, int32_t id)
{
	atomic_store(&ln->done, id);
	if (id >= atomic_load(&ln->wanted)) {
		pthread_mutex_lock(&e->cpu->lock);
		atomic_store(&ln->wanted, INT32_MAX); /* who still waits for more says so again */
		pthread_cond_broadcast(&e->cpu->wake);
		pthread_cond_signal(&e->cpu->called);
		pthread_mutex_unlock(&e->cpu->lock);
	}
}

static void random_delay(struct fo_exec *e, struct lane *ln)
{
	uint64_t r = fo_rng_u64(e->o.delay_seed + (uint64_t)ln->id, ln->delays++);
	if (r % 4 == 0) { /* a quarter of the operations start up to 0.1 ms late */
		struct timespec t = { .tv_nsec = (long)(r >> 8 & 0xffff) * 100000 / 0xffff };
		nanosleep(&t, NULL);
	}
}

static void run_lane(struct lane *ln, int32_t step)
{
	struct fo_exec *e = ln->e;
	for (int i = 0; i < ln->n; i++) {
		int id = ln->instance[i];
		ln->waited = false;
		for (int l = 0; l < FO_LANE_COUNT; l++) {
			int32_t need = e->u.wait[id][l];
			if (l == ln->id || need < 0 || atomic_load(&e->cpu->lane[l].done) >= need)
				continue;
			int64_t t0 = fo_now_ns();
			tell(e, ln, FO_LANE_WAITS, need, t0);
			wait_for(e, ln, l, need);
			ln->waited |= !fo_lane_computes(l);
			fo_timeline_record(&e->timeline, ln->id, step, ~need, t0, fo_now_ns());
		}
		if (atomic_load(&e->cpu->failed))
			return;
		if (e->o.delay_seed)
			random_delay(e, ln);
		if (fo_lane_computes(ln->id))
			pthread_mutex_lock(&e->cpu->cores);
		int64_t t0 = fo_now_ns();
		tell(e, ln, FO_LANE_RUNS, id, t0);
		fo_status st = run_on(e, ln, id);
		fo_timeline_record(&e->timeline, ln->id, step, id, t0, fo_now_ns());
		if (fo_lane_computes(ln->id))
			pthread_mutex_unlock(&e->cpu->cores);
		if (st != FO_OK) {
			/* One rank has one place for it; of several, one is to be named. */
			fail(e, e->o.links ? fo_exec_failed(e, id, st) : st);
			return;
		}
		finished(e, ln, id);
	}
	tell(e, ln, FO_LANE_IDLE, -1, fo_now_ns());
}

/* ---- lanes of communication ---- */

/* Has all that an instance waits for been done? With `sleeps` says first what is wanted, as wait_for does. */
static bool is_ready(struct fo_exec *e, const struct lane *ln, bool sleeps)
{
	bool ready = true;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		int32_t need = e->u.wait[ln->instance[ln->next]][l];
		if (l == ln->id || need < 0 || atomic_load(&e->cpu->lane[l].done) >= need)
			continue;
		if (sleeps && need < atomic_load(&e->cpu->lane[l].wanted))
			atomic_store(&e->cpu->lane[l].wanted, need);
		ready &= atomic_load(&e->cpu->lane[l].done) >= need;
	}
	return ready;
}

/* Another rank moved something (fo_comm_listen). It counts first and then looks whether the linker naps; that one says
 * first that it naps and then looks at the count: one of them sees the other. */
static void call_linker(void *ctx)
{
	struct fo_exec_cpu *x = ((struct fo_exec *)ctx)->cpu;
	atomic_fetch_add(&x->told, 1);
	if (!atomic_load(&x->naps))
		return;
	pthread_mutex_lock(&x->lock);
	pthread_cond_signal(&x->called);
	pthread_mutex_unlock(&x->lock);
}

/* Returns when some lane may go on, or other ranks have said more than `told` times that something moved; where calls
 * are on their way (for_ns > 0) also when it is time to look at them. */
static void sleep_until_ready(struct fo_exec *e, int64_t for_ns, int64_t told)
{
	struct fo_exec_cpu *x = e->cpu;
	const int64_t until = fo_now_ns() + for_ns;
	const struct timespec at = { .tv_sec = until / 1000000000, .tv_nsec = until % 1000000000 };
	bool ready = false, late = false;
	pthread_mutex_lock(&x->lock);
	atomic_store(&x->naps, true);
	while (!ready && !late && !atomic_load(&x->failed) && atomic_load(&x->told) == told) {
		for (int l = 0; l < FO_LANE_COUNT; l++)
			if (x->lane[l].linked && x->lane[l].next < x->lane[l].n && !x->lane[l].on_its_way)
				ready |= is_ready(e, &x->lane[l], true);
		if (ready)
			break;
		if (for_ns)
			late = pthread_cond_timedwait(&x->called, &x->lock, &at) == ETIMEDOUT;
		else
			pthread_cond_wait(&x->called, &x->lock);
	}
	atomic_store(&x->naps, false);
	pthread_mutex_unlock(&x->lock);
}

/* Can nothing move on this rank before a call that is on its way is over? The thread of communication asks: it alone
 * ends instances of its lanes, so what is true stays true until it does. */
static bool rests(struct fo_exec *e)
{
	struct fo_exec_cpu *x = e->cpu;
	bool rests = true;
	pthread_mutex_lock(&x->lock);
	for (int l = 0; l < FO_LANE_COUNT && rests; l++) {
		const struct lane *ln = &x->lane[l];
		if (ln->linked)
			rests = ln->next == ln->n || ln->on_its_way || !is_ready(e, ln, false);
		else if (ln->state != ENDED)
			rests = ln->state == ASLEEP && atomic_load(&x->lane[ln->of].done) < ln->until;
	}
	pthread_mutex_unlock(&x->lock);
	return rests;
}

/* Starts the lane's next instance if it is ready. */
static fo_status start_next(struct fo_exec *e, struct lane *ln)
{
	int id = ln->instance[ln->next];
	if (!is_ready(e, ln, false))
		return FO_OK;
	if (e->o.delay_seed)
		random_delay(e, ln);
	ln->begin_ns = fo_now_ns();
	tell(e, ln, FO_LANE_RUNS, id, ln->begin_ns);
	FO_TRY(fo_exec_transfer_start(e, id, &ln->transfer));
	ln->on_its_way = true;
	return FO_OK;
}

/* Starts or tests the lane's next instance. *moved: something changed. */
static fo_status drive(struct fo_exec *e, struct lane *ln, int32_t step, bool *moved)
{
	int id = ln->instance[ln->next];
	bool done = false;
	if (!ln->on_its_way) {
		FO_TRY(start_next(e, ln));
		if (!ln->on_its_way)
			return FO_OK;
		*moved = true;
	}
	FO_TRY(fo_exec_transfer_test(e, id, &ln->transfer, &done));
	*moved |= ln->transfer.moved;
	if (!done)
		return FO_OK;
	const int64_t now = fo_now_ns();
	fo_timeline_record(&e->timeline, ln->id, step, id, ln->begin_ns, now);
	tell(e, ln, FO_LANE_IDLE, -1, now);
	ln->on_its_way = false;
	ln->next++;
	*moved = true;
	/* Whoever is woken may take this processor for some milliseconds: what follows on the lane starts before. */
	if (ln->next < ln->n)
		FO_TRY(start_next(e, ln));
	finished(e, ln, id);
	return FO_OK;
}

/* Naps end up to half a millisecond late by themselves (they are that long, and timers have slack); a processor that
 * another process has, or that a control group's quota denies, is away for longer. */
#define LATE_NS 1000000

/* listens: other ranks wake this thread. */
static void run_linked(struct fo_exec *e, int32_t step, bool listens)
{
	for (int l = 0; l < FO_LANE_COUNT; l++)
		e->cpu->lane[l].next = 0, e->cpu->lane[l].on_its_way = false;
	int64_t since = fo_now_ns(); /* when something moved last */
	int64_t due = 0;             /* when this thread wanted its turn; 0: when others wake it */
	while (!atomic_load(&e->cpu->failed)) {
		int left = 0, under_way = 0;
		const int64_t turn = fo_now_ns(), told = atomic_load(&e->cpu->told);
		if (due && turn - due > LATE_NS)
			fo_rank_state_late(e->o.state, turn - due);
		due = turn;
		int64_t until = 0;
		bool moved = false;
		for (int l = 0; l < FO_LANE_COUNT; l++) {
			struct lane *ln = &e->cpu->lane[l];
			if (!ln->linked || ln->next == ln->n)
				continue;
			fo_status st = drive(e, ln, step, &moved);
			if (st != FO_OK) {
				fail(e, st);
				return;
			}
			left += ln->next < ln->n;
			under_way += ln->on_its_way;
			until = ln->on_its_way ? fo_exec_earlier(until, ln->transfer.until_ns) : until;
		}
		if (!left)
			return;
		if (moved) {
			since = fo_now_ns();
			continue;
		}
		const bool resting = under_way && rests(e);
		if (resting)
			fo_comm_idle(e->o.links->world, true);
		/* Nothing is computed meanwhile: a processor is free. Who lets others go first is not late. */
		if (resting && fo_comm_spin(since, until)) {
			due = 0;
			continue;
		}
		const int64_t nap = under_way ? fo_comm_nap_ns(since, until, listens, resting) : 0;
		due = nap ? fo_now_ns() + nap : 0;
		sleep_until_ready(e, nap, told);
	}
}

/* ---- threads ---- */

/* The thread of a lane, or of all lanes of communication (ln NULL), until the executor is closed. */
static void serve_steps(struct fo_exec *e, struct lane *ln)
{
	int64_t seen = 0;
	for (;;) {
		pthread_mutex_lock(&e->cpu->lock);
		while (e->cpu->generation == seen && !e->cpu->quit)
			pthread_cond_wait(&e->cpu->wake, &e->cpu->lock);
		seen = e->cpu->generation;
		bool quit = e->cpu->quit;
		int32_t step = e->cpu->step;
		pthread_mutex_unlock(&e->cpu->lock);
		if (quit)
			return;
		if (ln) {
			run_lane(ln, step);
		} else {
			/* For a step at a time: a rank has several executors. */
			const bool listens = fo_comm_listen(e->o.links->world, call_linker, e);
			run_linked(e, step, listens);
			if (listens)
				(void)fo_comm_listen(e->o.links->world, NULL, NULL);
		}
		pthread_mutex_lock(&e->cpu->lock);
		if (ln)
			ln->state = ENDED;
		e->cpu->running--;
		pthread_cond_broadcast(&e->cpu->wake);
		pthread_mutex_unlock(&e->cpu->lock);
	}
}

static void *lane_thread(void *arg)
{
	struct lane *ln = arg;
	serve_steps(ln->e, ln);
	return NULL;
}

static void *link_thread(void *arg)
{
	fo_thread_wakes_promptly(); /* a call that is over holds up others */
	serve_steps(arg, NULL);
	return NULL;
}

static fo_status step_all(struct fo_exec *e, int32_t step)
{
	pthread_mutex_lock(&e->cpu->lock);
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		atomic_store(&e->cpu->lane[l].done, -1);
		atomic_store(&e->cpu->lane[l].wanted, INT32_MAX);
		e->cpu->lane[l].state = e->cpu->lane[l].started || l == FO_LANE_COMPUTE ? AWAKE : ENDED;
		e->cpu->running += e->cpu->lane[l].started;
	}
	e->cpu->running += e->cpu->linked;
	atomic_store(&e->cpu->failed, false);
	e->cpu->due_ns = 0;
	e->cpu->step = step;
	e->cpu->generation++;
	pthread_cond_broadcast(&e->cpu->wake);
	pthread_mutex_unlock(&e->cpu->lock);
	run_lane(&e->cpu->lane[FO_LANE_COMPUTE], step);
	pthread_mutex_lock(&e->cpu->lock);
	e->cpu->lane[FO_LANE_COMPUTE].state = ENDED;
	while (e->cpu->running)
		pthread_cond_wait(&e->cpu->wake, &e->cpu->lock);
	pthread_mutex_unlock(&e->cpu->lock);
	return atomic_load(&e->cpu->failed) ? fo_err_raise(&e->cpu->error) : FO_OK;
}

static fo_status find(struct fo_exec *e, const struct fo_tensor *t, int64_t *found, double *value)
{
	(void)e;
	*found = -1;
	for (int64_t r = 0; r < t->rows; r++)
		for (int64_t c = 0; c < t->cols; c++) {
			int64_t at = r * t->ld + c;
			double v = fo_element(t->data, t->dtype, at);
			if (isfinite(v))
				continue;
			*found = r * t->cols + c;
			*value = v;
			return FO_OK;
		}
	return FO_OK;
}

/* ---- setting up ---- */

static void assign_lanes(struct fo_exec *e)
{
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		struct lane *ln = &e->cpu->lane[l];
		ln->e = e;
		ln->id = l;
		/* A kernel's bits may depend on its threads: all lanes that compute have the same. */
		ln->threads = fo_lane_computes(l) ? e->o.threads : 1;
		ln->instance = fo_xmalloc((size_t)(e->u.n + 1) * sizeof *ln->instance);
	}
	for (int i = 0; i < e->u.n; i++) {
		struct lane *ln = &e->cpu->lane[fo_instance_op(e->p, &e->u, i)->lane];
		ln->instance[ln->n++] = i;
	}
}

static void set_pace(struct fo_exec *e)
{
	const struct fo_rates *r = e->o.pace->rates;
	struct fo_op_time *of = fo_rates_step(r, e->p, &e->u, e->o.pace->pairs, NULL);
	e->cpu->pace_ns = fo_xmalloc((size_t)(e->u.n + 1) * sizeof *e->cpu->pace_ns);
	for (int i = 0; i < e->u.n; i++)
		if (fo_op_has_kernel(fo_instance_op(e->p, &e->u, i)->kind))
			e->cpu->pace_ns[i] = llround((of[i].seconds + r->overhead_s) * 1e9);
	free(of);
}

/* Lanes of communication have nothing else, and the executor has links where there is one. */
static fo_status link_lanes(struct fo_exec *e)
{
	for (int i = 0; i < e->u.n; i++) {
		const struct fo_op *o = fo_instance_op(e->p, &e->u, i);
		struct lane *ln = &e->cpu->lane[o->lane];
		bool first = ln->instance[0] == i;
		if (!first && ln->linked != fo_exec_is_comm(o))
			return fo_fail(FO_EBUG, "lane %s has communication and other operations",
				       fo_lane_name[o->lane]);
		ln->linked = fo_exec_is_comm(o);
		if (!first || !ln->linked)
			continue;
		if (!e->o.links || o->lane == FO_LANE_COMPUTE)
			return fo_fail(FO_EBUG, "%s on lane %s, and no other rank to reach from there",
				       fo_op_info(o->kind)->name, fo_lane_name[o->lane]);
		ln->transfer.part = fo_xmalloc((size_t)e->p->ranks * sizeof *ln->transfer.part);
	}
	return FO_OK;
}

static fo_status open_engine(struct fo_exec *e)
{
	struct fo_exec_cpu *x = e->cpu = fo_xmalloc(sizeof *x);
	pthread_mutex_init(&x->cores, NULL);
	pthread_mutex_init(&x->lock, NULL);
	pthread_condattr_t clock;
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC); /* of fo_now_ns */
	pthread_cond_init(&x->wake, &clock);
	pthread_cond_init(&x->called, &clock);
	pthread_condattr_destroy(&clock);
	assign_lanes(e);
	if (e->o.pace)
		set_pace(e);
	FO_TRY(link_lanes(e));
	x->op = fo_xmalloc((size_t)(e->ops + 1) * sizeof *x->op);
	for (int i = 0; i < e->ops; i++) {
		struct lane *ln = &x->lane[e->op[i]->lane];
		const struct fo_kernel_set *set;
		e->call[i].threads = ln->threads;
		if (!fo_op_has_kernel(e->op[i]->kind))
			continue;
		const struct fo_kernel *k = x->op[i].kernel = fo_kernel_pick(e->o.isa, &e->call[i], &set);
		x->op[i].isa = set->isa;
		size_t ws = k->ws && !e->o.pace ? k->ws(&e->call[i]) : 0;
		if (ws > ln->ws_bytes)
			ln->ws_bytes = ws;
	}
	return FO_OK;
}

static fo_status arena_new(struct fo_exec *e, size_t bytes, void **out)
{
	(void)e;
	return fo_pages_new(bytes, out);
}

static void arena_free(struct fo_exec *e, void *arena, size_t bytes)
{
	(void)e;
	fo_pages_free(arena, bytes);
}

static fo_status start_lanes(struct fo_exec *e)
{
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		struct lane *ln = &e->cpu->lane[l];
		if (ln->ws_bytes)
			FO_TRY(fo_pages_new(ln->ws_bytes, &ln->ws));
		if (l == FO_LANE_COMPUTE || !ln->n || ln->linked)
			continue;
		if (pthread_create(&ln->thread, NULL, lane_thread, ln))
			return fo_fail(FO_ENOMEM, "cannot start the thread of lane %s", fo_lane_name[l]);
		ln->started = true;
	}
	bool linked = false;
	for (int l = 0; l < FO_LANE_COUNT; l++)
		linked |= e->cpu->lane[l].linked;
	if (linked)
		FO_TRY(fo_thread_start(&e->cpu->linker, link_thread, e, "the thread of communication"));
	e->cpu->linked = linked;
	return FO_OK;
}

static void stop(struct fo_exec *e)
{
	struct fo_exec_cpu *x = e->cpu;
	if (!x)
		return;
	pthread_mutex_lock(&x->lock);
	x->quit = true;
	pthread_cond_broadcast(&x->wake);
	pthread_mutex_unlock(&x->lock);
	for (int l = 0; l < FO_LANE_COUNT; l++)
		if (x->lane[l].started)
			pthread_join(x->lane[l].thread, NULL);
	if (x->linked)
		pthread_join(x->linker, NULL);
}

static void close_engine(struct fo_exec *e)
{
	struct fo_exec_cpu *x = e->cpu;
	if (!x)
		return;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		fo_pages_free(x->lane[l].ws, x->lane[l].ws_bytes);
		free(x->lane[l].instance);
		free(x->lane[l].transfer.part);
	}
	free(x->op);
	free(x->pace_ns);
	pthread_cond_destroy(&x->wake);
	pthread_cond_destroy(&x->called);
	pthread_mutex_destroy(&x->lock);
	pthread_mutex_destroy(&x->cores);
	free(x);
}

static void memory(const struct fo_exec *e, struct fo_memory *m)
{
	m->arena = (int64_t)fo_pages_size((size_t)e->u.arena_bytes);
	m->persistent = (int64_t)fo_pages_size((size_t)fo_store_bytes(e->store));
	m->host_arena = e->u.host_arena_bytes ? (int64_t)fo_pages_size((size_t)e->u.host_arena_bytes) : 0;
	int threads = e->cpu->linked;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		threads += e->cpu->lane[l].started;
		m->tables += (int64_t)e->u.n * (int64_t)sizeof *e->cpu->lane[l].instance;
	}
	m->tables += e->cpu->pace_ns ? (int64_t)e->u.n * (int64_t)sizeof *e->cpu->pace_ns : 0;
	/* Those of its lanes, the one that calls it, and the team that this one has. */
	m->tables += (threads + e->o.threads) * STACK_BYTES;
	for (int l = 0; l < FO_LANE_COUNT; l++)
		m->workspace += e->cpu->lane[l].ws_bytes ? (int64_t)fo_pages_size(e->cpu->lane[l].ws_bytes) : 0;
}

static const char *by(const struct fo_exec *e, int op)
{
	const struct prepared *pr = &e->cpu->op[op];
	if (!pr->kernel)
		return NULL;
	return e->o.pace ? "paced" : fo_isa_name[pr->isa];
}

void fo_exec_kernels(const struct fo_exec *e, int count[FO_ISA_COUNT])
{
	memset(count, 0, FO_ISA_COUNT * sizeof *count);
	for (int i = 0; e->cpu && i < e->u.n; i++) {
		const struct prepared *pr = &e->cpu->op[fo_exec_op(e, i)];
		if (pr->kernel && !e->o.pace)
			count[pr->isa]++;
	}
}

const struct fo_exec_engine fo_exec_engine_cpu = {
	.open = open_engine,
	.arena_new = arena_new,
	.host_new = arena_new,
	.start = start_lanes,
	.stop = stop,
	.close = close_engine,
	.arena_free = arena_free,
	.host_free = arena_free,
	.step = step_all,
	.settle = settle,
	.run = run,
	.find = find,
	.memory = memory,
	.by = by,
};
