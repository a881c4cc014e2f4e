/* The search misses no division, keeps to memory and to what is fixed, gains from more of everything; what it returns
 * simulates to its closed form, and its settings say what it found. */
#include "base/clock.h"
#include "base/count.h"
#include "base/str.h"
#include "hw/catalogue.h"
#include "job/predict.h"
#include "plan/changes.h"
#include "plan/more.h"
#include "plan/plan.h"
#include "plan/settings.h"
#include "plan/timeline.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct fo_catalogue catalogue;

static struct fo_model model_named(const char *name)
{
	struct fo_model m;
	assert_int_equal(fo_model_load(name, &m), FO_OK);
	return m;
}

static void ask(struct fo_plan_asked *a, const char *framework, const char *model, const char *device, double devices,
		double per_node, double batch, double seq)
{
	const struct fo_device *d;
	struct fo_model m = model_named(model);
	/* Arguments of Megatron-LM are read with its habits, not with those of Megatron Core's recipes. */
	const char *style = strcmp(framework, "megatron") ? framework : "megatron-lm";
	struct fo_predict_job job = { .style = fo_predict_style_of(style), .type = FO_PREDICT_BF16, .seq = seq };
	assert_int_equal(fo_catalogue_find(&catalogue, device, &d), FO_OK);
	assert_int_equal(fo_predict_machine_of(d, &job.machine), FO_OK);
	job.machine.per_node = per_node;
	fo_predict_model_of(&m, &job.model);
	*a = (struct fo_plan_asked){ .framework = fo_plan_framework_of(framework),
				     .devices = devices,
				     .global_batch = batch,
				     .fixed = FO_PLAN_FREE };
	assert_non_null(a->framework);
	assert_null(fo_predict_prepare(&job, &a->base));
}

/* ---- nothing is missed ---- */

struct counted {
	int64_t n;
	double best;
	const struct fo_plan_asked *a;
};
static double seconds_of(const struct fo_plan_asked *a, const struct fo_predict_layout *l)
{
	struct fo_predict_step s;
	fo_predict_point(&a->base, l, &s);
	double memory = a->memory_bytes > 0 ? a->memory_bytes : a->base.job.machine.memory_bytes;
	return s.wrong || fo_predict_upper_bytes(&s) > memory ? INFINITY : s.seconds;
}

static const double recompute[FO_PLAN_AGAINS] = { 0, .5, .25, .5, .75, 1, 1 };

/* Megatron-LM recomputes whole layers of each chunk: rounded, and neither none nor all. Flatout's stages recompute all
 * or nothing. */
static double share_of(const struct fo_plan_asked *a, const struct fo_predict_layout *l, int again)
{
	double share = recompute[again], of = ceil(a->base.job.model.layers / (l->pp * l->chunks));
	if (!strcmp(a->framework->id, "flatout") && l->pp > 1 && share > 0 && share < 1)
		return NAN;
	if (strcmp(a->framework->id, "megatron") || share == 0 || share == 1)
		return share;
	double n = round(share * of);
	return n > 0 && n < of ? n / of : NAN;
}

/* Every value of the fields that are switches, and what is recomputed. */
static void every_switch(struct counted *c, struct fo_predict_layout *l)
{
	const struct fo_plan_asked *a = c->a;
	for (int bits = 0; bits < 16; bits++) {
		l->sp = bits & 1, l->tp_overlap = bits >> 1 & 1, l->stages_near = bits >> 2 & 1;
		l->keeps_weights = bits >> 3 & 1;
		if (fo_plan_illegal(a, l))
			continue;
		for (int i = 0; i < FO_PLAN_AGAINS; i++) {
			if (!(a->framework->again & 1u << i))
				continue;
			l->recompute = share_of(a, l, i);
			if (isnan(l->recompute))
				continue;
			l->recompute_op = i == FO_PLAN_AGAIN_OP;
			const bool front = i == FO_PLAN_AGAIN_FRONT;
			for (l->again_stages = front; l->again_stages < (front ? l->pp : 1); l->again_stages++) {
				if (front && fo_plan_illegal(a, l))
					continue;
				c->n++;
				c->best = fmin(c->best, seconds_of(a, l));
			}
			l->again_stages = 0;
		}
	}
}

