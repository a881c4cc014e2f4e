/* flatout price: what an MFU costs, and what a higher one is worth. */
#include "cli/cost.h"
#include "cli/goodput.h"
#include "cli/predict_cluster.h"

#include "plan/file.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

struct price {
	const char *device, *dtype, *devices_file, *mfu, *to, *rent, *weeks, *week_cost, *watts, *pue, *kwh, *year;
	const char *other, *other_mfu, *other_rent;
	int64_t devices, other_devices;
	double days, tokens;
	struct fo_cli_goodput goodput; /* its days are those of the run */
	const char *json, *html;
	bool force;
};

static const struct fo_opt rows[] = {
	FO_OPT_TEXT(struct price, mfu, "price.mfu", "P", NULL, "MFU now in percent: 40, or 35..45"),
	FO_OPT_TEXT(struct price, to, "price.to", "P", NULL, "MFU after a change, in percent"),
	FO_OPT_INT(struct price, devices, "price.devices", "N", NULL, 1, 1 << 30, "devices", "how many train"),
	FO_OPT_TEXT(struct price, device, "price.device", "D", NULL,
		    "accelerator: 'flatout devices' lists them; its rent is the catalogue's range"),
	FO_OPT_REAL(struct price, days, "price.days", "T", NULL, 1e-6, 1e6, "days",
		    "length of the run as it is; with --failures and its like, of its steps alone"),
	FO_OPT_REAL(struct price, tokens, "price.tokens", "D", NULL, 1, 1e18, "tokens",
		    "that a plan's run trains on, in place of its length: 15T"),
	FO_CLI_GOODPUT_LOSS_ROWS(struct price, "price"),
	FO_OPT_TEXT(struct price, rent, "price.rent", "R", NULL, "USD per device and hour: 2.5, or 2..3"),
	FO_OPT_TEXT(struct price, year, "price.year", "P", "100",
		    "share of a year in which the devices train, in percent, for sums per year"),
	FO_OPT_TEXT(struct price, weeks, "price.weeks", "W", NULL, "weeks of engineering that the change takes: 2..4"),
	FO_OPT_TEXT(struct price, week_cost, "price.week-cost", "C", NULL, "USD of one such week"),
	FO_OPT_TEXT(struct price, watts, "price.watts", "W", NULL,
		    "power of one device while it trains, for electricity"),
	FO_OPT_TEXT(struct price, pue, "price.pue", "F", NULL, "power of the building over that of the devices: 1.2"),
	FO_OPT_TEXT(struct price, kwh, "price.kwh", "C", NULL, "USD per kWh: electricity is priced with --watts"),
	FO_OPT_TEXT(struct price, other, "price.other", "D", NULL, "another accelerator for the same work"),
	FO_OPT_TEXT(struct price, other_mfu, "price.other-mfu", "P", NULL, "the MFU reached there, in percent"),
	FO_OPT_INT(struct price, other_devices, "price.other-devices", "N", NULL, 1, 1 << 30, "devices",
		   "how many of them; as many as --devices"),
	FO_OPT_TEXT(struct price, other_rent, "price.other-rent", "R", NULL, "their rent"),
	FO_OPT_TEXT(struct price, dtype, "price.dtype", "TYPE", "bf16", "precision of the peaks: bf16, fp8, ..."),
	FO_OPT_PATH(struct price, devices_file, "price.devices-file", "PATH", NULL,
		    "CSV with own devices, as data/devices.csv"),
	FO_OPT_OUTPUT(struct price, html, "price.html", "FILE", NULL, "a page", FO_OUTPUT_PAGE),
	FO_CLI_OUTPUT_ROWS(struct price, "price", "JSON on standard output")
};

/* A run of which less than this counts takes a hundred times as long as its steps: nobody would go on with it. */
#define LEAST_SHARE 0.01

struct sum {
	const struct price *in;
	struct fo_arena arena;
	const char *path; /* of a plan; NULL: none */
	struct fo_plan_file plan;
	struct fo_catalogue catalogue;
	const struct fo_device *device, *other;
	const char *rent_from, *other_rent_from, *watts_from;
	struct fo_price_in given; /* its days hold what failures and saves take, where that is given */
	struct fo_price price;
	struct fo_range step_days; /* the days without that */
	struct fo_goodput_in lose;
	struct fo_goodput good; /* share NAN: nothing is given */
};

