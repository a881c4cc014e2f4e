#define _GNU_SOURCE /* pipe2 */
#include "ladder/engine/turns.h"
#include "ladder/plan_int.h"

#include "base/fs.h"
#include "base/retry.h"
#include "ckpt/ckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct ladder {
	const struct fo_ladder_plan *p;
	const struct fo_ladder_hooks *h;
	volatile sig_atomic_t *stop; /* shared with the child: stops its training */
	const char *data;            /* folder of shards that all rungs read */
	bool failed[FO_LADDER_MAX_RUNGS];
};
/* ---- in the child ---- */

struct child {
	struct ladder *l;
	const struct fo_ladder_turn *t;
	struct fo_train_hooks theirs;
};

static void on_event(void *ctx, const struct fo_event *e)
{
	struct child *c = ctx;
	if (c->theirs.event)
		c->theirs.event(c->theirs.ctx, e);
	/* The last turn ends by itself, with an evaluation. */
	if (e->kind == FO_EVENT_STEP && e->step >= c->t->end && e->step < e->taken->steps)
		*c->l->stop = 1;
}

static void on_progress(void *ctx, const char *what, const char *unit, double done, double total)
{
	const struct child *c = ctx;
	if (c->theirs.progress)
		c->theirs.progress(c->theirs.ctx, what, unit, done, total);
}

static fo_status train_turn(struct child *c)
{
	struct fo_opt_set s;
	struct fo_run r;
	struct fo_train_result result = { 0 };
	fo_status st = fo_ladder_plan_run(c->l->p, c->t->rung, c->l->data, &s, &r);
	if (st == FO_OK) {
		char *json = c->l->h->run_json ? c->l->h->run_json(c->l->h->ctx, &s) : NULL;
		struct fo_train_hooks h = {
			.ctx = c, .progress = on_progress, .event = on_event, .stop = c->l->stop, .run_json = json
		};
		st = fo_train(&r, &h, &result);
		free(json);
	}
	fo_train_result_fini(&result);
	fo_opt_fini(&s);
	/* A turn that ends before the run's last step was stopped, by us or by the user. */
	return st == FO_EINTERRUPT ? FO_OK : st;
}

/* Which tokens the steps of each rung are made of: so that losses are not compared as if they were of one text where
 * they are not. */
static fo_status count_text(const struct ladder *l, const struct fo_shard *s)
{
	struct fo_arena a = { 0 };
	struct fo_str json = { 0 };
	struct fo_ladder_text t = { .tokens = s->tokens };
	char *path = fo_arena_printf(&a, "%s/" FO_LADDER_TEXT_FILE, l->p->dir);
	fo_status st = FO_OK;
	for (int i = 0; i < l->p->rungs && st == FO_OK; i++) {
		struct fo_opt_set set;
		struct fo_run r;
		struct fo_text_seen seen = { 0 };
		st = fo_ladder_plan_run(l->p, i, NULL, &set, &r);
		/* Which rows make a step does not depend on how they are split into micro-batches. */
		struct fo_batch_shape shape = { .seq = r.seq,
						.rows = r.batch_rows ? r.batch_rows : r.rows * r.micro_batches,
						.micro_batches = 1,
						.packing = (enum fo_packing)r.packing };
		if (st == FO_OK)
			st = fo_text_seen(s, &shape, (uint64_t)r.seed, r.steps, l->stop, &seen);
		t.rung[i].served = seen.served;
		t.rung[i].distinct = seen.distinct;
		t.rung[i].reached = seen.reached;
		fo_opt_fini(&set);
	}
	fo_ladder_text_json(&t, l->p, &json);
	if (st == FO_OK)
		st = fo_fs_write_atomic(path, json.data, json.len);
	fo_str_fini(&json);
	fo_arena_fini(&a);
	return st;
}

static fo_status prepare_text(struct child *c)
{
	struct fo_opt_set s;
	struct fo_run r;
	struct fo_model m;
	struct fo_corpus corpus = { 0 };
	fo_status st = fo_ladder_plan_run(c->l->p, 0, NULL, &s, &r);
	r.dir = c->l->p->dir;
	if (st == FO_OK)
		st = fo_run_model(&r, &m);
	if (st == FO_OK)
		st = fo_corpus_open(&corpus, &r, m.vocab, on_progress, c, c->l->stop);
	if (st == FO_OK)
		st = count_text(c->l, &corpus.train);
	fo_corpus_close(&corpus);
	fo_opt_fini(&s);
	return st;
}

