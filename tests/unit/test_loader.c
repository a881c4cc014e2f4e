/* Batches. The shards here hold id = index of the token in the shard, so that a batch tells where each token came from
 * and every property can be checked without repeating the loader's arithmetic. */
#include "base/clock.h"
#include "data/data.h"
#include "support/must.h"
#include "support/shard.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static int64_t document_of(const struct fo_shard *s, int64_t index)
{
	int64_t d = 0;
	while (s->doc_at[d + 1] <= index)
		d++;
	return d;
}

static struct fo_loader *open_at(const struct fo_shard *s, struct fo_batch_shape shape, int64_t step, uint64_t seed)
{
	struct fo_loader *l;
	must(fo_loader_open(&l, s, &shape, &(struct fo_loader_state){ .next_step = step, .seed = seed }, 0));
	return l;
}

static const struct fo_batch *next(struct fo_loader *l)
{
	const struct fo_batch *b;
	int64_t wait_ns = -1;
	must(fo_loader_next(l, &b, &wait_ns));
	assert_true(wait_ns >= 0);
	return b;
}

/* Checks one batch alone; seen[i] counts how often token i of the shard was served as input. */
static void check_batch(const struct fo_shard *s, const struct fo_batch_shape *shape, const struct fo_batch *b,
			int *seen)
{
	int64_t width = shape->rows * shape->seq, real = 0, losses = 0;
	for (int64_t m = 0; m < shape->micro_batches; m++) {
		const int32_t *token = b->token + m * width, *target = b->target + m * width;
		const int32_t *position = b->position + m * width, *start = b->doc_start + m * width;
		int64_t pairs = 0, micro_losses = 0;
		for (int64_t i = 0; i < width; i++) {
			assert_int_equal(position[i], i - start[i]);
			if (token[i] == 0) { /* padding: alone, without loss */
				assert_true(shape->packing != FO_PACK_PACKED);
				assert_int_equal(target[i], -1);
				assert_int_equal(start[i], i);
				continue;
			}
			int64_t index = token[i] - 1, doc = document_of(s, index);
			bool last = index + 1 == s->doc_at[doc + 1];
			/* The true next token, also across a row's end; none only at the document's end. */
			assert_int_equal(target[i], last ? -1 : token[i] + 1);
			/* Its document's part begins in this row, and is contiguous from there. */
			assert_true(start[i] <= i && start[i] / shape->seq == i / shape->seq);
			assert_int_equal(token[start[i]] - 1, index - (i - start[i]));
			assert_true(token[start[i]] - 1 >= s->doc_at[doc]);
			/* A part begins with its document or with the row; of best-fit packing also behind whole rows
			 * of a document that is longer than one. */
			int64_t behind = token[start[i]] - 1 - s->doc_at[doc];
			assert_true(behind == 0 || start[i] % shape->seq == 0 ||
				    (shape->packing == FO_PACK_BESTFIT && behind % shape->seq == 0));
			seen[index]++;
			real++;
			micro_losses += !last;
			int64_t keys = i - start[i] + 1;
			pairs += shape->window && shape->window < keys ? shape->window : keys;
		}
		assert_int_equal(b->pairs[m], pairs);
		assert_int_equal(b->micro_loss_tokens[m], micro_losses);
		losses += micro_losses;
	}
	assert_int_equal(b->real_tokens, real);
	assert_int_equal(b->loss_tokens, losses);
}

static bool same_batch(const struct fo_batch *a, const struct fo_batch *b, const struct fo_batch_shape *shape)
{
	size_t n = (size_t)(shape->rows * shape->seq * shape->micro_batches) * sizeof(int32_t);
	size_t m = (size_t)shape->micro_batches * sizeof(int64_t);
	return !memcmp(a->token, b->token, n) && !memcmp(a->target, b->target, n) &&
	       !memcmp(a->position, b->position, n) && !memcmp(a->doc_start, b->doc_start, n) &&
	       !memcmp(a->micro_loss_tokens, b->micro_loss_tokens, m) && !memcmp(a->pairs, b->pairs, m) &&
	       a->step == b->step && a->loss_tokens == b->loss_tokens && a->real_tokens == b->real_tokens &&
	       a->truncated == b->truncated;
}

