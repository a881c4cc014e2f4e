#include "report/versus.h"

#include "base/clock.h"
#include "report/run_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *const fo_versus_figure_name[FO_VERSUS_FIGURES] = {
	"step_seconds", "tokens_per_second", "mfu", "mfu_causal", "mfu_document", "mfu_6n", "hfu", "data_seconds",
};
static const enum fo_step_field field_of[FO_VERSUS_FIGURES] = {
	FO_STEP_SECONDS,    FO_STEP_TOKENS_PER_SECOND, FO_STEP_MFU,
	FO_STEP_MFU_CAUSAL, FO_STEP_MFU_DOCUMENT,      FO_STEP_MFU_6N,
	FO_STEP_HFU,        FO_STEP_DATA_SECONDS,
};

bool fo_spread_apart(const struct fo_spread *a, const struct fo_spread *b)
{
	return a->n && b->n && (a->high < b->low || b->high < a->low);
}

/* ---- one run's figures ---- */

/* The first step of a process finds cold memory. */
static bool *cold_rows(const struct fo_record *r)
{
	bool *cold = fo_xmalloc((size_t)r->step.n + 1);
	for (int64_t i = 0; i < r->starts; i++) {
		int64_t row = fo_record_row(&r->step, r->start[i].step + 1);
		if (row >= 0)
			cold[row] = true;
	}
	return cold;
}

static struct fo_spread field_spread(const struct fo_record *r, const bool *cold, enum fo_step_field f)
{
	double *v = fo_xmalloc((size_t)(r->step.n + 1) * sizeof *v);
	size_t n = 0;
	for (int64_t i = 0; i < r->step.n; i++) {
		double x = fo_record_value(&r->step, f, i);
		if (isfinite(x) && !cold[i] && !(fo_record_value(&r->step, FO_STEP_METERED, i) > 0))
			v[n++] = x;
	}
	struct fo_spread s = fo_stats_spread(v, n);
	free(v);
	return s;
}

static void read_machine(struct fo_versus_side *s)
{
	const struct fo_record *r = s->record;
	const struct fo_state_use u = fo_machine_over(r, INT64_MIN, INT64_MAX, true);
	double *load = fo_xmalloc((size_t)(r->machines + 1) * sizeof *load);
	size_t loads = 0;
	for (int64_t i = 0; i < r->machines; i++)
		if (isfinite(r->machine[i].use.load))
			load[loads++] = r->machine[i].use.load;
	s->clock_hz = u.clock_hz;
	s->steal = u.steal;
	s->limited_s = u.limited_s;
	s->load = fo_stats_spread(load, loads).median;
	free(load);
}

static void read_log(struct fo_versus_side *s)
{
	const struct fo_record *r = s->record;
	const struct fo_record_end *end = fo_record_last_end(r);
	bool *cold = cold_rows(r);
	struct fo_profile f;
	for (int i = 0; i < FO_VERSUS_FIGURES; i++)
		s->figure[i] = field_spread(r, cold, field_of[i]);
	s->tokens = field_spread(r, cold, FO_STEP_LOSS_TOKENS).median;
	free(cold);
	s->planned_bytes = end ? end->planned_bytes : NAN;
	s->measured_bytes = end ? end->measured_bytes : NAN;
	bool known = end && end->profile.steps ? (f = end->profile, true) : fo_record_profile_total(r, &f);
	for (int p = 0; p < FO_PART_COUNT; p++)
		s->mean_part[p] = known ? f.part_ns[p] * 1e-9 / (double)f.steps : NAN;
	read_machine(s);
}

/* ---- one run's operations ---- */

struct ops { /* of both runs, in one list */
	struct fo_versus_op *op;
	size_t n, cap;
};

static int find_op(struct ops *l, const char *block, int kind, int phase)
{
	char base[24];
	/* "layer.f.first" counts as "layer.f": the name ends before the second dot. */
	const char *dot = strchr(block, '.'), *second = dot ? strchr(dot + 1, '.') : NULL;
	snprintf(base, sizeof base, "%.*s", second ? (int)(second - block) : 23, block);
	for (size_t i = 0; i < l->n; i++)
		if (l->op[i].kind == kind && l->op[i].phase == phase && !strcmp(l->op[i].block, base))
			return (int)i;
	fo_array_room(&l->op, &l->cap, l->n, sizeof *l->op);
	struct fo_versus_op *o = &l->op[l->n];
	*o = (struct fo_versus_op){ .kind = kind, .phase = phase };
	memcpy(o->block, base, sizeof base);
	return (int)l->n++;
}

