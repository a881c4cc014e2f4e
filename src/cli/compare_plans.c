/* flatout compare on plans and clusters: speed at the MFU that is predicted, money and energy, and what is a tie. */
#include "cli/compare_plans.h"

#include "base/fs.h"
#include "cli/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is beside what ---- */

struct figures {
	struct fo_range tokens_s, mfu;
	double tokens_mid;
	struct fo_cli_costs cost;
};

static void figures_of(const struct fo_cli_side *s, struct figures *f)
{
	f->tokens_s = fo_plan_file_tokens_s(&s->plan);
	f->tokens_mid = s->plan.global_batch * s->plan.seq / s->plan.best[0].seconds;
	f->mfu = fo_plan_file_mfu(&s->plan);
	fo_cli_cost_of(&s->rates, s->plan.devices, f->tokens_s, &f->cost);
}

/* The speed of b over that of a: their errors count as independent, so that the interval is rather too wide. */
static struct fo_range speed_over(const struct figures *b, const struct figures *a, double *mid)
{
	double up = hypot(log(b->tokens_s.high / b->tokens_mid), log(a->tokens_mid / a->tokens_s.low)),
	       down = hypot(log(b->tokens_mid / b->tokens_s.low), log(a->tokens_s.high / a->tokens_mid));
	*mid = b->tokens_mid / a->tokens_mid;
	return (struct fo_range){ *mid * exp(-down), *mid * exp(up) };
}

/* The rent of a token of b over that of a, not known of a rent of 0. One device at one rent costs both the same,
 * whatever that is: it cancels. */
static struct fo_range cost_over(const struct fo_cli_side *b, const struct fo_cli_side *a, struct fo_range speed)
{
	const struct fo_range x = a->rates.rent, y = b->rates.rent;
	if (!(x.low > 0 && y.low > 0))
		return fo_range(NAN);
	const bool same = !strcmp(a->plan.device, b->plan.device) && x.low == y.low && x.high == y.high;
	const struct fo_range rent = same ? fo_range(1) : fo_range_over(y, x);
	return fo_range_over(fo_range_scaled(b->plan.devices / a->plan.devices, rent), speed);
}

static bool holds_one(struct fo_range r) { return r.low <= 1 && r.high >= 1; }

/* ---- words ---- */

/* "119 to 163 ktok/s" */
static const char *rate_text(struct fo_doc *d, struct fo_range r)
{
	const char *low = fo_doc_si(d, r.low, "tok/s"), *high = fo_doc_si(d, r.high, "tok/s");
	const char *a = strchr(low, ' '), *b = strchr(high, ' ');
	if (a && b && !strcmp(a, b))
		return fo_doc_printf(d, "%.*s to %s", (int)(a - low), low, high);
	return fo_doc_printf(d, "%s to %s", low, high);
}

static const char *percent_text(struct fo_doc *d, struct fo_range r)
{
	return fo_doc_printf(d, "%.1f to %.1f %%", 100 * r.low, 100 * r.high);
}

static const char *division_text(struct fo_doc *d, const struct fo_plan_file_point *p)
{
	struct fo_division x;
	fo_plan_file_division(p, &x);
	return fo_cli_division(d, &x, true);
}

/* A text of a file; NULL: it has none. */
static const char *said(const char *text) { return text && *text ? text : NULL; }

static const char *letter(struct fo_doc *d, int i) { return fo_doc_printf(d, "%c", 'A' + i); }

/* ---- text and page ---- */

static void say_speed(struct fo_doc *d, const struct figures *f, int i)
{
	double mid;
	struct fo_range r = speed_over(&f[i], &f[0], &mid);
	if (holds_one(r))
		fo_doc_verdict(d, FO_DOC_PLAIN, "speed",
			       "%s against A: %.2f x the tokens/s (%.2f to %.2f), which is a tie: the interval holds 1",
			       letter(d, i), mid, r.low, r.high);
	else
		fo_doc_verdict(d, FO_DOC_GOOD, "speed", "%s is %s than A: %.2f x the tokens/s (%.2f to %.2f)",
			       letter(d, i), mid > 1 ? "faster" : "slower", mid, r.low, r.high);
}

