/* Checkpoints: Hugging Face layout plus training state, checksummed, atomic.
 *
 * A checkpoint is a folder "step-00000100" with config.json, model.safetensors (Hugging Face names: transformers
 * loads it), tokenizer.json, state.safetensors (master weights or their low halves, and AdamW moments),
 * training.json and manifest.json (size and checksum of every other file). Large tensors are split by layer into
 * several files with an index, as Hugging Face does. The files are the same however many ranks wrote them. It is
 * written under a temporary name, every file and the folder are fsynced, then it is renamed: a folder of that name
 * is always whole. docs/formats.md describes the files. */
#ifndef FO_CKPT_CKPT_H
#define FO_CKPT_CKPT_H

#include "base/err.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/schema.h"
#include "data/data.h"
#include "program/program.h"

/* ---- safetensors ---- */

/* A device's memory under addresses of its own, which this process reaches through two pieces (0, 1) of host memory.
 * get: the bytes at `at` in the piece (`fetch` false: whatever is in it); put: the piece to `at`. One caller at a time.
 */
struct fo_st_memory {
	void *ctx;
	int64_t piece_bytes; /* at most so many at a time; at least 8 */
	fo_status (*get)(void *ctx, int piece, const void *at, int64_t bytes, bool fetch, void **data);
	fo_status (*put)(void *ctx, int piece, void *at, int64_t bytes);
};

/* A tensor in memory: rows x cols with row length ld (elements); one-dimensional in the file when `vector`. */
struct fo_st_tensor {
	char name[96];
	uint8_t dtype;
	bool vector;
	/* A checkpoint that lacks this tensor, or has one of another shape, gives zeros. The name begins with "state."
	 */
	bool optional;
	/* The rectangle that is here, which may have no rows. With `whole` its rows are rows `row` and on of so many in
	 * the file, with `wide` its columns are columns `col` and on of so many. */
	int64_t rows, cols, ld, row, whole, col, wide;
	/* Ranks that have this rectangle, and which of them this is: each writes its part of the rows. 0: one has it.
	 */
	int32_t copies, copy;
	int32_t layer; /* it belongs to this layer, counted from 1; 0: to none */
	void *data;
	const struct fo_st_memory *memory; /* in which data and low lie; NULL: this process's */
	int16_t *low; /* not NULL, for reading into bf16: data becomes the upper, this (of the same ld) the low halves
		       * of the fp32 numbers of the file (kernel/round.h) */
};

static inline int64_t fo_st_whole(const struct fo_st_tensor *t) { return t->whole ? t->whole : t->rows; }
static inline int64_t fo_st_wide(const struct fo_st_tensor *t) { return t->wide ? t->wide : t->cols; }
int64_t fo_st_bytes(const struct fo_st_tensor *t); /* in a file, all rows and columns */

/* A file's checksum can be made by several writers, each from the rectangles that it writes, and added up:
 *
 *   XXH3-64 of the header + the sum over all words of the word x F(its number % 512) x B(its block)
 *
 * modulo 2^64, the header with the 8 bytes of its length before it. Words are a tensor's elements as unsigned numbers,
 * of 8 bytes two words; a block is 512 of them. docs/formats.md says what F and B are.
 *
 * Checksums of before (manifest schema 2) add XXH3-64 of each row, seeded with its byte offset in the file, in place of
 * the words. A tensor of one dimension is one row. */

/* Makes the header of a file of these tensors in this order, without its length; metadata_json may be NULL. It depends
 * on names, types and whole shapes alone. */
void fo_st_header(struct fo_str *out, const struct fo_st_tensor *t, size_t n, const char *metadata_json);
uint64_t fo_st_header_sum(const struct fo_str *head);
/* Bytes before a file's first tensor: header and its length. */
static inline int64_t fo_st_header_bytes(const struct fo_str *head) { return 8 + (int64_t)head->len; }
FO_CHECKED fo_status fo_st_put_header(int fd, const char *path, const struct fo_str *head);
/* Writes `rows` of the rows that are here, from the one numbered `from` on, to where they belong in the open file,
 * whose byte `at` is the tensor's first; adds their checksums to *sum. Nothing is flushed. */
FO_CHECKED fo_status fo_st_put(int fd, const char *path, const struct fo_st_tensor *t, int64_t from, int64_t rows,
			       int64_t at, uint64_t *sum);
/* Streams the tensors, which have all their rows, into a new file and fsyncs it. metadata_json may be NULL. */
FO_CHECKED fo_status fo_st_write(const char *path, const struct fo_st_tensor *t, size_t n, const char *metadata_json,
				 uint64_t *checksum);

