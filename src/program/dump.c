/* Programs as text: one line per thing, words separated by single spaces, floating point with 17 significant digits so
 * that a reloaded program is the same program. docs/formats.md describes it. Reading trusts nothing. */
#include "program/program.h"

#include "base/fs.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define HEADER "flatout-program 3"
#define MAX_ITEMS 1000000 /* of each kind: a 405B model with 256 micro-batches has 65,000 slots */

/* Values that have names. */
static const char *const rounding_name[FO_ROUND_COUNT] = { "nearest", "stochastic" };
static const char *const fp8_name[FO_FP8_COUNT] = { "off", "current", "delayed", "rowwise", "rowwise-hp" };
static const char *const fp8_wgrad_name[FO_FP8_WGRAD_COUNT] = { "fp8", "bf16" };
static const char *const attention_name[FO_ATTENTION_COUNT] = { "flash", "eager" };

static const char *const cp_name[FO_CP_COUNT] = { "off", "ring", "heads" };
/* As schedules are named, and off before them. */
#define NAME(enumerator, name, ...) name,
static const char *const pp_name[FO_PP_KINDS_COUNT + 1] = { "off", FO_PP_KINDS(NAME) };
#undef NAME
static const char *const tp_name[FO_TP_COUNT] = { "off", "replicated", "sequence" };
static const char *const zero_name[FO_ZERO_COUNT] = { "off", "1", "2", "3" };
static const char *const reshard_name[FO_RESHARD_COUNT] = { "forward", "backward", "step" };
static const char *const reduce_name[FO_REDUCE_COUNT] = { "fp32", "bf16" };
static const char *const sync_name[FO_SYNC_COUNT] = { "step", "micro-batch" };

const struct fo_pass_field fo_pass_field[] = {
#define X(member, name, values, n) { name, offsetof(struct fo_passes, member), values, n },
	FO_PASS_FIELDS(X)
#undef X
};
const int fo_pass_fields = sizeof fo_pass_field / sizeof *fo_pass_field;

const char *const fo_recompute_name[FO_RECOMPUTE_SETS] = { "norm", "swiglu", "gate-up", "qkv", "attention", "out" };

void fo_recompute_sets_text(int64_t sets, const char *sep, struct fo_str *out)
{
	for (int i = 0, n = 0; i < FO_RECOMPUTE_SETS; i++)
		if (sets >> i & 1)
			fo_str_printf(out, "%s%s", n++ ? sep : "", fo_recompute_name[i]);
}

static void put_recompute(int64_t sets, struct fo_str *out)
{
	fo_str_puts(out, "=");
	if (sets == FO_RECOMPUTE_FULL || sets == FO_RECOMPUTE_SELECTIVE)
		fo_str_puts(out, sets == FO_RECOMPUTE_FULL ? "full" : "selective");
	else
		fo_recompute_sets_text(sets, "+", out);
}

void fo_pass_value_text(size_t offset, int64_t value, struct fo_str *out)
{
	if (value &&
	    (offset == offsetof(struct fo_passes, recompute) || offset == offsetof(struct fo_passes, recompute_rest))) {
		put_recompute(value, out);
		return;
	}
	for (const struct fo_pass_field *f = fo_pass_field; f < fo_pass_field + fo_pass_fields; f++)
		if (f->offset == offset && value >= 0 && value < f->values) {
			fo_str_printf(out, "=%s", f->value[value]);
			return;
		}
	if (value > 1)
		fo_str_printf(out, "=%" PRId64, value);
}

void fo_passes_text(const struct fo_passes *c, struct fo_str *out)
{
	size_t begin = out->len;
	for (int i = 0; i < fo_pass_fields; i++) {
		int64_t value = fo_passes_get(c, fo_pass_field[i].offset);
		if (!value)
			continue;
		fo_str_printf(out, "%s%s", out->len > begin ? ", " : "", fo_pass_field[i].name);
		fo_pass_value_text(fo_pass_field[i].offset, value, out);
	}
	if (out->len == begin)
		fo_str_puts(out, "none");
}

