/* From text to rows of tokens: tokenizer, corpus, shards, packing, loader.
 *
 * A text source becomes two shards (train and held-out) once; the loader maps a shard and serves steps of micro-batches
 * from its own thread. Its state is a plain struct that a checkpoint stores; the batch of step s depends only on
 * (shard, options, s), so a resumed run sees the same bits. */
#ifndef FO_DATA_DATA_H
#define FO_DATA_DATA_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- tokenizer: byte-level BPE, Hugging Face tokenizer.json in and out ---- */

struct fo_tokenizer;

/* Called now and then during long work; done and total in `unit`s. May be NULL. */
typedef void fo_progress_fn(void *ctx, const char *what, const char *unit, double done, double total);

/* Trains on at most `max_bytes` of the files' text (evenly sampled when there is more): GPT-2 style pre-tokenisation
 * (PCRE2, the Llama-3 pattern), merges by pair frequency, ties by the smaller pair; ids 0..255 bytes are in GPT-2's
 * byte-to-unicode order, then merges, then the special tokens <|begin_of_text|>, <|end_of_text|>.
 * vocab is the total including specials (>= 258). The same input gives the same tokenizer. */
FO_CHECKED fo_status fo_tokenizer_train(char **paths, size_t n, int64_t vocab, size_t max_bytes, fo_progress_fn *progress,
					void *ctx, struct fo_tokenizer **out);
FO_CHECKED fo_status fo_tokenizer_load(const char *path, struct fo_tokenizer **out);   /* tokenizer.json */
FO_CHECKED fo_status fo_tokenizer_save(const struct fo_tokenizer *t, const char *path);
void fo_tokenizer_free(struct fo_tokenizer *t);
int64_t fo_tokenizer_vocab(const struct fo_tokenizer *t);
int32_t fo_tokenizer_bos(const struct fo_tokenizer *t);
int32_t fo_tokenizer_eos(const struct fo_tokenizer *t);
uint64_t fo_tokenizer_checksum(const struct fo_tokenizer *t);   /* XXH3 of the saved text */
/* Appends the ids of text[0..len) to *ids (grown with fo_array_room; count in *n). Any bytes are legal. */
FO_CHECKED fo_status fo_tokenizer_encode(const struct fo_tokenizer *t, const char *text, size_t len, int32_t **ids, size_t *n,
					 size_t *cap);
struct fo_str;
void fo_tokenizer_decode(const struct fo_tokenizer *t, const int32_t *ids, size_t n, struct fo_str *out);

/* ---- shards: documents of token ids on disk ---- */

/* `path` is a text file or a folder: every regular file is one document (binary files, i.e. with NUL bytes, are skipped
 * and counted). Documents longer than nothing are kept whole: BOS, tokens, EOS is not repeated: layout per document is
 * BOS tokens... EOS. One in `holdout_every` documents (by hash of its index; with a single document: its last 1/holdout_every
 * part) goes to val.shard, the rest to train.shard, both in `dir` and written atomically. */
struct fo_prepare_stats { int64_t files, skipped_binary, bytes, train_docs, train_tokens, val_docs, val_tokens; };
FO_CHECKED fo_status fo_data_prepare(const char *path, const struct fo_tokenizer *t, const char *dir, int holdout_every,
				     fo_progress_fn *progress, void *ctx, struct fo_prepare_stats *stats);

struct fo_shard {
	int64_t tokens, docs, vocab;
	const int64_t *doc_at;        /* docs + 1 offsets, in tokens */
	const uint16_t *ids16;        /* one of the two is set: 16 bit when vocab <= 65536 */
	const uint32_t *ids32;
	uint64_t checksum, tokenizer_checksum;
	void *map; size_t map_len;
};
/* Maps and validates (magic, version, sizes, offsets ascending, every id < vocab, checksum). */
FO_CHECKED fo_status fo_shard_open(struct fo_shard *s, const char *path);
void fo_shard_close(struct fo_shard *s);

/* Cross-entropy (nats per token) that a bigram model of train's tokens (add-k smoothed back-off to unigrams; k chosen
 * on train alone) reaches on val: what a language model has to beat. */
FO_CHECKED fo_status fo_data_bigram_loss(const struct fo_shard *train, const struct fo_shard *val, double *nats);

/* ---- batches ---- */

enum fo_packing { FO_PACK_PACKED, FO_PACK_PADDED };

struct fo_batch_shape { int64_t seq, rows, micro_batches; enum fo_packing packing; };

/* One step's tokens. Each array is [micro_batches][rows * seq]. T = rows * seq. */
struct fo_batch {
	int32_t *token;      /* input ids; padding is the EOS id */
	int32_t *target;     /* the next token, -1 where no loss is taken (padding, a document's last token) */
	int32_t *position;   /* 0-based inside its document: restarts with each document */
	int32_t *doc_start;  /* flat index in [0, T) of the first token of this token's document within this micro-batch */
	int64_t loss_tokens; /* targets >= 0 over all micro-batches */
	int64_t *micro_loss_tokens; /* per micro-batch */
	int64_t *pairs;      /* per micro-batch: sum over tokens of (index - doc_start + 1): attention pairs, padding not counted */
	int64_t real_tokens; /* tokens that are not padding */
	int64_t truncated;   /* tokens dropped because a document exceeded a padded row, in this step */
	int64_t step;        /* 0-based */
};

/* What must be stored to go on: `next_step` alone determines the rest. */
struct fo_loader_state { int64_t next_step; uint64_t seed; uint64_t shard_checksum; };

struct fo_loader;
/* Documents are shuffled per epoch by seed (counter-based), laid end to end and cut into full rows (PACKED: a document
 * that does not fit goes on in the next row with positions restarting) or one document per row, truncated and padded
 * (PADDED). A prefetch thread keeps up to two steps ready. The shard must outlive the loader. */
FO_CHECKED fo_status fo_loader_open(struct fo_loader **out, const struct fo_shard *s, const struct fo_batch_shape *shape,
				    const struct fo_loader_state *state, int32_t pad_id);
/* The next step's batch; valid until the next call. *wait_ns: how long the caller had to wait. Allocates nothing. */
FO_CHECKED fo_status fo_loader_next(struct fo_loader *l, const struct fo_batch **out, int64_t *wait_ns);
struct fo_loader_state fo_loader_state(const struct fo_loader *l);   /* after the batch last returned */
void fo_loader_close(struct fo_loader *l);

#endif
