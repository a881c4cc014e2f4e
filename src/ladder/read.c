/* A ladder as its directories hold it: plan.json, and of every rung the log, the program and the metered steps. */
#include "ladder/plan_int.h"

#include "base/fs.h"
#include "record/record.h"
#include "sim/ranks.h"
#include "timeline/metered.h"

#include <stdlib.h>
#include <string.h>

/* Records of the rungs' directories, which are all read before any are compared. */
struct rung_read {
	struct fo_record record;
	bool open;
	double *step_s, *tokens_s, *flop[FO_LADDER_RULES]; /* of timed steps, in order; flop: of a step by that rule */
	int *round;
	double *useful, *processed;
	size_t n;
};

static const enum fo_step_field rule_field[FO_LADDER_RULES] = { FO_STEP_MFU, FO_STEP_MFU_CAUSAL, FO_STEP_MFU_DOCUMENT,
								FO_STEP_MFU_6N, FO_STEP_HFU };

static int round_of(const struct fo_ladder *l, int64_t step)
{
	int round = 0;
	while (round + 1 < l->rounds && step > fo_ladder_round_end(l->steps, l->rounds, round))
		round++;
	return round;
}

/* Timed: neither the first of a process (on a device, the first two) nor metered. */
static void collect_steps(const struct fo_ladder *l, const struct fo_ladder_rung *g, struct rung_read *v,
			  struct fo_arena *a)
{
	const struct fo_record *r = &v->record;
	size_t most = (size_t)r->step.n + 1;
	double **array[] = { &v->step_s, &v->tokens_s, &v->useful, &v->processed };
	for (size_t i = 0; i < sizeof array / sizeof *array; i++)
		*array[i] = fo_arena_alloc(a, most * sizeof(double));
	for (int k = 0; k < FO_LADDER_RULES; k++)
		v->flop[k] = fo_arena_alloc(a, most * sizeof(double));
	v->round = fo_arena_alloc(a, most * sizeof *v->round);
	for (int64_t i = 0; i < r->step.n; i++) {
		int64_t step = r->step.step[i];
		const struct fo_record_start *start = fo_record_start_of(r, i);
		double s = fo_record_value(&r->step, FO_STEP_SECONDS, i);
		if (step < 1 || step > l->steps)
			continue;
		double loss = fo_record_value(&r->step, FO_STEP_LOSS, i);
		/* A step that is done and has no loss is no gap: it is as far away as can be. */
		g->loss[step - 1] = isfinite(loss) ? loss : INFINITY;
		g->tokens[step - 1] = fo_record_value(&r->step, FO_STEP_LOSS_TOKENS, i);
		/* A device captures what it replays in the second. */
		if (!start || step <= start->step + (*start->device ? 2 : 1) ||
		    fo_record_value(&r->step, FO_STEP_METERED, i) == 1 || !(s > 0))
			continue;
		v->step_s[v->n] = s;
		v->useful[v->n] = fo_record_value(&r->step, FO_STEP_LOSS_TOKENS, i);
		v->processed[v->n] = fo_record_value(&r->step, FO_STEP_TOKENS, i);
		v->tokens_s[v->n] = v->useful[v->n] / s;
		/* MFU divides by the peak that its process knew; the work itself does not depend on that. */
		for (int k = 0; k < FO_LADDER_RULES; k++)
			v->flop[k][v->n] = fo_record_value(&r->step, rule_field[k], i) * s * fo_record_peak_of(r, i);
		v->round[v->n++] = round_of(l, step);
	}
}

static double mean(const double *v, size_t n)
{
	double s = 0;
	for (size_t i = 0; i < n; i++)
		s += v[i];
	return n ? s / (double)n : NAN;
}

