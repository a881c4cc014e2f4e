/* Pipeline schedules: bubbles by stage, and how much faster the steps would be without stragglers. */
#include "diagnose/straggler.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The paper's share of workers that may be broken machines. */
static const int WORST_PERCENT = 3;

struct study {
	const struct fo_schedule_log *s;
	int64_t from; /* the first step that counts, and its first operation */
	int64_t from_op;
	struct fo_step_graph **graph; /* by step */
	double *own, *even;           /* by op: as recorded, and without stragglers */
	double *mixed;                /* scratch: one step's */
};

static double *reals(struct fo_arena *a, int64_t n) { return fo_arena_alloc(a, ((size_t)n + 1) * sizeof(double)); }

static bool is_communication(int kind)
{
	return kind != FO_SCHED_FORWARD && kind != FO_SCHED_BACKWARD && kind != FO_SCHED_WEIGHT &&
	       kind != FO_SCHED_OPTIMIZER && kind != FO_SCHED_PAUSE;
}

/* Tells whose durations are taken as recorded; the others are even. NULL: nobody's. */
typedef bool chooser(const struct fo_schedule_op *o, const void *what);

/* Mean step in seconds; *per_step, which may be NULL, gets each. */
static double simulate(struct study *y, chooser *recorded, const void *what, double *per_step)
{
	double sum = 0;
	for (int64_t k = y->from; k < y->s->steps; k++) {
		const struct fo_schedule_step *step = &y->s->step[k];
		for (int64_t i = 0; i < step->ops; i++) {
			int64_t at = step->first + i;
			y->mixed[i] = recorded && recorded(&y->s->op[at], what) ? y->own[at] : y->even[at];
		}
		double t = fo_step_graph_run(y->graph[k], y->mixed) * 1e-9;
		sum += t;
		if (per_step)
			per_step[k] = t;
	}
	return sum / (double)(y->s->steps - y->from);
}

static bool everyone(const struct fo_schedule_op *o, const void *what)
{
	(void)o, (void)what;
	return true;
}
static bool of_stage(const struct fo_schedule_op *o, const void *what) { return o->stage == *(const int *)what; }
static bool not_of_stage(const struct fo_schedule_op *o, const void *what) { return !of_stage(o, what); }
static bool of_replica(const struct fo_schedule_op *o, const void *what) { return o->replica == *(const int *)what; }
static bool of_kind(const struct fo_schedule_op *o, const void *what) { return o->kind == *(const int *)what; }

struct workers {
	const bool *chosen; /* [replica][stage] */
	int stages;
};
static bool not_of_workers(const struct fo_schedule_op *o, const void *what)
{
	const struct workers *w = what;
	return !w->chosen[o->replica * w->stages + o->stage];
}

/* Every operation as the others of its kind (stage < 0), or as those of its kind on that stage. */
static void even_out(struct study *y, int stage)
{
	double *v = fo_xmalloc(((size_t)y->s->ops + 1) * sizeof *v);
	for (int kind = 0; kind < FO_SCHED_COUNT; kind++) {
		size_t n = 0;
		double sum = 0;
		for (int64_t i = y->from_op; i < y->s->ops; i++) {
			if (y->s->op[i].kind != kind || (stage >= 0 && y->s->op[i].stage != stage))
				continue;
			v[n++] = y->own[i];
			sum += y->own[i];
		}
		if (!n)
			continue;
		double level = is_communication(kind) ? fo_stats_quantile(v, n, 0.5) : sum / (double)n;
		for (int64_t i = y->from_op; i < y->s->ops; i++)
			if (y->s->op[i].kind == kind && (stage < 0 || y->s->op[i].stage == stage))
				y->even[i] = level;
	}
	free(v);
}

static int greatest(const double *v, int n)
{
	int at = 0;
	for (int i = 1; i < n; i++)
		if (v[i] > v[at])
			at = i;
	return at;
}

