/* DIR/kernels.jsonl (docs/formats.md): what ran on the device in the first steps of a process, kernel by kernel, by
 * CUPTI. */
#include "base/json.h"
#include "train/train_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Before programs run: graphs that were captured earlier have kernels that nobody knows. What is not there is a
 * warning. */
void fo_session_kernels_open(struct fo_session *s)
{
	if (!s->r->kernel_times || s->h->dry_run)
		return;
	if (!s->cuda) {
		fo_session_warn(
			s, "no kernel is timed: train.kernel-times is for a CUDA device, and the processor computes");
		return;
	}
	if (fo_cuda_trace_start() != FO_OK)
		fo_session_warn(s, "no kernel is timed: %s", fo_err_text());
	else
		s->kernel_tracing = true, s->kernel_steps = s->r->kernel_times;
}

/* What ran until now (tuning, an evaluation) belongs to no training step. */
void fo_session_kernels_begin(struct fo_session *s)
{
	struct fo_cuda_trace t;
	if (s->kernel_steps && fo_cuda_trace_take(&t) == FO_OK)
		fo_cuda_trace_fini(&t);
}

static void kernel_line(const struct fo_session *s, const struct fo_cuda_traced *k, int64_t begin_ns, struct fo_json *j)
{
	const struct fo_unrolled *u = fo_exec_unrolled(s->exec);
	fo_json_object(j, NULL);
	fo_json_int(j, "step", s->meta.step + 1);
	if (k->instance >= 0 && k->instance < u->n) {
		const struct fo_op *o = fo_instance_op(&s->program, u, (int)k->instance);
		const struct fo_slot *slot = &s->program.slot[u->slot[k->instance]];
		fo_json_int(j, "instance", k->instance);
		fo_json_text(j, "operation", fo_op_info(o->kind)->name);
		fo_json_text(j, "phase", fo_phase_name[o->phase]);
		if (s->program.block[slot->block].unit == FO_UNIT_LAYER)
			fo_json_int(j, "layer", slot->layer);
		fo_json_int(j, "micro_batch", slot->mb);
	}
	fo_json_text(j, "kernel", k->name);
	fo_json_int(j, "stream", k->stream);
	fo_json_real(j, "begin_us", (double)(k->begin_ns - begin_ns) * 1e-3);
	fo_json_real(j, "us", (double)(k->end_ns - k->begin_ns) * 1e-3);
	fo_json_close(j);
}

static fo_status write_step(struct fo_session *s, const struct fo_cuda_trace *t)
{
	const char *path = fo_arena_printf(&s->arena, "%s/kernels.jsonl", s->r->dir);
	struct fo_str text = { 0 };
	struct fo_json j;
	for (size_t i = 0; i < t->n; i++) {
		fo_json_begin(&j, &text, false);
		kernel_line(s, &t->kernel[i], t->kernel[0].begin_ns, &j);
		fo_str_puts(&text, "\n");
	}
	fo_json_begin(&j, &text, false);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "schema", 1);
	fo_json_int(&j, "step", s->meta.step + 1);
	fo_json_int(&j, "kernels", (int64_t)t->n);
	fo_json_int(&j, "unknown", (int64_t)t->unknown);
	fo_json_int(&j, "dropped", (int64_t)t->dropped);
	fo_json_close(&j);
	fo_str_puts(&text, "\n");
	FILE *f = fopen(path, "a");
	bool well = f && fwrite(text.data, 1, text.len, f) == text.len;
	well = f && fclose(f) == 0 && well;
	fo_str_fini(&text);
	return well ? FO_OK : fo_fail(FO_EIO, "cannot write '%s': %s", path, strerror(errno));
}

void fo_session_kernels_step(struct fo_session *s)
{
	struct fo_cuda_trace t;
	if (!s->kernel_steps)
		return;
	fo_status st = fo_cuda_trace_take(&t);
	if (st == FO_OK) {
		st = write_step(s, &t);
		fo_cuda_trace_fini(&t);
	}
	if (st != FO_OK)
		fo_session_warn(s, "kernels are no longer timed: %s", fo_err_text());
	if (st != FO_OK || !--s->kernel_steps)
		fo_session_kernels_close(s);
}

void fo_session_kernels_close(struct fo_session *s)
{
	if (s->kernel_tracing)
		fo_cuda_trace_stop();
	s->kernel_tracing = false;
	s->kernel_steps = 0;
}
