/* Finds the communication kernels of several devices that are one collective, and what they say about the devices'
 * clocks. */
#include "trace/trace.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A communication kernel with what must agree on every member. */
struct entry {
	uint64_t key;
	int64_t begin_ns, gpu;
	int64_t bytes;         /* -1: not the same on all members, or unknown */
	int32_t trace, member; /* member: (trace, device), counted through */
	int32_t group_size;    /* -1 unknown */
	bool recorded;         /* the trace names the group */
};

struct entries {
	struct entry *v;
	size_t n, cap;
	int32_t members;
};

/* FNV-1a (Fowler, Noll, Vo), 64 bits: the keys of one job number thousands, so that two that differ do not meet. */
static uint64_t mix(uint64_t h, const void *bytes, size_t n)
{
	const unsigned char *b = bytes;
	for (size_t i = 0; i < n; i++)
		h = (h ^ b[i]) * 0x100000001b3u;
	return (h ^ 0xff) * 0x100000001b3u; /* ends a field */
}
static uint64_t mix_int(uint64_t h, int64_t v) { return mix(h, &v, sizeof v); }

/* "_allgather_base" and "ALLGATHER_BASE" are one name. */
static uint64_t mix_name(uint64_t h, const char *s)
{
	char low[96];
	size_t n = 0;
	for (; *s && n < sizeof low; s++)
		if (isalnum((unsigned char)*s))
			low[n++] = (char)tolower((unsigned char)*s);
	return mix(h, low, n);
}

/* The part of a kernel's name that says what it does: "AllReduce" of "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(...)".
 * Algorithm, protocol and type stay out: NCCL maps all variants onto few kernels. */
static uint64_t mix_kernel(uint64_t h, const char *name)
{
	const char *nccl = strstr(name, "nccl"), *p = nccl ? strstr(nccl, "ernel_") : NULL;
	if (p) {
		p += strlen("ernel_");
		return mix(h, p, strcspn(p, "_(<"));
	}
	return mix(h, name, strcspn(name, "(<"));
}

/* A transfer between two, seen from either: who sends to whom. */
static bool transfer_ends(const struct fo_collective *c, const char *name, int rank, int32_t *from, int32_t *to)
{
	bool send = fo_text_mentions(name, "send"), recv = fo_text_mentions(name, "recv");
	int32_t peer = c->peer_to >= 0 && c->peer_to != rank ? c->peer_to : c->peer_from;
	if (send == recv || peer < 0 || rank < 0 || peer == rank)
		return false;
	*from = send ? rank : peer;
	*to = send ? peer : rank;
	return true;
}

static void describe(struct entry *e, const struct fo_trace *t, const struct fo_gpu_op *g)
{
	const struct fo_collective *c = g->collective >= 0 && g->collective < t->collective_count
						? &t->collective[g->collective]
						: NULL;
	const char *group = c ? fo_trace_text(t, c->group) : "";
	uint64_t h = 0xcbf29ce484222325u;
	e->bytes = -1;
	e->group_size = -1;
	e->recorded = c && *group;
	/* Files of which nothing says that they are one job are numbered by their order: two runs would be matched as
	 * well as two ranks. What one file holds is one job. */
	bool ordered = t->rank_from == FO_RANK_ORDER;
	if (!e->recorded) {
		h = ordered ? mix(h, t->path, strlen(t->path)) : h;
		e->key = mix_kernel(h, fo_trace_text(t, g->name));
		return;
	}
	const char *name = fo_trace_text(t, c->name);
	int32_t from, to;
	h = mix(h, group, strlen(group));
	h = mix(h, fo_trace_text(t, c->members), strlen(fo_trace_text(t, c->members)));
	if (transfer_ends(c, name, ordered ? -1 : t->rank, &from, &to)) {
		e->key = mix_int(mix_int(h, from), to);
		e->group_size = 2;
		return;
	}
	e->key = mix_int(mix_name(h, name), c->sequence);
	e->group_size = c->group_size;
	if (c->equal_parts && c->bytes > 0 && !fo_text_mentions(name, "coalesced"))
		e->bytes = c->bytes;
}

