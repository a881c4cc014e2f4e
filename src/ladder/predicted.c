/* Changes of settings, each tried alone and on top of those before it. */
#include "ladder/predicted.h"

#include "base/mem.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const fo_rung_state_name[FO_RUNG_STATES] = {
	"taken", "loses", "does not fit", "not told apart", "nothing to change", "not possible", "beside",
};
const char fo_predicted_unknown[] =
	"weights gathered several layers ahead, page-locked memory of the loader, the first layer gathered before the "
	"batch, early stop of recomputation, the time at which fp8 scales are computed, CPU affinity, clock boosts of "
	"GPU and CPU";

/* ---- a job with some settings changed ---- */

struct tried {
	struct fo_job job;
	struct fo_job_asked asked;
	struct fo_predict_step step;
	bool fits, ok;
};
struct climb {
	struct fo_predicted_ladder *l;
	const struct fo_cluster *c;
	const struct fo_job_machine_given *given;
	struct tried base, top;
	bool batch_fixed; /* somebody states the batch of a step */
};

static double memory_of(const struct tried *t) { return t->asked.job.machine.memory_bytes; }

/* Does the framework run it? What was read as it is is not asked. */
static bool is_legal(const struct climb *k, const struct tried *t)
{
	struct fo_plan_asked a = { .base = t->asked.base,
				   .framework = k->l->framework,
				   .devices = t->asked.shape.devices,
				   .global_batch = t->asked.shape.global_batch };
	struct fo_predict_layout l = t->asked.layout;
	l.chunks = fmax(1, l.chunks);
	l.ep = fmax(1, l.ep);
	if (l.devices / (l.tp * l.pp) <= 1)
		l.zero = 0;
	if (l.tp_overlap < 0 || l.tp <= 1) /* said to be off, or about nothing */
		l.tp_overlap = 0;
	return !fo_plan_illegal(&a, &l);
}

static fo_status look(const struct climb *k, struct tried *t)
{
	t->ok = t->fits = false;
	FO_TRY(fo_job_ask(&t->job, k->c, k->given, &t->asked));
	fo_predict_point(&t->asked.base, &t->asked.layout, &t->step);
	if (t->step.wrong)
		return fo_fail(FO_EARG, "%s", t->step.wrong);
	t->ok = true;
	t->fits = fo_predict_upper_bytes(&t->step) <= memory_of(t);
	return FO_OK;
}

static void gain_of(const struct tried *a, const struct tried *b, struct fo_predict_gain *out)
{
	fo_predict_gain_of(&a->asked.base, &a->asked.layout, &b->asked.base, &b->asked.layout, out);
}

static const struct fo_predict_gain no_gain = { .times = NAN, .range = { NAN, NAN } };

/* ---- the rungs ---- */

struct setting {
	enum fo_job_setting s;
	double number;
};
enum { SETTINGS = 4, TRIES = 64 };
struct attempt {
	struct setting set[SETTINGS];
	int sets;
};
struct attempts {
	struct attempt v[TRIES];
	int n;
};

static void add(struct attempts *a, const struct setting *set, int sets)
{
	if (a->n == TRIES || sets > SETTINGS)
		return;
	memcpy(a->v[a->n].set, set, (size_t)sets * sizeof *set);
	a->v[a->n++].sets = sets;
}

static double or_one(const struct fo_job *job, enum fo_job_setting s) { return fmax(1, fo_job_or(job, s, 1)); }

/* Milder kinds of recomputation than the job's, and its own. */
static int milder(const struct fo_job *job, double out[3])
{
	double now = fo_job_or(job, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL);
	int n = 0;
	for (int r = FO_JOB_RECOMPUTE_NONE; r <= FO_JOB_RECOMPUTE_FULL; r++)
		if (r < now)
			out[n++] = r;
	return n;
}

static void again_attempts(const struct climb *k, const struct fo_job *job, struct attempts *a)
{
	double mode[3];
	(void)k;
	for (int i = 0, n = milder(job, mode); i < n; i++)
		add(a, &(struct setting){ FO_JOB_RECOMPUTE, mode[i] }, 1);
}

static bool is_local(const struct climb *k, const struct fo_job *job)
{
	return !k->batch_fixed && fo_job_known(job, FO_JOB_LOCAL_BATCH);
}

static double batch_of(const struct climb *k, const struct fo_job *job)
{
	return or_one(job, is_local(k, job) ? FO_JOB_LOCAL_BATCH : FO_JOB_MICRO_BATCH);
}

