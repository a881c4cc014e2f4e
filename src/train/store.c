#include "train/store_int.h"
#include "base/clock.h"
#include "base/mem.h"
#include "kernel/round.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int find_entry(const struct fo_store *s, const char *name)
{
	for (int i = 0; i < s->n; i++)
		if (!strcmp(s->entry[i].buf.name, name))
			return i;
	return -1;
}

/* Does the store hold b already, or need it not? A shorter table (fewer positions) is a prefix of a longer one. */
static bool have_buffer(const struct fo_store *s, const struct fo_buffer *b)
{
	int i = find_entry(s, b->name);
	return b->stage == FO_STAGE_ABSENT || (i >= 0 && (b->home != FO_HOME_CONST || s->entry[i].buf.rows >= b->rows));
}

/* Which instance of a buffer is a layer's. */
static void find_layers(struct fo_store *s, const struct fo_program *p)
{
	if (s->instance)
		return;
	s->model_layers = (int)p->model.layers;
	s->instance = fo_xmalloc((size_t)(s->model_layers + 1) * sizeof *s->instance);
	for (int l = 0, n = 0; l < s->model_layers; l++)
		s->instance[l] = fo_program_has_layer(p, l) ? n++ : -1;
}

static fo_status check_added(const struct fo_store *s, const struct fo_program *p)
{
	for (int k = 0; k < p->nbuf; k++) {
		const struct fo_buffer *b = &p->buf[k];
		int i = fo_home_persists(b->home) ? find_entry(s, b->name) : -1;
		const struct fo_buffer *h = i < 0 ? NULL : &s->entry[i].buf;
		if (b->stage == FO_STAGE_ABSENT)
			continue;
		if (h && (h->dtype != b->dtype || h->cols != b->cols || h->home != b->home ||
			  (b->home != FO_HOME_CONST && h->rows != b->rows) ||
			  s->entry[i].layers != fo_buffer_own_layers(p, b)))
			return fo_fail(FO_EBUG, "the store has a buffer '%s' of another shape or type", b->name);
		/* A program that was built with other passes has other weights, which nobody has filled in. */
		if (!h && s->blocks && b->home == FO_HOME_PARAM)
			return fo_fail(FO_EBUG,
				       "the store has no weight '%s': it holds those of a program with other passes",
				       b->name);
	}
	return FO_OK;
}

/* Bytes from one layer's instance to the next: whole cache lines. */
static int64_t stride_of(const struct fo_buffer *b) { return fo_round_up(fo_buffer_bytes(b), 64); }

fo_status fo_store_add(struct fo_store *s, const struct fo_program *p)
{
	FO_TRY(check_added(s, p));
	find_layers(s, p);
	int64_t bytes = 0;
	for (int k = 0; k < p->nbuf; k++)
		if (fo_home_persists(p->buf[k].home) && !have_buffer(s, &p->buf[k]))
			bytes += stride_of(&p->buf[k]) * fo_buffer_own_layers(p, &p->buf[k]);
	if (!bytes)
		return FO_OK;
	fo_array_room(&s->block, &s->block_cap, s->blocks, sizeof *s->block);
	struct fo_store_block *block = &s->block[s->blocks];
	*block = (struct fo_store_block){ .bytes = bytes, .host_newer = true };
	if (s->resident) {
		block->host_newer = false;
		FO_TRY(fo_pages_reserve((size_t)bytes, &block->memory));
	} else {
		FO_TRY(fo_pages_new((size_t)bytes, &block->memory));
	}
	s->blocks++;
	int64_t offset = 0;
	for (int k = 0; k < p->nbuf; k++) {
		const struct fo_buffer *b = &p->buf[k];
		if (!fo_home_persists(b->home) || have_buffer(s, b))
			continue;
		int i = find_entry(s, b->name); /* found: a table that is too short, whose memory executors keep */
		if (i < 0) {
			i = s->n++;
			fo_array_room(&s->entry, &s->entry_cap, (size_t)i, sizeof *s->entry);
		}
		struct fo_store_entry *e = &s->entry[i];
		*e = (struct fo_store_entry){ .buf = *b,
					      .layers = fo_buffer_own_layers(p, b),
					      .memory = block->memory,
					      .offset = offset,
					      .stride = stride_of(b) };
		offset += e->stride * e->layers;
		if (b->home == FO_HOME_CONST && s->resident)
			FO_TRY(fo_pages_take(e->memory + e->offset, (size_t)fo_buffer_bytes(b)));
		if (b->home == FO_HOME_CONST)
			fill_rope(p, b, e->memory + e->offset);
	}
	return FO_OK;
}

fo_status fo_store_new(struct fo_store **out, const struct fo_program *p) { return fo_store_new_on(out, p, NULL); }

