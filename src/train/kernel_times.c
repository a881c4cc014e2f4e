#include "base/json.h"
#include "train/session.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void fo_kernel_times_open(struct fo_kernel_times *k, struct fo_events *events, struct fo_arena *a,
			  const struct fo_run *r, bool on_device)
{
	*k = (struct fo_kernel_times){ .events = events };
	if (!r->kernel_times)
		return;
	if (!on_device) {
		fo_events_warn(events, "no kernel is timed: train.kernel-times is for a CUDA device, and the processor "
				       "computes");
		return;
	}
	if (fo_cuda_trace_start() != FO_OK) {
		fo_events_warn(events, "no kernel is timed: %s", fo_err_text());
		return;
	}
	k->tracing = true;
	k->steps = r->kernel_times;
	k->path = fo_arena_printf(a, "%s/kernels.jsonl", r->dir);
}

/* Forgets the kernels that ran until now (tuning, an evaluation): they belong to no training step. */
static void drop(void)
{
	struct fo_cuda_trace t;
	if (fo_cuda_trace_take(&t) == FO_OK)
		fo_cuda_trace_fini(&t);
}

static void kernel_line(const struct fo_kernel_times *t, const struct fo_cuda_traced *k, int64_t step, int64_t begin_ns,
			struct fo_json *j)
{
	const struct fo_unrolled *u = t->instances;
	fo_json_object(j, NULL);
	fo_json_int(j, "step", step);
	if (k->instance >= 0 && k->instance < u->n) {
		const struct fo_op *o = fo_instance_op(t->program, u, (int)k->instance);
		const struct fo_slot *slot = &t->program->slot[u->slot[k->instance]];
		fo_json_int(j, "instance", k->instance);
		fo_json_text(j, "operation", fo_op_info(o->kind)->name);
		fo_json_text(j, "phase", fo_phase_name[o->phase]);
		if (t->program->block[slot->block].unit == FO_UNIT_LAYER)
			fo_json_int(j, "layer", slot->layer);
		fo_json_int(j, "micro_batch", slot->mb);
	}
	fo_json_text(j, "kernel", k->name);
	fo_json_int(j, "stream", k->stream);
	fo_json_real(j, "begin_us", (double)(k->begin_ns - begin_ns) * 1e-3);
	fo_json_real(j, "us", (double)(k->end_ns - k->begin_ns) * 1e-3);
	fo_json_close(j);
}

static fo_status write_step(const struct fo_kernel_times *k, int64_t step, const struct fo_cuda_trace *t)
{
	struct fo_str text = { 0 };
	struct fo_json j;
	for (size_t i = 0; i < t->n; i++) {
		fo_json_begin(&j, &text, false);
		kernel_line(k, &t->kernel[i], step, t->kernel[0].begin_ns, &j);
		fo_str_puts(&text, "\n");
	}
	fo_json_begin(&j, &text, false);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "schema", 1);
	fo_json_int(&j, "step", step);
	fo_json_int(&j, "kernels", (int64_t)t->n);
	fo_json_int(&j, "unknown", (int64_t)t->unknown);
	fo_json_int(&j, "dropped", (int64_t)t->dropped);
	fo_json_close(&j);
	fo_str_puts(&text, "\n");
	FILE *f = fopen(k->path, "a");
	bool well = f && fwrite(text.data, 1, text.len, f) == text.len;
	well = f && fclose(f) == 0 && well;
	fo_str_fini(&text);
	return well ? FO_OK : fo_fail(FO_EIO, "cannot write '%s': %s", k->path, strerror(errno));
}

static void take(struct fo_kernel_times *k, int64_t step)
{
	struct fo_cuda_trace t;
	fo_status st = fo_cuda_trace_take(&t);
	if (st == FO_OK) {
		st = write_step(k, step, &t);
		fo_cuda_trace_fini(&t);
	}
	if (st != FO_OK)
		fo_events_warn(k->events, "kernels are no longer timed: %s", fo_err_text());
	if (st != FO_OK || !--k->steps)
		fo_kernel_times_close(k);
}

fo_status fo_kernel_times_event(void *times, const struct fo_event *e)
{
	struct fo_kernel_times *k = times;
	if (e->kind == FO_EVENT_BEGIN) {
		k->program = e->plan->program;
		k->instances = e->plan->instances;
	}
	if (k->steps && e->kind == FO_EVENT_STEP_BEGINS)
		drop();
	if (k->steps && e->kind == FO_EVENT_STEP_RAN)
		take(k, e->step);
	return FO_OK;
}

void fo_kernel_times_close(struct fo_kernel_times *k)
{
	if (k->tracing)
		fo_cuda_trace_stop();
	k->tracing = false;
	k->steps = 0;
}
