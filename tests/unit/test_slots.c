/* Slots as pictures: of a timeline, whose spans are put together to the slots that were planned; as text and files at
 * their limits. */
#include "pass/pass.h"
#include "report/slots.h"
#include "support/must.h"
#include "support/tiny_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 3, STEP = 7 };

/* A timeline in which each instance of the compute lane takes 10 ns, in the order of the program. */
static void spans_of(const struct fo_program *p, const struct fo_unrolled *u, int64_t begin, struct fo_timeline_file *f,
		     int32_t step)
{
	struct fo_ring *r = &f->t.lane[FO_LANE_COMPUTE];
	*r = (struct fo_ring){ calloc((size_t)u->n, sizeof *r->span), (uint32_t)u->n, 0 };
	for (int i = 0; i < u->n; i++)
		if (fo_instance_op(p, u, i)->lane == FO_LANE_COMPUTE) {
			fo_timeline_record(&f->t, FO_LANE_COMPUTE, step, i, begin, begin + 10);
			begin += 10;
		}
}

static void test_slots_of_timelines(void **state)
{
	struct fo_model m = tiny_model();
	struct fo_lowering run = { .seq = 16, .rows = 1, .micro_batches = BATCHES, .precision = FO_PRECISION_F32 };
	struct fo_program p;
	struct fo_unrolled u;
	struct fo_timeline_file f[2] = { { .rank = 0 } };
	struct fo_doc d = { 0 };
	struct fo_draw_slots c;
	(void)state;
	must(fo_pass_build(&p, &m, &run));
	must(fo_unroll(&p, &u));
	spans_of(&p, &u, 1000, &f[0], STEP);
	spans_of(&p, &u, 400, &f[1], STEP);
	f[1].t.whose.clock_offset_ns = 1100; /* begins 500 ns after the other one, by its clock */
	const struct fo_slots_stage stage[] = { { &p, &f[0] }, { &p, &f[1] }, { &p, NULL } };
	assert_true(fo_slots_of_timelines(&d, &c, stage, 3, STEP));
	assert_int_equal(c.rows, 3);
	assert_int_equal(c.row[2].slots, 0);
	for (int s = 0; s < 2; s++) {
		int passes[2] = { 0 };
		double end = s * 500e-9;
		assert_true(c.row[s].slots > 2 * BATCHES && c.row[s].slots <= (size_t)p.nslot);
		for (size_t i = 0; i < c.row[s].slots; i++) {
			const struct fo_draw_slot *x = &c.row[s].slot[i];
			assert_true(x->to > x->from && x->from >= end - 1e-15);
			assert_int_equal(x->part, -1);
			end = x->to;
			if (x->kind == FO_PP_FORWARD || x->kind == FO_PP_BACKWARD)
				assert_int_equal(x->number, passes[x->kind]++);
		}
		assert_int_equal(passes[0], BATCHES);
		assert_int_equal(passes[1], BATCHES);
		assert_true(fabs(c.row[s].slot[0].from - s * 500e-9) < 1e-15);
		assert_true(c.to >= end);
	}
	assert_false(fo_slots_of_timelines(&d, &c, stage, 3, STEP + 1));
	fo_doc_fini(&d);
	free(f[0].t.lane[FO_LANE_COMPUTE].span);
	free(f[1].t.lane[FO_LANE_COMPUTE].span);
	fo_unrolled_fini(&u);
	fo_program_fini(&p);
}

static void draw(const struct fo_draw_slots *c, const char *wanted, const char *not_wanted)
{
	struct fo_str out = { 0 };
	for (size_t width = 20; width <= 120; width += 5) {
		out.len = 0;
		fo_draw_slots_text(&out, c, width, 2);
		for (char *s = out.data, *line; out.len && (line = strtok_r(s, "\n", &s));)
			if (strlen(line) > width)
				fail_msg("%zu columns, not %zu: %s", strlen(line), width, line);
	}
	out.len = 0;
	fo_draw_slots_text(&out, c, 80, 0);
	fo_str_puts(&out, "");
	if ((wanted && !strstr(out.data, wanted)) || (not_wanted && strstr(out.data, not_wanted)))
		fail_msg("%s", out.data);
	out.len = 0;
	fo_draw_slots_svg(&out, c);
	fo_draw_slots(&out, c);
	assert_true(out.len > 0 && !strstr(out.data, "nan") && !strstr(out.data, "inf"));
	fo_str_fini(&out);
}

static void test_limits_of_pictures(void **state)
{
	static const char letter[] = "FB";
	static const char *const name[] = { "forward", "backward" };
	static const unsigned char tone[] = { 0, 1 };
	struct fo_draw_slot slot[1000];
	struct fo_draw_slot_row row[100];
	struct fo_draw_slots c = {
		.title = "t", .letter = letter, .kind_name = name, .tone = tone, .kinds = 2, .to = 2
	};
	(void)state;
	c.row = row;
	draw(&c, NULL, NULL); /* nothing */
	row[0] = (struct fo_draw_slot_row){ "a", slot, 2 };
	c.rows = 1;
	slot[0] = (struct fo_draw_slot){ 0, 1, 0, 3, 1 };
	slot[1] = (struct fo_draw_slot){ 1, 2, 1, 12, 1 };
	draw(&c, "a F3b-B12b", NULL);
	slot[1].to = slot[1].from; /* a slot that took no time is not seen */
	draw(&c, "a F3b", "B12b");
	slot[1] = (struct fo_draw_slot){ 1e-9, 2e-9, 1, 12, 1 };
	draw(&c, NULL, NULL);
	c.to = 0;
	draw(&c, NULL, NULL);
	for (int i = 0; i < 1000; i++)
		slot[i] = (struct fo_draw_slot){ i, i + 1, i % 2, i, -1 };
	for (int i = 0; i < 100; i++)
		row[i] = (struct fo_draw_slot_row){ "a row with a name that is long", slot, 1000 };
	c.rows = 100;
	c.to = 1000;
	draw(&c, "... 84 more", NULL);
	draw(&c, "this is the first", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slots_of_timelines),
		cmocka_unit_test(test_limits_of_pictures),
	};
	return cmocka_run_group_tests_name("slots", tests, NULL, NULL);
}
