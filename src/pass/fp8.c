/* fp8: the layers' matmuls take factors in fp8; and fp8-scale-precompute: weights are cast once per step.
 *
 * A factor is cast where it was made, once for all matmuls that read it: an activation in forward, where its weight
 * gradient finds it again; a gradient in backward; a weight in front of its matmul. Scales are per tensor (`current`,
 * `delayed`), or per line that the sum runs along (`rowwise`): those of x(T,K) for y = x w' belong to rows, for dw =
 * dy' x to columns, so rowwise x is cast twice. Head, embedding and attention keep their precision, and so may the
 * first and last layers, which then have blocks of their own, and the weight gradients.
 *
 * Ranks have rows of their own of activations and gradients, so a maximum over rows is one over ranks, too: that of a
 * cast by its own maxima is joined before its scale is made, that of a step at the step's end, all of them in one call.
 * Weights are whole where they are cast, but for the parts of a tp group, whose ranks join the maxima of all that they
 * divide. docs/passes/fp8.md. */
#include "pass/pass.h"
#include "base/fp8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum axis { WHOLE, ROWS, COLS }; /* what has a scale of its own */

/* A factor, and how it becomes fp8. */
struct spec {
	struct fo_operand x;
	uint8_t format, axis;
};
struct made {
	struct spec spec;
	int block;
	uint32_t cast; /* id of the operation */
	int q, s;      /* buffers: numbers, scales */
};
struct work {
	struct fo_program *p;
	enum fo_fp8 recipe;
	struct made *made;
	size_t cap;
	int n;
	int history, amax, sites; /* delayed: buffers with a row for each cast (site), and how many there are */
};

static bool writes(const struct fo_op *o, const struct fo_operand *x)
{
	for (int i = 0; i < o->n; i++)
		if (fo_access_writes(o->arg[i].access) && fo_operands_overlap(&o->arg[i], x))
			return true;
	return false;
}

/* Newest operation of the block before `end` that writes x; -1: none. */
static int last_write(const struct fo_program *p, int block, int end, const struct fo_operand *x)
{
	for (int i = end - 1; i >= 0; i--)
		if (writes(&p->block[block].op[i], x))
			return i;
	return -1;
}

static bool skips(const struct fo_passes *c, int64_t layers, int64_t layer)
{
	return layer < c->fp8_first || layer >= layers - c->fp8_last;
}
static bool keeps_precision(const struct fo_program *p, int layer)
{
	return skips(&p->run.pass, p->model.layers, layer);
}

static bool takes_fp8(const struct fo_program *p, int layer)
{
	return fo_program_has_layer(p, layer) && !keeps_precision(p, layer);
}

/* A block of layers that keep their precision (set_apart). */
static bool is_apart(const struct fo_program *p, int b)
{
	for (int s = 0; s < p->nslot; s++)
		if (p->slot[s].block == b)
			return keeps_precision(p, p->slot[s].layer);
	return false;
}

/* Whether a block is forward or backward of layers that take fp8. A stage of a pipeline may have none of them. */
static bool layer_block(const struct fo_program *p, int b)
{
	return p->block[b].unit == FO_UNIT_LAYER &&
	       (p->block[b].role == FO_ROLE_FORWARD || p->block[b].role == FO_ROLE_BACKWARD) && !is_apart(p, b) &&
	       fo_block_slots(p, b) > 0;
}

/* Layers that keep their precision get blocks of this role of their own, as they are. */
static void set_apart(struct fo_program *p, int role)
{
	bool *apart = fo_xmalloc((size_t)(p->nslot + 1) * sizeof *apart);
	for (int s = 0; s < p->nslot; s++)
		apart[s] = keeps_precision(p, p->slot[s].layer);
	for (int b = 0, blocks = p->nblock; b < blocks; b++)
		if (p->block[b].unit == FO_UNIT_LAYER && p->block[b].role == role)
			fo_edit_split(p, b, "plain", apart);
	free(apart);
}

/* Whether weight gradients are matmuls of factors that are not cast. */
static bool plain_wgrad(const struct fo_program *p)
{
	return p->run.pass.fp8 == FO_FP8_ROWWISE_HP || p->run.pass.fp8_wgrad == FO_FP8_WGRAD_PLAIN;
}

