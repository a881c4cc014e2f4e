/* flatout compare of traces: before and after row by row, and what the difference consists of. */
#include "cli/compare.h"

#include "cli/cli.h"
#include "report/ledger_parts.h"
#include "report/traces_versus.h"

#include <math.h>
#include <string.h>

enum {
	KERNELS = 8,
	APPEARED = 6,
	PRODUCTS = 8,
	COLLECTIVES = 8,
	CAUSES = 6,
	RANKS = 16,
	NAME = 28,
	KERNEL_NAME = 22 /* beside a verdict: 80 columns up to 999 ms */
};
#define UNRESOLVED "not resolved"

/* ---- text ---- */

/* Decimals that leave a value in the columns of 999.999, and of 9999.9 where one is the most: tables keep to 80
 * columns. */
static int decimals(double value, int most)
{
	double from = most < 3 ? 1e5 : 1e3;
	int n = most;
	for (value = fabs(value); n && value >= from; from *= 10)
		n--;
	return n;
}

static char *bare_ms(struct fo_arena *a, double seconds)
{
	return fo_arena_printf(a, "%.*f", decimals(seconds * 1e3, 3), seconds * 1e3);
}

static char *signed_bare_ms(struct fo_arena *a, double seconds)
{
	return fo_arena_printf(a, "%+.*f", decimals(seconds * 1e3, 3), seconds * 1e3);
}

static char *ms(struct fo_arena *a, double seconds)
{
	return isfinite(seconds) ? fo_arena_printf(a, "%s ms", bare_ms(a, seconds)) : fo_arena_strdup(a, "-");
}

static char *signed_ms(struct fo_arena *a, double seconds)
{
	return isfinite(seconds) ? fo_arena_printf(a, "%s ms", signed_bare_ms(a, seconds)) : fo_arena_strdup(a, "-");
}

/* Parts that cancel out are many times the difference of their sum. */
static char *percent(struct fo_arena *a, double share)
{
	if (!isfinite(share))
		return fo_arena_strdup(a, "-");
	return fo_arena_printf(a, fabs(share) < 1000 ? "%.1f %%" : "%.2g %%", 100 * share);
}

static char *points(struct fo_arena *a, double x, double y)
{
	return isfinite(y - x) ? fo_arena_printf(a, "%+.1f points", 100 * (y - x)) : fo_arena_strdup(a, "");
}

static char *change(struct fo_arena *a, double x, double y, bool resolved)
{
	if (!isfinite(x) || !isfinite(y) || x == 0)
		return fo_arena_strdup(a, "");
	if (x == y)
		return fo_arena_strdup(a, "the same");
	return fo_arena_printf(a, y / x < 100 ? "%+.1f %%%s" : "%+.2g %%%s", 100 * (y / x - 1),
			       resolved ? "" : ", " UNRESOLVED);
}

static char *us(struct fo_arena *a, double seconds)
{
	return fo_arena_printf(a, "%.*f", decimals(seconds * 1e6, 1), seconds * 1e6);
}

static char *calls(struct fo_arena *a, double n)
{
	return n > 0 ? fo_arena_printf(a, "%.4g", n) : fo_arena_strdup(a, "none");
}

/* As much of a name as the column has. */
static char *shown_in(struct fo_arena *a, const char *name, int most)
{
	return fo_arena_printf(a, strlen(name) > (size_t)most ? "%.*s..." : "%.*s", most, name);
}

static char *shown(struct fo_arena *a, const char *name) { return shown_in(a, name, NAME); }

/* What was taken of a side, and what is missing of it: as flatout diagnose says it. */
static void print_found(struct fo_traces_versus *v, int side)
{
	const char **line;
	char text[1024];
	int n = fo_found_of(v->side[side].d, &v->arena, &line);
	for (int i = 0; i < n; i++)
		fo_cli_put(stdout, "   ", "   ", "%s%s", fo_str_visible(text, sizeof text, line[i]),
			   i + 1 < n ? ";" : "");
}

