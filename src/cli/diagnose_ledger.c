/* flatout diagnose: the ledger as tables, of the same step as findings and bridge. */
#include "cli/diagnose.h"

#include "cli/cli.h"

#include <string.h>

static const char *const format_name[] = {
	[FO_TRACE_KINETO] = "Kineto", [FO_TRACE_NSYS] = "Nsight Systems", [FO_TRACE_OWN] = "Flatout"
};
static const char *const steps_from[FO_WINDOW_ORIGIN_COUNT] = {
	[FO_WINDOW_LAUNCHED_STEPS] = "what was launched in each of the host's steps",
	[FO_WINDOW_HOST_STEP] =
		"on the host from its begin to its end, or to that of the last operation that it launched",
	[FO_WINDOW_GPU_STEPS] = "by the steps' annotations on the GPU",
	[FO_WINDOW_NVTX] = "what was launched in each annotated iteration",
	[FO_WINDOW_OPTIMIZER] = "by the optimizer's kernels, which recur",
};

/* ---- rows ---- */

/* A table's rows: those of level 1 belong to the row of level 0 above them, whose time is theirs. */
enum { LEDGER_ROWS = FO_K_COMPUTE_COUNT + FO_COPY_COUNT + FO_IDLE_COUNT + 12 };
struct row {
	const char *name;
	int64_t ns;
	int level;
	int class; /* whose operations and durations stand beside it; -1: none */
};
struct table {
	struct row row[LEDGER_ROWS];
	int n;
};

static void put_head(struct table *t, const char *name, int64_t ns, int class)
{
	t->row[t->n++] = (struct row){ .name = name, .ns = ns, .class = class };
}

static void put_parts(struct table *t, const char *const *name, const int64_t *ns, int n, bool classes)
{
	for (int i = 0; i < n; i++)
		if (ns[i])
			t->row[t->n++] = (struct row){
				.name = name[i], .ns = ns[i], .level = 1, .class = classes ? i : -1
			};
}

static void lay_out(struct table *t, const struct fo_ledger *l)
{
	const int64_t comm[] = { l->exposed_wait_ns, l->exposed_transfer_ns, l->exposed_comm_unknown_ns };
	const char *const comm_text[] = { fo_wait_words, fo_transfer_words, fo_wait_or_transfer_words };
	t->n = 0;
	put_head(t, "compute", l->comp_ns, -1);
	put_parts(t, fo_class_words, l->class_ns, FO_K_COMPUTE_COUNT, true);
	put_head(t, "exposed communication", l->exposed_comm_ns, FO_K_COMMUNICATION);
	put_parts(t, comm_text, comm, 3, false);
	put_head(t, "exposed copies", l->exposed_mem_ns, FO_K_MEMORY);
	put_parts(t, fo_copy_words, l->copy_ns, FO_COPY_COUNT, false);
	put_head(t, "idle", l->idle_total_ns, -1);
	put_parts(t, fo_idle_words, l->idle_ns, FO_IDLE_COUNT, false);
}

/* ---- text ---- */

static char *ms(struct fo_arena *a, double ns) { return fo_arena_printf(a, "%.3f", ns / 1e6); }
static double percent(int64_t part, int64_t whole) { return whole > 0 ? 100 * (double)part / (double)whole : 0; }

static const char *device_name(struct fo_arena *a, const struct fo_trace *t, const struct fo_device_ledger *d)
{
	const struct fo_trace_device *hardware = &t->device[d->device];
	const char *name = fo_trace_text(t, hardware->name);
	return fo_arena_printf(a, "device %lld%s%s", (long long)hardware->id, *name ? ": " : "", name);
}

static void print_steps(FILE *f, const struct fo_trace *t, const struct fo_device_ledger *d,
			const struct fo_ledger_options *o)
{
	const char *from = t->format == FO_TRACE_OWN ? "each from its first operation to the next one's first"
						     : steps_from[d->from];
	if (d->from == FO_WINDOW_WHOLE) {
		fo_cli_put(f, "  ", "  ", "The whole trace, as one step%s%s.",
			   o->whole_trace || o->exclude_unlinked ? "" : ": it does not show two that follow each other",
			   d->lead_ns    ? "; from the host's first recorded work on"
			   : d->start_ns ? "; without a start at the front"
					 : "");
		return;
	}
	long long first = d->step[0].number, last = d->step[d->steps - 1].number;
	if (d->steps == 1)
		fo_cli_put(f, "  ", "  ", "Step %lld: %s.", first, from);
	else
		fo_cli_put(f, "  ", "  ", "%lld steps (%lld to %lld): %s.", (long long)d->steps, first, last, from);
	if (d->dropped_steps)
		fo_cli_put(f, "  ", "  ", "%lld more at the end left out: the trace does not show where it ends.",
			   (long long)d->dropped_steps);
}

