/* Clusters from text and files, and how a job is divided over one: what follows from what, and contradictions. */
#include "support/job.h"
#include "support/must.h"
#include "support/scratch.h"

#include <stdio.h>
#include <string.h>

static void parsed(const char *text, double devices, double per_node)
{
	struct job_rig g;
	job_rig_init(&g, "torchtitan", text);
	if (g.cluster.devices != devices || g.cluster.per_node != per_node)
		fail_msg("'%s': %g devices, %g per node", text, g.cluster.devices, g.cluster.per_node);
	assert_true(g.cluster.nodes * per_node == devices);
	assert_true(g.cluster.net_assumed);
	job_rig_fini(&g);
}

static void test_texts(void **state)
{
	(void)state;
	parsed("16xHGX-H100", 128, 8);
	parsed("2xDGX-A100", 16, 8);
	parsed("128xA100", 128, 8);
	parsed("32x8xh100", 256, 8);
	parsed("4xGB200-NVL72", 288, 72);
	parsed("512xGB200", 512, 64); /* no 72 fills 512 */
	parsed("512xH200", 512, 8);
	parsed("8xH100-NVL", 8, 8);
	parsed("h100", 1, 1);
	parsed("4xH100", 4, 4);
	parsed("2x4xA100", 8, 4);
}

static void refused(const char *text, const char *why)
{
	struct fo_catalogue catalogue;
	struct fo_cluster c = { .devices = -1 };
	struct fo_arena arena = { 0 };
	must(fo_catalogue_load(&catalogue, NULL));
	assert_int_not_equal(fo_cluster_parse(text, &catalogue, &c, &arena), FO_OK);
	if (!strstr(fo_err_text(), why) && !strstr(fo_err_hint(), why))
		fail_msg("'%s': \"%s\" (%s) lacks \"%s\"", text, fo_err_text(), fo_err_hint(), why);
	assert_true(c.devices == -1);
	fo_arena_fini(&arena);
	fo_catalogue_fini(&catalogue);
}

static void test_bad_texts(void **state)
{
	(void)state;
	refused("", "expected");
	refused("8x", "expected");
	refused("x", "nearest");
	refused("8", "expected");
	refused("0xH100", "has no device");
	refused("0x8xH100", "has no device");
	refused("8xH100+8xA100", "mixes devices");
	refused("8x8x8xH100", "expected");
	refused("99999999999999999999xH100", "expected");
	refused("8xH1000", "H100");
	refused("12xH100", "do not fill nodes of 8");
	refused("no/such/file.yaml", "no/such/file.yaml");
}

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void test_files(void **state)
{
	(void)state;
	char path[4200];
	snprintf(path, sizeof path, "%s/cluster.yaml", fo_scratch);
	struct job_rig g;
	put(path, "device: H100\nnodes: 4\nper_node: 8\nnet_gbit: 100..200\nfabric: RoCE\nmemory_gb: 96\n");
	job_rig_init(&g, "torchtitan", path);
	assert_true(g.cluster.devices == 32 && g.cluster.nodes == 4);
	assert_true(g.cluster.net_gb_s.low == 12.5 && g.cluster.net_gb_s.high == 25 && !g.cluster.net_assumed);
	assert_string_equal(g.cluster.fabric, "RoCE");
	assert_true(g.cluster.device->memory_gb == 96);
	job_rig_fini(&g);
	snprintf(path, sizeof path, "%s/cluster.json", fo_scratch);
	put(path, "{\"device\": \"A100\", \"devices\": 64}");
	job_rig_init(&g, "torchtitan", path);
	assert_true(g.cluster.devices == 64 && g.cluster.per_node == 8);
	job_rig_fini(&g);
	static const struct {
		const char *text, *why;
	} bad[] = {
		{ "", "does not name a device" },
		{ "device: H100\n", "how many devices" },
		{ "nodes: 4\n", "does not name a device" },
		{ "device: H100\nnode: 4\n", "nodes" },
		{ "device: H100\nnodes: four\n", "four" },
		{ "device: H100\nnodes: -1\n", "nodes" },
		{ "device: H100\nnodes: 3\ndevices: 16\n", "16 devices are not divisible by 3 nodes" },
		{ "device: H100\nnodes: 2\nper_node: 8\ndevices: 24\n", "24 devices are not 2 nodes of 8" },
		{ "device: Z80\nnodes: 2\n", "Z80" },
		{ "device: H100\nnodes: 2\nnet_gbit: fast\n", "net_gbit" },
		{ "device: H100\nnodes: 2\nnet_gbit: 0\n", "nothing travels at 0 Gbit/s" },
		{ "device: H100\nnodes: 2\nnet_gbit: 0..200\n", "nothing travels at 0 Gbit/s" },
		{ "device: H100\nnodes: 0\n", "nodes is 0" },
		{ "device: H100\ndevices: 0\n", "devices is 0" },
		{ "device: H100\nnodes: 2\nper_node: 0\n", "per_node is 0" },
		{ "device: H100\nnodes: 2\nmemory_gb: 0\n", "memory_gb is 0" },
		{ "device: H100\nnodes: 2\nmemory_tb_s: 0\n", "memory_tb_s is 0" },
		{ "device: H100\nnodes: 2\nmemory_gb: 10000\n", "H100-SXM5-80GB has 80 GB" },
		{ "device: H100\nnodes: 2\nmemory_tb_s: 900\n", "has 3.35 TB/s" },
		{ "{\"device\": \"H1", "" },
		{ "[1, 2]", "" },
		{ "\x7f"
		  "ELF\x02\x01\x01",
		  "" },
	};
	snprintf(path, sizeof path, "%s/bad.yaml", fo_scratch);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		put(path, bad[i].text);
		refused(path, bad[i].why);
	}
}

