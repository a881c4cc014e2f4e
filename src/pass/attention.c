/* attention: the baseline that the tiled kernels are measured against.
 *
 * Each attention becomes attention_eager, whose probabilities are a tensor of the program: written forward, read
 * backward, S columns per token and head. Backward needs them and neither the output nor its log sums, which go. A
 * text's cached attention stays: one query's scores are a row either way. */
#include "pass/pass.h"

fo_status fo_pass_attention_legal(const struct fo_program *p)
{
	int64_t heads = p->model.heads, seq = p->run.seq;
	if (p->run.pass.attention < 0 || p->run.pass.attention >= FO_ATTENTION_COUNT)
		return fo_fail(FO_EARG, "attention is 0 (flash) or 1 (eager), not %lld",
			       (long long)p->run.pass.attention);
	/* Rectangles have 32-bit columns. */
	if (p->run.mode != FO_MODE_DECODE && heads > INT32_MAX / seq)
		return fo_hint(fo_fail(FO_EARG,
				       "probabilities of %lld heads x %lld tokens are %lld columns, at most %d can be",
				       (long long)heads, (long long)seq, (long long)(heads * seq), INT32_MAX),
			       "use pass.attention=flash, or shorter rows");
	return FO_OK;
}

/* The buffer of probabilities beside the log sums that they replace. */
static int add_probabilities(struct fo_program *p, int lse, int q)
{
	int have = fo_buffer_find(p, "prob");
	if (have >= 0)
		return have;
	struct fo_buffer b = p->buf[lse];
	b.dtype = p->buf[q].dtype;
	b.cols *= p->run.seq;
	return fo_buffer_like(p, "prob", &b);
}

static void replace_forward(struct fo_program *p, struct fo_op *o)
{
	const struct fo_op from = *o;
	int prob = add_probabilities(p, from.arg[FO_ATTENTION_LSE].buf, from.arg[FO_ATTENTION_Q].buf);
	o->kind = FO_OP_attention_eager;
	o->n = FO_ATTENTION_EAGER_PROB;
	o->arg[FO_ATTENTION_EAGER_DOC_START] = from.arg[FO_ATTENTION_DOC_START];
	o->arg[FO_ATTENTION_EAGER_O] = from.arg[FO_ATTENTION_O];
	fo_op_arg(p, o, prob, 0, FO_DEF);
}

static void replace_backward(struct fo_program *p, struct fo_op *o)
{
	const struct fo_op from = *o;
	int prob = add_probabilities(p, from.arg[FO_ATTENTION_BWD_LSE].buf, from.arg[FO_ATTENTION_BWD_Q].buf);
	o->kind = FO_OP_attention_eager_bwd;
	o->n = FO_ATTENTION_EAGER_BWD_PROB;
	fo_op_arg(p, o, prob, 0, FO_READ);
	o->n = FO_ATTENTION_EAGER_BWD_DV + 1;
	o->arg[FO_ATTENTION_EAGER_BWD_DO] = from.arg[FO_ATTENTION_BWD_DO];
	o->arg[FO_ATTENTION_EAGER_BWD_DQ] = from.arg[FO_ATTENTION_BWD_DQ];
	o->arg[FO_ATTENTION_EAGER_BWD_DK] = from.arg[FO_ATTENTION_BWD_DK];
	o->arg[FO_ATTENTION_EAGER_BWD_DV] = from.arg[FO_ATTENTION_BWD_DV];
}

void fo_pass_attention(struct fo_program *p)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			struct fo_op *o = &p->block[b].op[i];
			if (fo_op_family(o->kind) == FO_OPS_ATTENTION)
				replace_forward(p, o);
			else if (fo_op_family(o->kind) == FO_OPS_ATTENTION_BWD)
				replace_backward(p, o);
		}
	fo_edit_sweep(p);
}