/* Steps that ran every operation, as [from, to) of the compute lane's spans. */
struct whole {
	uint64_t from, to;
};
static struct whole *whole_steps(const struct fo_record *r, int64_t *n)
{
	const struct fo_ring *c = &r->timeline.t.lane[FO_LANE_COMPUTE];
	struct whole *w = NULL;
	size_t cap = 0;
	int all = fo_instances_computing(&r->program, &r->unrolled);
	*n = 0;
	for (uint64_t from = 0, to; from < c->n; from = to) {
		for (to = from; to < c->n && c->span[to].step == c->span[from].step;)
			to++;
		int ran = fo_timeline_ran(&r->timeline.t, c->span[from].step, c->span[from].begin_ns,
					  c->span[to - 1].end_ns);
		/* The first step of a process is cold here as well. */
		if (ran != all || (r->starts && c->span[from].step == fo_record_last_start(r)->step))
			continue;
		fo_array_room(&w, &cap, (size_t)*n, sizeof *w);
		w[(*n)++] = (struct whole){ from, to };
	}
	return w;
}

/* Adds what an instance takes, so that its median can be told from a stall of one step. */
static void add_to(struct fo_spread *sum, const struct fo_spread *x)
{
	sum->low += x->low;
	sum->median += x->median;
	sum->high += x->high;
	sum->n = x->n;
}

/* seconds: of instance i in whole step k at [i * steps + k]; first the operations, then the compute lane's waits for
 * them. */
static double *collect(const struct fo_record *r, const struct whole *w, int64_t steps, struct fo_spread *covered)
{
	const struct fo_timeline *t = &r->timeline.t;
	const struct fo_ring *wgrad = &t->lane[FO_LANE_WGRAD];
	const struct fo_span *span = t->lane[FO_LANE_COMPUTE].span;
	size_t n = (size_t)steps, instances = (size_t)r->unrolled.n;
	double *seconds = fo_xmalloc((2 * instances * n + 1) * sizeof *seconds),
	       *whole = fo_xmalloc((n + 1) * sizeof *whole);
	for (size_t k = 0; k < n; k++) {
		whole[k] = (double)(span[w[k].to - 1].end_ns - span[w[k].from].begin_ns) * 1e-9;
		for (uint64_t i = w[k].from; i < w[k].to; i++) {
			size_t id = (size_t)(span[i].instance >= 0 ? span[i].instance : ~span[i].instance);
			if (id < instances)
				seconds[((span[i].instance < 0) * instances + id) * n + k] +=
					fo_timeline_own_ns(t, FO_LANE_COMPUTE, &span[i]) * 1e-9;
		}
		const struct fo_span *first = &span[w[k].from], *last = &span[w[k].to - 1];
		for (uint64_t i = fo_ring_from(wgrad, first->begin_ns);
		     i < wgrad->n && wgrad->span[i].begin_ns <= last->end_ns; i++) {
			const struct fo_span *s = &wgrad->span[i];
			if (s->step == first->step && s->instance >= 0 && (size_t)s->instance < instances)
				seconds[(size_t)s->instance * n + k] += fo_timeline_own_ns(t, FO_LANE_WGRAD, s) * 1e-9;
		}
	}
	*covered = fo_stats_spread(whole, n);
	free(whole);
	return seconds;
}

