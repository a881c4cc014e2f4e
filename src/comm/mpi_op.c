/* A call between processes, in messages (mpi.h).
 *
 * Each rank's part of a call goes in pieces. Up to DEPTH pieces are under way at once, each in a slot of its own,
 * and a piece has up to two rounds of messages:
 *
 *   all-reduce       each part goes to its rank, which adds up in the order of ranks; the sum goes to all
 *   reduce-scatter   the first round alone
 *   all-gather, all-to-all, send, receive   one round
 *   broadcast        from the rank above in a binomial tree, then to those below
 *
 * In place works: a rank writes only its own part while it sends others', and what it takes in the second round
 * replaces what has left in the first.
 *
 * Before its first piece a rank says what it calls to one that needs it: to the next rank, where all need all, along
 * the tree, to the receiver. Calls that are not the same are seen even where their bytes would fit.
 *
 * Messages are told apart by their tags: the call's number (of calls of all ranks, or of those from one rank to
 * another), slot and round. Messages of one tag between two ranks are sent and received in one order, that of
 * pieces. */
#include "comm/mpi_int.h"
#include "comm/sum.h"

#include "base/clock.h"
#include "base/count.h"
#include "base/mem.h"
#include "base/rng.h"
#include "program/program.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fo_status fo_mpi_failed(const struct fo_mpi_job *job, int error, const char *doing)
{
	char text[512];
	job->mpi->text(error, text, sizeof text);
	return fo_fail(FO_ECOMM, "rank %d of %d: %s: MPI says \"%s\"", job->world.rank, job->world.ranks, doing, text);
}

/* Bytes of memory for pieces of a reduction, over all slots; at least LEAST a piece, for a message has its price. What
 * needs at most SMALL has memory of its own, so that any number of small calls run at once. Measured with bench_mpi. */
enum { DEPTH = 4, PLACE = 8 << 20, LEAST = 16 << 10, SMALL = 64 << 10, PLACES = FO_MPI_PLACES };
/* Bytes of a piece that is only moved. */
enum { MOVE = 1 << 20 };

enum { FIRST, SECOND, OVER }; /* rounds of a slot */
/* Tags of a call: of each slot and round, and of what is said. */
enum { SAYS = 2 * DEPTH, TAGS };

/* What a rank calls, as another one sees it: a message and its receipt are alike. */
struct said {
	uint8_t known, kind, op, dtype, accumulate, narrow, zero[2]; /* no gaps: bytes are compared */
	int32_t peer, zeros;
	int64_t n;      /* elements of all parts */
	uint64_t parts; /* hash of their places */
};
struct slot {
	int64_t piece;
	int round;
	struct fo_mpi_batch *batch;
	char *memory; /* of a reduction: a piece per rank */
};
struct fo_mpi_op {
	struct fo_mpi_op *next; /* those that wait for a place, or are spare */
	struct fo_mpi_op *live; /* those that are not over */
	struct fo_comm_call call;
	struct said own, other; /* what this rank calls; and another one, `from_rank` of the group */
	int from_rank;
	int tag;
	int64_t piece, pieces; /* elements of a piece; pieces of the largest part */
	int64_t *begin;        /* of each rank's part, in elements; ranks + 1 of them */
	int slots, over;
	struct slot slot[DEPTH];
	int64_t wire; /* bytes of an element that travels */
	size_t need;  /* bytes for pieces */
	char *memory; /* of those; NULL: it waits for a place, or needs none */
	size_t room;  /* of memory of its own */
	char *own_memory;
	bool waits;        /* for a place */
	int64_t bytes;     /* that this rank receives */
	const void **from; /* room for a pointer per rank */
};

static bool reduces(const struct fo_comm_call *k)
{
	return k->kind == FO_COMM_ALL_REDUCE || k->kind == FO_COMM_REDUCE_SCATTER;
}
static bool between_two(const struct fo_comm_call *k) { return k->kind == FO_COMM_SEND || k->kind == FO_COMM_RECV; }

static size_t place_bytes(int ranks) { return (size_t)fo_max(PLACE, (int64_t)DEPTH * ranks * LEAST); }
int64_t fo_comm_mpi_reserve(int ranks) { return PLACES * (int64_t)place_bytes(ranks); }

/* ---- pieces ---- */

