/* Slots of pipelines as pictures. */
#include "report/slots.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* X(letter, words, colour of the page's parts), the work of slots in the order of enum fo_pp_work, then what logs have
 * beside it. */
#define KINDS(X)                             \
	X('F', "forward", 0)                 \
	X('B', "backward", 1)                \
	X('I', "backward of the input", 2)   \
	X('W', "backward of the weights", 4) \
	X('C', "collective", 3)              \
	X('O', "optimizer", 6)               \
	X('P', "pause", 7)
enum { COLLECTIVE = FO_PP_WORKS, OPTIMIZER, PAUSE, ALL };
#define LETTER(letter, words, tone) letter,
#define WORDS(letter, words, tone) words,
#define TONE(letter, words, tone) tone,
static const char letters[ALL] = { KINDS(LETTER) };
static const char *const kind_words[ALL] = { KINDS(WORDS) };
static const unsigned char tones[ALL] = { KINDS(TONE) };

static void begin(struct fo_doc *d, struct fo_draw_slots *out, int32_t stages)
{
	struct fo_draw_slot_row *row = fo_doc_alloc(d, (size_t)stages * sizeof *row);
	for (int32_t s = 0; s < stages; s++)
		row[s].name = fo_doc_printf(d, "stage %d", s);
	*out = (struct fo_draw_slots){ .letter = letters,
				       .kind_name = kind_words,
				       .tone = tones,
				       .kinds = ALL,
				       .row = row,
				       .rows = (size_t)stages };
}

void fo_slots_of_walk(struct fo_doc *d, struct fo_draw_slots *out, const struct fo_pp_plan *plan,
		      const struct fo_pp_walk *w)
{
	const struct fo_pp_shape *p = &plan->shape;
	begin(d, out, p->stages);
	struct fo_draw_slot *slot = fo_doc_alloc(d, (size_t)plan->begin[p->stages] * sizeof *slot);
	struct fo_draw_slot_row *row = (struct fo_draw_slot_row *)out->row;
	for (int32_t s = 0; s < p->stages; s++) {
		row[s].slot = slot + plan->begin[s];
		row[s].slots = (size_t)(plan->begin[s + 1] - plan->begin[s]);
		for (int64_t i = plan->begin[s]; i < plan->begin[s + 1]; i++) {
			const struct fo_pp_slot a = plan->slot[i];
			slot[i] = (struct fo_draw_slot){ .from = w->span[i].begin,
							 .to = w->span[i].end,
							 .kind = a.work,
							 .number = a.mb,
							 .part = p->chunks > 1 ? a.chunk : -1 };
		}
	}
	out->to = w->step_s;
	out->turns = true;
}

/* The kind of a log's operation; -1: transfers, which lie beside passes and would hide where these leave the stage
 * empty. A log that has the weights' part of backward apart calls the input's part backward. */
static int kind_of(const struct fo_schedule_op *op, bool apart)
{
	switch (op->kind) {
	case FO_SCHED_FORWARD: return FO_PP_FORWARD;
	case FO_SCHED_BACKWARD: return apart ? FO_PP_INPUT : FO_PP_BACKWARD;
	case FO_SCHED_WEIGHT: return FO_PP_WEIGHT;
	case FO_SCHED_FORWARD_SEND:
	case FO_SCHED_FORWARD_RECV:
	case FO_SCHED_BACKWARD_SEND:
	case FO_SCHED_BACKWARD_RECV: return -1;
	case FO_SCHED_OPTIMIZER: return OPTIMIZER;
	case FO_SCHED_PAUSE: return PAUSE;
	default: return COLLECTIVE;
	}
}
static bool is_drawn(const struct fo_schedule_op *op, int32_t replica, bool apart)
{
	return op->replica == replica && op->end_ns > op->begin_ns && kind_of(op, apart) >= 0;
}