static bool persists(const struct fo_program *p, const struct fo_operand *x)
{
	return fo_home_persists(p->buf[x->buf].home);
}

/* How factor k of a matmul becomes fp8: which format, and along what its scales lie. */
static struct spec spec_of(const struct work *w, const struct fo_op *o, int k)
{
	bool turned = k == FO_MATMUL_A ? o->attr.ta : !o->attr.tb; /* the sum runs along its columns */
	struct spec s = { .x = o->arg[k], .format = FO_E4M3, .axis = WHOLE };
	bool gradient = k == 0 && o->phase != FO_FORWARD, weight = k == 1 && o->phase != FO_WGRAD;
	if (w->recipe == FO_FP8_CURRENT || w->recipe == FO_FP8_DELAYED)
		s.format = gradient ? FO_E5M2 : FO_E4M3;
	else if (!(w->recipe == FO_FP8_ROWWISE_HP && weight && o->phase == FO_BACKWARD))
		s.axis = turned ? COLS : ROWS;
	s.x.access = FO_READ;
	return s;
}

static bool same_spec(const struct spec *a, const struct spec *b)
{
	return a->format == b->format && a->axis == b->axis && fo_edit_same(&a->x, &b->x);
}

static int find_op(const struct fo_program *p, int block, uint32_t id)
{
	for (int i = 0; i < p->block[block].n; i++)
		if (p->block[block].op[i].id == id)
			return i;
	return -1;
}

/* The block that makes x before operation `at` of `block` reads it: `block` itself, or a layer's forward; -1: neither.
 * A cast that backward alone reads is not made in forward where backward makes x again. */
static int maker(const struct fo_program *p, int block, int at, const struct spec *s)
{
	const struct fo_operand *x = &s->x;
	if (persists(p, x) || last_write(p, block, at, x) >= 0)
		return block;
	bool late = s->axis == COLS && p->run.pass.recompute;
	for (int b = 0; b < p->nblock && x->dlayer == 0 && !late; b++)
		if (b != block && layer_block(p, b) && p->block[b].role == FO_ROLE_FORWARD &&
		    last_write(p, b, p->block[b].n, x) >= 0)
			return b;
	return -1;
}

/* A cast of the same numbers that operation `at` of `block` may read. */
static const struct made *find_made(const struct work *w, int block, int at, const struct spec *s)
{
	const struct fo_program *p = w->p;
	int from = maker(p, block, at, s);
	for (int m = 0; m < w->n; m++) {
		const struct made *e = &w->made[m];
		if (!same_spec(&e->spec, s))
			continue;
		if (e->block == block) {
			int cast = find_op(p, block, e->cast);
			if (cast < at && last_write(p, block, at, &s->x) < cast)
				return e;
		} else if (e->block == from && !persists(p, &s->x)) {
			return e;
		}
	}
	return NULL;
}

static int add_buffer(struct fo_program *p, const struct spec *s, const char *suffix, int dtype, int64_t rows,
		      int64_t cols)
{
	static const char *const axis[] = { "", ".r", ".c" };
	const struct fo_buffer src = p->buf[s->x.buf];
	bool whole = s->x.nr == src.rows && s->x.nc == src.cols;
	char name[64], at[24] = "";
	if (!whole)
		snprintf(at, sizeof at, ".%d.%d", s->x.r0, s->x.c0);
	snprintf(name, sizeof name, "%s.%s%s%s%s", src.name, fo_dtype_name[s->format], axis[s->axis], suffix, at);
	int have = fo_buffer_find(p, name);
	if (have >= 0)
		return have; /* of the same weight in another block */
	bool fp8 = fo_dtype_fp8(dtype), by_row = fp8 || s->axis == ROWS, by_col = fp8 || s->axis == COLS;
	int b = fo_buffer_add(p, name, dtype, FO_HOME_ACT, src.axes, rows, by_row ? src.row_axis : FO_AXIS_ONE, cols,
			      by_col ? src.col_axis : FO_AXIS_ONE);
	const bool divided = fo_tp_divides_rows(src.tp) ? by_row : by_col;
	if (divided && src.tp != FO_TP_TERM)
		p->buf[b].tp = src.tp;
	return b;
}

