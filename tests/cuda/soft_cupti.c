/* libcupti of the tests: no kernels run here; a test says which ran, and this hands the records over as CUPTI does: in
 * buffers that the caller gave, numbers of who launched in front, when a buffer is full or somebody flushes. */
#define _GNU_SOURCE
#include "cuda/soft_cupti.h"

#include "base/clock.h"

#include <cupti.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = 256, DEPTH = 4 };
#define CLOCK_AHEAD_NS 1000000000000LL /* of this library's clock before the machine's: a quarter of an hour */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static CUpti_CallbackFunc callback;
static void *callback_user;
static bool enabled[KINDS];
static uint8_t *buffer;
static size_t room, used, lost;
static uint32_t correlation;
static __thread uint64_t id[DEPTH];
static __thread int depth;

CUptiResult cuptiGetVersion(uint32_t *v)
{
	*v = CUPTI_API_VERSION;
	return CUPTI_SUCCESS;
}
CUptiResult cuptiGetTimestamp(uint64_t *t)
{
	*t = (uint64_t)(fo_now_ns() + CLOCK_AHEAD_NS);
	return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult r, const char **text)
{
	*text = r == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
								    : "CUPTI_ERROR";
	return CUPTI_SUCCESS;
}
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *out, CUpti_CallbackFunc f, void *user)
{
	static char handle;
	if (callback || getenv("FLATOUT_SOFT_CUPTI_BUSY"))
		return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
	callback = f;
	callback_user = user;
	*out = (CUpti_SubscriberHandle)(void *)&handle;
	return CUPTI_SUCCESS;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle s)
{
	(void)s;
	callback = NULL;
	return CUPTI_SUCCESS;
}
CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle s, CUpti_CallbackDomain d, CUpti_CallbackId i)
{
	(void)enable, (void)s, (void)i;
	return d == CUPTI_CB_DOMAIN_RESOURCE ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc a, CUpti_BuffersCallbackCompleteFunc b)
{
	request = a;
	complete = b;
	return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind k)
{
	enabled[k] = true;
	return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind k)
{
	enabled[k] = false;
	return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind k, uint64_t i)
{
	if (k != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 || depth == DEPTH)
		return CUPTI_ERROR_INVALID_PARAMETER;
	id[depth++] = i;
	return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind k, uint64_t *last)
{
	(void)k;
	if (!depth)
		return CUPTI_ERROR_QUEUE_EMPTY;
	*last = id[--depth];
	return CUPTI_SUCCESS;
}
CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t *out)
{
	*out = (uint64_t)(uintptr_t)node;
	return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext c, uint32_t stream, size_t *out)
{
	(void)c, (void)stream;
	*out = lost;
	lost = 0;
	return CUPTI_SUCCESS;
}

static size_t size_of(const CUpti_Activity *r)
{
	return r->kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION ? sizeof(CUpti_ActivityExternalCorrelation)
								   : sizeof(CUpti_ActivityKernel10);
}
CUptiResult cuptiActivityGetNextRecord(uint8_t *from, size_t bytes, CUpti_Activity **r)
{
	uint8_t *at = *r ? (uint8_t *)*r + size_of(*r) : from;
	if (at >= from + bytes)
		return CUPTI_ERROR_MAX_LIMIT_REACHED;
	*r = (CUpti_Activity *)(void *)at;
	return CUPTI_SUCCESS;
}
static void hand_over(void)
{
	uint8_t *b = buffer;
	buffer = NULL;
	if (b)
		complete(NULL, 0, b, room, used);
	used = 0;
}
CUptiResult cuptiActivityFlushAll(uint32_t flags)
{
	(void)flags;
	pthread_mutex_lock(&lock);
	hand_over();
	pthread_mutex_unlock(&lock);
	return CUPTI_SUCCESS;
}

/* ---- what a test says ---- */

static void put(const void *record, size_t bytes)
{
	size_t most;
	if (buffer && used + bytes > room)
		hand_over();
	if (!buffer)
		request(&buffer, &room, &most);
	memcpy(buffer + used, record, bytes);
	used += bytes;
}
void fo_software_cupti_kernel(const char *name, int64_t begin_ns, int64_t end_ns, uint64_t node)
{
	pthread_mutex_lock(&lock);
	correlation++;
	if (depth && enabled[CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION] && enabled[CUPTI_ACTIVITY_KIND_DRIVER]) {
		const CUpti_ActivityExternalCorrelation e = { .kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
							      .externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
							      .externalId = id[depth - 1],
							      .correlationId = correlation };
		put(&e, sizeof e);
	}
	if (enabled[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL]) {
		const CUpti_ActivityKernel10 k = { .kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
						   .name = name,
						   .start = (uint64_t)(begin_ns + CLOCK_AHEAD_NS),
						   .end = (uint64_t)(end_ns + CLOCK_AHEAD_NS),
						   .correlationId = correlation,
						   .graphNodeId = node,
						   .streamId = 3 };
		put(&k, sizeof k);
	}
	pthread_mutex_unlock(&lock);
}
void fo_software_cupti_node(uint64_t node, uint64_t from)
{
	CUpti_GraphData g = { .node = (CUgraphNode)(uintptr_t)node, .originalNode = (CUgraphNode)(uintptr_t)from };
	CUpti_ResourceData r = { .resourceDescriptor = &g };
	if (callback)
		callback(callback_user, CUPTI_CB_DOMAIN_RESOURCE,
			 from ? CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED : CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, &r);
}
void fo_software_cupti_lose(size_t n) { lost += n; }
