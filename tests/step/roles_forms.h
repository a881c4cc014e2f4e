/* Defects that have a form: what a mistake in a pass would leave in programs of tp and cp groups. Part of test_roles.c,
 * whose ways to find operations it uses. */
#ifndef FO_TESTS_STEP_ROLES_FORMS_H
#define FO_TESTS_STEP_ROLES_FORMS_H

static bool is_tp_call(const struct fo_op *o) { return is_comm(o) && o->group == FO_GROUP_TP; }
static bool is_tp_sum(const struct fo_op *o)
{
	const enum fo_wire w = fo_op_info(o->kind)->wire;
	return is_tp_call(o) && !fo_op_info(o->kind)->max && (w == FO_WIRE_ALL_REDUCE || w == FO_WIRE_REDUCE_SCATTER);
}
static bool is_norm_sum(const struct fo_op *o)
{
	return is_comm(o) && o->n == 1 && fo_op_info(o->kind)->wire == FO_WIRE_ALL_REDUCE && o->arg->nr == 1 &&
	       o->arg->nc == 1 && (is_tp_call(o) || o->group == FO_GROUP_HEADS || o->group == FO_GROUP_KV);
}
static bool is_kv_sum(const struct fo_op *o) { return is_comm(o) && o->group == FO_GROUP_KV && !is_norm_sum(o); }
static bool is_of_words(const struct fo_op *o)
{
	return fo_op_family(o->kind) == FO_OPS_EMBEDDING ||
	       (fo_op_family(o->kind) == FO_OPS_LOSS && o->kind != kind_of("xent_loss"));
}
static bool is_word_join(const struct fo_op *o)
{
	return is_tp_call(o) && o->n == 1 && o->arg->nc <= 2 && o->arg->nr > 1;
}
static bool is_piece(const struct fo_op *o)
{
	return is_tp_call(o) && o->n == 2 && o->arg[0].r0 > 0 && o->arg[1].r0 > 0;
}
static bool is_block(const struct fo_op *o) { return o->attr.cp > 1 && o->attr.peer; }
static bool is_merge(const struct fo_op *o) { return o->kind == kind_of("attention_merge"); }
static bool is_shift(const struct fo_op *o) { return fo_op_info(o->kind)->wire == FO_WIRE_SHIFT; }
static bool is_taken(const struct fo_op *o)
{
	return fo_op_info(o->kind)->wire == FO_WIRE_REDUCE_SCATTER && o->arg->access == FO_TAKE &&
	       o->arg[1].access == FO_ACC;
}

static bool drop_one(struct fo_program *p, bool (*wanted)(const struct fo_op *))
{
	int b, i;
	if (!find_op(p, wanted, &b, &i))
		return false;
	fo_op_remove(p, b, i);
	return true;
}

static bool double_one(struct fo_program *p, bool (*wanted)(const struct fo_op *))
{
	int b, i;
	struct fo_op *o = find_op(p, wanted, &b, &i);
	if (!o)
		return false;
	const struct fo_op t = *o;
	fo_op_clone(p, b, i + 1, &t);
	return true;
}

static bool form_sum_missing(struct fo_program *p) { return drop_one(p, is_tp_sum); }
static bool form_sum_doubled(struct fo_program *p) { return double_one(p, is_tp_sum); }
static bool form_norm(struct fo_program *p) { return drop_one(p, is_norm_sum); }
static bool form_word_join(struct fo_program *p) { return drop_one(p, is_word_join); }
static bool form_max(struct fo_program *p) { return drop_one(p, is_max); }
static bool form_kv_missing(struct fo_program *p) { return drop_one(p, is_kv_sum); }
static bool form_kv_doubled(struct fo_program *p) { return double_one(p, is_kv_sum); }
static bool form_piece_missing(struct fo_program *p) { return drop_one(p, is_piece); }
static bool form_block(struct fo_program *p) { return drop_one(p, is_block); }
static bool form_merge(struct fo_program *p) { return drop_one(p, is_merge); }

static bool form_axis(struct fo_program *p)
{
	int b, i;
	struct fo_op *o = find_op(p, is_tp_call, &b, &i);
	const int32_t ranks = fo_mesh_tp(&p->run.mesh);
	for (int g = FO_GROUP_DATA; o && g < FO_GROUP_COUNT; g++)
		if (g != FO_GROUP_TP && fo_mesh_group(&p->run.mesh, (enum fo_group)g, NULL, NULL) == ranks &&
		    (g == FO_GROUP_DATA || g == FO_GROUP_SHARD || g == FO_GROUP_REPLICATE)) {
			o->group = (uint8_t)g;
			return true;
		}
	return false;
}

static bool form_words(struct fo_program *p)
{
	int b, i;
	struct fo_op *o = find_op(p, is_of_words, &b, &i);
	if (!o)
		return false;
	o->attr.element += o->attr.element ? -1 : 1;
	return true;
}

