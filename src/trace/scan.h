/* A tokenizer for the JSON of profilers, made for gigabytes: it works on whatever part of the file is in memory, builds
 * no tree, and looks at 64 bytes at once where the processor can (AVX2 or SSE2, chosen at run time; portable C gives
 * the same results).
 *
 * It is kinder than JSON where profilers are careless: quotes and backslashes that nobody escaped, control characters,
 * NaN. What is well-formed is read as JSON says; only where that fails are the kinder rules tried.
 *
 * Every text passed in is followed by FO_SCAN_PAD readable bytes of zeros. */
#ifndef FO_TRACE_SCAN_H
#define FO_TRACE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FO_SCAN_PAD = 64 };

enum fo_scan {
	FO_SCAN_OK,
	FO_SCAN_MORE, /* the text ends before the value does */
	FO_SCAN_BAD,  /* no reading makes sense of it */
};

/* A value as the text has it: a string without its quotes, a number, true, null, NaN, or a whole array or object. */
struct fo_scan_text {
	const char *p;
	size_t n;
	char first;   /* '"', '{', '[', or the first character of a number or word; 0: absent */
	bool escaped; /* a string with backslashes in it */
};

struct fo_scan_member {
	struct fo_scan_text key, value;
};

/* The members of one event of the Trace Event Format that anybody asks for. */
struct fo_scan_event {
	struct fo_scan_text ph, cat, name, pid, tid, ts, dur, id, args;
	bool skipped; /* an arrow, an instant, a counter, a Python frame that is no module's: the rest of it was not
			 looked at */
	bool mended;  /* the kinder rules were needed */
};

/* All take the text [p, end) and set *after on FO_SCAN_OK. `last`: nothing follows end in the file. */

/* The object at p, which is '{'. */
enum fo_scan fo_scan_event(const char *p, const char *end, bool last, struct fo_scan_event *e, const char **after);
/* The end of the value that begins at p: any JSON value. */
enum fo_scan fo_scan_value(const char *p, const char *end, bool last, struct fo_scan_text *value, const char **after);
/* The members of a whole object at p ('{' to '}'): at most cap of them; how many there are in m. What cannot be read
 * ends the list. */
int fo_scan_members(const char *p, const char *end, struct fo_scan_member *m, int cap);
/* The place where the next event may begin: a '{' after a comma, with "ph" after it, or after "}," with another key of
 * events. NULL: none. */
const char *fo_scan_next_event(const char *p, const char *end);
/* The first character above ' '; end if there is none. */
const char *fo_scan_blank(const char *p, const char *end);

/* A string with its escapes undone into out: at most value->n bytes; how many. Unknown escapes stay as they are. */
size_t fo_scan_unescape(const struct fo_scan_text *value, char *out);
/* A number, or a string that holds one, in thousandths, cut towards zero: microseconds to nanoseconds without any
 * rounding of a double. Beyond int64_t: its limit, and *saturated. False: no number. */
bool fo_scan_thousandths(const struct fo_scan_text *value, int64_t *out, bool *saturated);
/* A whole number, or a string that holds one. False: none, or beyond int64_t. */
bool fo_scan_int(const struct fo_scan_text *value, int64_t *out);
bool fo_scan_is(const struct fo_scan_text *value, const char *text); /* a string, letter by letter */

/* For tests: chooses "avx2", "sse2" or "portable"; NULL: the best. False: this processor does not have it. */
bool fo_scan_choose(const char *isa);
const char *fo_scan_chosen(void);

#endif
