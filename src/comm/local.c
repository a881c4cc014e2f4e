/* A group of ranks that are threads of one process (local.h).
 *
 * A call is a record that all ranks of the group share. Each rank finds it by counting its own calls: its third call is
 * the third record. A rank that starts leaves its addresses there. When the last one has come, data may move; each rank
 * does its own part when it tests, in up to two parts with a meeting between them:
 *
 *   all-reduce       adds its part of all ranks' input into its own output; then copies the others' parts from theirs
 *   reduce-scatter   adds its part of all ranks' input
 *   all-gather, all-to-all, broadcast, receive   copies
 *
 * A rank is done when all ranks are, for until then another may still read from its memory. In place works because a
 * rank writes only its own part while others read theirs. */
#include "comm/local.h"
#include "comm/sum.h"

#include "base/clock.h"
#include "base/count.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernel/kernel.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* fo_comm_listen; moved NULL: nobody listens. */
struct listener {
	void (*moved)(void *ctx);
	void *ctx;
};

/* What all groups of one job share. */
struct world {
	pthread_mutex_t lock; /* of everything here but the atomics */
	int ends, ranks;      /* communicators that are open */
	struct group *groups;
	bool *moves; /* per rank: room for find_stuck */
	struct fo_comm_local options;
	int64_t *busy_ns;          /* per rank of the world: until when its link is taken */
	_Atomic bool *idle;        /* per rank (fo_comm_idle); changed under the lock */
	struct listener *listener; /* per rank */
	_Atomic bool ended;
	bool stuck;    /* why it ended: ranks wait for each other */
	char why[256]; /* written once, before `ended` */
};

/* A call of all ranks of a group; point-to-point: of two. */
struct op {
	struct op *next;
	int64_t number;       /* of the group's calls; point-to-point: of those from `sender` to `receiver` */
	int sender, receiver; /* -1: collective */
	int members, came, left;
	_Atomic int added, copied;
	_Atomic int64_t over_ns; /* when the links are done; 0: not all ranks have come */
	struct member {
		bool came;
		struct fo_comm_call call;
		int64_t elements; /* of all ranks' parts: `part` may be gone */
	} * member;               /* by rank; point-to-point: the sender, the receiver */
};

struct group {
	struct group *next; /* of the world's */
	struct world *world;
	int ranks, ends;
	bool null;
	int *rank_of;           /* of the world, per rank of the group */
	struct op *op;          /* those that are not over */
	struct fo_arena splits; /* what calls of a split read and write; it stays, for a rank may leave by an error */
	int64_t *sent;          /* calls from one rank to another so far, per pair, by the sender and by the receiver */
};

struct end {
	struct fo_comm base;
	struct group *group;
	int64_t calls;
	uint64_t shake;
	const void **from; /* room for a pointer per rank of the group */
};

static struct end *of(struct fo_comm *c) { return (struct end *)c; }

/* ---- ends of the job ---- */

static int number_of(const struct end *e) { return e->group->rank_of[e->base.rank]; } /* in the world */

/* The world's lock is held, here and in the next. */
static void tell_rank(const struct world *w, int rank)
{
	const struct listener *l = &w->listener[rank];
	if (l->moved)
		l->moved(l->ctx);
}

static void end_locked(struct world *w, const char *why)
{
	if (atomic_load(&w->ended))
		return;
	strncat(w->why, why, sizeof w->why - 1);
	atomic_store(&w->ended, true);
	for (int r = 0; r < w->ranks; r++)
		tell_rank(w, r);
}

static void end_world(struct world *w, const char *why)
{
	pthread_mutex_lock(&w->lock);
	end_locked(w, why);
	pthread_mutex_unlock(&w->lock);
}

static fo_status alive(const struct end *e)
{
	const struct world *w = e->group->world;
	if (!atomic_load(&w->ended))
		return FO_OK;
	return fo_fail(FO_ECOMM, "rank %d of %d: %s", number_of(e), w->ranks, w->why);
}

/* ---- ranks that wait for each other ---- */

static int rank_at(const struct op *o, int place);

/* The first member from `from` on that has not come; -1: all have. */
static int missing(const struct op *o, int from)
{
	while (from < o->members && o->member[from].came)
		from++;
	return from < o->members ? from : -1;
}

