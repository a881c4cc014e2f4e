/* auto: the fastest plan of a step that fits into a memory budget.
 *
 * Candidates differ in how the step's rows are split into micro-batches, and in which sets of operations backward
 * repeats (recompute.c): sets A in the first n layers, and B, a part of A, in the rest. They are ordered by the time
 * that the model below gives their step, and the first one that fits is taken. So no cheaper one fits, and more memory
 * never means more work.
 *
 * Whether one fits is read off its own program, unrolled and planned. Most need not be planned: recomputing can give
 * back what layers hold between forward and backward and nothing else, so the plain program's bytes at each boundary
 * less these tensors bound the candidate's from below. */
#include "pass/pass.h"
#include "base/count.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MASKS = 1 << FO_RECOMPUTE_SETS,
	/* The third holds what every further one does: gradients exist, the next batch is there. */
	PLANNED_MICRO_BATCHES = 3,
	SHORTEST = 128,   /* tokens: nobody is told to train on less */
	MOST_PLANS = 400, /* that do not fit; then only candidates with the same sets in all layers are tried */
};

static int64_t sets_of(int mask) { return mask == MASKS - 1 ? FO_RECOMPUTE_FULL : mask; }

/* Seconds of the step's operations of one phase; phase -1: of all operations. */
static double seconds_of(const struct fo_program *p, const struct fo_choose_rates *rates, int phase)
{
	double sum = 0;
	for (int b = 0; b < p->nblock; b++) {
		double each = 0;
		for (int i = 0; i < p->block[b].n; i++)
			if (phase < 0 || p->block[b].op[i].phase == phase)
				each += fo_op_seconds(p, &p->block[b].op[i], rates);
		for (int s = 0; s < p->nslot; s++)
			sum += p->slot[s].block == b ? each : 0;
	}
	return sum;
}

double fo_program_seconds(const struct fo_program *p, const struct fo_choose_rates *rates, bool repeated)
{
	return seconds_of(p, rates, repeated ? FO_RECOMPUTE : -1);
}

double fo_program_gain_of_more(const struct fo_program *p, const struct fo_choose_rates *rates, int64_t most)
{
	double all = seconds_of(p, rates, -1), once = seconds_of(p, rates, FO_OPTIMIZER),
	       n = (double)p->run.micro_batches;
	return n < (double)most && all > 0 ? once * (1 - n / (double)most) / all : 0;
}

/* ---- splits of a step, with nothing repeated ---- */

struct split {
	struct fo_lowering run;
	int tier;
	double seconds;            /* of a step */
	int64_t bytes, persistent; /* planned */
	int64_t layers;            /* of the rank's stage */
	/* Layers that wait for backward, each of a micro-batch: at most `waiting`. Where c wait, at [c]: most bytes
	 * that live; of how many micro-batches they are, at most. */
	int64_t waiting, *top, *open;
	double repeat[MASKS]; /* seconds of one layer's repeated operations in one micro-batch */
	int64_t drop[MASKS];  /* bytes less that a layer keeps for backward */
};

/* Bytes of lives that begin at or before instance i and end after it. */
static int64_t *crossing(const struct fo_unrolled *u)
{
	int64_t *live = fo_xmalloc((size_t)(u->n + 1) * sizeof *live), sum = 0;
	memset(live, 0, (size_t)(u->n + 1) * sizeof *live);
	for (int i = 0; i < u->nlife; i++) {
		if (u->life[i].persists)
			continue;
		live[u->life[i].first] += u->life[i].bytes;
		live[u->life[i].last] -= u->life[i].bytes;
	}
	for (int i = 0; i < u->n; i++)
		live[i] = sum += live[i];
	return live;
}

static void find_tops(const struct fo_program *p, const struct fo_unrolled *u, struct split *sp)
{
	int64_t *live = crossing(u), *of = fo_xmalloc((size_t)p->run.micro_batches * sizeof *of), waiting = 0, open = 0;
	sp->layers = fo_program_layers(p);
	/* A stage of a pipeline has layers of several micro-batches waiting. */
	sp->waiting = sp->layers * (p->staged ? p->run.micro_batches : 1);
	sp->top = fo_xmalloc((size_t)(sp->waiting + 1) * sizeof *sp->top);
	sp->open = fo_xmalloc((size_t)(sp->waiting + 1) * sizeof *sp->open);
	for (int s = 0; s < p->nslot; s++) {
		const struct fo_block *b = &p->block[p->slot[s].block];
		bool layer = b->unit == FO_UNIT_LAYER, forward = layer && b->role == FO_ROLE_FORWARD;
		/* Activations that a layer drops may die within its forward: only its end counts. */
		waiting += forward;
		if (forward && !of[p->slot[s].mb]++)
			open++;
		sp->open[waiting] = fo_max(sp->open[waiting], open);
		for (int i = forward ? u->slot_begin[s + 1] - 1 : u->slot_begin[s]; i < u->slot_begin[s + 1]; i++)
			sp->top[waiting] = fo_max(sp->top[waiting], live[i]);
		if (!layer || b->role != FO_ROLE_BACKWARD)
			continue;
		waiting--;
		if (!--of[p->slot[s].mb])
			open--;
	}
	free(live);
	free(of);
}

