/* Pipeline parallelism in GPU traces: which rank is which stage, and how much of a stage's time no microbatch fills.
 *
 * A stage is told from the members of the process group in which ranks send to each other (the i-th member is stage i), from the
 * peers alone where members are not recorded, or from PyTorch's schedule annotations ("PP:1F3": microbatch 3 forward through the
 * model's part 1). Microbatches are counted from annotations, else from the receives of the first stage, which gets each microbatch's
 * gradients once.
 *
 * A stage's span in a step: from its first compute to its last before the optimizer. Its bubble: the share of this in which neither
 * compute, nor a copy, nor a collective that is no transfer between stages was going on; the median over steps. */
#include "diagnose/ledger_int.h"

#include "base/clock.h"
#include "base/mem.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_STAGES = 4096, MAX_CHUNKS = 1024 };

/* What one rank shows. */
struct place {
	int stage, stages;      /* -1, 0: unknown */
	int parts;              /* of the model on this rank, by annotations; 0 none */
	int64_t forwards;       /* annotated forward passes per step and part; 0 none */
	int64_t receives;       /* recorded receives per step; 0 none */
	bool wraps;             /* it sends from the last stage to the first: several chunks */
};

static bool starts_with(const char *s, const char *word)
{
	return strncasecmp(s, word, strlen(word)) == 0;
}
static bool mentions(const char *s, const char *word)
{
	for (; *s; s++)
		if (starts_with(s, word))
			return true;
	return false;
}

/* A transfer between stages. Batched sends and receives are recorded as "coalesced" in a kernel that sends and receives. */
static bool is_transfer(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	if (g->kind != FO_GPU_KERNEL || g->class != FO_K_COMMUNICATION || g->collective < 0 || g->collective >= t->collective_count)
		return false;
	const struct fo_collective *c = &t->collective[g->collective];
	const char *name = fo_trace_text(t, c->name);
	if (mentions(name, "all"))
		return false;
	return mentions(name, "send") || mentions(name, "recv") ||
	       (mentions(name, "coalesced") && mentions(fo_trace_text(t, g->name), "SendRecv"));
}

/* "[0, 4, 8]": the place of `rank` in it, and how many there are. */
static int place_in(const char *members, int rank, int *n)
{
	int at = -1;
	*n = 0;
	for (const char *p = members; *p && *n < MAX_STAGES;) {
		if (!isdigit((unsigned char)*p)) {
			p++;
			continue;
		}
		char *end;
		if (strtol(p, &end, 10) == rank)
			at = *n;
		p = end;
		(*n)++;
	}
	return at;
}

static void read_transfers(struct place *p, const struct fo_trace *t)
{
	for (int64_t i = 0; i < t->gpu_count; i++) {
		if (!is_transfer(t, &t->gpu[i]))
			continue;
		const struct fo_collective *c = &t->collective[t->gpu[i].collective];
		const char *name = fo_trace_text(t, c->name);
		int n, at = place_in(fo_trace_text(t, c->members), t->rank, &n), peer, peers;
		if (at >= 0 && n > 1) {
			p->stage = at;
			p->stages = n;
			bool send = mentions(name, "send");
			int32_t other = c->peer_to >= 0 && c->peer_to != t->rank ? c->peer_to : c->peer_from;
			peer = other >= 0 ? place_in(fo_trace_text(t, c->members), other, &peers) : -1;
			p->wraps |= n > 2 && peer >= 0 && send && ((at == n - 1 && peer == 0) || (at == 0 && peer == n - 1));
		}
		p->receives += mentions(name, "recv") && !mentions(name, "send");
	}
}

/* "PP:1F3" */
static bool schedule_note(const char *name, int *part, char *what)
{
	int microbatch;
	return starts_with(name, "PP:") && sscanf(name + 3, "%d%c%d", part, what, &microbatch) == 3 && *part >= 0 && *part < MAX_STAGES * 4;
}
/* "Forward 3" of PyTorch's plain schedules, "forward_step" of Megatron-LM's, "ForwardPass" of DeepSpeed's. */
static bool forward_note(const char *name)
{
	return (starts_with(name, "Forward ") && isdigit((unsigned char)name[8])) || starts_with(name, "forward_step") ||
	       starts_with(name, "ForwardPass") || starts_with(name, "forward-compute");
}

static void read_notes(struct place *p, const struct fo_trace *t)
{
	int64_t plain = 0, scheduled = 0;
	bool *seen = fo_xmalloc(MAX_STAGES * 4 * sizeof *seen);
	int least = -1, part;
	char what;
	for (int64_t i = 0; i < t->op_count; i++) {
		if (t->op[i].kind != FO_HOST_NOTE)
			continue;
		const char *name = fo_trace_text(t, t->op[i].name);
		if (schedule_note(name, &part, &what)) {
			scheduled += what == 'F';
			p->parts += !seen[part];
			seen[part] = true;
			least = least < 0 || part < least ? part : least;
		} else {
			plain += forward_note(name);
		}
	}
	free(seen);
	p->forwards = scheduled ? scheduled / p->parts : plain;
	/* Parts are dealt out in turn: the least number is the stage; with one rank's notes alone their count stays unknown. */
	if (p->stage < 0 && p->parts)
		p->stage = least;
}

