#include "diagnose/operations.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"
#include "diagnose/ledger_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PIECE = 1 << 20,
	LONGEST_TEXT = 4096, /* of a name in a table; kernels' templates go on for pages */
};

/* One operation with all that is known of it. */
struct row {
	const struct fo_trace *t;
	const struct fo_gpu_op *g;
	int rank;
	int64_t device, step;     /* step -1: in none */
	int64_t begin_ns, gap_ns; /* begin: since the first of all */
	int64_t idle_ns[FO_IDLE_COUNT];
	int cause; /* -1: no gap */
};

struct writer {
	const struct fo_trace_sink *sink;
	struct fo_str out;
	struct fo_json j;
	int64_t origin_ns, rows; /* origin on rank 0's clock */
	void (*operation)(struct writer *w, const struct row *r);
	void (*step)(struct writer *w, const struct row *r, int64_t end_ns); /* NULL; r: rank, device, number, begin */
	void (*rank)(struct writer *w, const struct fo_trace *t, int rank);  /* NULL */
};

static fo_status flush(struct writer *w, size_t least)
{
	if (w->out.len < least)
		return FO_OK;
	fo_status st = w->sink->write(w->sink->ctx, w->out.data, w->out.len);
	w->out.len = 0;
	return st;
}

/* ---- every operation in turn ---- */

static void explain_gap(struct row *r, const struct fo_idle *idle, int64_t begin)
{
	memset(r->idle_ns, 0, sizeof(r->idle_ns));
	fo_idle_divide(idle, r->g->device, r->g, begin, r->g->begin_ns, begin, r->g->begin_ns, r->idle_ns);
	r->cause = 0;
	for (int c = 1; c < FO_IDLE_COUNT; c++)
		if (r->idle_ns[c] > r->idle_ns[r->cause])
			r->cause = c;
}

static fo_status walk_device(struct writer *w, struct row *r, const struct fo_rank_ledger *l,
			     const struct fo_idle *idle, int16_t device, int64_t offset)
{
	const struct fo_trace *t = r->t;
	const struct fo_device_ledger *d = NULL;
	for (int64_t i = 0; i < l->devices; i++)
		if (l->device[i].device == device)
			d = &l->device[i];
	r->device = t->device[device].id;
	for (int64_t i = 0; d && w->step && i < d->steps; i++) {
		const struct fo_step_ledger *s = &d->step[i];
		r->begin_ns = fo_minus(fo_plus(s->l.begin_ns, offset), w->origin_ns);
		r->step = s->number;
		if (s->number >= 0)
			w->step(w, r, fo_minus(fo_plus(s->l.end_ns, offset), w->origin_ns));
	}
	int64_t busy_until = INT64_MIN;
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		if (g->device != device)
			continue;
		int64_t step = d ? fo_step_at(d, g->begin_ns) : -1;
		r->g = g;
		r->step = step >= 0 ? d->step[step].number : -1;
		r->begin_ns = fo_minus(fo_plus(g->begin_ns, offset), w->origin_ns);
		r->cause = -1;
		r->gap_ns = busy_until != INT64_MIN && g->begin_ns > busy_until && g->end_ns > g->begin_ns
				    ? fo_minus(g->begin_ns, busy_until)
				    : 0;
		if (r->gap_ns > 0)
			explain_gap(r, idle, busy_until);
		if (g->end_ns > busy_until && g->end_ns > g->begin_ns)
			busy_until = g->end_ns;
		w->operation(w, r);
		w->rows++;
		FO_TRY(flush(w, PIECE));
	}
	return FO_OK;
}

static fo_status walk_rank(struct writer *w, struct fo_trace *t, int rank, int64_t offset)
{
	struct fo_rank_ledger l = { 0 };
	struct fo_idle idle;
	fo_ledger_rank(&l, t, &(struct fo_ledger_options){ 0 }, NULL);
	fo_idle_init(&idle, t, false);
	struct row r = { .t = t, .rank = rank };
	if (w->rank)
		w->rank(w, t, rank);
	fo_status st = FO_OK;
	for (int64_t d = 0; d < t->device_count && st == FO_OK; d++)
		st = walk_device(w, &r, &l, &idle, (int16_t)d, offset);
	fo_idle_fini(&idle);
	fo_ledger_rank_fini(&l);
	return st;
}

static fo_status walk(struct writer *w, const struct fo_trace_set *s)
{
	w->origin_ns = INT64_MAX;
	for (int i = 0; i < s->count; i++)
		for (int64_t k = 0; k < s->rank[i]->gpu_count; k++) {
			int64_t at = fo_plus(s->rank[i]->gpu[k].begin_ns, s->offset_ns[i]);
			w->origin_ns = fo_min(at, w->origin_ns);
		}
	if (w->origin_ns == INT64_MAX)
		return fo_fail(FO_EARG, "no GPU operations in '%s'", s->rank[0]->path);
	fo_status st = FO_OK;
	for (int i = 0; i < s->count && st == FO_OK; i++)
		st = walk_rank(w, s->rank[i], s->rank[i]->rank >= 0 ? s->rank[i]->rank : i, s->offset_ns[i]);
	return st;
}

