/* The waits are enough, and each is needed.
 *
 * Programs whose operations are scattered at random over four lanes, with random delays, give the bits of the plain
 * program. An oracle of this file, which knows nothing of unroll and plan, lists every pair of instances that touch the
 * same bytes and checks that lane order and waits put each in order. Then each wait is dropped in turn: instances run
 * in the worst order that is legal without it, and the numbers must change. */
#include "support/step.h"
#include "base/clock.h"
#include "pass/pass.h"
#include "support/must.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct fo_exec_options options(int isa, uint64_t delays)
{
	/* One thread: a kernel's bits may depend on its number of threads, and lanes beside compute have one. */
	return (struct fo_exec_options){
		.isa = (enum fo_isa)isa, .threads = 1, .poison = true, .delay_seed = delays, .timeline_steps = 1
	};
}

/* Host operations stay where they are: ports are served in order. */
static void scatter(struct fo_program *p, uint64_t seed)
{
	static const uint8_t lane[] = { FO_LANE_COMPUTE, FO_LANE_COPY, FO_LANE_TP, FO_LANE_WGRAD };
	uint64_t k = 0;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			if (fo_op_info(p->block[b].op[i].kind)->cls != FO_CLASS_HOST)
				p->block[b].op[i].lane = lane[fo_rng_u64(seed, k++) % 4];
}

/* The plain program never writes what others only read, but for weights, and those are ordered through the norm of all
 * gradients. A second rotation of the keys after attention has read them must wait for a reader. */
static void rotate_again(struct fo_program *p)
{
	for (int b = 0; b < p->nblock; b++) {
		int rope = 0, attention = 0;
		if (p->block[b].unit != FO_UNIT_LAYER || p->block[b].role != FO_ROLE_FORWARD)
			continue;
		for (int i = 0; i < p->block[b].n; i++) {
			rope = p->block[b].op[i].kind == FO_OP_rope ? i : rope;
			attention = p->block[b].op[i].kind == FO_OP_attention ? i : attention;
		}
		struct fo_op *o = fo_op_insert(p, b, attention + 1, FO_OP_rope, FO_FORWARD, FO_LANE_COMPUTE);
		uint32_t id = o->id;
		*o = p->block[b].op[rope];
		o->id = id;
	}
	must(fo_program_verify(p, "a second rotation"));
}

/* seed 0: operations stay on their lanes. */
static void make(struct step_rig *r, const struct step_batch *b, const struct fo_model *m, enum fo_numerics precision,
		 uint64_t seed, struct fo_passes pass, const struct fo_exec_options *o)
{
	struct fo_program p;
	struct fo_lowering low = step_lowering(b, precision, FO_MODE_TRAIN);
	low.pass = pass;
	must(fo_pass_build(&p, m, &low));
	rotate_again(&p);
	if (seed)
		scatter(&p, seed);
	step_rig_new(r, &p, b, o);
}

struct outcome {
	double loss[3];
	uint64_t hash;
};

static void run_steps(struct step_rig *r, struct outcome *out)
{
	memset(out, 0, sizeof *out);
	for (int i = 0; i < 3; i++) {
		step_rig_at(r, i + 1);
		must(fo_exec_step(r->exec, i));
		out->loss[i] = r->loss[0];
	}
	out->hash = step_rig_hash(r);
}

static void test_scattered(void **state)
{
	(void)state;
	struct step_batch b;
	struct fo_model m = step_model(2, 32, 4, 2, 48, 64, false), tied = step_model(2, 32, 4, 1, 48, 64, true);
	step_batch_random(&b, 12, 2, 2, 64, 2, 5);
	for (int k = 0; k < 3; k++) {
		int isa = k == 1 ? FO_ISA_REF : FO_ISA_COUNT - 1;
		while (!fo_isa_have((enum fo_isa)isa))
			isa--;
		enum fo_numerics precision = k == 2 ? FO_PRECISION_BF16 : FO_PRECISION_F32;
		const struct fo_model *model = k == 1 ? &tied : &m;
		struct step_rig r;
		struct outcome plain, other;
		struct fo_exec_options o = options(isa, 0);
		make(&r, &b, model, precision, 0, (struct fo_passes){ 0 }, &o);
		run_steps(&r, &plain);
		assert_true(plain.loss[2] < plain.loss[0]); /* it learns this batch: the numbers mean something */
		step_rig_free(&r);
		for (uint64_t seed = 1; seed <= 20; seed++) {
			o.delay_seed = seed;
			/* Every fifth time only delays: the host lane alone runs beside compute. */
			make(&r, &b, model, precision, seed % 5 ? seed : 0,
			     (struct fo_passes){ .offload = seed % 2, .wgrad_lane = seed % 3 == 0 }, &o);
			run_steps(&r, &other);
			if (memcmp(&plain, &other, sizeof plain))
				fail_msg("case %d seed %d: losses %.17g %.17g, expected %.17g %.17g, or other weights",
					 k, (int)seed, other.loss[0], other.loss[2], plain.loss[0], plain.loss[2]);
			step_rig_free(&r);
		}
	}
	step_batch_free(&b);
}

