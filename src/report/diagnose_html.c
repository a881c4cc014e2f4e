/* A diagnosis as one page. */
#include "report/diagnose_html.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/text.h"
#include "draw/draw.h"
#include "report/ledger_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The longest gap that is the hardware's own (docs/metrics.md, "idle causes"). */
enum { TURN_AROUND_NS = 10000 };
enum { DENSE = 64, PRODUCTS = 40, FEW = 4 /* wholes that a table beside their bars has columns for */ };

struct page {
	const struct fo_diagnosis *d;
	struct fo_arena *a;
	struct fo_str *out;
};
#define TEXT(...) fo_arena_printf(p->a, __VA_ARGS__)

static const char *number(struct page *p, double v, enum fo_draw_unit unit)
{
	char buf[32];
	return fo_arena_strdup(p->a, fo_draw_number(buf, v, unit));
}

static const char *time_text(struct page *p, int64_t ns) { return number(p, (double)ns * 1e-9, FO_DRAW_SECONDS); }
static const char *share(struct page *p, int64_t part, int64_t whole)
{
	return number(p, whole > 0 ? (double)part / (double)whole : NAN, FO_DRAW_SHARE);
}

static const char *dollars(struct page *p, double v)
{
	return !isfinite(v) ? "-" : v > 0 && v < 0.005 ? "below $0.01" : TEXT("$%.2f", v);
}

/* "rank 3", "rank 3, GPU 1" where a rank has several. */
static const char *unit_name(struct page *p, const struct fo_rank_ledger *r, const struct fo_device_ledger *d)
{
	long long gpu = r->trace && d && d->device >= 0 && d->device < r->trace->device_count
				? r->trace->device[d->device].id
				: 0;
	if (r->rank < 0) /* the trace does not say */
		return TEXT("GPU %lld", gpu);
	return r->devices > 1 ? TEXT("rank %d, GPU %lld", r->rank, gpu) : TEXT("rank %d", r->rank);
}

static const char *kind_words(enum fo_finding_kind k)
{
	static const char *const words[FO_FIND_COUNT] = {
		[FO_FIND_VALIDITY] = "validity",
		[FO_FIND_COMPUTE] = "computation itself",
		[FO_FIND_MEMORY_BOUND] = "memory bandwidth",
		[FO_FIND_COMM_WAIT] = "waiting for a rank",
		[FO_FIND_COMM_TRANSFER] = "network",
		[FO_FIND_COPIES] = "copies",
		[FO_FIND_HOST] = "the host is late",
		[FO_FIND_DATA] = "data loading",
		[FO_FIND_RECOMPUTE] = "recomputation",
		[FO_FIND_PIPELINE] = "pipeline",
		[FO_FIND_COMM] = "communication",
		[FO_FIND_IDLE] = "idling",
	};
	return k < FO_FIND_COUNT && words[k] ? words[k] : "finding";
}

/* Titles are written to stand behind a colon. */
static const char *sentence(struct page *p, const char *text)
{
	char *s = fo_arena_strdup(p->a, text);
	if (*s >= 'a' && *s <= 'z')
		*s = (char)(*s - 'a' + 'A');
	return s;
}

static const struct fo_finding *the_bottleneck(const struct fo_diagnosis *d, bool runner_up)
{
	for (int64_t i = 0; i < d->findings; i++)
		if (runner_up ? d->finding[i].is_runner_up : d->finding[i].is_bottleneck)
			return &d->finding[i];
	return NULL;
}

static const struct fo_device_ledger *slowest(const struct fo_diagnosis *d) { return fo_shown_device(d, d->worst); }

/* One step of it: what every part of the page speaks of. */
static const struct fo_ledger *shown(struct page *p, const struct fo_device_ledger *d)
{
	struct fo_shown_step *s = fo_arena_alloc(p->a, sizeof *s);
	fo_shown_step_of(d, s);
	return &s->l;
}

static const char *shown_words(struct page *p, const struct fo_device_ledger *d)
{
	char buf[48];
	return fo_arena_strdup(p->a, fo_shown_step_words(buf, d));
}

static struct fo_spread step_spread(struct page *p, const struct fo_device_ledger *d)
{
	double *v = fo_arena_alloc(p->a, (size_t)(d->steps + 1) * sizeof *v);
	for (int64_t i = 0; i < d->steps; i++)
		v[i] = (double)d->step[i].l.span_ns * 1e-9;
	return fo_stats_spread(v, (size_t)d->steps);
}

/* ---- the answer ---- */

/* The estimate as a figure; where its interval is too wide for a middle, its end. */
static struct fo_draw_fact estimate(struct page *p, const char *name, const struct fo_finding *f)
{
	if (f->nearly_all)
		return (struct fo_draw_fact){ name, "nearly all of the step",
					      "so little is left that no factor can be told" };
	if (f->up_to)
		return (struct fo_draw_fact){ name, TEXT("up to x %.2f", f->gain_high),
					      "how much cannot be told from this trace" };
	return (struct fo_draw_fact){ name, TEXT("x %.2f", f->gain),
				      TEXT("estimate, x %.2f to x %.2f", f->gain_low, f->gain_high) };
}

static void fact_step(struct page *p, struct fo_draw_fact *f, const struct fo_device_ledger *d)
{
	bool whole = d->from == FO_WINDOW_WHOLE;
	f->name = whole ? "whole trace" : "step";
	f->value = time_text(p, shown(p, d)->span_ns);
	f->note = "taken as one step";
	if (!whole) {
		struct fo_spread s = step_spread(p, d);
		f->note = d->steps > 1 ? TEXT("%s of %lld; quartiles %s to %s", shown_words(p, d), (long long)d->steps,
					      number(p, s.low, FO_DRAW_SECONDS), number(p, s.high, FO_DRAW_SECONDS))
				       : "one step: no spread";
	}
}

static const char *mfu_note(struct page *p)
{
	const struct fo_bridge *b = &p->d->bridge;
	const char *causal = isfinite(b->mfu_causal) ? TEXT("; causal %s", number(p, b->mfu_causal, FO_DRAW_SHARE))
						     : "";
	return TEXT("rule %s%s%s%s%s%s", b->rule, *b->dtype ? ", " : "", b->dtype, causal, *b->note ? "; " : "",
		    b->note);
}

