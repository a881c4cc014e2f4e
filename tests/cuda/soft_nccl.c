/* libnccl of the tests: groups of ranks that are threads of one process, on the software device.
 *
 * A collective becomes work of the stream, which can be captured: it is over when all ranks' streams have come to it.
 * The last one to come does the arithmetic for all, in the order of ranks, rounding to the type after each addition.
 * What real ranks must agree on (kind, count, type, operation) is compared: where they do not, or one gives up, the
 * streams go on, results are what they were, and ncclCommGetAsyncError tells. A send is over when its receive has come
 * and the other way round: nothing is kept in between. Memory must be the device's and may not overlap but where NCCL
 * allows it.
 * FLATOUT_SOFT_NCCL_NO_WINDOWS=1: devices that cannot share windows. */
#define _GNU_SOURCE
#include "cuda/soft.h"
#include "kernel/kernel.h"

#include <cuda.h>
#include <nccl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MOST = 64, CALLS_MOST = 64, PAGE = NCCL_WIN_REQUIRED_ALIGNMENT };
enum kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, WINDOW, SEND, RECV };

struct call {
	enum kind kind;
	const char *from;
	char *to;
	size_t count;
	ncclDataType_t type;
	int op, peer; /* peer: of send and receive; root of a broadcast and a reduce */
	ncclComm_t comm;
	CUstream stream;
	bool came; /* a call of all ranks: the stream has come to it, in this round; a send or receive: it is done */
	uint64_t round;
};
struct world {
	ncclUniqueId id;
	int ranks, joined, left, arrived;
	uint64_t round;
	bool gone;
	ncclResult_t verdict; /* of the last round; once gone: why */
	ncclComm_t member[RANKS_MOST];
	struct call slot[RANKS_MOST];
	struct call *sent[RANKS_MOST][RANKS_MOST], *wanted[RANKS_MOST][RANKS_MOST]; /* from, to; NULL: nothing waits */
	struct world *next;
};
struct ncclComm {
	struct world *w;
	int rank;
	uint64_t begun, over; /* pieces of work */
	bool finalized;
	struct ncclComm *next; /* of those that were given up: work that is left in streams still names them */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static struct world *worlds;
static struct ncclComm *given_up;
static __thread int depth;
static __thread int calls;
static __thread struct call queued[CALLS_MOST];

/* ---- what does not need others ---- */

ncclResult_t ncclGetVersion(int *v)
{
	*v = NCCL_VERSION_CODE;
	return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t r)
{
	static const char *const text[ncclNumResults] = { "no error",
							  "unhandled cuda error",
							  "unhandled system error",
							  "internal error",
							  "invalid argument",
							  "invalid usage",
							  "remote process exited or there was a network error",
							  "NCCL operation in progress" };
	return r >= 0 && r < ncclNumResults ? text[r] : "unknown result code";
}
const char *ncclGetLastError(ncclComm_t c)
{
	(void)c;
	return "";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	static uint64_t made;
	pthread_mutex_lock(&lock);
	memset(id, 0x5a, sizeof *id);
	made++;
	memcpy(id, &made, sizeof made);
	pthread_mutex_unlock(&lock);
	return ncclSuccess;
}
ncclResult_t ncclMemAlloc(void **out, size_t bytes)
{
	/* windows begin at pages; where the allocation begins is kept in front */
	CUdeviceptr p;
	if (cuMemAlloc(&p, bytes + 2 * PAGE) != CUDA_SUCCESS)
		return ncclUnhandledCudaError;
	uintptr_t at = ((uintptr_t)p + 2 * PAGE - 1) / PAGE * PAGE;
	((CUdeviceptr *)at)[-1] = p;
	*out = (void *)at;
	return ncclSuccess;
}
ncclResult_t ncclMemFree(void *p)
{
	return cuMemFree(((CUdeviceptr *)p)[-1]) == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

/* ---- arithmetic ---- */

static size_t size_of(ncclDataType_t t)
{
	switch (t) {
	case ncclUint8: return 1;
	case ncclBfloat16: return 2;
	case ncclInt32:
	case ncclFloat32: return 4;
	case ncclFloat64: return 8;
	default: return 0;
	}
}
static double value(const char *p, ncclDataType_t t, size_t i)
{
	switch (t) {
	case ncclBfloat16: return fo_bf16_to_f32(((const uint16_t *)(const void *)p)[i]);
	case ncclFloat32: return ((const float *)(const void *)p)[i];
	default: return ((const double *)(const void *)p)[i];
	}
}
static void put(char *p, ncclDataType_t t, size_t i, double x)
{
	switch (t) {
	case ncclBfloat16: ((uint16_t *)(void *)p)[i] = fo_bf16_from_f32((float)x); break;
	case ncclFloat32: ((float *)(void *)p)[i] = (float)x; break;
	default: ((double *)(void *)p)[i] = x; break;
	}
}

/* to[0 .. n) = over all ranks of from[at .. at + n); one rank: its bits. */
static void reduce(const struct world *w, char *to, size_t at, size_t n)
{
	const struct call *c = w->slot;
	size_t size = size_of(c->type);
	memcpy(to, c->from + at * size, n * size);
	for (int r = 1; r < w->ranks; r++)
		for (size_t i = 0; i < n; i++) {
			double x = value(to, c->type, i), y = value(w->slot[r].from, c->type, at + i);
			put(to, c->type, i, c->op == ncclSum ? x + y : x > y || x != x ? x : y);
		}
}

static void carry_out(const struct world *w)
{
	const struct call *c = w->slot;
	size_t bytes = c->count * size_of(c->type), all = bytes * (size_t)w->ranks;
	char *result = malloc(all);
	if (!result)
		abort();
	switch (c->kind) {
	case REDUCE:
	case ALL_REDUCE: reduce(w, result, 0, c->count); break;
	case REDUCE_SCATTER: reduce(w, result, 0, c->count * (size_t)w->ranks); break;
	case ALL_GATHER:
		for (int r = 0; r < w->ranks; r++)
			memcpy(result + (size_t)r * bytes, w->slot[r].from, bytes);
		break;
	case BROADCAST: memcpy(result, w->slot[c->peer].from, bytes); break;
	default: break;
	}
	for (int r = 0; r < w->ranks && c->kind != WINDOW; r++)
		if (c->kind != REDUCE || r == c->peer)
			memcpy(w->slot[r].to, result + (c->kind == REDUCE_SCATTER ? (size_t)r * bytes : 0),
			       c->kind == ALL_GATHER ? all : bytes);
	free(result);
}

/* ---- a call among ranks ---- */

static bool overlap(const char *a, size_t n, const char *b, size_t m) { return a < b + m && b < a + n; }

static ncclResult_t check(const struct call *c)
{
	const struct world *w = c->comm->w;
	size_t part = c->count * size_of(c->type), all = part * (size_t)w->ranks,
	       in = c->kind == REDUCE_SCATTER ? all : part, out = c->kind == ALL_GATHER ? all : part,
	       own = (size_t)c->comm->rank * part;
	bool reads = c->kind != RECV && c->kind != WINDOW,
	     writes = c->kind != SEND && c->kind != WINDOW && (c->kind != REDUCE || c->comm->rank == c->peer);
	if (c->comm->finalized)
		return ncclInvalidUsage;
	if (!size_of(c->type) || (c->peer < 0 || c->peer >= w->ranks) || (c->op != ncclSum && c->op != ncclMax))
		return ncclInvalidArgument;
	if ((reads && !fo_software_holds(c->from, in)) || (writes && !fo_software_holds(c->to, out)))
		return ncclInvalidArgument;
	if (!reads || !writes || !overlap(c->from, in, c->to, out))
		return ncclSuccess;
	switch (c->kind) {
	case ALL_GATHER: return c->from == c->to + own ? ncclSuccess : ncclInvalidArgument;
	case REDUCE_SCATTER: return c->to == c->from + own ? ncclSuccess : ncclInvalidArgument;
	default: return c->from == c->to ? ncclSuccess : ncclInvalidArgument;
	}
}

static bool agree(const struct world *w)
{
	for (int r = 1; r < w->ranks; r++) {
		const struct call *a = &w->slot[0], *b = &w->slot[r];
		if (a->kind != b->kind || a->count != b->count || a->type != b->type || a->op != b->op ||
		    ((a->kind == BROADCAST || a->kind == REDUCE) && a->peer != b->peer))
			return false;
	}
	return true;
}

/* A rank has come to a call; the last one does it. Wants the lock. */
static void come(struct call *c)
{
	struct world *w = c->comm->w;
	c->came = true;
	c->round = w->round;
	w->slot[c->comm->rank] = *c;
	if (++w->arrived < w->ranks)
		return;
	if (agree(w))
		carry_out(w);
	else
		w->gone = true, w->verdict = ncclInvalidUsage;
	w->arrived = 0;
	w->round++;
	pthread_cond_broadcast(&change);
}

/* ---- work of streams ----
 *
 * A communicator does its work piece by piece, in the order in which the host asked for it, whatever streams it lies
 * in: a piece comes to the others when the one before it is over. */

struct work {
	ncclComm_t comm;
	uint64_t number; /* of the communicator's pieces */
	bool came;       /* the stream has come to it */
	int n;           /* sends and receives that are done together, or one call of all ranks */
	struct call call[CALLS_MOST];
};

static void begun(void *args)
{
	struct work *k = args;
	pthread_mutex_lock(&lock);
	k->number = k->comm->begun++;
	pthread_mutex_unlock(&lock);
}

/* A send and its receive are here. Wants the lock. */
static void carry(struct world *w, int from, int to)
{
	struct call **send = &w->sent[from][to], **recv = &w->wanted[from][to];
	if (!*send || !*recv)
		return;
	if ((*send)->count != (*recv)->count || (*send)->type != (*recv)->type) {
		w->gone = true;
		w->verdict = ncclInvalidUsage;
		return;
	}
	memcpy((*recv)->to, (*send)->from, (*send)->count * size_of((*send)->type));
	(*send)->came = (*recv)->came = true;
	*send = *recv = NULL;
}

/* Sends and receives of a group are known to the others all at once. Wants the lock. */
static void come_pairs(struct work *k)
{
	struct world *w = k->comm->w;
	const int own = k->comm->rank;
	for (int i = 0; i < k->n && !w->gone; i++) {
		struct call *c = &k->call[i],
			    **at = c->kind == SEND ? &w->sent[own][c->peer] : &w->wanted[c->peer][own];
		c->came = false;
		*at = c;
		carry(w, c->kind == SEND ? own : c->peer, c->kind == SEND ? c->peer : own);
	}
}

/* Is a piece of work over? */
static bool over(void *args)
{
	struct work *k = args;
	const struct world *w = k->comm->w;
	pthread_mutex_lock(&lock);
	if (!k->came && !w->gone && k->comm->over == k->number) {
		k->came = true;
		if (k->call[0].kind < WINDOW)
			come(&k->call[0]);
		else
			come_pairs(k);
	}
	bool yes = k->came;
	for (int i = 0; i < k->n && yes; i++)
		yes = k->call[0].kind < WINDOW ? w->round > k->call[0].round : k->call[i].came;
	yes |= w->gone;
	pthread_mutex_unlock(&lock);
	return yes;
}

/* The next piece may come. A graph's node comes again in the next launch. */
static void pass(void *args)
{
	struct work *k = args;
	pthread_mutex_lock(&lock);
	k->came = false;
	k->comm->over++;
	pthread_mutex_unlock(&lock);
}

static ncclResult_t put_work(const struct call *list, int n)
{
	static const size_t head = offsetof(struct work, call);
	struct work k = { .comm = list->comm, .n = n };
	memcpy(k.call, list, (size_t)n * sizeof *list);
	return fo_software_enqueue_met(list->stream, begun, over, pass, &k, head + (size_t)n * sizeof *list,
				       list->kind < WINDOW ? "collective" : "send or receive")
		       ? ncclUnhandledCudaError
		       : ncclSuccess;
}

/* Waits until all ranks are here. Wants the lock. */
static ncclResult_t together(struct call *c)
{
	const struct world *w = c->comm->w;
	come(c);
	while (w->round == c->round && !w->gone)
		pthread_cond_wait(&change, &lock);
	return w->gone ? ncclRemoteError : ncclSuccess;
}

/* Of a group: sends and receives first, as one piece. NCCL takes those of several communicators or streams and several
 * between two ranks, too; here they are refused. */
static ncclResult_t put_pairs(const struct call *list, int n)
{
	struct call pair[CALLS_MOST];
	int pairs = 0;
	for (int i = 0; i < n; i++) {
		if (list[i].kind <= WINDOW)
			continue;
		for (int k = 0; k < pairs; k++)
			if (pair[k].comm != list[i].comm || pair[k].stream != list[i].stream ||
			    (pair[k].kind == list[i].kind && pair[k].peer == list[i].peer))
				return ncclInvalidUsage;
		pair[pairs++] = list[i];
	}
	return pairs ? put_work(pair, pairs) : ncclSuccess;
}

static ncclResult_t carry_out_all(struct call *list, int n)
{
	ncclResult_t r = put_pairs(list, n);
	pthread_mutex_lock(&lock);
	for (int i = 0; i < n && r == ncclSuccess; i++)
		if (list[i].kind == WINDOW)
			r = together(&list[i]);
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < n && r == ncclSuccess; i++)
		if (list[i].kind < WINDOW)
			r = put_work(&list[i], 1);
	return r;
}

static ncclResult_t start(struct call c)
{
	ncclResult_t r = check(&c);
	if (r != ncclSuccess)
		return r;
	if (!depth)
		return carry_out_all(&c, 1);
	if (calls == CALLS_MOST)
		return ncclInternalError;
	queued[calls++] = c;
	return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
	depth++;
	return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void)
{
	int n = calls;
	if (!depth)
		return ncclInvalidUsage;
	if (--depth)
		return ncclSuccess;
	calls = 0;
	return carry_out_all(queued, n);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
			   cudaStream_t s)
{
	return start((struct call){ .kind = ALL_REDUCE,
				    .from = from,
				    .to = to,
				    .count = n,
				    .type = t,
				    .op = op,
				    .comm = c,
				    .stream = (CUstream)s });
}
ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s)
{
	return start((struct call){
		.kind = ALL_GATHER, .from = from, .to = to, .count = n, .type = t, .comm = c, .stream = (CUstream)s });
}
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
			       cudaStream_t s)
{
	return start((struct call){ .kind = REDUCE_SCATTER,
				    .from = from,
				    .to = to,
				    .count = n,
				    .type = t,
				    .op = op,
				    .comm = c,
				    .stream = (CUstream)s });
}
ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t t, int root, ncclComm_t c,
			   cudaStream_t s)
{
	return start((struct call){ .kind = BROADCAST,
				    .from = from,
				    .to = to,
				    .count = n,
				    .type = t,
				    .peer = root,
				    .comm = c,
				    .stream = (CUstream)s });
}
ncclResult_t ncclReduce(const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op, int root, ncclComm_t c,
			cudaStream_t s)
{
	return start((struct call){ .kind = REDUCE,
				    .from = from,
				    .to = to,
				    .count = n,
				    .type = t,
				    .op = op,
				    .peer = root,
				    .comm = c,
				    .stream = (CUstream)s });
}
ncclResult_t ncclSend(const void *from, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s)
{
	return start((struct call){
		.kind = SEND, .from = from, .count = n, .type = t, .peer = peer, .comm = c, .stream = (CUstream)s });
}
ncclResult_t ncclRecv(void *to, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s)
{
	return start((struct call){
		.kind = RECV, .to = to, .count = n, .type = t, .peer = peer, .comm = c, .stream = (CUstream)s });
}

