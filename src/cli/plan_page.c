/* The pictures of a plan's page: where all divisions lie, what the best one loses, what it does when. */
#include "cli/scale.h"

#include "plan/landscape.h"

#include <math.h>
#include <string.h>

/* A division that needs half as much memory again is far from any use: it is counted and not drawn. */
#define MEMORY_SHOWN 1.5
/* The grid's upper edge over the best MFU: divisions that do not fit may be faster. */
#define MFU_SHOWN 1.25

static enum fo_draw_point_mark mark_of(const struct fo_plan_place *x, const struct fo_plan *plan)
{
	if (!x->fits)
		return FO_DRAW_POINT_HOLLOW;
	return fo_plan_ties(plan, x->seconds) ? FO_DRAW_POINT_RING : FO_DRAW_POINT_PLAIN;
}

static void landscape(struct fo_doc *d, const struct fo_cli_planned *p)
{
	const struct fo_plan_point *named = &p->plan.point[p->plan.named];
	const struct fo_predict_machine *m = &p->ask.base.job.machine;
	struct fo_plan_landscape o;
	fo_plan_landscape_of(&o, &p->ask, MEMORY_SHOWN * m->memory_bytes, MFU_SHOWN * p->plan.point[0].step.mfu_causal);
	struct fo_draw_point *point = fo_doc_alloc(d, (o.places + 1) * sizeof *point);
	for (size_t i = 0; i < o.places; i++)
		point[i] = (struct fo_draw_point){ o.place[i].bytes, o.place[i].mfu_causal, (int)o.place[i].kind,
						   mark_of(&o.place[i], &p->plan) };
	point[o.places] = (struct fo_draw_point){ named->step.bytes, named->step.mfu_causal,
						  (int)fo_plan_kind_of(&named->layout), FO_DRAW_POINT_CHOSEN };
	struct fo_draw_points c = {
		.title = "All divisions: MFU against memory",
		.desc = "Each point is a division of the devices. The higher, the faster; left of the line a device "
			"has the memory for it.",
		.x_name = "memory of the fullest device",
		.y_name = "mfu_causal",
		.x_unit = FO_DRAW_BYTES,
		.y_unit = FO_DRAW_SHARE,
		.mark_name = { [FO_DRAW_POINT_HOLLOW] = "hollow: does not fit",
			       [FO_DRAW_POINT_RING] = "ring: ties with the fastest",
			       [FO_DRAW_POINT_CHOSEN] = "two rings: what to take" },
		.point = point,
		.n = o.places + 1,
		.limit = m->memory_bytes,
		.limit_name = fo_doc_printf(d, "memory of a device: %s", fo_doc_num(d, m->memory_bytes, FO_DRAW_BYTES)),
	};
	for (int k = 0; k < FO_PLAN_KINDS; k++)
		c.kind_name[k] = fo_plan_kind_name[k];
	const char *beyond = o.beyond ? fo_doc_printf(d, "%lld of them need more than %s and lie outside. ",
						      (long long)o.beyond, fo_doc_num(d, o.memory_most, FO_DRAW_BYTES))
				      : "";
	c.remark = fo_doc_printf(
		d,
		"Drawn are %zu of %lld legal divisions: of each kind, and of those that fit and those "
		"that do not, the fastest in each 1/%d by 1/%d of the picture. %sA division fits where "
		"the most that it may take does, so some left of the line do not.",
		o.places, (long long)o.divisions, FO_PLAN_COLUMNS, FO_PLAN_ROWS, beyond);
	fo_plan_landscape_fini(&o);
	fo_doc_heading(d, "Where the divisions lie");
	fo_doc_points(d, &c);
}

static void timeline(struct fo_doc *d, const struct fo_cli_planned *p)
{
	const struct fo_plan_point *x = &p->plan.point[p->plan.named];
	struct fo_plan_timeline t;
	fo_doc_heading(d, "What a step does when");
	if (fo_plan_timeline_of(&t, &x->layout, &x->step) != FO_OK) {
		fo_doc_remark(d, "No timeline: %s.", fo_err_text());
		fo_err_clear();
		return;
	}
	fo_cli_timeline_lanes(d, p->asked->job.model.name, &t);
	fo_plan_timeline_fini(&t);
}

/* Sizes up to this many times the cluster's, and down to it: those that somebody who plans this one could have. */
enum { SIZES_AROUND = 16 };

