/* Rules about data parallelism: what is sharded, what travels, and what hides behind compute. */
#include "audit/config_int.h"

/* Ranks that share a model's states: unknown shapes concern nobody. */
static bool data_parallel(const struct fo_site *s) { return s->shape->dp * s->shape->cp > 1; }
/* Gradients and optimizer states of all weights, not of adapters alone. */
static bool reduces_all(const struct fo_site *s) { return data_parallel(s) && fo_site_trains_all(s); }
static bool shards_weights(const struct fo_site *s) { return data_parallel(s) && fo_site_is(s, FO_JOB_ZERO, 3); }

static void look_grad_overlap(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_GRAD_OVERLAP, 0))
		return;
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_GRAD_OVERLAP,
		.change = { { FO_JOB_GRAD_OVERLAP, 1 } },
		.changes = 1,
		.title = "All of backward ends before gradients are reduced",
		.why = "Gradients of a layer can travel while the layers before it compute; the network is "
		       "idle meanwhile, and the devices are idle afterwards.",
		.source = "Li et al. 2020 (PyTorch DDP), section 3.2; Megatron-LM, --overlap-grad-reduce",
		.serious = 1.05
	};
	p.always = true;
	fo_site_propose(s, &p);
}

static void look_param_overlap(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_PARAM_OVERLAP, 0))
		return;
	struct fo_proposal p = { .level = FO_AUDIT_ADVICE,
				 .setting = FO_JOB_PARAM_OVERLAP,
				 .change = { { FO_JOB_PARAM_OVERLAP, 1 } },
				 .changes = 1,
				 .title = "Forward waits until all updated weights are gathered",
				 .why = "The weights of later layers can be gathered while the first ones compute.",
				 .source = "Megatron-LM, --overlap-param-gather" };
	p.always = true;
	fo_site_propose(s, &p);
}

/* One rank has nothing to reduce: said as a note, because the setting bites as soon as the job grows. */
static bool data_alone(const struct fo_site *s)
{
	return s->shape->dp == 1 && fo_site_is(s, FO_JOB_GRAD_OVERLAP, 0) && fo_site_form(s, "megatron nemo");
}

static void look_alone(struct fo_site *s)
{
	bool zero = fo_site_is(s, FO_JOB_ZERO, 0);
	fo_site_report(s, FO_AUDIT_NOTE, FO_JOB_GRAD_OVERLAP, "on, before the job grows",
		       zero ? "Neither overlap nor distributed optimizer: both count once data parallel is above 1"
			    : "No overlap of gradients: it counts once data parallel is above 1",
		       "On these devices one rank holds the whole batch, and there is nothing to reduce or to shard.",
		       NULL);
}

/* DDP and optimizers that every rank repeats: below a billion parameters it costs little. */
#define SHARDING_PAYS_FROM 1e9

static void look_unsharded(struct fo_site *s)
{
	int64_t params = fo_model_params(&s->job->model).total;
	if (!fo_site_is(s, FO_JOB_ZERO, 0) || (double)params < SHARDING_PAYS_FROM)
		return;
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_ZERO,
		.change = { { FO_JOB_ZERO, 1 } },
		.changes = 1,
		.title = fo_site_say(s, "All %.0f data-parallel ranks hold and update the same optimizer states",
				     s->shape->dp),
		.why = "Sharding the optimizer frees 8 to 12 bytes of every parameter at the same volume of "
		       "communication; the memory can take a larger micro-batch or less recomputation.",
		.source = "Rajbhandari et al. 2020 (ZeRO), section 5"
	};
	p.always = true;
	fo_site_propose(s, &p);
}

static void look_prefetch(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_PREFETCH, 0))
		return;
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_PREFETCH,
		.change = { { FO_JOB_PREFETCH, 1 } },
		.changes = 1,
		.title = "The next layer's weights are not gathered ahead",
		.why = "A layer's gather then starts late wherever the host is behind; one layer's weights "
		       "more are held.",
		.source = "PyTorch 2.15, FullyShardedDataParallel(forward_prefetch=)"
	};
	p.always = true;
	fo_site_propose(s, &p);
}