/* All ranks, the same size; memory of ncclMemAlloc begins at pages. */
ncclResult_t ncclCommWindowRegister(ncclComm_t c, void *p, size_t bytes, ncclWindow_t *out, int flags)
{
	*out = NULL;
	if ((uintptr_t)p % PAGE || bytes % PAGE || flags != NCCL_WIN_COLL_SYMMETRIC || !fo_software_holds(p, bytes))
		return ncclInvalidArgument;
	ncclResult_t r = start((struct call){ .kind = WINDOW, .count = bytes, .type = ncclUint8, .comm = c });
	if (getenv("FLATOUT_SOFT_NCCL_NO_WINDOWS"))
		return ncclInvalidUsage;
	*out = (ncclWindow_t)p;
	return r;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t c, ncclWindow_t w)
{
	(void)c;
	return w ? ncclSuccess : ncclInvalidArgument;
}

/* ---- communicators ---- */

ncclResult_t ncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId id, int rank)
{
	struct world *w;
	if (ranks < 1 || ranks > RANKS_MOST || rank < 0 || rank >= ranks)
		return ncclInvalidArgument;
	pthread_mutex_lock(&lock);
	for (w = worlds; w && memcmp(&w->id, &id, sizeof id) != 0; w = w->next)
		;
	if (!w) {
		w = calloc(1, sizeof *w);
		if (!w)
			abort();
		w->id = id;
		w->ranks = ranks;
		w->next = worlds;
		worlds = w;
	}
	if (w->ranks != ranks || w->member[rank]) {
		pthread_mutex_unlock(&lock);
		return ncclInvalidUsage;
	}
	struct ncclComm *c = calloc(1, sizeof *c);
	if (!c)
		abort();
	*c = (struct ncclComm){ .w = w, .rank = rank };
	w->member[rank] = c;
	w->joined++;
	pthread_cond_broadcast(&change);
	while (w->joined < ranks)
		pthread_cond_wait(&change, &lock);
	pthread_mutex_unlock(&lock);
	*out = c;
	return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t c)
{
	c->finalized = true;
	return ncclSuccess;
}
static void leave(ncclComm_t c, bool kill)
{
	pthread_mutex_lock(&lock);
	struct world *w = c->w, **at = &worlds;
	if (kill && !w->gone)
		w->gone = true, w->verdict = ncclRemoteError;
	pthread_cond_broadcast(&change);
	if (kill) {
		c->next = given_up;
		given_up = c;
		pthread_mutex_unlock(&lock);
		return;
	}
	if (++w->left == w->ranks) {
		while (*at != w)
			at = &(*at)->next;
		*at = w->next;
		free(w);
	}
	pthread_mutex_unlock(&lock);
	free(c);
}
ncclResult_t ncclCommDestroy(ncclComm_t c)
{
	leave(c, false);
	return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t c)
{
	leave(c, true);
	return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *out)
{
	pthread_mutex_lock(&lock);
	*out = c->w->gone ? c->w->verdict : ncclSuccess;
	pthread_mutex_unlock(&lock);
	return ncclSuccess;
}
