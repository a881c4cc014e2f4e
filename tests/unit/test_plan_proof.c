/* What a search returns, in random cases: Flatout's divisions lower by the settings that are printed, verify and plan
 * their memory; all simulate to their closed form; none of all legal divisions is faster; more memory, faster links and
 * more devices, where a part of them may be idle, are never worse; the reasons and the gains that are said are true.
 * That fo_plan_each misses nothing is test_plan.c's affair. FLATOUT_PLAN_CASES asks for another number of cases,
 * FLATOUT_RANK_SEED for others. */
#include "base/opt.h"
#include "base/rng.h"
#include "base/str.h"
#include "hw/catalogue.h"
#include "pass/pass.h"
#include "plan/losses.h"
#include "plan/more.h"
#include "plan/plan.h"
#include "plan/programs.h"
#include "plan/settings.h"
#include "plan/timeline.h"
#include "program/mesh_cost.h"
#include "program/run.h"
#include "support/must.h"

#include <math.h>
#include <stdlib.h>

static struct fo_catalogue catalogue;
static uint64_t seed = 1, drawn;
static uint64_t draw(uint64_t n) { return fo_rng_u64(seed, drawn++) % n; }

static int asked(int usual)
{
	const char *n = getenv("FLATOUT_PLAN_CASES"), *s = getenv("FLATOUT_RANK_SEED");
	if (s)
		seed = strtoull(s, NULL, 10);
	return n ? atoi(n) : usual;
}

static void ask(struct fo_plan_asked *a, struct fo_model *m, const char *framework, const char *model, double devices)
{
	static const char *const names[] = { "a100", "h100", "h200", "b200" };
	const struct fo_device *d;
	struct fo_predict_job job = { .style = fo_predict_style_of(framework),
				      .type = FO_PREDICT_BF16,
				      .seq = 1024 << draw(4) };
	must(fo_model_load(model, m));
	must(fo_catalogue_find(&catalogue, names[draw(4)], &d));
	must(fo_predict_machine_of(d, &job.machine));
	job.machine.per_node = draw(2) ? 8 : 4;
	fo_predict_model_of(m, &job.model);
	*a = (struct fo_plan_asked){ .framework = fo_plan_framework_of(framework),
				     .devices = devices,
				     .global_batch = devices * (double)(1 + draw(4)),
				     .fixed = FO_PLAN_FREE };
	assert_null(fo_predict_prepare(&job, &a->base));
}

static double simulated(const struct fo_plan_point *p)
{
	struct fo_plan_timeline t;
	must(fo_plan_timeline_of(&t, &p->layout, &p->step));
	const double s = t.run.step_s;
	fo_plan_timeline_fini(&t);
	return s;
}

/* ---- programs ---- */

/* The lowering of the run file that the plan prints. */
static struct fo_lowering lowered(const struct fo_plan_asked *a, const struct fo_plan_point *p,
				  const struct fo_model *m, struct fo_model *model)
{
	struct fo_str text = { 0 };
	struct fo_opt_set set;
	struct fo_run run;
	const char *why;
	assert_true(fo_plan_settings(FO_PLAN_WORDS_FLATOUT, a, p, m, &text, &why));
	fo_opt_init(&set, fo_run_options, &run);
	must(fo_opt_read_yaml_text(&set, text.data, text.len, "plan"));
	must(fo_run_check(&set, &run));
	must(fo_run_model(&run, model));
	const struct fo_lowering low = fo_run_lowering(&run, FO_MODE_TRAIN);
	fo_opt_fini(&set);
	fo_str_fini(&text);
	return low;
}

