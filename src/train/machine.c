/* The state of the machine beside a run: sampled between steps, logged with what the time went to meanwhile, summed up.
 */
#include "train/train_int.h"

#include "base/clock.h"

/* Often enough that an energy counter does not wrap unseen (hw/state.c), and seldom enough to cost nothing: a sample
 * may take a millisecond and more where there are hundreds of processors, so the next one waits for 2000 times what
 * this one took. */
#define SAMPLE_NS 5000000000
#define COST_SHARE 2000

static void next_look(struct fo_session *s, int64_t began)
{
	int64_t now = fo_now_ns(), rest = (now - began) * COST_SHARE;
	s->look_ns = now + (rest > SAMPLE_NS ? rest : SAMPLE_NS);
}

void fo_session_watch_start(struct fo_session *s)
{
	int64_t t0 = fo_now_ns();
	fo_state_watch_start(&s->watch, "");
	fo_nvml_watch_count(s->nvml, false); /* until the first step, which finds everything cold, is done */
	fo_nvml_watch_restart(s->nvml);
	next_look(s, t0);
}

fo_status fo_session_watch(struct fo_session *s, bool last)
{
	int64_t t0 = fo_now_ns();
	if (!last && t0 < s->look_ns)
		return FO_OK;
	struct fo_state_use u = fo_state_watch_sample(&s->watch);
	next_look(s, t0);
	struct fo_nvml_use device = fo_nvml_watch_sample(s->nvml);
	fo_session_publish_machine(s, &u);
	FO_TRY(fo_session_log_profile(s));
	return fo_session_log_machine(s, &u, s->cuda ? &device : NULL);
}
