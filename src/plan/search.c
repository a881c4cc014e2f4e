/* Every legal division, and the best of them. */
#include "plan/lower.h"
#include "plan/plan.h"
#include "plan/programs.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "predict/division.h"
#include "program/mesh_cost.h"
#include "program/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIT(i) (1u << (i))
#define ZERO(a, b) (BIT(a) | BIT(b))
enum {
	ALL_AGAIN = BIT(FO_PLAN_AGAINS) - 1,
	LAYERS_AGAIN = BIT(FO_PLAN_AGAIN_NONE) | BIT(FO_PLAN_AGAIN_QUARTER) | BIT(FO_PLAN_AGAIN_HALF) |
		       BIT(FO_PLAN_AGAIN_MOST) | BIT(FO_PLAN_AGAIN_FULL),
};

enum {
	PLAIN = BIT(FO_PREDICT_1F1B) | BIT(FO_PREDICT_GPIPE),
	LOOPED = PLAIN | BIT(FO_PREDICT_INTERLEAVED),
	EVERY_SCHEDULE = LOOPED | BIT(FO_PREDICT_ZERO_BUBBLE) | BIT(FO_PREDICT_ZB_H2),
};
enum { CHUNKS = 64 };
enum {
	TYPES_16 = BIT(FO_PREDICT_BF16) | BIT(FO_PLAN_HALF) | BIT(FO_PREDICT_FP32),
	TYPES_8 = BIT(FO_PREDICT_FP8) | BIT(FO_PREDICT_MXFP8),
	FORMAT_PLAIN = BIT(FO_PREDICT_FORMAT_JOB) | BIT(FO_PREDICT_FORMAT_FP32),
};
const struct fo_plan_framework fo_plan_framework[] = {
	{ .id = "any",
	  .title = "any framework",
	  .zero = BIT(4) - 1,
	  .shards_part = true,
	  .tp = true,
	  .cp = true,
	  .pp = true,
	  .ep = true,
	  .schedules = EVERY_SCHEDULE,
	  .keeps_weights = true,
	  .stages_near = true,
	  .tp_overlap = true,
	  .chunks = CHUNKS,
	  .again = ALL_AGAIN,
	  .types = BIT(FO_PREDICT_TYPES + 1) - 1,
	  .formats = BIT(FO_PREDICT_FORMATS) - 1,
	  .origin = "whatever src/predict knows" },
	/* More than two chunks want pipeline_parallel_layers_per_stage, which src/job does not read yet. */
	{ .id = "torchtitan",
	  .title = "torchtitan",
	  .zero = ZERO(0, 3),
	  .shards_part = true,
	  .tp = true,
	  .cp = true,
	  .pp = true,
	  .ep = true,
	  .schedules = LOOPED,
	  .keeps_weights = true,
	  .tp_overlap = true,
	  .chunks = 2,
	  .sp_always = true,
	  .again = BIT(FO_PLAN_AGAIN_NONE) | BIT(FO_PLAN_AGAIN_OP) | BIT(FO_PLAN_AGAIN_FULL),
	  .types = BIT(FO_PREDICT_BF16) | BIT(FO_PREDICT_FP32) | TYPES_8,
	  .formats = FORMAT_PLAIN | BIT(FO_PREDICT_FORMAT_ALL_BF16),
	  .origin = "torchtitan 0.2.2: parallelism.*, activation_checkpoint.mode" },
	{ .id = "megatron",
	  .title = "Megatron-LM",
	  .zero = ZERO(0, 1),
	  .tp = true,
	  .cp = true,
	  .pp = true,
	  .ep = true,
	  .schedules = LOOPED,
	  .stages_near = true,
	  .tp_overlap = true,
	  .chunks = CHUNKS,
	  .pp_zero_most_1 = true,
	  .pp_even = true,
	  .again = LAYERS_AGAIN,
	  .types = TYPES_16 | TYPES_8 | BIT(FO_PREDICT_FP4),
	  .formats = FORMAT_PLAIN | BIT(FO_PREDICT_FORMAT_BF16) | BIT(FO_PREDICT_FORMAT_8BIT),
	  .formats_shared = true,
	  .origin = "Megatron Core 0.20.0: arguments.py" },
	{ .id = "deepspeed",
	  .title = "DeepSpeed",
	  .zero = BIT(4) - 1,
	  .chunks = 1,
	  .pp_zero_most_1 = true,
	  .again = BIT(FO_PLAN_AGAIN_NONE) | BIT(FO_PLAN_AGAIN_FULL),
	  .types = TYPES_16,
	  .formats = FORMAT_PLAIN | BIT(FO_PREDICT_FORMAT_ALL_BF16),
	  .formats_shared = true,
	  .origin = "DeepSpeed 0.19: zero_optimization" },
	{ .id = "flatout",
	  .title = "Flatout",
	  .zero = BIT(4) - 1,
	  .shards_part = true,
	  .tp = true,
	  .cp = true,
	  .pp = true,
	  .schedules = EVERY_SCHEDULE,
	  .keeps_weights = true,
	  .tp_overlap = true,
	  .chunks = CHUNKS,
	  .again = LAYERS_AGAIN | BIT(FO_PLAN_AGAIN_FRONT),
	  .types = BIT(FO_PREDICT_BF16) | BIT(FO_PREDICT_FP8) | BIT(FO_PREDICT_FP32),
	  .formats = FORMAT_PLAIN | BIT(FO_PREDICT_FORMAT_SPLIT) | BIT(FO_PREDICT_FORMAT_BF16) |
		     BIT(FO_PREDICT_FORMAT_ALL_BF16),
	  /* pass.recompute-layers are the first of the model, not of each stage. */
	  .again_piped = BIT(FO_PLAN_AGAIN_NONE) | BIT(FO_PLAN_AGAIN_FULL) | BIT(FO_PLAN_AGAIN_FRONT),
	  .executes = true,
	  .origin = "src/program/run.c: mesh.*, pass.pp, pass.zero, pass.zero-reshard, pass.tp-async, "
		    "pass.recompute-layers" },
};
const int fo_plan_frameworks = sizeof fo_plan_framework / sizeof *fo_plan_framework;