bool fo_slots_of_log(struct fo_doc *d, struct fo_draw_slots *out, const struct fo_schedule_log *s, int64_t step,
		     int32_t replica)
{
	const struct fo_schedule_op *op = s->op + s->step[step].first;
	const int64_t ops = s->step[step].ops;
	bool apart = false;
	begin(d, out, s->stages);
	struct fo_draw_slot_row *row = (struct fo_draw_slot_row *)out->row;
	for (int64_t i = 0; i < ops; i++)
		apart |= op[i].kind == FO_SCHED_WEIGHT;
	for (int64_t i = 0; i < ops; i++)
		if (is_drawn(&op[i], replica, apart)) {
			row[op[i].stage].slots++;
			out->to = fmax(out->to, (double)op[i].end_ns * 1e-9);
		}
	struct fo_draw_slot **slot = fo_doc_alloc(d, (size_t)s->stages * sizeof *slot);
	for (int k = 0; k < s->stages; k++) {
		row[k].slot = slot[k] = fo_doc_alloc(d, (row[k].slots + 1) * sizeof *slot[k]);
		row[k].slots = 0;
	}
	for (int64_t i = 0; i < ops; i++) { /* by stage and begin already */
		const struct fo_schedule_op *o = &op[i];
		if (!is_drawn(o, replica, apart))
			continue;
		int32_t number = -1, part = -1;
		if (kind_of(o, apart) < FO_PP_WORKS) {
			number = o->microbatch;
			part = s->chunks > 1 ? o->chunk : -1;
		}
		slot[o->stage][row[o->stage].slots++] = (struct fo_draw_slot){ .from = (double)o->begin_ns * 1e-9,
									       .to = (double)o->end_ns * 1e-9,
									       .kind = kind_of(o, apart),
									       .number = number,
									       .part = part };
	}
	return out->to > 0;
}

/* ---- of timelines ---- */

/* A stage's layers, in runs without a gap: its chunks. */
struct chunks {
	int32_t layers;
	int16_t *of; /* [layer] */
	int n;
};
static struct chunks chunks_of(const struct fo_program *p)
{
	struct chunks c = { .layers = (int32_t)p->model.layers + 1 };
	bool gap = true;
	c.of = fo_xmalloc((size_t)c.layers * sizeof *c.of);
	for (int i = 0; i < p->nslot; i++)
		if (p->block[p->slot[i].block].unit == FO_UNIT_LAYER && p->slot[i].layer >= 0 &&
		    p->slot[i].layer < c.layers)
			c.of[p->slot[i].layer] = 1;
	for (int32_t l = 0; l < c.layers; l++) {
		const bool own = c.of[l];
		c.n += own && gap;
		gap = !own;
		c.of[l] = (int16_t)(c.n ? c.n - 1 : 0);
	}
	return c;
}

/* The kind of a slot of the program; -1: it is none that is drawn. split: the weights' gradients have blocks of their
 * own. */
static int kind_of_block(const struct fo_block *b, bool split)
{
	switch (b->role) {
	case FO_ROLE_FORWARD: return FO_PP_FORWARD;
	case FO_ROLE_BACKWARD: return split ? FO_PP_INPUT : FO_PP_BACKWARD;
	case FO_ROLE_WGRAD: return FO_PP_WEIGHT;
	case FO_ROLE_OPTIMIZER: return OPTIMIZER;
	default: return -1;
	}
}

static struct fo_draw_slot slot_of(const struct fo_program *p, const struct chunks *c, const struct fo_slot *s,
				   bool split)
{
	const struct fo_block *b = &p->block[s->block];
	struct fo_draw_slot x = { .kind = kind_of_block(b, split), .number = s->mb, .part = -1 };
	if (x.kind == OPTIMIZER)
		x.number = -1;
	else if (c->n > 1 && b->unit == FO_UNIT_EMBED)
		x.part = 0;
	else if (c->n > 1)
		x.part = b->unit == FO_UNIT_HEAD || s->layer < 0 || s->layer >= c->layers ? c->n - 1 : c->of[s->layer];
	return x;
}