/* The run with as many micro-batches as a plan needs to see. A stage has many in flight: in GPipe all, else those of
 * four for each stage at most. */
static struct fo_lowering planned(struct fo_lowering run)
{
	const int32_t stages = fo_mesh_pp(&run.mesh);
	if (stages < 2)
		run.micro_batches = fo_min(run.micro_batches, PLANNED_MICRO_BATCHES);
	else if (run.pass.pp != 1 + FO_PP_GPIPE)
		run.micro_batches = fo_min(run.micro_batches, 4 * stages);
	return run;
}

/* Builds and plans; *bytes: arena, what persists, and what lies in host memory where that is the same memory. */
static fo_status plan(const struct fo_model *m, struct fo_lowering run, bool host_apart, struct fo_program *p,
		      struct fo_unrolled *u, int64_t *bytes)
{
	FO_TRY(fo_pass_build(p, m, &run));
	fo_status st = fo_unroll(p, u);
	if (st != FO_OK) {
		fo_program_fini(p);
		return st;
	}
	fo_plan(p, u);
	*bytes = u->arena_bytes + u->persistent_bytes + (host_apart ? 0 : u->host_arena_bytes);
	return FO_OK;
}

static fo_status plan_bytes(const struct fo_model *m, struct fo_lowering run, bool host_apart, int64_t *bytes)
{
	struct fo_program p;
	struct fo_unrolled u;
	FO_TRY(plan(m, run, host_apart, &p, &u, bytes));
	fo_unrolled_fini(&u);
	fo_program_fini(&p);
	return FO_OK;
}

/* Micro-batches that a step has at least. */
static int64_t fewest(const struct fo_lowering *run)
{
	const int32_t stages = fo_mesh_pp(&run->mesh);
	return stages > 1 && run->pass.pp == 1 + FO_PP_DUALPIPE_V ? 2 * stages : 1;
}

/* Seconds of a step with this split: every micro-batch after the second that it can have costs as much as the second.
 */
static fo_status find_seconds(const struct fo_model *m, const struct fo_choose_rates *rates, struct split *s)
{
	double seconds[2];
	const int64_t least = fewest(&s->run);
	for (int i = 0; i < 2; i++) {
		struct fo_program p;
		struct fo_lowering run = s->run;
		run.micro_batches = least + i;
		FO_TRY(fo_pass_build(&p, m, &run));
		seconds[i] = fo_program_seconds(&p, rates, false);
		fo_program_fini(&p);
	}
	s->seconds = seconds[0] + (double)(s->run.micro_batches - least) * (seconds[1] - seconds[0]);
	return FO_OK;
}

static fo_status measure_split(const struct fo_model *m, const struct fo_choose *want, struct split *s)
{
	struct fo_program p;
	struct fo_unrolled u;
	FO_TRY(plan(m, planned(s->run), want->host_apart, &p, &u, &s->bytes));
	s->persistent = u.persistent_bytes;
	find_tops(&p, &u, s);
	fo_unrolled_fini(&u);
	fo_program_fini(&p);
	return find_seconds(m, want->rates, s);
}

/* Bytes that a layer holds from its forward to its backward. */
static int64_t kept(const struct fo_program *p, const struct fo_unrolled *u)
{
	int64_t sum = 0;
	for (int i = 0; i < u->nlife; i++) {
		const struct fo_life *l = &u->life[i];
		const struct fo_block *first = &p->block[p->slot[u->slot[l->first]].block],
				      *last = &p->block[p->slot[u->slot[l->last]].block];
		if (!l->persists && first->unit == FO_UNIT_LAYER && first->role == FO_ROLE_FORWARD &&
		    last->unit == FO_UNIT_LAYER && last->role == FO_ROLE_BACKWARD)
			sum += l->bytes;
	}
	return sum;
}

/* Fills in what each mask repeats and drops, on a model of one layer: a layer's share depends neither on their number
 * nor on that of micro-batches. */