static void print_head(struct fo_traces_versus *v, const char *const path[2])
{
	for (int k = 0; k < 2; k++) {
		const struct fo_traces_side *s = &v->side[k];
		const char *of = s->d->ranks > 1 ? fo_arena_printf(&v->arena, ", the slowest of %d ranks", s->d->ranks)
						 : "";
		const char *gpu = s->rank->devices > 1
					  ? fo_arena_printf(&v->arena, ", GPU %lld",
							    (long long)s->rank->trace->device[s->device->device].id)
					  : "";
		const char *rank = s->rank->rank >= 0 ? fo_arena_printf(&v->arena, "rank %d", s->rank->rank)
						      : "rank not recorded";
		fo_cli_put(stdout, k ? "B  " : "A  ", "   ", "%s: %s%s%s, %s", fo_cli_seen(path[k]), rank, gpu, of,
			   s->device->from == FO_WINDOW_WHOLE
				   ? "no steps: the whole trace"
				   : fo_arena_printf(&v->arena, "%lld step%s", (long long)s->device->steps,
						     s->device->steps == 1 ? "" : "s"));
		print_found(v, k);
	}
	printf("\n");
}

static void print_verdict(struct fo_traces_versus *v)
{
	const struct fo_traces_figure *f = &v->part[0].f;
	if (!v->windows)
		fo_cli_put(stdout, "", "",
			   "Without steps on both sides only shares can be compared: what stands below are windows of "
			   "%.3f and %.3f ms.",
			   f->mean[0] * 1e3, f->mean[1] * 1e3);
	else if (f->difference == 0 && f->time[0].median == f->time[1].median)
		fo_cli_put(stdout, "", "", "Both take the same time to the nanosecond.");
	else if (!f->resolved)
		fo_cli_put(stdout, "", "", "Step time: not resolved (medians %.3f and %.3f ms). %s",
			   f->time[0].median * 1e3, f->time[1].median * 1e3,
			   f->time[0].n < FO_TRACES_STEPS || f->time[1].n < FO_TRACES_STEPS
				   ? "There are too few steps to know their spread."
				   : "The quartiles of both overlap: the steps vary by as much as they differ.");
	else
		fo_cli_put(stdout, "", "",
			   "B's step takes %.3f times as long as A's (medians); the quartiles of both are apart.",
			   f->time[1].median / f->time[0].median);
	for (int64_t i = 0; i < v->causes; i++) {
		fo_cli_put(stdout, "- ", "  ", "%s", fo_cli_seen(v->cause[i]));
	}
}

/* Leaves of the ledger, largest difference first; what is left out is summed. */
static void print_explanation(struct fo_traces_versus *v, bool all)
{
	struct fo_arena *a = &v->arena;
	const struct fo_traces_figure *step = &v->part[0].f;
	struct fo_table t;
	double rest = 0;
	int n = all || v->ordered <= CAUSES ? v->ordered : CAUSES;
	if (!v->ordered || !v->windows)
		return;
	printf("\nWhat the difference consists of: means of a step, which sum to it\n\n");
	fo_table_init(&t, "rrll");
	fo_table_row(&t, "B - A", "of it", "part", "");
	for (int i = 0; i < v->ordered; i++) {
		const struct fo_traces_part *p = &v->part[v->order[i]];
		const char *above = !strncmp(p->id, "idle", 4)            ? "idle: "
				    : !strncmp(p->id, "exposed_comm", 12) ? "communication: "
				    : !strncmp(p->id, "exposed_mem", 11)  ? "copies: "
									  : "kernels: ";
		if (i >= n) {
			rest += p->f.difference;
			continue;
		}
		fo_table_row(&t, signed_ms(a, p->f.difference), percent(a, p->f.difference / step->difference),
			     fo_arena_printf(a, "%s%s", above, p->name), p->f.resolved ? "" : UNRESOLVED);
	}
	if (n < v->ordered)
		fo_table_row(&t, signed_ms(a, rest), percent(a, rest / step->difference),
			     fo_arena_printf(a, "%d more (--all)", v->ordered - n), "");
	fo_table_row(&t, signed_ms(a, step->difference), "", "the step", step->resolved ? "" : UNRESOLVED);
	fo_table_print(&t, stdout, "  ", true);
	fo_table_fini(&t);
}

