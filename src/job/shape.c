/* How a job is divided over its devices: every number that follows from others, and what contradicts. */
#include "job/memory_int.h"
#include "predict/division.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* "seq (tokens of a sequence)": the setting's name as --set takes it, and what it is. */
static const char *name_of(struct fo_job *job, enum fo_job_setting s)
{
	char *name = fo_arena_strdup(&job->arena, fo_job_setting_row[s].id);
	for (char *at = name; *at; at++)
		*at = (char)tolower((unsigned char)*at);
	return name;
}

static const char *said(struct fo_job *job, enum fo_job_setting s)
{
	return fo_arena_printf(&job->arena, "%s (%s)", name_of(job, s), fo_job_setting_row[s].meaning);
}

static void lacks(struct fo_job *job, struct fo_job_shape *o, enum fo_job_setting s)
{
	if (o->unknown)
		return;
	if (s == FO_JOB_DEVICES)
		o->unknown = "the number of devices: give --cluster, for example 8xHGX-H100";
	else if (s == FO_JOB_ZERO)
		o->unknown = "how states are sharded: give the accelerate or DeepSpeed file too, or --set zero=N";
	else
		o->unknown = fo_arena_printf(&job->arena, "%s: give --set %s=N", fo_job_setting_row[s].meaning,
					     name_of(job, s));
}

#define WRONG(...) (o->wrong = o->wrong ? o->wrong : fo_arena_printf(&job->arena, __VA_ARGS__))

/* The same about a setting whose place is shown, and what would mend it. */
static void wrong_at(struct fo_job_shape *o, enum fo_job_setting s, const char *mend, const char *what)
{
	if (o->wrong)
		return;
	o->wrong = what;
	o->wrong_setting = (int)s;
	o->wrong_try = mend;
}

/* "the next batch that fits: 96" */
static const char *next_batch(struct fo_job *job, double batch, double unit)
{
	return fo_arena_printf(&job->arena, "the next batch that fits: %.15g", fmax(1, ceil(batch / unit)) * unit);
}

static const char *number_of_devices(struct fo_job *job, double n)
{
	return fo_arena_printf(&job->arena, "%.15g device%s", n, fo_plural(n));
}

static const char *ranks_of_data(struct fo_job *job, double n)
{
	return fo_arena_printf(&job->arena, "%.15g data-parallel rank%s", n, fo_plural(n));
}

/* "the next number of devices that fits: 32" */
static const char *next_devices(struct fo_job *job, double devices, double unit)
{
	return fo_arena_printf(&job->arena, "the next number of devices that fits: %.15g",
			       fmax(1, ceil(devices / unit)) * unit);
}

/* More than any job has; a larger number is a slip, and sums of such no longer count. */
#define MOST 1e9

/* A number that must be positive where it is stated; NAN where it is not. */
static double positive(struct fo_job *job, struct fo_job_shape *o, enum fo_job_setting s)
{
	double n = fo_job_number(job, s);
	if (isnan(n) || (n > 0 && n <= MOST))
		return n;
	if (n > MOST)
		WRONG("%s is %.15g and must be at most %.0f", said(job, s), n, MOST);
	else
		WRONG("%s is %.15g and must be above 0", said(job, s), n);
	return NAN;
}

static bool divides(double whole, double part)
{
	double n = whole / part;
	return n >= 1 && n == floor(n);
}

/* A degree of parallelism: 1 where the framework has no such setting, unknown where another program chooses it. */
static double degree(struct fo_job *job, struct fo_job_shape *o, enum fo_job_setting s)
{
	bool unseen = job->partial && s != FO_JOB_ETP && s != FO_JOB_PP_VIRTUAL;
	if ((job->value[s].origin == FO_JOB_AUTO || unseen) && isnan(job->value[s].number)) {
		lacks(job, o, s);
		return NAN;
	}
	double n = fo_job_or(job, s, 1);
	if (n >= 1 && n <= MOST && n == floor(n))
		return n;
	WRONG("%s is %g and must be a whole number from 1 on", said(job, s), n);
	return NAN;
}

/* ---- devices ---- */

