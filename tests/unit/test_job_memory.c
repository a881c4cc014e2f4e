/* Memory of one device against figures computed by hand from the formulas of docs/memory-arithmetic.md. */
#include "support/job.h"
#include "support/must.h"
#include "support/random.h"

#include <math.h>
#include <string.h>

#define GIB ((double)(1 << 30))

static void memory(struct job_rig *g, struct fo_job_memory *m) { fo_job_memory_of(&g->job, &g->cluster, m); }

static void within(const char *what, double got, double want, double share)
{
	if (!(fabs(got - want) <= share * fabs(want)))
		fail_msg("%s: got %.8g, expected %.8g", what, got, want);
}
static void part(const struct fo_job_memory *m, enum fo_predict_memory p, double want)
{
	within(fo_predict_memory_name[p], m->part[p].low, want, 1e-12);
	within(fo_predict_memory_name[p], m->part[p].high, want, 1e-12);
}
static double states(const struct fo_job_memory *m)
{
	return m->part[FO_PREDICT_WEIGHTS].high + m->part[FO_PREDICT_GRADIENTS].high + m->part[FO_PREDICT_STATES].high;
}

/* Weights of Llama-3.1-8B, counted by hand: 32 layers of 4096 x (4096 + 2 x 1024 + 4096 + 3 x 14336) + 2 x 4096, two
 * tables of 128,256 x 4096, a last norm. */
#define P8 8030261248.

/* FSDP: fp32 weights that are their own masters, fp32 gradients, two fp32 moments: 16 bytes over 8 ranks, 16.06 GB. */
static void test_fsdp(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_memory m;
	job_rig_init(&g, "torchtitan", "8xH100");
	memory(&g, &m);
	assert_null(m.unknown);
	part(&m, FO_PREDICT_WEIGHTS, 4 * P8 / 8);
	part(&m, FO_PREDICT_GRADIENTS, 4 * P8 / 8);
	part(&m, FO_PREDICT_STATES, 8 * P8 / 8);
	within("states", states(&m), 16.06e9, 1e-3);
	job_set(&g, FO_JOB_DP_REPLICATE, 2); /* HSDP: four ranks share one replica */
	memory(&g, &m);
	part(&m, FO_PREDICT_STATES, 8 * P8 / 4);
	job_set(&g, FO_JOB_PARAM_DTYPE, FO_JOB_BF16);
	job_set(&g, FO_JOB_MOMENTS, FO_JOB_BF16);
	memory(&g, &m);
	part(&m, FO_PREDICT_WEIGHTS, 2 * P8 / 4);
	part(&m, FO_PREDICT_GRADIENTS, 2 * P8 / 4);
	part(&m, FO_PREDICT_STATES, 4 * P8 / 4);
	job_rig_fini(&g);
}

/* Megatron's: bf16 weights and fp32 sums of gradients whole, 12 bytes of masters and moments over data-parallel ranks:
 * 18 bytes without its distributed optimizer, 6 + 12 / 8 with it. */
static void test_megatron(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_memory m;
	job_rig_init(&g, "megatron", "8xH200");
	job_set(&g, FO_JOB_ZERO, 0);
	memory(&g, &m);
	within("18 bytes", states(&m), 18 * P8, 1e-12);
	assert_int_equal(m.fit, FO_JOB_FITS_NOT);
	job_set(&g, FO_JOB_ZERO, 1);
	memory(&g, &m);
	within("7.5 bytes", states(&m), 7.5 * P8, 1e-12);
	job_set(&g, FO_JOB_GRAD_ACCUMULATE, FO_JOB_BF16);
	memory(&g, &m);
	within("5.5 bytes", states(&m), 5.5 * P8, 1e-12);
	job_rig_fini(&g);
}

/* ZeRO by stage, fp16 Adam on 16 ranks: 2 + 2 + 12/16, 2 + 14/16, 16/16 bytes, where DeepSpeed's paper (Rajbhandari
 * et al. 2020) has K = 12; the flat fp32 gradients of its fp16 optimizers come on top (0 for bf16). */