static fo_status measure_layer(const struct fo_model *m, struct fo_lowering run, const struct fo_choose_rates *rates,
			       double *repeat, int64_t *drop)
{
	struct fo_model one = *m;
	one.layers = run.micro_batches = 1;
	/* Nor does it depend on the head's chunks, which are thousands in millions of tokens. Activations that wait in
	 * host memory drop less: without pass offload the bound stays a bound. */
	run.pass.fuse_loss = run.pass.fp8_first = run.pass.fp8_last = run.pass.offload = 0;
	run.pass.pp = run.pass.pp_chunks = run.mesh.pp = 0; /* nor on the stage that has the layer */
	run.mesh.rank %= fo_mesh_ranks(&run.mesh);
	run.stages = (struct fo_staging){ 0 };
	for (int mask = 0; mask < MASKS; mask++) {
		struct fo_program p;
		struct fo_unrolled u;
		int64_t bytes;
		run.pass.recompute = sets_of(mask);
		FO_TRY(plan(&one, run, false, &p, &u, &bytes));
		repeat[mask] = fo_program_seconds(&p, rates, true);
		drop[mask] = kept(&p, &u);
		fo_unrolled_fini(&u);
		fo_program_fini(&p);
	}
	for (int mask = MASKS - 1; mask >= 0; mask--)
		drop[mask] = drop[0] - drop[mask];
	return FO_OK;
}

/* Layers that keep their precision among fp8 ones drop other bytes: the larger number keeps the bound one. */
static fo_status measure_sets(const struct fo_model *m, const struct fo_choose_rates *rates, struct split *s)
{
	struct fo_lowering plain = s->run;
	double repeat[MASKS];
	int64_t drop[MASKS];
	FO_TRY(measure_layer(m, s->run, rates, s->repeat, s->drop));
	if (!plain.pass.fp8_first && !plain.pass.fp8_last)
		return FO_OK;
	plain.pass.fp8 = plain.pass.fp8_history = plain.pass.fp8_precompute = plain.pass.fp8_wgrad =
		plain.pass.fp8_transposed = plain.pass.fp8_fuse = 0;
	FO_TRY(measure_layer(m, plain, rates, repeat, drop));
	for (int mask = 0; mask < MASKS; mask++)
		s->drop[mask] = fo_max(s->drop[mask], drop[mask]);
	return FO_OK;
}

/* ---- candidates ---- */

struct candidate {
	double seconds;
	int32_t split, layers;
	uint8_t first, rest; /* masks */
};

static int by_time(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	if (x->seconds != y->seconds)
		return x->seconds < y->seconds ? -1 : 1;
	/* Equal: the larger micro-batch, then fewer layers. */
	return x->split != y->split ? fo_order(x->split, y->split) : fo_order(x->layers, y->layers);
}

struct search {
	const struct fo_model *m;
	const struct fo_choose *want;
	int64_t budget;
	struct split *split;
	int splits;
	struct candidate *candidate;
	size_t n, cap;
	struct fo_choice *out;
	int64_t least; /* bytes of the smallest plan seen */
	struct fo_lowering least_run;
};

static void add_candidate(struct search *s, int split, int first, int rest, int64_t layers)
{
	const struct split *sp = &s->split[split];
	double each = (double)layers * sp->repeat[first] + (double)(sp->layers - layers) * sp->repeat[rest];
	fo_array_room(&s->candidate, &s->cap, s->n, sizeof *s->candidate);
	s->candidate[s->n++] = (struct candidate){ .seconds = sp->seconds + (double)sp->run.micro_batches * each,
						   .split = split,
						   .layers = (int32_t)layers,
						   .first = (uint8_t)first,
						   .rest = (uint8_t)rest };
}

/* The least that a candidate can take: the plain program at its boundaries, without what layers drop. */
static bool may_fit(const struct search *s, const struct candidate *c)
{
	const struct split *sp = &s->split[c->split];
	for (int64_t w = 0; w <= sp->waiting; w++) {
		int64_t in_first = fo_min(w, c->layers * sp->open[w]);
		int64_t least = sp->top[w] - in_first * sp->drop[c->first] - (w - in_first) * sp->drop[c->rest];
		if (sp->persistent + least > s->budget)
			return false;
	}
	return true;
}

static struct fo_lowering lowering_of(const struct search *s, const struct candidate *c)
{
	struct fo_lowering run = s->split[c->split].run;
	const int32_t stages = fo_mesh_pp(&run.mesh), stage = fo_mesh_stage(&run.mesh);
	if (!s->want->recompute)
		return run;
	if (stages > 1) {
		run.stages.repeats = stages;
		run.stages.repeat[stage] = (struct fo_stage_repeat){ (uint8_t)sets_of(c->first),
								     (uint8_t)sets_of(c->rest), (int16_t)c->layers };
		return run;
	}
	run.pass.recompute = sets_of(c->first);
	run.pass.recompute_layers = c->layers < s->m->layers ? c->layers : 0;
	run.pass.recompute_rest = c->layers < s->m->layers ? sets_of(c->rest) : 0;
	return run;
}

