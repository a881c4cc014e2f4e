/* A step's time: identities, closed cases, and the sign and order of published gains. */
#include "support/job.h"
#include "support/must.h"
#include "support/random.h"

#include <math.h>
#include <string.h>

static void step(struct job_rig *g, struct fo_job_step *s)
{
	fo_job_step_of(&g->job, &g->cluster, s);
	if (s->unknown)
		fail_msg("unknown: %s", s->unknown);
}
static struct fo_range gain(struct job_rig *g, const struct fo_job_change *c, int n)
{
	struct fo_job_gain out;
	fo_job_what_if(&g->job, &g->cluster, c, n, &out);
	if (out.unknown)
		fail_msg("unknown: %s", out.unknown);
	return out.times;
}
static struct fo_range gain_of(struct job_rig *g, enum fo_job_setting s, double number)
{
	return gain(g, &(struct fo_job_change){ s, number }, 1);
}
static double middle(struct fo_range r) { return fo_range_middle(r); }
static bool zero(struct fo_range r) { return r.low == 0 && r.high == 0; }

/* A change of nothing is worth exactly nothing, whatever is not known of the machine. */
static void test_nothing(void **state)
{
	(void)state;
	struct job_rig g;
	job_rig_init(&g, "megatron", "64xH100");
	job_set(&g, FO_JOB_ZERO, 1);
	job_set(&g, FO_JOB_TP, 4);
	job_set(&g, FO_JOB_PP, 2);
	struct fo_range none = gain(&g, NULL, 0), same = gain_of(&g, FO_JOB_TP, 4);
	assert_true(none.low == 1 && none.high == 1);
	assert_true(same.low == 1 && same.high == 1);
	assert_true(g.job.value[FO_JOB_TP].number == 4);
	job_rig_fini(&g);
}

/* Adapters: no products for gradients of frozen weights, so that matmuls take two thirds. */
static void test_adapters(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_step all, lora;
	job_rig_init(&g, "transformers", "1xH100");
	job_set(&g, FO_JOB_ZERO, 0);
	step(&g, &all);
	job_set(&g, FO_JOB_ADAPTERS, 1);
	job_set(&g, FO_JOB_ADAPTER_RANK, 16);
	step(&g, &lora);
	double share = lora.part[FO_PREDICT_MATMUL].low / all.part[FO_PREDICT_MATMUL].low;
	assert_true(share > 0.64 && share < 0.69);
	assert_true(lora.part[FO_PREDICT_OPTIMIZER].high < 0.1 * all.part[FO_PREDICT_OPTIMIZER].high);
	job_rig_fini(&g);
}

/* One device: nothing is sent. Then every kind of division brings its own communication and no other. */
static void test_no_communication(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_step s;
	job_rig_init(&g, "megatron", "1xH100");
	job_set(&g, FO_JOB_ZERO, 0);
	step(&g, &s);
	for (int i = FO_PREDICT_TENSOR; i <= FO_PREDICT_DATA; i++)
		assert_true(zero(s.part[i]));
	assert_true(s.total.low > 0 && s.total.low < s.total.high);
	job_rig_fini(&g);
	job_rig_init(&g, "megatron", "8xH100");
	static const struct {
		enum fo_job_setting s;
		enum fo_predict_part t;
	} row[] = { { FO_JOB_TP, FO_PREDICT_TENSOR },
		    { FO_JOB_CP, FO_PREDICT_CONTEXT },
		    { FO_JOB_PP, FO_PREDICT_BUBBLE } };
	job_set(&g, FO_JOB_ZERO, 0);
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		job_set(&g, row[i].s, 8);
		step(&g, &s);
		for (size_t k = 0; k < sizeof row / sizeof *row; k++)
			assert_true((s.part[row[k].t].high > 0) == (k == i));
		assert_true((s.part[FO_PREDICT_DATA].high > 0) == (row[i].s == FO_JOB_CP)); /* CP ranks share weights */
		job_set(&g, row[i].s, 1);
	}
	step(&g, &s);
	assert_true(s.part[FO_PREDICT_DATA].low > 0);
	job_rig_fini(&g);
}