static struct fo_op *put(struct work *w, int block, int *at, int kind)
{
	bool forward = w->p->block[block].role == FO_ROLE_FORWARD;
	return fo_op_insert(w->p, block, (*at)++, kind, forward ? FO_FORWARD : FO_BACKWARD, FO_LANE_COMPUTE);
}

static void put_read(struct fo_op *o, const struct fo_operand *x) { o->arg[o->n++] = *x; }

/* The ranks that have other numbers of what a maximum of s is of: other rows of activations, or other parts of what a
 * tp group divides. NONE: nobody. */
static enum fo_group others(const struct fo_program *p, const struct spec *s)
{
	uint8_t rows, cols;
	fo_operand_divided(p, &s->x, &rows, &cols);
	const bool data = fo_mesh_group(&p->run.mesh, FO_GROUP_DATA, NULL, NULL) > 1 && s->axis != ROWS &&
			  !persists(p, &s->x),
		   tp = (rows && s->axis != ROWS) || (cols && s->axis != COLS);
	if (data)
		return tp ? FO_GROUP_ALL : FO_GROUP_DATA;
	return tp ? FO_GROUP_TP : FO_GROUP_NONE;
}

/* Puts operations in front of operation *at of the block that cast s by its own maxima into q, with the scales f. */
static struct fo_op *put_cast(struct work *w, int block, int *at, const struct spec *s, int q, int f)
{
	struct fo_program *p = w->p;
	int a = add_buffer(p, s, ".a", FO_F32, p->buf[f].rows, p->buf[f].cols);
	struct fo_op *o = put(w, block, at, FO_OP_amax);
	put_read(o, &s->x);
	fo_op_arg(p, o, a, 0, FO_DEF);
	if (others(p, s)) {
		/* Compute waits for it, so it has a lane without gradients in front. */
		o = put(w, block, at, FO_OP_all_reduce_max);
		o->phase = FO_TRANSFER;
		o->lane = FO_LANE_TP;
		o->group = (uint8_t)others(p, s);
		fo_op_arg(p, o, a, 0, FO_UPDATE);
	}
	o = put(w, block, at, FO_OP_fp8_scale);
	o->attr.value = s->format == FO_E4M3 ? FO_E4M3_MAX : FO_E5M2_MAX;
	o->attr.sign = w->recipe == FO_FP8_ROWWISE || w->recipe == FO_FP8_ROWWISE_HP;
	fo_op_arg(p, o, a, 0, FO_READ);
	fo_op_arg(p, o, f, 0, FO_DEF);
	o = put(w, block, at, FO_OP_fp8_cast);
	put_read(o, &s->x);
	fo_op_arg(p, o, f, 0, FO_READ);
	fo_op_arg(p, o, q, 0, FO_DEF);
	return o;
}

/* The same with a scale from the maxima of past steps: one operation. */
static struct fo_op *put_cast_step(struct work *w, int block, int *at, const struct spec *s, int q, int f)
{
	struct fo_program *p = w->p;
	struct fo_op *o = put(w, block, at, FO_OP_fp8_cast_step);
	put_read(o, &s->x);
	fo_op_arg(p, o, f, 0, FO_DEF);
	fo_op_arg(p, o, q, 0, FO_DEF);
	fo_op_arg(p, o, w->amax, 0, FO_ACC);
	o->arg[o->n - 1].r0 = w->sites++;
	o->arg[o->n - 1].nr = 1;
	return o;
}

/* Inserts the operations that cast s in front of operation `at` of the block; returns where that one is now. */
static int make(struct work *w, int block, int at, const struct spec *s)
{
	struct fo_program *p = w->p;
	int64_t rows = s->axis == ROWS ? s->x.nr : 1;
	int64_t cols = s->axis == COLS ? s->x.nc : 1;
	int q = add_buffer(p, s, "", s->format, s->x.nr, s->x.nc), f = add_buffer(p, s, ".s", FO_F32, rows, cols);
	bool delayed = w->recipe == FO_FP8_DELAYED && !persists(p, &s->x);
	uint32_t cast = (delayed ? put_cast_step : put_cast)(w, block, &at, s, q, f)->id;
	fo_array_room(&w->made, &w->cap, (size_t)w->n, sizeof *w->made);
	w->made[w->n++] = (struct made){ *s, block, cast, q, f };
	return at;
}

