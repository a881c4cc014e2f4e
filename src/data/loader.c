/* The loader: one thread fills a ring of three batches, of which the caller holds one.
 *
 * Step k (counted from the first) lies in slot k % 3. The thread fills it when k < released + 3; the caller gets it
 * when k < made. Both counts are guarded by the lock; a batch's contents need no lock, for only one side owns a slot.
 */
#include "data/data_int.h"

#include "base/clock.h"
#include "base/count.h"
#include "base/fs.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS 3

struct fo_loader {
	struct batches from;
	struct fo_loader_state state;
	int32_t pad_id;
	struct fo_batch batch[SLOTS];
	void *memory; /* all of the batches' arrays and the order's */
	size_t memory_bytes;
	int64_t first_step;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int64_t made, released; /* steps since first_step */
	bool running, stop, failed;
	struct fo_err error;
};

struct job {
	struct fo_loader *l;
	struct fo_batch *b;
};

static fo_status fill(void *ctx)
{
	struct job *j = ctx;
	return batch_fill(j->b, &j->l->from, j->l->pad_id);
}

/* A shard that is cut or overwritten while it is mapped must neither end the process nor feed it other text: the batch
 * counts only if the file is still as it was after the batch was read. */
static fo_status fill_safely(struct fo_loader *l, struct fo_batch *b)
{
	struct job j = { l, b };
	fo_status st = fo_map_guard(fill, &j),
		  changed = st == FO_OK || st == FO_EIO ? fo_map_check(l->from.shard->map) : FO_OK;
	if (st == FO_OK)
		st = changed;
	return st == FO_EIO ? fo_hint(st, "put the file back as it was; the same command goes on") : st;
}