/* Seconds that a pipeline idles over those that it works. */
static double idle_of(struct job_rig *g, double schedule, double chunks, double m)
{
	struct fo_job_step s;
	job_set(g, FO_JOB_PP_SCHEDULE, schedule);
	job_set(g, FO_JOB_PP_VIRTUAL, chunks);
	job_set(g, FO_JOB_ACCUMULATION, m);
	step(g, &s);
	double busy = 0;
	for (int t = 0; t < FO_PREDICT_PARTS; t++)
		if (t != FO_PREDICT_BUBBLE && t != FO_PREDICT_OPTIMIZER && t != FO_PREDICT_REST)
			busy += middle(s.part[t]);
	return middle(s.part[FO_PREDICT_BUBBLE]) / busy;
}

/* Without a head (p - 1) / m of the stages' time is idle, a v-th of that with v chunks. Without bubbles of weight
 * gradients it is forward + backward of inputs - of weights: a third where these are alike, more where not. */
static void test_bubble(void **state)
{
	(void)state;
	struct job_rig g;
	job_rig_init(&g, "megatron", "8xH100");
	g.job.model.vocab = 128;
	job_set(&g, FO_JOB_ZERO, 0);
	job_set(&g, FO_JOB_PP, 8);
	job_set(&g, FO_JOB_PP_OVERLAP, 1);
	static const struct {
		double schedule, chunks, m, idle;
	} row[] = { { FO_JOB_SCHEDULE_1F1B, 1, 8, 7 / 8. },
		    { FO_JOB_SCHEDULE_1F1B, 1, 64, 7 / 64. },
		    { FO_JOB_SCHEDULE_INTERLEAVED, 4, 8, 7 / 32. } };
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		double idle = idle_of(&g, row[i].schedule, row[i].chunks, row[i].m);
		if (fabs(idle - row[i].idle) > 0.12 * row[i].idle + 0.02)
			fail_msg("row %zu: %g of the time is idle, expected %g", i, idle, row[i].idle);
	}
	double zero_bubble = idle_of(&g, FO_JOB_SCHEDULE_ZERO_BUBBLE, 1, 8);
	assert_true(zero_bubble > 7 / 24. && zero_bubble < 0.6 * 7 / 8);
	job_rig_fini(&g);
}

/* Stages as Megatron-LM's flags divide them. */
static void test_uneven(void **state)
{
	(void)state;
	static const struct {
		const char *layout;
		double pp, first, last, embedding, loss;
		double got[3], chunks; /* first, middle, last; 0: wrong */
	} row[] = {
		{ NULL, 4, NAN, NAN, NAN, NAN, { 0, 0, 0 }, 1 },
		{ NULL, 4, 6, 6, NAN, NAN, { 6, 10, 6 }, 1 },
		{ NULL, 4, 5, NAN, NAN, NAN, { 5, 9, 9 }, 1 },
		{ NULL, 4, 6, 7, NAN, NAN, { 0, 0, 0 }, 0 },
		{ NULL, 2, 20, NAN, NAN, NAN, { 20, 12, 12 }, 1 },
		{ NULL, 4, -4, NAN, NAN, NAN, { 0, 0, 0 }, 0 },
		{ NULL, 4, 0.5, 1.5, NAN, NAN, { 0, 0, 0 }, 0 },
		{ NULL, 3, NAN, NAN, NAN, 1, { 11, 11, 10 }, 1 },
		{ NULL, 4, NAN, NAN, 1, 1, { 0, 0, 0 }, 0 },
		{ "Et*7|t*9|(t*3)*3|t*7,L", 4, NAN, NAN, NAN, NAN, { 7, 9, 7 }, 1 },
		{ "Et*3|(tt|)*14t,L", 4, NAN, NAN, NAN, NAN, { 9, 8, 7 }, 4 },
		{ "Et*3|(tt|)*14t,L", 5, NAN, NAN, NAN, NAN, { 0, 0, 0 }, 0 },
		{ "t*9999999|", 2, NAN, NAN, NAN, NAN, { 0, 0, 0 }, 0 },
		{ "(E*9999m*9999)*9999", 2, NAN, NAN, NAN, NAN, { 0, 0, 0 }, 0 },
		{ "(((", 2, NAN, NAN, NAN, NAN, { 0, 0, 0 }, 0 },
		{ "t*32|x", 2, NAN, NAN, NAN, NAN, { 0, 0, 0 }, 0 },
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct job_rig g;
		struct fo_job_shape s;
		job_rig_init(&g, "megatron", "64xH100");
		job_set(&g, FO_JOB_ZERO, 1);
		job_set(&g, FO_JOB_PP, row[i].pp);
		job_set(&g, FO_JOB_PP_FIRST_LAYERS, row[i].first);
		job_set(&g, FO_JOB_PP_LAST_LAYERS, row[i].last);
		job_set(&g, FO_JOB_PP_EMBEDDING_COUNTS, row[i].embedding);
		job_set(&g, FO_JOB_PP_LOSS_COUNTS, row[i].loss);
		g.job.value[FO_JOB_PP_LAYOUT].text = row[i].layout;
		g.cluster.devices = g.cluster.per_node = 12 * row[i].pp;
		fo_job_shape_of(&g.job, &g.cluster, &s);
		if (!row[i].chunks != !!s.wrong)
			fail_msg("row %zu: %s", i, s.wrong ? s.wrong : "nothing is wrong with it");
		if (row[i].chunks && (s.first_layers != row[i].got[0] || s.middle_layers != row[i].got[1] ||
				      s.last_layers != row[i].got[2] || s.chunks != row[i].chunks))
			fail_msg("row %zu: stages of %g, %g, %g layers in %g chunks", i, s.first_layers,
				 s.middle_layers, s.last_layers, s.chunks);
		job_rig_fini(&g);
	}
}

