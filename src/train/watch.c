/* The state of the machine beside a run: sampled between steps, logged with what the time went to meanwhile, summed up.
 */
#include "train/session.h"

#include "base/clock.h"

/* Often enough that an energy counter does not wrap unseen (hw/state.c), and seldom enough to cost nothing: a sample
 * may take a millisecond and more where there are hundreds of processors, so the next one waits for 2000 times what
 * this one took. */
#define SAMPLE_NS 5000000000
#define COST_SHARE 2000

static void plan_next(struct fo_watch *w, int64_t began)
{
	int64_t now = fo_now_ns(), rest = (now - began) * COST_SHARE;
	w->next_ns = now + (rest > SAMPLE_NS ? rest : SAMPLE_NS);
}

void fo_watch_open(struct fo_watch *w, struct fo_events *events, struct fo_cuda *device)
{
	*w = (struct fo_watch){ .events = events, .on_device = device != NULL };
	if (device)
		w->device = fo_nvml_watch_start(fo_cuda_nvml(device));
}

static void begin(struct fo_watch *w)
{
	int64_t t0 = fo_now_ns();
	fo_state_watch_start(&w->machine, "");
	fo_nvml_watch_count(w->device, false); /* until the first step, which finds everything cold, is done */
	fo_nvml_watch_restart(w->device);
	plan_next(w, t0);
}

static fo_status sample(struct fo_watch *w, int64_t step)
{
	int64_t t0 = fo_now_ns();
	struct fo_state_use machine = fo_state_watch_sample(&w->machine);
	plan_next(w, t0);
	struct fo_nvml_use device = fo_nvml_watch_sample(w->device);
	struct fo_event e = { .kind = FO_EVENT_MACHINE, .step = step, .machine = { .use = &machine } };
	if (w->on_device)
		e.machine.device = &device;
	return fo_events_send(w->events, e);
}

fo_status fo_watch_event(void *watch, const struct fo_event *e)
{
	struct fo_watch *w = watch;
	switch (e->kind) {
	case FO_EVENT_BEGIN: begin(w); return FO_OK;
	case FO_EVENT_STEP_OVER: return fo_now_ns() < w->next_ns ? FO_OK : sample(w, e->step);
	case FO_EVENT_STEPS_DONE: return sample(w, e->step);
	case FO_EVENT_PAUSE: fo_nvml_watch_count(w->device, false); return FO_OK;
	case FO_EVENT_GO_ON: fo_nvml_watch_count(w->device, true); return FO_OK;
	default: return FO_OK;
	}
}

void fo_watch_total(struct fo_watch *w, struct fo_state_use *machine, struct fo_nvml_use *device)
{
	*machine = fo_state_watch_total(&w->machine);
	*device = fo_nvml_watch_total(w->device);
}

void fo_watch_close(struct fo_watch *w)
{
	fo_nvml_watch_stop(w->device);
	w->device = NULL;
}
