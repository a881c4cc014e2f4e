/* Whole steps on a CUDA device, a real one or the software one, against the processor's: losses, gradients, state. And
 * what only the device's executor has: graphs, events, staging, the store's copy, the memory plan. The software device
 * runs what streams and events leave open in any order, so that a wait that is missing shows. */
#include "base/clock.h"
#include "base/mem.h"
#include "pass/pass.h"
#include "support/cuda.h"
#include "support/step.h"
#include "train/generate.h"
#include "train/ports.h"
#include "support/must.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 3, SEEDS = 3 };

static struct fo_cuda *cuda;
static const struct fo_test_soft *soft;

static struct fo_exec_options on_device(void) { return (struct fo_exec_options){ .cuda = cuda, .timeline_steps = 8 }; }
static struct fo_exec_options on_processor(void)
{
	struct fo_exec_options o = { .threads = 1, .timeline_steps = 1 };
	must(fo_isa_choose(&o.isa));
	return o;
}

struct sample {
	double loss[STEPS], norm[STEPS];
};

static void run_steps(struct step_rig *r, int first, int steps, struct sample *out)
{
	for (int i = first; i < first + steps; i++) {
		step_rig_at(r, i + 1);
		must(fo_exec_step(r->exec, i));
		if (out)
			out->loss[i - first] = r->loss[0], out->norm[i - first] = r->scale[1];
	}
	must(fo_exec_fetch(r->exec));
}

static void make(struct step_rig *r, const struct fo_model *m, const struct fo_lowering *low,
		 const struct step_batch *b, const struct fo_exec_options *o)
{
	step_rig_lower(r, m, low, b, o);
	r->hyper[FO_HYPER_EPS] = 1e-4; /* a step does not blow rounding up to the size of a gradient */
}

/* ---- against the processor ---- */

struct tensors {
	struct fo_store_tensor t[256];
	int n;
};
static fo_status collect(void *ctx, const struct fo_store_tensor *t)
{
	struct tensors *l = ctx;
	assert_true(l->n < 256);
	l->t[l->n++] = *t;
	return FO_OK;
}

/* |a - b| in the 2-norm of tensors `which`, over the larger of |b| and a thousandth of all such tensors: the gradient
 * of a key's bias is 0 in exact arithmetic. The worst; *name: whose. */
static double furthest(struct step_rig *a, struct step_rig *b, int which, const char **name)
{
	static struct tensors x, y;
	double total = 0, worst = 0;
	x.n = y.n = 0;
	must(fo_store_visit(a->store, &a->program, collect, &x));
	must(fo_store_visit(b->store, &b->program, collect, &y));
	assert_int_equal(x.n, y.n);
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < x.n; i++) {
			double d = 0, n = 0;
			if (x.t[i].which != which)
				continue;
			for (int64_t r = 0; r < x.t[i].rows; r++)
				for (int64_t c = 0; c < x.t[i].cols; c++) {
					double p = step_get(x.t[i].data, x.t[i].dtype, r * x.t[i].ld + c);
					double q = step_get(y.t[i].data, y.t[i].dtype, r * y.t[i].ld + c);
					d += (p - q) * (p - q);
					n += q * q;
				}
			total += pass ? 0 : n;
			d = d > 0 ? sqrt(d / fmax(n, 1e-6 * total)) : d;
			if (pass && !(d <= worst))
				worst = d, *name = x.t[i].name;
		}
	return worst;
}

struct shape {
	const char *name;
	struct fo_model model;
	int64_t seq, rows, micro_batches;
	int documents;
};
enum { SHAPES = 4 };
static const struct shape *shapes(void)
{
	static struct shape s[SHAPES];
	s[0] = (struct shape){ "grouped", step_model(2, 64, 4, 2, 96, 80, false), 16, 2, 2, 3 };
	s[1] = (struct shape){ "tied", step_model(2, 64, 4, 1, 96, 64, true), 24, 1, 1, 0 };
	s[2] = (struct shape){ "biases", step_model(2, 64, 4, 2, 96, 72, true), 16, 2, 1, 2 };
	s[2].model.attention_bias = true;
	s[3] = (struct shape){ "odd", step_model(1, 40, 5, 5, 56, 50, false), 13, 1, 3, 2 };
	return s;
}

/* What a sum of n terms in another order may differ by grows with their number and the type's last bit: 2e-6 and 2e-2
 * are what tests/step/test_passes.c allows between two orders of the same step in fp32 and bf16. */