const struct fo_plan_framework *fo_plan_framework_of(const char *id)
{
	for (int i = 0; i < fo_plan_frameworks; i++)
		if (!strcmp(fo_plan_framework[i].id, id))
			return &fo_plan_framework[i];
	return NULL;
}

const struct fo_plan_framework *fo_plan_framework_of_form(const char *form)
{
	const struct fo_plan_framework *f = fo_plan_framework_of(form);
	if (!f && (!strncmp(form, "megatron", 8) || !strncmp(form, "nemo", 4)))
		f = fo_plan_framework_of("megatron");
	if (!f && !strncmp(form, "torchtitan", 10))
		f = fo_plan_framework_of("torchtitan");
	return f ? f : fo_plan_framework_of("any");
}

const char *const fo_plan_again_id[FO_PLAN_AGAINS] = {
	"none", "selective", "quarter", "half", "three-quarters", "full", "first-stages",
};
const char *const fo_plan_again_name[FO_PLAN_AGAINS] = {
	"none", "selective",        "a quarter of the layers", "half of the layers", "three quarters of the layers",
	"full", "the first stages",
};
const char *const fo_plan_again_short[FO_PLAN_AGAINS] = { "none", "select", "1/4", "1/2", "3/4", "full", "first" };
const double fo_plan_again_share[FO_PLAN_AGAINS] = { 0, .5, .25, .5, .75, 1, 1 };

/* ---- what is legal ---- */

/* Whole numbers below 2^50: a quotient that is none is further from one than it is rounded. */
static bool divides(double whole, double part)
{
	double times = whole / part;
	return part >= 1 && times == (double)(int64_t)times;
}

/* An axis that the framework lacks, or NULL. */
static const char *axis_missing(const struct fo_plan_framework *f, const struct fo_predict_layout *l)
{
	if (l->tp > 1 && !f->tp)
		return "plan knows no tensor parallelism of this framework";
	if (l->cp > 1 && !f->cp)
		return "plan knows no context parallelism of this framework";
	if (l->pp > 1 && !f->pp)
		return "plan knows no pipeline of this framework";
	if (l->ep > 1 && !f->ep)
		return "plan knows no expert parallelism of this framework";
	return NULL;
}

static const char *zero_missing(const struct fo_plan_framework *f, const struct fo_predict_layout *l)
{
	static const char *const none[] = { "it always shards (no ZeRO 0)", "it has no ZeRO 1", "it has no ZeRO 2",
					    "it has no ZeRO 3" };
	static const char *const piped[] = { NULL, NULL, "it has no ZeRO 2 with a pipeline",
					     "it has no ZeRO 3 with a pipeline" };
	int zero = (int)l->zero;
	if (!(f->zero & BIT(zero)))
		return none[zero];
	return l->pp > 1 && zero > 1 && f->pp_zero_most_1 ? piped[zero] : NULL;
}

/* Where stages are, what is hidden and how long gathered weights stay. */
static const char *placed_wrong(const struct fo_plan_asked *a, const struct fo_predict_layout *l)
{
	const struct fo_plan_framework *f = a->framework;
	double node = fmin(a->base.job.machine.per_node, l->devices);
	if (l->stages_near && !f->stages_near)
		return "its pipeline stages are never inside of data parallelism";
	if (l->stages_near && (l->pp <= 1 || l->devices <= node || !divides(node, l->tp * l->cp * l->pp)))
		return "stages that are neighbours have a node together";
	if (l->tp_overlap < 0 || (l->tp_overlap > 0 && (!f->tp_overlap || !l->sp)))
		return "it hides tensor parallelism's communication beside sequence parallelism alone, or not at all";
	if (l->keeps_weights && (!f->keeps_weights || l->zero < 3))
		return "gathered weights are kept until backward where ZeRO 3 gathers them and can be told to";
	return NULL;
}

bool fo_plan_accounts(const struct fo_plan_asked *a, const struct fo_predict_layout *l)
{
	double layers = a->base.job.model.layers;
	return a->framework->pp_even && l->pp > 1 && l->chunks <= 1 && !divides(layers, l->pp) &&
	       divides(layers + 2, l->pp) && layers + 2 >= 2 * l->pp; /* the last stage has a layer of its own */
}