/* Elements of piece `piece` of rank r's part, and where they are, from the beginning of all parts. */
static int64_t piece_of(const struct fo_mpi_op *o, int64_t piece, int r, int64_t *at)
{
	*at = o->begin[r] + piece * o->piece;
	return fo_clamp(o->begin[r + 1] - *at, 0, o->piece);
}

static char *address(const void *memory, int64_t element, int dtype)
{
	return (char *)((uintptr_t)memory + (size_t)element * fo_dtype_bytes(dtype));
}

/* Where a piece of a reduction comes to from rank `rank`. Where numbers are narrowed, what goes to it stands behind all
 * of these. */
static char *place_for(const struct fo_mpi_op *o, const struct slot *s, int rank)
{
	return s->memory + (size_t)rank * (size_t)o->piece * (size_t)o->wire;
}

/* n elements of `from` as they travel, packed for rank `rank` where they are narrowed. */
static const void *wire_form(const struct fo_mpi_end *e, const struct fo_mpi_op *o, const struct slot *s, int rank,
			     const void *from, int64_t n)
{
	if (!o->call.narrow)
		return from;
	char *to = place_for(o, s, e->base.ranks + rank);
	fo_comm_pack(from, n, (uint16_t *)(void *)to);
	return to;
}

/* ---- messages ---- */

static int64_t elements(const struct fo_mpi_end *e, const struct fo_mpi_op *o)
{
	const bool whole = between_two(&o->call) || o->call.kind == FO_COMM_BROADCAST || o->call.kind == FO_COMM_SHIFT;
	return whole ? o->call.n : o->begin[e->base.ranks];
}

/* What a message belongs to, for a sentence about it. */
static void describe(const struct fo_mpi_end *e, const struct fo_mpi_op *o, char *out, size_t size)
{
	snprintf(out, size, "%s of %lld %s", fo_comm_kind_name(o->call.kind), (long long)elements(e, o),
		 fo_dtype_name[o->call.dtype]);
}

/* FO_OK: the other rank has said nothing yet, or the same. */
static fo_status compare(const struct fo_mpi_end *e, const struct fo_mpi_op *o)
{
	const struct said *a = &o->own, *b = &o->other;
	if (!b->known || !memcmp(a, b, sizeof *a))
		return FO_OK;
	enum fo_comm_kind theirs = b->kind < FO_COMM_KINDS ? (enum fo_comm_kind)b->kind : FO_COMM_KINDS - 1;
	if (theirs == FO_COMM_RECV && between_two(&o->call)) /* a pair of both */
		theirs = FO_COMM_SEND;
	const int rank = e->job->world.rank, peer = e->rank_of[o->from_rank];
	return fo_fail(FO_ECOMM, "rank %d calls %s of %lld %s where rank %d calls %s of %lld %s", rank,
		       fo_comm_kind_name(o->call.kind), (long long)a->n, fo_dtype_name[o->call.dtype], peer,
		       fo_comm_kind_name(theirs), (long long)b->n,
		       b->dtype < FO_DTYPE_COUNT ? fo_dtype_name[b->dtype] : "(unknown)");
}

static fo_status explain(const struct fo_mpi_end *e, const struct fo_mpi_op *o, int error,
			 const struct fo_mpi_fault *fault)
{
	char call[96], doing[192];
	FO_TRY(compare(e, o)); /* what was said came before */
	describe(e, o, call, sizeof call);
	const int peer = fault && fault->peer >= 0 ? e->rank_of[fault->peer] : -1;
	if (!error)
		return fo_fail(
			FO_ECOMM,
			"rank %d of %d: %s: rank %d sent %lld bytes where %lld were expected: it calls something "
			"else",
			e->job->world.rank, e->job->world.ranks, call, peer, (long long)fault->got,
			(long long)fault->expected);
	if (peer >= 0)
		snprintf(doing, sizeof doing, "%s with rank %d", call, peer);
	else
		snprintf(doing, sizeof doing, "%s", call);
	return fo_mpi_failed(e->job, error, doing);
}

static int tag_of(const struct fo_mpi_op *o, const struct slot *s)
{
	/* What a rank sends down in its second round is the first of those below. */
	const int round = o->call.kind == FO_COMM_BROADCAST ? FIRST : s->round;
	return o->tag + (int)(s - o->slot) * 2 + round;
}

