/* Text to rows of tokens: tokenizer, corpus, shards, packing, loader.
 *
 * A text source becomes two shards (train and held-out) once; the loader maps a shard and serves steps of micro-batches
 * from its own thread. Its state is a plain struct that a checkpoint stores; the batch of step s depends only on
 * (shard, options, s), so a resumed run sees the same bits. */
#ifndef FO_DATA_DATA_H
#define FO_DATA_DATA_H

#include "base/err.h"
#include "base/fs.h"
#include "base/mem.h"
#include "data/text.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- tokenizer: byte-level BPE, Hugging Face tokenizer.json in and out ---- */

struct fo_tokenizer;

/* Trains on the inputs' text (as fo_text_open takes them; o NULL: its defaults): of more than `max_bytes` an even
 * sample of 64 KiB blocks, half of that to all of that (docs/data.md has the rules). vocab, 258 to 2^20, counts the
 * special tokens <|begin_of_text|> and <|end_of_text|>; the result has fewer when no pair is left that occurs twice.
 * The same input gives the same tokenizer. Memory: the sample and some 100 bytes per distinct pair and word. stop (may
 * be NULL): FO_EINTERRUPT as soon as it is not 0. FO_EARG: range, no text. */
FO_CHECKED fo_status fo_tokenizer_train(char *const *inputs, size_t n, const struct fo_text_options *o, int64_t vocab,
					size_t max_bytes, fo_progress_fn *progress, void *ctx,
					const volatile sig_atomic_t *stop, struct fo_tokenizer **out);
/* BPE merges settle long before this much text; more only costs time. */
#define FO_TOKENIZER_SAMPLE_BYTES ((size_t)32 << 20)
/* Reads what fo_tokenizer_save writes and Hugging Face's BPE files in the styles of Llama 3, GPT-2 and Qwen2 (bytes)
 * and of Llama 2 and Mistral 7B (SentencePiece's, with byte fallback); docs/data.md lists the fields. FO_EFORMAT names
 * whatever would change the ids and is not supported. */
FO_CHECKED fo_status fo_tokenizer_load(const char *path, struct fo_tokenizer **out);
/* Writes a tokenizer.json that Hugging Face tokenizers loads and that gives the same ids there. */
FO_CHECKED fo_status fo_tokenizer_save(const struct fo_tokenizer *t, const char *path);
bool fo_tokenizer_is_saved(const struct fo_tokenizer *t, const char *path); /* does the file hold these very bytes? */
void fo_tokenizer_free(struct fo_tokenizer *t);
int64_t fo_tokenizer_vocab(const struct fo_tokenizer *t);
int32_t fo_tokenizer_bos(const struct fo_tokenizer *t);
int32_t fo_tokenizer_eos(const struct fo_tokenizer *t);
uint64_t fo_tokenizer_checksum(const struct fo_tokenizer *t); /* XXH3 of the saved text */
/* Appends the ids of text[0..len) to *ids (grown with fo_array_room; count in *n; the caller frees). Any bytes are
 * legal. Decoding gives them back, but for what the file's own rules change: normalization (Qwen2), U+2581 read as a
 * space and one leading space (SentencePiece's style). Special tokens are never read from a text: it cannot inject
 * them. BOS and EOS are not added. Threads that share a tokenizer take turns: give each an encoder of its own instead.
 * Fails only when a foreign file's pattern runs into its match limit. */
FO_CHECKED fo_status fo_tokenizer_encode(const struct fo_tokenizer *t, const char *text, size_t len, int32_t **ids,
					 size_t *n, size_t *cap);

/* One thread's encoder: cache and scratch of its own (some 10 MiB once it has seen text) on a tokenizer that any number
 * of them read at once. The tokenizer must outlive it. */
struct fo_encoder;
FO_CHECKED fo_status fo_encoder_new(const struct fo_tokenizer *t, struct fo_encoder **out);
void fo_encoder_free(struct fo_encoder *e);
/* Like fo_tokenizer_encode. `first`: the text is whole or its beginning; false for a part after a fo_tokenizer_cut. */
FO_CHECKED fo_status fo_encoder_encode(struct fo_encoder *e, const char *text, size_t len, bool first, int32_t **ids,
				       size_t *n, size_t *cap);
/* The next place from `at` (> 0) on where a text may be cut so that the ids of its parts, end to end, are those of
 * the whole; len where there is none. So one text can be encoded by many threads. A foreign pattern is never cut. */
size_t fo_tokenizer_cut(const struct fo_tokenizer *t, const char *text, size_t len, size_t at);