/* Every number type and format of states that was asked for. */
static void every_number(struct counted *c, struct fo_predict_layout *l)
{
	const struct fo_plan_asked *a = c->a;
	for (int t = 0; t < FO_PREDICT_TYPES; t++)
		for (int f = 0; f < FO_PREDICT_FORMATS; f++) {
			l->type = t == (int)a->base.job.type ? 0 : t + 1;
			l->format = (enum fo_predict_format)f;
			if ((a->types ? a->types >> t & 1 : !l->type) && (a->formats ? a->formats >> f & 1 : !f))
				every_switch(c, l);
		}
}

/* Every value of every field from 1 on, with the definition of what is legal alone; GPipe is another test's. */
static void every_value(struct counted *c)
{
	const struct fo_plan_asked *a = c->a;
	struct fo_predict_layout l = { .devices = a->devices, .ep = 1, .global_batch = a->global_batch };
	double n = a->devices;
	for (l.tp = 1; l.tp <= n; l.tp++)
		for (l.cp = 1; l.cp <= n; l.cp++)
			for (l.pp = 1; l.pp <= n; l.pp++) {
				double dp = n / (l.tp * l.cp * l.pp);
				if (dp != floor(dp))
					continue;
				for (l.micro_batch = 1; l.micro_batch <= a->global_batch; l.micro_batch++)
					for (l.chunks = 1; l.chunks <= a->base.job.model.layers; l.chunks++)
						for (int s = 0; s < FO_PREDICT_SCHEDULES; s++)
							for (l.zero = 0; l.zero <= 3; l.zero++)
								for (l.shard = 0; l.shard < dp * l.cp; l.shard++) {
									l.schedule = (enum fo_predict_schedule)s;
									l.micro_batches = a->global_batch /
											  (dp * l.micro_batch);
									if (s != FO_PREDICT_GPIPE)
										every_number(c, &l);
								}
			}
}

/* Is there a simpler division that ties with the fastest? */
struct named {
	const struct fo_plan_asked *a;
	const struct fo_plan *plan;
	int simpler;
	int64_t ties;
};
static bool is_simpler(void *ctx, const struct fo_predict_layout *l, int again)
{
	struct named *n = ctx;
	double dp = l->devices / (l->tp * l->cp * l->pp);
	(void)again;
	if (seconds_of(n->a, l) > (1 + FO_PLAN_TIE) * n->plan->point[0].step.seconds)
		return true;
	n->ties++;
	n->simpler += fo_plan_parts(l, dp * l->cp) < n->plan->point[n->plan->named].parts;
	return true;
}

static void test_nothing_is_missed(void **state)
{
	(void)state;
	static const char *const framework[] = { "any", "torchtitan", "megatron", "deepspeed", "flatout" };
	static struct fo_plan plan;
	int64_t most = 0;
	for (size_t i = 0; i < sizeof framework / sizeof *framework; i++)
		for (double devices = 6; devices <= 8; devices += 2) {
			struct fo_plan_asked a;
			ask(&a, framework[i], "llama-3.2-1b", "h100", devices, 4, 24, 2048);
			if (devices < 8) {
				a.types = (1u << FO_PREDICT_BF16 | 1u << FO_PREDICT_FP8) & a.framework->types;
				a.formats = (1u << FO_PREDICT_FORMAT_JOB | 1u << FO_PREDICT_FORMAT_BF16 |
					     1u << FO_PREDICT_FORMAT_ALL_BF16) &
					    a.framework->formats;
				a.memory_bytes = 14e9; /* so that both choices count */
			}
			struct counted c = { 0, INFINITY, &a };
			every_value(&c);
			assert_int_equal(fo_plan_search(&plan, &a), FO_OK);
			assert_int_equal(plan.legal, c.n);
			assert_int_equal(plan.timed + plan.too_large, c.n);
			/* Of two within a thousandth the simpler is kept. */
			assert_true(plan.point[0].step.seconds <= c.best * 1.001);
			assert_true(plan.point[0].step.seconds >= c.best);
			/* What to take is the simplest of all that tie. */
			struct named n = { &a, &plan, 0, 0 };
			fo_plan_each(&a, is_simpler, &n);
			assert_int_equal(n.simpler, 0);
			assert_int_equal(plan.ties, n.ties);
			most = fo_max(most, plan.ties);
			assert_true(plan.point[plan.named].step.seconds <=
				    (1 + FO_PLAN_TIE) * plan.point[0].step.seconds);
		}
	assert_true(most > 1);
}