static fo_status send(struct fo_mpi_end *e, struct fo_mpi_op *o, struct slot *s, int to, const void *memory, int64_t n)
{
	const int64_t bytes = n * o->wire;
	int error = n ? e->job->mpi->send(s->batch, e->comm, memory, bytes, to, tag_of(o, s)) : 0;
	return error ? explain(e, o, error, &(struct fo_mpi_fault){ .peer = to }) : FO_OK;
}

static fo_status receive(struct fo_mpi_end *e, struct fo_mpi_op *o, struct slot *s, int from, void *memory, int64_t n)
{
	const int64_t bytes = n * o->wire;
	int error = n ? e->job->mpi->receive(s->batch, e->comm, memory, bytes, from, tag_of(o, s)) : 0;
	return error ? explain(e, o, error, &(struct fo_mpi_fault){ .peer = from }) : FO_OK;
}

/* The record of what all say. */
static void note_own(const struct fo_mpi_end *e, struct fo_mpi_op *o)
{
	const struct fo_comm_call *k = &o->call;
	const bool sum = reduces(k);
	memset(&o->own, 0, sizeof o->own);
	memset(&o->other, 0, sizeof o->other);
	o->own.known = 1;
	o->own.kind = (uint8_t)(k->kind == FO_COMM_SEND ? FO_COMM_RECV : k->kind);
	o->own.op = (uint8_t)(sum ? k->op : 0);
	o->own.dtype = (uint8_t)k->dtype;
	o->own.accumulate = k->accumulate;
	o->own.narrow = k->narrow;
	o->own.peer = k->kind == FO_COMM_BROADCAST ? k->peer : 0;
	o->own.n = elements(e, o);
	for (int r = 0; r < e->base.ranks && !between_two(k); r++)
		o->own.parts = fo_rng_u64(o->own.parts, (uint64_t)o->begin[r + 1]);
}

static fo_status say(struct fo_mpi_end *e, struct fo_mpi_op *o, struct slot *s, int to)
{
	const int error = e->job->mpi->send(s->batch, e->comm, &o->own, sizeof o->own, to, o->tag + SAYS);
	return error ? explain(e, o, error, &(struct fo_mpi_fault){ .peer = to }) : FO_OK;
}

static fo_status hear(struct fo_mpi_end *e, struct fo_mpi_op *o, struct slot *s, int from)
{
	const int error = e->job->mpi->receive(s->batch, e->comm, &o->other, sizeof o->other, from, o->tag + SAYS);
	o->from_rank = from;
	return error ? explain(e, o, error, &(struct fo_mpi_fault){ .peer = from }) : FO_OK;
}

_Static_assert(sizeof(struct said) == 32, "no gaps");

/* Where all need all, and between two. The tree has its own way. */
static fo_status say_what(struct fo_mpi_end *e, struct fo_mpi_op *o, struct slot *s)
{
	const int rank = e->base.rank, ranks = e->base.ranks;
	switch (o->call.kind) {
	case FO_COMM_SEND: return say(e, o, s, o->call.peer);
	case FO_COMM_RECV: return hear(e, o, s, o->call.peer);
	case FO_COMM_BROADCAST: return FO_OK;
	default: break;
	}
	if (ranks == 1)
		return FO_OK;
	FO_TRY(hear(e, o, s, (rank + ranks - 1) % ranks));
	return say(e, o, s, (rank + 1) % ranks);
}

/* Each rank's piece of `from` goes to it; those that come go into the slot's memory. */
static fo_status scatter(struct fo_mpi_end *e, struct fo_mpi_op *o, struct slot *s)
{
	const int rank = e->base.rank, ranks = e->base.ranks, dtype = o->call.dtype;
	int64_t at, own = piece_of(o, s->piece, rank, &at);
	for (int i = 1; i < ranks; i++)
		FO_TRY(receive(e, o, s, (rank + ranks - i) % ranks, place_for(o, s, (rank + ranks - i) % ranks), own));
	for (int i = 1; i < ranks; i++) {
		const int to = (rank + i) % ranks;
		const int64_t n = piece_of(o, s->piece, to, &at);
		const void *piece = wire_form(e, o, s, to, address(o->call.from, at, dtype), n);
		FO_TRY(send(e, o, s, to, piece, n));
	}
	return FO_OK;
}