static void say_money(struct fo_doc *d, const struct fo_cli_plans *x, const struct figures *f, int i)
{
	double mid;
	const struct fo_range r = cost_over(&x->side[i], &x->side[0], speed_over(&f[i], &f[0], &mid));
	const bool rents = fo_range_known(x->side[0].rates.rent) && fo_range_known(x->side[i].rates.rent);
	if (!rents)
		fo_doc_line(d, "cost", "%s against A: not known, for want of a rent (--rent)", letter(d, i));
	else if (!fo_range_known(r))
		fo_doc_line(d, "cost", "%s against A: not compared, for a rent of 0 has no ratio", letter(d, i));
	else if (holds_one(r))
		fo_doc_line(d, "cost",
			    "%s against A: a tie: %.2f to %.2f x the rent of a token, by what is known of both",
			    letter(d, i), r.low, r.high);
	else
		fo_doc_verdict(d, FO_DOC_GOOD, "cost", "%s is %s than A: %.2f to %.2f x the rent of a token",
			       letter(d, i), r.high < 1 ? "cheaper" : "dearer", r.low, r.high);
}

enum { DEVICES, DIVISION, STEP, SPEED, EACH, MFU, TYPE, MEMORY, MILLION, DAYS, ALL, ENERGY, POWER, ROWS };
static const char *const row_name[ROWS] = {
	[DEVICES] = "devices",
	[DIVISION] = "division",
	[STEP] = "step",
	[SPEED] = "tokens/s",
	[EACH] = "of a device",
	[MFU] = "mfu_causal",
	[TYPE] = "of the peak",
	[MEMORY] = "memory",
	[MILLION] = "rent, 1 M tokens",
	[DAYS] = "time",
	[ALL] = "rent",
	[ENERGY] = "energy, 1 M tokens",
	[POWER] = "electricity, 1 M",
};

static void cells_of(struct fo_doc *d, const struct fo_cli_side *s, const struct figures *f, const char *cell[ROWS])
{
	const struct fo_plan_file *p = &s->plan;
	const struct fo_plan_file_point *b = p->best;
	const struct fo_cli_costs *c = &f->cost;
	cell[DEVICES] = fo_doc_printf(d, "%.15g x %s", p->devices, p->device);
	cell[DIVISION] = division_text(d, b);
	cell[STEP] = fo_cli_range(d, (struct fo_range){ b->seconds_low, b->seconds_high }, FO_DRAW_SECONDS);
	cell[SPEED] = rate_text(d, f->tokens_s);
	cell[EACH] = rate_text(d, fo_range_scaled(1 / p->devices, f->tokens_s));
	cell[MFU] = fo_doc_printf(d, "%s%s", percent_text(d, f->mfu), fo_cli_mark(p->size));
	cell[TYPE] = fo_doc_printf(d, "%s/s (%s)", fo_doc_si(d, p->peak_flop_s, "FLOP"), p->type);
	cell[MEMORY] = fo_doc_num(d, b->bytes, FO_DRAW_BYTES);
	cell[MILLION] = fo_cli_money(d, c->million.cost);
	cell[DAYS] = fo_cli_days(d, c->all.days);
	cell[ALL] = fo_cli_money(d, c->all.cost);
	cell[ENERGY] = fo_cli_energy(d, c->million.energy_kwh);
	cell[POWER] = fo_cli_money_at_most(d, c->million.energy_cost);
}

/* The sides of these places. A row that no side knows is left out. */
static void say_table(struct fo_doc *d, const struct fo_cli_plans *x, const struct figures *f, const int *place, int n)
{
	static const char align[] = "lrrrr";
	const char *cell[FO_CLI_SIDES][ROWS], *head[1 + FO_CLI_SIDES] = { "" };
	const char *all = fo_doc_si(d, x->side[0].rates.tokens, " tokens");
	char *of = fo_doc_alloc(d, sizeof align);
	for (int i = 0; i < n; i++) {
		cells_of(d, &x->side[place[i]], &f[place[i]], cell[i]);
		head[1 + i] = letter(d, place[i]);
	}
	memcpy(of, align, (size_t)n + 1);
	fo_doc_table_of(d, FO_DRAW_FULL, NULL, of, (struct fo_cells){ head, (size_t)n + 1 });
	for (int r = 0; r < ROWS; r++) {
		const char *row[1 + FO_CLI_SIDES] = { row_name[r] };
		bool any = false;
		if (r == DAYS || r == ALL)
			row[0] = fo_doc_printf(d, "%s, %s", row_name[r], all);
		for (int i = 0; i < n; i++) {
			any |= cell[i][r] != NULL;
			row[1 + i] = cell[i][r] ? cell[i][r] : "not known";
		}
		if (any)
			fo_doc_cells(d, NULL, (struct fo_cells){ row, (size_t)n + 1 });
	}
}

