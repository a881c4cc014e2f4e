/* A ladder without the engine: its statistics, its plans from anywhere, and what is read from directories that were
 * written by hand. */
#include "ladder/plan_int.h"
#include "base/fs.h"
#include "base/str.h"
#include "support/must.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "test_ladder.XXXXXX";

static void near(double got, double want)
{
	if (!(fabs(got - want) <= 1e-12 * fabs(want)))
		fail_msg("got %.17g, expected %.17g", got, want);
}

/* ---- statistics ---- */

/* Expected values: the null distribution by enumeration of all 2^n signs, in Python. */
static void test_interval(void **state)
{
	(void)state;
	static const double five[] = { 1.10, 1.20, 1.05, 1.30, 1.15 }, six[] = { 0.93, 1.02, 0.99, 1.01, 0.98, 1.04 },
			    ten[] = { 1.31, 1.22, 1.27, 1.18, 1.35, 1.24, 1.29, 1.21, 1.26, 1.33 };
	static const struct {
		const double *v;
		int n;
		struct fo_ladder_interval want;
	} row[] = { { five, 5, { 1.15, 1.05, 1.30, 0.9375 } },
		    { six, 6, { 0.999799979995999, 0.93, 1.04, 0.96875 } },
		    { ten, 10, { 1.26475294030099, 1.2241731903615598, 1.3093891705677119, 0.951171875 } },
		    { five, 1, { 1.10, 1.10, 1.10, 0 } } };
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct fo_ladder_interval got = fo_ladder_interval(row[i].v, row[i].n, 0.95);
		near(got.estimate, row[i].want.estimate);
		near(got.low, row[i].want.low);
		near(got.high, row[i].want.high);
		assert_true(got.level == row[i].want.level);
	}
	assert_true(isnan(fo_ladder_interval(five, 0, 0.95).estimate));
	/* A lower level asked of ten is narrower, never wider. */
	struct fo_ladder_interval wide = fo_ladder_interval(ten, 10, 0.95), narrow = fo_ladder_interval(ten, 10, 0.80);
	assert_true(narrow.level >= 0.80 && narrow.level < wide.level && narrow.low > wide.low &&
		    narrow.high < wide.high);
}

/* How often the interval of five rounds holds the truth, when both turns of a pair are disturbed alike: 15 of 16 times.
 */
static void test_coverage(void **state)
{
	(void)state;
	uint64_t x = 7;
	int held = 0, trials = 4000;
	for (int t = 0; t < trials; t++) {
		double ratio[5];
		for (int i = 0; i < 5; i++) {
			double noise[2];
			for (int k = 0; k < 2; k++) {
				x = x * 6364136223846793005u + 1442695040888963407u;
				double u = (double)(x >> 11) * 0x1p-53;
				noise[k] = 1 + u * u * u * 4; /* mostly quiet, sometimes five times as slow */
			}
			ratio[i] = 1.2 * noise[0] / noise[1];
		}
		struct fo_ladder_interval v = fo_ladder_interval(ratio, 5, 0.95);
		held += v.low <= 1.2 && 1.2 <= v.high;
	}
	double share = (double)held / trials; /* standard error 0.0038 */
	assert_true(share > 0.9375 - 0.016 && share < 0.9375 + 0.016);
}

static void test_deviation(void **state)
{
	(void)state;
	double a[20], b[20];
	for (int i = 0; i < 20; i++)
		b[i] = 4, a[i] = i % 2 ? 5 : 3; /* far away step by step, never on average */
	near(fo_ladder_deviation(a, b, 20) + 1, 1);
	for (int i = 10; i < 12; i++)
		a[i] = 5; /* one stretch of ten: instability magnifies rounding */
	near(fo_ladder_deviation(a, b, 20) + 1, 1);
	for (int i = 16; i < 20; i++)
		a[i] = 4.2; /* to the end: wrong from there on */
	near(fo_ladder_deviation(a, b, 20), 0.2 / 4);
	for (int i = 0; i < 20; i++)
		a[i] = 3; /* lower is not better: it is elsewhere */
	near(fo_ladder_deviation(a, b, 20), 0.25);
	a[3] = INFINITY;
	assert_true(isinf(fo_ladder_deviation(a, b, 20)));
	for (int i = 0; i < 20; i++)
		a[i] = i < 19 ? NAN : 8;
	near(fo_ladder_deviation(a, b, 20), 1);
	a[19] = NAN;
	assert_true(isnan(fo_ladder_deviation(a, b, 20)));
	double v[] = { 5, 1, 3, 2, 4 };
	struct fo_spread s = fo_stats_spread(v, 5);
	assert_true(s.median == 3 && s.low == 2 && s.high == 4);
	assert_true(isnan(fo_stats_spread(NULL, 0).median));
}

static void test_order(void **state)
{
	(void)state;
	int first[9], other[9], moved = 0;
	for (int round = 0; round < 50; round++) {
		int seen = 0;
		fo_ladder_order(3, round, 9, other);
		for (int i = 0; i < 9; i++)
			seen |= 1 << other[i];
		assert_int_equal(seen, 511);
		moved += round && memcmp(first, other, sizeof first) != 0;
		memcpy(first, other, sizeof first);
		fo_ladder_order(3, round, 9, other);
		assert_memory_equal(first, other, sizeof first);
	}
	assert_true(moved >= 48);
	assert_int_equal(fo_ladder_round_end(23, 5, 0), 4);
	assert_int_equal(fo_ladder_round_end(23, 5, 4), 23);
}

