/* Pipeline schedules: every small shape of every kind is checked, walked and compared with the published formulas; the
 * checker and the walk are held against ones that know nothing of graphs. */
#include "program/schedule.h"

#include "base/mem.h"
#include "base/rng.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGES = 8, BATCHES = 16, CHUNKS = 4 };
typedef void shape_fn(const struct fo_pp_shape *p, void *ctx);

static int every_shape(enum fo_pp_kind kind, shape_fn *fn, void *ctx)
{
	int shapes = 0;
	for (int32_t stages = 1; stages <= STAGES; stages++)
		for (int32_t m = 1; m <= BATCHES; m++)
			for (int32_t chunks = 1; chunks <= CHUNKS; chunks++) {
				const struct fo_pp_shape p = { kind, stages, m, chunks };
				if (fo_pp_legal(&p) != FO_OK)
					continue;
				fn(&p, ctx);
				shapes++;
			}
	return shapes;
}
static const char *about(const struct fo_pp_shape *p)
{
	static char text[128];
	snprintf(text, sizeof text, "%s, %d stages, %d micro-batches, %d chunks", fo_pp_name[p->kind], p->stages,
		 p->micro_batches, p->chunks);
	return text;
}

/* ---- every schedule can run, and holds what is published ---- */

/* Counts the schedules that in-order lanes would stop. */
static void check_shape(const struct fo_pp_shape *p, void *ctx)
{
	struct fo_pp_plan plan;
	int *stopped = ctx;
	fo_pp_plan_of(&plan, p);
	assert_true(plan.begin[p->stages] <= fo_pp_slots_most(p) * p->stages);
	if (fo_pp_check(&plan, FO_PP_BUFFERED) != FO_OK)
		fail_msg("%s: %s", about(p), fo_err_text());
	*stopped += fo_pp_check(&plan, FO_PP_LANES) != FO_OK;
	for (int32_t s = 0; s < p->stages; s++) {
		const struct fo_pp_slot *slot = plan.slot + plan.begin[s];
		const int64_t n = plan.begin[s + 1] - plan.begin[s];
		int32_t input, held = fo_pp_in_flight(slot, n, &input);
		if (held != fo_pp_in_flight_formula(p, s) || input > held || input < 1)
			fail_msg("%s, stage %d: holds %d, %d before the input's gradient; the formula says %lld",
				 about(p), s, held, input, (long long)fo_pp_in_flight_formula(p, s));
		/* Gradients are added up in the order of micro-batches. */
		int32_t last[FO_PP_CHUNKS_MOST];
		memset(last, 0xff, sizeof last);
		for (int64_t i = 0; i < n; i++)
			if (slot[i].work == FO_PP_BACKWARD || slot[i].work == FO_PP_WEIGHT) {
				assert_int_equal(slot[i].mb, last[slot[i].chunk] + 1);
				last[slot[i].chunk] = slot[i].mb;
			}
	}
	fo_pp_plan_free(&plan);
}
static void test_every_shape_can_run(void **state)
{
	static const int shapes[FO_PP_KINDS_COUNT] = { 128, 128, 384, 128, 128, 64 };
	(void)state;
	for (int k = 0; k < FO_PP_KINDS_COUNT; k++) {
		int stopped = 0;
		assert_int_equal(every_shape((enum fo_pp_kind)k, check_shape, &stopped), shapes[k]);
		/* A V of six stages and more needs transfers that overtake each other. */
		assert_int_equal(stopped, k == FO_PP_DUALPIPE_V ? 9 : 0);
	}
}

