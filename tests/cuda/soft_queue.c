/* Streams, graphs and the order in which their work runs: any that streams, events and edges of graphs leave open. */
#define _GNU_SOURCE
#include "cuda/soft_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

pthread_mutex_t soft_lock = PTHREAD_MUTEX_INITIALIZER;
struct fo_soft_counters soft_count;
bool soft_trace, soft_check;
static enum fo_soft_order order;
static uint64_t rng = 1;
static struct soft_stream *streams;

enum { QUEUE_MOST = 20000 /* entries that wait, in all streams: then some run */ };
static int queued;

void soft_say(const char *format, ...)
{
	va_list list;
	fflush(stdout);
	fputs("software CUDA device: ", stderr);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
}

uint32_t soft_draw(uint32_t below)
{
	rng ^= rng << 13; /* xorshift64, Marsaglia 2003 */
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng >> 32) % below;
}

void fo_software_seed(uint64_t seed)
{
	pthread_mutex_lock(&soft_lock);
	rng = seed * 0x9e3779b97f4a7c15u | 1;
	pthread_mutex_unlock(&soft_lock);
}
void fo_software_order(int wanted)
{
	pthread_mutex_lock(&soft_lock);
	order = (enum fo_soft_order)wanted;
	pthread_mutex_unlock(&soft_lock);
}

static void dump(void)
{
	FILE *f = fopen(getenv("FLATOUT_SOFT_COUNTERS"), "w");
	const char *comma = "{";
	if (!f)
		return;
#define PRINT(name) fprintf(f, "%s\"" #name "\": %lld", comma, (long long)soft_count.name), comma = ", ";
	FO_SOFT_COUNTERS(PRINT)
#undef PRINT
	fputs("}\n", f);
	fclose(f);
}

__attribute__((constructor)) static void begin(void)
{
	const char *seed = getenv("FLATOUT_SOFT_SEED"), *how = getenv("FLATOUT_SOFT_ORDER"),
		   *trace = getenv("FLATOUT_SOFT_TRACE"), *check = getenv("FLATOUT_SOFT_CHECK"),
		   *file = getenv("FLATOUT_SOFT_COUNTERS");
	fo_software_seed(seed && *seed ? strtoull(seed, NULL, 0) : 1);
	order = !how                    ? FO_SOFT_RANDOM
		: !strcmp(how, "lazy")  ? FO_SOFT_LAZY
		: !strcmp(how, "eager") ? FO_SOFT_EAGER
					: FO_SOFT_RANDOM;
	soft_trace = trace && !strcmp(trace, "1");
	soft_check = check && !strcmp(check, "1");
	if (file && *file)
		atexit(dump);
}

static void *get(size_t bytes)
{
	void *p = calloc(1, bytes);
	if (!p)
		abort();
	return p;
}

static double made_up_ms; /* that passed since the last event: FLATOUT_SOFT_TIMES */

void fo_software_takes(double us) { made_up_ms += us * 1e-3; }

