/* The arithmetic against what others published (tests/data/job_published.csv, with sources): memory's interval holds at
 * least nine tenths of the peaks and its middle is near; the step's holds four fifths; published gains have the right
 * sign and order. bench/job/score.py prints the errors themselves. */
#include "../../bench/job/line.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB ((double)(1 << 30))

struct row {
	char id[80], kind[16], text[1024];
	double memory_gib, tokens_s;
};
enum { ROWS = 128, COLUMNS = 7 };
static struct row row[ROWS];
static int rows;
static struct fo_catalogue catalogue;

/* Six commas before the settings, none in quotes but in no file of ours. */
static int read_rows(void **state)
{
	(void)state;
	char path[4096], text[4096];
	const char *root = getenv("FLATOUT_SOURCE");
	snprintf(path, sizeof path, "%s/tests/data/job_published.csv", root ? root : ".");
	FILE *f = fopen(path, "r");
	if (!f)
		return -1;
	while (fgets(text, sizeof text, f) && rows < ROWS) {
		char *cell[COLUMNS] = { text };
		int n = 1;
		for (char *p = text; *p && n < COLUMNS; p++)
			if (*p == ',') {
				*p = '\0';
				cell[n++] = p + 1;
			}
		if (n < COLUMNS || *text == '#' || !strcmp(cell[0], "group"))
			continue;
		struct row *r = &row[rows++];
		snprintf(r->id, sizeof r->id, "%s", cell[1]);
		snprintf(r->kind, sizeof r->kind, "%s", cell[2]);
		snprintf(r->text, sizeof r->text, "%s", cell[6]);
		r->memory_gib = *cell[3] ? atof(cell[3]) : NAN;
		r->tokens_s = *cell[4] ? atof(cell[4]) : NAN;
	}
	fclose(f);
	return fo_catalogue_load(&catalogue, NULL) == FO_OK ? 0 : -1;
}
static int free_rows(void **state)
{
	(void)state;
	fo_catalogue_fini(&catalogue);
	return 0;
}

static void open_line(struct line *l, const struct row *r)
{
	static char text[1024];
	snprintf(text, sizeof text, "%s", r->text);
	assert_int_equal(line_read(l, text, &catalogue), 0);
}

