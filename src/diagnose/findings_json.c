/* The keys of a diagnosis' JSON that are advice: docs/formats.md, which has these tables. */
#include "diagnose/diagnose.h"

#include "base/count.h"
#include "base/schema.h"

#include <math.h>

struct window {
	char words[160];
	enum fo_window_origin from;
	int64_t begin_ns, end_ns, span_ns;
};

/* A row whose key is the member's name. */
#define ROW(S, m, ...) FO_FIELD(struct S, m, #m, __VA_ARGS__)

static const struct fo_schema_field evidence_field[] = {
	ROW(fo_evidence, name, "", "kernel, host operator, or \"idle, host in ..., before ...\""),
	FO_FIELD(struct fo_evidence, of, "operator", "", "a kernel's operator and module", .flags = FO_NULLS),
	ROW(fo_evidence, rank, "", "", .flags = FO_NULLS, .absent = -1),
	ROW(fo_evidence, device, "", "its place in the trace; -1: of none"),
	ROW(fo_evidence, begin_ns, "ns", ""),
	ROW(fo_evidence, duration_ns, "ns", ""),
};
static const struct fo_schema evidence_schema = { "", "evidence", FO_FIELDS(struct fo_evidence, evidence_field) };

static const struct fo_schema_field setting_field[] = {
	ROW(fo_setting, framework, "", "whose setting it is"),
	ROW(fo_setting, key, "", "its exact name"),
	ROW(fo_setting, now, "", "its value; null: no trace tells", .flags = FO_NULLS),
	ROW(fo_setting, proposed, "", "what to set"),
	ROW(fo_setting, paste, "", "the line as it is typed; null: there is no one line", .flags = FO_NULLS),
};
static const struct fo_schema setting_schema = { "", "setting", FO_FIELDS(struct fo_setting, setting_field) };

static const struct fo_schema_field finding_field[] = {
	ROW(fo_finding, id, "", "the [rule](diagnosis-rules.md)"),
	FO_FIELD_AS(CHOICE, struct fo_finding, kind, "kind", "", "", .names = fo_finding_kind_name,
		    .elements = FO_FIND_COUNT),
	ROW(fo_finding, serious, "", "makes the exit status 1"),
	FO_FIELD(struct fo_finding, is_bottleneck, "bottleneck", "", ""),
	FO_FIELD(struct fo_finding, is_runner_up, "runner_up", "", ""),
	ROW(fo_finding, title, "", ""),
	ROW(fo_finding, why, "", "the reasons, in sentences"),
	ROW(fo_finding, loss_ns, "ns", "of a step: what would go at best"),
	ROW(fo_finding, ceiling, "", "step time before over after, if all of the loss went; null: it promises nothing"),
	ROW(fo_finding, gain, "", "the same, estimated; null as `ceiling`"),
	ROW(fo_finding, gain_low, "", "the interval of the estimate"),
	ROW(fo_finding, gain_high, "", ""),
	ROW(fo_finding, up_to, "",
	    "the interval is too wide for a middle, or nothing but names speaks for it: only `gain_high` may be said"),
	ROW(fo_finding, nearly_all, "", "the loss is more than nine tenths of the step: no factor is said"),
	ROW(fo_finding, later, "", "alone it gains nothing yet: the launching thread needs that time"),
	FO_FIELD(struct fo_finding, dollars, "dollars_per_hour", "US dollars/h", "of the job, at `gain`"),
	FO_FIELD_LIST(struct fo_finding, setting, settings, &setting_schema, "settings", "to change"),
	FO_FIELD_LIST(struct fo_finding, evidence, evidences, &evidence_schema, "evidence", "at most five events"),
};
static const struct fo_schema finding_schema = { "", "finding", FO_FIELDS(struct fo_finding, finding_field) };

static const struct fo_schema_field bridge_row_field[] = {
	ROW(fo_bridge_row, name, "", ""),
	ROW(fo_bridge_row, share, "", "of the step; rows sum to 1"),
	FO_FIELD(struct fo_bridge_row, dollars, "dollars_per_step", "US dollars", ""),
	ROW(fo_bridge_row, dollars_per_hour, "US dollars/h", ""),
};
static const struct fo_schema bridge_row_schema = { "", "row", FO_FIELDS(struct fo_bridge_row, bridge_row_field) };

