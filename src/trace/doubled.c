/* Events that a file holds twice, as a merge of a trace with itself leaves them: the second of each is dropped and
 * counted. */
#include "trace/trace_int.h"

#include <string.h>
#include <xxhash.h>

/* The fields that make two events the same. Whole numbers without gaps: keys are hashed as bytes. */
struct key {
	int64_t begin_ns, end_ns, correlation, sequence;
	int32_t name, place, external, kind;
};

static struct key gpu_key(const void *event)
{
	const struct fo_gpu_op *g = event;
	return (struct key){
		g->begin_ns, g->end_ns, g->correlation, g->device, g->name, g->stream, g->external, g->kind
	};
}

static struct key launch_key(const void *event)
{
	const struct fo_launch *l = event;
	return (struct key){ l->begin_ns, l->end_ns, l->correlation, 0, l->name, l->thread, l->external, 0 };
}

static struct key op_key(const void *event)
{
	const struct fo_host_op *o = event;
	return (struct key){ o->begin_ns, o->end_ns, -1, o->sequence, o->name, o->thread, o->external, o->kind };
}

static struct key wait_key(const void *event)
{
	const struct fo_gpu_wait *w = event;
	return (struct key){ w->begin_ns, w->end_ns, w->device, -1, w->kind, w->stream, w->on_stream, 0 };
}

/* Keeps the first of each key in events[0..n), in their order. Events without an extent stay: there may be many at one
 * instant. */
static int64_t drop(void *events, int64_t *n, size_t size, struct key (*key_of)(const void *event))
{
	size_t kept = 0;
	char *v = events;
	struct fo_index seen = { 0 };
	for (size_t i = 0; i < (size_t)*n; i++) {
		const struct key key = key_of(v + i * size);
		XXH128_hash_t hash = XXH3_128bits(
			&key, sizeof key); /* that of other keys is another, but for a chance of 2^-128 */
		if (key.end_ns > key.begin_ns &&
		    fo_index_add(&seen, (int64_t)hash.high64, (int64_t)hash.low64, (int32_t)i) != (int32_t)i)
			continue;
		if (kept < i)
			memcpy(v + kept * size, v + i * size, size);
		kept++;
	}
	fo_index_fini(&seen);
	int64_t dropped = *n - (int64_t)kept;
	*n = (int64_t)kept;
	return dropped;
}

void fo_trace_drop_doubled(struct fo_trace *t)
{
	/* No stream runs a kernel twice at one time. An operator may call another of its name at its own time, so the
	 * host's events are looked at only where the GPU's tell that the file holds things twice. */
	int64_t dropped = drop(t->gpu, &t->gpu_count, sizeof *t->gpu, gpu_key);
	if (dropped) {
		dropped += drop(t->launch, &t->launch_count, sizeof *t->launch, launch_key);
		dropped += drop(t->op, &t->op_count, sizeof *t->op, op_key);
		dropped += drop(t->wait, &t->wait_count, sizeof *t->wait, wait_key);
	}
	t->defect.doubled = dropped;
}
