/* Times of kernels from CUPTI, and which operation each kernel belongs to.
 *
 * Who puts an operation's work into a stream says so before and after (push, pop). Work that starts at once then
 * carries the operation's number as CUPTI's external correlation id. Work that is captured becomes nodes of a graph:
 * CUPTI reports each node as it is made, in the thread that captures, and each copy as the graph is made ready to run;
 * a kernel of a graph names its node. */
#include "kernel/cuda/cuda_int.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if FO_CUPTI
/* ---- numbers by number: correlations and nodes to operations ---- */

struct map {
	uint64_t *key;
	int64_t *value;
	size_t n, room; /* room: 0 or a power of two above 4/3 n */
};
enum { ROOM_LEAST = 1024 };

static size_t place(const struct map *m, uint64_t key)
{
	size_t i = (size_t)fo_rng_u64(0, key) & (m->room - 1);
	while (m->value[i] >= 0 && m->key[i] != key)
		i = (i + 1) & (m->room - 1);
	return i;
}
static int64_t map_get(const struct map *m, uint64_t key) { return m->room ? m->value[place(m, key)] : -1; }
static void map_put(struct map *m, uint64_t key, int64_t value)
{
	if (4 * (m->n + 1) > 3 * m->room) {
		struct map old = *m;
		m->room = old.room ? 2 * old.room : ROOM_LEAST;
		m->key = fo_xmalloc(m->room * sizeof *m->key);
		m->value = fo_xmalloc(m->room * sizeof *m->value);
		memset(m->value, 0xff, m->room * sizeof *m->value);
		for (size_t i = 0; i < old.room; i++)
			if (old.value[i] >= 0) {
				size_t at = place(m, old.key[i]);
				m->key[at] = old.key[i];
				m->value[at] = old.value[i];
			}
		free(old.key);
		free(old.value);
	}
	size_t at = place(m, key);
	m->n += m->value[at] < 0;
	m->key[at] = key;
	m->value[at] = value;
}
static void map_clear(struct map *m)
{
	free(m->key);
	free(m->value);
	*m = (struct map){ 0 };
}

/* ---- CUPTI's reports, from threads of its own ---- */

struct seen {
	struct fo_cuda_traced t;
	uint32_t correlation;
	uint64_t node;
};
static struct {
	pthread_mutex_t lock;
	const struct fo_cupti_calls *cupti; /* NULL: nobody traces */
	CUpti_SubscriberHandle subscriber;
	int64_t offset; /* fo_now_ns() less CUPTI's clock */
	struct map operation_of_call, operation_of_node;
	struct seen *seen;
	size_t n, cap;
	char **name;
	size_t named, name_cap;
	uint64_t dropped;
} state = { .lock = PTHREAD_MUTEX_INITIALIZER };
/* The operation whose work this thread is putting into streams; -1: none. */
static __thread int64_t current = -1;

enum {
	BUFFER = 4 << 20,
	ALIGN = 8 /* CUPTI's own rule */,
	MOST = 1 << 24 /* records kept; more are counted as dropped */
};

static void CUPTIAPI want_buffer(uint8_t **buffer, size_t *bytes, size_t *records)
{
	*buffer = aligned_alloc(ALIGN, BUFFER);
	*bytes = *buffer ? BUFFER : 0;
	*records = 0; /* as many as fit */
}

/* Names live until the process ends: kernels are few, and who took a trace may keep it. */
static const char *keep_name(const char *name)
{
	for (size_t i = 0; i < state.named; i++)
		if (!strcmp(state.name[i], name))
			return state.name[i];
	fo_array_room(&state.name, &state.name_cap, state.named, sizeof *state.name);
	return state.name[state.named++] = fo_xstrdup(name);
}

static void keep_kernel(const CUpti_ActivityKernel10 *k)
{
	if (state.n == MOST) {
		state.dropped++;
		return;
	}
	fo_array_room(&state.seen, &state.cap, state.n, sizeof *state.seen);
	state.seen[state.n++] = (struct seen){ .t = { .instance = -1,
						      .name = keep_name(k->name ? k->name : "?"),
						      .begin_ns = (int64_t)k->start + state.offset,
						      .end_ns = (int64_t)k->end + state.offset,
						      .stream = k->streamId },
					       .correlation = k->correlationId,
					       .node = k->graphNodeId };
}