struct fo_str;
/* Appends the bytes of ids[0..n); special tokens appear as their text, ids outside the vocabulary are skipped. */
void fo_tokenizer_decode(const struct fo_tokenizer *t, const int32_t *ids, size_t n, struct fo_str *out);
/* The same for ids that begin a text: SentencePiece's style drops the space that encoding has put in front. */
void fo_tokenizer_decode_text(const struct fo_tokenizer *t, const int32_t *ids, size_t n, struct fo_str *out);

/* ---- shards: documents of token ids on disk ---- */

/* Texts to DIR/train.shard and val.shard, with train.src and val.src that say where each document came from.
 *
 * A document is BOS, its tokens, EOS. Of every `holdout_every` (>= 2) successive documents one, chosen by a hash, goes
 * to val; of fewer documents in all, the last 1/holdout_every part of each. The files depend on inputs, options and
 * tokenizer only. Memory: a few MiB per thread and 64 bytes per file; the disk needs 24 bytes per document more than
 * the shards until the end.
 *
 * What is done is made durable every save_every_ns: the same call goes on after a kill at any moment, with the same
 * result. Standard input must then begin with the same bytes again. FO_EARG: no text, too little to hold any out, or
 * DIR holds what was made from something else (unless `replace`). */
struct fo_prepare {
	char *const *inputs; /* as fo_text_open takes them */
	size_t n;
	const char *dir; /* made if needed */
	const struct fo_tokenizer *tokenizer;
	struct fo_text_options text; /* its cut is set here; leave_out NULL: dir */
	int64_t holdout_every;
	int threads;           /* that encode; at least 1 */
	int64_t save_every_ns; /* 0: 5 s */
	uint64_t also;         /* whatever else the caller's result depends on: another value is another preparation */
	bool replace;
	fo_progress_fn *progress; /* bytes of the files on disk; total 0: not known */
	void *ctx;
	const volatile sig_atomic_t *stop; /* not NULL and not 0: saves and returns FO_EINTERRUPT */
};
struct fo_prepare_stats {
	int64_t files, skipped_binary, skipped_empty, skipped_bad;     /* bad: lines and files, with text.skip_bad */
	int64_t bytes, train_docs, train_tokens, val_docs, val_tokens; /* bytes: text encoded */
	int64_t resumed_bytes;                                         /* of `bytes`, done before this call */
};
struct fo_schema;
extern const struct fo_schema fo_prepared_schema; /* prepared.json */
FO_CHECKED fo_status fo_data_prepare(const struct fo_prepare *p, struct fo_prepare_stats *stats);

struct fo_shard {
	int64_t tokens, docs, vocab;
	const int64_t *doc_at; /* docs + 1 offsets, in tokens */
	const uint16_t *ids16; /* one of the two is set: 16 bit when vocab <= 65536 */
	const uint32_t *ids32;
	uint64_t checksum, tokenizer_checksum;
	void *map;
	size_t map_len;
};

/* A text (one input as fo_text_open takes it: file, folder, pattern, JSON lines, packed or not) as a shard in memory:
 * documents as fo_data_prepare makes them, none held out. 4 bytes per token. FO_EARG: no text. Freed with
 * fo_documents_free, not fo_shard_close. */
struct fo_documents {
	struct fo_shard shard;
	int64_t bytes; /* of the text */
	int32_t *ids;
	int64_t *doc_at;
	size_t n, cap, doc_cap;
};
FO_CHECKED fo_status fo_documents_read(struct fo_documents *d, const char *input, const struct fo_tokenizer *t,
				       fo_progress_fn *progress, void *ctx);
void fo_documents_free(struct fo_documents *d);

/* Maps and validates (magic, version, sizes, offsets ascending, every id < vocab, checksum). FO_EFORMAT says what is
 * wrong; *s is set on success only. The file must not be cut while it is open. */
FO_CHECKED fo_status fo_shard_open(struct fo_shard *s, const char *path);
void fo_shard_close(struct fo_shard *s);

/* The origin of each document of a shard: DIR/train.src beside DIR/train.shard, written by fo_data_prepare. Sixteen
 * bytes per document, mapped; records are checked when they are asked for. */
struct fo_shard_sources {
	int64_t docs, files;
	const void *record, *name_at; /* in the map */
	const char *names;
	size_t names_len;
	struct fo_map map;
};
/* `shard_path` names the shard that `s` was opened from. A folder without the file (shards of version 0.1) gives docs =
 * 0: FO_OK. FO_EFORMAT: damaged, or of another shard. */
FO_CHECKED fo_status fo_shard_sources_open(struct fo_shard_sources *o, const struct fo_shard *s,
					   const char *shard_path);
