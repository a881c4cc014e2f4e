/* The closed form of a step against events: pipelines' slots against a walk through their schedules, and random jobs,
 * divisions, devices and frameworks against the simulator of many ranks. FLATOUT_EVENT_CASES asks for another number
 * of cases, FLATOUT_RANK_SEED for others. */
#include "base/rng.h"
#include "hw/catalogue.h"
#include "plan/plan.h"
#include "plan/timeline.h"
#include "predict/pipeline.h"
#include "program/schedule.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t seed = 1, drawn;
static uint64_t draw(uint64_t n) { return fo_rng_u64(seed, drawn++) % n; }
static double uniform(double low, double high) { return low + (high - low) * (double)draw(1 << 20) / (1 << 20); }

static int asked(int usual)
{
	const char *n = getenv("FLATOUT_EVENT_CASES"), *s = getenv("FLATOUT_RANK_SEED");
	if (s)
		seed = strtoull(s, NULL, 10);
	return n ? atoi(n) : usual;
}

/* Errors of a set of cases. */
struct errors {
	double *of;
	int n;
};
static int order(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}
static void put(struct errors *e, double error)
{
	e->of = realloc(e->of, (size_t)(e->n + 1) * sizeof *e->of);
	assert_non_null(e->of);
	e->of[e->n++] = fabs(error);
}
static void hold(struct errors *e, const char *what, double mean, double p99)
{
	double sum = 0;
	for (int i = 0; i < e->n; i++)
		sum += e->of[i];
	qsort(e->of, (size_t)e->n, sizeof *e->of, order);
	const double high = e->of[(int)(.99 * (e->n - 1))];
	print_message("%s: %d cases, mean %.4f %%, 99th percentile %.4f %%, largest %.3f %%\n", what, e->n,
		      100 * sum / e->n, 100 * high, 100 * e->of[e->n - 1]);
	assert_true(sum / e->n <= mean);
	assert_true(high <= p99);
	free(e->of);
}

/* ---- slots ---- */

static struct fo_pp_shape shape_of(const struct fo_predict_pipeline *p)
{
	static const enum fo_pp_kind kind[] = { FO_PP_1F1B, FO_PP_INTERLEAVED, FO_PP_ZB_H1, FO_PP_GPIPE, FO_PP_ZB_H2 };
	return (struct fo_pp_shape){ .kind = kind[p->schedule],
				     .stages = (int32_t)p->stages,
				     .micro_batches = (int32_t)p->micro_batches,
				     .chunks = (int32_t)p->chunks };
}

static double walked(const struct fo_predict_pipeline *o)
{
	const struct fo_pp_shape shape = shape_of(o);
	struct fo_pp_plan plan;
	struct fo_pp_walk walk;
	const int32_t parts = fo_pp_parts(&shape);
	double *times[3];
	for (int k = 0; k < 3; k++) {
		times[k] = malloc((size_t)parts * sizeof(double));
		assert_non_null(times[k]);
		for (int32_t i = 0; i < parts; i++)
			times[k][i] = (o->fewest + (i % shape.stages < o->full)) / o->chunks *
					      (o->layer[k] -
					       (k == 1 && o->again_stages > 0 && i >= o->again_stages) * o->again) +
				      (i == parts - 1) * o->head[k] + (k < 2 && !o->ahead) * o->hop +
				      (i == 0 && k < 2 ? o->embed[k] : 0);
	}
	const struct fo_pp_times t = {
		.forward = times[0], .input = times[1], .weight = times[2], .send_s = o->ahead ? o->hop : 0
	};
	must(fo_pp_legal(&shape));
	fo_pp_plan_of(&plan, &shape);
	must(fo_pp_walk_of(&walk, &plan, &t, o->ahead ? FO_PP_LANES : FO_PP_BUFFERED));
	const double step = walk.step_s;
	fo_pp_walk_free(&walk);
	fo_pp_plan_free(&plan);
	for (int k = 0; k < 3; k++)
		free(times[k]);
	return step;
}

static struct fo_predict_pipeline draw_pipeline(enum fo_predict_schedule schedule, bool uneven)
{
	struct fo_predict_pipeline p = { .schedule = schedule,
					 .stages = (double)(2 + draw(draw(2) ? 6 : 30)),
					 .chunks = schedule == FO_PREDICT_INTERLEAVED ? (double)(2 + draw(5)) : 1 };
	p.micro_batches = draw(3) ? p.stages * (double)(1 + draw(8)) : (double)(1 + draw(8 * (uint64_t)p.stages));
	p.fewest = p.chunks * (double)(1 + draw(6));
	p.full = uneven ? (double)(1 + draw((uint64_t)p.stages - 1)) : 0;
	const double backward = uniform(1.6, 3.4), weight = uniform(.2, .45), head = draw(4) ? uniform(0, 6) : 0;
	p.layer[0] = 1, p.layer[1] = (1 - weight) * backward, p.layer[2] = weight * backward;
	p.head[0] = .3 * head, p.head[1] = .35 * head, p.head[2] = .35 * head;
	p.hop = draw(2) ? uniform(0, .2) : 0;
	return p;
}

