/* The kinds of output that a user can name a place for, and the rule for each when something already lies there.
 * Commands ask before they begin to work. */
#ifndef FO_BASE_OUTPUT_H
#define FO_BASE_OUTPUT_H

#include "base/err.h"

#include <stdbool.h>

enum fo_output {
	FO_OUTPUT_NONE,
	/* Files that may be written anew because they begin as ours. */
	FO_OUTPUT_PAGE,   /* HTML */
	FO_OUTPUT_JSON,   /* what --json prints */
	FO_OUTPUT_SVG,    /* a picture of flatout calibrate, predict or program */
	FO_OUTPUT_SLICES, /* a trace for ui.perfetto.dev; may be compressed, as the next */
	FO_OUTPUT_CSV,    /* operations of traces */
	FO_OUTPUT_STEPS,  /* steps of a training log */
	FO_OUTPUT_SCORE,  /* rows of flatout score */
	FO_OUTPUT_PROMETHEUS,
	FO_OUTPUT_PROGRAM, /* a step program as text */
	FO_OUTPUT_TIMELINE,
	FO_OUTPUT_PROFILE, /* what flatout calibrate measured */
	FO_OUTPUT_LADDER,  /* ladder.json */
	/* Files that nothing tells from those that people edit or other programs write: never written anew by
	   themselves. */
	FO_OUTPUT_TOKENIZER,
	FO_OUTPUT_RUN_FILE,
	/* Folders that hold more of ours, or nothing that we would write. */
	FO_OUTPUT_RUN,
	FO_OUTPUT_LADDER_FOLDER,
	FO_OUTPUT_SHARDS,
	FO_OUTPUT_DEMO,      /* removed as a whole when it is ours, so nothing else may lie there */
	FO_OUTPUT_NEW_NAMES, /* gets only new names: nothing can be lost */
	FO_OUTPUT_COUNT
};

#define FO_OUTPUT_DEMO_MARK "flatout-demo" /* a file that says: this folder is ours to replace */

/* How a page of ours begins: what begins so may be written anew. */
#define FO_OUTPUT_PAGE_HEAD                                                                                      \
	"<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"                   \
	"<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n" \
	"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "                  \
	"'unsafe-inline'\"/>\n<meta name=\"color-scheme\" content=\"light dark\"/>\n"

/* "page", "run-folder": for the list that tests go by. */
const char *fo_output_name(enum fo_output kind);
/* FO_EARG where writing path would lose what somebody else wrote: a file, or one in a folder, that is not empty and
 * does not begin as our own of this kind. Pipes and devices pass. The hint says --force. */
FO_CHECKED fo_status fo_output_may_replace(enum fo_output kind, const char *path);
/* FO_EARG where path is the file `input`, or a file of another kind inside the folder `input`; --force or not. */
FO_CHECKED fo_status fo_output_is_no_input(enum fo_output kind, const char *path, const char *input);

#endif
