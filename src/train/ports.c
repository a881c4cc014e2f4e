#include "train/ports.h"
#include "program/ring.h"

#include <string.h>

void fo_ports_own_tokens(struct fo_ports *p, const struct fo_lowering *run)
{
	int32_t place;
	p->cp = fo_mesh_group(&run->mesh, FO_GROUP_CP, &place, NULL);
	p->place = place;
	p->seq = run->seq;
	p->stretches = run->pass.cp == FO_CP_HEADS;
}

/* `own` of the `all` tokens of whole rows: all of them, or those of one rank of a cp group. */
static void take_tokens(const struct fo_ports *p, int32_t *to, const int32_t *from, int64_t own, int64_t all)
{
	if (own == all || p->stretches) {
		memcpy(to, from + (own == all ? 0 : p->place * own), (size_t)own * sizeof *to);
		return;
	}
	const int64_t seq = p->seq, mine = seq / p->cp, chunk = mine / 2;
	for (int64_t i = 0; i < own; i += chunk)
		memcpy(to + i, from + i / mine * seq + fo_ring_place(p->cp, p->place, chunk, i),
		       (size_t)chunk * sizeof *to);
}

fo_status fo_ports_serve(void *ctx, enum fo_port port, int mb, const struct fo_tensor *arg, int n)
{
	struct fo_ports *p = ctx;
	switch (port) {
	case FO_PORT_BATCH: {
		const struct fo_batch *b = p->ahead ? p->ahead : p->batch;
		const int32_t *const from[] = { b->token, b->target, b->position, b->doc_start };
		const int64_t own = arg->rows, tokens = own * (p->cp ? p->cp : 1);
		const int64_t ranks = p->ranks ? p->ranks : 1;
		const int64_t at = (mb * ranks + p->rank) * tokens;
		for (int i = 0; i < n && i < 4; i++)
			take_tokens(p, arg[i].data, from[i] + at, arg[i].rows, tokens);
		/* Documents begin at a place in these rows. */
		for (int64_t i = 0; p->rank && n > FO_PORT_BATCH_DOC_START && i < arg[FO_PORT_BATCH_DOC_START].rows;
		     i++)
			((int32_t *)arg[FO_PORT_BATCH_DOC_START].data)[i] -= (int32_t)(p->rank * tokens);
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