bool fo_plan_has_type(const struct fo_predict_machine *m, int type)
{
	if (type == FO_PREDICT_MXFP8 && isnan(m->peak[FO_PREDICT_FP4]))
		return false;
	return !isnan(m->peak[type]);
}

uint32_t fo_plan_types_8(const struct fo_plan_asked *a)
{
	uint32_t types = 0;
	for (int t = 0; t < FO_PREDICT_TYPES; t++)
		if (TYPES_8 & a->framework->types & BIT(t) && fo_plan_has_type(&a->base.job.machine, t))
			types |= BIT(t);
	return types;
}

static bool has_front(const struct fo_plan_asked *a, const struct fo_predict_layout *l)
{
	return l->pp > 1 && l->schedule == FO_PREDICT_1F1B && l->chunks <= 1 && l->zero < 3 &&
	       divides(a->base.job.model.layers, l->pp);
}

/* Recomputation in a pipeline's first stages alone. Other schedules than 1F1B hold as much in all stages, and gathers
 * of weights hide behind what is recomputed; the closed form is exact where pp divides the layers. */
static const char *front_wrong(const struct fo_plan_asked *a, const struct fo_predict_layout *l)
{
	if (!(l->again_stages > 0))
		return NULL;
	if (!(a->framework->again & BIT(FO_PLAN_AGAIN_FRONT)))
		return "it recomputes alike in all stages";
	return has_front(a, l) && l->again_stages < l->pp && !fo_predict_is_uneven(&l->uneven)
		       ? NULL
		       : "the first stages recompute alone with 1F1B, where pp divides the layers, without ZeRO 3";
}

/* The number type and the states' format, where they are searched. */
static const char *numbers_wrong(const struct fo_plan_asked *a, const struct fo_predict_layout *l)
{
	const struct fo_plan_framework *f = a->framework;
	const enum fo_predict_format format = fo_predict_format_of(&a->base.job, l);
	if (l->type > 0 && !(f->types & BIT(l->type - 1)))
		return "its settings cannot state the number type";
	if (l->type > 0 && !fo_plan_has_type(&a->base.job.machine, l->type - 1))
		return "the device has no products of the number type";
	if (l->format != FO_PREDICT_FORMAT_JOB && !(f->formats & BIT(l->format)))
		return "its settings cannot state the format of the optimizer's states";
	if (f->formats_shared && l->zero < 1 && !fo_predict_format_row[format].exact)
		return "it keeps moments of less than fp32 beside ZeRO 1 alone";
	const enum fo_predict_type type = fo_predict_type_of(&a->base.job, l);
	const bool whole = type == FO_PREDICT_FP32 || type == FO_PREDICT_TF32 || (a->half && type == FO_PREDICT_BF16);
	if (whole && (format == FO_PREDICT_FORMAT_SPLIT || format == FO_PREDICT_FORMAT_ALL_BF16))
		return "only bf16 weights have split masters or none";
	return NULL;
}

uint32_t fo_plan_agains_of(const struct fo_plan_framework *f, double pp)
{
	return pp > 1 && f->again_piped ? f->again_piped : f->again;
}

/* Flatout's own check of a mesh. */
static const char *executor_refuses(const struct fo_plan_asked *a, const struct fo_predict_layout *l)
{
	struct fo_lowering run = { .seq = (int64_t)a->base.job.seq,
				   .rows = (int64_t)l->micro_batch,
				   .micro_batches = (int64_t)l->micro_batches,
				   .mode = FO_MODE_TRAIN };
	fo_plan_mesh_of(l, &run.mesh);
	if (l->pp > 1) {
		run.pass.pp = 1 + (int64_t)fo_predict_pp_kind(l);
		run.pass.pp_chunks = l->chunks > 1 ? (int64_t)l->chunks : 0;
	}
	run.pass.merge_qkv = run.pass.merge_gate_up = 1;
	run.pass.cp = l->cp > 1 ? FO_CP_RING : 0;
	if (l->tp > 1)
		run.pass.tp = l->sp ? FO_TP_SEQUENCE : FO_TP_REPLICATED;
	run.pass.zero = (int)l->zero;
	if (fo_mesh_legal(a->model, &run) == FO_OK)
		return NULL;
	fo_err_clear();
	return "its executor refuses such a mesh";
}

