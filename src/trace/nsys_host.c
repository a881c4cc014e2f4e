/* Reads what the hosts did: calls of the runtime and driver, NVTX ranges and the steps among them, threads; and what
 * the profiler says of itself. */
#define _GNU_SOURCE /* strcasestr */
#include "trace/nsys_int.h"

#include "base/count.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- calls ---- */

/* "cudaLaunchKernel_v7000": the version of the interface is no part of the name. */
static size_t without_version(const char *name, size_t n)
{
	size_t at = n;
	while (at && isdigit((unsigned char)name[at - 1]))
		at--;
	return at < n && at > 2 && name[at - 1] == 'v' && name[at - 2] == '_' ? at - 2 : n;
}

static struct group *group_of_thread(struct nsys *x, const struct nsys_row *r, int column, int64_t *process,
				     int32_t *thread)
{
	int64_t global = nsys_int(r, column, 0);
	*process = x->one_process ? 0 : nsys_process(global);
	struct group *g = nsys_group_of_process(x, *process);
	if (g)
		*thread = fo_trace_thread(&g->b, nsys_process(global) & 0xffffff, nsys_thread(global));
	return g;
}

static void take_call(struct nsys *x, const struct nsys_row *r)
{
	int64_t process, start = nsys_time(r, 0), end = nsys_time(r, 1);
	int32_t thread;
	size_t n;
	struct group *g = group_of_thread(x, r, 3, &process, &thread);
	if (!g)
		return;
	g->b.t->defect.events++;
	if (start == NSYS_NO_TIME || end == NSYS_NO_TIME) {
		g->b.t->defect.malformed++;
		return;
	}
	struct fo_launch *l = fo_trace_add_launch(&g->b, start, end);
	l->thread = thread;
	l->correlation = nsys_correlation(x, process, nsys_int(r, 4, -1));
	const char *name = nsys_string(x, nsys_int(r, 2, -1), &n);
	if (name)
		l->name = fo_trace_intern(&g->b, name, without_version(name, n));
}

/* ---- steps ---- */

/* Words that trainers put on a step's range (Megatron-LM, NeMo, torchtitan, Lightning and plain loops). */
static bool names_a_step(const char *word, size_t n)
{
	static const char known[] = "|step|iteration|iter|train_step|train step|training_step|training step|train_iter|"
				    "train_iteration|train iteration|training_iteration|training iteration|global_step|"
				    "global step|trainstep|profilerstep|profiler_step|train_batch|run_training_batch|";
	char key[32];
	if (n + 3 > sizeof(key) || memchr(word, '|', n))
		return false;
	snprintf(key, sizeof(key), "|%.*s|", (int)n, word);
	return strcasestr(known, key) != NULL;
}

/* "iteration 12", "Step: 3", "ProfilerStep#7", "train_step_4", "[step 9]", "iteration": *stem is the length of the
 * words in front of the number, which is -1 without. */
static bool step_text(const char *text, size_t n, size_t *from, size_t *stem, int64_t *number)
{
	while (n && strchr(")] \t", text[n - 1]))
		n--;
	size_t digits = n;
	while (digits && isdigit((unsigned char)text[digits - 1]))
		digits--;
	*number = -1;
	if (digits < n) {
		if (n - digits > 15)
			return false;
		*number = 0;
		for (size_t i = digits; i < n; i++)
			*number = *number * 10 + (text[i] - '0');
	}
	size_t end = digits;
	while (end && strchr(" _#:=-([\t", text[end - 1]))
		end--;
	*from = 0;
	while (*from < end && strchr(" ([\t", text[*from]))
		++*from;
	*stem = end - *from;
	return names_a_step(text + *from, *stem);
}

static void offer_step(struct group *g, const char *text, size_t n, int64_t begin, int64_t end, int32_t thread)
{
	size_t from, stem;
	int64_t number;
	if (!step_text(text, n, &from, &stem, &number))
		return;
	fo_array_room(&g->candidate, &g->candidate_cap, g->candidates, sizeof(*g->candidate));
	g->candidate[g->candidates++] = (struct candidate){ .number = number,
							    .begin_ns = begin,
							    .end_ns = end,
							    .stem = fo_trace_intern(&g->b, text + from, stem),
							    .thread = thread };
}

static int by_kind(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	return FO_ORDER_BY(fo_order(x->stem, y->stem), fo_order(x->thread, y->thread),
			   fo_order(x->begin_ns, y->begin_ns));
}

static double span(const struct candidate *c)
{
	return c->end_ns > c->begin_ns ? (double)c->end_ns - (double)c->begin_ns : 0;
}

