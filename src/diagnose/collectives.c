/* Collectives over ranks: how long each communication kernel waited for the last member, and who was last. Only the
 * traces are read; the ledgers are made afterwards, with what is found here (ledger.c). */
#include "diagnose/diagnose.h"

#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"
#include "hw/catalogue.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The ends of one collective lie closer together than this, whatever its size: 27 us on two H100s, 7 us on eight V100s.
 * Ends further apart belong to different collectives, or the members did not depend on each other. */
static const int64_t SAME_END_NS = 1000000;
/* Sends and receives of unknown partners are taken for one exchange of all only when they end together. */
static const int64_t EXCHANGE_END_NS = 100000;

/* One trace's communication kernels. */
struct split {
	int64_t *wait; /* by gpu[]: from the kernel's begin to that of the transfer; -1 unknown */
	int *slot;     /* by device: its row in the diagnosis' wait[]; -1: it does not communicate */
};

static bool is_communication(const struct fo_gpu_op *g)
{
	return g->kind == FO_GPU_KERNEL && g->class == FO_K_COMMUNICATION;
}

static const struct fo_gpu_op *op_of(const struct fo_trace_set *s, const struct fo_match_part *p)
{
	return &s->rank[p->trace]->gpu[p->gpu];
}

static int64_t begin_of(const struct fo_trace_set *s, const struct fo_match_part *p)
{
	return fo_plus(op_of(s, p)->begin_ns, s->offset_ns[p->trace]);
}
static int64_t end_of(const struct fo_trace_set *s, const struct fo_match_part *p)
{
	return fo_plus(op_of(s, p)->end_ns, s->offset_ns[p->trace]);
}
static int64_t apart(int64_t from, int64_t to)
{
	int64_t d;
	return __builtin_sub_overflow(to, from, &d) ? INT64_MAX : d;
}

struct meeting {
	int64_t last_begin, first_end, last_end;
	int last; /* the part that began last */
};

static struct meeting meet(const struct fo_trace_set *s, const struct fo_match *m)
{
	struct meeting k = { INT64_MIN, INT64_MAX, INT64_MIN, 0 };
	for (int i = 0; i < m->parts; i++) {
		const struct fo_match_part *p = &s->match_part[m->first + i];
		int64_t b = begin_of(s, p), e = end_of(s, p);
		if (b > k.last_begin) {
			k.last_begin = b;
			k.last = i;
		}
		k.first_end = fo_min(e, k.first_end);
		k.last_end = fo_max(e, k.last_end);
	}
	return k;
}

static const struct fo_collective *collective_of(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	return g->collective >= 0 && g->collective < t->collective_count ? &t->collective[g->collective] : NULL;
}

/* Every rank gives and gets as much, on every member's word? A send has its receive, so that the one moves while the
 * other only waits; what was batched may be either. */
static bool equal_exchange(const struct fo_trace_set *s, const struct fo_match *m)
{
	for (int i = 0; i < m->parts; i++) {
		const struct fo_match_part *p = &s->match_part[m->first + i];
		const struct fo_trace *t = s->rank[p->trace];
		const struct fo_gpu_op *g = op_of(s, p);
		const struct fo_collective *c = collective_of(t, g);
		const char *name = c ? fo_trace_text(t, c->name) : "";
		bool all_to_all = fo_text_mentions(name, "alltoall") || fo_text_mentions(name, "all_to_all");
		if (!c || (all_to_all && !c->equal_parts))
			return false;
		if (!all_to_all && (fo_text_mentions(name, "send") || fo_text_mentions(name, "recv") ||
				    fo_text_mentions(fo_trace_text(t, g->name), "SendRecv")))
			return false;
	}
	return true;
}

/* Does nobody go on before everybody is there? A member that ended before the last began did not wait (small sends, the
 * root of a broadcast). Exchanges of unequal parts end when their own data is there, between two as among many. */
static bool is_meeting(const struct fo_trace_set *s, const struct fo_match *m, const struct meeting *k)
{
	const struct fo_match_part *p = &s->match_part[m->first];
	const struct fo_trace *t = s->rank[p->trace];
	const struct fo_gpu_op *g = op_of(s, p);
	if (k->first_end < k->last_begin)
		return false;
	/* Ranks that share cores end when they get one; which calls are one collective their timelines say for sure. */
	if (t->format == FO_TRACE_OWN)
		return true;
	if (apart(k->first_end, k->last_end) > SAME_END_NS)
		return false;
	/* Tokens to experts and back: whoever has its own goes on. */
	if (fo_text_mentions(fo_trace_text(t, g->name), "::ep::") ||
	    fo_text_mentions(fo_trace_text(t, g->name), "deep_ep"))
		return false;
	const struct fo_collective *c = collective_of(t, g);
	if (c && *fo_trace_text(t, c->group))
		return equal_exchange(s, m);
	if (fo_text_mentions(fo_trace_text(t, g->name), "SendRecv"))
		return apart(k->first_end, k->last_end) <= EXCHANGE_END_NS;
	return true;
}

