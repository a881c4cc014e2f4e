/* New weights, drawn by counter: on the host, or on the device that holds the store. */
#include "base/clock.h"
#include "kernel/round.h"
#include "train/store_int.h"

static void put(void *data, int dtype, int64_t i, double v)
{
	if (dtype == FO_I16)
		((int16_t *)data)[i] = fo_split_low((float)v);
	else if (dtype == FO_F64)
		((double *)data)[i] = v;
	else if (dtype == FO_BF16)
		((uint16_t *)data)[i] = fo_bf16_from_f32((float)v);
	else
		((float *)data)[i] = (float)v;
}

/* A weight's first value, rounded to float so that every precision starts from the same weights. */
static double first_value(const struct fo_param *pr, uint64_t stream, int64_t global)
{
	if (pr->init_std > 0)
		return (float)(pr->init_std * fo_rng_normal(stream, (uint64_t)global));
	return pr->init_std == FO_INIT_ZEROS ? 0 : 1;
}

static void init_param(struct fo_store *s, const struct fo_program *p, const struct fo_param *pr, int layer,
		       uint64_t stream)
{
	const struct fo_buffer *bw, *bm = NULL;
	void *w = fo_store_find(s, p->buf[pr->weight].name, layer, &bw), *m = NULL;
	if (pr->master >= 0)
		m = fo_store_find(s, p->buf[pr->master].name, layer, &bm);
#pragma omp parallel for schedule(static)
	for (int64_t r = 0; r < pr->nr; r++)
		for (int64_t c = 0; c < pr->nc; c++) {
			double v = first_value(pr, stream, (pr->global_r0 + r) * pr->cols + pr->global_c0 + c);
			int64_t at = (pr->r0 + r) * bw->cols + pr->c0 + c; /* in both */
			if (m && bm->dtype == FO_I16)
				((uint16_t *)w)[at] = fo_split_high((float)v);
			else
				put(w, bw->dtype, at, v);
			if (m)
				put(m, bm->dtype, at, v);
		}
}

void fo_store_init(struct fo_store *s, const struct fo_program *p, uint64_t seed)
{
	for (int q = 0; q < p->nparam; q++)
		for (int l = 0; l < fo_store_layers(p, p->param[q].per_layer); l++)
			init_param(s, p, &p->param[q], l, fo_store_stream(seed, q, l));
}

/* ---- on a device ---- */

static struct fo_tensor rectangle(const struct fo_store *s, const struct fo_param *pr, const char *buffer, int layer)
{
	const struct fo_buffer *b = NULL;
	const void *host = fo_store_find(s, buffer, layer, &b);
	struct fo_tensor t = { .rows = pr->nr, .cols = pr->nc, .ld = b->cols, .dtype = b->dtype };
	t.data = (unsigned char *)fo_store_on_device(s, host) +
		 (pr->r0 * b->cols + pr->c0) * (int64_t)fo_dtype_bytes(b->dtype);
	return t;
}

static fo_status init_on_device(struct fo_store *s, const struct fo_program *p, int param, int layer, uint64_t seed)
{
	const struct fo_param *pr = &p->param[param];
	struct fo_cuda_queue q = { .cuda = s->cuda, .stream = s->stream[0] };
	struct fo_cuda_init in = { .first = pr->global_r0 * pr->cols + pr->global_c0,
				   .global_cols = pr->cols,
				   .stream = fo_store_stream(seed, param, layer),
				   .std = pr->init_std == FO_INIT_ZEROS ? -1 : pr->init_std };
	in.weight = rectangle(s, pr, p->buf[pr->weight].name, layer);
	if (pr->master >= 0)
		in.master = rectangle(s, pr, p->buf[pr->master].name, layer);
	return fo_cuda_init_weights(&q, &in);
}

fo_status fo_store_init_device(struct fo_store *s, const struct fo_program *p, uint64_t seed, struct fo_cuda *c)
{
	FO_TRY(fo_cuda_attach(c));
	FO_TRY(fo_store_mirror(s, c));
	for (size_t i = 0; i < s->blocks; i++)
		FO_TRY(fo_store_clear(s, &s->block[i])); /* touches only the pages of tables on the host */
	for (int q = 0; q < p->nparam; q++)
		for (int l = 0; l < fo_store_layers(p, p->param[q].per_layer); l++)
			FO_TRY(init_on_device(s, p, q, l, seed));
	FO_TRY(fo_cuda_stream_wait(c, s->stream[0]));
	for (size_t i = 0; i < s->blocks; i++)
		s->block[i].host_newer = false, s->block[i].device_newer = true;
	return FO_OK;
}
