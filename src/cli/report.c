/* flatout report: a run directory as text and as a page. */
#include "cli/cli.h"

#include "base/fs.h"
#include "draw/draw.h"
#include "report/run.h"

#include <math.h>
#include <string.h>

struct report {
	const char *html;
	const char *json;
	bool force;
};

static const struct fo_opt rows[] = { FO_OPT_OUTPUT(struct report, html, "report.html", "FILE", NULL,
						    "where the page goes; default: report.html in the run directory",
						    FO_OUTPUT_PAGE),
				      FO_OPT_JSON(struct report, json, "report.json", "JSON on standard output"),
				      FO_OPT_FORCE(struct report, force, "report.force"), FO_OPT_END };

enum { PHASES_SHOWN = 8, GUARDS_SHOWN = 5, RULES = FO_STEP_HFU - FO_STEP_MFU + 1 };

static char *si(struct fo_arena *a, double v, const char *unit)
{
	char buf[32];
	return fo_arena_strdup(a, isfinite(v) ? fo_str_si(buf, v, unit) : "?");
}

static char *seconds(struct fo_arena *a, double v)
{
	char buf[32];
	return fo_arena_strdup(a, isfinite(v) ? fo_draw_number(buf, v, FO_DRAW_SECONDS) : "?");
}

static char *bytes(struct fo_arena *a, double v)
{
	char buf[32];
	return fo_arena_strdup(a, isfinite(v) ? fo_str_bytes(buf, v) : "?");
}

static void print_steps(struct fo_report *o, struct fo_table *t, struct fo_arena *a)
{
	const struct fo_record *r = o->r;
	struct fo_str line = { 0 };
	fo_table_row(t, "steps",
		     fo_arena_printf(a,
				     o->tokens < 1e6 ? "%lld, %.0f tokens with loss" : "%lld, %.4g M tokens with loss",
				     (long long)r->step.n, o->tokens < 1e6 ? o->tokens : o->tokens / 1e6));
	if (isfinite(o->last_loss))
		fo_str_printf(&line, "%.4f at first, %.4f at the end (running median of %lld steps)", o->first_loss,
			      o->last_loss, (long long)o->window);
	if (isfinite(o->last_eval))
		fo_str_printf(&line, "%sheld out %.4f at step %lld, best %.4f at step %lld", line.len ? "; " : "",
			      o->last_eval, (long long)o->last_eval_step, o->best_eval, (long long)o->best_eval_step);
	if (line.len)
		fo_table_row(t, "loss", line.data);
	fo_str_fini(&line);
	if (isfinite(o->step_s.median))
		fo_table_row(t, "step",
			     fo_arena_printf(a, "%s (quartiles %s to %s)%s", seconds(a, o->step_s.median),
					     seconds(a, o->step_s.low), seconds(a, o->step_s.high),
					     isfinite(o->tokens_s.median)
						     ? fo_arena_printf(a, ", %.0f tokens/s", o->tokens_s.median)
						     : ""));
	for (int k = 0; k < RULES; k++)
		if (isfinite(o->mfu[k].median))
			fo_str_printf(&line, "%s%s %.1f %% (%.1f to %.1f)", line.len ? ", " : "",
				      fo_step_field_name[FO_STEP_MFU + k], 100 * o->mfu[k].median, 100 * o->mfu[k].low,
				      100 * o->mfu[k].high);
	if (line.len) {
		fo_table_row(t, "MFU", line.data);
		if (r->peak_flop_s > 0)
			fo_table_row(t, "peak",
				     fo_arena_printf(a, "%s, %s", si(a, r->peak_flop_s, "FLOP/s"), r->peak_source));
	}
	fo_str_fini(&line);
	if (isfinite(o->quiet_s))
		fo_table_row(
			t, "quiet",
			fo_arena_printf(a,
					"%s a step, MFU %.1f %%, composed from %lld metered steps (%.0f %% of it from "
					"quiet spans)",
					seconds(a, o->quiet_s), 100 * o->quiet_mfu, (long long)o->metered_steps,
					100 * o->quiet_share));
}

