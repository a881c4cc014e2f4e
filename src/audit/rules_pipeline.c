/* Rules about pipelines: bubbles, chunks, micro-batches. */
#include "audit/config_int.h"

#include <stdlib.h>
#include <string.h>

static bool pipeline(const struct fo_site *s) { return fo_site_over(s, FO_JOB_PP, 1); }

/* Share of a step that stages wait: (p - 1) / (v m + p - 1) of 1F1B and its interleaved form (Narayanan et al. 2021,
 * section 2.2), less where the schedule fills it. */
static double bubble(double stages, double chunks, double micro_batches)
{
	return (stages - 1) / (chunks * micro_batches + stages - 1);
}
#define BUBBLE_SERIOUS 0.25 /* a quarter of all devices at a time */
#define BUBBLE_ADVICE 0.03  /* below it other things matter more */
#define BUBBLE_NOTE 0.01

static double chunks_now(const struct fo_site *s) { return s->shape->chunks > 0 ? s->shape->chunks : 1; }

static bool fills_bubble(const struct fo_site *s)
{
	return fo_site_is(s, FO_JOB_PP_SCHEDULE, FO_JOB_SCHEDULE_ZERO_BUBBLE);
}

/* Most chunks that divide a stage's layers, at least two layers each: smaller ones only add transfers. torchtitan's
 * schedule has two, and Megatron counts embedding and head as layers where these alone do not divide. */
static double most_chunks(const struct fo_site *s)
{
	double layers = s->job->has_model ? ceil((double)s->job->model.layers / s->shape->pp) : NAN,
	       best = chunks_now(s);
	if (fo_site_form(s, "torchtitan"))
		return fmax(best, layers >= 4 ? 2 : 1);
	for (double v = best + 1; 2 * v <= layers && v <= 12; v++)
		if (fmod(layers, v) == 0)
			best = v;
	return best;
}

static int more_chunks(const struct fo_site *s, double chunks, struct fo_job_change *out)
{
	int n = 0;
	out[n++] = (struct fo_job_change){ FO_JOB_PP_VIRTUAL, chunks };
	if (!fo_site_is(s, FO_JOB_PP_SCHEDULE, FO_JOB_SCHEDULE_INTERLEAVED))
		out[n++] = (struct fo_job_change){ FO_JOB_PP_SCHEDULE, FO_JOB_SCHEDULE_INTERLEAVED };
	return n;
}

static void look_bubble(struct fo_site *s)
{
	const struct fo_job_shape *h = s->shape;
	double share = bubble(h->pp, chunks_now(s), h->micro_batches), chunks = most_chunks(s);
	if (share < BUBBLE_NOTE || fills_bubble(s) || (share < BUBBLE_ADVICE && chunks == chunks_now(s)))
		return;
	enum fo_audit_level level = share < BUBBLE_ADVICE ? FO_AUDIT_NOTE : FO_AUDIT_ADVICE;
	struct fo_proposal p = {
		.level = share > BUBBLE_SERIOUS ? FO_AUDIT_SERIOUS : level,
		.setting = FO_JOB_PP,
		.title = fo_site_say(s, "The pipeline's stages wait for %.*f %% of each step", share < 0.1,
				     100 * share),
		.why = fo_site_say(s, "%.0f stages of %.0f chunk%s and %.0f micro-batches: (p - 1) / (v m + p - 1).",
				   h->pp, chunks_now(s), fo_plural(chunks_now(s)), h->micro_batches),
		.source = "Narayanan et al. 2021, section 2.2; torchtitan, Llama-3.1 405B on 512 H100: 100 to "
			  "128 tokens/s "
			  "from 1F1B to interleaved 1F1B",
		.always = true,
	};
	if (chunks > chunks_now(s)) {
		p.setting = fo_site_form(s, "torchtitan") ? FO_JOB_PP_SCHEDULE : FO_JOB_PP_VIRTUAL;
		p.changes = more_chunks(s, chunks, p.change);
		p.proposed = fo_site_say(s, "%.0f chunks, interleaved: then %.1f %%", chunks,
					 100 * bubble(h->pp, chunks, h->micro_batches));
		p.published = (struct fo_published){ (1 - bubble(h->pp, chunks, h->micro_batches)) / (1 - share),
						     (1 - bubble(h->pp, chunks, h->micro_batches)) / (1 - share),
						     "the bubble's formula" };
	} else {
		p.proposed = "more micro-batches a step, or fewer stages";
	}
	if (!fo_site_propose(s, &p)) {
		p.changes = 0;
		p.proposed = "more micro-batches a step, or fewer stages";
		fo_site_propose(s, &p);
	}
}

