/* Did the clock fall? A lower clock makes every matmul slower, of whatever shape, for as long as it lasts; anything
 * else that makes equal calls unequal (a cache, an operand's values, a neighbour) does not do so to all shapes at once.
 */
#include "diagnose/findings_int.h"

#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct call {
	int32_t name, shapes;
	int64_t begin_ns, ns;
	double slow; /* over the fastest of its shape; 0: there are too few of it */
};

static int by_shape(const void *a, const void *b)
{
	const struct call *x = a, *y = b;
	if (x->shapes != y->shapes)
		return fo_order(x->shapes, y->shapes);
	if (x->name != y->name)
		return fo_order(x->name, y->name);
	return fo_order(x->ns, y->ns);
}

static int by_time(const void *a, const void *b)
{
	const struct call *x = a, *y = b;
	return fo_order(x->begin_ns, y->begin_ns);
}

/* Shorter than this a matmul is launch and fill, not clock: a tile's way through the device takes some 5 us. */
#define LONG_ENOUGH_NS INT64_C(20000)
enum { CALLS_ENOUGH = 6, SHAPES_ENOUGH = 3, PARTS = 12 };

static int64_t collect(const struct fo_subject *s, struct call **out)
{
	const struct fo_trace *t = s->t;
	size_t cap = 0;
	int64_t n = 0;
	*out = NULL;
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		if (g->device != s->id || g->class != FO_K_GEMM || g->op < 0 || t->op[g->op].shapes < 0 ||
		    g->end_ns - g->begin_ns < LONG_ENOUGH_NS)
			continue;
		fo_array_room(out, &cap, (size_t)n, sizeof **out);
		(*out)[n++] = (struct call){ g->name, t->op[g->op].shapes, g->begin_ns, g->end_ns - g->begin_ns, 0 };
	}
	return n;
}

/* Divides each call's time by that of the fastest of its kind. Returns the number of kinds. */
static int compare_calls(struct call *v, int64_t n)
{
	int kinds = 0;
	qsort(v, (size_t)n, sizeof *v, by_shape);
	for (int64_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && v[end].shapes == v[i].shapes && v[end].name == v[i].name;)
			end++;
		if (end - i < CALLS_ENOUGH)
			continue;
		kinds++;
		int64_t fast = v[i + (end - i) / 20]
				       .ns; /* not the very fastest: that may be a slip of the clock that times them */
		for (int64_t k = i; k < end; k++)
			v[k].slow = (double)v[k].ns / (double)fast;
	}
	return kinds;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The median of `slow` over the calls [from, to) that have one; *spread: their third quartile over their first. */
static double median_of(const struct call *v, int64_t from, int64_t to, double *spread)
{
	double *x = fo_xmalloc((size_t)(to - from + 1) * sizeof *x), median = NAN;
	int64_t n = 0;
	for (int64_t i = from; i < to; i++)
		if (v[i].slow > 0)
			x[n++] = v[i].slow;
	qsort(x, (size_t)n, sizeof *x, by_value);
	if (n >= CALLS_ENOUGH) {
		median = x[n / 2];
		*spread = x[3 * n / 4] / x[n / 4];
	}
	free(x);
	return median;
}

/* Equal calls differ by up to a tenth without any cause. */
#define SAME 1.1
#define LOWER 1.2

void fo_clocks_of(const struct fo_subject *s, struct fo_clocks *out)
{
	struct call *v;
	double part[PARTS], spread = 1, low_ns = 0, all_ns = 0, step_ns = 0, lost_ns = 0, low = 0;
	int64_t n = collect(s, &v);
	int steady = 0, slow = 0;
	*out = (struct fo_clocks){ .ratio = 1 };
	if (n < PARTS * CALLS_ENOUGH || compare_calls(v, n) < SHAPES_ENOUGH) {
		free(v);
		return;
	}
	qsort(v, (size_t)n, sizeof *v, by_time);
	for (int i = 0; i < PARTS; i++) {
		part[i] = median_of(v, n * i / PARTS, n * (i + 1) / PARTS, &spread);
		bool is_slow = part[i] > LOWER;
		slow += is_slow;
		/* Within a part all shapes are as slow as each other, but for the one in which the clock changes. */
		steady += !isnan(part[i]) && spread < SAME;
		low = is_slow && spread < SAME && part[i] > low ? part[i] : low;
	}
	for (int64_t i = 0; i < n; i++) {
		bool inside = v[i].begin_ns >= s->begin_ns && v[i].begin_ns < s->end_ns;
		all_ns += (double)v[i].ns;
		low_ns += v[i].slow > LOWER ? (double)v[i].ns : 0;
		step_ns += inside ? (double)v[i].ns : 0;
		lost_ns += inside && v[i].slow > LOWER ? (double)v[i].ns * (1 - 1 / v[i].slow) : 0;
	}
	/* The clock fell if some parts are slow, others are not, and nearly all are steady. */
	out->fell = slow > 0 && slow < PARTS && steady >= PARTS - 3 && low > LOWER;
	out->ratio = fmax(low, 1);
	out->share = all_ns > 0 ? low_ns / all_ns : 0;
	out->lost = out->fell && step_ns > 0 ? lost_ns / step_ns : 0;
	free(v);
}