/* ---- what is said of an operation ---- */

static const char *kind_of(const struct fo_gpu_op *g)
{
	static const char *const name[] = {
		[FO_GPU_KERNEL] = "kernel", [FO_GPU_MEMCPY] = "memcpy", [FO_GPU_MEMSET] = "memset"
	};
	return name[g->kind];
}

static const char *pass_of(const struct fo_gpu_op *g)
{
	if (g->flags & FO_GPU_RECOMPUTED)
		return "recompute";
	return g->flags & FO_GPU_BACKWARD ? "backward" : "forward";
}

static const char *operator_of(const struct row *r)
{
	return r->g->op < 0 ? "" : fo_trace_text(r->t, r->t->op[r->g->op].name);
}

static const char *collective_of(const struct row *r)
{
	return r->g->collective < 0 ? "" : fo_trace_text(r->t, r->t->collective[r->g->collective].name);
}

static const char *us(char text[40], int64_t ns)
{
	uint64_t n = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
	snprintf(text, 40, "%s%" PRIu64 ".%03" PRIu64, ns < 0 ? "-" : "", n / 1000, n % 1000);
	return text;
}

/* ---- CSV ---- */

static void quoted(struct fo_str *out, const char *text)
{
	char shown[LONGEST_TEXT];
	fo_str_visible(shown, sizeof(shown), text);
	fo_str_puts(out, ",\"");
	if (shown[0] && strchr("=+-@", shown[0]))
		fo_str_puts(out, "'");
	for (const char *c = shown; *c; c++)
		if (*c == '"')
			fo_str_puts(out, "\"\"");
		else
			fo_str_append(out, c, 1);
	fo_str_puts(out, "\"");
}

static void csv_operation(struct writer *w, const struct row *r)
{
	const struct fo_gpu_op *g = r->g;
	char text[40];
	fo_str_printf(&w->out, "%d,%" PRId64 ",%d,", r->rank, r->device, g->stream);
	if (r->step >= 0)
		fo_str_printf(&w->out, "%" PRId64, r->step);
	fo_str_printf(&w->out, ",%s", us(text, r->begin_ns));
	fo_str_printf(&w->out, ",%s,%s,%s,%s,%s", us(text, fo_minus(g->end_ns, g->begin_ns)), kind_of(g),
		      fo_kernel_class_name[g->class], fo_kernel_class_name[g->class_by_name], pass_of(g));
	quoted(&w->out, fo_trace_text(r->t, g->name));
	quoted(&w->out, operator_of(r));
	quoted(&w->out, collective_of(r));
	fo_str_puts(&w->out, ",");
	if (g->bytes >= 0)
		fo_str_printf(&w->out, "%" PRId64, g->bytes);
	fo_str_puts(&w->out, ",");
	if (g->launch >= 0)
		fo_str_puts(&w->out,
			    us(text, fo_minus(r->begin_ns, fo_minus(g->begin_ns, r->t->launch[g->launch].begin_ns))));
	fo_str_printf(&w->out, ",%s,%s\r\n", us(text, r->gap_ns), r->cause < 0 ? "" : fo_idle_name[r->cause]);
}

fo_status fo_operations_csv(const struct fo_trace_set *s, const struct fo_trace_sink *sink, int64_t *rows)
{
	struct writer w = { .sink = sink, .operation = csv_operation };
	fo_str_puts(&w.out, "rank,device,stream,step,begin_us,duration_us,kind,class,class_by_name,pass,name,operator,"
			    "collective,bytes,launch_us,gap_us,"
			    "idle_cause\r\n");
	fo_status st = walk(&w, s);
	if (st == FO_OK)
		st = flush(&w, 1);
	fo_str_fini(&w.out);
	*rows = w.rows;
	return st;
}

/* ---- Trace Event Format ---- */

enum {
	STREAMS = 1000000,
	STEPS = STREAMS - 1,
	GAPS = STREAMS - 2
}; /* a device's threads; no stream has so high a number in use */

static int64_t thread_of(const struct row *r, int64_t which)
{
	return r->device * STREAMS + (which >= 0 ? which % STREAMS : GAPS - 1);
}

static void begin(struct writer *w, const char *ph, const char *name, int pid, int64_t tid)
{
	fo_json_object(&w->j, NULL);
	fo_json_text(&w->j, "ph", ph);
	fo_json_text(&w->j, "name", name);
	fo_json_int(&w->j, "pid", pid);
	fo_json_int(&w->j, "tid", tid);
}

static void name_it(struct writer *w, const char *what, int pid, int64_t tid, const char *name)
{
	begin(w, "M", what, pid, tid);
	fo_json_object(&w->j, "args");
	fo_json_text(&w->j, "name", name);
	fo_json_close(&w->j);
	fo_json_close(&w->j);
}

