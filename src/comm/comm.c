/* The part that is the same for every transport: how ranks meet, and which calls are refused. */
#include "comm/comm.h"

#include "base/clock.h"
#include "base/count.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "program/program.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- where a rank belongs ---- */

#define WAIT_S 300.0 /* a large job's processes start within minutes of each other */
#define WAIT_MOST_S 86400.0
#define POLL_S 0.02
enum { MEET_MOST = 4096, FILE_MOST = 2 * MEET_MOST + 256 };
#define JOB_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/* A variable's value; NULL where it is not set or empty. */
static const char *value_of(const char *name)
{
	const char *v = getenv(name);
	return v && *v ? v : NULL;
}

/* The first of two variables that has a value; NULL: neither. */
static const char *first_of(const char *a, const char *b, const char **name)
{
	*name = value_of(a) ? a : b;
	return value_of(*name);
}

static fo_status whole_number(const char *name, const char *text, long least, long most, int *out)
{
	char *end;
	long v = strtol(text, &end, 10);
	if (end == text || *end || v < least || v > most)
		return fo_fail(FO_EARG, "%s is '%s': expected a number from %ld to %ld", name, text, least, most);
	*out = (int)v;
	return FO_OK;
}

static fo_status copy_text(char *to, size_t size, const char *name, const char *from)
{
	if (snprintf(to, size, "%s", from) >= (int)size)
		return fo_fail(FO_EARG, "%s is longer than %zu bytes", name, size - 1);
	return FO_OK;
}

static fo_status env_job(struct fo_comm_place *p)
{
	const char *job = value_of("FLATOUT_JOB"), *id = value_of("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID"),
		   *restart = getenv("SLURM_RESTART_COUNT");
	if (!step)
		step = "0";
	if (!restart)
		restart = "0";
	if (job)
		FO_TRY(copy_text(p->job, sizeof p->job, "FLATOUT_JOB", job));
	else if (id)
		snprintf(p->job, sizeof p->job, "%s.%s.%s", id, step, restart);
	if (p->job[strspn(p->job, JOB_LETTERS)])
		return fo_fail(FO_EARG, "FLATOUT_JOB is '%s': expected letters, digits, '.', '_' and '-'", p->job);
	return FO_OK;
}

fo_status fo_comm_place_env(struct fo_comm_place *p)
{
	const char *rank_name, *ranks_name, *rank = first_of("FLATOUT_RANK", "SLURM_PROCID", &rank_name),
					    *ranks = first_of("FLATOUT_RANKS", "SLURM_NTASKS", &ranks_name);
	const char *meet = getenv("FLATOUT_MEET"), *wait = value_of("FLATOUT_WAIT");
	*p = (struct fo_comm_place){ .ranks = 1, .wait_s = WAIT_S };
	if (ranks)
		FO_TRY(whole_number(ranks_name, ranks, 1, FO_COMM_RANKS_MAX, &p->ranks));
	if (p->ranks > 1 && !rank)
		return fo_fail(FO_EARG, "%s is %d, but FLATOUT_RANK is not set", ranks_name, p->ranks);
	if (rank)
		FO_TRY(whole_number(rank_name, rank, 0, p->ranks - 1, &p->rank));
	if (meet)
		FO_TRY(copy_text(p->meet, sizeof p->meet, "FLATOUT_MEET", meet));
	if (p->ranks > 1 && !*p->meet)
		return fo_hint(fo_fail(FO_EARG, "%d ranks, but FLATOUT_MEET is not set", p->ranks),
			       "name a file in it that all ranks can see and that is not there yet");
	if (wait) {
		char *end;
		p->wait_s = strtod(wait, &end);
		if (*end || !(p->wait_s > 0 && p->wait_s <= WAIT_MOST_S))
			return fo_fail(FO_EARG, "FLATOUT_WAIT is '%s': expected seconds, at most %.0f", wait,
				       WAIT_MOST_S);
	}
	return env_job(p);
}

/* ---- the file ---- */

/* The file's first line tells it from those of other jobs. */
static void head_of(const struct fo_comm_place *p, size_t n, struct fo_str *out)
{
	fo_str_printf(out, "flatout-meet-1 %d %zu [%s]\n", p->ranks, n, p->job);
}

static fo_status give(const struct fo_comm_place *p, const unsigned char *bytes, size_t n)
{
	struct fo_str text = { 0 };
	head_of(p, n, &text);
	for (size_t i = 0; i < n; i++)
		fo_str_printf(&text, "%02x", bytes[i]);
	fo_str_puts(&text, "\n");
	fo_status st = fo_fs_write_atomic(p->meet, text.data, text.len);
	fo_str_fini(&text);
	return st;
}

static int hex_digit(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = c ? strchr(digits, c) : NULL;
	return at ? (int)(at - digits) : -1;
}

