/* The tokenizer's parts and the layout of a shard. Inside src/data only. */
#ifndef FO_DATA_DATA_INT_H
#define FO_DATA_DATA_INT_H

#include "base/str.h"
#include "data/data.h"

#include <pthread.h>

/* Ids and merge ranks are 31 bit, pair keys 62; the largest published vocabulary is 262,144 (Gemma 3). */
#define TOK_MAX_VOCAB ((int64_t)1 << 20)
/* A longer piece is cut. No text has such words; it bounds the scratch memory (some 40 MiB where one occurs). */
#define TOK_MAX_PIECE ((size_t)1 << 20)

/* ---- pre-tokenisation: text to pieces that no token crosses ---- */

extern const char *const split_pattern_llama3, *const split_pattern_gpt2, *const split_pattern_qwen2;

struct split;
/* The pieces of a pattern in the syntax that Hugging Face's Oniguruma and PCRE2 share; FO_EFORMAT names what is not.
 * The three patterns above have matchers of their own, which give what PCRE2 gives. */
FO_CHECKED fo_status split_new(const char *pattern, struct split **out);
/* The same always with PCRE2: the reference, and the only way for other patterns. */
FO_CHECKED fo_status split_new_pcre(const char *pattern, struct split **out);
/* Another user of the same pattern, for another thread; `s` must outlive it. */
FO_CHECKED fo_status split_share(const struct split *s, struct split **out);
bool split_is_known(const struct split *s); /* one of the three patterns */
void split_free(struct split *s);

/* Walks text[0..len) from pos = 0; zero the rest. Runs of bytes that are not UTF-8 are pieces of their own. */
struct split_cursor {
	const char *text;
	size_t len, pos, run_start, run_end;
	size_t match_start, match_end; /* a match found after a gap; match_end = 0: none waits */
	bool valid_run;
};
/* The next piece, *piece_len = 0 at the end. Fails only when a foreign pattern exceeds its match limit. */
FO_CHECKED fo_status split_next(struct split *s, struct split_cursor *c, const char **piece, size_t *piece_len);
/* The code point of the valid sequence at s; its length. */
static inline size_t utf8_char(const unsigned char *s, uint32_t *c)
{
	if (s[0] < 0x80) {
		*c = s[0];
		return 1;
	}
	if (s[0] < 0xe0) {
		*c = (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu);
		return 2;
	}
	if (s[0] < 0xf0) {
		*c = (s[0] & 0x0fu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
		return 3;
	}
	*c = (s[0] & 0x07u) << 18 | (s[1] & 0x3fu) << 12 | (s[2] & 0x3fu) << 6 | (s[3] & 0x3fu);
	return 4;
}

/* The end of the match that a known pattern has at s[at], which is valid UTF-8 up to s[end]; at < end. */
typedef size_t split_matcher(const unsigned char *s, size_t at, size_t end);
split_matcher *split_known_matcher(const char *pattern); /* NULL: not a known one */

/* ---- normalization form C, as Hugging Face tokenizers has it ---- */

/* May normalization change text[0..len)? False for most texts. Broken bytes stand alone. */
bool nfc_may_change(const char *text, size_t len);
/* Appends the normal form of text[0..len). */
void nfc_append(const char *text, size_t len, struct fo_str *out);

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

/* An added token. */
struct tok_special {
	int32_t id;
	char *text;
	bool in_model; /* the file lists it in model.vocab too */
	bool in_text;  /* Hugging Face's "special": false: an ordinary word that is read from texts, and goes first */
};

/* Whether SentencePiece's space mark goes before a text, and which part of the file says so. */
enum tok_prefix {
	TOK_NORMALIZER,      /* normalizer Replace: none */
	TOK_NORMALIZER_MARK, /* normalizer Prepend and Replace: always */
	TOK_METASPACE_NEVER, /* pre-tokenizer Metaspace */
	TOK_METASPACE_FIRST, /* unless the text begins with a space */
	TOK_METASPACE_ALWAYS /* the same: the two differ only around added tokens */
};

struct tok_index; /* lookup tables that encoders share */

/* The encoder of fo_tokenizer_encode, made when first used: its callers take turns. */
struct tok_shared {
	pthread_mutex_t lock;
	struct fo_encoder *encoder;
};

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
	bool nfc;         /* texts are brought to normalization form C first */
	char *pattern;    /* NULL with `sentence` */
	/* SentencePiece's style: symbols are characters, a space is U+2581 in the file and ' ' in `bytes`, characters
	 * without a token become the tokens of their bytes. */
	bool sentence, split_spaces; /* split_spaces: Metaspace's `split`: a piece ends before every space */
	bool fuse_unknown;           /* no meaning where every byte has a token; kept for the file */
	enum tok_prefix prefix;
	char *unknown; /* unk_token, or NULL; kept for the file */
	uint64_t checksum;
	struct tok_index *index;
	struct tok_shared *shared;
};

