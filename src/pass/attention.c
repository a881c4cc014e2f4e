/* attention: the baseline that the tiled kernels are measured against.
 *
 * Each attention becomes attention_eager, whose probabilities are a tensor of the program: written forward, read
 * backward, S columns per token and head. Backward needs them and neither the output nor its log sums, which go. A
 * text's cached attention stays: one query's scores are a row either way. */
#include "pass/pass.h"

/* Operands that both directions begin with: q, k, v. */
enum { VALUES = 3 };

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
	const struct fo_buffer b = p->buf[lse];
	return fo_buffer_add(p, "prob", p->buf[q].dtype, b.home, b.axes, b.rows, b.row_axis, b.cols * p->run.seq,
			     b.col_axis);
}

static void put(struct fo_op *o, const struct fo_op *from, int arg) { o->arg[o->n++] = from->arg[arg]; }

static void replace(struct fo_program *p, struct fo_op *o)
{
	const struct fo_op from = *o;
	bool bwd = from.kind == FO_OP_attention_bwd;
	int prob = add_probabilities(p, from.arg[bwd ? 4 : 5].buf, from.arg[0].buf);
	o->kind = bwd ? FO_OP_attention_eager_bwd : FO_OP_attention_eager;
	o->n = VALUES;
	if (bwd) {
		fo_op_arg(p, o, prob, 0, FO_READ);
		put(o, &from, 5);
		for (int i = 7; i < from.n; i++)
			put(o, &from, i);
	} else {
		put(o, &from, 3);
		put(o, &from, 4);
		fo_op_arg(p, o, prob, 0, FO_DEF);
	}
}

fo_status fo_pass_attention(struct fo_program *p)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			int kind = p->block[b].op[i].kind;
			if (kind == FO_OP_attention || kind == FO_OP_attention_bwd)
				replace(p, &p->block[b].op[i]);
		}
	fo_edit_sweep(p);
	return FO_OK;
}