/* Settings with a batch: a step is one micro-batch, as the document's are, unless somebody states its batch. */
static void add_batch(struct attempts *a, bool local, double size, const struct setting *set, int sets)
{
	struct setting all[SETTINGS];
	memcpy(all, set, (size_t)sets * sizeof *set);
	if (local)
		all[sets++] = (struct setting){ FO_JOB_LOCAL_BATCH, size };
	all[sets++] = (struct setting){ FO_JOB_MICRO_BATCH, size };
	add(a, all, sets);
}

/* Less tensor parallelism, with any recomputation, and with the local batch as it is, or so small that a step keeps its
 * batch. */
static void tp_attempts(const struct climb *k, const struct fo_job *job, struct attempts *a)
{
	double now = or_one(job, FO_JOB_TP), batch = batch_of(k, job);
	for (double tp = 1; tp < now; tp *= 2) {
		double least = fmax(1, floor(batch * tp / now));
		for (double size = batch; size > 0; size = size > least ? least : 0)
			for (int r = FO_JOB_RECOMPUTE_NONE; r <= FO_JOB_RECOMPUTE_FULL; r++)
				add_batch(a, is_local(k, job), size,
					  (struct setting[]){ { FO_JOB_TP, tp }, { FO_JOB_RECOMPUTE, r } }, 2);
	}
}

static void async_attempts(const struct climb *k, const struct fo_job *job, struct attempts *a)
{
	(void)k;
	if (or_one(job, FO_JOB_TP) > 1)
		add(a, &(struct setting){ FO_JOB_TP_OVERLAP, 1 }, 1);
}

/* One replica in each node or rack, or in a few of them. */
static void hsdp_attempts(const struct climb *k, const struct fo_job *job, struct attempts *a)
{
	for (double replicas = k->c->nodes; replicas > 1; replicas = fmod(replicas, 2) == 0 ? replicas / 2 : 1)
		if (replicas != fo_job_or(job, FO_JOB_DP_REPLICATE, 1))
			add(a, (struct setting[]){ { FO_JOB_DP_REPLICATE, replicas }, { FO_JOB_DP_SHARD, -1 } }, 2);
}

/* Other sequences at once, with any recomputation. */
static void batch_attempts(const struct climb *k, const struct fo_job *job, struct attempts *a)
{
	static const double size[] = { 1, 2, 3, 4, 6, 8, 12, 16 };
	for (size_t i = 0; i < sizeof size / sizeof *size; i++)
		for (int r = FO_JOB_RECOMPUTE_NONE; r <= FO_JOB_RECOMPUTE_FULL; r++)
			add_batch(a, is_local(k, job), size[i], &(struct setting){ FO_JOB_RECOMPUTE, r }, 1);
}

static const struct rung {
	const char *id, *title, *section;
	struct setting set[2]; /* where `attempts` is NULL */
	int sets;
	bool titan; /* only torchtitan has it */
	void (*attempts)(const struct climb *k, const struct fo_job *job, struct attempts *a);
	bool beside;
} rung[] = {
	{ .id = "qkv",
	  .title = "one product for queries, keys and values",
	  .section = "1.1",
	  .set = { { FO_JOB_MERGED_QKV, 1 } },
	  .sets = 1 },
	{ .id = "optimizer",
	  .title = "fused optimizer",
	  .section = "1.2",
	  .set = { { FO_JOB_OPTIMIZER_FUSED, 1 } },
	  .sets = 1 },
	{ .id = "compile",
	  .title = "compiled model and loss",
	  .section = "1.3",
	  .set = { { FO_JOB_COMPILE, 1 }, { FO_JOB_COMPILE_LOSS, 1 } },
	  .sets = 2,
	  .titan = true },
	{ .id = "bf16",
	  .title = "weights and moments in bf16",
	  .section = "2.1",
	  .set = { { FO_JOB_PARAM_DTYPE, FO_JOB_BF16 } },
	  .sets = 1,
	  .titan = true },
	{ .id = "in-backward",
	  .title = "optimizer in backward",
	  .section = "2.2",
	  .set = { { FO_JOB_OPTIMIZER_IN_BACKWARD, 1 } },
	  .sets = 1,
	  .titan = true },
	{ .id = "reduce",
	  .title = "gradients reduced in bf16",
	  .section = "2.3",
	  .set = { { FO_JOB_GRAD_REDUCE, FO_JOB_BF16 } },
	  .sets = 1 },
	{ .id = "recompute", .title = "less recomputation", .section = "2.4", .attempts = again_attempts },
	{ .id = "tp", .title = "less tensor parallelism", .section = "2.5", .attempts = tp_attempts },
	{ .id = "async-tp",
	  .title = "asynchronous tensor parallelism",
	  .section = "2.5.1",
	  .attempts = async_attempts },
	{ .id = "hsdp", .title = "one replica in a node or rack", .section = "2.7", .attempts = hsdp_attempts },
	{ .id = "prefetch",
	  .title = "the next layer's weights gathered ahead",
	  .section = "3.1",
	  .set = { { FO_JOB_PREFETCH, 1 } },
	  .sets = 1 },
	{ .id = "batch",
	  .title = "a batch that fills the memory",
	  .section = "checklist 3",
	  .attempts = batch_attempts },
	{ .id = "fp8",
	  .title = "linear layers in fp8",
	  .section = "3.4",
	  .set = { { FO_JOB_FP8, FO_JOB_FP8_TENSORWISE } },
	  .sets = 1,
	  .beside = true },
};
enum { RUNGS = sizeof rung / sizeof *rung };
_Static_assert(sizeof rung / sizeof *rung <= FO_PREDICTED_RUNGS, "rungs of the result");

