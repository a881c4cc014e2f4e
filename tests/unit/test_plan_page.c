/* A plan's page and its record: losses add up to the whole peak, the landscape counts every division, half a record is
 * refused, and tokens cost what a run of their length costs. */
#include "base/str.h"
#include "hw/catalogue.h"
#include "plan/file.h"
#include "plan/landscape.h"
#include "plan/losses.h"
#include "price/price.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct fo_catalogue catalogue;

static void ask(struct fo_plan_asked *a, const char *model, const char *device, double devices, double batch)
{
	const struct fo_device *d;
	struct fo_model m;
	struct fo_predict_job job = { .style = fo_predict_style_of("megatron"), .type = FO_PREDICT_BF16, .seq = 8192 };
	must(fo_model_load(model, &m));
	must(fo_catalogue_find(&catalogue, device, &d));
	must(fo_predict_machine_of(d, &job.machine));
	job.machine.per_node = 8;
	fo_predict_model_of(&m, &job.model);
	*a = (struct fo_plan_asked){ .framework = fo_plan_framework_of("megatron"),
				     .devices = devices,
				     .global_batch = batch,
				     .fixed = FO_PLAN_FREE };
	assert_null(fo_predict_prepare(&job, &a->base));
}

/* ---- losses ---- */

static void check_losses(const struct fo_predict_step *s)
{
	struct fo_plan_losses l;
	fo_plan_losses_of(&l, s);
	double whole = l.useful;
	int tenths = l.tenths;
	for (int i = 0; i < l.losses; i++) {
		assert_non_null(l.loss[i].name);
		whole += l.loss[i].share;
		tenths += l.loss[i].tenths;
		assert_true(fabs(l.loss[i].tenths - 1000 * l.loss[i].share) <= 1);
	}
	assert_int_equal(tenths, 1000);
	assert_true(fabs(whole - 1) < 1e-9);
	assert_true(fabs(l.tenths - 1000 * l.useful) <= 1);
}

static bool each_loss(void *ctx, const struct fo_predict_layout *l, int again)
{
	const struct fo_plan_asked *a = ctx;
	struct fo_predict_step s;
	(void)again;
	fo_predict_point(&a->base, l, &s);
	if (!s.wrong)
		check_losses(&s);
	return true;
}

static void test_losses(void **state)
{
	struct fo_plan_asked a;
	ask(&a, "llama-3.1-8b", "h100", 16, 128);
	fo_plan_each(&a, each_loss, &a);
	ask(&a, "mixtral-8x7b", "b200", 8, 16);
	fo_plan_each(&a, each_loss, &a);
	(void)state;
}

/* ---- the landscape ---- */

struct seen {
	const struct fo_plan_asked *a;
	const struct fo_plan_landscape *o;
	int64_t divisions, beyond;
	double best; /* MFU of what fits */
};
static bool see(void *ctx, const struct fo_predict_layout *l, int again)
{
	struct seen *k = ctx;
	struct fo_predict_step s;
	(void)again;
	fo_predict_point(&k->a->base, l, &s);
	if (s.wrong)
		return true;
	k->divisions++;
	k->beyond += s.bytes > k->o->memory_most;
	if (s.bytes <= k->o->memory_most && fo_predict_upper_bytes(&s) <= k->a->base.job.machine.memory_bytes)
		k->best = fmax(k->best, s.mfu_causal);
	return true;
}

static void test_landscape(void **state)
{
	struct fo_plan_asked a;
	struct fo_plan plan;
	struct fo_plan_landscape o;
	ask(&a, "llama-3.1-70b", "h100", 64, 128);
	must(fo_plan_search(&plan, &a));
	fo_plan_landscape_of(&o, &a, 1.5 * a.base.job.machine.memory_bytes, 1.25 * plan.point[0].step.mfu_causal);
	struct seen k = { &a, &o, 0, 0, 0 };
	fo_plan_each(&a, see, &k);
	assert_int_equal(o.divisions, k.divisions);
	assert_int_equal(o.beyond, k.beyond);
	assert_int_equal(o.divisions, plan.legal);
	assert_true(o.beyond > 0 && o.places > 50 && (int64_t)o.places < o.divisions);
	/* The fastest of what fits is there, and of one cell there is one of a kind. */
	double best = 0;
	size_t doubles = 0;
	for (size_t i = 0; i < o.places; i++) {
		assert_true(o.place[i].bytes <= o.memory_most);
		if (o.place[i].fits)
			best = fmax(best, o.place[i].mfu_causal);
		for (size_t n = i + 1; n < o.places; n++)
			doubles += o.place[i].kind == o.place[n].kind && o.place[i].fits == o.place[n].fits &&
				   o.place[i].bytes == o.place[n].bytes && o.place[i].seconds == o.place[n].seconds;
	}
	assert_true(best == k.best && best == plan.point[0].step.mfu_causal);
	assert_int_equal(doubles, 0);
	fo_plan_landscape_fini(&o);
	(void)state;
}