/* Names of the threads that will have slices. */
static void chrome_rank(struct writer *w, const struct fo_trace *t, int rank)
{
	char text[96];
	snprintf(text, sizeof(text), "rank %d", rank);
	name_it(w, "process_name", rank, 0, text);
	int64_t *seen = fo_xmalloc((size_t)(t->gpu_count + 1) * sizeof(*seen)), n = 0;
	for (int64_t i = 0; i < t->gpu_count; i++)
		if (t->gpu[i].device >= 0)
			seen[n++] = (int64_t)t->gpu[i].device << 32 | (uint32_t)t->gpu[i].stream;
	qsort(seen, (size_t)n, sizeof(*seen), fo_by_int64);
	for (int64_t i = 0; i < n; i++) {
		if (i && seen[i] == seen[i - 1])
			continue;
		struct row r = { .device = t->device[seen[i] >> 32].id };
		snprintf(text, sizeof(text), "device %" PRId64 " stream %d", r.device, (int32_t)(uint32_t)seen[i]);
		name_it(w, "thread_name", rank, thread_of(&r, (int32_t)(uint32_t)seen[i]), text);
		if (i && seen[i] >> 32 == seen[i - 1] >> 32)
			continue;
		snprintf(text, sizeof(text), "device %" PRId64 " steps", r.device);
		name_it(w, "thread_name", rank, thread_of(&r, STEPS), text);
		snprintf(text, sizeof(text), "device %" PRId64 " idle", r.device);
		name_it(w, "thread_name", rank, thread_of(&r, GAPS), text);
	}
	free(seen);
}

static void slice(struct writer *w, const struct row *r, int64_t which, const char *name, const char *category,
		  int64_t begin_ns, int64_t duration_ns)
{
	char text[40];
	begin(w, "X", name, r->rank, thread_of(r, which));
	fo_json_text(&w->j, "cat", category);
	fo_json_raw(&w->j, "ts", us(text, begin_ns));
	fo_json_raw(&w->j, "dur", us(text, duration_ns));
	fo_json_object(&w->j, "args");
}

static void end_slice(struct writer *w)
{
	fo_json_close(&w->j);
	fo_json_close(&w->j);
}

static void chrome_step(struct writer *w, const struct row *r, int64_t end_ns)
{
	char text[32];
	snprintf(text, sizeof(text), "step %" PRId64, r->step);
	slice(w, r, STEPS, text, "step", r->begin_ns, fo_minus(end_ns, r->begin_ns));
	end_slice(w);
}

static void chrome_gap(struct writer *w, const struct row *r)
{
	char text[40];
	slice(w, r, GAPS, fo_idle_name[r->cause], "idle", fo_minus(r->begin_ns, r->gap_ns), r->gap_ns);
	for (int c = 0; c < FO_IDLE_COUNT; c++)
		if (r->idle_ns[c] > 0)
			fo_json_raw(&w->j, fo_idle_name[c], us(text, r->idle_ns[c]));
	end_slice(w);
}

static void chrome_operation(struct writer *w, const struct row *r)
{
	const struct fo_gpu_op *g = r->g;
	if (r->cause >= 0)
		chrome_gap(w, r);
	/* Categories and arguments of the PyTorch profiler: what reads its traces reads these. */
	static const char *const category[] = {
		[FO_GPU_KERNEL] = "kernel", [FO_GPU_MEMCPY] = "gpu_memcpy", [FO_GPU_MEMSET] = "gpu_memset"
	};
	slice(w, r, g->stream, fo_trace_text(r->t, g->name), category[g->kind], r->begin_ns,
	      fo_minus(g->end_ns, g->begin_ns));
	fo_json_int(&w->j, "device", r->device);
	fo_json_int(&w->j, "stream", g->stream);
	fo_json_text(&w->j, "class", fo_kernel_class_name[g->class]);
	fo_json_text(&w->j, "class_by_name", fo_kernel_class_name[g->class_by_name]);
	fo_json_text(&w->j, "pass", pass_of(g));
	if (r->step >= 0)
		fo_json_int(&w->j, "step", r->step);
	if (g->op >= 0)
		fo_json_text(&w->j, "operator", operator_of(r));
	if (g->collective >= 0)
		fo_json_text(&w->j, "collective", collective_of(r));
	if (g->bytes >= 0)
		fo_json_int(&w->j, "bytes", g->bytes);
	if (r->cause >= 0)
		fo_json_text(&w->j, "idle_cause", fo_idle_name[r->cause]);
	end_slice(w);
}

fo_status fo_operations_chrome(const struct fo_trace_set *s, const struct fo_trace_sink *sink, int64_t *rows)
{
	struct writer w = { .sink = sink, .operation = chrome_operation, .step = chrome_step, .rank = chrome_rank };
	fo_json_begin(&w.j, &w.out, false);
	fo_json_object(&w.j, NULL);
	fo_json_text(&w.j, "displayTimeUnit", "ns");
	fo_json_object(
		&w.j,
		"otherData"); /* marks the file as ours, so that --force is not needed to replace it (base/output.c) */
	fo_json_text(&w.j, "program", "flatout");
	fo_json_close(&w.j);
	fo_json_array(&w.j, "traceEvents");
	fo_status st = walk(&w, s);
	fo_json_close(&w.j);
	fo_json_close(&w.j);
	if (st == FO_OK)
		st = flush(&w, 1);
	fo_str_fini(&w.out);
	*rows = w.rows;
	return st;
}