static fo_status try_plan(struct search *s, const struct candidate *c, bool *fits)
{
	struct fo_lowering run = lowering_of(s, c);
	int64_t bytes;
	FO_TRY(plan_bytes(s->m, planned(run), s->want->host_apart, &bytes));
	s->out->planned++;
	if (!s->least || bytes < s->least) {
		s->least = bytes;
		s->least_run = run;
	}
	/* The free ranges that further micro-batches find may lie otherwise: a choice was planned whole. */
	if (bytes <= s->budget && run.micro_batches > PLANNED_MICRO_BATCHES)
		FO_TRY(plan_bytes(s->m, run, s->want->host_apart, &bytes));
	*fits = bytes <= s->budget;
	if (*fits) {
		s->out->run = run;
		s->out->bytes = bytes;
		s->out->seconds = c->seconds;
		s->out->repeat_seconds = c->seconds - s->split[c->split].seconds;
	}
	return FO_OK;
}

static fo_status add_candidates(struct search *s, int split)
{
	if (!s->want->recompute) {
		add_candidate(s, split, 0, 0, s->split[split].layers);
		return FO_OK;
	}
	FO_TRY(measure_sets(s->m, s->want->rates, &s->split[split]));
	for (int a = 0; a < MASKS; a++) {
		add_candidate(s, split, a, a, s->split[split].layers);
		for (int b = a; b;) { /* every true part of a, the empty one last */
			b = (b - 1) & a;
			for (int64_t n = 1; n < s->split[split].layers; n++)
				add_candidate(s, split, a, b, n);
		}
	}
	return FO_OK;
}

/* The fastest split fits as it is: nothing can be faster, and no candidate needs to be looked at. */
static fo_status try_plain(struct search *s, int tier, bool *found)
{
	int best = -1;
	for (int i = 0; i < s->splits; i++)
		if (s->split[i].tier == tier && (best < 0 || s->split[i].seconds < s->split[best].seconds))
			best = i;
	if (best < 0 || s->split[best].bytes > s->budget)
		return FO_OK;
	struct candidate c = { .seconds = s->split[best].seconds,
			       .split = best,
			       .layers = (int32_t)s->split[best].layers };
	return try_plan(s, &c, found);
}

/* The fastest of a tier that fits. */
static fo_status search_tier(struct search *s, int tier, bool *found)
{
	s->n = 0;
	FO_TRY(try_plain(s, tier, found));
	for (int i = 0; i < s->splits && !*found; i++)
		if (s->split[i].tier == tier)
			FO_TRY(add_candidates(s, i));
	if (s->n)
		qsort(s->candidate, s->n, sizeof *s->candidate, by_time);
	s->out->candidates += (int)s->n;
	int failed = 0;
	for (size_t i = 0; i < s->n && !*found; i++) {
		const struct candidate *c = &s->candidate[i];
		if (!may_fit(s, c) || (failed >= MOST_PLANS && c->layers < s->split[c->split].layers))
			continue;
		FO_TRY(try_plan(s, c, found));
		failed += !*found;
	}
	return FO_OK;
}

/* The most that a stage plans; one rank without stages. */
static fo_status most_bytes(const struct search *s, struct fo_lowering run, int64_t *bytes)
{
	*bytes = 0;
	for (int32_t k = 0; k < fo_mesh_pp(&run.mesh); k++) {
		int64_t own;
		run.mesh.rank = k * fo_mesh_stage_ranks(&run.mesh);
		FO_TRY(plan_bytes(s->m, planned(run), s->want->host_apart, &own));
		*bytes = fo_max(*bytes, own);
	}
	return FO_OK;
}

/* One sentence: the least there is, and what would do. */
static fo_status refuse(struct search *s)
{
	char have[32], least[32], what[64], would[64];
	for (int i = 0; i < s->splits; i++)
		for (int mask = 0; mask < MASKS; mask += MASKS - 1) {
			struct fo_lowering run = s->split[i].run;
			int64_t bytes;
			if (mask && !s->want->recompute)
				continue;
			if (s->want->recompute)
				run.pass.recompute = sets_of(mask), run.pass.recompute_layers = 0;
			FO_TRY(most_bytes(s, run, &bytes));
			s->out->planned++;
			if (!s->least || bytes < s->least)
				s->least = bytes, s->least_run = run;
		}
	struct fo_lowering run = s->out->run = s->least_run;
	/* Users give rows and memory of the job, plans are of a rank. */
	const int64_t ranks = fo_mesh_ranks(&run.mesh), groups = fo_mesh_data(&run.mesh);
	snprintf(what, sizeof what, "micro-batches of %lld %s of %lld tokens", (long long)(run.rows * groups),
		 fo_word(run.rows * groups, "row", "rows"), (long long)run.seq);
	snprintf(would, sizeof would, "no shorter rows would fit: choose a smaller model");
	while (run.rows > 1 || run.seq > SHORTEST) {
		int64_t bytes;
		bool rows = run.rows > 1;
		*(rows ? &run.rows : &run.seq) /= 2;
		FO_TRY(most_bytes(s, run, &bytes));
		if (bytes > s->budget)
			continue;
		snprintf(would, sizeof would, "%s=%lld would fit", rows ? "train.rows" : "data.seq",
			 (long long)(rows ? run.rows * groups : run.seq));
		break;
	}
	return fo_hint(
		fo_fail(FO_ENOMEM, "no plan of this step fits into %s: the least that was tried takes %s (%s%s); %s",
			fo_str_bytes(have, (double)(s->want->budget_bytes * ranks)),
			fo_str_bytes(least, (double)((s->least + s->want->reserve_bytes) * ranks)), what,
			s->least_run.pass.recompute ? ", recomputing" : "", would),
		"give memory.budget (memory.limit) more if the machine has it, or let pass.recompute and optim.state "
		"be auto");
}

