/* Files of metered steps from anywhere, and the step time that is composed of them. */
#include "timeline/metered.h"
#include "base/fs.h"
#include "support/must.h"
#include "support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char dir[] = "test_metered.XXXXXX", path[64];
static struct fo_program p;
static struct fo_unrolled u;
static const struct fo_burst best = { 100, 100, 1 }, slow = { 80, 100, 1 };

static bool on_host(int i) { return fo_op_info(fo_instance_op(&p, &u, i)->kind)->cls == FO_CLASS_HOST; }

static struct fo_quiet_span span_of(double seconds, bool quiet)
{
	return (struct fo_quiet_span){ seconds, 0, quiet ? best : slow, best };
}

/* Step s of a run whose operations take `seconds` each. */
static void add_step(struct fo_metered *m, int step, double seconds, bool quiet)
{
	struct fo_quiet_span s = span_of(seconds, quiet);
	for (int i = 0; i < u.n; i++)
		if (!on_host(i))
			fo_metered_add(m, step, i, &s);
}

static void write_steps(int first, int last)
{
	struct fo_metered m;
	struct fo_metered_out o;
	fo_metered_init(&m, &p, "bf16", 2);
	must(fo_metered_open(&o, path, &m));
	for (int s = first; s <= last; s++) {
		add_step(&m, s, s, true);
		must(fo_metered_write(&o, &m));
		assert_int_equal(m.n, 0);
	}
	fo_metered_close(&o);
	fo_metered_fini(&m);
}

static off_t size_of_file(void)
{
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

static void test_file(void **state)
{
	(void)state;
	struct fo_metered m;
	write_steps(1, 2);
	write_steps(3, 3); /* goes on */
	must(fo_metered_read(&m, path));
	int work = 0;
	for (int i = 0; i < u.n; i++)
		work += !on_host(i);
	assert_int_equal(m.steps, 3);
	assert_int_equal(m.n, 3 * work);
	assert_false(m.torn);
	assert_int_equal(m.threads, 2);
	assert_string_equal(m.dtype, "bf16");
	assert_true(m.program_hash == fo_program_hash(&p));
	for (size_t i = 0; i < m.n; i++) {
		assert_int_equal(m.span[i].step, 1 + i / (size_t)work);
		assert_true(m.span[i].span.seconds == m.span[i].step && m.span[i].span.before.flop_s == 100);
	}
	fo_metered_fini(&m);
}

static void test_torn(void **state)
{
	(void)state;
	struct fo_metered m;
	write_steps(1, 1);
	off_t one = size_of_file();
	write_steps(2, 2);
	off_t two = size_of_file();
	/* Wherever it was cut: the whole pieces remain, and the next one is appended to those. */
	for (off_t at = one + 1; at < two; at += 1 + (two - one) / 23) {
		assert_int_equal(truncate(path, at), 0);
		must(fo_metered_read(&m, path));
		assert_true(m.torn && m.steps == 1);
		fo_metered_fini(&m);
		write_steps(2, 2);
		assert_int_equal(size_of_file(), two);
		must(fo_metered_read(&m, path));
		assert_true(!m.torn && m.steps == 2);
		fo_metered_fini(&m);
	}
	/* A power cut may leave zeros where bytes should be. */
	FILE *f = fopen(path, "r+");
	assert_non_null(f);
	fseek(f, (one + two) / 2, SEEK_SET);
	for (off_t i = (one + two) / 2; i < two; i++)
		fputc(0, f);
	fclose(f);
	must(fo_metered_read(&m, path));
	assert_true(m.torn && m.steps == 1);
	fo_metered_fini(&m);
}

static void change_byte(long at)
{
	FILE *f = fopen(path, "r+");
	assert_non_null(f);
	fseek(f, at, SEEK_SET);
	int c = fgetc(f);
	fseek(f, at, SEEK_SET);
	fputc(c ^ 1, f);
	fclose(f);
}

static void test_damage(void **state)
{
	(void)state;
	struct fo_metered m;
	write_steps(1, 3);
	change_byte(40 + 24 + 3); /* in the first of three pieces */
	assert_int_equal(fo_metered_read(&m, path), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "damaged at byte 40"));
	unlink(path);
	write_steps(1, 3);
	change_byte(9);
	assert_int_equal(fo_metered_read(&m, path), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "header"));
	change_byte(0);
	assert_int_equal(fo_metered_read(&m, path), FO_EFORMAT);
	unlink(path);
	/* No time at all is no span. */
	struct fo_metered_out o;
	struct fo_quiet_span s = span_of(0, true);
	fo_metered_init(&m, &p, "f32", 1);
	must(fo_metered_open(&o, path, &m));
	fo_metered_add(&m, 1, 0, &s);
	must(fo_metered_write(&o, &m));
	fo_metered_close(&o);
	fo_metered_fini(&m);
	assert_int_equal(fo_metered_read(&m, path), FO_EFORMAT);
	assert_int_equal(fo_metered_read(&m, "nowhere"), FO_EIO);
}

/* Headers of pieces, each of which would reach to the end: not all of them are summed. Without a bound it would be 24
 * GB here. */
static void test_many_headers(void **state)
{
	(void)state;
	enum { HEADERS = 1 << 16, HEADER = 24, SPAN = 72 };
	struct fo_metered m;
	write_steps(1, 1);
	off_t one = size_of_file();
	FILE *f = fopen(path, "a");
	assert_non_null(f);
	for (int i = 0; i < HEADERS; i++) {
		uint32_t h[HEADER / 4] = { 0x50455453u, (uint32_t)(HEADERS - 1 - i) * HEADER / SPAN, 2, 0, 12345, 0 };
		assert_int_equal(fwrite(h, 1, sizeof h, f), sizeof h);
	}
	fclose(f);
	clock_t begin = clock();
	assert_int_equal(fo_metered_read(&m, path), FO_EFORMAT);
	assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 2);
	char want[32];
	snprintf(want, sizeof want, "byte %lld", (long long)one);
	assert_non_null(strstr(fo_err_text(), want));
	/* A few, as chance may have it, are not damage. */
	assert_int_equal(truncate(path, one + 3 * HEADER), 0);
	must(fo_metered_read(&m, path));
	assert_true(m.torn && m.steps == 1);
	fo_metered_fini(&m);
}

