/* Attention whose keys lie on several ranks, of every kernel set: blocks of all ranks of a ring, merged and added up as
 * pass cp does it, against attention over whole rows in double precision. Random rings, documents, windows, heads.
 *
 * Bound: as test_attention.c has it for the largest error of a tensor, from the error that `ref` has over whole rows,
 * times the root of the ranks, since each merge and each sum of a ring rounds once more. */
#include "base/count.h"
#include "check/engine/num.h"
#include "program/ring.h"
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { Q_, K_, V_, O_, LSE, DO_, DOC, DQ, DK, DV_, TENSORS };
static const int forward_order[] = { Q_, K_, V_, DOC, O_, LSE },
		 backward_order[] = { Q_, K_, V_, O_, LSE, DO_, DOC, DQ, DK, DV_ };
static const char *const tensor_name[TENSORS] = { "q", "k", "v", "o", "lse", "do", "doc", "dq", "dk", "dv" };

struct problem {
	int cp, chunk, rows, heads, group, dim, window, dtype, threads;
	bool documents;
};

/* The tensors of whole rows, or of one rank's tokens. */
struct world {
	struct fo_tensor t[TENSORS];
};

static int64_t tokens_of(const struct problem *p) { return 2LL * p->cp * p->chunk * p->rows; }

static void world_new(struct world *w, const struct problem *p, int64_t tokens, int dtype)
{
	for (int i = 0; i < TENSORS; i++) {
		const bool kv = i == K_ || i == V_ || i == DK || i == DV_;
		struct fo_tensor *t = &w->t[i];
		*t = (struct fo_tensor){ .rows = tokens, .cols = (int64_t)p->heads * p->dim / (kv ? p->group : 1) };
		t->dtype = (uint8_t)dtype;
		if (i == LSE || i == DOC) {
			t->cols = i == LSE ? p->heads : 1;
			t->dtype = (uint8_t)(i == DOC ? FO_I32 : dtype == FO_F64 ? FO_F64 : FO_F32);
		}
		t->ld = t->cols + 8;
		const size_t bytes = (size_t)(t->rows * t->ld) * fo_dtype_bytes(t->dtype);
		t->data = malloc(bytes);
		memset(t->data, 0xff, bytes); /* NaN */
	}
}
static void world_free(struct world *w)
{
	for (int i = 0; i < TENSORS; i++)
		free(w->t[i].data);
}

static double get(const struct fo_tensor *t, int64_t r, int64_t c) { return fo_num_get(t, r, c); }
static void put_row(const struct fo_tensor *to, int64_t r, const struct fo_tensor *from, int64_t at)
{
	for (int64_t c = 0; c < to->cols; c++)
		fo_num_set(to, r, c, get(from, at, c));
}

static double normal(void)
{
	double sum = -6;
	for (int i = 0; i < 12; i++)
		sum += real(0, 1);
	return sum;
}

/* Inputs of whole rows; documents do not reach into another row. */
static void fill(struct world *w, const struct problem *p)
{
	const int64_t seq = 2LL * p->cp * p->chunk;
	static const int in[] = { Q_, K_, V_, DO_ };
	for (size_t k = 0; k < sizeof in / sizeof *in; k++)
		for (int64_t r = 0; r < w->t[in[k]].rows; r++)
			for (int64_t c = 0; c < w->t[in[k]].cols; c++)
				fo_num_set(&w->t[in[k]], r, c, normal());
	int32_t start = 0;
	for (int64_t i = 0; i < w->t[DOC].rows; i++) {
		if (i % seq == 0 || (p->documents && chance(0.02)))
			start = (int32_t)i;
		((int32_t *)w->t[DOC].data)[i * w->t[DOC].ld] = start;
	}
}

static struct fo_call call_of(const struct problem *p, const struct world *w, bool backward, int threads)
{
	struct fo_call c = { .kind = backward ? FO_OP_attention_bwd : FO_OP_attention,
			     .n = backward ? 10 : 6,
			     .first = UINT32_MAX,
			     .threads = threads,
			     .attr = { .head_dim = p->dim, .window = p->window, .value = 1 / sqrt(p->dim) } };
	for (int i = 0; i < c.n; i++)
		c.arg[i] = w->t[(backward ? backward_order : forward_order)[i]];
	return c;
}