/* ---- stages of a pipeline ---- */

/* Each stage of a split repeats the least with which it fits by itself. Nothing else ties them, so the
 * slowest stage is as fast as it can be. */
static fo_status choose_stages(struct search *s, const struct split *split, struct fo_choice *out, bool *fits)
{
	const int32_t stages = fo_mesh_pp(&split->run.mesh);
	const double m = (double)split->run.micro_batches;
	fo_status st = FO_OK;
	int64_t sum = 0;
	bool repeats = false;
	*out = (struct fo_choice){ .run = split->run };
	*fits = true;
	for (int32_t k = 0; k < stages && *fits && st == FO_OK; k++) {
		struct split sp = { .run = split->run, .tier = split->tier };
		struct fo_choice own = { 0 };
		struct search one = {
			.m = s->m, .want = s->want, .budget = s->budget, .split = &sp, .splits = 1, .out = &own
		};
		sp.run.mesh.rank = k * fo_mesh_stage_ranks(&sp.run.mesh);
		*fits = false;
		st = measure_split(s->m, s->want, &sp);
		if (st == FO_OK)
			st = search_tier(&one, split->tier, fits);
		s->out->candidates += own.candidates;
		s->out->planned += own.planned;
		sum += own.bytes;
		out->run.stages.repeat[k] = own.run.stages.repeat[k];
		repeats |= own.run.stages.repeat[k].first != 0;
		if (own.seconds > out->seconds)
			out->seconds = own.seconds, out->repeat_seconds = own.repeat_seconds;
		free(sp.top);
		free(sp.open);
		free(one.candidate);
	}
	out->run.stages.repeats = repeats ? stages : 0;
	fo_lowering_repeat(&out->run, s->m->layers);
	out->bytes = (sum + stages - 1) / stages;
	/* The slowest stage's work, and the time until a micro-batch has come to it and has left. */
	out->seconds *= (m + stages - 1) / m;
	return st;
}

static fo_status search_stages(struct search *s, int tier, bool *found)
{
	struct fo_choice best = { 0 };
	if (fo_mesh_pp(&s->split->run.mesh) > FO_STAGING_MOST)
		return fo_hint(
			fo_fail(FO_EUNSUPPORTED, "memory is shared out among at most %d stages", FO_STAGING_MOST),
			"leave memory.budget and train.batch-rows out, and say what is recomputed");
	for (int i = 0; i < s->splits; i++) {
		struct fo_choice own;
		bool fits;
		if (s->split[i].tier != tier)
			continue;
		FO_TRY(choose_stages(s, &s->split[i], &own, &fits));
		if (fits && (!*found || own.seconds < best.seconds))
			best = own, *found = true;
	}
	best.candidates = s->out->candidates;
	best.planned = s->out->planned;
	*s->out = best;
	return FO_OK;
}

static fo_status measure_splits(struct search *s, const struct fo_ask *ask, int asks)
{
	size_t cap = 0;
	int64_t batch_rows = s->want->batch_rows;
	for (int i = 0; i < asks; i++)
		for (int64_t mb = 1; mb <= (batch_rows ? batch_rows : 1) && mb <= 1 << 16; mb++) {
			struct fo_lowering run = ask[i].run;
			/* The limits of lowering: 2^28 tokens in a micro-batch, 2^20 layers in all of them. */
			if (batch_rows && (batch_rows % mb || batch_rows / mb * run.seq > 1 << 28 ||
					   (s->m->layers + 1) * mb > 1 << 20))
				continue;
			if (batch_rows)
				run.rows = batch_rows / mb, run.micro_batches = mb;
			if (batch_rows > mb && mb < fewest(&run)) /* the last one, each row by itself, says why */
				continue;
			if (s->want->divide)
				FO_TRY(fo_pass_divide(s->m, &run, s->want->stage_bytes, s->want->recompute,
						      s->want->rates));
			fo_array_room(&s->split, &cap, (size_t)s->splits, sizeof *s->split);
			struct split *sp = &s->split[s->splits++];
			memset(sp, 0, sizeof *sp);
			sp->run = run;
			sp->tier = ask[i].tier;
			if (fo_mesh_pp(&run.mesh) < 2) /* stages are measured one by one */
				FO_TRY(measure_split(s->m, s->want, sp));
		}
	return s->splits
		       ? FO_OK
		       : fo_fail(FO_EARG, "no split of a step of %lld rows gives micro-batches of at most 2^28 tokens",
				 (long long)(batch_rows * fo_mesh_data(&ask[0].run.mesh)));
}

