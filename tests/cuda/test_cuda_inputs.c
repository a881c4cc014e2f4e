/* The next step's batch goes to the device while a step runs: the same bits as without, whatever the order of streams,
 * for steps that are repeated, reached again or run operation by operation, and for batches that are not ready in time.
 * The software device draws when a copy reads the host's memory, so a wait that is missing shows. */
#include "base/clock.h"
#include "base/mem.h"
#include "pass/pass.h"
#include "support/cuda.h"
#include "support/step.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 4, STEPS = 9, SEEDS = 4 };

static struct fo_cuda *cuda;
static const struct fo_test_soft *soft;
static struct step_batch batch[BATCHES];

/* Steps take these batches in turn; the loop goes back once (4 after 6, with 4 itself as a step before had it), as a
 * rewind does. A batch whose bit of `late` is set is not ready while the step before it runs. */
static const int order[STEPS] = { 0, 1, 2, 3, 2, 1, 1, 0, 3 };
static int at, filled, looked; /* the step that runs; batches that were found ahead of it */
static unsigned late;

static int64_t number_of(void *ctx, bool next)
{
	struct step_rig *r = ctx;
	int k = at + next;
	looked += next;
	if (k >= STEPS || (next && late >> k & 1))
		return -1;
	r->batch = &batch[order[k]];
	filled += next;
	return order[k];
}

struct outcome {
	double loss[STEPS], norm[STEPS];
	uint64_t hash;
};

static void make(struct step_rig *r, const struct fo_exec_options *o)
{
	struct fo_model m = step_model(2, 32, 2, 1, 48, 64, false);
	struct fo_lowering low = step_lowering(&batch[0], FO_PRECISION_BF16, FO_MODE_TRAIN);
	low.pass = (struct fo_passes){ .merge_qkv = 1, .fuse_elementwise = 1, .wgrad_lane = 1, .previous_norm = 1 };
	step_rig_lower(r, &m, &low, &batch[0], o);
}

static void count(void *ctx, int instance, void (*run)(void *arg), void *arg)
{
	(void)ctx, (void)instance;
	run(arg);
}

/* around: this step is run operation by operation (-1: none). */
static struct outcome outcome_of(const struct fo_exec_options *o, uint64_t seed, int around)
{
	struct step_rig r;
	struct outcome out = { 0 };
	if (soft)
		soft->seed(seed);
	make(&r, o);
	filled = looked = 0;
	for (at = 0; at < STEPS; at++) {
		r.batch = &batch[order[at]];
		step_rig_at(&r, at + 1);
		must(at == around ? fo_exec_step_around(r.exec, count, NULL) : fo_exec_step(r.exec, at));
		out.loss[at] = r.loss[0];
		out.norm[at] = r.hyper[FO_HYPER_LAST_NORM] = r.scale[1];
	}
	must(fo_exec_fetch(r.exec));
	out.hash = step_rig_hash(&r);
	step_rig_free(&r);
	return out;
}

static void expect(const struct outcome *got, const struct outcome *want, const char *what, int seed)
{
	for (int i = 0; i < STEPS; i++)
		if (got->loss[i] != want->loss[i] || got->norm[i] != want->norm[i])
			fail_msg("%s, seed %d, step %d: loss %.17g, norm %.17g, expected %.17g and %.17g", what, seed,
				 i, got->loss[i], got->norm[i], want->loss[i], want->norm[i]);
	assert_true(got->hash == want->hash);
}