/* This rank's piece, at `own`, goes to all, theirs into their places in `to`. */
static fo_status gather(struct fo_mpi_end *e, struct fo_mpi_op *o, struct slot *s, const void *own)
{
	const int rank = e->base.rank, ranks = e->base.ranks, dtype = o->call.dtype;
	int64_t at, n;
	for (int i = 1; i < ranks; i++) {
		const int from = (rank + ranks - i) % ranks;
		n = piece_of(o, s->piece, from, &at);
		char *to = o->call.narrow ? place_for(o, s, from) : address(o->call.to, at, dtype);
		FO_TRY(receive(e, o, s, from, to, n));
	}
	n = piece_of(o, s->piece, rank, &at);
	own = wire_form(e, o, s, rank, own, n);
	for (int i = 1; i < ranks; i++)
		FO_TRY(send(e, o, s, (rank + i) % ranks, own, n));
	return FO_OK;
}

static fo_status exchange(struct fo_mpi_end *e, struct fo_mpi_op *o, struct slot *s)
{
	const int rank = e->base.rank, ranks = e->base.ranks, dtype = o->call.dtype;
	int64_t at, n;
	for (int i = 1; i < ranks; i++) {
		const int from = (rank + ranks - i) % ranks;
		n = piece_of(o, s->piece, from, &at);
		FO_TRY(receive(e, o, s, from, address(o->call.to, at, dtype), n));
	}
	for (int i = 1; i < ranks; i++) {
		const int to = (rank + i) % ranks;
		n = piece_of(o, s->piece, to, &at);
		FO_TRY(send(e, o, s, to, address(o->call.from, at, dtype), n));
	}
	return FO_OK;
}

static fo_status hand_on(struct fo_mpi_end *e, struct fo_mpi_op *o, struct slot *s)
{
	const int rank = e->base.rank, ranks = e->base.ranks;
	const int64_t at = s->piece * o->piece, n = fo_clamp(o->call.n - at, 0, o->piece);
	if (ranks == 1)
		return FO_OK;
	FO_TRY(receive(e, o, s, (rank + ranks - 1) % ranks, address(o->call.to, at, o->call.dtype), n));
	return send(e, o, s, (rank + 1) % ranks, address(o->call.from, at, o->call.dtype), n);
}

/* The binomial tree below `root`: ranks are counted from it, and a rank's lowest bit that is set leads to the one
 * above. */
static fo_status descend(struct fo_mpi_end *e, struct fo_mpi_op *o, struct slot *s)
{
	const int ranks = e->base.ranks, root = o->call.peer, mine = (e->base.rank + ranks - root) % ranks;
	const bool first = s->round == FIRST;
	int64_t at = s->piece * o->piece, n = fo_clamp(o->call.n - at, 0, o->piece);
	char *here = address(mine ? o->call.to : o->call.from, at, o->call.dtype);
	int bit = 1;
	while (bit < ranks && !(mine & bit))
		bit *= 2;
	if (first && mine && !s->piece)
		FO_TRY(hear(e, o, s, (mine - bit + root) % ranks));
	if (first)
		return mine ? receive(e, o, s, (mine - bit + root) % ranks, here, n) : FO_OK;
	while (bit /= 2) {
		if (mine + bit >= ranks)
			continue;
		if (!s->piece)
			FO_TRY(say(e, o, s, (mine + bit + root) % ranks));
		FO_TRY(send(e, o, s, (mine + bit + root) % ranks, here, n));
	}
	return FO_OK;
}

/* ---- rounds ---- */

static fo_status begin_round(struct fo_mpi_end *e, struct fo_mpi_op *o, struct slot *s)
{
	const struct fo_comm_call *k = &o->call;
	int64_t at = s->piece * o->piece;
	if (!s->piece && s->round == FIRST)
		FO_TRY(say_what(e, o, s));
	switch (k->kind) {
	case FO_COMM_REDUCE_SCATTER: return scatter(e, o, s);
	case FO_COMM_ALL_REDUCE:
		if (s->round == FIRST)
			return scatter(e, o, s);
		piece_of(o, s->piece, e->base.rank, &at);
		return gather(e, o, s, address(k->to, at, k->dtype));
	case FO_COMM_ALL_GATHER: return gather(e, o, s, address(k->from, at, k->dtype));
	case FO_COMM_ALL_TO_ALL: return exchange(e, o, s);
	case FO_COMM_BROADCAST: return descend(e, o, s);
	case FO_COMM_SHIFT: return hand_on(e, o, s);
	case FO_COMM_SEND:
		return send(e, o, s, k->peer, address(k->from, at, k->dtype), fo_clamp(k->n - at, 0, o->piece));
	case FO_COMM_RECV:
		return receive(e, o, s, k->peer, address(k->to, at, k->dtype), fo_clamp(k->n - at, 0, o->piece));
	case FO_COMM_KINDS: break;
	}
	return FO_OK;
}

