#include "train/ports.h"

#include <string.h>

fo_status fo_ports_serve(void *ctx, enum fo_port port, int mb, const struct fo_tensor *arg, int n)
{
	struct fo_ports *p = ctx;
	switch (port) {
	case FO_PORT_BATCH: {
		const struct fo_batch *b = p->ahead ? p->ahead : p->batch;
		const int32_t *const from[] = { b->token, b->target, b->position, b->doc_start };
		const int64_t rows = arg->rows, at = (mb * (int64_t)(p->ranks ? p->ranks : 1) + p->rank) * rows;
		for (int i = 0; i < n && i < 4; i++)
			memcpy(arg[i].data, from[i] + at, (size_t)rows * sizeof(int32_t));
		/* Documents begin at a place in the rank's own rows. */
		for (int64_t i = 0; p->rank && n > FO_PORT_BATCH_DOC_START && i < rows; i++)
			((int32_t *)arg[FO_PORT_BATCH_DOC_START].data)[i] -= (int32_t)(p->rank * rows);
		return FO_OK;
	}
	case FO_PORT_CHUNK: {
		int32_t *token = arg[FO_PORT_CHUNK_TOKEN].data, *position = arg[FO_PORT_CHUNK_POSITION].data,
			*span = arg[FO_PORT_CHUNK_SPAN].data;
		for (int64_t i = 0; i < arg[FO_PORT_CHUNK_TOKEN].rows; i++) {
			bool inside = i < p->chunk_tokens; /* no row after the chunk's last is read */
			token[i] = inside ? p->chunk[i] : 0;
			position[i] = inside ? (int32_t)(p->chunk_begin + i) : 0;
		}
		span[0] = (int32_t)p->chunk_begin;
		span[1] = (int32_t)p->chunk_tokens;
		return FO_OK;
	}
	case FO_PORT_HYPER: memcpy(arg->data, p->hyper, sizeof p->hyper); return FO_OK;
	case FO_PORT_LOSS:
		memcpy(p->loss, arg[FO_PORT_LOSS_LOSS].data, (size_t)arg[FO_PORT_LOSS_LOSS].cols * sizeof(double));
		if (n > FO_PORT_LOSS_SCALE)
			memcpy(p->scale, arg[FO_PORT_LOSS_SCALE].data, sizeof p->scale);
		return FO_OK;
	case FO_PORT_LOGITS:
		for (int64_t i = 0; i < arg->cols; i++)
			p->logits[i] = (float)fo_element(arg->data, arg->dtype, i);
		return FO_OK;
	case FO_PORT_NONE:
	case FO_PORT_COUNT: break;
	}
	return fo_fail(FO_EBUG, "the training loop does not serve port %d", (int)port);
}

int64_t fo_ports_batch(void *ctx, bool next)
{
	struct fo_ports *p = ctx;
	p->ahead = next && p->loader ? fo_loader_peek(p->loader) : NULL;
	const struct fo_batch *b = next ? p->ahead : p->batch;
	return b ? b->step : -1;
}