static void fill_rounds(const struct fo_ladder *l, struct fo_ladder_rung *g, const struct rung_read *v, double *scratch)
{
	for (int round = 0; round < l->rounds; round++) {
		size_t n = 0;
		double tokens = 0;
		for (size_t i = 0; i < v->n; i++)
			if (v->round[i] == round) {
				scratch[n++] = v->step_s[i];
				tokens += v->useful[i];
			}
		bool done = g->steps_done >= fo_ladder_round_end(l->steps, l->rounds, round);
		g->rounds_done += done;
		g->round_step_s[round] = n && done ? fo_stats_spread(scratch, n).median : NAN;
		g->round_tokens_s[round] = tokens / (double)n / g->round_step_s[round];
	}
}

/* Figures that a process logs as it ends. */
static void fill_ends(struct fo_ladder_rung *g, const struct fo_record *r)
{
	for (int64_t i = 0; i < r->ends; i++) {
		g->planned_bytes = fmax((double)g->planned_bytes, r->end[i].planned_bytes);
		g->measured_bytes = fmax((double)g->measured_bytes, r->end[i].measured_bytes);
	}
}

static void fill_parts(struct fo_ladder_rung *g, const struct fo_record *r)
{
	double steps = 0, sum_ns[FO_PART_COUNT] = { 0 };
	for (int64_t i = 0; i < r->ends; i++) {
		const struct fo_profile *f = &r->end[i].profile;
		steps += (double)f->steps;
		for (int k = 0; k < FO_PART_COUNT; k++)
			sum_ns[k] += f->part_ns[k];
	}
	for (int k = 0; k < FO_PART_COUNT; k++)
		g->part_s[k] = steps > 0 ? sum_ns[k] * 1e-9 / steps : NAN;
}

static void fill_rung(const struct fo_ladder *l, struct fo_ladder_rung *g, struct rung_read *v, struct fo_arena *a)
{
	const struct fo_record *r = &v->record;
	collect_steps(l, g, v, a);
	g->steps_done = r->step.n ? r->step.step[r->step.n - 1] : 0;
	if (g->steps_done > l->steps)
		g->steps_done = l->steps;
	double *scratch = fo_arena_alloc(a, (v->n + 1) * sizeof *scratch);
	fill_rounds(l, g, v, scratch);
	g->timed_steps = (int64_t)v->n;
	double useful = mean(v->useful, v->n), processed = mean(v->processed, v->n);
	g->step_tokens = useful;
	g->padding = 1 - useful / processed;
	memcpy(scratch, v->step_s, v->n * sizeof *scratch);
	g->step_s = fo_stats_spread(scratch, v->n);
	memcpy(scratch, v->tokens_s, v->n * sizeof *scratch);
	g->tokens_s = fo_stats_spread(scratch, v->n);
	fill_ends(g, r);
	fill_parts(g, r);
	for (int64_t i = 0; i < r->evals; i++)
		if (r->eval[i].step == l->steps)
			g->val_loss = r->eval[i].loss;
	g->peak_dtype = r->starts ? fo_arena_strdup(a, r->start[r->starts - 1].peak_dtype) : "";
	g->peak_source = fo_arena_strdup(a, r->peak_source);
	for (int64_t i = 0; i < r->starts; i++)
		g->peak_flop_s = fmax(g->peak_flop_s, r->start[i].peak_flop_s);
}

static double link_option(const struct fo_record *r, const char *key)
{
	const struct fo_record_option *o = fo_record_option(r, key);
	return o ? strtod(o->value, NULL) : 0;
}

/* A step of several ranks: all of them are walked. Nothing is predicted where calls between ranks are not known. */
static void predict_ranks(struct fo_ladder_rung *g, const struct fo_record *r, const struct fo_rates *rates,
			  double pairs)
{
	struct fo_sim_ranks x;
	struct fo_link_rates links = { .limits = rates->limits,
				       .copy_byte_s = rates->copy_byte_s,
				       .byte_s = link_option(r, "mesh.link-gbps") * 1e9 / 8,
				       .latency_s = link_option(r, "mesh.link-us") * 1e-6 };
	fo_status st = fo_sim_ranks_init(&x, &r->program);
	if (st == FO_OK)
		st = fo_sim_ranks_step(&x, rates, &links, fo_rates_cores(rates->limits), pairs);
	bool known = st == FO_OK && !x.rank->unknown;
	double all = 0;
	for (int k = 0; known && k < FO_SURE_COUNT; k++)
		all += x.rank->sure_s[k];
	for (int k = 0; known && k < FO_SURE_COUNT; k++)
		g->sure[k] = x.rank->sure_s[k] / all;
	if (known)
		g->predicted_step_s = x.step_s.mid;
	if (st != FO_OK)
		fo_err_clear();
	fo_sim_ranks_fini(&x);
}

