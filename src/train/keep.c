#define _GNU_SOURCE /* gettid, SYS_gettid */
#include "train/keep.h"

#include "base/clock.h"
#include "base/retry.h"
#include "base/thread.h"
#include "comm/comm.h"
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

void fo_keep_init(struct fo_keep *p, const struct fo_program *program, struct fo_store *store, struct fo_exec *exec,
		  struct fo_comm *world, int threads)
{
	*p = (struct fo_keep){ .program = program,
			       .store = store,
			       .exec = exec,
			       .world = world,
			       .sums = world,
			       .threads = threads,
			       .on_device = store->cuda != NULL,
			       .log = -1 };
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->changed, NULL);
}

void fo_keep_close(struct fo_keep *p)
{
	if (!p->program)
		return;
	if (p->started) {
		pthread_mutex_lock(&p->lock);
		p->quit = true;
		pthread_cond_broadcast(&p->changed);
		pthread_mutex_unlock(&p->lock);
		pthread_join(p->thread, NULL);
	}
	fo_keep_drop(p);
	if (!p->on_device)
		fo_pages_free(p->copy, (size_t)p->copy_bytes);
	fo_tensors_fini(&p->tensors);
	fo_tensors_fini(&p->copied);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	*p = (struct fo_keep){ 0 };
}

/* ---- a checkpoint's jobs ---- */

void fo_keep_drop(struct fo_keep *p)
{
	fo_ckpt_writer_free(p->writer);
	p->writer = NULL;
}

static void make_writer(struct fo_keep *p, const char *dir, const struct fo_ckpt_content *content, bool beside)
{
	const struct fo_tensors *t = beside ? &p->copied : &p->tensors;
	fo_keep_drop(p);
	p->content = *content;
	p->content.rank = p->program->run.mesh.rank;
	p->content.weight = t->weight;
	p->content.weights = t->weights;
	p->content.state = t->state;
	p->content.states = t->states;
	p->error.st = FO_OK;
	p->seconds = 0;
	fo_ckpt_writer_new(&p->writer, dir, &p->content, &p->meta);
}

void fo_keep_prepare(struct fo_keep *p, const char *dir, const struct fo_ckpt_content *content,
		     const struct fo_ckpt_meta *meta, int keep, bool beside)
{
	p->meta = *meta;
	p->keep = keep;
	make_writer(p, dir, content, beside);
}

static fo_status run_job(struct fo_keep *p, enum fo_keep_job job)
{
	fo_status st = FO_OK;
	switch (job) {
	case FO_JOB_BEGIN:
		/* A log that cannot reach the disk is no reason to lose the checkpoint. */
		if (p->log >= 0)
			(void)!fo_fdatasync(p->log);
		st = fo_ckpt_writer_begin(p->writer);
		if (p->world)
			return st;
		if (st == FO_OK)
			st = fo_ckpt_writer_rows(p->writer);
		return fo_ckpt_writer_end(p->writer, st, p->keep);
	case FO_JOB_ROWS: return fo_ckpt_writer_rows(p->writer);
	case FO_JOB_END:
		if (p->error.st != FO_OK)
			st = fo_err_raise(&p->error);
		return fo_ckpt_writer_end(p->writer, st, p->keep);
	}
	return st;
}

fo_status fo_keep_now(struct fo_keep *p, enum fo_keep_job job)
{
	int64_t t0 = fo_now_ns();
	fo_status st = run_job(p, job);
	p->error.st = FO_OK;
	if (st != FO_OK)
		fo_err_save(&p->error, st);
	p->seconds += (double)(fo_now_ns() - t0) * 1e-9;
	return st;
}