/* Data-parallel ranks where nobody states the number of devices. */
static double ranks_stated(const struct fo_job *job)
{
	double replicate = fo_job_or(job, FO_JOB_DP_REPLICATE, 1), shard = fo_job_number(job, FO_JOB_DP_SHARD);
	if (shard >= 1)
		return replicate * shard;
	double of_rank = fo_job_number(job, FO_JOB_LOCAL_BATCH);
	if (isnan(of_rank))
		of_rank = fo_job_number(job, FO_JOB_MICRO_BATCH) * fo_job_number(job, FO_JOB_ACCUMULATION);
	double ranks = fo_job_number(job, FO_JOB_GLOBAL_BATCH) / of_rank;
	return ranks >= 1 && ranks == floor(ranks) ? ranks : NAN;
}

/* A file that states all its degrees divides over a fixed number of devices. */
static void divides_otherwise(struct fo_job *job, struct fo_job_shape *o, double model)
{
	const struct fo_job_value *v = job->value;
	double replicate = fo_job_or(job, FO_JOB_DP_REPLICATE, 1), shard = fo_job_number(job, FO_JOB_DP_SHARD);
	double dp = replicate * shard, all = dp * model;
	enum fo_job_setting s = v[FO_JOB_DP_SHARD].origin == FO_JOB_STATED ? FO_JOB_DP_SHARD : FO_JOB_DP_REPLICATE;
	if (v[s].origin != FO_JOB_STATED || v[FO_JOB_TP].origin != FO_JOB_STATED ||
	    v[FO_JOB_PP].origin != FO_JOB_STATED || !(shard >= 1) || !(all >= 1) || all == o->devices ||
	    dp * o->tp * o->pp == o->devices) /* some count the ranks of context parallelism among those that shard */
		return;
	struct fo_str by = { 0 };
	fo_division_text(&(struct fo_division){ .dp = dp, .tp = o->tp, .cp = o->cp, .pp = o->pp, .zero = -1 }, false,
			 &by);
	const char *mend = fo_arena_printf(&job->arena, "--cluster of %s", number_of_devices(job, all));
	if (divides(o->devices, model))
		mend = fo_arena_printf(&job->arena, "%s, or dp %.15g", mend, o->devices / model);
	wrong_at(o, s, mend,
		 fo_arena_printf(&job->arena, "the file divides over %s (%s), the cluster has %.15g",
				 number_of_devices(job, all), by.data, o->devices));
	fo_str_fini(&by);
}

static void devices(struct fo_job *job, const struct fo_cluster *c, struct fo_job_shape *o)
{
	double model = o->tp * o->pp * o->cp;
	struct fo_cluster own;
	fo_cluster_of_job(job, &own);
	o->devices = c && !isnan(c->devices) ? c->devices : own.devices;
	if (isnan(o->devices))
		o->devices = ranks_stated(job) * model;
	if (isnan(o->devices))
		return lacks(job, o, FO_JOB_DEVICES);
	if (c && !isnan(c->devices))
		divides_otherwise(job, o, model);
	o->dp = o->devices / model;
	if (isnan(model) || divides(o->devices, model))
		return;
	o->dp = NAN;
	char by[96];
	int n = snprintf(by, sizeof by, "TP %.15g x PP %.15g", o->tp, o->pp);
	if (o->cp > 1)
		snprintf(by + n, sizeof by - (size_t)n, " x CP %.15g", o->cp);
	enum fo_job_setting largest = o->pp > o->tp ? FO_JOB_PP : FO_JOB_TP;
	largest = o->cp > fmax(o->tp, o->pp) ? FO_JOB_CP : largest;
	wrong_at(o, largest, next_devices(job, o->devices, model),
		 fo_arena_printf(&job->arena, "%s %s not divisible by %s", number_of_devices(job, o->devices),
				 fo_word(o->devices, "is", "are"), by));
}

/* ---- what is sharded ---- */

/* ZeRO's stage: of the setting, else what a stated number of sharding ranks means. */
static double stage(const struct fo_job *job)
{
	double zero = fo_job_number(job, FO_JOB_ZERO), shard = fo_job_number(job, FO_JOB_DP_SHARD);
	if (isnan(zero) && (shard > 1 || shard == -1))
		return 3;
	return zero;
}

