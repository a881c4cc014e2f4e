/* Shared by the files that implement include/flatout.h. */
#ifndef FO_API_API_INT_H
#define FO_API_API_INT_H

#include "base/err.h"
#include "flatout.h"
#include "model/model.h"

#include <math.h>

struct flatout_model {
	struct fo_model m;
};

/* Longest sequence and most devices: the same bounds as the commands have. */
#define FO_API_MAX ((int64_t)1 << 30)

/* Makes this thread's fo_err_text() the one that flatout_error() shows; returns st for the caller. */
flatout_status fo_api_failed(fo_status st);
/* The same for a mistake of the caller: FLATOUT_EARG with this text. */
flatout_status fo_api_wrong(const char *fmt, ...) FO_PRINTF(1, 2);
/* The same in a function that returns a number: NaN. */
#define fo_api_nan(...) ((void)fo_api_wrong(__VA_ARGS__), (double)NAN)
/* FLOP per token by one rule; NaN with an error for a rule that does not exist. */
double fo_api_by_rule(const char *function, flatout_rule rule, double mfu, double mfu_causal, double mfu_6n);

#endif
