/* Figures of a run for other tools while it goes on: TensorBoard's event files, a text file for Prometheus. Nothing
 * here stops a run: what cannot be written is a warning, once, and is tried again. */
#include "train/train_int.h"
#include "base/clock.h"
#include "base/fs.h"

#include <string.h>

/* Scrapers look every 15 s or so; a file that is a second old is new to them, and steps may be milliseconds. */
#define PROMETHEUS_NS 1000000000

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void judge(struct fo_session *s, fo_status st, bool *failed)
{
	if (st != FO_OK && !*failed)
		fo_session_warn(s, "%s; training goes on, and it is tried again", fo_err_text());
	*failed = st != FO_OK;
}

static void write_prometheus(struct fo_session *s, bool last)
{
	struct fo_session_publish *p = &s->publish;
	int64_t t = fo_now_ns();
	if (!p->prometheus || (!last && t < p->next_ns))
		return;
	p->next_ns = t + PROMETHEUS_NS;
	p->figures.tokens = (double)s->meta.tokens;
	p->figures.skipped = (double)s->meta.skipped;
	p->figures.rewinds = (double)s->meta.rewinds;
	p->figures.measured_bytes = (double)(s->cuda ? s->device_used : s->rss_peak - s->rss_before);
	judge(s, fo_prometheus_write(&p->figures, s->r->prometheus, false), &p->prometheus_failed);
}

void fo_session_publish_open(struct fo_session *s, const struct fo_train_plan *plan)
{
	struct fo_session_publish *p = &s->publish;
	const char *dir = s->r->tensorboard;
	const struct fo_memory *m = &plan->memory;
	if (*dir && strcmp(dir, "no")) {
		dir = strcmp(dir, "yes") ? dir : fo_arena_printf(&s->arena, "%s/tensorboard", s->r->dir);
		fo_status st = fo_tensorboard_open(&p->board, dir, s->meta.step + 1, now());
		p->tensorboard = st == FO_OK;
		if (st != FO_OK)
			fo_session_warn(s, "nothing is written for TensorBoard: %s", fo_err_text());
	}
	p->prometheus = *s->r->prometheus != 0;
	if (!p->prometheus)
		return;
	fo_prometheus_init(&p->figures);
	p->figures.run = s->r->dir;
	p->figures.version = s->h->version;
	p->figures.model = *s->program.model.name ? s->program.model.name
						  : "custom"; /* as it is, not as it was named */
	fo_cpu_name(p->cpu, sizeof p->cpu);
	p->figures.cpu = p->cpu;
	p->figures.isa = fo_isa_name[s->options.isa];
	p->figures.dtype = s->peak.dtype;
	p->figures.threads = s->options.threads;
	p->figures.steps_planned = s->r->steps;
	p->figures.step = s->meta.step;
	p->figures.peak_flop_s = s->peak.flop_s > 0 ? s->peak.flop_s : NAN;
	p->figures.planned_bytes = (double)(m->arena + m->persistent + m->workspace + plan->memory_other +
					    plan->memory_checkpoint);
	write_prometheus(s, true); /* that it cannot be written is told before the first step */
}

void fo_session_publish_step(struct fo_session *s, const struct fo_train_step *t)
{
	struct fo_session_publish *p = &s->publish;
	double value[FO_STEP_FIELD_COUNT];
	fo_session_step_values(t, value);
	if (p->tensorboard)
		judge(s, fo_tensorboard_step(&p->board, t->step, value), &p->tensorboard_failed);
	if (p->prometheus)
		fo_prometheus_step(&p->figures, t->step, value);
	write_prometheus(s, false);
}

void fo_session_publish_eval(struct fo_session *s, int64_t step, double loss)
{
	struct fo_session_publish *p = &s->publish;
	if (p->tensorboard)
		judge(s, fo_tensorboard_eval(&p->board, step, loss, now()), &p->tensorboard_failed);
	p->figures.eval_loss = loss;
	p->figures.eval_step = (double)step;
}

void fo_session_publish_checkpoint(struct fo_session *s, int64_t step)
{
	s->publish.figures.checkpoint_step = (double)step;
	s->publish.figures.checkpoint_time = now();
}

void fo_session_publish_machine(struct fo_session *s, const struct fo_state_use *u)
{
	s->publish.figures.machine = *u;
	write_prometheus(s, false);
}

void fo_session_publish_rewind(struct fo_session *s)
{
	struct fo_session_publish *p = &s->publish;
	if (p->tensorboard)
		judge(s, fo_tensorboard_restart(&p->board, s->meta.step + 1, now()), &p->tensorboard_failed);
	p->figures.step = s->meta.step;
}

void fo_session_publish_close(struct fo_session *s)
{
	write_prometheus(s, true);
	if (s->publish.tensorboard)
		fo_tensorboard_close(&s->publish.board);
	s->publish.tensorboard = s->publish.prometheus = false;
}