static const struct fo_schema_field bridge_field[] = {
	ROW(fo_bridge, known, "", ""),
	ROW(fo_bridge, why_not, "", "where it is not known", .flags = FO_NULLS),
	ROW(fo_bridge, mfu, "", "by `rule`"),
	ROW(fo_bridge, mfu_causal, "", "the same under a causal mask"),
	ROW(fo_bridge, rule, "", "`mfu`, `shapes`"),
	ROW(fo_bridge, flop_per_step, "FLOP", "of one device"),
	FO_FIELD(struct fo_bridge, step_s, "step_seconds", "s", ""),
	ROW(fo_bridge, devices, "", "that share the step"),
	ROW(fo_bridge, device, "", "of the catalogue", .flags = FO_NULLS),
	ROW(fo_bridge, dtype, "", "", .flags = FO_NULLS),
	ROW(fo_bridge, peak_flop_s, "FLOP/s", ""),
	ROW(fo_bridge, peak_source, "", "", .flags = FO_NULLS),
	ROW(fo_bridge, coverage, "", "share of the matmuls' time whose shapes are known"),
	FO_FIELD(struct fo_bridge, steps, "steps_in_window", "", "1, but where the number was given"),
	ROW(fo_bridge, note, "", "why FLOP are not of the given model, or how many steps the window was taken for",
	    .flags = FO_NULLS),
	FO_FIELD_LIST(struct fo_bridge, row, rows, &bridge_row_schema, "rows", "MFU, then what each loss takes"),
};
static const struct fo_schema bridge_schema = { "", "bridge", FO_FIELDS(struct fo_bridge, bridge_field) };

static const struct fo_schema_field product_field[] = {
	ROW(fo_product, m, "", ""),
	ROW(fo_product, n, "", ""),
	ROW(fo_product, k, "", ""),
	ROW(fo_product, batch, "", ""),
	ROW(fo_product, dtype, "", "", .flags = FO_NULLS),
	ROW(fo_product, calls, "", ""),
	ROW(fo_product, time_ns, "ns", "of its kernels over all calls"),
	ROW(fo_product, flop_s, "FLOP/s", ""),
	ROW(fo_product, best_flop_s, "FLOP/s", "of the fastest call"),
	ROW(fo_product, attainable_flop_s, "FLOP/s", "null: no ceiling is known"),
	ROW(fo_product, fill, "", "share of tiles and waves that hold work, estimated"),
	ROW(fo_product, contended, "", "time beside a communication kernel over time without"),
	ROW(fo_product, memory_bound, "", ""),
	ROW(fo_product, warm_up, "", "first calls left out"),
	ROW(fo_product, padded_flop_s, "FLOP/s",
	    "of the same useful FLOP with padded dimensions; null: nothing to pad"),
	ROW(fo_product, few_tiles, "", "units are idle because nothing divides k"),
};
static const struct fo_schema product_schema = { "", "matmul", FO_FIELDS(struct fo_product, product_field) };

static const struct fo_schema_field attention_field[] = {
	ROW(fo_attention_rate, time_ns, "ns", "of a step"),
	ROW(fo_attention_rate, flop, "FLOP", "every pair of tokens counted; null: unknown"),
	ROW(fo_attention_rate, efficiency, "", "share of the dense peak"),
};
static const struct fo_schema attention_schema = { "", "rate", FO_FIELDS(struct fo_attention_rate, attention_field) };

static const struct fo_schema_field kernel_field[] = {
	ROW(fo_kernel_sum, name, "", "short"),
	FO_FIELD_AS(CHOICE, struct fo_kernel_sum, class, "class", "", "", .names = fo_kernel_class_name,
		    .elements = FO_K_COUNT),
	ROW(fo_kernel_sum, calls, "", "in a step"),
	ROW(fo_kernel_sum, ns, "ns", "of a step, durations added up"),
	ROW(fo_kernel_sum, share, "", "of the step"),
};
static const struct fo_schema kernel_schema = { "", "kernel", FO_FIELDS(struct fo_kernel_sum, kernel_field) };

static const struct fo_schema_field unknown_field[] = {
	ROW(fo_unknown, what, "", "what the traces cannot tell"),
	ROW(fo_unknown, flag, "", "what to record them with"),
};
static const struct fo_schema unknown_schema = { "", "unknown", FO_FIELDS(struct fo_unknown, unknown_field) };