static const char *why_no_mfu(const struct fo_diagnosis *d)
{
	return *d->bridge.why_not ? d->bridge.why_not : "give --model, --seq and --tokens-per-step";
}

/* "a step", "the trace". */
static const char *a_window(struct page *p)
{
	const struct fo_device_ledger *v = slowest(p->d);
	return v && v->from == FO_WINDOW_WHOLE ? "the trace" : "a step";
}

/* Of what and of when: "NVIDIA H100 80GB HBM3, 8 ranks, PyTorch, recorded 2026-03-05; step 7 as the host has it, 391
 * ms." */
static const char *of_what(struct page *p)
{
	const struct fo_diagnosis *d = p->d;
	const struct fo_device_ledger *v = slowest(d);
	const struct fo_trace *t = d->ranks > 0 ? d->rank[d->worst >= 0 && d->worst < d->ranks ? d->worst : 0].trace
						: NULL;
	char words[160], device[80] = "a GPU", date[32] = "";
	if (!t)
		return "";
	if (v && v->device >= 0 && v->device < t->device_count && t->device[v->device].name >= 0)
		snprintf(device, sizeof device, "%s", fo_trace_text(t, t->device[v->device].name));
	time_t at = (time_t)(t->origin_unix_ns / 1000000000);
	struct tm tm;
	if (t->origin_unix_ns > 0 && gmtime_r(&at, &tm))
		strftime(date, sizeof date, ", recorded %Y-%m-%d", &tm);
	const char *ranks = d->ranks > 1 || t->world_size > 1
				    ? TEXT("%d%s rank%s", d->ranks,
					   t->world_size > d->ranks ? TEXT(" of %d", t->world_size) : "",
					   d->ranks == 1 && t->world_size < 2 ? "" : "s")
				    : "one process";
	fo_window_words(words, d);
	return sentence(p, TEXT("%s, %s%s%s%s%s%s.", v ? device : "no GPU work", ranks, *d->framework ? ", " : "",
				d->framework, date, *words ? "; figures are of " : "", words));
}

/* At most six: rows that are full on a desk and on a telephone. What is not known is left out, but MFU, whose absence
 * has a cure. */
static void answer(struct page *p)
{
	const struct fo_diagnosis *d = p->d;
	const struct fo_device_ledger *s = slowest(d);
	const struct fo_finding *f = the_bottleneck(d, false);
	struct fo_draw_fact fact[6];
	size_t n = 0;
	if (s || f)
		fact[n++] = (struct fo_draw_fact){ "bottleneck", f ? kind_words(f->kind) : "none",
						   !f ? "nothing is worth a change by what these traces show"
						   : f->loss_ns > 0
							   ? TEXT("%s of %s", time_text(p, f->loss_ns), a_window(p))
							   : NULL };
	if (f && fo_finding_worth(f)) {
		fact[n] = estimate(p, "its removal is worth", f);
		if (!f->up_to && !f->nearly_all)
			fact[n].note = TEXT("%s; at best x %.2f", fact[n].note, f->ceiling);
		n++;
	}
	if (d->bridge.known)
		fact[n++] = (struct fo_draw_fact){ "MFU", number(p, d->bridge.mfu, FO_DRAW_SHARE), mfu_note(p) };
	else if (s && d->own.known)
		fact[n++] = (struct fo_draw_fact){ "MFU", number(p, d->own.mfu, FO_DRAW_SHARE),
						   fo_own_mfu_text(&d->own, fo_arena_alloc(p->a, 400)) };
	else if (s)
		fact[n++] = (struct fo_draw_fact){ "MFU", "not known", why_no_mfu(d) };
	if (s && isfinite(d->utilisation.resident) && !d->own.is)
		fact[n++] = (struct fo_draw_fact){ "utilisation", number(p, d->utilisation.resident, FO_DRAW_SHARE),
						   "as the driver counts: any kernel resident, waiting ones included" };
	if (s && s->median.l.span_ns > 0) {
		const struct fo_ledger *l = shown(p, s);
		fact_step(p, &fact[n++], s);
		fact[n++] = (struct fo_draw_fact){ "GPU idle", share(p, l->idle_total_ns, l->span_ns),
						   time_text(p, l->idle_total_ns) };
	}
	if (n)
		fo_draw_facts(p->out, fact, n);
	if (isfinite(d->with.price_per_hour))
		fo_draw_remark(p->out, "Money is at %s an hour for one device.", dollars(p, d->with.price_per_hour));
}

/* ---- the ledger ---- */

/* What waits for others is told: ranks are ordered by the rest. */
static void stack_of(struct page *p, struct fo_draw_stack *s, const char *name, bool dense, const struct fo_ledger *l)
{
	int64_t part[FO_LEDGER_PARTS];
	double *v = fo_arena_alloc(p->a, FO_LEDGER_PARTS * sizeof *v);
	const char *total = time_text(p, l->span_ns);
	fo_ledger_parts(l, part);
	for (int i = 0; i < FO_LEDGER_PARTS; i++)
		v[i] = (double)part[i];
	if (l->exposed_wait_ns > 0 && !dense)
		total = TEXT("without waiting: %s of %s", time_text(p, l->span_ns - l->exposed_wait_ns), total);
	*s = (struct fo_draw_stack){ name, total, v };
}

/* Classes that are below 2 % everywhere become "other kernels": nobody could see them. */
static void fold(const struct fo_draw_stack *stack, size_t n)
{
	const double least = 0.02;
	for (int k = FO_LEDGER_NORM; k < FO_LEDGER_OTHER; k++) {
		bool seen = false;
		for (size_t i = 0; i < n; i++) {
			double sum = 0;
			for (int q = 0; q < FO_LEDGER_PARTS; q++)
				sum += stack[i].part[q];
			seen = seen || stack[i].part[k] >= least * sum;
		}
		for (size_t i = 0; i < n && !seen; i++) {
			double *v = (double *)(uintptr_t)stack[i].part; /* stack_of made it */
			v[FO_LEDGER_OTHER] += v[k];
			v[k] = 0;
		}
	}
}

