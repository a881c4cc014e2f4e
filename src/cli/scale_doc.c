/* The output of flatout scale: the same figures as text, page and JSON. */
#include "cli/scale.h"

#include "price/price.h"

#include <math.h>
#include <string.h>

/* ---- what is asked ---- */

void fo_cli_scale_ask(const struct fo_cli_planned *p, struct fo_scale_asked *out)
{
	const struct fo_cluster *c = &p->asked->cluster;
	*out = (struct fo_scale_asked){ .plan = p->ask, .per_node = c->per_node, .net = { 1, 1 } };
	out->net_measured = fo_range_known(p->asked->given.net_gb_s);
	if (c->net_gb_s.high > 0)
		out->net.low = c->net_gb_s.low / c->net_gb_s.high;
}

/* ---- cost and energy ---- */

/* Cost, energy and device-hours of a billion tokens that count. */
struct worth {
	struct fo_range cost, kwh, device_hours;
};
#define BILLION 1e9
#define HOUR_DAYS (1 / 24.0)

/* One hour of all devices, shared out over the tokens that it gives. */
static struct worth worth_of(const struct fo_cli_scaled *s, const struct fo_scale_point *p)
{
	const struct fo_price_in in = { .devices = p->devices,
					.days = fo_range(HOUR_DAYS),
					.rent = s->rent,
					.mfu = p->mfu_causal,
					.to = fo_range(NAN),
					.peak = NAN,
					.weeks = fo_range(NAN),
					.week = fo_range(NAN),
					.watts = s->watts,
					.pue = s->pue,
					.kwh = fo_range(NAN),
					.year = fo_range(1) };
	const struct fo_range tokens = fo_range_scaled(3600 / BILLION, p->kept_tokens_s);
	struct fo_price hour;
	fo_price(&in, &hour);
	return (struct worth){ fo_range_over(hour.cost, tokens), fo_range_over(hour.energy_kwh, tokens),
			       fo_range_over(fo_range(p->devices), tokens) };
}

/* ---- words ---- */

static const char *division(struct fo_doc *d, const struct fo_plan_point *x)
{
	struct fo_division o;
	fo_division_of(&x->layout, x->step.dp, &o);
	return fo_cli_division(d, &o, true);
}

static const char *percents(struct fo_doc *d, struct fo_range r, bool known)
{
	const double low = round(100 * r.low), high = round(100 * r.high);
	const char *text = low < high ? fo_doc_printf(d, "%.0f-%.0f", low, high) : fo_doc_printf(d, "%.0f", low);
	return known ? text : fo_doc_printf(d, "(%s)", text);
}

static const char *two_digits(struct fo_doc *d, double v) { return fo_doc_printf(d, v < 10 ? "%.1f" : "%.0f", v); }

/* Both ends with one unit: "1.2-23 k". */
static const char *amounts(struct fo_doc *d, struct fo_range r)
{
	static const char *const prefix[] = { "", " k", " M", " G" };
	int k = 0;
	if (!fo_range_known(r))
		return "-";
	for (; r.high >= 1e4 && k < 3; k++)
		r = fo_range_scaled(1e-3, r);
	if (r.low >= r.high)
		return fo_doc_printf(d, "%s%s", two_digits(d, r.low), prefix[k]);
	return fo_doc_printf(d, "%s-%s%s", two_digits(d, r.low), two_digits(d, r.high), prefix[k]);
}

static const char *does_not_fit(struct fo_doc *d, const struct fo_cli_scaled *s, const struct fo_scale_point *p)
{
	if (p->fit == FO_SCALE_NO_BATCH)
		return "no whole number of sequences";
	if (p->fit == FO_SCALE_NO_DIVISION)
		return "no legal division of the batch";
	return fo_doc_printf(d, "does not fit: %.0f of %.0f GiB", ceil(p->smallest_bytes_high / 0x1p30),
			     s->ask.plan.base.job.machine.memory_bytes / 0x1p30);
}

/* ---- text and page ---- */