/* Adds up what came. */
static void add(const struct fo_mpi_end *e, struct fo_mpi_op *o, const struct slot *s)
{
	const struct fo_comm_call *k = &o->call;
	const int rank = e->base.rank, ranks = e->base.ranks;
	int64_t at, n = piece_of(o, s->piece, rank, &at);
	for (int r = 0; r < ranks; r++)
		o->from[r] = place_for(o, s, r);
	o->from[rank] = wire_form(e, o, s, rank, address(k->from, at, k->dtype), n);
	char *to = address(k->to, k->kind == FO_COMM_ALL_REDUCE ? at : s->piece * o->piece, k->dtype);
	fo_comm_reduce(o->from, ranks, n, k, k->narrow, to);
}

/* Sums of others that came as bf16. */
static void widen(const struct fo_mpi_end *e, const struct fo_mpi_op *o, const struct slot *s)
{
	for (int r = 0; r < e->base.ranks; r++) {
		int64_t at, n = piece_of(o, s->piece, r, &at);
		float *to = (float *)(void *)address(o->call.to, at, o->call.dtype);
		if (r != e->base.rank)
			fo_comm_unpack((const uint16_t *)(const void *)place_for(o, s, r), n, to);
	}
}

/* Goes on with a slot until its messages are not over. */
static fo_status drive(struct fo_mpi_end *e, struct fo_mpi_op *o, struct slot *s, bool *moved)
{
	const bool two = o->call.kind == FO_COMM_ALL_REDUCE || o->call.kind == FO_COMM_BROADCAST;
	while (s->round != OVER) {
		struct fo_mpi_fault fault;
		bool over;
		int error = e->job->mpi->test(s->batch, &over, &fault);
		if (error || (fault.peer >= 0 && !over))
			return explain(e, o, error, &fault);
		if (!over)
			return FO_OK;
		*moved = true;
		if (s->round == FIRST && !s->piece)
			FO_TRY(compare(e, o));
		if (s->round == FIRST && reduces(&o->call))
			add(e, o, s);
		if (s->round == SECOND && o->call.narrow)
			widen(e, o, s);
		if (s->round == FIRST && two) {
			s->round = SECOND;
		} else {
			s->piece += DEPTH;
			s->round = s->piece < o->pieces ? FIRST : OVER;
			o->over += s->round == OVER;
		}
		if (s->round != OVER)
			FO_TRY(begin_round(e, o, s));
	}
	return FO_OK;
}

/* Does what can be done by now. A place is free as soon as its call is over. */
static fo_status drive_all(struct fo_mpi_end *e, struct fo_mpi_op *o, bool *moved)
{
	for (int i = 0; i < o->slots; i++)
		FO_TRY(drive(e, o, &o->slot[i], moved));
	for (int i = 0; i < PLACES; i++)
		if (e->holder[i] == o && o->over == o->slots)
			e->holder[i] = NULL;
	return FO_OK;
}

/* ---- records ---- */

static void op_free(const struct fo_mpi_end *e, struct fo_mpi_op *o)
{
	for (int i = 0; i < DEPTH; i++)
		e->job->mpi->batch_free(o->slot[i].batch);
	free(o->begin);
	free(o->from);
	free(o->own_memory);
	free(o);
}

/* Is MPI done with what a call has under way? An error or a cut message is an end, too. */
static bool is_still(const struct fo_mpi_end *e, struct fo_mpi_op *o)
{
	bool still = true;
	for (int i = 0; i < o->slots && !o->waits; i++) {
		struct fo_mpi_fault fault = { .peer = -1 };
		bool over = false;
		if (o->slot[i].round == OVER || !o->slot[i].batch)
			continue;
		const int error = e->job->mpi->test(o->slot[i].batch, &over, &fault);
		still &= over || error || fault.peer >= 0;
	}
	return still;
}

