/* Goodput against arithmetic by hand and against drawn runs; scaling sizes against the search that plans one size. */
#include "hw/catalogue.h"
#include "plan/scale.h"
#include "score/score.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- goodput ---- */

static void test_by_hand(void **state)
{
	(void)state;
	/* Llama 3: 419 failures in 54 days of 16,384 devices, 2,048 nodes. */
	const double f = fo_goodput_rate(419 / 54.0 / 2.048, 16384);
	assert_true(fabs(f * 54 * 86400 / 419 - 1) < 1e-12);
	/* Rare failures: share = 1 - S / I - f (I / 2 + R) to first order; I = sqrt(2 S / f). */
	const double rare = 1e-7, save = 10, restart = 600, best = fo_goodput_best(rare, save);
	assert_true(fabs(best / sqrt(2 * save / rare) - 1) < 1e-3);
	assert_true(fabs(fo_goodput_share(rare, save, restart, best) -
			 (1 - save / best - rare * (best / 2 + restart))) < 1e-5);
	/* One interval as long as the mean time between failures: e times as long as it, less the interval itself. */
	assert_true(fabs(fo_goodput_share(1, 0, 0, 1) - 1 / (exp(1) - 1)) < 1e-12);
	assert_true(fo_goodput_share(0, 10, 600, 90) == 0.9);
	assert_true(isinf(fo_goodput_best(0, 10)) && fo_goodput_share(0, 10, 600, INFINITY) == 1);
	assert_true(fo_goodput_best(rare, 0) == 0 && fabs(fo_goodput_share(rare, 0, 1e7, 0) - exp(-1)) < 1e-12);
	assert_true(fo_goodput_share(1e9, 10, 600, 10) == 0);
}

/* The best interval is better than its neighbours, from rare failures to failures faster than a save. */
static void test_best(void **state)
{
	(void)state;
	for (double f = 1e-9; f < 1; f *= 7)
		for (double save = 0.1; save < 1e4; save *= 9) {
			double best = fo_goodput_best(f, save), share = fo_goodput_share(f, save, 100, best);
			assert_true(best > 0 && best <= 1 / f);
			assert_true(share >= fo_goodput_share(f, save, 100, best * 1.01) * (1 - 1e-12));
			assert_true(share >= fo_goodput_share(f, save, 100, best / 1.01) * (1 - 1e-12));
		}
}

/* Drawn runs of known inputs: their middle is the closed form's mean, and they lie closer together as runs are longer.
 * The tolerance is four standard errors of the spread that the runs themselves show. */
static void test_drawn(void **state)
{
	(void)state;
	double before = INFINITY;
	for (double days = 5; days <= 500; days *= 10) {
		const struct fo_goodput_in in = { .devices = 4096,
						  .failures = { 5, 5 },
						  .save_s = { 30, 30 },
						  .restart_s = { 900, 900 },
						  .days = days,
						  .seed = 7 };
		struct fo_goodput g, other;
		fo_goodput_of(&in, &g);
		double wide = g.drawn.high - g.drawn.low, sd = wide / (2 * 1.2816);
		/* A run is cut off where it ends: of 5 days that is a part of one of many intervals. */
		assert_true(fabs(fo_range_middle(g.drawn) - g.share) < 4 * sd / sqrt(100) + 0.002);
		assert_true(wide > 0 && wide < 0.6 * before);
		before = wide;
		assert_true(fabs(g.saving + g.failing + g.share - 1) < 1e-12 && g.saving > 0 && g.failing > 0);
		assert_true(fabs(g.failures * g.failure_s / (days * 86400) - 1) < 1e-12);
		fo_goodput_of(&in, &other);
		assert_memory_equal(&g, &other, sizeof g);
	}
	/* Saves that take no time: the best interval is 0, and all that is lost is lost to failures. */
	const struct fo_goodput_in free = { .devices = 4096,
					    .failures = { 5, 5 },
					    .save_s = { 0, 0 },
					    .restart_s = { 900, 900 },
					    .days = 5,
					    .seed = 7 };
	struct fo_goodput at_once;
	fo_goodput_of(&free, &at_once);
	assert_true(at_once.interval_s == 0 && at_once.saving == 0 && at_once.failing == 1 - at_once.share);
	/* Another interval is worse; one near it hardly. */
	struct fo_goodput_in in = { .devices = 16384,
				    .failures = FO_GOODPUT_FAILURES,
				    .save_s = FO_GOODPUT_SAVE_S,
				    .restart_s = FO_GOODPUT_RESTART_S,
				    .days = FO_GOODPUT_DAYS };
	struct fo_goodput best, rare, often;
	fo_goodput_of(&in, &best);
	in.interval_s = 10 * best.interval_s;
	fo_goodput_of(&in, &rare);
	in.interval_s = best.interval_s / 10;
	fo_goodput_of(&in, &often);
	assert_true(best.share > rare.share && best.share > often.share);
	assert_true(rare.failing > best.failing && often.saving > best.saving);
	/* Llama 3's own figure, "more than 90 %", is not outside the interval of what is assumed of nobody. */
	assert_true(best.drawn.low < 0.9 && best.drawn.high > 0.9);
}