static void say_head(struct fo_doc *d, const struct fo_cli_scaled *s)
{
	const struct fo_cli_planned *p = s->planned;
	const struct fo_cluster *c = &p->asked->cluster;
	fo_doc_line(d, "scale", "%s on %s in nodes of %.15g, for %s: sequences of %.15g tokens, %s",
		    p->asked->job.model.name, c->device->name, c->per_node, p->ask.framework->title, p->job.job.seq,
		    fo_cli_job_type_name(p->asked, p->job.job.type));
	fo_cli_goodput_say(d, &s->given, &s->ask.goodput);
	if (s->ask.goodput.interval_s > 0)
		fo_doc_line(d, "saved", "after every %s of training",
			    fo_cli_goodput_time(d, s->ask.goodput.interval_s));
	if (fo_range_known(s->rent))
		fo_doc_line(d, "rent", "%s to %s for a device and hour (%s)", fo_doc_num(d, s->rent.low, FO_DRAW_MONEY),
			    fo_doc_num(d, s->rent.high, FO_DRAW_MONEY), s->rent_from);
	else
		fo_doc_line(d, "rent", "not known: --rent says it");
	if (!(s->watts.high > 0))
		fo_doc_line(d, "energy", "not known: the catalogue has no power limit of this device; --watts says it");
	else if (!s->watts_given)
		fo_doc_line(d, "energy",
			    "at most: at the device's limit of %.4g W, which training seldom draws; --watts "
			    "says what it does",
			    s->watts.high);
	if (!s->ask.net_measured)
		fo_doc_line(d, "network",
			    "%.3g GB/s a device between nodes%s; --measured-bandwidth says what collectives reach on "
			    "a cluster of that size",
			    p->job.job.machine.net_byte_s / 1e9,
			    c->net_assumed ? ", the usual adapter: nobody stated it, and half of it is in the intervals"
					   : "");
	if (p->assumed_framework)
		fo_doc_line(d, "assumed", "framework: %s (--framework names another)", p->ask.framework->title);
	for (int i = 0; i < p->job.inferences; i++)
		fo_doc_line(d, "assumed", "%s", p->job.inferred[i]);
}

static void say_point(struct fo_doc *d, const struct fo_cli_scaled *s, const struct fo_scale_point *p)
{
	const char *devices = fo_doc_printf(d, "%.15g", p->devices);
	if (p->fit != FO_SCALE_FITS) {
		fo_doc_row(d, devices, fo_doc_printf(d, "%.15g", p->global_batch), does_not_fit(d, s, p), "", "", "",
			   "", "", "", "", "");
		return;
	}
	const struct worth w = worth_of(s, p);
	const char *mfu = p->size ? "?" : fo_doc_printf(d, "%.1f", 100 * p->plan.step.mfu_causal);
	const struct fo_range kwh = s->watts_given ? w.kwh : fo_range(w.kwh.high);
	fo_doc_row(d, devices, fo_doc_printf(d, "%.15g", p->global_batch), division(d, &p->plan), mfu,
		   percents(d, p->mfu_causal, !p->size), fo_doc_si(d, p->plan.tokens_s, "tok/s"),
		   fo_doc_num(d, p->speed, FO_DRAW_FACTOR), fo_cli_goodput_time(d, p->goodput.interval_s),
		   percents(d, p->goodput.drawn, true), amounts(d, w.cost), amounts(d, kwh));
}

static void say_sizes(struct fo_doc *d, const struct fo_cli_scaled *s, const struct fo_scale *x)
{
	const struct fo_plan_asked *a = &s->ask.plan;
	if (!x->points)
		return;
	if (x->weak)
		fo_doc_heading(d, "Weak scaling: %.3g sequence%s a device in each step, as %.15g on %.15g",
			       a->global_batch / a->devices, fo_plural(a->global_batch > a->devices ? 2 : 1),
			       a->global_batch, a->devices);
	else
		fo_doc_heading(d, "Strong scaling: %.15g sequence%s in each step", a->global_batch,
			       fo_plural(a->global_batch > 1 ? 2 : 1));
	fo_doc_table(d, FO_DRAW_FULL, NULL, "rRlrrRRRrrr", "devices", "sequences", "best division", "MFU%", "80 %",
		     "speed", "over the first", "saved every", "good%", "$/Gtok", "kWh/Gtok");
	for (int i = 0; i < x->points; i++)
		say_point(d, s, &x->point[i]);
}