static void sharding(struct fo_job *job, struct fo_job_shape *o)
{
	double ranks = o->dp * o->cp, zero = stage(job), replicate = fo_job_number(job, FO_JOB_DP_REPLICATE),
	       shard = fo_job_number(job, FO_JOB_DP_SHARD);
	if (isnan(ranks))
		return;
	if (ranks == 1 || zero == 0) {
		o->shard = 1;
		o->replicate = ranks;
		return;
	}
	if (isnan(zero)) {
		o->stage_unknown = true;
		return lacks(job, o, FO_JOB_ZERO);
	}
	if (replicate >= 1 && shard >= 1 && replicate * shard != o->dp && replicate * shard != ranks) {
		wrong_at(o, FO_JOB_DP_SHARD,
			 fo_arena_printf(&job->arena, "--cluster of %s, or ranks that shard x replicas = %.15g",
					 number_of_devices(job, replicate * shard * o->devices / o->dp), o->dp),
			 fo_arena_printf(&job->arena, "%.15g replica%s x %.15g rank%s not the %s of %s", replicate,
					 fo_plural(replicate), shard,
					 fo_word(shard, " that shards are", "s that shard are"),
					 ranks_of_data(job, o->dp), number_of_devices(job, o->devices)));
		return;
	}
	o->replicate = 1;
	if (shard >= 1)
		o->replicate = shard > o->dp ? ranks / shard : o->dp / shard;
	else if (replicate >= 1)
		o->replicate = replicate;
	o->shard = ranks / o->replicate;
	if (o->shard == floor(o->shard) && o->replicate == floor(o->replicate))
		return;
	double part = shard >= 1 ? shard : o->replicate;
	wrong_at(o, shard >= 1 ? FO_JOB_DP_SHARD : FO_JOB_DP_REPLICATE,
		 next_devices(job, o->devices, part * o->devices / o->dp),
		 fo_arena_printf(&job->arena, "%s %s not divisible by %.15g", ranks_of_data(job, o->dp),
				 fo_word(o->dp, "is", "are"), part));
	o->shard = o->replicate = NAN;
}

/* ---- experts ---- */

static void experts(struct fo_job *job, struct fo_job_shape *o)
{
	bool has = job->has_model && job->model.experts > 0;
	if (!has || o->ep == 1)
		return;
	if (!divides((double)job->model.experts, o->ep))
		WRONG("%lld experts are not divisible by EP %.15g", (long long)job->model.experts, o->ep);
	if (!isnan(o->devices) && !divides(o->devices, o->pp * o->ep * o->etp))
		WRONG("%s %s not divisible by PP %.15g x EP %.15g x expert TP %.15g",
		      number_of_devices(job, o->devices), fo_word(o->devices, "is", "are"), o->pp, o->ep, o->etp);
}

/* ---- the batch ---- */

/* A rank's batch that is stated as such (torchtitan): the micro-batch unless a pipeline divides it; the global batch
 * repeats it. */
static void batch_of_rank(struct fo_job *job, struct fo_job_shape *o, double local)
{
	double global = fo_job_number(job, FO_JOB_GLOBAL_BATCH), times = fo_job_or(job, FO_JOB_ACCUMULATION, 1);
	if (isnan(o->micro_batch))
		o->micro_batch = o->pp > 1 ? 1 : local;
	/* A rank's sequences of a step hold its micro-batches already. */
	if (!fo_job_stated(job, FO_JOB_ACCUMULATION) || times * o->micro_batch == local)
		times = 1;
	if (global > 0 && !isnan(o->dp)) {
		times = global / (local * o->dp);
		if (!divides(global, local * o->dp))
			wrong_at(o, FO_JOB_GLOBAL_BATCH, next_batch(job, global, local * o->dp),
				 fo_arena_printf(&job->arena,
						 "a global batch of %.15g is not divisible by %.15g sequence%s of a "
						 "rank x %s",
						 global, local, fo_plural(local), ranks_of_data(job, o->dp)));
	}
	if (!divides(local, o->micro_batch))
		wrong_at(o, FO_JOB_LOCAL_BATCH, next_batch(job, local, o->micro_batch),
			 fo_arena_printf(&job->arena,
					 "%.15g sequence%s of a rank %s not divisible by a micro-batch of %.15g", local,
					 fo_plural(local), fo_word(local, "is", "are"), o->micro_batch));
	o->micro_batches = times * local / o->micro_batch;
	o->global_batch = times * local * o->dp;
}