/* A file of another program, dtype or thread count says nothing about this one. */
static void test_begun_anew(void **state)
{
	(void)state;
	struct fo_metered m;
	struct fo_metered_out o;
	write_steps(1, 2);
	fo_metered_init(&m, &p, "bf16", 3);
	must(fo_metered_open(&o, path, &m));
	fo_metered_close(&o);
	fo_metered_fini(&m);
	must(fo_metered_read(&m, path));
	assert_true(m.steps == 0 && m.threads == 3);
	struct fo_composed c;
	must(fo_compose(&c, &m, &p, &u, &best));
	assert_true(isnan(c.seconds) && isnan(c.quiet_share));
	fo_composed_fini(&c);
	fo_metered_fini(&m);
}

/* Steps whose operations took 1 s (disturbed), 2, 3 (quiet): every operation counts with 2.5 s, unfiltered with 2. */
static void test_composition(void **state)
{
	(void)state;
	struct fo_metered m;
	struct fo_composed c;
	struct fo_burst seen = { 0 };
	int work = 0, first = -1;
	fo_metered_init(&m, &p, "f32", 1);
	add_step(&m, 1, 1, false);
	add_step(&m, 2, 2, true);
	add_step(&m, 3, 3, true);
	assert_int_equal(m.steps, 3);
	fo_metered_best(&m, &seen);
	assert_true(seen.flop_s == 100 && seen.byte_s == 100 && seen.share == 1);
	for (int i = 0; i < u.n; i++)
		work += !on_host(i), first = first < 0 && !on_host(i) ? i : first;
	must(fo_compose(&c, &m, &p, &u, &seen));
	assert_true(fabs(c.seconds - 2.5 * work) < 1e-9 * work);
	assert_true(fabs(c.median_s - 2 * work) < 1e-9 * work);
	assert_true(c.quiet_share == 1 && c.enough_share == 0 && fabs(c.quiet_spans_share - 2.0 / 3) < 1e-12);
	double parts = 0;
	int spans = 0, instances = 0;
	for (int i = 0; i < FO_PART_COUNT; i++)
		parts += c.part_s[i];
	for (int i = 0; i < c.ops; i++)
		spans += c.op[i].time.spans, instances += c.op[i].time.spans ? c.op[i].per_step : 0;
	assert_true(fabs(parts - c.seconds) < 1e-9 * work);
	assert_int_equal(spans, 3 * work);
	assert_int_equal(instances, work);
	fo_composed_fini(&c);
	/* One operation that never had a quiet span counts with the median of all. */
	for (size_t i = 0; i < m.n; i++)
		if (fo_instance_op(&p, &u, m.span[i].instance) == fo_instance_op(&p, &u, first))
			m.span[i].span.lost = 0.5;
	must(fo_compose(&c, &m, &p, &u, &seen));
	double without = c.seconds * (1 - c.quiet_share);
	assert_true(without > 0 && fabs(without / 2 - round(without / 2)) < 1e-9);
	assert_true(fabs(c.seconds - (2.5 * work - without / 4)) < 1e-9 * work);
	fo_composed_fini(&c);
	/* Thirty quiet spans of one operation (2 layers x 15 steps) are enough, whatever the others have. */
	for (int s = 4; s <= 18; s++)
		add_step(&m, s, 2.5, true);
	must(fo_compose(&c, &m, &p, &u, &seen));
	assert_true(c.enough_share > 0.3 && c.enough_share < 1);
	fo_composed_fini(&c);
	/* A faster machine elsewhere makes all of these disturbed. */
	struct fo_burst faster = { 200, 100, 1 };
	must(fo_compose(&c, &m, &p, &u, &faster));
	assert_true(c.quiet_spans_share == 0 && c.quiet_share == 0 && c.seconds == c.median_s);
	fo_composed_fini(&c);
	m.span[0].instance = u.n;
	assert_int_equal(fo_compose(&c, &m, &p, &u, &seen), FO_EFORMAT);
	m.span[0].instance = 0;
	m.program_hash ^= 1;
	assert_int_equal(fo_compose(&c, &m, &p, &u, &seen), FO_EFORMAT);
	fo_metered_fini(&m);
}

static int set_up(void **state)
{
	(void)state;
	struct fo_model m = tiny_model();
	struct fo_lowering low = {
		.seq = 16, .rows = 2, .micro_batches = 1, .precision = FO_PRECISION_F32, .mode = FO_MODE_TRAIN
	};
	if (!mkdtemp(dir) || fo_program_lower(&p, &m, &low) != FO_OK || fo_unroll(&p, &u) != FO_OK)
		return 1;
	snprintf(path, sizeof path, "%s/metered.fom", dir);
	return 0;
}

static int fresh(void **state)
{
	(void)state;
	unlink(path);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fo_unrolled_fini(&u);
	fo_program_fini(&p);
	return fo_fs_remove_tree(dir) != FO_OK;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_file, fresh),        cmocka_unit_test_setup(test_torn, fresh),
		cmocka_unit_test_setup(test_damage, fresh),      cmocka_unit_test_setup(test_begun_anew, fresh),
		cmocka_unit_test_setup(test_composition, fresh), cmocka_unit_test_setup(test_many_headers, fresh),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
