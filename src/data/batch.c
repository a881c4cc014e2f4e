/* A step's batch: which pieces of which documents it is made of, as a pure function of shard, seed, shape and step. */
#include "data/data_int.h"

#include "base/clock.h"
#include "base/count.h"
#include "base/fs.h"

#include <stdlib.h>

const char *const fo_packing_name[FO_PACK_COUNT] = { "packed", "padded", "bestfit", "split" };

/* ---- the order of a shard's documents in an epoch ---- */

struct epoch_order epoch_order_of(const struct fo_shard *s, const struct fo_batch_shape *shape, uint64_t seed)
{
	struct epoch_order o = { .shard = s, .seed = seed, .epoch = -1 };
	if (shape->packing == FO_PACK_SPLIT) {
		o.seq = shape->seq;
		o.rows = pack_pieces(s, shape->seq);
	}
	return o;
}

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

/* Tokens of a piece that are not in the rows which the shape fills in are counted only. */
static void fill_in(struct fo_batch *b, const struct fo_batch_shape *shape, const struct fo_shard *s,
		    const struct fo_piece *p)
{
	int64_t first = s->doc_at[p->doc] + p->from, n = p->tokens, row = (p->row - shape->first_row) * shape->seq,
		base = p->micro_batch * fo_batch_own_rows(shape) * shape->seq + row + p->at;
	for (int64_t i = 0; i < n; i++) {
		b->token[base + i] = shard_id(s, first + i);
		b->position[base + i] = (int32_t)i;
		b->doc_start[base + i] = (int32_t)(row + p->at);
	}
	for (int64_t i = 0; i + 1 < n; i++)
		b->target[base + i] = b->token[base + i + 1];
	bool more = first + n < s->doc_at[p->doc + 1];
	b->target[base + n - 1] = more ? shard_id(s, first + n) : -1;
}

static bool is_own(const struct fo_batch_shape *shape, int64_t row)
{
	return row >= shape->first_row && row < shape->first_row + fo_batch_own_rows(shape);
}

void batch_put_piece(struct fo_batch *b, const struct fo_batch_shape *shape, const struct fo_shard *s,
		     const struct fo_piece *p)
{
	int64_t n = p->tokens;
	bool more = p->from + n < shard_doc_length(s, p->doc);
	if (is_own(shape, p->row))
		fill_in(b, shape, s, p);
	b->micro_loss_tokens[p->micro_batch] += n - !more;
	b->pairs[p->micro_batch] += pairs_of(n, shape->window);
	b->real_tokens += n;
}

void batch_pad(struct fo_batch *b, int64_t micro, int64_t width, int64_t from, int64_t to, int32_t pad_id)
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

/* A visit of the pieces of steps; `enough`: the visitor wants no more. */
struct visit {
	struct batches *of;
	fo_piece_fn *fn;
	void *ctx;
	bool enough;
};

/* Shows a piece: at place `at` of a step's row `row`, of document `doc` from its token `from` on, to its end or that of
 * the row. Returns the piece's length. */
static int64_t show(struct visit *v, int64_t row, int64_t at, int64_t doc, int64_t from)
{
	const struct fo_batch_shape *shape = &v->of->shape;
	int64_t n = fo_min(shard_doc_length(v->of->shard, doc) - from, shape->seq - at);
	if (!v->enough)
		v->enough = !v->fn(v->ctx,
				   &(struct fo_piece){ row / shape->rows, row % shape->rows, at, doc, from, n });
	return n;
}

/* NULL: there is none, and the walk is over. */
static const struct epoch_order *order_of(struct visit *v, int64_t epoch)
{
	struct batches *b = v->of;
	b->st = epoch_order_build(&b->order[epoch & 1], epoch);
	v->enough |= b->st != FO_OK;
	return b->st == FO_OK ? &b->order[epoch & 1] : NULL;
}

