/* The closed form of a step of Flatout's own programs against these programs: random models, divisions, machines. Each
 * is lowered for every role, unrolled and planned; each operation takes the time that the closed form's rates have for
 * its FLOP, bytes or message; all ranks are simulated event by event. Rates, and what real stacks lose beyond their
 * programs (fo_predict_ideal), are alike on both sides, so that what differs is counts, waits and schedules.
 *
 * Waits are those of operations on each other. What the memory plan's reuse of bytes adds is reported ("reuse"): no
 * closed form knows it. Left out of what is held to the bounds, and reported: ZeRO 3, whose gathers are kept from
 * running ahead by that reuse alone, and ZeRO 2 in pipelines (docs/predict.md).
 *
 * FLATOUT_LOWERED_CASES asks for another number of cases, FLATOUT_RANK_SEED for others, FLATOUT_LOWERED_SHOW for those
 * that are off by so many percent, by part. */
#include "base/rng.h"
#include "hw/catalogue.h"
#include "plan/lower.h"
#include "predict/rates.h"
#include "program/mesh_cost.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fo_catalogue catalogue;
static uint64_t seed = 1, drawn;
static uint64_t draw(uint64_t n) { return fo_rng_u64(seed, drawn++) % n; }

/* ---- errors, by what a division has ---- */

enum axis {
	HELD,
	ALL,
	ALONE,
	TP,
	SP,
	CP,
	PP,
	ZERO_0,
	ZERO_1,
	ZERO_2,
	ZERO_3,
	STAGED,
	HSDP,
	AGAIN,
	ACCUMULATION,
	TIED,
	AXES
};
static const char *const axis_name[AXES] = {
	"held to it", "all",           "one rank",     "tp",       "sp",     "cp",
	"pp",         "ddp",           "ZeRO 1",       "ZeRO 2",   "ZeRO 3", "ZeRO 2, pp",
	"replicas",   "recomputation", "accumulation", "tied ends"
};
struct errors {
	double *of;
	int n;
};
static struct errors errors[AXES], reuse;

static void put(struct errors *e, double error)
{
	e->of = realloc(e->of, (size_t)(e->n + 1) * sizeof *e->of);
	assert_non_null(e->of);
	e->of[e->n++] = error;
}
static int order(const void *a, const void *b)
{
	const double x = fabs(*(const double *)a), y = fabs(*(const double *)b);
	return (x > y) - (x < y);
}
/* mean: of sizes; bias: of the errors as they are. */
static void sum_up(struct errors *e, const char *what, double *mean, double *high)
{
	double sum = 0, bias = 0;
	for (int i = 0; i < e->n; i++)
		sum += fabs(e->of[i]), bias += e->of[i];
	qsort(e->of, (size_t)e->n, sizeof *e->of, order);
	*mean = sum / e->n;
	*high = fabs(e->of[(int)(.99 * (e->n - 1))]);
	print_message("%-14s %5d cases: mean %6.3f %%, bias %+6.3f %%, 99th percentile %6.3f %%, largest %6.3f %%\n",
		      what, e->n, 100 * *mean, 100 * bias / e->n, 100 * *high, 100 * fabs(e->of[e->n - 1]));
}

/* ---- jobs ---- */

struct job {
	struct fo_model model;
	struct fo_predict_base base;
	struct fo_predict_layout layout;
};

static void draw_model(struct job *j)
{
	static const char *const models[] = { "llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b", "llama-2-7b",
					      "mistral-7b" };
	static const char *const devices[] = { "a100", "h100", "h200", "b200" };
	const struct fo_device *d;
	struct fo_predict_job job = { .style = FO_PREDICT_STYLE_FLATOUT,
				      .type = FO_PREDICT_BF16,
				      .seq = 1024 << draw(4) };
	must(fo_model_load(models[draw(5)], &j->model));
	j->model.layers = (int64_t)(2 + draw(11));
	must(fo_catalogue_find(&catalogue, devices[draw(4)], &d));
	must(fo_predict_machine_of(d, &job.machine));
	job.machine.per_node = (double)(2 << draw(3));
	fo_predict_model_of(&j->model, &job.model);
	assert_null(fo_predict_prepare(&job, &j->base));
	fo_predict_ideal(&j->base);
}

static void draw_division(struct job *j)
{
	struct fo_predict_layout l = { .tp = draw(2) ? 1 : (double)(2 << draw(2)),
				       .cp = draw(4) ? 1 : (double)(2 << draw(2)),
				       .pp = draw(3) ? 1 : (double)(2 + draw(3)),
				       .ep = 1,
				       .chunks = 1,
				       .micro_batch = (double)(1 << draw(2)),
				       .zero = (double)draw(4) };
	const double dp = (double)(1 << draw(4));
	l.sp = l.tp > 1 && draw(3);
	if (l.pp > 1) {
		static const enum fo_predict_schedule schedule[] = { FO_PREDICT_1F1B,        FO_PREDICT_1F1B,
								     FO_PREDICT_GPIPE,       FO_PREDICT_INTERLEAVED,
								     FO_PREDICT_ZERO_BUBBLE, FO_PREDICT_ZB_H2 };
		l.schedule = schedule[draw(6)];
		l.chunks = l.schedule == FO_PREDICT_INTERLEAVED ? 2 : 1;
	}
	l.micro_batches = l.pp > 1 ? l.pp * (double)(1 + draw(3)) : (double)(1 + draw(3) * draw(2));
	l.recompute = draw(3) ? 0 : 1;
	if (l.zero > 0 && dp > 2 && draw(3) == 0)
		l.shard = l.cp * dp / 2;
	if (l.zero > 0 && dp * l.cp <= 1)
		l.zero = 0;
	if (l.zero >= 3)
		l.keeps_weights = draw(4) == 0;
	l.devices = dp * l.tp * l.cp * l.pp;
	l.global_batch = dp * l.micro_batch * l.micro_batches;
	j->layout = l;
}

