/* Paced kernels (train.paced): operations take the times of a machine profile, and nothing is computed. */
#include "train/setup.h"

#include "record/record.h"

#include <stdio.h>

fo_status fo_setup_paced(struct fo_setup *s)
{
	struct fo_paced *x = &s->paced;
	if (!fo_run_is_paced(s->run))
		return FO_OK;
	if (s->hooks->processes)
		return fo_hint(fo_fail(FO_EUNSUPPORTED,
				       "train.paced is for ranks that are threads of one process, and these are "
				       "processes"),
			       "start it without a launcher: flatout train --ranks=N");
	FO_TRY(fo_limits_read(s->run->paced, &x->limits));
	x->open = true;
	snprintf(s->peak.source, sizeof s->peak.source, "%s", FO_RECORD_PACED_WHY);
	const int threads = fo_team_threads(s->step.options.threads, fo_room_step_ranks_here(&s->step));
	fo_status st = fo_rates_init(&x->rates, &x->limits, threads);
	if (st != FO_OK)
		return fo_wrap(st, "train.paced=%s, with %d %s for each rank", s->run->paced, threads,
			       fo_word(threads, "thread", "threads"));
	x->pace = (struct fo_exec_pace){ &x->rates, -1 }; /* rows without bounds of documents */
	s->step.options.pace = &x->pace;
	return FO_OK;
}

fo_status fo_setup_paced_anew(const struct fo_setup *s)
{
	if (!s->paced.open || !s->found.path)
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG, "'%s' has a checkpoint, '%s', and a run with paced kernels trains nothing",
			       s->run->dir, s->found.path),
		       "choose another run.dir, or leave train.paced out to go on with that run");
}

fo_status fo_setup_paced_write(struct fo_setup *s)
{
	if (!s->paced.open)
		return FO_OK;
	return fo_limits_write(fo_arena_printf(&s->arena, "%s/" FO_RECORD_PACED_FILE, s->run->dir), &s->paced.limits);
}

void fo_setup_paced_close(struct fo_setup *s)
{
	if (s->paced.open)
		fo_limits_fini(&s->paced.limits);
	s->paced.open = false;
}
