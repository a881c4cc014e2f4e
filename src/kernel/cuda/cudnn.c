/* Plans of attention: made once, kept while the device is open, run in a stream. */
#include "kernel/cuda/cudnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fo_cuda_plans {
	struct fo_cuda_plan **plan; /* each by itself: callers keep pointers */
	int n, cap;
};

const struct fo_cuda_plan *fo_cuda_plan_at(const struct fo_cuda *c, int i)
{
	return c->plans && i < c->plans->n ? c->plans->plan[i] : NULL;
}

const struct fo_cuda_plan *fo_cuda_plan_find(const struct fo_cuda *c, const struct fo_dnn_shape *s)
{
	const struct fo_cuda_plan *p = NULL;
	for (int i = 0; (p = fo_cuda_plan_at(c, i)); i++)
		if (!memcmp(&p->shape, s, sizeof *s))
			break;
	return p;
}

static fo_status make(struct fo_cuda *c, struct fo_cuda_plan *p)
{
	struct fo_dnn_graph g;
	FO_TRY(fo_dnn_graph_new(&g, c->dnn, c->dnn_handle, &p->shape));
	fo_status st = fo_dnn_plan_new(&p->made, &g, c->dnn_handle, NULL, c->info.cc_major);
	fo_dnn_graph_free(&g);
	return st;
}

fo_status fo_cuda_plan_get(struct fo_cuda *c, const struct fo_dnn_shape *s, const struct fo_cuda_plan **out,
			   bool *is_new)
{
	*out = fo_cuda_plan_find(c, s);
	*is_new = !*out;
	if (*out)
		return FO_OK;
	if (!c->plans)
		c->plans = fo_xmalloc(sizeof *c->plans);
	if (c->plans->n == c->plans->cap) {
		c->plans->cap = c->plans->cap ? 2 * c->plans->cap : 16;
		c->plans->plan = fo_xrealloc(c->plans->plan, (size_t)c->plans->cap * sizeof *c->plans->plan);
	}
	struct fo_cuda_plan *p = fo_xmalloc(sizeof *p);
	p->shape = *s;
	c->plans->plan[c->plans->n++] = p;
	if (make(c, p) != FO_OK) {
		snprintf(p->why, sizeof p->why, "%s", *fo_err_text() ? fo_err_text() : "no reason given");
		fo_err_clear();
	}
	*out = p;
	return FO_OK;
}

void fo_cuda_plan_refuse(struct fo_cuda *c, const struct fo_cuda_plan *p, const char *why)
{
	for (int i = 0; i < c->plans->n; i++)
		if (c->plans->plan[i] == p)
			snprintf(c->plans->plan[i]->why, sizeof p->why, "%s", why);
}

static fo_status fill(const struct fo_cudnn_calls *d, cudnnBackendDescriptor_t pack, const struct fo_cuda_plan *p,
		      void *const *pointer, void *ws)
{
	int64_t id[FO_DNN_IDS];
	void *at[FO_DNN_IDS];
	int n = 0;
	for (int i = 0; i < FO_DNN_IDS; i++)
		if (p->made.used[i])
			id[n] = i, at[n++] = pointer[i];
#define TRY(call) FO_TRY(fo_dnn_check(d, d->call, "run attention"))
	TRY(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at));
	TRY(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, id));
	TRY(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &ws));
	TRY(cudnnBackendFinalize(pack));
	return FO_OK;
}

fo_status fo_cuda_plan_run(struct fo_cuda_queue *q, const struct fo_cuda_plan *p, void *const *pointer, void *ws)
{
	const struct fo_cudnn_calls *d = q->cuda->dnn;
	cudnnBackendDescriptor_t pack = NULL;
	TRY(cudnnSetStream(q->cuda->dnn_handle, q->stream));
	TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
#undef TRY
	fo_status st = fill(d, pack, p, pointer, ws);
	if (st == FO_OK)
		st = fo_dnn_check(d, d->cudnnBackendExecute(q->cuda->dnn_handle, p->made.plan, pack), "run attention");
	d->cudnnBackendDestroyDescriptor(pack);
	return st;
}

void fo_cuda_plans_free(struct fo_cuda *c)
{
	if (!c->plans)
		return;
	for (int i = 0; i < c->plans->n; i++) {
		fo_dnn_plan_free(&c->plans->plan[i]->made, c->dnn);
		free(c->plans->plan[i]);
	}
	free(c->plans->plan);
	free(c->plans);
	c->plans = NULL;
}