fo_status fo_store_new_on(struct fo_store **out, const struct fo_program *p, struct fo_cuda *c)
{
	struct fo_store *s = fo_xmalloc(sizeof *s);
	s->resident = c != NULL;
	s->cuda = c;
	fo_status st = fo_store_add(s, p);
	if (st != FO_OK) {
		fo_store_free(s);
		return fo_wrap(st, "cannot hold the model's weights and optimizer state");
	}
	*out = s;
	return FO_OK;
}

void fo_store_free(struct fo_store *s)
{
	if (!s)
		return;
	fo_store_unmirror(s);
	for (size_t i = 0; i < s->blocks; i++)
		fo_pages_free(s->block[i].memory, (size_t)s->block[i].bytes);
	free(s->block);
	free(s->instance);
	free(s->entry);
	free(s);
}

int64_t fo_store_bytes(const struct fo_store *s)
{
	int64_t bytes = 0;
	for (size_t i = 0; i < s->blocks; i++)
		bytes += s->block[i].bytes;
	return bytes;
}

const unsigned char *fo_store_memory(const struct fo_store *s, int64_t *bytes)
{
	*bytes = s->block[0].bytes;
	return s->block[0].memory;
}

void *fo_store_find(const struct fo_store *s, const char *buffer, int layer, const struct fo_buffer **b)
{
	int i = find_entry(s, buffer);
	struct fo_store_entry *e = i < 0 ? NULL : &s->entry[i];
	if (!e || layer < 0 || layer >= (e->buf.axes & FO_PER_LAYER ? s->model_layers : 1))
		return NULL;
	if (e->buf.axes & FO_PER_LAYER)
		layer = s->instance[layer];
	if (layer < 0)
		return NULL;
	if (b)
		*b = &e->buf;
	return e->memory + e->offset + layer * e->stride;
}

void fo_param_name(const struct fo_param *pr, int layer, char *out, size_t size)
{
	const char *brace = strstr(pr->name, "{}");
	if (brace)
		snprintf(out, size, "%.*s%d%s", (int)(brace - pr->name), pr->name, layer, brace + 2);
	else
		snprintf(out, size, "%s", pr->name);
}

/* Does buffer b belong to a parameter, or is it computed from weights alone? */
static bool comes_with_weights(const struct fo_program *p, int b)
{
	for (int q = 0; q < p->nparam; q++)
		if (p->param[q].master == b || p->param[q].m == b || p->param[q].v == b)
			return true;
	for (int k = 0; k < p->nblock; k++)
		for (int i = 0; i < p->block[k].n; i++)
			for (int a = 0; a < p->block[k].op[i].n; a++)
				if (p->block[k].op[i].phase == FO_DERIVE && p->block[k].op[i].arg[a].buf == b)
					return true;
	return false;
}

static fo_status visit_memory(struct fo_store *s, const struct fo_program *p, fo_store_visit_fn *fn, void *ctx)
{
	for (int i = 0; i < p->nbuf; i++) {
		const struct fo_buffer *b = &p->buf[i];
		if (b->home != FO_HOME_STATE || comes_with_weights(p, i))
			continue;
		for (int l = 0; l < fo_buffer_layers(p, b); l++) {
			struct fo_store_tensor t = { .which = 4,
						     .layer = b->axes & FO_PER_LAYER ? l + 1 : 0,
						     .rows = b->rows,
						     .cols = b->cols,
						     .ld = b->cols,
						     .whole = b->rows, /* of each rank that has it */
						     .whole_cols = b->cols,
						     .dtype = b->dtype };
			t.copies = fo_buffer_holders(&p->run.mesh, b, &t.copy);
			t.data = fo_store_find(s, b->name, l, NULL);
			snprintf(t.name, sizeof t.name, "%s.%d", b->name, l);
			if (!t.data && fo_program_has(p, b, l))
				continue;
			if (!t.data) /* another stage has it */
				t.rows = 0;
			FO_TRY(fn(ctx, &t));
		}
	}
	return FO_OK;
}

fo_status fo_store_visit(struct fo_store *s, const struct fo_program *p, fo_store_visit_fn *fn, void *ctx)
{
	for (int q = 0; q < p->nparam; q++) {
		const struct fo_param *pr = &p->param[q];
		for (int l = 0; l < fo_store_layers(p, pr->per_layer); l++)
			for (int which = 0; which < 4; which++) {
				int buf = pr->buf[which];
				const struct fo_buffer *b = buf >= 0 ? &p->buf[buf] : NULL;
				unsigned char *data = b ? fo_store_find(s, b->name, l, &b) : NULL;
				if (!b || (!data && fo_program_has(p, b, l)))
					continue;
				/* What other stages have is listed without rows. */
				int64_t from, rows = data ? fo_param_rows(pr, b, &from) : 0;
				struct fo_store_tensor t = { .which = which,
							     .layer = pr->per_layer ? l + 1 : 0,
							     .rows = rows,
							     .cols = pr->nc,
							     .ld = b->cols,
							     .row = rows ? pr->global_r0 + from : 0,
							     .whole = pr->rows,
							     .col = pr->global_c0,
							     .whole_cols = pr->cols,
							     .dtype = b->dtype };
				t.copies = fo_buffer_holders(&p->run.mesh, b, &t.copy);
				if (rows)
					t.data = data + ((pr->r0 + from - b->row0) * b->cols + pr->c0) *
								(int64_t)fo_dtype_bytes(b->dtype);
				fo_param_name(pr, l, t.name, sizeof t.name);
				FO_TRY(fn(ctx, &t));
			}
	}
	return p->run.mode == FO_MODE_TRAIN ? visit_memory(s, p, fn, ctx) : FO_OK;
}