/* ---- inputs ---- */

static fo_status read_mfu(const char *text, const char *what, struct fo_range *out)
{
	FO_TRY(fo_cli_cost_range(text, what, 0.01, out));
	if (text && !(out->low >= 0.01 && out->high <= 1))
		return fo_hint(fo_fail(FO_EARG, "%s is '%s', expected percent: 1 to 100", what, text),
			       "percent: 40, not 0.4");
	return FO_OK;
}

static fo_status read_device(struct sum *s, const char *name, const struct fo_device **d, double *peak)
{
	enum fo_precision p;
	*peak = NAN;
	if (!name)
		return FO_OK;
	FO_TRY(fo_precision_parse(s->in->dtype, &p));
	FO_TRY(fo_catalogue_find(&s->catalogue, name, d));
	return fo_device_peak(*d, p, peak);
}

/* Options that say nothing on their own are refused where what they belong to is missing. */
static fo_status check_pairs(const struct price *in)
{
	const struct {
		const char *option, *needs;
		bool given, met;
	} pair[] = {
		{ "--weeks", "--week-cost and --to", in->weeks != NULL, in->week_cost && in->to },
		{ "--week-cost", "--weeks and --to", in->week_cost != NULL, in->weeks && in->to },
		{ "--kwh", "--watts", in->kwh != NULL, in->watts != NULL },
		{ "--pue", "--watts", in->pue != NULL, in->watts != NULL },
		{ "--other-rent", "--other", in->other_rent != NULL, in->other != NULL },
		{ "--other-devices", "--other", in->other_devices > 0, in->other != NULL },
		{ fo_cli_goodput_named(&in->goodput), "--days, or a plan and --tokens",
		  fo_cli_goodput_asked(&in->goodput), in->days > 0 || in->tokens > 0 },
	};
	for (size_t i = 0; i < sizeof pair / sizeof *pair; i++)
		if (pair[i].given && !pair[i].met)
			return fo_fail(FO_EARG, "'%s' alone changes nothing: it needs %s", pair[i].option,
				       pair[i].needs);
	return FO_OK;
}

/* Takes from a plan what options would say: devices, their kind, the MFU that is predicted, the length of a run. */
static fo_status read_plan(struct sum *s)
{
	const struct price *in = s->in;
	struct fo_price_in *g = &s->given;
	const struct {
		const char *option;
		bool given;
	} same[] = { { "--mfu", in->mfu }, { "--devices", in->devices > 0 }, { "--device", in->device } };
	for (size_t i = 0; i < sizeof same / sizeof *same; i++)
		if (same[i].given)
			return fo_cli_contradict("%s and the plan '%s' both say what trains", same[i].option, s->path);
	if (in->tokens > 0 && in->days > 0)
		return fo_cli_contradict("--tokens and --days both say how long the run is");
	FO_TRY(fo_plan_file_read(&s->plan, s->path, &s->arena));
	FO_TRY(fo_catalogue_find(&s->catalogue, s->plan.device, &s->device));
	g->devices = s->plan.devices;
	g->peak = 1e-12 * s->plan.peak_flop_s;
	g->mfu = fo_plan_file_mfu(&s->plan);
	g->days = fo_range(in->days > 0 ? in->days : NAN);
	if (in->tokens > 0) {
		struct fo_range none = fo_range(NAN);
		struct fo_price_tokens_in run = {
			s->plan.devices, in->tokens, fo_plan_file_tokens_s(&s->plan), none, none, none, none
		};
		struct fo_price_tokens t;
		fo_price_tokens(&run, &t);
		g->days = t.days;
	}
	return FO_OK;
}