/* The workers whose stage and replica both slow the job most; ties go to the first stage, then the first replica. */
static double without_worst(struct study *y, struct fo_whatif *w)
{
	const struct fo_schedule_log *s = y->s;
	int all = s->stages * s->replicas, want = (all * WORST_PERCENT + 99) / 100;
	bool *chosen = fo_xmalloc((size_t)all * sizeof *chosen);
	for (int n = 0; n < want; n++) {
		double best = -1;
		int stage = 0, replica = 0;
		for (int st = 0; st < s->stages; st++) {
			for (int r = 0; r < s->replicas; r++) {
				double score = fmin(w->by_stage[st], w->by_replica[r]);
				if (chosen[r * s->stages + st] || !(score > best))
					continue;
				best = score;
				stage = st;
				replica = r;
			}
		}
		chosen[replica * s->stages + stage] = true;
		if (n == 0) {
			w->worker_stage = stage;
			w->worker_replica = replica;
		}
	}
	struct workers what = { chosen, s->stages };
	double t = simulate(y, not_of_workers, &what, NULL);
	free(chosen);
	return t;
}

static void attribute(struct study *y, struct fo_whatif *w)
{
	const struct fo_schedule_log *s = y->s;
	bool present[FO_SCHED_COUNT] = { false };
	for (int64_t i = 0; i < s->ops; i++)
		present[s->op[i].kind] = true;
	for (int i = 0; i < s->stages; i++)
		w->by_stage[i] = simulate(y, of_stage, &i, NULL) / w->ideal_s;
	for (int i = 0; i < s->replicas; i++)
		w->by_replica[i] = simulate(y, of_replica, &i, NULL) / w->ideal_s;
	for (int i = 0; i < FO_SCHED_COUNT; i++)
		w->by_kind[i] = present[i] ? simulate(y, of_kind, &i, NULL) / w->ideal_s : 0;
	w->worst_stage = greatest(w->by_stage, s->stages);
	w->worst_replica = greatest(w->by_replica, s->replicas);
	w->worst_kind = greatest(w->by_kind, FO_SCHED_COUNT);
	double lost = w->no_delay_s - w->ideal_s;
	int last = s->stages - 1;
	w->last_stage = (w->no_delay_s - simulate(y, not_of_stage, &last, NULL)) / lost;
	w->worst_workers = (w->no_delay_s - without_worst(y, w)) / lost;
	for (int i = 0; i < s->stages; i++) /* last, for it leaves other levels behind */
		even_out(y, i);
	w->unevenness = (w->no_delay_s - simulate(y, NULL, NULL, NULL)) / lost;
}

static void compare(struct study *y, struct fo_whatif *w, struct fo_arena *a)
{
	const struct fo_schedule_log *s = y->s;
	double *ideal = reals(a, s->steps);
	w->step_slowdown = reals(a, s->steps);
	w->by_stage = reals(a, s->stages);
	w->by_replica = reals(a, s->replicas);
	for (int64_t k = y->from; k < s->steps; k++)
		w->measured_s += (double)s->step[k].length_ns * 1e-9 / (double)(s->steps - y->from);
	w->no_delay_s = simulate(y, everyone, NULL, w->step_slowdown);
	even_out(y, -1);
	w->ideal_s = simulate(y, NULL, NULL, ideal);
	if (w->ideal_s > 0 && w->no_delay_s > 0) {
		for (int64_t k = y->from; k < s->steps; k++)
			w->step_slowdown[k] = ideal[k] > 0 ? w->step_slowdown[k] / ideal[k] : 1;
		w->slowdown = w->no_delay_s / w->ideal_s;
		w->launch_slowdown = w->measured_s / w->no_delay_s;
		attribute(y, w);
		w->known = true;
	} else {
		snprintf(w->why, sizeof w->why, "the log has no durations");
	}
}