/* Reads all of it: the checksum and every record. FO_EFORMAT. */
FO_CHECKED fo_status fo_shard_sources_verify(const struct fo_shard_sources *o);
void fo_shard_sources_close(struct fo_shard_sources *o);
/* The file and line that a document came from. */
struct fo_doc_source {
	const char *path; /* as it was given or found below a folder; "-": standard input. Not made visible */
	int64_t line;     /* of a JSONL file, from 1; 0: the document is a whole file */
};
/* FO_EARG: the shard has no such document or no sources; FO_EFORMAT: the record is damaged. out->path lives with o. */
FO_CHECKED fo_status fo_shard_source(const struct fo_shard_sources *o, int64_t doc, struct fo_doc_source *out);

/* Cross-entropy (nats per token) that a bigram model of train's tokens reaches on val: what a language model has to
 * beat. p(b | a) = (c(ab) + k p(b)) / (c(a) + k), p(b) = (c(b) + 1) / (N + V); k is chosen on a tenth of train that the
 * counts for the choice do not see. Predicted are the tokens that follow another one in their document: those whose
 * loss a model is charged with, too. Memory: at most 72 bytes per distinct bigram. */
FO_CHECKED fo_status fo_data_bigram_loss(const struct fo_shard *train, const struct fo_shard *val, double *nats);

/* ---- batches ---- */

enum fo_packing { FO_PACK_PACKED, FO_PACK_PADDED, FO_PACK_BESTFIT, FO_PACK_SPLIT, FO_PACK_COUNT };
extern const char *const fo_packing_name[FO_PACK_COUNT]; /* "packed", "padded", "bestfit", "split" */

struct fo_batch_shape {
	int64_t seq, rows, micro_batches;
	enum fo_packing packing;
	int64_t window; /* keys that a query sees at most; 0: all. Only `pairs` depends on it */
	/* Rows first_row and on of each micro-batch are filled in, own_rows of them: one rank's. Counts are those of
	 * all rows nevertheless. own_rows 0: all. */
	int64_t first_row, own_rows;
};
static inline int64_t fo_batch_own_rows(const struct fo_batch_shape *s) { return s->own_rows ? s->own_rows : s->rows; }

/* One step's tokens. Each array is [micro_batches][rows * seq], of the rows that are filled in. T = rows * seq. */
struct fo_batch {
	int32_t *token;  /* input ids; padding is the EOS id */
	int32_t *target; /* the document's next token, also where that lies in the next row or was cut off; -1 where no
			  * loss is taken: padding, a document's last token */
	int32_t *position;   /* index - doc_start: restarts with each document and each row */
	int32_t *doc_start;  /* flat index in [0, T) of the first token of this token's document within this row; a
			      * padding  token is a document of its own */
	int64_t loss_tokens; /* targets >= 0 over all micro-batches */
	int64_t *micro_loss_tokens; /* per micro-batch */
	int64_t *pairs; /* per micro-batch: sum over tokens of (index - doc_start + 1), at most the window: attention
			 * pairs, padding not counted */
	int64_t real_tokens; /* tokens that are not padding */
	int64_t truncated;   /* tokens dropped because a document exceeded a padded row, in this step */
	int64_t step;        /* 0-based */
};

/* One piece of a document in a step's batch: its tokens `from` to from + tokens. */
struct fo_piece {
	int64_t micro_batch, row; /* row within the micro-batch */
	int64_t at;               /* its first place in the row */
	int64_t doc;              /* number in the shard, from 0 */
	int64_t from, tokens;
};
typedef bool fo_piece_fn(void *ctx, const struct fo_piece *p); /* false: no more of them */
/* Visits what `steps` steps from `first` on (0-based, as the loader counts) are made of, row by row: the same pure
 * function as the batches. seed is the loader's. Allocates 32 bytes per document of the shard (best fit: the plan too);
 * for reports, not for steps. */
FO_CHECKED fo_status fo_batch_pieces(const struct fo_shard *s, const struct fo_batch_shape *shape, uint64_t seed,
				     int64_t first, int64_t steps, fo_piece_fn *fn, void *ctx);

/* How much of the text steps 0 to `steps` - 1 are made of. */
struct fo_text_seen {
	int64_t served;   /* tokens of rows, padding left out: what comes twice counts twice */
	int64_t distinct; /* of the shard's tokens, those that came at least once */
	int64_t reached;  /* those that come at some time, however many steps there are: all, but for what padded rows
			     cut off */
};
/* The same pure function as the batches. Memory: as fo_batch_pieces, and 16 bytes per piece (of more than a million
 * pieces those that touch are joined now and then). stop (may be NULL): FO_EINTERRUPT as soon as it is not 0. */
FO_CHECKED fo_status fo_text_seen(const struct fo_shard *s, const struct fo_batch_shape *shape, uint64_t seed,
				  int64_t steps, const volatile sig_atomic_t *stop, struct fo_text_seen *out);

/* The state that a checkpoint stores to go on: `next_step` alone determines the rest. */
struct fo_loader_state {
	int64_t next_step;
	uint64_t seed;
	uint64_t shard_checksum;
};