/* All rules but those of number types and formats. */
static const char *division_wrong(const struct fo_plan_asked *a, const struct fo_predict_layout *l)
{
	const struct fo_plan_framework *f = a->framework;
	const struct fo_predict_model *m = &a->base.job.model;
	double rest = l->devices / (l->tp * l->cp * l->pp), ranks = rest * l->cp;
	if (!divides(l->devices, l->tp * l->cp * l->pp))
		return "tp x cp x pp does not divide the devices";
	if (!divides(m->heads, l->tp) || !divides(fmax(m->kv_heads, l->tp), fmin(m->kv_heads, l->tp)))
		return "tp does not divide the heads";
	const char *missing = axis_missing(f, l);
	if (missing)
		return missing;
	if (l->cp > 1 && !divides(a->base.job.seq, 2 * l->cp)) /* halves of both ends balance causal attention */
		return "2 cp does not divide the sequence";
	if (l->pp * l->chunks > m->layers)
		return "more stages and chunks than layers";
	if (l->pp > 1 && f->pp_even && !divides(m->layers, l->pp) && !fo_plan_accounts(a, l))
		return "pp divides neither the layers nor, with embedding and loss, layers + 2";
	if (l->chunks > f->chunks)
		return f->chunks > 1 ? "so many chunks of a stage are more than plan knows for this framework"
				     : "it does not interleave chunks";
	if (l->chunks > 1 && (l->pp <= 1 || !divides(m->layers, l->pp * l->chunks)))
		return "chunks need stages that divide the layers";
	if (l->chunks > 1 && !divides(l->micro_batches, l->pp))
		return "interleaving needs micro-batches that are a multiple of the stages";
	if ((l->schedule == FO_PREDICT_INTERLEAVED) != (l->chunks > 1))
		return "chunks are what an interleaved schedule has";
	if (l->pp > 1 && !(f->schedules & BIT(l->schedule)))
		return "it has no such schedule of a pipeline";
	if (l->pp <= 1 && l->schedule != FO_PREDICT_1F1B)
		return "there is no pipeline to schedule";
	missing = placed_wrong(a, l);
	if (missing)
		return missing;
	if (!divides(a->global_batch, rest * l->micro_batch) ||
	    l->micro_batches != a->global_batch / (rest * l->micro_batch))
		return "micro-batches do not divide the batch";
	missing = zero_missing(f, l);
	if (missing)
		return missing;
	if (l->zero > 0 && ranks <= 1)
		return "one rank has nobody to share states with";
	if (l->shard > 0 && !divides(l->shard, l->cp))
		return "states are shared by whole groups of context parallelism";
	if (l->shard > 0 &&
	    (l->zero <= 0 || !f->shards_part || !divides(ranks, l->shard) || l->shard <= 1 || l->shard >= ranks))
		return "states are shared by a part of the ranks that divides them";
	if (l->ep > 1 && (!divides(m->experts, l->ep) || !divides(l->devices / l->pp, l->ep)))
		return "ep does not divide the experts";
	if (l->sp && l->tp <= 1)
		return "sequence parallelism is beside tensor parallelism";
	if (f->sp_always && l->tp > 1 && !l->sp)
		return "it has no tensor parallelism without sequence parallelism";
	return f->executes && a->model ? executor_refuses(a, l) : NULL;
}

const char *fo_plan_illegal(const struct fo_plan_asked *a, const struct fo_predict_layout *l)
{
	const char *wrong = division_wrong(a, l);
	if (!wrong)
		wrong = numbers_wrong(a, l);
	return wrong ? wrong : front_wrong(a, l);
}

int fo_plan_parts(const struct fo_predict_layout *l, double ranks)
{
	int again = (l->recompute > 0 && l->recompute < 1) || l->again_stages > 0;
	bool bubble = l->schedule == FO_PREDICT_ZERO_BUBBLE || l->schedule == FO_PREDICT_ZB_H2;
	return 4 * (l->pp > 1) + 3 * (l->cp > 1) + 3 * (l->tp > 1) + 2 * (l->ep > 1) + 2 * (l->chunks > 1) +
	       2 * bubble + (l->schedule == FO_PREDICT_ZB_H2) + (l->shard > 0 && l->shard < ranks) + again +
	       (l->tp > 1 && !l->sp) + (l->tp_overlap > 0) + l->stages_near + l->keeps_weights + (l->type > 0) +
	       (l->format != FO_PREDICT_FORMAT_JOB);
}

/* ---- every division ---- */

/* The divisors of n, ascending; their number. */
enum { DIVISORS = 512 };
static int divisors(double n, double *out)
{
	int count = 0;
	double large[DIVISORS];
	int larges = 0;
	for (double d = 1; d * d <= n && count + larges < DIVISORS; d++) {
		if (fmod(n, d) != 0)
			continue;
		out[count++] = d;
		if (d * d < n)
			large[larges++] = n / d;
	}
	while (larges)
		out[count++] = large[--larges];
	return count;
}

static bool may(double fixed, double value) { return fixed == 0 || fixed == value; }

/* One division into axes, of which all others follow. */
struct axes {
	double tp, cp, pp, ep;
};
struct walk {
	const struct fo_plan_asked *a;
	struct fo_predict_layout l;
	bool (*fn)(void *ctx, const struct fo_predict_layout *l, int again);
	void *ctx;
	bool on;
};

static void put(struct walk *w, int again)
{
	const double share = fo_plan_again_share[again];
	w->l.recompute = share;
	if (w->a->framework->pp_even && share > 0 && share < 1) {
		/* Whole layers of each chunk, of which the first and the last stage may have one less; none and all of
		 * them are divisions of their own. */
		double of = ceil(w->a->base.job.model.layers / (w->l.pp * w->l.chunks)), n = round(share * of);
		if (n < 1 || n >= of)
			return;
		w->l.recompute = n / of;
	}
	w->l.recompute_op = again == FO_PLAN_AGAIN_OP;
	w->l.again_stages = again == FO_PLAN_AGAIN_FRONT;
	do
		w->on = w->fn(w->ctx, &w->l, again);
	while (again == FO_PLAN_AGAIN_FRONT && w->on && ++w->l.again_stages < w->l.pp);
	w->l.again_stages = 0;
}

