/* The life of a training run: set up, resume, then loop { feed, step, account, guard, publish, evaluate, save }, close.
 *
 * The session ties the parts together (session.h). Setting up (setup.c, announce.c, state.c) makes what the loop runs
 * on; accounting counts what happened; guards and the saver decide what to do. Screen, publisher, log and machine watch
 * subscribe to events (event.h) and know nothing else of the run. */
#include "train/session.h"
#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct fo_session {
	struct fo_setup set;
	struct fo_events events;
	/* The state of the loop. */
	struct fo_ckpt_meta meta; /* what a checkpoint would say now: steps done, place in the text, last losses */
	struct fo_loader *loader;
	int64_t mark_ns; /* the next step's time begins here: the last one's end, or that of a pause */
	bool torn;       /* the weights are of no single moment: not to be saved */
	/* Accounting, and those who act between steps. */
	struct fo_account account;
	struct fo_guard guard;
	struct fo_saver *saver;
	struct fo_step_meter meter;
	/* Subscribers that only watch. */
	struct fo_publisher publisher;
	struct fo_log log;
	struct fo_watch watch;
	struct fo_kernel_times kernel_times;
};

/* ---- setting up ---- */

static fo_status screen_event(void *hooks, const struct fo_event *e)
{
	const struct fo_train_hooks *h = hooks;
	if (h->event)
		h->event(h->ctx, e);
	return FO_OK;
}

/* Every event goes through this table, from top to bottom. */
static void subscribe(struct fo_session *s)
{
	const struct fo_subscriber table[] = {
		{ fo_kernel_times_event, &s->kernel_times }, /* first: before and right after a step */
		{ fo_guard_event, &s->guard },
		{ screen_event, (void *)(uintptr_t)s->set.hooks },
		{ fo_publisher_event, &s->publisher },
		{ fo_log_event, &s->log },
		{ fo_watch_event, &s->watch }, /* last: it sends an event of its own */
	};
	s->events = (struct fo_events){ .n = sizeof table / sizeof *table, .meta = &s->meta, .account = &s->account };
	for (int i = 0; i < s->events.n; i++)
		s->events.to[i] = table[i];
}

static void init_session(struct fo_session *s, const struct fo_run *r, const struct fo_train_hooks *h)
{
	*s = (struct fo_session){ .log = { .fd = -1 } };
	s->set.run = r;
	s->set.hooks = h;
	s->set.events = s->publisher.events = &s->events;
	s->publisher.version = h->version;
	s->account.val_loss = NAN;
	s->guard.set = &s->set;
	fo_folder_init(&s->set.folder, &s->set.arena, r->dir);
	subscribe(s);
}

/* Where it fails, a full disk or a folder of others, nobody sees what the ranks do, and the run goes on. */
static void open_rank_state(struct fo_setup *set)
{
	struct fo_rank_state **state = &set->step.options.state;
	if (*state || set->folder.lock < 0)
		return;
	/* Ranks that are threads come later, when text is there and the peak is measured. */
	fo_status st = fo_rank_state_open(state, set->run->dir, 0, set->hooks->processes ? (int)set->run->ranks : 1);
	if (st == FO_OK)
		st = fo_rank_state_clean(set->run->dir, (int)set->run->ranks);
	fo_rank_state_phase(*state, FO_RANK_PREPARING);
	if (st != FO_OK)
		fo_events_warn(set->events, "'flatout status' cannot show this run: %s", fo_err_text());
}