/* Ranges of one text on one thread: of several kinds that which covers the most time is the step, what lies inside it a
 * part of one. */
static void choose_steps(struct group *g)
{
	size_t best = 0, best_n = 0, n;
	double most = 0;
	if (g->candidates)
		qsort(g->candidate, g->candidates, sizeof(*g->candidate), by_kind);
	for (size_t i = 0; i < g->candidates; i += n) {
		const struct candidate *c = &g->candidate[i];
		double covered = 0;
		for (n = 0; i + n < g->candidates && c[n].stem == c->stem && c[n].thread == c->thread; n++)
			covered += span(&c[n]);
		if (covered > most) {
			most = covered;
			best = i;
			best_n = n;
		}
	}
	for (size_t i = 0; i < best_n; i++) {
		const struct candidate *c = &g->candidate[best + i];
		fo_trace_add_step(&g->b, c->number >= 0 ? c->number : (int64_t)i, c->begin_ns, c->end_ns)->thread =
			c->thread;
	}
}

/* ---- ranges ---- */

/* The length of "[[4096, 4096], [4096]]" at text. */
static size_t brackets(const char *text)
{
	size_t n = 0;
	for (int depth = 0; text[n]; n++) {
		depth += (text[n] == '[') - (text[n] == ']');
		if (depth <= 0)
			return text[0] == '[' ? n + 1 : 0;
	}
	return 0;
}

/* torch.autograd.profiler.emit_nvtx and nsys' --pytorch: "aten::mm, seq = 12, op_id = 33, sizes = [[2, 4], [4, 8]],
 * ...". */
static void describe(struct group *g, struct fo_host_op *o, const char *text, size_t n)
{
	enum { SEQUENCE, NUMBER, SIZES, INPUTS, FIELDS };
	static const char *const field[FIELDS] = { ", seq = ", ", op_id = ", ", sizes = ", ", input_op_ids = " };
	static const char *const framework[] = { "aten::",  "c10d::",  "autograd::",
						 "torch::", "prims::", "_c10d_functional::" };
	static const char *const shaped[] = { "mm", "matmul", "linear", "conv", "attention", "einsum", NULL };
	const char *value[FIELDS] = { NULL };
	size_t name = n;
	for (int i = 0; i < FIELDS; i++) {
		const char *at = strstr(text, field[i]);
		value[i] = at ? at + strlen(field[i]) : NULL;
		name = at && (size_t)(at - text) < name ? (size_t)(at - text) : name;
	}
	bool is_operator = name < n;
	for (size_t i = 0; i < sizeof(framework) / sizeof(framework[0]); i++)
		is_operator |= strncmp(text, framework[i], strlen(framework[i])) == 0;
	o->name = fo_trace_intern(&g->b, text, name);
	const char *plain = fo_trace_text(g->b.t, o->name);
	o->kind = (uint8_t)fo_trace_host_kind(plain, is_operator ? FO_HOST_OP : FO_HOST_NOTE);
	if (!is_operator)
		return;
	if (value[SEQUENCE] && isdigit((unsigned char)*value[SEQUENCE]))
		o->sequence = strtoll(value[SEQUENCE], NULL, 10);
	size_t bytes = value[SIZES] ? brackets(value[SIZES]) : 0;
	if (bytes && fo_trace_any_of(plain, shaped))
		o->shapes = fo_trace_intern(&g->b, value[SIZES], bytes);
}

/* NsysEventType: what the export's ENUM table has. Other types are marks and definitions of domains. */
enum { PUSH_POP = 59, START_END = 60 };

static void take_range(struct nsys *x, const struct nsys_row *r)
{
	int64_t process, type = nsys_int(r, 2, PUSH_POP);
	int64_t start = nsys_time(r, 0), end = nsys_time(r, 1);
	int32_t thread;
	size_t n;
	if (type != PUSH_POP && type != START_END)
		return;
	struct group *g = group_of_thread(x, r, 3, &process, &thread);
	const char *text = nsys_text(r, 5, &n);
	if (!text)
		text = nsys_string(x, nsys_int(r, 4, -1), &n);
	if (!g || !text)
		return;
	g->b.t->defect.events++;
	if (start == NSYS_NO_TIME || end == NSYS_NO_TIME || end < start) {
		/* A range that was open when the recording ended has no end; any other lacks something. */
		g->b.t->defect.malformed += start == NSYS_NO_TIME || end != NSYS_NO_TIME;
		return;
	}
	struct fo_host_op *o = fo_trace_add_op(&g->b, start, end);
	o->thread = thread;
	describe(g, o, text, n);
	if (o->kind == FO_HOST_NOTE)
		offer_step(g, text, n, start, end, thread);
}

