/* Pipeline parallelism in GPU traces: which rank is which stage, and how much of a stage's time no microbatch fills.
 *
 * Ranks that send to each other are no pipeline yet: rings of context parallelism do, too. One is taken for a pipeline
 * by PyTorch's schedule annotations ("PP:1F3": microbatch 3 forward through the model's part 1), by what its process
 * group is called, or because more than two ranks send along a chain whose ends do not send to each other; never by a
 * group that is called context parallel.
 *
 * A stage is told from the members of that group (the i-th member is stage i) or from the annotations. Microbatches are
 * counted by the annotations' own numbers, else by passes annotated in a step, else by receives of the first stage in a
 * step, which gets each microbatch's gradients once; the median over steps.
 *
 * A stage's span in a step: from its first compute to its last before the optimizer. Its bubble: the share of this in
 * which there was neither compute, nor a copy, nor a collective, while a transfer between stages was going on (its wait
 * and its transfer cannot be told apart) or the next operation, launched already, waited on the device. Time in which
 * the host was late is no bubble. The median over steps. */
#include "diagnose/ledger_int.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_STAGES = 4096, MAX_CHUNKS = 1024 };

/* One rank's view of the pipeline. */
struct place {
	int stage, stages; /* -1, 0: unknown */
	int parts;         /* of the model on this rank, by annotations; 0 none */
	int64_t forwards;  /* annotated forward passes per step and part; 0 none */
	int64_t receives;  /* recorded receives per step; 0 none */
	bool named;        /* annotations or the group's name say that it is a pipeline */
	bool wraps;        /* it sends from the last stage to the first: a ring, or several chunks */
	bool unpaired;     /* a transfer does not tell its partner */
};

static bool starts_with(const char *s, const char *word) { return strncasecmp(s, word, strlen(word)) == 0; }
static bool called(const struct fo_trace *t, const struct fo_collective *c, const char *name, const char *word)
{
	const char *group = fo_trace_text(t, c->group), *purpose = fo_trace_text(t, c->purpose);
	return fo_text_mentions(group, name) || fo_text_mentions(purpose, name) || fo_text_has_word(group, word) ||
	       fo_text_has_word(purpose, word);
}

/* A transfer that may be one between stages. Batched sends and receives are recorded as "coalesced" in a kernel that
 * sends and receives. */
