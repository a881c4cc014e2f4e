/* flatout export: a run for other tools, which are TensorBoard, Perfetto and Prometheus; traces as tables and slices
 * (export_traces.c). */
#define _GNU_SOURCE /* flock */
#include "cli/cli.h"
#include "cli/export.h"

#include "base/fs.h"
#include "base/retry.h"
#include "record/prometheus.h"
#include "record/tensorboard.h"
#include "record/trace_events.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct export
{
	const char *tensorboard, *trace, *prometheus, *predicted, *program, *chrome, *csv;
	const char *json;
	bool force;
};

static const struct fo_opt rows[] = {
	FO_OPT_OUTPUT(struct export, tensorboard, "export.tensorboard", "DIR", "",
		      "scalars as a TensorBoard event file in this folder", FO_OUTPUT_NEW_NAMES),
	FO_OPT_OUTPUT(
		struct export, trace, "export.trace", "FILE", "",
		"timeline as a trace for ui.perfetto.dev or chrome://tracing (JSON; compressed when it ends in .gz)",
		FO_OUTPUT_SLICES),
	FO_OPT_OUTPUT(struct export, prometheus, "export.prometheus", "FILE", "",
		      "figures as node_exporter's textfile collector reads them", FO_OUTPUT_PROMETHEUS),
	FO_OPT_PATH(struct export, predicted, "export.predicted", "FILE", "",
		    "trace: also this timeline of the same program (flatout predict --timeline), as a second process"),
	FO_OPT_PATH(struct export, program, "export.program", "FILE", "",
		    "trace of --predicted without a run: its step program"),
	FO_OPT_OUTPUT(
		struct export, chrome, "export.chrome", "FILE", "",
		"operations of traces with class, step, pass and idle causes, for ui.perfetto.dev (.gz: compressed)",
		FO_OUTPUT_SLICES),
	FO_OPT_OUTPUT(struct export, csv, "export.csv", "FILE", "",
		      "the same as a table, one line for each operation (.gz: compressed)", FO_OUTPUT_CSV),
	FO_CLI_OUTPUT_ROWS(struct export, "export", "say as JSON what was written")
};

/* ---- the trace ---- */

struct sources {
	const struct fo_trace_source *v;
	int n;
};

static fo_status fill_trace(const struct fo_trace_sink *sink, void *ctx)
{
	const struct sources *from = ctx;
	return fo_trace_events_write(from->v, from->n, sink);
}

static fo_status read_predicted(const char *path, const struct fo_program *p, const char *what,
				struct fo_timeline_file *out)
{
	FO_TRY(fo_timeline_read(out, path));
	if (out->program_hash == fo_program_hash(p))
		return FO_OK;
	fo_timeline_fini(&out->t);
	return fo_hint(fo_fail(FO_EFORMAT, "'%s' is of another step program than '%s'", path, what),
		       "predict the run's own program: flatout predict with --program.file=%s", what);
}

static fo_status write_trace(const char *path, const struct fo_trace_source *source, int n, int64_t *bytes)
{
	return fo_cli_export_file(path, fill_trace, &(struct sources){ source, n }, bytes);
}

/* A training process holds the lock of its folder. We ask for a share of it and give it back at once; where locks are
 * not to be had nobody is known to train. */
static bool still_training(const char *dir)
{
	struct fo_arena a = { 0 };
	int fd = fo_open(fo_arena_printf(&a, "%s/lock", dir), O_RDONLY | O_CLOEXEC, 0);
	bool held = fd >= 0 && fo_flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
	if (fd >= 0)
		close(fd);
	fo_arena_fini(&a);
	return held;
}

/* FO_OK where this file of the run is whole, else an error that says why it is not. */
static fo_status want_file(const struct fo_record *r, const struct fo_record_file *f)
{
	if (f->state == FO_RECORD_WHOLE)
		return FO_OK;
	if (f->state != FO_RECORD_ABSENT)
		return fo_fail(FO_EFORMAT, "%s", f->why);
	if (still_training(r->dir))
		return fo_hint(fo_fail(FO_EARG, "there is no '%s' yet: the run is still training", f->path),
			       "training writes it at its end");
	return fo_hint(fo_fail(FO_EARG, "there is no '%s'", f->path),
		       "training writes it at its end; was the run killed?");
}