double soft_now_ms(void)
{
	static double last;
	struct timespec t;
	if (getenv("FLATOUT_SOFT_TIMES")) {
		last += made_up_ms + 1e-6;
		made_up_ms = 0;
		return last;
	}
	clock_gettime(CLOCK_MONOTONIC, &t);
	double ms = (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
	last = ms > last ? ms : last + 1e-6; /* no two events at the same time */
	return last;
}

struct soft_ticket *soft_ticket_new(void)
{
	struct soft_ticket *t = get(sizeof *t);
	t->refs = 1;
	return t;
}
void soft_ticket_drop(struct soft_ticket *t)
{
	if (t && !--t->refs)
		free(t);
}

void soft_set_front(int **front, int *fronts, const int *from, int n)
{
	int *copy = get((size_t)(n ? n : 1) * sizeof *copy);
	if (n)
		memcpy(copy, from, (size_t)n * sizeof *copy);
	free(*front);
	*front = copy;
	*fronts = n;
}

/* ---- what a piece of work does ---- */

static void run(const struct soft_work *w, struct soft_ticket *ticket)
{
	if (soft_trace)
		fprintf(stderr, "soft: %s %zu bytes, %u blocks of %u\n", w->name, w->bytes,
			w->grid[0] * w->grid[1] * w->grid[2], w->threads);
	switch (w->kind) {
	case SOFT_LAUNCH:
		fo_simt_launch(w->kernel, w->args, w->grid, w->threads, w->shared_bytes,
			       (uint64_t)soft_draw(UINT32_MAX) + 1);
		soft_count.launches++;
		break;
	case SOFT_CALL:
		w->run(w->args);
		soft_count.library_calls++;
		break;
	case SOFT_COPY: memmove(w->to, w->from, w->bytes); break;
	case SOFT_FILL: memset(w->to, w->byte, w->bytes); break;
	case SOFT_RECORD:
		ticket->ms = soft_now_ms();
		ticket->done = true;
		break;
	default: break;
	}
	if (soft_check)
		soft_check_guards(w->name);
}

static void free_work(struct soft_work *w)
{
	free(w->args);
	soft_ticket_drop(w->ticket);
}

void soft_graph_drop(struct soft_graph *g)
{
	if (--g->refs)
		return;
	for (int i = 0; i < g->nodes; i++) {
		free_work(&g->node[i].work);
		free(g->node[i].after);
	}
	free(g->node);
	g->node = NULL; /* the handle stays, so that a use of it is known for what it is */
	g->magic = 0;
}

static void pop(struct soft_stream *s)
{
	struct soft_entry *e = s->head;
	s->head = e->next;
	if (!s->head)
		s->tail = &s->head;
	if (e->graph) {
		for (int i = 0; i < e->graph->nodes; i++)
			soft_ticket_drop(e->tickets[i]);
		e->graph->running = false;
		e->graph->launched--;
		soft_graph_drop(e->graph);
		free(e->left);
		free(e->tickets);
	}
	free_work(&e->work);
	free(e);
	queued--;
}

static bool meeting; /* something that could run otherwise waits for other threads */

/* What has all that it waits for in its stream may wait for others, which come when they come. */
static bool is_met(const struct soft_work *w)
{
	const bool met = !w->met || w->met(w->args);
	meeting |= !met;
	return met;
}

/* One node of a graph that has all it waits for. */
static void graph_step(struct soft_stream *s, struct soft_entry *e)
{
	struct soft_graph *g = e->graph;
	int ready = 0, pick = -1;
	g->running = e->started = true;
	for (int i = 0; i < g->nodes; i++)
		if (!e->left[i] && is_met(&g->node[i].work) && soft_draw((uint32_t)++ready) == 0)
			pick = i;
	if (pick >= 0) {
		run(&g->node[pick].work, e->tickets[pick]);
		e->left[pick] = -1;
		e->ran++;
		soft_count.graph_nodes++;
		for (int i = 0; i < g->nodes; i++)
			for (int k = 0; k < g->node[i].afters; k++)
				e->left[i] -= g->node[i].after[k] == pick;
	}
	if (e->ran == g->nodes)
		pop(s);
}

static bool can_step(const struct soft_stream *s)
{
	const struct soft_entry *e = s->head;
	if (!e)
		return false;
	if (e->work.kind == SOFT_WAIT)
		return e->work.ticket->done;
	if (e->work.kind != SOFT_GRAPH)
		return is_met(&e->work);
	/* Two launches of one graph do not overlap. */
	if (e->graph->running && !e->ran && !e->started)
		return false;
	bool any = e->ran == e->graph->nodes;
	for (int i = 0; i < e->graph->nodes && !any; i++)
		any = !e->left[i] && is_met(&e->graph->node[i].work);
	return any;
}

/* One piece of work of a stream that has one to run; false: none has. */
static bool step(void)
{
	struct soft_stream *pick = NULL;
	uint32_t ready = 0;
	meeting = false;
	for (struct soft_stream *s = streams; s; s = s->next)
		if (can_step(s) && soft_draw(++ready) == 0)
			pick = s;
	if (!pick)
		return false;
	struct soft_entry *e = pick->head;
	if (e->work.kind == SOFT_GRAPH) {
		graph_step(pick, e);
		return true;
	}
	run(&e->work, e->work.ticket);
	pop(pick);
	return true;
}

/* One piece of work. Where none can run but what waits for other threads' devices, these get their turn. */
static void step_or_wait(void)
{
	if (step())
		return;
	if (!meeting) {
		soft_say("streams wait for each other");
		abort();
	}
	pthread_mutex_unlock(&soft_lock);
	nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
	pthread_mutex_lock(&soft_lock);
}

void soft_drain(struct soft_stream *s)
{
	while (s->head)
		step_or_wait();
	soft_check_guards("somebody waited for the device");
}

void soft_drain_device(int device)
{
	bool left = true;
	while (left) {
		left = false;
		for (struct soft_stream *s = streams; s; s = s->next)
			left |= s->device == device && s->head;
		if (left)
			step_or_wait();
	}
	soft_check_guards("somebody waited for the device");
}

void soft_drain_until(const struct soft_ticket *t)
{
	while (!t->done)
		step_or_wait();
	soft_check_guards("somebody waited for an event");
}

void soft_some(void)
{
	if (order == FO_SOFT_EAGER)
		while (step())
			;
	/* A device is neither always late nor always early. */
	if (order == FO_SOFT_RANDOM && soft_draw(4) == 0)
		for (uint32_t n = soft_draw(8); n && step(); n--)
			;
	while (queued > QUEUE_MOST && step())
		;
}

void soft_look(void)
{
	enum { AT_MOST = 32 }; /* pieces of work between two looks */
	soft_some();
	for (uint32_t n = 1 + soft_draw(AT_MOST); n && step(); n--)
		;
}

/* ---- putting work in ---- */

static CUresult capture_work(struct soft_stream *s, struct soft_work w)
{
	struct soft_graph *g = s->capture->graph;
	if (s->capture->invalid) {
		free_work(&w);
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	g->node = realloc(g->node, (size_t)(g->nodes + 1) * sizeof *g->node);
	if (!g->node)
		abort();
	struct soft_node *n = &g->node[g->nodes];
	*n = (struct soft_node){ .work = w };
	soft_set_front(&n->after, &n->afters, s->front, s->fronts);
	soft_set_front(&s->front, &s->fronts, &(int){ g->nodes }, 1);
	g->nodes++;
	return CUDA_SUCCESS;
}

static struct soft_entry *append(struct soft_stream *s)
{
	struct soft_entry *e = get(sizeof *e);
	*s->tail = e;
	s->tail = &e->next;
	queued++;
	return e;
}

CUresult soft_put(struct soft_stream *s, struct soft_work w)
{
	if (s->capture)
		return capture_work(s, w);
	if (w.begun)
		w.begun(w.args);
	append(s)->work = w;
	soft_some();
	return CUDA_SUCCESS;
}

/* Nodes that begin with a launch are its own: one launch at a time. */
static void begin_nodes(struct soft_graph *g)
{
	for (int i = 0; i < g->nodes; i++) {
		while (g->node[i].work.begun && g->launched)
			step_or_wait();
		if (g->node[i].work.begun)
			g->node[i].work.begun(g->node[i].work.args);
	}
}

CUresult soft_put_graph(struct soft_stream *s, struct soft_graph *g)
{
	if (s->capture)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* the driver would make it a child; nobody here needs
								 that */
	begin_nodes(g);
	struct soft_entry *e = append(s);
	e->work = (struct soft_work){ .kind = SOFT_GRAPH, .name = "graph" };
	e->graph = g;
	g->refs++;
	g->launched++;
	e->left = get((size_t)(g->nodes + 1) * sizeof *e->left);
	e->tickets = get((size_t)(g->nodes + 1) * sizeof(struct soft_ticket *));
	for (int i = 0; i < g->nodes; i++) {
		struct soft_event *event = g->node[i].work.event;
		e->left[i] = g->node[i].afters;
		if (g->node[i].work.kind != SOFT_RECORD)
			continue;
		e->tickets[i] = soft_ticket_new();
		e->tickets[i]->refs++;
		soft_ticket_drop(event->ticket);
		event->ticket = e->tickets[i];
		event->capture = NULL;
	}
	soft_count.graph_launches++;
	soft_some();
	return CUDA_SUCCESS;
}

/* The struct stays, so that a use of the handle is known for what it is. */
void soft_stream_drop(struct soft_stream *s)
{
	struct soft_stream **at = &streams;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	s->magic = 0;
}

struct soft_stream *soft_stream_new(void)
{
	struct soft_stream *s = get(sizeof *s);
	s->device = soft_device();
	s->tail = &s->head;
	s->next = streams;
	streams = s;
	return s;
}
