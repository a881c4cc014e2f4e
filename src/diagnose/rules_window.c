/* Notes on the window of a trace that marks no step or one: where it begins, and how much of it is a start rather than
 * work. */
#include "diagnose/findings_int.h"

#include "base/mem.h"
#include "base/str.h"
#include "base/count.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>

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

/* A warm-up of more than half of the window is what the window mainly shows. */
void fo_mostly_warm_up(const struct fo_rule_context *c, char *out, size_t size)
{
	int64_t ns = c->s->l.idle_ns[FO_IDLE_LONG_CALL];
	out[0] = '\0';
	if (fo_one_window(c) && 2 * ns > c->s->l.span_ns)
		snprintf(out, size, "a warm-up is recorded, not work: for %s of %s %s", FO_NS(ns),
			 FO_NS(c->s->l.span_ns), prepared(c->s->t));
}

static bool warm_up(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t ns = c->s->l.idle_ns[FO_IDLE_LONG_CALL];
	if (!fo_one_window(c) || fo_share(c, ns) <= FO_SHARE_ADVICE)
		return false;
	static const char *const graph_use[] = { " of a kernel", " of a kernel or graph" };
	bool graph = captures(c->s->t);
	if (c->s->d->judged == FO_JUDGED_WARM_UP)
		fo_title(f, "%s", c->s->d->cannot);
	else
		fo_title(f, "warm-up: for %.1f %% of the time %s", fo_percent(c, ns), prepared(c->s->t));
	fo_why(f,
	       "Calls that launch a kernel or load a module took more than a millisecond each%s while the GPU had "
	       "nothing to do. That happens at the first use%s, and is no bottleneck of the job.",
	       graph ? ", or a graph was captured," : "", graph_use[graph]);
	fo_why(f, " Record steps after a warm-up%s.",
	       c->s->t->format == FO_TRACE_NSYS ? "" : ": torch.profiler.schedule(wait=1, warmup=2, active=5)");
	return true;
}

void fo_mostly_taken_out(const struct fo_rule_context *c, char *out, size_t size)
{
	const struct fo_trace_defects *x = &c->s->t->defect;
	out[0] = '\0';
	if (x->numbers_of > 0)
		snprintf(out, size,
			 "most events were taken out of this trace: it holds %lld of %lld numbered operators",
			 (long long)x->numbers, (long long)x->numbers_of);
}

static bool taken_out(const struct fo_rule_context *c, struct fo_finding *f)
{
	if (c->s->d->judged != FO_JUDGED_THINNED)
		return false;
	fo_title(f, "%s", c->s->d->cannot);
	fo_why(f, "The profiler numbers its operators one after the other, and the launches' numbers have holes of the "
		  "same kind. The time of what was taken out looks idle. Give the file as the profiler wrote it, or "
		  "record fewer steps instead of fewer events.");
	return true;
}

/* Says what the host did in the time that is left out. A call below a tenth of it does not tell. */
static void say_start(const struct fo_rule_context *c, struct fo_finding *f)
{
	enum { TENTH = 10 };
	const struct fo_device_ledger *v = c->s->device;
	char name[100] = "";
	if (v->start_call_ns > 0)
		fo_str_visible(name, sizeof(name), fo_trace_text(c->s->t, v->start_call));
	if (TENTH * v->start_call_ns < v->start_ns)
		fo_why(f, "no operator or call of the host is recorded that takes a tenth of that time");
	else
		fo_why(f, "for %s of these %s the host was in %s", FO_NS(v->start_call_ns), FO_NS(v->start_ns), name);
}

static bool start(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_device_ledger *v = c->s->device;
	if (v->start_ns <= 0)
		return false;
	fo_title(f, "the first %s are left out: they look like a start, not like the job's work", FO_NS(v->start_ns));
	fo_why(f, "No steps are marked. At the front lie %lld GPU operation%s and a long gap, and ",
	       (long long)v->start_ops, fo_plural(v->start_ops));
	say_start(c, f);
	fo_why(f,
	       ". So the profiler, the driver or the job may have been starting up. If every step has such a gap, it "
	       "is the bottleneck and costs %s: record several steps with profiler.step() to tell.",
	       FO_NS(v->start_ns));
	fo_evidence_at(f, c->s, c->s->begin_ns - v->start_ns, v->start_ns, "left out at the front");
	return true;
}

static bool lead(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_device_ledger *v = c->s->device;
	if (v->lead_ns <= 0)
		return false;
	fo_title(f, "the window begins with the host's work, %s before the first GPU operation", FO_NS(v->lead_ns));
	fo_why(f, "No steps are marked. Operators, a data loader or annotations of the launching thread are recorded "
		  "before it launched anything, so they are a part of what is looked at. If that happens once and not "
		  "in every step, the GPU's share of a step is higher: record several steps with profiler.step() to "
		  "tell.");
	fo_evidence_at(f, c->s, c->s->begin_ns, v->lead_ns, "before the first GPU operation");
	return true;
}