/* ---- what is not looked at, and what is counted once ---- */

struct compared {
	const struct fo_plan_asked *a;
	struct fo_predict_shared shared;
	int64_t n, fits, gpipe, prefetch, near;
	uint64_t every; /* of so many divisions one is looked at */
};
static void no_faster(const struct compared *c, const struct fo_predict_layout *other, const struct fo_predict_step *s)
{
	struct fo_predict_step t;
	fo_predict_point(&c->a->base, other, &t);
	assert_true(t.seconds >= s->seconds * (1 - 1e-12) && t.bytes >= s->bytes);
}

/* Weights that are gathered when they are needed, not ahead: docs/commands/plan.md. And stages as neighbours whose
 * pipeline does not fit into a node, so that its slowest hop stays between nodes. */
static void left_out(struct compared *c, const struct fo_predict_layout *l, const struct fo_predict_step *s)
{
	struct fo_predict_layout other = *l;
	if (l->zero >= 3) {
		other.dp_overlap = -1;
		no_faster(c, &other, s);
		c->prefetch++;
	}
	other = *l;
	other.stages_near = true;
	if (l->pp > 1 && !l->stages_near && fo_plan_illegal(c->a, &other)) {
		no_faster(c, &other, s);
		c->near++;
	}
}

static bool compare(void *ctx, const struct fo_predict_layout *l, int again)
{
	struct compared *c = ctx;
	struct fo_predict_step s, shared = { 0 };
	(void)again;
	if (fo_rng_u64(73, (uint64_t)c->n++) % c->every)
		return true;
	/* What divisions share is counted once, and the numbers are the very same. */
	fo_predict_point(&c->a->base, l, &s);
	double upper = fo_predict_upper_bytes(&s);
	assert_false(fo_predict_point_within(&c->a->base, l, &c->shared, upper * (1 - 1e-12), &shared));
	assert_true(shared.bytes == s.bytes && shared.seconds == 0);
	assert_true(fo_predict_point_within(&c->a->base, l, &c->shared, upper, &shared));
	assert_memory_equal(&s, &shared, sizeof s);
	c->fits++;
	left_out(c, l, &s);
	/* GPipe takes as long as 1F1B or longer, and as much memory or more: the search leaves it out. */
	if (l->pp > 1 && l->schedule == FO_PREDICT_1F1B) {
		struct fo_predict_layout other = *l;
		other.schedule = FO_PREDICT_GPIPE;
		fo_predict_point(&c->a->base, &other, &shared);
		assert_true(shared.seconds >= s.seconds * (1 - 1e-12) && shared.bytes >= s.bytes);
		c->gpipe++;
	}
	return true;
}

static void test_shared_and_left_out(void **state)
{
	(void)state;
	static const char *const model[] = { "llama-3.1-8b", "llama-3.1-405b", "mixtral-8x7b" };
	for (int i = 0; i < 3; i++) {
		struct fo_plan_asked a;
		ask(&a, "any", model[i], "h100", 64, 8, 128, 8192);
		struct compared c = { .a = &a, .every = 97 };
		fo_plan_each(&a, compare, &c);
		assert_true(c.fits > 1000 && c.gpipe > 50 && c.prefetch > 50 && c.near > 50);
	}
}

/* ---- more of everything is never worse ---- */

static double best_of(const struct fo_plan_asked *a)
{
	static struct fo_plan plan;
	fo_status st = fo_plan_search(&plan, a);
	fo_err_clear();
	return st == FO_OK ? plan.point[0].step.seconds : INFINITY;
}

