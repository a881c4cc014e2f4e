#include "train/generate.h"
#include "train/setup.h"
#include "base/clock.h"
#include "base/count.h"
#include "pass/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct fo_generator {
	struct fo_program many, one; /* a chunk; one token */
	struct fo_exec *many_exec, *one_exec;
	struct fo_ports ports;
	int64_t length, steps;
};

static fo_status set_up(struct fo_generator *g, const struct fo_model *m, struct fo_lowering low, struct fo_store *s,
			const struct fo_exec_options *o, struct fo_exec *share)
{
	FO_TRY(fo_pass_build(&g->many, m, &low));
	low.seq = 1;
	FO_TRY(fo_pass_build(&g->one, m, &low));
	FO_TRY(fo_store_add(s, &g->one)); /* what persists is the same in both */
	g->ports.logits = fo_xmalloc((size_t)m->vocab * sizeof(float));
	fo_status st = fo_exec_new(&g->many_exec, &g->many, s, o, fo_ports_serve, &g->ports, share);
	if (st == FO_OK)
		st = fo_exec_new(&g->one_exec, &g->one, s, o, fo_ports_serve, &g->ports, share ? share : g->many_exec);
	return st;
}

fo_status fo_generator_new(struct fo_generator **out, const struct fo_model *m, enum fo_numerics precision,
			   const struct fo_passes *passes, struct fo_store *s, const struct fo_exec_options *o,
			   int64_t context, int64_t chunk, struct fo_exec *share)
{
	struct fo_generator *g = fo_xmalloc(sizeof *g);
	struct fo_lowering low = { .seq = chunk,
				   .rows = 1,
				   .micro_batches = 1,
				   .precision = precision,
				   .mode = FO_MODE_DECODE,
				   .context = context };
	if (passes)
		low.pass = *passes;
	fo_status st = set_up(g, m, low, s, o, share);
	if (st != FO_OK) {
		fo_generator_free(g);
		return st;
	}
	*out = g;
	return FO_OK;
}

void fo_generator_free(struct fo_generator *g)
{
	if (!g)
		return;
	fo_exec_free(g->one_exec);
	fo_exec_free(g->many_exec);
	fo_program_fini(&g->one);
	fo_program_fini(&g->many);
	free(g->ports.logits);
	free(g);
}

fo_status fo_generator_push(struct fo_generator *g, const int32_t *ids, int64_t n)
{
	int64_t context = g->many.run.context, chunk = g->many.run.seq;
	if (n > context - g->length)
		return fo_fail(FO_EARG, "the text has %lld tokens and would get %lld more: at most %lld fit",
			       (long long)g->length, (long long)n, (long long)context);
	for (int64_t i = 0; i < n; i++)
		if (ids[i] < 0 || ids[i] >= g->many.model.vocab)
			return fo_fail(FO_EARG, "token %lld is id %d, the model's vocabulary has %lld", (long long)i,
				       ids[i], (long long)g->many.model.vocab);
	while (n) {
		int64_t take = n < chunk ? n : chunk;
		g->ports.chunk = ids;
		g->ports.chunk_tokens = take;
		g->ports.chunk_begin = g->length;
		FO_TRY(fo_exec_step(take == 1 ? g->one_exec : g->many_exec, (int32_t)(g->steps++ & INT32_MAX)));
		g->length += take;
		ids += take;
		n -= take;
	}
	return FO_OK;
}

const float *fo_generator_logits(const struct fo_generator *g) { return g->ports.logits; }
int64_t fo_generator_length(const struct fo_generator *g) { return g->length; }
int64_t fo_generator_context(const struct fo_generator *g) { return g->many.run.context; }
void fo_generator_clear(struct fo_generator *g) { g->length = 0; }

double fo_generator_step_bytes(const struct fo_generator *g)
{
	int64_t window = g->one.model.sliding_window, keys = g->length + 1;
	return fo_program_cost(&g->one, (double)(window && keys > window ? window : keys)).bytes;
}