static void print_time(struct fo_report *o, struct fo_table *t, struct fo_arena *a)
{
	struct fo_str line = { 0 };
	if (o->has_profile) {
		for (int k = 0; k < FO_PART_COUNT; k++)
			if (o->profile.part_ns[k] > 0)
				fo_str_printf(&line, "%s%s %.1f %%", line.len ? ", " : "", fo_part_name[k],
					      100 * o->profile.part_ns[k] / o->profile.total_ns);
		fo_table_row(t, "profile", line.data);
		fo_str_fini(&line);
	}
	if (isfinite(o->wall_s) && o->wall_s > 0) {
		fo_str_printf(&line, "%.1f %% of %s wall time in steps", 100 * o->step_time_s / o->wall_s,
			      seconds(a, o->wall_s));
		for (int k = 0; k < FO_GAP_COUNT; k++)
			if (o->gap_s[k] / o->wall_s >= 0.001)
				fo_str_printf(&line, ", %s %.1f %%", fo_report_gap_name[k],
					      100 * o->gap_s[k] / o->wall_s);
		if (o->clock_set)
			fo_str_printf(&line, "; " FO_REPORT_CLOCK_SET, (long long)o->clock_set,
				      o->clock_set == 1 ? "" : "s");
		fo_table_row(t, "between", line.data);
		fo_str_fini(&line);
	}
	if (o->r->undone_steps)
		fo_table_row(t, "repeated",
			     fo_arena_printf(a, "%lld steps (%s) that a resume or a rewind made worthless",
					     (long long)o->r->undone_steps, seconds(a, o->r->undone_seconds)));
	char buf[96];
	const char *busy = fo_state_others_text(o->machine.load, o->r->processors, buf);
	if (busy)
		fo_table_row(t, "busy", fo_arena_printf(a, "%s; every step may be slower than alone", busy));
	if (!o->phases) {
		if (o->r->step.n)
			fo_table_row(t, "slow", busy ? "no phase slower than the rest" : "no slow phase");
		return;
	}
	fo_table_row(t, "slow",
		     fo_arena_printf(a, "%d phase%s, %.1f %% of the time in steps, %s lost", o->phases,
				     o->phases == 1 ? "" : "s", 100 * o->slow_s / o->step_time_s,
				     seconds(a, o->lost_s)));
	for (int i = 0; i < o->phases && i < PHASES_SHOWN; i++) {
		const struct fo_report_phase *p = &o->phase[i];
		fo_table_row(
			t, "",
			fo_arena_printf(a, "steps %lld to %lld, %.2f times the median: %s%s%s%s", (long long)p->first,
					(long long)p->last, p->times, *p->cause ? p->cause : "the log shows no cause",
					*p->beside ? " (between its steps: " : "", p->beside, *p->beside ? ")" : ""));
	}
	if (o->phases > PHASES_SHOWN)
		fo_table_row(t, "", fo_arena_printf(a, "and %d more in the page", o->phases - PHASES_SHOWN));
}

static void print_memory(struct fo_report *o, struct fo_table *t, struct fo_arena *a)
{
	const struct fo_record_end *e = fo_record_last_end(o->r);
	struct fo_str line = { 0 };
	if (o->memory.points) {
		for (int k = 0; k < FO_LIFE_COUNT; k++)
			fo_str_printf(&line, "%s%s %s", k ? ", " : "at the peak: ", fo_report_life_name[k],
				      bytes(a, o->memory.peak_bytes[k]));
		fo_table_row(t, "memory", line.data);
		fo_str_fini(&line);
	}
	if (e && isfinite(e->measured_bytes))
		fo_table_row(t, o->memory.points ? "" : "memory",
			     fo_arena_printf(a, "planned %s, measured %s", bytes(a, e->planned_bytes),
					     bytes(a, e->measured_bytes)));
}