static bool splits(const struct fo_program *p)
{
	for (int i = 0; i < p->nslot; i++)
		if (p->block[p->slot[i].block].role == FO_ROLE_WGRAD)
			return true;
	return false;
}

/* Puts the stage's spans of that step together to slots, in seconds of rank 0's clock. */
static void read_stage(struct fo_doc *d, struct fo_draw_slot_row *row, const struct fo_slots_stage *s, int32_t step)
{
	const struct fo_ring *r = &s->f->t.lane[FO_LANE_COMPUTE];
	const uint64_t kept = r->n < r->cap ? r->n : r->cap;
	const double offset = (double)s->f->t.whose.clock_offset_ns;
	struct fo_unrolled u;
	if (fo_unroll(s->p, &u) != FO_OK) {
		fo_err_clear();
		return;
	}
	struct chunks c = chunks_of(s->p);
	const bool split = splits(s->p);
	struct fo_draw_slot *slot = fo_doc_alloc(d, ((size_t)s->p->nslot + 1) * sizeof *slot);
	size_t n = 0;
	for (uint64_t k = r->n - kept; k < r->n; k++) {
		const struct fo_span *x = &r->span[k % r->cap];
		if (x->step != step || x->instance < 0 || x->instance >= u.n)
			continue;
		struct fo_draw_slot now = slot_of(s->p, &c, &s->p->slot[u.slot[x->instance]], split);
		now.from = ((double)x->begin_ns + offset) * 1e-9;
		now.to = ((double)x->end_ns + offset) * 1e-9;
		struct fo_draw_slot *last = n ? &slot[n - 1] : NULL;
		if (now.kind < 0)
			continue;
		if (last && last->kind == now.kind && last->number == now.number && last->part == now.part)
			last->to = now.to;
		else if (n < (size_t)s->p->nslot)
			slot[n++] = now;
	}
	row->slot = slot;
	row->slots = n;
	free(c.of);
	fo_unrolled_fini(&u);
}

bool fo_slots_of_timelines(struct fo_doc *d, struct fo_draw_slots *out, const struct fo_slots_stage *stage,
			   int32_t stages, int32_t step)
{
	double from = INFINITY, to = -INFINITY;
	begin(d, out, stages);
	struct fo_draw_slot_row *row = (struct fo_draw_slot_row *)out->row;
	for (int32_t s = 0; s < stages; s++) {
		if (stage[s].f)
			read_stage(d, &row[s], &stage[s], step);
		for (size_t i = 0; i < row[s].slots; i++) {
			from = fmin(from, row[s].slot[i].from);
			to = fmax(to, row[s].slot[i].to);
		}
	}
	/* The picture's axis begins at 0. */
	for (int32_t s = 0; s < stages; s++)
		for (size_t i = 0; i < row[s].slots; i++) {
			struct fo_draw_slot *x = (struct fo_draw_slot *)&row[s].slot[i];
			x->from -= from;
			x->to -= from;
		}
	out->to = to - from;
	return to > from;
}

/* ---- of files ---- */

enum { STAGES = 64 }; /* more are not read: each has a program of its own */
struct files {
	struct fo_timeline_file file[STAGES];
	struct fo_program program[STAGES];
	bool has[STAGES];
	int32_t stages, apart; /* stages 0: not known yet; ranks from one stage to the next */
};

