/* Record tables: one table per kind of JSON record writes it, reads it, checks it and documents it.
 *
 * A row names a member of a plain C struct; its JSON type follows from the member's C type, so that table and struct
 * cannot disagree:
 *
 *   static const struct fo_schema_field eval_field[] = {
 *       FO_FIELD(struct eval, step, "step", "", "steps done"),
 *       FO_FIELD(struct eval, loss, "loss", "nats per token", "mean held-out loss"),
 *   };
 *   const struct fo_schema eval_schema = { "eval", "a log line", .event = "eval", FO_FIELDS(eval_field) };
 *
 * Writing follows the order of the rows. Reading looks up each key, ignores keys that no row names (files of newer
 * versions) and leaves a member as it is when its key is absent, so callers set defaults first (fo_schema_blank).
 *
 *   C member         in JSON                                  "absent" value
 *   double           number; NaN and infinities are null      NaN
 *   int64_t, int     integer                                  the row's `absent`
 *   bool             true, false                              false
 *   const char *     text, owned by the reader's arena        "" (NULL is written as null)
 *   char[N]          text of less than N bytes                ""
 *   uint64_t         16 hexadecimal digits (JSON readers      0
 *                    lose integers beyond 2^53)
 *
 * docs/formats.md holds the tables as fo_schema_markdown prints them; test_record_tables compares. */
#ifndef FO_BASE_SCHEMA_H
#define FO_BASE_SCHEMA_H

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_t; /* jansson's */
struct fo_schema_reader;

enum fo_schema_type {
	FO_SCHEMA_REAL,
	FO_SCHEMA_INT,   /* int64_t */
	FO_SCHEMA_INT32, /* int */
	FO_SCHEMA_BOOL,
	FO_SCHEMA_TEXT,
	FO_SCHEMA_CHARS,
	FO_SCHEMA_HEX,
	FO_SCHEMA_MARK,    /* double: true where it is above 0, else left out */
	FO_SCHEMA_CHOICE,  /* int or enum: one of the row's names */
	FO_SCHEMA_SCALAR,  /* const char *: the text of a text, number or boolean */
	FO_SCHEMA_RAW,     /* const char *: JSON as it stands, NULL: null; not read */
	FO_SCHEMA_REALS,   /* double[] in the struct, or a pointer to doubles (FO_POINTER) */
	FO_SCHEMA_DIMS,    /* int64_t[]: as many as are not 0 */
	FO_SCHEMA_BY_NAME, /* double[]: an object with a number for each of the row's names */
	FO_SCHEMA_RECORD,  /* an object: a nested struct, or some members of this one (FO_GROUP) */
	FO_SCHEMA_LIST,    /* an array of records */
	FO_SCHEMA_MAP,     /* an object of records; the first row of their table, a text, is the key. A second and last
			    * row without a key of its own is the value itself */
};

enum fo_schema_flag {
	FO_NEEDED = 1,      /* a record without it is refused */
	FO_OMIT = 2,        /* left out when it holds its absent value */
	FO_NULLS = 4,       /* written as null when it holds its absent value, and null is read as that */
	FO_WORD = 8,        /* char[]: small letters, digits, '_' and '-' only */
	FO_VISIBLE = 16,    /* char[]: made safe for terminals when read (fo_str_visible) */
	FO_WRITE_ONLY = 32, /* not read: nobody here needs it back */
	FO_READ_ONLY = 512, /* not written: another row of the same key writes it */
	FO_POINTER = 64,    /* REALS, LIST, MAP: the member points to the elements, which are outside the struct;
			     * RECORD, write only: it points to the record, NULL is absent */
	FO_INLINE = 128,    /* RECORD: its fields stand in the object around it */
	FO_LINES = 256,     /* LIST: an element per line in a file that is otherwise indented */
};

struct fo_schema_field {
	const char *key, *unit, *meaning;
	enum fo_schema_type type;
	uint32_t offset, size;      /* of the member */
	uint32_t count, count_size; /* REALS, LIST, MAP: offset and size of the number of elements; RECORD: of a
					    bool, whether it is there (count_size 0: always) */
	unsigned flags;             /* of fo_schema_flag */
	double low, high;           /* inclusive range of numbers; both 0: any */
	int64_t absent;             /* integers: the value that stands for "not known" */
	double per;                 /* BY_NAME: units of the member in one unit of the file; 0: 1 */
	const char *const *names;   /* CHOICE, BY_NAME; `elements` of them */
	int elements;               /* of an array in the struct; of names; LIST, MAP: the most that are read */
	const struct fo_schema *of; /* RECORD, LIST, MAP */
	const char *expected;       /* what an error says was expected; NULL: made from the type */
	int since;                  /* schema version that brought it; 0: the first */
};

struct fo_schema {
	const char *name;  /* in docs/formats.md; "": documented where it is used */
	const char *what;  /* "machine profile": what errors call it */
	int version;       /* written first, as "schema", and required; 0: none */
	const char *event; /* written first, as "event"; NULL: none */
	const struct fo_schema_field *field;
	int fields;
	size_t size; /* bytes of the struct */
	/* Checks what a row cannot express, such as the order of two numbers. A strict reader calls it for each record
	 * whose rows were right; it calls fo_schema_refuse. NULL: no check. */
	void (*check)(const void *record, struct fo_schema_reader *r);
	int oldest; /* version that is still read; 0: `version` alone */
};