static void print_ledger(FILE *f, struct fo_arena *a, const struct fo_trace *x, const struct fo_device_ledger *d)
{
	struct fo_shown_step s;
	struct table rows_of;
	struct fo_table t;
	char label[48];
	fo_shown_step_of(d, &s);
	lay_out(&rows_of, &s.l);
	fo_table_init(&t, "lrrrr");
	fo_table_row(&t, fo_shown_step_words(label, d), "share", "ms", "operations", "if one by one, ms");
	for (int i = 0; i < rows_of.n; i++) {
		const struct row *r = &rows_of.row[i];
		bool counted = r->class >= 0 && s.l.class_ops[r->class];
		fo_table_row(&t, fo_arena_printf(a, "%s%s", r->level ? "  " : "", fo_own_label(x, r->name)),
			     fo_arena_printf(a, "%.1f %%", percent(r->ns, s.l.span_ns)), ms(a, (double)r->ns),
			     counted ? fo_arena_printf(a, "%lld", (long long)s.l.class_ops[r->class]) : "",
			     counted ? ms(a, (double)s.l.class_sum_ns[r->class]) : "");
	}
	fo_table_row(&t, d->from == FO_WINDOW_WHOLE ? "all" : "step", s.l.span_ns > 0 ? "100.0 %" : "0.0 %",
		     ms(a, (double)s.l.span_ns), fo_arena_printf(a, "%lld", (long long)s.l.ops), "");
	fo_table_print(&t, f, "  ", true);
	fo_table_fini(&t);
}

/* What lies over the parts and is in no sum. */
static void print_overlays(FILE *f, const struct fo_trace *t, const struct fo_device_ledger *d)
{
	struct fo_shown_step s;
	fo_shown_step_of(d, &s);
	const struct fo_ledger *l = &s.l;
	if (t->format == FO_TRACE_OWN)
		fo_cli_put(f, "  ", "  ", "An operation ran for %.1f %% of the time.",
			   percent(l->resident_ns, l->span_ns));
	else
		fo_cli_put(f, "  ", "  ",
			   "A kernel was resident for %.1f %% of the time, waiting communication included.",
			   percent(l->resident_ns, l->span_ns));
	if (l->comm_ns)
		fo_cli_put(f, "  ", "  ", "Communication: %.3f ms, of which %.1f %% lies under computation.",
			   (double)l->comm_ns / 1e6, percent(l->comm_ns - l->exposed_comm_ns, l->comm_ns));
	if (l->recompute_ns)
		fo_cli_put(f, "  ", "  ", "Forward work done again for the backward pass: %.1f %% of the time.",
			   percent(l->recompute_ns, l->span_ns));
}

static void print_host(FILE *f, struct fo_arena *a, const struct fo_rank_ledger *r)
{
	static const char *const text[FO_HOST_PART_COUNT] = { "kernel",  "memcpy",      "memset",   "communication",
							      "runtime", "data loader", "CPU exec", "other" };
	double span = 0, part[FO_HOST_PART_COUNT] = { 0 };
	struct fo_table t;
	if (!r->hosts)
		return;
	for (int64_t i = 0; i < r->hosts; i++) {
		span += (double)(r->host[i].end_ns - r->host[i].begin_ns);
		for (int k = 0; k < FO_HOST_PART_COUNT; k++)
			part[k] += (double)r->host[i].part_ns[k];
	}
	fprintf(f, "\n");
	fo_cli_put(f, "", "",
		   "The host's step, mean of %lld. Where several went on at once the time is counted for the one that "
		   "stands first below, as the PyTorch profiler's own view does.",
		   (long long)r->hosts);
	fprintf(f, "\n");
	fo_table_init(&t, "lrr");
	fo_table_row(&t, "part", "share", "ms");
	for (int k = 0; k < FO_HOST_PART_COUNT; k++)
		if (part[k] > 0)
			fo_table_row(&t, text[k], fo_arena_printf(a, "%.2f %%", span > 0 ? 100 * part[k] / span : 0),
				     ms(a, part[k] / (double)r->hosts));
	fo_table_row(&t, "step", "100.00 %", ms(a, span / (double)r->hosts));
	fo_table_print(&t, f, "  ", true);
	fo_table_fini(&t);
}

/* What a reader has to know before believing the figures. */
static void print_doubts(FILE *f, const struct fo_rank_ledger *r)
{
	const struct fo_trace_defects *v = &r->trace->defect;
	const struct {
		int64_t n;
		const char *text;
	} line[] = {
		{ v->truncated, "The file ends inside an event: what came behind is not in the figures." },
		{ v->malformed, "events could not be read and were left out." },
		{ v->dropped_by_profiler, "records were lost by the profiler, as it says itself." },
		{ v->clipped,
		  "GPU operations had an end beyond reason, and were cut where the next one on their stream begins." },
		{ v->negative_duration, "GPU operations had a negative duration, taken as zero." },
		{ v->shared_correlations, "GPU operations share their launch record with others: what the host did for "
					  "each of them is unknown." },
	};
	for (size_t i = 0; i < sizeof line / sizeof *line; i++)
		if (line[i].n > 0 && i == 0)
			fo_cli_put(f, "  ", "  ", "%s", line[i].text);
		else if (line[i].n > 0)
			fo_cli_put(f, "  ", "  ", "%lld %s", (long long)line[i].n, line[i].text);
	for (int64_t i = 0; i < r->devices; i++) {
		const struct fo_device_ledger *d = &r->device[i];
		if (d->leftover_ops)
			fo_cli_put(f, "  ", "  ",
				   "%lld GPU operations at the front have no launch record: left over from before, in "
				   "no step.",
				   (long long)d->leftover_ops);
		if (d->excluded_ops)
			fo_cli_put(f, "  ", "  ",
				   "%lld GPU operations without a launch record are left out, as demanded.",
				   (long long)d->excluded_ops);
	}
}

