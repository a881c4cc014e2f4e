#include "predict/predict_int.h"

#include <stdio.h>
#include <string.h>

/* ---- models ---- */

void fo_predict_model_of(const struct fo_model *m, struct fo_predict_model *out)
{
	*out = (struct fo_predict_model){ .layers = (double)m->layers,
					  .hidden = (double)m->hidden,
					  .heads = (double)m->heads,
					  .kv_heads = (double)m->kv_heads,
					  .head_dim = (double)m->head_dim,
					  .ffn = (double)m->ffn,
					  .vocab = (double)m->vocab,
					  .matrices = m->gated ? 3 : 2,
					  .tied = m->tied,
					  .window = (double)m->sliding_window,
					  .positions = m->learned_position ? (double)m->max_position : 0,
					  .layer_norm = m->family == FO_FAMILY_GPT || m->norm_bias };
	const struct fo_params p = fo_model_params(m);
	out->attention = (p.component[FO_COMP_QKV] + p.component[FO_COMP_OUTPUT]) / out->layers;
	out->norms = p.component[FO_COMP_NORM] / out->layers;
	if (m->kv_lora > 0) { /* latent attention: widths of its projections, as one from `hidden` */
		double h = out->hidden, a = out->heads, qk = (double)(m->qk_nope_dim + m->qk_rope_dim);
		double q = m->q_lora > 0 ? h * (double)m->q_lora + (double)m->q_lora * a * qk : h * a * qk;
		double kv = h * (double)(m->kv_lora + m->qk_rope_dim) +
			    (double)m->kv_lora * a * (double)(m->qk_nope_dim + m->v_dim);
		out->qkv_width = (q + kv) / h;
		out->head_dim = (qk + (double)m->v_dim) / 2;
		out->value_dim = (double)m->v_dim;
		out->kv_heads = a;
		out->q_lora = (double)m->q_lora, out->kv_lora = (double)m->kv_lora;
		out->rope_dim = (double)m->qk_rope_dim;
	}
	if (m->experts > 0) {
		out->experts = (double)m->experts;
		out->top_k = (double)m->experts_active;
		out->expert_ffn = (double)m->expert_ffn;
		out->shared_ffn = (double)(m->shared_experts * m->expert_ffn);
		out->moe_layers = (double)(m->layers - m->dense_layers);
	}
}

/* Matrices of one layer's attention with its norms, and of its feed-forward: shared or dense ones, routed ones. */
static void layer_params(const struct fo_predict_model *m, double *dense, double *routed)
{
	double values = m->value_dim > 0 ? m->value_dim : m->head_dim, share = m->moe_layers / m->layers;
	double qkv = m->qkv_width > 0 ? m->qkv_width : (m->heads + 2 * m->kv_heads) * m->head_dim;
	*dense = m->hidden * (qkv + m->heads * values + 2);
	*routed = m->matrices * m->hidden * m->ffn;
	if (m->experts > 0) {
		*dense += m->matrices * m->hidden * (share * m->shared_ffn + (1 - share) * m->ffn) +
			  share * m->experts * m->hidden;
		*routed = m->matrices * m->hidden * share * m->experts * m->expert_ffn;
	}
}

double fo_predict_params(const struct fo_predict_model *m)
{
	double dense, routed;
	layer_params(m, &dense, &routed);
	return m->layers * (dense + routed) + (2 - m->tied) * m->vocab * m->hidden + m->hidden;
}

/* ---- machines ---- */

