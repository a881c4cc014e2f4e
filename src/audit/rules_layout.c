/* Rules about how a layer is divided: tensor, sequence, context and expert parallelism. */
#include "audit/config_int.h"

static bool tensor_parallel(const struct fo_site *s) { return fo_site_over(s, FO_JOB_TP, 1); }

static void look_tensor_across(struct fo_site *s)
{
	double tp = fo_job_number(s->job, FO_JOB_TP);
	if (tp <= s->domain)
		return;
	struct fo_proposal p = {
		.level = FO_AUDIT_SERIOUS,
		.setting = FO_JOB_TP,
		.title = fo_site_say(s, "Tensor parallelism of %.0f leaves the %.0f devices of a fast fabric", tp,
				     s->domain),
		.why = "Tensor parallelism reduces activations four times a layer, and waits for each: "
		       "between nodes that is an order of magnitude slower than within one. Divide the "
		       "rest by pipeline stages or by sharding.",
		.proposed = fo_site_say(s, "at most %.0f", s->domain),
		.source = "Narayanan et al. 2021, section 3: tensor parallelism within a node"
	};
	if (!s->shape->unknown && !s->shape->wrong)
		p.changes = fo_change_layout(s, s->domain, s->shape->pp * tp / s->domain, s->shape->cp, p.change);
	p.always = true;
	if (!fo_site_propose(s, &p)) {
		p.changes = 0;
		fo_site_propose(s, &p);
	}
}

/* The division with less tensor parallelism that gains most and fits for certain; else one that may fit. */
static int less_tensor(const struct fo_site *s, struct fo_job_change *change, double *tp)
{
	const struct fo_job_shape *h = s->shape;
	int best = 0;
	double gain = 1.01;
	for (double t = 1; t < h->tp; t *= 2) {
		struct fo_job_change c[FO_RULE_CHANGES];
		struct fo_job_gain g;
		int n = fo_change_layout(s, t, h->pp, h->cp, c);
		if (h->micro_batch * h->micro_batches < h->tp / t)
			continue; /* more ranks than sequences: the step would grow with them */
		fo_site_what_if(s, c, n, &g);
		if (!fo_gain_fits(&g) || !fo_range_known(g.times) || fo_range_middle(g.times) <= gain)
			continue;
		for (int i = 0; i < n; i++)
			change[i] = c[i];
		gain = fo_range_middle(g.times);
		best = n;
		*tp = t;
	}
	return best;
}

static void look_tensor_more(struct fo_site *s)
{
	double tp = 1;
	struct fo_proposal p = { .level = FO_AUDIT_ADVICE, .setting = FO_JOB_TP };
	p.changes = less_tensor(s, p.change, &tp);
	if (!p.changes)
		return;
	p.title = fo_site_say(s, "Tensor parallelism of %.0f is more than memory asks for", s->shape->tp);
	p.why = "Every layer waits for its tensor-parallel collectives, and narrower matrices fill a device less. "
		"Sharding over the same devices hides its communication behind compute.";
	p.source = "Lambda 2026, Llama-3.1 70B on 16 B200: from 8 to 1, with selective for full recomputation, about "
		   "twice the MFU; BLOOM chronicles: from 8 to 4, 137 to 151 TFLOP/s";
	fo_site_propose(s, &p);
}

static void look_sequence_parallel(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_SEQUENCE_PARALLEL, 0))
		return;
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_SEQUENCE_PARALLEL,
		.change = { { FO_JOB_SEQUENCE_PARALLEL, 1 } },
		.changes = 1,
		.title = "Tensor parallelism without sequence parallelism",
		.why = "Norms, dropout and residuals are computed and kept whole on every device of the "
		       "group. Sequence parallelism divides them at the same volume of communication.",
		.source = "Korthikanti et al. 2022, table 5: with selective instead of full "
			  "recomputation 29 to 32 % more tokens a second"
	};
	p.always = true;
	fo_site_propose(s, &p);
}

static bool sequence_alone(const struct fo_site *s)
{
	return fo_site_is(s, FO_JOB_SEQUENCE_PARALLEL, 1) && fo_job_stated(s->job, FO_JOB_SEQUENCE_PARALLEL);
}

