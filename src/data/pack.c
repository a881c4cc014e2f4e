/* Best-fit decreasing (Ding et al. 2024, "Fewer Truncations Improve Language Modeling"): documents longer than a row
 * are cut into full rows and a rest; rests and all other documents go, longest first, into the row that has the least
 * room for them. Every token lies in one row, and no document that fits into a row is cut.
 *
 * The rows are those of the whole shard and the same in every epoch, which only draws them in another order: documents
 * do not see each other, so that company matters little, and the batch of any step is known without packing those
 * before. */
#include "data/data_int.h"

#include "base/count.h"
#include "base/rng.h"

#include <string.h>

/* ---- the order of a shard's documents in an epoch ---- */

int64_t pack_pieces(const struct fo_shard *s, int64_t seq)
{
	int64_t n = 0;
	for (int64_t d = 0; d < s->docs; d++)
		n += fo_ceil_div(shard_doc_length(s, d), seq);
	return n;
}

/* A permutation of the documents (Fisher and Yates; the draws depend on seed, epoch and place only) and the tokens
 * before each. The modulo's bias is below documents / 2^64. */
struct epoch {
	const struct epoch_order *o;
	int64_t number;
};

static fo_status lay_out_epoch(void *ctx, void *memory)
{
	const struct epoch *e = ctx;
	const struct fo_shard *s = e->o->shard;
	const int64_t seq = e->o->seq;
	int64_t *doc = memory, *start = doc + s->docs;
	uint64_t stream = fo_rng_u64(e->o->seed, (uint64_t)e->number);
	for (int64_t i = 0; i < s->docs; i++)
		doc[i] = i;
	for (int64_t i = s->docs - 1; i > 0; i--) {
		int64_t k = (int64_t)(fo_rng_u64(stream, (uint64_t)i) % (uint64_t)(i + 1)), d = doc[i];
		doc[i] = doc[k];
		doc[k] = d;
	}
	start[0] = 0;
	for (int64_t i = 0; i < s->docs; i++) {
		int64_t len = shard_doc_length(s, doc[i]);
		start[i + 1] = start[i] + (seq ? fo_ceil_div(len, seq) : len);
	}
	return FO_OK;
}

fo_status epoch_order_build(struct epoch_order *o, int64_t epoch)
{
	struct epoch e = { o, epoch };
	const void *memory = o->room;
	if (o->epoch == epoch)
		return FO_OK;
	o->epoch = -1;
	if (o->share)
		FO_TRY(order_share_get(o->share, epoch, lay_out_epoch, &e, &memory));
	else
		FO_TRY(lay_out_epoch(&e, o->room));
	o->doc = memory;
	o->start = o->doc + o->shard->docs;
	o->epoch = epoch;
	return FO_OK;
}

/* ---- a set of numbers below n that finds the next member: 64 bits to a word, a level above says which are not zero
 * ---- */

enum { LEVELS = 6 }; /* 64^6 is beyond any row's length */

struct numbers {
	uint64_t *word[LEVELS];
	int64_t members[LEVELS]; /* a level's bits */
	int levels;
};

/* Lays the levels out in zeroed memory; returns how many words they take, also with memory NULL. */
static size_t numbers_init(struct numbers *s, int64_t n, uint64_t *memory)
{
	size_t used = 0;
	s->levels = 0;
	for (bool more = true; more; n = (n + 63) / 64) {
		s->word[s->levels] = memory ? memory + used : NULL;
		s->members[s->levels++] = n;
		used += (size_t)(n + 63) / 64;
		more = n > 64;
	}
	return used;
}

static void numbers_add(struct numbers *s, int64_t i)
{
	for (int l = 0; l < s->levels; l++, i >>= 6)
		s->word[l][i >> 6] |= (uint64_t)1 << (i & 63);
}

static void numbers_remove(struct numbers *s, int64_t i)
{
	for (int l = 0; l < s->levels; l++, i >>= 6) {
		s->word[l][i >> 6] &= ~((uint64_t)1 << (i & 63));
		if (s->word[l][i >> 6])
			return;
	}
}

/* The least member >= i, -1 if there is none. */
static int64_t numbers_next(const struct numbers *s, int64_t i)
{
	for (int l = 0; l < s->levels && i < s->members[l]; l++) {
		uint64_t rest = s->word[l][i >> 6] >> (i & 63);
		if (rest) {
			i += __builtin_ctzll(rest);
			while (l--)
				i = i << 6 | __builtin_ctzll(s->word[l][i]);
			return i;
		}
		i = (i >> 6) + 1;
	}
	return -1;
}

/* ---- packing ---- */