static void against(const char *what, const struct shape *s, enum fo_numerics precision, struct fo_passes pass,
		    double eps)
{
	struct step_batch b;
	struct step_rig d, p;
	struct sample got, want;
	struct fo_exec_options od = on_device(), op = on_processor();
	const char *name = "";
	step_batch_random(&b, s->seq, s->rows, s->micro_batches, s->model.vocab, s->documents, 7);
	struct fo_lowering low = step_lowering(&b, precision, FO_MODE_TRAIN);
	low.pass = pass;
	od.poison = true;
	make(&d, &s->model, &low, &b, &od);
	make(&p, &s->model, &low, &b, &op);
	run_steps(&d, 0, STEPS, &got);
	run_steps(&p, 0, STEPS, &want);
	assert_true(want.loss[STEPS - 1] < want.loss[0]); /* it learns this batch: the numbers mean something */
	for (int i = 0; i < STEPS; i++)
		if (!(fabs(got.loss[i] / want.loss[i] - 1) <= eps) ||
		    !(fabs(got.norm[i] / want.norm[i] - 1) <= 4 * eps))
			fail_msg("%s, %s: step %d: loss %.9g, gradient norm %.9g; on the processor %.9g and %.9g",
				 s->name, what, i, got.loss[i], got.norm[i], want.loss[i], want.norm[i]);
	/* First moments are means of gradients, tensor by tensor. */
	for (int which = 0; which < 3; which += 2) {
		double far = furthest(&d, &p, which, &name);
		if (!(far <= 8 * eps))
			fail_msg("%s, %s: %s '%s' is off by %.3g", s->name, what, which ? "first moment" : "weight",
				 name, far);
	}
	step_rig_free(&d);
	step_rig_free(&p);
	step_batch_free(&b);
}

static const struct {
	const char *name;
	struct fo_passes pass;
} pass_case[] = {
	{ "plain", { 0 } },
	{ "merged", { .merge_qkv = 1, .merge_gate_up = 1, .fuse_elementwise = 1 } },
	{ "fused",
	  { .merge_qkv = 1, .merge_gate_up = 1, .fuse_elementwise = 1, .fuse_loss = 7, .fused_optimizer = 1 } },
	{ "rope fused", { .merge_qkv = 1, .fuse_elementwise = 1, .fuse_rope = 1 } },
	{ "rope fused, alone", { .fuse_rope = 1 } },
	{ "recomputing", { .merge_gate_up = 1, .fuse_elementwise = 1, .recompute = FO_RECOMPUTE_SELECTIVE } },
	{ "recomputing all", { .merge_qkv = 1, .recompute = FO_RECOMPUTE_FULL, .fuse_loss = 8 } },
};
enum { PASS_CASES = sizeof pass_case / sizeof *pass_case };

static void test_against_processor(void **state)
{
	(void)state;
	const struct shape *s = shapes();
	for (int k = 0; k < SHAPES; k++)
		for (int i = 0; i < PASS_CASES; i++) {
			against(pass_case[i].name, &s[k], (i + k) % 2 ? FO_PRECISION_F32 : FO_PRECISION_BF16,
				pass_case[i].pass, (i + k) % 2 ? 2e-6 : 1e-2);
		}
}

/* How state is stored, and fp8: both sides round what they computed, which differs in the last bits. */
static void test_formats(void **state)
{
	(void)state;
	const struct shape *s = shapes();
	static const struct {
		const char *name;
		struct fo_passes pass;
		double eps;
	} c[] = {
		{ "split master", { .master = FO_MASTER_SPLIT }, 1e-2 },
		{ "split master, bf16 moments",
		  { .master = FO_MASTER_SPLIT, .moments = FO_MOMENTS_BF16, .fused_optimizer = 1 },
		  1e-2 },
		{ "stochastic",
		  { .master = FO_MASTER_NONE,
		    .moments = FO_MOMENTS_BF16,
		    .rounding = FO_ROUND_STOCHASTIC,
		    .fused_optimizer = 1 },
		  1e-2 },
		{ "offloading", { .offload = 1, .merge_qkv = 1, .fuse_elementwise = 1 }, 1e-2 },
		{ "optimizer in backward", { .optimizer_in_backward = 1, .previous_norm = 1 }, 1e-2 },
		{ "fp8 current", { .fp8 = FO_FP8_CURRENT }, 4e-2 },
		{ "fp8 delayed", { .fp8 = FO_FP8_DELAYED, .fp8_history = 4, .fp8_precompute = 1 }, 4e-2 },
		{ "fp8 delayed, transposed",
		  { .fp8 = FO_FP8_DELAYED, .fp8_history = 4, .fp8_precompute = 1, .fp8_transposed = 1 },
		  4e-2 },
		{ "fp8 delayed, fused",
		  { .fp8 = FO_FP8_DELAYED,
		    .fp8_history = 4,
		    .fp8_precompute = 1,
		    .fp8_transposed = 1,
		    .fp8_fuse = 1,
		    .merge_gate_up = 1,
		    .fuse_elementwise = 1 },
		  4e-2 },
		{ "fp8 delayed, fused, plain weight gradients",
		  { .fp8 = FO_FP8_DELAYED,
		    .fp8_history = 4,
		    .fp8_wgrad = FO_FP8_WGRAD_PLAIN,
		    .fp8_fuse = 1,
		    .merge_gate_up = 1 },
		  4e-2 },
		{ "fp8 rows", { .fp8 = FO_FP8_ROWWISE }, 4e-2 },
	};
	for (size_t i = 0; i < sizeof c / sizeof *c; i++)
		against(c[i].name, &s[c[i].pass.optimizer_in_backward ? 1 : 0], FO_PRECISION_BF16, c[i].pass, c[i].eps);
}