/* Bytes of the fullest rank, as the programs plan them: of all ranks where these are few, else of each stage's last. */
enum { FEW_RANKS = 8 };
static double planned(const struct fo_model *m, struct fo_lowering low)
{
	const int32_t ranks = fo_mesh_ranks(&low.mesh), step = ranks > FEW_RANKS ? fo_mesh_stage_ranks(&low.mesh) : 1;
	double most = 0;
	for (int32_t r = step - 1; r < ranks; r += step) {
		struct fo_program p;
		struct fo_unrolled u;
		low.mesh.rank = r;
		must(fo_mesh_legal(m, &low));
		must(fo_pass_build(&p, m, &low));
		if (r == ranks - 1)
			must(fo_program_verify(&p, "plan"));
		must(fo_unroll(&p, &u));
		fo_plan(&p, &u);
		most = fmax(most, (double)(u.persistent_bytes + u.arena_bytes));
		fo_unrolled_fini(&u);
		fo_program_fini(&p);
	}
	return most;
}

/* Without what libraries hold on top, which is an estimate. */
static double own_bytes(const struct fo_predict_step *s) { return s->bytes - s->memory[FO_PREDICT_OVERHEAD]; }

/* What is said of a planned division against its programs, lowered whole: to the page where all ranks are looked at. */
static void compare(const struct fo_plan_asked *a, const struct fo_plan_point *p, double bytes, double ranks)
{
	const double pages = 2 * 0x1p21, own = own_bytes(&p->step);
	if (own < bytes || own > 1.01 * bytes + pages || (ranks <= FEW_RANKS && own > bytes + pages))
		fail_msg("%.0f devices: %.0f bytes are said, the programs plan %.0f", a->devices, own, bytes);
}

static void test_programs(void **state)
{
	(void)state;
	static const char *const models[] = { "llama-3.2-1b", "llama-3.1-8b", "qwen2.5-7b", "mistral-7b" };
	static struct fo_plan plan;
	const int cases = asked(8);
	double low = INFINITY, high = 0;
	int seen = 0, meshes = 0, pipelines = 0, estimates = 0, none = 0;
	for (int i = 0; i < cases; i++) {
		struct fo_plan_asked a;
		struct fo_model m, model;
		ask(&a, &m, "flatout", models[draw(4)], (double)(1 << draw(6)));
		if (a.devices > 1 && draw(2)) /* which else only large models take */
			a.fixed.pp = a.devices > 2 && draw(2) ? 4 : 2;
		if (draw(2)) /* tight */
			a.memory_bytes = (double)(8 + draw(64)) * 0x1p30;
		a.model = &m;
		a.programs = fo_plan_programs_new();
		a.programs_of_best = true;
		if (fo_plan_search(&plan, &a) != FO_OK) {
			fo_err_clear();
			plan.points = 0;
			none++;
		}
		for (int k = 0; k < plan.points; k++) {
			const struct fo_plan_point *p = &plan.point[k];
			struct fo_predict_step estimate;
			if (k && k != plan.named)
				continue;
			const char *why = fo_plan_programs_why(&a, p);
			assert_true(p->step.planned == !why);
			assert_true(fo_predict_upper_bytes(&p->step) <= fo_plan_room(&a));
			const struct fo_lowering of = lowered(&a, p, &m, &model);
			assert_true(fo_mesh_ranks(&of.mesh) == (int32_t)a.devices);
			assert_true((double)of.micro_batches == p->layout.micro_batches);
			const double off = simulated(p) / p->step.seconds - 1;
			if (fabs(off) >= .02)
				fail_msg("%s: pp %.0f x %.0f, schedule %d, %.0f micro-batches: off by %.2f %%", m.name,
					 p->layout.pp, p->layout.chunks, p->layout.schedule, p->layout.micro_batches,
					 100 * off);
			estimates += why != NULL;
			seen++;
			if (why || k) /* one of a case: whole programs take long */
				continue;
			const double bytes = planned(&model, of);
			compare(&a, p, bytes, a.devices);
			fo_predict_memory_of(&a.base, &p->layout, &estimate);
			low = fmin(low, own_bytes(&estimate) / bytes);
			high = fmax(high, own_bytes(&estimate) / bytes);
			meshes += of.mesh.tp > 1 || of.mesh.cp > 1;
			pipelines += of.mesh.pp > 1;
		}
		fo_plan_programs_free(a.programs);
	}
	print_message(
		"%d divisions lower and fit, %d estimates among them; memory is said as whole programs plan it, of %d "
		"with tp or cp and %d with stages (an estimate would be %.2f to %.2f times that); %d jobs fit nowhere\n",
		seen, estimates, meshes, pipelines, low, high, none);
	assert_true(seen > cases / 2 && pipelines > cases / 8 && estimates <= cases / 10);
}

