#include "train/train_int.h"

#include <string.h>

/* A kernel set without a register-only loop has nothing to compare spans with: the run goes on without metered steps.
 */
fo_status fo_session_meter_open(struct fo_session *s)
{
	int dtype = fo_run_precision(s->r) == FO_PRECISION_BF16 ? FO_BF16 : FO_F32;
	struct fo_session_meter *m = &s->meter;
	if (!s->r->metered_every)
		return FO_OK;
	if (s->cuda) {
		if (!s->meta.step) /* once a run: a ladder's goes on many times */
			fo_session_warn(s, "no step is metered: bursts of known work are the processor's; on a device "
					   "train.timed-every times operations");
		return FO_OK;
	}
	fo_status st = fo_meter_init(&m->meter, fo_kernel_sets[s->options.isa], dtype, s->options.threads);
	if (st == FO_EUNSUPPORTED) {
		fo_session_warn(s, "no step is metered: %s", fo_err_text());
		return FO_OK;
	}
	FO_TRY(st);
	m->on = true;
	fo_metered_init(&m->spans, &s->program, fo_dtype_name[dtype], s->options.threads);
	return fo_metered_open(&m->out, fo_arena_printf(&s->arena, "%s/" FO_METERED_FILE, s->r->dir), &m->spans);
}

void fo_session_meter_close(struct fo_session *s)
{
	if (!s->meter.on)
		return;
	fo_meter_fini(&s->meter.meter);
	fo_metered_close(&s->meter.out);
	fo_metered_fini(&s->meter.spans);
	s->meter.on = false;
}

bool fo_session_meters(const struct fo_session *s)
{
	return s->meter.on && s->steps_here && (s->meta.step + 1) % s->r->metered_every == 0;
}

static void around(void *ctx, int instance, void (*run)(void *arg), void *arg)
{
	struct fo_session *s = ctx;
	struct fo_quiet_span span;
	fo_meter_span(&s->meter.meter, run, arg, &span);
	fo_metered_add(&s->meter.spans, (int32_t)(s->meta.step + 1), instance, &span);
}

fo_status fo_session_metered_step(struct fo_session *s)
{
	struct fo_session_meter *m = &s->meter;
	fo_meter_attach(&m->meter); /* an evaluation in between may have run with other threads */
	fo_status st = fo_exec_step_around(s->exec, around, s);
	if (st != FO_OK)
		return st;
	if (fo_metered_write(&m->out, &m->spans) != FO_OK)
		fo_session_warn(s, "%s; the steps' own results are not touched by that", fo_err_text());
	return FO_OK;
}
