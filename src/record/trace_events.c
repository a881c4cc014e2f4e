#include "record/trace_events.h"
#include "base/json.h"

#include <inttypes.h>
#include <stdio.h>

enum { PIECE = 1 << 20, STEPS_THREAD = 100 /* after every lane's */ };

struct writer {
	const struct fo_trace_sink *sink;
	struct fo_str out;
	struct fo_json j;
	const struct fo_trace_source *from;
	int pid;
	int64_t origin_ns, first_ns; /* subtracted from times; the first time of a run, on rank 0's clock */
};

static fo_status flush(struct writer *w, size_t least)
{
	if (w->out.len < least)
		return FO_OK;
	fo_status st = w->sink->write(w->sink->ctx, w->out.data, w->out.len);
	w->out.len = 0;
	return st;
}

/* Microseconds with every nanosecond: a double's 17 digits would be longer and no more exact. */
static void put_us(struct writer *w, const char *key, int64_t ns)
{
	char text[40];
	int64_t size = ns < 0 ? -ns : ns;
	snprintf(text, sizeof text, "%s%" PRId64 ".%03" PRId64, ns < 0 ? "-" : "", size / 1000, size % 1000);
	fo_json_raw(&w->j, key, text);
}

static void begin(struct writer *w, const char *ph, const char *name, int tid)
{
	fo_json_object(&w->j, NULL);
	fo_json_text(&w->j, "ph", ph);
	fo_json_text(&w->j, "name", name);
	fo_json_int(&w->j, "pid", w->pid);
	fo_json_int(&w->j, "tid", tid);
}

static void metadata(struct writer *w, const char *what, int tid, const char *key, const char *text, int64_t number)
{
	begin(w, "M", what, tid);
	fo_json_object(&w->j, "args");
	if (text)
		fo_json_text(&w->j, key, text);
	else
		fo_json_int(&w->j, key, number);
	fo_json_close(&w->j);
	fo_json_close(&w->j);
}

/* "2048x128 bf16, 128x704 bf16": every operand. */
static void shapes_text(const struct fo_program *p, const struct fo_op *o, struct fo_str *out)
{
	out->len = 0;
	for (int i = 0; i < o->n; i++)
		fo_str_printf(out, "%s%s %dx%d %s", i ? ", " : "", p->buf[o->arg[i].buf].name, o->arg[i].nr,
			      o->arg[i].nc, fo_dtype_name[p->buf[o->arg[i].buf].dtype]);
}

static void operation(struct writer *w, const struct fo_span *s, int lane, struct fo_str *shapes)
{
	const struct fo_program *p = w->from->program;
	int id = s->instance >= 0 ? s->instance : ~s->instance;
	const struct fo_slot *slot = &p->slot[w->from->unrolled->slot[id]];
	const struct fo_op *o = fo_instance_op(p, w->from->unrolled, id);
	const char *kind = fo_op_info((enum fo_op_kind)o->kind)->name;
	bool ran = s->instance >= 0;
	char name[80];
	snprintf(name, sizeof name, "%s%s", ran ? "" : "wait for ", kind);
	begin(w, "X", name, lane + 1);
	fo_json_text(&w->j, "cat", ran ? fo_part_name[fo_part_of_op((enum fo_op_kind)o->kind)] : "wait");
	put_us(w, "ts", s->begin_ns - w->origin_ns);
	put_us(w, "dur", s->end_ns - s->begin_ns);
	fo_json_object(&w->j, "args");
	fo_json_text(&w->j, "block", p->block[slot->block].name);
	fo_json_int(&w->j, "layer", slot->layer);
	fo_json_int(&w->j, "micro_batch", slot->mb);
	fo_json_int(&w->j, "step", s->step + 1);
	fo_json_int(&w->j, "instance", id);
	if (ran) {
		const struct fo_cost c = fo_op_cost(p, o, -1);
		double seconds = (double)(s->end_ns - s->begin_ns) * 1e-9;
		shapes_text(p, o, shapes);
		fo_json_text(&w->j, "phase", fo_phase_name[o->phase]);
		fo_json_text(&w->j, "operands", shapes->data ? shapes->data : "");
		fo_json_real(&w->j, "model_flop", c.model);
		fo_json_real(&w->j, "exec_flop", c.exec);
		fo_json_real(&w->j, "bytes", c.bytes);
		if (fo_op_info(o->kind)->wire != FO_WIRE_NONE) {
			fo_json_text(&w->j, "group", fo_group_name[o->group]);
			fo_json_int(&w->j, "members", fo_mesh_group(&p->run.mesh, (enum fo_group)o->group, NULL, NULL));
			fo_json_real(&w->j, "received_bytes", c.wire);
		}
		if (c.exec > 0 && seconds > 0)
			fo_json_real(&w->j, "exec_flop_per_second", c.exec / seconds);
	}
	fo_json_close(&w->j);
	fo_json_close(&w->j);
}

static void counter(struct writer *w, const char *name, int64_t ns, const struct fo_record_steps *steps, int64_t row,
		    const enum fo_step_field *field, int fields)
{
	bool any = false;
	for (int i = 0; i < fields; i++)
		any |= isfinite(fo_record_value(steps, field[i], row));
	if (!any)
		return;
	begin(w, "C", name, 0);
	put_us(w, "ts", ns - w->origin_ns);
	fo_json_object(&w->j, "args");
	for (int i = 0; i < fields; i++) {
		double v = fo_record_value(steps, field[i], row);
		if (isfinite(v))
			fo_json_real(&w->j, fo_step_field_name[field[i]], v);
	}
	fo_json_close(&w->j);
	fo_json_close(&w->j);
}

