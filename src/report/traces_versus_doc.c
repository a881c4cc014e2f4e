/* Two jobs' traces beside each other, as a document. */
#include "report/traces_versus.h"

#include "report/ledger_parts.h"
#include "report/versus_text.h"

#include <math.h>
#include <string.h>

/* Rows on a screen; the page has all of them. */
enum { KERNELS = 8, APPEARED = 6, MATMULS = 8, COLLECTIVES = 8, CAUSES = 6, RANKS = 16 };
enum { NAME = 28, KERNEL_NAME = 22 /* beside a verdict: 80 columns up to 999 ms */ };

struct page {
	const struct fo_traces_versus *v;
	struct fo_doc *d;
	bool all;
};

static const char *ms(struct page *p, double seconds) { return fo_versus_ms(p->d, seconds); }
static const char *signed_ms(struct page *p, double seconds) { return fo_versus_signed_ms(p->d, seconds); }

/* Parts that cancel out are many times the difference of their sum. */
static const char *percent(struct page *p, double share)
{
	if (!isfinite(share))
		return "-";
	return fo_doc_printf(p->d, fabs(share) < 1000 ? "%.1f %%" : "%.2g %%", 100 * share);
}

static const char *points(struct page *p, double x, double y)
{
	return isfinite(y - x) ? fo_doc_num(p->d, y - x, FO_DRAW_POINTS) : "";
}

static const char *calls(struct page *p, double n) { return n > 0 ? fo_doc_printf(p->d, "%.4g", n) : "none"; }

/* The beginning of a name, as much as its column has room for. */
static const char *cut(struct page *p, const char *name, int most)
{
	return fo_doc_printf(p->d, strlen(name) > (size_t)most ? "%.*s..." : "%.*s", most, name);
}

/* A list whose first rows a terminal shows; a page folds the others away. rows() adds those of [from, to). */
static void list(struct page *p, int64_t n, int64_t most, void (*rows)(struct page *, int64_t from, int64_t to))
{
	int64_t shown = p->all || n < most ? n : most;
	rows(p, 0, shown);
	if (shown == n)
		return;
	fo_doc_only(p->d, FO_DOC_TERM);
	fo_doc_para(p->d, "and %lld more (--all)", (long long)(n - shown));
	fo_doc_only(p->d, FO_DOC_PAGE);
	fo_doc_details(p->d, FO_DOC_FOLDED, "%lld more", (long long)(n - shown));
	rows(p, shown, n);
	fo_doc_details_end(p->d);
	fo_doc_only(p->d, FO_DOC_BOTH);
}

/* ---- the answer ---- */

static void say_what_they_are(struct page *p, const char *const path[2])
{
	static const char *const side[] = { "A", "B" };
	for (int k = 0; k < 2; k++) {
		const struct fo_traces_side *s = &p->v->side[k];
		const char *text = "rank not recorded";
		if (s->rank->rank >= 0)
			text = fo_doc_printf(p->d, "rank %d", s->rank->rank);
		if (s->rank->devices > 1)
			text = fo_doc_printf(p->d, "%s, GPU %lld", text,
					     (long long)s->rank->trace->device[s->device->device].id);
		if (s->d->ranks > 1)
			text = fo_doc_printf(p->d, "%s, the slowest of %d ranks", text, s->d->ranks);
		if (s->device->from == FO_WINDOW_WHOLE)
			text = fo_doc_printf(p->d, "%s, no steps: the whole trace", text);
		else
			text = fo_doc_printf(p->d, "%s, %lld step%s", text, (long long)s->device->steps,
					     fo_plural(s->device->steps));
		fo_doc_fact(p->d, side[k], path[k], text);
	}
}

/* Says what was read of each side, and what is missing of it. */
static void say_what_was_found(struct page *p)
{
	for (int k = 0; k < 2; k++) {
		const char **line;
		for (int i = 0, n = fo_found_of(p->v->side[k].d, &p->d->arena, &line); i < n; i++)
			fo_doc_item(p->d, "%s: %s", k ? "B" : "A", line[i]);
	}
}