/* ---- the record ---- */

static struct fo_plan_file_point example_point(void)
{
	return (struct fo_plan_file_point){ .dp = 2,
					    .tp = 4,
					    .cp = 1,
					    .pp = 2,
					    .ep = 1,
					    .chunks = 1,
					    .micro_batch = 1,
					    .micro_batches = 16,
					    .recompute = "none",
					    .seconds = 2,
					    .seconds_low = 1.5,
					    .seconds_high = 2.5,
					    .tokens_s = 32 * 8192 / (2.0 * 16),
					    .mfu = .45,
					    .mfu_causal = .4,
					    .device_hours = 1,
					    .bytes = 1e10 };
}

static void write_example(struct fo_str *s, struct fo_plan_file *f)
{
	struct fo_json j;
	struct fo_plan_file_point point[1] = { example_point() };
	*f = (struct fo_plan_file){ .model = "llama-3.1-8b",
				    .device = "H100-SXM5-80GB",
				    .devices = 16,
				    .framework = "megatron",
				    .type = "bf16",
				    .peak_flop_s = 989e12,
				    .global_batch = 32,
				    .seq = 8192,
				    .legal = 10,
				    .timed = 8,
				    .too_large = 2,
				    .ties = 1,
				    .best = { point[0] },
				    .bests = 1,
				    .point = point,
				    .points = 1 };
	fo_json_begin(&j, s, true);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "schema", 1);
	fo_plan_file_write(f, &j);
	fo_json_close(&j);
}

static void put_file(const char *path, const char *text, size_t len)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

/* Reads the example after `was` in it became `is`. */
static fo_status read_with(const char *was, const char *is)
{
	struct fo_str s = { 0 }, t = { 0 };
	struct fo_plan_file f;
	struct fo_arena arena = { 0 };
	char path[64];
	snprintf(path, sizeof path, "test_plan_page.%d.json", (int)getpid());
	write_example(&s, &f);
	char *at = strstr(s.data, was);
	assert_non_null(at);
	fo_str_append(&t, s.data, (size_t)(at - s.data));
	fo_str_puts(&t, is);
	fo_str_puts(&t, at + strlen(was));
	put_file(path, t.data, t.len);
	fo_status st = fo_plan_file_read(&f, path, &arena);
	fo_err_clear();
	assert_int_equal(unlink(path), 0);
	fo_arena_fini(&arena);
	fo_str_fini(&s);
	fo_str_fini(&t);
	return st;
}