struct tally {
	double forward, input, weight;
	int held, none;
};
static void compare_formula(const struct fo_pp_shape *p, void *ctx)
{
	struct tally *t = ctx;
	struct fo_pp_plan plan;
	struct fo_pp_walk w;
	struct fo_pp_formula f;
	const struct fo_pp_times times = { .forward_s = t->forward / p->chunks,
					   .input_s = t->input / p->chunks,
					   .weight_s = t->weight / p->chunks };
	fo_pp_formula_of(&f, p, t->forward, t->input, t->weight);
	assert_true(*f.text && *f.source && *f.condition);
	if (isnan(f.idle_s)) {
		t->none++;
		return;
	}
	fo_pp_plan_of(&plan, p);
	must(fo_pp_walk_of(&w, &plan, &times, FO_PP_BUFFERED));
	const double work = p->micro_batches * (t->forward + t->input + t->weight);
	const double idle = (f.of_pipeline ? w.pipeline_s : w.step_s) - work, close = 1e-9 * (1 + work);
	assert_true(fabs(w.bubble - (1 - work / w.step_s)) <= 1e-9);
	if (f.bound ? idle > f.idle_s + close : fabs(idle - f.idle_s) > close)
		fail_msg("%s, F %g, I %g, W %g: idle for %.9g by the walk, %.9g by %s", about(p), t->forward, t->input,
			 t->weight, idle, f.idle_s, f.text);
	t->held++;
	fo_pp_walk_free(&w);
	fo_pp_plan_free(&plan);
}
static void test_bubbles_are_the_published_ones(void **state)
{
	(void)state;
	for (int k = 0; k < FO_PP_KINDS_COUNT; k++) {
		int held = 0, none = 0;
		for (uint64_t i = 0; i < 6; i++) {
			struct tally t = { .forward = 1, .input = 1, .weight = 1 };
			if (i) { /* 0.2 to 2 each */
				t.forward = 0.2 + 1.8 * 0x1p-64 * (double)fo_rng_u64(k, 3 * i);
				t.input = 0.2 + 1.8 * 0x1p-64 * (double)fo_rng_u64(k, 3 * i + 1);
				t.weight = 0.2 + 1.8 * 0x1p-64 * (double)fo_rng_u64(k, 3 * i + 2);
			}
			every_shape((enum fo_pp_kind)k, compare_formula, &t);
			held += t.held;
			none += t.none;
		}
		assert_true(held > 100);
		assert_int_equal(none > 0, k == FO_PP_ZB_H1 || k == FO_PP_ZB_H2 || k == FO_PP_DUALPIPE_V);
	}
}

/* ---- a second checker and walk: queues that are served in turns ---- */

struct message {
	int32_t from, to, of; /* slots of the plan; the receiving slot names it */
	bool back;
};
struct queue {
	int32_t *item; /* slots, or messages as ~their receiving slot */
	int n, at;
};
/* Work and messages of a stage, in the order in which it gets to them: compute, sends and receives by direction. */
struct turns {
	const struct fo_pp_plan *plan;
	struct message *message; /* by receiving slot; of -1: none */
	struct queue *queue;     /* [stage][QUEUES] */
	bool *done, *arrived;    /* by slot */
	double *end, *arrival;
};
enum { COMPUTE, SEND, RECEIVE = SEND + 2, QUEUES = RECEIVE + 2 };

static int32_t find(const struct fo_pp_plan *plan, const struct fo_pp_peer *peer)
{
	for (int64_t i = plan->begin[peer->stage]; i < plan->begin[peer->stage + 1]; i++) {
		const struct fo_pp_slot s = plan->slot[i];
		if (s.mb == peer->slot.mb && s.chunk == peer->slot.chunk && s.work != FO_PP_WEIGHT &&
		    (s.work == FO_PP_FORWARD) == (peer->slot.work == FO_PP_FORWARD))
			return (int32_t)i;
	}
	fail_msg("a slot is missing");
	return -1;
}
static void push(struct queue *q, int32_t item) { q->item[q->n++] = item; }

