/* flatout export: a run for TensorBoard, Perfetto and Prometheus; traces as tables and slices. */
#define _GNU_SOURCE /* flock */
#include "cli/cli.h"

#include "base/fs.h"
#include "base/retry.h"
#include "diagnose/operations.h"
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
#include <zlib.h>

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

/* ---- what is written ---- */

struct out {
	FILE *f;
	gzFile gz;
	struct fo_new_file file;
};

static fo_status out_write(void *ctx, const void *bytes, size_t n)
{
	struct out *o = ctx;
	bool whole = o->gz ? gzwrite(o->gz, bytes, (unsigned)n) == (int)n : fwrite(bytes, 1, n, o->f) == n;
	if (whole)
		return FO_OK;
	return fo_fs_refuse("write", o->file.path, errno ? errno : ENOSPC);
}

static fo_status out_open(struct out *o, const char *path)
{
	size_t n = strlen(path);
	bool gz = n > 3 && !strcmp(path + n - 3, ".gz");
	*o = (struct out){ 0 };
	FO_TRY(fo_fs_new_begin(&o->file, path));
	errno = 0;
	int fd = dup(o->file.fd); /* the streams close theirs */
	if (fd >= 0 && gz)
		o->gz = gzdopen(fd, "wb");
	else if (fd >= 0)
		o->f = fdopen(fd, "w");
	if (o->gz || o->f)
		return FO_OK;
	fo_status st = fo_fs_refuse("write", path, errno ? errno : ENOMEM);
	if (fd >= 0)
		close(fd);
	return st;
}

/* Puts the finished file into its place, or removes it after an error. */
static fo_status out_close(struct out *o, fo_status st)
{
	bool lost = o->f && fclose(o->f);
	lost |= o->gz && gzclose(o->gz) != Z_OK;
	if (st == FO_OK && lost)
		st = fo_fs_refuse("write", o->file.path, errno ? errno : ENOSPC);
	return fo_fs_new_end(&o->file, st, false);
}

/* Writes a file that appears when it is whole, compressed where its name ends in .gz. *bytes: of the file as it lies
 * there. */
static fo_status write_file(const char *path, fo_status (*fill)(const struct fo_trace_sink *sink, void *ctx), void *ctx,
			    int64_t *bytes)
{
	struct out o;
	fo_status st = out_open(&o, path);
	if (st == FO_OK)
		st = fill(&(struct fo_trace_sink){ &o, out_write }, ctx);
	st = out_close(&o, st);
	struct stat file;
	*bytes = st == FO_OK && !stat(path, &file) ? file.st_size : 0; /* as it lies there, compressed or not */
	return st;
}

/* FO_EIO where no file could be written, before anything is. */
static fo_status check_place(const char *path)
{
	struct fo_arena a = { 0 };
	char *dir = fo_arena_strdup(&a, path), *slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir] = 0;
	const char *folder = slash ? dir : ".";
	int error = access(folder, W_OK | X_OK) ? errno : 0;
	if (!error && fo_fs_is_dir(path))
		error = EISDIR;
	fo_arena_fini(&a);
	return error ? fo_fs_refuse("write", path, error) : FO_OK;
}

/* Says that `path` was written: a line of text, or the member `key` of the JSON. */
static void say_wrote(const struct fo_cli_call *call, const char *key, const char *path, const char *fmt, ...)
	FO_PRINTF(4, 5);
static void say_wrote(const struct fo_cli_call *call, const char *key, const char *path, const char *fmt, ...)
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
		FO_TRY(check_place(in->prometheus));
	if (!*in->trace)
		return FO_OK;
	FO_TRY(want_file(r, &r->file[FO_RECORD_PROGRAM]));
	FO_TRY(want_file(r, &r->file[FO_RECORD_TIMELINE]));
	if (*in->predicted) {
		struct fo_timeline_file predicted;
		FO_TRY(read_predicted(in->predicted, &r->program, r->file[FO_RECORD_PROGRAM].path, &predicted));
		fo_timeline_fini(&predicted.t);
	}
	return check_place(in->trace);
}

/* What a trace is made of: a process for each rank of a run, one for a prediction. */
struct pieces {
	struct fo_arena arena;
	struct fo_trace_source *source;
	int n;
	struct fo_program *program; /* of ranks but the first, and of a prediction without a run */
	struct fo_unrolled *unrolled;
	int programs;
	struct fo_timeline_file predicted;
};