/* ---- the best ---- */

struct every {
	const struct fo_plan_asked *a;
	double best;
	int64_t n;
};

static bool look(void *ctx, const struct fo_predict_layout *l, int again)
{
	struct every *e = ctx;
	struct fo_predict_step s;
	(void)again;
	fo_predict_point(&e->a->base, l, &s);
	const double memory = e->a->memory_bytes > 0 ? e->a->memory_bytes : e->a->base.job.machine.memory_bytes;
	e->n++;
	if (!s.wrong && fo_predict_upper_bytes(&s) <= memory)
		e->best = fmin(e->best, s.seconds);
	return true;
}

static const char *const frameworks[] = { "any", "torchtitan", "megatron", "deepspeed", "flatout" };
static const char *const models[] = { "llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b",
				      "mixtral-8x7b", "qwen2.5-7b",   "llama-3.2-1b" };

static void draw_asked(struct fo_plan_asked *a, double devices)
{
	struct fo_model m;
	ask(a, &m, frameworks[draw(5)], models[draw(6)], devices);
	if (draw(2))
		a->memory_bytes = (double)(16 << draw(5)) * 0x1p30;
	if (draw(2))
		a->base.job.machine.net_byte_s /= (double)(1 << draw(6));
}

static void test_best(void **state)
{
	(void)state;
	static struct fo_plan plan;
	const int cases = asked(40);
	double regret = 0;
	int none = 0, simulations = 0;
	for (int i = 0; i < cases; i++) {
		struct fo_plan_asked a;
		draw_asked(&a, (double)(1 + draw(16)));
		struct every e = { .a = &a, .best = INFINITY };
		fo_plan_each(&a, look, &e);
		const fo_status st = fo_plan_search(&plan, &a);
		fo_err_clear();
		assert_true((st == FO_OK) == isfinite(e.best));
		assert_true(plan.legal == e.n);
		none += st != FO_OK;
		if (st != FO_OK)
			continue;
		regret = fmax(regret, plan.point[0].step.seconds / e.best - 1);
		assert_true(plan.point[0].step.seconds >= e.best);
		for (int k = 0; k < plan.points && k < 3; k++, simulations++) {
			const struct fo_plan_point *p = &plan.point[k];
			const double off = simulated(p) / p->step.seconds - 1;
			assert_null(fo_plan_illegal(&a, &p->layout));
			if (fabs(off) > .02)
				fail_msg("%s: pp %.0f x %.0f, schedule %d, %.0f micro-batches: off by %.2f %%",
					 a.framework->id, p->layout.pp, p->layout.chunks, p->layout.schedule,
					 p->layout.micro_batches, 100 * off);
		}
	}
	print_message(
		"%d clusters of 1 to 16 devices, %d hold nothing: regret at most %.3f %%; %d divisions simulated\n",
		cases, none, 100 * regret, simulations);
	assert_true(regret <= .005);
	assert_true(none < cases / 2);
}

/* ---- more ---- */

static double best_of(const struct fo_plan_asked *a)
{
	static struct fo_plan plan;
	const fo_status st = fo_plan_search(&plan, a);
	fo_err_clear();
	return st == FO_OK ? plan.point[0].step.seconds : INFINITY;
}

static double best_with(struct fo_plan_asked a, const struct fo_predict_machine *machine)
{
	struct fo_predict_job job = a.base.job;
	job.machine = *machine;
	assert_null(fo_predict_prepare(&job, &a.base));
	return best_of(&a);
}

