/* Inside src/data only: the tokenizer's parts, and the layout of a shard. */
#ifndef FO_DATA_DATA_INT_H
#define FO_DATA_DATA_INT_H

#include "base/str.h"
#include "data/data.h"

/* Ids and merge ranks are 31 bit, pair keys 62; the largest published vocabulary is 262,144 (Gemma 3). */
#define TOK_MAX_VOCAB ((int64_t)1 << 20)
/* A longer piece is cut. No text has such words; it bounds the scratch memory (some 3 MiB). */
#define TOK_MAX_PIECE ((size_t)65536)

/* ---- pre-tokenisation: text to pieces that no token crosses ---- */

extern const char *const split_pattern_llama3, *const split_pattern_gpt2;

struct split;
/* Compiles a pattern in the syntax that Hugging Face's Oniguruma and PCRE2 share; FO_EFORMAT names what is not. */
FO_CHECKED fo_status split_new(const char *pattern, struct split **out);
void split_free(struct split *s);

/* Walks text[0..len) from pos = 0; zero the rest. Runs of bytes that are not UTF-8 are pieces of their own. */
struct split_cursor {
	const char *text;
	size_t len, pos, run_start, run_end;
	size_t match_start, match_end; /* a match found beyond a gap; match_end = 0: none waits */
	bool valid_run;
};
/* The next piece, *piece_len = 0 at the end. Fails only when a foreign pattern exceeds its match limit. */
FO_CHECKED fo_status split_next(struct split *s, struct split_cursor *c, const char **piece, size_t *piece_len);
/* Length of the valid UTF-8 sequence at s[0..n), 0 if broken; n >= 1. */
size_t utf8_sequence(const unsigned char *s, size_t n);

/* ---- the tokenizer ---- */

struct tok_merge {
	int32_t a, b, out;
};

/* Spreads a pair of ids over 64 bits (the finalizer of MurmurHash3). */
static inline size_t tok_pair_hash(int32_t a, int32_t b)
{
	uint64_t x = (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
	x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
	x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
	return (size_t)(x ^ x >> 33);
}

struct tok_special {
	int32_t id;
	char *text;
	bool in_model; /* the file lists it in model.vocab too */
};

struct tok_work; /* lookup tables, scratch and cache of the encoder */

struct fo_tokenizer {
	int64_t vocab;
	char *bytes;             /* token i is bytes[at[i] .. at[i + 1]); length 0: no such id */
	size_t *at;              /* vocab + 1 */
	struct tok_merge *merge; /* by rank */
	int64_t merges;
	struct tok_special *special;
	size_t specials;
	int32_t bos, eos, byte_id[256];
	bool whole_words; /* Hugging Face's ignore_merges: a piece that is a token is taken whole */
	bool gpt2_style;  /* saved as ByteLevel with its own pattern, as GPT-2's file */
	char *pattern;
	uint64_t checksum;
	struct tok_work *work;
};

/* Completes a tokenizer whose vocab, bytes, at, merge, special, pattern and style are set: lookup tables, byte ids, BOS
 * and EOS, checksum. On failure the caller frees it with fo_tokenizer_free. */
FO_CHECKED fo_status tok_finish(struct fo_tokenizer *t);
void tok_text(const struct fo_tokenizer *t, struct fo_str *out); /* the tokenizer.json */

/* GPT-2's byte <-> character table: byte b is written as the code point tok_byte_char(b) < 324. */
int tok_byte_char(int byte);
int tok_char_byte(int code_point); /* -1: no byte is written so */

/* Encodes in portions of at most a few thousand ids; `done`: bytes of text behind the portion's end. */
typedef fo_status tok_sink_fn(void *ctx, const int32_t *ids, size_t n, size_t done);
FO_CHECKED fo_status tok_encode(const struct fo_tokenizer *t, const char *text, size_t len, tok_sink_fn *sink,
				void *ctx);

/* ---- shard file: little endian, header, ids padded with zeros to 8 bytes, offsets ---- */

#define SHARD_MAGIC "FLATSHRD"
#define SHARD_VERSION 1u

struct shard_header {
	char magic[8];
	uint32_t version, id_bytes;
	int64_t tokens, docs, vocab;
	uint64_t tokenizer_checksum;
	uint64_t checksum; /* XXH3-64 of all that follows the header, then of the header with this field zero */
	uint64_t reserved; /* 0 */
};
_Static_assert(sizeof(struct shard_header) == 64, "the header is part of the file format");

static inline size_t shard_ids_bytes(int64_t tokens, uint32_t id_bytes)
{
	return ((size_t)tokens * id_bytes + 7) & ~(size_t)7;
}

/* ---- batches: what the loader's thread runs ---- */

/* One shuffled epoch. Loaders keep two, by the epoch's parity: a block of rows may end in the next epoch. */
struct epoch_order {
	const struct fo_shard *shard;
	uint64_t seed;
	int64_t epoch;  /* -1: none built yet */
	int64_t *doc;   /* docs: shard's document at each place */
	int64_t *start; /* docs + 1: tokens of this epoch before each place */
};

/* orders: two. Fills *b (arrays allocated, b->step set) from the pure function of (shard, seed, shape, step). Allocates nothing. */
FO_CHECKED fo_status batch_fill(struct fo_batch *b, struct epoch_order *orders, const struct fo_batch_shape *shape,
				int32_t pad_id);

#endif