static bool any_too_large(const struct fo_scale *x)
{
	for (int i = 0; i < x->points; i++)
		if (x->point[i].fit == FO_SCALE_TOO_LARGE)
			return true;
	return false;
}

static const char *any_unknown(const struct fo_scale *x)
{
	for (int i = 0; i < x->points; i++)
		if (x->point[i].fit == FO_SCALE_FITS && x->point[i].size)
			return x->point[i].size;
	return NULL;
}

/* Each doubt once, with the sizes that it is of. */
static void say_doubts(struct fo_doc *d, const struct fo_scale *x)
{
	const char *last = NULL, *kind = x->weak ? "weak" : "strong";
	for (int i = 0; i < x->points; i++) {
		const char *doubt = x->point[i].doubt, *sizes = "";
		if (!doubt || doubt == last)
			continue;
		for (int k = i; k < x->points && (!x->point[k].doubt || x->point[k].doubt == doubt); k++)
			if (x->point[k].doubt)
				sizes = fo_doc_printf(d, "%s%s%.15g", sizes, *sizes ? ", " : "", x->point[k].devices);
		fo_doc_verdict(d, FO_DOC_BAD, "doubt", "%s scaling, devices: %s: %s", kind, sizes, doubt);
		last = doubt;
	}
}

static void say_notes(struct fo_doc *d, const struct fo_cli_scaled *s)
{
	say_doubts(d, &s->strong);
	say_doubts(d, &s->weak);
	fo_doc_para(d,
		    "MFU is mfu_causal while steps run, 80 %% its interval. good: the share of the time that counts, "
		    "with checkpoints, failures and restarts taken off, that 80 %% of drawn runs of %s reach. "
		    "Gtok: a billion tokens that count, over both intervals at once; rent and energy of the devices "
		    "alone%s. %s.",
		    fo_cli_goodput_time(d, s->ask.goodput.days * 86400),
		    s->pue.high > 1 ? ", times the building's share" : "", fo_division_legend);
	if (any_too_large(&s->strong) || any_too_large(&s->weak))
		fo_doc_para(d, "Does not fit: the smallest division may take more memory than a device has.");
	const char *unknown = any_unknown(&s->strong);
	unknown = unknown ? unknown : any_unknown(&s->weak);
	if (unknown)
		fo_doc_para(
			d,
			"?: not known: %s. What stands in brackets, and the cost beside it, is what it would be then.",
			unknown);
}

/* ---- pictures ---- */

enum { SERIES = 6 };
/* The middle of each size, faint lines at the ends of its interval; what is not known is a line of its own. */
static size_t mfu_series(struct fo_doc *d, const struct fo_scale *x, const char *name, const char *guess, int style,
			 struct fo_draw_series *out)
{
	const size_t n = x ? (size_t)x->points : 0;
	double *at[5];
	bool any[2] = { false, false };
	for (int k = 0; k < 5; k++)
		at[k] = fo_doc_alloc(d, (n + 1) * sizeof **at);
	for (size_t i = 0; i < n; i++) {
		const struct fo_scale_point *p = &x->point[i];
		const bool fits = p->fit == FO_SCALE_FITS, next = i + 1 < n && x->point[i + 1].fit == FO_SCALE_FITS;
		at[0][i] = p->devices;
		at[1][i] = fits && !p->size ? p->plan.step.mfu_causal : NAN;
		/* The guess begins at the last known point. */
		at[2][i] = fits && (p->size || (next && x->point[i + 1].size)) ? p->plan.step.mfu_causal : NAN;
		at[3][i] = fits ? p->mfu_causal.low : NAN;
		at[4][i] = fits ? p->mfu_causal.high : NAN;
		any[0] |= fits;
		any[1] |= fits && p->size;
	}
	size_t count = 0;
	if (!any[0])
		return 0;
	out[count++] = (struct fo_draw_series){
		.name = name, .x = at[0], .y = at[1], .n = n, .style = style, .marks = true
	};
	if (any[1])
		out[count++] = (struct fo_draw_series){
			.name = guess, .x = at[0], .y = at[2], .n = n, .style = style + 2, .marks = true
		};
	for (int k = 3; k < 5; k++)
		out[count++] = (struct fo_draw_series){ .x = at[0], .y = at[k], .n = n, .style = style, .faint = true };
	return count;
}