/* Coordinates that most meshes lack come last. */
static void put_mesh(struct fo_str *out, const struct fo_mesh *m)
{
	fo_str_printf(out, "mesh %d %d", m->replicate, m->shard);
	const bool pp = fo_mesh_pp(m) > 1, cp = pp || fo_mesh_cp(m) > 1;
	if (fo_mesh_tp(m) > 1 || cp)
		fo_str_printf(out, " %d", fo_mesh_tp(m));
	if (cp)
		fo_str_printf(out, " %d", fo_mesh_cp(m));
	if (pp)
		fo_str_printf(out, " %d", m->pp);
	fo_str_puts(out, "\n");
}

static void put_stages(struct fo_str *out, const struct fo_staging *s)
{
	for (int i = 0; i < s->parts; i++)
		fo_str_printf(out, "part %d\n", s->layers[i]);
	for (int i = 0; i < s->repeats; i++)
		fo_str_printf(out, "stage %d %d %d\n", s->repeat[i].first, s->repeat[i].rest, s->repeat[i].layers);
}

void fo_program_dump(const struct fo_program *p, struct fo_str *out)
{
	const char *m = (const char *)&p->model;
	fo_str_printf(out, HEADER "\nmodel %d %d", (int)p->model.family, (int)p->model.rope.type);
	for (int i = 0; i < fo_model_fields; i++) {
		const void *f = m + fo_model_field[i].offset;
		if (fo_model_field[i].type == 'd')
			fo_str_printf(out, " %s=%.17g", fo_model_field[i].name, *(const double *)f);
		else
			fo_str_printf(out, " %s=%" PRId64, fo_model_field[i].name,
				      fo_model_field[i].type == 'b' ? *(const bool *)f : *(const int64_t *)f);
	}
	char name[4 * sizeof p->model.name];
	fo_str_printf(out, "\nname %s\n", p->model.name[0] ? fo_str_visible(name, sizeof name, p->model.name) : "-");
	fo_str_printf(out, "run %" PRId64 " %" PRId64 " %" PRId64 " %d %d", p->run.seq, p->run.rows,
		      p->run.micro_batches, (int)p->run.precision, (int)p->run.mode);
	if (p->run.mode == FO_MODE_DECODE)
		fo_str_printf(out, " %" PRId64, p->run.context);
	fo_str_puts(out, "\n");
	for (int i = 0; i < fo_pass_fields; i++) {
		int64_t value = fo_passes_get(&p->run.pass, fo_pass_field[i].offset);
		if (value)
			fo_str_printf(out, "pass %s %" PRId64 "\n", fo_pass_field[i].name, value);
	}
	if (p->ranks > 1)
		put_mesh(out, &p->run.mesh);
	put_stages(out, &p->run.stages);
	fo_str_printf(out, "rank %d %d %d %d %u\n", p->rank, p->ranks, p->layer_begin, p->layer_end, p->next_id);
	for (int i = 0; i < p->nbuf; i++) {
		const struct fo_buffer *b = &p->buf[i];
		fo_str_printf(out, "buffer %s %s %d %d %d %" PRId64 " %d %" PRId64 " %d", b->name,
			      fo_dtype_name[b->dtype], b->layout, b->home, b->axes, b->rows, b->row_axis, b->cols,
			      b->col_axis);
		if (b->whole || b->tp || b->stage)
			fo_str_printf(out, " %" PRId64 " %" PRId64, b->row0, b->whole);
		if (b->tp || b->stage)
			fo_str_printf(out, " %d", b->tp);
		if (b->stage)
			fo_str_printf(out, " %d", b->stage);
		fo_str_puts(out, "\n");
	}
	for (int i = 0; i < p->nparam; i++) {
		const struct fo_param *q = &p->param[i];
		fo_str_printf(out,
			      "param %s %" PRId64 " %" PRId64 " %d %d %.17g %d %d %d %d %d %d %d %d %d %" PRId64
			      " %" PRId64 "\n",
			      q->name, q->rows, q->cols, q->per_layer, q->decay, q->init_std, q->weight, q->master,
			      q->m, q->v, q->grad, q->r0, q->c0, q->nr, q->nc, q->global_r0, q->global_c0);
	}
	for (int i = 0; i < p->nblock; i++) {
		const struct fo_block *b = &p->block[i];
		fo_str_printf(out, "block %s %s %s\n", b->name, fo_role_name[b->role], fo_unit_name[b->unit]);
		for (int k = 0; k < b->n; k++) {
			const struct fo_op *o = &b->op[k];
			fo_str_printf(out, "op %u %u %s %s %s %d %d %d %d %d %d %d %.17g %d %" PRId64, o->id, o->origin,
				      fo_op_info(o->kind)->name, fo_phase_name[o->phase], fo_lane_name[o->lane],
				      o->group, o->attr.ta, o->attr.tb, o->attr.sign, o->attr.port, o->attr.head_dim,
				      o->attr.window, o->attr.value, o->attr.stochastic, o->attr.element);
			if (fo_op_info(o->kind)->cls == FO_CLASS_COMM)
				fo_str_printf(out, o->attr.narrow ? " %d %d" : " %d", o->attr.peer, o->attr.narrow);
			if (o->attr.cp)
				fo_str_printf(out, " %d %d %d %d", o->attr.peer, o->attr.cp, o->attr.place,
					      o->attr.chunk);
			fo_str_puts(out, "\n");
			for (int a = 0; a < o->n; a++) {
				const struct fo_operand *r = &o->arg[a];
				fo_str_printf(out, "arg %s %d %s %d %d %d %d\n", p->buf[r->buf].name, r->dlayer,
					      fo_access_name[r->access], r->r0, r->nr, r->c0, r->nc);
			}
		}
	}
	for (int i = 0; i < p->nslot; i++)
		fo_str_printf(out, "slot %s %d %d\n", p->block[p->slot[i].block].name, p->slot[i].layer, p->slot[i].mb);
	fo_str_puts(out, "end\n");
}