/* Up to the plan, which a dry run ends with: nothing is written, no memory is taken for good. */
static fo_status open_plan(struct fo_session *s)
{
	struct fo_setup *set = &s->set;
	const bool dry = set->hooks->dry_run;
	FO_TRY(fo_setup_device(set));
	s->account.on_device = set->cuda != NULL;
	if (!dry) { /* before any thread is bound to a processor, and before programs run on the device */
		fo_watch_open(&s->watch, &s->events, set->cuda);
		fo_kernel_times_open(&s->kernel_times, &s->events, &set->arena, set->run, set->cuda != NULL);
	}
	FO_TRY(fo_setup_programs(set));
	FO_TRY(fo_setup_paced(set));
	if (!dry) {
		FO_TRY(fo_folder_lock(&set->folder, set->run->data));
		open_rank_state(set);
		if (set->hooks->processes && set->folder.lock >= 0) /* else there is no text to train on */
			FO_TRY(fo_processes_folder(set->hooks->processes, set->run->dir));
		FO_TRY(fo_setup_has_weights(set));
	}
	FO_TRY(fo_setup_check_weights(set));
	if (set->paced.open)
		; /* no peak: what such a step takes is no measurement */
	else if (set->hooks->processes && !dry && !set->cuda)
		FO_TRY(fo_processes_peak(set->hooks->processes, fo_run_precision(set->run), set->step.options.threads,
					 &set->peak));
	else if (set->cuda || !dry)
		fo_train_peak(set->cuda, fo_run_precision(set->run), set->step.options.threads, &set->peak);
	if (set->devices > 1)
		set->peak.flop_s *= set->devices;
	if (!dry) {
		FO_TRY(fo_setup_data(set));
		s->account.resident_before = fo_memory_resident(); /* from here on everything is planned */
		FO_TRY(fo_setup_eval_batches(set));
	}
	FO_TRY(fo_setup_executors(set));
	fo_setup_meta(set, &s->meta);
	/* The newest checkpoint's step is part of the plan; its tensors are read after the memory check. */
	if (!dry)
		fo_setup_find(set);
	FO_TRY(fo_setup_paced_anew(set));
	return fo_setup_announce(set);
}

static fo_status open_state(struct fo_session *s)
{
	struct fo_setup *set = &s->set;
	FO_TRY(fo_setup_weights(set));
	FO_TRY(fo_setup_resume(set, &s->meta));
	FO_TRY(fo_setup_loader(set, &s->meta.loader, &s->loader));
	fo_account_init(&s->account, &set->arena, set->run->steps - s->meta.step);
	FO_TRY(fo_log_open(&s->log, &s->events, &set->arena, set->run->dir));
	FO_TRY(fo_saver_open(&s->saver, set, s->log.fd));
	FO_TRY(fo_setup_write_files(set, &s->meta));
	FO_TRY(fo_place_compute(&set->place));
	return fo_step_meter_open(&s->meter, set, s->meta.step);
}

static void close_session(struct fo_session *s)
{
	fo_place_undo(&s->set.place);
	fo_saver_close(s->saver);
	fo_step_meter_close(&s->meter);
	fo_kernel_times_close(&s->kernel_times);
	fo_publisher_close(&s->publisher);
	fo_loader_close(s->loader);
	fo_watch_close(&s->watch);
	fo_log_close(&s->log);
	fo_setup_close(&s->set);
}

/* ---- one step ---- */

static void set_hyper(struct fo_session *s, const struct fo_batch *b)
{
	const struct fo_run *r = s->set.run;
	/* Steps that the moments saw, this one included. */
	double t = (double)(s->meta.step + 1 - s->meta.skipped), *h = s->set.ports.hyper, median, deviation;
	h[FO_HYPER_LR] = fo_run_lr(r, s->meta.step);
	h[FO_HYPER_BETA1] = r->beta1;
	h[FO_HYPER_BETA2] = r->beta2;
	h[FO_HYPER_EPS] = r->eps;
	h[FO_HYPER_DECAY] = r->weight_decay;
	h[FO_HYPER_CORR1] = 1 - pow(r->beta1, t);
	h[FO_HYPER_CORR2] = 1 - pow(r->beta2, t);
	h[FO_HYPER_CLIP] = r->clip;
	h[FO_HYPER_SEED] = (double)r->seed;
	h[FO_HYPER_STEP] = (double)s->meta.step;
	h[FO_HYPER_INV_TOKENS] = b->loss_tokens > 0 ? 1.0 / (double)b->loss_tokens : 0;
	h[FO_HYPER_LAST_NORM] = s->meta.grad_norm;
	h[FO_HYPER_LOSS_LIMIT] = 0; /* a spike that only warns is taken */
	if (r->guard_spike >= FO_SPIKE_SKIP)
		h[FO_HYPER_LOSS_LIMIT] = fo_guard_limit(r, &s->meta, &median, &deviation);
}

/* Hands the next batch and the step's numbers to the ports. */
static fo_status feed(struct fo_session *s, struct fo_step_run *ran)
{
	struct fo_ports *ports = &s->set.ports;
	FO_TRY(fo_loader_next(s->loader, &ran->batch, &ran->wait_ns));
	ports->batch = ran->batch;
	ports->steps = s->set.run->steps;
	ports->loader = s->meta.step + 1 < s->set.run->steps ? s->loader : NULL;
	set_hyper(s, ran->batch);
	return FO_OK;
}

