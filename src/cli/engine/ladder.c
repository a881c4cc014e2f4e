/* Running `flatout ladder`: what is shown while the rungs take turns. */
#include "cli/ladder.h"
#include "cli/engine/screen.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/retry.h"
#include "ladder/engine/turns.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

struct watch {
	struct fo_screen screen;
	const struct fo_ladder_turn *t; /* in the child: its own */
	int64_t begin_ns;
	bool json;
};

static void child_step(void *ctx, const struct fo_train_step *s)
{
	struct watch *w = ctx;
	int64_t now = fo_now_ns();
	char rate[32] = "- ", line[160];
	if (!w->screen.live || now - w->screen.last_ns < 200000000)
		return;
	w->screen.last_ns = now;
	if (!s->metered)
		fo_str_si(rate, s->tokens_per_second, "");
	snprintf(line, sizeof line, "turn %d/%d %s: step %lld of %lld, loss %.4f, %stok/s", w->t->turn, w->t->turns,
		 w->t->plan->rung[w->t->rung].name, (long long)s->step, (long long)w->t->end, s->loss, rate);
	fo_cli_live(w->screen.out, line);
}

static void child_warn(void *ctx, const char *text)
{
	struct watch *w = ctx;
	const char *rung = w->t->rung < 0 ? "data" : w->t->plan->rung[w->t->rung].name;
	if (w->screen.live)
		fputs("\r\033[K", stderr);
	fprintf(stderr, "warning: rung '%s': %s\n", rung, fo_cli_seen(text));
}

static void child_event(void *ctx, const struct fo_event *e)
{
	if (e->kind == FO_EVENT_STEP)
		child_step(ctx, e->taken);
	if (e->kind == FO_EVENT_WARNING)
		child_warn(ctx, e->warning);
}

static void child_progress(void *ctx, const char *what, const char *unit, double done, double total)
{
	struct watch *w = ctx;
	fo_screen_progress(&w->screen, what, unit, done, total);
}

static void child(void *ctx, const struct fo_ladder_turn *t, struct fo_train_hooks *out)
{
	struct watch *w = ctx;
	w->t = t;
	/* The corpus is announced once; the turns only open it again. */
	*out = (struct fo_train_hooks){ .ctx = w,
					.event = child_event,
					.progress = t->rung < 0 ? child_progress : NULL };
}

static char *run_json(void *ctx, struct fo_opt_set *s)
{
	(void)ctx;
	return fo_screen_run_json(s);
}

/* One line per turn where the output is no terminal. */
static void turn_done(void *ctx, const struct fo_ladder_turn *t, const char *failure)
{
	struct watch *w = ctx;
	const struct fo_ladder_rung *g = &t->plan->rung[t->rung];
	double seconds = (double)(fo_now_ns() - w->begin_ns) * 1e-9, left = seconds / t->turn * (t->turns - t->turn);
	if (w->screen.live)
		fprintf(w->screen.out, "\r\033[K");
	if (failure)
		fprintf(stderr, "warning: rung '%s' failed and is left out: %s\n", g->name, fo_cli_seen(failure));
	if (!w->screen.live)
		fprintf(w->screen.out, "turn %d/%d: round %d, %s, steps %lld to %lld; %.0f s left\n", t->turn, t->turns,
			t->round + 1, g->name, (long long)t->first + 1, (long long)t->end, left);
	fflush(w->screen.out);
}

static void turn_begins(void *ctx, const struct fo_ladder_turn *t)
{
	struct watch *w = ctx;
	double seconds = (double)(fo_now_ns() - w->begin_ns) * 1e-9;
	char line[200];
	snprintf(line, sizeof line, "turn %d/%d %s: round %d; %.0f s left", t->turn, t->turns,
		 t->plan->rung[t->rung].name, t->round + 1,
		 t->turn > 1 ? seconds / (t->turn - 1) * (t->turns - t->turn + 1) : 0);
	if (w->screen.live)
		fo_cli_live(w->screen.out, line);
}

/* Two ladders in one folder would take each other's turns. */
static fo_status lock_folder(const char *dir, int *lock)
{
	struct fo_arena a = { 0 };
	const char *path = fo_arena_printf(&a, "%s/lock", dir);
	fo_status st = fo_fs_exists(fo_arena_printf(&a, "%s/run.json", dir))
			       ? fo_hint(fo_fail(FO_EARG, "'%s' is the directory of a training run", dir),
					 "a ladder has a folder of its own: choose another --run.dir")
			       : fo_fs_mkdirs(dir);
	if (st == FO_OK && (*lock = fo_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) < 0)
		st = fo_fs_refuse("open", path, errno);
	fo_arena_fini(&a);
	FO_TRY(st);
	/* The turn of a ladder that was killed this moment holds it until the kernel has ended it, too. */
	const struct timespec pause = { .tv_nsec = 100000000 };
	bool ours = false;
	for (int i = 0; i < 20 && !ours; i++) {
		if (i)
			nanosleep(&pause, NULL);
		ours = !fo_flock(*lock, LOCK_EX | LOCK_NB);
	}
	if (!ours)
		return fo_hint(fo_fail(FO_EIO, "another process is running a ladder in '%s'", dir),
			       "stop that one or choose another --run.dir");
	return FO_OK;
}

fo_status fo_cli_ladder_run(const struct fo_cli_ladder *in, struct fo_ladder_plan *p)
{
	struct watch w = { .begin_ns = fo_now_ns(), .json = in->json };
	int lock = -1;
	p->threads = in->run.threads ? (int)in->run.threads : fo_cpu_threads();
	fo_screen_init(&w.screen, &in->run, in->json);
	fo_status st = lock_folder(p->dir, &lock);
	if (st == FO_OK)
		st = fo_ladder_plan_keep(p);
	const struct fo_ladder_hooks h = { .ctx = &w,
					   .child = child,
					   .run_json = run_json,
					   .turn = turn_begins,
					   .done = turn_done,
					   .stop = &fo_stop_requested };
	fo_catch_signals();
	if (st == FO_OK)
		st = fo_ladder_turns(p, &h);
	if (st == FO_OK || st == FO_EINTERRUPT) {
		struct fo_err why;
		fo_err_save(&why, st);
		fo_status shown = fo_cli_ladder_report(p->dir, in, true);
		st = st == FO_OK ? shown : fo_err_raise(&why);
	}
	if (lock >= 0)
		close(lock);
	return st;
}
