#include "ckpt/ckpt.h"
#include "train/store_int.h"
#include "train/train.h"

#include <stdio.h>
#include <stdlib.h>

static struct fo_st_tensor tensor_of(const struct fo_store_tensor *s, const char *prefix)
{
	struct fo_st_tensor t = { .dtype = s->dtype,
				  .vector = s->whole == 1,
				  .rows = s->rows,
				  .cols = s->cols,
				  .ld = s->ld,
				  .row = s->row,
				  .whole = s->whole,
				  .col = s->col,
				  .wide = s->whole_cols,
				  .copies = s->copies,
				  .copy = s->copy,
				  .layer = s->layer,
				  .data = s->data };
	snprintf(t.name, sizeof t.name, "%s%s", prefix, s->name);
	return t;
}

/* ---- what a checkpoint holds ---- */

static fo_status add_tensor(void *ctx, const struct fo_store_tensor *s)
{
	static const char *const prefix[] = { "", "master.", "m.", "v.", "state." };
	struct fo_tensors *l = ctx;
	struct fo_st_tensor t = tensor_of(s, s->dtype == FO_I16 ? "low." : prefix[s->which]);
	t.optional = s->which == 4;
	if (s->which == 0) {
		fo_array_room(&l->weight, &l->weight_cap, l->weights, sizeof t);
		l->weight[l->weights++] = t;
	} else {
		fo_array_room(&l->state, &l->state_cap, l->states, sizeof t);
		l->state[l->states++] = t;
	}
	return FO_OK;
}

fo_status fo_store_tensors(struct fo_store *s, const struct fo_program *p, struct fo_tensors *out)
{
	const struct fo_st_memory *memory;
	*out = (struct fo_tensors){ 0 };
	FO_TRY(fo_store_visit(s, p, add_tensor, out));
	FO_TRY(fo_store_access(s, &memory));
	for (size_t i = 0; i < out->weights; i++)
		out->weight[i].memory = memory;
	for (size_t i = 0; i < out->states; i++)
		out->state[i].memory = memory;
	return FO_OK;
}

static fo_status add_bytes(void *ctx, const struct fo_store_tensor *t)
{
	*(int64_t *)ctx += t->whole * t->whole_cols * (int64_t)fo_dtype_bytes(t->dtype);
	return FO_OK;
}

int64_t fo_store_checkpoint_bytes(struct fo_store *s, const struct fo_program *p)
{
	int64_t bytes = 0;
	return fo_store_visit(s, p, add_bytes, &bytes) == FO_OK ? bytes : 0; /* the visitor never fails */
}

void fo_tensors_fini(struct fo_tensors *t)
{
	free(t->weight);
	free(t->state);
	*t = (struct fo_tensors){ 0 };
}

/* ---- foreign weights ---- */

struct list {
	struct fo_st_tensor *t;
	size_t n, cap;
};

/* Lists weights and master copies (which 0 and 1) under the weight's name. Low halves are filled with the weight, which
 * was visited just before. Moments stay as they are. Never fails. */
static fo_status collect(void *ctx, const struct fo_store_tensor *s)
{
	struct list *l = ctx;
	if (s->which > 1)
		return FO_OK;
	if (s->dtype == FO_I16) {
		l->t[l->n - 1].low = s->data;
		return FO_OK;
	}
	fo_array_room(&l->t, &l->cap, l->n, sizeof *l->t);
	l->t[l->n++] = tensor_of(s, "");
	return FO_OK;
}

fo_status fo_weights_check(const struct fo_program *p, const char *dir)
{
	struct list l = { 0 };
	for (int q = 0; q < p->nparam; q++)
		for (int layer = 0; layer < fo_store_layers(p, p->param[q].per_layer); layer++) {
			const struct fo_param *pr = &p->param[q];
			struct fo_store_tensor t = { .rows = pr->rows,
						     .whole = pr->rows,
						     .cols = pr->cols,
						     .whole_cols = pr->cols,
						     .ld = pr->cols,
						     .dtype = FO_F32 };
			fo_param_name(pr, layer, t.name, sizeof t.name);
			FO_TRY(collect(&l, &t));
		}
	fo_status st = fo_hf_check(dir, p->model.tied, l.t, l.n);
	free(l.t);
	return st;
}

fo_status fo_store_load(struct fo_store *s, const struct fo_program *p, const char *dir)
{
	struct list l = { 0 };
	const struct fo_st_memory *memory;
	FO_TRY(fo_store_access(s, &memory));
	fo_status st = fo_store_visit(s, p, collect, &l);
	for (size_t i = 0; i < l.n; i++)
		l.t[i].memory = memory;
	if (st == FO_OK)
		st = fo_hf_read(dir, p->model.tied, l.t, l.n);
	free(l.t);
	return st;
}