/* A terminal has room for two sides: there each stands beside the first. */
static void say_tables(struct fo_doc *d, const struct fo_cli_plans *x, const struct figures *f)
{
	static const int all[FO_CLI_SIDES] = { 0, 1, 2, 3 };
	if (x->sides == 2) {
		say_table(d, x, f, all, 2);
		return;
	}
	fo_doc_only(d, FO_DOC_PAGE);
	say_table(d, x, f, all, x->sides);
	fo_doc_only(d, FO_DOC_TERM);
	for (int i = 1; i < x->sides; i++) {
		fo_doc_heading(d, "A and %c", 'A' + i);
		say_table(d, x, f, (const int[]){ 0, i }, 2);
	}
	fo_doc_only(d, FO_DOC_BOTH);
}

static void picture(struct fo_doc *d, const struct fo_cli_plans *x, const char *title, const char *desc,
		    enum fo_draw_unit unit, const struct fo_range *r, const char *const *value)
{
	struct fo_draw_bar_row *row = fo_doc_alloc(d, (size_t)x->sides * sizeof *row);
	for (int i = 0; i < x->sides; i++)
		row[i] = (struct fo_draw_bar_row){
			.name = fo_doc_printf(d, "%c: %.15g x %s", 'A' + i, x->side[i].plan.devices,
					      x->side[i].plan.device),
			.value = value[i] ? value[i] : "not known",
			.bar = { { fo_range_known(r[i]) ? sqrt(r[i].low * r[i].high) : NAN, r[i].low, r[i].high },
				 { NAN, NAN, NAN } },
		};
	const struct fo_draw_bars c = {
		.title = title, .desc = desc, .unit = unit, .lo = 0, .hi = 0, .row = row, .rows = (size_t)x->sides
	};
	fo_doc_bars(d, &c);
}

static void pictures(struct fo_doc *d, const struct fo_cli_plans *x, const struct figures *f)
{
	struct fo_range speed[FO_CLI_SIDES], mfu[FO_CLI_SIDES], cost[FO_CLI_SIDES];
	const char *speeds[FO_CLI_SIDES], *mfus[FO_CLI_SIDES], *costs[FO_CLI_SIDES];
	for (int i = 0; i < x->sides; i++) {
		speed[i] = f[i].tokens_s;
		mfu[i] = f[i].mfu;
		cost[i] = f[i].cost.million.cost;
		speeds[i] = rate_text(d, speed[i]);
		mfus[i] = percent_text(d, mfu[i]);
		costs[i] = fo_cli_money(d, cost[i]);
	}
	fo_doc_only(d, FO_DOC_PAGE);
	picture(d, x, "Tokens/s of all devices", "Whiskers: the 80 % interval of the step's time.", FO_DRAW_NUMBER,
		speed, speeds);
	picture(d, x, "MFU, causal, of each one's own peak", "Whiskers: the same interval.", FO_DRAW_SHARE, mfu, mfus);
	picture(d, x, "Rent of a million tokens, USD",
		"Whiskers: from the fast end at the lowest rent to the slow end at the highest.", FO_DRAW_DOLLARS, cost,
		costs);
	fo_doc_only(d, FO_DOC_BOTH);
}

