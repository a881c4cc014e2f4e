/* The cost of tokens on devices: options and figures of the commands that plan, by src/price. */
#ifndef FO_CLI_COST_H
#define FO_CLI_COST_H

#include "cli/cli.h"
#include "hw/catalogue.h"
#include "price/price.h"

struct fo_cli_cost {
	double tokens;
	const char *rent, *pue, *kwh;
};
/* Rows of a table whose struct S has a `struct fo_cli_cost` called `cost`. */
#define FO_CLI_COST_ROWS(S, group)                                                                                \
	FO_OPT_REAL(S, cost.tokens, group ".tokens", "D", NULL, 1, 1e18, "tokens",                                \
		    "that are trained on in all, for time and cost: 15T"),                                        \
		FO_OPT_TEXT(S, cost.rent, group ".rent", "R", NULL,                                               \
			    "USD per device and hour: 2.5, or 2..3; not given: the catalogue's range"),           \
		FO_OPT_TEXT(S, cost.pue, group ".pue", "F", NULL,                                                 \
			    "power of the building over that of the devices: 1.2; not given: the devices alone"), \
		FO_OPT_TEXT(S, cost.kwh, group ".kwh", "C", NULL, "USD per kWh, for the price of electricity")

/* The same as numbers. */
struct fo_cli_rates {
	double tokens; /* NAN: not said */
	struct fo_range rent, pue, kwh;
	struct fo_range watts; /* 0 to the rated power of a device: what it draws is not known */
	const char *rent_from; /* NULL: no rent is known */
};
/* Reads "2.5" or "2..3" times `unit`; NULL: unknown. */
FO_CHECKED fo_status fo_cli_cost_range(const char *text, const char *what, double unit, struct fo_range *out);
/* A rent from the text of the option `what`, else the catalogue's range (d may be NULL). */
FO_CHECKED fo_status fo_cli_cost_rent(const char *text, const char *what, const struct fo_device *d,
				      struct fo_range *out, const char **from);
/* watts: the power limit of a device; 0: its rated power. */
FO_CHECKED fo_status fo_cli_cost_read(const struct fo_cli_cost *in, const struct fo_device *d, double watts,
				      struct fo_cli_rates *out);
/* A million tokens, and all that are trained on (unknown where nobody says how many). */
struct fo_cli_costs {
	struct fo_price_tokens million, all;
};
void fo_cli_cost_of(const struct fo_cli_rates *r, double devices, struct fo_range tokens_s, struct fo_cli_costs *out);

/* "$2.10 to $3.40"; NULL: not known. */
const char *fo_cli_money(struct fo_doc *d, struct fo_range r);
const char *fo_cli_money_at_most(struct fo_doc *d, struct fo_range r); /* "at most $3.40"; NULL */
/* "31.2 to 40.1 days", "3.10 to 3.90 h"; NULL: not known. */
const char *fo_cli_days(struct fo_doc *d, struct fo_range r);
/* An upper bound of energy: "at most 12.3 kWh"; NULL: not known. */
const char *fo_cli_energy(struct fo_doc *d, struct fo_range kwh);
void fo_cli_cost_json(struct fo_json *j, const char *key, const struct fo_cli_rates *r, const struct fo_cli_costs *c);

#endif
