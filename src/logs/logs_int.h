/* Inside src/logs: the table of kinds, and what its readers share. */
#ifndef FO_LOGS_LOGS_INT_H
#define FO_LOGS_LOGS_INT_H

#include "logs/logs.h"

/* How a number stands beside the words that announce it. */
enum {
	FO_LOG_BEFORE = 1,    /* in front of them: "4621.47 ms" */
	FO_LOG_CLOCK = 2,     /* as "1 day, 2:03:04" or "2m 3s": s */
	FO_LOG_UNIT = 4,      /* followed by "ms" or "s", which decides; s */
	FO_LOG_FLOPS = 8,     /* followed by "TFLOPS", "PFLOPS" or the like, which decides; TFLOP/s */
	FO_LOG_PER = 16,      /* the line has steps per second, with four decimals; s */
	FO_LOG_COUNTED = 32,  /* from 1 on, the field from 0 */
	FO_LOG_OF_EPOCH = 64, /* steps of an epoch; the number behind '/' is that of the epoch */
	FO_LOG_IN_EPOCH = 128 /* steps of an epoch; the number behind '/' is no sure count of them */
};

struct fo_log_key {
	const char *text; /* found as a whole word: no letter, digit or '_' in front */
	enum fo_log_field field;
	double scale; /* units of the field in one unit of the line */
	unsigned how;
};

enum { FO_LOG_KEYS = 12, FO_LOG_NEEDS = 2 };
/* One form of line. A kind may have several; the first that fits takes the line. */
struct fo_log_form {
	struct fo_log_kind kind;
	const char *mark;               /* stands in each line of progress, and seldom elsewhere */
	const char *need[FO_LOG_NEEDS]; /* further words of it */
	const char *never;              /* a word that such a line does not have */
	bool block;                     /* a line begins a block: what follows, up to the next one, belongs to it */
	bool micro;                     /* a line per micro-batch; "(step)" ends a step */
	struct fo_log_key key[FO_LOG_KEYS];
};
extern const struct fo_log_form fo_log_form[];
extern const int fo_log_forms;

/* How a fact is written. */
enum fo_log_style {
	FO_LOG_PHRASE, /* the words, then the value: "sequence length 2048" */
	FO_LOG_DOTS,   /* "  seq_length ......... 1024" */
	FO_LOG_CELL,   /* "| sequence length T     | 1024" */
	FO_LOG_MEMBER, /* "cfg/num_layers": 96 */
};
struct fo_log_word {
	const char *text;
	enum fo_log_fact fact;
	enum fo_log_style style;
	double scale;
	const char *until;  /* of a text: where it ends; NULL: at a blank, quote or '|' */
	const char *within; /* NULL, or what the line must hold in front of it */
};
extern const struct fo_log_word fo_log_word[];
extern const int fo_log_words;

/* A number at p, with commas between thousands and K, M, B, G, T behind it; "nan" and "N/A" are NAN. *end: behind it.
 * False: no number. */
bool fo_log_number(const char *p, const char *end_of_text, double *value, const char **end);
/* "1 day, 2:03:04", "01:23.5" or "1h 2m 3.5s" in s; false: none. */
bool fo_log_clock(const char *p, const char *end_of_text, double *seconds);
/* The number of a fact whose word stands at p of [text, end), in the word's style; NAN: there is none. */
double fo_log_fact_at(const struct fo_log_word *w, const char *text, const char *p, const char *end);
/* A date and time of day within the first bytes of a line, s since 1970; NAN. */
double fo_log_stamp(const char *p, const char *end);
/* A word to look for: its two rarest bytes. It has a byte at least. */
struct fo_log_needle {
	const char *text;
	size_t len, rare, other;
};
struct fo_log_needle fo_log_needle(const char *word);
/* The first place of a word in [p, end); NULL: it is not there. */
const char *fo_log_seek(const char *p, const char *end, const struct fo_log_needle *n);
const char *fo_log_find(const char *p, const char *end, const char *word);
/* Does it stand in the samples of a long text? In a short one they are the whole. */
bool fo_log_is_there(const char *text, size_t len, const char *word);

/* Devices that the start lines of processes name, in a file of which lines of progress are read. */
void fo_log_find_sizes(struct fo_log *log, const char *text, size_t len, int file);
/* Devices by the facts of the whole run; NAN. */
double fo_log_told_devices(const struct fo_log *log);

/* A kind's lines. */
struct fo_log_lines *fo_log_lines_of(struct fo_log *log, const struct fo_log_kind *kind);
/* A line that tells nothing yet. */
static inline void fo_log_blank(double row[FO_LOG_FIELDS])
{
	for (int f = 0; f < FO_LOG_FIELDS; f++)
		row[f] = FO_LOG_NONE;
}
/* Adds a line of the file whose number is `file`; files come one after the other. */
void fo_log_add(struct fo_log_lines *l, const double row[FO_LOG_FIELDS], int file);
/* Moves the rows of `from` behind those of `to`, and frees what is left of it. */
void fo_log_add_rows(struct fo_log_lines *to, struct fo_log_lines *from, int file);
void fo_log_set(struct fo_log_lines *l, size_t i, enum fo_log_field f, double v);
void fo_log_lines_fini(struct fo_log_lines *l);
/* Row `to` becomes a copy of row `from`. */
void fo_log_copy(struct fo_log_lines *l, size_t to, size_t from);
/* Sets a fact unless an earlier line told it. text may be NULL, it is copied. */
void fo_log_tell(struct fo_log *log, enum fo_log_fact f, double number, const char *text, size_t len, const char *file,
		 int64_t line);

/* Readers of one mapped file; each adds lines and facts. file: its number, path: its name. */
void fo_log_scan(struct fo_log *log, const char *text, size_t len, int file, const char *path);
void fo_log_scan_facts(struct fo_log *log, const char *text, size_t len, const char *path);
/* True where the file was of that kind. */
bool fo_log_mlperf(struct fo_log *log, const char *text, size_t len, int file, const char *path);
bool fo_log_whole(struct fo_log *log, const char *text, size_t len, int file, const char *path);

/* Makes the steps, parts, phases and spreads of log. */
void fo_log_speed(struct fo_log *log);
/* Do lines of two runs alternate in it, which no figure is right for? */
bool fo_log_is_mixed(const struct fo_log *log);

#endif
