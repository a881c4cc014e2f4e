/* Rules about memory: does the job fit, and does it pay for memory that it does not need? */
#include "audit/config_int.h"

#include "plan/more.h"

#include <string.h>

/* ---- does it fit? ---- */

struct remedy {
	const char *name;
	struct fo_job_change change[FO_RULE_CHANGES];
	int changes;
};
enum { REMEDIES = 12 };

/* Adds one that a file of the framework can say. */
static void add_remedy(const struct fo_site *s, struct remedy *list, int *n, const struct remedy *r)
{
	for (int i = 0; i < r->changes; i++)
		if (!fo_site_settable(s, &r->change[i]))
			return;
	list[(*n)++] = *r;
}

static void remedy(const struct fo_site *s, struct remedy *list, int *n, const char *name, enum fo_job_setting x,
		   double number)
{
	add_remedy(s, list, n, &(struct remedy){ name, { { x, number } }, 1 });
}

/* What makes memory smaller, each alone and in the order of what it usually costs. */
static int remedies(const struct fo_site *s, struct remedy *list)
{
	const struct fo_job *job = s->job;
	const struct fo_job_shape *h = s->shape;
	bool grows;
	int n = 0;
	double recompute = fo_job_or(job, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_NONE);
	double experts = job->has_model ? (double)job->model.experts : 0;
	if (experts > 1 && fo_job_or(job, FO_JOB_EP, 1) == 1 && fmod(experts, s->domain) == 0)
		remedy(s, list, &n, "divide the experts over a fast fabric", FO_JOB_EP, s->domain);
	if (fo_job_or(job, FO_JOB_ZERO, 3) < 1 && h->dp > 1)
		remedy(s, list, &n, "shard the optimizer", FO_JOB_ZERO, 1);
	if (recompute < FO_JOB_RECOMPUTE_SELECTIVE)
		remedy(s, list, &n, "recompute some activations", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_SELECTIVE);
	if (h->micro_batch > 1) {
		struct remedy r = { .name = "halve the micro-batch" };
		r.changes = fo_change_micro_batch(s, floor(h->micro_batch / 2), r.change, &grows);
		add_remedy(s, list, &n, &r);
	}
	if (recompute < FO_JOB_RECOMPUTE_FULL)
		remedy(s, list, &n, "recompute layers", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL);
	if (h->dp > 1 && fo_job_or(job, FO_JOB_ZERO, 3) < 3 && !fo_site_form(s, "megatron nemo"))
		remedy(s, list, &n, "shard weights and gradients too", FO_JOB_ZERO, 3);
	for (double tp = 2 * h->tp; tp <= s->domain && tp <= 8; tp *= 2) {
		struct remedy r = { .name = "divide tensors over more devices of a node" };
		r.changes = fo_change_layout(s, tp, h->pp, h->cp, r.change);
		add_remedy(s, list, &n, &r);
	}
	if (h->devices >= 4 * h->tp * h->pp) {
		struct remedy r = { .name = "divide layers into more stages" };
		r.changes = fo_change_layout(s, h->tp, 4 * h->pp, h->cp, r.change);
		add_remedy(s, list, &n, &r);
	}
	remedy(s, list, &n, "keep the optimizer in host memory", FO_JOB_OFFLOAD_OPTIMIZER, 1);
	return n;
}

/* The fastest of the remedies, alone or in pairs, that fits for certain; NULL: none does. */
static bool best_remedy(const struct fo_site *s, struct remedy *best, struct fo_job_gain *g)
{
	struct remedy list[REMEDIES];
	int n = remedies(s, list);
	bool found = false;
	for (int i = 0; i < n; i++)
		for (int k = i; k < n; k++) {
			struct remedy r = list[i];
			if (k > i) {
				if (r.changes + list[k].changes > FO_RULE_CHANGES)
					continue;
				memcpy(r.change + r.changes, list[k].change,
				       (size_t)list[k].changes * sizeof *r.change);
				r.changes += list[k].changes;
				r.name = fo_site_say(s, "%s and %s", list[i].name, list[k].name);
			}
			struct fo_job_gain now;
			fo_site_what_if(s, r.change, r.changes, &now);
			if (!fo_gain_fits(&now))
				continue;
			/* Without worth the first one counts: they stand in the order of what they usually cost. */
			bool faster = found && fo_range_known(now.times) &&
				      now.times.low > g->times.low * (k > i ? 1.02 : 1);
			if (!found || faster) {
				*best = r;
				*g = now;
				found = true;
			}
		}
	return found;
}

