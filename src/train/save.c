/* Rank 0's side of checkpoints: when one is due it says so to all ranks, looks how far they are between steps, and
 * tells the run what came of it. What each rank does is in keep.c. */
#include "train/session.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fo_saver {
	struct fo_setup *set;
	int64_t saved_step; /* the newest checkpoint that is known to be whole; -1: none */
	/* A checkpoint that is written beside training: what is waited for. */
	enum { NOTHING, BEGINNING, ROWS, ENDING } stage;
	int64_t step, begun_ns;
	double blocked;
	bool closing; /* nobody listens any more */
};

/* Each rank fills in its own tensors. */
static struct fo_ckpt_content content_of(const struct fo_setup *s)
{
	return (struct fo_ckpt_content){
		.model = &s->step.model,
		.weight_dtype = s->step.program.run.precision == FO_PRECISION_BF16 ? "bfloat16" : "float32",
		.tokenizer = s->corpus.tokenizer,
		.run_config_json = s->run_json,
		.file_bytes = s->run->ckpt_file,
	};
}

static fo_status all(struct fo_saver *v, const struct fo_keep_task *task, bool *done)
{
	return fo_team_keep(v->set->step.team, &v->set->keep, task, done);
}

fo_status fo_saver_open(struct fo_saver **out, struct fo_setup *s, int log)
{
	struct fo_saver *v = *out = fo_xmalloc(sizeof *v);
	*v = (struct fo_saver){ .set = s, .saved_step = s->found.path ? s->found.meta.step : -1 };
	s->keep.log = log;
	return all(v, &(struct fo_keep_task){ .kind = FO_KEEP_OPEN, .beside = s->async }, NULL);
}

/* ---- the loop's side ---- */

void fo_saver_newest(const struct fo_saver *v, char *path, size_t size)
{
	*path = 0;
	if (v->saved_step >= 0)
		snprintf(path, size, "%s/step-%08lld", v->set->folder.ckpt_dir, (long long)v->saved_step);
}

static void report(struct fo_saver *v, int64_t step, double seconds, double blocked)
{
	char path[FO_PATH_BYTES];
	v->saved_step = step;
	fo_saver_newest(v, path, sizeof path);
	struct fo_event e = { .kind = FO_EVENT_CHECKPOINT,
			      .step = step,
			      .checkpoint = {
				      .step = step, .path = path, .seconds = seconds, .blocked_seconds = blocked } };
	if (fo_events_send(v->set->events, e) != FO_OK)
		fo_events_warn(v->set->events, "%s", fo_err_text());
}

static void warn_not_saved(struct fo_saver *v, const char *why)
{
	fo_events_warn(v->set->events, "%s; training goes on, and the checkpoints before it stay", why);
}

/* A task about the checkpoint that rank 0 has begun. */
static struct fo_keep_task task_of(const struct fo_saver *v, enum fo_keep_kind kind, bool beside)
{
	struct fo_keep_task t = { .kind = (int)kind,
				  .beside = beside,
				  .step = v->set->keep.meta.step,
				  .file_bytes = v->set->run->ckpt_file };
	snprintf(t.path, sizeof t.path, "%s", v->set->folder.ckpt_dir);
	return t;
}

/* All ranks have written their rows, or failed (st): the checksums are added up, and the ranks are done with it. The
 * error is left for FO_JOB_END. */
static void end_rows(struct fo_saver *v, fo_status st)
{
	struct fo_keep *p = &v->set->keep;
	struct fo_keep_task t = task_of(v, FO_KEEP_END, false);
	struct fo_err why = { .st = FO_OK };
	if (st != FO_OK)
		fo_err_save(&why, st);
	t.add = st == FO_OK;
	st = all(v, &t, NULL);
	if (st != FO_OK && why.st == FO_OK)
		fo_err_save(&why, st);
	p->error = why;
}

/* The checkpoint that was written beside training is over. */
static void close_stage(struct fo_saver *v)
{
	struct fo_keep *p = &v->set->keep;
	v->stage = NOTHING;
	fo_keep_drop(p);
	if (v->closing)
		return;
	if (p->error.st == FO_OK)
		report(v, v->step, (double)(fo_now_ns() - v->begun_ns) * 1e-9, v->blocked);
	else
		warn_not_saved(v, p->error.text);
}