/* ---- graphs, streams, events ---- */

static void scatter(struct fo_program *p, uint64_t seed)
{
	static const uint8_t lane[] = { FO_LANE_COMPUTE, FO_LANE_COPY, FO_LANE_TP, FO_LANE_GATHER };
	uint64_t k = 0;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			if (fo_op_info(p->block[b].op[i].kind)->cls != FO_CLASS_HOST)
				p->block[b].op[i].lane = lane[fo_rng_u64(seed, k++) % 4];
}

static void make_scattered(struct step_rig *r, const struct step_batch *b, uint64_t seed,
			   const struct fo_exec_options *o)
{
	struct fo_program p;
	struct fo_model m = step_model(2, 32, 4, 2, 48, 64, false);
	struct fo_lowering low = step_lowering(b, FO_PRECISION_F32, FO_MODE_TRAIN);
	must(fo_program_lower(&p, &m, &low));
	if (seed)
		scatter(&p, seed);
	step_rig_new(r, &p, b, o);
}

struct outcome {
	struct sample s;
	uint64_t hash;
};
static struct outcome outcome_of(const struct step_batch *b, uint64_t seed, const struct fo_exec_options *o)
{
	struct step_rig r;
	struct outcome out = { 0 };
	if (soft)
		soft->seed(seed + 1);
	make_scattered(&r, b, seed, o);
	run_steps(&r, 0, STEPS, &out.s);
	out.hash = step_rig_hash(&r);
	step_rig_free(&r);
	return out;
}

/* Eager or replayed, timed or not, on one lane or scattered over four, however the device takes work up: the same bits.
 */
static void test_same_bits(void **state)
{
	(void)state;
	struct step_batch b;
	struct fo_exec_options o = on_device();
	step_batch_random(&b, 12, 2, 2, 64, 2, 5);
	o.eager = true;
	struct outcome want = outcome_of(&b, 0, &o);
	assert_true(want.s.loss[STEPS - 1] < want.s.loss[0]);
	for (uint64_t seed = 0; seed < SEEDS; seed++)
		for (int how = 0; how < 4; how++) {
			o = on_device();
			o.eager = how & 1;
			o.timed_every = how & 2 ? (int)seed + 1 : 0;
			o.poison = seed % 2;
			struct outcome got = outcome_of(&b, seed, &o);
			if (memcmp(&got, &want, sizeof got))
				fail_msg("seed %d, %s, timed every %d: losses %.17g %.17g, expected %.17g %.17g, or "
					 "other weights",
					 (int)seed, o.eager ? "eager" : "replayed", o.timed_every, got.s.loss[0],
					 got.s.loss[STEPS - 1], want.s.loss[0], want.s.loss[STEPS - 1]);
		}
	step_batch_free(&b);
}

/* Batches whose documents ask for other plans, in turn: each finds its own graph again, or none, and the bits are those
 * of eager steps. */
