/* flatout calibrate: what this machine reaches, measured and shown. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/fs.h"
#include "cost/links.h"
#include "hw/profile.h"
#include "pass/pass.h"
#include "program/run.h"
#include "record/record.h"
#include "report/roofline.h"
#include "sim/compare.h"
#include "sim/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct calibrate {
	struct fo_run run; /* run.threads: measure 1 thread and this many */
	double seconds, documents;
	bool quick, show, all, force;
	const char *json, *out, *svg, *of;
};

static const struct fo_opt extra[] = {
	FO_OPT_REAL(struct calibrate, seconds, "cli.seconds", "S", "0", 0, 86400, "s",
		    "how long to measure; 0: 120 s, with --quick 10 s; of a run what it takes, at least 60 s"),
	FO_OPT_LENGTH_REAL(struct calibrate, documents, "cli.documents", "N", "0", 0, 1e9,
			   "of a run: attention in documents of this mean length too; 0: in unbroken rows alone"),
	FO_OPT_PATH(struct calibrate, of, "cli.for", "RUN", "",
		    "the operations of this run folder, with its threads and documents"),
	FO_OPT_BOOL(struct calibrate, quick, "cli.quick", "false", "fewer shapes"),
	FO_OPT_OUTPUT(struct calibrate, out, "cli.out", "FILE", NULL,
		      "write the profile to FILE instead of the user's cache", FO_OUTPUT_PROFILE),
	FO_OPT_BOOL(struct calibrate, show, "cli.show", "false", "show a profile; measure nothing"),
	FO_OPT_BOOL(struct calibrate, all, "cli.all", "false", "list every shape, not only a line per kind"),
	FO_OPT_OUTPUT(struct calibrate, svg, "cli.svg", "FILE", NULL, "also write the picture as SVG", FO_OUTPUT_SVG),
	FO_OPT_JSON_OF(struct calibrate, json, "cli.json", "the profile as JSON on standard output", FO_OUTPUT_PROFILE),
	FO_OPT_FORCE(struct calibrate, force, "cli.force"),
	FO_OPT_END
};

/* ---- what is shown ---- */

static bool speaks_utf8(void)
{
	static const char *const variable[] = { "LC_ALL", "LC_CTYPE", "LANG" };
	for (int i = 0; i < 3; i++) {
		const char *v = getenv(variable[i]);
		if (v && *v) /* the first that is set decides */
			return strstr(v, "UTF-8") || strstr(v, "utf8") || strstr(v, "UTF8") || strstr(v, "utf-8");
	}
	return false;
}

static bool wants_colour(void)
{
	const char *no = getenv("NO_COLOR");
	return fo_cli_is_live(stdout) && getenv("TERM") && !(no && *no);
}

/* "12.3 / 11.9" is quiet / all; "-" where no span was quiet, or where no ceiling is known. */
static const char *both(struct fo_doc *d, double quiet, double all)
{
	if (isnan(all))
		return "-";
	return isnan(quiet) ? fo_doc_printf(d, "- / %.1f", all) : fo_doc_printf(d, "%.1f / %.1f", quiet, all);
}

static const char *number(struct fo_doc *d, double v) { return fo_doc_printf(d, "%.1f", v); }

static const char *of(struct fo_doc *d, int part, int whole) { return fo_doc_printf(d, "%d/%d", part, whole); }

static void say_peaks(const struct fo_limits *m, struct fo_doc *d)
{
	fo_doc_table(d, FO_DRAW_FULL, NULL, "lrrrrl", "peak", "threads", "best", "median", "clean", "measured");
	fo_doc_row(d, "", "", "GFLOP/s", "GFLOP/s", "bursts", "");
	for (size_t i = 0; i < m->peaks; i++) {
		const struct fo_limits_peak *p = &m->peak[i];
		fo_doc_row(d, fo_doc_printf(d, "%s, registers only", p->dtype), fo_doc_count(d, p->threads),
			   number(d, p->best_flop_s / 1e9), number(d, p->median_flop_s / 1e9),
			   of(d, p->clean_bursts, p->bursts), fo_doc_printf(d, "%.10s %s", p->date, p->set));
	}
}