static void test_packed_serves_every_token_once_per_epoch(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(60, 20, 3);
	struct fo_batch_shape shape = {
		.seq = 16, .rows = 3, .micro_batches = 2, .packing = FO_PACK_PACKED, .window = 5
	};
	int64_t per_step = 16 * 3 * 2;
	int *seen = calloc((size_t)s.tokens, sizeof *seen);
	struct fo_loader *l = open_at(&s, shape, 0, 5);
	int64_t served = 0, block_rows = s.tokens / 16, whole_blocks = 0;
	for (int64_t step = 0; step < 60; step++) {
		const struct fo_batch *b = next(l);
		assert_int_equal(b->step, step);
		assert_int_equal(b->truncated, 0);
		assert_int_equal(b->real_tokens, per_step); /* rows are always full */
		check_batch(&s, &shape, b, seen);
		served += per_step;
		/* Where a block of rows ends, every token was seen equally often, give or take one. Within a block rows
		 * come in random order, and a block may hold the end of one epoch and the beginning of the next. */
		bool whole = (step + 1) * 6 % block_rows == 0;
		whole_blocks += whole;
		for (int64_t i = 0; i < s.tokens; i++)
			assert_in_range(seen[i] + 1, served / s.tokens + whole, served / s.tokens + (whole ? 2 : 3));
	}
	assert_true(served > 5 * s.tokens && whole_blocks > 0); /* several epochs, whose ends fell inside rows */
	fo_loader_close(l);
	free(seen);
	drop_shard(&s);
}

/* A document much longer than a row must not fill a batch: rows are drawn in random order. */
static void test_packed_rows_are_mixed(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(4, 4000, 9);
	struct fo_batch_shape shape = { .seq = 16, .rows = 8, .micro_batches = 1, .packing = FO_PACK_PACKED };
	struct fo_loader *l = open_at(&s, shape, 0, 5);
	int neighbours = 0, rows = 0;
	for (int64_t step = 0; step < 40; step++) {
		const struct fo_batch *b = next(l);
		for (int64_t row = 1; row < 8; row++, rows++)
			neighbours += b->token[row * 16] == b->token[(row - 1) * 16 + 15] + 1;
	}
	assert_true(neighbours * 20 < rows);
	fo_loader_close(l);
	drop_shard(&s);
}

static void test_packed_rows_longer_than_the_shard(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(3, 4, 1);
	struct fo_batch_shape shape = { .seq = 100, .rows = 2, .micro_batches = 1, .packing = FO_PACK_PACKED };
	int *seen = calloc((size_t)s.tokens, sizeof *seen);
	struct fo_loader *l = open_at(&s, shape, 0, 5);
	for (int64_t step = 0; step < 20; step++)
		check_batch(&s, &shape, next(l), seen);
	for (int64_t i = 0; i < s.tokens; i++)
		assert_in_range(seen[i], 20 * 200 / s.tokens, 20 * 200 / s.tokens + 1);
	fo_loader_close(l);
	free(seen);
	drop_shard(&s);
}

static void test_padded_counts_waste_and_truncation(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(60, 20, 3);
	struct fo_batch_shape shape = {
		.seq = 16, .rows = 5, .micro_batches = 2, .packing = FO_PACK_PADDED, .window = 7
	};
	int *seen = calloc((size_t)s.tokens, sizeof *seen);
	struct fo_loader *l = open_at(&s, shape, 0, 5);
	int64_t real = 0, truncated = 0;
	for (int64_t step = 0; step < 12; step++) { /* 10 documents a step: two epochs */
		const struct fo_batch *b = next(l);
		check_batch(&s, &shape, b, seen);
		real += b->real_tokens;
		truncated += b->truncated;
		for (int64_t row = 0; row < 10; row++) {
			int32_t first = b->token[row * 16] - 1;
			assert_int_equal(first, s.doc_at[document_of(&s, first)]); /* each row begins a document */
		}
	}
	assert_int_equal(real + truncated, 2 * s.tokens);
	assert_true(truncated > 0 && real < 12 * 160);
	for (int64_t d = 0; d < s.docs; d++)
		for (int64_t i = s.doc_at[d]; i < s.doc_at[d + 1]; i++)
			assert_int_equal(seen[i], i - s.doc_at[d] < 16 ? 2 : 0);
	fo_loader_close(l);
	free(seen);
	drop_shard(&s);
}