/* Takes the file where its rank is the first of a stage. */
static fo_status take_file(struct files *x, const char *path)
{
	struct fo_timeline_file f;
	struct fo_program p;
	FO_TRY(fo_timeline_read(&f, path));
	fo_status st = fo_timeline_program(&p, &f, path);
	if (st != FO_OK) {
		fo_timeline_fini(&f.t);
		return st;
	}
	const int32_t stages = fo_mesh_pp(&p.run.mesh), apart = fo_mesh_stage_ranks(&p.run.mesh);
	if (!x->stages) {
		x->stages = stages;
		x->apart = apart;
	}
	const int32_t stage = p.rank / apart;
	if (stages != x->stages || stages > STAGES || apart != x->apart || p.rank % apart || stage < 0 ||
	    stage >= stages || x->has[stage]) {
		fo_program_fini(&p);
		fo_timeline_fini(&f.t);
		return FO_OK;
	}
	x->file[stage] = f;
	x->program[stage] = p;
	x->has[stage] = true;
	return FO_OK;
}

/* The last step but one that all have; -1: none. */
static int32_t common_step(const struct files *x)
{
	int32_t first = 0, last = INT32_MAX;
	for (int32_t s = 0; s < x->stages; s++) {
		const struct fo_ring *r = &x->file[s].t.lane[FO_LANE_COMPUTE];
		if (!r->n)
			return -1;
		const int32_t from = r->span[(r->n < r->cap ? 0 : r->n) % r->cap].step;
		const int32_t to = r->span[(r->n - 1) % r->cap].step;
		first = from > first ? from : first;
		last = to < last ? to : last;
	}
	if (last < first)
		return -1;
	return last > first ? last - 1 : last;
}

/* The part of the pipeline that is missing; NULL: none, or it is no pipeline. */
static const char *missing(struct fo_doc *d, const struct files *x)
{
	if (x->stages > STAGES)
		return fo_doc_printf(d, "it has %d stages, and at most %d are read", x->stages, STAGES);
	for (int32_t s = 0; s < x->stages; s++)
		if (!x->has[s])
			return fo_doc_printf(d, "stage %d left no timeline that can be read", s);
	return NULL;
}

bool fo_slots_of_files(struct fo_doc *d, struct fo_draw_slots *out, const char *const *path, int paths,
		       struct fo_program *program, int32_t *step, const char **why)
{
	struct files *x = fo_xmalloc(sizeof *x);
	struct fo_slots_stage stage[STAGES] = { { NULL, NULL } };
	for (int i = 0; i < paths; i++)
		if (take_file(x, path[i]) != FO_OK)
			fo_err_clear();
	*why = x->stages > 1 ? missing(d, x) : NULL;
	bool all = x->stages > 1 && !*why;
	for (int32_t s = 0; s < x->stages && all; s++)
		stage[s] = (struct fo_slots_stage){ &x->program[s], &x->file[s] };
	*step = all ? common_step(x) : -1;
	if (all && (*step < 0 || !fo_slots_of_timelines(d, out, stage, x->stages, *step))) {
		*why = "its stages' timelines have no step in common";
		all = false;
	}
	for (int32_t s = 0; s < STAGES; s++) {
		if (!x->has[s])
			continue;
		fo_timeline_fini(&x->file[s].t);
		if (all && !s)
			*program = x->program[s];
		else
			fo_program_fini(&x->program[s]);
	}
	free(x);
	return all;
}

/* Sums over the passes of all stages. */
void fo_slots_bubble_of(struct fo_slots_bubble *out, const struct fo_draw_slots *c, const struct fo_pp_shape *shape)
{
	double sum[FO_PP_WORKS] = { 0 }, from = INFINITY, to = -INFINITY, busy = 0, longest = 0;
	for (size_t i = 0; i < c->rows; i++) {
		double first = INFINITY, last = -INFINITY;
		for (size_t k = 0; k < c->row[i].slots; k++) {
			const struct fo_draw_slot *s = &c->row[i].slot[k];
			if (s->kind >= FO_PP_WORKS)
				continue;
			sum[s->kind] += s->to - s->from;
			first = fmin(first, s->from);
			last = fmax(last, s->to);
		}
		from = fmin(from, first);
		to = fmax(to, last);
		longest = fmax(longest, last - first);
	}
	for (int k = 0; k < FO_PP_WORKS; k++)
		busy += sum[k];
	out->longest = longest > 0 ? 1 - busy / (longest * (double)c->rows) : NAN;
	out->measured = to > from ? 1 - busy / ((to - from) * (double)c->rows) : NAN;
	/* The formula takes times of one stage and micro-batch. A whole backward counts as its input's part: no formula
	 * of such a schedule looks at the two apart. */
	const double each = (double)c->rows * shape->micro_batches;
	fo_pp_formula_of(&out->by, shape, sum[FO_PP_FORWARD] / each, (sum[FO_PP_BACKWARD] + sum[FO_PP_INPUT]) / each,
			 sum[FO_PP_WEIGHT] / each);
	out->formula = out->by.idle_s / (out->by.idle_s + busy / (double)c->rows);
}

