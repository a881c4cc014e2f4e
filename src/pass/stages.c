/* The stages of a pipeline side by side: each has a program of its own. */
#include "pass/pass.h"

fo_status fo_pass_build_stage(struct fo_program *out, const struct fo_program *first, int32_t stage)
{
	struct fo_lowering low = first->run;
	low.mesh.rank = stage * fo_mesh_stage_ranks(&low.mesh);
	return fo_pass_build(out, &first->model, &low);
}

static fo_status look_at(const struct fo_program *p, struct fo_pass_stage *out)
{
	struct fo_unrolled u;
	FO_TRY(fo_unroll(p, &u));
	fo_plan(p, &u);
	*out = (struct fo_pass_stage){ .ranks = fo_mesh_stage_ranks(&p->run.mesh),
				       .layers = fo_program_layers(p),
				       .embedding = fo_program_has_embedding(p),
				       .head = fo_program_has_head(p),
				       .arena_bytes = u.arena_bytes,
				       .persistent_bytes = u.persistent_bytes,
				       .pass = p->run.pass };
	fo_unrolled_fini(&u);
	return FO_OK;
}

fo_status fo_pass_stages(const struct fo_program *first, struct fo_pass_stage *out)
{
	for (int32_t k = 0; k < fo_mesh_pp(&first->run.mesh); k++) {
		struct fo_program p;
		FO_TRY(fo_pass_build_stage(&p, first, k));
		const fo_status st = look_at(&p, &out[k]);
		fo_program_fini(&p);
		FO_TRY(st);
	}
	return FO_OK;
}