static void test_other_documents(void **state)
{
	(void)state;
	enum { BATCHES = 3, ROUNDS = 4 };
	struct step_batch b[BATCHES];
	uint64_t hash[2];
	double loss[2][BATCHES * ROUNDS];
	for (int i = 0; i < BATCHES; i++)
		step_batch_random(&b[i], 24, 2, 2, 64, 6 * i, 9 + (uint64_t)i);
	for (int eager = 0; eager < 2; eager++) {
		struct step_rig r;
		struct fo_exec_options o = on_device();
		o.eager = eager;
		make_scattered(&r, &b[0], 0, &o);
		for (int i = 0; i < BATCHES * ROUNDS; i++) {
			r.batch = &b[i % BATCHES];
			step_rig_at(&r, i + 1);
			must(fo_exec_step(r.exec, i));
			loss[eager][i] = r.loss[0];
		}
		must(fo_exec_fetch(r.exec));
		hash[eager] = step_rig_hash(&r);
		step_rig_free(&r);
	}
	assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
	assert_true(hash[0] == hash[1]);
	for (int i = 0; i < BATCHES; i++)
		step_batch_free(&b[i]);
}

/* The rig's steps in a process of their own: an index that has not arrived yet may well lead outside. False: they did
 * not come to an end. The store was filled here: OpenMP's threads do not survive a fork. */
static bool run_apart(struct step_rig *r, uint64_t seed, struct outcome *shared)
{
	memset(shared, 0, sizeof *shared);
	fflush(NULL);
	pid_t child = fork();
	if (!child) {
		int null = open("/dev/null", O_WRONLY);
		dup2(null, 1);
		dup2(null, 2);
		for (int k = 1; k < 32; k++)
			signal(k, SIG_DFL);
		alarm(20);
		soft->seed(seed);
		for (int i = 0; i < STEPS; i++) {
			step_rig_at(r, i + 1);
			if (fo_exec_step(r->exec, i) != FO_OK)
				_exit(1);
			shared->s.loss[i] = r->loss[0];
			shared->s.norm[i] = r->scale[1];
		}
		if (fo_exec_fetch(r->exec) != FO_OK)
			_exit(1);
		shared->hash = step_rig_hash(r);
		_exit(0);
	}
	int how = 0;
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &how, 0), child);
	return WIFEXITED(how) && !WEXITSTATUS(how);
}

/* Without one of its waits a step gives other numbers, or none, on some seed: events order what the program says. */
static void test_waits_are_needed(void **state)
{
	(void)state;
	enum { DROPS = 8 };
	if (!soft) {
		skip();
		return;
	}
	struct step_batch b;
	struct fo_exec_options o = on_device();
	struct outcome *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int noticed = 0;
	o.poison = true;
	assert_true(shared != MAP_FAILED);
	step_batch_random(&b, 12, 2, 2, 64, 2, 5);
	struct outcome want = outcome_of(&b, 1, &o);
	for (int drop = -1; drop < DROPS; drop++) { /* -1: none, which must change nothing */
		bool other = false;
		for (uint64_t seed = 0; seed < SEEDS && !other; seed++) {
			struct step_rig r;
			make_scattered(&r, &b, 1, &o);
			struct fo_unrolled *u = (struct fo_unrolled *)(uintptr_t)fo_exec_unrolled(r.exec);
			int k = 0;
			for (int i = 0; i < u->n; i++)
				for (int l = 0; l < FO_LANE_COUNT; l++)
					if (u->wait[i][l] >= 0 && k++ == 1 + 10 * drop && drop >= 0)
						u->wait[i][l] = -1;
			other = !run_apart(&r, 1000 + seed, shared) || memcmp(shared, &want, sizeof want);
			step_rig_free(&r);
		}
		if (drop < 0 && other)
			fail_msg("in a process of their own the same steps give other numbers");
		noticed += other;
	}
	print_message("%d of %d dropped waits changed the numbers\n", noticed, DROPS);
	assert_true(2 * noticed > DROPS);
	munmap(shared, sizeof *shared);
	step_batch_free(&b);
}

/* ---- times ---- */