/* Rows are drawn in random order, block by block of `rows` of them. */
static int64_t drawn(const struct batches *b, int64_t rows, int64_t global)
{
	int64_t block = global / rows;
	uint64_t stream = fo_rng_u64(b->seed ^ ROWS_STREAM, (uint64_t)block);
	return block * rows + permute(stream, rows, global % rows);
}

/* All epochs laid end to end and cut into rows. The rows are drawn, too, block by block of about an epoch: neighbouring
 * rows are often one long document, and a step made of one document is a bad sample of the text. */
static void walk_packed(struct visit *v, int64_t row, int64_t global)
{
	struct batches *b = v->of;
	const struct fo_shard *s = b->shard;
	int64_t seq = b->shape.seq, first = drawn(b, fo_max(s->tokens / seq, 1), global) * seq;
	int64_t epoch = first / s->tokens, at = first % s->tokens;
	const struct epoch_order *o = order_of(v, epoch);
	int64_t place = o ? find_place(o, at) : 0;
	for (int64_t i = 0; o && i < seq;) {
		int64_t n = show(v, row, i, o->doc[place], at - o->start[place]);
		i += n;
		at += n;
		if (at == o->start[place + 1] && ++place == s->docs) {
			o = order_of(v, ++epoch);
			place = at = 0;
		}
	}
}

static void walk_padded(struct visit *v, int64_t row, int64_t global)
{
	int64_t docs = v->of->shard->docs;
	const struct epoch_order *o = order_of(v, global / docs);
	if (o)
		show(v, row, 0, o->doc[global % docs], 0);
}

/* Documents in the epoch's order, each cut into rows; then the rows are drawn as packed ones are, with the same draws:
 * where every document fills its rows, the batches are those of packed rows. */
static void walk_split(struct visit *v, int64_t row, int64_t global)
{
	struct batches *b = v->of;
	int64_t rows = b->order[0].rows, at = drawn(b, rows, global) % rows;
	const struct epoch_order *o = order_of(v, global / rows);
	if (!o)
		return;
	int64_t place = find_place(o, at);
	show(v, row, 0, o->doc[place], (at - o->start[place]) * b->shape.seq);
}

/* An epoch is the plan's rows in random order. */
static void walk_bestfit(struct visit *v, int64_t row, int64_t global)
{
	const struct pack_plan *plan = &v->of->plan;
	int64_t r = drawn(v->of, plan->rows, global) % plan->rows, at = 0;
	for (int64_t i = plan->row_at[r]; i < plan->row_at[r + 1]; i++)
		at += show(v, row, at, plan->piece[i].doc, plan->piece[i].from);
}

/* False: the visitor wants no more. */
static bool walk(struct batches *b, int64_t step, fo_piece_fn *fn, void *ctx)
{
	static void (*const walk_row[])(struct visit *, int64_t, int64_t) = { [FO_PACK_PACKED] = walk_packed,
									      [FO_PACK_PADDED] = walk_padded,
									      [FO_PACK_BESTFIT] = walk_bestfit,
									      [FO_PACK_SPLIT] = walk_split };
	struct visit v = { b, fn, ctx, false };
	int64_t rows = b->shape.micro_batches * b->shape.rows;
	for (int64_t row = 0; row < rows && !v.enough; row++)
		walk_row[b->shape.packing](&v, row, step * rows + row);
	return !v.enough;
}

fo_status batches_init(struct batches *b, const struct fo_shard *s, const struct fo_batch_shape *shape, uint64_t seed,
		       struct fo_order_share *share)
{
	*b = (struct batches){ .shard = s, .shape = *shape, .seed = seed };
	for (int i = 0; i < 2; i++) {
		b->order[i] = epoch_order_of(s, shape, seed);
		b->order[i].share = share;
	}
	if (shape->packing != FO_PACK_BESTFIT)
		return FO_OK;
	return share ? pack_plan_shared(&b->plan, s, shape->seq, share) : pack_plan_new(&b->plan, s, shape->seq);
}