/* Split: in each epoch every token once, a document's part alone in its row, none of them shorter than it must be. */
static void test_split_serves_every_token_once_per_epoch(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(60, 20, 3);
	struct fo_batch_shape shape = {
		.seq = 16, .rows = 1, .micro_batches = 1, .packing = FO_PACK_SPLIT, .window = 7
	};
	struct fo_packing_cost cost;
	must(fo_packing_measure(&s, 16, FO_PACK_SPLIT, 5, &cost));
	int64_t rows = 0, padding = 0;
	for (int64_t d = 0; d < s.docs; d++)
		rows += (s.doc_at[d + 1] - s.doc_at[d] + 15) / 16;
	assert_true(cost.rows == (double)rows && cost.truncated == 0 && cost.cut_docs == 0);
	int *seen = calloc((size_t)s.tokens, sizeof *seen);
	struct fo_loader *l = open_at(&s, shape, 0, 5);
	for (int epoch = 0; epoch < 3; epoch++) {
		int64_t moved = 0, before = -1;
		for (int64_t row = 0; row < rows; row++) {
			const struct fo_batch *b = next(l);
			int64_t first = b->token[0] - 1, doc = document_of(&s, first), left = s.doc_at[doc + 1] - first;
			check_batch(&s, &shape, b, seen);
			assert_int_equal((first - s.doc_at[doc]) % 16, 0);
			assert_int_equal(b->real_tokens, left < 16 ? left : 16);
			assert_int_equal(b->truncated, 0);
			padding += 16 - b->real_tokens;
			moved += first < before;
			before = first;
		}
		assert_true(moved > rows / 4); /* rows come in random order */
		for (int64_t i = 0; i < s.tokens; i++)
			assert_int_equal(seen[i], epoch + 1);
	}
	assert_int_equal(padding, 3 * (int64_t)cost.padding);
	fo_loader_close(l);
	free(seen);
	drop_shard(&s);
}

/* Where every document fills its rows there is nothing to pad, and split rows are packed ones: the same batches. */
static void test_split_is_packed_where_nothing_is_padded(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(40, 60, 8);
	int64_t *at = (int64_t *)(uintptr_t)s.doc_at;
	for (int64_t d = 0; d <= s.docs; d++) /* of the first tokens, so that there are ids for all */
		at[d] = d < s.docs ? d * (s.tokens / 8 / s.docs) * 8 : s.tokens / 8 * 8;
	s.tokens = at[s.docs];
	struct fo_batch_shape packed = { 8, 2, 3, FO_PACK_PACKED, 0, 0, 0 },
			      split = { 8, 2, 3, FO_PACK_SPLIT, 0, 0, 0 };
	struct fo_loader *a = open_at(&s, packed, 0, 11), *b = open_at(&s, split, 0, 11);
	for (int64_t step = 0; step < 60; step++)
		assert_true(same_batch(next(a), next(b), &packed));
	fo_loader_close(a);
	fo_loader_close(b);
	drop_shard(&s);
}

