/* A group of devices over NCCL. */
#include "comm/nccl.h"

#include "base/clock.h"
#include "base/count.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

#if FO_CUDA && FO_NCCL
#include "kernel/cuda/libraries.h"

struct window {
	void *memory;
	ncclWindow_t handle; /* NULL: NCCL's memory, but no window */
	bool own;            /* from ncclMemAlloc, else the device's */
};
struct group {
	struct fo_comm base;
	const struct fo_nccl_calls *nccl;
	struct fo_cuda *cuda;
	ncclComm_t comm; /* NULL: aborted */
	struct window *window;
	size_t cap;
	int windows;
};

static struct group *of(struct fo_comm *c) { return (struct group *)c; }

static fo_status failed(const struct group *g, ncclResult_t r, const char *doing)
{
	const char *detail = NULL;
	if (r == ncclSuccess)
		return FO_OK;
	if (g->comm)
		detail = g->nccl->ncclGetLastError(g->comm);
	if (!detail)
		detail = "";
	return fo_fail(FO_ECOMM, "rank %d of %d: %s: NCCL says \"%s\"%s%s", g->base.rank, g->base.ranks, doing,
		       g->nccl->ncclGetErrorString(r), *detail ? ": " : "", detail);
}

static fo_status alive(const struct group *g)
{
	if (g->comm)
		return FO_OK;
	return fo_fail(FO_ECOMM, "rank %d of %d: the group was given up", g->base.rank, g->base.ranks);
}

/* NCCL's type. A type that NCCL lacks, or that only newer versions have, is moved as bytes: *n becomes their number. */
static ncclDataType_t type_of(int dtype, size_t *n)
{
	switch (dtype) {
	case FO_BF16: return ncclBfloat16;
	case FO_F32: return ncclFloat32;
	case FO_F64: return ncclFloat64;
	case FO_I32: return ncclInt32;
	default: *n *= fo_dtype_bytes(dtype); return ncclUint8;
	}
}
static ncclRedOp_t op_of(enum fo_comm_op op) { return op == FO_COMM_SUM ? ncclSum : ncclMax; }

/* NCCL's own all-to-all came with 2.28; before it, and here, it is a group of sends and receives. */
static fo_status all_to_all(struct group *g, const struct fo_comm_call *k)
{
	const struct fo_nccl_calls *f = g->nccl;
	size_t n = (size_t)k->n, bytes = n * fo_dtype_bytes(k->dtype);
	ncclDataType_t type = type_of(k->dtype, &n);
	ncclResult_t r = f->ncclGroupStart();
	for (int p = 0; p < g->base.ranks && r == ncclSuccess; p++) {
		r = f->ncclSend((const char *)k->from + (size_t)p * bytes, n, type, p, g->comm, k->stream);
		if (r == ncclSuccess)
			r = f->ncclRecv((char *)k->to + (size_t)p * bytes, n, type, p, g->comm, k->stream);
	}
	ncclResult_t end = f->ncclGroupEnd();
	return failed(g, r == ncclSuccess ? end : r, fo_comm_kind_name(k->kind));
}

/* Are the parts of all ranks of one size? *n: which. */
static bool even(const struct group *g, const struct fo_comm_call *k, size_t *n)
{
	bool same = true;
	for (int r = 0; k->part && r < g->base.ranks; r++)
		same &= k->part[r] == k->part[0];
	*n = (size_t)(k->part ? k->part[g->base.rank] : k->n);
	return same;
}

/* Parts of unlike size go one by one, in a group: from each rank to all, or from all to the rank whose part it is. */
static fo_status uneven(struct group *g, const struct fo_comm_call *k, void *to)
{
	const struct fo_nccl_calls *f = g->nccl;
	const size_t size = fo_dtype_bytes(k->dtype);
	ncclResult_t r = f->ncclGroupStart();
	for (int p = 0; p < g->base.ranks && r == ncclSuccess; p++) {
		int64_t begin;
		size_t n = (size_t)fo_comm_part(k, p, g->base.ranks, &begin), at = (size_t)begin * size;
		const ncclDataType_t type = type_of(k->dtype, &n);
		if (n && k->kind == FO_COMM_ALL_GATHER)
			r = f->ncclBroadcast(k->from, (char *)to + at, n, type, p, g->comm, k->stream);
		else if (n)
			r = f->ncclReduce((const char *)k->from + at, p == g->base.rank ? to : NULL, n, type,
					  op_of(k->op), p, g->comm, k->stream);
	}
	ncclResult_t end = f->ncclGroupEnd();
	return failed(g, r == ncclSuccess ? end : r, fo_comm_kind_name(k->kind));
}

