/* Claims: what somebody reports or promises of a change, held against itself and against what is known here. */
#include "health/health_int.h"

#include "base/text.h"

#include "base/opt.h"

#include <string.h>

struct claim {
	const char *about, *savings;
	double before, after, throughput, days_before, days_after;
};

/* Zero stands for "not said": none of these can be zero. */
static const struct fo_opt rows[] = {
	FO_OPT_TEXT(struct claim, about, "claim.about", "TEXT", NULL, "who says it, and of what"),
	FO_OPT_REAL(struct claim, before, "claim.mfu-before", "P", NULL, 0.01, 100, "percent", "MFU before the change"),
	FO_OPT_REAL(struct claim, after, "claim.mfu-after", "P", NULL, 0.01, 100, "percent", "MFU after the change"),
	FO_OPT_REAL(struct claim, throughput, "claim.throughput", "X", NULL, 0.01, 1e6, "times",
		    "throughput after over before"),
	FO_OPT_REAL(struct claim, days_before, "claim.days-before", "T", NULL, 1e-6, 1e6, "days", "the run before"),
	FO_OPT_REAL(struct claim, days_after, "claim.days-after", "T", NULL, 1e-6, 1e6, "days", "the same run after"),
	FO_OPT_TEXT(struct claim, savings, "claim.year-savings", "USD", NULL, "saved in a year: 480000..600000"),
	FO_OPT_END
};

/* The first line that says something is the section's name. */
bool fo_health_is_claim(const char *text, size_t len)
{
	static const char head[] = "claim:";
	for (size_t i = 0; i < len;) {
		const char *end = memchr(text + i, '\n', len - i);
		size_t n = (end ? (size_t)(end - text) : len) - i;
		if (n && text[i] != '#' && text[i] != '\r' && strncmp(text + i, "---", 3) != 0)
			return n >= sizeof head - 1 && !memcmp(text + i, head, sizeof head - 1);
		i += n + 1;
	}
	return false;
}

static double said(double v) { return v > 0 ? v : NAN; }

fo_status fo_health_read_claim(struct fo_health *h, const char *path, const char *text, size_t len,
			       struct fo_health_claim *out)
{
	struct fo_opt_set s;
	struct claim c;
	fo_opt_init(&s, rows, &c);
	fo_status st = fo_opt_read_yaml_text(&s, text, len, path);
	if (st == FO_OK)
		st = fo_opt_finish(&s);
	struct fo_range year = fo_range(NAN);
	if (st == FO_OK && c.savings)
		st = fo_range_parse(c.savings, "claim.year-savings", &year);
	if (st == FO_OK)
		*out = (struct fo_health_claim){ .path = path,
						 .about = c.about ? fo_arena_strdup(&h->arena, c.about) : NULL,
						 .mfu_before = said(c.before) / 100,
						 .mfu_after = said(c.after) / 100,
						 .throughput = said(c.throughput),
						 .days_before = said(c.days_before),
						 .days_after = said(c.days_after),
						 .year_saved = year };
	fo_opt_fini(&s);
	return st;
}

/* ---- against itself ---- */

/* Figures in such texts are rounded to one or two digits: apart by more than a tenth, they are two figures. */
static const double SAME = 1.1;

static bool apart(double a, double b) { return a / b > SAME || b / a > SAME; }

static void check_speeds(struct fo_health *h, const struct fo_health_claim *c)
{
	const struct {
		double times;
		const char *text;
	} way[] = {
		{ c->mfu_after / c->mfu_before,
		  fo_health_text(h, "MFU from %s to %s", fo_health_num(h, c->mfu_before, FO_DRAW_SHARE),
				 fo_health_num(h, c->mfu_after, FO_DRAW_SHARE)) },
		{ c->throughput, "throughput" },
		{ c->days_before / c->days_after,
		  fo_health_text(h, "run time from %s to %s", fo_health_num(h, c->days_before * 86400, FO_DRAW_SECONDS),
				 fo_health_num(h, c->days_after * 86400, FO_DRAW_SECONDS)) },
	};
	const char *text = "";
	bool wrong = false;
	for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
		if (isnan(way[i].times))
			continue;
		for (size_t k = 0; k < i; k++)
			wrong |= !isnan(way[k].times) && apart(way[i].times, way[k].times);
		text = fo_health_text(h, "%s%s%.2f x by %s", text, *text ? ", " : "", way[i].times, way[i].text);
	}
	if (wrong)
		fo_health_conflict(
			h,
			"%s: the same model on the same devices has one speed-up, and the claim has several: "
			"%s",
			fo_text_file_name(c->path), text);
}

static void check_money(struct fo_health *h, const struct fo_health_claim *c)
{
	const struct fo_health_savings *s = &h->savings;
	double times = c->mfu_after / c->mfu_before;
	if (!fo_range_known(c->year_saved) || isnan(times) || isnan(s->devices))
		return;
	/* The devices' hours of a year, of which the change saves this share. */
	double hours = s->devices * 8760 * (1 - 1 / times);
	struct fo_range rent = fo_range_scaled(1 / hours, c->year_saved);
	const char *claimed = fo_health_range(&h->arena, c->year_saved, FO_DRAW_MONEY);
	const char *needs = fo_health_range(&h->arena, rent, FO_DRAW_DOLLARS);
	if (!fo_range_known(s->rent)) {
		fo_health_conflict(
			h,
			"%s: %s a year for %.0f devices needs a rent of %s per device and hour, if they train "
			"all year; none is known here",
			fo_text_file_name(c->path), claimed, s->devices, needs);
		return;
	}
	struct fo_range here = fo_range_scaled(hours, fo_range_times(s->rent, h->given.year));
	bool meets = c->year_saved.low <= here.high && c->year_saved.high >= here.low;
	if (!meets)
		fo_health_conflict(h,
				   "%s: %s a year is not what %.2f x saves on %.0f devices at %s per device and hour: "
				   "%s; the claim needs %s",
				   fo_text_file_name(c->path), claimed, times, s->devices,
				   fo_health_range(&h->arena, s->rent, FO_DRAW_DOLLARS),
				   fo_health_range(&h->arena, here, FO_DRAW_MONEY), needs);
}

static void check_here(struct fo_health *h, const struct fo_health_claim *c)
{
	if (!isnan(h->mfu.now) && !isnan(c->mfu_before) && apart(h->mfu.now, c->mfu_before))
		fo_health_conflict(h, "%s: MFU before the change is claimed as %s; %s says %s",
				   fo_text_file_name(c->path), fo_health_num(h, c->mfu_before, FO_DRAW_SHARE),
				   h->mfu.from, fo_health_num(h, h->mfu.now, FO_DRAW_SHARE));
	if (!isnan(c->mfu_after) && c->mfu_after > h->mfu.cap)
		fo_health_conflict(h, "%s: %s MFU after the change is above %s (%s)", fo_text_file_name(c->path),
				   fo_health_num(h, c->mfu_after, FO_DRAW_SHARE),
				   fo_health_num(h, h->mfu.cap, FO_DRAW_SHARE), h->mfu.cap_from);
}

void fo_health_check_claims(struct fo_health *h)
{
	for (size_t i = 0; i < h->claims; i++) {
		check_speeds(h, &h->claim[i]);
		check_here(h, &h->claim[i]);
		check_money(h, &h->claim[i]);
	}
}
