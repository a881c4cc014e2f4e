#define _GNU_SOURCE /* gettid, SYS_gettid */
#include "train/store_int.h"
#include "train/train_int.h"
#include "base/clock.h"
#include "base/retry.h"

#include <pthread.h>
#include <signal.h>
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

static struct fo_ckpt_content content_of(struct fo_session *s)
{
	return (struct fo_ckpt_content){
		.model = &s->model,
		.weight_dtype = s->program.run.precision == FO_PRECISION_BF16 ? "bfloat16" : "float32",
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
static fo_status write_checkpoint(struct fo_session *s, const struct fo_ckpt_content *c,
				  const struct fo_ckpt_meta *meta, int keep)
{
	if (s->log >= 0)
		(void)!fo_fdatasync(s->log);
	return fo_ckpt_save(s->ckpt_dir, c, meta, keep);
}

/* ---- the writer ---- */

static void *writer(void *arg)
{
	struct fo_session *s = arg;
	struct fo_saver *v = s->saver;
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), WRITER_NICE); /* without it: merely slower training */
	/* The system hands out the copy's pages here, not while a step waits for the first copy. What is in them stays:
	 * a device's tables. */
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
		fo_status st = write_checkpoint(s, &v->content, &v->meta, v->keep);
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
static struct fo_st_tensor *moved(const struct fo_session *s, const struct fo_st_tensor *t, size_t n, void *copy)
{
	struct fo_st_tensor *m = fo_xmalloc((n + 1) * sizeof *m);
	int64_t bytes;
	const unsigned char *from = fo_store_memory(s->store, &bytes);
	for (size_t i = 0; i < n; i++) {
		m[i] = t[i];
		m[i].data = (unsigned char *)copy + ((const unsigned char *)t[i].data - from);
		m[i].memory = NULL;
	}
	return m;
}

static fo_status start_writer(struct fo_session *s)
{
	struct fo_saver *v = s->saver;
	sigset_t all, before;
	/* A device trains on its own memory: the store's host memory is the copy, and the next fetch waits until it is
	 * written. */
	const unsigned char *own = fo_store_memory(s->store, &v->copy_bytes);
	v->copy = (void *)(uintptr_t)own;
	fo_status st = s->cuda ? fo_store_take(s->store) : fo_pages_new((size_t)v->copy_bytes, &v->copy);
	if (st != FO_OK) {
		v->copy = NULL;
		return fo_wrap(st, "cannot hold the copy that checkpoints are written from");
	}
	v->weight = moved(s, s->tensors.weight, s->tensors.weights, v->copy);
	v->state = moved(s, s->tensors.state, s->tensors.states, v->copy);
	v->busy = true; /* until the thread is ready */
	/* Signals are for the main thread, but for the one that a mapped file may raise here. */
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&v->thread, NULL, writer, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return fo_fail(FO_ENOMEM, "cannot start the thread that writes checkpoints: %s", strerror(error));
	v->started = true;
	return FO_OK;
}

fo_status fo_saver_open(struct fo_session *s)
{
	struct fo_saver *v = s->saver = fo_xmalloc(sizeof *v);
	pthread_mutex_init(&v->lock, NULL);
	pthread_cond_init(&v->changed, NULL);
	v->saved_step = s->found_path ? s->found.step : -1;
	return s->async ? start_writer(s) : FO_OK;
}

void fo_saver_close(struct fo_session *s)
{
	struct fo_saver *v = s->saver;
	if (!v)
		return;
	if (v->started) {
		pthread_mutex_lock(&v->lock);
		v->quit = true;
		pthread_cond_broadcast(&v->changed);
		pthread_mutex_unlock(&v->lock);
		pthread_join(v->thread, NULL);
	}
	if (!s->cuda)
		fo_pages_free(v->copy, (size_t)v->copy_bytes);
	free(v->weight);
	free(v->state);
	pthread_cond_destroy(&v->changed);
	pthread_mutex_destroy(&v->lock);
	free(v);
	s->saver = NULL;
}

int64_t fo_saver_bytes(const struct fo_session *s)
{
	int64_t bytes;
	fo_store_memory(s->store, &bytes);
	return s->async && !s->cuda ? (int64_t)fo_pages_size((size_t)bytes) : 0;
}

/* ---- the loop's side ---- */

void fo_session_saved(const struct fo_session *s, char *path, size_t size)
{
	if (!s->saver || s->saver->saved_step < 0)
		snprintf(path, size, "%s", "");
	else
		snprintf(path, size, "%s/step-%08lld", s->ckpt_dir, (long long)s->saver->saved_step);
}

/* The hook and the log line of a checkpoint that is whole. */
static void report(struct fo_session *s, int64_t step, double seconds, double blocked)
{
	char path[FO_PATH_BYTES];
	s->saver->saved_step = step;
	s->rewinds_in_row = 0;
	fo_session_saved(s, path, sizeof path);
	if (s->h->checkpoint)
		s->h->checkpoint(s->h->ctx, step, path, seconds, blocked);
	fo_session_publish_checkpoint(s, step);
	if (fo_session_log_checkpoint(s, step, path, seconds, blocked) != FO_OK)
		fo_session_warn(s, "%s", fo_err_text());
}

static void settle(struct fo_session *s, bool wait)
{
	struct fo_saver *v = s->saver;
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
		report(s, v->meta.step, v->seconds, v->blocked);
	else
		fo_session_warn(s, "%s; training goes on, and the checkpoints before it stay", v->error.text);
}

void fo_session_save_poll(struct fo_session *s) { settle(s, false); }

static fo_status copy_store(struct fo_session *s)
{
	int64_t n;
	if (s->cuda)
		return fo_exec_fetch(s->exec);
	const unsigned char *from = fo_store_memory(s->store, &n);
	unsigned char *to = s->saver->copy;
#pragma omp parallel for schedule(static) num_threads(s->options.threads)
	for (int64_t at = 0; at < n; at += COPY_BYTES)
		memcpy(to + at, from + at, (size_t)(n - at < COPY_BYTES ? n - at : COPY_BYTES));
	return FO_OK;
}

static fo_status save_here(struct fo_session *s, int keep)
{
	struct fo_ckpt_content c = content_of(s);
	int64_t t0 = fo_now_ns();
	FO_TRY(write_checkpoint(s, &c, &s->meta, keep));
	double seconds = (double)(fo_now_ns() - t0) * 1e-9;
	report(s, s->meta.step, seconds, seconds);
	return FO_OK;
}

/* FO_OK: the run's folder is where it was. Else the state is saved where it can be, and the error says where. */
static fo_status save_if_lost(struct fo_session *s)
{
	struct fo_err cause;
	char path[FO_PATH_BYTES];
	if (s->lost && !s->rescue_dir)
		return fo_fail(FO_EIO, "there is no folder to save the state in");
	fo_status st = fo_session_folder_check(s);
	if (st == FO_OK || !s->rescue_dir)
		return st;
	fo_err_save(&cause, st);
	s->saver->saved_step = -1; /* what was saved before lies elsewhere */
	if (save_here(s, 0) != FO_OK) {
		fo_session_warn(s, "%s", fo_err_text());
		return fo_err_raise(&cause);
	}
	fo_session_saved(s, path, sizeof path);
	fo_err_raise(&cause);
	return fo_hint(st, "the state after step %lld is saved in '%s'; --run.dir=%s goes on from there",
		       (long long)s->meta.step, path, s->rescue_dir);
}

fo_status fo_session_save(struct fo_session *s, int keep)
{
	settle(s, true);
	FO_TRY(save_if_lost(s));
	return save_here(s, keep);
}

fo_status fo_session_save_last(struct fo_session *s, bool due)
{
	if (s->r->ckpt_last || due)
		return fo_session_save(s, (int)s->r->ckpt_keep);
	settle(s, true);
	return FO_OK;
}

int64_t fo_session_unsaved(const struct fo_session *s)
{
	int64_t saved = s->saver && s->saver->saved_step > 0 ? s->saver->saved_step : 0;
	return !s->r->ckpt_last && s->meta.step > saved ? s->meta.step - saved : 0;
}

fo_status fo_session_save_begin(struct fo_session *s)
{
	struct fo_saver *v = s->saver;
	int64_t t0 = fo_now_ns();
	settle(s, true);
	FO_TRY(save_if_lost(s));
	fo_status st = v->started ? copy_store(s) : save_here(s, (int)s->r->ckpt_keep);
	if (st != FO_OK)
		fo_session_warn(s, "%s; training goes on, and the checkpoints before it stay", fo_err_text());
	if (st != FO_OK || !v->started)
		return FO_OK;
	v->content = content_of(s);
	v->content.weight = v->weight;
	v->content.state = v->state;
	v->meta = s->meta;
	v->keep = (int)s->r->ckpt_keep;
	v->blocked = (double)(fo_now_ns() - t0) * 1e-9;
	pthread_mutex_lock(&v->lock);
	v->busy = true;
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
	return FO_OK;
}

fo_status fo_session_rescue(struct fo_session *s, fo_status why)
{
	struct fo_err cause;
	char path[FO_PATH_BYTES];
	fo_err_save(&cause, why);
	settle(s, true);
	if (fo_session_folder_check(s) != FO_OK)
		fo_session_warn(s, "%s", fo_err_text());
	if (s->lost)
		s->saver->saved_step = -1; /* what was saved before lies elsewhere */
	int64_t unsaved = fo_session_unsaved(s);
	if (unsaved)
		fo_session_warn(s, "no weights of the last %lld %s were saved: checkpoint.last=no", (long long)unsaved,
				unsaved == 1 ? "step" : "steps");
	else if (s->meta.step > s->saver->saved_step && s->meta.step > 0 && fo_session_save(s, 0) != FO_OK)
		fo_session_warn(s, "%s", fo_err_text());
	fo_session_saved(s, path, sizeof path);
	fo_err_raise(&cause);
	if (!*path)
		return why;
	if (cause.hint[0])
		return fo_hint(why, "the state after step %lld is saved in '%s'; %s", (long long)s->saver->saved_step,
			       path, cause.hint);
	return fo_hint(why, "the state after step %lld is saved in '%s'; the same command goes on from there",
		       (long long)s->saver->saved_step, path);
}

fo_status fo_session_go_back(struct fo_session *s, bool *found)
{
	struct fo_arena a = { 0 };
	struct fo_ckpt_meta m;
	char *path;
	settle(s, true);
	FO_TRY(fo_session_folder_check(s)); /* none of another run's is taken, or removed */
	/* A checkpoint that an interruption left does not count where there is a periodic one: a run that nobody
	 * stopped would go back further, and the two must stay the same. */
	fo_status st = fo_ckpt_pick(&a, s->ckpt_dir, s->r->ckpt_every, NULL, NULL, &path, &m);
	if (st == FO_OK && !path)
		st = fo_ckpt_pick(&a, s->ckpt_dir, 0, NULL, NULL, &path, &m);
	*found = st == FO_OK && path;
	if (*found) { /* what the checkpoint lacks stays as it is */
		st = fo_ckpt_read(path, s->tensors.weight, s->tensors.weights, s->tensors.state, s->tensors.states);
		fo_exec_weights_changed(s->exec);
		s->torn = st != FO_OK; /* weights of two moments */
	}
	if (*found && st == FO_OK) {
		st = fo_ckpt_forget(s->ckpt_dir, m.step);
		fo_session_adopt(s, &m);
		s->saver->saved_step = m.step;
	}
	fo_arena_fini(&a);
	return st;
}