static void test_spans(void **state)
{
	(void)state;
	struct step_batch b;
	struct step_rig r;
	struct fo_exec_options o = on_device();
	struct fo_profile f = { 0 };
	o.timed_every = 2;
	step_batch_random(&b, 12, 2, 2, 64, 2, 5);
	make_scattered(&r, &b, 3, &o);
	const struct fo_unrolled *u = fo_exec_unrolled(r.exec);
	struct fo_timeline *t = fo_exec_timeline(r.exec);
	for (int i = 0; i < 6; i++) {
		step_rig_at(&r, i + 1);
		int64_t t0 = t->origin_ns, t1;
		struct timespec now;
		clock_gettime(CLOCK_MONOTONIC, &now);
		t0 = now.tv_sec * 1000000000LL + now.tv_nsec;
		must(fo_exec_step(r.exec, i));
		clock_gettime(CLOCK_MONOTONIC, &now);
		t1 = now.tv_sec * 1000000000LL + now.tv_nsec;
		fo_profile_add_step(&f, t, &r.program, u, i, t0, t1, 0);
		for (int l = 0; l < FO_LANE_COUNT && i % 2 == 0; l++) {
			const struct fo_ring *g = &t->lane[l];
			int64_t at = t0;
			for (uint64_t k = g->n > g->cap ? g->n - g->cap : 0; k < g->n; k++) {
				const struct fo_span *s = &g->span[k % g->cap];
				if (s->step != i)
					continue;
				assert_true(s->begin_ns >= at && s->end_ns >= s->begin_ns && s->end_ns <= t1);
				at = s->end_ns;
			}
		}
	}
	int64_t ran = 0;
	double parts = 0;
	for (int l = 0; l < FO_LANE_COUNT; l++)
		for (uint64_t k = 0; k < t->lane[l].n; k++)
			ran += t->lane[l].span[k % t->lane[l].cap].instance >= 0;
	assert_int_equal(ran, 3 * u->n);
	for (int i = 0; i < FO_PART_COUNT; i++)
		parts += f.part_ns[i];
	assert_true(f.steps == 3 && f.untimed_steps == 3 && f.untimed_ns > 0);
	assert_true(fabs(parts / f.total_ns - 1) < 1e-9 && f.part_ns[FO_PART_MATMUL] > 0);
	step_rig_free(&r);
	step_batch_free(&b);
}

static void count_seconds(void *ctx, int instance, void (*run)(void *arg), void *arg)
{
	(void)instance;
	run(arg);
	++*(int *)ctx;
}

static void test_around_and_in_order(void **state)
{
	(void)state;
	struct step_batch b;
	struct step_rig r;
	struct fo_exec_options o = on_device();
	step_batch_random(&b, 12, 2, 2, 64, 2, 5);
	struct outcome want = outcome_of(&b, 0, &o);
	for (int how = 0; how < 2; how++) {
		struct outcome got = { 0 };
		int ran = 0;
		make_scattered(&r, &b, 0, &o);
		const struct fo_unrolled *u = fo_exec_unrolled(r.exec);
		int *order = fo_xmalloc((size_t)u->n * sizeof *order);
		for (int i = 0; i < u->n; i++)
			order[i] = i;
		for (int i = 0; i < STEPS; i++) {
			step_rig_at(&r, i + 1);
			must(how ? fo_exec_step_in_order(r.exec, order)
				 : fo_exec_step_around(r.exec, count_seconds, &ran));
			got.s.loss[i] = r.loss[0], got.s.norm[i] = r.scale[1];
			assert_true(fo_exec_around_seconds(r.exec) >= 0);
		}
		must(fo_exec_fetch(r.exec));
		got.hash = step_rig_hash(&r);
		assert_memory_equal(&got, &want, sizeof got);
		assert_true(how || ran > u->n / 2 * STEPS);
		free(order);
		step_rig_free(&r);
	}
	step_batch_free(&b);
}

/* ---- memory ---- */

static void test_memory_is_planned(void **state)
{
	(void)state;
	const struct shape *s = shapes();
	for (int k = 0; k < SHAPES; k++) {
		struct step_batch b;
		struct step_rig r;
		struct fo_exec_options o = on_device();
		struct fo_soft_counters before = { 0 }, after = { 0 };
		int64_t have, left, all;
		step_batch_random(&b, s[k].seq, s[k].rows, s[k].micro_batches, s[k].model.vocab, s[k].documents, 7);
		struct fo_lowering low = step_lowering(&b, k % 2 ? FO_PRECISION_BF16 : FO_PRECISION_F32, FO_MODE_TRAIN);
		low.pass = pass_case[k].pass;
		make(&r, &s[k].model, &low, &b, &o); /* products are tuned here, in memory that is given back */
		if (soft)
			soft->counters(&before, true);
		must(fo_cuda_memory(cuda, &have, &all));
		struct fo_memory m = fo_exec_memory(r.exec);
		run_steps(&r, 0, STEPS, NULL);
		must(fo_cuda_memory(cuda, &left, &all));
		struct fo_memory n = fo_exec_memory(r.exec);
		assert_memory_equal(&m, &n, sizeof m);
		assert_true(m.arena >= fo_exec_unrolled(r.exec)->arena_bytes &&
			    m.persistent >= fo_store_bytes(r.store));
		if (soft) {
			soft->counters(&after, false);
			assert_int_equal(after.peak_bytes - before.live_bytes, m.arena + m.persistent + m.workspace);
			assert_int_equal(after.live_bytes, after.peak_bytes);
		} else if (have - left > m.arena + m.persistent + m.workspace) {
			/* A real device takes memory for graphs and modules, too. */
			print_message("planned %lld bytes, the device has %lld less\n",
				      (long long)(m.arena + m.persistent + m.workspace), (long long)(have - left));
		}
		step_rig_free(&r);
		if (soft) {
			soft->counters(&after, false);
			assert_int_equal(after.live_bytes, before.live_bytes);
		}
		step_batch_free(&b);
	}
}

