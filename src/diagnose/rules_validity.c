/* Notes that must be known before a trace's figures are believed. None is serious: they say how far to trust the
 * others. */
#include "diagnose/findings_int.h"

#include "base/count.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Names of the window as evidence. */
#define WHOLE "the whole trace"
#define STEP "the step that is shown"

/* A median needs three; the first step after a profiler starts is the one that its start disturbs. */
enum { STEPS_ENOUGH = 3 };

static bool steps(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_device_ledger *v = c->s->device;
	if (c->s->d->with.ledger.whole_trace || c->s->d->with.ledger.exclude_unlinked)
		return false; /* asked for */
	if (v->from == FO_WINDOW_WHOLE && c->s->t->step_count > 0) {
		fo_title(f, "too few steps are marked: the whole trace is taken as one");
		fo_why(f, "A step is marked, but where it ends on the GPU is not in the trace: a step ends where the "
			  "GPU begins the next one. Record several steps in a row (active=5 in the profiler's "
			  "schedule).");
	} else if (v->from == FO_WINDOW_WHOLE) {
		fo_title(f, "no steps: the whole trace is taken as one");
		fo_why(f,
		       "Nothing in the trace marks steps, so that what happens once (the start, a checkpoint) weighs "
		       "as much as what happens in each step.");
	} else if (v->from == FO_WINDOW_HOST_STEP) {
		fo_title(f, "one complete step: too few for a median");
		fo_why(f, "The step is taken from its begin to its end on the host, or to the end of the last "
			  "operation it launched. How far the host runs ahead, and how steps differ, shows only with "
			  "several in a row: active=5 in the profiler's schedule.");
	} else if (v->steps < STEPS_ENOUGH) {
		static const char *const words[2][2] = { { "were left out", "they end" },
							 { "was left out", "it ends" } };
		const char *const *dropped = words[v->dropped_steps == 1];
		fo_title(f, "%lld complete step%s: too few for a median", (long long)v->steps, fo_plural(v->steps));
		fo_why(f,
		       "Steps differ from each other, and a median needs at least three: record more. %lld step%s at "
		       "the end of the trace %s, for it does not show where %s.",
		       (long long)v->dropped_steps, fo_plural(v->dropped_steps), dropped[0], dropped[1]);
	} else {
		return false;
	}
	fo_evidence_window(f, c->s, v->from == FO_WINDOW_WHOLE ? WHOLE : STEP);
	return true;
}

/* A step that skipped its work, an evaluation, or one that ran on another device. */
static bool empty(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_device_ledger *v = c->s->device;
	int64_t n = v->empty_steps + v->unseen_steps;
	if (n == 0)
		return false;
	fo_title(f, "%lld step%s launched nothing on the GPU", (long long)n, fo_plural(n));
	fo_why(f,
	       "The trace has %lld steps. Sums and means are over all of them; the median step is one of the others.",
	       (long long)(v->steps + v->unseen_steps));
	for (int64_t i = 0; i < v->steps; i++)
		if (v->step[i].l.ops == 0)
			fo_evidence_at(f, c->s, v->step[i].l.begin_ns, v->step[i].l.span_ns, "a step without GPU work");
	return true;
}

/* Half of the median between the shortest and the longest: the median stands for neither. */
static bool unsteady(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_device_ledger *v = c->s->device;
	int64_t low = INT64_MAX, high = 0, at = 0;
	for (int64_t i = 0; i < v->steps; i++) {
		if (v->step[i].l.ops == 0)
			continue;
		low = fo_min(v->step[i].l.span_ns, low);
		at = v->step[i].l.span_ns > high ? i : at;
		high = fo_max(v->step[i].l.span_ns, high);
	}
	if (v->steps - v->empty_steps < 2 || (c->s->steps == 1 && 2 * (high - low) < c->s->l.span_ns))
		return false;
	fo_title(f, "steps differ: %s to %s", FO_NS(low), FO_NS(high));
	fo_why(f,
	       "The step shown is the %s, %s. A longer one may hold a checkpoint, an evaluation, garbage collection "
	       "or other requests: compare its ledger with that of the others.",
	       c->s->steps > 1 ? "mean of all, because the median would hide what the long ones wait for" : "median",
	       FO_NS(c->s->l.span_ns));
	fo_evidence_at(f, c->s, v->step[at].l.begin_ns, v->step[at].l.span_ns, "the longest step");
	return true;
}

