/* Time, money and energy of tokens, as ranges: what flatout price counts, asked by commands that plan. */
#include "cli/cost.h"

#include "cli/predict_cluster.h"

#include <math.h>
#include <string.h>

fo_status fo_cli_cost_range(const char *text, const char *what, double unit, struct fo_range *out)
{
	*out = fo_range(NAN);
	if (!text)
		return FO_OK;
	FO_TRY(fo_range_parse(text, what, out));
	out->low *= unit;
	out->high *= unit;
	return FO_OK;
}

fo_status fo_cli_cost_rent(const char *text, const char *what, const struct fo_device *d, struct fo_range *out,
			   const char **from)
{
	FO_TRY(fo_cli_cost_range(text, what, 1, out));
	*from = text ? "the option" : NULL;
	if (!text && d) {
		*out = (struct fo_range){ d->rent_low, d->rent_high };
		*from = d->rent_note;
	}
	return FO_OK;
}

/* The devices of the catalogue take 1.4 kW at most; with their share of the host less than three times that. */
#define WATTS_MOST 5000.0

fo_status fo_cli_cost_watts(const char *text, struct fo_range *out)
{
	FO_TRY(fo_cli_cost_range(text, "--watts", 1, out));
	if (text && !(out->high > 0))
		return fo_hint(fo_fail(FO_EARG, "--watts is '%s', expected a number above 0", text), "--watts=700");
	if (text && out->high > WATTS_MOST)
		return fo_hint(
			fo_fail(FO_EARG, "--watts is '%s', and %.15g W are the most of one device", text, WATTS_MOST),
			"--watts=700");
	return FO_OK;
}

fo_status fo_cli_cost_read(const struct fo_cli_cost *in, const struct fo_device *d, double watts,
			   struct fo_cli_rates *out)
{
	*out = (struct fo_cli_rates){ .tokens = in->tokens > 0 ? in->tokens : NAN };
	FO_TRY(fo_cli_cost_rent(in->rent, "--rent", d, &out->rent, &out->rent_from));
	FO_TRY(fo_cli_cost_range(in->pue, "--pue", 1, &out->pue));
	FO_TRY(fo_cli_cost_range(in->kwh, "--kwh", 1, &out->kwh));
	if (in->pue && out->pue.low < 1)
		return fo_fail(FO_EARG, "--pue is '%s', expected 1 or more", fo_cli_seen(in->pue));
	if (!in->pue)
		out->pue = fo_range(1);
	double rated = watts > 0 ? watts : d->tdp_w;
	out->watts = rated > 0 ? (struct fo_range){ 0, rated } : fo_range(NAN);
	if (!fo_range_known(out->rent))
		out->rent_from = NULL;
	return FO_OK;
}

void fo_cli_cost_of(const struct fo_cli_rates *r, double devices, struct fo_range tokens_s, struct fo_cli_costs *out)
{
	struct fo_price_tokens_in in = { .devices = devices,
					 .tokens = 1e6,
					 .tokens_s = tokens_s,
					 .rent = r->rent,
					 .watts = r->watts,
					 .pue = r->pue,
					 .kwh = r->kwh };
	fo_price_tokens(&in, &out->million);
	in.tokens = r->tokens;
	fo_price_tokens(&in, &out->all);
}

/* "A to B"; one of them where both read alike. */
static const char *between(struct fo_doc *d, const char *low, const char *high)
{
	return strcmp(low, high) ? fo_doc_printf(d, "%s to %s", low, high) : low;
}

const char *fo_cli_money(struct fo_doc *d, struct fo_range r)
{
	if (!fo_range_known(r))
		return NULL;
	/* Cents of a million tokens are told apart. */
	if (r.high < 1)
		return between(d, fo_doc_printf(d, "$%.3f", r.low), fo_doc_printf(d, "$%.3f", r.high));
	return between(d, fo_doc_num(d, r.low, FO_DRAW_MONEY), fo_doc_num(d, r.high, FO_DRAW_MONEY));
}

const char *fo_cli_days(struct fo_doc *d, struct fo_range r)
{
	if (!fo_range_known(r))
		return NULL;
	if (r.high < 2)
		return fo_cli_range(d, fo_range_scaled(86400, r), FO_DRAW_SECONDS);
	return fo_doc_printf(d, "%.1f to %.1f days", r.low, r.high);
}

/* Three digits or a whole number, rounded up: what is at most v is never above what is printed. */
static const char *rounded_up(struct fo_doc *d, double v)
{
	if (!(v > 0))
		return "0";
	if (v >= 100)
		return fo_doc_printf(d, "%.0f", ceil(v));
	const double unit = pow(10, floor(log10(v)) - 2), up = ceil(v / unit * (1 - 1e-12)) * unit;
	return fo_doc_printf(d, "%.*f", (int)fmax(0, 2 - floor(log10(up) + 1e-9)), up);
}

const char *fo_cli_money_at_most(struct fo_doc *d, struct fo_range r)
{
	if (!fo_range_known(r))
		return NULL;
	if (r.high < 1)
		return fo_doc_printf(d, "at most $%s", rounded_up(d, r.high));
	return fo_doc_printf(d, "at most %s", fo_cli_money(d, fo_range(r.high)));
}

const char *fo_cli_energy(struct fo_doc *d, struct fo_range kwh)
{
	if (!fo_range_known(kwh))
		return NULL;
	if (kwh.high >= 1e6)
		return fo_doc_printf(d, "at most %s GWh", rounded_up(d, kwh.high * 1e-6));
	return fo_doc_printf(d, "at most %s kWh", rounded_up(d, kwh.high));
}

static void json_range(struct fo_json *j, const char *key, struct fo_range r)
{
	fo_json_record(j, key, FO_REAL("low", r.low), FO_REAL("high", r.high));
}

static void json_costs(struct fo_json *j, const char *key, const struct fo_price_tokens *p)
{
	fo_json_object(j, key);
	json_range(j, "days", p->days);
	json_range(j, "usd", p->cost);
	fo_json_put(j, FO_REAL("energy_kwh_at_most", p->energy_kwh.high),
		    FO_REAL("electricity_usd_at_most", p->energy_cost.high));
	fo_json_close(j);
}

void fo_cli_cost_json(struct fo_json *j, const char *key, const struct fo_cli_rates *r, const struct fo_cli_costs *c)
{
	fo_json_object(j, key);
	json_range(j, "rent_usd_per_hour", r->rent);
	fo_json_put(j, FO_TEXT("rent_from", r->rent_from), FO_REAL("watts_at_most", r->watts.high),
		    FO_REAL("tokens", r->tokens));
	json_costs(j, "million_tokens", &c->million);
	json_costs(j, "all_tokens", &c->all);
	fo_json_close(j);
}
