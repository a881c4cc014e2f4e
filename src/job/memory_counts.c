/* A model's weights by what divides them: tensor, pipeline, expert parallelism. */
#include "job/memory_int.h"

#include <string.h>
#include <strings.h>

static const struct {
	const char *id;
	enum fo_job_style style;
} style_of_form[] = {
	{ "megatron", FO_JOB_STYLE_MEGATRON },
	{ "nemo", FO_JOB_STYLE_MEGATRON },
	{ "megatron-deepspeed", FO_JOB_STYLE_DEEPSPEED },
	{ "bridge", FO_JOB_STYLE_MEGATRON },
	{ "deepspeed", FO_JOB_STYLE_DEEPSPEED },
	{ "torchtitan", FO_JOB_STYLE_TORCH },
	{ "hf", FO_JOB_STYLE_TORCH },
	{ "transformers", FO_JOB_STYLE_TORCH },
	{ "trl", FO_JOB_STYLE_TORCH },
	{ "accelerate", FO_JOB_STYLE_TORCH },
	{ "axolotl", FO_JOB_STYLE_TORCH },
	{ "llama", FO_JOB_STYLE_TORCH },
	{ "lightning", FO_JOB_STYLE_TORCH },
	{ "maxtext", FO_JOB_STYLE_TORCH },
	{ "composer", FO_JOB_STYLE_TORCH },
	{ "llm-foundry", FO_JOB_STYLE_TORCH },
	{ "fsdp", FO_JOB_STYLE_TORCH },
	{ "olmo", FO_JOB_STYLE_TORCH },
	{ "gpt-neox", FO_JOB_STYLE_DEEPSPEED },
	{ "litgpt", FO_JOB_STYLE_TORCH },
};

/* A Hugging Face or accelerate job hands its states to DeepSpeed where the configuration has what only DeepSpeed
 * knows. */
enum fo_job_style fo_job_style_of(const struct fo_job *job)
{
	enum fo_job_style style = FO_JOB_STYLE_UNKNOWN;
	for (size_t i = 0; job->form && i < sizeof style_of_form / sizeof *style_of_form; i++)
		if (!strncasecmp(job->form->id, style_of_form[i].id, strlen(style_of_form[i].id)))
			style = style_of_form[i].style;
	double zero = fo_job_number(job, FO_JOB_ZERO);
	bool fsdp = fo_job_known(job, FO_JOB_FSDP_VERSION);
	bool deepspeed = (!fsdp && (zero == 1 || zero == 2)) || fo_job_known(job, FO_JOB_LIVE_PARAMS) ||
			 fo_job_known(job, FO_JOB_REUSE_DISTANCE);
	if (style == FO_JOB_STYLE_TORCH && deepspeed)
		style = FO_JOB_STYLE_DEEPSPEED;
	return style;
}

void fo_job_counts_of(const struct fo_model *m, struct fo_job_counts *c)
{
	struct fo_params p = fo_model_params(m);
	bool mla = m->family == FO_FAMILY_DEEPSEEK && m->kv_lora > 0;
	*c = (struct fo_job_counts){ .layers = (double)m->layers,
				     .h = (double)m->hidden,
				     .ffn = (double)m->ffn,
				     .vocab = (double)m->vocab,
				     .heads = (double)m->heads,
				     .experts = (double)m->experts,
				     .active = (double)m->experts_active,
				     .expert_ffn = (double)m->expert_ffn,
				     .matrices = m->gated ? 3 : 2,
				     .tied = m->tied,
				     .mla = mla,
				     .gated = m->gated,
				     .layer_norm = m->family == FO_FAMILY_GPT || m->norm_bias };
	c->head_dim = (double)(mla ? m->qk_nope_dim + m->qk_rope_dim : m->head_dim);
	c->q = c->heads * c->head_dim;
	c->v = mla ? c->heads * (double)m->v_dim : c->q;
	c->kv = mla ? c->q : (double)m->kv_heads * (double)m->head_dim;
	c->q_lora = mla ? (double)m->q_lora : 0;
	c->kv_lora = mla ? (double)m->kv_lora : 0;
	c->rope_dim = mla ? (double)m->qk_rope_dim : 0;
	c->dense = m->experts > 0 ? (double)m->dense_layers : c->layers;
	c->moe = c->layers - c->dense;
	c->shared_ffn = (double)m->shared_experts * c->expert_ffn;
	c->attention = (p.component[FO_COMP_QKV] + p.component[FO_COMP_OUTPUT]) / c->layers;
	c->norms = p.component[FO_COMP_NORM] / c->layers;
	c->router = c->moe > 0 ? p.component[FO_COMP_ROUTER] / c->moe : 0;
	c->dense_ffn = c->matrices * c->h * c->ffn;
	c->expert = c->matrices * c->h * c->expert_ffn;
	c->shared = c->matrices * c->h * c->shared_ffn;
	c->embedding = p.embedding;
	c->head = c->h * c->vocab;
}