static void unknown(struct job_rig *g, const char *words)
{
	struct fo_job_step s;
	struct fo_job_gain w;
	fo_job_step_of(&g->job, &g->cluster, &s);
	assert_non_null(s.unknown);
	if (!strstr(s.unknown, words))
		fail_msg("'%s' lacks '%s'", s.unknown, words);
	assert_true(isnan(s.total.low) && isnan(s.total.high) && isnan(s.tokens_s.low) && isnan(s.mfu.high));
	for (int i = 0; i < FO_PREDICT_PARTS; i++)
		assert_true(isnan(s.part[i].low));
	fo_job_what_if(&g->job, &g->cluster, &(struct fo_job_change){ FO_JOB_COMPILE, 0 }, 1, &w);
	assert_true(isnan(w.times.low) && isnan(w.times.high));
	assert_non_null(w.unknown);
}

static void test_unknown(void **state)
{
	(void)state;
	struct job_rig g;
	job_rig_init(&g, "torchtitan", "2x8xH100");
	g.job.has_model = false;
	unknown(&g, "the model");
	g.job.has_model = true;
	g.job.value[FO_JOB_SEQ].number = NAN;
	unknown(&g, "seq");
	job_set(&g, FO_JOB_SEQ, 8192);
	job_set(&g, FO_JOB_TP, 3);
	unknown(&g, "not divisible");
	job_set(&g, FO_JOB_TP, 1);
	g.cluster.net_gb_s = fo_range(NAN);
	unknown(&g, "network");
	const struct fo_device *d = g.cluster.device;
	g.cluster.device = NULL;
	unknown(&g, "the device");
	struct fo_device bare = *d;
	bare.memory_tb_s = NAN;
	g.cluster.device = &bare;
	unknown(&g, bare.name);
	job_rig_fini(&g);
	job_rig_init(&g, "torchtitan", "8xA100"); /* no fp8 there */
	job_set(&g, FO_JOB_FP8, FO_JOB_FP8_TENSORWISE);
	unknown(&g, "number type");
	job_rig_fini(&g);
}

