/* merge-qkv and merge-gate-up: matmuls that read the same input become one.
 *
 * Forward the input is packed and read once and the matmul is wider; backward the gradient of the input is one matmul
 * over the joint depth instead of several that add to each other, and the weight gradient is one matmul too. The merged
 * tensors are buffers of their own (wqkv, gateup, ...); what was a tensor is a rectangle of it, for checkpoints as for
 * attention. NVIDIA's Megatron-LM and others do the same. Results that travel between ranks stay buffers of their own,
 * each with its matmul.
 *
 * The matmuls are found by what reads their results (fo_recompute_set_of), their other buffers by the operations that
 * use them. */
#include "pass/pass.h"

#include <stdio.h>

enum { MOST = 4, FIELDS = FO_PARAM_BUFFERS };
static const char *const prefix[FIELDS] = { "", "w32.", "m.", "v.", "d." };

/* Buffers of the matmuls that become one, by matmul; -1: the program has none. */
struct family {
	int n;
	int weight[FIELDS][MOST], bias[FIELDS][MOST]; /* value, master, two moments, gradient */
	int value[MOST], gradient[MOST];
};

static void fields_of(const struct fo_program *p, int weight, int at, int (*out)[MOST])
{
	const struct fo_param *q = p->param, *end = q + p->nparam;
	while (q < end && q->weight != weight)
		q++;
	for (int k = 0; k < FIELDS; k++)
		out[k][at] = q < end ? q->buf[k] : -1;
}

/* The bias that the block adds to buffer y; -1: none. */
static int bias_of(const struct fo_block *b, int y)
{
	for (int i = 0; i < b->n; i++)
		if (fo_op_family(b->op[i].kind) == FO_OPS_BIAS && b->op[i].arg[FO_ADD_BIAS_Y].buf == y)
			return b->op[i].arg[FO_ADD_BIAS_B].buf;
	return -1;
}

/* The gradient dy that the weight's gradient is made from, dw += dy' x; -1: none. */
static int gradient_of(const struct fo_program *p, int dw)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			if (fo_op_family(o->kind) == FO_OPS_MATMUL && o->arg[FO_MATMUL_C].buf == dw)
				return o->arg[FO_MATMUL_A].buf;
		}
	return -1;
}

/* The matmuls of a layer's forward block that belong to `set`. */
static void find(const struct fo_program *p, int set, struct family *f)
{
	f->n = 0;
	for (int b = 0; b < p->nblock && !f->n; b++) {
		const struct fo_block *k = &p->block[b];
		if (k->unit != FO_UNIT_LAYER || k->role != FO_ROLE_FORWARD)
			continue;
		for (int i = 0; i < k->n && f->n < MOST; i++) {
			const struct fo_op *o = &k->op[i];
			if (fo_op_family(o->kind) != FO_OPS_MATMUL || fo_recompute_set_of(k, i) != set)
				continue;
			int at = f->n++;
			f->value[at] = o->arg[FO_MATMUL_C].buf;
			fields_of(p, o->arg[FO_MATMUL_B].buf, at, f->weight);
			fields_of(p, bias_of(k, f->value[at]), at, f->bias);
			f->gradient[at] = gradient_of(p, f->weight[FIELDS - 1][at]);
		}
	}
}

/* Joins n buffers into `before` + `merged` where the program has them. */
static void concat(struct fo_program *p, const int *ids, int n, const char *before, const char *merged, bool by_rows)
{
	char text[24];
	for (int i = 0; i < n; i++)
		if (ids[i] < 0)
			return;
	snprintf(text, sizeof text, "%s%s", before, merged);
	fo_edit_concat(p, text, ids, n, by_rows);
}

/* Whether ranks send one of them to each other (pass cp): what travels is whole rows of a buffer. */
static bool travels(const struct fo_program *p, const int *ids, int n)
{
	bool any = false;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			for (int k = 0;
			     fo_op_info(p->block[b].op[i].kind)->cls == FO_CLASS_COMM && k < p->block[b].op[i].n; k++)
				for (int j = 0; j < n; j++)
					any |= p->block[b].op[i].arg[k].buf == ids[j];
	return any;
}

static void merge(struct fo_program *p, int set, const char *weight, const char *bias, const char *value)
{
	struct family f;
	find(p, set, &f);
	for (int k = 1; k < f.n; k++) /* a sum over a kv group takes whole buffers */
		if (p->buf[f.weight[0][k]].tp != p->buf[f.weight[0][0]].tp)
			return;
	for (int k = 0; k < FIELDS && f.n > 1; k++)
		concat(p, f.weight[k], f.n, prefix[k], weight, true);
	for (int k = 0; k < FIELDS && f.n > 1; k++)
		concat(p, f.bias[k], f.n, prefix[k], bias, false);
	if (f.n > 1) {
		if (!travels(p, f.value, f.n))
			concat(p, f.value, f.n, "", value, false);
		concat(p, f.gradient, f.n, "d.", value, false);
	}
	fo_edit_join(p);
	fo_edit_sweep(p);
}

void fo_pass_merge_qkv(struct fo_program *p) { merge(p, FO_RECOMPUTE_QKV, "wqkv", "bqkv", "qkv"); }

void fo_pass_merge_gate_up(struct fo_program *p) { merge(p, FO_RECOMPUTE_GATE_UP, "wgu", "bgu", "gateup"); }
