/* The ledger in a diagnosis's document: where the time goes, from 100 % to MFU, kernels and matmuls. */
#include "report/diagnose_doc.h"

#include "draw/doc.h"
#include "report/ledger_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	DENSE = 64, /* bars that a page has room for */
	FEW = 4,    /* wholes that a table beside their bars has columns for */
	PRODUCTS = 40,
	PRODUCTS_ON_TERMINAL = 8
};

static const char *percent(struct fo_doc *doc, int64_t part, int64_t whole)
{
	return fo_doc_num(doc, whole > 0 ? (double)part / (double)whole : 0, FO_DRAW_PERCENT);
}

static int64_t units_of(const struct fo_diagnosis *d)
{
	int64_t n = 0;
	for (int r = 0; r < d->ranks; r++)
		n += d->rank[r].devices;
	return n;
}

/* Returns "rank 3", or "rank 3, GPU 1" where a rank has several. */
static const char *unit_name(struct fo_doc *doc, const struct fo_rank_ledger *r, const struct fo_device_ledger *v)
{
	long long gpu = 0;
	if (r->trace && v->device >= 0 && v->device < r->trace->device_count)
		gpu = r->trace->device[v->device].id;
	if (r->rank < 0) /* the trace does not say */
		return fo_doc_printf(doc, "GPU %lld", gpu);
	return r->devices > 1 ? fo_doc_printf(doc, "rank %d, GPU %lld", r->rank, gpu)
			      : fo_doc_printf(doc, "rank %d", r->rank);
}

/* ---- bars of the parts ---- */

/* The bars of a picture, with their parts in the order of fo_ledger_part. */
struct bars {
	struct fo_draw_stack *stack;
	double (*part)[FO_LEDGER_PARTS];
	size_t n;
};

static struct bars bars_for(struct fo_doc *doc, size_t most)
{
	return (struct bars){ fo_doc_alloc(doc, most * sizeof(struct fo_draw_stack)),
			      fo_doc_alloc(doc, most * sizeof(double[FO_LEDGER_PARTS])), 0 };
}

/* Adds a bar. Its total names waiting for others apart, for ranks are ordered by the rest. */
static void add_bar(struct fo_doc *doc, struct bars *b, const char *name, bool dense, const struct fo_ledger *l)
{
	int64_t part[FO_LEDGER_PARTS];
	const char *total = fo_doc_ns(doc, l->span_ns);
	fo_ledger_parts(l, part);
	for (int i = 0; i < FO_LEDGER_PARTS; i++)
		b->part[b->n][i] = (double)part[i];
	if (l->exposed_wait_ns > 0 && !dense)
		total = fo_doc_printf(doc, "without waiting: %s of %s", fo_doc_ns(doc, l->span_ns - l->exposed_wait_ns),
				      total);
	b->stack[b->n] = (struct fo_draw_stack){ name, total, b->part[b->n] };
	b->n++;
}

/* Is this part at least 2 % of some whole? */
static bool can_be_seen(const struct bars *b, int k)
{
	const double least = 0.02;
	for (size_t i = 0; i < b->n; i++) {
		double sum = 0;
		for (int q = 0; q < FO_LEDGER_PARTS; q++)
			sum += b->part[i][q];
		if (b->part[i][k] >= least * sum)
			return true;
	}
	return false;
}

/* Draws the bars; head has the columns of their table, NULL means thin bars without a table. */
static void draw_bars(struct fo_doc *doc, const char *title, struct bars *b, const char *const *head)
{
	/* Kernels of classes that nobody could see become "other kernels". */
	for (int k = FO_LEDGER_NORM; k < FO_LEDGER_OTHER; k++)
		for (size_t i = 0; i < b->n && !can_be_seen(b, k); i++) {
			b->part[i][FO_LEDGER_OTHER] += b->part[i][k];
			b->part[i][k] = 0;
		}
	fo_doc_stacks(doc, &(struct fo_draw_stacks){ .title = title,
						     .desc = "Parts sum to the step.",
						     .part_name = fo_ledger_part_name,
						     .tone = fo_ledger_part_tone,
						     .parts = FO_LEDGER_PARTS,
						     .stack = b->stack,
						     .stacks = b->n,
						     .to_scale = true,
						     .head = head,
						     .legend = b->n == 1,
						     .dense = !head });
}

