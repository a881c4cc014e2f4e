/* The store's copy on a device, which is the only one of a resident store (fo_store_new_on).
 *
 * Each block knows as a whole which side wrote last: a step on the device makes the device's copy newer, code that
 * changes the host's copy reports it (fo_exec_weights_changed), and bytes move when the other side needs them. */
#include "base/mem.h"
#include "train/store_int.h"

#include <string.h>

/* Two pieces take turns: one is filled or read while the other is under way. 8 MiB take 0.15 ms over PCIe 5, so waits
 * between pieces do not matter. */
enum { PIECES = 2, PIECE_BYTES = 8 << 20 };

/* Bytes of the next piece where `left` are left. */
static int64_t piece_bytes(int64_t left) { return fo_min(left, PIECE_BYTES); }

static fo_status open_copies(struct fo_store *s)
{
	for (int i = 0; i < PIECES; i++) {
		if (!s->stream[i])
			FO_TRY(fo_cuda_stream_new(s->cuda, &s->stream[i]));
		if (!s->piece[i])
			FO_TRY(fo_cuda_host_alloc(s->cuda, PIECE_BYTES, &s->piece[i]));
	}
	return FO_OK;
}

/* Copies to the device through the pieces in turn. */
static fo_status send(struct fo_store *s, unsigned char *device, const unsigned char *host, int64_t bytes)
{
	int64_t n = 0;
	int k = 0;
	for (int64_t at = 0; at < bytes; at += n, k = (k + 1) % PIECES) {
		n = piece_bytes(bytes - at);
		FO_TRY(fo_cuda_stream_wait(s->cuda, s->stream[k]));
		memcpy(s->piece[k], host + at, (size_t)n);
		FO_TRY(fo_cuda_copy_in(s->cuda, device + at, s->piece[k], (size_t)n, s->stream[k]));
	}
	for (k = 0; k < PIECES; k++)
		FO_TRY(fo_cuda_stream_wait(s->cuda, s->stream[k]));
	return FO_OK;
}

fo_status fo_store_clear(struct fo_store *s, struct fo_store_block *b)
{
	FO_TRY(fo_cuda_fill(s->cuda, b->device, 0, (size_t)b->bytes, s->stream[0]));
	FO_TRY(fo_cuda_stream_wait(s->cuda, s->stream[0]));
	for (const struct fo_store_entry *e = s->entry; e < s->entry + s->n; e++)
		if (e->buf.home == FO_HOME_CONST && e->memory == b->memory)
			FO_TRY(send(s, b->device + e->offset, e->memory + e->offset, fo_buffer_bytes(&e->buf)));
	return FO_OK;
}

fo_status fo_store_mirror(struct fo_store *s, struct fo_cuda *c)
{
	if (s->cuda && s->cuda != c)
		return fo_fail(FO_EBUG, "weights and optimizer state lie on another device already");
	s->cuda = c;
	FO_TRY(open_copies(s));
	for (size_t i = 0; i < s->blocks; i++) {
		struct fo_store_block *b = &s->block[i];
		void *device;
		if (b->device)
			continue;
		fo_status st = fo_cuda_alloc(c, fo_device_size((size_t)b->bytes), &device);
		if (st != FO_OK)
			return fo_wrap(st, "cannot hold weights and optimizer state");
		b->device = device;
		if (!s->resident)
			continue;
		FO_TRY(fo_store_clear(s, b));
		b->device_newer = true;
	}
	return FO_OK;
}

void fo_store_unmirror(struct fo_store *s)
{
	if (!s->cuda)
		return;
	for (int i = 0; i < PIECES; i++) {
		if (s->stream[i])
			fo_cuda_stream_free(s->cuda, s->stream[i]);
		fo_cuda_host_free(s->cuda, s->piece[i]);
	}
	for (size_t i = 0; i < s->blocks; i++)
		fo_cuda_free(s->cuda, s->block[i].device);
}

void *fo_store_on_device(const struct fo_store *s, const void *host)
{
	const unsigned char *at = host;
	for (size_t i = 0; i < s->blocks; i++) {
		const unsigned char *from = s->block[i].memory;
		if (at >= from && at < from + s->block[i].bytes)
			return s->block[i].device + (at - from);
	}
	return NULL;
}

fo_status fo_store_send(struct fo_store *s)
{
	for (size_t i = 0; i < s->blocks; i++) {
		struct fo_store_block *b = &s->block[i];
		if (!b->host_newer || !b->device) /* added since: no executor here knows it */
			continue;
		FO_TRY(send(s, b->device, b->memory, b->bytes));
		b->host_newer = b->device_newer = false;
	}
	return FO_OK;
}