static void say_memory(const struct fo_limits *m, struct fo_doc *d)
{
	bool any = false;
	for (size_t i = 0; i < m->rows; i++) {
		const struct fo_limits_row *r = &m->row[i];
		if (!fo_roofline_is_traffic(r))
			continue;
		if (!any)
			fo_doc_table(d, FO_DRAW_FULL, NULL, "lrrrr", "memory", "threads", "GB/s, quiet / all", "best",
				     "quiet spans");
		any = true;
		fo_doc_row(d, fo_doc_printf(d, "%s%s", r->kind, strcmp(r->variant, "nt") ? "" : ", past the caches"),
			   fo_doc_count(d, r->threads),
			   both(d, r->bytes / r->time.quiet_median_s / 1e9, r->bytes / r->time.median_s / 1e9),
			   number(d, r->bytes / r->time.best_s / 1e9), of(d, r->time.quiet, r->time.spans));
	}
}

/* The time that the row's ceiling allows: of matmuls the peak of their type, of the others the memory's highest rate.
 * NaN: no ceiling. */
static double ceiling_of(const struct fo_roofline *f, const struct fo_limits_row *r)
{
	if (!fo_roofline_is_product(r))
		return f->memory_byte_s > 0 ? r->bytes / f->memory_byte_s : NAN;
	double peak = f->peak[!strcmp(r->dtype, "bf16")];
	return r->flop / (peak > 0 ? peak : fmax(f->peak[0], f->peak[1]));
}

static const char *shape_text(struct fo_doc *d, const struct fo_limits_row *r)
{
	const char *s = "";
	for (int i = 0; i < FO_LIMITS_DIMS && r->dim[i]; i++)
		s = fo_doc_printf(d, "%s%s%lld", s, i ? "x" : "", (long long)r->dim[i]);
	return s;
}

/* GFLOP/s of a matmul, GB/s of anything else. */
static double rate_of(const struct fo_limits_row *r)
{
	return (fo_roofline_is_product(r) ? r->flop : r->bytes) / fo_limits_row_seconds(r) / 1e9;
}

/* "matmul wgrad"; attention is causal, the overhead the executor's, and the others have no variants. */
static const char *work_text(struct fo_doc *d, const struct fo_limits_row *r)
{
	bool plain = !strcmp(r->variant, "-") || !strcmp(r->variant, "causal") || !strcmp(r->variant, "executor");
	return plain ? r->kind : fo_doc_printf(d, "%s %s", r->kind, r->variant);
}

static bool same_kind(const struct fo_limits_row *a, const struct fo_limits_row *b)
{
	return !strcmp(a->kind, b->kind) && !strcmp(a->variant, b->variant) && !strcmp(a->dtype, b->dtype) &&
	       a->threads == b->threads && (!fo_link_is_row(a) || !strcmp(a->set, b->set));
}

/* One line for the rows [i, end) of a kind, in percent of their ceilings: median over shapes. */
static void kind_row(struct fo_doc *d, const struct fo_roofline *f, size_t i, size_t end)
{
	const struct fo_limits_row *first = &f->m->row[i], *best = first;
	double *quiet = fo_doc_alloc(d, 2 * (end - i) * sizeof *quiet), *all = quiet + (end - i), share = 0;
	size_t nq = 0, n = 0;
	int spans = 0, calm = 0;
	for (; i < end; i++) {
		const struct fo_limits_row *r = &f->m->row[i];
		double c = ceiling_of(f, r);
		if (r->time.quiet)
			quiet[nq++] = 100 * c / r->time.quiet_median_s;
		all[n++] = 100 * c / r->time.median_s;
		spans += r->time.spans;
		calm += r->time.quiet;
		if (c / fo_limits_row_seconds(r) > ceiling_of(f, best) / fo_limits_row_seconds(best))
			best = r;
	}
	if (spans)
		share = 100.0 * calm / spans;
	fo_doc_row(d, work_text(d, first), first->dtype, fo_doc_count(d, (int64_t)n),
		   both(d, nq ? fo_stats_median(quiet, nq) : NAN, fo_stats_median(all, n)),
		   fo_doc_printf(d, "%d %%", (int)lround(share)), number(d, rate_of(best)), shape_text(d, best));
}