static void test_same_bits(void **state)
{
	(void)state;
	struct fo_exec_options o = { .cuda = cuda, .timeline_steps = 8, .eager = true };
	struct outcome want = outcome_of(&o, 1, -1);
	assert_true(want.loss[0] == want.loss[0] && want.loss[0] != want.loss[1]);
	assert_int_equal(looked, 0);
	for (int seed = 0; seed < SEEDS; seed++)
		for (int eager = 0; eager < 2; eager++) {
			o = (struct fo_exec_options){ .cuda = cuda,
						      .timeline_steps = 8,
						      .eager = eager,
						      .batch = number_of,
						      .poison = seed % 2 };
			o.timed_every = seed % 3;
			late = seed < 2 ? 0 : (unsigned)fo_rng_u64(7, (uint64_t)seed);
			struct outcome got = outcome_of(&o, 50 + (uint64_t)seed, -1);
			expect(&got, &want, eager ? "eager" : "replayed", seed);
			assert_true(looked == STEPS && filled == (late ? filled : STEPS - 1));
			if (eager)
				continue;
			got = outcome_of(&o, 80 + (uint64_t)seed, 2 + seed % 4);
			expect(&got, &want, "a step operation by operation", seed);
		}
	late = 0;
}

/* The ports fill each batch once: what is there when its step begins is not filled again, and what is not asked for
 * costs nothing. */
static void test_filled_once(void **state)
{
	(void)state;
	struct step_rig r;
	struct fo_exec_options o = { .cuda = cuda, .timeline_steps = 8, .batch = number_of };
	int calls[STEPS + 1] = { 0 };
	make(&r, &o);
	for (at = 0; at < STEPS; at++) {
		r.batch = &batch[order[at]];
		step_rig_at(&r, at + 1);
		must(fo_exec_step(r.exec, at));
		calls[at + 1] = r.calls;
	}
	int micro = (int)batch[0].micro_batches, others = 2; /* hyper-parameters in, loss out */
	assert_int_equal(calls[1], 2 * micro + others);
	for (int i = 1; i < STEPS - 1; i++)
		assert_int_equal(calls[i + 1] - calls[i], micro + others);
	assert_int_equal(calls[STEPS] - calls[STEPS - 1], others); /* nothing is behind the last one */
	step_rig_free(&r);
}

/* The step that is repeated to find where a number went wrong has the batch of that step, not the one that was filled
 * in ahead; and going on from there gives what it would have given. */
static void fault_of(uint64_t seed, bool ahead, struct fo_exec_fault *f, double *loss)
{
	struct step_rig r;
	struct fo_exec_options o = { .cuda = cuda, .timeline_steps = 8, .batch = ahead ? number_of : NULL };
	if (soft)
		soft->seed(seed);
	make(&r, &o);
	for (at = 0; at < 2; at++) {
		r.batch = &batch[order[at]];
		step_rig_at(&r, at + 1);
		must(fo_exec_step(r.exec, at));
	}
	/* A row of the embedding that this step reads. */
	must(fo_exec_fetch(r.exec));
	uint16_t *w = (uint16_t *)fo_store_find(r.store, "wte", 0, NULL) +
		      batch[order[2]].token[0] * r.program.model.hidden,
		 keep = *w;
	*w = 0x7f80; /* infinity */
	fo_exec_weights_changed(r.exec);
	r.batch = &batch[order[2]];
	step_rig_at(&r, 3);
	must(fo_exec_step(r.exec, 2));
	assert_true(r.scale[0] == -1);
	r.batch = &batch[order[2]];
	must(fo_exec_find_fault(r.exec, f));
	must(fo_exec_fetch(r.exec));
	*w = keep;
	fo_exec_weights_changed(r.exec);
	at = 3;
	r.batch = &batch[order[3]];
	step_rig_at(&r, 4);
	must(fo_exec_step(r.exec, 3));
	*loss = r.loss[0];
	step_rig_free(&r);
}

static void test_fault(void **state)
{
	(void)state;
	struct fo_exec_fault want, f;
	double loss, got;
	fault_of(1, false, &want, &loss);
	assert_true(want.instance >= 0 && isfinite(loss));
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		if (soft)
			soft->order(seed % 2 ? FO_SOFT_RANDOM : FO_SOFT_LAZY); /* lazy: the copy is under way still */
		fault_of(seed, true, &f, &got);
		assert_string_equal(f.text, want.text);
		assert_true(f.row == want.row && f.col == want.col);
		if (got != loss)
			fail_msg("seed %d: the step behind has a loss of %.17g, expected %.17g", (int)seed, got, loss);
	}
	if (soft)
		soft->order(FO_SOFT_RANDOM);
}