/* ---- chunks of the loss ---- */

/* A share of a step's time below which nothing is done for speed: rates of the catalogue cannot tell less apart. */
#define LEAST_GAIN 1e-3

/* Every chunk reads and writes the fp32 gradient of the head's weights: 8 V D bytes beside 6 N V D FLOP. On an H200 and
 * a vocabulary of 128,256 that is 1.0 ms for each chunk, beside 0.7 ms of matmul at 512 tokens. Larger ones cost memory
 * for their logits, so a doubling must save LEAST_GAIN.
 *
 * Takes the largest chunk, up to the whole micro-batch, that fits beside the rest of the choice, which stays as it is:
 * nothing is recomputed for it. The ask's chunk is doubled until a doubling is not worth it, or does not fit. */
static fo_status choose_chunk(struct search *s)
{
	struct fo_choice *out = s->out;
	const int64_t tokens = out->run.rows * out->run.seq;
	struct split now = { .run = out->run };
	FO_TRY(find_seconds(s->m, s->want->rates, &now));
	const double before = now.seconds;
	out->fuse_loss = true;
	while (now.run.pass.fuse_loss < tokens) {
		struct split next = { .run = now.run };
		int64_t bytes;
		next.run.pass.fuse_loss = fo_min(2 * now.run.pass.fuse_loss, tokens);
		FO_TRY(find_seconds(s->m, s->want->rates, &next));
		if (now.seconds - next.seconds < LEAST_GAIN * now.seconds)
			break;
		FO_TRY(plan_bytes(s->m, next.run, s->want->host_apart, &bytes));
		out->planned++;
		if (bytes > s->budget)
			break;
		now = next;
		out->run = now.run;
		out->bytes = bytes;
	}
	out->fuse_loss_gain = 1 - now.seconds / before;
	if (out->seconds > 0)
		out->seconds -= before - now.seconds;
	return FO_OK;
}

/* The fastest of a tier where chunks are chosen too: each split by itself, with the chunk that it leaves room for. A
 * larger micro-batch that has to recompute and keeps small chunks may be slower than a smaller one with large chunks.
 */
static fo_status search_with_chunks(struct search *s, int tier, bool *found)
{
	struct fo_choice best = { 0 };
	fo_status st = FO_OK;
	for (int i = 0; i < s->splits && st == FO_OK; i++) {
		struct fo_choice own = { 0 };
		struct search one = {
			.m = s->m, .want = s->want, .budget = s->budget, .split = &s->split[i], .splits = 1, .out = &own
		};
		bool fits = false;
		if (s->split[i].tier != tier)
			continue;
		st = search_tier(&one, tier, &fits);
		if (st == FO_OK && fits)
			st = choose_chunk(&one);
		free(one.candidate);
		s->out->candidates += own.candidates;
		s->out->planned += own.planned;
		if (one.least && (!s->least || one.least < s->least))
			s->least = one.least, s->least_run = one.least_run;
		/* Splits come from the largest micro-batch on, which stays where they are equal. */
		if (fits && (!*found || own.seconds < best.seconds))
			best = own, *found = true;
	}
	best.candidates = s->out->candidates;
	best.planned = s->out->planned;
	*s->out = best;
	return st;
}

fo_status fo_pass_choose(const struct fo_model *m, const struct fo_ask *ask, int asks, const struct fo_choose *want,
			 struct fo_choice *out)
{
	struct fo_choose with = *want;
	struct search s = { .m = m, .want = &with, .budget = INT64_MAX, .out = out };
	with.rates = want->rates ? want->rates : &fo_choose_processor;
	if (want->budget_bytes)
		s.budget = want->budget_bytes > want->reserve_bytes ? want->budget_bytes - want->reserve_bytes : 1;
	*out = (struct fo_choice){ 0 };
	bool found = false;
	int64_t last = 0;
	fo_status st = measure_splits(&s, ask, asks);
	for (int i = 0; i < asks; i++)
		last = fo_max(last, ask[i].tier);
	const bool staged = st == FO_OK && fo_mesh_pp(&s.split->run.mesh) > 1;
	for (int tier = 0; tier <= last && !found && st == FO_OK; tier++)
		if (staged)
			st = search_stages(&s, tier, &found);
		else
			st = want->fuse_loss ? search_with_chunks(&s, tier, &found) : search_tier(&s, tier, &found);
	if (st == FO_OK && !found)
		st = refuse(&s);
	for (int i = 0; i < s.splits; i++) {
		free(s.split[i].top);
		free(s.split[i].open);
	}
	free(s.split);
	free(s.candidate);
	return st;
}

