#include "plan/lower.h"

#include "base/count.h"
#include "pass/pass.h"
#include "predict/division.h"
#include "predict/rates.h"
#include "sim/ranks.h"

#include <math.h>

/* ---- the lowering ---- */

static int32_t whole(double x) { return (int32_t)fmax(1, x); }

void fo_plan_mesh_of(const struct fo_predict_layout *l, struct fo_mesh *out)
{
	const double cp = fmax(1, l->cp), dp = l->devices / (fmax(1, l->tp) * cp * fmax(1, l->pp));
	double shared = l->shard > 0 ? l->shard / cp : dp;
	if (l->zero <= 0)
		shared = 1;
	*out = (struct fo_mesh){ .replicate = whole(dp / shared),
				 .shard = whole(shared),
				 .cp = whole(cp),
				 .tp = whole(l->tp),
				 .pp = whole(l->pp) };
}

/* With the layers of each stage that the closed form counts. */
static void put_stages(struct fo_lowering *o, const struct fo_predict_layout *l, int64_t layers)
{
	const int32_t stages = o->mesh.pp;
	if (stages < 2)
		return;
	o->pass.pp = 1 + (int64_t)fo_predict_pp_kind(l);
	o->pass.pp_chunks = fo_predict_pp_kind(l) == FO_PP_INTERLEAVED ? (int64_t)l->chunks : 0;
	if (o->pass.pp_chunks > 1 || stages > FO_STAGING_MOST)
		return;
	o->stages.parts = stages;
	for (int32_t i = 0; i < stages; i++)
		o->stages.layers[i] = (int16_t)fo_predict_stage_layers(&l->uneven, (double)layers, stages, i);
}

static void put_states(struct fo_passes *p, const struct fo_predict_layout *l)
{
	p->zero = (int64_t)l->zero;
	if (p->zero >= FO_ZERO_GRADIENTS)
		p->zero_sync = FO_SYNC_MICRO_BATCH;
	if (p->zero == FO_ZERO_WEIGHTS) {
		p->zero_prefetch = 1;
		p->zero_reshard = l->keeps_weights ? FO_RESHARD_BACKWARD : FO_RESHARD_FORWARD;
	}
}

fo_status fo_plan_lowering(struct fo_lowering *out, const struct fo_predict_job *job, const struct fo_model *model,
			   const struct fo_predict_layout *l)
{
	const double share = l->recompute * (double)model->layers;
	if (model->experts > 0 || l->ep > 1)
		return fo_fail(FO_EUNSUPPORTED, "Flatout's programs have no experts");
	if (l->stages_near || l->recompute_core || l->recompute_ffn || (l->again_stages > 0 && l->again_stages < l->pp))
		return fo_fail(FO_EUNSUPPORTED, "such stages or such a recomputation are not lowered here");
	if (!(l->micro_batch >= 1 && l->micro_batches >= 1 && l->devices >= 1))
		return fo_fail(FO_EARG, "a division to lower has devices, micro-batches and rows of them");
	*out = (struct fo_lowering){ .seq = (int64_t)job->seq,
				     .rows = (int64_t)l->micro_batch,
				     .micro_batches = (int64_t)l->micro_batches,
				     .precision = job->type == FO_PREDICT_FP32 ? FO_PRECISION_F32 : FO_PRECISION_BF16,
				     .mode = FO_MODE_TRAIN };
	struct fo_passes *p = &out->pass;
	fo_plan_mesh_of(l, &out->mesh);
	p->merge_qkv = p->merge_gate_up = p->fuse_elementwise = p->fused_optimizer = 1;
	p->ddp = out->mesh.pp * out->mesh.tp * out->mesh.cp * fo_mesh_data(&out->mesh) > 1 ? 25 : 0;
	p->cp = l->cp > 1 ? FO_CP_RING : 0;
	if (l->tp > 1)
		p->tp = l->sp ? FO_TP_SEQUENCE : FO_TP_REPLICATED;
	p->tp_async = l->tp > 1 && l->sp && l->tp_overlap > 0;
	if (l->recompute > 0)
		p->recompute = FO_RECOMPUTE_FULL;
	if (l->recompute > 0 && l->recompute < 1)
		p->recompute_layers = (int64_t)fmax(1, round(share));
	if (out->mesh.shard * out->mesh.cp > 1)
		put_states(p, l);
	put_stages(out, l, model->layers);
	return FO_OK;
}