/* ---- drawing the next token ---- */

#define STREAM 0x5a3b1e /* apart from the streams of weights and documents */

void fo_sampler_init(struct fo_sampler *s, const struct fo_sampling *how, int64_t vocab)
{
	*s = (struct fo_sampler){ .how = *how, .vocab = vocab };
	s->id = fo_xmalloc((size_t)vocab * sizeof *s->id);
	s->heap = fo_xmalloc((size_t)vocab * sizeof *s->heap);
	s->p = fo_xmalloc((size_t)vocab * sizeof *s->p);
}

void fo_sampler_fini(struct fo_sampler *s)
{
	free(s->id);
	free(s->heap);
	free(s->p);
	*s = (struct fo_sampler){ 0 };
}

static bool before(const float *logits, int32_t a, int32_t b)
{
	return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

static void sink(int32_t *heap, int64_t n, int64_t at, const float *logits)
{
	int32_t x = heap[at];
	for (int64_t child; (child = 2 * at + 1) < n; at = child) {
		if (child + 1 < n && before(logits, heap[child + 1], heap[child]))
			child++;
		if (!before(logits, heap[child], x))
			break;
		heap[at] = heap[child];
	}
	heap[at] = x;
}

/* Takes candidates in rank order until there are k, or their weights reach top_p of `mass` (< 0: of the k together).
 * Returns the weight of those kept. A heap, not a sort: few of a large vocabulary are wanted. */
static double rank(struct fo_sampler *s, const float *logits, float top, int64_t k, double mass)
{
	int64_t n = s->vocab;
	double sum = 0;
	for (int64_t i = 0; i < n; i++)
		s->heap[i] = (int32_t)i;
	for (int64_t i = n / 2 - 1; i >= 0; i--)
		sink(s->heap, n, i, logits);
	for (s->kept = 0; s->kept < k && !(mass >= 0 && s->kept && sum >= s->how.top_p * mass); s->kept++) {
		s->id[s->kept] = s->heap[0];
		sum += s->p[s->kept] = exp(((double)logits[s->heap[0]] - top) / s->how.temperature);
		s->heap[0] = s->heap[--n];
		sink(s->heap, n, 0, logits);
	}
	if (mass < 0 && s->how.top_p < 1) {
		double want = s->how.top_p * sum;
		sum = 0;
		k = s->kept;
		for (s->kept = 0; s->kept < k && !(s->kept && sum >= want); s->kept++)
			sum += s->p[s->kept];
	}
	return sum;
}

int32_t fo_sampler_draw(struct fo_sampler *s, const float *logits, uint64_t index)
{
	int32_t best = 0;
	for (int64_t i = 0; i < s->vocab; i++) {
		if (isnan(logits[i]))
			return -1;
		if (logits[i] > logits[best])
			best = (int32_t)i;
	}
	float top = logits[best];
	if (!isfinite(top))
		return -1;
	if (s->how.temperature == 0) {
		s->kept = 1;
		s->id[0] = best;
		s->p[0] = 1;
		return best;
	}
	bool some = s->how.top_k > 0 && s->how.top_k < s->vocab;
	double sum = 0;
	if (!some) {
		for (int64_t i = 0; i < s->vocab; i++) {
			s->id[i] = (int32_t)i;
			sum += s->p[i] = exp(((double)logits[i] - top) / s->how.temperature);
		}
		s->kept = s->vocab;
	}
	if (some)
		sum = rank(s, logits, top, s->how.top_k, -1);
	else if (s->how.top_p < 1)
		sum = rank(s, logits, top, s->vocab, sum);
	double u = fo_rng_uniform(s->how.seed + STREAM, index);
	int32_t drawn = -1;
	for (int64_t i = 0; i < s->kept; i++) {
		s->p[i] /= sum;
		if (drawn < 0 && (u -= s->p[i]) < 0)
			drawn = s->id[i];
	}
	return drawn < 0 ? best : drawn; /* u within the rounding of the sum */
}

/* ---- the sample at the end of a run ---- */

#define SAMPLE_CHUNK 64 /* prompts of samples are short */

static fo_status continue_prompt(struct fo_setup *s, struct fo_generator *g, struct fo_sampler *draw, char **text)
{
	const struct fo_tokenizer *t = s->corpus.tokenizer;
	int32_t *ids = NULL;
	size_t n = 0, cap = 0;
	fo_array_room(&ids, &cap, 0, sizeof *ids);
	ids[n++] = fo_tokenizer_bos(t);
	fo_status st = fo_tokenizer_encode(t, s->run->prompt, strlen(s->run->prompt), &ids, &n, &cap);
	/* A prompt that is longer than the context is truncated at the front. */
	size_t room = (size_t)fo_generator_context(g), skip = n > room ? n - room : 0;
	if (st == FO_OK)
		st = fo_generator_push(g, ids + skip, (int64_t)(n - skip));
	for (int64_t i = 0; i < s->run->sample_tokens && st == FO_OK; i++) {
		int32_t id = fo_sampler_draw(draw, fo_generator_logits(g), (uint64_t)i);
		if (id < 0 || id == fo_tokenizer_eos(t))
			break;
		fo_array_room(&ids, &cap, n, sizeof *ids);
		ids[n++] = id;
		if (fo_generator_length(g) == fo_generator_context(g))
			break;
		st = fo_generator_push(g, &id, 1);
	}
	if (st == FO_OK) {
		struct fo_str out = { 0 };
		fo_str_puts(&out, "");
		fo_tokenizer_decode_text(t, ids + 1, n - 1, &out); /* BOS is not text */
		*text = out.data;
	}
	free(ids);
	return st;
}

/* A store of all weights for as long as the sample takes, where ranks share or divide them; else *out NULL: rank 0's
 * has all. */
static fo_status whole_weights(struct fo_setup *s, struct fo_store **out)
{
	const struct fo_program *p = &s->step.program;
	struct fo_lowering low = { .seq = 1,
				   .rows = 1,
				   .micro_batches = 1,
				   .precision = p->run.precision,
				   .mode = FO_MODE_DECODE,
				   .context = s->run->seq,
				   .pass = p->run.pass };
	struct fo_program one;
	bool parts = false;
	for (int i = 0; i < p->nbuf; i++)
		parts |= p->buf[i].home == FO_HOME_PARAM && (p->buf[i].whole || p->buf[i].tp);
	if (!parts && !p->staged)
		return FO_OK;
	FO_TRY(fo_pass_build(&one, &s->step.model, &low));
	fo_status st = fo_store_new(out, &one);
	if (st == FO_OK)
		st = fo_team_lend(s->step.team, &s->keep, *out, &one);
	if (st != FO_OK) {
		fo_store_free(*out);
		*out = NULL;
	}
	fo_program_fini(&one);
	return st;
}

fo_status fo_setup_sample(struct fo_setup *s, char **text)
{
	const struct fo_sampling how = { .temperature = 0.8, .top_k = 40, .top_p = 1, .seed = (uint64_t)s->run->seed };
	struct fo_generator *g;
	struct fo_sampler draw;
	int64_t context = s->run->seq, vocab = fo_tokenizer_vocab(s->corpus.tokenizer);
	struct fo_store *store = NULL;
	FO_TRY(whole_weights(s, &store));
	fo_status st = fo_generator_new(&g, &s->step.model, s->step.program.run.precision, &s->step.program.run.pass,
					store ? store : s->step.store, &s->step.options, context,
					fo_min(context, SAMPLE_CHUNK), s->step.exec);
	if (st == FO_OK) {
		fo_sampler_init(&draw, &how, vocab < s->step.model.vocab ? vocab : s->step.model.vocab);
		st = continue_prompt(s, g, &draw, text);
		fo_sampler_fini(&draw);
		fo_generator_free(g);
	}
	fo_store_free(store);
	return st;
}