static bool is_transfer(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	if (g->kind != FO_GPU_KERNEL || g->class != FO_K_COMMUNICATION || g->collective < 0 ||
	    g->collective >= t->collective_count)
		return false;
	const struct fo_collective *c = &t->collective[g->collective];
	const char *name = fo_trace_text(t, c->name);
	if (fo_text_mentions(name, "all") || called(t, c, "context", "cp"))
		return false;
	return fo_text_mentions(name, "send") || fo_text_mentions(name, "recv") ||
	       (fo_text_mentions(name, "coalesced") && fo_text_mentions(fo_trace_text(t, g->name), "SendRecv"));
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

static const struct fo_device_ledger *steps_of(const struct fo_rank_ledger *r)
{
	return r->devices && r->device[0].steps > 0 ? &r->device[0] : NULL;
}

/* The median over the steps of how many of at[0..n) each holds, by its time on the device or on the host; 0 where that
 * is unknown. */
static int64_t count_by_step(const struct fo_device_ledger *l, const int64_t *at, size_t n, bool host)
{
	double *v = fo_xmalloc((size_t)(l->steps + 1) * sizeof *v);
	size_t steps = 0;
	for (int64_t i = 0; i < l->steps; i++) {
		const struct fo_step_ledger *s = &l->step[i];
		bool whole = host && l->from == FO_WINDOW_WHOLE;
		int64_t begin = s->l.begin_ns, end = s->l.end_ns, in = 0;
		if (host) {
			begin = s->host_begin_ns;
			end = s->host_end_ns;
		}
		if (!whole && begin >= end)
			continue;
		for (size_t k = 0; k < n; k++)
			in += whole || (at[k] >= begin && at[k] < end);
		v[steps++] = (double)in;
	}
	int64_t median = steps ? (int64_t)fo_stats_quantile(v, steps, 0.5) : 0;
	free(v);
	return median;
}

static void read_transfers(struct place *p, const struct fo_rank_ledger *r)
{
	const struct fo_trace *t = r->trace;
	int rank = t->rank_from == FO_RANK_ORDER ? -1 : t->rank; /* numbers of files are no members of a group */
	int64_t *receive = fo_xmalloc((size_t)(t->gpu_count + 1) * sizeof *receive);
	size_t receives = 0;
	for (int64_t i = 0; i < t->gpu_count; i++) {
		if (!is_transfer(t, &t->gpu[i]))
			continue;
		const struct fo_collective *c = &t->collective[t->gpu[i].collective];
		const char *name = fo_trace_text(t, c->name);
		int n, at = place_in(fo_trace_text(t, c->members), rank, &n), peer, peers;
		if (at >= 0 && n > 1) {
			p->stage = at;
			p->stages = n;
			p->named |= called(t, c, "pipeline", "pp");
			int32_t other = c->peer_to >= 0 && c->peer_to != rank ? c->peer_to : c->peer_from;
			peer = other >= 0 ? place_in(fo_trace_text(t, c->members), other, &peers) : -1;
			p->wraps |= n > 2 && ((at == n - 1 && peer == 0) || (at == 0 && peer == n - 1));
			p->unpaired |= peer < 0;
		}
		if (fo_text_mentions(name, "recv") && !fo_text_mentions(name, "send"))
			receive[receives++] = t->gpu[i].begin_ns;
	}
	if (steps_of(r))
		p->receives = count_by_step(steps_of(r), receive, receives, false);
	free(receive);
}

/* "PP:1F3" */
static bool schedule_note(const char *name, int *part, char *what, int *microbatch)
{
	return starts_with(name, "PP:") && sscanf(name + 3, "%d%c%d", part, what, microbatch) == 3 && *part >= 0 &&
	       *part < MAX_STAGES * 4;
}
/* "Forward 3" of PyTorch's plain schedules, "forward_step" of Megatron-LM's, "ForwardPass" of DeepSpeed's. They are
 * written without a pipeline, too. */
static bool forward_note(const char *name)
{
	return (starts_with(name, "Forward ") && isdigit((unsigned char)name[8])) ||
	       starts_with(name, "forward_step") || starts_with(name, "ForwardPass") ||
	       starts_with(name, "forward-compute");
}

static void read_notes(struct place *p, const struct fo_rank_ledger *r)
{
	const struct fo_trace *t = r->trace;
	int64_t scheduled = 0, *plain = fo_xmalloc((size_t)(t->op_count + 1) * sizeof *plain);
	size_t plains = 0;
	bool *seen = fo_xmalloc(MAX_STAGES * 4 * sizeof *seen);
	int least = -1, part, microbatch;
	char what;
	for (int64_t i = 0; i < t->op_count; i++) {
		if (t->op[i].kind != FO_HOST_NOTE)
			continue;
		const char *name = fo_trace_text(t, t->op[i].name);
		if (schedule_note(name, &part, &what, &microbatch)) {
			/* Microbatches are numbered from 0 in each step. */
			if (what == 'F' && microbatch >= scheduled)
				scheduled = (int64_t)microbatch + 1;
			p->parts += !seen[part];
			seen[part] = true;
			least = least < 0 || part < least ? part : least;
		} else if (forward_note(name)) {
			plain[plains++] = t->op[i].begin_ns;
		}
	}
	free(seen);
	p->named |= p->parts > 0;
	p->forwards = scheduled || !steps_of(r) ? scheduled : count_by_step(steps_of(r), plain, plains, true);
	free(plain);
	/* Parts are dealt out in turn: the least number is the stage; with one rank's notes alone their count stays
	 * unknown. */
	if (p->stage < 0 && p->parts)
		p->stage = least;
}

/* `waits`: nothing but transfers between stages, or idle until something that was launched already. */
static double bubble_in(const struct fo_intervals *waits, const struct fo_intervals *compute,
			const struct fo_intervals *optimizer, const struct fo_ledger *w)
{
	size_t first = fo_intervals_find(compute, w->begin_ns);
	if (first == compute->n || compute->v[first].begin >= w->end_ns)
		return NAN;
	int64_t begin = fo_max(compute->v[first].begin, w->begin_ns), end = begin;
	size_t update = fo_intervals_find(optimizer, begin);
	int64_t limit = update < optimizer->n && optimizer->v[update].begin > begin &&
					optimizer->v[update].begin < w->end_ns
				? optimizer->v[update].begin
				: w->end_ns;
	for (size_t i = first; i < compute->n && compute->v[i].begin < limit; i++)
		end = fo_min(compute->v[i].end, limit);
	return end > begin ? (double)fo_intervals_within(waits, begin, end) / (double)(end - begin) : NAN;
}

/* The gaps of one device in which the next operation waited on the device itself. */
static void add_dependencies(struct fo_intervals *out, const struct fo_trace *t, int16_t device)
{
	struct fo_idle host;
	int64_t until = INT64_MIN;
	fo_idle_init(&host, t, false);
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		if (g->device != device)
			continue;
		if (until != INT64_MIN && g->begin_ns > until) {
			int64_t idle[FO_IDLE_COUNT] = { 0 };
			fo_idle_divide(&host, device, g, until, g->begin_ns, until, g->begin_ns, idle);
			/* The rest of the gap comes before it. */
			fo_intervals_add(out, g->begin_ns - idle[FO_IDLE_DEPENDENCY], g->begin_ns);
		}
		until = fo_max(g->end_ns, until);
	}
	fo_idle_fini(&host);
}