static int64_t steps_of(const struct fo_rank_ledger *r)
{
	return r->devices && r->device[0].steps > 0 ? r->device[0].steps : 1;
}

static double bubble_in(const struct fo_intervals *filled, const struct fo_intervals *compute, const struct fo_intervals *optimizer,
			const struct fo_ledger *w)
{
	size_t first = fo_intervals_find(compute, w->begin_ns);
	if (first == compute->n || compute->v[first].begin >= w->end_ns)
		return NAN;
	int64_t begin = compute->v[first].begin > w->begin_ns ? compute->v[first].begin : w->begin_ns, end = begin;
	size_t update = fo_intervals_find(optimizer, begin);
	int64_t limit = update < optimizer->n && optimizer->v[update].begin > begin && optimizer->v[update].begin < w->end_ns ?
				optimizer->v[update].begin :
				w->end_ns;
	for (size_t i = first; i < compute->n && compute->v[i].begin < limit; i++)
		end = compute->v[i].end < limit ? compute->v[i].end : limit;
	return end > begin ? 1 - (double)fo_intervals_within(filled, begin, end) / (double)(end - begin) : NAN;
}

static double bubble_of(const struct fo_trace *t, const struct fo_device_ledger *l)
{
	struct fo_intervals filled = { 0 }, compute = { 0 }, optimizer = { 0 };
	double *v = fo_xmalloc((size_t)(l->steps + 1) * sizeof *v), median = NAN;
	size_t n = 0;
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		if (g->device != l->device || is_transfer(t, g))
			continue;
		fo_intervals_add(&filled, g->begin_ns, g->end_ns);
		if (g->class < FO_K_COMPUTE_COUNT)
			fo_intervals_add(&compute, g->begin_ns, g->end_ns);
		if (g->class == FO_K_OPTIMIZER)
			fo_intervals_add(&optimizer, g->begin_ns, g->end_ns);
	}
	fo_intervals_unite(&filled);
	fo_intervals_unite(&compute);
	fo_intervals_unite(&optimizer);
	for (int64_t i = 0; i < l->steps; i++) {
		v[n] = bubble_in(&filled, &compute, &optimizer, &l->step[i].l);
		n += !isnan(v[n]);
	}
	if (n)
		median = fo_stats_quantile(v, n, 0.5);
	fo_intervals_fini(&filled);
	fo_intervals_fini(&compute);
	fo_intervals_fini(&optimizer);
	free(v);
	return median;
}

/* Of each stage the mean over the ranks that are it; NaN where none of them was given. */
static void fill_bubbles(struct fo_diagnosis *d)
{
	struct fo_pipeline *p = &d->pipeline;
	int *n = fo_xmalloc((size_t)p->stages * sizeof *n);
	p->bubble = fo_xmalloc((size_t)p->stages * sizeof *p->bubble);
	for (int r = 0; r < d->ranks; r++) {
		double b = p->stage[r] >= 0 && d->rank[r].devices ? bubble_of(d->rank[r].trace, &d->rank[r].device[0]) : NAN;
		if (isnan(b))
			continue;
		p->bubble[p->stage[r]] += b;
		n[p->stage[r]]++;
	}
	for (int i = 0; i < p->stages; i++)
		p->bubble[i] = n[i] ? p->bubble[i] / n[i] : NAN;
	free(n);
}

fo_status fo_diagnose_pipeline(struct fo_diagnosis *d)
{
	struct fo_pipeline *p = &d->pipeline;
	struct place *v = fo_xmalloc((size_t)(d->ranks + 1) * sizeof *v);
	int64_t forwards = 0, receives = 0;
	int parts = 0;
	bool wraps = false;
	for (int i = 0; i < d->ranks; i++) {
		v[i].stage = -1;
		read_transfers(&v[i], d->rank[i].trace);
		read_notes(&v[i], d->rank[i].trace);
		int64_t steps = steps_of(&d->rank[i]);
		int stages = v[i].stages ? v[i].stages : v[i].stage + 1;
		p->stages = stages > p->stages ? stages : p->stages;
		parts = v[i].parts > parts ? v[i].parts : parts;
		forwards = v[i].forwards / steps > forwards ? v[i].forwards / steps : forwards;
		receives = v[i].stage == 0 ? v[i].receives / steps : receives;
		wraps |= v[i].wraps;
	}
	if (p->stages < 2) {
		p->stages = 0;
		free(v);
		return FO_OK;
	}
	/* What one stage received is all microbatches only where it has one chunk. */
	int64_t microbatches = forwards ? forwards : wraps ? 0 : receives;
	p->microbatches = microbatches < 1000000 ? (int)microbatches : 0;
	p->chunks = parts && parts < MAX_CHUNKS ? parts : wraps ? 0 : 1;
	p->ideal = p->microbatches && p->chunks ? (p->stages - 1) / ((double)p->chunks * p->microbatches) : NAN;
	p->stage = fo_xmalloc((size_t)(d->ranks + 1) * sizeof *p->stage);
	for (int i = 0; i < d->ranks; i++)
		p->stage[i] = v[i].stage < p->stages ? v[i].stage : -1;
	fill_bubbles(d);
	free(v);
	return FO_OK;
}