uint64_t fo_program_hash(const struct fo_program *p)
{
	struct fo_str s = { 0 };
	fo_program_dump(p, &s);
	uint64_t h = XXH3_64bits(s.data, s.len);
	fo_str_fini(&s);
	return h;
}

/* ---- reading ---- */

struct reader {
	struct fo_program *p;
	const char *where;
	int line;
	char *word[32];
	int words;
	bool failed;
};

static fo_status wrong(struct reader *r, const char *what)
{
	char seen[96];
	return fo_fail(FO_EFORMAT, "%s:%d: not a step program: %s (line begins with '%s')", r->where, r->line, what,
		       fo_str_visible(seen, sizeof seen, r->words ? r->word[0] : ""));
}

static void split(struct reader *r, char *line)
{
	r->words = 0;
	for (char *s = strtok_r(line, " ", &line); s && r->words < 32; s = strtok_r(NULL, " ", &line))
		r->word[r->words++] = s;
}

/* Word i as an integer in [lo, hi]; a bad one sets r->failed. */
static int64_t integer(struct reader *r, int i, int64_t lo, int64_t hi)
{
	char *end = NULL;
	errno = 0;
	long long v = i < r->words ? strtoll(r->word[i], &end, 10) : 0;
	if (i >= r->words || errno || end == r->word[i] || *end || v < lo || v > hi) {
		r->failed = true;
		return lo;
	}
	return v;
}

static double real(struct reader *r, const char *text)
{
	char *end;
	double v = strtod(text, &end);
	if (end == text || *end || !isfinite(v)) {
		r->failed = true;
		return 0;
	}
	return v;
}

static int name_of(struct reader *r, int i, const char *const *names, int n)
{
	for (int k = 0; i < r->words && k < n; k++)
		if (!strcmp(r->word[i], names[k]))
			return k;
	r->failed = true;
	return 0;
}