/* Completes a tokenizer whose vocab, bytes, at, merge, special, pattern and style are set: lookup tables, byte ids (set
 * already with `sentence`), BOS and EOS, checksum. On failure the caller frees it with fo_tokenizer_free. */
FO_CHECKED fo_status tok_finish(struct fo_tokenizer *t);
void tok_text(const struct fo_tokenizer *t, struct fo_str *out); /* the tokenizer.json */
bool tok_is_added(const struct fo_tokenizer *t, int32_t id);

/* GPT-2's byte <-> character table: byte b is written as the code point tok_byte_char(b) < 324. */
int tok_byte_char(int byte);
int tok_char_byte(int code_point); /* -1: no byte is written so */

/* The tables of a tokenizer. */
FO_CHECKED fo_status tok_index_new(struct fo_tokenizer *t);
void tok_index_free(struct tok_index *x);
/* The merge of a and b: its rank and *out, -1 if there is none. */
int64_t tok_merge_rank(const struct tok_index *x, int32_t a, int32_t b, int32_t *out);
/* The token, not an added or byte-fallback one, with exactly these bytes; -1: none. */
int32_t tok_word(const struct fo_tokenizer *t, const char *bytes, size_t len);
const struct split *tok_split(const struct fo_tokenizer *t);
/* Does some merge join character a with the character b that follows it? If not, a text can be cut between them. */
bool tok_joins(const struct tok_index *x, uint32_t a, uint32_t b);

#define SENTENCE_SPACE "\xe2\x96\x81" /* U+2581, how SentencePiece writes a space */
#define SENTENCE_SPACE_CHAR 0x2581u

/* The next piece of a SentencePiece-style text[0..len), len >= 1: no merge crosses its end. */
size_t tok_sentence_piece(const struct fo_tokenizer *t, const char *text, size_t len);
/* The symbols that its merges begin with: at most `len` ids. */
size_t tok_sentence_symbols(const struct fo_tokenizer *t, const char *piece, size_t len, int32_t *ids);

/* fo_tokenizer_cut as a cut of struct fo_text_options. */
size_t tok_text_cut(const void *tokenizer, const char *text, size_t len, size_t at);

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

static inline int64_t shard_doc_length(const struct fo_shard *s, int64_t doc)
{
	return s->doc_at[doc + 1] - s->doc_at[doc];
}
static inline int32_t shard_id(const struct fo_shard *s, int64_t token)
{
	return s->ids16 ? s->ids16[token] : (int32_t)s->ids32[token];
}

/* ---- sources file: little endian, header, records, offsets of the names, names ---- */

#define SOURCES_MAGIC "FLATSRCS"
#define SOURCES_VERSION 1u

struct sources_header {
	char magic[8];
	uint32_t version, zero;
	int64_t docs, files, names_bytes;
	uint64_t shard_checksum;
	uint64_t checksum; /* XXH3-64 of all that follows the header, then of the header with this field zero */
	uint64_t reserved; /* 0 */
};
struct sources_record {
	int64_t file, line;
};
_Static_assert(sizeof(struct sources_header) == 64 && sizeof(struct sources_record) == 16, "part of the file format");

/* The checksum of a file whose header of `header` bytes has its checksum (8 bytes) at `at`. */
uint64_t data_file_checksum(const unsigned char *file, size_t bytes, size_t header, size_t at);
/* "DIR/train.src" of "DIR/train.shard". */
FO_CHECKED fo_status sources_path(char *buf, size_t size, const char *shard_path);

