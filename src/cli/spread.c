#include "cli/spread.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

/* A finite decimal number; *end behind it. */
static bool number(const char *text, double *out, const char **end)
{
	char *e;
	*out = strtod(text, &e);
	*end = e;
	return e > text && !strpbrk(text, "xXnN") && isfinite(*out);
}

static fo_status read_jitter(const char *text, double *out)
{
	const char *end;
	if (!text || !*text)
		return FO_OK;
	if (!number(text, out, &end) || strcmp(end, "%") != 0 || !(*out >= 0 && *out <= 100))
		return fo_hint(fo_fail(FO_EARG, "--jitter is '%s', expected percent with its sign: 0%% to 100%%",
				       fo_cli_seen(text)),
			       "--jitter=2%%");
	*out /= 100;
	return FO_OK;
}

static fo_status bad_straggler(const char *text)
{
	return fo_hint(fo_fail(FO_EARG,
			       "--straggler is '%s', expected a rank or a share of them, and a factor from 0.01 to "
			       "1000",
			       fo_cli_seen(text)),
		       "--straggler=3:1.2, or --straggler=0.1%%:1.5");
}

static fo_status add_slow(struct fo_spread_in *out, int32_t rank, double work)
{
	int at = out->slows;
	if (out->slows == FO_SPREAD_SLOW)
		return fo_hint(fo_fail(FO_EARG, "--straggler names more than %d ranks", FO_SPREAD_SLOW),
			       "a share of them is drawn by 0.1%%:1.5");
	while (at > 0 && out->slow[at - 1].rank >= rank)
		at--;
	if (at < out->slows && out->slow[at].rank == rank)
		return fo_cli_contradict("--straggler names rank %d twice", rank);
	memmove(&out->slow[at + 1], &out->slow[at], (size_t)(out->slows - at) * sizeof *out->slow);
	out->slow[at] = (struct fo_fleet_odd){ rank, work, 1 };
	out->slows++;
	return FO_OK;
}

static fo_status read_stragglers(const char *text, struct fo_spread_in *out)
{
	const char *s = text;
	if (!text || !*text)
		return FO_OK;
	for (;;) {
		double who, work;
		const char *end;
		if (!number(s, &who, &end))
			return bad_straggler(text);
		const bool share = *end == '%';
		end += share;
		if (*end != ':' || !number(end + 1, &work, &end) || (*end && *end != ',') ||
		    !(work >= 0.01 && work <= 1000))
			return bad_straggler(text);
		if (share) {
			if (!(who >= 0 && who <= 100))
				return bad_straggler(text);
			if (out->chances == FO_SPREAD_CHANCES)
				return fo_fail(FO_EARG, "--straggler draws more than %d shares", FO_SPREAD_CHANCES);
			out->chance[out->chances].share = who / 100;
			out->chance[out->chances++].work = work;
		} else {
			if (!(who >= 0 && who < FO_FLEET_RANKS_MOST && who == floor(who)))
				return bad_straggler(text);
			FO_TRY(add_slow(out, (int32_t)who, work));
		}
		if (!*end)
			return FO_OK;
		s = end + 1;
	}
}

fo_status fo_cli_spread_read(const struct fo_cli_spread *in, struct fo_spread_in *out)
{
	*out = (struct fo_spread_in){ .steps = (int)in->draws, .seed = (uint64_t)in->seed };
	FO_TRY(read_jitter(in->jitter, &out->jitter));
	FO_TRY(read_stragglers(in->straggler, out));
	if (in->draws && !fo_cli_spread_asked(in))
		return fo_hint(fo_fail(FO_EARG, "--draws says how many steps are drawn, and nothing is: all are alike"),
			       "--jitter=2%% or --straggler=0.1%%:1.5 draws");
	return FO_OK;
}

/* ---- what it says ---- */

const char *const fo_cli_hold_text[] = { [FO_FLEET_HOLD_WORK] = "",
					 [FO_FLEET_HOLD_TRANSFER] = "transfer of ",
					 [FO_FLEET_HOLD_DISPATCH] = "dispatch after " };
const char *const fo_cli_hold_name[] = {
	[FO_FLEET_HOLD_WORK] = "work", [FO_FLEET_HOLD_TRANSFER] = "transfer", [FO_FLEET_HOLD_DISPATCH] = "dispatch"
};
enum { SAID = 3 };

