#include "audit/engine/num_cuda.h"
#include "audit/engine/verify_int.h"

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

enum { CASES_MAX = 512 };

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
		if (fo_op_info(kind)->cls == FO_CLASS_HOST || has_case(list, n, kind))
			continue;
		if (missing < cap)
			out[missing] = fo_op_info(kind)->name;
		missing++;
	}
	free(list);
	return missing;
}

/* One case with one kernel; ref against its own bound. */
static bool check_case(const struct fo_verify_run *v, const struct fo_num_case *c, const struct fo_kernel *k,
		       struct fo_num_margin *m, char *why, size_t size)
{
	if (k == &fo_kernels_ref.kernel[c->call.kind] && !fo_num_check_naive(c, m, why, size))
		return false;
	/* ref against itself would always seem to use half of its bound. */
	struct fo_num_margin self = { 0 }, *keep = k == &fo_kernels_ref.kernel[c->call.kind] ? &self : m;
	return v->o->brief ? fo_num_check_once(c, k, v->o->threads, keep, why, size)
			   : fo_num_check(c, k, keep, why, size);
}

static void check_op(struct fo_verify_run *v, const char *group, const struct fo_kernel_set *set, int kind,
		     const struct fo_num_case *list, size_t n)
{
	const struct fo_kernel *k = &set->kernel[kind];
	struct fo_num_margin m = { 0 };
	const char *name = fo_op_info(kind)->name, *against = "double precision";
	char why[512], detail[64];
	int done = 0;
	if (!has_case(list, n, kind)) {
		fo_verify_add(v, group, name, against, FO_VERIFY_NOT_CHECKED, "no case for this operation");
		return;
	}
	for (size_t i = 0; i < n; i++) {
		if (list[i].call.kind != kind || !k->run || (k->can && !k->can(&list[i].call)))
			continue;
		done++;
		if (!check_case(v, &list[i], k, &m, why, sizeof why)) {
			struct fo_verify_check c = { group, name, against, m.error, m.bound, FO_VERIFY_FAIL, why };
			fo_verify_put(v, c);
			return;
		}
	}
	if (!done)
		return; /* the set leaves this operation, or this type of it, to a lower one */
	snprintf(detail, sizeof detail, "%d cases", done);
	fo_verify_measured(v, group, name, against, m.error, m.bound, detail);
}

void fo_verify_kernels(struct fo_verify_run *v)
{
	static const struct {
		int dtype;
		const char *name;
	} type[] = { { FO_F32, "fp32" }, { FO_BF16, "bf16" } };
	for (int isa = 0; isa < FO_ISA_COUNT; isa++)
		for (size_t t = 0; t < sizeof type / sizeof *type; t++) {
			size_t n;
			if (!fo_verify_set_runs(v, isa))
				continue;
			const char *group = fo_verify_group(v, "kernels %s %s", fo_isa_name[isa], type[t].name);
			struct fo_num_case *list = cases(type[t].dtype, &n);
			for (int kind = 0; kind < FO_OP_COUNT; kind++)
				if (fo_op_info(kind)->cls != FO_CLASS_HOST)
					check_op(v, group, fo_kernel_sets[isa], kind, list, n);
			free(list);
		}
}

/* ---- a device's kernels ---- */

static bool check_device_case(const struct fo_verify_run *v, const struct fo_num_case *c, struct fo_num_margin *m,
			      char *why, size_t size)
{
	bool good = v->o->brief ? fo_num_check_once(c, &fo_num_cuda_kernel, 1, m, why, size)
				: fo_num_check_device(c, &fo_num_cuda_kernel, fo_num_cuda_same_bits, m, why, size);
	const char *error = fo_num_cuda_error();
	if (error)
		snprintf(why, size, "%s: %s", c->name, error);
	return good && !error;
}

static void check_device_op(struct fo_verify_run *v, const char *group, int kind, const struct fo_num_case *list,
			    size_t n)
{
	struct fo_num_margin m = { 0 };
	const char *name = fo_op_info(kind)->name, *against = "double precision",
		   *cannot = "the device has no kernel for it";
	char why[512], detail[64];
	int done = 0;
	for (size_t i = 0; i < n; i++) {
		if (list[i].call.kind != kind || !fo_cuda_kernel_of(kind))
			continue;
		const char *reason = fo_num_cuda_cannot(&list[i]);
		if (reason) {
			cannot = reason;
			continue;
		}
		done++;
		if (!check_device_case(v, &list[i], &m, why, sizeof why)) {
			fo_verify_put(v, (struct fo_verify_check){ group, name, against, m.error, m.bound,
								   FO_VERIFY_FAIL, why });
			return;
		}
	}
	if (!done) {
		fo_verify_add(v, group, name, against, FO_VERIFY_NOT_CHECKED, cannot);
		return;
	}
	snprintf(detail, sizeof detail, "%d cases, %s", done, fo_cuda_kernel_of(kind)->by);
	fo_verify_measured(v, group, name, against, m.error, m.bound, detail);
}

static void check_device(struct fo_verify_run *v)
{
	static const struct {
		int dtype;
		const char *name;
	} type[] = { { FO_F32, "fp32" }, { FO_BF16, "bf16" } };
	fo_num_cuda_use(v->o->cuda);
	for (size_t t = 0; t < sizeof type / sizeof *type; t++) {
		size_t n;
		const char *group = fo_verify_group(v, "kernels cuda %s", type[t].name);
		struct fo_num_case *list = cases(type[t].dtype, &n);
		for (int kind = 0; kind < FO_OP_COUNT; kind++)
			if (fo_op_info(kind)->cls != FO_CLASS_HOST && has_case(list, n, kind))
				check_device_op(v, group, kind, list, n);
		free(list);
	}
	fo_num_cuda_use(NULL);
}

/* ---- all of it ---- */

fo_status fo_verify(const struct fo_verify_options *o, struct fo_verify_report *r)
{
	struct fo_verify_run v = { .o = o, .r = r };
	int64_t t0 = fo_now_ns();
	*r = (struct fo_verify_report){ 0 };
	FO_TRY(fo_isa_choose(&v.isa));
	if (o->cuda) {
		check_device(&v);
	} else {
		name_missing_sets(&v);
		fo_verify_kernels(&v);
	}
	fo_verify_steps(&v);
	fo_verify_repeat(&v);
	if (!o->cuda) /* nothing of it is the device's */
		fo_verify_program(&v);
	fo_verify_checkpoint(&v);
	r->seconds = (double)(fo_now_ns() - t0) * 1e-9;
	return FO_OK;
}

void fo_verify_fini(struct fo_verify_report *r)
{
	free(r->check);
	fo_arena_fini(&r->arena);
	*r = (struct fo_verify_report){ 0 };
}
