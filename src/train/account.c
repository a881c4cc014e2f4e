#include "train/session.h"
#include "base/clock.h"
#include "base/count.h"

#include <math.h>
#include <stdlib.h>

#define MEDIAN_STEPS (1 << 20) /* medians are of the newest million steps: 48 MiB */

void fo_account_init(struct fo_account *a, struct fo_arena *arena, int64_t steps)
{
	a->kept = fo_clamp(steps + 1, 1, MEDIAN_STEPS); /* a resumed run may be past its last step */
	a->rate = fo_arena_alloc(arena, (size_t)a->kept * sizeof(double));
	a->mfu = fo_arena_alloc(arena, (size_t)a->kept * sizeof *a->mfu);
}

void fo_account_ran(struct fo_account *a, const struct fo_setup *set, const struct fo_step_run *ran, int64_t number,
		    struct fo_train_step *out)
{
	const struct fo_program *p = &set->step.program;
	const struct fo_batch *b = ran->batch;
	int64_t pairs = 0;
	if (!ran->metered)
		fo_profile_add_step(&a->profile, fo_exec_timeline(set->step.exec), p, fo_exec_unrolled(set->step.exec),
				    (int32_t)(number - 1), ran->begin_ns, ran->end_ns, ran->wait_ns);
	if (!a->steps)
		a->first_step = a->profile;
	for (int64_t m = 0; m < p->run.micro_batches; m++)
		pairs += b->pairs[m];
	*out = (struct fo_train_step){ .step = number,
				       .steps = set->run->steps,
				       .metered = ran->metered,
				       .loss = set->paced.open ? NAN : fo_unsigned_nan(set->ports.loss[0]),
				       .grad_norm = set->paced.open ? NAN : fo_unsigned_nan(set->ports.scale[1]),
				       .lr = set->ports.hyper[FO_HYPER_LR],
				       .seconds = (double)(ran->end_ns - ran->begin_ns) * 1e-9,
				       .data_seconds = (double)ran->wait_ns * 1e-9,
				       .loss_tokens = b->loss_tokens,
				       .tokens = fo_program_step_tokens(p) };
	/* A metered step's seconds hold its bursts: no rate follows from them. */
	double seconds = ran->metered ? NAN : out->seconds;
	out->tokens_per_second = (double)out->loss_tokens / seconds;
	/* Padding is not useful work: MFU counts real tokens only. */
	out->mfu = fo_mfu_of_step(p, (double)b->real_tokens, (double)pairs, seconds, fo_peak_or_nan(&set->peak));
	if (!ran->metered) {
		a->mfu[a->timed % a->kept] = out->mfu;
		a->rate[a->timed++ % a->kept] = out->tokens_per_second;
	}
	a->steps++;
	a->tokens += out->tokens;
	a->real_tokens += b->real_tokens;
	a->truncated += b->truncated;
}

static double seconds_in_steps(const struct fo_profile *f) { return (f->total_ns + f->untimed_ns) * 1e-9; }

void fo_account_taken(struct fo_account *a, struct fo_train_step *t)
{
	/* The running mean is enough for an ETA; the median is taken once, at the end. */
	t->eta_seconds = seconds_in_steps(&a->profile) / (double)(a->profile.steps + a->profile.untimed_steps) *
			 (double)(t->steps - t->step);
	if (!a->loss_tokens) {
		a->first_taken = t->step;
		a->first_loss = t->loss;
	}
	a->last_loss = t->loss;
	a->loss_tokens += t->loss_tokens;
	/* Single steps are noisy: the result is the mean over the last tenth. */
	if (t->step > t->steps - (t->steps + 9) / 10) {
		a->tail_loss += t->loss;
		a->tail_steps++;
	}
}

void fo_account_look(struct fo_account *a, const struct fo_setup *set)
{
	int64_t have, total;
	a->resident_peak = fo_max(a->resident_peak, fo_memory_resident());
	if (set->cuda && fo_cuda_memory(set->cuda, &have, &total) == FO_OK)
		a->device_used = fo_max(a->device_used, set->device_free - have);
}

/* Medians of the steps, as the log has them and report, compare and ladder take them. */
static void per_step(const struct fo_account *a, struct fo_train_result *out)
{
	if (!a->steps)
		return;
	size_t kept = (size_t)(a->timed < a->kept ? a->timed : a->kept);
	double *v = fo_xmalloc((kept + 1) * sizeof *v), *rule = (double *)&out->mfu;
	for (size_t k = 0; k < sizeof out->mfu / sizeof *rule; k++) {
		for (size_t i = 0; i < kept; i++)
			v[i] = ((const double *)&a->mfu[i])[k];
		rule[k] = fo_stats_median(v, kept);
	}
	free(v);
	out->tokens_per_second = fo_stats_median(a->rate, kept);
	out->waste = 1 - (double)a->real_tokens / (double)a->tokens;
	out->truncated = (double)a->truncated / (double)(a->tokens + a->truncated);
}

void fo_account_result(const struct fo_account *a, const struct fo_setup *set, const struct fo_ckpt_meta *meta,
		       struct fo_train_result *out)
{
	out->profile = a->profile;
	out->steps = a->steps;
	out->tokens = a->tokens;
	out->loss_tokens = a->loss_tokens;
	out->first_step = a->first_taken;
	out->first_loss = a->first_loss;
	/* Checkpoints of earlier versions do not know how the run began. */
	if (meta->first_step) {
		out->first_step = meta->first_step;
		out->first_loss = meta->first_loss;
	}
	out->last_loss = a->last_loss;
	out->mean_loss = a->tail_steps ? a->tail_loss / (double)a->tail_steps : NAN;
	out->val_loss = a->val_loss;
	out->seconds = seconds_in_steps(&a->profile);
	out->peak = set->peak;
	out->planned_bytes = fo_setup_planned(set);
	out->ranks = set->step.program.ranks;
	out->ranks_here = fo_room_step_ranks_here(&set->step);
	out->threads = set->step.options.threads;
	out->paced = set->paced.open;
	out->measured_bytes = fo_account_measured(a);
	out->skipped = meta->skipped;
	out->rewinds = meta->rewinds;
	out->huge_share = fo_state_huge_share("");
	per_step(a, out);
}
