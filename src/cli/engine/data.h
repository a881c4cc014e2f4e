/* Options that say how texts are read, shared by the parts of `flatout data`. */
#ifndef FO_CLI_ENGINE_DATA_H
#define FO_CLI_ENGINE_DATA_H

#include "cli/engine/screen.h"
#include "data/data.h"

struct fo_cli_texts {
	int format, on_error;
	const char *field;
	int64_t max_document;
	double max_expand;
};
#define FO_CLI_TEXT_ROWS(S, f, group)                                                                              \
	FO_OPT_ENUM(S, f.format, group ".format", "auto", "what the files are; auto: each one's first line tells", \
		    "auto|text|jsonl"),                                                                            \
		FO_OPT_TEXT(S, f.field, group ".field", "NAME", "text",                                            \
			    "the field of a JSON line that holds the text"),                                       \
		FO_OPT_ENUM(S, f.on_error, group ".on-error", "stop",                                              \
			    "a bad line or a damaged file: stop, or leave it out and count it", "stop|skip"),      \
		FO_OPT_BYTES(S, f.max_document, group ".max-document", "SIZE", "64MiB", 4096, 0x1p40,              \
			     "longer lines of JSON are bad lines"),                                                \
		FO_OPT_REAL(S, f.max_expand, group ".max-expand", "X", "200", 1, 1e9, "",                          \
			    "a file that unpacks to over 64 MiB and X times its size is refused")
struct fo_text_options fo_cli_text_options(const struct fo_cli_texts *t);
/* FO_EARG when nothing stands behind argv[0]. */
FO_CHECKED fo_status fo_cli_inputs(const struct fo_command *c, int argc);

#endif