/* What the batches of some steps hold, counted token by token. */
static void test_text_seen(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(60, 40, 3);
	static const int64_t some[] = { 1, 3, 10, 90 };
	for (int packing = 0; packing < FO_PACK_COUNT; packing++) {
		struct fo_batch_shape shape = { 32, 2, 2, (enum fo_packing)packing, 0, 0, 0 };
		struct fo_loader *l = open_at(&s, shape, 0, 9);
		int *seen = calloc((size_t)s.tokens, sizeof *seen);
		int64_t served = 0, step = 0, over = 0;
		for (int64_t d = 0; d < s.docs && packing == FO_PACK_PADDED; d++)
			over += s.doc_at[d + 1] - s.doc_at[d] > 32 ? s.doc_at[d + 1] - s.doc_at[d] - 32 : 0;
		for (int i = 0; i < 4; i++) {
			for (; step < some[i]; step++) {
				const struct fo_batch *b = next(l);
				check_batch(&s, &shape, b, seen);
				served += b->real_tokens;
			}
			int64_t distinct = 0;
			for (int64_t k = 0; k < s.tokens; k++)
				distinct += seen[k] > 0;
			struct fo_text_seen got;
			must(fo_text_seen(&s, &shape, 9, some[i], NULL, &got));
			assert_int_equal(got.served, served);
			assert_int_equal(got.distinct, distinct);
			assert_int_equal(got.reached, s.tokens - over);
			assert_true(i < 3 || distinct == got.reached); /* ninety steps are some epochs */
		}
		fo_loader_close(l);
		free(seen);
		volatile sig_atomic_t stop = 1;
		struct fo_text_seen got;
		assert_int_equal(fo_text_seen(&s, &shape, 9, 5, &stop, &got), FO_EINTERRUPT);
	}
	drop_shard(&s);
}

/* Best fit: in each epoch every token once, no document cut that fits into a row, rows no more than a plain packing by
 * hand needs, and the waste as it is told. */
static void test_bestfit_keeps_documents_whole(void **state)
{
	(void)state;
	static const int64_t lengths[] = { 1, 2, 63, 64, 65, 200, 1000 };
	for (int seq_at = 0; seq_at < 7; seq_at++) {
		int64_t seq = lengths[seq_at];
		struct fo_shard s = make_shard(150, 60, 11);
		struct fo_batch_shape shape = { .seq = seq, .rows = 1, .micro_batches = 1, .packing = FO_PACK_BESTFIT };
		struct fo_packing_cost cost;
		must(fo_packing_measure(&s, seq, FO_PACK_BESTFIT, 5, &cost));
		int64_t rows = (int64_t)cost.rows, padding = 0, cut = 0, whole = 0;
		int *seen = calloc((size_t)s.tokens, sizeof *seen);
		struct fo_loader *l = open_at(&s, shape, 0, 5);
		for (int epoch = 0; epoch < 3; epoch++) {
			for (int64_t row = 0; row < rows; row++) {
				const struct fo_batch *b = next(l);
				check_batch(&s, &shape, b, seen);
				assert_int_equal(b->truncated, 0);
				padding += seq - b->real_tokens;
				for (int64_t i = 0; i < seq;
				     i++) { /* each first token of a part: is the part a whole document? */
					if (!b->token[i] || b->doc_start[i] != i)
						continue;
					int64_t n = 1, d = document_of(&s, b->token[i] - 1);
					while (i + n < seq && b->token[i + n] && b->doc_start[i + n] == i)
						n++;
					whole += n == s.doc_at[d + 1] - s.doc_at[d];
					cut += n < s.doc_at[d + 1] - s.doc_at[d] &&
					       s.doc_at[d + 1] - s.doc_at[d] <= seq;
				}
			}
			for (int64_t i = 0; i < s.tokens; i++)
				assert_int_equal(seen[i], epoch + 1);
		}
		assert_int_equal(cut, 0);
		assert_int_equal(cost.cut_docs, 0);
		assert_int_equal(whole, 3 * (s.docs - cost.long_docs));
		assert_int_equal(padding, 3 * (int64_t)cost.padding);
		assert_int_equal(rows * seq - s.tokens, (int64_t)cost.padding);
		/* Best-fit decreasing needs at most 11/9 of the fewest rows possible, and 1 (Johnson 1973). */
		assert_true((double)rows <= 11.0 / 9 * (double)(s.tokens / seq + 1) + (double)cost.long_docs + 1 ||
			    seq <= 60);
		fo_loader_close(l);
		free(seen);
		drop_shard(&s);
	}
}

