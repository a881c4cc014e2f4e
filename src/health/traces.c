/* The traces that were given: opened together, and diagnosed as one job. */
#include "health/health_int.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* Marks the traces that are not part of the set. */
static void leave(struct fo_health *h, const char *kept, const char *why, fo_status st)
{
	for (size_t i = 0; i < h->files; i++) {
		struct fo_health_file *f = &h->file[i];
		if (f->kind != FO_HEALTH_TRACE || (kept && !strcmp(f->path, kept)))
			continue;
		f->kind = FO_HEALTH_NONE;
		f->st = st;
		f->why = why;
	}
}

static const char *taken_error(struct fo_health *h)
{
	const char *text = fo_health_text(h, "%s", fo_err_text());
	fo_err_clear();
	return text;
}

/* Opens all traces as one job; where they are none, the first that can be opened stands alone. */
static bool open_set(struct fo_health *h)
{
	const char **path = fo_arena_alloc(&h->arena, (h->files + 1) * sizeof *path);
	int n = 0;
	for (size_t i = 0; i < h->files; i++)
		if (h->file[i].kind == FO_HEALTH_TRACE)
			path[n++] = h->file[i].path;
	if (!n)
		return false;
	fo_status st = fo_trace_set_open(&h->set, path, n);
	if (st == FO_OK)
		return true;
	const char *why = taken_error(h);
	if (n == 1) {
		leave(h, NULL, why, st);
		return false;
	}
	for (int i = 0; i < n; i++) {
		fo_trace_set_fini(&h->set);
		if (fo_trace_set_open(&h->set, &path[i], 1) == FO_OK) {
			leave(h, path[i], fo_health_text(h, "it is not of one job with '%s': %s", path[i], why), st);
			return true;
		}
		fo_err_clear();
	}
	leave(h, NULL, why, st);
	return false;
}

/* ---- is it the job of the rest? ---- */

static const struct fo_device *trace_device(const struct fo_health *h)
{
	const struct fo_trace *t = h->set.rank[0];
	const struct fo_trace_device *v = t->device_count > 0 ? &t->device[0] : NULL;
	if (!v || v->name < 0)
		return NULL;
	return fo_device_match(&h->catalogue, fo_trace_text(t, v->name), v->sm_count, v->memory_bytes);
}

/* The devices that the traces say the job has; -1: they do not. */
static int world(const struct fo_trace_set *s)
{
	int most = -1;
	for (int i = 0; i < s->count; i++)
		most = s->rank[i]->world_size > most ? s->rank[i]->world_size : most;
	return most;
}

static void find_apart(struct fo_health *h)
{
	const struct fo_device *d = trace_device(h);
	int n = world(&h->set);
	if (d && h->device && strcmp(d->name, h->device->name) != 0 &&
	    d->dense[FO_PREC_BF16] != h->device->dense[FO_PREC_BF16])
		h->trace_apart = fo_health_text(h, "the trace is of %s, the job runs on %s (%s)", d->name,
						h->device->name, h->device_from);
	else if (n > 0 && !isnan(h->devices) && n != (int)h->devices)
		h->trace_apart = fo_health_text(h, "the trace is of a job of %d device%s, not of %.0f (%s)", n,
						fo_plural(n), h->devices, h->devices_from);
	if (h->trace_apart)
		fo_health_conflict(h, "%s: what it shows is told, and no money rests on it", h->trace_apart);
	if (!h->device && d) {
		h->device = d;
		h->device_from = "the trace";
	}
	if (isnan(h->devices) && n > 0) {
		h->devices = n;
		h->devices_from = "the trace";
	}
}

/* ---- the diagnosis ---- */

void fo_health_open_traces(struct fo_health *h)
{
	h->opened = open_set(h);
	if (h->opened)
		find_apart(h);
}

void fo_health_diagnose(struct fo_health *h)
{
	if (!h->opened)
		return;
	const struct fo_health_log *l = h->main_log;
	double seq = l ? l->account.seq : h->given.seq;
	double tokens = l ? l->account.tokens : h->given.tokens_per_step;
	bool whole = h->given.model && seq >= 1 && tokens >= 1 && !h->trace_apart;
	struct fo_diagnose_options with = { .price_per_hour = NAN };
	if (!h->trace_apart)
		with.device = h->given.device;
	if (whole) {
		with.model = h->given.model;
		with.seq = (int64_t)seq;
		with.tokens_per_step = (int64_t)tokens;
	}
	fo_status st = fo_diagnose(&h->diagnosis, &h->set, &with);
	if (st != FO_OK && whole) { /* what the model says and what the trace shows cannot both be */
		fo_health_conflict(h, "the trace does not fit the model: %s", taken_error(h));
		with.model = NULL;
		with.seq = with.tokens_per_step = 0;
		st = fo_diagnose(&h->diagnosis, &h->set, &with);
	}
	h->traced = st == FO_OK;
	if (!h->traced) {
		leave(h, NULL, taken_error(h), st);
		return;
	}
	for (size_t i = 0; i < h->files; i++)
		if (h->file[i].kind == FO_HEALTH_TRACE)
			h->file[i].what = fo_diagnosed(&h->diagnosis)
						  ? "trace"
						  : fo_health_text(h, "trace that cannot be diagnosed: %s",
								   h->diagnosis.cannot);
}

bool fo_health_step(const struct fo_health *h, struct fo_subject *s)
{
	if (!h->traced || !fo_diagnosed(&h->diagnosis))
		return false;
	const struct fo_device_ledger *v = fo_shown_device(&h->diagnosis, h->diagnosis.worst);
	if (!v)
		return false;
	fo_shown_step_of(v, s);
	s->rank = &h->diagnosis.rank[h->diagnosis.worst];
	s->device = v;
	s->t = s->rank->trace;
	s->id = v->device;
	return s->l.span_ns > 0;
}

const char *fo_health_unit(struct fo_health *h, const struct fo_rank_ledger *r, const struct fo_device_ledger *v)
{
	long long gpu = v->device >= 0 && v->device < r->trace->device_count ? (long long)r->trace->device[v->device].id
									     : 0;
	const char *file = fo_text_file_name(r->trace->path), *seen = fo_health_text(h, "%s", file);
	if (r->rank < 0)
		return fo_health_text(h, "%s, GPU %lld", seen, gpu);
	return fo_health_text(h, "%s, rank %d, GPU %lld", seen, r->rank, gpu);
}