/* Operation *at of the block becomes a matmul of fp8 factors. */
static void convert(struct work *w, int block, int *at)
{
	struct fo_program *p = w->p;
	int q[2], s[2];
	for (int k = 0; k < 2; k++) {
		const struct spec spec = spec_of(w, &p->block[block].op[*at], k);
		const struct made *e = find_made(w, block, *at, &spec);
		if (!e) {
			int from = maker(p, block, *at, &spec);
			if (from < 0 || from == block)
				*at = make(w, block, *at, &spec);
			else
				make(w, from, last_write(p, from, p->block[from].n, &spec.x) + 1, &spec);
			e = &w->made[w->n - 1];
		}
		q[k] = e->q;
		s[k] = e->s;
	}
	struct fo_op *o = &p->block[block].op[*at];
	const struct fo_operand c = o->arg[FO_MATMUL_C];
	o->n = 0;
	for (int k = 0; k < 2; k++)
		fo_op_arg(p, o, q[k], 0, FO_READ);
	o->arg[o->n++] = c;
	for (int k = 0; k < 2; k++)
		fo_op_arg(p, o, s[k], 0, FO_READ);
}

/* Slots that were added at the end, from `first` on, go before slot `to`. */
static void slots_to(struct fo_program *p, int first, int to)
{
	int n = p->nslot - first;
	for (int i = 0; i < n; i++) {
		const struct fo_slot s = p->slot[first + i];
		memmove(&p->slot[to + i + 1], &p->slot[to + i], (size_t)(first - to) * sizeof s);
		p->slot[to + i] = s;
	}
}

/* Own layers that take fp8 and lie side by side, from *layer on: how many, `most` or fewer, and *layer is the first of
 * them. 0: there are no more. Chunks of a stage lie apart. */
static int next_layers(const struct fo_program *p, int *layer, int most)
{
	int n = 0;
	while (*layer < p->layer_end && !takes_fp8(p, *layer))
		++*layer;
	while (n < most && *layer + n < p->layer_end && takes_fp8(p, *layer + n))
		n++;
	return n;
}

/* Looks up the largest maximum of each history at the beginning of the step, for as many layers at once as one
 * operation takes. */
static void put_begin(struct work *w)
{
	struct fo_program *p = w->p;
	const struct fo_op_info *f = fo_op_info(FO_OP_fp8_begin_many);
	const int most = FO_MAX_OPERANDS / f->per_tensor, old = p->nslot;
	int of[FO_MAX_OPERANDS + 1] = { 0 }; /* blocks by how many layers they take */
	for (int l = p->layer_begin, n; (n = next_layers(p, &l, most)) > 0; l += n) {
		if (!of[n]) {
			char name[sizeof p->block->name];
			snprintf(name, sizeof name, "step.fp8.%d", n);
			of[n] = fo_block_add(p, name, FO_ROLE_FORWARD, FO_UNIT_STEP);
			struct fo_op *o = fo_op_insert(p, of[n], 0, n > 1 ? FO_OP_fp8_begin_many : FO_OP_fp8_begin,
						       FO_FORWARD, FO_LANE_COMPUTE);
			for (int k = 0; k < n; k++) {
				fo_op_arg(p, o, w->history, k, FO_READ);
				fo_op_arg(p, o, w->amax, k, FO_DEF);
			}
		}
		fo_slot_add(p, of[n], l, 0);
	}
	int front = 0;
	while (front < old && p->block[p->slot[front].block].role != FO_ROLE_FORWARD)
		front++;
	slots_to(p, old, front);
}

/* Moves the maxima of all layers into one buffer (in: true), in whose second column they are then, or back from there
 * into that column of the layers' own. fp8_begin does it: the largest number of a row of one column is that number. */