/* ---- sizes ---- */

static struct fo_catalogue catalogue;

static void ask(struct fo_scale_asked *a, const char *model, const char *device, double per_node, double devices,
		double batch)
{
	const struct fo_device *d;
	struct fo_model m;
	struct fo_predict_job job = { .style = fo_predict_style_of("megatron"), .type = FO_PREDICT_BF16, .seq = 8192 };
	assert_int_equal(fo_model_load(model, &m), FO_OK);
	assert_int_equal(fo_catalogue_find(&catalogue, device, &d), FO_OK);
	assert_int_equal(fo_predict_machine_of(d, &job.machine), FO_OK);
	job.machine.per_node = per_node;
	fo_predict_model_of(&m, &job.model);
	*a = (struct fo_scale_asked){ .plan = { .framework = fo_plan_framework_of("megatron"),
						.devices = devices,
						.global_batch = batch,
						.fixed = { .zero = -1, .schedule = -1, .again = -1 } },
				      .per_node = per_node,
				      .net = { 0.5, 1 },
				      .goodput = { .failures = FO_GOODPUT_FAILURES,
						   .save_s = FO_GOODPUT_SAVE_S,
						   .restart_s = FO_GOODPUT_RESTART_S,
						   .days = FO_GOODPUT_DAYS } };
	assert_null(fo_predict_prepare(&job, &a->plan.base));
}

static void test_sizes(void **state)
{
	(void)state;
	double size[FO_SCALE_SIZES];
	int n = fo_scale_sizes(size);
	assert_true(n == 16 && size[0] == 8 && size[15] == 262144);
	assert_true(size[4] == 128);
	for (int i = 0; i < n; i++)
		assert_int_equal(fo_scale_check(72, size[i]), FO_OK);
	assert_int_equal(fo_scale_check(72, 144), FO_OK);
	assert_int_equal(fo_scale_check(8, 4), FO_OK);
	assert_int_equal(fo_scale_check(8, 100), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "100 devices"));
	assert_int_equal(fo_scale_check(8, 0), FO_EARG);
	assert_int_equal(fo_scale_check(8, 8.5), FO_EARG);
	fo_err_clear();
}

static const struct fo_scale_point *of_size(const struct fo_scale *s, double devices)
{
	for (int i = 0; i < s->points; i++)
		if (s->point[i].devices == devices)
			return &s->point[i];
	return NULL;
}