#define FO_FIELDS(S, rows) .field = (rows), .fields = sizeof(rows) / sizeof *(rows), .size = sizeof(S)
#define FO_SCHEMA_TYPE_OF(x) \
	_Generic((x), double: FO_SCHEMA_REAL, int64_t: FO_SCHEMA_INT, int: FO_SCHEMA_INT32, bool: FO_SCHEMA_BOOL, \
		 const char *: FO_SCHEMA_TEXT, char *: FO_SCHEMA_CHARS, uint64_t: FO_SCHEMA_HEX)
#define FO_SCHEMA_AT(S, m) .offset = offsetof(S, m), .size = sizeof(((S *)0)->m)
#define FO_SCHEMA_COUNT(S, n) .count = offsetof(S, n), .count_size = sizeof(((S *)0)->n)
/* A number, boolean or text; what follows `means` are further members of the row, such as `.flags = FO_OMIT`. */
#define FO_FIELD(S, m, key_, unit_, means, ...)                                                     \
	{                                                                                           \
		key_, unit_, means, FO_SCHEMA_TYPE_OF(((S *)0)->m), FO_SCHEMA_AT(S, m), __VA_ARGS__ \
	}
/* The same with a type that the member's does not tell: MARK, CHOICE, SCALAR, RAW, DIMS, BY_NAME. */
#define FO_FIELD_AS(TYPE, S, m, key_, unit_, means, ...)                              \
	{                                                                             \
		key_, unit_, means, FO_SCHEMA_##TYPE, FO_SCHEMA_AT(S, m), __VA_ARGS__ \
	}
#define FO_FIELD_REALS(S, m, n, key_, unit_, means, ...)                                                    \
	{                                                                                                   \
		key_, unit_, means, FO_SCHEMA_REALS, FO_SCHEMA_AT(S, m), FO_SCHEMA_COUNT(S, n), __VA_ARGS__ \
	}
#define FO_FIELD_RECORD(S, m, table, key_, means, ...)                                            \
	{                                                                                         \
		key_, "", means, FO_SCHEMA_RECORD, FO_SCHEMA_AT(S, m), .of = (table), __VA_ARGS__ \
	}
/* Members of the same struct that the file keeps in an object of their own. */
#define FO_FIELD_GROUP(table, key_, means, ...)                               \
	{                                                                     \
		key_, "", means, FO_SCHEMA_RECORD, .of = (table), __VA_ARGS__ \
	}
/* `is`: a bool member, whether the record is there. */
#define FO_FIELD_OPTIONAL(S, m, is, table, key_, means, ...)                                                  \
	{                                                                                                     \
		key_, "", means, FO_SCHEMA_RECORD, FO_SCHEMA_AT(S, m), FO_SCHEMA_COUNT(S, is), .of = (table), \
											       __VA_ARGS__    \
	}
#define FO_FIELD_LIST(S, m, n, table, key_, means, ...)                                                                \
	{                                                                                                              \
		key_, "", means, FO_SCHEMA_LIST, FO_SCHEMA_AT(S, m), FO_SCHEMA_COUNT(S, n), .of = (table), __VA_ARGS__ \
	}
#define FO_FIELD_MAP(S, m, n, table, key_, means, ...)                                                                \
	{                                                                                                             \
		key_, "", means, FO_SCHEMA_MAP, FO_SCHEMA_AT(S, m), FO_SCHEMA_COUNT(S, n), .of = (table), __VA_ARGS__ \
	}

/* ---- writing ---- */

/* The record as a member `key` of the open object, an element (key NULL) or the outermost value. */
void fo_schema_write(const struct fo_schema *s, const void *record, const char *key, struct fo_json *j);
/* The record's fields alone, into the open object. */
void fo_schema_write_fields(const struct fo_schema *s, const void *record, struct fo_json *j);
/* The record as a whole text. */
void fo_schema_text(const struct fo_schema *s, const void *record, bool pretty, struct fo_str *out);

/* ---- reading ---- */

/* Every member becomes its absent value; lists are empty. */
void fo_schema_blank(const struct fo_schema *s, void *record);

struct fo_schema_reader {
	struct fo_arena *arena; /* owns texts and lists; may be NULL for records without them */
	const char *where;      /* the file, for errors */
	bool lenient;           /* a value of the wrong type or out of range is as if it were absent; never fails */
	fo_status st;           /* the first error: FO_EFORMAT */
	char at[96];            /* "rows[3]." while an element is read */
};
/* Reads the object o into *record. In a strict reader the first wrong value sets r->st and the thread's error text,
 * which names file, key and what was expected. Returns r->st. */
fo_status fo_schema_read(const struct fo_schema *s, const struct json_t *o, void *record, struct fo_schema_reader *r);
/* Fails with the same sentence, once: for checks that no table can say. */
void fo_schema_refuse(struct fo_schema_reader *r, const char *key, const char *expected);
/* Parses a whole text; the caller frees *out (json_decref). FO_EFORMAT ("'F' is not a machine profile: line 3, ..."):
 * not JSON, a key that comes twice, a U+0000. */
FO_CHECKED fo_status fo_schema_parse(const char *text, size_t len, const char *where, const char *what,
				     struct json_t **out);

/* The same for a regular file of at most `most` bytes; r->where becomes its path. */
FO_CHECKED fo_status fo_schema_read_file(const struct fo_schema *s, const char *path, size_t most, void *record,
					 struct fo_schema_reader *r);

/* ---- documentation ---- */

/* The table as Markdown: key, type, unit and meaning of every field, those of nested records behind a dot. */
void fo_schema_markdown(const struct fo_schema *s, struct fo_str *out);

#endif