static fo_status unroll_next(struct pieces *x, fo_status read)
{
	FO_TRY(read);
	fo_status st = fo_unroll(&x->program[x->programs], &x->unrolled[x->programs]);
	if (st == FO_OK)
		x->programs++;
	else
		fo_program_fini(&x->program[x->programs]);
	return st;
}

static fo_status add_ranks(struct pieces *x, const struct fo_record *r)
{
	struct fo_trace_source *first = &x->source[x->n++];
	*first = (struct fo_trace_source){ .name = fo_arena_printf(&x->arena, "measured: %s", r->dir),
					   .program = &r->program,
					   .unrolled = &r->unrolled,
					   .timeline = &r->timeline.t,
					   .steps = &r->step };
	if (r->ranks)
		first->name = fo_arena_printf(&x->arena, "rank 0 of %d: %s", r->ranks, r->dir);
	for (int i = 1; i < r->ranks; i++) {
		const struct fo_record_rank *rank = &r->rank[i];
		if (!rank->timeline)
			continue;
		FO_TRY(unroll_next(x, fo_timeline_program(&x->program[x->programs], rank->timeline, rank->file.path)));
		x->source[x->n++] = (struct fo_trace_source){ .name = fo_arena_printf(&x->arena, "rank %d of %d: %s", i,
										      r->ranks, r->dir),
							      .program = &x->program[x->programs - 1],
							      .unrolled = &x->unrolled[x->programs - 1],
							      .timeline = &rank->timeline->t,
							      .beside = true };
	}
	return FO_OK;
}

static fo_status add_predicted(struct pieces *x, const struct export *in, const struct fo_record *r)
{
	const struct fo_program *of = r ? &r->program : &x->program[0];
	const char *what = r ? r->file[FO_RECORD_PROGRAM].path : in->program;
	if (!*in->predicted)
		return FO_OK;
	FO_TRY(read_predicted(in->predicted, of, what, &x->predicted));
	x->source[x->n++] = (struct fo_trace_source){ .name = fo_arena_printf(&x->arena, "predicted: %s",
									      in->predicted),
						      .program = of,
						      .unrolled = r ? &r->unrolled : &x->unrolled[0],
						      .timeline = &x->predicted.t };
	return FO_OK;
}

/* Says which ranks' timelines are not in the trace, and why: of the first few. */
static void say_absent(const struct fo_cli_call *call, const struct fo_record *r)
{
	enum { SHOWN = 4 };
	int absent = 0;
	if (call->json)
		fo_json_array(call->json, "absent_ranks");
	for (int i = 1; i < r->ranks; i++) {
		const struct fo_record_rank *x = &r->rank[i];
		if (x->timeline)
			continue;
		if (call->json)
			fo_json_int(call->json, NULL, i);
		else if (absent < SHOWN && x->file.state == FO_RECORD_ABSENT)
			fo_doc_warning(call->doc, "rank %d is not in it: there is no '%s'", i, x->file.path);
		else if (absent < SHOWN)
			fo_doc_warning(call->doc, "rank %d is not in it: %s", i, x->file.why);
		absent++;
	}
	if (call->json)
		fo_json_close(call->json);
	else if (absent > SHOWN)
		fo_doc_warning(call->doc, "%d ranks are not in it", absent);
}

/* Writes the timelines of a run, a predicted one of the same program, or both; r NULL: the prediction alone. */
static fo_status write_trace(const struct fo_cli_call *call, const struct fo_record *r)
{
	const struct export *in = call->in;
	size_t most = 2 + (size_t)(r ? r->ranks : 0);
	struct pieces x = { 0 };
	int64_t bytes = 0;
	x.source = fo_arena_alloc(&x.arena, most * sizeof *x.source);
	x.program = fo_arena_alloc(&x.arena, most * sizeof *x.program);
	x.unrolled = fo_arena_alloc(&x.arena, most * sizeof *x.unrolled);
	fo_status st = r ? add_ranks(&x, r) : unroll_next(&x, fo_program_read(&x.program[0], in->program, false));
	if (st == FO_OK)
		st = add_predicted(&x, in, r);
	if (st == FO_OK)
		st = write_file(in->trace, fill_trace, &(struct sources){ x.source, x.n }, &bytes);
	if (st == FO_OK)
		say_wrote(call, "trace", in->trace, "%s; open it in ui.perfetto.dev", fo_doc_bytes(call->doc, bytes));
	if (st == FO_OK && r && r->ranks)
		say_absent(call, r);
	fo_timeline_fini(&x.predicted.t);
	for (int i = 0; i < x.programs; i++) {
		fo_unrolled_fini(&x.unrolled[i]);
		fo_program_fini(&x.program[i]);
	}
	fo_arena_fini(&x.arena);
	return st;
}