static void print_figures(struct fo_traces_versus *v)
{
	struct fo_arena *a = &v->arena;
	const struct fo_traces_figure *f = &v->part[0].f;
	const struct fo_traces_side *x = &v->side[0], *y = &v->side[1];
	struct fo_table t;
	printf("\n");
	fo_table_init(&t, "lrrl");
	fo_table_row(&t, "", "A", "B", "B against A");
	if (v->windows) {
		fo_table_row(&t, "step, median", ms(a, f->time[0].median), ms(a, f->time[1].median),
			     change(a, f->time[0].median, f->time[1].median, f->resolved));
		fo_table_row(&t, "  lower quartile", ms(a, f->time[0].low), ms(a, f->time[1].low), "");
		fo_table_row(&t, "  upper quartile", ms(a, f->time[0].high), ms(a, f->time[1].high), "");
		fo_table_row(&t, "  mean", ms(a, f->mean[0]), ms(a, f->mean[1]), "parts below sum to it");
	}
	if (isfinite(x->mfu) || isfinite(y->mfu))
		fo_table_row(&t, "MFU", percent(a, x->mfu), percent(a, y->mfu), points(a, x->mfu, y->mfu));
	fo_table_row(&t, "utilisation", percent(a, x->utilisation), percent(a, y->utilisation),
		     points(a, x->utilisation, y->utilisation));
	fo_table_row(&t, v->windows ? "GPU operations" : "GPU operations in all", fo_arena_printf(a, "%.0f", x->ops),
		     fo_arena_printf(a, "%.0f", y->ops), "");
	fo_table_print(&t, stdout, "", true);
	fo_table_fini(&t);
}

static void print_parts(struct fo_traces_versus *v)
{
	struct fo_arena *a = &v->arena;
	const struct fo_traces_figure *step = &v->part[0].f;
	struct fo_table t;
	printf("\nWhere a %s\n\n",
	       v->windows ? "step's time goes: means; parts sum to the step" : "window's time goes");
	fo_table_init(&t, v->windows ? "lrrrl" : "lrrrrr");
	if (v->windows)
		fo_table_row(&t, "part", "A", "B", "B - A", "");
	else
		fo_table_row(&t, "part", "A", "B", "of A", "of B", "points");
	for (int i = 1; i <= v->parts; i++) { /* the step, the first, stands at the end */
		const struct fo_traces_part *p = &v->part[i < v->parts ? i : 0];
		const struct fo_traces_figure *f = &p->f;
		double s[2] = { f->mean[0] / step->mean[0], f->mean[1] / step->mean[1] };
		const char *name = fo_arena_printf(a, "%s%s", p->level > 1 ? "  " : "",
						   p->level     ? p->name
						   : v->windows ? "whole step"
								: "whole window");
		if (f->mean[0] == 0 && f->mean[1] == 0)
			continue;
		if (v->windows)
			fo_table_row(&t, name, ms(a, f->mean[0]), ms(a, f->mean[1]), signed_ms(a, f->difference),
				     f->difference == 0 ? "the same"
				     : f->resolved      ? ""
							: UNRESOLVED);
		else
			fo_table_row(&t, name, ms(a, f->mean[0]), ms(a, f->mean[1]), percent(a, s[0]), percent(a, s[1]),
				     p->level ? fo_arena_printf(a, "%+.1f", 100 * (s[1] - s[0])) : "");
	}
	fo_table_print(&t, stdout, "  ", true);
	fo_table_fini(&t);
}

static void print_kernels(struct fo_traces_versus *v, bool all)
{
	struct fo_arena *a = &v->arena;
	struct fo_table t;
	int64_t most = 0, only = 0;
	fo_table_init(&t, "lrrrrrl");
	fo_table_row(&t, "kernel", "calls A", "B", "ms A", "B", "B - A", "");
	for (int64_t i = 0; i < v->kernels && (all || most < KERNELS || only < APPEARED); i++) {
		const struct fo_traces_kernel *k = &v->kernel[i];
		bool alone = !(k->calls[0] > 0) || !(k->calls[1] > 0);
		if (k->f.difference == 0 || (!all && (alone ? only >= APPEARED : most >= KERNELS)))
			continue;
		alone ? only++ : most++;
		fo_table_row(&t, shown_in(a, k->name, KERNEL_NAME), calls(a, k->calls[0]), calls(a, k->calls[1]),
			     bare_ms(a, k->f.mean[0]), bare_ms(a, k->f.mean[1]), signed_bare_ms(a, k->f.difference),
			     alone                          ? (k->calls[0] > 0 ? "gone" : "new")
			     : k->f.resolved || !v->windows ? ""
							    : UNRESOLVED);
	}
	if (most + only)
		printf("\nKernels and copies by name, %s, largest difference first%s\n\n",
		       v->windows ? "of a step" : "in all", all ? "" : " (--all)");
	if (most + only)
		fo_table_print(&t, stdout, "  ", true);
	fo_table_fini(&t);
}