/* May a call be over some day, if the ranks in w->moves may go on? */
static bool may_come(const struct world *w, const struct group *g, const struct op *o)
{
	bool may = true;
	for (int m = missing(o, 0); m >= 0; m = missing(o, m + 1))
		may &= w->moves[g->rank_of[rank_at(o, m)]];
	return may;
}

/* Which ranks may go on: those that are not idle, and those that wait in a call which such ranks alone can complete.
 * Ends the world where another one waits. The lock is held, and whoever changes anything here calls it again: a rank
 * says that it is idle after each change, so the last one to say so sees all. */
static void find_stuck(struct world *w)
{
	bool changed = true, stuck = false;
	for (int r = 0; r < w->ranks; r++)
		w->moves[r] = !atomic_load(&w->idle[r]);
	while (changed) {
		changed = stuck = false;
		for (const struct group *g = w->groups; g; g = g->next)
			for (const struct op *o = g->op; o; o = o->next)
				for (int m = 0, may = may_come(w, g, o); m < o->members; m++) {
					bool *moves = &w->moves[g->rank_of[rank_at(o, m)]];
					if (!o->member[m].came || *moves)
						continue;
					changed |= may;
					stuck |= !may;
					*moves = may;
				}
	}
	if (stuck && !atomic_load(&w->ended)) {
		w->stuck = true;
		end_locked(w, "ranks wait for each other");
	}
}

static void idle(struct fo_comm *c, bool is)
{
	struct world *w = of(c)->group->world;
	_Atomic bool *now = &w->idle[number_of(of(c))];
	if (atomic_load(now) == is)
		return;
	pthread_mutex_lock(&w->lock);
	atomic_store(now, is);
	if (is)
		find_stuck(w);
	pthread_mutex_unlock(&w->lock);
}

/* What a rank of the world waits in; NULL: in nothing. */
static const struct op *waits_in(const struct world *w, int rank, const struct group **of, int *member)
{
	for (const struct group *g = w->groups; g; g = g->next)
		for (const struct op *o = g->op; o; o = o->next)
			for (int m = 0; m < o->members && missing(o, 0) >= 0; m++)
				if (o->member[m].came && g->rank_of[rank_at(o, m)] == rank) {
					*of = g;
					*member = m;
					return o;
				}
	return NULL;
}

/* The error of a call that lacks a rank which will not come; FO_OK: it lacks none. */
static fo_status never(const struct end *e, const struct op *o)
{
	struct world *w = e->group->world;
	const struct group *g = NULL;
	char why[128] = "it has nothing more to call";
	int m;
	pthread_mutex_lock(&w->lock);
	const struct group *of = e->group;
	if (missing(o, 0) < 0) /* another call of this rank is the one */
		o = waits_in(w, number_of(e), &of, &m);
	int lacks = o ? of->rank_of[rank_at(o, missing(o, 0))] : -1;
	const struct op *other = lacks < 0 ? NULL : waits_in(w, lacks, &g, &m);
	if (other) {
		const struct fo_comm_call *k = &other->member[m].call;
		snprintf(why, sizeof why, "it waits for rank %d in %s of %lld %s",
			 g->rank_of[rank_at(other, missing(other, 0))], fo_comm_kind_name(k->kind),
			 (long long)other->member[m].elements, fo_dtype_name[k->dtype]);
	}
	pthread_mutex_unlock(&w->lock);
	if (lacks < 0)
		return FO_OK;
	return fo_fail(FO_ECOMM, "rank %d waits for rank %d, which never calls it: %s", number_of(e), lacks, why);
}

static void listen(struct fo_comm *c, void (*moved)(void *ctx), void *ctx)
{
	struct world *w = of(c)->group->world;
	pthread_mutex_lock(&w->lock);
	w->listener[number_of(of(c))] = (struct listener){ moved, ctx };
	pthread_mutex_unlock(&w->lock);
}

/* The other ranks of a call, which may go on with it. The world's lock is held. */
static void tell_others(const struct end *e, const struct op *o)
{
	const struct group *g = e->group;
	for (int m = 0; m < o->members; m++)
		if (rank_at(o, m) != e->base.rank)
			tell_rank(g->world, g->rank_of[rank_at(o, m)]);
}