int64_t fo_order_bytes(const struct fo_shard *s, const struct fo_batch_shape *shape)
{
	if (shape->packing == FO_PACK_BESTFIT)
		return pack_plan_bytes(pack_pieces(s, shape->seq));
	return (int64_t)(EPOCH_ORDER_WORDS(s->docs) * sizeof(int64_t));
}

/* ---- filling ---- */

struct filling {
	struct fo_batch *b;
	const struct batches *from;
	int32_t pad_id;
};

static bool fill_piece(void *ctx, const struct fo_piece *p)
{
	const struct filling *f = ctx;
	const struct fo_batch_shape *shape = &f->from->shape;
	int64_t row = (p->row - shape->first_row) * shape->seq;
	/* A row's first piece pads the rest of the row, which later pieces overwrite. Packed rows have no padding. */
	if (p->at == 0 && p->tokens < shape->seq && shape->packing != FO_PACK_PACKED && is_own(shape, p->row))
		batch_pad(f->b, p->micro_batch, fo_batch_own_rows(shape) * shape->seq, row + p->tokens,
			  row + shape->seq, f->pad_id);
	if (shape->packing == FO_PACK_PADDED)
		f->b->truncated += shard_doc_length(f->from->shard, p->doc) - p->tokens;
	batch_put_piece(f->b, shape, f->from->shard, p);
	return true;
}

fo_status batch_fill(struct fo_batch *b, struct batches *from, int32_t pad_id)
{
	static const char *const counted[] = { [FO_PACK_PACKED] = "tokens",
					       [FO_PACK_PADDED] = "documents",
					       [FO_PACK_BESTFIT] = "rows",
					       [FO_PACK_SPLIT] = "rows" };
	const struct fo_batch_shape *shape = &from->shape;
	bool packed = shape->packing == FO_PACK_PACKED;
	int64_t unit = shape->micro_batches * shape->rows * (packed ? shape->seq : 1), end;
	/* A block of rows may reach an epoch (or a row) beyond the step's own end. */
	if (__builtin_add_overflow(b->step, 2, &end) || __builtin_mul_overflow(end, unit, &end) ||
	    __builtin_add_overflow(end, from->shard->tokens, &end))
		return fo_fail(FO_EARG, "step %lld of %lld %s each is beyond what can be counted", (long long)b->step,
			       (long long)unit, counted[shape->packing]);
	b->loss_tokens = b->real_tokens = b->truncated = 0;
	for (int64_t m = 0; m < shape->micro_batches; m++)
		b->micro_loss_tokens[m] = b->pairs[m] = 0;
	walk(from, b->step, fill_piece, &(struct filling){ b, from, pad_id });
	for (int64_t m = 0; m < shape->micro_batches; m++)
		b->loss_tokens += b->micro_loss_tokens[m];
	return from->st;
}

/* ---- naming a batch's documents ---- */

struct asking {
	struct batches of;
	int64_t first, steps;
	fo_piece_fn *fn;
	void *ctx;
};

static fo_status ask(void *ctx)
{
	struct asking *a = ctx;
	for (int64_t i = 0; i < a->steps && walk(&a->of, a->first + i, a->fn, a->ctx); i++)
		;
	return FO_OK;
}

fo_status fo_batch_pieces(const struct fo_shard *s, const struct fo_batch_shape *shape, uint64_t seed, int64_t first,
			  int64_t steps, fo_piece_fn *fn, void *ctx)
{
	struct asking a = { .first = first, .steps = steps, .fn = fn, .ctx = ctx };
	FO_TRY(batches_init(&a.of, s, shape, seed, NULL));
	for (int i = 0; i < 2; i++)
		a.of.order[i].room = fo_xmalloc(EPOCH_ORDER_WORDS(s->docs) * sizeof(int64_t));
	fo_status st = fo_map_guard(ask, &a);
	for (int i = 0; i < 2; i++)
		free(a.of.order[i].room);
	pack_plan_free(&a.of.plan);
	return st;
}