/* ---- names ---- */

static void take_thread_name(struct nsys *x, const struct nsys_row *r)
{
	int64_t global = nsys_int(r, 0, -1);
	struct group *g = nsys_group_of_process(x, x->one_process ? 0 : nsys_process(global));
	size_t n;
	const char *name = nsys_string(x, nsys_int(r, 1, -1), &n);
	for (int64_t i = 0; g && name && i < g->b.t->thread_count; i++)
		if (g->b.t->thread[i].tid == nsys_thread(global) &&
		    g->b.t->thread[i].pid == (nsys_process(global) & 0xffffff))
			g->b.t->thread[i].name = fo_trace_intern(&g->b, name, n);
}

static void take_process_name(struct nsys *x, const struct nsys_row *r)
{
	struct group *g = x->pairs ? nsys_group_of_process(x, nsys_process(nsys_int(r, 0, -1))) : NULL;
	size_t n;
	const char *name = nsys_text(r, 1, &n);
	if (g && name)
		g->b.t->process_name = fo_trace_intern(&g->b, name, n);
}

/* ---- the profiler ---- */

static void take_overhead(struct nsys *x, const struct nsys_row *r)
{
	struct group *g = nsys_group_of_process(x, x->one_process ? 0 : nsys_process(nsys_int(r, 2, 0)));
	if (g)
		fo_trace_add_overhead(&g->b, nsys_int(r, 0, 0), nsys_int(r, 1, 0));
}

/* The number of events that a message says were lost: its greatest number if it counts them, else 1; 0: it speaks of
 * something else. */
static int64_t lost_by(const char *text)
{
	static const char *const counted[] = { "dropped", "lost", "discarded" };
	static const char *const vague[] = { "not all", "might be missing", "may be missing", "overflow" };
	bool counts = false, lost = false;
	for (size_t i = 0; i < sizeof(counted) / sizeof(counted[0]); i++)
		counts |= strcasestr(text, counted[i]) != NULL;
	for (size_t i = 0; i < sizeof(vague) / sizeof(vague[0]); i++)
		lost |= strcasestr(text, vague[i]) != NULL;
	int64_t most = -1;
	for (const char *c = text; counts && *c; c++)
		if (isdigit((unsigned char)*c)) {
			char *end;
			long long v = strtoll(c, &end, 10);
			most = fo_max(v, most);
			c = end - 1;
		}
	return most >= 0 ? most : counts || lost;
}

static void take_diagnostic(struct nsys *x, const struct nsys_row *r)
{
	size_t n;
	const char *text = nsys_text(r, 0, &n);
	int64_t lost = text ? lost_by(text) : 0;
	/* A message of the profiler as a whole holds for every process. */
	struct group *one = nsys_group_of_process(x, nsys_process(nsys_int(r, 1, -1)));
	for (int i = 0; i < x->groups; i++) {
		int64_t *sum = &x->group[i].diagnostics;
		if (*sum < 0)
			*sum = 0;
		if ((!one || one == &x->group[i]) && __builtin_add_overflow(*sum, lost, sum))
			*sum = INT64_MAX;
	}
}

static void take_start(struct nsys *x, const struct nsys_row *r)
{
	for (int i = 0; i < x->groups; i++) { /* the first row that tells one */
		int64_t *origin = &x->group[i].b.t->origin_unix_ns;
		*origin = *origin ? *origin : fo_max(nsys_int(r, 0, 0), 0);
	}
}

static const struct nsys_table tables[] = {
	{ "CUPTI_ACTIVITY_KIND_RUNTIME", 2, take_call, { "start", "end", "nameId", "globalTid", "correlationId" } },
	{ "NVTX_EVENTS", 1, take_range, { "start", "end", "eventType", "globalTid", "textId", "text" } },
	{ "ThreadNames", 2, take_thread_name, { "globalTid", "nameId" } },
	{ "PROCESSES", 2, take_process_name, { "globalPid", "name" } },
	{ "PROFILER_OVERHEAD", 2, take_overhead, { "start", "end", "globalTid" } },
	{ "DIAGNOSTIC_EVENT", 1, take_diagnostic, { "text", "globalPid" } },
	{ "TARGET_INFO_SESSION_START_TIME", 0, take_start, { "utcEpochNs" } },
};

fo_status nsys_read_host(struct nsys *x)
{
	FO_TRY(nsys_read_tables(x, tables, sizeof(tables) / sizeof(tables[0])));
	for (int i = 0; i < x->groups; i++) {
		choose_steps(&x->group[i]);
		x->group[i].b.t->defect.dropped_by_profiler = x->group[i].diagnostics;
	}
	return FO_OK;
}