static void account(struct fo_diagnosis *d, struct split *x, const struct fo_match *m, const struct meeting *k)
{
	const struct fo_trace_set *s = d->set;
	int64_t caused = 0;
	for (int i = 0; i < m->parts; i++) {
		const struct fo_match_part *p = &s->match_part[m->first + i];
		const struct fo_gpu_op *g = op_of(s, p);
		struct fo_rank_wait *w = &d->wait[x[p->trace].slot[g->device]];
		int64_t length = g->end_ns - g->begin_ns, wait = apart(begin_of(s, p), k->last_begin);
		wait = fo_clamp(wait, 0, length);
		x[p->trace].wait[p->gpu] = wait;
		w->wait_ns += wait;
		w->transfer_ns += length - wait;
		w->end_skew_ns += apart(k->first_end, end_of(s, p));
		w->matched++;
		caused += wait;
	}
	const struct fo_match_part *p = &s->match_part[m->first + k->last];
	struct fo_rank_wait *w = &d->wait[x[p->trace].slot[op_of(s, p)->device]];
	w->last++;
	w->caused_ns += caused;
}

/* ---- all devices ---- */

/* A slot for each device that communicates. */
static void find_devices(struct fo_diagnosis *d, struct split *x)
{
	size_t cap = 0;
	for (int r = 0; r < d->set->count; r++) {
		const struct fo_trace *t = d->set->rank[r];
		x[r].wait = fo_xmalloc((size_t)(t->gpu_count + 1) * sizeof *x[r].wait);
		x[r].slot = fo_xmalloc((size_t)(t->device_count + 1) * sizeof *x[r].slot);
		for (int64_t i = 0; i < t->device_count; i++)
			x[r].slot[i] = -1;
		for (int64_t i = 0; i < t->gpu_count; i++) {
			const struct fo_gpu_op *g = &t->gpu[i];
			x[r].wait[i] = -1;
			if (!is_communication(g) || x[r].slot[g->device] >= 0)
				continue;
			fo_array_room(&d->wait, &cap, (size_t)d->waits, sizeof *d->wait);
			d->wait[d->waits] = (struct fo_rank_wait){ .rank = t->rank, .device = g->device };
			x[r].slot[g->device] = d->waits++;
		}
	}
}

/* Bytes/s that all links of a device of the trace move in one direction; 0 where the catalogue does not tell. */
static double link_of(const struct fo_diagnosis *d, const struct fo_trace *t, int16_t device,
		      const struct fo_catalogue *c)
{
	const struct fo_device *v = NULL;
	if (d->with.device && fo_catalogue_find(c, d->with.device, &v) != FO_OK)
		return 0; /* the bridge says so */
	const struct fo_trace_device *own = &t->device[device];
	if (!v && own->name >= 0)
		v = fo_device_match(c, fo_trace_text(t, own->name), own->sm_count, own->memory_bytes);
	return v && v->scaleup_gb_s > 0 ? v->scaleup_gb_s * 1e9 : 0;
}

/* The longest that a send or receive may have waited: its bytes take the time that the links need at their peak. Bytes
 * on the wire are known of transfers between two alone. */
static int64_t wait_most(const struct fo_trace *t, const struct fo_gpu_op *g, double link)
{
	const struct fo_collective *c = collective_of(t, g);
	int64_t length = g->end_ns - g->begin_ns;
	const char *name = c ? fo_trace_text(t, c->name) : "";
	if (!c || link <= 0 || c->bytes <= 0 || fo_text_mentions(name, "all") ||
	    !(fo_text_mentions(name, "send") || fo_text_mentions(name, "recv")))
		return length;
	double moves = (double)c->bytes / link * 1e9;
	return moves < (double)length ? length - (int64_t)moves : 0;
}

static void count_unmatched(struct fo_diagnosis *d, const struct split *x)
{
	struct fo_catalogue c = { 0 };
	bool known = fo_catalogue_load(&c, NULL) == FO_OK;
	for (int r = 0; r < d->set->count; r++) {
		const struct fo_trace *t = d->set->rank[r];
		int16_t device = -1;
		double link = 0;
		for (int64_t i = 0; i < t->gpu_count; i++) {
			const struct fo_gpu_op *g = &t->gpu[i];
			if (!is_communication(g) || x[r].wait[i] >= 0)
				continue;
			if (g->device != device)
				link = known ? link_of(d, t, g->device, &c) : 0;
			device = g->device;
			struct fo_rank_wait *w = &d->wait[x[r].slot[device]];
			w->unmatched++;
			w->unmatched_ns += g->end_ns - g->begin_ns;
			w->wait_most_ns += wait_most(t, g, link);
		}
	}
	if (known)
		fo_catalogue_fini(&c);
}

void fo_diagnose_collectives(struct fo_diagnosis *d, struct fo_op_waits *out)
{
	const struct fo_trace_set *s = d->set;
	struct split *x = fo_xmalloc((size_t)(s->count + 1) * sizeof *x);
	find_devices(d, x);
	for (int64_t i = 0; i < s->matches; i++) {
		struct meeting k = meet(s, &s->match[i]);
		if (is_meeting(s, &s->match[i], &k))
			account(d, x, &s->match[i], &k);
	}
	count_unmatched(d, x);
	if (d->waits < 2) {
		free(d->wait);
		d->wait = NULL;
		d->waits = 0;
	}
	*out = (struct fo_op_waits){ .ns = fo_xmalloc((size_t)(s->count + 1) * sizeof *out->ns), .traces = s->count };
	for (int r = 0; r < s->count; r++) {
		out->ns[r] = x[r].wait;
		free(x[r].slot);
	}
	free(x);
}

void fo_op_waits_fini(struct fo_op_waits *w)
{
	for (int r = 0; r < w->traces; r++)
		free(w->ns[r]);
	free(w->ns);
	*w = (struct fo_op_waits){ 0 };
}
