/* What an audit of a configuration prints besides its findings: memory and time by parts. */
#include "audit/config_int.h"

#include <string.h>

/* In GiB, as nvidia-smi and PyTorch count. */
static const char *gib(struct fo_doc *d, struct fo_range r)
{
	const double one = 1 << 30;
	if (!fo_range_known(r))
		return "not known";
	int digits = r.high < 9.95 * one;
	const char *low = fo_doc_printf(d, "%.*f", digits, r.low / one),
		   *high = fo_doc_printf(d, "%.*f", digits, r.high / one);
	return strcmp(low, high) ? fo_doc_printf(d, "%s to %s", low, high) : low;
}

static const char *const fit_name[] = { "not known", "fits", "may not fit", "does not fit" };

void fo_audit_memory_verdict(struct fo_doc *d, const struct fo_audit_config *c)
{
	const struct fo_job_memory *m = &c->memory;
	enum fo_doc_tone tone = m->fit == FO_JOB_FITS_NOT ? FO_DOC_BAD : FO_DOC_PLAIN;
	if (fo_range_known(m->total) && fo_range_known(m->usable) && m->unknown && m->fit == FO_JOB_FIT_UNKNOWN)
		fo_doc_verdict(d, tone, "Memory", "not known: %s; %s of %s GiB a device, from all sharded to nothing",
			       m->unknown, gib(d, m->total), gib(d, m->usable));
	else if (!fo_range_known(m->total))
		fo_doc_verdict(d, tone, "Memory", "not known: %s", m->unknown ? m->unknown : "the model");
	else if (!fo_range_known(m->usable))
		fo_doc_verdict(d, tone, "Memory", "%s GiB a device; what it has is not known", gib(d, m->total));
	else
		fo_doc_verdict(d, tone, "Memory", "%s of %s GiB a device: %s", gib(d, m->total), gib(d, m->usable),
			       fit_name[m->fit]);
	if (c->together_ids)
		fo_doc_line(d, "Worth", "%s to %s as fast with %s", fo_doc_num(d, c->together.low, FO_DRAW_FACTOR),
			    fo_doc_num(d, c->together.high, FO_DRAW_FACTOR), c->together_ids);
	if (fo_range_known(m->host) && m->host.high > 0)
		fo_doc_line(d, "Host", "%s GiB of host memory for each device", gib(d, m->host));
}

static void memory_table(struct fo_doc *d, const struct fo_job_memory *m)
{
	fo_doc_table(d, FO_DRAW_FITTED, fo_doc_printf(d, "Memory of a device, GiB (pipeline stage %.0f)", m->stage),
		     "lr", "part", "GiB");
	for (int p = 0; p < FO_PREDICT_MEMORIES; p++)
		fo_doc_row(d, fo_predict_memory_name[p], gib(d, m->part[p]));
	fo_doc_row(d, "sum", gib(d, m->total));
	fo_doc_row(d, "usable", gib(d, m->usable));
}

static const char *percent(struct fo_doc *d, struct fo_range share)
{
	if (!fo_range_known(share))
		return "not known";
	const char *low = fo_doc_printf(d, "%.0f", 100 * share.low), *high = fo_doc_printf(d, "%.0f", 100 * share.high);
	return strcmp(low, high) ? fo_doc_printf(d, "%s to %s %%", low, high) : fo_doc_printf(d, "%s %%", low);
}

static const char *seconds(struct fo_doc *d, struct fo_range r)
{
	const char *low = fo_doc_num(d, r.low, FO_DRAW_SECONDS), *high = fo_doc_num(d, r.high, FO_DRAW_SECONDS);
	return strcmp(low, high) ? fo_doc_printf(d, "%s to %s", low, high) : low;
}

/* MFU counts over the bf16 peak, also where matmuls run in fp8: said then, with the one over the peak of fp8. */
static void mfu_facts(struct fo_doc *d, const struct fo_audit_config *c)
{
	const struct fo_job_step *t = &c->step;
	const struct fo_device *device = c->cluster->device;
	double kind = fo_job_number(c->job, FO_JOB_FP8);
	bool small = kind > FO_JOB_FP8_OFF; /* false where it is not known */
	fo_doc_fact(d, small ? "MFU of the bf16 peak" : "MFU", percent(d, t->mfu),
		    fo_range_known(t->mfu_causal) ? fo_doc_printf(d, "causal attention: %s", percent(d, t->mfu_causal))
						  : NULL);
	double peak = device ? device->dense[FO_PREC_BF16] / device->dense[FO_PREC_FP8] : NAN;
	if (small && kind != FO_JOB_FP4_ON && peak > 0)
		fo_doc_fact(d, "MFU of the fp8 peak", percent(d, fo_range_scaled(peak, t->mfu)), NULL);
}

