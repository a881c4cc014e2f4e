#include "support/interleave.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "train/exec_int.h"

#include <stdlib.h>
#include <string.h>

struct lane {
	struct fo_exec *e;
	int rank, id;
	int *instance, n, next;
	bool on_its_way;
	struct fo_transfer transfer;
	uint64_t turn; /* drawn: who can go on does so in this order */
};

struct interleave {
	int ranks, lanes;
	struct lane *lane;              /* those that have instances, of all ranks */
	int32_t (*done)[FO_LANE_COUNT]; /* by rank: newest instance that is over */
	struct lane **turn;             /* in their order */
	struct fo_exec **exec;
	int64_t ran;
	uint64_t seed, draws;
};

static uint64_t draw(struct interleave *v) { return fo_rng_u64(v->seed, v->draws++); }

static void add_lanes(struct interleave *v, int rank)
{
	struct fo_exec *e = v->exec[rank];
	int count[FO_LANE_COUNT] = { 0 };
	for (int i = 0; i < e->u.n; i++)
		count[fo_instance_op(e->p, &e->u, i)->lane]++;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		if (!count[l])
			continue;
		struct lane *ln = &v->lane[v->lanes++];
		*ln = (struct lane){ .e = e, .rank = rank, .id = l };
		ln->instance = fo_xmalloc((size_t)count[l] * sizeof *ln->instance);
		ln->transfer.part = fo_xmalloc((size_t)e->p->ranks * sizeof *ln->transfer.part);
		for (int i = 0; i < e->u.n; i++)
			if (fo_instance_op(e->p, &e->u, i)->lane == l)
				ln->instance[ln->n++] = i;
	}
}

struct interleave *interleave_new(struct fo_exec *const *exec, int ranks)
{
	struct interleave *v = fo_xmalloc(sizeof *v);
	*v = (struct interleave){ .ranks = ranks };
	v->lane = fo_xmalloc((size_t)ranks * FO_LANE_COUNT * sizeof *v->lane);
	v->done = fo_xmalloc((size_t)ranks * sizeof *v->done);
	v->exec = fo_xmalloc((size_t)ranks * sizeof(struct fo_exec *));
	memcpy(v->exec, exec, (size_t)ranks * sizeof(struct fo_exec *));
	for (int r = 0; r < ranks; r++)
		add_lanes(v, r);
	v->turn = fo_xmalloc((size_t)v->lanes * sizeof(struct lane *));
	for (int i = 0; i < v->lanes; i++)
		v->turn[i] = &v->lane[i];
	return v;
}

void interleave_free(struct interleave *v)
{
	for (int i = 0; i < v->lanes; i++) {
		free(v->lane[i].instance);
		free(v->lane[i].transfer.part);
	}
	free(v->lane);
	free(v->turn);
	free(v->done);
	free(v->exec);
	free(v);
}

int64_t interleave_ran(const struct interleave *v) { return v->ran; }

static bool is_ready(const struct interleave *v, const struct lane *ln)
{
	const int32_t *wait = ln->e->u.wait[ln->instance[ln->next]], *done = v->done[ln->rank];
	for (int l = 0; l < FO_LANE_COUNT; l++)
		if (l != ln->id && wait[l] >= 0 && done[l] < wait[l])
			return false;
	return true;
}

/* The lane's next instance, or a look at what it has on its way. *moved: an instance was begun or is over. */
static fo_status go_on(struct interleave *v, struct lane *ln, bool *moved)
{
	const int id = ln->instance[ln->next];
	bool done = true;
	*moved = false;
	if (ln->on_its_way) {
		FO_TRY(fo_exec_transfer_test(ln->e, id, &ln->transfer, &done));
	} else if (!is_ready(v, ln)) {
		return FO_OK;
	} else if (fo_exec_is_comm(fo_instance_op(ln->e->p, &ln->e->u, id))) {
		FO_TRY(fo_exec_transfer_start(ln->e, id, &ln->transfer));
		ln->on_its_way = *moved = true;
		return FO_OK;
	} else {
		FO_TRY(ln->e->engine->run(ln->e, id));
	}
	if (!done)
		return FO_OK;
	ln->on_its_way = false;
	v->done[ln->rank][ln->id] = id;
	ln->next++;
	v->ran++;
	*moved = true;
	return FO_OK;
}

/* Who goes first from now on. Half of the time a whole rank comes late, else each lane has a turn of its own. */
static void draw_turns(struct interleave *v)
{
	bool by_rank = draw(v) % 2;
	uint64_t base = draw(v);
	for (int i = 0; i < v->lanes; i++)
		v->lane[i].turn = by_rank ? fo_rng_u64(base, (uint64_t)v->lane[i].rank) : draw(v);
	for (int i = 1; i < v->lanes; i++) { /* few: insertion */
		struct lane *ln = v->turn[i];
		int k = i;
		for (; k > 0 && v->turn[k - 1]->turn > ln->turn; k--)
			v->turn[k] = v->turn[k - 1];
		v->turn[k] = ln;
	}
}

struct begin {
	struct fo_exec *e;
	pthread_t thread;
	struct fo_err error;
};

static void *begin_rank(void *arg)
{
	struct begin *b = arg;
	fo_err_save(&b->error, fo_exec_begin(b->e));
	return NULL;
}

/* By calls that wait: that takes threads. */
fo_status interleave_begin(struct fo_exec *const *exec, int ranks)
{
	bool calls = false;
	fo_status st = FO_OK;
	for (int r = 0; r < ranks; r++)
		for (int i = 0; i < exec[r]->u.n && !exec[r]->derived; i++) {
			const struct fo_op *o = fo_instance_op(exec[r]->p, &exec[r]->u, i);
			calls |= o->phase == FO_DERIVE && fo_exec_is_comm(o);
		}
	if (!calls) {
		for (int r = 0; r < ranks; r++)
			FO_TRY(fo_exec_begin(exec[r]));
		return FO_OK;
	}
	struct begin *b = fo_xmalloc((size_t)ranks * sizeof *b);
	for (int r = 0; r < ranks; r++) {
		b[r] = (struct begin){ .e = exec[r] };
		FO_TRY(fo_thread_start(&b[r].thread, begin_rank, &b[r], "a rank that begins"));
	}
	for (int r = 0; r < ranks; r++) {
		pthread_join(b[r].thread, NULL);
		st = b[r].error.st != FO_OK ? fo_err_raise(&b[r].error) : st;
	}
	free(b);
	return st;
}

enum {
	TURNS = 24, /* actions between two draws, on average */
	LOOKS = 100000
};

fo_status interleave_step(struct interleave *v, uint64_t seed)
{
	int left = v->lanes;
	v->seed = seed;
	v->draws = 0;
	memset(v->done, -1, (size_t)v->ranks * sizeof *v->done);
	for (int i = 0; i < v->lanes; i++)
		v->lane[i].next = 0, v->lane[i].on_its_way = false;
	FO_TRY(interleave_begin(v->exec, v->ranks));
	for (int idle = 0; left;) {
		bool moved = false;
		if (draw(v) % TURNS == 0)
			draw_turns(v);
		for (int i = 0; i < v->lanes && !moved; i++) {
			struct lane *ln = v->turn[i];
			if (ln->next == ln->n)
				continue;
			FO_TRY(go_on(v, ln, &moved));
			left -= moved && ln->next == ln->n;
		}
		/* A look at a transfer moves a part of its data: the others' looks may end it. */
		idle = moved ? 0 : idle + 1;
		if (idle > LOOKS)
			return fo_fail(FO_EBUG, "no rank can go on: %d lanes have instances left", left);
	}
	return FO_OK;
}