static void walk_again(struct walk *w)
{
	const struct fo_plan_fixed *f = &w->a->fixed;
	for (int i = 0; i < FO_PLAN_AGAINS && w->on; i++)
		if (fo_plan_agains_of(w->a->framework, w->l.pp) & BIT(i) && (f->again < 0 || f->again == i) &&
		    (i != FO_PLAN_AGAIN_FRONT || has_front(w->a, &w->l)))
			put(w, i);
}

static void walk_formats(struct walk *w)
{
	const uint32_t formats = fo_plan_formats(w->a);
	for (int i = 0; i < FO_PREDICT_FORMATS && w->on; i++) {
		w->l.format = (enum fo_predict_format)i;
		if (formats & BIT(i) && !numbers_wrong(w->a, &w->l))
			walk_again(w);
	}
	w->l.format = FO_PREDICT_FORMAT_JOB;
}

static bool chosen(int fixed, int value) { return fixed < 0 || fixed == value; }

/* How long gathered weights stay. */
static void walk_kept(struct walk *w)
{
	const struct fo_plan_asked *a = w->a;
	for (int keeps = 0; keeps <= (w->l.zero >= 3) && w->on; keeps++) {
		w->l.keeps_weights = keeps;
		if (chosen(a->fixed.keeps_weights, keeps) && !division_wrong(a, &w->l))
			walk_formats(w);
	}
	w->l.keeps_weights = false;
}

static void walk_states(struct walk *w, const double *shard, int shards)
{
	const struct fo_plan_asked *a = w->a;
	for (int zero = 0; zero <= 3 && w->on; zero++) {
		if (a->fixed.zero >= 0 && a->fixed.zero != zero)
			continue;
		w->l.zero = zero;
		for (int i = -1; i < shards && w->on; i++) {
			w->l.shard = i < 0 ? 0 : shard[i];
			bool all = i < 0 && (!zero || may(a->fixed.shard, shard[shards - 1]));
			if (!all && (i < 0 || !may(a->fixed.shard, shard[i])))
				continue;
			walk_kept(w);
		}
	}
}

/* What hides and where stages are. */
static void walk_places(struct walk *w, const double *shard, int shards)
{
	const struct fo_plan_asked *a = w->a;
	for (int hides = 0; hides <= (w->l.tp > 1 && w->l.sp) && w->on; hides++)
		for (int near = 0; near <= (w->l.pp > 1) && w->on; near++) {
			if (!chosen(a->fixed.tp_overlap, hides) || !chosen(a->fixed.stages_near, near))
				continue;
			w->l.tp_overlap = hides;
			w->l.stages_near = near;
			if (!placed_wrong(a, &w->l))
				walk_states(w, shard, shards);
		}
}

static void walk_schedules(struct walk *w, const double *shard, int shards, const double *chunk, int chunks)
{
	const struct fo_plan_asked *a = w->a;
	for (int i = 0; i < chunks && w->on; i++)
		for (int s = 0; s < FO_PREDICT_SCHEDULES && w->on; s++) {
			if (s == FO_PREDICT_GPIPE || !may(a->fixed.chunks, chunk[i]) || !chosen(a->fixed.schedule, s) ||
			    (s == FO_PREDICT_INTERLEAVED) != (chunk[i] > 1) || (w->l.pp <= 1 && s != FO_PREDICT_1F1B))
				continue;
			w->l.chunks = chunk[i];
			w->l.schedule = (enum fo_predict_schedule)s;
			for (int sp = w->l.tp > 1; sp >= 0 && w->on; sp--) {
				w->l.sp = sp;
				walk_places(w, shard, shards);
			}
		}
}

static void walk_types(struct walk *w, const double *shard, int shards, const double *chunk, int chunks)
{
	const enum fo_predict_type own = w->a->base.job.type;
	const uint32_t types = fo_plan_types(w->a);
	for (int i = 0; i < FO_PREDICT_TYPES && w->on; i++) {
		w->l.type = i == (int)own ? 0 : 1 + i;
		if (types & BIT(i))
			walk_schedules(w, shard, shards, chunk, chunks);
	}
}

static void walk_axes(struct walk *w, const struct axes *x)
{
	const struct fo_plan_asked *a = w->a;
	double rest = a->devices / (x->tp * x->cp * x->pp), local = a->global_batch / rest;
	double shard[DIVISORS], batch[DIVISORS], chunk[DIVISORS], layers = a->base.job.model.layers;
	if (local != floor(local))
		return;
	int shards = divisors(rest * x->cp, shard), batches = divisors(local, batch),
	    chunks = x->pp > 1 && divides(layers, x->pp) ? divisors(layers / x->pp, chunk) : 1;
	if (chunks == 1)
		chunk[0] = 1;
	w->l = (struct fo_predict_layout){ .devices = a->devices,
					   .tp = x->tp,
					   .cp = x->cp,
					   .pp = x->pp,
					   .ep = x->ep,
					   .global_batch = a->global_batch };
	for (int i = 0; i < batches && w->on; i++) {
		if (!may(a->fixed.micro_batch, batch[i]))
			continue;
		w->l.micro_batch = batch[i];
		w->l.micro_batches = local / batch[i];
		walk_types(w, shard, shards, chunk, chunks);
	}
}