/* What costs most memory first, one after the other, until it fits for certain. */
static bool many_remedies(const struct fo_site *s, struct remedy *all, struct fo_job_gain *g)
{
	const struct fo_job_shape *h = s->shape;
	struct remedy list[REMEDIES];
	bool grows;
	int n = 0;
	double experts = s->job->has_model ? (double)s->job->model.experts : 0;
	if (experts > 1 && fo_job_or(s->job, FO_JOB_EP, 1) == 1 && fmod(experts, s->domain) == 0)
		remedy(s, list, &n, "experts divided over a fast fabric", FO_JOB_EP, s->domain);
	if (!fo_job_is(s->job, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL))
		remedy(s, list, &n, "full recomputation", FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL);
	if (h->micro_batch > 1) {
		struct remedy r = { .name = "micro-batch 1" };
		r.changes = fo_change_micro_batch(s, 1, r.change, &grows);
		add_remedy(s, list, &n, &r);
	}
	remedy(s, list, &n, "the optimizer in host memory", FO_JOB_OFFLOAD_OPTIMIZER, 1);
	*all = (struct remedy){ .name = NULL };
	for (int i = 0; i < n && all->changes + list[i].changes <= FO_RULE_CHANGES; i++) {
		memcpy(all->change + all->changes, list[i].change, (size_t)list[i].changes * sizeof *all->change);
		all->changes += list[i].changes;
		all->name = all->name ? fo_site_say(s, "%s, %s", all->name, list[i].name) : list[i].name;
		fo_site_what_if(s, all->change, all->changes, g);
		if (fo_gain_fits(g))
			return true;
	}
	return false;
}

static const char *parts_text(const struct fo_site *s)
{
	const char *text = NULL;
	for (int p = 0; p < FO_PREDICT_MEMORIES; p++) {
		struct fo_range r = s->memory->part[p];
		if (!fo_range_known(r) || r.high < 0.5e9)
			continue;
		const char *one = fo_site_say(s, "%s %s", fo_predict_memory_name[p], fo_site_gb(s, r));
		text = text ? fo_site_say(s, "%s, %s", text, one) : one;
	}
	return text ? text : "";
}

/* How many devices hold it with what is sharded spread over more of them; 0: 64 times as many do not. */
static double devices_that_hold(const struct fo_site *s)
{
	double now = s->shape->devices, node = s->cluster->per_node > 0 ? s->cluster->per_node : 1;
	for (double devices = fo_plan_next_size(node, now); devices <= 64 * now;
	     devices = fo_plan_next_size(node, devices)) {
		struct fo_cluster more = *s->cluster;
		more.devices = devices;
		more.nodes = s->cluster->per_node > 0 ? ceil(devices / s->cluster->per_node) : s->cluster->nodes;
		struct fo_job copy;
		fo_job_copy(&copy, s->job);
		if (!isnan(fo_job_number(&copy, FO_JOB_DEVICES)))
			fo_job_set(&copy, FO_JOB_DEVICES, devices);
		if (!isnan(fo_job_number(&copy, FO_JOB_NODES)))
			fo_job_set(&copy, FO_JOB_NODES, more.nodes);
		struct fo_job_memory m;
		fo_job_memory_of(&copy, &more, &m);
		bool fits = m.fit == FO_JOB_FITS;
		fo_job_fini(&copy);
		if (fits)
			return devices;
	}
	return 0;
}