/* Predicts this program's step by the machine profile, with the documents that it saw. */
static void predict(struct fo_ladder_rung *g, struct rung_read *v, const struct fo_rates *rates)
{
	struct fo_record *r = &v->record;
	const struct fo_model *m = &r->program.model;
	struct fo_sim sim;
	if (r->file[FO_RECORD_PROGRAM].state != FO_RECORD_WHOLE || !v->n)
		return;
	/* mfu_document counts 12 L H Q FLOP per pair more than mfu_6n (docs/metrics.md). */
	double pairs = (mean(v->flop[FO_LADDER_MFU_DOCUMENT], v->n) - mean(v->flop[FO_LADDER_MFU_6N], v->n)) /
		       (12.0 * (double)(m->layers * m->heads * m->head_dim)) / (double)r->program.run.micro_batches /
		       fo_mesh_data(&r->program.run.mesh);
	pairs = isfinite(pairs) && pairs > 0 ? pairs : -1;
	if (r->program.ranks > 1) {
		predict_ranks(g, r, rates, pairs);
		return;
	}
	fo_prune_waits(&r->program, &r->unrolled);
	fo_sim_step(&sim, &r->program, &r->unrolled, rates, pairs);
	g->predicted_step_s = sim.unknown ? NAN : sim.step_s;
	double all = 0;
	for (int k = 0; k < FO_SURE_COUNT; k++)
		all += sim.sure_s[k];
	for (int k = 0; k < FO_SURE_COUNT && !sim.unknown; k++)
		g->sure[k] = sim.sure_s[k] / all;
	fo_sim_fini(&sim);
}

static void predict_all(struct fo_ladder *l, struct rung_read *v)
{
	struct fo_limits limits;
	struct fo_rates rates;
	if (*l->device) {
		l->predict_hint = "profiles are of processors, and these rungs were trained on a device";
		return;
	}
	fo_status st = fo_limits_read(fo_limits_path(&l->arena, l->cpu), &limits);
	if (st != FO_OK) {
		l->predict_hint = "no profile of this machine: 'flatout calibrate' makes one, then --show predicts";
		return;
	}
	/* Ranks share the threads (train/team.h); all rungs have as many as the first. */
	int ranks = l->rungs && v->open && v->record.program.ranks > 1 ? v->record.program.ranks : 1,
	    threads = l->threads / ranks > 1 ? l->threads / ranks : 1;
	st = fo_rates_init(&rates, &limits, threads);
	if (st != FO_OK)
		l->predict_hint = fo_arena_printf(
			&l->arena,
			"%s: 'flatout calibrate --for %s' measures what its rungs need, then --show predicts",
			fo_err_text(), l->rungs ? l->rung[0].dir : l->dir);
	for (int i = 0; i < l->rungs && st == FO_OK; i++)
		if (v[i].open)
			predict(&l->rung[i], &v[i], &rates);
	fo_limits_fini(&limits);
}

/* The largest peak of the dtype that any turn of any rung knew: the machine's peak only rises, and one denominator
 * serves all. */
static void share_peaks(struct fo_ladder *l)
{
	for (int i = 0; i < l->rungs; i++)
		for (int k = 0; k < l->rungs; k++)
			if (!strcmp(l->rung[i].peak_dtype, l->rung[k].peak_dtype))
				l->rung[i].peak_flop_s = fmax(l->rung[i].peak_flop_s, l->rung[k].peak_flop_s);
}