/* Returns a bar for every device; head (NULL: for thin bars) gets their names. */
static struct bars every_bar(struct fo_doc *doc, const struct fo_diagnosis *d, const char **head)
{
	struct bars b = bars_for(doc, (size_t)units_of(d));
	for (int r = 0; r < d->ranks; r++)
		for (int64_t k = 0; k < d->rank[r].devices; k++) {
			const struct fo_device_ledger *v = &d->rank[r].device[k];
			const char *name = unit_name(doc, &d->rank[r], v);
			if (head)
				head[b.n] = name;
			add_bar(doc, &b, name, !head, fo_shown_ledger(doc, v));
		}
	return b;
}

/* Returns bars for the slowest, the median and the fastest rank, each rank once. */
static struct bars main_bars(struct fo_doc *doc, const struct fo_diagnosis *d, const char **head)
{
	static const char *const role[] = { "slowest", "median", "fastest" };
	const int which[] = { d->worst, d->middle, d->best };
	struct bars b = bars_for(doc, 3);
	for (int i = 0; i < 3; i++) {
		bool twice = (i && which[i] == which[0]) || (i == 1 && which[1] == which[2]);
		if (which[i] < 0 || which[i] >= d->ranks || twice)
			continue;
		const struct fo_device_ledger *v = fo_shown_device(d, which[i]);
		if (!v)
			continue;
		head[b.n] = role[i];
		add_bar(doc, &b, fo_doc_printf(doc, "%s: %s", role[i], unit_name(doc, &d->rank[which[i]], v)), false,
			fo_shown_ledger(doc, v));
	}
	return b;
}

static void pictures(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	const struct fo_device_ledger *v = fo_slowest_device(d);
	const char **head = fo_doc_alloc(doc, FEW * sizeof *head), *title = "Steps; parts sum to each";
	int64_t units = units_of(d);
	char words[48];
	struct bars b = units <= FEW ? every_bar(doc, d, head) : main_bars(doc, d, head);
	if (units == 1 && v)
		title = fo_doc_printf(doc, "One device, %s; parts sum to it", fo_shown_step_words(words, v));
	else if (v && v->from == FO_WINDOW_WHOLE)
		title = "Whole traces; parts sum to each";
	draw_bars(doc, title, &b, head);
	if (units > FEW)
		fo_doc_remark(doc, "Ranks are ordered by their own work, the step without waiting for others: the "
				   "slowest has most of it, even where the others' steps last as long because they "
				   "wait.");
	if (units > DENSE) {
		fo_doc_remark(doc, "%lld devices: the slowest, the median and the fastest rank stand for them.",
			      (long long)units);
	} else if (units > FEW) {
		struct bars all = every_bar(doc, d, NULL);
		fo_doc_details(doc, FO_DOC_FOLDED, "Bars of every rank");
		draw_bars(doc, "Every rank, lengths to scale", &all, NULL);
		fo_doc_details_end(doc);
	}
}

/* ---- the table of one device ---- */

struct rows {
	struct fo_doc *doc;
	const struct fo_trace *trace;
	const struct fo_ledger *l;
};

/* Adds a row of the ledger. class: the one whose operations and durations are beside it; -1: none. */
static void add_row(struct rows *r, const char *indent, const char *name, int64_t ns, int class)
{
	const char *ops = "", *sum = "";
	if (class >= 0 && r->l->class_ops[class]) {
		ops = fo_doc_count(r->doc, r->l->class_ops[class]);
		sum = fo_doc_ms(r->doc, r->l->class_sum_ns[class]);
	}
	fo_doc_row(r->doc, fo_doc_printf(r->doc, "%s%s", indent, fo_own_label(r->trace, name)),
		   percent(r->doc, ns, r->l->span_ns), fo_doc_ms(r->doc, ns), ops, sum);
}