static void look_fit(struct fo_site *s)
{
	const struct fo_job_memory *m = s->memory;
	if (m->fit != FO_JOB_FITS_NOT && m->fit != FO_JOB_FIT_UNCERTAIN)
		return;
	bool sure = m->fit == FO_JOB_FITS_NOT;
	struct fo_audit_finding f = {
		.id = s->rule->id,
		.level = sure ? FO_AUDIT_SERIOUS : FO_AUDIT_ADVICE,
		.title = fo_site_say(s,
				     sure ? "Does not fit: a device needs %s of memory and has %s"
					  : "May not fit: a device needs %s of memory and has %s",
				     fo_site_gb(s, m->total), fo_site_gb(s, m->usable)),
		.why = parts_text(s),
		.evidence = fo_site_say(s, "memory by parts, pipeline stage %.0f", m->stage),
		.gain = { NAN, NAN },
		.source = "docs/commands/audit.md",
	};
	struct remedy r;
	struct fo_job_gain g;
	double devices = sure ? devices_that_hold(s) : 0;
	if (sure && (best_remedy(s, &r, &g) || (devices == 0 && many_remedies(s, &r, &g)))) {
		f.setting = fo_site_key(s, r.change[0].setting);
		f.now = fo_site_now(s, r.change[0].setting);
		f.proposed = fo_site_and_removed(
			s, fo_site_say(s, "%s: then %s", r.name, fo_site_gb(s, g.memory.total)), r.change, r.changes);
		f.paste = fo_site_paste(s, r.change, r.changes);
	} else if (sure && devices > 0) {
		f.proposed = fo_site_say(s, "no single change makes it fit: %.0f devices hold it as it is", devices);
	} else if (sure) {
		f.proposed = "a smaller model or more devices: no single change makes it fit";
	} else {
		f.proposed = "watch the peak of the first steps; the parts below say what to make smaller";
	}
	fo_audit_add(s->audit, f);
}

/* ---- recomputation ---- */

static const char *const recompute_why =
	"Layers that recompute everything run their forward pass twice: about a third more work in each step.";

/* A recomputation that does less and fits; the fastest one that fits for certain, else one that may. */
static bool less_recompute(const struct fo_site *s, struct fo_job_change *change, struct fo_job_gain *g)
{
	static const double modes[] = { FO_JOB_RECOMPUTE_NONE, FO_JOB_RECOMPUTE_SELECTIVE };
	bool may = false;
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
		struct fo_job_change c = { FO_JOB_RECOMPUTE, modes[i] };
		struct fo_job_gain now;
		if (fo_job_is(s->job, FO_JOB_RECOMPUTE, modes[i]))
			break;
		if (!fo_site_settable(s, &c))
			continue;
		fo_site_what_if(s, &c, 1, &now);
		if (fo_gain_fits(&now)) {
			*change = c;
			*g = now;
			return true;
		}
		if (!may && fo_gain_may_fit(&now)) {
			*change = c;
			*g = now;
			may = true;
		}
	}
	return may;
}

static bool recomputes_fully(const struct fo_site *s) { return fo_site_is(s, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL); }

/* Two changes together must gain this much in the middle of the interval to be worth a proposal. */
#define COMPANION_PAYS 1.03