static void test_record(void **state)
{
	struct fo_str s = { 0 };
	struct fo_plan_file f, back;
	struct fo_arena arena = { 0 };
	char path[64];
	snprintf(path, sizeof path, "test_plan_page.%d.json", (int)getpid());
	write_example(&s, &f);
	assert_true(fo_plan_file_is(s.data, s.len));
	assert_false(fo_plan_file_is("{\"schema\": 1, \"of\": \"traces\"}", 29));
	assert_false(fo_plan_file_is("[1]", 3));
	assert_false(fo_plan_file_is("", 0));
	put_file(path, s.data, s.len);
	must(fo_plan_file_read(&back, path, &arena));
	assert_string_equal(back.model, "llama-3.1-8b");
	assert_true(back.devices == 16 && back.best[0].tp == 4 && back.points == 1 && back.point[0].seconds == 2);
	struct fo_range rate = fo_plan_file_tokens_s(&back), mfu = fo_plan_file_mfu(&back);
	assert_true(fabs(rate.low - 32 * 8192 / 2.5) < 1e-6 && fabs(rate.high - 32 * 8192 / 1.5) < 1e-6);
	assert_true(fabs(mfu.low - .32) < 1e-9 && fabs(mfu.high - .4 * 2 / 1.5) < 1e-9);
	/* Every half of it is refused. */
	for (size_t n = 0; n + 2 < s.len; n += 7) {
		put_file(path, s.data, n);
		assert_int_not_equal(fo_plan_file_read(&back, path, &arena), FO_OK);
		fo_err_clear();
	}
	assert_int_equal(unlink(path), 0);
	assert_int_equal(fo_plan_file_read(&back, path, &arena), FO_EIO);
	fo_err_clear();
	assert_int_equal(read_with("\"plan\"", "\"traces\""), FO_EFORMAT);
	assert_int_equal(read_with("\"schema\": 1", "\"schema\": 2"), FO_EFORMAT);
	assert_int_equal(read_with("\"schema\": 1,", ""), FO_EFORMAT);
	assert_int_equal(read_with("\"devices\": 16", "\"devices\": 0"), FO_EFORMAT);
	assert_int_equal(read_with("\"devices\": 16", "\"devices\": 17"), FO_EFORMAT);
	assert_int_equal(read_with("\"step_seconds_low\": 1.5", "\"step_seconds_low\": 3"), FO_EFORMAT);
	assert_int_equal(read_with("\"seq\": 8192", "\"seq\": null"), FO_EFORMAT);
	assert_int_equal(read_with("\"seq\": 8192", "\"seq\": \"8k\""), FO_EFORMAT);
	assert_int_equal(read_with("\"legal\": 10", "\"new\": 10"), FO_OK);
	assert_int_equal(read_with("\"mfu\": 0.45", "\"mfu\": 0.3"), FO_EFORMAT);
	assert_int_equal(read_with("\"of\": \"plan\"", "\"of\": \"plan\", \"fit\": \"does not fit\""), FO_ENOMEM);
	/* Names tell models apart only where sizes do not. */
	struct fo_plan_file one = { .model = "a" }, two = { .model = "b" };
	assert_false(fo_plan_file_same_model(&one, &two));
	one.model_layers = two.model_layers = 24;
	one.model_hidden = two.model_hidden = 2048;
	one.model_weights = two.model_weights = one.model_active = two.model_active = 1.3e9;
	assert_true(fo_plan_file_same_model(&one, &two));
	two.model_active = 1e9;
	two.model = "a";
	assert_false(fo_plan_file_same_model(&one, &two));
	fo_arena_fini(&arena);
	fo_str_fini(&s);
	(void)state;
}

/* ---- what tokens cost ---- */

static void test_tokens(void **state)
{
	struct fo_price_tokens_in in = { .devices = 128,
					 .tokens = 1e12,
					 .tokens_s = { 1e5, 2e5 },
					 .rent = { 2, 3 },
					 .watts = { 0, 700 },
					 .pue = fo_range(1.2),
					 .kwh = { .05, .1 } };
	struct fo_price_tokens t;
	fo_price_tokens(&in, &t);
	double hours[2] = { 1e12 / 2e5 / 3600, 1e12 / 1e5 / 3600 };
	assert_true(fabs(t.days.low / (hours[0] / 24) - 1) < 1e-12 && fabs(t.days.high / (hours[1] / 24) - 1) < 1e-12);
	assert_true(fabs(t.cost.low / (128 * hours[0] * 2) - 1) < 1e-12);
	assert_true(fabs(t.cost.high / (128 * hours[1] * 3) - 1) < 1e-12);
	assert_true(t.energy_kwh.low == 0 && fabs(t.energy_kwh.high / (128 * .7 * 1.2 * hours[1]) - 1) < 1e-12);
	assert_true(fabs(t.energy_cost.high / (.1 * t.energy_kwh.high) - 1) < 1e-12);
	in.rent = fo_range(NAN);
	fo_price_tokens(&in, &t);
	assert_false(fo_range_known(t.cost));
	assert_true(fo_range_known(t.days));
	(void)state;
}

static int load(void **state)
{
	(void)state;
	return fo_catalogue_load(&catalogue, NULL) != FO_OK;
}
static int drop(void **state)
{
	(void)state;
	fo_catalogue_fini(&catalogue);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_losses),
		cmocka_unit_test(test_landscape),
		cmocka_unit_test(test_record),
		cmocka_unit_test(test_tokens),
	};
	return cmocka_run_group_tests(tests, load, drop);
}