static fo_status read_model(struct reader *r)
{
	if (r->words != 3 + fo_model_fields)
		return wrong(r, "a model line has another number of fields");
	struct fo_model *m = &r->p->model;
	m->family = (enum fo_family)integer(r, 1, 0, FO_FAMILY_DEEPSEEK);
	m->rope.type = (enum fo_rope_type)integer(r, 2, 0, FO_ROPE_LLAMA3);
	for (int i = 0; i < fo_model_fields; i++) {
		char *eq = strchr(r->word[3 + i], '=');
		if (!eq || strncmp(r->word[3 + i], fo_model_field[i].name, (size_t)(eq - r->word[3 + i])) ||
		    fo_model_field[i].name[eq - r->word[3 + i]])
			return wrong(r, "an unknown model field");
		double v = real(r, eq + 1);
		void *f = (char *)m + fo_model_field[i].offset;
		if (fo_model_field[i].type == 'd')
			*(double *)f = v;
		else if (fabs(v) > 0x1p53 || v != floor(v))
			return wrong(r, "a model field is not a whole number");
		else if (fo_model_field[i].type == 'b')
			*(bool *)f = v != 0;
		else
			*(int64_t *)f = (int64_t)v;
	}
	return r->failed ? wrong(r, "a model field is not a number") : FO_OK;
}

static fo_status read_buffer(struct reader *r)
{
	struct fo_program *p = r->p;
	if ((r->words != 10 && (r->words < 12 || r->words > 14)) || p->nbuf >= INT16_MAX ||
	    strlen(r->word[1]) >= sizeof p->buf->name || fo_buffer_find(p, r->word[1]) >= 0)
		return wrong(r, "a buffer line with a wrong number of fields, a name used twice or too long");
	int dtype = name_of(r, 2, fo_dtype_name, FO_DTYPE_COUNT), home = (int)integer(r, 4, 0, FO_HOME_COUNT - 1),
	    axes = (int)integer(r, 5, 0, 3);
	integer(r, 3, 0, FO_LAYOUT_COUNT - 1);
	int64_t rows = integer(r, 6, 1, INT32_MAX), cols = integer(r, 8, 1, INT32_MAX);
	int ra = (int)integer(r, 7, 0, FO_AXIS_COUNT - 1), ca = (int)integer(r, 9, 0, FO_AXIS_COUNT - 1);
	int64_t row0 = 0, whole = 0;
	int tp = r->words > 12 ? (int)integer(r, 12, r->words == 13, FO_TP_PARTS - 1) : FO_TP_WHOLE;
	int stage = r->words > 13 ? (int)integer(r, 13, 1, FO_STAGE_PARTS - 1) : FO_STAGE_HERE;
	if (r->words >= 12) {
		row0 = integer(r, 10, 0, INT32_MAX);
		whole = integer(r, 11, 0, INT32_MAX);
		r->failed |= whole || r->words == 12 ? whole < row0 + rows : row0 > 0;
	}
	if (r->failed || rows > ((int64_t)1 << 50) / cols)
		return wrong(r, "a buffer's fields are out of range");
	int b = fo_buffer_add(p, r->word[1], dtype, home, axes, rows, ra, cols, ca);
	p->buf[b].row0 = row0;
	p->buf[b].whole = whole;
	p->buf[b].tp = (uint8_t)tp;
	p->buf[b].stage = (uint8_t)stage;
	return FO_OK;
}