/* Where no smaller recomputation fits alone: with half of the micro-batch, or with weights and states in bf16. */
static int with_companion(const struct fo_site *s, struct fo_proposal *p, struct fo_job_gain *g)
{
	const struct fo_job_change selective = { FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_SELECTIVE };
	if (!fo_site_settable(s, &selective))
		return 0;
	bool grows, titan = fo_site_form(s, "torchtitan") && fo_site_is(s, FO_JOB_PARAM_DTYPE, FO_JOB_FP32);
	for (int way = 0; way < 3; way++) {
		struct fo_job_change c[FO_RULE_CHANGES] = { selective };
		int n = 1;
		if (way != 1 && s->shape->micro_batch >= 2 && s->shape->pp == 1)
			n += fo_change_micro_batch(s, floor(s->shape->micro_batch / 2), c + n, &grows);
		if (way > 0 && titan)
			c[n++] = (struct fo_job_change){ FO_JOB_PARAM_DTYPE, FO_JOB_BF16 };
		fo_site_what_if(s, c, n, g);
		if (n == 1 || !fo_gain_fits(g) || !fo_range_known(g->times) ||
		    fo_range_middle(g->times) < COMPANION_PAYS)
			continue;
		memcpy(p->change, c, sizeof c);
		p->changes = n;
		p->why = way > 0 ? "Layers that recompute everything run their forward pass twice. Weights and "
				   "states in bf16 "
				   "make room, at some precision: compare losses before a long run."
				 : "Layers that recompute everything run their forward pass twice. A smaller "
				   "micro-batch makes "
				   "room to recompute less; the batch of a step stays.";
		return n;
	}
	return 0;
}

/* Serious where less recomputation fits for certain and surely gains a twentieth: then memory lies idle. */
static void look_full(struct fo_site *s)
{
	if (s->memory->fit != FO_JOB_FITS)
		return; /* memory-fit speaks, and asks for the opposite */
	struct fo_proposal p = { .setting = FO_JOB_RECOMPUTE, .changes = 1, .why = recompute_why };
	struct fo_job_gain g;
	bool alone = less_recompute(s, p.change, &g), spare = alone && fo_gain_fits(&g);
	struct fo_job_gain both;
	if (!spare && !with_companion(s, &p, &both) && !alone)
		return;
	p.level = FO_AUDIT_ADVICE;
	/* Adapters: the arithmetic is held to no published run; rows that vary: memory is that of the longest. */
	bool sure = spare && fo_site_trains_all(s) && !fo_site_is(s, FO_JOB_ROWS_VARY, 1);
	p.serious = sure ? 1.05 : 0;
	p.title = fo_site_say(s,
			      spare ? "Full recomputation with memory to spare: %s of %s are used"
				    : "Full recomputation: %s of %s are used",
			      fo_site_gb(s, s->memory->total), fo_site_gb(s, s->memory->usable));
	p.source = "Korthikanti et al. 2022, section 5: full recomputation costs 30 to 40 % of a step";
	fo_site_propose(s, &p);
}

static bool recomputes_partly(const struct fo_site *s)
{
	return fo_site_is(s, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_SELECTIVE);
}

static void look_selective(struct fo_site *s)
{
	struct fo_proposal p = { .setting = FO_JOB_RECOMPUTE,
				 .level = FO_AUDIT_ADVICE,
				 .change = { { FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_NONE } },
				 .changes = 1,
				 .title = "Activations are recomputed that would fit",
				 .why = "Every recomputed operation runs twice; without recomputation the activations "
					"fit as well." };
	struct fo_job_gain g;
	fo_site_what_if(s, p.change, 1, &g);
	if (fo_gain_fits(&g))
		fo_site_propose(s, &p);
}

static bool ignores_option(const struct fo_site *s)
{
	return fo_site_is(s, FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_FULL) &&
	       fo_job_stated(s->job, FO_JOB_RECOMPUTE_OPTION) && fo_site_form(s, "torchtitan");
}

static void look_ignored(struct fo_site *s)
{
	fo_site_report(s, FO_AUDIT_NOTE, FO_JOB_RECOMPUTE_OPTION, NULL,
		       "The option of selective recomputation is ignored: the mode is full",
		       "It counts only where the mode is selective.", "torchtitan, ActivationCheckpointConfig");
}

/* ---- micro-batch ---- */

static bool small_micro_batch(const struct fo_site *s) { return s->shape->micro_batch > 0; }