static void put_moves(struct work *w, int joined, bool in)
{
	struct fo_program *p = w->p;
	const int most = FO_MAX_OPERANDS / fo_op_info(FO_OP_fp8_begin_many)->per_tensor;
	int n;
	for (int l = p->layer_begin, at = 0; (n = next_layers(p, &l, most)) > 0; l += n, at += n) {
		char name[sizeof p->block->name];
		snprintf(name, sizeof name, "step.fp8.%s%d", in ? "in" : "out", l);
		int block = fo_block_add(p, name, FO_ROLE_OPTIMIZER, FO_UNIT_STEP);
		struct fo_op *o = fo_op_insert(p, block, 0, n > 1 ? FO_OP_fp8_begin_many : FO_OP_fp8_begin,
					       FO_OPTIMIZER, FO_LANE_COMPUTE);
		for (int k = 0; k < n; k++) {
			struct fo_operand *x = &o->arg[o->n], *y = x + 1, *all = in ? y : x;
			const int writes = in && at + k > 0 ? FO_PART : FO_DEF;
			if (in) {
				fo_op_arg(p, o, w->amax, k, FO_READ);
				fo_op_arg(p, o, joined, 0, writes);
			} else {
				fo_op_arg(p, o, joined, 0, FO_READ);
				fo_op_arg(p, o, w->amax, k, writes);
			}
			all->r0 = (at + k) * w->sites;
			all->nr = w->sites;
			x->c0 = !in;
			x->nc = 1;
		}
		fo_slot_add(p, block, l, 0);
	}
}

/* Several ranks join their maxima of the step, in one call behind the decision whether the step is taken. Nobody waits
 * for it before the step's last operations. */
static int put_join(struct work *w, int decision)
{
	struct fo_program *p = w->p;
	int slots = p->nslot, at = slots;
	int64_t layers = 0;
	for (int l = p->layer_begin; l < p->layer_end; l++)
		layers += takes_fp8(p, l);
	int joined = fo_buffer_add(p, "fp8.joined", FO_F32, FO_HOME_ACT, 0, layers * w->sites, FO_AXIS_ONE,
				   FO_FP8_AMAX_COLS, FO_AXIS_ONE);
	put_moves(w, joined, true);
	int block = fo_block_add(p, "step.fp8.join", FO_ROLE_OPTIMIZER, FO_UNIT_STEP);
	struct fo_op *o = fo_op_insert(p, block, 0, FO_OP_all_reduce_max, FO_TRANSFER, FO_LANE_REDUCE);
	o->group = fo_mesh_tp(&p->run.mesh) > 1 ? FO_GROUP_ALL : FO_GROUP_DATA;
	fo_op_arg(p, o, joined, 0, FO_UPDATE);
	fo_slot_add(p, block, 0, 0);
	for (int s = 0; s < slots; s++)
		at = p->slot[s].block == decision ? s + 1 : at;
	slots_to(p, slots, at);
	put_moves(w, joined, false);
	return 1; /* the column of the layers' maxima */
}

/* The step's maxima join the history at its end, after the decision whether it is taken. */
static void put_history(struct work *w)
{
	struct fo_program *p = w->p;
	int scale = -1, decision = -1;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			if (p->block[b].op[i].kind == FO_OP_clip)
				scale = p->block[b].op[i].arg[FO_CLIP_SCALE].buf, decision = b;
	int column = p->ranks > 1 ? put_join(w, decision) : 0;
	int block = fo_block_add(p, "layer.h", FO_ROLE_OPTIMIZER, FO_UNIT_LAYER);
	struct fo_op *o = fo_op_insert(p, block, 0, FO_OP_fp8_push, FO_OPTIMIZER, FO_LANE_COMPUTE);
	fo_op_arg(p, o, w->amax, 0, FO_READ);
	o->arg[FO_FP8_PUSH_AMAX].c0 = column;
	o->arg[FO_FP8_PUSH_AMAX].nc = 1;
	fo_op_arg(p, o, w->history, 0, FO_UPDATE);
	fo_op_arg(p, o, scale, 0, FO_READ);
	for (int l = p->layer_begin; l < p->layer_end; l++)
		if (takes_fp8(p, l))
			fo_slot_add(p, block, l, 0);
}