/* ---- plans ---- */

struct planned {
	struct fo_run run;
	struct fo_opt_set base;
	struct fo_ladder_plan plan;
};

static void begin(struct planned *p, int64_t steps)
{
	fo_opt_init(&p->base, fo_run_options, &p->run);
	fo_opt_set_text(&p->base, "data.path", "text", FO_ORIGIN_FLAG, "");
	p->plan = (struct fo_ladder_plan){ .base = &p->base,
					   .dir = dir,
					   .run_file = "run.yaml",
					   .version = "flatout x",
					   .cpu = "Example",
					   .threads = 2,
					   .steps = steps,
					   .rounds = 5,
					   .seed = 4 };
}
static void end(struct planned *p)
{
	fo_ladder_plan_fini(&p->plan);
	fo_opt_fini(&p->base);
}
static fo_status parse(struct planned *p, const char *text)
{
	return fo_ladder_plan_text(&p->plan, text, strlen(text), "mine.yaml");
}

/* A tp group of two: its own tokens, then overlap, one at a time. */
static void test_tp_rungs(void **state)
{
	(void)state;
	static const char *const name[] = { "tp-sequence", "tp-overlap", "overlap" };
	struct planned p;
	int seen[3] = { 0 };
	begin(&p, 500);
	fo_opt_set_text(&p.base, "mesh.ranks", "2", FO_ORIGIN_FLAG, "");
	fo_opt_set_text(&p.base, "mesh.tp", "2", FO_ORIGIN_FLAG, "");
	must(fo_ladder_plan_default(&p.plan));
	for (int i = 0; i < p.plan.rungs; i++)
		for (int k = 0; k < 3; k++)
			seen[k] += !strcmp(p.plan.rung[i].name, name[k]) && p.plan.rung[i].changes == 1;
	assert_true(seen[0] && seen[1] && seen[2]);
	assert_non_null(strstr(p.plan.rung[0].options, "--pass.tp-async=0"));
	end(&p);
}

static void test_built_in(void **state)
{
	(void)state;
	struct planned p;
	begin(&p, 500);
	must(fo_ladder_plan_default(&p.plan));
	const struct fo_ladder_rung *g = p.plan.rung;
	assert_string_equal(g[0].name, "baseline");
	assert_true(g[0].from == -1 && g[0].reference == 0);
	/* Untuned, but of the whole text: what falls off padded rows would be missing from this rung alone. */
	assert_string_equal(g[0].change[0].key, "data.packing");
	assert_string_equal(g[0].change[0].value, "split");
	assert_string_equal(g[1].name, "packing");
	assert_true(g[1].from == 0 && g[1].reference == 1 && g[1].check == FO_LADDER_NEW_DATA);
	bool fp8 = false, micro = false, fp32 = false;
	for (int i = 2; i < p.plan.rungs; i++) {
		/* One change at a time; what is left of the list has the batches of `packing`. */
		assert_true(g[i].changes >= 1 && g[i].changes <= 2 && g[i].reference == 1 && g[i].from < i);
		if (!strcmp(g[i].name, "fp8"))
			fp8 = g[i].numerics_only && strstr(g[i].options, "--pass.fp8=current") &&
			      !strstr(g[i].options, "--pass.merge-qkv");
		if (!strcmp(g[i].name, "micro-batch"))
			micro = strstr(g[i].options, " --train.micro-batches=2 ") &&
				strstr(g[i].options, " --train.rows=2 ");
		fp32 |= !strcmp(g[i].name, "fp32");
	}
	assert_true(fp8 && micro && fp32);
	/* The top of the climb is what the run is by itself: nothing of the optimisations is forgotten or turned down.
	 */
	struct fo_opt_set s, plain;
	struct fo_run r, alone;
	int top = p.plan.rungs - 3;
	must(fo_ladder_plan_run(&p.plan, top, "shards", &s, &r));
	fo_opt_init(&plain, fo_run_options, &alone);
	static const char *const same[] = { "pass.", "data.packing", "train.precision" };
	for (int i = 0; fo_run_options[i].key; i++)
		for (int k = 0; k < 3; k++)
			if (!strncmp(fo_run_options[i].key, same[k], strlen(same[k])))
				assert_string_equal(fo_opt_value_text(&s, i), fo_opt_value_text(&plain, i));
	assert_string_equal(r.data, "shards");
	assert_true(r.steps == 500 && r.ckpt_every == 0 && r.metered_every == 33 && r.eval_every == 500 &&
		    r.warmup == 50);
	fo_opt_fini(&plain);
	fo_opt_fini(&s);
	end(&p);
	/* A run in fp32, of one micro-batch. */
	begin(&p, 500);
	fo_opt_set_text(&p.base, "train.precision", "fp32", FO_ORIGIN_FLAG, "");
	fo_opt_set_text(&p.base, "train.micro-batches", "1", FO_ORIGIN_FLAG, "");
	must(fo_ladder_plan_default(&p.plan));
	for (int i = 0; i < p.plan.rungs; i++)
		assert_true(strcmp(p.plan.rung[i].name, "fp32") && strcmp(p.plan.rung[i].name, "micro-batch"));
	end(&p);
	/* Ranks: overlap; those that share weights: prefetch, too. One rank has neither in its list. */
	for (int shard = 0; shard <= 2; shard++) {
		static const char *const of_ranks[] = { "overlap", "prefetch", "first-blocks" };
		int seen[3] = { 0 };
		begin(&p, 500);
		if (shard) {
			fo_opt_set_text(&p.base, "mesh.ranks", "4", FO_ORIGIN_FLAG, "");
			fo_opt_set_text(&p.base, "mesh.shard", shard == 1 ? "1" : "2", FO_ORIGIN_FLAG, "");
			fo_opt_set_text(&p.base, "mesh.replicate", shard == 1 ? "4" : "2", FO_ORIGIN_FLAG, "");
			fo_opt_set_text(&p.base, "train.rows", "4", FO_ORIGIN_FLAG, "");
		}
		must(fo_ladder_plan_default(&p.plan));
		for (int i = 0; i < p.plan.rungs; i++)
			for (int k = 0; k < 3; k++)
				seen[k] += !strcmp(p.plan.rung[i].name, of_ranks[k]) && p.plan.rung[i].changes == 1;
		assert_true(seen[0] == (shard > 0) && seen[1] == (shard > 1) && seen[2] == (shard > 1));
		assert_true(!strstr(p.plan.rung[0].options, "overlap") == !shard);
		assert_true(!strstr(p.plan.rung[0].options, "--pass.zero-prefetch=0") == (shard < 2));
		end(&p);
	}
	begin(&p, 19);
	assert_int_equal(fo_ladder_plan_default(&p.plan), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "at least 20"));
	end(&p);
}