static fo_status shift(struct group *g, const struct fo_comm_call *k)
{
	const struct fo_nccl_calls *f = g->nccl;
	const int rank = g->base.rank, ranks = g->base.ranks;
	size_t n = (size_t)k->n;
	ncclDataType_t type = type_of(k->dtype, &n);
	ncclResult_t r = f->ncclGroupStart();
	if (r == ncclSuccess)
		r = f->ncclSend(k->from, n, type, (rank + 1) % ranks, g->comm, k->stream);
	if (r == ncclSuccess)
		r = f->ncclRecv(k->to, n, type, (rank + ranks - 1) % ranks, g->comm, k->stream);
	ncclResult_t end = f->ncclGroupEnd();
	return failed(g, r == ncclSuccess ? end : r, fo_comm_kind_name(k->kind));
}

/* A reduce-scatter into `to`. */
static fo_status reduce_scatter(struct group *g, const struct fo_comm_call *k, void *to)
{
	size_t n;
	if (!even(g, k, &n))
		return uneven(g, k, to);
	const ncclDataType_t type = type_of(k->dtype, &n);
	return failed(g, g->nccl->ncclReduceScatter(k->from, to, n, type, op_of(k->op), g->comm, k->stream),
		      fo_comm_kind_name(k->kind));
}

/* NCCL stores sums; ours are then added to what is there. */
static fo_status accumulate(struct group *g, const struct fo_comm_call *k)
{
	struct fo_cuda_queue q = { .cuda = g->cuda, .stream = k->stream };
	int64_t begin;
	const int64_t n = fo_comm_part(k, g->base.rank, g->base.ranks, &begin);
	struct fo_tensor to = { .data = k->to, .rows = 1, .cols = n, .ld = n, .dtype = k->dtype }, sum = to;
	if (!k->scratch)
		return fo_fail(FO_EARG, "%s over NCCL needs memory to add from", fo_comm_kind_name(k->kind));
	sum.data = k->scratch;
	FO_TRY(reduce_scatter(g, k, k->scratch));
	return n ? fo_cuda_add(&q, &to, &sum) : FO_OK;
}

static fo_status call(struct fo_comm *c, const struct fo_comm_call *k)
{
	struct group *g = of(c);
	const struct fo_nccl_calls *f = g->nccl;
	ncclComm_t comm = g->comm;
	size_t n;
	ncclResult_t r = ncclInternalError;
	FO_TRY(alive(g));
	if (k->kind == FO_COMM_ALL_TO_ALL)
		return all_to_all(g, k);
	if (k->kind == FO_COMM_SHIFT)
		return shift(g, k);
	if (k->kind == FO_COMM_REDUCE_SCATTER)
		return k->accumulate ? accumulate(g, k) : reduce_scatter(g, k, k->to);
	if (!even(g, k, &n))
		return uneven(g, k, k->to);
	const ncclDataType_t type = type_of(k->dtype, &n);
	switch (k->kind) {
	case FO_COMM_ALL_REDUCE: r = f->ncclAllReduce(k->from, k->to, n, type, op_of(k->op), comm, k->stream); break;
	case FO_COMM_ALL_GATHER: r = f->ncclAllGather(k->from, k->to, n, type, comm, k->stream); break;
	case FO_COMM_BROADCAST: r = f->ncclBroadcast(k->from, k->to, n, type, k->peer, comm, k->stream); break;
	case FO_COMM_SEND: r = f->ncclSend(k->from, n, type, k->peer, comm, k->stream); break;
	case FO_COMM_RECV: r = f->ncclRecv(k->to, n, type, k->peer, comm, k->stream); break;
	case FO_COMM_REDUCE_SCATTER:
	case FO_COMM_ALL_TO_ALL:
	case FO_COMM_SHIFT:
	case FO_COMM_KINDS: break;
	}
	return failed(g, r, fo_comm_kind_name(k->kind));
}

static fo_status group_call(struct fo_comm *c, bool end)
{
	struct group *g = of(c);
	FO_TRY(alive(g));
	if (end)
		return failed(g, g->nccl->ncclGroupEnd(), "start a group of calls");
	return failed(g, g->nccl->ncclGroupStart(), "begin a group of calls");
}

/* ---- memory ---- */

static bool has_windows(const struct group *g)
{
	const struct fo_nccl_calls *n = g->nccl;
	return n->ncclMemAlloc && n->ncclMemFree && n->ncclCommWindowRegister && n->ncclCommWindowDeregister;
}

/* Registering a window needs all ranks. Where the devices cannot share one, NCCL tells all ranks alike, and the memory
 * is used without a window. */