/* The fastest that the answer says: of all devices, or of a part of them. All parts are looked at here. */
static double said(const struct fo_plan_asked *asked, int *idle)
{
	static struct fo_plan all, part;
	struct fo_plan_asked a = *asked;
	double least = INFINITY;
	const fo_status st = fo_plan_search(&all, asked);
	fo_err_clear();
	assert_int_equal(st, FO_OK);
	const double now = all.point[0].step.seconds, devices = fo_plan_fewer(&part, asked, &all),
		     s = devices > 0 ? part.point[0].step.seconds : now;
	for (a.devices /= 2; a.devices >= 1; a.devices /= 2)
		least = fmin(least, best_of(&a));
	assert_true(s == fmin(now, least));
	a.devices = devices;
	if (devices > 0)
		assert_null(fo_plan_illegal(&a, &part.point[part.named].layout));
	*idle += devices > 0;
	return s;
}

static void test_more(void **state)
{
	(void)state;
	const int cases = asked(40);
	int larger = 0, idle = 0;
	for (int i = 0; i < cases; i++) {
		struct fo_plan_asked a;
		draw_asked(&a, (double)(1 << draw(6)));
		a.global_batch = 2 * a.devices * (double)(1 << draw(3));
		a.memory_bytes = (double)(16 << draw(4)) * 0x1p30;
		const double now = best_of(&a);
		struct fo_plan_asked b = a;
		b.memory_bytes *= 1 + .1 * (double)(1 + draw(20));
		assert_true(best_of(&b) <= now * 1.001);
		struct fo_predict_machine m = a.base.job.machine;
		m.net_byte_s *= 1 + .1 * (double)(1 + draw(20));
		assert_true(best_with(a, &m) <= now * 1.001);
		m.node_byte_s *= 1 + .1 * (double)(1 + draw(20));
		assert_true(best_with(a, &m) <= now * 1.001);
		b = a;
		b.devices *= 2;
		if (!isfinite(now))
			continue;
		const double part = said(&a, &idle), twice = said(&b, &idle);
		if (twice > part * 1.001)
			fail_msg("%s, %s: %.0f devices %.4f s, %.0f %.4f s, batch %.0f", a.framework->id,
				 a.base.job.machine.name, a.devices, part, b.devices, twice, a.global_batch);
		larger++;
	}
	print_message("%d of %d clusters hold the job; for %d of %d answers a part of the devices is faster\n", larger,
		      cases, idle, 2 * larger);
}

/* ---- what is said ---- */

/* The part that is blamed grows more than any other, by the prediction of both divisions alone. */
static int check_reasons(const struct fo_plan_asked *a, const struct fo_plan *plan)
{
	struct fo_predict_step best, x;
	fo_predict_point(&a->base, &plan->point[0].layout, &best);
	for (int k = 1; k < plan->points; k++) {
		int loses, gains;
		double least, sum = 0;
		const double most = fo_plan_reason_of(&plan->point[0].step, &plan->point[k].step, &loses, &gains,
						      &least);
		fo_predict_point(&a->base, &plan->point[k].layout, &x);
		if (x.seconds > best.seconds * (1 + 1e-9))
			assert_true(loses >= 0 && most > 0);
		for (int i = 0; i < FO_PREDICT_PARTS; i++) {
			const double by = x.part[i] - best.part[i];
			assert_true(by <= most + 1e-9 * best.seconds && by >= least - 1e-9 * best.seconds);
			sum += by;
			if (i == loses)
				assert_true(fabs(by - most) <= 1e-9 * best.seconds);
		}
		assert_true(fabs(sum - (x.seconds - best.seconds)) <= 1e-6 * best.seconds);
	}
	return plan->points - 1;
}

