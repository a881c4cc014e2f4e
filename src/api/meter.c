/* The meter of include/flatout.h keeps tokens and seconds; every MFU is fo_mfu_of_tokens() of one rate. */
#include "api/api_int.h"

#include "base/clock.h"
#include "base/mem.h"
#include "timeline/timeline.h"

#include <stdlib.h>
#include <string.h>

/* FLATOUT_SMOOTH: the factor by which a step's weight shrinks with each later step. The last 20 steps then carry 64 %
 * of the figure: short enough to show a slow-down within a minute of usual steps, long enough to hide the step that
 * wrote a checkpoint. */
#define FADE (1 - 1.0 / 20)

struct rate {
	double tokens, seconds;
};

struct flatout_meter {
	struct fo_flop flop; /* per token */
	double peak_flop_s;  /* of all devices */
	struct rate last, smooth, all;
	double *per_second; /* tokens per second of each step */
	size_t cap;
	int64_t steps;
};

flatout_status flatout_meter_create(const flatout_model *model, int64_t seq, double peak_flop_s, int64_t devices,
				    flatout_meter **out)
{
	if (!out)
		return fo_api_wrong("flatout_meter_create: no place for the meter: 'out' is NULL");
	*out = NULL;
	if (!model)
		return fo_api_wrong("flatout_meter_create: 'model' is NULL");
	if (seq < 1 || seq > FO_API_MAX)
		return fo_api_wrong("flatout_meter_create: seq is %lld, expected 1 to %lld tokens", (long long)seq,
				    (long long)FO_API_MAX);
	if (!(peak_flop_s > 0) || isinf(peak_flop_s))
		return fo_api_wrong("flatout_meter_create: the peak is %g FLOP/s, expected a number above 0",
				    peak_flop_s);
	if (devices < 1 || devices > FO_API_MAX)
		return fo_api_wrong("flatout_meter_create: the number of devices is %lld, expected 1 to %lld",
				    (long long)devices, (long long)FO_API_MAX);
	*out = fo_xmalloc(sizeof(**out));
	(*out)->flop = fo_model_flop_per_token(&model->m, seq);
	(*out)->peak_flop_s = peak_flop_s * (double)devices;
	return FLATOUT_OK;
}

void flatout_meter_free(flatout_meter *meter)
{
	if (meter)
		free(meter->per_second);
	free(meter);
}

flatout_status flatout_meter_step(flatout_meter *meter, double tokens, double seconds)
{
	if (!meter)
		return fo_api_wrong("flatout_meter_step: 'meter' is NULL");
	if (!(tokens > 0 && tokens <= 1e18))
		return fo_api_wrong("flatout_meter_step: %g tokens, expected above 0 up to 1e18", tokens);
	if (!(seconds > 0 && seconds <= 1e9))
		return fo_api_wrong("flatout_meter_step: %g seconds, expected above 0 up to 1e9", seconds);
	fo_array_room(&meter->per_second, &meter->cap, (size_t)meter->steps, sizeof(double));
	meter->per_second[meter->steps++] = tokens / seconds;
	meter->last = (struct rate){ tokens, seconds };
	meter->smooth = (struct rate){ FADE * meter->smooth.tokens + tokens, FADE * meter->smooth.seconds + seconds };
	meter->all = (struct rate){ meter->all.tokens + tokens, meter->all.seconds + seconds };
	return FLATOUT_OK;
}

void flatout_meter_reset(flatout_meter *meter)
{
	if (!meter)
		return;
	meter->steps = 0;
	meter->last = meter->smooth = meter->all = (struct rate){ 0 };
}

int64_t flatout_meter_steps(const flatout_meter *meter) { return meter ? meter->steps : -1; }

static double tokens_per_second(const char *function, const flatout_meter *meter, flatout_figure figure)
{
	if (!meter)
		return fo_api_nan("%s: 'meter' is NULL", function);
	if (meter->steps == 0)
		return fo_api_nan("%s: no step yet", function);
	switch (figure) {
	case FLATOUT_LAST: return meter->last.tokens / meter->last.seconds;
	case FLATOUT_SMOOTH: return meter->smooth.tokens / meter->smooth.seconds;
	case FLATOUT_MEAN: return meter->all.tokens / meter->all.seconds;
	case FLATOUT_MEDIAN: return fo_stats_median(meter->per_second, (size_t)meter->steps);
	}
	return fo_api_nan("%s: %d is no flatout_figure", function, (int)figure);
}

double flatout_meter_tokens_per_second(const flatout_meter *meter, flatout_figure figure)
{
	return tokens_per_second("flatout_meter_tokens_per_second", meter, figure);
}

double flatout_meter_mfu(const flatout_meter *meter, flatout_rule rule, flatout_figure figure)
{
	double rate = tokens_per_second("flatout_meter_mfu", meter, figure);
	if (isnan(rate))
		return rate;
	struct fo_mfu m = fo_mfu_of_tokens(&meter->flop, rate, 1, meter->peak_flop_s);
	return fo_api_by_rule("flatout_meter_mfu", rule, m.mfu, m.mfu_causal, m.mfu_6n);
}