static int64_t units_of(const struct fo_diagnosis *d)
{
	int64_t n = 0;
	for (int r = 0; r < d->ranks; r++)
		n += d->rank[r].devices;
	return n;
}

/* head: the columns of its table; NULL: thin bars and no table. */
static void draw_stacks(struct page *p, const char *title, const struct fo_draw_stack *stack, size_t n,
			const char *const *head)
{
	fold(stack, n);
	fo_draw_stacks(p->out, &(struct fo_draw_stacks){ .title = title,
							 .desc = "Parts sum to the step.",
							 .part_name = fo_ledger_part_name,
							 .tone = fo_ledger_part_tone,
							 .parts = FO_LEDGER_PARTS,
							 .stack = stack,
							 .stacks = n,
							 .to_scale = true,
							 .head = head,
							 .legend = n == 1,
							 .dense = !head });
}

/* Every unit, one thin bar each. */
static void draw_every(struct page *p, int64_t units)
{
	const struct fo_diagnosis *d = p->d;
	struct fo_draw_stack *stack = fo_arena_alloc(p->a, (size_t)units * sizeof *stack);
	size_t n = 0;
	for (int r = 0; r < d->ranks; r++)
		for (int64_t k = 0; k < d->rank[r].devices; k++)
			stack_of(p, &stack[n++], unit_name(p, &d->rank[r], &d->rank[r].device[k]), true,
				 shown(p, &d->rank[r].device[k]));
	draw_stacks(p, "Every rank, lengths to scale", stack, n, NULL);
}

/* Few units: each. Many: the slowest, the median and the fastest rank, each rank once. */
static size_t main_stacks(struct page *p, struct fo_draw_stack stack[FEW], const char *head[FEW], int64_t units)
{
	static const char *const role[] = { "slowest", "median", "fastest" };
	const struct fo_diagnosis *d = p->d;
	const int which[] = { d->worst, d->middle, d->best };
	size_t n = 0;
	if (units <= FEW) {
		for (int r = 0; r < d->ranks; r++)
			for (int64_t k = 0; k < d->rank[r].devices; k++) {
				const char *name = unit_name(p, &d->rank[r], &d->rank[r].device[k]);
				head[n] = name;
				stack_of(p, &stack[n++], name, false, shown(p, &d->rank[r].device[k]));
			}
		return n;
	}
	for (int i = 0; i < 3; i++) {
		if (which[i] < 0 || which[i] >= d->ranks || (i == 1 && which[1] == which[2]) ||
		    (i && which[i] == which[0]))
			continue;
		const struct fo_rank_ledger *r = &d->rank[which[i]];
		const struct fo_device_ledger *l = fo_shown_device(d, which[i]);
		if (!l)
			continue;
		head[n] = role[i];
		stack_of(p, &stack[n++], TEXT("%s: %s", role[i], unit_name(p, r, l)), false, shown(p, l));
	}
	return n;
}

static void class_table(struct page *p, const struct fo_ledger *l)
{
	static const char *const head[] = { "class of kernel", "exclusive", "of the step", "durations added up",
					    "operations" };
	struct fo_draw_table t;
	fo_draw_details_begin(p->out, "Classes of kernels on the slowest rank", false);
	fo_draw_table_begin(&t, p->out,
			    "Exclusive: an instant in which several run counts for the class that stands first.",
			    "lrrrr", head);
	for (int k = 0; k < FO_K_COUNT; k++)
		if (l->class_ops[k] || l->class_sum_ns[k]) {
			bool compute = k < FO_K_COMPUTE_COUNT;
			int64_t own = compute                   ? l->class_ns[k]
				      : k == FO_K_COMMUNICATION ? l->exposed_comm_ns
								: l->exposed_mem_ns;
			fo_draw_table_row(&t, (const char *const[]){ fo_class_words[k], time_text(p, own),
								     share(p, own, l->span_ns),
								     time_text(p, l->class_sum_ns[k]),
								     TEXT("%lld", (long long)l->class_ops[k]) });
		}
	fo_draw_table_end(&t);
	if (l->comm_ns > 0)
		fo_draw_remark(p->out, "Communication %s in all, of which %s under compute (%s).",
			       time_text(p, l->comm_ns), time_text(p, l->comm_ns - l->exposed_comm_ns),
			       share(p, l->comm_ns - l->exposed_comm_ns, l->comm_ns));
	if (l->recompute_ns > 0)
		fo_draw_remark(p->out, "Recomputed: %s (%s of the step).", time_text(p, l->recompute_ns),
			       share(p, l->recompute_ns, l->span_ns));
	fo_draw_details_end(p->out);
}

static const char *origin_words(enum fo_window_origin from)
{
	switch (from) {
	case FO_WINDOW_LAUNCHED_STEPS: return "the host's, by the GPU operations that were launched in them";
	case FO_WINDOW_HOST_STEP:
		return "the only one that is marked, as the host has it: to its end, or that of the last operation "
		       "launched in it";
	case FO_WINDOW_GPU_STEPS: return "the GPU's copy of the profiler's annotation";
	case FO_WINDOW_NVTX: return "recurring annotations";
	case FO_WINDOW_OPTIMIZER: return "from one optimizer update to the next";
	default: return "no two that follow each other; the whole trace stands for one";
	}
}

/* As the terminal prints it, of the slowest rank. */
static void host_table(struct page *p, bool open)
{
	static const char *const head[] = { "part of the host's step", "share", "time" };
	static const char *const name[FO_HOST_PART_COUNT] = { "kernel",  "memcpy",      "memset",   "communication",
							      "runtime", "data loader", "CPU exec", "other" };
	const struct fo_diagnosis *d = p->d;
	const struct fo_rank_ledger *r = d->ranks > 0 ? &d->rank[d->worst >= 0 && d->worst < d->ranks ? d->worst : 0]
						      : NULL;
	int64_t span = 0, part[FO_HOST_PART_COUNT] = { 0 };
	struct fo_draw_table t;
	if (!r || r->hosts <= 0 || d->own.is)
		return;
	for (int64_t i = 0; i < r->hosts; i++) {
		span += r->host[i].end_ns - r->host[i].begin_ns;
		for (int k = 0; k < FO_HOST_PART_COUNT; k++)
			part[k] += r->host[i].part_ns[k];
	}
	fo_draw_details_begin(p->out, TEXT("The host's step, mean of %lld", (long long)r->hosts), open);
	fo_draw_table_shaped(&t, p->out, FO_DRAW_SLIM,
			     "The first of these that went on anywhere, as the PyTorch profiler's view has it", "lrr",
			     head);
	for (int k = 0; k < FO_HOST_PART_COUNT; k++)
		if (part[k] > 0)
			fo_draw_table_row(&t, (const char *const[]){ name[k], share(p, part[k], span),
								     time_text(p, part[k] / r->hosts) });
	fo_draw_table_row(&t, (const char *const[]){ "step", share(p, span, span), time_text(p, span / r->hosts) });
	fo_draw_table_end(&t);
	fo_draw_details_end(p->out);
}