/* ---- shapes ---- */

static void shape(struct job_rig *g, struct fo_job_shape *s) { fo_job_shape_of(&g->job, &g->cluster, s); }

static void test_megatron_batch(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_shape s;
	job_rig_init(&g, "megatron", "64xH100");
	job_set(&g, FO_JOB_TP, 4);
	job_set(&g, FO_JOB_PP, 2);
	job_set(&g, FO_JOB_ZERO, 1);
	job_set(&g, FO_JOB_GLOBAL_BATCH, 256);
	job_set(&g, FO_JOB_MICRO_BATCH, 2);
	g.job.value[FO_JOB_ACCUMULATION].number = NAN;
	shape(&g, &s);
	assert_null(s.wrong);
	assert_null(s.unknown);
	assert_true(s.dp == 8 && s.micro_batches == 16 && s.shard == 8 && s.replicate == 1);
	assert_true(s.tokens == 256 * 8192.0);
	job_set(&g, FO_JOB_GLOBAL_BATCH, 100);
	shape(&g, &s);
	assert_non_null(s.wrong);
	assert_non_null(strstr(s.wrong, "100 is not divisible"));
	assert_int_equal(s.wrong_setting, FO_JOB_GLOBAL_BATCH);
	assert_string_equal(s.wrong_try, "the next batch that fits: 112");
	job_rig_fini(&g);
}