static void turns_init(struct turns *t, const struct fo_pp_plan *plan, enum fo_pp_sends sends)
{
	const int32_t stages = plan->shape.stages;
	const size_t n = (size_t)plan->begin[stages];
	*t = (struct turns){ .plan = plan,
			     .message = fo_xmalloc(n * sizeof *t->message),
			     .queue = fo_xmalloc((size_t)stages * QUEUES * sizeof *t->queue),
			     .done = fo_xmalloc(n),
			     .arrived = fo_xmalloc(n),
			     .end = fo_xmalloc(n * sizeof *t->end),
			     .arrival = fo_xmalloc(n * sizeof *t->arrival) };
	for (int i = 0; i < stages * QUEUES; i++)
		t->queue[i].item = fo_xmalloc(3 * n * sizeof *t->queue[i].item);
	for (int32_t s = 0; s < stages; s++)
		for (int32_t i = (int32_t)plan->begin[s]; i < plan->begin[s + 1]; i++) {
			struct fo_pp_peer peer;
			struct queue *q = &t->queue[s * QUEUES];
			const int back = plan->slot[i].work != FO_PP_FORWARD;
			const bool blocks = sends == FO_PP_BLOCKING;
			t->message[i].of = -1;
			if (fo_pp_needs(&plan->shape, s, plan->slot[i], &peer)) {
				t->message[i] = (struct message){ find(plan, &peer), i, i, back };
				if (peer.stage != s)
					push(blocks ? q : q + RECEIVE + back, ~i);
			}
			push(q, i);
			if (fo_pp_feeds(&plan->shape, s, plan->slot[i], &peer) && peer.stage != s)
				push(blocks ? q : q + SEND + back, ~find(plan, &peer));
		}
}
static void turns_fini(struct turns *t)
{
	for (int i = 0; i < t->plan->shape.stages * QUEUES; i++)
		free(t->queue[i].item);
	free(t->message);
	free(t->queue);
	free(t->done);
	free(t->arrived);
	free(t->end);
	free(t->arrival);
}

static int32_t stage_of(const struct fo_pp_plan *plan, int32_t slot)
{
	int32_t s = 0;
	while (slot >= plan->begin[s + 1])
		s++;
	return s;
}
/* The queue of the stage whose next item is the message, as sender or as receiver; NULL: it is not its turn. */
static struct queue *turn_of(struct turns *t, int32_t stage, int32_t slot, int lane, enum fo_pp_sends sends)
{
	struct queue *q = &t->queue[stage * QUEUES + (sends == FO_PP_BLOCKING ? COMPUTE : lane)];
	return q->at < q->n && q->item[q->at] == ~slot ? q : NULL;
}
static bool serve_message(struct turns *t, int32_t slot, enum fo_pp_sends sends)
{
	const struct message m = t->message[slot];
	const int32_t from = stage_of(t->plan, m.from), to = stage_of(t->plan, slot);
	struct queue *a = turn_of(t, from, slot, SEND + m.back, sends);
	struct queue *b = turn_of(t, to, slot, RECEIVE + m.back, sends);
	if (!t->done[m.from] || !a || (!b && sends != FO_PP_BUFFERED))
		return false;
	a->at++;
	if (sends != FO_PP_BUFFERED)
		b->at++;
	t->arrived[slot] = true;
	return true;
}
static bool serve_slot(struct turns *t, int32_t stage)
{
	struct queue *q = &t->queue[stage * QUEUES];
	if (q->at >= q->n || q->item[q->at] < 0)
		return false;
	const int32_t i = q->item[q->at];
	const struct message m = t->message[i];
	if (m.of >= 0 && (stage_of(t->plan, m.from) == stage ? !t->done[m.from] : !t->arrived[i]))
		return false;
	t->done[i] = true;
	q->at++;
	return true;
}
static bool runs(const struct fo_pp_plan *plan, enum fo_pp_sends sends)
{
	struct turns t;
	const int32_t n = (int32_t)plan->begin[plan->shape.stages];
	turns_init(&t, plan, sends);
	for (bool more = true; more;) {
		more = false;
		for (int32_t s = 0; s < plan->shape.stages; s++)
			more |= serve_slot(&t, s);
		for (int32_t i = 0; i < n; i++)
			if (t.message[i].of >= 0 && !t.arrived[i] &&
			    stage_of(plan, t.message[i].from) != stage_of(plan, i))
				more |= serve_message(&t, i, sends);
	}
	bool all = true;
	for (int32_t i = 0; i < n; i++)
		all &= t.done[i];
	turns_fini(&t);
	return all;
}
/* Whether each stage alone could run its list: backward after forward, weights after input. */
static bool stages_can(const struct fo_pp_plan *plan)
{
	static const int before[FO_PP_WORKS] = { -1, FO_PP_FORWARD, FO_PP_FORWARD, FO_PP_INPUT };
	for (int32_t s = 0; s < plan->shape.stages; s++)
		for (int64_t i = plan->begin[s]; i < plan->begin[s + 1]; i++) {
			const struct fo_pp_slot a = plan->slot[i];
			bool found = before[a.work] < 0;
			for (int64_t k = plan->begin[s]; k < i; k++)
				found |= plan->slot[k].mb == a.mb && plan->slot[k].chunk == a.chunk &&
					 plan->slot[k].work == before[a.work];
			if (!found)
				return false;
		}
	return true;
}