static void *writer(void *arg)
{
	struct fo_keep *p = arg;
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), WRITER_NICE); /* where it fails training is slower */
	/* Touches the copy's pages here, not while a step waits for the first copy. Their contents stay, which are a
	 * device's tables. */
	for (int64_t at = 0; at < p->copy_bytes; at += sysconf(_SC_PAGESIZE)) {
		volatile unsigned char *byte = (unsigned char *)p->copy + at;
		*byte = *byte;
	}
	pthread_mutex_lock(&p->lock);
	p->busy = false;
	pthread_cond_broadcast(&p->changed);
	for (;;) {
		while (!p->busy && !p->quit)
			pthread_cond_wait(&p->changed, &p->lock);
		if (!p->busy)
			break;
		pthread_mutex_unlock(&p->lock);
		(void)!fo_keep_now(p, p->job); /* the error is in p->error */
		pthread_mutex_lock(&p->lock);
		p->busy = false;
		pthread_cond_broadcast(&p->changed);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

void fo_keep_hand(struct fo_keep *p, enum fo_keep_job job)
{
	pthread_mutex_lock(&p->lock);
	p->job = job;
	p->busy = true;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

bool fo_keep_idle(struct fo_keep *p, bool wait)
{
	if (!p->started)
		return true;
	pthread_mutex_lock(&p->lock);
	while (wait && p->busy)
		pthread_cond_wait(&p->changed, &p->lock);
	bool idle = !p->busy;
	pthread_mutex_unlock(&p->lock);
	return idle;
}

/* ---- the copy ---- */

int64_t fo_keep_copy_bytes(const struct fo_store *s)
{
	int64_t bytes;
	fo_store_memory(s, &bytes);
	return (int64_t)fo_pages_size((size_t)bytes);
}

/* Tensors whose data lies in the copy where it lies in the store; the copy is memory of this process. */
static struct fo_st_tensor *moved(const struct fo_keep *p, const struct fo_st_tensor *t, size_t n)
{
	struct fo_st_tensor *m = fo_xmalloc((n + 1) * sizeof *m);
	int64_t bytes;
	const unsigned char *from = fo_store_memory(p->store, &bytes);
	for (size_t i = 0; i < n; i++) {
		m[i] = t[i];
		m[i].data = t[i].data ? (unsigned char *)p->copy + ((const unsigned char *)t[i].data - from) : NULL;
		m[i].memory = NULL;
	}
	return m;
}

static fo_status start_writer(struct fo_keep *p)
{
	/* A device trains on its own memory: the store's host memory is the copy, and the next fetch waits until it is
	 * written. */
	const unsigned char *own = fo_store_memory(p->store, &p->copy_bytes);
	p->copy = (void *)(uintptr_t)own;
	fo_status st = p->on_device ? fo_store_take(p->store) : fo_pages_new((size_t)p->copy_bytes, &p->copy);
	if (st != FO_OK) {
		p->copy = NULL;
		return fo_wrap(st, "cannot hold the copy that checkpoints are written from");
	}
	p->copied = (struct fo_tensors){ .weight = moved(p, p->tensors.weight, p->tensors.weights),
					 .weights = p->tensors.weights,
					 .state = moved(p, p->tensors.state, p->tensors.states),
					 .states = p->tensors.states };
	p->busy = true; /* until the thread is ready */
	st = fo_thread_start(&p->thread, writer, p, "the thread that writes checkpoints");
	p->started = st == FO_OK;
	return st;
}

static fo_status copy_rows(struct fo_keep *p)
{
	int64_t n;
	/* The thread may still touch the copy's pages: it would put old bytes back, and a job that is handed to it
	 * meanwhile would be lost. */
	(void)fo_keep_idle(p, true);
	if (p->on_device)
		return fo_exec_fetch(p->exec);
	const unsigned char *from = fo_store_memory(p->store, &n);
	unsigned char *to = p->copy;
#pragma omp parallel for schedule(static) num_threads(p->threads)
	for (int64_t at = 0; at < n; at += COPY_BYTES)
		memcpy(to + at, from + at, (size_t)(n - at < COPY_BYTES ? n - at : COPY_BYTES));
	return FO_OK;
}

/* ---- checksums over ranks ---- */

/* Adds up over the ranks modulo 2^64. The halves travel as doubles, in which sums of 2^16 ranks are exact. */
static fo_status add_up(struct fo_comm *world, uint64_t *sum, size_t n)
{
	double *half = fo_xmalloc((2 * n + 1) * sizeof *half);
	for (size_t i = 0; i < n; i++) {
		half[2 * i] = (double)(sum[i] & UINT32_MAX);
		half[2 * i + 1] = (double)(sum[i] >> 32);
	}
	fo_status st = fo_comm_call(world, &(struct fo_comm_call){ .kind = FO_COMM_ALL_REDUCE,
								   .op = FO_COMM_SUM,
								   .from = half,
								   .to = half,
								   .n = (int64_t)(2 * n),
								   .dtype = FO_F64 });
	for (size_t i = 0; i < n && st == FO_OK; i++)
		sum[i] = (uint64_t)half[2 * i] + ((uint64_t)half[2 * i + 1] << 32);
	free(half);
	return st;
}

static fo_status end_rows(struct fo_keep *p, bool add)
{
	fo_status st = FO_OK;
	size_t n;
	if (add && p->world) {
		uint64_t *sum = fo_ckpt_writer_sums(p->writer, &n);
		st = add_up(p->sums, sum, n);
	}
	if (p->program->run.mesh.rank)
		fo_keep_drop(p);
	return st;
}

/* ---- lending weights ---- */

/* The rows of a rectangle, one behind the other. */
static void pack(const struct fo_st_tensor *t, unsigned char *bytes, bool out)
{
	const size_t row = (size_t)t->cols * fo_dtype_bytes(t->dtype);
	for (int64_t r = 0; r < t->rows; r++) {
		unsigned char *at = (unsigned char *)t->data + (size_t)(r * t->ld) * fo_dtype_bytes(t->dtype);
		if (out)
			memcpy(bytes + (size_t)r * row, at, row);
		else
			memcpy(at, bytes + (size_t)r * row, row);
	}
}

static fo_status travel(struct fo_comm *world, enum fo_comm_kind kind, int peer, const struct fo_st_tensor *t)
{
	const int64_t n = t->rows * t->cols;
	unsigned char *bytes = fo_xmalloc((size_t)(n + 1) * fo_dtype_bytes(t->dtype));
	struct fo_comm_call call = { .kind = kind, .from = bytes, .n = n, .dtype = t->dtype, .peer = peer };
	if (kind == FO_COMM_SEND)
		pack(t, bytes, true);
	else
		call.from = NULL, call.to = bytes;
	fo_status st = fo_comm_call(world, &call);
	if (st == FO_OK && kind == FO_COMM_RECV)
		pack(t, bytes, false);
	free(bytes);
	return st;
}

/* What a rank has of a weight, as numbers that travel. */
enum { ROW, ROWS, COL, COLS, COPY, PLACES };

/* What each rank has of each weight, rank after rank. */
static fo_status tell_places(const struct fo_keep *p, int32_t **out)
{
	const size_t n = p->tensors.weights * PLACES;
	const int rank = fo_comm_rank(p->world);
	int32_t *all = *out = fo_xmalloc(((size_t)fo_comm_ranks(p->world) * n + 1) * sizeof *all);
	int32_t *own = all + (size_t)rank * n;
	for (size_t i = 0; i < p->tensors.weights; i++) {
		const struct fo_st_tensor *t = &p->tensors.weight[i];
		const int64_t place[PLACES] = { t->row, t->rows, t->col, t->cols, t->copy };
		for (int k = 0; k < PLACES; k++)
			own[i * PLACES + (size_t)k] = (int32_t)place[k];
	}
	return fo_comm_call(
		p->world,
		&(struct fo_comm_call){
			.kind = FO_COMM_ALL_GATHER, .from = own, .to = all, .n = (int64_t)n, .dtype = FO_I32 });
}

static unsigned char *at(const struct fo_st_tensor *t, int64_t row, int64_t col)
{
	return (unsigned char *)t->data + (size_t)(row * t->ld + col) * fo_dtype_bytes(t->dtype);
}

/* Of ranks that have the same rectangle of a weight the first one gives it. */
static bool gives(const int32_t *place) { return !place[COPY] && place[ROWS] > 0; }

/* One weight comes to rank 0 from all ranks that give a rectangle of it. */
static fo_status receive(const struct fo_keep *p, size_t index, const int32_t *places, const struct fo_st_tensor *whole)
{
	const struct fo_st_tensor *own = &p->tensors.weight[index];
	int64_t elements = 0;
	for (int r = 0; r < fo_comm_ranks(p->world); r++) {
		const int32_t *place = places + ((size_t)r * p->tensors.weights + index) * PLACES;
		struct fo_st_tensor part = *whole;
		if (!gives(place))
			continue;
		if (place[ROW] < 0 || place[ROWS] > whole->rows - place[ROW] || place[COL] < 0 || place[COLS] < 0 ||
		    place[COLS] > whole->cols - place[COL])
			return fo_fail(FO_EBUG,
				       "of '%s' rank %d has %d x %d elements from (%d, %d) on, which is more than "
				       "%lld x %lld",
				       own->name, r, place[ROWS], place[COLS], place[ROW], place[COL],
				       (long long)whole->rows, (long long)whole->cols);
		part.rows = place[ROWS];
		part.cols = place[COLS];
		part.data = at(whole, place[ROW], place[COL]);
		elements += part.rows * part.cols;
		if (r)
			FO_TRY(travel(p->world, FO_COMM_RECV, r, &part));
		for (int64_t i = 0; !r && i < part.rows; i++)
			memcpy(at(&part, i, 0), at(own, i, 0), (size_t)part.cols * fo_dtype_bytes(own->dtype));
	}
	return elements == whole->rows * whole->cols
		       ? FO_OK
		       : fo_fail(FO_EBUG, "of '%s' ranks have %lld elements, not %lld", own->name, (long long)elements,
				 (long long)(whole->rows * whole->cols));
}

static const struct fo_st_tensor *find(const struct fo_tensors *t, const struct fo_st_tensor *like)
{
	for (size_t i = 0; i < t->weights; i++)
		if (!strcmp(t->weight[i].name, like->name) && t->weight[i].dtype == like->dtype &&
		    t->weight[i].rows == fo_st_whole(like) && t->weight[i].cols == fo_st_wide(like))
			return &t->weight[i];
	return NULL;
}

/* Weights travel by the host's addresses, from memory that a checkpoint may still be written from. */
static fo_status fetch_whole(struct fo_keep *p)
{
	if (!p->on_device)
		return FO_OK;
	(void)fo_keep_idle(p, true);
	return fo_exec_fetch(p->exec);
}

fo_status fo_keep_lend(struct fo_keep *p, struct fo_store *to, const struct fo_program *of)
{
	struct fo_tensors whole = { 0 };
	int32_t *places = NULL;
	fo_status st = fetch_whole(p);
	if (st == FO_OK)
		st = fo_store_tensors(to, of, &whole);
	if (st == FO_OK)
		st = tell_places(p, &places);
	for (size_t i = 0; i < p->tensors.weights && st == FO_OK; i++) {
		const struct fo_st_tensor *t = find(&whole, &p->tensors.weight[i]);
		st = t ? receive(p, i, places, t)
		       : fo_fail(FO_EBUG, "a store of one rank has no '%s' as ranks have it",
				 p->tensors.weight[i].name);
	}
	free(places);
	fo_tensors_fini(&whole);
	return st;
}

static fo_status lend(struct fo_keep *p)
{
	int32_t *places = NULL;
	FO_TRY(fetch_whole(p));
	fo_status st = tell_places(p, &places);
	free(places);
	for (size_t i = 0; i < p->tensors.weights && st == FO_OK; i++) {
		const struct fo_st_tensor *t = &p->tensors.weight[i];
		if (!t->copy && t->rows)
			st = travel(p->world, FO_COMM_SEND, 0, t);
	}
	return st;
}

/* ---- tasks ---- */

static fo_status open_checkpoints(struct fo_keep *p, bool beside)
{
	FO_TRY(fo_store_tensors(p->store, p->program, &p->tensors));
	return beside ? start_writer(p) : FO_OK;
}

static fo_status read_checkpoint(struct fo_keep *p, const char *path)
{
	struct fo_tensors t;
	fo_status st = fo_store_tensors(p->store, p->program, &t);
	if (st == FO_OK)
		st = fo_ckpt_read(path, t.weight, t.weights, t.state, t.states, &p->afresh);
	fo_tensors_fini(&t);
	return st;
}

static fo_status make_weights(struct fo_keep *p, uint64_t seed)
{
	if (p->on_device)
		return fo_store_init_device(p->store, p->program, seed, p->store->cuda);
	fo_store_init(p->store, p->program, seed);
	return FO_OK;
}

/* Rank 0 has a writer already: it made the folder. */
static fo_status write_rows(struct fo_keep *p, const struct fo_keep_task *t)
{
	if (p->program->run.mesh.rank) {
		p->meta = (struct fo_ckpt_meta){ .step = t->step };
		make_writer(p, t->path, &(struct fo_ckpt_content){ .file_bytes = t->file_bytes }, t->beside);
	}
	if (!t->beside)
		return fo_keep_now(p, FO_JOB_ROWS);
	fo_keep_hand(p, FO_JOB_ROWS);
	return FO_OK;
}

static fo_status poll_rows(struct fo_keep *p, bool wait, bool *done)
{
	*done = fo_keep_idle(p, wait);
	return *done && p->error.st != FO_OK ? fo_err_raise(&p->error) : FO_OK;
}

fo_status fo_keep_work(struct fo_keep *p, const struct fo_keep_task *t, bool *done)
{
	bool ignored;
	fo_status st = FO_OK;
	switch (t->kind) {
	case FO_KEEP_INIT: st = make_weights(p, t->seed); break;
	case FO_KEEP_LOAD: st = fo_store_load(p->store, p->program, t->path); break;
	case FO_KEEP_READ: st = read_checkpoint(p, t->path); break;
	case FO_KEEP_OPEN: return open_checkpoints(p, t->beside);
	case FO_KEEP_COPY: return copy_rows(p);
	case FO_KEEP_WRITE: return write_rows(p, t);
	case FO_KEEP_POLL: return poll_rows(p, t->wait, done ? done : &ignored);
	case FO_KEEP_END: return end_rows(p, t->add);
	case FO_KEEP_LEND: return lend(p);
	default: return fo_fail(FO_EBUG, "a rank has no part %d", t->kind);
	}
	fo_exec_weights_changed(p->exec);
	return st;
}