/* Adds the parts that make up the row above them. */
static void add_parts(struct rows *r, const char *const *name, const int64_t *ns, int n, bool classes)
{
	for (int i = 0; i < n; i++)
		if (ns[i])
			add_row(r, "  ", name[i], ns[i], classes ? i : -1);
}

static void ledger_table(struct fo_doc *doc, const struct fo_trace *t, const struct fo_device_ledger *v)
{
	const struct fo_ledger *l = fo_shown_ledger(doc, v);
	const int64_t comm[] = { l->exposed_wait_ns - l->exposed_bubble_ns, l->exposed_bubble_ns,
				 l->exposed_transfer_ns, l->exposed_comm_unknown_ns };
	const char *const comm_text[] = { fo_wait_words, fo_bubble_words, fo_transfer_words,
					  fo_wait_or_transfer_words };
	struct rows r = { doc, t, l };
	char label[48];
	fo_doc_table(doc, FO_DRAW_SLIM, NULL, "lrrrr", fo_shown_step_words(label, v), "share", "ms", "operations",
		     "if one by one, ms");
	add_row(&r, "", "compute", l->comp_ns, -1);
	add_parts(&r, fo_class_words, l->class_ns, FO_K_COMPUTE_COUNT, true);
	add_row(&r, "", "exposed communication", l->exposed_comm_ns, FO_K_COMMUNICATION);
	add_parts(&r, comm_text, comm, sizeof comm / sizeof *comm, false);
	add_row(&r, "", "exposed copies", l->exposed_mem_ns, FO_K_MEMORY);
	add_parts(&r, fo_copy_words, l->copy_ns, FO_COPY_COUNT, false);
	add_row(&r, "", "idle", l->idle_total_ns, -1);
	add_parts(&r, fo_idle_words, l->idle_ns, FO_IDLE_COUNT, false);
	fo_doc_row(doc, v->from == FO_WINDOW_WHOLE ? "all" : "step", percent(doc, l->span_ns, l->span_ns),
		   fo_doc_ms(doc, l->span_ns), fo_doc_count(doc, l->ops), "");
}

/* Does the trace say of any group of ranks what it is for? Most do not, and to look at all operations again takes
 * time. */
static bool tells_purposes(const struct fo_trace *t)
{
	bool any = false;
	for (int64_t i = 0; i < t->collective_count && !any; i++)
		any = t->collective[i].purpose >= 0 && *fo_trace_text(t, t->collective[i].purpose);
	return any;
}

/* Exposed communication by what it is for, where the trace says that of any. */
static void purposes(struct fo_doc *doc, const struct fo_trace *t, const struct fo_device_ledger *v,
		     const struct fo_ledger *l)
{
	struct fo_comm_purpose p[FO_COMM_PURPOSES];
	const char *line = "";
	bool known = false;
	if (!tells_purposes(t))
		return;
	const int n = fo_comm_purposes(t, v->device, l->begin_ns, l->end_ns, p);
	for (int i = 0; i < n; i++) {
		const char *name = p[i].text >= 0 ? fo_trace_text(t, p[i].text) : "";
		known |= *name;
		line = fo_doc_join(doc, line,
				   fo_doc_printf(doc, "%s %s exposed, %s hidden", *name ? name : "not known what for",
						 fo_doc_ns(doc, p[i].exposed_ns), fo_doc_ns(doc, p[i].hidden_ns)));
	}
	if (known)
		fo_doc_remark(doc, "By what travels: %s.", line);
}

/* Prints figures that lie over the parts and are in no sum. */
static void overlays(struct fo_doc *doc, const struct fo_trace *t, const struct fo_device_ledger *v)
{
	const struct fo_ledger *l = fo_shown_ledger(doc, v);
	const char *resident = percent(doc, l->resident_ns, l->span_ns);
	if (t->format == FO_TRACE_OWN)
		fo_doc_remark(doc, "An operation ran for %s of the time.", resident);
	else
		fo_doc_remark(doc, "A kernel was resident for %s of the time, waiting communication included.",
			      resident);
	if (l->comm_ns)
		fo_doc_remark(doc, "Communication: %s, of which %s lies under computation.", fo_doc_ns(doc, l->comm_ns),
			      percent(doc, l->comm_ns - l->exposed_comm_ns, l->comm_ns));
	purposes(doc, t, v, l);
	if (l->recompute_ns)
		fo_doc_remark(doc, "Forward work done again for the backward pass: %s of the time.",
			      percent(doc, l->recompute_ns, l->span_ns));
}