/* The command that is told makes the same run of the run file: whatever the ladder's command line and the ladder itself
 * set. */
static void test_options(void **state)
{
	(void)state;
	struct planned p;
	begin(&p, 20);
	static const struct {
		const char *key, *value;
		enum fo_opt_origin from;
	} base[] = { { "data.path", "it's text", FO_ORIGIN_FLAG },
		     { "model.layers", "3", FO_ORIGIN_FLAG },
		     /* over a line of the run file, back to the default */
		     { "pass.fuse-elementwise", "no", FO_ORIGIN_FILE },
		     { "pass.fuse-elementwise", "yes", FO_ORIGIN_FLAG },
		     { "optim.lr", "0.002", FO_ORIGIN_FILE },
		     { "optim.warmup", "100", FO_ORIGIN_FILE },
		     { "train.rows", "2", FO_ORIGIN_FILE } };
	for (size_t i = 0; i < sizeof base / sizeof *base; i++)
		fo_opt_set_text(&p.base, base[i].key, base[i].value, base[i].from, "");
	must(parse(&p, "a: {pass.merge-qkv: no}\nb: {pass.merge-qkv: yes, train.rows: 4}\nc: {pass.fuse-loss: 64}\n"));
	for (int i = 0; i < p.plan.rungs; i++) {
		struct fo_opt_set told, want;
		struct fo_run r, w;
		must(fo_ladder_plan_run(&p.plan, i, NULL, &want, &w));
		fo_opt_init(&told, fo_run_options, &r);
		for (size_t k = 0; k < sizeof base / sizeof *base; k++)
			if (base[k].from == FO_ORIGIN_FILE)
				fo_opt_set_text(&told, base[k].key, base[k].value, FO_ORIGIN_FILE, "");
		assert_non_null(strstr(p.plan.rung[i].options, "--data.path='it'\\''s text' "));
		fo_opt_set_text(&told, "data.path", "it's text", FO_ORIGIN_FLAG, "");
		char *copy = fo_arena_strdup(&p.plan.arena, p.plan.rung[i].options), *value;
		for (char *key = strtok(copy, " "); key; key = strtok(NULL, " "))
			if (!strncmp(key, "--", 2) && (value = strchr(key, '=')) && value[1] != '\'') {
				*value = 0;
				fo_opt_set_text(&told, key + 2, value + 1, FO_ORIGIN_FLAG, "");
			}
		must(fo_run_check(&told, &r)); /* sets what follows from others, as for the plan */
		for (int k = 0; fo_run_options[k].key; k++)
			if (strcmp(fo_run_options[k].key, "run.dir") &&
			    strcmp(fo_opt_value_text(&told, k), fo_opt_value_text(&want, k)))
				fail_msg("rung %d, %s: told '%s', is '%s'", i, fo_run_options[k].key,
					 fo_opt_value_text(&told, k), fo_opt_value_text(&want, k));
		fo_opt_fini(&told);
		fo_opt_fini(&want);
	}
	end(&p);
}