/* Larger micro-batches, doubled as long as each doubling fits and gains a hundredth. */
static void look_micro_batch(struct fo_site *s)
{
	if (s->memory->fit != FO_JOB_FITS)
		return;
	struct fo_proposal p = { .setting = FO_JOB_MICRO_BATCH, .level = FO_AUDIT_ADVICE };
	struct fo_job_gain g;
	double best = 1;
	for (double b = 2 * s->shape->micro_batch; b <= 16; b *= 2) {
		struct fo_job_change c[FO_RULE_CHANGES];
		bool grows;
		int n = fo_change_micro_batch(s, b, c, &grows);
		if (!n || (s->shape->pp > 1 &&
			   (grows || s->shape->micro_batches * s->shape->micro_batch / b < 4 * s->shape->pp)))
			break;
		fo_site_what_if(s, c, n, &g);
		bool fits = fo_gain_fits(&g) || (!p.changes && fo_gain_may_fit(&g));
		if (!fits || !fo_range_known(g.times) || fo_range_middle(g.times) < best + 0.01)
			break;
		best = fo_range_middle(g.times);
		memcpy(p.change, c, sizeof c);
		p.changes = n;
		p.why = grows ? "Larger matmuls and one round of communication for more tokens. The batch of a step "
				"grows with it: check the learning rate."
			      : "Larger matmuls and fewer rounds of communication; the batch of a step stays.";
	}
	if (!p.changes)
		return;
	p.setting = p.change[0].setting;
	p.title = fo_site_say(s, "Memory is left for a larger micro-batch: %s of %s are used",
			      fo_site_gb(s, s->memory->total), fo_site_gb(s, s->memory->usable));
	p.source = "BLOOM chronicles 2022: 120 to 130 TFLOP/s from micro-batch 1 to 4 on A100";
	fo_site_propose(s, &p);
}

/* ---- offload ---- */

static bool offloads(const struct fo_site *s)
{
	return fo_site_is(s, FO_JOB_OFFLOAD_OPTIMIZER, 1) || fo_site_is(s, FO_JOB_OFFLOAD_PARAMS, 1);
}

static void look_offload(struct fo_site *s)
{
	bool params = fo_site_is(s, FO_JOB_OFFLOAD_PARAMS, 1);
	struct fo_proposal p = { .level = params ? FO_AUDIT_SERIOUS : FO_AUDIT_ADVICE, .serious = 1.1 };
	if (params)
		p.change[p.changes++] = (struct fo_job_change){ FO_JOB_OFFLOAD_PARAMS, 0 };
	if (fo_site_is(s, FO_JOB_OFFLOAD_OPTIMIZER, 1))
		p.change[p.changes++] = (struct fo_job_change){ FO_JOB_OFFLOAD_OPTIMIZER, 0 };
	struct fo_job_gain g;
	fo_site_what_if(s, p.change, p.changes, &g);
	if (!fo_gain_fits(&g))
		return;
	p.setting = p.change[0].setting;
	p.title = fo_site_say(s, "%s in host memory, although all fits on the devices",
			      params ? "Weights and optimizer are kept" : "The optimizer is kept");
	p.why = fo_site_say(s, "Each step waits for the host's link and processor. Without it a device needs %s of %s.",
			    fo_site_gb(s, g.memory.total), fo_site_gb(s, g.memory.usable));
	p.source = "DeepSpeed documentation, ZeRO-Offload: for models that do not fit otherwise";
	fo_site_propose(s, &p);
}

/* Neither memory nor devices need to be known: keeping all in host memory is the slowest way that works. */
static bool offloads_all_blindly(const struct fo_site *s)
{
	return fo_site_is(s, FO_JOB_OFFLOAD_OPTIMIZER, 1) && s->memory->fit == FO_JOB_FIT_UNKNOWN;
}