static void picture(struct fo_doc *d, const struct fo_spread_steps *s)
{
	const double from = s->step_s[0], to = s->step_s[s->steps - 1];
	if (s->steps < 10 || !(to > from))
		return;
	double *x = fo_doc_alloc(d, (size_t)s->steps * sizeof *x), *y = fo_doc_alloc(d, (size_t)s->steps * sizeof *y);
	struct fo_draw_series *one = fo_doc_alloc(d, sizeof *one);
	for (int i = 0; i < s->steps; i++) {
		x[i] = (double)(i + 1) / s->steps * 100;
		y[i] = s->step_s[i];
	}
	*one = (struct fo_draw_series){ .x = x, .y = y, .n = (size_t)s->steps, .marks = true };
	struct fo_draw_level *level = fo_doc_alloc(d, sizeof *level);
	*level = (struct fo_draw_level){ s->alike_s, s->alike_s, "ranks that are alike" };
	fo_doc_only(d, FO_DOC_PAGE);
	fo_doc_lines(d,
		     &(struct fo_draw_lines){ .title = "Drawn steps, shortest first",
					      .desc = "The time that so many percent of the drawn steps take at most",
					      .x_name = "percent of the steps",
					      .y_name = "seconds of a step",
					      .y_unit = FO_DRAW_SECONDS,
					      .y_lo = NAN,
					      .y_hi = NAN,
					      .series = one,
					      .n = 1,
					      .level = level,
					      .levels = 1 });
	fo_doc_only(d, FO_DOC_BOTH);
}

void fo_cli_spread_say(struct fo_doc *d, const struct fo_spread_steps *s, const struct fo_fleet *f)
{
	const char *text = "";
	fo_doc_line(d, "drawn", "%s for half of %d steps, %s %s to %s: %s over ranks that are alike (%s)",
		    fo_doc_num(d, s->mid, FO_DRAW_SECONDS), s->steps, s->steps >= 10 ? "80 %" : "all",
		    fo_doc_num(d, s->low, FO_DRAW_SECONDS), fo_doc_num(d, s->high, FO_DRAW_SECONDS),
		    fo_doc_num(d, s->mid / s->alike_s - 1, FO_DRAW_CHANGE), fo_doc_num(d, s->alike_s, FO_DRAW_SECONDS));
	for (int i = 0; i < s->holds && i < SAID; i++)
		text = fo_doc_join(d, text,
				   fo_doc_printf(d, "%s%s on lane %s %.0f %% (most on rank %d)",
						 fo_cli_hold_text[s->hold[i].hold], f->name[s->hold[i].name],
						 fo_lane_name[s->hold[i].lane], 100 * s->hold[i].share,
						 s->hold[i].rank));
	fo_doc_line(d, "hold them", "%s; the work of rank %d holds %.1f %% of their time", text, s->rank,
		    100 * s->rank_share);
	picture(d, s);
}

void fo_cli_spread_json(struct fo_json *j, const struct fo_spread_steps *s, const struct fo_fleet *f)
{
	fo_json_object(j, "spread");
	fo_json_put(j, FO_INT("steps", s->steps), FO_REAL("alike_seconds", s->alike_s),
		    FO_REAL("median_seconds", s->mid), FO_REAL("low_seconds", s->low), FO_REAL("high_seconds", s->high),
		    FO_INT("rank", s->rank), FO_REAL("rank_share", s->rank_share));
	fo_json_array(j, "step_seconds");
	for (int i = 0; i < s->steps; i++)
		fo_json_real(j, NULL, s->step_s[i]);
	fo_json_close(j);
	fo_json_array(j, "path");
	for (int i = 0; i < s->holds; i++)
		fo_json_record(j, NULL, FO_TEXT("operation", f->name[s->hold[i].name]),
			       FO_TEXT("what", fo_cli_hold_name[s->hold[i].hold]),
			       FO_TEXT("lane", fo_lane_name[s->hold[i].lane]), FO_REAL("share", s->hold[i].share),
			       FO_INT("rank", s->hold[i].rank));
	fo_json_close(j);
	fo_json_close(j);
}