/* State of the packing while it runs. Rows are numbered from 0; those of full pieces come first. */
struct packer {
	const struct fo_shard *shard;
	int64_t seq, rows;
	int64_t *order;    /* short pieces' documents, longest first */
	int64_t *row;      /* the row of each of them */
	int64_t *next_row; /* rows of equal room, a list: row + 1, 0 ends */
	/* seq + 1: the list's first row + 1 by the room that is left; sort_rests counts lengths in it before. */
	int64_t *with_room;
	struct numbers rooms;
};

static int64_t rest_length(const struct packer *p, int64_t d) { return shard_doc_length(p->shard, d) % p->seq; }

/* Counting sort by falling length; equal ones in the shard's order. Returns how many. */
static int64_t sort_rests(struct packer *p)
{
	const struct fo_shard *s = p->shard;
	int64_t *count = p->with_room, n = 0;
	for (int64_t d = 0; d < s->docs; d++)
		count[rest_length(p, d)]++;
	for (int64_t len = p->seq - 1; len > 0; len--) {
		int64_t c = count[len];
		count[len] = n;
		n += c;
	}
	for (int64_t d = 0; d < s->docs; d++)
		if (rest_length(p, d))
			p->order[count[rest_length(p, d)]++] = d;
	memset(p->with_room, 0, (size_t)(p->seq + 1) * sizeof *p->with_room);
	return n;
}

static void put_room(struct packer *p, int64_t row, int64_t room)
{
	if (!room)
		return;
	p->next_row[row] = p->with_room[room];
	p->with_room[room] = row + 1;
	numbers_add(&p->rooms, room);
}

static int64_t take_row(struct packer *p, int64_t len)
{
	int64_t room = numbers_next(&p->rooms, len), row;
	if (room < 0) {
		row = p->rows++;
		room = p->seq;
	} else {
		row = p->with_room[room] - 1;
		p->with_room[room] = p->next_row[row];
		if (!p->with_room[room])
			numbers_remove(&p->rooms, room);
	}
	put_room(p, row, room - len);
	return row;
}

/* The plan's arrays from rows of full pieces and p->row. */
static void lay_out(struct pack_plan *plan, const struct packer *p, int64_t full, int64_t rests)
{
	int64_t *at = plan->row_at, n = 0;
	for (int64_t r = 0; r < full; r++)
		at[r + 1] = 1;
	for (int64_t i = 0; i < rests; i++)
		at[p->row[i] + 1]++;
	for (int64_t r = 0; r < p->rows; r++)
		at[r + 1] += at[r];
	for (int64_t d = 0; d < p->shard->docs; d++)
		for (int64_t k = 0; k < shard_doc_length(p->shard, d) / p->seq; k++)
			plan->piece[n++] = (struct pack_piece){ d, k * p->seq };
	/* Each row is filled from its beginning; next_row, no longer needed as a list, counts its pieces. */
	memset(p->next_row, 0, (size_t)p->rows * sizeof *p->next_row);
	for (int64_t i = 0; i < rests; i++) {
		int64_t d = p->order[i], r = p->row[i];
		plan->piece[at[r] + p->next_row[r]++] = (struct pack_piece){ d, shard_doc_length(p->shard, d) -
											rest_length(p, d) };
	}
	plan->rows = p->rows;
	plan->pieces = at[p->rows];
}

fo_status pack_plan_new(struct pack_plan *plan, const struct fo_shard *s, int64_t seq)
{
	int64_t pieces = pack_pieces(s, seq);
	size_t words = numbers_init(&(struct numbers){ 0 }, seq + 1, NULL), scratch, kept;
	FO_TRY(fo_mul_size((size_t)pieces, 3 * sizeof(int64_t), &scratch)); /* at most as many rows as pieces */
	FO_TRY(fo_mul_size((size_t)pieces, sizeof(struct pack_piece) + sizeof(int64_t), &kept));
	scratch += ((size_t)seq + 1 + words) * sizeof(int64_t);
	kept += sizeof(int64_t);
	void *memory, *keep;
	FO_TRY(fo_pages_new(scratch, &memory));
	fo_status st = fo_pages_new(kept, &keep);
	if (st != FO_OK) {
		fo_pages_free(memory, scratch);
		return st;
	}
	struct packer p = { .shard = s, .seq = seq, .order = memory };
	p.row = p.order + pieces;
	p.next_row = p.row + pieces;
	p.with_room = p.next_row + pieces;
	numbers_init(&p.rooms, seq + 1, (uint64_t *)(p.with_room + seq + 1));
	*plan = (struct pack_plan){ .memory = keep, .memory_bytes = kept, .piece = keep };
	plan->row_at = (int64_t *)(plan->piece + pieces);
	int64_t rests = sort_rests(&p), full = pieces - rests;
	p.rows = full;
	for (int64_t i = 0; i < rests; i++)
		p.row[i] = take_row(&p, rest_length(&p, p.order[i]));
	lay_out(plan, &p, full, rests);
	fo_pages_free(memory, scratch);
	return FO_OK;
}

