#include "support/waits.h"
#include "base/mem.h"
#include "support/must.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int lane_of(const struct waits *g, int i) { return fo_instance_op(g->p, g->u, i)->lane; }

/* skip_at, skip_lane: the wait that is left out; -1 none. */
void waits_order_known(struct waits *g, int skip_at, int skip_lane)
{
	for (int i = 0; i < g->u->n; i++) {
		int *b = g->before[i];
		memset(b, -1, sizeof g->before[i]);
		for (int l = -1; l < FO_LANE_COUNT; l++) {
			int w = l < 0 ? g->previous[i] : g->u->wait[i][l];
			if (w < 0 || (i == skip_at && l == skip_lane))
				continue;
			for (int k = 0; k < FO_LANE_COUNT; k++)
				if (g->before[w][k] > b[k])
					b[k] = g->before[w][k];
			if (w > b[lane_of(g, w)])
				b[lane_of(g, w)] = w;
		}
	}
}

bool waits_ordered(const struct waits *g, const struct waits_pair *x)
{
	return g->before[x->j][lane_of(g, x->i)] >= x->i;
}

static const struct fo_life *life_of(const struct waits *g, int i, int k)
{
	return &g->u->life[g->u->life_of[g->u->arg_begin[i] + k]];
}

static bool in_host_memory(const struct waits *g, const struct fo_life *l)
{
	return g->p->buf[l->buf].home == FO_HOME_HOST;
}

static bool rectangles_meet(const struct fo_operand *x, const struct fo_operand *y)
{
	return x->r0 < y->r0 + y->nr && y->r0 < x->r0 + x->nr && x->c0 < y->c0 + y->nc && y->c0 < x->c0 + x->nc;
}

static bool conflict(const struct waits *g, int i, int j, struct waits_pair *out)
{
	const struct fo_op *a = fo_instance_op(g->p, g->u, i), *b = fo_instance_op(g->p, g->u, j);
	bool found = false;
	*out = (struct waits_pair){ i, j, true, true };
	for (int x = 0; x < a->n; x++)
		for (int y = 0; y < b->n; y++) {
			const struct fo_life *p = life_of(g, i, x), *q = life_of(g, j, y);
			if (!fo_access_writes(a->arg[x].access) && !fo_access_writes(b->arg[y].access))
				continue;
			bool same = p->persists ? q->persists && p->buf == q->buf && p->layer == q->layer : p == q;
			bool meet = same ? rectangles_meet(&a->arg[x], &b->arg[y])
					 : !p->persists && !q->persists &&
						    in_host_memory(g, p) == in_host_memory(g, q) &&
						    p->offset < q->offset + q->bytes &&
						    q->offset < p->offset + p->bytes;
			if (!meet)
				continue;
			found = true;
			out->reuse &= !same;
			out->accumulate &= same && a->arg[x].access == FO_ACC && b->arg[y].access == FO_ACC;
		}
	return found;
}

void waits_make(struct waits *g, const struct fo_program *p, const struct fo_unrolled *u)
{
	int newest[FO_LANE_COUNT];
	*g = (struct waits){ .p = p, .u = u };
	g->previous = fo_xmalloc((size_t)u->n * sizeof *g->previous);
	g->before = fo_xmalloc((size_t)u->n * sizeof *g->before);
	memset(newest, -1, sizeof newest);
	for (int i = 0; i < u->n; i++) {
		g->previous[i] = newest[lane_of(g, i)];
		newest[lane_of(g, i)] = i;
	}
	for (int j = 0; j < u->n; j++)
		for (int i = 0; i < j; i++) {
			struct waits_pair x;
			if (lane_of(g, i) == lane_of(g, j) || !conflict(g, i, j, &x))
				continue;
			fo_array_room(&g->pair, &g->cap, (size_t)g->pairs, sizeof x);
			g->pair[g->pairs++] = x;
		}
}

void waits_free(struct waits *g)
{
	free(g->previous);
	free(g->before);
	free(g->pair);
}

/* ---- dropping each wait ---- */

/* Everything that instance j needs when the wait (skip_at, skip_lane) is gone, then j, then the rest: legal without it.
 */
static void worst_order(const struct waits *g, int j, int skip_at, int skip_lane, int *order)
{
	const struct fo_unrolled *u = g->u;
	bool *needed = fo_xmalloc((size_t)u->n * sizeof *needed);
	needed[j] = true;
	for (int i = j; i >= 0; i--) {
		if (!needed[i])
			continue;
		if (g->previous[i] >= 0)
			needed[g->previous[i]] = true;
		for (int l = 0; l < FO_LANE_COUNT; l++)
			if (u->wait[i][l] >= 0 && !(i == skip_at && l == skip_lane))
				needed[u->wait[i][l]] = true;
	}
	int n = 0;
	for (int pass = 1; pass >= 0; pass--)
		for (int i = 0; i < u->n; i++)
			if (needed[i] == pass)
				order[n++] = i;
	free(needed);
}