/* Every rank lists the same histories in a checkpoint. */
fo_status fo_pass_fp8_stages(const struct fo_lowering *run, int64_t layers)
{
	const struct fo_pp_shape shape = fo_lowering_pipeline(run);
	for (int32_t k = 0; shape.stages > 1 && k < shape.stages; k++) {
		bool any = false;
		for (int32_t c = 0; c < shape.chunks; c++) {
			int32_t begin, n = fo_lowering_part(run, layers, fo_pp_position(&shape, k, c), &begin);
			for (int32_t l = begin; l < begin + n; l++)
				any |= !skips(&run->pass, layers, l);
		}
		if (!any)
			return fo_hint(fo_fail(FO_EARG,
					       "stage %d of the pipeline has only layers that keep their precision, "
					       "and no history of delayed scales",
					       k),
				       "pass.fp8=current, or fewer layers in pass.fp8-skip-first and -last");
	}
	return FO_OK;
}

fo_status fo_pass_fp8_legal(const struct fo_program *p)
{
	const struct fo_passes *c = &p->run.pass;
	if (c->fp8 < 0 || c->fp8 >= FO_FP8_COUNT)
		return fo_fail(FO_EARG, "there is no fp8 recipe %lld", (long long)c->fp8);
	if (c->fp8 == FO_FP8_DELAYED && (c->fp8_history < 1 || c->fp8_history > FO_FP8_HISTORY_MAX))
		return fo_fail(FO_EARG, "a history of %lld steps: delayed scaling takes 1 to %d",
			       (long long)c->fp8_history, FO_FP8_HISTORY_MAX);
	if (c->fp8_wgrad < 0 || c->fp8_wgrad >= FO_FP8_WGRAD_COUNT)
		return fo_fail(FO_EARG, "factors of weight gradients are 0 (fp8) or 1 (bf16), not %lld",
			       (long long)c->fp8_wgrad);
	if (c->fp8_first < 0 || c->fp8_last < 0 || c->fp8_first >= p->model.layers ||
	    c->fp8_last >= p->model.layers - c->fp8_first)
		return fo_fail(
			FO_EARG,
			"the first %lld and the last %lld of %lld layers keep their precision: none is left for fp8",
			(long long)c->fp8_first, (long long)c->fp8_last, (long long)p->model.layers);
	return c->fp8 == FO_FP8_DELAYED ? fo_pass_fp8_stages(&p->run, p->model.layers) : FO_OK;
}

void fo_pass_fp8(struct fo_program *p)
{
	struct work w = { .p = p, .recipe = (enum fo_fp8)p->run.pass.fp8 };
	bool delayed = w.recipe == FO_FP8_DELAYED;
	/* Evaluation and generation use the weights that a checkpoint holds, in their own precision. */
	if (p->run.mode != FO_MODE_TRAIN)
		return;
	if (delayed) {
		w.history = fo_buffer_add(p, "fp8.history", FO_F32, FO_HOME_STATE, FO_PER_LAYER, 1, FO_AXIS_ONE,
					  p->run.pass.fp8_history, FO_AXIS_ONE);
		w.amax = fo_buffer_add(p, "fp8.amax", FO_F32, FO_HOME_ACT, FO_PER_LAYER, 1, FO_AXIS_ONE,
				       FO_FP8_AMAX_COLS, FO_AXIS_ONE);
	}
	set_apart(p, FO_ROLE_FORWARD);
	set_apart(p, FO_ROLE_BACKWARD);
	/* Forward first: backward finds there what was cast. */
	for (int role = FO_ROLE_FORWARD; role <= FO_ROLE_BACKWARD; role++)
		for (int b = 0; b < p->nblock; b++)
			for (int i = 0; layer_block(p, b) && p->block[b].role == role && i < p->block[b].n; i++) {
				const struct fo_op *o = &p->block[b].op[i];
				if (fo_op_family(o->kind) == FO_OPS_MATMUL && !(plain_wgrad(p) && o->phase == FO_WGRAD))
					convert(&w, b, &i);
			}
	if (delayed) {
		p->buf[w.history].rows = p->buf[w.amax].rows = w.sites;
		put_begin(&w);
		put_history(&w);
	}
	free(w.made);
}