static void say_verdict(struct page *p)
{
	const struct fo_traces_versus *v = p->v;
	const struct fo_traces_figure *f = &v->part[0].f;
	double times = f->time[1].median / f->time[0].median;
	if (!v->windows)
		fo_doc_verdict(
			p->d, FO_DOC_PLAIN, NULL,
			"Without steps on both sides only shares can be compared: the windows are %.3f and %.3f ms "
			"long.",
			f->mean[0] * 1e3, f->mean[1] * 1e3);
	else if (f->difference == 0 && f->time[0].median == f->time[1].median)
		fo_doc_verdict(p->d, FO_DOC_PLAIN, NULL, "Both take the same time to the nanosecond.");
	else if (f->resolved)
		fo_doc_verdict(p->d, times < 1 ? FO_DOC_GOOD : FO_DOC_BAD, NULL,
			       "B's step takes %.3f times as long as A's (medians); the quartiles of both are apart.",
			       times);
	else if (f->time[0].n < FO_TRACES_STEPS || f->time[1].n < FO_TRACES_STEPS)
		fo_doc_verdict(
			p->d, FO_DOC_PLAIN, NULL,
			"Step time: not resolved (medians %.3f and %.3f ms). There are too few steps to know their "
			"spread.",
			f->time[0].median * 1e3, f->time[1].median * 1e3);
	else
		fo_doc_verdict(
			p->d, FO_DOC_PLAIN, NULL,
			"Step time: not resolved (medians %.3f and %.3f ms). The quartiles of both overlap: the steps "
			"vary by as much as they differ.",
			f->time[0].median * 1e3, f->time[1].median * 1e3);
	for (int64_t i = 0; i < v->causes; i++)
		fo_doc_item(p->d, "%s", v->cause[i]);
}

/* ---- the ledger ---- */

static const char *family(const struct fo_traces_part *part)
{
	static const char *const of[][2] = { { "idle", "idle" },
					     { "exposed_comm", "communication" },
					     { "exposed_mem", "copies" } };
	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		if (!strncmp(part->id, of[i][0], strlen(of[i][0])))
			return of[i][1];
	return "kernels";
}

/* Leaves of the ledger, largest difference first; those that are left out are summed. */
static void explanation(struct page *p)
{
	const struct fo_traces_versus *v = p->v;
	const struct fo_traces_figure *step = &v->part[0].f;
	double rest = 0;
	int n = p->all || v->ordered <= CAUSES ? v->ordered : CAUSES;
	if (!v->ordered || !v->windows)
		return;
	fo_doc_heading(p->d, "What the difference consists of: means of a step, which sum to it");
	fo_doc_table(p->d, FO_DRAW_FITTED, NULL, "rrll", "B - A", "of it", "part", "");
	for (int i = 0; i < v->ordered; i++) {
		const struct fo_traces_part *part = &v->part[v->order[i]];
		if (i >= n) {
			rest += part->f.difference;
			continue;
		}
		fo_doc_row(p->d, signed_ms(p, part->f.difference), percent(p, part->f.difference / step->difference),
			   fo_doc_printf(p->d, "%s: %s", family(part), part->name),
			   part->f.resolved ? "" : FO_UNRESOLVED);
	}
	if (n < v->ordered)
		fo_doc_row(p->d, signed_ms(p, rest), percent(p, rest / step->difference),
			   fo_doc_printf(p->d, "%d more (--all)", v->ordered - n), "");
	fo_doc_row(p->d, signed_ms(p, step->difference), "", "the step", step->resolved ? "" : FO_UNRESOLVED);
}

static void figures(struct page *p)
{
	const struct fo_traces_figure *f = &p->v->part[0].f;
	const struct fo_traces_side *x = &p->v->side[0], *y = &p->v->side[1];
	fo_doc_table(p->d, FO_DRAW_SLIM, NULL, "lrrl", "", "A", "B", "B against A");
	if (p->v->windows) {
		fo_doc_row(p->d, "step, median", ms(p, f->time[0].median), ms(p, f->time[1].median),
			   fo_versus_change(p->d, f->time[0].median, f->time[1].median, f->resolved));
		fo_doc_row(p->d, "  lower quartile", ms(p, f->time[0].low), ms(p, f->time[1].low), "");
		fo_doc_row(p->d, "  upper quartile", ms(p, f->time[0].high), ms(p, f->time[1].high), "");
		fo_doc_row(p->d, "  mean", ms(p, f->mean[0]), ms(p, f->mean[1]), "parts below sum to it");
	}
	if (isfinite(x->mfu) || isfinite(y->mfu))
		fo_doc_row(p->d, "MFU", percent(p, x->mfu), percent(p, y->mfu), points(p, x->mfu, y->mfu));
	fo_doc_row(p->d, "utilisation", percent(p, x->utilisation), percent(p, y->utilisation),
		   points(p, x->utilisation, y->utilisation));
	fo_doc_row(p->d, p->v->windows ? "GPU operations" : "GPU operations in all",
		   fo_doc_printf(p->d, "%.0f", x->ops), fo_doc_printf(p->d, "%.0f", y->ops), "");
}

