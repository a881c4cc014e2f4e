/* Ranks as processes: a task goes to all of them over a communicator that has nothing else, and they agree on how it
 * went. That takes two broadcasts and a sum of two numbers, and more only where there is something to say.
 *
 * The communicator of the steps is given up when a task fails, this one is not: the cause comes to all ranks, which
 * leave with it. */
#include "train/carrier.h"

#include "base/clock.h"
#include "base/mem.h"
#include "record/rank_state.h"

#include <stdlib.h>
#include <string.h>

struct message {
	int32_t task, zero;
	int64_t n;
};

struct processes {
	struct fo_carrier c;
	struct fo_comm *tasks;
	struct message sent;
	struct fo_err how; /* the run ended */
};

static fo_status send_all(struct fo_comm *c, void *bytes, size_t n, int from)
{
	const struct fo_comm_call k = fo_comm_bytes(FO_COMM_BROADCAST, bytes, bytes, n, from);
	return fo_comm_call(c, &k);
}

/* ---- how a task went: every rank calls it with its own answer ---- */

enum { ECHO = 1, CAUSE = 2, RANKS = FO_COMM_RANKS_MAX };

/* The larger, the nearer to the cause; of equals the first rank's. Exact in fp32. */
static float weight_of(const struct fo_answer *a, int rank)
{
	if (a->error.st == FO_OK)
		return 0;
	return (float)((a->error.st == FO_ECOMM ? ECHO : CAUSE) * RANKS + (RANKS - 1 - rank));
}

/* *cause: the rank whose error has come to *error, on every rank; -1: all went well. all: room for each rank's answer,
 * on rank 0. */
static fo_status agree(struct fo_comm *c, const struct fo_answer *own, struct fo_answer *all, int *cause,
		       struct fo_err *error)
{
	const int rank = fo_comm_rank(c), ranks = fo_comm_ranks(c);
	float say[2] = { weight_of(own, rank), (float)own->n };
	*cause = -1;
	FO_TRY(fo_comm_call(c, &(struct fo_comm_call){ .kind = FO_COMM_ALL_REDUCE,
						       .op = FO_COMM_MAX,
						       .from = say,
						       .to = say,
						       .n = 2,
						       .dtype = FO_F32 }));
	if (say[0] > 0) {
		*cause = RANKS - 1 - (int)say[0] % RANKS;
		if (*cause == rank)
			*error = own->error;
		FO_TRY(send_all(c, error, sizeof *error, *cause));
	}
	const size_t n = (size_t)say[1];
	if (!n)
		return FO_OK;
	unsigned char *bytes = fo_xmalloc((size_t)ranks * n);
	unsigned char mine[FO_ANSWER_BYTES] = { 0 };
	memcpy(mine, own->bytes, own->n);
	const struct fo_comm_call k = fo_comm_bytes(FO_COMM_ALL_GATHER, mine, bytes, n, 0);
	fo_status st = fo_comm_call(c, &k);
	for (int i = 1; all && st == FO_OK && i < ranks; i++)
		fo_answer_put(&all[i], bytes + (size_t)i * n, n);
	free(bytes);
	return st;
}

/* ---- rank 0 ---- */

static struct processes *of(struct fo_carrier *c) { return (struct processes *)(void *)c; }

static fo_status begin(struct fo_carrier *c, enum fo_task task, const void *bytes, size_t n)
{
	struct processes *p = of(c);
	p->sent = (struct message){ .task = (int32_t)task, .n = (int64_t)n };
	FO_TRY(send_all(p->tasks, &p->sent, sizeof p->sent, 0));
	return n ? send_all(p->tasks, (void *)(uintptr_t)bytes, n, 0) : FO_OK;
}

