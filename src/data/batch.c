/* A step's batch: which pieces of which documents it is made of, as a pure function of shard, seed, shape and step. */
#include "data/data_int.h"

#include "base/clock.h"
#include "base/fs.h"

#include <stdlib.h>

const char *const fo_packing_name[FO_PACK_COUNT] = { "packed", "padded", "bestfit", "split" };

/* The place, in the epoch's order, of the document that holds token `at`; with split rows, row `at`. */
static int64_t find_place(const struct epoch_order *o, int64_t at)
{
	int64_t low = 0, high = o->shard->docs; /* start[low] <= at < start[high] */
	while (high - low > 1) {
		int64_t middle = low + (high - low) / 2;
		if (o->start[middle] <= at)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Attention pairs of n tokens that attend to each other and nothing else: token i (from 0) attends to i + 1 tokens, at
 * most to the window. */
static int64_t pairs_of(int64_t n, int64_t window)
{
	int64_t hidden = window && window < n ? n - window : 0;
	return n * (n + 1) / 2 - hidden * (hidden + 1) / 2;
}

void batch_put_piece(struct fo_batch *b, int64_t micro, const struct fo_batch_shape *shape, const struct fo_shard *s,
		     int64_t doc, int64_t from, int64_t n, int64_t to)
{
	int64_t first = s->doc_at[doc] + from, end = s->doc_at[doc + 1], base = micro * shape->rows * shape->seq + to;
	for (int64_t i = 0; i < n; i++) {
		b->token[base + i] = shard_id(s, first + i);
		b->position[base + i] = (int32_t)i;
		b->doc_start[base + i] = (int32_t)to;
	}
	for (int64_t i = 0; i + 1 < n; i++)
		b->target[base + i] = b->token[base + i + 1];
	bool more = first + n < end;
	b->target[base + n - 1] = more ? shard_id(s, first + n) : -1;
	b->micro_loss_tokens[micro] += n - !more;
	b->pairs[micro] += pairs_of(n, shape->window);
	b->real_tokens += n;
}

/* Pads places from .. to of a micro-batch: each becomes a document of its own, without loss. */
static void put_padding(struct fo_batch *b, int64_t micro, int64_t width, int64_t from, int64_t to, int32_t pad_id)
{
	for (int64_t i = from; i < to; i++) {
		b->token[micro * width + i] = pad_id;
		b->target[micro * width + i] = -1;
		b->position[micro * width + i] = 0;
		b->doc_start[micro * width + i] = (int32_t)i;
	}
}

#define ROWS_STREAM 0x726f7773u /* "rows": apart from the documents' stream */

/* A bijection of [0, n): four Feistel rounds over the next even number of bits, repeated until the result is below n
 * (on average at most four times). No memory, any element at once. */
static int64_t permute(uint64_t stream, int64_t n, int64_t i)
{
	int half = 1;
	while ((int64_t)1 << 2 * half < n)
		half++;
	uint64_t mask = ((uint64_t)1 << half) - 1, x = (uint64_t)i;
	do {
		uint64_t left = x >> half, right = x & mask;
		for (uint64_t round = 0; round < 4; round++) {
			uint64_t mixed = left ^ (fo_rng_u64(stream + round, right) & mask);
			left = right;
			right = mixed;
		}
		x = left << half | right;
	} while (x >= (uint64_t)n);
	return (int64_t)x;
}

/* ---- which piece of which document lies where ---- */

/* n tokens of document doc, from its token `from` on, which lie at places to .. to + n of a row. */
struct piece {
	int64_t row, to, doc, from, n;
};
typedef void piece_fn(void *ctx, const struct piece *p);

/* Visits row `row` of a batch, which begins at token `first` of all epochs laid end to end. */
static void walk_row(struct epoch_order *orders, const struct fo_batch_shape *shape, int64_t row, int64_t first,
		     piece_fn *fn, void *ctx)
{
	const struct fo_shard *s = orders[0].shard;
	int64_t at = first % s->tokens, epoch = first / s->tokens;
	struct epoch_order *o = &orders[epoch & 1];
	epoch_order_build(o, epoch);
	int64_t place = find_place(o, at);
	for (int64_t i = 0; i < shape->seq;) {
		int64_t left = o->start[place + 1] - at, n = left < shape->seq - i ? left : shape->seq - i;
		fn(ctx, &(struct piece){ row, i, o->doc[place], at - o->start[place], n });
		i += n;
		at += n;
		if (n == left && ++place == s->docs) {
			o = &orders[++epoch & 1];
			epoch_order_build(o, epoch);
			place = at = 0;
		}
	}
}

/* Rows are drawn in random order too, block by block of about an epoch: neighbouring rows are often one long document,
 * and a step made of one document is a bad sample of the text. */
static void walk_packed(struct epoch_order *orders, const struct fo_batch_shape *shape, int64_t step, piece_fn *fn,
			void *ctx)
{
	const struct fo_shard *s = orders[0].shard;
	int64_t rows = shape->micro_batches * shape->rows,
		block_rows = s->tokens / shape->seq > 0 ? s->tokens / shape->seq : 1;
	for (int64_t row = 0; row < rows; row++) {
		int64_t global = step * rows + row, block = global / block_rows;
		uint64_t stream = fo_rng_u64(orders[0].seed ^ ROWS_STREAM, (uint64_t)block);
		walk_row(orders, shape, row,
			 (block * block_rows + permute(stream, block_rows, global % block_rows)) * shape->seq, fn, ctx);
	}
}

static void walk_padded(struct epoch_order *orders, const struct fo_batch_shape *shape, int64_t step, piece_fn *fn,
			void *ctx)
{
	const struct fo_shard *s = orders[0].shard;
	int64_t rows = shape->micro_batches * shape->rows, first = step * rows;
	for (int64_t row = 0; row < rows; row++) {
		struct epoch_order *o = &orders[(first + row) / s->docs & 1];
		epoch_order_build(o, (first + row) / s->docs);
		int64_t doc = o->doc[(first + row) % s->docs], len = shard_doc_length(s, doc);
		fn(ctx, &(struct piece){ row, 0, doc, 0, len < shape->seq ? len : shape->seq });
	}
}

/* Documents in the epoch's order, each cut into rows; then the rows are drawn as packed ones are, with the same draws:
 * where every document fills its rows, the batches are those of packed rows. */
static void walk_split(struct epoch_order *orders, const struct fo_batch_shape *shape, int64_t step, piece_fn *fn,
		       void *ctx)
{
	const struct fo_shard *s = orders[0].shard;
	int64_t rows = shape->micro_batches * shape->rows, all = orders[0].rows;
	for (int64_t row = 0; row < rows; row++) {
		int64_t global = step * rows + row, epoch = global / all;
		int64_t at = permute(fo_rng_u64(orders[0].seed ^ ROWS_STREAM, (uint64_t)epoch), all, global % all);
		struct epoch_order *o = &orders[epoch & 1];
		epoch_order_build(o, epoch);
		int64_t place = find_place(o, at), doc = o->doc[place], from = (at - o->start[place]) * shape->seq;
		int64_t left = shard_doc_length(s, doc) - from;
		fn(ctx, &(struct piece){ row, 0, doc, from, left < shape->seq ? left : shape->seq });
	}
}

/* An epoch is the plan's rows in random order. */
static void walk_bestfit(const struct fo_shard *s, uint64_t seed, const struct pack_plan *plan,
			 const struct fo_batch_shape *shape, int64_t step, piece_fn *fn, void *ctx)
{
	int64_t rows = shape->micro_batches * shape->rows;
	for (int64_t row = 0; row < rows; row++) {
		int64_t global = step * rows + row, epoch = global / plan->rows, at = 0;
		int64_t r = permute(fo_rng_u64(seed ^ ROWS_STREAM, (uint64_t)epoch), plan->rows, global % plan->rows);
		for (int64_t i = plan->row_at[r]; i < plan->row_at[r + 1]; i++) {
			int64_t doc = plan->piece[i].doc, from = plan->piece[i].from;
			int64_t left = shard_doc_length(s, doc) - from, n = left < shape->seq ? left : shape->seq;
			fn(ctx, &(struct piece){ row, at, doc, from, n });
			at += n;
		}
	}
}

static void walk(struct epoch_order *orders, const struct pack_plan *plan, const struct fo_batch_shape *shape,
		 int64_t step, piece_fn *fn, void *ctx)
{
	if (shape->packing == FO_PACK_PACKED)
		walk_packed(orders, shape, step, fn, ctx);
	else if (plan)
		walk_bestfit(orders[0].shard, orders[0].seed, plan, shape, step, fn, ctx);
	else if (shape->packing == FO_PACK_SPLIT)
		walk_split(orders, shape, step, fn, ctx);
	else
		walk_padded(orders, shape, step, fn, ctx);
}

/* ---- filling ---- */

struct filling {
	struct fo_batch *b;
	const struct fo_shard *shard;
	const struct fo_batch_shape *shape;
	int32_t pad_id;
};

static void fill_piece(void *ctx, const struct piece *p)
{
	struct filling *f = ctx;
	int64_t rows = f->shape->rows, seq = f->shape->seq, micro = p->row / rows, row = p->row % rows * seq;
	/* A row's first piece pads the rest of the row, which later pieces overwrite. Packed rows have no padding. */
	if (p->to == 0 && p->n < seq && f->shape->packing != FO_PACK_PACKED)
		put_padding(f->b, micro, rows * seq, row + p->n, row + seq, f->pad_id);
	if (f->shape->packing == FO_PACK_PADDED)
		f->b->truncated += shard_doc_length(f->shard, p->doc) - p->n;
	batch_put_piece(f->b, micro, f->shape, f->shard, p->doc, p->from, p->n, row + p->to);
}

fo_status batch_fill(struct fo_batch *b, struct epoch_order *orders, const struct pack_plan *plan,
		     const struct fo_batch_shape *shape, int32_t pad_id)
{
	static const char *const counted[] = { [FO_PACK_PACKED] = "tokens",
					       [FO_PACK_PADDED] = "documents",
					       [FO_PACK_BESTFIT] = "rows",
					       [FO_PACK_SPLIT] = "rows" };
	bool packed = shape->packing == FO_PACK_PACKED;
	int64_t unit = shape->micro_batches * shape->rows * (packed ? shape->seq : 1), end;
	/* A block of rows may reach an epoch (or a row) beyond the step's own end. */
	if (__builtin_add_overflow(b->step, 2, &end) || __builtin_mul_overflow(end, unit, &end) ||
	    __builtin_add_overflow(end, orders[0].shard->tokens, &end))
		return fo_fail(FO_EARG, "step %lld of %lld %s each is beyond what can be counted", (long long)b->step,
			       (long long)unit, counted[shape->packing]);
	b->loss_tokens = b->real_tokens = b->truncated = 0;
	for (int64_t m = 0; m < shape->micro_batches; m++)
		b->micro_loss_tokens[m] = b->pairs[m] = 0;
	struct filling f = { b, orders[0].shard, shape, pad_id };
	walk(orders, plan, shape, b->step, fill_piece, &f);
	for (int64_t m = 0; m < shape->micro_batches; m++)
		b->loss_tokens += b->micro_loss_tokens[m];
	return FO_OK;
}

/* ---- naming a batch's documents ---- */

struct asking {
	struct epoch_order order[2];
	const struct pack_plan *plan;
	const struct fo_batch_shape *shape;
	int64_t first, steps;
	batch_piece_fn *fn;
	void *ctx;
	bool enough;
};

static void name_piece(void *ctx, const struct piece *p)
{
	struct asking *a = ctx;
	if (!a->enough)
		a->enough = !a->fn(a->ctx, &(struct fo_piece){ .micro_batch = p->row / a->shape->rows,
							       .row = p->row % a->shape->rows,
							       .doc = p->doc,
							       .from = p->from,
							       .tokens = p->n });
}

static fo_status ask(void *ctx)
{
	struct asking *a = ctx;
	for (int64_t i = 0; i < a->steps && !a->enough; i++)
		walk(a->order, a->plan, a->shape, a->first + i, name_piece, a);
	return FO_OK;
}

fo_status batch_pieces(const struct fo_shard *s, const struct fo_batch_shape *shape, uint64_t seed, int64_t first,
		       int64_t steps, batch_piece_fn *fn, void *ctx)
{
	struct asking a = { .shape = shape, .first = first, .steps = steps, .fn = fn, .ctx = ctx };
	struct pack_plan plan = { 0 };
	if (shape->packing == FO_PACK_BESTFIT)
		FO_TRY(pack_plan_new(&plan, s, shape->seq));
	a.plan = plan.rows ? &plan : NULL;
	for (int i = 0; i < 2; i++) {
		a.order[i] = epoch_order_of(s, shape, seed);
		a.order[i].doc = fo_xmalloc((size_t)s->docs * sizeof(int64_t));
		a.order[i].start = fo_xmalloc(((size_t)s->docs + 1) * sizeof(int64_t));
	}
	fo_status st = fo_map_guard(ask, &a);
	for (int i = 0; i < 2; i++) {
		free(a.order[i].doc);
		free(a.order[i].start);
	}
	pack_plan_free(&plan);
	return st;
}

struct all {
	fo_piece_fn *fn;
	void *ctx;
};

static bool pass_on(void *ctx, const struct fo_piece *p)
{
	const struct all *a = ctx;
	a->fn(a->ctx, p);
	return true;
}

fo_status fo_batch_pieces(const struct fo_shard *s, const struct fo_batch_shape *shape, uint64_t seed, int64_t step,
			  fo_piece_fn *fn, void *ctx)
{
	return batch_pieces(s, shape, seed, step, 1, pass_on, &(struct all){ fn, ctx });
}
