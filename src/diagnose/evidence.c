/* Title, reasons and evidence of a finding: how rules write them. */
#include "diagnose/findings_int.h"
#include "diagnose/ledger_int.h"

#include "base/mem.h"
#include "base/str.h"
#include "base/count.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void fo_title(struct fo_finding *f, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(f->title, sizeof(f->title), fmt, ap);
	va_end(ap);
}

void fo_why(struct fo_finding *f, const char *fmt, ...)
{
	size_t n = strlen(f->why);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(f->why + n, sizeof(f->why) - n, fmt, ap);
	va_end(ap);
}

bool fo_notable(const struct fo_rule_context *c, struct fo_finding *f, int64_t ns)
{
	f->serious = fo_share(c, ns) > FO_SHARE_SERIOUS;
	return fo_share(c, ns) > FO_SHARE_ADVICE;
}

/* ---- operations of the subject ---- */

void fo_subject_ops(const struct fo_trace *t, int16_t device, int64_t begin, int64_t end, int64_t *first, int64_t *last)
{
	/* Sorted by device, then begin; ends are not sorted, so what reaches into the window from before it is found by
	 * walking back over the few operations that can: those that began before it are as many as streams. */
	int64_t low = FO_FIRST(i, t->gpu_count,
			       t->gpu[i].device > device ||
				       (t->gpu[i].device == device && t->gpu[i].begin_ns >= begin));
	enum { STREAMS = 64 };
	*first = low;
	for (int64_t i = low - 1; i >= 0 && i >= low - STREAMS && t->gpu[i].device == device; i--)
		if (t->gpu[i].end_ns > begin)
			*first = i;
	while (low < t->gpu_count && t->gpu[low].device == device && t->gpu[low].begin_ns < end)
		low++;
	*last = low;
}

const struct fo_gpu_op *fo_shown_ops(const struct fo_subject *s, const struct fo_gpu_op **end)
{
	int64_t first, last;
	fo_subject_ops(s->t, s->id, s->begin_ns, s->end_ns, &first, &last);
	*end = s->t->gpu + last;
	return s->t->gpu + first;
}

/* ---- gaps ---- */

static void add_gap(const struct fo_subject *s, const struct fo_idle *h, struct fo_idle_gap **v, size_t *cap,
		    int64_t *n, int64_t begin, int64_t end, int64_t op)
{
	fo_array_room(v, cap, (size_t)*n, sizeof(**v));
	struct fo_idle_gap g = { .begin_ns = begin, .end_ns = end, .op = op };
	const struct fo_gpu_op *first =
		op >= 0 ? &s->t->gpu[op] : NULL; /* it begins behind `end` where the window ends inside the gap */
	fo_idle_divide(h, s->id, first, begin, first && first->begin_ns > end ? first->begin_ns : end, begin, end,
		       g.idle_ns);
	(*v)[(*n)++] = g;
}

int64_t fo_idle_gaps(const struct fo_subject *s, struct fo_idle_gap **out)
{
	const struct fo_trace *t = s->t;
	int64_t first, last, n = 0, at = s->begin_ns;
	size_t cap = 0;
	struct fo_idle h;
	*out = NULL;
	fo_idle_init(&h, t, s->d->with.ledger.whole_trace || s->d->with.ledger.exclude_unlinked);
	fo_subject_ops(t, s->id, s->begin_ns, s->end_ns, &first, &last);
	for (int64_t i = first; i < last; i++) {
		if (t->gpu[i].begin_ns > at)
			add_gap(s, &h, out, &cap, &n, at, t->gpu[i].begin_ns, i);
		at = fo_max(t->gpu[i].end_ns, at);
	}
	if (at < s->end_ns) {
		bool next = last < t->gpu_count && t->gpu[last].device == s->id;
		add_gap(s, &h, out, &cap, &n, at, s->end_ns, next ? last : -1);
	}
	fo_idle_fini(&h);
	return n;
}

/* ---- events ---- */

char *fo_ns_text(char buf[24], int64_t ns)
{
	double v = (double)ns;
	if (v >= 1e9)
		snprintf(buf, 24, "%.3g s", v / 1e9);
	else if (v >= 99950)
		snprintf(buf, 24, "%.*f ms", 2 - (v >= 9.995e6) - (v >= 99.95e6), v / 1e6);
	else
		snprintf(buf, 24, "%.*f us", v >= 9995 ? 0 : 1, v / 1e3);
	return buf;
}

