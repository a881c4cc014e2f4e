/* Reads what the GPUs did: kernels, copies, fills, whole graphs, waits between streams. */
#include "trace/nsys_int.h"

#include "base/count.h"

#include <stdio.h>
#include <string.h>

/* Columns that all tables of GPU work have, in this order. */
#define COMMON "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphNodeId"
enum { START, END, DEVICE, STREAM, CORRELATION, PROCESS, GRAPH_NODE, FIRST_OWN };

static int64_t process_of_row(const struct nsys *x, const struct nsys_row *r)
{
	return x->one_process ? 0 : nsys_process(nsys_int(r, PROCESS, 0));
}

/* The operation of this row, filled but for what its own table tells. *g: whose trace. NULL: a row without times is
 * left out. */
static struct fo_gpu_op *common(struct nsys *x, const struct nsys_row *r, struct group **g)
{
	int64_t process = process_of_row(x, r), start = nsys_time(r, START), end = nsys_time(r, END);
	int16_t device = -1;
	*g = nsys_group_of_pair(x, process, nsys_int(r, DEVICE, 0), &device);
	if (!*g || device < 0)
		return NULL;
	(*g)->b.t->defect.events++;
	if (start == NSYS_NO_TIME || end == NSYS_NO_TIME) {
		(*g)->b.t->defect.malformed++;
		(*g)->b.t->defect.malformed_gpu++;
		return NULL;
	}
	struct fo_gpu_op *o = fo_trace_add_gpu(&(*g)->b, start, end);
	o->device = device;
	o->stream = (int32_t)nsys_int(r, STREAM, -1);
	o->correlation = nsys_correlation(x, process, nsys_int(r, CORRELATION, -1));
	if (nsys_int(r, GRAPH_NODE, 0) != 0)
		o->flags |= FO_GPU_GRAPH;
	return o;
}

static void take_kernel(struct nsys *x, const struct nsys_row *r)
{
	struct group *g;
	struct fo_gpu_op *o = common(x, r, &g);
	const char *name = NULL;
	size_t n = 0;
	if (!o)
		return;
	for (int i = FIRST_OWN; !name && i < FIRST_OWN + 3; i++) /* demangled, short or mangled */
		name = nsys_string(x, nsys_int(r, i, -1), &n);
	fo_index_add(&x->contexts, process_of_row(x, r), nsys_int(r, FIRST_OWN + 3, -1),
		     (int32_t)nsys_int(r, DEVICE, 0));
	o->kind = FO_GPU_KERNEL;
	if (name)
		o->name = fo_trace_intern(&g->b, name, n);
}

/* CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind, as the export's ENUM tables have them. */
enum { HTOD = 1, DTOH = 2, DTOD = 8, PTOP = 10, UVM_HTOD = 11, UVM_DTOH = 12, UVM_DTOD = 13, PAGEABLE = 0 };

static enum fo_copy copy_of(int64_t kind)
{
	switch (kind) {
	case HTOD:
	case UVM_HTOD: return FO_COPY_H2D;
	case DTOH:
	case UVM_DTOH: return FO_COPY_D2H;
	case DTOD:
	case UVM_DTOD: return FO_COPY_D2D;
	case PTOP: return FO_COPY_P2P;
	}
	return FO_COPY_OTHER;
}

/* Named as Kineto names copies, so that traces of both kinds compare: "Memcpy HtoD (Pageable -> Device)". */
static int32_t copy_name(struct group *g, enum fo_copy copy, int64_t from, int64_t to)
{
	static const char *const way[FO_COPY_COUNT] = { "", "HtoD", "DtoH", "DtoD", "PtoP", "Other" };
	static const char *const memory[] = { "Pageable", "Pinned",        "Device",        "Array",
					      "Managed",  "Device Static", "Managed Static" };
	enum { MEMORIES = sizeof(memory) / sizeof(memory[0]) };
	char text[96];
	int n = from >= 0 && from < MEMORIES && to >= 0 && to < MEMORIES
			? snprintf(text, sizeof(text), "Memcpy %s (%s -> %s)", way[copy], memory[from], memory[to])
			: snprintf(text, sizeof(text), "Memcpy %s", way[copy]);
	return fo_trace_intern(&g->b, text, (size_t)n);
}

static void take_copy(struct nsys *x, const struct nsys_row *r)
{
	struct group *g;
	struct fo_gpu_op *o = common(x, r, &g);
	if (!o)
		return;
	int64_t from = nsys_int(r, FIRST_OWN + 2, -1), to = nsys_int(r, FIRST_OWN + 3, -1);
	o->kind = FO_GPU_MEMCPY;
	o->bytes = fo_max(nsys_int(r, FIRST_OWN, -1), -1);
	o->copy = (uint8_t)copy_of(nsys_int(r, FIRST_OWN + 1, 0));
	if (from == PAGEABLE || to == PAGEABLE)
		o->flags |= FO_GPU_PAGEABLE;
	o->name = copy_name(g, (enum fo_copy)o->copy, from, to);
}

