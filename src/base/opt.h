/* One options table drives flags, YAML keys, environment variables, validation, --help, man pages and sample files.
 *
 * A row names a field of a plain struct. Precedence: default < file < environment < flag, in whatever order they are
 * read; each value remembers where it came from. All mistakes are reported at once. Values:
 * - integers: 1000, 1e9, 4k, 1.5M, 8B, 15T, 2Ki (k, M, B or G, T are powers of 1000, in either case; Ki, Mi, Gi, Ti of
 * 1024). In lengths of sequences and tokens of a step (LENGTH) k and M are powers of 1024, because 8k is 8192 to
 * everybody; a note says so;
 * - numbers (REAL): as integers, with fractions; with unit "s" they are durations: 30, 250ms, 30s, 5m, 2h;
 * - sizes (BYTES): 80GiB, 1.5 MiB, 4096, 4096B, 80GB (KiB, MiB, GiB, TiB of 1024; kB, MB, GB, TB of 1000); 16G is 16
 * GiB, and a note says so;
 * - paths: a leading "~/" or "~" alone is the home folder, as in shells ("--out=~/x" arrives unexpanded); "~user" is a
 * mistake;
 * - booleans: true/false/yes/no/on/off; enumerations: their names; texts: any UTF-8, empty too.
 * Not-a-number, infinities, overflow and trailing bytes are mistakes.
 *
 *   static const struct fo_opt rows[] = {
 *       FO_OPT_INT(struct run, steps, "train.steps", "N", "1000", 1, 1e9, "steps", "optimizer steps to run"),
 *       FO_OPT_END
 *   };
 * The key "train.steps" is the flag --train.steps=N (short form --steps=N when `steps` is unique in the table), the
 * YAML entry "train: {steps: N}" and the environment variable FLATOUT_TRAIN_STEPS. A set of two tables has the rows of
 * a run, which every source sets, and a command's own rows, which flags alone set; where both have the same last part
 * the short form is the command's. */
#ifndef FO_BASE_OPT_H
#define FO_BASE_OPT_H

#include "base/err.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fo_opt_type { FO_OPT_T_INT, FO_OPT_T_REAL, FO_OPT_T_BOOL, FO_OPT_T_TEXT, FO_OPT_T_ENUM, FO_OPT_T_BYTES };

struct fo_opt {
	const char *key;  /* "group.name"; NULL ends the table */
	const char *arg;  /* placeholder in help: "N", "PATH" */
	const char *dfl;  /* default as text; NULL: none, the field starts as NULL, 0, false or -1 (ENUM) */
	double lo, hi;    /* inclusive range for INT, REAL, BYTES; either may be infinite; lo == hi: no range */
	const char *unit; /* "tokens", "", ... */
	const char *help; /* one line */
	/* ENUM: "a|b|c": the value is the index (int). INT: one word that stands for -1, or NULL. BOOL: "yes|no" when a
	 * value must follow the flag and is printed with these words; NULL: the flag alone means true. */
	const char *names;
	enum fo_opt_type type;
	size_t offset;         /* of the field in the target struct */
	const char *refused;   /* ENUM: "name: why": a value that people ask for and the answer they get; NULL: none */
	bool path;             /* TEXT: names a file or a folder, or may: "~/" is expanded */
	enum fo_output output; /* TEXT: what the command writes there; FO_OUTPUT_NONE: it only reads */
	const char *bare; /* TEXT: the value of the flag alone ("--json" is "--json=-"); NULL: a value must follow */
	bool binary;      /* INT, REAL: k and M are powers of 1024 */
	char letter;      /* "-n 4" is the flag, too; 0: there is no such letter */
};

