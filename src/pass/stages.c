/* The stages of a pipeline side by side: each has a program of its own. What they run and hold together. */
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

/* ---- FLOP ---- */

/* Sums over the stages' own programs. Both ends' update of a tied embedding is no matmul. */
static void note_stages(struct fo_program *p)
{
	double none = 0, one = 0;
	for (int32_t k = 0; k < fo_mesh_pp(&p->run.mesh); k++) {
		struct fo_program stage;
		const int32_t ranks = fo_mesh_stage_ranks(&p->run.mesh);
		if (fo_pass_build_stage(&stage, p, k) != FO_OK) {
			fo_err_clear(); /* then it is not known */
			return;
		}
		const double own = fo_program_cost(&stage, 0).exec;
		none += own * ranks;
		one += (fo_program_cost(&stage, 1).exec - own) * ranks;
		fo_program_fini(&stage);
	}
	p->job_exec = none;
	p->job_exec_pair = one;
}

void fo_pass_note_job(struct fo_program *p)
{
	struct fo_program all;
	struct fo_lowering low = p->run;
	if (!p->staged)
		return;
	if (p->run.stages.repeats) { /* no rank with all layers repeats what each of these does */
		note_stages(p);
		return;
	}
	/* Stages divide slots, so together they run what one rank with all layers runs. A tied embedding's second
	 * update is left out: it is no matmul. */
	low.mesh.rank %= fo_mesh_stage_ranks(&low.mesh);
	low.mesh.pp = 0;
	low.pass.pp = low.pass.pp_chunks = 0;
	if (fo_pass_build(&all, &p->model, &low) != FO_OK) {
		fo_err_clear(); /* then it is not known */
		return;
	}
	const double none = fo_program_cost(&all, 0).exec, one = fo_program_cost(&all, 1).exec;
	p->job_exec = none * all.ranks;
	p->job_exec_pair = (one - none) * all.ranks;
	fo_program_fini(&all);
}