static fo_status read_job(struct sum *s)
{
	const struct price *in = s->in;
	struct fo_price_in *g = &s->given;
	if (s->path)
		return read_plan(s);
	if (in->tokens > 0)
		return fo_fail(FO_EARG,
			       "'--tokens' alone changes nothing: it needs a plan, which says how fast they pass");
	if (!in->mfu || !in->devices)
		return fo_hint(fo_fail(FO_EARG, "'%s' is missing", in->mfu ? "--devices" : "--mfu"),
			       "flatout price --mfu 40 --devices 256 --device h100 --days 90");
	g->devices = (double)in->devices;
	g->days = fo_range(in->days > 0 ? in->days : NAN);
	FO_TRY(read_device(s, in->device, &s->device, &g->peak));
	return read_mfu(in->mfu, "--mfu", &g->mfu);
}

/* The run takes as long as its steps over the share of the time that counts. */
static fo_status read_lost_time(struct sum *s)
{
	struct fo_cli_goodput given = s->in->goodput;
	s->step_days = s->given.days;
	s->good.share = NAN;
	if (!fo_cli_goodput_asked(&given))
		return FO_OK;
	given.days = fo_range_middle(s->given.days);
	FO_TRY(fo_cli_goodput_read(&given, &s->lose));
	s->lose.devices = s->given.devices;
	fo_goodput_of(&s->lose, &s->good);
	if (!(s->good.share >= LEAST_SHARE && s->good.drawn.low >= LEAST_SHARE))
		return fo_hint(fo_fail(FO_EARG,
				       "with these failures, saves and restarts less than %g %% of the time counts: "
				       "such a run does not end",
				       100 * LEAST_SHARE),
			       "--failures are of 1,000 nodes of eight devices in a day: 4, and --restart is in "
			       "seconds: 600");
	s->given.days = fo_range_over(s->step_days, s->good.drawn);
	return FO_OK;
}

static fo_status read_inputs(struct sum *s)
{
	const struct price *in = s->in;
	struct fo_price_in *g = &s->given;
	FO_TRY(read_job(s));
	FO_TRY(check_pairs(in));
	FO_TRY(read_lost_time(s));
	FO_TRY(read_device(s, in->other, &s->other, &g->other_peak));
	FO_TRY(read_mfu(in->to, "--to", &g->to));
	FO_TRY(read_mfu(in->other_mfu, "--other-mfu", &g->other_mfu));
	FO_TRY(fo_cli_cost_rent(in->rent, "--rent", s->device, &g->rent, &s->rent_from));
	FO_TRY(fo_cli_cost_rent(in->other_rent, "--other-rent", s->other, &g->other_rent, &s->other_rent_from));
	FO_TRY(fo_cli_cost_range(in->year, "--year", 0.01, &g->year));
	FO_TRY(fo_cli_cost_range(in->weeks, "--weeks", 1, &g->weeks));
	FO_TRY(fo_cli_cost_range(in->week_cost, "--week-cost", 1, &g->week));
	FO_TRY(fo_cli_cost_watts(in->watts, &g->watts));
	FO_TRY(fo_cli_cost_range(in->pue, "--pue", 1, &g->pue));
	FO_TRY(fo_cli_cost_range(in->kwh, "--kwh", 1, &g->kwh));
	if (g->year.high > 1)
		return fo_fail(FO_EARG, "--year is '%s', expected percent of a year: at most 100", in->year);
	if (in->pue && g->pue.low < 1)
		return fo_fail(FO_EARG, "--pue is '%s', expected 1 or more", in->pue);
	if (!in->pue)
		g->pue = fo_range(1);
	if ((in->other || in->other_mfu) && !(in->other && in->other_mfu && s->device && fo_range_known(g->days)))
		return fo_fail(FO_EARG, "a comparison needs --device, --days, --other and --other-mfu: the work is "
					"devices x peak x MFU x days");
	if (in->other)
		g->other_devices = in->other_devices ? (double)in->other_devices : g->devices;
	return FO_OK;
}

/* ---- what it says ---- */