static void attempts_of(const struct climb *k, const struct rung *r, const struct fo_job *job, struct attempts *a)
{
	bool titan = job->form && !strncmp(job->form->id, "torchtitan", 10);
	a->n = 0;
	if (r->titan && !titan)
		return;
	if (r->attempts) {
		r->attempts(k, job, a);
		return;
	}
	for (int i = 0; i < r->sets; i++)
		if (!fo_job_is(job, r->set[i].s, r->set[i].number)) {
			add(a, r->set, r->sets);
			return;
		}
}

/* Each new value beside the old one: "tp 8 -> 1, recomputation full -> selective". */
static const char *change_text(struct fo_predicted_ladder *l, struct fo_job *was, struct fo_job *is,
			       const struct attempt *a)
{
	const char *text = NULL;
	for (int i = 0; i < a->sets; i++) {
		enum fo_job_setting s = a->set[i].s;
		char name[40];
		bool told = s == FO_JOB_MICRO_BATCH && i > 0 && a->set[i - 1].s == FO_JOB_LOCAL_BATCH;
		if (told || fo_job_is(was, s, a->set[i].number))
			continue;
		size_t n = 0;
		for (const char *p = fo_job_setting_row[s].id; *p && n + 1 < sizeof name; p++)
			name[n++] = *p == '_' ? '-' : (char)tolower((unsigned char)*p);
		name[n] = 0;
		const char *before = fo_job_known(was, s) ? fo_job_text(was, s) : "not stated";
		const char *one = fo_arena_printf(&l->arena, "%s %s -> %s", name, before, fo_job_text(is, s));
		text = text ? fo_arena_printf(&l->arena, "%s, %s", text, one) : one;
	}
	return text;
}

/* Does the job have all of it? */
static bool is_idle(const struct fo_job *job, const struct attempt *a)
{
	for (int i = 0; i < a->sets; i++)
		if (!fo_job_is(job, a->set[i].s, a->set[i].number))
			return false;
	return true;
}

static void apply(struct fo_job *job, const struct attempt *a)
{
	for (int i = 0; i < a->sets; i++) {
		fo_job_set(job, a->set[i].s, a->set[i].number);
		if (a->set[i].s == FO_JOB_RECOMPUTE) { /* whose option was of the other kind */
			job->value[FO_JOB_RECOMPUTE_OPTION] = (struct fo_job_value){ .number = NAN };
			job->value[FO_JOB_RECOMPUTE_LAYERS] = (struct fo_job_value){ .number = NAN };
		}
	}
}

/* The fastest attempt that is legal and fits, whose state is TAKEN then; else why there is none. The caller ends
 * out->job. */
static enum fo_rung_state best_of(const struct climb *k, const struct rung *r, const struct tried *from,
				  struct tried *out, const char **change)
{
	struct attempts a;
	enum fo_rung_state none = FO_RUNG_IS_SO;
	int best = -1;
	*change = NULL;
	attempts_of(k, r, &from->job, &a);
	for (int i = 0; i < a.n; i++) {
		struct tried t;
		if (is_idle(&from->job, &a.v[i]))
			continue;
		fo_job_copy(&t.job, &from->job);
		apply(&t.job, &a.v[i]);
		bool ok = look(k, &t) == FO_OK && is_legal(k, &t);
		fo_err_clear();
		if (none != FO_RUNG_TOO_LARGE)
			none = ok ? FO_RUNG_TOO_LARGE : FO_RUNG_ILLEGAL;
		if (ok && t.fits && (best < 0 || t.step.tokens_s > out->step.tokens_s)) {
			if (best >= 0)
				fo_job_fini(&out->job);
			*out = t;
			best = i;
			continue;
		}
		fo_job_fini(&t.job);
	}
	if (best < 0)
		return none;
	struct fo_job was;
	fo_job_copy(&was, &from->job);
	*change = change_text(k->l, &was, &out->job, &a.v[best]);
	fo_job_fini(&was);
	return FO_RUNG_TAKEN;
}