/* Matmuls and attention against the peak, or the memory-bound operations against the memory. */
static void say_kernels(const struct fo_roofline *f, struct fo_doc *d, bool matmuls)
{
	static const char *const head[2][3] = { { "memory-bound", "% of memory", "GB/s" },
						{ "matmuls", "% of peak", "GFLOP/s" } };
	const char *const *h = head[matmuls];
	bool any = false;
	for (size_t i = 0, end; i < f->m->rows; i = end) {
		const struct fo_limits_row *r = &f->m->row[i];
		for (end = i + 1; end < f->m->rows && same_kind(r, &f->m->row[end]); end++)
			;
		if (r->threads != f->threads || fo_roofline_is_product(r) != matmuls || fo_roofline_is_traffic(r) ||
		    !(r->bytes > 0) || fo_link_is_row(r))
			continue;
		if (!any) {
			fo_doc_table(d, FO_DRAW_FULL, NULL, "llrrrrl", h[0], "type", "shapes", h[1], "quiet", h[2],
				     "with shape");
			fo_doc_row(d, "", "", "", "quiet / all", "spans", "at best", "");
		}
		any = true;
		kind_row(d, f, i, end);
	}
}

static void say_all(const struct fo_limits *m, struct fo_doc *d)
{
	fo_doc_table(d, FO_DRAW_FULL, NULL, "lllrrrrr", "work", "type", "shape", "thr.", "ms, quiet", "all", "G/s",
		     "quiet");
	for (size_t i = 0; i < m->rows; i++) {
		const struct fo_limits_row *r = &m->row[i];
		const char *quiet = "-", *rate = r->bytes > 0 ? number(d, rate_of(r)) : "-";
		if (!isnan(r->time.quiet_median_s))
			quiet = fo_doc_printf(d, "%.4g", 1e3 * r->time.quiet_median_s);
		fo_doc_row(d, work_text(d, r), r->dtype, shape_text(d, r), fo_doc_count(d, r->threads), quiet,
			   fo_doc_printf(d, "%.4g", 1e3 * r->time.median_s), rate, of(d, r->time.quiet, r->time.spans));
	}
}

/* Calls between ranks, by kind and group: the smallest one, and the rate of the largest. */
static void say_links(const struct fo_limits *m, struct fo_doc *d)
{
	bool any = false;
	for (size_t i = 0, end; i < m->rows; i = end) {
		const struct fo_limits_row *r = &m->row[i], *last = r;
		for (end = i + 1; end < m->rows && same_kind(r, &m->row[end]); end++)
			last = &m->row[end];
		if (!fo_link_is_row(r))
			continue;
		if (!any)
			fo_doc_table(d, FO_DRAW_FULL, NULL, "lrrrl", "calls between ranks", "ranks", "least us",
				     "GB/s received", "measured");
		any = true;
		fo_doc_row(d, r->kind, fo_doc_count(d, r->dim[0]), number(d, 1e6 * fo_limits_row_seconds(r)),
			   number(d, last->bytes / fo_limits_row_seconds(last) / 1e9),
			   fo_doc_printf(d, "%.10s, %s", r->date, r->set));
	}
	if (!any)
		fo_doc_line(
			d, "collectives",
			"not measured: 'flatout calibrate --ranks=N' measures calls between N ranks of one process, "
			"'mpirun -n N flatout calibrate' between processes");
}

