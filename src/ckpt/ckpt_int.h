/* Private to checkpoints: sets of safetensors files (shards.c), the manifest and the folders of a run
 * (checkpoint.c). */
#ifndef FO_CKPT_CKPT_INT_H
#define FO_CKPT_CKPT_INT_H

#include "ckpt/ckpt.h"

/* ---- words.c ---- */

/* The sum of the words of `elements` elements, which lie one behind the other and begin with the tensor's element
 * number `first`; `at` is the byte of the file where the tensor begins. */
uint64_t fo_st_words_sum(const void *data, size_t element_bytes, int64_t elements, int64_t first, int64_t at);

/* ---- shards.c: the tensors of a folder, in one file or in several with an index ---- */

/* Formats of file names, of a stem ("model"): one file; the index of several; of several the i-th of n. */
#define FO_ST_SINGLE "%s.safetensors"
#define FO_ST_INDEX "%s.safetensors.index.json"
#define FO_ST_SHARD "%s-%05d-of-%05d.safetensors"
#define FO_CKPT_INDEX_MOST ((size_t)64 << 20) /* bytes of an index: one with 60,000 tensors has 6 MiB */

struct fo_st_held {
	const struct fo_st_entry *entry;
	size_t shard;
	bool wanted; /* the caller's */
};
struct fo_st_set {
	struct fo_arena arena;
	const char *dir;
	char **path; /* by shard */
	struct fo_st_file *file;
	size_t shards, open;
	struct fo_st_held *held; /* by name */
	size_t n;
};
/* Opens STEM.safetensors of folder `dir`, or the shards that its index names; each must hold what the index places
 * there. Closed with fo_st_set_close, whatever was returned. FO_EIO with no shards: neither is there. */
FO_CHECKED fo_status fo_st_set_open(struct fo_st_set *f, const char *dir, const char *stem);
struct fo_st_held *fo_st_set_find(const struct fo_st_set *f, const char *name); /* NULL: none */
void fo_st_set_close(struct fo_st_set *f);

/* ---- checkpoint.c ---- */

/* Size and checksum of the bytes that were handed to the file system. They are not read back: that would make a write
 * that went wrong look right. */
struct fo_ckpt_sum {
	const char *file;
	int64_t bytes;
	/* Checksums: of the whole file, of its header and rows, or of its header and words (fo_st_sum). One of them is
	 * there, the others are 0. */
	uint64_t hash, rows, words;
};
struct fo_ckpt_manifest {
	struct fo_ckpt_sum *sum;
	int files;
};
/* The text of a record file, which ends with an empty line. Arena-owned. */
char *fo_ckpt_record_text(struct fo_arena *a, const struct fo_schema *schema, const void *record);
char *fo_ckpt_step_path(struct fo_arena *a, const char *dir, int64_t step);
/* Steps of the checkpoints in dir, newest first. clean: remove what killed runs left. */
FO_CHECKED fo_status fo_ckpt_list_steps(struct fo_arena *a, const char *dir, bool clean, int64_t **steps, size_t *n);
FO_CHECKED fo_status fo_ckpt_remove_step(struct fo_arena *a, const char *dir, int64_t step);

#endif