/* A gain is what the division with it takes on the changed machine, and no more than the best there gains. */
static void check_gain(const struct fo_plan_asked *a, const struct fo_plan *plan, int of, const struct fo_plan_more *m)
{
	struct fo_predict_job job = a->base.job;
	struct fo_plan_asked b = *a;
	struct fo_predict_step s;
	const double now = a->global_batch / plan->point[0].step.seconds;
	job.machine.net_byte_s *= of == FO_PLAN_MORE_NET ? 2 : 1;
	job.machine.node_byte_s *= of == FO_PLAN_MORE_NODE ? 2 : 1;
	assert_null(fo_predict_prepare(&job, &b.base));
	b.memory_bytes *= of == FO_PLAN_MORE_MEMORY ? 2 : 1;
	b.global_batch *= of == FO_PLAN_MORE_BATCH ? 2 : 1;
	b.types = of == FO_PLAN_MORE_TYPE ? fo_plan_types_8(a) | 1u << a->base.job.type : 0;
	b.formats = of == FO_PLAN_MORE_FORMAT ? a->framework->formats : 0;
	b.devices = m->devices;
	assert_true(m->global_batch == b.global_batch && m->layout.devices == b.devices);
	assert_null(fo_plan_illegal(&b, &m->layout));
	fo_predict_point(&b.base, &m->layout, &s);
	assert_null(s.wrong);
	assert_true(fo_predict_upper_bytes(&s) <= b.memory_bytes * (1 + 1e-9));
	assert_true(fabs(b.global_batch / s.seconds / now / m->times - 1) < 1e-9);
	assert_true(best_of(&b) <= s.seconds * 1.001);
	assert_true(m->range.low <= m->times * (1 + 1e-9) && m->times <= m->range.high * (1 + 1e-9));
	assert_true((m->gains == FO_PLAN_GAINS) <= (m->range.low > 1));
	if (of != FO_PLAN_MORE_DEVICES && of != FO_PLAN_MORE_BATCH) /* what was best remains possible */
		assert_true(m->times > .999);
}

static void test_said(void **state)
{
	(void)state;
	static struct fo_plan plan;
	const int cases = asked(20);
	int jobs = 0, reasons = 0, gains = 0, steps = 0;
	for (int i = 0; i < 10 * cases && jobs < cases; i++) {
		struct fo_plan_asked a;
		struct fo_plan_more more[FO_PLAN_MORES];
		draw_asked(&a, (double)(1 + draw(32)));
		a.memory_bytes = a.memory_bytes > 0 ? a.memory_bytes : a.base.job.machine.memory_bytes;
		const fo_status st = fo_plan_search(&plan, &a);
		fo_err_clear();
		if (st != FO_OK)
			continue;
		jobs++;
		reasons += check_reasons(&a, &plan);
		fo_plan_more_of(more, &a, &plan);
		for (int of = 0; of < FO_PLAN_MORES; of++) {
			if (more[of].gains == FO_PLAN_GAINS_NONE)
				continue;
			check_gain(&a, &plan, of, &more[of]);
			gains++;
		}
		/* None of the additions that are smaller, or of all where none is named, has a division. */
		const double node = a.base.job.machine.per_node, unit = a.devices < node ? 1 : node;
		struct fo_plan_asked b = a;
		const bool none = more[FO_PLAN_MORE_DEVICES].gains == FO_PLAN_GAINS_NONE;
		const double end = none ? 2 * a.devices + 1 : more[FO_PLAN_MORE_DEVICES].devices;
		for (b.devices += unit; b.devices < end; b.devices += unit, steps++)
			assert_true(isinf(best_of(&b)));
	}
	print_message("%d jobs: %d reasons and %d gains are true, %d additions are impossible\n", jobs, reasons, gains,
		      steps);
	assert_int_equal(jobs, cases);
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
		cmocka_unit_test(test_programs),
		cmocka_unit_test(test_best),
		cmocka_unit_test(test_more),
		cmocka_unit_test(test_said),
	};
	return cmocka_run_group_tests(tests, load, unload);
}