/* Draws both ledgers as bars, to scale where both are of a step. */
static void picture(struct page *p)
{
	struct fo_draw_stack *stack = fo_doc_alloc(p->d, 2 * sizeof *stack);
	for (int k = 0; k < 2; k++) {
		int64_t ns[FO_LEDGER_PARTS];
		double *part = fo_doc_alloc(p->d, FO_LEDGER_PARTS * sizeof *part);
		fo_ledger_parts(&p->v->side[k].device->total, ns);
		for (int i = 0; i < FO_LEDGER_PARTS; i++)
			part[i] = (double)ns[i] * 1e-9 / (double)p->v->side[k].device->steps;
		stack[k] = (struct fo_draw_stack){ k ? "B" : "A", ms(p, p->v->part[0].f.mean[k]), part };
	}
	fo_doc_only(p->d, FO_DOC_PAGE);
	fo_doc_stacks(p->d,
		      &(struct fo_draw_stacks){ .title = p->v->windows ? "Both to scale: a shorter bar takes less time"
								       : "Shares of both windows",
						.desc = "The parts of a step of A and of B.",
						.part_name = fo_ledger_part_name,
						.tone = fo_ledger_part_tone,
						.parts = FO_LEDGER_PARTS,
						.stack = stack,
						.stacks = 2,
						.to_scale = p->v->windows,
						.dense = true });
	fo_doc_only(p->d, FO_DOC_BOTH);
}

static const char *part_name(struct page *p, const struct fo_traces_part *part)
{
	if (!part->level)
		return p->v->windows ? "whole step" : "whole window";
	return part->level > 1 ? fo_doc_printf(p->d, "  %s", part->name) : part->name;
}

static void parts(struct page *p)
{
	const struct fo_traces_versus *v = p->v;
	const struct fo_traces_figure *step = &v->part[0].f;
	fo_doc_heading(p->d, "Where a %s",
		       v->windows ? "step's time goes: means; parts sum to the step" : "window's time goes");
	picture(p);
	if (v->windows)
		fo_doc_table(p->d, FO_DRAW_SLIM, NULL, "lrrrl", "part", "A", "B", "B - A", "");
	else
		fo_doc_table(p->d, FO_DRAW_FULL, NULL, "lrrrrr", "part", "A", "B", "of A", "of B", "points");
	for (int i = 1; i <= v->parts; i++) { /* the step, the first part, stands at the end */
		const struct fo_traces_part *part = &v->part[i < v->parts ? i : 0];
		const struct fo_traces_figure *f = &part->f;
		double a = f->mean[0] / step->mean[0], b = f->mean[1] / step->mean[1];
		if (f->mean[0] == 0 && f->mean[1] == 0)
			continue;
		if (v->windows)
			fo_doc_row(p->d, part_name(p, part), ms(p, f->mean[0]), ms(p, f->mean[1]),
				   signed_ms(p, f->difference), fo_versus_mark(f->difference, f->resolved));
		else
			fo_doc_row(p->d, part_name(p, part), ms(p, f->mean[0]), ms(p, f->mean[1]), percent(p, a),
				   percent(p, b), part->level ? fo_doc_printf(p->d, "%+.1f", 100 * (b - a)) : "");
	}
}

/* ---- lists ---- */

static bool alone(const struct fo_traces_kernel *k) { return !(k->calls[0] > 0) || !(k->calls[1] > 0); }