/* ---- fp8-scale-precompute ---- */

/* A chain: the operations that cast a weight, taken out of the blocks that they stood in: its maximum, in a tp group
 * the joining of the ranks' maxima, its scale, its cast. */
enum { CHAIN_MOST = 4 };

static bool makes(const struct fo_op *o, const int buf[3])
{
	for (int i = 0; i < o->n; i++)
		for (int k = 0; k < 3; k++)
			if (fo_access_writes(o->arg[i].access) && o->arg[i].buf == buf[k])
				return true;
	return false;
}

/* Takes every operation of the layers' blocks that makes one of these buffers out; chain[]: those of the last block, in
 * order. Returns how many they are. */
static int take_out(struct fo_program *p, const int buf[3], struct fo_op chain[CHAIN_MOST])
{
	int n = 0;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0, here = 0; layer_block(p, b) && i < p->block[b].n; i++)
			if (makes(&p->block[b].op[i], buf)) {
				chain[here++] = p->block[b].op[i];
				fo_op_remove(p, b, i--);
				n = here;
			}
	return n;
}

/* The chain comes after the last optimizer operation of its weight. */
static void put_behind_step(struct fo_program *p, const struct fo_op *chain, int n)
{
	int weight = chain->arg[FO_AMAX_X].buf, block = -1, at = -1;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			if (p->block[b].op[i].kind == FO_OP_adamw && p->block[b].op[i].arg[FO_ADAMW_W].buf == weight &&
			    !is_apart(p, b))
				block = b, at = i;
	for (int k = 0; k < n; k++) {
		struct fo_op *o = fo_op_clone(p, block, at + 1 + k, &chain[k]);
		o->origin = o->id;
		o->phase = FO_DERIVE;
	}
}

static const struct fo_op *find_weight_cast(const struct fo_program *p)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; layer_block(p, b) && i < p->block[b].n; i++)
			if (p->block[b].op[i].kind == FO_OP_fp8_cast &&
			    persists(p, &p->block[b].op[i].arg[FO_FP8_CAST_X]))
				return &p->block[b].op[i];
	return NULL;
}

/* The buffer of the maxima that a scale is made of. */
static int maximum_of(const struct fo_program *p, int scale)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			if (p->block[b].op[i].kind == FO_OP_fp8_scale &&
			    p->block[b].op[i].arg[FO_FP8_SCALE_SX].buf == scale)
				return p->block[b].op[i].arg[FO_FP8_SCALE_AMAX].buf;
	return -1;
}

fo_status fo_pass_fp8_precompute_legal(const struct fo_program *p)
{
	if (!p->run.pass.fp8)
		return fo_fail(FO_EARG, "without fp8 there is no cast of a weight");
	if (p->run.pass.zero == FO_ZERO_WEIGHTS && fo_mesh_group(&p->run.mesh, FO_GROUP_SHARD, NULL, NULL) > 1)
		return fo_hint(fo_fail(FO_EARG, "with zero=3 a weight is whole only between its gathering and its use, "
						"and so it is cast there, not after the optimizer"),
			       "pass.fp8-scale-precompute=no casts each gathered weight; pass.zero=2 keeps whole "
			       "weights");
	return FO_OK;
}

void fo_pass_fp8_precompute(struct fo_program *p)
{
	const struct fo_op *cast;
	if (p->run.mode == FO_MODE_TRAIN)
		set_apart(p, FO_ROLE_OPTIMIZER);
	while ((cast = find_weight_cast(p))) {
		struct fo_op chain[CHAIN_MOST];
		const int numbers = cast->arg[FO_FP8_CAST_Y].buf, scale = cast->arg[FO_FP8_CAST_SX].buf;
		const int n = take_out(p, (const int[]){ numbers, scale, maximum_of(p, scale) }, chain);
		p->buf[numbers].home = p->buf[scale].home = FO_HOME_STATE;
		put_behind_step(p, chain, n);
	}
}