struct fo_st_entry {
	char name[128];
	char dtype[8];
	int ndim;
	int64_t shape[8];
	size_t begin, end; /* bytes within data */
};
struct fo_st_file {
	struct fo_map map;
	struct fo_arena arena;
	struct fo_st_entry *entry;
	size_t n;
	const unsigned char *data;
};
/* Maps and validates: header length, JSON, types, shapes, offsets (ascending, without gaps, to the file's end). */
FO_CHECKED fo_status fo_st_open(struct fo_st_file *f, const char *path);
void fo_st_close(struct fo_st_file *f);
/* Its checksum, or (rows) that of before; reads all of it. */
FO_CHECKED fo_status fo_st_sum(const struct fo_st_file *f, bool rows, uint64_t *sum);
const struct fo_st_entry *fo_st_find(const struct fo_st_file *f, const char *name); /* NULL: none */
/* Copies an entry's rectangle that t has into it (the whole shape must agree), converting F32, BF16, F16 and F64 as
 * t->dtype asks (BF16 rounds to nearest even). */
FO_CHECKED fo_status fo_st_copy(const struct fo_st_file *f, const char *path, const struct fo_st_tensor *t);
/* The same for an entry of f that was found already. */
FO_CHECKED fo_status fo_st_copy_entry(const struct fo_st_file *f, const char *path, const struct fo_st_entry *e,
				      const struct fo_st_tensor *t);
/* Makes it zeros. */
FO_CHECKED fo_status fo_st_zero(const struct fo_st_tensor *t);
bool fo_st_fits(const struct fo_st_entry *e, const struct fo_st_tensor *t); /* the shape is t's */

/* ---- weights of a Hugging Face folder ---- */

/* Fills t[0..n) from the weights in folder `dir`: model.safetensors, or the shards that model.safetensors.index.json
 * names. Tensors are found by name, which may occur several times in t (a weight and its fp32 master copy). F32, BF16,
 * F16 and F64 are converted to the types of t.
 *
 * Every tensor of t must be there with its shape and every tensor there must be in t; FO_EFORMAT names all that are
 * missing, too many or of another shape or type at once, before anything is copied. Two exceptions, as in transformers:
 * the table "...rotary_emb.inv_freq" of old Llama files is skipped, and with `tied` an "lm_head.weight" that equals the
 * embedding. A config.json with a quantization_config is refused (FO_EFORMAT). Shards must be plain file names in
 * `dir`; sizes and counts are capped. */
FO_CHECKED fo_status fo_hf_read(const char *dir, bool tied, const struct fo_st_tensor *t, size_t n);
/* fo_hf_read without copying anything: t's data is not looked at. Reads headers alone, so it is fast. */
FO_CHECKED fo_status fo_hf_check(const char *dir, bool tied, const struct fo_st_tensor *t, size_t n);
/* The distinct shards that the text of an index names, in its order, arena-owned: plain file names. `where` names the
 * text in errors. */
FO_CHECKED fo_status fo_hf_index_parse(struct fo_arena *a, const char *json, size_t len, const char *where,
				       char ***shard, size_t *n);

/* ---- checkpoints ---- */

enum { FO_CKPT_LOSSES = 256 }; /* the longest window of guard.spike-window */
struct fo_ckpt_meta {
	int64_t step;   /* optimizer steps done */
	int64_t tokens; /* tokens with loss seen so far */
	struct fo_loader_state loader;
	/* A step's batch depends on these beside the loader's state; packing: enum fo_packing. */
	int64_t seq, rows_per_step, packing;
	uint64_t tokenizer_checksum;
	uint64_t seed;
	double loss;        /* of the last step */
	int64_t first_step; /* the first step of the whole run that was taken; 0: not known */
	double first_loss;  /* and its loss */
	double grad_norm;   /* of the last step that was taken, for optim.clip-norm=previous; 0: none */
	char precision[8];
	char master[8], moments[8]; /* fo_master_name, fo_moments_name: the formats of state.safetensors */
	int64_t skipped;            /* steps of `step` in which the optimizer changed nothing */
	int64_t rewinds;            /* times the run went back to a checkpoint */
	/* Losses of the newest steps, oldest first, which the spike guard looks back at. They are part of the state, so
	 * that a resumed run judges as one that was never stopped. */
	int64_t losses;
	double recent_loss[FO_CKPT_LOSSES];
};

