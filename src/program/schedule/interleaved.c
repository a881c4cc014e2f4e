/* Interleaved 1F1B: each stage holds several chunks of the model, far from each other, so the pipeline fills in a
 * fraction of the time; it sends as many times more.
 *
 * Narayanan et al. 2021 (arXiv:2104.04473), section 2.2.2 and figure 4 (bottom). Micro-batches go in groups: a stage
 * runs its first chunk on the whole group, then its second chunk, and so on; backwards take the chunks from the last to
 * the first. The paper, and Megatron-LM after it, wants groups of exactly p micro-batches, hence a multiple of p.
 *
 * Here any number is legal. A group must have at least p micro-batches, or the next chunk's first one is not back in
 * time; so there are m / p groups (rounded down, at least one), as equal as can be. Larger groups cost memory
 * (in_flight), never time. With m < p there is one group, and stages wait. */
#include "program/schedule/schedule_int.h"

/* Counts through micro-batches x chunks in the order above. */
struct turn {
	const struct fo_pp_shape *p;
	int32_t groups, group, first, size; /* size: of the group, whose first micro-batch is `first` */
	int32_t chunk, at;
};

static int32_t groups_of(const struct fo_pp_shape *p)
{
	return p->micro_batches < p->stages ? 1 : p->micro_batches / p->stages;
}
/* The first groups take what remains. */
static int32_t size_of(const struct fo_pp_shape *p, int32_t group)
{
	const int32_t groups = groups_of(p);
	return p->micro_batches / groups + (group < p->micro_batches % groups);
}
static struct turn first_turn(const struct fo_pp_shape *p)
{
	return (struct turn){ .p = p, .groups = groups_of(p), .size = size_of(p, 0) };
}
static void next_turn(struct turn *t)
{
	if (++t->at < t->size)
		return;
	t->at = 0;
	if (++t->chunk < t->p->chunks)
		return;
	t->chunk = 0;
	t->first += t->size;
	if (++t->group < t->groups)
		t->size = size_of(t->p, t->group);
}

/* Forwards before the first pair of forward and backward: the group's chunks but the last, and two for each stage
 * behind this one (one to get there, one because the gradients come from twice as far). */
static int64_t warm_up(const struct fo_pp_shape *p, int32_t stage)
{
	const int64_t all = (int64_t)p->micro_batches * p->chunks;
	const int64_t warm = 2 * (int64_t)(p->stages - 1 - stage) + (int64_t)(p->chunks - 1) * size_of(p, 0);
	return warm < all ? warm : all;
}

static void forward(struct fo_pp_list *l, struct turn *t)
{
	fo_pp_put(l, FO_PP_FORWARD, t->first + t->at, t->chunk);
	next_turn(t);
}

static int64_t order(const struct fo_pp_shape *p, int32_t stage, struct fo_pp_slot *out)
{
	struct fo_pp_list l = { out, 0 };
	struct turn ahead = first_turn(p), back = ahead;
	const int64_t all = (int64_t)p->micro_batches * p->chunks, warm = warm_up(p, stage);
	for (int64_t i = 0; i < warm; i++)
		forward(&l, &ahead);
	for (int64_t i = 0; i < all; i++) {
		if (warm + i < all)
			forward(&l, &ahead);
		fo_pp_put(&l, FO_PP_BACKWARD, back.first + back.at, p->chunks - 1 - back.chunk);
		next_turn(&back);
	}
	return l.n;
}

static int64_t in_flight(const struct fo_pp_shape *p, int32_t stage)
{
	const int64_t all = (int64_t)p->micro_batches * p->chunks, held = warm_up(p, stage) + 1;
	return held < all ? held : all;
}

/* With m < p the first micro-batch goes through all p v parts while m of them fill each stage: p v + m - 1 parts
 * forward, as many backward, of which m v are work. It is the paper's formula at m = p. */
static void formula(struct fo_pp_formula *out, const struct fo_pp_shape *p, double forward, double input, double weight)
{
	const double part = (forward + input + weight) / p->chunks;
	out->idle_s = (p->stages - 1) * part;
	out->text = "(p - 1) (F + B) / v";
	out->source = "Narayanan et al. 2021, section 2.2.2: (p - 1) / (v m) of the ideal time";
	out->condition = "equal parts; at least as many micro-batches as stages";
	if (p->micro_batches >= p->stages)
		return;
	out->idle_s = ((double)p->chunks * (p->stages - p->micro_batches) + p->micro_batches - 1) * part;
	out->text = "(v (p - m) + m - 1) (F + B) / v";
	out->source = "counted here: one micro-batch's way through all parts, and m - 1 behind it";
	out->condition = "equal parts; fewer micro-batches than stages";
}

const struct fo_pp_row fo_pp_interleaved = { order, in_flight, formula };