static fo_status run_step(struct fo_session *s, struct fo_step_run *ran)
{
	const int64_t number = s->meta.step + 1;
	FO_TRY(fo_events_send(&s->events, (struct fo_event){ .kind = FO_EVENT_STEP_BEGINS, .step = number }));
	fo_rank_state_step(s->set.step.options.state, number, s->set.run->steps);
	ran->metered = fo_step_meter_due(&s->meter, number, !s->account.steps);
	ran->begin_ns = s->mark_ns;
	fo_status st = ran->metered
			       ? fo_step_meter_run(&s->meter, number)
			       : fo_team_step(s->set.step.team, s->set.step.exec, &s->set.ports, (int32_t)s->meta.step);
	ran->end_ns = s->mark_ns = fo_now_ns();
	fo_rank_state_phase(s->set.step.options.state, FO_RANK_BETWEEN);
	if (st != FO_OK) {
		s->torn = true;
		return fo_wrap(st, "step %lld", (long long)number);
	}
	return fo_events_send(&s->events, (struct fo_event){ .kind = FO_EVENT_STEP_RAN, .step = number });
}

/* Back to the newest checkpoint, and on with the data after this batch. */
static fo_status rewind_run(struct fo_session *s, int64_t data_step, bool *done)
{
	const int64_t rewinds = s->meta.rewinds;
	FO_TRY(fo_events_tell(&s->events, FO_EVENT_PAUSE));
	FO_TRY(fo_saver_go_back(s->saver, &s->meta, done, &s->torn));
	if (!*done)
		return FO_OK;
	s->meta.rewinds = rewinds + 1;
	s->meta.loader.next_step = data_step + 1;
	fo_loader_close(s->loader);
	s->loader = NULL;
	s->set.ports.batch = NULL;
	s->account.tail_loss = 0; /* steps of the run's last tenth come again */
	s->account.tail_steps = 0;
	/* The new loader's thread must not inherit the one processor that this thread computes on. */
	FO_TRY(fo_place_others(&s->set.place));
	FO_TRY(fo_setup_loader(&s->set, &s->meta.loader, &s->loader));
	return fo_place_compute(&s->set.place);
}

/* Was the step that ran taken? If not, does with the run what the guard says. */
static fo_status judge(struct fo_session *s, const struct fo_train_step *t, enum fo_guard_action *action)
{
	struct fo_guard_report r;
	int64_t data_step = fo_loader_state(s->loader).next_step - 1;
	fo_status st = fo_guard_judge(&s->guard, t, &s->meta, data_step, &r, &s->torn);
	*action = r.action;
	if (st != FO_OK || r.action == FO_GUARD_NONE)
		return st;
	if (r.action == FO_GUARD_REWIND) {
		bool back;
		FO_TRY(rewind_run(s, data_step, &back));
		*action = r.action = back ? FO_GUARD_REWIND : FO_GUARD_SKIP; /* no checkpoint yet */
		r.line.back_to = back ? s->meta.step : -1;
	}
	FO_TRY(fo_events_send(&s->events, (struct fo_event){ .kind = FO_EVENT_GUARD, .step = t->step, .guard = &r }));
	if (r.action == FO_GUARD_SKIP) {
		/* The step counts, the optimizer's corrections do not: its moments saw nothing. */
		s->meta.step++;
		s->meta.skipped++;
		s->meta.loader = fo_loader_state(s->loader);
	}
	FO_TRY(fo_guard_report(&s->guard, t, &r));
	return r.action == FO_GUARD_REWIND ? fo_events_tell(&s->events, FO_EVENT_REWOUND) : FO_OK;
}

static void take(struct fo_session *s, const struct fo_train_step *t)
{
	struct fo_ckpt_meta *m = &s->meta;
	if (m->step == m->skipped) { /* no step of the run was taken so far */
		m->first_step = t->step;
		m->first_loss = t->loss;
	}
	m->step++;
	m->tokens += t->loss_tokens;
	m->loss = t->loss;
	m->grad_norm = t->grad_norm;
	m->loader = fo_loader_state(s->loader);
	fo_guard_remember(s->set.run, m, t->loss);
}