/* As many held-out rows, of the same kind, for every rung: whatever it trains on. */
static void test_held_out(void **state)
{
	(void)state;
	struct planned p;
	begin(&p, 20);
	fo_opt_set_text(&p.base, "train.rows", "2", FO_ORIGIN_FLAG, "");
	fo_opt_set_text(&p.base, "eval.batches", "8", FO_ORIGIN_FLAG, "");
	must(parse(&p,
		   "a: {data.packing: padded}\nb: {data.packing: packed}\nc: {train.rows: 4}\nd: {train.rows: 1}\n"));
	for (int i = 0; i < p.plan.rungs; i++) {
		struct fo_opt_set s;
		struct fo_run r;
		must(fo_ladder_plan_run(&p.plan, i, NULL, &s, &r));
		assert_true(r.rows * r.eval_batches == 16 && r.eval_every == 20);
		for (int k = 0; fo_run_options[k].key; k++)
			if (!strcmp(fo_run_options[k].key, "eval.packing"))
				assert_string_equal(fo_opt_value_text(&s, k), "packed");
		fo_opt_fini(&s);
	}
	end(&p);
}

static void test_own_rungs(void **state)
{
	(void)state;
	struct planned p;
	begin(&p, 20);
	must(parse(&p, "plain:\n  pass: {fuse-loss: 0, merge-qkv: no}\n"
		       "loss:\n  what: by chunks\n  pass.fuse-loss: 256\n"
		       "two:\n  from: plain\n  train: {rows: 2}\n"
		       "rough:\n  from: loss\n  numerics-only: yes\n  pass:\n    fp8: current\n"));
	const struct fo_ladder_rung *g = p.plan.rung;
	assert_int_equal(p.plan.rungs, 4);
	assert_true(strstr(g[0].options, " --pass.fuse-loss=0") && strstr(g[0].options, " --pass.merge-qkv=no"));
	assert_true(strstr(g[1].options, " --pass.fuse-loss=256") && strstr(g[1].options, " --pass.merge-qkv=no"));
	assert_string_equal(g[1].what, "by chunks");
	assert_string_equal(g[1].change[0].was, "0");
	assert_true(g[1].from == 0 && g[2].from == 0 && g[3].from == 1 && g[3].numerics_only && !g[1].numerics_only);
	/* Twice the rows make other batches. */
	assert_true(g[1].reference == 0 && g[2].reference == 2 && g[2].check == FO_LADDER_NEW_DATA &&
		    g[3].reference == 0);
	end(&p);
	begin(&p, 20);
	must(parse(&p, "as-is:\nother:\n  pass.merge-qkv: no\n"));
	assert_int_equal(p.plan.rung[0].changes, 0);
	end(&p);
}

static void test_mistakes(void **state)
{
	(void)state;
	static const struct {
		const char *text, *says[4];
	} row[] = {
		{ "", { "no rungs" } },
		{ "a: {pass.fuse-los: 3}\nb: {train.rows: none}\n",
		  { "mine.yaml:1: unknown key 'pass.fuse-los'; nearest is 'pass.fuse-loss'", "mine.yaml:2:" } },
		{ "a: {train.rows: 2}\na: {train.rows: 4}\n", { "there is a rung 'a' already" } },
		{ "a: {train.rows: 2}\nb: {from: c, train.rows: 4}\nd: {}\n",
		  { "starts from 'c'", "rung 'd' changes nothing" } },
		{ "a: {run.dir: x, model: {layers: 3}}\n",
		  { "'run.dir' is the same for all rungs", "'model.layers' is the same" } },
		{ "../a: {train.rows: 2}\n", { "cannot be a rung's name" } },
		{ "data: {train.rows: 2}\n", { "cannot be a rung's name" } },
		{ "lock: {train.rows: 2}\n", { "cannot be a rung's name" } },
		{ "plan.json: {train.rows: 2}\n", { "cannot be a rung's name" } },
		{ "ladder.json: {train.rows: 2}\n", { "cannot be a rung's name" } },
		{ "ladder.html: {train.rows: 2}\n", { "cannot be a rung's name" } },
		{ "text.json: {train.rows: 2}\n", { "cannot be a rung's name" } },
		{ "a: 3\n", { "takes a mapping" } },
		{ "- a\n", { "lists are not allowed" } },
		{ "a: &x {train.rows: 2}\nb: *x\n", { "anchors" } },
		{ "a: {train.rows: 2, train: {rows: 3}}\n", { "'train.rows' is set twice" } },
		{ "a: {numerics-only: perhaps, train.rows: 2}\n", { "yes or no" } },
		{ "a: {pass.fp8-scale-precompute: yes}\n", { "rung 'a': pass.fp8-scale-precompute=yes is about fp8" } },
		{ "a: {b: {c: {d: {e: 1}}}}\n", { "nested more than" } },
		{ "a: [", { "not allowed" } },
		{ "a: {train.rows: 2", { "not valid YAML" } },
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct planned p;
		begin(&p, 20);
		assert_int_equal(parse(&p, row[i].text), FO_EARG);
		for (int k = 0; k < 4 && row[i].says[k]; k++)
			if (!strstr(fo_err_text(), row[i].says[k]))
				fail_msg("'%s': does not say '%s': %s", row[i].text, row[i].says[k], fo_err_text());
		end(&p);
	}
}

/* ---- results ---- */

