#include "check/engine/num_cuda.h"
#include "check/engine/verify_int.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One line for each set that nothing below will run. */
static void name_missing_sets(struct fo_verify_run *v)
{
	for (int isa = 0; isa < FO_ISA_COUNT; isa++) {
		char why[96];
		if (fo_verify_set_runs(v, isa))
			continue;
		if (!fo_kernel_sets[isa])
			snprintf(why, sizeof why, "this build has no %s kernels", fo_isa_name[isa]);
		else if (!fo_isa_have(isa))
			snprintf(why, sizeof why, "this machine has no %s", fo_isa_name[isa]);
		else if (isa > (int)v->isa)
			snprintf(why, sizeof why, "FLATOUT_ISA lowers the instruction set to %s", fo_isa_name[v->isa]);
		else
			snprintf(why, sizeof why, "the short check runs %s only", fo_isa_name[v->isa]);
		fo_verify_add(v, fo_arena_printf(&v->r->arena, "kernels %s", fo_isa_name[isa]), "all", "",
			      FO_VERIFY_NOT_CHECKED, why);
	}
}

/* ---- kernels ---- */

enum { CASES_MAX = 1024 };

static bool has_case(const struct fo_num_case *list, size_t n, int kind)
{
	for (size_t i = 0; i < n; i++)
		if (list[i].call.kind == kind)
			return true;
	return false;
}

static struct fo_num_case *cases(int dtype, size_t *n)
{
	struct fo_num_case *list = fo_xmalloc(CASES_MAX * sizeof *list);
	*n = fo_num_case_list(dtype, list, CASES_MAX);
	if (*n > CASES_MAX)
		*n = CASES_MAX; /* the test of fo_verify_uncovered sees that this never happens */
	return list;
}

int fo_verify_uncovered(int dtype, const char **out, int cap)
{
	size_t n;
	int missing = 0;
	struct fo_num_case *list = cases(dtype, &n);
	for (int kind = 0; kind < FO_OP_COUNT; kind++) {
		if (!fo_op_has_kernel(kind) || has_case(list, n, kind))
			continue;
		if (missing < cap)
			out[missing] = fo_op_info(kind)->name;
		missing++;
	}
	free(list);
	return missing;
}

/* One case with a set's kernel, or without a set the device's. ref is held to its own bound. */
static bool check_case(const struct fo_verify_run *v, const struct fo_num_case *c, const struct fo_kernel_set *set,
		       struct fo_num_margin *m, char *why, size_t size)
{
	if (set) {
		const struct fo_kernel *k = &set->kernel[c->call.kind];
		if (set == &fo_kernels_ref && !fo_num_check_naive(c, m, why, size))
			return false;
		/* ref against itself would always seem to use half of its bound. */
		struct fo_num_margin self = { 0 }, *keep = set == &fo_kernels_ref ? &self : m;
		return v->o->brief ? fo_num_check_once(c, k, v->o->threads, keep, why, size)
				   : fo_num_check(c, k, keep, why, size);
	}
	bool good = v->o->brief ? fo_num_check_once(c, &fo_num_cuda_kernel, 1, m, why, size)
				: fo_num_check_device(c, &fo_num_cuda_kernel, fo_num_cuda_same_bits, m, why, size);
	const char *error = fo_num_cuda_error();
	if (error)
		snprintf(why, size, "%s: %s", c->name, error);
	return good && !error;
}

/* NULL where the set, or the device, runs this case, else why not. */
static const char *cannot(const struct fo_num_case *c, const struct fo_kernel_set *set)
{
	int kind = c->call.kind;
	if (!set)
		return fo_cuda_kernel_of(kind) ? fo_num_cuda_cannot(c) : "the device has no kernel for it";
	const struct fo_kernel *k = &set->kernel[kind];
	return k->run && (!k->can || k->can(&c->call)) ? NULL : "a lower set runs it";
}

static void check_op(struct fo_verify_run *v, const char *group, const struct fo_kernel_set *set, int kind,
		     const struct fo_num_case *list, size_t n)
{
	struct fo_num_margin m = { 0 };
	const char *name = fo_op_info(kind)->name, *against = "double precision",
		   *reason = "no case for this operation";
	char why[512], detail[64];
	int done = 0;
	for (size_t i = 0; i < n; i++) {
		if (list[i].call.kind != kind)
			continue;
		const char *no = cannot(&list[i], set);
		if (no) {
			reason = no;
			continue;
		}
		done++;
		if (!check_case(v, &list[i], set, &m, why, sizeof why)) {
			fo_verify_put(v, (struct fo_verify_check){ group, name, against, m.error, m.bound,
								   FO_VERIFY_FAIL, why });
			return;
		}
	}
	if (!done && set && has_case(list, n, kind))
		return; /* the set leaves this operation, or this type of it, to a lower one */
	if (!done) {
		fo_verify_add(v, group, name, against, FO_VERIFY_NOT_CHECKED, reason);
		return;
	}
	if (set)
		snprintf(detail, sizeof detail, "%d cases", done);
	else
		snprintf(detail, sizeof detail, "%d cases, %s", done, fo_cuda_kernel_of(kind)->by);
	fo_verify_measured(v, group, name, against, m.error, m.bound, detail);
}

/* All operations of a set, or without a set of the device. */
static void check_set(struct fo_verify_run *v, const struct fo_kernel_set *set)
{
	static const struct {
		int dtype;
		const char *name;
	} type[] = { { FO_F32, "fp32" }, { FO_BF16, "bf16" } };
	for (size_t t = 0; t < sizeof type / sizeof *type; t++) {
		size_t n;
		const char *group = fo_verify_group(v, "kernels %s %s", set ? set->name : "cuda", type[t].name);
		struct fo_num_case *list = cases(type[t].dtype, &n);
		for (int kind = 0; kind < FO_OP_COUNT; kind++)
			if (fo_op_has_kernel(kind) && (set || has_case(list, n, kind)))
				check_op(v, group, set, kind, list, n);
		free(list);
	}
}

static void check_kernels(struct fo_verify_run *v)
{
	if (v->o->cuda) {
		fo_num_cuda_use(v->o->cuda);
		check_set(v, NULL);
		fo_num_cuda_use(NULL);
		return;
	}
	name_missing_sets(v);
	for (int isa = 0; isa < FO_ISA_COUNT; isa++)
		if (fo_verify_set_runs(v, isa))
			check_set(v, fo_kernel_sets[isa]);
}

/* ---- all of it ---- */

fo_status fo_verify(const struct fo_verify_options *o, struct fo_verify_report *r)
{
	struct fo_verify_run v = { .o = o, .r = r };
	int64_t t0 = fo_now_ns();
	*r = (struct fo_verify_report){ 0 };
	FO_TRY(fo_isa_choose(&v.isa));
	check_kernels(&v);
	fo_verify_steps(&v);
	fo_verify_repeat(&v);
	if (!o->cuda) /* nothing of it is the device's */
		fo_verify_program(&v);
	fo_verify_checkpoint(&v);
	fo_verify_ranks(&v);
	r->seconds = (double)(fo_now_ns() - t0) * 1e-9;
	return FO_OK;
}

void fo_verify_fini(struct fo_verify_report *r)
{
	free(r->check);
	fo_arena_fini(&r->arena);
	*r = (struct fo_verify_report){ 0 };
}