static void look_reshard(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_RESHARD, 1))
		return;
	struct fo_proposal p = { .level = FO_AUDIT_ADVICE,
				 .setting = FO_JOB_RESHARD,
				 .change = { { FO_JOB_RESHARD, 0 } },
				 .changes = 1,
				 .title = "Weights are gathered twice a step: they are sharded again after forward",
				 .why = "Kept until backward they need no second gather.",
				 .source = "PyTorch 2.15, fully_shard(reshard_after_forward=)" };
	struct fo_job_gain g;
	fo_site_what_if(s, p.change, 1, &g);
	if (fo_gain_fits(&g))
		fo_site_propose(s, &p);
}

static void look_reduce(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_GRAD_REDUCE, FO_JOB_FP32) || fo_site_is(s, FO_JOB_DTYPE, FO_JOB_MATMUL_FP32))
		return;
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_GRAD_REDUCE,
		.change = { { FO_JOB_GRAD_REDUCE, FO_JOB_BF16 } },
		.changes = 1,
		.title = "Gradients are reduced in fp32: twice the bytes of bf16",
		.why = "Half of the volume, and smaller buffers. Sums over many ranks lose digits: compare the "
		       "loss of some hundred steps.",
		.published = { 1.0, 1.02, "Lambda's fork of torchtitan 2025: about 1 %" },
		.source = "Lambda 2026, section 2.3; Megatron-LM, --grad-reduce-in-bf16"
	};
	if (fo_site_form(s, "torchtitan")) {
		p.level = FO_AUDIT_NOTE;
		p.by_code = true;
		p.proposed = "bf16, by a change of torchtitan's code";
		p.why = "Half of the volume, and smaller buffers. torchtitan 0.2 and 0.3 accept float32 alone, so no "
			"file can say it. Compare the loss of some hundred steps.";
	}
	fo_site_propose(s, &p);
}

static void look_scatter(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_REDUCE_SCATTER, 0) || !fo_site_over(s, FO_JOB_ZERO, 0))
		return;
	struct fo_proposal p = { .level = FO_AUDIT_ADVICE,
				 .setting = FO_JOB_REDUCE_SCATTER,
				 .change = { { FO_JOB_REDUCE_SCATTER, 1 } },
				 .changes = 1,
				 .title = "Sharded gradients are reduced on every rank",
				 .why = "Reducing into shards moves half the bytes.",
				 .source = "DeepSpeed documentation, reduce_scatter" };
	p.always = true;
	fo_site_propose(s, &p);
}

/* ---- replicas of a sharded model ---- */

/* Worth a measurement (a note) unless the arithmetic is sure of a loss beyond this. */
#define HYBRID_LEAST 0.97

/* Shards within a fast fabric, replicas over the rest. */
static void look_hybrid(struct fo_site *s)
{
	const struct fo_job_shape *h = s->shape;
	double group = floor(s->domain / (h->tp * h->cp));
	while (group > 1 && fmod(h->dp, group) != 0)
		group--;
	if (!(fo_site_spans(s) && group >= 2 && h->replicate == 1 && h->shard > s->domain / h->tp))
		return;
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_DP_REPLICATE,
		.change = { { FO_JOB_DP_REPLICATE, h->dp / group }, { FO_JOB_DP_SHARD, group } },
		.changes = 2,
		.title = fo_site_say(s,
				     "Weights are gathered over %.0f ranks of several nodes, and would fit "
				     "in one fast fabric",
				     h->shard),
		.why = "Hybrid sharding keeps gathers within a node or rack and sends only gradients between "
		       "them, once a step.",
		.source = "PyTorch 2.15, HSDP; Lambda 2026, section 2.7: one replica for each GB300 rack"
	};
	struct fo_job_gain g;
	fo_site_what_if(s, p.change, 2, &g);
	/* Bandwidth alone seldom shows a gain; latency over many ranks, which the arithmetic has in part, does. */
	p.always = fo_range_known(g.times) && g.times.high > HYBRID_LEAST;
	if (fo_gain_may_fit(&g) && p.always)
		fo_site_propose(s, &p);
}