static const struct fo_schema_field advice_field[] = {
	FO_FIELD_LIST(struct fo_diagnosis, finding, findings, &finding_schema, "findings",
		      "validity first, then what is serious, then the rest, by gain", .flags = FO_POINTER),
	FO_FIELD_RECORD(struct fo_diagnosis, bridge, &bridge_schema, "bridge", "from the whole step to MFU"),
	FO_FIELD_LIST(struct fo_diagnosis, product, products, &product_schema, "products", "matmuls by shape, by time",
		      .flags = FO_POINTER),
};
const struct fo_schema fo_advice_schema = { "diagnosis.advice", "diagnosis",
					    FO_FIELDS(struct fo_diagnosis, advice_field) };

static const struct fo_schema_field kernels_field[] = {
	FO_FIELD_LIST(struct fo_kernels, v, n, &kernel_schema, "kernels",
		      "the ten names that took most time in the step that is shown (median, or mean where uneven)",
		      .flags = FO_POINTER),
};
const struct fo_schema fo_kernels_schema = { "diagnosis.kernels", "kernels",
					     FO_FIELDS(struct fo_kernels, kernels_field) };

static const struct fo_schema_field verdict_field[] = {
	ROW(fo_diagnosis, framework, "", "whose settings are named", .flags = FO_NULLS),
	FO_FIELD_AS(CHOICE, struct fo_diagnosis, judged, "judgement", "", "", .names = fo_judgement_name,
		    .elements = FO_JUDGED_COUNT),
	FO_FIELD(struct fo_diagnosis, cannot, "cannot_be_diagnosed", "",
		 "why no bottleneck can be named (no GPU work, too little of it)", .flags = FO_NULLS),
	FO_FIELD_LIST(struct fo_diagnosis, unknown, unknowns, &unknown_schema, "unknowns", "", .flags = FO_POINTER),
};
const struct fo_schema fo_verdict_schema = { "diagnosis.verdict", "diagnosis",
					     FO_FIELDS(struct fo_diagnosis, verdict_field) };

static const struct fo_schema_field window_field[] = {
	ROW(window, words, "", "as every output names it"),
	FO_FIELD_AS(CHOICE, struct window, from, "from", "", "as `steps_from`", .names = fo_window_origin_name,
		    .elements = FO_WINDOW_ORIGIN_COUNT),
	ROW(window, begin_ns, "ns", ""),
	ROW(window, end_ns, "ns", ""),
	ROW(window, span_ns, "ns", "of one step where the window holds several"),
};
static const struct fo_schema window_schema = { "", "window", FO_FIELDS(struct window, window_field) };

/* null without GPU work. */
static void window(struct fo_json *j, const struct fo_diagnosis *d)
{
	const struct fo_device_ledger *v = fo_shown_device(d, d->worst);
	struct fo_subject s;
	if (!v) {
		fo_json_raw(j, "window", "null");
		return;
	}
	fo_shown_step_of(v, &s);
	struct window w = { .from = v->from, .begin_ns = s.begin_ns, .end_ns = s.end_ns, .span_ns = s.l.span_ns };
	fo_window_words(w.words, d);
	fo_schema_write(&window_schema, &w, "window", j);
}

void fo_diagnosis_findings_json(struct fo_json *j, const struct fo_diagnosis *d)
{
	struct fo_kernels k;
	window(j, d);
	fo_schema_write_fields(&fo_advice_schema, d, j);
	fo_kernels_of(d, &k);
	k.n = fo_min(k.n, FO_KERNELS_SHOWN);
	fo_schema_write_fields(&fo_kernels_schema, &k, j);
	fo_kernels_fini(&k);
	fo_json_bool(j, "forward_only", d->forward_only);
	fo_schema_write(&attention_schema, &d->attention, "attention", j);
	bool worked = d->utilisation.sentence[0] != 0;
	fo_json_object(j, "utilisation");
	fo_json_real(j, "resident", worked ? d->utilisation.resident : NAN);
	fo_json_real(j, "computing", worked ? d->utilisation.computing : NAN);
	fo_json_text(j, "sentence", d->utilisation.sentence);
	fo_json_close(j);
	fo_schema_write_fields(&fo_verdict_schema, d, j);
}
