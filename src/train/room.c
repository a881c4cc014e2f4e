#include "train/room.h"

#include "kernel/work.h"
#include "train/store_int.h"

#include <math.h>

enum { ROUNDS = 4 }; /* a choice that takes less may have other workspaces, but soon it has the same */

static int64_t least(int64_t limit, int64_t have) { return limit && (limit < have || !have) ? limit : have; }
int64_t fo_room_allowed(const struct fo_run *r, int64_t have) { return least(r->memory_limit, have); }
int64_t fo_room_budget(const struct fo_run *r, int64_t have) { return least(r->memory_budget, fo_room_allowed(r, have)); }

static fo_status does_not_fit(const struct fo_program *p, int64_t need, int64_t have)
{
	char a[32], b[32];
	return fo_hint(fo_fail(FO_ENOMEM, "the run plans at least %s of the device's memory and may use %s", fo_str_bytes(a, (double)need),
			       fo_str_bytes(b, (double)have)),
		       p->run.rows > 1 ? "halve train.rows and double train.micro-batches, or let pass.recompute and optim.state be auto"
				       : "shorten data.seq, choose a smaller model, or let pass.recompute and optim.state be auto");
}

fo_status fo_room_fits(const struct fo_run *r, const struct fo_program *p, int64_t beside, int64_t have)
{
	struct fo_unrolled u;
	int64_t may = fo_room_allowed(r, have);
	FO_TRY(fo_unroll(p, &u));
	fo_plan(p, &u);
	int64_t need = u.arena_bytes + u.persistent_bytes + beside;
	fo_unrolled_fini(&u);
	return need <= may ? FO_OK : does_not_fit(p, need, may);
}

fo_status fo_room_settle(const struct fo_room_maker *m)
{
	for (int i = 0; i < ROUNDS && m->choice->planned; i++) {
		int64_t budget = m->budget(m->ctx), need = m->need(m->ctx);
		if (!budget || need <= budget)
			break;
		FO_TRY(m->again(m->ctx, need - m->choice->bytes));
	}
	return FO_OK;
}

/* ---- without the device ---- */

int64_t fo_room_workspace(const struct fo_program *p, const struct fo_cuda_device *d)
{
	size_t lane[FO_LANE_COUNT] = { 0 }, sum = 0;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			struct fo_work w;
			if (fo_op_info(o->kind)->cls == FO_CLASS_HOST)
				continue;
			fo_work_of_op(&w, FO_ISA_REF, p, o, 0, 1);
			size_t bytes = fo_cuda_ws_most(d, &w.call);
			lane[o->lane] = bytes > lane[o->lane] ? bytes : lane[o->lane];
		}
	for (int l = 0; l < FO_LANE_COUNT; l++)
		sum += lane[l];
	return (int64_t)fo_device_size(sum + 1); /* and what is looked for in faults */
}

struct maker {
	struct fo_room_plan *out;
	const struct fo_run *r;
	const struct fo_model *m;
	const struct fo_cuda_device *d;
	int64_t have;
};

static int64_t budget_of(const void *ctx)
{
	const struct maker *k = ctx;
	return fo_room_budget(k->r, k->have);
}

static int64_t need_of(const void *ctx)
{
	const struct fo_room_plan *p = ((const struct maker *)ctx)->out;
	return p->arena + p->persistent + p->workspace;
}

static fo_status make(void *ctx, int64_t reserve)
{
	struct maker *k = ctx;
	struct fo_room_plan *p = k->out;
	struct fo_unrolled u;
	fo_program_fini(&p->program);
	FO_TRY(fo_pass_choose_run(k->r, k->m, budget_of(k), reserve, true, &p->choice));
	FO_TRY(fo_pass_build(&p->program, k->m, &p->choice.run));
	FO_TRY(fo_unroll(&p->program, &u));
	fo_plan(&p->program, &u);
	p->arena = (int64_t)fo_device_size((size_t)u.arena_bytes);
	p->persistent = (int64_t)fo_device_size((size_t)u.persistent_bytes);
	p->host_arena = u.host_arena_bytes;
	fo_unrolled_fini(&u);
	p->workspace = fo_room_workspace(&p->program, k->d);
	return FO_OK;
}

fo_status fo_room_plan(struct fo_room_plan *out, const struct fo_run *r, const struct fo_model *m, const struct fo_cuda_device *d, int64_t have)
{
	struct maker k = { out, r, m, d, have };
	*out = (struct fo_room_plan){ 0 };
	FO_TRY(make(&k, 0));
	FO_TRY(fo_room_settle(&(struct fo_room_maker){ &k, &out->choice, budget_of, need_of, make }));
	int64_t may = fo_room_allowed(r, have);
	return need_of(&k) <= may ? FO_OK : does_not_fit(&out->program, need_of(&k), may);
}

void fo_room_choice_json(const struct fo_choice *c, const struct fo_program *p, struct fo_json *j)
{
	struct fo_str text = { 0 };
	fo_recompute_text(&p->run.pass, p->model.layers, &text);
	fo_json_text(j, "recompute", text.data);
	fo_json_real(j, "recompute_share", c->seconds > 0 ? c->repeat_seconds / c->seconds : NAN);
	fo_json_text(j, "master", fo_master_name[p->run.pass.master]);
	fo_json_text(j, "moments", fo_moments_name[p->run.pass.moments]);
	fo_json_int(j, "rows", p->run.rows);
	fo_json_int(j, "micro_batches", p->run.micro_batches);
	fo_json_int(j, "candidates", c->candidates);
	fo_json_int(j, "planned", c->planned);
	fo_str_fini(&text);
}