static fo_status read_param(struct reader *r)
{
	struct fo_program *p = r->p;
	struct fo_param q = { 0 };
	if (r->words != 18 || p->nparam >= MAX_ITEMS || strlen(r->word[1]) >= sizeof q.name)
		return wrong(r, "a parameter line with a wrong number of fields");
	snprintf(q.name, sizeof q.name, "%s", r->word[1]);
	q.rows = integer(r, 2, 1, INT32_MAX);
	q.cols = integer(r, 3, 1, INT32_MAX);
	q.per_layer = integer(r, 4, 0, 1);
	q.decay = integer(r, 5, 0, 1);
	q.init_std = real(r, r->word[6]);
	for (int i = 0; i < FO_PARAM_BUFFERS; i++)
		q.buf[i] = (int16_t)integer(r, 7 + i, i ? -1 : 0, p->nbuf - 1);
	int32_t *const rect[] = { &q.r0, &q.c0, &q.nr, &q.nc };
	for (int i = 0; i < 4; i++)
		*rect[i] = (int32_t)integer(r, 12 + i, i > 1, INT32_MAX);
	q.global_r0 = integer(r, 16, 0, INT32_MAX);
	q.global_c0 = integer(r, 17, 0, INT32_MAX);
	if (r->failed)
		return wrong(r, "a parameter's fields are out of range");
	const struct fo_buffer *b = &p->buf[q.weight];
	if ((int64_t)q.r0 + q.nr > fo_buffer_whole(b) || (int64_t)q.c0 + q.nc > b->cols ||
	    q.global_r0 + q.nr > q.rows || q.global_c0 + q.nc > q.cols || q.per_layer != !!(b->axes & FO_PER_LAYER))
		return wrong(r, "a parameter's rectangle lies outside its buffer");
	for (int i = 1; i < FO_PARAM_BUFFERS; i++) {
		const struct fo_buffer *s = q.buf[i] < 0 ? b : &p->buf[q.buf[i]];
		if (fo_buffer_whole(s) != fo_buffer_whole(b) || s->cols != b->cols || s->axes != b->axes)
			return wrong(r, "a parameter's state has another shape than its weight");
	}
	fo_array_room(&p->param, &p->param_cap, (size_t)p->nparam, sizeof q);
	p->param[p->nparam++] = q;
	return FO_OK;
}

static fo_status read_op(struct reader *r)
{
	struct fo_program *p = r->p;
	int kind = r->words > 3 ? fo_op_kind_find(r->word[3]) : -1;
	bool comm = kind >= 0 && fo_op_info(kind)->cls == FO_CLASS_COMM;
	bool narrow = comm && r->words == 18;
	bool ring = !comm && r->words == 20;
	if (r->words != 16 + comm + narrow + 4 * ring || kind < 0 || !p->nblock ||
	    p->block[p->nblock - 1].n >= UINT16_MAX)
		return wrong(r, "an operation outside a block, of unknown kind or with a wrong number of fields");
	int b = p->nblock - 1;
	struct fo_op *o = fo_op_insert(p, b, p->block[b].n, kind, name_of(r, 4, fo_phase_name, FO_PHASE_COUNT),
				       name_of(r, 5, fo_lane_name, FO_LANE_COUNT));
	o->id = (uint32_t)integer(r, 1, 0, UINT32_MAX);
	o->origin = (uint32_t)integer(r, 2, 0, UINT32_MAX);
	o->group = (uint8_t)integer(r, 6, 0, 255);
	o->attr.ta = (uint8_t)integer(r, 7, 0, 1);
	o->attr.tb = (uint8_t)integer(r, 8, 0, 1);
	o->attr.sign = (int8_t)integer(r, 9, -1, 1);
	o->attr.port = (uint8_t)integer(r, 10, 0, FO_PORT_COUNT - 1);
	o->attr.head_dim = (int32_t)integer(r, 11, 0, 1 << 20);
	o->attr.window = (int32_t)integer(r, 12, 0, INT32_MAX);
	o->attr.value = real(r, r->word[13]);
	o->attr.stochastic = (int32_t)integer(r, 14, 0, 1);
	o->attr.element = integer(r, 15, 0, INT64_MAX);
	if (comm)
		o->attr.peer = (int32_t)integer(r, 16, 0, FO_MESH_RANKS_MOST - 1);
	if (ring) {
		o->attr.peer = (int32_t)integer(r, 16, 0, FO_MESH_RANKS_MOST - 1);
		o->attr.cp = (int32_t)integer(r, 17, 1, FO_MESH_RANKS_MOST);
		o->attr.place = (int32_t)integer(r, 18, 0, FO_MESH_RANKS_MOST - 1);
		o->attr.chunk = (int32_t)integer(r, 19, 1, 1 << 24);
	}
	if (narrow)
		o->attr.narrow = (uint8_t)integer(r, 17, 0, 1);
	return r->failed ? wrong(r, "an operation's fields are out of range") : FO_OK;
}