/* Everything that was asked for, before anything is written: a command that fails leaves no half of its work. */
static fo_status want_all(const struct export *in, const struct fo_record *r)
{
	/* Figures come from the log. A damaged log is an error, one whose last line is cut is not. */
	if (*in->tensorboard || *in->prometheus)
		FO_TRY(want_file(r, &r->file[FO_RECORD_LOG]));
	if (*in->prometheus)
		FO_TRY(fo_cli_export_place(in->prometheus));
	if (!*in->trace)
		return FO_OK;
	FO_TRY(want_file(r, &r->file[FO_RECORD_PROGRAM]));
	FO_TRY(want_file(r, &r->file[FO_RECORD_TIMELINE]));
	if (*in->predicted) {
		struct fo_timeline_file predicted;
		FO_TRY(read_predicted(in->predicted, &r->program, r->file[FO_RECORD_PROGRAM].path, &predicted));
		fo_timeline_fini(&predicted.t);
	}
	return fo_cli_export_place(in->trace);
}

static fo_status trace_of_run(const struct export *in, const struct fo_record *r, int64_t *bytes)
{
	struct fo_timeline_file predicted = { 0 };
	struct fo_arena a = { 0 };
	int n = 1;
	struct fo_trace_source source[2] = { { .name = fo_arena_printf(&a, "measured: %s", r->dir),
					       .program = &r->program,
					       .unrolled = &r->unrolled,
					       .timeline = &r->timeline.t,
					       .steps = &r->step } };
	fo_status st = FO_OK;
	if (*in->predicted) {
		FO_TRY_OR(st, read_predicted(in->predicted, &r->program, r->file[FO_RECORD_PROGRAM].path, &predicted),
			  done);
		source[n++] = (struct fo_trace_source){ .name = fo_arena_printf(&a, "predicted: %s", in->predicted),
							.program = &r->program,
							.unrolled = &r->unrolled,
							.timeline = &predicted.t };
	}
	st = write_trace(in->trace, source, n, bytes);
done:
	if (*in->predicted)
		fo_timeline_fini(&predicted.t);
	fo_arena_fini(&a);
	return st;
}

static fo_status trace_of_prediction(const struct export *in, int64_t *bytes)
{
	struct fo_timeline_file predicted = { 0 };
	struct fo_arena a = { 0 };
	struct fo_program p = { 0 };
	struct fo_unrolled u = { 0 };
	fo_status st;
	FO_TRY_OR(st, fo_program_read(&p, in->program, false), done);
	st = fo_unroll(&p, &u);
	if (st == FO_OK) {
		st = read_predicted(in->predicted, &p, in->program, &predicted);
		const struct fo_trace_source source = { .name = fo_arena_printf(&a, "predicted: %s", in->predicted),
							.program = &p,
							.unrolled = &u,
							.timeline = &predicted.t };
		if (st == FO_OK)
			st = write_trace(in->trace, &source, 1, bytes);
		fo_timeline_fini(&predicted.t);
		fo_unrolled_fini(&u);
	}
	fo_program_fini(&p);
done:
	fo_arena_fini(&a);
	return st;
}

/* ---- all ---- */

void fo_cli_export_wrote(const struct fo_cli_call *call, const char *key, const char *path, const char *fmt, ...)
{
	struct fo_str what = { 0 };
	va_list ap;
	va_start(ap, fmt);
	fo_str_vprintf(&what, fmt, ap);
	va_end(ap);
	if (call->json)
		fo_json_text(call->json, key, path);
	else
		fo_doc_para(call->doc, "wrote %s: %s", path, what.data);
	fo_str_fini(&what);
}

static fo_status export_run(const struct fo_cli_call *call, const struct fo_record *r)
{
	const struct export *in = call->in;
	int64_t bytes = 0;
	char *path;
	FO_TRY(want_all(in, r));
	if (*in->tensorboard) {
		FO_TRY(fo_tensorboard_export(r, in->tensorboard, &path));
		fo_cli_export_wrote(call, "tensorboard", path, "%lld %s, %lld %s", (long long)r->step.n,
				    fo_cli_plural(r->step.n, "step", "steps"), (long long)r->evals,
				    fo_cli_plural(r->evals, "evaluation", "evaluations"));
		free(path);
	}
	if (*in->prometheus) {
		struct fo_prometheus p;
		fo_prometheus_of(r, &p);
		FO_TRY(fo_prometheus_write(&p, in->prometheus, true));
		fo_cli_export_wrote(call, "prometheus", in->prometheus, "as of step %lld", (long long)p.step);
	}
	if (*in->trace) {
		FO_TRY(trace_of_run(in, r, &bytes));
		fo_cli_export_wrote(call, "trace", in->trace, "%s; open it in ui.perfetto.dev",
				    fo_doc_bytes(call->doc, bytes));
	}
	return FO_OK;
}