void fo_mpi_end_drain(struct fo_mpi_end *e, int64_t until_ns)
{
	bool still = false;
	for (struct fo_mpi_op *o = e->live; o; o = o->live)
		for (int i = 0; i < o->slots && !o->waits && !e->drained; i++)
			if (o->slot[i].round != OVER && o->slot[i].batch)
				e->job->mpi->cancel(o->slot[i].batch);
	e->drained = true;
	while (!still) {
		still = true;
		for (struct fo_mpi_op **p = &e->live; *p;) {
			struct fo_mpi_op *o = *p;
			if (!is_still(e, o)) {
				still = false;
				p = &o->live;
				continue;
			}
			for (int i = 0; i < PLACES; i++)
				if (e->holder[i] == o)
					e->holder[i] = NULL;
			*p = o->live;
			o->next = e->spare;
			e->spare = o;
		}
		if (fo_now_ns() > until_ns)
			break;
		if (!still)
			sched_yield();
	}
	e->first = NULL;
}

void fo_mpi_end_free(struct fo_mpi_end *e)
{
	for (struct fo_mpi_op *o = e->spare, *next; o; o = next) {
		next = o->next;
		op_free(e, o);
	}
	for (int i = 0; i < PLACES; i++)
		if (!e->holder[i]) /* else MPI may still use it, and the call's record: a rank hangs */
			free(e->place[i]);
	pthread_mutex_destroy(&e->lock);
	free(e->sent);
	free(e->got);
	free(e->rank_of);
	free(e);
}

static struct fo_mpi_op *take_record(struct fo_mpi_end *e)
{
	const size_t ranks = (size_t)e->base.ranks;
	struct fo_mpi_op *o = e->spare;
	if (o) {
		e->spare = o->next;
		return o;
	}
	o = fo_xmalloc(sizeof *o);
	o->begin = fo_xmalloc((ranks + 1) * sizeof *o->begin);
	o->from = fo_xmalloc(ranks * sizeof *o->from);
	return o;
}

static void forget(struct fo_mpi_end *e, const struct fo_mpi_op *o)
{
	struct fo_mpi_op **p = &e->live;
	while (*p && *p != o)
		p = &(*p)->live;
	if (*p)
		*p = o->live;
}

/* ---- calls ---- */

/* Into pieces of at most so many bytes; most: elements of the largest part. */
static void cut(struct fo_mpi_op *o, int64_t most, int64_t bytes, int64_t size)
{
	o->piece = fo_max(1, bytes / size);
	o->pieces = (most + o->piece - 1) / o->piece;
	o->piece = fo_min(o->piece, most);
	o->slots = (int)fo_min(o->pieces, DEPTH);
}

static int64_t piece_bytes(int ranks) { return (int64_t)place_bytes(ranks) / (DEPTH * ranks); }

/* Each rank's part, and how large pieces are. */
static void divide(struct fo_mpi_end *e, struct fo_mpi_op *o)
{
	const struct fo_comm_call *k = &o->call;
	const int ranks = e->base.ranks;
	const int64_t size = (int64_t)fo_dtype_bytes(k->dtype), asked = e->job->options.piece;
	int64_t most = k->n, bytes = MOVE;
	if (k->kind == FO_COMM_ALL_REDUCE || k->part)
		most = 0;
	for (int r = 0; r < ranks; r++) {
		int64_t n = k->part ? k->part[r] : k->n;
		if (k->kind == FO_COMM_ALL_REDUCE)
			n = k->n * (r + 1) / ranks - o->begin[r];
		o->begin[r + 1] = o->begin[r] + n;
		most = fo_max(most, n);
	}
	o->wire = k->narrow ? (int64_t)fo_dtype_bytes(FO_BF16) : size;
	if (reduces(k))
		bytes = piece_bytes(ranks);
	if (asked)
		bytes = fo_min(bytes, asked);
	cut(o, most, bytes, size);
	o->need = reduces(k) ? (size_t)o->slots * (size_t)ranks * (size_t)o->piece * (size_t)size : 0;
}

int64_t fo_comm_mpi_touches(int64_t elements, size_t size, int ranks)
{
	struct fo_mpi_op o = { 0 };
	cut(&o, (elements + ranks - 1) / ranks, piece_bytes(ranks), (int64_t)size);
	const int64_t need = o.slots * ranks * o.piece * (int64_t)size;
	return need > SMALL ? PLACES * need : 0;
}

static int next_tag(struct fo_mpi_end *e, const struct fo_comm_call *k)
{
	const int64_t each = TAGS, numbers = ((int64_t)e->job->world.tag_most + 1) / (2 * each);
	int64_t *count = &e->calls;
	if (k->kind == FO_COMM_SEND)
		count = &e->sent[k->peer];
	else if (k->kind == FO_COMM_RECV)
		count = &e->got[k->peer];
	return (int)(((*count)++ % numbers * 2 + between_two(k)) * each);
}