/* May an axis be of this degree beside others of so many devices? */
static bool may_divide(const struct fo_plan_asked *a, double fixed, double degree, double beside)
{
	return may(fixed, degree) && divides(a->devices, degree * beside);
}

/* All divisions into axes, in a fixed order; the caller frees *out. */
static size_t axes_of(const struct fo_plan_asked *a, struct axes **out)
{
	double d[DIVISORS];
	const struct fo_predict_model *m = &a->base.job.model;
	const struct fo_plan_fixed *f = &a->fixed;
	int n = divisors(a->devices, d);
	size_t count = 0, cap = 64;
	struct axes *list = fo_xmalloc(cap * sizeof *list);
	/* One axis after the other: a number of devices with many divisors has millions of quadruples. */
	for (int t = 0; t < n; t++) {
		if (!may_divide(a, f->tp, d[t], 1) || d[t] > m->heads || (d[t] > 1 && !a->framework->tp))
			continue;
		for (int c = 0; c < n; c++) {
			if (!may_divide(a, f->cp, d[c], d[t]) || (d[c] > 1 && !a->framework->cp))
				continue;
			for (int p = 0; p < n; p++) {
				if (!may_divide(a, f->pp, d[p], d[t] * d[c]) || d[p] > m->layers ||
				    (d[p] > 1 && !a->framework->pp))
					continue;
				for (int e = 0; e < (m->experts > 0 ? n : 1); e++) {
					if (!may(f->ep, d[e]) || (d[e] > 1 && !a->framework->ep))
						continue;
					if (count == cap)
						list = fo_xrealloc(list, (cap *= 2) * sizeof *list);
					list[count++] = (struct axes){ d[t], d[c], d[p], d[e] };
				}
			}
		}
	}
	*out = list;
	return count;
}

void fo_plan_each(const struct fo_plan_asked *a, bool (*fn)(void *, const struct fo_predict_layout *, int), void *ctx)
{
	struct axes *x;
	size_t n = axes_of(a, &x);
	struct walk w = { .a = a, .fn = fn, .ctx = ctx, .on = true };
	for (size_t i = 0; i < n && w.on; i++)
		walk_axes(&w, &x[i]);
	free(x);
}

/* ---- the best ---- */

/* The fastest of those with so many parts; seconds 0: none. */
enum { PARTS_MOST = 40 };
struct simple {
	double seconds;
	struct fo_predict_layout layout;
	int again;
};
struct found {
	struct fo_plan_point best, smallest;
	double fastest; /* seconds; best is within NEAR of it */
	struct simple simple[PARTS_MOST];
	double *tie; /* seconds of all that may tie with the fastest of these axes */
	size_t ties, room;
	bool any;
	int64_t legal, timed, too_large;
};
struct search {
	const struct fo_plan_asked *a;
	struct axes *axes;
	struct found *found; /* of each division into axes */
};
struct here {
	const struct fo_plan_asked *a;
	struct found *f;
	double memory;
	struct fo_predict_shared shared;
};

/* Two that take the same time to a thousandth: the simpler is the better one. */
#define NEAR 1e-3
static void take_best(struct found *f, const struct fo_plan_point *p)
{
	f->fastest = f->any ? fmin(f->fastest, p->step.seconds) : p->step.seconds;
	const double near = (1 + NEAR) * f->fastest;
	const bool simpler = p->parts < f->best.parts ||
			     (p->parts == f->best.parts && p->step.bytes < f->best.step.bytes);
	if (!f->any || f->best.step.seconds > near || (p->step.seconds <= near && simpler))
		f->best = *p;
	f->any = true;
}

/* Keeps the time of what may tie with the best of these axes, as far as it is known now. */
static void keep_tie(struct found *f, double seconds)
{
	if (seconds > (1 + FO_PLAN_TIE) * (1 + NEAR) * f->fastest)
		return;
	if (f->ties == f->room)
		f->tie = fo_xrealloc(f->tie, (f->room = f->room ? 2 * f->room : 64) * sizeof *f->tie);
	f->tie[f->ties++] = seconds;
}

/* Fills in the step of what fits, as far as is known. */
static bool within(struct here *h, struct fo_plan_point *p)
{
	const struct fo_plan_asked *a = h->a;
	switch (a->programs ? fo_plan_programs_know(a, p) : FO_PLAN_BOUNDED) {
	case FO_PLAN_KNOWN:
		return fo_predict_point_about(&a->base, &p->layout, &h->shared, INFINITY, &p->step) &&
		       fo_plan_programs_fit(a, p);
	case FO_PLAN_OPEN: return fo_predict_point_about(&a->base, &p->layout, &h->shared, h->memory, &p->step);
	default: return fo_predict_point_within(&a->base, &p->layout, &h->shared, h->memory, &p->step);
	}
}