static void print_collectives(struct fo_traces_versus *v, bool all)
{
	struct fo_arena *a = &v->arena;
	struct fo_table t;
	char x[32], y[32];
	if (!v->collectives)
		return;
	printf("\nCommunication, %s, durations added up\n\n", v->windows ? "of a step" : "in all");
	fo_table_init(&t, "lrrrrrr");
	fo_table_row(&t, "collective", "calls A", "B", "bytes A", "B", "ms A", "B");
	for (int64_t i = 0; i < v->collectives && (all || i < COLLECTIVES); i++) {
		const struct fo_traces_collective *c = &v->collective[i];
		const char *name = c->group_size > 0
					   ? fo_arena_printf(a, "%.*s of %d", NAME - 10, c->name, c->group_size)
					   : shown(a, c->name);
		fo_table_row(&t, name, calls(a, c->calls[0]), calls(a, c->calls[1]),
			     c->bytes[0] > 0 ? fo_str_bytes(x, c->bytes[0]) : "-",
			     c->bytes[1] > 0 ? fo_str_bytes(y, c->bytes[1]) : "-", bare_ms(a, c->time[0]),
			     bare_ms(a, c->time[1]));
	}
	fo_table_print(&t, stdout, "  ", true);
	fo_table_fini(&t);
}

static void print_products(struct fo_traces_versus *v, bool all)
{
	struct fo_arena *a = &v->arena;
	struct fo_table t;
	if (!v->products)
		return;
	printf("\nMatrix products by shape, of one call, largest difference in all first\n\n");
	fo_table_init(&t, "llrrrrl");
	fo_table_row(&t, "m x n x k", "type", "calls A", "B", "us A", "B", "B against A");
	for (int64_t i = 0; i < v->products && (all || i < PRODUCTS); i++) {
		const struct fo_traces_product *p = &v->product[i];
		const struct fo_product *q = p->in[0] ? p->in[0] : p->in[1];
		fo_table_row(&t,
			     fo_arena_printf(a, q->batch > 1 ? "%lldx%lldx%lld, %lld" : "%lldx%lldx%lld",
					     (long long)q->m, (long long)q->n, (long long)q->k, (long long)q->batch),
			     q->dtype, p->in[0] ? fo_arena_printf(a, "%lld", (long long)p->in[0]->calls) : "none",
			     p->in[1] ? fo_arena_printf(a, "%lld", (long long)p->in[1]->calls) : "none",
			     p->in[0] ? us(a, p->call_s[0]) : "-", p->in[1] ? us(a, p->call_s[1]) : "-",
			     change(a, p->call_s[0], p->call_s[1], true));
	}
	fo_table_print(&t, stdout, "  ", true);
	fo_table_fini(&t);
	if (!all && v->products > PRODUCTS)
		printf("  and %lld more (--all)\n", (long long)(v->products - PRODUCTS));
}

/* The same rank's and device's; NULL. */
static const struct fo_rank_wait *same_wait(const struct fo_diagnosis *d, const struct fo_rank_wait *w)
{
	for (int i = 0; i < d->waits; i++)
		if (d->wait[i].rank == w->rank && d->wait[i].device == w->device)
			return &d->wait[i];
	return NULL;
}

static void wait_row(struct fo_arena *a, struct fo_table *t, const struct fo_rank_wait *const w[2])
{
	const char *cell[6];
	const struct fo_rank_wait *one = w[0] ? w[0] : w[1];
	for (int k = 0; k < 2; k++) {
		cell[k] = w[k] ? ms(a, (double)w[k]->wait_ns * 1e-9) : "-";
		cell[2 + k] = w[k] ? ms(a, (double)w[k]->transfer_ns * 1e-9) : "-";
		cell[4 + k] = w[k] ? fo_arena_printf(a, "%lld", (long long)w[k]->last) : "-";
	}
	fo_table_row(t, fo_arena_printf(a, "%d.%d", one->rank, one->device), cell[0], cell[1], cell[2], cell[3],
		     cell[4], cell[5]);
}