static const char mine[] =
	"base: {pass.merge-qkv: no}\nfast: {pass.merge-qkv: yes}\nslow: {from: base, pass.fuse-loss: 0}\n"
	"same: {from: base, pass.fuse-loss: 64}\nrough: {from: base, numerics-only: yes, pass.fp8: current}\n"
	"other: {from: base, data.packing: padded}\nbroken: {from: base, pass.fuse-loss: 32}\nlate: {from: base, "
	"pass.fuse-loss: 16}\n"
	"skewed: {from: base, data.packing: padded, pass.fuse-loss: 8}\nlost: {from: base, pass.fuse-loss: 4}\n";

/* Four steps a round: a cold one that takes ten times as long, two timed ones, a metered one. The peak that the second
 * process knew is higher than the first's. */
static void write_log(const char *rung, const double factor[5], int rounds, double loss_factor)
{
	struct fo_str s = { 0 };
	char path[128];
	for (int round = 0; round < rounds; round++) {
		double peak = round ? 2e12 : 1e12;
		fo_str_printf(&s, "{\"event\":\"start\",\"step\":%d,\"peak_dtype\":\"bf16\",\"peak_flop_s\":%g}\n",
			      4 * round, peak);
		for (int k = 1; k <= 4; k++) {
			double seconds = (k == 1   ? 10
					  : k == 4 ? 30
						   : 1) /
					 factor[round],
			       loss = (5 - 0.1 * (4 * round + k)) * loss_factor;
			char text[32];
			snprintf(text, sizeof text, "%.17g", loss);
			fo_str_printf(&s,
				      "{\"event\":\"step\",\"step\":%d,\"loss\":%s,\"seconds\":%.17g,\"tokens\":100,"
				      "\"loss_tokens\":%d,",
				      4 * round + k, isnan(loss) ? "null" : text, seconds,
				      k == 2 && !strcmp(rung, "skewed") ? 20 : 80);
			/* 5e11 FLOP a step by every rule. */
			fo_str_printf(&s, "\"mfu\":%.17g,\"mfu_causal\":%.17g%s}\n", 5e11 / seconds / peak,
				      5e11 / seconds / peak, k == 4 ? ",\"metered\":true" : "");
		}
		fo_str_printf(&s,
			      "{\"event\":\"end\",\"step\":%d,\"how\":\"interrupted\",\"steps\":4,\"timed_steps\":2,"
			      "\"seconds\":2,\"parts\":{\"matmul\":1.5,"
			      "\"attention_forward\":0,\"attention_backward\":0,\"elementwise\":0,\"loss\":0,"
			      "\"optimizer\":0,\"communication\":0,\"data\":0,"
			      "\"unattributed\":0.5},\"planned_bytes\":%d,\"measured_bytes\":900}\n",
			      4 * round + 4, 1000 + round);
	}
	if (rounds == 5)
		fo_str_puts(&s, "{\"event\":\"eval\",\"step\":20,\"loss\":3.5}\n");
	snprintf(path, sizeof path, "%s/%s", dir, rung);
	must(fo_fs_mkdirs(path));
	snprintf(path, sizeof path, "%s/%s/log.jsonl", dir, rung);
	must(fo_fs_write_atomic(path, s.data, s.len));
	fo_str_fini(&s);
}

static const struct fo_ladder_rung *rung(const struct fo_ladder *l, const char *name)
{
	for (int i = 0; i < l->rungs; i++)
		if (!strcmp(l->rung[i].name, name))
			return &l->rung[i];
	fail_msg("no rung '%s'", name);
	return NULL;
}

/* Steps of 20 and of 80 useful tokens by turns hold 50 on average, whatever the median of their rates says. */
static void test_predicted(struct fo_ladder *l)
{
	struct fo_ladder_rung *base = (struct fo_ladder_rung *)rung(l, "base"),
			      *g = (struct fo_ladder_rung *)rung(l, "skewed");
	near(base->step_tokens, 80);
	near(g->step_tokens, 50);
	base->predicted_step_s = 2;
	g->predicted_step_s = 1;
	g->tokens_s.median = 1e9;
	fo_ladder_judge(l);
	near(g->predicted_gain, 1.25);
}

