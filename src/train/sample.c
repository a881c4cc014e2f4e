#include "train/train_int.h"
#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT 256 /* tokens of the forward program; a longer run.seq buys nothing for a short sample */
#define TEMPERATURE 0.8
#define TOP_K 40

/* One of the TOP_K likeliest ids, drawn with u in [0, 1). */
static int32_t draw(const float *logits, int64_t vocab, double u)
{
	int32_t best[TOP_K] = { 0 };
	int n = 0;
	for (int32_t i = 0; i < vocab; i++) {
		if (n == TOP_K && logits[i] <= logits[best[n - 1]])
			continue;
		int at = n < TOP_K ? n++ : n - 1;
		for (; at > 0 && logits[best[at - 1]] < logits[i]; at--)
			best[at] = best[at - 1];
		best[at] = i;
	}
	double p[TOP_K], sum = 0;
	for (int i = 0; i < n; i++)
		sum += p[i] = exp((logits[best[i]] - logits[best[0]]) / TEMPERATURE);
	for (int i = 0; i < n; i++)
		if ((u -= p[i] / sum) < 0)
			return best[i];
	return best[0];
}

/* The window of the newest tokens as one row: a single document from position 0. */
static void fill_window(struct fo_batch *b, const int32_t *ids, size_t n, int64_t seq, int64_t *last)
{
	size_t begin = n > (size_t)seq ? n - (size_t)seq : 0;
	for (int64_t i = 0; i < seq; i++) {
		b->token[i] = begin + (size_t)i < n ? ids[begin + (size_t)i] : 0;
		b->target[i] = -1;
		b->position[i] = (int32_t)i;
		b->doc_start[i] = 0;
	}
	*last = (int64_t)(n - begin) - 1;
}

static fo_status generate(struct fo_session *s, struct fo_exec *e, struct fo_ports *ports, struct fo_batch *b,
			  int64_t seq, char **text)
{
	int32_t *ids = NULL;
	size_t n = 0, cap = 0;
	fo_array_room(&ids, &cap, 0, sizeof *ids);
	ids[n++] = fo_tokenizer_bos(s->corpus.tokenizer);
	fo_status st = fo_tokenizer_encode(s->corpus.tokenizer, s->r->prompt, strlen(s->r->prompt), &ids, &n, &cap);
	int64_t vocab = fo_tokenizer_vocab(s->corpus.tokenizer);
	size_t skip = 1; /* BOS is not text */
	for (int64_t i = 0; i < s->r->sample_tokens && st == FO_OK; i++) {
		fill_window(b, ids, n, seq, &ports->logits_row);
		st = fo_exec_step(e, (int32_t)i);
		if (st != FO_OK)
			break;
		int32_t id = draw(ports->logits, vocab, fo_rng_uniform((uint64_t)s->r->seed + 0x5a3b1e, (uint64_t)i));
		if (id == fo_tokenizer_eos(s->corpus.tokenizer))
			break;
		fo_array_room(&ids, &cap, n, sizeof *ids);
		ids[n++] = id;
	}
	if (st == FO_OK) {
		struct fo_str out = { 0 };
		fo_str_puts(&out, "");
		fo_tokenizer_decode_text(s->corpus.tokenizer, ids + skip, n - skip, &out);
		*text = out.data;
	}
	free(ids);
	return st;
}

fo_status fo_session_sample(struct fo_session *s, char **text)
{
	struct fo_lowering low = fo_run_lowering(s->r, FO_MODE_LOGITS);
	if (low.seq > CONTEXT)
		low.seq = CONTEXT;
	low.rows = low.micro_batches = 1;
	struct fo_program p;
	struct fo_exec *e = NULL;
	FO_TRY(fo_program_lower(&p, &s->model, &low));
	int32_t *memory = fo_xmalloc((size_t)low.seq * 4 * sizeof *memory);
	struct fo_batch b = { .token = memory,
			      .target = memory + low.seq,
			      .position = memory + 2 * low.seq,
			      .doc_start = memory + 3 * low.seq };
	struct fo_ports ports = { .batch = &b, .logits = fo_xmalloc((size_t)s->model.vocab * sizeof(float)) };
	fo_status st = fo_exec_new(&e, &p, s->store, &s->options, fo_ports_serve, &ports, s->exec);
	if (st == FO_OK)
		st = generate(s, e, &ports, &b, low.seq, text);
	fo_exec_free(e);
	fo_program_fini(&p);
	free(ports.logits);
	free(memory);
	return st;
}
