/* The programs of all ranks of a mesh: made in turn, and checked together. */
#include "pass/pass.h"

#include <stdlib.h>

fo_status fo_pass_build_ranks(struct fo_pass_ranks *r, const struct fo_program *first)
{
	fo_status st = FO_OK;
	*r = (struct fo_pass_ranks){ 0 };
	r->program = fo_xmalloc((size_t)first->ranks * sizeof *r->program);
	for (int k = 0; k < first->ranks && st == FO_OK; k++) {
		struct fo_program *p = &r->program[r->n];
		struct fo_lowering low = first->run;
		bool kept;
		low.mesh.rank = k;
		st = fo_pass_build(p, &first->model, &low);
		if (st != FO_OK)
			break;
		r->n++;
		st = fo_roles_add(&r->roles, p, &kept);
		if (st == FO_OK && !kept)
			fo_program_fini(&r->program[--r->n]);
	}
	if (st == FO_OK)
		st = fo_roles_verify(&r->roles, first->run.rows * fo_mesh_data(&first->run.mesh));
	if (st != FO_OK)
		fo_pass_ranks_fini(r);
	return st;
}

void fo_pass_ranks_fini(struct fo_pass_ranks *r)
{
	fo_roles_fini(&r->roles);
	for (int i = 0; i < r->n; i++)
		fo_program_fini(&r->program[i]);
	free(r->program);
	*r = (struct fo_pass_ranks){ 0 };
}