/* Never returns: the process must not fall back into the caller's frames. */
static void child_main(struct ladder *l, const struct fo_ladder_turn *t, int fd, pid_t parent)
{
	struct child c = { .l = l, .t = t };
	struct fo_err v;
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* whoever kills the ladder does not want its turn to go on */
	if (getppid() != parent)
		_exit(1);
	signal(SIGINT, SIG_IGN); /* a terminal sends these to both; the parent passes them on through `stop` */
	signal(SIGHUP, SIG_IGN);
	signal(SIGTERM, SIG_DFL);
	if (l->h->child)
		l->h->child(l->h->ctx, t, &c.theirs);
	fo_err_save(&v, t->rung < 0 ? prepare_text(&c) : train_turn(&c));
	fflush(NULL);
	_exit(fo_write_all(fd, &v, sizeof v, NULL) ? 1 : 0);
}

/* ---- in the parent ---- */

/* Reads until the child's end of the pipe closes, and passes the user's wish to stop on to it. false: the child said
 * nothing. */
static bool read_verdict(struct ladder *l, int fd, struct fo_err *v)
{
	size_t have = 0;
	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		/* A signal ends poll at once; one that comes in front of it waits for a tenth of a second. */
		if (poll(&p, 1, 100) < 0 && errno != EINTR)
			return false;
		if (l->h->stop && *l->h->stop)
			*l->stop = 1;
		if (!p.revents)
			continue;
		ssize_t n = read(fd, (char *)v + have, sizeof *v - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return have == sizeof *v;
		have += (size_t)n;
		if (have == sizeof *v)
			return true;
	}
}

static void describe_death(int status, char *out, size_t size)
{
	if (WIFSIGNALED(status))
		snprintf(out, size, "its process was ended by signal %d (%s)%s", WTERMSIG(status),
			 strsignal(WTERMSIG(status)), WTERMSIG(status) == SIGKILL ? ": out of memory?" : "");
	else
		snprintf(out, size, "its process ended with %d and said nothing", WEXITSTATUS(status));
}