static bool lost_of(const struct fo_trace *t, int rank, int16_t device, struct fo_finding *f)
{
	const struct fo_trace_defects *x = &t->defect;
	if (!x->truncated && x->malformed == 0 && x->dropped_by_profiler <= 0)
		return false;
	if (x->truncated)
		fo_title(f, "the file ends inside an event: %lld events read, the rest is lost", (long long)x->events);
	else
		fo_title(f, "events are missing from the trace");
	if (x->malformed)
		fo_why(f, "Of %lld events %lld could not be read.", (long long)x->events, (long long)x->malformed);
	else if (x->truncated)
		fo_why(f, "The figures are of the events before the cut.");
	if (x->dropped_by_profiler > 0)
		fo_why(f, "%sThe profiler itself lost %lld.", *f->why ? " " : "", (long long)x->dropped_by_profiler);
	fo_why(f, " What is missing counts as idle.%s", x->truncated ? " Copy or record the file again." : "");
	fo_evidence_add(f, rank, device, t->begin_ns, t->end_ns - t->begin_ns, t->path ? t->path : "the trace", NULL);
	return true;
}

static bool lost(const struct fo_rule_context *c, struct fo_finding *f)
{
	return lost_of(c->s->t, c->s->rank->rank, c->s->id, f);
}

/* ---- nothing to diagnose ---- */

/* Says why so little is left where more GPU operations have unusable times than usable ones, or most events could not
 * be read; the sentence goes on. "" otherwise. */
static const char *unusable(const struct fo_trace *t, char *out, size_t size)
{
	const struct fo_trace_defects *x = &t->defect;
	int64_t sound = t->gpu_count - x->negative_duration, bad = x->malformed_gpu + x->negative_duration;
	out[0] = '\0';
	if (bad > sound)
		snprintf(out, size, "%lld of %lld GPU operations have negative or unreadable times, which leaves ",
			 (long long)bad, (long long)(t->gpu_count + x->malformed_gpu));
	else if (2 * x->malformed > x->events)
		snprintf(out, size, "%lld of %lld events could not be read, which leaves ", (long long)x->malformed,
			 (long long)x->events);
	return out;
}

/* All GPU work of a trace together below one operator's way through Python (100 us) is a test of the profiler, however
 * many operations it is: any of them begins as late as a single call of the host makes it. Under a hundredth of the
 * host's step what the GPU did says nothing of that step, unless its own step is as long and so shows why it idled. */
#define WORK_ENOUGH_NS INT64_C(100000)
#define WORK_SHARE_ENOUGH 0.01

void fo_too_little_work(const struct fo_rule_context *c, char *out, size_t size)
{
	const struct fo_ledger *all = &c->s->device->total;
	const struct fo_trace *t = c->s->t;
	/* The whole trace counts as one step of the host where none is marked and the GPU's are not known either. */
	double around = c->host_step_ns;
	if (around <= 0 && c->s->device->from == FO_WINDOW_WHOLE)
		around = (double)(t->end_ns - t->begin_ns);
	char why[120];
	out[0] = '\0';
	if (all->busy_ns < WORK_ENOUGH_NS)
		snprintf(out, size, "%stoo little GPU work to diagnose: %lld operation%s, %s",
			 unusable(t, why, sizeof(why)), (long long)all->ops, fo_plural(all->ops), FO_NS(all->busy_ns));
	else if ((double)c->s->l.busy_ns < WORK_SHARE_ENOUGH * around &&
		 (2 * (double)c->s->l.span_ns < around || c->s->l.busy_ns < WORK_ENOUGH_NS))
		snprintf(out, size, "%stoo little GPU work to diagnose: %s in %s of the host's",
			 unusable(t, why, sizeof(why)), FO_NS(c->s->l.busy_ns), FO_NS((int64_t)around));
}

/* How long the host's steps take and how much of that is data loading, where both are known. */
static void say_loader(const struct fo_rank_ledger *r, struct fo_finding *f)
{
	int64_t span = 0, data = 0;
	for (int64_t i = 0; i < r->hosts; i++) {
		span += r->host[i].end_ns - r->host[i].begin_ns;
		data += r->host[i].part_ns[FO_HOST_PART_DATA];
	}
	if (data > 0 && span > 0)
		fo_why(f, " The host's step takes %s; data loading is %.1f %% of it.", FO_NS(span / r->hosts),
		       100 * (double)data / (double)span);
}