static void take_fill(struct nsys *x, const struct nsys_row *r)
{
	struct group *g;
	struct fo_gpu_op *o = common(x, r, &g);
	if (!o)
		return;
	o->kind = FO_GPU_MEMSET;
	o->bytes = fo_max(nsys_int(r, FIRST_OWN, -1), -1);
	o->name = fo_trace_intern(&g->b, "Memset (Device)", strlen("Memset (Device)"));
}

/* A graph traced as a whole, the profiler's default: its kernels are not in the file (--cuda-graph-trace=node records
 * them). */
static void take_graph(struct nsys *x, const struct nsys_row *r)
{
	struct group *g;
	struct fo_gpu_op *o = common(x, r, &g);
	if (!o)
		return;
	char text[48];
	int n = snprintf(text, sizeof(text), "CUDA graph %lld", (long long)nsys_int(r, FIRST_OWN, 0));
	o->kind = FO_GPU_KERNEL;
	o->flags |= FO_GPU_GRAPH;
	o->name = fo_trace_intern(&g->b, text, (size_t)n);
	g->b.t->defect.graph_granularity = true;
}

/* ---- waits ---- */

/* The record of a CUDA event: which stream a wait for it waits for. */
static void take_event(struct nsys *x, const struct nsys_row *r)
{
	fo_index_add(&x->events, x->one_process ? 0 : nsys_process(nsys_int(r, 2, 0)), nsys_int(r, 0, 0),
		     (int32_t)nsys_int(r, 1, -1));
}

static void take_wait(struct nsys *x, const struct nsys_row *r)
{
	/* CUpti_ActivitySynchronizationType; named as Kineto names them. */
	static const char *const kinds[] = { NULL, "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync" };
	int64_t kind = nsys_int(r, FIRST_OWN, 0), process = process_of_row(x, r);
	int64_t start = nsys_time(r, START), end = nsys_time(r, END);
	int64_t context = nsys_int(r, FIRST_OWN + 2, -1), event = nsys_int(r, FIRST_OWN + 1, 0);
	int32_t number = context < 0 ? -1 : fo_index_find(&x->contexts, process, context);
	int16_t device = -1;
	struct group *g = nsys_group_of_pair(x, process, number >= 0 ? number : nsys_int(r, DEVICE, 0), &device);
	if (!g || device < 0 || kind <= 0 || kind >= (int64_t)(sizeof(kinds) / sizeof(kinds[0])) ||
	    start == NSYS_NO_TIME || end < start)
		return;
	g->b.t->defect.events++;
	struct fo_gpu_wait *w = fo_trace_add_wait(&g->b, start, end);
	w->device = device;
	w->stream = (int32_t)nsys_int(r, STREAM, -1);
	w->on_stream = event > 0 ? fo_index_find(&x->events, process, event) : -1;
	w->kind = fo_trace_intern(&g->b, kinds[kind], strlen(kinds[kind]));
}

/* ---- devices ---- */

static int32_t small(int64_t v) { return v > 0 && v < 1 << 20 ? (int32_t)v : 0; }

/* Every trace gets what the file says of its GPUs. */
static void take_device(struct nsys *x, const struct nsys_row *r)
{
	int64_t id = nsys_int(r, 0, -1), memory = nsys_int(r, 2, 0);
	for (size_t i = 0; i < x->pairs; i++) {
		struct fo_trace_build *b = &x->group[x->pair[i].group].b;
		int16_t at = id == x->pair[i].board ? fo_trace_device(b, x->pair[i].gpu) : -1;
		size_t n;
		const char *name = nsys_text(r, 1, &n);
		if (at < 0)
			continue;
		struct fo_trace_device *d = &b->t->device[at];
		if (name)
			d->name = fo_trace_intern(b, name, n);
		d->memory_bytes = fo_max(memory, 0);
		d->sm_count = small(nsys_int(r, 3, 0));
		d->capability_major = small(nsys_int(r, 4, 0));
		d->capability_minor = small(nsys_int(r, 5, 0));
	}
}

/* ---- the tables ---- */

/* Kernels and CUDA events come first: waits need the contexts and streams that they name. */
static const struct nsys_table tables[] = {
	{ "CUPTI_ACTIVITY_KIND_KERNEL",
	  DEVICE + 1,
	  take_kernel,
	  { COMMON, "demangledName", "shortName", "mangledName", "contextId" } },
	{ "CUPTI_ACTIVITY_KIND_MEMCPY", DEVICE + 1, take_copy, { COMMON, "bytes", "copyKind", "srcKind", "dstKind" } },
	{ "CUPTI_ACTIVITY_KIND_MEMSET", DEVICE + 1, take_fill, { COMMON, "bytes" } },
	{ "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", DEVICE + 1, take_graph, { COMMON, "graphId" } },
	{ "CUPTI_ACTIVITY_KIND_CUDA_EVENT", 0, take_event, { "eventSyncId", "streamId", "globalPid" } },
	{ "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
	  END + 1,
	  take_wait,
	  { COMMON, "syncType", "eventSyncId", "contextId" } },
	{ "TARGET_INFO_GPU",
	  1,
	  take_device,
	  { "id", "name", "totalMemory", "smCount", "computeMajor", "computeMinor" } },
};

fo_status nsys_read_gpu(struct nsys *x) { return nsys_read_tables(x, tables, sizeof(tables) / sizeof(*tables)); }