static void print_ranks(struct fo_traces_versus *v, bool all)
{
	struct fo_arena *a = &v->arena;
	const struct fo_diagnosis *x = v->side[0].d, *y = v->side[1].d;
	struct fo_table t;
	int rows = 0, most = x->waits;
	if (!x->waits && !y->waits)
		return;
	printf("\nWaiting for others and transfer in matched collectives, over the whole trace\n\n");
	fo_table_init(&t, "rrrrrrr");
	fo_table_row(&t, "rank.GPU", "waits A", "B", "transfer A", "B", "last A", "B");
	for (int i = 0; i < x->waits && (all || rows < RANKS); i++, rows++)
		wait_row(a, &t, (const struct fo_rank_wait *const[2]){ &x->wait[i], same_wait(y, &x->wait[i]) });
	for (int i = 0; i < y->waits; i++) {
		if (same_wait(x, &y->wait[i]))
			continue;
		most++;
		if (all || rows < RANKS) {
			rows++;
			wait_row(a, &t, (const struct fo_rank_wait *const[2]){ NULL, &y->wait[i] });
		}
	}
	fo_table_print(&t, stdout, "  ", true);
	fo_table_fini(&t);
	if (rows < most)
		printf("  and %d more (--all)\n", most - rows);
}

/* ---- JSON ---- */

static void json_spread(struct fo_json *j, const char *key, double mean, const struct fo_spread *s)
{
	fo_json_object(j, key);
	fo_json_real(j, "mean", mean);
	fo_json_real(j, "median", s->n ? s->median : NAN);
	fo_json_real(j, "lower_quartile", s->n ? s->low : NAN);
	fo_json_real(j, "upper_quartile", s->n ? s->high : NAN);
	fo_json_close(j);
}

static void json_figure(struct fo_json *j, const struct fo_traces_figure *f)
{
	json_spread(j, "a_seconds", f->mean[0], &f->time[0]);
	json_spread(j, "b_seconds", f->mean[1], &f->time[1]);
	fo_json_real(j, "difference_seconds", f->difference);
	fo_json_bool(j, "resolved", f->resolved);
}

static void json_side(struct fo_json *j, const char *key, const struct fo_traces_side *s, const char *path)
{
	fo_json_object(j, key);
	fo_json_text(j, "path", path);
	fo_json_int(j, "ranks", s->d->ranks);
	fo_json_int(j, "rank", s->rank->rank);
	fo_json_int(j, "device", s->rank->trace->device[s->device->device].id);
	fo_json_text(j, "steps_from", fo_window_origin_name[s->device->from]);
	fo_json_int(j, "steps", s->device->steps);
	fo_json_real(j, "mfu", s->mfu);
	fo_json_real(j, "utilisation", s->utilisation);
	fo_json_real(j, "gpu_operations", s->ops);
	fo_json_close(j);
}