/* Slower links never help, and more micro-batches take longer but not in proportion where there is a bubble. */
static void test_monotony(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_step fast, slow, more;
	job_rig_init(&g, "megatron", "64xH100");
	job_set(&g, FO_JOB_ZERO, 1);
	job_set(&g, FO_JOB_TP, 4);
	job_set(&g, FO_JOB_PP, 4);
	job_set(&g, FO_JOB_ACCUMULATION, 8);
	g.cluster.net_assumed = false;
	step(&g, &fast);
	g.cluster.net_gb_s = fo_range_scaled(0.1, g.cluster.net_gb_s);
	step(&g, &slow);
	assert_true(slow.total.low > fast.total.low && slow.total.high > fast.total.high);
	g.cluster.node_gb_s = fo_range_scaled(0.1, g.cluster.node_gb_s);
	step(&g, &fast);
	assert_true(fast.total.low > slow.total.low);
	job_set(&g, FO_JOB_ACCUMULATION, 16);
	step(&g, &more);
	assert_true(more.total.low > fast.total.low && more.tokens_s.high > fast.tokens_s.high);
	/* Tensor parallelism over the network costs more than within a node. */
	job_set(&g, FO_JOB_PP, 1);
	job_set(&g, FO_JOB_TP, 8);
	step(&g, &fast);
	job_set(&g, FO_JOB_TP, 16);
	step(&g, &slow);
	assert_true(slow.part[FO_PREDICT_TENSOR].low > 1.1 * fast.part[FO_PREDICT_TENSOR].low);
	assert_true(slow.part[FO_PREDICT_TENSOR].high > 1.1 * fast.part[FO_PREDICT_TENSOR].high);
	job_rig_fini(&g);
}

/* torchtitan's 8B on 8 H100 (benchmarks, December 2024): compiling gives 1.157, float8 1.280 on top; torchao has
 * rowwise scales at 1.10. Full recomputation costs a quarter to a third; clipping next to nothing. */
static void test_order_of_gains(void **state)
{
	(void)state;
	struct job_rig g;
	job_rig_init(&g, "torchtitan", "8xH100");
	job_set(&g, FO_JOB_MICRO_BATCH, 2);
	job_set(&g, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_SELECTIVE);
	g.job.value[FO_JOB_RECOMPUTE_OPTION].text = "op";
	job_set(&g, FO_JOB_COMPILE, 0);
	struct fo_range compile = gain_of(&g, FO_JOB_COMPILE, 1);
	assert_true(compile.low > 1 && compile.low < 1.157 && compile.high > 1.157 && compile.high < 1.3);
	job_set(&g, FO_JOB_COMPILE, 1);
	const struct fo_job_change tensorwise[] = { { FO_JOB_FP8, FO_JOB_FP8_TENSORWISE }, { FO_JOB_FP8_GATHER, 1 } };
	struct fo_range fp8 = gain(&g, tensorwise, 2), rowwise = gain_of(&g, FO_JOB_FP8, FO_JOB_FP8_ROWWISE);
	assert_true(fp8.low > 1 && fp8.low < 1.28 && fp8.high > 1.25);
	assert_true(middle(rowwise) < middle(fp8) && rowwise.low < 1.10 && rowwise.high > 1.05);
	struct fo_range full = gain_of(&g, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL),
			none = gain_of(&g, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_NONE);
	assert_true(full.high < 1 && none.low > 1);
	assert_true(middle(none) / middle(full) > 1.2 && middle(none) / middle(full) < 1.4);
	struct fo_range clip = gain_of(&g, FO_JOB_CLIP, 0);
	assert_true(clip.low >= 1 && clip.high < 1.03);
	struct fo_range eager = gain_of(&g, FO_JOB_ATTENTION, FO_JOB_ATTENTION_EAGER);
	assert_true(eager.high < 0.9);
	job_rig_fini(&g);
}

/* What hides is worth something only where there is something to hide. */
static void test_overlap(void **state)
{
	(void)state;
	struct job_rig g;
	job_rig_init(&g, "megatron", "64xH100");
	job_set(&g, FO_JOB_ZERO, 1);
	job_set(&g, FO_JOB_GRAD_OVERLAP, 0);
	job_set(&g, FO_JOB_PARAM_OVERLAP, 0);
	struct fo_range reduce = gain_of(&g, FO_JOB_GRAD_OVERLAP, 1), tp = gain_of(&g, FO_JOB_TP_OVERLAP, 1);
	assert_true(reduce.low > 1 && reduce.high < 1.5);
	assert_true(tp.low == 1 && tp.high == 1);
	job_set(&g, FO_JOB_TP, 8);
	tp = gain_of(&g, FO_JOB_TP_OVERLAP, 1); /* torchtitan's tables have 4 to 16 % */
	assert_true(middle(tp) > 1.04 && middle(tp) < 1.16);
	/* Less tensor parallelism is faster where its communication costs more than what it saves. */
	job_set(&g, FO_JOB_MICRO_BATCH, 1);
	job_set(&g, FO_JOB_GLOBAL_BATCH, 256);
	g.job.value[FO_JOB_ACCUMULATION].number = NAN;
	struct fo_range less = gain_of(&g, FO_JOB_TP, 2);
	assert_true(less.low > 1);
	/* Nobody says whether gradients are reduced beside backward: at most as good as yes, at most as bad as no. */
	struct fo_job_step no, yes, either;
	step(&g, &no);
	job_set(&g, FO_JOB_GRAD_OVERLAP, 1);
	step(&g, &yes);
	g.job.value[FO_JOB_GRAD_OVERLAP].number = NAN;
	step(&g, &either);
	assert_true(either.total.low >= yes.total.low && either.total.high <= no.total.high);
	job_rig_fini(&g);
}