static void read_timeline(struct fo_versus_side *s, int which, struct ops *l)
{
	const struct fo_record *r = s->record;
	int64_t steps;
	struct whole *w = whole_steps(r, &steps);
	double *seconds = collect(r, w, steps, &s->covered), sum = 0;
	for (int i = 0; i < r->unrolled.n && steps; i++) {
		const struct fo_op *o = fo_instance_op(&r->program, &r->unrolled, i);
		enum fo_part part = fo_part_of_op((enum fo_op_kind)o->kind);
		struct fo_spread ran = fo_stats_spread(seconds + (int64_t)i * steps, (size_t)steps),
				 waited = fo_stats_spread(seconds + ((int64_t)r->unrolled.n + i) * steps,
							  (size_t)steps);
		/* The step profile has the same rule: waiting for another lane's compute is neither compute nor
		 * communication. */
		add_to(&s->part[part < FO_PART_COMMUNICATION ? FO_PART_UNATTRIBUTED : part], &waited);
		sum += waited.median;
		if (!fo_lane_computes(o->lane))
			continue;
		const char *block = r->program.block[r->program.slot[r->unrolled.slot[i]].block].name;
		int id = find_op(l, block, o->kind, o->phase); /* may move l->op */
		struct fo_versus_op *to = &l->op[id];
		to->in[which] = true;
		add_to(&to->time[which], &ran);
		add_to(&s->part[part], &ran);
		if (o->phase != FO_RECOMPUTE)
			add_to(&s->once[part], &ran);
		add_to(&s->phase[o->phase], &ran);
		sum += ran.median;
	}
	s->beyond_s = steps ? s->covered.median - sum : NAN;
	free(seconds);
	free(w);
}

static int by_difference(const void *a, const void *b)
{
	double x = fabs(((const struct fo_versus_op *)a)->difference),
	       y = fabs(((const struct fo_versus_op *)b)->difference);
	return (x < y) - (x > y);
}

static void compare_operations(struct fo_versus *v)
{
	struct ops l = { 0 };
	for (int i = 0; i < 2; i++)
		read_timeline(&v->side[i], i, &l);
	v->ops = (int64_t)l.n;
	v->op = fo_arena_alloc(&v->arena, (l.n + 1) * sizeof *v->op);
	for (size_t i = 0; i < l.n; i++) {
		struct fo_versus_op *o = &l.op[i];
		o->difference = o->time[1].median - o->time[0].median; /* 0 where the run has none */
		/* An operation that only one run has differs, however wide the spreads are. */
		o->apart = o->in[0] && o->in[1] ? fo_spread_apart(&o->time[0], &o->time[1]) : true;
		v->op[i] = *o;
	}
	if (l.n)
		qsort(v->op, l.n, sizeof *v->op, by_difference);
	free(l.op);
}

/* Composes the quiet step times of both runs from the best bursts of either: only then do their quiet spans mean the
 * same. */
static void compare_quiet(struct fo_versus *v)
{
	struct fo_burst best = { 0 };
	const struct fo_record *a = v->side[0].record, *b = v->side[1].record;
	bool alike = a->metered.threads == b->metered.threads && !strcmp(a->metered.dtype, b->metered.dtype);
	if (a->file[FO_RECORD_METERED].state != FO_RECORD_WHOLE ||
	    b->file[FO_RECORD_METERED].state != FO_RECORD_WHOLE || !alike || strcmp(a->cpu, b->cpu))
		return;
	fo_metered_best(&a->metered, &best);
	fo_metered_best(&b->metered, &best);
	for (int i = 0; i < 2; i++) {
		const struct fo_record *r = v->side[i].record;
		struct fo_composed c;
		if (fo_compose(&c, &r->metered, &r->program, &r->unrolled, &best) != FO_OK)
			continue;
		v->side[i].quiet_s = c.seconds;
		v->side[i].quiet_share = c.quiet_share;
		fo_composed_fini(&c);
	}
}

/* ---- options and losses ---- */

static void add_option(struct fo_versus *v, const char *key)
{
	const struct fo_record_option *a = fo_record_option(v->side[0].record, key),
				      *b = fo_record_option(v->side[1].record, key);
	static const struct fo_record_option none = { .value = "", .origin = "" };
	a = a ? a : &none;
	b = b ? b : &none;
	if (strcmp(a->value, b->value))
		v->option[v->options++] = (struct fo_versus_option){ key,
								     { a->value, b->value },
								     { a->origin, b->origin } };
}

static void compare_options(struct fo_versus *v)
{
	const struct fo_record *a = v->side[0].record, *b = v->side[1].record;
	v->option = fo_arena_alloc(&v->arena, (size_t)(a->options + b->options + 1) * sizeof *v->option);
	/* Options are compared only where both runs have a run.json. */
	if (!a->options || !b->options)
		return;
	for (int64_t i = 0; i < a->options; i++)
		add_option(v, a->option[i].key);
	for (int64_t i = 0; i < b->options; i++)
		if (!fo_record_option(a, b->option[i].key))
			add_option(v, b->option[i].key);
}