/* Layers are dealt evenly unless a file says otherwise; where that does not come out, the fullest stage has one more.
 * Dense layers of a mixture come first. */
void fo_job_stage_of(const struct fo_job_counts *m, const struct fo_job_shape *s, double index, struct fo_job_stage *o)
{
	double each = m->layers / s->pp, before = floor(each) * index;
	*o = (struct fo_job_stage){ .layers = ceil(each), .first = index == 0, .last = index == s->pp - 1 };
	if (s->first_layers + s->middle_layers + s->last_layers > 0) {
		before = o->first ? 0 : s->first_layers + (index - 1) * s->middle_layers;
		o->layers = o->first ? s->first_layers : s->middle_layers;
		o->layers = o->last ? s->last_layers : o->layers;
	}
	o->dense = m->moe > 0 ? fmin(o->layers, fmax(0, m->dense - before)) : o->layers;
	o->moe = o->layers - o->dense;
	double experts = o->moe * m->experts * m->expert / (s->ep * s->etp);
	o->whole = m->norms * o->layers + m->router * o->moe +
		   (m->attention * o->layers + m->dense_ffn * o->dense + m->shared * o->moe) / s->tp;
	o->end = fmax(m->embedding, m->head) / s->tp;
	if (o->first)
		o->whole += m->embedding / s->tp;
	if (o->last && !(m->tied && o->first))
		o->whole += m->head / s->tp;
	o->experts = experts;
	double dense = (m->attention + m->dense_ffn) / s->tp + m->norms,
	       moe = (m->attention + m->shared) / s->tp + m->norms + m->router +
		     m->experts * m->expert / (s->ep * s->etp);
	o->layer = o->moe > 0 ? moe : dense;
}

struct fo_range fo_job_adapter_weights(const struct fo_job *job, const struct fo_job_counts *m,
				       const struct fo_job_stage *stage, double tp)
{
	double rank = fo_job_number(job, FO_JOB_ADAPTER_RANK), low = rank, high = rank;
	if (!(rank >= 1 && rank <= m->h)) { /* peft's default is 8; published recipes have 8 to 128 */
		low = 4;
		high = 128;
	}
	double least = m->h + m->q + m->h + m->kv, attention = least + (m->h + m->kv) + (m->v + m->h);
	double dense = m->matrices * (m->h + m->ffn);
	double moe = m->matrices * (m->experts * (m->h + m->expert_ffn) + m->h + m->shared_ffn);
	struct fo_range n = { low * least * stage->layers / tp,
			      high * (attention * stage->layers + dense * stage->dense + moe * stage->moe) };
	if (job->value[FO_JOB_ADAPTER_WHOLE].text) /* commonly the embedding and the head */
		n.high += (stage->first ? m->embedding : 0) + (stage->last ? m->head : 0);
	return n;
}

struct fo_range fo_job_base_bytes(const struct fo_job *job)
{
	double bits = fo_job_number(job, FO_JOB_BASE_BITS);
	/* nf4 has a scale of 32 bits for each 64 weights, 8 bits where the scales are quantised again (Dettmers et al.
	 * 2023, section 3); AWQ and GPTQ 16 bits and a zero point for each 128. */
	if (bits == 4)
		return (struct fo_range){ 4.125 / 8, 4.5 / 8 };
	if (bits == 8)
		return (struct fo_range){ 1, 1.02 };
	if (bits == 16)
		return fo_range(2);
	return (struct fo_range){ 2, 4 }; /* the type in which the checkpoint was loaded */
}

double fo_job_zero(const struct fo_job *job, const struct fo_job_shape *s)
{
	double zero = fo_job_number(job, FO_JOB_ZERO);
	/* FSDP that keeps gathered weights until backward gathers them for every micro-batch all the same. */
	if (zero == 2 && fo_job_known(job, FO_JOB_FSDP_VERSION))
		zero = 3;
	if (s->dp * s->cp == 1)
		return isnan(zero) ? 0 : zero; /* FSDP on one device keeps its ways, ZeRO its states apart */
	return isnan(zero) && s->shard > 1 ? 3 : zero;
}

/* Experts are spread over EP x ETP devices of a stage; what is left holds the same ones. */
double fo_job_expert_shard(const struct fo_job *job, const struct fo_job_shape *s)
{
	double same = s->devices / (s->pp * s->ep * s->etp);
	(void)job;
	return fmax(1, s->shard > 1 ? same / s->replicate : 1);
}