static void what_if(struct fo_schedule_diagnosis *d)
{
	struct fo_whatif *w = &d->whatif;
	const struct fo_schedule_log *s = d->schedule;
	const int64_t from = d->warm_up;
	struct fo_arena a = { 0 };
	struct study y = { .s = s,
			   .from = from,
			   .from_op = s->step[from].first,
			   .graph = fo_arena_alloc(&a, (size_t)s->steps * sizeof *y.graph),
			   .own = reals(&a, s->ops),
			   .even = reals(&a, s->ops),
			   .mixed = reals(&a, s->ops) };
	fo_status st = FO_OK;
	for (int64_t k = from; st == FO_OK && k < s->steps; k++) {
		st = fo_step_graph_new(&y.graph[k], s, k);
		for (int64_t i = 0; st == FO_OK && i < s->step[k].ops; i++)
			y.own[s->step[k].first + i] = fo_step_graph_own_ns(y.graph[k], i);
		if (st != FO_OK)
			snprintf(w->why, sizeof w->why, "step %lld: %s", (long long)s->step[k].number, fo_err_text());
	}
	if (st == FO_OK)
		compare(&y, w, &d->arena);
	else
		fo_err_clear(); /* the bubbles are known all the same */
	for (int64_t k = 0; k < s->steps; k++)
		fo_step_graph_free(y.graph[k]);
	fo_arena_fini(&a);
}

/* ---- bubbles ---- */

/* Time inside passes on one worker: their union, for a combined forward and backward pass is recorded as both. */
static void add_work(const struct fo_schedule_log *s, int64_t step, double *work)
{
	const struct fo_schedule_op *o = s->op + s->step[step].first;
	int64_t covered = INT64_MIN;
	for (int64_t i = 0; i < s->step[step].ops; i++) {
		if (i && (o[i].replica != o[i - 1].replica || o[i].stage != o[i - 1].stage))
			covered = INT64_MIN;
		if (o[i].kind > FO_SCHED_WEIGHT)
			continue;
		int64_t begin = fo_max(o[i].begin_ns, covered);
		if (o[i].end_ns > begin) {
			work[o[i].stage] += (double)(o[i].end_ns - begin) / s->replicas;
			covered = o[i].end_ns;
		}
	}
}

static void find_bubbles(struct fo_schedule_diagnosis *d)
{
	const struct fo_schedule_log *s = d->schedule;
	size_t all = (size_t)s->steps, from = (size_t)d->warm_up, stages = (size_t)s->stages;
	double *work = reals(&d->arena, s->steps * s->stages), *v = reals(&d->arena, s->steps),
	       *whole = reals(&d->arena, s->steps);
	for (size_t k = 0; k < all; k++) {
		add_work(s, (int64_t)k, work + k * stages);
		for (size_t i = 0; i < stages; i++) {
			double span = (double)s->span_ns[k * stages + i];
			d->step_bubble[k * stages + i] = span > 0 ? 1 - work[k * stages + i] / span : 0;
			whole[k] = fmax(whole[k], span);
		}
	}
	for (size_t i = 0; i < stages; i++) {
		for (size_t k = from; k < all; k++)
			v[k - from] = d->step_bubble[k * stages + i];
		d->bubble[i] = fo_stats_quantile(v, all - from, 0.5);
		for (size_t k = from; k < all; k++)
			v[k - from] = whole[k] > 0 ? 1 - work[k * stages + i] / whole[k] : 0;
		d->bubble_of_step[i] = fo_stats_quantile(v, all - from, 0.5);
		for (size_t k = from; k < all; k++)
			v[k - from] = work[k * stages + i] * 1e-9;
		d->work_s[i] = fo_stats_quantile(v, all - from, 0.5);
	}
	for (size_t k = from; k < all; k++)
		v[k - from] = (double)s->step[k].length_ns * 1e-9;
	d->step_s = fo_stats_quantile(v, all - from, 0.5);
}

/* A first step that compiles or allocates says nothing about the others. At least one step is kept. */
static int64_t count_warm_up(const struct fo_schedule_log *s)
{
	double *v = fo_xmalloc((size_t)s->steps * sizeof *v);
	int64_t n = 0;
	for (int64_t k = 0; k < s->steps; k++)
		v[k] = (double)s->step[k].length_ns;
	double limit = 1.5 * fo_stats_quantile(v, (size_t)s->steps, 0.5);
	while (n < s->steps - 1 && (double)s->step[n].length_ns > limit)
		n++;
	free(v);
	return n;
}

