/* What each file is, by its content. */
#include "health/health_int.h"

#include "base/fs.h"
#include "base/text.h"
#include "trace/foreign.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A folder of more files is no folder of a job's records. */
enum { FOLDER_FILES = 4096 };
/* A claim is a page of text. */
#define CLAIM_BYTES ((size_t)64 << 10)

static struct fo_health_file *add_file(struct fo_health *h, const char *path, bool named)
{
	fo_array_room(&h->file, &h->file_cap, h->files, sizeof *h->file);
	h->file[h->files] = (struct fo_health_file){ .path = fo_arena_strdup(&h->arena, path),
						     .named = named,
						     .st = FO_EFORMAT };
	return &h->file[h->files++];
}

/* Keeps this thread's error as the reason why the file is not used. */
static void refuse(struct fo_health *h, struct fo_health_file *f, fo_status st)
{
	const char *hint = *fo_err_hint() ? fo_health_text(h, "; %s", fo_err_hint()) : "";
	f->kind = FO_HEALTH_NONE;
	f->st = st;
	f->why = fo_health_text(h, "%s%s", fo_err_text(), hint);
	fo_err_clear();
}

/* ---- logs ---- */

static struct fo_log_spread rates(const struct fo_log_account *a)
{
	size_t *line = fo_xmalloc((a->log->steps + 1) * sizeof *line), n = fo_log_counted(a->log, line), k = 0;
	double *rate = fo_xmalloc((n + 1) * sizeof *rate);
	for (size_t i = 0; i < n; i++) {
		double v = fo_log_rate_at(a, line[i]);
		if (isfinite(v) && v > 0)
			rate[k++] = v;
	}
	struct fo_log_spread s = fo_log_spread_of(rate, k);
	free(rate);
	free(line);
	return s;
}

/* A program's source holds its lines of progress, too, but no figure in them; a test of it holds a few. A log that was
 * only found in a folder has more. */
enum { FOUND_LINES = 3 };
static bool says_something(const struct fo_log *log, bool named)
{
	static const enum fo_log_field figure[] = { FO_LOG_LOSS, FO_LOG_MFU, FO_LOG_TFLOPS, FO_LOG_RATE,
						    FO_LOG_RATE_ALL };
	size_t least = named ? 1 : FOUND_LINES;
	if (!log->kind.id || (log->steps < least && isnan(log->summary.seconds)))
		return false;
	bool yes = !isnan(log->summary.seconds) || !isnan(log->time.median);
	for (size_t i = 0; i < sizeof figure / sizeof *figure; i++)
		yes |= log->steps && !isnan(fo_log_median(log, figure[i]));
	return yes;
}

fo_status fo_health_account(struct fo_health_log *l, const struct fo_log_given *given)
{
	FO_TRY(fo_log_account(&l->log, given, &l->account));
	l->rate = rates(&l->account);
	return FO_OK;
}

/* Options that name no model or device are refused before files are read, so an account fails for its file alone. */
static bool take_log(struct fo_health *h, struct fo_health_file *f)
{
	struct fo_health_log *l = fo_arena_alloc(&h->arena, sizeof *l);
	const struct fo_log_given given = { .model = h->given.model,
					    .device = h->given.device,
					    .devices_file = h->given.devices_file,
					    .dtype = h->given.dtype,
					    .seq = h->given.seq,
					    .tokens_per_step = h->given.tokens_per_step };
	*l = (struct fo_health_log){ .path = f->path };
	/* A log whose lines are of several runs is one, too: the reader's reason stays. */
	fo_status st = fo_log_read(&f->path, 1, &l->log);
	bool known = says_something(&l->log, f->named);
	if (known && st == FO_OK)
		st = fo_health_account(l, &given);
	if (!known || st != FO_OK) {
		if (known)
			refuse(h, f, st);
		fo_err_clear();
		fo_log_account_fini(&l->account);
		fo_log_fini(&l->log);
		return known;
	}
	fo_array_room(&h->log, &h->log_cap, h->logs, sizeof *h->log);
	h->log[h->logs++] = l;
	f->kind = FO_HEALTH_LOG;
	f->what = fo_health_text(h, "log of %s, %zu line%s of steps", l->log.kind.name, l->log.steps,
				 fo_plural(l->log.steps));
	return true;
}

/* ---- claims ---- */

static bool take_claim(struct fo_health *h, struct fo_health_file *f)
{
	struct fo_health_claim claim;
	char *text;
	size_t len;
	if (fo_fs_read_regular(&h->arena, f->path, CLAIM_BYTES, &text, &len) != FO_OK ||
	    !fo_health_is_claim(text, len)) {
		fo_err_clear();
		return false;
	}
	fo_status st = fo_health_read_claim(h, f->path, text, len, &claim);
	if (st != FO_OK) {
		refuse(h, f, st);
		return true;
	}
	fo_array_room(&h->claim, &h->claim_cap, h->claims, sizeof *h->claim);
	h->claim[h->claims++] = claim;
	f->kind = FO_HEALTH_CLAIM;
	f->what = "what somebody claims of a change";
	return true;
}

