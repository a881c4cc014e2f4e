/* Layers over stages: the split is the best of all splits, by trying them all. */
#include "program/schedule.h"

#include "base/rng.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PARTS = 8 };

static double random_from(uint64_t stream, uint64_t i, double from, double to)
{
	return from + (to - from) * 0x1p-64 * (double)fo_rng_u64(stream, i);
}

/* The best over all ways to write `left` as parts of 1 or more. */
struct search {
	const struct fo_pp_shape *p;
	const struct fo_pp_costs *c;
	int32_t layers[PARTS];
	double seconds, least_bytes; /* of the fastest that fits; of the emptiest */
};
static void try_all(struct search *s, int32_t position, int32_t left)
{
	const int32_t parts = fo_pp_parts(s->p), behind = parts - 1 - position;
	if (behind) {
		for (int32_t n = 1; n <= left - behind; n++) {
			s->layers[position] = n;
			try_all(s, position + 1, left - n);
		}
		return;
	}
	s->layers[position] = left;
	double slowest = 0, fullest = 0;
	for (int32_t k = 0; k < s->p->stages; k++) {
		double seconds = 0, bytes;
		for (int32_t c = 0; c < s->p->chunks; c++) {
			const int32_t at = fo_pp_position(s->p, k, c);
			seconds += s->layers[at] * s->c->layer_s + (at ? 0 : s->c->embed_s) +
				   (at == parts - 1 ? s->c->head_s : 0);
		}
		fo_pp_stage_costs(s->p, k, s->layers, s->c, NULL, &bytes);
		slowest = fmax(slowest, seconds);
		fullest = fmax(fullest, bytes);
	}
	s->least_bytes = fmin(s->least_bytes, fullest);
	if (fullest <= s->c->room || !(s->c->room > 0))
		s->seconds = fmin(s->seconds, slowest);
}

static void balance(struct fo_pp_shape p, int32_t layers, uint64_t seed, int tight, int *fits)
{
	int32_t split[PARTS];
	struct fo_pp_balance b = { .layers = split };
	struct fo_pp_costs c = { .layer_s = random_from(seed, 0, 0.5, 1),
				 .embed_s = random_from(seed, 1, 0, 1),
				 .head_s = random_from(seed, 2, 0, 3),
				 .layer_bytes = random_from(seed, 3, 1, 2),
				 .embed_bytes = random_from(seed, 4, 0, 5),
				 .head_bytes = random_from(seed, 5, 0, 5),
				 .layer_held = random_from(seed, 6, 0, 1),
				 .embed_held = random_from(seed, 7, 0, 1),
				 .head_held = random_from(seed, 8, 0, 2) };
	struct search all = { .p = &p, .c = &c, .seconds = INFINITY, .least_bytes = INFINITY };
	try_all(&all, 0, layers);
	if (tight) { /* some room above the least, or a little too little */
		c.room = all.least_bytes * random_from(seed, 9, 0.97, 1.15);
		all.seconds = all.least_bytes = INFINITY;
		try_all(&all, 0, layers);
	}
	fo_status st = fo_pp_balance_of(&b, &p, layers, &c);
	if (!isfinite(all.seconds)) {
		assert_int_equal(st, FO_ENOMEM);
		return;
	}
	if (p.chunks > 1 && st == FO_ENOMEM && tight)
		return; /* another spread over the chunks would fit; the header says which is taken */
	must(st);
	(*fits)++;
	int32_t sum = 0;
	double slowest = 0, fullest = 0, total = 0;
	for (int32_t i = 0; i < fo_pp_parts(&p); i++) {
		assert_true(split[i] >= 1);
		sum += split[i];
	}
	assert_int_equal(sum, layers);
	for (int32_t s = 0; s < p.stages; s++) {
		double seconds, bytes;
		fo_pp_stage_costs(&p, s, split, &c, &seconds, &bytes);
		slowest = fmax(slowest, seconds);
		fullest = fmax(fullest, bytes);
		total += seconds;
	}
	assert_true(fabs(b.slowest_s - slowest) < 1e-12 && fabs(b.fullest - fullest) < 1e-12);
	assert_true(fabs(b.mean_s * p.stages - total) < 1e-9);
	assert_true(!tight || fullest <= c.room);
	if (p.chunks == 1 || !tight)
		assert_true(fabs(slowest - all.seconds) < 1e-9);
	else
		assert_true(slowest >= all.seconds - 1e-9);
}

static void test_best_of_all_splits(void **state)
{
	static const struct fo_pp_shape shape[] = { { FO_PP_1F1B, 1, 4, 1 },        { FO_PP_1F1B, 3, 2, 1 },
						    { FO_PP_1F1B, 4, 8, 1 },        { FO_PP_GPIPE, 3, 5, 1 },
						    { FO_PP_INTERLEAVED, 2, 4, 2 }, { FO_PP_INTERLEAVED, 3, 4, 2 },
						    { FO_PP_ZB_H2, 4, 6, 1 },       { FO_PP_DUALPIPE_V, 3, 6, 2 } };
	int fits = 0;
	(void)state;
	for (size_t k = 0; k < sizeof shape / sizeof *shape; k++)
		for (uint64_t seed = 0; seed < 40; seed++) {
			const int32_t parts = fo_pp_parts(&shape[k]);
			balance(shape[k], parts + (int32_t)(seed % 7), 100 * k + seed, seed % 2, &fits);
		}
	assert_true(fits > 200);
}

/* The stages with embedding and head have fewer layers, and a stage's extra layers go where its chunk has neither. */
static void test_known_splits(void **state)
{
	int32_t split[PARTS];
	struct fo_pp_balance b = { .layers = split };
	struct fo_pp_costs c = { .layer_s = 1, .embed_s = 1, .head_s = 2 };
	(void)state;
	must(fo_pp_balance_of(&b, &(struct fo_pp_shape){ FO_PP_1F1B, 4, 8, 1 }, 29, &c));
	assert_memory_equal(split, ((int32_t[]){ 7, 8, 8, 6 }), 4 * sizeof *split);
	assert_true(b.slowest_s == 8 && b.mean_s == 8);
	must(fo_pp_balance_of(&b, &(struct fo_pp_shape){ FO_PP_INTERLEAVED, 2, 8, 2 }, 13, &c));
	assert_memory_equal(split, ((int32_t[]){ 3, 4, 4, 2 }), 4 * sizeof *split);
	/* What 1F1B holds makes the first stage the fullest: memory moves layers to the last one. */
	c = (struct fo_pp_costs){ .layer_s = 1, .layer_held = 1, .room = 13 };
	must(fo_pp_balance_of(&b, &(struct fo_pp_shape){ FO_PP_1F1B, 4, 8, 1 }, 16, &c));
	assert_true(split[0] == 3 && b.fullest <= 13);
	c.room = 5;
	assert_int_equal(fo_pp_balance_of(&b, &(struct fo_pp_shape){ FO_PP_1F1B, 4, 8, 1 }, 16, &c), FO_ENOMEM);
	assert_non_null(strstr(fo_err_text(), "no split of 16 layers over 4 stages fits"));
	assert_int_equal(fo_pp_balance_of(&b, &(struct fo_pp_shape){ FO_PP_1F1B, 4, 8, 1 }, 3, &c), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "3 layers cannot fill 4 stages"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_best_of_all_splits),
		cmocka_unit_test(test_known_splits),
	};
	return cmocka_run_group_tests_name("pipeline_balance", tests, NULL, NULL);
}