static void test_zero(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_memory m;
	job_rig_init(&g, "deepspeed", "16xA100");
	job_set(&g, FO_JOB_GRAD_ACCUMULATE, FO_JOB_BF16);
	static const double bytes[] = { 16, 4 + 12. / 16, 2 + 14. / 16, 1 };
	for (int stage = 0; stage < 4; stage++) {
		job_set(&g, FO_JOB_ZERO, stage);
		memory(&g, &m);
		within("bytes of a weight", states(&m) / P8, bytes[stage], 1e-12);
	}
	job_set(&g, FO_JOB_ZERO, 2);
	job_set(&g, FO_JOB_OFFLOAD_OPTIMIZER, 1);
	memory(&g, &m);
	part(&m, FO_PREDICT_STATES, 0);
	within("host", m.host.low, 12 * P8 / 16, 1e-12);
	job_rig_fini(&g);
}

/* Adam in 8 bits: one byte of each moment and a scale for 256 of them. */
static void test_8bit(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_memory m;
	job_rig_init(&g, "hf", "8xH100");
	g.job.value[FO_JOB_OPTIMIZER].text = "adamw_bnb_8bit";
	memory(&g, &m);
	part(&m, FO_PREDICT_STATES, 2 * (1 + 4 / 256.) * P8 / 8);
	job_rig_fini(&g);
}

/* QLoRA of rank 16: matrices of layers in 4.125 to 4.5 bits, embedding and head (2 x 128,256 x 4096) in 2 to 4 bytes.
 * Adapters: at least on queries and values, 16 x (2 x 4096 + 4096 + 1024) x 32 weights; at most on all seven matrices,
 * 16 x (2 x 8192 + 2 x 5120 + 3 x 18432) x 32; 2 to 4 bytes each, and as much for their gradients. */
static void test_adapters(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_memory whole, m;
	job_rig_init(&g, "transformers", "1xH100");
	job_set(&g, FO_JOB_ZERO, 0);
	job_set(&g, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL);
	memory(&g, &whole);
	job_set(&g, FO_JOB_ADAPTERS, 1);
	job_set(&g, FO_JOB_ADAPTER_RANK, 16);
	job_set(&g, FO_JOB_BASE_BITS, 4);
	memory(&g, &m);
	double ends = 2 * 128256. * 4096, least = 16 * 13312. * 32, most = 16 * (16384. + 10240 + 55296) * 32;
	struct fo_range weights = m.part[FO_PREDICT_WEIGHTS], states = m.part[FO_PREDICT_STATES];
	within("weights, low", weights.low, (P8 - ends) * 4.125 / 8 + 2 * ends + 2 * least, 1e-12);
	within("weights, high", weights.high, (P8 - ends) * 4.5 / 8 + 4 * ends + 4 * most, 1e-12);
	within("gradients", m.part[FO_PREDICT_GRADIENTS].high, 4 * most, 1e-12);
	within("moments", states.low, 8 * least, 1e-12);
	within("moments and masters", states.high, 12 * most, 1e-12);
	assert_int_equal(whole.fit, FO_JOB_FITS_NOT);
	assert_int_equal(m.fit, FO_JOB_FITS);
	job_set(&g, FO_JOB_BASE_BITS, 16);
	memory(&g, &m);
	assert_true(m.part[FO_PREDICT_WEIGHTS].low >= 2 * P8 && m.part[FO_PREDICT_WEIGHTS].high < 2.1 * P8);
	job_rig_fini(&g);
}

/* What a launcher shards is not known: from all of it to nothing, and never "does not fit". */
static void test_launcher(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_memory none, all, m;
	job_rig_init(&g, "transformers", "8xH100");
	job_set(&g, FO_JOB_ZERO, 0);
	memory(&g, &none);
	job_set(&g, FO_JOB_ZERO, 3);
	memory(&g, &all);
	job_set(&g, FO_JOB_ZERO, NAN);
	memory(&g, &m);
	assert_non_null(strstr(m.unknown, "how states are sharded"));
	assert_int_equal(none.fit, FO_JOB_FITS_NOT);
	assert_int_equal(m.fit, FO_JOB_FIT_UNKNOWN);
	within("sharded", m.total.low, all.total.low, 1e-12);
	within("not sharded", m.total.high, none.total.high, 1e-12);
	job_rig_fini(&g);
}

/* Rows that end where the longest text of a micro-batch ends: the sequence bounds them. */
static void test_rows(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_memory full, m;
	job_rig_init(&g, "transformers", "8xH100");
	job_set(&g, FO_JOB_MICRO_BATCH, 64);
	memory(&g, &full);
	job_set(&g, FO_JOB_ROWS_VARY, 1);
	memory(&g, &m);
	assert_int_equal(full.fit, FO_JOB_FITS_NOT);
	assert_int_equal(m.fit, FO_JOB_FIT_UNCERTAIN);
	within("high", m.total.high, full.total.high, 1e-12);
	job_rig_fini(&g);
}

