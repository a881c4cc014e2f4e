/* Options on how the ranks and the steps of a job differ, shared by commands, and how the answer is told. */
#ifndef FO_CLI_SPREAD_H
#define FO_CLI_SPREAD_H

#include "cli/cli.h"
#include "sim/spread.h"

struct fo_cli_spread {
	const char *jitter, *straggler;
	int64_t draws, seed;
};
/* Rows of a table whose struct S has a `struct fo_cli_spread` called `spread`; group is the keys' first part. */
#define FO_CLI_SPREAD_ROWS(S, group)                                                                               \
	FO_OPT_TEXT(S, spread.jitter, group ".jitter", "P%", NULL,                                                 \
		    "of several ranks: each operation of each rank takes exp(P g) times as long, g of the normal " \
		    "distribution: 2%"),                                                                           \
		FO_OPT_TEXT(S, spread.straggler, group ".straggler", "WHO:X,...", NULL,                            \
			    "of several ranks: a rank (3:1.2), or a share of them that is drawn for each step "    \
			    "(0.1%:1.5), computes X times as long"),                                               \
		FO_OPT_INT(S, spread.draws, group ".draws", "N", "0", 0, FO_SPREAD_STEPS_MOST, "steps",            \
			   "steps that are drawn with these; 0: as many as take seconds, at most 100"),            \
		FO_OPT_INT(S, spread.seed, group ".draw-seed", "N", "1", 0, 9e15, "", "what the draws begin from")

/* Anything of it given? */
static inline bool fo_cli_spread_asked(const struct fo_cli_spread *in)
{
	return (in->jitter && *in->jitter) || (in->straggler && *in->straggler);
}
/* FO_EARG: a text that is none, a share or factor that cannot be, a rank twice; draws without anything to draw. */
FO_CHECKED fo_status fo_cli_spread_read(const struct fo_cli_spread *in, struct fo_spread_in *out);
/* Lines, with a picture on pages; and the object "spread". f: the fleet that was simulated. */
void fo_cli_spread_say(struct fo_doc *d, const struct fo_spread_steps *s, const struct fo_fleet *f);
void fo_cli_spread_json(struct fo_json *j, const struct fo_spread_steps *s, const struct fo_fleet *f);

/* Names of what holds a step, by enum fo_fleet_hold: words in front of an operation's name, and the word alone. */
extern const char *const fo_cli_hold_text[], *const fo_cli_hold_name[];

#endif