static fo_status one_step(struct fo_session *s, enum fo_guard_action *action)
{
	struct fo_step_run ran;
	struct fo_train_step t;
	FO_TRY(feed(s, &ran));
	FO_TRY(run_step(s, &ran));
	/* A step that goes back loses its batch: what is counted of it is taken first. */
	fo_account_ran(&s->account, &s->set, &ran, s->meta.step + 1, &t);
	FO_TRY(judge(s, &t, action));
	if (*action >= FO_GUARD_SKIP)
		return FO_OK;
	take(s, &t);
	fo_account_taken(&s->account, &t);
	return fo_events_send(&s->events, (struct fo_event){ .kind = FO_EVENT_STEP, .step = t.step, .taken = &t });
}

/* ---- between steps ---- */

static fo_status evaluate(struct fo_session *s)
{
	struct fo_setup *set = &s->set;
	struct fo_event e = { .kind = FO_EVENT_EVALUATION, .step = s->meta.step, .evaluation = { .loss = NAN } };
	double sum = 0, count = 0;
	fo_rank_state_phase(set->step.options.state, FO_RANK_EVALUATING);
	for (int64_t i = 0; i < set->eval_batches; i++) {
		set->eval_ports.batch = &set->eval_batch[i];
		FO_TRY(fo_team_evaluate(set->step.team, set->step.eval, &set->eval_ports, (int32_t)i));
		sum += set->eval_ports.loss[0];
		count += set->eval_ports.loss[1];
	}
	if (count > 0)
		e.evaluation.loss = fo_unsigned_nan(sum / count);
	s->account.val_loss = e.evaluation.loss;
	return fo_events_send(&s->events, e);
}

/* The error of a run that was asked to stop before its last step: where its state lies. */
static fo_status stopped_early(const struct fo_session *s)
{
	char path[FO_PATH_BYTES];
	long long step = (long long)s->meta.step, steps = (long long)s->set.run->steps,
		  unsaved = (long long)fo_saver_unsaved(s->saver, s->meta.step);
	fo_saver_newest(s->saver, path, sizeof path);
	if (!unsaved)
		return fo_hint(fo_fail(FO_EINTERRUPT, "stopped after step %lld of %lld; the state is saved in '%s'",
				       step, steps, path),
			       "the same command goes on from there");
	fo_fail(FO_EINTERRUPT,
		"stopped after step %lld of %lld; no weights of the last %lld %s were saved: checkpoint.last=no", step,
		steps, unsaved, fo_word(unsaved, "step", "steps"));
	if (*path)
		return fo_hint(FO_EINTERRUPT, "the same command goes on from the newest checkpoint, '%s'", path);
	return fo_hint(FO_EINTERRUPT, "choose another run.dir to train it again");
}

/* ---- the run ---- */

static fo_status run_loop(struct fo_session *s)
{
	const struct fo_run *r = s->set.run;
	const volatile sig_atomic_t *stop = s->set.hooks->stop;
	bool stopped = false;
	s->mark_ns = fo_now_ns();
	while (s->meta.step < r->steps && !stopped) {
		enum fo_guard_action action = FO_GUARD_NONE;
		fo_status st = one_step(s, &action);
		fo_saver_poll(s->saver);
		if (st == FO_OK)
			st = fo_events_tell(&s->events, FO_EVENT_STEP_OVER);
		if (st != FO_OK)
			return s->torn ? st : fo_saver_rescue(s->saver, &s->meta, st);
		stopped = stop && *stop;
		if (action == FO_GUARD_REWIND) {
			s->mark_ns = fo_now_ns();
			if (!stopped)
				continue;
		}
		const bool last = s->meta.step == r->steps, ends = last || stopped;
		const bool eval = s->set.eval_batches && !stopped && (last || s->meta.step % r->eval_every == 0);
		const bool save = r->ckpt_every && s->meta.step % r->ckpt_every == 0;
		if (eval || save || ends)
			FO_TRY(fo_events_tell(&s->events, FO_EVENT_PAUSE));
		if (eval && (st = evaluate(s)) != FO_OK)
			return fo_saver_rescue(s->saver, &s->meta, st);
		if (ends || save)
			fo_rank_state_phase(s->set.step.options.state, FO_RANK_SAVING);
		if (ends)
			FO_TRY(fo_saver_last(s->saver, &s->meta, save));
		else if (save)
			FO_TRY(fo_saver_begin(s->saver, &s->meta));
		/* Between evaluations and checkpoints nothing is allocated, so memory need not be looked at. */
		if (eval || save || ends || s->account.steps <= FO_TIMELINE_STEPS) {
			fo_setup_check_attention(&s->set);
			fo_account_look(&s->account, &s->set);
			s->mark_ns = fo_now_ns();
		}
		fo_rank_state_phase(s->set.step.options.state, FO_RANK_BETWEEN);
		if (!ends)
			FO_TRY(fo_events_tell(&s->events, FO_EVENT_GO_ON));
	}
	if (s->account.steps)
		FO_TRY(fo_events_tell(&s->events, FO_EVENT_STEPS_DONE));
	return stopped && s->meta.step < r->steps ? stopped_early(s) : FO_OK;
}