static void test_result(void **state)
{
	(void)state;
	static const double one[] = { 1, 1.1, 0.9, 1, 1.05 }, up[] = { 1.1, 1.21, 0.99, 1.3, 1.155 },
			    down[] = { 0.9, 0.99, 0.8, 0.95, 0.945 }, even[] = { 1.02, 1.09, 0.91, 0.97, 1.05 };
	struct planned p;
	struct fo_ladder l;
	char path[128];
	begin(&p, 40);
	must(parse(&p, mine));
	must(fo_ladder_plan_keep(&p.plan)); /* of which nothing is done: it binds nobody */
	end(&p);
	begin(&p, 20);
	must(parse(&p, mine));
	must(fo_ladder_plan_keep(&p.plan));
	must(fo_ladder_plan_keep(&p.plan)); /* the same goes on */
	write_log("base", one, 5, 1);
	write_log("fast", up, 5, 1.0001);
	write_log("slow", down, 5, 1.3);
	write_log("same", even, 5, 0.999);
	write_log("rough", up, 5, 1.015);
	write_log("other", up, 5, 2);
	write_log("broken", up, 2, 1);
	write_log("late", up, 4, 1);
	write_log("skewed", one, 5, 1);
	write_log("lost", one, 5, NAN);
	snprintf(path, sizeof path, "%s/broken/failed.txt", dir);
	must(fo_fs_write_atomic(path, "no memory\n", 10));
	must(fo_ladder_read(&l, dir));
	assert_int_equal(l.rungs, 10);
	assert_true(l.rounds == 5 && l.steps == 20 && l.threads == 2 && l.seed == 4);
	const struct fo_ladder_rung *b = rung(&l, "base"), *g = rung(&l, "fast");
	assert_int_equal(b->verdict, FO_LADDER_BASELINE);
	assert_int_equal(b->timed_steps, 10);
	near(b->step_s.median, 1);
	near(b->tokens_s.median, 80);
	near(b->padding, 0.2);
	near(b->round_step_s[1], 1 / 1.1);
	near(b->peak_flop_s, 2e12); /* one denominator: the first process's figures are over it, too */
	near(b->mfu[FO_LADDER_MFU].median, 0.25);
	assert_true(isnan(b->mfu[FO_LADDER_HFU].median) && isnan(b->quiet_s) && isnan(b->gain));
	near(b->part_s[FO_PART_MATMUL], 0.75);
	assert_true(b->planned_bytes == 1004 && b->measured_bytes == 900 && b->val_loss == 3.5);
	assert_int_equal(g->verdict, FO_LADDER_GAIN);
	near(g->gain_low, 1.1);
	near(g->gain_high, 1.3);
	near(g->gain, 1.1);
	assert_true(g->gain_level == 0.9375 && g->check == FO_LADDER_HELD);
	assert_true(fabs(g->deviation - 0.0001) < 1e-9);
	assert_int_equal(rung(&l, "slow")->verdict, FO_LADDER_LOSS);
	assert_int_equal(rung(&l, "slow")->check, FO_LADDER_LEFT);
	assert_int_equal(rung(&l, "same")->verdict, FO_LADDER_UNRESOLVED);
	assert_int_equal(rung(&l, "same")->check, FO_LADDER_HELD);
	assert_int_equal(rung(&l, "rough")->verdict, FO_LADDER_NUMERICS_ONLY);
	assert_int_equal(rung(&l, "rough")->check, FO_LADDER_HELD);
	assert_int_equal(rung(&l, "other")->check, FO_LADDER_NEW_DATA);
	assert_int_equal(rung(&l, "broken")->verdict, FO_LADDER_FAILED);
	assert_string_equal(rung(&l, "broken")->reason, "no memory");
	assert_int_equal(rung(&l, "late")->verdict, FO_LADDER_UNMEASURED);
	assert_int_equal(rung(&l, "late")->rounds_done, 4);
	assert_true(isnan(rung(&l, "late")->round_step_s[4]) && isfinite(rung(&l, "late")->round_step_s[3]));
	/* No gain, interval or level before all rounds. */
	assert_true(isnan(rung(&l, "late")->gain) && isnan(rung(&l, "late")->gain_low) &&
		    isnan(rung(&l, "late")->gain_level));
	/* Steps that are done and have no loss are no gap. */
	assert_int_equal(rung(&l, "lost")->check, FO_LADDER_LEFT);
	assert_true(isinf(rung(&l, "lost")->deviation));
	test_predicted(&l);
	struct fo_str s = { 0 };
	fo_ladder_json(&l, &s);
	assert_non_null(strstr(s.data, "\"verdict\": \"not resolved\""));
	fo_str_fini(&s);
	fo_ladder_fini(&l);
	end(&p);
}

/* What a turn's log and run.json say of the machine. */
static void write_machine(const char *name, double load, int processors)
{
	char path[128], text[200];
	snprintf(path, sizeof path, "%s/%s/log.jsonl", dir, name);
	FILE *f = fopen(path, "a");
	assert_non_null(f);
	fprintf(f, "{\"event\":\"machine\",\"step\":20,\"seconds\":9,\"load\":%g}\n", load);
	assert_int_equal(fclose(f), 0);
	snprintf(path, sizeof path, "%s/%s/run.json", dir, name);
	snprintf(text, sizeof text, "{\"schema\":1,\"machine\":{\"threads\":2,\"state\":{\"cpus\":%d}}}", processors);
	must(fo_fs_write_atomic(path, text, strlen(text)));
}

/* Turns that were disturbed one by one make no verdict, whatever side of 1 their ratios are on; a slow round of all is
 * no disturbance of a gain, and an effect far beyond the spread is one on any machine. */