static void look_sequence_alone(struct fo_site *s)
{
	const char *why = "It divides what tensor parallelism leaves whole.", *source = NULL;
	if (fo_site_form(s, "megatron nemo")) {
		why = "It divides what tensor parallelism leaves whole. Megatron-LM turns it off by itself.";
		source = "Megatron-LM, validate_args";
	}
	if (fo_site_is(s, FO_JOB_TP, 1))
		fo_site_report(s, FO_AUDIT_NOTE, FO_JOB_SEQUENCE_PARALLEL, NULL,
			       "Sequence parallelism does nothing: tensor parallel is 1", why, source);
}

/* Async TP of PyTorch needs a compiled model, Transformer Engine's overlap needs sequence parallelism. */
static void look_tensor_overlap(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_TP_OVERLAP, 0))
		return;
	bool titan = fo_site_form(s, "torchtitan"), compiled = !fo_site_is(s, FO_JOB_COMPILE, 0);
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_TP_OVERLAP,
		.change = { { FO_JOB_TP_OVERLAP, 1 } },
		.changes = 1,
		.title = "Matmuls wait for tensor-parallel communication",
		.why = titan && !compiled ? "Asynchronous tensor parallelism moves pieces while the matmul of others "
					    "runs. It works on a compiled model: turn compilation on with it."
					  : "Communication of one piece can run beside the matmul of another.",
		.published = { 1.04, 1.16, "torchtitan, async TP on 64 and 256 H100, June 2025" },
		.source = "torchtitan, benchmarks of Llama-3.1 70B on 256 H100: 829 to 876 tokens/s "
			  "(December 2024), 597 to 652 in bf16 (June 2025)"
	};
	fo_site_propose(s, &p);
}

/* ---- heads and widths ---- */

static void look_heads(struct fo_site *s)
{
	double tp = fo_job_number(s->job, FO_JOB_TP), heads = (double)s->job->model.heads,
	       kv = (double)s->job->model.kv_heads;
	if (heads > 0 && fmod(heads, tp) != 0)
		fo_site_report(s, FO_AUDIT_SERIOUS, FO_JOB_TP, NULL,
			       fo_site_say(s, "%.0f heads cannot be divided by tensor parallel %.0f", heads, tp),
			       "Each device takes whole heads: the job stops when the model is made.", NULL);
	else if (kv > 0 && tp > kv)
		fo_site_report(s, FO_AUDIT_NOTE, FO_JOB_TP, fo_site_say(s, "at most %.0f", kv),
			       fo_site_say(s,
					   "%.0f heads of keys and values on %.0f devices: they are held twice or more",
					   kv, tp),
			       "Keys and values are repeated where there are more devices than heads of them.", NULL);
}

/* Matmuls lose part of their rate where a dimension is no multiple of 64 elements (128 bytes of bf16). */
static void look_width(struct fo_site *s)
{
	double tp = fo_job_or(s->job, FO_JOB_TP, 1), hidden = (double)s->job->model.hidden,
	       ffn = (double)s->job->model.ffn;
	bool narrow = ffn > 0 && fmod(ffn / tp, 64) != 0;
	if (!narrow && fmod(hidden, 64) == 0)
		return;
	fo_site_report(s, FO_AUDIT_NOTE, -1, "widths that are multiples of 64 on every device",
		       fo_site_say(s, "Matrices of %.0f by %.5g on a device are no multiples of 64", hidden, ffn / tp),
		       "Tiles at their edges are computed in full and thrown away in part, and 16-byte loads break.",
		       "BLOOM chronicles 2022: hidden 14,400 against 13,824, 94 to 120 TFLOP/s; NVIDIA, matrix "
		       "multiplication background guide");
}

/* ---- context parallelism ---- */

static bool context_parallel(const struct fo_site *s) { return fo_site_over(s, FO_JOB_CP, 1); }