/* ---- the oracle ---- */

struct graph {
	const struct fo_program *p;
	const struct fo_unrolled *u;
	int *previous;                /* of the same lane; -1 none */
	int (*before)[FO_LANE_COUNT]; /* the newest instance of each lane that is certain to have finished before i
					 begins */
	struct pair {
		int i, j;
		bool reuse, accumulate;
	} * pair; /* must not change places */
	int pairs;
	size_t cap;
};

static int lane_of(const struct graph *g, int i) { return fo_instance_op(g->p, g->u, i)->lane; }

/* skip_at, skip_lane: the wait that is left out; -1 none. */
static void order_known(struct graph *g, int skip_at, int skip_lane)
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

static bool ordered(const struct graph *g, const struct pair *x) { return g->before[x->j][lane_of(g, x->i)] >= x->i; }

static const struct fo_life *life_of(const struct graph *g, int i, int k)
{
	return &g->u->life[g->u->life_of[g->u->arg_begin[i] + k]];
}

static bool in_host_memory(const struct graph *g, const struct fo_life *l)
{
	return g->p->buf[l->buf].home == FO_HOME_HOST;
}

static bool rectangles_meet(const struct fo_operand *x, const struct fo_operand *y)
{
	return x->r0 < y->r0 + y->nr && y->r0 < x->r0 + x->nr && x->c0 < y->c0 + y->nc && y->c0 < x->c0 + x->nc;
}