static void compare_losses(struct fo_versus *v)
{
	const struct fo_record *a = v->side[0].record, *b = v->side[1].record;
	bool identical = true;
	v->largest_loss_difference = v->last_loss[0] = v->last_loss[1] = v->eval_loss[0] = v->eval_loss[1] = NAN;
	v->largest_at = v->last_common = v->eval_step = -1;
	for (int64_t i = 0, k = 0; i < a->step.n && k < b->step.n;) {
		if (a->step.step[i] != b->step.step[k]) {
			a->step.step[i] < b->step.step[k] ? i++ : k++;
			continue;
		}
		double x = fo_record_value(&a->step, FO_STEP_LOSS, i), y = fo_record_value(&b->step, FO_STEP_LOSS, k);
		int64_t step = a->step.step[i++];
		k++;
		if (isnan(x) || isnan(y))
			continue;
		v->common_steps++;
		identical &= x == y;
		v->identical_steps += identical;
		if (!(fabs(y - x) <= v->largest_loss_difference)) {
			v->largest_loss_difference = fabs(y - x);
			v->largest_at = step;
		}
		v->last_common = step;
		v->last_loss[0] = x, v->last_loss[1] = y;
	}
	for (int64_t i = 0, k = 0; i < a->evals && k < b->evals;) {
		int64_t x = a->eval[i].step, y = b->eval[k].step;
		if (x == y) {
			v->eval_step = x;
			v->eval_loss[0] = a->eval[i].loss;
			v->eval_loss[1] = b->eval[k].loss;
		}
		i += x <= y;
		k += y <= x;
	}
}

/* ---- causes ---- */

/* v: the comparison. */
#define say(v, ...) fo_arena_say(&(v)->arena, &(v)->cause, &(v)->causes, __VA_ARGS__)

/* " (not resolved)" where the spreads overlap. */
static const char *doubt(const struct fo_spread *a, const struct fo_spread *b)
{
	return fo_spread_apart(a, b) ? "" : " (not resolved)";
}

static void say_part(struct fo_versus *v, const char *what, enum fo_part p)
{
	const struct fo_spread *a = &v->side[0].once[p], *b = &v->side[1].once[p];
	if (v->operations && a->n && b->n)
		say(v, "%s: %+.3f ms in %s%s", what, (b->median - a->median) * 1e3, fo_part_name[p], doubt(a, b));
	else
		say(v, "%s", what);
}

static void put_pass(struct fo_str *out, int field, int64_t value)
{
	struct fo_str text = { 0 };
	fo_pass_value_text(fo_pass_field[field].offset, value, &text);
	if (text.len > 1)
		fo_str_puts(out, text.data + 1); /* "=512" without the sign */
	else
		fo_str_puts(out, value ? "on" : "off");
	fo_str_fini(&text);
}

/* Which passes differ, and the time of what they concern, what backward repeats apart. */
static void explain_passes(struct fo_versus *v)
{
	static const struct {
		const char *name; /* of fo_pass_field */
		enum fo_part part;
	} concerns[] = { { "merge-qkv", FO_PART_MATMUL },
			 { "merge-gate-up", FO_PART_MATMUL },
			 { "fuse-loss", FO_PART_LOSS },
			 { "fuse-elementwise", FO_PART_ELEMENTWISE },
			 { "fused-optimizer", FO_PART_OPTIMIZER },
			 { "optimizer-in-backward", FO_PART_OPTIMIZER },
			 { "fp8", FO_PART_MATMUL },
			 { "attention", FO_PART_ATTENTION_FORWARD },
			 { "attention", FO_PART_ATTENTION_BACKWARD },
			 { "master", FO_PART_OPTIMIZER },
			 { "moments", FO_PART_OPTIMIZER },
			 { "offload", FO_PART_COMMUNICATION } };
	const struct fo_passes *a = &v->side[0].record->program.run.pass, *b = &v->side[1].record->program.run.pass;
	const struct fo_spread *pa = &v->side[0].phase[FO_RECOMPUTE], *pb = &v->side[1].phase[FO_RECOMPUTE];
	if (v->operations && pa->n && pb->n)
		say(v, "both recompute activations: %+.3f ms in operations that backward repeats%s",
		    (pb->median - pa->median) * 1e3, doubt(pa, pb));
	else if (v->operations && (pa->n || pb->n))
		say(v, "%s: %+.3f ms in operations that backward repeats",
		    pa->n ? "A recomputes activations, B keeps them" : "B recomputes activations, A keeps them",
		    (pb->median - pa->median) * 1e3);
	for (int f = 0; f < fo_pass_fields; f++) {
		int64_t x = fo_passes_get(a, fo_pass_field[f].offset), y = fo_passes_get(b, fo_pass_field[f].offset);
		for (size_t i = 0; i < sizeof concerns / sizeof *concerns; i++)
			if (x != y && !strcmp(concerns[i].name, fo_pass_field[f].name)) {
				struct fo_str t = { 0 };
				fo_str_printf(&t, "pass %s: ", fo_pass_field[f].name);
				put_pass(&t, f, x);
				fo_str_puts(&t, " in A, ");
				put_pass(&t, f, y);
				fo_str_puts(&t, " in B");
				say_part(v, t.data, concerns[i].part);
				fo_str_fini(&t);
			}
	}
}

