/* The parts of the self-check share this: the report, which has one line per check, and the choice of kernel sets. */
#include "check/engine/verify_int.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

const char *const fo_verify_result_name[FO_VERIFY_RESULTS] = { "pass", "FAIL", "not checked" };

const char *fo_verify_group(struct fo_verify_run *v, const char *fmt, ...)
{
	char text[96];
	va_list args;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	if (v->o->progress)
		v->o->progress(v->o->ctx, text);
	return fo_arena_strdup(&v->r->arena, text);
}

void fo_verify_put(struct fo_verify_run *v, struct fo_verify_check c)
{
	struct fo_verify_report *r = v->r;
	c.name = fo_arena_strdup(&r->arena, c.name);
	c.detail = c.detail ? fo_arena_strdup(&r->arena, c.detail) : NULL;
	fo_array_room(&r->check, &r->cap, r->n, sizeof *r->check);
	r->check[r->n++] = c;
	r->count[c.result]++;
}

void fo_verify_measured(struct fo_verify_run *v, const char *group, const char *name, const char *against, double error,
			double bound, const char *detail)
{
	fo_verify_put(v, (struct fo_verify_check){ group, name, against, error, bound,
						   error <= bound ? FO_VERIFY_PASS : FO_VERIFY_FAIL, detail });
}

void fo_verify_add(struct fo_verify_run *v, const char *group, const char *name, const char *against,
		   enum fo_verify_result result, const char *detail)
{
	fo_verify_put(v, (struct fo_verify_check){ group, name, against, NAN, NAN, result, detail });
}

void fo_verify_same_bits(struct fo_verify_run *v, const char *group, const char *name, const char *against, bool same)
{
	if (same)
		fo_verify_add(v, group, name, against, FO_VERIFY_PASS, "the same bits");
	else
		fo_verify_add(v, group, name, against, FO_VERIFY_FAIL, "other bits");
}

void fo_verify_error(struct fo_verify_run *v, const char *group, const char *name, const char *against)
{
	fo_verify_add(v, group, name, against, FO_VERIFY_FAIL, fo_err_text());
}

bool fo_verify_set_runs(const struct fo_verify_run *v, enum fo_isa isa)
{
	if (v->o->cuda) /* one round for the device */
		return isa == FO_ISA_REF;
	return fo_kernel_sets[isa] && fo_isa_have(isa) && isa <= v->isa && (!v->o->brief || isa == v->isa);
}
