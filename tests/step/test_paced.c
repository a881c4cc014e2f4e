/* Paced kernels: a step takes at least the sum of its given times, uses next to no processor for them, and computes
 * nothing. How much longer than that it takes is the machine's affair: bench/ranks measures it. */
#include "base/clock.h"
#include "pass/pass.h"
#include "support/must.h"
#include "support/step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A profile of two rows: matmuls at flop_s, memory at byte_s, one thread. */
static void given(struct fo_limits *l, double flop_s, double byte_s)
{
	*l = (struct fo_limits){ .cache_bytes = 0 };
	struct fo_limits_row matmul = { .kind = "matmul",
					.variant = "forward",
					.dtype = "f32",
					.threads = 1,
					.dim = { 64, 64, 64 },
					.flop = flop_s,
					.cold = NAN,
					.time = { .median_s = 1, .best_s = 1, .spans = 1 } },
			     copy = { .kind = "copy",
				      .variant = "plain",
				      .dtype = "-",
				      .threads = 1,
				      .dim = { 1 << 20 },
				      .bytes = byte_s,
				      .cold = NAN,
				      .time = { .median_s = 1, .best_s = 1, .spans = 1 } };
	matmul.time.quiet_median_s = matmul.time.quiet_best_s = NAN;
	copy.time.quiet_median_s = copy.time.quiet_best_s = NAN;
	fo_limits_row_add(l, &matmul);
	fo_limits_row_add(l, &copy);
}

struct seen {
	double given_s, took_s, processor_s; /* of one step; the processor's: of all threads */
	int64_t spans;
	double spans_s;
};

static double processor_s(void)
{
	struct timespec t;
	assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void look_at_spans(struct step_rig *r, int32_t step, struct seen *out)
{
	const struct fo_timeline *t = fo_exec_timeline(r->exec);
	out->spans = 0;
	out->spans_s = 0;
	for (int l = 0; l < FO_LANE_COUNT; l++)
		for (uint64_t i = 0; fo_lane_computes(l) && i < t->lane[l].n; i++) {
			const struct fo_span *s = &t->lane[l].span[i];
			if (s->step != step || s->instance < 0)
				continue;
			out->spans++;
			out->spans_s += 1e-9 * (double)(s->end_ns - s->begin_ns);
		}
}

static void run(const struct step_batch *b, struct fo_passes pass, double flop_s, struct seen *out)
{
	const struct fo_model m = step_model(2, 32, 4, 2, 48, 64, false);
	struct fo_lowering low = step_lowering(b, FO_PRECISION_F32, FO_MODE_TRAIN);
	struct fo_limits l;
	struct fo_rates rates;
	struct step_rig r;
	low.pass = pass;
	given(&l, flop_s, 1e15);
	must(fo_rates_init(&rates, &l, 1));
	rates.overhead_s = 1e-5;
	const struct fo_exec_pace pace = { &rates, -1 };
	const struct fo_exec_options o = { .isa = FO_ISA_REF, .threads = 1, .pace = &pace, .timeline_steps = 4 };
	step_rig_lower(&r, &m, &low, b, &o);
	const uint64_t before = step_rig_hash(&r);
	struct fo_op_time *of = fo_rates_step(&rates, &r.program, fo_exec_unrolled(r.exec), -1, NULL);
	memset(out, 0, sizeof *out);
	for (int i = 0; i < fo_exec_unrolled(r.exec)->n; i++)
		if (fo_op_has_kernel(fo_instance_op(&r.program, fo_exec_unrolled(r.exec), i)->kind))
			out->given_s += of[i].seconds + rates.overhead_s;
	free(of);
	must(fo_exec_step(r.exec, 0));
	double begin = processor_s();
	const int64_t t0 = fo_now_ns();
	must(fo_exec_step(r.exec, 1));
	out->took_s = 1e-9 * (double)(fo_now_ns() - t0);
	out->processor_s = processor_s() - begin;
	look_at_spans(&r, 1, out);
	assert_true(step_rig_hash(&r) == before);
	step_rig_free(&r);
	fo_limits_fini(&l);
}

static void test_takes_given_times(void **state)
{
	(void)state;
	struct step_batch b;
	struct seen one, half;
	step_batch_random(&b, 12, 2, 2, 64, 1, 5);
	for (int lane = 0; lane < 2; lane++) {
		const struct fo_passes pass = { .wgrad_lane = lane };
		run(&b, pass, 1e8, &one);
		run(&b, pass, 0.5e8, &half);
		print_message("%s: given %.4f and %.4f s, took %.4f and %.4f s, %.4f and %.4f s of a processor\n",
			      lane ? "two lanes" : "one lane", one.given_s, half.given_s, one.took_s, half.took_s,
			      one.processor_s, half.processor_s);
		/* Half the rate is twice the time, but for the overhead and what moves memory. */
		assert_true(half.given_s > 1.5 * one.given_s);
		/* The lanes take turns, so all times are one behind the other; nothing ends early. A nanosecond of
		 * rounding for each operation. */
		assert_true(one.took_s >= one.given_s - 1e-9 * (double)one.spans);
		assert_true(half.took_s >= half.given_s - 1e-9 * (double)half.spans);
		/* A wait is not work: what the executor itself does was given as 10 us an operation, and sanitizers
		 * take a multiple of that. */
		assert_true(half.processor_s < 0.5 * half.given_s);
		/* The timeline has them. The last one alone may be cut short by what came late before it. */
		assert_int_equal(one.spans, half.spans);
		assert_true(half.spans_s > 0.5 * half.given_s);
	}
	step_batch_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_takes_given_times) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
