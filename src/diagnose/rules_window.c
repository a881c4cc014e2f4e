/* Notes on the window of a trace that marks no step or one: where it begins, and how much of it is a start rather than
 * work. */
#include "diagnose/findings_int.h"

#include "base/str.h"

#include <stdio.h>

static void window_event(const struct fo_rule_context *c, struct fo_finding *f, int64_t begin, int64_t length,
			 const char *name)
{
	fo_evidence_add(f, c->s->rank->rank, c->s->id, begin, length, name, NULL);
}

bool fo_one_window(const struct fo_rule_context *c) { return c->s->device->steps == 1; }

static bool captures(const struct fo_trace *t)
{
	for (int64_t i = 0; i < t->op_count; i++)
		if (t->op[i].kind == FO_HOST_CALL && fo_trace_begins_capture(fo_trace_text(t, t->op[i].name)))
			return true;
	return false;
}

static const char *prepared(const struct fo_trace *t)
{
	return captures(t) ? "graphs were captured, code was loaded or compiled" : "code was loaded or compiled";
}

/* Above half of the window a warm-up is what it mainly shows. */
void fo_mostly_warm_up(const struct fo_rule_context *c, char *out, size_t size)
{
	int64_t ns = c->s->l.idle_ns[FO_IDLE_LONG_CALL];
	char a[24], b[24];
	out[0] = '\0';
	if (fo_one_window(c) && 2 * ns > c->s->l.span_ns)
		snprintf(out, size, "a warm-up is recorded, not work: for %s of %s %s", fo_ns_text(a, ns),
			 fo_ns_text(b, c->s->l.span_ns), prepared(c->s->t));
}

static bool warm_up(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t ns = c->s->l.idle_ns[FO_IDLE_LONG_CALL];
	if (!fo_one_window(c) || fo_share(c, ns) <= FO_SHARE_ADVICE)
		return false;
	bool graph = captures(c->s->t);
	if (c->s->d->judged == FO_JUDGED_WARM_UP)
		snprintf(f->title, sizeof(f->title), "%s", c->s->d->cannot);
	else
		snprintf(f->title, sizeof(f->title), "warm-up: for %.1f %% of the time %s", 100 * fo_share(c, ns),
			 prepared(c->s->t));
	snprintf(f->why, sizeof(f->why),
		 "Calls that launch a kernel or load a module took more than a millisecond each%s while the GPU had "
		 "nothing to do. That happens at the first use of a kernel%s, and is no bottleneck of the job. Record "
		 "steps after a warm-up%s.",
		 graph ? ", or a graph was captured," : "", graph ? " or graph" : "",
		 c->s->t->format == FO_TRACE_NSYS ? "" : ": torch.profiler.schedule(wait=1, warmup=2, active=5)");
	fo_evidence_gaps(f, c->s, c->gap, c->gaps, 1u << FO_IDLE_LONG_CALL, 0, INT64_MAX);
	if (!f->evidences)
		window_event(c, f, c->s->begin_ns, c->s->end_ns - c->s->begin_ns, "the window that is spoken of");
	return true;
}

void fo_mostly_taken_out(const struct fo_rule_context *c, char *out, size_t size)
{
	const struct fo_trace_defects *x = &c->s->t->defect;
	out[0] = '\0';
	if (x->numbers_of > 0)
		snprintf(out, size,
			 "most events were taken out of this trace: of %lld operators by their numbers it holds %lld",
			 (long long)x->numbers_of, (long long)x->numbers);
}

static bool taken_out(const struct fo_rule_context *c, struct fo_finding *f)
{
	if (c->s->d->judged != FO_JUDGED_THINNED)
		return false;
	snprintf(f->title, sizeof(f->title), "%s", c->s->d->cannot);
	snprintf(f->why, sizeof(f->why),
		 "The profiler numbers its operators one after the other, and the launches' numbers have holes of the "
		 "same kind. The time of what was taken out looks idle. Give the file as the profiler wrote it, or "
		 "record fewer steps instead of fewer events.");
	window_event(c, f, c->s->begin_ns, c->s->end_ns - c->s->begin_ns, "the window that is spoken of");
	return true;
}

/* Below a tenth of it a call does not tell what that time was. */
static void host_at_start(const struct fo_rule_context *c, char *out, size_t size)
{
	enum { TENTH = 10 };
	const struct fo_device_ledger *v = c->s->device;
	char a[24], b[24], name[100] = "";
	if (v->start_call_ns > 0)
		fo_str_visible(name, sizeof(name), fo_trace_text(c->s->t, v->start_call));
	if (TENTH * v->start_call_ns < v->start_ns)
		snprintf(out, size, "no operator or call of the host is recorded that takes a tenth of that time");
	else
		snprintf(out, size, "for %s of these %s the host was in %s", fo_ns_text(a, v->start_call_ns),
			 fo_ns_text(b, v->start_ns), name);
}

static bool start(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_device_ledger *v = c->s->device;
	char a[24], b[24], did[200];
	if (v->start_ns <= 0)
		return false;
	host_at_start(c, did, sizeof(did));
	snprintf(f->title, sizeof(f->title),
		 "the first %s are left out: they look like a start, not like the job's work",
		 fo_ns_text(a, v->start_ns));
	snprintf(f->why, sizeof(f->why),
		 "No steps are marked. At the front lie %lld GPU operation%s and a long gap, and %s. So the profiler, "
		 "the driver or the job may have been starting up. If every step has such a gap, it is the bottleneck, "
		 "and %s lose to it: record several steps with profiler.step() to tell.",
		 (long long)v->start_ops, v->start_ops == 1 ? "" : "s", did, fo_ns_text(b, v->start_ns));
	window_event(c, f, c->s->begin_ns - v->start_ns, v->start_ns, "left out at the front");
	return true;
}

static bool lead(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_device_ledger *v = c->s->device;
	char a[24];
	if (v->lead_ns <= 0)
		return false;
	snprintf(f->title, sizeof(f->title),
		 "the window begins with the host's work, %s before the first GPU operation",
		 fo_ns_text(a, v->lead_ns));
	snprintf(f->why, sizeof(f->why),
		 "No steps are marked. Operators, a data loader or annotations of the launching thread are recorded "
		 "before it launched anything, so they are a part of what is looked at. If that happens once and not "
		 "in every step, the GPU's share of a step is higher: record several steps with profiler.step() to "
		 "tell.");
	window_event(c, f, c->s->begin_ns, v->lead_ns, "before the first GPU operation");
	return true;
}

const struct fo_rule_row fo_rules_window[] = {
	{ "taken-out", FO_FIND_VALIDITY, taken_out },
	{ "warm-up", FO_FIND_VALIDITY, warm_up },
	{ "start-left-out", FO_FIND_VALIDITY, start },
	{ "host-lead-in", FO_FIND_VALIDITY, lead },
	{ NULL, FO_FIND_VALIDITY, NULL },
};