/* What the device did by NVML, and whether its clock or the work per clock is what MFU lacks. */
static void print_device(struct fo_report *o, struct fo_table *t, struct fo_arena *a)
{
	const struct fo_record_end *e = fo_record_last_end(o->r);
	const char *name = o->r->starts ? o->r->start[o->r->starts - 1].device : "";
	struct fo_str line = { 0 };
	if (!*name)
		return;
	const struct fo_record_device *d = e && e->device.told ? &e->device : NULL;
	fo_str_puts(&line, name);
	const struct {
		double v;
		const char *form;
	} part[] = { { d ? d->sm_hz * 1e-9 : NAN, ", mean clock %.2f GHz" },
		     { d ? d->watts : NAN, ", %.0f W" },
		     { d ? d->joules_per_token : NAN, ", %.3g J/token" },
		     { d ? 100 * d->power_share : NAN, ", clock held back by power %.0f %% of the time" },
		     { d ? 100 * d->thermal_share : NAN, ", by heat %.0f %%" } };
	for (size_t i = 0; i < sizeof part / sizeof *part; i++)
		if (!isnan(part[i].v))
			fo_str_printf(&line, part[i].form, part[i].v);
	fo_table_row(t, "device", line.data);
	fo_str_fini(&line);
	if (!d)
		return;
	const struct fo_mfu_split *s = &d->split;
	if (!isnan(s->clock * s->work * s->counted))
		fo_table_row(t, "split",
			     fo_arena_printf(a,
					     "MFU = clock %.1f %% (of %.2f GHz) x work per clock %.1f %% x %.3f "
					     "counted per FLOP run",
					     100 * s->clock, s->peak_hz * 1e-9, 100 * s->work, s->counted));
	line = (struct fo_str){ 0 };
	fo_ofu_text(s, &line);
	fo_table_row(t, "OFU", line.data);
	fo_str_fini(&line);
}

static void print_rest(struct fo_report *o, struct fo_table *t, struct fo_arena *a)
{
	const struct fo_record *r = o->r;
	const struct fo_state_use *u = &o->machine;
	struct fo_str line = { 0 };
	char text[FO_REPORT_MISSING];
	const char *why;
	if (*r->cpu)
		fo_str_printf(&line, ", %s", r->cpu);
	if (r->threads > 0)
		fo_str_printf(&line, ", %lld %s", (long long)r->threads,
			      fo_cli_plural(r->threads, "thread", "threads"));
	if (isfinite(u->clock_hz))
		fo_str_printf(&line, ", %.2f GHz", u->clock_hz / 1e9);
	if (isfinite(u->steal))
		fo_str_printf(&line, ", steal %.1f %%", 100 * u->steal);
	if (u->limited_s > 0)
		fo_str_printf(&line, ", held back %s", seconds(a, u->limited_s));
	if (isfinite(u->load))
		fo_str_printf(&line, ", load up to %.1f", u->load);
	if (line.len)
		fo_table_row(t, "machine", line.data + strlen(", "));
	fo_str_fini(&line);
	for (int64_t i = 0; i < r->guards && i < GUARDS_SHOWN; i++)
		fo_table_row(t, i ? "" : "guards",
			     fo_arena_printf(a, "step %lld: %s, %s%s%s", (long long)r->guard[i].step,
					     r->guard[i].kind == FO_GUARD_SPIKE ? "loss spike" : "not finite",
					     r->guard[i].action, *r->guard[i].where ? ": " : "", r->guard[i].where));
	if (r->guards > GUARDS_SHOWN)
		fo_table_row(t, "",
			     fo_arena_printf(a, "and %lld more in the page", (long long)(r->guards - GUARDS_SHOWN)));
	for (int i = 0; (why = fo_report_missing(o, i, text)); i++)
		fo_table_row(t, "missing", why);
}