/* Every exchange of two slots of a stage: the checker finds what cannot run, and nothing else. */
static void test_checker_finds_swapped_slots(void **state)
{
	static const struct fo_pp_shape shape[] = { { FO_PP_GPIPE, 1, 5, 1 },     { FO_PP_GPIPE, 3, 3, 1 },
						    { FO_PP_1F1B, 3, 4, 1 },      { FO_PP_INTERLEAVED, 2, 3, 2 },
						    { FO_PP_ZB_H1, 3, 3, 1 },     { FO_PP_ZB_H2, 3, 3, 1 },
						    { FO_PP_DUALPIPE_V, 2, 4, 2 } };
	int wrong[FO_PP_SENDS] = { 0 }, right[FO_PP_SENDS] = { 0 };
	(void)state;
	for (size_t k = 0; k < sizeof shape / sizeof *shape; k++) {
		struct fo_pp_plan plan;
		fo_pp_plan_of(&plan, &shape[k]);
		for (int32_t s = 0; s < shape[k].stages; s++)
			for (int64_t i = plan.begin[s]; i < plan.begin[s + 1]; i++)
				for (int64_t j = i + 1; j < plan.begin[s + 1]; j++) {
					const struct fo_pp_slot a = plan.slot[i];
					plan.slot[i] = plan.slot[j];
					plan.slot[j] = a;
					for (int e = 0; e < FO_PP_SENDS; e++) {
						const bool can = stages_can(&plan) && runs(&plan, (enum fo_pp_sends)e);
						const bool said = fo_pp_check(&plan, (enum fo_pp_sends)e) == FO_OK;
						if (can != said)
							fail_msg("%s, stage %d, slots %lld and %lld, %s: %s",
								 about(&shape[k]), s, (long long)(i - plan.begin[s]),
								 (long long)(j - plan.begin[s]), fo_pp_sends_name[e],
								 said ? "not found" : fo_err_text());
						wrong[e] += !can;
						right[e] += can;
					}
					plan.slot[j] = plan.slot[i];
					plan.slot[i] = a;
				}
		fo_pp_plan_free(&plan);
	}
	for (int e = 0; e < FO_PP_SENDS; e++)
		if (wrong[e] < 100 || right[e] < 10)
			fail_msg("%s: %d cannot run, %d can", fo_pp_sends_name[e], wrong[e], right[e]);
}

static void expect_defect(struct fo_pp_plan *plan, enum fo_pp_sends sends, const char *text)
{
	assert_int_equal(fo_pp_check(plan, sends), FO_EARG);
	if (!strstr(fo_err_text(), text))
		fail_msg("'%s' does not have '%s'", fo_err_text(), text);
}
static void test_checker_names_defects(void **state)
{
	struct fo_pp_plan plan;
	struct fo_pp_slot was;
	(void)state;
	fo_pp_plan_of(&plan, &(struct fo_pp_shape){ FO_PP_ZB_H1, 2, 3, 1 });
	was = plan.slot[1];
	plan.slot[1] = plan.slot[0];
	expect_defect(&plan, FO_PP_BUFFERED, "stage 0 has forward of micro-batch 0, chunk 0 twice: slots 0 and 1");
	plan.slot[1] = was;
	plan.slot[1].mb = 3;
	expect_defect(&plan, FO_PP_BUFFERED, "stage 0, slot 1: work 0 on micro-batch 3");
	plan.slot[1] = was;
	plan.begin[1]--; /* the last slot of stage 0 is stage 1's now */
	expect_defect(&plan, FO_PP_BUFFERED, "stage 1 has backward-weight of micro-batch 2, chunk 0 twice");
	plan.begin[1]++;
	plan.begin[2]--;
	expect_defect(&plan, FO_PP_BUFFERED, "stage 1 has no backward of the weights of micro-batch 2");
	plan.begin[2]++;
	must(fo_pp_check(&plan, FO_PP_LANES));
	expect_defect(&plan, FO_PP_BLOCKING, "the order of slots never ends with blocking sends: ");
	fo_pp_plan_free(&plan);
}