extern const struct fo_schema fo_ckpt_schema, fo_ckpt_manifest_schema; /* training.json; manifest.json */

/* The content of a checkpoint. Tensors are read, not owned. */
struct fo_ckpt_content {
	const struct fo_model *model;
	const char *weight_dtype;             /* config.json's torch_dtype: "float32" or "bfloat16" */
	const struct fo_tokenizer *tokenizer; /* NULL: none */
	const struct fo_st_tensor *weight;
	size_t weights;
	const struct fo_st_tensor *state;
	size_t states;
	const char *run_config_json; /* effective options with origins; may be NULL */
	int64_t file_bytes;          /* tensors of more than so many bytes are split into several files; 0: one file. */
	int32_t rank;                /* of those that write it: which this is */
};

/* Writes dir/step-%08d from tensors of one rank; then removes all but the newest `keep` checkpoints up to this step
 * (0: keeps all). The manifest's checksums are those of the bytes that were handed to the system. A failure leaves
 * the other checkpoints as they were. */
FO_CHECKED fo_status fo_ckpt_save(const char *dir, const struct fo_ckpt_content *c, const struct fo_ckpt_meta *meta,
				  int keep);

/* The same by several ranks together, which have tensors of the same names and whole shapes. Each makes a writer of the
 * same checkpoint over its own rectangles; then
 *
 *   rank 0: fo_ckpt_writer_begin     the folder under another name, texts, headers
 *   all:    fo_ckpt_writer_rows      their rows, flushed
 *   rank 0: fo_ckpt_writer_end       the manifest, the folder's name
 *
 * and none begins its part before the one above it is over on every rank. Content and meta outlive the writer. */
struct fo_ckpt_writer;
void fo_ckpt_writer_new(struct fo_ckpt_writer **out, const char *dir, const struct fo_ckpt_content *c,
			const struct fo_ckpt_meta *meta);
FO_CHECKED fo_status fo_ckpt_writer_begin(struct fo_ckpt_writer *w);
FO_CHECKED fo_status fo_ckpt_writer_rows(struct fo_ckpt_writer *w);
/* Checksums, one per file, of what this rank wrote. Before fo_ckpt_writer_end rank 0 puts there their sums over all
 * ranks, modulo 2^64. */
uint64_t *fo_ckpt_writer_sums(struct fo_ckpt_writer *w, size_t *n);
/* st: what became of the parts before it. Not FO_OK: the folder is removed, and the error gets the step. */
FO_CHECKED fo_status fo_ckpt_writer_end(struct fo_ckpt_writer *w, fo_status st, int keep);
void fo_ckpt_writer_free(struct fo_ckpt_writer *w);

/* The newest checkpoint folder in dir (arena-owned), NULL when there is none. clean: removes left-over temporary
 * folders, which only the process that trains there may do. */
FO_CHECKED fo_status fo_ckpt_newest(struct fo_arena *a, const char *dir, bool clean, char **path);
typedef void fo_ckpt_refused_fn(void *ctx, const char *why, const char *instead);
/* The newest whole checkpoint of dir (arena-owned) and its meta; *path NULL when there is none at all. every > 0: only
 * steps that it divides. Damaged ones are passed over, and `refused` (may be NULL) gets the newest one's error and the
 * path taken instead, once; when none is whole, that error is returned. Hashes the files it looks at. */
FO_CHECKED fo_status fo_ckpt_pick(struct fo_arena *a, const char *dir, int64_t every, fo_ckpt_refused_fn *refused,
				  void *ctx, char **path, struct fo_ckpt_meta *meta);
/* Checkpoint folders in dir, damaged ones too; 0 where it cannot be read. */
int64_t fo_ckpt_count(const char *dir);
/* Removes the checkpoints of steps after `step`: a run that went back writes them anew. */
FO_CHECKED fo_status fo_ckpt_forget(const char *dir, int64_t step);
/* Checks the manifest (every file present, of its size and checksum), reads training.json, and holds a folder named
 * after a step to that step. */
FO_CHECKED fo_status fo_ckpt_open(const char *path, struct fo_ckpt_meta *meta);
/* Fills the tensors from the checkpoint's files. fo_ckpt_open must have succeeded. *afresh: so many optional ones are
 * zeros because the files have them in another shape. */
FO_CHECKED fo_status fo_ckpt_read(const char *path, const struct fo_st_tensor *weight, size_t weights,
				  const struct fo_st_tensor *state, size_t states, int64_t *afresh);

#endif