static void explain_work(struct fo_versus *v)
{
	const struct fo_program *a = &v->side[0].record->program, *b = &v->side[1].record->program;
	double ta = (double)fo_program_step_tokens(a), tb = (double)fo_program_step_tokens(b);
	double fa = a->ranks * fo_program_cost(a, -1).exec, fb = b->ranks * fo_program_cost(b, -1).exec;
	if (fo_model_flop_per_token(&a->model, a->run.seq).mfu != fo_model_flop_per_token(&b->model, b->run.seq).mfu)
		say(v, "other work per token: %.4g GFLOP in A, %.4g in B (model or sequence length)",
		    fo_model_flop_per_token(&a->model, a->run.seq).mfu / 1e9,
		    fo_model_flop_per_token(&b->model, b->run.seq).mfu / 1e9);
	if (ta != tb)
		say(v, "another step: %.0f tokens in A, %.0f in B (padding included)", ta, tb);
	if (fa > 0 && fb > 0 && fabs(fb / fa - 1) > 1e-9)
		say(v, "B executes %.4g times the FLOP of A's step", fb / fa);
	if (a->run.precision != b->run.precision)
		say(v, "precision: %s in A, %s in B", fo_numerics_name[a->run.precision],
		    fo_numerics_name[b->run.precision]);
}

/* Time that is in no operation's own median: gaps, and stalls that hit now one operation, now another. */
static void explain_stalls(struct fo_versus *v)
{
	const struct fo_versus_side *a = &v->side[0], *b = &v->side[1];
	double difference = b->covered.median - a->covered.median, beyond = b->beyond_s - a->beyond_s;
	const struct fo_spread *x = &a->figure[FO_VERSUS_STEP_SECONDS], *y = &b->figure[FO_VERSUS_STEP_SECONDS];
	/* The timelines are of the newest steps: what all steps together do not show needs no cause. */
	if (x->n && y->n && !fo_spread_apart(x, y))
		return;
	if (v->operations && fo_spread_apart(&a->covered, &b->covered) && beyond / difference > 0.5)
		say(v,
		    "%.3f of %+.3f ms are beyond the operations' own medians (stalls that hit now this one, now that, "
		    "and gaps): the machine was shared or disturbed, and not alike in both runs",
		    beyond * 1e3, difference * 1e3);
}