/* MFU and goodput on smaller and larger clusters of the same nodes, each with the best plan of its own. */
static void scaling(struct fo_doc *d, const struct fo_cli_planned *p)
{
	struct fo_scale *of = fo_xmalloc(2 * sizeof *of);
	struct fo_scale_asked a;
	double size[FO_SCALE_SIZES];
	fo_cli_scale_ask(p, &a);
	a.goodput = (struct fo_goodput_in){ .failures = FO_GOODPUT_FAILURES,
					    .save_s = FO_GOODPUT_SAVE_S,
					    .restart_s = FO_GOODPUT_RESTART_S,
					    .days = FO_GOODPUT_DAYS };
	for (int i = 0, n = fo_scale_sizes(size); i < n; i++)
		if (size[i] * SIZES_AROUND >= p->ask.devices && size[i] <= SIZES_AROUND * p->ask.devices)
			a.size[a.sizes++] = size[i];
	fo_doc_heading(d, "On smaller and larger clusters");
	fo_status st = a.sizes ? fo_scale_of(&of[0], &a) : fo_fail(FO_EARG, "no other size is near");
	a.weak = true;
	if (st == FO_OK)
		st = fo_scale_of(&of[1], &a);
	if (st == FO_OK)
		fo_cli_scale_picture(d, &of[0], &of[1]);
	else
		fo_doc_remark(d, "No curves: %s.", fo_err_text());
	fo_doc_only(d, FO_DOC_PAGE);
	if (st == FO_OK)
		fo_doc_remark(d, "'flatout scale' has the figures, and says what they rest on.");
	fo_err_clear();
	free(of);
}

void fo_cli_planned_pictures(struct fo_doc *d, const struct fo_cli_planned *p)
{
	fo_doc_only(d, FO_DOC_PAGE);
	landscape(d, p);
	fo_doc_heading(d, "What the step loses against the peak");
	fo_cli_losses(d, &p->plan.point[p->plan.named].step);
	timeline(d, p);
	scaling(d, p);
	fo_doc_only(d, FO_DOC_BOTH);
}

/* ---- cost ---- */

static void cost_row(struct fo_doc *d, const char *what, const char *million, const char *all, bool has_all)
{
	if (!million)
		return;
	if (has_all)
		fo_doc_row(d, what, million, all ? all : "-");
	else
		fo_doc_row(d, what, million);
}

void fo_cli_planned_costs(const struct fo_cli_planned *p, struct fo_cli_costs *c)
{
	double work = p->ask.global_batch * p->job.job.seq;
	const struct fo_range *step = &p->named_sure.seconds;
	fo_cli_cost_of(&p->rates, p->ask.devices, (struct fo_range){ work / step->high, work / step->low }, c);
}

void fo_cli_planned_cost(struct fo_doc *d, const struct fo_cli_planned *p)
{
	const struct fo_cli_rates *r = &p->rates;
	struct fo_cli_costs c;
	fo_cli_planned_costs(p, &c);
	bool all = isfinite(r->tokens);
	fo_doc_heading(d, "What it costs");
	if (all)
		fo_doc_table(d, FO_DRAW_FITTED, NULL, "lrr", "", "a million tokens",
			     fo_doc_si(d, r->tokens, " tokens"));
	else
		fo_doc_table(d, FO_DRAW_SLIM, NULL, "lr", "", "a million tokens");
	cost_row(d, "time", fo_cli_days(d, c.million.days), fo_cli_days(d, c.all.days), all);
	cost_row(d, "rent", fo_cli_money(d, c.million.cost), fo_cli_money(d, c.all.cost), all);
	cost_row(d, "electricity", fo_cli_energy(d, c.million.energy_kwh), fo_cli_energy(d, c.all.energy_kwh), all);
	cost_row(d, "its price", fo_cli_money_at_most(d, c.million.energy_cost),
		 fo_cli_money_at_most(d, c.all.energy_cost), all);
	const char *rent = r->rent_from ? fo_doc_printf(d, "Rent: %s per device-hour (%s). ", fo_cli_money(d, r->rent),
							r->rent_from)
					: "No rent is known of this device: --rent gives it. ";
	const char *watts = fo_range_known(r->watts) ? fo_doc_printf(d,
								     "Electricity: at most the rated %g W of each "
								     "device, of which training draws less. ",
								     r->watts.high)
						     : "";
	fo_doc_remark(d, "%s%sThe ranges hold the interval of the step's time and that of the rent%s.", rent, watts,
		      all ? "" : "; --tokens=15T adds a whole run");
}