/* In a process of its own: an index that has not arrived yet may well lead outside. That, too, is noticed. */
static bool same_numbers(waits_run_fn *run, void *ctx, const int *order, const struct waits_result *want,
			 struct waits_result *shared)
{
	memset(shared, 0, sizeof *shared);
	fflush(NULL); /* or the child prints it again */
	pid_t child = fork();
	if (child == 0) {
		int null = open("/dev/null", O_WRONLY);
		dup2(null, 1);
		dup2(null, 2);
		for (int s = 1; s < 32; s++)
			signal(s, SIG_DFL); /* cmocka's handlers would go on with the tests here */
		alarm(10);
		run(ctx, order, shared);
		_exit(0);
	}
	assert_true(child > 0);
	int how;
	assert_int_equal(waitpid(child, &how, 0), child);
	return !memcmp(shared, want, sizeof *want);
}

/* Instance i copies what lies already where it puts it, for nobody used these bytes meanwhile: from host memory, or
 * weights of other ranks, gathered again. */
static bool copies_what_is_there(const struct waits *g, int i)
{
	const struct fo_op *o = fo_instance_op(g->p, g->u, i);
	if (o->kind != FO_OP_fetch && fo_op_info(o->kind)->wire != FO_WIRE_ALL_GATHER)
		return false;
	const struct fo_life *to = life_of(g, i, 1);
	for (int k = 0; k < g->u->nlife; k++) {
		const struct fo_life *l = &g->u->life[k];
		if (l != to && l->buf == to->buf && l->layer == to->layer && l->mb == to->mb && l->offset == to->offset)
			return true;
	}
	return false;
}

static bool is_comm(const struct waits *g, int i)
{
	return fo_op_info(fo_instance_op(g->p, g->u, i)->kind)->cls == FO_CLASS_COMM;
}

static const char *name_of(const struct waits *g, int i)
{
	return fo_op_info(fo_instance_op(g->p, g->u, i)->kind)->name;
}

void waits_drop_each(struct waits *g, bool comm, waits_run_fn *run, void *ctx, const char *label, struct waits_tally *t)
{
	const struct fo_unrolled *u = g->u;
	struct waits_result want = { 0 }, *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
							 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int *order = fo_xmalloc((size_t)u->n * sizeof *order);
	for (int i = 0; i < u->n; i++)
		order[i] = i;
	run(ctx, order, &want);
	assert_true(want.finished && want.loss[0] == want.loss[0]);
	assert_true(same_numbers(run, ctx, order, &want, shared));
	for (int i = 0; i < u->n; i++)
		for (int l = 0; l < FO_LANE_COUNT; l++) {
			int w = u->wait[i][l];
			if (w < 0 || (comm && !is_comm(g, i) && !is_comm(g, w)))
				continue;
			t->waits++;
			waits_order_known(g, i, l);
			int k = 0;
			while (k < g->pairs && waits_ordered(g, &g->pair[k]))
				k++;
			if (k == g->pairs) { /* no two instances that it alone orders touch the same bytes */
				t->idle++;
				continue;
			}
			bool data = false, commutes = true, noticed = false;
			for (; k < g->pairs && !noticed; k++) {
				if (waits_ordered(g, &g->pair[k]))
					continue;
				data |= !g->pair[k].reuse;
				commutes &= g->pair[k].accumulate;
				worst_order(g, g->pair[k].j, i, l, order);
				noticed = !same_numbers(run, ctx, order, &want, shared);
			}
			t->data += data;
			t->reuse += !data;
			t->commuting += !noticed && commutes;
			bool stale = !noticed && !commutes &&
				     (copies_what_is_there(g, w) || copies_what_is_there(g, i));
			t->stale += stale;
			if (!noticed && !commutes && !stale)
				fail_msg("%s: instance %d (%s) may drop its wait for %d (%s): the numbers stay", label,
					 i, name_of(g, i), w, name_of(g, w));
		}
	free(order);
	munmap(shared, sizeof *shared);
}

void waits_print(const struct waits_tally *t)
{
	print_message("%d waits dropped one by one: noticed %d of data, %d of reused bytes; %d commuting sums, %d that "
		      "order nothing, %d whose numbers lay there already\n",
		      t->waits, t->data - t->commuting - t->stale, t->reuse, t->commuting, t->idle, t->stale);
}