static void draw_ledger(struct page *p)
{
	const struct fo_diagnosis *d = p->d;
	struct fo_draw_stack stack[FEW];
	const char *head[FEW];
	const struct fo_device_ledger *s = slowest(d);
	int64_t units = units_of(d);
	size_t n = main_stacks(p, stack, head, units);
	fo_draw_heading(p->out, "Where the time goes");
	if (!units) {
		fo_draw_text(p->out, "There is no GPU work in %s.", d->ranks > 1 ? "these traces" : "this trace");
		host_table(p, true);
		return;
	}
	draw_stacks(p,
		    units == 1 && s                   ? sentence(p, TEXT("%s; parts sum to it", shown_words(p, s)))
		    : s && s->from == FO_WINDOW_WHOLE ? "Whole traces; parts sum to each"
						      : "Steps; parts sum to each",
		    stack, n, head);
	if (units > FEW)
		fo_draw_remark(p->out, "Ranks are ordered by their own work, the step without waiting for others: the "
				       "slowest has most of it, even where the others' steps last as long because they "
				       "wait.");
	if (units > FEW && units <= DENSE)
		draw_every(p, units);
	if (units > DENSE)
		fo_draw_remark(p->out, "%lld devices: the slowest, the median and the fastest rank stand for them.",
			       (long long)units);
	if (s) {
		class_table(p, shown(p, s));
		host_table(p, false);
		fo_draw_remark(p->out, "Steps: %s.", origin_words(s->from));
	}
}

/* Of what the bottleneck is about, where that is gaps; else of any kind. */
static enum fo_gap_kind gap_of(const struct fo_finding *f)
{
	switch (f ? f->kind : FO_FIND_COUNT) {
	case FO_FIND_HOST:
	case FO_FIND_DATA:
	case FO_FIND_IDLE: return FO_GAP_IDLE;
	case FO_FIND_COMM:
	case FO_FIND_COMM_WAIT:
	case FO_FIND_COMM_TRANSFER: return FO_GAP_COMMUNICATION;
	default: return FO_GAP_ANY;
	}
}

static void gap_table(struct page *p, const struct fo_gap *g)
{
	static const char *const head[] = { "meanwhile, the launching thread", "own time", "of the wait" };
	struct fo_draw_table t;
	char name[160];
	fo_draw_table_shaped(&t, p->out, FO_DRAW_SLIM, NULL, "lrr", head);
	for (int i = 0; i < g->dids; i++) {
		snprintf(name, sizeof name, "%.120s%s", fo_trace_text(g->trace, g->did[i].name),
			 g->did[i].call ? " (a call of the driver)" : "");
		fo_draw_table_row(&t, (const char *const[]){ name, time_text(p, g->did[i].ns),
							     share(p, g->did[i].ns, g->meanwhile_ns) });
	}
	fo_draw_table_row(&t,
			  (const char *const[]){ "nothing that is recorded", time_text(p, g->meanwhile_ns - g->did_ns),
						 share(p, g->meanwhile_ns - g->did_ns, g->meanwhile_ns) });
	fo_draw_table_end(&t);
}

static void draw_gap(struct page *p)
{
	/* Beyond this a gap cannot be what a reader looks for. */
	const double busy = 0.99;
	const struct fo_device_ledger *s = slowest(p->d);
	const struct fo_finding *f = the_bottleneck(p->d, false);
	enum fo_gap_kind kind = gap_of(f);
	struct fo_gap g;
	if (!s)
		return;
	const struct fo_ledger *l = shown(p, s);
	fo_gap_worst(&g, &p->d->rank[p->d->worst], s, kind);
	const char *where = TEXT("the %s", shown_words(p, s));
	fo_draw_heading(p->out, g.communication ? TEXT("The longest communication alone in %s", where)
						: TEXT("The longest idle gap of %s", where));
	if (g.end_ns - g.begin_ns <= TURN_AROUND_NS) {
		fo_draw_text(p->out, "On the slowest rank the GPU was never without work for longer than %s.",
			     time_text(p, g.end_ns - g.begin_ns));
		return;
	}
	if (!g.communication && (double)l->busy_ns > busy * (double)l->span_ns) {
		fo_draw_text(
			p->out,
			"The GPU is busy for %s of it; the longest gap lasts %s. No picture: nothing is lost there.",
			share(p, l->busy_ns, l->span_ns), time_text(p, g.end_ns - g.begin_ns));
		return;
	}
	if (f && kind != FO_GAP_ANY && g.communication == (kind == FO_GAP_COMMUNICATION))
		fo_draw_text(p->out,
			     "The bottleneck is %s; this is where the GPU %s longest for it or the like: %s at once.",
			     kind_words(f->kind), g.communication ? "only communicates" : "idles",
			     time_text(p, g.end_ns - g.begin_ns));
	else if (f)
		fo_draw_text(p->out, "Beside the bottleneck (%s).", kind_words(f->kind));
	fo_gap_draw(&g, "What the launching thread and the GPU's streams did around it", p->a, p->out);
	if (g.dids)
		gap_table(p, &g);
}

/* ---- the bridge ---- */