static void CUPTIAPI have_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t used)
{
	CUpti_Activity *r = NULL;
	size_t dropped = 0;
	(void)bytes;
	pthread_mutex_lock(&state.lock);
	while (state.cupti && used && state.cupti->cuptiActivityGetNextRecord(buffer, used, &r) == CUPTI_SUCCESS) {
		if (r->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || r->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
			keep_kernel((const CUpti_ActivityKernel10 *)(const void *)r);
		} else if (r->kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) {
			const CUpti_ActivityExternalCorrelation *e = (const void *)r;
			if (e->externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0)
				map_put(&state.operation_of_call, e->correlationId, (int64_t)e->externalId);
		}
	}
	if (state.cupti && state.cupti->cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS)
		state.dropped += dropped;
	pthread_mutex_unlock(&state.lock);
	free(buffer);
}

/* A node of a graph: made while an operation is captured, or copied from such a one. */
static void CUPTIAPI have_node(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId what, const void *data)
{
	const CUpti_ResourceData *resource = data;
	const CUpti_GraphData *g = domain == CUPTI_CB_DOMAIN_RESOURCE ? resource->resourceDescriptor : NULL;
	uint64_t id = 0, from = 0;
	(void)user;
	if (!g || (what != CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED && what != CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED))
		return;
	pthread_mutex_lock(&state.lock);
	const bool copy = what == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED;
	if (state.cupti && state.cupti->cuptiGetGraphNodeId(g->node, &id) == CUPTI_SUCCESS) {
		int64_t whose = current;
		if (copy)
			whose = state.cupti->cuptiGetGraphNodeId(g->originalNode, &from) == CUPTI_SUCCESS
					? map_get(&state.operation_of_node, from)
					: -1;
		if (whose >= 0)
			map_put(&state.operation_of_node, id, whose);
	}
	pthread_mutex_unlock(&state.lock);
}

/* ---- what callers see ---- */

static fo_status failed(const struct fo_cupti_calls *c, CUptiResult r, const char *doing)
{
	const char *why = NULL;
	if (r == CUPTI_SUCCESS)
		return FO_OK;
	c->cuptiGetResultString(r, &why);
	return fo_fail(FO_EDEVICE, "cannot %s: CUPTI says \"%s\" (%d)", doing, why ? why : "unknown error", (int)r);
}

/* Calls of driver and runtime are both recorded: external numbers come only with records of calls. */
static const CUpti_ActivityKind kinds[] = { CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
					    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_DRIVER,
					    CUPTI_ACTIVITY_KIND_RUNTIME };
enum { KINDS = sizeof kinds / sizeof *kinds };

static void switch_off(const struct fo_cupti_calls *c)
{
	for (int i = 0; i < KINDS; i++)
		(void)c->cuptiActivityDisable(kinds[i]);
	if (state.subscriber)
		(void)c->cuptiUnsubscribe(state.subscriber);
	state.subscriber = NULL;
}

static fo_status switch_on(const struct fo_cupti_calls *c)
{
	static const CUpti_CallbackId node[] = { CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
						 CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED };
	uint64_t now = 0;
	CUptiResult r = c->cuptiSubscribe(&state.subscriber, have_node, NULL);
	if (r != CUPTI_SUCCESS) {
		state.subscriber = NULL;
		return fo_hint(failed(c, r, "look at kernels"), "only one profiler can: end the other one");
	}
	for (int i = 0; i < 2; i++)
		FO_TRY(failed(c, c->cuptiEnableCallback(1, state.subscriber, CUPTI_CB_DOMAIN_RESOURCE, node[i]),
			      "hear of graphs"));
	FO_TRY(failed(c, c->cuptiActivityRegisterCallbacks(want_buffer, have_buffer), "hear of kernels"));
	FO_TRY(failed(c, c->cuptiGetTimestamp(&now), "read the clock"));
	state.offset = fo_now_ns() - (int64_t)now;
	for (int i = 0; i < KINDS; i++)
		FO_TRY(failed(c, c->cuptiActivityEnable(kinds[i]), "look at kernels"));
	return FO_OK;
}