static void test_more_is_never_worse(void **state)
{
	(void)state;
	for (int i = 0; i < 12; i++) {
		struct fo_plan_asked a, b;
		static const double size[] = { 8, 16, 32 };
		ask(&a, i % 2 ? "megatron" : "torchtitan", "llama-3.1-8b", "h100", size[i % 3], 8, 64, 4096 << (i % 2));
		double last = INFINITY;
		for (double gib = 20; gib <= 160; gib *= 2) {
			a.memory_bytes = gib * 0x1p30;
			double now = best_of(&a);
			assert_true(now <= last * 1.001);
			last = now;
		}
		a.memory_bytes = 0;
		b = a;
		struct fo_predict_job job = a.base.job;
		job.machine.net_byte_s *= 3;
		job.machine.node_byte_s *= 2;
		assert_null(fo_predict_prepare(&job, &b.base));
		assert_true(best_of(&b) <= best_of(&a) * 1.001);
	}
}

/* ---- fixed numbers, and what cannot be ---- */

/* Of every size that is led to, the first on which a whole search finds a division that fits. */
static void test_the_fewest_that_hold_it(void **state)
{
	(void)state;
	static const struct {
		const char *framework, *model;
		double devices, per_node, batch, seq;
	} job[] = { { "megatron", "llama-3.1-405b", 64, 8, 4, 8192 },
		    { "torchtitan", "llama-3.1-70b", 8, 4, 12, 8192 },
		    { "flatout", "llama-3.1-8b", 1, 8, 24, 8192 },
		    { "deepspeed", "llama-3.1-70b", 8, 8, 48, 4096 },
		    { "any", "mixtral-8x7b", 2, 8, 2, 4096 } };
	static struct fo_plan plan;
	for (size_t i = 0; i < sizeof job / sizeof *job; i++) {
		struct fo_plan_asked a;
		double batch, n;
		ask(&a, job[i].framework, job[i].model, "h100", job[i].devices, job[i].per_node, job[i].batch,
		    job[i].seq);
		const double holding = fo_plan_holding(&a, &batch);
		fo_status st = FO_EARG;
		for (n = job[i].devices; st != FO_OK && n < 1024;) {
			n = a.devices = fo_plan_next_size(job[i].per_node, n);
			st = fo_plan_search(&plan, &a);
			fo_err_clear();
		}
		assert_int_equal(st, FO_OK);
		assert_true(batch == job[i].batch);
		assert_true(holding == n);
	}
	/* Not a doubling; a size that divides the batch; a larger batch where no size divides it; no size at all. */
	struct fo_plan_asked a;
	double batch;
	ask(&a, "megatron", "llama-3.1-405b", "h100", 16, 8, 128, 8192);
	int others = 0;
	for (a.memory_bytes = 70e9; a.memory_bytes < 100e9; a.memory_bytes += 10e9) {
		const double whole = fo_plan_holding(&a, &batch);
		others += exp2(round(log2(whole))) != whole;
	}
	assert_true(others > 0);
	ask(&a, "deepspeed", "llama-3.1-70b", "h100", 8, 8, 8, 4096);
	assert_true(fo_plan_holding(&a, &batch) > 8);
	assert_true(batch == fo_plan_holding(&a, &batch));
	a.fixed.zero = 0;
	assert_true(fo_plan_holding(&a, &batch) == 0);
	assert_true(fo_plan_next_size(8, 5) == 6);
	assert_true(fo_plan_next_size(8, 8) == 16);
	assert_true(fo_plan_next_size(8, 20) == 24);
	assert_true(fo_plan_next_size(8, 1016) == 1024);
	assert_true(fo_plan_next_size(8, 1024) == 1040);
}

static void test_fixed_is_kept(void **state)
{
	(void)state;
	static struct fo_plan plan;
	struct fo_plan_asked a;
	ask(&a, "any", "llama-3.1-8b", "h100", 16, 8, 64, 8192);
	a.fixed.tp = 4;
	a.fixed.zero = 1;
	a.fixed.micro_batch = 2;
	assert_int_equal(fo_plan_search(&plan, &a), FO_OK);
	for (int i = 0; i < plan.points; i++) {
		const struct fo_predict_layout *l = &plan.point[i].layout;
		assert_true(l->tp == 4 && l->zero == 1 && l->micro_batch == 2);
		assert_null(fo_plan_illegal(&a, l));
	}
	a.fixed.tp = 3;
	assert_int_equal(fo_plan_search(&plan, &a), FO_EARG);
	ask(&a, "any", "llama-3.1-405b", "h100", 8, 8, 64, 8192);
	assert_int_equal(fo_plan_search(&plan, &a), FO_ENOMEM);
	assert_true(plan.smallest.step.bytes > a.base.job.machine.memory_bytes);
	ask(&a, "deepspeed", "llama-3.1-8b", "h100", 16, 8, 7,
	    8192); /* fewer sequences than ranks, and no other axis */
	assert_int_equal(fo_plan_search(&plan, &a), FO_EARG);
}