static void steps_of(struct fo_doc *doc, const struct fo_trace *t, const struct fo_device_ledger *v,
		     const struct fo_ledger_options *o)
{
	static const char *const steps_from[FO_WINDOW_ORIGIN_COUNT] = {
		[FO_WINDOW_LAUNCHED_STEPS] = "what was launched in each of the host's steps",
		[FO_WINDOW_HOST_STEP] =
			"on the host from its begin to its end, or to that of the last operation that it launched",
		[FO_WINDOW_GPU_STEPS] = "by the steps' annotations on the GPU",
		[FO_WINDOW_NVTX] = "what was launched in each annotated iteration",
		[FO_WINDOW_OPTIMIZER] = "by the optimizer's kernels, which recur",
	};
	if (v->from == FO_WINDOW_WHOLE) {
		const char *why = o->whole_trace || o->exclude_unlinked
					  ? ""
					  : ": it does not show two that follow each other";
		const char *from = v->start_ns ? "; without a start at the front" : "";
		if (v->lead_ns)
			from = "; from the host's first recorded work on";
		fo_doc_remark(doc, "The whole trace, as one step%s%s.", why, from);
		return;
	}
	const char *from = t->format == FO_TRACE_OWN ? "each from its first operation to the next one's first"
						     : steps_from[v->from];
	long long first = v->step[0].number, last = v->step[v->steps - 1].number;
	if (v->steps == 1)
		fo_doc_remark(doc, "Step %lld: %s.", first, from);
	else
		fo_doc_remark(doc, "%lld steps (%lld to %lld): %s.", (long long)v->steps, first, last, from);
	if (v->dropped_steps)
		fo_doc_remark(doc, "%lld more at the end left out: the trace does not show where it ends.",
			      (long long)v->dropped_steps);
}

static void host_table(struct fo_doc *doc, const struct fo_rank_ledger *r)
{
	int64_t span = 0, part[FO_HOST_PART_COUNT] = { 0 };
	if (!r->hosts || r->trace->format == FO_TRACE_OWN) /* such a timeline has no host apart from its lanes */
		return;
	for (int64_t i = 0; i < r->hosts; i++) {
		span += r->host[i].end_ns - r->host[i].begin_ns;
		for (int k = 0; k < FO_HOST_PART_COUNT; k++)
			part[k] += r->host[i].part_ns[k];
	}
	fo_doc_details(doc, r->devices ? FO_DOC_FOLDED : FO_DOC_OPEN, "The host's step, mean of %lld",
		       (long long)r->hosts);
	fo_doc_remark(doc, "Where several went on at once the time is counted for the one that stands first below, as "
			   "the PyTorch profiler's own view does.");
	fo_doc_table(doc, FO_DRAW_SLIM, NULL, "lrr", "part", "share", "ms");
	for (int k = 0; k < FO_HOST_PART_COUNT; k++)
		if (part[k] > 0)
			fo_doc_row(doc, fo_host_part_words[k], percent(doc, part[k], span),
				   fo_doc_ms(doc, part[k] / r->hosts));
	fo_doc_row(doc, "step", percent(doc, span, span), fo_doc_ms(doc, span / r->hosts));
	fo_doc_details_end(doc);
}