static fo_status read_mesh(struct reader *r, struct fo_mesh *m)
{
	m->replicate = (int32_t)integer(r, 1, 0, FO_MESH_RANKS_MOST);
	m->shard = (int32_t)integer(r, 2, 0, FO_MESH_RANKS_MOST);
	m->tp = r->words > 3 ? (int32_t)integer(r, 3, 1, FO_MESH_RANKS_MOST) : 0;
	m->cp = r->words > 4 ? (int32_t)integer(r, 4, r->words == 5 ? 2 : 1, FO_MESH_RANKS_MOST) : 0;
	m->pp = r->words > 5 ? (int32_t)integer(r, 5, 2, FO_MESH_RANKS_MOST) : 0;
	return r->failed || !fo_mesh_is_sound(m) ? wrong(r, "a mesh's fields are out of range") : FO_OK;
}

static fo_status read_part(struct reader *r, struct fo_staging *s)
{
	if (r->words != 2 || s->parts >= FO_STAGING_MOST)
		return wrong(r, "a part of a pipeline with a wrong number of fields, or one too many");
	s->layers[s->parts++] = (int16_t)integer(r, 1, 1, INT16_MAX);
	return r->failed ? wrong(r, "a part's layers are out of range") : FO_OK;
}

static fo_status read_stage(struct reader *r, struct fo_staging *s)
{
	if (r->words != 4 || s->repeats >= FO_STAGING_MOST)
		return wrong(r, "a stage of a pipeline with a wrong number of fields, or one too many");
	s->repeat[s->repeats++] = (struct fo_stage_repeat){ .first = (uint8_t)integer(r, 1, 0, FO_RECOMPUTE_FULL),
							    .rest = (uint8_t)integer(r, 2, 0, FO_RECOMPUTE_FULL),
							    .layers = (int16_t)integer(r, 3, 0, INT16_MAX) };
	return r->failed ? wrong(r, "a stage's fields are out of range") : FO_OK;
}

static fo_status read_arg(struct reader *r)
{
	struct fo_program *p = r->p;
	struct fo_block *b = p->nblock ? &p->block[p->nblock - 1] : NULL;
	struct fo_op *o = b && b->n ? &b->op[b->n - 1] : NULL;
	int buf = r->words == 8 ? fo_buffer_find(p, r->word[1]) : -1;
	if (buf < 0 || !o || o->n >= FO_MAX_OPERANDS)
		return wrong(r, "an operand without an operation, of an unknown buffer or one too many");
	struct fo_operand a = { .buf = (int16_t)buf,
				.dlayer = (int8_t)integer(r, 2, INT8_MIN, INT8_MAX),
				.access = (uint8_t)name_of(r, 3, fo_access_name, FO_TAKE + 1),
				.r0 = (int32_t)integer(r, 4, 0, INT32_MAX),
				.nr = (int32_t)integer(r, 5, 1, INT32_MAX),
				.c0 = (int32_t)integer(r, 6, 0, INT32_MAX),
				.nc = (int32_t)integer(r, 7, 1, INT32_MAX) };
	if (r->failed)
		return wrong(r, "an operand's fields are out of range");
	o->arg[o->n++] = a;
	return FO_OK;
}