/* Messages beside work, the loss in backward, the embedding on the first stage, as in Flatout's programs: messages of up
 * to a tenth of a layer's forward, as those of 8B models over a network are. */
static void put_ahead(struct fo_predict_pipeline *p)
{
	p->ahead = true;
	p->hop = uniform(0, .1);
	p->head[1] += p->head[0] + p->head[2];
	p->head[0] = p->head[2] = 0;
	p->embed[0] = uniform(0, .2);
	p->embed[1] = uniform(0, .2);
}

static void test_ahead(void **state)
{
	(void)state;
	static const char *const name[] = { "1F1B", "interleaved", "ZB-H1", "GPipe", "ZB-H2" };
	const int cases = asked(200);
	for (int s = FO_PREDICT_1F1B; s < FO_PREDICT_SCHEDULES; s++) {
		struct errors e = { 0 };
		char what[64];
		for (int i = 0; i < cases; i++) {
			struct fo_predict_pipeline p = draw_pipeline((enum fo_predict_schedule)s,
								     s != FO_PREDICT_INTERLEAVED && draw(2));
			put_ahead(&p);
			put(&e, fo_predict_pipeline_s(&p) / walked(&p) - 1);
		}
		snprintf(what, sizeof what, "%s, messages beside work", name[s]);
		hold(&e, what, 5e-3, .02);
	}
}

/* Stages in front that recompute, the others not. */
static void test_front(void **state)
{
	(void)state;
	const int cases = asked(300);
	for (int uneven = 0; uneven < 2; uneven++) {
		struct errors e = { 0 };
		for (int i = 0; i < cases; i++) {
			struct fo_predict_pipeline p = draw_pipeline(FO_PREDICT_1F1B, uneven);
			p.again = uniform(0, 1);
			p.layer[1] += p.again;
			p.again_stages = (double)(1 + draw((uint64_t)p.stages - 1));
			put(&e, fo_predict_pipeline_s(&p) / walked(&p) - 1);
		}
		hold(&e, uneven ? "recomputation in front, uneven stages" : "recomputation in front, even stages",
		     uneven ? 2e-3 : 1e-12, uneven ? .02 : 1e-12);
	}
}

static void test_slots(void **state)
{
	(void)state;
	static const char *const name[] = { "1F1B", "interleaved", "ZB-H1", "GPipe", "ZB-H2" };
	const int cases = asked(300);
	for (int s = FO_PREDICT_1F1B; s < FO_PREDICT_SCHEDULES; s++)
		for (int uneven = 0; uneven < 2; uneven++) {
			struct errors e = { 0 };
			char what[64];
			if (uneven && s == FO_PREDICT_INTERLEAVED)
				continue; /* no legal division has it, see pipeline.h */
			for (int i = 0; i < cases; i++) {
				const struct fo_predict_pipeline p = draw_pipeline((enum fo_predict_schedule)s, uneven);
				put(&e, fo_predict_pipeline_s(&p) / walked(&p) - 1);
			}
			snprintf(what, sizeof what, "%s, %s stages", name[s], uneven ? "uneven" : "even");
			const bool bubble = s == FO_PREDICT_ZERO_BUBBLE || s == FO_PREDICT_ZB_H2,
				   exact = !uneven || !bubble;
			hold(&e, what, exact ? 1e-12 : 5e-4, exact ? 1e-12 : .015);
		}
}

/* ---- jobs ---- */

static struct fo_catalogue catalogue;

static const char *const frameworks[] = { "any", "torchtitan", "megatron", "deepspeed", "flatout" };

static void draw_job(struct fo_plan_asked *a)
{
	static const char *const models[] = { "llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b",
					      "qwen2.5-7b",   "mistral-7b",   "mixtral-8x7b",  "qwen3-30b-a3b",
					      "deepseek-v3",  "llama-3.2-1b" };
	static const char *const devices[] = { "a100", "h100", "h200", "b200", "gb200", "mi300x" };
	const struct fo_device *d;
	struct fo_model m;
	const char *framework = frameworks[draw(5)];
	struct fo_predict_job job = { .style = fo_predict_style_of(framework), .seq = 1024 << draw(6) };
	must(fo_model_load(models[draw(10)], &m));
	must(fo_catalogue_find(&catalogue, devices[draw(6)], &d));
	must(fo_predict_machine_of(d, &job.machine));
	fo_predict_model_of(&m, &job.model);
	job.type = draw(3) == 0 && !isnan(job.machine.peak[FO_PREDICT_FP8]) ? FO_PREDICT_FP8 : FO_PREDICT_BF16;
	*a = (struct fo_plan_asked){ .framework = fo_plan_framework_of(framework), .fixed = FO_PLAN_FREE };
	assert_null(fo_predict_prepare(&job, &a->base));
}