static void mfu_picture(struct fo_doc *d, const struct fo_scale *strong, const struct fo_scale *weak)
{
	struct fo_draw_series *s = fo_doc_alloc(d, 2 * SERIES * sizeof *s);
	size_t n = mfu_series(d, strong, "strong scaling", "strong, not known: if the network holds", 0, s);
	n += mfu_series(d, weak, "weak scaling", "weak, not known: if the network holds", 1, s + n);
	fo_doc_lines(d,
		     &(struct fo_draw_lines){ .title = "MFU over the number of devices",
					      .desc = "mfu_causal of each size's own best division, pale lines: 80 % "
						      "intervals",
					      .x_name = "devices",
					      .y_name = "mfu_causal",
					      .y_unit = FO_DRAW_SHARE,
					      .x_log = true,
					      .y_lo = 0,
					      .y_hi = 1,
					      .series = s,
					      .n = n });
}

/* Goodput is the same for both kinds: it depends on the devices alone. */
static void goodput_picture(struct fo_doc *d, const struct fo_scale *x)
{
	double devices[FO_SCALE_SIZES];
	struct fo_goodput g[FO_SCALE_SIZES];
	for (int i = 0; i < x->points; i++) {
		const struct fo_scale_point *p = &x->point[i];
		devices[i] = p->devices;
		g[i] = p->goodput;
		if (p->fit != FO_SCALE_FITS)
			g[i] = (struct fo_goodput){ .share = NAN, .drawn = fo_range(NAN) };
	}
	fo_cli_goodput_picture(d, "Goodput over the number of devices", "devices", devices, g, (size_t)x->points);
}

void fo_cli_scale_picture(struct fo_doc *d, const struct fo_scale *strong, const struct fo_scale *weak)
{
	const struct fo_scale *any = weak && weak->points ? weak : strong;
	fo_doc_only(d, FO_DOC_PAGE);
	mfu_picture(d, strong, weak);
	if (any && any->points)
		goodput_picture(d, any);
	fo_doc_only(d, FO_DOC_BOTH);
}

void fo_cli_scaled_doc(struct fo_doc *d, const struct fo_cli_scaled *s)
{
	fo_doc_title(d, "Scaling: %s", s->planned->asked->job.model.name);
	say_head(d, s);
	fo_cli_scale_picture(d, &s->strong, &s->weak);
	say_sizes(d, s, &s->strong);
	say_sizes(d, s, &s->weak);
	say_notes(d, s);
}

/* ---- JSON ---- */

static void json_plan(struct fo_json *j, const struct fo_plan_point *x)
{
	const struct fo_predict_layout *l = &x->layout;
	fo_json_record(j, "plan", FO_REAL("dp", x->step.dp), FO_REAL("tp", l->tp), FO_REAL("cp", l->cp),
		       FO_REAL("pp", l->pp), FO_REAL("ep", l->ep), FO_REAL("chunks", l->chunks),
		       FO_INT("schedule", l->schedule), FO_REAL("zero", l->zero),
		       FO_REAL("shard", l->shard > 0 ? l->shard : x->step.dp * l->cp),
		       FO_BOOL("sequence_parallel", l->sp), FO_REAL("micro_batch", l->micro_batch),
		       FO_REAL("micro_batches", l->micro_batches), FO_TEXT("recompute", fo_plan_again_id[x->again]),
		       FO_REAL("memory_bytes", x->step.bytes));
}