static bool too_little(const struct fo_rule_context *c, struct fo_finding *f)
{
	if (c->s->d->judged != FO_JUDGED_TOO_LITTLE)
		return false;
	fo_title(f, "%s", c->s->d->cannot);
	fo_why(f, "So little work shows no bottleneck.");
	say_loader(c->s->rank, f);
	fo_why(f, " Record whole steps, after a warm-up%s.",
	       c->s->t->format == FO_TRACE_NSYS ? "" : ": torch.profiler.schedule(wait=1, warmup=2, active=5)");
	return true;
}

/* Weights go to the device once, before training. */
bool fo_no_training_step(const struct fo_rule_context *c)
{
	const struct fo_ledger *l = &c->s->l;
	return c->s->device->from == FO_WINDOW_WHOLE && fo_share(c, l->comp_ns) < FO_SHARE_ADVICE &&
	       l->copy_ns[FO_COPY_H2D] > l->comp_ns;
}

static bool no_training(const struct fo_rule_context *c, struct fo_finding *f)
{
	if (!c->no_training_step)
		return false;
	fo_title(f, "this window is not a training step: compute takes %.1f %% of it", fo_percent(c, c->s->l.comp_ns));
	fo_why(f,
	       "No step is marked, and copies from the host take %s, more than all kernels: it looks like weights "
	       "being loaded. What a step would gain cannot be told from it. Record some steps in the middle of "
	       "training.",
	       FO_NS(c->s->l.copy_ns[FO_COPY_H2D]));
	return true;
}

int fo_without_gpu_work(const struct fo_diagnosis *d, struct fo_finding out[2])
{
	const struct fo_rank_ledger *r = &d->rank[0];
	const struct fo_trace *t = r->trace;
	char why[120];
	int n = 0;
	out[0] = (struct fo_finding){ .id = "lost-events", .kind = FO_FIND_VALIDITY, .dollars = NAN };
	n += lost_of(t, r->rank, -1, &out[0]);
	out[n] = (struct fo_finding){ .id = "no-gpu-work", .kind = FO_FIND_VALIDITY, .dollars = NAN };
	struct fo_finding *f = &out[n++];
	/* A cut file may have lost all GPU work: then recording otherwise is no cure. */
	if (t->defect.truncated)
		fo_title(f, "the file ends inside its events, and what is left holds no GPU work");
	else
		fo_title(f, "%sno GPU work in this trace", unusable(t, why, sizeof(why)));
	fo_why(f, "There is nothing to say what a GPU did. ");
	fo_why(f, t->defect.truncated ? "Copy the file again, or record with " : "Record with ");
	fo_why(f, "%s.",
	       t->format == FO_TRACE_NSYS
		       ? "nsys profile --trace=cuda,nvtx"
		       : "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])");
	say_loader(r, f);
	fo_evidence_add(f, r->rank, -1, t->begin_ns, t->end_ns - t->begin_ns, t->path ? t->path : "the trace", NULL);
	for (int i = 0; i < n; i++)
		fo_gain_none(&out[i]);
	return n;
}

/* One in a hundred: below it not even all of them together move a share by a point. */
static bool unlinked(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_trace *t = c->s->t;
	if (t->defect.unlinked * 100 <= t->gpu_count || !t->defect.has_launches)
		return false;
	fo_title(f, "%lld of %lld GPU operations have no launch record", (long long)t->defect.unlinked,
		 (long long)t->gpu_count);
	fo_why(f,
	       "They were launched before the profiler started, or their records were lost. Those at the front (%lld) "
	       "are in no step; why the GPU idled before the others is unknown.",
	       (long long)c->s->device->leftover_ops);
	for (int64_t i = 0; i < t->gpu_count; i++)
		if (t->gpu[i].launch < 0 && t->gpu[i].device == c->s->id)
			fo_evidence_gpu(f, c->s, &t->gpu[i], NULL);
	return true;
}