/* ---- starting ---- */

static bool point_to_point(const struct fo_comm_call *k) { return k->kind == FO_COMM_SEND || k->kind == FO_COMM_RECV; }

/* The record of a call; makes it where this rank is the first. */
static struct op *find(struct group *g, int64_t number, int sender, int receiver)
{
	struct op **o = &g->op;
	while (*o && !((*o)->number == number && (*o)->sender == sender && (*o)->receiver == receiver))
		o = &(*o)->next;
	if (*o)
		return *o;
	*o = fo_xmalloc(sizeof **o);
	(*o)->number = number;
	(*o)->sender = sender;
	(*o)->receiver = receiver;
	(*o)->members = sender < 0 ? g->ranks : 2;
	(*o)->member = fo_xmalloc((size_t)(*o)->members * sizeof *(*o)->member);
	return *o;
}

static int place_of(const struct op *o, int rank)
{
	if (o->sender < 0)
		return rank;
	return rank == o->receiver;
}

static int rank_at(const struct op *o, int place)
{
	if (o->sender < 0)
		return place;
	return place ? o->receiver : o->sender;
}

/* Of the whole call: parts of unlike size together. */
static int64_t elements_of(const struct fo_comm_call *k, int ranks)
{
	int64_t n = k->n;
	for (int r = 0; k->part && r < ranks; r++)
		n += k->part[r];
	return n;
}

/* Do two ranks call the same? Send and receive are a pair. */
static bool agree(const struct op *o, const struct fo_comm_call *a, const struct fo_comm_call *b)
{
	bool same = o->sender >= 0 || (a->kind == b->kind && a->op == b->op && a->peer == b->peer);
	return same && a->n == b->n && a->dtype == b->dtype && !a->part == !b->part && a->accumulate == b->accumulate &&
	       a->narrow == b->narrow;
}

/* A rank's link carries one call after the other, and is idle only where there is none: one that is free does not wait
 * for another. The call is over when the last of its links has carried it; all take as long as the one that carries
 * most. */
static void take_links(struct group *g, struct op *o)
{
	const struct fo_comm_local *option = &g->world->options;
	int64_t now = fo_now_ns(), over = now, most = 0;
	for (int m = 0; m < o->members; m++)
		most = fo_max(most, fo_comm_wire_bytes(&o->member[m].call, rank_at(o, m), g->ranks));
	double transfer = option->bytes_s > 0 ? (double)most / option->bytes_s : 0;
	for (int m = 0; m < o->members; m++) {
		int64_t *busy = &g->world->busy_ns[g->rank_of[rank_at(o, m)]];
		*busy = fo_max(now, *busy) + (int64_t)((option->latency_s + transfer) * 1e9);
		over = fo_max(over, *busy);
	}
	atomic_store(&o->over_ns, over);
}

/* Whom of those that came before this rank calls something else; -1: nobody. */
static int disagrees(const struct op *o, int self, const struct fo_comm_call *k)
{
	for (int m = 0; m < o->members; m++)
		if (m != self && o->member[m].came && !agree(o, &o->member[m].call, k))
			return m;
	return -1;
}

static fo_status disagree(const struct end *e, const struct op *o, int who, const struct fo_comm_call *k)
{
	const struct fo_comm_call *other = &o->member[who].call;
	const struct group *g = e->group;
	return fo_fail(FO_ECOMM, "rank %d calls %s of %lld %s where rank %d calls %s of %lld %s", number_of(e),
		       fo_comm_kind_name(k->kind), (long long)elements_of(k, g->ranks), fo_dtype_name[k->dtype],
		       g->rank_of[o->sender < 0 ? who : k->peer], fo_comm_kind_name(other->kind),
		       (long long)o->member[who].elements, fo_dtype_name[other->dtype]);
}