/* ---- what is returned simulates to its closed form ---- */

static void test_best_simulates_to_its_closed_form(void **state)
{
	(void)state;
	static const char *const model[] = { "llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b" };
	static const char *const framework[] = { "any", "torchtitan", "megatron" };
	static struct fo_plan plan;
	int seen = 0;
	double sum = 0;
	for (uint64_t i = 0; i < 36; i++) {
		struct fo_plan_asked a;
		double devices = (double)(1 << (3 + fo_rng_u64(71, 3 * i) % 5));
		ask(&a, framework[i % 3], model[fo_rng_u64(71, 3 * i + 1) % 3], i % 2 ? "h100" : "b200", devices, 8,
		    devices * (double)(1 + fo_rng_u64(71, 3 * i + 2) % 4), 4096);
		if (fo_plan_search(&plan, &a) != FO_OK) {
			fo_err_clear();
			continue;
		}
		for (int k = 0; k < plan.points && k < 4; k++) {
			struct fo_plan_timeline t;
			const struct fo_plan_point *p = &plan.point[k];
			assert_int_equal(fo_plan_timeline_of(&t, &p->layout, &p->step), FO_OK);
			double off = fabs(t.run.step_s / p->step.seconds - 1);
			if (off > 0.02)
				fail_msg("%s on %.0f: tp %.0f cp %.0f pp %.0f x %.0f, "
					 "schedule %d, %.0f micro-batches: simulated %.4f s, "
					 "closed form %.4f",
					 model[fo_rng_u64(71, 3 * i + 1) % 3], devices, p->layout.tp, p->layout.cp,
					 p->layout.pp, p->layout.chunks, p->layout.schedule, p->layout.micro_batches,
					 t.run.step_s, p->step.seconds);
			sum += off;
			seen++;
			fo_plan_timeline_fini(&t);
		}
	}
	assert_true(seen > 60);
	assert_true(sum / seen < 0.005);
}

/* Stages that do not divide the layers: nothing is negative, and events agree with the closed form. */
static void test_uneven_stages(void **state)
{
	(void)state;
	static const char *const model[] = { "llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b" };
	int checked = 0;
	for (uint64_t i = 0; i < 240; i++) {
		struct fo_plan_asked a;
		struct fo_plan_timeline t;
		struct fo_predict_step s;
		struct fo_predict_layout l = {
			.tp = (double)(1 << fo_rng_u64(83, 5 * i) % 4),
			.cp = (double)(1 << fo_rng_u64(83, 5 * i + 1) % 3),
			.pp = (double)(2 + fo_rng_u64(83, 5 * i + 2) % 15),
			.micro_batch = 1,
			.zero = 1,
		};
		if (i == 0)
			l.tp = 4, l.cp = 4, l.pp = 32;
		double dp = 2, m = l.pp * (double)(1 + fo_rng_u64(83, 5 * i + 4) % 6);
		l.devices = dp * l.tp * l.cp * l.pp, l.global_batch = dp * m;
		ask(&a, "megatron", model[i ? fo_rng_u64(83, 5 * i + 3) % 4 : 3], "h100", l.devices, 8, l.global_batch,
		    8192);
		fo_predict_point(&a.base, &l, &s);
		if (s.wrong)
			continue;
		double sum = 0;
		for (int k = 0; k < FO_PREDICT_PARTS; k++) {
			assert_true(s.part[k] >= 0);
			sum += s.part[k];
		}
		assert_true(fabs(sum / s.seconds - 1) < 1e-9);
		assert_int_equal(fo_plan_timeline_of(&t, &l, &s), FO_OK);
		double off = fabs(t.run.step_s / s.seconds - 1);
		if (s.part[FO_PREDICT_SENDS] < .005 * s.seconds) /* sends hide behind a slow head in events alone */
			checked += s.full > 0;
		else
			off = 0;
		if (off > 0.02)
			fail_msg("%.0f layers, tp %.0f cp %.0f pp %.0f, %.0f micro-batches: simulated %.4f s, closed "
				 "form %.4f",
				 a.base.job.model.layers, l.tp, l.cp, l.pp, m, t.run.step_s, s.seconds);
		fo_plan_timeline_fini(&t);
	}
	assert_true(checked > 50);
}