static void say_notes(struct fo_doc *d, const struct fo_cli_plans *x)
{
	const struct fo_plan_file *a = &x->side[0].plan;
	for (int i = 1; i < x->sides; i++) {
		const struct fo_plan_file *b = &x->side[i].plan;
		if (a->global_batch * a->seq != b->global_batch * b->seq)
			fo_doc_line(d, "note", "a step of A has %.15g tokens, one of %s has %.15g",
				    a->global_batch * a->seq, letter(d, i), b->global_batch * b->seq);
		if (strcmp(a->type, b->type))
			fo_doc_line(d, "note", "A multiplies in %s, %s in %s: their MFU have different peaks", a->type,
				    letter(d, i), b->type);
	}
	for (int i = 0; i < x->sides; i++)
		if (x->side[i].rates.rent_from)
			fo_doc_item(d, "rent of %s: %s per device-hour (%s)", letter(d, i),
				    fo_cli_money(d, x->side[i].rates.rent), x->side[i].rates.rent_from);
	fo_doc_para(d, "Divisions: %s.", fo_division_legend);
	fo_doc_remark(
		d,
		"Predicted, each with its own best division; nothing was measured there. Energy: at most the rated "
		"power of every device. Where both sides have one device at one rent, the rent cancels. Other "
		"errors that both share are counted twice, so that ties are rather too many than too few.%s",
		isnan(x->side[0].rates.tokens) ? " --tokens=15T adds a whole run." : "");
}

static void document(struct fo_doc *d, const struct fo_cli_plans *x, const struct figures *f)
{
	const struct fo_plan_file *a = &x->side[0].plan;
	fo_doc_title(d, "Plans beside each other: %s", a->model);
	fo_doc_line(d, "model", "%s, sequences of %.15g tokens", a->model, a->seq);
	for (int i = 0; i < x->sides; i++) {
		fo_doc_line(d, letter(d, i), "%s", x->side[i].name);
		fo_cli_say_doubts(d, letter(d, i), x->side[i].plan.doubt, x->side[i].plan.size);
	}
	for (int i = 1; i < x->sides; i++) {
		say_speed(d, f, i);
		say_money(d, x, f, i);
	}
	pictures(d, x, f);
	say_tables(d, x, f);
	say_notes(d, x);
}

/* ---- JSON ---- */

static void write_json(struct fo_json *j, const struct fo_cli_plans *x, const struct figures *f)
{
	fo_json_put(j, FO_TEXT("of", "plans"), FO_TEXT("model", x->side[0].plan.model),
		    FO_REAL("seq", x->side[0].plan.seq));
	fo_json_array(j, "sides");
	for (int i = 0; i < x->sides; i++) {
		const struct fo_plan_file *p = &x->side[i].plan;
		double mid;
		struct fo_range speed = speed_over(&f[i], &f[0], &mid);
		struct fo_range cost = cost_over(&x->side[i], &x->side[0], speed);
		fo_json_object(j, NULL);
		fo_json_put(j, FO_TEXT("name", x->side[i].name), FO_TEXT("device", p->device),
			    FO_REAL("devices", p->devices), FO_TEXT("type", p->type),
			    FO_REAL("global_batch", p->global_batch), FO_REAL("peak_flop_s", p->peak_flop_s),
			    FO_TEXT("doubt", said(p->doubt)), FO_TEXT("size_doubt", said(p->size)));
		fo_cli_json_range(j, "step_seconds", p->best[0].seconds,
				  (struct fo_range){ p->best[0].seconds_low, p->best[0].seconds_high });
		fo_cli_json_range(j, "tokens_per_second", f[i].tokens_mid, f[i].tokens_s);
		fo_cli_json_range(j, "mfu_causal", p->best[0].mfu_causal, f[i].mfu);
		fo_cli_cost_json(j, "cost", &x->side[i].rates, &f[i].cost);
		fo_cli_json_range(j, "speed_over_first", mid, i ? speed : fo_range(1));
		fo_json_bool(j, "speed_ties", !i || holds_one(speed));
		fo_cli_json_range(j, "cost_over_first", NAN, i ? cost : fo_range(1));
		if (i && !fo_range_known(cost))
			fo_json_real(j, "cost_ties", NAN); /* null */
		else
			fo_json_bool(j, "cost_ties", !i || holds_one(cost));
		fo_json_close(j);
	}
	fo_json_close(j);
}