static void fill_mfu(struct fo_ladder_rung *g, const struct rung_read *v, struct fo_arena *a)
{
	double *scratch = fo_arena_alloc(a, (v->n + 1) * sizeof *scratch);
	for (int k = 0; k < FO_LADDER_RULES; k++) {
		for (size_t i = 0; i < v->n; i++)
			scratch[i] = v->flop[k][i] / v->step_s[i] / g->peak_flop_s;
		g->quiet_mfu[k] = v->n ? mean(v->flop[k], v->n) / g->quiet_s / g->peak_flop_s : NAN;
		bool known = true;
		for (size_t i = 0; i < v->n; i++)
			known &= isfinite(scratch[i]);
		g->mfu[k] = fo_stats_spread(scratch, known ? v->n : 0);
	}
}

/* ---- quiet step times ---- */

static bool comparable(const struct fo_metered *a, const struct fo_metered *b)
{
	return a->threads == b->threads && !strcmp(a->dtype, b->dtype);
}

static void fill_quiet(struct fo_ladder *l, const struct rung_read *v)
{
	for (int i = 0; i < l->rungs; i++) {
		struct fo_ladder_rung *g = &l->rung[i];
		struct fo_burst best = { 0 };
		struct fo_composed c;
		if (!v[i].open || v[i].record.file[FO_RECORD_METERED].state != FO_RECORD_WHOLE ||
		    v[i].record.file[FO_RECORD_PROGRAM].state != FO_RECORD_WHOLE)
			continue;
		for (int k = 0; k < l->rungs; k++)
			if (v[k].open && comparable(&v[i].record.metered, &v[k].record.metered))
				fo_metered_best(&v[k].record.metered, &best);
		if (fo_compose(&c, &v[i].record.metered, &v[i].record.program, &v[i].record.unrolled, &best) != FO_OK) {
			fo_composed_fini(&c);
			continue;
		}
		g->quiet_s = c.seconds;
		g->quiet_share = c.quiet_share;
		g->enough_share = c.enough_share;
		g->quiet_spans_share = c.quiet_spans_share;
		g->metered_steps = c.steps;
		fo_composed_fini(&c);
	}
}

/* ---- the whole ---- */

/* The highest load of all turns; the processors are the machine's, so they are the same in every record that tells
 * them. */
static void take_load(struct fo_ladder *l, const struct fo_record *r)
{
	l->load = fmax(l->load, fo_record_load(r)); /* NaN gives way */
	if (r->state.cpus > 0)
		l->processors = r->state.cpus;
}

static void blank(struct fo_ladder *l, struct fo_ladder_rung *g)
{
	g->round_step_s = fo_arena_alloc(&l->arena, (size_t)l->rounds * sizeof(double));
	g->round_tokens_s = fo_arena_alloc(&l->arena, (size_t)l->rounds * sizeof(double));
	g->loss = fo_arena_alloc(&l->arena, (size_t)l->steps * sizeof(double));
	g->tokens = fo_arena_alloc(&l->arena, (size_t)l->steps * sizeof(double));
	for (int i = 0; i < l->rounds; i++)
		g->round_step_s[i] = g->round_tokens_s[i] = NAN;
	for (int64_t i = 0; i < l->steps; i++)
		g->loss[i] = g->tokens[i] = NAN;
	g->step_s = g->tokens_s = fo_stats_spread(NULL, 0);
	for (int k = 0; k < FO_LADDER_RULES; k++) {
		g->mfu[k] = g->step_s;
		g->quiet_mfu[k] = NAN;
	}
	for (int k = 0; k < FO_PART_COUNT; k++)
		g->part_s[k] = NAN;
	for (int k = 0; k < FO_SURE_COUNT; k++)
		g->sure[k] = NAN;
	g->step_tokens = g->padding = g->text_seen = g->text_passes = g->text_reached = g->quiet_s = g->quiet_share =
		g->enough_share = g->quiet_spans_share = NAN;
	g->gain = g->gain_low = g->gain_high = g->gain_level = g->predicted_step_s = g->predicted_gain = NAN;
	g->val_loss = g->deviation = g->tolerance = g->peak_flop_s = NAN;
	g->peak_dtype = g->peak_source = "";
	g->verdict = FO_LADDER_UNMEASURED;
}