static bool replicates(const struct fo_site *s) { return fo_site_over(s, FO_JOB_DP_REPLICATE, 1); }

static void look_hybrid_in_node(struct fo_site *s)
{
	double replicas = fo_job_number(s->job, FO_JOB_DP_REPLICATE), shard = fo_job_number(s->job, FO_JOB_DP_SHARD);
	if (!(s->cluster->devices <= s->domain && shard > 1))
		return;
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_DP_REPLICATE,
		.change = { { FO_JOB_DP_REPLICATE, 1 }, { FO_JOB_DP_SHARD, replicas * shard } },
		.changes = 2,
		.title = fo_site_say(s,
				     "%.0f replicas within one fast fabric: sharding over all of it costs no "
				     "network and frees memory",
				     replicas),
		.why = "Hybrid sharding spares slow links between nodes; here there are none, and every replica "
		       "holds all states once more.",
		.source = "PyTorch 2.15, HSDP"
	};
	p.always = true;
	fo_site_propose(s, &p);
}

/* ---- what no setting above helps ---- */

/* From a tenth of the step on the network decides; below it advice about it would be noise. */
#define NETWORK_BOUND 0.1

static void look_network(struct fo_site *s)
{
	struct fo_range share = s->step->share[FO_PREDICT_DATA];
	if (!fo_range_known(share) || share.low < NETWORK_BOUND)
		return;
	fo_site_report(s, fo_site_spans(s) ? FO_AUDIT_ADVICE : FO_AUDIT_NOTE, -1,
		       "more tokens a step on each device (micro-batch, accumulation), or fewer ranks that shard",
		       fo_site_say(s, "Data-parallel communication takes %s of the step", fo_site_percent(s, share)),
		       fo_site_say(s,
				   "%.0f ranks gather weights or reduce gradients for %.0f tokens on each: the time of "
				   "compute does not cover it.",
				   s->shape->shard > 1 ? s->shape->shard : s->shape->dp,
				   s->shape->micro_batch * s->shape->micro_batches * s->shape->seq / s->shape->cp),
		       "docs/audit-rules.md");
}

/* Gradients that are reduced once a step, where a second micro-batch would share that. */
static void look_accumulation(struct fo_site *s)
{
	const struct fo_job_shape *h = s->shape;
	if (h->micro_batches != 1 || fo_site_over(s, FO_JOB_ZERO, 1))
		return;
	struct fo_job_change c[] = { { FO_JOB_ACCUMULATION, 2 },
				     { FO_JOB_LOCAL_BATCH, 2 * h->micro_batch },
				     { FO_JOB_GLOBAL_BATCH, 2 * h->global_batch } };
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_ACCUMULATION,
		.title = "Gradients are reduced after every micro-batch",
		.why = "With accumulation one reduction serves several micro-batches. The batch of a step grows: "
		       "check the learning rate."
	};
	for (size_t i = 0; i < sizeof c / sizeof *c; i++)
		if (!isnan(fo_job_number(s->job, c[i].setting)) && fo_job_number(s->job, c[i].setting) > 0)
			p.change[p.changes++] = c[i];
	if (p.changes) /* the accumulation follows from the batch where a framework has no setting for it */
		p.setting = p.change[0].setting;
	struct fo_job_gain g;
	fo_site_what_if(s, p.change, p.changes, &g);
	if (p.changes && fo_range_known(g.times) && g.times.low > 1.01)
		fo_site_propose(s, &p);
}