/* Names of C++ differ in template arguments and are one kernel for all that. */
static bool alike(const struct fo_evidence *a, const struct fo_evidence *b)
{
	size_t n = strcspn(a->name, "<");
	return strncmp(a->name, b->name, n) == 0 && (b->name[n] == '\0' || b->name[n] == '<') &&
	       strcmp(a->of, b->of) == 0;
}

static void take_out(struct fo_finding *f, int at)
{
	memmove(&f->evidence[at], &f->evidence[at + 1], (size_t)(--f->evidences - at) * sizeof(*f->evidence));
}

/* The shorter of two alike, the shortest of all such; -1: all differ. */
static int repeated(const struct fo_finding *f)
{
	for (int i = f->evidences - 1; i > 0; i--)
		for (int k = 0; k < i; k++)
			if (alike(&f->evidence[k], &f->evidence[i]))
				return i;
	return -1;
}

/* Keeps the longest; of those alike at most two, and of them the second only until another kind needs its place. */
void fo_evidence_add(struct fo_finding *f, int rank, int16_t device, int64_t begin_ns, int64_t duration_ns,
		     const char *name, const char *of)
{
	struct fo_evidence e = { .rank = rank, .device = device, .begin_ns = begin_ns, .duration_ns = duration_ns };
	fo_str_visible(e.name, sizeof(e.name), name);
	fo_str_visible(e.of, sizeof(e.of), of ? of : "");
	int same = 0, shortest = -1;
	for (int i = 0; i < f->evidences; i++)
		if (alike(&f->evidence[i], &e)) {
			same++;
			shortest = i; /* sorted: the last of them */
		}
	if (same >= 2 || (same == 1 && f->evidences == FO_EVIDENCE_MAX)) {
		if (f->evidence[shortest].duration_ns >= duration_ns)
			return;
		take_out(f, shortest);
	} else if (f->evidences == FO_EVIDENCE_MAX) {
		int victim = repeated(f);
		if (victim < 0 && f->evidence[FO_EVIDENCE_MAX - 1].duration_ns >= duration_ns)
			return;
		take_out(f, victim < 0 ? FO_EVIDENCE_MAX - 1 : victim);
	}
	int at = f->evidences++;
	while (at > 0 && f->evidence[at - 1].duration_ns < duration_ns) {
		f->evidence[at] = f->evidence[at - 1];
		at--;
	}
	f->evidence[at] = e;
}

void fo_evidence_at(struct fo_finding *f, const struct fo_subject *s, int64_t begin_ns, int64_t duration_ns,
		    const char *name)
{
	fo_evidence_add(f, s->rank->rank, s->id, begin_ns, duration_ns, name, NULL);
}

void fo_evidence_window(struct fo_finding *f, const struct fo_subject *s, const char *name)
{
	fo_evidence_at(f, s, s->begin_ns, s->end_ns - s->begin_ns, name);
}

/* "aten::mul in LlamaRMSNorm_3": the innermost operator and the innermost module around the launch, as far as the trace
 * has them. */
static const char *around(char *buf, size_t size, const struct fo_subject *s, const struct fo_gpu_op *o)
{
	const char *op = NULL, *module = NULL;
	for (int32_t i = o->op; i >= 0 && !module; i = s->t->op[i].parent) {
		if (s->t->op[i].kind == FO_HOST_MODULE)
			module = fo_trace_text(s->t, s->t->op[i].name);
		else if (!op && s->t->op[i].kind == FO_HOST_OP)
			op = fo_trace_text(s->t, s->t->op[i].name);
	}
	if (module && strncmp(module, "nn.Module: ", 11) == 0)
		module += 11;
	const char *one = op ? op : module;
	if (op && module)
		snprintf(buf, size, "%s in %s", op, module);
	else
		snprintf(buf, size, "%s", one ? one : "");
	return buf;
}