/* ---- walks with unequal times and sends ---- */

/* Ends by repeating every rule until nothing changes. */
static void relax(struct turns *t, const struct fo_pp_times *times, enum fo_pp_sends sends)
{
	const struct fo_pp_plan *plan = t->plan;
	for (bool more = true; more;) {
		more = false;
		for (int i = 0; i < plan->shape.stages * QUEUES; i++) {
			const struct queue *q = &t->queue[i];
			if (sends == FO_PP_BUFFERED && i % QUEUES >= RECEIVE)
				continue;
			double last = 0; /* end of what the queue did before */
			for (int k = 0; k < q->n; k++) {
				const int32_t slot = q->item[k] < 0 ? ~q->item[k] : q->item[k];
				const struct message m = t->message[slot];
				double begin = last, *end = &t->end[slot], took = times->send_s;
				if (q->item[k] < 0) {
					begin = fmax(begin, t->end[m.from]);
					end = &t->arrival[slot];
				} else {
					const int32_t s = i / QUEUES;
					const bool own = m.of >= 0 && stage_of(plan, m.from) == s;
					if (m.of >= 0)
						begin = fmax(begin, own ? t->end[m.from] : t->arrival[slot]);
					took = fo_pp_seconds(times,
							     fo_pp_position(&plan->shape, s, plan->slot[slot].chunk),
							     plan->slot[slot].work);
				}
				if (begin + took > *end) {
					*end = begin + took;
					more = true;
				}
				last = *end;
			}
		}
	}
}
static void test_walk_with_unequal_times(void **state)
{
	static const struct fo_pp_shape shape[] = { { FO_PP_GPIPE, 4, 5, 1 },       { FO_PP_1F1B, 4, 7, 1 },
						    { FO_PP_INTERLEAVED, 3, 5, 3 }, { FO_PP_ZB_H1, 4, 6, 1 },
						    { FO_PP_ZB_H2, 3, 7, 1 },       { FO_PP_DUALPIPE_V, 3, 7, 2 },
						    { FO_PP_1F1B, 8, 3, 1 },        { FO_PP_INTERLEAVED, 4, 2, 2 } };
	(void)state;
	for (size_t k = 0; k < sizeof shape / sizeof *shape; k++)
		for (int e = 0; e < FO_PP_BLOCKING; e++) {
			double v[3][STAGES * CHUNKS];
			const struct fo_pp_times times = {
				.forward = v[0], .input = v[1], .weight = v[2], .send_s = e ? 0.3 : 0.7
			};
			struct fo_pp_plan plan;
			struct fo_pp_walk w;
			struct turns t;
			for (int i = 0; i < 3 * STAGES * CHUNKS; i++)
				v[i / (STAGES * CHUNKS)][i % (STAGES * CHUNKS)] = 0.25 +
										  0x1p-64 * (double)fo_rng_u64(
												    k, (uint64_t)i);
			fo_pp_plan_of(&plan, &shape[k]);
			must(fo_pp_walk_of(&w, &plan, &times, (enum fo_pp_sends)e));
			turns_init(&t, &plan, (enum fo_pp_sends)e);
			relax(&t, &times, (enum fo_pp_sends)e);
			double step = 0;
			for (int64_t i = 0; i < plan.begin[shape[k].stages]; i++) {
				assert_true(fabs(w.span[i].end - t.end[i]) < 1e-9);
				step = fmax(step, t.end[i]);
			}
			assert_true(fabs(w.step_s - step) < 1e-9);
			turns_fini(&t);
			fo_pp_walk_free(&w);
			fo_pp_plan_free(&plan);
		}
}

/* ---- positions, names, limits ---- */