static bool look(void *ctx, const struct fo_predict_layout *l, int again)
{
	struct here *h = ctx;
	struct found *f = h->f;
	struct fo_plan_point p = { .layout = *l, .again = (enum fo_plan_again)again };
	f->legal++;
	if (!within(h, &p)) {
		if (!p.step.wrong && (!f->too_large++ || p.step.bytes < f->smallest.step.bytes))
			f->smallest = p;
		return true;
	}
	f->timed++;
	double rest = l->devices / (l->tp * l->cp * l->pp);
	p.parts = fo_plan_parts(l, rest * l->cp);
	p.tokens_s = p.step.tokens_s * l->devices;
	take_best(f, &p);
	keep_tie(f, p.step.seconds);
	struct simple *s = &f->simple[p.parts < PARTS_MOST ? p.parts : PARTS_MOST - 1];
	if (!(s->seconds > 0) || p.step.seconds < s->seconds)
		*s = (struct simple){ p.step.seconds, *l, again };
	return true;
}

static void search_axes(void *ctx, size_t i)
{
	struct search *s = ctx;
	struct here h = { .a = s->a, .f = &s->found[i], .memory = fo_plan_room(s->a) };
	struct walk w = { .a = s->a, .fn = look, .ctx = &h, .on = true };
	walk_axes(&w, &s->axes[i]);
}

static void keep(struct fo_plan *o, const struct fo_plan_point *p)
{
	int at = o->points;
	while (at > 0 && p->step.seconds < o->point[at - 1].step.seconds)
		at--;
	if (at == FO_PLAN_SHOWN)
		return;
	int move = (o->points < FO_PLAN_SHOWN ? o->points++ : FO_PLAN_SHOWN - 1) - at;
	memmove(&o->point[at + 1], &o->point[at], (size_t)move * sizeof *p);
	o->point[at] = *p;
}

static int64_t count_ties(const struct fo_plan *o, const struct found *f)
{
	int64_t n = 0;
	for (size_t i = 0; i < f->ties; i++)
		n += fo_plan_ties(o, f->tie[i]);
	return n;
}

/* The simplest of all divisions that tie with the fastest; it may be none of the best of its axes. */
static void name_simplest(struct fo_plan *o, const struct fo_plan_asked *a, const struct found *found, size_t n)
{
	const struct simple *take = NULL;
	for (int parts = 0; parts < PARTS_MOST && !take; parts++)
		for (size_t i = 0; i < n; i++) {
			const struct simple *s = &found[i].simple[parts];
			if (s->seconds > 0 && fo_plan_ties(o, s->seconds) && (!take || s->seconds < take->seconds))
				take = s;
		}
	if (!take)
		return;
	struct fo_plan_point p = { .layout = take->layout, .again = (enum fo_plan_again)take->again };
	for (o->named = 0; o->named < o->points; o->named++)
		if (fo_plan_same(&o->point[o->named].layout, &p.layout))
			return;
	fo_predict_point(&a->base, &p.layout, &p.step);
	if (a->programs)
		(void)fo_plan_programs_fit(a, &p); /* it was looked at before: this takes its planned bytes */
	p.parts = fo_plan_parts(&p.layout, p.step.dp * p.layout.cp);
	p.tokens_s = p.step.tokens_s * p.layout.devices;
	if (o->points == FO_PLAN_SHOWN)
		o->points--; /* it is slower than the one to take, or no slower than a tie */
	keep(o, &p);
	for (o->named = 0; !fo_plan_same(&o->point[o->named].layout, &p.layout);)
		o->named++;
}

/* ---- nothing is legal ---- */

static bool stop(void *ctx, const struct fo_predict_layout *l, int again)
{
	(void)l;
	(void)again;
	*(bool *)ctx = true;
	return false;
}

static double part_of(double n)
{
	if (n <= 1)
		return 0;
	return fmod(n, 2) == 0 ? n / 2 : exp2(ceil(log2(n)) - 1);
}

double fo_plan_part_of(double per_node, double devices)
{
	return devices > per_node ? per_node * part_of(devices / per_node) : part_of(devices);
}

bool fo_plan_possible(const struct fo_plan_asked *a)
{
	bool any = false;
	fo_plan_each(a, stop, &any);
	return any;
}

/* The largest part of the devices that has a division; 0: none. */
static double part_with_division(const struct fo_plan_asked *asked)
{
	struct fo_plan_asked a = *asked;
	do
		a.devices = fo_plan_part_of(a.base.job.machine.per_node, a.devices);
	while (a.devices >= 1 && !fo_plan_possible(&a));
	return a.devices;
}

static fo_status refuse_batch(const struct fo_plan_asked *a)
{
	const double each = fmax(1, round(a->global_batch / a->devices)), part = part_with_division(a);
	char count[32] = "one", parts[96] = "";
	if (each > 1)
		snprintf(count, sizeof count, "%.15g", each);
	if (part >= 1)
		snprintf(parts, sizeof parts, "; %.15g have a division on %.15g of the devices", a->global_batch, part);
	return fo_hint(fo_fail(FO_EARG, "no division of %.15g device%s for a batch of %.15g sequence%s is legal for %s",
			       a->devices, fo_plural(a->devices), a->global_batch, fo_plural(a->global_batch),
			       a->framework->title),
		       "a batch of %.15g sequence%s has %s for each device%s", each * a->devices,
		       fo_plural(each * a->devices), count, parts);
}