static fo_status read_line(struct reader *r)
{
	struct fo_program *p = r->p;
	const char *what = r->words ? r->word[0] : "";
	if (!strcmp(what, "model"))
		return read_model(r);
	if (!strcmp(what, "run")) {
		p->run = (struct fo_lowering){ integer(r, 1, 1, 1 << 24),
					       integer(r, 2, 1, 1 << 20),
					       integer(r, 3, 1, 1 << 16),
					       (enum fo_numerics)integer(r, 4, 0, FO_PRECISION_COUNT - 1),
					       (enum fo_mode)integer(r, 5, 0, FO_MODE_DECODE),
					       0,
					       p->run.pass,
					       p->run.mesh,
					       p->run.stages };
		p->tokens = p->run.seq * p->run.rows;
		bool decode = p->run.mode == FO_MODE_DECODE;
		if (decode)
			p->run.context = integer(r, 6, p->run.seq, 1 << 24);
		if (decode && (p->run.rows != 1 || p->run.micro_batches != 1))
			return wrong(r, "a chunk of a text is one row and one micro-batch");
		return r->failed || p->tokens > 1 << 28 ? wrong(r, "a run's fields are out of range") : FO_OK;
	}
	if (!strcmp(what, "pass")) {
		for (int i = 0; i < fo_pass_fields; i++)
			if (r->words == 3 && !strcmp(r->word[1], fo_pass_field[i].name)) {
				fo_passes_set(&p->run.pass, fo_pass_field[i].offset, integer(r, 2, 1, INT64_MAX));
				return r->failed ? wrong(r, "a pass's value is out of range") : FO_OK;
			}
		return wrong(r, "a pass that is not known");
	}
	if (!strcmp(what, "mesh"))
		return read_mesh(r, &p->run.mesh);
	if (!strcmp(what, "part"))
		return read_part(r, &p->run.stages);
	if (!strcmp(what, "stage"))
		return read_stage(r, &p->run.stages);
	if (!strcmp(what, "rank")) {
		p->ranks = fo_mesh_ranks(&p->run.mesh);
		p->rank = p->run.mesh.rank = (int32_t)integer(r, 1, 0, p->ranks - 1);
		integer(r, 2, p->ranks, p->ranks);
		p->layer_begin = (int32_t)integer(r, 3, 0, INT32_MAX),
		p->layer_end = (int32_t)integer(r, 4, 0, INT32_MAX);
		p->next_id = (uint32_t)integer(r, 5, 0, UINT32_MAX);
		return r->failed ? wrong(r, "a rank's fields are out of range") : FO_OK;
	}
	if (!strcmp(what, "buffer"))
		return read_buffer(r);
	if (!strcmp(what, "param"))
		return read_param(r);
	if (!strcmp(what, "block")) {
		if (r->words != 4 || p->nblock >= INT16_MAX || strlen(r->word[1]) >= sizeof p->block->name ||
		    fo_block_find(p, r->word[1]) >= 0)
			return wrong(r, "a block line with a wrong number of fields, a name used twice or too long");
		int role = name_of(r, 2, fo_role_name, FO_ROLE_COUNT),
		    unit = name_of(r, 3, fo_unit_name, FO_UNIT_COUNT);
		if (r->failed)
			return wrong(r, "a block's fields are out of range");
		fo_block_add(p, r->word[1], role, unit);
		return FO_OK;
	}
	if (!strcmp(what, "op"))
		return read_op(r);
	if (!strcmp(what, "arg"))
		return read_arg(r);
	if (!strcmp(what, "slot")) {
		int b = r->words == 4 ? fo_block_find(p, r->word[1]) : -1;
		int layer = (int)integer(r, 2, 0, INT16_MAX), mb = (int)integer(r, 3, 0, 1 << 16);
		if (b < 0 || r->failed || p->nslot >= MAX_ITEMS)
			return wrong(r, "a slot of an unknown block or with fields out of range");
		fo_slot_add(p, b, layer, mb);
		return FO_OK;
	}
	return wrong(r, "unknown line");
}

