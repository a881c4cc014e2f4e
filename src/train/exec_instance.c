/* One instance of an operation: its call, which operands it is the first to write, and where it stands, in words. */
#include "train/exec_int.h"

#include <stdio.h>
#include <string.h>

struct fo_call fo_exec_call(const struct fo_exec *e, int id)
{
	const struct fo_slot *s = &e->p->slot[e->u.slot[id]];
	const struct fo_op *o = e->op[fo_exec_op(e, id)];
	struct fo_call c = e->call[fo_exec_op(e, id)];
	for (int i = 0; i < o->n; i++) {
		const struct fo_operand *a = &o->arg[i];
		int64_t at = a->r0 * c.arg[i].ld + a->c0;
		c.arg[i].data = (unsigned char *)e->data[e->u.life_of[e->u.arg_begin[id] + i]] +
				at * (int64_t)fo_dtype_bytes(c.arg[i].dtype);
		c.arg[i].first = at;
		c.arg[i].layer = e->p->buf[a->buf].axes & FO_PER_LAYER ? s->layer + a->dlayer + 1 : 0;
	}
	c.first = e->u.first[id];
	return c;
}

bool fo_exec_begins(const struct fo_exec *e, int id, int i)
{
	const int32_t *life_of = &e->u.life_of[e->u.arg_begin[id]];
	const struct fo_life *l = &e->u.life[life_of[i]];
	bool shared = false;
	for (int k = 0; k < e->u.arg_begin[id + 1] - e->u.arg_begin[id]; k++)
		shared |= k != i && e->data[life_of[k]] == e->data[life_of[i]];
	return !l->persists && l->first == id && !shared;
}

void fo_exec_poison(const struct fo_exec *e, int id)
{
	const int32_t *life_of = &e->u.life_of[e->u.arg_begin[id]];
	for (int i = 0; e->o.poison && i < e->u.arg_begin[id + 1] - e->u.arg_begin[id]; i++)
		if (fo_exec_begins(e, id, i))
			memset(e->data[life_of[i]], 0xff, (size_t)e->u.life[life_of[i]].bytes);
}

void fo_exec_where(const struct fo_exec *e, int id, char *out, size_t size)
{
	const struct fo_slot *s = &e->p->slot[e->u.slot[id]];
	const struct fo_block *b = &e->p->block[s->block];
	const struct fo_op *o = e->op[fo_exec_op(e, id)];
	if (b->unit == FO_UNIT_LAYER)
		snprintf(out, size, "layer %d", s->layer);
	else if (b->unit == FO_UNIT_EMBED)
		snprintf(out, size, "the embedding");
	else
		snprintf(out, size, "the %s", b->unit == FO_UNIT_HEAD ? "head" : "step");
	if (b->role != FO_ROLE_OPTIMIZER && b->unit != FO_UNIT_STEP)
		snprintf(out + strlen(out), size - strlen(out), " (%s, micro-batch %d)", fo_phase_name[o->phase],
			 s->mb + 1);
}

fo_status fo_exec_failed(const struct fo_exec *e, int id, fo_status st)
{
	char where[96];
	fo_exec_where(e, id, where, sizeof where);
	return fo_wrap(st, "%s of %s", fo_op_info(fo_instance_op(e->p, &e->u, id)->kind)->name, where);
}

fo_status fo_exec_fails(const struct fo_exec *e, int id)
{
	if (!e->o.fail_at || e->o.fail_at != id || e->o.fail_rank != e->p->rank)
		return FO_OK;
	return fo_fail(FO_EIO, "a fault was asked for");
}
