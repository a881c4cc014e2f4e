/* flatout compare of traces: before and after row by row, and what the difference consists of. */
#include "cli/compare.h"

#include "cli/cli.h"
#include "report/traces_versus.h"

#include <math.h>
#include <string.h>

/* ---- JSON ---- */

static void json_spread(struct fo_json *j, const char *key, double mean, const struct fo_spread *s)
{
	fo_json_record(j, key, FO_REAL("mean", mean), FO_REAL("median", s->n ? s->median : NAN),
		       FO_REAL("lower_quartile", s->n ? s->low : NAN), FO_REAL("upper_quartile", s->n ? s->high : NAN));
}

static void json_figure(struct fo_json *j, const struct fo_traces_figure *f)
{
	json_spread(j, "a_seconds", f->mean[0], &f->time[0]);
	json_spread(j, "b_seconds", f->mean[1], &f->time[1]);
	fo_json_put(j, FO_REAL("difference_seconds", f->difference), FO_BOOL("resolved", f->resolved));
}

static void json_side(struct fo_json *j, const char *key, const struct fo_traces_side *s, const char *path)
{
	fo_json_record(j, key, FO_TEXT("path", path), FO_INT("ranks", s->d->ranks), FO_INT("rank", s->rank->rank),
		       FO_INT("device", s->rank->trace->device[s->device->device].id),
		       FO_TEXT("steps_from", fo_window_origin_name[s->device->from]), FO_INT("steps", s->device->steps),
		       FO_REAL("mfu", s->mfu), FO_REAL("utilisation", s->utilisation),
		       FO_REAL("gpu_operations", s->ops));
}

static void json_lists(const struct fo_traces_versus *v, struct fo_json *j)
{
	fo_json_array(j, "kernels");
	for (int64_t i = 0; i < v->kernels; i++) {
		fo_json_object(j, NULL);
		fo_json_put(j, FO_TEXT("name", v->kernel[i].name),
			    FO_TEXT("class", fo_kernel_class_name[v->kernel[i].class]),
			    FO_REAL("a_calls", v->kernel[i].calls[0]), FO_REAL("b_calls", v->kernel[i].calls[1]));
		json_figure(j, &v->kernel[i].f);
		fo_json_close(j);
	}
	fo_json_close(j);
	fo_json_array(j, "collectives");
	for (int64_t i = 0; i < v->collectives; i++) {
		const struct fo_traces_collective *c = &v->collective[i];
		fo_json_record(j, NULL, FO_TEXT("name", c->name), FO_INT("group_size", c->group_size),
			       FO_REAL("a_calls", c->calls[0]), FO_REAL("b_calls", c->calls[1]),
			       FO_REAL("a_bytes", c->bytes[0]), FO_REAL("b_bytes", c->bytes[1]),
			       FO_REAL("a_seconds", c->time[0]), FO_REAL("b_seconds", c->time[1]));
	}
	fo_json_close(j);
	fo_json_array(j, "products");
	for (int64_t i = 0; i < v->products; i++) {
		const struct fo_traces_product *p = &v->product[i];
		const struct fo_product *q = p->in[0] ? p->in[0] : p->in[1];
		fo_json_record(j, NULL, FO_INT("m", q->m), FO_INT("n", q->n), FO_INT("k", q->k),
			       FO_INT("batch", q->batch), FO_TEXT("dtype", q->dtype),
			       FO_INT("a_calls", p->in[0] ? p->in[0]->calls : 0),
			       FO_INT("b_calls", p->in[1] ? p->in[1]->calls : 0),
			       FO_REAL("a_call_seconds", p->call_s[0]), FO_REAL("b_call_seconds", p->call_s[1]));
	}
	fo_json_close(j);
}

static void json_waits(const struct fo_diagnosis *d, struct fo_json *j, const char *key)
{
	fo_json_array(j, key);
	for (int i = 0; i < d->waits; i++)
		fo_json_record(j, NULL, FO_INT("rank", d->wait[i].rank), FO_INT("device", d->wait[i].device),
			       FO_REAL("wait_seconds", (double)d->wait[i].wait_ns * 1e-9),
			       FO_REAL("transfer_seconds", (double)d->wait[i].transfer_ns * 1e-9),
			       FO_INT("last", d->wait[i].last));
	fo_json_close(j);
}

static void write_json(const struct fo_traces_versus *v, const char *const path[2], struct fo_json *j)
{
	fo_json_text(j, "of", "traces");
	json_side(j, "a", &v->side[0], path[0]);
	json_side(j, "b", &v->side[1], path[1]);
	fo_json_put(j, FO_BOOL("steps_on_both_sides", v->windows),
		    FO_BOOL("step_time_resolved", v->part[0].f.resolved));
	fo_json_array(j, "parts");
	for (int i = 0; i < v->parts; i++) {
		fo_json_object(j, NULL);
		fo_json_put(j, FO_TEXT("part", v->part[i].id), FO_BOOL("leaf", v->part[i].leaf));
		json_figure(j, &v->part[i].f);
		fo_json_close(j);
	}
	fo_json_close(j);
	json_lists(v, j);
	json_waits(v->side[0].d, j, "a_waits");
	json_waits(v->side[1].d, j, "b_waits");
	fo_json_array(j, "causes");
	for (int64_t i = 0; i < v->causes; i++)
		fo_json_text(j, NULL, v->cause[i]);
	fo_json_close(j);
}

/* ---- both ---- */

static fo_status compare(const struct fo_diagnosis *a, const struct fo_diagnosis *b, const char *const path[2],
			 const struct fo_cli_call *call)
{
	const struct fo_cli_compare *in = call->in;
	struct fo_traces_versus v;
	fo_traces_versus_make(&v, a, b);
	fo_status st = FO_OK;
	for (int k = 0; k < 2 && st == FO_OK; k++)
		if (!v.side[k].rank)
			st = fo_hint(fo_fail(FO_EARG, "'%s' has no GPU operations: nothing to compare", path[k]),
				     "'flatout diagnose' says what is in a trace");
	if (st == FO_OK) {
		struct fo_doc d = { 0 };
		fo_traces_versus_doc(&v, path, in->all, &d);
		if (call->json)
			write_json(&v, path, call->json);
		st = fo_cli_publish(&d, in->html, in->json);
		fo_doc_fini(&d);
	}
	fo_traces_versus_fini(&v);
	return st;
}

fo_status fo_cli_compare_traces(const struct fo_cli_call *call, const char *const path[2])
{
	const struct fo_cli_compare *in = call->in;
	const struct fo_diagnose_options o = { .model = in->model,
					       .device = in->device,
					       .seq = in->seq,
					       .tokens_per_step = in->tokens_per_step,
					       .price_per_hour = NAN };
	struct fo_trace_set set[2];
	struct fo_diagnosis d[2];
	fo_status st;
	FO_TRY(fo_trace_set_open(&set[0], &path[0], 1));
	FO_TRY_OR(st, fo_trace_set_open(&set[1], &path[1], 1), done_0);
	FO_TRY_OR(st, fo_diagnose(&d[0], &set[0], &o), done_1);
	FO_TRY_OR(st, fo_diagnose(&d[1], &set[1], &o), done_d);
	st = compare(&d[0], &d[1], path, call);
	fo_diagnosis_fini(&d[1]);
done_d:
	fo_diagnosis_fini(&d[0]);
done_1:
	fo_trace_set_fini(&set[1]);
done_0:
	fo_trace_set_fini(&set[0]);
	return st;
}