static void kernel_row(struct page *p, const struct fo_traces_kernel *k)
{
	const char *mark = k->f.resolved || !p->v->windows ? "" : FO_UNRESOLVED;
	if (alone(k))
		mark = k->calls[0] > 0 ? "gone" : "new";
	fo_doc_row(p->d, cut(p, k->name, KERNEL_NAME), calls(p, k->calls[0]), calls(p, k->calls[1]),
		   fo_versus_bare_ms(p->d, k->f.mean[0], false), fo_versus_bare_ms(p->d, k->f.mean[1], false),
		   fo_versus_bare_ms(p->d, k->f.difference, true), mark);
}

/* A terminal has room for some of those that both run and some that only one runs; returns how many it shows. */
static int64_t kernel_rows(struct page *p, bool all)
{
	int64_t both = 0, only = 0;
	for (int64_t i = 0; i < p->v->kernels && (all || both < KERNELS || only < APPEARED); i++) {
		const struct fo_traces_kernel *k = &p->v->kernel[i];
		int64_t *n = alone(k) ? &only : &both;
		if (k->f.difference == 0 || (!all && *n >= (alone(k) ? APPEARED : KERNELS)))
			continue;
		if (!both && !only)
			fo_doc_table(p->d, FO_DRAW_FULL, NULL, "lrrrrrl", "kernel", "calls A", "B", "ms A", "B",
				     "B - A", "");
		++*n;
		kernel_row(p, k);
	}
	return both + only;
}

static void kernels(struct page *p)
{
	bool any = false;
	for (int64_t i = 0; i < p->v->kernels; i++)
		any = any || p->v->kernel[i].f.difference != 0;
	if (!any)
		return;
	const char *of = p->v->windows ? "of a step" : "in all";
	fo_doc_heading(p->d, "Kernels and copies by name, %s, largest difference first%s", of,
		       p->all ? "" : " (--all)");
	kernel_rows(p, p->all);
	if (p->all)
		return;
	fo_doc_only(p->d, FO_DOC_PAGE);
	fo_doc_details(p->d, FO_DOC_FOLDED, "All kernels that differ");
	kernel_rows(p, true);
	fo_doc_details_end(p->d);
	fo_doc_only(p->d, FO_DOC_BOTH);
}

static const char *bytes_of_call(struct page *p, double bytes)
{
	return bytes > 0 ? fo_doc_num(p->d, bytes, FO_DRAW_BYTES) : "-";
}

static void collective_rows(struct page *p, int64_t from, int64_t to)
{
	fo_doc_table(p->d, FO_DRAW_FULL, NULL, "lrrrrrr", "collective", "calls A", "B", "bytes A", "B", "ms A", "B");
	for (int64_t i = from; i < to; i++) {
		const struct fo_traces_collective *c = &p->v->collective[i];
		const char *name = cut(p, c->name, NAME);
		if (c->group_size > 0)
			name = fo_doc_printf(p->d, "%.*s of %d", NAME - 10, c->name, c->group_size);
		fo_doc_row(p->d, name, calls(p, c->calls[0]), calls(p, c->calls[1]), bytes_of_call(p, c->bytes[0]),
			   bytes_of_call(p, c->bytes[1]), fo_versus_bare_ms(p->d, c->time[0], false),
			   fo_versus_bare_ms(p->d, c->time[1], false));
	}
}

static const char *count(struct page *p, const struct fo_product *m)
{
	return m ? fo_doc_count(p->d, m->calls) : "none";
}

static const char *microseconds(struct page *p, double seconds)
{
	if (!isfinite(seconds))
		return "-";
	return fo_doc_printf(p->d, "%.*f", fo_versus_decimals(seconds * 1e6, 1), seconds * 1e6);
}

static void matmul_rows(struct page *p, int64_t from, int64_t to)
{
	fo_doc_table(p->d, FO_DRAW_FULL, NULL, "llrrrrl", "m x n x k", "type", "calls A", "B", "us A", "B",
		     "B against A");
	for (int64_t i = from; i < to; i++) {
		const struct fo_traces_product *m = &p->v->product[i];
		const struct fo_product *q = m->in[0] ? m->in[0] : m->in[1];
		const char *shape = fo_doc_printf(p->d, "%lldx%lldx%lld", (long long)q->m, (long long)q->n,
						  (long long)q->k);
		if (q->batch > 1)
			shape = fo_doc_printf(p->d, "%s, %lld", shape, (long long)q->batch);
		fo_doc_row(p->d, shape, q->dtype, count(p, m->in[0]), count(p, m->in[1]), microseconds(p, m->call_s[0]),
			   microseconds(p, m->call_s[1]), fo_versus_change(p->d, m->call_s[0], m->call_s[1], true));
	}
}