static void look_few(struct fo_site *s)
{
	const struct fo_job_shape *h = s->shape;
	if (h->micro_batches >= h->pp)
		return;
	fo_site_report(
		s, FO_AUDIT_SERIOUS, FO_JOB_PP, fo_site_say(s, "at least %.0f micro-batches", 4 * h->pp),
		fo_site_say(s, "%.0f micro-batches do not fill %.0f pipeline stages", h->micro_batches, h->pp),
		fo_site_say(s, "Even in the best moment only %.0f of %.0f stages have work.", h->micro_batches, h->pp),
		"Narayanan et al. 2021, section 2.2");
}

/* A ramp's first batch: "0:16 2.4B:320 ..." or "16 16 5859375"; NAN: not readable. */
static double ramp_start(const char *text)
{
	const char *colon = text ? strchr(text, ':') : NULL;
	char *end;
	double v = text ? strtod(colon ? colon + 1 : text + strspn(text, "\"' ["), &end) : NAN;
	return v >= 1 ? v : NAN;
}

static bool ramps(const struct fo_site *s) { return s->job->value[FO_JOB_BATCH_RAMP].text != NULL; }

static void look_ramp(struct fo_site *s)
{
	double first = ramp_start(s->job->value[FO_JOB_BATCH_RAMP].text);
	const struct fo_job_shape *h = s->shape;
	bool shape = !h->unknown && !h->wrong && h->pp > 1 && !isnan(first);
	double m = shape ? fmax(1, first / (h->dp * h->micro_batch)) : NAN,
	       share = shape ? bubble(h->pp, chunks_now(s), m) : 0;
	if (share > 2 * BUBBLE_ADVICE)
		fo_site_report(s, FO_AUDIT_ADVICE, FO_JOB_BATCH_RAMP,
			       fo_site_say(s, "begin at %.0f or more, or with fewer stages",
					   4 * h->pp * h->dp * h->micro_batch),
			       fo_site_say(s, "The batch begins at %.0f: stages then wait for %.0f %% of a step", first,
					   100 * share),
			       fo_site_say(s, "%.0f micro-batches in %.0f stages until the batch grows.", m, h->pp),
			       "Narayanan et al. 2021, section 2.2");
	else
		fo_site_report(s, FO_AUDIT_NOTE, FO_JOB_BATCH_RAMP, NULL, "The batch of a step grows during the run",
			       "Throughput and memory of the first steps are not those of the last: measure at the "
			       "full batch.",
			       NULL);
}

static void look_overlap(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_PP_OVERLAP, 0))
		return;
	struct fo_proposal p = {
		.level = FO_AUDIT_ADVICE,
		.setting = FO_JOB_PP_OVERLAP,
		.change = { { FO_JOB_PP_OVERLAP, 1 } },
		.changes = 1,
		.title = "Stages wait for the transfers between them",
		.why = "With interleaved chunks a transfer can run beside the compute of another chunk.",
		.source = "Megatron-LM, --overlap-p2p-communication (on by default with interleaving)"
	};
	p.always = true;
	fo_site_propose(s, &p);
}

static bool interleaved(const struct fo_site *s) { return pipeline(s) && fo_site_over(s, FO_JOB_PP_VIRTUAL, 1); }

static void look_layers(struct fo_site *s)
{
	double layers = (double)s->job->model.layers, pp = fo_job_number(s->job, FO_JOB_PP),
	       v = fo_job_or(s->job, FO_JOB_PP_VIRTUAL, 1);
	if (fmod(layers, pp * v) == 0 || s->shape->first_layers + s->shape->middle_layers > 0)
		return;
	double most = ceil(layers / (pp * v)) * v;
	fo_site_report(
		s, FO_AUDIT_NOTE, FO_JOB_PP, NULL,
		fo_site_say(s, "%.0f layers do not divide into %.0f stages of %.0f chunk%s", layers, pp, v,
			    fo_plural(v)),
		fo_site_say(s,
			    "The fullest stage has about %.0f layers where %.5g would be even, unless embedding and "
			    "head make up for it; some frameworks refuse it.",
			    most, layers / pp),
		NULL);
}