static fo_status fetch(struct fo_store *s, struct fo_store_block *b)
{
	int64_t pieces = fo_ceil_div(b->bytes, PIECE_BYTES);
	for (int64_t i = 0; i < pieces + PIECES; i++) {
		int k = (int)(i % PIECES);
		/* Offsets of what the piece holds and of what it takes next. */
		int64_t was = (i - PIECES) * PIECE_BYTES, at = i * PIECE_BYTES;
		FO_TRY(fo_cuda_stream_wait(s->cuda, s->stream[k]));
		if (was >= 0)
			memcpy((unsigned char *)b->memory + was, s->piece[k], (size_t)piece_bytes(b->bytes - was));
		if (at < b->bytes)
			FO_TRY(fo_cuda_copy_out(s->cuda, s->piece[k], b->device + at,
						(size_t)piece_bytes(b->bytes - at), s->stream[k]));
	}
	return FO_OK;
}

fo_status fo_store_take(struct fo_store *s)
{
	for (size_t i = 0; s->resident && i < s->blocks; i++) {
		if (s->block[i].taken)
			continue;
		fo_status st = fo_pages_take(s->block[i].memory, (size_t)s->block[i].bytes);
		if (st != FO_OK)
			return fo_wrap(st, "cannot hold the host's copy of weights and optimizer state");
		s->block[i].taken = true;
	}
	return FO_OK;
}

fo_status fo_store_fetch(struct fo_store *s)
{
	if (s->cuda)
		FO_TRY(fo_cuda_attach(s->cuda));
	FO_TRY(fo_store_take(s));
	for (size_t i = 0; i < s->blocks; i++) {
		struct fo_store_block *b = &s->block[i];
		if (!b->device_newer)
			continue;
		FO_TRY(fetch(s, b));
		b->device_newer = false;
	}
	return FO_OK;
}

void fo_store_changed(struct fo_store *s)
{
	for (size_t i = 0; i < s->blocks; i++)
		if (!s->resident)
			s->block[i].host_newer = true, s->block[i].device_newer = false;
}

void fo_store_device_changed(struct fo_store *s)
{
	for (size_t i = 0; i < s->blocks; i++)
		s->block[i].device_newer = s->block[i].device != NULL && !s->block[i].host_newer;
}

int64_t fo_store_device_bytes(const struct fo_store *s)
{
	int64_t bytes = 0;
	for (size_t i = 0; i < s->blocks; i++)
		bytes += (int64_t)fo_device_size((size_t)s->block[i].bytes);
	return bytes;
}

int64_t fo_store_host_bytes(const struct fo_store *s)
{
	int64_t bytes = 0;
	for (size_t i = 0; i < s->blocks; i++)
		if (!s->resident)
			bytes += (int64_t)fo_pages_size((size_t)s->block[i].bytes);
	for (int i = 0; i < s->n && s->resident; i++)
		if (s->entry[i].buf.home == FO_HOME_CONST)
			bytes += fo_buffer_bytes(&s->entry[i].buf);
	return bytes;
}

int64_t fo_store_pinned_bytes(void) { return (int64_t)PIECES * PIECE_BYTES; }

/* ---- by the host's addresses ---- */

static fo_status get(void *ctx, int piece, const void *at, int64_t bytes, bool fetch, void **data)
{
	struct fo_store *s = ctx;
	*data = s->piece[piece];
	if (!fetch)
		return FO_OK;
	FO_TRY(fo_cuda_attach(s->cuda));
	FO_TRY(fo_cuda_copy_out(s->cuda, s->piece[piece], fo_store_on_device(s, at), (size_t)bytes, s->stream[piece]));
	return fo_cuda_stream_wait(s->cuda, s->stream[piece]);
}

static fo_status put(void *ctx, int piece, void *at, int64_t bytes)
{
	struct fo_store *s = ctx;
	FO_TRY(fo_cuda_attach(s->cuda));
	FO_TRY(fo_cuda_copy_in(s->cuda, fo_store_on_device(s, at), s->piece[piece], (size_t)bytes, s->stream[piece]));
	FO_TRY(fo_cuda_stream_wait(s->cuda, s->stream[piece]));
	for (size_t i = 0; i < s->blocks; i++)
		s->block[i].device_newer = true;
	return FO_OK;
}

fo_status fo_store_access(struct fo_store *s, const struct fo_st_memory **out)
{
	*out = NULL;
	if (!s->resident)
		return FO_OK;
	FO_TRY(fo_cuda_attach(s->cuda));
	FO_TRY(fo_store_mirror(s, s->cuda));
	s->access = (struct fo_st_memory){ .ctx = s, .piece_bytes = PIECE_BYTES, .get = get, .put = put };
	*out = &s->access;
	return FO_OK;
}