static void step_table(struct fo_doc *d, const struct fo_audit_config *c)
{
	const struct fo_job_step *t = &c->step;
	fo_doc_table(d, FO_DRAW_FITTED, "Time of a step, predicted (docs/predict.md)", "lrr", "part", "time", "share");
	for (int p = 0; p < FO_PREDICT_PARTS; p++)
		if (!fo_range_known(t->part[p]) || t->part[p].high > 0)
			fo_doc_row(d, fo_predict_part_name[p],
				   fo_range_known(t->part[p]) ? seconds(d, t->part[p]) : "not known",
				   percent(d, t->share[p]));
	fo_doc_row(d, "step", seconds(d, t->total), "");
	fo_doc_fact(d, "tokens/s for each device", fo_doc_printf(d, "%.0f to %.0f", t->tokens_s.low, t->tokens_s.high),
		    "estimate, not measured");
	mfu_facts(d, c);
}

void fo_audit_config_tables(struct fo_doc *d, const struct fo_audit_config *c)
{
	if (fo_range_known(c->memory.total))
		memory_table(d, &c->memory);
	if (fo_range_known(c->step.total))
		step_table(d, c);
}

/* ---- as JSON ---- */

static void range_json(struct fo_json *j, const char *key, struct fo_range r)
{
	fo_json_record(j, key, FO_REAL("low", r.low), FO_REAL("high", r.high));
}

static void memory_json(struct fo_json *j, const struct fo_job_memory *m)
{
	fo_json_object(j, "memory");
	fo_json_text(j, "fit", fit_name[m->fit]);
	fo_json_text(j, "unknown", m->unknown);
	range_json(j, "total_bytes", m->total);
	range_json(j, "usable_bytes", m->usable);
	range_json(j, "host_bytes", m->host);
	fo_json_object(j, "parts");
	for (int p = 0; p < FO_PREDICT_MEMORIES; p++)
		range_json(j, fo_predict_memory_name[p], m->part[p]);
	fo_json_close(j);
	fo_json_close(j);
}

static void step_json(struct fo_json *j, const struct fo_job_step *t)
{
	fo_json_object(j, "step");
	fo_json_text(j, "unknown", t->unknown);
	range_json(j, "seconds", t->total);
	range_json(j, "tokens_per_second_per_device", t->tokens_s);
	range_json(j, "mfu", t->mfu);
	range_json(j, "mfu_causal", t->mfu_causal);
	fo_json_object(j, "parts");
	for (int p = 0; p < FO_PREDICT_PARTS; p++)
		range_json(j, fo_predict_part_name[p], t->part[p]);
	fo_json_close(j);
	fo_json_object(j, "shares");
	for (int p = 0; p < FO_PREDICT_PARTS; p++)
		range_json(j, fo_predict_part_name[p], t->share[p]);
	fo_json_close(j);
	fo_json_close(j);
}

void fo_audit_config_json(struct fo_json *j, const struct fo_audit_config *c)
{
	const struct fo_job *job = c->job;
	const struct fo_job_shape *h = &c->shape;
	fo_json_text(j, "form", job->form ? job->form->id : NULL);
	fo_json_text(j, "release", job->form ? job->form->release : NULL);
	fo_json_text(j, "model", job->has_model ? job->model.name : NULL);
	fo_json_text(j, "device", c->cluster->device ? c->cluster->device->name : NULL);
	fo_json_object(j, "shape");
	fo_json_text(j, "unknown", h->unknown);
	fo_json_text(j, "wrong", h->wrong);
	fo_json_put(j, FO_REAL("devices", h->devices), FO_REAL("tensor", h->tp), FO_REAL("pipeline", h->pp),
		    FO_REAL("chunks", h->chunks), FO_REAL("context", h->cp), FO_REAL("expert", h->ep),
		    FO_REAL("data", h->dp), FO_REAL("replicate", h->replicate), FO_REAL("shard", h->shard),
		    FO_REAL("micro_batch", h->micro_batch), FO_REAL("micro_batches", h->micro_batches),
		    FO_REAL("global_batch", h->global_batch), FO_REAL("seq", h->seq), FO_REAL("tokens", h->tokens));
	fo_json_close(j);
	fo_json_record(j, "together", FO_REAL("low", c->together.low), FO_REAL("high", c->together.high),
		       FO_TEXT("findings", c->together_ids));
	memory_json(j, &c->memory);
	step_json(j, &c->step);
}