/* ---- batches: what the loader's thread runs ---- */

/* One shuffled epoch. Loaders keep two, by the epoch's parity: a block of rows may end in the next epoch. */
struct epoch_order {
	const struct fo_shard *shard;
	uint64_t seed;
	int64_t epoch;        /* -1: none built yet */
	const int64_t *doc;   /* docs: shard's document at each place */
	const int64_t *start; /* docs + 1: tokens of this epoch before each place; of split rows the rows */
	int64_t seq;          /* of split rows, else 0 */
	int64_t rows;         /* of split rows in an epoch, else 0 */
	int64_t *room;        /* EPOCH_ORDER_WORDS for both; not used with `share` */
	struct fo_order_share *share;
};
#define EPOCH_ORDER_WORDS(docs) (2 * (size_t)(docs) + 1)

/* An order of no epoch yet; the caller gives it room, or a share. */
struct epoch_order epoch_order_of(const struct fo_shard *s, const struct fo_batch_shape *shape, uint64_t seed);
/* Lays out epoch `epoch` unless o holds it already. Fails only where it is shared. */
FO_CHECKED fo_status epoch_order_build(struct epoch_order *o, int64_t epoch);

/* Fills in a segment's memory; what it fails with is what order_share_get returns. */
typedef fo_status order_share_fn(void *ctx, void *memory);
/* Gives segment `number` (>= 0), which is made by fn where it is not there, and stays until another one of the same
 * parity is asked for. For one thread. */
FO_CHECKED fo_status order_share_get(struct fo_order_share *o, int64_t number, order_share_fn *fn, void *ctx,
				     const void **out);

/* The rows of best-fit packing: row r holds piece[row_at[r]] .. piece[row_at[r + 1] - 1]. */
struct pack_piece {
	int64_t doc, from; /* from its token `from` on: to its end or as many as fill the row */
};
struct pack_plan {
	int64_t rows, pieces;
	int64_t *row_at;
	struct pack_piece *piece;
	void *memory;
	size_t memory_bytes;
};
/* Rows and pieces, then the arrays, as they lie in memory that is shared. */
static inline int64_t pack_plan_bytes(int64_t pieces)
{
	return 3 * (int64_t)sizeof(int64_t) + pieces * (int64_t)(sizeof(struct pack_piece) + sizeof(int64_t));
}
/* The plan of pack_plan_new in shared memory, which `o` owns. */
FO_CHECKED fo_status pack_plan_shared(struct pack_plan *plan, const struct fo_shard *s, int64_t seq,
				      struct fo_order_share *o);
/* A pure function of (shard, seq), seq in 1..INT32_MAX; O(tokens / seq + docs) time, 24 bytes per piece and as many
 * until it returns. */
FO_CHECKED fo_status pack_plan_new(struct pack_plan *plan, const struct fo_shard *s, int64_t seq);
void pack_plan_free(struct pack_plan *plan);
/* Pieces of all documents when each is cut into rows of seq tokens and a rest. */
int64_t pack_pieces(const struct fo_shard *s, int64_t seq);

/* All that batches are a pure function of, but the step. */
struct batches {
	const struct fo_shard *shard;
	struct fo_batch_shape shape;
	uint64_t seed;
	struct epoch_order order[2];
	struct pack_plan plan; /* of best-fit packing */
	fo_status st;          /* why the walk ended early */
};
/* Without a share the caller gives both orders room. It ends with pack_plan_free. */
FO_CHECKED fo_status batches_init(struct batches *b, const struct fo_shard *s, const struct fo_batch_shape *shape,
				  uint64_t seed, struct fo_order_share *share);
/* Fills *b (arrays allocated, b->step set). Allocates nothing. */
FO_CHECKED fo_status batch_fill(struct fo_batch *b, struct batches *from, int32_t pad_id);
/* Writes a piece to its place, and counts it. */
void batch_put_piece(struct fo_batch *b, const struct fo_batch_shape *shape, const struct fo_shard *s,
		     const struct fo_piece *p);
/* Pads places from .. to of a micro-batch of `width`: each becomes a document of its own, without loss. */
void batch_pad(struct fo_batch *b, int64_t micro, int64_t width, int64_t from, int64_t to, int32_t pad_id);

#endif