static void look_offload_unknown(struct fo_site *s)
{
	bool all = fo_site_is(s, FO_JOB_OFFLOAD_PARAMS, 1);
	fo_site_report(s, FO_AUDIT_ADVICE, FO_JOB_OFFLOAD_OPTIMIZER, "on the device, wherever it fits",
		       all ? "Weights and optimizer live in host memory: the slowest way that works"
			   : "The optimizer lives in host memory",
		       "Each step waits for the host's link and processor; it is right only where nothing else fits. "
		       "--model and --cluster say whether it does.",
		       "DeepSpeed documentation, ZeRO-Offload");
}

static void look_pinned(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_OFFLOAD_PINNED, 0))
		return;
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_OFFLOAD_PINNED,
		.change = { { FO_JOB_OFFLOAD_PINNED, 1 } },
		.changes = 1,
		.title = "Offloaded states lie in memory that is not page-locked",
		.why = "Copies from pageable memory go through a buffer of the driver, at a fraction of "
		       "the link's rate, and block the host.",
		.source = "CUDA C++ best practices guide 12.6, pinned memory"
	};
	fo_site_propose(s, &p);
}

static bool shards_weights(const struct fo_site *s) { return fo_site_is(s, FO_JOB_ZERO, 3); }

static void look_reuse(struct fo_site *s)
{
	bool live = fo_site_is(s, FO_JOB_LIVE_PARAMS, 0), reuse = fo_site_is(s, FO_JOB_REUSE_DISTANCE, 0);
	if (!live && !reuse)
		return;
	struct fo_proposal p = { .level = FO_AUDIT_ADVICE,
				 .setting = live ? FO_JOB_LIVE_PARAMS : FO_JOB_REUSE_DISTANCE,
				 .title = "No gathered weight may be kept: each use gathers it again",
				 .why = "With 0 a layer's weights are released at once, also where backward needs "
					"them next, and none can be prefetched.",
				 .proposed = "1e9, the default of DeepSpeed, as memory allows",
				 .source = "DeepSpeed documentation, stage3_max_live_parameters and "
					   "stage3_max_reuse_distance" };
	p.change[0] = (struct fo_job_change){ FO_JOB_LIVE_PARAMS, 1e9 };
	p.change[1] = (struct fo_job_change){ FO_JOB_REUSE_DISTANCE, 1e9 };
	p.changes = 2;
	p.always = true;
	fo_site_propose(s, &p);
}

static void look_sub_group(struct fo_site *s)
{
	if (fo_job_number(s->job, FO_JOB_SUB_GROUP) < 1e6)
		fo_site_report(s, FO_AUDIT_ADVICE, FO_JOB_SUB_GROUP, "1e9, the default of DeepSpeed",
			       "The optimizer's groups hold hardly any weights",
			       "Each group is copied and updated by itself: small ones make as many small copies.",
			       "DeepSpeed documentation, sub_group_size");
}

static bool bucket_unstated(const struct fo_site *s)
{
	if (!fo_site_trains_all(s))
		return false;
	enum fo_job_origin o = s->job->value[FO_JOB_BUCKET_BYTES].origin;
	return fo_site_form(s, "deepspeed") && (o == FO_JOB_UNKNOWN || o == FO_JOB_DEFAULT);
}

static void look_buckets_unstated(struct fo_site *s)
{
	fo_site_report(s, FO_AUDIT_NOTE, FO_JOB_BUCKET_BYTES, "stated, smaller where memory is short",
		       "Bucket sizes are not stated: their defaults of 5e8 elements take memory",
		       "Each bucket of 5e8 elements takes 1 GB in 16 bits, and buckets are held twice while one is "
		       "reduced.",
		       "DeepSpeed documentation, reduce_bucket_size and allgather_bucket_size");
}

/* DDP's own default is 25 MB; below it a network of several nodes is bound by latency. */
#define BUCKET_LEAST 25e6