/* A division that the framework can run, of a pipeline in two of three. */
static void draw_division(struct fo_plan_asked *a, struct fo_predict_layout *l)
{
	static const double again[] = { 0, 0, .25, .5, 1 };
	const uint64_t layers = (uint64_t)a->base.job.model.layers;
	for (;;) {
		*l = (struct fo_predict_layout){ .tp = (double)(1 << draw(4)),
						 .cp = (double)(1 << draw(3) * draw(2)),
						 .pp = draw(3) ? (double)(1 + draw(draw(2) ? 8 : 32)) : 1,
						 .ep = draw(2) ? 1 : (double)(1 << draw(4)),
						 .chunks = draw(3) ? 1 : (double)(1 + draw(8)),
						 .zero = (double)draw(4),
						 .micro_batch = (double)(1 << draw(3)),
						 .recompute = again[draw(5)] };
		if (l->pp > 1 && a->framework->again & 1u << FO_PLAN_AGAIN_FRONT && draw(2))
			l->recompute = 1, l->again_stages = (double)draw((uint64_t)l->pp);
		const uint64_t dp = 1u << draw(6);
		l->sp = l->tp > 1 && draw(4);
		l->schedule = l->chunks > 1 ? FO_PREDICT_INTERLEAVED : FO_PREDICT_1F1B;
		if (l->pp > 1 && l->chunks <= 1 && draw(3) == 0)
			l->schedule = (enum fo_predict_schedule)(FO_PREDICT_ZERO_BUBBLE + draw(3));
		l->micro_batches = draw(3) ? l->pp * (double)(1 + draw(8)) : (double)(1 + draw(2 * (uint64_t)l->pp));
		l->devices = (double)dp * l->tp * l->cp * l->pp;
		l->global_batch = (double)dp * l->micro_batches * l->micro_batch;
		a->devices = l->devices, a->global_batch = l->global_batch;
		if (l->pp <= (double)layers && !fo_plan_illegal(a, l))
			return;
	}
}

static void check_parts(const struct fo_predict_step *s)
{
	double sum = 0;
	for (int k = 0; k < FO_PREDICT_PARTS; k++) {
		assert_true(s->part[k] >= 0);
		sum += s->part[k];
	}
	assert_true(fabs(sum / s->seconds - 1) < 1e-9);
}

static void test_random_configurations(void **state)
{
	(void)state;
	const int cases = asked(200);
	struct errors e = { 0 };
	int pipelines = 0, uneven = 0, small = 0, front = 0;
	for (int i = 0; i < cases; i++) {
		struct fo_plan_asked a;
		struct fo_plan_timeline t;
		struct fo_predict_layout l;
		struct fo_predict_step s;
		draw_job(&a);
		draw_division(&a, &l);
		fo_predict_point(&a.base, &l, &s);
		assert_null(s.wrong);
		check_parts(&s);
		must(fo_plan_timeline_of(&t, &l, &s));
		const double off = s.seconds / t.run.step_s - 1;
		if (fabs(off) > .02)
			print_message("%s, %.0f layers, pp %.0f x %.0f, schedule %d, %.0f micro-batches: simulated "
				      "%.5f s, closed form %.5f s, hop %.3g s\n",
				      a.framework->id, a.base.job.model.layers, l.pp, l.chunks, l.schedule,
				      l.micro_batches, t.run.step_s, s.seconds, s.slots.hop);
		put(&e, off);
		pipelines += l.pp > 1, uneven += l.pp > 1 && s.full > 0, small += l.micro_batches < l.pp;
		front += l.again_stages > 0;
		fo_plan_timeline_fini(&t);
	}
	print_message("%d have pipelines, %d uneven stages, %d fewer micro-batches than stages, %d recompute in the "
		      "first stages\n",
		      pipelines, uneven, small, front);
	assert_true(pipelines > cases / 5 && uneven > cases / 50 && small > cases / 50 && front > cases / 100);
	hold(&e, "jobs", .005, .02);
}

static int load(void **state)
{
	(void)state;
	return fo_catalogue_load(&catalogue, NULL) == FO_OK ? 0 : -1;
}
static int unload(void **state)
{
	(void)state;
	fo_catalogue_fini(&catalogue);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slots),
		cmocka_unit_test(test_ahead),
		cmocka_unit_test(test_front),
		cmocka_unit_test(test_random_configurations),
	};
	return cmocka_run_group_tests(tests, load, unload);
}