static fo_status alloc(struct fo_comm *c, size_t bytes, void **out)
{
	struct group *g = of(c);
	struct window w = { .own = has_windows(g) };
	FO_TRY(alive(g));
	/* Windows begin and end at this alignment. */
	bytes = fo_round_up_bytes(bytes, NCCL_WIN_REQUIRED_ALIGNMENT);
	if (!w.own)
		FO_TRY(fo_cuda_alloc(g->cuda, bytes, &w.memory));
	else
		FO_TRY(failed(g, g->nccl->ncclMemAlloc(&w.memory, bytes), "allocate memory for a window"));
	if (w.own && g->nccl->ncclCommWindowRegister(g->comm, w.memory, bytes, &w.handle, NCCL_WIN_COLL_SYMMETRIC) !=
			     ncclSuccess)
		w.handle = NULL;
	fo_array_room(&g->window, &g->cap, (size_t)g->windows, sizeof *g->window);
	g->window[g->windows++] = w;
	*out = w.memory;
	return FO_OK;
}

static void free_window(struct group *g, const struct window *w)
{
	if (w->handle && g->comm)
		g->nccl->ncclCommWindowDeregister(g->comm, w->handle);
	if (w->own)
		g->nccl->ncclMemFree(w->memory);
	else
		fo_cuda_free(g->cuda, w->memory);
}

static void release(struct fo_comm *c, void *memory)
{
	struct group *g = of(c);
	for (int i = 0; i < g->windows; i++)
		if (g->window[i].memory == memory) {
			free_window(g, &g->window[i]);
			g->window[i] = g->window[--g->windows];
			return;
		}
}

int fo_comm_nccl_windows(const struct fo_comm *c)
{
	const struct group *g = (const struct group *)c;
	int n = 0;
	for (int i = 0; i < g->windows; i++)
		n += g->window[i].handle != NULL;
	return n;
}

/* ---- beginning and end ---- */

static fo_status check(struct fo_comm *c)
{
	struct group *g = of(c);
	ncclResult_t later = ncclSuccess;
	FO_TRY(alive(g));
	FO_TRY(failed(g, g->nccl->ncclCommGetAsyncError(g->comm, &later), "ask how it goes"));
	return later == ncclInProgress ? FO_OK : failed(g, later, "what was started before");
}

static void abort_group(struct fo_comm *c)
{
	struct group *g = of(c);
	ncclComm_t comm = g->comm;
	g->comm = NULL;
	if (comm)
		g->nccl->ncclCommAbort(comm);
}

static void close_group(struct fo_comm *c)
{
	struct group *g = of(c);
	while (g->windows)
		free_window(g, &g->window[--g->windows]);
	if (g->comm) {
		g->nccl->ncclCommFinalize(g->comm);
		g->nccl->ncclCommDestroy(g->comm);
	}
	free(g->window);
	free(g);
}

static const struct fo_comm_transport transport = {
	.name = "NCCL",
	.accumulates = true,
	.call = call,
	.group = group_call,
	.alloc = alloc,
	.release = release,
	.check = check,
	.abort = abort_group,
	.close = close_group,
};

/* Rank 0's id comes to all, by the file of `place` or over `host`. */
static fo_status share(ncclUniqueId *id, const struct fo_comm_place *place, struct fo_comm *host)
{
	if (place)
		return fo_comm_meet(place, id, sizeof *id);
	const struct fo_comm_call k = fo_comm_bytes(FO_COMM_BROADCAST, id, id, sizeof *id, 0);
	return fo_comm_call(host, &k);
}

static fo_status meet(struct group *g, const struct fo_comm_place *place, struct fo_comm *host)
{
	ncclUniqueId id = { { 0 } };
	if (g->base.rank == 0)
		FO_TRY(failed(g, g->nccl->ncclGetUniqueId(&id), "make an id"));
	FO_TRY(share(&id, place, host));
	FO_TRY(fo_cuda_attach(g->cuda));
	/* returns when all ranks are there */
	return failed(g, g->nccl->ncclCommInitRank(&g->comm, g->base.ranks, id, g->base.rank), "come together");
}

static fo_status open_group(struct fo_comm **out, struct fo_cuda *cuda, const struct fo_comm_place *place,
			    struct fo_comm *host)
{
	struct fo_cuda_found found;
	const struct fo_nccl_calls *nccl = fo_cuda_load(FO_CUDA_NCCL, &found);
	const int rank = place ? place->rank : fo_comm_rank(host);
	const int ranks = place ? place->ranks : fo_comm_ranks(host);
	if (ranks < 1 || ranks > FO_COMM_RANKS_MAX || rank < 0 || rank >= ranks)
		return fo_fail(FO_EARG, "there is no rank %d among %d", rank, ranks);
	if (!nccl)
		return fo_fail(FO_EUNSUPPORTED, "no NCCL for %d ranks: %s", ranks, found.why);
	struct group *g = fo_xmalloc(sizeof *g);
	*g = (struct group){ .base = { .transport = &transport, .rank = rank, .ranks = ranks },
			     .nccl = nccl,
			     .cuda = cuda };
	fo_status st = meet(g, place, host);
	if (st != FO_OK) {
		close_group(&g->base);
		return st;
	}
	if (place)
		fo_comm_met(place);
	*out = &g->base;
	return FO_OK;
}