const char *fo_slots_bubble_text(struct fo_doc *d, const struct fo_slots_bubble *b, int32_t step)
{
	const char *text = fo_doc_printf(d, "%s of the time from the first pass to the last of step %d",
					 fo_doc_num(d, b->measured, FO_DRAW_SHARE), step + 1);
	if (b->by.of_pipeline)
		text = fo_doc_printf(d, "%s, %s of the longest that a stage took", text,
				     fo_doc_num(d, b->longest, FO_DRAW_SHARE));
	const char *most = b->by.bound ? "at most " : "";
	if (!isfinite(b->formula))
		return fo_doc_printf(d, "%s; the formula does not hold for these times", text);
	return fo_doc_printf(d, "%s; even stages would leave %s%s%s by the formula", text, most,
			     fo_doc_num(d, b->formula, FO_DRAW_SHARE), b->by.of_pipeline ? " of the latter" : "");
}

const char *fo_slots_formula_text(struct fo_doc *d, const struct fo_slots_bubble *b)
{
	const char *most = b->by.bound ? "at most " : "";
	const char *of = b->by.of_pipeline ? "a stage's own time" : "it";
	if (!isfinite(b->formula))
		return fo_doc_printf(d, "%s says nothing of these times: it wants %s", b->by.text, b->by.condition);
	return fo_doc_printf(d, "even stages and messages that take no time would leave %s%s of %s by %s", most,
			     fo_doc_num(d, b->formula, FO_DRAW_SHARE), of, b->by.text);
}

void fo_slots_bubble_json(struct fo_json *j, const struct fo_slots_bubble *b, const struct fo_pp_shape *shape,
			  int32_t step)
{
	fo_json_object(j, "pipeline");
	fo_json_put(j, FO_TEXT("schedule", fo_pp_name[shape->kind]), FO_INT("stages", shape->stages),
		    FO_INT("micro_batches", shape->micro_batches), FO_INT("chunks", shape->chunks));
	if (step >= 0)
		fo_json_put(j, FO_INT("step", step + 1));
	fo_json_put(j, FO_REAL("bubble", b->measured), FO_REAL("longest_stage_bubble", b->longest),
		    FO_REAL("formula_bubble", b->formula),
		    FO_TEXT("formula_of", b->by.of_pipeline ? "longest_stage" : "step"), FO_TEXT("formula", b->by.text),
		    FO_TEXT("condition", b->by.condition));
	fo_json_close(j);
}

void fo_slots_draw(struct fo_doc *d, struct fo_draw_slots *c, const struct fo_pp_shape *shape, int32_t step)
{
	c->title = fo_doc_printf(d, "Pipeline, schedule %s: step %d by stage", fo_pp_title[shape->kind], step + 1);
	c->desc = "Each row is the first rank of a stage; gaps are idle or communication";
	fo_doc_para(d, "Pipeline, schedule %s: %d stages, %d micro-batches; step %d, the first rank of each stage",
		    fo_pp_title[shape->kind], shape->stages, shape->micro_batches, step + 1);
	fo_doc_slots(d, c);
}