static const char *money(struct fo_doc *d, double v) { return fo_doc_num(d, v, FO_DRAW_MONEY); }
static const char *number(struct fo_doc *d, double v) { return fo_doc_printf(d, fabs(v) < 10 ? "%.2f" : "%.0f", v); }
static const char *factor(struct fo_doc *d, double v) { return fo_doc_printf(d, "%.2f x", v); }
static const char *percent(struct fo_doc *d, double v) { return fo_doc_printf(d, "%.1f %%", 100 * v); }
static const char *duration(struct fo_doc *d, double days)
{
	if (isinf(days))
		return "never";
	return days < 2 ? fo_doc_printf(d, "%.1f hours", 24 * days) : fo_doc_printf(d, "%.1f days", days);
}

typedef const char *form(struct fo_doc *d, double v);

/* "A to B"; one of them where both read alike; NULL: not known. */
static const char *text_of(struct fo_doc *d, struct fo_range r, form *f)
{
	if (!fo_range_known(r))
		return NULL;
	const char *low = f(d, r.low), *high = f(d, r.high);
	return strcmp(low, high) ? fo_doc_printf(d, "%s to %s", low, high) : low;
}

static const struct line {
	const char *key, *name, *counts;
	size_t offset;
	form *form;
} line[] = {
#define LINE(member, name, counts, form)                                       \
	{                                                                      \
#member, name, counts, offsetof(struct fo_price, member), form \
	}
	LINE(useful, "devices' worth of useful work", "devices x MFU", number),
	LINE(lost, "devices' worth lost", "devices x (1 - MFU)", number),
	LINE(cost, "cost of the run", "devices x hours x rent", money),
	LINE(year_cost, "cost of a year", "devices x 8760 h x share x rent", money),
	LINE(times, "speed after the change", "MFU after / MFU now", factor),
	LINE(days, "the same work then takes", "days x MFU now / MFU after", duration),
	LINE(saved_share, "share of the cost saved", "1 - MFU now / MFU after", percent),
	LINE(saved, "saved for the same work", "cost x share saved", money),
	LINE(year_saved, "saved in a year", "cost of a year x share saved", money),
	LINE(recovered, "devices recovered", "devices x (MFU after - MFU now)", number),
	LINE(recovered_worth, "their worth over the same days", "devices recovered x hours x rent", money),
	LINE(payback_days, "pays back after training for", "weeks x cost / saved per day of training", duration),
	LINE(energy_kwh, "electricity, kWh", "devices x power x PUE x hours", number),
	LINE(energy_cost, "electricity", "kWh x price", money),
	LINE(other_days, "the same work on the other device", "work / (devices x peak x MFU)", duration),
	LINE(other_cost, "costs there", "devices x hours x rent", money),
};

static struct fo_range value_of(const struct sum *s, const struct line *l)
{
	struct fo_range r;
	memcpy(&r, (const char *)&s->price + l->offset, sizeof r);
	return r;
}

/* Days are days of training: what a change saves, it saves while the devices train. */
static void say_payback(struct fo_doc *d, const struct sum *s)
{
	struct fo_range back = s->price.payback_days;
	const char *text = text_of(d, back, duration);
	if (!text)
		return;
	if (isinf(back.low))
		fo_doc_verdict(d, FO_DOC_BAD, "Payback", "never: nothing is saved");
	else if (back.low > s->given.days.high)
		fo_doc_verdict(d, FO_DOC_BAD, "Payback", "not within this run of %s: it takes %s of training",
			       text_of(d, s->given.days, duration), text);
	else if (back.high > s->given.days.low)
		fo_doc_verdict(d, FO_DOC_BAD, "Payback", "not certain within this run of %s: %s of training",
			       text_of(d, s->given.days, duration), text);
}