fo_status fo_comm_nccl_open(struct fo_comm **out, struct fo_cuda *cuda, const struct fo_comm_place *place)
{
	return open_group(out, cuda, place, NULL);
}

bool fo_comm_nccl_there(char *why, size_t size)
{
	struct fo_cuda_found found;
	const bool there = fo_cuda_load(FO_CUDA_NCCL, &found) != NULL;
	snprintf(why, size, "%s", there ? "" : found.why);
	return there;
}

fo_status fo_comm_nccl_among(struct fo_comm **out, struct fo_cuda *cuda, struct fo_comm *host)
{
	return open_group(out, cuda, NULL, host);
}

/* Until the event is done, or the other rank has ended the job. */
static fo_status wait_for(struct fo_comm *c, struct fo_cuda *cuda, fo_cuda_event event, struct fo_comm *host)
{
	const int64_t since = fo_now_ns();
	bool done = false;
	for (;;) {
		FO_TRY(fo_cuda_event_done(cuda, event, &done));
		FO_TRY(check(c)); /* what ended because it was given up is not done */
		if (done)
			return FO_OK;
		FO_TRY(fo_comm_check(host));
		fo_comm_rest(since, 0);
	}
}

/* One message: NCCL connects two ranks at the first one, and the host waits there for the other rank's host. */
static fo_status connect_pair(struct fo_comm *c, struct fo_cuda *cuda, struct fo_comm *host, bool sends)
{
	enum { BYTES = 16 };
	struct fo_comm_call k = fo_comm_bytes(sends ? FO_COMM_SEND : FO_COMM_RECV, NULL, NULL, BYTES, 1 - c->rank);
	fo_cuda_stream stream = NULL;
	fo_cuda_event over = NULL;
	void *memory = NULL;
	fo_status st = fo_cuda_alloc(cuda, BYTES, &memory);
	if (st == FO_OK)
		st = fo_cuda_stream_new(cuda, &stream);
	if (st == FO_OK)
		st = fo_cuda_event_new(cuda, false, &over);
	k.from = k.to = memory;
	k.stream = stream;
	if (st == FO_OK)
		st = call(c, &k);
	if (st == FO_OK)
		st = fo_cuda_event_record(cuda, over, stream, false);
	if (st == FO_OK)
		st = wait_for(c, cuda, over, host);
	if (st != FO_OK)
		abort_group(c); /* first: memory is freed when what uses it has ended */
	fo_cuda_event_free(cuda, over);
	fo_cuda_stream_free(cuda, stream);
	fo_cuda_free(cuda, memory);
	return st;
}

fo_status fo_comm_nccl_pair(struct fo_comm **out, struct fo_cuda *cuda, struct fo_comm *host, bool sends)
{
	if (fo_comm_ranks(host) != 2)
		return fo_fail(FO_EBUG, "a pair of %d ranks", fo_comm_ranks(host));
	FO_TRY(open_group(out, cuda, NULL, host));
	fo_status st = connect_pair(*out, cuda, host, sends);
	if (st == FO_OK)
		return FO_OK;
	fo_comm_close(*out);
	*out = NULL;
	return st;
}
#else
fo_status fo_comm_nccl_open(struct fo_comm **out, struct fo_cuda *cuda, const struct fo_comm_place *place)
{
	(void)out, (void)cuda, (void)place;
	return fo_hint(fo_fail(FO_EUNSUPPORTED, "this build has no NCCL"),
		       "install NCCL with its header (nccl.h) and build again");
}
bool fo_comm_nccl_there(char *why, size_t size)
{
	snprintf(why, size, "this build has no NCCL");
	return false;
}
fo_status fo_comm_nccl_among(struct fo_comm **out, struct fo_cuda *cuda, struct fo_comm *host)
{
	(void)host;
	return fo_comm_nccl_open(out, cuda, NULL);
}
fo_status fo_comm_nccl_pair(struct fo_comm **out, struct fo_cuda *cuda, struct fo_comm *host, bool sends)
{
	(void)sends;
	return fo_comm_nccl_among(out, cuda, host);
}
int fo_comm_nccl_windows(const struct fo_comm *c)
{
	(void)c;
	return 0;
}
#endif