/* Evaluation beside training: one copy of the weights on the device, one arena; no bytes go through the host between
 * them. */
static void test_shared_store(void **state)
{
	(void)state;
	const struct shape *s = &shapes()[0];
	struct step_batch b;
	struct step_rig r[2];
	double loss[2];
	step_batch_random(&b, s->seq, s->rows, s->micro_batches, s->model.vocab, s->documents, 7);
	struct fo_lowering low = step_lowering(&b, FO_PRECISION_F32, FO_MODE_TRAIN), eval = low;
	eval.mode = FO_MODE_EVAL;
	for (int k = 0; k < 2; k++) {
		struct fo_exec_options o = k ? on_processor() : on_device();
		struct step_rig e = { .batch = &b };
		const struct fo_batch held = {
			.token = b.token, .target = b.target, .position = b.position, .doc_start = b.doc_start
		};
		struct fo_ports ports = { .batch = &held };
		make(&r[k], &s->model, &low, &b, &o);
		must(fo_pass_build(&e.program, &s->model, &eval));
		must(fo_exec_new(&e.exec, &e.program, r[k].store, &o, fo_ports_serve, &ports, r[k].exec));
		step_rig_at(&r[k], 1);
		must(fo_exec_step(r[k].exec, 0));
		must(fo_exec_step(e.exec, 0));
		loss[k] = ports.loss[0];
		if (!k) {
			struct fo_memory m = fo_exec_memory(r[k].exec), n = fo_exec_memory(e.exec);
			assert_true(n.arena <= m.arena && n.persistent == m.persistent);
		}
		fo_exec_free(e.exec);
		fo_program_fini(&e.program);
		step_rig_free(&r[k]);
	}
	if (!(fabs(loss[0] / loss[1] - 1) < 2e-6))
		fail_msg("evaluation after a step: %.9g on the device, %.9g on the processor", loss[0], loss[1]);
	step_batch_free(&b);
}

/* Fetched, put into another store, gone on with: the same bits as without a break. */
static void test_goes_on(void **state)
{
	(void)state;
	const struct shape *s = &shapes()[0];
	struct step_batch b;
	struct step_rig r, again;
	struct fo_exec_options o = on_device();
	step_batch_random(&b, s->seq, s->rows, s->micro_batches, s->model.vocab, s->documents, 7);
	struct fo_lowering low = step_lowering(&b, FO_PRECISION_BF16, FO_MODE_TRAIN);
	low.pass = (struct fo_passes){ .master = FO_MASTER_SPLIT, .merge_qkv = 1 };
	make(&r, &s->model, &low, &b, &o);
	run_steps(&r, 0, 2, NULL);
	void *saved = step_rig_save(&r);
	run_steps(&r, 2, 2, NULL);
	make(&again, &s->model, &low, &b, &o);
	run_steps(&again, 0, 1, NULL); /* something else lies on the device */
	step_rig_restore(&again, saved);
	run_steps(&again, 2, 2, NULL);
	assert_true(step_rig_hash(&r) == step_rig_hash(&again));
	free(saved);
	step_rig_free(&again);
	step_rig_free(&r);
	step_batch_free(&b);
}

/* New weights are those of the processor: all of them on the software device, whose logarithms are the same. */
static void test_made_on_device(void **state)
{
	(void)state;
	for (int master = 0; master < FO_MASTER_COUNT; master++) {
		struct step_batch b;
		struct step_rig d, p;
		struct fo_exec_options o = on_device();
		struct fo_model m = step_model(2, 64, 4, 2, 96, 80, true);
		const char *name = "";
		m.attention_bias = true;
		step_batch_random(&b, 16, 2, 1, 80, 2, 7);
		struct fo_lowering low = step_lowering(&b, FO_PRECISION_BF16, FO_MODE_TRAIN);
		low.pass = (struct fo_passes){ .merge_qkv = 1, .master = master };
		make(&d, &m, &low, &b, &o);
		make(&p, &m, &low, &b, &o);
		run_steps(&d, 0, 1, NULL); /* moments that must become zeros */
		must(fo_store_init_device(d.store, &d.program, 42, cuda));
		must(fo_exec_fetch(d.exec));
		for (int which = 0; which < 4; which++)
			if (soft ? furthest(&d, &p, which, &name) != 0 : furthest(&d, &p, which, &name) > 1e-7)
				fail_msg("master %s: '%s' (%d) is not what the processor makes: off by %.3g",
					 fo_master_name[master], name, which, furthest(&d, &p, which, &name));
		run_steps(&d, 0, 1, NULL);
		run_steps(&p, 0, 1, NULL);
		assert_true(!soft || (step_rig_hash(&d) == step_rig_hash(&p) && d.loss[0] == p.loss[0]));
		step_rig_free(&d);
		step_rig_free(&p);
		step_batch_free(&b);
	}
}