/* A hundredth of a percent is a rounding error. */
#define SAME 1e-4

static void try_alone(const struct climb *k, const struct rung *r, struct fo_predicted_rung *out)
{
	struct tried t;
	out->alone = no_gain;
	enum fo_rung_state state = best_of(k, r, &k->base, &t, &out->change_alone);
	if (state == FO_RUNG_TOO_LARGE)
		out->change_alone = "no form of it fits";
	if (state != FO_RUNG_TAKEN)
		return;
	gain_of(&k->base, &t, &out->alone);
	fo_job_fini(&t.job);
}

static void keep(struct climb *k, struct tried *t)
{
	fo_job_fini(&k->top.job);
	k->top = *t;
}

static void try_on_top(struct climb *k, const struct rung *r, struct fo_predicted_rung *out)
{
	struct tried t;
	out->step = no_gain;
	out->state = best_of(k, r, &k->top, &t, &out->change);
	if (out->state != FO_RUNG_TAKEN)
		return;
	gain_of(&k->top, &t, &out->step);
	double memory = t.step.bytes / k->top.step.bytes;
	if (r->beside) {
		out->state = FO_RUNG_BESIDE;
	} else if (out->step.times < 1 - SAME) {
		out->state = FO_RUNG_LOSES;
	} else if (out->step.times < 1 + SAME && memory > 1 - SAME) {
		out->state = FO_RUNG_SAME;
	} else { /* what saves memory alone makes room for others */
		out->state = FO_RUNG_TAKEN;
		keep(k, &t);
		return;
	}
	if (r->beside)
		out->mfu_causal = t.step.mfu_causal;
	fo_job_fini(&t.job);
}

static void climb_all(struct climb *k)
{
	for (int i = 0; i < RUNGS; i++) {
		struct fo_predicted_rung *r = &k->l->rung[k->l->rungs++];
		*r = (struct fo_predicted_rung){ .id = rung[i].id, .title = rung[i].title, .section = rung[i].section };
		try_alone(k, &rung[i], r);
		try_on_top(k, &rung[i], r);
		gain_of(&k->base, &k->top, &r->together);
		r->seconds = k->top.step.seconds;
		r->tokens_s = k->top.step.tokens_s;
		r->mfu_causal = k->top.step.mfu_causal;
		r->bytes = k->top.step.bytes;
		r->global_batch = k->top.asked.shape.global_batch;
	}
}

/* ---- the ladder ---- */

static fo_status check_baseline(const struct climb *k)
{
	char need[32], have[32];
	double low = k->base.step.bytes * k->base.step.bytes / fo_predict_upper_bytes(&k->base.step);
	if (low <= memory_of(&k->base))
		return FO_OK;
	fo_draw_number(need, k->base.step.bytes, FO_DRAW_BYTES);
	fo_draw_number(have, memory_of(&k->base), FO_DRAW_BYTES);
	return fo_hint(
		fo_fail(FO_ENOMEM, "the baseline takes %s of %s a device: no step of it can be compared", need, have),
		"more devices, or a baseline that fits: --tp=8, --recompute=full, --set local_batch=1");
}

fo_status fo_ladder_predict(struct fo_predicted_ladder *l, struct fo_job *job, const struct fo_cluster *c,
			    const struct fo_job_machine_given *given)
{
	*l = (struct fo_predicted_ladder){ 0 };
	struct climb k = { .l = l, .c = c, .given = given };
	l->framework = fo_plan_framework_of_form(job->form ? job->form->id : "any");
	k.batch_fixed = fo_job_stated(job, FO_JOB_GLOBAL_BATCH);
	fo_job_copy(&k.base.job, job);
	fo_job_copy(&k.top.job, job);
	fo_status st = look(&k, &k.base);
	if (st == FO_OK)
		st = look(&k, &k.top);
	if (st == FO_OK)
		st = check_baseline(&k);
	if (st == FO_OK) {
		climb_all(&k);
		l->baseline = k.base.asked;
		l->base_step = k.base.step;
		l->base_fits = k.base.fits;
		l->top = k.top.asked;
		l->top_step = k.top.step;
		l->baseline.inferences = l->top.inferences = 0; /* their text lies in the copies */
		fo_predict_certainty_of(&l->baseline.base, &l->baseline.layout, &l->base_step, &l->base_sure);
		fo_predict_certainty_of(&l->top.base, &l->top.layout, &l->top_step, &l->top_sure);
	}
	fo_job_fini(&k.base.job);
	fo_job_fini(&k.top.job);
	return st;
}