/* Goes on with it as far as it can; wait: waits for what is under way. True: there is more to go on with. */
static bool advance(struct fo_saver *v, bool wait)
{
	struct fo_keep *p = &v->set->keep;
	const bool team = v->set->step.team != NULL;
	fo_status st = FO_OK;
	bool done = true; /* where the task itself fails nothing more is waited for */
	if (v->stage == NOTHING || !fo_keep_idle(p, wait))
		return false;
	if (v->stage == BEGINNING && (!team || p->error.st != FO_OK)) {
		if (team) { /* what was begun is removed, with the error that it failed with */
			fo_keep_hand(p, FO_JOB_END);
			v->stage = ENDING;
			return true;
		}
		close_stage(v);
	} else if (v->stage == BEGINNING) {
		struct fo_keep_task t = task_of(v, FO_KEEP_WRITE, true);
		st = all(v, &t, NULL);
		v->stage = ROWS;
	} else if (v->stage == ROWS) {
		struct fo_keep_task t = task_of(v, FO_KEEP_POLL, false);
		t.wait = wait;
		st = all(v, &t, &done);
		if (!done)
			return false;
		end_rows(v, st);
		fo_keep_hand(p, FO_JOB_END);
		v->stage = ENDING;
	} else {
		close_stage(v);
	}
	return v->stage != NOTHING;
}

/* Reports what the writers have finished; wait: after they have finished what is under way. */
static void settle(struct fo_saver *v, bool wait)
{
	while (advance(v, wait))
		;
}

void fo_saver_poll(struct fo_saver *v) { settle(v, false); }

void fo_saver_close(struct fo_saver *v)
{
	if (!v)
		return;
	v->closing = true;
	settle(v, true);
	free(v);
}

/* All of it before anything else goes on. */
static fo_status write_now(struct fo_saver *v, const struct fo_ckpt_meta *meta, int keep)
{
	struct fo_keep *p = &v->set->keep;
	const struct fo_ckpt_content c = content_of(v->set);
	fo_keep_prepare(p, v->set->folder.ckpt_dir, &c, meta, keep, false);
	fo_status st = fo_keep_now(p, FO_JOB_BEGIN);
	if (v->set->step.team) {
		if (st == FO_OK) {
			struct fo_keep_task t = task_of(v, FO_KEEP_WRITE, false);
			end_rows(v, all(v, &t, NULL));
		}
		st = fo_keep_now(p, FO_JOB_END);
	}
	fo_keep_drop(p);
	return st;
}

static fo_status save_here(struct fo_saver *v, const struct fo_ckpt_meta *meta, int keep)
{
	int64_t t0 = fo_now_ns();
	FO_TRY(write_now(v, meta, keep));
	double seconds = (double)(fo_now_ns() - t0) * 1e-9;
	report(v, meta->step, seconds, seconds);
	return FO_OK;
}

/* Copies all ranks' rows, and begins to write them. */
static fo_status begin_beside(struct fo_saver *v, const struct fo_ckpt_meta *meta, int keep, int64_t t0)
{
	struct fo_keep *p = &v->set->keep;
	const struct fo_ckpt_content c = content_of(v->set);
	FO_TRY(all(v, &(struct fo_keep_task){ .kind = FO_KEEP_COPY }, NULL));
	fo_keep_prepare(p, v->set->folder.ckpt_dir, &c, meta, keep, true);
	v->step = meta->step;
	v->blocked = (double)(fo_now_ns() - t0) * 1e-9;
	v->begun_ns = fo_now_ns();
	v->stage = BEGINNING;
	fo_keep_hand(p, FO_JOB_BEGIN);
	return FO_OK;
}

/* FO_OK: the run's folder is where it was. Else the state is saved where it can be, and the error says where. */
static fo_status save_if_lost(struct fo_saver *v, const struct fo_ckpt_meta *meta)
{
	struct fo_folder *f = &v->set->folder;
	struct fo_err cause;
	char path[FO_PATH_BYTES];
	if (f->lost && !f->rescue_dir)
		return fo_fail(FO_EIO, "there is no folder to save the state in");
	fo_status st = fo_folder_check(f, v->set->run_json);
	if (st == FO_OK || !f->rescue_dir)
		return st;
	fo_err_save(&cause, st);
	v->saved_step = -1; /* what was saved before lies elsewhere */
	if (save_here(v, meta, 0) != FO_OK) {
		fo_events_warn(v->set->events, "%s", fo_err_text());
		return fo_err_raise(&cause);
	}
	fo_saver_newest(v, path, sizeof path);
	fo_err_raise(&cause);
	return fo_hint(st, "the state after step %lld is saved in '%s'; --run.dir=%s goes on from there",
		       (long long)meta->step, path, f->rescue_dir);
}