/* Says what is doubtful about the trace itself. */
static void doubts(struct fo_doc *doc, const struct fo_rank_ledger *r)
{
	const struct fo_trace_defects *v = &r->trace->defect;
	const struct {
		int64_t n;
		const char *text;
	} line[] = {
		{ v->malformed, "events could not be read and were left out." },
		{ v->dropped_by_profiler, "records were lost by the profiler, as it says itself." },
		{ v->clipped,
		  "GPU operations had an end beyond reason, and were cut where the next one on their stream begins." },
		{ v->negative_duration, "GPU operations had a negative duration, taken as zero." },
		{ v->shared_correlations, "GPU operations share their launch record with others: what the host did for "
					  "each of them is unknown." },
	};
	if (v->truncated)
		fo_doc_remark(doc, "The file ends inside an event: what came after it is not in the figures.");
	for (size_t i = 0; i < sizeof line / sizeof *line; i++)
		if (line[i].n > 0)
			fo_doc_remark(doc, "%lld %s", (long long)line[i].n, line[i].text);
	for (int64_t i = 0; i < r->devices; i++) {
		if (r->device[i].leftover_ops)
			fo_doc_remark(doc,
				      "%lld GPU operations at the front have no launch record: left over from before, "
				      "in no step.",
				      (long long)r->device[i].leftover_ops);
		if (r->device[i].excluded_ops)
			fo_doc_remark(doc, "%lld GPU operations without a launch record are left out, as asked.",
				      (long long)r->device[i].excluded_ops);
	}
}

static const char *device_name(struct fo_doc *doc, const struct fo_diagnosis *d, const struct fo_trace *t,
			       const struct fo_device_ledger *v)
{
	const struct fo_trace_device *hardware = &t->device[v->device];
	const char *name = fo_trace_text(t, hardware->name);
	if (d->own.is && *d->own.device)
		return fo_doc_printf(doc, "device: %s", d->own.device);
	return fo_doc_printf(doc, "device %lld%s%s", (long long)hardware->id, *name ? ": " : "", name);
}

/* Prints the path, which is not reworded, and the kind of trace. */
static void trace_line(struct fo_doc *doc, const struct fo_rank_ledger *r)
{
	static const char *const format[] = {
		[FO_TRACE_KINETO] = "Kineto", [FO_TRACE_NSYS] = "Nsight Systems", [FO_TRACE_OWN] = "Flatout"
	};
	const struct fo_trace *t = r->trace;
	void (*reword)(struct fo_str *) = doc->reword;
	fo_doc_only(doc, FO_DOC_TERM); /* on a page title and lead say so */
	doc->reword = NULL;
	fo_doc_para(doc, "%s", t->path ? t->path : "");
	doc->reword = reword;
	if (t->format == FO_TRACE_OWN) {
		fo_doc_para(doc, "timeline of a run of our own");
	} else {
		const char *rank = r->rank < 0 ? "rank not recorded" : fo_doc_printf(doc, "rank %d", r->rank);
		const char *world = t->world_size > 0 ? fo_doc_printf(doc, " of %d", t->world_size) : "";
		fo_doc_para(doc, "%s trace, %s%s", format[t->format], rank, world);
	}
	fo_doc_only(doc, FO_DOC_BOTH);
}

/* Prints the ledgers of the rank with most work of its own: each of its devices, and its host. */
static void slowest_rank(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	const struct fo_rank_ledger *r = &d->rank[d->worst >= 0 && d->worst < d->ranks ? d->worst : 0];
	trace_line(doc, r);
	if (!r->devices)
		fo_doc_para(doc, "No GPU operation is in it: nothing to divide.");
	for (int64_t i = 0; i < r->devices; i++) {
		const struct fo_device_ledger *v = &r->device[i];
		fo_doc_details(doc, FO_DOC_FOLDED, "%s", device_name(doc, d, r->trace, v));
		steps_of(doc, r->trace, v, &d->with.ledger);
		ledger_table(doc, r->trace, v);
		overlays(doc, r->trace, v);
		if (i == r->devices - 1) {
			fo_doc_remark(doc, "Shares are rounded, so that parts may add up to 0.1 more or less; \"if one "
					   "by one\": durations added up, overlapping or not.");
			doubts(doc, r);
		}
		fo_doc_details_end(doc);
	}
	if (!r->devices)
		doubts(doc, r);
	host_table(doc, r);
}