static void summarise(struct fo_session *s, struct fo_train_result *out)
{
	const struct fo_setup *set = &s->set;
	fo_account_result(&s->account, set, &s->meta, out);
	fo_saver_newest(s->saver, out->checkpoint, sizeof out->checkpoint);
	out->steps_unsaved = fo_saver_unsaved(s->saver, s->meta.step);
	fo_watch_total(&s->watch, &out->machine, &out->device_use);
	out->joules_per_token = out->device_joules_per_token = NAN;
	if (out->loss_tokens) {
		out->joules_per_token = out->machine.joules / (double)out->loss_tokens;
		out->device_joules_per_token = out->device_use.joules / (double)out->loss_tokens;
	}
	out->on_device = set->cuda != NULL;
	if (!set->cuda)
		return;
	const struct fo_cuda_device *d = fo_cuda_info(set->cuda);
	memcpy(out->device, d->name, sizeof out->device);
	out->split = fo_device_split(d, fo_run_precision(set->run), &out->mfu,
				     set->peak.flop_s / (set->devices ? set->devices : 1), &out->device_use);
}

/* Writes the last spans and the end of the log. A run that had nothing left to do keeps those of the one before it. */
static fo_status finish(struct fo_session *s, fo_status st, const struct fo_train_result *out)
{
	struct fo_setup *set = &s->set;
	struct fo_event end = { .kind = FO_EVENT_END,
				.step = s->meta.step,
				.end = { .result = out, .how = "failed", .first_step = &s->account.first_step } };
	if (out->steps && (st == FO_OK || st == FO_EINTERRUPT)) {
		fo_status wrote = fo_team_write_timelines(set->step.team, set->step.exec, &set->step.program,
							  set->run->dir);
		st = st == FO_OK ? wrote : st;
	}
	if (st == FO_OK)
		end.end.how = "done";
	if (st == FO_EINTERRUPT)
		end.end.how = "interrupted";
	if (out->steps) { /* a full disk at the end is reported by flushing the log */
		fo_status sent = fo_events_send(&s->events, end);
		st = st == FO_OK ? sent : st;
	}
	return st == FO_OK ? fo_log_flush(&s->log, !out->steps_unsaved) : st;
}

static fo_status train(struct fo_session *s, struct fo_train_result *out)
{
	struct fo_train_plan plan;
	fo_setup_plan(&s->set, &plan);
	FO_TRY(fo_events_send(&s->events,
			      (struct fo_event){ .kind = FO_EVENT_BEGIN, .step = s->meta.step, .plan = &plan }));
	fo_status st = run_loop(s);
	summarise(s, out);
	st = finish(s, st, out);
	fo_place_undo(&s->set.place); /* the sample's lanes would inherit the one processor of this thread */
	if (st == FO_OK && s->set.run->sample_tokens)
		st = fo_setup_sample(&s->set, &out->sample);
	return st;
}

fo_status fo_train(const struct fo_run *r, const struct fo_train_hooks *h, struct fo_train_result *out)
{
	struct fo_session s;
	*out = (struct fo_train_result){ .val_loss = NAN, .bigram_loss = NAN };
	init_session(&s, r, h);
	fo_status st = open_plan(&s);
	if (st == FO_OK && !h->dry_run)
		st = open_state(&s);
	if (st == FO_OK && !h->dry_run)
		st = train(&s, out);
	struct fo_rank_state *state = s.set.step.options.state;
	if (st != FO_OK && st != FO_EINTERRUPT)
		fo_rank_state_failed(state, st, fo_err_text());
	fo_team_over(s.set.step.team, st);
	close_session(&s);
	fo_rank_state_close(state, st); /* the executors wrote to it */
	return st;
}

void fo_train_result_fini(struct fo_train_result *r)
{
	free(r->sample);
	r->sample = NULL;
}
