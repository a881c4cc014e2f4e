/* The kinds of communication of a step: how many operations, how long, how large. */
#include "diagnose/findings_int.h"

#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"

#include <stdlib.h>

/* The record of the collective tells its kind where there is one: newer libraries use one kernel for several kinds. */
static enum fo_comm_kind kind_of(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	static const struct {
		const char *part;
		enum fo_comm_kind kind;
	} known[] = {
		{ "allreduce", FO_COMM_ALL_REDUCE },          { "all_reduce", FO_COMM_ALL_REDUCE },
		{ "reduce_scatter", FO_COMM_REDUCE_SCATTER }, { "reducescatter", FO_COMM_REDUCE_SCATTER },
		{ "allgather", FO_COMM_ALL_GATHER },          { "all_gather", FO_COMM_ALL_GATHER },
		{ "alltoall", FO_COMM_ALL_TO_ALL },           { "all_to_all", FO_COMM_ALL_TO_ALL },
		{ "dispatch", FO_COMM_ALL_TO_ALL },           { "combine", FO_COMM_ALL_TO_ALL },
		{ "send", FO_COMM_POINT_TO_POINT },           { "recv", FO_COMM_POINT_TO_POINT },
	};
	const char *text[2] = { g->collective >= 0 ? fo_trace_text(t, t->collective[g->collective].name) : "",
				fo_trace_text(t, g->name) };
	for (int k = 0; k < 2; k++)
		for (size_t i = 0; *text[k] && i < sizeof known / sizeof *known; i++)
			if (fo_text_mentions(text[k], known[i].part))
				return known[i].kind;
	return FO_COMM_OTHER;
}

/* A tensor-parallel group reduces activations layer by layer, which no bucket can gather. */
static bool tensor_parallel(const struct fo_trace *t, const struct fo_collective *c)
{
	return fo_text_mentions(fo_trace_text(t, c->group), "tensor") ||
	       fo_text_mentions(fo_trace_text(t, c->purpose), "tensor") ||
	       fo_text_has_word(fo_trace_text(t, c->group), "tp") ||
	       fo_text_has_word(fo_trace_text(t, c->purpose), "tp");
}

void fo_comm_kinds_of(const struct fo_subject *s, struct fo_comm_kinds *out)
{
	const struct fo_trace *t = s->t;
	int64_t first, end, n = 0;
	*out = (struct fo_comm_kinds){ 0 };
	fo_subject_ops(t, s->id, s->begin_ns, s->end_ns, &first, &end);
	int64_t *length = fo_xmalloc((size_t)(end - first + 1) * sizeof *length);
	for (int64_t i = first; i < end; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		if (g->class != FO_K_COMMUNICATION || g->begin_ns < s->begin_ns)
			continue;
		enum fo_comm_kind kind = kind_of(t, g);
		int64_t ns = g->end_ns - g->begin_ns;
		bool tp = g->collective >= 0 && tensor_parallel(t, &t->collective[g->collective]);
		out->tensor_parallel |= tp;
		out->ns[kind] += ns;
		out->all_ns += ns;
		if (kind != FO_COMM_ALL_REDUCE || tp)
			continue;
		length[n++] = ns;
		out->reduce_bytes += g->collective >= 0 && t->collective[g->collective].bytes > 0
					     ? t->collective[g->collective].bytes
					     : 0;
	}
	qsort(length, (size_t)n, sizeof *length, fo_by_int64);
	out->reduces = n / s->steps;
	out->reduce_median_ns = n ? length[n / 2] : 0;
	for (int64_t i = 0; i < n; i++)
		out->reduce_ns += length[i];
	out->reduce_ns /= s->steps;
	out->reduce_bytes /= s->steps;
	free(length);
}

/* ---- what communication is for ---- */

static int purpose_at(struct fo_comm_purpose *out, int n, int32_t text)
{
	int i = 0;
	while (i < n && out[i].text != text)
		i++;
	return i;
}

static int most_exposed_first(const void *a, const void *b)
{
	const struct fo_comm_purpose *x = a, *y = b;
	return FO_ORDER_BY(fo_order(y->exposed_ns, x->exposed_ns), fo_order(y->hidden_ns, x->hidden_ns),
			   fo_order(x->text, y->text));
}

int fo_comm_purposes(const struct fo_trace *t, int16_t device, int64_t begin_ns, int64_t end_ns,
		     struct fo_comm_purpose out[FO_COMM_PURPOSES])
{
	struct fo_intervals compute = { 0 }, taken = { 0 };
	int64_t first, end;
	int n = 0;
	fo_subject_ops(t, device, begin_ns, end_ns, &first, &end);
	for (int64_t i = first; i < end; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		const int32_t text = g->collective >= 0 ? t->collective[g->collective].purpose : -1;
		if (g->class < FO_K_COMPUTE_COUNT)
			fo_intervals_add(&compute, g->begin_ns, g->end_ns);
		if (g->class == FO_K_COMMUNICATION && purpose_at(out, n, text) == n && n < FO_COMM_PURPOSES)
			out[n++] = (struct fo_comm_purpose){ .text = text };
	}
	fo_intervals_unite(&compute);
	for (int k = 0; k < n; k++) {
		struct fo_intervals all = { 0 }, own = { 0 }, bare = { 0 };
		for (int64_t i = first; i < end; i++) {
			const struct fo_gpu_op *g = &t->gpu[i];
			const int32_t text = g->collective >= 0 ? t->collective[g->collective].purpose : -1;
			if (g->class == FO_K_COMMUNICATION && text == out[k].text)
				fo_intervals_add(&all, g->begin_ns, g->end_ns);
		}
		fo_intervals_unite(&all);
		fo_intervals_subtract(&own, &all, &taken);
		fo_intervals_subtract(&bare, &own, &compute);
		out[k].exposed_ns = fo_intervals_within(&bare, begin_ns, end_ns);
		out[k].hidden_ns = fo_intervals_within(&own, begin_ns, end_ns) - out[k].exposed_ns;
		for (size_t i = 0; i < own.n; i++)
			fo_intervals_add(&taken, own.v[i].begin, own.v[i].end);
		fo_intervals_unite(&taken);
		fo_intervals_fini(&all);
		fo_intervals_fini(&own);
		fo_intervals_fini(&bare);
	}
	fo_intervals_fini(&compute);
	fo_intervals_fini(&taken);
	qsort(out, (size_t)n, sizeof *out, most_exposed_first);
	return n;
}