/* Unrolling costs time and memory in proportion to instances: bounded before it is tried. */
static fo_status check_size(const struct fo_program *p, const char *where)
{
	double instances = 0, bytes = 0; /* the plan adds bytes up in int64 */
	double layers = (double)(p->model.layers + 1), micro_batches = (double)p->run.micro_batches;
	if (p->nbuf == 0 || p->run.seq == 0)
		return fo_fail(FO_EFORMAT, "%s: the step program has no run or no buffers", where);
	if (p->tokens % fo_mesh_cp(&p->run.mesh))
		return fo_fail(FO_EFORMAT, "%s: ranks of the step program cannot share the tokens of its rows", where);
	for (int i = 0; i < p->nslot; i++)
		instances += p->block[p->slot[i].block].n;
	for (int i = 0; i < p->nbuf; i++)
		bytes += (double)fo_buffer_bytes(&p->buf[i]) * layers * micro_batches;
	if (bytes > 0x1p60)
		return fo_fail(FO_EFORMAT, "%s: the step program's buffers hold more than 2^60 bytes", where);
	if (instances > 2e7 || (double)p->nparam * layers > 2e7 || (double)p->nbuf * layers * micro_batches > 2e7)
		return fo_fail(FO_EFORMAT, "%s: the step program has more than 20 million instances", where);
	return FO_OK;
}

fo_status fo_program_parse(struct fo_program *p, const char *text, size_t len, const char *where)
{
	struct reader r = { .p = p, .where = where };
	*p = (struct fo_program){ 0 };
	char *copy = fo_xmalloc(len + 1);
	memcpy(copy, text, len);
	fo_status st = FO_OK;
	bool ended = false;
	uint32_t next_id = 0;
	size_t begin = 0;
	while (begin < len && st == FO_OK && !ended) {
		char *line = copy + begin, *nl = memchr(line, '\n', len - begin);
		size_t n = nl ? (size_t)(nl - line) : len - begin;
		begin += n + 1;
		line[n] = 0;
		r.line++;
		if (r.line == 1) {
			if (strcmp(line, HEADER))
				st = fo_fail(FO_EFORMAT,
					     "%s:1: not a step program: the first line must be '" HEADER "'", where);
			continue;
		}
		if (!strcmp(line, "end")) {
			ended = true;
			break;
		}
		if (!strncmp(line, "name ", 5)) { /* the rest of the line: names of models may have spaces */
			fo_str_visible(p->model.name, sizeof p->model.name, strcmp(line + 5, "-") ? line + 5 : "");
			continue;
		}
		split(&r, line);
		st = read_line(&r);
		if (r.words && !strcmp(r.word[0], "rank"))
			next_id = p->next_id;
	}
	p->next_id = next_id;
	if (st == FO_OK && !ended)
		st = fo_fail(FO_EFORMAT, "%s: the step program is cut off after line %d: no 'end'", where, r.line);
	if (st == FO_OK && (st = fo_model_check(&p->model)) != FO_OK)
		fo_wrap(st, "%s", where);
	if (st == FO_OK)
		st = check_size(p, where);
	p->tokens /= fo_mesh_cp(&p->run.mesh);
	if (st == FO_OK && fo_lowering_check_pipeline(&p->run, p->model.layers) != FO_OK)
		st = fo_wrap(FO_EFORMAT, "%s", where);
	p->staged = fo_mesh_pp(&p->run.mesh) > 1;
	if (st == FO_OK)
		p->run.mesh.kv = p->run.pass.tp ? fo_mesh_kv_of(&p->model, fo_mesh_tp(&p->run.mesh)) : 1;
	if (st == FO_OK)
		st = fo_program_verify(p, where);
	free(copy);
	if (st != FO_OK)
		fo_program_fini(p);
	return st == FO_EBUG ? FO_EFORMAT : st;
}

fo_status fo_program_read(struct fo_program *p, const char *path, bool regular)
{
	const size_t most = (size_t)256 << 20;
	struct fo_arena a = { 0 };
	char *text;
	size_t len;
	fo_status st = (regular ? fo_fs_read_regular : fo_fs_read)(&a, path, most, &text, &len);
	if (st == FO_OK)
		st = fo_program_parse(p, text, len, path);
	fo_arena_fini(&a);
	return st;
}