/* ---- the rest ---- */

static void test_generation(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 64, 4, 2, 96, 80, false);
	int32_t text[20];
	static float logits[2][20][80];
	for (int i = 0; i < 20; i++)
		text[i] = (int32_t)(fo_rng_u64(3, (uint64_t)i) % 80);
	for (int k = 0; k < 2; k++) {
		struct fo_exec_options o = k ? on_processor() : on_device();
		struct fo_lowering low = {
			.seq = 20, .rows = 1, .micro_batches = 1, .precision = FO_PRECISION_F32, .mode = FO_MODE_LOGITS
		};
		struct fo_program p;
		struct fo_store *s;
		struct fo_generator *g;
		must(fo_program_lower(&p, &m, &low));
		must(fo_store_new(&s, &p));
		fo_store_init(s, &p, 42);
		must(fo_generator_new(&g, &m, FO_PRECISION_F32, NULL, s, &o, 20, 6, NULL));
		must(fo_generator_push(g, text, 9)); /* a chunk of 6, one of 3 */
		for (int i = 9; i < 20; i++) {
			memcpy(logits[k][i], fo_generator_logits(g), sizeof logits[k][i]);
			must(fo_generator_push(g, &text[i], 1));
		}
		fo_generator_free(g);
		fo_store_free(s);
		fo_program_fini(&p);
	}
	for (int i = 9; i < 20; i++)
		for (int v = 0; v < 80; v++)
			if (!(fabsf(logits[0][i][v] - logits[1][i][v]) <= 2e-6f * (1 + fabsf(logits[1][i][v]))))
				fail_msg("token %d: logit %d is %.9g, on the processor %.9g", i, v, logits[0][i][v],
					 logits[1][i][v]);
}

/* The same words as the processor's search. */
static void test_fault_is_named(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 32, 4, 2, 48, 64, false);
	struct fo_exec_fault f[2];
	for (int k = 0; k < 2; k++) {
		struct step_batch b;
		struct step_rig r;
		struct fo_exec_options o = k ? on_processor() : on_device();
		step_batch_random(&b, 12, 2, 2, 64, 2, 5);
		struct fo_lowering low = step_lowering(&b, FO_PRECISION_F32, FO_MODE_TRAIN);
		make(&r, &m, &low, &b, &o);
		run_steps(&r, 0, 1, NULL);
		float *w = fo_store_find(r.store, "wo", 1, NULL);
		assert_non_null(w);
		w[5 * 32 + 3] = INFINITY;
		fo_exec_weights_changed(r.exec);
		uint64_t before = step_rig_hash(&r);
		run_steps(&r, 1, 1, NULL);
		assert_true(r.scale[0] == -1 && step_rig_hash(&r) == before);
		must(fo_exec_find_fault(r.exec, &f[k]));
		step_rig_free(&r);
		step_batch_free(&b);
	}
	assert_string_equal(f[0].text, f[1].text);
	assert_true(f[0].row == 5 && f[0].col == 3 && f[0].read && isinf(f[0].value));
}

static void test_what_cannot_run(void **state)
{
	(void)state;
	struct fo_model m = step_model(1, 32, 4, 2, 48, 64, false);
	struct fo_lowering low = {
		.seq = 8, .rows = 1, .micro_batches = 1, .precision = FO_PRECISION_F64, .mode = FO_MODE_TRAIN
	};
	struct fo_exec_options o = on_device();
	struct fo_program p;
	struct fo_store *s;
	struct fo_exec *e;
	must(fo_program_lower(&p, &m, &low));
	must(fo_store_new(&s, &p));
	assert_int_equal(fo_exec_new(&e, &p, s, &o, NULL, NULL, NULL), FO_EUNSUPPORTED);
	if (!strstr(fo_err_text(), "matmul (") || !strstr(fo_err_text(), "rmsnorm (") ||
	    !strstr(fo_err_hint(), "train.device=cpu"))
		fail_msg("%s; %s", fo_err_text(), fo_err_hint());
	fo_store_free(s);
	fo_program_fini(&p);
}

