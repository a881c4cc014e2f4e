#define _GNU_SOURCE /* gettid, SYS_gettid */
#include "train/session.h"
#include "base/clock.h"
#include "base/retry.h"
#include "base/thread.h"
#include "train/store_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The writer yields to the threads that compute: weight 110 against their 1024 in Linux's fair scheduler (nice 10
 * against 0), so that it takes a tenth of one core while all are busy and still ends. */
#define WRITER_NICE 10
/* Pieces in which threads copy the state: large against a page, small against the state. */
#define COPY_BYTES ((int64_t)4 << 20)

struct fo_saver {
	struct fo_setup *set;
	int log; /* descriptor of the log, which reaches the disk before a checkpoint; -1: none */
	pthread_t thread;
	bool started;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool busy, quit, finished; /* guarded by lock; finished: done and not reported yet */
	/* The job: the caller's while not busy, the thread's while busy. */
	struct fo_ckpt_content content;
	struct fo_ckpt_meta meta;
	int keep;
	void *copy;
	int64_t copy_bytes;
	struct fo_st_tensor *weight, *state; /* of the copy */
	struct fo_err error;
	double seconds, blocked;
	/* The caller's alone. */
	int64_t saved_step; /* the newest checkpoint that is known to be whole; -1: none */
};

static struct fo_ckpt_content content_of(const struct fo_setup *s)
{
	return (struct fo_ckpt_content){
		.model = &s->step.model,
		.weight_dtype = s->step.program.run.precision == FO_PRECISION_BF16 ? "bfloat16" : "float32",
		.tokenizer = s->corpus.tokenizer,
		.weight = s->tensors.weight,
		.weights = s->tensors.weights,
		.state = s->tensors.state,
		.states = s->tensors.states,
		.run_config_json = s->run_json,
	};
}

/* The log reaches the disk before the checkpoint that it leads to. A log that cannot is no reason to lose the
 * checkpoint. */
static fo_status write_checkpoint(const struct fo_saver *v, const struct fo_ckpt_content *c,
				  const struct fo_ckpt_meta *meta, int keep)
{
	if (v->log >= 0)
		(void)!fo_fdatasync(v->log);
	return fo_ckpt_save(v->set->folder.ckpt_dir, c, meta, keep);
}

/* ---- the writer ---- */

static void *writer(void *arg)
{
	struct fo_saver *v = arg;
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), WRITER_NICE); /* where it fails training is slower */
	/* Touches the copy's pages here, not while a step waits for the first copy. Their contents stay, which are a
	 * device's tables. */
	for (int64_t at = 0; at < v->copy_bytes; at += sysconf(_SC_PAGESIZE)) {
		volatile unsigned char *byte = (unsigned char *)v->copy + at;
		*byte = *byte;
	}
	pthread_mutex_lock(&v->lock);
	v->busy = false;
	pthread_cond_broadcast(&v->changed);
	for (;;) {
		while (!v->busy && !v->quit)
			pthread_cond_wait(&v->changed, &v->lock);
		if (!v->busy)
			break;
		pthread_mutex_unlock(&v->lock);
		int64_t t0 = fo_now_ns();
		fo_status st = write_checkpoint(v, &v->content, &v->meta, v->keep);
		pthread_mutex_lock(&v->lock);
		v->seconds = (double)(fo_now_ns() - t0) * 1e-9;
		if (st == FO_OK)
			v->error.st = FO_OK;
		else
			fo_err_save(&v->error, st);
		v->busy = false;
		v->finished = true;
		pthread_cond_broadcast(&v->changed);
	}
	pthread_mutex_unlock(&v->lock);
	return NULL;
}

/* Tensors whose data lies in the copy where it lies in the store; the copy is memory of this process. */
static struct fo_st_tensor *moved(const struct fo_store *s, const struct fo_st_tensor *t, size_t n, void *copy)
{
	struct fo_st_tensor *m = fo_xmalloc((n + 1) * sizeof *m);
	int64_t bytes;
	const unsigned char *from = fo_store_memory(s, &bytes);
	for (size_t i = 0; i < n; i++) {
		m[i] = t[i];
		m[i].data = (unsigned char *)copy + ((const unsigned char *)t[i].data - from);
		m[i].memory = NULL;
	}
	return m;
}