static void test_properties(void **state)
{
	(void)state;
	static const char *const form[] = { "torchtitan", "megatron", "deepspeed", "hf", "other" };
	fo_random_state = 23;
	for (int n = 0; n < 300; n++) {
		struct job_rig g;
		struct fo_job_step s;
		job_rig_init(&g, form[n % 5], chance(0.5) ? "64xH100" : "8x8xMI300X");
		job_set(&g, FO_JOB_TP, exp2(below(4)));
		job_set(&g, FO_JOB_PP, exp2(below(3)));
		job_set(&g, FO_JOB_CP, exp2(below(2)));
		job_set(&g, FO_JOB_PP_VIRTUAL, 1 + below(2));
		job_set(&g, FO_JOB_PP_SCHEDULE, below(4));
		job_set(&g, FO_JOB_ZERO, below(4));
		job_set(&g, FO_JOB_RECOMPUTE, below(3)); /* steps that offload are not predicted */
		job_set(&g, FO_JOB_ACCUMULATION, 1 + below(32));
		job_set(&g, FO_JOB_COMPILE, below(2));
		job_set(&g, FO_JOB_FP8, below(6));
		step(&g, &s);
		double sum = 0;
		for (int i = 0; i < FO_PREDICT_PARTS; i++) {
			assert_true(s.part[i].low >= 0 && s.part[i].low <= s.part[i].high);
			sum += s.part[i].high;
		}
		assert_true(s.total.low > 0 && s.total.low < s.total.high && s.total.high <= sum * (1 + 1e-9));
		assert_true(s.mfu.low > 0 && s.mfu_causal.high < s.mfu.high && s.mfu_causal.high < 1);
		job_rig_fini(&g);
	}
}

/* Whatever stands in a configuration, there is a reason why nothing is said, or an interval of finite figures. */
static void test_nonsense(void **state)
{
	(void)state;
	static const char *const form[] = { "torchtitan", "megatron", "deepspeed", "hf", "other" };
	static const double value[] = { -1, 0, 0.5, 1, 1, 2, 2, 3, 8, 64, 1e6, 1e18, NAN, INFINITY, -INFINITY };
	fo_random_state = 29;
	int said = 0;
	for (int n = 0; n < 3000; n++) {
		struct job_rig g;
		struct fo_job_step s;
		struct fo_job_memory m;
		job_rig_init(&g, form[n % 5], "8xH100");
		for (int times = 1 + below(4); times > 0; times--) {
			enum fo_job_setting which = (enum fo_job_setting)below(FO_JOB_SETTINGS);
			job_set(&g, which, value[below(sizeof value / sizeof *value)]);
		}
		fo_job_step_of(&g.job, &g.cluster, &s);
		fo_job_memory_of(&g.job, &g.cluster, &m);
		said += !s.unknown;
		if (!s.unknown && !(s.total.low > 0 && s.total.low <= s.total.high && isfinite(s.total.high)))
			fail_msg("job %d: %g to %g s", n, s.total.low, s.total.high);
		if (!m.unknown && !(m.total.low > 0 && m.total.low <= m.total.high && isfinite(m.total.high)))
			fail_msg("job %d: %g to %g bytes", n, m.total.low, m.total.high);
		job_rig_fini(&g);
	}
	assert_true(said > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing),  cmocka_unit_test(test_no_communication),
		cmocka_unit_test(test_adapters), cmocka_unit_test(test_bubble),
		cmocka_unit_test(test_uneven),   cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_monotony), cmocka_unit_test(test_order_of_gains),
		cmocka_unit_test(test_overlap),  cmocka_unit_test(test_properties),
		cmocka_unit_test(test_nonsense),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