/* ---- first calls ---- */

/* Libraries are loaded, kernels chosen and memory allocated at first calls. In a trace without steps that weighs as
 * much as hundreds of later calls, and a steady state has none of it. */
enum {
	CALLS_LEAST = 4,          /* of an operator: below that no median is one */
	FIRST_LEAST = 5,          /* times the median of the others */
	FIRST_LEAST_NS = 1000000, /* loading takes milliseconds; less is a hiccup */
};

struct call {
	int32_t name, op;
	int64_t begin_ns, ns;
};

static int by_name(const void *a, const void *b)
{
	const struct call *x = a, *y = b;
	if (x->name != y->name)
		return fo_order(x->name, y->name);
	return fo_order(x->begin_ns, y->begin_ns);
}

static int by_length(const void *a, const void *b)
{
	const struct call *x = a, *y = b;
	return fo_order(x->ns, y->ns);
}

static bool outermost(const struct fo_trace *t, const struct fo_host_op *o)
{
	return o->kind == FO_HOST_OP && (o->parent < 0 || t->op[o->parent].kind != FO_HOST_OP);
}

/* How much longer the first of an operator's calls took than the median of the others; 0: nothing unusual. */
static int64_t excess(struct call *c, int64_t n)
{
	if (n < CALLS_LEAST)
		return 0;
	qsort(c + 1, (size_t)(n - 1), sizeof(*c), by_length);
	int64_t median = c[1 + (n - 1) / 2].ns;
	return c[0].ns > FIRST_LEAST_NS && c[0].ns / FIRST_LEAST > median ? c[0].ns - median : 0;
}

static bool first_calls(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_subject *s = c->s;
	const struct fo_trace *t = s->t;
	int64_t n = 0, sum = 0, names = 0, left_out = 0;
	if (s->device->from != FO_WINDOW_WHOLE || t->format == FO_TRACE_OWN)
		return false;
	struct call *call = fo_xmalloc((size_t)(t->op_count + 1) * sizeof(*call));
	for (int64_t i = 0; i < t->op_count; i++)
		if (outermost(t, &t->op[i]))
			call[n++] = (struct call){ t->op[i].name, (int32_t)i, t->op[i].begin_ns,
						   t->op[i].end_ns - t->op[i].begin_ns };
	qsort(call, (size_t)n, sizeof(*call), by_name);
	for (int64_t i = 0, next; i < n; i = next) {
		for (next = i + 1; next < n && call[next].name == call[i].name; next++)
			;
		struct call first = call[i];
		int64_t ns = excess(call + i, next - i), from = fo_max(first.begin_ns, s->begin_ns);
		int64_t inside = first.begin_ns + first.ns - from;
		ns = fo_min(ns, inside); /* only the part inside the window counts */
		if (ns <= 0)
			continue;
		sum += ns;
		names++;
		fo_evidence_add(f, s->rank->rank, s->id, first.begin_ns, first.ns, fo_trace_text(t, first.name),
				"first call");
	}
	free(call);
	for (int64_t i = 0; i < s->d->products; i++)
		left_out += s->d->product[i].warm_up;
	if (left_out > 0 && f->evidences == 0)
		fo_evidence_kernels(f, s, FO_PRODUCT_CLASSES);
	if (fo_share(c, sum) <= FO_SHARE_ADVICE && left_out == 0)
		return false;
	if (names > 0)
		fo_title(f, "warm-up is in the trace: first calls of %lld operator%s take %s more than later ones",
			 (long long)names, fo_plural(names), FO_NS(sum));
	else
		fo_title(f, "warm-up is in the trace: first calls of matmuls are much slower than later ones");
	fo_why(f, "Libraries are loaded and kernels chosen at first use. No step is marked, so that these calls cannot "
		  "be told from a steady state in shares and idling.");
	if (left_out > 0)
		fo_why(f, " First calls of %lld matmul shape%s are left out of rates.", (long long)left_out,
		       fo_plural(left_out));
	fo_why(f, " Record after some steps: schedule(wait=1, warmup=3, active=3) and profiler.step().");
	return true;
}

const struct fo_rule_row fo_rules_window[] = {
	{ "taken-out", FO_FIND_VALIDITY, .holds = taken_out, .window = FO_WINDOW_SHOWN },
	{ "warm-up", FO_FIND_VALIDITY, .holds = warm_up, .gaps = 1u << FO_IDLE_LONG_CALL, .window = FO_WINDOW_SHOWN },
	{ "start-left-out", FO_FIND_VALIDITY, .holds = start },
	{ "host-lead-in", FO_FIND_VALIDITY, .holds = lead },
	{ "first-calls", FO_FIND_VALIDITY, .holds = first_calls },
	{ .id = NULL },
};