static void test_whose_code(void **state)
{
	(void)state;
	struct step_batch b;
	struct step_rig r;
	struct fo_exec_options o = on_device();
	struct fo_exec_code c[FO_EXEC_CODES_MAX];
	int isa[FO_ISA_COUNT], sum = 0, ours = 0;
	step_batch_random(&b, 12, 2, 2, 64, 2, 5);
	make_scattered(&r, &b, 0, &o);
	int n = fo_exec_codes(r.exec, c);
	for (int i = 0; i < n; i++) {
		sum += c[i].instances;
		ours |= !strcmp(c[i].by, "flatout") ? 1 : !strcmp(c[i].by, "cuBLASLt") ? 2 : 0;
	}
	int ports = 0;
	const struct fo_unrolled *u = fo_exec_unrolled(r.exec);
	for (int i = 0; i < u->n; i++)
		ports += fo_op_info(fo_instance_op(&r.program, u, i)->kind)->cls == FO_CLASS_HOST;
	assert_true(ours == 3 && sum + ports == u->n);
	fo_exec_kernels(r.exec, isa);
	for (int i = 0; i < FO_ISA_COUNT; i++)
		assert_int_equal(isa[i], 0);
	step_rig_free(&r);
	step_batch_free(&b);
}

/* Casts inside of what makes their numbers (pass fp8-fuse): whole steps have the bits of those with casts by
 * themselves. Rows are wide enough for the kernels that do both at once; in the first step histories are empty, in both
 * micro-batches. */
static void test_fused_casts(void **state)
{
	(void)state;
	struct step_batch b;
	step_batch_random(&b, 16, 2, 2, 64, 2, 7);
	for (int k = 0; k < 3;
	     k++) { /* with transposed copies, with plain weight gradients, with activations made twice */
		struct result {
			struct sample s;
			uint64_t hash;
		} out[2];
		for (int fused = 0; fused < 2; fused++) {
			struct fo_model m = step_model(2, 288, 9, 3, 144, 64, false);
			struct fo_lowering low = step_lowering(&b, FO_PRECISION_BF16, FO_MODE_TRAIN);
			struct fo_exec_options o = on_device();
			struct step_rig r;
			low.pass = (struct fo_passes){ .merge_gate_up = 1,
						       .fuse_elementwise = 1,
						       .fp8 = FO_FP8_DELAYED,
						       .fp8_history = 2,
						       .fp8_precompute = 1,
						       .fp8_transposed = k != 1,
						       .fp8_wgrad = k == 1 ? FO_FP8_WGRAD_PLAIN : FO_FP8_WGRAD_FP8,
						       .recompute = k == 2 ? FO_RECOMPUTE_SELECTIVE : 0,
						       .fp8_fuse = fused };
			o.poison = true;
			memset(&out[fused], 0, sizeof out[fused]);
			make(&r, &m, &low, &b, &o);
			run_steps(&r, 0, STEPS, &out[fused].s);
			out[fused].hash = step_rig_hash(&r);
			step_rig_free(&r);
		}
		assert_true(isfinite(out[0].s.loss[STEPS - 1]) && out[0].s.loss[STEPS - 1] != out[0].s.loss[0]);
		assert_memory_equal(&out[0], &out[1], sizeof *out);
	}
	step_batch_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_bits),
		cmocka_unit_test(test_against_processor),
		cmocka_unit_test(test_formats),
		cmocka_unit_test(test_waits_are_needed),
		cmocka_unit_test(test_spans),
		cmocka_unit_test(test_around_and_in_order),
		cmocka_unit_test(test_memory_is_planned),
		cmocka_unit_test(test_shared_store),
		cmocka_unit_test(test_goes_on),
		cmocka_unit_test(test_generation),
		cmocka_unit_test(test_fault_is_named),
		cmocka_unit_test(test_what_cannot_run),
		cmocka_unit_test(test_whose_code),
		cmocka_unit_test(test_made_on_device),
		cmocka_unit_test(test_other_documents),
		cmocka_unit_test(test_fused_casts),
	};
	int status;
	cuda = fo_test_cuda_open(&status);
	if (!cuda)
		return status;
	soft = fo_test_soft(cuda);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fo_cuda_close(cuda);
	return failed;
}
