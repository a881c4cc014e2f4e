#include "train/generate.h"
#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

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