static void say_overhead(const struct fo_limits *m, struct fo_doc *d)
{
	for (size_t i = 0; i < m->rows; i++)
		if (!strcmp(m->row[i].kind, "overhead"))
			fo_doc_line(d, "executor", "%.0f ns for each operation beside its kernel (all spans: %.0f)",
				    1e9 * fo_limits_row_seconds(&m->row[i]), 1e9 * m->row[i].time.median_s);
	say_links(m, d);
}

/* The state of the machine while it was measured. */
static void say_state(const struct fo_limits_state *s, struct fo_doc *d)
{
	const struct fo_state_use *u = &s->use;
	const char *text = "";
	const struct {
		double v;
		const char *form;
	} part[] = { { u->clock_hz * 1e-9, "clock %.2f GHz" },
		     { 100 * u->steal, "steal %.1f %%" },
		     { u->throttles, "%.0f thermal events" },
		     { u->limited_s > 0 ? u->limited_s : NAN, "held back %.1f s by the cgroup" },
		     { u->joules / u->seconds, "%.1f W" },
		     { u->load, "load %.1f" } };
	for (size_t i = 0; i < sizeof part / sizeof *part; i++)
		if (!isnan(part[i].v))
			text = fo_doc_join(d, text, fo_doc_printf(d, part[i].form, part[i].v));
	if (*s->governor)
		text = fo_doc_join(d, text, fo_doc_printf(d, "governor %s", s->governor));
	if (u->seconds > 0)
		fo_doc_line(d, "machine meanwhile", "%s", *text ? text : "not readable");
}

/* The picture is the terminal's own, with symbols and colours; a page has the SVG. */
static void print_picture(const struct fo_roofline *f)
{
	struct fo_str picture = { 0 };
	fo_roofline_text(f, speaks_utf8(), wants_colour(), &picture);
	printf("\n%s\n", picture.data);
	fo_str_fini(&picture);
}

static void print_profile(const struct fo_limits *m, const struct fo_roofline *f, bool all)
{
	struct fo_doc head = { 0 }, tables = { 0 };
	fo_doc_line(&head, "profile of", "%s", m->cpu);
	if (*m->date)
		fo_doc_line(&head, "calibrated", "%s, kernels up to %s, %d thread%s", m->date, m->isa, f->threads,
			    fo_plural(f->threads));
	say_state(&m->state, &head);
	fo_cli_print(stdout, &head);
	print_picture(f);
	say_peaks(m, &tables);
	say_memory(m, &tables);
	if (all) {
		say_all(m, &tables);
	} else {
		say_kernels(f, &tables, true);
		say_kernels(f, &tables, false);
	}
	say_overhead(m, &tables);
	fo_cli_print(stdout, &tables);
	fo_doc_fini(&head);
	fo_doc_fini(&tables);
}

static fo_status show(const struct calibrate *in, const struct fo_limits *m)
{
	struct fo_roofline f;
	struct fo_str s = { 0 };
	fo_status st = fo_roofline_init(&f, m);
	if (st != FO_OK)
		return st;
	if (in->svg) {
		fo_roofline_svg(&f, &s);
		st = fo_fs_write_atomic(in->svg, s.data, s.len);
		fo_str_fini(&s);
	}
	if (st == FO_OK && in->json) {
		fo_limits_json(m, &s);
		fputs(s.data, stdout);
		fo_str_fini(&s);
	} else if (st == FO_OK) {
		print_profile(m, &f, in->all);
	}
	fo_roofline_fini(&f);
	return st;
}

/* ---- the command ---- */

static fo_status show_file(const struct calibrate *in, const char *path)
{
	struct fo_limits m;
	FO_TRY(fo_limits_read(path, &m));
	fo_status st = show(in, &m);
	fo_limits_fini(&m);
	return st;
}

