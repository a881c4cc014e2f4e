/* Figures of a run for other tools while it goes on: TensorBoard's event files, a text file for Prometheus. Nothing
 * here stops a run: what cannot be written is a warning, once, and is tried again. */
#include "train/session.h"
#include "base/clock.h"

#include <stdio.h>
#include <string.h>

/* Scrapers look every 15 s or so; a file that is a second old is new to them, and steps may be milliseconds. */
#define PROMETHEUS_NS 1000000000

/* Notes whether writing worked, and warns the first time in a row that it did not. */
static void check(struct fo_publisher *p, fo_status st, bool *failed)
{
	if (st != FO_OK && !*failed)
		fo_events_warn(p->events, "%s; training goes on, and it is tried again", fo_err_text());
	*failed = st != FO_OK;
}

/* Writes the figures if it is time to; at_once: in any case. */
static void write_prometheus(struct fo_publisher *p, bool at_once)
{
	int64_t t = fo_now_ns();
	if (!p->prometheus || (!at_once && t < p->next_ns))
		return;
	p->next_ns = t + PROMETHEUS_NS;
	check(p, fo_prometheus_write(&p->figures, p->path, false), &p->prometheus_failed);
}

static void open_tensorboard(struct fo_publisher *p, const struct fo_run *r, int64_t step)
{
	char own[FO_PATH_BYTES];
	const char *dir = r->tensorboard;
	if (!*dir || !strcmp(dir, "no"))
		return;
	if (!strcmp(dir, "yes")) {
		snprintf(own, sizeof own, "%s/tensorboard", r->dir);
		dir = own;
	}
	p->tensorboard = fo_tensorboard_open(&p->board, dir, step + 1, fo_clock_unix()) == FO_OK;
	if (!p->tensorboard)
		fo_events_warn(p->events, "nothing is written for TensorBoard: %s", fo_err_text());
}

static void begin(struct fo_publisher *p, int64_t step, const struct fo_train_plan *plan)
{
	const struct fo_run *r = plan->run;
	struct fo_prometheus *f = &p->figures;
	const char *model = plan->program->model.name;
	if (step >= r->steps)
		return;
	open_tensorboard(p, r, step);
	p->path = r->prometheus;
	p->prometheus = *r->prometheus != 0;
	if (!p->prometheus)
		return;
	fo_prometheus_init(f);
	fo_cpu_name(p->cpu, sizeof p->cpu);
	snprintf(p->dtype, sizeof p->dtype, "%s", plan->peak.dtype);
	f->run = r->dir;
	f->version = p->version;
	f->model = *model ? model : "custom";
	f->cpu = p->cpu;
	f->isa = plan->paced ? FO_RECORD_PACED : fo_isa_name[plan->isa];
	f->dtype = p->dtype;
	f->threads = plan->threads;
	f->steps_planned = r->steps;
	f->step = step;
	f->peak_flop_s = fo_peak_or_nan(&plan->peak);
	f->planned_bytes = (double)fo_train_planned(plan);
}

static void publish_step(struct fo_publisher *p, const struct fo_train_step *t)
{
	double value[FO_STEP_FIELD_COUNT];
	/* Steps may take less than the log's millisecond, so time is to the nanosecond. */
	fo_step_values(t, fo_clock_unix(), value);
	if (p->tensorboard)
		check(p, fo_tensorboard_step(&p->board, t->step, value), &p->tensorboard_failed);
	if (p->prometheus)
		fo_prometheus_step(&p->figures, t->step, value);
}

fo_status fo_publisher_event(void *publisher, const struct fo_event *e)
{
	struct fo_publisher *p = publisher;
	struct fo_prometheus *f = &p->figures;
	if (e->kind == FO_EVENT_BEGIN)
		begin(p, e->step, e->plan);
	f->tokens = (double)e->tokens;
	f->skipped = (double)e->skipped;
	f->rewinds = (double)e->rewinds;
	f->measured_bytes = (double)e->measured_bytes;
	switch (e->kind) {
	case FO_EVENT_BEGIN: /* a file that cannot be written is reported before the first step */
	case FO_EVENT_STEP:
	case FO_EVENT_MACHINE: break;
	case FO_EVENT_EVALUATION:
		if (p->tensorboard)
			check(p, fo_tensorboard_eval(&p->board, e->step, e->evaluation.loss, fo_clock_unix()),
			      &p->tensorboard_failed);
		f->eval_loss = e->evaluation.loss;
		f->eval_step = (double)e->step;
		return FO_OK;
	case FO_EVENT_CHECKPOINT:
		f->checkpoint_step = (double)e->step;
		f->checkpoint_time = fo_clock_unix();
		return FO_OK;
	case FO_EVENT_REWOUND:
		if (p->tensorboard)
			check(p, fo_tensorboard_restart(&p->board, e->step + 1, fo_clock_unix()),
			      &p->tensorboard_failed);
		f->step = e->step;
		return FO_OK;
	default: return FO_OK;
	}
	if (e->kind == FO_EVENT_STEP)
		publish_step(p, e->taken);
	if (e->kind == FO_EVENT_MACHINE)
		f->machine = *e->machine.use;
	write_prometheus(p, e->kind == FO_EVENT_BEGIN);
	return FO_OK;
}

void fo_publisher_close(struct fo_publisher *p)
{
	write_prometheus(p, true);
	if (p->tensorboard)
		fo_tensorboard_close(&p->board);
	p->tensorboard = p->prometheus = false;
}