/* What the job costs: the rows' dollars sum to it. Of a step that is fractions of a cent. */
static const char *bridge_money(struct page *p)
{
	const struct fo_bridge *b = &p->d->bridge;
	double step = 0, hour = 0;
	for (int i = 0; i < b->rows && i < FO_BRIDGE_MAX; i++) {
		step += b->row[i].dollars;
		hour += b->row[i].dollars_per_hour;
	}
	return isfinite(step) && isfinite(hour)
		       ? TEXT("; 1000 steps cost %s, an hour %s", dollars(p, 1000 * step), dollars(p, hour))
		       : "";
}

/* All but MFU, the greatest loss first; those below half a point are one, unless that is one row alone. Returns how
 * many. */
static int sorted_rows(struct page *p, struct fo_bridge_row out[FO_BRIDGE_MAX])
{
	const double least = 0.005;
	const struct fo_bridge *b = &p->d->bridge;
	struct fo_bridge_row rest = { .name = "" };
	int n = 0, folded = 0;
	for (int i = 1; i < b->rows && i < FO_BRIDGE_MAX; i++)
		folded += fabs(b->row[i].share) < least;
	for (int i = 1; i < b->rows && i < FO_BRIDGE_MAX; i++) {
		const struct fo_bridge_row *r = &b->row[i];
		if (folded > 1 && fabs(r->share) < least) {
			rest.share += r->share;
			rest.dollars_per_hour += r->dollars_per_hour;
			continue;
		}
		int at = n++;
		for (; at > 0 && out[at - 1].share < r->share; at--)
			out[at] = out[at - 1];
		out[at] = *r;
	}
	if (folded > 1) {
		snprintf(rest.name, sizeof rest.name, "%d others, below 0.5 points each", folded);
		out[n++] = rest;
	}
	return n;
}

static void draw_bridge(struct page *p)
{
	const struct fo_bridge *b = &p->d->bridge;
	struct fo_draw_fall fall[FO_BRIDGE_MAX];
	size_t n = 0;
	char si[32];
	fo_draw_heading(p->out, "From 100 % to MFU");
	if (*p->d->utilisation.sentence)
		fo_draw_text(p->out, "%s", p->d->utilisation.sentence);
	if (!b->known) {
		fo_draw_text(p->out, "Not known: %s.", why_no_mfu(p->d));
		return;
	}
	struct fo_bridge_row row[FO_BRIDGE_MAX];
	int rows = sorted_rows(p, row);
	for (int i = 0; i < rows; i++) {
		const struct fo_bridge_row *r = &row[i];
		const char *cost = isfinite(r->dollars_per_hour) ? TEXT(", %s/h", dollars(p, r->dollars_per_hour)) : "";
		fall[n++] = (struct fo_draw_fall){ r->name, NULL, TEXT("%+.1f points%s", -100 * r->share, cost),
						   r->share };
	}
	fo_draw_waterfall(p->out,
			  &(struct fo_draw_waterfall){
				  .title = "What the step's time is lost to, in points of MFU",
				  .desc = TEXT("Peak: %s%s%s. A step takes %s on %d device%s%s.", b->device,
					       *b->device ? ", " : "", *b->peak_source ? b->peak_source : "dense",
					       number(p, b->step_s, FO_DRAW_SECONDS), b->devices,
					       b->devices == 1 ? "" : "s", bridge_money(p)),
				  .unit = FO_DRAW_SHARE,
				  .whole = 1,
				  .whole_name = "the peak",
				  .whole_value = TEXT("100 %%, %s", fo_str_si(si, b->peak_flop_s, "FLOP/s")),
				  .fall = fall,
				  .falls = n,
				  .rest_name = "MFU",
				  .rest_value = TEXT("%s, rule %s%s%s", number(p, b->mfu, FO_DRAW_SHARE), b->rule,
						     *b->dtype ? ", " : "", b->dtype) });
}

/* ---- findings ---- */

static void settings(struct page *p, const struct fo_finding *f)
{
	static const char *const head[] = { "framework", "setting", "now", "try" };
	struct fo_draw_table t;
	if (!f->settings)
		return;
	fo_draw_table_shaped(&t, p->out, FO_DRAW_FULL, NULL, "llll", head);
	for (int i = 0; i < f->settings && i < FO_SETTINGS_MAX; i++) {
		const struct fo_setting *s = &f->setting[i];
		fo_draw_table_row(&t, (const char *const[]){ s->framework, s->key,
							     *s->now ? s->now : "not in the trace", s->proposed });
	}
	fo_draw_table_end(&t);
	struct fo_str paste = { 0 };
	for (int i = 0; i < f->settings && i < FO_SETTINGS_MAX; i++)
		if (*f->setting[i].paste)
			fo_str_printf(&paste, "%s%s", paste.len ? "\n" : "", f->setting[i].paste);
	if (paste.len)
		fo_draw_code(p->out, paste.data);
	fo_str_fini(&paste);
}

/* "idle before void ns::kernel<4>(int)" without what no line has room for. */
static const char *short_evidence(struct page *p, const char *name)
{
	enum { LETTERS = 48 }; /* bytes: a line and a half on a telephone; the whole name is the cell's title */
	char kernel[160];
	const char *behind = !strncmp(name, "idle", 4) ? strstr(name, "before ") : NULL;
	size_t n = behind ? (size_t)(behind - name) + strlen("before ") : 0;
	/* Only names of C++ have such parts; "enumerate(DataLoader)" is one. */
	if (!strncmp(name + n, "void ", 5) || strchr(name + n, '<') || !strncmp(name + n, "nccl", 4))
		fo_kernel_short_name(kernel, sizeof kernel, name + n);
	else
		snprintf(kernel, sizeof kernel, "%s", name + n);
	size_t cut = strlen(kernel);
	if (cut > LETTERS)
		for (cut = LETTERS; cut && ((unsigned char)kernel[cut] & 0xc0) == 0x80; cut--)
			;
	return TEXT("%.*s%.*s%s", (int)n, name, (int)cut, kernel, kernel[cut] ? "…" : "");
}

/* With the operator that launched it. */
static const char *evidence_name(struct page *p, const struct fo_evidence *e, const char *first)
{
	const char *place = fo_evidence_place(p->d, e);
	return TEXT("%s%s%s (%s)", short_evidence(p, e->name), place ? ", in " : "", place ? place : "", first);
}