static void look_context(struct fo_site *s)
{
	struct fo_proposal p = { .level = FO_AUDIT_ADVICE, .setting = FO_JOB_CP };
	struct fo_job_gain g;
	double cp = 1;
	for (; cp < s->shape->cp; cp *= 2) {
		p.changes = fo_change_layout(s, s->shape->tp, s->shape->pp, cp, p.change);
		fo_site_what_if(s, p.change, p.changes, &g);
		if (fo_gain_may_fit(&g))
			break;
	}
	if (cp >= s->shape->cp)
		return;
	p.title = fo_site_say(s, "Context parallelism of %.0f is not needed at %.0f tokens", s->shape->cp,
			      s->shape->seq);
	p.why = fo_site_say(s,
			    "Keys and values travel between the devices of a sequence. With %.0f a device needs %s "
			    "of %s.",
			    cp, fo_site_gb(s, g.memory.total), fo_site_gb(s, g.memory.usable));
	p.source = "Lambda 2026: context parallelism last, after recomputation and tensor parallelism";
	fo_site_propose(s, &p);
}

/* ---- experts ---- */

static bool has_experts(const struct fo_site *s) { return s->job->has_model && s->job->model.experts > 1; }
static bool expert_parallel(const struct fo_site *s) { return fo_site_over(s, FO_JOB_EP, 1); }

/* The largest power of two up to a fabric that divides the experts and the devices of one stage. */
static double expert_degree(const struct fo_site *s)
{
	double best = 1, experts = (double)s->job->model.experts, ranks = s->shape->devices / s->shape->pp;
	for (double ep = 2; ep <= s->domain && ep <= experts; ep *= 2)
		if (fmod(experts, ep) == 0 && fmod(ranks, ep) == 0)
			best = ep;
	return best;
}

static void look_expert_missing(struct fo_site *s)
{
	double ep = expert_degree(s);
	if (!fo_site_is(s, FO_JOB_EP, 1) || ep < 2)
		return;
	bool sliced = fo_site_over(s, FO_JOB_ETP, 1);
	struct fo_proposal p = { .level = FO_AUDIT_ADVICE,
				 .setting = FO_JOB_EP,
				 .change = { { FO_JOB_EP, ep }, { FO_JOB_ETP, 1 } },
				 .changes = sliced ? 2 : 1,
				 .serious = 1.25 };
	p.title = sliced ? fo_site_say(s, "Expert parallel is 1 and each expert is cut into %s thin slices",
				       fo_job_text(s->job, FO_JOB_ETP))
			 : fo_site_say(s, "Expert parallel is 1: every device gathers all %lld experts",
				       (long long)s->job->model.experts);
	p.why = sliced ? "An expert is small already: slices of it fill no device. Whole experts on different devices "
			 "exchange tokens instead."
		       : "The weights of all experts pass through every device for each micro-batch, although a token "
			 "uses few of them. Expert parallelism sends tokens instead.";
	p.source = "Megatron-LM, documentation of mixture of experts: expert parallelism before tensor parallelism";
	p.always = true;
	fo_site_propose(s, &p);
}

/* Large models are trained so on purpose, with kernels that hide much of it (DeepEP); what gains half is a slip. */
#define EXPERT_ACROSS_SERIOUS 1.5

static void look_expert_across(struct fo_site *s)
{
	double ep = fo_job_number(s->job, FO_JOB_EP), etp = fo_job_or(s->job, FO_JOB_ETP, 1), fits = expert_degree(s);
	if (ep * etp <= s->domain || fits < 2)
		return;
	struct fo_proposal p = { .level = FO_AUDIT_ADVICE, .setting = FO_JOB_EP };
	p.change[p.changes++] = (struct fo_job_change){ FO_JOB_EP, fits };
	if (etp > 1)
		p.change[p.changes++] = (struct fo_job_change){ FO_JOB_ETP, 1 };
	struct fo_job_gain g;
	fo_site_what_if(s, p.change, p.changes, &g);
	if (!fo_gain_fits(&g))
		return;
	p.serious = fo_site_is(s, FO_JOB_EP_OVERLAP, 1) ? 0 : EXPERT_ACROSS_SERIOUS;
	p.title = fo_site_say(s, "Expert parallelism of %.0f leaves the %.0f devices of a fast fabric", ep * etp,
			      s->domain);
	p.why = "Tokens travel to their experts and back twice a layer, and each waits for it; within a node memory "
		"suffices.";
	p.source = "Megatron-LM, documentation of mixture of experts";
	fo_site_propose(s, &p);
}

