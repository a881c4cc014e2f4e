#include "sim/sim.h"

enum { WALKS = 3 };
static double *end_of(struct fo_interval *x, int walk)
{
	double *const end[WALKS] = { &x->low, &x->mid, &x->high };
	return end[walk];
}

static fo_status unknown(const struct fo_program *p, const struct fo_device_rates *r, const struct fo_op *o)
{
	const char *name = fo_op_info(o->kind)->name;
	enum fo_op_family family = fo_op_family(o->kind);
	if (family == FO_OPS_TRANSFER)
		return fo_hint(fo_fail(FO_EUNSUPPORTED,
				       "what moves between %s and the host ('%s') is not known from this: no source "
				       "has the rate of that link",
				       r->name, name),
			       "pass.offload=0 predicts the run without it");
	if (family == FO_OPS_EAGER || family == FO_OPS_EAGER_BWD)
		return fo_hint(fo_fail(FO_EUNSUPPORTED,
				       "attention with its probabilities in memory has no kernels on a device"),
			       "pass.attention=flash predicts the run without it");
	if (p->run.precision != FO_PRECISION_BF16)
		return fo_hint(
			fo_fail(FO_EUNSUPPORTED,
				"%s matmuls on %s are not known from this: only rates of bf16 and fp8 are documented",
				fo_numerics_name[p->run.precision], r->name),
			"train.precision=bf16 can be predicted");
	if (family == FO_OPS_MATMUL)
		return fo_hint(
			fo_fail(FO_EUNSUPPORTED,
				"fp8 matmuls on %s are not known from this: the catalogue has no dense fp8 peak of it",
				r->name),
			"pass.fp8=off can be predicted");
	return fo_fail(FO_EUNSUPPORTED, "'%s' on %s is not known from this: no rate of it is documented", name,
		       r->name);
}

/* Whether a row of the profile says of a matmul or of attention what no device of its name can do. */
static fo_status possible(const struct fo_device_rates *r, const struct fo_program *p, const struct fo_op *o,
			  struct fo_device_time t, double pairs)
{
	enum fo_device_class c = fo_dtype_fp8(p->buf[o->arg->buf].dtype) ? FO_DEVICE_PRODUCT_FP8 : FO_DEVICE_PRODUCT;
	double rate = fo_op_cost(p, o, pairs).exec / t.seconds.low;
	if (!t.measured || fo_op_info(o->kind)->cls != FO_CLASS_TENSOR || !(rate > r->most[c]))
		return FO_OK;
	return fo_hint(fo_fail(FO_EFORMAT,
			       "by the profile '%s' reaches %.4g TFLOP/s, and %s has %.4g at most: its figures cannot "
			       "be right",
			       fo_op_info(o->kind)->name, rate * 1e-12, r->name, r->most[c] * 1e-12),
		       "measure it anew ('bench/gpu/run ceilings'), or predict without that file");
}

/* One instance: its times into the three walks, what it is into the parts. */
static void add(struct fo_device_step *s, struct fo_sim walk[WALKS], int i, const struct fo_device_time *t,
		enum fo_device_part part)
{
	struct fo_interval rest = t->seconds, sums = t->sums;
	for (int k = 0; k < WALKS; k++) {
		walk[k].seconds[i] = *end_of(&rest, k);
		walk[k].sure[i] = t->measured ? FO_SURE_EXACT : FO_SURE_GUESS;
	}
	if (part != FO_DEVICE_PART_LINEAR) {
		fo_interval_add(&s->part_s[part], rest, 1);
		return;
	}
	fo_interval_add(&rest, sums, -1);
	fo_interval_add(&s->part_s[part], rest, 1);
	fo_interval_add(&s->part_s[FO_DEVICE_PART_WGRAD], sums, 1);
	s->bytes[FO_DEVICE_PART_WGRAD] += t->sum_bytes;
}

static fo_status fill(struct fo_device_step *s, struct fo_sim walk[WALKS], const struct fo_program *p,
		      const struct fo_unrolled *u, const struct fo_device_rates *r, double pairs)
{
	struct fo_interval saved = fo_device_overlap(p);
	double measured = 0, all = 0;
	for (int i = 0; i < u->n; i++) {
		const struct fo_op *o = fo_instance_op(p, u, i);
		struct fo_device_time t = fo_device_op_seconds(r, p, o, u->first[i], pairs);
		enum fo_device_part part = fo_device_part_of(o, p->block[p->slot[u->slot[i]].block].unit);
		if (!t.known)
			return unknown(p, r, o);
		if (fo_op_info(o->kind)->cls == FO_CLASS_HOST)
			continue;
		FO_TRY(possible(r, p, o, t, pairs));
		t = fo_device_beside(t, o, saved);
		s->nodes++;
		struct fo_cost c = fo_op_cost(p, o, pairs);
		s->flop[part] += c.exec;
		s->bytes[part] += c.bytes;
		if (!fo_lane_computes(o->lane)) { /* shows only where somebody waits */
			for (int k = 0; k < WALKS; k++)
				walk[k].seconds[i] = *end_of(&t.seconds, k);
			continue;
		}
		add(s, walk, i, &t, part);
		all += t.seconds.mid;
		measured += t.measured ? t.seconds.mid : 0;
	}
	s->measured_share = all > 0 ? measured / all : 0;
	return FO_OK;
}

static void finish(struct fo_device_step *s, struct fo_sim walk[WALKS], const struct fo_program *p,
		   const struct fo_unrolled *u)
{
	for (int k = 0; k < WALKS; k++) {
		double known = 0;
		fo_sim_walk(&walk[k], p, u);
		*end_of(&s->step_s, k) = walk[k].step_s;
		*end_of(&s->part_s[FO_DEVICE_PART_TRANSFER], k) = walk[k].part_s[FO_PART_COMMUNICATION] +
								  walk[k].part_s[FO_PART_DATA];
		for (int part = 0; part < FO_DEVICE_PARTS; part++)
			known += part == FO_DEVICE_PART_GAPS ? 0 : *end_of(&s->part_s[part], k);
		*end_of(&s->part_s[FO_DEVICE_PART_GAPS], k) = walk[k].step_s - known;
	}
}

fo_status fo_device_step(struct fo_device_step *s, const struct fo_program *p, const struct fo_unrolled *u,
			 const struct fo_device_rates *r, double pairs)
{
	struct fo_sim walk[WALKS];
	struct fo_interval gap = r->gap_s;
	*s = (struct fo_device_step){ 0 };
	for (int k = 0; k < WALKS; k++)
		fo_sim_init(&walk[k], u, *end_of(&gap, k));
	fo_status st = fill(s, walk, p, u, r, pairs);
	if (st == FO_OK) {
		finish(s, walk, p, u);
		s->sim = walk[1];
		walk[1] = (struct fo_sim){ 0 };
	}
	for (int k = 0; k < WALKS; k++)
		fo_sim_fini(&walk[k]);
	return st;
}

void fo_device_step_fini(struct fo_device_step *s)
{
	fo_sim_fini(&s->sim);
	*s = (struct fo_device_step){ 0 };
}