static bool begins(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

static bool family_of(const char *name, enum fo_predict_family *out)
{
	static const struct {
		const char *name;
		enum fo_predict_family family;
	} of[] = { { "A100", FO_PREDICT_AMPERE },     { "V100", FO_PREDICT_AMPERE },
		   { "H100", FO_PREDICT_HOPPER },     { "H200", FO_PREDICT_HOPPER },
		   { "H800", FO_PREDICT_HOPPER },     { "H20", FO_PREDICT_HOPPER },
		   { "GH200", FO_PREDICT_HOPPER },    { "B200", FO_PREDICT_BLACKWELL },
		   { "B300", FO_PREDICT_BLACKWELL },  { "GB200", FO_PREDICT_BLACKWELL },
		   { "GB300", FO_PREDICT_BLACKWELL }, { "MI", FO_PREDICT_AMD },
		   { "RTX", FO_PREDICT_RTX },         { "L40S", FO_PREDICT_RTX } };
	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		if (begins(name, of[i].name)) {
			*out = of[i].family;
			return true;
		}
	return false;
}

/* Power that the ceilings of Blackwell are stated at; see constants.def. */
#define BLACKWELL_WATTS 1200
static const double blackwell[FO_PREDICT_TYPES] = { 2500e12, 5000e12, 5000e12, 10000e12, 1250e12, 80e12 };

fo_status fo_predict_machine_of(const struct fo_device *d, struct fo_predict_machine *out)
{
	*out = (struct fo_predict_machine){ 0 };
	snprintf(out->name, sizeof out->name, "%s", d->name);
	if (!family_of(d->name, &out->family))
		return fo_hint(
			fo_fail(FO_EUNSUPPORTED, "nothing is measured of steps on %s: it cannot be predicted", d->name),
			"NVIDIA's A100 and later, GeForce and RTX, AMD's Instinct can");
	double half = isnan(d->dense[FO_PREC_BF16]) ? d->dense[FO_PREC_FP16] : d->dense[FO_PREC_BF16];
	const char *missing = NULL;
	if (isnan(half))
		missing = "no bf16 or fp16 peak";
	else if (isnan(d->memory_tb_s))
		missing = "no memory rate";
	else if (isnan(d->units))
		missing = "no number of multiprocessors";
	if (missing)
		return fo_fail(FO_EUNSUPPORTED, "the catalogue has %s of %s: it cannot be predicted", missing, d->name);
	const double peak[FO_PREDICT_TYPES] = { half,
						d->dense[FO_PREC_FP8],
						d->dense[FO_PREC_FP8],
						d->dense[FO_PREC_FP4],
						d->dense[FO_PREC_TF32],
						d->dense[FO_PREC_FP32] };
	for (int i = 0; i < FO_PREDICT_TYPES; i++)
		out->peak[i] = peak[i] * 1e12;
	out->memory_byte_s = d->memory_tb_s * 1e12;
	out->memory_bytes = 1e9 * (isnan(d->memory_usable_gb) ? d->memory_gb : d->memory_usable_gb);
	out->units = d->units;
	out->watts = d->tdp_w;
	out->node_byte_s = 1e9 * (isnan(d->scaleup_gb_s) ? 31 : d->scaleup_gb_s); /* PCIe 4 x16 */
	out->per_node = d->scaleup_devices > 8 ? d->scaleup_devices : 8;
	out->per_host = d->scaleup_devices > 8 ? 4 : 8;
	out->net_byte_s = 1e9 / 8 * (isnan(d->scaleout_gbit_s) ? 100 : d->scaleout_gbit_s);
	out->pcie = out->node_byte_s < 1e11;
	out->older = begins(d->name, "V100");
	return FO_OK;
}

void fo_predict_power_limit(struct fo_predict_machine *m, double watts)
{
	if (!(watts > 0) || !(m->watts > 0))
		return;
	/* Blackwell's ceilings go with watts. Hopper's do less: with 500 of 700 W it keeps (500/700)^0.7 (torchtitan's
	 * runs on such ones). */
	double keeps = pow(watts / m->watts, m->family == FO_PREDICT_BLACKWELL ? 1 : 0.7);
	if (m->family == FO_PREDICT_BLACKWELL)
		m->watts = watts;
	else
		m->power = keeps;
}

/* ---- one job ---- */

/* Sizes that a count of tiles can hold, far above any model. */
static bool sane(double v, double most) { return v >= 0 && v <= most; }
static bool sane_model(const struct fo_predict_model *m)
{
	const double small[] = { m->layers,    m->heads, m->kv_heads, m->head_dim,  m->matrices,
				 m->value_dim, m->top_k, m->experts,  m->moe_layers },
		     wide[] = { m->hidden, m->ffn, m->vocab, m->qkv_width, m->expert_ffn, m->shared_ffn };
	bool all = sane(m->window, 1e12) && sane(m->score_share, 1);
	for (size_t i = 0; i < sizeof small / sizeof *small; i++)
		all = all && sane(small[i], 1e5);
	for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
		all = all && sane(wide[i], 1e8);
	return all && m->moe_layers <= m->layers && m->top_k <= fmax(m->experts, 1);
}

const char *fo_predict_prepare(const struct fo_predict_job *job, struct fo_predict_base *b)
{
	const struct fo_predict_model *m = &job->model;
	b->job = *job;
	if (!(m->layers >= 1) || !(m->hidden >= 1) || !(m->heads >= 1) || !(m->vocab >= 1) || !(job->seq >= 1))
		return "the model has no layers, hidden size, heads, vocabulary or sequence";
	if (!sane_model(m) || !sane(job->seq, 1e9))
		return "the model's dimensions are no sizes of a model";
	if (m->experts >= 1 && (!(m->top_k >= 1) || !(m->expert_ffn >= 1) || !(m->moe_layers > 0)))
		return "how many experts a token uses, or how wide they are, is not known";
	if (!(m->ffn >= 1) && !(m->experts >= 1))
		return "the model has no feed-forward width";
	if (isnan(job->machine.peak[job->type]))
		return "the catalogue has no dense peak of this device for this number type";
	fo_predict_constants(true, b->x);
	const struct fo_predict_machine *d = &job->machine;
	double power = d->power > 0 ? d->power : 1;
	for (int t = 0; t < FO_PREDICT_TYPES; t++) {
		b->rate[t] = d->peak[t] * power;
		if (d->family == FO_PREDICT_BLACKWELL && !isnan(d->peak[t]))
			b->rate[t] = blackwell[t] * d->watts / BLACKWELL_WATTS;
	}
	layer_params(m, &b->layer_params, &b->ffn_params);
	double active = b->layer_params + b->ffn_params;
	if (m->experts > 0)
		active = b->layer_params + b->ffn_params * m->top_k / m->experts;
	if (!b->job.ways.known)
		fo_memory_ways_of_style(job, &b->job.ways);
	fo_memory_prepare(&b->memory, m, &b->job.ways, job->seq);
	double products = 6 * (m->layers * (active - 2 * m->hidden) + m->vocab * m->hidden);
	double scores = 12 * m->layers * (m->score_share > 0 ? m->score_share : 1) * m->heads * m->head_dim * job->seq;
	b->flops_full = products + scores, b->flops_causal = products + scores / 2;
	return NULL;
}

void fo_predict_finish(const struct fo_predict_base *b, const struct fo_predict_work *w, struct fo_predict_step *out)
{
	double tokens = out->micro_batches * w->micro_batch * w->dp * b->job.seq / w->devices;
	out->tokens_s = tokens / out->seconds;
	out->mfu = out->tokens_s * b->flops_full / b->job.machine.peak[w->type];
	out->mfu_causal = out->tokens_s * b->flops_causal / b->job.machine.peak[w->type];
	out->mfu_bf16_causal = out->tokens_s * b->flops_causal / b->job.machine.peak[FO_PREDICT_BF16];
}

static void bytes(const struct fo_predict_base *b, const struct fo_predict_layout *l, struct fo_predict_step *out)
{
	struct fo_memory m;
	fo_memory_of(&b->memory, l, &m);
	for (int i = 0; i < FO_PREDICT_MEMORIES; i++) {
		out->memory_range[i] = m.part[i];
		out->memory[i] = fo_range_middle(m.part[i]);
	}
	out->bytes_range = m.total;
	out->bytes = fo_range_middle(m.total);
}

void fo_predict_point(const struct fo_predict_base *b, const struct fo_predict_layout *l, struct fo_predict_step *out)
{
	struct fo_predict_work w;
	fo_predict_work_of(b, l, &w);
	*out = (struct fo_predict_step){ .wrong = w.wrong };
	if (w.wrong)
		return;
	fo_predict_time(&w, b->x, out);
	bytes(b, l, out);
	fo_predict_finish(b, &w, out);
}

/* The private half of fo_predict_shared. */
struct shared {
	bool any;
	double tp, cp, ep, micro_batch, devices;
	bool sp;
	int type;
	struct fo_predict_work w;
};
_Static_assert(sizeof(struct shared) <= sizeof(struct fo_predict_shared), "room for what divisions share");

static bool within(const struct fo_predict_base *b, const struct fo_predict_layout *l, struct fo_predict_shared *room,
		   double upper, double middle, struct fo_predict_step *out)
{
	struct shared *s = (struct shared *)room;
	out->wrong = NULL, out->seconds = 0;
	if (!s->any || s->tp != l->tp || s->cp != l->cp || s->ep != l->ep || s->micro_batch != l->micro_batch ||
	    s->devices != l->devices || s->sp != l->sp || s->type != l->type) {
		fo_predict_work_of(b, l, &s->w);
		s->any = !s->w.wrong;
		s->tp = l->tp, s->cp = l->cp, s->ep = l->ep, s->micro_batch = l->micro_batch;
		s->devices = l->devices, s->sp = l->sp, s->type = l->type;
		if (s->any)
			fo_predict_know(&s->w, b->x);
	} else {
		fo_predict_work_again(b, l, &s->w);
		s->any = !s->w.wrong;
	}
	if (!s->any) {
		*out = (struct fo_predict_step){ .wrong = s->w.wrong };
		return false;
	}
	bytes(b, l, out);
	if (fo_predict_upper_bytes(out) > upper || out->bytes > middle)
		return false;
	fo_predict_time(&s->w, b->x, out);
	fo_predict_finish(b, &s->w, out);
	return true;
}

bool fo_predict_point_within(const struct fo_predict_base *b, const struct fo_predict_layout *l,
			     struct fo_predict_shared *room, double most_bytes, struct fo_predict_step *out)
{
	return within(b, l, room, most_bytes, INFINITY, out);
}

bool fo_predict_point_about(const struct fo_predict_base *b, const struct fo_predict_layout *l,
			    struct fo_predict_shared *room, double bytes, struct fo_predict_step *out)
{
	return within(b, l, room, INFINITY, bytes, out);
}

void fo_predict_memory_of(const struct fo_predict_base *b, const struct fo_predict_layout *l,
			  struct fo_predict_step *out)
{
	struct fo_predict_work w;
	fo_predict_shape_of(b, l, &w);
	*out = (struct fo_predict_step){ .wrong = w.wrong };
	if (!w.wrong)
		bytes(b, l, out);
}