static bool is_legal(const struct job *j)
{
	const struct fo_predict_layout *l = &j->layout;
	struct fo_lowering low;
	if (l->devices > 32 || l->pp * l->chunks > (double)j->model.layers)
		return false;
	if (l->chunks > 1 && fmod((double)j->model.layers, l->pp * l->chunks) > 0)
		return false;
	must(fo_plan_lowering(&low, &j->base.job, &j->model, l));
	const bool legal = fo_mesh_legal(&j->model, &low) == FO_OK;
	fo_err_clear();
	return legal;
}

/* ---- */

static void take(const struct job *j, double off)
{
	const struct fo_predict_layout *l = &j->layout;
	const double dp = l->devices / (l->tp * l->cp * l->pp);
	const bool has[AXES] = { [ALL] = true,
				 [ALONE] = l->devices <= 1,
				 [TP] = l->tp > 1 && !l->sp,
				 [SP] = l->sp,
				 [CP] = l->cp > 1,
				 [PP] = l->pp > 1,
				 [ZERO_0] = dp > 1 && l->zero <= 0,
				 [ZERO_1] = l->zero == 1,
				 [ZERO_2] = l->zero == 2 && l->pp <= 1,
				 [STAGED] = l->zero == 2 && l->pp > 1,
				 [HELD] = l->zero < 2 || (l->zero == 2 && l->pp <= 1),
				 [ZERO_3] = l->zero == 3,
				 [HSDP] = l->shard > 0,
				 [AGAIN] = l->recompute > 0,
				 [ACCUMULATION] = l->micro_batches > 1,
				 [TIED] = j->model.tied };
	for (int a = 0; a < AXES; a++)
		if (has[a])
			put(&errors[a], off);
}

static void show(const struct job *j, const struct fo_predict_step *s, const struct fo_plan_lowered *x)
{
	const struct fo_predict_layout *l = &j->layout;
	print_message("%s x %lld layers, seq %.0f, %s, node %.0f: devices %.0f tp %.0f sp %d cp %.0f pp %.0f x %.0f "
		      "schedule %d zero %.0f shard %.0f keeps %d rows %.0f micro-batches %.0f again %.0f: closed %.3f, "
		      "events %.3f ms: %+.2f %%, planned %.3f\n",
		      j->model.name, (long long)j->model.layers, j->base.job.seq, j->base.job.machine.name,
		      j->base.job.machine.per_node, l->devices, l->tp, l->sp, l->cp, l->pp, l->chunks, l->schedule,
		      l->zero, l->shard, l->keeps_weights, l->micro_batch, l->micro_batches, l->recompute,
		      1e3 * s->seconds, 1e3 * x->step_s, 100 * (s->seconds / x->step_s - 1), 1e3 * x->planned_s);
	for (int k = 0; k < FO_PREDICT_PARTS; k++)
		if (s->part[k] > 1e-9 || fabs(x->part[k]) > 1e-9)
			print_message("    %-14s %10.3f %10.3f  %+7.2f %% of the step\n", fo_predict_part_name[k],
				      1e3 * s->part[k], 1e3 * x->part[k], 100 * (s->part[k] - x->part[k]) / x->step_s);
}

static void test_lowered(void **state)
{
	(void)state;
	const char *n = getenv("FLATOUT_LOWERED_CASES"), *from = getenv("FLATOUT_RANK_SEED"),
		   *shown = getenv("FLATOUT_LOWERED_SHOW");
	const int cases = n ? atoi(n) : 30;
	seed = from ? strtoull(from, NULL, 10) : 1;
	static struct job j;
	for (int i = 0; i < cases; i++) {
		struct fo_predict_step s;
		struct fo_plan_lowered x;
		do {
			draw_model(&j);
			draw_division(&j);
		} while (!is_legal(&j));
		fo_predict_point(&j.base, &j.layout, &s);
		assert_null(s.wrong);
		must(fo_plan_lowered_of(&x, &j.base, &j.model, &j.layout));
		const double off = s.seconds / x.step_s - 1;
		take(&j, off);
		put(&reuse, x.planned_s / x.step_s - 1);
		if (shown && fabs(off) >= atof(shown) / 100)
			show(&j, &s, &x);
	}
	double mean, high;
	sum_up(&reuse, "reuse", &mean, &high);
	for (int a = 0; a < AXES; a++) {
		if (errors[a].n)
			sum_up(&errors[a], axis_name[a], &mean, &high);
		if (a == HELD) {
			assert_true(errors[a].n > cases / 2);
			assert_true(mean <= .005);
			assert_true(high <= .02);
		}
		free(errors[a].of);
	}
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
		cmocka_unit_test(test_lowered),
	};
	return cmocka_run_group_tests(tests, load, unload);
}