/* ---- the way from a division as it is ---- */

struct picked {
	uint64_t want, seen;
	struct fo_predict_layout layout;
};
static bool pick(void *ctx, const struct fo_predict_layout *l, int again)
{
	struct picked *p = ctx;
	(void)again;
	p->layout = *l;
	return p->seen++ < p->want;
}

static void test_changes_lead_to_the_goal(void **state)
{
	(void)state;
	static struct fo_plan plan;
	struct fo_plan_asked a;
	int reached = 0;
	ask(&a, "megatron", "llama-3.1-8b", "h100", 16, 8, 64, 4096);
	assert_int_equal(fo_plan_search(&plan, &a), FO_OK);
	const struct fo_predict_layout *goal = &plan.point[0].layout;
	for (uint64_t i = 0; i < 50; i++) {
		struct picked from = { .want = fo_rng_u64(72, i) % (uint64_t)plan.legal };
		struct fo_plan_change c[FO_PLAN_FIELDS];
		struct fo_predict_step s;
		fo_plan_each(&a, pick, &from);
		fo_predict_point(&a.base, &from.layout, &s);
		int n = fo_plan_changes(&a, &from.layout, goal, c);
		double seconds = s.seconds;
		uint32_t done = 0;
		assert_true(n <= FO_PLAN_FIELDS);
		for (int k = 0; k < n; k++) {
			assert_true(c[k].before == seconds && c[k].after < seconds);
			assert_true(c[k].fields && !(c[k].fields & done));
			assert_null(fo_plan_illegal(&a, &c[k].layout));
			assert_true(seconds_of(&a, &c[k].layout) == c[k].after);
			done |= c[k].fields;
			seconds = c[k].after;
		}
		/* All that is left together is the goal itself, which gains wherever it is faster. */
		assert_true(seconds <= 1.01 * plan.point[0].step.seconds);
		reached += n > 0;
	}
	assert_true(reached > 25);
	assert_int_equal(fo_plan_changes(&a, goal, goal, (struct fo_plan_change[FO_PLAN_FIELDS]){ { 0 } }), 0);
}

/* ---- settings say what was found ---- */

static enum fo_predict_format format_of(enum fo_predict_format f)
{
	return f == FO_PREDICT_FORMAT_JOB ? FO_PREDICT_FORMAT_FP32 : f;
}