static fo_status show(const struct fo_cli_call *call, struct fo_cli_plans *x)
{
	struct figures f[FO_CLI_SIDES];
	for (int i = 0; i < x->sides; i++) {
		figures_of(&x->side[i], &f[i]);
		if (!fo_plan_file_same_model(&x->side[i].plan, &x->side[0].plan))
			return fo_fail(FO_EARG, "'%s' trains %s and '%s' trains %s: their tokens are not alike",
				       x->side[0].name, fo_plan_file_model(&x->side[0].plan, &x->arena),
				       x->side[i].name, fo_plan_file_model(&x->side[i].plan, &x->arena));
		if (x->side[i].plan.seq != x->side[0].plan.seq)
			return fo_fail(
				FO_EARG,
				"'%s' has sequences of %.15g tokens and '%s' of %.15g: a token of one is more work "
				"than one of the other",
				x->side[0].name, x->side[0].plan.seq, x->side[i].name, x->side[i].plan.seq);
	}
	struct fo_doc page = { 0 }, *d = call->json || (x->html && !strcmp(x->html, "-")) ? &page : call->doc;
	if (!call->json || x->html)
		document(d, x, f);
	if (call->json)
		write_json(call->json, x, f);
	fo_status st = x->html ? fo_cli_page(d, x->html) : FO_OK;
	fo_doc_fini(&page);
	return st;
}

/* Reads what side i costs: of several rents, parted by commas, its own. */
static fo_status side_rates(struct fo_cli_plans *x, const struct fo_cli_cost *cost, int i, int sides,
			    const struct fo_device *d, double watts)
{
	struct fo_cli_cost own = *cost;
	char *list = cost->rent ? fo_arena_strdup(&x->arena, cost->rent) : NULL;
	int n = 1;
	for (const char *p = list; p && *p; p++)
		n += *p == ',';
	if (list && n > 1 && n != sides)
		return fo_hint(fo_fail(FO_EARG, "--rent has %d rents for %d plans", n, sides),
			       "one for all, or one for each: --rent=2..3,4..5");
	for (int k = 0; list && n > 1 && k <= i; k++)
		own.rent = strsep(&list, ",");
	return fo_cli_cost_read(&own, d, watts, &x->side[i].rates);
}

/* ---- two files ---- */

fo_status fo_cli_are_plans(const char *const path[2], bool *are)
{
	bool a = fo_plan_file_here(path[0]), b = fo_plan_file_here(path[1]);
	*are = a && b;
	if (a == b)
		return FO_OK;
	*are = !fo_fs_exists(path[a]); /* told when it is read */
	if (*are)
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG, "'%s' is a plan and '%s' is none", path[b], path[a]),
		       "compare two plans, two runs, or two traces");
}

fo_status fo_cli_compare_plan_files(const struct fo_cli_call *call, const char *const path[2],
				    const struct fo_cli_cost *cost, const char *html)
{
	struct fo_cli_plans x = { .sides = 2, .html = html };
	fo_status st = fo_catalogue_load(&x.catalogue, NULL);
	for (int i = 0; i < 2 && st == FO_OK; i++) {
		const struct fo_device *d;
		x.side[i].name = path[i];
		st = fo_plan_file_read(&x.side[i].plan, path[i], &x.arena);
		if (st == FO_OK)
			st = fo_catalogue_find(&x.catalogue, x.side[i].plan.device, &d);
		if (st == FO_OK)
			st = side_rates(&x, cost, i, 2, d, 0);
	}
	if (st == FO_OK)
		st = show(call, &x);
	fo_catalogue_fini(&x.catalogue);
	fo_arena_fini(&x.arena);
	return st;
}

/* ---- clusters ---- */

struct compare_clusters {
	struct fo_cli_job job;
	struct fo_cli_cost cost;
	const char *clusters, *fix, *html, *json;
	bool force;
};
static const struct fo_opt rows[] = {
	FO_OPT_TEXT(struct compare_clusters, clusters, "compare.clusters", "C,C,...", NULL,
		    "two to four clusters, each as --cluster of 'flatout plan' names one"),
	FO_OPT_TEXT(struct compare_clusters, fix, "compare.fix", "NAME=N,...", NULL,
		    "what is not searched: tp=8,pp=4; an option of that name does the same"),
	FO_CLI_COST_ROWS(struct compare_clusters, "compare"),
	FO_CLI_JOB_ROWS(struct compare_clusters, "compare"),
	FO_OPT_OUTPUT(struct compare_clusters, html, "compare.html", "FILE", NULL, "a page", FO_OUTPUT_PAGE),
	FO_CLI_OUTPUT_ROWS(struct compare_clusters, "compare", "JSON on standard output"),
};