static fo_status export_run(const struct fo_cli_call *call, const struct fo_record *r)
{
	const struct export *in = call->in;
	char *path;
	FO_TRY(want_all(in, r));
	if (*in->tensorboard) {
		FO_TRY(fo_tensorboard_export(r, in->tensorboard, &path));
		say_wrote(call, "tensorboard", path, "%lld %s, %lld %s", (long long)r->step.n,
			  fo_word(r->step.n, "step", "steps"), (long long)r->evals,
			  fo_word(r->evals, "evaluation", "evaluations"));
		free(path);
	}
	if (*in->prometheus) {
		struct fo_prometheus p;
		fo_prometheus_of(r, &p);
		FO_TRY(fo_prometheus_write(&p, in->prometheus, true));
		say_wrote(call, "prometheus", in->prometheus, "as of step %lld", (long long)p.step);
	}
	return *in->trace ? write_trace(call, r) : FO_OK;
}

/* ---- operations of anybody's traces ---- */

struct job {
	const struct fo_trace_set *set;
	int64_t rows;
};

static fo_status fill_csv(const struct fo_trace_sink *sink, void *ctx)
{
	struct job *job = ctx;
	return fo_operations_csv(job->set, sink, &job->rows);
}

static fo_status fill_chrome(const struct fo_trace_sink *sink, void *ctx)
{
	struct job *job = ctx;
	return fo_operations_chrome(job->set, sink, &job->rows);
}

/* An output that is one of the traces themselves. */
static fo_status is_no_trace(const char *path, const struct fo_trace_set *s)
{
	struct stat out, in;
	for (int i = 0; i < s->count; i++)
		if (!stat(path, &out) && !stat(s->rank[i]->path, &in) && out.st_dev == in.st_dev &&
		    out.st_ino == in.st_ino)
			return fo_hint(fo_fail(FO_EARG, "'%s' is one of the traces: not replaced", path),
				       "another name for what is written");
	return FO_OK;
}

static fo_status write_one(const struct fo_cli_call *call, const char *key, const char *path,
			   fo_status (*fill)(const struct fo_trace_sink *, void *), const struct fo_trace_set *s)
{
	struct job job = { s, 0 };
	int64_t bytes;
	if (!*path)
		return FO_OK;
	FO_TRY(write_file(path, fill, &job, &bytes));
	say_wrote(call, key, path, "%lld operations of %d rank%s, %s", (long long)job.rows, s->count,
		  fo_plural(s->count), fo_doc_bytes(call->doc, bytes));
	return FO_OK;
}

static fo_status export_traces(const struct fo_cli_call *call)
{
	const struct export *in = call->in;
	const char *chrome = in->chrome, *csv = in->csv;
	struct fo_trace_set s;
	if (*chrome)
		FO_TRY(check_place(chrome));
	if (*csv)
		FO_TRY(check_place(csv));
	FO_TRY(fo_trace_set_open(&s, (const char *const *)call->argv + 1, call->argc - 1));
	fo_status st = is_no_trace(csv, &s);
	if (st == FO_OK)
		st = is_no_trace(chrome, &s);
	if (st == FO_OK)
		st = write_one(call, "csv", csv, fill_csv, &s);
	if (st == FO_OK)
		st = write_one(call, "chrome", chrome, fill_chrome, &s);
	fo_trace_set_fini(&s);
	return st;
}

/* ---- the command ---- */

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
	if (!traces)
		FO_TRY(fo_cli_no_more_args(call->command, call->argc, call->argv, 1));
	FO_TRY(check(in, dir));
	if (traces)
		return export_traces(call);
	if (!dir)
		return write_trace(call, NULL);
	struct fo_record r;
	unsigned with = *in->prometheus ? FO_RECORD_WITH_PROGRAM : 0;
	if (*in->trace)
		with = FO_RECORD_WITH_RANKS;
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
	.text = "RUN is a run directory (run.dir). Training writes the first and the last by itself with "
		"--report.tensorboard=yes and --report.prometheus=FILE. TRACE is what flatout diagnose reads: "
		"--chrome and --csv write every GPU operation with its class, step, operator, pass, and the cause "
		"of the gap in front of it.\n\n"
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