static void test_parts_and_peers(void **state)
{
	(void)state;
	for (int k = 0; k < FO_PP_KINDS_COUNT; k++) {
		const struct fo_pp_shape p = { (enum fo_pp_kind)k, 4, 8, fo_pp_chunks_usual((enum fo_pp_kind)k) };
		int seen = 0;
		must(fo_pp_legal(&p));
		for (int32_t at = 0; at < fo_pp_parts(&p); at++) {
			int32_t stage, chunk;
			struct fo_pp_peer next, back;
			fo_pp_holder(&p, at, &stage, &chunk);
			assert_int_equal(fo_pp_position(&p, stage, chunk), at);
			const struct fo_pp_slot s = { 5, (int16_t)chunk, FO_PP_FORWARD };
			assert_int_equal(fo_pp_feeds(&p, stage, s, &next), at + 1 < fo_pp_parts(&p));
			if (at + 1 == fo_pp_parts(&p))
				continue;
			assert_true(fo_pp_needs(&p, next.stage, next.slot, &back));
			assert_int_equal(back.stage, stage);
			assert_memory_equal(&back.slot.mb, &s.mb, sizeof s.mb);
			assert_int_equal(back.slot.chunk, chunk);
			seen += next.stage == stage;
		}
		assert_int_equal(seen, k == FO_PP_DUALPIPE_V); /* the point of the V */
	}
}
static void expect_illegal(struct fo_pp_shape p, const char *text)
{
	assert_int_equal(fo_pp_legal(&p), FO_EARG);
	if (!strstr(fo_err_text(), text))
		fail_msg("'%s' does not have '%s'", fo_err_text(), text);
}
static void test_limits(void **state)
{
	enum fo_pp_kind kind;
	struct fo_str text = { 0 };
	(void)state;
	must(fo_pp_kind_of("zb-h1", &kind));
	assert_int_equal(kind, FO_PP_ZB_H1);
	assert_int_equal(fo_pp_kind_of("1F1B2", &kind), FO_EARG);
	assert_non_null(strstr(fo_err_hint(), "gpipe, 1f1b, interleaved, zb-h1, zb-h2, dualpipe-v"));
	expect_illegal((struct fo_pp_shape){ FO_PP_1F1B, 0, 4, 1 }, "1 to 4096 stages, not 0: the nearest is 1");
	expect_illegal((struct fo_pp_shape){ FO_PP_1F1B, 2, 1 << 20, 1 }, "micro-batches, not 1048576: the nearest is");
	expect_illegal((struct fo_pp_shape){ FO_PP_1F1B, 2, 4, 2 }, "schedule 1F1B has 1 chunk per stage, not 2");
	expect_illegal((struct fo_pp_shape){ FO_PP_INTERLEAVED, 2, 4, 1 }, "with 1 it is 1f1b");
	expect_illegal((struct fo_pp_shape){ FO_PP_INTERLEAVED, 2, 4, 65 }, "2 to 64 chunks per stage, not 65");
	expect_illegal((struct fo_pp_shape){ FO_PP_DUALPIPE_V, 4, 7, 2 }, "for 4 stages 8 or more, not 7");
	expect_illegal((struct fo_pp_shape){ FO_PP_INTERLEAVED, 4096, 65536, 64 }, "micro-batches are 16");
	must(fo_pp_legal(&(struct fo_pp_shape){ FO_PP_INTERLEAVED, 4096, 16, 64 }));
	fo_pp_remark(&(struct fo_pp_shape){ FO_PP_1F1B, 4, 4, 1 }, &text);
	assert_int_equal(text.len, 0);
	fo_pp_remark(&(struct fo_pp_shape){ FO_PP_1F1B, 4, 1, 1 }, &text);
	assert_non_null(strstr(text.data, "1 micro-batch for 4 stages leaves a stage idle for 75 % of the step"));
	fo_str_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_shape_can_run),
		cmocka_unit_test(test_bubbles_are_the_published_ones),
		cmocka_unit_test(test_checker_finds_swapped_slots),
		cmocka_unit_test(test_checker_names_defects),
		cmocka_unit_test(test_walk_with_unequal_times),
		cmocka_unit_test(test_parts_and_peers),
		cmocka_unit_test(test_limits),
	};
	return cmocka_run_group_tests_name("pipeline_orders", tests, NULL, NULL);
}
