/* Causes that the trace marks by name: garbage collection, the writing of a checkpoint, allocation inside the step.
 * Without the name they are time in which the host waits or does something else, and are told as that. */
#include "diagnose/findings_int.h"

#include "base/count.h"
#include "base/text.h"

#include <string.h>

/* ---- what is marked ---- */

static bool allocates(const char *name)
{
	return strstr(name, "Malloc") || strstr(name, "MemAlloc") || strstr(name, "Free") || strstr(name, "HostAlloc");
}

/* Gathers the ranges of one mark on all threads: a collection holds all of them up. */
static void gather(const struct fo_subject *s, enum fo_mark mark, struct fo_intervals *out)
{
	const struct fo_trace *t = s->t;
	for (int64_t i = 0; i < t->op_count; i++) {
		const struct fo_host_op *o = &t->op[i];
		const char *name = fo_trace_text(t, o->name);
		if (o->end_ns <= s->begin_ns || o->begin_ns >= s->end_ns)
			continue;
		bool is = mark == FO_MARK_ALLOCATION
				  ? o->kind == FO_HOST_SYNC && allocates(name)
				  : o->kind != FO_HOST_SYNC && o->kind != FO_HOST_CALL && fo_marks(mark, name);
		if (is)
			fo_intervals_add(out, o->begin_ns, o->end_ns);
	}
	fo_intervals_unite(out);
}

/* Moves the host's part of every gap inside such ranges to c->marked_ns. A later mark does not get what an earlier one
 * took. */
static void of_gaps(struct fo_rule_context *c, struct fo_idle_gap *gap, enum fo_mark mark,
		    const struct fo_intervals *where)
{
	static const enum fo_idle_cause cause[] = { FO_IDLE_HOST_OTHER, FO_IDLE_HOST_SYNC, FO_IDLE_HOST_LAUNCH_BOUND };
	for (int64_t i = 0; i < c->gaps; i++) {
		int64_t left = fo_intervals_within(where, gap[i].begin_ns, gap[i].end_ns);
		for (size_t k = mark == FO_MARK_ALLOCATION; left > 0 && k < sizeof(cause) / sizeof(*cause); k++) {
			int64_t take = fo_min(left, gap[i].idle_ns[cause[k]]);
			gap[i].idle_ns[cause[k]] -= take;
			c->marked_ns[mark][cause[k]] += take;
			left -= take;
			if (mark == FO_MARK_ALLOCATION)
				break; /* the allocator accounts for the waiting alone */
		}
	}
}

static int64_t marked_of(const struct fo_rule_context *c, enum fo_mark m)
{
	int64_t ns = 0;
	for (int i = 0; i < FO_IDLE_COUNT; i++)
		ns += c->marked_ns[m][i];
	return ns;
}

void fo_marks_find(struct fo_rule_context *c, struct fo_idle_gap *gap)
{
	for (enum fo_mark m = 0; m < FO_MARK_COUNT; m++) {
		struct fo_intervals where = { 0 };
		gather(c->s, m, &where);
		if (where.n)
			of_gaps(c, gap, m, &where);
		fo_intervals_fini(&where);
		for (int i = 0; i < FO_IDLE_COUNT; i++)
			c->marked_ns[m][i] /= c->s->steps;
		if (fo_share(c, marked_of(c, m)) <=
		    FO_SHARE_ADVICE) /* too little for a finding: it stays with the other idling */
			memset(c->marked_ns[m], 0, sizeof(c->marked_ns[m]));
	}
}

int64_t fo_marked(const struct fo_rule_context *c, enum fo_idle_cause cause)
{
	int64_t ns = 0;
	for (int m = 0; m < FO_MARK_COUNT; m++)
		ns += c->marked_ns[m][cause];
	return ns;
}

/* ---- rules ---- */

static void evidence(const struct fo_rule_context *c, struct fo_finding *f, enum fo_mark m)
{
	const struct fo_trace *t = c->s->t;
	for (int64_t i = 0; i < t->op_count; i++) {
		const struct fo_host_op *o = &t->op[i];
		const char *name = fo_trace_text(t, o->name);
		if (o->end_ns > c->s->begin_ns && o->begin_ns < c->s->end_ns &&
		    (m == FO_MARK_ALLOCATION ? o->kind == FO_HOST_SYNC && allocates(name) : fo_marks(m, name)))
			fo_evidence_at(f, c->s, o->begin_ns, o->end_ns - o->begin_ns, name);
	}
}

/* A cure takes all of it off the launching thread; what the thread does anyhow stays the floor, and that counts what
 * the thread does, but not what it waits for. *ns: idling of a step. */
static bool holds(const struct fo_rule_context *c, struct fo_finding *f, enum fo_mark m, double least, int64_t *ns)
{
	*ns = marked_of(c, m);
	if (!fo_notable(c, f, *ns))
		return false;
	fo_gain_of(c, f, *ns,
		   (struct fo_gain){ .least = least, .most = 1, .frees_ns = *ns - c->marked_ns[m][FO_IDLE_HOST_SYNC] });
	evidence(c, f, m);
	return true;
}

/* A collection every 50 steps instead of in each leaves a fiftieth of it. */
#define COLLECTED_LESS (1 - 1.0 / 50)

static bool garbage(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t ns;
	if (!holds(c, f, FO_MARK_COLLECTION, FO_GAIN_HALF * COLLECTED_LESS, &ns))
		return false;
	fo_title(f, "Python collects garbage while the GPU idles: %.1f %% of the step", fo_percent(c, ns));
	fo_why(f,
	       "The interpreter stops all its threads for %s of a step to look for unreachable objects. Collect by "
	       "hand, every so many steps, on all ranks in the same one.",
	       FO_NS(ns));
	return true;
}

static bool checkpoint(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t ns;
	if (!holds(c, f, FO_MARK_SAVING, FO_GAIN_HALF, &ns))
		return false;
	fo_title(f, "a checkpoint is written while the GPU idles: %.1f %% of the step", fo_percent(c, ns));
	fo_why(f,
	       "The launching thread writes for %s%s. Copy the state to pinned host memory, and let another thread "
	       "write it while training goes on; or save less often.",
	       FO_NS(ns), c->s->steps > 1 ? " on average, some steps all of it" : " of the step");
	return true;
}

static bool allocator(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t ns;
	if (!holds(c, f, FO_MARK_ALLOCATION, FO_GAIN_HALF, &ns))
		return false;
	fo_title(f, "memory is allocated and freed inside the step: the GPU idles %.1f %% of it after those calls",
		 fo_percent(c, ns));
	fo_why(f,
	       "Allocating from the driver, and above all freeing, makes the host wait (%s of a step). In a steady "
	       "step the caching allocator needs neither: memory is nearly full or fragmented, shapes change, or "
	       "empty_cache() is called.",
	       FO_NS(ns));
	return true;
}

const struct fo_rule_row fo_rules_marked[] = {
	{ "garbage-collection", FO_FIND_HOST, .holds = garbage },
	{ "checkpoint", FO_FIND_HOST, .holds = checkpoint },
	{ "allocator", FO_FIND_HOST, .holds = allocator },
	{ .id = NULL },
};
