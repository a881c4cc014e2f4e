/* The keys of a diagnosis' JSON that are advice: docs/formats.md. */
#include "diagnose/diagnose.h"

#include "base/json.h"

#include <math.h>

static void evidence(struct fo_json *j, const struct fo_finding *f)
{
	fo_json_array(j, "evidence");
	for (int i = 0; i < f->evidences; i++) {
		const struct fo_evidence *e = &f->evidence[i];
		fo_json_object(j, NULL);
		fo_json_text(j, "name", e->name);
		fo_json_text(j, "operator", e->of[0] ? e->of : NULL);
		if (e->rank >= 0)
			fo_json_int(j, "rank", e->rank);
		else
			fo_json_raw(j, "rank", "null");
		fo_json_int(j, "device", e->device);
		fo_json_int(j, "begin_ns", e->begin_ns);
		fo_json_int(j, "duration_ns", e->duration_ns);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void settings(struct fo_json *j, const struct fo_finding *f)
{
	fo_json_array(j, "settings");
	for (int i = 0; i < f->settings; i++) {
		const struct fo_setting *s = &f->setting[i];
		fo_json_object(j, NULL);
		fo_json_text(j, "framework", s->framework);
		fo_json_text(j, "key", s->key);
		fo_json_text(j, "now", s->now[0] ? s->now : NULL);
		fo_json_text(j, "proposed", s->proposed);
		fo_json_text(j, "paste", s->paste[0] ? s->paste : NULL);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void finding(struct fo_json *j, const struct fo_finding *f)
{
	fo_json_object(j, NULL);
	fo_json_text(j, "id", f->id);
	fo_json_text(j, "kind", fo_finding_kind_name[f->kind]);
	fo_json_bool(j, "serious", f->serious);
	fo_json_bool(j, "bottleneck", f->is_bottleneck);
	fo_json_bool(j, "runner_up", f->is_runner_up);
	fo_json_text(j, "title", f->title);
	fo_json_text(j, "why", f->why);
	fo_json_int(j, "loss_ns", f->loss_ns);
	fo_json_real(j, "ceiling", f->ceiling);
	fo_json_real(j, "gain", f->gain);
	fo_json_real(j, "gain_low", f->gain_low);
	fo_json_real(j, "gain_high", f->gain_high);
	fo_json_bool(j, "up_to", f->up_to);
	fo_json_bool(j, "nearly_all", f->nearly_all);
	fo_json_bool(j, "later", f->later);
	fo_json_real(j, "dollars_per_hour", f->dollars);
	settings(j, f);
	evidence(j, f);
	fo_json_close(j);
}

static void bridge(struct fo_json *j, const struct fo_bridge *b)
{
	fo_json_object(j, "bridge");
	fo_json_bool(j, "known", b->known);
	fo_json_text(j, "why_not", b->known ? NULL : b->why_not);
	fo_json_real(j, "mfu", b->known ? b->mfu : NAN);
	fo_json_real(j, "mfu_causal", b->known ? b->mfu_causal : NAN);
	fo_json_text(j, "rule", b->rule);
	fo_json_real(j, "flop_per_step", b->known ? b->flop_per_step : NAN);
	fo_json_real(j, "step_seconds", b->step_s > 0 ? b->step_s : NAN);
	fo_json_int(j, "devices", b->devices);
	fo_json_text(j, "device", b->device[0] ? b->device : NULL);
	fo_json_text(j, "dtype", b->dtype[0] ? b->dtype : NULL);
	fo_json_real(j, "peak_flop_s", b->peak_flop_s);
	fo_json_text(j, "peak_source", b->peak_source[0] ? b->peak_source : NULL);
	fo_json_real(j, "coverage", b->coverage);
	fo_json_real(j, "steps_in_window", b->steps);
	fo_json_text(j, "note", b->note[0] ? b->note : NULL);
	fo_json_array(j, "rows");
	for (int i = 0; i < b->rows; i++) {
		fo_json_object(j, NULL);
		fo_json_text(j, "name", b->row[i].name);
		fo_json_real(j, "share", b->row[i].share);
		fo_json_real(j, "dollars_per_step", b->row[i].dollars);
		fo_json_real(j, "dollars_per_hour", b->row[i].dollars_per_hour);
		fo_json_close(j);
	}
	fo_json_close(j);
	fo_json_close(j);
}

static void products(struct fo_json *j, const struct fo_diagnosis *d)
{
	fo_json_array(j, "products");
	for (int64_t i = 0; i < d->products; i++) {
		const struct fo_product *p = &d->product[i];
		fo_json_object(j, NULL);
		fo_json_int(j, "m", p->m);
		fo_json_int(j, "n", p->n);
		fo_json_int(j, "k", p->k);
		fo_json_int(j, "batch", p->batch);
		fo_json_text(j, "dtype", p->dtype[0] ? p->dtype : NULL);
		fo_json_int(j, "calls", p->calls);
		fo_json_int(j, "time_ns", p->time_ns);
		fo_json_real(j, "flop_s", p->flop_s);
		fo_json_real(j, "best_flop_s", p->best_flop_s);
		fo_json_real(j, "attainable_flop_s", p->attainable_flop_s);
		fo_json_real(j, "fill", p->fill);
		fo_json_real(j, "contended", p->contended);
		fo_json_bool(j, "memory_bound", p->memory_bound);
		fo_json_int(j, "warm_up", p->warm_up);
		fo_json_real(j, "padded_flop_s", p->padded_flop_s);
		fo_json_bool(j, "few_tiles", p->few_tiles);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void kernels(struct fo_json *j, const struct fo_diagnosis *d)
{
	struct fo_kernels k;
	fo_kernels_of(d, &k);
	fo_json_array(j, "kernels");
	for (int64_t i = 0; i < k.n && i < FO_KERNELS_SHOWN; i++) {
		fo_json_object(j, NULL);
		fo_json_text(j, "name", k.v[i].name);
		fo_json_text(j, "class", fo_kernel_class_name[k.v[i].class]);
		fo_json_real(j, "calls", k.v[i].calls);
		fo_json_int(j, "ns", k.v[i].ns);
		fo_json_real(j, "share", (double)k.v[i].ns / (double)k.span_ns);
		fo_json_close(j);
	}
	fo_json_close(j);
	fo_kernels_fini(&k);
}

/* null without GPU work. */
static void window(struct fo_json *j, const struct fo_diagnosis *d)
{
	const struct fo_device_ledger *v = fo_shown_device(d, d->worst);
	struct fo_subject s;
	char words[160];
	if (!v) {
		fo_json_raw(j, "window", "null");
		return;
	}
	fo_shown_step_of(v, &s);
	fo_json_object(j, "window");
	fo_json_text(j, "words", fo_window_words(words, d));
	fo_json_text(j, "from", fo_window_origin_name[v->from]);
	fo_json_int(j, "begin_ns", s.begin_ns);
	fo_json_int(j, "end_ns", s.end_ns);
	fo_json_int(j, "span_ns", s.l.span_ns);
	fo_json_close(j);
}

void fo_diagnosis_findings_json(struct fo_json *j, const struct fo_diagnosis *d)
{
	window(j, d);
	fo_json_array(j, "findings");
	for (int64_t i = 0; i < d->findings; i++)
		finding(j, &d->finding[i]);
	fo_json_close(j);
	bridge(j, &d->bridge);
	products(j, d);
	kernels(j, d);
	fo_json_bool(j, "forward_only", d->forward_only);
	fo_json_object(j, "attention");
	fo_json_int(j, "time_ns", d->attention.time_ns);
	fo_json_real(j, "flop", d->attention.flop);
	fo_json_real(j, "efficiency", d->attention.efficiency);
	fo_json_close(j);
	fo_json_object(j, "utilisation");
	bool worked = d->utilisation.sentence[0] != 0;
	fo_json_real(j, "resident", worked ? d->utilisation.resident : NAN);
	fo_json_real(j, "computing", worked ? d->utilisation.computing : NAN);
	fo_json_text(j, "sentence", d->utilisation.sentence);
	fo_json_close(j);
	fo_json_text(j, "framework", d->framework[0] ? d->framework : NULL);
	fo_json_text(j, "judgement", fo_judgement_name[d->judged]);
	fo_json_text(j, "cannot_be_diagnosed", d->cannot[0] ? d->cannot : NULL);
	fo_json_array(j, "unknowns");
	for (int64_t i = 0; i < d->unknowns; i++) {
		fo_json_object(j, NULL);
		fo_json_text(j, "what", d->unknown[i].what);
		fo_json_text(j, "flag", d->unknown[i].flag);
		fo_json_close(j);
	}
	fo_json_close(j);
}