/* ---- passes that pay on a device only: taken where the step is predicted to be faster (cost/device.h) ---- */

/* The optimizer's share of a step shrinks with micro-batches; with so many it is that of most runs (docs/performance.md
 * has 16). */
enum { MICRO_BATCHES = 8 };

#define ROW(key, field)                                                                \
	{                                                                              \
		key, offsetof(struct fo_run, field), offsetof(struct fo_passes, field) \
	}
const struct fo_predicted_pass fo_predicted_pass[FO_PREDICTED_PASSES] = {
	ROW("pass.fuse-rope", fuse_rope),
	ROW("pass.fp8-fuse", fp8_fuse),
	ROW("pass.wgrad-lane", wgrad_lane),
};
#undef ROW

/* NAN: such a program is not legal, or an operation of it not known. */
static double predicted_seconds(const struct fo_run *r, const struct fo_model *m, const struct fo_device_rates *d,
				int64_t *value, size_t at)
{
	struct fo_lowering run = fo_run_lowering(r, FO_MODE_TRAIN);
	struct fo_interval s = { NAN, NAN, NAN };
	struct fo_program p;
	if (run.micro_batches > MICRO_BATCHES)
		run.micro_batches = MICRO_BATCHES;
	fo_status st = fo_pass_build(&p, m, &run);
	if (st == FO_OK) {
		*value = fo_passes_get(&p.run.pass, at);
		st = fo_device_program_seconds(d, &p, -1, &s);
		fo_program_fini(&p);
	}
	fo_err_clear();
	return st == FO_OK ? s.mid : NAN;
}

/* Decides each pass that *r leaves open. Each is decided by itself, in the order of the table, beside those before it.
 * All keep the mathematics, so a wrong prediction costs time and nothing else. */
static void predict(struct fo_run *r, const struct fo_model *m, const struct fo_choose_rates *device,
		    struct fo_predicted *out)
{
	for (int i = 0; i < FO_PREDICTED_PASSES; i++) {
		const struct fo_predicted_pass *row = &fo_predicted_pass[i];
		int *option = (int *)(void *)((char *)r + row->of_run);
		int64_t without = 0, with = 0;
		out[i] = (struct fo_predicted){ .open = *option == FO_RUN_AUTO, .gain = NAN };
		if (!out[i].open)
			continue;
		*option = FO_RUN_NO;
		if (!device->on_device)
			continue;
		const double before = predicted_seconds(r, m, &device->device, &without, row->of_pass);
		*option = FO_RUN_YES;
		const double after = predicted_seconds(r, m, &device->device, &with, row->of_pass);
		out[i].gain = 1 - after / before;
		out[i].taken = with != without && out[i].gain >= LEAST_GAIN;
		*option = out[i].taken ? FO_RUN_YES : FO_RUN_NO;
	}
}

/* ---- the choices of a run ---- */

/* Formats that the run allows, those that lose nothing first: a split master is the fp32 one, bf16 moments are rounded,
 * and without a master the weights are too. */
enum { STATE_FORMATS = 4 };
static int asks_of(const struct fo_run *r, struct fo_ask *ask)
{
	static const struct {
		int master, moments, tier, least; /* least: enum fo_run_state that allows it */
	} format[STATE_FORMATS] = {
		{ FO_MASTER_FP32, FO_MOMENTS_FP32, 0, FO_RUN_STATE_EXACT },
		{ FO_MASTER_SPLIT, FO_MOMENTS_FP32, 0, FO_RUN_STATE_EXACT },
		{ FO_MASTER_SPLIT, FO_MOMENTS_BF16, 1, FO_RUN_STATE_AUTO },
		{ FO_MASTER_NONE, FO_MOMENTS_BF16, 2, FO_RUN_STATE_AUTO },
	};
	if (r->state == FO_RUN_STATE_GIVEN || fo_run_precision(r) != FO_PRECISION_BF16) {
		ask[0] = (struct fo_ask){ .run = fo_run_lowering(r, FO_MODE_TRAIN) };
		return 1;
	}
	int n = 0;
	for (int i = 0; i < STATE_FORMATS; i++) {
		struct fo_run with = *r;
		with.master = format[i].master;
		with.moments = format[i].moments;
		if (r->state >= format[i].least)
			ask[n++] = (struct fo_ask){ .run = fo_run_lowering(&with, FO_MODE_TRAIN),
						    .tier = format[i].tier };
	}
	return n;
}

/* The memory that choices are made for, and the device that computes; NULL: a processor. */
struct room {
	const struct fo_model *m;
	int64_t budget_bytes, reserve_bytes;
	const struct fo_choose_rates *device;
};

/* The budget that a run file names is the job's; each rank plans with its share. */
static int64_t said_budget(const struct fo_run *r)
{
	return (r->memory_budget ? r->memory_budget : r->memory_limit) / fo_max(r->ranks, 1);
}