const struct fo_config_rule fo_config_rules_data[] = {
	{ .id = "grad-overlap",
	  .needs = FO_NEED_SHAPE | FO_NEED_DOMAIN,
	  .settings = 1,
	  .setting = { FO_JOB_GRAD_OVERLAP },
	  .look = look_grad_overlap,
	  .concerns = reduces_all,
	  .when = "gradients are not reduced beside backward; serious where that surely gains 5 %" },
	{ .id = "param-overlap",
	  .needs = FO_NEED_SHAPE,
	  .settings = 1,
	  .setting = { FO_JOB_PARAM_OVERLAP },
	  .look = look_param_overlap,
	  .concerns = reduces_all,
	  .when = "updated weights are not gathered beside forward" },
	{ .id = "data-alone",
	  .look = look_alone,
	  .concerns = data_alone,
	  .when = "overlap is off and data parallel is 1: nothing is lost yet (note)" },
	{ .id = "optimizer-unsharded",
	  .needs = FO_NEED_SHAPE | FO_NEED_MODEL,
	  .settings = 1,
	  .setting = { FO_JOB_ZERO },
	  .look = look_unsharded,
	  .concerns = reduces_all,
	  .when = "nothing is sharded over data-parallel ranks and the model has a billion parameters or more" },
	{ .id = "prefetch",
	  .forms = "torchtitan accelerate",
	  .settings = 1,
	  .setting = { FO_JOB_PREFETCH },
	  .look = look_prefetch,
	  .concerns = shards_weights,
	  .when = "sharded weights are not gathered ahead, and the framework has a setting for it" },
	{ .id = "reshard",
	  .forms = "torchtitan accelerate",
	  .needs = FO_NEED_SHAPE | FO_NEED_MEMORY | FO_NEED_STEP,
	  .settings = 1,
	  .setting = { FO_JOB_RESHARD },
	  .look = look_reshard,
	  .concerns = shards_weights,
	  .when = "weights are sharded again after forward although keeping them fits for certain and gains" },
	{ .id = "grad-reduce-fp32",
	  .needs = FO_NEED_SHAPE,
	  .settings = 1,
	  .setting = { FO_JOB_GRAD_REDUCE },
	  .look = look_reduce,
	  .concerns = reduces_all,
	  .when = "gradients of a 16-bit run are reduced in fp32; a note for torchtitan, whose files cannot say bf16" },
	{ .id = "reduce-scatter",
	  .forms = "deepspeed",
	  .settings = 1,
	  .setting = { FO_JOB_REDUCE_SCATTER },
	  .look = look_scatter,
	  .concerns = fo_site_trains_all,
	  .when = "sharded gradients are reduced everywhere instead of into shards" },
	{ .id = "hybrid-sharding",
	  .forms = "torchtitan accelerate maxtext flatout",
	  .needs = FO_NEED_SHAPE | FO_NEED_DOMAIN | FO_NEED_MEMORY | FO_NEED_STEP,
	  .look = look_hybrid,
	  .concerns = shards_weights,
	  .when = "weights are sharded over several nodes or racks and may fit within one; a note where no "
		  "gain is certain" },
	{ .id = "hybrid-in-node",
	  .needs = FO_NEED_DOMAIN,
	  .settings = 2,
	  .setting = { FO_JOB_DP_REPLICATE, FO_JOB_DP_SHARD },
	  .look = look_hybrid_in_node,
	  .concerns = replicates,
	  .when = "replicas of a sharded model within one fast fabric" },
	{ .id = "accumulation",
	  .needs = FO_NEED_SHAPE | FO_NEED_STEP,
	  .look = look_accumulation,
	  .concerns = reduces_all,
	  .when = "one micro-batch a step where a second one would surely gain 1 % (weights that are not sharded)" },
	{ .id = "network-bound",
	  .needs = FO_NEED_SHAPE | FO_NEED_STEP,
	  .look = look_network,
	  .concerns = data_parallel,
	  .when = "exposed data-parallel communication is surely a tenth of the step" },
	{ 0 },
};
