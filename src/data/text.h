/* Streams of documents from text, JSON lines and their compressed forms, in bounded memory.
 *
 * Inputs are files, folders (every regular file below, hidden ones left out), patterns ("c4-*.json.gz") and "-",
 * standard input. What a file is, its bytes say: gzip (of any number of members) and Zstandard are unpacked as they are
 * read; a first line that is a JSON object with the text field makes a file JSON lines, a document per line, and so
 * does a name that ends in .jsonl or .ndjson; every other file is one document, a file with NUL bytes is no text and
 * skipped.
 *
 * A document comes in parts of about a mebibyte, so that its length is bounded by nothing but the disk; a line of JSON
 * is one part and bounded by max_document. */
#ifndef FO_DATA_TEXT_H
#define FO_DATA_TEXT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fo_text_format { FO_TEXT_AUTO, FO_TEXT_PLAIN, FO_TEXT_JSONL };

struct fo_text_options {
	enum fo_text_format format;
	const char *field;    /* of JSON lines; NULL: "text" */
	bool skip_bad;        /* a bad line or damaged file is counted and left out; else it is an error */
	int64_t max_document; /* bytes of a JSON line; 0: 64 MiB */
	double max_expand;    /* what a compressed file may grow by, once it passes 64 MiB; 0: 200 */
	/* A folder with our own output, which may not exist yet: nothing in it is read; NULL: none. */
	const char *leave_out;
	/* Finds where a part may end: a place in (at, len], len when there is none; NULL: after a line end. */
	size_t (*cut)(const void *ctx, const char *text, size_t len, size_t at);
	const void *cut_ctx;
};

#define FO_TEXT_MAX_DOCUMENT ((int64_t)64 << 20)
#define FO_TEXT_MAX_EXPAND 200.0
#define FO_TEXT_MAX_FILES ((size_t)1 << 22)

struct fo_text_part {
	char *bytes; /* of the caller to change until the next call; NULL at the end of all */
	size_t len;
	int64_t file, line; /* index into the files; line of JSON lines from 1, else 0 */
	bool json;          /* a line that fo_text_field still has to take apart */
	bool begins, ends;  /* a document */
	bool dropped;       /* the document begun turned out to be damaged or no text: forget it; ends, has no bytes */
};

/* Counts of files, and of what was left out so far. */
struct fo_text_counts {
	int64_t files;  /* opened */
	int64_t binary; /* with NUL bytes */
	int64_t empty;  /* without a byte; of JSON lines: with an empty text, counted by the caller */
	int64_t bad;    /* damaged or unreadable files, bad lines; only with skip_bad */
};

/* The position of a stream, from which another process can go on. */
struct fo_text_place {
	int64_t file, offset, line; /* offset: unpacked bytes of the file that were read; -1: before the file */
	bool open;                  /* inside a document */
	uint64_t digest;            /* XXH3-64 of those bytes: the input must still begin with them */
	struct fo_text_counts counts;
};

struct fo_text;
/* Looks the inputs up: which files there are and how long. FO_EIO: an input that does not exist; FO_EARG: no file. */
FO_CHECKED fo_status fo_text_open(struct fo_text **out, char *const *inputs, size_t n, const struct fo_text_options *o);
void fo_text_close(struct fo_text *t);
/* The next part. Errors name the file and, of JSON lines, the line. */
FO_CHECKED fo_status fo_text_next(struct fo_text *t, struct fo_text_part *out);
/* The text of a JSON line, unescaped in place: *text lies in line[0..len). "\u0000" gives a NUL byte, half a surrogate
 * pair U+FFFD; broken UTF-8 stays. FO_EFORMAT: no JSON object (at most 128 levels deep) or no such text in it. */
FO_CHECKED fo_status fo_text_field(char *line, size_t len, const char *field, char **text, size_t *text_len);

size_t fo_text_files(const struct fo_text *t);
const char *fo_text_file(const struct fo_text *t, int64_t file); /* its path, "-": standard input */
struct fo_text_counts fo_text_counts(const struct fo_text *t);
struct fo_text_place fo_text_place(const struct fo_text *t); /* after the part last returned */
/* Goes on from a place of an equal stream: reads up to it. FO_EARG: the input is another one. */
FO_CHECKED fo_status fo_text_seek(struct fo_text *t, const struct fo_text_place *p);
/* Bytes read of all files as they lie on disk; *total 0 when standard input is among them. */
void fo_text_progress(const struct fo_text *t, double *done, double *total);
/* XXH3-64 of the files' names, lengths and times of change, and of the options that decide about documents (not
 * skip_bad and max_expand). */
uint64_t fo_text_fingerprint(const struct fo_text *t);

#endif
