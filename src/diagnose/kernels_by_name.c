/* The kernels that take the time: sums by name, and the operator or module behind a piece of evidence. */
#include "diagnose/findings_int.h"

#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

/* Templates that launch what their argument names: CUTLASS's entry points and FlashAttention 3's guard around a device
 * function. */
static bool says_nothing(const char *name, size_t n)
{
	static const char *const word[] = { "Kernel",        "Kernel2",
					    "device_kernel", "enable_sm80_to_sm89",
					    "enable_sm90",   "enable_sm90_or_later",
					    "kernel" };
	for (size_t i = 0; i < sizeof word / sizeof *word; i++)
		if (strlen(word[i]) == n && !strncmp(name, word[i], n))
			return true;
	return false;
}

/* Names look like "void at::native::(anonymous namespace)::kernel<4, at::native::CUDAFunctor_add<float>>(int, float)".
 * argument: the text begins inside angle brackets, so a comma or the bracket ends it. */
static char *short_name(char *buf, size_t size, const char *name, bool argument)
{
	const char *from = strncmp(name, "void ", 5) ? name : name + 5, *p = from;
	size_t n;
	while (*p && !(argument && (*p == ',' || *p == '>'))) {
		if (!strncmp(p, "(anonymous namespace)", 21)) {
			p += 21;
			continue;
		}
		if (*p == '<' && p > from) /* at its begin it is "<unnamed>::" */
			break;
		if (*p == '(' && p > from && p[-1] != ' ') /* a copy's "(Pageable -> Device)" is part of its name */
			break;
		p += strncmp(p, "::", 2) ? 1 : 2;
		if (p - from >= 2 && !strncmp(p - 2, "::", 2))
			from = p;
	}
	n = (size_t)(p - from);
	if (*p == '<' && says_nothing(from, n))
		return short_name(buf, size, p + 1, true);
	if (!n) {
		from = name;
		n = strlen(name);
	}
	if (n >= size)
		for (n = size - 1; n && ((unsigned char)from[n] & 0xc0) == 0x80; n--)
			;
	snprintf(buf, size, "%.*s", (int)n, from);
	return buf;
}

char *fo_kernel_short_name(char *buf, size_t size, const char *name) { return short_name(buf, size, name, false); }

/* ---- sums ---- */

static int by_time(const void *a, const void *b)
{
	const struct fo_kernel_sum *x = a, *y = b;
	return x->ns != y->ns ? fo_order(y->ns, x->ns) : strcmp(x->name, y->name);
}

static size_t find(struct fo_kernels *k, size_t *cap, const char *name, enum fo_kernel_class class)
{
	struct fo_kernel_sum one = { .class = class };
	size_t i = 0, n = (size_t)k->n;
	fo_kernel_short_name(one.name, sizeof(one.name), name);
	while (i < n && (k->v[i].class != class || strcmp(k->v[i].name, one.name) != 0))
		i++;
	if (i == n) {
		fo_array_room(&k->v, cap, n, sizeof(*k->v));
		k->v[k->n++] = one;
	}
	return i;
}

void fo_kernels_of(const struct fo_diagnosis *d, struct fo_kernels *out)
{
	struct fo_subject s;
	int64_t first, last;
	size_t cap = 0;
	*out = (struct fo_kernels){ 0 };
	if (!fo_subject_of(d, &s))
		return;
	const struct fo_trace *t = s.t;
	int32_t most = -1;
	out->span_ns = s.l.span_ns;
	fo_shown_step_words(out->label, s.device);
	fo_subject_ops(t, s.id, s.begin_ns, s.end_ns, &first, &last);
	for (int64_t i = first; i < last; i++)
		most = fo_max(t->gpu[i].name, most);
	/* Indexed by the name's number: 1 + where it was put last; 0: not met. Attribution gives few names more than
	 * one class. */
	size_t *place = fo_xmalloc((size_t)(most + 2) * sizeof(*place));
	for (int64_t i = first; i < last; i++) {
		const struct fo_gpu_op *o = &t->gpu[i];
		if (o->name < 0 || o->begin_ns < s.begin_ns)
			continue;
		size_t *at = &place[o->name];
		if (!*at || out->v[*at - 1].class != o->class)
			*at = 1 + find(out, &cap, fo_trace_text(t, o->name), (enum fo_kernel_class)o->class);
		out->v[*at - 1].calls += 1 / (double)s.steps;
		out->v[*at - 1].ns = fo_plus(out->v[*at - 1].ns, o->end_ns - o->begin_ns);
	}
	free(place);
	for (int64_t i = 0; i < out->n; i++) {
		out->v[i].ns /= s.steps;
		out->v[i].share = (double)out->v[i].ns / (double)out->span_ns;
	}
	if (out->n)
		qsort(out->v, (size_t)out->n, sizeof(*out->v), by_time);
}

void fo_kernels_fini(struct fo_kernels *k)
{
	free(k->v);
	*k = (struct fo_kernels){ 0 };
}

/* ---- evidence ---- */

/* An operator's module, where the trace has modules, says more than the operator; that arguments were recorded says
 * nothing. */
static const char *place_of(const struct fo_trace *t, int32_t op)
{
	for (int32_t i = op; i >= 0; i = t->op[i].parent)
		if (t->op[i].kind == FO_HOST_MODULE) {
			const char *name = fo_trace_text(t, t->op[i].name);
			return strncmp(name, "nn.Module: ", 11) ? name : name + 11;
		}
	for (int32_t i = op; i >= 0; i = t->op[i].parent)
		if (t->op[i].kind == FO_HOST_OP && strcmp(fo_trace_text(t, t->op[i].name), "record_param_comms") != 0)
			return fo_trace_text(t, t->op[i].name);
	return NULL;
}

const char *fo_evidence_place(const struct fo_diagnosis *d, const struct fo_evidence *e)
{
	for (int r = 0; r < d->ranks; r++) {
		const struct fo_trace *t = d->rank[r].trace;
		int64_t first, last;
		if (d->rank[r].rank != e->rank || !t)
			continue;
		fo_subject_ops(t, e->device, e->begin_ns, e->begin_ns + 1, &first, &last);
		for (int64_t i = first; i < last; i++)
			if (t->gpu[i].begin_ns == e->begin_ns &&
			    t->gpu[i].end_ns - t->gpu[i].begin_ns == e->duration_ns && t->gpu[i].op >= 0 &&
			    t->gpu[i].op < t->op_count)
				return place_of(t, t->gpu[i].op);
	}
	return NULL;
}
