/* The meter's formula apart from everything that knows programs, so that libflatout can take it alone. */
#include "timeline/timeline.h"

#include <math.h>
#include <stdio.h>

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

struct fo_mfu_split fo_mfu_split_of(const struct fo_mfu *m, const struct fo_nvml_use *u, double peak_hz,
				    const char *not_tensor)
{
	const struct fo_nvml_active *a = &u->active;
	double pipes = a->share[FO_NVML_TENSOR];
	struct fo_mfu_split s = { .hz = isnan(pipes) ? u->sm_hz : a->sm_hz, .peak_hz = peak_hz, .pipes = pipes };
	s.clock = s.hz / s.peak_hz;
	s.work = m->hfu / s.clock;
	s.counted = m->mfu / m->hfu;
	s.ofu = not_tensor ? NAN : s.clock * s.pipes;
	s.useful = m->mfu / s.ofu;
	const char *why = "";
	if (not_tensor)
		why = not_tensor;
	else if (isnan(pipes))
		why = a->why;
	else if (isnan(peak_hz))
		why = "the clock at which the device reaches its peak is not known";
	else if (isnan(s.ofu))
		why = "the device's clock is not readable";
	snprintf(s.why, sizeof s.why, "%s", why);
	return s;
}

void fo_ofu_text(const struct fo_mfu_split *s, struct fo_str *out)
{
	if (isnan(s->ofu)) {
		fo_str_printf(out, "not measured: %s", *s->why ? s->why : "the log does not tell it");
		return;
	}
	fo_str_printf(out, "%.1f %%: MFU = clock %.1f %% x tensor pipes active %.1f %%", 100 * s->ofu, 100 * s->clock,
		      100 * s->pipes);
	if (isnan(s->useful))
		fo_str_puts(out, " x what is useful of it: MFU is not known");
	else
		fo_str_printf(out, " x %.3f useful", s->useful);
}