static void look_bucket(struct fo_site *s)
{
	double bytes = fo_job_number(s->job, FO_JOB_BUCKET_BYTES);
	if (bytes <= 0 || bytes >= BUCKET_LEAST || !fo_site_spans(s))
		return;
	fo_site_report(s, FO_AUDIT_ADVICE, FO_JOB_BUCKET_BYTES, "100 MB or more",
		       "Buckets of gradients are small for a network between nodes",
		       "A collective of a few megabytes over many nodes is bound by latency rather than by the links.",
		       "PyTorch 2.15, DistributedDataParallel: 25 MB is the default within a node");
}

const struct fo_config_rule fo_config_rules_memory[] = {
	{ .id = "memory-fit",
	  .needs = FO_NEED_MODEL | FO_NEED_DEVICE | FO_NEED_MEMORY,
	  .look = look_fit,
	  .when = "memory of a device by parts is above what is usable; advice where the interval straddles it" },
	{ .id = "recompute-full",
	  .needs = FO_NEED_MEMORY | FO_NEED_STEP,
	  .settings = 1,
	  .setting = { FO_JOB_RECOMPUTE },
	  .look = look_full,
	  .concerns = recomputes_fully,
	  .when = "the job fits, and so does selective or no recomputation instead of full; serious where that is "
		  "certain and surely gains 5 %" },
	{ .id = "recompute-selective",
	  .needs = FO_NEED_MEMORY | FO_NEED_STEP,
	  .settings = 1,
	  .setting = { FO_JOB_RECOMPUTE },
	  .look = look_selective,
	  .concerns = recomputes_partly,
	  .when = "selective recomputation where none fits for certain" },
	{ .id = "recompute-option-ignored",
	  .look = look_ignored,
	  .concerns = ignores_option,
	  .when = "an option of selective recomputation is stated and the mode is full (torchtitan)" },
	{ .id = "micro-batch",
	  .needs = FO_NEED_SHAPE | FO_NEED_MEMORY | FO_NEED_STEP,
	  .look = look_micro_batch,
	  .concerns = small_micro_batch,
	  .when = "the job fits; a micro-batch of twice the size fits, or may, and gains 1 %; not where a "
		  "pipeline would have fewer than four micro-batches a stage" },
	{ .id = "offload",
	  .needs = FO_NEED_MEMORY,
	  .look = look_offload,
	  .concerns = offloads,
	  .when = "states or weights in host memory although all fits on the devices; serious for weights, and "
		  "above 10 %" },
	{ .id = "offload-blind",
	  .look = look_offload_unknown,
	  .concerns = offloads_all_blindly,
	  .when = "the optimizer is in host memory and model or devices are not known" },
	{ .id = "offload-pinned",
	  .settings = 1,
	  .setting = { FO_JOB_OFFLOAD_PINNED },
	  .look = look_pinned,
	  .concerns = offloads,
	  .when = "offloaded states in pageable memory" },
	{ .id = "zero3-reuse",
	  .settings = 2,
	  .setting = { FO_JOB_LIVE_PARAMS, FO_JOB_REUSE_DISTANCE },
	  .forms = "deepspeed",
	  .look = look_reuse,
	  .concerns = shards_weights,
	  .when = "ZeRO-3 with no gathered weights that may live or be reused (0)" },
	{ .id = "zero3-sub-group",
	  .forms = "deepspeed",
	  .settings = 1,
	  .setting = { FO_JOB_SUB_GROUP },
	  .look = look_sub_group,
	  .concerns = offloads,
	  .when = "offloaded weights that the optimizer updates one by one (0, or fewer than a million at once)" },
	{ .id = "buckets-unstated",
	  .forms = "deepspeed",
	  .look = look_buckets_unstated,
	  .concerns = bucket_unstated,
	  .when = "a DeepSpeed file that states no bucket size" },
	{ .id = "bucket-small",
	  .needs = FO_NEED_SHAPE | FO_NEED_DOMAIN,
	  .settings = 1,
	  .setting = { FO_JOB_BUCKET_BYTES },
	  .look = look_bucket,
	  .when = "buckets of gradients below 25 MB on several nodes" },
	{ 0 },
};