/* Sharding over very many nodes gathers all weights through the network for each micro-batch. */
#define NODES_FOR_STAGES 16.0

static bool wide_sharding(const struct fo_site *s)
{
	return fo_site_is(s, FO_JOB_ZERO, 3) && fo_site_is(s, FO_JOB_PP, 1) && fo_site_spans(s) &&
	       s->shape->devices / s->domain >= NODES_FOR_STAGES;
}

static void look_missing(struct fo_site *s)
{
	struct fo_proposal best = { .level = FO_AUDIT_NOTE, .setting = FO_JOB_PP };
	struct fo_job_gain g;
	double gain = 1.05;
	const struct fo_job_shape *h = s->shape;
	for (double pp = 2; pp <= 16; pp *= 2) {
		struct fo_job_change c[FO_RULE_CHANGES];
		if (fmod((double)s->job->model.layers, pp) != 0 && (double)s->job->model.layers / pp < 8)
			break;
		int n = fo_change_layout(s, h->tp, pp, h->cp, c);
		fo_site_what_if(s, c, n, &g);
		if (!fo_gain_fits(&g) || !fo_range_known(g.times) || g.times.low <= gain)
			continue;
		gain = g.times.low;
		memcpy(best.change, c, sizeof c);
		best.changes = n;
	}
	if (!best.changes)
		return;
	best.title = fo_site_say(s, "All weights pass through the network between %.0f nodes for every micro-batch",
				 ceil(h->devices / s->domain));
	best.why = "Stages keep their weights and exchange activations only. It needs many micro-batches a step.";
	best.source = "torchtitan, Llama-3.1 405B on 512 H100: sharding 8 x tensor 8 x pipeline 8";
	fo_site_propose(s, &best);
}

const struct fo_config_rule fo_config_rules_pipeline[] = {
	{ .id = "pipeline-bubble",
	  .needs = FO_NEED_SHAPE,
	  .settings = 1,
	  .setting = { FO_JOB_PP },
	  .look = look_bubble,
	  .concerns = pipeline,
	  .when = "stages wait for 3 % of a step or more by (p - 1) / (v m + p - 1), serious above 25 %, a "
		  "note from 1 % where "
		  "chunks can be smaller; not for zero-bubble schedules" },
	{ .id = "pipeline-micro-batches",
	  .needs = FO_NEED_SHAPE,
	  .settings = 1,
	  .setting = { FO_JOB_PP },
	  .look = look_few,
	  .concerns = pipeline,
	  .when = "fewer micro-batches a step than pipeline stages" },
	{ .id = "batch-ramp",
	  .look = look_ramp,
	  .concerns = ramps,
	  .when = "the batch grows during the run; advice where its first size leaves stages waiting for 6 % or more" },
	{ .id = "pipeline-overlap",
	  .settings = 2,
	  .setting = { FO_JOB_PP, FO_JOB_PP_OVERLAP },
	  .look = look_overlap,
	  .concerns = interleaved,
	  .when = "interleaved stages whose transfers do not run beside compute" },
	{ .id = "pipeline-layers",
	  .needs = FO_NEED_MODEL,
	  .settings = 1,
	  .setting = { FO_JOB_PP },
	  .look = look_layers,
	  .concerns = pipeline,
	  .when = "layers that do not divide into stages and chunks (note)" },
	{ .id = "pipeline-missing",
	  .needs = FO_NEED_MODEL | FO_NEED_SHAPE | FO_NEED_DOMAIN | FO_NEED_MEMORY | FO_NEED_STEP,
	  .settings = 2,
	  .setting = { FO_JOB_PP, FO_JOB_ZERO },
	  .look = look_missing,
	  .concerns = wide_sharding,
	  .when = "weights sharded over 16 nodes or more without stages, where stages fit and surely gain 5 % (note)" },
	{ 0 },
};