#ifdef FO_NO_ENGINE
static fo_status fo_cli_calibrate(const char *path, const struct fo_cli_calibration *c)
{
	(void)path, (void)c;
	return fo_hint(fo_fail(FO_EUNSUPPORTED, "this build has no kernels to measure"),
		       "'flatout calibrate --show FILE' shows a profile; build with -DFLATOUT_ENGINE=ON to measure");
}
static fo_status fo_cli_calibrate_processes(const char *path, const struct fo_cli_calibration *c)
{
	return fo_cli_calibrate(path, c);
}
static fo_status fo_cli_launched(bool *many, int *rank)
{
	*many = false;
	*rank = 0;
	return FO_OK;
}
#endif

static fo_status measure_run(const struct calibrate *in, const char *path, struct fo_cli_calibration c)
{
	struct fo_program p;
	FO_TRY(fo_pass_build_run(&p, &in->run));
	c.program = &p;
	c.pairs = in->documents > 0 ? (double)p.run.rows * fo_sim_pairs(p.run.seq, in->documents) : -1;
	fo_status st = fo_cli_calibrate(path, &c);
	fo_program_fini(&p);
	return st;
}

static fo_status measure_folder(const struct calibrate *in, const char *path, struct fo_cli_calibration c)
{
	struct fo_record r;
	FO_TRY(fo_record_open(&r, in->of, FO_RECORD_WITH_PROGRAM));
	const struct fo_record_start *start = fo_record_last_start(&r);
	fo_status st = FO_OK;
	if (r.file[FO_RECORD_PROGRAM].state != FO_RECORD_WHOLE) {
		st = fo_fail(FO_EFORMAT, "'%s' has no program.txt that can be read: nothing tells what it ran", in->of);
	} else {
		if (!c.threads && start && start->threads > 0)
			c.threads = (int)start->threads;
		c.program = &r.program;
		c.ranks = r.program.ranks;
		c.pairs = in->documents > 0
				  ? (double)r.program.run.rows * fo_sim_pairs(r.program.run.seq, in->documents)
				  : fo_sim_load_of_run(&r).pairs;
		st = fo_cli_calibrate(path, &c);
	}
	fo_record_fini(&r);
	return st;
}

/* Calls between ranks are added to a profile that serves without them. */
static bool has_matmuls(const char *path)
{
	struct fo_limits m;
	bool has = fo_limits_read(path, &m) == FO_OK;
	fo_err_clear();
	if (has) {
		has = fo_rates_threads(&m) > 0;
		fo_limits_fini(&m);
	}
	return has;
}

/* A run file, or a flag of a run other than its threads, asks for that run's operations. */
static bool names_run(const struct fo_opt_set *s, bool file)
{
	for (int i = 0; !file && i < s->count; i++)
		if (s->origin[i].from == FO_ORIGIN_FLAG && strcmp(s->rows[i].key, "run.threads") &&
		    strncmp(s->rows[i].key, "mesh.", 5))
			return true;
	return file;
}