static void reads_back(enum fo_plan_words w, const struct fo_plan_asked *a, const struct fo_plan_point *p,
		       const char *file)
{
	struct fo_model model = model_named("llama-3.1-8b");
	struct fo_str s = { 0 };
	const struct fo_predict_layout *l = &p->layout;
	struct fo_job job;
	struct fo_job_asked asked;
	struct fo_job_given given = { .model = "llama-3.1-8b" };
	/* DeepSpeed's file does not say them: the sequence, and recomputation, which the model's code switches on. */
	const char *const set[] = { "seq=8192", l->recompute > 0 ? "recompute=full" : "recompute=none" };
	const char *why;
	struct fo_cluster c = { .devices = 32,
				.per_node = 8,
				.nodes = 4,
				.node_gb_s = fo_range(NAN),
				.net_gb_s = fo_range(NAN),
				.net_assumed = true };
	if (!fo_plan_settings(w, a, p, &model, &s, &why))
		fail_msg("%s: %s", fo_plan_words_id[w], why);
	FILE *f = fopen(file, "w");
	fputs(s.data, f);
	fclose(f);
	if (w == FO_PLAN_WORDS_DEEPSPEED) {
		given.set = set;
		given.sets = 2;
	}
	assert_int_equal(fo_job_read(&file, 1, &given, &job), FO_OK);
	assert_int_equal(fo_catalogue_find(&catalogue, "h100", &c.device), FO_OK);
	if (fo_job_ask(&job, &c, NULL, &asked) != FO_OK)
		fail_msg("%s: %s\n%s", fo_plan_words_id[w], fo_err_text(), s.data);
	const struct fo_predict_layout *r = &asked.layout;
	if (r->tp != l->tp || r->cp != l->cp || r->pp != l->pp || r->micro_batch != l->micro_batch ||
	    r->micro_batches != l->micro_batches || r->zero != l->zero || r->global_batch != 64 ||
	    fabs(r->recompute - l->recompute) > 0.07 || fmax(1, r->chunks) != l->chunks || r->sp != l->sp ||
	    r->shard != l->shard || asked.job.type != fo_predict_type_of(&a->base.job, l) ||
	    format_of(asked.job.format) != format_of(l->format))
		fail_msg("%s reads as tp %g cp %g pp %g mb %g x %g zero %g shard %g batch %g again %g chunks %g sp %d "
			 "type %d format %d, searched tp %g cp %g pp %g mb %g x %g zero %g shard %g again %g chunks %g "
			 "sp %d type %d format %d:\n%s",
			 fo_plan_words_id[w], r->tp, r->cp, r->pp, r->micro_batch, r->micro_batches, r->zero, r->shard,
			 r->global_batch, r->recompute, r->chunks, r->sp, asked.job.type, asked.job.format, l->tp,
			 l->cp, l->pp, l->micro_batch, l->micro_batches, l->zero, l->shard, l->recompute, l->chunks,
			 l->sp, l->type, l->format, s.data);
	/* What is read takes the time of what was found, whose type and format are the job's here. */
	struct fo_predict_step step, found;
	struct fo_predict_layout same = *l;
	same.type = 0, same.format = FO_PREDICT_FORMAT_JOB;
	fo_predict_point(&asked.base, r, &step);
	fo_predict_point(&asked.base, &same, &found);
	if (fabs(step.seconds / found.seconds - 1) > 1e-9)
		fail_msg("%s: planned %.6f s, predicted %.6f s:\n%s", fo_plan_words_id[w], found.seconds, step.seconds,
			 s.data);
	fo_job_fini(&job);
	fo_str_fini(&s);
}

static void test_settings_read_back(void **state)
{
	(void)state;
	static struct fo_plan plan;
	char file[] = "/tmp/test_plan_XXXXXX";
	int fd = mkstemp(file), numbers = 0;
	assert_true(fd >= 0);
	close(fd);
	for (int w = 0; w < FO_PLAN_WORDS; w++)
		for (int t = FO_PREDICT_BF16; t <= FO_PREDICT_FP8; t++)
			for (int f = 0; f < FO_PREDICT_FORMATS; f++) {
				struct fo_plan_asked a;
				ask(&a, fo_plan_words_id[w], "llama-3.1-8b", "h100", 32, 8, 64, 8192);
				a.types = 1u << t & a.framework->types;
				a.formats = 1u << f & a.framework->formats & ~(1u << FO_PREDICT_FORMAT_FP32);
				if (!a.types || !a.formats)
					continue;
				assert_int_equal(fo_plan_search(&plan, &a), FO_OK);
				const bool own = t == FO_PREDICT_BF16 && f == FO_PREDICT_FORMAT_JOB;
				for (int k = 0; k < plan.points && (own || k < 2); k++)
					reads_back((enum fo_plan_words)w, &a, &plan.point[k], file);
				numbers += !own;
			}
	assert_int_equal(numbers, 7 + 3 + 5 + 1); /* of Flatout, torchtitan, Megatron-LM, DeepSpeed */
	unlink(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_missed),   cmocka_unit_test(test_shared_and_left_out),
		cmocka_unit_test(test_more_is_never_worse), cmocka_unit_test(test_the_fewest_that_hold_it),
		cmocka_unit_test(test_fixed_is_kept),       cmocka_unit_test(test_best_simulates_to_its_closed_form),
		cmocka_unit_test(test_uneven_stages),       cmocka_unit_test(test_changes_lead_to_the_goal),
		cmocka_unit_test(test_settings_read_back),
	};
	if (fo_catalogue_load(&catalogue, NULL))
		return 1;
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fo_catalogue_fini(&catalogue);
	return failed;
}