/* ---- times of operations ---- */

struct timing {
	struct fo_predict_rates rates;
	double per_node;
};

/* How many ranks of a group there are, and how many of them are in a node. */
static double in_node(const struct timing *t, const struct fo_mesh *m, enum fo_group g, double *ranks)
{
	const int32_t n = fo_mesh_group(m, g, NULL, NULL), node = fo_mesh_member(m, g, 0) / (int32_t)t->per_node;
	int32_t near = 0;
	for (int32_t i = 0; i < n; i++)
		near += fo_mesh_member(m, g, i) / (int32_t)t->per_node == node;
	*ranks = n;
	return near;
}

static double bytes_of(const struct fo_program *p, const struct fo_op *o, int first)
{
	double sum = 0;
	for (int k = 0; k < fo_op_tensors(o->kind, o->n); k++) {
		const struct fo_operand *a = &o->arg[first + k];
		const int dtype = o->attr.narrow ? FO_BF16 : p->buf[a->buf].dtype;
		sum += (double)a->nr * a->nc * (double)fo_dtype_bytes(dtype);
	}
	return sum;
}

static struct fo_sim_given call(const struct timing *t, const struct fo_program *p, const struct fo_op *o)
{
	const struct fo_predict_rates *r = &t->rates;
	const enum fo_wire wire = fo_op_info(o->kind)->wire;
	const bool states = o->lane == FO_LANE_GATHER || o->lane == FO_LANE_REDUCE;
	double ranks, near = in_node(t, &p->run.mesh, (enum fo_group)o->group, &ranks);
	const double bytes = bytes_of(p, o, wire == FO_WIRE_ALL_GATHER ? FO_ALL_GATHER_Y : FO_ALL_REDUCE_X);
	struct fo_sim_given x = { 0 };
	switch (wire) {
	case FO_WIRE_SEND:
	case FO_WIRE_RECEIVE: x.seconds = fo_predict_rate_send(r, bytes); return x;
	case FO_WIRE_SHIFT: /* one of the ranks - 1 steps of a gather around a ring */
		x.seconds = fo_predict_rate_gather(r, ranks * bytes, ranks, near) / (ranks - 1);
		return x;
	default: break;
	}
	const double times = wire == FO_WIRE_ALL_REDUCE ? 2 : 1;
	if (states)
		x.link_s = times * fo_predict_rate_states(r, bytes, ranks, near);
	else
		x.seconds = times * fo_predict_rate_gather(r, bytes, ranks, near);
	return x;
}

static double product(const struct timing *t, const struct fo_program *p, const struct fo_op *o, enum fo_unit unit,
		      uint32_t first)
{
	int64_t m, n, k;
	fo_matmul_dims(o, &m, &n, &k);
	const struct fo_operand *c = &o->arg[FO_MATMUL_C];
	double sums = 0;
	if (o->phase == FO_WGRAD)
		sums = (first >> FO_MATMUL_C & 1 ? 1 : 2) * (double)c->nr * c->nc *
		       (double)fo_dtype_bytes(p->buf[c->buf].dtype);
	return fo_predict_rate_product(&t->rates, (double)m, (double)n, (double)k, unit == FO_UNIT_HEAD, sums);
}

static bool is_attention(const struct fo_op *o)
{
	const enum fo_op_family family = fo_op_family(o->kind);
	return (family == FO_OPS_ATTENTION || family == FO_OPS_ATTENTION_BWD) &&
	       fo_op_info(o->kind)->cls == FO_CLASS_TENSOR;
}

static double attention(const struct timing *t, const struct fo_program *p, const struct fo_op *o)
{
	const bool back = fo_op_family(o->kind) == FO_OPS_ATTENTION_BWD;
	const double blocks = o->attr.cp > 1 ? o->attr.cp : 1;
	return fo_predict_rate_attention(&t->rates, fo_op_cost(p, o, -1).exec, (back ? 2.5 : 1) / blocks);
}