struct plan_of {
	const struct fo_shard *shard;
	int64_t seq, pieces;
};

/* Lays the plan's arrays out behind its two numbers. */
static void plan_at(struct pack_plan *plan, int64_t pieces, const void *memory)
{
	int64_t *word = (int64_t *)(uintptr_t)memory;
	*plan = (struct pack_plan){ .rows = word[0], .pieces = word[1], .piece = (struct pack_piece *)(word + 2) };
	plan->row_at = (int64_t *)(plan->piece + pieces);
}

static fo_status copy_plan(void *ctx, void *memory)
{
	const struct plan_of *of = ctx;
	struct pack_plan own, shared;
	FO_TRY(pack_plan_new(&own, of->shard, of->seq));
	((int64_t *)memory)[0] = own.rows;
	((int64_t *)memory)[1] = own.pieces;
	plan_at(&shared, of->pieces, memory);
	memcpy(shared.piece, own.piece, (size_t)own.pieces * sizeof *own.piece);
	memcpy(shared.row_at, own.row_at, (size_t)(own.rows + 1) * sizeof *own.row_at);
	pack_plan_free(&own);
	return FO_OK;
}

fo_status pack_plan_shared(struct pack_plan *plan, const struct fo_shard *s, int64_t seq, struct fo_order_share *o)
{
	struct plan_of of = { s, seq, pack_pieces(s, seq) };
	const void *memory;
	FO_TRY(order_share_get(o, 0, copy_plan, &of, &memory));
	plan_at(plan, of.pieces, memory);
	return FO_OK;
}

void pack_plan_free(struct pack_plan *plan)
{
	if (plan->memory) /* else it is shared */
		fo_pages_free(plan->memory, plan->memory_bytes);
	*plan = (struct pack_plan){ 0 };
}

/* ---- what a packing costs ---- */

/* Documents that fit into a row and are cut all the same when epoch 0 is laid end to end. */
static fo_status count_cuts(const struct fo_shard *s, int64_t seq, uint64_t seed, int64_t *cut)
{
	size_t bytes = EPOCH_ORDER_WORDS(s->docs) * sizeof(int64_t);
	void *memory;
	FO_TRY(fo_pages_new(bytes, &memory));
	struct epoch_order o = { .shard = s, .seed = seed, .epoch = -1, .room = memory };
	FO_TRY(epoch_order_build(&o, 0)); /* not shared: it does not fail */
	for (int64_t i = 0; i < s->docs; i++)
		*cut += o.start[i + 1] - o.start[i] <= seq && o.start[i] / seq != (o.start[i + 1] - 1) / seq;
	fo_pages_free(memory, bytes);
	return FO_OK;
}

fo_status fo_packing_measure(const struct fo_shard *s, int64_t seq, enum fo_packing packing, uint64_t seed,
			     struct fo_packing_cost *out)
{
	struct fo_packing_cost c = { 0 };
	if (seq < 1 || seq > INT32_MAX)
		return fo_fail(FO_EARG, "a row of %lld tokens: 1 to %d are possible", (long long)seq, INT32_MAX);
	int64_t over = 0;
	for (int64_t d = 0; d < s->docs; d++) {
		c.long_docs += shard_doc_length(s, d) > seq;
		over += shard_doc_length(s, d) > seq ? shard_doc_length(s, d) - seq : 0;
	}
	if (packing == FO_PACK_PACKED) {
		c.rows = (double)s->tokens / (double)seq;
		FO_TRY(count_cuts(s, seq, seed, &c.cut_docs));
	} else if (packing == FO_PACK_PADDED) {
		c.rows = (double)s->docs;
		c.truncated = over;
	} else if (packing == FO_PACK_SPLIT) {
		c.rows = (double)pack_pieces(s, seq);
	} else {
		struct pack_plan plan;
		FO_TRY(pack_plan_new(&plan, s, seq));
		c.rows = (double)plan.rows;
		pack_plan_free(&plan);
	}
	c.padding = c.rows * (double)seq - (double)(s->tokens - c.truncated);
	if (packing == FO_PACK_PACKED)
		c.padding = 0; /* the last row goes on with the next epoch */
	*out = c;
	return FO_OK;
}