/* Measures what was asked for and writes it to path. *shows: what is there now is to be shown. */
static fo_status measure_asked(const struct fo_cli_call *call, const char *path, bool *shows)
{
	const struct calibrate *in = call->in;
	const bool run = names_run(call->options, call->argc > 1), folder = *in->of;
	struct fo_cli_calibration c = {
		.threads = (int)in->run.threads, .ranks = (int)in->run.ranks, .quick = in->quick, .live = !in->json
	};
	bool many = false;
	int rank = 0;
	*shows = true;
	c.seconds = in->seconds;
	FO_TRY(fo_cli_launched(&many, &rank));
	if (many && (run || folder || c.ranks > 1))
		return fo_cli_contradict(
			"mpirun started several processes, whose calls '%s' measures: without mpirun it "
			"measures a run or ranks that are threads",
			"flatout calibrate");
	if (many) {
		*shows = !rank && has_matmuls(path);
		FO_TRY(fo_cli_calibrate_processes(path, &c));
		if (!rank && !*shows)
			fprintf(stderr,
				"written to %s, which has nothing but these calls: 'flatout calibrate' measures "
				"the rest\n",
				path);
		return FO_OK;
	}
	c.links_alone = c.ranks > 1 && !run && !folder && has_matmuls(path);
	if (!(in->seconds > 0) && !run && !folder && !c.links_alone)
		c.seconds = in->quick ? 10 : 120;
	if (run && folder)
		return fo_cli_contradict("--for=%s says which run: a run file or options of one would say it twice",
					 in->of);
	if (folder)
		return measure_folder(in, path, c);
	return run ? measure_run(in, path, c) : fo_cli_calibrate(path, &c);
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct calibrate *in = call->in;
	const char *file = call->argc > 1 ? call->argv[1] : NULL;
	struct fo_arena a = { 0 };
	char cpu[80];
	fo_status st;
	fo_cpu_name(cpu, sizeof cpu);
	const char *kept = fo_limits_path(&a, cpu);
	if (in->show) {
		st = show_file(in, file ? file : kept);
		if (st == FO_EIO && !file)
			fo_hint(st, "'flatout calibrate' measures this machine and writes that file");
	} else {
		const char *path = in->out ? in->out : kept;
		bool shows;
		st = measure_asked(call, path, &shows);
		if (st == FO_OK && shows)
			st = show_file(in, path);
		if (st == FO_OK && shows && !in->json)
			printf("\nwritten to %s\n", path);
	}
	fo_arena_fini(&a);
	return st;
}

/* --show FILE names a profile, no run. */
static fo_status read_run(struct fo_opt_set *s, int argc, char **argv)
{
	const struct calibrate *in = s->target;
	/* Calls between ranks are measured without a run, so its rows need not divide. */
	if (argc == 1 && !names_run(s, false) && in->run.ranks > 1) {
		char rows[24];
		snprintf(rows, sizeof rows, "%lld", (long long)in->run.ranks);
		fo_opt_set_text(s, "train.rows", rows, FO_ORIGIN_DEFAULT, "mesh.ranks");
	}
	return argc > 1 && !in->show ? fo_cli_options_yaml(&fo_cmd_calibrate, s, argv[1]) : FO_OK;
}

const struct fo_command fo_cmd_calibrate = {
	.processes = true,
	.name = "calibrate",
	.group = "measure",
	.usage = "flatout calibrate [--threads N] [--seconds S] [--quick] [--out FILE] [--svg FILE] [--all] [--json]\n"
		 "flatout calibrate run.yaml [--KEY=VALUE ...] [--documents N] [--seconds S] [--out FILE] [--json]\n"
		 "flatout calibrate --for RUN [--threads N] [--seconds S] [--out FILE] [--json]\n"
		 "flatout calibrate --ranks=N [--threads N] [--seconds S] [--out FILE] [--json]\n"
		 "flatout calibrate --show [FILE] [--svg FILE] [--all] [--json]",
	.summary = "what this machine reaches: peaks, matmuls, attention, memory",
	.text = "Measures the kernels of training by shape, memory by threads and the executor's own cost, each "
		"run between two bursts of known work that tell whether the machine was quiet. Figures are medians "
		"of quiet runs and of all. The profile stays in the user's cache; 'train' takes its peak from "
		"there. With a run file (or options of one) it measures the operations of that run instead, as "
		"they come in its step, and adds them to the profile: 'predict' then goes by these. --ranks=N measures "
		"calls between N ranks of one process, mpirun those between processes.\n\n"
		"  flatout calibrate\n"
		"  flatout calibrate --quick --svg roofline.svg\n"
		"  flatout calibrate run.yaml && flatout predict run.yaml\n"
		"  flatout calibrate run.yaml --ranks=2 && flatout predict run.yaml --ranks=2\n"
		"  mpirun -n 2 flatout calibrate\n"
		"  flatout calibrate --show\n"
		"  flatout calibrate --show other-machine.json --all",
	.opts = fo_run_options,
	.own = extra,
	.prepare = read_run,
	.act = run,
	.size = sizeof(struct calibrate),
	.most = 1,
	.spin = FO_SPIN_TRAINING,
};