static fo_status start(struct fo_comm *c, const struct fo_comm_call *k, struct fo_comm_request *r)
{
	struct end *e = of(c);
	struct group *g = e->group;
	FO_TRY(alive(e));
	pthread_mutex_lock(&g->world->lock);
	int sender = -1, receiver = -1;
	int64_t number = e->calls;
	if (point_to_point(k)) {
		bool sends = k->kind == FO_COMM_SEND;
		sender = sends ? c->rank : k->peer;
		receiver = sends ? k->peer : c->rank;
		number = g->sent[2 * (sender * g->ranks + receiver) + !sends]++;
	} else {
		e->calls++;
	}
	struct op *o = find(g, number, sender, receiver);
	int m = place_of(o, c->rank), other = disagrees(o, m, k);
	atomic_store(&g->world->idle[number_of(e)], false);
	fo_status st = other < 0 ? FO_OK : disagree(e, o, other, k);
	o->member[m] = (struct member){ true, *k, elements_of(k, g->ranks) };
	if (++o->came == o->members && other < 0) {
		take_links(g, o);
		tell_others(e, o);
	}
	pthread_mutex_unlock(&g->world->lock);
	if (st != FO_OK)
		end_world(g->world, fo_err_text());
	*r = (struct fo_comm_request){ .state = o };
	return st;
}

/* ---- moving ---- */

/* Adds elements [begin, begin + n) of all ranks' input, in the order of ranks, perhaps to what is there. */
static void add_part(const struct end *e, const struct op *o, const struct fo_comm_call *k, int64_t begin, int64_t n,
		     char *to)
{
	for (int m = 0; m < o->members; m++)
		e->from[m] = (const char *)o->member[m].call.from + (size_t)begin * fo_dtype_bytes(k->dtype);
	fo_comm_reduce(e->from, o->members, n, k, false, to);
}

static void copy(char *to, const char *from, int64_t n, size_t size)
{
	if (n && to != from)
		memcpy(to, from, (size_t)n * size);
}

/* The first part of a call: sums. */
static void add(const struct end *e, const struct op *o, const struct fo_comm_call *k)
{
	int64_t begin, n = fo_comm_part(k, e->base.rank, e->base.ranks, &begin);
	if (k->kind == FO_COMM_ALL_REDUCE)
		add_part(e, o, k, begin, n, (char *)k->to + (size_t)begin * fo_dtype_bytes(k->dtype));
	else if (k->kind == FO_COMM_REDUCE_SCATTER)
		add_part(e, o, k, begin, n, k->to);
}

/* The second: what this rank receives from others. */
static void receive(const struct end *e, const struct op *o, const struct fo_comm_call *k)
{
	size_t size = fo_dtype_bytes(k->dtype);
	int rank = e->base.rank, ranks = e->base.ranks;
	int64_t begin, own, n;
	fo_comm_part(k, rank, ranks, &own);
	switch (k->kind) {
	case FO_COMM_ALL_REDUCE:
		for (int m = 0; m < ranks; m++) {
			n = fo_comm_part(k, m, ranks, &begin);
			size_t at = (size_t)begin * size;
			copy((char *)k->to + at, (const char *)o->member[m].call.to + at, n, size);
		}
		break;
	case FO_COMM_ALL_GATHER:
		for (int m = 0; m < ranks; m++) {
			n = fo_comm_part(k, m, ranks, &begin);
			copy((char *)k->to + (size_t)begin * size, o->member[m].call.from, n, size);
		}
		break;
	case FO_COMM_ALL_TO_ALL:
		for (int m = 0; m < ranks; m++) {
			n = fo_comm_part(k, m, ranks, &begin);
			copy((char *)k->to + (size_t)begin * size,
			     (const char *)o->member[m].call.from + (size_t)own * size, n, size);
		}
		break;
	case FO_COMM_BROADCAST: copy(k->to, o->member[k->peer].call.from, k->n, size); break;
	case FO_COMM_SHIFT: copy(k->to, o->member[(rank + ranks - 1) % ranks].call.from, k->n, size); break;
	case FO_COMM_RECV: copy(k->to, o->member[0].call.from, k->n, size); break;
	default: break;
	}
}

/* A delay at random, seldom a long one. */
static void shake(struct end *e)
{
	if (!e->shake)
		return;
	e->shake = fo_rng_u64(e->shake, 0);
	if (e->shake % 4)
		return;
	struct timespec t = { .tv_nsec = (long)(e->shake >> 8 & (e->shake % 64 ? 0x3fff : 0x1fffff)) };
	nanosleep(&t, NULL);
}