static bool conflict(const struct graph *g, int i, int j, struct pair *out)
{
	const struct fo_op *a = fo_instance_op(g->p, g->u, i), *b = fo_instance_op(g->p, g->u, j);
	bool found = false;
	*out = (struct pair){ i, j, true, true };
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

static void graph_make(struct graph *g, const struct fo_program *p, const struct fo_unrolled *u)
{
	int newest[FO_LANE_COUNT];
	*g = (struct graph){ .p = p, .u = u };
	g->previous = fo_xmalloc((size_t)u->n * sizeof *g->previous);
	g->before = fo_xmalloc((size_t)u->n * sizeof *g->before);
	memset(newest, -1, sizeof newest);
	for (int i = 0; i < u->n; i++) {
		g->previous[i] = newest[lane_of(g, i)];
		newest[lane_of(g, i)] = i;
	}
	for (int j = 0; j < u->n; j++)
		for (int i = 0; i < j; i++) {
			struct pair x;
			if (lane_of(g, i) == lane_of(g, j) || !conflict(g, i, j, &x))
				continue;
			fo_array_room(&g->pair, &g->cap, (size_t)g->pairs, sizeof x);
			g->pair[g->pairs++] = x;
		}
}

static void graph_free(struct graph *g)
{
	free(g->previous);
	free(g->before);
	free(g->pair);
}

static void test_enough(void **state)
{
	(void)state;
	struct step_batch b;
	struct fo_model m = step_model(3, 32, 4, 2, 48, 64, true);
	step_batch_random(&b, 8, 1, 3, 64, 1, 6);
	for (uint64_t seed = 0; seed <= 20; seed++) {
		struct fo_program p;
		struct fo_unrolled u;
		struct graph g;
		struct fo_lowering low = step_lowering(&b, FO_PRECISION_BF16, FO_MODE_TRAIN);
		low.pass.offload = (int64_t)seed % 3;
		low.pass.wgrad_lane = seed % 4 == 0;
		must(fo_pass_build(&p, &m, &low));
		rotate_again(&p);
		if (seed)
			scatter(&p, seed);
		must(fo_unroll(&p, &u));
		fo_plan(&p, &u);
		fo_prune_waits(&p, &u);
		graph_make(&g, &p, &u);
		order_known(&g, -1, -1);
		for (int k = 0; k < g.pairs; k++)
			if (!ordered(&g, &g.pair[k]))
				fail_msg("seed %d: instances %d and %d touch the same bytes and nothing orders them",
					 (int)seed, g.pair[k].i, g.pair[k].j);
		assert_true(g.pairs > u.n / 2);
		graph_free(&g);
		fo_unrolled_fini(&u);
		fo_program_fini(&p);
	}
	step_batch_free(&b);
}

/* ---- dropping each wait ---- */

/* Everything that instance j needs when the wait (skip_at, skip_lane) is gone, then j, then the rest: legal without it.
 */
static void worst_order(const struct graph *g, int j, int skip_at, int skip_lane, int *order)
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

struct result {
	bool finished;
	double loss[2], scale[2];
	uint64_t hash;
};

static void run_order(struct step_rig *r, const int *order, const void *start, struct result *out)
{
	memset(out, 0, sizeof *out);
	memset(r->loss, 0, sizeof r->loss);
	memset(r->scale, 0, sizeof r->scale);
	step_rig_restore(r, start);
	memset(r->arena, 0xff, (size_t)fo_exec_unrolled(r->exec)->arena_bytes);
	if (fo_exec_step_in_order(r->exec, order) != FO_OK)
		return;
	memcpy(out->loss, r->loss, sizeof out->loss);
	memcpy(out->scale, r->scale, sizeof out->scale);
	out->hash = step_rig_hash(r);
	out->finished = true;
}

/* In a process of its own: an index that has not arrived yet may well lead outside. That, too, is noticed. */
static bool same_numbers(struct step_rig *r, const int *order, const void *start, const struct result *want,
			 struct result *shared)
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
		run_order(r, order, start, shared);
		_exit(0);
	}
	assert_true(child > 0);
	int how;
	assert_int_equal(waitpid(child, &how, 0), child);
	return !memcmp(shared, want, sizeof *want);
}

struct tally {
	int waits, data, reuse, idle, commuting, stale;
};

/* Instance i fetches what lies already where it puts it, for nobody used these bytes meanwhile. */
static bool fetches_what_is_there(const struct graph *g, int i)
{
	if (fo_instance_op(g->p, g->u, i)->kind != FO_OP_fetch)
		return false;
	const struct fo_life *to = life_of(g, i, 1);
	for (int k = 0; k < g->u->nlife; k++) {
		const struct fo_life *l = &g->u->life[k];
		if (l != to && l->buf == to->buf && l->layer == to->layer && l->mb == to->mb)
			return l->offset == to->offset;
	}
	return false;
}

static void drop_each(uint64_t seed, struct fo_passes pass, const struct fo_model *m, struct tally *t)
{
	struct step_batch b;
	struct step_rig r;
	struct graph g;
	struct result want,
		*shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct fo_exec_options o = options(FO_ISA_REF, 0);
	step_batch_random(&b, 6, 2, 2, 24, 2, seed);
	make(&r, &b, m, FO_PRECISION_F32, seed, pass, &o);
	const struct fo_unrolled *u = fo_exec_unrolled(r.exec);
	void *start = step_rig_save(&r);
	int *order = fo_xmalloc((size_t)u->n * sizeof *order);
	must(fo_exec_step(r.exec, 0));
	graph_make(&g, &r.program, u);
	for (int i = 0; i < u->n; i++)
		order[i] = i;
	run_order(&r, order, start, &want);
	assert_true(want.finished && want.loss[0] == want.loss[0]);
	assert_true(same_numbers(&r, order, start, &want, shared));
	for (int i = 0; i < u->n; i++)
		for (int l = 0; l < FO_LANE_COUNT; l++) {
			if (u->wait[i][l] < 0)
				continue;
			t->waits++;
			order_known(&g, i, l);
			int k = 0;
			while (k < g.pairs && ordered(&g, &g.pair[k]))
				k++;
			if (k == g.pairs) { /* no two instances that it alone orders touch the same bytes */
				t->idle++;
				continue;
			}
			bool data = false, commutes = true, noticed = false;
			for (; k < g.pairs && !noticed; k++) {
				if (ordered(&g, &g.pair[k]))
					continue;
				data |= !g.pair[k].reuse;
				commutes &= g.pair[k].accumulate;
				worst_order(&g, g.pair[k].j, i, l, order);
				noticed = !same_numbers(&r, order, start, &want, shared);
			}
			t->data += data;
			t->reuse += !data;
			t->commuting += !noticed && commutes;
			bool stale = !noticed && !commutes && fetches_what_is_there(&g, u->wait[i][l]);
			t->stale += stale;
			if (!noticed && !commutes && !stale)
				fail_msg("seed %d: instance %d (%s) may drop its wait for %d (%s): the numbers stay",
					 (int)seed, i, fo_op_info(fo_instance_op(&r.program, u, i)->kind)->name,
					 u->wait[i][l],
					 fo_op_info(fo_instance_op(&r.program, u, u->wait[i][l])->kind)->name);
		}
	graph_free(&g);
	free(order);
	free(start);
	step_rig_free(&r);
	step_batch_free(&b);
	munmap(shared, sizeof *shared);
}