struct fo_loader;
/* Documents are shuffled per epoch by seed.
 * PACKED   laid end to end, epochs too, and cut into full rows; positions restart in each row, which come in random
 *          order, block by block of about an epoch
 * PADDED   one document per row, truncated and padded
 * BESTFIT  documents that fit together into a row, padded; only longer ones are cut; rows in random order
 * SPLIT    a part of one document per row: each is cut into full rows and a rest, which is padded; rows in PACKED's
 *          order
 * A thread keeps up to two steps ready. The shard must outlive the loader. state->shard_checksum 0 takes any shard,
 * else it must be this one's. */
FO_CHECKED fo_status fo_loader_open(struct fo_loader **out, const struct fo_shard *s,
				    const struct fo_batch_shape *shape, const struct fo_loader_state *state,
				    int32_t pad_id);
/* The next step's batch; valid until the next call. *wait_ns: how long the caller had to wait, 0 when the batch was
 * ready. Allocates nothing. An error of the thread is raised here, again at each call. */
FO_CHECKED fo_status fo_loader_next(struct fo_loader *l, const struct fo_batch **out, int64_t *wait_ns);
/* The batch that the next call of fo_loader_next gives, if it is ready: NULL otherwise. It stays what it is until the
 * call after that one; looking changes nothing. */
const struct fo_batch *fo_loader_peek(struct fo_loader *l);
struct fo_loader_state fo_loader_state(const struct fo_loader *l); /* after the batch last returned */
void fo_loader_close(struct fo_loader *l);
/* Bytes that a loader takes beside its batches: the order of the documents or the rows, of which `users` loaders each
 * bear their part. */
int64_t fo_loader_order_bytes(const struct fo_shard *s, const struct fo_batch_shape *shape, int users);

/* The order of documents once for the loaders of several processes of a host (order_share.c). One makes it for `users`
 * of them, its own included, and is user 0; the others join by its place, which is plain data, while it is open. bytes:
 * fo_order_bytes. NULL, without an error: the system does not allow it, and each loader has an order of its own. */
struct fo_order_share;
struct fo_order_place {
	int64_t pid, fd; /* fd -1: there is none */
	uint64_t token;
};
struct fo_order_share *fo_order_share_make(int64_t bytes, int users, struct fo_order_place *place);
struct fo_order_share *fo_order_share_join(int64_t bytes, int user, const struct fo_order_place *place);
/* Of one order: of an epoch's documents, or the rows of best-fit packing. */
int64_t fo_order_bytes(const struct fo_shard *s, const struct fo_batch_shape *shape);
/* A loader that waits for another one to make an order gives up: before it is closed. NULL: nothing. */
void fo_order_share_quit(struct fo_order_share *o);
void fo_order_share_close(struct fo_order_share *o);          /* after its loader; NULL: nothing */
int64_t fo_order_share_bytes(const struct fo_order_share *o); /* that it takes now, of all users together; -1 */
/* fo_loader_open with an order that is shared; NULL: the loader has its own. It outlives the loader. */
FO_CHECKED fo_status fo_loader_open_shared(struct fo_loader **out, const struct fo_shard *s,
					   const struct fo_batch_shape *shape, const struct fo_loader_state *state,
					   int32_t pad_id, struct fo_order_share *order);

/* The cost of a packing in one epoch of rows of seq tokens. */
struct fo_packing_cost {
	double rows;       /* PACKED: with a fraction, for the last one goes on with the next epoch */
	double padding;    /* places without a token */
	int64_t truncated; /* tokens dropped */
	int64_t long_docs; /* longer than a row: no packing keeps them whole */
	int64_t cut_docs;  /* that fit into a row and are cut all the same; PACKED: counted in the order of seed and
			      epoch 0 */
};
FO_CHECKED fo_status fo_packing_measure(const struct fo_shard *s, int64_t seq, enum fo_packing packing, uint64_t seed,
					struct fo_packing_cost *out);

/* The same rows without shuffling, each token once: documents end to end in shard order, cut as PACKED; the last batch
 * is padded (each padding token a document of its own, id 0, no target). The shard must outlive it. */
struct fo_rows {
	const struct fo_shard *shard;
	struct fo_batch_shape shape; /* one micro-batch */
	struct fo_batch batch;
	int64_t doc, at, steps, loss_tokens, pairs;
	void *memory;
	size_t bytes;
};
FO_CHECKED fo_status fo_rows_open(struct fo_rows *r, const struct fo_shard *s, const struct fo_batch_shape *shape);
/* *out NULL at the end; valid until the next call. FO_EIO: the shard's file was cut or changed while it was read. */
FO_CHECKED fo_status fo_rows_next(struct fo_rows *r, const struct fo_batch **out);
void fo_rows_close(struct fo_rows *r);

#endif
