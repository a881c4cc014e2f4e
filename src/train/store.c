#include "train/exec.h"
#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
	struct fo_buffer buf;
	int layers;
	int64_t offset, stride;
};
struct fo_store {
	struct entry *entry;
	int n;
	unsigned char *memory;
	int64_t bytes;
};

/* table(seq, head_dim): cos in the first half of a row, sin in the second (ops.def, rope). */
static void fill_rope(const struct fo_program *p, const struct fo_buffer *b, void *table)
{
	int64_t half = b->cols / 2;
	double *freq = fo_xmalloc((size_t)half * sizeof *freq);
	fo_model_rope_frequencies(&p->model.rope, b->cols, freq);
	for (int64_t pos = 0; pos < b->rows; pos++)
		for (int64_t i = 0; i < half; i++) {
			double c = cos((double)pos * freq[i]), s = sin((double)pos * freq[i]);
			int64_t at = pos * b->cols + i;
			if (b->dtype == FO_F64)
				((double *)table)[at] = c, ((double *)table)[at + half] = s;
			else
				((float *)table)[at] = (float)c, ((float *)table)[at + half] = (float)s;
		}
	free(freq);
}

fo_status fo_store_new(struct fo_store **out, const struct fo_program *p)
{
	struct fo_store *s = fo_xmalloc(sizeof *s);
	s->entry = fo_xmalloc((size_t)(p->nbuf + 1) * sizeof *s->entry);
	for (int i = 0; i < p->nbuf; i++) {
		const struct fo_buffer *b = &p->buf[i];
		if (!fo_home_persists(b->home))
			continue;
		struct entry *e = &s->entry[s->n++];
		*e = (struct entry){ .buf = *b,
				     .layers = b->axes & FO_PER_LAYER ? (int)p->model.layers : 1,
				     .offset = s->bytes,
				     .stride = (fo_buffer_bytes(b) + 63) & ~(int64_t)63 };
		s->bytes += e->stride * e->layers;
	}
	void *memory;
	fo_status st = fo_pages_new((size_t)s->bytes, &memory);
	if (st != FO_OK) {
		free(s->entry);
		free(s);
		return fo_wrap(st, "cannot hold the model's weights and optimizer state");
	}
	s->memory = memory;
	for (int i = 0; i < s->n; i++)
		if (s->entry[i].buf.home == FO_HOME_CONST)
			fill_rope(p, &s->entry[i].buf, s->memory + s->entry[i].offset);
	*out = s;
	return FO_OK;
}

void fo_store_free(struct fo_store *s)
{
	if (!s)
		return;
	fo_pages_free(s->memory, (size_t)s->bytes);
	free(s->entry);
	free(s);
}

int64_t fo_store_bytes(const struct fo_store *s) { return s->bytes; }
const unsigned char *fo_store_memory(const struct fo_store *s) { return s->memory; }

void *fo_store_find(const struct fo_store *s, const char *buffer, int layer, const struct fo_buffer **b)
{
	for (int i = 0; i < s->n; i++) {
		struct entry *e = &s->entry[i];
		if (strcmp(e->buf.name, buffer) || layer < 0 || layer >= e->layers)
			continue;
		if (b)
			*b = &e->buf;
		return s->memory + e->offset + layer * e->stride;
	}
	return NULL;
}

static void put(void *data, int dtype, int64_t i, double v)
{
	if (dtype == FO_F64)
		((double *)data)[i] = v;
	else if (dtype == FO_BF16)
		((uint16_t *)data)[i] = fo_bf16_from_f32((float)v);
	else
		((float *)data)[i] = (float)v;
}

void fo_store_init(struct fo_store *s, const struct fo_program *p, uint64_t seed)
{
	for (int q = 0; q < p->nparam; q++) {
		const struct fo_param *pr = &p->param[q];
		for (int l = 0; l < (pr->per_layer ? (int)p->model.layers : 1); l++) {
			const struct fo_buffer *bw, *bm = NULL;
			void *w = fo_store_find(s, p->buf[pr->weight].name, l, &bw);
			void *m = pr->master >= 0 ? fo_store_find(s, p->buf[pr->master].name, l, &bm) : NULL;
			uint64_t stream = seed * 0x9e3779b97f4a7c15u + (uint64_t)q * 65536 + (uint64_t)l;
#pragma omp parallel for schedule(static)
			for (int64_t r = 0; r < pr->nr; r++)
				for (int64_t c = 0; c < pr->nc; c++) {
					uint64_t global = (uint64_t)((pr->global_r0 + r) * pr->cols + pr->global_c0 +
								     c);
					/* Rounded to float first: every precision starts from the same weights. */
					double v = pr->init_std > 0
							   ? (float)(pr->init_std * fo_rng_normal(stream, global))
							   : pr->init_std == FO_INIT_ZEROS ? 0
											   : 1;
					put(w, bw->dtype, (pr->r0 + r) * bw->cols + pr->c0 + c, v);
					if (m)
						put(m, bm->dtype, (pr->r0 + r) * bm->cols + pr->c0 + c, v);
				}
		}
	}
}

void fo_param_name(const struct fo_param *pr, int layer, char *out, size_t size)
{
	const char *brace = strstr(pr->name, "{}");
	if (brace)
		snprintf(out, size, "%.*s%d%s", (int)(brace - pr->name), pr->name, layer, brace + 2);
	else
		snprintf(out, size, "%s", pr->name);
}

fo_status fo_store_visit(struct fo_store *s, const struct fo_program *p, fo_store_visit_fn *fn, void *ctx)
{
	for (int q = 0; q < p->nparam; q++) {
		const struct fo_param *pr = &p->param[q];
		const int16_t buf[4] = { pr->weight, pr->master, pr->m, pr->v };
		for (int l = 0; l < (pr->per_layer ? (int)p->model.layers : 1); l++)
			for (int which = 0; which < 4; which++) {
				const struct fo_buffer *b;
				unsigned char *data = buf[which] >= 0 ? fo_store_find(s, p->buf[buf[which]].name, l, &b)
								      : NULL;
				if (!data)
					continue;
				struct fo_store_tensor t = {
					.which = which, .rows = pr->nr, .cols = pr->nc, .ld = b->cols, .dtype = b->dtype
				};
				t.data = data + (pr->r0 * b->cols + pr->c0) * (int64_t)fo_dtype_bytes(b->dtype);
				fo_param_name(pr, l, t.name, sizeof t.name);
				FO_TRY(fn(ctx, &t));
			}
	}
	return FO_OK;
}