/* Behind each micro-batch's sum over the shard group, too. */
static bool form_kv_each(struct fo_program *p)
{
	int from, i;
	struct fo_op *o = find_op(p, is_kv_sum, &from, &i);
	if (!o)
		return false;
	const struct fo_op sum = *o;
	for (int b = 0; b < p->nblock; b++)
		for (int k = 0; b != from && k < p->block[b].n; k++)
			for (int t = 0; t < sum.n; t++)
				if (fo_op_info(p->block[b].op[k].kind)->wire == FO_WIRE_REDUCE_SCATTER &&
				    p->block[b].op[k].arg[1].buf == sum.arg[t].buf) {
					fo_op_clone(p, b, p->block[b].n, &sum);
					return true;
				}
	return false;
}

/* What one rank sends and receives of a piece is of another one. */
static bool form_piece_wrong(struct fo_program *p)
{
	int b, i;
	struct fo_op *o = find_op(p, is_piece, &b, &i);
	if (!o)
		return false;
	const bool gather = fo_op_info(o->kind)->wire == FO_WIRE_ALL_GATHER;
	o->arg[!gather].r0 = 0; /* own rows */
	return true;
}

static bool form_piece_order(struct fo_program *p)
{
	int b, i;
	const struct fo_op *o = find_op(p, is_piece, &b, &i);
	for (int k = 0; o && k < p->block[b].n; k++) {
		struct fo_op *x = &p->block[b].op[i], *y = &p->block[b].op[k];
		if (k == i || !is_tp_call(y) || y->kind != x->kind || y->arg[0].buf != x->arg[0].buf)
			continue;
		const struct fo_op t = *x;
		*x = *y;
		*y = t;
		return true;
	}
	return false;
}

static bool form_peer(struct fo_program *p)
{
	int b, i;
	struct fo_op *o = find_op(p, is_block, &b, &i);
	if (!o || 2 * o->attr.peer == o->attr.cp)
		return false;
	o->attr.peer = o->attr.cp - o->attr.peer;
	return true;
}

static bool form_place(struct fo_program *p)
{
	int b, i;
	struct fo_op *o = find_op(p, is_block, &b, &i);
	if (!o)
		return false;
	o->attr.place = (o->attr.place + 1) % o->attr.cp;
	return true;
}

/* What would come from the rank before stays with the one that has it. */
static bool form_owner(struct fo_program *p)
{
	int b, i;
	struct fo_op *o = find_op(p, is_shift, &b, &i);
	if (!o)
		return false;
	const int16_t from = o->arg[0].buf, to = o->arg[1].buf;
	fo_op_remove(p, b, i);
	for (int k = i; k < p->block[b].n; k++)
		for (int a = 0; a < p->block[b].op[k].n; a++)
			if (p->block[b].op[k].arg[a].buf == to)
				p->block[b].op[k].arg[a].buf = from;
	return true;
}

/* A micro-batch's gradient stays where it was added up from, and goes into the next one's sum again. */
static bool form_again(struct fo_program *p)
{
	int b, i;
	struct fo_op *o = find_op(p, is_taken, &b, &i);
	if (!o)
		return false;
	for (int k = 0; k < p->nblock; k++)
		for (int a = 0; a < p->block[k].n; a++)
			if (is_taken(&p->block[k].op[a]) && p->block[k].op[a].arg->buf == o->arg->buf)
				p->block[k].op[a].arg->access = FO_READ;
	return true;
}

enum form_job { TP_JOB, CP_JOB };
static const struct form {
	const char *name;
	bool (*plant)(struct fo_program *p);
	enum form_job of;
	bool one; /* in one rank; else in all */
} form[] = {
	{ "tp: sum of terms missing", form_sum_missing, TP_JOB, false },
	{ "tp: sum of terms doubled", form_sum_doubled, TP_JOB, false },
	{ "tp: call over another axis", form_axis, TP_JOB, false },
	{ "tp: sum of the norm missing", form_norm, TP_JOB, false },
	{ "tp: maximum of a scale missing", form_max, TP_JOB, false },
	{ "words: another first word", form_words, TP_JOB, false },
	{ "words: joining of the loss missing", form_word_join, TP_JOB, false },
	{ "kv: sum over copies missing", form_kv_missing, TP_JOB, false },
	{ "kv: sum over copies doubled", form_kv_doubled, TP_JOB, false },
	{ "kv: sum behind each micro-batch", form_kv_each, TP_JOB, false },
	{ "micro-batch counted again", form_again, TP_JOB, false },
	{ "pieces: one left out", form_piece_missing, TP_JOB, false },
	{ "pieces: another one's rows", form_piece_wrong, TP_JOB, false },
	{ "pieces: another one's rows, one rank", form_piece_wrong, TP_JOB, true },
	{ "pieces: out of order, one rank", form_piece_order, TP_JOB, true },
	{ "ring: block skipped", form_block, CP_JOB, false },
	{ "ring: merge missed", form_merge, CP_JOB, false },
	{ "ring: keys of the other way", form_peer, CP_JOB, false },
	{ "ring: another place", form_place, CP_JOB, false },
	{ "ring: not handed on", form_owner, CP_JOB, false },
};
enum { FORMS = sizeof form / sizeof *form };

#endif