/* Every rank and device in one line. */
static void ranks_table(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	fo_doc_table(doc, FO_DRAW_FITTED, NULL, "rrrrrrrr", "rank", "device", "steps", "ms", "compute", "exposed comm",
		     "copies", "idle");
	for (int i = 0; i < d->ranks; i++) {
		const struct fo_rank_ledger *r = &d->rank[i];
		for (int64_t k = 0; k < r->devices; k++) {
			const struct fo_device_ledger *v = &r->device[k];
			const struct fo_ledger *l = fo_shown_ledger(doc, v);
			fo_doc_row(doc, r->rank < 0 ? "-" : fo_doc_count(doc, r->rank),
				   fo_doc_count(doc, r->trace->device[v->device].id), fo_doc_count(doc, v->steps),
				   fo_doc_ms(doc, l->span_ns), percent(doc, l->comp_ns, l->span_ns),
				   percent(doc, l->exposed_comm_ns, l->span_ns),
				   percent(doc, l->exposed_mem_ns, l->span_ns),
				   percent(doc, l->idle_total_ns, l->span_ns));
		}
	}
}

void fo_ledger_section(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	const struct fo_device_ledger *v = fo_slowest_device(d);
	fo_doc_heading(doc, "Where the time goes");
	fo_doc_only(doc, FO_DOC_PAGE);
	if (units_of(d))
		pictures(doc, d);
	else
		fo_doc_para(doc, "There is no GPU work in %s.", d->ranks > 1 ? "these traces" : "this trace");
	fo_doc_only(doc, FO_DOC_BOTH);
	if (d->ranks > 1) {
		fo_doc_details(doc, FO_DOC_FOLDED, "%d ranks", d->ranks);
		ranks_table(doc, d);
		fo_doc_details_end(doc);
	}
	if (d->ranks > 1 && v) {
		/* The slowest is so by its own work; its whole step may be the shortest, for the others wait for it. */
		const struct fo_ledger *l = fo_shown_ledger(doc, v);
		fo_doc_para(doc, "The slowest rank, without waiting for others: %s of its own work in a step of %s",
			    fo_doc_ns(doc, l->span_ns - l->exposed_wait_ns), fo_doc_ns(doc, l->span_ns));
	}
	if (d->ranks)
		slowest_rank(doc, d);
}

/* ---- from 100 % to MFU ---- */

static int by_share(const void *a, const void *b)
{
	const struct fo_bridge_row *x = a, *y = b;
	return (x->share < y->share) - (x->share > y->share);
}

/* Copies all rows but MFU, the greatest loss first; those below half a point become one, unless there is only one.
 * Returns how many. */
static int sorted_rows(const struct fo_bridge *b, struct fo_bridge_row out[FO_BRIDGE_MAX])
{
	const double least = 0.005;
	struct fo_bridge_row rest = { .name = "" };
	int n = 0, folded = 0;
	for (int i = 1; i < b->rows && i < FO_BRIDGE_MAX; i++)
		folded += fabs(b->row[i].share) < least;
	for (int i = 1; i < b->rows && i < FO_BRIDGE_MAX; i++) {
		const struct fo_bridge_row *r = &b->row[i];
		if (folded < 2 || fabs(r->share) >= least) {
			out[n++] = *r;
			continue;
		}
		rest.share += r->share;
		rest.dollars_per_hour += r->dollars_per_hour;
	}
	if (n)
		qsort(out, (size_t)n, sizeof *out, by_share);
	if (folded > 1) {
		snprintf(rest.name, sizeof rest.name, "%d others, below 0.5 points each", folded);
		out[n++] = rest;
	}
	return n;
}

/* Returns what the job costs, to which the rows' dollars sum; 1000 steps, because one costs a fraction of a cent. */
static const char *cost(struct fo_doc *doc, const struct fo_bridge *b)
{
	double step = 0, hour = 0;
	for (int i = 0; i < b->rows && i < FO_BRIDGE_MAX; i++) {
		step += b->row[i].dollars;
		hour += b->row[i].dollars_per_hour;
	}
	if (!isfinite(step) || !isfinite(hour))
		return "";
	return fo_doc_printf(doc, "; 1000 steps cost %s, an hour %s", fo_doc_num(doc, 1000 * step, FO_DRAW_DOLLARS),
			     fo_doc_num(doc, hour, FO_DRAW_DOLLARS));
}