/* As send_all by rank 0, for so long. What was sent stays where it is until the communicator is closed. */
static fo_status send_within(struct fo_comm *c, void *bytes, size_t n, double seconds)
{
	const struct fo_comm_call k = fo_comm_bytes(FO_COMM_BROADCAST, bytes, bytes, n, 0);
	const int64_t since = fo_now_ns();
	struct fo_comm_request q;
	bool done = false;
	FO_TRY(fo_comm_start(c, &k, &q));
	for (;;) {
		FO_TRY(fo_comm_test(c, &q, &done));
		if (done)
			return FO_OK;
		if ((double)(fo_now_ns() - since) * 1e-9 > seconds)
			return fo_fail(FO_ECOMM, "some rank has not taken the end of the job within %.0f s", seconds);
		fo_comm_rest(since, 0);
	}
}

fo_status fo_carrier_finish(struct fo_carrier *c, const struct fo_err *how, double seconds)
{
	struct processes *p = of(c);
	p->how = *how;
	p->sent = (struct message){ .task = FO_TASK_END, .n = (int64_t)sizeof p->how };
	FO_TRY(send_within(p->tasks, &p->sent, sizeof p->sent, seconds));
	return send_within(p->tasks, &p->how, sizeof p->how, seconds);
}

static fo_status end(struct fo_carrier *c)
{
	struct fo_err error;
	int cause;
	for (int i = 0; i < c->ranks; i++)
		c->answer[i].n = 0;
	fo_member_name(c->self, &c->answer[0].error);
	FO_TRY(agree(of(c)->tasks, &c->answer[0], c->answer, &cause, &error));
	if (cause < 0)
		return FO_OK;
	/* An error of this rank is told at the run's end. */
	if (cause && fo_task_ends_job((enum fo_task)of(c)->sent.task))
		fo_rank_state_failed(c->self->state, FO_ECOMM, error.text);
	return fo_err_raise(&error);
}

static void close_carrier(struct fo_carrier *c)
{
	free(c->answer);
	free(of(c));
}

static const struct fo_carrier_way way = { begin, end, close_carrier };

void fo_carrier_processes(struct fo_carrier **out, struct fo_member *self, struct fo_comm *tasks)
{
	struct processes *p = fo_xmalloc(sizeof *p);
	p->c = (struct fo_carrier){ .way = &way, .ranks = self->ranks, .self = self };
	p->c.answer = fo_xmalloc((size_t)self->ranks * sizeof *p->c.answer);
	p->tasks = tasks;
	*out = &p->c;
}

/* ---- the other ranks ---- */

fo_status fo_carrier_serve(struct fo_member *m, struct fo_comm *tasks)
{
	struct fo_answer *answer = fo_xmalloc(sizeof *answer);
	struct fo_err *error = fo_xmalloc(sizeof *error);
	unsigned char *bytes = NULL;
	struct message got = { 0 };
	fo_status st = FO_OK;
	while (st == FO_OK) {
		int cause;
		st = send_all(tasks, &got, sizeof got, 0);
		if (st != FO_OK)
			break;
		if (got.task < 0 || got.task >= FO_TASKS || got.n < 0) {
			st = fo_fail(FO_EBUG, "task %d of %lld bytes came", (int)got.task, (long long)got.n);
			break;
		}
		bytes = fo_xrealloc(bytes, (size_t)got.n + 1);
		if (got.n)
			st = send_all(tasks, bytes, (size_t)got.n, 0);
		if (st != FO_OK || got.task == FO_TASK_END)
			break;
		(void)fo_member_work(m, (enum fo_task)got.task, bytes, (size_t)got.n, answer);
		fo_member_name(m, &answer->error);
		st = agree(tasks, answer, NULL, &cause, error);
		if (st == FO_OK && cause >= 0 && cause != m->number && fo_task_ends_job((enum fo_task)got.task))
			fo_rank_state_failed(m->state, FO_ECOMM, error->text);
	}
	if (st == FO_OK && got.n == (int64_t)sizeof *error) { /* the end, as rank 0 sees it */
		memcpy(error, bytes, sizeof *error);
		st = error->st == FO_OK ? FO_OK : fo_err_raise(error);
		m->ended = true;
	}
	free(bytes);
	free(error);
	free(answer);
	return st;
}