/* The last rank to leave frees the record. */
static void leave(struct end *e, struct op *o)
{
	struct group *g = e->group;
	pthread_mutex_lock(&g->world->lock);
	atomic_store(&g->world->idle[number_of(e)], false); /* what waited for the call may go on */
	bool last = ++o->left == o->members;
	for (struct op **p = &g->op; last && *p; p = &(*p)->next)
		if (*p == o) {
			*p = o->next;
			break;
		}
	pthread_mutex_unlock(&g->world->lock);
	if (last) {
		free(o->member);
		free(o);
	}
}

/* Parts of a request. */
enum { CAME, ADDED, COPIED };

/* Counts this rank's part of a call; the last one tells the others. */
static void count_part(const struct end *e, const struct op *o, _Atomic int *count)
{
	if (atomic_fetch_add(count, 1) + 1 < o->members)
		return;
	pthread_mutex_lock(&e->group->world->lock);
	tell_others(e, o);
	pthread_mutex_unlock(&e->group->world->lock);
}

static fo_status test(struct fo_comm *c, struct fo_comm_request *r, bool *done)
{
	struct end *e = of(c);
	struct op *o = r->state;
	*done = false;
	if (atomic_load(&e->group->world->ended) && e->group->world->stuck)
		FO_TRY(never(e, o));
	FO_TRY(alive(e));
	shake(e);
	int64_t over = atomic_load(&o->over_ns);
	if (!over)
		return FO_OK;
	const struct fo_comm_call *k = &o->member[place_of(o, c->rank)].call;
	const bool null = e->group->null;
	if (r->phase == CAME) {
		if (!null)
			add(e, o, k);
		count_part(e, o, &o->added);
		r->phase = ADDED;
	}
	/* Only an all-reduce copies what others have added. */
	bool meets = k->kind == FO_COMM_ALL_REDUCE;
	if (r->phase == ADDED && (!meets || atomic_load(&o->added) == o->members)) {
		if (!null)
			receive(e, o, k);
		c->received[k->kind] += fo_comm_wire_bytes(k, c->rank, c->ranks);
		count_part(e, o, &o->copied);
		r->phase = COPIED;
	}
	if (r->phase == COPIED && atomic_load(&o->copied) == o->members)
		r->until_ns = over;
	if (r->phase != COPIED || atomic_load(&o->copied) < o->members || fo_now_ns() < over)
		return FO_OK;
	leave(e, o);
	*r = (struct fo_comm_request){ 0 };
	*done = true;
	return FO_OK;
}

/* ---- ends, groups ---- */

static fo_status check(struct fo_comm *c) { return alive(of(c)); }
static void abort_group(struct fo_comm *c)
{
	char why[96];
	snprintf(why, sizeof why, "rank %d ended the job", number_of(of(c)));
	end_world(of(c)->group->world, why);
}

static void free_group(struct group *g)
{
	for (struct op *o = g->op, *next; o; o = next) {
		next = o->next;
		free(o->member);
		free(o);
	}
	fo_arena_fini(&g->splits);
	free(g->rank_of);
	free(g->sent);
	free(g);
}

static void close_end(struct fo_comm *c)
{
	struct end *e = of(c);
	struct group *g = e->group;
	struct world *w = g->world;
	pthread_mutex_lock(&w->lock);
	bool last_end = --g->ends == 0, last = --w->ends == 0;
	for (struct group **p = &w->groups; last_end && *p; p = &(*p)->next)
		if (*p == g) {
			*p = g->next;
			break;
		}
	pthread_mutex_unlock(&w->lock);
	if (last_end)
		free_group(g);
	if (last) {
		pthread_mutex_destroy(&w->lock);
		free(w->busy_ns);
		free(w->idle);
		free(w->listener);
		free(w->moves);
		free(w);
	}
	free(e->from);
	free(e);
}

static fo_status split(struct fo_comm *c, int colour, struct fo_comm **out);
static const struct fo_comm_transport transport = {
	.name = "threads",
	.accumulates = true,
	.narrows = true,
	.start = start,
	.test = test,
	.split = split,
	.check = check,
	.idle = idle,
	.listen = listen,
	.abort = abort_group,
	.close = close_end,
};

