/* Words and numbers of comparisons, of two runs and of two jobs' traces: one form for both. */
#ifndef FO_REPORT_VERSUS_TEXT_H
#define FO_REPORT_VERSUS_TEXT_H

#include "draw/doc.h"

#define FO_UNRESOLVED "not resolved"

/* Milliseconds without their unit, three decimals up to 999.999, fewer above: tables keep to 80 columns. */
const char *fo_versus_bare_ms(struct fo_doc *d, double seconds, bool sign);
const char *fo_versus_ms(struct fo_doc *d, double seconds);        /* "12.345 ms"; "-" */
const char *fo_versus_signed_ms(struct fo_doc *d, double seconds); /* "+0.345 ms"; "-" */
/* "+3.1 %" from x to y, "the same", or with FO_UNRESOLVED after it; "" where nothing can be said. */
const char *fo_versus_change(struct fo_doc *d, double x, double y, bool resolved);
/* The last cell of a row: "the same", "not resolved" or nothing. */
const char *fo_versus_mark(double difference, bool resolved);
/* The form of a value with at most `most` decimals that fits the columns of 999.999, and of 9999.9 where most is below
 * 3. */
int fo_versus_decimals(double value, int most);

#endif
