/* cp by heads: each rank of a cp group has its own tokens of all heads, and while attention is computed all tokens of
 * its own heads. What it computes there is plain attention.
 *
 * Forward, queries, keys and values are sorted by the ranks that own their heads (heads_apart) and exchanged in one
 * all-to-all; the output comes back by another, and its heads are put side by side (heads_together). Backward the same
 * with the gradient of the output, then with those of queries, keys and values. With n ranks a rank receives
 * (n - 1) / n of what it has of each of these tensors.
 *
 * Tokens of a rank are one stretch of the micro-batch's, so that what came from all ranks, one below the other, is in
 * the order of the rows, and documents and windows are those of one rank. Where there are fewer key and value heads
 * than ranks, neighbours get the same ones, and their gradients are added up where they come back.
 *
 * From: DeepSpeed Ulysses (Jacobs et al. 2023). */
#include "pass/pass.h"
#include "program/ring.h"

#include <string.h>

struct heads {
	struct fo_program *p;
	int32_t ranks;
	int block, at;   /* where the next operation goes */
	struct fo_op of; /* the attention that it stands for */
};

static struct fo_op *put(struct heads *h, int kind, int phase, int lane)
{
	return fo_op_insert(h->p, h->block, h->at++, kind, phase, lane);
}

static void add_arg(struct fo_op *o, struct fo_operand a, int access)
{
	a.access = (uint8_t)access;
	o->arg[o->n++] = a;
}

/* A buffer for all tokens with `cols` columns of own heads, or of rows of own tokens for each rank; otherwise like that
 * of an operand. */
static struct fo_operand by_rank(struct heads *h, const struct fo_operand *like, const char *name, int64_t cols)
{
	struct fo_operand a = *like;
	struct fo_buffer b = h->p->buf[like->buf];
	const int known = fo_buffer_find(h->p, name);
	b.rows *= h->ranks;
	b.cols = cols;
	a.buf = (int16_t)(known >= 0 ? known : fo_buffer_like(h->p, name, &b));
	a.r0 = a.c0 = 0;
	a.nr = (int32_t)b.rows;
	a.nc = (int32_t)cols;
	return a;
}

static struct fo_operand columns(struct fo_operand a, int64_t from, int64_t n)
{
	a.c0 = (int32_t)from;
	a.nc = (int32_t)n;
	return a;
}

/* Columns of one rank's heads, of an operand that has all of them. */
static int64_t width_of(const struct heads *h, const struct fo_operand *a)
{
	return fo_heads_each(a->nc / h->of.attr.head_dim, h->ranks) * h->of.attr.head_dim;
}

/* x and y change places by heads. */
static void copy(struct heads *h, enum fo_heads how, const struct fo_operand *x, const struct fo_operand *y, int access)
{
	struct fo_op *o = put(h, fo_op_of_heads(how), h->of.phase, FO_LANE_COMPUTE);
	o->attr.head_dim = h->of.attr.head_dim;
	add_arg(o, *x, FO_READ);
	add_arg(o, *y, access);
}

static void exchange(struct heads *h, const struct fo_operand *x, const struct fo_operand *y)
{
	struct fo_op *o = put(h, fo_op_of_wire(FO_WIRE_ALL_TO_ALL), FO_TRANSFER, FO_LANE_CP);
	o->group = FO_GROUP_CP;
	add_arg(o, *x, FO_READ);
	add_arg(o, *y, FO_DEF);
}

/* Documents of all tokens, whoever reads them. */
static struct fo_operand all_documents(const struct heads *h, const struct fo_operand *doc)
{
	struct fo_operand a = *doc;
	a.nr = (int32_t)h->p->buf[doc->buf].rows;
	return a;
}

/* What has columns of queries, keys and values of own heads side by side. */
static void three(struct heads *h, const struct fo_operand *like, const struct fo_operand *kv, const char *name,
		  struct fo_operand *all, struct fo_operand part[3])
{
	const int64_t q = width_of(h, like), k = width_of(h, kv);
	*all = by_rank(h, like, name, q + 2 * k);
	part[0] = columns(*all, 0, q);
	part[1] = columns(*all, q, k);
	part[2] = columns(*all, q + k, k);
}

/* The attention itself: its operands as h->of has them, until the caller sets those of own heads. */
static struct fo_op *put_attention(struct heads *h, int doc)
{
	struct fo_op *o = put(h, h->of.kind, h->of.phase, h->of.lane);
	o->attr = h->of.attr;
	o->n = h->of.n;
	memcpy(o->arg, h->of.arg, sizeof o->arg);
	o->arg[doc] = all_documents(h, &h->of.arg[doc]);
	return o;
}

static void replace(struct fo_op *o, int arg, const struct fo_operand *by, int access)
{
	o->arg[arg] = *by;
	o->arg[arg].access = (uint8_t)access;
}