/* Runs one child. *v: what it said or how it died. */
static fo_status run_child(struct ladder *l, const struct fo_ladder_turn *t, struct fo_err *v)
{
	int fd[2], status = 0;
	if (pipe2(fd, O_CLOEXEC))
		return fo_fail(FO_EIO, "cannot make a pipe: %s", strerror(errno));
	*l->stop = 0;
	fflush(NULL); /* else the child writes it again */
	pid_t parent = getpid(), pid = fork();
	if (pid == 0) {
		close(fd[0]);
		child_main(l, t, fd[1], parent);
	}
	close(fd[1]);
	if (pid < 0) {
		close(fd[0]);
		return fo_fail(FO_EIO, "cannot start a process: %s", strerror(errno));
	}
	*v = (struct fo_err){ 0 };
	bool said = read_verdict(l, fd[0], v);
	close(fd[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!said) {
		v->st = FO_EIO;
		describe_death(status, v->text, sizeof v->text);
	}
	return FO_OK;
}

static fo_status prepare(struct ladder *l, struct fo_arena *a)
{
	struct fo_err v;
	struct fo_ladder_turn t = { .plan = l->p, .rung = -1 };
	if (fo_ladder_plan_prepares(l->p))
		l->data = fo_arena_printf(a, "%s/data", l->p->dir);
	else if (fo_fs_exists(fo_arena_printf(a, "%s/" FO_LADDER_TEXT_FILE, l->p->dir)))
		return FO_OK; /* read where it is, and counted already */
	FO_TRY(run_child(l, &t, &v));
	return v.st == FO_OK ? FO_OK : fo_err_raise(&v);
}

/* Steps that the rung's newest whole checkpoint has. */
static int64_t steps_saved(const struct fo_ladder_rung *g)
{
	struct fo_arena a = { 0 };
	char *path = NULL;
	long long step = 0;
	if (fo_ckpt_newest(&a, fo_arena_printf(&a, "%s/checkpoints", g->dir), false, &path) != FO_OK || !path ||
	    sscanf(strrchr(path, '/') ? strrchr(path, '/') : path, "/step-%lld", &step) != 1)
		step = 0;
	fo_arena_fini(&a);
	return step;
}

static int turns_left(const struct ladder *l, int round)
{
	int n = 0;
	for (int k = round; k < l->p->rounds; k++)
		for (int i = 0; i < l->p->rungs; i++)
			n += !l->failed[i] &&
			     steps_saved(&l->p->rung[i]) < fo_ladder_round_end(l->p->steps, l->p->rounds, k);
	return n;
}

/* Writes the reason of a failure beside the rung, where the result reads it; a turn that works removes it. */
static void note_failure(const struct fo_ladder_rung *g, const char *text)
{
	struct fo_arena a = { 0 };
	char *path = fo_arena_printf(&a, "%s/" FO_LADDER_FAILED_FILE, g->dir),
	     *line = fo_arena_printf(&a, "%s\n", text ? text : "");
	if (!text)
		unlink(path);
	else if (fo_fs_mkdirs(g->dir) != FO_OK || fo_fs_write_atomic(path, line, strlen(line)) != FO_OK)
		fo_err_clear(); /* the caller's hook has told it */
	fo_arena_fini(&a);
}

static fo_status one_turn(struct ladder *l, int rung, int round, int *turn)
{
	const struct fo_ladder_rung *g = &l->p->rung[rung];
	struct fo_err v;
	struct fo_ladder_turn t = { .plan = l->p,
				    .rung = rung,
				    .round = round,
				    .first = steps_saved(g),
				    .end = fo_ladder_round_end(l->p->steps, l->p->rounds, round) };
	if (l->failed[rung] || t.first >= t.end)
		return FO_OK;
	t.turn = ++*turn;
	t.turns = *turn - 1 + turns_left(l, round);
	if (l->h->turn)
		l->h->turn(l->h->ctx, &t);
	FO_TRY(run_child(l, &t, &v));
	bool stopped = l->h->stop && *l->h->stop;
	/* A turn that was stopped before it could save has not failed. */
	l->failed[rung] = v.st != FO_OK && !stopped;
	if (!stopped)
		note_failure(g, l->failed[rung] ? v.text : NULL);
	if (l->h->done)
		l->h->done(l->h->ctx, &t, l->failed[rung] ? v.text : NULL);
	return FO_OK;
}

static fo_status all_turns(struct ladder *l)
{
	int order[FO_LADDER_MAX_RUNGS], turn = 0;
	for (int round = 0; round < l->p->rounds; round++) {
		fo_ladder_order(l->p->seed, round, l->p->rungs, order);
		for (int i = 0; i < l->p->rungs; i++) {
			FO_TRY(one_turn(l, order[i], round, &turn));
			if (l->h->stop && *l->h->stop)
				return fo_hint(fo_fail(FO_EINTERRUPT, "stopped in round %d of %lld", round + 1,
						       (long long)l->p->rounds),
					       "the same command goes on from there");
		}
	}
	return FO_OK;
}

fo_status fo_ladder_turns(const struct fo_ladder_plan *p, const struct fo_ladder_hooks *h)
{
	struct ladder l = { .p = p, .h = h };
	struct fo_arena a = { 0 };
	enum fo_isa isa;
	/* Chosen once, here: where sets are timed against each other, turns that chose for themselves could choose
	 * otherwise on a busy machine, and a rung would go on with other kernels than it began with. Children inherit
	 * what this found. */
	FO_TRY(fo_isa_choose(&isa));
	void *shared = mmap(NULL, sizeof *l.stop, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return fo_fail(FO_ENOMEM, "no memory to share with the turns: %s", strerror(errno));
	l.stop = shared;
	fo_status st = prepare(&l, &a);
	if (st == FO_OK)
		st = all_turns(&l);
	munmap(shared, sizeof *l.stop);
	fo_arena_fini(&a);
	return st;
}