/* The rows of best-fit packing by another way: each piece, longest first, looks at every row there is. */
static void test_bestfit_is_best_fit(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(400, 90, 21);
	for (int64_t seq = 3; seq <= 300; seq += 27) {
		struct fo_packing_cost cost;
		int64_t *room = calloc((size_t)s.tokens, sizeof *room), rows = 0;
		must(fo_packing_measure(&s, seq, FO_PACK_BESTFIT, 0, &cost));
		for (int64_t d = 0; d < s.docs; d++)
			for (int64_t n = (s.doc_at[d + 1] - s.doc_at[d]) / seq; n > 0; n--)
				room[rows++] = 0;
		for (int64_t len = seq - 1; len > 0; len--)
			for (int64_t d = 0; d < s.docs; d++) {
				if ((s.doc_at[d + 1] - s.doc_at[d]) % seq != len)
					continue;
				int64_t best = -1;
				for (int64_t r = 0; r < rows; r++)
					if (room[r] >= len && (best < 0 || room[r] < room[best]))
						best = r;
				if (best < 0)
					room[best = rows++] = seq;
				room[best] -= len;
			}
		assert_int_equal((int64_t)cost.rows, rows);
		free(room);
	}
	drop_shard(&s);
}

static void test_costs_of_packings(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(60, 20, 3);
	struct fo_packing_cost c;
	int64_t over = 0, longer = 0, cut = 0;
	for (int64_t d = 0; d < s.docs; d++) {
		int64_t n = s.doc_at[d + 1] - s.doc_at[d];
		longer += n > 16;
		over += n > 16 ? n - 16 : 0;
	}
	must(fo_packing_measure(&s, 16, FO_PACK_PADDED, 5, &c));
	assert_true(c.rows == (double)s.docs && c.truncated == over && c.long_docs == longer && c.cut_docs == 0);
	assert_true(c.padding == (double)(16 * s.docs - (s.tokens - over)));
	must(fo_packing_measure(&s, 16, FO_PACK_PACKED, 5, &c));
	assert_true(c.padding == 0 && c.truncated == 0);
	/* The loader's first epoch, where it lies in one piece: rows of one token less than all there is. */
	struct fo_batch_shape shape = { .seq = s.tokens, .rows = 1, .micro_batches = 1, .packing = FO_PACK_PACKED };
	struct fo_loader *l = open_at(&s, shape, 0, 5);
	const struct fo_batch *b = next(l);
	for (int64_t i = 0, n; i < s.tokens; i += n) {
		int64_t d = document_of(&s, b->token[i] - 1);
		n = s.doc_at[d + 1] - s.doc_at[d];
		cut += n <= 16 && i / 16 != (i + n - 1) / 16;
	}
	assert_int_equal(c.cut_docs, cut);
	assert_true(cut > 0);
	fo_loader_close(l);
	assert_int_equal(fo_packing_measure(&s, 0, FO_PACK_PACKED, 5, &c), FO_EARG);
	drop_shard(&s);
}

static void test_resume_at_any_step_gives_the_same_bytes(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(40, 30, 8);
	for (int packing = 0; packing < FO_PACK_COUNT; packing++) {
		struct fo_batch_shape shape = { 32, 2, 3, (enum fo_packing)packing, 0, 0, 0 };
		struct fo_loader *whole = open_at(&s, shape, 0, 11);
		for (int64_t step = 0; step < 40; step++) {
			struct fo_loader_state at = fo_loader_state(whole);
			assert_int_equal(at.next_step, step);
			assert_int_equal(at.seed, 11);
			assert_int_equal(at.shard_checksum, s.checksum);
			const struct fo_batch *want = next(whole), *got;
			struct fo_loader *l;
			int64_t wait_ns;
			must(fo_loader_open(&l, &s, &shape, &at, 0));
			must(fo_loader_next(l, &got, &wait_ns));
			assert_true(same_batch(want, got, &shape));
			fo_loader_close(l);
		}
		fo_loader_close(whole);
	}
	drop_shard(&s);
}