static void test_unsteady(void **state)
{
	(void)state;
	/* The third round is slow for all. */
	static const double one[] = { 1, 1.1, 0.1, 1, 1.05 }, noise[] = { 0.6, 0.1, 0.002, 0.35, 0.02 },
			    lucky[] = { 8, 1.4, 0.2, 30, 1.5 }, both[] = { 0.3, 3, 0.1, 1, 9 },
			    steady[] = { 3, 3.4, 0.29, 3.1, 3 }, slow[] = { 0.5, 0.5, 0.055, 0.45, 0.6 },
			    far[] = { 10, 25, 1.5, 13, 12 };
	static const struct {
		const char *name;
		const double *speed;
		enum fo_ladder_verdict want;
	} row[] = { { "base", one, FO_LADDER_BASELINE },   { "fast", noise, FO_LADDER_UNSTEADY },
		    { "slow", lucky, FO_LADDER_UNSTEADY }, { "same", both, FO_LADDER_UNSTEADY },
		    { "other", steady, FO_LADDER_GAIN },   { "late", slow, FO_LADDER_LOSS },
		    { "lost", far, FO_LADDER_GAIN },       { "rough", noise, FO_LADDER_NUMERICS_ONLY } };
	static const struct {
		double load;
		const char *says;
	} at[] = { { 2.5, "the machine was not quiet, or the turns are too short: the rounds of 3 rungs differ by more "
			  "than 2 times, so their gains are not known (unsteady). Repeat it on a quiet machine, or "
			  "with more steps (--steps)" },
		   { 6.25, "the machine was not quiet (load 6.2 on 2 processors: other programs ran too): the rounds "
			   "of 3 rungs" } };
	struct planned p;
	struct fo_ladder l;
	char own[32] = "test_ladder.XXXXXX", whole[32];
	snprintf(whole, sizeof whole, "%s", dir);
	assert_non_null(mkdtemp(own));
	snprintf(dir, sizeof dir, "%s", own);
	begin(&p, 20);
	must(parse(&p, mine));
	must(fo_ladder_plan_keep(&p.plan));
	end(&p);
	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		write_log(row[i].name, row[i].speed, 5, 1);
	for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
		struct fo_str s = { 0 };
		write_machine("late", at[i].load, 2);
		must(fo_ladder_read(&l, dir));
		for (size_t k = 0; k < sizeof row / sizeof *row; k++)
			if (rung(&l, row[k].name)->verdict != row[k].want)
				fail_msg("%s: %s (%g to %g)", row[k].name,
					 fo_ladder_verdict_name[rung(&l, row[k].name)->verdict],
					 rung(&l, row[k].name)->gain_low, rung(&l, row[k].name)->gain_high);
		assert_true(l.processors == 2 && l.load == at[i].load);
		const char *says = fo_ladder_not_quiet(&l, &l.arena);
		if (strncmp(says, at[i].says, strlen(at[i].says)))
			fail_msg("%s", says);
		fo_ladder_json(&l, &s);
		assert_non_null(strstr(s.data, "\"verdict\": \"not known (unsteady)\""));
		assert_non_null(strstr(s.data, "\"not_quiet\": \"the machine was not quiet"));
		fo_str_fini(&s);
		fo_ladder_fini(&l);
	}
	must(fo_fs_remove_tree(dir));
	snprintf(dir, sizeof dir, "%s", whole);
	/* Steady turns under a load: said, and the verdicts stand. Without either there is nothing to say. */
	must(fo_ladder_read(&l, dir));
	assert_null(fo_ladder_not_quiet(&l, &l.arena));
	l.load = 3.4;
	l.processors = 2;
	assert_string_equal(fo_ladder_not_quiet(&l, &l.arena),
			    "the machine was not quiet (load 3.4 on 2 processors: other programs ran too); intervals "
			    "are narrower on a quiet one");
	fo_ladder_fini(&l);
}