/* The slowest is so by its own work; its whole step may be the shortest, for the others wait for it. */
static void print_slowest(FILE *f, const struct fo_diagnosis *d)
{
	const struct fo_device_ledger *v = fo_shown_device(d, d->worst);
	struct fo_shown_step s;
	if (!v)
		return;
	fo_shown_step_of(v, &s);
	fo_cli_put(f, "\nThe slowest rank, ", "  ",
		   "without waiting for others: %.3f ms of its own work in a step of %.3f ms",
		   (double)(s.l.span_ns - s.l.exposed_wait_ns) / 1e6, (double)s.l.span_ns / 1e6);
}

static void print_rank(FILE *f, struct fo_arena *a, const struct fo_rank_ledger *r, const struct fo_diagnosis *all)
{
	const struct fo_trace *t = r->trace;
	const char *shown;
	fprintf(f, "%s\n", fo_cli_seen(t->path));
	const char *rank = r->rank < 0 ? "rank not told" : fo_arena_printf(a, "rank %d", r->rank);
	if (t->format == FO_TRACE_OWN)
		fo_cli_put(f, "  ", "  ", "%s", "timeline of a run of our own");
	else
		fo_cli_put(f, "  ", "  ", "%s trace, %s%s", format_name[t->format], rank,
			   t->world_size > 0 ? fo_arena_printf(a, " of %d", t->world_size) : "");
	if (!r->devices)
		fo_cli_put(f, "  ", "  ", "No GPU operation is in it: nothing to divide.");
	for (int64_t i = 0; i < r->devices; i++) {
		const struct fo_device_ledger *d = &r->device[i];
		shown = fo_cli_seen(all->own.is && *all->own.device ? fo_arena_printf(a, "device: %s", all->own.device)
								    : device_name(a, t, d));
		fprintf(f, "\n");
		fprintf(f, "%s\n", shown);
		print_steps(f, t, d, &all->with.ledger);
		fprintf(f, "\n");
		print_ledger(f, a, t, d);
		fprintf(f, "\n");
		print_overlays(f, t, d);
	}
	if (r->devices)
		fo_cli_put(f, "  ", "  ",
			   "Shares are rounded, so that parts may add up to 0.1 more or less; \"if one by one\": "
			   "durations added up, overlapping or not.");
	print_doubts(f, r);
	if (t->format != FO_TRACE_OWN) /* such a timeline has no host apart from its lanes */
		print_host(f, a, r);
}

/* Every rank and device in one line. */
static void print_ranks(FILE *f, struct fo_arena *a, const struct fo_diagnosis *d)
{
	struct fo_table t;
	fo_table_init(&t, "rrrrrrrr");
	fo_table_row(&t, "rank", "device", "steps", "ms", "compute", "exposed comm", "copies", "idle");
	for (int i = 0; i < d->ranks; i++) {
		const struct fo_rank_ledger *r = &d->rank[i];
		for (int64_t k = 0; k < r->devices; k++) {
			const struct fo_device_ledger *v = &r->device[k];
			struct fo_shown_step s;
			fo_shown_step_of(v, &s);
			const struct fo_ledger *l = &s.l;
			fo_table_row(&t, r->rank < 0 ? "-" : fo_arena_printf(a, "%d", r->rank),
				     fo_arena_printf(a, "%lld", (long long)r->trace->device[v->device].id),
				     fo_arena_printf(a, "%lld", (long long)v->steps), ms(a, (double)l->span_ns),
				     fo_arena_printf(a, "%.1f %%", percent(l->comp_ns, l->span_ns)),
				     fo_arena_printf(a, "%.1f %%", percent(l->exposed_comm_ns, l->span_ns)),
				     fo_arena_printf(a, "%.1f %%", percent(l->exposed_mem_ns, l->span_ns)),
				     fo_arena_printf(a, "%.1f %%", percent(l->idle_total_ns, l->span_ns)));
		}
	}
	fo_table_print(&t, f, "  ", true);
	fo_table_fini(&t);
}

void fo_cli_diagnose_ledger(FILE *f, const struct fo_diagnosis *d)
{
	struct fo_arena a = { 0 };
	if (d->ranks > 1) {
		fprintf(f, "%d ranks\n\n", d->ranks);
		print_ranks(f, &a, d);
		print_slowest(f, d);
	}
	if (d->ranks)
		print_rank(f, &a, &d->rank[d->worst], d);
	fo_arena_fini(&a);
}
