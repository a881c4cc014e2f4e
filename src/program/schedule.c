/* Kinds of pipeline schedules: what is legal, who holds which part of the model, and what all kinds share. */
#include "program/schedule.h"

#include "base/mem.h"
#include "program/schedule/schedule_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAME(enumerator, name, title, placement, fewest, most) [FO_PP_##enumerator] = name,
const char *const fo_pp_name[FO_PP_KINDS_COUNT] = { FO_PP_KINDS(NAME) };
#define TITLE(enumerator, name, title, placement, fewest, most) [FO_PP_##enumerator] = title,
const char *const fo_pp_title[FO_PP_KINDS_COUNT] = { FO_PP_KINDS(TITLE) };
#define TRAITS(enumerator, name, title, placement, fewest, most) \
	[FO_PP_##enumerator] = { FO_PP_##placement, fewest, most },
static const struct {
	enum fo_pp_placement placement;
	int32_t fewest, most; /* chunks */
} traits[FO_PP_KINDS_COUNT] = { FO_PP_KINDS(TRAITS) };
static const struct fo_pp_row *const rows[FO_PP_KINDS_COUNT] = {
	[FO_PP_GPIPE] = &fo_pp_gpipe, [FO_PP_1F1B] = &fo_pp_1f1b,   [FO_PP_INTERLEAVED] = &fo_pp_interleaved,
	[FO_PP_ZB_H1] = &fo_pp_zb_h1, [FO_PP_ZB_H2] = &fo_pp_zb_h2, [FO_PP_DUALPIPE_V] = &fo_pp_dualpipe_v,
};
const char *const fo_pp_work_name[FO_PP_WORKS] = { "forward", "backward", "backward-input", "backward-weight" };
const char fo_pp_letter[FO_PP_WORKS + 1] = "FBIW";

fo_status fo_pp_kind_of(const char *name, enum fo_pp_kind *out)
{
	struct fo_str names = { 0 };
	for (int k = 0; k < FO_PP_KINDS_COUNT; k++) {
		if (!strcmp(name, fo_pp_name[k])) {
			*out = (enum fo_pp_kind)k;
			fo_str_fini(&names);
			return FO_OK;
		}
		fo_str_printf(&names, "%s%s", k ? ", " : "", fo_pp_name[k]);
	}
	fo_status st = fo_hint(fo_fail(FO_EARG, "there is no pipeline schedule '%s'", name), "the schedules: %s",
			       names.data);
	fo_str_fini(&names);
	return st;
}

static fo_status within(const char *what, int64_t n, int64_t fewest, int64_t most, const char *of)
{
	if (n >= fewest && n <= most)
		return FO_OK;
	return fo_fail(FO_EARG, "%s wants %lld to %lld %s, not %lld: the nearest is %lld", of, (long long)fewest,
		       (long long)most, what, (long long)n, (long long)(n < fewest ? fewest : most));
}

fo_status fo_pp_legal(const struct fo_pp_shape *p)
{
	if ((unsigned)p->kind >= FO_PP_KINDS_COUNT)
		return fo_fail(FO_EARG, "there is no pipeline schedule number %d", (int)p->kind);
	const char *title = fo_pp_title[p->kind];
	const int32_t fewest = traits[p->kind].fewest, most = traits[p->kind].most;
	FO_TRY(within("stages", p->stages, 1, FO_PP_STAGES_MOST, "a pipeline"));
	FO_TRY(within("micro-batches", p->micro_batches, 1, FO_PP_MICRO_BATCHES_MOST, "a pipeline"));
	if (fewest == most && p->chunks != fewest)
		return fo_fail(FO_EARG, "schedule %s has %d chunk%s per stage, not %d", title, fewest,
			       fo_plural(fewest), p->chunks);
	if (p->kind == FO_PP_INTERLEAVED && p->chunks == 1)
		return fo_fail(FO_EARG,
			       "schedule interleaved 1F1B wants 2 or more chunks per stage; with 1 it is 1f1b");
	if (p->chunks < fewest || p->chunks > most)
		return fo_fail(FO_EARG, "schedule %s wants %d to %d chunks per stage, not %d", title, fewest, most,
			       p->chunks);
	const int64_t slots = fo_pp_slots_most(p) * p->stages;
	if (slots > FO_PP_SLOTS_MOST)
		return fo_fail(FO_EARG,
			       "%d stages x %d micro-batches x %d chunks are %lld slots, more than %d: the most "
			       "micro-batches are %lld",
			       p->stages, p->micro_batches, p->chunks, (long long)slots, FO_PP_SLOTS_MOST,
			       (long long)(FO_PP_SLOTS_MOST / (slots / p->micro_batches)));
	if (p->kind == FO_PP_DUALPIPE_V && p->micro_batches < 2 * p->stages)
		return fo_fail(FO_EARG,
			       "schedule %s wants two micro-batches per stage, for %d stages %d or more, not %d", title,
			       p->stages, 2 * p->stages, p->micro_batches);
	return FO_OK;
}

int32_t fo_pp_chunks_usual(enum fo_pp_kind kind) { return traits[kind].fewest; }
bool fo_pp_splits(enum fo_pp_kind kind)
{
	return kind == FO_PP_ZB_H1 || kind == FO_PP_ZB_H2 || kind == FO_PP_DUALPIPE_V;
}
enum fo_pp_placement fo_pp_placement(enum fo_pp_kind kind) { return traits[kind].placement; }

void fo_pp_remark(const struct fo_pp_shape *p, struct fo_str *out)
{
	if (p->micro_batches >= p->stages)
		return;
	/* Each stage works for m of at least m + p - 1 turns; interleaved turns are of one chunk. */
	const double turns = (double)p->stages * p->chunks + p->micro_batches - 1;
	const double idle = 1 - (double)p->micro_batches * p->chunks / turns;
	const bool one = p->micro_batches == 1;
	fo_str_printf(out, "%d micro-batch%s for %d stages leave", p->micro_batches, one ? "" : "es", p->stages);
	/* Gradients of weights fill some of it. */
	fo_str_puts(out, one ? "s" : "");
	fo_str_printf(out, " a stage idle for %s%.0f", fo_pp_splits(p->kind) ? "up to " : "", 100 * idle);
	fo_str_printf(out, " %% of the step: %d or more are better", 4 * p->stages);
}

int64_t fo_pp_slots_most(const struct fo_pp_shape *p)
{
	return (int64_t)p->micro_batches * p->chunks * (fo_pp_splits(p->kind) ? 3 : 2);
}
int64_t fo_pp_order(const struct fo_pp_shape *p, int32_t stage, struct fo_pp_slot *out)
{
	return rows[p->kind]->order(p, stage, out);
}

int32_t fo_pp_in_flight(const struct fo_pp_slot *slot, int64_t slots, int32_t *input)
{
	int32_t held = 0, most = 0, before = 0, most_before = 0;
	for (int64_t i = 0; i < slots; i++) {
		switch (slot[i].work) {
		case FO_PP_FORWARD:
			held++;
			before++;
			break;
		case FO_PP_BACKWARD:
			held--;
			before--;
			break;
		case FO_PP_INPUT: before--; break;
		case FO_PP_WEIGHT: held--; break;
		}
		most = held > most ? held : most;
		most_before = before > most_before ? before : most_before;
	}
	if (input)
		*input = most_before;
	return most;
}

int64_t fo_pp_in_flight_formula(const struct fo_pp_shape *p, int32_t stage)
{
	return rows[p->kind]->in_flight(p, stage);
}

void fo_pp_formula_of(struct fo_pp_formula *out, const struct fo_pp_shape *p, double forward, double input,
		      double weight)
{
	*out = (struct fo_pp_formula){ .idle_s = NAN, .text = "", .source = "", .condition = "" };
	rows[p->kind]->formula(out, p, forward, input, weight);
}

/* ---- who has which part ---- */

int32_t fo_pp_position(const struct fo_pp_shape *p, int32_t stage, int32_t chunk)
{
	if (fo_pp_placement(p->kind) == FO_PP_V)
		return chunk ? 2 * p->stages - 1 - stage : stage;
	return chunk * p->stages + stage;
}

void fo_pp_holder(const struct fo_pp_shape *p, int32_t position, int32_t *stage, int32_t *chunk)
{
	*chunk = position / p->stages;
	*stage = position % p->stages;
	if (fo_pp_placement(p->kind) == FO_PP_V && *chunk)
		*stage = p->stages - 1 - *stage;
}

/* The part `step` behind or before a slot's (-1, 1), and its slot of the same kind. */
static bool neighbour(const struct fo_pp_shape *p, int32_t stage, struct fo_pp_slot slot, int step,
		      struct fo_pp_peer *out)
{
	const int32_t at = fo_pp_position(p, stage, slot.chunk) + step;
	int32_t chunk;
	if (at < 0 || at >= fo_pp_parts(p) || slot.work == FO_PP_WEIGHT)
		return false;
	fo_pp_holder(p, at, &out->stage, &chunk);
	out->slot = (struct fo_pp_slot){ slot.mb, (int16_t)chunk,
					 slot.work == FO_PP_FORWARD ? FO_PP_FORWARD : FO_PP_BACKWARD };
	return true;
}
bool fo_pp_needs(const struct fo_pp_shape *p, int32_t stage, struct fo_pp_slot slot, struct fo_pp_peer *out)
{
	return neighbour(p, stage, slot, slot.work == FO_PP_FORWARD ? -1 : 1, out);
}
bool fo_pp_feeds(const struct fo_pp_shape *p, int32_t stage, struct fo_pp_slot slot, struct fo_pp_peer *out)
{
	return neighbour(p, stage, slot, slot.work == FO_PP_FORWARD ? 1 : -1, out);
}
/* ---- all stages' lists ---- */

void fo_pp_plan_of(struct fo_pp_plan *out, const struct fo_pp_shape *p)
{
	int64_t n = 0;
	out->shape = *p;
	out->begin = fo_xmalloc(((size_t)p->stages + 1) * sizeof *out->begin);
	out->slot = fo_xmalloc((size_t)fo_pp_slots_most(p) * (size_t)p->stages * sizeof *out->slot);
	for (int32_t s = 0; s < p->stages; s++) {
		n += fo_pp_order(p, s, out->slot + n);
		out->begin[s + 1] = n;
	}
}
void fo_pp_plan_free(struct fo_pp_plan *plan)
{
	free(plan->slot);
	free(plan->begin);
	*plan = (struct fo_pp_plan){ .slot = NULL };
}