void fo_evidence_gpu(struct fo_finding *f, const struct fo_subject *s, const struct fo_gpu_op *o, const char *of)
{
	fo_evidence_add(f, s->rank->rank, o->device, o->begin_ns, o->end_ns - o->begin_ns, fo_trace_text(s->t, o->name),
			of);
}

void fo_evidence_placed(struct fo_finding *f, const struct fo_subject *s, const struct fo_gpu_op *o)
{
	char of[FO_EVIDENCE_OF];
	fo_evidence_gpu(f, s, o, around(of, sizeof(of), s, o));
}

void fo_evidence_kernels(struct fo_finding *f, const struct fo_subject *s, uint64_t classes)
{
	for (const struct fo_gpu_op *end, *g = fo_shown_ops(s, &end); g < end; g++)
		if (classes >> g->class & 1)
			fo_evidence_placed(f, s, g);
}

void fo_evidence_kernel(struct fo_finding *f, const struct fo_subject *s, const struct fo_gpu_op *o)
{
	struct fo_finding one = { .evidences = 0 };
	if (f->evidences == FO_EVIDENCE_MAX)
		return;
	fo_evidence_placed(&one, s, o);
	f->evidence[f->evidences++] = one.evidence[0];
}

static void add_host(struct fo_finding *f, const struct fo_subject *s, const struct fo_host_op *o)
{
	fo_evidence_at(f, s, o->begin_ns, o->end_ns - o->begin_ns, fo_trace_text(s->t, o->name));
}

void fo_evidence_host(struct fo_finding *f, const struct fo_subject *s, enum fo_host_kind kind)
{
	for (int64_t i = 0; i < s->t->op_count; i++) {
		const struct fo_host_op *o = &s->t->op[i];
		if (o->kind == kind && o->end_ns > s->begin_ns && o->begin_ns < s->end_ns)
			add_host(f, s, o);
	}
}

void fo_evidence_named(struct fo_finding *f, const struct fo_subject *s, const char *part)
{
	for (int64_t i = 0; i < s->t->op_count; i++)
		if (strstr(fo_trace_text(s->t, s->t->op[i].name), part))
			add_host(f, s, &s->t->op[i]);
}

void fo_tally_add(struct fo_tally *t, int32_t name, int32_t op, int64_t ns)
{
	struct fo_tally_row *r = t->v;
	while (r < t->v + t->n && r->name != name)
		r++;
	if (r == t->v + FO_TALLY_NAMES)
		return;
	if (r == t->v + t->n) {
		*r = (struct fo_tally_row){ .name = name, .first = op, .longest = op };
		t->n++;
	}
	r->ns += ns;
	if (ns > r->longest_ns) {
		r->longest_ns = ns;
		r->longest = op;
	}
	if (!t->best || r->ns > t->best->ns)
		t->best = r;
}

/* Does it take most of [begin, end)? */
static bool fills_gap(const struct fo_host_op *o, int64_t begin, int64_t end)
{
	int64_t from = fo_max(o->begin_ns, begin), to = fo_min(o->end_ns, end);
	/* An annotation that reaches beyond the gap is of the step or a pass, and does not explain the gap. */
	bool note = o->kind == FO_HOST_NOTE && o->begin_ns >= begin && o->end_ns <= end;
	return (note || o->kind == FO_HOST_OP || o->kind == FO_HOST_SYNC || o->kind == FO_HOST_DATA ||
		o->kind == FO_HOST_CALL) &&
	       10 * (to - from) >= 7 * (end - begin);
}

/* Finds the operator whose calls fill a gap together. Returns the longest of its calls in op[first..last), which began
 * in it; -1: none. */
static int32_t repeated_operator(const struct fo_trace *t, int64_t first, int64_t last, int64_t begin, int64_t end)
{
	struct fo_tally seen;
	int64_t covered = begin;
	seen.n = 0; /* rows need not be zero, and there are many gaps */
	seen.best = NULL;
	for (int64_t i = first; i < last; i++) {
		const struct fo_host_op *o = &t->op[i];
		int64_t to = fo_min(o->end_ns, end), ns = to - o->begin_ns;
		if (o->kind != FO_HOST_OP || o->begin_ns < covered || to <= o->begin_ns)
			continue;
		covered = to;
		fo_tally_add(&seen, o->name, (int32_t)i, ns);
	}
	return seen.best && 10 * seen.best->ns >= 7 * (end - begin) ? seen.best->longest : -1;
}