/* A layer without recomputation, flash attention: 12 h + 4 kv + 6 F bytes of a token, in elements of h, of keys and of
 * the feed-forward, and 4 bytes for a head's row sums. */
static double layer_bytes(void) { return 12 * 4096. + 4 * 1024 + 6 * 14336 + 4 * 32; }

static void test_activations(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_memory one, two;
	job_rig_init(&g, "megatron", "8xH200");
	job_set(&g, FO_JOB_ZERO, 1);
	g.job.model.vocab = 128; /* no logits to speak of */
	memory(&g, &one);
	job_set(&g, FO_JOB_MICRO_BATCH, 2);
	memory(&g, &two);
	/* The working space of a layer, in bytes of a token: gradients of two rows of h and of two of the three
	 * matrices. */
	double layer = 4 * 4096. + 4 * 14336, all = 8192 * (32 * layer_bytes() + layer);
	struct fo_range kept = one.part[FO_PREDICT_ACTIVATIONS];
	double logits = 8192 * 128 * 2; /* bf16, in the same place as the working space */
	within("low", kept.low, 0.97 * (all - logits), 1e-6);
	within("high", kept.high, 1.06 * (all - logits), 1e-6);
	within("twice", two.part[FO_PREDICT_ACTIVATIONS].low, 2 * kept.low, 1e-9);
	job_rig_fini(&g);
}

/* All of a layer again: 2 h bytes of a token stay. */
static void test_full_recompute(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_memory none, full;
	job_rig_init(&g, "megatron", "8xH200");
	job_set(&g, FO_JOB_ZERO, 1);
	memory(&g, &none);
	job_set(&g, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL);
	memory(&g, &full);
	double saved = none.part[FO_PREDICT_ACTIVATIONS].low - full.part[FO_PREDICT_ACTIVATIONS].low;
	/* One layer is there whole while its backward runs, so 31 save all but their input. */
	double least = 0.97 * 8192 * (31 * (layer_bytes() - 2 * 4096.) - 2 * 4096.);
	assert_true(saved >= least * 0.99 && saved <= 0.97 * 8192 * 32 * layer_bytes());
	/* Blocks: of 32 layers 8 recompute. */
	g.job.value[FO_JOB_RECOMPUTE_OPTION].text = "block";
	job_set(&g, FO_JOB_RECOMPUTE_LAYERS, 8);
	struct fo_job_memory some;
	memory(&g, &some);
	assert_true(some.part[FO_PREDICT_ACTIVATIONS].low > full.part[FO_PREDICT_ACTIVATIONS].low);
	assert_true(some.part[FO_PREDICT_ACTIVATIONS].low <
		    none.part[FO_PREDICT_ACTIVATIONS].low + 8192 * layer_bytes());
	job_rig_fini(&g);
}

/* Stage 0 of a 1F1B pipeline holds as many micro-batches as there are stages; interleaved 1 + (p - 1) / (p v) times
 * that; GPipe all. */
static void test_pipelines(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_memory m;
	job_rig_init(&g, "megatron", "8xH200");
	job_set(&g, FO_JOB_ZERO, 1);
	g.job.model.vocab = 128;
	job_set(&g, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL);
	job_set(&g, FO_JOB_PP, 4);
	job_set(&g, FO_JOB_ACCUMULATION, 16);
	const struct {
		double schedule, chunks, stages_in_flight;
	} row[] = { { FO_JOB_SCHEDULE_1F1B, 1, 4 },
		    { FO_JOB_SCHEDULE_INTERLEAVED, 2, 4 * (1 + 3 / 8.) },
		    { FO_JOB_SCHEDULE_INTERLEAVED, 4, 4 * (1 + 3 / 16.) },
		    { FO_JOB_SCHEDULE_GPIPE, 1, 16 },
		    { FO_JOB_SCHEDULE_ZERO_BUBBLE, 1, 4 } };
	double first = 0;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		job_set(&g, FO_JOB_PP_SCHEDULE, row[i].schedule);
		job_set(&g, FO_JOB_PP_VIRTUAL, row[i].chunks);
		memory(&g, &m);
		double inputs = 0.97 * 8192 * 8 * 2 * 4096., kept = m.part[FO_PREDICT_ACTIVATIONS].low;
		if (i == 0)
			first = kept - 4 * inputs; /* the working space of one layer */
		within("in flight", (kept - first) / inputs, row[i].stages_in_flight, 1e-3);
	}
	job_set(&g, FO_JOB_ACCUMULATION, 2); /* fewer micro-batches than stages */
	job_set(&g, FO_JOB_PP_VIRTUAL, 1);
	job_set(&g, FO_JOB_PP_SCHEDULE, FO_JOB_SCHEDULE_1F1B);
	memory(&g, &m);
	within("two", (m.part[FO_PREDICT_ACTIVATIONS].low - first) / (0.97 * 8192 * 8 * 2 * 4096.), 2, 1e-3);
	job_rig_fini(&g);
}