static void test_order_depends_on_seed_and_epoch(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(64, 1, 8);
	free((void *)(uintptr_t)s.doc_at);
	int64_t *at = calloc(65, sizeof *at); /* documents of equal length: epochs and steps coincide */
	for (int64_t d = 0; d <= 64; d++)
		at[d] = d;
	s.doc_at = at;
	s.docs = s.tokens = 64;
	struct fo_batch_shape shape = { 64, 1, 1, FO_PACK_PACKED, 0, 0, 0 };
	int32_t order[4][64];
	for (int seed = 0; seed < 2; seed++) {
		struct fo_loader *l = open_at(&s, shape, 0, (uint64_t)seed);
		for (int epoch = 0; epoch < 2; epoch++)
			memcpy(order[seed * 2 + epoch], next(l)->token, sizeof order[0]);
		fo_loader_close(l);
	}
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < i; k++) {
			int same = 0;
			for (int d = 0; d < 64; d++)
				same += order[i][d] == order[k][d];
			assert_in_range(same, 0, 12); /* two random permutations agree in one place on average */
		}
	drop_shard(&s);
}

static void test_a_batch_stays_until_the_next_call(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(40, 30, 8);
	struct fo_batch_shape shape = { 64, 2, 1, FO_PACK_PACKED, 0, 0, 0 };
	struct fo_loader *l = open_at(&s, shape, 0, 1);
	int32_t copy[128];
	uint64_t allocations = fo_mem_count();
	for (int step = 0; step < 50; step++) {
		const struct fo_batch *b = next(l);
		memcpy(copy, b->token, sizeof copy);
		if (step % 10 == 0) /* time for the thread to run ahead as far as it can */
			nanosleep(&(struct timespec){ .tv_nsec = 3000000 }, NULL);
		assert_memory_equal(copy, b->token, sizeof copy);
		assert_int_equal(b->step, step);
	}
	assert_true(fo_mem_count() == allocations);
	fo_loader_close(l);
	drop_shard(&s);
}

/* The batch behind the one in hand can be looked at as soon as it is there, changes nothing, and is the one that comes.
 */
static void test_looking_ahead(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(40, 30, 8);
	struct fo_batch_shape shape = { 64, 2, 1, FO_PACK_PACKED, 0, 0, 0 };
	struct fo_loader *l = open_at(&s, shape, 5, 1);
	int32_t copy[128];
	for (int step = 5; step < 55; step++) {
		const struct fo_batch *ahead, *b = next(l);
		int32_t token = b->token[0];
		while (!(ahead = fo_loader_peek(l)))
			nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
		assert_true(ahead == fo_loader_peek(l) && ahead != b && ahead->step == step + 1);
		memcpy(copy, ahead->token, sizeof copy);
		assert_true(b->step == step && b->token[0] == token && fo_loader_state(l).next_step == step + 1);
		if (step % 10 == 0) {
			assert_true(next(l) == ahead && ahead->step == step + 1);
			assert_memory_equal(copy, ahead->token, sizeof copy);
			step++;
		}
	}
	fo_loader_close(l);
	drop_shard(&s);
}

static void test_open_and_close_at_any_moment(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(200, 50, 2);
	struct fo_batch_shape shape = { 128, 4, 2, FO_PACK_PADDED, 0, 0, 0 };
	for (int i = 0; i < 60; i++) {
		struct fo_loader *l = open_at(&s, shape, i, 1);
		for (int k = 0; k < i % 6; k++)
			(void)next(l);
		if (i % 3 == 0)
			nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
		fo_loader_close(l);
	}
	fo_loader_close(NULL);
	drop_shard(&s);
}

struct naming {
	const struct fo_shard *s;
	const struct fo_batch_shape *shape;
	const struct fo_batch *b;
	int64_t tokens;
	int64_t row, to; /* where the next piece must begin */
};

static bool check_piece(void *ctx, const struct fo_piece *p)
{
	struct naming *n = ctx;
	int64_t row = p->micro_batch * n->shape->rows + p->row;
	if (row != n->row)
		n->row = row, n->to = 0;
	assert_true(p->doc >= 0 && p->doc < n->s->docs && p->tokens > 0 && p->from >= 0);
	assert_true(n->s->doc_at[p->doc] + p->from + p->tokens <= n->s->doc_at[p->doc + 1]);
	/* An id is its token's place in the shard: the batch itself says whose it is. */
	for (int64_t i = 0; i < p->tokens; i++)
		assert_int_equal(n->b->token[row * n->shape->seq + n->to + i], n->s->doc_at[p->doc] + p->from + i + 1);
	n->to += p->tokens;
	n->tokens += p->tokens;
	return true;
}