static struct fo_sim_given time_of(const void *ctx, const struct fo_program *p, const struct fo_op *o,
				   enum fo_unit unit, uint32_t first)
{
	const struct timing *t = ctx;
	const enum fo_op_family family = fo_op_family(o->kind);
	struct fo_sim_given x = { 0 };
	if (fo_op_info(o->kind)->cls == FO_CLASS_COMM)
		return call(t, p, o);
	if (fo_op_info(o->kind)->cls == FO_CLASS_HOST)
		return x;
	const double bytes = fo_op_cost(p, o, -1).bytes;
	if (family == FO_OPS_MATMUL)
		x.seconds = product(t, p, o, unit, first);
	else if (is_attention(o))
		x.seconds = attention(t, p, o);
	else if (family == FO_OPS_LOSS)
		x.seconds = fo_predict_rate_loss(&t->rates, bytes);
	else if (o->phase == FO_OPTIMIZER)
		x.seconds = fo_predict_rate_update(&t->rates, bytes);
	else
		x.seconds = fo_predict_rate_memory(&t->rates, bytes);
	return x;
}

/* ---- parts ---- */

static enum fo_predict_part part_of(const struct fo_op *o, enum fo_unit unit)
{
	const enum fo_op_family family = fo_op_family(o->kind);
	if (o->phase == FO_RECOMPUTE)
		return FO_PREDICT_RECOMPUTE;
	if (o->phase == FO_OPTIMIZER)
		return FO_PREDICT_OPTIMIZER;
	if (family == FO_OPS_LOSS || (family == FO_OPS_MATMUL && unit == FO_UNIT_HEAD))
		return FO_PREDICT_LOSS;
	if (family == FO_OPS_MATMUL)
		return FO_PREDICT_MATMUL;
	return is_attention(o) ? FO_PREDICT_ATTENTION : FO_PREDICT_MEMORY;
}

static enum fo_predict_part part_of_lane(int lane)
{
	switch (lane) {
	case FO_LANE_TP: return FO_PREDICT_TENSOR;
	case FO_LANE_CP: return FO_PREDICT_CONTEXT;
	case FO_LANE_GATHER:
	case FO_LANE_REDUCE: return FO_PREDICT_DATA;
	default: return FO_PREDICT_SENDS;
	}
}

static void add_parts(struct fo_plan_lowered *out, const struct fo_sim_ranks *x)
{
	for (int c = 0; c < x->classes; c++) {
		const struct fo_sim_role *role = &x->role[x->class_role[c]];
		const struct fo_sim *s = &x->rank[c];
		const double share = (double)x->run->class[c].ranks / x->ranks;
		for (int i = 0; i < s->n; i++) {
			const struct fo_op *o = fo_instance_op(&role->p, &role->u, i);
			const int block = role->p.slot[role->u.slot[i]].block;
			if (fo_lane_computes(o->lane))
				out->part[part_of(o, (enum fo_unit)role->p.block[block].unit)] += share * s->seconds[i];
		}
		for (int l = 0; l < FO_LANE_COUNT; l++)
			out->part[part_of_lane(l)] += share * s->lane_exposed_s[l];
	}
	double sum = 0;
	for (int k = 0; k < FO_PREDICT_PARTS; k++)
		sum += out->part[k];
	out->part[FO_PREDICT_REST] = out->step_s - sum;
}

fo_status fo_plan_lowered_of(struct fo_plan_lowered *out, const struct fo_predict_base *b, const struct fo_model *model,
			     const struct fo_predict_layout *l)
{
	struct timing t = { .per_node = fmax(1, b->job.machine.per_node) };
	struct fo_lowering low;
	struct fo_program first;
	struct fo_sim_ranks x;
	*out = (struct fo_plan_lowered){ 0 };
	const char *wrong = fo_predict_rates_of(b, l, &t.rates);
	if (wrong)
		return fo_fail(FO_EUNSUPPORTED, "%s", wrong);
	FO_TRY(fo_plan_lowering(&low, &b->job, model, l));
	FO_TRY(fo_pass_build(&first, model, &low));
	fo_status st = fo_sim_ranks_unplanned(&x, &first);
	if (st == FO_OK)
		st = fo_sim_ranks_given(&x, time_of, &t);
	if (st == FO_OK) {
		out->step_s = x.step_s.mid;
		out->ranks = x.ranks;
		out->roles = x.roles;
		out->events = x.run->events;
		add_parts(out, &x);
	}
	if (st == FO_OK) {
		fo_sim_ranks_plan(&x);
		st = fo_sim_ranks_given(&x, time_of, &t);
		out->planned_s = x.step_s.mid;
	}
	fo_sim_ranks_fini(&x);
	fo_program_fini(&first);
	return st;
}