static void gather(struct entries *e, const struct fo_trace *t, int32_t trace)
{
	int32_t device = -1;
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		if (g->kind != FO_GPU_KERNEL || g->class != FO_K_COMMUNICATION)
			continue;
		if (g->device != device) {
			device = g->device;
			e->members++;
		}
		fo_array_room(&e->v, &e->cap, e->n, sizeof *e->v);
		struct entry *x = &e->v[e->n++];
		*x = (struct entry){ .begin_ns = g->begin_ns, .gpu = i, .trace = trace, .member = e->members - 1 };
		describe(x, t, g);
	}
}

static int by_key(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	/* gpu[] is sorted by begin. */
	return FO_ORDER_BY(fo_order((int64_t)x->key, (int64_t)y->key), fo_order(x->member, y->member),
			   fo_order(x->gpu, y->gpu));
}

/* v[0..n) have one key. The number of collectives in it: 0 where the members do not agree. */
static size_t agree(const struct entry *v, size_t n, size_t *members, const struct fo_trace_set *s, int32_t all)
{
	size_t each = 1;
	while (each < n && v[each].member == v[0].member)
		each++;
	*members = n / each;
	if (n % each || *members < 2)
		return 0;
	for (size_t i = 0; i < n; i++)
		if (v[i].member != v[i / each * each].member || (i && i % each == 0 && v[i].member == v[i - 1].member))
			return 0;
	if (v[0].group_size > 0 && (size_t)v[0].group_size != *members)
		return 0;
	if (!v[0].recorded && s->rank[v[0].trace]->world_size > all)
		return 0; /* who is missing may be the last */
	for (size_t i = each; i < n; i++)
		if (v[i].bytes > 0 && v[i % each].bytes > 0 && v[i].bytes != v[i % each].bytes)
			return 0;
	return each;
}

static void join(struct fo_trace_set *s, const struct entries *e)
{
	size_t match_cap = 0, part_cap = 0;
	for (size_t i = 0, n; i < e->n; i += n) {
		for (n = 1; i + n < e->n && e->v[i + n].key == e->v[i].key; n++)
			;
		size_t members, each = agree(&e->v[i], n, &members, s, e->members);
		for (size_t k = 0; k < each; k++) {
			fo_array_room(&s->match, &match_cap, (size_t)s->matches, sizeof *s->match);
			s->match[s->matches++] = (struct fo_match){ s->match_parts, (int32_t)members };
			for (size_t m = 0; m < members; m++) {
				const struct entry *x = &e->v[i + m * each + k];
				fo_array_room(&s->match_part, &part_cap, (size_t)s->match_parts, sizeof *s->match_part);
				s->match_part[s->match_parts++] = (struct fo_match_part){ x->trace, x->gpu };
			}
		}
	}
}

/* Insertion by begin would be quadratic; the begin is looked up, so the sort needs the set. */
struct order {
	int64_t begin_ns;
	struct fo_match m;
};
static int by_begin(const void *a, const void *b)
{
	const struct order *x = a, *y = b;
	return FO_ORDER_BY(fo_order(x->begin_ns, y->begin_ns), fo_order(x->m.first, y->m.first));
}
static void sort_matches(struct fo_trace_set *s)
{
	struct order *o = fo_xmalloc(((size_t)s->matches + 1) * sizeof *o);
	for (int64_t i = 0; i < s->matches; i++) {
		const struct fo_match_part *p = &s->match_part[s->match[i].first];
		o[i] = (struct order){ s->rank[p->trace]->gpu[p->gpu].begin_ns, s->match[i] };
	}
	qsort(o, (size_t)s->matches, sizeof *o, by_begin);
	for (int64_t i = 0; i < s->matches; i++)
		s->match[i] = o[i].m;
	free(o);
}

/* ---- clocks ---- */

/* Ends of one collective differ by this on one clock: 27 us on two H100s, 7 us on eight V100s. An offset below is no
 * sign of a wrong clock, and to correct it would falsify the waits by as much. */
static const double SAME_CLOCK_NS = 50e3;
/* A collective whose ends lie further from the median offset than this was matched wrongly, or a kernel was preempted.
 */
static const double OUTLIER_NS = 1e6;

static int64_t whole_ns(double v)
{
	if (fabs(v) >= 9e18)
		return v > 0 ? INT64_MAX : -INT64_MAX;
	return (int64_t)(v < 0 ? v - 0.5 : v + 0.5);
}

static double end_of(const struct fo_trace_set *s, const struct fo_match_part *p)
{
	return (double)s->rank[p->trace]->gpu[p->gpu].end_ns + (double)s->offset_ns[p->trace];
}

