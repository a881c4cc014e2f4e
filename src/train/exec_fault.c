/* Finding the first number that is not finite. */
#include "train/exec_int.h"

#include <stdio.h>
#include <string.h>

/* "the weight 'model.layers.3.mlp.up_proj.weight'" for a parameter's buffers, "'gate'" for others. */
static void name_operand(const struct fo_exec *e, const struct fo_op *o, int operand, int layer, char *out, size_t size)
{
	static const char *const role[] = { "weight", "master weight", "first moment", "second moment" };
	int buf = o->arg[operand].buf;
	for (int q = 0; q < e->p->nparam; q++) {
		const struct fo_param *pr = &e->p->param[q];
		for (int k = 0; k < 4; k++) {
			if (pr->buf[k] != buf)
				continue;
			char name[80];
			fo_param_name(pr, layer, name, sizeof name);
			snprintf(out, size, "the %s '%s'", role[k], name);
			return;
		}
	}
	snprintf(out, size, "'%s'", e->p->buf[buf].name);
}

static void describe_fault(const struct fo_exec *e, struct fo_exec_fault *f)
{
	const struct fo_op *o = fo_instance_op(e->p, &e->u, f->instance);
	const struct fo_life *l = &e->u.life[e->u.life_of[e->u.arg_begin[f->instance] + f->operand]];
	char where[96], what[112];
	fo_exec_where(e, f->instance, where, sizeof where);
	name_operand(e, o, f->operand, l->layer, what, sizeof what);
	snprintf(f->text, sizeof f->text,
		 f->read ? "%s of %s read the first value that is not finite: %s[row %lld, column %lld] = %g"
			 : "%s of %s made the first value that is not finite: %s[row %lld, column %lld] = %g; all it "
			   "read was finite",
		 fo_op_info(o->kind)->name, where, what, (long long)f->row, (long long)f->col,
		 fo_unsigned_nan(f->value));
}

static bool find(struct fo_exec *e, int id, const struct fo_op *o, bool read, struct fo_exec_fault *f, fo_status *st)
{
	const struct fo_call c = fo_exec_call(e, id);
	for (int i = 0; i < o->n && *st == FO_OK; i++) {
		struct fo_tensor t = c.arg[i];
		int64_t at = -1;
		bool looks = read ? fo_access_reads(o->arg[i].access) : fo_access_writes(o->arg[i].access);
		if (!looks || t.dtype == FO_I32 || t.dtype == FO_I16)
			continue;
		*st = e->engine->find(e, &t, &at, &f->value);
		if (*st != FO_OK || at < 0)
			continue;
		f->instance = id;
		f->operand = i;
		f->read = read;
		f->row = at / t.cols;
		f->col = at % t.cols;
		describe_fault(e, f);
		return true;
	}
	return false;
}

fo_status fo_exec_find_fault(struct fo_exec *e, struct fo_exec_fault *out)
{
	fo_status st = fo_exec_ready(e);
	*out = (struct fo_exec_fault){ .instance = -1 };
	if (st != FO_OK)
		return st;
	/* Other ranks repeat the step too: where there are some, it goes on to its end. */
	const bool ends = !e->o.links;
	bool found = false;
	for (int id = 0; id < e->u.n; id++) {
		const struct fo_op *o = fo_instance_op(e->p, &e->u, id);
		bool changes = false;
		for (int i = 0; i < o->n; i++)
			changes |= fo_access_writes(o->arg[i].access) &&
				   fo_home_persists(e->p->buf[o->arg[i].buf].home);
		if (changes)
			continue;
		/* What comes from another stage may be on its way still: who reads it waits for it, and looks at it. */
		if (!found && fo_op_family(o->kind) != FO_OPS_P2P)
			FO_TRY(e->engine->settle(e, id));
		/* An operand that is added to was looked at when it was made. */
		found = found || find(e, id, o, true, out, &st);
		if (st == FO_OK && !(found && ends))
			st = e->engine->run(e, id);
		if (st == FO_OK && !found && fo_op_family(o->kind) != FO_OPS_P2P)
			found = find(e, id, o, false, out, &st);
		if (st != FO_OK || (found && ends))
			return st;
	}
	/* What follows is another step: none of this one's sends and receives goes on into it. */
	return e->u.n ? e->engine->settle(e, e->u.n - 1) : FO_OK;
}
