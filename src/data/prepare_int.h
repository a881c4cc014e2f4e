/* Writing shards so that a kill at any moment costs a few seconds of work. Inside src/data only. */
#ifndef FO_DATA_PREPARE_INT_H
#define FO_DATA_PREPARE_INT_H

#include "data/data_int.h"

/* ---- a file that only grows, and can be cut back ---- */

struct sink {
	bool open; /* zeroed is closed */
	int fd;
	char path[4096];
	int64_t size; /* bytes put so far */
	size_t used;  /* of them in the buffer */
	unsigned char buffer[1 << 16];
};

/* ---- a shard under construction: NAME.shard.tmp, NAME.docs.tmp (offsets), NAME.src.tmp (sources) in a folder ---- */

/* How much of a shard was written, which is all that going on needs. */
struct shard_mark {
	int64_t tokens, docs;
	int64_t last_start; /* tokens before the last document */
};

enum { IDS, OFFSETS, SOURCES, WRITER_FILES };

struct shard_writer {
	struct sink file[WRITER_FILES];
	struct shard_mark mark;
	uint32_t id_bytes;
	int64_t vocab;
	uint64_t tokenizer_checksum;
};

/* mark: NULL begins anew, else the files are cut back to it; FO_EFORMAT: they are shorter than that. */
FO_CHECKED fo_status shard_writer_open(struct shard_writer *w, const char *dir, const char *name,
				       const struct fo_tokenizer *t, const struct shard_mark *mark);
FO_CHECKED fo_status shard_writer_document(struct shard_writer *w, int64_t file, int64_t line); /* begins one */
FO_CHECKED fo_status shard_writer_ids(struct shard_writer *w, const int32_t *ids, size_t n);
/* Removes the last document, in two steps: an older journal may count on its bytes. Between them nothing may be
 * written, and a journal must be. */
FO_CHECKED fo_status shard_writer_drop(struct shard_writer *w);
FO_CHECKED fo_status shard_writer_trim(struct shard_writer *w);
FO_CHECKED fo_status shard_writer_sync(struct shard_writer *w); /* all of it to the disk */
/* Makes NAME.shard.tmp and NAME.src.tmp complete and durable. names(ctx, i) is the path of file i < files. */
FO_CHECKED fo_status shard_writer_finish(struct shard_writer *w, int64_t files,
					 const char *(*names)(const void *, int64_t), const void *ctx);
void shard_writer_close(struct shard_writer *w);
/* DIR/NAME.shard.tmp and .src.tmp to DIR/AS.shard and .src, where they are there; .docs.tmp goes. Repeatable. */
FO_CHECKED fo_status shard_writer_publish(const char *dir, const char *name, const char *as);
void shard_writer_remove(const char *dir, const char *name); /* the three files, where they are */

/* ---- the journal ---- */

enum prepare_stage { STAGE_READING, STAGE_PUBLISHING };

struct journal {
	char magic[8];
	uint64_t checksum;    /* XXH3-64 of the rest */
	uint64_t fingerprint; /* of inputs, options and tokenizer */
	int64_t stage, few;   /* few: publish the .few shards */
	int64_t open;         /* 0: between documents, 1: one of train is open, 2: of val */
	int64_t open_bytes;   /* text of the open document so far */
	struct fo_text_place place;
	struct fo_prepare_stats stats;
	struct shard_mark mark[2];
};
FO_CHECKED fo_status journal_write(struct journal *j, const char *dir); /* fills in magic and checksum */
/* *found: there is one and it is whole. */
FO_CHECKED fo_status journal_read(struct journal *j, const char *dir, bool *found);
void journal_remove(const char *dir);

#endif