static const char *evidence_place(struct page *p, const struct fo_evidence *e)
{
	const struct fo_trace *t = NULL;
	for (int r = 0; r < p->d->ranks && !t; r++)
		t = p->d->rank[r].rank == e->rank ? p->d->rank[r].trace : NULL;
	const char *gpu = t && e->device >= 0 && e->device < t->device_count
				  ? TEXT("GPU %lld, ", (long long)t->device[e->device].id)
				  : "";
	const char *rank = e->rank >= 0 ? TEXT("rank %d, ", e->rank) : "";
	return TEXT("%s%sat %.3f ms", rank, *rank ? "" : gpu, (double)(e->begin_ns - (t ? t->begin_ns : 0)) * 1e-6);
}

/* Several of one name on one rank are one row: the first's time, the sum of what they take. */
static void evidence(struct page *p, const struct fo_finding *f)
{
	static const char *const head[] = { "event", "takes" };
	const int n = f->evidences < FO_EVIDENCE_MAX ? f->evidences : FO_EVIDENCE_MAX;
	struct fo_draw_table t;
	if (!n)
		return;
	fo_draw_details_begin(p->out, "Evidence", false);
	fo_draw_table_shaped(&t, p->out, FO_DRAW_FULL, "Times are after the trace's begin", "lr", head);
	for (int i = 0; i < n; i++) {
		const struct fo_evidence *e = &f->evidence[i], *first = e;
		int64_t sum = 0;
		int same = 0, before = 0;
		for (int k = 0; k < n; k++) {
			const struct fo_evidence *o = &f->evidence[k];
			if (o->rank != e->rank || o->device != e->device || strcmp(o->name, e->name))
				continue;
			before += k < i;
			same++;
			sum = fo_plus(sum, o->duration_ns);
			first = o->begin_ns < first->begin_ns ? o : first;
		}
		if (before)
			continue;
		const char *takes = time_text(p, sum);
		fo_draw_table_row_titled(&t, e->name,
					 (const char *const[]){ evidence_name(p, e, evidence_place(p, first)),
								same > 1 ? TEXT("%s, %d times", takes, same) : takes });
	}
	fo_draw_table_end(&t);
	fo_draw_details_end(p->out);
}

static void finding_card(struct page *p, const struct fo_finding *f)
{
	const struct fo_diagnosis *d = p->d;
	const char *role = f->is_bottleneck ? ", the bottleneck" : f->is_runner_up ? ", the runner-up" : "";
	struct fo_draw_fact fact[4];
	size_t n = 0;
	fo_draw_card_begin(p->out, sentence(p, f->title),
			   TEXT("%s%s%s", kind_words(f->kind), role, f->serious ? ", serious" : ""), f->serious);
	fo_draw_text(p->out, "%s", f->why);
	if (fo_finding_worth(f))
		fact[n++] = estimate(p, "worth", f);
	if (isfinite(f->ceiling))
		fact[n++] = (struct fo_draw_fact){ "ceiling", TEXT("x %.2f", f->ceiling),
						   "if all of it went and nothing took its place" };
	if (f->loss_ns > 0)
		fact[n++] = (struct fo_draw_fact){ TEXT("of %s", a_window(p)), time_text(p, f->loss_ns),
						   fo_finding_worth(f) || isfinite(f->ceiling) ? "would go at best"
											       : "is what it takes" };
	if (isfinite(f->dollars))
		fact[n++] = (struct fo_draw_fact){ "saved per hour of the job", dollars(p, f->dollars),
						   d->bridge.devices > 0
							   ? TEXT("at the estimate, %d device%s", d->bridge.devices,
								  d->bridge.devices == 1 ? "" : "s")
							   : "at the estimate, all devices" };
	settings(p, f);
	if (n)
		fo_draw_facts(p->out, fact, n);
	evidence(p, f);
	fo_draw_card_end(p->out);
}

/* What has to be known of the traces: in a frame where it makes the figures doubtful, else behind the findings on
 * demand. */
static void draw_notes(struct page *p, bool doubt)
{
	const struct fo_diagnosis *d = p->d;
	int64_t n = 0;
	for (int64_t i = 0; i < d->findings; i++)
		n += d->finding[i].kind == FO_FIND_VALIDITY && !fo_finding_doubtful(&d->finding[i]);
	if (!doubt && n)
		fo_draw_details_begin(p->out, TEXT("%lld note%s on the trace", (long long)n, n == 1 ? "" : "s"), false);
	for (int64_t i = 0; i < d->findings; i++) {
		const struct fo_finding *f = &d->finding[i];
		if (f->kind != FO_FIND_VALIDITY || fo_finding_doubtful(f) != doubt)
			continue;
		if (doubt)
			fo_draw_warning(p->out, "%s. %s", sentence(p, f->title), f->why);
		else
			fo_draw_text(p->out, "%s. %s", sentence(p, f->title), f->why);
		if (!doubt)
			evidence(p, f);
	}
	if (!doubt && n)
		fo_draw_details_end(p->out);
}

static void draw_findings(struct page *p)
{
	const struct fo_diagnosis *d = p->d;
	int64_t n = 0;
	draw_notes(p, true);
	fo_draw_heading(p->out, "What to change");
	for (int64_t i = 0; i < d->findings; i++) {
		if (d->finding[i].kind == FO_FIND_VALIDITY)
			continue;
		finding_card(p, &d->finding[i]);
		n++;
	}
	if (!n)
		fo_draw_text(p->out, "Nothing that these traces show is worth a change.");
	draw_notes(p, false);
}

/* Why there is no bottleneck, and what to record instead; then whatever else is known of the trace. */
static void draw_reason(struct page *p)
{
	const struct fo_diagnosis *d = p->d;
	for (int64_t i = 0; i < d->findings; i++)
		if (!strcmp(d->finding[i].title, d->cannot))
			fo_draw_warning(p->out, "%s. %s", sentence(p, d->finding[i].title), d->finding[i].why);
	for (int64_t i = 0; i < d->findings; i++)
		if (strcmp(d->finding[i].title, d->cannot))
			fo_draw_remark(p->out, "%s. %s", sentence(p, d->finding[i].title), d->finding[i].why);
}

/* ---- products, ranks ---- */