/* Differences in the machine's state between the two runs. */
static void explain_machine(struct fo_versus *v)
{
	/* Smaller differences come and go within a run: idle states, one sample in five seconds. */
	const double clock_least = 0.03, steal_least = 0.01;
	const struct fo_versus_side *a = &v->side[0], *b = &v->side[1];
	const struct fo_record *ra = a->record, *rb = b->record;
	if (strcmp(ra->cpu, rb->cpu))
		say(v, "other processors: %.80s in A, %.80s in B", ra->cpu, rb->cpu);
	if (ra->threads != rb->threads && ra->threads > 0 && rb->threads > 0)
		say(v, "%lld threads in A, %lld in B", (long long)ra->threads, (long long)rb->threads);
	for (int i = 0; i < 2; i++)
		if (fo_record_paced(v->side[i].record))
			say(v, "%c ran with " FO_RECORD_PACED_WHY, "AB"[i]);
	if (strcmp(ra->isa, rb->isa))
		say(v, "kernels of %.40s in A, of %.40s in B", ra->isa, rb->isa);
	if (fabs(b->clock_hz / a->clock_hz - 1) > clock_least)
		say(v, "the clock was %.2f GHz in A, %.2f in B: %+.1f %% for what is bound by it", a->clock_hz * 1e-9,
		    b->clock_hz * 1e-9, 100 * (b->clock_hz / a->clock_hz - 1));
	if (fabs(b->steal - a->steal) > steal_least)
		say(v, "other guests took %.1f %% of the processors' time in A, %.1f %% in B", 100 * a->steal,
		    100 * b->steal);
	if (a->limited_s > 0 || b->limited_s > 0)
		say(v, "the cgroup held A back for %.1f s, B for %.1f s", a->limited_s, b->limited_s);
	if (isfinite(a->load) && isfinite(b->load) && fabs(b->load - a->load) > 1)
		say(v, "load average %.1f in A, %.1f in B", a->load, b->load);
	if (isfinite(ra->peak_flop_s) && isfinite(rb->peak_flop_s) &&
	    fabs(rb->peak_flop_s / ra->peak_flop_s - 1) > 1e-3)
		say(v, "MFU divides by other peaks: %.4g GFLOP/s in A, %.4g in B", ra->peak_flop_s / 1e9,
		    rb->peak_flop_s / 1e9);
}

static void explain(struct fo_versus *v)
{
	const struct fo_record *a = v->side[0].record, *b = v->side[1].record;
	bool programs = a->file[FO_RECORD_PROGRAM].state == FO_RECORD_WHOLE &&
			b->file[FO_RECORD_PROGRAM].state == FO_RECORD_WHOLE;
	if (programs && !v->same_program) {
		explain_work(v);
		explain_passes(v);
	}
	explain_stalls(v);
	explain_machine(v);
	bool built_alike = !strcmp(a->commit, b->commit) && !strcmp(a->version, b->version);
	if (!built_alike)
		say(v, "another build: %.20s %.12s in A, %.20s %.12s in B", a->version, a->commit, b->version,
		    b->commit);
	if (v->same_program && !strcmp(a->cpu, b->cpu) && a->threads == b->threads && !strcmp(a->isa, b->isa) &&
	    built_alike)
		say(v, "the same program on the same processor by the same kernels: what differs between the runs is "
		       "the machine's state, not what they do");
}

/* ---- all ---- */

void fo_versus_make(struct fo_versus *v, const struct fo_record *a, const struct fo_record *b)
{
	*v = (struct fo_versus){ .side = { { .record = a, .quiet_s = NAN, .beyond_s = NAN },
					   { .record = b, .quiet_s = NAN, .beyond_s = NAN } } };
	for (int i = 0; i < 2; i++)
		read_log(&v->side[i]);
	struct stat x, y;
	v->same_run = !stat(a->dir, &x) && !stat(b->dir, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
	v->same_program = *a->program_hash && !strcmp(a->program_hash, b->program_hash);
	v->same_data = *a->train_checksum && !strcmp(a->train_checksum, b->train_checksum);
	v->operations = a->file[FO_RECORD_TIMELINE].state == FO_RECORD_WHOLE &&
			b->file[FO_RECORD_TIMELINE].state == FO_RECORD_WHOLE;
	if (v->operations)
		compare_operations(v);
	compare_quiet(v);
	compare_options(v);
	compare_losses(v);
	explain(v);
}

bool fo_versus_step_resolved(const struct fo_versus *v)
{
	return fo_spread_apart(&v->side[0].figure[FO_VERSUS_STEP_SECONDS], &v->side[1].figure[FO_VERSUS_STEP_SECONDS]);
}

bool fo_versus_parts_resolved(const struct fo_versus *v)
{
	bool known = v->side[0].figure[FO_VERSUS_STEP_SECONDS].n && v->side[1].figure[FO_VERSUS_STEP_SECONDS].n;
	return !known || fo_versus_step_resolved(v);
}

bool fo_versus_op_resolved(const struct fo_versus *v, const struct fo_versus_op *o)
{
	return o->apart && (fo_versus_parts_resolved(v) || !o->in[0] || !o->in[1]);
}

void fo_versus_fini(struct fo_versus *v)
{
	fo_arena_fini(&v->arena);
	*v = (struct fo_versus){ 0 };
}