/* Tokens that each rung's steps hold, from text.json; what each says of them. */
static void test_text(void **state)
{
	(void)state;
	static const struct {
		int64_t of[3][3]; /* served, distinct, reached of 1000 */
		const char *failed, *says;
		bool same;
	} row[] = {
		{ { { 200, 200, 1000 }, { 200, 200, 1000 }, { 200, 200, 1000 } },
		  NULL,
		  "each rung saw 20.0 % of the text",
		  true },
		{ { { 150, 150, 1000 }, { 200, 200, 1000 }, { 200, 200, 1000 } },
		  NULL,
		  "a saw 15.0 % of the text; the others saw 20.0 % of the text",
		  false },
		{ { { 280, 20, 20 }, { 400, 400, 1000 }, { 400, 400, 1000 } },
		  NULL,
		  "a saw 2.0 % of the text, 14 times over (its rows cut 98.0 % off); the others saw 40.0 % of the text",
		  false },
		{ { { 999, 999, 1000 }, { 2400, 1000, 1000 }, { 999, 999, 1000 } },
		  NULL,
		  "b saw all of the text, 2.4 times over; the others saw 99.9 % of the text",
		  false },
		/* A share that rounds to all is not called so; one that failed saw nothing. */
		{ { { 1000, 1000, 1000 }, { 1000, 1000, 1000 }, { 1, 1, 1000 } },
		  "c",
		  "each rung saw all of the text",
		  true },
		{ { { 100, 100, 1000 }, { 200, 200, 1000 }, { 300, 300, 1000 } },
		  NULL,
		  "a saw 10.0 % of the text; b saw 20.0 % of the text; c saw 30.0 % of the text",
		  false },
	};
	char path[128];
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct planned p;
		struct fo_ladder l;
		struct fo_ladder_text t = { .tokens = 1000 };
		struct fo_str s = { 0 };
		snprintf(path, sizeof path, "%s-text", dir);
		begin(&p, 20);
		p.plan.dir = path;
		must(parse(&p, "a: {pass.merge-qkv: no}\nb: {pass.merge-qkv: yes}\nc: {pass.fuse-loss: 9}\n"));
		must(fo_ladder_plan_keep(&p.plan));
		for (int k = 0; k < 3; k++) {
			t.rung[k].served = row[i].of[k][0];
			t.rung[k].distinct = row[i].of[k][1];
			t.rung[k].reached = row[i].of[k][2];
		}
		fo_ladder_text_json(&t, &p.plan, &s);
		char *file = fo_arena_printf(&p.plan.arena, "%s/text.json", path);
		must(fo_fs_write_atomic(file, s.data, s.len));
		must(fo_ladder_read(&l, path));
		for (int k = 0; k < 3; k++)
			if (row[i].failed && !strcmp(l.rung[k].name, row[i].failed))
				l.rung[k].reason = "no memory";
		assert_int_equal(l.text_tokens, 1000);
		near(l.rung[0].text_seen, (double)row[i].of[0][1] / 1000);
		near(l.rung[0].text_passes, (double)row[i].of[0][0] / 1000);
		near(l.rung[0].text_reached, (double)row[i].of[0][2] / 1000);
		assert_string_equal(fo_ladder_text_title(&l, &l.arena), row[i].says);
		assert_true(fo_ladder_same_text(&l) == row[i].same);
		fo_ladder_fini(&l);
		/* Of another plan nothing is known, and a plan that was not begun takes its counts with it. */
		must(fo_fs_write_atomic(file, "{\"tokens\": 5, \"steps\": 21, \"rungs\": [1, 2, 3]}", 47));
		must(fo_ladder_read(&l, path));
		assert_true(isnan(l.rung[0].text_seen) && !l.text_tokens && !fo_ladder_text_title(&l, &l.arena));
		fo_ladder_fini(&l);
		must(fo_ladder_plan_keep(&p.plan));
		assert_false(fo_fs_exists(file));
		fo_str_fini(&s);
		must(fo_fs_remove_tree(path));
		end(&p);
	}
}

/* What is not what it was is named. */
static void test_other_configuration(void **state)
{
	(void)state;
	static const struct {
		const char *key, *value, *rungs, *says;
		int64_t steps;
	} row[] = {
		{ "optim.lr", "1e-3", mine, "option optim.lr was \"0.0006\", is", 20 },
		{ NULL, NULL, mine, "steps was 20, is 40 now", 40 },
		{ NULL, NULL, "base: {pass.merge-qkv: no}\nfast: {pass.fuse-loss: 9}\n",
		  "rung 'fast', change 1: key was", 20 },
		{ NULL, NULL, "base:\nfast: {pass.merge-qkv: yes}\n", "rung 'base' changed 1 options, changes 0 now",
		  20 },
		{ NULL, NULL, "base: {pass.merge-qkv: no}\n", "a ladder of 10 rungs, this one has 1", 20 },
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct planned p;
		begin(&p, row[i].steps);
		if (row[i].key)
			fo_opt_set_text(&p.base, row[i].key, row[i].value, FO_ORIGIN_FLAG, "");
		must(parse(&p, row[i].rungs));
		assert_int_equal(fo_ladder_plan_keep(&p.plan), FO_EARG);
		if (!strstr(fo_err_text(), row[i].says))
			fail_msg("does not say '%s': %s", row[i].says, fo_err_text());
		end(&p);
	}
	struct fo_ladder l;
	assert_int_equal(fo_ladder_read(&l, "nowhere"), FO_EIO);
}

/* A plan that somebody else wrote: its names are folders, and are shown on a terminal. */
static void test_foreign_plan(void **state)
{
	(void)state;
	static const char *const name[] = { "fine", "\\u001b[2J", "a b", "..", "a/b", "lock", "plan.json", "data", "" };
	for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
		struct fo_ladder l = { .dir = "x" };
		char text[300];
		snprintf(text, sizeof text,
			 "{\"schema\":1,\"threads\":1,\"steps\":20,\"rounds\":5,\"seed\":1,\"rungs\":[{\"name\":\"%s\","
			 "\"from\":-1,"
			 "\"reference\":0}]}",
			 name[i]);
		assert_int_equal(fo_ladder_plan_parse(&l, text, strlen(text), "p"), i ? FO_EFORMAT : FO_OK);
		fo_ladder_fini(&l);
	}
}

static int set_up(void **state)
{
	(void)state;
	return !mkdtemp(dir);
}

static int tear_down(void **state)
{
	(void)state;
	return fo_fs_remove_tree(dir) != FO_OK;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_interval),
		cmocka_unit_test(test_coverage),
		cmocka_unit_test(test_deviation),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_built_in),
		cmocka_unit_test(test_tp_rungs),
		cmocka_unit_test(test_own_rungs),
		cmocka_unit_test(test_mistakes),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_held_out),
		cmocka_unit_test(test_foreign_plan),
		cmocka_unit_test(test_result),
		cmocka_unit_test(test_unsteady),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_other_configuration),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