void fo_bridge_section(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	const struct fo_bridge *b = &d->bridge;
	struct fo_bridge_row *row = fo_doc_alloc(doc, FO_BRIDGE_MAX * sizeof *row);
	struct fo_draw_fall *fall = fo_doc_alloc(doc, FO_BRIDGE_MAX * sizeof *fall);
	if (!b->known) /* the answer says why */
		return;
	fo_doc_heading(doc, "From 100 %% to MFU");
	fo_doc_only(doc, FO_DOC_PAGE);
	if (*d->utilisation.sentence)
		fo_doc_para(doc, "%s", d->utilisation.sentence);
	fo_doc_only(doc, FO_DOC_BOTH);
	int rows = sorted_rows(b, row);
	for (int i = 0; i < rows; i++) {
		const struct fo_bridge_row *r = &row[i];
		const char *points = fo_doc_num(doc, -r->share, FO_DRAW_POINTS);
		if (isfinite(r->dollars_per_hour))
			points = fo_doc_printf(doc, "%s, %s/h", points,
					       fo_doc_num(doc, r->dollars_per_hour, FO_DRAW_DOLLARS));
		fall[i] = (struct fo_draw_fall){ r->name, NULL, points, r->share };
	}
	const char *rule = fo_doc_printf(doc, "%s, rule %s%s%s", fo_doc_num(doc, b->mfu, FO_DRAW_SHARE), b->rule,
					 *b->dtype ? ", " : "", b->dtype);
	fo_doc_waterfall(doc,
			 &(struct fo_draw_waterfall){ .title = "What the step's time is lost to, in points of MFU",
						      .unit = FO_DRAW_SHARE,
						      .whole = 1,
						      .whole_name = "the peak",
						      .whole_value = fo_doc_num(doc, b->peak_flop_s, FO_DRAW_FLOP_RATE),
						      .fall = fall,
						      .falls = (size_t)rows,
						      .rest_name = "MFU",
						      .rest_value = rule });
	const char *peak = *b->peak_source ? b->peak_source : "dense";
	if (*b->device)
		peak = fo_doc_printf(doc, "%s, %s", b->device, peak);
	fo_doc_remark(doc, "Peak: %s. A step takes %s on %d device%s%s.", peak,
		      fo_doc_num(doc, b->step_s, FO_DRAW_SECONDS), b->devices, fo_plural(b->devices), cost(doc, b));
}

/* ---- kernels and matmuls ---- */

void fo_kernels_section(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	enum { LETTERS = 30 }; /* bytes of a kernel's name, where the other columns leave room for them */
	/* The usual width of the indent, the gaps and the columns of figures. */
	const size_t figures = 2 + 4 * 2 + strlen("calls") + strlen("of step") + strlen("1234.567");
	struct fo_kernels top;
	size_t words = 0, room = LETTERS;
	fo_kernels_of(d, &top);
	int64_t n = top.n < FO_KERNELS_SHOWN ? top.n : FO_KERNELS_SHOWN;
	for (int64_t i = 0; i < n; i++)
		words = strlen(fo_class_words[top.v[i].class]) > words ? strlen(fo_class_words[top.v[i].class]) : words;
	if (room + strlen("...") + words + figures > FO_TERM_WIDTH)
		room = FO_TERM_WIDTH - words - figures - strlen("...");
	if (n) {
		const char *what = d->own.is ? "operation" : "kernel";
		fo_doc_details(doc, FO_DOC_FOLDED, "%s by time, durations added up, %s",
			       d->own.is ? "Operations" : "Kernels", top.label);
		fo_doc_table(doc, FO_DRAW_SLIM, NULL, "llrrr", what, "class", "calls", "of step", "ms");
	}
	for (int64_t i = 0; i < n; i++) {
		const struct fo_kernel_sum *k = &top.v[i];
		const char *cut = strlen(k->name) > room ? "..." : "";
		fo_doc_cells(doc, k->name,
			     FO_CELLS(fo_doc_printf(doc, "%.*s%s", (int)room, k->name, cut), fo_class_words[k->class],
				      fo_doc_printf(doc, "%.6g", k->calls), percent(doc, k->ns, top.span_ns),
				      fo_doc_ms(doc, k->ns)));
	}
	if (top.n > FO_KERNELS_SHOWN)
		fo_doc_remark(doc, "and %lld more names", (long long)(top.n - FO_KERNELS_SHOWN));
	if (n)
		fo_doc_details_end(doc);
	fo_kernels_fini(&top);
}