fo_status fo_cuda_trace_start(void)
{
	struct fo_cuda_found found;
	const struct fo_cupti_calls *c = fo_cuda_load(FO_CUDA_CUPTI, &found);
	if (!c)
		return fo_fail(FO_EUNSUPPORTED, "no times of kernels: %s", found.why);
	if (state.cupti)
		return fo_fail(FO_EARG, "kernels are being traced already");
	pthread_mutex_lock(&state.lock);
	state.cupti = c;
	state.dropped = 0;
	pthread_mutex_unlock(&state.lock);
	fo_status st = switch_on(c);
	if (st != FO_OK) {
		switch_off(c);
		state.cupti = NULL;
	}
	return st;
}

void fo_cuda_trace_push(int64_t instance)
{
	if (!state.cupti)
		return;
	current = instance;
	(void)state.cupti->cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
								  (uint64_t)instance);
}

void fo_cuda_trace_pop(void)
{
	uint64_t last;
	if (!state.cupti || current < 0)
		return;
	current = -1;
	(void)state.cupti->cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last);
}

static int by_begin(const void *a, const void *b)
{
	const struct fo_cuda_traced *x = a, *y = b;
	return x->begin_ns < y->begin_ns ? -1 : x->begin_ns > y->begin_ns;
}

fo_status fo_cuda_trace_take(struct fo_cuda_trace *out)
{
	*out = (struct fo_cuda_trace){ 0 };
	if (!state.cupti)
		return fo_fail(FO_EARG, "kernels are not being traced");
	FO_TRY(failed(state.cupti, state.cupti->cuptiActivityFlushAll(0), "collect times of kernels"));
	pthread_mutex_lock(&state.lock);
	out->kernel = fo_xmalloc((state.n + 1) * sizeof *out->kernel);
	for (size_t i = 0; i < state.n; i++) {
		struct fo_cuda_traced *t = &out->kernel[out->n++];
		*t = state.seen[i].t;
		t->instance = state.seen[i].node ? map_get(&state.operation_of_node, state.seen[i].node)
						 : map_get(&state.operation_of_call, state.seen[i].correlation);
		out->unknown += t->instance < 0;
	}
	qsort(out->kernel, out->n, sizeof *out->kernel, by_begin);
	out->dropped = state.dropped;
	state.n = 0;
	state.dropped = 0;
	map_clear(&state.operation_of_call);
	pthread_mutex_unlock(&state.lock);
	return FO_OK;
}

void fo_cuda_trace_fini(struct fo_cuda_trace *t)
{
	free(t->kernel);
	*t = (struct fo_cuda_trace){ 0 };
}

void fo_cuda_trace_stop(void)
{
	const struct fo_cupti_calls *c = state.cupti;
	if (!c)
		return;
	(void)c->cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
	switch_off(c);
	pthread_mutex_lock(&state.lock);
	state.cupti = NULL;
	map_clear(&state.operation_of_call);
	map_clear(&state.operation_of_node);
	free(state.seen);
	state.seen = NULL;
	state.n = state.cap = 0;
	pthread_mutex_unlock(&state.lock);
}
#else
static fo_status none(void)
{
	return fo_hint(fo_fail(FO_EUNSUPPORTED, "this build has no CUPTI"),
		       "install the CUDA toolkit with its profiling headers (cupti.h) and build again");
}
fo_status fo_cuda_trace_start(void) { return none(); }
void fo_cuda_trace_push(int64_t instance) { (void)instance; }
void fo_cuda_trace_pop(void) {}
fo_status fo_cuda_trace_take(struct fo_cuda_trace *out)
{
	*out = (struct fo_cuda_trace){ 0 };
	return none();
}
void fo_cuda_trace_fini(struct fo_cuda_trace *t) { (void)t; }
void fo_cuda_trace_stop(void) {}
#endif
