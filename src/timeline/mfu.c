/* The meter's formula apart from everything that knows programs, so that libflatout can take it alone. */
#include "timeline/timeline.h"

#include <math.h>

struct fo_mfu fo_mfu_of_tokens(const struct fo_flop *f, double tokens, double seconds, double peak_flop_s)
{
	double rate = 1 / (seconds * peak_flop_s);
	return (struct fo_mfu){
		.mfu = f->mfu * tokens * rate,
		.mfu_causal = f->mfu_causal * tokens * rate,
		.mfu_6n = f->mfu_6n * tokens * rate,
		.mfu_document = NAN,
		.hfu = NAN,
	};
}