static void test_points(void **state)
{
	(void)state;
	static const double some[] = { 8, 128, 1024, 16384, 262144 };
	struct fo_scale_asked a;
	struct fo_scale *s = malloc(sizeof *s);
	struct fo_plan *plan = malloc(sizeof *plan);
	ask(&a, "llama-3.1-70b", "h100", 8, 128, 512);
	for (int weak = 0; weak < 2; weak++) {
		a.weak = weak;
		a.sizes = sizeof some / sizeof *some;
		memcpy(a.size, some, sizeof some);
		assert_int_equal(fo_scale_of(s, &a), FO_OK);
		assert_int_equal(s->points, a.sizes);
		assert_int_equal(of_size(s, 8)->fit, FO_SCALE_TOO_LARGE);
		assert_true(of_size(s, 8)->smallest_bytes > 80e9);
		/* A point is what the search for its size alone says. */
		const struct fo_scale_point *p = of_size(s, 1024);
		struct fo_plan_asked one = a.plan;
		one.devices = 1024;
		one.global_batch = weak ? 4096 : 512;
		assert_int_equal(fo_plan_search(plan, &one), FO_OK);
		assert_true(p->plan.step.seconds == plan->point[plan->named].step.seconds);
		assert_true(p->global_batch == one.global_batch && !p->size);
		double kept = 1;
		for (int i = 0; i < s->points; i++) {
			p = &s->point[i];
			if (p->fit != FO_SCALE_FITS)
				continue;
			assert_true(p->mfu_causal.low < p->plan.step.mfu_causal &&
				    p->plan.step.mfu_causal < p->mfu_causal.high);
			assert_int_equal(!p->size, p->devices <= FO_PREDICT_PUBLISHED_DEVICES);
			assert_true(p->goodput.share < kept && p->goodput.drawn.low < p->goodput.drawn.high);
			kept = p->goodput.share;
			assert_true(p->kept_tokens_s.high < p->tokens_s.high);
		}
		/* A batch that stays as it is leaves less and less to each device. */
		double large = of_size(s, 262144)->plan.step.mfu, less = of_size(s, 1024)->plan.step.mfu / 2;
		assert_true(weak ? large > less : large < less);
	}
	/* Where the network was measured its guess is no part of the interval. */
	const struct fo_range guessed = of_size(s, 1024)->seconds;
	a.net_measured = true;
	assert_int_equal(fo_scale_of(s, &a), FO_OK);
	assert_true(of_size(s, 1024)->seconds.high < guessed.high && !of_size(s, 16384)->size);
	/* 8 devices of the 13 sequences that 128 have are no whole number. */
	a.plan.global_batch = 13;
	a.size[0] = 8, a.size[1] = 128, a.sizes = 2;
	fo_status st = fo_scale_of(s, &a);
	assert_int_equal(s->point[0].fit, FO_SCALE_NO_BATCH);
	assert_true(st == FO_OK || s->point[1].fit == FO_SCALE_NO_DIVISION);
	fo_err_clear();
	a.plan.fixed.tp = 7;
	assert_int_equal(fo_scale_of(s, &a), FO_EARG);
	fo_err_clear();
	free(plan);
	free(s);
}

/* The largest cluster that the constants rest on. */
static void test_published(void **state)
{
	(void)state;
	struct fo_score_table t;
	double most = 0;
	assert_int_equal(fo_score_read_own(&catalogue, &t), FO_OK);
	for (int i = 0; i < t.rows; i++)
		most = t.row[i].scope && !t.row[i].refused ? fmax(most, t.row[i].layout.devices) : most;
	assert_true(most == FO_PREDICT_PUBLISHED_DEVICES);
	fo_score_fini(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_hand), cmocka_unit_test(test_best),   cmocka_unit_test(test_drawn),
		cmocka_unit_test(test_sizes),   cmocka_unit_test(test_points), cmocka_unit_test(test_published),
	};
	assert_int_equal(fo_catalogue_load(&catalogue, NULL), FO_OK);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fo_catalogue_fini(&catalogue);
	return failed;
}
