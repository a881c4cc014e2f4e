/* DualPipe-V: each stage holds two chunks of the model, one on the way down a V and one on the way up, so the first
 * stage has embedding and head, and forwards of one chunk run beside backwards of the other.
 *
 * DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024 (arXiv:2412.19437), section 3.2.1 and figure 5: DualPipe, which
 * feeds micro-batches from both ends and holds every part of the model twice. The V-shaped half of it needs no second
 * copy: Qi et al., "Cut-in-half", 2025 (huggingface.co/blog/ufotalent/cut-in-half). The eight steps below are those of
 * DeepSeek's published description of DualPipeV; m >= 2 p.
 *
 * A pair "forward beside backward" is two slots here, forward first. Both descriptions overlap the two to hide expert
 * parallelism's communication: their time of a pair, F&B, is F + B here. */
#include "program/schedule/schedule_int.h"

#include <math.h>

struct state {
	struct fo_pp_list l;
	int32_t forward[2], back[2]; /* the next micro-batch, by chunk */
	int64_t owed;                /* WEIGHT slots not put yet, behind the INPUT slots before */
	int64_t at;                  /* the first slot that may be an INPUT without WEIGHT */
};

static void forward(struct state *s, int32_t chunk) { fo_pp_put(&s->l, FO_PP_FORWARD, s->forward[chunk]++, chunk); }
static void whole(struct state *s, int32_t chunk) { fo_pp_put(&s->l, FO_PP_BACKWARD, s->back[chunk]++, chunk); }
static void input(struct state *s, int32_t chunk)
{
	fo_pp_put(&s->l, FO_PP_INPUT, s->back[chunk]++, chunk);
	s->owed++;
}
/* The weights' gradient that waits longest. */
static void weight(struct state *s)
{
	while (s->l.slot[s->at].work != FO_PP_INPUT)
		s->at++;
	const struct fo_pp_slot of = s->l.slot[s->at++];
	fo_pp_put(&s->l, FO_PP_WEIGHT, of.mb, of.chunk);
	s->owed--;
}
static void backward(struct state *s, int32_t chunk, bool parted)
{
	if (parted)
		input(s, chunk);
	else
		whole(s, chunk);
}

static int64_t order(const struct fo_pp_shape *p, int32_t stage, struct fo_pp_slot *out)
{
	struct state s = { .l = { out, 0 } };
	const int32_t behind = p->stages - 1 - stage;
	bool parted = false;
	for (int32_t i = 0; i < 2 * behind; i++) /* 1: the first chunk fills */
		forward(&s, 0);
	for (int32_t i = 0; i <= stage; i++) { /* 2: the second one, too */
		forward(&s, 0);
		forward(&s, 1);
	}
	for (int32_t i = 0; i < behind; i++) { /* 3: gradients come back */
		input(&s, 1);
		weight(&s);
		forward(&s, 1);
	}
	for (int32_t i = 0; i < p->micro_batches - 2 * p->stages + stage + 1; i++) { /* 4: the steady state */
		forward(&s, 0);
		whole(&s, 1);
		forward(&s, 1);
		whole(&s, 0);
	}
	for (int32_t i = 0; i < behind; i++) { /* 5: the first chunk has no forwards any more */
		whole(&s, 1);
		forward(&s, 1);
		whole(&s, 0);
	}
	for (int32_t i = 0; i <= stage; i++) { /* 6: backwards alone, the second half of them parted */
		const bool half = i == (stage + 1) / 2;
		parted |= half && stage % 2 == 1;
		backward(&s, 1, parted);
		parted |= half && stage % 2 == 0;
		backward(&s, 0, parted);
	}
	for (int32_t i = 0; i < behind; i++) { /* 7 */
		weight(&s);
		input(&s, 0);
	}
	while (s.owed) /* 8 */
		weight(&s);
	return s.l.n;
}

/* 2 p + 1 of the parts' activations, which are half a stage's: table 2 of the report. */
static int64_t in_flight(const struct fo_pp_shape *p, int32_t stage)
{
	(void)stage;
	return 2 * p->stages + 1;
}

static void formula(struct fo_pp_formula *out, const struct fo_pp_shape *p, double forward, double input, double weight)
{
	/* Parts are half a stage's. F&B + B - 3 W with B = I + W and F&B = F + B. */
	out->idle_s = (p->stages - 1) * (forward + 2 * input - weight) / 2;
	out->text = "(p - 1) (F + 2 I - W) / 2";
	out->source = "DeepSeek-V3 report, table 2: (PP / 2 - 1) (F&B + B - 3 W) with PP = 2 p parts and F&B = F + B";
	out->condition = "equal parts; F no longer than I + W";
	out->bound = true; /* an overlapped pair ends as one; here its forward is passed on at once */
	if (p->stages > 1 && forward > input + weight)
		out->idle_s = NAN;
}

const struct fo_pp_row fo_pp_dualpipe_v = { order, in_flight, formula };