static void test_each_needed(void **state)
{
	(void)state;
	struct tally t = { 0 };
	struct fo_model m = step_model(2, 16, 2, 1, 24, 24, false), tied = step_model(1, 16, 2, 2, 24, 24, true);
	const struct fo_passes none = { 0 };
	drop_each(1, none, &m, &t);
	drop_each(2, none, &tied, &t);
	drop_each(3, none, &tied, &t);
	print_message("%d waits dropped one by one: noticed %d of data, %d of reused bytes; %d commuting sums, %d that "
		      "order nothing\n",
		      t.waits, t.data - t.commuting, t.reuse, t.commuting, t.idle);
	assert_true(t.data > 50 && t.reuse > 5);
	/* A sum of doubles may come out the same in another order (the oracle of test_enough still misses its order). A
	 * free range carries the accesses of all the generations that it was made of, so a small one placed there may
	 * wait for neighbours that it does not touch. Both must stay rare. */
	assert_true(t.commuting * 10 <= t.waits);
	assert_true(t.idle * 5 <= t.waits);
}

/* Copies to host memory and back beside compute, as the pass made them. */
static void test_offload_needed(void **state)
{
	(void)state;
	struct tally t = { 0 };
	struct fo_model m = step_model(4, 16, 2, 1, 24, 24, false);
	drop_each(0, (struct fo_passes){ .offload = 3 }, &m, &t);
	print_message("%d waits dropped one by one: noticed %d of data, %d of reused bytes; %d commuting sums, %d that "
		      "order nothing, %d whose numbers lay there already\n",
		      t.waits, t.data - t.commuting - t.stale, t.reuse, t.commuting, t.idle, t.stale);
	assert_true(t.data > 20 && t.reuse > 0 && t.stale * 5 <= t.waits && t.idle * 5 <= t.waits);
}

/* Weight gradients beside the rest of backward, as the pass and the plan have them. */
static void test_wgrad_needed(void **state)
{
	(void)state;
	struct fo_model m = step_model(3, 16, 2, 1, 24, 24, true);
	m.attention_bias = true;
	for (int k = 0; k < 2; k++) {
		struct tally t = { 0 };
		drop_each(0,
			  (struct fo_passes){ .wgrad_lane = 1,
					      .merge_qkv = 1,
					      .merge_gate_up = k,
					      .fuse_loss = 5 * k,
					      .fuse_elementwise = k },
			  &m, &t);
		print_message("%d waits dropped one by one: noticed %d of data, %d of reused bytes; %d commuting sums, "
			      "%d that order nothing\n",
			      t.waits, t.data - t.commuting, t.reuse, t.commuting, t.idle);
		assert_true(t.data - t.commuting > 10 && t.reuse > 10 && t.commuting * 10 <= t.waits &&
			    t.idle * 5 <= t.waits);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_scattered), cmocka_unit_test(test_enough),
					    cmocka_unit_test(test_each_needed), cmocka_unit_test(test_offload_needed),
					    cmocka_unit_test(test_wgrad_needed) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