static void test_pieces_name_the_documents_of_a_batch(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(30, 40, 5);
	for (int packing = 0; packing < FO_PACK_COUNT; packing++) {
		struct fo_batch_shape shape = {
			.seq = 16, .rows = 3, .micro_batches = 2, .packing = (enum fo_packing)packing
		};
		struct fo_loader *l = open_at(&s, shape, 0, 9);
		for (int64_t step = 0; step < 40; step++) { /* several epochs */
			struct naming n = { .s = &s, .shape = &shape, .b = next(l), .row = -1 };
			must(fo_batch_pieces(&s, &shape, 9, step, 1, check_piece, &n));
			assert_int_equal(n.tokens, n.b->real_tokens);
		}
		fo_loader_close(l);
	}
	drop_shard(&s);
}

/* What each of several ranks fills in is its rows of the whole batch, and counts are the whole's. */
static void test_ranks_fill_in_their_own_rows(void **state)
{
	(void)state;
	enum { ROWS = 6, SEQ = 16, MICRO = 2, RANKS = 3, OWN = ROWS / RANKS };
	struct fo_shard s = make_shard(60, 40, 3);
	for (int packing = 0; packing < FO_PACK_COUNT; packing++) {
		struct fo_batch_shape shape = { .seq = SEQ,
						.rows = ROWS,
						.micro_batches = MICRO,
						.packing = (enum fo_packing)packing,
						.window = 7 };
		struct fo_loader *whole = open_at(&s, shape, 0, 9), *part[RANKS];
		for (int r = 0; r < RANKS; r++) {
			struct fo_batch_shape own = shape;
			own.first_row = r * OWN;
			own.own_rows = OWN;
			part[r] = open_at(&s, own, 0, 9);
		}
		for (int64_t step = 0; step < 30; step++) { /* several epochs */
			const struct fo_batch *all = next(whole);
			for (int r = 0; r < RANKS; r++) {
				const struct fo_batch *b = next(part[r]);
				assert_int_equal(b->loss_tokens, all->loss_tokens);
				assert_int_equal(b->real_tokens, all->real_tokens);
				assert_int_equal(b->truncated, all->truncated);
				for (int m = 0; m < MICRO; m++) {
					const int64_t at = (m * ROWS + r * OWN) * SEQ, own = m * OWN * SEQ;
					assert_int_equal(b->pairs[m], all->pairs[m]);
					assert_int_equal(b->micro_loss_tokens[m], all->micro_loss_tokens[m]);
					for (int64_t i = 0; i < OWN * SEQ; i++) {
						assert_int_equal(b->token[own + i], all->token[at + i]);
						assert_int_equal(b->target[own + i], all->target[at + i]);
						assert_int_equal(b->position[own + i], all->position[at + i]);
						assert_int_equal(b->doc_start[own + i] + r * OWN * SEQ,
								 all->doc_start[at + i]);
					}
				}
			}
		}
		fo_loader_close(whole);
		for (int r = 0; r < RANKS; r++)
			fo_loader_close(part[r]);
	}
	drop_shard(&s);
}

static void test_an_error_in_the_thread_reaches_the_caller(void **state)
{
	(void)state;
	struct fo_shard s = make_shard(20, 10, 2);
	for (int packing = 0; packing < 2; packing++) {
		struct fo_batch_shape shape = { 8, 2, 1, packing ? FO_PACK_PADDED : FO_PACK_PACKED, 0, 0, 0 };
		int64_t unit = packing ? 2 : 16, last = (INT64_MAX - s.tokens) / unit - 2;
		struct fo_loader *l = open_at(&s, shape, last - 1, 1);
		int *seen = calloc((size_t)s.tokens, sizeof *seen);
		check_batch(&s, &shape, next(l), seen); /* the last steps that can be counted are right */
		check_batch(&s, &shape, next(l), seen);
		free(seen);
		const struct fo_batch *b;
		int64_t wait_ns;
		for (int i = 0; i < 2; i++) {
			fo_err_clear();
			assert_int_equal(fo_loader_next(l, &b, &wait_ns), FO_EARG);
			assert_non_null(strstr(fo_err_text(), "beyond what can be counted"));
			assert_int_equal(fo_loader_state(l).next_step, last + 1);
		}
		fo_loader_close(l);
	}
	drop_shard(&s);
}