/* Is this the file of our start, and whole? Then `bytes` gets what it holds. */
static bool take(const struct fo_comm_place *p, const char *text, size_t len, unsigned char *bytes, size_t n)
{
	struct fo_str head = { 0 };
	head_of(p, n, &head);
	bool good = len == head.len + 2 * n + 1 && !memcmp(text, head.data, head.len) && text[len - 1] == '\n';
	const char *at = text + head.len;
	for (size_t i = 0; good && i < n; i++) {
		int hi = hex_digit(at[2 * i]), lo = hex_digit(at[2 * i + 1]);
		good = hi >= 0 && lo >= 0;
		bytes[i] = (unsigned char)(hi << 4 | lo);
	}
	fo_str_fini(&head);
	return good;
}

fo_status fo_comm_meet(const struct fo_comm_place *p, void *bytes, size_t n)
{
	int64_t until = fo_now_ns() + (int64_t)(p->wait_s * 1e9);
	bool good = false, seen = false;
	if (n > MEET_MOST)
		return fo_fail(FO_EBUG, "%zu bytes to meet with: at most %d", n, MEET_MOST);
	if (p->ranks == 1)
		return FO_OK;
	if (p->rank == 0)
		return give(p, bytes, n);
	while (!good) {
		struct fo_arena a = { 0 };
		char *text;
		size_t len;
		if (fo_fs_exists(p->meet) && fo_fs_read_regular(&a, p->meet, FILE_MOST, &text, &len) == FO_OK) {
			seen = true;
			good = take(p, text, len, bytes, n);
		}
		fo_arena_fini(&a);
		fo_err_clear(); /* a file that was replaced while it was read is read again */
		if (!good && fo_now_ns() > until)
			return fo_hint(fo_fail(FO_ECOMM, "rank %d of %d waited %.0f s for '%s': %s", p->rank, p->ranks,
					       p->wait_s, p->meet,
					       seen ? "it is there, but of another job or number of ranks"
						    : "rank 0 did not write it"),
				       "look at rank 0's messages; all ranks need the same FLATOUT_MEET, FLATOUT_JOB "
				       "and FLATOUT_RANKS");
		if (!good)
			usleep((useconds_t)(POLL_S * 1e6));
	}
	return FO_OK;
}

void fo_comm_met(const struct fo_comm_place *p)
{
	if (p->ranks > 1 && p->rank == 0)
		unlink(p->meet);
}

/* ---- calls ---- */

static const struct {
	const char *name;
	bool reduces, peer, other; /* peer: it names a rank; other: which must not be this one */
} kind[] = {
	[FO_COMM_ALL_REDUCE] = { .name = "all-reduce", .reduces = true },
	[FO_COMM_ALL_GATHER] = { .name = "all-gather" },
	[FO_COMM_REDUCE_SCATTER] = { .name = "reduce-scatter", .reduces = true },
	[FO_COMM_BROADCAST] = { .name = "broadcast", .peer = true },
	[FO_COMM_SEND] = { .name = "send", .peer = true, .other = true },
	[FO_COMM_RECV] = { .name = "receive", .peer = true, .other = true },
	[FO_COMM_ALL_TO_ALL] = { .name = "all-to-all" },
	[FO_COMM_SHIFT] = { .name = "shift" },
};

const char *fo_comm_kind_name(enum fo_comm_kind k) { return kind[k].name; }

static fo_status check_call(const struct fo_comm *c, const struct fo_comm_call *k)
{
	const char *what = kind[k->kind].name, *over = c->transport->name;
	bool other = kind[k->kind].other, sends = k->kind != FO_COMM_RECV, gets = k->kind != FO_COMM_SEND;
	if (k->n < 0 || k->dtype < 0 || k->dtype >= FO_DTYPE_COUNT)
		return fo_fail(FO_EARG, "%s of %lld elements of type %d over %s", what, (long long)k->n, k->dtype,
			       over);
	if (kind[k->kind].reduces && k->dtype != FO_BF16 && k->dtype != FO_F32 && k->dtype != FO_F64)
		return fo_fail(FO_EARG, "%s over %s adds bf16, f32 and f64, not %s", what, over,
			       fo_dtype_name[k->dtype]);
	if (k->n && ((sends && !k->from) || (gets && !k->to)))
		return fo_fail(FO_EARG, "%s of %lld elements over %s without memory", what, (long long)k->n, over);
	if (k->part && k->kind != FO_COMM_ALL_GATHER && k->kind != FO_COMM_REDUCE_SCATTER)
		return fo_fail(FO_EARG, "%s over %s has parts of one size only", what, over);
	if (k->accumulate && (k->kind != FO_COMM_REDUCE_SCATTER || k->op != FO_COMM_SUM))
		return fo_fail(FO_EARG, "%s over %s adds to nothing: only sums of a reduce-scatter do", what, over);
	if (k->accumulate && !c->transport->accumulates)
		return fo_fail(FO_EUNSUPPORTED, "%s over %s cannot add to what is there", what, over);
	if (k->narrow && (!kind[k->kind].reduces || k->op != FO_COMM_SUM || k->dtype != FO_F32))
		return fo_fail(FO_EARG, "%s over %s of %s does not travel as bf16: only sums of f32 do", what, over,
			       fo_dtype_name[k->dtype]);
	if (k->narrow && !c->transport->narrows)
		return fo_fail(FO_EUNSUPPORTED, "%s over %s cannot travel as bf16", what, over);
	if (kind[k->kind].peer && (k->peer < 0 || k->peer >= c->ranks || (other && k->peer == c->rank)))
		return fo_fail(FO_EARG, "%s: there is no %srank %d among %d", what, other ? "other " : "", k->peer,
			       c->ranks);
	return FO_OK;
}

