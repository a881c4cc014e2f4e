#include "train/session.h"

/* A kernel set without a register-only loop has nothing to compare spans with: the run goes on without metered steps.
 */
fo_status fo_step_meter_open(struct fo_step_meter *m, struct fo_setup *set, int64_t step)
{
	const struct fo_run *r = set->run;
	const struct fo_exec_options *o = &set->step.options;
	/* Of several ranks rank 0 is metered, with its own threads; the others' next to it are part of what a step is.
	 */
	const int threads = fo_team_threads(o->threads, fo_room_step_ranks_here(&set->step));
	int dtype = fo_run_precision(r) == FO_PRECISION_BF16 ? FO_BF16 : FO_F32;
	*m = (struct fo_step_meter){ .every = r->metered_every, .set = set, .events = set->events };
	if (!r->metered_every)
		return FO_OK;
	if (set->cuda) {
		if (!step) /* once a run: a ladder's goes on many times */
			fo_events_warn(m->events, "no step is metered: bursts of known work are the processor's; on a "
						  "device train.timed-every times operations");
		return FO_OK;
	}
	fo_status st = fo_meter_init(&m->meter, fo_kernel_sets[o->isa], dtype, threads);
	if (st == FO_EUNSUPPORTED) {
		fo_events_warn(m->events, "no step is metered: %s", fo_err_text());
		return FO_OK;
	}
	FO_TRY(st);
	m->on = true;
	fo_metered_init(&m->spans, &set->step.program, fo_dtype_name[dtype], threads);
	return fo_metered_open(&m->out, fo_arena_printf(&set->arena, "%s/" FO_METERED_FILE, r->dir), &m->spans);
}

void fo_step_meter_close(struct fo_step_meter *m)
{
	if (!m->on)
		return;
	fo_meter_fini(&m->meter);
	fo_metered_close(&m->out);
	fo_metered_fini(&m->spans);
	m->on = false;
}

bool fo_step_meter_due(const struct fo_step_meter *m, int64_t step, bool first)
{
	return m->on && !first && step % m->every == 0;
}

static void around(void *ctx, int instance, void (*run)(void *arg), void *arg)
{
	struct fo_step_meter *m = ctx;
	struct fo_quiet_span span;
	fo_meter_span(&m->meter, run, arg, &span);
	fo_metered_add(&m->spans, (int32_t)m->step, instance, &span);
}

fo_status fo_step_meter_run(struct fo_step_meter *m, int64_t step)
{
	m->step = step;
	fo_meter_attach(&m->meter); /* an evaluation in between may have run with other threads */
	struct fo_room_step *s = &m->set->step;
	FO_TRY(fo_team_step_around(s->team, s->exec, &m->set->ports, (int32_t)step - 1, around, m));
	if (fo_metered_write(&m->out, &m->spans) != FO_OK)
		fo_events_warn(m->events, "%s; the steps' own results are not touched by that", fo_err_text());
	return FO_OK;
}