/* Operators nest: of those that cover most of the gap, the one that began last is the innermost. */
int32_t fo_idle_gap_operator(const struct fo_subject *s, const struct fo_idle_gap *g)
{
	const struct fo_trace *t = s->t;
	if (g->op < 0 || t->gpu[g->op].launch < 0)
		return -1;
	const struct fo_launch *l = &t->launch[t->gpu[g->op].launch];
	int64_t until = fo_min(l->begin_ns, g->end_ns), i;
	if (until <= g->begin_ns)
		return -1; /* launched before the gap: what the host did in it explains nothing */
	int64_t behind = FO_FIRST(k, t->op_count,
				  t->op[k].thread > l->thread ||
					  (t->op[k].thread == l->thread && t->op[k].begin_ns >= until));
	/* First the operators that began inside the gap, which no other gap looks at, then those that were open when it
	 * began: all gaps together look at every operator about once. */
	for (i = behind - 1; i >= 0 && t->op[i].thread == l->thread && t->op[i].begin_ns > g->begin_ns; i--)
		if (fills_gap(&t->op[i], g->begin_ns, until))
			return (int32_t)i;
	int64_t first = i + 1;
	enum { DEPTH = 1000 }; /* Python's own limit of nested calls */
	for (int depth = 0; i >= 0 && t->op[i].thread == l->thread && depth < DEPTH; depth++, i = t->op[i].parent)
		if (fills_gap(&t->op[i], g->begin_ns, until))
			return (int32_t)i;
	return repeated_operator(t, first, behind, g->begin_ns, until);
}

int64_t fo_idle_gap_call(const struct fo_subject *s, const struct fo_idle_gap *g)
{
	const struct fo_trace *t = s->t;
	if (g->op < 0 || t->gpu[g->op].launch < 0)
		return -1;
	int64_t own = t->gpu[g->op].launch;
	/* The launch's own call or one before it on the thread. Launches of a thread do not nest, so the last few
	 * suffice. */
	enum { BACK = 64 };
	for (int64_t i = own; i >= 0 && i > own - BACK && t->launch[i].thread == t->launch[own].thread; i--) {
		const struct fo_launch *l = &t->launch[i];
		int64_t from = fo_max(l->begin_ns, g->begin_ns), to = fo_min(l->end_ns, g->end_ns);
		if (10 * (to - from) >= 7 * (g->end_ns - g->begin_ns))
			return i;
	}
	return -1;
}

void fo_evidence_gaps(struct fo_finding *f, const struct fo_subject *s, const struct fo_idle_gap *gap, int64_t gaps,
		      unsigned causes, int64_t least, int64_t most)
{
	for (int64_t i = 0; i < gaps; i++) {
		int64_t length = gap[i].end_ns - gap[i].begin_ns, part = 0;
		for (int c = 0; c < FO_IDLE_COUNT; c++)
			part += causes >> c & 1 ? gap[i].idle_ns[c] : 0;
		if (2 * part < length || length < least || length > most ||
		    (f->evidences == FO_EVIDENCE_MAX && f->evidence[FO_EVIDENCE_MAX - 1].duration_ns >= length))
			continue;
		char name[160];
		int32_t op = fo_idle_gap_operator(s, &gap[i]);
		int64_t call = fo_idle_gap_call(s, &gap[i]);
		if (call >= 0)
			snprintf(name, sizeof(name), "idle, driver in %s, before %s",
				 fo_trace_text(s->t, s->t->launch[call].name),
				 fo_trace_text(s->t, s->t->gpu[gap[i].op].name));
		else if (op >= 0)
			snprintf(name, sizeof(name), "idle, host in %s, before %s",
				 fo_trace_text(s->t, s->t->op[op].name),
				 fo_trace_text(s->t, s->t->gpu[gap[i].op].name));
		else if (gap[i].op >= 0)
			snprintf(name, sizeof(name), "idle before %s", fo_trace_text(s->t, s->t->gpu[gap[i].op].name));
		else
			snprintf(name, sizeof(name), "idle at the end of the step");
		fo_evidence_at(f, s, gap[i].begin_ns, length, name);
	}
}