static void say_verdict(struct fo_doc *d, const struct sum *s)
{
	const struct fo_price *p = &s->price;
	const char *lost = text_of(d, p->lost, number), *saved = text_of(d, p->saved, money);
	fo_doc_verdict(d, FO_DOC_PLAIN, "Lost", "%s of %.0f device%s worth of the peak", lost, s->given.devices,
		       fo_word(s->given.devices, "'s", "s'"));
	if (!fo_range_known(s->given.to))
		return;
	if (p->saved_share.high < 0)
		fo_doc_verdict(d, FO_DOC_BAD, "Worth", "costs more: %s of the cost on top for the same work",
			       text_of(d, (struct fo_range){ -p->saved_share.high, -p->saved_share.low }, percent));
	else if (p->saved_share.low < 0)
		fo_doc_verdict(d, FO_DOC_BAD, "Worth", "not certain: the ranges of --mfu and --to overlap");
	else if (saved)
		fo_doc_verdict(d, FO_DOC_GOOD, "Worth", "%s saved for the same work, %s of its cost", saved,
			       text_of(d, p->saved_share, percent));
	else
		fo_doc_verdict(d, FO_DOC_GOOD, "Worth", "%s of the cost, whatever that is; give --days and a rent",
			       text_of(d, p->saved_share, percent));
	say_payback(d, s);
}

static void say_lost_time(struct fo_doc *d, const struct sum *s)
{
	if (isnan(s->good.share)) {
		if (fo_range_known(s->given.days))
			fo_doc_line(d, "kept",
				    "what share of the time counts is not known, and lost time is not in these sums: "
				    "--failures, --save, --restart, --checkpoint-every count it");
		return;
	}
	fo_doc_line(d, "kept", "%s of steps take %s: %s of the time counts (80 %% of drawn runs)",
		    text_of(d, s->step_days, duration), text_of(d, s->given.days, duration),
		    text_of(d, s->good.drawn, percent));
	fo_cli_goodput_say(d, &s->in->goodput, &s->lose);
	if (s->other)
		fo_doc_line(d, "assumed", "the other devices lose the same share of their time");
}

static void document(struct fo_doc *d, const struct sum *s)
{
	fo_doc_title(d, "What %.0f device%s at %s MFU cost%s", s->given.devices, fo_plural(s->given.devices),
		     text_of(d, s->given.mfu, percent), fo_word(s->given.devices, "s", ""));
	say_verdict(d, s);
	if (s->path)
		fo_doc_line(d, "plan", "%s: %s on %.0f x %s, mfu_causal as predicted%s", s->path, s->plan.model,
			    s->plan.devices, s->plan.device,
			    s->in->tokens > 0 ? fo_doc_printf(d, "; the steps of %s take %s",
							      fo_doc_si(d, s->in->tokens, " tokens"),
							      text_of(d, s->step_days, duration))
					      : "");
	if (s->path)
		fo_cli_say_doubts(d, "the plan", s->plan.doubt, s->plan.size);
	say_lost_time(d, s);
	fo_doc_table(d, FO_DRAW_FITTED, NULL, "lrl", "figure", "value", "counts");
	for (size_t i = 0; i < sizeof line / sizeof *line; i++) {
		const char *text = text_of(d, value_of(s, &line[i]), line[i].form);
		if (text)
			fo_doc_row(d, line[i].name, text, line[i].counts);
	}
	if (fo_range_known(s->price.saved) && fo_range_known(s->price.recovered_worth))
		fo_doc_remark(d,
			      "\"Saved for the same work\" and \"their worth over the same days\" are two views of one "
			      "change: the run ends earlier, or more is done until its old end. They are not added.");
	if (fo_range_known(s->given.rent) && s->rent_from)
		fo_doc_line(d, "rent", "%s per device-hour (%s)", text_of(d, s->given.rent, money), s->rent_from);
	else
		fo_doc_line(d, "rent", "not known: give --rent, or a --device whose rent the catalogue has");
	if (s->other)
		fo_doc_line(d, "other", "%.0f x %s, %g TFLOP/s against %g%s", s->given.other_devices, s->other->name,
			    s->given.other_peak, s->given.peak,
			    fo_range_known(s->given.other_rent)
				    ? fo_doc_printf(d, ", %s per device-hour (%s)",
						    text_of(d, s->given.other_rent, money), s->other_rent_from)
				    : ", rent not known");
}

static void range_json(struct fo_json *j, const char *key, struct fo_range r)
{
	fo_json_record(j, key, FO_REAL("low", r.low), FO_REAL("high", r.high));
}