static void look_expert_overlap(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_EP_OVERLAP, 0))
		return;
	struct fo_proposal p = { .level = FO_AUDIT_ADVICE,
				 .setting = FO_JOB_EP_OVERLAP,
				 .change = { { FO_JOB_EP_OVERLAP, 1 } },
				 .changes = 1,
				 .title = "Devices wait while tokens travel to their experts",
				 .why = "The exchange of one micro-batch can run beside the compute of another.",
				 .source = "Megatron-LM, --overlap-moe-expert-parallel-comm and "
					   "--moe-shared-expert-overlap" };
	p.always = true;
	fo_site_propose(s, &p);
}

const struct fo_config_rule fo_config_rules_layout[] = {
	{ .id = "tensor-across-nodes",
	  .needs = FO_NEED_DOMAIN,
	  .settings = 1,
	  .setting = { FO_JOB_TP },
	  .look = look_tensor_across,
	  .concerns = tensor_parallel,
	  .when = "tensor parallel above the devices of a fast fabric (a node, or an NVL72 rack)" },
	{ .id = "tensor-more-than-needed",
	  .needs = FO_NEED_SHAPE | FO_NEED_MEMORY | FO_NEED_STEP,
	  .settings = 1,
	  .setting = { FO_JOB_TP },
	  .look = look_tensor_more,
	  .concerns = tensor_parallel,
	  .when = "less tensor parallelism fits for certain and gains 1 %" },
	{ .id = "sequence-parallel",
	  .settings = 2,
	  .setting = { FO_JOB_TP, FO_JOB_SEQUENCE_PARALLEL },
	  .look = look_sequence_parallel,
	  .concerns = tensor_parallel,
	  .when = "tensor parallelism without sequence parallelism" },
	{ .id = "sequence-parallel-alone",
	  .settings = 1,
	  .setting = { FO_JOB_TP },
	  .look = look_sequence_alone,
	  .concerns = sequence_alone,
	  .when = "sequence parallelism is stated and tensor parallel is 1" },
	{ .id = "tensor-overlap",
	  .forms = "torchtitan megatron nemo",
	  .settings = 2,
	  .setting = { FO_JOB_TP, FO_JOB_TP_OVERLAP },
	  .look = look_tensor_overlap,
	  .concerns = tensor_parallel,
	  .when = "tensor parallelism whose communication does not run beside matmuls" },
	{ .id = "tensor-heads",
	  .needs = FO_NEED_MODEL,
	  .settings = 1,
	  .setting = { FO_JOB_TP },
	  .look = look_heads,
	  .concerns = tensor_parallel,
	  .when = "tensor parallel that does not divide the heads (serious), or is above the heads of keys and "
		  "values (note)" },
	{ .id = "width-padding",
	  .needs = FO_NEED_MODEL,
	  .look = look_width,
	  .when = "hidden or feed-forward size of a device is no multiple of 64" },
	{ .id = "context-parallel",
	  .needs = FO_NEED_SHAPE | FO_NEED_MEMORY | FO_NEED_STEP,
	  .settings = 1,
	  .setting = { FO_JOB_CP },
	  .look = look_context,
	  .concerns = context_parallel,
	  .when = "less context parallelism fits, or may" },
	{ .id = "expert-parallel",
	  .needs = FO_NEED_MODEL | FO_NEED_DOMAIN | FO_NEED_SHAPE,
	  .settings = 1,
	  .setting = { FO_JOB_EP },
	  .look = look_expert_missing,
	  .concerns = has_experts,
	  .when = "experts that are not divided over devices; serious where that surely gains a quarter" },
	{ .id = "expert-across-nodes",
	  .needs = FO_NEED_MODEL | FO_NEED_DOMAIN | FO_NEED_SHAPE | FO_NEED_MEMORY,
	  .settings = 1,
	  .setting = { FO_JOB_EP },
	  .look = look_expert_across,
	  .concerns = expert_parallel,
	  .when = "expert parallelism above the devices of a fast fabric where fewer fit for certain; serious "
		  "without overlap and above 50 %" },
	{ .id = "expert-overlap",
	  .forms = "megatron nemo",
	  .settings = 2,
	  .setting = { FO_JOB_EP, FO_JOB_EP_OVERLAP },
	  .look = look_expert_overlap,
	  .concerns = expert_parallel,
	  .when = "expert parallelism whose exchange does not run beside compute" },
	{ 0 },
};