static fo_status start_writer(struct fo_saver *v)
{
	const struct fo_setup *s = v->set;
	struct fo_store *store = s->step.store;
	/* A device trains on its own memory: the store's host memory is the copy, and the next fetch waits until it is
	 * written. */
	const unsigned char *own = fo_store_memory(store, &v->copy_bytes);
	v->copy = (void *)(uintptr_t)own;
	fo_status st = s->cuda ? fo_store_take(store) : fo_pages_new((size_t)v->copy_bytes, &v->copy);
	if (st != FO_OK) {
		v->copy = NULL;
		return fo_wrap(st, "cannot hold the copy that checkpoints are written from");
	}
	v->weight = moved(store, s->tensors.weight, s->tensors.weights, v->copy);
	v->state = moved(store, s->tensors.state, s->tensors.states, v->copy);
	v->busy = true; /* until the thread is ready */
	st = fo_thread_start(&v->thread, writer, v, "the thread that writes checkpoints");
	v->started = st == FO_OK;
	return st;
}

fo_status fo_saver_open(struct fo_saver **out, struct fo_setup *s, int log)
{
	struct fo_saver *v = *out = fo_xmalloc(sizeof *v);
	v->set = s;
	v->log = log;
	pthread_mutex_init(&v->lock, NULL);
	pthread_cond_init(&v->changed, NULL);
	v->saved_step = s->found.path ? s->found.meta.step : -1;
	return s->async ? start_writer(v) : FO_OK;
}

void fo_saver_close(struct fo_saver *v)
{
	if (!v)
		return;
	if (v->started) {
		pthread_mutex_lock(&v->lock);
		v->quit = true;
		pthread_cond_broadcast(&v->changed);
		pthread_mutex_unlock(&v->lock);
		pthread_join(v->thread, NULL);
	}
	if (!v->set->cuda)
		fo_pages_free(v->copy, (size_t)v->copy_bytes);
	free(v->weight);
	free(v->state);
	pthread_cond_destroy(&v->changed);
	pthread_mutex_destroy(&v->lock);
	free(v);
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

/* Reports what the writer has finished; wait: after it has finished what is under way. */
static void settle(struct fo_saver *v, bool wait)
{
	if (!v->started)
		return;
	pthread_mutex_lock(&v->lock);
	while (wait && v->busy)
		pthread_cond_wait(&v->changed, &v->lock);
	bool finished = v->finished;
	v->finished = false;
	pthread_mutex_unlock(&v->lock);
	if (!finished)
		return;
	if (v->error.st == FO_OK)
		report(v, v->meta.step, v->seconds, v->blocked);
	else
		warn_not_saved(v, v->error.text);
}

void fo_saver_poll(struct fo_saver *v) { settle(v, false); }

static fo_status copy_store(struct fo_saver *v)
{
	int64_t n;
	if (v->set->cuda)
		return fo_exec_fetch(v->set->step.exec);
	FO_TRY(fo_room_step_collect(&v->set->step));
	const unsigned char *from = fo_store_memory(v->set->step.store, &n);
	unsigned char *to = v->copy;
#pragma omp parallel for schedule(static) num_threads(v->set->step.options.threads)
	for (int64_t at = 0; at < n; at += COPY_BYTES)
		memcpy(to + at, from + at, (size_t)(n - at < COPY_BYTES ? n - at : COPY_BYTES));
	return FO_OK;
}

static fo_status save_here(struct fo_saver *v, const struct fo_ckpt_meta *meta, int keep)
{
	struct fo_ckpt_content c = content_of(v->set);
	int64_t t0 = fo_now_ns();
	FO_TRY(fo_room_step_collect(&v->set->step));
	FO_TRY(write_checkpoint(v, &c, meta, keep));
	double seconds = (double)(fo_now_ns() - t0) * 1e-9;
	report(v, meta->step, seconds, seconds);
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
	fo_status st = v->started ? copy_store(v) : save_here(v, meta, keep);
	if (st != FO_OK)
		warn_not_saved(v, fo_err_text());
	if (st != FO_OK || !v->started)
		return FO_OK;
	v->content = content_of(v->set);
	v->content.weight = v->weight;
	v->content.state = v->state;
	v->meta = *meta;
	v->keep = keep;
	v->blocked = (double)(fo_now_ns() - t0) * 1e-9;
	pthread_mutex_lock(&v->lock);
	v->busy = true;
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
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
			       (long long)unsaved, unsaved == 1 ? "step" : "steps");
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
		st = fo_ckpt_read(path, s->tensors.weight, s->tensors.weights, s->tensors.state, s->tensors.states);
		*torn = st != FO_OK;
		FO_TRY(fo_setup_weights_changed(s));
	}
	if (*found && st == FO_OK) {
		st = fo_ckpt_forget(s->folder.ckpt_dir, m.step);
		fo_setup_adopt(meta, &m);
		v->saved_step = m.step;
	}
	fo_arena_fini(&a);
	return st;
}