/* ---- findings ---- */

/* The paper calls a job straggling from a slowdown of 1.1; a metric of a half explains most of it. */
static const double STRAGGLING = 1.1, EXPLAINS = 0.5;

static struct fo_schedule_finding *new_finding(struct fo_schedule_diagnosis *d, const char *id, double ceiling)
{
	struct fo_schedule_finding *f = &d->finding[d->findings++];
	*f = (struct fo_schedule_finding){ .id = id, .ceiling = ceiling, .serious = ceiling >= STRAGGLING };
	d->serious |= f->serious;
	return f;
}

/* "77 %": of a slowdown. */
static const char *share_text(char *s, size_t cap, double share)
{
	if (share >= 1)
		return "all";
	snprintf(s, cap, "%.0f %%", 100 * share);
	return s;
}

/* The step before over the step after. Work taken off one stage goes to the others, so that no more than the even step
 * is promised where a share is above 1 (the others, as recorded, are faster than the mean that counts the slow one). */
static double ceiling_of(const struct fo_whatif *w, double share)
{
	return w->no_delay_s / (w->no_delay_s - fmin(share, 1) * (w->no_delay_s - w->ideal_s));
}

static void find_last_stage(struct fo_schedule_diagnosis *d)
{
	const struct fo_whatif *w = &d->whatif;
	char share[16];
	int last = d->schedule->stages - 1;
	struct fo_schedule_finding *f = new_finding(d, "pipeline-last-stage", ceiling_of(w, w->last_stage));
	snprintf(f->title, sizeof f->title, "the last stage (%d) has more work than the others", last);
	snprintf(
		f->why, sizeof f->why,
		"Its passes take %.3f s of a step, those of the median stage %.3f s: output layer and loss come on top "
		"of its layers. If its operations took as long as the others', %s of the slowdown of %.3f would go.",
		d->work_s[last], fo_stats_median(d->work_s, (size_t)d->schedule->stages),
		share_text(share, sizeof share, w->last_stage), w->slowdown);
	snprintf(f->proposal, sizeof f->proposal,
		 "fewer layers there: Megatron-LM and Primus --decoder-last-pipeline-num-layers, or "
		 "--account-for-loss-in-pipeline-split; TorchTitan "
		 "--parallelism.pipeline_parallel_last_stage_less_layers");
}

static void find_worker(struct fo_schedule_diagnosis *d)
{
	const struct fo_whatif *w = &d->whatif;
	char share[16];
	struct fo_schedule_finding *f = new_finding(d, "pipeline-worker", ceiling_of(w, w->worst_workers));
	snprintf(f->title, sizeof f->title, "stage %d of replica %d holds the job up", w->worker_stage,
		 w->worker_replica);
	snprintf(f->why, sizeof f->why,
		 "If its operations took as long as the others', %s of the slowdown of %.3f would go.",
		 share_text(share, sizeof share, w->worst_workers), w->slowdown);
	snprintf(f->proposal, sizeof f->proposal,
		 "look at this machine's clocks, temperature and links (nvidia-smi -q -d PERFORMANCE, or amd-smi "
		 "metric --clock); run without it");
}

static void find_unevenness(struct fo_schedule_diagnosis *d)
{
	const struct fo_whatif *w = &d->whatif;
	char share[16];
	struct fo_schedule_finding *f = new_finding(d, "pipeline-uneven", ceiling_of(w, w->unevenness));
	snprintf(f->title, sizeof f->title, "the same pass takes unevenly long: %s most",
		 fo_schedule_kind_name[w->worst_kind]);
	snprintf(f->why, sizeof f->why,
		 "If every operation took the mean of its kind on its stage, %s of the slowdown of %.3f would go. What "
		 "differs from microbatch to microbatch is mostly the length of the sequences.",
		 share_text(share, sizeof share, w->unevenness), w->slowdown);
	snprintf(f->proposal, sizeof f->proposal,
		 "deal sequences out so that every microbatch has as much attention to compute");
}