/* ---- new weights, drawn by counter ---- */

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
	if (!w) /* another stage has it */
		return;
	if (pr->master >= 0)
		m = fo_store_find(s, p->buf[pr->master].name, layer, &bm);
#pragma omp parallel for schedule(static)
	for (int64_t r = 0; r < pr->nr; r++) {
		/* Of a shared buffer only some rows are here, perhaps others of the weight than of the master. */
		int64_t row = pr->r0 + r;
		bool in_w = row >= bw->row0 && row < bw->row0 + bw->rows;
		bool in_m = m && row >= bm->row0 && row < bm->row0 + bm->rows;
		for (int64_t c = 0; (in_w || in_m) && c < pr->nc; c++) {
			double v = first_value(pr, stream, (pr->global_r0 + r) * pr->cols + pr->global_c0 + c);
			int64_t at = row * bw->cols + pr->c0 + c; /* in both, were they whole */
			if (in_w && m && bm->dtype == FO_I16)
				((uint16_t *)w)[at - bw->row0 * bw->cols] = fo_split_high((float)v);
			else if (in_w)
				put(w, bw->dtype, at - bw->row0 * bw->cols, v);
			if (in_m)
				put(m, bm->dtype, at - bm->row0 * bm->cols, v);
		}
	}
}

void fo_store_init(struct fo_store *s, const struct fo_program *p, uint64_t seed)
{
	for (int q = 0; q < p->nparam; q++)
		for (int l = 0; l < fo_store_layers(p, p->param[q].per_layer); l++)
			init_param(s, p, &p->param[q], l, fo_store_stream(seed, q, l));
}

/* ---- on a device ---- */

/* Rows [from, to) of a parameter's rectangle; data NULL where they are another rank's: all of them are here or none. */
static struct fo_tensor rectangle(const struct fo_store *s, const struct fo_param *pr, const char *buffer, int layer,
				  int64_t from, int64_t to)
{
	const struct fo_buffer *b = NULL;
	const void *host = fo_store_find(s, buffer, layer, &b);
	struct fo_tensor t = { .rows = to - from, .cols = pr->nc, .ld = b->cols, .dtype = b->dtype };
	const int64_t row = pr->r0 + from - b->row0;
	if (row >= 0 && row < b->rows)
		t.data = (unsigned char *)fo_store_on_device(s, host) +
			 (row * b->cols + pr->c0) * (int64_t)fo_dtype_bytes(b->dtype);
	return t;
}

/* The first row above `from` where a buffer's rows begin or end within the parameter's rectangle, else `most`. */
static int64_t border(const struct fo_param *pr, const struct fo_buffer *b, int64_t from, int64_t most)
{
	const int64_t begin = b->row0 - pr->r0, end = begin + b->rows;
	most = begin > from && begin < most ? begin : most;
	return end > from && end < most ? end : most;
}

static fo_status init_on_device(struct fo_store *s, const struct fo_program *p, int param, int layer, uint64_t seed)
{
	const struct fo_param *pr = &p->param[param];
	if (!fo_program_has(p, &p->buf[pr->weight], layer))
		return FO_OK;
	struct fo_cuda_queue q = { .cuda = s->cuda, .stream = s->stream[0] };
	struct fo_cuda_init in = { .global_cols = pr->cols,
				   .stream = fo_store_stream(seed, param, layer),
				   .std = pr->init_std == FO_INIT_ZEROS ? -1 : pr->init_std };
	/* Of a shared buffer only some rows are here, perhaps others of the weight than of the master. */
	for (int64_t from = 0, to; from < pr->nr; from = to) {
		to = border(pr, &p->buf[pr->weight], from, pr->nr);
		if (pr->master >= 0)
			to = border(pr, &p->buf[pr->master], from, to);
		in.first = (pr->global_r0 + from) * pr->cols + pr->global_c0;
		in.weight = rectangle(s, pr, p->buf[pr->weight].name, layer, from, to);
		if (pr->master >= 0)
			in.master = rectangle(s, pr, p->buf[pr->master].name, layer, from, to);
		if (in.weight.data || in.master.data)
			FO_TRY(fo_cuda_init_weights(&q, &in));
	}
	return FO_OK;
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