static fo_status check(const struct export *in, const char *run)
{
	if (*in->chrome || *in->csv) {
		if (*in->tensorboard || *in->trace || *in->prometheus || *in->predicted || *in->program)
			return fo_fail(FO_EARG,
				       "--chrome and --csv are for traces, the other outputs for a run: two commands");
		return run ? FO_OK : fo_fail(FO_EARG, "which traces? name their files or folder");
	}
	if (!*in->tensorboard && !*in->trace && !*in->prometheus)
		return fo_hint(
			fo_fail(FO_EARG,
				"nothing to write: say --tensorboard DIR, --trace FILE or --prometheus FILE of a run, "
				"--chrome FILE or --csv FILE of traces"),
			"'flatout export --help' has examples");
	if (!run && (*in->tensorboard || *in->prometheus || !*in->predicted || !*in->program))
		return fo_hint(fo_fail(FO_EARG, "which run? name its folder (run.dir)"),
			       "only a trace of --predicted goes without, with --program");
	if (run && *in->program)
		return fo_fail(FO_EARG, "a run has its own program: leave out --program");
	if (*in->predicted && !*in->trace)
		return fo_fail(FO_EARG, "--predicted is for a trace: say --trace FILE");
	return FO_OK;
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct export *in = call->in;
	bool traces = *in->chrome || *in->csv;
	const char *dir = call->argc > 1 ? call->argv[1] : NULL;
	int64_t bytes = 0;
	if (!traces)
		FO_TRY(fo_cli_no_more_args(call->command, call->argc, call->argv, 1));
	FO_TRY(check(in, dir));
	if (traces)
		return fo_cli_export_traces(call, in->chrome, in->csv);
	if (!dir) {
		FO_TRY(trace_of_prediction(in, &bytes));
		fo_cli_export_wrote(call, "trace", in->trace, "%s; open it in ui.perfetto.dev",
				    fo_doc_bytes(call->doc, bytes));
		return FO_OK;
	}
	struct fo_record r;
	unsigned with = *in->prometheus ? FO_RECORD_WITH_PROGRAM : 0;
	if (*in->trace)
		with = FO_RECORD_WITH_TIMELINE;
	FO_TRY(fo_record_open(&r, dir, with));
	fo_status st = export_run(call, &r);
	fo_record_fini(&r);
	return st;
}

const struct fo_command fo_cmd_export = {
	.name = "export",
	.group = "diagnose",
	.usage = "flatout export RUN [--tensorboard DIR] [--trace FILE [--predicted FILE]] [--prometheus FILE] "
		 "[--json]\n"
		 "flatout export TRACE... [--chrome FILE] [--csv FILE] [--json]",
	.summary = "a run or traces for other tools: TensorBoard, Perfetto, CSV",
	.text = "RUN is a run directory (run.dir). Training writes the first and the last by itself\n"
		"with --report.tensorboard=yes and --report.prometheus=FILE. TRACE is what flatout\n"
		"diagnose reads: --chrome and --csv write every GPU operation with its class, step,\n"
		"operator, pass, and the cause of the gap in front of it.\n"
		"\n"
		"  flatout export run --tensorboard boards/first\n"
		"  flatout export run --trace run.json.gz\n"
		"  flatout export run --trace both.json --predicted predicted.fot\n"
		"  flatout export --program program.txt --predicted predicted.fot --trace p.json\n"
		"  flatout export rank0.json.gz --csv operations.csv\n"
		"  flatout export traces/ --chrome ranks.json.gz\n"
		"  flatout export run --prometheus /var/lib/node_exporter/run.prom",
	.opts = rows,
	.act = run,
	.size = sizeof(struct export),
	.most = FO_CLI_ANY,
};