static const struct fo_match_part *part_of(const struct fo_trace_set *s, const struct fo_match *m, int trace)
{
	for (int32_t i = 0; i < m->parts; i++)
		if (s->match_part[m->first + i].trace == trace)
			return &s->match_part[m->first + i];
	return NULL;
}

/* How late `trace`'s ends are against those of the traces that are aligned already; NaN without common collectives. */
static double lateness(const struct fo_trace_set *s, int trace, const bool *aligned, double *d)
{
	size_t n = 0, kept = 0;
	for (int64_t i = 0; i < s->matches; i++) {
		const struct fo_match *m = &s->match[i];
		const struct fo_match_part *own = part_of(s, m, trace), *other = NULL;
		for (int32_t k = 0; own && !other && k < m->parts; k++)
			if (aligned[s->match_part[m->first + k].trace])
				other = &s->match_part[m->first + k];
		if (other)
			d[n++] = end_of(s, own) - end_of(s, other);
	}
	if (!n)
		return __builtin_nan("");
	double mid = fo_stats_quantile(d, n, 0.5);
	for (size_t i = 0; i < n; i++)
		if (d[i] - mid <= OUTLIER_NS && mid - d[i] <= OUTLIER_NS)
			d[kept++] = d[i];
	return kept ? fo_stats_quantile(d, kept, 0.5) : mid;
}

static int64_t residual(const struct fo_trace_set *s, double *d)
{
	size_t n = 0;
	for (int64_t i = 0; i < s->matches; i++) {
		const struct fo_match *m = &s->match[i];
		double *end = &d[n];
		for (int32_t k = 0; k < m->parts; k++)
			end[k] = end_of(s, &s->match_part[m->first + k]);
		double mid = fo_stats_quantile(end, (size_t)m->parts, 0.5);
		for (int32_t k = 0; k < m->parts; k++)
			end[k] = end[k] < mid ? mid - end[k] : end[k] - mid;
		n += (size_t)m->parts;
	}
	return n ? whole_ns(fo_stats_quantile(d, n, 0.5)) : -1;
}

static void align(struct fo_trace_set *s)
{
	const struct fo_trace *first = s->rank[0];
	bool *aligned = fo_xmalloc((size_t)s->count * sizeof *aligned);
	double *d = fo_xmalloc(((size_t)s->match_parts + 1) * sizeof *d);
	for (int i = 1; i < s->count; i++) {
		const struct fo_trace *t = s->rank[i];
		int64_t by;
		if (first->origin_unix_ns && t->origin_unix_ns &&
		    !__builtin_sub_overflow(t->origin_unix_ns, first->origin_unix_ns, &by))
			s->offset_ns[i] = by;
	}
	aligned[0] = true;
	for (int i = 1; i < s->count; i++)
		aligned[i] = first->one_clock && s->rank[i]->one_clock &&
			     s->rank[i]->origin_unix_ns == first->origin_unix_ns;
	/* Ranks that share no group with rank 0 are aligned through those that do. */
	for (bool more = true; more;) {
		more = false;
		for (int i = 1; i < s->count; i++) {
			double late = aligned[i] ? __builtin_nan("") : lateness(s, i, aligned, d);
			if (__builtin_isnan(late))
				continue;
			aligned[i] = more = true;
			if ((late < -SAME_CLOCK_NS || late > SAME_CLOCK_NS) &&
			    __builtin_sub_overflow(s->offset_ns[i], whole_ns(late), &s->offset_ns[i]))
				s->offset_ns[i] = 0;
		}
	}
	s->residual_ns = residual(s, d);
	free(d);
	free(aligned);
}

void fo_trace_set_match(struct fo_trace_set *s)
{
	struct entries e = { 0 };
	free(s->match);
	free(s->match_part);
	free(s->offset_ns);
	s->match = NULL;
	s->match_part = NULL;
	s->matches = s->match_parts = 0;
	s->offset_ns = fo_xmalloc(((size_t)s->count + 1) * sizeof *s->offset_ns);
	s->residual_ns = -1;
	for (int i = 0; i < s->count; i++)
		gather(&e, s->rank[i], i);
	if (e.members > 1) {
		qsort(e.v, e.n, sizeof *e.v, by_key);
		join(s, &e);
		sort_matches(s);
	}
	if (s->count)
		align(s);
	free(e.v);
}