/* What each rank has from itself. */
static void copy_own(const struct fo_mpi_end *e, const struct fo_mpi_op *o)
{
	const struct fo_comm_call *k = &o->call;
	const int rank = e->base.rank;
	int64_t n = o->begin[rank + 1] - o->begin[rank], at = o->begin[rank];
	const char *from = k->from;
	char *to = k->to;
	if (k->kind == FO_COMM_ALL_GATHER)
		to = address(k->to, at, k->dtype);
	else if (k->kind == FO_COMM_ALL_TO_ALL)
		from = address(k->from, at, k->dtype), to = address(k->to, at, k->dtype);
	else if ((k->kind == FO_COMM_BROADCAST && rank == k->peer) || (k->kind == FO_COMM_SHIFT && e->base.ranks == 1))
		n = k->n;
	else
		return;
	if (n && from != to)
		memcpy(to, from, (size_t)n * fo_dtype_bytes(k->dtype));
}

/* Begins all slots. */
static fo_status go(struct fo_mpi_end *e, struct fo_mpi_op *o)
{
	const size_t each = o->need / (size_t)fo_max(o->slots, 1);
	o->waits = false;
	for (int i = 0; i < o->slots; i++) {
		struct slot *s = &o->slot[i];
		struct fo_mpi_batch *kept = s->batch;
		if (!kept)
			kept = e->job->mpi->batch_new(2 * e->base.ranks + 2);
		if (!kept)
			return fo_fail(FO_ENOMEM, "no memory for messages of %d ranks", e->base.ranks);
		*s = (struct slot){ .piece = i, .round = FIRST, .batch = kept };
		if (o->need)
			s->memory = o->memory + (size_t)i * each;
		FO_TRY(begin_round(e, o, s));
	}
	return FO_OK;
}

/* Gives free places to those that wait, in the order of their calls: the same on every rank, so that the first call
 * that is not over has a place wherever it was started. */
static fo_status hand_out(struct fo_mpi_end *e)
{
	for (int i = 0; i < PLACES && e->first; i++) {
		struct fo_mpi_op *o = e->first;
		if (e->holder[i])
			continue;
		e->first = o->next;
		if (!e->place[i])
			e->place[i] = fo_xmalloc(place_bytes(e->base.ranks));
		e->holder[i] = o;
		o->memory = e->place[i];
		FO_TRY(go(e, o));
	}
	return FO_OK;
}

fo_status fo_mpi_op_start(struct fo_mpi_end *e, const struct fo_comm_call *k, struct fo_mpi_op **out)
{
	struct fo_mpi_op *o = *out = take_record(e);
	o->call = *k;
	o->over = 0;
	o->next = NULL;
	o->waits = false;
	o->memory = NULL;
	o->tag = next_tag(e, k);
	divide(e, o);
	o->bytes = fo_comm_wire_bytes(k, e->base.rank, e->base.ranks);
	note_own(e, o);
	o->live = e->live;
	e->live = o;
	o->call.part = NULL; /* the caller may use its memory again */
	copy_own(e, o);
	if (o->need <= SMALL) {
		if (o->need > o->room) {
			free(o->own_memory);
			o->own_memory = fo_xmalloc(SMALL);
			o->room = SMALL;
		}
		o->memory = o->own_memory;
		return go(e, o);
	}
	o->waits = true;
	struct fo_mpi_op **last = &e->first;
	while (*last)
		last = &(*last)->next;
	*last = o;
	return hand_out(e);
}

fo_status fo_mpi_op_test(struct fo_mpi_end *e, struct fo_mpi_op *o, bool *moved, bool *over)
{
	*over = false;
	/* Who waits for a later call alone has to end those before it. */
	for (int i = 0; i < PLACES && o->waits; i++)
		if (e->holder[i])
			FO_TRY(drive_all(e, e->holder[i], moved));
	FO_TRY(hand_out(e));
	if (o->waits)
		return FO_OK;
	FO_TRY(drive_all(e, o, moved));
	*over = o->over == o->slots;
	if (!*over)
		return FO_OK;
	e->base.received[o->call.kind] += o->bytes;
	forget(e, o);
	o->next = e->spare;
	e->spare = o;
	return FO_OK;
}