/* Offset of a field whose type must be T. */
#define FO_OPT_FIELD(S, f, T)                                                               \
	(offsetof(S, f) + 0 * sizeof(struct {                                               \
				  _Static_assert(_Generic(((S *)0)->f, T : 1, default : 0), \
						 "wrong option type for " #f);              \
				  char c;                                                   \
			  }))
/* The common columns by position, then at least one of the others by name. */
#define FO_OPT_ROW(S, f, T, TYPE, key, arg, dfl, lo, hi, unit, help, names, ...)                    \
	{                                                                                           \
		key, arg, dfl, lo, hi, unit, help, names, TYPE, FO_OPT_FIELD(S, f, T), .__VA_ARGS__ \
	}
/* A text row with its particulars. */
#define FO_OPT_ROW_TEXT(S, f, key, arg, dfl, help, ...) \
	FO_OPT_ROW(S, f, const char *, FO_OPT_T_TEXT, key, arg, dfl, 0, 0, "", help, NULL, __VA_ARGS__)

#define FO_OPT_INT(S, f, key, arg, dfl, lo, hi, unit, help) \
	FO_OPT_ROW(S, f, int64_t, FO_OPT_T_INT, key, arg, dfl, lo, hi, unit, help, NULL, binary = false)
/* An integer that is not negative, or the word `auto_`, for which the field is -1. */
#define FO_OPT_INT_OR(S, f, key, arg, dfl, lo, hi, unit, help, auto_) \
	FO_OPT_ROW(S, f, int64_t, FO_OPT_T_INT, key, arg, dfl, lo, hi, unit, help, auto_, binary = false)
#define FO_OPT_REAL(S, f, key, arg, dfl, lo, hi, unit, help) \
	FO_OPT_ROW(S, f, double, FO_OPT_T_REAL, key, arg, dfl, lo, hi, unit, help, NULL, binary = false)
#define FO_OPT_BYTES(S, f, key, arg, dfl, lo, hi, help) \
	FO_OPT_ROW(S, f, int64_t, FO_OPT_T_BYTES, key, arg, dfl, lo, hi, "bytes", help, NULL, binary = false)
/* The length of a sequence or the tokens of a step. */
#define FO_OPT_LENGTH(S, f, key, arg, dfl, lo, hi, help) \
	FO_OPT_ROW(S, f, int64_t, FO_OPT_T_INT, key, arg, dfl, lo, hi, "tokens", help, NULL, binary = true)
#define FO_OPT_LENGTH_REAL(S, f, key, arg, dfl, lo, hi, help) \
	FO_OPT_ROW(S, f, double, FO_OPT_T_REAL, key, arg, dfl, lo, hi, "tokens", help, NULL, binary = true)
#define FO_OPT_BOOL(S, f, key, dfl, help) \
	FO_OPT_ROW(S, f, bool, FO_OPT_T_BOOL, key, "BOOL", dfl, 0, 1, "", help, NULL, binary = false)
/* A setting that is on or off: --key=yes, printed as "yes" or "no". */
#define FO_OPT_YES_NO(S, f, key, dfl, help) \
	FO_OPT_ROW(S, f, bool, FO_OPT_T_BOOL, key, "NAME", dfl, 0, 1, "", help, "yes|no", binary = false)
#define FO_OPT_ENUM(S, f, key, dfl, help, names) FO_OPT_ENUM_REFUSED(S, f, key, dfl, help, names, NULL)
#define FO_OPT_ENUM_REFUSED(S, f, key, dfl, help, names, why) \
	FO_OPT_ROW(S, f, int, FO_OPT_T_ENUM, key, "NAME", dfl, 0, 0, "", help, names, refused = why)
/* No, yes, or a third word such as "auto" that leaves the choice to something else: 0, 1 and 2. */
#define FO_OPT_TRI(S, f, key, dfl, help, third) FO_OPT_ENUM(S, f, key, dfl, help, "no|yes|" third)
#define FO_OPT_TEXT(S, f, key, arg, dfl, help) FO_OPT_ROW_TEXT(S, f, key, arg, dfl, help, path = false)
/* A path that is read, or a name that may be one. */
#define FO_OPT_PATH(S, f, key, arg, dfl, help) FO_OPT_ROW_TEXT(S, f, key, arg, dfl, help, path = true)
/* A path that is written: a table with such a row has one of FO_OPT_FORCE. */
#define FO_OPT_OUTPUT(S, f, key, arg, dfl, help, kind) \
	FO_OPT_ROW_TEXT(S, f, key, arg, dfl, help, path = true, .output = kind)
/* --json, --json=-, --json=PATH; the field is NULL where no JSON is wanted. `--json PATH` is --json and an argument. */
#define FO_OPT_JSON_OF(S, f, key, help, kind) \
	FO_OPT_ROW_TEXT(S, f, key, "PATH", NULL, help, path = true, .output = kind, .bare = "-")
#define FO_OPT_JSON(S, f, key, help) FO_OPT_JSON_OF(S, f, key, help, FO_OUTPUT_JSON)
#define FO_OPT_FORCE(S, f, key) FO_OPT_BOOL(S, f, key, "false", "write over what other programs or people wrote")
#define FO_OPT_END \
	{          \
		0  \
	}

enum fo_opt_origin { FO_ORIGIN_DEFAULT, FO_ORIGIN_FILE, FO_ORIGIN_ENV, FO_ORIGIN_FLAG };

/* The values of one table or two: `target` is the struct, texts are arena-owned. Rows are numbered through: those of
 * `rows`, then those of `own`. */
struct fo_opt_set {
	const struct fo_opt *rows; /* set by files, variables and flags */
	const struct fo_opt *own;  /* a command's own rows, set by flags alone; NULL: none */
	int count, total;          /* rows of the first table, rows of both */
	void *target;
	struct fo_arena arena;
	struct {
		enum fo_opt_origin from;
		const char *where;
	} * origin;  /* per row; where: "run.yaml:12", a variable's name, "" */
	char **argv; /* what fo_opt_read_args left: the command's name and its arguments */
	int argc;
	struct fo_str notes;    /* one line per value that could have meant something else ("--seq=8k": 8,192) */
	struct fo_str problems; /* one line per mistake found so far */
	int problem_count;      /* all of them; only the first FO_OPT_PROBLEMS_MAX are written out */
};
enum { FO_OPT_PROBLEMS_MAX = 100 };
#define FO_OPT_FILE_BYTES_MAX ((size_t)1 << 20) /* a run file of people is a few KiB */

static inline const struct fo_opt *fo_opt_row(const struct fo_opt_set *s, int i)
{
	return i < s->count ? &s->rows[i] : &s->own[i - s->count];
}

/* Sets every default. The tables are borrowed; the caller ends s with fo_opt_fini. */
void fo_opt_init(struct fo_opt_set *s, const struct fo_opt *rows, void *target);
void fo_opt_init_own(struct fo_opt_set *s, const struct fo_opt *rows, const struct fo_opt *own, void *target);
/* Mistakes go to `problems`; only an unreadable file is an error of its own. */
FO_CHECKED fo_status fo_opt_read_yaml(struct fo_opt_set *s, const char *path);
FO_CHECKED fo_status fo_opt_read_yaml_text(struct fo_opt_set *s, const char *text, size_t len, const char *where);
/* FLATOUT_<KEY>, upper case, '.' and '-' as '_'. An empty variable counts as unset. */
void fo_opt_read_env(struct fo_opt_set *s);
/* Takes "--key=value", "--key value", "--flag" and "--no-flag" (BOOL) out of argv; what is left moves to the front.
 * "--" ends options. The last of a flag that is given twice counts. */
void fo_opt_read_args(struct fo_opt_set *s, int *argc, char **argv);
void fo_opt_set_text(struct fo_opt_set *s, const char *key, const char *value, enum fo_opt_origin from,
		     const char *where);
void fo_opt_problem(struct fo_opt_set *s, const char *fmt, ...) FO_PRINTF(2, 3); /* a cross-field mistake */
/* Was it given anywhere (file, environment, flag)? An unknown key is false. */
bool fo_opt_given(const struct fo_opt_set *s, const char *key);
/* FO_EARG whose text has one line per mistake (as many whole lines as fit, then their number) if there are any. */
FO_CHECKED fo_status fo_opt_finish(struct fo_opt_set *s);
void fo_opt_fini(struct fo_opt_set *s);

int fo_opt_count(const struct fo_opt *rows);
/* Index of a full key in a table, -1 when unknown. */
int fo_opt_find(const struct fo_opt *rows, const char *key);
/* Does the flag alone, without a value, mean true? */
static inline bool fo_opt_is_switch(const struct fo_opt *row) { return row->type == FO_OPT_T_BOOL && !row->names; }
const char *fo_opt_origin_name(enum fo_opt_origin from); /* "default", "file", "environment", "flag" */
/* The value of row i as text in canonical form (arena of s); it reads back to the same value. "" when not set. */
const char *fo_opt_value_text(struct fo_opt_set *s, int i);
/* The flag of row i without dashes: the key, or only its last part when all rows have the same group. */
const char *fo_opt_flag_name(const struct fo_opt *rows, int i);
/* "FLATOUT_TRAIN_STEPS" for "train.steps"; buf is returned. */
char *fo_opt_env_name(char buf[128], const char *key);
/* Help text, 80 columns, grouped by the key's first part. */
void fo_opt_help(const struct fo_opt *rows, struct fo_str *out);
/* A YAML file with every row of s->rows and its present value. Rows without one are comments, and so are values that
 * follow from other options (FO_ORIGIN_DEFAULT with a `where`). */
void fo_opt_sample_yaml(struct fo_opt_set *s, struct fo_str *out);
/* The OPTIONS section of a man page in mdoc; nothing for an empty table. */
void fo_opt_mdoc(const struct fo_opt *rows, struct fo_str *out);
/* Wraps text to lines of at most `width` columns; the first starts at `column`, each further one after `lead`. */
void fo_opt_wrapped(struct fo_str *out, const char *text, int column, const char *lead, int width);
/* Plain paragraphs as mdoc; indented lines become a literal display. */
void fo_opt_mdoc_text(struct fo_str *out, const char *text);
/* {"key": {"value": ..., "origin": ..., "where": ...}, ...} of the rows of s->rows. */
void fo_opt_json(struct fo_opt_set *s, struct fo_str *out);

#endif