/* ---- ranks ---- */

/* The wait of the same rank and device; NULL. */
static const struct fo_rank_wait *same_wait(const struct fo_diagnosis *d, const struct fo_rank_wait *w)
{
	for (int i = 0; i < d->waits; i++)
		if (d->wait[i].rank == w->rank && d->wait[i].device == w->device)
			return &d->wait[i];
	return NULL;
}

static void wait_row(struct page *p, const struct fo_rank_wait *a, const struct fo_rank_wait *b)
{
	const struct fo_rank_wait *side[2] = { a, b }, *one = a ? a : b;
	const char *cell[2][3] = { { "-", "-", "-" }, { "-", "-", "-" } };
	for (int k = 0; k < 2; k++)
		if (side[k]) {
			cell[k][0] = ms(p, (double)side[k]->wait_ns * 1e-9);
			cell[k][1] = ms(p, (double)side[k]->transfer_ns * 1e-9);
			cell[k][2] = fo_doc_count(p->d, side[k]->last);
		}
	fo_doc_row(p->d, fo_doc_printf(p->d, "%d.%d", one->rank, one->device), cell[0][0], cell[1][0], cell[0][1],
		   cell[1][1], cell[0][2], cell[1][2]);
}

/* A's ranks, then those that only B has. */
static void rank_rows(struct page *p, int64_t from, int64_t to)
{
	const struct fo_diagnosis *a = p->v->side[0].d, *b = p->v->side[1].d;
	int64_t row = 0;
	fo_doc_table(p->d, FO_DRAW_FULL, NULL, "rrrrrrr", "rank.GPU", "waits A", "B", "transfer A", "B", "last A", "B");
	for (int i = 0; i < a->waits; i++, row++)
		if (row >= from && row < to)
			wait_row(p, &a->wait[i], same_wait(b, &a->wait[i]));
	for (int i = 0; i < b->waits; i++)
		if (!same_wait(a, &b->wait[i])) {
			if (row >= from && row < to)
				wait_row(p, NULL, &b->wait[i]);
			row++;
		}
}

static int64_t ranks_of_both(const struct fo_diagnosis *a, const struct fo_diagnosis *b)
{
	int64_t n = a->waits;
	for (int i = 0; i < b->waits; i++)
		n += !same_wait(a, &b->wait[i]);
	return n;
}

/* ---- the whole ---- */

void fo_traces_versus_doc(const struct fo_traces_versus *v, const char *const path[2], bool all, struct fo_doc *d)
{
	struct page p = { .v = v, .d = d, .all = all };
	const char *of = v->windows ? "of a step" : "in all";
	int64_t ranks = ranks_of_both(v->side[0].d, v->side[1].d);
	fo_doc_title(d, "Two traces: %s and %s", path[0], path[1]);
	fo_doc_lead(d, "A is the first, B the second; a difference inside the steps' own spread is not resolved.");
	fo_doc_footer(d, "flatout compare. Figures are defined in docs/metrics.md.");
	fo_doc_only(d, FO_DOC_TERM);
	say_what_they_are(&p, path);
	fo_doc_only(d, FO_DOC_BOTH);
	say_verdict(&p);
	fo_doc_only(d, FO_DOC_PAGE);
	say_what_they_are(&p, path);
	fo_doc_only(d, FO_DOC_BOTH);
	say_what_was_found(&p);
	explanation(&p);
	figures(&p);
	parts(&p);
	kernels(&p);
	if (v->collectives) {
		fo_doc_heading(d, "Communication, %s, durations added up", of);
		list(&p, v->collectives, COLLECTIVES, collective_rows);
	}
	if (v->products) {
		fo_doc_heading(d, "Matmuls by shape, of one call, largest difference in all first");
		list(&p, v->products, MATMULS, matmul_rows);
	}
	if (ranks) {
		fo_doc_heading(d, "Waiting for others and transfer in matched collectives, over the whole trace");
		list(&p, ranks, RANKS, rank_rows);
	}
}