static const struct fo_kernel_set *run(struct fo_call *c, enum fo_isa isa)
{
	const struct fo_kernel_set *set;
	const struct fo_kernel *k = fo_kernel_pick(isa, c, &set);
	c->ws_bytes = k->ws ? k->ws(c) : 0;
	const size_t room = fo_round_up_bytes(c->ws_bytes + 64, 64);
	c->ws = aligned_alloc(64, room);
	memset(c->ws, 0xff, room);
	k->run(c);
	for (size_t i = c->ws_bytes; i < room; i++)
		assert_int_equal(((unsigned char *)c->ws)[i], 0xff);
	free(c->ws);
	return set;
}

/* Whole rows by `ref`, forward and backward from o and lse as they are stored. */
static void whole(const struct problem *p, struct world *w)
{
	for (int backward = 0; backward < 2; backward++) {
		struct fo_call c = call_of(p, w, backward, 2);
		run(&c, FO_ISA_REF);
	}
}

/* Token i of a rank among those of all. */
static int64_t token(const struct problem *p, int place, int64_t i)
{
	return i / (2 * p->chunk) * 2 * p->cp * p->chunk + fo_ring_place(p->cp, place, p->chunk, i);
}

static struct fo_call block_of(const struct problem *p, const struct world *w, bool backward, int place, int peer)
{
	struct fo_call c = call_of(p, w, backward, p->threads);
	c.kind = backward ? FO_OP_attention_block_bwd : FO_OP_attention_block;
	c.attr.cp = p->cp;
	c.attr.place = place;
	c.attr.peer = peer;
	c.attr.chunk = p->chunk;
	return c;
}

static void merge(const struct problem *p, const struct world *more, const struct world *w, enum fo_isa isa)
{
	struct fo_call c = { .kind = FO_OP_attention_merge,
			     .n = 4,
			     .threads = p->threads,
			     .attr = { .head_dim = p->dim },
			     .arg = { more->t[O_], more->t[LSE], w->t[O_], w->t[LSE] } };
	run(&c, isa);
}

/* What rank `place` computes, put into the tensors of whole rows; dk and dv are added up there. True where another set
 * than `ref` did it. */
static bool one_rank(const struct problem *p, const struct world *in, const struct world *out, int place,
		     enum fo_isa isa)
{
	const int64_t own = tokens_of(p) / p->cp;
	struct world w[2]; /* what the rank has; results over the keys of another */
	bool fast = true;
	for (int k = 0; k < 2; k++) {
		world_new(&w[k], p, own, p->dtype);
		for (int64_t i = 0; i < own; i++) {
			for (size_t t = 0; t < TENSORS; t++)
				if (t == Q_ || t == K_ || t == V_ || t == DO_)
					put_row(&w[k].t[t], i, &in->t[t], token(p, place, i));
			((int32_t *)w[k].t[DOC].data)[i * w[k].t[DOC].ld] =
				((int32_t *)in->t[DOC].data)[token(p, place, i) * in->t[DOC].ld];
		}
	}
	for (int backward = 0; backward < 2; backward++)
		for (int peer = 0; peer < p->cp; peer++) {
			const int of = (place - peer + p->cp) % p->cp;
			struct world *to = &w[peer && !backward];
			for (int64_t i = 0; i < own; i++)
				for (int t = K_; t <= V_; t++)
					put_row(&to->t[t], i, &in->t[t], token(p, of, i));
			struct fo_call c = block_of(p, to, backward, place, peer);
			if (backward && peer)
				c.first &= ~(1u << FO_ATTENTION_BLOCK_BWD_DQ);
			fast &= run(&c, isa)->isa != FO_ISA_REF;
			if (peer && !backward)
				merge(p, &w[1], &w[0], isa);
			for (int64_t i = 0; i < own && backward; i++)
				for (int t = DK; t <= DV_; t++)
					for (int64_t j = 0; j < to->t[t].cols; j++) {
						const int64_t at = token(p, of, i);
						fo_num_set(&out->t[t], at, j,
							   get(&out->t[t], at, j) + get(&to->t[t], i, j));
					}
		}
	for (int64_t i = 0; i < own; i++) {
		put_row(&out->t[O_], token(p, place, i), &w[0].t[O_], i);
		put_row(&out->t[LSE], token(p, place, i), &w[0].t[LSE], i);
		put_row(&out->t[DQ], token(p, place, i), &w[0].t[DQ], i);
	}
	world_free(&w[0]);
	world_free(&w[1]);
	return fast;
}