/* As the publisher counts it: without what lies outside of the allocator, and of tensors alone without its gaps. */
static struct fo_range published_memory(const struct fo_job_memory *m, const char *kind)
{
	struct fo_range sum = { 0, 0 };
	for (int i = 0; i < FO_PREDICT_OVERHEAD; i++)
		sum = fo_range_plus(sum, m->part[i]);
	if (!strcmp(kind, "reserved"))
		sum = fo_range_times(sum, (struct fo_range){ 1.02, 1.08 });
	return sum;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void test_memory(void **state)
{
	(void)state;
	double error[ROWS];
	int n = 0, inside = 0;
	for (int i = 0; i < rows; i++) {
		if (isnan(row[i].memory_gib))
			continue;
		struct line l;
		struct fo_job_memory m;
		open_line(&l, &row[i]);
		fo_job_memory_of(&l.job, &l.cluster, &m);
		if (m.unknown)
			fail_msg("%s: unknown: %s", row[i].id, m.unknown);
		double truth = row[i].memory_gib * GIB;
		struct fo_range got = published_memory(&m, row[i].kind);
		inside += got.low <= truth && truth <= got.high;
		error[n++] = fabs(fo_range_middle(got) / truth - 1);
		/* All of these ran: none may be said not to fit. */
		assert_true(m.fit != FO_JOB_FITS_NOT);
		line_fini(&l);
	}
	qsort(error, (size_t)n, sizeof *error, by_size);
	assert_true(n >= 55);
	if (inside < 0.9 * n)
		fail_msg("%d of %d peaks lie inside", inside, n);
	if (error[n / 2] > 0.02 || error[9 * n / 10] > 0.1)
		fail_msg("median error %g, of nine tenths %g", error[n / 2], error[9 * n / 10]);
}

static void test_step(void **state)
{
	(void)state;
	int n = 0, inside = 0;
	for (int i = 0; i < rows; i++) {
		struct line l;
		struct fo_job_step s;
		open_line(&l, &row[i]);
		fo_job_step_of(&l.job, &l.cluster, &s);
		if (s.unknown)
			fail_msg("%s: unknown: %s", row[i].id, s.unknown);
		n++;
		inside += s.tokens_s.low <= row[i].tokens_s && row[i].tokens_s <= s.tokens_s.high;
		if (!(s.tokens_s.high > 0.6 * row[i].tokens_s && s.tokens_s.low < 1.5 * row[i].tokens_s))
			fail_msg("%s: %g to %g tokens/s, published %g", row[i].id, s.tokens_s.low, s.tokens_s.high,
				 row[i].tokens_s);
		line_fini(&l);
	}
	if (inside < 0.8 * n)
		fail_msg("%d of %d speeds lie inside", inside, n);
}

static const struct row *find(const char *id)
{
	for (int i = 0; i < rows; i++)
		if (!strcmp(row[i].id, id))
			return &row[i];
	fail_msg("no row %s", id);
	return NULL;
}

/* Published pairs: the run before, the run after, and what was changed. */
static const struct {
	const char *before, *after;
	struct fo_job_change change[3];
	int changes;
} pair[] = {
#define FP8 { { FO_JOB_FP8, FO_JOB_FP8_TENSORWISE }, { FO_JOB_FP8_GATHER, 1 }, { FO_JOB_FP8_PRECOMPUTE, 1 } }, 3
#define ASYNC { { FO_JOB_TP_OVERLAP, 1 } }, 1
	{ "8b_8_eager", "8b_8_compile", { { FO_JOB_COMPILE, 1 } }, 1 },
	{ "8b_128_eager", "8b_128_compile", { { FO_JOB_COMPILE, 1 } }, 1 },
	{ "8b_8_compile", "8b_8_float8", FP8 },
	{ "8b_128_compile", "8b_128_float8", FP8 },
	{ "70b_tp8_async0", "70b_tp8_async1", ASYNC },
	{ "70b_2506_bf16_async0", "70b_2506_bf16_async1", ASYNC },
	{ "70b_2506_tensorwise_async0", "70b_2506_tensorwise_async1", ASYNC },
	{ "70b_2506_rowwise_async0", "70b_2506_rowwise_async1", ASYNC },
	{ "8b_2506_bf16_async0", "8b_2506_bf16_async1", ASYNC },
	{ "8b_2506_tensorwise_async0", "8b_2506_tensorwise_async1", ASYNC },
	{ "8b_2506_rowwise_async0", "8b_2506_rowwise_async1", ASYNC },
	{ "70b_2506_bf16_async0", "70b_2506_tensorwise_async0", FP8 },
	{ "70b_2506_bf16_async0", "70b_2506_rowwise_async0", { { FO_JOB_FP8, FO_JOB_FP8_ROWWISE } }, 1 },
	{ "8b_2506_bf16_async0", "8b_2506_tensorwise_async0", FP8 },
	{ "405b_1f1b",
	  "405b_interleaved",
	  { { FO_JOB_PP_SCHEDULE, FO_JOB_SCHEDULE_INTERLEAVED }, { FO_JOB_PP_VIRTUAL, 2 } },
	  2 },
};
enum { PAIRS = sizeof pair / sizeof *pair };

static struct fo_range predicted(int i)
{
	struct line l;
	struct fo_job_gain g;
	open_line(&l, find(pair[i].before));
	fo_job_what_if(&l.job, &l.cluster, pair[i].change, pair[i].changes, &g);
	assert_null(g.unknown);
	line_fini(&l);
	return g.times;
}

static void test_gains(void **state)
{
	(void)state;
	double got[PAIRS], truth[PAIRS];
	int inside = 0, ordered = 0, compared = 0;
	for (int i = 0; i < PAIRS; i++) {
		struct fo_range g = predicted(i);
		truth[i] = find(pair[i].after)->tokens_s / find(pair[i].before)->tokens_s;
		got[i] = fo_range_middle(g);
		inside += g.low <= truth[i] && truth[i] <= g.high;
		/* What is said for certain has the right sign. */
		if (g.low > 1 || g.high < 1)
			assert_true((g.low > 1) == (truth[i] > 1));
		if (fabs(got[i] / truth[i] - 1) > 0.1)
			fail_msg("%s: %g to %g, published %g", pair[i].after, g.low, g.high, truth[i]);
	}
	for (int i = 0; i < PAIRS; i++)
		for (int k = 0; k < i; k++)
			if (fabs(truth[i] / truth[k] - 1) > 0.08) {
				compared++;
				ordered += (truth[i] > truth[k]) == (got[i] > got[k]);
			}
	if (inside < 0.8 * PAIRS || ordered < 0.9 * compared)
		fail_msg("%d of %d gains inside, %d of %d in order", inside, PAIRS, ordered, compared);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_memory), cmocka_unit_test(test_step),
					    cmocka_unit_test(test_gains) };
	return cmocka_run_group_tests(tests, read_rows, free_rows);
}