static void print_text(struct fo_report *o, const char *page, bool written)
{
	const struct fo_record *r = o->r;
	const struct fo_program *g = &r->program;
	struct fo_arena a = { 0 };
	struct fo_table t;
	fo_table_init(&t, "ll");
	fo_table_row(&t, "run", fo_arena_printf(&a, "%s%s%s", r->dir, *r->started ? ", begun " : "", r->started));
	if (r->file[FO_RECORD_PROGRAM].state == FO_RECORD_WHOLE)
		fo_table_row(&t, "model",
			     fo_arena_printf(&a, "%s: %lld layers, hidden %lld; %lld x %lld rows of %lld tokens, %s",
					     *g->model.name ? g->model.name : "custom", (long long)g->model.layers,
					     (long long)g->model.hidden, (long long)g->run.micro_batches,
					     (long long)g->run.rows, (long long)g->run.seq,
					     fo_numerics_name[g->run.precision]));
	print_steps(o, &t, &a);
	print_time(o, &t, &a);
	print_memory(o, &t, &a);
	print_device(o, &t, &a);
	print_rest(o, &t, &a);
	if (written)
		fo_table_row(&t, "page", page);
	fo_table_print(&t, stdout, "", false);
	fo_table_fini(&t);
	fo_arena_fini(&a);
}

static void print_json(struct fo_report *o, const char *page)
{
	struct fo_json *j = fo_cli_json_begin();
	fo_report_json(o, j);
	fo_json_text(j, "html", page);
	fo_cli_json_end(j);
}

static fo_status report(const struct report *in, const char *dir)
{
	struct fo_arena a = { 0 };
	struct fo_record r;
	struct fo_report o;
	struct fo_str html = { 0 };
	const char *page = in->html ? in->html : fo_arena_printf(&a, "%s/report.html", dir);
	/* A page that is named was asked about with the options. */
	fo_status st = in->html || in->force ? FO_OK : fo_output_may_replace(FO_OUTPUT_PAGE, page);
	if (st == FO_OK)
		st = fo_record_open(&r, dir, FO_RECORD_WITH_TIMELINE | FO_RECORD_WITH_METERED);
	if (st == FO_OK) {
		fo_report_make(&o, &r);
		fo_report_html(&o, &html);
		bool shown = !strcmp(page, "-");
		if (shown)
			fwrite(html.data, 1, html.len, stdout);
		else
			st = fo_fs_write_atomic(page, html.data, html.len);
		/* Whoever may only read the directory gets the figures all the same, and the reason why there is no
		 * page. */
		if (shown)
			; /* the page alone */
		else if (in->json)
			print_json(&o, st == FO_OK ? page : NULL);
		else
			print_text(&o, page, st == FO_OK);
		if (st != FO_OK)
			fo_hint(st, "--html=FILE writes the page elsewhere");
		fo_report_fini(&o);
		fo_record_fini(&r);
	}
	fo_str_fini(&html);
	fo_arena_fini(&a);
	return st;
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct report *in = call->in;
	if (in->html && !strcmp(in->html, "-") && in->json)
		return fo_fail(FO_EARG, "--html=- and --json both write: give one of them a file, or two commands");
	if (call->argc < 2)
		return fo_hint(fo_fail(FO_EARG, "no run directory"), "usage: %s", fo_cmd_report.usage);
	return report(in, call->argv[1]);
}

const struct fo_command fo_cmd_report = {
	.name = "report",
	.group = "diagnose",
	.usage = "flatout report RUN [--html FILE|-] [--json] [--force]",
	.summary = "what a run did: loss, MFU, slow phases, memory, machine; a page",
	.text = "Reads what 'flatout train' left in its run directory, whatever state that is in, also\n"
		"while it is training. The page is one file that needs nothing else: no network, no\n"
		"script; dark or light as the reader's system says; for desks, telephones and paper.\n"
		"\n"
		"A slow phase is a stretch of steps whose time, as a running median of 9, is more than\n"
		"1.25 times the median of the whole run. What the log says of that time stands beside it.\n"
		"\n"
		"  flatout report run\n"
		"  flatout report run --html=/tmp/run.html\n"
		"  flatout report run --json",
	.opts = rows,
	.act = run,
	.size = sizeof(struct report),
	.most = 1,
};