/* Sequence and context parallelism divide what tokens need, tensor parallelism the matrices; norms stay whole. */
static void test_divisions(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_memory m;
	job_rig_init(&g, "megatron", "8xH200");
	job_set(&g, FO_JOB_ZERO, 0);
	job_set(&g, FO_JOB_TP, 8);
	job_set(&g, FO_JOB_SEQUENCE_PARALLEL, 0);
	memory(&g, &m);
	double norms = 65 * 4096.;
	within("weights", m.part[FO_PREDICT_WEIGHTS].low, 2 * ((P8 - norms) / 8 + norms), 1e-6);
	double without = m.part[FO_PREDICT_ACTIVATIONS].low;
	job_set(&g, FO_JOB_SEQUENCE_PARALLEL, 1);
	memory(&g, &m);
	/* Norms of 32 layers are 8 h bytes of a token, of which 7 of 8 go. */
	assert_true(without - m.part[FO_PREDICT_ACTIVATIONS].low >= 0.999 * 0.97 * 8192 * 32 * 8 * 4096. * 7 / 8);
	double cp1 = m.part[FO_PREDICT_ACTIVATIONS].low;
	job_set(&g, FO_JOB_TP, 4);
	job_set(&g, FO_JOB_CP, 2);
	memory(&g, &m);
	within("as many devices for a sequence", m.part[FO_PREDICT_ACTIVATIONS].low, cp1, 0.03);
	job_rig_fini(&g);
}

/* DeepSeek-V3: experts go over EP x PP devices, the rest over TP alone. */
static void test_experts(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_memory m;
	job_rig_init(&g, "megatron", "8xH200");
	must(fo_model_load("deepseek-v3", &g.job.model));
	g.job.model.layers = g.job.model.dense_layers + 1;
	struct fo_params p = fo_model_params(&g.job.model);
	double experts = 256 * 3 * 7168. * 2048;
	job_set(&g, FO_JOB_ZERO, 1);
	job_set(&g, FO_JOB_EP, 8);
	memory(&g, &m);
	assert_null(m.unknown);
	within("weights", m.part[FO_PREDICT_WEIGHTS].low, 2 * (p.total - experts + experts / 8), 1e-3);
	within("optimizer", m.part[FO_PREDICT_STATES].low, 12 * ((p.total - experts) / 8 + experts / 8), 1e-3);
	job_set(&g, FO_JOB_EP, 6);
	memory(&g, &m);
	assert_non_null(strstr(m.unknown, "256 experts are not divisible by EP 6"));
	job_rig_fini(&g);
}

static void test_fit(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_memory m;
	job_rig_init(&g, "torchtitan", "8xH100");
	job_set(&g, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL);
	memory(&g, &m);
	assert_int_equal(m.fit, FO_JOB_FITS);
	assert_true(m.usable.low > 78 * GIB && m.usable.high < 80 * GIB);
	job_set(&g, FO_JOB_SEQ, 1 << 20);
	memory(&g, &m);
	assert_int_equal(m.fit, FO_JOB_FITS_NOT);
	assert_true(m.total.low > m.usable.high);
	job_set(&g, FO_JOB_SEQ, 8192);
	/* Between both there is a length of which it is not known. */
	bool uncertain = false;
	for (double s = 8192; s < 1 << 20; s *= 1.05) {
		job_set(&g, FO_JOB_SEQ, floor(s));
		memory(&g, &m);
		uncertain |= m.fit == FO_JOB_FIT_UNCERTAIN;
		assert_true((m.fit == FO_JOB_FITS) == (m.total.high <= m.usable.low));
	}
	assert_true(uncertain);
	job_rig_fini(&g);
}

