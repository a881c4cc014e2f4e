/* A step on a device: operations that passes put in other ones' places are known and stand in their part, and a profile
 * that claims more than the device can do is refused. */
#include "support/device_step.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A step of a small Llama on an H200 with some more options. */
static void begin(struct device_rig *g, const char *more)
{
	char text[256];
	snprintf(text, sizeof text, "--model.name=llama-3.2-1b --data.seq=2048 --train.rows=1 %s", more);
	device_rig_step(g, "h200", text);
}

/* Gradients that leave attention turned take attention's time; the rotations of backward are gone. */
static void test_turned(void **state)
{
	(void)state;
	struct device_rig apart, turned;
	begin(&apart, "--pass.fuse-rope=no");
	begin(&turned, "--pass.fuse-rope=yes");
	double attention = apart.s.part_s[FO_DEVICE_PART_ATTENTION].mid;
	assert_true(attention > 0);
	assert_true(fabs(turned.s.part_s[FO_DEVICE_PART_ATTENTION].mid - attention) < 1e-9 * attention);
	assert_true(turned.s.part_s[FO_DEVICE_PART_FUSED].mid < apart.s.part_s[FO_DEVICE_PART_FUSED].mid);
	assert_true(turned.s.step_s.mid < apart.s.step_s.mid);
	device_rig_end(&apart);
	device_rig_end(&turned);
}

/* Every operation that does nothing but fp8's work stands in fp8's part, however the recipe calls it. */
static void test_fp8_part(void **state)
{
	(void)state;
	static const char *const recipe[] = { "--pass.fp8=delayed --pass.recompute=none",
					      "--pass.fp8=current --pass.recompute=none",
					      "--pass.fp8=rowwise --pass.recompute=none" };
	for (size_t i = 0; i < sizeof recipe / sizeof *recipe; i++) {
		struct device_rig g;
		double sum = 0;
		begin(&g, recipe[i]);
		for (int k = 0; k < g.u.n; k++) {
			const struct fo_op *o = fo_instance_op(&g.p, &g.u, k);
			const char *name = fo_op_info(o->kind)->name;
			if (!strncmp(name, "fp8_", 4) || !strcmp(name, "amax"))
				sum += fo_device_op_seconds(&g.rates, &g.p, o, g.u.first[k], -1).seconds.mid;
		}
		double part = g.s.part_s[FO_DEVICE_PART_FP8].mid;
		if (!(sum > 0) || fabs(part - sum) > 1e-6 * sum)
			fail_msg("%s: fp8's operations take %g s, its part %g", recipe[i], sum, part);
		device_rig_end(&g);
	}
}

/* Of an H200: 989 TFLOP/s, 4.8 TB/s. */
static void test_claims(void **state)
{
	(void)state;
	static const struct {
		const char *operation, *category, *operands, *figures;
		fo_status st;
	} claim[] = {
		{ "matmul", "matmul", "1x1 bf16", "\"us_median\":100,\"us_best\":100,\"tflop_s\":800", FO_OK },
		{ "matmul", "matmul", "1x1 bf16", "\"us_median\":100,\"us_best\":100,\"tflop_s\":1700", FO_EFORMAT },
		{ "matmul", "matmul", "1x1 e4m3", "\"us_median\":100,\"us_best\":100,\"tflop_s\":1700", FO_OK },
		{ "matmul", "matmul", "1x1 e4m3", "\"us_median\":100,\"us_best\":100,\"tflop_s\":2600", FO_EFORMAT },
		/* the median can be, the best cannot */
		{ "matmul", "matmul", "1x1 bf16", "\"us_median\":100,\"us_best\":1,\"tflop_s\":700", FO_EFORMAT },
		{ "matmul", "matmul", "1x1 bf16", "\"us_median\":1e-30,\"us_best\":1e-30,\"tflop_s\":1e300",
		  FO_EFORMAT },
		{ "attention_bwd", "attention_backward", "", "\"us_median\":9,\"us_best\":9,\"tflop_s\":500", FO_OK },
		{ "attention_bwd_rope", "attention_backward", "", "\"us_median\":9,\"us_best\":9,\"tflop_s\":5000",
		  FO_EFORMAT },
		{ "swiglu", "elementwise", "", "\"us_median\":9,\"us_best\":9,\"gb_s\":4300", FO_OK },
		{ "swiglu", "elementwise", "", "\"us_median\":9,\"us_best\":9,\"gb_s\":50000", FO_EFORMAT },
	};
	struct fo_catalogue catalogue;
	const struct fo_device *d;
	must(fo_catalogue_load(&catalogue, NULL));
	must(fo_catalogue_find(&catalogue, "h200", &d));
	for (size_t i = 0; i < sizeof claim / sizeof *claim; i++) {
		struct fo_device_rates rates;
		struct fo_device_profile f;
		char text[512];
		snprintf(text, sizeof text,
			 "{\"device\":\"NVIDIA H200\",\"seq\":8192}\n{\"operation\":\"%s\",\"key\":\"1\",\"category\":"
			 "\"%s\",\"count\":3,\"operands\":\"%s\",%s}\n",
			 claim[i].operation, claim[i].category, claim[i].operands, claim[i].figures);
		must(fo_device_rates_init(&rates, d));
		must(fo_device_profile_parse(text, strlen(text), "claim", &f));
		if (fo_device_rates_measured(&rates, &catalogue, &f) != claim[i].st)
			fail_msg("claim %zu: %s", i, claim[i].st == FO_OK ? fo_err_text() : "taken");
		if (claim[i].st != FO_OK)
			assert_non_null(strstr(fo_err_text(), "cannot be right"));
		fo_device_profile_fini(&f);
	}
	fo_catalogue_fini(&catalogue);
}

/* A row whose time no device has: its own operation says so, though no rate follows from the row. */
static void test_claimed_row(void **state)
{
	(void)state;
	struct device_rig g;
	struct fo_device_profile f;
	char text[512];
	begin(&g, "");
	int product = 0;
	while (fo_instance_op(&g.p, &g.u, product)->kind != FO_OP_matmul)
		product++;
	for (int possible = 0; possible < 2; possible++) {
		snprintf(text, sizeof text,
			 "{\"device\":\"NVIDIA H200\"}\n{\"operation\":\"matmul\",\"key\":\"%016llx\",\"category\":"
			 "\"matmul\",\"count\":1,\"us_median\":%g,\"us_best\":%g,\"operands\":\"bf16\"}\n",
			 (unsigned long long)fo_op_signature(&g.p, fo_instance_op(&g.p, &g.u, product),
							     g.u.first[product]),
			 possible ? 1000. : 0.001, possible ? 1000. : 0.001);
		must(fo_device_profile_parse(text, strlen(text), "row", &f));
		must(fo_device_rates_measured(&g.rates, &g.catalogue, &f));
		fo_device_step_fini(&g.s);
		fo_status st = fo_device_step(&g.s, &g.p, &g.u, &g.rates, -1);
		assert_int_equal(st, possible ? FO_OK : FO_EFORMAT);
		fo_device_profile_fini(&f);
	}
	device_rig_end(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_turned),
		cmocka_unit_test(test_fp8_part),
		cmocka_unit_test(test_claims),
		cmocka_unit_test(test_claimed_row),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