static void one_step(struct writer *w, int32_t step, int64_t from_ns, int64_t to_ns)
{
	static const enum fo_step_field mfu[] = { FO_STEP_MFU, FO_STEP_MFU_CAUSAL, FO_STEP_MFU_DOCUMENT, FO_STEP_MFU_6N,
						  FO_STEP_HFU },
					speed[] = { FO_STEP_TOKENS_PER_SECOND }, loss[] = { FO_STEP_LOSS };
	char name[32];
	int64_t row = w->from->steps ? fo_record_row(w->from->steps, (int64_t)step + 1) : -1;
	snprintf(name, sizeof name, "step %" PRId64, (int64_t)step + 1);
	begin(w, "X", name, STEPS_THREAD);
	fo_json_text(&w->j, "cat", "step");
	put_us(w, "ts", from_ns - w->origin_ns);
	put_us(w, "dur", to_ns - from_ns);
	if (row >= 0) {
		fo_json_object(&w->j, "args");
		for (int f = 0; f < FO_STEP_FIELD_COUNT; f++)
			if (isfinite(fo_record_value(w->from->steps, (enum fo_step_field)f, row)))
				fo_json_real(&w->j, fo_step_field_name[f],
					     fo_record_value(w->from->steps, (enum fo_step_field)f, row));
		fo_json_close(&w->j);
	}
	fo_json_close(&w->j);
	if (row < 0)
		return;
	counter(w, "MFU", from_ns, w->from->steps, row, mfu, sizeof mfu / sizeof *mfu);
	counter(w, "tokens per second", from_ns, w->from->steps, row, speed, 1);
	counter(w, "loss", from_ns, w->from->steps, row, loss, 1);
}

/* Steps follow the spans of the compute lane: every step has some there. */
static fo_status put_steps(struct writer *w)
{
	const struct fo_ring *c = &w->from->timeline->lane[FO_LANE_COMPUTE];
	metadata(w, "thread_name", STEPS_THREAD, "name", "steps", 0);
	metadata(w, "thread_sort_index", STEPS_THREAD, "sort_index", NULL, -1);
	for (uint64_t from = 0, to; from < c->n; from = to) {
		for (to = from; to < c->n && c->span[to].step == c->span[from].step; to++)
			;
		one_step(w, c->span[from].step, c->span[from].begin_ns, c->span[to - 1].end_ns);
		FO_TRY(flush(w, PIECE));
	}
	return FO_OK;
}

static fo_status put_source(struct writer *w)
{
	const struct fo_timeline *t = w->from->timeline;
	struct fo_str shapes = { 0 };
	fo_status st = FO_OK;
	if (!w->from->beside)
		w->first_ns = INT64_MAX;
	for (int l = 0; l < FO_LANE_COUNT && !w->from->beside; l++)
		if (t->lane[l].n && t->lane[l].span[0].begin_ns < w->first_ns)
			w->first_ns = t->lane[l].span[0].begin_ns;
	w->origin_ns = w->first_ns - t->whose.clock_offset_ns;
	metadata(w, "process_name", 0, "name", w->from->name, 0);
	metadata(w, "process_sort_index", 0, "sort_index", NULL, w->pid);
	if (t->lane[FO_LANE_COMPUTE].n)
		st = put_steps(w);
	for (int l = 0; l < FO_LANE_COUNT && st == FO_OK; l++) {
		if (!t->lane[l].n)
			continue;
		metadata(w, "thread_name", l + 1, "name", fo_lane_name[l], 0);
		metadata(w, "thread_sort_index", l + 1, "sort_index", NULL, l);
		for (uint64_t i = 0; i < t->lane[l].n && st == FO_OK; i++) {
			const struct fo_span *s = &t->lane[l].span[i];
			int id = s->instance >= 0 ? s->instance : ~s->instance;
			if (id < w->from->unrolled->n)
				operation(w, s, l, &shapes);
			st = flush(w, PIECE);
		}
	}
	fo_str_fini(&shapes);
	return st;
}

fo_status fo_trace_events_write(const struct fo_trace_source *source, int n, const struct fo_trace_sink *sink)
{
	struct writer w = { .sink = sink };
	fo_status st = FO_OK;
	fo_json_begin(&w.j, &w.out, false);
	fo_json_object(&w.j, NULL);
	fo_json_text(&w.j, "displayTimeUnit", "ns");
	fo_json_object(&w.j, "otherData"); /* says to us that the file is ours to write anew (base/output.c) */
	fo_json_text(&w.j, "program", "flatout");
	fo_json_close(&w.j);
	fo_json_array(&w.j, "traceEvents");
	for (int i = 0; i < n && st == FO_OK; i++) {
		w.from = &source[i];
		w.pid = i + 1;
		st = put_source(&w);
	}
	fo_json_close(&w.j);
	fo_json_close(&w.j);
	fo_str_puts(&w.out, "\n");
	if (st == FO_OK)
		st = flush(&w, 1);
	fo_str_fini(&w.out);
	return st;
}