static fo_status save_and_wait(struct fo_saver *v, const struct fo_ckpt_meta *meta, int keep)
{
	settle(v, true);
	FO_TRY(save_if_lost(v, meta));
	return save_here(v, meta, keep);
}

fo_status fo_saver_last(struct fo_saver *v, const struct fo_ckpt_meta *meta, bool due)
{
	if (v->set->run->ckpt_last || due)
		return save_and_wait(v, meta, (int)v->set->run->ckpt_keep);
	settle(v, true);
	return FO_OK;
}

int64_t fo_saver_unsaved(const struct fo_saver *v, int64_t step)
{
	int64_t saved = v->saved_step > 0 ? v->saved_step : 0;
	return !v->set->run->ckpt_last && step > saved ? step - saved : 0;
}

fo_status fo_saver_begin(struct fo_saver *v, const struct fo_ckpt_meta *meta)
{
	int keep = (int)v->set->run->ckpt_keep;
	int64_t t0 = fo_now_ns();
	settle(v, true);
	FO_TRY(save_if_lost(v, meta));
	fo_status st = v->set->keep.started ? begin_beside(v, meta, keep, t0) : save_here(v, meta, keep);
	if (st != FO_OK)
		warn_not_saved(v, fo_err_text());
	return FO_OK;
}

fo_status fo_saver_rescue(struct fo_saver *v, const struct fo_ckpt_meta *meta, fo_status why)
{
	struct fo_events *events = v->set->events;
	struct fo_err cause;
	char path[FO_PATH_BYTES];
	fo_err_save(&cause, why);
	settle(v, true);
	if (fo_folder_check(&v->set->folder, v->set->run_json) != FO_OK)
		fo_events_warn(events, "%s", fo_err_text());
	if (v->set->folder.lost)
		v->saved_step = -1; /* what was saved before lies elsewhere */
	int64_t unsaved = fo_saver_unsaved(v, meta->step);
	if (unsaved)
		fo_events_warn(events, "no weights of the last %lld %s were saved: checkpoint.last=no",
			       (long long)unsaved, fo_word(unsaved, "step", "steps"));
	else if (meta->step > v->saved_step && meta->step > 0 && save_and_wait(v, meta, 0) != FO_OK)
		fo_events_warn(events, "%s", fo_err_text());
	fo_saver_newest(v, path, sizeof path);
	fo_err_raise(&cause);
	if (!*path)
		return why;
	return fo_hint(why, "the state after step %lld is saved in '%s'; %s", (long long)v->saved_step, path,
		       cause.hint[0] ? cause.hint : "the same command goes on from there");
}

fo_status fo_saver_go_back(struct fo_saver *v, struct fo_ckpt_meta *meta, bool *found, bool *torn)
{
	struct fo_setup *s = v->set;
	struct fo_arena a = { 0 };
	struct fo_ckpt_meta m;
	char *path;
	*found = false;
	settle(v, true);
	FO_TRY(fo_folder_check(&s->folder, s->run_json)); /* none of another run's is taken, or removed */
	/* A checkpoint that an interruption left does not count where there is a periodic one: a run that nobody
	 * stopped would go back further, and the two must stay the same. */
	fo_status st = fo_ckpt_pick(&a, s->folder.ckpt_dir, s->run->ckpt_every, NULL, NULL, &path, &m);
	if (st == FO_OK && !path)
		st = fo_ckpt_pick(&a, s->folder.ckpt_dir, 0, NULL, NULL, &path, &m);
	*found = st == FO_OK && path;
	if (*found) { /* what the checkpoint lacks stays as it is */
		st = fo_setup_read(s, path);
		*torn = st != FO_OK;
	}
	if (*found && st == FO_OK) {
		st = fo_ckpt_forget(s->folder.ckpt_dir, m.step);
		fo_setup_adopt(meta, &m);
		v->saved_step = m.step;
	}
	fo_arena_fini(&a);
	return st;
}