/* Why no division has the types and formats that were asked for, where others have one; NULL: that is not why. */
static const char *numbers_refused(const struct fo_plan_asked *asked)
{
	struct fo_plan_asked own = *asked;
	const uint32_t types = fo_plan_types(asked), formats = fo_plan_formats(asked);
	const char *wrong = NULL;
	own.types = own.formats = 0;
	own.fixed.zero = -1;
	if (!fo_plan_possible(&own))
		return NULL;
	for (int t = 0; t < FO_PREDICT_TYPES; t++)
		for (int f = 0; f < FO_PREDICT_FORMATS && !wrong; f++) {
			struct fo_predict_layout l = { .format = (enum fo_predict_format)f,
						       .zero = asked->fixed.zero < 0 ? 1 : asked->fixed.zero };
			l.type = t == (int)asked->base.job.type ? 0 : 1 + t;
			if (types & BIT(t) && formats & BIT(f))
				wrong = numbers_wrong(asked, &l);
		}
	return wrong;
}

static fo_status refuse(const struct fo_plan_asked *a)
{
	const struct fo_predict_model *m = &a->base.job.model;
	const struct fo_plan_fixed *f = &a->fixed;
	double model = fmax(1, f->tp) * fmax(1, f->cp) * fmax(1, f->pp);
	if (!divides(a->devices, model))
		return fo_hint(fo_fail(FO_EARG, "%.15g device%s not divisible by the fixed degrees, %.15g", a->devices,
				       fo_word(a->devices, " is", "s are"), model),
			       "%.15g devices are", fmax(1, ceil(a->devices / model)) * model);
	if (f->tp > 0 && !divides(m->heads, f->tp))
		return fo_fail(FO_EARG, "tp %.15g does not divide the model's %.15g heads", f->tp, m->heads);
	struct fo_predict_layout fixed = { .tp = f->tp, .cp = f->cp, .pp = f->pp, .ep = f->ep };
	const char *missing = axis_missing(a->framework, &fixed);
	if (missing)
		return fo_fail(FO_EARG, "%s: %s", a->framework->title, missing);
	double parts = fmax(1, f->pp) * fmax(1, f->chunks);
	bool accounts = f->chunks <= 1 && fo_plan_accounts(a, &fixed);
	if (parts > 1 && (a->framework->pp_even || f->chunks > 1) && !accounts && !divides(m->layers, parts)) {
		double pp = f->pp;
		fo_status st = fo_fail(FO_EARG,
				       "%.15g x %.15g pipeline stages and chunks do not divide the model's %.15g "
				       "layers for %s",
				       fmax(1, f->pp), fmax(1, f->chunks), m->layers, a->framework->title);
		while (pp > 1 && (!divides(m->layers, pp * fmax(1, f->chunks)) || !divides(a->devices, pp)))
			pp--;
		return pp > 1 ? fo_hint(st, "pp %.15g is the nearest that works", pp) : st;
	}
	if (f->chunks > a->framework->chunks)
		return fo_fail(FO_EARG, "chunks %.15g are more than plan knows for %s: %.15g is the most", f->chunks,
			       a->framework->title, a->framework->chunks);
	if (f->zero >= 0 && !(a->framework->zero & BIT(f->zero)))
		return fo_fail(FO_EARG, "%s has no ZeRO %d", a->framework->title, f->zero);
	if (f->again >= 0 && !(fo_plan_agains_of(a->framework, f->pp) & BIT(f->again)))
		return fo_fail(FO_EARG, "%s has no recomputation of the kind '%s'%s that plan knows",
			       a->framework->title, fo_plan_again_name[f->again], f->pp > 1 ? " with a pipeline" : "");
	if (f->schedule >= 0 && f->pp != 1 && !(a->framework->schedules & BIT(f->schedule)))
		return fo_fail(FO_EARG, "plan knows no schedule of %s of the kind that is fixed", a->framework->title);
	const char *numbers = numbers_refused(a);
	if (numbers)
		return fo_hint(fo_fail(FO_EARG, "%s: %s", a->framework->title, numbers),
			       "leave out what was asked of number type, states or ZeRO stage");
	return refuse_batch(a);
}

fo_status fo_plan_search_once(struct fo_plan *o, const struct fo_plan_asked *a)
{
	int64_t begin = fo_now_ns();
	struct search s = { .a = a };
	size_t n = axes_of(a, &s.axes);
	s.found = fo_xmalloc((n + 1) * sizeof *s.found);
	memset(s.found, 0, (n + 1) * sizeof *s.found);
	*o = (struct fo_plan){ 0 };
	fo_thread_share(n, search_axes, &s);
	for (size_t i = 0; i < n; i++) {
		struct found *f = &s.found[i];
		o->legal += f->legal;
		o->timed += f->timed;
		if (f->too_large && (!o->too_large || f->smallest.step.bytes < o->smallest.step.bytes))
			o->smallest = f->smallest;
		o->too_large += f->too_large;
		if (f->any)
			keep(o, &f->best);
	}
	for (size_t i = 0; i < n; i++) { /* before another point than the fastest is named */
		if (o->points)
			o->ties += count_ties(o, &s.found[i]);
		free(s.found[i].tie);
	}
	if (o->points)
		name_simplest(o, a, s.found, n);
	free(s.found);
	free(s.axes);
	o->seconds = 1e-9 * (double)(fo_now_ns() - begin);
	if (!o->legal)
		return refuse(a);
	return o->points ? FO_OK : fo_fail(FO_ENOMEM, "no division fits");
}