static void test_bad_arguments(void **state)
{
	(void)state;
	static const struct {
		struct fo_batch_shape shape;
		struct fo_loader_state state;
		int32_t pad;
		fo_status st;
		const char *says;
	} bad[] = {
		{ { 0, 1, 1, FO_PACK_PACKED, 0, 0, 0 }, { 0 }, 0, FO_EARG, "at least 1" },
		{ { 8, -1, 1, FO_PACK_PACKED, 0, 0, 0 }, { 0 }, 0, FO_EARG, "at least 1" },
		{ { 8, 1, 0, FO_PACK_PACKED, 0, 0, 0 }, { 0 }, 0, FO_EARG, "at least 1" },
		{ { 65536, 65536, 1, FO_PACK_PACKED, 0, 0, 0 }, { 0 }, 0, FO_EARG, "too large" },
		{ { INT64_MAX, INT64_MAX, 1, FO_PACK_PACKED, 0, 0, 0 }, { 0 }, 0, FO_EARG, "too large" },
		{ { 1024, 1024, INT64_MAX / 2, FO_PACK_PADDED, 0, 0, 0 }, { 0 }, 0, FO_EARG, "too large" },
		{ { 1024, 1024, (int64_t)1 << 36, FO_PACK_PADDED, 0, 0, 0 }, { 0 }, 0, FO_ENOMEM, "memory" },
		{ { 8, 1, 1, (enum fo_packing)7, 0, 0, 0 }, { 0 }, 0, FO_EARG, "packing 7" },
		{ { 8, 1, 1, FO_PACK_PACKED, 0, 0, 0 }, { 0 }, -1, FO_EARG, "padding id is -1" },
		{ { 8, 1, 1, FO_PACK_PACKED, 0, 0, 0 }, { 0 }, 1 << 30, FO_EARG, "padding id" },
		{ { 8, 1, 1, FO_PACK_PACKED, 0, 0, 0 }, { .next_step = -1 }, 0, FO_EARG, "step -1" },
		{ { 8, 1, 1, FO_PACK_PACKED, 0, 0, 0 }, { .shard_checksum = 5 }, 0, FO_EARG, "the data changed" },
	};
	struct fo_shard s = make_shard(20, 10, 2);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct fo_loader *l = NULL;
		assert_int_equal(fo_loader_open(&l, &s, &bad[i].shape, &bad[i].state, bad[i].pad), bad[i].st);
		assert_null(l);
		if (!strstr(fo_err_text(), bad[i].says))
			fail_msg("expected '%s' in: %s", bad[i].says, fo_err_text());
	}
	drop_shard(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_packed_serves_every_token_once_per_epoch),
		cmocka_unit_test(test_packed_rows_are_mixed),
		cmocka_unit_test(test_packed_rows_longer_than_the_shard),
		cmocka_unit_test(test_padded_counts_waste_and_truncation),
		cmocka_unit_test(test_split_serves_every_token_once_per_epoch),
		cmocka_unit_test(test_split_is_packed_where_nothing_is_padded),
		cmocka_unit_test(test_text_seen),
		cmocka_unit_test(test_bestfit_keeps_documents_whole),
		cmocka_unit_test(test_bestfit_is_best_fit),
		cmocka_unit_test(test_costs_of_packings),
		cmocka_unit_test(test_resume_at_any_step_gives_the_same_bytes),
		cmocka_unit_test(test_order_depends_on_seed_and_epoch),
		cmocka_unit_test(test_a_batch_stays_until_the_next_call),
		cmocka_unit_test(test_looking_ahead),
		cmocka_unit_test(test_open_and_close_at_any_moment),
		cmocka_unit_test(test_pieces_name_the_documents_of_a_batch),
		cmocka_unit_test(test_ranks_fill_in_their_own_rows),
		cmocka_unit_test(test_an_error_in_the_thread_reaches_the_caller),
		cmocka_unit_test(test_bad_arguments),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