static bool clipped(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_trace *t = c->s->t;
	if (t->defect.clipped == 0)
		return false;
	fo_title(f, "%lld GPU operation%s had an impossible duration", (long long)t->defect.clipped,
		 fo_plural(t->defect.clipped));
	fo_why(f, "Each was cut to the begin of what follows it on its stream: an error of the profiler, not of the "
		  "run.");
	for (int64_t i = 0; i < t->gpu_count; i++)
		if (t->gpu[i].flags & FO_GPU_CLIPPED)
			fo_evidence_gpu(f, c->s, &t->gpu[i], NULL);
	return true;
}

/* The profiler's work inside the window. Where several of its threads work at once the time counts once. */
static bool overhead(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_trace *t = c->s->t;
	int64_t window = c->s->end_ns - c->s->begin_ns, begin, end;
	struct fo_intervals work = { 0 };
	for (int64_t i = 0; i < t->overhead_count; i++) {
		begin = fo_max(t->overhead[i].begin_ns, c->s->begin_ns);
		end = fo_min(t->overhead[i].end_ns, c->s->end_ns);
		fo_intervals_add(&work, begin, end);
	}
	fo_intervals_unite(&work);
	int64_t ns = fo_intervals_length(&work);
	fo_intervals_fini(&work);
	if (window <= 0 || (double)ns <= FO_SHARE_ADVICE * (double)window)
		return false;
	fo_title(f, "the profiler's own work goes on for %.0f %% of the window", 100 * (double)ns / (double)window);
	fo_why(f,
	       "%s of %s, on any of its threads (\"overhead\" events). The run without a profiler is faster, above all "
	       "where the host is the bottleneck: compare with the step time that the trainer logs.",
	       FO_NS(ns), FO_NS(window));
	return true;
}

/* 3 %: what the definition of the step allows (docs/metrics.md). */
static bool host_differs(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_device_ledger *v = c->s->device;
	if (c->host_step_ns <= 0 || v->from == FO_WINDOW_WHOLE || v->from == FO_WINDOW_HOST_STEP)
		return false;
	double mean = (double)v->total.span_ns / (double)(v->steps + v->unseen_steps), off = mean / c->host_step_ns - 1;
	if (fabs(off) <= 0.03)
		return false;
	fo_title(f, "a step of the GPU takes %s, one of the host %s", FO_NS((int64_t)mean),
		 FO_NS((int64_t)c->host_step_ns));
	fo_why(f, "Over many steps both are the same; in a trace of a few the one that runs ahead shows fewer of them, "
		  "or the profiler disturbs the run. Shares are of the GPU's step; nothing is scaled. Compare with the "
		  "step time that the trainer logs.");
	return true;
}

static bool forward_only(const struct fo_rule_context *c, struct fo_finding *f)
{
	if (!c->s->d->forward_only)
		return false;
	fo_title(f, "forward only: this looks like inference");
	fo_why(f, "Neither a backward pass nor an optimizer is in the trace. FLOP, and MFU where it is known, are of "
		  "the forward pass alone; advice for training may not apply.");
	return true;
}

const struct fo_rule_row fo_rules_validity[] = {
	{ "own-others-ran", FO_FIND_VALIDITY, .holds = fo_own_others_ran, .window = FO_WINDOW_SHOWN },
	{ "lost-events", FO_FIND_VALIDITY, .holds = lost },
	{ "too-little-gpu-work", FO_FIND_VALIDITY, .holds = too_little, .kernels = ~(uint64_t)0 },
	{ "no-training-step", FO_FIND_VALIDITY, .holds = no_training, .window = WHOLE },
	{ "steps", FO_FIND_VALIDITY, .holds = steps },
	{ "forward-only", FO_FIND_VALIDITY, .holds = forward_only, .window = FO_WINDOW_SHOWN },
	{ "empty-steps", FO_FIND_VALIDITY, .holds = empty, .window = STEP },
	{ "unsteady-steps", FO_FIND_VALIDITY, .holds = unsteady },
	{ "unlinked", FO_FIND_VALIDITY, .holds = unlinked },
	{ "impossible-durations", FO_FIND_VALIDITY, .holds = clipped },
	{ "profiler-overhead", FO_FIND_VALIDITY, .holds = overhead, .window = FO_WINDOW_SHOWN },
	{ "host-step", FO_FIND_VALIDITY, .holds = host_differs, .window = STEP },
	{ .id = NULL },
};