static void compare(const struct problem *p, const struct world *exact, const struct world *naive,
		    const struct world *got, enum fo_isa isa)
{
	static const int results[] = { O_, LSE, DQ, DK, DV_ };
	for (size_t k = 0; k < sizeof results / sizeof *results; k++) {
		const int i = results[k];
		double error = 0, plain = 0, largest = 0;
		for (int64_t r = 0; r < exact->t[i].rows; r++)
			for (int64_t c = 0; c < exact->t[i].cols; c++) {
				const double want = get(&exact->t[i], r, c), off = fabs(get(&got->t[i], r, c) - want);
				error = off <= error ? error : off; /* NaN stays */
				plain = fmax(plain, fabs(get(&naive->t[i], r, c) - want));
				largest = fmax(largest, fabs(want));
			}
		/* Documents of one token have dq = dk = 0, made from sums that cancel. */
		const double cancelled = i == DQ || i == DK ? 1e-6 * sqrt(p->dim) : 0,
			     floor = fmax((naive->t[i].dtype == FO_BF16 ? 0x1p-9 : 1e-6) * largest, cancelled),
			     bound = (2 * plain + floor) * sqrt(p->cp);
		if (!(error <= bound))
			fail_msg("%s: %s: cp %d chunk %d rows %d heads %d group %d dim %d window %d documents %d type "
				 "%s: error %g, bound %g",
				 fo_isa_name[isa], tensor_name[i], p->cp, p->chunk, p->rows, p->heads, p->group, p->dim,
				 p->window, p->documents, fo_dtype_name[p->dtype], error, bound);
	}
}

/* How many sets took the problem by kernels of their own. */
static int check(const struct problem *p)
{
	struct world exact, naive;
	const int64_t tokens = tokens_of(p);
	int fast = 0;
	world_new(&exact, p, tokens, FO_F64);
	world_new(&naive, p, tokens, p->dtype);
	fill(&naive, p);
	for (int i = 0; i < TENSORS; i++)
		for (int64_t r = 0; r < tokens && i != DOC; r++)
			put_row(&exact.t[i], r, &naive.t[i], r);
	memcpy(exact.t[DOC].data, naive.t[DOC].data, (size_t)(tokens * exact.t[DOC].ld) * sizeof(int32_t));
	whole(p, &exact);
	whole(p, &naive);
	for (int isa = FO_ISA_REF; isa < FO_ISA_COUNT; isa++) {
		struct world got;
		bool all = true;
		if (!fo_kernel_sets[isa] || !fo_isa_have((enum fo_isa)isa))
			continue;
		world_new(&got, p, tokens, FO_F64); /* what ranks computed, exactly */
		for (int t = DK; t <= DV_; t++)
			memset(got.t[t].data, 0, (size_t)(tokens * got.t[t].ld) * sizeof(double));
		for (int place = 0; place < p->cp; place++)
			all &= one_rank(p, &naive, &got, place, (enum fo_isa)isa);
		compare(p, &exact, &naive, &got, (enum fo_isa)isa);
		fast += all;
		world_free(&got);
	}
	world_free(&exact);
	world_free(&naive);
	return fast;
}

static void test_rings(void **state)
{
	static const int dim[] = { 8, 16, 20, 24, 32, 64, 72, 128 };
	int fast = 0;
	(void)state;
	fo_random_state = 20;
	for (int n = 0; n < 32; n++) {
		struct problem p = { .cp = pick(1, 5),
				     .chunk = pick(1, 40),
				     .rows = pick(1, 2),
				     .group = pick(1, 2),
				     .dim = dim[below(8)],
				     .dtype = chance(0.5) ? FO_BF16 : FO_F32,
				     .threads = pick(1, 3),
				     .documents = chance(0.5) };
		p.heads = p.group * pick(1, 2);
		p.window = chance(0.4) ? pick(1, 2 * p.cp * p.chunk) : 0;
		fast += check(&p);
	}
	print_message("%d runs by kernels other than ref\n", fast);
#if defined __x86_64__
	assert_true(fast > 0 || !fo_isa_have(FO_ISA_AVX2));
#endif
}

/* Chunks of whole blocks of keys, and just beside; more than one block of queries that sees nothing; long rows. */
static void test_blocks(void **state)
{
	static const int chunk[] = { 47, 48, 96, 97, 192 };
	(void)state;
	fo_random_state = 21;
	for (size_t i = 0; i < sizeof chunk / sizeof *chunk; i++)
		for (int k = 0; k < 4; k++)
			check(&(struct problem){ .cp = 2 + (k & 1),
						 .chunk = chunk[i],
						 .rows = 1,
						 .heads = 1,
						 .group = 1,
						 .dim = 16,
						 .window = k & 2 ? 100 : 0,
						 .dtype = k & 1 ? FO_BF16 : FO_F32,
						 .threads = 2 });
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_rings), cmocka_unit_test(test_blocks) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