void fo_predicted_ladder_fini(struct fo_predicted_ladder *l) { fo_arena_fini(&l->arena); }

/* Adds one part to those that were assumed. */
static void part(struct fo_job *job, const char **all, const char *what)
{
	*all = *all ? fo_arena_printf(&job->arena, "%s, %s", *all, what) : what;
}

/* A rank's sequences of one pass; a pipeline takes them one by one. Where the batch of a step is stated, it is several
 * passes of the most sequences that divide it. */
static void assume_batch(struct fo_job *job, const struct fo_cluster *c, double usual, const char **parts)
{
	double pp = or_one(job, FO_JOB_PP), size = pp > 1 ? 1 : usual;
	double ranks = c->devices / (or_one(job, FO_JOB_TP) * or_one(job, FO_JOB_CP) * pp);
	const char *text;
	if (!fo_job_stated(job, FO_JOB_GLOBAL_BATCH)) {
		fo_job_set(job, FO_JOB_LOCAL_BATCH, usual);
		text = fo_arena_printf(&job->arena, "a local batch of %g", usual);
	} else {
		while (size > 1 && fmod(fo_job_number(job, FO_JOB_GLOBAL_BATCH), ranks * size) != 0)
			size--;
		text = fo_arena_printf(&job->arena, "a micro-batch of %g, accumulated to the batch of a step", size);
	}
	fo_job_set(job, FO_JOB_MICRO_BATCH, size);
	part(job, parts, text);
}

/* torchtitan e7ee95a's configurations of Llama 3 (train_configs/llama3_8b.toml, 70b, 405b); 405B without its float8. */
const char *fo_ladder_assume_baseline(struct fo_job *job, const struct fo_cluster *c)
{
	static const struct {
		double most; /* parameters */
		double tp, again, batch, compile;
		const char *name, *again_text;
	} size[] = {
		{ 2e10, 1, FO_JOB_RECOMPUTE_SELECTIVE, 1, 0, "an 8B model", "selective recomputation" },
		{ 1.5e11, 8, FO_JOB_RECOMPUTE_FULL, 8, 0, "a 70B model", "full recomputation" },
		{ INFINITY, 8, FO_JOB_RECOMPUTE_FULL, 2, 1, "a 405B model", "full recomputation" },
	};
	struct fo_predict_model m;
	const char *parts = NULL;
	fo_predict_model_of(&job->model, &m);
	double params = fo_predict_params(&m);
	int i = 0;
	while (params > size[i].most)
		i++;
	const char *tp = fo_arena_printf(&job->arena, "tp %g", size[i].tp);
	const struct {
		struct setting set;
		const char *text; /* NULL: another one's says it */
	} assumed[] = {
		{ { FO_JOB_TP, size[i].tp }, tp },
		{ { FO_JOB_TP_OVERLAP, size[i].compile }, size[i].compile ? "asynchronous" : NULL },
		{ { FO_JOB_RECOMPUTE, size[i].again }, size[i].again_text },
		{ { FO_JOB_COMPILE, size[i].compile }, size[i].compile ? "compiled" : "not compiled" },
		{ { FO_JOB_COMPILE_LOSS, size[i].compile }, NULL },
	};
	for (size_t n = 0; n < sizeof assumed / sizeof *assumed; n++) {
		if (fo_job_stated(job, assumed[n].set.s))
			continue;
		fo_job_set(job, assumed[n].set.s, assumed[n].set.number);
		if (assumed[n].text)
			part(job, &parts, assumed[n].text);
	}
	if (!fo_job_stated(job, FO_JOB_LOCAL_BATCH) && !fo_job_stated(job, FO_JOB_MICRO_BATCH))
		assume_batch(job, c, size[i].batch, &parts);
	else if (!fo_job_stated(job, FO_JOB_GLOBAL_BATCH) && !fo_job_stated(job, FO_JOB_LOCAL_BATCH))
		fo_job_set(job, FO_JOB_LOCAL_BATCH, fo_job_number(job, FO_JOB_MICRO_BATCH));
	return parts ? fo_arena_printf(&job->arena, "the baseline: torchtitan's configuration of %s (%s)", size[i].name,
				       parts)
		     : NULL;
}