/* Plans the job on one cluster; the record's text is copied, for the plan goes away. */
static fo_status plan_side(const struct fo_cli_call *call, const char *cluster, int sides, struct fo_cli_plans *x)
{
	const struct compare_clusters *in = call->in;
	struct fo_cli_side *s = &x->side[x->sides];
	struct fo_cli_asked a;
	struct fo_cli_planned *p = fo_xmalloc(sizeof *p);
	struct fo_plan_file_point *point = fo_xmalloc(FO_PLAN_SHOWN * sizeof *point);
	struct fo_cli_job job = in->job;
	*p = (struct fo_cli_planned){ .asked = &a };
	job.cluster = cluster;
	fo_status st = fo_cli_plan_read(call, &job, in->fix, NULL, p);
	if (st == FO_OK)
		st = side_rates(x, &in->cost, x->sides, sides, a.cluster.device, job.watts);
	if (st == FO_OK && p->ask.framework->executes)
		p->ask.programs = fo_plan_programs_new();
	if (st == FO_OK)
		st = fo_plan_search(&p->plan, &p->ask);
	fo_plan_programs_free(p->ask.programs);
	p->ask.programs = NULL;
	if (st == FO_ENOMEM)
		st = fo_hint(fo_fail(FO_ENOMEM, "%s fits on '%s' in none of %lld division%s", a.job.model.name, cluster,
				     (long long)p->plan.legal, fo_plural(p->plan.legal)),
			     "'flatout plan' says how many devices hold it");
	if (st == FO_OK) {
		fo_predict_certainty_of(&p->ask.base, &p->plan.point[p->plan.named].layout,
					&p->plan.point[p->plan.named].step, &p->named_sure);
		fo_cli_planned_file(p, point, &s->plan);
		s->plan.points = 0;
		s->plan.model = fo_arena_strdup(&x->arena, s->plan.model);
		s->plan.device = fo_arena_strdup(&x->arena, s->plan.device);
		if (s->rates.rent_from)
			s->rates.rent_from = fo_arena_strdup(&x->arena, s->rates.rent_from);
		s->name = cluster;
		x->sides++;
	}
	free(point);
	free(p);
	fo_cli_job_fini(&a);
	return st;
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct compare_clusters *in = call->in;
	struct fo_cli_plans x = { .html = in->html };
	fo_status st = FO_OK;
	if (in->job.cluster)
		return fo_cli_contradict("--cluster and --clusters both say where the job runs");
	char *list = fo_arena_strdup(&x.arena, in->clusters ? in->clusters : ""), *rest = list;
	int n = *list != 0;
	for (const char *p = list; *p; p++)
		n += *p == ',';
	if (n < 2 || n > FO_CLI_SIDES)
		st = fo_hint(fo_fail(FO_EARG, "--clusters names %d cluster%s, expected two to %d", n, fo_plural(n),
				     FO_CLI_SIDES),
			     "--clusters=16xHGX-H100,16xHGX-B200");
	for (int i = 0; i < n && st == FO_OK; i++)
		st = plan_side(call, strsep(&rest, ","), n, &x);
	if (st == FO_OK)
		st = show(call, &x);
	fo_arena_fini(&x.arena);
	return st;
}

const struct fo_command fo_cmd_compare_clusters = {
	.name = "compare clusters",
	.group = "plan",
	.usage = "flatout compare --clusters C,C --model M --seq S --global-batch N [--tokens D] "
		 "[--html FILE] [--json]\n"
		 "flatout compare --clusters C,C CONFIG... [...]",
	.summary = "one job on several clusters: speed, MFU, price, energy, as ranges",
	.text = "Plans the job on each cluster, with the best division of each, and puts side by side what is "
		"predicted: tokens/s, MFU, memory, and what tokens cost in time, rent and energy. Every figure is a "
		"range, and what "
		"the ranges do not tell apart is called a tie. --clusters anywhere behind 'compare' chooses this "
		"command; 'flatout compare A.json B.json' compares two plans that 'flatout plan --json' wrote.\n\n"
		"  flatout compare --clusters 16xHGX-H100,16xHGX-B200 --model llama-3.1-70b \\\n"
		"      --seq 8192 --global-batch 512 --tokens 15T\n",
	.opts = rows,
	.act = run,
	.size = sizeof(struct compare_clusters),
	.most = FO_CLI_ANY,
};