static const char *tera(struct fo_doc *doc, double flop_s)
{
	return isfinite(flop_s) ? fo_doc_printf(doc, "%.1f", flop_s * 1e-12) : "-";
}

static const char *bound_by(const struct fo_product *q)
{
	if (q->memory_bound)
		return "memory";
	return isfinite(q->attainable_flop_s) ? "arithmetic" : "-";
}

static const char *product_note(struct fo_doc *doc, const struct fo_product *q)
{
	const char *note[3];
	int n = 0;
	if (q->fill < 0.9)
		note[n++] = fo_doc_printf(doc, "%.0f %% of tiles and waves filled", 100 * q->fill);
	if (q->contended > 1.05)
		note[n++] = fo_doc_printf(doc, "%s slower beside communication",
					  fo_doc_num(doc, q->contended, FO_DRAW_FACTOR));
	if (q->padded_flop_s > 0)
		note[n++] = "to pad";
	else if (q->few_tiles)
		note[n++] = "few tiles, and nothing divides k";
	const char *all = n ? note[0] : "";
	for (int i = 1; i < n; i++)
		all = fo_doc_printf(doc, "%s; %s", all, note[i]);
	return all;
}

void fo_products_section(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	if (!d->products)
		return;
	fo_doc_details(doc, FO_DOC_FOLDED, "Matmuls by shape, most time first");
	fo_doc_only(doc, FO_DOC_PAGE);
	fo_doc_remark(doc, "Attainable: what this device reaches on such a shape, where that is known.");
	fo_doc_only(doc, FO_DOC_BOTH);
	fo_doc_table(doc, FO_DRAW_FULL, NULL, "llrrrRRrlL", "m x n x k", "type", "calls", "time", "TFLOP/s",
		     "best call", "attainable", "of attainable", "bound by", "note");
	for (int64_t i = 0; i < d->products && i < PRODUCTS; i++) {
		const struct fo_product *q = &d->product[i];
		const char *batch = q->batch > 1 ? fo_doc_printf(doc, ", %lld times", (long long)q->batch) : "";
		fo_doc_only(doc, i < PRODUCTS_ON_TERMINAL ? FO_DOC_BOTH : FO_DOC_PAGE);
		fo_doc_row(doc,
			   fo_doc_printf(doc, "%lldx%lldx%lld%s", (long long)q->m, (long long)q->n, (long long)q->k,
					 batch),
			   q->dtype, fo_doc_count(doc, q->calls), fo_doc_ns(doc, q->time_ns), tera(doc, q->flop_s),
			   tera(doc, q->best_flop_s), tera(doc, q->attainable_flop_s),
			   fo_doc_num(doc, q->flop_s / q->attainable_flop_s, FO_DRAW_SHARE), bound_by(q),
			   product_note(doc, q));
	}
	fo_doc_only(doc, FO_DOC_TERM);
	if (d->products > PRODUCTS_ON_TERMINAL)
		fo_doc_remark(doc, "and %lld more (--json, --html)", (long long)(d->products - PRODUCTS_ON_TERMINAL));
	fo_doc_only(doc, FO_DOC_PAGE);
	if (d->products > PRODUCTS)
		fo_doc_remark(doc, "And %lld more shapes.", (long long)(d->products - PRODUCTS));
	fo_doc_only(doc, FO_DOC_BOTH);
	fo_doc_details_end(doc);
}