static const char *tera(struct page *p, double flop_s) { return isfinite(flop_s) ? TEXT("%.1f", flop_s * 1e-12) : "-"; }

static const char *product_note(struct page *p, const struct fo_product *q)
{
	const char *fill = q->fill < 0.9 ? TEXT("%.0f %% of tiles and waves filled", 100 * q->fill) : "";
	const char *contended = q->contended > 1.05 ? TEXT("x %.2f slower beside communication", q->contended) : "";
	const char *shape = q->padded_flop_s > 0 ? "to pad" : q->few_tiles ? "few tiles, and nothing divides k" : "";
	const char *const part[] = { q->memory_bound ? "memory-bound" : "", fill, contended, shape };
	const char *note = "";
	for (size_t i = 0; i < sizeof part / sizeof *part; i++)
		note = *note && *part[i] ? TEXT("%s; %s", note, part[i]) : *note ? note : part[i];
	return note;
}

static void draw_products(struct page *p)
{
	static const char *const head[] = { "product",   "type",       "calls", "time", "TFLOP/s",
					    "best call", "attainable", "of it", "note" };
	const struct fo_diagnosis *d = p->d;
	struct fo_draw_table t;
	if (!d->products)
		return;
	fo_draw_heading(p->out, "Matrix products by shape");
	fo_draw_table_shaped(
		&t, p->out, FO_DRAW_FULL,
		"m x n x k, by time. Attainable: what this device reaches on such a shape, where that is known.",
		"llrrrrrrl", head);
	for (int64_t i = 0; i < d->products && i < PRODUCTS; i++) {
		const struct fo_product *q = &d->product[i];
		const char *batch = q->batch > 1 ? TEXT(", %lld of them", (long long)q->batch) : "";
		fo_draw_table_row(&t, (const char *const[]){ TEXT("%lld x %lld x %lld%s", (long long)q->m,
								  (long long)q->n, (long long)q->k, batch),
							     q->dtype, TEXT("%lld", (long long)q->calls),
							     time_text(p, q->time_ns), tera(p, q->flop_s),
							     tera(p, q->best_flop_s), tera(p, q->attainable_flop_s),
							     number(p, q->flop_s / q->attainable_flop_s, FO_DRAW_SHARE),
							     product_note(p, q) });
	}
	fo_draw_table_end(&t);
	if (d->products > PRODUCTS)
		fo_draw_remark(p->out, "And %lld more shapes.", (long long)(d->products - PRODUCTS));
}

static void draw_pipeline(struct page *p)
{
	const struct fo_pipeline *l = &p->d->pipeline;
	if (l->stages <= 0 || !l->bubble)
		return;
	struct fo_draw_bar_row *row = fo_arena_alloc(p->a, (size_t)l->stages * sizeof *row);
	for (int i = 0; i < l->stages; i++)
		row[i] = (struct fo_draw_bar_row){ .name = TEXT("stage %d", i),
						   .value = isfinite(l->bubble[i])
								    ? number(p, l->bubble[i], FO_DRAW_SHARE)
								    : "no trace of it",
						   .bar = { { l->bubble[i], NAN, NAN }, { NAN, NAN, NAN } } };
	const char *ideal =
		isfinite(l->ideal)
			? TEXT(" with %d micro-batches of %d chunk%s (p - 1) / (v m) is %s of the ideal time",
			       l->microbatches, l->chunks, l->chunks == 1 ? "" : "s",
			       number(p, l->ideal, FO_DRAW_SHARE))
			: " the micro-batches are not known, so neither is the bubble that the schedule must have";
	fo_draw_bars(p->out, &(struct fo_draw_bars){ .title = "Pipeline bubble by stage, share of the stage's time",
						     .desc = TEXT("%d stages;%s.", l->stages, ideal),
						     .unit = FO_DRAW_SHARE,
						     .row = row,
						     .rows = (size_t)l->stages });
}

static const struct fo_rank_wait *wait_of(const struct fo_diagnosis *d, int rank, int16_t device)
{
	for (int i = 0; d->wait && i < d->waits; i++)
		if (d->wait[i].rank == rank && d->wait[i].device == device)
			return &d->wait[i];
	return NULL;
}

static void draw_culprit(struct page *p)
{
	const struct fo_diagnosis *d = p->d;
	const struct fo_culprit *c = &d->culprit;
	if (!d->wait || c->at < 0 || c->at >= d->waits)
		return;
	fo_draw_text(p->out, "%s of all waiting is for rank %d, which arrived last %lld times%s.",
		     number(p, c->share, FO_DRAW_SHARE), d->wait[c->at].rank, (long long)d->wait[c->at].last,
		     c->row ? TEXT("; beside the other ranks it spends %s more in '%s'", time_text(p, c->excess_ns),
				   fo_row_words(c->row))
			    : "");
}

/* All of them while a reader can look at them. */
static void waits_table(struct page *p)
{
	enum { ROWS = 128 };
	static const char *const head[] = {
		"rank", "step", "busy", "waits", "transfer", "arrives last", "others wait for it", "matched"
	};
	const struct fo_diagnosis *d = p->d;
	struct fo_draw_table t;
	int n = 0;
	fo_draw_table_begin(&t, p->out, "Waits and transfer are of matched collectives, over the whole trace",
			    "lrrrrrrr", head);
	for (int r = 0; r < d->ranks; r++)
		for (int64_t i = 0; i < d->rank[r].devices && n < ROWS; i++, n++) {
			const struct fo_device_ledger *l = &d->rank[r].device[i];
			const struct fo_rank_wait *w = wait_of(d, d->rank[r].rank, l->device);
			fo_draw_table_row(&t, (const char *const[]){
						      unit_name(p, &d->rank[r], l), time_text(p, shown(p, l)->span_ns),
						      share(p, shown(p, l)->busy_ns, shown(p, l)->span_ns),
						      w ? time_text(p, w->wait_ns) : "-",
						      w ? time_text(p, w->transfer_ns) : "-",
						      w ? TEXT("%lld", (long long)w->last) : "-",
						      w ? time_text(p, w->caused_ns) : "-",
						      w ? TEXT("%lld of %lld", (long long)w->matched,
							       (long long)(w->matched + w->unmatched))
							: "-" });
		}
	fo_draw_table_end(&t);
	if (n < units_of(d))
		fo_draw_remark(p->out, "And %lld more devices.", (long long)units_of(d) - n);
}