static void write_json(const struct sum *s, struct fo_json *j)
{
	fo_json_real(j, "devices", s->given.devices);
	fo_json_real(j, "days_now", s->given.days.low == s->given.days.high ? s->given.days.low : NAN);
	range_json(j, "days_now_range", s->given.days);
	range_json(j, "days_of_steps", s->step_days);
	if (isnan(s->good.share))
		fo_json_real(j, "goodput", NAN);
	else {
		fo_json_record(j, "goodput", FO_REAL("low", s->good.drawn.low), FO_REAL("mid", s->good.share),
			       FO_REAL("high", s->good.drawn.high));
		fo_cli_goodput_json(j, &s->in->goodput, &s->lose);
	}
	range_json(j, "mfu", s->given.mfu);
	fo_json_text(j, "doubt", s->plan.doubt && *s->plan.doubt ? s->plan.doubt : NULL);
	fo_json_text(j, "size_doubt", s->plan.size && *s->plan.size ? s->plan.size : NULL);
	range_json(j, "mfu_after", s->given.to);
	range_json(j, "rent_usd_per_hour", s->given.rent);
	fo_json_text(j, "rent_from", fo_range_known(s->given.rent) ? s->rent_from : NULL);
	for (size_t i = 0; i < sizeof line / sizeof *line; i++)
		range_json(j, line[i].key, value_of(s, &line[i]));
}

static fo_status show(const struct fo_cli_call *call, const struct sum *s)
{
	struct fo_doc page = { 0 }, *d = call->json || (s->in->html && !strcmp(s->in->html, "-")) ? &page : call->doc;
	if (!call->json || s->in->html)
		document(d, s);
	if (call->json)
		write_json(s, call->json);
	fo_status st = s->in->html ? fo_cli_page(d, s->in->html) : FO_OK;
	fo_doc_fini(&page);
	return st;
}

static fo_status run(const struct fo_cli_call *call)
{
	struct sum s = { .in = call->in, .path = call->argc > 1 ? call->argv[1] : NULL };
	FO_TRY(fo_catalogue_load(&s.catalogue, s.in->devices_file));
	fo_status st = read_inputs(&s);
	if (st == FO_OK) {
		fo_price(&s.given, &s.price);
		st = show(call, &s);
	}
	fo_catalogue_fini(&s.catalogue);
	fo_arena_fini(&s.arena);
	return st;
}

const struct fo_command fo_cmd_price = {
	.name = "price",
	.group = "plan",
	.usage = "flatout price --mfu P --devices N [--to P] [--device D] [--days T] [--rent R] "
		 "[--weeks W --week-cost C] "
		 "[--watts W --kwh C] [--other D --other-mfu P] [--failures R] [--save S] [--restart S] "
		 "[--checkpoint-every S] [--html FILE] [--json]\n"
		 "flatout price PLAN.json [--days T|--tokens D] [--to P] [--rent R] [...]",
	.summary = "what an MFU costs, and what a higher one is worth",
	.text = "Devices lost at an MFU, the cost of a run, what moving the MFU saves, in how many days "
		"that pays for the work, what electricity costs, and the same work on another device. "
		"A price is a range: inputs are numbers or ranges (2..3), results hold every value that "
		"they allow. The rent is the catalogue's range with its source, unless --rent says it.\n\n"
		"  flatout price --mfu 40 --to 60 --devices 256 --days 90 --rent 2.5\n"
		"  flatout price --mfu 35..45 --to 55 --devices 64 --device h100 --days 30 \\\n"
		"      --weeks 2..4 --week-cost 5000..8000\n"
		"  flatout price --mfu 38 --devices 64 --device h100 --days 30 --other b200 \\\n"
		"      --other-mfu 30..45\n\n"
		"Failures, checkpoints and restarts take time on top of that of the steps: with --failures, --save, "
		"--restart or --checkpoint-every, days and cost count it.\n\n"
		"A plan says devices, their kind and the MFU that is predicted:\n\n"
		"  flatout plan run.yaml --cluster 2xHGX-H100 --json=plan.json\n"
		"  flatout price plan.json --tokens 15T --to 55",
	.opts = rows,
	.act = run,
	.size = sizeof(struct price),
	.most = 1,
};