/* One worker explains an uneven stage, an uneven stage not one worker. Of the other two the one that explains more
 * comes first. */
static void find_straggler(struct fo_schedule_diagnosis *d)
{
	const struct fo_whatif *w = &d->whatif;
	int last = d->schedule->stages - 1;
	if (!w->known || w->slowdown < STRAGGLING)
		return;
	bool stage = w->last_stage >= EXPLAINS && w->worst_stage == last && last > 0;
	bool worker = !stage && w->worst_workers >= EXPLAINS, uneven = !worker && w->unevenness >= EXPLAINS;
	if (uneven && (!stage || w->unevenness > w->last_stage))
		find_unevenness(d);
	if (stage)
		find_last_stage(d);
	if (worker)
		find_worker(d);
	if (uneven && stage && w->unevenness <= w->last_stage)
		find_unevenness(d);
}

/* Half the bubble is what twice the chunks (or microbatches) leave. */
static void find_bubble(struct fo_schedule_diagnosis *d)
{
	const struct fo_schedule_log *s = d->schedule;
	double rounds = (double)s->chunks * s->microbatches, wait = s->stages - 1;
	if (rounds <= 0 || (rounds + wait) / rounds < STRAGGLING)
		return;
	struct fo_schedule_finding *f = new_finding(d, "pipeline-bubble", (rounds + wait) / (rounds + wait / 2));
	double empty = 0;
	for (int i = 0; i < s->stages; i++)
		empty += d->bubble_of_step[i] / s->stages;
	snprintf(f->title, sizeof f->title, "%.1f %% of the step is empty, on average over the stages", 100 * empty);
	snprintf(f->why, sizeof f->why,
		 "Even stages would leave %.1f %% empty: a stage waits for (p - 1) / (v m) = %d / (%d x %d) of its "
		 "work. Twice as many chunks or microbatches would lower that to %.1f %%.",
		 100 * d->ideal_of_step, s->stages - 1, s->chunks, s->microbatches, 100 * wait / (2 * rounds + wait));
	/* A schedule with chunks is interleaved already: more chunks are what is left. */
	snprintf(f->proposal, sizeof f->proposal,
		 s->chunks > 1 ? "more microbatches per step, or more than %d chunks per stage: Megatron-LM and Primus "
				 "fewer layers in --num-layers-per-virtual-pipeline-stage; TorchTitan fewer in "
				 "--parallelism.pipeline_parallel_layers_per_stage"
			       : "more microbatches per step, or more than %d chunk per stage: Megatron-LM and Primus "
				 "--num-layers-per-virtual-pipeline-stage; TorchTitan "
				 "--parallelism.pipeline_parallel_schedule Interleaved1F1B",
		 s->chunks);
}

fo_status fo_schedule_diagnose(struct fo_schedule_diagnosis *d, struct fo_schedule_log *s)
{
	*d = (struct fo_schedule_diagnosis){ .schedule = s };
	d->warm_up = count_warm_up(s);
	d->bubble = reals(&d->arena, s->stages);
	d->bubble_of_step = reals(&d->arena, s->stages);
	d->step_bubble = reals(&d->arena, s->steps * s->stages);
	d->work_s = reals(&d->arena, s->stages);
	find_bubbles(d);
	double rounds = (double)s->chunks * s->microbatches, wait = s->stages - 1;
	d->ideal_bubble = rounds > 0 ? wait / rounds : 0;
	d->ideal_of_step = rounds > 0 ? wait / (rounds + wait) : 0;
	what_if(d);
	find_straggler(d); /* first, for it is a fault, and the bubble a choice */
	find_bubble(d);
	return FO_OK;
}

void fo_schedule_diagnosis_fini(struct fo_schedule_diagnosis *d)
{
	fo_arena_fini(&d->arena);
	*d = (struct fo_schedule_diagnosis){ 0 };
}