static struct group *new_group(struct world *w, int ranks)
{
	struct group *g = fo_xmalloc(sizeof *g);
	*g = (struct group){ .world = w, .ranks = ranks };
	g->rank_of = fo_xmalloc((size_t)ranks * sizeof *g->rank_of);
	g->sent = fo_xmalloc(2 * (size_t)ranks * (size_t)ranks * sizeof *g->sent);
	pthread_mutex_lock(&w->lock);
	g->next = w->groups;
	w->groups = g;
	pthread_mutex_unlock(&w->lock);
	return g;
}

/* The world's lock is held, or nobody else knows the group yet. */
static struct fo_comm *new_end(struct group *g, int rank)
{
	struct end *e = fo_xmalloc(sizeof *e);
	uint64_t seed = g->world->options.shake;
	*e = (struct end){ .base = { .transport = &transport, .rank = rank, .ranks = g->ranks }, .group = g };
	e->from = fo_xmalloc((size_t)g->ranks * sizeof *e->from);
	if (seed)
		e->shake = fo_rng_u64(seed, (uint64_t)g->rank_of[rank]);
	g->ends++;
	g->world->ends++;
	return &e->base;
}

/* Every rank learns every rank's colour; the first of a colour makes the group and tells the others where it is. */
static fo_status split(struct fo_comm *c, int colour, struct fo_comm **out)
{
	struct end *e = of(c);
	int ranks = c->ranks, place = 0, count = 0, first = -1;
	pthread_mutex_lock(&e->group->world->lock);
	int32_t *colours = fo_arena_alloc(&e->group->splits, (size_t)ranks * sizeof *colours);
	struct group **made = fo_arena_alloc(&e->group->splits, (size_t)ranks * sizeof *made);
	pthread_mutex_unlock(&e->group->world->lock);
	colours[c->rank] = colour;
	const struct fo_comm_call tell = {
		.kind = FO_COMM_ALL_GATHER, .from = &colours[c->rank], .to = colours, .n = 1, .dtype = FO_I32
	};
	fo_status st = fo_comm_call(c, &tell);
	for (int r = 0; st == FO_OK && r < ranks; r++) {
		if (colours[r] != colour)
			continue;
		if (first < 0)
			first = r;
		place += r < c->rank;
		count++;
	}
	if (st == FO_OK && first == c->rank) {
		made[first] = new_group(e->group->world, count);
		made[first]->null = e->group->world->options.null;
		for (int r = 0, n = 0; r < ranks; r++)
			if (colours[r] == colour)
				made[first]->rank_of[n++] = e->group->rank_of[r];
	}
	if (st == FO_OK)
		st = fo_comm_call(c, &(struct fo_comm_call){ .kind = FO_COMM_ALL_GATHER,
							     .from = &made[c->rank],
							     .to = made,
							     .n = sizeof *made / 4,
							     .dtype = FO_I32 });
	if (st == FO_OK) {
		pthread_mutex_lock(&e->group->world->lock);
		*out = new_end(made[first], place);
		pthread_mutex_unlock(&e->group->world->lock);
		/* Nobody closes a group before all of it have come. */
		st = fo_comm_call(c, &tell);
	}
	return st;
}

fo_status fo_comm_local_open(int ranks, const struct fo_comm_local *options, struct fo_comm **out)
{
	if (ranks < 1 || ranks > FO_COMM_LOCAL_MOST)
		return fo_fail(FO_EARG, "%d ranks in one process: expected 1 to %d", ranks, FO_COMM_LOCAL_MOST);
	struct world *w = fo_xmalloc(sizeof *w);
	pthread_mutex_init(&w->lock, NULL);
	if (options)
		w->options = *options;
	w->ranks = ranks;
	w->busy_ns = fo_xmalloc((size_t)ranks * sizeof *w->busy_ns);
	w->idle = fo_xmalloc((size_t)ranks * sizeof *w->idle);
	w->listener = fo_xmalloc((size_t)ranks * sizeof *w->listener);
	w->moves = fo_xmalloc((size_t)ranks * sizeof *w->moves);
	struct group *g = new_group(w, ranks);
	for (int r = 0; r < ranks; r++)
		g->rank_of[r] = r;
	for (int r = 0; r < ranks; r++)
		out[r] = new_end(g, r);
	return FO_OK;
}