/* ---- plans ---- */

static bool take_plan(struct fo_health *h, struct fo_health_file *f)
{
	struct fo_health_plan p = { .path = f->path };
	if (!fo_plan_file_here(f->path))
		return false;
	fo_status st = fo_plan_file_read(&p.plan, f->path, &h->arena);
	if (st != FO_OK) {
		refuse(h, f, st);
		return true;
	}
	fo_array_room(&h->plan, &h->plan_cap, h->plans, sizeof *h->plan);
	h->plan[h->plans++] = p;
	f->kind = FO_HEALTH_PLAN;
	f->what = fo_health_text(h, "plan of %s on %.0f x %s", p.plan.model, p.plan.devices, p.plan.device);
	return true;
}

/* ---- folders of ours ---- */

static bool holds(const char *dir, const char *name)
{
	struct fo_arena a = { 0 };
	bool yes = fo_fs_exists(fo_arena_printf(&a, "%s/%s", dir, name));
	fo_arena_fini(&a);
	return yes;
}

static void take_ladder(struct fo_health *h, struct fo_health_file *f)
{
	struct fo_ladder *l = fo_arena_alloc(&h->arena, sizeof *l);
	fo_status st = fo_ladder_read(l, f->path);
	if (st != FO_OK) {
		refuse(h, f, st);
		return;
	}
	fo_array_room(&h->ladder, &h->ladder_cap, h->ladders, sizeof *h->ladder);
	h->ladder[h->ladders++] = l;
	f->kind = FO_HEALTH_LADDER;
	f->what = fo_health_text(h, "ladder of %d rung%s", l->rungs, fo_plural(l->rungs));
}

static void take_run(struct fo_health *h, struct fo_health_file *f)
{
	struct fo_record *r = fo_arena_alloc(&h->arena, sizeof *r);
	fo_status st = fo_record_open(r, f->path, 0);
	if (st != FO_OK) {
		refuse(h, f, st);
		return;
	}
	fo_array_room(&h->run, &h->run_cap, h->runs, sizeof *h->run);
	h->run[h->runs++] = r;
	f->kind = FO_HEALTH_RUN;
	f->what = fo_health_text(h, "run of this program, %lld step%s", (long long)r->step.n, fo_plural(r->step.n));
}

/* ---- one file, one folder ---- */

static void take_file(struct fo_health *h, const char *path, bool named)
{
	struct fo_health_file *f = add_file(h, path, named);
	int fd;
	fo_status st = fo_fs_open_regular(path, &fd);
	if (st != FO_OK) {
		refuse(h, f, st);
		return;
	}
	close(fd);
	if (fo_foreign_is_trace(path)) {
		f->kind = FO_HEALTH_TRACE;
		f->what = "trace";
		return;
	}
	if (take_plan(h, f) || take_claim(h, f) || take_log(h, f) || fo_health_take_job(h, f) ||
	    fo_health_take_host(h, f))
		return;
	if (f->why)
		return;
	const struct fo_foreign *known = fo_foreign_of(path);
	/* Any text may be a log: that it is one tells nothing. */
	bool tells = known && strncmp(known->what, "a text", strlen("a text")) != 0;
	if (tells && strstr(known->what, "training log")) {
		f->why = "it is a training log in which no step with a time or another figure was found";
		return;
	}
	const char *is = tells ? fo_health_text(h, "it is %s, ", known->what) : "it is ";
	f->why = fo_health_text(h,
				"%snone of the files that health reads: logs, traces, configurations, host files, "
				"ladders, runs, plans, claims",
				is);
}

/* Takes the files of a folder. Traces stay together: a folder of several recordings is one job's. */
static void take_folder(struct fo_health *h, const char *path, bool named)
{
	char **list;
	size_t n, used = 0;
	size_t first = h->files;
	fo_status st = fo_fs_list(&h->arena, path, FOLDER_FILES, &list, &n);
	for (size_t i = 0; st == FO_OK && i < n; i++)
		take_file(h, list[i], false);
	for (size_t i = first; i < h->files; i++)
		used += h->file[i].kind != FO_HEALTH_NONE;
	if (st == FO_OK && used)
		return;
	struct fo_health_file *f = add_file(h, path, named);
	if (st != FO_OK)
		refuse(h, f, st);
	else
		f->why = n ? "no file in this folder is a training log, a trace, or another record that is read here"
			   : "this folder is empty";
}

void fo_health_take(struct fo_health *h, const char *path, bool named)
{
	if (!fo_fs_is_dir(path))
		take_file(h, path, named);
	else if (holds(path, "plan.json"))
		take_ladder(h, add_file(h, path, named));
	else if (holds(path, "run.json") || holds(path, "log.jsonl"))
		take_run(h, add_file(h, path, named));
	else
		take_folder(h, path, named);
}