static void json_point(struct fo_json *j, const struct fo_cli_scaled *s, const struct fo_scale_point *p)
{
	static const char *const fit[] = { [FO_SCALE_FITS] = "fits",
					   [FO_SCALE_TOO_LARGE] = "does not fit",
					   [FO_SCALE_NO_DIVISION] = "no division",
					   [FO_SCALE_NO_BATCH] = "no batch" };
	fo_json_object(j, NULL);
	fo_json_put(j, FO_REAL("devices", p->devices), FO_REAL("per_node", p->per_node), FO_REAL("nodes", p->nodes),
		    FO_REAL("global_batch", p->global_batch), FO_TEXT("fit", fit[p->fit]));
	if (p->fit == FO_SCALE_TOO_LARGE)
		fo_json_put(j, FO_REAL("smallest_bytes", p->smallest_bytes),
			    FO_REAL("smallest_bytes_high", p->smallest_bytes_high));
	if (p->fit == FO_SCALE_FITS) {
		const struct worth w = worth_of(s, p);
		const struct fo_predict_step *x = &p->plan.step;
		fo_json_put(j, FO_BOOL("known", !p->size), FO_TEXT("doubt", p->doubt));
		json_plan(j, &p->plan);
		fo_cli_json_range(j, "step_seconds", x->seconds, p->seconds);
		fo_cli_json_range(j, "tokens_per_second", p->plan.tokens_s, p->tokens_s);
		fo_cli_json_range(j, "mfu_causal", x->mfu_causal, p->mfu_causal);
		fo_json_put(j, FO_REAL("mfu", x->mfu), FO_REAL("speed_over_first", p->speed));
		fo_cli_json_range(j, "goodput", p->goodput.share, p->goodput.drawn);
		fo_json_put(j, FO_REAL("checkpoint_every_seconds", p->goodput.interval_s),
			    FO_REAL("seconds_between_failures", p->goodput.failure_s),
			    FO_REAL("saving_share", p->goodput.saving), FO_REAL("failing_share", p->goodput.failing));
		fo_cli_json_range(j, "kept_tokens_per_second", p->plan.tokens_s * p->goodput.share, p->kept_tokens_s);
		fo_cli_json_range(j, "device_hours_per_billion_tokens", NAN, w.device_hours);
		fo_cli_json_range(j, "usd_per_billion_tokens", NAN, w.cost);
		fo_cli_json_range(j, "kwh_per_billion_tokens", NAN,
				  s->watts_given ? w.kwh : (struct fo_range){ NAN, w.kwh.high });
	}
	fo_json_close(j);
}

static void json_sizes(struct fo_json *j, const struct fo_cli_scaled *s, const struct fo_scale *x, const char *key)
{
	fo_json_array(j, key);
	for (int i = 0; i < x->points; i++)
		json_point(j, s, &x->point[i]);
	fo_json_close(j);
}

void fo_cli_scaled_json(struct fo_json *j, const struct fo_cli_scaled *s)
{
	const struct fo_cli_planned *p = s->planned;
	fo_json_put(j, FO_TEXT("model", p->asked->job.model.name), FO_TEXT("device", p->asked->cluster.device->name),
		    FO_REAL("per_node", s->ask.per_node), FO_TEXT("framework", p->ask.framework->id),
		    FO_REAL("seq", p->job.job.seq), FO_REAL("global_batch", s->ask.plan.global_batch),
		    FO_REAL("of_devices", s->ask.plan.devices), FO_BOOL("net_measured", s->ask.net_measured),
		    FO_INT("published_devices", FO_PREDICT_PUBLISHED_DEVICES),
		    FO_TEXT("rent_from", fo_range_known(s->rent) ? s->rent_from : NULL));
	fo_cli_goodput_json(j, &s->given, &s->ask.goodput);
	json_sizes(j, s, &s->strong, "strong");
	json_sizes(j, s, &s->weak, "weak");
}