/* Does the call move anything? */
static bool moves(const struct fo_comm *c, const struct fo_comm_call *k)
{
	bool any = k->n > 0;
	for (int r = 0; k->part && r < c->ranks; r++)
		any |= k->part[r] > 0;
	return any;
}

/* Between two looks at what is on its way: a part of the time that it has taken so far, so that a look which comes late
 * costs little beside the wait, and waiting for another rank costs no processor. */
enum { NAP_NS = 20000, NAP_MOST_NS = 500000, NAP_PART = 16 };
/* A thread runs that much later than it should where its processor slept, now and then ten times that (2 processors of
 * a virtual machine, Linux 6.18, November 2026). */
enum { WAKE_NS = 50000 };
int64_t fo_comm_nap_ns(int64_t since_ns, int64_t until_ns, bool told, bool rests)
{
	const int64_t now = fo_now_ns(), all = until_ns - now, left = rests && all > WAKE_NS ? all - WAKE_NS : all;
	const int64_t nap = told ? NAP_MOST_NS : fo_clamp((now - since_ns) / NAP_PART, NAP_NS, NAP_MOST_NS);
	if (!until_ns)
		return nap;
	/* The end is known, and others tell what comes before it: one nap misses nothing. */
	return fo_max(1, told ? left : fo_min(nap, left));
}

/* Another thread that yields, too, is back within some 10 us; one that computes keeps the processor for a time slice, 3
 * ms and more by default. */
enum { SPIN_NS = 200000, SLICE_NS = 500000, CROWDED_NS = 50000000 };
bool fo_comm_spin(int64_t since_ns, int64_t until_ns)
{
	static _Thread_local int64_t crowded_until;
	const int64_t now = fo_now_ns();
	const bool soon = until_ns && until_ns - now <= WAKE_NS;
	if ((!soon && now - since_ns >= SPIN_NS) || now < crowded_until)
		return false;
	sched_yield();
	const int64_t then = fo_now_ns();
	if (then - now > SLICE_NS)
		crowded_until = then + CROWDED_NS;
	return true;
}

void fo_comm_rest(int64_t since_ns, int64_t until_ns)
{
	if (fo_comm_spin(since_ns, until_ns))
		return;
	const int64_t nap = fo_comm_nap_ns(since_ns, until_ns, false, true);
	nanosleep(&(struct timespec){ .tv_nsec = (long)nap }, NULL);
}

/* Waits for the calls that are open: all are driven at once, for ranks may end them in unlike order. */
static fo_status wait_for_all(struct fo_comm *c)
{
	const size_t n = c->opens;
	int64_t since = fo_now_ns();
	c->opens = 0;
	for (size_t left = n; left;) {
		left = 0;
		for (size_t i = 0; i < n; i++) {
			const int phase = c->open[i].phase;
			bool done;
			FO_TRY(fo_comm_test(c, &c->open[i], &done));
			left += !done;
			if (done || c->open[i].phase != phase)
				since = fo_now_ns();
		}
		if (left)
			fo_comm_rest(since, 0);
	}
	return FO_OK;
}

static fo_status start_and_wait(struct fo_comm *c, const struct fo_comm_call *k)
{
	fo_array_room(&c->open, &c->cap, c->opens, sizeof *c->open);
	FO_TRY(fo_comm_start(c, k, &c->open[c->opens]));
	c->opens++;
	return c->groups ? FO_OK : wait_for_all(c);
}

struct fo_comm_call fo_comm_bytes(enum fo_comm_kind kind, const void *from, void *to, size_t n, int peer)
{
	/* Any type of one byte will do. */
	return (struct fo_comm_call){
		.kind = kind, .from = from, .to = to, .n = (int64_t)n, .dtype = FO_E4M3, .peer = peer
	};
}