static void test_unknown(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_memory m;
	job_rig_init(&g, "torchtitan", "8xH100");
	g.job.has_model = false;
	g.job.model_missing = "config.json of the model";
	memory(&g, &m);
	assert_string_equal(m.unknown, "config.json of the model");
	assert_true(isnan(m.total.low) && isnan(m.part[FO_PREDICT_WEIGHTS].high) && isnan(m.host.low));
	assert_int_equal(m.fit, FO_JOB_FIT_UNKNOWN);
	g.job.has_model = true;
	g.job.value[FO_JOB_SEQ].number = NAN;
	memory(&g, &m);
	assert_non_null(strstr(m.unknown, "seq"));
	assert_true(isnan(m.total.high));
	job_set(&g, FO_JOB_SEQ, 8192);
	job_set(&g, FO_JOB_TP, 3);
	memory(&g, &m);
	assert_non_null(strstr(m.unknown, "not divisible"));
	job_set(&g, FO_JOB_TP, 1);
	struct fo_cluster bare = g.cluster;
	bare.device = NULL;
	fo_job_memory_of(&g.job, &bare, &m);
	assert_string_equal(m.unknown, "the device: give --cluster, for example 8xHGX-H100");
	assert_true(fo_range_known(m.total)); /* the need is known, the room is not */
	assert_int_equal(m.fit, FO_JOB_FIT_UNKNOWN);
	/* Nobody says what is recomputed: the interval holds both ends. */
	struct fo_job_memory none, full;
	memory(&g, &none);
	job_set(&g, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL);
	memory(&g, &full);
	g.job.value[FO_JOB_RECOMPUTE].number = NAN;
	memory(&g, &m);
	assert_true(m.total.low <= full.total.low && m.total.high >= none.total.high);
	job_rig_fini(&g);
}

/* Of random jobs: parts are not negative, low is not above high, the total is the sum, and more to do needs more. */
static void test_properties(void **state)
{
	(void)state;
	static const char *const form[] = { "torchtitan", "megatron", "deepspeed", "hf", "other" };
	fo_random_state = 17;
	for (int n = 0; n < 400; n++) {
		struct job_rig g;
		struct fo_job_memory m, more;
		job_rig_init(&g, form[n % 5], "64xH100");
#define PICK(k) ((double)below(k))
		job_set(&g, FO_JOB_TP, exp2(PICK(4)));
		job_set(&g, FO_JOB_PP, exp2(PICK(3)));
		job_set(&g, FO_JOB_CP, exp2(PICK(2)));
		job_set(&g, FO_JOB_PP_VIRTUAL, 1 + PICK(2));
		job_set(&g, FO_JOB_PP_SCHEDULE, PICK(4));
		job_set(&g, FO_JOB_ZERO, PICK(4));
		job_set(&g, FO_JOB_RECOMPUTE, PICK(4));
		job_set(&g, FO_JOB_ACCUMULATION, 1 + PICK(32));
		job_set(&g, FO_JOB_COMPILE, PICK(2));
		job_set(&g, FO_JOB_FP8, PICK(6));
		job_set(&g, FO_JOB_ATTENTION, PICK(4));
		job_set(&g, FO_JOB_RESHARD, PICK(2));
		memory(&g, &m);
		assert_null(m.unknown);
		struct fo_range sum = { 0, 0 };
		for (int i = 0; i < FO_PREDICT_MEMORIES; i++) {
			assert_true(m.part[i].low >= 0 && m.part[i].low <= m.part[i].high);
			sum = fo_range_plus(sum, m.part[i]);
		}
		within("sum", sum.low, m.total.low, 1e-9);
		within("sum", sum.high, m.total.high, 1e-9);
		job_set(&g, FO_JOB_MICRO_BATCH, 2);
		memory(&g, &more);
		assert_true(more.total.low >= m.total.low && more.total.high >= m.total.high);
		job_rig_fini(&g);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fsdp),
		cmocka_unit_test(test_megatron),
		cmocka_unit_test(test_zero),
		cmocka_unit_test(test_8bit),
		cmocka_unit_test(test_adapters),
		cmocka_unit_test(test_launcher),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_activations),
		cmocka_unit_test(test_full_recompute),
		cmocka_unit_test(test_pipelines),
		cmocka_unit_test(test_divisions),
		cmocka_unit_test(test_experts),
		cmocka_unit_test(test_fit),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_properties),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