static void json_lists(const struct fo_traces_versus *v, struct fo_json *j)
{
	fo_json_array(j, "kernels");
	for (int64_t i = 0; i < v->kernels; i++) {
		fo_json_object(j, NULL);
		fo_json_text(j, "name", v->kernel[i].name);
		fo_json_text(j, "class", fo_kernel_class_name[v->kernel[i].class]);
		fo_json_real(j, "a_calls", v->kernel[i].calls[0]);
		fo_json_real(j, "b_calls", v->kernel[i].calls[1]);
		json_figure(j, &v->kernel[i].f);
		fo_json_close(j);
	}
	fo_json_close(j);
	fo_json_array(j, "collectives");
	for (int64_t i = 0; i < v->collectives; i++) {
		const struct fo_traces_collective *c = &v->collective[i];
		fo_json_object(j, NULL);
		fo_json_text(j, "name", c->name);
		fo_json_int(j, "group_size", c->group_size);
		fo_json_real(j, "a_calls", c->calls[0]);
		fo_json_real(j, "b_calls", c->calls[1]);
		fo_json_real(j, "a_bytes", c->bytes[0]);
		fo_json_real(j, "b_bytes", c->bytes[1]);
		fo_json_real(j, "a_seconds", c->time[0]);
		fo_json_real(j, "b_seconds", c->time[1]);
		fo_json_close(j);
	}
	fo_json_close(j);
	fo_json_array(j, "products");
	for (int64_t i = 0; i < v->products; i++) {
		const struct fo_traces_product *p = &v->product[i];
		const struct fo_product *q = p->in[0] ? p->in[0] : p->in[1];
		fo_json_object(j, NULL);
		fo_json_int(j, "m", q->m);
		fo_json_int(j, "n", q->n);
		fo_json_int(j, "k", q->k);
		fo_json_int(j, "batch", q->batch);
		fo_json_text(j, "dtype", q->dtype);
		fo_json_int(j, "a_calls", p->in[0] ? p->in[0]->calls : 0);
		fo_json_int(j, "b_calls", p->in[1] ? p->in[1]->calls : 0);
		fo_json_real(j, "a_call_seconds", p->call_s[0]);
		fo_json_real(j, "b_call_seconds", p->call_s[1]);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void json_waits(const struct fo_diagnosis *d, struct fo_json *j, const char *key)
{
	fo_json_array(j, key);
	for (int i = 0; i < d->waits; i++) {
		fo_json_object(j, NULL);
		fo_json_int(j, "rank", d->wait[i].rank);
		fo_json_int(j, "device", d->wait[i].device);
		fo_json_real(j, "wait_seconds", (double)d->wait[i].wait_ns * 1e-9);
		fo_json_real(j, "transfer_seconds", (double)d->wait[i].transfer_ns * 1e-9);
		fo_json_int(j, "last", d->wait[i].last);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void print_json(const struct fo_traces_versus *v, const char *const path[2])
{
	struct fo_json *j = fo_cli_json_begin();
	fo_json_text(j, "of", "traces");
	json_side(j, "a", &v->side[0], path[0]);
	json_side(j, "b", &v->side[1], path[1]);
	fo_json_bool(j, "steps_on_both_sides", v->windows);
	fo_json_bool(j, "step_time_resolved", v->part[0].f.resolved);
	fo_json_array(j, "parts");
	for (int i = 0; i < v->parts; i++) {
		fo_json_object(j, NULL);
		fo_json_text(j, "part", v->part[i].id);
		fo_json_bool(j, "leaf", v->part[i].leaf);
		json_figure(j, &v->part[i].f);
		fo_json_close(j);
	}
	fo_json_close(j);
	json_lists(v, j);
	json_waits(v->side[0].d, j, "a_waits");
	json_waits(v->side[1].d, j, "b_waits");
	fo_json_array(j, "causes");
	for (int64_t i = 0; i < v->causes; i++)
		fo_json_text(j, NULL, v->cause[i]);
	fo_json_close(j);
	fo_cli_json_end(j);
}

/* ---- both ---- */

static fo_status compare(const struct fo_diagnosis *a, const struct fo_diagnosis *b, const char *const path[2],
			 bool all, bool json)
{
	struct fo_traces_versus v;
	fo_traces_versus_make(&v, a, b);
	for (int k = 0; k < 2; k++)
		if (!v.side[k].rank) {
			fo_traces_versus_fini(&v);
			return fo_hint(fo_fail(FO_EARG, "'%s' has no GPU operations: nothing to compare", path[k]),
				       "'flatout diagnose' says what is in a trace");
		}
	if (json) {
		print_json(&v, path);
	} else {
		print_head(&v, path);
		print_verdict(&v);
		print_explanation(&v, all);
		print_figures(&v);
		print_parts(&v);
		print_kernels(&v, all);
		print_collectives(&v, all);
		print_products(&v, all);
		print_ranks(&v, all);
	}
	fo_traces_versus_fini(&v);
	return FO_OK;
}

fo_status fo_cli_compare_traces(const char *a, const char *b, const struct fo_diagnose_options *o, bool all, bool json)
{
	const char *const path[2] = { a, b };
	struct fo_trace_set set[2];
	struct fo_diagnosis d[2];
	fo_status st;
	FO_TRY(fo_trace_set_open(&set[0], &path[0], 1));
	FO_TRY_OR(st, fo_trace_set_open(&set[1], &path[1], 1), done_0);
	FO_TRY_OR(st, fo_diagnose(&d[0], &set[0], o), done_1);
	FO_TRY_OR(st, fo_diagnose(&d[1], &set[1], o), done_d);
	st = compare(&d[0], &d[1], path, all, json);
	fo_diagnosis_fini(&d[1]);
done_d:
	fo_diagnosis_fini(&d[0]);
done_1:
	fo_trace_set_fini(&set[1]);
done_0:
	fo_trace_set_fini(&set[0]);
	return st;
}