static double bubble_of(const struct fo_trace *t, const struct fo_device_ledger *l)
{
	struct fo_intervals filled = { 0 }, compute = { 0 }, optimizer = { 0 }, waits = { 0 }, bare = { 0 };
	double *v = fo_xmalloc((size_t)(l->steps + 1) * sizeof *v), median = NAN;
	size_t n = 0;
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		if (g->device != l->device)
			continue;
		bool transfer = is_transfer(t, g);
		fo_intervals_add(transfer ? &waits : &filled, g->begin_ns, g->end_ns);
		if (g->class < FO_K_COMPUTE_COUNT)
			fo_intervals_add(&compute, g->begin_ns, g->end_ns);
		if (g->class == FO_K_OPTIMIZER)
			fo_intervals_add(&optimizer, g->begin_ns, g->end_ns);
	}
	add_dependencies(&waits, t, l->device);
	fo_intervals_unite(&filled);
	fo_intervals_unite(&compute);
	fo_intervals_unite(&optimizer);
	fo_intervals_unite(&waits);
	fo_intervals_subtract(&bare, &waits, &filled);
	for (int64_t i = 0; i < l->steps; i++) {
		v[n] = bubble_in(&bare, &compute, &optimizer, &l->step[i].l);
		n += !isnan(v[n]);
	}
	if (n)
		median = fo_stats_quantile(v, n, 0.5);
	fo_intervals_fini(&filled);
	fo_intervals_fini(&compute);
	fo_intervals_fini(&optimizer);
	fo_intervals_fini(&waits);
	fo_intervals_fini(&bare);
	free(v);
	return median;
}

/* The bubble of a stage is the mean over the ranks that are it; NaN where none of them was given. */
static void fill_bubbles(struct fo_diagnosis *d)
{
	struct fo_pipeline *p = &d->pipeline;
	int *n = fo_xmalloc((size_t)p->stages * sizeof *n);
	p->bubble = fo_xmalloc((size_t)p->stages * sizeof *p->bubble);
	for (int r = 0; r < d->ranks; r++) {
		double b = p->stage[r] >= 0 && d->rank[r].devices ? bubble_of(d->rank[r].trace, &d->rank[r].device[0])
								  : NAN;
		if (isnan(b))
			continue;
		p->bubble[p->stage[r]] += b;
		n[p->stage[r]]++;
	}
	for (int i = 0; i < p->stages; i++)
		p->bubble[i] = n[i] ? p->bubble[i] / n[i] : NAN;
	free(n);
}

/* A chain: its ends are there and do not send to each other. Of two members none can tell it from a ring. */
static bool is_chain(const struct place *v, int n)
{
	int members = 0;
	bool end = false;
	for (int i = 0; i < n; i++) {
		if (v[i].wraps || v[i].unpaired)
			return false;
		members += v[i].stages > 2;
		end |= v[i].stages > 2 && (v[i].stage == 0 || v[i].stage == v[i].stages - 1);
	}
	return members > 1 && end;
}

void fo_diagnose_pipeline(struct fo_diagnosis *d)
{
	struct fo_pipeline *p = &d->pipeline;
	struct place *v = fo_xmalloc((size_t)(d->ranks + 1) * sizeof *v);
	int64_t forwards = 0, receives = 0;
	int parts = 0;
	bool wraps = false, named = false, all = d->ranks > 0 && d->ranks >= d->rank[0].trace->world_size;
	for (int i = 0; i < d->ranks; i++) {
		v[i].stage = -1;
		read_transfers(&v[i], &d->rank[i]);
		read_notes(&v[i], &d->rank[i]);
		int stages = v[i].stages ? v[i].stages : v[i].stage + 1;
		p->stages = fo_max(stages, p->stages);
		parts = fo_max(v[i].parts, parts);
		forwards = fo_max(v[i].forwards, forwards);
		receives = v[i].stage == 0 ? v[i].receives : receives;
		wraps |= v[i].wraps;
		named |= v[i].named;
		all |= v[i].stages > 0;
	}
	if (p->stages < 2 || !(named || is_chain(v, d->ranks))) {
		p->stages = 0;
		free(v);
		return;
	}
	/* The number that one stage received is that of the microbatches only where it has one chunk. */
	int64_t microbatches = forwards;
	if (!forwards && !wraps)
		microbatches = receives;
	p->microbatches = microbatches < 1000000 ? (int)microbatches : 0;
	p->chunks = parts && parts < MAX_CHUNKS ? parts : !wraps;
	/* Annotations of some ranks alone leave the stages of others unseen. */
	p->ideal = all && p->microbatches && p->chunks ? (p->stages - 1) / ((double)p->chunks * p->microbatches) : NAN;
	p->stage = fo_xmalloc((size_t)(d->ranks + 1) * sizeof *p->stage);
	for (int i = 0; i < d->ranks; i++)
		p->stage[i] = v[i].stage < p->stages ? v[i].stage : -1;
	fill_bubbles(d);
	free(v);
}