static void test_torchtitan_batch(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_shape s;
	job_rig_init(&g, "torchtitan", "64xH100");
	g.job.value[FO_JOB_MICRO_BATCH].number = g.job.value[FO_JOB_ACCUMULATION].number = NAN;
	job_set(&g, FO_JOB_LOCAL_BATCH, 2);
	job_set(&g, FO_JOB_GLOBAL_BATCH, -1);
	job_set(&g, FO_JOB_DP_SHARD, -1);
	job_set(&g, FO_JOB_DP_REPLICATE, 2);
	job_set(&g, FO_JOB_CP, 2);
	shape(&g, &s);
	assert_null(s.wrong);
	assert_true(s.dp == 32 && s.replicate == 2 && s.shard == 32);
	assert_true(s.micro_batch == 2 && s.micro_batches == 1 && s.global_batch == 64);
	job_set(&g, FO_JOB_GLOBAL_BATCH, 256);
	shape(&g, &s);
	assert_true(s.micro_batches == 4 && s.global_batch == 256);
	job_set(&g, FO_JOB_DP_SHARD, 5);
	shape(&g, &s);
	assert_non_null(s.wrong);
	job_set(&g, FO_JOB_DP_SHARD, -1);
	job_set(&g, FO_JOB_PP, 4);
	shape(&g, &s);
	assert_true(s.micro_batch == 1 && s.micro_batches == 32);
	job_rig_fini(&g);
}

static void test_deepspeed_batch(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_shape s;
	job_rig_init(&g, "deepspeed", "16xA100");
	job_set(&g, FO_JOB_ZERO, 2);
	job_set(&g, FO_JOB_MICRO_BATCH, 4);
	job_set(&g, FO_JOB_ACCUMULATION, 3);
	shape(&g, &s);
	assert_true(s.global_batch == 192 && s.micro_batches == 3);
	job_set(&g, FO_JOB_GLOBAL_BATCH, 200);
	shape(&g, &s);
	assert_non_null(s.wrong);
	job_rig_fini(&g);
}

static void test_contradictions_and_gaps(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_shape s;
	job_rig_init(&g, "megatron", "8xH100");
	job_set(&g, FO_JOB_TP, 4);
	job_set(&g, FO_JOB_PP, 4);
	shape(&g, &s);
	assert_string_equal(s.wrong, "8 devices are not divisible by TP 4 x PP 4");
	job_set(&g, FO_JOB_PP, 1);
	g.job.value[FO_JOB_SEQ].number = NAN;
	shape(&g, &s);
	assert_null(s.wrong);
	assert_string_equal(s.unknown, "tokens of a sequence: give --set seq=N");
	job_set(&g, FO_JOB_SEQ, 8192);
	g.job.value[FO_JOB_TP] = (struct fo_job_value){ .origin = FO_JOB_AUTO, .number = NAN, .text = "auto" };
	shape(&g, &s);
	assert_string_equal(s.unknown, "tensor parallel: give --set tp=N");
	assert_true(isnan(s.dp));
	job_set(&g, FO_JOB_TP, 1);
	g.job.value[FO_JOB_ZERO].number = NAN;
	shape(&g, &s);
	assert_non_null(strstr(s.unknown, "zero"));
	job_set(&g, FO_JOB_TP, 2.5);
	shape(&g, &s);
	assert_non_null(s.wrong);
	job_rig_fini(&g);
}

/* Nobody names the machines: their number follows from the batch, or stays unknown. */
static void test_devices_from_the_job(void **state)
{
	(void)state;
	struct job_rig g;
	struct fo_job_shape s;
	job_rig_init(&g, "megatron", "8xH100");
	fo_job_shape_of(&g.job, NULL, &s);
	assert_true(isnan(s.devices));
	assert_non_null(strstr(s.unknown, "devices"));
	job_set(&g, FO_JOB_GLOBAL_BATCH, 64);
	job_set(&g, FO_JOB_TP, 2);
	fo_job_shape_of(&g.job, NULL, &s);
	assert_true(s.devices == 128);
	job_set(&g, FO_JOB_NODES, 4);
	job_set(&g, FO_JOB_PER_NODE, 8);
	fo_job_shape_of(&g.job, NULL, &s);
	assert_true(s.devices == 32);
	job_rig_fini(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_bad_texts),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_megatron_batch),
		cmocka_unit_test(test_torchtitan_batch),
		cmocka_unit_test(test_deepspeed_batch),
		cmocka_unit_test(test_contradictions_and_gaps),
		cmocka_unit_test(test_devices_from_the_job),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