static fo_status choose_open(const struct fo_run *r, const struct room *room, struct fo_choice *out)
{
	struct fo_ask ask[STATE_FORMATS];
	int asks = asks_of(r, ask);
	const struct fo_choose want = { .budget_bytes = room->budget_bytes,
					.reserve_bytes = room->reserve_bytes,
					.batch_rows = r->batch_rows / fo_mesh_data(&ask[0].run.mesh),
					.host_apart = room->device != NULL,
					.recompute = r->recompute == FO_RUN_RECOMPUTE_AUTO,
					.divide = fo_run_balances(r),
					/* Free memory is left out: the same run file divides alike everywhere. */
					.stage_bytes = said_budget(r),
					.fuse_loss = room->device && r->fuse_loss == FO_RUN_FUSE_LOSS_AUTO,
					.rates = room->device };
	/* Nothing is left to choose, or nothing limits it. */
	if (!want.batch_rows && !want.fuse_loss && ((!want.recompute && asks == 1) || !want.budget_bytes)) {
		*out = (struct fo_choice){ .run = ask[0].run };
		if (!want.divide)
			return FO_OK;
		return fo_pass_divide(room->m, &out->run, want.stage_bytes, want.recompute,
				      room->device ? room->device : &fo_choose_processor);
	}
	return fo_pass_choose(room->m, ask, asks, &want, out);
}

static fo_status fits(const struct room *room, const struct fo_choice *c, bool *out)
{
	int64_t bytes;
	*out = true;
	if (!room->budget_bytes || c->planned) /* what was planned fits */
		return FO_OK;
	FO_TRY(plan_bytes(room->m, planned(c->run), true, &bytes));
	*out = bytes + room->reserve_bytes <= room->budget_bytes;
	return FO_OK;
}

/* The second lane holds more bytes at a time. Where that leaves no plan, or makes backward repeat so much that the
 * lane's gain is lost, the run goes without it. */
static fo_status choose_lane(struct fo_run *r, const struct room *room, struct fo_predicted *lane,
			     struct fo_choice *out)
{
	struct fo_choice without;
	bool fit = false, fit_without = false;
	fo_status st = choose_open(r, room, out);
	if (st != FO_OK && st != FO_ENOMEM)
		return st;
	if (st == FO_OK)
		FO_TRY(fits(room, out, &fit));
	if (!lane->taken || (fit && !(out->repeat_seconds > 0)))
		return st;
	r->wgrad_lane = FO_RUN_NO;
	fo_err_clear();
	st = choose_open(r, room, &without);
	if (st == FO_OK)
		FO_TRY(fits(room, &without, &fit_without));
	if (fit && (!fit_without || out->seconds * (1 - lane->gain) <= without.seconds)) {
		fo_err_clear();
		return FO_OK;
	}
	lane->taken = false;
	*out = without;
	return st;
}

fo_status fo_pass_choose_run(const struct fo_run *r, const struct fo_model *m, int64_t budget_bytes,
			     int64_t reserve_bytes, const struct fo_choose_rates *device, struct fo_choice *out)
{
	const struct room room = { m, budget_bytes, reserve_bytes, device };
	struct fo_predicted predicted[FO_PREDICTED_PASSES] = { 0 };
	struct fo_predicted *lane = NULL;
	struct fo_run with = *r;
	if (!device)
		return choose_open(r, &room, out);
	predict(&with, m, device, predicted);
	for (int i = 0; i < FO_PREDICTED_PASSES; i++)
		if (fo_predicted_pass[i].of_run == offsetof(struct fo_run, wgrad_lane))
			lane = &predicted[i];
	const fo_status st = choose_lane(&with, &room, lane, out);
	memcpy(out->predicted, predicted, sizeof predicted);
	return st;
}

fo_status fo_pass_choose_said(const struct fo_run *r, const struct fo_model *m, struct fo_choice *out)
{
	const struct fo_choose_rates rates = fo_choose_device(NULL, fo_run_precision(r));
	const int64_t budget = said_budget(r);
	enum fo_run_device kind;
	int index;
	bool on_device = r->device && fo_run_device_parse(r->device, &kind, &index) && kind == FO_RUN_DEVICE_CUDA;
	return fo_pass_choose_run(r, m, budget, 0, on_device ? &rates : NULL, out);
}

fo_status fo_pass_build_run(struct fo_program *p, const struct fo_run *r)
{
	struct fo_model m;
	struct fo_choice c;
	if (*r->program_file)
		return fo_program_read(p, r->program_file, false);
	FO_TRY(fo_run_model(r, &m));
	FO_TRY(fo_pass_choose_said(r, &m, &c));
	FO_TRY(fo_pass_build(p, &m, &c.run));
	fo_pass_note_job(p);
	return FO_OK;
}
