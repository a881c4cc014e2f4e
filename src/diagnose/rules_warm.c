/* First calls in a trace without steps: libraries are loaded, kernels chosen, memory allocated. They weigh as much as
 * hundreds of later calls, and a steady state has none of it. */
#include "diagnose/products_int.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

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
		return x->name < y->name ? -1 : 1;
	return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

static int by_length(const void *a, const void *b)
{
	const struct call *x = a, *y = b;
	return (x->ns > y->ns) - (x->ns < y->ns);
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
		int64_t ns = excess(call + i, next - i),
			from = first.begin_ns > s->begin_ns ? first.begin_ns : s->begin_ns;
		int64_t inside = first.begin_ns + first.ns - from;
		ns = ns < inside ? ns : inside; /* only the part inside the window counts */
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
		fo_evidence_kernels(f, s, 1u << FO_K_GEMM | 1u << FO_K_GEMM_FP8);
	if (fo_share(c, sum) <= FO_SHARE_ADVICE && left_out == 0)
		return false;
	char a[24], products[96] = "";
	if (left_out > 0)
		snprintf(products, sizeof(products), " First calls of %lld product shape%s are left out of rates.",
			 (long long)left_out, left_out == 1 ? "" : "s");
	if (names > 0)
		snprintf(f->title, sizeof(f->title),
			 "warm-up is in the trace: first calls of %lld operator%s take %s more than later ones",
			 (long long)names, names == 1 ? "" : "s", fo_ns_text(a, sum));
	else
		snprintf(f->title, sizeof(f->title),
			 "warm-up is in the trace: first calls of products are much slower than later ones");
	snprintf(f->why, sizeof(f->why),
		 "Libraries are loaded and kernels chosen at first use. No step is marked, so that these calls cannot "
		 "be told from a steady state in shares and idling.%s Record after some steps: schedule(wait=1, "
		 "warmup=3, active=3) and profiler.step().",
		 products);
	return true;
}

const struct fo_rule_row fo_rules_warm[] = {
	{ "first-calls", FO_FIND_VALIDITY, first_calls },
	{ NULL, FO_FIND_VALIDITY, NULL },
};