static void batch_of_all(struct fo_job *job, struct fo_job_shape *o, double global)
{
	double times = fo_job_number(job, FO_JOB_ACCUMULATION);
	if (isnan(o->dp))
		return;
	if (isnan(o->micro_batch))
		o->micro_batch = global / (o->dp * times);
	if (isnan(o->micro_batch))
		return lacks(job, o, FO_JOB_MICRO_BATCH);
	o->global_batch = global;
	/* Composer and OLMo take as much of a rank's batch at a time as the micro-batch allows, the rest last. */
	bool splits = job->form && (!strcmp(job->form->id, "llm-foundry") || !strcmp(job->form->id, "olmo"));
	double own = global / o->dp;
	if (splits && divides(global, o->dp) && !divides(own, o->micro_batch)) {
		o->micro_batch = fmin(o->micro_batch, own);
		o->micro_batches = ceil(own / o->micro_batch);
		return;
	}
	o->micro_batches = global / (o->dp * o->micro_batch);
	if (!isnan(times) && times != o->micro_batches && fo_job_stated(job, FO_JOB_ACCUMULATION))
		wrong_at(o, FO_JOB_GLOBAL_BATCH,
			 fo_arena_printf(&job->arena, "the batch that fits: %.15g", o->micro_batch * times * o->dp),
			 fo_arena_printf(&job->arena,
					 "a global batch of %.15g is not a micro-batch of %.15g x %.15g micro-batch%s "
					 "x %s",
					 global, o->micro_batch, times, fo_word(times, "", "es"),
					 ranks_of_data(job, o->dp)));
	else if (!divides(global, o->dp * o->micro_batch))
		wrong_at(o, FO_JOB_GLOBAL_BATCH, next_batch(job, global, o->dp * o->micro_batch),
			 fo_arena_printf(&job->arena,
					 "a global batch of %.15g is not divisible by a micro-batch of %.15g x %s",
					 global, o->micro_batch, ranks_of_data(job, o->dp)));
}

static void batch(struct fo_job *job, struct fo_job_shape *o)
{
	double local = fo_job_number(job, FO_JOB_LOCAL_BATCH), global = fo_job_number(job, FO_JOB_GLOBAL_BATCH),
	       times = fo_job_number(job, FO_JOB_ACCUMULATION);
	o->micro_batch = positive(job, o, FO_JOB_MICRO_BATCH);
	if (local > 0)
		batch_of_rank(job, o, local);
	else if (global > 0)
		batch_of_all(job, o, global);
	else if (!isnan(o->micro_batch) && !isnan(times)) {
		o->micro_batches = times;
		o->global_batch = o->micro_batch * times * o->dp;
	} else
		lacks(job, o, isnan(o->micro_batch) ? FO_JOB_MICRO_BATCH : FO_JOB_GLOBAL_BATCH);
}

void fo_job_shape_of(struct fo_job *job, const struct fo_cluster *c, struct fo_job_shape *o)
{
	*o = (struct fo_job_shape){ .devices = NAN,
				    .dp = NAN,
				    .replicate = NAN,
				    .shard = NAN,
				    .micro_batch = NAN,
				    .micro_batches = NAN,
				    .global_batch = NAN,
				    .wrong_setting = -1,
				    .tokens = NAN };
	if (job->refused)
		wrong_at(o, FO_JOB_MICRO_BATCH, job->refused_try, job->refused);
	o->seq = positive(job, o, FO_JOB_SEQ);
	(void)positive(job, o, FO_JOB_ACCUMULATION);
	o->tp = degree(job, o, FO_JOB_TP);
	o->pp = degree(job, o, FO_JOB_PP);
	o->cp = degree(job, o, FO_JOB_CP);
	o->ep = degree(job, o, FO_JOB_EP);
	o->chunks = degree(job, o, FO_JOB_PP_VIRTUAL);
	o->etp = degree(job, o, FO_JOB_ETP);
	if (!fo_job_known(job, FO_JOB_ETP) && fo_job_keeper_of(job) == FO_MEMORY_BY_MEGATRON)
		o->etp = o->tp; /* Megatron's default */
	if (isnan(o->seq))
		lacks(job, o, FO_JOB_SEQ);
	devices(job, c, o);
	sharding(job, o);
	experts(job, o);
	batch(job, o);
	o->tokens = o->global_batch * o->seq;
	fo_job_stages_of(job, o);
	if (job->has_model && o->pp > (double)job->model.layers)
		WRONG("%.15g pipeline stages are more than the %lld layer%s of the model", o->pp,
		      (long long)job->model.layers, fo_plural(job->model.layers));
}