fo_status fo_comm_call(struct fo_comm *c, const struct fo_comm_call *k)
{
	if (!c->transport->call)
		return start_and_wait(c, k);
	FO_TRY(check_call(c, k));
	if (!moves(c, k))
		return FO_OK;
	FO_TRY(c->transport->call(c, k));
	c->received[k->kind] += fo_comm_wire_bytes(k, c->rank, c->ranks);
	return FO_OK;
}

fo_status fo_comm_start(struct fo_comm *c, const struct fo_comm_call *k, struct fo_comm_request *r)
{
	*r = (struct fo_comm_request){ 0 };
	if (!c->transport->start)
		return fo_fail(FO_EUNSUPPORTED, "%s puts calls into streams", c->transport->name);
	FO_TRY(check_call(c, k));
	return moves(c, k) ? c->transport->start(c, k, r) : FO_OK;
}

fo_status fo_comm_test(struct fo_comm *c, struct fo_comm_request *r, bool *done)
{
	*done = !r->state;
	return *done ? FO_OK : c->transport->test(c, r, done);
}

fo_status fo_comm_split(struct fo_comm *c, int colour, struct fo_comm **out)
{
	if (!c->transport->split)
		return fo_fail(FO_EUNSUPPORTED, "groups of ranks over %s cannot be split", c->transport->name);
	if (colour < 0)
		return fo_fail(FO_EARG, "colour %d of a group of ranks: expected 0 or more", colour);
	return c->transport->split(c, colour, out);
}

int64_t fo_comm_part(const struct fo_comm_call *k, int rank, int ranks, int64_t *begin)
{
	int64_t from = 0;
	if (k->kind == FO_COMM_ALL_REDUCE) {
		from = k->n * rank / ranks;
		*begin = from;
		return k->n * (rank + 1) / ranks - from;
	}
	for (int r = 0; r < rank; r++)
		from += k->part ? k->part[r] : k->n;
	*begin = from;
	return k->part ? k->part[rank] : k->n;
}

int64_t fo_comm_received_by(const struct fo_comm *c, enum fo_comm_kind k) { return c->received[k]; }
int64_t fo_comm_received(const struct fo_comm *c)
{
	int64_t sum = 0;
	for (int k = 0; k < FO_COMM_KINDS; k++)
		sum += c->received[k];
	return sum;
}

int64_t fo_comm_wire_bytes(const struct fo_comm_call *k, int rank, int ranks)
{
	int64_t size = (int64_t)fo_dtype_bytes(k->narrow ? FO_BF16 : k->dtype), begin,
		own = fo_comm_part(k, rank, ranks, &begin), n = 0;
	const int64_t last = fo_comm_part(k, ranks - 1, ranks, &begin), others = begin + last - own;
	switch (k->kind) {
	case FO_COMM_ALL_REDUCE: n = own * (ranks - 1) + others; break;
	case FO_COMM_REDUCE_SCATTER: n = own * (ranks - 1); break;
	case FO_COMM_ALL_GATHER:
	case FO_COMM_ALL_TO_ALL: n = others; break;
	case FO_COMM_BROADCAST: n = rank == k->peer ? 0 : k->n; break;
	case FO_COMM_SHIFT:
	case FO_COMM_RECV: n = k->n; break;
	case FO_COMM_SEND:
	case FO_COMM_KINDS: break;
	}
	return n * size;
}

fo_status fo_comm_group_begin(struct fo_comm *c)
{
	if (c->transport->group)
		FO_TRY(c->transport->group(c, false));
	c->groups++;
	return FO_OK;
}
fo_status fo_comm_group_end(struct fo_comm *c)
{
	if (!c->groups)
		return fo_fail(FO_EARG, "the end of a group of calls that was not begun");
	c->groups--;
	if (c->transport->group)
		return c->transport->group(c, true);
	return c->groups ? FO_OK : wait_for_all(c);
}
fo_status fo_comm_alloc(struct fo_comm *c, size_t bytes, void **out)
{
	if (c->transport->alloc)
		return c->transport->alloc(c, bytes ? bytes : 1, out);
	*out = fo_xmalloc(bytes ? bytes : 1);
	return FO_OK;
}
void fo_comm_release(struct fo_comm *c, void *memory)
{
	if (memory && c->transport->release)
		c->transport->release(c, memory);
	else
		free(memory);
}
fo_status fo_comm_check(struct fo_comm *c) { return c->transport->check(c); }
void fo_comm_idle(struct fo_comm *c, bool idle)
{
	if (c && c->transport->idle)
		c->transport->idle(c, idle);
}

bool fo_comm_listen(struct fo_comm *c, void (*moved)(void *ctx), void *ctx)
{
	if (!c->transport->listen)
		return false;
	c->transport->listen(c, moved, ctx);
	return true;
}

void fo_comm_abort(struct fo_comm *c) { c->transport->abort(c); }
void fo_comm_close(struct fo_comm *c)
{
	if (!c)
		return;
	free(c->open);
	c->transport->close(c);
}
