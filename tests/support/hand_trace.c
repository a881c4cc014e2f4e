#include "support/hand_trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int64_t ns(double us) { return (int64_t)(us * 1000 + 0.5); }

int32_t hand_text(struct hand *h, const char *text) { return fo_trace_intern(&h->b, text, strlen(text)); }

void hand_begin(struct hand *h, int rank, int world)
{
	*h = (struct hand){ .thread = 1 };
	fo_trace_build_init(&h->b, "by hand");
	h->b.t->rank = rank;
	h->b.t->world_size = world;
	fo_trace_device(&h->b, 0);
}

void hand_device(struct hand *h, const char *name, int sms, int major, int minor, double memory_gib)
{
	int16_t at = fo_trace_device(&h->b, 0);
	struct fo_trace_device *v = &h->b.t->device[at];
	v->name = hand_text(h, name);
	v->sm_count = sms;
	v->capability_major = major;
	v->capability_minor = minor;
	v->memory_bytes = (int64_t)(memory_gib * 1073741824.0);
}

void hand_step(struct hand *h, int number, double begin, double end)
{
	struct fo_trace_step *s = fo_trace_add_step(&h->b, number, ns(begin), ns(end));
	s->thread = fo_trace_thread(&h->b, 1, 1);
	s->device = -1;
}

void hand_steps(struct hand *h, int n, double length)
{
	for (int i = 0; i < n; i++)
		hand_step(h, i + 1, i * length, (i + 1) * length - 1);
}

struct fo_host_op *hand_op(struct hand *h, enum fo_host_kind kind, const char *name, double begin, double end)
{
	struct fo_host_op *o = fo_trace_add_op(&h->b, ns(begin), ns(end));
	o->name = hand_text(h, name);
	o->thread = fo_trace_thread(&h->b, 1, h->thread);
	o->kind = kind;
	return o;
}

static void launch(struct hand *h, const char *name, struct fo_gpu_op *g, double at, double end)
{
	if (at < 0)
		return;
	struct fo_launch *l = fo_trace_add_launch(&h->b, ns(at), ns(end));
	l->correlation = g->correlation = ++h->correlation;
	l->name = hand_text(h, name);
	l->thread = fo_trace_thread(&h->b, 1, h->thread);
}

struct fo_gpu_op *hand_kernel(struct hand *h, const char *name, double at, double begin, double end)
{
	struct fo_gpu_op *g = fo_trace_add_gpu(&h->b, ns(begin), ns(end));
	g->name = hand_text(h, name);
	g->stream = 7;
	g->device = fo_trace_device(&h->b, 0);
	g->kind = FO_GPU_KERNEL;
	launch(h, "cudaLaunchKernel", g, at, at + 2);
	return g;
}

struct fo_gpu_op *hand_copy(struct hand *h, enum fo_copy copy, bool pageable, double at, double begin, double end)
{
	struct fo_gpu_op *g = hand_kernel(
		h, copy == FO_COPY_H2D ? "Memcpy HtoD (Pageable -> Device)" : "Memcpy DtoH (Device -> Pinned)", at,
		begin, end);
	g->kind = FO_GPU_MEMCPY;
	g->copy = copy;
	g->flags |= pageable ? FO_GPU_PAGEABLE : 0;
	return g;
}

void hand_finish(struct hand *h)
{
	if (fo_trace_build_finish(&h->b, &h->t) != FO_OK)
		fail_msg("%s", fo_err_text());
}

void hand_diagnose(struct hand *h, struct fo_diagnosis *d, struct fo_trace_set *set,
		   const struct fo_diagnose_options *o)
{
	static int64_t offset[1];
	*set = (struct fo_trace_set){ .rank = &h->t, .offset_ns = offset, .residual_ns = -1, .count = 1 };
	if (fo_diagnose(d, set, o) != FO_OK)
		fail_msg("%s", fo_err_text());
}

void hand_done(struct hand *h, struct fo_diagnosis *d)
{
	if (d)
		fo_diagnosis_fini(d);
	fo_trace_free(h->t);
}

const struct fo_finding *hand_finding(const struct fo_diagnosis *d, const char *id)
{
	for (int64_t i = 0; i < d->findings; i++)
		if (strcmp(d->finding[i].id, id) == 0)
			return &d->finding[i];
	return NULL;
}