static void forward(struct heads *h)
{
	const struct fo_operand *of = h->of.arg, *q = &of[FO_ATTENTION_Q], *out = &of[FO_ATTENTION_O],
				*lse = &of[FO_ATTENTION_LSE];
	struct fo_operand apart, all, to[3], qkv[3];
	three(h, q, &of[FO_ATTENTION_K], "qkv.apart", &apart, to);
	three(h, q, &of[FO_ATTENTION_K], "qkv.heads", &all, qkv);
	const struct fo_operand o = by_rank(h, out, "o.heads", width_of(h, out)),
				back = by_rank(h, out, "o.apart", width_of(h, out)),
				sums = by_rank(h, lse, "lse.heads", lse->nc / h->ranks);
	for (int i = 0; i < 3; i++)
		copy(h, FO_HEADS_APART, &of[FO_ATTENTION_Q + i], &to[i], i ? FO_PART : FO_DEF);
	exchange(h, &apart, &all);
	struct fo_op *a = put_attention(h, FO_ATTENTION_DOC_START);
	for (int i = 0; i < 3; i++)
		replace(a, FO_ATTENTION_Q + i, &qkv[i], FO_READ);
	replace(a, FO_ATTENTION_O, &o, FO_DEF);
	replace(a, FO_ATTENTION_LSE, &sums, FO_DEF);
	exchange(h, &o, &back);
	copy(h, FO_HEADS_TOGETHER, &back, out, FO_DEF);
}

static void backward(struct heads *h)
{
	const struct fo_operand *of = h->of.arg, *q = &of[FO_ATTENTION_BWD_Q], *d = &of[FO_ATTENTION_BWD_DO],
				*out = &of[FO_ATTENTION_BWD_O], *lse = &of[FO_ATTENTION_BWD_LSE];
	struct fo_operand all, qkv[3], made, grad[3], back, from[3];
	three(h, q, &of[FO_ATTENTION_BWD_K], "qkv.heads", &all, qkv);
	three(h, &of[FO_ATTENTION_BWD_DQ], &of[FO_ATTENTION_BWD_DK], "d.qkv.heads", &made, grad);
	three(h, &of[FO_ATTENTION_BWD_DQ], &of[FO_ATTENTION_BWD_DK], "d.qkv.apart", &back, from);
	const struct fo_operand o = by_rank(h, out, "o.heads", width_of(h, out)),
				sums = by_rank(h, lse, "lse.heads", lse->nc / h->ranks),
				apart = by_rank(h, d, "d.o.apart", width_of(h, d)),
				came = by_rank(h, d, "d.o.heads", width_of(h, d));
	copy(h, FO_HEADS_APART, d, &apart, FO_DEF);
	exchange(h, &apart, &came);
	struct fo_op *a = put_attention(h, FO_ATTENTION_BWD_DOC_START);
	for (int i = 0; i < 3; i++) {
		replace(a, FO_ATTENTION_BWD_Q + i, &qkv[i], FO_READ);
		replace(a, FO_ATTENTION_BWD_DQ + i, &grad[i], i ? FO_PART : FO_DEF);
	}
	replace(a, FO_ATTENTION_BWD_O, &o, FO_READ);
	replace(a, FO_ATTENTION_BWD_LSE, &sums, FO_READ);
	replace(a, FO_ATTENTION_BWD_DO, &came, FO_READ);
	exchange(h, &made, &back);
	for (int i = 0; i < 3; i++)
		copy(h, FO_HEADS_TOGETHER, &from[i], &of[FO_ATTENTION_BWD_DQ + i], FO_DEF);
}

/* The batch brings the documents of all tokens of the group. */
static void widen_documents(struct heads *h)
{
	for (int b = 0; b < h->p->nblock; b++)
		for (int i = 0; i < h->p->block[b].n; i++) {
			struct fo_op *o = &h->p->block[b].op[i];
			if (o->attr.port != FO_PORT_BATCH || o->n <= FO_PORT_BATCH_DOC_START)
				continue;
			struct fo_operand *doc = &o->arg[FO_PORT_BATCH_DOC_START];
			h->p->buf[doc->buf].rows *= h->ranks;
			*doc = all_documents(h, doc);
		}
}

void fo_pass_cp_heads(struct fo_program *p)
{
	struct heads h = { .p = p };
	h.ranks = fo_mesh_group(&p->run.mesh, FO_GROUP_CP, NULL, NULL);
	widen_documents(&h);
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			h.of = p->block[b].op[i];
			const enum fo_op_family family = fo_op_family(h.of.kind);
			if (family != FO_OPS_ATTENTION && family != FO_OPS_ATTENTION_BWD)
				continue;
			fo_op_remove(p, b, i);
			h.block = b;
			h.at = i;
			if (family == FO_OPS_ATTENTION)
				forward(&h);
			else
				backward(&h);
			i = h.at - 1;
		}
	fo_edit_sweep(p);
}
