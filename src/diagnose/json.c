/* A diagnosis as JSON: docs/formats.md, "Diagnosis". */
#include "diagnose/diagnose.h"

#include "base/json.h"

#include <math.h>

static const char *const rank_from[] = {
	[FO_RANK_RECORDED] = "recorded", [FO_RANK_FILE_NAME] = "file_name", [FO_RANK_ORDER] = "order"
};
static const char *const format_name[] = {
	[FO_TRACE_KINETO] = "kineto", [FO_TRACE_NSYS] = "nsys", [FO_TRACE_OWN] = "flatout"
};

static void text_of(struct fo_json *j, const char *key, const struct fo_trace *t, int32_t id)
{
	fo_json_text(j, key, id >= 0 ? fo_trace_text(t, id) : NULL);
}

/* A value that may be unknown: null then. */
static void known(struct fo_json *j, const char *key, int64_t value, int64_t unknown)
{
	if (value == unknown)
		fo_json_raw(j, key, "null");
	else
		fo_json_int(j, key, value);
}

static void ledger(struct fo_json *j, const struct fo_ledger *l)
{
	fo_json_int(j, "begin_ns", l->begin_ns);
	fo_json_int(j, "end_ns", l->end_ns);
	fo_json_int(j, "span_ns", l->span_ns);
	fo_json_int(j, "busy_ns", l->busy_ns);
	fo_json_int(j, "idle_ns", l->idle_total_ns);
	fo_json_int(j, "comp_ns", l->comp_ns);
	fo_json_int(j, "comm_ns", l->comm_ns);
	fo_json_int(j, "exposed_comm_ns", l->exposed_comm_ns);
	fo_json_int(j, "exposed_mem_ns", l->exposed_mem_ns);
	fo_json_int(j, "mem_ns", l->mem_ns);
	fo_json_object(j, "idle");
	for (int k = 0; k < FO_IDLE_COUNT; k++)
		fo_json_int(j, fo_idle_name[k], l->idle_ns[k]);
	fo_json_close(j);
	fo_json_object(j, "categories");
	for (int k = 0; k < FO_K_COMPUTE_COUNT; k++)
		if (l->class_ns[k])
			fo_json_int(j, fo_kernel_class_name[k], l->class_ns[k]);
	fo_json_close(j);
	fo_json_object(j, "exposed_comm");
	fo_json_int(j, "wait_ns", l->exposed_wait_ns);
	fo_json_int(j, "bubble_ns", l->exposed_bubble_ns);
	fo_json_int(j, "transfer_ns", l->exposed_transfer_ns);
	fo_json_int(j, "unknown_ns", l->exposed_comm_unknown_ns);
	fo_json_close(j);
	fo_json_object(j, "exposed_mem");
	for (int k = 0; k < FO_COPY_COUNT; k++)
		if (l->copy_ns[k])
			fo_json_int(j, k == FO_COPY_NONE ? "fill" : fo_copy_name[k], l->copy_ns[k]);
	fo_json_close(j);
	fo_json_int(j, "exposed_pageable_ns", l->exposed_pageable_ns);
	fo_json_int(j, "hidden_comm_ns", l->comm_ns - l->exposed_comm_ns);
	fo_json_int(j, "blocking_comm_ns", l->blocking_comm_ns);
	fo_json_int(j, "resident_ns", l->resident_ns);
	fo_json_int(j, "recompute_ns", l->recompute_ns);
	fo_json_int(j, "backward_ns", l->backward_ns);
	known(j, "forward_ns", l->forward_ns, -1);
	fo_json_int(j, "ops", l->ops);
	fo_json_object(j, "sums");
	for (int k = 0; k < FO_K_COUNT; k++) {
		if (!l->class_ops[k] && !l->class_sum_ns[k])
			continue;
		fo_json_object(j, fo_kernel_class_name[k]);
		fo_json_int(j, "ns", l->class_sum_ns[k]);
		fo_json_int(j, "ops", l->class_ops[k]);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void step(struct fo_json *j, const struct fo_step_ledger *s)
{
	fo_json_object(j, NULL);
	known(j, "number", s->number, -1);
	ledger(j, &s->l);
	known(j, "host_begin_ns", s->host_begin_ns, -1);
	known(j, "host_end_ns", s->host_end_ns, -1);
	known(j, "launch_busy_ns", s->launch_busy_ns, -1);
	fo_json_close(j);
}

static void device(struct fo_json *j, const struct fo_trace *t, const struct fo_device_ledger *d)
{
	const struct fo_trace_device *hardware = &t->device[d->device];
	fo_json_object(j, NULL);
	fo_json_int(j, "device", hardware->id);
	text_of(j, "name", t, hardware->name);
	fo_json_text(j, "steps_from", fo_window_origin_name[d->from]);
	ledger(j, &d->total);
	if (d->once.span_ns) {
		fo_json_object(j, "without_recompute");
		ledger(j, &d->once);
		fo_json_close(j);
	}
	fo_json_int(j, "leftover_ops", d->leftover_ops);
	fo_json_int(j, "outside_ops", d->outside_ops);
	fo_json_int(j, "excluded_ops", d->excluded_ops);
	fo_json_int(j, "dropped_steps", d->dropped_steps);
	fo_json_int(j, "empty_steps", d->empty_steps + d->unseen_steps);
	fo_json_int(j, "lead_ns", d->lead_ns);
	fo_json_int(j, "start_ns", d->start_ns);
	known(j, "median_step", fo_device_ledger_median(d), -1);
	fo_json_array(j, "steps");
	for (int64_t i = 0; i < d->steps; i++)
		step(j, &d->step[i]);
	fo_json_close(j);
	fo_json_close(j);
}

static void host_steps(struct fo_json *j, const struct fo_rank_ledger *r)
{
	fo_json_array(j, "host_steps");
	for (int64_t i = 0; i < r->hosts; i++) {
		const struct fo_host_step *h = &r->host[i];
		fo_json_object(j, NULL);
		fo_json_int(j, "number", h->number);
		fo_json_int(j, "begin_ns", h->begin_ns);
		fo_json_int(j, "span_ns", h->end_ns - h->begin_ns);
		fo_json_object(j, "parts");
		for (int k = 0; k < FO_HOST_PART_COUNT; k++)
			fo_json_int(j, fo_host_part_name[k], h->part_ns[k]);
		fo_json_close(j);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void defects(struct fo_json *j, const struct fo_trace_defects *d)
{
	fo_json_object(j, "defects");
	fo_json_int(j, "events", d->events);
	fo_json_int(j, "unlinked", d->unlinked);
	fo_json_int(j, "unanswered", d->unanswered);
	fo_json_int(j, "numbers", d->numbers);
	fo_json_int(j, "numbers_of", d->numbers_of);
	fo_json_int(j, "shared_correlations", d->shared_correlations);
	fo_json_int(j, "zero_duration", d->zero_duration);
	fo_json_int(j, "negative_duration", d->negative_duration);
	fo_json_int(j, "clipped", d->clipped);
	fo_json_int(j, "out_of_order", d->out_of_order);
	fo_json_int(j, "malformed", d->malformed);
	fo_json_int(j, "malformed_gpu", d->malformed_gpu);
	fo_json_int(j, "duplicates", d->duplicates);
	fo_json_int(j, "doubled", d->doubled);
	known(j, "dropped_by_profiler", d->dropped_by_profiler, -1);
	fo_json_bool(j, "truncated", d->truncated);
	fo_json_int(j, "profiler_overhead_ns", d->profiler_overhead_ns);
	fo_json_close(j);
	fo_json_object(j, "has");
	fo_json_bool(j, "launches", d->has_launches);
	fo_json_bool(j, "host_ops", d->has_host_ops);
	fo_json_bool(j, "shapes", d->has_shapes);
	fo_json_bool(j, "modules", d->has_modules);
	fo_json_bool(j, "collective_args", d->has_collective_args);
	fo_json_bool(j, "gpu_waits", d->has_gpu_waits);
	fo_json_bool(j, "graph_granularity", d->graph_granularity);
	fo_json_close(j);
}

static void rank(struct fo_json *j, const struct fo_diagnosis *d, int i)
{
	const struct fo_rank_ledger *r = &d->rank[i];
	const struct fo_trace *t = r->trace;
	fo_json_object(j, NULL);
	known(j, "rank", r->rank, -1);
	fo_json_text(j, "rank_from", r->rank >= 0 ? rank_from[t->rank_from] : NULL);
	fo_json_text(j, "path", t->path);
	fo_json_text(j, "format", format_name[t->format]);
	known(j, "world_size", t->world_size, -1);
	text_of(j, "backend", t, t->backend);
	known(j, "origin_unix_ns", t->origin_unix_ns, 0);
	fo_json_int(j, "clock_offset_ns", d->set->offset_ns ? d->set->offset_ns[i] : 0);
	defects(j, &t->defect);
	fo_json_array(j, "devices");
	for (int64_t k = 0; k < r->devices; k++)
		device(j, t, &r->device[k]);
	fo_json_close(j);
	host_steps(j, r);
	fo_json_close(j);
}

static void options(struct fo_json *j, const struct fo_diagnose_options *o)
{
	fo_json_object(j, "options");
	fo_json_bool(j, "whole_trace", o->ledger.whole_trace);
	fo_json_bool(j, "exclude_unlinked", o->ledger.exclude_unlinked);
	fo_json_text(j, "model", o->model);
	known(j, "seq", o->seq, 0);
	known(j, "tokens_per_step", o->tokens_per_step, 0);
	fo_json_real(j, "steps", o->steps > 0 ? o->steps : NAN);
	fo_json_real(j, "step_seconds", o->step_s > 0 ? o->step_s : NAN);
	fo_json_text(j, "device", o->device);
	fo_json_text(j, "dtype", o->dtype);
	fo_json_real(j, "price_per_hour", o->price_per_hour > 0 ? o->price_per_hour : NAN);
	fo_json_close(j);
}

void fo_diagnosis_json(const struct fo_diagnosis *d, struct fo_json *j)
{
	fo_json_int(j, "schema", 1);
	options(j, &d->with);
	fo_json_array(j, "ranks");
	for (int i = 0; i < d->ranks; i++)
		rank(j, d, i);
	fo_json_close(j);
	fo_found_json(j, d);
	fo_own_run_json(j, d);
	fo_diagnosis_findings_json(j, d);
	fo_diagnosis_ranks_json(j, d);
	fo_json_bool(j, "serious", d->serious);
}