static void *work(void *arg)
{
	struct fo_loader *l = arg;
	pthread_mutex_lock(&l->lock);
	for (int64_t k = 0; !l->failed; k++) {
		while (!l->stop && k >= l->released + SLOTS)
			pthread_cond_wait(&l->changed, &l->lock);
		if (l->stop)
			break;
		struct fo_batch *b = &l->batch[k % SLOTS];
		pthread_mutex_unlock(&l->lock);
		b->step = l->first_step + k;
		fo_status st = fill_safely(l, b);
		pthread_mutex_lock(&l->lock);
		if (st != FO_OK) {
			fo_err_save(&l->error, st);
			l->failed = true;
		} else {
			l->made = k + 1;
		}
		pthread_cond_broadcast(&l->changed);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

static fo_status check(const struct fo_shard *s, const struct fo_batch_shape *shape,
		       const struct fo_loader_state *state, int32_t pad_id)
{
	int64_t width;
	if (shape->seq < 1 || shape->rows < 1 || shape->micro_batches < 1)
		return fo_fail(FO_EARG,
			       "a batch of %lld micro-batches x %lld rows x %lld tokens: each must be at least 1",
			       (long long)shape->micro_batches, (long long)shape->rows, (long long)shape->seq);
	if (shape->own_rows < 0 || shape->first_row < 0 || shape->first_row > shape->rows - shape->own_rows)
		return fo_fail(FO_EBUG, "rows %lld to %lld of a micro-batch of %lld", (long long)shape->first_row,
			       (long long)(shape->first_row + shape->own_rows), (long long)shape->rows);
	if (__builtin_mul_overflow(shape->seq, shape->rows, &width) || width > INT32_MAX ||
	    __builtin_mul_overflow(width, shape->micro_batches, &width))
		return fo_fail(FO_EARG, "a micro-batch of %lld rows x %lld tokens is too large: at most %d tokens",
			       (long long)shape->rows, (long long)shape->seq, INT32_MAX);
	if ((int)shape->packing < 0 || shape->packing >= FO_PACK_COUNT)
		return fo_fail(FO_EARG, "packing %d is neither packed, padded, bestfit nor split", (int)shape->packing);
	if (pad_id < 0 || pad_id >= s->vocab)
		return fo_fail(FO_EARG, "the padding id is %d, expected 0 to %lld", pad_id, (long long)s->vocab - 1);
	if (state->next_step < 0)
		return fo_fail(FO_EARG, "the loader cannot start at step %lld", (long long)state->next_step);
	if (state->shard_checksum && state->shard_checksum != s->checksum) {
		fo_fail(FO_EARG, "the data changed: the run used a shard with checksum %016llx, this one has %016llx",
			(unsigned long long)state->shard_checksum, (unsigned long long)s->checksum);
		return fo_hint(FO_EARG, "go on with the shard the run began with, or start a new run");
	}
	return FO_OK;
}

/* Of each of both orders. Best-fit packing has a plan instead, and what is shared is not the loader's. */
static size_t order_words(const struct batches *b)
{
	return b->shape.packing == FO_PACK_BESTFIT || b->order[0].share ? 0 : EPOCH_ORDER_WORDS(b->shard->docs);
}

int64_t fo_loader_order_bytes(const struct fo_shard *s, const struct fo_batch_shape *shape, int users)
{
	const int orders = shape->packing == FO_PACK_BESTFIT ? 1 : 2; /* of two epochs */
	return fo_ceil_div(orders * fo_order_bytes(s, shape), users);
}

/* Carves the arrays from one piece of memory, 64-byte aligned; with memory NULL only counts the bytes. */
static fo_status carve(struct fo_loader *l, size_t *bytes)
{
	size_t used = 0, width, words = order_words(&l->from), micro = (size_t)l->from.shape.micro_batches;
	FO_TRY(fo_mul_size((size_t)fo_batch_own_rows(&l->from.shape) * (size_t)l->from.shape.seq,
			   micro * sizeof(int32_t), &width));
	struct {
		void *slot;
		size_t bytes;
	} part[6 * SLOTS + 2];
	int n = 0;
	for (int i = 0; i < SLOTS; i++) {
		int32_t **wide[] = { &l->batch[i].token, &l->batch[i].target, &l->batch[i].position,
				     &l->batch[i].doc_start };
		for (int k = 0; k < 4; k++) {
			part[n].slot = wide[k];
			part[n++].bytes = width;
		}
		part[n].slot = &l->batch[i].micro_loss_tokens;
		part[n++].bytes = micro * sizeof(int64_t);
		part[n].slot = &l->batch[i].pairs;
		part[n++].bytes = micro * sizeof(int64_t);
	}
	for (int i = 0; i < 2; i++) {
		part[n].slot = &l->from.order[i].room;
		part[n++].bytes = words * sizeof(int64_t);
	}
	for (int i = 0; i < n; i++) {
		if (l->memory) {
			void *p = (char *)l->memory + used;
			memcpy(part[i].slot, &p, sizeof p);
		}
		if (part[i].bytes > SIZE_MAX / 64)
			return fo_fail(FO_ENOMEM, "a batch of %zu bytes per array does not fit into memory",
				       part[i].bytes);
		used += (part[i].bytes + 63) & ~(size_t)63;
	}
	*bytes = used;
	return FO_OK;
}

fo_status fo_loader_open(struct fo_loader **out, const struct fo_shard *s, const struct fo_batch_shape *shape,
			 const struct fo_loader_state *state, int32_t pad_id)
{
	return fo_loader_open_shared(out, s, shape, state, pad_id, NULL);
}

fo_status fo_loader_open_shared(struct fo_loader **out, const struct fo_shard *s, const struct fo_batch_shape *shape,
				const struct fo_loader_state *state, int32_t pad_id, struct fo_order_share *order)
{
	FO_TRY(check(s, shape, state, pad_id));
	struct fo_loader *l = fo_xmalloc(sizeof *l);
	l->state = *state;
	l->state.shard_checksum = s->checksum;
	l->pad_id = pad_id;
	l->first_step = state->next_step;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->changed, NULL);
	fo_status st = batches_init(&l->from, s, shape, state->seed, order);
	if (st == FO_OK)
		st = carve(l, &l->memory_bytes);
	if (st == FO_OK)
		st = fo_pages_new(l->memory_bytes, &l->memory);
	if (st == FO_OK)
		st = carve(l, &l->memory_bytes);
	if (st == FO_OK)
		st = fo_thread_start(&l->thread, work, l, "the loader's thread");
	l->running = st == FO_OK;
	if (l->running)
		*out = l;
	else
		fo_loader_close(l);
	return st;
}

fo_status fo_loader_next(struct fo_loader *l, const struct fo_batch **out, int64_t *wait_ns)
{
	int64_t waited = 0, k = l->state.next_step - l->first_step;
	pthread_mutex_lock(&l->lock);
	if (l->released < k) {
		l->released = k;
		pthread_cond_broadcast(&l->changed);
	}
	if (l->made <= k && !l->failed) {
		int64_t from = fo_now_ns();
		while (l->made <= k && !l->failed)
			pthread_cond_wait(&l->changed, &l->lock);
		waited = fo_now_ns() - from;
	}
	bool ready = l->made > k;
	pthread_mutex_unlock(&l->lock);
	if (!ready)
		return fo_err_raise(&l->error);
	l->state.next_step++;
	*out = &l->batch[k % SLOTS];
	*wait_ns = waited;
	return FO_OK;
}

const struct fo_batch *fo_loader_peek(struct fo_loader *l)
{
	int64_t k = l->state.next_step - l->first_step;
	pthread_mutex_lock(&l->lock);
	bool ready = l->made > k;
	pthread_mutex_unlock(&l->lock);
	return ready ? &l->batch[k % SLOTS] : NULL;
}

struct fo_loader_state fo_loader_state(const struct fo_loader *l) { return l->state; }

void fo_loader_close(struct fo_loader *l)
{
	if (!l)
		return;
	if (l->running) {
		fo_order_share_quit(l->from.order[0].share);
		pthread_mutex_lock(&l->lock);
		l->stop = true;
		pthread_cond_broadcast(&l->changed);
		pthread_mutex_unlock(&l->lock);
		pthread_join(l->thread, NULL);
	}
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->lock);
	pack_plan_free(&l->from.plan);
	fo_pages_free(l->memory, l->memory_bytes);
	free(l);
}
