/* Options on what of a job's time counts, shared by commands, and how they are told. */
#ifndef FO_CLI_GOODPUT_H
#define FO_CLI_GOODPUT_H

#include "cli/cli.h"
#include "sim/goodput.h"

struct fo_cli_goodput {
	const char *failures, *save, *restart;
	double every, days;
};
/* Rows of a table whose struct S has a `struct fo_cli_goodput` called `goodput`; group is the keys' first part. */
#define FO_CLI_GOODPUT_ROWS(S, group)                                                      \
	FO_CLI_GOODPUT_LOSS_ROWS(S, group),                                                \
		FO_OPT_REAL(S, goodput.days, group ".days", "T", "30", 0.01, 3650, "days", \
			    "length of a run, over which its failures fall one way or another")
/* The same for commands whose `days` is set by what else they know of the run. */
#define FO_CLI_GOODPUT_LOSS_ROWS(S, group)                                                                     \
	FO_OPT_TEXT(S, goodput.failures, group ".failures", "R", NULL,                                         \
		    "failures that stop the job, of 1,000 nodes of eight devices in a day: 4, 2..7; 0: none"), \
		FO_OPT_TEXT(S, goodput.save, group ".save", "S", NULL,                                         \
			    "seconds that a checkpoint stops training: 20, 5..30"),                            \
		FO_OPT_TEXT(S, goodput.restart, group ".restart", "S", NULL,                                   \
			    "seconds from a failure until steps go on: 600, 300..900"),                        \
		FO_OPT_REAL(S, goodput.every, group ".checkpoint-every", "S", NULL, 1, 1e9, "s",               \
			    "seconds of training between checkpoints; not given: the best")

/* Anything of failures, saves or restarts given? */
static inline bool fo_cli_goodput_asked(const struct fo_cli_goodput *in)
{
	return in->failures || in->save || in->restart || in->every > 0;
}
/* The first of these options that is given; NULL. */
const char *fo_cli_goodput_named(const struct fo_cli_goodput *in);
/* FO_EARG: a text that is no number or range, or a range that cannot be. */
FO_CHECKED fo_status fo_cli_goodput_read(const struct fo_cli_goodput *in, struct fo_goodput_in *out);
/* Lines on the inputs: what was given, what is published and what is a guess. */
void fo_cli_goodput_say(struct fo_doc *d, const struct fo_cli_goodput *given, const struct fo_goodput_in *in);
/* The inputs as an object; each range with whether it was given. */
void fo_cli_goodput_json(struct fo_json *j, const struct fo_cli_goodput *given, const struct fo_goodput_in *in);
/* Goodput against the time between checkpoints, around the best and with what is given, of so many tokens in a second
 * while steps run: a table, with a picture on pages; and the array "goodput". in->devices is set. */
void fo_cli_goodput_curve(struct fo_doc *d, const struct fo_goodput_in *in, double tokens_s);
/* Shares over x, both of n, with the interval of each: a picture. A share that is NAN leaves a gap. */
void fo_cli_goodput_picture(struct fo_doc *d, const char *title, const char *x_name, const double *x,
			    const struct fo_goodput *g, size_t n);
void fo_cli_goodput_curve_json(struct fo_json *j, const struct fo_goodput_in *in);
/* "2 h", "17 min", "40 s": between failures, between checkpoints. */
const char *fo_cli_goodput_time(struct fo_doc *d, double seconds);

#endif