static void draw_ranks(struct page *p)
{
	const struct fo_diagnosis *d = p->d;
	bool several = units_of(d) > 1;
	if (!several && d->pipeline.stages <= 0)
		return;
	fo_draw_heading(p->out, "Ranks");
	draw_pipeline(p);
	if (!several)
		return;
	if (d->ranks > 1 && d->worst >= 0 && d->worst < d->ranks)
		fo_draw_text(p->out, "The own work of the slowest, rank %d, is %s above the median's.",
			     d->rank[d->worst].rank, number(p, d->step_skew, FO_DRAW_SHARE));
	draw_culprit(p);
	waits_table(p);
	if (d->set && d->set->residual_ns >= 0)
		fo_draw_remark(p->out, "Clocks were aligned on the ends of collectives; they agree within %s.",
			       time_text(p, d->set->residual_ns));
}

/* ---- what is not known, and what words mean ---- */

static void draw_unknowns(struct page *p)
{
	static const char *const head[] = { "what these traces cannot tell", "what would" };
	const struct fo_diagnosis *d = p->d;
	struct fo_draw_table t;
	if (!d->unknowns)
		return;
	fo_draw_heading(p->out, "Not known");
	fo_draw_table_begin(&t, p->out, NULL, "ll", head);
	for (int64_t i = 0; i < d->unknowns; i++)
		fo_draw_table_row(&t, (const char *const[]){ d->unknown[i].what, d->unknown[i].flag });
	fo_draw_table_end(&t);
}

/* What is missing of the traces stands beside the answer. */
static void draw_found(struct page *p)
{
	const char **line;
	int n = fo_found_of(p->d, p->a, &line);
	for (int i = 0; i < n; i++)
		fo_draw_remark(p->out, "%s.", sentence(p, line[i]));
}

static void draw_traces(struct page *p)
{
	static const char *const head[] = { "trace", "rank", "GPU operations", "without launch record", "events" };
	const struct fo_diagnosis *d = p->d;
	struct fo_draw_table t;
	fo_draw_details_begin(p->out, "Traces that were read", false);
	fo_draw_table_begin(&t, p->out, NULL, "lrrrr", head);
	for (int r = 0; r < d->ranks; r++) {
		const struct fo_trace *x = d->rank[r].trace;
		if (x)
			fo_draw_table_row(&t, (const char *const[]){ x->path, TEXT("%d", d->rank[r].rank),
								     TEXT("%lld", (long long)x->gpu_count),
								     TEXT("%lld", (long long)x->defect.unlinked),
								     TEXT("%lld", (long long)x->defect.events) });
	}
	fo_draw_table_end(&t);
	fo_draw_details_end(p->out);
}

static void definitions(struct page *p)
{
	static const char *const word[][2] = {
		{ "step", "on the GPU: from the first operation that step k launched to the first that step k + 1 "
			  "launched; the only one that is marked: as the host has it" },
		{ "compute", "any kernel that is neither communication nor a copy; where several classes run at once, "
			     "the first in the table counts" },
		{ "communication, copies", "only what nothing computes beside: what is hidden costs nothing here" },
		{ "waiting for a late rank",
		  "from a rank's arrival at a collective to the last one's; of several ranks' traces only" },
		{ "transfer", "the rest of the collective: the data on the wire" },
		{ "idle", "no kernel, no copy on the whole device; its cause is what the launching thread did, or what "
			  "the operation waited for" },
		{ "utilisation", "share of the step in which any kernel is on the device: what the driver counts" },
		{ "MFU", "the model's arithmetic in a step over what the dense peak would have done in that time" },
		{ "ceiling", "step time before and after if all of the loss went and nothing took its place" },
		{ "estimate", "the ceiling, less what may come back and never below the time the launching thread "
			      "itself needs: rules of docs/diagnosis-rules.md, conventions among them, checked on a "
			      "published pair of runs and not derived from it" },
	};
	static const char *const head[] = { "word", "what it means here" };
	struct fo_draw_table t;
	fo_draw_details_begin(p->out, "What the words mean", false);
	fo_draw_table_begin(&t, p->out, NULL, "ll", head);
	for (size_t i = 0; i < sizeof word / sizeof *word; i++)
		fo_draw_table_row(&t, word[i]);
	fo_draw_table_end(&t);
	fo_draw_details_end(p->out);
}

void fo_diagnose_html(const struct fo_diagnosis *d, struct fo_str *out)
{
	struct fo_arena a = { 0 };
	struct page page = { d, &a, out }, *p = &page;
	const struct fo_finding *f = the_bottleneck(d, false);
	const char *path = d->ranks > 0 && d->rank[0].trace && d->rank[0].trace->path ? d->rank[0].trace->path
										      : "no trace";
	const char *file = strrchr(path, '/') && strrchr(path, '/')[1] ? strrchr(path, '/') + 1 : path;
	fo_draw_page_begin(
		out, d->ranks > 1 ? TEXT("Diagnosis of %d ranks, %s", d->ranks, file) : TEXT("Diagnosis of %s", file),
		!fo_diagnosed(d) ? TEXT("This cannot be diagnosed: %s.", d->cannot)
		: f              ? of_what(p)
				 : "No bottleneck: nothing that these traces show is worth a change.");
	if (!fo_diagnosed(d) || !f)
		fo_draw_remark(p->out, "%s", of_what(p));
	if (!fo_diagnosed(d)) {
		draw_reason(p);
		draw_found(p);
		draw_ledger(p);
	} else {
		answer(p);
		draw_found(p);
		draw_findings(p);
		draw_ledger(p);
		draw_gap(p);
		draw_bridge(p);
	}
	draw_products(p);
	draw_ranks(p);
	draw_unknowns(p);
	draw_traces(p);
	definitions(p);
	fo_draw_page_end(out, "flatout diagnose --html. Figures are defined in docs/metrics.md.");
	if (d->own.is && d->own.processor)
		fo_own_words(out);
	fo_arena_fini(&a);
}