static void test_memory(void **state)
{
	(void)state;
	struct fo_memory m[2];
	for (int ahead = 0; ahead < 2; ahead++) {
		struct step_rig r;
		struct fo_exec_options o = { .cuda = cuda, .timeline_steps = 8, .batch = ahead ? number_of : NULL };
		struct fo_soft_counters before = { 0 }, after = { 0 };
		make(&r, &o);
		if (soft)
			soft->counters(&before, true);
		m[ahead] = fo_exec_memory(r.exec);
		for (at = 0; at < 4; at++) {
			r.batch = &batch[order[at]];
			step_rig_at(&r, at + 1);
			must(fo_exec_step(r.exec, at));
		}
		struct fo_memory n = fo_exec_memory(r.exec);
		if (soft) {
			soft->counters(&after, false);
			assert_int_equal(after.peak_bytes - before.live_bytes, n.arena + n.persistent + n.workspace);
		}
		step_rig_free(&r);
		if (soft) {
			soft->counters(&after, false);
			assert_int_equal(after.live_bytes, before.live_bytes);
		}
	}
	int64_t bytes = 2 * batch[0].seq * batch[0].rows * batch[0].micro_batches * 4 *
			4; /* token, target, position, document, twice */
	assert_true(m[1].workspace - m[0].workspace >= bytes && m[1].arena == m[0].arena &&
		    m[1].staging == m[0].staging);
}

/* Somebody else holds the device's memory when the first step wants it: an error at whatever piece it ends, and once it
 * is given back the same executor runs. */
static void test_no_memory(void **state)
{
	(void)state;
	enum { PAGE = 2 << 20 };
	if (!soft) {
		skip();
		return;
	}
	struct fo_exec_options o = { .cuda = cuda, .timeline_steps = 8 };
	struct fo_soft_counters before, after;
	int refused = 0;
	const double want = outcome_of(&o, 1, -1).loss[0];
	o.batch = number_of;
	soft->counters(&before, false);
	for (int pages = 0;; pages++) {
		struct step_rig r;
		void *others;
		int64_t have, total;
		make(&r, &o);
		must(fo_cuda_memory(cuda, &have, &total));
		must(fo_cuda_alloc(cuda, (size_t)(have - (int64_t)pages * PAGE) / PAGE * PAGE, &others));
		at = 0;
		r.batch = &batch[order[0]];
		step_rig_at(&r, 1);
		fo_status st = fo_exec_step(r.exec, 0);
		fo_cuda_free(cuda, others);
		if (st != FO_OK) {
			assert_int_equal(st, FO_ENOMEM);
			refused++;
			must(fo_exec_step(r.exec, 0));
		}
		assert_true(r.loss[0] == want);
		step_rig_free(&r);
		soft->counters(&after, false);
		assert_int_equal(after.live_bytes, before.live_bytes);
		if (st == FO_OK)
			break;
	}
	assert_true(refused >= 4); /* state, activations, workspaces, batches */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_bits), cmocka_unit_test(test_filled_once), cmocka_unit_test(test_fault),
		cmocka_unit_test(test_memory),    cmocka_unit_test(test_no_memory),
	};
	int status;
	setenv("FLATOUT_SOFT_MEMORY", "67108864", 0); /* a software device fills what is taken of it, here all */
	cuda = fo_test_cuda_open(&status);
	if (!cuda)
		return status;
	soft = fo_test_soft(cuda);
	for (int i = 0; i < BATCHES; i++)
		step_batch_random(&batch[i], 16, 2, 2, 64, 1 + 4 * i, 20 + (uint64_t)i);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	for (int i = 0; i < BATCHES; i++)
		step_batch_free(&batch[i]);
	fo_cuda_close(cuda);
	return failed;
}