static void read_failure(struct fo_ladder *l, struct fo_ladder_rung *g)
{
	char *text, *path = fo_arena_printf(&l->arena, "%s/" FO_LADDER_FAILED_FILE, g->dir);
	size_t len;
	if (!fo_fs_exists(path) || fo_fs_read(&l->arena, path, 65536, &text, &len) != FO_OK)
		return;
	text[strcspn(text, "\n")] = 0;
	g->reason = text;
}

/* Figures that all rungs share, from the first rung that has them. */
static void describe(struct fo_ladder *l, const struct fo_record *r)
{
	const struct fo_program *p = &r->program;
	if (l->tokens_per_step || r->file[FO_RECORD_PROGRAM].state != FO_RECORD_WHOLE)
		return;
	l->model = fo_arena_strdup(&l->arena, p->model.name);
	l->params = fo_model_params(&p->model).total;
	l->flop_per_token = fo_model_flop_per_token(&p->model, p->run.seq).mfu;
	l->seq = p->run.seq;
	l->ranks = p->ranks;
	l->tokens_per_step = fo_program_step_tokens(p);
	l->isa = fo_arena_strdup(&l->arena, r->isa);
	l->device = fo_arena_strdup(&l->arena, r->starts ? r->start[r->starts - 1].device : "");
	l->started = fo_arena_strdup(&l->arena, r->started);
}

fo_status fo_ladder_read(struct fo_ladder *l, const char *dir)
{
	char *text;
	size_t len;
	*l = (struct fo_ladder){ .model = "", .isa = "", .device = "", .started = "", .load = NAN, .processors = -1 };
	l->dir = fo_arena_strdup(&l->arena, dir);
	char *path = fo_arena_printf(&l->arena, "%s/" FO_LADDER_PLAN_FILE, dir);
	fo_status st = FO_OK;
	if (!fo_fs_exists(path) && fo_fs_exists(fo_arena_printf(&l->arena, "%s/run.json", dir)))
		st = fo_hint(fo_fail(FO_EARG, "'%s' is the directory of a training run, not of a ladder", dir),
			     "'flatout report %s' shows a run", dir);
	if (st == FO_OK)
		st = fo_fs_read(&l->arena, path, (size_t)8 << 20, &text, &len);
	if (st == FO_OK)
		st = fo_ladder_plan_parse(l, text, len, path);
	if (st != FO_OK) {
		fo_ladder_fini(l);
		return st;
	}
	struct rung_read *v = fo_xmalloc((size_t)l->rungs * sizeof *v);
	for (int i = 0; i < l->rungs; i++) {
		struct fo_ladder_rung *g = &l->rung[i];
		blank(l, g);
		v[i].open = fo_fs_is_dir(g->dir) &&
			    fo_record_open(&v[i].record, g->dir, FO_RECORD_WITH_PROGRAM | FO_RECORD_WITH_METERED) ==
				    FO_OK;
		read_failure(l, g);
		if (v[i].open) {
			fill_rung(l, g, &v[i], &l->arena);
			describe(l, &v[i].record);
			take_load(l, &v[i].record);
		}
	}
	/* Processors emulate, devices have what they compute with. */
	for (int i = 0; i < l->rungs && *l->device; i++)
		l->rung[i].numerics_only = false;
	fo_ladder_text_read(l);
	share_peaks(l);
	predict_all(l, v);
	fill_quiet(l, v);
	for (int i = 0; i < l->rungs; i++)
		if (v[i].open) {
			fill_mfu(&l->rung[i], &v[i], &l->arena);
			fo_record_fini(&v[i].record);
		}
	free(v);
	fo_ladder_judge(l);
	return FO_OK;
}
